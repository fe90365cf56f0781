// The problem over x constant on the clusters of a partition, solved to rounding by Newton-CG on its distinct
// centres:
//     min_w  sum_k (1/2 w_k' H_k w_k - q_k' w_k) + lam sum_{k<l} W_kl ||w_k - w_l||
// with summed H and q, and W_kl = W r_k r_l (complete graph, r summed) or the summed edge weights.
#pragma once

#include <cstdint>
#include <vector>

#include "core/loss.hpp"
#include "core/sweep.hpp"

namespace fusionopt {

struct ReducedProblem {
    QuadraticLoss loss;  // one node a cluster; scalar or dense with `hessian` only (no eigenvectors needed)
    Vector terms;        // [K] sum of |q| over all numbers that a cluster's q was added up from
    double lam = 0.0;
    bool complete = false;
    double weight = 1.0;             // complete: W
    Vector r;                        // complete: node weights
    std::vector<std::int32_t> tail;  // otherwise
    std::vector<std::int32_t> head;
    Vector edge_weight;

    // Loss and terms: H and q summed over clusters.
    void sum_loss(const QuadraticLoss& nodes, const std::vector<std::int32_t>& labels, Index n_clusters);
};

// H and q summed over clusters.
QuadraticLoss sum_over_clusters(const QuadraticLoss& loss, const std::vector<std::int32_t>& labels,
                                Index n_clusters);

struct ReducedSolution {
    Vector centres;  // [K][d]; clusters that ran into each other share a centre, bit for bit
    std::vector<std::int32_t>
        merged;  // [K] group of each cluster after such mergers, 0..n_groups-1 by first appearance
    Index n_groups = 0;
    double objective = 0.0;   // without the constant
    double rounding = 0.0;    // bound on the rounding error of `objective`
    bool stationary = false;  // gradient at rounding level with every pair of joined centres apart: the exact
                              // restricted optimum
    bool out_of_reach = false;  // no factor fits the budget, and without one Newton would take many times it
    Index newton_steps = 0;
    double work = 0.0;  // edges visited
};

// Edges between different groups, summed and sorted, appended to `out`.
void join_edges(const std::vector<std::int32_t>& tail, const std::vector<std::int32_t>& head,
                const Vector& weight, const std::vector<std::int32_t>& group, ReducedProblem& out);

// Damped Newton from `start`. Where a step would carry a centre through its stiffest partner the two are
// merged, where that lowers the objective, and the search goes on with one centre less: the objective has no
// gradient there, and a step across it only shortens everybody's. Memory O(K d^2), time O(edges d) a Hessian
// product. `budget` bounds the edges visited; when it runs out the best point so far is returned with
// stationary = false. `stiff` is set where conjugate gradients were too slow, and tells the next problem like
// this one to start with a factor.
ReducedSolution solve_reduced(const ReducedProblem& problem, const Vector& start, double budget, bool& stiff);

// The reduced objective at given centres, without the constant, and a bound on its rounding error.
double reduced_objective(const ReducedProblem& problem, const Vector& centres, double& rounding);

}  // namespace fusionopt
