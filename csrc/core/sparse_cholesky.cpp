#include "core/sparse_cholesky.hpp"

#include <algorithm>
#include <cmath>

namespace fusionopt {

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

constexpr Index kNarrow = 4;     // supernodes of fewer columns join their parent where the zeros are few
constexpr double kZeros = 0.25;  // share of explicit zeros allowed in a joined supernode

// Approximate minimum degree on the quotient graph (Amestoy, Davis and Duff 1996, without supervariables).
// The element made by a pivot is the pattern of its column.
struct Ordering {
    std::vector<std::int32_t> order;
    std::vector<std::vector<std::int32_t>> pattern;  // of the column of each node, by node

    bool run(Index n, const std::int32_t* tail, const std::int32_t* head, Index n_edges, double block,
             double max_cost) {
        std::vector<std::vector<std::int32_t>> variables(at(n)), elements(at(n));
        for (Index e = 0; e < n_edges; ++e) {
            if (tail[e] == head[e]) continue;
            variables[at(tail[e])].push_back(head[e]);
            variables[at(head[e])].push_back(tail[e]);
        }
        pattern.assign(at(n), {});
        order.clear();
        std::vector<std::int32_t> next(at(n), -1), before(at(n), -1), bucket(at(n + 1), -1);
        std::vector<Index> degree(at(n)), mark(at(n), -1), outside(at(n), 0), seen(at(n), -1);
        std::vector<char> done(at(n), 0);
        const auto insert = [&](std::int32_t i) {
            std::int32_t& top = bucket[at(degree[at(i)])];
            next[at(i)] = top;
            before[at(i)] = -1;
            if (top >= 0) before[at(top)] = i;
            top = i;
        };
        const auto remove = [&](std::int32_t i) {
            if (before[at(i)] >= 0)
                next[at(before[at(i)])] = next[at(i)];
            else
                bucket[at(degree[at(i)])] = next[at(i)];
            if (next[at(i)] >= 0) before[at(next[at(i)])] = before[at(i)];
        };
        for (Index i = n - 1; i >= 0; --i) {
            auto& list = variables[at(i)];
            std::sort(list.begin(), list.end());
            list.erase(std::unique(list.begin(), list.end()), list.end());
            degree[at(i)] = static_cast<Index>(list.size());
            insert(static_cast<std::int32_t>(i));
        }
        double cost = 0.0;
        Index least = 0;
        for (Index step = 0; step < n; ++step) {
            while (bucket[at(least)] < 0) ++least;
            const std::int32_t p = bucket[at(least)];
            remove(p);
            done[at(p)] = 1;
            order.push_back(p);
            std::vector<std::int32_t>& own = pattern[at(p)];
            mark[at(p)] = step;
            const auto take = [&](std::int32_t i) {
                if (done[at(i)] || mark[at(i)] == step) return;
                mark[at(i)] = step;
                own.push_back(i);
            };
            for (const std::int32_t i : variables[at(p)]) take(i);
            for (const std::int32_t e : elements[at(p)]) {
                for (const std::int32_t i : pattern[at(e)]) take(i);
                seen[at(e)] = -2;  // absorbed
            }
            const double width = block * static_cast<double>(own.size() + 1);
            cost += 0.5 * block * width * width;
            if (cost > max_cost) return false;
            // |element \ own| for every element that touches it.
            for (const std::int32_t i : own) {
                for (const std::int32_t e : elements[at(i)]) {
                    if (seen[at(e)] == -2) continue;
                    if (seen[at(e)] != step) {
                        seen[at(e)] = step;
                        outside[at(e)] = 0;
                        for (const std::int32_t k : pattern[at(e)])
                            if (!done[at(k)] && mark[at(k)] != step) ++outside[at(e)];
                    }
                }
            }
            const Index size = static_cast<Index>(own.size());
            for (const std::int32_t i : own) {
                auto& lists = elements[at(i)];
                lists.erase(std::remove_if(lists.begin(), lists.end(),
                                           [&](std::int32_t e) { return seen[at(e)] == -2; }),
                            lists.end());
                Index bound = size - 1;
                for (const std::int32_t e : lists) bound += outside[at(e)];
                auto& near = variables[at(i)];
                near.erase(std::remove_if(near.begin(), near.end(),
                                          [&](std::int32_t k) { return done[at(k)] || mark[at(k)] == step; }),
                           near.end());
                bound += static_cast<Index>(near.size());
                lists.push_back(p);
                remove(i);
                degree[at(i)] = std::min({n - step - 2, degree[at(i)] + size - 1, bound});
                if (degree[at(i)] < 0) degree[at(i)] = 0;
                insert(i);
                least = std::min(least, degree[at(i)]);
            }
        }
        return true;
    }
};

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
    Ordering ordering;
    if (!ordering.run(n, tail, head, n_edges, static_cast<double>(block), max_cost)) return false;

