#include "core/timing.hpp"

#include <chrono>
#include <cmath>

#include "core/coupling.hpp"

namespace fusionopt {

namespace {

template <class Action>
double seconds(const Action& action) {
    const auto start = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The wider registers are as fast as memory allows on every processor that has them.
#if defined(FUSIONOPT_X86)
__attribute__((target("avx2"))) void stream_wide(double* y, Index n) {
    for (Index k = 0; k < n; ++k) y[k] = y[k] * 0.5 + 1.0;
}
__attribute__((target("avx2"))) void stream_wide(float* y, Index n) {
    for (Index k = 0; k < n; ++k) y[k] = y[k] * 0.5F + 1.0F;
}
#endif
template <class T>
void stream(T* y, Index n) {
#if defined(FUSIONOPT_X86)
    if (__builtin_cpu_supports("avx2")) return stream_wide(y, n);
#endif
    for (Index k = 0; k < n; ++k) y[k] = y[k] * T(0.5) + T(1);
}

template <class T>
void time_all(Coupling& coupling, ThreadPool& pool, BufferOf<T>& array, Index m, Index d, int repeats,
              SweepTimes& out) {
    const auto size = static_cast<std::size_t>(m * d);
    Vector x(size), s(size), g(size);
    for (std::size_t k = 0; k < size; ++k) x[k] = std::sin(static_cast<double>(k));
    Coupling::SweepRequest request;
    request.step.lam = 1.0 / static_cast<double>(m);
    request.step.rho = 1.0 / static_cast<double>(m);
    const Chunks chunks = cut(array.size(), 100000, 16, 64);
    for (int round = 0; round < repeats; ++round) {
        out.sweep.push_back(seconds([&] { coupling.sweep(request, x, s, nullptr); }));
        out.check.push_back(seconds([&] { coupling.sweep(request, x, s, &g); }));
        out.stream.push_back(seconds([&] {
            pool.parallel_for(chunks.count, [&](Index c, int) {
                stream(array.data() + chunks.begin(c), chunks.end(c) - chunks.begin(c));
            });
        }));
    }
}

}  // namespace

SweepTimes time_pair_sweep(Index n_nodes, Index n_features, bool narrow, int n_threads, int repeats) {
    ThreadPool pool(n_threads);
    const auto coupling =
        make_complete_coupling(n_nodes, n_features, 1.0, Vector(static_cast<std::size_t>(n_nodes), 1.0),
                               Vector(static_cast<std::size_t>(n_features * n_features)), narrow);
    coupling->use(&pool);
    const PairLayout layout{n_nodes, n_features, narrow ? PairLayout::kStrip : kLanes};
    SweepTimes out;
    out.bytes = 2.0 * static_cast<double>(layout.size()) * (narrow ? sizeof(float) : sizeof(double));
    if (narrow) {
        BufferOf<float> array(layout.size());
        time_all(*coupling, pool, array, n_nodes, n_features, repeats, out);
    } else {
        Buffer array(layout.size());
        time_all(*coupling, pool, array, n_nodes, n_features, repeats, out);
    }
    return out;
}

}  // namespace fusionopt
