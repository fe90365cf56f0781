// The pair sweep of the complete graph. Included by sweep_impl.hpp inside the namespace of each compilation.
//
// Bound: a relaxed step moves each number of the state once in and once out; per number it does about 9
// operations, and per pair two inverse roots. Columns of a tile (x and sums) stay in the nearest cache, the
// sums of a row in registers.

// The weights of one block: zero for padding, so that padded lanes never reach a sum.
template <class P>
struct BlockWeights {
    P of_columns;  // r_j: what the row sums take
    P of_row;      // r_i: what the column sums take
};

template <class P, class A>
inline BlockWeights<P> block_weights(const A* r, Index i, Index column) {
    const P rj = load<P>(r + column), ri = splat<P>(r[i]);
    if (i < column) return {rj, ri};
    // A block on the diagonal: only lanes beyond it are pairs.
    const P lane = count_from<P>(A(0)), own = splat<P>(static_cast<A>(i - column));
    return {where_above(lane, own, rj, zero<P>()), where_above(lane, own, ri, zero<P>())};
}

// keep = c0 + c1 s in  y <- keep y + alpha rho (x_i - x_j):  (1 - alpha) y~ + alpha P(y) with both
// proportional to y.
template <class P>
struct RelaxFactors {
    P radius, before, c0, c1;
    bool moves;
    explicit RelaxFactors(const StepParameters& step, Index d) : moves(step.lam_old > 0.0) {
        const double a = step.alpha, stretch = step.stretch, old = moves ? step.lam_old : step.lam;
        radius = splat<P>(step.lam * (1.0 - ball_shrink(d)));
        before = splat<P>(old * (1.0 - ball_shrink(d)));
        c0 = splat<P>((1.0 - a) * stretch);
        c1 = splat<P>(moves ? (1.0 - a) * (step.lam / old - 1.0) + a * step.lam / old
                            : (1.0 - a) * (1.0 - stretch) + a);
    }
    // Only a sweep with duals moves.
    template <bool may_move>
    P keep(const P& squared) const {
        const P s = shrink_factor(squared, may_move ? before : radius), line = fma(s, c1, c0);
        if constexpr (!may_move) return line;
        return where_above(splat<P>(1.0), s, line, splat<P>(1.0));  // inside the ball y stays
    }
};

// What a check asks of the pairs beside the duals. `whole`: every lane is a pair.
template <class P>
struct PairTold {
    static constexpr double kFar = 1e300;
    P lengths = zero<P>(), residual = zero<P>(), nearest = splat<P>(kFar), tightest = zero<P>();
    P radius, loosen;
    PairTold(const StepParameters& step, Index d)
        : radius(splat<P>(step.lam * (1.0 - ball_shrink(d)))), loosen(splat<P>(1.0 / step.rho)) {}
    // With u = x_i - x_j: s = min(1, lam / ||y||), apart = ||u||^2, missing = ||u - (1 - s) y / rho||^2.
    void add(const BlockWeights<P>& w, bool whole, const P& s, const P& apart, const P& missing) {
        lengths = fma(w.of_columns, root(apart), lengths);
        if (whole) {
            residual = residual + missing;
            nearest = smaller(nearest, apart);
            tightest = larger(tightest, s);
            return;
        }
        const P weight = w.of_columns * w.of_row, none = zero<P>();
        residual = residual + where_above(weight, none, missing, none);
        nearest = smaller(nearest, where_above(weight, none, apart, splat<P>(kFar)));
        tightest = larger(tightest, where_above(weight, none, s, none));
    }
};

// `missing` from ||u||^2, <u, y> and ||y||^2: good to half of the digits of u.
template <class P>
inline P missing_of(const P& s, const P& loosen, const P& apart, const P& cross, const P& squared) {
    const P loose = (splat<P>(1.0) - s) * loosen;
    return fma(loose, fnma(splat<P>(2.0), cross, loose * squared), apart);
}

// The state is asked for this many bytes before it is needed: near enough not to be lost again, far enough
// for the slowest memory.
constexpr Index kAhead = 10240;
template <class S>
inline void fetch(const S* y) {
    __builtin_prefetch(y + kAhead / static_cast<Index>(sizeof(S)), 0, 2);
}

