// Contraction of a complete graph with weights W r_i r_j. A set C of nodes is fused at the optimum if a flow
// inside it balances what its nodes want of each other,
//     sum_{j in C} W r_i r_j z_ij = q_i - (r_i / r_C) sum_C q,   ||z_ij|| <= lam,
// which the solution elsewhere does not enter where every H_i is h r_i I: the others pull at all of C in
// proportion to r_i. Such a flow serves every larger lam too. The problem between the proven sets has the
// same form (q, h and r summed), so the iteration goes on there from the means of its state, and neither
// objective, dual value nor gap change.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "core/admm.hpp"

namespace fusionopt {

namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Norms, in units of lam, of the pairs that hold a candidate set together: those of its rim are still moving.
constexpr double kBounds[] = {0.9, 1.003, 1.01, 1.03};
constexpr double kWorthwhile = 0.5;   // share of the pairs that may be left
constexpr double kLeastShare = 0.01;  // of the pairs in a set that is worth a flow
constexpr double kLeastInside = 0.5;  // pairs a node within the largest of the norms, or there are no sets
constexpr Index kThorough = 5;
constexpr Index kMaxFlowChecks = 30;  // for a cluster of the solution
constexpr Index kFlowCheck = 3;       // sweeps between two
constexpr double kSame = 0.8;         // a set that has lost so few of its nodes is as far from a flow
constexpr double kSlow = 0.7;         // least progress between two

std::size_t at(Index k) { return static_cast<std::size_t>(k); }
double pairs(Index n) { return 0.5 * static_cast<double>(n) * static_cast<double>(n - 1); }

}  // namespace

// What the flow inside a set has to balance.
Vector Admm::force_inside(const Nodes& nodes) const {
    const Index n = static_cast<Index>(nodes.size()), d = loss_.n_features;
    Vector b(at(n * d)), total(at(d), 0.0);
    double sum = 0.0;
    for (Index k = 0; k < n; ++k) {
        const Index i = nodes[at(k)];
        sum += coupling_->node_weight(i);
        for (Index a = 0; a < d; ++a) {
            b[at(k * d + a)] = loss_.linear[at(i * d + a)];
            total[at(a)] += b[at(k * d + a)];
        }
    }
    for (Index k = 0; k < n; ++k)
        for (Index a = 0; a < d; ++a)
            b[at(k * d + a)] -= coupling_->node_weight(nodes[at(k)]) / sum * total[at(a)];
    return b;
}

// Whether some node needs more than all pairs inside the set can carry.
bool Admm::overloaded(const Nodes& nodes) const {
    const Index n = static_cast<Index>(nodes.size()), d = loss_.n_features;
    const Vector b = force_inside(nodes);
    double sum = 0.0;
    for (const std::int32_t i : nodes) sum += coupling_->node_weight(i);
    for (Index k = 0; k < n; ++k) {
        const double r = coupling_->node_weight(nodes[at(k)]);
        const double most = lam_ * coupling_->pair_weight() * r * (sum - r);
        if (dot(b.data() + k * d, b.data() + k * d, at(d)) > most * most * (1.0 + 1e-9)) return true;
    }
    return false;
}

