// An edge list: per-edge rho, x-step by preconditioned conjugate gradients on the neighbour lists.
#include <algorithm>
#include <cmath>

#include "core/coupling.hpp"
#include "core/ladder.hpp"
#include "core/parting.hpp"
#include "core/single_cg.hpp"
#include "core/sparse_cholesky.hpp"

namespace fusionopt {

namespace {

// The x-step need not be exact (engine design 2.1): the certificate never depends on it.
constexpr double kInnerTolerance = 0.1;
constexpr Index kMaxInner = 200;
constexpr double kSinglePass = 0.5;  // time of a pass in single precision, in units of one in double
constexpr Index kMaxBalance = 2000;
// A direct factor pays once conjugate gradients have made as many passes as ordering the nodes and the factor
// itself cost, and a solve needs more of them than two passes over the factor are worth. Costs are in
// multiplications.
constexpr double kOrdering = 15.0;        // passes over all edges that finding the ordering is worth
constexpr double kFactorSpeed = 6.0;      // multiplications of a factorisation in the time of one of a pass
constexpr double kSolveSpeed = 2.5;       // the same for the two passes over the factor in a solve
constexpr double kLargestFactor = 600.0;  // passes that a factorisation may cost
constexpr Index kPatience = 60;           // passes of a balancing before a factor is asked for

// Numbers of the state below which threads are not worth waking, and numbers of a chunk.
constexpr Index kThreadedNumbers = 100000;
constexpr Index kChunkNumbers = 20000;
constexpr Index kMaxChunks = 64;
constexpr double kSame = 1e-12;     // length of an edge, in units of the largest coordinate, that is rounding
constexpr double kShortest = 0.03;  // the median edge counts as at least so much of the mean one
constexpr double kFirstMove = 0.25;   // of a dual, in units of lam, that the median edge asks for at first
constexpr double kFirstSigma = 20.0;  // of the second stage, in units of the median rho
constexpr double kPartingSigma = 1000.0;  // of a parting, in units of the stiffness
constexpr Index kRun = 8;                 // chunks whose parts are kept at once

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

class EdgeCoupling final : public Coupling {
  public:
    EdgeCoupling(Index m, Index d, std::vector<std::int32_t> tail, std::vector<std::int32_t> head,
                 const Vector& weights)
        : m_(m),
          d_(d),
          n_edges_(static_cast<Index>(tail.size())),
          tail_(std::move(tail)),
          head_(std::move(head)),
          weight_(round_up(n_edges_)),
          rho_(round_up(n_edges_)),
          stretch_(round_up(n_edges_)),
          row_(row_size()),
          edge_chunks_(cut(n_edges_, kChunkNumbers / d, kMaxChunks, kLanes)),
          node_chunks_(cut(m, kChunkNumbers / d, kMaxChunks)),
          penalties_(at(edge_chunks_.count)),
          largests_(at(edge_chunks_.count)),
          partial_(at(node_chunks_.count)),
          start_(at(m + 1), 0),
          degree_(at(m), 0.0),
          scratch_(at(d)),
          sets_(m) {
        y_ = Buffer(round_up(n_edges_) * d);
        tail_.resize(at(round_up(n_edges_)), 0);
        head_.resize(at(round_up(n_edges_) + kAhead), 0);
        rho_.fill(1.0);
        stretch_.fill(1.0);
        for (Index e = 0; e < n_edges_; ++e) {
            weight_[e] = weights[at(e)];
            ++start_[at(tail_[at(e)] + 1)];
            ++start_[at(head_[at(e)] + 1)];
        }
        for (Index i = 0; i < m; ++i) start_[at(i + 1)] += start_[at(i)];
        neighbour_.resize(at(2 * n_edges_ + kAhead));
        edge_of_.resize(at(2 * n_edges_));
        value_.resize(at(2 * n_edges_));
        std::vector<Index> next(start_.begin(), start_.end() - 1);
        for (Index e = 0; e < n_edges_; ++e) {
            const std::int32_t ends[2] = {tail_[at(e)], head_[at(e)]};
            for (int side = 0; side < 2; ++side) {
                const Index place = next[at(ends[side])]++;
                neighbour_[at(place)] = ends[1 - side];
                edge_of_[at(place)] = static_cast<std::int32_t>(e);
            }
        }
        work_.resize(at(m * d));
    }

