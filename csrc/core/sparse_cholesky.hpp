// Sparse block Cholesky factor of a symmetric positive definite matrix on a graph: minimum degree ordering,
// multifrontal factorisation. Made for nearest-neighbour graphs in few dimensions, where the fill is small;
// cost() tells before anything is computed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/linear.hpp"

namespace fusionopt {

class SparseCholesky {
  public:
    // Orders the n nodes and finds the pattern of the factor; every node has `block` unknowns. Gives up,
    // false, as soon as a factorisation would take more than max_cost multiplications. Deterministic; time
    // about that of the fill.
    bool analyse(Index n, const std::int32_t* tail, const std::int32_t* head, Index n_edges, Index block,
                 double max_cost);
    // The same order and pattern with another number of unknowns a node, after analyse().
    bool lay_out(Index block, double max_cost);
    bool analysed() const { return !nodes_.empty(); }
    // Multiplications of a factorisation; numbers in the factor (a solve makes two passes over them).
    double cost() const { return cost_; }
    double entries() const { return entries_; }
    // diagonal [n][block][block], off [n_edges][block][block] (symmetric blocks, the same for (i, j) and
    // (j, i)). A pivot that is not positive after rounding is replaced by one.
    // No allocation.
    void factor(const double* diagonal, const double* off);
    // In place: v <- A^-1 v for `columns` right hand sides, v [n][block][columns].
    void solve(double* v, Index columns) const;
    bool ready() const { return ready_; }

  private:
    struct Supernode {
        Index first = 0, columns = 0;  // in elimination order
        Index rows_at = 0, rows = 0;   // below the diagonal: positions in rows_
        Index panel_at = 0;            // in panels_
        Index update_at = 0;           // in updates_, a stack in post-order
        std::vector<Index> children;
    };
    template <int Columns>
    void substitute(double* x, Index given) const;

    Index n_ = 0, block_ = 1, tallest_ = 0;
    double cost_ = 0.0, entries_ = 0.0;
    bool ready_ = false;
    std::vector<std::int32_t> order_, place_;  // order_[k]: node eliminated k-th; place_: its inverse
    std::vector<Supernode> nodes_;
    std::vector<Index> rows_;           // elimination positions, ascending in each supernode
    std::vector<Index> start_, entry_;  // by column: edges to later columns
    std::vector<Index> target_;
    Vector panels_, front_, updates_;
    std::vector<Index> where_;  // row of a node in the present front
    mutable Vector scratch_, permuted_;
};

}  // namespace fusionopt
