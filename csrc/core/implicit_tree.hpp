// Sums over all pairs to a few digits in O(n log n), for up to three features: what Newton's linear systems
// and the search far from the optimum need. Nothing from here enters a bound.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/implicit_passes.hpp"

namespace fusionopt {

// Balanced kd-tree of the points. The sources of a leaf are the points of near leaves and, for cells far away
// relative to their size (and on one side of delta), stand-ins: the weighted mean for products; for gradients
// d + 1 points with the cell's mean and covariance.
class PairTree {
  public:
    static constexpr Index kMostFeatures = 3;

    PairTree(PairPasses& passes, const Points& x, const Vector& weight, double delta);

    // As PairPasses::gradient and ::product of the points on themselves, in float32.
    void gradient(double openness, FieldSums& out);
    void product(const Points& p, double openness, double curvature, Points& out);

  private:
    static constexpr Index kLeaf = 32;
    using Vertex = std::array<double, kMostFeatures>;
    struct Node {
        Index begin = 0, end = 0;
        std::int32_t left = -1, right = -1;  // both -1: a leaf
        double radius = 0.0, weight = 0.0;
        Vertex centre{};
        std::array<Vertex, kMostFeatures + 1> stand_ins{};
    };
    // What a leaf interacts with: nodes as their stand-ins, leaves as their points.
    struct Lists {
        double openness = -1.0;
        double mean = 0.0;  // sources a leaf
        std::vector<std::vector<std::int32_t>> far, near;
    };

    std::int32_t build(Index begin, Index end);
    void measure(Node& node);
    void collect(Lists& lists, double openness, Index stand_ins);
    template <class Fill, class Run>
    void over_leaves(const Lists& lists, const Fill& fill, const Run& run);

    PairPasses& passes_;
    Index n_, d_;
    double delta_;
    std::vector<std::int32_t> order_;  // place in the tree -> point
    std::vector<std::int32_t> leaves_;
    std::vector<Node> nodes_;  // children after their parent
    Points sorted_;
    Vector weight_;
    Index stride_;
    std::vector<float> x_, w_;
    Lists for_product_, for_gradient_;
};

}  // namespace fusionopt