// Douglas-Rachford between the balls and the flows that balance: a sweep of the pairs of the set with
// potentials in the place of rho x. The potentials also tell where there is no such flow: then
// <b, phi> > lam sum w ||phi_i - phi_j|| for some phi.
Admm::Flow Admm::settle_flow(Core& core, Index checks) {
    const Index d = loss_.n_features;
    const Vector b = force_inside(core.nodes);
    const Labels one(core.nodes.size(), 0);
    Vector phi(b.size(), 0.0), s(b.size()), g(b.size()), e(b.size());
    Coupling& flow = *core.flow;
    flow.use(&pool_);
    Coupling::SweepRequest relax, project;
    relax.step = project.step = {lam_, 1.0, 0.0, 1.0};
    project.kind = SweepKind::kProject;
    project.phi = &phi;
    double excess = std::numeric_limits<double>::infinity();
    flow.sweep(relax, phi, s, &g);
    relax.step.alpha = options_.relaxation;
    for (Index k = 0; k < checks; ++k) {
        for (std::size_t a = 0; a < e.size(); ++a) e[a] = b[a] - g[a];
        flow.balance(one, 1, e, 0.0, 0.0, phi);
        project.commit = false;
        core.largest = flow.sweep(project, phi, e, nullptr).largest;
        if (core.largest <= lam_ * (1.0 + kFits * ball_shrink(d))) {
            project.commit = true;
            flow.sweep(project, phi, e, nullptr);
            return Flow::kFits;
        }
        // Too slow: next to the lam where the set fuses, which sweeps of everything settle as well.
        const double before = excess;
        excess = core.largest - lam_;
        if (k > 1 && excess > kSlow * before) return Flow::kOpen;
        for (Index l = 0; l < kFlowCheck; ++l) {
            for (std::size_t a = 0; a < e.size(); ++a) e[a] = b[a] + s[a];
            flow.balance(one, 1, e, 0.0, 0.0, phi);
            const bool look = l == 0 || l + 1 == kFlowCheck;
            const double penalty = flow.sweep(relax, phi, s, look ? &g : nullptr).penalty;
            if (look && dot(b, phi) > lam_ * penalty * (1.0 + kEps * flow.chain()))
                return k == 0 && l == 0 ? Flow::kFar : Flow::kNone;
        }
    }
    return Flow::kOpen;
}

// Whether every H_i is h r_i I, h > 0.
bool Admm::proportional() const {
    if (!coupling_->has_parts() || loss_.dense || loss_.singular) return false;
    double least = kInfinity, most = 0.0;
    for (Index i = 0; i < loss_.n_nodes; ++i) {
        const double r = coupling_->node_weight(i);
        if (!(r > 0.0)) continue;
        least = std::fmin(least, loss_.eigenvalues[at(i)] / r);
        most = std::fmax(most, loss_.eigenvalues[at(i)] / r);
    }
    return most <= least * (1.0 + 4.0 * kEps);
}

Admm::Core Admm::core_of(const Nodes& nodes) const {
    Core core;
    core.nodes = nodes;
    core.flow = coupling_->part(places(nodes), static_cast<Index>(nodes.size()), true);
    return core;
}

// The number of each node in the set, -1 for the others.
Labels Admm::places(const Nodes& nodes) const {
    Labels out(at(loss_.n_nodes), -1);
    for (std::size_t k = 0; k < nodes.size(); ++k) out[at(nodes[k])] = static_cast<std::int32_t>(k);
    return out;
}

// Flows for the clusters of labels_ whose worst_ norm lies outside its ball. Returns the largest norm there
// is then.
double Admm::settle_clusters(double largest) {
    if (!proportional()) return largest;
    const double bound = lam_ * (1.0 + kFits * ball_shrink(loss_.n_features));
    std::vector<Nodes> nodes(at(n_clusters_));
    std::vector<double> worst(at(n_clusters_), 0.0);
    for (Index i = 0; i < loss_.n_nodes; ++i) {
        nodes[at(labels_[at(i)])].push_back(static_cast<std::int32_t>(i));
        worst[at(labels_[at(i)])] = std::fmax(worst[at(labels_[at(i)])], worst_[at(i)]);
    }
    double out = 0.0;
    for (std::size_t c = 0; c < nodes.size(); ++c) {
        if (worst[c] > bound) {
            Core core = core_of(nodes[c]);
            if (settle_flow(core, kMaxFlowChecks) == Flow::kFits) {
                worst[c] = core.largest;
                coupling_->put_part(*core.flow, places(core.nodes));
            }
            for (const std::int32_t i : nodes[c]) worst_[at(i)] = worst[c];
        }
        out = std::fmax(out, worst[c]);
    }
    return out;
}