    void use(ThreadPool* pool) override {
        Coupling::use(n_edges_ * d_ < kThreadedNumbers ? nullptr : pool);
        row_ = Buffer(n_workers() * row_size());
        scratch_.assign(at(n_workers() * d_), 0.0);
        if (n_workers() == 1) {
            t_parts_ = Buffer();
            g_parts_ = Buffer();
            return;
        }
        // Here each edge leaves what it gives to its ends, and the ends gather it; a run of chunks at a time.
        Index most = 0;
        for (Index c = 0; c < edge_chunks_.count; c += kRun)
            most = std::max(most, run_end(c) - edge_chunks_.begin(c));
        t_parts_ = Buffer(round_up(most) * d_);
        g_parts_ = Buffer(round_up(most) * d_);
        gathered_.resize(at(m_));
    }

    Sums sweep(const SweepRequest& request, const Vector& x, Vector& s, Vector* g) override {
        EdgeSweep a;
        a.n_features = d_;
        a.y = y_.data();
        a.x = x.data();
        a.tail = tail_.data();
        a.head = head_.data();
        a.weight = weight_.data();
        a.rho = rho_.data();
        a.stretch = restretch_ ? stretch_.data() : nullptr;
        a.phi = request.phi != nullptr ? request.phi->data() : nullptr;
        a.want_dual = g != nullptr;
        const bool parts = t_parts_.size() > 0;
        if (parts) {
            a.t_parts = t_parts_.data();
            a.g_parts = g_parts_.data();
        } else {
            std::fill(s.begin(), s.end(), 0.0);
            a.t = s.data();
            if (g != nullptr) {
                std::fill(g->begin(), g->end(), 0.0);
                a.g = g->data();
            }
        }
        if (request.kind == SweepKind::kManifold) {
            if (norms_.size() == 0) norms_ = Buffer(round_up(n_edges_));
            a.norms = norms_.data();
        }
        a.lam_old = request.lam_old;
        a.scale = request.scale;
        a.commit = request.commit;
        if (request.step.stretch != 1.0) {  // a change of the global rho
            for (Index e = 0; e < n_edges_; ++e)
                stretch_[e] = (restretch_ ? stretch_[e] : 1.0) * request.step.stretch;
            a.stretch = stretch_.data();
        }
        const Index run = parts ? kRun : edge_chunks_.count;
        for (Index first = 0; first < edge_chunks_.count; first += run) {
            a.parts_first = edge_chunks_.begin(first);
            for_chunks(std::min(run, edge_chunks_.count - first), [&](Index k, int worker) {
                EdgeSweep own = a;
                const Index c = first + k;
                own.first = edge_chunks_.begin(c);
                own.last = edge_chunks_.end(c);
                own.row = row_.data() + worker * row_size();
                sweeps().edges(own, request.step, request.kind);
                penalties_[at(c)] = own.penalty;
                largests_[at(c)] = own.largest;
            });
            if (parts) gather(a.parts_first, run_end(first), s, g);
        }
        Sums out;
        CompensatedSum total;
        for (Index c = 0; c < edge_chunks_.count; ++c) {
            total.add(penalties_[at(c)]);
            out.largest = std::fmax(out.largest, largests_[at(c)]);
        }
        out.penalty = total.value();
        if (request.worst != nullptr) {
            std::fill(request.worst->begin(), request.worst->end(), 0.0);
            for (Index e = 0; e < n_edges_; ++e)
                for (const std::int32_t end : {tail_[at(e)], head_[at(e)]})
                    (*request.worst)[at(end)] = std::fmax((*request.worst)[at(end)], norms_[e]);
        }
        if (request.kind == SweepKind::kRelax) restretch_ = false;
        // A path that goes on from a saved state has no factor yet: neither may the unbroken one.
        if (request.kind == SweepKind::kMove) {
            pinned_.clear();
            sigma_ = 0.0;
        }
        return out;
    }

    void pass_state(StateStream& stream) override {
        Coupling::pass_state(stream);
        stream.pass(rho_);
        stream.pass(stretch_);
        stream.pass(restretch_);
        stream.pass(passes_);
        stream.pass(recent_);
        stream.pass(refused_);
        // What was ordered for a factor decides later choices; the factor itself is made anew.
        Index block = block_;
        stream.pass(block);
        if (block > 0) prepare(block);
    }

