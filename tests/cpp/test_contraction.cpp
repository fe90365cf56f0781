// Proven clusters in the place of their nodes: same optimum, same certificate, and only sets that are fused.

#include "core/admm.hpp"
#include "harness.hpp"
#include "problems.hpp"

using namespace fusionopt;
using namespace problems;

namespace {

// Three groups in the plane, far apart; node weights r, f_i = r_i / 2 ||x - a_i||^2.
struct Groups {
    Index m = 45, d = 2;
    Vector a, r;
    explicit Groups(double noise) : a(normal(90, 4)), r(uniform(45, 0.5, 2.0, 5)) {
        for (Index i = 0; i < m; ++i)
            for (Index k = 0; k < d; ++k) {
                double& value = a[at(i * d + k)];
                value = noise * value + (i % 3 == k ? 8.0 : 0.0);
            }
    }
    Admm solver(double lam, double eps_rel = 1e-9) const {
        AdmmOptions options;
        options.eps_rel = eps_rel;
        return Admm(distance_loss(m, d, a, r), complete(m, d, 1.0, r), lam, options);
    }
};

Vector duals_of(Admm& admm, Index size) {
    Vector out(at(size));
    admm.duals(out.data());
    return out;
}

}  // namespace

TEST(a_contracted_problem_has_the_same_solution) {
    const Groups groups(0.3);
    Admm plain = groups.solver(0.06), contracted = groups.solver(0.06);
    CHECK(plain.run(20000));
    CHECK(plain.finish(0.25).proven);
    contracted.run(10);
    CHECK(contracted.contract(false, 20));
    CHECK(contracted.run(20000));
    CHECK(contracted.finish(0.25).proven);
    CHECK_EQUAL(contracted.n_clusters(), plain.n_clusters());
    CHECK(contracted.labels() == plain.labels());
    for (Index k = 0; k < groups.m * groups.d; ++k)
        CHECK_NEAR(contracted.x()[at(k)], plain.x()[at(k)], 1e-10);
}

TEST(duals_of_a_contracted_problem_are_the_ones_it_was_judged_with) {
    const Groups groups(0.3);
    const double lam = 0.06;
    Admm admm = groups.solver(lam, 1e-14);
    admm.run(10);
    CHECK(admm.contract(false, 20));
    admm.run(3);  // far from done
    const Vector x = admm.x();
    const Certificate within = admm.certify(x);
    const Vector sums = admm.dual_sums();
    const Vector v = duals_of(admm, groups.m * (groups.m - 1) / 2 * groups.d);
    const Certificate after = admm.certify(x);
    CHECK(within.gap > 1e-9 * within.objective);
    CHECK_NEAR(within.gap, after.gap, 1e-12 * within.objective);
    CHECK_NEAR(within.objective, after.objective, 1e-12 * within.objective);
    // The row sums, from the pairs; and no pair leaves its ball.
    Vector rows(sums.size(), 0.0);
    std::size_t e = 0;
    for (Index i = 0; i < groups.m; ++i)
        for (Index j = i + 1; j < groups.m; ++j) {
            double squared = 0.0;
            for (Index k = 0; k < groups.d; ++k, ++e) {
                rows[at(i * groups.d + k)] += v[e];
                rows[at(j * groups.d + k)] -= v[e];
                squared += v[e] * v[e];
            }
            CHECK(std::sqrt(squared) <= lam * groups.r[at(i)] * groups.r[at(j)] * (1.0 + 1e-15));
        }
    for (std::size_t k = 0; k < rows.size(); ++k) CHECK_NEAR(rows[k], sums[k], 1e-11);
}

TEST(nothing_is_contracted_that_is_not_fused) {
    const Groups groups(0.3);
    for (const double lam : {0.001, 0.005, 0.01, 0.015, 0.02, 0.03}) {
        Admm plain = groups.solver(lam, 1e-12), admm = groups.solver(lam, 1e-12);
        plain.run(20000);
        CHECK(plain.finish(0.25).proven);
        admm.run(15);
        if (!admm.contract(true, 20)) continue;
        const Index left = admm.n_groups();
        CHECK(left >= plain.n_clusters());
        admm.run(20000);
        CHECK(admm.finish(0.25).proven);
        CHECK(admm.labels() == plain.labels());
    }
}

TEST(cores_serve_larger_lams_and_not_smaller_ones) {
    const Groups groups(0.3);
    Admm admm = groups.solver(0.06);
    admm.run(10);
    CHECK(admm.contract(false, 20));
    CHECK(admm.n_groups() < groups.m);
    admm.set_lam(0.08);
    CHECK(admm.n_groups() < groups.m);
    CHECK(admm.run(20000));
    CHECK(admm.finish(0.25).proven);
    Admm cold = groups.solver(0.08);
    cold.run(20000);
    CHECK(cold.finish(0.25).proven);
    CHECK(admm.labels() == cold.labels());
    CHECK_NEAR(admm.last().objective, cold.last().objective, 1e-8 * cold.last().objective);
    admm.set_lam(0.01);
    CHECK_EQUAL(admm.n_groups(), groups.m);
    CHECK(admm.run(20000));
    CHECK(admm.finish(0.25).proven);
    Admm low = groups.solver(0.01);
    low.run(20000);
    low.finish(0.25);
    CHECK(admm.labels() == low.labels());
}

TEST(losses_of_other_shapes_are_left_alone) {
    const Index m = 20;
    const Vector ones(at(m), 1.0);
    Admm dense(dense_loss(m, 2), complete(m, 2, 0.1, ones), 0.3, {});
    dense.run(20);
    CHECK(!dense.contract(true, 20));
    // h_i / r_i differs from node to node: what a set needs inside depends on where it lies.
    Admm uneven(distance_loss(m, 2, normal(at(2 * m), 1), uniform(at(m), 0.5, 2.0, 2)),
                complete(m, 2, 0.1, ones), 3.0, {});
    uneven.run(20);
    CHECK(!uneven.contract(true, 20));
}
