// The complete graph with weights w_ij = W r_i r_j: pairs are stored by rows of blocks and never listed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "core/coupling.hpp"
#include "core/ladder.hpp"

namespace fusionopt {

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// Below this many numbers the pairs are not worth a second thread; above, chunks of a fifth of it are.
constexpr Index kWorthThreads = 100000;
constexpr Index kMaxChunks = 16;
constexpr double kNarrowRange = 1e-12;

// Where the pairs of a layout lie, without a division a pair.
class PairPlaces {
  public:
    explicit PairPlaces(const PairLayout& layout)
        : layout_(layout), tile_(layout.tile()), blocks_(layout.n_blocks()) {
        for (Index into = 0; into < layout.n_blocks(); ++into) start_.push_back(into / tile_ * tile_);
        for (Index column = 0; column < layout.n_nodes; ++column) block_.push_back(column / layout.lanes);
        for (Index strip = 0; strip < layout.n_strips(); ++strip)
            before_.push_back(layout.blocks_before(strip));
    }
    // Entry 0 of the vector of two nodes.
    Index operator()(Index a, Index b) const {
        const Index i = a < b ? a : b, j = a < b ? b : a;
        const Index strip = i / PairLayout::kStrip, first = layout_.first_block(strip), block = block_[at(j)],
                    into = block - first, start = start_[at(into)], left = blocks_ - first - start,
                    width = left < tile_ ? left : tile_;
        return (before_[at(strip)] + layout_.rows(strip) * start + (i - strip * PairLayout::kStrip) * width +
                into - start) *
                   layout_.n_features * layout_.lanes +
               j - block * layout_.lanes;
    }

  private:
    PairLayout layout_;
    Index tile_, blocks_;
    std::vector<Index> start_, block_, before_;
};

class CompleteCoupling final : public Coupling {
  public:
    CompleteCoupling(Index m, Index d, double weight, const Vector& r, const Vector& common_null, bool narrow)
        : m_(m),
          d_(d),
          weight_(weight),
          wants_narrow_(narrow),
          wide_layout_{m, d, kLanes},
          narrow_layout_{m, d, PairLayout::kStrip},
          padded_((m + PairLayout::kStrip - 1) / PairLayout::kStrip * PairLayout::kStrip),
          r_(padded_),
          x_rows_(m * d),
          x_blocks_(padded_ * d),
          plain_blocks_(padded_ * d),
          phi_blocks_(padded_ * d),
          t_rows_(m * d),
          g_rows_(m * d),
          common_null_(common_null),
          factor_(at(d * d)),
          shifted_(at(m * d)),
          node_(at(d)),
          total_(at(d)),
          scratch_(at(d)),
          sets_(m) {
        for (Index i = 0; i < m; ++i) {
            r_[i] = r[at(i)];
            sigma_ += r[at(i)];
        }
        if (narrow) {
            narrow_ = BufferOf<float>(narrow_layout_.size());
            r_single_ = BufferOf<float>(padded_);
            for (Index i = 0; i < m; ++i) r_single_[i] = static_cast<float>(r[at(i)]);
            x_rows_single_ = BufferOf<float>(m * d);
            x_blocks_single_ = BufferOf<float>(padded_ * d);
            is_narrow_ = true;
        } else {
            y_ = Buffer(wide_layout_.size());
        }
        // Chunks of strips with about as many blocks each; they depend on the problem alone.
        const Index strips = wide_layout_.n_strips(), blocks = wide_layout_.blocks_before(strips);
        const Index size = wide_layout_.size(), finest = size < kWorthThreads ? 1 : size * 5 / kWorthThreads;
        const Index count = std::clamp<Index>(std::min(finest, strips / 4), 1, kMaxChunks);
        chunks_.resize(at(count));
        for (Index c = 0, strip = 0; c < count; ++c) {
            chunks_[at(c)].first_strip = strip;
            while (strip < strips &&
                   (c + 1 == count || wide_layout_.blocks_before(strip) * count < blocks * (c + 1)))
                ++strip;
            chunks_[at(c)].last_strip = strip;
        }
        t_blocks_ = Buffer(count * padded_ * d);
        g_blocks_ = Buffer(count * padded_ * d);
        worst_ = Buffer(count * padded_);
        sums_ = Buffer(PairLayout::kStrip * d);
        for (Index c = 0; c < count; ++c) {
            PairChunk& chunk = chunks_[at(c)];
            chunk.t_rows = t_rows_.data();
            chunk.g_rows = g_rows_.data();
            chunk.t_blocks = t_blocks_.data() + c * padded_ * d;
            chunk.g_blocks = g_blocks_.data() + c * padded_ * d;
            chunk.worst = worst_.data() + c * padded_;
        }
        make_room();
    }

