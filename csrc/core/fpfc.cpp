#include "core/fpfc.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/pair_rows.hpp"
#include "core/sweep.hpp"
#include "core/thread_pool.hpp"

namespace fusionopt {

namespace {

constexpr std::int32_t kUntouched = -1, kDropped = -2;
// Columns are cut into this many groups whatever the number of threads; a group goes through its columns in
// tiles whose rows of x and of the sums stay in the second-level cache.
constexpr Index kGroups = 8, kTile = 16;

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// Pair vectors and their s, in slabs large enough for huge pages: rows are visited out of order, and small
// pages would cost each of them a walk or two through the page table. Slots come and go under a lock; the
// table of slabs never moves.
template <class T>
class PairStore {
  public:
    PairStore(Index pairs, Index d) : stride_(padded_row(d)) {
        const Index row = stride_ * static_cast<Index>(sizeof(T));
        while (shift_ < 20 && (row << (shift_ + 1)) <= kSlabBytes && (Index{1} << shift_) < pairs) ++shift_;
        slabs_.resize(at((pairs >> shift_) + 1));
        factors_.resize(slabs_.size());
    }

    T* vector(std::int32_t id) const { return slabs_[at(id >> shift_)].data() + (id & mask()) * stride_; }
    double& factor(std::int32_t id) const { return factors_[at(id >> shift_)][at(id & mask())]; }

    std::int32_t take() {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++used_;
        peak_ = std::max(peak_, used_);
        if (!free_.empty()) {
            const std::int32_t id = free_.back();
            free_.pop_back();
            return id;
        }
        if ((made_ & mask()) == 0) {
            slabs_[at(made_ >> shift_)] = BufferOf<T>((mask() + 1) * stride_);
            factors_[at(made_ >> shift_)] = std::make_unique<double[]>(at(mask() + 1));
        }
        return static_cast<std::int32_t>(made_++);
    }
    void give(std::int32_t id) {
        const std::lock_guard<std::mutex> lock(mutex_);
        free_.push_back(id);
        --used_;
    }
    void clear() {
        free_.clear();
        used_ = made_ = 0;
        for (auto& slab : slabs_) slab = BufferOf<T>();
    }
    Index used() const { return used_; }
    Index peak() const { return peak_; }
    // Of the rows that were ever in use; the rest of the last slab is not touched.
    Index bytes() const {
        return made_ * (stride_ * static_cast<Index>(sizeof(T)) + static_cast<Index>(sizeof(double)));
    }

  private:
    static constexpr Index kSlabBytes = Index{16} << 20;

    Index mask() const { return (Index{1} << shift_) - 1; }

    Index stride_;
    int shift_ = 0;
    mutable std::vector<BufferOf<T>> slabs_;  // const says nothing about what they hold
    std::vector<std::unique_ptr<double[]>> factors_;
    std::vector<std::int32_t> free_;
    Index used_ = 0, made_ = 0, peak_ = 0;
    std::mutex mutex_;
};

template <class T>
class Server final : public FpfcServer {
  public:
    Server(FpfcGraph graph, Index d, FpfcOptions options)
        : graph_(std::move(graph)),
          n_(graph_.n_nodes),
          d_(d),
          row_(padded_row(d)),
          options_(options),
          prox_(options.penalty, options.lam, 1.0 / options.rho),
          rows_(pair_rows<T>()),
          pool_(options.n_threads),
          groups_(cut(n_, 1, kGroups)),
          store_(n_pairs(), d) {
        slots_.assign(at(n_pairs()), kUntouched);
        x_ = Buffer(n_ * row_);
        pull_ = Buffer(n_ * row_);
        position_.assign(at(n_), -1);
        if (!graph_.complete) list_neighbours();
        degree_.assign(at(n_), 0.0);
        kappa_.assign(at(n_), 0.0);
        if (graph_.complete) {
            double total = 0.0;
            for (Index i = 0; i < n_; ++i) total += r(i);
            for (Index i = 0; i < n_; ++i) {
                degree_[at(i)] = graph_.weight * r(i) * (total - r(i));
                kappa_[at(i)] = graph_.weight * r(i) * total;
            }
        } else {
            for (std::size_t e = 0; e < graph_.tail.size(); ++e) {
                degree_[at(graph_.tail[e])] += graph_.weights[e];
                degree_[at(graph_.head[e])] += graph_.weights[e];
            }
            for (Index i = 0; i < n_; ++i) kappa_[at(i)] = 2.0 * degree_[at(i)];
        }
        const int workers = pool_.n_workers();
        lists_.resize(at(workers));
    }

