#include "core/edge_newton.hpp"

#include <algorithm>
#include <cmath>

namespace fusionopt {

namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
constexpr double kGrowth = 5.0;  // of sigma from one outer iteration to the next
constexpr int kMaxOuter = 20;
constexpr int kMaxInner = 30;
constexpr int kMaxStalled = 3;  // outer iterations that hardly lower the gap
constexpr int kMaxHalvings = 20;
constexpr double kDigits = 1e-3;  // of the radius, that sigma (x_i - x_j) may lose in rounding
constexpr double kArmijo = 1e-4;
constexpr double kPasses = 6.0;  // over all edges in a step, its line search included

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// A point x with everything that depends on it at the present z and sigma.
struct State {
    Vector x, t, norm, g, gradient;
    double merit = 0.0, magnitude = 0.0;  // the augmented Lagrangian, and the absolute sum of its terms
    double slack = 0.0, stat = 0.0;       // the two parts of the gap
};

class Stage {
  public:
    Stage(const EdgeNewton& problem, SparseCholesky& factor, Vector& z)
        : p_(problem),
          factor_(factor),
          z_(z),
          n_(problem.loss.n_nodes),
          d_(problem.loss.n_features),
          diagonal_(at(n_ * d_ * d_)),
          off_(at(p_.n_edges * d_ * d_)),
          step_(at(n_ * d_)),
          node_(at(d_)) {}

    NewtonReport run(Vector& x, double& sigma) {
        NewtonReport report;
        sigma_ = sigma;
        project(z_);
        State now, next;
        now.x = x;
        evaluate(now);
        double largest = 0.0;
        for (const double value : x) largest = std::fmax(largest, std::fabs(value));
        const double limit = kDigits * p_.lam / (kEps * largest);
        double before = std::numeric_limits<double>::infinity();
        int stalled = 0;
        for (int outer = 0; outer < kMaxOuter; ++outer) {
            bool moved = false;
            for (int inner = 0; inner < kMaxInner && !balanced(now) && report.work < p_.budget; ++inner) {
                direction(now);
                ++report.steps;
                report.work += newton_step_work(factor_, p_.n_edges, d_);
                if (!search(now, next)) break;
                std::swap(now, next);
                moved = true;
            }
            const double gap = now.slack + now.stat;
            // A gap within rounding, or one that multiplier steps no longer lower, is the end.
            stalled = moved && gap > 0.5 * before ? stalled + 1 : 0;
            if (gap <= std::fmax(p_.target, p_.rounding * now.magnitude) || report.work >= p_.budget ||
                stalled == kMaxStalled)
                break;
            before = std::fmin(before, gap);
            z_ = now.t;
            project(z_);
            sigma_ = std::fmax(sigma_, std::fmin(kGrowth * sigma_, limit));
            evaluate(now);
        }
        x = now.x;
        z_ = now.t;
        sigma = sigma_;
        return report;
    }

  private:
    // Node residuals no larger than what the slack or the target allow: more would be wasted on this sigma.
    bool balanced(const State& s) const {
        return s.stat <= 0.25 * std::fmax(std::fmax(s.slack, 0.5 * p_.target), p_.rounding * s.magnitude);
    }

    void project(Vector& t) const {
        for (Index e = 0; e < p_.n_edges; ++e) {
            double* const own = t.data() + e * d_;
            const double n = norm(own);
            if (n > p_.lam)
                for (Index k = 0; k < d_; ++k) own[k] *= p_.lam / n;
        }
    }

    double norm(const double* v) const {
        double squared = 0.0;
        for (Index k = 0; k < d_; ++k) squared += v[k] * v[k];
        return std::sqrt(squared);
    }

