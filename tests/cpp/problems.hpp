#pragma once

// Small problems for the C++ tests, and what they need of arithmetic, written apart from the core.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/admm.hpp"

namespace problems {

using fusionopt::Index;
using fusionopt::Vector;

struct Edges {
    std::vector<std::int32_t> tail, head;
    Vector weight;
    std::size_t size() const { return weight.size(); }
};

inline std::size_t at(Index k) { return static_cast<std::size_t>(k); }

inline Vector normal(std::size_t n, unsigned seed) {
    std::mt19937_64 draw(seed);
    std::normal_distribution<double> law;
    Vector out(n);
    for (double& value : out) value = law(draw);
    return out;
}

inline Vector uniform(std::size_t n, double low, double high, unsigned seed) {
    std::mt19937_64 draw(seed);
    std::uniform_real_distribution<double> law(low, high);
    Vector out(n);
    for (double& value : out) value = law(draw);
    return out;
}

// Every pair, w_ij = weight r_i r_j.
inline Edges all_pairs(Index m, double weight, const Vector& r) {
    Edges out;
    for (Index i = 0; i < m; ++i)
        for (Index j = i + 1; j < m; ++j) {
            out.tail.push_back(static_cast<std::int32_t>(i));
            out.head.push_back(static_cast<std::int32_t>(j));
            out.weight.push_back(weight * r[at(i)] * r[at(j)]);
        }
    return out;
}

// A chain with some longer edges and weights over four decades.
inline Edges sparse(Index m, unsigned seed) {
    Edges out;
    std::mt19937_64 draw(seed);
    std::uniform_real_distribution<double> law(0.0, 1.0);
    for (Index i = 0; i < m; ++i)
        for (Index j = i + 1; j < m; ++j)
            if (j == i + 1 || law(draw) < 3.0 / static_cast<double>(m)) {
                out.tail.push_back(static_cast<std::int32_t>(i));
                out.head.push_back(static_cast<std::int32_t>(j));
                out.weight.push_back(std::pow(10.0, 4.0 * law(draw) - 2.0));
            }
    return out;
}

// f_i(x) = h_i/2 ||x - a_i||^2, rows of a.
inline fusionopt::QuadraticLoss distance_loss(Index m, Index d, const Vector& a, const Vector& h) {
    fusionopt::QuadraticLoss loss;
    loss.n_nodes = m;
    loss.n_features = d;
    loss.eigenvalues = h;
    loss.linear.resize(at(m * d));
    for (Index i = 0; i < m; ++i)
        for (Index k = 0; k < d; ++k) {
            loss.linear[at(i * d + k)] = h[at(i)] * a[at(i * d + k)];
            loss.constant += 0.5 * h[at(i)] * a[at(i * d + k)] * a[at(i * d + k)];
        }
    return loss;
}

// Two features, H_i = U_i diag(e_i) U_i' with U_i a rotation.
inline fusionopt::QuadraticLoss dense_loss(Index m, unsigned seed) {
    fusionopt::QuadraticLoss loss;
    loss.n_nodes = m;
    loss.n_features = 2;
    loss.dense = true;
    loss.linear = normal(at(2 * m), seed);
    loss.eigenvalues = uniform(at(2 * m), 0.5, 3.0, seed + 1);
    const Vector angle = uniform(at(m), 0.0, 3.0, seed + 2);
    for (Index i = 0; i < m; ++i) {
        const double c = std::cos(angle[at(i)]), s = std::sin(angle[at(i)]);
        const double e = loss.eigenvalues[at(2 * i)], f = loss.eigenvalues[at(2 * i + 1)];
        loss.basis.insert(loss.basis.end(), {c, -s, s, c});
        const double off = (e - f) * c * s;
        loss.hessian.insert(loss.hessian.end(), {e * c * c + f * s * s, off, off, e * s * s + f * c * c});
    }
    return loss;
}

// The same with one direction of every other H_i flat, and q_i in the range of H_i.
inline fusionopt::QuadraticLoss singular_loss(Index m, unsigned seed) {
    fusionopt::QuadraticLoss loss = dense_loss(m, seed);
    loss.singular = true;
    for (Index i = 0; i < m; i += 2) {
        const double c = loss.basis[at(4 * i)], s = loss.basis[at(4 * i + 2)];
        const double e = loss.eigenvalues[at(2 * i)],
                     along = c * loss.linear[at(2 * i)] + s * loss.linear[at(2 * i + 1)];
        loss.eigenvalues[at(2 * i + 1)] = 0.0;
        loss.linear[at(2 * i)] = along * c;
        loss.linear[at(2 * i + 1)] = along * s;
        const double hessian[] = {e * c * c, e * c * s, e * c * s, e * s * s};
        std::copy(hessian, hessian + 4, loss.hessian.begin() + 4 * i);
    }
    return loss;
}

inline std::unique_ptr<fusionopt::Coupling> complete(Index m, Index d, double weight, const Vector& r) {
    return fusionopt::make_complete_coupling(m, d, weight, r, Vector(at(d * d), 0.0));
}

inline std::unique_ptr<fusionopt::Coupling> listed(Index m, Index d, const Edges& edges) {
    return fusionopt::make_edge_coupling(m, d, edges.tail, edges.head, edges.weight);
}

// sum_e w_e ||x_i - x_j||
inline double penalty(Index d, const Edges& edges, const Vector& x) {
    double total = 0.0;
    for (std::size_t e = 0; e < edges.size(); ++e) {
        double squared = 0.0;
        for (Index k = 0; k < d; ++k) {
            const double u = x[at(edges.tail[e] * d + k)] - x[at(edges.head[e] * d + k)];
            squared += u * u;
        }
        total += edges.weight[e] * std::sqrt(squared);
    }
    return total;
}

inline double largest_difference(const Vector& a, const Vector& b) {
    double out = a.size() == b.size() ? 0.0 : INFINITY;
    for (std::size_t k = 0; k < std::min(a.size(), b.size()); ++k) out = std::max(out, std::abs(a[k] - b[k]));
    return out;
}

inline double largest(const Vector& a) {
    double out = 0.0;
    for (const double value : a) out = std::max(out, std::abs(value));
    return out;
}

}  // namespace problems
