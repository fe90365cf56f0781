#include "core/reduced.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "core/edge_newton.hpp"
#include "core/sparse_cholesky.hpp"

namespace fusionopt {

namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
constexpr Index kMaxNewton = 100;
constexpr double kCollision =
    0.3;  // closest approach of a step, relative to the distance now, that counts as a hit
constexpr int kMaxRefusals = 2;         // collisions in a row that may turn out not to lower the objective
constexpr double kSharp = 1e-4;         // relative residual of a direction that may merge centres
constexpr double kSummed = 1.0 / 16.0;  // of the terms of a sum, that count as its rounding
constexpr double kTouching = 256.0;     // distance in units of rounding below which centres are one
constexpr Index kMaxCg = 400;
constexpr Index kMinCg = 10;              // however little of the budget is left
constexpr Index kPatience = 15;           // passes of CG before a direct factor is tried
constexpr double kLargestFactor = 300.0;  // passes that a factorisation may cost
constexpr double kFewestSteps = 3.0;      // of Newton, that a factor has to be affordable for

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// Gradient and Hessian products of the penalty, on either kind of graph.
class Penalty {
  public:
    Penalty(const ReducedProblem& problem, Index n, Index d)
        : p_(problem),
          n_(n),
          d_(d),
          stride_(round_up(n) + kLanes),
          diagonal_(at(n)),
          stiffness_(at(n)),
          nearest_(at(n)) {
        if (p_.complete) {
            x_ = Buffer(d * stride_);
            direction_ = Buffer(d * stride_);
            out_ = Buffer(d * stride_);
            r_ = Buffer(stride_);
            sums_ = Buffer(stride_);
            row_ = Buffer((2 * d + 2) * kLanes);
            stiffest_ = Buffer(stride_);
            inverses_ = Buffer(blocks(n) * kLanes);
            partner_ = Buffer(stride_);
            for (Index k = 0; k < n; ++k) r_[k] = p_.r[at(k)];
        }
    }

    // Adds lam * d penalty to grad; returns the penalty (without lam). Sets diagonal(): sum_l W_kl / ||w_k -
    // w_l||.
    double gradient(const Vector& w, Vector& grad) {
        if (p_.complete) {
            to_columns(w, x_);
            CentreSweep a = sweep();
            sweeps().centre_gradient(a);
            add(grad);
            for (Index k = 0; k < n_; ++k) {
                diagonal_[at(k)] = p_.weight * p_.r[at(k)] * sums_[k];
                stiffness_[at(k)] = p_.weight * p_.r[at(k)] * stiffest_[k];
                nearest_[at(k)] = static_cast<std::int32_t>(partner_[k]);
            }
            return p_.weight * a.penalty;
        }
        std::fill(diagonal_.begin(), diagonal_.end(), 0.0);
        std::fill(stiffness_.begin(), stiffness_.end(), 0.0);
        inverse_.resize(p_.tail.size());
        unit_.resize(p_.tail.size() * at(d_));
        double total = 0.0;
        for (std::size_t e = 0; e < p_.tail.size(); ++e) {
            const Index i = p_.tail[e], j = p_.head[e];
            const double* wi = w.data() + i * d_;
            const double* wj = w.data() + j * d_;
            double squared = 0.0;
            for (Index k = 0; k < d_; ++k) squared += (wi[k] - wj[k]) * (wi[k] - wj[k]);
            const double per_length = squared > 0.0 ? 1.0 / std::sqrt(squared) : 0.0,
                         inverse = p_.edge_weight[e] * per_length;
            inverse_[e] = inverse;
            for (Index k = 0; k < d_; ++k) unit_[e * at(d_) + at(k)] = per_length * (wi[k] - wj[k]);
            total += inverse * squared;
            diagonal_[at(i)] += inverse;
            diagonal_[at(j)] += inverse;
            if (inverse > stiffness_[at(i)]) {
                stiffness_[at(i)] = inverse;
                nearest_[at(i)] = p_.head[e];
            }
            if (inverse > stiffness_[at(j)]) {
                stiffness_[at(j)] = inverse;
                nearest_[at(j)] = p_.tail[e];
            }
            const double c = p_.lam * inverse;
            for (Index k = 0; k < d_; ++k) {
                const double f = c * (wi[k] - wj[k]);
                grad[at(i * d_ + k)] += f;
                grad[at(j * d_ + k)] -= f;
            }
        }
        return total;
    }

