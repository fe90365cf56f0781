// Storage-free passes against plain sums over pairs, in both precisions and every kind of blocking; the tree
// against the pass it stands for.

#include <cmath>
#include <random>
#include <vector>

#include "core/implicit_tree.hpp"
#include "harness.hpp"

using namespace fusionopt;

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

struct Case {
    Points x, p;
    Vector w;
    double delta = 0.3;
};

Case make(Index n, Index d) {
    std::mt19937_64 random(static_cast<std::uint64_t>(100 * n + d));
    std::normal_distribution<double> normal;
    Case out{Points(n, d), Points(n, d), Vector(at(padded(n)), 0.0)};
    for (Index i = 0; i < n; ++i) {
        out.w[at(i)] = 0.5 + static_cast<double>(i % 3);
        for (Index k = 0; k < d; ++k) {
            out.x.at(i, k) = normal(random);
            out.p.at(i, k) = normal(random);
        }
    }
    return out;
}

struct Plain {
    FieldSums sums;
    Points product;
    double length = 0.0;
};

Plain plain(const Case& c, bool weighted) {
    const Index n = c.x.n, d = c.x.d;
    Plain out;
    out.sums.force = Points(n, d);
    out.product = Points(n, d);
    for (Vector* v : {&out.sums.stiff, &out.sums.inside, &out.sums.energy}) v->assign(at(n), 0.0);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) {
            const double w = weighted ? c.w[at(j)] : 1.0;
            double squared = 0.0, along = 0.0;
            for (Index k = 0; k < d; ++k) {
                const double t = c.x.at(i, k) - c.x.at(j, k);
                squared += t * t;
                along += t * (c.p.at(i, k) - c.p.at(j, k));
            }
            const double distance = std::sqrt(squared), reach = std::fmax(distance, c.delta);
            const double bend = distance < c.delta ? 0.0 : along / squared;
            for (Index k = 0; k < d; ++k) {
                const double t = c.x.at(i, k) - c.x.at(j, k);
                out.sums.force.at(i, k) += w * t / reach;
                out.product.at(i, k) += w * (c.p.at(i, k) - c.p.at(j, k) - bend * t) / reach;
            }
            out.sums.stiff[at(i)] += w / reach;
            out.sums.inside[at(i)] += distance < c.delta ? w : 0.0;
            out.sums.energy[at(i)] += w * (squared + reach * reach) / reach;
            if (i < j) out.length += c.w[at(i)] * c.w[at(j)] * distance;
        }
    return out;
}

double apart(const Points& a, const Points& b) {
    double worst = 0.0, size = 0.0;
    for (Index k = 0; k < a.d; ++k)
        for (Index i = 0; i < a.n; ++i) {
            worst = std::fmax(worst, std::fabs(a.at(i, k) - b.at(i, k)));
            size = std::fmax(size, std::fabs(b.at(i, k)));
        }
    return worst / size;
}

double apart(const Vector& a, const Vector& b) {
    double worst = 0.0, size = 0.0;
    for (std::size_t i = 0; i < b.size(); ++i) {
        worst = std::fmax(worst, std::fabs(a[i] - b[i]));
        size = std::fmax(size, std::fabs(b[i]));
    }
    return worst / size;
}

}  // namespace

TEST(passes_are_plain_sums) {
    PairPasses passes(2, nullptr);
    for (const Index d : {1, 2, 3, 4, 5, 11})
        for (const Index n : {1, 17, 300, 601})
            for (const bool weighted : {false, true}) {
                const Case c = make(n, d);
                const Plain wanted = plain(c, weighted);
                const Vector* weight = weighted ? &c.w : nullptr;
                for (const bool single : {false, true}) {
                    FieldSums sums;
                    Points product;
                    passes.gradient(c.x, c.x, weight, c.delta, single, sums);
                    passes.product(c.x, c.p, c.x, c.p, weight, c.delta, 1.0, single, product);
                    const double tolerance = single ? 2e-5 : 1e-12;
                    if (n > 1) {
                        CHECK(apart(sums.force, wanted.sums.force) < tolerance);
                        // The Hessian serves conjugate gradients: its square roots are rough.
                        CHECK(apart(product, wanted.product) < 2e-3);
                    }
                    CHECK(apart(sums.stiff, wanted.sums.stiff) < tolerance);
                    CHECK(apart(sums.energy, wanted.sums.energy) < tolerance);
                    if (!single) CHECK(apart(sums.inside, wanted.sums.inside) == 0.0);
                }
                if (n > 1) CHECK_NEAR(passes.length(c.x, c.w), wanted.length, 1e-12 * wanted.length);
            }
}

TEST(implied_duals_are_antisymmetric_and_in_their_balls) {
    PairPasses passes(1, nullptr);
    for (const Index d : {2, 7}) {
        const Case c = make(2, d);
        FieldSums sums;
        passes.gradient(c.x, c.x, nullptr, c.delta, false, sums);
        double squared = 0.0;
        for (Index k = 0; k < d; ++k) {
            CHECK(sums.force.at(0, k) == -sums.force.at(1, k));
            squared += sums.force.at(0, k) * sums.force.at(0, k);
        }
        CHECK(std::sqrt(squared) <= 1.0 + 1e-14);
    }
}

TEST(tree_is_near_the_pass) {
    PairPasses passes(1, nullptr);
    for (const Index d : {1, 2, 3}) {
        Case c = make(3000, d);
        c.delta = 0.01;
        FieldSums exact, rough;
        Points exact_product, rough_product;
        passes.gradient(c.x, c.x, &c.w, c.delta, false, exact);
        passes.product(c.x, c.p, c.x, c.p, &c.w, c.delta, 0.9, false, exact_product);
        PairTree tree(passes, c.x, c.w, c.delta);
        tree.gradient(0.3, rough);
        tree.product(c.p, 0.7, 0.9, rough_product);
        CHECK(apart(rough.force, exact.force) < 2e-3);
        CHECK(apart(rough_product, exact_product) < 0.1);
        double all = 0.0, few = 0.0;
        for (Index i = 0; i < c.x.n; ++i) {
            all += exact.energy[at(i)];
            few += rough.energy[at(i)];
        }
        CHECK_NEAR(few, all, 1e-4 * all);
        // Everything inside delta: stand-ins with the same mean and covariance are exact.
        PairTree inside(passes, c.x, c.w, 100.0);
        passes.gradient(c.x, c.x, &c.w, 100.0, false, exact);
        inside.gradient(0.3, rough);
        CHECK(apart(rough.force, exact.force) < 1e-5);
        CHECK(apart(rough.energy, exact.energy) < 1e-5);
    }
}

TEST(an_exception_of_the_poll_ends_a_pass) {
    PairPasses passes(1, [] { throw 7; });
    const Case c = make(20, 2);
    FieldSums sums;
    bool thrown = false;
    try {
        passes.gradient(c.x, c.x, nullptr, c.delta, false, sums);
    } catch (int) {
        thrown = true;
    }
    CHECK(thrown);
}
