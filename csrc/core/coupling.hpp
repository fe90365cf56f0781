// What joins the nodes: the complete graph (pairs never listed) or an edge list. Each owns the state y and
// knows its x-step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/edge_newton.hpp"
#include "core/loss.hpp"
#include "core/reduced.hpp"
#include "core/state.hpp"
#include "core/sweep.hpp"
#include "core/thread_pool.hpp"

namespace fusionopt {

using Labels = std::vector<std::int32_t>;

// Node arrays are row-major [n_nodes][n_features] throughout.
class Coupling {
  public:
    virtual ~Coupling() = default;

    struct Sums {
        double penalty = 0.0;  // sum_e w_e ||x_i - x_j|| (when g was wanted)
        double largest = 0.0;  // kManifold, kProject: largest dual norm per unit weight that received phi
        // Complete graphs, when g was wanted: sum ||x_i - x_j - theta||^2, least ||x_i - x_j||^2 and largest
        // lam / ||y|| (at most 1) over the pairs.
        double residual = 0.0;
        double nearest = 0.0;
        double tightest = 1.0;
    };
    struct SweepRequest {
        SweepKind kind = SweepKind::kRelax;
        StepParameters step;
        const Vector* phi = nullptr;
        double lam_old = 0.0;
        double scale = 1.0;
        bool commit = true;
        Vector* worst = nullptr;  // kManifold: the largest norm at each node
    };
    // One pass over all edges at x: s_i = sum +-w (y - 2P), and g_i = sum +-w P when g is given.
    virtual Sums sweep(const SweepRequest& request, const Vector& x, Vector& s, Vector* g) = 0;

    // Whether it has parts, and its checks tell of the pairs (complete graphs whose state is one vector a
    // pair).
    virtual bool has_parts() const { return false; }
    // Whether its nodes are groups of the whole graph's.
    virtual bool grouped() const { return false; }

    // Prepares and solves (H + B' R B) x = b for R = rho (per edge: rho_e) w. x holds the start on entry.
    // Returns the passes over all edges that it made.
    virtual void set_rho(const QuadraticLoss& loss, double rho) = 0;
    virtual double solve_x(const QuadraticLoss& loss, const Vector& b, Vector& x) = 0;
    // From the nodes' own minimisers x.
    virtual double start_rho(const QuadraticLoss& loss, double lam, const Vector& x) const = 0;
    // Per-edge rho from the state (edge lists only), which goes this share of the way, in logarithms: returns
    // false where there is nothing to spread.
    virtual bool spread_rho(const StepParameters& step, double clip, double share) = 0;
    // Relative primal residual ||Bx - theta|| / max(||Bx||, ||theta||).
    virtual double primal_residual(const StepParameters& step, const Vector& x, double* absolute) const = 0;

    // The second stage from the present state, where its expected work fits the budget (edge lists only): x
    // and the state move to where the gap is `target`, or as near as rounding or the budget let them.
    virtual NewtonReport newton(const QuadraticLoss&, const StepParameters&, double /*target*/,
                                double /*budget*/, Vector& /*x*/) {
        return {};
    }

    // Looks at the `open` clusters with the forces from others held (parting.hpp; edge lists only): the state
    // inside them becomes flows that fit where there are any, and labels and x those of the pieces of
    // clusters that come apart. Returns the edges visited, at most about `budget`; 0: not tried.
    virtual double part_clusters(const QuadraticLoss&, const StepParameters&,
                                 const std::vector<char>& /*open*/, double /*budget*/, Labels&,
                                 Index& /*n_clusters*/, Vector& /*x*/) {
        return 0.0;
    }

    // sum_e w_e ||x_i - x_j||.
    virtual double penalty(const Vector& x) const = 0;
    // out = B' W B phi over all edges.
    virtual void laplacian(const Vector& phi, Vector& out) = 0;
    // phi with B_C' W B_C phi = e on the edges inside clusters (e sums to zero in each), to a relative
    // tolerance, or until entries of size `noise` are left. Returns the passes made.
    virtual Index balance(const Labels& labels, Index n_clusters, const Vector& e, double tol, double noise,
                          Vector& phi) = 0;

    // Threads for the passes over all edges; the pool must outlive its use here. The bits do not depend on
    // it.
    virtual void use(ThreadPool* pool) { pool_ = pool; }
    // Back to a float32 state where one was asked for, its range is enough for this lam (and the one before,
    // where the state is still to move; else 0) and its digits are enough (not `fine`): finishing and repairs
    // leave a float64 state behind.
    virtual void settle(double /*lam*/, double /*before*/, bool /*fine*/) {}
    // A float32 state was asked for.
    virtual bool narrow() const { return false; }

