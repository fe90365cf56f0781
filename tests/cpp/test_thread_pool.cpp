// The pool: every chunk once, the same bits for any number of threads, errors passed on, usable after fork.

#include "core/thread_pool.hpp"

#include <atomic>
#include <cmath>
#include <stdexcept>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include "harness.hpp"

using namespace fusionopt;

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

double sum_of_roots(ThreadPool& pool, Index items) {
    const Chunks chunks = cut(items, 100, 32);
    std::vector<double> part(at(chunks.count), 0.0);
    pool.parallel_for(chunks.count, [&](Index c, int) {
        for (Index k = chunks.begin(c); k < chunks.end(c); ++k)
            part[at(c)] += std::sqrt(static_cast<double>(k));
    });
    double total = 0.0;
    for (const double value : part) total += value;
    return total;
}

}  // namespace

TEST(chunks_cover_every_item_once) {
    for (const Index items : {0, 1, 7, 8, 64, 1000})
        for (const Index count : {1, 3, 16})
            for (const Index grain : {1, 8}) {
                const Chunks chunks{items, count, grain};
                Index next = 0;
                for (Index c = 0; c < count; ++c) {
                    CHECK_EQUAL(chunks.begin(c), next);
                    CHECK(chunks.begin(c) == items || chunks.begin(c) % grain == 0);
                    next = chunks.end(c);
                }
                CHECK_EQUAL(next, items);
            }
    CHECK_EQUAL(cut(99, 100, 32).count, 1);
    CHECK_EQUAL(cut(500, 100, 32).count, 5);
    CHECK_EQUAL(cut(1000000, 100, 32).count, 32);
}

TEST(every_chunk_runs_once) {
    for (const int n_threads : {1, 2, 5}) {
        ThreadPool pool(n_threads);
        CHECK_EQUAL(pool.n_workers(), n_threads);
        for (const Index n_chunks : {0, 1, 2, 3, 100}) {
            std::vector<std::atomic<int>> runs(at(n_chunks));
            std::atomic<int> strangers{0};
            for (int round = 0; round < 20; ++round)
                pool.parallel_for(n_chunks, [&](Index c, int worker) {
                    ++runs[at(c)];
                    if (worker < 0 || worker >= n_threads) ++strangers;
                });
            CHECK_EQUAL(strangers.load(), 0);
            for (const auto& count : runs) CHECK_EQUAL(count.load(), 20);
        }
    }
}

TEST(one_thread_is_the_callers_own) {
    ThreadPool pool(1);
    const std::thread::id caller = std::this_thread::get_id();
    bool own = true;
    pool.parallel_for(
        10, [&](Index, int worker) { own = own && worker == 0 && std::this_thread::get_id() == caller; });
    CHECK(own);
}

TEST(sums_have_the_same_bits_for_any_number_of_threads) {
    ThreadPool one(1);
    const double wanted = sum_of_roots(one, 100001);
    for (const int n_threads : {2, 3, 8}) {
        ThreadPool pool(n_threads);
        for (int round = 0; round < 50; ++round) CHECK_EQUAL(sum_of_roots(pool, 100001), wanted);
    }
}

TEST(an_error_is_passed_on_and_the_pool_goes_on) {
    for (const int n_threads : {1, 3}) {
        ThreadPool pool(n_threads);
        const auto fail = [](Index c, int) {
            if (c == 5) throw std::runtime_error("chunk five");
        };
        CHECK_THROWS(pool.parallel_for(20, fail), std::runtime_error, "chunk five");
        ThreadPool one(1);
        CHECK_EQUAL(sum_of_roots(pool, 5000), sum_of_roots(one, 5000));
    }
}

#if defined(__unix__) || defined(__APPLE__)
TEST(a_forked_child_computes_the_same_alone) {
    ThreadPool pool(2);
    const double wanted = sum_of_roots(pool, 5000);
    const pid_t child = fork();
    if (child == 0) {
        // _exit: the child must not run the harness's own end. The pool of its own has threads again.
        ThreadPool own(2);
        _exit(sum_of_roots(pool, 5000) == wanted && sum_of_roots(own, 5000) == wanted ? 0 : 1);
    }
    int status = -1;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif
