#include "core/sparse_cholesky.hpp"

#include <algorithm>
#include <cmath>

#include "core/elimination.hpp"

namespace fusionopt {

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// First `columns` columns of the lower triangle of the front (column-major, `size` rows) become their
// Cholesky factor; the rest becomes the Schur complement.
void eliminate(double* front, Index size, Index columns) {
    for (Index j = 0; j < size; ++j) {
        double* const target = front + j * size;
        const Index known = std::min(j, columns);
        Index k = 0;
        for (; k + 4 <= known; k += 4) {
            const double *a = front + k * size, *b = a + size, *c = b + size, *e = c + size;
            const double fa = a[j], fb = b[j], fc = c[j], fe = e[j];
            for (Index i = j; i < size; ++i) target[i] -= fa * a[i] + fb * b[i] + fc * c[i] + fe * e[i];
        }
        for (; k < known; ++k) {
            const double* a = front + k * size;
            const double fa = a[j];
            for (Index i = j; i < size; ++i) target[i] -= fa * a[i];
        }
        if (j >= columns) continue;
        const double root = target[j] > 0.0 ? std::sqrt(target[j]) : 1.0;
        target[j] = root;
        for (Index i = j + 1; i < size; ++i) target[i] /= root;
    }
}

}  // namespace

bool SparseCholesky::analyse(Index n, const std::int32_t* tail, const std::int32_t* head, Index n_edges,
                             Index block, double max_cost) {
    ready_ = false;
    n_ = n;
    cost_ = entries_ = 0.0;
    nodes_.clear();
    tallest_ = 0;
    Elimination fronts;
    if (!minimum_degree(n, tail, head, n_edges, block, max_cost, fronts)) return false;
    fronts = join_fronts(fronts);
    order_ = fronts.order;
    place_.assign(at(n), 0);
    for (Index k = 0; k < n; ++k) place_[at(order_[at(k)])] = static_cast<std::int32_t>(k);
    nodes_.assign(fronts.rows.size(), {});
    for (std::size_t s = 0; s < nodes_.size(); ++s) {
        nodes_[s].first = fronts.first[s];
        nodes_[s].columns = fronts.first[s + 1] - fronts.first[s];
        if (fronts.parent[s] >= 0) nodes_[at(fronts.parent[s])].children.push_back(static_cast<Index>(s));
    }

    // The edges of each column to later ones.
    start_.assign(at(n + 1), 0);
    for (Index e = 0; e < n_edges; ++e)
        if (tail[e] != head[e]) ++start_[at(std::min(place_[at(tail[e])], place_[at(head[e])]) + 1)];
    for (Index k = 0; k < n; ++k) start_[at(k + 1)] += start_[at(k)];
    entry_.assign(at(start_[at(n)]), 0);
    target_.assign(at(start_[at(n)]), 0);
    std::vector<Index> free(start_.begin(), start_.end() - 1);
    for (Index e = 0; e < n_edges; ++e) {
        if (tail[e] == head[e]) continue;
        const Index a = place_[at(tail[e])], c = place_[at(head[e])];
        const Index spot = free[at(std::min(a, c))]++;
        entry_[at(spot)] = e;
        target_[at(spot)] = std::max(a, c);
    }

    // Rows of a supernode: what its edges and its children reach beyond it.
    rows_.clear();
    std::vector<std::int32_t> seen(at(n), -1);
    double cost = 0.0;
    for (std::size_t s = 0; s < nodes_.size(); ++s) {
        Supernode& node = nodes_[s];
        const Index end = node.first + node.columns;
        node.rows_at = static_cast<Index>(rows_.size());
        const auto add = [&](Index row) {
            if (row < end || seen[at(row)] == static_cast<std::int32_t>(s)) return;
            seen[at(row)] = static_cast<std::int32_t>(s);
            rows_.push_back(row);
        };
        for (Index spot = start_[at(node.first)]; spot < start_[at(end)]; ++spot) add(target_[at(spot)]);
        for (const Index below : node.children) {
            const Supernode& from = nodes_[at(below)];
            for (Index r = from.rows_at; r < from.rows_at + from.rows; ++r) add(rows_[at(r)]);
        }
        node.rows = static_cast<Index>(rows_.size()) - node.rows_at;
        std::sort(rows_.begin() + node.rows_at, rows_.end());
        tallest_ = std::max(tallest_, node.rows);
        const Index columns = node.columns * block;
        cost += front_cost(static_cast<double>(columns), static_cast<double>(columns + node.rows * block));
        if (cost > max_cost) {
            nodes_.clear();
            return false;
        }
    }
    where_.assign(at(n), 0);
    return lay_out(block, max_cost);
}

bool SparseCholesky::lay_out(Index block, double max_cost) {
    ready_ = false;
    block_ = block;
    cost_ = 0.0;
    const Index b = block;
    // Children lie on top of the stack when their parent is at work, in post-order.
    Index panel = 0, top = 0, deepest = 0, widest = 0;
    for (Supernode& node : nodes_) {
        const Index width = (node.columns + node.rows) * b;
        node.panel_at = panel;
        panel += width * node.columns * b;
        cost_ += 0.5 * static_cast<double>(width * width * node.columns * b);
        for (const Index below : node.children)
            top -= nodes_[at(below)].rows * nodes_[at(below)].rows * b * b;
        node.update_at = top;
        top += node.rows * node.rows * b * b;
        deepest = std::max(deepest, top);
        widest = std::max(widest, width);
    }
    entries_ = static_cast<double>(panel);
    if (cost_ > max_cost) return false;
    panels_.assign(at(panel), 0.0);
    updates_.resize(at(deepest));
    front_.resize(at(widest * widest));
    permuted_.clear();
    return true;
}

