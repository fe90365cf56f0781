// The sweeps, against the formulas of core/sweep.hpp written edge by edge. Run once for each instruction set
// of the machine.

#include "core/coupling.hpp"

#include "harness.hpp"
#include "problems.hpp"

using namespace fusionopt;
using namespace problems;

namespace {

// One vector an edge; everything as the header states it, in the order of the edges.
struct Plain {
    Index m, d;
    Edges edges;
    Vector y;

    Plain(Index m_, Index d_, Edges edges_)
        : m(m_), d(d_), edges(std::move(edges_)), y(edges.size() * at(d), 0.0) {}

    double factor(std::size_t e, double lam) const {
        double squared = 0.0;
        for (std::size_t k = 0; k < at(d); ++k) squared += y[e * at(d) + k] * y[e * at(d) + k];
        const double n = std::sqrt(squared);
        return n > lam ? lam / n : 1.0;
    }

    void step(const StepParameters& p, const Vector& x, Vector& s, Vector& g) {
        std::fill(s.begin(), s.end(), 0.0);
        std::fill(g.begin(), g.end(), 0.0);
        for (std::size_t e = 0; e < edges.size(); ++e) {
            const std::size_t i = at(edges.tail[e] * d), j = at(edges.head[e] * d);
            const double before = factor(e, p.lam);
            for (std::size_t k = 0; k < at(d); ++k) {
                double& value = y[e * at(d) + k];
                const double projected = before * value;
                const double stretched = projected + p.stretch * (value - projected);
                value = stretched + p.alpha * (p.rho * (x[i + k] - x[j + k]) - stretched + projected);
            }
            const double after = factor(e, p.lam);
            for (std::size_t k = 0; k < at(d); ++k) {
                const double value = y[e * at(d) + k], projected = after * value;
                s[i + k] += edges.weight[e] * (value - 2.0 * projected);
                s[j + k] -= edges.weight[e] * (value - 2.0 * projected);
                g[i + k] += edges.weight[e] * projected;
                g[j + k] -= edges.weight[e] * projected;
            }
        }
    }
};

// A few steps at changing x, rho and stretch; every output compared. Differences are rounding: relative to
// the largest sum. A state in float32 is off by its own rounding, what is measured at x is not.
void check_steps(Coupling& coupling, Plain plain, unsigned seed, double tolerance = 1e-13) {
    const std::size_t size = at(plain.m * plain.d);
    Vector s(size), g(size), s_plain(size), g_plain(size);
    Coupling::SweepRequest request;
    request.step.lam = 0.7;
    for (unsigned round = 0; round < 6; ++round) {
        const Vector x = normal(size, seed + round);
        request.step.rho = 0.5 + 0.25 * round;
        request.step.stretch = round % 2 == 0 ? 1.0 : 1.5;
        coupling.sweep(request, x, s, nullptr);
        plain.step(request.step, x, s_plain, g_plain);
        CHECK_NEAR(largest_difference(s, s_plain) / (1.0 + largest(s_plain)), 0.0, tolerance);
        const Coupling::Sums sums = coupling.sweep(request, x, s, &g);
        plain.step(request.step, x, s_plain, g_plain);
        const double scale = 1.0 + largest(s_plain) + largest(g_plain);
        CHECK_NEAR(largest_difference(s, s_plain) / scale, 0.0, tolerance);
        CHECK_NEAR(largest_difference(g, g_plain) / scale, 0.0, tolerance);
        const double wanted = penalty(plain.d, plain.edges, x);
        CHECK_NEAR(sums.penalty, wanted, 1e-13 * wanted);
        CHECK_NEAR(coupling.penalty(x), wanted, 1e-13 * wanted);
    }
    CHECK_EQUAL(coupling.n_edges(), static_cast<Index>(plain.edges.size()));
    Vector duals(plain.y.size());
    coupling.duals(request.step.lam, duals.data());
    for (std::size_t e = 0; e < plain.edges.size(); ++e) {
        const double p = plain.factor(e, request.step.lam), w = plain.edges.weight[e];
        double squared = 0.0;
        for (std::size_t k = 0; k < at(plain.d); ++k) {
            const double dual = duals[e * at(plain.d) + k];
            CHECK_NEAR(dual / w, p * plain.y[e * at(plain.d) + k], 10.0 * tolerance);
            squared += dual * dual;
        }
        CHECK(std::sqrt(squared) <= request.step.lam * w);
    }
}

}  // namespace

TEST(sweeps_of_the_complete_graph_follow_the_formula) {
    for (const Index m : {1, 2, 3, 8, 9, 17, 40})
        for (const Index d : {1, 2, 3, 4, 5, 10, 13}) {
            const Vector r = uniform(at(m), 0.5, 2.0, static_cast<unsigned>(m));
            check_steps(*complete(m, d, 0.8, r), Plain(m, d, all_pairs(m, 0.8, r)),
                        static_cast<unsigned>(100 * m + d));
        }
}

