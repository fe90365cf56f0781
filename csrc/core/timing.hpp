// Times of the pair sweep beside the stream of the same array: what benchmarks/sweep.py prints.
#pragma once

#include <vector>

#include "core/types.hpp"

namespace fusionopt {

struct SweepTimes {
    std::vector<double> sweep;   // seconds of relaxed steps without duals, one an entry
    std::vector<double> check;   // with duals and penalty, as on check passes
    std::vector<double> stream;  // reading and writing an array of the state's size in place
    double bytes = 0.0;          // that a sweep moves: the state in and out
};

// Alternates the three, so that a busy machine is busy for all of them. Wall-clock time.
SweepTimes time_pair_sweep(Index n_nodes, Index n_features, bool narrow, int n_threads, int repeats);

}  // namespace fusionopt