    void use(ThreadPool* pool) override {
        Coupling::use(pool);
        make_room();
    }

    Sums sweep(const SweepRequest& request, const Vector& x, Vector& s, Vector* g) override {
        SweepKind kind = request.kind;
        const StepParameters& step = request.step;
        if (kind == SweepKind::kRelax && step.alpha == 0.0 && step.stretch == 1.0) kind = SweepKind::kMeasure;
        const bool potential = kind == SweepKind::kManifold || kind == SweepKind::kProject;
        if (is_narrow_ && potential) {
            widen();
            is_narrow_ = kept_narrow_ = false;
        }
        PairSweep a;
        a.layout = is_narrow_ ? narrow_layout_ : wide_layout_;
        a.y = is_narrow_ ? static_cast<void*>(narrow_.data()) : static_cast<void*>(y_.data());
        a.narrow = is_narrow_;
        a.want_dual = g != nullptr;
        a.lam_old = request.lam_old;
        a.scale = request.scale;
        a.commit = request.commit;
        const Index lanes = a.layout.lanes;
        const bool relaxes = kind == SweepKind::kRelax;
        const double factor = relaxes ? step.alpha * step.rho : 1.0;
        if (relaxes && is_narrow_) {
            place(x, factor, lanes, x_rows_single_, x_blocks_single_);
            a.x_rows = x_rows_single_.data();
            a.x_blocks = x_blocks_single_.data();
            a.r = r_single_.data();
        } else {
            place(x, factor, lanes, x_rows_, x_blocks_);
            a.x_rows = x_rows_.data();
            a.x_blocks = x_blocks_.data();
            a.r = r_.data();
        }
        a.plain_r = r_.data();
        if (relaxes && a.want_dual) {
            place_blocks(x, 1.0, lanes, plain_blocks_);
            a.plain_rows = x.data();
            a.plain_blocks = plain_blocks_.data();
        }
        if (potential) {
            place_blocks(*request.phi, 1.0, lanes, phi_blocks_);
            a.phi_rows = request.phi->data();
            a.phi_blocks = phi_blocks_.data();
        }
        for_chunks(static_cast<Index>(chunks_.size()), [&](Index c, int worker) {
            PairChunk& chunk = chunks_[at(c)];
            chunk.scratch = room_.data() + worker * room_size_;
            sweeps().pairs(a, step, kind, chunk);
        });
        Sums out;
        for (const PairChunk& chunk : chunks_) {
            out.penalty += weight_ * chunk.penalty;
            out.largest = std::fmax(out.largest, chunk.largest);
        }
        if (g != nullptr) {
            out.nearest = std::numeric_limits<double>::infinity();
            out.tightest = 0.0;
            for (const PairChunk& chunk : chunks_) {
                out.residual += chunk.residual;
                out.nearest = std::fmin(out.nearest, chunk.nearest);
                out.tightest = std::fmax(out.tightest, chunk.tightest);
            }
        }
        gather(lanes, t_rows_, t_blocks_, s);
        if (g != nullptr) gather(lanes, g_rows_, g_blocks_, *g);
        if (request.worst != nullptr) {
            for (Index i = 0; i < m_; ++i) {
                double worst = 0.0;
                for (const PairChunk& chunk : chunks_) worst = std::fmax(worst, chunk.worst[i]);
                (*request.worst)[at(i)] = worst;
            }
        }
        return out;
    }

