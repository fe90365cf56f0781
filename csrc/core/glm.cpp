#include "core/glm.hpp"

#include <algorithm>
#include <cmath>

#include "core/sample_rows.hpp"

namespace fusionopt {

namespace {

struct Squared {
    double value(double eta, double y) const { return 0.5 * (eta - y) * (eta - y); }
    double slope(double eta, double y) const { return eta - y; }
    double curvature(double, double) const { return 1.0; }
};

struct Logistic {
    // The exponential of -|m| never overflows.
    double value(double eta, double y) const {
        const double m = y * eta;
        return std::max(-m, 0.0) + std::log1p(std::exp(-std::fabs(m)));
    }
    double slope(double eta, double y) const {
        const double m = y * eta, e = std::exp(-std::fabs(m));
        return -y * (m > 0.0 ? e : 1.0) / (1.0 + e);
    }
    double curvature(double eta, double) const {
        const double e = std::exp(-std::fabs(eta));
        return e / ((1.0 + e) * (1.0 + e));
    }
};

struct SquaredHinge {
    double value(double eta, double y) const {
        const double short_by = std::max(1.0 - y * eta, 0.0);
        return short_by * short_by;
    }
    double slope(double eta, double y) const { return -2.0 * y * std::max(1.0 - y * eta, 0.0); }
    double curvature(double eta, double y) const { return y * eta < 1.0 ? 2.0 : 0.0; }
};

struct HuberLoss {
    double delta;
    double value(double eta, double y) const {
        const double r = std::fabs(eta - y), inside = std::min(r, delta);
        return inside * (r - 0.5 * inside);
    }
    double slope(double eta, double y) const { return std::min(std::max(eta - y, -delta), delta); }
    double curvature(double eta, double y) const { return std::fabs(eta - y) <= delta ? 1.0 : 0.0; }
};

struct PoissonLoss {
    double value(double eta, double y) const { return std::exp(eta) - y * eta; }
    double slope(double eta, double y) const { return std::exp(eta) - y; }
    double curvature(double eta, double) const { return std::exp(eta); }
};

// One body for all families: fn gets the family as a type, so that phi is inlined into its loop.
template <class Function>
auto with_family(Family family, double delta, Function&& fn) {
    switch (family) {
        case Family::kLogistic:
            return fn(Logistic{});
        case Family::kSquaredHinge:
            return fn(SquaredHinge{});
        case Family::kHuber:
            return fn(HuberLoss{delta});
        case Family::kPoisson:
            return fn(PoissonLoss{});
        default:
            return fn(Squared{});
    }
}

}  // namespace

double GlmKernel::value(Index i, const double* x, double*) const {
    const double fit = with_family(family_, delta_, [&](const auto& phi) {
        double sum = 0.0;
        for (Index s = rows_.offsets[i]; s < rows_.offsets[i + 1]; ++s)
            if (rows_.weights[s] > 0.0)
                sum += rows_.weights[s] * phi.value(row_dot(rows_, s, x), targets_[s]);
        return sum;
    });
    double square = 0.0;
    for (Index k = 0; k < n_ridge_; ++k) square += x[k] * x[k];
    return fit / static_cast<double>(rows_.n_samples(i)) + 0.5 * ridge_ * square;
}

void GlmKernel::gradient(Index i, const double* x, double* out, double*) const {
    const Index p = rows_.n_columns;
    std::fill_n(out, p, 0.0);
    with_family(family_, delta_, [&](const auto& phi) {
        for (Index s = rows_.offsets[i]; s < rows_.offsets[i + 1]; ++s) {
            const double pull = rows_.weights[s] > 0.0
                                    ? rows_.weights[s] * phi.slope(row_dot(rows_, s, x), targets_[s])
                                    : 0.0;
            if (pull != 0.0) row_add(rows_, s, pull, out);
        }
    });
    const double n = static_cast<double>(rows_.n_samples(i));
    for (Index k = 0; k < p; ++k) out[k] = out[k] / n + (k < n_ridge_ ? ridge_ * x[k] : 0.0);
}

void GlmKernel::samples(Index i, const double* x, double* out, double*) const {
    with_family(family_, delta_, [&](const auto& phi) {
        for (Index s = rows_.offsets[i]; s < rows_.offsets[i + 1]; ++s)
            *out++ = phi.value(row_dot(rows_, s, x), targets_[s]);
    });
}

void GlmKernel::hessian(Index i, const double* x, double* out, double*) const {
    const Index p = rows_.n_columns;
    std::fill_n(out, p * p, 0.0);
    with_family(family_, delta_, [&](const auto& phi) {
        for (Index s = rows_.offsets[i]; s < rows_.offsets[i + 1]; ++s) {
            const double bend = rows_.weights[s] > 0.0
                                    ? rows_.weights[s] * phi.curvature(row_dot(rows_, s, x), targets_[s])
                                    : 0.0;
            if (bend != 0.0) row_square(rows_, s, bend, out, p);
        }
    });
    const double n = static_cast<double>(rows_.n_samples(i));
    for (Index j = 0; j < p; ++j) {
        for (Index k = 0; k <= j; ++k) {
            const double entry = out[j * p + k] / n + (j == k && j < n_ridge_ ? ridge_ : 0.0);
            out[j * p + k] = out[k * p + j] = entry;
        }
    }
}

}  // namespace fusionopt
