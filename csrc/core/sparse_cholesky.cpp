#include "core/sparse_cholesky.hpp"

#include <algorithm>
#include <string_view>

#include "core/elimination.hpp"
#include "core/sweep.hpp"

namespace fusionopt {

namespace isa_baseline {
const FrontKernels& front_kernels();
}
#if defined(FUSIONOPT_X86)
namespace isa_avx2 {
const FrontKernels& front_kernels();
}
#endif

const FrontKernels& front_kernels() {
#if defined(FUSIONOPT_X86)
    if (std::string_view(sweeps().name) != "baseline") return isa_avx2::front_kernels();
#endif
    return isa_baseline::front_kernels();
}

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// Each entry becomes `block` ones, in a row.
void spread(const std::vector<std::int32_t>& from, Index block, std::vector<std::int32_t>& to) {
    to.resize(from.size() * at(block));
    std::int32_t* next = to.data();
    for (const std::int32_t k : from)
        for (Index p = 0; p < block; ++p) *next++ = static_cast<std::int32_t>(k * block + p);
}

}  // namespace

bool SparseCholesky::Pattern::find(const std::int32_t* tail, const std::int32_t* head, Index n_edges,
                                   Index block, double max_cost) {
    Elimination fronts;
    if (!minimum_degree(n, tail, head, n_edges, block, max_cost, fronts)) return false;
    fronts = join_fronts(fronts);
    order = fronts.order;
    const Index count = static_cast<Index>(fronts.rows.size());
    std::vector<std::int32_t> owner(at(n));
    nodes.assign(at(count) + 1, {});
    nodes.back().first = n;
    for (Index s = 0; s < count; ++s) {
        nodes[at(s)].first = fronts.first[at(s)];
        nodes[at(s)].columns = fronts.first[at(s + 1)] - fronts.first[at(s)];
        std::fill(owner.begin() + fronts.first[at(s)], owner.begin() + fronts.first[at(s + 1)],
                  static_cast<std::int32_t>(s));
    }
    sort_edges(tail, head, n_edges, owner);
    if (!find_rows(fronts.parent, block, max_cost)) return false;
    find_links(owner);
    return true;
}

// Edges by the supernode that eliminates their first end.
void SparseCholesky::Pattern::sort_edges(const std::int32_t* tail, const std::int32_t* head, Index n_edges,
                                         const std::vector<std::int32_t>& owner) {
    std::vector<std::int32_t> place(at(n));
    for (Index k = 0; k < n; ++k) place[at(order[at(k)])] = static_cast<std::int32_t>(k);
    const Index count = static_cast<Index>(nodes.size()) - 1;
    const auto first_end = [&](Index e) { return std::min(place[at(tail[e])], place[at(head[e])]); };
    for (Index e = 0; e < n_edges; ++e)
        if (tail[e] != head[e]) ++nodes[at(owner[at(first_end(e))]) + 1].entries;
    for (Index s = 0; s < count; ++s) nodes[at(s + 1)].entries += nodes[at(s)].entries;
    entries.resize(at(nodes.back().entries));
    std::vector<Index> next(at(count));
    for (Index s = 0; s < count; ++s) next[at(s)] = nodes[at(s)].entries;
    for (Index e = 0; e < n_edges; ++e) {
        if (tail[e] == head[e]) continue;
        const std::int32_t column = first_end(e), s = owner[at(column)];
        const std::int32_t row = std::max(place[at(tail[e])], place[at(head[e])]);
        entries[at(next[at(s)]++)] = {e, column - static_cast<std::int32_t>(nodes[at(s)].first), row};
    }
}

// Rows of a supernode: what its edges and its children reach beyond it.
bool SparseCholesky::Pattern::find_rows(const std::vector<std::int32_t>& parent, Index block,
                                        double max_cost) {
    const Index count = static_cast<Index>(nodes.size()) - 1;
    std::vector<std::int32_t> seen(at(n), -1), child(at(count), -1), sibling(at(count), -1);
    double cost = 0.0;
    for (Index s = 0; s < count; ++s) {
        Supernode& node = nodes[at(s)];
        const std::int32_t end = static_cast<std::int32_t>(node.first + node.columns);
        node.rows_at = static_cast<Index>(rows.size());
        const auto add = [&](std::int32_t row) {
            if (row < end || seen[at(row)] == s) return;
            seen[at(row)] = static_cast<std::int32_t>(s);
            rows.push_back(row);
        };
        for (Index e = node.entries; e < nodes[at(s + 1)].entries; ++e) add(entries[at(e)].row);
        for (Index c = child[at(s)]; c >= 0; c = sibling[at(c)])
            for (Index r = 0; r < nodes[at(c)].rows; ++r) add(rows[at(nodes[at(c)].rows_at + r)]);
        node.rows = static_cast<Index>(rows.size()) - node.rows_at;
        std::sort(rows.begin() + node.rows_at, rows.end());
        if (parent[at(s)] >= 0) {
            sibling[at(s)] = child[at(parent[at(s)])];
            child[at(parent[at(s)])] = static_cast<std::int32_t>(s);
        }
        const Index columns = node.columns * block;
        cost += front_cost(static_cast<double>(columns), static_cast<double>(columns + node.rows * block));
        if (cost > max_cost) return false;
    }
    return true;
}

