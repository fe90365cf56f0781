// Solutions of the sparse factor, against the matrix multiplied out.

#include "core/sparse_cholesky.hpp"

#include <cmath>
#include <limits>

#include "graphs.hpp"
#include "harness.hpp"

using namespace fusionopt;

namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

std::size_t at(Index k) { return static_cast<std::size_t>(k); }

// A grid with diagonals of every third cell, in a scrambled numbering, and a node of its own.
struct Lattice {
    Index n, block;
    std::vector<std::int32_t> tail, head;
    Vector diagonal, off;

    Lattice(Index side, Index block_) : n(side * side + 1), block(block_) {
        const auto name = [&](Index row, Index column) {
            return static_cast<std::int32_t>((row * side + column) * 7 % (side * side));
        };
        const auto join = [&](std::int32_t i, std::int32_t j) {
            tail.push_back(std::min(i, j));
            head.push_back(std::max(i, j));
        };
        for (Index row = 0; row < side; ++row)
            for (Index column = 0; column < side; ++column) {
                if (row + 1 < side) join(name(row, column), name(row + 1, column));
                if (column + 1 < side) join(name(row, column), name(row, column + 1));
                if (row + 1 < side && column + 1 < side && (row + column) % 3 == 0)
                    join(name(row, column), name(row + 1, column + 1));
            }
        const Index size = block * block;
        diagonal.assign(at(n * size), 0.0);
        off.assign(tail.size() * at(size), 0.0);
        for (Index i = 0; i < n; ++i)
            for (Index k = 0; k < block; ++k) diagonal[at(i * size + k * block + k)] = 0.1;
        for (std::size_t e = 0; e < tail.size(); ++e)
            for (Index a = 0; a < block; ++a)
                for (Index b = 0; b < block; ++b) {
                    const double u = 0.6 + 0.1 * static_cast<double>(a),
                                 v = 0.6 + 0.1 * static_cast<double>(b);
                    const double value =
                        (1.0 + static_cast<double>(e % 5)) * ((a == b ? 2.0 : 0.0) - 0.5 * u * v);
                    off[e * at(size) + at(a * block + b)] = -value;
                    diagonal[at(tail[e] * size + a * block + b)] += value;
                    diagonal[at(head[e] * size + a * block + b)] += value;
                }
    }

    Vector times(const Vector& v, Index columns) const {
        Vector out(v.size(), 0.0);
        const auto add = [&](Index i, Index j, const double* value) {
            for (Index a = 0; a < block; ++a)
                for (Index b = 0; b < block; ++b)
                    for (Index q = 0; q < columns; ++q)
                        out[at((i * block + a) * columns + q)] +=
                            value[a * block + b] * v[at((j * block + b) * columns + q)];
        };
        for (Index i = 0; i < n; ++i) add(i, i, diagonal.data() + i * block * block);
        for (std::size_t e = 0; e < tail.size(); ++e) {
            add(tail[e], head[e], off.data() + e * at(block * block));
            add(head[e], tail[e], off.data() + e * at(block * block));
        }
        return out;
    }
};

double error_of(const Lattice& lattice, SparseCholesky& factor, Index columns) {
    Vector wanted(at(lattice.n * lattice.block * columns));
    for (std::size_t k = 0; k < wanted.size(); ++k) wanted[k] = std::sin(1.0 + 3.0 * static_cast<double>(k));
    Vector found = lattice.times(wanted, columns);
    factor.solve(found.data(), columns);
    double largest = 0.0;
    for (std::size_t k = 0; k < wanted.size(); ++k)
        largest = std::fmax(largest, std::fabs(found[k] - wanted[k]));
    return largest;
}

}  // namespace

TEST(a_factor_solves_what_was_multiplied) {
    for (const Index side : {1, 2, 5, 23})
        for (const Index block : {1, 2, 3})
            for (const Index columns : {1, 2, 4}) {
                const Lattice lattice(side, block);
                SparseCholesky factor;
                CHECK(factor.analyse(lattice.n, lattice.tail.data(), lattice.head.data(),
                                     static_cast<Index>(lattice.tail.size()), block, kUnbounded));
                CHECK(!factor.ready());
                factor.factor(lattice.diagonal.data(), lattice.off.data());
                CHECK(factor.ready());
                CHECK(error_of(lattice, factor, columns) < 1e-10);
            }
}

TEST(a_second_matrix_takes_the_place_of_the_first) {
    Lattice lattice(9, 2);
    SparseCholesky factor;
    factor.analyse(lattice.n, lattice.tail.data(), lattice.head.data(),
                   static_cast<Index>(lattice.tail.size()), 2, kUnbounded);
    factor.factor(lattice.diagonal.data(), lattice.off.data());
    for (double& value : lattice.diagonal) value *= 3.0;
    CHECK(error_of(lattice, factor, 1) > 1e-3);
    factor.factor(lattice.diagonal.data(), lattice.off.data());
    CHECK(error_of(lattice, factor, 1) < 1e-10);
}

TEST(what_costs_too_much_is_not_started) {
    const Lattice lattice(23, 1);
    SparseCholesky factor;
    const Index n_edges = static_cast<Index>(lattice.tail.size());
    CHECK(!factor.analyse(lattice.n, lattice.tail.data(), lattice.head.data(), n_edges, 1, 100.0));
    CHECK(factor.analyse(lattice.n, lattice.tail.data(), lattice.head.data(), n_edges, 1, kUnbounded));
    CHECK(factor.cost() > 100.0);
    // Far less than the dense factor of the same size.
    CHECK(factor.entries() < 0.2 * static_cast<double>(lattice.n * lattice.n));
}

