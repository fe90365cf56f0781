// Arithmetic on whole rows (n_features long) for methods that keep one vector a pair; compiled per
// instruction set like the sweeps.
#pragma once

#include "core/types.hpp"

namespace fusionopt {

template <class T>
struct PairRows {
    // out = xa - xb + keep * kept (kept may be null); returns ||out||^2.
    double (*difference)(const double* xa, const double* xb, const T* kept, double keep, double* out,
                         Index d);
    // A pair whose vector is kept in slot: now = new_factor * fresh, before = old_factor * slot,
    //     at_a += weight (now - drop_a before),  at_b -= weight (now - drop_b before),  slot = fresh.
    // fresh is rounded to T first, so that the sums stay those of what is kept.
    void (*renew)(const double* fresh, double new_factor, T* slot, double old_factor, double weight,
                  double drop_a, double drop_b, double* at_a, double* at_b, Index d);
    // The same for a pair that was not kept; before may be null for zero, slot null to keep nothing.
    void (*settle)(const double* fresh, double new_factor, const double* before, T* slot, double weight,
                   double drop_a, double drop_b, double* at_a, double* at_b, Index d);
    // The same for one that was kept and is not any more.
    void (*release)(const double* fresh, const T* slot, double old_factor, double weight, double drop_a,
                    double drop_b, double* at_a, double* at_b, Index d);
};

// Those of the instruction set that sweeps() has chosen.
template <class T>
const PairRows<T>& pair_rows();
template <>
const PairRows<double>& pair_rows<double>();
template <>
const PairRows<float>& pair_rows<float>();

}  // namespace fusionopt
