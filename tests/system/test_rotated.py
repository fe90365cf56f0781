"""Points in few dimensions of many coordinates: the answer and its certificate are those of the problem asked."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt
from fusionopt import AdmmSettings, FusionProblem, Graph, SquaredDistance
from fusionopt.methods.rotated import find_hull
from tests import oracles


def _flat(m: int, d: int, rank: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 4 * rng.normal(size=(3, rank))
    return (centres[rng.integers(0, 3, m)] + rng.normal(size=(m, rank))) @ rng.normal(size=(rank, d)) + 100.0


def _objective(points: np.ndarray, weights: np.ndarray, problem: FusionProblem, x: np.ndarray) -> float:
    i, j = problem.graph.edges.T
    lengths = np.linalg.norm(x[i] - x[j], axis=1)
    loss = 0.5 * float((weights * ((x - points) ** 2).sum(axis=1)).sum())
    return loss + problem.lam * float((problem.graph.weights * lengths).sum())


@pytest.mark.parametrize(("m", "d", "rank"), [(40, 12, 3), (12, 500, 11), (30, 6, 1)])
@pytest.mark.parametrize("graph", ["complete", "knn"])
def test_the_certificate_holds_in_the_coordinates_given(m: int, d: int, rank: int, graph: str) -> None:
    points = _flat(m, d, rank, m + d)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, m)
    scale = float(np.linalg.norm(points - points.mean(axis=0), axis=1).mean())
    edges = Graph.complete(m) if graph == "complete" else Graph.knn(points, 4)
    lam = 0.3 * scale / (m if graph == "complete" else 4)
    problem = FusionProblem(SquaredDistance(points, weights), edges, lam=lam)
    hull = find_hull(problem)
    assert hull is not None
    assert len(hull.basis) == min(rank, m - 1)
    result = fusionopt.solve(problem)
    assert result.status == "optimal"
    assert f"in the {len(hull.basis)} dimensions that the points span, of {d}" in result.message
    # The gap anew, from x and the duals alone.
    v, (i, j) = result.edge_duals(), edges.edges.T
    assert (np.linalg.norm(v, axis=1) <= lam * edges.weights).all()
    sums = np.zeros((m, d))
    np.add.at(sums, i, v)
    np.add.at(sums, j, -v)
    primal = _objective(points, weights, problem, result.x)
    centred = points - points.mean(axis=0)
    dual = float((sums * centred).sum() - 0.5 * ((sums**2).sum(axis=1) / weights).sum())
    assert abs(primal - result.objective) <= 1e-12 * primal
    assert primal - dual <= 1.1 * result.gap + 1e-10 * primal
    assert primal - dual <= 1.1e-6 * primal
    # Rows of a cluster are equal in every bit, and the clusters are those of the unrotated solve.
    for label in np.unique(result.labels):
        rows = result.x[result.labels == label]
        assert (rows == rows[0]).all()
    noisy = points + 1e-9 * scale * np.random.default_rng(2).normal(size=points.shape)
    if m > d:
        plain = fusionopt.solve(FusionProblem(SquaredDistance(noisy, weights), edges, lam=lam))
        assert "span" not in plain.message
        oracles.assert_same_partition(result.labels, plain.labels)
        np.testing.assert_allclose(result.x, plain.x, atol=1e-3 * scale)


def test_a_path_and_a_start_in_the_coordinates_given() -> None:
    points = _flat(20, 40, 2, 5)
    problem = FusionProblem(SquaredDistance(points), lam=0.2)
    cold = fusionopt.solve(problem)
    warm = fusionopt.solve(problem, warm_start=cold)
    assert warm.status == "optimal"
    assert abs(warm.objective - cold.objective) <= cold.gap + warm.gap + 1e-9 * cold.objective
    path = fusionopt.solution_path(problem, [0.1, 0.2, 0.4])
    assert [result.status for result in path.results] == ["optimal"] * 3
    assert (
        abs(path.results[1].objective - cold.objective)
        <= cold.gap + path.results[1].gap + 1e-9 * cold.objective
    )


@pytest.mark.parametrize("scale", [1e-120, 1.0, 1e120])
def test_the_hull_does_not_know_the_units(scale: float) -> None:
    points = _flat(15, 8, 2, 6) * scale
    problem = FusionProblem(SquaredDistance(points), lam=0.5 * scale)
    hull = find_hull(problem)
    assert hull is not None
    assert hull.basis.shape == (2, 8)
    assert fusionopt.solve(problem).status == "optimal"


def test_what_spans_its_coordinates_is_left_alone() -> None:
    points = np.random.default_rng(7).normal(size=(30, 5))
    assert find_hull(FusionProblem(SquaredDistance(points), lam=0.1)) is None
    assert find_hull(FusionProblem(SquaredDistance(points[:3]), lam=0.1)) is not None
    assert find_hull(FusionProblem(SquaredDistance(points[:3]), penalty=fusionopt.L1Norm(), lam=0.1)) is None
    assert find_hull(FusionProblem(SquaredDistance(points[:3]), lam=0.0)) is None
    assert find_hull(FusionProblem(SquaredDistance(points[:3], [1.0, 0.0, 1.0]), lam=0.1)) is None


def test_ten_thousand_coordinates() -> None:
    points = np.random.default_rng(8).normal(size=(60, 10000))
    points[:30] += 0.5
    problem = FusionProblem(SquaredDistance(points), lam=0.9)
    result = fusionopt.solve(problem, AdmmSettings(eps_rel=1e-5))
    assert result.status == "optimal"
    assert "59 dimensions" in result.message
