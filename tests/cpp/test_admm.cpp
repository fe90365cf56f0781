// Whole solves: closed forms, certificates, and the same problem told in two ways. Run once for each
// instruction set.

#include "core/admm.hpp"

#include <limits>

#include "harness.hpp"
#include "problems.hpp"

using namespace fusionopt;
using namespace problems;

namespace {

void solve(Admm& admm, Index limit = 20000) {
    CHECK(admm.run(limit));
    CHECK(admm.finish(0.25).accepted);
}

Vector ones(Index n) { return Vector(at(n), 1.0); }

// A finite gap, inside the tolerance that the options ask for.
void check_certified(const Certificate& c, double eps_rel) {
    CHECK(std::isfinite(c.gap));
    CHECK(c.gap >= 0.0);
    CHECK(c.gap <= eps_rel * std::max(std::abs(c.objective), std::abs(c.dual_objective)) ||
          c.gap <= c.rounding);
    CHECK_NEAR(c.objective - c.dual_objective, c.gap, 1e-14 * std::abs(c.objective));
}

}  // namespace

// min 1/2 x^2 + 1/2 (y - 2)^2 + lam |x - y|: x = lam, y = 2 - lam until both are 1.
TEST(two_nodes_meet_in_the_middle) {
    for (const double lam : {0.1, 0.5, 0.9, 1.0, 1.5, 100.0}) {
        Admm admm(distance_loss(2, 1, {0.0, 2.0}, ones(2)), complete(2, 1, 1.0, ones(2)), lam, {});
        solve(admm);
        const double wanted = std::min(lam, 1.0);
        CHECK_NEAR(admm.x()[0], wanted, 1e-12);
        CHECK_NEAR(admm.x()[1], 2.0 - wanted, 1e-12);
        if (lam > 1.0) {
            CHECK_EQUAL(admm.n_clusters(), 1);
            CHECK_EQUAL(admm.x()[0], admm.x()[1]);
        }
        if (lam < 1.0) CHECK_EQUAL(admm.n_clusters(), 2);
    }
}

TEST(a_large_lam_gives_every_node_the_weighted_mean) {
    const Index m = 12, d = 3;
    const Vector a = normal(at(m * d), 1), h = uniform(at(m), 0.5, 2.0, 2);
    Vector mean(at(d), 0.0);
    double total = 0.0;
    for (Index i = 0; i < m; ++i) {
        total += h[at(i)];
        for (Index k = 0; k < d; ++k) mean[at(k)] += h[at(i)] * a[at(i * d + k)];
    }
    for (double& value : mean) value /= total;
    for (const bool list : {false, true}) {
        Admm admm(distance_loss(m, d, a, h),
                  list ? listed(m, d, all_pairs(m, 1.0, ones(m))) : complete(m, d, 1.0, ones(m)), 1e3, {});
        solve(admm);
        CHECK_EQUAL(admm.n_clusters(), 1);
        for (Index i = 0; i < m; ++i)
            for (Index k = 0; k < d; ++k) {
                CHECK_NEAR(admm.x()[at(i * d + k)], mean[at(k)], 1e-12);
                CHECK_EQUAL(admm.x()[at(i * d + k)], admm.x()[at(k)]);
            }
    }
}

TEST(the_complete_graph_and_its_list_of_pairs_agree) {
    const Index m = 25, d = 2;
    const Vector r = uniform(at(m), 0.5, 2.0, 3);
    const Edges edges = all_pairs(m, 0.1, r);
    for (const double lam : {0.1, 0.3, 1.0}) {
        for (const QuadraticLoss& loss :
             {distance_loss(m, d, normal(at(m * d), 4), ones(m)), dense_loss(m, 5)}) {
            Admm whole(loss, complete(m, d, 0.1, r), lam, {});
            Admm list(loss, listed(m, d, edges), lam, {});
            solve(whole);
            solve(list);
            const Certificate a = whole.certify(Vector(whole.x())), b = list.certify(Vector(list.x()));
            check_certified(a, 1e-6);
            check_certified(b, 1e-6);
            CHECK_NEAR(a.objective, b.objective, a.gap + b.gap + a.rounding + b.rounding);
            CHECK_NEAR(a.penalty, penalty(d, edges, whole.x()), 1e-12 * a.penalty);
            CHECK(whole.labels() == list.labels());
        }
    }
}

