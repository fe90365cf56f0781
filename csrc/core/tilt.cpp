#include "core/tilt.hpp"

#include <stdexcept>
#include <vector>

namespace fusionopt {

ConcaveTail::ConcaveTail(const RadialPenalty& penalty, double weight) : lam(weight) {
    if (penalty.kind == PenaltyKind::kScad) {
        start = lam;
        bend = penalty.shape - 1.0;
    } else if (penalty.kind == PenaltyKind::kMcp) {
        bend = penalty.shape;
    } else {
        throw std::invalid_argument("only Scad and Mcp are lam t minus a smooth convex function");
    }
}

double tilt_complete(const ConcaveTail& tail, Index n_nodes, Index n_features, Index stride, const double* x,
                     const double* r, double* out) {
    std::vector<double> sums(static_cast<std::size_t>(n_features * kLanes));
    double total = 0.0;
    for (Index i = 0; i < n_nodes; ++i) {
        std::fill(sums.begin(), sums.end(), 0.0);
        double values[kLanes] = {};
        for (Index j = 0; j < stride; j += kLanes) {
            double squares[kLanes] = {}, factors[kLanes];
            for (Index k = 0; k < n_features; ++k) {
                const double* row = x + k * stride;
                for (Index l = 0; l < kLanes; ++l) {
                    const double u = row[i] - row[j + l];
                    squares[l] += u * u;
                }
            }
            for (Index l = 0; l < kLanes; ++l) {
                const double t = std::sqrt(squares[l]);
                values[l] += r[j + l] * tail.value(t);
                factors[l] = t > 0.0 ? r[j + l] * tail.slope(t) / t : 0.0;
            }
            for (Index k = 0; k < n_features; ++k) {
                const double* row = x + k * stride;
                double* sum = sums.data() + k * kLanes;
                for (Index l = 0; l < kLanes; ++l) sum[l] += factors[l] * (row[i] - row[j + l]);
            }
        }
        double value = 0.0;
        for (Index l = 0; l < kLanes; ++l) value += values[l];
        total += r[i] * value;
        for (Index k = 0; k < n_features; ++k) {
            double sum = 0.0;
            for (Index l = 0; l < kLanes; ++l) sum += sums[static_cast<std::size_t>(k * kLanes + l)];
            out[k * stride + i] = sum;
        }
    }
    return total / 2.0;
}

double tilt_edges(const ConcaveTail& tail, Index n_edges, Index n_nodes, Index n_features,
                  const std::int32_t* tails, const std::int32_t* heads, const double* weights,
                  const double* x, double* out) {
    std::fill_n(out, n_nodes * n_features, 0.0);
    double total = 0.0;
    for (Index e = 0; e < n_edges; ++e) {
        const double *xi = x + tails[e] * n_features, *xj = x + heads[e] * n_features;
        double square = 0.0;
        for (Index k = 0; k < n_features; ++k) square += (xi[k] - xj[k]) * (xi[k] - xj[k]);
        const double t = std::sqrt(square);
        total += weights[e] * tail.value(t);
        if (!(t > 0.0)) continue;
        const double factor = weights[e] * tail.slope(t) / t;
        double *bi = out + tails[e] * n_features, *bj = out + heads[e] * n_features;
        for (Index k = 0; k < n_features; ++k) {
            const double pull = factor * (xi[k] - xj[k]);
            bi[k] += pull;
            bj[k] -= pull;
        }
    }
    return total;
}

}  // namespace fusionopt
