#include "core/implicit_solver.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "core/implicit_tree.hpp"
#include "core/reduced.hpp"
#include "core/sweep.hpp"

namespace fusionopt {

namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Index kRatio = 6;       // nodes of a level over those of the one below
constexpr Index kCoarsest = 600;  // no level is smaller than this, unless the problem is
constexpr Index kTargetsAtATime = 128;
constexpr Index kNearest = 1000;  // old points among which a new one looks for its neighbour
constexpr Index kMaxCg = 40;
constexpr double kCgTolerance = 0.1, kTreeCgTolerance = 0.3;  // a gradient costs many products of the tree
constexpr int kMaxTrials = 8, kMaxShorter = 2;
constexpr double kWild = 10.0;
constexpr int kMaxStageSteps = 40;
constexpr int kPlacements = 3;  // Newton steps of new points in the field of the old ones
constexpr Index kTreeFrom[] = {0, 6000, 6000, 15000};  // nodes from which the tree pays, by features
constexpr double kGradientOpenness = 0.3, kProductOpenness = 1.0;
constexpr double kTreeStat = 1e-6;    // residual, relative to the objective, down to which the tree is true
constexpr double kTreeError = 1e-5;   // of the tree's bounds, relative to the objective
constexpr double kFinishing = 0.03;   // of the pairs visited so far: a visit costs up to ten times as much
constexpr double kFreeWork = 4e6;     // pairs of centres that finishing may visit without asking
constexpr double kFullNewton = 40;    // visits a pair that Newton's method on the centres takes
constexpr Index kMostCentres = 5000;  // its inverse distances take half the square of this, times 8 bytes
// A point rounded to float32 moves by 6e-8 of the data's size, its force by that over delta times the share
// of points inside delta: delta over the size has to be this many times that share, and this much in any
// case.
constexpr double kSinglePerShare = 2e-4, kSingleFloor = 2e-6;
constexpr double kLeastDelta = 1e-17;  // its square, a tenth, is in the range of float32
constexpr double kTight = 1e-7;        // delta over the data's size at which a flow is polished
constexpr int kMostUnsettled = 3;      // times that a stage is taken up again
constexpr int kMaxPolish = 40, kPatience = 8;
constexpr double kSharp = 1e-6;                       // what a polished flow may lack, relative to lam
constexpr double kLoose = 1e-10;                      // more than the rounding of such a bound
constexpr double kReaches[] = {10.0, 3.0, 1.0, 0.3};  // of rounding, in units of delta
constexpr double kGroupWork = 2000.0;                 // distances a point that grouping may take

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

double dot(const Points& a, const Points& b) {
    CompensatedSum total;
    for (Index k = 0; k < a.d; ++k) {
        double sum = 0.0;
        for (Index i = 0; i < a.n; ++i) sum += a.at(i, k) * b.at(i, k);
        total.add(sum);
    }
    return total.value();
}

// y += c x
void add(Points& y, double c, const Points& x) {
    for (Index k = 0; k < y.d; ++k)
        for (Index i = 0; i < y.n; ++i) y.at(i, k) += c * x.at(i, k);
}

struct Stopped {};

enum class Digits { kFew, kSingle, kDouble };

}  // namespace

// The problem on the first n nodes of the random order, with lam raised by what the others would add.
struct ImplicitSolver::Level {
    Index n = 0;
    double lam = 0.0;
    double total = 0.0;  // sum w
    double share = 1.0;  // of the whole problem's nodes
    Points a;
    Vector h, w;
    bool uniform = false;
    const Vector* weight() const { return uniform ? nullptr : &w; }
};

// Everything one gradient pass says of a point.
struct ImplicitSolver::Field {
    FieldSums sums;  // force: G; stiff and inside without the point itself
    Points gradient;
    double objective = kInfinity;  // F, an upper bound of the penalised objective at the point
    double dual = -kInfinity;      // D
    double stat = kInfinity;       // 1/2 sum ||gradient_i||^2 / h_i
    Digits digits = Digits::kDouble;
    std::shared_ptr<PairTree> tree;  // of this point, where one was built
    double slack() const { return std::fmax(objective - dual - stat, 0.0); }
};

struct ImplicitSolver::Rounded {
    Groups groups;
    Points centres;
    Vector h, w;  // summed over groups
    double objective = kInfinity;
};

class ImplicitSolver::Search {
  public:
    Search(ImplicitSolver& owner, const std::function<bool(const ImplicitProgress&)>& hook)
        : o_(owner),
          p_(owner.problem_),
          d_(p_.n_features),
          hook_(hook),
          passes_(owner.options_.n_threads, [this] { poll({}); }) {
        double mass = 0.0, squares = 0.0;
        for (Index i = 0; i < p_.n_nodes; ++i) {
            mass += p_.curvature[at(i)];
            for (Index k = 0; k < d_; ++k) {
                const double a = p_.targets[at(i * d_ + k)];
                squares += p_.curvature[at(i)] * a * a;
            }
        }
        size_ = std::sqrt(squares / mass);
        order_.resize(at(p_.n_nodes));
        std::iota(order_.begin(), order_.end(), 0);
        std::mt19937_64 random(owner.options_.seed);
        for (std::size_t i = order_.size(); i > 1; --i)
            std::swap(order_[i - 1], order_[static_cast<std::size_t>(random() % i)]);
    }

