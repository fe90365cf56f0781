// Radial penalties: slopes against differences of values, every prox against a grid, jumps at the smaller z.

#include "core/penalty.hpp"

#include <vector>

#include "harness.hpp"

using namespace fusionopt;

namespace {

const std::vector<RadialPenalty> kPenalties = {
    {PenaltyKind::kL2Norm, 0.0, 0.0},       {PenaltyKind::kSquaredL2, 0.0, 0.0},
    {PenaltyKind::kScad, 3.7, 0.0},         {PenaltyKind::kScad, 2.1, 0.0},
    {PenaltyKind::kSmoothedScad, 3.7, 0.3}, {PenaltyKind::kSmoothedScad, 2.5, 4.0},
    {PenaltyKind::kMcp, 3.0, 0.0},          {PenaltyKind::kMcp, 0.7, 0.0}};

}  // namespace

TEST(the_derivative_is_the_slope_of_the_value) {
    for (const RadialPenalty& g : kPenalties)
        for (const double lam : {0.0, 0.4, 1.3})
            for (double t = 0.0; t < 8.0; t += 0.01) {
                const double slope = (g.value(t + 0.01, lam) - g.value(t, lam)) / 0.01;
                // Curvatures are at most 1 / 0.3 * 1.3 here, and a knee may lie inside the step.
                CHECK_NEAR(slope, g.derivative(t + 0.005, lam), 0.05);
            }
}

TEST(the_prox_is_no_worse_than_a_grid) {
    for (const RadialPenalty& g : kPenalties)
        for (const double lam : {0.0, 0.4, 1.3})
            for (const double step : {0.0, 0.2, 0.7, 1.1, 2.0, 2.7, 5.0, 30.0}) {
                const RadialProx prox(g, lam, step);
                double previous = 0.0;
                for (double t = 0.0; t < 12.0; t += 0.07) {
                    const double z = prox(t);
                    CHECK(z >= previous && z <= t);
                    previous = z;
                    if (step == 0.0) {
                        CHECK_EQUAL(z, t);
                        continue;
                    }
                    const auto objective = [&](double s) {
                        return g.value(s, lam) + (s - t) * (s - t) / (2.0 * step);
                    };
                    double best = objective(t);
                    for (int k = 0; k < 200; ++k) best = std::min(best, objective(t * k / 200.0));
                    CHECK(objective(z) <= best * (1.0 + 1e-13) + 1e-15);
                }
            }
}

TEST(a_tie_goes_to_the_smaller_minimiser) {
    const RadialProx scad({PenaltyKind::kScad, 3.0, 0.0}, 2.0, 16.0);  // jumps at lam sqrt((a + 1) step) = 16
    CHECK_EQUAL(scad(16.0), 0.0);
    CHECK_EQUAL(scad(16.5), 16.5);
    const RadialProx mcp({PenaltyKind::kMcp, 2.0, 0.0}, 0.5, 8.0);  // jumps at lam sqrt(gamma step) = 2
    CHECK_EQUAL(mcp(2.0), 0.0);
    CHECK_EQUAL(mcp(2.5), 2.5);
}
