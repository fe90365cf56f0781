#include "core/pdmm.hpp"

#include <algorithm>
#include <cmath>

#include "core/sweep.hpp"

namespace fusionopt {

namespace {

// Partial schemes keep sum_j (rho z_ij - muhat_ij) by differences; it is taken anew this often.
constexpr Index kResum = 200;

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

Index share(double participation, Index n) {
    return std::clamp<Index>(static_cast<Index>(participation * static_cast<double>(n)), 1, n);
}

double norm(const double* v, Index d) {
    double total = 0.0;
    for (Index k = 0; k < d; ++k) total += v[k] * v[k];
    return std::sqrt(total);
}

// The printed index set S_P holds the users and the ordered pairs; with pairs as units it holds pairs i < j.
Index primal_blocks(PdmmScheme scheme, Index n, Index edges) {
    if (scheme == PdmmScheme::kLiteral) return n + 2 * edges;
    return scheme == PdmmScheme::kPairs ? n + edges : n;
}

}  // namespace

Pdmm::Pdmm(Index n_nodes, Index n_features, std::vector<std::int32_t> tail, std::vector<std::int32_t> head,
           Vector radius, Vector eta_users, PdmmOptions options)
    : n_(n_nodes),
      d_(n_features),
      literal_(options.scheme == PdmmScheme::kLiteral),
      tail_(std::move(tail)),
      head_(std::move(head)),
      radius_(std::move(radius)),
      eta_users_(std::move(eta_users)),
      options_(options),
      engine_(options.seed),
      primal_(primal_blocks(options.scheme, n_nodes, n_edges()),
              share(options.participation, primal_blocks(options.scheme, n_nodes, n_edges()))),
      dual_(2 * n_edges(), n_edges() > 0 ? share(options.participation, 2 * n_edges()) : 0) {
    const std::size_t size = at(n_ * d_), blocks = at((literal_ ? 2 : 1) * n_edges());
    for (Vector* v : {&x_, &sums_, &neighbours_, &pull_, &next_}) v->assign(size, 0.0);
    for (Vector* v : {&z_, &mu_, &hat_}) v->assign(blocks * at(d_), 0.0);
    row_.assign(at(2 * d_), 0.0);
    is_active_.assign(at(n_), 1);
    chosen_.assign(blocks, 1);
    if (literal_) chosen_dual_.assign(blocks, 1);
    zeros_.assign(at(n_edges()), 0);
    degree_.assign(at(n_), 0.0);
    for (std::size_t e = 0; e < tail_.size(); ++e) {
        degree_[at(tail_[e])] += 1.0;
        degree_[at(head_[e])] += 1.0;
    }
    modulus_.resize(at(n_));
    set_modulus();
    complete_ = 2 * n_edges() == n_ * (n_ - 1);
    take_all();
}

void Pdmm::take_all() {
    active_.resize(at(n_));
    for (Index i = 0; i < n_; ++i) active_[at(i)] = i;
}

// neighbours_[i] = sum of x_j over the neighbours of i.
void Pdmm::sum_neighbours() {
    if (complete_) {
        double* total = row_.data();
        std::fill(total, total + d_, 0.0);
        for (Index i = 0; i < n_; ++i)
            for (Index k = 0; k < d_; ++k) total[k] += x_[at(i * d_ + k)];
        for (Index i = 0; i < n_; ++i)
            for (Index k = 0; k < d_; ++k) neighbours_[at(i * d_ + k)] = total[k] - x_[at(i * d_ + k)];
        return;
    }
    std::fill(neighbours_.begin(), neighbours_.end(), 0.0);
    for (std::size_t e = 0; e < tail_.size(); ++e) {
        const double *xi = x_.data() + tail_[e] * d_, *xj = x_.data() + head_[e] * d_;
        double *ni = neighbours_.data() + tail_[e] * d_, *nj = neighbours_.data() + head_[e] * d_;
        for (Index k = 0; k < d_; ++k) {
            ni[k] += xj[k];
            nj[k] += xi[k];
        }
    }
}

void Pdmm::begin() {
    const PdmmScheme scheme = options_.scheme;
    if (scheme != PdmmScheme::kFull) {
        const std::vector<Index>& drawn = primal_(engine_);
        std::fill(is_active_.begin(), is_active_.end(), std::uint8_t{0});
        if (scheme != PdmmScheme::kUsers) std::fill(chosen_.begin(), chosen_.end(), std::uint8_t{0});
        for (Index k = 0; k < primal_.count(); ++k) {
            if (drawn[at(k)] < n_)
                is_active_[at(drawn[at(k)])] = 1;
            else
                chosen_[at(drawn[at(k)] - n_)] = 1;
        }
        active_.clear();
        for (Index i = 0; i < n_; ++i)
            if (is_active_[at(i)]) active_.push_back(i);
    }
    if (literal_) {
        const std::vector<Index>& drawn = dual_(engine_);
        std::fill(chosen_dual_.begin(), chosen_dual_.end(), std::uint8_t{0});
        for (Index k = 0; k < dual_.count(); ++k) chosen_dual_[at(drawn[at(k)])] = 1;
    }
    gather();
}

void Pdmm::begin(const std::vector<Index>& users) {
    std::fill(is_active_.begin(), is_active_.end(), std::uint8_t{0});
    for (const Index i : users) is_active_[at(i)] = 1;
    active_ = users;
    gather();
}

void Pdmm::restore(Snapshot state) {
    x_ = std::move(state.x);
    z_ = std::move(state.z);
    mu_ = std::move(state.mu);
    hat_ = std::move(state.hat);
    sums_ = std::move(state.sums);
    zeros_ = std::move(state.zeros);
    n_iter_ = state.n_iter;
}

// pull_ of the active users.
void Pdmm::gather() {
    sum_neighbours();
    const double rho = options_.rho;
    for (const Index i : active_)
        for (Index k = i * d_; k < (i + 1) * d_; ++k)
            pull_[at(k)] = sums_[at(k)] + rho * neighbours_[at(k)] + eta_users_[at(i)] * x_[at(k)];
}

// One pair as a unit: (17) with the old x, then (18) and (19) with the new x. change: that of rho z - muhat.
void Pdmm::touch(Index e, const double* xi, const double* xj, const double* yi, const double* yj,
                 double* change) {
    const double rho = options_.rho, eta = options_.eta, sum = rho + eta;
    double *z = z_.data() + e * d_, *mu = mu_.data() + e * d_, *hat = hat_.data() + e * d_;
    double square = 0.0;
    for (Index k = 0; k < d_; ++k) {
        change[k] = hat[k] - rho * z[k];
        z[k] = hat[k] + rho * (xi[k] - xj[k]) + eta * z[k];
        square += z[k] * z[k];
    }
    const double length = std::sqrt(square), radius = radius_[at(e)];
    const double factor = length > radius ? (1.0 - radius / length) / sum : 0.0;
    const double dual = options_.tau * rho, back = options_.nu * rho;
    for (Index k = 0; k < d_; ++k) {
        z[k] *= factor;
        const double r = yi[k] - yj[k] - z[k];
        mu[k] += dual * r;
        hat[k] = mu[k] - back * r;
        change[k] += rho * z[k] - hat[k];
    }
    zeros_[at(e)] =
        factor > 0.0 ? std::uint8_t{0} : static_cast<std::uint8_t>(std::min(zeros_[at(e)] + 1, 255));
}

bool Pdmm::resting(Index e) const {
    // Spread over the period, so that every iteration costs about the same.
    return options_.skip_after > 0 && zeros_[at(e)] >= options_.skip_after &&
           (n_iter_ + e) % options_.skip_period != 0;
}

void Pdmm::end(const Vector& given) {
    const PdmmScheme scheme = options_.scheme;
    for (const Index i : active_) std::copy_n(given.data() + i * d_, d_, next_.data() + i * d_);
    for (Index i = 0; i < n_; ++i)
        if (!is_active_[at(i)]) std::copy_n(x_.data() + i * d_, d_, next_.data() + i * d_);
    counts_.up += static_cast<std::int64_t>(active_.size());
    counts_.down += static_cast<std::int64_t>(active_.size());
    if (literal_) {
        end_literal(next_);
    } else {
        double* change = row_.data();
        std::int64_t touched = 0;
        for (Index e = 0; e < n_edges(); ++e) {
            const Index i = tail_[at(e)], j = head_[at(e)];
            const bool due =
                scheme == PdmmScheme::kUsers ? is_active_[at(i)] || is_active_[at(j)] : chosen_[at(e)];
            if (!due) continue;
            if (resting(e)) {
                ++counts_.skipped;
                continue;
            }
            ++touched;
            touch(e, x_.data() + i * d_, x_.data() + j * d_, next_.data() + i * d_, next_.data() + j * d_,
                  change);
            double *si = sums_.data() + i * d_, *sj = sums_.data() + j * d_;
            for (Index k = 0; k < d_; ++k) {
                si[k] += change[k];
                sj[k] -= change[k];
            }
        }
        counts_.pairs += touched;
        counts_.up += touched;
        counts_.down += 2 * touched;
    }
    x_.swap(next_);
    ++n_iter_;
    if (n_iter_ % kResum == 0) resum();
}

void Pdmm::set_modulus() {
    for (Index i = 0; i < n_; ++i) modulus_[at(i)] = options_.rho * degree_[at(i)] + eta_users_[at(i)];
}

// sums_[i] = sum_j (rho z_ij - muhat_ij).
void Pdmm::resum() {
    std::fill(sums_.begin(), sums_.end(), 0.0);
    for (Index o = 0; o < (literal_ ? 2 : 1) * n_edges(); ++o) {
        const Index e = o < n_edges() ? o : o - n_edges();
        const double *z = z_.data() + o * d_, *hat = hat_.data() + o * d_;
        double* si = sums_.data() + (o < n_edges() ? tail_ : head_)[at(e)] * d_;
        double* sj = literal_ ? nullptr : sums_.data() + head_[at(e)] * d_;
        for (Index k = 0; k < d_; ++k) {
            const double s = options_.rho * z[k] - hat[k];
            si[k] += s;
            if (sj != nullptr) sj[k] -= s;
        }
    }
}

void Pdmm::stretch(double factor) {
    options_.rho *= factor;
    options_.eta *= factor;
    for (double& eta : eta_users_) eta *= factor;
    set_modulus();
    resum();
}

// The printed algorithm: ordered pairs, z and mu drawn apart; row e is (i, j), row n_edges + e is (j, i).
void Pdmm::end_literal(const Vector& y) {
    const double rho = options_.rho, eta = options_.eta, sum = rho + eta;
    std::fill(sums_.begin(), sums_.end(), 0.0);
    for (Index o = 0; o < 2 * n_edges(); ++o) {
        const Index e = o < n_edges() ? o : o - n_edges();
        const Index i = o < n_edges() ? tail_[at(e)] : head_[at(e)],
                    j = o < n_edges() ? head_[at(e)] : tail_[at(e)];
        double *z = z_.data() + o * d_, *mu = mu_.data() + o * d_, *hat = hat_.data() + o * d_;
        double* s = sums_.data() + i * d_;
        if (chosen_[at(o)]) {
            for (Index k = 0; k < d_; ++k)
                z[k] = hat[k] + rho * (x_[at(i * d_ + k)] - x_[at(j * d_ + k)]) + eta * z[k];
            const double length = norm(z, d_), radius = radius_[at(e)];
            const double factor = length > radius ? (1.0 - radius / length) / sum : 0.0;
            for (Index k = 0; k < d_; ++k) z[k] *= factor;
            ++counts_.up;
            ++counts_.down;
        }
        if (chosen_dual_[at(o)]) {
            for (Index k = 0; k < d_; ++k) {
                const double r = y[at(i * d_ + k)] - y[at(j * d_ + k)] - z[k];
                mu[k] += options_.tau * rho * r;
                hat[k] = mu[k] - options_.nu * rho * r;
            }
            ++counts_.down;
            ++counts_.pairs;
        }
        for (Index k = 0; k < d_; ++k) s[k] += rho * z[k] - hat[k];
    }
}

void Pdmm::run(const QuadraticLoss& loss, Index iterations) {
    Vector point(x_.size()), rhs(at(d_)), scratch(at(d_));
    for (Index t = 0; t < iterations; ++t) {
        begin();
        for (const Index i : active_) {
            for (Index k = 0; k < d_; ++k) rhs[at(k)] = pull_[at(i * d_ + k)] + loss.linear[at(i * d_ + k)];
            loss.solve_node(i, modulus_[at(i)], rhs.data(), point.data() + i * d_, scratch.data());
        }
        end(point);
    }
}

double Pdmm::largest_residual() const {
    double largest = 0.0;
    Vector r(at(d_));
    for (Index e = 0; e < n_edges(); ++e) {
        for (Index k = 0; k < d_; ++k)
            r[at(k)] = x_[at(tail_[at(e)] * d_ + k)] - x_[at(head_[at(e)] * d_ + k)] - z_[at(e * d_ + k)];
        largest = std::max(largest, norm(r.data(), d_));
    }
    return largest;
}

double Pdmm::asymmetry() const {
    if (!literal_) return 0.0;
    double largest = 0.0;
    Vector r(at(d_));
    const Index size = n_edges() * d_;
    for (Index e = 0; e < n_edges(); ++e) {
        for (Index k = 0; k < d_; ++k) r[at(k)] = mu_[at(e * d_ + k)] + mu_[at(size + e * d_ + k)];
        largest = std::max(largest, norm(r.data(), d_));
    }
    return largest;
}

void Pdmm::dual(Index e, double* out) const {
    const double* mu = mu_.data() + e * d_;
    const double* back = literal_ ? mu_.data() + (n_edges() + e) * d_ : nullptr;
    for (Index k = 0; k < d_; ++k) out[k] = literal_ ? 0.5 * (mu[k] - back[k]) : mu[k];
    const double length = norm(out, d_), radius = radius_[at(e)] * (1.0 - ball_shrink(d_));
    if (length > radius)
        for (Index k = 0; k < d_; ++k) out[k] *= radius / length;
}

Pdmm::Balance Pdmm::balance(const Vector& x, Vector& sums) const {
    Balance out;
    Vector v(at(d_)), u(at(d_));
    sums.assign(x.size(), 0.0);
    for (Index e = 0; e < n_edges(); ++e) {
        const Index i = tail_[at(e)] * d_, j = head_[at(e)] * d_;
        dual(e, v.data());
        double product = 0.0;
        for (Index k = 0; k < d_; ++k) {
            u[at(k)] = x[at(i + k)] - x[at(j + k)];
            product += v[at(k)] * u[at(k)];
            sums[at(i + k)] += v[at(k)];
            sums[at(j + k)] -= v[at(k)];
        }
        out.penalty += radius_[at(e)] * norm(u.data(), d_);
        out.product += product;
    }
    return out;
}

void Pdmm::duals(double* out) const {
    for (Index e = 0; e < n_edges(); ++e) dual(e, out + e * d_);
}

void Pdmm::state(double* lengths, std::uint8_t* fused) const {
    Vector v(at(d_));
    for (Index e = 0; e < n_edges(); ++e) {
        dual(e, v.data());
        lengths[e] = norm(v.data(), d_);
        fused[e] = norm(z_.data() + e * d_, d_) == 0.0 ? 1 : 0;
    }
}

}  // namespace fusionopt