    // Curvature over weight, or, where lam is so large that duals would take many sweeps to get anywhere,
    // what moves them by a good part of lam over the length of an edge.
    double start_rho(const QuadraticLoss& loss, double lam, const Vector& x) const override {
        double extent = 0.0, mean = 0.0;
        for (const double coordinate : x) extent = std::fmax(extent, std::fabs(coordinate));
        Vector lengths;
        lengths.reserve(at(n_edges_));
        for (Index e = 0; e < n_edges_; ++e) {
            double squared = 0.0;
            for (Index k = 0; k < d_; ++k) {
                const double u = x[at(tail_[at(e)] * d_ + k)] - x[at(head_[at(e)] * d_ + k)];
                squared += u * u;
            }
            // Minimisers that are equal but for rounding tell no length.
            if (squared > kSame * kSame * extent * extent) lengths.push_back(std::sqrt(squared));
        }
        if (lengths.empty()) return stiffness(loss);
        for (const double length : lengths) mean += length / static_cast<double>(lengths.size());
        const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
        std::nth_element(lengths.begin(), middle, lengths.end());
        return std::fmax(stiffness(loss), kFirstMove * lam / std::fmax(*middle, kShortest * mean));
    }

    void set_rho(const QuadraticLoss&, double rho) override {
        fill_matrix([&](Index e) { return rho * rho_[e] * weight_[e]; });
    }

    double solve_x(const QuadraticLoss& loss, const Vector& b, Vector& x) override {
        const Index block = loss.dense ? d_ : 1;
        const double pass = pass_cost(block);
        // A singular loss may leave a component without any curvature: there the factor is no inverse.
        if (!loss.singular && passes_ > kOrdering * static_cast<double>(block) && prepare(block) &&
            passes_ * pass > direct_.cost() / kFactorSpeed &&
            recent_ * pass > 2.0 * direct_.entries() * static_cast<double>(d_ / block) / kSolveSpeed) {
            if (!direct_.ready() || !fresh_) {
                factor(loss, block);
                fresh_ = true;
            }
            x = b;
            direct_.solve(x.data(), d_ / block);
            return 1.0 + std::floor(2.0 * direct_.entries() * static_cast<double>(d_ / block) /
                                    (kSolveSpeed * pass));
        }
        const auto apply = [&](const Vector& v, Vector& av) {
            for_nodes([&](Index first, Index last, int) {
                for (Index i = first; i < last; ++i)
                    loss.apply_node(i, v.data() + i * d_, av.data() + i * d_);
                add_laplacian(v, av, first, last);
            });
        };
        if (!loss.dense && take_single(loss)) {
            apply(x, work_.ap);
            Pieces{*this}.each(x.size(), [&](std::size_t first, std::size_t last) {
                for (std::size_t k = first; k < last; ++k) work_.r[k] = b[k] - work_.ap[k];
            });
            const Index made =
                single_.solve({start_, neighbour_}, work_.r, x, d_, kInnerTolerance, kMaxInner, Nodes{*this});
            told(kSinglePass * static_cast<double>(made));
            return static_cast<double>(made);
        }
        const auto precondition = [&](const Vector& r, Vector& z) {
            for_nodes([&](Index first, Index last, int worker) {
                for (Index i = first; i < last; ++i)
                    loss.solve_node(i, degree_[at(i)], r.data() + i * d_, z.data() + i * d_,
                                    scratch_.data() + worker * d_);
            });
        };
        return told(static_cast<double>(
            pcg(apply, precondition, b, x, kInnerTolerance, kMaxInner, work_, 0.0, Pieces{*this})));
    }

    // rho_e ~ lam / ||theta_e|| around its geometric mean: an edge of length theta wants a penalty that moves
    // its dual by lam over that length. Fused edges want the stiffest. The state is re-scaled in the next
    // sweep.
    bool spread_rho(const StepParameters& step, double clip, double share) override {
        double logs = 0.0;
        Index open = 0;
        for_each_norm([&](Index e, double n) {
            if (n > step.lam) {
                logs += std::log(step.lam * step.rho * rho_[e] / (n - step.lam));
                ++open;
            }
        });
        if (open == 0) return false;
        const double centre = logs / static_cast<double>(open);
        for_each_norm([&](Index e, double n) {
            double wanted = clip;
            if (n > step.lam)
                wanted = std::exp(std::log(step.lam * step.rho * rho_[e] / (n - step.lam)) - centre);
            wanted = std::clamp(wanted, 1.0 / clip, clip);
            if (share < 1.0) wanted = rho_[e] * std::pow(wanted / rho_[e], share);
            stretch_[e] = wanted / rho_[e];
            rho_[e] = wanted;
        });
        restretch_ = true;
        return true;
    }

