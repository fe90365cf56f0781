"""Edge lists larger than the caches: the core's own numbering of the nodes, and what is left open there."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import FusionProblem, Graph, L1Norm, L2Norm, LeastSquares, SquaredDistance, _bridge, solve
from fusionopt.settings import AdmmSettings


@pytest.fixture
def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(300, 3))


@pytest.mark.parametrize("penalty", [L2Norm(), L1Norm()])
@pytest.mark.parametrize("squares", [False, True])
def test_the_numbering_of_the_core_is_not_seen(
    points: np.ndarray, penalty: L2Norm | L1Norm, squares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    loss: SquaredDistance | LeastSquares = SquaredDistance(points)
    if squares:
        loss = LeastSquares(
            [rng.normal(size=(5, 3)) for _ in points], [rng.normal(size=5) for _ in points], ridge=1e-3
        )
    graph = Graph.knn(points, 5)
    problem = FusionProblem(loss, graph, penalty, lam=0.3)
    plain = solve(problem)
    monkeypatch.setattr(_bridge, "_ORDERED_FROM", 1)
    numbered = solve(problem)
    assert plain.status == numbered.status == "optimal"
    np.testing.assert_array_equal(plain.labels, numbered.labels)
    np.testing.assert_allclose(numbered.x, plain.x, atol=1e-12)
    sums = np.zeros_like(points)
    v = numbered.edge_duals()
    np.add.at(sums, graph.edges[:, 0], v)
    np.add.at(sums, graph.edges[:, 1], -v)
    residual = np.linalg.norm(loss.gradient(numbered.x) + sums, axis=1).max()
    assert residual == pytest.approx(numbered.dual_residual, abs=1e-12)
    # The way back to the core: a start from the answer is the answer.
    again = solve(problem, warm_start=numbered)
    assert again.status == "optimal"
    assert again.n_iter <= numbered.n_iter


def test_threads_and_what_is_left_open() -> None:
    """52,000 nodes: two threads gather in runs, and nearly nothing is fused, which is settled by no extra sweeps."""
    points = np.random.default_rng(0).normal(size=(52_000, 4))
    graph = Graph.knn(points, 10)
    problem = FusionProblem(SquaredDistance(points), graph, lam=0.3)
    one, two = (solve(problem, AdmmSettings(n_threads=n, eps_rel=1e-4)) for n in (1, 2))
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.edge_duals(), two.edge_duals())
    assert one.status == "optimal"
    assert one.objective - one.dual_objective <= 1e-4 * one.objective
    assert one.objective == pytest.approx(problem.objective(one.x), rel=1e-12)
    met = one.trace["gap"] <= 1e-4 * one.trace["objective"]
    assert one.n_iter == one.trace["iteration"][np.argmax(met)]  # the first look that finds it met
    assert 0.75 * 52_000 < one.n_clusters <= 52_000
