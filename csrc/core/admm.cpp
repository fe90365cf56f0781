#include "core/admm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace fusionopt {

namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Index kMaxNullSteps = 500;
// After this many changes rho stays: ADMM's convergence proof needs it to be constant from some point on.
constexpr Index kMaxAdaptations = 40;
constexpr double kRhoRange = 1e5;  // rho stays within this factor of its start
// A path's next lam is often met within a few sweeps: on the complete graph, where a check costs little more
// than a sweep, the first ones are all checked;
constexpr Index kEarlyChecks = 3;
// on edge lists the first one comes earlier after lams that were met with this much to spare.
constexpr double kEasy = 0.01;
// A relative gap sharper than what was asked for and than this is sought in float64.
constexpr double kFine = 1e-9;
// So is a gap that has not come down by this factor in so many checks.
constexpr double kFalls = 0.5;
constexpr Index kStale = 10;
// Edge lists, next lam of a path: rho is nearly right, and after a whole change the gap needs 30 sweeps to
// come back to where it was. It goes this share of the way, in logarithms, from this sweep on.
constexpr double kWarmShare = 0.5;
constexpr Index kWarmAdapt = 10, kFirstAdapt = 20;

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

}  // namespace

Admm::Admm(QuadraticLoss loss, std::unique_ptr<Coupling> coupling, double lam, AdmmOptions options)
    : loss_(std::move(loss)),
      pool_(options.n_threads),
      coupling_(std::move(coupling)),
      options_(options),
      lam_(lam) {
    coupling_->use(&pool_);
    const std::size_t size = at(loss_.n_nodes * loss_.n_features);
    for (Vector* v : {&x_, &fused_, &s_, &g_, &rhs_, &phi_, &sums_}) v->assign(size, 0.0);
    node_.assign(at(loss_.n_features), 0.0);
    worst_.assign(at(loss_.n_nodes), 0.0);
    work_.resize(size);
    labels_.assign(at(loss_.n_nodes), 0);
    opening_ = check_every_ =
        options_.check_every > 0 ? options_.check_every : (coupling_->complete() ? 5 : 10);
    for (Index i = 0; i < loss_.n_nodes; ++i)
        loss_.solve_node(i, 0.0, loss_.linear.data() + i * loss_.n_features, x_.data() + i * loss_.n_features,
                         node_.data());
    first_rho_ = options_.rho > 0.0 ? options_.rho : coupling_->start_rho(loss_, lam_, x_);
    rho_ = first_rho_;
    coupling_->set_rho(loss_, rho_);
}

StepParameters Admm::step(double alpha) const { return {lam_, rho_, alpha, stretch_}; }

void Admm::sweep(double alpha, bool check) {
    if (alpha != 0.0) n_fused_ = 0;
    fresh_ = false;
    Coupling::SweepRequest request;
    request.step = step(alpha);
    request.step.lam_old = moved_from_;
    told_ = coupling_->sweep(request, x_, s_, check ? &g_ : nullptr);
    penalty_ = told_.penalty;
    stretch_ = 1.0;
    moved_from_ = 0.0;
}

bool Admm::run(Index iterations) {
    if (inner_) {
        const Index before = inner_->n_iter_;
        const double work = inner_->sweep_work_;
        inner_->tightening_ = tightening_;
        const bool met = inner_->run(iterations);
        (aggregated() ? n_between_ : n_iter_) += inner_->n_iter_ - before;
        since_start_ += inner_->n_iter_ - before;
        sweep_work_ += inner_->sweep_work_ - work;
        last_ = inner_->last_;
        opening_ = inner_->opening_;
        finished_.clear();
        x_ = lifted(inner_->x_);
        return met;
    }
    const double moved = std::exchange(moved_from_, 0.0);
    unproject();
    moved_from_ = moved;
    known_ = false;
    finished_.clear();  // of the duals before
    // Next to the lam of a merger the partition hangs on digits that float32 does not have, and nodes of very
    // different weights may need them for the gap.
    fine_ = fine_ || (tightening_ < 1.0 && tightening_ * options_.eps_rel <= kFine);
    coupling_->settle(lam_, moved_from_, fine_);
    for (Index k = 0; k < iterations; ++k) {
        const bool first = warm_ && since_start_ + 1 == opening_ && !coupling_->complete(),
                   early = warm_ && since_start_ + 1 >= first_check_ && since_start_ < kEarlyChecks &&
                           coupling_->complete();
        const bool checking = moved_from_ > 0.0 || first || early || (since_start_ + 1) % check_every_ == 0;
        sweep(options_.relaxation, checking);
        ++n_iter_;
        ++since_start_;
        const bool met = checking && check();
        if (first) opening_ = next_opening(met);
        if (met) {
            fresh_ = coupling_->has_parts() && !loss_.singular;
            return true;
        }
        for (std::size_t a = 0; a < rhs_.size(); ++a) rhs_[a] = loss_.linear[a] + s_[a];
        const double passes = coupling_->solve_x(loss_, rhs_, x_);
        sweep_work_ += static_cast<double>(coupling_->n_edges()) * (2.0 + passes);
    }
    return false;
}