TEST(sweeps_of_a_float32_state_follow_the_formula_to_its_rounding) {
    for (const Index m : {1, 2, 9, 17, 40})
        for (const Index d : {1, 2, 3, 10, 13}) {
            const Vector r = uniform(at(m), 0.5, 2.0, static_cast<unsigned>(m));
            const auto coupling = make_complete_coupling(m, d, 0.8, r, Vector(at(d * d), 0.0), true);
            check_steps(*coupling, Plain(m, d, all_pairs(m, 0.8, r)), static_cast<unsigned>(100 * m + d),
                        2e-6);
        }
}

// What a sweep tells of a float32 state is what its duals are: the sums of the certificate are no rounder.
TEST(sums_of_a_float32_state_are_those_of_its_duals) {
    const Index m = 37, d = 3;
    const Vector r(at(m), 1.0);
    const Edges edges = all_pairs(m, 1.0, r);
    const auto coupling = make_complete_coupling(m, d, 1.0, r, Vector(at(d * d), 0.0), true);
    Coupling::SweepRequest request;
    request.step.lam = 0.3;
    Vector s(at(m * d)), g(at(m * d)), duals(edges.size() * at(d));
    for (unsigned round = 0; round < 4; ++round)
        coupling->sweep(request, normal(at(m * d), round), s, round == 3 ? &g : nullptr);
    const auto check_sums = [&] {
        coupling->duals(request.step.lam, duals.data());
        Vector sums(at(m * d), 0.0);
        for (std::size_t e = 0; e < edges.size(); ++e)
            for (Index k = 0; k < d; ++k) {
                sums[at(edges.tail[e] * d + k)] += duals[e * at(d) + at(k)];
                sums[at(edges.head[e] * d + k)] -= duals[e * at(d) + at(k)];
            }
        CHECK_NEAR(largest_difference(sums, g), 0.0, 1e-13);
    };
    check_sums();
    request.step.alpha = 0.0;
    coupling->sweep(request, normal(at(m * d), 9), s, &g);
    check_sums();
    // Setting the state aside works in float64 and brings the float32 state back as it was.
    const Vector before = g;
    coupling->keep_state();
    request.step.alpha = 1.7;
    coupling->sweep(request, normal(at(m * d), 10), s, &g);
    CHECK(largest_difference(g, before) > 1e-3);
    coupling->swap_state();
    request.step.alpha = 0.0;
    coupling->sweep(request, normal(at(m * d), 11), s, &g);
    CHECK_EQUAL(largest_difference(g, before), 0.0);
}

// Each node with the next and one far away.
Edges ring(Index m) {
    Edges out;
    for (Index i = 0; i + 1 < m; ++i)
        for (const Index j : {i + 1, i + 1 + m / 3})
            if (j < m) {
                out.tail.push_back(static_cast<std::int32_t>(i));
                out.head.push_back(static_cast<std::int32_t>(j));
                out.weight.push_back(1.0 + static_cast<double>(i % 7));
            }
    return out;
}

// Bits of everything that a few steps leave, for a number of threads.
Vector trail(Coupling& coupling, Index m, Index d, int n_threads) {
    ThreadPool pool(n_threads);
    coupling.use(&pool);
    Coupling::SweepRequest request;
    request.step.lam = 0.02;
    request.step.rho = 0.01;
    Vector s(at(m * d)), g(at(m * d)), worst(at(m)), out;
    for (unsigned round = 0; round < 3; ++round) {
        const Coupling::Sums sums =
            coupling.sweep(request, normal(at(m * d), round), s, round == 1 ? nullptr : &g);
        out.insert(out.end(), s.begin(), s.end());
        out.insert(out.end(), g.begin(), g.end());
        out.push_back(sums.penalty);
    }
    const Vector phi = normal(at(m * d), 7);
    request.kind = SweepKind::kManifold;
    request.phi = &phi;
    request.worst = &worst;
    const Coupling::Sums sums = coupling.sweep(request, Vector(at(m * d), 1.0), s, &g);
    out.insert(out.end(), s.begin(), s.end());
    out.insert(out.end(), worst.begin(), worst.end());
    out.push_back(sums.largest);
    coupling.use(nullptr);
    return out;
}