    void settle(double lam, double before, bool fine) override {
        if (!wants_narrow_) return;
        // Squares of the state must stay far inside float32.
        const auto fits = [](double radius) { return radius > kNarrowRange && radius < 1.0 / kNarrowRange; };
        const bool narrow = !fine && fits(lam) && (before == 0.0 || fits(before));
        if (narrow != is_narrow_) {
            if (is_narrow_) {
                widen();
            } else {
                if (narrow_.size() == 0) narrow_ = BufferOf<float>(narrow_layout_.size());
                copy_state(y_.data(), wide_layout_, narrow_.data(), narrow_layout_);
            }
            is_narrow_ = narrow;
        }
        kept_narrow_ = false;
        if (!is_narrow_) {
            narrow_ = BufferOf<float>();
            return;
        }
        y_ = Buffer();
        kept_ = Buffer();
    }

    void keep_state() override {
        if (!is_narrow_) return Coupling::keep_state();
        widen();
        is_narrow_ = false;
        kept_narrow_ = true;
    }
    void swap_state() override {
        if (kept_narrow_)
            is_narrow_ = !is_narrow_;
        else
            Coupling::swap_state();
    }

    void pass_state(StateStream& stream) override {
        bool narrow = is_narrow_;
        stream.pass(narrow);
        if (narrow && !wants_narrow_)
            throw std::invalid_argument("the saved state is in float32, this one is not");
        if (narrow) {
            if (narrow_.size() == 0) narrow_ = BufferOf<float>(narrow_layout_.size());
            Vector numbers(narrow_.data(), narrow_.data() + narrow_.size());
            stream.pass(numbers);
            for (Index k = 0; k < narrow_.size(); ++k) narrow_[k] = static_cast<float>(numbers[at(k)]);
        } else {
            if (y_.size() == 0) y_ = Buffer(wide_layout_.size());
            stream.pass(y_);
        }
        is_narrow_ = narrow;
        kept_narrow_ = false;
    }