// Links: runs of rows that one supernode eliminates, by that supernode.
void SparseCholesky::Pattern::find_links(const std::vector<std::int32_t>& owner) {
    const Index count = static_cast<Index>(nodes.size()) - 1;
    const auto for_runs = [&](const auto& action) {
        for (Index s = 0; s < count; ++s) {
            const Supernode& node = nodes[at(s)];
            const std::int32_t* const own = rows.data() + node.rows_at;
            for (Index r = 0, end; r < node.rows; r = end) {
                const std::int32_t to = owner[at(own[r])];
                for (end = r + 1; end < node.rows && owner[at(own[end])] == to;) ++end;
                action(s, to, r, end);
            }
        }
    };
    Index n_places = 0;
    for_runs([&](Index s, Index to, Index r, Index) {
        ++nodes[at(to + 1)].links;
        n_places += nodes[at(s)].rows - r;
    });
    std::vector<Index> next(at(count));
    for (Index s = 0; s < count; ++s) {
        next[at(s)] = nodes[at(s)].links;
        nodes[at(s + 1)].links += nodes[at(s)].links;
    }
    links.resize(at(nodes.back().links));
    for_runs([&](Index s, Index to, Index r, Index end) { links[at(next[at(to)]++)] = {s, r, end - r, 0}; });

    // Where the rows of the links and of the edges are in the supernode's own.
    places.resize(at(n_places));
    std::vector<std::int32_t> where(at(n));
    Index done = 0;
    for (Index s = 0; s < count; ++s) {
        const Supernode& node = nodes[at(s)];
        for (Index c = 0; c < node.columns; ++c) where[at(node.first + c)] = static_cast<std::int32_t>(c);
        for (Index r = 0; r < node.rows; ++r)
            where[at(rows[at(node.rows_at + r)])] = static_cast<std::int32_t>(node.columns + r);
        for (Index k = node.links; k < nodes[at(s + 1)].links; ++k) {
            Link& link = links[at(k)];
            const Supernode& from = nodes[at(link.from)];
            link.places = done;
            for (Index r = link.row; r < from.rows; ++r)
                places[at(done++)] = where[at(rows[at(from.rows_at + r)])];
        }
        for (Index e = node.entries; e < nodes[at(s + 1)].entries; ++e)
            entries[at(e)].row = where[at(entries[at(e)].row)];
    }
}

bool SparseCholesky::analyse(Index n, const std::int32_t* tail, const std::int32_t* head, Index n_edges,
                             Index block, double max_cost) {
    ready_ = false;
    pattern_.reset();
    cost_ = entries_ = 0.0;
    const auto found = std::make_shared<Pattern>();
    found->n = n;
    if (!found->find(tail, head, n_edges, block, max_cost)) return false;
    pattern_ = found;
    return lay_out(block, max_cost);
}

bool SparseCholesky::lay_out(Index block, double max_cost) {
    ready_ = false;
    block_ = block;
    cost_ = entries_ = 0.0;
    const Pattern& pattern = *pattern_;
    const Index b = block, count = static_cast<Index>(pattern.nodes.size()) - 1;
    fronts_.resize(at(count) + 1);
    Index panel = 0, tallest = 0;
    for (Index s = 0; s <= count; ++s) {
        const Supernode& node = pattern.nodes[at(s)];
        const Index columns = node.columns * b, size = columns + node.rows * b;
        const Index stride = (size + kPanelStep - 1) / kPanelStep * kPanelStep;
        fronts_[at(s)] = {panel,
                          node.first * b,
                          node.rows_at * b,
                          node.links,
                          node.entries,
                          static_cast<std::int32_t>(columns),
                          static_cast<std::int32_t>(size),
                          static_cast<std::int32_t>(stride)};
        panel += stride * columns;
        tallest = std::max(tallest, stride);
        cost_ += front_cost(static_cast<double>(columns), static_cast<double>(size));
        entries_ += static_cast<double>(columns * size);
    }
    if (cost_ > max_cost) return false;
    if (panels_.size() != panel + 2 * kPanelStep) panels_ = Buffer(panel + 2 * kPanelStep);
    updates_.resize(pattern.links.size());
    for (std::size_t k = 0; k < pattern.links.size(); ++k) {
        const Link& link = pattern.links[k];
        const Front& from = fronts_[at(link.from)];
        const Index row = link.row * b;
        updates_[k] = {from.panel + from.columns + row,
                       link.places * b,
                       from.stride,
                       from.columns,
                       static_cast<std::int32_t>(from.size - from.columns - row),
                       static_cast<std::int32_t>(link.width * b)};
    }
    if (b > 1) {
        spread(pattern.rows, b, wide_rows_);
        spread(pattern.places, b, wide_places_);
    }
    scratch_.resize(at((pattern.n * b + tallest) * kRightSides));
    return true;
}

FrontPlan SparseCholesky::plan() const {
    const bool wide = block_ > 1;
    return {static_cast<Index>(fronts_.size()) - 1,
            block_,
            fronts_.data(),
            updates_.data(),
            pattern_->entries.data(),
            (wide ? wide_places_ : pattern_->places).data(),
            (wide ? wide_rows_ : pattern_->rows).data(),
            pattern_->order.data()};
}

void SparseCholesky::factor(const double* diagonal, const double* off) {
    front_kernels().factor(plan(), diagonal, off, panels_.data());
    ready_ = true;
}

void SparseCholesky::solve(double* v, Index columns) const {
    front_kernels().solve(plan(), panels_.data(), v, columns, scratch_.data());
}

}  // namespace fusionopt
