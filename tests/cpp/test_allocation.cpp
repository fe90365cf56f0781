// The loop allocates nothing: operator new is replaced in this program and counts.

#include <cstdlib>
#include <new>

#include "core/admm.hpp"
#include "harness.hpp"
#include "problems.hpp"

namespace {

std::size_t n_allocations = 0;

void* allocate(std::size_t size, std::size_t alignment) {
    ++n_allocations;
    const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
    void* out = alignment > alignof(std::max_align_t) ? std::aligned_alloc(alignment, rounded)
                                                      : std::malloc(size > 0 ? size : 1);
    if (out == nullptr) throw std::bad_alloc();
    return out;
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, 1); }
void* operator new[](std::size_t size) { return allocate(size, 1); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 1); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
    return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

using namespace fusionopt;
using namespace problems;

namespace {

// Sweeps, x-steps, checks and changes of rho: all of run(), after a first one that may have ordered the nodes
// of an edge list for a direct factor.
std::size_t allocations_of_a_run(Admm&& admm) {
    admm.run(1000);
    const std::size_t before = n_allocations;
    admm.run(300);
    return n_allocations - before;
}

AdmmOptions endless() {
    AdmmOptions options;
    options.eps_rel = 0.0;
    return options;
}

}  // namespace

TEST(an_allocation_is_counted) {
    const std::size_t before = n_allocations;
    const Vector some = normal(10, 1);
    CHECK(n_allocations > before);
    const std::size_t between = n_allocations;
    const Buffer aligned(10);
    CHECK(n_allocations > between);
}

TEST(a_run_on_the_complete_graph_allocates_nothing) {
    const Index m = 30;
    const Vector ones(at(m), 1.0);
    for (const Index d : {1, 2, 7})
        CHECK_EQUAL(allocations_of_a_run(Admm(distance_loss(m, d, normal(at(m * d), 1), ones),
                                              complete(m, d, 0.1, ones), 0.3, endless())),
                    0u);
    CHECK_EQUAL(allocations_of_a_run(Admm(dense_loss(m, 2), complete(m, 2, 0.1, ones), 0.3, endless())), 0u);
    CHECK_EQUAL(allocations_of_a_run(Admm(singular_loss(m, 2), complete(m, 2, 0.1, ones), 0.3, endless())),
                0u);
}

TEST(a_run_on_an_edge_list_allocates_nothing) {
    const Index m = 30;
    const Vector ones(at(m), 1.0);
    for (const Index d : {1, 2, 7})
        CHECK_EQUAL(allocations_of_a_run(Admm(distance_loss(m, d, normal(at(m * d), 1), ones),
                                              listed(m, d, sparse(m, 1)), 0.3, endless())),
                    0u);
    CHECK_EQUAL(allocations_of_a_run(Admm(dense_loss(m, 2), listed(m, 2, sparse(m, 1)), 0.3, endless())), 0u);
    CHECK_EQUAL(allocations_of_a_run(Admm(singular_loss(m, 2), listed(m, 2, sparse(m, 1)), 0.3, endless())),
                0u);
}
