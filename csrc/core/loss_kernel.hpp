// Node losses f_i as methods see them: value, gradient and Hessian of one node at a time, twins of
// fusionopt/losses.
//
// A kernel is read-only and holds views of its data: whoever makes it keeps the data alive. Every call may
// run in any thread, with a scratch array of its own; nothing is allocated. Rows of x are contiguous.
#pragma once

#include <vector>

#include "core/thread_pool.hpp"
#include "core/types.hpp"

namespace fusionopt {

class NodeLossKernel {
  public:
    virtual ~NodeLossKernel() = default;

    virtual Index n_nodes() const = 0;
    virtual Index n_features() const = 0;
    // Numbers that one call may overwrite in `scratch`.
    virtual Index scratch_size() const = 0;

    // f_i(x).
    virtual double value(Index i, const double* x, double* scratch) const = 0;
    // out [n_features] <- grad f_i(x); out and x may not overlap.
    virtual void gradient(Index i, const double* x, double* out, double* scratch) const = 0;
    // The number of samples of node i, and out [n_samples] <- the loss of each, without weights or ridge.
    virtual Index n_samples(Index i) const = 0;
    virtual void samples(Index i, const double* x, double* out, double* scratch) const = 0;
    // out [n_features][n_features] <- a generalised Hessian of f_i at x, symmetric.
    virtual void hessian(Index i, const double* x, double* out, double* scratch) const = 0;
};

// All samples of all nodes: rows of node i are offsets[i] .. offsets[i + 1] - 1, dense [N][p] (indices null)
// or CSR. Views.
struct SampleRows {
    const double* data = nullptr;
    const std::int32_t* indices = nullptr;
    const Index* row_starts = nullptr;
    Index n_columns = 0;
    const Index* offsets = nullptr;
    Index n_nodes = 0;
    const double* weights = nullptr;  // [N]

    Index n_samples(Index i) const { return offsets[i + 1] - offsets[i]; }
};

// A scratch for each worker of a pool, and loops over nodes: rows of x, values and outputs of the nodes named
// in `active` [count], or of all nodes where it is null. Outputs are in the order of `active`; x has a row
// for every node.
class NodeLossLoop {
  public:
    NodeLossLoop(const NodeLossKernel& kernel, int n_threads);
    void values(const double* x, const Index* active, Index count, double* out);
    void gradients(const double* x, const Index* active, Index count, double* out);
    void hessians(const double* x, const Index* active, Index count, double* out);
    // out: the samples of the first node, then those of the second, and so on; n_samples of them in all.
    void samples(const double* x, const Index* active, Index count, double* out);
    Index n_samples(const Index* active, Index count) const;

    // steps_k of gradient descent on f_i(x) + modulus_k / 2 ||x - centre_k||^2 with step length alpha_k, from
    // row i of x, for the k-th active node i: the local work of a federated round. centre and out:
    // [count][d].
    void descend(const double* x, const Index* active, Index count, const double* centre,
                 const double* modulus, const double* alpha, const Index* steps, double* out);

  private:
    template <class Function>
    void each(const Index* active, Index count, Function&& fn);

    const NodeLossKernel& kernel_;
    ThreadPool pool_;
    Buffer scratch_;
    std::vector<Index> starts_;
    Index stride_;
};

}  // namespace fusionopt
