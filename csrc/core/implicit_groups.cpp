#include "core/implicit_groups.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace fusionopt {

namespace {

constexpr Index kGridFeatures = 3;

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

std::uint64_t mix(std::uint64_t h) {
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdULL;
    h ^= h >> 33;
    h *= 0xc4ceb9fe1a85ec53ULL;
    return h ^ (h >> 33);
}

using Cell = std::array<std::int64_t, kGridFeatures>;

std::uint64_t key_of(const Cell& cell) {
    std::uint64_t h = 0;
    for (const std::int64_t c : cell) h = mix(h + static_cast<std::uint64_t>(c) * 0x9e3779b97f4a7c15ULL);
    return h;
}

// Cells of side `side` to the leaders in them; open addressing, chains through `next`.
class Grid {
  public:
    explicit Grid(Index n) {
        std::size_t size = 64;
        while (size < 2 * at(n)) size *= 2;
        keys_.assign(size, 0);
        heads_.assign(size, -1);
    }
    std::int32_t head(std::uint64_t key) const { return heads_[slot(key)]; }
    // Returns the leader that was first in this cell, or -1.
    std::int32_t push(std::uint64_t key, std::int32_t leader) {
        const std::size_t s = slot(key);
        const std::int32_t before = heads_[s];
        keys_[s] = key;
        heads_[s] = leader;
        return before;
    }

  private:
    std::size_t slot(std::uint64_t key) const {
        std::size_t s = key & (keys_.size() - 1);
        while (heads_[s] >= 0 && keys_[s] != key) s = (s + 1) & (keys_.size() - 1);
        return s;
    }
    std::vector<std::uint64_t> keys_;
    std::vector<std::int32_t> heads_;
};

Groups alone(Index n) {
    Groups out;
    out.labels.resize(at(n));
    std::iota(out.labels.begin(), out.labels.end(), 0);
    out.count = n;
    return out;
}

}  // namespace

Groups group_points(const Points& x, const Vector& density, double reach, double most) {
    const Index n = x.n, d = x.d, grid_features = std::min(d, kGridFeatures);
    double extent = 0.0;
    for (Index k = 0; k < d; ++k)
        for (Index i = 0; i < n; ++i) extent = std::fmax(extent, std::fabs(x.at(i, k)));
    if (!(reach > 0.0) || !(extent / reach < 1e15)) return alone(n);
    std::vector<std::int32_t> order(at(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return density[at(a)] > density[at(b)]; });
    Vector rows(at(n * d));  // row-major: a distance touches one line
    for (Index i = 0; i < n; ++i)
        for (Index k = 0; k < d; ++k) rows[at(i * d + k)] = x.at(i, k);

    const double side = 2.0 * reach;
    Grid grid(n);
    std::vector<std::int32_t> next(at(n), -1);
    UnionFind sets(n);
    Index neighbours = 1;
    for (Index k = 0; k < grid_features; ++k) neighbours *= 3;
    double work = 0.0;
    std::vector<std::int32_t> close;
    for (const std::int32_t i : order) {
        const double* const xi = rows.data() + i * d;
        Cell home{};
        for (Index k = 0; k < grid_features; ++k) home[at(k)] = std::llround(std::floor(xi[k] / side));
        std::int32_t joined = -1;
        close.clear();
        for (Index c = 0; c < neighbours && joined < 0; ++c) {
            Cell cell = home;
            // Its own cell first: (c + middle) mod neighbours.
            Index code = (c + neighbours / 2) % neighbours;
            for (Index k = 0; k < grid_features; ++k, code /= 3) cell[at(k)] += code % 3 - 1;
            for (std::int32_t j = grid.head(key_of(cell)); j >= 0; j = next[at(j)]) {
                const double* const xj = rows.data() + j * d;
                double squared = 0.0;
                for (Index k = 0; k < d; ++k) squared += (xi[k] - xj[k]) * (xi[k] - xj[k]);
                work += 1.0;
                if (squared <= reach * reach) {
                    joined = j;
                    break;
                }
                if (squared <= side * side) close.push_back(j);
            }
        }
        if (work > most) return alone(n);
        if (joined >= 0) {
            sets.join(i, joined);
            continue;
        }
        for (const std::int32_t j : close) sets.join(i, j);
        next[at(i)] = grid.push(key_of(home), i);
    }
    Groups out;
    out.count = sets.labels(out.labels);
    return out;
}

}  // namespace fusionopt
