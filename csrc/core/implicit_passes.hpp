// Whole passes over pairs of points, in float64 or float32, on the threads of one pool.
#pragma once

#include <functional>
#include <vector>

#include "core/implicit.hpp"
#include "core/linear.hpp"
#include "core/thread_pool.hpp"

namespace fusionopt {

// n points of d features, feature-major and padded with zeros as the kernels ask for.
struct Points {
    Index n = 0, d = 0, stride = 0;
    Vector v;

    Points() = default;
    Points(Index count, Index n_features)
        : n(count), d(n_features), stride(padded(count)), v(static_cast<std::size_t>(d * stride), 0.0) {}
    double& at(Index i, Index k) { return v[static_cast<std::size_t>(k * stride + i)]; }
    double at(Index i, Index k) const { return v[static_cast<std::size_t>(k * stride + i)]; }
    double squared_norm(Index i) const {
        double sum = 0.0;
        for (Index k = 0; k < d; ++k) sum += at(i, k) * at(i, k);
        return sum;
    }
};

// What a gradient pass leaves at each target; see PairPass.
struct FieldSums {
    Points force;
    Vector stiff, inside, energy;
};

// `poll` is called on the caller's thread between slabs of work, and may throw to end the pass.
class PairPasses {
  public:
    PairPasses(int n_threads, std::function<void()> poll);

    // Sources without `weight` weigh 1. The self pair, if any, is still in the sums.
    void gradient(const Points& targets, const Points& sources, const Vector* weight, double delta,
                  bool single, FieldSums& out);
    void product(const Points& targets, const Points& directions, const Points& sources,
                 const Points& source_directions, const Vector* weight, double delta, double curvature,
                 bool single, Points& out);
    // sum_{i<j} w_i w_j ||x_i - x_j||, each distance exact up to rounding.
    double length(const Points& x, const Vector& weight);

    // Ordered pairs visited so far.
    double pairs() const { return pairs_; }
    // Runs fn(first, last, worker) over runs of `chunk` items, polling now and then. `cost`: pairs an item.
    void over(Index n_items, double cost, Index chunk, const std::function<void(Index, Index, int)>& fn);

  private:
    template <class Real>
    const Real* narrowed(const Points& x, std::vector<float>& copy) const;

    ThreadPool pool_;
    std::function<void()> poll_;
    std::vector<float> copies_[4], narrow_weight_;
    std::vector<std::vector<float>> single_scratch_;
    std::vector<Vector> scratch_;
    double pairs_ = 0.0;
};

// The longest chain of additions in the sums of a float64 pass over n sources: the factor of its rounding.
double pass_chain(Index n);

}  // namespace fusionopt