    double start_rho(const QuadraticLoss& loss, double, const Vector&) const override {
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

    double solve_x(const QuadraticLoss& loss, const Vector& b, Vector& x) override {
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

    bool spread_rho(const StepParameters&, double, double) override { return false; }

    double primal_residual(const StepParameters& step, const Vector& x, double* absolute) const override {
        Buffer blocks(padded_ * d_), copies(padded_), weights(padded_);
        place_blocks(x, 1.0, is_narrow_ ? narrow_layout_.lanes : wide_layout_.lanes, blocks);
        for (Index i = 0; i < m_; ++i) copies[i] = copies_.empty() ? 1.0 : copies_[at(i)];
        PairResiduals sums;
        for_each_run([&](Index i, Index j, const PairRun& run) {
            for (Index l = j; l < j + run.size(); ++l) weights[l] = l > i ? copies[i] * copies[l] : 0.0;
            sweeps().run_residuals(run, step, x.data() + i * d_, blocks.data() + j * d_, weights.data() + j,
                                   sums);
        });
        double gap = 0.0, apart = 0.0, split = 0.0;
        for (Index l = 0; l < PairLayout::kStrip; ++l) {
            gap += sums.gap[l];
            apart += sums.apart[l];
            split += sums.split[l];
        }
        if (absolute != nullptr) *absolute = std::sqrt(gap);
        const double scale = std::fmax(apart, split);
        return scale > 0.0 ? std::sqrt(gap / scale) : 0.0;
    }

    // The pairs in blocks of columns.
    double penalty(const Vector& x) const override {
        Buffer blocks(padded_ * d_);
        place_blocks(x, 1.0, kLanes, blocks);
        double total = 0.0;
        for (Index i = 0; i + 1 < m_; ++i) {
            double row[kLanes] = {};
            const double* const xi = x.data() + i * d_;
            for (Index j = (i + 1) / kLanes * kLanes; j < m_; j += kLanes) {
                double squared[kLanes] = {};
                const double* const xj = blocks.data() + j * d_;
                for (Index k = 0; k < d_; ++k)
                    for (Index l = 0; l < kLanes; ++l) squared[l] += square(xi[k] - xj[k * kLanes + l]);
                if (j <= i)
                    for (Index l = 0; l <= i - j; ++l) squared[l] = 0.0;
                for (Index l = 0; l < kLanes; ++l) row[l] += r_[j + l] * std::sqrt(squared[l]);
            }
            double sum = 0.0;
            for (Index l = 0; l < kLanes; ++l) sum += row[l];
            total += r_[i] * sum;
        }
        return weight_ * total;
    }

    bool has_parts() const override { return true; }
    bool grouped() const override { return !copies_.empty(); }

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
        return climb(Ladder(m_, lam), middle);
    }
    std::vector<Labels> sets_within(const std::vector<double>& bounds) const override {
        Index unused = 0;
        return climb(Ladder(m_, bounds), unused);
    }

    Index fused_labels(double lam, Labels& labels) override {
        sets_.reset();
        for_each_norm(lam, [&](Index i, Index j, double) {
            sets_.join(static_cast<std::int32_t>(i), static_cast<std::int32_t>(j));
        });
        return sets_.labels(labels);
    }

    ReducedProblem reduce(const QuadraticLoss& loss, double lam, const Labels& labels,
                          Index n_clusters) const override {
        ReducedProblem out;
        out.sum_loss(loss, labels, n_clusters);
        out.lam = lam;
        out.complete = true;
        out.weight = weight_;
        out.r.assign(at(n_clusters), 0.0);
        for (Index i = 0; i < m_; ++i) out.r[at(labels[at(i)])] += r_[i];
        return out;
    }

    std::unique_ptr<Coupling> part(const Labels& labels, Index n_groups, bool exact) const override {
        Vector r(at(n_groups), 0.0);
        std::vector<std::vector<Index>> rows(at(n_groups));
        for (Index i = 0; i < m_; ++i)
            if (const std::int32_t group = labels[at(i)]; group >= 0) {
                r[at(group)] += r_[i];
                rows[at(group)].push_back(i);
            }
        auto out = std::make_unique<CompleteCoupling>(n_groups, d_, weight_, r, common_null_,
                                                      wants_narrow_ && !exact);
        out->settle(1.0, 0.0, !is_narrow_);
        out->copies_.assign(at(n_groups), 0.0);
        for (Index i = 0; i < m_; ++i)
            if (labels[at(i)] >= 0) out->copies_[at(labels[at(i)])] += copies_.empty() ? 1.0 : copies_[at(i)];
        with_state(*this, [&](const auto* y, const PairLayout& from) {
            with_state(*out,
                       [&](auto* z, const PairLayout& to) { add_groups(labels, r, rows, y, from, z, to); });
        });
        return out;
    }

    void put_part(const Coupling& source, const Labels& labels) override {
        if (is_narrow_) {
            widen();
            is_narrow_ = kept_narrow_ = false;
        }
        if (y_.size() == 0) y_ = Buffer(wide_layout_.size());
        const PairPlaces target(wide_layout_);
        std::vector<Index> members;
        for (Index i = 0; i < m_; ++i)
            if (labels[at(i)] >= 0) members.push_back(i);
        with_state(static_cast<const CompleteCoupling&>(source),
                   [&](const auto* y, const PairLayout& layout) {
                       const PairPlaces origin(layout);
                       for (std::size_t p = 0; p < members.size(); ++p)
                           for (std::size_t q = p + 1; q < members.size(); ++q) {
                               const Index a = labels[at(members[p])], b = labels[at(members[q])];
                               if (a == b) continue;
                               const double sign = a < b ? 1.0 : -1.0;
                               const auto* const from = y + origin(a, b);
                               double* const to = y_.data() + target(members[p], members[q]);
                               for (Index k = 0; k < d_; ++k)
                                   to[k * kLanes] = sign * static_cast<double>(from[k * layout.lanes]);
                           }
                   });
    }

    void release() override {
        y_ = Buffer();
        kept_ = Buffer();
        narrow_ = BufferOf<float>();
        is_narrow_ = kept_narrow_ = false;
    }

    double share_within(double bound) const override {
        // One block in this many, at a distance that shares no factor with the rows of a strip.
        constexpr Index every = 61;
        Index count = 0, seen = 0, place = 0;
        for_each_run([&](Index i, Index j, const PairRun& run) {
            for (Index b = 0; b < run.n_blocks; ++b) {
                if (place++ % every != 0) continue;
                const Index first = j + b * run.lanes;
                double squares[PairLayout::kStrip];
                sweeps().run_squares(block_of(run, b), squares);
                for (Index l = std::max(first, i + 1); l < std::min(first + run.lanes, m_); ++l) {
                    ++seen;
                    if (squares[l - first] <= bound * bound) ++count;
                }
            }
        });
        return seen > 0 ? static_cast<double>(count) / static_cast<double>(seen) : 0.0;
    }

    double node_weight(Index i) const override { return r_[i]; }
    double pair_weight() const override { return weight_; }

    void duals(double lam, double* out) const override {
        const double radius = lam * (1.0 - ball_shrink(d_));
        for_each_pair([&](Index i, Index j, const auto* y, Index lanes) {
            double squared = 0.0;
            for (Index k = 0; k < d_; ++k) squared += square(y[k * lanes]);
            const double n = std::sqrt(squared);
            const double factor = weight_ * r_[i] * r_[j] * (n > radius ? radius / n : 1.0);
            for (Index k = 0; k < d_; ++k) *out++ = factor * y[k * lanes];
        });
    }

    Index n_edges() const override { return m_ * (m_ - 1) / 2; }
    double chain() const override { return 1.125 * static_cast<double>(m_) + static_cast<double>(d_) + 64.0; }
    bool complete() const override { return true; }
    bool narrow() const override { return wants_narrow_; }

  private:
    static double square(double value) { return value * value; }

    // action(state, layout) with the state in the type it has.
    template <class Self, class Action>
    static void with_state(Self& self, const Action& action) {
        if (self.is_narrow_)
            action(self.narrow_.data(), self.narrow_layout_);
        else
            action(self.y_.data(), self.wide_layout_);
    }
    PairRun run_of(const float* y, Index n_blocks) const {
        return {y, true, d_, n_blocks, PairLayout::kStrip};
    }
    PairRun run_of(const double* y, Index n_blocks) const { return {y, false, d_, n_blocks, kLanes}; }
    static PairRun block_of(const PairRun& run, Index b) {
        PairRun out = run;
        const Index bytes = b * run.n_features * run.lanes * (run.narrow ? sizeof(float) : sizeof(double));
        out.y = static_cast<const char*>(run.y) + bytes;
        out.n_blocks = 1;
        return out;
    }
    // action(first column, run) for the blocks of row i with a pair in them.
    template <class S, class Action>
    void for_row(Index i, const S* y, const PairLayout& layout, const Action& action) const {
        const Index strip = i / PairLayout::kStrip, first = layout.first_block(strip), tile = layout.tile(),
                    own = (i + 1) / layout.lanes - first, n = layout.n_blocks() - first,
                    size = d_ * layout.lanes;
        for (Index start = own / tile * tile; start < n; start += tile) {
            const Index width = std::min(tile, n - start), skip = std::max<Index>(0, own - start);
            const Index before = layout.blocks_before(strip) + layout.rows(strip) * start +
                                 (i - strip * PairLayout::kStrip) * width;
            action((first + start + skip) * layout.lanes, run_of(y + (before + skip) * size, width - skip));
        }
    }
    // action(i, first column, run) by rows.
    template <class Action>
    void for_each_run(const Action& action) const {
        with_state(*this, [&](const auto* y, const PairLayout& layout) {
            for (Index i = 0; i + 1 < m_; ++i)
                for_row(i, y, layout, [&](Index j, const PairRun& run) { action(i, j, run); });
        });
    }
    // Adds the mean vectors, by weight, of the pairs between groups to z: first the rows of a group, then the
    // columns.
    template <class S, class T>
    void add_groups(const Labels& labels, const Vector& r, const std::vector<std::vector<Index>>& rows,
                    const S* y, const PairLayout& from, T* z, const PairLayout& to) const {
        const Index lanes = from.lanes, size = d_ * lanes, n_groups = static_cast<Index>(rows.size());
        const PairPlaces places(to);
        Buffer sums(padded_ * d_), kept(size), means((n_groups + to.lanes) * d_);
        Vector share(at(m_), 0.0);  // of a node in its group
        for (Index i = 0; i < m_; ++i)
            if (labels[at(i)] >= 0 && r[at(labels[at(i)])] > 0.0) share[at(i)] = r_[i] / r[at(labels[at(i)])];
        for (Index a = 0; a < n_groups; ++a) {
            if (rows[at(a)].empty()) continue;
            // Groups mostly come in the order of their nodes: a row of the target at a time.
            std::fill(means.data() + a / to.lanes * to.lanes * d_, means.data() + means.size(), 0.0);
            const auto spread = [&](Index j, const auto* vector) {
                const Index b = labels[at(j)];
                if (b < 0 || b == a) return;
                if (b > a) {
                    double* const mean = means.data() + b / to.lanes * to.lanes * d_ + b % to.lanes;
                    for (Index k = 0; k < d_; ++k)
                        mean[k * to.lanes] += share[at(j)] * static_cast<double>(vector[k * lanes]);
                } else {
                    T* const pair = z + places(a, b);
                    for (Index k = 0; k < d_; ++k)
                        pair[k * to.lanes] -=
                            static_cast<T>(share[at(j)] * static_cast<double>(vector[k * lanes]));
                }
            };
            if (rows[at(a)].size() == 1) {
                const Index i = rows[at(a)].front();
                for_row(i, y, from, [&](Index first, const PairRun& run) {
                    const Index last = std::min(first + run.size(), m_);
                    for (Index j = std::max(first, i + 1); j < last; ++j)
                        spread(j, static_cast<const S*>(run.y) + (j - first) / lanes * size + j % lanes);
                });
            } else {
                const Index start = (rows[at(a)].front() + 1) / lanes * lanes;
                std::fill(sums.data() + start * d_, sums.data() + padded_ * d_, 0.0);
                for (const Index i : rows[at(a)])
                    for_row(i, y, from, [&](Index j, const PairRun& run) {
                        double* const sum = sums.data() + j * d_;
                        if (j > i) return sweeps().run_add(run, share[at(i)], sum);
                        std::copy_n(sum, size, kept.data());
                        sweeps().run_add(run, share[at(i)], sum);
                        for (Index k = 0; k < d_; ++k)  // lanes that are no pairs
                            std::copy_n(kept.data() + k * lanes, i + 1 - j, sum + k * lanes);
                    });
                for (Index j = rows[at(a)].front() + 1; j < m_; ++j)
                    spread(j, sums.data() + j / lanes * size + j % lanes);
            }
            for_row(a, z, to, [&](Index j, const PairRun& run) {
                T* const pairs = z + (static_cast<const T*>(run.y) - z);  // the run, to be written
                for (Index k = 0; k < run.size() * d_; ++k) pairs[k] += static_cast<T>(means[j * d_ + k]);
            });
        }
    }
    // action(i, j, y, stride) for every pair in the order of the edges; entry k of its vector is y[k stride].
    template <class Action>
    void for_each_pair(const Action& action) const {
        with_state(*this, [&](const auto* y, const PairLayout& layout) {
            for (Index i = 0; i + 1 < m_; ++i)
                for (Index j = i + 1; j < m_; ++j)
                    action(i, j, y + layout.offset(i, j) + j % layout.lanes, layout.lanes);
        });
    }
    // The pairs whose vectors are no longer than `most`.
    template <class Action>
    void for_each_norm(double most, const Action& action) const {
        const double bound = most * most * (1.0 + 4.0 * std::numeric_limits<double>::epsilon());
        Buffer squares(std::max(wide_layout_.tile(), narrow_layout_.tile()) * PairLayout::kStrip);
        for_each_run([&](Index i, Index j, const PairRun& run) {
            if (!(r_[i] > 0.0)) return;  // a pair of weight zero is no edge
            sweeps().run_squares(run, squares.data());
            const Index last = std::min(j + run.size(), m_);
            for (Index l = std::max(j, i + 1); l < last; ++l)
                if (const double squared = squares[l - j]; squared <= bound && r_[l] > 0.0)
                    if (const double n = std::sqrt(squared); n <= most) action(i, l, n);
        });
    }

    std::vector<Labels> climb(Ladder ladder, Index& middle) const {
        for_each_norm(ladder.longest(), [&](Index i, Index j, double n) {
            ladder.add(static_cast<std::int32_t>(i), static_cast<std::int32_t>(j), n);
        });
        return ladder.partitions(middle);
    }

    void make_room() {
        room_size_ = round_up(pair_scratch(wants_narrow_ ? narrow_layout_ : wide_layout_));
        room_ = Buffer(n_workers() * room_size_);
    }

    template <class T>
    void place_blocks(const Vector& rows, double factor, Index lanes, BufferOf<T>& blocks) const {
        for (Index i = 0; i < m_; ++i) {
            T* const own = blocks.data() + (i / lanes) * lanes * d_ + i % lanes;
            for (Index k = 0; k < d_; ++k) own[k * lanes] = static_cast<T>(factor * rows[at(i * d_ + k)]);
        }
    }
    template <class T>
    void place(const Vector& x, double factor, Index lanes, BufferOf<T>& rows, BufferOf<T>& blocks) const {
        place_blocks(x, factor, lanes, blocks);
        for (Index k = 0; k < m_ * d_; ++k) rows[k] = static_cast<T>(factor * x[at(k)]);
    }

    // Sums of rows and of the chunks' columns, in the order of the chunks, times W r_i.
    void gather(Index lanes, const Buffer& rows, const Buffer& blocks, Vector& out) {
        const PairLayout& layout = lanes == kLanes ? wide_layout_ : narrow_layout_;
        const Index width = lanes * d_, stride = padded_ * d_;
        double* const total = sums_.data();
        for (Index block = 0; block * lanes < m_; ++block) {
            const Index first = block * lanes, n = std::min(lanes, m_ - first);
            std::fill_n(total, width, 0.0);
            for (Index i = 0; i < n; ++i)
                for (Index k = 0; k < d_; ++k) total[k * lanes + i] = rows[(first + i) * d_ + k];
            for (std::size_t c = 0; c < chunks_.size(); ++c) {
                if (layout.first_block(chunks_[c].first_strip) > block) break;
                const double* const own = blocks.data() + static_cast<Index>(c) * stride + block * width;
                for (Index k = 0; k < width; ++k) total[k] += own[k];
            }
            for (Index i = 0; i < n; ++i)
                for (Index k = 0; k < d_; ++k)
                    out[at((first + i) * d_ + k)] = weight_ * r_[first + i] * total[k * lanes + i];
        }
    }

    // The same numbers in the other layout, rounded to its type.
    template <class From, class To>
    void copy_state(const From* from, const PairLayout& source, To* to, const PairLayout& target) const {
        for (Index i = 0; i + 1 < m_; ++i)
            for (Index j = i / kLanes * kLanes; j < m_; j += kLanes) {
                const From* const a = from + source.offset(i, j) + j % source.lanes;
                To* const b = to + target.offset(i, j) + j % target.lanes;
                for (Index k = 0; k < d_; ++k)
                    for (Index l = 0; l < kLanes; ++l)
                        b[k * target.lanes + l] = static_cast<To>(a[k * source.lanes + l]);
            }
    }
    void widen() {
        if (y_.size() == 0) y_ = Buffer(wide_layout_.size());
        copy_state(narrow_.data(), narrow_layout_, y_.data(), wide_layout_);
    }

    Index m_, d_;
    double weight_, sigma_ = 0.0, rho_ = 1.0;
    // The state is y_ (float64) or narrow_ (float32); the other one may hold the state that was set aside.
    bool wants_narrow_, is_narrow_ = false, kept_narrow_ = false;
    PairLayout wide_layout_, narrow_layout_;
    BufferOf<float> narrow_;
    Index padded_, room_size_ = 0;
    Buffer r_, x_rows_, x_blocks_, plain_blocks_, phi_blocks_, t_rows_, g_rows_, t_blocks_, g_blocks_, worst_,
        room_, sums_;
    BufferOf<float> r_single_, x_rows_single_, x_blocks_single_;
    std::vector<PairChunk> chunks_;
    Vector copies_;  // nodes of the whole graph in each, where these are groups
    Vector common_null_, factor_, shifted_, node_, total_, scratch_;
    UnionFind sets_;
};

}  // namespace

std::unique_ptr<Coupling> make_complete_coupling(Index n_nodes, Index n_features, double weight,
                                                 const Vector& node_weights, const Vector& common_null,
                                                 bool narrow) {
    return std::make_unique<CompleteCoupling>(n_nodes, n_features, weight, node_weights, common_null, narrow);
}

}  // namespace fusionopt
