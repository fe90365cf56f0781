// Clusters that may have to come apart, on edge lists. With the forces from other clusters held, a cluster C
// at its centre c is a small problem of its own,
//     min_u  sum_{i in C} [f_i(c + u_i) + <force_i, u_i>] + lam sum_{e inside C} w_e ||u_i - u_j||,
// whose minimiser has all u_i equal exactly where C's flow fits its balls; else it tells how C comes apart.
#pragma once

#include <cstdint>
#include <vector>

#include "core/edge_newton.hpp"
#include "core/loss.hpp"

namespace fusionopt {

class Parting {
  public:
    struct Graph {
        const std::int32_t* tail = nullptr;
        const std::int32_t* head = nullptr;
        const double* weight = nullptr;
        Index n_edges = 0;
    };
    // x [n_nodes][n_features] is constant on the clusters of `labels`; `open` names those to be looked at.
    Parting(const QuadraticLoss& loss, const Graph& graph, double lam,
            const std::vector<std::int32_t>& labels, Index n_clusters, const std::vector<char>& open,
            const Vector& x);

    // The edges inside open clusters.
    const std::vector<Index>& inside() const { return inside_; }
    // Solves one problem after the other by the second stage, with balls a little smaller so that flows that
    // fit have room, while the budget (edges visited) lasts. t [inside][n_features] holds duals on entry and
    // the optimal ones, inside their balls, on return. Returns the edges visited.
    double solve(double start_sigma, double budget, Vector& t);
    // Number of clusters now that those which came apart have labels for their pieces, new ones from
    // n_clusters on. x moves to the pieces' means, no further than the objective falls.
    Index pieces(std::vector<std::int32_t>& labels, Vector& x);

  private:
    struct Cluster {
        Index nodes = 0, edges = 0;  // its first in nodes_ and inside_
    };
    double solve_one(const Cluster& from, const Cluster& to, double start_sigma, double budget, Vector& all);
    Vector directions(Index n_pieces) const;
    void shorten(const Vector& direction, const Vector& centre, Vector& x) const;

    const QuadraticLoss& loss_;
    Graph graph_;
    double lam_;
    const std::vector<std::int32_t>& labels_;
    Index n_clusters_;
    std::vector<Cluster> clusters_;            // the open ones, and an end
    std::vector<std::int32_t> nodes_, place_;  // their nodes; place_: of a node in nodes_, or -1
    std::vector<Index> inside_, across_;       // across_: edges from an open cluster to another
    Vector forces_;                            // what pulls at each of these nodes, [nodes][n_features]
    Vector moved_;                             // u
    UnionFind sets_;                           // pieces, and the piece of each node
    std::vector<std::int32_t> piece_;
};

}  // namespace fusionopt