    void start(const Vector& x) override {
        spread(x, x_);
        pull_.fill(0.0);
        std::fill(slots_.begin(), slots_.end(), kUntouched);
        store_.clear();
    }

    void set_lam(double lam) override {
        options_.lam = lam;
        prox_ = RadialProx(options_.penalty, lam, 1.0 / options_.rho);
    }

    const Vector& kappa() const override { return kappa_; }
    Vector x() const override { return gathered(x_); }

    void zeta(const std::vector<Index>& active, double* out) const override {
        Vector total;
        if (graph_.complete) {
            total.assign(at(d_), 0.0);
            for (Index i = 0; i < n_; ++i)
                for (Index k = 0; k < d_; ++k) total[at(k)] += r(i) * x_[i * row_ + k];
        }
        for (std::size_t a = 0; a < active.size(); ++a) {
            const Index i = active[a];
            const double *x = x_.data() + i * row_, *pull = pull_.data() + i * row_;
            double* to = out + static_cast<Index>(a) * d_;
            if (kappa_[at(i)] == 0.0) {
                std::copy_n(x, d_, to);
                continue;
            }
            if (graph_.complete) {
                const double w = graph_.weight * r(i);
                for (Index k = 0; k < d_; ++k) to[k] = w * (total[at(k)] - r(i) * x[k]);
            } else {
                std::fill(to, to + d_, 0.0);
                for (Index p = first_[at(i)]; p < first_[at(i) + 1]; ++p) {
                    const double w = graph_.weights[at(edge_[at(p)])];
                    const double* y = x_.data() + neighbour_[at(p)] * row_;
                    for (Index k = 0; k < d_; ++k) to[k] += w * y[k];
                }
            }
            const double excess = kappa_[at(i)] - degree_[at(i)];
            for (Index k = 0; k < d_; ++k) to[k] = (to[k] + excess * x[k] + pull[k]) / kappa_[at(i)];
        }
    }

    void update(const std::vector<Index>& active, const double* fresh) override {
        const Index count = static_cast<Index>(active.size());
        grow(old_, count * row_);
        for (Index a = 0; a < count; ++a) {
            const Index i = active[at(a)];
            position_[at(i)] = a;
            std::copy_n(x_.data() + i * row_, d_, old_.data() + a * row_);
            std::copy_n(fresh + a * d_, d_, x_.data() + i * row_);
            // Every pair of an active node is touched: its sum is taken anew, and rounding does not pile up.
            if (!options_.both_ends) std::fill_n(pull_.data() + i * row_, d_, 0.0);
        }
        grow(partial_, groups_.count * count * row_);
        const Index tile = graph_.complete ? kTile : n_;
        pool_.parallel_for(groups_.count, [&](Index group, int worker) {
            double* sums = partial_.data() + group * count * row_;
            std::fill(sums, sums + count * row_, 0.0);
            for (Index low = groups_.begin(group); low < groups_.end(group); low += tile) {
                const Index high = std::min(low + tile, groups_.end(group));
                // First the list: each pair's vector can then be fetched while the one before is worked on.
                std::vector<Visit>& list = lists_[at(worker)];
                list.clear();
                for (Index a = 0; a < count; ++a) {
                    const Index i = active[at(a)];
                    visit(i, low, high, [&](Index j, Index e) {
                        const bool other = position_[at(j)] >= 0;
                        if (other ? j < i : options_.both_ends) return;
                        list.push_back({e, a, j, slots_[at(e)], other});
                    });
                }
                for (std::size_t p = 0; p < list.size(); ++p) {
                    const T* ahead = nullptr;
                    if (p + 1 < list.size() && list[p + 1].id >= 0) {
                        ahead = store_.vector(list[p + 1].id);
                        __builtin_prefetch(&store_.factor(list[p + 1].id), 1);
                    }
                    const Visit& pair = list[p];
                    touch(pair, active[at(pair.a)], sums + pair.a * row_, pull_.data() + pair.j * row_,
                          ahead);
                }
            }
        });
        for (Index group = 0; group < groups_.count; ++group)
            for (Index a = 0; a < count; ++a) {
                const double* sums = partial_.data() + (group * count + a) * row_;
                double* pull = pull_.data() + active[at(a)] * row_;
                for (Index k = 0; k < d_; ++k) pull[k] += sums[k];
            }
        for (const Index i : active) position_[at(i)] = -1;
    }

