// Complete graphs with weights w_i w_j and losses h_i/2 ||x - a_i||^2, in O(m d) memory: the Huber-smoothed
// problem
//     F(x) = sum_i h_i/2 ||x_i - a_i||^2 + lam sum_{i<j} w_i w_j phi(||x_i - x_j||),   phi of implicit.hpp,
// is solved by Newton-CG for falling delta on nested random subsets, and rounded to clusters. The dual
// v_ij = lam w_i w_j (x_i - x_j) / max(||x_i - x_j||, delta) is feasible at every point, so
//     D = sum_i <G_i, a_i> - ||G_i||^2 / (2 h_i),   G_i = sum_j v_ij,
// bounds the problem from below wherever the search stops.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/implicit_groups.hpp"
#include "core/implicit_passes.hpp"

namespace fusionopt {

struct ImplicitProblem {
    Index n_nodes = 0, n_features = 0;
    Vector targets;    // a, [m][d], with sum_i h_i a_i = 0 up to rounding and of unit size
    Vector curvature;  // h, [m], > 0
    Vector weight;     // w, [m], > 0
    double lam = 0.0;
};

struct ImplicitOptions {
    double eps_rel = 1e-6;
    double eps_abs = 0.0;
    Index max_newton = 20000;
    std::uint64_t seed = 0;
    int n_threads = 1;
};

// What the hook is told, and asked whether to go on (true: stop). `fresh`: the numbers are of a new point of
// the whole problem; otherwise only the clock moved.
struct ImplicitProgress {
    bool fresh = false;
    Index newton_steps = 0;
    double objective = 0.0;  // upper bound
    double dual_objective = 0.0;
};

// All from one float64 pass, in the problem's units.
struct ImplicitCertificate {
    double objective = 0.0;
    double dual_objective = 0.0;
    double gap = 0.0;
    double rounding = 0.0;
    double penalty = 0.0;   // sum w_i w_j ||x_i - x_j||
    double residual = 0.0;  // max_i ||h_i (x_i - a_i) + G_i||
    bool met = false;
};

struct ImplicitCounts {
    Index newton_steps = 0, cg_steps = 0, levels = 0, stages = 0;
    double pairs = 0.0;  // ordered pairs visited
};

class ImplicitSolver {
  public:
    ImplicitSolver(ImplicitProblem problem, ImplicitOptions options);
    ~ImplicitSolver();

    // Until the certified gap meets the stop rule, the search makes no more progress, or `hook` asks to stop.
    // Returns false in the last case.
    bool run(const std::function<bool(const ImplicitProgress&)>& hook);

    // After a run that ended in one cluster: a lam at which there is a feasible flow that holds everything
    // together, so that one cluster is optimal there. The implied dual is polished at a small delta until
    // G_i = h_i a_i nearly; what is lacking, p_i = (h_i a_i - G_i) / (w_i sum w), is made up exactly by
    // w_i w_j (p_i - p_j) more on every pair, so lam + 2 max ||p_i|| does. Infinity after other runs.
    double fusing_bound(const std::function<bool(const ImplicitProgress&)>& hook);

    // The rounded point, [m][d]: rows of one cluster are equal.
    const Vector& point() const { return point_; }
    const std::vector<std::int32_t>& labels() const { return labels_; }
    Index n_clusters() const { return n_clusters_; }
    // Judges the point that has row c of `centres` [n_clusters][d] at the nodes of cluster c.
    ImplicitCertificate certify(const Vector& centres);
    // The dual: points y [m][d] and delta with v_ij = shrink lam w_i w_j (y_i - y_j) / max(||.||, delta).
    const Vector& dual_point() const { return dual_point_; }
    double delta() const { return delta_; }
    double shrink() const;
    const ImplicitCounts& counts() const { return counts_; }

  private:
    struct Level;
    struct Field;
    struct Rounded;
    class Search;

    ImplicitProblem problem_;
    ImplicitOptions options_;
    Vector point_, dual_point_, sums_;  // sums_: G at dual_point_, [m][d]
    std::vector<std::int32_t> labels_;
    Index n_clusters_ = 1;
    double delta_ = 1.0;
    ImplicitCounts counts_;
};

}  // namespace fusionopt