    NewtonReport newton(const QuadraticLoss& loss, const StepParameters& step, double target, double budget,
                        Vector& x) override {
        // A singular loss may leave a component without any curvature.
        if (loss.singular || n_edges_ == 0 || !prepare_newton(budget / kNewtonSteps)) return {};
        Vector t(at(n_edges_ * d_));
        std::vector<double> spread(rho_.data(), rho_.data() + n_edges_);
        for (Index e = 0; e < n_edges_; ++e)
            for (Index k = 0; k < d_; ++k) t[at(e * d_ + k)] = block(e)[k * kLanes];
        std::nth_element(spread.begin(), spread.begin() + n_edges_ / 2, spread.end());
        sigma_ = std::fmax(sigma_, kFirstSigma * step.rho * spread[at(n_edges_ / 2)]);
        EdgeNewton problem{loss};
        problem.lam = step.lam;
        problem.tail = tail_.data();
        problem.head = head_.data();
        problem.weight = weight_.data();
        problem.n_edges = n_edges_;
        problem.target = target;
        // The bound is worst case: a thousandth of it can still be reached.
        problem.rounding = 1e-3 * std::numeric_limits<double>::epsilon() * chain();
        problem.budget = budget;
        const NewtonReport report = edge_newton(problem, newton_, x, t, sigma_);
        // Outside the ball the state is the dual plus rho_e (x_i - x_j), and t the dual plus sigma times it.
        for (Index e = 0; e < n_edges_; ++e) {
            const double* const own = t.data() + e * d_;
            double squared = 0.0;
            for (Index k = 0; k < d_; ++k) squared += own[k] * own[k];
            const double n = std::sqrt(squared);
            const double factor =
                n > step.lam ? (step.lam + step.rho * rho_[e] / sigma_ * (n - step.lam)) / n : 1.0;
            for (Index k = 0; k < d_; ++k) block(e)[k * kLanes] = factor * own[k];
        }
        restretch_ = false;
        return report;
    }

    double part_clusters(const QuadraticLoss& loss, const StepParameters& step, const std::vector<char>& open,
                         double budget, Labels& labels, Index& n_clusters, Vector& x) override {
        // A singular loss may leave a cluster without any curvature.
        if (loss.singular) return 0.0;
        const Labels whole = labels;
        Parting parting(loss, {tail_.data(), head_.data(), weight_.data(), n_edges_}, step.lam, whole,
                        n_clusters, open, x);
        const std::vector<Index>& inside = parting.inside();
        Vector t(inside.size() * at(d_));
        for (std::size_t k = 0; k < inside.size(); ++k)
            for (Index a = 0; a < d_; ++a) t[k * at(d_) + at(a)] = block(inside[k])[a * kLanes];
        const double work = parting.solve(kPartingSigma * stiffness(loss), budget, t);
        for (std::size_t k = 0; k < inside.size(); ++k)
            for (Index a = 0; a < d_; ++a) block(inside[k])[a * kLanes] = t[k * at(d_) + at(a)];
        n_clusters = parting.pieces(labels, x);
        return work;
    }

    double primal_residual(const StepParameters& step, const Vector& x, double* absolute) const override {
        double gap = 0.0, apart = 0.0, split = 0.0;
        for_each_norm([&](Index e, double n) {
            const double keep = n > step.lam ? (1.0 - step.lam / n) / (step.rho * rho_[e]) : 0.0;
            const double* y = block(e);
            for (Index k = 0; k < d_; ++k) {
                const double u = x[at(tail_[at(e)] * d_ + k)] - x[at(head_[at(e)] * d_ + k)],
                             theta = keep * y[k * kLanes];
                gap += (u - theta) * (u - theta);
                apart += u * u;
                split += theta * theta;
            }
        });
        if (absolute != nullptr) *absolute = std::sqrt(gap);
        const double scale = std::fmax(apart, split);
        return scale > 0.0 ? std::sqrt(gap / scale) : 0.0;
    }

    double penalty(const Vector& x) const override {
        CompensatedSum total;
        for (Index e = 0; e < n_edges_; ++e) {
            const double* xi = x.data() + tail_[at(e)] * d_;
            const double* xj = x.data() + head_[at(e)] * d_;
            double squared = 0.0;
            for (Index k = 0; k < d_; ++k) squared += (xi[k] - xj[k]) * (xi[k] - xj[k]);
            total.add(weight_[e] * std::sqrt(squared));
        }
        return total.value();
    }