    FpfcReport report() const override {
        FpfcReport out;
        out.sums.assign(at(n_ * d_), 0.0);
        const RadialProx unit(options_.penalty, options_.lam, 1.0);
        const double lam = options_.lam, rho = options_.rho, shrink = 1.0 - ball_shrink(d_);
        Vector u(at(d_));
        every_pair([&](Index e, Index a, Index b, double w) {
            const double *xa = x_.data() + a * row_, *xb = x_.data() + b * row_;
            const double square = rows_.square(xa, xb, nullptr, 0.0, row_, nullptr);
            const double length = std::sqrt(square);
            out.penalty += w * options_.penalty.value(length, lam);
            out.magnitude += w * lam * length;
            const std::int32_t id = slots_[at(e)];
            if (id == kDropped) return;
            if (id == kUntouched) {
                out.residual = std::max(out.residual, length);
                out.squares += w * w * square;
                return;
            }
            const T* vector = store_.vector(id);
            const double s = store_.factor(id);
            double size = 0.0, off = 0.0;
            for (Index k = 0; k < d_; ++k) {
                u[at(k)] = xa[k] - xb[k];
                const double value = static_cast<double>(vector[k]), r = u[at(k)] - s * value;
                size += value * value;
                off += r * r;
            }
            size = std::sqrt(size);
            out.residual = std::max(out.residual, std::sqrt(off));
            out.squares += w * w * off;
            const double both = (s + rho * (1.0 - s)) * size, map = s * size - unit(both);
            out.prox_squares += 2.0 * map * map;
            const double factor = w * dual_factor(s, size, shrink);
            double* ga = out.sums.data() + a * d_;
            double* gb = out.sums.data() + b * d_;
            double product = 0.0;
            for (Index k = 0; k < d_; ++k) {
                const double v = factor * static_cast<double>(vector[k]);
                ga[k] += v;
                gb[k] -= v;
                product += v * u[at(k)];
            }
            out.product += product;
        });
        return out;
    }

    FpfcCounts counts() const override {
        FpfcCounts out;
        out.kept = store_.used();
        for (const std::int32_t id : slots_) {
            out.dropped += id == kDropped;
            out.untouched += id == kUntouched;
        }
        out.peak = store_.peak();
        out.bytes = store_.bytes();
        return out;
    }

    void duals(double* out) const override {
        const double shrink = 1.0 - ball_shrink(d_);
        every_pair([&](Index e, Index, Index, double w) {
            double* to = out + e * d_;
            const std::int32_t id = slots_[at(e)];
            std::fill(to, to + d_, 0.0);
            if (id < 0) return;
            const T* vector = store_.vector(id);
            double size = 0.0;
            for (Index k = 0; k < d_; ++k)
                size += static_cast<double>(vector[k]) * static_cast<double>(vector[k]);
            const double factor = w * dual_factor(store_.factor(id), std::sqrt(size), shrink);
            for (Index k = 0; k < d_; ++k) to[k] = factor * static_cast<double>(vector[k]);
        });
    }

    void thetas(double* out) const override {
        every_pair([&](Index e, Index a, Index b, double) {
            double* to = out + e * d_;
            const std::int32_t id = slots_[at(e)];
            for (Index k = 0; k < d_; ++k) {
                if (id == kUntouched) to[k] = 0.0;
                if (id == kDropped) to[k] = x_[a * row_ + k] - x_[b * row_ + k];
                if (id >= 0) to[k] = store_.factor(id) * static_cast<double>(store_.vector(id)[k]);
            }
        });
    }