    // Elimination tree, put into post-order.
    std::vector<std::int32_t> position(at(n));
    for (Index k = 0; k < n; ++k) position[at(ordering.order[at(k)])] = static_cast<std::int32_t>(k);
    std::vector<Index> parent(at(n), -1), child(at(n), -1), sibling(at(n), -1);
    for (Index k = n - 1; k >= 0; --k) {
        for (const std::int32_t i : ordering.pattern[at(ordering.order[at(k)])])
            if (parent[at(k)] < 0 || position[at(i)] < parent[at(k)]) parent[at(k)] = position[at(i)];
        if (parent[at(k)] >= 0) {
            sibling[at(k)] = child[at(parent[at(k)])];
            child[at(parent[at(k)])] = k;
        }
    }
    order_.clear();
    std::vector<Index> stack;
    for (Index root = 0; root < n; ++root) {
        if (parent[at(root)] >= 0) continue;
        stack.push_back(root);
        while (!stack.empty()) {
            const Index k = stack.back();
            if (child[at(k)] >= 0) {
                stack.push_back(child[at(k)]);
                child[at(k)] = sibling[at(child[at(k)])];
            } else {
                order_.push_back(ordering.order[at(k)]);
                stack.pop_back();
            }
        }
    }
    place_.assign(at(n), 0);
    for (Index k = 0; k < n; ++k) place_[at(order_[at(k)])] = static_cast<std::int32_t>(k);

    // Columns whose patterns nest join their parent where the two are neighbours in post-order.
    nodes_.clear();
    rows_.clear();
    std::vector<std::vector<Index>> rows(at(n));
    std::vector<Index> up(at(n), -1);
    for (Index k = 0; k < n; ++k) {
        auto& own = rows[at(k)];
        for (const std::int32_t i : ordering.pattern[at(order_[at(k)])]) own.push_back(place_[at(i)]);
        std::sort(own.begin(), own.end());
        if (!own.empty()) up[at(k)] = own.front();
    }
    std::vector<Index> owner(at(n), -1);
    std::vector<double> zeros;
    for (Index k = 0; k < n; ++k) {
        bool joined = false;
        if (!nodes_.empty()) {
            Supernode& last = nodes_.back();
            const Index tip = last.first + last.columns - 1;
            if (tip == k - 1 && up[at(k - 1)] == k) {
                const double missing = static_cast<double>(rows[at(k)].size() + 1 - rows[at(k - 1)].size()) *
                                       static_cast<double>(last.columns);
                const double width = static_cast<double>(rows[at(k)].size() + 1);
                const double total = width * static_cast<double>(last.columns + 1);
                joined = missing == 0.0 || (zeros.back() + missing <= kZeros * total) ||
                         (last.columns < kNarrow && zeros.back() + missing <= 2.0 * kZeros * total);
                if (joined) {
                    zeros.back() += missing;
                    ++last.columns;
                }
            }
        }
        if (!joined) {
            nodes_.push_back({});
            nodes_.back().first = k;
            nodes_.back().columns = 1;
            zeros.push_back(0.0);
        }
        owner[at(k)] = static_cast<Index>(nodes_.size()) - 1;
    }
    tallest_ = 0;
    for (Index s = 0; s < static_cast<Index>(nodes_.size()); ++s) {
        Supernode& node = nodes_[at(s)];
        const auto& last = rows[at(node.first + node.columns - 1)];
        node.rows_at = static_cast<Index>(rows_.size());
        node.rows = static_cast<Index>(last.size());
        rows_.insert(rows_.end(), last.begin(), last.end());
        tallest_ = std::max(tallest_, node.rows);
        if (!last.empty()) nodes_[at(owner[at(last.front())])].children.push_back(s);
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
