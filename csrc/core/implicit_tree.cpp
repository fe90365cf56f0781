#include "core/implicit_tree.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fusionopt {

namespace {

constexpr Index kLeavesAtATime = 4, kNodesAtATime = 16;
constexpr double kStraddle = 0.5;  // extent, in units of openness delta

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

}  // namespace

PairTree::PairTree(PairPasses& passes, const Points& x, const Vector& weight, double delta)
    : passes_(passes),
      n_(x.n),
      d_(x.d),
      delta_(delta),
      order_(at(x.n)),
      sorted_(x),
      weight_(weight),
      stride_(x.stride) {
    std::iota(order_.begin(), order_.end(), 0);
    nodes_.reserve(at(2 * (n_ / kLeaf + 2)));
    build(0, n_);
    x_.assign(at(d_ * stride_), 0.0f);
    w_.assign(at(stride_), 0.0f);
    for (Index i = 0; i < n_; ++i) {
        w_[at(i)] = static_cast<float>(weight[at(order_[at(i)])]);
        weight_[at(i)] = weight[at(order_[at(i)])];
        for (Index k = 0; k < d_; ++k) {
            sorted_.at(i, k) = x.at(order_[at(i)], k);
            x_[at(k * stride_ + i)] = static_cast<float>(sorted_.at(i, k));
        }
    }
    passes_.over(static_cast<Index>(nodes_.size()), 0.0, kNodesAtATime, [&](Index first, Index last, int) {
        for (Index id = first; id < last; ++id) measure(nodes_[at(id)]);
    });
}

std::int32_t PairTree::build(Index begin, Index end) {
    const auto self = static_cast<std::int32_t>(nodes_.size());
    nodes_.emplace_back();
    nodes_[at(self)].begin = begin;
    nodes_[at(self)].end = end;
    if (end - begin <= kLeaf) {
        leaves_.push_back(self);
        return self;
    }
    Index widest = 0;
    double width = -1.0;
    for (Index k = 0; k < d_; ++k) {
        double low = sorted_.at(order_[at(begin)], k), high = low;
        for (Index i = begin; i < end; ++i) {
            const double v = sorted_.at(order_[at(i)], k);
            low = std::fmin(low, v);
            high = std::fmax(high, v);
        }
        if (high - low > width) {
            width = high - low;
            widest = k;
        }
    }
    // Whole leaves on the left, so that every leaf but the last fills its vectors.
    const Index middle = begin + ((end - begin + 2 * kLeaf - 1) / (2 * kLeaf)) * kLeaf;
    std::nth_element(order_.begin() + begin, order_.begin() + middle, order_.begin() + end,
                     [&](std::int32_t a, std::int32_t b) {
                         const double u = sorted_.at(a, widest), v = sorted_.at(b, widest);
                         return u != v ? u < v : a < b;
                     });
    const std::int32_t left = build(begin, middle), right = build(middle, end);
    nodes_[at(self)].left = left;
    nodes_[at(self)].right = right;
    return self;
}

void PairTree::measure(Node& node) {
    double mass = 0.0;
    for (Index i = node.begin; i < node.end; ++i) {
        mass += weight_[at(i)];
        for (Index k = 0; k < d_; ++k) node.centre[at(k)] += weight_[at(i)] * sorted_.at(i, k);
    }
    for (Index k = 0; k < d_; ++k) node.centre[at(k)] /= mass;
    node.weight = mass;
    double moments[kMostFeatures][kMostFeatures] = {}, largest = 0.0;
    for (Index i = node.begin; i < node.end; ++i) {
        double u[kMostFeatures] = {}, squared = 0.0;
        for (Index k = 0; k < d_; ++k) {
            u[k] = sorted_.at(i, k) - node.centre[at(k)];
            squared += u[k] * u[k];
        }
        largest = std::fmax(largest, squared);
        for (Index a = 0; a < d_; ++a)
            for (Index b = 0; b <= a; ++b) moments[a][b] += weight_[at(i)] / mass * u[a] * u[b];
    }
    node.radius = std::sqrt(largest);
    // Cholesky factor of the covariance; a direction without spread keeps a zero column.
    double factor[kMostFeatures][kMostFeatures] = {};
    for (Index a = 0; a < d_; ++a)
        for (Index b = 0; b <= a; ++b) {
            double v = moments[a][b];
            for (Index c = 0; c < b; ++c) v -= factor[a][c] * factor[b][c];
            factor[a][b] = a == b ? (v > 1e-12 * moments[a][a] ? std::sqrt(v) : 0.0)
                                  : (factor[b][b] > 0.0 ? v / factor[b][b] : 0.0);
        }
    // Corners of a regular simplex with mean zero and unit covariance.
    static const double corners[3][4][3] = {
        {{1, 0, 0}, {-1, 0, 0}},
        {{std::sqrt(2.0), 0, 0}, {-std::sqrt(0.5), std::sqrt(1.5), 0}, {-std::sqrt(0.5), -std::sqrt(1.5), 0}},
        {{1, 1, 1}, {1, -1, -1}, {-1, 1, -1}, {-1, -1, 1}}};
    for (Index s = 0; s <= d_; ++s)
        for (Index a = 0; a < d_; ++a) {
            double v = node.centre[at(a)];
            for (Index b = 0; b <= a; ++b) v += factor[a][b] * corners[d_ - 1][s][b];
            node.stand_ins[at(s)][at(a)] = v;
        }
}

