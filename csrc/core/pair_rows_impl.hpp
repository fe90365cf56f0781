// The one body of pair_rows.hpp; included by sweep_*.cpp like sweep_impl.hpp (see there).
#include <type_traits>

#include "core/pair_rows.hpp"
#include "core/sweep_impl.hpp"

namespace fusionopt {
namespace FUSIONOPT_ISA_NAMESPACE {
namespace {

typedef Pack<double, 2 * kLanes> Run;
typedef Pack<double, kLanes> Half;

template <bool kKept, class T>
double square_of(const double* xa, const double* xb, const T* kept, double keep, Index d, const T* ahead) {
    constexpr Index kStep = 2 * kLanes, kLine = 64 / static_cast<Index>(sizeof(T));
    const Run factor = splat<Run>(keep);
    Run squares = zero<Run>();
    Index k = 0;
    for (; k + kStep <= d; k += kStep) {
        if (ahead != nullptr)
            for (Index line = 0; line < kStep; line += kLine) __builtin_prefetch(ahead + k + line, 1);
        Run u = load<Run>(xa + k) - load<Run>(xb + k);
        if constexpr (kKept) u = fma(factor, load<Run>(kept + k), u);
        squares = fma(u, u, squares);
    }
    if (ahead != nullptr && k < d) __builtin_prefetch(ahead + k, 1);
    double tail = 0.0;
    for (; k < d; ++k) {
        const double u = xa[k] - xb[k] + (kKept ? keep * static_cast<double>(kept[k]) : 0.0);
        tail += u * u;
    }
    return sum(squares) + tail;
}

template <class T>
double row_square(const double* xa, const double* xb, const T* kept, double keep, Index d, const T* ahead) {
    if (kept == nullptr) return square_of<false>(xa, xb, kept, keep, d, ahead);
    return square_of<true>(xa, xb, kept, keep, d, ahead);
}

// value rounded to T, by way of what is stored.
template <class T>
inline Half put(T* slot, const Half& value) {
    store(slot, value);
    return sizeof(T) == sizeof(double) ? value : load<Half>(slot);
}
template <class T>
inline double put(T* slot, double value) {
    *slot = static_cast<T>(value);
    return static_cast<double>(*slot);
}

template <class T>
void row_renew(const double* xa, const double* xb, double keep, double new_factor, T* slot, double old_factor,
               double weight, double drop_a, double drop_b, double* at_a, double* at_b, Index d) {
    const double now = weight * new_factor, a = weight * drop_a * old_factor,
                 b = weight * drop_b * old_factor;
    const Half factor = splat<Half>(keep), times = splat<Half>(now), less_a = splat<Half>(a),
               less_b = splat<Half>(b);
    Index k = 0;
    for (; k + kLanes <= d; k += kLanes) {
        const Half before = load<Half>(slot + k);
        const Half change =
            times * put(slot + k, fma(factor, before, load<Half>(xa + k) - load<Half>(xb + k)));
        store(at_a + k, load<Half>(at_a + k) + fnma(less_a, before, change));
        store(at_b + k, load<Half>(at_b + k) - fnma(less_b, before, change));
    }
    for (; k < d; ++k) {
        const double before = static_cast<double>(slot[k]);
        const double change = now * put(slot + k, xa[k] - xb[k] + keep * before);
        at_a[k] += change - a * before;
        at_b[k] -= change - b * before;
    }
}

template <class T>
void row_settle(const double* xa, const double* xb, double new_factor, const double* was_a,
                const double* was_b, T* slot, double weight, double drop_a, double drop_b, double* at_a,
                double* at_b, Index d) {
    const double now = weight * new_factor, a = was_a == nullptr ? 0.0 : weight * drop_a,
                 b = was_a == nullptr ? 0.0 : weight * drop_b;
    const double *from_a = was_a == nullptr ? xa : was_a, *from_b = was_a == nullptr ? xb : was_b;
    const Half times = splat<Half>(now), less_a = splat<Half>(a), less_b = splat<Half>(b);
    Index k = 0;
    for (; k + kLanes <= d; k += kLanes) {
        Half fresh = load<Half>(xa + k) - load<Half>(xb + k);
        if (slot != nullptr) fresh = put(slot + k, fresh);
        const Half before = load<Half>(from_a + k) - load<Half>(from_b + k), change = times * fresh;
        store(at_a + k, load<Half>(at_a + k) + fnma(less_a, before, change));
        store(at_b + k, load<Half>(at_b + k) - fnma(less_b, before, change));
    }
    for (; k < d; ++k) {
        double fresh = xa[k] - xb[k];
        if (slot != nullptr) fresh = put(slot + k, fresh);
        const double before = from_a[k] - from_b[k], change = now * fresh;
        at_a[k] += change - a * before;
        at_b[k] -= change - b * before;
    }
}

template <class T>
void row_release(const double* __restrict xa, const double* __restrict xb, double keep,
                 const T* __restrict slot, double old_factor, double weight, double drop_a, double drop_b,
                 double* __restrict at_a, double* __restrict at_b, Index d) {
    const double a = weight * drop_a * old_factor, b = weight * drop_b * old_factor;
    for (Index k = 0; k < d; ++k) {
        const double before = static_cast<double>(slot[k]);
        const double change = weight * (xa[k] - xb[k] + keep * before);
        at_a[k] += change - a * before;
        at_b[k] -= change - b * before;
    }
}

template <class T>
constexpr PairRows<T> kPairRows{row_square<T>, row_renew<T>, row_settle<T>, row_release<T>};

}  // namespace

const PairRows<double>& pair_rows(double) { return kPairRows<double>; }
const PairRows<float>& pair_rows(float) { return kPairRows<float>; }

}  // namespace FUSIONOPT_ISA_NAMESPACE
}  // namespace fusionopt
