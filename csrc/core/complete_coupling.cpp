// The complete graph with weights w_ij = W r_i r_j: pairs are stored by rows of blocks and never listed.
#include <algorithm>
#include <cmath>

#include "core/coupling.hpp"
#include "core/ladder.hpp"

namespace fusionopt {

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

class CompleteCoupling final : public Coupling {
  public:
    CompleteCoupling(Index m, Index d, double weight, const Vector& r, const Vector& common_null)
        : m_(m),
          d_(d),
          stride_(round_up(m) + kLanes),
          weight_(weight),
          r_(stride_),
          x_(d * stride_),
          phi_(d * stride_),
          t_(d * stride_),
          g_(d * stride_),
          row_((2 * d + 2) * kLanes),
          worst_(stride_),
          common_null_(common_null),
          factor_(at(d * d)),
          shifted_(at(m * d)),
          node_(at(d)),
          total_(at(d)),
          scratch_(at(d)),
          sets_(m) {
        Index blocks = 0;
        for (Index i = 0; i + 1 < m; ++i) blocks += (m - 1 - i + kLanes - 1) / kLanes;
        y_ = Buffer(blocks * d * kLanes);
        for (Index i = 0; i < m; ++i) {
            r_[i] = r[at(i)];
            sigma_ += r[at(i)];
        }
    }

    Sums sweep(const SweepRequest& request, const Vector& x, Vector& s, Vector* g) override {
        to_columns(x, x_);
        if (request.phi != nullptr) to_columns(*request.phi, phi_);
        PairSweep a;
        a.n_nodes = m_;
        a.n_features = d_;
        a.stride = stride_;
        a.y = y_.data();
        a.x = x_.data();
        a.r = r_.data();
        a.phi = phi_.data();
        a.t = t_.data();
        a.g = g != nullptr ? g_.data() : nullptr;
        a.row = row_.data();
        a.worst = worst_.data();
        a.lam_old = request.lam_old;
        a.scale = request.scale;
        a.commit = request.commit;
        sweeps().pairs(a, request.step, request.kind);
        to_rows(t_, s);
        if (request.worst != nullptr) std::copy_n(worst_.data(), m_, request.worst->data());
        if (g != nullptr) to_rows(g_, *g);
        return {weight_ * a.penalty, a.largest};
    }

    double start_rho(const QuadraticLoss& loss) const override {
        return loss.mean_eigenvalue() * static_cast<double>(m_) / (weight_ * sigma_ * sigma_);
    }

    // (H_i + tau_i I) x_i - rho W r_i s = b_i with s = sum_j r_j x_j and tau_i = rho W sigma r_i. Eliminating
    // s leaves a d x d system whose matrix is written as sum_j (r_j / sigma) (H_j + tau_j I)^-1 H_j, free of
    // the cancellation in I - rho W sum r_j^2 M_j.
    void set_rho(const QuadraticLoss& loss, double rho) override {
        rho_ = rho;
        std::fill(factor_.begin(), factor_.end(), 0.0);
        for (Index j = 0; j < m_; ++j) {
            const double tau = rho * weight_ * sigma_ * r_[j], share = r_[j] / sigma_;
            if (share == 0.0) continue;
            if (!loss.dense) {
                const double h = loss.eigenvalues[at(j)];
                factor_[0] += share * h / (h + tau);
                continue;
            }
            const double* u = loss.basis.data() + j * d_ * d_;
            const double* e = loss.eigenvalues.data() + j * d_;
            for (Index c = 0; c < d_; ++c) {
                const double value = share * e[c] / (e[c] + tau);
                for (Index a = 0; a < d_; ++a)
                    for (Index b = 0; b <= a; ++b)
                        factor_[at(a * d_ + b)] += value * u[a * d_ + c] * u[b * d_ + c];
            }
        }
        if (loss.dense) {
            for (Index k = 0; k < d_ * d_; ++k) factor_[at(k)] += common_null_[at(k)];
            cholesky(factor_.data(), d_);
        }
    }