    bool run() {
        bool finished = true;
        try {
            std::vector<Index> sizes = {p_.n_nodes};
            while (sizes.back() / kRatio >= kCoarsest) sizes.push_back(sizes.back() / kRatio);
            std::reverse(sizes.begin(), sizes.end());
            const double tolerance = o_.options_.eps_rel;
            double delta = size_;
            for (const Index n : sizes) {
                Level next = make_level(n);
                ++o_.counts_.levels;
                x_ = n == sizes.front() ? next.a : place(level_, x_, delta, next);
                level_ = std::move(next);
                last_ = n == p_.n_nodes;
                solve(level_, x_, delta,
                      last_ ? tolerance : std::fmax(tolerance, 0.1 / static_cast<double>(n)),
                      n == sizes.front());
            }
        } catch (const Stopped&) {
            finished = false;
        }
        deaf_ = true;
        if (!finished && present_delta_ > 0.0) certify(level_, x_, present_delta_);
        if (best_gap_ == kInfinity) trivial();
        if (finished) refine(level_);
        o_.counts_.pairs = passes_.pairs();
        return finished;
    }

    // See ImplicitSolver::fusing_bound.
    double fusing_bound() {
        const Level level = make_level(p_.n_nodes);
        const double delta = kTight * size_, shorter = delta / o_.delta_;
        Points x(level.n, d_);
        for (Index k = 0; k < d_; ++k)
            for (Index i = 0; i < level.n; ++i)
                x.at(i, k) = shorter * o_.dual_point_[at(order_[at(i)] * d_ + k)];
        const auto bound = [&](const Field& f) {
            double worst = 0.0;
            for (Index i = 0; i < level.n; ++i) {
                double squared = 0.0;
                for (Index k = 0; k < d_; ++k) {
                    const double lacking = level.h[at(i)] * level.a.at(i, k) - f.sums.force.at(i, k);
                    squared += lacking * lacking;
                }
                worst = std::fmax(worst, std::sqrt(squared) / level.w[at(i)]);
            }
            return (level.lam + 2.0 * worst / level.total) * (1.0 + kLoose);
        };
        double best = kInfinity;
        try {
            polishing_ = true;
            curvature_ = 1.0;
            Field f;
            evaluate(level, x, delta, Digits::kDouble, f);
            best = bound(f);
            for (int step = 0, slow = 0; step < kMaxPolish; ++step) {
                const Coarse coarse = coarsen(level, x, delta, curvature_, f.sums.stiff, true);
                if (newton(level, x, delta, f, coarse, false) == 0) break;
                const double now = bound(f);
                slow = now - level.lam < 0.7 * (best - level.lam) ? 0 : slow + 1;
                best = std::fmin(best, now);
                if (slow > kPatience || best - level.lam <= kSharp * level.lam) break;
            }
        } catch (const Stopped&) {
        }
        polishing_ = false;
        return best;
    }

  private:
    void poll(const ImplicitProgress& progress) {
        if (deaf_ || !hook_) return;
        ImplicitProgress told = progress;
        told.newton_steps = o_.counts_.newton_steps;
        if (hook_(told)) throw Stopped{};
    }

    Level make_level(Index n) const {
        Level out;
        out.n = n;
        out.a = Points(n, d_);
        out.h.resize(at(n));
        out.w.resize(at(n));
        out.uniform = true;
        double everything = 0.0, squares = 0.0;
        for (Index i = 0; i < n; ++i) {
            const Index node = order_[at(i)];
            for (Index k = 0; k < d_; ++k) out.a.at(i, k) = p_.targets[at(node * d_ + k)];
            out.h[at(i)] = p_.curvature[at(node)];
            out.w[at(i)] = p_.weight[at(node)];
            out.uniform = out.uniform && out.w[at(i)] == 1.0;
            out.total += out.w[at(i)];
            squares += out.w[at(i)] * out.w[at(i)];
        }
        out.lam = p_.lam;
        out.share = static_cast<double>(n) / static_cast<double>(p_.n_nodes);
        if (n < p_.n_nodes) {
            for (const double w : p_.weight) everything += w;
            // (sum w - w_i) of a typical node, before and after.
            const double own = squares / out.total;
            out.lam *= (everything - own) / (out.total - own);
        }
        return out;
    }

    double tolerance(const Level& level, double relative, double primal, double dual) const {
        return relative * std::fmax(std::fabs(primal), std::fabs(dual)) + o_.options_.eps_abs * level.share;
    }

    bool tree_pays(const Level& level) const {
        return d_ <= PairTree::kMostFeatures && level.n >= kTreeFrom[d_];
    }

    // With as few digits as the residual found allows.
    void look(const Level& level, const Points& x, double delta, bool single, Field& f) {
        if (rough_ && tree_pays(level) && delta >= kSingleFloor * size_) {
            evaluate(level, x, delta, Digits::kFew, f);
            if (f.stat > kTreeStat * f.objective) return;
        }
        evaluate(level, x, delta, single ? Digits::kSingle : Digits::kDouble, f);
    }

    void evaluate(const Level& level, const Points& x, double delta, Digits digits, Field& f) {
        if (digits == Digits::kFew) {
            f.tree = std::make_shared<PairTree>(passes_, x, level.w, delta);
            f.tree->gradient(kGradientOpenness, f.sums);
        } else {
            // A tree of this very point stays of use to the linear system.
            if (f.digits != Digits::kFew) f.tree.reset();
            passes_.gradient(x, x, level.weight(), delta, digits == Digits::kSingle, f.sums);
        }
        f.digits = digits;
        if (f.gradient.n != level.n) f.gradient = Points(level.n, d_);
        CompensatedSum loss, pairs, dual, stat;
        for (Index i = 0; i < level.n; ++i) {
            const double w = level.w[at(i)], h = level.h[at(i)];
            double& stiff = f.sums.stiff[at(i)];
            double& inside = f.sums.inside[at(i)];
            stiff = std::fmax(stiff - w / delta, 0.0);
            inside = std::fmax(inside - w, 0.0);
            pairs.add(w * std::fmax(f.sums.energy[at(i)] - w * delta, 0.0));
            double apart = 0.0, product = 0.0, squared = 0.0, residual = 0.0;
            for (Index k = 0; k < d_; ++k) {
                const double u = x.at(i, k) - level.a.at(i, k);
                const double g = level.lam * w * f.sums.force.at(i, k);
                const double r = h * u + g;
                f.sums.force.at(i, k) = g;
                f.gradient.at(i, k) = r;
                apart += u * u;
                product += g * level.a.at(i, k);
                squared += g * g;
                residual += r * r;
            }
            loss.add(0.5 * h * apart);
            dual.add(product - 0.5 * squared / h);
            stat.add(0.5 * residual / h);
        }
        f.objective = loss.value() + 0.25 * level.lam * pairs.value();
        f.dual = dual.value();
        f.stat = stat.value();
    }

