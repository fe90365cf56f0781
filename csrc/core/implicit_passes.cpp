#include "core/implicit_passes.hpp"

#include <algorithm>
#include <type_traits>

namespace fusionopt {

namespace {

constexpr double kSlab = 1.5e8;  // pairs between two polls: a few hundredths of a second
constexpr Index kChunk = 128;    // targets a thread takes at a time

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

template <class Real>
constexpr bool kSingle = std::is_same_v<Real, float>;

}  // namespace

double pass_chain(Index n) {
    // Runs of 256 sources, added up; then the sum over targets, compensated.
    return 256.0 + static_cast<double>(n) / 256.0;
}

PairPasses::PairPasses(int n_threads, std::function<void()> poll)
    : pool_(n_threads),
      poll_(std::move(poll)),
      single_scratch_(static_cast<std::size_t>(pool_.n_workers())),
      scratch_(static_cast<std::size_t>(pool_.n_workers())) {}

template <>
const double* PairPasses::narrowed<double>(const Points& x, std::vector<float>&) const {
    return x.v.data();
}
template <>
const float* PairPasses::narrowed<float>(const Points& x, std::vector<float>& copy) const {
    copy.resize(x.v.size());
    std::transform(x.v.begin(), x.v.end(), copy.begin(), [](double v) { return static_cast<float>(v); });
    return copy.data();
}

void PairPasses::over(Index n_items, double cost, Index chunk,
                      const std::function<void(Index, Index, int)>& fn) {
    // Whole chunks: length() meets every pair of blocks once.
    const double wanted = kSlab / (static_cast<double>(chunk) * std::max(cost, 1.0));
    const auto slab = chunk * static_cast<Index>(std::clamp(wanted, 8.0, 1e7));
    for (Index begin = 0; begin < n_items; begin += slab) {
        const Index end = std::min(begin + slab, n_items), count = (end - begin + chunk - 1) / chunk;
        pool_.parallel_for(count, [&](Index c, int worker) {
            const Index first = begin + c * chunk;
            fn(first, std::min(first + chunk, end), worker);
        });
        pairs_ += cost * static_cast<double>(end - begin);
        if (poll_) poll_();
    }
}

void PairPasses::gradient(const Points& targets, const Points& sources, const Vector* weight, double delta,
                          bool single, FieldSums& out) {
    const Index d = targets.d;
    if (out.force.n != targets.n || out.force.d != d) out.force = Points(targets.n, d);
    for (Vector* v : {&out.stiff, &out.inside, &out.energy}) v->resize(at(targets.stride));
    const auto run = [&](auto zero, auto kernel, auto& scratches) {
        using Real = decltype(zero);
        PairPass<Real> pass;
        pass.n_features = d;
        pass.x = narrowed<Real>(targets, copies_[0]);
        pass.stride = targets.stride;
        pass.source_x = &targets == &sources ? pass.x : narrowed<Real>(sources, copies_[1]);
        pass.source_stride = sources.stride;
        pass.n_sources = sources.n;
        if (weight != nullptr) {
            if constexpr (kSingle<Real>) {
                narrow_weight_.assign(weight->begin(), weight->end());
                pass.weight = narrow_weight_.data();
            } else {
                pass.weight = weight->data();
            }
        }
        pass.delta = delta;
        pass.out = out.force.v.data();
        pass.out_stride = out.force.stride;
        pass.stiff = out.stiff.data();
        pass.inside = out.inside.data();
        pass.energy = out.energy.data();
        over(targets.n, static_cast<double>(sources.n), kChunk, [&](Index first, Index last, int worker) {
            PairPass<Real> mine = pass;
            auto& scratch = scratches[at(worker)];
            scratch.resize(at((d + 4) * kTargetBlock));
            mine.scratch = scratch.data();
            mine.first = first;
            mine.last = last;
            kernel(mine);
        });
    };
    if (single)
        run(0.0f, implicit_kernels().gradient_single, single_scratch_);
    else
        run(0.0, implicit_kernels().gradient, scratch_);
}

void PairPasses::product(const Points& targets, const Points& directions, const Points& sources,
                         const Points& source_directions, const Vector* weight, double delta,
                         double curvature, bool single, Points& out) {
    const Index d = targets.d;
    if (out.n != targets.n || out.d != d) out = Points(targets.n, d);
    const auto run = [&](auto zero, auto kernel, auto& scratches) {
        using Real = decltype(zero);
        PairPass<Real> pass;
        pass.n_features = d;
        pass.x = narrowed<Real>(targets, copies_[0]);
        pass.p = narrowed<Real>(directions, copies_[1]);
        pass.stride = targets.stride;
        pass.source_x = &targets == &sources ? pass.x : narrowed<Real>(sources, copies_[2]);
        pass.source_p =
            &directions == &source_directions ? pass.p : narrowed<Real>(source_directions, copies_[3]);
        pass.source_stride = sources.stride;
        pass.n_sources = sources.n;
        if (weight != nullptr) {
            if constexpr (kSingle<Real>) {
                narrow_weight_.assign(weight->begin(), weight->end());
                pass.weight = narrow_weight_.data();
            } else {
                pass.weight = weight->data();
            }
        }
        pass.delta = delta;
        pass.curvature = curvature;
        pass.out = out.v.data();
        pass.out_stride = out.stride;
        over(targets.n, static_cast<double>(sources.n), kChunk, [&](Index first, Index last, int worker) {
            PairPass<Real> mine = pass;
            auto& scratch = scratches[at(worker)];
            scratch.resize(at((d + 4) * kTargetBlock));
            mine.scratch = scratch.data();
            mine.first = first;
            mine.last = last;
            kernel(mine);
        });
    };
    if (single)
        run(0.0f, implicit_kernels().product_single, single_scratch_);
    else
        run(0.0, implicit_kernels().product, scratch_);
}

double PairPasses::length(const Points& x, const Vector& weight) {
    Vector sums(at(x.stride));
    PairPass<double> pass;
    pass.n_features = x.d;
    pass.x = x.v.data();
    pass.stride = pass.source_stride = x.stride;
    over(x.n, 0.5 * static_cast<double>(x.n), kChunk, [&](Index first, Index last, int) {
        alignas(64) double within[kTargetBlock];
        for (Index i = first; i < last; i += kTargetBlock) {
            // Pairs inside the block are met twice, those with later blocks once.
            PairPass<double> mine = pass;
            mine.first = i;
            mine.last = std::min(i + kTargetBlock, x.n);
            mine.source_x = x.v.data() + i;
            mine.weight = weight.data() + i;
            mine.n_sources = mine.last - i;
            mine.energy = sums.data();
            implicit_kernels().length(mine);
            std::copy_n(sums.data() + i, kTargetBlock, within);
            mine.source_x += kTargetBlock;
            mine.weight += kTargetBlock;
            mine.n_sources = std::max<Index>(x.n - i - kTargetBlock, 0);
            implicit_kernels().length(mine);
            for (Index l = 0; l < kTargetBlock; ++l) sums[at(i + l)] += 0.5 * within[l];
        }
    });
    CompensatedSum total;
    for (Index i = 0; i < x.n; ++i) total.add(weight[at(i)] * sums[at(i)]);
    return total.value();
}

}  // namespace fusionopt
