// Groups of points that lie close together: candidates for the clusters of a smoothed solution.
#pragma once

#include <cstdint>
#include <vector>

#include "core/implicit_passes.hpp"

namespace fusionopt {

struct Groups {
    std::vector<std::int32_t> labels;  // 0 .. count - 1, by first appearance
    Index count = 0;
};

// Points in the order of falling `density` join the first leader within `reach` or become leaders; leaders
// within twice that are one group. Any partition is valid to its caller: what it is worth, the gap tells. The
// search is by a hash grid on the first three features. Gives every point its own group when the search would
// take more than about `most` distances.
Groups group_points(const Points& x, const Vector& density, double reach, double most);

}  // namespace fusionopt