// Sweeps before the first check at the next lam.
Index Admm::next_opening(bool met) const {
    if (!met) return std::min(2 * opening_, check_every_);
    return last_.gap <= kEasy * tolerance(last_) ? std::max(opening_ / 2, Index{2}) : opening_;
}

// gap = [lam pen - <g, x>] + [1/2 ||grad f(x) + g||^2 in H^+]: slack of the duals plus residual of the nodes,
// both >= 0 for any x and any feasible dual of a quadratic problem (theory: duality gap). A residual outside
// the range of H_i makes the dual value -infinity.
Certificate Admm::judge(const Vector& x, double penalty) {
    const QuadraticLoss::Value value = loss_.evaluate(x, g_);
    Certificate out;
    const double slack = lam_ * penalty - value.product;
    out.penalty = penalty;
    out.slack = slack > 0.0 ? slack : 0.0;
    out.objective = loss_.constant + value.value + lam_ * penalty;
    const double magnitude = std::fabs(loss_.constant) + value.magnitude + lam_ * penalty + value.stat;
    out.rounding = kEps * coupling_->chain() * magnitude;
    out.gap = slack + value.stat;
    // Negative within rounding is zero; what is not a number is no certificate (and fmax would hide it).
    if (out.gap < 0.0) out.gap = 0.0;
    if (!std::isfinite(out.gap)) out.gap = kInfinity;
    out.residual = value.residual;
    if (loss_.singular) {
        double scale = 0.0;
        for (std::size_t k = 0; k < g_.size(); ++k)
            scale = std::fmax(scale, std::fmax(std::fabs(g_[k]), std::fabs(loss_.linear[k])));
        if (value.null > kEps * coupling_->chain() * scale) out.gap = kInfinity;
    }
    out.dual_objective = out.objective - out.gap;
    out.met = within(out);
    return out;
}

// The gap that was asked for.
double Admm::tolerance(const Certificate& c) const {
    const double size = std::fmax(std::fabs(c.objective), std::fabs(c.dual_objective));
    return std::isfinite(size) ? options_.eps_rel * size + options_.eps_abs : 0.0;
}

// The stop rule.
bool Admm::within(const Certificate& c) const {
    if (!std::isfinite(c.gap)) return false;
    // The rounding bound is worst case; a thousandth of it can still be reached, less cannot.
    return c.gap <= tightening_ * tolerance(c) || c.gap <= std::fmax(tightening_, 1e-3) * c.rounding;
}

NewtonReport Admm::refine(double budget) {
    if (coupling_->complete()) return {};
    expand();
    unproject();
    known_ = false;
    sweep(0.0, true);
    const Certificate now = judge(x_, penalty_);
    if (!std::isfinite(now.gap)) return {};
    const double target = tolerance(now);
    const Vector kept = x_, y = coupling_->copy_state();
    NewtonReport report = coupling_->newton(loss_, step(0.0), target, budget, x_);
    if (report.steps == 0) return report;
    n_fused_ = 0;
    sweep(0.0, true);
    last_ = judge(x_, penalty_);
    report.improved = last_.gap < now.gap;
    if (!report.improved) {
        x_ = kept;
        coupling_->put_state(y);
        sweep(0.0, true);
        last_ = judge(x_, penalty_);
    }
    sweep_work_ += report.work;
    return report;
}

void Admm::unproject() {
    if (projected_) coupling_->swap_state();
    projected_ = false;
    if (moved_from_ > 0.0) move();
}

