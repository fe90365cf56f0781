// Partition finishing. A gap of 1e-6 does not settle which nodes are equal: candidate partitions are read off
// the duals, each reduced problem is solved to rounding, the lowest objective is kept (equal within rounding:
// the coarsest), and the duals are repaired to the flow that this partition needs. If that flow fits into its
// balls, the partition is the exact solution's.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/admm.hpp"

namespace fusionopt {

namespace {

constexpr int kMaxRepairs = 12;
constexpr double kExact = 1e-10;  // relative tolerance of a balancing meant to the last digit
constexpr int kMaxRounds = 8;
constexpr double kNearly = 0.1;  // of a ball's radius, that the flows of a partition worth keeping exceed
constexpr int kMaxFailures = 2;  // rounds that did not lower the objective
constexpr double kMaxShatter = 16.0;   // a cluster larger than this is never broken into its nodes
constexpr double kOutOfReach = 1.2e7;  // edges that are not visited for the sake of a partition alone
constexpr double kFullNewton = 40.0;   // visits an edge that Newton-CG typically takes
constexpr double kFreeDense = 3e6;     // kFreeVisits of complete graphs, where they have no factor

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

Index relabel(Labels& labels) {
    if (labels.empty()) return 0;
    Labels order(at(1 + *std::max_element(labels.begin(), labels.end())), -1);
    std::int32_t next = 0;
    for (std::int32_t& label : labels) {
        std::int32_t& known = order[at(label)];
        if (known < 0) known = next++;
        label = known;
    }
    return next;
}

Index count_labels(const Labels& labels) {
    return labels.empty() ? 0 : 1 + *std::max_element(labels.begin(), labels.end());
}

Vector means(const Labels& labels, Index n_clusters, const Vector& x, Index d) {
    Vector out(at(n_clusters * d), 0.0), count(at(n_clusters), 0.0);
    for (std::size_t i = 0; i < labels.size(); ++i) {
        count[at(labels[i])] += 1.0;
        for (Index k = 0; k < d; ++k) out[at(labels[i] * d + k)] += x[i * at(d) + at(k)];
    }
    for (Index c = 0; c < n_clusters; ++c)
        for (Index k = 0; k < d; ++k) out[at(c * d + k)] /= count[at(c)];
    return out;
}

}  // namespace

Coupling::Sums Admm::manifold(const Vector& phi) {
    Coupling::SweepRequest request;
    request.kind = SweepKind::kManifold;
    fresh_ = false;
    request.step = step(0.0);
    request.phi = &phi;
    request.worst = &worst_;
    const Coupling::Sums sums = coupling_->sweep(request, x_, s_, &g_);
    penalty_ = sums.penalty;
    return sums;
}

// Alternating projections between {row sums = -grad f at x} and the balls, on the edges inside clusters; the
// edges between clusters are fixed at their exact duals. Returns the largest norm after the last balancing,
// to be compared with lam. Impatient, it leaves flows that do not fit at once to others.
double Admm::repair(double& work, double budget, bool patient) {
    std::fill(phi_.begin(), phi_.end(), 0.0);
    manifold(phi_);
    const Index d = loss_.n_features;
    Vector count(at(n_clusters_));
    const double edges = static_cast<double>(coupling_->n_edges()), fits = lam_ * kFits * ball_shrink(d);
    double largest = std::numeric_limits<double>::infinity(), previous = largest,
           tol = coupling_->complete() ? kExact : 1e-3;
    for (int round = 0; round < kMaxRepairs; ++round) {
        double scale = 0.0;
        std::fill(sums_.begin(), sums_.end(), 0.0);
        std::fill(count.begin(), count.end(), 0.0);
        for (Index i = 0; i < loss_.n_nodes; ++i) {
            const Index c = labels_[at(i)];
            loss_.apply_node(i, x_.data() + i * d, node_.data());
            count[at(c)] += 1.0;
            for (Index k = 0; k < d; ++k) {
                const double wanted = loss_.linear[at(i * d + k)] - node_[at(k)];
                rhs_[at(i * d + k)] = wanted - g_[at(i * d + k)];
                sums_[at(c * d + k)] += rhs_[at(i * d + k)];
                scale = std::fmax(scale, std::fmax(std::fabs(wanted), std::fabs(g_[at(i * d + k)])));
            }
        }
        // What a cluster lacks as a whole no flow inside it can give (its centre is not exact): only the rest
        // is balanced.
        for (Index i = 0; i < loss_.n_nodes; ++i)
            for (Index k = 0; k < d; ++k)
                rhs_[at(i * d + k)] -= sums_[at(labels_[at(i)] * d + k)] / count[at(labels_[at(i)])];
        const double noise = std::numeric_limits<double>::epsilon() * scale;
        work += edges *
                (2.0 + static_cast<double>(coupling_->balance(labels_, n_clusters_, rhs_, tol, noise, phi_)));
        largest = manifold(phi_).largest;
        const double excess = largest - lam_;
        if (excess <= fits) {
            if (tol == kExact) break;
            tol = kExact;  // it fits roughly: now the row sums to the last digit
        } else if (!patient) {
            break;
        } else {
            // Too slow to fit in the rounds that are left.
            const double shrinkage = excess / previous;
            if (!(shrinkage < 0.7) ||
                (round > 1 && excess * std::pow(shrinkage, kMaxRepairs - 1 - round) > fits))
                break;
        }
        if (work > budget) {
            if (excess <= fits) largest = std::numeric_limits<double>::infinity();  // balanced roughly only
            break;
        }
        previous = std::fmax(excess, fits);
    }
    coupling_->set_rho(loss_, rho_);
    return largest;
}

double Admm::finishing_work() const {
    if (inner_) return inner_->finishing_work();
    return kFullNewton * static_cast<double>(coupling_->n_edges());
}

bool Admm::large() const { return kFullNewton * static_cast<double>(coupling_->n_edges()) > kOutOfReach; }

// Nearly every node of a large graph is a cluster of its own: Newton over them would cost many times the
// sweeps, and sharper duals as much as those.
bool Admm::left_open(Index n_clusters) const { return 4 * n_clusters > 3 * loss_.n_nodes && large(); }

// Objective of the means, without the constant; on edge lists without building the reduced problem.
FinishedPartition Admm::at_means(const Labels& labels, Index n_clusters) {
    const Index d = loss_.n_features;
    FinishedPartition out{labels, n_clusters, Vector(x_.size()), 0.0, 0.0};
    const Vector centres = means(labels, n_clusters, x_, d);
    for (Index i = 0; i < loss_.n_nodes; ++i)
        std::copy_n(centres.data() + labels[at(i)] * d, d, out.x.data() + i * d);
    if (coupling_->complete()) {
        out.objective =
            reduced_objective(coupling_->reduce(loss_, lam_, labels, n_clusters), centres, out.rounding);
        return out;
    }
    const QuadraticLoss::Value value = loss_.evaluate(out.x, g_);
    const double penalty = lam_ * coupling_->penalty(out.x);
    out.objective = value.value + penalty;
    out.rounding = 4.0 * std::numeric_limits<double>::epsilon() * (value.magnitude + penalty);
    return out;
}

// Without a proof, but only for a few flows that are a little too large.
bool Admm::nearly(const FinishedPartition& partition) const {
    return !coupling_->complete() && partition.largest <= (1.0 + kNearly) * lam_;
}

// The partition that is nearly proven already, where it is no worse than the raw point.
bool Admm::take_settled(FinishReport& report) {
    settled_ = false;
    sweep(0.0, true);
    const Certificate raw = judge(x_, penalty_);
    if (!(loss_.constant + best_.objective <= raw.objective + best_.rounding + raw.rounding)) return false;
    labels_ = best_.labels;
    n_clusters_ = report.n_clusters = best_.n_clusters;
    finished_ = best_.x;
    known_ = report.accepted = report.enough = true;
    skip_ = skipped_ = 0;
    return true;
}

FinishReport Admm::finish(double share, double free) {
    const Index m = loss_.n_nodes;
    if (aggregated()) return finish_aggregated(share);
    if (inner_) {
        const FinishReport told = inner_->finish(share);
        n_clusters_ = told.n_clusters;
        for (Index i = 0; i < m; ++i) labels_[at(i)] = inner_->labels_[at(groups_[at(i)])];
        if (!inner_->finished_.empty()) finished_ = lifted(inner_->finished_);
        x_ = lifted(inner_->x_);
        return told;
    }
    unproject();
    FinishReport report;
    if (settled_ && take_settled(report)) return report;
    const double budget = std::fmax(coupling_->complete() ? kFreeDense : free, share * sweep_work_);
    // Nothing is fused (on complete graphs: next to nothing beyond what is contracted), and Newton on every
    // node would cost more than the sweeps did: the raw point is as good.
    if (kFullNewton * static_cast<double>(coupling_->n_edges()) > budget &&
        (coupling_->complete() ? 4 * n_fused() > 3 * m : n_fused() == m)) {
        finished_ = x_;
        for (Index i = 0; i < m; ++i) labels_[at(i)] = static_cast<std::int32_t>(i);
        n_clusters_ = report.n_clusters = m;
        report.accepted = report.enough = true;
        return report;
    }
    Index middle = 0;
    const std::vector<Labels> ladder = coupling_->partitions(lam_, middle);
    n_fused_ = 0;  // the state changes below
    // The raw point's own objective: a partition that cannot reach it is wrong.
    sweep(0.0, true);
    const Certificate raw = judge(x_, penalty_);
    const Vector kept = x_;

    FinishedPartition best = best_;  // what an earlier call at this lam found counts too
    // The first rung, coming down from margin 0, whose plain means have a lower objective than the next finer
    // one's: wrong mergers cost more than they save. Those means are the first candidate.
    Index rung = middle;
    FinishedPartition plain;
    for (Index k = middle; k >= 0; --k) {
        const Labels& candidate = ladder[at(k)];
        FinishedPartition next = at_means(candidate, count_labels(candidate));
        if (next.objective >= plain.objective) break;
        plain = std::move(next);
        rung = k;
    }
    // The iteration's own duals stay. Pairs that are fused already are so where that is no worse than the raw
    // point.
    const auto leave_open = [&] {
        report.accepted = report.enough = true;
        report.n_clusters = m;
        finished_ = kept;
        if (loss_.constant + plain.objective <= raw.objective) {
            labels_ = plain.labels;
            report.n_clusters = plain.n_clusters;
            finished_ = plain.x;
        } else {
            for (Index i = 0; i < m; ++i) labels_[at(i)] = static_cast<std::int32_t>(i);
        }
        n_clusters_ = report.n_clusters;
        x_ = kept;
        return report;
    };
    if (left_open(count_labels(ladder[at(middle)]))) return leave_open();
    coupling_->keep_state();
    if (plain.objective < best.objective) best = plain;
    if (!search(ladder[at(rung)], x_, ladder, rung, kept, budget, best, report)) return leave_open();
    if (best.labels.empty()) {
        // No candidate has a finite objective: numbers beyond float64. The raw point and its state stay.
        coupling_->swap_state();
        x_ = kept;
        labels_ = ladder[at(middle)];
        n_clusters_ = count_labels(labels_);
        report.n_clusters = n_clusters_;
        return report;
    }
    labels_ = best.labels;
    n_clusters_ = best.n_clusters;
    report.n_clusters = best.n_clusters;
    report.accepted = loss_.constant + best.objective <= raw.objective + best.rounding + raw.rounding;
    best_ = best;
    if (report.proven) {
        x_ = best.x;
        finished_ = best.x;
        known_ = !coupling_->complete();
        return report;
    }
    known_ = report.accepted && nearly(best);
    report.enough = known_ && large();  // the last flows would take many times what the sweeps took
    // Without a proof the iteration's own duals may be the better ones: they were good for this tolerance at
    // a point no better.
    x_ = best.x;
    double repaired = std::numeric_limits<double>::infinity();
    if (report.work <= (coupling_->complete() ? 4.0 : 1.0) * budget) {
        repair(report.work, budget, coupling_->complete());
        sweep(0.0, true);
        repaired = judge(x_, penalty_).gap;
    }
    coupling_->swap_state();
    sweep(0.0, true);
    const bool restore = judge(x_, penalty_).gap <= repaired;
    if (report.accepted) finished_ = best.x;
    if (restore) {
        x_ = kept;
    } else {
        coupling_->swap_state();
    }
    return report;
}

// From a first candidate and centres to start from, towards the exact partition: `best` becomes the best
// candidate, and labels_, x_ and the state those of the last one. Clusters that nothing else settles are
// broken up along `ladder`. False where the problem between the first candidate's clusters is out of reach.
bool Admm::search(Labels labels, Vector x, const std::vector<Labels>& ladder, Index rung, const Vector& kept,
                  double budget, FinishedPartition& best, FinishReport& report) {
    const Index m = loss_.n_nodes, d = loss_.n_features;
    const double bound = lam_ * (1.0 + kFits * ball_shrink(d));
    Labels previous;
    int failures = 0;
    bool stiff = false;
    for (int round = 0; round < kMaxRounds && !report.proven; ++round) {
        Index n_clusters = relabel(labels);
        const Vector start = means(labels, n_clusters, x, d);
        const ReducedSolution solution = solve_reduced(coupling_->reduce(loss_, lam_, labels, n_clusters),
                                                       start, budget - report.work, stiff);
        ++report.candidates;
        report.newton_steps += solution.newton_steps;
        report.work += solution.work;
        if (solution.out_of_reach && round == 0) return false;
        for (Index i = 0; i < m; ++i) {
            std::copy_n(solution.centres.data() + labels[at(i)] * d, d, x.data() + i * d);
            labels[at(i)] = solution.merged[at(labels[at(i)])];
        }
        n_clusters = relabel(labels);

        const double noise = solution.rounding + best.rounding;
        const bool tie = std::fabs(solution.objective - best.objective) <= noise;
        if (!tie) failures = solution.objective < best.objective ? 0 : failures + 1;
        if (tie ? n_clusters < best.n_clusters : solution.objective < best.objective)
            best = {labels, n_clusters, x, solution.objective, solution.rounding};
        if (failures > kMaxFailures) break;

        labels_ = labels;
        n_clusters_ = n_clusters;
        x_ = x;
        // Nothing is proven around centres that are not exact.
        if (!solution.stationary && !coupling_->complete() && report.work > budget) break;
        double largest = repair(report.work, budget, coupling_->complete());
        bool parted = false;
        if (solution.stationary && largest > bound) {
            if (coupling_->complete()) {
                largest = settle_clusters(largest);
            } else {
                const bool settled = part_clusters(labels, x, report.work, budget);
                parted = labels != labels_;
                if (!parted) largest = repair(report.work, budget, !settled);
            }
        }
        report.proven = solution.stationary && largest <= bound;
        if (solution.stationary && labels_ == best.labels) best.largest = std::fmin(best.largest, largest);
        if (report.proven) {
            // The exact partition: by strict convexity no other can be lower.
            best = {labels, n_clusters, x, solution.objective, solution.rounding};
            break;
        }
        if (parted && report.work <= budget) continue;
        if (large() && nearly(best)) break;
        // A split that Newton took back was made at the wrong place: look at the next finer rung.
        if (labels == previous) --rung;
        previous = labels;
        if (rung < 0 || report.work > budget || !split(ladder, rung, kept, labels, x)) break;
    }
    return true;
}

// Looks at clusters whose flow does not fit, each with the forces of the others held: labels and x are those
// of the pieces where some came apart. True where none did, and the state holds flows that should fit.
bool Admm::part_clusters(Labels& labels, Vector& x, double& work, double budget) {
    const double bound = lam_ * (1.0 + kFits * ball_shrink(loss_.n_features));
    std::vector<char> open(at(n_clusters_), 0);
    for (Index i = 0; i < loss_.n_nodes; ++i)
        if (worst_[at(i)] > bound) open[at(labels_[at(i)])] = 1;
    Index n_clusters = n_clusters_;
    labels = labels_;
    const double visited =
        coupling_->part_clusters(loss_, step(0.0), open, budget - work, labels, n_clusters, x);
    work += visited;
    return visited > 0.0 && n_clusters == n_clusters_;
}

// A cluster whose flow does not fit its balls is too coarse: it is broken up along the next finer rung of the
// ladder that divides it, or, when it is small, into its nodes where none does. Its parts start where the raw
// point has them, around the present centre.
bool Admm::split(const std::vector<Labels>& ladder, Index coarsest, const Vector& kept, Labels& labels,
                 Vector& x) const {
    const Index m = loss_.n_nodes, d = loss_.n_features;
    const double bound = lam_ * (1.0 + kFits * ball_shrink(d));
    std::vector<char> bad(at(n_clusters_), 0);
    std::vector<double> count(at(n_clusters_), 0.0);
    Vector mean(at(n_clusters_ * d), 0.0);
    for (Index i = 0; i < m; ++i) {
        const Index c = labels_[at(i)];
        if (worst_[at(i)] > bound) bad[at(c)] = 1;
        count[at(c)] += 1.0;
        for (Index k = 0; k < d; ++k) mean[at(c * d + k)] += kept[at(i * d + k)];
    }
    std::vector<Index> rung(at(n_clusters_), -1);
    for (Index level = coarsest; level >= 0; --level) {
        const Labels& finer = ladder[at(level)];
        std::vector<std::int32_t> first(at(n_clusters_), -1);
        for (Index i = 0; i < m; ++i) {
            const std::size_t c = at(labels_[at(i)]);
            if (first[c] < 0) first[c] = finer[at(i)];
            if (bad[c] && rung[c] < 0 && finer[at(i)] != first[c]) rung[c] = -2 - level;
        }
        for (Index& r : rung)
            if (r <= -2) r = -2 - r;
    }
    bool changed = false;
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> parts;
    std::int32_t next = static_cast<std::int32_t>(n_clusters_);
    for (Index i = 0; i < m; ++i) {
        const std::int32_t c = labels_[at(i)];
        labels[at(i)] = c;
        if (!bad[at(c)] || (rung[at(c)] < 0 && count[at(c)] > kMaxShatter)) continue;
        const std::int32_t part =
            rung[at(c)] >= 0 ? ladder[at(rung[at(c)])][at(i)] : static_cast<std::int32_t>(i);
        const auto [found, fresh] = parts.try_emplace({c, part}, next);
        if (fresh) ++next;
        labels[at(i)] = found->second;
        changed = true;
        for (Index k = 0; k < d; ++k)
            x[at(i * d + k)] += kept[at(i * d + k)] - mean[at(c * d + k)] / count[at(c)];
    }
    return changed;
}

}  // namespace fusionopt
