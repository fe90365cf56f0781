// Relaxed ADMM in its Douglas-Rachford form, its certificate, and the finishing of its partition.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "core/coupling.hpp"

namespace fusionopt {

// A flow this many ball_shrinks outside its ball is inside up to rounding.
inline constexpr double kFits = 4.0;
// Edges visited without asking for the sake of a partition.
inline constexpr double kFreeVisits = 6e6;
// How far rho_e may lie from its mean: more would be told by noise, and x-steps would take more passes.
inline constexpr double kClip = 30.0;

struct AdmmOptions {
    double eps_rel = 1e-6;
    double eps_abs = 0.0;
    double relaxation = 1.7;
    double rho = 0.0;       // start value per unit weight; 0: chosen
    Index check_every = 0;  // 0: chosen
    int n_threads = 1;
};

// A primal point and the dual P(y) it is judged with; all four numbers come from one pass.
struct Certificate {
    double objective = 0.0;
    double dual_objective = 0.0;
    double gap = 0.0;       // objective - dual_objective, summed from its non-negative parts
    double rounding = 0.0;  // bound on the rounding error of gap
    double penalty = 0.0;   // sum_e w_e ||x_i - x_j||
    double slack = 0.0;     // lam penalty - <g, x>: the penalty's part of the gap
    double residual = 0.0;  // max_i ||grad f_i(x_i) + sum_j v_ij||
    bool met = false;       // the stop rule holds
};

struct FinishReport {
    bool accepted = false;  // x is now constant on clusters and no worse than the raw point
    bool enough = false;    // not worth another attempt: (next to) nothing is fused, or next to everything
                            // proven
    bool proven = false;  // the flow inside every cluster is feasible: the partition is the exact solution's
                          // up to rounding
    Index n_clusters = 0;
    Index newton_steps = 0;
    Index candidates = 0;
    double work = 0.0;  // edges visited by Newton-CG
};

struct FinishedPartition {
    Labels labels;
    Index n_clusters = 0;
    Vector x;
    double objective = std::numeric_limits<double>::infinity();  // without the constant
    double rounding = 0.0;
    double largest = std::numeric_limits<double>::infinity();  // norm of a dual inside its clusters
};

class Admm {
  public:
    Admm(QuadraticLoss loss, std::unique_ptr<Coupling> coupling, double lam, AdmmOptions options);

    // Up to `iterations` sweeps; returns early, true, when a check meets the stop rule (for singular losses:
    // when the iteration's own balance does, whose duals finish() or certify() must still bring into the
    // range of the Hessians). No allocation, but for what the x-step of an edge list first needs
    // (edge_coupling.cpp).
    bool run(Index iterations);
    // Puts proven clusters of a complete graph in the place of their nodes (see contraction.cpp), where that
    // at least halves the pairs, or where `any` is found; what follows goes on there.
    // `checks` bounds the effort for each of them.
    bool contract(bool any, Index checks);
    // Whether an edge list's iteration runs on the clusters of the lam before (aggregation.cpp): then last()
    // tells of the problem between them, whose dual value bounds that one only.
    bool aggregated() const { return inner_ && !coupling_->complete(); }
    bool narrow() const { return coupling_->narrow(); }
    Index n_between() const { return n_between_; }
    // Nodes and edges of the problem that the iteration runs on.
    Index n_groups() const { return inner_ ? inner_->n_groups() : loss_.n_nodes; }
    Index n_swept() const { return inner_ ? inner_->n_swept() : coupling_->n_edges(); }
    // At least 1: no two rows of x(), the contracted ones apart, are equal at the solution, by the gap alone.
    double apart();
    // Edges that finish() typically visits.
    double finishing_work() const;

    // Partition finishing (see finish.cpp). Where the partition is not proven the ADMM state is left as good
    // as it was, so run() may go on. May cost `share` of what the sweeps and their x-steps did; `free` edges
    // visited (of a complete graph: a fixed number) are never too many.
    FinishReport finish(double share, double free = kFreeVisits);
    // The certificate of x (any point) with the current duals, which duals() then returns.
    Certificate certify(const Vector& x);
    // Everything that the next set_lam() builds on, and the way back: set_lam() after restore() computes the
    // same bits as without it. The finished point is not part of it.
    std::vector<double> state();
    void restore(std::vector<double> numbers);
    // Continues at another lam from the present state.
    void set_lam(double lam);
    // Puts another quadratic in the place of the loss, keeping duals and rho (quadratic models of a smooth
    // loss).
    void set_loss(QuadraticLoss loss);
    // Row sums of the duals that the last certify() judged: g_i = sum_j v_ij.
    const Vector& dual_sums() const { return g_; }
    // Starts from a point: edges between equal rows get no dual, the others the dual that points along them.
    void warm_start(const Vector& x);
    // The mean of x over the components of edges whose dual lies inside its ball.
    void fused_point(Vector& out);
    // Components of the edges whose dual lies inside its ball.
    Index n_fused() {
        if (inner_) return inner_->n_fused();
        if (fresh_ && told_.tightest < 1.0) return loss_.n_nodes;
        if (n_fused_ == 0) n_fused_ = coupling_->fused_labels(lam_, fused_labels_);
        return n_fused_;
    }
    // The second stage from the present state to the tolerance, where its expected work fits `budget` (edges
    // visited).
    NewtonReport refine(double budget);
    // Edges visited at this lam by the sweeps, their x-steps and the second stage.
    double sweep_work() const { return sweep_work_; }
    // Whether finish() would leave that many clusters at the raw point.
    bool left_open(Index n_clusters) const;
    void duals(double* out) {
        expand();
        if (moved_from_ > 0.0) move();
        coupling_->duals(lam_, out);
    }

