// Small linear algebra shared by the x-steps, the partition finishing and the flow repair.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "core/types.hpp"

namespace fusionopt {

using Vector = std::vector<double>;

// Neumaier's sum: the error is a few eps of the absolute sum, whatever its length.
class CompensatedSum {
  public:
    void add(double term) {
        const double next = sum_ + term;
        lost_ += std::fabs(sum_) >= std::fabs(term) ? (sum_ - next) + term : (term - next) + sum_;
        sum_ = next;
    }
    double value() const { return sum_ + lost_; }

  private:
    double sum_ = 0.0, lost_ = 0.0;
};

inline double dot(const double* a, const double* b, std::size_t n) {
    // Four partial sums: a shorter rounding chain, and the compiler can keep them in registers.
    double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0;
    std::size_t k = 0;
    for (; k + 4 <= n; k += 4) {
        s0 += a[k] * b[k];
        s1 += a[k + 1] * b[k + 1];
        s2 += a[k + 2] * b[k + 2];
        s3 += a[k + 3] * b[k + 3];
    }
    for (; k < n; ++k) s0 += a[k] * b[k];
    return (s0 + s1) + (s2 + s3);
}
inline double dot(const Vector& a, const Vector& b) { return dot(a.data(), b.data(), a.size()); }

// In-place Cholesky factor L of a symmetric positive definite d x d matrix (row-major, lower part used). A
// pivot that is not positive after rounding is replaced by one: its direction then passes through unchanged,
// which is safe in a preconditioner.
inline void cholesky(double* a, Index d) {
    for (Index j = 0; j < d; ++j) {
        double pivot = a[j * d + j];
        for (Index k = 0; k < j; ++k) pivot -= a[j * d + k] * a[j * d + k];
        const double root = pivot > 0.0 ? std::sqrt(pivot) : 1.0;
        a[j * d + j] = root;
        for (Index i = j + 1; i < d; ++i) {
            double value = a[i * d + j];
            for (Index k = 0; k < j; ++k) value -= a[i * d + k] * a[j * d + k];
            a[i * d + j] = value / root;
        }
    }
}

// b <- (L L')^-1 b
inline void cholesky_solve(const double* factor, Index d, double* b) {
    for (Index i = 0; i < d; ++i) {
        for (Index k = 0; k < i; ++k) b[i] -= factor[i * d + k] * b[k];
        b[i] /= factor[i * d + i];
    }
    for (Index i = d - 1; i >= 0; --i) {
        for (Index k = i + 1; k < d; ++k) b[i] -= factor[k * d + i] * b[k];
        b[i] /= factor[i * d + i];
    }
}

struct PcgWork {
    Vector r, z, p, ap;
    void resize(std::size_t n) {
        r.resize(n);
        z.resize(n);
        p.resize(n);
        ap.resize(n);
    }
};

// Passes over long vectors in one piece, on the caller's thread.
struct OnePiece {
    template <class Body>  // body(first, last)
    void each(std::size_t n, const Body& body) const {
        body(std::size_t{0}, n);
    }
    template <class Body>  // double body(first, last)
    double sum(std::size_t n, const Body& body) const {
        return body(std::size_t{0}, n);
    }
};

// Preconditioned conjugate gradients for A x = b, started at x. Stops at ||r|| <= tol ||r_0|| in the
// preconditioned norm, or at max_iter, or when the curvature vanishes (singular consistent systems). Returns
// the number of iterations. `pieces` cuts the passes over the vectors. No allocation after work.resize.
template <class Operator, class Preconditioner, class Pieces = OnePiece>
Index pcg(const Operator& apply, const Preconditioner& precondition, const Vector& b, Vector& x, double tol,
          Index max_iter, PcgWork& work, double absolute = 0.0, const Pieces& pieces = {}) {
    const std::size_t n = b.size();
    const auto product = [&](const Vector& u, const Vector& v) {
        return pieces.sum(n, [&](std::size_t first, std::size_t last) {
            return dot(u.data() + first, v.data() + first, last - first);
        });
    };
    apply(x, work.ap);
    pieces.each(n, [&](std::size_t first, std::size_t last) {
        for (std::size_t k = first; k < last; ++k) work.r[k] = b[k] - work.ap[k];
    });
    precondition(work.r, work.z);
    work.p = work.z;
    double rz = product(work.r, work.z);
    const double target = std::fmax(tol * tol * rz, absolute);
    Index it = 0;
    while (it < max_iter && rz > target) {
        apply(work.p, work.ap);
        const double curvature = product(work.p, work.ap);
        if (!(curvature > 0.0)) break;
        const double step = rz / curvature;
        pieces.each(n, [&](std::size_t first, std::size_t last) {
            for (std::size_t k = first; k < last; ++k) x[k] += step * work.p[k];
            for (std::size_t k = first; k < last; ++k) work.r[k] -= step * work.ap[k];
        });
        precondition(work.r, work.z);
        const double next = product(work.r, work.z);
        const double beta = next / rz;
        pieces.each(n, [&](std::size_t first, std::size_t last) {
            for (std::size_t k = first; k < last; ++k) work.p[k] = work.z[k] + beta * work.p[k];
        });
        rz = next;
        ++it;
    }
    return it;
}

// Disjoint sets with path halving; the smaller index is the root, so that labels are deterministic.
class UnionFind {
  public:
    explicit UnionFind(Index n) : parent_(static_cast<std::size_t>(n)) { reset(); }
    void reset() {
        for (std::size_t i = 0; i < parent_.size(); ++i) parent_[i] = static_cast<std::int32_t>(i);
    }
    std::int32_t find(std::int32_t i) {
        while (at(i) != i) i = at(i) = at(at(i));
        return i;
    }
    void join(std::int32_t i, std::int32_t j) {
        i = find(i);
        j = find(j);
        if (i < j) at(j) = i;
        if (j < i) at(i) = j;
    }
    // Labels 0..K-1 in order of first appearance; returns K.
    Index labels(std::vector<std::int32_t>& out) {
        out.assign(parent_.size(), -1);
        Index count = 0;
        for (std::size_t i = 0; i < parent_.size(); ++i) {
            const auto root = static_cast<std::size_t>(find(static_cast<std::int32_t>(i)));
            out[i] = root == i ? static_cast<std::int32_t>(count++) : out[root];
        }
        return count;
    }

  private:
    std::int32_t& at(std::int32_t i) { return parent_[static_cast<std::size_t>(i)]; }
    std::vector<std::int32_t> parent_;
};

}  // namespace fusionopt
