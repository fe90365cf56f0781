#include "core/loss_kernel.hpp"

namespace fusionopt {

NodeLossLoop::NodeLossLoop(const NodeLossKernel& kernel, int n_threads)
    : kernel_(kernel), pool_(n_threads), stride_(round_up(kernel.scratch_size() + kernel.n_features() + 1)) {
    scratch_ = Buffer(stride_ * pool_.n_workers());
}

template <class Function>
void NodeLossLoop::each(const Index* active, Index count, Function&& fn) {
    const Chunks chunks = cut(count, 1, 64);
    pool_.parallel_for(chunks.count, [&](Index c, int worker) {
        double* scratch = scratch_.data() + stride_ * worker;
        for (Index k = chunks.begin(c); k < chunks.end(c); ++k)
            fn(k, active == nullptr ? k : active[k], scratch);
    });
}

void NodeLossLoop::values(const double* x, const Index* active, Index count, double* out) {
    const Index d = kernel_.n_features();
    each(active, count,
         [&](Index k, Index i, double* scratch) { out[k] = kernel_.value(i, x + i * d, scratch); });
}

void NodeLossLoop::gradients(const double* x, const Index* active, Index count, double* out) {
    const Index d = kernel_.n_features();
    each(active, count,
         [&](Index k, Index i, double* scratch) { kernel_.gradient(i, x + i * d, out + k * d, scratch); });
}

void NodeLossLoop::hessians(const double* x, const Index* active, Index count, double* out) {
    const Index d = kernel_.n_features();
    each(active, count,
         [&](Index k, Index i, double* scratch) { kernel_.hessian(i, x + i * d, out + k * d * d, scratch); });
}

void NodeLossLoop::descend(const double* x, const Index* active, Index count, const double* centre,
                           const double* modulus, const double* alpha, Index steps, double* out) {
    const Index d = kernel_.n_features();
    each(active, count, [&](Index k, Index i, double* scratch) {
        double *w = out + k * d, *slope = scratch + kernel_.scratch_size();
        const double* z = centre + k * d;
        for (Index c = 0; c < d; ++c) w[c] = x[i * d + c];
        for (Index t = 0; t < steps; ++t) {
            kernel_.gradient(i, w, slope, scratch);
            for (Index c = 0; c < d; ++c) w[c] -= alpha[k] * (slope[c] + modulus[k] * (w[c] - z[c]));
        }
    });
}

}  // namespace fusionopt
