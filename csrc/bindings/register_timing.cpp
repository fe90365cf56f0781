#include <pybind11/stl.h>

#include "bindings/register.hpp"
#include "core/timing.hpp"

namespace py = pybind11;

namespace fusionopt::bindings {

void register_timing(py::module_& module) {
    module.def(
        "time_pair_sweep",
        [](Index n_nodes, Index n_features, bool narrow, int n_threads, int repeats) {
            SweepTimes times;
            {
                py::gil_scoped_release release;
                times = time_pair_sweep(n_nodes, n_features, narrow, n_threads, repeats);
            }
            py::dict out;
            out["sweep"] = times.sweep;
            out["check"] = times.check;
            out["stream"] = times.stream;
            out["bytes"] = times.bytes;
            return out;
        },
        py::arg("n_nodes"), py::arg("n_features"), py::arg("narrow"), py::arg("n_threads"),
        py::arg("repeats"));
}

}  // namespace fusionopt::bindings