    // Adds lam * (Hessian of the penalty at the point of the last gradient()) v to out.
    void product(const Vector& v, Vector& out) {
        if (p_.complete) {
            to_columns(v, direction_);
            CentreSweep a = sweep();
            a.p = direction_.data();
            sweeps().centre_product(a);
            add(out);
            return;
        }
        switch (d_) {
            case 1:
                return;  // the penalty is linear between collisions
            case 2:
                return edge_product<2>(v, out);
            case 3:
                return edge_product<3>(v, out);
            default:
                return edge_product<0>(v, out);
        }
    }

    // Adds lam * that Hessian to the blocks of a sparse matrix (edge lists only): diagonal [n][d][d], off
    // [edges][d][d].
    void add_blocks(Vector& diagonal, Vector& off) const {
        const Index dd = d_ * d_;
        off.resize(p_.tail.size() * at(dd));
        for (std::size_t e = 0; e < p_.tail.size(); ++e) {
            const double* u = unit_.data() + static_cast<Index>(e) * d_;
            double* di = diagonal.data() + p_.tail[e] * dd;
            double* dj = diagonal.data() + p_.head[e] * dd;
            const double c = p_.lam * inverse_[e];
            for (Index a = 0; a < d_; ++a)
                for (Index b = 0; b < d_; ++b) {
                    const double value = c * ((a == b ? 1.0 : 0.0) - u[a] * u[b]);
                    off[e * at(dd) + at(a * d_ + b)] = -value;
                    di[a * d_ + b] += value;
                    dj[a * d_ + b] += value;
                }
        }
    }

    const Vector& diagonal() const { return diagonal_; }
    // W_kl / ||w_k - w_l|| at the stiffest partner l of k (0: none), and that partner.
    const Vector& stiffness() const { return stiffness_; }
    const std::vector<std::int32_t>& nearest() const { return nearest_; }

    // sum_l W_kl, the scale of the gradient's rounding error
    Vector degrees() const {
        Vector out(at(n_), 0.0);
        if (p_.complete) {
            double total = 0.0;
            for (const double r : p_.r) total += r;
            for (Index k = 0; k < n_; ++k) out[at(k)] = p_.weight * p_.r[at(k)] * (total - p_.r[at(k)]);
        } else {
            for (std::size_t e = 0; e < p_.tail.size(); ++e) {
                out[at(p_.tail[e])] += p_.edge_weight[e];
                out[at(p_.head[e])] += p_.edge_weight[e];
            }
        }
        return out;
    }

  private:
    // lam W / dist (I - uu') of each edge, u its unit vector.
    template <int D>
    void edge_product(const Vector& v, Vector& out) const {
        const Index d = D > 0 ? D : d_;
        for (std::size_t e = 0; e < p_.tail.size(); ++e) {
            const double* vi = v.data() + p_.tail[e] * d;
            const double* vj = v.data() + p_.head[e] * d;
            const double* u = unit_.data() + static_cast<Index>(e) * d;
            double along = 0.0;
            for (Index k = 0; k < d; ++k) along += u[k] * (vi[k] - vj[k]);
            const double c = p_.lam * inverse_[e];
            double* oi = out.data() + p_.tail[e] * d;
            double* oj = out.data() + p_.head[e] * d;
            for (Index k = 0; k < d; ++k) {
                const double f = c * (vi[k] - vj[k] - along * u[k]);
                oi[k] += f;
                oj[k] -= f;
            }
        }
    }
    void to_columns(const Vector& rows, Buffer& columns) {
        for (Index i = 0; i < n_; ++i)
            for (Index k = 0; k < d_; ++k) columns[k * stride_ + i] = rows[at(i * d_ + k)];
    }
    CentreSweep sweep() {
        CentreSweep a;
        a.n_nodes = n_;
        a.n_features = d_;
        a.stride = stride_;
        a.x = x_.data();
        a.r = r_.data();
        a.out = out_.data();
        a.diagonal = sums_.data();
        a.row = row_.data();
        a.stiffest = stiffest_.data();
        a.partner = partner_.data();
        a.inverse = inverses_.data();
        return a;
    }
    void add(Vector& out) {
        for (Index i = 0; i < n_; ++i)
            for (Index k = 0; k < d_; ++k)
                out[at(i * d_ + k)] += p_.lam * p_.weight * p_.r[at(i)] * out_[k * stride_ + i];
    }