// K neighbouring blocks of one row at a time, for a number of features known at compile time: y stays in
// registers, and while the roots of one block are on their way the others go on.
template <int D, int K, bool may_move, class S, class P, class A>
inline void relax_small(S* y, const A* xi, const A* xj, const RelaxFactors<P>& f, const BlockWeights<P>* w,
                        A* row_t, A* column_t) {
    constexpr int L = P::kParts * P::kWidth, block = D * L;
    P v[K][D], factor[K];
    FUSIONOPT_UNROLL
    for (int b = 0; b < K; ++b) {
        P sums[2];
        FUSIONOPT_UNROLL
        for (int k = 0; k < D; ++k) {
            v[b][k] = load<P>(y + b * block + k * L);
            sums[k % 2] = k < 2 ? v[b][k] * v[b][k] : fma(v[b][k], v[b][k], sums[k % 2]);
        }
        factor[b] = D > 1 ? sums[0] + sums[1] : sums[0];
    }
    FUSIONOPT_UNROLL
    for (int b = 0; b < K; ++b) factor[b] = f.template keep<may_move>(factor[b]);
    P sums[K][2];
    FUSIONOPT_UNROLL
    for (int k = 0; k < D; ++k) {
        const P own = splat<P>(xi[k]);
        FUSIONOPT_UNROLL
        for (int b = 0; b < K; ++b) {
            S* const place = y + b * block + k * L;
            v[b][k] = fma(factor[b], v[b][k], own - load<P>(xj + b * block + k * L));
            store(place, v[b][k]);
            fetch(place);
            sums[b][k % 2] = k < 2 ? v[b][k] * v[b][k] : fma(v[b][k], v[b][k], sums[b][k % 2]);
        }
    }
    P to_row[K], to_column[K];
    FUSIONOPT_UNROLL
    for (int b = 0; b < K; ++b) {
        factor[b] = shrink_factor(D > 1 ? sums[b][0] + sums[b][1] : sums[b][0], f.radius);
        const P to_t = fnma(splat<P>(2.0), factor[b], splat<P>(1.0));
        to_row[b] = to_t * w[b].of_columns;
        to_column[b] = to_t * w[b].of_row;
    }
    FUSIONOPT_UNROLL
    for (int k = 0; k < D; ++k) {
        P total = load<P>(row_t + k * L);
        FUSIONOPT_UNROLL
        for (int b = 0; b < K; ++b) {
            total = fma(to_row[b], v[b][k], total);
            A* const place = column_t + b * block + k * L;
            store(place, fnma(to_column[b], v[b][k], load<P>(place)));
        }
        store(row_t + k * L, total);
    }
}

// One block with any number of features: y is read from the nearest cache again.
template <bool may_move, class S, class P, class A>
inline void relax_large(Index d, S* y, const A* xi, const A* xj, const RelaxFactors<P>& f,
                        const BlockWeights<P>& w, A* row_t, A* column_t) {
    constexpr Index L = P::kParts * P::kWidth;
    P even = zero<P>(), odd = zero<P>();
    const auto measure = [&](Index k, P& total) {
        const P v = load<P>(y + k * L);
        total = fma(v, v, total);
    };
    Index k = 0;
    for (; k + 2 <= d; k += 2) {
        measure(k, even);
        measure(k + 1, odd);
    }
    if (k < d) measure(k, even);
    const P keep = f.template keep<may_move>(even + odd);
    even = odd = zero<P>();
    const auto move = [&](Index k, P& total) {
        const P v = fma(keep, load<P>(y + k * L), splat<P>(xi[k]) - load<P>(xj + k * L));
        store(y + k * L, v);
        total = fma(v, v, total);
    };
    for (k = 0; k + 2 <= d; k += 2) {
        move(k, even);
        move(k + 1, odd);
    }
    if (k < d) move(k, even);
    const P s = shrink_factor(even + odd, f.radius), to_t = fnma(splat<P>(2.0), s, splat<P>(1.0));
    const P to_row = to_t * w.of_columns, to_column = to_t * w.of_row;
    for (k = 0; k < d; ++k) {
        const P v = load<P>(y + k * L);
        fetch(y + k * L);
        const P row = fma(to_row, v, load<P>(row_t + k * L));
        const P column = fnma(to_column, v, load<P>(column_t + k * L));
        store(row_t + k * L, row);
        store(column_t + k * L, column);
    }
}