    void labels(double nu, std::vector<std::int32_t>& out) const override {
        UnionFind sets(n_);
        every_pair([&](Index e, Index a, Index b, double) {
            const std::int32_t id = slots_[at(e)];
            if (id == kUntouched) return;
            double size = 0.0;
            if (id == kDropped) {
                const double *xa = x_.data() + a * row_, *xb = x_.data() + b * row_;
                size = std::sqrt(rows_.square(xa, xb, nullptr, 0.0, row_, nullptr));
            } else {
                const T* vector = store_.vector(id);
                for (Index k = 0; k < d_; ++k)
                    size += static_cast<double>(vector[k]) * static_cast<double>(vector[k]);
                size = store_.factor(id) * std::sqrt(size);
            }
            if (size <= nu) sets.join(static_cast<std::int32_t>(a), static_cast<std::int32_t>(b));
        });
        sets.labels(out);
    }

    FpfcSnapshot snapshot() const override {
        FpfcSnapshot out{gathered(x_), gathered(pull_), {}, {}, slots_};
        for (std::int32_t& slot : out.slots) {
            if (slot < 0) continue;
            out.vectors.insert(out.vectors.end(), store_.vector(slot), store_.vector(slot) + d_);
            out.factors.push_back(store_.factor(slot));
            slot = static_cast<std::int32_t>(out.factors.size()) - 1;
        }
        return out;
    }

    void restore(const FpfcSnapshot& state) override {
        spread(state.x, x_);
        spread(state.pull, pull_);
        slots_ = state.slots;
        store_.clear();
        for (std::int32_t& slot : slots_) {
            if (slot < 0) continue;
            const Index row = slot;
            slot = store_.take();
            for (Index k = 0; k < d_; ++k)
                store_.vector(slot)[k] = static_cast<T>(state.vectors[at(row * d_ + k)]);
            store_.factor(slot) = state.factors[at(row)];
        }
    }

  private:
    struct Visit {
        Index e, a, j;
        std::int32_t id;
        bool other;  // j is active too
    };

    Index n_pairs() const {
        return graph_.complete ? n_ * (n_ - 1) / 2 : static_cast<Index>(graph_.tail.size());
    }
    void spread(const Vector& from, Buffer& to) const {
        for (Index i = 0; i < n_; ++i) std::copy_n(from.data() + i * d_, d_, to.data() + i * row_);
    }
    Vector gathered(const Buffer& from) const {
        Vector out(at(n_ * d_));
        for (Index i = 0; i < n_; ++i) std::copy_n(from.data() + i * row_, d_, out.data() + i * d_);
        return out;
    }
    static void grow(Buffer& rows, Index size) {
        if (rows.size() < size) rows = Buffer(size);
    }
    double r(Index i) const { return graph_.node_weights.empty() ? 1.0 : graph_.node_weights[at(i)]; }

    // v = factor delta per unit weight; strictly inside the ball where the penalty is lam ||.||.
    double dual_factor(double s, double size, double shrink) const {
        const double factor = options_.rho * (1.0 - s);
        if (options_.penalty.kind != PenaltyKind::kL2Norm) return factor;
        const double limit = options_.lam * shrink;
        return factor * size > limit ? limit / size : factor;
    }

    void list_neighbours() {
        first_.assign(at(n_ + 1), 0);
        for (std::size_t e = 0; e < graph_.tail.size(); ++e) {
            ++first_[at(graph_.tail[e] + 1)];
            ++first_[at(graph_.head[e] + 1)];
        }
        for (Index i = 0; i < n_; ++i) first_[at(i + 1)] += first_[at(i)];
        std::vector<Index> next(first_.begin(), first_.end() - 1);
        neighbour_.resize(2 * graph_.tail.size());
        edge_.resize(2 * graph_.tail.size());
        // Sorted edges fill every list in increasing order of the neighbour: first as heads, then as tails.
        for (int pass = 0; pass < 2; ++pass)
            for (std::size_t e = 0; e < graph_.tail.size(); ++e) {
                const Index i = pass == 0 ? graph_.head[e] : graph_.tail[e];
                const Index j = pass == 0 ? graph_.tail[e] : graph_.head[e];
                const Index p = next[at(i)]++;
                neighbour_[at(p)] = static_cast<std::int32_t>(j);
                edge_[at(p)] = static_cast<std::int32_t>(e);
            }
    }

