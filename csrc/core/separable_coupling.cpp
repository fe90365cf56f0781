// The l1 penalty: one coupling with a single feature for each coordinate holds that coordinate's duals, whose
// balls are intervals; the x-step, which knows no penalty, is that of the same graph with all features.
#include <cmath>

#include "core/coupling.hpp"

namespace fusionopt {

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

class SeparableCoupling final : public Coupling {
  public:
    SeparableCoupling(std::unique_ptr<Coupling> whole, std::vector<std::unique_ptr<Coupling>> parts, Index m)
        : whole_(std::move(whole)), parts_(std::move(parts)), m_(m), d_(static_cast<Index>(parts_.size())) {
        for (Vector* v : {&x_, &s_, &g_, &phi_, &worst_}) v->assign(at(m), 0.0);
    }

    Sums sweep(const SweepRequest& request, const Vector& x, Vector& s, Vector* g) override {
        Sums out;
        if (request.worst != nullptr) request.worst->assign(at(m_), 0.0);
        for (Index k = 0; k < d_; ++k) {
            SweepRequest own = request;
            column(x, k, x_);
            if (request.phi != nullptr) {
                column(*request.phi, k, phi_);
                own.phi = &phi_;
            }
            if (request.worst != nullptr) own.worst = &worst_;
            const Sums sums = parts_[at(k)]->sweep(own, x_, s_, g != nullptr ? &g_ : nullptr);
            out.penalty += sums.penalty;
            out.largest = std::fmax(out.largest, sums.largest);
            for (Index i = 0; i < m_; ++i) {
                s[at(i * d_ + k)] = s_[at(i)];
                if (g != nullptr) (*g)[at(i * d_ + k)] = g_[at(i)];
                if (request.worst != nullptr)
                    (*request.worst)[at(i)] = std::fmax((*request.worst)[at(i)], worst_[at(i)]);
            }
        }
        return out;
    }

    void set_rho(const QuadraticLoss& loss, double rho) override { whole_->set_rho(loss, rho); }
    double solve_x(const QuadraticLoss& loss, const Vector& b, Vector& x) override {
        return whole_->solve_x(loss, b, x);
    }
    double start_rho(const QuadraticLoss& loss, double lam, const Vector& x) const override {
        return whole_->start_rho(loss, lam, x);
    }
    // One rho for all coordinates of an edge, as the x-step has it.
    bool spread_rho(const StepParameters&, double, double) override { return false; }

    double primal_residual(const StepParameters& step, const Vector& x, double* absolute) const override {
        // Over all coordinates together: one that is fused altogether has nothing to measure its residual by.
        double squared = 0.0, scale = 0.0;
        Vector own(at(m_));
        for (Index k = 0; k < d_; ++k) {
            column(x, k, own);
            double size = 0.0;
            const double relative = parts_[at(k)]->primal_residual(step, own, &size);
            squared += size * size;
            if (relative > 0.0) scale += (size / relative) * (size / relative);
        }
        if (absolute != nullptr) *absolute = std::sqrt(squared);
        return scale > 0.0 ? std::sqrt(squared / scale) : 0.0;
    }

    double penalty(const Vector& x) const override {
        Vector own(at(m_));
        double out = 0.0;
        for (Index k = 0; k < d_; ++k) {
            column(x, k, own);
            out += parts_[at(k)]->penalty(own);
        }
        return out;
    }

    void laplacian(const Vector& phi, Vector& out) override { whole_->laplacian(phi, out); }
    Index balance(const Labels& labels, Index n_clusters, const Vector& e, double tol, double noise,
                  Vector& phi) override {
        return whole_->balance(labels, n_clusters, e, tol, noise, phi);
    }

    void use(ThreadPool* pool) override {
        whole_->use(pool);
        for (auto& part : parts_) part->use(pool);
    }
    void settle(double lam, double before, bool fine) override {
        for (auto& part : parts_) part->settle(lam, before, fine);
    }
    void keep_state() override {
        for (auto& part : parts_) part->keep_state();
    }
    void swap_state() override {
        for (auto& part : parts_) part->swap_state();
    }

    void pass_state(StateStream& stream) override {
        whole_->pass_state(stream);
        for (auto& part : parts_) part->pass_state(stream);
    }

    // Coordinates fuse on their own: rows have no partition that the duals of all of them share.
    std::vector<Labels> partitions(double, Index& middle) const override {
        middle = 0;
        Labels apart;
        apart_labels(apart);
        return {apart};
    }
    Index fused_labels(double, Labels& labels) override {
        apart_labels(labels);
        return m_;
    }
    ReducedProblem reduce(const QuadraticLoss& loss, double lam, const Labels& labels,
                          Index n_clusters) const override {
        return whole_->reduce(loss, lam, labels, n_clusters);
    }

    void duals(double lam, double* out) const override {
        Vector own(at(n_edges()));
        for (Index k = 0; k < d_; ++k) {
            parts_[at(k)]->duals(lam, own.data());
            for (Index e = 0; e < n_edges(); ++e) out[e * d_ + k] = own[at(e)];
        }
    }
    Index n_edges() const override { return whole_->n_edges(); }
    double chain() const override { return whole_->chain(); }
    bool complete() const override { return whole_->complete(); }

  private:
    void column(const Vector& rows, Index k, Vector& out) const {
        for (Index i = 0; i < m_; ++i) out[at(i)] = rows[at(i * d_ + k)];
    }
    void apart_labels(Labels& labels) const {
        labels.resize(at(m_));
        for (Index i = 0; i < m_; ++i) labels[at(i)] = static_cast<std::int32_t>(i);
    }

    std::unique_ptr<Coupling> whole_;
    std::vector<std::unique_ptr<Coupling>> parts_;
    Index m_, d_;
    Vector x_, s_, g_, phi_, worst_;
};

}  // namespace

std::unique_ptr<Coupling> make_separable_coupling(std::unique_ptr<Coupling> whole,
                                                  std::vector<std::unique_ptr<Coupling>> parts,
                                                  Index n_nodes) {
    return std::make_unique<SeparableCoupling>(std::move(whole), std::move(parts), n_nodes);
}

}  // namespace fusionopt
