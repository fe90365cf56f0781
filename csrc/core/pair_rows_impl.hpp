// The one body of pair_rows.hpp; included by sweep_*.cpp like sweep_impl.hpp (see there).
#include <type_traits>

#include "core/pair_rows.hpp"
#include "core/sweep_impl.hpp"

namespace fusionopt {
namespace FUSIONOPT_ISA_NAMESPACE {
namespace {

typedef Pack<double, static_cast<int>(kRowStep)> Run;
typedef Pack<double, kLanes> Half;

template <bool kKept, class T>
double square_of(const double* xa, const double* xb, const T* kept, double keep, Index n, const T* ahead) {
    const Run factor = splat<Run>(keep);
    Run squares = zero<Run>();
    if (ahead == nullptr) ahead = kept;
    for (Index k = 0; k < n; k += kRowStep) {
        __builtin_prefetch(ahead + k / 2, 1);
        Run u = load<Run>(xa + k) - load<Run>(xb + k);
        if constexpr (kKept) u = fma(factor, load<Run>(kept + k), u);
        squares = fma(u, u, squares);
    }
    return sum(squares);
}

template <class T>
double row_square(const double* xa, const double* xb, const T* kept, double keep, Index n, const T* ahead) {
    if (kept == nullptr) return square_of<false>(xa, xb, kept, keep, n, ahead);
    return square_of<true>(xa, xb, kept, keep, n, ahead);
}

template <bool kBefore, bool kAfter, bool kOwn, class T>
void move_as(const PairMove<T>& p) {
    const Half keep = splat<Half>(p.keep), now = splat<Half>(p.now), less = splat<Half>(p.less);
    const double *xa = p.xa, *xb = p.xb, *was_a = p.was_a, *was_b = p.was_b;
    double *at_active = p.at_active, *at_other = p.at_other;
    T* const slot = p.slot;
    const T* const ahead = p.ahead == nullptr ? slot : p.ahead + p.n / 2;
    const Index n = p.n;
    const auto step = [&](Index k) {
        Half before, fresh = load<Half>(xa + k) - load<Half>(xb + k);
        if constexpr (kBefore) {
            before = load<Half>(slot + k);
            fresh = fma(keep, before, fresh);
        } else {
            before = load<Half>(was_a + k) - load<Half>(was_b + k);
        }
        if constexpr (kAfter) {
            store(slot + k, fresh);
            if constexpr (sizeof(T) != sizeof(double)) fresh = load<Half>(slot + k);
        }
        const Half change = now * fresh, least = fnma(less, before, change);
        store(at_active + k, load<Half>(at_active + k) + (kOwn ? least : change));
        store(at_other + k, load<Half>(at_other + k) - least);
    };
    for (Index k = 0; k < n; k += kRowStep) {
        __builtin_prefetch(ahead + k / 2, 1);
        step(k);
        step(k + kLanes);
    }
}

template <bool kBefore, bool kAfter, class T>
void row_move(const PairMove<T>& p) {
    p.own ? move_as<kBefore, kAfter, true>(p) : move_as<kBefore, kAfter, false>(p);
}

template <class T>
constexpr PairRows<T> kPairRows{row_square<T>, row_move<true, true, T>, row_move<true, false, T>,
                                row_move<false, true, T>, row_move<false, false, T>};

}  // namespace

const PairRows<double>& pair_rows(double) { return kPairRows<double>; }
const PairRows<float>& pair_rows(float) { return kPairRows<float>; }

}  // namespace FUSIONOPT_ISA_NAMESPACE
}  // namespace fusionopt
