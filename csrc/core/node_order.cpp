#include "core/node_order.hpp"

#include <algorithm>

namespace fusionopt {

namespace {
constexpr Index kParts = 4;       // that a search is cut into
constexpr Index kSmallest = 256;  // nodes of a part that is not cut any more
std::size_t at(Index k) { return static_cast<std::size_t>(k); }
}  // namespace

std::vector<std::int32_t> local_order(Index n_nodes, const std::int32_t* tail, const std::int32_t* head,
                                      Index n_edges) {
    std::vector<Index> start(at(n_nodes + 1), 0);
    for (Index e = 0; e < n_edges; ++e) {
        ++start[at(tail[e] + 1)];
        ++start[at(head[e] + 1)];
    }
    for (Index i = 0; i < n_nodes; ++i) start[at(i + 1)] += start[at(i)];
    std::vector<std::int32_t> neighbour(at(2 * n_edges));
    {
        std::vector<Index> next(start.begin(), start.end() - 1);
        for (Index e = 0; e < n_edges; ++e) {
            neighbour[at(next[at(tail[e])]++)] = head[e];
            neighbour[at(next[at(head[e])]++)] = tail[e];
        }
    }

    // order[first .. last) are the nodes of a part; its breadth-first search begins at order[first].
    struct Part {
        Index first, last;
        std::int32_t name;
    };
    std::vector<std::int32_t> order(at(n_nodes)), found(at(n_nodes)), name(at(n_nodes), 0);
    for (Index i = 0; i < n_nodes; ++i) order[at(i)] = static_cast<std::int32_t>(i);
    std::int32_t names = 0;
    const auto search = [&](const Part& part) {
        // A node found gets a name that no part has, so that it is not found again.
        const std::int32_t seen = ++names;
        Index end = 0, done = 0;
        for (Index k = part.first; k < part.last; ++k) {
            if (name[at(order[at(k)])] == seen) continue;
            name[at(order[at(k)])] = seen;
            found[at(end++)] = order[at(k)];
            for (; done < end; ++done)
                for (Index p = start[at(found[at(done)])]; p < start[at(found[at(done)] + 1)]; ++p) {
                    const std::int32_t other = neighbour[at(p)];
                    if (name[at(other)] != part.name) continue;
                    name[at(other)] = seen;
                    found[at(end++)] = other;
                }
        }
        std::copy_n(found.begin(), end, order.begin() + part.first);
        return seen;
    };

    std::vector<Part> parts{{0, n_nodes, 0}};
    // The last node found is an end of the graph: the search that counts begins there.
    parts[0].name = search(parts[0]);
    std::swap(order.front(), order.back());
    while (!parts.empty()) {
        const Part part = parts.back();
        parts.pop_back();
        const std::int32_t seen = search(part);
        if (part.last - part.first <= kSmallest) continue;
        // A part begins next to the one before it.
        for (Index k = kParts; k-- > 0;) {
            const Index first = part.first + (part.last - part.first) * k / kParts,
                        last = part.first + (part.last - part.first) * (k + 1) / kParts;
            parts.push_back({first, last, k > 0 ? ++names : seen});
            if (k > 0)
                for (Index p = first; p < last; ++p) name[at(order[at(p)])] = names;
        }
    }
    return order;
}

}  // namespace fusionopt