    Rounded round_to(const Level& level, const Points& x, Groups groups) {
        Rounded out = assign(level, x, std::move(groups));
        out.objective = objective(level, out);
        return out;
    }

    // Without its objective.
    Rounded assign(const Level& level, const Points& x, Groups groups) const {
        Rounded out;
        out.groups = std::move(groups);
        const Index n_groups = out.groups.count;
        out.centres = Points(n_groups, d_);
        out.h.assign(at(out.centres.stride), 0.0);
        out.w.assign(at(out.centres.stride), 0.0);
        for (Index i = 0; i < level.n; ++i) {
            const Index c = out.groups.labels[at(i)];
            out.h[at(c)] += level.h[at(i)];
            out.w[at(c)] += level.w[at(i)];
            for (Index k = 0; k < d_; ++k) out.centres.at(c, k) += level.h[at(i)] * x.at(i, k);
        }
        for (Index k = 0; k < d_; ++k)
            for (Index c = 0; c < n_groups; ++c) out.centres.at(c, k) /= out.h[at(c)];
        return out;
    }

    double objective(const Level& level, const Rounded& r) {
        CompensatedSum loss;
        for (Index i = 0; i < level.n; ++i) {
            double apart = 0.0;
            for (Index k = 0; k < d_; ++k) {
                const double u = r.centres.at(r.groups.labels[at(i)], k) - level.a.at(i, k);
                apart += u * u;
            }
            loss.add(0.5 * level.h[at(i)] * apart);
        }
        return loss.value() + level.lam * passes_.length(r.centres, r.w);
    }

    // The lowest rounding over a few reaches, coarse to fine.
    Rounded round(const Level& level, const Points& x, double delta, const Vector& density) {
        Rounded best;
        Index last = -1;
        for (const double reach : kReaches) {
            Groups groups =
                group_points(x, density, reach * delta, kGroupWork * static_cast<double>(level.n));
            if (groups.count == last) continue;
            last = groups.count;
            if (last == level.n) break;  // F bounds that one
            Rounded candidate = round_to(level, x, std::move(groups));
            if (candidate.objective < best.objective)
                best = std::move(candidate);
            else if (best.objective < kInfinity && 4 * last > level.n)
                break;  // finer partitions cost more to judge, and were getting worse
        }
        return best;
    }

    // Groups whose common motion the preconditioner and the clip treat apart.
    struct Coarse {
        Groups groups;
        Vector h, stiffness;  // of each group; h = 0 marks a single point
    };

    Coarse coarsen(const Level& level, const Points& x, double delta, double curvature, const Vector& density,
                   bool single) {
        Coarse out;
        out.groups = group_points(x, density, (d_ > 3 ? 10.0 : 3.0) * delta,
                                  kGroupWork * static_cast<double>(level.n));
        const Index n_groups = out.groups.count;
        Points centres(n_groups, d_);
        Vector h(at(n_groups), 0.0), w(at(centres.stride), 0.0);
        std::vector<Index> count(at(n_groups), 0);
        for (Index i = 0; i < level.n; ++i) {
            const Index c = out.groups.labels[at(i)];
            h[at(c)] += level.h[at(i)];
            w[at(c)] += level.w[at(i)];
            ++count[at(c)];
            for (Index k = 0; k < d_; ++k) centres.at(c, k) += level.h[at(i)] * x.at(i, k);
        }
        Index n_real = 0;
        for (Index c = 0; c < n_groups; ++c) {
            for (Index k = 0; k < d_; ++k) centres.at(c, k) /= h[at(c)];
            if (count[at(c)] > 1) ++n_real;
        }
        Points real(n_real, d_);
        Index place = 0;
        for (Index c = 0; c < n_groups; ++c)
            if (count[at(c)] > 1) {
                for (Index k = 0; k < d_; ++k) real.at(place, k) = centres.at(c, k);
                ++place;
            }
        FieldSums sums;
        passes_.gradient(real, centres, &w, delta, single, sums);
        out.h.assign(at(n_groups), 0.0);
        out.stiffness.assign(at(n_groups), 0.0);
        place = 0;
        const double across = 1.0 - curvature / static_cast<double>(d_);
        for (Index c = 0; c < n_groups; ++c)
            if (count[at(c)] > 1) {
                out.h[at(c)] = h[at(c)];
                const double others = std::fmax(sums.stiff[at(place)] - w[at(c)] / delta, 0.0);
                out.stiffness[at(c)] = level.lam * w[at(c)] * others * across;
                ++place;
            }
        return out;
    }

    void sum_groups(const Groups& groups, const Points& v, const Vector* mass, Vector& out) const {
        out.assign(at(groups.count * d_), 0.0);
        for (Index k = 0; k < d_; ++k)
            for (Index i = 0; i < v.n; ++i)
                out[at(groups.labels[at(i)] * d_ + k)] +=
                    (mass != nullptr ? (*mass)[at(i)] : 1.0) * v.at(i, k);
    }

