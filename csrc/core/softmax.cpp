#include "core/softmax.hpp"

#include <algorithm>
#include <cmath>

namespace fusionopt {

namespace {

// fn(column, z) for the entries of row s; zeros of a dense row are passed over too.
template <class Function>
void each_entry(const SampleRows& rows, Index s, Function&& fn) {
    if (rows.indices != nullptr) {
        for (Index e = rows.row_starts[s]; e < rows.row_starts[s + 1]; ++e) fn(rows.indices[e], rows.data[e]);
        return;
    }
    const double* z = rows.data + s * rows.n_columns;
    for (Index j = 0; j < rows.n_columns; ++j)
        if (z[j] != 0.0) fn(j, z[j]);
}

}  // namespace

bool SoftmaxKernel::in_blocks() const { return rows_.indices == nullptr && n_classes_ <= kSoftmaxClasses; }

Index SoftmaxKernel::scratch_size() const {
    return in_blocks() ? SoftmaxRows::scratch_size(rows_.n_columns, n_classes_) : n_classes_;
}

double SoftmaxKernel::probabilities(Index s, const double* x, double* scratch) const {
    const Index C = n_classes_;
    std::fill_n(scratch, C, 0.0);
    each_entry(rows_, s, [&](Index j, double z) {
        const double* row = x + j * C;
        for (Index c = 0; c < C; ++c) scratch[c] += z * row[c];
    });
    const double top = *std::max_element(scratch, scratch + C), own = scratch[classes_[s]];
    double sum = 0.0;
    for (Index c = 0; c < C; ++c) sum += scratch[c] = std::exp(scratch[c] - top);
    for (Index c = 0; c < C; ++c) scratch[c] /= sum;
    if (top > own) return (top - own) + std::log(sum);
    // y has the largest score: the sum is 1 and small terms, whose logarithm must not be rounded away.
    double others = 0.0;
    for (Index c = 0; c < C; ++c) others += c == classes_[s] ? 0.0 : scratch[c];
    return std::log1p(others * sum);
}

SoftmaxRows SoftmaxKernel::block_rows(Index i) const {
    const Index begin = rows_.offsets[i], p = rows_.n_columns;
    return {
        rows_.data + begin * p, rows_.weights + begin, classes_ + begin, rows_.n_samples(i), p, n_classes_};
}

double SoftmaxKernel::value(Index i, const double* x, double* scratch) const {
    double fit = 0.0, square = 0.0;
    if (in_blocks())
        fit = softmax_losses(block_rows(i), x, nullptr, scratch);
    else
        for (Index s = rows_.offsets[i]; s < rows_.offsets[i + 1]; ++s)
            if (rows_.weights[s] > 0.0) fit += rows_.weights[s] * probabilities(s, x, scratch);
    const Index d = n_features();
    for (Index k = 0; k < d; ++k) square += x[k] * x[k];
    return fit / static_cast<double>(rows_.n_samples(i)) + 0.5 * ridge_ * square;
}

void SoftmaxKernel::samples(Index i, const double* x, double* out, double* scratch) const {
    if (in_blocks()) {
        softmax_losses(block_rows(i), x, out, scratch);
        return;
    }
    for (Index s = rows_.offsets[i]; s < rows_.offsets[i + 1]; ++s) *out++ = probabilities(s, x, scratch);
}

void SoftmaxKernel::gradient(Index i, const double* x, double* out, double* scratch) const {
    const Index d = n_features(), C = n_classes_;
    const double n = static_cast<double>(rows_.n_samples(i));
    if (in_blocks()) {
        softmax_gradient(block_rows(i), x, out, scratch);
        for (Index k = 0; k < d; ++k) out[k] = out[k] / n + ridge_ * x[k];
        return;
    }
    std::fill_n(out, d, 0.0);
    for (Index s = rows_.offsets[i]; s < rows_.offsets[i + 1]; ++s) {
        if (!(rows_.weights[s] > 0.0)) continue;
        probabilities(s, x, scratch);
        // The entry of y from the others, so that it does not cancel.
        double others = 0.0;
        for (Index c = 0; c < C; ++c) others += c == classes_[s] ? 0.0 : scratch[c];
        scratch[classes_[s]] = -others;
        const double w = rows_.weights[s];
        each_entry(rows_, s, [&](Index j, double z) {
            double* row = out + j * C;
            const double wz = w * z;
            for (Index c = 0; c < C; ++c) row[c] += wz * scratch[c];
        });
    }
    for (Index k = 0; k < d; ++k) out[k] = out[k] / n + ridge_ * x[k];
}

void SoftmaxKernel::hessian(Index i, const double* x, double* out, double* scratch) const {
    const Index d = n_features(), C = n_classes_;
    std::fill_n(out, d * d, 0.0);
    for (Index s = rows_.offsets[i]; s < rows_.offsets[i + 1]; ++s) {
        if (!(rows_.weights[s] > 0.0)) continue;
        probabilities(s, x, scratch);
        const double w = rows_.weights[s];
        // Rows j and columns k <= j of (diag(pi) - pi pi') (x) z z'.
        each_entry(rows_, s, [&](Index j, double zj) {
            each_entry(rows_, s, [&](Index k, double zk) {
                if (k > j) return;
                for (Index a = 0; a < C; ++a) {
                    double* row = out + (j * C + a) * d + k * C;
                    const double t = w * zj * zk * scratch[a];
                    for (Index b = 0; b < C; ++b) row[b] -= t * scratch[b];
                    row[a] += t;
                }
            });
        });
    }
    const double n = static_cast<double>(rows_.n_samples(i));
    for (Index a = 0; a < d; ++a) {
        for (Index b = 0; b <= a; ++b) {
            const double entry = out[a * d + b] / n + (a == b ? ridge_ : 0.0);
            out[a * d + b] = out[b * d + a] = entry;
        }
    }
}

}  // namespace fusionopt
