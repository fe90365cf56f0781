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

Index NodeLossLoop::n_samples(const Index* active, Index count) const {
    Index total = 0;
    for (Index k = 0; k < count; ++k) total += kernel_.n_samples(active == nullptr ? k : active[k]);
    return total;
}

void NodeLossLoop::samples(const double* x, const Index* active, Index count, double* out) {
    const Index d = kernel_.n_features();
    starts_.assign(static_cast<std::size_t>(count), 0);
    for (Index k = 1; k < count; ++k)
        starts_[static_cast<std::size_t>(k)] = starts_[static_cast<std::size_t>(k - 1)] +
                                               kernel_.n_samples(active == nullptr ? k - 1 : active[k - 1]);
    each(active, count, [&](Index k, Index i, double* scratch) {
        kernel_.samples(i, x + i * d, out + starts_[static_cast<std::size_t>(k)], scratch);
    });
}

void NodeLossLoop::hessians(const double* x, const Index* active, Index count, double* out) {
    const Index d = kernel_.n_features();
    each(active, count,
         [&](Index k, Index i, double* scratch) { kernel_.hessian(i, x + i * d, out + k * d * d, scratch); });
}

void NodeLossLoop::descend(const double* x, const Index* active, Index count, const double* centre,
                           const double* modulus, const double* alpha, const Index* steps, double* out) {
    const Index d = kernel_.n_features();
    each(active, count, [&](Index k, Index i, double* scratch) {
        double *w = out + k * d, *slope = scratch + kernel_.scratch_size();
        const double* z = centre + k * d;
        for (Index c = 0; c < d; ++c) w[c] = x[i * d + c];
        for (Index t = 0; t < steps[k]; ++t) {
            kernel_.gradient(i, w, slope, scratch);
            for (Index c = 0; c < d; ++c) w[c] -= alpha[k] * (slope[c] + modulus[k] * (w[c] - z[c]));
        }
    });
}

}  // namespace fusionopt
