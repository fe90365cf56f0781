// One register_* function per room of the core.
#pragma once

#include <pybind11/pybind11.h>

namespace fusionopt::bindings {

void register_implicit(pybind11::module_& module);
void register_admm(pybind11::module_& module);
void register_losses(pybind11::module_& module);
void register_fpfc(pybind11::module_& module);
void register_penalty(pybind11::module_& module);
void register_pdmm(pybind11::module_& module);
void register_timing(pybind11::module_& module);

}  // namespace fusionopt::bindings