    Index solve_x(const QuadraticLoss& loss, const Vector& b, Vector& x) override {
        std::fill(total_.begin(), total_.end(), 0.0);
        for (Index j = 0; j < m_; ++j) {
            double* own = shifted_.data() + j * d_;
            loss.solve_node(j, rho_ * weight_ * sigma_ * r_[j], b.data() + j * d_, own, scratch_.data());
            for (Index k = 0; k < d_; ++k) total_[at(k)] += r_[j] * own[k];
        }
        if (loss.dense)
            cholesky_solve(factor_.data(), d_, total_.data());
        else
            for (double& value : total_) value = factor_[0] > 0.0 ? value / factor_[0] : 0.0;
        for (Index j = 0; j < m_; ++j) {
            const double tau = rho_ * weight_ * sigma_ * r_[j], pull = rho_ * weight_ * r_[j];
            double* xj = x.data() + j * d_;
            for (Index k = 0; k < d_; ++k) node_[at(k)] = pull * total_[at(k)];
            loss.solve_node(j, tau, node_.data(), xj, scratch_.data());
            for (Index k = 0; k < d_; ++k) xj[k] += shifted_[at(j * d_ + k)];
        }
        return 0;
    }

    bool spread_rho(const StepParameters&, double) override { return false; }

    double primal_residual(const StepParameters& step, const Vector& x, double* absolute) const override {
        // One sum a lane, or the chain of additions would set the time.
        double gaps[kLanes] = {}, aparts[kLanes] = {}, splits[kLanes] = {};
        const double* y = y_.data();
        for (Index i = 0; i + 1 < m_; ++i) {
            for (Index j = i + 1; j < m_; j += kLanes, y += d_ * kLanes) {
                const Index count = std::min(kLanes, m_ - j);
                double keep[kLanes] = {};
                for (Index k = 0; k < d_; ++k)
                    for (Index l = 0; l < kLanes; ++l) keep[l] += y[k * kLanes + l] * y[k * kLanes + l];
                for (Index l = 0; l < kLanes; ++l) {
                    const double n = std::sqrt(keep[l]);
                    keep[l] = n > step.lam ? (1.0 - step.lam / n) / step.rho : 0.0;
                }
                const double* xi = x.data() + i * d_;
                const double* xj = x.data() + j * d_;
                for (Index k = 0; k < d_; ++k)
                    for (Index l = 0; l < count; ++l) {
                        const double u = xi[k] - xj[l * d_ + k], theta = keep[l] * y[k * kLanes + l];
                        gaps[l] += (u - theta) * (u - theta);
                        aparts[l] += u * u;
                        splits[l] += theta * theta;
                    }
            }
        }
        double gap = 0.0, apart = 0.0, split = 0.0;
        for (Index l = 0; l < kLanes; ++l) {
            gap += gaps[l];
            apart += aparts[l];
            split += splits[l];
        }
        if (absolute != nullptr) *absolute = std::sqrt(gap);
        const double scale = std::fmax(apart, split);
        return scale > 0.0 ? std::sqrt(gap / scale) : 0.0;
    }

    double penalty(const Vector& x) const override {
        double total = 0.0;
        for (Index i = 0; i < m_; ++i) {
            double row = 0.0;
            for (Index j = i + 1; j < m_; ++j) {
                double squared = 0.0;
                for (Index k = 0; k < d_; ++k)
                    squared +=
                        (x[at(i * d_ + k)] - x[at(j * d_ + k)]) * (x[at(i * d_ + k)] - x[at(j * d_ + k)]);
                row += r_[j] * std::sqrt(squared);
            }
            total += r_[i] * row;
        }
        return weight_ * total;
    }

    void laplacian(const Vector& phi, Vector& out) override {
        Vector& mean = total_;
        std::fill(mean.begin(), mean.end(), 0.0);
        for (Index i = 0; i < m_; ++i)
            for (Index k = 0; k < d_; ++k) mean[at(k)] += r_[i] * phi[at(i * d_ + k)];
        for (Index i = 0; i < m_; ++i)
            for (Index k = 0; k < d_; ++k)
                out[at(i * d_ + k)] = weight_ * r_[i] * (sigma_ * phi[at(i * d_ + k)] - mean[at(k)]);
    }

    Index balance(const Labels& labels, Index n_clusters, const Vector& e, double, double,
                  Vector& phi) override {
        Vector sums(at(n_clusters), 0.0);
        for (Index i = 0; i < m_; ++i) sums[at(labels[at(i)])] += r_[i];
        for (Index i = 0; i < m_; ++i) {
            const double scale = weight_ * r_[i] * sums[at(labels[at(i)])];
            for (Index k = 0; k < d_; ++k)
                phi[at(i * d_ + k)] = scale > 0.0 ? e[at(i * d_ + k)] / scale : 0.0;
        }
        return 0;
    }

