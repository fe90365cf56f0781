// f_i(x) = (1/n_i) sum_s w_s phi(z_s'x; y_s) + ridge/2 sum_{k < n_ridge} x_k^2, for every family phi.
//
//     kSquared       (eta - y)^2 / 2
//     kLogistic      log(1 + exp(-y eta)),       y in {-1, 1}
//     kSquaredHinge  max(0, 1 - y eta)^2,        y in {-1, 1}
//     kHuber         h(eta - y), h(r) = r^2/2 for |r| <= delta, delta |r| - delta^2/2 beyond
//     kPoisson       exp(eta) - y eta,           y >= 0
//
// A free bias is a last column of -1 without ridge. O(samples * columns) a value or gradient, O(samples *
// columns^2) a Hessian; zeros of a CSR row cost nothing.
#pragma once

#include "core/loss_kernel.hpp"

namespace fusionopt {

enum class Family { kSquared, kLogistic, kSquaredHinge, kHuber, kPoisson };

class GlmKernel : public NodeLossKernel {
  public:
    GlmKernel(Family family, double delta, const SampleRows& rows, const double* targets, double ridge,
              Index n_ridge)
        : family_(family), delta_(delta), rows_(rows), targets_(targets), ridge_(ridge), n_ridge_(n_ridge) {}

    Index n_nodes() const override { return rows_.n_nodes; }
    Index n_features() const override { return rows_.n_columns; }
    Index scratch_size() const override { return 0; }
    double value(Index i, const double* x, double* scratch) const override;
    void gradient(Index i, const double* x, double* out, double* scratch) const override;
    Index n_samples(Index i) const override { return rows_.n_samples(i); }
    void samples(Index i, const double* x, double* out, double* scratch) const override;
    void hessian(Index i, const double* x, double* out, double* scratch) const override;

  private:
    Family family_;
    double delta_;
    SampleRows rows_;
    const double* targets_;
    double ridge_;
    Index n_ridge_;
};

}  // namespace fusionopt
