// Node losses f_i(x) = 1/2 x' H_i x - q_i' x, plus one constant for all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/linear.hpp"

namespace fusionopt {

// H_i is h_i I (scalar) or dense, then given by its eigenvectors (columns of basis_i) and eigenvalues; an
// eigenvalue that is zero up to rounding must be passed as exactly 0, and q_i must lie in the range of H_i.
// Arrays are row-major: q [m][d], basis and hessian [m][d][d].
class QuadraticLoss {
  public:
    Index n_nodes = 0;
    Index n_features = 0;
    bool dense = false;
    Vector eigenvalues;  // [m] when scalar, [m][d] when dense
    Vector basis;        // dense only
    Vector hessian;      // dense only
    Vector linear;       // q
    double constant = 0.0;
    bool singular = false;  // some eigenvalue is zero

    double mean_eigenvalue() const;
    // The losses of some nodes alone, in that order, without the constant.
    QuadraticLoss at_nodes(const std::vector<std::int32_t>& nodes) const;
    // out_i = H_i x_i
    void apply_node(Index i, const double* x, double* out) const;
    // out = (H_i + tau I)^-1 b, in place allowed; scratch holds d numbers. Directions with eigenvalue + tau =
    // 0 give 0.
    void solve_node(Index i, double tau, const double* b, double* out, double* scratch) const;
    // Removes from b its part in the range of H_i (keeps the null part); scratch holds d numbers.
    void null_part(Index i, double* b, double* scratch) const;

    struct Value {
        double value = 0.0;      // sum_i f_i(x_i) without the constant
        double magnitude = 0.0;  // sum of the absolute values of its terms
        double stat = 0.0;       // 1/2 sum_i ||grad f_i(x_i) + g_i||^2 in H_i^+
        double null = 0.0;       // largest |component| of grad f_i(x_i) + g_i outside the range of H_i
        double product = 0.0;    // <g, x>
        double residual = 0.0;   // max_i ||grad f_i(x_i) + g_i||
    };
    Value evaluate(const Vector& x, const Vector& g) const;
};

}  // namespace fusionopt
