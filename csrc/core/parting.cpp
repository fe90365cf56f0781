#include "core/parting.hpp"

#include <algorithm>
#include <cmath>

namespace fusionopt {

namespace {

// A first look in clearly smaller balls, where a rough flow is good enough, settles most clusters; the rest
// are looked at to the last digit. Digits are of the gap, relative to that of the forces without any flow.
constexpr double kRoom[] = {1e-3, 1e-8};
constexpr double kDigits[] = {1e-8, 1e-20};
constexpr double kApart = 1.001;  // t of an edge that is apart, in radii: sigma is large in the end
constexpr int kMaxShortenings = 20;
constexpr double kShorter = 0.25;
constexpr double kUpward = 0.01;  // share of the downward slope, that solving roughly may leave

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// Positions where the values 0 .. n - 1 of `key` begin once sorted.
std::vector<Index> starts(const std::vector<Index>& key, Index n) {
    std::vector<Index> start(at(n + 1), 0);
    for (const Index k : key) ++start[at(k + 1)];
    for (Index k = 0; k < n; ++k) start[at(k + 1)] += start[at(k)];
    return start;
}

}  // namespace

Parting::Parting(const QuadraticLoss& loss, const Graph& graph, double lam,
                 const std::vector<std::int32_t>& labels, Index n_clusters, const std::vector<char>& open,
                 const Vector& x)
    : loss_(loss),
      graph_(graph),
      lam_(lam),
      labels_(labels),
      n_clusters_(n_clusters),
      place_(at(loss.n_nodes), -1),
      sets_(0) {
    const Index d = loss.n_features;
    std::vector<Index> rank(at(n_clusters), -1);
    Index n_open = 0;
    for (Index c = 0; c < n_clusters; ++c)
        if (open[at(c)]) rank[at(c)] = n_open++;
    const auto rank_of = [&](Index i) { return rank[at(labels[at(i)])]; };

    std::vector<Index> node_ranks, edge_ranks, edges;
    for (Index i = 0; i < loss.n_nodes; ++i)
        if (rank_of(i) >= 0) node_ranks.push_back(rank_of(i));
    for (Index e = 0; e < graph.n_edges; ++e) {
        const Index i = graph.tail[e], j = graph.head[e];
        if (rank_of(i) < 0 && rank_of(j) < 0) continue;
        if (labels[at(i)] == labels[at(j)]) {
            edges.push_back(e);
            edge_ranks.push_back(rank_of(i));
        } else {
            across_.push_back(e);
        }
    }
    std::vector<Index> node_start = starts(node_ranks, n_open), edge_start = starts(edge_ranks, n_open);
    for (Index c = 0; c <= n_open; ++c) clusters_.push_back({node_start[at(c)], edge_start[at(c)]});
    nodes_.resize(node_ranks.size());
    for (Index i = 0; i < loss.n_nodes; ++i) {
        if (rank_of(i) < 0) continue;
        place_[at(i)] = static_cast<std::int32_t>(node_start[at(rank_of(i))]++);
        nodes_[at(place_[at(i)])] = static_cast<std::int32_t>(i);
    }
    inside_.resize(edges.size());
    for (std::size_t k = 0; k < edges.size(); ++k) inside_[at(edge_start[at(edge_ranks[k])]++)] = edges[k];

    forces_.resize(nodes_.size() * at(d));
    Vector pull(at(d));
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
        loss.apply_node(nodes_[k], x.data() + nodes_[k] * d, pull.data());
        for (Index a = 0; a < d; ++a)
            forces_[k * at(d) + at(a)] = loss.linear[at(nodes_[k] * d + a)] - pull[at(a)];
    }
    for (const Index e : across_) {
        const Index i = graph.tail[e], j = graph.head[e], pi = place_[at(i)], pj = place_[at(j)];
        double squared = 0.0;
        for (Index a = 0; a < d; ++a) {
            pull[at(a)] = x[at(i * d + a)] - x[at(j * d + a)];
            squared += pull[at(a)] * pull[at(a)];
        }
        const double force = squared > 0.0 ? lam * graph.weight[e] / std::sqrt(squared) : 0.0;
        for (Index a = 0; a < d; ++a) {
            if (pi >= 0) forces_[at(pi * d + a)] -= force * pull[at(a)];
            if (pj >= 0) forces_[at(pj * d + a)] += force * pull[at(a)];
        }
    }
}

