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
//
// Threads take chunks whose sums are added in the order of the chunks, so that the bits do not depend on the
// number of threads.
#pragma once

#include "core/types.hpp"

namespace fusionopt {

struct StepParameters {
    double lam = 0.0;      // radius of the ball
    double rho = 1.0;      // ADMM penalty per unit weight (edge sweeps multiply it by rho_e)
    double alpha = 1.7;    // over-relaxation
    double stretch = 1.0;  // rho_new / rho_old since the last sweep
    // Pair sweeps: where not 0, y first keeps its distance from the ball of this radius (kMove), stretch
    // being 1.
    double lam_old = 0.0;
};

// What a sweep does to y. Relax: the step above. Manifold: cross edges (x_i != x_j) get y = (lam/n + rho)(x_i
// - x_j), n = ||x_i - x_j||; edges inside a cluster (x_i == x_j bitwise) get y = P(y) + phi_i - phi_j. Move:
// y keeps its distance from the ball when lam changes. Project: every edge gets y = scale (P(y) + phi_i -
// phi_j), or is only measured when `commit` is false (t and g are then meaningless). Measure: y is only read.
enum class SweepKind { kRelax, kManifold, kMove, kProject, kMeasure };

// Where the pairs of a complete graph lie. Rows come in strips of kStrip, columns in blocks of `lanes`; a
// strip holds the blocks from its own diagonal to the end in tiles of `tile()` blocks, a tile holds its rows
// one after another, so that a sweep reads the state from front to back while the columns of a tile stay in
// the nearest cache. A block is [n_features][lanes]. Lanes with j <= i or j >= n_nodes are padding.
struct PairLayout {
    static constexpr Index kStrip = 16;
    Index n_nodes = 0;
    Index n_features = 0;
    Index lanes = kLanes;