void SparseCholesky::factor(const double* diagonal, const double* off) {
    const Index b = block_, bb = b * b;
    std::vector<Index>& where = where_;
    double* const front = front_.data();
    for (const Supernode& node : nodes_) {
        const Index size = (node.columns + node.rows) * b, columns = node.columns * b;
        std::fill_n(front, size * size, 0.0);
        for (Index c = 0; c < node.columns; ++c) where[at(node.first + c)] = c;
        for (Index r = 0; r < node.rows; ++r) where[at(rows_[at(node.rows_at + r)])] = node.columns + r;
        for (Index c = 0; c < node.columns; ++c) {
            const Index k = node.first + c;
            const double* own = diagonal + order_[at(k)] * bb;
            for (Index q = 0; q < b; ++q)
                for (Index p = q; p < b; ++p) front[(c * b + q) * size + c * b + p] += own[p * b + q];
            for (Index spot = start_[at(k)]; spot < start_[at(k + 1)]; ++spot) {
                const Index row = where[at(target_[at(spot)])];
                const double* value = off + entry_[at(spot)] * bb;
                for (Index q = 0; q < b; ++q)
                    for (Index p = 0; p < b; ++p) front[(c * b + q) * size + row * b + p] += value[p * b + q];
            }
        }
        for (const Index child : node.children) {
            const Supernode& from = nodes_[at(child)];
            const double* update = updates_.data() + from.update_at;
            const Index height = from.rows * b;
            for (Index c = 0; c < from.rows; ++c) {
                const Index column = where[at(rows_[at(from.rows_at + c)])];
                for (Index q = 0; q < b; ++q) {
                    double* const target = front + (column * b + q) * size;
                    const double* const source = update + (c * b + q) * height;
                    for (Index p = q; p < b; ++p) target[column * b + p] += source[c * b + p];
                    for (Index r = c + 1; r < from.rows; ++r) {
                        const Index row = where[at(rows_[at(from.rows_at + r)])];
                        for (Index p = 0; p < b; ++p) target[row * b + p] += source[r * b + p];
                    }
                }
            }
        }
        eliminate(front, size, columns);
        std::copy_n(front, size * columns, panels_.data() + node.panel_at);
        const Index height = node.rows * b;
        double* const update = updates_.data() + node.update_at;
        for (Index c = 0; c < height; ++c)
            std::copy_n(front + (columns + c) * size + columns + c, height - c, update + c * height + c);
    }
    ready_ = true;
}

template <int Columns>
void SparseCholesky::substitute(double* x, Index given) const {
    const Index columns = Columns > 0 ? Columns : given, b = block_;
    for (const Supernode& node : nodes_) {
        const Index own = node.columns * b, rows = node.rows * b, size = own + rows;
        const double* const panel = panels_.data() + node.panel_at;
        double* const top = x + node.first * b * columns;
        double* const below = scratch_.data();
        std::fill_n(below, rows * columns, 0.0);
        for (Index j = 0; j < own; ++j) {
            const double* const factor = panel + j * size;
            double* const value = top + j * columns;
            for (Index q = 0; q < columns; ++q) value[q] /= factor[j];
            for (Index r = j + 1; r < own; ++r)
                for (Index q = 0; q < columns; ++q) top[r * columns + q] -= factor[r] * value[q];
            for (Index r = 0; r < rows; ++r)
                for (Index q = 0; q < columns; ++q) below[r * columns + q] += factor[own + r] * value[q];
        }
        for (Index r = 0; r < node.rows; ++r) {
            double* const target = x + rows_[at(node.rows_at + r)] * b * columns;
            for (Index q = 0; q < b * columns; ++q) target[q] -= below[r * b * columns + q];
        }
    }
    for (std::size_t s = nodes_.size(); s-- > 0;) {
        const Supernode& node = nodes_[s];
        const Index own = node.columns * b, rows = node.rows * b, size = own + rows;
        const double* const panel = panels_.data() + node.panel_at;
        double* const top = x + node.first * b * columns;
        double* const below = scratch_.data();
        for (Index r = 0; r < node.rows; ++r)
            std::copy_n(x + rows_[at(node.rows_at + r)] * b * columns, b * columns, below + r * b * columns);
        for (Index j = own - 1; j >= 0; --j) {
            const double* const factor = panel + j * size;
            double* const value = top + j * columns;
            for (Index r = j + 1; r < own; ++r)
                for (Index q = 0; q < columns; ++q) value[q] -= factor[r] * top[r * columns + q];
            for (Index r = 0; r < rows; ++r)
                for (Index q = 0; q < columns; ++q) value[q] -= factor[own + r] * below[r * columns + q];
            for (Index q = 0; q < columns; ++q) value[q] /= factor[j];
        }
    }
}

void SparseCholesky::solve(double* v, Index columns) const {
    const Index width = block_ * columns;
    permuted_.resize(at(n_ * width));
    scratch_.resize(at(tallest_ * width));
    for (Index k = 0; k < n_; ++k)
        std::copy_n(v + order_[at(k)] * width, width, permuted_.data() + k * width);
    if (columns == 1)
        substitute<1>(permuted_.data(), columns);
    else if (columns == 2)
        substitute<2>(permuted_.data(), columns);
    else
        substitute<0>(permuted_.data(), columns);
    for (Index k = 0; k < n_; ++k)
        std::copy_n(permuted_.data() + k * width, width, v + order_[at(k)] * width);
}

}  // namespace fusionopt