void PairTree::collect(Lists& lists, double openness, Index stand_ins) {
    if (lists.openness == openness) return;
    lists.openness = openness;
    lists.far.assign(leaves_.size(), {});
    lists.near.assign(leaves_.size(), {});
    // Products are rough anyway: cells much smaller than delta may lie on both sides of it.
    const double straddle = stand_ins == 1 ? kStraddle * openness : 0.0;
    passes_.over(static_cast<Index>(leaves_.size()), 0.0, kLeavesAtATime, [&](Index first, Index last, int) {
        std::vector<std::int32_t> open;
        for (Index l = first; l < last; ++l) {
            const Node& leaf = nodes_[at(leaves_[at(l)])];
            open.assign(1, 0);
            while (!open.empty()) {
                const std::int32_t id = open.back();
                open.pop_back();
                const Node& node = nodes_[at(id)];
                double squared = 0.0;
                for (Index k = 0; k < d_; ++k) {
                    const double u = node.centre[at(k)] - leaf.centre[at(k)];
                    squared += u * u;
                }
                const double distance = std::sqrt(squared), extent = node.radius + leaf.radius;
                const bool aside = distance - extent > delta_ || extent < straddle * delta_;
                const bool far = extent < openness * distance && aside;
                if (far || distance + extent <= delta_) {
                    lists.far[at(l)].push_back(id);
                } else if (node.left < 0) {
                    lists.near[at(l)].push_back(id);
                } else {
                    open.push_back(node.right);
                    open.push_back(node.left);
                }
            }
        }
    });
    double total = 0.0;
    for (std::size_t l = 0; l < leaves_.size(); ++l) {
        total += static_cast<double>(lists.far[l].size()) * static_cast<double>(stand_ins);
        for (const std::int32_t id : lists.near[l])
            total += static_cast<double>(nodes_[at(id)].end - nodes_[at(id)].begin);
    }
    lists.mean = total / static_cast<double>(leaves_.size());
}

template <class Fill, class Run>
void PairTree::over_leaves(const Lists& lists, const Fill& fill, const Run& run) {
    const double cost = lists.mean * static_cast<double>(kLeaf);
    passes_.over(static_cast<Index>(leaves_.size()), cost, kLeavesAtATime, [&](Index first, Index last, int) {
        std::vector<float> sources;
        for (Index l = first; l < last; ++l) {
            const Index count = fill(l, sources);
            run(nodes_[at(leaves_[at(l)])], sources, count);
        }
    });
}

void PairTree::gradient(double openness, FieldSums& out) {
    collect(for_gradient_, openness, d_ + 1);
    FieldSums mine;
    mine.force = Points(n_, d_);
    for (Vector* v : {&mine.stiff, &mine.inside, &mine.energy}) v->resize(at(stride_));
    const auto fill = [&](Index l, std::vector<float>& to) {
        Index count = static_cast<Index>(for_gradient_.far[at(l)].size()) * (d_ + 1);
        for (const std::int32_t id : for_gradient_.near[at(l)])
            count += nodes_[at(id)].end - nodes_[at(id)].begin;
        const Index room = padded(count);
        to.assign(at((d_ + 1) * room), 0.0f);
        Index place = 0;
        for (const std::int32_t id : for_gradient_.far[at(l)]) {
            const Node& node = nodes_[at(id)];
            for (Index s = 0; s <= d_; ++s, ++place) {
                for (Index k = 0; k < d_; ++k)
                    to[at(k * room + place)] = static_cast<float>(node.stand_ins[at(s)][at(k)]);
                to[at(d_ * room + place)] = static_cast<float>(node.weight / static_cast<double>(d_ + 1));
            }
        }
        for (const std::int32_t id : for_gradient_.near[at(l)]) {
            const Node& node = nodes_[at(id)];
            for (Index k = 0; k < d_; ++k)
                std::copy(x_.begin() + k * stride_ + node.begin, x_.begin() + k * stride_ + node.end,
                          to.begin() + k * room + place);
            std::copy(w_.begin() + node.begin, w_.begin() + node.end, to.begin() + d_ * room + place);
            place += node.end - node.begin;
        }
        return count;
    };
    over_leaves(for_gradient_, fill, [&](const Node& leaf, const std::vector<float>& sources, Index count) {
        const Index room = padded(count);
        PairPass<float> pass;
        pass.n_features = d_;
        pass.first = leaf.begin;
        pass.last = leaf.end;
        pass.x = x_.data();
        pass.stride = stride_;
        pass.n_sources = count;
        pass.source_x = sources.data();
        pass.source_stride = room;
        pass.weight = sources.data() + d_ * room;
        pass.delta = delta_;
        pass.out = mine.force.v.data();
        pass.out_stride = stride_;
        pass.stiff = mine.stiff.data();
        pass.inside = mine.inside.data();
        pass.energy = mine.energy.data();
        implicit_kernels().gradient_single(pass);
    });
    if (out.force.n != n_ || out.force.d != d_) out.force = Points(n_, d_);
    for (Vector* v : {&out.stiff, &out.inside, &out.energy}) v->resize(at(stride_));
    for (Index i = 0; i < n_; ++i) {
        const Index to = order_[at(i)];
        for (Index k = 0; k < d_; ++k) out.force.at(to, k) = mine.force.at(i, k);
        out.stiff[at(to)] = mine.stiff[at(i)];
        out.inside[at(to)] = mine.inside[at(i)];
        out.energy[at(to)] = mine.energy[at(i)];
    }
}