    void laplacian(const Vector& phi, Vector& out) override {
        std::fill(out.begin(), out.end(), 0.0);
        for (Index e = 0; e < n_edges_; ++e) {
            const Index i = tail_[at(e)] * d_, j = head_[at(e)] * d_;
            for (Index k = 0; k < d_; ++k) {
                const double f = weight_[e] * (phi[at(i + k)] - phi[at(j + k)]);
                out[at(i + k)] += f;
                out[at(j + k)] -= f;
            }
        }
    }

    Index balance(const Labels& labels, Index n_clusters, const Vector& e, double tol, double noise,
                  Vector& phi) override {
        fill_matrix([&](Index edge) {
            return labels[at(tail_[at(edge)])] == labels[at(head_[at(edge)])] ? weight_[edge] : 0.0;
        });
        const auto apply = [&](const Vector& v, Vector& av) {
            for_nodes([&](Index first, Index last, int) {
                std::fill(av.begin() + first * d_, av.begin() + last * d_, 0.0);
                add_laplacian(v, av, first, last);
            });
        };
        const auto precondition = [&](const Vector& r, Vector& z) {
            for_nodes([&](Index first, Index last, int) {
                for (Index i = first; i < last; ++i) {
                    const double scale = degree_[at(i)] > 0.0 ? 1.0 / degree_[at(i)] : 0.0;
                    for (Index k = 0; k < d_; ++k) z[at(i * d_ + k)] = scale * r[at(i * d_ + k)];
                }
            });
        };
        std::fill(phi.begin(), phi.end(), 0.0);
        double floor = 0.0;
        for (const double degree : degree_)
            if (degree > 0.0) floor += static_cast<double>(d_) * noise * noise / degree;
        const bool known = block_ == 1 && direct_.entries() > 0.0;
        const Index patience = known ? 1 : kPatience;
        const bool pinned = labels == pinned_;
        Index passes = 0;
        if (!pinned) passes = pcg(apply, precondition, e, phi, tol, patience, work_, floor, Pieces{*this});
        if (pinned || (passes >= patience && prepare(1))) {
            // The inside edges alone, one node of each cluster held: exact for sums that vanish.
            if (!pinned) pin(labels, n_clusters);
            const auto exact = [&](const Vector& r, Vector& z) {
                z = r;
                direct_.solve(z.data(), d_);
            };
            std::fill(phi.begin(), phi.end(), 0.0);
            return passes + 8 +
                   pcg(apply, exact, e, phi, std::fmax(tol, 1e-12), 4, work_, floor, Pieces{*this});
        }
        passes += pcg(apply, precondition, e, phi, tol, kMaxBalance, work_, floor, Pieces{*this});
        // A second solve refines the first one's rounding where all digits are wanted.
        if (tol < 1e-8)
            passes += pcg(apply, precondition, e, phi, 1e-5, kMaxBalance, work_, floor, Pieces{*this});
        return passes;
    }

    std::vector<Labels> partitions(double lam, Index& middle) const override {
        Ladder ladder(m_, lam);
        for_each_norm([&](Index e, double n) { ladder.add(tail_[at(e)], head_[at(e)], n); });
        return ladder.partitions(middle);
    }

    Index fused_labels(double lam, Labels& labels) override {
        sets_.reset();
        for_each_norm([&](Index e, double n) {
            if (n <= lam) sets_.join(tail_[at(e)], head_[at(e)]);
        });
        return sets_.labels(labels);
    }

    ReducedProblem reduce(const QuadraticLoss& loss, double lam, const Labels& labels,
                          Index n_clusters) const override {
        ReducedProblem out;
        out.sum_loss(loss, labels, n_clusters);
        out.lam = lam;
        join_edges({tail_.begin(), tail_.begin() + n_edges_}, {head_.begin(), head_.begin() + n_edges_},
                   Vector(weight_.data(), weight_.data() + n_edges_), labels, out);
        return out;
    }

    std::unique_ptr<Coupling> part(const Labels& labels, Index n_groups, bool /*exact*/) const override {
        ReducedProblem joined;
        join_edges({tail_.begin(), tail_.begin() + n_edges_}, {head_.begin(), head_.begin() + n_edges_},
                   Vector(weight_.data(), weight_.data() + n_edges_), labels, joined);
        return make_edge_coupling(n_groups, d_, std::move(joined.tail), std::move(joined.head),
                                  joined.edge_weight);
    }