    const ReducedProblem& p_;
    Index n_, d_, stride_;
    static Index blocks(Index n) {
        Index total = 0;
        for (Index i = 0; i + 1 < n; ++i) total += (n - 1 - i + kLanes - 1) / kLanes;
        return total;
    }
    Buffer x_, direction_, out_, r_, sums_, row_, stiffest_, partner_, inverses_;
    Vector diagonal_, inverse_, unit_, stiffness_;
    std::vector<std::int32_t> nearest_;
};

// The same problem over groups of clusters.
ReducedProblem coarsen(const ReducedProblem& p, const std::vector<std::int32_t>& group, Index n_groups) {
    ReducedProblem out;
    out.loss = sum_over_clusters(p.loss, group, n_groups);
    out.terms.assign(at(n_groups), 0.0);
    for (std::size_t k = 0; k < group.size(); ++k) out.terms[at(group[k])] += p.terms[k];
    out.lam = p.lam;
    out.complete = p.complete;
    out.weight = p.weight;
    if (p.complete) {
        out.r.assign(at(n_groups), 0.0);
        for (std::size_t k = 0; k < group.size(); ++k) out.r[at(group[k])] += p.r[k];
    } else {
        join_edges(p.tail, p.head, p.edge_weight, group, out);
    }
    return out;
}

enum class Outcome { kStationary, kCollision, kStalled };

// Newton-CG on distinct centres; on a collision `colliding` names the pairs to merge.
class Newton {
  public:
    // `stiff`: conjugate gradients were too slow on a problem like this one, so the factor comes first.
    Newton(const ReducedProblem& problem, const Vector& start, bool stiff = false)
        : stiff_(stiff),
          p_(problem),
          n_(problem.loss.n_nodes),
          d_(problem.loss.n_features),
          penalty_(problem, n_, d_),
          degree_(penalty_.degrees()),
          edges_(problem.complete ? 0.5 * static_cast<double>(n_ * (n_ - 1))
                                  : static_cast<double>(problem.tail.size())),
          step_(at(n_ * d_)),
          rhs_(at(n_ * d_)),
          factors_(problem.loss.dense ? at(n_ * d_ * d_) : 0),
          jacobi_(problem.loss.dense ? 0 : at(n_ * d_)),
          curvature_(jacobi_.size()) {
        current_.w = start;
        trial_.w.resize(start.size());
        work_.resize(start.size());
        evaluate(current_);
    }

    Outcome run(Index max_steps, double budget) {
        const double first = norm(current_.gradient), floor = rounding_floor();
        budget_ = budget;
        double best = std::numeric_limits<double>::infinity();
        int stalled = 0;
        for (Index k = 0; k < max_steps; ++k, ++steps) {
            if (!pass_through_ && find_touching()) return Outcome::kCollision;
            if (at_rounding(false)) return Outcome::kStationary;
            const double size = norm(current_.gradient);
            stalled = size < 0.5 * best ? 0 : stalled + 1;
            best = std::fmin(best, size);
            if (stalled >= 6 || work > budget) return Outcome::kStalled;
            // Quadratic convergence, and no more digits than rounding leaves.
            const double forcing =
                std::fmin(0.1, std::fmax(std::fmax(1e-8, size / (first + 1e-300)), 0.3 * floor / size));
            direction(forcing, true);
            if (out_of_reach) return Outcome::kStalled;
            // A hit seen along a rough direction is looked at again along a sharp one: distances between
            // centres are small numbers.
            if (find_collisions() && forcing > kSharp) direction(kSharp / forcing, false);
            if (find_collisions() && !pass_through_) return Outcome::kCollision;
            pass_through_ = false;
            if (at_rounding(true)) return Outcome::kStationary;
            if (!search()) return Outcome::kStalled;
        }
        return at_rounding(true) ? Outcome::kStationary : Outcome::kStalled;
    }

