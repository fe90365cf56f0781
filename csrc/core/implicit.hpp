// Passes over all pairs of a complete graph that store no pair: every term is computed from the points.
//
//     r_ij = 1 / max(||x_i - x_j||, delta),   v_ij = lam w_i w_j (x_i - x_j) r_ij
//
// v is antisymmetric with ||v_ij|| <= lam w_i w_j for ANY points, so it is a feasible dual, and it is the
// gradient of the Huber-smoothed penalty  phi(t) = t for t >= delta, (t^2 + delta^2) / (2 delta) below.
// Targets and sources are given apart: the same kernels serve whole passes, new points in the field of old
// ones, cluster centres, and the interaction lists of a tree.
#pragma once

#include "core/types.hpp"

namespace fusionopt {

// Arrays of points are padded to a multiple of this many, and readable one such block further.
inline constexpr Index kTargetBlock = 16;

inline constexpr Index padded(Index n) {
    return (n + kTargetBlock - 1) / kTargetBlock * kTargetBlock + kTargetBlock;
}

// Point k of feature a is at [a * stride + k]. Sums run over all sources, the target itself included where it
// is one: r = 1 / delta and no difference there, which the caller takes off. Targets first .. last - 1 are
// handled in blocks of kTargetBlock; `first` is a multiple of it.
template <class Real>
struct PairPass {
    Index n_features = 0;
    Index first = 0, last = 0;
    const Real* x = nullptr;  // targets
    const Real* p = nullptr;  // product: directions of the targets
    Index stride = 0;
    Index n_sources = 0;
    const Real* source_x = nullptr;
    const Real* source_p = nullptr;  // product
    const Real* weight = nullptr;    // of the sources; nullptr: 1
    Index source_stride = 0;
    double delta = 1.0;
    double curvature = 1.0;   // product: c in r (I - c uu' [||t|| >= delta])
    Real* scratch = nullptr;  // (n_features + 4) * kTargetBlock numbers
    Index out_stride = 0;
    double* out = nullptr;     // [n_features][out_stride]: sum w r (x_i - x_j), or the product
    double* stiff = nullptr;   // sum w r                        (gradient only, as the next two)
    double* inside = nullptr;  // sum w [||x_i - x_j|| < delta]
    double* energy = nullptr;  // sum 2 w phi;  length(): sum w ||x_i - x_j||
};

struct ImplicitTable {
    const char* name;
    void (*gradient)(PairPass<double>&);
    void (*gradient_single)(PairPass<float>&);
    void (*product)(PairPass<double>&);
    void (*product_single)(PairPass<float>&);
    void (*length)(PairPass<double>&);  // exact distances, no delta
};

// The compilation that sweeps() chose.
const ImplicitTable& implicit_kernels();

}  // namespace fusionopt
