// NumPy arrays to core vectors and back; shapes are checked here so that the core may trust them.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace fusionopt::bindings {

namespace py = pybind11;

template <class T>
using Array = py::array_t<T, py::array::c_style>;

// A copy, so that the caller's array is free to change once the GIL is released.
template <class T>
std::vector<T> to_vector(const char* name, const Array<T>& array, const std::vector<Index>& shape) {
    bool fits = array.ndim() == static_cast<py::ssize_t>(shape.size());
    for (std::size_t k = 0; fits && k < shape.size(); ++k)
        fits = array.shape(static_cast<py::ssize_t>(k)) == shape[k];
    if (!fits) {
        std::string wanted = "(";
        for (const Index n : shape) wanted += std::to_string(n) + ",";
        throw std::invalid_argument(std::string(name) + " must have shape " + wanted + ")");
    }
    return std::vector<T>(array.data(), array.data() + array.size());
}

inline py::array_t<double> to_matrix(const std::vector<double>& values, Index rows, Index columns) {
    py::array_t<double> out({rows, columns});
    std::copy_n(values.data(), rows * columns, out.mutable_data());
    return out;
}

}  // namespace fusionopt::bindings
