// Fronts against the fill found by eliminating one node after the other.

#include "core/elimination.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "graphs.hpp"
#include "harness.hpp"

using namespace fusionopt;

namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// By place in the order: the later places that each column fills.
std::vector<std::set<Index>> fill(const TestGraph& graph, const Elimination& found) {
    std::vector<Index> place(at(graph.n));
    for (Index k = 0; k < graph.n; ++k) place[at(found.order[at(k)])] = k;
    std::vector<std::set<Index>> columns(at(graph.n));
    for (std::size_t e = 0; e < graph.tail.size(); ++e) {
        const Index a = place[at(graph.tail[e])], b = place[at(graph.head[e])];
        if (a != b) columns[at(std::min(a, b))].insert(std::max(a, b));
    }
    for (auto& column : columns)
        for (const Index first : column)
            for (const Index second : column)
                if (second > first) columns[at(first)].insert(second);
    return columns;
}

Elimination ordered(const TestGraph& graph, double max_cost = kUnbounded) {
    Elimination found;
    CHECK(minimum_degree(graph.n, graph.tail.data(), graph.head.data(), graph.n_edges(), 1, max_cost, found));
    return found;
}

// Every front's fill lies in the nodes and the fill of its parent. Fill counted in full where `exact`.
void check_fronts(const TestGraph& graph, const Elimination& found, bool exact) {
    std::vector<std::int32_t> nodes = found.order;
    std::sort(nodes.begin(), nodes.end());
    for (Index i = 0; i < graph.n; ++i) CHECK_EQUAL(nodes[at(i)], i);
    const Index count = static_cast<Index>(found.rows.size());
    CHECK_EQUAL(static_cast<Index>(found.first.size()), count + 1);
    CHECK_EQUAL(static_cast<Index>(found.first.back()), graph.n);
    const auto columns = fill(graph, found);
    std::vector<std::set<Index>> rows(at(count));
    for (Index f = 0; f < count; ++f) {
        const Index end = found.first[at(f + 1)], parent = found.parent[at(f)];
        CHECK(found.first[at(f)] < end);
        for (Index k = found.first[at(f)]; k < end; ++k)
            for (const Index row : columns[at(k)])
                if (row >= end) rows[at(f)].insert(row);
        if (exact) CHECK_EQUAL(static_cast<Index>(rows[at(f)].size()), found.rows[at(f)]);
        if (rows[at(f)].empty()) continue;
        CHECK(parent > f);
        if (parent > f) {
            for (const Index row : rows[at(f)])
                if (row >= found.first[at(parent + 1)]) rows[at(parent)].insert(row);
            CHECK(*rows[at(f)].begin() >= found.first[at(parent)]);
        }
    }
}

}  // namespace

TEST(fronts_hold_the_fill_and_their_parents_take_it_up) {
    for (const TestGraph& graph : test_graphs()) {
        const bool crowded = graph.name.find("star") != std::string::npos;
        const Elimination found = ordered(graph);
        check_fronts(graph, found, !crowded);
        const Elimination joined = join_fronts(found);
        check_fronts(graph, joined, false);
        CHECK(joined.rows.size() <= found.rows.size());
    }
}

TEST(an_order_of_least_degrees_has_little_fill) {
    for (const TestGraph& graph : test_graphs()) {
        Index entries = 0;
        for (const auto& column : fill(graph, ordered(graph))) entries += static_cast<Index>(column.size());
        if (graph.name == "path") CHECK_EQUAL(entries, 39);
        if (graph.name == "star") CHECK_EQUAL(entries, 59);
        if (graph.name == "complete") CHECK_EQUAL(entries, 41 * 40 / 2);
        if (graph.name == "cliques") CHECK_EQUAL(entries, 3 * (25 * 24 / 2 + 25 * 20) + 20 * 19 / 2);
        if (graph.name == "grid") CHECK(entries < 1700);  // row by row: 225 * 15
    }
}

TEST(an_order_that_costs_too_much_is_given_up) {
    for (const TestGraph& graph : test_graphs()) {
        if (graph.name != "grid") continue;
        double cost = 0.0;
        const Elimination found = ordered(graph);
        for (std::size_t f = 0; f < found.rows.size(); ++f) {
            const double columns = found.first[f + 1] - found.first[f];
            cost += front_cost(columns, columns + found.rows[f]);
        }
        Elimination again;
        const auto within = [&](double most) {
            return minimum_degree(graph.n, graph.tail.data(), graph.head.data(), graph.n_edges(), 1, most,
                                  again);
        };
        CHECK(within(1.001 * cost));
        CHECK(again.order == found.order);
        CHECK(!within(0.999 * cost));
    }
}

TEST(the_cost_of_a_front_counts_its_multiplications) {
    // Columns of 5, 4 and 3 entries: 25, 16 and 9 products, half of them by symmetry.
    CHECK_EQUAL(front_cost(3.0, 5.0), 25.0);
}