TEST(sweeps_have_the_same_bits_for_any_number_of_threads) {
    for (const Index d : {2, 11})
        for (const bool narrow : {false, true}) {
            const Index m = 600;
            const Vector r = uniform(at(m), 0.5, 2.0, 1);
            const auto fresh = [&] {
                return make_complete_coupling(m, d, 0.8, r, Vector(at(d * d), 0.0), narrow);
            };
            const Vector one = trail(*fresh(), m, d, 1);
            CHECK_EQUAL(largest_difference(trail(*fresh(), m, d, 2), one), 0.0);
            CHECK_EQUAL(largest_difference(trail(*fresh(), m, d, 5), one), 0.0);
        }
    for (const Index d : {2, 11}) {
        const Index m = 60000 / d;
        const Edges edges = ring(m);
        const Vector one = trail(*listed(m, d, edges), m, d, 1);
        CHECK_EQUAL(largest_difference(trail(*listed(m, d, edges), m, d, 2), one), 0.0);
        CHECK_EQUAL(largest_difference(trail(*listed(m, d, edges), m, d, 5), one), 0.0);
    }
}

TEST(sweeps_of_an_edge_list_follow_the_formula) {
    for (const Index m : {2, 3, 9, 30})
        for (const Index d : {1, 2, 3, 4, 5, 10, 13}) {
            const Edges edges = sparse(m, static_cast<unsigned>(m));
            check_steps(*listed(m, d, edges), Plain(m, d, edges), static_cast<unsigned>(100 * m + d));
        }
}

// w y of every pair, or edge: the duals where the ball is far too large to matter.
Vector flows_of(const Coupling& coupling, Index d) {
    Vector out(at(coupling.n_edges() * d));
    coupling.duals(1e9, out.data());
    return out;
}

// The flow between two groups is the sum of the flows between their nodes, and comes back in proportion to
// the weights; the primal residual is that of the nodes in both. The groups' nodes lie anywhere, and some
// nodes are in none.
TEST(parts_of_the_complete_graph_carry_the_flows_between_their_groups) {
    for (const bool narrow : {false, true})
        for (const Index d : {1, 2, 5, 20})
            for (const Index n_groups : {2, 5, 30}) {
                const Index m = 53;
                const double tolerance = narrow ? 1e-6 : 1e-14;
                const Vector r = uniform(at(m), 0.5, 2.0, 1);
                const auto coupling = make_complete_coupling(m, d, 0.8, r, Vector(at(d * d), 0.0), narrow);
                Coupling::SweepRequest request;
                request.step.lam = 0.7;
                Vector s(at(m * d));
                for (unsigned round = 0; round < 3; ++round)
                    coupling->sweep(request, normal(at(m * d), round), s, nullptr);
                const Vector pick = uniform(at(m), 0.0, static_cast<double>(n_groups), 5);
                for (const bool all : {true, false}) {
                    Labels labels(at(m));
                    Vector mass(at(n_groups), 0.0);
                    for (Index i = 0; i < m; ++i) {
                        labels[at(i)] = i < n_groups ? static_cast<std::int32_t>(i)
                                                     : static_cast<std::int32_t>(pick[at(i)]);
                        if (!all && i >= n_groups && i % 4 == 0) labels[at(i)] = -1;
                        if (labels[at(i)] >= 0) mass[at(labels[at(i)])] += r[at(i)];
                    }
                    const Edges pairs = all_pairs(m, 0.8, r);
                    const Vector flows = flows_of(*coupling, d);
                    Vector wanted(at(n_groups * n_groups * d), 0.0);
                    for (std::size_t e = 0; e < pairs.size(); ++e) {
                        const Index a = labels[at(pairs.tail[e])], b = labels[at(pairs.head[e])];
                        if (a < 0 || b < 0) continue;
                        for (Index k = 0; k < d; ++k) {
                            wanted[at((a * n_groups + b) * d + k)] += flows[e * at(d) + at(k)];
                            wanted[at((b * n_groups + a) * d + k)] -= flows[e * at(d) + at(k)];
                        }
                    }
                    const double scale = 1.0 + largest(wanted);
                    for (const bool exact : {true, false}) {
                        const auto part = coupling->part(labels, n_groups, exact);
                        const Vector between = flows_of(*part, d);
                        std::size_t e = 0;
                        for (Index a = 0; a < n_groups; ++a)
                            for (Index b = a + 1; b < n_groups; ++b, ++e)
                                for (Index k = 0; k < d; ++k)
                                    CHECK_NEAR(between[e * at(d) + at(k)] / scale,
                                               wanted[at((a * n_groups + b) * d + k)] / scale, tolerance);
                        // The same nodes with the group's state everywhere.
                        const auto back =
                            make_complete_coupling(m, d, 0.8, r, Vector(at(d * d), 0.0), narrow);
                        back->put_part(*part, labels);
                        const Vector spread = flows_of(*back, d);
                        for (e = 0; e < pairs.size(); ++e) {
                            const Index a = labels[at(pairs.tail[e])], b = labels[at(pairs.head[e])];
                            if (a < 0 || b < 0 || a == b) continue;
                            const double share =
                                r[at(pairs.tail[e])] * r[at(pairs.head[e])] / (mass[at(a)] * mass[at(b)]);
                            for (Index k = 0; k < d; ++k)
                                CHECK_NEAR(spread[e * at(d) + at(k)] / scale,
                                           share * wanted[at((a * n_groups + b) * d + k)] / scale, tolerance);
                        }
                        if (!all) continue;
                        const Vector centres = normal(at(n_groups * d), 8);
                        Vector x(at(m * d));
                        for (Index i = 0; i < m; ++i)
                            for (Index k = 0; k < d; ++k)
                                x[at(i * d + k)] = centres[at(labels[at(i)] * d + k)];
                        double own = 0.0, theirs = 0.0;
                        const double mine = back->primal_residual(request.step, x, &own),
                                     groups = part->primal_residual(request.step, centres, &theirs);
                        CHECK_NEAR(own / theirs, 1.0, 10.0 * tolerance);
                        CHECK_NEAR(mine / groups, 1.0, 10.0 * tolerance);
                    }
                }
            }
}

