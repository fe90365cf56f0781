// An order of the nodes that keeps neighbours near each other in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.hpp"

namespace fusionopt {

// order[k]: the node that comes k-th. Breadth-first order from one end of the graph is cut in the middle, and
// so are its halves, until a part fits the first cache: neighbours then share a part of every size as often
// as the graph lets them. Time O(n_edges log n_nodes), memory O(n_edges). Deterministic.
std::vector<std::int32_t> local_order(Index n_nodes, const std::int32_t* tail, const std::int32_t* head,
                                      Index n_edges);

}  // namespace fusionopt
