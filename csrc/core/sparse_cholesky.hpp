// Sparse block Cholesky factor of a symmetric positive definite matrix on a graph: minimum degree ordering,
// supernodal factorisation. Made for nearest-neighbour graphs in few dimensions, where the fill is small;
// cost() tells before anything is computed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/front.hpp"
#include "core/linear.hpp"

namespace fusionopt {

class SparseCholesky {
  public:
    SparseCholesky() = default;
    SparseCholesky(SparseCholesky&&) = default;
    SparseCholesky& operator=(SparseCholesky&&) = default;
    // A copy has the order and the pattern: lay_out() makes it one of its own.
    SparseCholesky(const SparseCholesky& other) : pattern_(other.pattern_) {}
    SparseCholesky& operator=(const SparseCholesky& other) { return *this = SparseCholesky(other); }

    // Orders the n nodes and finds the pattern of the factor; every node has `block` unknowns. Gives up,
    // false, as soon as a factorisation would take more than max_cost multiplications. Deterministic; time
    // about that of the fill.
    bool analyse(Index n, const std::int32_t* tail, const std::int32_t* head, Index n_edges, Index block,
                 double max_cost);
    // The same order and pattern with another number of unknowns a node, after analyse().
    bool lay_out(Index block, double max_cost);
    bool analysed() const { return pattern_ != nullptr; }
    // Multiplications of a factorisation; numbers in the factor (a solve makes two passes over them).
    double cost() const { return cost_; }
    double entries() const { return entries_; }
    // Edges of `n_features` numbers visited in the time of a factorisation.
    double work(Index n_features) const { return cost_ / (kPerVisit * static_cast<double>(n_features)); }
    static constexpr double kPerVisit = 40.0;  // multiplications in the time of a feature of a visited edge
    // diagonal [n][block][block], off [n_edges][block][block] (symmetric blocks, the same for (i, j) and
    // (j, i)). A pivot that is not positive after rounding is replaced by one.
    // No allocation.
    void factor(const double* diagonal, const double* off);
    // In place: v <- A^-1 v for `columns` right hand sides, v [n][block][columns].
    void solve(double* v, Index columns) const;
    bool ready() const { return ready_; }

  private:
    // What Front and FrontUpdate are, counted in nodes.
    struct Supernode {
        Index first, columns, rows_at, rows, links, entries;
    };
    struct Link {
        Index from, row, width, places;  // which supernode, from which of its rows on
    };
    struct Pattern {
        Index n = 0;
        std::vector<std::int32_t> order;  // order[k]: node eliminated k-th
        std::vector<Supernode> nodes;     // and one more, where the lists end
        std::vector<std::int32_t> rows;   // places in the order, ascending in each supernode
        std::vector<Link> links;
        std::vector<FrontEntry> entries;
        std::vector<std::int32_t> places;
        bool find(const std::int32_t* tail, const std::int32_t* head, Index n_edges, Index block,
                  double max_cost);
        void sort_edges(const std::int32_t* tail, const std::int32_t* head, Index n_edges,
                        const std::vector<std::int32_t>& owner);
        bool find_rows(const std::vector<std::int32_t>& parent, Index block, double max_cost);
        void find_links(const std::vector<std::int32_t>& owner);
    };
    FrontPlan plan() const;

    std::shared_ptr<const Pattern> pattern_;
    Index block_ = 1;
    double cost_ = 0.0, entries_ = 0.0;
    bool ready_ = false;
    std::vector<Front> fronts_;
    std::vector<FrontUpdate> updates_;
    std::vector<std::int32_t> wide_rows_, wide_places_;  // of more than one unknown a node
    Buffer panels_;
    mutable Vector scratch_;
};

}  // namespace fusionopt
