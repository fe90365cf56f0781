// In what order to eliminate the nodes of a graph, and the fronts that this makes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.hpp"

namespace fusionopt {

// Front f eliminates the nodes order[first[f]] ... order[first[f + 1] - 1] together. What it fills, rows[f]
// later nodes, is among the nodes and the rows of its parent[f] > f (-1: nothing).
struct Elimination {
    std::vector<std::int32_t> order, first, parent, rows;
};

// Approximate minimum degree (Amestoy, Davis and Duff, SIAM J. Matrix Anal. Appl. 17, 1996), on the quotient
// graph: an eliminated front is an element, nodes that have become alike are eliminated together. Nodes of
// very many neighbours come last, in a front of their own, and are not counted in the rows of others. False
// as soon as the factor would take more than max_cost multiplications with `block` unknowns a node. Repeated
// edges and loops do no harm. Deterministic; memory about that of the fill.
bool minimum_degree(Index n, const std::int32_t* tail, const std::int32_t* head, Index n_edges, Index block,
                    double max_cost, Elimination& found);

// Joins fronts to their parents where this adds few zeros, and puts the fronts in post-order. The nodes of a
// front are in the order in which they were eliminated.
Elimination join_fronts(const Elimination& fronts);

// Multiplications that turn a front of `size` unknowns into `columns` columns of the factor and the Schur
// complement of the others.
inline double front_cost(double columns, double size) {
    const auto squares = [](double m) { return m * (m + 1.0) * (2.0 * m + 1.0) / 6.0; };
    return 0.5 * (squares(size) - squares(size - columns));
}

}  // namespace fusionopt
