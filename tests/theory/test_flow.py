"""The flow test against cone programmes written out elsewhere, closed forms and weak duality."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fusionopt as fo
from fusionopt.errors import InvalidArgumentError, MissingDependencyError
from fusionopt.recovery import _regions, flow, lambda_max_1d, lambda_max_socp, min_flow, solve_restricted
from fusionopt.recovery._model import build_model
from fusionopt.recovery._regions import Clique, Patch
from tests import catalogue, oracles
from tests.theory import plain
from tests.theory.cases import KINDS, connected, graph, random_instance


@pytest.mark.parametrize("kind", KINDS)
def test_exact_value_and_bounds(kind: str) -> None:
    rng = np.random.default_rng(100 + KINDS.index(kind))
    checked = 0
    while checked < 3:
        n, d = int(rng.integers(4, 16)), int(rng.integers(1, 4))
        instance = random_instance(rng, kind, n, d)
        p = plain.quadratic(instance)
        labels = plain.close_labels(p, plain.solve_slowly(p)[0], 1e-5)
        if not connected(instance, labels) or len(np.unique(labels)) == n:
            continue
        checked += 1
        problem = instance.problem()
        centres = solve_restricted(problem, labels).centers
        want = plain.least_flow(p, labels, centres)
        exact = min_flow(problem, labels)
        assert exact.value == pytest.approx(want, rel=1e-6)
        assert min_flow(problem, labels, centers=centres).value == pytest.approx(want, rel=1e-6)
        assert (exact.lower_values <= exact.values * (1 + 1e-12)).all()
        assert exact.lower_values.max() == pytest.approx(exact.value, rel=1e-5)
        # From duals: an upper bound, with exact divergence.
        repaired = min_flow(problem, labels, duals=np.zeros((problem.graph.n_edges, d)))
        assert repaired.value >= want * (1 - 1e-7)
        assert repaired.value <= problem.lam
        assert_divergence(instance, labels, centres, repaired.edges, repaired.flows)
        assert_divergence(instance, labels, centres, exact.edges, exact.flows)
        lengths = np.linalg.norm(repaired.flows, axis=1) / weights_of(instance, repaired.edges)
        assert lengths.max() == pytest.approx(repaired.value, rel=1e-12)


def weights_of(instance: catalogue.Instance, edges: np.ndarray) -> np.ndarray:
    """Weights of some of the edges."""
    table = {(int(i), int(j)): float(w) for (i, j), w in zip(instance.edges, instance.weights, strict=True)}
    return np.array([table[int(i), int(j)] for i, j in edges])


def assert_divergence(
    instance: catalogue.Instance, labels: np.ndarray, centres: np.ndarray, edges: np.ndarray, q: np.ndarray
) -> None:
    """sum_j q_ij = -s_i within rounding, in extended precision."""
    s = instance.nodes.gradients(centres[labels].astype(np.longdouble))
    size = np.abs(np.asarray(s, float)).max() + instance.lam * instance.weights.max() * len(instance.edges)
    ends = labels[instance.edges]
    for (i, j), w in zip(
        instance.edges[ends[:, 0] != ends[:, 1]], instance.weights[ends[:, 0] != ends[:, 1]], strict=True
    ):
        u = (centres[labels[i]] - centres[labels[j]]).astype(np.longdouble)
        u = instance.lam * w * u / np.sqrt(u @ u)
        s[i] += u
        s[j] -= u
    np.add.at(s, edges[:, 0], q)
    np.subtract.at(s, edges[:, 1], q)
    # Centres are rounded, so the sum over a cluster is not exactly zero; what is left is its share.
    assert np.abs(np.asarray(s, float)).max() <= 1e-11 * size


def test_divergence_check_notices_a_wrong_flow() -> None:
    instance = catalogue.squared([0.0, 2.0], 2.0)
    labels, centres, edges = np.array([0, 0]), np.array([[1.0]]), np.array([[0, 1]])
    assert_divergence(instance, labels, centres, edges, np.array([[-1.0]]))
    with pytest.raises(AssertionError):
        assert_divergence(instance, labels, centres, edges, np.array([[0.5]]))


def test_two_points() -> None:
    problem = fo.FusionProblem(fo.SquaredDistance([0.0, 2.0]), lam=3.0)
    result = min_flow(problem, [0, 0])
    assert result.value == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(result.flows, [[-1.0]], rtol=1e-12)
    np.testing.assert_array_equal(result.edges, [[0, 1]])
    alone = min_flow(problem, [0, 1])
    assert alone.value == 0.0 and alone.edges.shape == (0, 2) and alone.flows.shape == (0, 1)


def test_simple_bounds_on_the_complete_graph() -> None:
    """max_i ||g_i|| / (n - 1) <= value <= max_ij ||g_i - g_j|| / n (theory of uniform weights)."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        a = rng.standard_normal((9, 2))
        value = min_flow(fo.FusionProblem(fo.SquaredDistance(a), lam=1.0), np.zeros(9)).value
        g = a.mean(axis=0) - a
        assert np.linalg.norm(g, axis=1).max() / 8 <= value * (1 + 1e-9)
        assert value <= np.linalg.norm(g[:, None] - g, axis=2).max() / 9 * (1 + 1e-9)