// Singular H_i: the dual value is finite only where g_i lies in the range of H_i. The flow is corrected by
// the potentials phi = Pi u with Pi (g + B'WB Pi u) = 0, then scaled into the balls as a whole (the range
// condition is homogeneous). g_ and only g_ is changed here; commit the same to y with finish() or certify().
void Admm::project_null() {
    const Index n = loss_.n_nodes, d = loss_.n_features;
    const auto null_part = [&](Vector& v) {
        for (Index i = 0; i < n; ++i) loss_.null_part(i, v.data() + i * d, node_.data());
    };
    const auto apply = [&](const Vector& v, Vector& av) {
        coupling_->laplacian(v, av);
        null_part(av);
    };
    const auto copy = [](const Vector& r, Vector& z) { z = r; };
    std::fill(phi_.begin(), phi_.end(), 0.0);
    for (std::size_t k = 0; k < g_.size(); ++k) rhs_[k] = -g_[k];
    null_part(rhs_);
    // Rounding has no place to go: below it the system is singular and its solution noise.
    double scale = 0.0;
    for (std::size_t k = 0; k < g_.size(); ++k)
        scale = std::fmax(scale, std::fmax(std::fabs(g_[k]), std::fabs(loss_.linear[k])));
    const double noise = 4.0 * kEps * scale, floor = noise * noise * static_cast<double>(g_.size());
    for (int pass = 0; pass < 2; ++pass)
        pcg(apply, copy, rhs_, phi_, pass == 0 ? 1e-10 : 1e-6, kMaxNullSteps, work_, floor);
    coupling_->laplacian(phi_, sums_);
    for (std::size_t k = 0; k < g_.size(); ++k) g_[k] += sums_[k];
}

// Writes the mean of x over the components of {||y|| <= lam} to out; sums and count are scratch. Returns the
// number of components.
Index Admm::fuse(Labels& labels, Vector& sums, Vector& count, Vector& out) {
    const Index d = loss_.n_features, n = coupling_->fused_labels(lam_, labels);
    std::fill(sums.begin(), sums.end(), 0.0);
    std::fill(count.begin(), count.end(), 0.0);
    for (Index i = 0; i < loss_.n_nodes; ++i) {
        count[at(labels[at(i)])] += 1.0;
        for (Index k = 0; k < d; ++k) sums[at(labels[at(i)] * d + k)] += x_[at(i * d + k)];
    }
    for (Index i = 0; i < loss_.n_nodes; ++i)
        for (Index k = 0; k < d; ++k)
            out[at(i * d + k)] = sums[at(labels[at(i)] * d + k)] / count[at(labels[at(i)])];
    return n;
}

void Admm::fused_point(Vector& out) {
    Labels labels;
    Vector sums(x_.size()), count(x_.size());
    out.resize(x_.size());
    if (inner_) {
        inner_->fused_point(sums);
        out = lifted(sums);
        return;
    }
    fuse(labels, sums, count, out);
}

bool Admm::check() {
    // The balance of the iteration itself; with singular H_i it leaves out the part of the residual that no
    // loss feels.
    const QuadraticLoss::Value own = loss_.evaluate(x_, g_);
    bool due_to_finish = false;
    if (loss_.singular) {
        Certificate balance;
        balance.objective = loss_.constant + own.value + lam_ * penalty_;
        balance.gap = lam_ * penalty_ - own.product + own.stat;
        balance.dual_objective = balance.objective - balance.gap;
        due_to_finish = within(balance);
        project_null();
        Coupling::SweepRequest request;
        request.kind = SweepKind::kProject;
        request.step = step(0.0);
        request.phi = &phi_;
        request.commit = false;
        // The trial overwrites s, which the x-step needs: sums_ takes it.
        const double largest = coupling_->sweep(request, x_, sums_, nullptr).largest;
        const double scale = largest > lam_ ? lam_ / largest * (1.0 - ball_shrink(loss_.n_features)) : 1.0;
        for (double& g : g_) g *= scale;
    }
    last_ = judge(x_, penalty_);
    if (!coupling_->complete() && !last_.met) {
        // The mean over the components of fused edges has no slack there: worth much at large lam.
        if (fuse(labels_, sums_, rhs_, fused_) < loss_.n_nodes) {
            const Certificate candidate = judge(fused_, coupling_->penalty(fused_));
            if (candidate.gap < last_.gap) last_ = candidate;
        }
    }
    if (last_.met || due_to_finish) return true;
    if (coupling_->complete()) {
        stale_ = last_.gap < kFalls * lowest_ ? 0 : stale_ + 1;
        if (stale_ == 0) lowest_ = last_.gap;
        fine_ = fine_ || stale_ >= kStale;
        const bool due = since_start_ % (since_start_ <= 100 ? check_every_ : 5 * check_every_) == 0;
        if (due && n_adapted_ < kMaxAdaptations) {
            adapt_complete(own, lam_ * penalty_ - own.product);
        }
    } else if (since_start_ >= next_adapt_ && n_adapted_ < kMaxAdaptations) {
        adapt_edges();
    }
    return false;
}

