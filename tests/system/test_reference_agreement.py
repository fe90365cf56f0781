"""Random problems against an independent solver: each side's bound must respect the other's value."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt
from fusionopt import reference
from tests import catalogue, oracles
from tests.catalogue import Instance

KINDS = ["complete", "knn", "sparse", "node_weights", "disconnected"]


def _assert_agrees(instance: Instance, eps: float = 1e-9) -> None:
    """D <= F(x_ref) + 1e-9 |F| and P >= D_ref - 1e-9 |F|, values recomputed by the oracles."""
    problem = instance.problem()
    result = fusionopt.solve(problem)
    oracles.assert_solved(instance, result)
    answer = reference.solve(problem, eps=eps)
    other = oracles.objective(instance, answer.x)
    slack = 1e-9 * abs(other)
    assert result.dual_objective <= other + slack
    bound = reference.feasible_dual_value(problem, answer.dual)
    assert result.objective >= bound - slack
    # Both bounds are worth something: they pinch the optimum.
    assert bound <= other + slack
    assert other - bound <= 1e-5 * abs(other)
    assert abs(result.objective - other) <= 2e-6 * abs(other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_squared_distance(kind: str, seed: int) -> None:
    rng = np.random.default_rng([KINDS.index(kind), seed])
    n, d = int(rng.integers(2, 16)), int(rng.integers(1, 5))
    _assert_agrees(catalogue.random_squared(rng, kind, n, d))


@pytest.mark.parametrize("ridge", [0.0, 0.05])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(20))
def test_least_squares(kind: str, seed: int, ridge: float) -> None:
    rng = np.random.default_rng([100 + KINDS.index(kind), seed])
    n, p = int(rng.integers(2, 10)), int(rng.integers(1, 9))
    instance = catalogue.random_regression(rng, kind, n, p, ridge)
    problem = instance.problem()
    result = fusionopt.solve(problem)
    answer = reference.solve(problem, eps=1e-9)
    # Flat directions of single nodes: rounding of the flow there costs at most this radius times its size.
    radius = 10.0 * float(max(np.abs(answer.x).max(), np.abs(result.x).max())) if ridge == 0.0 else 0.0
    oracles.assert_solved(instance, result, radius=radius)
    other = oracles.objective(instance, answer.x)
    slack = 1e-9 * abs(other)
    assert result.dual_objective <= other + slack
    assert abs(result.objective - other) <= 2e-6 * abs(other)
    assert result.objective >= reference.feasible_dual_value(problem, answer.dual) - slack


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["squared", "regression"])
def test_oracles_and_reference_agree(kind: str, loss: str) -> None:
    """Two independent dual values of one flow, two objectives of one point; no `solve` takes part."""
    for seed in range(4):
        rng = np.random.default_rng([200 + KINDS.index(kind), seed])
        instance = (
            catalogue.random_squared(rng, kind, 9, 2)
            if loss == "squared"
            else catalogue.random_regression(rng, kind, 6, 3, 0.05)
        )
        problem = instance.problem()
        answer = reference.solve(problem, eps=1e-10)
        assert answer.status == "optimal"
        assert problem.graph.edges.tolist() == instance.edges.tolist()
        norms = np.linalg.norm(answer.dual, axis=1)
        radii = instance.lam * instance.weights
        flow = answer.dual * np.minimum(1.0, radii * (1 - 1e-15) / np.maximum(norms, 1e-300))[:, None]
        oracles.assert_dual_feasible(instance, flow)
        dual = oracles.dual_value(instance, flow)
        primal = oracles.objective(instance, answer.x)
        oracles.assert_close(
            reference.feasible_dual_value(problem, answer.dual), dual, rtol=1e-11, scale=primal
        )
        oracles.assert_close(problem.objective(answer.x), primal, rtol=1e-13)
        assert -1e-14 * primal <= primal - dual <= 1e-7 * primal
