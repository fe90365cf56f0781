// Small graphs of every kind that an ordering or a sparse factor may meet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace fusionopt {

struct TestGraph {
    std::string name;
    Index n;
    std::vector<std::int32_t> tail, head;

    Index n_edges() const { return static_cast<Index>(tail.size()); }
    void join(Index i, Index j) {
        tail.push_back(static_cast<std::int32_t>(i));
        head.push_back(static_cast<std::int32_t>(j));
    }
};

inline std::vector<TestGraph> test_graphs() {
    std::vector<TestGraph> graphs;
    const auto start = [&](const std::string& name, Index n) -> TestGraph& {
        graphs.push_back({name, n, {}, {}});
        return graphs.back();
    };
    start("one node", 1);
    start("no edges", 7);
    {
        TestGraph& path = start("path", 40);
        for (Index i = 0; i + 1 < 40; ++i) path.join((i * 7) % 40, ((i + 1) * 7) % 40);
    }
    {
        TestGraph& star = start("star", 60);
        for (Index i = 0; i < 60; ++i)
            if (i != 13) star.join(i, 13);
    }
    {
        // The centres have too many neighbours to be ordered with the others.
        TestGraph& stars = start("two stars of a thousand", 1000);
        for (Index i = 2; i < 1000; ++i) {
            stars.join(0, i);
            if (i % 3 != 0) stars.join(i, 1);
            if (i % 5 == 0) stars.join(i, i - 3 > 1 ? i - 3 : 1);
        }
    }
    {
        TestGraph& complete = start("complete", 41);
        for (Index i = 0; i < 41; ++i)
            for (Index j = i + 1; j < 41; ++j) complete.join(i, j);
    }
    {
        // Three cliques that share their last nodes: one wide front takes up others.
        TestGraph& cliques = start("cliques", 3 * 25 + 20);
        for (Index part = 0; part < 3; ++part)
            for (Index i = 0; i < (part > 0 ? 25 : 45); ++i)
                for (Index j = i + 1; j < 45; ++j)
                    cliques.join(i < 25 ? part * 25 + i : 50 + i, j < 25 ? part * 25 + j : 50 + j);
    }
    {
        TestGraph& twice = start("pieces with repeated edges and loops", 50);
        for (Index i = 0; i < 50; ++i)
            for (const Index step : {1, 2, 5})
                if (i / 10 == (i + step) / 10 && i + step < 50) {
                    twice.join(i, i + step);
                    if (i % 3 == 0) twice.join(i + step, i);
                    if (i % 7 == 0) twice.join(i, i);
                }
    }
    {
        TestGraph& grid = start("grid", 15 * 15);
        for (Index i = 0; i < 15; ++i)
            for (Index j = 0; j < 15; ++j) {
                const auto name = [](Index a, Index b) { return (a * 15 + b) * 7 % 225; };
                if (i + 1 < 15) grid.join(name(i, j), name(i + 1, j));
                if (j + 1 < 15) grid.join(name(i, j), name(i, j + 1));
                if (i + 1 < 15 && j + 1 < 15 && (i + j) % 3 == 0) grid.join(name(i, j), name(i + 1, j + 1));
            }
    }
    std::uint64_t state = 5;
    const auto draw = [&](Index below) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<Index>((state >> 33) % static_cast<std::uint64_t>(below));
    };
    for (const Index n : {5, 12, 30, 80, 150, 300})
        for (const Index share : {1, 2, 4}) {
            TestGraph& random = start("random " + std::to_string(n) + ", " + std::to_string(share), n);
            for (Index e = 0; e < n * share / 2; ++e) {
                // Mostly near neighbours, as in graphs of points.
                const Index i = draw(n), j = draw(4) == 0 ? draw(n) : std::min(n - 1, i + 1 + draw(4));
                if (i != j) random.join(std::min(i, j), std::max(i, j));
            }
        }
    return graphs;
}

}  // namespace fusionopt
