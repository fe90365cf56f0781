#include "bindings/register.hpp"
#include "core/sweep.hpp"

PYBIND11_MODULE(_core, module) {
    module.doc() = "Compiled kernels of fusionopt. Private: use fusionopt.solve.";
    module.def(
        "instruction_set", [] { return std::string(fusionopt::sweeps().name); },
        "Name of the compiled sweeps in use.");
    fusionopt::bindings::register_implicit(module);
    fusionopt::bindings::register_admm(module);
    fusionopt::bindings::register_losses(module);
    fusionopt::bindings::register_penalty(module);
    fusionopt::bindings::register_pdmm(module);
    fusionopt::bindings::register_timing(module);
    fusionopt::bindings::register_fpfc(module);
}
