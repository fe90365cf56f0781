"""One thread and two give the same bits; a float32 state gives the same certified answer."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt
from fusionopt import AdmmSettings, FusionProblem, Graph, LeastSquares, Result, SquaredDistance
from tests import oracles


def _groups(m: int, d: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(4, d))
    return centres[rng.integers(0, 4, m)] + rng.normal(size=(m, d))


def _complete(m: int = 500, d: int = 2) -> FusionProblem:
    points = _groups(m, d, 1)
    reach = np.linalg.norm(points - points.mean(axis=0), axis=1).max()
    return FusionProblem(SquaredDistance(points), lam=0.5 * reach / (m - 1))


def _neighbours() -> FusionProblem:
    points = _groups(12000, 2, 2)
    return FusionProblem(SquaredDistance(points), Graph.knn(points, 10), lam=0.1)


def _regression(m: int = 400, d: int = 3) -> FusionProblem:
    rng = np.random.default_rng(3)
    designs = [rng.normal(size=(8, d)) for _ in range(m)]
    responses = [z @ np.sign(rng.normal(size=d)) + 0.1 * rng.normal(size=8) for z in designs]
    return FusionProblem(LeastSquares(designs, responses, ridge=0.1), lam=0.5 / m)


def _same_bits(one: Result, two: Result) -> None:
    assert one.n_iter == two.n_iter
    assert one.gap == two.gap
    assert one.objective == two.objective
    np.testing.assert_array_equal(one.x, two.x)
    np.testing.assert_array_equal(one.edge_duals(), two.edge_duals())
    np.testing.assert_array_equal(one.labels, two.labels)


@pytest.mark.parametrize(
    "problem", [_complete(), _neighbours(), _regression()], ids=["complete", "knn", "regression"]
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_threads_leave_the_bits_alone(problem: FusionProblem, dtype: str) -> None:
    one, two = (
        fusionopt.solve(problem, AdmmSettings(eps_rel=1e-4, n_threads=n, dtype=dtype)) for n in (1, 2)
    )
    assert one.status == "optimal"
    _same_bits(one, two)


@pytest.mark.parametrize(
    "problem", [_complete(150, 2), _complete(150, 10), _regression(60)], ids=["d2", "d10", "ls"]
)
def test_float32_reaches_the_same_answer(problem: FusionProblem) -> None:
    wide = fusionopt.solve(problem)
    narrow = fusionopt.solve(problem, AdmmSettings(dtype="float32"))
    assert wide.status == narrow.status == "optimal"
    # Both gaps are proofs: the objectives differ by no more.
    assert abs(wide.objective - narrow.objective) <= wide.gap + narrow.gap
    assert narrow.rel_gap <= 1e-6
    oracles.assert_same_partition(narrow.labels, wide.labels)


def test_a_float32_path_starts_each_lam_from_the_last() -> None:
    problem = _complete(120, 3)
    lams = problem.lam * np.linspace(0.4, 1.6, 6)
    wide = fusionopt.solution_path(problem, lams)
    narrow = fusionopt.solution_path(problem, lams, settings=AdmmSettings(dtype="float32"))
    assert [result.status for result in narrow.results] == ["optimal"] * len(lams)
    for one, two in zip(wide.results, narrow.results, strict=True):
        assert abs(one.objective - two.objective) <= one.gap + two.gap


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_float32_does_not_know_the_units(scale: float) -> None:
    points = _groups(60, 2, 4) * scale
    problem = FusionProblem(SquaredDistance(points), lam=0.02 * scale)
    result = fusionopt.solve(problem, AdmmSettings(dtype="float32"))
    assert result.status == "optimal"
    assert result.rel_gap <= 1e-6
