"""The CVXPY reference against closed forms, and its dual values against weak duality."""

from __future__ import annotations

import importlib
import sys

import cvxpy
import numpy as np
import pytest

import fusionopt as fo
from fusionopt import FusionProblem, Graph, L2Norm, LeastSquares, SquaredDistance, reference
from fusionopt.errors import InvalidArgumentError, InvalidTypeError, MissingDependencyError

EPS = 1e-11
CLOSED_FORMS = {
    # name: (problem, x, objective); answers of the trouble cases, by elementary calculus
    "apart": (FusionProblem(SquaredDistance([0, 2]), lam=0.5), [0.5, 1.5], 0.75),
    "fused": (FusionProblem(SquaredDistance([0, 2]), lam=7.0), [1, 1], 1.0),
    "line": (FusionProblem(SquaredDistance([0, 1, 3, 7, 12]), lam=0.6), [2.3, 2.3, 3, 5.8, 9.6], 28.81),
    "zero weight": (
        FusionProblem(
            SquaredDistance([0, 2, 10]), Graph.from_edges(3, [(0, 1), (1, 2), (0, 2)], [1, 1, 0]), lam=0.5
        ),
        [0.5, 2, 9.5],
        4.75,
    ),
    "square": (
        FusionProblem(SquaredDistance([[1, 1], [1, -1], [-1, 1], [-1, -1]]), lam=0.2),
        (1 - 0.2 * (1 + np.sqrt(0.5))) * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]),
        None,
    ),
    "components": (
        FusionProblem(SquaredDistance([0, 2, 10, 14, 99]), Graph.from_edges(5, [(0, 1), (2, 3)]), lam=100.0),
        [1, 1, 12, 12, 99],
        5.0,
    ),
    "weightless": (
        FusionProblem(SquaredDistance([0, 2, 10], [1, 1, 0]), Graph.from_edges(3, [(0, 1), (1, 2)]), lam=0.5),
        [0.5, 1.5, 1.5],
        0.75,
    ),
    "weighted": (FusionProblem(SquaredDistance([0, 3], [2, 1]), lam=1.0), [0.5, 2], None),
    "split": (
        FusionProblem(
            SquaredDistance([1, -1, 10, -10]),
            Graph.from_edges(4, [(0, 1), (0, 3), (1, 2)], [0.5, 1, 1]),
            lam=7.4,
        ),
        [-2.65, 2.65, 2.65, -2.65],
        86.955,
    ),
    "lam zero": (FusionProblem(SquaredDistance([0, 2, 10])), [0, 2, 10], 0.0),
    "no edges": (FusionProblem(SquaredDistance([0, 2]), Graph.from_edges(2, []), lam=1.0), [0, 2], 0.0),
    "one node": (FusionProblem(SquaredDistance([[3, 4]]), lam=1.0), [[3, 4]], 0.0),
    "equal rows": (FusionProblem(SquaredDistance(np.ones((5, 2))), lam=1.0), np.ones((5, 2)), 0.0),
    "perfect fit": (
        FusionProblem(LeastSquares([[[1, t]] for t in range(4)], [1, 3, 5, 7]), lam=1e-2),
        np.tile([1, 2], (4, 1)),
        0.0,
    ),
    "ridge alone": (
        FusionProblem(LeastSquares([[[1.0]], [[2.0]]], [2.0, 2.0], ridge=1.0)),
        [[1.0], [0.8]],
        None,
    ),
}


def flow_sums(problem, v):
    sums = np.zeros((problem.n_nodes, problem.n_features))
    edges = problem.graph.edges
    np.add.at(sums, edges[:, 0], v)
    np.add.at(sums, edges[:, 1], -v)
    return sums


def assert_solves(problem, result, tol=1e-6):
    """Stationary with feasible duals, and the repaired duals prove the objective to `tol` relative."""
    radii = problem.lam * problem.graph.weights
    assert result.status == "optimal"
    assert result.dual.shape == (problem.graph.n_edges, problem.n_features)
    assert (np.linalg.norm(result.dual, axis=1) <= radii * (1 + tol)).all()
    terms = np.abs(result.dual).max(initial=0.0) + np.abs(problem.loss.gradient(result.x)).max()
    noise = problem.loss.gradient_error(result.x).max()
    residual = problem.loss.gradient(result.x) + flow_sums(problem, result.dual)
    assert np.abs(residual).max() <= tol * terms + noise
    bound = reference.feasible_dual_value(problem, result.dual)
    # A sum of squares of residuals that are pure noise is at most this.
    slack = noise**2 * problem.n_nodes * problem.n_features * 10 + 1e-13 * result.objective
    assert -slack <= result.objective - bound <= tol * abs(result.objective) + slack
    assert result.objective == problem.objective(result.x)


