// The second stage: it ends where the iteration does, with duals that prove it, from any scale of weights.

#include "core/edge_newton.hpp"

#include "core/admm.hpp"
#include "harness.hpp"
#include "problems.hpp"

using namespace fusionopt;
using namespace problems;

namespace {

constexpr double kEnough = 1e12;

// A ring with chords: every node has four neighbours.
Edges ring(Index m, double weight) {
    Edges out;
    for (Index i = 0; i < m; ++i)
        for (Index j = i + 1; j < m; ++j) {
            const Index gap = std::min(j - i, m - (j - i));
            if (gap <= 2) {
                out.tail.push_back(static_cast<std::int32_t>(i));
                out.head.push_back(static_cast<std::int32_t>(j));
                out.weight.push_back(weight / static_cast<double>(gap));
            }
        }
    return out;
}

}  // namespace

TEST(the_second_stage_ends_where_the_iteration_does) {
    const Index m = 60, d = 2;
    for (const double weight : {1e-3, 1.0, 1e3}) {
        for (const double share : {0.05, 0.3, 1.0}) {
            const double lam = share / weight;
            const QuadraticLoss loss = distance_loss(m, d, normal(at(m * d), 3), uniform(at(m), 0.5, 2.0, 4));
            AdmmOptions sharp;
            sharp.eps_rel = 1e-13;
            Admm iterated(loss, listed(m, d, ring(m, weight)), lam, sharp);
            CHECK(iterated.run(100000));
            Admm newton(loss, listed(m, d, ring(m, weight)), lam, sharp);
            newton.run(30);
            const Certificate before = newton.last();
            const NewtonReport report = newton.refine(kEnough);
            const Certificate after = newton.last();
            CHECK(report.steps > 0);
            CHECK(after.gap < 1e-3 * before.gap || after.gap <= 1e-12 * after.objective);
            CHECK_NEAR(after.objective, iterated.last().objective, 1e-11 * after.objective);
            // The iteration goes on from there without losing what was won.
            newton.run(10);
            CHECK(newton.last().gap <= 1e-10 * after.objective);
        }
    }
}

TEST(dense_losses_take_the_second_stage_too) {
    const Index m = 30;
    const QuadraticLoss loss = dense_loss(m, 7);
    const Index d = loss.n_features;
    AdmmOptions sharp;
    sharp.eps_rel = 1e-13;
    Admm iterated(loss, listed(m, d, ring(m, 1.0)), 0.05, sharp);
    CHECK(iterated.run(100000));
    Admm newton(loss, listed(m, d, ring(m, 1.0)), 0.05, sharp);
    newton.run(30);
    CHECK(newton.refine(kEnough).steps > 0);
    CHECK_NEAR(newton.last().objective, iterated.last().objective,
               1e-11 * (1.0 + std::abs(iterated.last().objective)));
}

TEST(a_budget_that_is_too_small_leaves_everything_as_it_is) {
    const Index m = 60, d = 2;
    const QuadraticLoss loss = distance_loss(m, d, normal(at(m * d), 3), Vector(at(m), 1.0));
    Admm admm(loss, listed(m, d, ring(m, 1.0)), 0.3, {});
    admm.run(10);
    const Vector x = admm.x();
    CHECK_EQUAL(admm.refine(1.0).steps, 0);
    for (std::size_t k = 0; k < x.size(); ++k) CHECK_EQUAL(admm.x()[k], x[k]);
    Admm complete_one(loss, complete(m, d, 1.0, Vector(at(m), 1.0)), 0.01, {});
    complete_one.run(10);
    CHECK_EQUAL(complete_one.refine(kEnough).steps, 0);
}
