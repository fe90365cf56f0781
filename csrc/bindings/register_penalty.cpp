#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "core/penalty.hpp"
#include "core/tilt.hpp"

namespace fusionopt::bindings {

void register_penalty(py::module_& module) {
    py::enum_<PenaltyKind>(module, "PenaltyKind")
        .value("L2Norm", PenaltyKind::kL2Norm)
        .value("SquaredL2", PenaltyKind::kSquaredL2)
        .value("Scad", PenaltyKind::kScad)
        .value("SmoothedScad", PenaltyKind::kSmoothedScad)
        .value("Mcp", PenaltyKind::kMcp);
    py::class_<RadialPenalty>(module, "RadialPenalty")
        .def(py::init(
                 [](PenaltyKind kind, double shape, double xi) { return RadialPenalty{kind, shape, xi}; }),
             py::arg("kind"), py::arg("shape"), py::arg("xi"))
        .def("value", py::vectorize([](const RadialPenalty* self, double t, double lam) {
                 return self->value(t, lam);
             }),
             py::arg("t"), py::arg("lam"))
        .def("derivative", py::vectorize([](const RadialPenalty* self, double t, double lam) {
                 return self->derivative(t, lam);
             }),
             py::arg("t"), py::arg("lam"))
        .def("prox", py::vectorize([](const RadialPenalty* self, double t, double lam, double step) {
                 return RadialProx(*self, lam, step)(t);
             }),
             py::arg("t"), py::arg("lam"), py::arg("step"));

    module.def(
        "tilt_complete",
        [](const RadialPenalty& penalty, double lam, const Array<double>& x, const Array<double>& r) {
            const Index m = x.ndim() == 2 ? x.shape(0) : 0, d = x.ndim() == 2 ? x.shape(1) : 0;
            const std::vector<double> points = to_vector("x", x, {m, d}), masses = to_vector("r", r, {m});
            const ConcaveTail tail(penalty, lam);
            py::array_t<double> out({m, d});
            double* sums = out.mutable_data();
            double value = 0.0;
            {
                py::gil_scoped_release release;
                const Index stride = round_up(m);
                Buffer columns(d * stride), weights(stride), tilts(d * stride);
                std::copy_n(masses.data(), m, weights.data());
                for (Index i = 0; i < m; ++i)
                    for (Index k = 0; k < d; ++k)
                        columns[k * stride + i] = points[static_cast<std::size_t>(i * d + k)];
                value = tilt_complete(tail, m, d, stride, columns.data(), weights.data(), tilts.data());
                for (Index i = 0; i < m; ++i)
                    for (Index k = 0; k < d; ++k) sums[i * d + k] = tilts[k * stride + i];
            }
            return py::make_tuple(out, value);
        },
        py::arg("penalty"), py::arg("lam"), py::arg("x"), py::arg("r"));
    module.def(
        "tilt_edges",
        [](const RadialPenalty& penalty, double lam, const Array<std::int32_t>& tail,
           const Array<std::int32_t>& head, const Array<double>& weights, const Array<double>& x) {
            const Index m = x.ndim() == 2 ? x.shape(0) : 0, d = x.ndim() == 2 ? x.shape(1) : 0,
                        n = tail.size();
            const std::vector<double> points = to_vector("x", x, {m, d}),
                                      w = to_vector("weights", weights, {n});
            const std::vector<std::int32_t> from = to_vector("tail", tail, {n}),
                                            to = to_vector("head", head, {n});
            for (std::size_t e = 0; e < from.size(); ++e)
                if (from[e] < 0 || from[e] >= m || to[e] < 0 || to[e] >= m)
                    throw std::invalid_argument("edges must name nodes 0 .. n_nodes - 1");
            const ConcaveTail concave(penalty, lam);
            py::array_t<double> out({m, d});
            double* sums = out.mutable_data();
            double value = 0.0;
            {
                py::gil_scoped_release release;
                value = tilt_edges(concave, n, m, d, from.data(), to.data(), w.data(), points.data(), sums);
            }
            return py::make_tuple(out, value);
        },
        py::arg("penalty"), py::arg("lam"), py::arg("tail"), py::arg("head"), py::arg("weights"),
        py::arg("x"));
}

}  // namespace fusionopt::bindings
