// The one body of softmax_rows.hpp; included by sweep_*.cpp like sweep_impl.hpp (see there).
#include <algorithm>
#include <cmath>

#include "core/softmax_rows.hpp"
#include "core/sweep_impl.hpp"

namespace fusionopt {
namespace FUSIONOPT_ISA_NAMESPACE {
namespace {

typedef Register<double>::Type Wide;
constexpr int kWidth = FUSIONOPT_REGISTER / static_cast<int>(sizeof(double));

inline Wide get(const double* p) { return *reinterpret_cast<const Wide*>(p); }
inline void put(double* p, Wide v) { *reinterpret_cast<Wide*>(p) = v; }
inline Wide all(double v) { return v - Wide{}; }

// exp(x) for x <= 0 within about two units in the last place; 0 below -708, and nan where x is nan. 2^n is
// put into the exponent of the polynomial in r = x - n log 2, |r| <= log(2) / 2.
inline Wide exponential(Wide x) {
    const auto tiny = x < all(-708.0);
    x = tiny ? all(-708.0) : x;
    const Wide magic = all(6755399441055744.0);  // 1.5 2^52: adding it leaves round(.) in the lowest bits
    const Wide shifted = x * all(1.4426950408889634074) + magic, n = shifted - magic;
    const Wide r = (x - n * all(0.693145751953125)) - n * all(1.42860682030941723212e-6);
    Wide p = all(1.0 / 6227020800.0);
    for (const double c :
         {1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0, 1.0 / 5040.0,
          1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0})
        p = p * r + all(c);
    typedef Register<double>::Mask Bits;
    const Bits scaled = reinterpret_cast<Bits>(p) + (reinterpret_cast<Bits>(shifted) << 52);
    return tiny ? all(0.0) : reinterpret_cast<Wide>(scaled);
}

// Scores z'X_c of kBlock samples; kWide registers hold a sample's.
template <int kWide, int kBlock>
inline void scores(const double* z, Index p, const double* padded, double* out) {
    Wide sums[kBlock][kWide] = {};
    for (Index j = 0; j < p; ++j) {
        Wide x[kWide];
        FUSIONOPT_UNROLL
        for (int w = 0; w < kWide; ++w) x[w] = get(padded + (j * kWide + w) * kWidth);
        FUSIONOPT_UNROLL
        for (int b = 0; b < kBlock; ++b) {
            const Wide one = all(z[b * p + j]);
            FUSIONOPT_UNROLL
            for (int w = 0; w < kWide; ++w) sums[b][w] += one * x[w];
        }
    }
    FUSIONOPT_UNROLL
    for (int b = 0; b < kBlock; ++b) FUSIONOPT_UNROLL
    for (int w = 0; w < kWide; ++w) put(out + (b * kWide + w) * kWidth, sums[b][w]);
}

// padded += z_b r_b' for kBlock samples.
template <int kWide, int kBlock>
inline void add_outer(const double* z, Index p, const double* r, double* padded) {
    Wide pulls[kBlock][kWide];
    FUSIONOPT_UNROLL
    for (int b = 0; b < kBlock; ++b) FUSIONOPT_UNROLL
    for (int w = 0; w < kWide; ++w) pulls[b][w] = get(r + (b * kWide + w) * kWidth);
    for (Index j = 0; j < p; ++j) {
        Wide one[kBlock];
        FUSIONOPT_UNROLL
        for (int b = 0; b < kBlock; ++b) one[b] = all(z[b * p + j]);
        FUSIONOPT_UNROLL
        for (int w = 0; w < kWide; ++w) {
            double* at = padded + (j * kWide + w) * kWidth;
            Wide sum = get(at);
            FUSIONOPT_UNROLL
            for (int b = 0; b < kBlock; ++b) sum += one[b] * pulls[b][w];
            put(at, sum);
        }
    }
}

// score <- exp(score - top) with top the largest of the first n_classes, which is returned.
template <int kWide>
inline double exponentials(double* score, Index n_classes) {
    const double top = *std::max_element(score, score + n_classes);
    FUSIONOPT_UNROLL
    for (int w = 0; w < kWide; ++w) put(score + w * kWidth, exponential(get(score + w * kWidth) - all(top)));
    return top;
}

template <int kWide, int kBlock>
inline void gradient_block(const SoftmaxRows& rows, Index s, const double* padded, double* sums, double* r) {
    scores<kWide, kBlock>(rows.z + s * rows.p, rows.p, padded, r);
    for (int b = 0; b < kBlock; ++b) {
        double* score = r + b * kWide * kWidth;
        const Index y = rows.classes[s + b];
        exponentials<kWide>(score, rows.n_classes);
        double total = 0.0;
        for (Index c = 0; c < rows.n_classes; ++c) total += score[c];
        const double scale = rows.weights[s + b] / total;
        // The entry of y is minus the sum of the others, so that it does not cancel.
        score[y] = 0.0;
        double others = 0.0;
        for (Index c = 0; c < rows.n_classes; ++c) others += score[c] *= scale;
        score[y] = -others;
    }
    add_outer<kWide, kBlock>(rows.z + s * rows.p, rows.p, r, sums);
}

// Samples at a time such that sums, one row of X and one number of z fit the registers.
constexpr int kRegisters = FUSIONOPT_REGISTER == 64 ? 32 : 16;
template <int kWide>
constexpr int kSamples = (kRegisters - 1) / kWide > 5   ? 4
                         : (kRegisters - 1) / kWide > 2 ? 2
                                                        : 1;

template <int kWide>
void pad(const SoftmaxRows& rows, const double* x, double* padded) {
    constexpr Index stride = kWide * kWidth;
    for (Index j = 0; j < rows.p; ++j) {
        std::copy_n(x + j * rows.n_classes, rows.n_classes, padded + j * stride);
        std::fill(padded + j * stride + rows.n_classes, padded + (j + 1) * stride, 0.0);
    }
}

template <int kWide>
double gradient_wide(const SoftmaxRows& rows, const double* x, double* out, double* scratch) {
    constexpr Index stride = kWide * kWidth;
    constexpr int kBlock = kSamples<kWide>;
    double *padded = scratch, *sums = padded + rows.p * stride, *r = sums + rows.p * stride;
    pad<kWide>(rows, x, padded);
    std::fill_n(sums, rows.p * stride, 0.0);
    Index s = 0;
    for (; s + kBlock <= rows.n; s += kBlock) gradient_block<kWide, kBlock>(rows, s, padded, sums, r);
    for (; s < rows.n; ++s) gradient_block<kWide, 1>(rows, s, padded, sums, r);
    for (Index j = 0; j < rows.p; ++j)
        std::copy_n(sums + j * stride, rows.n_classes, out + j * rows.n_classes);
    return 0.0;
}

template <int kWide>
double losses_wide(const SoftmaxRows& rows, const double* x, double* out, double* scratch) {
    constexpr int kBlock = kSamples<kWide>;
    double *padded = scratch, *r = padded + rows.p * kWide * kWidth;
    pad<kWide>(rows, x, padded);
    double sum = 0.0;
    const auto take = [&](Index s, int b) {
        double* score = r + b * kWide * kWidth;
        const Index y = rows.classes[s];
        const double own = score[y], top = exponentials<kWide>(score, rows.n_classes), mine = score[y];
        double others = 0.0;
        score[y] = 0.0;
        for (Index c = 0; c < rows.n_classes; ++c) others += score[c];
        // Where y has the largest score its term is 1 and the others are small: their sum must not be rounded
        // away.
        const double loss = top > own ? (top - own) + std::log(others + mine) : std::log1p(others);
        if (rows.weights[s] > 0.0) sum += rows.weights[s] * loss;
        if (out != nullptr) out[s] = loss;
    };
    Index s = 0;
    for (; s + kBlock <= rows.n; s += kBlock) {
        scores<kWide, kBlock>(rows.z + s * rows.p, rows.p, padded, r);
        for (int b = 0; b < kBlock; ++b) take(s + b, b);
    }
    for (; s < rows.n; ++s) {
        scores<kWide, 1>(rows.z + s * rows.p, rows.p, padded, r);
        take(s, 0);
    }
    return sum;
}

// fn with the number of registers that hold the classes as a compile-time constant.
template <int kWide = 1, class Function>
double with_width(Index n_classes, const Function& fn) {
    if constexpr (kWide * kWidth < kSoftmaxClasses)
        if (n_classes > kWide * kWidth) return with_width<kWide + 1>(n_classes, fn);
    return fn(std::integral_constant<int, kWide>());
}

}  // namespace

void softmax_gradient(const SoftmaxRows& rows, const double* x, double* out, double* scratch) {
    with_width(rows.n_classes,
               [&](auto wide) { return gradient_wide<decltype(wide)::value>(rows, x, out, scratch); });
}

double softmax_losses(const SoftmaxRows& rows, const double* x, double* out, double* scratch) {
    return with_width(rows.n_classes,
                      [&](auto wide) { return losses_wide<decltype(wide)::value>(rows, x, out, scratch); });
}

}  // namespace FUSIONOPT_ISA_NAMESPACE
}  // namespace fusionopt