    std::vector<Labels> partitions(double lam, Index& middle) const override {
        Ladder ladder(m_, lam);
        for_each_norm([&](Index i, Index j, double n) {
            ladder.add(static_cast<std::int32_t>(i), static_cast<std::int32_t>(j), n);
        });
        return ladder.partitions(middle);
    }

    Index fused_labels(double lam, Labels& labels) override {
        sets_.reset();
        for_each_norm([&](Index i, Index j, double n) {
            if (n <= lam) sets_.join(static_cast<std::int32_t>(i), static_cast<std::int32_t>(j));
        });
        return sets_.labels(labels);
    }

    ReducedProblem reduce(const QuadraticLoss& loss, double lam, const Labels& labels,
                          Index n_clusters) const override {
        ReducedProblem out;
        out.loss = sum_over_clusters(loss, labels, n_clusters);
        out.lam = lam;
        out.complete = true;
        out.weight = weight_;
        out.r.assign(at(n_clusters), 0.0);
        for (Index i = 0; i < m_; ++i) out.r[at(labels[at(i)])] += r_[i];
        return out;
    }

    void duals(double lam, double* out) const override {
        const double radius = lam * (1.0 - ball_shrink(d_));
        for_each_pair([&](Index i, Index j, const double* y, Index l) {
            double squared = 0.0;
            for (Index k = 0; k < d_; ++k) squared += y[k * kLanes + l] * y[k * kLanes + l];
            const double n = std::sqrt(squared);
            const double factor = weight_ * r_[i] * r_[j] * (n > radius ? radius / n : 1.0);
            for (Index k = 0; k < d_; ++k) *out++ = factor * y[k * kLanes + l];
        });
    }

    Index n_edges() const override { return m_ * (m_ - 1) / 2; }
    double chain() const override { return 1.125 * static_cast<double>(m_) + static_cast<double>(d_) + 64.0; }
    bool complete() const override { return true; }

  private:
    template <class Action>
    void for_each_pair(const Action& action) const {
        const double* y = y_.data();
        for (Index i = 0; i + 1 < m_; ++i)
            for (Index j = i + 1; j < m_; j += kLanes, y += d_ * kLanes)
                for (Index l = 0; l < std::min(kLanes, m_ - j); ++l) action(i, j + l, y, l);
    }
    template <class Action>
    void for_each_norm(const Action& action) const {
        const double* y = y_.data();
        for (Index i = 0; i + 1 < m_; ++i) {
            for (Index j = i + 1; j < m_; j += kLanes, y += d_ * kLanes) {
                double squared[kLanes] = {};
                for (Index k = 0; k < d_; ++k)
                    for (Index l = 0; l < kLanes; ++l) squared[l] += y[k * kLanes + l] * y[k * kLanes + l];
                for (Index l = 0; l < std::min(kLanes, m_ - j); ++l)
                    // A pair of weight zero is no edge.
                    if (r_[i] > 0.0 && r_[j + l] > 0.0) action(i, j + l, std::sqrt(squared[l]));
            }
        }
    }
    void to_columns(const Vector& rows, Buffer& columns) {
        for (Index i = 0; i < m_; ++i)
            for (Index k = 0; k < d_; ++k) columns[k * stride_ + i] = rows[at(i * d_ + k)];
    }
    void to_rows(const Buffer& columns, Vector& rows) {
        for (Index i = 0; i < m_; ++i)
            for (Index k = 0; k < d_; ++k) rows[at(i * d_ + k)] = weight_ * r_[i] * columns[k * stride_ + i];
    }

    Index m_, d_, stride_;
    double weight_, sigma_ = 0.0, rho_ = 1.0;
    Buffer r_, x_, phi_, t_, g_, row_, worst_;
    Vector common_null_, factor_, shifted_, node_, total_, scratch_;
    UnionFind sets_;
};

}  // namespace

std::unique_ptr<Coupling> make_complete_coupling(Index n_nodes, Index n_features, double weight,
                                                 const Vector& node_weights, const Vector& common_null) {
    return std::make_unique<CompleteCoupling>(n_nodes, n_features, weight, node_weights, common_null);
}

}  // namespace fusionopt
