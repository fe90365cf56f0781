#include "bindings/arrays.hpp"
#include "bindings/register.hpp"
#include "core/penalty.hpp"

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
}

}  // namespace fusionopt::bindings