def test_the_helper_fails_on_a_wrong_sign_and_on_a_wrong_point():
    problem = CLOSED_FORMS["apart"][0]
    good = reference.solve(problem)
    assert_solves(problem, good)
    with pytest.raises(AssertionError):
        assert_solves(problem, reference.ReferenceResult(good.x, good.objective, -good.dual, "optimal"))
    x = good.x + 0.01
    with pytest.raises(AssertionError):
        assert_solves(problem, reference.ReferenceResult(x, problem.objective(x), good.dual, "optimal"))


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_closed_forms(name):
    problem, x, objective = CLOSED_FORMS[name]
    result = reference.solve(problem, eps=EPS)
    assert_solves(problem, result)
    x = np.asarray(x, dtype=float).reshape(result.x.shape)
    # x is known to about the root of the tolerance on F.
    np.testing.assert_allclose(result.x, x, atol=1e-5 * np.abs(x).max())
    if objective is not None:
        assert result.objective == pytest.approx(objective, rel=1e-9)
    assert problem.objective(x) <= result.objective * (1 + 1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e-4, 1e4, 1e8, 1e100])
def test_units_do_not_matter(scale):
    points = np.array([0.0, 1, 3, 7, 12]) * scale
    problem = FusionProblem(SquaredDistance(points), lam=0.6 * scale)
    result = reference.solve(problem, eps=EPS)
    assert_solves(problem, result)
    np.testing.assert_allclose(result.x[:, 0] / scale, [2.3, 2.3, 3, 5.8, 9.6], atol=1e-6)


@pytest.mark.parametrize("offset", [1e4, -1e8])
def test_offsets_do_not_matter(offset):
    points = np.array([0.0, 1, 3, 7, 12])
    graph = Graph.from_edges(6, Graph.complete(5).edges)
    # The lone sixth node far away must not spoil the scale of the others.
    problem = FusionProblem(SquaredDistance(np.append(points + offset, 1e15)), graph, lam=0.6)
    result = reference.solve(problem, eps=EPS)
    assert_solves(problem, result)
    np.testing.assert_allclose(result.x[:5, 0] - offset, [2.3, 2.3, 3, 5.8, 9.6], atol=1e-6)
    assert result.objective == pytest.approx(28.81, rel=1e-6)


@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("n_samples", [1, 2, 9])
@pytest.mark.parametrize("lam", [0.0, 0.01, 0.1, 1.0, 1e6])
def test_regressions(n_samples, ridge, lam):
    rng = np.random.default_rng(n_samples)
    designs = [rng.normal(size=(n_samples, 3)) for _ in range(8)]
    targets = [rng.normal(size=n_samples) for _ in range(8)]
    weights = [rng.uniform(0.5, 2, size=n_samples) for _ in range(8)]
    loss = LeastSquares(designs, targets, ridge, weights)
    problem = FusionProblem(loss, Graph.from_edges(8, [(i, i + 1) for i in range(7)]), lam=lam)
    assert_solves(problem, reference.solve(problem, eps=EPS))


def test_regression_in_other_units():
    rng = np.random.default_rng(0)
    designs = [rng.normal(size=(5, 2)) for _ in range(6)]
    targets = [rng.normal(size=5) for _ in range(6)]
    base = reference.solve(FusionProblem(LeastSquares(designs, targets, 0.1), lam=0.05), eps=EPS)
    # z -> 1e6 z and y -> 1e-5 y: x -> 1e-11 x, F -> 1e-10 F, so lam -> 10 lam and ridge -> 1e12 ridge.
    loss = LeastSquares([1e6 * z for z in designs], [1e-5 * y for y in targets], 1e11)
    problem = FusionProblem(loss, lam=0.5)
    other = reference.solve(problem, eps=EPS)
    assert_solves(problem, other)
    np.testing.assert_allclose(other.x, 1e-11 * base.x, rtol=1e-4, atol=1e-15)


def test_weights_over_many_orders():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(12, 2))
    complete = Graph.complete(12)
    graph = Graph.from_edges(12, complete.edges, 10.0 ** rng.uniform(-6, 2, size=66))
    for lam in (1e-3, 0.1, 1e4):
        problem = FusionProblem(SquaredDistance(points), graph, lam=lam)
        assert_solves(problem, reference.solve(problem))


def test_another_solver():
    problem = CLOSED_FORMS["line"][0]
    result = reference.solve(problem, solver="SCS", eps=1e-7)
    assert_solves(problem, result, tol=1e-4)


def test_a_solver_that_gives_up_is_reported(monkeypatch):
    def fail(*args, **kwargs):
        raise cvxpy.error.SolverError("gave up")

    monkeypatch.setattr(cvxpy.Problem, "solve", fail)
    result = reference.solve(CLOSED_FORMS["apart"][0])
    assert result.status == "numerical_error"
    assert np.isnan(result.objective)
    assert np.isnan(result.x).all()
    assert np.isnan(result.dual).all()


def test_a_tolerance_out_of_reach_is_reported_without_a_warning():
    rng = np.random.default_rng(2)
    problem = FusionProblem(SquaredDistance(rng.normal(size=(8, 2))), lam=0.05)
    result = reference.solve(problem, eps=1e-30)
    assert result.status in {"optimal_inaccurate", "numerical_error"}


