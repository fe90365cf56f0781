// The one body of softmax_rows.hpp; included by sweep_*.cpp like sweep_impl.hpp (see there).
#include <algorithm>
#include <cmath>

#include "core/softmax_rows.hpp"
#include "core/sweep_impl.hpp"

namespace fusionopt {
namespace FUSIONOPT_ISA_NAMESPACE {
namespace {

// Scores of kBlock samples: kBlock x kWide lanes.
template <int kWide, int kBlock>
void scores(const double* z, Index p, const double* padded, double* out) {
    alignas(sizeof(double) * kLanes) Lanes sums[kBlock][kWide];
    for (int b = 0; b < kBlock; ++b)
        for (int w = 0; w < kWide; ++w) sums[b][w] = splat(0.0);
    for (Index j = 0; j < p; ++j) {
        const double* row = padded + j * kWide * kLanes;
        for (int w = 0; w < kWide; ++w) {
            const Lanes x = load(row + w * kLanes);
            for (int b = 0; b < kBlock; ++b) sums[b][w] += splat(z[b * p + j]) * x;
        }
    }
    for (int b = 0; b < kBlock; ++b)
        for (int w = 0; w < kWide; ++w) store(out + (b * kWide + w) * kLanes, sums[b][w]);
}

// padded += z_b r_b' for kBlock samples.
template <int kWide, int kBlock>
void add_outer(const double* z, Index p, const double* r, double* padded) {
    alignas(sizeof(double) * kLanes) Lanes pulls[kBlock][kWide];
    for (int b = 0; b < kBlock; ++b)
        for (int w = 0; w < kWide; ++w) pulls[b][w] = load(r + (b * kWide + w) * kLanes);
    for (Index j = 0; j < p; ++j) {
        double* row = padded + j * kWide * kLanes;
        for (int w = 0; w < kWide; ++w) {
            Lanes sum = load(row + w * kLanes);
            for (int b = 0; b < kBlock; ++b) sum += splat(z[b * p + j]) * pulls[b][w];
            store(row + w * kLanes, sum);
        }
    }
}

template <int kWide, int kBlock>
void softmax_block(const SoftmaxRows& rows, Index s, const double* padded, double* sums, double* r) {
    scores<kWide, kBlock>(rows.z + s * rows.p, rows.p, padded, r);
    const Index C = rows.n_classes;
    for (int b = 0; b < kBlock; ++b) {
        double* score = r + b * kWide * kLanes;
        const Index y = rows.classes[s + b];
        const double top = *std::max_element(score, score + C);
        double total = 0.0;
        for (Index c = 0; c < C; ++c) total += score[c] = std::exp(score[c] - top);
        const double scale = rows.weights[s + b] / total;
        score[y] = 0.0;
        double others = 0.0;
        for (Index c = 0; c < C; ++c) others += score[c] *= scale;
        score[y] = -others;
    }
    add_outer<kWide, kBlock>(rows.z + s * rows.p, rows.p, r, sums);
}

template <int kWide>
void softmax_wide(const SoftmaxRows& rows, const double* x, double* out, double* scratch) {
    const Index C = rows.n_classes, stride = kWide * kLanes;
    double *padded = scratch, *sums = padded + rows.p * stride, *r = sums + rows.p * stride;
    std::fill_n(scratch, SoftmaxRows::scratch_size(rows.p, C), 0.0);
    for (Index j = 0; j < rows.p; ++j) std::copy_n(x + j * C, C, padded + j * stride);
    Index s = 0;
    for (; s + 4 <= rows.n; s += 4) softmax_block<kWide, 4>(rows, s, padded, sums, r);
    for (; s < rows.n; ++s) softmax_block<kWide, 1>(rows, s, padded, sums, r);
    for (Index j = 0; j < rows.p; ++j) std::copy_n(sums + j * stride, C, out + j * C);
}

}  // namespace

void softmax_gradient(const SoftmaxRows& rows, const double* x, double* out, double* scratch) {
    switch (round_up(rows.n_classes) / kLanes) {
        case 1:
            return softmax_wide<1>(rows, x, out, scratch);
        case 2:
            return softmax_wide<2>(rows, x, out, scratch);
        case 3:
            return softmax_wide<3>(rows, x, out, scratch);
        default:
            return softmax_wide<4>(rows, x, out, scratch);
    }
}

}  // namespace FUSIONOPT_ISA_NAMESPACE
}  // namespace fusionopt