    void put_part(const Coupling& source, const Labels& labels) override {
        const auto& other = static_cast<const EdgeCoupling&>(source);
        for (Index e = 0; e < n_edges_; ++e) {
            const std::int32_t a = labels[at(tail_[at(e)])], b = labels[at(head_[at(e)])];
            if (a == b) continue;
            const double sign = a < b ? 1.0 : -1.0;
            const double* const from = other.block(other.edge_between(std::min(a, b), std::max(a, b)));
            for (Index k = 0; k < d_; ++k) block(e)[k * kLanes] = sign * from[k * kLanes];
        }
    }

    void grow(double factor, double lam) override {
        for_each_norm([&](Index e, double n) {
            const double own = factor * n > lam ? lam / n : factor;
            for (Index k = 0; k < d_; ++k) block(e)[k * kLanes] *= own;
        });
    }

    void duals(double lam, double* out) const override {
        const double radius = lam * (1.0 - ball_shrink(d_));
        for_each_norm([&](Index e, double n) {
            const double factor = weight_[e] * (n > radius ? radius / n : 1.0);
            for (Index k = 0; k < d_; ++k) *out++ = factor * block(e)[k * kLanes];
        });
    }

    Index n_edges() const override { return n_edges_; }
    // The penalty is summed with compensation, so the longest chain is that of one node's edges.
    double chain() const override {
        Index longest = 0;
        for (Index i = 0; i < m_; ++i) longest = std::max(longest, start_[at(i + 1)] - start_[at(i)]);
        return static_cast<double>(longest) + 2.0 * static_cast<double>(d_) + 64.0;
    }
    bool complete() const override { return false; }

  private:
    // The edge of two neighbours; the neighbours of a node are in ascending order.
    Index edge_between(std::int32_t low, std::int32_t high) const {
        const auto first = neighbour_.begin() + start_[at(low)],
                   last = neighbour_.begin() + start_[at(low + 1)];
        return edge_of_[at(std::lower_bound(first, last, high) - neighbour_.begin())];
    }
    // Mean curvature over mean weight.
    double stiffness(const QuadraticLoss& loss) const {
        double total = 0.0;
        for (Index e = 0; e < n_edges_; ++e) total += weight_[e];
        return loss.mean_eigenvalue() * static_cast<double>(n_edges_) / total;
    }
    double* block(Index e) { return y_.data() + (e / kLanes) * d_ * kLanes + e % kLanes; }
    const double* block(Index e) const { return y_.data() + (e / kLanes) * d_ * kLanes + e % kLanes; }
    template <class Action>
    void for_each_norm(const Action& action) const {
        for (Index e = 0; e < n_edges_; ++e) {
            double squared = 0.0;
            for (Index k = 0; k < d_; ++k) squared += block(e)[k * kLanes] * block(e)[k * kLanes];
            action(e, std::sqrt(squared));
        }
    }
    // Multiplications of a pass over all edges, per right hand side of a factor with this block.
    double pass_cost(Index block) const {
        return 2.0 * static_cast<double>(n_edges_ + m_) * static_cast<double>(d_ / block);
    }
    // Passes over all edges that conjugate gradients made.
    double told(double passes) {
        passes_ += passes;
        recent_ += 0.2 * (passes - recent_);
        return passes;
    }
    // Whether single precision serves the matrix of the last fill_matrix().
    bool take_single(const QuadraticLoss& loss) {
        if (single_state_ == Single::kUnknown)
            single_state_ = single_.set({start_, neighbour_}, value_, degree_, loss.eigenvalues, d_)
                                ? Single::kReady
                                : Single::kRefused;
        return single_state_ == Single::kReady;
    }
    // Orders the nodes for a factor, once; false where its fill is too large.
    bool prepare(Index block) {
        if (block_ != block) {
            block_ = block;
            pinned_.clear();
            const double most = kLargestFactor * static_cast<double>(n_edges_ * d_ * block * block);
            fits_ = direct_.analyse(m_, tail_.data(), head_.data(), n_edges_, block, most);
        }
        return fits_;
    }
    // Whether a Newton step of that work is enough; then its factor has room.
    bool prepare_newton(double work) {
        if (laid_out_) return newton_step_work(newton_, n_edges_, d_) <= work;
        const double most = newton_factor_cost(work, n_edges_, d_);
        if (!newton_.analysed() && direct_.analysed()) newton_ = direct_;
        if (!newton_.analysed()) {
            if (!(most > 2.0 * refused_)) return false;
            refused_ = most;
            laid_out_ = newton_.analyse(m_, tail_.data(), head_.data(), n_edges_, d_, most);
        } else {
            laid_out_ = newton_.lay_out(d_, most);
        }
        return laid_out_;
    }
    // H + B' R B with the matrix of the last fill_matrix().
    void factor(const QuadraticLoss& loss, Index block) {
        pinned_.clear();
        const Index size = block * block;
        diagonal_.assign(at(m_ * size), 0.0);
        off_.assign(at(n_edges_ * size), 0.0);
        for (Index i = 0; i < m_; ++i) {
            double* own = diagonal_.data() + i * size;
            if (block == 1) {
                own[0] = loss.eigenvalues[at(i)] + degree_[at(i)];
            } else {
                std::copy_n(loss.hessian.data() + i * size, size, own);
                for (Index k = 0; k < block; ++k) own[k * block + k] += degree_[at(i)];
            }
            for (Index place = start_[at(i)]; place < start_[at(i + 1)]; ++place)
                for (Index k = 0; k < block; ++k)
                    off_[at(edge_of_[at(place)] * size + k * block + k)] = -value_[at(place)];
        }
        direct_.factor(diagonal_.data(), off_.data());
    }
    void pin(const Labels& labels, Index n_clusters) {
        diagonal_.assign(degree_.begin(), degree_.end());
        off_.assign(at(n_edges_), 0.0);
        std::vector<char> held(at(n_clusters), 0);
        for (Index i = 0; i < m_; ++i) {
            char& done = held[at(labels[at(i)])];
            if (!done) diagonal_[at(i)] = degree_[at(i)] > 0.0 ? 2.0 * degree_[at(i)] : 1.0;
            done = 1;
            for (Index place = start_[at(i)]; place < start_[at(i + 1)]; ++place)
                off_[at(edge_of_[at(place)])] = -value_[at(place)];
        }
        direct_.factor(diagonal_.data(), off_.data());
        fresh_ = false;
        pinned_ = labels;
    }
    Index row_size() const { return (2 * d_ + 2) * kLanes; }

