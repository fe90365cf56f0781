"""The restricted problem against CVXPY, and its error bounds against extended precision."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt as fo
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.penalties.base import Penalty
from fusionopt.recovery import _newton, restricted, solve_restricted
from fusionopt.recovery._coupling import EdgeCoupling, ProductCoupling
from fusionopt.recovery._model import build_model
from tests import catalogue, oracles
from tests.theory import plain
from tests.theory.cases import KINDS, random_instance


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_cvxpy(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(4):
        n, d = int(rng.integers(4, 25)), int(rng.integers(1, 4))
        instance = random_instance(rng, kind, n, d)
        labels = oracles.renumber(rng.integers(0, int(rng.integers(1, 6)), size=n))
        solution = solve_restricted(instance.problem(), labels)
        want, _ = plain.restricted_centres(plain.quadratic(instance), labels)
        # The programme's own accuracy is about 1e-9 of the objective.
        value = oracles.objective(instance, want[labels])
        assert solution.objective <= value * (1 + 1e-9) + (0.0 if solution.separated else solution.gap)
        assert oracles.objective(instance, solution.centers[labels]) == pytest.approx(
            solution.objective, rel=1e-10
        )
        # Never further from the true optimum than the gap says; value is above it.
        assert value >= solution.objective - solution.gap - 1e-12 * abs(value)
        spread = np.abs(want).max()
        near = np.linalg.norm(solution.centers - want, axis=1)
        assert (near <= solution.radii + 1e-3 * spread).all()
        if solution.separated:
            assert solution.gap <= 1e-20 * max(value, 1.0) or not np.isfinite(solution.gap)


def test_two_clusters_in_closed_form() -> None:
    # Two piles of sizes 2 and 3: the centres move towards each other at speeds lam W / size.
    problem = fo.FusionProblem(fo.SquaredDistance([0.0, 1.0, 10.0, 11.0, 12.0]), lam=0.5)
    solution = solve_restricted(problem, ["a", "a", "b", "b", "b"])
    assert solution.separated
    np.testing.assert_allclose(solution.centers.ravel(), [0.5 + 0.5 * 3, 11.0 - 0.5 * 2], rtol=1e-15)
    assert solution.residual <= 1e-14 and solution.gap <= 1e-26


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1.0, 1e8, 1e120])
def test_scale_changes_units_only(scale: float) -> None:
    a = np.random.default_rng(0).standard_normal((12, 2))
    labels = np.arange(12) % 3
    base = solve_restricted(fo.FusionProblem(fo.SquaredDistance(a), lam=0.02), labels)
    scaled = solve_restricted(fo.FusionProblem(fo.SquaredDistance(a * scale), lam=0.02 * scale), labels)
    assert scaled.separated and scaled.n_iter == base.n_iter
    np.testing.assert_allclose(scaled.centers, base.centers * scale, rtol=1e-13)
    np.testing.assert_allclose(scaled.radii, base.radii * scale, rtol=0.5)


def test_power_of_two_scales_are_exact() -> None:
    instance = catalogue.random_regression(np.random.default_rng(1), "knn", 20, 3, 0.1)
    labels = np.arange(20) % 4
    base = solve_restricted(instance.problem(), labels)
    scaled = solve_restricted(instance.scaled(2.0**-40).problem(), labels)
    np.testing.assert_array_equal(scaled.centers, base.centers * 2.0**-40)


@pytest.mark.parametrize("offset", [1e3, 1e8])
def test_offset_costs_no_digits(offset: float) -> None:
    a = np.round(np.random.default_rng(2).standard_normal((15, 2)) * 2**20) / 2**20
    labels = np.arange(15) % 3
    base = solve_restricted(fo.FusionProblem(fo.SquaredDistance(a), lam=0.01), labels)
    moved = solve_restricted(fo.FusionProblem(fo.SquaredDistance(a + offset), lam=0.01), labels)
    np.testing.assert_allclose(moved.centers - offset, base.centers, atol=4e-16 * offset)
    assert moved.radii.max() <= 4 * base.radii.max()


def test_too_fine_a_partition_says_so() -> None:
    instance = catalogue.random_squared(np.random.default_rng(3), "complete", 15, 2)
    problem = instance.problem().with_lam(100.0 * instance.lam)
    solution = solve_restricted(problem, np.arange(15))
    assert not solution.separated
    fused = solve_restricted(problem, np.zeros(15))
    assert fused.separated
    # The gap comes from a feasible dual: it covers the distance to the optimum, and it is small.
    assert 0 <= solution.objective - fused.objective <= solution.gap
    assert solution.gap <= 1e-5 * fused.objective


def test_equal_points_in_different_clusters() -> None:
    solution = solve_restricted(fo.FusionProblem(fo.SquaredDistance([1.0, 1.0, 5.0]), lam=0.1), [0, 1, 2])
    assert not solution.separated
    np.testing.assert_allclose(solution.centers.ravel(), [1.1, 1.1, 4.8], atol=1e-6)


def test_all_points_equal() -> None:
    solution = solve_restricted(fo.FusionProblem(fo.SquaredDistance(np.ones((4, 2))), lam=1.0), [0, 0, 0, 0])
    np.testing.assert_array_equal(solution.centers, [[1.0, 1.0]])
    assert solution.objective == 0.0 and solution.gap == 0.0
    apart = solve_restricted(fo.FusionProblem(fo.SquaredDistance(np.ones((4, 2))), lam=1.0), [0, 0, 1, 1])
    assert not apart.separated and apart.objective == 0.0


def test_without_penalty_the_centres_are_means() -> None:
    a = np.random.default_rng(4).standard_normal((9, 3)) + 1e6
    solution = solve_restricted(fo.FusionProblem(fo.SquaredDistance(a)), np.arange(9) // 3)
    np.testing.assert_allclose(solution.centers, a.reshape(3, 3, 3).mean(axis=1), rtol=1e-15)


def test_clusters_without_common_edges_may_coincide() -> None:
    graph = fo.Graph.from_edges(4, [[0, 1], [2, 3]])
    solution = solve_restricted(
        fo.FusionProblem(fo.SquaredDistance([0.0, 2.0, 0.0, 2.0]), graph, lam=0.5), range(4)
    )
    assert solution.separated
    np.testing.assert_allclose(solution.centers.ravel(), [0.5, 1.5, 0.5, 1.5])


@pytest.mark.parametrize("kind", ["complete", "node_weights", "knn", "sparse"])
def test_every_linear_solver_gives_the_same_answer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = catalogue.random_squared(np.random.default_rng(5), kind, 30, 2)
    problem, labels = instance.problem().with_lam(1e-3 * instance.lam), np.arange(30) // 3
    dense = solve_restricted(problem, labels)
    monkeypatch.setattr(_newton, "_DENSE_LIMIT", 0)
    factored = solve_restricted(problem, labels)
    monkeypatch.setattr(_newton, "_SPARSE_LIMIT", 0)
    iterated = solve_restricted(problem, labels)
    assert dense.separated and factored.separated and iterated.separated
    for other in (factored, iterated):
        np.testing.assert_allclose(
            other.centers, dense.centers, rtol=0, atol=1e-12 * np.abs(dense.centers).max()
        )
        assert other.gap <= 1e-20 * dense.objective


def test_start_saves_steps_and_changes_nothing() -> None:
    instance = catalogue.random_squared(np.random.default_rng(6), "knn", 25, 2)
    problem, labels = instance.problem().with_lam(0.1 * instance.lam), np.arange(25) % 5
    cold = solve_restricted(problem, labels)
    warm = solve_restricted(problem, labels, start=cold.centers)
    assert warm.n_iter < cold.n_iter
    np.testing.assert_allclose(warm.centers, cold.centers, rtol=1e-13)
    bad = solve_restricted(problem, labels, start=np.zeros((5, 2)))
    np.testing.assert_allclose(bad.centers, cold.centers, rtol=1e-12)


def test_singular_hessians_are_bounded_through_the_penalty() -> None:
    # One sample at node 0 and p = 2: its Hessian is singular; the penalty bends the other direction.
    rng = np.random.default_rng(7)
    designs = [rng.standard_normal((1 if i == 0 else 5, 2)) for i in range(6)]
    loss = fo.LeastSquares(designs, [rng.standard_normal(len(z)) for z in designs])
    solution = solve_restricted(fo.FusionProblem(loss, lam=1e-3), np.arange(6))
    assert solution.separated and np.isfinite(solution.radii).all() and solution.gap < 1e-20
    far = solve_restricted(fo.FusionProblem(loss), np.arange(6))
    assert np.isinf(far.radii).all() and np.isinf(far.gap)


def test_bound_on_the_change_of_curvature() -> None:
    rng = np.random.default_rng(8)
    y = rng.standard_normal((6, 2))
    sizes = rng.uniform(0.5, 2.0, 6)
    pairs = catalogue.all_pairs(6)
    strengths = 0.7 * sizes[pairs[:, 0]] * sizes[pairs[:, 1]]
    product = ProductCoupling(sizes, 0.7, np.ones(6, dtype=bool))
    edges = EdgeCoupling(6, pairs, strengths)
    for move in (1e-3, 1e-2):
        bound = product.curvature_drift(y, move)
        assert bound == pytest.approx(edges.curvature_drift(y, move), rel=1e-12)
        for _ in range(100):
            step = rng.standard_normal(y.shape)
            moved = y + move * step / np.linalg.norm(step)
            change = product.curvature(moved, 0.0) - product.curvature(y, 0.0)
            assert np.linalg.norm(change, 2) <= bound
    assert product.curvature_drift(y, 10.0) == np.inf
    np.testing.assert_allclose(edges.curvature(y, 0.1).toarray(), product.curvature(y, 0.1), atol=1e-13)


@pytest.mark.parametrize("kind", ["complete", "knn", "cycle"])
def test_residual_bound_covers_rounding(kind: str) -> None:
    rng = np.random.default_rng(9)
    for regression in (False, True):
        make = catalogue.random_regression if regression else catalogue.random_squared
        extra = (0.1,) if regression else ()
        instance = make(rng, "knn" if kind == "cycle" else kind, 40, 3, *extra)
        if not regression:
            instance = instance.shifted([1e5, 0.0, -3.0])
        instance = instance.with_lam(1e-3 * instance.lam)
        labels = np.arange(40) // 10
        model = build_model(instance.problem(), labels)
        solution = restricted.solve_scaled(model)
        assert solution.separated
        # The residual in extended precision at exactly c + unit y.
        x = model.shift.astype(np.longdouble) + model.step_unit * solution.y.astype(np.longdouble)
        true = instance.nodes.gradients(x[labels])
        edges, w = instance.edges, instance.weights.astype(np.longdouble) * instance.lam
        diff = x[labels[edges[:, 0]]] - x[labels[edges[:, 1]]]
        length = np.sqrt(np.square(diff).sum(axis=1))
        pull = np.where(length > 0, w / np.where(length > 0, length, 1), 0)[:, None] * diff
        np.add.at(true, edges[:, 0], pull)
        np.subtract.at(true, edges[:, 1], pull)
        sums = np.array([true[labels == k].sum(axis=0) for k in range(4)]) / model.gradient_unit
        error = np.sqrt(np.square(sums - solution.residuals).sum(axis=1))
        assert (error <= solution.residual_errors).all()
        assert solution.residual_errors.max() <= 1e-9


class Other(fo.L2Norm.__mro__[1]):  # type: ignore[misc,name-defined]
    """Not the l2 norm."""

    convex = True
    linear_in_lam = True
    value = derivative = prox = prox_vector = lambda self, *_: None


def test_arguments_are_checked() -> None:
    problem = fo.FusionProblem(fo.SquaredDistance([0.0, 2.0]))
    with pytest.raises(InvalidArgumentError, match="labels has 3 entries"):
        solve_restricted(problem, [0, 0, 1])
    with pytest.raises(InvalidArgumentError, match="start"):
        solve_restricted(problem, [0, 1], start=[[0.0]])
    with pytest.raises(InvalidTypeError, match="problem is a str"):
        solve_restricted("problem", [0, 1])  # type: ignore[arg-type]
    assert issubclass(Other, Penalty)
    with pytest.raises(InvalidArgumentError, match="Other; recovery needs L2Norm"):
        solve_restricted(fo.FusionProblem(problem.loss, penalty=Other()), [0, 1])
