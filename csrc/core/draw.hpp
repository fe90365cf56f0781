// Seeded random subsets; the same draws on every system (the distributions of <random> differ between
// libraries, its engines do not).
#pragma once

#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "core/types.hpp"

namespace fusionopt {

// Subsets of {0, ..., size - 1} of a fixed number of members, uniform without replacement. O(count) a draw.
class SubsetDraw {
  public:
    SubsetDraw(Index size, Index count) : order_(static_cast<std::size_t>(size)), count_(count) {
        std::iota(order_.begin(), order_.end(), Index{0});
    }

    Index size() const { return static_cast<Index>(order_.size()); }
    Index count() const { return count_; }

    // The first count() entries of order() are the new subset.
    template <class Engine>
    const std::vector<Index>& operator()(Engine& engine) {
        for (Index k = 0; k < count_; ++k) {
            const auto left = static_cast<std::uint64_t>(size() - k);
            const auto pick = k + static_cast<Index>(below(engine, left));
            std::swap(order_[static_cast<std::size_t>(k)], order_[static_cast<std::size_t>(pick)]);
        }
        return order_;
    }

  private:
    // Uniform on 0, ..., n - 1: draws from the incomplete last run of n are thrown away.
    template <class Engine>
    static std::uint64_t below(Engine& engine, std::uint64_t n) {
        static_assert(Engine::min() == 0 && Engine::max() == UINT64_MAX);
        const std::uint64_t tail = (UINT64_MAX % n + 1) % n, last = UINT64_MAX - tail;
        std::uint64_t value = engine();
        while (value > last) value = engine();
        return value % n;
    }

    std::vector<Index> order_;
    Index count_;
};

}  // namespace fusionopt