    // Solves (Hessian) step = -gradient roughly; preconditioner: diagonal plus the motion of each group.
    void direction(const Level& level, const Points& x, double delta, Field& f, const Coarse& coarse,
                   bool single, Points& step) {
        // The system is solved roughly: float32 serves it longer than the gradient.
        single = single || polishing_ || delta >= kSingleFloor * size_;
        if (f.tree == nullptr && single && tree_pays(level))
            f.tree = std::make_shared<PairTree>(passes_, x, level.w, delta);
        const double in = curvature_ / static_cast<double>(d_), across = 1.0 - in;
        Vector diagonal(at(level.n));
        for (Index i = 0; i < level.n; ++i)
            diagonal[at(i)] =
                level.h[at(i)] + level.lam * level.w[at(i)] *
                                     (across * f.sums.stiff[at(i)] + in * f.sums.inside[at(i)] / delta);
        Vector sums;
        const auto precondition = [&](const Points& r, Points& z) {
            sum_groups(coarse.groups, r, nullptr, sums);
            for (Index c = 0; c < coarse.groups.count; ++c) {
                const double scale =
                    coarse.h[at(c)] > 0.0 ? 1.0 / (coarse.h[at(c)] + coarse.stiffness[at(c)]) : 0.0;
                for (Index k = 0; k < d_; ++k) sums[at(c * d_ + k)] *= scale;
            }
            for (Index k = 0; k < d_; ++k)
                for (Index i = 0; i < level.n; ++i)
                    z.at(i, k) =
                        r.at(i, k) / diagonal[at(i)] + sums[at(coarse.groups.labels[at(i)] * d_ + k)];
        };
        Points r(level.n, d_), z(level.n, d_), p(level.n, d_), image;
        step = Points(level.n, d_);
        add(r, -1.0, f.gradient);
        precondition(r, z);
        p = z;
        double rz = dot(r, z);
        const double tolerance = f.tree != nullptr && !polishing_ ? kTreeCgTolerance : kCgTolerance;
        const double target = tolerance * tolerance * rz;
        for (Index it = 0; it < kMaxCg && rz > target; ++it) {
            if (f.tree != nullptr)
                f.tree->product(p, kProductOpenness, curvature_, image);
            else
                passes_.product(x, p, x, p, level.weight(), delta, curvature_, single, image);
            ++o_.counts_.cg_steps;
            for (Index k = 0; k < d_; ++k)
                for (Index i = 0; i < level.n; ++i)
                    image.at(i, k) =
                        level.h[at(i)] * p.at(i, k) + level.lam * level.w[at(i)] * image.at(i, k);
            const double bend = dot(p, image);
            if (!(bend > 0.0)) break;
            const double length = rz / bend;
            add(step, length, p);
            add(r, -length, image);
            precondition(r, z);
            const double next = dot(r, z);
            const double beta = next / rz;
            rz = next;
            for (Index k = 0; k < d_; ++k)
                for (Index i = 0; i < level.n; ++i) p.at(i, k) = z.at(i, k) + beta * p.at(i, k);
        }
        // No point moves further, relative to its group, than the scale on which its own field changes: one
        // soft point would otherwise shorten everybody's step.
        Vector means;
        sum_groups(coarse.groups, step, &level.h, means);
        for (Index i = 0; i < level.n; ++i) {
            const Index c = coarse.groups.labels[at(i)];
            const double mass = coarse.h[at(c)];
            double squared = 0.0;
            for (Index k = 0; k < d_; ++k) {
                const double rest = step.at(i, k) - (mass > 0.0 ? means[at(c * d_ + k)] / mass : 0.0);
                squared += rest * rest;
            }
            const double most = (level.total - level.w[at(i)]) / f.sums.stiff[at(i)];
            if (!(squared > most * most)) continue;
            const double scale = most / std::sqrt(squared);
            for (Index k = 0; k < d_; ++k) {
                const double mean = mass > 0.0 ? means[at(c * d_ + k)] / mass : 0.0;
                step.at(i, k) = mean + scale * (step.at(i, k) - mean);
            }
        }
    }

    // One Newton step with a search on the slope: F has too much noise in float32. Returns the trials taken.
    int newton(const Level& level, Points& x, double delta, Field& f, const Coarse& coarse, bool single) {
        Points step;
        direction(level, x, delta, f, coarse, single, step);
        ++o_.counts_.newton_steps;
        const double slope = dot(f.gradient, step);
        if (!(slope < 0.0)) return 0;
        double length = 1.0;
        int trials = 1;
        Field there;
        Points trial;
        for (;; ++trials) {
            trial = x;
            add(trial, length, step);
            there.digits = Digits::kDouble;
            if (f.digits == Digits::kFew)
                look(level, trial, delta, single, there);
            else
                evaluate(level, trial, delta, single ? Digits::kSingle : Digits::kDouble, there);
            const double ahead = dot(there.gradient, step);
            // A residual that explodes across the step takes many steps to come down again.
            const bool wild = !polishing_ && there.stat > kWild * f.stat && trials <= kMaxShorter;
            if ((ahead <= 0.3 * std::fabs(slope) && !wild) || trials >= kMaxTrials) break;
            const double secant = ahead > 0.0 ? slope / (slope - ahead) : 1.0;
            length *= std::clamp(secant, 0.1, wild ? 0.3 : 0.8);
        }
        // The tree's errors are as large as what is left: on without it.
        const bool noise =
            f.digits == Digits::kFew && there.digits == Digits::kFew && there.stat > 0.5 * f.stat;
        x = std::move(trial);
        std::swap(f, there);
        if (noise) {
            rough_ = false;
            evaluate(level, x, delta, single ? Digits::kSingle : Digits::kDouble, f);
        }
        // Trouble blends the Hessian with its majoriser.
        double blend = 1.0 - curvature_;
        blend = trials > 1 ? std::fmin(1.0, std::fmax(0.1, 3.0 * blend)) : 0.3 * blend;
        curvature_ = 1.0 - (blend < 0.003 ? 0.0 : blend);
        return trials;
    }

