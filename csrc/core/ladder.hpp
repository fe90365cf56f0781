// Components along a ladder of margins, from one pass over the edges.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/coupling.hpp"

namespace fusionopt {

class Ladder {
  public:
    Ladder(Index n_nodes, double lam) : sets_(n_nodes) {
        for (int k = 0; k < kRungs; ++k) bounds_[static_cast<std::size_t>(k)] = lam * (1.0 + kMargins[k]);
    }
    void add(std::int32_t i, std::int32_t j, double norm) {
        if (norm <= bounds_[0]) {
            sets_.join(i, j);
            return;
        }
        if (!(norm <= bounds_[kRungs - 1])) return;
        std::size_t rung = 1;
        while (norm > bounds_[rung]) ++rung;
        if (sets_.find(i) != sets_.find(j)) waiting_[rung].emplace_back(i, j);
    }
    // Partitions from the finest margin to the coarsest, each once; `middle` is the index of the one at
    // margin 0.
    std::vector<Labels> partitions(Index& middle) {
        std::vector<Labels> out;
        Labels labels;
        Index last = -1;
        for (int k = 0; k < kRungs; ++k) {
            for (const auto& [i, j] : waiting_[static_cast<std::size_t>(k)]) sets_.join(i, j);
            const Index count = sets_.labels(labels);
            if (count != last) out.push_back(labels);
            last = count;
            if (k == kMarginZero) middle = static_cast<Index>(out.size()) - 1;
        }
        return out;
    }

  private:
    static constexpr int kRungs = static_cast<int>(std::size(kMargins));
    UnionFind sets_;
    std::array<double, kRungs> bounds_{};
    std::array<std::vector<std::pair<std::int32_t, std::int32_t>>, kRungs> waiting_;
};

}  // namespace fusionopt