// The duals of one block and what else a check asks, of the state as it is stored; in float64.
template <int D, class S, class P>
[[gnu::always_inline]] inline void check_block(Index features, const S* y, const double* xi, const double* xj,
                                               const BlockWeights<P>& w, double* row_g, double* column_g,
                                               PairTold<P>& told, bool whole) {
    constexpr Index L = P::kParts * P::kWidth;
    const Index d = D > 0 ? D : features;
    P squared = zero<P>(), apart = zero<P>(), cross = zero<P>();
    FUSIONOPT_UNROLL
    for (Index k = 0; k < d; ++k) {
        const P v = load<P>(y + k * L), u = splat<P>(xi[k]) - load<P>(xj + k * L);
        squared = fma(v, v, squared);
        apart = fma(u, u, apart);
        cross = fma(u, v, cross);
    }
    const P s = shrink_factor(squared, told.radius), to_row = s * w.of_columns, to_column = s * w.of_row;
    FUSIONOPT_UNROLL
    for (Index k = 0; k < d; ++k) {
        const P v = load<P>(y + k * L);
        store(row_g + k * L, fma(to_row, v, load<P>(row_g + k * L)));
        store(column_g + k * L, fnma(to_column, v, load<P>(column_g + k * L)));
    }
    told.add(w, whole, s, apart, missing_of(s, told.loosen, apart, cross, squared));
}

// What the rarer kinds do to a block; float64 arithmetic.
template <SweepKind kind, bool dual, class S, class P>
inline void other_block(const PairSweep& a, const StepParameters& step, S* y, Index i, Index column,
                        const BlockWeights<P>& w, double* row_t, double* column_t, double* row_g,
                        double* column_g, PairTold<P>& told, P& before) {
    constexpr Index L = P::kParts * P::kWidth;
    const Index d = a.layout.n_features;
    const P radius = splat<P>(step.lam * (1.0 - ball_shrink(d))), lam = splat<P>(step.lam);
    const double* const xi = static_cast<const double*>(a.x_rows) + i * d;
    const double* const xj = static_cast<const double*>(a.x_blocks) + column * d;
    const auto difference = [&](Index k) { return splat<P>(xi[k]) - load<P>(xj + k * L); };
    const auto potential = [&](Index k) {
        return splat<P>(a.phi_rows[i * d + k]) - load<P>(a.phi_blocks + column * d + k * L);
    };
    P squared = zero<P>(), after = zero<P>(), apart = zero<P>();
    for (Index k = 0; k < d; ++k) {
        const P v = load<P>(y + k * L), u = difference(k);
        squared = fma(v, v, squared);
        apart = fma(u, u, apart);
    }
    const auto put = [&](Index k, const P& value, bool commit) {
        if (commit) {
            store(y + k * L, value);
            const P v = load<P>(y + k * L);
            after = fma(v, v, after);
        } else {
            after = fma(value, value, after);
        }
    };
    if constexpr (kind == SweepKind::kMeasure) {
        after = squared;
    } else if constexpr (kind == SweepKind::kMove) {
        const P n = norm(squared), lam_old = splat<P>(a.lam_old), one = splat<P>(1.0);
        const P factor = where_above(
            n, lam_old,
            larger(zero<P>(), fma(lam - lam_old, inverse_root(squared + splat<P>(kGuard<double>)), one)),
            one);
        for (Index k = 0; k < d; ++k) put(k, factor * load<P>(y + k * L), true);
    } else if constexpr (kind == SweepKind::kProject) {
        const P s = shrink_factor(squared, radius), scale = splat<P>(a.scale);
        for (Index k = 0; k < d; ++k) put(k, scale * fma(s, load<P>(y + k * L), potential(k)), a.commit);
        before = root(after);
    } else {
        const P s = shrink_factor(squared, radius), none = zero<P>();
        const P factor = fma(lam, inverse_root(apart + splat<P>(kGuard<double>)), splat<P>(step.rho));
        for (Index k = 0; k < d; ++k)
            put(k, where_above(apart, none, factor * difference(k), fma(s, load<P>(y + k * L), potential(k))),
                true);
        before = where_above(apart, none, none, root(after));
    }
    before = where_above(w.of_columns * w.of_row, zero<P>(), before, zero<P>());
    const P s = shrink_factor(after, radius), to_t = splat<P>(1.0) - (s + s);
    const P loose = (splat<P>(1.0) - s) * splat<P>(1.0 / step.rho);
    P missing = zero<P>();
    for (Index k = 0; k < d; ++k) {
        const P v = load<P>(y + k * L);
        if constexpr (dual) {
            const P m = fnma(loose, v, difference(k));
            missing = fma(m, m, missing);
        }
        store(row_t + k * L, fma(to_t * w.of_columns, v, load<P>(row_t + k * L)));
        store(column_t + k * L, fnma(to_t * w.of_row, v, load<P>(column_t + k * L)));
        if constexpr (dual) {
            store(row_g + k * L, fma(s * w.of_columns, v, load<P>(row_g + k * L)));
            store(column_g + k * L, fnma(s * w.of_row, v, load<P>(column_g + k * L)));
        }
    }
    if constexpr (dual) told.add(w, false, s, apart, missing);
}