    void solve(const Level& level, Points& x, double& delta, double relative, bool first) {
        curvature_ = 1.0;
        rough_ = true;
        double aim = last_ ? 0.9 * relative : relative;
        double best = kInfinity;
        int stage = 0, stalls = 0, refusals = 0, unsettled = 0;
        bool exact = relative < 3e-7;  // float32 no longer
        bool single = !exact && delta >= kSinglePerShare * size_;
        Field f;
        look(level, x, delta, single, f);
        const auto single_serves = [&](double at_delta) {
            CompensatedSum inside;
            for (Index i = 0; i < level.n; ++i) inside.add(level.w[at(i)] * f.sums.inside[at(i)]);
            const double share = inside.value() / (level.total * level.total);
            return !exact && at_delta >= size_ * std::fmax(kSinglePerShare * share, kSingleFloor);
        };
        single = single_serves(delta);
        while (true) {
            ++o_.counts_.stages;
            ++stage;
            Rounded rounded;
            double primal = f.objective;
            const auto report = [&] {
                if (!last_) return;
                present_delta_ = delta;
                ImplicitProgress told;
                told.fresh = true;
                told.objective = primal;
                told.dual_objective = f.dual;
                poll(told);
            };
            const auto goal = [&] { return tolerance(level, aim, primal, f.dual); };
            const auto enough = [&] {
                return last_ && f.digits != Digits::kFew && primal - f.dual <= goal();
            };
            const Coarse coarse = coarsen(level, x, delta, curvature_, f.sums.stiff, single);
            int steps = 0;
            double previous = kInfinity;
            int slow = 0;
            const auto descend = [&](auto done) {
                while (!done() && !enough() && steps < kMaxStageSteps && slow < 4 &&
                       o_.counts_.newton_steps < o_.options_.max_newton) {
                    if (newton(level, x, delta, f, coarse, single) == 0) {
                        slow = 4;
                        break;
                    }
                    ++steps;
                    slow = f.stat < 0.7 * previous ? 0 : slow + 1;
                    previous = std::fmin(previous, f.stat);
                    primal = std::fmin(f.objective, rounded.objective);
                    report();
                }
            };
            descend([&] { return f.stat <= std::fmax(0.3 * f.slack(), 0.05 * goal()); });
            if (!enough() && f.objective - f.dual > 0.7 * goal()) {
                rounded = round(level, x, delta, f.sums.stiff);
                primal = std::fmin(f.objective, rounded.objective);
                const int before = steps;
                descend([&] {
                    const double slack = std::fmax(primal - f.dual - f.stat, 0.0);
                    return f.stat <= std::fmax(0.2 * slack, 0.2 * goal());
                });
                if (steps > before) {
                    rounded = round(level, x, delta, f.sums.stiff);
                    primal = std::fmin(f.objective, rounded.objective);
                }
            }
            // The tree's bounds are off by a few parts in a million.
            if (f.digits == Digits::kFew && primal - f.dual <= goal() && goal() < kTreeError * primal) {
                evaluate(level, x, delta, single ? Digits::kSingle : Digits::kDouble, f);
                primal = std::fmin(f.objective, rounded.objective);
            }
            const double gap = primal - f.dual;
            report();
            if (gap <= goal()) {
                if (!last_) return;
                if (certify(level, x, delta)) return;
                // float32 promised too much, or the aim was missed by a hair.
                aim *= 0.5;
                if (++refusals > 1) exact = true;
                if (refusals > 8) return;
            }
            const bool spent = o_.counts_.newton_steps >= o_.options_.max_newton;
            // delta is worth the slack; a stage that ended before its residual was small goes on as it is.
            const double slack = std::fmax(gap - f.stat, 0.0);
            if (f.stat > std::fmax(3.0 * slack, 0.5 * goal()) && ++unsettled <= kMostUnsettled && !spent)
                continue;
            unsettled = 0;
            stalls = gap < 0.8 * best ? 0 : stalls + 1;
            best = std::fmin(best, gap);
            if (stalls >= 4 && !exact) {
                exact = true;
                stalls = 0;
            }
            if (stalls >= 6 || spent || delta < std::fmax(1e-13 * size_, kLeastDelta)) {
                if (last_) certify(level, x, delta);
                return;
            }
            double factor =
                first && stage < 3 ? 0.3 : std::clamp(std::pow(0.6 * goal() / slack, 1.0 / 1.8), 0.1, 0.4);
            if (!(factor > 0.0)) factor = 0.1;
            // Inside a cluster x = centre + delta q with q nearly independent of delta.
            Points contracted = x;
            const double shorter = factor * delta;
            single = single_serves(shorter);
            rough_ = true;
            Field moved;
            bool moves = rounded.objective < f.objective;
            if (moves) {
                for (Index k = 0; k < d_; ++k)
                    for (Index i = 0; i < level.n; ++i) {
                        const double c = rounded.centres.at(rounded.groups.labels[at(i)], k);
                        contracted.at(i, k) = c + factor * (x.at(i, k) - c);
                    }
                look(level, contracted, shorter, single, moved);
            }
            f = Field();
            look(level, x, shorter, single, f);
            if (moves && moved.stat < f.stat) {
                x = std::move(contracted);
                std::swap(f, moved);
            }
            delta = shorter;
        }
    }

