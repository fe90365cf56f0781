// Conjugate gradients in single precision for A x = b, A = H + L with a diagonal H > 0 and a graph Laplacian
// L: half the bytes of double precision, for x-steps that need a digit or two. The residual at the start and
// the solution are in double precision, so that a solve that starts where another one ended refines it.
//
// In the scaling D^-1/2 A D^-1/2 = I - C, D the diagonal of A, rounding C to floats moves no eigenvalue by
// more than 6e-8, and the smallest one is at least min H / D.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/linear.hpp"

namespace fusionopt {

// The neighbours of node i are at the places start[i] .. start[i + 1] - 1; kAhead more places may be read.
struct NeighbourLists {
    const std::vector<Index>& start;
    const std::vector<std::int32_t>& neighbour;
};

class SingleCg {
  public:
    using Lists = NeighbourLists;

    // `value`: the negative entries of L, one a place; `degree`: its diagonal. False where A is too badly
    // conditioned for single precision; then solve() must not be called.
    bool set(const Lists& lists, const Vector& value, const Vector& degree, const Vector& curvature,
             Index d) {
        const Index n = static_cast<Index>(degree.size());
        for (Index i = 0; i < n; ++i)
            if (!(curvature[at(i)] > 0.0 && degree[at(i)] <= kWorst * curvature[at(i)])) return false;
        stride_ = d <= 2 ? d : (d + 3) / 4 * 4;
        if (x_.size() == 0) {
            coupling_ = BufferOf<float>(static_cast<Index>(value.size()));
            for (BufferOf<float>* v : {&x_, &r_, &p_, &ap_}) *v = BufferOf<float>(n * stride_);
            scale_.resize(at(n));
        }
        for (Index i = 0; i < n; ++i) scale_[at(i)] = 1.0 / std::sqrt(curvature[at(i)] + degree[at(i)]);
        for (Index i = 0; i < n; ++i)
            for (Index place = lists.start[at(i)]; place < lists.start[at(i + 1)]; ++place)
                coupling_[place] = static_cast<float>(value[at(place)] * scale_[at(i)] *
                                                      scale_[at(lists.neighbour[at(place)])]);
        return true;
    }

    // x += an approximate solution of A u = residual, to ||r|| <= tol ||r_0|| in the norm of D^-1. Overwrites
    // `residual`. `nodes` cuts the passes: each(body), double sum(body) and double largest(body) with
    // body(first node, one past the last). Returns the number of iterations.
    template <class Nodes>
    Index solve(const Lists& lists, Vector& residual, Vector& x, Index d, double tol, Index max_iter,
                const Nodes& nodes) {
        const double size = nodes.largest([&](Index first, Index last) {
            double most = 0.0;
            for (Index i = first; i < last; ++i)
                for (Index k = 0; k < d; ++k) {
                    residual[at(i * d + k)] *= scale_[at(i)];
                    most = std::fmax(most, std::fabs(residual[at(i * d + k)]));
                }
            return most;
        });
        if (!(size > 0.0) || !std::isfinite(size)) return 0;
        nodes.each([&](Index first, Index last) {
            std::fill(x_.data() + first * stride_, x_.data() + last * stride_, 0.0F);
            for (Index i = first; i < last; ++i)
                for (Index k = 0; k < d; ++k) {
                    const double r = residual[at(i * d + k)] / size;
                    r_[i * stride_ + k] = p_[i * stride_ + k] =
                        std::fabs(r) < kNothing ? 0.0F : static_cast<float>(r);
                }
        });
        const Index made = iterate(lists, tol, max_iter, nodes);
        nodes.each([&](Index first, Index last) {
            for (Index i = first; i < last; ++i)
                for (Index k = 0; k < d; ++k)
                    x[at(i * d + k)] += size * scale_[at(i)] * static_cast<double>(x_[i * stride_ + k]);
        });
        return made;
    }

  private:
    static constexpr double kWorst = 1e5;      // of L over H: the solution then has two digits
    static constexpr double kNothing = 1e-15;  // of the largest entry: its square has no digits left

    static std::size_t at(Index k) { return static_cast<std::size_t>(k); }

