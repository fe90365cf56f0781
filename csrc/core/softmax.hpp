// f_i(X) = (1/n_i) sum_s w_s [log sum_c exp(z_s'X_c) - z_s'X_{y_s}] + ridge/2 ||X||^2, X [p][C] row-major.
#pragma once

#include "core/loss_kernel.hpp"
#include "core/softmax_rows.hpp"

namespace fusionopt {

class SoftmaxKernel : public NodeLossKernel {
  public:
    SoftmaxKernel(const SampleRows& rows, const Index* classes, Index n_classes, double ridge)
        : rows_(rows), classes_(classes), n_classes_(n_classes), ridge_(ridge) {}

    Index n_nodes() const override { return rows_.n_nodes; }
    Index n_features() const override { return rows_.n_columns * n_classes_; }
    Index scratch_size() const override;
    double value(Index i, const double* x, double* scratch) const override;
    void gradient(Index i, const double* x, double* out, double* scratch) const override;
    Index n_samples(Index i) const override { return rows_.n_samples(i); }
    void samples(Index i, const double* x, double* out, double* scratch) const override;
    void hessian(Index i, const double* x, double* out, double* scratch) const override;

  private:
    // scratch [C] <- the probabilities of sample s, and the log of their normaliser less the score of y.
    double probabilities(Index s, const double* x, double* scratch) const;

    bool in_blocks() const;
    SoftmaxRows block_rows(Index i) const;

    SampleRows rows_;
    const Index* classes_;
    Index n_classes_;
    double ridge_;
};

}  // namespace fusionopt
