// Arithmetic on whole rows (n_features long) for methods that keep one vector a pair; compiled per
// instruction set like the sweeps.
#pragma once

#include "core/types.hpp"

namespace fusionopt {

template <class T>
struct PairRows {
    // ||xa - xb + keep * kept||^2 (kept may be null). What lies at ahead [d] is fetched meanwhile, where it
    // is not null.
    double (*square)(const double* xa, const double* xb, const T* kept, double keep, Index d, const T* ahead);
    // A pair whose vector is kept in slot: fresh = xa - xb + keep * slot, now = new_factor * fresh, before =
    // old_factor * slot,
    //     at_a += weight (now - drop_a before),  at_b -= weight (now - drop_b before),  slot = fresh.
    // fresh is rounded to T first, so that the sums stay those of what is kept. It is worked out a second
    // time rather than kept from `square`: five rows then stay in the nearest cache.
    void (*renew)(const double* xa, const double* xb, double keep, double new_factor, T* slot,
                  double old_factor, double weight, double drop_a, double drop_b, double* at_a, double* at_b,
                  Index d);
    // The same for a pair that was not kept: fresh = xa - xb, before = was_a - was_b (null for zero); slot is
    // null to keep nothing.
    void (*settle)(const double* xa, const double* xb, double new_factor, const double* was_a,
                   const double* was_b, T* slot, double weight, double drop_a, double drop_b, double* at_a,
                   double* at_b, Index d);
    // As renew, for a pair that is not kept any more: now = fresh, and slot is left as it was.
    void (*release)(const double* xa, const double* xb, double keep, const T* slot, double old_factor,
                    double weight, double drop_a, double drop_b, double* at_a, double* at_b, Index d);
};

// Those of the instruction set that sweeps() has chosen.
template <class T>
const PairRows<T>& pair_rows();
template <>
const PairRows<double>& pair_rows<double>();
template <>
const PairRows<float>& pair_rows<float>();

}  // namespace fusionopt
