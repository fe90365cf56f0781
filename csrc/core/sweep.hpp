// Signatures of the pair and edge sweeps, and the table that picks their compilation for this processor.
//
// Everything is stated per unit weight: an edge e = (i, j) of weight w_e carries one vector y_e; its dual is
// v_e = w_e P(y_e) with
//     P(y) = y min(1, lam / ||y||)                                   (projection on the ball of radius lam)
// and one relaxed ADMM (Douglas-Rachford) step is
//     y <- y~ + alpha (rho (x_i - x_j) - y~ + P(y)),   y~ = P(y) + stretch (y - P(y))
// where stretch = rho_new / rho_old re-scales the state after a change of rho. With the new y the sweep
// accumulates
//     t_i = sum_e +-w (y - 2 P(y)),   g_i = sum_e +-w P(y),   penalty = sum_e w ||x_i - x_j||    (g and
//     penalty on request).
// alpha = 0, stretch = 1 evaluates without changing y.
#pragma once

#include "core/types.hpp"

namespace fusionopt {

struct StepParameters {
    double lam = 0.0;      // radius of the ball
    double rho = 1.0;      // ADMM penalty per unit weight (edge sweeps multiply it by rho_e)
    double alpha = 1.7;    // over-relaxation
    double stretch = 1.0;  // rho_new / rho_old since the last sweep
};

// What a sweep does to y. Relax: the step above. Manifold: cross edges (x_i != x_j) get y = (lam/n + rho)(x_i
// - x_j), n = ||x_i - x_j||; edges inside a cluster (x_i == x_j bitwise) get y = P(y) + phi_i - phi_j. Move:
// y keeps its distance from the ball when lam changes. Project: every edge gets y = scale (P(y) + phi_i -
// phi_j), or is only measured when `commit` is false (t and g are then meaningless).
enum class SweepKind { kRelax, kManifold, kMove, kProject };

// Complete graph with weights w_ij = W r_i r_j. Row i holds the pairs (i, j > i) in blocks of kLanes, each
// block [n_features][kLanes]. Node arrays are feature-major with leading dimension `stride` >= n_nodes +
// kLanes; the padding of r must be zero.
struct PairSweep {
    Index n_nodes = 0;
    Index n_features = 0;
    Index stride = 0;
    double* y = nullptr;
    const double* x = nullptr;    // [n_features][stride]
    const double* r = nullptr;    // [stride]
    const double* phi = nullptr;  // [n_features][stride], kManifold and kProject
    double* t = nullptr;      // [n_features][stride], sums of r_j (y - 2P); the caller multiplies by W r_i
    double* g = nullptr;      // same for P; nullptr: not wanted
    double* row = nullptr;    // scratch, (2 n_features + 2) * kLanes
    double* worst = nullptr;  // [stride], kManifold: largest such norm at each node
    double penalty = 0.0;     // out: sum r_i r_j ||x_i - x_j|| when g is given
    double largest = 0.0;     // out, kManifold, kProject: largest norm of the edges that received phi
    double lam_old = 0.0;     // kMove only
    double scale = 1.0;       // kProject only
    bool commit = true;       // kProject only
};

// Edge list; blocks of kLanes edges [n_features][kLanes]; padded edges join node 0 to itself with weight 0.
struct EdgeSweep {
    Index n_edges = 0;
    Index n_nodes = 0;
    Index n_features = 0;
    double* y = nullptr;
    const double* x = nullptr;  // [n_nodes][n_features]
    const std::int32_t* tail = nullptr;
    const std::int32_t* head = nullptr;
    const double* weight = nullptr;
    const double* rho = nullptr;      // per edge, relative to StepParameters::rho
    const double* stretch = nullptr;  // per edge or nullptr
    const double* phi = nullptr;      // [n_nodes][n_features], kManifold and kProject
    double* t = nullptr;              // [n_nodes][n_features]
    double* g = nullptr;              // or nullptr
    double* row = nullptr;            // scratch, (2 n_features + 2) * kLanes
    double* worst = nullptr;          // [n_nodes], kManifold: largest such norm at each node
    double penalty = 0.0;
    double largest = 0.0;
    double lam_old = 0.0;
    double scale = 1.0;
    bool commit = true;
};

// Reduced problem on the complete graph: sum_{k<l} r_k r_l ||w_k - w_l|| over centres (distinct rows).
struct CentreSweep {
    Index n_nodes = 0;
    Index n_features = 0;
    Index stride = 0;
    const double* x = nullptr;   // centres, [n_features][stride]
    const double* r = nullptr;   // [stride]
    const double* p = nullptr;   // direction, Hessian product only
    double* out = nullptr;       // [n_features][stride], gradient or product
    double* diagonal = nullptr;  // [stride] sum_l r_l / ||x_k - x_l||, gradient only
    double* stiffest = nullptr;  // [stride] largest r_l / ||x_k - x_l||, gradient only
    double* partner = nullptr;   // [stride] the l it is taken at, gradient only
    double* inverse =
        nullptr;  // 1 / ||x_k - x_l|| by rows of blocks: written by the gradient, read by the product
    double* row = nullptr;  // scratch, (2 n_features + 2) * kLanes
    double penalty = 0.0;   // out, gradient only
};

struct SweepTable {
    const char* name;
    void (*pairs)(PairSweep&, const StepParameters&, SweepKind);
    void (*edges)(EdgeSweep&, const StepParameters&, SweepKind);
    void (*centre_gradient)(CentreSweep&);  // d/dx_k of the sum, per r_k: the caller multiplies by r_k
    void (*centre_product)(CentreSweep&);   // its Hessian times p, per r_k
};

// Chosen once: the widest compilation this processor runs, or the one named by the environment variable
// FUSIONOPT_ISA (baseline, avx2, avx512). Throws std::invalid_argument for a name that is unknown or that the
// processor lacks.
const SweepTable& sweeps();

// Ball radii are shrunk by this relative amount wherever a projection is taken, so that a dual is inside its
// ball after rounding too.
double ball_shrink(Index n_features);

}  // namespace fusionopt