    // The finished point after finish(), else the present iterate.
    const Vector& x() const { return finished_.empty() ? x_ : finished_; }
    const Labels& labels() const { return labels_; }
    Index n_clusters() const { return n_clusters_; }
    const Certificate& last() const { return last_; }
    Index n_iter() const { return n_iter_; }
    double rho() const { return rho_; }
    double lam() const { return lam_; }
    double primal_residual();
    // Asks the next checks for a tolerance and a rounding bound `factor` times the ones set.
    void tighten(double factor) { tightening_ = factor; }
    Index n_edges() const { return coupling_->n_edges(); }

  private:
    using Nodes = std::vector<std::int32_t>;
    // A set of nodes whose flow is known.
    struct Core {
        Nodes nodes;
        std::unique_ptr<Coupling> flow;
        double largest = 0.0;  // of its norms
    };

    StepParameters step(double alpha) const;
    bool proportional() const;
    Core core_of(const Nodes& nodes) const;
    Labels places(const Nodes& nodes) const;
    bool overloaded(const Nodes& nodes) const;
    double settle_clusters(double largest);
    Vector force_inside(const Nodes& nodes) const;
    // Whether a flow was found; kFar: the first look ruled it out.
    enum class Flow { kFits, kOpen, kNone, kFar };
    Flow settle_flow(Core& core, Index checks);
    double measure(const Vector& x);
    double measure_again(const Vector& x);
    bool defer_move(double lam);
    bool constant_on_cores(const Vector& x) const;
    Vector restricted(const Vector& x) const;
    Vector lifted(const Vector& x) const;
    void expand();
    bool move_inner(double lam);
    void sweep(double alpha, bool check);
    Certificate judge(const Vector& x, double penalty);
    bool check();
    Index next_opening(bool met) const;
    Index fuse(Labels& labels, Vector& sums, Vector& count, Vector& out);
    void project_null();
    void unproject();
    void move();
    void pass_state(StateStream& stream);
    double tolerance(const Certificate& c) const;
    bool within(const Certificate& c) const;
    void adapt_complete(const QuadraticLoss::Value& value, double slack);
    void adapt_edges();
    void restart(bool along_path = false);
    double repair(double& work, double budget, bool patient);
    bool large() const;
    bool nearly(const FinishedPartition& partition) const;
    bool take_settled(FinishReport& report);
    bool aggregate();
    FinishReport finish_aggregated(double share);
    bool search(Labels labels, Vector x, const std::vector<Labels>& ladder, Index rung, const Vector& kept,
                double budget, FinishedPartition& best, FinishReport& report);
    FinishedPartition at_means(const Labels& labels, Index n_clusters);
    bool split(const std::vector<Labels>& ladder, Index coarsest, const Vector& kept, Labels& labels,
               Vector& x) const;
    bool part_clusters(Labels& labels, Vector& x, double& work, double budget);
    Coupling::Sums manifold(const Vector& phi);

    QuadraticLoss loss_;
    ThreadPool pool_;
    std::unique_ptr<Coupling> coupling_;
    AdmmOptions options_;
    double lam_ = 0.0, rho_ = 1.0, first_rho_ = 1.0, stretch_ = 1.0, tightening_ = 1.0;
    Index n_iter_ = 0, since_start_ = 0, first_check_ = 0, check_every_ = 5, opening_ = 5, next_adapt_ = 20,
          n_adapted_ = 0;
    double rho_share_ = 1.0;   // of the way to the rho that is wanted
    double sweep_work_ = 0.0;  // edges visited at this lam
    Vector x_, finished_, fused_, s_, g_, rhs_, phi_, sums_, node_, worst_;
    double penalty_ = 0.0;
    Labels labels_, fused_labels_;
    Index n_clusters_ = 0, n_fused_ = 0;  // n_fused_: 0 until the present state has been looked at
    bool fresh_ = false;                  // g_ and told_ are of the present state, told_ at x_
    double moved_from_ = 0.0;             // the radius that the state still keeps its distance from, or 0
    Coupling::Sums told_;                 // of the last check
    bool warm_ = false;                   // this lam was started from the state of another
    bool known_ = false;  // labels_ and means of x_ are the last lam's solution, as duals (nearly) prove
    bool fine_ = false;   // float32 has not the digits for this lam
    double lowest_ = std::numeric_limits<double>::infinity();  // gap, and the checks since it fell
    Index stale_ = 0;
    bool settled_ = false;          // best_ is what a proof on the whole graph nearly succeeded for
    double growth_ = 1.0;           // lam in units of the one before
    Index n_between_ = 0;           // iterations at this lam between the clusters of the one before
    Index skip_ = 0, skipped_ = 0;  // larger lams to be started without aggregation, and those that were
    bool projected_ =
        false;  // certify() has put its corrected duals in the place of the state, which is set aside
    Certificate last_;
    FinishedPartition best_;
    // While the problem is contracted: its cores, the group of each node, and the problem between the groups.
    std::vector<Core> cores_;
    Labels groups_;
    std::unique_ptr<Admm> inner_;
    PcgWork work_;
};

}  // namespace fusionopt
