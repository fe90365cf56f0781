// Arithmetic on whole rows for methods that keep one vector a pair; compiled per instruction set like the
// sweeps. Every row has a multiple of kRowStep numbers, zeros behind the last feature.
#pragma once

#include "core/types.hpp"

namespace fusionopt {

inline constexpr Index kRowStep = 2 * kLanes;
inline constexpr Index padded_row(Index d) { return (d + kRowStep - 1) / kRowStep * kRowStep; }

// One pair of an active node whose model is new: fresh = xa - xb + keep * before, rounded to T where it is
// kept,
//     at_active += now * fresh - (own ? less : 0) * before,  at_other -= now * fresh - less * before.
template <class T>
struct PairMove {
    const double *xa, *xb;
    double *at_active, *at_other;
    T* slot;                      // before, where it was kept; then fresh, where it is kept
    const double *was_a, *was_b;  // before = was_a - was_b, where it was not kept; keep is 0 then
    double keep, now, less;
    bool own;        // at_active loses less * before too; otherwise nothing
    Index n;         // length of the rows
    const T* ahead;  // the second half of this row is fetched meanwhile; may be null
};

template <class T>
struct PairRows {
    // ||xa - xb + keep * kept||^2 (kept may be null). The first half of the row at ahead is fetched
    // meanwhile, where it is not null: the row of the next pair then comes in while this one is worked on, in
    // `square` and in the move.
    double (*square)(const double* xa, const double* xb, const T* kept, double keep, Index n, const T* ahead);
    // fresh is worked out a second time rather than kept from `square`: five rows then stay in the nearest
    // cache.
    void (*renew)(const PairMove<T>&);    // kept before and after
    void (*release)(const PairMove<T>&);  // kept before only; slot is left as it was
    void (*create)(const PairMove<T>&);   // kept after only
    void (*pass)(const PairMove<T>&);     // not kept
};

// Those of the instruction set that sweeps() has chosen.
template <class T>
const PairRows<T>& pair_rows();
template <>
const PairRows<double>& pair_rows<double>();
template <>
const PairRows<float>& pair_rows<float>();

}  // namespace fusionopt