// sqrt(sum ||x_i - x_j - (y - P) / rho||^2), and relative to the larger of its two parts.
TEST(primal_residual_of_the_complete_graph_follows_the_formula) {
    for (const bool narrow : {false, true})
        for (const Index d : {1, 2, 10, 13}) {
            const Index m = 40;
            const Vector r = uniform(at(m), 0.5, 2.0, 1), x = normal(at(m * d), 9);
            const auto coupling = make_complete_coupling(m, d, 0.8, r, Vector(at(d * d), 0.0), narrow);
            Coupling::SweepRequest request;
            request.step.lam = 0.7;
            request.step.rho = 0.4;
            Vector s(at(m * d));
            for (unsigned round = 0; round < 3; ++round)
                coupling->sweep(request, normal(at(m * d), round), s, nullptr);
            Plain plain(m, d, all_pairs(m, 0.8, r));
            plain.y = flows_of(*coupling, d);
            double gap = 0.0, apart = 0.0, split = 0.0;
            for (std::size_t e = 0; e < plain.edges.size(); ++e) {
                for (Index k = 0; k < d; ++k) plain.y[e * at(d) + at(k)] /= plain.edges.weight[e];
                const double loose = (1.0 - plain.factor(e, request.step.lam)) / request.step.rho;
                for (Index k = 0; k < d; ++k) {
                    const double u = x[at(plain.edges.tail[e] * d + k)] - x[at(plain.edges.head[e] * d + k)];
                    const double theta = loose * plain.y[e * at(d) + at(k)];
                    gap += (u - theta) * (u - theta);
                    apart += u * u;
                    split += theta * theta;
                }
            }
            double absolute = 0.0;
            const double relative = coupling->primal_residual(request.step, x, &absolute);
            CHECK_NEAR(absolute / std::sqrt(gap), 1.0, 1e-12);
            CHECK_NEAR(relative / std::sqrt(gap / std::fmax(apart, split)), 1.0, 1e-12);
        }
}

TEST(an_edge_list_may_be_empty) {
    const auto coupling = listed(3, 2, Edges{});
    Vector s(6, 1.0), g(6, 1.0);
    Coupling::SweepRequest request;
    const Coupling::Sums sums = coupling->sweep(request, normal(6, 1), s, &g);
    CHECK_EQUAL(sums.penalty, 0.0);
    CHECK_EQUAL(largest(s), 0.0);
    CHECK_EQUAL(largest(g), 0.0);
    CHECK_EQUAL(coupling->n_edges(), 0);
}

TEST(the_x_step_of_the_complete_graph_solves_its_system) {
    const Index m = 11, d = 2;
    const double weight = 0.8, rho = 0.3;
    const Vector r = uniform(at(m), 0.5, 2.0, 1);
    const Edges edges = all_pairs(m, weight, r);
    const Vector b = normal(at(m * d), 3);
    for (const QuadraticLoss& loss :
         {distance_loss(m, d, normal(at(m * d), 2), uniform(at(m), 0.5, 2.0, 4)), dense_loss(m, 5)}) {
        const auto coupling = complete(m, d, weight, r);
        coupling->set_rho(loss, rho);
        Vector x(at(m * d), 0.0), left(at(m * d), 0.0);
        coupling->solve_x(loss, b, x);
        for (Index i = 0; i < m; ++i) loss.apply_node(i, x.data() + i * d, left.data() + i * d);
        for (std::size_t e = 0; e < edges.size(); ++e)
            for (Index k = 0; k < d; ++k) {
                const std::size_t i = at(edges.tail[e] * d + k), j = at(edges.head[e] * d + k);
                const double flow = rho * edges.weight[e] * (x[i] - x[j]);
                left[i] += flow;
                left[j] -= flow;
            }
        CHECK_NEAR(largest_difference(left, b), 0.0, 1e-12);
    }
}