    // New points settle in the field of the old ones, one by one: each Newton step is taken where it lowers
    // the point's own objective.
    Points place(const Level& old, const Points& x, double delta, const Level& level) {
        const Index n_new = level.n - old.n, n_near = std::min(old.n, kNearest);
        Points fresh(n_new, d_);
        passes_.over(n_new, static_cast<double>(n_near), kTargetsAtATime, [&](Index first, Index last, int) {
            for (Index i = first; i < last; ++i) {
                Index nearest = 0;
                double least = kInfinity;
                for (Index j = 0; j < n_near; ++j) {
                    double squared = 0.0;
                    for (Index k = 0; k < d_; ++k) {
                        const double u = level.a.at(old.n + i, k) - level.a.at(j, k);
                        squared += u * u;
                    }
                    if (squared < least) {
                        least = squared;
                        nearest = j;
                    }
                }
                for (Index k = 0; k < d_; ++k) fresh.at(i, k) = x.at(nearest, k);
            }
        });
        const double lam = old.lam;
        const bool single = delta >= kSinglePerShare * size_;
        FieldSums sums;
        Points gradient(n_new, d_);
        Vector own(at(n_new));
        const auto visit = [&](const Points& point, FieldSums& to, Points& g, Vector& value) {
            passes_.gradient(point, x, old.weight(), delta, single, to);
            double stat = 0.0;
            for (Index i = 0; i < n_new; ++i) {
                const double h = level.h[at(old.n + i)], w = level.w[at(old.n + i)];
                double apart = 0.0, residual = 0.0;
                for (Index k = 0; k < d_; ++k) {
                    const double u = point.at(i, k) - level.a.at(old.n + i, k);
                    g.at(i, k) = h * u + lam * w * to.force.at(i, k);
                    apart += u * u;
                    residual += g.at(i, k) * g.at(i, k);
                }
                value[at(i)] = 0.5 * h * apart + 0.5 * lam * w * to.energy[at(i)];
                stat += 0.5 * residual / h;
            }
            return stat;
        };
        double stat = visit(fresh, sums, gradient, own);
        double total = 0.0;
        for (const double v : own) total += v;
        FieldSums ahead_sums;
        Points ahead_gradient(n_new, d_), rest, z(n_new, d_), p(n_new, d_), step, image;
        const Points still(old.n, d_);
        Vector ahead(at(n_new)), length(at(n_new), 1.0), rz(at(n_new));
        for (int round = 0; round < kPlacements && stat > 1e-6 * total; ++round) {
            // Each point has its own conjugate gradients: a few steps solve d unknowns.
            step = Points(n_new, d_);
            rest = gradient;
            const auto diagonal = [&](Index i) {
                return level.h[at(old.n + i)] + lam * level.w[at(old.n + i)] * sums.stiff[at(i)];
            };
            for (Index i = 0; i < n_new; ++i) {
                rz[at(i)] = 0.0;
                for (Index k = 0; k < d_; ++k) {
                    rest.at(i, k) = -gradient.at(i, k);
                    p.at(i, k) = rest.at(i, k) / diagonal(i);
                    rz[at(i)] += rest.at(i, k) * p.at(i, k);
                }
            }
            for (Index it = 0; it < std::min<Index>(d_, 4); ++it) {
                passes_.product(fresh, p, x, still, old.weight(), delta, 1.0, single, image);
                for (Index i = 0; i < n_new; ++i) {
                    const double h = level.h[at(old.n + i)], w = level.w[at(old.n + i)];
                    double bend = 0.0;
                    for (Index k = 0; k < d_; ++k) {
                        image.at(i, k) = h * p.at(i, k) + lam * w * image.at(i, k);
                        bend += p.at(i, k) * image.at(i, k);
                    }
                    if (!(bend > 0.0)) continue;
                    const double move = rz[at(i)] / bend;
                    double next = 0.0;
                    for (Index k = 0; k < d_; ++k) {
                        step.at(i, k) += move * p.at(i, k);
                        rest.at(i, k) -= move * image.at(i, k);
                        next += rest.at(i, k) * rest.at(i, k) / diagonal(i);
                    }
                    const double beta = next / rz[at(i)];
                    rz[at(i)] = next;
                    for (Index k = 0; k < d_; ++k)
                        p.at(i, k) = rest.at(i, k) / diagonal(i) + beta * p.at(i, k);
                }
            }
            Points trial = fresh;
            for (Index k = 0; k < d_; ++k)
                for (Index i = 0; i < n_new; ++i) trial.at(i, k) += length[at(i)] * step.at(i, k);
            visit(trial, ahead_sums, ahead_gradient, ahead);
            stat = 0.0;
            for (Index i = 0; i < n_new; ++i) {
                if (ahead[at(i)] < own[at(i)]) {
                    own[at(i)] = ahead[at(i)];
                    sums.stiff[at(i)] = ahead_sums.stiff[at(i)];
                    for (Index k = 0; k < d_; ++k) {
                        fresh.at(i, k) = trial.at(i, k);
                        gradient.at(i, k) = ahead_gradient.at(i, k);
                    }
                    length[at(i)] = 1.0;
                } else {
                    length[at(i)] *= 0.3;
                }
                for (Index k = 0; k < d_; ++k)
                    stat += 0.5 * gradient.at(i, k) * gradient.at(i, k) / level.h[at(old.n + i)];
            }
        }
        Points out(level.n, d_);
        for (Index k = 0; k < d_; ++k) {
            for (Index i = 0; i < old.n; ++i) out.at(i, k) = x.at(i, k);
            for (Index i = 0; i < n_new; ++i) out.at(old.n + i, k) = fresh.at(i, k);
        }
        return out;
    }

    // float64 verdict on the whole problem; the best one so far is kept.
    bool certify(const Level& level, const Points& x, double delta) {
        Field f;
        evaluate(level, x, delta, Digits::kDouble, f);
        Rounded rounded = round(level, x, delta, f.sums.stiff);
        const auto met = [&] {
            return rounded.objective - f.dual <=
                   tolerance(level, o_.options_.eps_rel, rounded.objective, f.dual);
        };
        if (f.objective <= rounded.objective) {
            // Every node on its own: F bounds its objective, and measuring that takes a pass.
            rounded = assign(level, x, singles(level.n));
            rounded.objective = f.objective;
            if (!met()) rounded.objective = objective(level, rounded);
        }
        const double gap = rounded.objective - f.dual;
        if (gap < best_gap_) {
            best_gap_ = gap;
            best_objective_ = rounded.objective;
            keep(level, x, delta, f, rounded);
        }
        return met();
    }