TEST(the_gap_of_any_point_bounds_its_distance_to_the_optimum) {
    const Index m = 15, d = 2;
    const Edges edges = sparse(m, 1);
    AdmmOptions tight;
    tight.eps_rel = 1e-10;
    const QuadraticLoss loss = distance_loss(m, d, normal(at(m * d), 2), ones(m));
    Admm exact(loss, listed(m, d, edges), 0.2, tight);
    solve(exact, 200000);
    const double optimum = exact.certify(Vector(exact.x())).objective;
    Admm rough(loss, listed(m, d, edges), 0.2, {});
    for (unsigned seed = 0; seed < 5; ++seed) {
        rough.run(3);
        for (const double size : {0.0, 1e-3, 1.0, 1e3}) {
            Vector x = normal(at(m * d), seed);
            for (std::size_t k = 0; k < x.size(); ++k) x[k] = rough.x()[k] + size * x[k];
            const Certificate c = rough.certify(x);
            CHECK(c.dual_objective <= optimum + 1e-9 * std::abs(optimum));
            CHECK(c.objective >= optimum - 1e-9 * std::abs(optimum));
        }
    }
}

TEST(a_path_ends_where_a_cold_start_does) {
    const Index m = 20, d = 2;
    const QuadraticLoss loss = distance_loss(m, d, normal(at(m * d), 6), ones(m));
    for (const bool list : {false, true}) {
        const auto coupling = [&] {
            return list ? listed(m, d, all_pairs(m, 0.1, ones(m))) : complete(m, d, 0.1, ones(m));
        };
        Admm warm(loss, coupling(), 1.0, {});
        for (const double lam : {1.0, 0.5, 0.8, 0.2}) {
            warm.set_lam(lam);
            solve(warm);
            Admm cold(loss, coupling(), lam, {});
            solve(cold);
            CHECK_NEAR(largest_difference(warm.x(), cold.x()), 0.0, 1e-8);
            CHECK(warm.labels() == cold.labels());
        }
    }
}

TEST(a_warm_start_at_the_solution_ends_at_once) {
    const Index m = 20, d = 2;
    const QuadraticLoss loss = distance_loss(m, d, normal(at(m * d), 6), ones(m));
    Admm first(loss, complete(m, d, 0.1, ones(m)), 0.3, {});
    solve(first);
    Admm second(loss, complete(m, d, 0.1, ones(m)), 0.3, {});
    second.warm_start(first.x());
    solve(second);
    CHECK(second.n_iter() <= first.n_iter());
    CHECK_NEAR(largest_difference(first.x(), second.x()), 0.0, 1e-9);
}

// A finished point is that of the duals of its time: once the iteration has gone on, the point is its own.
TEST(the_iteration_leaves_a_finished_point_behind) {
    const Index m = 60, d = 2;
    const Edges edges = sparse(m, 3);
    const QuadraticLoss loss = distance_loss(m, d, normal(at(m * d), 4), ones(m));
    AdmmOptions options;
    options.eps_rel = 1e-12;
    Admm admm(loss, listed(m, d, edges), 0.05, options), other(loss, listed(m, d, edges), 0.05, options);
    admm.run(10);
    CHECK(admm.finish(0.5).n_clusters > 0);
    const Vector before = admm.x();
    admm.run(1);
    const Certificate own = admm.certify(admm.x());
    other.run(11);
    CHECK(largest_difference(admm.x(), before) > 0.0);
    CHECK(own.gap <= 2.0 * other.certify(other.x()).gap);
}

TEST(one_node_and_no_edges_keep_their_targets) {
    Admm one(distance_loss(1, 2, {3.0, -1.0}, ones(1)), complete(1, 2, 1.0, ones(1)), 1.0, {});
    solve(one);
    CHECK_EQUAL(one.x()[0], 3.0);
    CHECK_EQUAL(one.x()[1], -1.0);
    Admm apart(distance_loss(3, 1, {1.0, 2.0, 4.0}, ones(3)), listed(3, 1, Edges{}), 5.0, {});
    solve(apart);
    CHECK_EQUAL(apart.n_clusters(), 3);
    CHECK_EQUAL(apart.x()[2], 4.0);
}

TEST(an_optimum_of_exactly_zero_ends) {
    Admm admm(distance_loss(4, 2, Vector(8, 0.0), ones(4)), complete(4, 2, 1.0, ones(4)), 1.0, {});
    solve(admm, 100);
    CHECK_EQUAL(admm.last().objective, 0.0);
    CHECK_EQUAL(admm.n_clusters(), 1);
}