// Balances the two parts of the gap (engine design 2.2): a large slack asks for a larger rho, a large
// residual for a smaller one.
void Admm::adapt_complete(const QuadraticLoss::Value& value, double slack) {
    if (!(value.stat > 0.0) || !(slack > 0.0)) return;
    double factor = std::clamp(std::sqrt(std::sqrt(slack / value.stat)), 0.2, 5.0);
    factor = std::clamp(rho_ * factor, first_rho_ / kRhoRange, first_rho_ * kRhoRange) / rho_;
    if (factor < 1.5 && factor > 1.0 / 1.5) return;
    // With singular H the projected g is not the state's: take it anew.
    if (loss_.singular) sweep(0.0, true);
    rho_ *= factor;
    stretch_ = factor;
    // s = sum w (y - 2P) after y <- P + factor (y - P), with no pass over the pairs.
    for (std::size_t k = 0; k < s_.size(); ++k) s_[k] = (s_[k] + g_[k]) * factor - g_[k];
    coupling_->set_rho(loss_, rho_);
    ++n_adapted_;
}

void Admm::adapt_edges() {
    const double primal = coupling_->primal_residual(step(0.0), x_, nullptr);
    double residual = 0.0, size = 0.0;
    const Index d = loss_.n_features;
    for (Index i = 0; i < loss_.n_nodes; ++i) {
        loss_.apply_node(i, x_.data() + i * d, node_.data());
        for (Index k = 0; k < d; ++k) {
            const double r = node_[at(k)] - loss_.linear[at(i * d + k)] + g_[at(i * d + k)];
            residual += r * r;
            size += g_[at(i * d + k)] * g_[at(i * d + k)];
        }
    }
    const double dual = size > 0.0 ? std::sqrt(residual / size) : 0.0;
    double factor = primal > 0.0 && dual > 0.0 ? std::clamp(std::sqrt(primal / dual), 0.2, 5.0) : 1.0;
    factor = std::pow(factor, rho_share_);
    coupling_->spread_rho(step(0.0), kClip, rho_share_);
    rho_ *= factor;
    stretch_ = factor;
    sweep(0.0, false);
    coupling_->set_rho(loss_, rho_);
    ++n_adapted_;
    next_adapt_ = n_adapted_ < 3 ? next_adapt_ + 10 * n_adapted_ : next_adapt_ + next_adapt_ / 2;
}

Certificate Admm::certify(const Vector& x) {
    unproject();
    tightening_ = 1.0;  // the verdict is by the tolerance that was asked for
    double penalty = measure(x);
    if (loss_.singular) {
        // The corrected duals take the place of the state until the next run, so that the duals handed out
        // are the ones judged.
        coupling_->keep_state();
        projected_ = true;
        project_null();
        Coupling::SweepRequest request;
        request.kind = SweepKind::kProject;
        request.step = step(0.0);
        request.phi = &phi_;
        request.commit = false;
        const double largest = coupling_->sweep(request, x, s_, nullptr).largest;
        request.scale = largest > lam_ ? lam_ / largest * (1.0 - 2.0 * ball_shrink(loss_.n_features)) : 1.0;
        request.commit = true;
        penalty = coupling_->sweep(request, x, s_, &g_).penalty;
    }
    last_ = judge(x, penalty);
    return last_;
}