    static Groups singles(Index n) {
        Groups out;
        out.labels.resize(at(n));
        std::iota(out.labels.begin(), out.labels.end(), 0);
        out.count = n;
        return out;
    }

    void keep(const Level& level, const Points& x, double delta, const Field& f, const Rounded& rounded) {
        const double inside = o_.shrink();
        for (Vector* v : {&o_.dual_point_, &o_.sums_}) v->resize(at(level.n * d_));
        for (Index i = 0; i < level.n; ++i)
            for (Index k = 0; k < d_; ++k) {
                const std::size_t to = at(order_[at(i)] * d_ + k);
                o_.dual_point_[to] = x.at(i, k);
                o_.sums_[to] = inside * f.sums.force.at(i, k);
            }
        o_.delta_ = delta;
        keep_point(level, rounded.groups, rounded.centres);
    }

    void keep_point(const Level& level, const Groups& groups, const Points& centres) {
        o_.point_.resize(at(level.n * d_));
        o_.labels_.assign(at(level.n), 0);
        std::vector<std::int32_t> raw(at(level.n));
        for (Index i = 0; i < level.n; ++i) {
            raw[at(order_[at(i)])] = groups.labels[at(i)];
            for (Index k = 0; k < d_; ++k)
                o_.point_[at(order_[at(i)] * d_ + k)] = centres.at(groups.labels[at(i)], k);
        }
        // By first appearance in the caller's order.
        std::vector<std::int32_t> known(at(groups.count), -1);
        std::int32_t next = 0;
        for (Index i = 0; i < level.n; ++i) {
            std::int32_t& label = known[at(raw[at(i)])];
            if (label < 0) label = next++;
            o_.labels_[at(i)] = label;
        }
        o_.n_clusters_ = next;
    }

    // Everything at the pooled minimiser, no dual: what can be said before the whole problem was looked at.
    void trivial() {
        const std::size_t size = at(p_.n_nodes * d_);
        o_.point_.assign(size, 0.0);
        o_.dual_point_.assign(size, 0.0);
        o_.sums_.assign(size, 0.0);
        o_.labels_.assign(at(p_.n_nodes), 0);
        o_.n_clusters_ = 1;
        o_.delta_ = size_;
    }

    // Whether no point that is constant on these groups can be as good as the one kept. The objective is
    // strongly convex: the optimum lies within sqrt(2 gap) of that one, in the norm of h, and its spread
    // inside the groups is what any such point is away from it.
    bool too_coarse(const Level& level, const Points& kept, const Groups& groups) const {
        Vector mass(at(groups.count), 0.0), mean(at(groups.count * d_), 0.0);
        for (Index i = 0; i < level.n; ++i) {
            const Index c = groups.labels[at(i)];
            mass[at(c)] += level.h[at(i)];
            for (Index k = 0; k < d_; ++k) mean[at(c * d_ + k)] += level.h[at(i)] * kept.at(i, k);
        }
        CompensatedSum spread;
        for (Index i = 0; i < level.n; ++i) {
            const Index c = groups.labels[at(i)];
            for (Index k = 0; k < d_; ++k) {
                const double u = kept.at(i, k) - mean[at(c * d_ + k)] / mass[at(c)];
                spread.add(level.h[at(i)] * u * u);
            }
        }
        return spread.value() >
               8.0 * std::fmax(best_gap_, kEps * pass_chain(level.n) * std::fabs(best_objective_));
    }

    // The exact solution for the partitions next to the best one, where that costs no more than the search
    // did: the lowest objective is kept, of equal ones the coarsest.
    void refine(const Level& level) {
        const Index n = level.n;
        const double budget = std::fmax(kFreeWork, kFinishing * passes_.pairs());
        Points x(n, d_);
        for (Index i = 0; i < n; ++i)
            for (Index k = 0; k < d_; ++k) x.at(i, k) = o_.dual_point_[at(order_[at(i)] * d_ + k)];
        QuadraticLoss loss;
        loss.n_nodes = n;
        loss.n_features = d_;
        loss.eigenvalues = level.h;
        loss.linear.resize(at(n * d_));
        for (Index i = 0; i < n; ++i)
            for (Index k = 0; k < d_; ++k) loss.linear[at(i * d_ + k)] = level.h[at(i)] * level.a.at(i, k);
        // The point at hand is the one to beat.
        Points point(n, d_);
        for (Index i = 0; i < n; ++i)
            for (Index k = 0; k < d_; ++k) point.at(i, k) = o_.point_[at(order_[at(i)] * d_ + k)];
        Rounded best;
        best.groups = {o_.labels_, o_.n_clusters_};
        for (Index i = 0; i < n; ++i) best.groups.labels[at(i)] = o_.labels_[at(order_[at(i)])];
        best.centres = Points(o_.n_clusters_, d_);
        best.w.assign(at(best.centres.stride), 0.0);
        for (Index i = 0; i < n; ++i) {
            const Index c = best.groups.labels[at(i)];
            best.w[at(c)] += level.w[at(i)];
            for (Index k = 0; k < d_; ++k) best.centres.at(c, k) = point.at(i, k);
        }
        best.objective = best_objective_;  // an upper bound
        bool measured = false, changed = false;
        const Vector flat(at(n), 0.0);
        Index last = -1;
        for (const double reach : kReaches) {
            const Groups groups =
                group_points(x, flat, reach * o_.delta_, kGroupWork * static_cast<double>(n));
            const double edges = 0.5 * static_cast<double>(groups.count) * static_cast<double>(groups.count);
            if (groups.count == last || groups.count > kMostCentres || kFullNewton * edges > budget) continue;
            last = groups.count;
            if (too_coarse(level, point, groups)) continue;
            Rounded start = assign(level, x, groups);
            if (!measured) best.objective = objective(level, best);
            measured = true;
            ReducedProblem reduced;
            reduced.sum_loss(loss, groups.labels, groups.count);
            reduced.lam = level.lam;
            reduced.complete = true;
            reduced.r.assign(start.w.begin(), start.w.begin() + groups.count);
            Vector centres(at(groups.count * d_));
            for (Index c = 0; c < groups.count; ++c)
                for (Index k = 0; k < d_; ++k) centres[at(c * d_ + k)] = start.centres.at(c, k);
            bool stiff = false;
            const ReducedSolution solution = solve_reduced(reduced, centres, budget, stiff);
            Rounded candidate;
            candidate.groups.count = solution.n_groups;
            candidate.groups.labels.resize(at(n));
            for (Index i = 0; i < n; ++i)
                candidate.groups.labels[at(i)] = solution.merged[at(groups.labels[at(i)])];
            candidate.centres = Points(solution.n_groups, d_);
            candidate.w.assign(at(candidate.centres.stride), 0.0);
            for (Index c = 0; c < groups.count; ++c) {
                const Index to = solution.merged[at(c)];
                candidate.w[at(to)] += start.w[at(c)];
                for (Index k = 0; k < d_; ++k) candidate.centres.at(to, k) = solution.centres[at(c * d_ + k)];
            }
            candidate.objective = objective(level, candidate);
            const double noise = 4.0 * kEps * pass_chain(groups.count) * std::fabs(best.objective);
            const bool tie = std::fabs(candidate.objective - best.objective) <= noise;
            if (tie ? candidate.groups.count < best.groups.count : candidate.objective < best.objective) {
                best = std::move(candidate);
                changed = true;
            }
        }
        if (changed) keep_point(level, best.groups, best.centres);
    }

