#include "core/thread_pool.hpp"

#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace fusionopt {

namespace {

long process() {
#if defined(__unix__) || defined(__APPLE__)
    return static_cast<long>(getpid());
#else
    return 0;
#endif
}

}  // namespace

struct ThreadPool::Team {
    std::vector<std::thread> threads;
    long owner = process();
    std::atomic<int> round{0};   // changes when there is a job, or the end
    std::atomic<int> active{0};  // threads still at the job
    std::atomic<Index> next{0};  // first chunk that nobody has taken
    bool ending = false;
    Index n_chunks = 0;
    Call call = nullptr;
    void* context = nullptr;
    std::mutex failing;
    std::exception_ptr failure;

    void work(int worker) {
        try {
            for (;;) {
                const Index chunk = next.fetch_add(1, std::memory_order_relaxed);
                if (chunk >= n_chunks) return;
                call(context, chunk, worker);
            }
        } catch (...) {
            const std::lock_guard<std::mutex> lock(failing);
            if (!failure) failure = std::current_exception();
            next.store(n_chunks, std::memory_order_relaxed);
        }
    }

    void live(int worker) {
        for (int seen = 0;;) {
            round.wait(seen, std::memory_order_acquire);
            seen = round.load(std::memory_order_acquire);
            if (ending) return;
            work(worker);
            if (active.fetch_sub(1, std::memory_order_acq_rel) == 1) active.notify_one();
        }
    }

    void begin() {
        round.fetch_add(1, std::memory_order_release);
        round.notify_all();
    }

    void end() {
        ending = true;
        begin();
        for (std::thread& thread : threads) thread.join();
    }
};

ThreadPool::ThreadPool(int n_threads) {
    if (n_threads <= 1) return;
    team_ = std::make_unique<Team>();
    team_->threads.reserve(static_cast<std::size_t>(n_threads - 1));
    try {
        for (int worker = 1; worker < n_threads; ++worker)
            team_->threads.emplace_back([team = team_.get(), worker] { team->live(worker); });
    } catch (const std::system_error&) {
        // Fewer threads than asked for: slower, the same answer.
    }
}

ThreadPool::~ThreadPool() {
    if (!team_) return;
    if (team_->owner == process())
        team_->end();
    else
        // A forked child: the threads are not here and cannot be joined, and a lock may be held for ever.
        static_cast<void>(team_.release());
}

int ThreadPool::n_workers() const { return team_ ? 1 + static_cast<int>(team_->threads.size()) : 1; }

void ThreadPool::run(Index n_chunks, Call call, void* context) {
    if (!team_ || team_->threads.empty() || n_chunks <= 1 || team_->owner != process()) {
        for (Index chunk = 0; chunk < n_chunks; ++chunk) call(context, chunk, 0);
        return;
    }
    Team& team = *team_;
    team.n_chunks = n_chunks;
    team.call = call;
    team.context = context;
    team.next.store(0, std::memory_order_relaxed);
    team.active.store(static_cast<int>(team.threads.size()), std::memory_order_relaxed);
    team.begin();
    team.work(0);
    for (int left = team.active.load(std::memory_order_acquire); left != 0;
         left = team.active.load(std::memory_order_acquire))
        team.active.wait(left, std::memory_order_acquire);
    if (team.failure) std::rethrow_exception(std::exchange(team.failure, nullptr));
}

}  // namespace fusionopt