bool Admm::contract(bool any, Index checks) {
    if (inner_) {
        const bool done = inner_->contract(any, checks);
        x_ = lifted(inner_->x_);
        return done;
    }
    const Index m = loss_.n_nodes;
    if (!proportional()) return false;
    const double all = pairs(m), wanted = any ? all : kWorthwhile * all;
    // A first look with few checks takes the finest sets only: a large one that fails costs many sweeps.
    const double* const last = checks < kThorough ? std::begin(kBounds) + 1 : std::end(kBounds);
    std::vector<double> bounds(std::begin(kBounds), last);
    for (double& bound : bounds) bound *= lam_;
    if (fresh_ && told_.tightest * bounds.back() < lam_) return false;
    if (!any && coupling_->share_within(bounds.back()) * all < kLeastInside * static_cast<double>(m))
        return false;
    unproject();
    const std::vector<Labels> ladder = coupling_->sets_within(bounds);
    // From the coarsest sets to the finest; what is proven stays out of the rest.
    std::vector<std::int32_t> member(at(m), -1);  // of which core
    std::vector<Core> cores;
    std::set<std::pair<Index, Index>> known;
    Vector far(at(m), 0.0);  // size of the set around each node for which no flow was anywhere near
    for (auto labels = ladder.rbegin(); labels != ladder.rend(); ++labels) {
        const Index n_sets = 1 + *std::max_element(labels->begin(), labels->end());
        if (!any && pairs(n_sets) > wanted) break;
        std::vector<Nodes> sets(at(n_sets));
        for (Index i = 0; i < m; ++i)
            if (member[at(i)] < 0) sets[at((*labels)[at(i)])].push_back(static_cast<std::int32_t>(i));
        for (const Nodes& nodes : sets) {
            const Index n = static_cast<Index>(nodes.size());
            if (n < 2 || (!any && pairs(n) < kLeastShare * all)) continue;
            if (!known.insert({nodes.front(), n}).second) continue;  // a coarser rung's
            if (static_cast<double>(n) > kSame * far[at(nodes.front())] && far[at(nodes.front())] > 0.0)
                continue;
            if (overloaded(nodes)) continue;
            Core core = core_of(nodes);
            const Flow found = settle_flow(core, checks);
            if (found == Flow::kFar)
                for (const std::int32_t i : nodes) far[at(i)] = static_cast<double>(n);
            if (found != Flow::kFits) continue;
            for (const std::int32_t i : nodes) member[at(i)] = static_cast<std::int32_t>(cores.size());
            cores.push_back(std::move(core));
        }
    }
    Labels groups(at(m)), own(cores.size(), -1);
    std::int32_t n_groups = 0;
    for (Index i = 0; i < m; ++i) {
        if (member[at(i)] < 0) {
            groups[at(i)] = n_groups++;
        } else {
            std::int32_t& group = own[at(member[at(i)])];
            if (group < 0) group = n_groups++;
            groups[at(i)] = group;
        }
    }
    if (cores.empty() || pairs(n_groups) > wanted) return false;
    groups_ = std::move(groups);
    cores_ = std::move(cores);
    QuadraticLoss loss = sum_over_clusters(loss_, groups_, n_groups);
    loss.constant = loss_.constant;
    auto inner =
        std::make_unique<Admm>(std::move(loss), coupling_->part(groups_, n_groups, false), lam_, options_);
    inner->rho_ = rho_;
    inner->stretch_ = stretch_;
    inner->tightening_ = tightening_;
    inner->coupling_->set_rho(inner->loss_, rho_);
    inner->x_ = restricted(x_);
    inner->sweep(0.0, false);
    inner->restart();
    inner->warm_ = false;
    inner->fine_ = fine_;
    inner_ = std::move(inner);
    coupling_->release();
    n_fused_ = 0;
    finished_.clear();
    x_ = lifted(inner_->x_);  // equal rows in every core
    return true;
}

// How much larger the gap could be and still keep the solution's rows apart: sum_i h_i / 2 ||x_i - x_i*||^2
// <= gap, so that x_i* = x_j* needs ||x_i - x_j||^2 <= 2 gap (1 / h_i + 1 / h_j).
double Admm::apart() {
    if (inner_) return inner_->apart();
    if (!proportional()) return 0.0;
    if (!fresh_) {
        unproject();
        sweep(0.0, true);
        fresh_ = true;
    }
    double h = kInfinity, r = kInfinity;  // h_i = h r_i
    for (Index i = 0; i < loss_.n_nodes; ++i)
        if (const double own = coupling_->node_weight(i); own > 0.0) {
            h = std::fmin(h, loss_.eigenvalues[at(i)] / own);
            r = std::fmin(r, own);
        }
    const Certificate now = judge(x_, penalty_);
    return 0.25 * h * r * told_.nearest / (now.gap + now.rounding);
}

