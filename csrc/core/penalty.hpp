// Radial pair penalties g(t; lam), t = ||u||_2 >= 0: value, derivative and prox, twins of
// fusionopt/penalties.
//
//     L2Norm        lam t
//     SquaredL2     lam t^2
//     Scad          lam t | lam t - (t - lam)^2 / (2 (a - 1)) | lam^2 (a + 1) / 2    with knees lam, a lam
//     SmoothedScad  lam t^2 / (2 xi) + xi lam / 2 for t <= min(xi, lam), Scad beyond
//     Mcp           lam t - t^2 / (2 gamma) | gamma lam^2 / 2                        with knee gamma lam
//
// Everything is inline, branch-free per t where that is possible, allocates nothing and is thread safe.
// Preconditions: t, lam, step >= 0 and finite; a > 2, gamma > 0, xi > 0.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace fusionopt {

enum class PenaltyKind { kL2Norm, kSquaredL2, kScad, kSmoothedScad, kMcp };

struct RadialPenalty {
    PenaltyKind kind = PenaltyKind::kL2Norm;
    double shape = 0.0;  // a of Scad and SmoothedScad, gamma of Mcp
    double xi = 0.0;     // SmoothedScad

    double value(double t, double lam) const {
        switch (kind) {
            case PenaltyKind::kL2Norm:
                return lam * t;
            case PenaltyKind::kSquaredL2:
                return lam * t * t;
            case PenaltyKind::kMcp: {
                const double within = std::min(t, shape * lam);
                return within * (lam - within / (2.0 * shape));
            }
            case PenaltyKind::kScad:
                return scad_value(t, lam);
            case PenaltyKind::kSmoothedScad: {
                const double half = std::min(xi, lam);
                return t <= half && half > 0.0 ? lam / 2.0 * (half + t * (t / half)) : scad_value(t, lam);
            }
        }
        return 0.0;
    }

    // In t; at t = 0 from the right.
    double derivative(double t, double lam) const {
        switch (kind) {
            case PenaltyKind::kL2Norm:
                return lam;
            case PenaltyKind::kSquaredL2:
                return 2.0 * lam * t;
            case PenaltyKind::kMcp:
                return std::max(lam - t / shape, 0.0);
            case PenaltyKind::kScad:
                return scad_derivative(t, lam);
            case PenaltyKind::kSmoothedScad: {
                const double half = std::min(xi, lam);
                return t <= half && half > 0.0 ? lam * (t / half) : scad_derivative(t, lam);
            }
        }
        return 0.0;
    }

  private:
    double scad_value(double t, double lam) const {
        const double within = std::min(t, shape * lam), past = std::max(within - lam, 0.0);
        return lam * within - past * (past / (2.0 * (shape - 1.0)));
    }
    double scad_derivative(double t, double lam) const {
        return std::min(std::max(shape * lam - t, 0.0) / (shape - 1.0), lam);
    }
};

// prox(t) = argmin over z >= 0 of g(z; lam) + (z - t)^2 / (2 step), for one lam and step (step = 1 / rho).
// At a tie the smaller z. Every prox here is piecewise linear with at most four pieces:
//
//     slope t                            t <= near_end
//     t - shift                          near_end < t <= soft_end
//     t - gain (knee - t), clipped       soft_end < t <= middle_end
//     t                                  beyond
//
// Where the prox jumps (step >= a - 1, step >= gamma) all ends that lie beyond the jump are moved to it.
class RadialProx {
  public:
    RadialProx(const RadialPenalty& penalty, double lam, double step) {
        const double shape = penalty.shape, reach = lam * step;
        switch (penalty.kind) {
            case PenaltyKind::kL2Norm:
                pieces(0.0, reach, std::numeric_limits<double>::infinity());
                shift_ = reach;
                break;
            case PenaltyKind::kSquaredL2:
                pieces(1.0 / (1.0 + 2.0 * lam * step), std::numeric_limits<double>::infinity(), 0.0);
                break;
            case PenaltyKind::kMcp:
                if (step < shape) {
                    pieces(0.0, reach, reach);
                    middle(shape * lam, step / (shape - step), 0.0);
                } else {
                    pieces(0.0, lam * std::sqrt(shape * step), 0.0);
                }
                break;
            case PenaltyKind::kScad:
            case PenaltyKind::kSmoothedScad: {
                const bool smooth = penalty.kind == PenaltyKind::kSmoothedScad;
                const double xi = smooth ? std::min(penalty.xi, lam) : 0.0;
                const double slope = xi + reach > 0.0 ? xi / (xi + reach) : 1.0;
                shift_ = reach;
                if (step < shape - 1.0) {
                    pieces(slope, xi + reach, lam + reach);
                    middle(shape * lam, step / ((shape - 1.0) - step), lam);
                    break;
                }
                double jump = lam * (shape + 1.0) / 2.0 + reach / 2.0;
                if (jump - reach < xi) jump = lam * std::sqrt((shape + 1.0 - xi / lam) * (xi / lam + step));
                pieces(slope, std::min(xi + reach, jump), jump);
                break;
            }
        }
    }

    double operator()(double t) const {
        const double bent = std::min(std::max(t - gain_ * std::max(knee_ - t, 0.0), floor_), t);
        double z = t <= middle_end_ ? bent : t;
        z = t <= soft_end_ ? t - shift_ : z;
        return t <= near_end_ ? slope_ * t : z;
    }

  private:
    void pieces(double slope, double near_end, double soft_end) {
        slope_ = slope;
        near_end_ = near_end;
        soft_end_ = soft_end;
    }
    void middle(double knee, double gain, double floor) {
        knee_ = middle_end_ = knee;
        gain_ = gain;
        floor_ = floor;
    }

    double slope_ = 1.0, shift_ = 0.0, knee_ = 0.0, gain_ = 0.0, floor_ = 0.0;
    double near_end_ = 0.0, soft_end_ = 0.0, middle_end_ = 0.0;
};

}  // namespace fusionopt