double Parting::solve(double start_sigma, double budget, Vector& t) {
    moved_.assign(forces_.size(), 0.0);
    sets_ = UnionFind(static_cast<Index>(nodes_.size()));
    double work = 0.0;
    for (std::size_t c = 0; c + 1 < clusters_.size(); ++c)
        work += solve_one(clusters_[c], clusters_[c + 1], start_sigma, budget - work, t);
    return work;
}

// In coordinates around the centre, so that rounding is that of the displacements.
double Parting::solve_one(const Cluster& from, const Cluster& to, double start_sigma, double budget,
                          Vector& all) {
    const Index d = loss_.n_features, n = to.nodes - from.nodes, n_edges = to.edges - from.edges;
    std::vector<std::int32_t> tail(at(n_edges)), head(at(n_edges));
    Vector weight(at(n_edges));
    for (Index k = 0; k < n_edges; ++k) {
        const Index e = inside_[at(from.edges + k)];
        tail[at(k)] = static_cast<std::int32_t>(place_[at(graph_.tail[e])] - from.nodes);
        head[at(k)] = static_cast<std::int32_t>(place_[at(graph_.head[e])] - from.nodes);
        weight[at(k)] = graph_.weight[e];
    }
    UnionFind pieces(n);
    double work = 0.0;
    SparseCholesky factor;
    const double most = newton_factor_cost(budget / kNewtonSteps, n_edges, d);
    if (most > 0.0 && factor.analyse(n, tail.data(), head.data(), n_edges, d, most)) {
        QuadraticLoss own = loss_.at_nodes({nodes_.begin() + from.nodes, nodes_.begin() + to.nodes});
        own.linear.assign(forces_.begin() + from.nodes * d, forces_.begin() + to.nodes * d);
        Vector u(at(n * d), 0.0), t(all.begin() + from.edges * d, all.begin() + to.edges * d);
        EdgeNewton problem{own};
        problem.tail = tail.data();
        problem.head = head.data();
        problem.weight = weight.data();
        problem.n_edges = n_edges;
        problem.rounding = std::numeric_limits<double>::epsilon();
        const double force = own.evaluate(u, u).stat;
        for (std::size_t look = 0; look < std::size(kRoom); ++look) {
            problem.lam = (1.0 - kRoom[look]) * lam_;
            problem.target = kDigits[look] * force;
            problem.budget = budget - work;
            double sigma = start_sigma;
            work += edge_newton(problem, factor, u, t, sigma).work;
            pieces.reset();
            for (Index e = 0; e < n_edges; ++e) {
                double* const y = t.data() + e * d;
                double squared = 0.0;
                for (Index a = 0; a < d; ++a) squared += y[a] * y[a];
                const double norm = std::sqrt(squared);
                if (norm <= kApart * problem.lam) pieces.join(tail[at(e)], head[at(e)]);
                if (norm > problem.lam)
                    for (Index a = 0; a < d; ++a) y[a] *= problem.lam / norm;
            }
            if (pieces.labels(piece_) == 1) break;
        }
        std::copy(u.begin(), u.end(), moved_.begin() + from.nodes * d);
        std::copy(t.begin(), t.end(), all.begin() + from.edges * d);
    } else {
        for (Index k = 1; k < n; ++k) pieces.join(0, static_cast<std::int32_t>(k));
    }
    for (Index k = 0; k < n; ++k)
        sets_.join(static_cast<std::int32_t>(from.nodes + pieces.find(static_cast<std::int32_t>(k))),
                   static_cast<std::int32_t>(from.nodes + k));
    return work;
}

Index Parting::pieces(std::vector<std::int32_t>& labels, Vector& x) {
    labels = labels_;
    const Index n_pieces = sets_.labels(piece_);
    std::vector<std::int32_t> name(at(n_pieces), -1);
    std::vector<char> taken(at(n_clusters_), 0);
    Index next = n_clusters_;
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
        std::int32_t& mine = name[at(piece_[k])];
        std::int32_t& label = labels[at(nodes_[k])];
        if (mine < 0) {
            mine = taken[at(label)] ? static_cast<std::int32_t>(next++) : label;
            taken[at(label)] = 1;
        }
        label = mine;
    }
    if (next > n_clusters_) shorten(directions(n_pieces), Vector(x), x);
    return next;
}