void PairTree::product(const Points& p, double openness, double curvature, Points& out) {
    collect(for_product_, openness, 1);
    std::vector<float> direction(at(d_ * stride_), 0.0f);
    Vector means(nodes_.size() * at(d_), 0.0);
    for (std::size_t id = nodes_.size(); id-- > 0;) {
        const Node& node = nodes_[id];
        double* const mean = means.data() + id * at(d_);
        if (node.left < 0) {
            for (Index i = node.begin; i < node.end; ++i)
                for (Index k = 0; k < d_; ++k) {
                    const double v = p.at(order_[at(i)], k);
                    direction[at(k * stride_ + i)] = static_cast<float>(v);
                    mean[k] += weight_[at(i)] * v;
                }
            for (Index k = 0; k < d_; ++k) mean[k] /= node.weight;
        } else {
            const Node &a = nodes_[at(node.left)], &b = nodes_[at(node.right)];
            for (Index k = 0; k < d_; ++k)
                mean[k] =
                    (a.weight * means[at(node.left * d_ + k)] + b.weight * means[at(node.right * d_ + k)]) /
                    node.weight;
        }
    }
    Points mine(n_, d_);
    const auto fill = [&](Index l, std::vector<float>& to) {
        Index count = static_cast<Index>(for_product_.far[at(l)].size());
        for (const std::int32_t id : for_product_.near[at(l)])
            count += nodes_[at(id)].end - nodes_[at(id)].begin;
        const Index room = padded(count);
        to.assign(at((2 * d_ + 1) * room), 0.0f);
        Index place = 0;
        for (const std::int32_t id : for_product_.far[at(l)]) {
            const Node& node = nodes_[at(id)];
            for (Index k = 0; k < d_; ++k) {
                to[at(k * room + place)] = static_cast<float>(node.centre[at(k)]);
                to[at((d_ + k) * room + place)] = static_cast<float>(means[at(id * d_ + k)]);
            }
            to[at(2 * d_ * room + place)] = static_cast<float>(node.weight);
            ++place;
        }
        for (const std::int32_t id : for_product_.near[at(l)]) {
            const Node& node = nodes_[at(id)];
            for (Index k = 0; k < d_; ++k) {
                std::copy(x_.begin() + k * stride_ + node.begin, x_.begin() + k * stride_ + node.end,
                          to.begin() + k * room + place);
                std::copy(direction.begin() + k * stride_ + node.begin,
                          direction.begin() + k * stride_ + node.end, to.begin() + (d_ + k) * room + place);
            }
            std::copy(w_.begin() + node.begin, w_.begin() + node.end, to.begin() + 2 * d_ * room + place);
            place += node.end - node.begin;
        }
        return count;
    };
    over_leaves(for_product_, fill, [&](const Node& leaf, const std::vector<float>& sources, Index count) {
        const Index room = padded(count);
        PairPass<float> pass;
        pass.n_features = d_;
        pass.first = leaf.begin;
        pass.last = leaf.end;
        pass.x = x_.data();
        pass.p = direction.data();
        pass.stride = stride_;
        pass.n_sources = count;
        pass.source_x = sources.data();
        pass.source_p = sources.data() + d_ * room;
        pass.source_stride = room;
        pass.weight = sources.data() + 2 * d_ * room;
        pass.delta = delta_;
        pass.curvature = curvature;
        pass.out = mine.v.data();
        pass.out_stride = stride_;
        implicit_kernels().product_single(pass);
    });
    if (out.n != n_ || out.d != d_) out = Points(n_, d_);
    for (Index i = 0; i < n_; ++i)
        for (Index k = 0; k < d_; ++k) out.at(order_[at(i)], k) = mine.at(i, k);
}

}  // namespace fusionopt
