// Kernels of node losses as Python objects hold them: with the arrays that they view. For other rooms that
// take a loss: `py::arg("loss")` of type LossKernel&, and `loss.kernel()` in the core.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "bindings/arrays.hpp"
#include "core/loss_kernel.hpp"

namespace fusionopt::bindings {

class LossKernel {
  public:
    LossKernel(std::unique_ptr<const NodeLossKernel> kernel, std::vector<py::array> keep, int n_threads)
        : keep_(std::move(keep)), kernel_(std::move(kernel)), loop_(*kernel_, n_threads) {}

    const NodeLossKernel& kernel() const { return *kernel_; }
    // fn(loop) without the GIL, one caller at a time: the loop has one set of scratch arrays.
    template <class Function>
    void run(Function&& fn) {
        py::gil_scoped_release release;
        const std::lock_guard<std::mutex> lock(mutex_);
        fn(loop_);
    }

  private:
    std::vector<py::array> keep_;  // destroyed last
    std::unique_ptr<const NodeLossKernel> kernel_;
    NodeLossLoop loop_;
    std::mutex mutex_;
};

}  // namespace fusionopt::bindings