    Index n_blocks() const { return (n_nodes + lanes - 1) / lanes; }
    Index n_strips() const { return (n_nodes + kStrip - 1) / kStrip; }
    Index first_block(Index strip) const { return strip * (kStrip / lanes); }
    Index rows(Index strip) const {
        return n_nodes - strip * kStrip < kStrip ? n_nodes - strip * kStrip : kStrip;
    }
    Index tile() const { return n_features < 128 ? 128 / n_features : 1; }
    // Blocks before a strip; n_strips() gives their number. Every strip but the last has kStrip rows.
    Index blocks_before(Index strip) const {
        const Index whole = strip < n_strips() ? strip : n_strips() - 1;
        const Index count = kStrip * (whole * n_blocks() - (kStrip / lanes) * (whole * (whole - 1) / 2));
        return strip == whole ? count : count + rows(whole) * (n_blocks() - first_block(whole));
    }
    Index size() const { return blocks_before(n_strips()) * n_features * lanes; }
    // Where the block of row i that holds column j begins.
    Index offset(Index i, Index j) const {
        const Index strip = i / kStrip, first = first_block(strip), into = j / lanes - first;
        const Index start = into / tile() * tile(), left = n_blocks() - first - start;
        const Index width = left < tile() ? left : tile();
        return (blocks_before(strip) + rows(strip) * start + (i - strip * kStrip) * width + into - start) *
               n_features * lanes;
    }
};

// Complete graph with weights w_ij = W r_i r_j. The state is float64, or float32 (`narrow`). A relaxed step
// computes in the type of the state, and x and r are to be of that type too; everything else, and all that
// enters a certificate, is float64, from the state as it is stored. Node arrays come in rows
// [n_nodes][n_features] and in blocks [n_blocks][n_features][lanes] with zero padding.
struct PairSweep {
    PairLayout layout;
    void* y = nullptr;
    bool narrow = false;
    bool want_dual = false;
    const void* x_rows = nullptr;        // times alpha rho for a relaxed step
    const void* x_blocks = nullptr;      // the same
    const void* r = nullptr;             // [n_blocks][lanes]
    const double* plain_rows = nullptr;  // x and r as they are, for the duals of a relaxed step
    const double* plain_blocks = nullptr;
    const double* plain_r = nullptr;
    const double* phi_rows = nullptr;
    const double* phi_blocks = nullptr;  // kManifold and kProject
    double lam_old = 0.0;                // kMove only
    double scale = 1.0;                  // kProject only
    bool commit = true;                  // kProject only
};

// One chunk of strips of a PairSweep. Sums of r_j (y - 2P) over the other nodes of a pair, without W r_i:
// those of the rows go to t_rows (the rows belong to this chunk alone), those of the columns to the chunk's
// own t_blocks; g the same for P.
struct PairChunk {
    Index first_strip = 0;
    Index last_strip = 0;  // one past
    double* t_rows = nullptr;
    double* t_blocks = nullptr;
    double* g_rows = nullptr;
    double* g_blocks = nullptr;
    double* worst =
        nullptr;  // [n_blocks][lanes] of the chunk's own, kManifold: largest such norm at each node
    double* scratch = nullptr;  // pair_scratch(layout)
    double penalty = 0.0;       // out: sum r_i r_j ||x_i - x_j|| when duals are wanted
    double largest = 0.0;       // out, kManifold, kProject: largest norm of the edges that received phi
    // out, kRelax and kMeasure when duals are wanted, over the pairs of weight > 0:
    double residual = 0.0;  // sum ||x_i - x_j - (y - P) / rho||^2
    double nearest = 0.0;   // least ||x_i - x_j||^2
    double tightest = 0.0;  // largest lam / ||y||, at most 1
};

// Numbers of scratch that a worker needs.
inline Index pair_scratch(const PairLayout& layout) {
    return 2 * (PairLayout::kStrip + layout.tile()) * layout.n_features * layout.lanes;
}

// Neighbouring blocks of one row of a state.
struct PairRun {
    const void* y = nullptr;
    bool narrow = false;
    Index n_features = 0;
    Index n_blocks = 0;
    Index lanes = kLanes;
    Index size() const { return n_blocks * lanes; }
};

// Over pairs of some weight, with u = x_i - x_j and theta = (y - P) / rho; in lanes.
struct PairResiduals {
    double gap[PairLayout::kStrip] = {};    // ||u - theta||^2
    double apart[PairLayout::kStrip] = {};  // ||u||^2
    double split[PairLayout::kStrip] = {};  // ||theta||^2
};

// Edge list; blocks of kLanes edges [n_features][kLanes]; padded edges join node 0 to itself with weight 0.
// One call takes the edges first .. last - 1 (multiples of kLanes; the last may be n_edges).
//
// With `t_parts` every edge leaves its w (y - 2P) there (and its w P in g_parts), [edge][n_features] from the
// edge parts_first on: the caller gathers them at the nodes, in the order of the edges, which gives the same
// bits as adding them to t and g here, which is faster on one thread.
struct EdgeSweep {
    Index first = 0;
    Index last = 0;
    Index n_features = 0;
    double* y = nullptr;
    const double* x = nullptr;  // [n_nodes][n_features]
    const std::int32_t* tail = nullptr;
    const std::int32_t* head = nullptr;  // kAhead more may be read
    const double* weight = nullptr;
    const double* rho = nullptr;      // per edge, relative to StepParameters::rho
    const double* stretch = nullptr;  // per edge or nullptr
    const double* phi = nullptr;      // [n_nodes][n_features], kManifold and kProject
    bool want_dual = false;
    double* t = nullptr;  // [n_nodes][n_features], added to
    double* g = nullptr;
    double* t_parts = nullptr;
    double* g_parts = nullptr;
    Index parts_first = 0;
    double* norms = nullptr;  // [edge], kManifold: norm of the edges that received phi, zero elsewhere
    double* row = nullptr;    // scratch, (2 n_features + 2) * kLanes
    double lam_old = 0.0;
    double scale = 1.0;
    bool commit = true;
    double penalty = 0.0;  // out
    double largest = 0.0;  // out
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
    void (*pairs)(const PairSweep&, const StepParameters&, SweepKind, PairChunk&);
    void (*edges)(EdgeSweep&, const StepParameters&, SweepKind);
    void (*run_squares)(const PairRun&, double* out);             // ||y||^2 of every pair
    void (*run_add)(const PairRun&, double share, double* sums);  // sums += share y, in blocks
    void (*run_residuals)(const PairRun&, const StepParameters&, const double* xi, const double* x_blocks,
                          const double* weights, PairResiduals&);
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