    // Colliding pairs, those nearest to each other first.
    void sort_by_distance() {
        const auto apart = [&](const std::pair<std::int32_t, std::int32_t>& pair) {
            double squared = 0.0;
            for (Index k = 0; k < d_; ++k) {
                const double u = current_.w[at(pair.first * d_ + k)] - current_.w[at(pair.second * d_ + k)];
                squared += u * u;
            }
            return squared;
        };
        std::stable_sort(colliding.begin(), colliding.end(),
                         [&](const auto& a, const auto& b) { return apart(a) < apart(b); });
    }
    // The collision just reported is not one: go on with the step that showed it.
    void pass_through() { pass_through_ = true; }
    bool stiff() const { return stiff_; }
    const Vector& centres() const { return current_.w; }
    double objective() const { return current_.objective; }
    double rounding() const { return current_.rounding; }
    std::vector<std::pair<std::int32_t, std::int32_t>> colliding;
    Index steps = 0;
    double work = 0.0;
    bool out_of_reach = false;

  private:
    struct Point {
        Vector w, gradient;
        double objective = 0.0, rounding = 0.0;
    };

    static double norm(const Vector& v) { return std::sqrt(dot(v, v)); }

    void evaluate(Point& p) {
        double value = 0.0, magnitude = 0.0;
        p.gradient.resize(p.w.size());
        for (Index i = 0; i < n_; ++i) {
            const double* w = p.w.data() + i * d_;
            double* g = p.gradient.data() + i * d_;
            p_.loss.apply_node(i, w, g);
            for (Index k = 0; k < d_; ++k) {
                const double curved = 0.5 * w[k] * g[k], tilted = p_.loss.linear[at(i * d_ + k)] * w[k];
                value += curved - tilted;
                magnitude += std::fabs(curved) + std::fabs(tilted);
                g[k] -= p_.loss.linear[at(i * d_ + k)];
            }
        }
        const double pen = penalty_.gradient(p.w, p.gradient);
        p.objective = value + p_.lam * pen;
        p.rounding = 4.0 * kEps * (magnitude + p_.lam * pen);
    }

    // Forces that a gradient is added up from; q itself is rounded as a sum of its terms, which may cancel.
    double own_scale(Index i) const { return p_.lam * degree_[at(i)] + kSummed * p_.terms[at(i)]; }

    // Norm of the smallest gradient that at_rounding() asks for.
    double rounding_floor() const {
        double total = 0.0;
        for (Index i = 0; i < n_; ++i) {
            double scale = own_scale(i);
            for (Index k = 0; k < d_; ++k) scale += std::fabs(p_.loss.linear[at(i * d_ + k)]);
            total += scale * scale;
        }
        return 16.0 * kEps * std::sqrt(total / static_cast<double>(n_));
    }

    // The gradient is a sum of terms of this size; below its rounding error nothing more can be gained. With
    // `near` a centre that is pressed against another one may also be as uncertain as the direction between
    // them: eps |w| / distance. That is asked only after find_collisions(), since two centres that ought to
    // be one look like that too.
    bool at_rounding(bool near) const {
        for (Index i = 0; i < n_; ++i) {
            double g = 0.0, scale = own_scale(i), extent = 0.0;
            for (Index k = 0; k < d_; ++k) {
                g = std::fmax(g, std::fabs(current_.gradient[at(i * d_ + k)]));
                scale += std::fabs(p_.loss.linear[at(i * d_ + k)]);
                extent = std::fmax(extent, std::fabs(current_.w[at(i * d_ + k)]));
            }
            if (near && d_ > 1) scale += p_.lam * penalty_.diagonal()[at(i)] * extent;
            if (g > 16.0 * kEps * scale) return false;
        }
        return true;
    }

    double curvature(Index i) const {
        if (!p_.loss.dense) return p_.loss.eigenvalues[at(i)];
        double trace = 0.0;
        for (Index k = 0; k < d_; ++k) trace += p_.loss.hessian[at(i * d_ * d_ + k * d_ + k)];
        return trace / static_cast<double>(d_);
    }

