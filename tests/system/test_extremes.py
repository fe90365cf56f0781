"""Inputs near the ends of float64: an answer or a sentence, never a crash and never a false claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fusionopt
from fusionopt import AdmmSettings, FusionProblem, Graph, SquaredDistance

PAIR = Graph.from_edges(2, [(0, 1)])


@pytest.mark.parametrize("lam", [1e30, 1e300, 1e308])
def test_huge_lam_on_a_complete_graph(lam: float) -> None:
    result = fusionopt.solve(FusionProblem(SquaredDistance([0.0, 2.0, 5.0]), lam=lam))
    assert result.status == "optimal"
    assert result.n_clusters == 1
    assert result.n_iter <= 100


@pytest.mark.parametrize("weight", [1e-154, 1e-155, 1e-160])
def test_no_optimum_without_a_finite_gap(weight: float) -> None:
    problem = FusionProblem(SquaredDistance([0.0, 3.0], sample_weight=[weight, 1.0]), PAIR, lam=1.0)
    result = fusionopt.solve(problem, AdmmSettings(max_iter=200))
    assert math.isfinite(result.gap) or result.status != "optimal"
    assert math.isfinite(result.gap) or not result.rel_gap < 1


@pytest.mark.parametrize("c", [1e-200, 1e200])
def test_squares_beyond_float64_are_refused(c: float) -> None:
    with pytest.raises(fusionopt.InvalidArgumentError, match="range of float64"):
        fusionopt.solve(FusionProblem(SquaredDistance([0.0, c, 3.0 * c]), lam=c))


@pytest.mark.parametrize("points", [[0, 1, 3, 7, 12], [0.1, 0.4, -0.2, -0.9, 0.6, -1.8]])
def test_the_automatic_path_of_a_line_reaches_the_top(points: list[float]) -> None:
    path = fusionopt.solution_path(FusionProblem(SquaredDistance(np.array(points, dtype=float))), n_lams=10)
    assert path.n_clusters[0] == 1
    assert len(path.linkage()) == len(points) - 1


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_an_early_stop_is_no_worse_than_trivial_points(limit: int) -> None:
    points = np.random.default_rng(0).standard_normal((60, 4))
    problem = FusionProblem(SquaredDistance(points), Graph.knn(points, 5), lam=1.0)
    result = fusionopt.solve(problem, AdmmSettings(max_iter=limit))
    mean = np.tile(points.mean(axis=0), (60, 1))
    assert result.objective <= min(problem.objective(points), problem.objective(mean)) * (1 + 1e-12)


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8])
def test_the_verdict_counts_what_a_cap_left_out(complete: bool, limit: int) -> None:
    """At a lam far above lambda_max a point that is not quite fused pays for it, whatever the loop works with."""
    points = np.random.default_rng(limit).standard_normal((20, 3))
    graph = None if complete else Graph.from_edges(20, Graph.complete(20).edges)
    problem = FusionProblem(SquaredDistance(points), graph, lam=1e30)
    result = fusionopt.solve(problem, AdmmSettings(max_iter=limit))
    assert result.objective == pytest.approx(problem.objective(result.x), rel=1e-9)
    duals, edges = result.edge_duals(), problem.graph.edges
    flow = np.zeros_like(points)
    np.add.at(flow, edges[:, 0], duals)
    np.subtract.at(flow, edges[:, 1], duals)
    dual = float((flow * points).sum() - 0.5 * (flow**2).sum())
    gap = problem.objective(result.x) - dual
    if result.status == "optimal":
        assert gap <= 2e-6 * abs(result.objective)
    assert result.gap >= gap - 1e-9 * abs(result.objective)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_signed_zeros_are_one_zero_after_an_early_stop(limit: int) -> None:
    points = np.array([2.0, 1.4, 0.7, -0.0, -0.0, 0.0])
    result = fusionopt.solve(
        FusionProblem(SquaredDistance(points, sample_weight=[4, 4, 0.5, 0.5, 1, 4]), lam=1e-3),
        AdmmSettings(max_iter=limit, eps_rel=0.0),
    )
    for k in range(result.n_clusters):
        assert len({row.tobytes() for row in result.x[result.labels == k]}) == 1


def test_weightless_nodes_of_a_complete_graph_stay_finite_when_others_merge() -> None:
    """At a loose tolerance finishing merges centres while nodes without weight stand aside."""
    rng = np.random.default_rng(7)
    for _ in range(30):
        m = int(rng.integers(4, 12))
        r = rng.integers(0, 3, m).astype(float)
        points = rng.normal(size=(m, 2))
        problem = FusionProblem(
            SquaredDistance(points), Graph.complete(m, 0.1, r), lam=float(rng.uniform(0.05, 6))
        )
        result = fusionopt.solve(problem, AdmmSettings(eps_rel=1e-2))
        assert result.status == "optimal"
        np.testing.assert_array_equal(result.x[r == 0], points[r == 0])


@pytest.mark.parametrize("lam", [0.0, 0.1, 10.0])
def test_a_node_without_weight_or_edges(lam: float) -> None:
    loss = fusionopt.SquaredDistance([[0.0], [1.0], [2.0]], sample_weight=[1.0, 0.0, 1.0])
    result = fusionopt.solve(fusionopt.FusionProblem(loss, fusionopt.Graph.from_edges(3, [(0, 2)]), lam=lam))
    assert result.status == "optimal"
    step = min(lam, 1.0)
    np.testing.assert_allclose(result.x[[0, 2], 0], [step, 2.0 - step], atol=1e-9)
    assert np.isfinite(result.x).all()
