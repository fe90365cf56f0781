"""Every convex loss and penalty in CVXPY, judged by the optimality conditions of the plain formulas."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt as fo
from fusionopt import reference
from tests.loss_zoo import KINDS, draw

PENALTIES = {"l2": fo.L2Norm(), "squared": fo.SquaredL2(), "l1": fo.L1Norm()}
GRAPHS = {
    "complete": lambda m: fo.Graph.complete(m),
    "knn": lambda m: fo.Graph.knn(np.arange(float(m)) ** 1.5, n_neighbors=2),
    "apart": lambda m: fo.Graph.from_edges(m, [(0, 2), (1, 3)], [1.0, 0.5]),
}


def conditions(problem, result):
    """Residual of grad f + B'v = 0, and how far v is from the subdifferential of the penalty, in units of forces."""
    edges, weights = problem.graph.edges, problem.graph.weights[:, None]
    sums = np.zeros_like(result.x)
    np.add.at(sums, edges[:, 0], result.dual)
    np.add.at(sums, edges[:, 1], -result.dual)
    gradient = problem.loss.gradient(result.x)
    u, v, lam = result.x[edges[:, 0]] - result.x[edges[:, 1]], result.dual, problem.lam
    if isinstance(problem.penalty, fo.SquaredL2):
        away = np.abs(v - 2 * lam * weights * u).max(initial=0.0)
    else:
        one = isinstance(problem.penalty, fo.L1Norm)
        over = (np.abs(v) if one else np.linalg.norm(v, axis=1, keepdims=True)) - lam * weights
        # Fenchel: the penalty at u less <v, u>, over the size of u.
        paid = problem.with_lam(lam).penalty_value(result.x) - (v * u).sum()
        away = max(over.max(initial=0.0), paid / (1 + np.abs(u).max(initial=0.0)))
    scale = 1 + np.abs(gradient).max()
    return np.abs(gradient + sums).max() / scale, away / scale


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_optimality_conditions(kind, penalty):
    for k, (name, graph) in enumerate(GRAPHS.items()):
        rng = np.random.default_rng([k, KINDS.index(kind)])
        case = draw(kind, rng, m=4, p=2, counts=4, ridge=0.2, unit_weights=True, is_sparse=name == "knn")
        problem = fo.FusionProblem(case.loss, graph(4), PENALTIES[penalty], lam=0.05)
        result = reference.solve(problem, eps=1e-10)
        assert result.status in ("optimal", "optimal_inaccurate"), name
        residual, away = conditions(problem, result)
        # Interior points know x to about the root of their tolerance, whatever they call it.
        assert residual <= 3e-5 and away <= 3e-5, name
        assert result.objective == problem.objective(result.x)


def test_the_conditions_fail_at_another_point_and_with_other_duals():
    problem = fo.FusionProblem(fo.Huber([0.0, 1.0, 5.0], 0.7), lam=0.1)
    good = reference.solve(problem)
    assert max(conditions(problem, good)) <= 1e-5
    moved = reference.ReferenceResult(good.x + 0.01, good.objective, good.dual, good.status)
    assert conditions(problem, moved)[0] > 1e-4
    turned = reference.ReferenceResult(good.x, good.objective, -good.dual, good.status)
    assert max(conditions(problem, turned)) > 1e-3


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_robust_losses_in_any_unit(unit):
    loss = fo.Huber(unit * np.array([0.0, 1.0, 5.0]), 0.7 * unit)
    result = reference.solve(fo.FusionProblem(loss, lam=0.1 * unit))
    base = reference.solve(fo.FusionProblem(fo.Huber([0.0, 1.0, 5.0], 0.7), lam=0.1))
    np.testing.assert_allclose(result.x, unit * base.x, atol=1e-6 * unit)
    assert result.objective == pytest.approx(unit**2 * base.objective, rel=1e-7)


def test_missing_cells_and_no_edges():
    missing = fo.SquaredDistance([[0, 0], [2, np.nan], [np.nan, 4]])
    result = reference.solve(fo.FusionProblem(missing, lam=0.2), eps=1e-12)
    u = 0.4 * np.array([2, 4]) / np.sqrt(20)
    # A missing cell is held by the penalty alone.
    np.testing.assert_allclose(result.x, [u, [2, 4] - u, [2, 4] - u], atol=1e-4)
    assert result.objective == pytest.approx(1.628854, abs=1e-6)
    alone = reference.solve(fo.FusionProblem(fo.Huber([3.0, 4.0], 1.0), fo.Graph.from_edges(2, []), lam=1.0))
    np.testing.assert_allclose(alone.x.ravel(), [3, 4], atol=1e-4)
    assert alone.dual.shape == (0, 1)


def test_a_problem_without_minimiser_is_no_answer():
    """Separable labels: the infimum 0 is only approached, and what comes back has a value near it or none."""
    result = reference.solve(fo.FusionProblem(fo.Logistic([[[1.0], [-1.0]]], [[1, -1]])))
    assert not result.status.startswith("optimal") or result.objective < 1e-6
