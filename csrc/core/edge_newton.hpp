// The second stage on edge lists: semismooth Newton on the augmented Lagrangian (Sun, Toh and Yuan 2021,
// algorithms 1 and 2), entered with duals that are nearly right. Every Newton system is solved by a sparse
// factor, and the duality gap is the stop test of both loops.
#pragma once

#include <cstdint>
#include <limits>

#include "core/loss.hpp"
#include "core/sparse_cholesky.hpp"

namespace fusionopt {

struct EdgeNewton {
    const QuadraticLoss& loss;  // no singular H_i
    double lam = 0.0;
    const std::int32_t* tail = nullptr;
    const std::int32_t* head = nullptr;
    const double* weight = nullptr;
    Index n_edges = 0;
    double target = 0.0;    // gap to reach
    double rounding = 0.0;  // rounding of a gap, relative to the terms it is made of
    double budget = std::numeric_limits<double>::infinity();  // edges visited
};

struct NewtonReport {
    Index steps = 0;        // 0: not tried
    double work = 0.0;      // edges visited
    bool improved = false;  // the gap is lower than it was
};

inline constexpr double kNewtonSteps = 15.0;  // that it typically takes

// Edges visited in the time of a Newton step, `factor` laid out for the features of the loss.
double newton_step_work(const SparseCholesky& factor, Index n_edges, Index n_features);
// The largest factor (its multiplications) of a Newton step of so much work.
double newton_factor_cost(double work, Index n_edges, Index n_features);

// minimise over x, for duals z per unit weight and a growing sigma,
//     sum_i f_i(x_i) + sum_e w_e h(z_e + sigma (x_i - x_j)) / sigma,
//     h(t) = ||t||^2 / 2 inside the ball of radius lam, lam ||t|| - lam^2 / 2 outside,
// then z_e <- P(t_e), t_e = z_e + sigma (x_i - x_j). `t` [n_edges][n_features] holds duals on entry
// (projected here) and the last t on return; sigma likewise.
NewtonReport edge_newton(const EdgeNewton& problem, SparseCholesky& factor, Vector& x, Vector& t,
                         double& sigma);

}  // namespace fusionopt