// S: what the state is stored in, A: what is computed in (checks apart), D: number of features where that is
// known.
template <class S, class A, int D, SweepKind kind, bool dual>
void pair_chunk(const PairSweep& a, const StepParameters& step, PairChunk& c) {
    constexpr Index L = 64 / static_cast<Index>(sizeof(S));
    typedef Pack<A, static_cast<int>(L)> P;
    typedef Pack<double, static_cast<int>(L)> Q;
    // Sums of columns in float32 go to float64 after the rows of each strip.
    constexpr bool flush = sizeof(A) == sizeof(float);
    const PairLayout& at = a.layout;
    const Index d = D > 0 ? D : at.n_features, block = d * L, n_blocks = at.n_blocks(), tile = at.tile();
    const RelaxFactors<P> factors(step, d);
    const A *const x_rows = static_cast<const A*>(a.x_rows), *const r = static_cast<const A*>(a.r);
    const A* const x_blocks = static_cast<const A*>(a.x_blocks);
    double* const rows_g = c.scratch;
    A* const rows_t = reinterpret_cast<A*>(rows_g + PairLayout::kStrip * block);
    A* const tile_t = rows_t + PairLayout::kStrip * block;
    const Index from = at.first_block(c.first_strip) * block, to = n_blocks * block;
    for (Index k = from; k < to; ++k) c.t_blocks[k] = 0.0;
    if constexpr (dual)
        for (Index k = from; k < to; ++k) c.g_blocks[k] = 0.0;
    if constexpr (kind == SweepKind::kManifold)
        for (Index k = 0; k < n_blocks * L; ++k) c.worst[k] = 0.0;
    double penalty = 0.0, largest = 0.0;
    PairTold<Q> told(step, d);
    S* y = static_cast<S*>(a.y) + at.blocks_before(c.first_strip) * block;
    for (Index strip = c.first_strip; strip < c.last_strip; ++strip) {
        const Index top = strip * PairLayout::kStrip, n_rows = at.rows(strip);
        for (Index k = 0; k < n_rows * block; ++k) rows_t[k] = A(0);
        if constexpr (dual)
            for (Index k = 0; k < n_rows * block; ++k) rows_g[k] = 0.0;
        Q row_penalty[PairLayout::kStrip];
        if constexpr (dual)
            for (Index row = 0; row < n_rows; ++row) row_penalty[row] = zero<Q>();
        for (Index start = at.first_block(strip); start < n_blocks; start += tile) {
            const Index width = n_blocks - start < tile ? n_blocks - start : tile;
            A* columns_t;
            if constexpr (flush) {
                columns_t = tile_t;
                for (Index k = 0; k < width * block; ++k) columns_t[k] = A(0);
            } else {
                columns_t = c.t_blocks + start * block;
            }
            double* const columns_g = dual ? c.g_blocks + start * block : nullptr;
            for (Index row = 0; row < n_rows; ++row) {
                const Index i = top + row;
                A* const row_t = rows_t + row * block;
                double* const row_g = rows_g + row * block;
                if constexpr (dual) told.lengths = row_penalty[row];
                if constexpr (kind == SweepKind::kRelax) {
                    // How many blocks' values fit the registers.
#if FUSIONOPT_REGISTER >= 64
                    constexpr int K = D == 0 || D > 12 ? 1 : D > 4 ? 2 : 4;
#else
                    constexpr int K = D == 0 || D > 2 ? 1 : 2;
#endif
                    const auto go = [&](Index b, auto many) {
                        constexpr int n = decltype(many)::value;
                        const Index column = (start + b) * L;
                        BlockWeights<P> w[n];
                        for (int l = 0; l < n; ++l) w[l] = block_weights<P>(r, i, column + l * L);
                        const A *const xi = x_rows + i * d, *const xj = x_blocks + column * d;
                        A* const column_t = columns_t + b * block;
                        if constexpr (D > 0)
                            relax_small<D, n, dual>(y, xi, xj, factors, w, row_t, column_t);
                        else
                            relax_large<dual>(d, y, xi, xj, factors, w[0], row_t, column_t);
                        if constexpr (dual)
                            for (Index l = 0; l < n; ++l) {
                                const Index own = column + l * L;
                                const bool whole = i < own && own + L <= at.n_nodes;
                                check_block<D>(d, y + l * block, a.plain_rows + i * d,
                                               a.plain_blocks + own * d, block_weights<Q>(a.plain_r, i, own),
                                               row_g, columns_g + (b + l) * block, told, whole);
                            }
                        y += n * block;
                    };
                    Index b = 0;
                    for (; b + K <= width; b += K) go(b, std::integral_constant<int, K>());
                    for (; b < width; ++b) go(b, std::integral_constant<int, 1>());
                } else {
                    for (Index b = 0; b < width; ++b, y += block) {
                        const Index column = (start + b) * L;
                        P before = zero<P>();
                        other_block<kind, dual>(a, step, y, i, column, block_weights<P>(r, i, column), row_t,
                                                columns_t + b * block, row_g,
                                                dual ? columns_g + b * block : nullptr, told, before);
                        const double most = maximum(before);
                        largest = most > largest ? most : largest;
                        if constexpr (kind == SweepKind::kManifold) {
                            c.worst[i] = most > c.worst[i] ? most : c.worst[i];
                            store(c.worst + column, larger(load<P>(c.worst + column), before));
                        }
                    }
                }
                if constexpr (dual) row_penalty[row] = told.lengths;
            }
            if constexpr (flush) {
                double* const total = c.t_blocks + start * block;
                for (Index k = 0; k < width * block; ++k) total[k] += static_cast<double>(columns_t[k]);
            }
        }
        for (Index row = 0; row < n_rows; ++row) {
            const Index i = top + row;
            for (Index k = 0; k < d; ++k) {
                c.t_rows[i * d + k] = sum(load<P>(rows_t + row * block + k * L));
                if constexpr (dual) c.g_rows[i * d + k] = sum(load<Q>(rows_g + row * block + k * L));
            }
            if constexpr (dual) penalty += a.plain_r[i] * sum(row_penalty[row]);
        }
    }
    c.penalty = penalty;
    c.largest = largest;
    c.residual = sum(told.residual);
    c.nearest = -maximum(zero<Q>() - told.nearest);
    c.tightest = maximum(told.tightest);
}