// The penalty at x, and in g_ the row sums of the state's duals, which may be known.
double Admm::measure_again(const Vector& x) {
    if (fresh_) return coupling_->penalty(x);
    unproject();
    Coupling::SweepRequest request;
    request.step = step(0.0);
    stretch_ = 1.0;
    return coupling_->sweep(request, x, s_, &g_).penalty;
}

// The mean over each group.
Vector Admm::restricted(const Vector& x) const {
    const Index d = loss_.n_features, n = 1 + *std::max_element(groups_.begin(), groups_.end());
    Vector out(at(n * d), 0.0), mass(at(n), 0.0);
    for (Index i = 0; i < loss_.n_nodes; ++i) {
        const Index c = groups_[at(i)];
        mass[at(c)] += 1.0;
        for (Index k = 0; k < d; ++k) out[at(c * d + k)] += x[at(i * d + k)];
    }
    for (Index c = 0; c < n; ++c)
        for (Index k = 0; k < d; ++k) out[at(c * d + k)] /= mass[at(c)];
    return out;
}

bool Admm::constant_on_cores(const Vector& x) const {
    const Index d = loss_.n_features;
    std::vector<Index> first(at(inner_->loss_.n_nodes), -1);
    for (Index i = 0; i < loss_.n_nodes; ++i) {
        Index& known = first[at(groups_[at(i)])];
        if (known < 0)
            known = i;
        else if (!std::equal(x.data() + i * d, x.data() + (i + 1) * d, x.data() + known * d))
            return false;
    }
    return true;
}

// The penalty at x, and in g_ the row sums of the duals.
double Admm::measure(const Vector& x) {
    if (inner_ && (aggregated() || !constant_on_cores(x))) expand();
    if (!inner_) return measure_again(x);
    const Index d = loss_.n_features;
    const double penalty = inner_->measure(restricted(x));
    Vector mass(inner_->g_.size() / at(d), 0.0);
    for (Index i = 0; i < loss_.n_nodes; ++i) mass[at(groups_[at(i)])] += coupling_->node_weight(i);
    for (Index i = 0; i < loss_.n_nodes; ++i) {
        const Index c = groups_[at(i)];
        const double share = mass[at(c)] > 0.0 ? coupling_->node_weight(i) / mass[at(c)] : 1.0;
        for (Index k = 0; k < d; ++k) g_[at(i * d + k)] = share * inner_->g_[at(c * d + k)];
    }
    for (const Core& core : cores_) {
        const Vector b = force_inside(core.nodes);
        for (std::size_t own = 0; own < core.nodes.size(); ++own)
            for (Index k = 0; k < d; ++k) g_[at(core.nodes[own] * d + k)] += b[own * at(d) + at(k)];
    }
    return penalty;
}

// Writes the state of the problem between the groups, and the flows of the cores, back to the pairs.
void Admm::expand() {
    if (!inner_) return;
    fresh_ = false;
    inner_->expand();
    coupling_->put_part(*inner_->coupling_, groups_);
    for (const Core& core : cores_) coupling_->put_part(*core.flow, places(core.nodes));
    x_ = lifted(inner_->x_);
    if (coupling_->complete()) {
        rho_ = inner_->rho_;
        stretch_ = inner_->stretch_;
    }
    coupling_->set_rho(loss_, rho_);
    inner_.reset();
    cores_.clear();
    n_fused_ = 0;
    sweep(0.0, false);
}

// A lam at which the cores stay: theirs or a larger one.
bool Admm::move_inner(double lam) {
    for (const Core& core : cores_)
        if (lam < core.largest) return false;
    inner_->set_lam(lam);
    return true;
}

Vector Admm::lifted(const Vector& x) const {
    const Index d = loss_.n_features;
    Vector out(at(loss_.n_nodes * d));
    for (Index i = 0; i < loss_.n_nodes; ++i)
        std::copy_n(x.data() + groups_[at(i)] * d, d, out.data() + i * d);
    return out;
}

}  // namespace fusionopt