    // Solves (Hessian) step = -gradient, from zero or from the present step. Two-level preconditioner: block
    // Jacobi, H_k + lam sum W/dist (I - uu') with uu' averaged over directions, plus one common motion for
    // each group of centres so close that their mutual stiffness dwarfs everything else.
    void direction(double forcing, bool fresh) {
        const double across = p_.lam * (d_ > 1 ? 1.0 - 1.0 / static_cast<double>(d_) : 0.0);
        UnionFind close(n_);
        for (Index i = 0; i < n_; ++i) {
            const double shift = across * penalty_.diagonal()[at(i)];
            if (!p_.loss.dense) {
                const double h = p_.loss.eigenvalues[at(i)] + shift, inverse = h > 0.0 ? 1.0 / h : 1.0;
                for (Index k = 0; k < d_; ++k) {
                    curvature_[at(i * d_ + k)] = p_.loss.eigenvalues[at(i)];
                    jacobi_[at(i * d_ + k)] = inverse;
                }
            } else {
                double* f = factors_.data() + i * d_ * d_;
                std::copy_n(p_.loss.hessian.data() + i * d_ * d_, d_ * d_, f);
                for (Index k = 0; k < d_; ++k) f[k * d_ + k] += shift;
                cholesky(f, d_);
            }
            const double mutual = penalty_.stiffness()[at(i)];
            if (mutual > 0.5 * penalty_.diagonal()[at(i)] && across * mutual > curvature(i))
                close.join(static_cast<std::int32_t>(i), penalty_.nearest()[at(i)]);
        }
        n_groups_ = close.labels(group_);
        if (n_groups_ < n_) {
            coarse_.assign(at(n_groups_), 0.0);
            sums_.resize(at(n_groups_ * d_));
            for (Index i = 0; i < n_; ++i) {
                const double outside =
                    std::fmax(penalty_.diagonal()[at(i)] - 2.0 * penalty_.stiffness()[at(i)], 0.0);
                coarse_[at(group_[at(i)])] += curvature(i) + across * outside;
            }
        }
        const auto apply = [&](const Vector& v, Vector& av) {
            if (!p_.loss.dense)
                for (std::size_t k = 0; k < v.size(); ++k) av[k] = curvature_[k] * v[k];
            else
                for (Index i = 0; i < n_; ++i) p_.loss.apply_node(i, v.data() + i * d_, av.data() + i * d_);
            penalty_.product(v, av);
        };
        const auto precondition = [&](const Vector& r, Vector& z) {
            if (!p_.loss.dense) {
                for (std::size_t k = 0; k < r.size(); ++k) z[k] = jacobi_[k] * r[k];
            } else {
                z = r;
                for (Index i = 0; i < n_; ++i)
                    cholesky_solve(factors_.data() + i * d_ * d_, d_, z.data() + i * d_);
            }
            if (n_groups_ == n_) return;
            std::fill(sums_.begin(), sums_.end(), 0.0);
            for (Index i = 0; i < n_; ++i)
                for (Index k = 0; k < d_; ++k) sums_[at(group_[at(i)] * d_ + k)] += r[at(i * d_ + k)];
            for (Index i = 0; i < n_; ++i) {
                const Index g = group_[at(i)];
                if (coarse_[at(g)] > 0.0)
                    for (Index k = 0; k < d_; ++k)
                        z[at(i * d_ + k)] += sums_[at(g * d_ + k)] / coarse_[at(g)];
            }
        };
        for (std::size_t k = 0; k < rhs_.size(); ++k) rhs_[k] = -current_.gradient[k];
        if (fresh) std::fill(step_.begin(), step_.end(), 0.0);
        const auto count = [&](Index passes) { work += edges_ * (1.0 + static_cast<double>(passes)); };
        const Index affordable = static_cast<Index>((budget_ - work) / std::fmax(edges_, 1.0)),
                    limit = std::clamp(affordable, kMinCg, kMaxCg);
        const auto iterate = [&](Index passes) {
            const Index made = pcg(apply, precondition, rhs_, step_, forcing, passes, work_);
            count(made);
            return made < passes;
        };
        if (direct_ != Direct::kReady) {
            if (p_.complete || (limit < kPatience && !stiff_)) {
                iterate(limit);
                return;
            }
            if (direct_ == Direct::kUntried) {
                if (!stiff_ && iterate(kPatience)) return;
                stiff_ = true;
            }
            if (direct_ == Direct::kTooLarge || !analyse()) {
                // The first step tells what those that follow will take at least.
                const Index share = static_cast<Index>(static_cast<double>(affordable) / kNewtonSteps);
                const bool sharp = iterate(steps > 0 ? limit : std::clamp(share, kPatience, kMaxCg));
                out_of_reach = steps == 0 && !sharp && share < kMaxCg;
                return;
            }
        }
        if (!factored_) factor();
        const auto exact = [&](const Vector& r, Vector& z) {
            z = r;
            sparse_.solve(z.data(), 1);
        };
        count(pcg(apply, exact, rhs_, step_, forcing, limit, work_));
    }