    // fn(first node, one past the last, worker)
    template <class Function>
    void for_nodes(const Function& fn) const {
        for_chunks(node_chunks_.count,
                   [&](Index c, int worker) { fn(node_chunks_.begin(c), node_chunks_.end(c), worker); });
    }
    // Passes over node vectors, cut as the nodes are.
    struct Pieces {
        const EdgeCoupling& own;
        template <class Body>
        void each(std::size_t, const Body& body) const {
            own.for_nodes([&](Index first, Index last, int) { body(at(first * own.d_), at(last * own.d_)); });
        }
        template <class Body>
        double sum(std::size_t, const Body& body) const {
            own.for_chunks(own.node_chunks_.count, [&](Index c, int) {
                own.partial_[at(c)] =
                    body(at(own.node_chunks_.begin(c) * own.d_), at(own.node_chunks_.end(c) * own.d_));
            });
            double total = 0.0;
            for (Index c = 0; c < own.node_chunks_.count; ++c) total += own.partial_[at(c)];
            return total;
        }
    };

    // The same in units of nodes.
    struct Nodes {
        EdgeCoupling& own;
        template <class Body>
        void each(const Body& body) const {
            own.for_nodes([&](Index first, Index last, int) { body(first, last); });
        }
        template <class Body>
        double sum(const Body& body) const {
            parts(body);
            double total = 0.0;
            for (Index c = 0; c < own.node_chunks_.count; ++c) total += own.partial_[at(c)];
            return total;
        }
        template <class Body>
        double largest(const Body& body) const {
            parts(body);
            return *std::max_element(own.partial_.begin(), own.partial_.end());
        }
        template <class Body>
        void parts(const Body& body) const {
            own.for_chunks(own.node_chunks_.count, [&](Index c, int) {
                own.partial_[at(c)] = body(own.node_chunks_.begin(c), own.node_chunks_.end(c));
            });
        }
    };

    Index run_end(Index first_chunk) const {
        return edge_chunks_.end(std::min(first_chunk + kRun, edge_chunks_.count) - 1);
    }
    // What the edges first .. last - 1 left, at their ends: + at the tail, - at the head, in the order of the
    // edges. The edges at a node's head come first, so these are the additions of the one-thread sweep.
    void gather(Index first, Index last, Vector& s, Vector* g) {
        for_nodes([&](Index begin, Index end, int) {
            for (Index i = begin; i < end; ++i) {
                double* const si = s.data() + i * d_;
                double* const gi = g != nullptr ? g->data() + i * d_ : nullptr;
                if (first == 0) {
                    gathered_[at(i)] = start_[at(i)];
                    std::fill(si, si + d_, 0.0);
                    if (g != nullptr) std::fill(gi, gi + d_, 0.0);
                }
                Index& place = gathered_[at(i)];
                for (; place < start_[at(i + 1)] && edge_of_[at(place)] < last; ++place) {
                    const Index part = (edge_of_[at(place)] - first) * d_;
                    const bool tail = neighbour_[at(place)] > i;
                    add_part(t_parts_.data() + part, tail, si);
                    if (g != nullptr) add_part(g_parts_.data() + part, tail, gi);
                }
            }
        });
    }
    void add_part(const double* part, bool tail, double* sums) const {
        if (tail)
            for (Index k = 0; k < d_; ++k) sums[k] += part[k];
        else
            for (Index k = 0; k < d_; ++k) sums[k] -= part[k];
    }

