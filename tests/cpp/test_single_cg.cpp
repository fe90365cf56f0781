// Conjugate gradients in single precision: refined to the last digits of double precision by being called
// again, at any scale of the matrix and of the right hand side, and refused where single precision could not
// serve.

#include "core/single_cg.hpp"

#include <vector>

#include "graphs.hpp"
#include "harness.hpp"

using namespace fusionopt;

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// All nodes in two runs.
struct TwoRuns {
    Index n;
    template <class Body>
    void each(const Body& body) const {
        body(Index{0}, n / 2);
        body(n / 2, n);
    }
    template <class Body>
    double sum(const Body& body) const {
        return body(Index{0}, n / 2) + body(n / 2, n);
    }
    template <class Body>
    double largest(const Body& body) const {
        return std::fmax(body(Index{0}, n / 2), body(n / 2, n));
    }
};

struct Matrix {
    std::vector<Index> start;
    std::vector<std::int32_t> neighbour;
    Vector value, degree, curvature;

    // Weights and curvatures over a few decades; `stiff` is that of the last edge.
    Matrix(const TestGraph& graph, double scale, double stiff) : start(at(graph.n + 1), 0) {
        for (Index e = 0; e < graph.n_edges(); ++e) {
            ++start[at(graph.tail[at(e)] + 1)];
            ++start[at(graph.head[at(e)] + 1)];
        }
        for (Index i = 0; i < graph.n; ++i) start[at(i + 1)] += start[at(i)];
        neighbour.assign(at(start.back() + kAhead), 0);
        value.assign(at(start.back()), 0.0);
        degree.assign(at(graph.n), 0.0);
        for (Index i = 0; i < graph.n; ++i)
            curvature.push_back(scale * std::exp(2.0 * std::sin(3.1 * static_cast<double>(i))));
        std::vector<Index> next(start.begin(), start.end() - 1);
        for (Index e = 0; e < graph.n_edges(); ++e) {
            const double weight =
                scale *
                (e + 1 == graph.n_edges() ? stiff : std::exp(3.0 * std::sin(1.3 * static_cast<double>(e))));
            const std::int32_t ends[2] = {graph.tail[at(e)], graph.head[at(e)]};
            for (int side = 0; side < 2; ++side) {
                neighbour[at(next[at(ends[side])])] = ends[1 - side];
                value[at(next[at(ends[side])]++)] = weight;
                degree[at(ends[side])] += weight;
            }
        }
    }

    Index n() const { return static_cast<Index>(degree.size()); }

    Vector residual(const Vector& b, const Vector& x, Index d) const {
        Vector r = b;
        for (Index i = 0; i < n(); ++i)
            for (Index k = 0; k < d; ++k) {
                r[at(i * d + k)] -= (curvature[at(i)] + degree[at(i)]) * x[at(i * d + k)];
                for (Index place = start[at(i)]; place < start[at(i + 1)]; ++place)
                    r[at(i * d + k)] += value[at(place)] * x[at(neighbour[at(place)] * d + k)];
            }
        return r;
    }
};

double size(const Vector& v) { return std::sqrt(dot(v, v)); }

}  // namespace

TEST(called_again_it_reaches_the_last_digits) {
    for (const TestGraph& graph : test_graphs())
        for (const Index d : {1, 2, 3, 8, 10, 21})
            for (const double scale : {1e-150, 1.0, 1e150}) {
                const Matrix a(graph, scale, 1.0);
                Vector b, x(at(a.n() * d), 0.0);
                for (std::size_t k = 0; k < x.size(); ++k)
                    b.push_back(1e-9 * std::cos(0.7 * static_cast<double>(k)));
                SingleCg cg;
                CHECK(cg.set({a.start, a.neighbour}, a.value, a.degree, a.curvature, d));
                for (int round = 0; round < 40; ++round) {
                    Vector r = a.residual(b, x, d);
                    const Index made = cg.solve({a.start, a.neighbour}, r, x, d, 0.1, 500, TwoRuns{a.n()});
                    CHECK(made < 500);
                }
                CHECK_NEAR(size(a.residual(b, x, d)) / size(b), 0.0, 1e-11);
            }
}

TEST(without_a_residual_nothing_moves) {
    const TestGraph graph = test_graphs()[2];
    const Matrix a(graph, 1.0, 1.0);
    Vector x(at(a.n() * 2), 3.0), r(x.size(), 0.0);
    SingleCg cg;
    CHECK(cg.set({a.start, a.neighbour}, a.value, a.degree, a.curvature, 2));
    CHECK_EQUAL(cg.solve({a.start, a.neighbour}, r, x, 2, 0.1, 500, TwoRuns{a.n()}), Index{0});
    CHECK_EQUAL(x[5], 3.0);
}

TEST(too_badly_conditioned_it_is_refused) {
    const TestGraph graph = test_graphs()[2];
    const Matrix stiff(graph, 1.0, 1e7);
    SingleCg cg;
    CHECK(!cg.set({stiff.start, stiff.neighbour}, stiff.value, stiff.degree, stiff.curvature, 2));
    Matrix flat(graph, 1.0, 1.0);
    flat.curvature[3] = 0.0;
    CHECK(!cg.set({flat.start, flat.neighbour}, flat.value, flat.degree, flat.curvature, 2));
}