def test_a_cluster_that_inside_edges_do_not_connect() -> None:
    chain = fo.Graph.from_edges(3, [[0, 1], [1, 2]])
    result = min_flow(fo.FusionProblem(fo.SquaredDistance([0.0, 5.0, 0.1]), chain, lam=1.0), [0, 1, 0])
    assert result.value == np.inf and result.values.tolist() == [np.inf, 0.0]
    lonely = fo.Graph.complete(3, node_weights=[1.0, 1.0, 0.0])
    result = min_flow(fo.FusionProblem(fo.SquaredDistance([0.0, 0.1, 0.2]), lonely, lam=1.0), [0, 0, 0])
    assert result.value == np.inf
    empty = fo.Graph.complete(3, weight=0.0)
    result = min_flow(fo.FusionProblem(fo.SquaredDistance([0.0, 0.1, 0.2]), empty, lam=1.0), [0, 0, 1])
    assert result.value == np.inf


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_scale_changes_units_only(scale: float) -> None:
    instance = catalogue.random_squared(np.random.default_rng(1), "knn", 14, 2)
    labels = np.zeros(14)
    base = min_flow(instance.problem(), labels)
    scaled = min_flow(instance.scaled(scale).problem(), labels)
    assert scaled.value == pytest.approx(base.value * scale, rel=1e-7)
    weighted = fo.Graph.from_edges(14, instance.edges, instance.weights * scale)
    other = min_flow(fo.FusionProblem(instance.problem().loss, weighted, lam=instance.lam / scale), labels)
    assert other.value == pytest.approx(base.value / scale, rel=1e-7)


def test_repair_reaches_what_is_just_possible() -> None:
    """From zero duals, at 1.001 of the least lam: a flow within lam is found without a cone programme."""
    rng = np.random.default_rng(2)
    for kind in ("complete", "node_weights", "knn", "cycle", "tree"):
        instance = random_instance(rng, kind, 20, 2)
        labels = instance.graph().component_labels
        least = lambda_max_socp(instance.problem())
        zeros = np.zeros((len(instance.edges), 2))
        above = instance.problem().with_lam(1.001 * least)
        assert min_flow(above, labels, duals=zeros).value <= above.lam
        below = instance.problem().with_lam(0.99 * least)
        result = min_flow(below, labels, duals=zeros)
        assert result.value > below.lam
        assert result.lower_values.max() <= least * (1 + 1e-7)


def test_lambda_max_of_known_cases() -> None:
    def of(a: list, edges: object = None, weights: object = None) -> float:
        graph = None if edges is None else fo.Graph.from_edges(len(a), edges, weights)
        return lambda_max_socp(fo.FusionProblem(fo.SquaredDistance(a), graph))

    assert of([0.0, 2.0]) == pytest.approx(1.0, rel=1e-8)
    assert of([[1, 1], [1, -1], [-1, 1], [-1, -1]]) == pytest.approx(2 / (2 + np.sqrt(2)), rel=1e-8)
    assert of([0, 1, 3, 7, 12]) == pytest.approx(1.85, rel=1e-8)
    assert of([1, -1, 10, -10], [[0, 1], [0, 3], [1, 2]], [0.5, 1, 1]) == pytest.approx(18.0, rel=1e-8)
    assert of(np.ones((5, 2)).tolist()) == 0.0
    assert of([0, 2, 10, 14, 99], [[0, 1], [2, 3]]) == pytest.approx(2.0, rel=1e-8)
    assert lambda_max_socp(fo.FusionProblem(fo.SquaredDistance([[3.0, 4.0]]))) == 0.0