    template <class Nodes>
    Index iterate(const Lists& lists, double tol, Index max_iter, const Nodes& nodes) {
        switch (stride_) {
            case 1:
                return iterate_of<1>(lists, tol, max_iter, nodes);
            case 2:
                return iterate_of<2>(lists, tol, max_iter, nodes);
            case 4:
                return iterate_of<4>(lists, tol, max_iter, nodes);
            case 8:
                return iterate_of<8>(lists, tol, max_iter, nodes);
            case 12:
                return iterate_of<12>(lists, tol, max_iter, nodes);
            default:
                return iterate_of<0>(lists, tol, max_iter, nodes);
        }
    }

    template <int S, class Nodes>
    Index iterate_of(const Lists& lists, double tol, Index max_iter, const Nodes& nodes) {
        const Index s = S > 0 ? S : stride_;
        double rr = nodes.sum([&](Index first, Index last) {
            Lanes<S> total;
            for (Index i = first; i < last; ++i) total.add(r_.data() + i * s, r_.data() + i * s, s);
            return total.value();
        });
        const double target = tol * tol * rr;
        Index made = 0;
        while (made < max_iter && rr > target) {
            const double curvature =
                nodes.sum([&](Index first, Index last) { return product<S>(lists, first, last); });
            if (!(curvature > 0.0)) break;
            const float step = static_cast<float>(rr / curvature);
            const double next = nodes.sum([&](Index first, Index last) {
                Lanes<S> total;
                for (Index i = first; i < last; ++i) {
                    float* const r = r_.data() + i * s;
                    for (Index k = 0; k < s; ++k) x_[i * s + k] += step * p_[i * s + k];
                    for (Index k = 0; k < s; ++k) r[k] -= step * ap_[i * s + k];
                    total.add(r, r, s);
                }
                return total.value();
            });
            const float beta = static_cast<float>(next / rr);
            nodes.each([&](Index first, Index last) {
                for (Index k = first * s; k < last * s; ++k) p_[k] = r_[k] + beta * p_[k];
            });
            rr = next;
            ++made;
        }
        return made;
    }

    // ap = p - C p; returns <p, ap>.
    template <int S>
    double product(const Lists& lists, Index first, Index last) {
        const Index s = S > 0 ? S : stride_;
        const float* const c = coupling_.data();
        const float* const p = p_.data();
        Lanes<S> total;
        for (Index i = first; i < last; ++i) {
            float* const out = ap_.data() + i * s;
            if constexpr (S > 0) {
                float sums[S];
                std::copy_n(p + i * S, S, sums);
                for (Index place = lists.start[at(i)]; place < lists.start[at(i + 1)]; ++place) {
                    ask_for(p + static_cast<Index>(lists.neighbour[at(place + kAhead)]) * S, S);
                    const float* const q = p + static_cast<Index>(lists.neighbour[at(place)]) * S;
                    for (int k = 0; k < S; ++k) sums[k] -= c[place] * q[k];
                }
                std::copy_n(sums, S, out);
            } else {
                std::copy_n(p + i * s, s, out);
                for (Index place = lists.start[at(i)]; place < lists.start[at(i + 1)]; ++place) {
                    const float* const q = p + static_cast<Index>(lists.neighbour[at(place)]) * s;
                    for (Index k = 0; k < s; ++k) out[k] -= c[place] * q[k];
                }
            }
            total.add(p + i * s, out, s);
        }
        return total.value();
    }

    // A sum of products of rows, in double precision but for each row's own part.
    template <int S>
    struct Lanes {
        static constexpr int kWidth = S == 1 || S == 2 ? S : 4;
        double sums[kWidth] = {};
        void add(const float* a, const float* b, Index s) {
            float row[kWidth] = {};
            for (Index k = 0; k < s; k += kWidth)
                for (int l = 0; l < kWidth; ++l) row[l] += a[k + l] * b[k + l];
            for (int l = 0; l < kWidth; ++l) sums[l] += static_cast<double>(row[l]);
        }
        double value() const {
            double total = 0.0;
            for (const double sum : sums) total += sum;
            return total;
        }
    };

    Index stride_ = 0;
    BufferOf<float> coupling_, x_, r_, p_, ap_;
    Vector scale_;
};

}  // namespace fusionopt
