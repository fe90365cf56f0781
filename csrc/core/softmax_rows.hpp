// The multinomial loss and its gradient over dense rows, in blocks of samples whose scores stay in registers;
// compiled per instruction set like the sweeps. Every sum runs over columns or samples in their order,
// whatever the width of the registers.
#pragma once

#include "core/types.hpp"

namespace fusionopt {

struct SoftmaxRows {
    const double* z = nullptr;  // [n][p]
    const double* weights = nullptr;
    const Index* classes = nullptr;
    Index n = 0, p = 0, n_classes = 0;  // n_classes <= kSoftmaxClasses

    static Index scratch_size(Index p, Index n_classes) {
        return 2 * p * round_up(n_classes) + 4 * round_up(n_classes);
    }
};

inline constexpr Index kSoftmaxClasses = 4 * kLanes;

// out [p][C] <- sum_s w_s z_s (pi_s - e_{y_s})', x [p][C]. The entry of y is minus the sum of the others.
void softmax_gradient(const SoftmaxRows& rows, const double* x, double* out, double* scratch);

// sum_s w_s l_s; out [n] <- l_s = log sum_c exp(z_s'X_c) - z_s'X_{y_s} where it is not null.
double softmax_losses(const SoftmaxRows& rows, const double* x, double* out, double* scratch);

}  // namespace fusionopt
