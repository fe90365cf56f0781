#include <pybind11/stl.h>

#include <optional>

#include "bindings/loss_kernels.hpp"
#include "bindings/register.hpp"
#include "core/distance.hpp"
#include "core/glm.hpp"
#include "core/softmax.hpp"

namespace fusionopt::bindings {

namespace {

using Keep = std::vector<py::array>;

template <class T>
const T* view(const char* name, const Array<T>& array, Index size, Keep& keep) {
    if (array.size() != size)
        throw std::invalid_argument(std::string(name) + " must hold " + std::to_string(size) + " numbers");
    keep.push_back(array);
    return array.data();
}

// A design dense (N, p), or CSR as (data, indices, row_starts) with n_columns.
SampleRows sample_rows(const Array<double>& data, const std::optional<Array<std::int32_t>>& indices,
                       const std::optional<Array<Index>>& row_starts, Index n_columns,
                       const Array<Index>& offsets, const Array<double>& weights, Keep& keep) {
    SampleRows rows;
    rows.n_columns = n_columns;
    rows.n_nodes = offsets.size() - 1;
    const Index n = offsets.data()[rows.n_nodes];
    rows.offsets = view("offsets", offsets, offsets.size(), keep);
    rows.weights = view("weights", weights, n, keep);
    if (indices) {
        rows.row_starts = view("row_starts", *row_starts, n + 1, keep);
        const Index stored = rows.row_starts[n];
        rows.data = view("data", data, stored, keep);
        rows.indices = view("indices", *indices, stored, keep);
    } else {
        rows.data = view("data", data, n * n_columns, keep);
    }
    return rows;
}

struct Asked {
    const double* x;
    const Index* active;  // null for all
    Index count;
};

Asked asked(const NodeLossKernel& kernel, const Array<double>& x, const std::optional<Array<Index>>& active) {
    if (x.ndim() != 2 || x.shape(0) != kernel.n_nodes() || x.shape(1) != kernel.n_features())
        throw std::invalid_argument("x must have shape (" + std::to_string(kernel.n_nodes()) + "," +
                                    std::to_string(kernel.n_features()) + ",)");
    if (!active) return {x.data(), nullptr, kernel.n_nodes()};
    for (Index k = 0; k < active->size(); ++k)
        if (active->data()[k] < 0 || active->data()[k] >= kernel.n_nodes())
            throw std::invalid_argument("active holds a node that does not exist");
    return {x.data(), active->data(), active->size()};
}

}  // namespace

void register_losses(py::module_& module) {
    py::enum_<Family>(module, "Family")
        .value("Squared", Family::kSquared)
        .value("Logistic", Family::kLogistic)
        .value("SquaredHinge", Family::kSquaredHinge)
        .value("Huber", Family::kHuber)
        .value("Poisson", Family::kPoisson);
    using Indices = std::optional<Array<std::int32_t>>;
    using Starts = std::optional<Array<Index>>;
    py::class_<LossKernel>(module, "LossKernel")
        .def_static(
            "glm",
            [](Family family, double delta, const Array<double>& data, const Indices& indices,
               const Starts& row_starts, Index n_columns, const Array<Index>& offsets,
               const Array<double>& weights, const Array<double>& targets, double ridge, Index n_ridge,
               int n_threads) {
                Keep keep;
                const SampleRows rows =
                    sample_rows(data, indices, row_starts, n_columns, offsets, weights, keep);
                const double* y = view("targets", targets, offsets.data()[rows.n_nodes], keep);
                auto kernel = std::make_unique<GlmKernel>(family, delta, rows, y, ridge, n_ridge);
                return std::make_unique<LossKernel>(std::move(kernel), std::move(keep), n_threads);
            },
            py::arg("family"), py::arg("delta"), py::arg("data"), py::arg("indices"), py::arg("row_starts"),
            py::arg("n_columns"), py::arg("offsets"), py::arg("weights"), py::arg("targets"),
            py::arg("ridge"), py::arg("n_ridge"), py::arg("n_threads"))
        .def_static(
            "softmax",
            [](const Array<double>& data, const Indices& indices, const Starts& row_starts, Index n_columns,
               const Array<Index>& offsets, const Array<double>& weights, const Array<Index>& classes,
               Index n_classes, double ridge, int n_threads) {
                Keep keep;
                const SampleRows rows =
                    sample_rows(data, indices, row_starts, n_columns, offsets, weights, keep);
                const Index* y = view("classes", classes, offsets.data()[rows.n_nodes], keep);
                auto kernel = std::make_unique<SoftmaxKernel>(rows, y, n_classes, ridge);
                return std::make_unique<LossKernel>(std::move(kernel), std::move(keep), n_threads);
            },
            py::arg("data"), py::arg("indices"), py::arg("row_starts"), py::arg("n_columns"),
            py::arg("offsets"), py::arg("weights"), py::arg("classes"), py::arg("n_classes"),
            py::arg("ridge"), py::arg("n_threads"))
        .def_static(
            "distance",
            [](const Array<double>& targets, const Array<double>& weights, double delta, int n_threads) {
                Keep keep;
                const Index m = targets.shape(0), d = targets.shape(1);
                const double* a = view("targets", targets, m * d, keep);
                const double* w = view("weights", weights, m, keep);
                auto kernel = std::make_unique<DistanceKernel>(a, w, m, d, delta);
                return std::make_unique<LossKernel>(std::move(kernel), std::move(keep), n_threads);
            },
            py::arg("targets"), py::arg("weights"), py::arg("delta"), py::arg("n_threads"))
        .def(
            "values",
            [](LossKernel& self, const Array<double>& x, const Starts& active) {
                const Asked at = asked(self.kernel(), x, active);
                py::array_t<double> out(at.count);
                double* to = out.mutable_data();
                self.run([&](NodeLossLoop& loop) { loop.values(at.x, at.active, at.count, to); });
                return out;
            },
            py::arg("x"), py::arg("active") = py::none())
        .def(
            "gradient",
            [](LossKernel& self, const Array<double>& x, const Starts& active) {
                const Asked at = asked(self.kernel(), x, active);
                py::array_t<double> out({at.count, self.kernel().n_features()});
                double* to = out.mutable_data();
                self.run([&](NodeLossLoop& loop) { loop.gradients(at.x, at.active, at.count, to); });
                return out;
            },
            py::arg("x"), py::arg("active") = py::none())
        .def(
            "samples",
            [](LossKernel& self, const Array<double>& x, const Starts& active) {
                const Asked at = asked(self.kernel(), x, active);
                Index total = 0;
                self.run([&](NodeLossLoop& loop) { total = loop.n_samples(at.active, at.count); });
                py::array_t<double> out(total);
                double* to = out.mutable_data();
                self.run([&](NodeLossLoop& loop) { loop.samples(at.x, at.active, at.count, to); });
                return out;
            },
            py::arg("x"), py::arg("active") = py::none())
        .def(
            "descend",
            [](LossKernel& self, const Array<double>& x, const Array<Index>& active,
               const Array<double>& centre, const Array<double>& modulus, const Array<double>& alpha,
               const Array<Index>& steps) {
                const Asked at = asked(self.kernel(), x, active);
                const Index d = self.kernel().n_features();
                if (centre.size() != at.count * d || modulus.size() != at.count || alpha.size() != at.count ||
                    steps.size() != at.count)
                    throw std::invalid_argument(
                        "centre, modulus, alpha and steps need an entry for each active node");
                py::array_t<double> out({at.count, d});
                double* to = out.mutable_data();
                const double *z = centre.data(), *m = modulus.data(), *a = alpha.data();
                const Index* n = steps.data();
                self.run(
                    [&](NodeLossLoop& loop) { loop.descend(at.x, at.active, at.count, z, m, a, n, to); });
                return out;
            },
            py::arg("x"), py::arg("active"), py::arg("centre"), py::arg("modulus"), py::arg("alpha"),
            py::arg("steps"))
        .def(
            "hessians",
            [](LossKernel& self, const Array<double>& x, const Starts& active) {
                const Asked at = asked(self.kernel(), x, active);
                const Index d = self.kernel().n_features();
                py::array_t<double> out({at.count, d, d});
                double* to = out.mutable_data();
                self.run([&](NodeLossLoop& loop) { loop.hessians(at.x, at.active, at.count, to); });
                return out;
            },
            py::arg("x"), py::arg("active") = py::none());
}

}  // namespace fusionopt::bindings