namespace {

// Entries as of a generic positive definite matrix, the same on every system.
struct DenseSystem {
    Index size;
    Vector diagonal, off, matrix;  // the matrix in full, row-major; then its factor

    DenseSystem(const TestGraph& graph, Index block) : size(graph.n * block) {
        const Index blocks = block * block;
        diagonal.assign(at(graph.n * blocks), 0.0);
        off.assign(at(graph.n_edges() * blocks), 0.0);
        matrix.assign(at(size * size), 0.0);
        Vector heavy(at(size), 1.0);
        for (Index e = 0; e < graph.n_edges(); ++e) {
            const Index i = graph.tail[at(e)], j = graph.head[at(e)];
            for (Index a = 0; a < block; ++a)
                for (Index b = 0; b < block; ++b) {
                    const double value = std::sin(1.0 + 2.7 * static_cast<double>(e + (a + 1) * (b + 1)));
                    off[at(e * blocks + a * block + b)] = value;
                    if (i == j) continue;
                    matrix[at((i * block + a) * size + j * block + b)] += value;
                    matrix[at((j * block + a) * size + i * block + b)] += value;
                    heavy[at(i * block + a)] += std::fabs(value);
                    heavy[at(j * block + a)] += std::fabs(value);
                }
        }
        for (Index i = 0; i < graph.n; ++i)
            for (Index a = 0; a < block; ++a)
                for (Index b = 0; b < block; ++b) {
                    const double value = a == b ? heavy[at(i * block + a)] + static_cast<double>(block)
                                                : 0.3 * static_cast<double>(a + b);
                    diagonal[at(i * blocks + a * block + b)] =
                        value / (a == b ? 1.0 : static_cast<double>(2 * block));
                    matrix[at((i * block + a) * size + i * block + b)] =
                        diagonal[at(i * blocks + a * block + b)];
                }
        cholesky(matrix.data(), size);
    }
};

}  // namespace

TEST(solutions_agree_with_the_dense_factor) {
    for (const TestGraph& graph : test_graphs())
        for (const Index block : {1, 2, 3, 4}) {
            if (block > 1 && graph.n * block > 600) continue;  // the dense factor would take long
            const DenseSystem system(graph, block);
            SparseCholesky factor;
            CHECK(factor.analyse(graph.n, graph.tail.data(), graph.head.data(), graph.n_edges(), 1,
                                 kUnbounded));
            CHECK(factor.lay_out(block, kUnbounded));
            factor.factor(system.diagonal.data(), system.off.data());
            for (const Index columns : {1, 2, 3, 4, 5, 9}) {
                Vector found(at(system.size * columns)), wanted(at(system.size));
                for (std::size_t k = 0; k < found.size(); ++k)
                    found[k] = std::cos(static_cast<double>(k * k));
                const Vector given = found;
                factor.solve(found.data(), columns);
                double largest = 0.0;
                for (Index q = 0; q < columns; ++q) {
                    for (Index k = 0; k < system.size; ++k) wanted[at(k)] = given[at(k * columns + q)];
                    cholesky_solve(system.matrix.data(), system.size, wanted.data());
                    for (Index k = 0; k < system.size; ++k)
                        largest = std::fmax(largest, std::fabs(wanted[at(k)] - found[at(k * columns + q)]));
                }
                CHECK(largest < 1e-14);
            }
        }
}

TEST(a_second_factor_has_the_same_bits) {
    for (const TestGraph& graph : test_graphs()) {
        const DenseSystem system(graph, 1);
        Vector first(at(graph.n), 1.0), second(first);
        SparseCholesky factor, other;
        for (SparseCholesky* one : {&factor, &other})
            one->analyse(graph.n, graph.tail.data(), graph.head.data(), graph.n_edges(), 1, kUnbounded);
        factor.factor(system.diagonal.data(), system.off.data());
        factor.solve(first.data(), 1);
        // What an earlier matrix left behind does not matter.
        Vector large = system.diagonal;
        for (double& value : large) value *= 1e9;
        other.factor(large.data(), system.off.data());
        other.factor(system.diagonal.data(), system.off.data());
        other.solve(second.data(), 1);
        CHECK(first == second);
    }
}

TEST(a_pivot_that_is_not_positive_becomes_one) {
    // Three nodes in a row, the first two with all-equal entries: the second pivot vanishes.
    const std::int32_t tail[] = {0, 1}, head[] = {1, 2};
    const double diagonal[] = {4.0, 4.0, 9.0}, off[] = {4.0, 0.0};
    SparseCholesky factor;
    CHECK(factor.analyse(3, tail, head, 2, 1, kUnbounded));
    factor.factor(diagonal, off);
    Vector v = {4.0, 4.0, 9.0};
    factor.solve(v.data(), 1);
    for (const double value : v) CHECK(std::isfinite(value));
    CHECK_EQUAL(v[2], 1.0);
}

TEST(a_copy_has_the_pattern_and_a_layout_of_its_own) {
    const Lattice lattice(9, 1), wide(9, 3);
    SparseCholesky factor;
    factor.analyse(lattice.n, lattice.tail.data(), lattice.head.data(),
                   static_cast<Index>(lattice.tail.size()), 1, kUnbounded);
    factor.factor(lattice.diagonal.data(), lattice.off.data());
    SparseCholesky copy;
    CHECK(!copy.analysed());
    copy = factor;
    CHECK(copy.analysed());
    CHECK(!copy.ready());
    CHECK(!copy.lay_out(3, 1.0));
    CHECK(copy.lay_out(3, kUnbounded));
    copy.factor(wide.diagonal.data(), wide.off.data());
    CHECK(error_of(wide, copy, 2) < 1e-10);
    CHECK(factor.ready());
    CHECK(error_of(lattice, factor, 2) < 1e-10);
}