    // fn(j, e) for the pairs of i with low <= j < high.
    template <class Function>
    void visit(Index i, Index low, Index high, Function&& fn) {
        if (graph_.complete) {
            for (Index j = low; j < high; ++j) {
                if (j == i) continue;
                const Index a = std::min(i, j), b = std::max(i, j);
                fn(j, a * (2 * n_ - a - 1) / 2 + b - a - 1);
            }
            return;
        }
        const auto begin = neighbour_.begin() + first_[at(i)], end = neighbour_.begin() + first_[at(i) + 1];
        for (auto p = std::lower_bound(begin, end, low); p != end && *p < high; ++p)
            fn(*p, edge_[at(p - neighbour_.begin())]);
    }

    template <class Function>
    void every_pair(Function&& fn) const {
        Index e = 0;
        if (!graph_.complete) {
            for (; e < n_pairs(); ++e) fn(e, graph_.tail[at(e)], graph_.head[at(e)], graph_.weights[at(e)]);
            return;
        }
        for (Index a = 0; a < n_; ++a)
            for (Index b = a + 1; b < n_; ++b, ++e) fn(e, a, b, graph_.weight * r(a) * r(b));
    }

    void touch(const Visit& pair, Index i, double* at_i, double* at_j, const T* ahead) {
        const Index e = pair.e, j = pair.j;
        const std::int32_t id = pair.id;
        const bool first = i < j, other = pair.other, kept = id >= 0;
        PairMove<T> move{};
        move.xa = x_.data() + (first ? i : j) * row_;
        move.xb = x_.data() + (first ? j : i) * row_;
        move.at_active = at_i;
        move.at_other = at_j;
        move.own = options_.both_ends;
        move.n = row_;
        move.ahead = ahead;
        const double weight = graph_.complete ? graph_.weight * r(i) * r(j) : graph_.weights[at(e)];
        const double w = first ? weight : -weight;
        const double s = kept ? store_.factor(id) : 1.0;
        double before = w * (2.0 * s - 1.0);
        move.was_a = move.xa;
        move.was_b = move.xb;
        if (kept) {
            move.slot = store_.vector(id);
            move.keep = 1.0 - s;
        } else if (id == kDropped && !other) {
            (first ? move.was_a : move.was_b) = old_.data() + pair.a * row_;
        } else {
            before = 0.0;
        }
        // An active node's sum starts from nothing, so what the pair gave before is not taken off there.
        move.less = options_.both_ends || !other ? before : 0.0;
        const double length = std::sqrt(rows_.square(move.xa, move.xb, move.slot, move.keep, row_, ahead));
        const double tau = prox_(length);
        const bool alone = length > 0.0 && tau >= length;
        if (alone && s == 1.0 && !options_.both_ends) {
            move.now = w;
            (kept ? rows_.release : rows_.pass)(move);
            if (kept) store_.give(id);
            slots_[at(e)] = kDropped;
            return;
        }
        const double share = alone ? 1.0 : length > 0.0 ? tau / length : 0.0;
        move.now = w * (2.0 * share - 1.0);
        if (kept) {
            rows_.renew(move);
            store_.factor(id) = share;
            return;
        }
        const std::int32_t made = store_.take();
        move.slot = store_.vector(made);
        rows_.create(move);
        store_.factor(made) = share;
        slots_[at(e)] = made;
    }

    FpfcGraph graph_;
    Index n_, d_, row_;  // row_: numbers from one node's row to the next
    FpfcOptions options_;
    RadialProx prox_;
    const PairRows<T>& rows_;
    ThreadPool pool_;
    Chunks groups_;
    PairStore<T> store_;
    std::vector<std::int32_t> slots_, neighbour_, edge_;
    std::vector<std::vector<Visit>> lists_;
    std::vector<Index> position_, first_;
    Buffer x_, pull_, old_, partial_;
    Vector degree_, kappa_;
};

}  // namespace

std::unique_ptr<FpfcServer> make_fpfc_server(FpfcGraph graph, Index n_features, FpfcOptions options,
                                             bool single) {
    if (single) return std::make_unique<Server<float>>(std::move(graph), n_features, options);
    return std::make_unique<Server<double>>(std::move(graph), n_features, options);
}

}  // namespace fusionopt
