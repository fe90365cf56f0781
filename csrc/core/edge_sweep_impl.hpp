// The edge sweep. Included by sweep_impl.hpp inside the namespace of each compilation.
//
// Bound: the state in and out, and the rows of x of both ends, which come from wherever the order of the
// nodes puts them.

// One block of kLanes edges. D > 0: y in registers. Returns s with P(y) = s y for the new y, ||x_i - x_j||,
// and the norm of the edges that received phi.
template <class P>
struct EdgeBlock {
    P projection, distance, before;
};

template <int D, SweepKind kind, bool dual, class P>
inline EdgeBlock<P> edge_block(const EdgeSweep& a, double* y, Index n_features, const P& radius,
                               const StepParameters& step, const P& rho, const P& stretch,
                               const double* apart, const double* lifted) {
    constexpr Index L = kLanes;
    const Index d = D > 0 ? D : n_features;
    const P one = splat<P>(1.0);
    P squared = zero<P>(), after = zero<P>(), distance = zero<P>(), before = zero<P>();
    for (Index k = 0; k < d; ++k) {
        const P v = load<P>(y + k * L);
        squared = fma(v, v, squared);
    }
    if constexpr (dual || kind == SweepKind::kManifold)
        for (Index k = 0; k < d; ++k) {
            const P u = load<P>(apart + k * L);
            distance = fma(u, u, distance);
        }
    const auto put = [&](Index k, const P& value, bool commit) {
        if (commit) store(y + k * L, value);
        after = fma(value, value, after);
    };
    if constexpr (kind == SweepKind::kRelax) {
        const P s = shrink_factor(squared, radius), alpha = splat<P>(step.alpha);
        const P stretched = fma(stretch, one - s, s);
        const P keep = fma(alpha, s - stretched, stretched), pull = alpha * rho;
        for (Index k = 0; k < d; ++k)
            put(k, fma(keep, load<P>(y + k * L), pull * load<P>(apart + k * L)), true);
    } else if constexpr (kind == SweepKind::kMove) {
        const P n = norm(squared), lam_old = splat<P>(a.lam_old), change = splat<P>(step.lam - a.lam_old);
        const P inverse = inverse_root(squared + splat<P>(kGuard<double>));
        const P factor = where_above(n, lam_old, larger(zero<P>(), fma(change, inverse, one)), one);
        for (Index k = 0; k < d; ++k) put(k, factor * load<P>(y + k * L), true);
    } else if constexpr (kind == SweepKind::kProject) {
        const P s = shrink_factor(squared, radius), scale = splat<P>(a.scale);
        for (Index k = 0; k < d; ++k)
            put(k, scale * fma(s, load<P>(y + k * L), load<P>(lifted + k * L)), a.commit);
        before = root(after);
    } else {
        const P none = zero<P>(), s = shrink_factor(squared, radius);
        const P factor = fma(splat<P>(step.lam), inverse_root(distance + splat<P>(kGuard<double>)), rho);
        for (Index k = 0; k < d; ++k)
            put(k,
                where_above(distance, none, factor * load<P>(apart + k * L),
                            fma(s, load<P>(y + k * L), load<P>(lifted + k * L))),
                true);
        before = where_above(distance, none, none, root(after));
        return {shrink_factor(after, radius), dual ? root(distance) : distance, before};
    }
    return {shrink_factor(after, radius), dual ? root(distance) : distance, before};
}

