"""lambda_max: closed forms, an independent second-order cone program, and labels on both sides of it."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import fusionopt
from fusionopt import critical
from fusionopt._quotient import flow_bound
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


def _knn(n: int, d: int, seed: int) -> Instance:
    points = np.random.default_rng([5, seed]).standard_normal((n, d))
    edges = catalogue.knn_pairs(points, 8)
    length = np.square(points[edges[:, 0]] - points[edges[:, 1]]).sum(axis=1)
    return catalogue.squared(points, 1.0, edges=edges, weights=np.exp(-0.5 * length / np.median(length)))


def _grid(side: int, d: int) -> Instance:
    node = np.arange(side * side).reshape(side, side)
    pairs = [(node[:, :-1], node[:, 1:]), (node[:-1], node[1:])]
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in pairs])
    points = np.random.default_rng([6, side]).standard_normal((side * side, d))
    return catalogue.squared(points, 1.0, edges=edges, weights=np.ones(len(edges)))


@pytest.mark.parametrize(
    "instance", [_knn(1100, 2, 0), _knn(1100, 3, 1), _grid(35, 2)], ids=["2", "3", "grid"]
)
def test_through_groups(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 1000 nodes: the bracket through few groups lies within that of finished solves of the whole."""
    low, high = fusionopt.lambda_max_bounds(instance.problem())
    assert 0.0 < high - low <= 1e-9 * high
    monkeypatch.setattr(critical, "_MANY_TIMES", instance.n_nodes)
    slow_low, slow_high = fusionopt.lambda_max_bounds(instance.problem())
    assert low <= slow_high
    assert slow_low <= high
    for factor, fused in ((1 + 1e-6, True), (1 - 1e-6, False)):
        result = fusionopt.solve(instance.with_lam(high * factor).problem())
        assert (result.n_clusters == oracles.n_components(instance)) == fused


@pytest.mark.parametrize(
    "instance", [_knn(1100, 2, 0), _knn(1500, 5, 1), _grid(35, 2)], ids=["2", "5", "grid"]
)
def test_swept_bounds(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done where finished solves cost too much: both ends hold, at most 1e-3 apart."""
    exact_low, exact_high = fusionopt.lambda_max_bounds(instance.problem())
    monkeypatch.setattr(critical, "_TOO_MANY", 1.0)
    low, high = fusionopt.lambda_max_bounds(instance.problem())
    assert low <= exact_high
    assert exact_low <= high
    assert high - low <= 1e-3 * high
    assert fusionopt.solve(instance.with_lam(high).problem()).n_clusters == oracles.n_components(instance)


def test_balanced_flow() -> None:
    """Any duals become a flow that carries the forces, whose length is an upper bound."""
    instance = _knn(300, 3, 2)
    rng = np.random.default_rng(7)
    graph, d = instance.problem().graph, 3
    force = rng.standard_normal((300, d))
    labels = graph.component_labels
    for part in range(labels.max() + 1):
        force[labels == part] -= force[labels == part].mean(axis=0)
    bound, flow = flow_bound(graph, force, rng.standard_normal((graph.n_edges, d)), 1.0)
    sums = np.zeros((300, d))
    np.add.at(sums, graph.edges[:, 0], flow)
    np.add.at(sums, graph.edges[:, 1], -flow)
    oracles.assert_close(sums, force, rtol=1e-9)
    assert bound == (np.linalg.norm(flow, axis=1) / graph.weights).max()


def test_singular_regressions_are_as_easy_as_distances() -> None:
    """One sample for three features, no ridge: only the forces at rest count, whatever the curvature."""
    rng = np.random.default_rng(8)
    design, response = rng.standard_normal((60, 1, 3)), rng.standard_normal((60, 1))
    graph = fusionopt.Graph.from_edges(60, np.stack([np.arange(59), np.arange(1, 60)], axis=1), np.ones(59))
    loss = fusionopt.LeastSquares(list(design), list(response))
    low, high = fusionopt.lambda_max_bounds(fusionopt.FusionProblem(loss, graph))
    assert high - low <= 1e-9 * high
    pooled = np.linalg.lstsq(design[:, 0], response[:, 0], rcond=None)[0]
    forces = (response - design[:, 0] @ pooled[:, None]) * design[:, 0]
    # On a chain the flow is unique: partial sums of the forces.
    oracles.assert_close(high, np.linalg.norm(np.cumsum(forces, axis=0)[:-1], axis=1).max(), rtol=2e-9)


@pytest.mark.parametrize("weight", [1e-310, 1e-305])
def test_a_weight_that_takes_it_out_of_float64_is_refused(weight: float) -> None:
    graph = fusionopt.Graph.from_edges(3, [[0, 1], [1, 2]], [1.0, weight])
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance([0.0, 1.0, 1e6]), graph)
    with pytest.raises(fusionopt.InvalidArgumentError, match="beyond float64 here: the smallest weight is"):
        fusionopt.lambda_max(problem)
