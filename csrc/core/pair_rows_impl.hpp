// The one body of pair_rows.hpp; included by sweep_*.cpp like sweep_impl.hpp (see there).
#include <type_traits>

#include "core/pair_rows.hpp"
#include "core/sweep_impl.hpp"

namespace fusionopt {
namespace FUSIONOPT_ISA_NAMESPACE {
namespace {

typedef float HalfLanes
    __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

inline Lanes load_any(const double* p) { return load(p); }
inline Lanes load_any(const float* p) {
    return __builtin_convertvector(*reinterpret_cast<const HalfLanes*>(p), Lanes);
}

template <class T>
double row_difference(const double* xa, const double* xb, const T* kept, double keep, double* out, Index d) {
    constexpr Index kStep = 2 * kLanes;
    Lanes first = splat(0.0), second = splat(0.0);
    const Lanes factor = splat(keep);
    double tail = 0.0;
    Index k = 0;
    if (kept == nullptr) {
        for (; k + kStep <= d; k += kStep) {
            const Lanes a = load(xa + k) - load(xb + k), b = load(xa + k + kLanes) - load(xb + k + kLanes);
            store(out + k, a);
            store(out + k + kLanes, b);
            first += a * a;
            second += b * b;
        }
        for (; k < d; ++k) {
            out[k] = xa[k] - xb[k];
            tail += out[k] * out[k];
        }
    } else {
        for (; k + kStep <= d; k += kStep) {
            const Lanes a = load(xa + k) - load(xb + k) + factor * load_any(kept + k);
            const Lanes b =
                load(xa + k + kLanes) - load(xb + k + kLanes) + factor * load_any(kept + k + kLanes);
            store(out + k, a);
            store(out + k + kLanes, b);
            first += a * a;
            second += b * b;
        }
        for (; k < d; ++k) {
            out[k] = xa[k] - xb[k] + keep * static_cast<double>(kept[k]);
            tail += out[k] * out[k];
        }
    }
    return sum(first + second) + tail;
}

template <class T>
inline double rounded(double value) {
    return static_cast<double>(static_cast<T>(value));
}

template <class T>
void row_renew(const double* __restrict fresh, double new_factor, T* __restrict slot, double old_factor,
               double weight, double drop_a, double drop_b, double* __restrict at_a, double* __restrict at_b,
               Index d) {
    const double now = weight * new_factor, a = weight * drop_a * old_factor,
                 b = weight * drop_b * old_factor;
    for (Index k = 0; k < d; ++k) {
        const double value = rounded<T>(fresh[k]), before = static_cast<double>(slot[k]);
        at_a[k] += now * value - a * before;
        at_b[k] -= now * value - b * before;
        slot[k] = static_cast<T>(fresh[k]);
    }
}

template <class T>
void row_settle(const double* __restrict fresh, double new_factor, const double* __restrict before,
                T* __restrict slot, double weight, double drop_a, double drop_b, double* __restrict at_a,
                double* __restrict at_b, Index d) {
    const double now = weight * new_factor, a = weight * drop_a, b = weight * drop_b;
    if (slot != nullptr) {
        for (Index k = 0; k < d; ++k) {
            const double value = now * rounded<T>(fresh[k]);
            at_a[k] += value;
            at_b[k] -= value;
            slot[k] = static_cast<T>(fresh[k]);
        }
    } else {
        for (Index k = 0; k < d; ++k) {
            at_a[k] += now * fresh[k];
            at_b[k] -= now * fresh[k];
        }
    }
    if (before == nullptr) return;
    for (Index k = 0; k < d; ++k) {
        at_a[k] -= a * before[k];
        at_b[k] += b * before[k];
    }
}

template <class T>
void row_release(const double* __restrict fresh, const T* __restrict slot, double old_factor, double weight,
                 double drop_a, double drop_b, double* __restrict at_a, double* __restrict at_b, Index d) {
    const double a = weight * drop_a * old_factor, b = weight * drop_b * old_factor;
    for (Index k = 0; k < d; ++k) {
        const double before = static_cast<double>(slot[k]);
        at_a[k] += weight * fresh[k] - a * before;
        at_b[k] -= weight * fresh[k] - b * before;
    }
}

template <class T>
constexpr PairRows<T> kPairRows{row_difference<T>, row_renew<T>, row_settle<T>, row_release<T>};

}  // namespace

const PairRows<double>& pair_rows(double) { return kPairRows<double>; }
const PairRows<float>& pair_rows(float) { return kPairRows<float>; }

}  // namespace FUSIONOPT_ISA_NAMESPACE
}  // namespace fusionopt
