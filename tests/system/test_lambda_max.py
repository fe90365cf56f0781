"""lambda_max: closed forms, an independent second-order cone program, and labels on both sides of it."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import fusionopt
from tests import catalogue, oracles
from tests.catalogue import Instance


def _flow_bound(instance: Instance) -> float:
    """min t such that some flow with ||v_e|| <= t w_e carries the gradients at the pooled minimisers."""
    n, d = instance.n_nodes, instance.n_features
    shell = np.zeros((n, 1))
    parts = oracles.exact_labels(instance, shell)
    gradients = np.zeros((n, d))
    for part in range(int(parts.max()) + 1):
        members = np.flatnonzero(parts == part)
        gradients[members] = _pooled_gradients(instance, members)
    scale = float(np.abs(gradients).max())
    if scale <= 1e-14:
        return 0.0
    incidence = np.zeros((n, len(instance.edges)))
    columns = np.arange(len(instance.edges))
    incidence[instance.edges[:, 0], columns], incidence[instance.edges[:, 1], columns] = 1.0, -1.0
    flow, t = cp.Variable((len(columns), d)), cp.Variable()
    cones = cp.SOC(cp.multiply(t, instance.weights), flow, axis=1)
    model = cp.Problem(cp.Minimize(t), [incidence @ flow == -gradients / scale, cones])
    model.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(t.value) * scale


def _pooled_gradients(instance: Instance, members: np.ndarray) -> np.ndarray:
    nodes = instance.nodes
    if isinstance(nodes, oracles.SquaredNodes):
        a, s = nodes.targets[members], nodes.sample_weight[members]
        centre = (s[:, None] * a).sum(axis=0) / s.sum()
        return s[:, None] * (centre - a)
    hessian = sum(nodes.hessian(int(i)) for i in members)
    linear = sum(nodes.designs[i].T @ nodes.responses[i] / len(nodes.responses[i]) for i in members)
    y = np.linalg.lstsq(hessian, linear, rcond=None)[0]
    rows = np.tile(y, (instance.n_nodes, 1)).astype(np.longdouble)
    return np.asarray(nodes.gradients(rows), dtype=float)[members]


@pytest.mark.parametrize(
    ("instance", "want"),
    [
        (catalogue.line_complete([0.0, 2.0], 0.0), 1.0),
        (catalogue.square(0.0), 2.0 - np.sqrt(2.0)),
        (catalogue.square(0.0, cycle=True), 1.0),
        (catalogue.line_complete([0.0, 1.0, 3.0, 7.0, 12.0], 0.0), 1.85),
        (catalogue.splitting(0.1), 18.0),
        (catalogue.disconnected(), 2.0),
        (catalogue.two_piles([0, 0, 0], [2, 2, 2], (2, 1), 0.0), 2.0 / np.sqrt(3.0)),
        (catalogue.weighted_pair([0.0], [3.0], (2.0, 1.0), 1.0, 0.1), 2.0),
        (catalogue.simplex(7, 0.0), np.sqrt(2.0) / 7),
        (catalogue.polygon(9, 0.0), np.tan(np.pi / 18)),
        (catalogue.polygon(9, 0.0, cycle=True), 0.5 / np.sin(np.pi / 9)),
    ],
)
def test_closed_forms(instance: Instance, want: float) -> None:
    problem = instance.problem()
    got = fusionopt.lambda_max(problem)
    oracles.assert_close(got, want, rtol=2e-9)
    low, high = fusionopt.lambda_max_bounds(problem)
    assert low * (1 - 1e-14) <= want <= high * (1 + 1e-14)
    assert high - low <= 1e-9 * high
    assert got == high


@pytest.mark.parametrize(
    "instance",
    [
        catalogue.squared(np.ones((5, 2)), 1.0),
        catalogue.squared([[3.0, 4.0]], 1.0),
        catalogue.squared(np.arange(4.0), 1.0, edges=[]),
        catalogue.exact_lines(1.0),
    ],
)
def test_zero_when_all_agree(instance: Instance) -> None:
    got = fusionopt.lambda_max(instance.problem())
    assert 0.0 <= got <= 1e-14


@pytest.mark.parametrize("seed", range(10))
def test_one_feature_complete(seed: int) -> None:
    """max over k of |sum of the k smallest a - k mean| / (k (n - k)): the last merge of the line."""
    rng = np.random.default_rng([1, seed])
    values = rng.standard_normal(int(rng.integers(2, 60))) * 10.0 ** rng.integers(-8, 9)
    got = fusionopt.lambda_max(catalogue.line_complete(values, 0.0).problem())
    oracles.assert_close(got, catalogue.line_merges(values)[-1], rtol=2e-9)


@pytest.mark.parametrize("kind", ["complete", "node_weights", "knn", "sparse", "disconnected", "regression"])
@pytest.mark.parametrize("seed", range(10))
def test_cone_program(kind: str, seed: int) -> None:
    rng = np.random.default_rng([2, seed])
    n, d = int(rng.integers(2, 14)), int(rng.integers(1, 4))
    if kind == "regression":
        instance = catalogue.random_regression(
            rng, ["complete", "sparse"][seed % 2], n, d, [0.0, 0.1][seed // 5]
        )
    else:
        instance = catalogue.random_squared(rng, kind, n, d)
    oracles.assert_close(fusionopt.lambda_max(instance.problem()), _flow_bound(instance), rtol=1e-6)


def _sized(kind: str, seed: int) -> Instance:
    rng = np.random.default_rng([3, seed])
    n = int(np.round(np.exp(rng.uniform(np.log(5), np.log(200)))))
    points = rng.standard_normal((n, int(rng.integers(1, 6))))
    if kind == "complete":
        return catalogue.squared(points, 1.0)
    edges = catalogue.knn_pairs(points, min(10, n - 1))
    length = np.square(points[edges[:, 0]] - points[edges[:, 1]]).sum(axis=1)
    return catalogue.squared(points, 1.0, edges=edges, weights=np.exp(-0.5 * length / np.median(length)))


@pytest.mark.parametrize("kind", ["complete", "knn"])
@pytest.mark.parametrize("seed", range(50))
def test_labels_on_both_sides(kind: str, seed: int) -> None:
    """At lambda_max (1 + 1e-6) one cluster a component; at (1 - 1e-6), and at (1 - 1e-3), more."""
    instance = _sized(kind, seed)
    components = oracles.n_components(instance)
    top = fusionopt.lambda_max(instance.problem())
    for factor, fused in ((1 + 1e-6, True), (1 - 1e-6, False), (1 - 1e-3, False)):
        at = instance.with_lam(top * factor)
        result = fusionopt.solve(at.problem())
        oracles.assert_solved(at, result)
        assert (result.n_clusters == components) == fused, (
            f"{result.n_clusters} clusters at {factor} lambda_max"
        )


@pytest.mark.parametrize("c", [1e-8, 1e-3, 1e8])
def test_scales_with_the_data(c: float) -> None:
    for kind in ("complete", "knn"):
        instance = _sized(kind, 7)
        plain = fusionopt.lambda_max(instance.problem())
        oracles.assert_close(fusionopt.lambda_max(instance.scaled(c).problem()), c * plain, rtol=3e-9)


@pytest.mark.parametrize("c", [1e-8, 1e-30, 1e30])
@pytest.mark.parametrize("penalty", [fusionopt.L2Norm(), fusionopt.L1Norm()])
def test_scales_with_the_features_of_a_logistic_loss(c: float, penalty: fusionopt.L2Norm) -> None:
    # x grows as the features shrink: a step measured in forces must not drown in the digits of x.
    rng = np.random.default_rng(3)
    designs = [rng.standard_normal((30, 2)) for _ in range(6)]
    labels = [np.where(z[:, 0] + (-1) ** i * z[:, 1] > 0.3, 1, -1) for i, z in enumerate(designs)]

    def top(unit: float) -> float:
        loss = fusionopt.Logistic([unit * z for z in designs], labels, ridge=0.1 * unit**2)
        return fusionopt.lambda_max(fusionopt.FusionProblem(loss, penalty=penalty))

    oracles.assert_close(top(c), c * top(1.0), rtol=1e-8)
