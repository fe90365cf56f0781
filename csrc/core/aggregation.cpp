// Along a path of larger and larger lam on an edge list, the clusters of a partition that is proven, or
// nearly, mostly stay whole. The problem between them has the same form (H, q and the weights of parallel
// edges summed) and fewer nodes and edges, and is solved first. What it tells is then proven on the whole
// graph: flows inside the clusters have to fit their balls, those of the lam before being the start. On a
// general graph a cluster may split again (engine.md 2.6, case E1): then its flow does not fit, and parting
// or the iteration with every node finds the pieces.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/admm.hpp"

namespace fusionopt {

namespace {

constexpr double kWorthwhile = 0.5;  // share of the edges that may be left between the clusters
constexpr double kVisits = 120.0;    // an edge, that a proof on the whole graph may take
constexpr double kFollow = 0.9;      // of the growth of lam, that flows inside clusters begin with
constexpr double kSharper = 1e-4;    // share of the tolerance asked for: a sweep costs little here
constexpr Index kMaxSkips = 8;       // lams after proofs that failed

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

}  // namespace

// Starts this lam with the problem between the clusters of the one before.
bool Admm::aggregate() {
    if (!known_ || coupling_->complete() || loss_.dense || loss_.singular) return false;
    if (skipped_ < skip_) {
        ++skipped_;
        return false;
    }
    std::unique_ptr<Coupling> part = coupling_->part(labels_, n_clusters_, false);
    if (part == nullptr || part->n_edges() == 0 ||
        static_cast<double>(part->n_edges()) > kWorthwhile * static_cast<double>(coupling_->n_edges()))
        return false;
    // Forces from outside grow with lam where the clusters keep their places.
    coupling_->grow(1.0 + kFollow * (growth_ - 1.0), lam_);
    groups_ = labels_;
    QuadraticLoss loss = sum_over_clusters(loss_, groups_, n_clusters_);
    loss.constant = loss_.constant;
    const Vector centres = restricted(x_);
    inner_ = std::make_unique<Admm>(std::move(loss), std::move(part), lam_, options_);
    inner_->warm_start(centres);
    if (!(options_.rho > 0.0) && inner_->coupling_->spread_rho(inner_->step(0.0), kClip, 1.0)) {
        inner_->sweep(0.0, false);
        inner_->coupling_->set_rho(inner_->loss_, inner_->rho_);
    }
    inner_->restart(true);
    inner_->opening_ = opening_;
    restart(true);
    tightening_ = kSharper;
    return true;
}

FinishReport Admm::finish_aggregated(double share) {
    const double budget = std::fmax(kFreeVisits, kVisits * static_cast<double>(coupling_->n_edges()));
    FinishReport report = inner_->finish(share, 2.0 * budget);
    Labels labels(groups_.size());
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = inner_->labels_[at(groups_[i])];
    const bool tried = inner_->known_;  // else its partition is not worth a proof
    const double work = std::exchange(report.work, 0.0);
    report.proven = false;
    if (!inner_->finished_.empty()) inner_->x_ = inner_->finished_;
    expand();
    FinishedPartition best;
    best.x = x_;
    if (tried) {
        search(labels, best.x, {}, -1, Vector(x_), budget, best, report);
        report.work += work;
        if (!best.labels.empty()) {
            labels_ = best.labels;
            n_clusters_ = report.n_clusters = best.n_clusters;
        }
        if (report.proven) {
            skip_ = skipped_ = 0;
            known_ = report.accepted = true;
            x_ = finished_ = best.x;
            best_ = std::move(best);
            return report;
        }
    }
    // Not proven. The duals that point along the differences of the best point, and flows as they are now.
    x_ = best.x;
    std::fill(phi_.begin(), phi_.end(), 0.0);
    manifold(phi_);
    coupling_->set_rho(loss_, rho_);
    tightening_ = 1.0;
    // On a large graph the last flows would take many times what all else took.
    const bool near = tried && large() && nearly(best);
    if (near && within(judge(x_, penalty_))) {
        skip_ = skipped_ = 0;
        known_ = report.accepted = report.enough = true;
        finished_ = x_;
        best_ = std::move(best);
        return report;
    }
    // The iteration goes on from here.
    restart(true);
    settled_ = near;
    known_ = false;
    if (near) best_ = std::move(best);
    skip_ = std::clamp(2 * skip_, Index{1}, kMaxSkips);
    skipped_ = 0;
    return {};
}

}  // namespace fusionopt