    template <class Entry>
    void fill_matrix(const Entry& entry) {
        fresh_ = false;
        single_state_ = Single::kUnknown;
        for_nodes([&](Index first, Index last, int) {
            for (Index i = first; i < last; ++i) {
                double total = 0.0;
                for (Index place = start_[at(i)]; place < start_[at(i + 1)]; ++place) {
                    value_[at(place)] = entry(edge_of_[at(place)]);
                    total += value_[at(place)];
                }
                degree_[at(i)] = total;
            }
        });
    }
    // out += B'RB v at the nodes first .. last - 1. A matrix of the edges inside clusters may be mostly
    // zeros.
    template <int D>
    void add_laplacian_of(const Vector& v, Vector& out, Index first, Index last) const {
        const Index d = D > 0 ? D : d_;
        for (Index i = first; i < last; ++i) {
            if (degree_[at(i)] == 0.0) continue;
            const double* const vi = v.data() + i * d;
            double* const oi = out.data() + i * d;
            for (Index k = 0; k < d; ++k) oi[k] += degree_[at(i)] * vi[k];
            for (Index place = start_[at(i)]; place < start_[at(i + 1)]; ++place) {
                ask_for(v.data() + neighbour_[at(place + kAhead)] * d, d);
                const double value = value_[at(place)];
                if (value == 0.0) continue;
                const double* const vj = v.data() + neighbour_[at(place)] * d;
                for (Index k = 0; k < d; ++k) oi[k] -= value * vj[k];
            }
        }
    }
    void add_laplacian(const Vector& v, Vector& out, Index first, Index last) const {
        switch (d_) {
            case 1:
                return add_laplacian_of<1>(v, out, first, last);
            case 2:
                return add_laplacian_of<2>(v, out, first, last);
            case 3:
                return add_laplacian_of<3>(v, out, first, last);
            case 7:
                return add_laplacian_of<7>(v, out, first, last);
            case 10:
                return add_laplacian_of<10>(v, out, first, last);
            default:
                return add_laplacian_of<0>(v, out, first, last);
        }
    }

    Index m_, d_, n_edges_;
    std::vector<std::int32_t> tail_, head_;
    Buffer weight_, rho_, stretch_, row_, t_parts_, g_parts_, norms_;
    Chunks edge_chunks_, node_chunks_;
    Vector penalties_, largests_;
    mutable Vector partial_;
    bool restretch_ = false;
    std::vector<Index> start_, gathered_;
    std::vector<std::int32_t> neighbour_, edge_of_;
    Vector value_, degree_, scratch_;
    PcgWork work_;
    SingleCg single_;
    enum class Single { kUnknown, kReady, kRefused };
    Single single_state_ = Single::kUnknown;
    SparseCholesky direct_;  // analysed for block_ unknowns a node (0: not yet), when its fill fits_
    SparseCholesky newton_;  // of the second stage
    bool laid_out_ = false;
    double sigma_ = 0.0;    // its sigma at this lam
    double refused_ = 0.0;  // multiplications that were too few for it
    Index block_ = 0;
    bool fits_ = false, fresh_ = false;   // fresh_: factor of the matrix of the last fill_matrix()
    double passes_ = 0.0, recent_ = 0.0;  // of conjugate gradients: in total, and a running mean of a solve
    Labels pinned_;  // the partition whose inside edges the factor is of, empty where it is another matrix's
    Vector diagonal_, off_;
    UnionFind sets_;
};

}  // namespace

std::unique_ptr<Coupling> make_edge_coupling(Index n_nodes, Index n_features, std::vector<std::int32_t> tail,
                                             std::vector<std::int32_t> head, const Vector& weights) {
    return std::make_unique<EdgeCoupling>(n_nodes, n_features, std::move(tail), std::move(head), weights);
}

}  // namespace fusionopt
