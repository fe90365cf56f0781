#include "core/distance.hpp"

#include <algorithm>
#include <cmath>

namespace fusionopt {

double DistanceKernel::residual(Index i, const double* x, double* away) const {
    const double* target = targets_ + i * d_;
    double square = 0.0;
    for (Index k = 0; k < d_; ++k) {
        away[k] = std::isnan(target[k]) ? 0.0 : x[k] - target[k];
        square += away[k] * away[k];
    }
    return std::sqrt(square);
}

double DistanceKernel::value(Index i, const double* x, double* scratch) const {
    double apart;
    samples(i, x, &apart, scratch);
    return weights_[i] * apart;
}

void DistanceKernel::samples(Index i, const double* x, double* out, double* scratch) const {
    const double r = residual(i, x, scratch), inside = std::min(r, delta_);
    *out = inside * (r - 0.5 * inside);
}

void DistanceKernel::gradient(Index i, const double* x, double* out, double*) const {
    const double r = residual(i, x, out), pull = weights_[i] * (r > delta_ ? delta_ / r : 1.0);
    for (Index k = 0; k < d_; ++k) out[k] *= pull;
}

void DistanceKernel::hessian(Index i, const double* x, double* out, double* scratch) const {
    const double r = residual(i, x, scratch);
    const bool beyond = r > delta_;
    const double h = weights_[i] * (beyond ? delta_ / r : 1.0);
    for (Index j = 0; j < d_; ++j) {
        for (Index k = 0; k < d_; ++k) {
            const double along = beyond ? (scratch[j] / r) * (scratch[k] / r) : 0.0;
            const bool felt = !std::isnan(targets_[i * d_ + j]);
            out[j * d_ + k] = h * ((j == k && felt ? 1.0 : 0.0) - along);
        }
    }
}

}  // namespace fusionopt