    bool analyse() {
        const double affordable = (budget_ - work) / kFewestSteps,
                     most = std::fmin(kLargestFactor * edges_ * static_cast<double>(d_ * d_ * d_),
                                      affordable * SparseCholesky::kPerVisit * static_cast<double>(d_));
        const bool fits =
            sparse_.analyse(n_, p_.tail.data(), p_.head.data(), static_cast<Index>(p_.tail.size()), d_, most);
        direct_ = fits ? Direct::kReady : Direct::kTooLarge;
        return fits;
    }

    void factor() {
        const Index dd = d_ * d_;
        Vector& diagonal = blocks_;
        diagonal.assign(at(n_ * dd), 0.0);
        for (Index i = 0; i < n_; ++i) {
            double* own = diagonal.data() + i * dd;
            if (p_.loss.dense)
                std::copy_n(p_.loss.hessian.data() + i * dd, dd, own);
            else
                for (Index k = 0; k < d_; ++k) own[k * d_ + k] = p_.loss.eigenvalues[at(i)];
        }
        penalty_.add_blocks(diagonal, off_);
        sparse_.factor(diagonal.data(), off_.data());
        factored_ = true;
        work += sparse_.work(d_);
    }

    // Centres that differ by no more than rounding are one: the direction between them means nothing.
    bool find_touching() {
        colliding.clear();
        for (Index i = 0; i < n_; ++i) {
            if (!(penalty_.stiffness()[at(i)] > 0.0)) continue;
            const Index j = penalty_.nearest()[at(i)];
            double apart = 0.0, extent = 1.0;  // the data have unit size in these coordinates
            for (Index k = 0; k < d_; ++k) {
                const double wi = current_.w[at(i * d_ + k)], wj = current_.w[at(j * d_ + k)];
                apart = std::fmax(apart, std::fabs(wi - wj));
                extent = std::fmax(extent, std::fmax(std::fabs(wi), std::fabs(wj)));
            }
            if (apart <= kTouching * kEps * extent)
                colliding.emplace_back(static_cast<std::int32_t>(i), static_cast<std::int32_t>(j));
        }
        return !colliding.empty();
    }

    // A centre whose full step passes (nearly) through its stiffest partner is about to fuse with it.
    bool find_collisions() {
        colliding.clear();
        for (Index i = 0; i < n_; ++i) {
            if (!(penalty_.stiffness()[at(i)] > 0.0)) continue;
            const Index j = penalty_.nearest()[at(i)];
            double zz = 0.0, zp = 0.0, pp = 0.0;
            for (Index k = 0; k < d_; ++k) {
                const double z = current_.w[at(i * d_ + k)] - current_.w[at(j * d_ + k)];
                const double p = step_[at(i * d_ + k)] - step_[at(j * d_ + k)];
                zz += z * z;
                zp += z * p;
                pp += p * p;
            }
            // Closest approach at t = -zp/pp in (0, 1): distance^2 there is zz - zp^2/pp.
            if (zp < 0.0 && -zp < pp && zz - zp * zp / pp < kCollision * kCollision * zz)
                colliding.emplace_back(static_cast<std::int32_t>(i), static_cast<std::int32_t>(j));
        }
        return !colliding.empty();
    }

    bool search() {
        const double slope = dot(current_.gradient, step_);
        if (!(slope < 0.0)) return false;
        double length = 1.0;
        for (int back = 0; back < 30; ++back) {
            for (std::size_t k = 0; k < step_.size(); ++k) trial_.w[k] = current_.w[k] + length * step_[k];
            evaluate(trial_);
            const double there = dot(trial_.gradient, step_);
            const bool lower = trial_.objective <= current_.objective + 1e-4 * length * slope;
            // Near the optimum the objective is all rounding; the slope still tells.
            const bool flat = trial_.objective <= current_.objective + current_.rounding + trial_.rounding &&
                              std::fabs(there) <= 0.5 * std::fabs(slope);
            if (lower || flat) {
                std::swap(current_, trial_);
                factored_ = false;
                return true;
            }
            length *= std::clamp(there > slope ? slope / (slope - there) : 0.5, 0.1, 0.8);
        }
        evaluate(current_);  // the penalty's arrays belong to the last point evaluated
        return false;
    }