double Admm::primal_residual() {
    if (inner_) return inner_->primal_residual();
    if (coupling_->has_parts() && !coupling_->grouped() && !loss_.singular) {
        if (!fresh_) {
            unproject();
            sweep(0.0, true);
        }
        return std::sqrt(std::fmax(told_.residual, 0.0));
    }
    double absolute = 0.0;
    coupling_->primal_residual(step(0.0), x_, &absolute);
    return absolute;
}

// The loop's counters and the x-step of the present state, after the problem has changed.
void Admm::restart(bool along_path) {
    finished_.clear();
    best_ = {};
    n_fused_ = 0;
    warm_ = true;
    first_check_ = kEarlyChecks;
    since_start_ = 0;
    n_adapted_ = 0;
    next_adapt_ = along_path ? kWarmAdapt : kFirstAdapt;
    rho_share_ = along_path ? kWarmShare : 1.0;
    tightening_ = 1.0;
    sweep_work_ = 0.0;
    settled_ = fine_ = false;
    lowest_ = kInfinity;
    stale_ = 0;
    if (inner_) return;
    for (std::size_t a = 0; a < rhs_.size(); ++a) rhs_[a] = loss_.linear[a] + s_[a];
    coupling_->solve_x(loss_, rhs_, x_);
}

void Admm::set_lam(double lam) {
    if (inner_ && !aggregated() && move_inner(lam)) {
        lam_ = lam;
        return restart(true);
    }
    expand();
    growth_ = lam / lam_;
    n_between_ = 0;
    if (!defer_move(lam)) {
        unproject();
        moved_from_ = lam_;
        lam_ = lam;
        move();
    }
    if (growth_ > 1.0 && aggregate()) return;
    known_ = false;
    restart(true);
    if (coupling_->has_parts() && !loss_.singular) first_check_ = 1;
}

// The state keeps its distance from the balls.
void Admm::move() {
    Coupling::SweepRequest request;
    request.kind = SweepKind::kMove;
    request.lam_old = std::exchange(moved_from_, 0.0);
    request.step = step(0.0);
    fresh_ = false;
    coupling_->sweep(request, x_, s_, nullptr);
}

// Where every y lies outside its ball, moving takes (lam / lam_old - 1) P off y - 2 P: the row sums follow
// without a pass, and the next sweep moves the state as it reads it.
bool Admm::defer_move(double lam) {
    if (!fresh_ || stretch_ != 1.0 || !(told_.tightest < 1.0) || loss_.singular) return false;
    for (std::size_t k = 0; k < s_.size(); ++k) s_[k] -= (lam / lam_ - 1.0) * g_[k];
    fresh_ = false;
    moved_from_ = lam_;
    lam_ = lam;
    return true;
}

void Admm::set_loss(QuadraticLoss loss) {
    expand();
    unproject();
    known_ = false;
    loss_ = std::move(loss);
    sweep(0.0, false);
    coupling_->set_rho(loss_, rho_);
    restart();
}

void Admm::pass_state(StateStream& stream) {
    stream.pass(lam_);
    stream.pass(rho_);
    stream.pass(stretch_);
    stream.pass(n_iter_);
    stream.pass(opening_);
    stream.pass(x_);
    stream.pass(skip_);
    stream.pass(skipped_);
    stream.pass(known_);
    if (known_) {
        stream.pass(n_clusters_);
        for (std::int32_t& label : labels_) stream.pass(label);
    }
    coupling_->pass_state(stream);
}

std::vector<double> Admm::state() {
    expand();
    unproject();
    fresh_ = false;  // what comes next is computed as after restore()
    std::vector<double> numbers;
    StateStream stream(numbers, true);
    pass_state(stream);
    return numbers;
}

void Admm::restore(std::vector<double> numbers) {
    fresh_ = false;
    expand();
    unproject();
    StateStream stream(numbers, false);
    pass_state(stream);
    stream.close();
    finished_.clear();
    best_ = {};
    settled_ = false;
    n_fused_ = 0;
    coupling_->set_rho(loss_, rho_);
}

void Admm::warm_start(const Vector& x) {
    expand();
    known_ = false;
    x_ = x;
    finished_.clear();
    best_ = {};
    settled_ = false;
    n_fused_ = 0;
    std::fill(phi_.begin(), phi_.end(), 0.0);
    manifold(phi_);
}

}  // namespace fusionopt