    void evaluate(State& s) {
        s.t.resize(z_.size());
        s.norm.resize(at(p_.n_edges));
        s.g.assign(s.x.size(), 0.0);
        s.gradient.resize(s.x.size());
        const double lam = p_.lam;
        double hubers = 0.0, penalty = 0.0;
        for (Index e = 0; e < p_.n_edges; ++e) {
            const double *xi = s.x.data() + p_.tail[e] * d_, *xj = s.x.data() + p_.head[e] * d_,
                         *z = z_.data() + e * d_;
            double* const t = s.t.data() + e * d_;
            double length = 0.0, squared = 0.0;
            for (Index k = 0; k < d_; ++k) {
                const double u = xi[k] - xj[k];
                length += u * u;
                t[k] = z[k] + sigma_ * u;
                squared += t[k] * t[k];
            }
            const double n = std::sqrt(squared), w = p_.weight[e];
            s.norm[at(e)] = n;
            penalty += w * std::sqrt(length);
            hubers += w * (n > lam ? lam * (n - 0.5 * lam) : 0.5 * squared);
            const double f = w * (n > lam ? lam / n : 1.0);
            double *gi = s.g.data() + p_.tail[e] * d_, *gj = s.g.data() + p_.head[e] * d_;
            for (Index k = 0; k < d_; ++k) {
                gi[k] += f * t[k];
                gj[k] -= f * t[k];
            }
        }
        const QuadraticLoss::Value value = p_.loss.evaluate(s.x, s.g);
        for (Index i = 0; i < n_; ++i) {
            p_.loss.apply_node(i, s.x.data() + i * d_, node_.data());
            for (Index k = 0; k < d_; ++k)
                s.gradient[at(i * d_ + k)] =
                    node_[at(k)] - p_.loss.linear[at(i * d_ + k)] + s.g[at(i * d_ + k)];
        }
        s.merit = value.value + hubers / sigma_;
        s.magnitude = value.magnitude + lam * penalty;
        s.slack = std::fmax(lam * penalty - value.product, 0.0);
        s.stat = value.stat;
    }

    // step = -(H + sigma B' W D B)^-1 gradient, with D = I inside the ball and lam / ||t|| (I - uu') outside.
    void direction(const State& s) {
        const Index dd = d_ * d_;
        std::fill(diagonal_.begin(), diagonal_.end(), 0.0);
        for (Index i = 0; i < n_; ++i) {
            double* const own = diagonal_.data() + i * dd;
            if (p_.loss.dense)
                std::copy_n(p_.loss.hessian.data() + i * dd, dd, own);
            else
                for (Index k = 0; k < d_; ++k) own[k * d_ + k] = p_.loss.eigenvalues[at(i)];
        }
        for (Index e = 0; e < p_.n_edges; ++e) {
            const double n = s.norm[at(e)];
            const bool outside = n > p_.lam;
            const double c = sigma_ * p_.weight[e] * (outside ? p_.lam / n : 1.0),
                         bend = outside ? c / (n * n) : 0.0;
            const double* const t = s.t.data() + e * d_;
            double *di = diagonal_.data() + p_.tail[e] * dd, *dj = diagonal_.data() + p_.head[e] * dd,
                   *off = off_.data() + e * dd;
            for (Index a = 0; a < d_; ++a)
                for (Index b = 0; b < d_; ++b) {
                    const double value = (a == b ? c : 0.0) - bend * t[a] * t[b];
                    off[a * d_ + b] = -value;
                    di[a * d_ + b] += value;
                    dj[a * d_ + b] += value;
                }
        }
        factor_.factor(diagonal_.data(), off_.data());
        for (std::size_t k = 0; k < step_.size(); ++k) step_[k] = -s.gradient[k];
        factor_.solve(step_.data(), 1);
    }

    // A point along the step that lowers the merit, or, where that is lost in rounding, the residual.
    bool search(const State& now, State& next) {
        const double slope = dot(now.gradient, step_), noise = 8.0 * kEps * now.magnitude;
        if (!(slope < 0.0)) return false;
        double length = 1.0;
        for (int k = 0; k < kMaxHalvings; ++k, length *= 0.5) {
            next.x = now.x;
            for (std::size_t a = 0; a < step_.size(); ++a) next.x[a] += length * step_[a];
            evaluate(next);
            if (next.merit <= now.merit + kArmijo * length * slope) return true;
            if (next.merit <= now.merit + noise && next.stat < 0.9 * now.stat) return true;
        }
        return false;
    }

    const EdgeNewton& p_;
    SparseCholesky& factor_;
    Vector& z_;
    Index n_, d_;
    double sigma_ = 1.0;
    Vector diagonal_, off_, step_, node_;
};

}  // namespace

double newton_step_work(const SparseCholesky& factor, Index n_edges, Index n_features) {
    return factor.work(n_features) + kPasses * static_cast<double>(n_edges);
}

double newton_factor_cost(double work, Index n_edges, Index n_features) {
    return (work - kPasses * static_cast<double>(n_edges)) * SparseCholesky::kPerVisit *
           static_cast<double>(n_features);
}

NewtonReport edge_newton(const EdgeNewton& problem, SparseCholesky& factor, Vector& x, Vector& t,
                         double& sigma) {
    return Stage(problem, factor, t).run(x, sigma);
}

}  // namespace fusionopt
