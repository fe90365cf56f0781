// The loss kernels: gradients and Hessians against differences of values, and no allocation in a call.

#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <random>
#include <vector>

#include "core/distance.hpp"
#include "core/glm.hpp"
#include "core/softmax.hpp"
#include "harness.hpp"

namespace {

std::size_t n_allocations = 0;

}  // namespace

void* operator new(std::size_t size) {
    ++n_allocations;
    void* out = std::malloc(size > 0 ? size : 1);
    if (out == nullptr) throw std::bad_alloc();
    return out;
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

using namespace fusionopt;

namespace {

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// Three nodes with 1, 4 and 6 samples of p = 9 columns, some entries zero, dense and as CSR.
struct Data {
    Index p = 9;
    std::vector<Index> offsets{0, 1, 5, 11}, starts{0}, classes;
    std::vector<double> dense, sparse, weights, signs, numbers, counts;
    std::vector<std::int32_t> indices;

    Data() {
        std::mt19937 random(5);
        std::normal_distribution<double> normal;
        for (Index s = 0; s < offsets.back(); ++s) {
            for (Index k = 0; k < p; ++k) {
                const double z = random() % 3 == 0 ? 0.0 : normal(random);
                dense.push_back(z);
                if (z == 0.0) continue;
                sparse.push_back(z);
                indices.push_back(static_cast<std::int32_t>(k));
            }
            starts.push_back(static_cast<Index>(sparse.size()));
            weights.push_back(s == 7 ? 0.0 : 0.5 + 0.1 * static_cast<double>(s));
            signs.push_back(random() % 2 == 0 ? 1.0 : -1.0);
            numbers.push_back(normal(random));
            counts.push_back(static_cast<double>(random() % 4));
            classes.push_back(static_cast<Index>(random() % 3));
        }
    }
    SampleRows rows(bool csr) const {
        SampleRows out;
        out.data = csr ? sparse.data() : dense.data();
        out.indices = csr ? indices.data() : nullptr;
        out.row_starts = csr ? starts.data() : nullptr;
        out.n_columns = p;
        out.offsets = offsets.data();
        out.n_nodes = 3;
        out.weights = weights.data();
        return out;
    }
};

void check_derivatives(const NodeLossKernel& kernel) {
    const Index d = kernel.n_features();
    std::mt19937 random(6);
    std::normal_distribution<double> normal(0.0, 0.3);
    std::vector<double> x(at(d)), slope(at(d)), ahead(at(d)), behind(at(d)), hessian(at(d * d)),
        scratch(at(kernel.scratch_size() + 1));
    for (Index i = 0; i < kernel.n_nodes(); ++i) {
        for (double& entry : x) entry = normal(random);
        const std::size_t before = n_allocations;
        kernel.gradient(i, x.data(), slope.data(), scratch.data());
        kernel.hessian(i, x.data(), hessian.data(), scratch.data());
        const bool finite = std::isfinite(kernel.value(i, x.data(), scratch.data()));
        const std::size_t allocated = n_allocations - before;
        CHECK(finite);
        CHECK_EQUAL(allocated, at(0));
        for (Index k = 0; k < d; ++k) {
            const double h = 1e-5, kept = x[at(k)];
            x[at(k)] = kept + h;
            const double up = kernel.value(i, x.data(), scratch.data());
            kernel.gradient(i, x.data(), ahead.data(), scratch.data());
            x[at(k)] = kept - h;
            const double down = kernel.value(i, x.data(), scratch.data());
            kernel.gradient(i, x.data(), behind.data(), scratch.data());
            x[at(k)] = kept;
            // Rounding eps * value / h and h^2 of a third derivative, for values of a few units.
            CHECK_NEAR(slope[at(k)], (up - down) / (2 * h), 1e-8);
            for (Index j = 0; j < d; ++j)
                CHECK_NEAR(hessian[at(j * d + k)], (ahead[at(j)] - behind[at(j)]) / (2 * h), 1e-8);
        }
    }
}

}  // namespace

TEST(glm_derivatives) {
    const Data data;
    for (const bool csr : {false, true}) {
        const SampleRows rows = data.rows(csr);
        check_derivatives(GlmKernel(Family::kSquared, 0.0, rows, data.numbers.data(), 0.3, data.p));
        check_derivatives(GlmKernel(Family::kLogistic, 0.0, rows, data.signs.data(), 0.3, data.p - 1));
        check_derivatives(GlmKernel(Family::kSquaredHinge, 0.0, rows, data.signs.data(), 0.0, 0));
        check_derivatives(GlmKernel(Family::kHuber, 0.6, rows, data.numbers.data(), 0.3, data.p));
        check_derivatives(GlmKernel(Family::kPoisson, 0.0, rows, data.counts.data(), 0.3, data.p));
        check_derivatives(SoftmaxKernel(rows, data.classes.data(), 3, 0.2));
    }
}

TEST(distance_derivatives) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const std::vector<double> targets{0.1, nan, 2.0, 0.2, 0.1, -0.1}, weights{1.5, 0.7};
    check_derivatives(DistanceKernel(targets.data(), weights.data(), 2, 3, 0.9));
    check_derivatives(
        DistanceKernel(targets.data(), weights.data(), 2, 3, std::numeric_limits<double>::infinity()));
}

TEST(loops_over_some_nodes_allocate_nothing) {
    const Data data;
    const GlmKernel kernel(Family::kLogistic, 0.0, data.rows(false), data.signs.data(), 0.1, data.p);
    NodeLossLoop loop(kernel, 2);
    const std::vector<double> x(at(3 * data.p), 0.1);
    std::vector<double> all(at(3 * data.p)), some(at(2 * data.p)), values(3),
        hessians(at(3 * data.p * data.p));
    const Index active[2] = {2, 0};
    const std::size_t before = n_allocations;
    loop.gradients(x.data(), nullptr, 3, all.data());
    loop.gradients(x.data(), active, 2, some.data());
    loop.values(x.data(), nullptr, 3, values.data());
    loop.hessians(x.data(), nullptr, 3, hessians.data());
    const std::size_t allocated = n_allocations - before;
    CHECK_EQUAL(allocated, at(0));
    for (Index k = 0; k < data.p; ++k) {
        CHECK_EQUAL(some[at(k)], all[at(2 * data.p + k)]);
        CHECK_EQUAL(some[at(data.p + k)], all[at(k)]);
    }
}