    bool stiff_;
    const ReducedProblem& p_;
    Index n_, d_;
    Penalty penalty_;
    Vector degree_;
    double edges_, budget_ = 0.0;
    Vector step_, rhs_, factors_, jacobi_, curvature_, coarse_, sums_;
    std::vector<std::int32_t> group_;
    Index n_groups_ = 0;
    bool pass_through_ = false;
    bool factored_ = false;  // sparse_ holds the factor of the Hessian at current_
    enum class Direct { kUntried, kReady, kTooLarge };
    Direct direct_ = Direct::kUntried;
    SparseCholesky sparse_;
    Vector blocks_, off_;
    Point current_, trial_;
    PcgWork work_;
};

}  // namespace

QuadraticLoss sum_over_clusters(const QuadraticLoss& loss, const std::vector<std::int32_t>& labels,
                                Index n_clusters) {
    const Index d = loss.n_features, block = loss.dense ? d * d : 1;
    const Vector& source = loss.dense ? loss.hessian : loss.eigenvalues;
    QuadraticLoss out;
    out.n_nodes = n_clusters;
    out.n_features = d;
    out.dense = loss.dense;
    Vector& sums = loss.dense ? out.hessian : out.eigenvalues;
    sums.assign(static_cast<std::size_t>(n_clusters * block), 0.0);
    out.linear.assign(static_cast<std::size_t>(n_clusters * d), 0.0);
    for (Index i = 0; i < loss.n_nodes; ++i) {
        const Index c = labels[static_cast<std::size_t>(i)];
        for (Index k = 0; k < block; ++k)
            sums[static_cast<std::size_t>(c * block + k)] += source[static_cast<std::size_t>(i * block + k)];
        for (Index k = 0; k < d; ++k)
            out.linear[static_cast<std::size_t>(c * d + k)] +=
                loss.linear[static_cast<std::size_t>(i * d + k)];
    }
    return out;
}

void ReducedProblem::sum_loss(const QuadraticLoss& nodes, const std::vector<std::int32_t>& labels,
                              Index n_clusters) {
    loss = sum_over_clusters(nodes, labels, n_clusters);
    terms.assign(at(n_clusters), 0.0);
    for (Index i = 0; i < nodes.n_nodes; ++i)
        for (Index k = 0; k < nodes.n_features; ++k)
            terms[at(labels[at(i)])] += std::fabs(nodes.linear[at(i * nodes.n_features + k)]);
}

void join_edges(const std::vector<std::int32_t>& tail, const std::vector<std::int32_t>& head,
                const Vector& weight, const std::vector<std::int32_t>& group, ReducedProblem& out) {
    struct Joined {
        std::int32_t low, high;
        double weight;
    };
    std::vector<Joined> joined;
    for (std::size_t e = 0; e < tail.size(); ++e) {
        const std::int32_t a = group[at(tail[e])], b = group[at(head[e])];
        if (a != b) joined.push_back({std::min(a, b), std::max(a, b), weight[e]});
    }
    // Stable: equal edges are summed in the order given, whatever the library's sort does.
    std::stable_sort(joined.begin(), joined.end(), [](const Joined& a, const Joined& b) {
        return a.low != b.low ? a.low < b.low : a.high < b.high;
    });
    for (const Joined& edge : joined) {
        if (!out.tail.empty() && out.tail.back() == edge.low && out.head.back() == edge.high) {
            out.edge_weight.back() += edge.weight;
        } else {
            out.tail.push_back(edge.low);
            out.head.push_back(edge.high);
            out.edge_weight.push_back(edge.weight);
        }
    }
}

struct Merger {
    std::vector<std::int32_t> group;
    Index n_groups = 0;
    std::shared_ptr<const ReducedProblem> problem;
    std::shared_ptr<Newton> newton;
};

