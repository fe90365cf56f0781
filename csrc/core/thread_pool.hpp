// A small fixed pool of threads for one solve.
//
// Work is cut into chunks whose number depends on the problem alone, never on the number of threads. Which
// thread takes a chunk is left open; sums are taken per chunk and added in the order of the chunks, so the
// answer has the same bits for any number of threads.
#pragma once

#include <memory>
#include <type_traits>

#include "core/types.hpp"

namespace fusionopt {

// Items [begin(c), end(c)) of chunk c when `items` things are cut into `count` runs of nearly equal length,
// each beginning at a multiple of `grain`.
struct Chunks {
    Index items = 0;
    Index count = 1;
    Index grain = 1;

    Index begin(Index c) const {
        const Index units = (items + grain - 1) / grain, at = units * c / count * grain;
        return at < items ? at : items;
    }
    Index end(Index c) const { return begin(c + 1); }
};

// At most `most` chunks of at least `least` items. Depends on nothing but its arguments.
inline Chunks cut(Index items, Index least, Index most, Index grain = 1) {
    const Index wanted = least > 0 ? items / least : items;
    return {items, wanted < 1 ? 1 : (wanted > most ? most : wanted), grain};
}

// One thread is the caller's own; n_threads = 1 starts none. Where the system refuses a thread the pool works
// with those it has. A child made by fork() has none of the threads: there the same calls run on the caller's
// thread alone. Not to be called from two threads at once, nor from inside fn.
class ThreadPool {
  public:
    explicit ThreadPool(int n_threads = 1);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    // Threads that may take chunks, the caller's included; worker numbers are 0 .. n_workers() - 1.
    int n_workers() const;

    // Calls fn(chunk, worker) once for each chunk 0 .. n_chunks - 1 and returns when all are done. What fn
    // wrote is then visible to the caller. The first exception of fn is thrown again here; chunks not yet
    // begun are then left out. Allocates nothing.
    template <class Function>
    void parallel_for(Index n_chunks, Function&& fn) {
        using Plain = std::remove_reference_t<Function>;
        run(
            n_chunks, [](void* f, Index chunk, int worker) { (*static_cast<Plain*>(f))(chunk, worker); },
            const_cast<void*>(static_cast<const void*>(std::addressof(fn))));
    }

  private:
    using Call = void (*)(void* context, Index chunk, int worker);
    void run(Index n_chunks, Call call, void* context);

    struct Team;
    std::unique_ptr<Team> team_;  // null when there is one thread
};

}  // namespace fusionopt