def test_lambda_max_in_one_dimension() -> None:
    rng = np.random.default_rng(3)
    for trial in range(8):
        n = int(rng.integers(2, 12))
        r = None if trial % 2 else 10.0 ** rng.uniform(-1.5, 1.5, n)
        graph = fo.Graph.complete(n, weight=0.3, node_weights=r)
        loss: fo.SquaredDistance | fo.LeastSquares
        if trial % 3 == 0:
            loss = fo.LeastSquares(
                [rng.standard_normal((4, 1)) for _ in range(n)], [rng.standard_normal(4) for _ in range(n)]
            )
        else:
            loss = fo.SquaredDistance(rng.standard_normal(n) + 100.0, sample_weight=rng.uniform(0.5, 2.0, n))
        problem = fo.FusionProblem(loss, graph)
        assert lambda_max_1d(problem) == pytest.approx(lambda_max_socp(problem), rel=1e-7)
    assert lambda_max_1d(fo.FusionProblem(fo.SquaredDistance([3.0]))) == 0.0
    with pytest.raises(InvalidArgumentError, match="2 features and a graph that is complete"):
        lambda_max_1d(fo.FusionProblem(fo.SquaredDistance(np.eye(2))))
    with pytest.raises(InvalidArgumentError, match="not complete"):
        lambda_max_1d(fo.FusionProblem(fo.SquaredDistance([0.0, 1.0]), fo.Graph.from_edges(2, [[0, 1]])))


# ---- the rooms


def clique_and_patch(r: np.ndarray, nodes: np.ndarray) -> tuple[Clique, Patch]:
    """The same cluster of a complete graph seen as pairs and as an edge list."""
    n = len(r)
    complete = fo.Graph.complete(n, weight=0.7, node_weights=r)
    listed = fo.Graph.from_edges(n, complete.edges, complete.weights)
    labels = np.ones(n, dtype=np.int64)
    labels[nodes] = 0
    return Clique(0, nodes, r[nodes], 0.7, complete), Patch(labels, np.array([0]), listed, listed.weights)


