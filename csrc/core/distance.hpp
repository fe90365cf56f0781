// f_i(x) = m_i h(||x - a_i||), h(r) = r^2/2 for r <= delta, delta r - delta^2/2 beyond; delta may be
// infinite. Cells of a_i that are NaN are missing and left out.
#pragma once

#include "core/loss_kernel.hpp"

namespace fusionopt {

class DistanceKernel : public NodeLossKernel {
  public:
    // targets [m][d], weights [m]: views.
    DistanceKernel(const double* targets, const double* weights, Index n_nodes, Index n_features,
                   double delta)
        : targets_(targets), weights_(weights), m_(n_nodes), d_(n_features), delta_(delta) {}

    Index n_nodes() const override { return m_; }
    Index n_features() const override { return d_; }
    Index scratch_size() const override { return d_; }
    double value(Index i, const double* x, double* scratch) const override;
    void gradient(Index i, const double* x, double* out, double* scratch) const override;
    Index n_samples(Index) const override { return 1; }
    void samples(Index i, const double* x, double* out, double* scratch) const override;
    void hessian(Index i, const double* x, double* out, double* scratch) const override;

  private:
    // away [d] <- x - a_i, 0 where missing; its length.
    double residual(Index i, const double* x, double* away) const;

    const double* targets_;
    const double* weights_;
    Index m_, d_;
    double delta_;
};

}  // namespace fusionopt