    // Sets the state y aside, and exchanges it with the one set aside.
    virtual void keep_state() {
        if (kept_.size() != y_.size()) kept_ = Buffer(y_.size());
        std::copy_n(y_.data(), y_.size(), kept_.data());
    }
    virtual void swap_state() { std::swap(y_, kept_); }
    // The duals per unit weight times `factor`, inside balls of radius lam (edge lists only).
    virtual void grow(double /*factor*/, double /*lam*/) {}
    // The state y itself, in float64.
    Vector copy_state() const { return {y_.data(), y_.data() + y_.size()}; }
    void put_state(const Vector& y) { std::copy(y.begin(), y.end(), y_.data()); }
    // What a later sweep reads and set_rho() does not rebuild.
    virtual void pass_state(StateStream& stream) { stream.pass(y_); }

    // Components of {edges with ||y|| <= lam (1 + margin)} for the ladder of margins, finest first, each
    // partition once. `middle` receives the index of the one at margin 0.
    virtual std::vector<Labels> partitions(double lam, Index& middle) const = 0;
    // Components of the edges inside their balls: the fused candidate of a check.
    virtual Index fused_labels(double lam, Labels& labels) = 0;
    virtual ReducedProblem reduce(const QuadraticLoss& loss, double lam, const Labels& labels,
                                  Index n_clusters) const = 0;

    // The graph between groups of nodes, whose weights are the groups' sums; and the way back, where every
    // edge between two groups gets their state. Complete graphs: with the mean of the state over the pairs of
    // two groups, groups may be left out (label -1), and the part's state is of the type that this one's is,
    // unless `exact`.
    virtual std::unique_ptr<Coupling> part(const Labels&, Index /*n_groups*/, bool /*exact*/) const {
        return nullptr;
    }
    virtual void put_part(const Coupling&, const Labels&) {}
    // Frees the state: parts that cover every pair will be put back.
    virtual void release() {}
    // Components of the pairs with ||y|| <= bound, for ascending bounds, each partition once (complete graphs
    // only).
    virtual std::vector<Labels> sets_within(const std::vector<double>&) const { return {}; }
    // Roughly the share of pairs with ||y|| <= bound, from a few of them (complete graphs only).
    virtual double share_within(double /*bound*/) const { return 0.0; }
    // r_i of a complete graph's weights W r_i r_j.
    virtual double node_weight(Index) const { return 1.0; }
    virtual double pair_weight() const { return 1.0; }  // its W

    // v_e = w_e P(y_e), rows in the order of the edges (i < j, lexicographic).
    virtual void duals(double lam, double* out) const = 0;
    virtual Index n_edges() const = 0;
    // Longest chain of additions in a sweep's sums: the factor of its rounding bound.
    virtual double chain() const = 0;
    virtual bool complete() const = 0;

  protected:
    template <class Function>
    void for_chunks(Index n_chunks, Function&& fn) const {
        if (pool_ != nullptr)
            pool_->parallel_for(n_chunks, fn);
        else
            for (Index chunk = 0; chunk < n_chunks; ++chunk) fn(chunk, 0);
    }
    int n_workers() const { return pool_ != nullptr ? pool_->n_workers() : 1; }

    ThreadPool* pool_ = nullptr;
    Buffer y_, kept_;  // blocks of kLanes edges, [n_features][kLanes] each
};

// w_ij = weight r_i r_j; memory m^2 d / 2 numbers, float32 where the state is `narrow`. What a certificate is
// made of is float64 in any case, and so is the state while a partition is finished.
std::unique_ptr<Coupling> make_complete_coupling(Index n_nodes, Index n_features, double weight,
                                                 const Vector& node_weights, const Vector& common_null,
                                                 bool narrow = false);
// Edges i < j sorted, weights positive; memory about (d + 8) doubles an edge.
std::unique_ptr<Coupling> make_edge_coupling(Index n_nodes, Index n_features, std::vector<std::int32_t> tail,
                                             std::vector<std::int32_t> head, const Vector& weights);
// The l1 penalty: `parts` are d couplings of one feature each, `whole` the same graph with all d features
// (its state is never touched). No partition finishing.
std::unique_ptr<Coupling> make_separable_coupling(std::unique_ptr<Coupling> whole,
                                                  std::vector<std::unique_ptr<Coupling>> parts,
                                                  Index n_nodes);

// Relative distances from the ball at which candidate partitions are read off the duals.
inline constexpr double kMargins[] = {-1e-1, -3e-2, -1e-2, -1e-3, -1e-4, -1e-6, -1e-8,
                                      0.0,   1e-8,  1e-6,  1e-4,  1e-3,  1e-2};
inline constexpr int kMarginZero = 7;

}  // namespace fusionopt