@pytest.mark.parametrize("uniform", [True, False])
def test_both_rooms_agree(uniform: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    r = np.ones(12) if uniform else rng.uniform(0.1, 3.0, 12)
    if not uniform:
        r[[0, 5]] = 0.0  # nodes without edges shift the rows of the duals
    nodes = np.array([1, 3, 4, 7, 9, 11])
    clique, patch = clique_and_patch(r, nodes)
    monkeypatch.setattr(_regions, "_BLOCK_EDGES", 4)
    np.testing.assert_array_equal(clique.edges, patch.edges)
    np.testing.assert_allclose(clique.weights, patch.weights, rtol=1e-15)
    assert clique.n_edges == patch.n_edges == 15
    duals = rng.standard_normal((len(patch_graph_edges(r)), 3))
    q = clique.gather(duals, 2.0)
    np.testing.assert_allclose(q, patch.gather(duals, 2.0), rtol=1e-15)
    np.testing.assert_allclose(clique.divergence(q), patch.divergence(q), atol=1e-14)
    np.testing.assert_allclose(clique.ratios(q), patch.ratios(q), rtol=1e-14)
    excess = rng.standard_normal((6, 3))
    excess -= excess.mean(axis=0)
    one, two = q.copy(), q.copy()
    clique.correct(one, excess)
    patch.correct(two, excess)
    np.testing.assert_allclose(one, two, atol=1e-13)
    np.testing.assert_allclose(clique.divergence(one - q), excess, atol=1e-13)
    p = clique.potentials(excess)
    other = patch.potentials(excess)
    np.testing.assert_allclose(p - p[0], other - other[0], atol=1e-12)
    assert clique.length(p) == pytest.approx(patch.length(other), rel=1e-12)
    limit = np.array([float(np.median(clique.ratios(q)))])
    one, two = q.copy(), q.copy()
    assert clique.clip(one, limit) == pytest.approx(patch.clip(two, limit), rel=1e-12)
    np.testing.assert_allclose(one, two, rtol=1e-14)
    assert clique.ratios(one).max() <= limit[0] * (1 + 1e-15)
    at = rng.random(6)
    values = rng.random(15)
    place = np.searchsorted(nodes, clique.edges)
    assert clique.largest_sum(values, at) == pytest.approx((values + at[place].sum(axis=1)).max())


def patch_graph_edges(r: np.ndarray) -> np.ndarray:
    """Edges of the whole complete graph."""
    return fo.Graph.complete(len(r), weight=0.7, node_weights=r).edges


def test_large_patches_are_repaired_by_conjugate_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    points = rng.standard_normal((60, 2))
    g = fo.Graph.knn(points, 6)
    labels = g.component_labels
    excess = rng.standard_normal((60, 2))
    for k in range(g.n_components):
        excess[labels == k] -= excess[labels == k].mean(axis=0)
    flows = []
    for limit in (3000, 0):
        monkeypatch.setattr(_regions, "_FACTOR_LIMIT", limit)
        patch = Patch(labels, np.arange(g.n_components), g, g.weights)
        q = np.zeros((g.n_edges, 2))
        patch.correct(q, excess)
        np.testing.assert_allclose(patch.divergence(q), excess, atol=1e-9)
        flows.append(q)
    np.testing.assert_allclose(flows[1], flows[0], atol=1e-8)


@pytest.mark.parametrize("kind", ["tree", "cycle", "knn", "chain"])
def test_tree_loads_cover_every_repair(kind: str) -> None:
    """Any node errors within the bounds that add up to zero can be sent along the tree within the loads."""
    rng = np.random.default_rng(6)
    n = 15
    if kind == "knn":
        g = fo.Graph.knn(rng.standard_normal((n, 2)), 4)
    else:
        g = fo.Graph.from_edges(n, *graph(rng, kind, n))
    labels = g.component_labels
    patch = Patch(labels, np.arange(g.n_components), g, g.weights)
    slack, bounds = rng.random(g.n_edges), rng.random((n, 2))
    loads = patch.tree_loads(slack, bounds)
    tree = np.flatnonzero(loads[:, 0] > 0)
    assert len(tree) == n - g.n_components
    incidence = np.zeros((len(tree), n))
    incidence[np.arange(len(tree)), g.edges[tree, 0]] = 1.0
    incidence[np.arange(len(tree)), g.edges[tree, 1]] = -1.0
    for _ in range(50):
        errors = rng.standard_normal((n, 2))
        errors *= (bounds[:, 0] * rng.random(n) / np.linalg.norm(errors, axis=1))[:, None]
        for k in range(g.n_components):
            inside = np.flatnonzero(labels == k)
            errors[inside] -= errors[inside].mean(axis=0)
            errors[inside] *= min(
                1.0,
                float((bounds[inside, 0] / np.maximum(np.linalg.norm(errors[inside], axis=1), 1e-300)).min()),
            )
        q = np.linalg.lstsq(incidence.T, errors, rcond=None)[0]
        np.testing.assert_allclose(incidence.T @ q, errors, atol=1e-12)
        assert (np.linalg.norm(q, axis=1) <= loads[tree, 0] * (1 + 1e-9)).all()
    # It runs along the edges with the most slack: no edge off the tree is better than the worst on its cycle.
    if kind == "cycle":
        assert slack[np.flatnonzero(loads[:, 0] == 0)[0]] == slack.min()


def test_demand_adds_up_to_zero() -> None:
    rng = np.random.default_rng(7)
    for kind in ("complete", "node_weights", "knn"):
        instance = catalogue.random_squared(rng, kind, 20, 2)
        labels = np.arange(20) // 5
        model = build_model(instance.problem(), labels)
        demand = flow.node_demand(model, rng.standard_normal((4, 2)))
        for k in range(4):
            assert np.abs(demand[labels == k].sum(axis=0)).max() <= 1e-13 * np.abs(demand).max()


def test_arguments_and_missing_cvxpy(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = fo.FusionProblem(fo.SquaredDistance([0.0, 2.0]), lam=1.0)
    with pytest.raises(InvalidArgumentError, match="duals"):
        min_flow(problem, [0, 0], duals=[[0.0], [1.0]])
    with pytest.raises(InvalidArgumentError, match="centers"):
        min_flow(problem, [0, 0], centers=[[0.0], [1.0]])
    single = fo.FusionProblem(fo.SquaredDistance([[1.0, 2.0]]))
    assert min_flow(single, [0], duals=np.zeros((0, 2))).value == 0.0
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(MissingDependencyError, match="pip install cvxpy") as caught:
        min_flow(problem, [0, 0])
    assert caught.value.package == "cvxpy"
    assert min_flow(problem, [0, 0], duals=[[0.0]]).value == pytest.approx(1.0)
    assert oracles.renumber([3, 3, 1]).tolist() == [0, 0, 1]