@pytest.mark.parametrize("name", [name for name in CLOSED_FORMS if name not in {"no edges", "one node"}])
def test_no_flow_has_a_dual_value_above_the_optimum(name):
    problem, x, _ = CLOSED_FORMS[name]
    best = problem.objective(np.asarray(x, dtype=float).reshape(problem.n_nodes, -1))
    rng = np.random.default_rng(3)
    noise = 1e-13 * (1 + best)
    for size in (0.0, 0.01, 1.0, 100.0):
        v = size * rng.normal(size=(problem.graph.n_edges, problem.n_features))
        assert reference.feasible_dual_value(problem, v) <= best + noise


def test_dual_value_by_hand():
    # D(v) = sum <a_i, u_i> - ||u_i||^2 / 2 with u = (v, -v): -2 v - v^2, at most at v = -lam for lam < 1.
    problem = CLOSED_FORMS["apart"][0]
    assert reference.feasible_dual_value(problem, [[-0.3]]) == pytest.approx(0.6 - 0.09, rel=1e-15)
    assert reference.feasible_dual_value(problem, [-9.0]) == pytest.approx(0.75, rel=1e-14)
    # 1/2 (x - 2)^2 + 1/2 (2 x - 2)^2 with ridge 1: at v = 0 the sum of the separate minima, 1 + 2/5.
    ridge = CLOSED_FORMS["ridge alone"][0]
    assert reference.feasible_dual_value(ridge, [[0.0]]) == pytest.approx(1.0 + 0.4, rel=1e-14)


def test_dual_value_repairs_singular_nodes():
    # The third node weighs nothing, so its flow must vanish; the rest is the two-point problem.
    problem = CLOSED_FORMS["weightless"][0]
    assert reference.feasible_dual_value(problem, [[-0.5], [0.0]]) == pytest.approx(0.75, rel=1e-12)
    assert reference.feasible_dual_value(problem, [[-0.5], [0.4]]) <= 0.75 + 1e-12


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda p: reference.solve("p"), InvalidTypeError, "problem is a str; give a FusionProblem"),
        (
            lambda p: reference.solve(p, solver="NOPE"),
            InvalidArgumentError,
            "solver='NOPE' is unknown; give one of",
        ),
        (lambda p: reference.solve(p, eps=0), InvalidArgumentError, r"eps=0\.0 is not positive"),
        (
            lambda p: reference.feasible_dual_value(p, [[1.0, 2.0]]),
            InvalidArgumentError,
            r"v has shape.*each edge",
        ),
        (lambda p: reference.feasible_dual_value(p, [[np.nan]]), InvalidArgumentError, "v holds NaN"),
        (
            lambda p: reference.feasible_dual_value(CLOSED_FORMS["no edges"][0], [[1.0]]),
            InvalidArgumentError,
            r"v has shape \(1, 1\); the problem has no edges, so it needs \(0, 1\)",
        ),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call(CLOSED_FORMS["apart"][0])


class OtherPenalty(L2Norm.__base__):
    """A penalty that the reference does not know."""

    convex = linear_in_lam = True

    def value(self, t, lam):
        return np.asarray(t)

    derivative = value

    def prox(self, t, lam, step):
        return np.asarray(t)

    prox_vector = prox


class OtherLoss(SquaredDistance.__base__.__base__):
    """A loss that the reference does not know."""

    n_nodes = n_features = 2

    def _values(self, x):
        return x[:, 0]

    def _gradient(self, x):
        return x

    _gradient_error = _hessians_at = majorant = strong_convexity = None


def test_unknown_losses_and_penalties_are_refused_with_a_sentence():
    squares = SquaredDistance(np.eye(2))
    with pytest.raises(
        InvalidTypeError, match="the penalty is a OtherPenalty; the reference solves L2Norm, Sq"
    ):
        reference.solve(FusionProblem(squares, penalty=OtherPenalty()))
    with pytest.raises(InvalidTypeError, match="the penalty is a Scad; the reference solves L2Norm, Sq"):
        reference.solve(FusionProblem(squares, penalty=fo.Scad()))
    own = fo.CallableLoss(lambda x: (x**2).sum(axis=1), lambda x: 2 * x, 2, 2)
    for loss in (OtherLoss(), own):
        with pytest.raises(
            InvalidTypeError, match=f"the loss is a {type(loss).__name__}; the reference solves the"
        ):
            reference.solve(FusionProblem(loss))
    v = [[0.0, 0.0]]
    with pytest.raises(InvalidTypeError, match="problem has SquaredDistance with L1Norm; dual values are"):
        reference.feasible_dual_value(FusionProblem(squares, penalty=fo.L1Norm()), v)
    with pytest.raises(InvalidTypeError, match="problem has OtherLoss with L2Norm; dual values are"):
        reference.feasible_dual_value(FusionProblem(OtherLoss()), v)


def test_a_missing_cvxpy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(MissingDependencyError, match=r"needs CVXPY, which.*pip install cvxpy") as caught:
        reference.solve(CLOSED_FORMS["apart"][0])
    assert caught.value.package == "cvxpy"
    assert importlib.import_module("fusionopt.reference") is reference
