// Products with one row z of a design, dense or CSR, for the kernels of sampled losses.
#pragma once

#include "core/loss_kernel.hpp"

namespace fusionopt {

// z'x.
inline double row_dot(const SampleRows& rows, Index s, const double* x) {
    if (rows.indices != nullptr) {
        double sum = 0.0;
        for (Index e = rows.row_starts[s]; e < rows.row_starts[s + 1]; ++e)
            sum += rows.data[e] * x[rows.indices[e]];
        return sum;
    }
    // In lanes by hand, so that it is vectorised without reordering.
    const double* z = rows.data + s * rows.n_columns;
    double lane[kLanes] = {};
    Index k = 0;
    for (; k + kLanes <= rows.n_columns; k += kLanes)
        for (Index l = 0; l < kLanes; ++l) lane[l] += z[k + l] * x[k + l];
    for (Index l = 0; k < rows.n_columns; ++k, ++l) lane[l] += z[k] * x[k];
    return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}

// out += a z.
inline void row_add(const SampleRows& rows, Index s, double a, double* out) {
    if (rows.indices != nullptr) {
        for (Index e = rows.row_starts[s]; e < rows.row_starts[s + 1]; ++e)
            out[rows.indices[e]] += a * rows.data[e];
        return;
    }
    const double* z = rows.data + s * rows.n_columns;
    for (Index k = 0; k < rows.n_columns; ++k) out[k] += a * z[k];
}

// Lower triangle of out [p][p], row stride `stride`: += a z z'.
inline void row_square(const SampleRows& rows, Index s, double a, double* out, Index stride) {
    if (rows.indices != nullptr) {
        for (Index e = rows.row_starts[s]; e < rows.row_starts[s + 1]; ++e)
            for (Index f = rows.row_starts[s]; f <= e; ++f)
                out[rows.indices[e] * stride + rows.indices[f]] += a * rows.data[e] * rows.data[f];
        return;
    }
    const double* z = rows.data + s * rows.n_columns;
    for (Index j = 0; j < rows.n_columns; ++j) {
        const double aj = a * z[j];
        double* row = out + j * stride;
        for (Index k = 0; k <= j; ++k) row[k] += aj * z[k];
    }
}

}  // namespace fusionopt