    ImplicitSolver& o_;
    const ImplicitProblem& p_;
    Index d_;
    const std::function<bool(const ImplicitProgress&)>& hook_;
    PairPasses passes_;
    double size_ = 1.0;  // root mean square of the targets
    std::vector<std::int32_t> order_;
    double curvature_ = 1.0;
    double best_gap_ = kInfinity, best_objective_ = kInfinity;  // of what keep() was given last
    bool last_ = false;                                         // at work on the whole problem
    bool deaf_ = false;
    bool rough_ = true;       // gradients may come from the tree
    bool polishing_ = false;  // float64 gradients, but linear systems as rough as ever
    Level level_;
    Points x_;
    double present_delta_ = 0.0;  // of x_ once it is a point of the whole problem
};

ImplicitSolver::ImplicitSolver(ImplicitProblem problem, ImplicitOptions options)
    : problem_(std::move(problem)), options_(options) {}
ImplicitSolver::~ImplicitSolver() = default;

double ImplicitSolver::shrink() const { return 1.0 - 2.0 * ball_shrink(problem_.n_features); }

bool ImplicitSolver::run(const std::function<bool(const ImplicitProgress&)>& hook) {
    return Search(*this, hook).run();
}

double ImplicitSolver::fusing_bound(const std::function<bool(const ImplicitProgress&)>& hook) {
    return n_clusters_ == 1 ? Search(*this, hook).fusing_bound() : kInfinity;
}

ImplicitCertificate ImplicitSolver::certify(const Vector& centres) {
    const Index m = problem_.n_nodes, d = problem_.n_features;
    Points w(n_clusters_, d);
    Vector mass(at(w.stride), 0.0);
    for (Index c = 0; c < n_clusters_; ++c)
        for (Index k = 0; k < d; ++k) w.at(c, k) = centres[at(c * d + k)];
    CompensatedSum loss, slack, stat;
    double largest = 0.0, magnitude = 0.0;
    for (Index i = 0; i < m; ++i) {
        const Index c = labels_[at(i)];
        mass[at(c)] += problem_.weight[at(i)];
        const double h = problem_.curvature[at(i)];
        double apart = 0.0, product = 0.0, residual = 0.0;
        for (Index k = 0; k < d; ++k) {
            const double x = w.at(c, k), u = x - problem_.targets[at(i * d + k)], g = sums_[at(i * d + k)];
            const double r = h * u + g;
            apart += u * u;
            product += g * x;
            residual += r * r;
            magnitude += std::fabs(g * x) + h * u * u + std::fabs(g * u) + g * g / h;
        }
        loss.add(0.5 * h * apart);
        slack.add(-product);
        stat.add(0.5 * residual / h);
        largest = std::fmax(largest, residual);
    }
    PairPasses passes(options_.n_threads, nullptr);
    ImplicitCertificate out;
    out.penalty = passes.length(w, mass);
    const double penalty = problem_.lam * out.penalty;
    slack.add(penalty);
    out.objective = loss.value() + penalty;
    out.gap = slack.value() + stat.value();
    // G is a sum of m terms of size lam w_i w_j at most, each exact to a few units.
    double total = 0.0, pull = 0.0;
    for (const double r : problem_.weight) total += r;
    for (Index i = 0; i < m; ++i) {
        double size = 0.0;
        for (Index k = 0; k < d; ++k)
            size += std::fabs(w.at(labels_[at(i)], k)) + std::fabs(problem_.targets[at(i * d + k)]);
        pull += problem_.lam * problem_.weight[at(i)] * total * size;
    }
    out.rounding = kEps * (2.0 * pass_chain(m) * (magnitude + penalty) + 32.0 * pull);
    if (out.gap < 0.0) out.gap = 0.0;
    if (!std::isfinite(out.gap)) out.gap = kInfinity;
    out.residual = std::sqrt(largest);
    out.dual_objective = out.objective - out.gap;
    const double scale = std::fmax(std::fabs(out.objective), std::fabs(out.dual_objective));
    out.met = std::isfinite(out.gap) &&
              (out.gap <= options_.eps_rel * scale + options_.eps_abs || out.gap <= out.rounding);
    return out;
}

}  // namespace fusionopt
