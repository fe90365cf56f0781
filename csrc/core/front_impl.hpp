// The one body of front.hpp, compiled per instruction set like sweep_impl.hpp.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/front.hpp"

namespace fusionopt {
namespace FUSIONOPT_ISA_NAMESPACE {
namespace {

#include "core/lanes.hpp"

constexpr Index kStep = kPanelStep;
typedef Pack<double, kStep> Quad;
// Four columns of it are summed in registers.
typedef Pack<double, FUSIONOPT_REGISTER >= 32 ? 8 : 4> Tall;
constexpr Index kTall = Tall::kParts * Tall::kWidth;
constexpr Index kPack = 16;  // columns from which on copying them first pays
constexpr Index kDeep = 64;  // columns whose products are summed before they are taken from the target

// For k = 0, 1, ...: numbers side by side, `step` apart.
struct Strip {
    const double* at;
    Index step;
};

// sum[q] = sum over k of rows[k][.] columns[k][q]
template <class P, int Q>
inline void multiply(Strip rows, Strip columns, Index depth, P* sum) {
    for (int q = 0; q < Q; ++q) sum[q] = zero<P>();
    for (Index k = 0; k < depth; ++k) {
        const P a = load<P>(rows.at);
        FUSIONOPT_UNROLL
        for (int q = 0; q < Q; ++q) sum[q] = fma(a, splat<P>(columns.at[q]), sum[q]);
        rows.at += rows.step;
        columns.at += columns.step;
    }
}

// Rows and columns of the target stand side by side...
struct Beside {
    double* target;
    Index stride;
    void fetch(Index row, Index column) const {
        for (int q = 0; q < 4; ++q) __builtin_prefetch(target + (column + q) * stride + row, 1);
    }
    template <class P, int Q>
    void take(const P* sum, Index row, Index column, Index) const {
        for (int q = 0; q < Q; ++q) {
            double* const to = target + (column + q) * stride + row;
            store(to, load<P>(to) - sum[q]);
        }
    }
};
// ... or are where `places` says.
struct Scattered {
    double* target;
    Index stride;
    const std::int32_t* places;
    void fetch(Index row, Index column) const {
        for (int q = 0; q < 4; ++q) __builtin_prefetch(target + places[column + q] * stride + places[row], 1);
    }
    template <class P, int Q>
    void take(const P* sum, Index row, Index column, Index count) const {
        constexpr Index lanes = P::kParts * P::kWidth;
        const std::int32_t* at = places + row;
        double* to[Q];
        for (int q = 0; q < Q; ++q) to[q] = target + places[column + q] * stride;
        double less[Q][lanes];
        for (int q = 0; q < Q; ++q) store(less[q], sum[q]);
        for (Index first = 0; first < count; first += kStep, at += kStep) {
            const Index left = std::min(kStep, count - first);
            if (left == kStep && at[kStep - 1] - at[0] == kStep - 1) {
                for (int q = 0; q < Q; ++q) {
                    double* const run = to[q] + at[0];
                    store(run, load<Quad>(run) - load<Quad>(less[q] + first));
                }
            } else {
                for (Index l = 0; l < left; ++l)
                    for (int q = 0; q < Q; ++q) to[q][at[l]] -= less[q][first + l];
            }
        }
    }
};

// `count` rows of the target, from `row` on, and its columns from `c` to `end`; four columns are `group`
// apart.
template <class P, class Target>
inline void update_rows(Strip rows, Strip columns, Index group, Index depth, Index row, Index count, Index c,
                        Index end, const Target& target) {
    P sum[4];
    for (; c + 4 <= end; c += 4, columns.at += group) {
        target.fetch(row, c);
        multiply<P, 4>(rows, columns, depth, sum);
        target.template take<P, 4>(sum, row, c, count);
    }
    if (end - c == 1) {
        multiply<P, 1>(rows, columns, depth, sum);
        target.template take<P, 1>(sum, row, c, count);
    } else if (end - c == 2) {
        multiply<P, 2>(rows, columns, depth, sum);
        target.template take<P, 2>(sum, row, c, count);
    } else if (end - c == 3) {
        multiply<P, 3>(rows, columns, depth, sum);
        target.template take<P, 3>(sum, row, c, count);
    }
}

template <class Action>
inline void for_rows(Index first, Index height, const Action& action) {
    for (; height - first > kStep; first += kTall) action(Tall(), first, std::min(kTall, height - first));
    if (height > first) action(Quad(), first, height - first);
}

// The update of many rows and columns, packed so that they are read in order.
template <class Target>
void update_packed(const double* source, Index stride, Index depth, Index height, Index width,
                   const Target& target) {
    double columns[kDeep * kDeep], rows[kDeep * kTall];
    for (Index first = 0; first < width; first += kDeep) {
        const Index last = std::min(width, first + kDeep);
        double* to = columns;
        for (Index c = first; c < last; c += 4)
            for (Index k = 0; k < depth; ++k, to += 4) store(to, load<Quad>(source + k * stride + c));
        for_rows(first, height, [&](auto kind, Index row, Index count) {
            typedef decltype(kind) P;
            constexpr Index lanes = P::kParts * P::kWidth;
            for (Index k = 0; k < depth; ++k) store(rows + k * lanes, load<P>(source + k * stride + row));
            update_rows<P>({rows, lanes}, {columns, 4}, 4 * depth, depth, row, count, first,
                           std::min(last, row + count), target);
        });
    }
}

// Takes the products of the rows of `source`, `height` of them, with the first `width` ones from the target.
template <class Target>
inline void update(const double* source, Index stride, Index depth, Index height, Index width,
                   const Target& target) {
    for (; depth > 0; depth -= kDeep, source += kDeep * stride) {
        const Index deep = std::min(depth, kDeep);
        if (std::min(deep, width) >= kPack && height >= 2 * kPack) {
            update_packed(source, stride, deep, height, width, target);
            continue;
        }
        for_rows(0, height, [&](auto kind, Index row, Index count) {
            update_rows<decltype(kind)>({source + row, stride}, {source, stride}, 4, deep, row, count, 0,
                                        std::min(width, row + count), target);
        });
    }
}

// Q columns of the panel, the j-th on, after `depth` others in front of them that have their final values.
template <int Q>
void finish_columns(double* panel, Index stride, Index j, Index depth) {
    const double* const known = panel + (j - depth) * stride;
    double* const own = panel + j * stride;
    Quad corner[Q];
    multiply<Quad, Q>({known + j, stride}, {known + j, stride}, depth, corner);
    double value[Q][kStep], inverse[Q];
    for (int q = 0; q < Q; ++q) store(value[q], load<Quad>(own + q * stride + j) - corner[q]);
    for (int q = 0; q < Q; ++q) {
        const double pivot = value[q][q];
        inverse[q] = pivot > 0.0 ? 1.0 / std::sqrt(pivot) : 1.0;
        value[q][q] = inverse[q];
        for (int r = q + 1; r < kStep; ++r) value[q][r] *= inverse[q];
        for (int p = q + 1; p < Q; ++p)
            for (int r = p; r < kStep; ++r) value[p][r] -= value[q][p] * value[q][r];
    }
    for (int q = 0; q < Q; ++q) std::memcpy(own + q * stride + j, value[q], sizeof value[q]);
    const auto rows = [&](auto kind, Index r) {
        typedef decltype(kind) P;
        P sum[Q];
        multiply<P, Q>({known + r, stride}, {known + j, stride}, depth, sum);
        FUSIONOPT_UNROLL
        for (int q = 0; q < Q; ++q) {
            sum[q] = load<P>(own + q * stride + r) - sum[q];
            FUSIONOPT_UNROLL
            for (int p = 0; p < q; ++p) sum[q] = fnma(sum[p], splat<P>(value[p][q]), sum[q]);
            sum[q] = sum[q] * splat<P>(inverse[q]);
            store(own + q * stride + r, sum[q]);
        }
    };
    Index r = j + kStep;
    for (; r + kTall <= stride; r += kTall) rows(Tall(), r);
    if (r < stride) rows(Quad(), r);
}

void eliminate(double* panel, Index stride, Index columns) {
    for (Index first = 0; first < columns; first += kDeep) {
        const Index last = std::min(columns, first + kDeep);
        Index j = first;
        for (; j + 4 <= last; j += 4) finish_columns<4>(panel, stride, j, j - first);
        if (last - j == 1) finish_columns<1>(panel, stride, j, j - first);
        if (last - j == 2) finish_columns<2>(panel, stride, j, j - first);
        if (last - j == 3) finish_columns<3>(panel, stride, j, j - first);
        if (last < columns)
            update(panel + first * stride + last, stride, last - first, stride - last, columns - last,
                   Beside{panel + last * stride + last, stride});
    }
}

// The entries of the matrix in a panel. Block: unknowns a node, 0 for any.
template <Index Block>
void fill(const FrontPlan& plan, Index f, const double* diagonal, const double* off, double* panels) {
    const Index b = Block > 0 ? Block : plan.block, bb = b * b;
    const Front& front = plan.fronts[f];
    const Index stride = front.stride;
    double* const panel = panels + front.panel;
    std::memset(panel, 0, static_cast<std::size_t>(stride * front.columns) * sizeof(double));
    const std::int32_t* const nodes = plan.order + front.first / b;
    for (Index c = 0; c * b < front.columns; ++c) {
        const double* const from = diagonal + nodes[c] * bb;
        double* const to = panel + c * b * (stride + 1);
        for (Index q = 0; q < b; ++q)
            for (Index p = q; p < b; ++p) to[q * stride + p] = from[p * b + q];
    }
    const Index end = plan.fronts[f + 1].entries;
    for (Index e = front.entries; e < end; ++e) {
        const double* const from = off + plan.entries[e].edge * bb;
        double* const to = panel + (plan.entries[e].column * stride + plan.entries[e].row) * b;
        for (Index q = 0; q < b; ++q)
            for (Index p = 0; p < b; ++p) to[q * stride + p] += from[p * b + q];
    }
}

void factor(const FrontPlan& plan, const double* diagonal, const double* off, double* panels) {
    const auto fill_panel = plan.block == 1 ? fill<1> : plan.block == 2 ? fill<2> : fill<0>;
    for (Index f = 0; f < plan.n_fronts; ++f) {
        const Front& front = plan.fronts[f];
        double* const panel = panels + front.panel;
        fill_panel(plan, f, diagonal, off, panels);
        for (Index u = front.updates; u < plan.fronts[f + 1].updates; ++u) {
            const FrontUpdate& by = plan.updates[u];
            update(panels + by.source, by.stride, by.depth, by.height, by.width,
                   Scattered{panel, front.stride, plan.places + by.places});
        }
        eliminate(panel, front.stride, front.columns);
    }
}

// Short runs: not worth a call.
inline void copy(const double* from, Index count, double* to) {
    Index k = 0;
    for (; k + kStep <= count; k += kStep) store(to + k, load<Quad>(from + k));
    for (; k < count; ++k) to[k] = from[k];
}
inline double sum_of(const Quad& v) { return (v[0] + v[2]) + (v[1] + v[3]); }

// Q columns of a panel, from the j-th on: their unknowns, then what these take from the rows below. w: N
// right hand sides, each in the order of the panel's rows.
template <int Q, int N>
inline void forward_columns(const double* panel, Index stride, Index j, double* w) {
    const double* const own = panel + j * stride;
    Quad value[N][Q];
    for (int n = 0; n < N; ++n) {
        double x[kStep];
        for (int r = 0; r < kStep; ++r) x[r] = w[n * stride + j + r];
        for (int q = 0; q < Q; ++q) {
            x[q] *= own[q * stride + j + q];
            for (int r = q + 1; r < kStep; ++r) x[r] -= own[q * stride + j + r] * x[q];
            value[n][q] = splat<Quad>(x[q]);
        }
        for (int r = 0; r < kStep; ++r) w[n * stride + j + r] = x[r];
    }
    for (Index r = j + kStep; r < stride; r += kStep) {
        Quad column[Q];
        for (int q = 0; q < Q; ++q) column[q] = load<Quad>(own + q * stride + r);
        for (int n = 0; n < N; ++n) {
            Quad rest = load<Quad>(w + n * stride + r);
            FUSIONOPT_UNROLL
            for (int q = 0; q < Q; ++q) rest = fnma(column[q], value[n][q], rest);
            store(w + n * stride + r, rest);
        }
    }
}

template <int Q, int N>
inline void backward_columns(const double* panel, Index stride, Index j, double* w) {
    const double* const own = panel + j * stride;
    Quad sums[N][Q];
    for (int n = 0; n < N; ++n)
        for (int q = 0; q < Q; ++q) sums[n][q] = zero<Quad>();
    for (Index r = j + kStep; r < stride; r += kStep) {
        Quad column[Q];
        for (int q = 0; q < Q; ++q) column[q] = load<Quad>(own + q * stride + r);
        for (int n = 0; n < N; ++n) {
            const Quad x = load<Quad>(w + n * stride + r);
            FUSIONOPT_UNROLL
            for (int q = 0; q < Q; ++q) sums[n][q] = fma(column[q], x, sums[n][q]);
        }
    }
    for (int n = 0; n < N; ++n) {
        double x[kStep];
        for (int r = 0; r < kStep; ++r) x[r] = w[n * stride + j + r];
        for (int q = 0; q < Q; ++q) x[q] -= sum_of(sums[n][q]);
        for (int q = Q - 1; q >= 0; --q) {
            for (int r = q + 1; r < kStep; ++r) x[q] -= own[q * stride + j + r] * x[r];
            x[q] *= own[q * stride + j + q];
        }
        for (int r = 0; r < kStep; ++r) w[n * stride + j + r] = x[r];
    }
}

// N right hand sides at once; v [unknown][columns], in the order of the nodes.
template <int N>
void solve_some(const FrontPlan& plan, const double* panels, double* v, Index columns, double* scratch) {
    const Index b = plan.block, size = plan.fronts[plan.n_fronts].first;
    double* const w = scratch + N * size;
    double* x[N];
    for (int n = 0; n < N; ++n) x[n] = scratch + n * size;
    for (Index k = 0; k < size; k += b)
        for (Index p = 0; p < b; ++p)
            for (int n = 0; n < N; ++n) x[n][k + p] = v[(plan.order[k / b] * b + p) * columns + n];
    for (Index f = 0; f < plan.n_fronts; ++f) {
        const Front& front = plan.fronts[f];
        const double* const panel = panels + front.panel;
        const Index stride = front.stride, own = front.columns;
        const std::int32_t* const rows = plan.rows + front.rows;
        for (int n = 0; n < N; ++n) {
            copy(x[n] + front.first, own, w + n * stride);
            for (Index r = own; r < stride; ++r) w[n * stride + r] = 0.0;
        }
        Index j = 0;
        for (; j + 4 <= own; j += 4) forward_columns<4, N>(panel, stride, j, w);
        if (own - j == 1) forward_columns<1, N>(panel, stride, j, w);
        if (own - j == 2) forward_columns<2, N>(panel, stride, j, w);
        if (own - j == 3) forward_columns<3, N>(panel, stride, j, w);
        for (int n = 0; n < N; ++n) {
            copy(w + n * stride, own, x[n] + front.first);
            for (Index r = own; r < front.size; ++r) x[n][rows[r - own]] += w[n * stride + r];
        }
    }
    for (Index f = plan.n_fronts - 1; f >= 0; --f) {
        const Front& front = plan.fronts[f];
        const double* const panel = panels + front.panel;
        const Index stride = front.stride, own = front.columns;
        const std::int32_t* const rows = plan.rows + front.rows;
        for (int n = 0; n < N; ++n) {
            copy(x[n] + front.first, own, w + n * stride);
            for (Index r = own; r < front.size; ++r) w[n * stride + r] = x[n][rows[r - own]];
            for (Index r = front.size; r < stride; ++r) w[n * stride + r] = 0.0;
        }
        Index j = own / 4 * 4;
        if (own - j == 1) backward_columns<1, N>(panel, stride, j, w);
        if (own - j == 2) backward_columns<2, N>(panel, stride, j, w);
        if (own - j == 3) backward_columns<3, N>(panel, stride, j, w);
        while ((j -= 4) >= 0) backward_columns<4, N>(panel, stride, j, w);
        for (int n = 0; n < N; ++n) copy(w + n * stride, own, x[n] + front.first);
    }
    for (Index k = 0; k < size; k += b)
        for (Index p = 0; p < b; ++p)
            for (int n = 0; n < N; ++n) v[(plan.order[k / b] * b + p) * columns + n] = x[n][k + p];
}

void solve(const FrontPlan& plan, const double* panels, double* v, Index columns, double* scratch) {
    Index n = 0;
    for (; n + 4 <= columns; n += 4) solve_some<4>(plan, panels, v + n, columns, scratch);
    if (columns - n == 3) solve_some<3>(plan, panels, v + n, columns, scratch);
    if (columns - n == 2) solve_some<2>(plan, panels, v + n, columns, scratch);
    if (columns - n == 1) solve_some<1>(plan, panels, v + n, columns, scratch);
}

}  // namespace

const FrontKernels& front_kernels() {
    static constexpr FrontKernels kernels{factor, solve};
    return kernels;
}

}  // namespace FUSIONOPT_ISA_NAMESPACE
}  // namespace fusionopt
