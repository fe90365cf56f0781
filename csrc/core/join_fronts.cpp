#include <algorithm>

#include "core/elimination.hpp"

namespace fusionopt {

namespace {

using Front = std::int32_t;

constexpr double kNarrow = 4.0;           // columns
constexpr double kZeros[2] = {0.3, 0.1};  // share of zeros that a narrow front, another front may bring

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

double trapezoid(double columns, double rows) { return columns * (rows + 0.5 * (columns + 1.0)); }

// The front that each became part of, itself if none.
std::vector<Front> choose(const Elimination& fronts) {
    const Index count = static_cast<Index>(fronts.rows.size());
    std::vector<Front> joined(at(count)), next(at(count), -1), child(at(count), -1), children;
    std::vector<double> columns(at(count)), zeros(at(count), 0.0);
    for (Index f = count - 1; f >= 0; --f) {
        joined[at(f)] = static_cast<Front>(f);
        columns[at(f)] = static_cast<double>(fronts.first[at(f + 1)] - fronts.first[at(f)]);
        const Front parent = fronts.parent[at(f)];
        if (parent < 0) continue;
        next[at(f)] = child[at(parent)];
        child[at(parent)] = static_cast<Front>(f);
    }
    for (Index p = 0; p < count; ++p) {
        children.clear();
        for (Front c = child[at(p)]; c >= 0; c = next[at(c)]) children.push_back(c);
        std::stable_sort(children.begin(), children.end(),
                         [&](Front a, Front b) { return fronts.rows[at(a)] > fronts.rows[at(b)]; });
        const double rows = fronts.rows[at(p)];
        for (const Front c : children) {
            const double more = columns[at(c)] * (columns[at(p)] + rows - fronts.rows[at(c)]);
            const double lost = zeros[at(p)] + zeros[at(c)] + more;
            const double total = trapezoid(columns[at(p)] + columns[at(c)], rows);
            if (more > 0.0 && lost > kZeros[columns[at(c)] < kNarrow ? 0 : 1] * total) continue;
            joined[at(c)] = static_cast<Front>(p);
            columns[at(p)] += columns[at(c)];
            zeros[at(p)] = lost;
        }
    }
    for (Index f = count - 1; f >= 0; --f) joined[at(f)] = joined[at(joined[at(f)])];
    return joined;
}

}  // namespace

Elimination join_fronts(const Elimination& fronts) {
    const Index count = static_cast<Index>(fronts.rows.size());
    const std::vector<Front> joined = choose(fronts);
    const auto above = [&](Index f) {
        const Front parent = fronts.parent[at(f)];
        return parent < 0 ? Front{-1} : joined[at(parent)];
    };
    // In post-order a front comes at the end of the places of its subtree; these are cut from the end of its
    // parent's.
    std::vector<Front> size(at(count), 0), end(at(count)), place(at(count), -1);
    Front left = 0;
    for (Index f = 0; f < count; ++f) {
        if (joined[at(f)] != f) continue;
        ++size[at(f)];
        ++left;
        if (above(f) >= 0) size[at(above(f))] += size[at(f)];
    }
    Elimination out;
    out.parent.resize(at(left));
    out.rows.resize(at(left));
    out.first.assign(at(left) + 1, 0);
    for (Index f = count - 1; f >= 0; --f) {
        if (joined[at(f)] != f) continue;
        Front& from = above(f) >= 0 ? end[at(above(f))] : left;
        place[at(f)] = end[at(f)] = from - 1;
        from -= size[at(f)];
        out.rows[at(place[at(f)])] = fronts.rows[at(f)];
        out.parent[at(place[at(f)])] = above(f) >= 0 ? place[at(above(f))] : -1;
    }
    for (Index f = 0; f < count; ++f) {
        place[at(f)] = place[at(joined[at(f)])];
        out.first[at(place[at(f)]) + 1] += fronts.first[at(f + 1)] - fronts.first[at(f)];
    }
    for (std::size_t s = 0; s < out.rows.size(); ++s) out.first[s + 1] += out.first[s];
    out.order.resize(fronts.order.size());
    std::vector<Front> next(out.first);
    for (Index f = 0; f < count; ++f)
        for (Front k = fronts.first[at(f)]; k < fronts.first[at(f + 1)]; ++k)
            out.order[at(next[at(place[at(f)])]++)] = fronts.order[at(k)];
    return out;
}

}  // namespace fusionopt
