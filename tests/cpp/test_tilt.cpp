// The tilt: both kernels against a plain loop over pairs, penalties without one refused.

#include "core/tilt.hpp"

#include <stdexcept>
#include <vector>

#include "harness.hpp"

using namespace fusionopt;

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

struct Plain {
    std::vector<double> b;
    double value = 0.0;
};

// From the value and the derivative of the penalty alone.
Plain plain(const RadialPenalty& g, double lam, Index m, Index d, const std::vector<double>& x,
            const std::vector<double>& r) {
    Plain out;
    out.b.assign(at(m * d), 0.0);
    for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < i; ++j) {
            double square = 0.0;
            for (Index k = 0; k < d; ++k)
                square += (x[at(i * d + k)] - x[at(j * d + k)]) * (x[at(i * d + k)] - x[at(j * d + k)]);
            const double t = std::sqrt(square), w = r[at(i)] * r[at(j)];
            out.value += w * g.value(t, lam);
            if (t == 0.0) continue;
            for (Index k = 0; k < d; ++k) {
                const double pull =
                    w * (lam - g.derivative(t, lam)) * (x[at(i * d + k)] - x[at(j * d + k)]) / t;
                out.b[at(i * d + k)] += pull;
                out.b[at(j * d + k)] -= pull;
            }
        }
    return out;
}

}  // namespace

TEST(both_kernels_agree_with_a_loop_over_pairs) {
    const Index d = 3;
    for (const Index m : {1, 2, 7, 8, 9, 19})
        for (const RadialPenalty& g :
             {RadialPenalty{PenaltyKind::kScad, 3.7, 0.0}, RadialPenalty{PenaltyKind::kMcp, 1.5, 0.0}}) {
            std::vector<double> x(at(m * d)), r(at(m));
            for (std::size_t k = 0; k < x.size(); ++k)
                x[k] = std::sin(1.7 * static_cast<double>(k * k)) * 2.0;
            for (Index i = 0; i < m; ++i) r[at(i)] = i % 4 == 3 ? 0.0 : 0.5 + static_cast<double>(i % 3);
            if (m > 2) std::copy_n(x.data(), d, x.data() + 2 * d);  // two equal rows
            const Plain wanted = plain(g, 0.6, m, d, x, r);

            const ConcaveTail tail(g, 0.6);
            const Index stride = round_up(m);
            Buffer columns(d * stride), weights(stride), sums(d * stride);
            for (Index i = 0; i < m; ++i) {
                weights[i] = r[at(i)];
                for (Index k = 0; k < d; ++k) columns[k * stride + i] = x[at(i * d + k)];
            }
            const double value =
                tilt_complete(tail, m, d, stride, columns.data(), weights.data(), sums.data());
            CHECK_NEAR(value, wanted.value, 1e-13 * (1.0 + wanted.value));
            for (Index i = 0; i < m; ++i)
                for (Index k = 0; k < d; ++k)
                    CHECK_NEAR(r[at(i)] * sums[k * stride + i], wanted.b[at(i * d + k)], 1e-13 * 30.0);

            std::vector<std::int32_t> tails, heads;
            std::vector<double> w, b(at(m * d));
            for (Index i = 0; i < m; ++i)
                for (Index j = i + 1; j < m; ++j) {
                    tails.push_back(static_cast<std::int32_t>(i));
                    heads.push_back(static_cast<std::int32_t>(j));
                    w.push_back(r[at(i)] * r[at(j)]);
                }
            const double listed = tilt_edges(tail, static_cast<Index>(w.size()), m, d, tails.data(),
                                             heads.data(), w.data(), x.data(), b.data());
            CHECK_NEAR(listed, wanted.value, 1e-13 * (1.0 + wanted.value));
            for (std::size_t k = 0; k < b.size(); ++k) CHECK_NEAR(b[k], wanted.b[k], 1e-13 * 30.0);
        }
}

TEST(the_tail_is_the_penalty) {
    const RadialPenalty scad{PenaltyKind::kScad, 3.0, 0.0}, mcp{PenaltyKind::kMcp, 2.0, 0.0};
    for (const RadialPenalty& g : {scad, mcp})
        for (double t = 0.0; t < 8.0; t += 0.03) {
            const ConcaveTail tail(g, 1.3);
            CHECK_NEAR(tail.value(t), g.value(t, 1.3), 1e-14);
            CHECK_NEAR(tail.slope(t), 1.3 - g.derivative(t, 1.3), 1e-14);
        }
}

TEST(a_penalty_that_is_not_concave_is_refused) {
    CHECK_THROWS(ConcaveTail({PenaltyKind::kSmoothedScad, 3.7, 0.1}, 1.0), std::invalid_argument,
                 "only Scad and Mcp");
}
