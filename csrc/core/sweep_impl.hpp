// The one body of every sweep. Included by sweep_baseline.cpp, sweep_avx2.cpp and sweep_avx512.cpp, each
// inside its own namespace and with its own compiler options. Nothing here may be a non-static function
// shared between them (one definition rule).
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "core/sweep.hpp"

namespace fusionopt {
namespace FUSIONOPT_ISA_NAMESPACE {
namespace {

// Calls action with the number of features as a compile-time constant where that pays; 0 stands for any.
template <int... known, class Action>
void with_features(Index d, const Action& action) {
    const bool found = (... || (d == known && (action(std::integral_constant<int, known>()), true)));
    if (!found) action(std::integral_constant<int, 0>());
}

#include "core/lanes.hpp"

// After the lanes.
#include "core/edge_sweep_impl.hpp"
#include "core/pair_run_impl.hpp"
#include "core/pair_sweep_impl.hpp"

typedef double Lanes
    __attribute__((vector_size(kLanes * sizeof(double)), aligned(sizeof(double)), may_alias));
typedef std::int64_t Mask __attribute__((vector_size(kLanes * sizeof(double))));

inline Lanes load(const double* p) { return *reinterpret_cast<const Lanes*>(p); }
inline void store(double* p, Lanes v) { *reinterpret_cast<Lanes*>(p) = v; }
inline Lanes splat(double v) { return Lanes{v, v, v, v, v, v, v, v}; }
constexpr Lanes kCount = {0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0};
inline Lanes smaller(Lanes a, Lanes b) { return a < b ? a : b; }
inline Lanes larger(Lanes a, Lanes b) { return a > b ? a : b; }
inline double sum(Lanes v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
inline double maximum(Lanes v) {
    double best = v[0];
    for (int l = 1; l < kLanes; ++l) best = v[l] > best ? v[l] : best;
    return best;
}

inline Lanes root(Lanes v) {
#if defined(__AVX512F__)
    // The masked form: the plain one reads an undefined register in GCC 12's headers, which
    // -Wmaybe-uninitialized reports.
    return reinterpret_cast<Lanes>(_mm512_maskz_sqrt_pd(0xFF, reinterpret_cast<__m512d>(v)));
#else
    Lanes out = v;
    for (int l = 0; l < kLanes; ++l) out[l] = std::sqrt(v[l]);
    return out;
#endif
}

// The guard only decides 0/0: state and data are scaled to unit size, and 1e-300 is lost in any other sum.
inline Lanes norm(Lanes squared) { return root(squared + 1e-300); }
inline Lanes shrink_factor(Lanes squared, Lanes radius) {
    return smaller(splat(1.0), radius / norm(squared));
}

// Number of features: a template constant unrolls the loops for small dimensions, 0 means "read it at run
// time".
template <int D>
struct Features {
    Index count;
    explicit Features(Index d) : count(D > 0 ? D : d) {}
    Index n() const { return D > 0 ? D : count; }
};

// product = false: gradient and penalty of sum_{k<l} r_k r_l ||x_k - x_l||; true: Hessian product with p.
template <int D, bool product>
void centre_sweep(CentreSweep& a) {
    const Features<D> f(a.n_features);
    const Index d = f.n(), m = a.n_nodes, ld = a.stride;
    for (Index k = 0; k < d * ld; ++k) a.out[k] = 0.0;
    if constexpr (!product)
        for (Index k = 0; k < ld; ++k) a.diagonal[k] = a.stiffest[k] = a.partner[k] = 0.0;
    double penalty = 0.0;
    double* inverses = a.inverse;
    double* const row_out = a.row;
    for (Index i = 0; i + 1 < m; ++i) {
        for (Index k = 0; k < d * kLanes; ++k) row_out[k] = 0.0;
        Lanes row_penalty = splat(0.0), row_diagonal = splat(0.0), row_stiffest = splat(0.0),
              row_partner = splat(0.0);
        const Lanes ri = splat(a.r[i]), own = splat(static_cast<double>(i));
        for (Index j = i + 1; j < m; j += kLanes, inverses += kLanes) {
            const Lanes rj = load(a.r + j);
            const auto difference = [&](Index k) { return a.x[k * ld + i] - load(a.x + k * ld + j); };
            if constexpr (product) {
                const Lanes inverse = load(inverses);
                Lanes along = splat(0.0);
                for (Index k = 0; k < d; ++k)
                    along += difference(k) * (a.p[k * ld + i] - load(a.p + k * ld + j));
                along *= inverse * inverse;
                for (Index k = 0; k < d; ++k) {
                    const Lanes c =
                        inverse * (a.p[k * ld + i] - load(a.p + k * ld + j) - along * difference(k));
                    store(row_out + k * kLanes, load(row_out + k * kLanes) + rj * c);
                    store(a.out + k * ld + j, load(a.out + k * ld + j) - ri * c);
                }
            } else {
                Lanes squared = splat(0.0);
                for (Index k = 0; k < d; ++k) squared += difference(k) * difference(k);
                // Coinciding centres have no direction: they take no part.
                const Lanes inverse = squared > 0.0 ? 1.0 / norm(squared) : splat(0.0);
                store(inverses, inverse);
                row_penalty += rj * squared * inverse;
                row_diagonal += rj * inverse;
                store(a.diagonal + j, load(a.diagonal + j) + ri * inverse);
                const Lanes mine = rj * inverse, theirs = ri * inverse, known = load(a.stiffest + j);
                row_partner = mine > row_stiffest ? static_cast<double>(j) + kCount : row_partner;
                row_stiffest = larger(row_stiffest, mine);
                store(a.partner + j, theirs > known ? own : load(a.partner + j));
                store(a.stiffest + j, larger(known, theirs));
                for (Index k = 0; k < d; ++k) {
                    const Lanes c = inverse * difference(k);
                    store(row_out + k * kLanes, load(row_out + k * kLanes) + rj * c);
                    store(a.out + k * ld + j, load(a.out + k * ld + j) - ri * c);
                }
            }
        }
        for (Index k = 0; k < d; ++k) a.out[k * ld + i] += sum(load(row_out + k * kLanes));
        if constexpr (!product) {
            a.diagonal[i] += sum(row_diagonal);
            for (Index l = 0; l < kLanes; ++l) {
                if (row_stiffest[l] > a.stiffest[i]) {
                    a.stiffest[i] = row_stiffest[l];
                    a.partner[i] = row_partner[l];
                }
            }
            penalty += a.r[i] * sum(row_penalty);
        }
    }
    if constexpr (!product) a.penalty = penalty;
}

void centre_gradient(CentreSweep& a) {
    with_features<1, 2, 3, 4, 10>(a.n_features, [&](auto d) { centre_sweep<decltype(d)::value, false>(a); });
}

void centre_product(CentreSweep& a) {
    with_features<1, 2, 3, 4, 10>(a.n_features, [&](auto d) { centre_sweep<decltype(d)::value, true>(a); });
}

}  // namespace

const SweepTable& table() {
    static const SweepTable instance{FUSIONOPT_ISA_NAME, pairs,           edges,         run_squares, run_add,
                                     run_residuals,      centre_gradient, centre_product};
    return instance;
}

}  // namespace FUSIONOPT_ISA_NAMESPACE
}  // namespace fusionopt