template <int D, SweepKind kind, bool dual>
void edge_sweep(EdgeSweep& a, const StepParameters& step) {
    typedef Pack<double, static_cast<int>(kLanes)> P;
    constexpr bool potential = kind == SweepKind::kManifold || kind == SweepKind::kProject;
    const Index d = D > 0 ? D : a.n_features;
    const P radius = splat<P>(step.lam * (1.0 - ball_shrink(d)));
    P penalty = zero<P>(), lost = zero<P>(), largest = zero<P>();
    double* y = a.y + a.first * d;
    alignas(64) double own[(D > 0 ? 2 * D : 1) * kLanes];
    double* const apart = D > 0 ? own : a.row;
    double* const lifted = apart + d * kLanes;
    for (Index e = a.first; e < a.last; e += kLanes, y += d * kLanes) {
        const std::int32_t* const tail = a.tail + e;
        const std::int32_t* const head = a.head + e;
        const P w = load<P>(a.weight + e);
        for (Index l = 0; l < kLanes; ++l) {
            const double* const xi = a.x + tail[l] * d;
            const double* const xj = a.x + head[l] * d;
            const Index next = head[l + kAhead] * d;
            ask_for(a.x + next, d);
            if (a.t != nullptr) ask_for(a.t + next, d);
            for (Index k = 0; k < d; ++k) apart[k * kLanes + l] = xi[k] - xj[k];
            if constexpr (potential) {
                const double* const pi = a.phi + tail[l] * d;
                const double* const pj = a.phi + head[l] * d;
                for (Index k = 0; k < d; ++k) lifted[k * kLanes + l] = pi[k] - pj[k];
            }
        }
        const P stretch = a.stretch != nullptr ? load<P>(a.stretch + e) : splat<P>(1.0);
        const EdgeBlock<P> b = edge_block<D, kind, dual, P>(
            a, y, d, radius, step, splat<P>(step.rho) * load<P>(a.rho + e), stretch, apart, lifted);
        if constexpr (dual) {
            // Compensated: the chain over all edges would otherwise set the rounding bound of the whole
            // certificate.
            const P term = fnma(splat<P>(1.0), lost, w * b.distance), next = penalty + term;
            lost = (next - penalty) - term;
            penalty = next;
        }
        if constexpr (potential) {
            const P before = where_above(w, zero<P>(), b.before, zero<P>());
            largest = larger(largest, before);
            if constexpr (kind == SweepKind::kManifold) store(a.norms + e, before);
        }
        const P to_g = w * b.projection, to_t = w - (to_g + to_g);
        for (Index k = 0; k < d; ++k) store(apart + k * kLanes, to_t * load<P>(y + k * kLanes));
        if constexpr (dual)
            for (Index k = 0; k < d; ++k) store(lifted + k * kLanes, to_g * load<P>(y + k * kLanes));
        const auto leave = [&](const double* value, double* parts, double* sums) {
            if (parts != nullptr) {
                for (Index l = 0; l < kLanes; ++l)
                    for (Index k = 0; k < d; ++k)
                        parts[(e - a.parts_first + l) * d + k] = value[k * kLanes + l];
                return;
            }
            for (Index l = 0; l < kLanes; ++l) {
                double* const si = sums + tail[l] * d;
                double* const sj = sums + head[l] * d;
                for (Index k = 0; k < d; ++k) {
                    si[k] += value[k * kLanes + l];
                    sj[k] -= value[k * kLanes + l];
                }
            }
        };
        leave(apart, a.t_parts, a.t);
        if constexpr (dual) leave(lifted, a.g_parts, a.g);
    }
    a.penalty = sum(penalty);
    a.largest = maximum(largest);
}

template <bool dual>
void edges_of_kind(EdgeSweep& a, const StepParameters& step, SweepKind kind) {
    switch (kind) {
        case SweepKind::kMove:
            return edge_sweep<0, SweepKind::kMove, dual>(a, step);
        case SweepKind::kProject:
            return edge_sweep<0, SweepKind::kProject, dual>(a, step);
        case SweepKind::kManifold:
            return with_features<2>(a.n_features, [&](auto d) {
                edge_sweep<decltype(d)::value, SweepKind::kManifold, dual>(a, step);
            });
        default:
            return with_features<1, 2, 3, 4, 7, 10>(a.n_features, [&](auto d) {
                edge_sweep<decltype(d)::value, SweepKind::kRelax, dual>(a, step);
            });
    }
}

void edges(EdgeSweep& a, const StepParameters& step, SweepKind kind) {
    if (a.want_dual)
        edges_of_kind<true>(a, step, kind);
    else
        edges_of_kind<false>(a, step, kind);
}
