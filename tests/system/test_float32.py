"""Pairs kept in float32: when `solve` takes them by itself, and that they cost no answer."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt
from fusionopt import AdmmSettings, FusionProblem, Graph, SquaredDistance
from fusionopt.estimate import default_dtype


def _points(seed: int, m: int, d: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, d)) + 5.0 * rng.integers(0, 5, (m, 1))


def test_default_is_float32_for_equal_weights_on_large_complete_graphs() -> None:
    points = _points(0, 300, 2)
    missing = points.copy()
    missing[3, 1] = np.nan
    weights = np.linspace(1.0, 2.0, 300)
    plain = FusionProblem(SquaredDistance(points), lam=2e-3)
    assert default_dtype(plain) == "float32"
    for other in (
        FusionProblem(SquaredDistance(points[:100])),
        FusionProblem(SquaredDistance(np.tile(points, (15, 1)))),  # no pair is stored
        FusionProblem(SquaredDistance(points, sample_weight=weights)),
        FusionProblem(SquaredDistance(points), Graph.complete(300, node_weights=weights)),
        FusionProblem(SquaredDistance(points), Graph.knn(points, 5)),
        FusionProblem(SquaredDistance(missing)),
        FusionProblem(SquaredDistance(points), penalty=fusionopt.L1Norm()),
    ):
        assert default_dtype(other) == "float64"
    result = fusionopt.solve(plain)
    assert result.settings.dtype == "float32"
    assert "float32" in result.message
    assert "float32" not in fusionopt.solve(plain, AdmmSettings()).message


@pytest.mark.parametrize("share", [0.2, 0.6, 1 - 1e-4, 1 - 1e-6])
def test_default_tells_the_same_partition_as_float64(share: float) -> None:
    problem = FusionProblem(SquaredDistance(_points(1, 280, 3)))
    problem = problem.with_lam(share * fusionopt.lambda_max(problem))
    ours, exact = fusionopt.solve(problem), fusionopt.solve(problem, AdmmSettings(eps_rel=1e-10))
    assert ours.settings.dtype == "float32"
    assert ours.status == exact.status == "optimal"
    assert exact.labels_certified
    np.testing.assert_array_equal(ours.labels, exact.labels)


@pytest.mark.parametrize("seed", [11, 19])
def test_a_gap_beyond_float32_is_reached_in_float64(seed: int) -> None:
    """Node weights over four decades and an outlier: in float32 alone the gap stays above 2e-6."""
    rng = np.random.default_rng(seed)
    outlier = 10.0 ** rng.integers(2, 7)
    points = rng.standard_normal((150, 8))
    points[0] *= outlier
    graph = Graph.complete(150, node_weights=10.0 ** rng.uniform(-4, 0, 150))
    problem = FusionProblem(SquaredDistance(points), graph)
    problem = problem.with_lam(fusionopt.lambda_max(problem) * float(rng.choice([0.01, 0.1, 0.3, 0.7])))
    result = fusionopt.solve(problem, AdmmSettings(dtype="float32", max_iter=1000))
    assert result.status == "optimal"


def test_a_lam_beyond_the_range_of_float32_may_come_before() -> None:
    problem = FusionProblem(SquaredDistance(_points(0, 300, 2)))
    for result in fusionopt.solve_many([problem.with_lam(lam) for lam in (1e-50, 2e-3)]):
        assert result.status == "optimal"
        assert np.isfinite(result.x).all()
