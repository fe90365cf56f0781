// The smooth part of a concave pair penalty: g(t; lam) = lam t - h(t) with h convex and smooth, h'(0) = 0.
//
// For Scad and Mcp alike
//     h'(t) = min(max(t - start, 0) / bend, lam),     start = lam, bend = a - 1   |   start = 0, bend =
//     gamma,
// so h'(t) = lam beyond the knee start + bend lam. The tilt of node i is the gradient of sum w h(||x_i -
// x_j||):
//     b_i = sum_j w_ij h'(t_ij) (x_i - x_j) / t_ij.
#pragma once

#include "core/penalty.hpp"
#include "core/types.hpp"

namespace fusionopt {

struct ConcaveTail {
    double lam = 0.0, start = 0.0, bend = 1.0;

    // Throws std::invalid_argument for penalties other than Scad and Mcp.
    ConcaveTail(const RadialPenalty& penalty, double lam);

    double slope(double t) const { return std::min(std::max(t - start, 0.0) / bend, lam); }
    double value(double t) const {  // g(t; lam)
        const double within = std::min(t, start + bend * lam), past = std::max(within - start, 0.0);
        return lam * within - past * (past / (2.0 * bend));
    }
};

// Complete graph, w_ij = r_i r_j: out_i = b_i / r_i, and returns sum_{i<j} w_ij g(t_ij). x and out are
// feature-major [n_features][stride] with stride = round_up(n_nodes); the padding of r must be zero, that of
// x finite. O(n_nodes^2 n_features) time, memory n_features * kLanes.
double tilt_complete(const ConcaveTail& tail, Index n_nodes, Index n_features, Index stride, const double* x,
                     const double* r, double* out);

// Edge list: out_i = b_i, row-major [n_nodes][n_features] like x. Returns sum_e w_e g(t_e).
double tilt_edges(const ConcaveTail& tail, Index n_edges, Index n_nodes, Index n_features,
                  const std::int32_t* tails, const std::int32_t* heads, const double* weights,
                  const double* x, double* out);

}  // namespace fusionopt