template <class S, bool dual>
void other_pairs(const PairSweep& a, const StepParameters& step, SweepKind kind, PairChunk& c) {
    switch (kind) {
        case SweepKind::kMeasure:
            return pair_chunk<S, double, 0, SweepKind::kMeasure, dual>(a, step, c);
        case SweepKind::kMove:
            return pair_chunk<S, double, 0, SweepKind::kMove, dual>(a, step, c);
        case SweepKind::kProject:
            return pair_chunk<S, double, 0, SweepKind::kProject, dual>(a, step, c);
        default:
            return pair_chunk<S, double, 0, SweepKind::kManifold, dual>(a, step, c);
    }
}

template <class S, int D>
void relax_pairs(const PairSweep& a, const StepParameters& step, PairChunk& c) {
    if (a.want_dual)
        pair_chunk<S, S, D, SweepKind::kRelax, true>(a, step, c);
    else
        pair_chunk<S, S, D, SweepKind::kRelax, false>(a, step, c);
}

template <class S>
void pairs_of(const PairSweep& a, const StepParameters& step, SweepKind kind, PairChunk& c) {
    if (kind == SweepKind::kRelax)
#if FUSIONOPT_REGISTER >= 64
        with_features<1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16>(
#else
        with_features<1, 2, 3, 4, 10>(
#endif
            a.layout.n_features, [&](auto d) { relax_pairs<S, decltype(d)::value>(a, step, c); });
    else if (a.want_dual)
        other_pairs<S, true>(a, step, kind, c);
    else
        other_pairs<S, false>(a, step, kind, c);
}

void pairs(const PairSweep& a, const StepParameters& step, SweepKind kind, PairChunk& c) {
    if (a.narrow)
        pairs_of<float>(a, step, kind, c);
    else
        pairs_of<double>(a, step, kind, c);
}
