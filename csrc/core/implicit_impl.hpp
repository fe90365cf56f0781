// The one body of the storage-free passes, compiled per instruction set like sweep_impl.hpp. Lanes run over
// targets, sources are broadcast: no sum crosses lanes, and a target's sum does not depend on its neighbours.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cmath>

#include "core/implicit.hpp"

namespace fusionopt {
namespace FUSIONOPT_ISA_NAMESPACE {
namespace {

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

// Partial sums over this many sources are kept in Real and then added up in float64.
constexpr Index kRun = 256;
// Sources handled together when the features do not fit in registers.
constexpr Index kGroup = 8;

template <class Real>
struct Pack;
template <>
struct Pack<float> {
    typedef float Type __attribute__((vector_size(kBytes), aligned(sizeof(float)), may_alias));
};
template <>
struct Pack<double> {
    typedef double Type __attribute__((vector_size(kBytes), aligned(sizeof(double)), may_alias));
};
template <class Real>
using Vec = typename Pack<Real>::Type;
template <class Real>
constexpr Index kWidth = static_cast<Index>(kBytes / sizeof(Real));

template <class Real>
inline Vec<Real> get(const Real* p) {
    return *reinterpret_cast<const Vec<Real>*>(p);
}
template <class Real>
inline void put(Real* p, Vec<Real> v) {
    *reinterpret_cast<Vec<Real>*>(p) = v;
}
template <class Real>
inline Vec<Real> all(Real v) {
    return v - Vec<Real>{};
}
template <class V>
inline V most(V a, V b) {
    return a > b ? a : b;
}

// y, within 4e-4 of 1 / sqrt(v), made good to a few units of rounding: with v y^2 = 1 - h the root is
// y (1 - h)^(-1/2) = y (1 + h / 2 + 3 h^2 / 8 + ...), and h^5 is less than a unit.
inline Vec<double> refined(Vec<double> v, Vec<double> y) {
    const Vec<double> h = 1.0 - v * y * y;
    return y + y * h * (0.5 + h * (0.375 + h * (0.3125 + h * 0.2734375)));
}

// 1 / sqrt(v) to a few units of rounding, or (rough) to about 4e-4, for v in the range of float32: points and
// delta are of unit size, and delta is not let below kLeastDelta.
inline Vec<double> inverse_root(Vec<double> v, bool rough) {
#if defined(__AVX512F__)
    Vec<double> y =
        reinterpret_cast<Vec<double>>(_mm512_maskz_rsqrt14_pd(0xFF, reinterpret_cast<__m512d>(v)));
    if (rough) return y;
    const Vec<double> half = 0.5 * v;
    y = y * (1.5 - half * y * y);
    return y * (1.5 - half * y * y);
#elif defined(__AVX2__)
    // A double root and a division would take as long as all the rest.
    const auto y = reinterpret_cast<Vec<double>>(
        _mm256_cvtps_pd(_mm_rsqrt_ps(_mm256_cvtpd_ps(reinterpret_cast<__m256d>(v)))));
    return rough ? y : refined(v, y);
#elif defined(__SSE2__)
    const auto y =
        reinterpret_cast<Vec<double>>(_mm_cvtps_pd(_mm_rsqrt_ps(_mm_cvtpd_ps(reinterpret_cast<__m128d>(v)))));
    return rough ? y : refined(v, y);
#else
    (void)rough;
    for (Index l = 0; l < kWidth<double>; ++l) v[l] = 1.0 / std::sqrt(v[l]);
    return v;
#endif
}
// sqrt(v) for 0 <= v in the same range; below the guard the error is less than 1e-17.
inline Vec<double> root(Vec<double> v) { return v * inverse_root(most(v, all(1e-34)), false); }

inline Vec<float> inverse_root(Vec<float> v, bool rough) {
#if defined(__AVX512F__)
    Vec<float> y = reinterpret_cast<Vec<float>>(_mm512_maskz_rsqrt14_ps(0xFFFF, reinterpret_cast<__m512>(v)));
#elif defined(__AVX2__)
    Vec<float> y = reinterpret_cast<Vec<float>>(_mm256_rsqrt_ps(reinterpret_cast<__m256>(v)));
#elif defined(__SSE2__)
    Vec<float> y = reinterpret_cast<Vec<float>>(_mm_rsqrt_ps(reinterpret_cast<__m128>(v)));
#else
    (void)rough;
    for (Index l = 0; l < kWidth<float>; ++l) v[l] = 1.0f / std::sqrt(v[l]);
    return v;
#endif
#if defined(__SSE2__)
    return rough ? y : y * (1.5f - 0.5f * v * y * y);
#endif
}

template <class Real>
inline void flush(double* to, Vec<Real> v) {
    for (Index l = 0; l < kWidth<Real>; ++l) to[l] += static_cast<double>(v[l]);
}

// D features in registers.
template <class Real, int D, bool weighted>
void small_gradient(PairPass<Real>& a) {
    using V = Vec<Real>;
    constexpr Index L = kWidth<Real>;
    const V least = all(static_cast<Real>(a.delta * a.delta)), one = all(Real(1)), zero{};
    for (Index i = a.first; i < a.last; i += L) {
        V x[D];
        for (int k = 0; k < D; ++k) {
            x[k] = get(a.x + k * a.stride + i);
            for (Index l = 0; l < L; ++l) a.out[k * a.out_stride + i + l] = 0.0;
        }
        for (Index l = 0; l < L; ++l) a.stiff[i + l] = a.inside[i + l] = a.energy[i + l] = 0.0;
        for (Index begin = 0; begin < a.n_sources; begin += kRun) {
            const Index end = begin + kRun < a.n_sources ? begin + kRun : a.n_sources;
            V sum[D] = {}, stiff = zero, inside = zero, energy = zero;
            for (Index j = begin; j < end; ++j) {
                V t[D], squared = zero;
                for (int k = 0; k < D; ++k) {
                    t[k] = x[k] - a.source_x[k * a.source_stride + j];
                    squared = k == 0 ? t[k] * t[k] : squared + t[k] * t[k];
                }
                const V reach = most(squared, least);
                V r = inverse_root(reach, false);
                V own = one;
                if constexpr (weighted) {
                    own = all(a.weight[j]);
                    r *= own;
                }
                for (int k = 0; k < D; ++k) sum[k] += r * t[k];
                stiff += r;
                inside += squared < least ? own : zero;
                energy += r * (squared + reach);
            }
            for (int k = 0; k < D; ++k) flush<Real>(a.out + k * a.out_stride + i, sum[k]);
            flush<Real>(a.stiff + i, stiff);
            flush<Real>(a.inside + i, inside);
            flush<Real>(a.energy + i, energy);
        }
    }
}

template <class Real, int D, bool weighted>
void small_product(PairPass<Real>& a) {
    using V = Vec<Real>;
    constexpr Index L = kWidth<Real>;
    const V least = all(static_cast<Real>(a.delta * a.delta)), zero{};
    const V curvature = all(static_cast<Real>(a.curvature));
    for (Index i = a.first; i < a.last; i += L) {
        V x[D], p[D];
        for (int k = 0; k < D; ++k) {
            x[k] = get(a.x + k * a.stride + i);
            p[k] = get(a.p + k * a.stride + i);
            for (Index l = 0; l < L; ++l) a.out[k * a.out_stride + i + l] = 0.0;
        }
        for (Index begin = 0; begin < a.n_sources; begin += kRun) {
            const Index end = begin + kRun < a.n_sources ? begin + kRun : a.n_sources;
            V sum[D] = {};
            for (Index j = begin; j < end; ++j) {
                V t[D], q[D], squared = zero, along = zero;
                for (int k = 0; k < D; ++k) {
                    t[k] = x[k] - a.source_x[k * a.source_stride + j];
                    q[k] = p[k] - a.source_p[k * a.source_stride + j];
                    squared = k == 0 ? t[k] * t[k] : squared + t[k] * t[k];
                    along = k == 0 ? t[k] * q[k] : along + t[k] * q[k];
                }
                const V reach = most(squared, least);
                V r = inverse_root(reach, true);
                along *= squared < least ? zero : curvature * r * r;
                if constexpr (weighted) r *= a.weight[j];
                for (int k = 0; k < D; ++k) sum[k] += r * (q[k] - along * t[k]);
            }
            for (int k = 0; k < D; ++k) flush<Real>(a.out + k * a.out_stride + i, sum[k]);
        }
    }
}

// Any number of features: kGroup sources at a time, differences formed twice rather than kept.
template <class Real, bool product>
void blocked(PairPass<Real>& a) {
    using V = Vec<Real>;
    constexpr Index L = kWidth<Real>;
    const Index d = a.n_features;
    const V least = all(static_cast<Real>(a.delta * a.delta)), zero{};
    const V curvature = all(static_cast<Real>(a.curvature));
    for (Index i = a.first; i < a.last; i += L) {
        for (Index k = 0; k < d; ++k)
            for (Index l = 0; l < L; ++l) a.out[k * a.out_stride + i + l] = 0.0;
        if constexpr (!product)
            for (Index l = 0; l < L; ++l) a.stiff[i + l] = a.inside[i + l] = a.energy[i + l] = 0.0;
        for (Index begin = 0; begin < a.n_sources; begin += kRun) {
            const Index end = begin + kRun < a.n_sources ? begin + kRun : a.n_sources;
            V stiff = zero, inside = zero, energy = zero;
            for (Index k = 0; k < d; ++k) put(a.scratch + k * L, zero);
            for (Index j = begin; j < end; j += kGroup) {
                const Index n = end - j < kGroup ? end - j : kGroup;
                V squared[kGroup], along[kGroup];
                const auto run = [&](auto count) {
                    const Index full = count;
                    for (Index g = 0; g < full; ++g) squared[g] = along[g] = zero;
                    for (Index k = 0; k < d; ++k) {
                        const V x = get(a.x + k * a.stride + i);
                        const Real* const source = a.source_x + k * a.source_stride + j;
                        if constexpr (product) {
                            const V p = get(a.p + k * a.stride + i);
                            const Real* const direction = a.source_p + k * a.source_stride + j;
                            for (Index g = 0; g < full; ++g) {
                                const V t = x - source[g];
                                squared[g] += t * t;
                                along[g] += t * (p - direction[g]);
                            }
                        } else {
                            for (Index g = 0; g < full; ++g) {
                                const V t = x - source[g];
                                squared[g] += t * t;
                            }
                        }
                    }
                    for (Index g = 0; g < full; ++g) {
                        const V reach = most(squared[g], least);
                        V r = inverse_root(reach, product);
                        if constexpr (product) along[g] *= squared[g] < least ? zero : curvature * r * r;
                        const Real own = a.weight != nullptr ? a.weight[j + g] : Real(1);
                        r *= own;
                        if constexpr (!product) {
                            stiff += r;
                            inside += squared[g] < least ? all(own) : zero;
                            energy += r * (squared[g] + reach);
                        }
                        squared[g] = r;
                    }
                    for (Index k = 0; k < d; ++k) {
                        const V x = get(a.x + k * a.stride + i);
                        const Real* const source = a.source_x + k * a.source_stride + j;
                        V even = get(a.scratch + k * L), odd = zero;
                        if constexpr (product) {
                            const V p = get(a.p + k * a.stride + i);
                            const Real* const direction = a.source_p + k * a.source_stride + j;
                            for (Index g = 0; g < full; ++g) {
                                V& sum = g % 2 == 0 ? even : odd;
                                sum += squared[g] * ((p - direction[g]) - along[g] * (x - source[g]));
                            }
                        } else {
                            for (Index g = 0; g < full; ++g) {
                                V& sum = g % 2 == 0 ? even : odd;
                                sum += squared[g] * (x - source[g]);
                            }
                        }
                        put(a.scratch + k * L, even + odd);
                    }
                };
                if (n == kGroup)
                    run(std::integral_constant<Index, kGroup>{});
                else
                    run(n);
            }
            for (Index k = 0; k < d; ++k) flush<Real>(a.out + k * a.out_stride + i, get(a.scratch + k * L));
            if constexpr (!product) {
                flush<Real>(a.stiff + i, stiff);
                flush<Real>(a.inside + i, inside);
                flush<Real>(a.energy + i, energy);
            }
        }
    }
}

template <class Real>
void gradient(PairPass<Real>& a) {
    const bool weighted = a.weight != nullptr;
    switch (a.n_features) {
        case 1:
            return weighted ? small_gradient<Real, 1, true>(a) : small_gradient<Real, 1, false>(a);
        case 2:
            return weighted ? small_gradient<Real, 2, true>(a) : small_gradient<Real, 2, false>(a);
        case 3:
            return weighted ? small_gradient<Real, 3, true>(a) : small_gradient<Real, 3, false>(a);
        case 4:
            return weighted ? small_gradient<Real, 4, true>(a) : small_gradient<Real, 4, false>(a);
        default:
            return blocked<Real, false>(a);
    }
}

template <class Real>
void product(PairPass<Real>& a) {
    const bool weighted = a.weight != nullptr;
    switch (a.n_features) {
        case 1:
            return weighted ? small_product<Real, 1, true>(a) : small_product<Real, 1, false>(a);
        case 2:
            return weighted ? small_product<Real, 2, true>(a) : small_product<Real, 2, false>(a);
        case 3:
            return weighted ? small_product<Real, 3, true>(a) : small_product<Real, 3, false>(a);
        case 4:
            return weighted ? small_product<Real, 4, true>(a) : small_product<Real, 4, false>(a);
        default:
            return blocked<Real, true>(a);
    }
}

void length(PairPass<double>& a) {
    using V = Vec<double>;
    constexpr Index L = kWidth<double>;
    const Index d = a.n_features;
    for (Index i = a.first; i < a.last; i += L) {
        V total{};
        for (Index begin = 0; begin < a.n_sources; begin += kRun) {
            const Index end = begin + kRun < a.n_sources ? begin + kRun : a.n_sources;
            V part{};
            for (Index j = begin; j < end; ++j) {
                V squared{};
                for (Index k = 0; k < d; ++k) {
                    const V t = get(a.x + k * a.stride + i) - a.source_x[k * a.source_stride + j];
                    squared += t * t;
                }
                part += a.weight[j] * root(squared);
            }
            total += part;
        }
        put(a.energy + i, total);
    }
}

}  // namespace

const ImplicitTable& implicit_table() {
    static const ImplicitTable out = {FUSIONOPT_ISA_NAME, &gradient<double>, &gradient<float>,
                                      &product<double>,   &product<float>,   &length};
    return out;
}

}  // namespace FUSIONOPT_ISA_NAMESPACE
}  // namespace fusionopt