Merger merge(const ReducedProblem& problem, const Vector& w,
             const std::vector<std::pair<std::int32_t, std::int32_t>>& pairs, bool stiff) {
    const Index n = problem.loss.n_nodes, d = problem.loss.n_features;
    Merger out;
    UnionFind sets(n);
    for (const auto& [i, j] : pairs) sets.join(i, j);
    out.n_groups = sets.labels(out.group);
    Vector mean(at(out.n_groups * d), 0.0), mass(at(out.n_groups), 0.0);
    for (Index k = 0; k < n; ++k) {
        const double weight = problem.complete ? problem.r[at(k)] : 1.0;
        mass[at(out.group[at(k)])] += weight;
        for (Index a = 0; a < d; ++a) mean[at(out.group[at(k)] * d + a)] += weight * w[at(k * d + a)];
    }
    for (Index k = 0; k < n; ++k)
        // Nothing pulls at a centre without weight, so it is never merged.
        if (const Index g = out.group[at(k)]; !(mass[at(g)] > 0.0))
            std::copy_n(w.data() + k * d, d, mean.data() + g * d);
    for (Index g = 0; g < out.n_groups; ++g)
        if (mass[at(g)] > 0.0)
            for (Index a = 0; a < d; ++a) mean[at(g * d + a)] /= mass[at(g)];
    out.problem = std::make_shared<const ReducedProblem>(coarsen(problem, out.group, out.n_groups));
    out.newton = std::make_shared<Newton>(*out.problem, mean, stiff);
    return out;
}

double reduced_objective(const ReducedProblem& problem, const Vector& centres, double& rounding) {
    const Newton newton(problem, centres);
    rounding = newton.rounding();
    return newton.objective();
}

ReducedSolution solve_reduced(const ReducedProblem& problem, const Vector& start, double budget,
                              bool& stiff) {
    const Index n = problem.loss.n_nodes, d = problem.loss.n_features;
    ReducedSolution out;
    out.merged.resize(at(n));
    for (Index k = 0; k < n; ++k) out.merged[at(k)] = static_cast<std::int32_t>(k);
    out.n_groups = n;
    auto newton = std::make_shared<Newton>(problem, start, stiff);
    std::vector<std::shared_ptr<const ReducedProblem>>
        problems;  // kept alive for the Newton that refers to the last one
    int refused = 0;
    while (true) {
        const ReducedProblem& current = problems.empty() ? problem : *problems.back();
        const Index steps = newton->steps;
        const double work = newton->work;
        const Outcome outcome = out.work > budget
                                    ? Outcome::kStalled
                                    : newton->run(kMaxNewton - out.newton_steps, budget - out.work);
        out.newton_steps += newton->steps - steps;
        out.work += newton->work - work;
        if (outcome != Outcome::kCollision) {
            out.stationary = outcome == Outcome::kStationary;
            out.objective = newton->objective();
            out.rounding = newton->rounding();
            out.out_of_reach = newton->out_of_reach;
            break;
        }
        // All hits at once, else the closest half of them, and so on: a merger has to lower the objective. A
        // hit that keeps coming back is one.
        newton->sort_by_distance();
        const double bound = newton->objective() + newton->rounding();
        const bool insist = ++refused > kMaxRefusals;
        Merger merger;
        const Merger* taken = nullptr;
        for (std::size_t hits = newton->colliding.size(); hits > 0 && taken == nullptr; hits /= 2) {
            newton->colliding.resize(hits);
            merger = merge(current, newton->centres(), newton->colliding, newton->stiff());
            if (merger.newton->objective() <= bound + merger.newton->rounding() || (insist && hits == 1))
                taken = &merger;
        }
        if (taken == nullptr) {
            newton->pass_through();
            continue;
        }
        refused = 0;
        for (std::int32_t& label : out.merged) label = taken->group[at(label)];
        out.n_groups = taken->n_groups;
        newton = taken->newton;
        problems.push_back(taken->problem);
    }
    stiff = newton->stiff();
    const Vector& w = newton->centres();
    out.centres.resize(at(n * d));
    for (Index k = 0; k < n; ++k)
        std::copy_n(w.data() + out.merged[at(k)] * d, d, out.centres.data() + k * d);
    return out;
}

}  // namespace fusionopt