// The mean displacement of each node's piece.
Vector Parting::directions(Index n_pieces) const {
    const Index d = loss_.n_features;
    Vector mean(at(n_pieces * d), 0.0), count(at(n_pieces), 0.0), out(moved_.size());
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
        count[at(piece_[k])] += 1.0;
        for (Index a = 0; a < d; ++a) mean[at(piece_[k] * d + a)] += moved_[k * at(d) + at(a)];
    }
    for (std::size_t k = 0; k < nodes_.size(); ++k)
        for (Index a = 0; a < d; ++a)
            out[k * at(d) + at(a)] = mean[at(piece_[k] * d + a)] / count[at(piece_[k])];
    return out;
}

// The held forces let pieces go too far. Every cluster's share of its direction is shortened until the slope
// of the true objective there, where it is upward, is clearly less than the downward one at the centre: from
// a point too near Newton goes on, from one too far it would fuse the pieces again.
void Parting::shorten(const Vector& direction, const Vector& centre, Vector& x) const {
    const Index d = loss_.n_features;
    Vector share(at(n_clusters_), 1.0), slope(at(n_clusters_)), downward(at(n_clusters_), 0.0), pull(at(d));
    for (std::size_t k = 0; k < nodes_.size(); ++k)
        for (Index a = 0; a < d; ++a)
            downward[at(labels_[at(nodes_[k])])] += forces_[k * at(d) + at(a)] * direction[k * at(d) + at(a)];
    for (const Index e : inside_) {
        const Index i = graph_.tail[e];
        double squared = 0.0;
        for (Index a = 0; a < d; ++a) {
            const double u =
                direction[at(place_[at(i)] * d + a)] - direction[at(place_[at(graph_.head[e])] * d + a)];
            squared += u * u;
        }
        downward[at(labels_[at(i)])] -= lam_ * graph_.weight[e] * std::sqrt(squared);
    }
    const auto add_edge = [&](Index e) {
        const Index i = graph_.tail[e], j = graph_.head[e];
        double squared = 0.0, along_i = 0.0, along_j = 0.0;
        for (Index a = 0; a < d; ++a) {
            const double u = x[at(i * d + a)] - x[at(j * d + a)];
            squared += u * u;
            if (place_[at(i)] >= 0) along_i += u * direction[at(place_[at(i)] * d + a)];
            if (place_[at(j)] >= 0) along_j += u * direction[at(place_[at(j)] * d + a)];
        }
        if (!(squared > 0.0)) return;
        const double force = lam_ * graph_.weight[e] / std::sqrt(squared);
        slope[at(labels_[at(i)])] += force * along_i;
        slope[at(labels_[at(j)])] -= force * along_j;
    };
    for (int round = 0; round < kMaxShortenings; ++round) {
        std::fill(slope.begin(), slope.end(), 0.0);
        for (std::size_t k = 0; k < nodes_.size(); ++k) {
            const Index i = nodes_[k];
            const double length = share[at(labels_[at(i)])];
            for (Index a = 0; a < d; ++a)
                x[at(i * d + a)] = centre[at(i * d + a)] + length * direction[k * at(d) + at(a)];
            loss_.apply_node(i, x.data() + i * d, pull.data());
            for (Index a = 0; a < d; ++a)
                slope[at(labels_[at(i)])] +=
                    (pull[at(a)] - loss_.linear[at(i * d + a)]) * direction[k * at(d) + at(a)];
        }
        for (const Index e : inside_) add_edge(e);
        for (const Index e : across_) add_edge(e);
        bool over = false;
        for (Index c = 0; c < n_clusters_; ++c)
            if (slope[at(c)] > std::fmax(kUpward * downward[at(c)], 0.0)) {
                share[at(c)] *= kShorter;
                over = true;
            }
        if (!over) return;
    }
}

}  // namespace fusionopt
