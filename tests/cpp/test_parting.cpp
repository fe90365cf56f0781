#include <cmath>

#include "core/parting.hpp"
#include "harness.hpp"

using namespace fusionopt;

namespace {

// Four nodes on a line of edges in the plane, unit Hessians, in one cluster at its mean.
struct Line {
    explicit Line(const Vector& targets) {
        loss.n_nodes = 4;
        loss.n_features = 2;
        loss.eigenvalues.assign(4, 1.0);
        loss.linear = targets;
        x.assign(8, 0.0);
        for (std::size_t k = 0; k < 8; ++k) x[k % 2] += 0.25 * targets[k];
        for (std::size_t k = 2; k < 8; ++k) x[k] = x[k % 2];
    }
    Parting at(double lam) {
        return {loss, {tail.data(), head.data(), weight.data(), 3}, lam, labels, 1, open, x};
    }
    QuadraticLoss loss;
    std::vector<std::int32_t> tail{0, 1, 2}, head{1, 2, 3}, labels{0, 0, 0, 0};
    std::vector<char> open{1};
    Vector weight{1.0, 1.0, 1.0}, x;
};

// Two and two, 2 apart: the edge between them has to carry 2 where they are one cluster.
const Vector kTwoPairs{-1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 1.0, 0.0};

}  // namespace

TEST(a_cluster_whose_flow_fits_stays_whole) {
    Line line(kTwoPairs);
    for (const double lam : {2.0001, 20.0}) {
        Parting parting = line.at(lam);
        Vector t(6, 0.0);
        CHECK(parting.inside().size() == 3);
        CHECK(parting.solve(1000.0, 1e6, t) > 0.0);
        std::vector<std::int32_t> labels;
        Vector x = line.x;
        CHECK(parting.pieces(labels, x) == 1);
        CHECK(x == line.x);
        // The flow on a tree is the only one.
        for (const auto& [edge, wanted] : {std::pair(0, -1.0), std::pair(1, -2.0), std::pair(2, -1.0)}) {
            CHECK(std::fabs(t[static_cast<std::size_t>(2 * edge)] - wanted) < 1e-5);
            CHECK(std::fabs(t[static_cast<std::size_t>(2 * edge + 1)]) < 1e-5);
        }
    }
}

TEST(a_cluster_comes_apart_where_its_flow_does_not_fit) {
    Line line(kTwoPairs);
    for (const double lam : {1.9999, 1.2}) {
        Parting parting = line.at(lam);
        Vector t(6, 0.0);
        parting.solve(1000.0, 1e6, t);
        std::vector<std::int32_t> labels;
        Vector x = line.x;
        CHECK(parting.pieces(labels, x) == 2);
        CHECK((labels == std::vector<std::int32_t>{0, 0, 1, 1}));
        // Centres of the two: -1 + lam / 2 and its opposite.
        CHECK(std::fabs(x[0] - (-1.0 + 0.5 * lam)) < 1e-6);
        CHECK(x[0] == x[2]);
        CHECK(x[4] == x[6]);
        CHECK(std::fabs(x[0] + x[4]) < 1e-12);
    }
}

TEST(pieces_go_no_further_than_the_objective_falls) {
    // A neighbour just beyond one half: its held force lets that half run past it, the true one does not.
    QuadraticLoss loss;
    loss.n_nodes = 3;
    loss.n_features = 2;
    loss.eigenvalues.assign(3, 1.0);
    loss.linear = {-1.0, 0.0, 1.0, 0.0, 0.0, 1e-3};
    const std::vector<std::int32_t> tail{0, 1}, head{1, 2}, labels{0, 0, 1};
    const Vector weight{1.0, 10.0}, start{0.0, 0.0, 0.0, 0.0, 0.0, 1e-4};
    Parting parting(loss, {tail.data(), head.data(), weight.data(), 2}, 0.1, labels, 2, {1, 0}, start);
    Vector t(2, 0.0);
    parting.solve(1000.0, 1e6, t);
    std::vector<std::int32_t> pieces;
    Vector x = start;
    CHECK(parting.pieces(pieces, x) == 3);
    CHECK((pieces == std::vector<std::int32_t>{0, 2, 1}));
    const auto objective = [&](const Vector& at) {
        const Vector none(6, 0.0);
        double total = loss.evaluate(at, none).value;
        for (std::size_t e = 0; e < 2; ++e) {
            const auto i = static_cast<std::size_t>(2 * tail[e]), j = static_cast<std::size_t>(2 * head[e]);
            total += 0.1 * weight[e] * std::hypot(at[i] - at[j], at[i + 1] - at[j + 1]);
        }
        return total;
    };
    CHECK(objective(x) < objective(start));
    CHECK(x[2] > 0.0);
}

TEST(a_budget_too_small_leaves_everything_as_it_is) {
    Line line(kTwoPairs);
    Parting parting = line.at(1.2);
    Vector t(6, 0.5), before = t, x = line.x;
    CHECK(parting.solve(1000.0, 1.0, t) == 0.0);
    CHECK(t == before);
    std::vector<std::int32_t> labels;
    CHECK(parting.pieces(labels, x) == 1);
    CHECK(x == line.x);
}
