// Components along a ladder of margins, from one pass over the edges.
#pragma once

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "core/coupling.hpp"

namespace fusionopt {

class Ladder {
  public:
    // Rungs at the given norms, ascending.
    Ladder(Index n_nodes, std::vector<double> bounds)
        : sets_(n_nodes), bounds_(std::move(bounds)), waiting_(bounds_.size()) {}
    Ladder(Index n_nodes, double lam)
        : Ladder(n_nodes, std::vector<double>(std::begin(kMargins), std::end(kMargins))) {
        for (double& bound : bounds_) bound = lam * (1.0 + bound);
    }
    double longest() const { return bounds_.back(); }  // what add() leaves out is longer
    void add(std::int32_t i, std::int32_t j, double norm) {
        if (norm <= bounds_[0]) {
            sets_.join(i, j);
            return;
        }
        if (!(norm <= bounds_.back())) return;
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
        for (std::size_t k = 0; k < bounds_.size(); ++k) {
            for (const auto& [i, j] : waiting_[k]) sets_.join(i, j);
            const Index count = sets_.labels(labels);
            if (count != last) out.push_back(labels);
            last = count;
            if (static_cast<int>(k) == kMarginZero) middle = static_cast<Index>(out.size()) - 1;
        }
        return out;
    }

  private:
    UnionFind sets_;
    std::vector<double> bounds_;
    std::vector<std::vector<std::pair<std::int32_t, std::int32_t>>> waiting_;
};

}  // namespace fusionopt
