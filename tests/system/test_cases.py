"""The trouble cases with stated answers, and their kin: values, labels, certificate, status."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt
from fusionopt import AdmmSettings, FusionProblem, Graph, SquaredDistance
from tests import catalogue, oracles
from tests.catalogue import Instance

FIVE = [0.0, 1.0, 3.0, 7.0, 12.0]
SIX = [1.3, 2.1, 2.9, 7.2, 8.1, 8.8]


def _size(instance: Instance) -> float:
    """Largest coordinate of the answer or of the targets."""
    assert instance.x is not None
    size = float(np.abs(instance.x).max())
    if isinstance(instance.nodes, oracles.SquaredNodes):
        size = max(size, float(np.abs(instance.nodes.targets).max()))
    return size


def assert_answer(instance: Instance, labels: bool = True, radius: float = 0.0) -> fusionopt.Result:
    """Solve with defaults; objective within the gap, x to 1e-8 of the data's size, labels as stated."""
    assert instance.x is not None
    assert instance.labels is not None
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result, radius=radius)
    oracles.assert_brackets(instance, result, instance.optimum)
    oracles.assert_close(result.x, instance.x, rtol=1e-8, scale=_size(instance))
    if labels:
        oracles.assert_same_partition(result.labels, instance.labels)
    return result


@pytest.mark.parametrize("lam", [0.0, 1e-9, 0.3, 0.999, 0.999999, 1.0, 1.000001, 1.001, 1.5, 1e6])
def test_a1_two_points(lam: float) -> None:
    # The one case whose labels hold right up to the event, which itself counts as fused.
    result = assert_answer(catalogue.line_complete([0.0, 2.0], lam))
    want = 2.0 * lam - lam * lam if lam < 1.0 else 1.0
    oracles.assert_close(result.objective, want, rtol=1e-12)
    assert result.n_clusters == (1 if lam >= 1.0 else 2)
    if lam == 0.0:
        assert result.gap == 0.0
        assert result.objective == 0.0


@pytest.mark.parametrize("stop", [1, 2, 5, 20])
@pytest.mark.parametrize("lam", [0.2, 0.4, 0.41, 0.6, 0.98, 0.99])
def test_a3_certificate_at_every_stop(lam: float, stop: int) -> None:
    instance = catalogue.line_complete(SIX, lam)
    result = fusionopt.solve(instance.problem(), AdmmSettings(max_iter=stop))
    assert result.n_iter <= stop
    assert result.status in ("optimal", "user_limit")
    oracles.assert_certificate(instance, result)
    oracles.assert_brackets(instance, result, instance.optimum)
    oracles.assert_partition(instance, result)


@pytest.mark.parametrize("lam", [0.2, 0.34, 0.36, 0.4, 0.41, 0.6, 0.98, 0.99])
def test_a3_labels(lam: float) -> None:
    # 0.4 is an event: there the values count, not the labels.
    assert_answer(catalogue.line_complete(SIX, lam), labels=lam != 0.4)


@pytest.mark.parametrize("stop", [1, 2, 3, 5, 10, 20, 50])
@pytest.mark.parametrize("kind", ["complete", "node_weights", "knn", "sparse", "disconnected"])
def test_a3_kin_random_graphs(kind: str, stop: int) -> None:
    rng = np.random.default_rng([3, stop])
    for size in (4, 15, 40):
        instance = catalogue.random_squared(rng, kind, size, int(rng.integers(1, 5)))
        result = fusionopt.solve(instance.problem(), AdmmSettings(max_iter=stop))
        assert result.n_iter <= stop
        assert result.status in ("optimal", "user_limit")
        oracles.assert_certificate(instance, result)
        oracles.assert_partition(instance, result)


@pytest.mark.parametrize("stop", [1, 5, 20])
@pytest.mark.parametrize("kind", ["complete", "knn", "sparse"])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_a3_kin_least_squares(kind: str, ridge: float, stop: int) -> None:
    rng = np.random.default_rng([4, stop])
    instance = catalogue.random_regression(rng, kind, 12, 3, ridge)
    result = fusionopt.solve(instance.problem(), AdmmSettings(max_iter=stop))
    assert result.n_iter <= stop
    assert result.status in ("optimal", "user_limit")
    # Nodes with fewer samples than features are flat along some directions.
    radius = float(10.0 * np.abs(result.x).max()) if ridge == 0.0 else 0.0
    oracles.assert_certificate(instance, result, radius=radius)
    oracles.assert_partition(instance, result)


@pytest.mark.parametrize(
    ("lam", "x", "objective"),
    [
        (0.6, [2.3, 2.3, 3.0, 5.8, 9.6], 28.81),
        (1.6, [4.35, 4.35, 4.35, 4.35, 5.6], 47.975),
        (2.0, [4.6] * 5, None),
    ],
)
def test_a4_printed_values(lam: float, x: list[float], objective: float | None) -> None:
    result = fusionopt.solve(FusionProblem(SquaredDistance(np.array(FIVE)[:, None]), lam=lam))
    oracles.assert_close(result.x[:, 0], x, rtol=1e-10)
    if objective is not None:
        oracles.assert_close(result.objective, objective, rtol=1e-12)


@pytest.mark.parametrize("offset", [-1e-3, -1e-5, 1e-5, 1e-3])
@pytest.mark.parametrize("event", range(4))
def test_a4_labels_beside_every_merge(event: int, offset: float) -> None:
    lam = catalogue.line_merges(FIVE)[event] * (1.0 + offset)
    assert_answer(catalogue.line_complete(FIVE, lam))


@pytest.mark.parametrize("seed", range(20))
def test_a4_kin_random_lines(seed: int) -> None:
    """One feature, complete graph: exact labels from rational arithmetic, lam next to and between events."""
    rng = np.random.default_rng([44, seed])
    n = int(rng.integers(2, 40))
    values = rng.standard_normal(n) if seed % 2 else rng.integers(-5, 6, size=n).astype(float)
    merges = np.unique(catalogue.line_merges(values))
    merges = merges[merges > 0]
    if len(merges) == 0:
        return
    event = float(rng.choice(merges))
    for lam in (event * (1 - 1e-5), event * (1 + 1e-5), float(merges[-1] * rng.uniform(0.05, 1.05))):
        near = np.abs(merges / lam - 1.0).min() < 1e-6
        assert_answer(catalogue.line_complete(values, lam), labels=not near)


def test_a5_zero_weight_is_no_edge() -> None:
    with_zero = FusionProblem(
        SquaredDistance(np.array([[0.0], [2.0], [10.0]])),
        graph=Graph.from_edges(3, [(0, 1), (1, 2), (0, 2)], [1.0, 1.0, 0.0]),
        lam=0.5,
    )
    without = catalogue.squared([0.0, 2.0, 10.0], 0.5, [(0, 1), (1, 2)], x=[0.5, 2.0, 9.5], labels=[0, 1, 2])
    result, plain = fusionopt.solve(with_zero), assert_answer(without)
    assert result.x.tobytes() == plain.x.tobytes()
    oracles.assert_close(result.objective, 4.75, rtol=1e-12)
    assert result.n_clusters == 3


def test_a5_zero_weight_never_joins() -> None:
    problem = FusionProblem(
        SquaredDistance(np.array([[1.0], [1.0]])), graph=Graph.from_edges(2, [(0, 1)], [0.0]), lam=1.0
    )
    result = fusionopt.solve(problem)
    assert result.status == "optimal"
    assert result.labels.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["complete", "knn", "sparse", "disconnected"])
def test_a5_lam_zero_returns_the_data(kind: str) -> None:
    instance = catalogue.random_squared(np.random.default_rng(5), kind, 12, 2).with_lam(0.0)
    assert isinstance(instance.nodes, oracles.SquaredNodes)
    points = instance.nodes.targets.copy()
    points[5] = points[2]
    nodes = oracles.SquaredNodes(points, instance.nodes.sample_weight)
    instance = Instance(nodes, instance.edges, instance.weights, 0.0, instance.complete)
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)
    assert result.x.tobytes() == points.tobytes()
    assert result.objective == 0.0
    assert result.gap == 0.0
    joined = any({2, 5} == set(edge) for edge in instance.edges.tolist())
    assert bool(result.labels[2] == result.labels[5]) == joined
    assert result.n_clusters == (11 if joined else 12)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_a5_bad_weight_names_the_edge(weight: float) -> None:
    with pytest.raises(ValueError, match=r"(?s)\(?1, 2\)?"):
        Graph.from_edges(3, [(0, 1), (1, 2)], [1.0, weight])


@pytest.mark.parametrize("lam", [1e-6, 1e-2, 1.0])
def test_a6_zero_objective(lam: float) -> None:
    instance = catalogue.exact_lines(lam)
    result = fusionopt.solve(instance.problem())
    assert result.status == "optimal"
    assert result.n_clusters == 1
    oracles.assert_close(result.x, np.tile([1.0, 2.0], (4, 1)), rtol=1e-8)
    assert 0.0 <= result.objective <= 1e-14
    assert result.rel_gap == 0.0
    oracles.assert_certificate(instance, result, radius=10.0)
    oracles.assert_partition(instance, result)


@pytest.mark.parametrize("lam", [1e-4, 0.1, 10.0])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a6_kin_more_features(lam: float, scale: float) -> None:
    """One exact observation a node of one shared model in four features: F* = 0."""
    rng = np.random.default_rng(66)
    model = scale * rng.standard_normal(4)
    designs = [rng.standard_normal((1, 4)) for _ in range(9)]
    loss = fusionopt.LeastSquares(designs, [z @ model for z in designs])
    result = fusionopt.solve(FusionProblem(loss, lam=lam * scale))
    assert result.status == "optimal"
    assert result.n_clusters == 1
    assert result.rel_gap == 0.0
    oracles.assert_close(result.x, np.tile(model, (9, 1)), rtol=1e-7)


@pytest.mark.parametrize("lam", [0.0, 1e-6, 0.3, 1.0, 1.15470, 1.15471, 3.0])
def test_b1_duplicates(lam: float) -> None:
    result = assert_answer(catalogue.two_piles([0, 0, 0], [2, 2, 2], (2, 1), lam))
    if lam == 1.0:
        oracles.assert_close(result.x[0], np.full(3, 1 / np.sqrt(3.0)), rtol=1e-10)
        oracles.assert_close(result.x[2], np.full(3, 0.845299), rtol=1e-6)


@pytest.mark.parametrize("sizes", [(1, 1), (5, 1), (3, 40), (100, 100)])
@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.9999, 1.0001, 7.0])
def test_b1_kin_piles(sizes: tuple[int, int], fraction: float) -> None:
    a, b = np.array([0.3, -1.7, 5.0]), np.array([2.0, 2.0, 1.0])
    lam = fraction * float(np.linalg.norm(a - b)) / sum(sizes)
    assert_answer(catalogue.two_piles(a, b, sizes, lam))


@pytest.mark.parametrize("lam", [0.0, 1e-12, 1.0, 1e12])
@pytest.mark.parametrize("value", [0.0, 1.0, -3e-9, 7e11])
def test_b2_identical_points(lam: float, value: float) -> None:
    points = np.full((5, 2), value)
    instance = catalogue.squared(points, lam, x=points, labels=np.zeros(5))
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)
    assert result.x.tobytes() == points.tobytes()
    assert result.objective == 0.0
    assert result.gap == 0.0
    assert result.rel_gap == 0.0
    assert result.n_clusters == 1
    assert result.n_iter <= 1


@pytest.mark.parametrize("complete", [True, False])
@pytest.mark.parametrize("lam", [0.0, 2.0])
def test_b2_one_row(lam: float, complete: bool) -> None:
    graph = Graph.complete(1) if complete else Graph.from_edges(1, np.empty((0, 2), dtype=np.int64))
    result = fusionopt.solve(FusionProblem(SquaredDistance(np.array([[3.0, 4.0]])), graph=graph, lam=lam))
    assert result.status == "optimal"
    assert result.x.tolist() == [[3.0, 4.0]]
    assert result.labels.tolist() == [0]
    assert result.n_clusters == 1
    assert result.objective == result.gap == result.rel_gap == 0.0
    assert result.edge_duals().shape == (0, 2)
    assert result.n_iter <= 1


def test_b2_no_edges() -> None:
    points = np.random.default_rng(0).standard_normal((6, 3))
    instance = catalogue.squared(points, 3.0, edges=[], x=points, labels=np.arange(6))
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)
    assert result.x.tobytes() == points.tobytes()
    assert result.n_clusters == 6


@pytest.mark.parametrize("lam", [0.01, 0.3, 0.58, 0.5857, 0.5858, 0.6, 4.0])
def test_b3_square(lam: float) -> None:
    assert assert_answer(catalogue.square(lam)).n_clusters in (1, 4)


@pytest.mark.parametrize("lam", [0.01, 0.5, 0.9999, 1.0001, 3.0])
def test_b3_cycle(lam: float) -> None:
    assert assert_answer(catalogue.square(lam, cycle=True)).n_clusters in (1, 4)


@pytest.mark.parametrize("fraction", [0.3, 0.999, 1.001])
@pytest.mark.parametrize("n", [3, 5, 12, 30])
def test_b3_kin_all_at_once(n: int, fraction: float) -> None:
    assert_answer(catalogue.simplex(n, fraction * np.sqrt(2.0) / n))
    assert_answer(catalogue.polygon(n, fraction * np.tan(np.pi / (2 * n))))
    assert_answer(catalogue.polygon(n, fraction * 0.5 / np.sin(np.pi / n), cycle=True))


def test_b4_knn_with_duplicates() -> None:
    points = np.array([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [5.0, 5.0], [6.0, 5.0]])
    graph = Graph.knn(points, n_neighbors=2)
    edges = [tuple(edge) for edge in graph.edges.tolist()]
    weights = dict(zip(edges, graph.weights.tolist(), strict=True))
    assert {(0, 1), (0, 2), (1, 2), (3, 4)} <= set(edges)
    assert weights[0, 1] == weights[0, 2] == weights[1, 2] == 1.0
    assert all(i < j for i, j in edges)
    assert edges == sorted(edges)
    for node in (3, 4):
        links = [i for i, j in edges if j == node and i < 3]
        assert links == [0]
    assert graph.n_components == 1
    result = fusionopt.solve(FusionProblem(SquaredDistance(points), graph=graph, lam=0.05))
    assert result.status == "optimal"
    assert result.labels[0] == result.labels[1] == result.labels[2]


def test_d1_disconnected() -> None:
    result = assert_answer(catalogue.disconnected())
    oracles.assert_close(result.objective, 5.0, rtol=1e-12)
    assert result.n_clusters == 3
    assert result.x[4, 0] == 99.0
    assert "3 components" in result.message


@pytest.mark.parametrize("seed", range(5))
def test_d1_kin_components_solve_apart(seed: int) -> None:
    """Two copies of one problem far apart: the same answer in each, and no edge between them."""
    rng = np.random.default_rng([11, seed])
    one = catalogue.random_squared(rng, "sparse", 10, 2)
    assert isinstance(one.nodes, oracles.SquaredNodes)
    points = np.concatenate([one.nodes.targets, one.nodes.targets + 1e3])
    edges = np.concatenate([one.edges, one.edges + 10])
    both = catalogue.squared(points, one.lam, edges=edges, weights=np.tile(one.weights, 2))
    result, alone = fusionopt.solve(both.problem()), fusionopt.solve(one.problem())
    oracles.assert_solved(both, result)
    oracles.assert_same_partition(result.labels[:10], alone.labels)
    oracles.assert_same_partition(result.labels[10:], alone.labels)
    assert not set(result.labels[:10].tolist()) & set(result.labels[10:].tolist())
    oracles.assert_close(result.x[:10], alone.x, rtol=1e-7)
    oracles.assert_close(result.x[10:] - 1e3, alone.x, rtol=1e-7, scale=1e3)


@pytest.mark.parametrize("lam", [0.1, 1.0, 1.9999, 2.0001, 5.0])
def test_d3_integer_weights(lam: float) -> None:
    result = assert_answer(catalogue.weighted_pair([0.0], [3.0], (2.0, 1.0), 1.0, lam))
    if lam == 1.0:
        oracles.assert_close(result.x[:, 0], [0.5, 2.0], rtol=1e-12)


@pytest.mark.parametrize("ratio", [1e-6, 1e-3, 0.2, 30.0, 1e6])
@pytest.mark.parametrize("fraction", [0.2, 0.999, 1.001])
def test_d3_kin_wild_weights(ratio: float, fraction: float) -> None:
    a, b = np.array([1.0, -2.0]), np.array([0.5, 3.0])
    lam = fraction * float(np.linalg.norm(a - b)) / (1.0 + 1.0 / ratio) / 0.7
    assert_answer(catalogue.weighted_pair(a, b, (1.0, ratio), 0.7, lam))


def test_d3_weightless_node_sits_on_its_neighbour() -> None:
    result = assert_answer(catalogue.weightless_end(), radius=100.0)
    oracles.assert_close(result.objective, 0.75, rtol=1e-12)


def test_d3_kin_weightless_tail() -> None:
    """A chain of weightless nodes behind one with data, and a weightless node alone in a complete graph."""
    chain = catalogue.squared(
        [0.0, 4.0, 9.0, -7.0, 50.0],
        1.0,
        edges=[(0, 1), (1, 2), (2, 3), (3, 4)],
        sample_weight=[1.0, 1.0, 0.0, 0.0, 0.0],
        x=[1.0, 3.0, 3.0, 3.0, 3.0],
        labels=[0, 1, 1, 1, 1],
    )
    assert_answer(chain, radius=1e3)
    # Three equal pulls on the weightless node: it sits at the middle point, the median.
    crowd = catalogue.squared([0.0, 1.0, 5.0, 77.0], 0.1, sample_weight=[1.0, 1.0, 1.0, 0.0])
    result = fusionopt.solve(crowd.problem())
    oracles.assert_solved(crowd, result, radius=1e3)
    oracles.assert_close(result.x[:, 0], [0.3, 1.0, 4.7, 1.0], rtol=1e-8)
    oracles.assert_same_partition(result.labels, [0, 1, 2, 1])


def test_d3_all_weightless_is_refused() -> None:
    with pytest.raises(ValueError, match="sample_weight"):
        SquaredDistance(np.array([[0.0], [2.0]]), sample_weight=[0.0, 0.0])


def test_d3_least_squares_all_weightless_is_refused() -> None:
    with pytest.raises(ValueError, match="sample_weight"):
        fusionopt.LeastSquares([np.ones((1, 1))] * 2, [np.ones(1)] * 2, sample_weight=[np.zeros(1)] * 2)


@pytest.mark.parametrize(
    "lam", [0.0, 0.3, 0.66, 0.67, 1.0, 1.99, 2.01, 3.0, 5.0, 7.3, 7.34, 7.4, 12.0, 17.99, 18.01, 100.0]
)
def test_e1_path_that_splits(lam: float) -> None:
    assert_answer(catalogue.splitting(lam))


@pytest.mark.parametrize("event", [2.0 / 3.0, 2.0, 22.0 / 3.0, 18.0])
@pytest.mark.parametrize("offset", [-1e-5, 1e-5])
def test_e1_labels_beside_every_event(event: float, offset: float) -> None:
    assert_answer(catalogue.splitting(event * (1.0 + offset)))


def test_g3_labels_need_no_threshold() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((60, 2))
    points[:30] += 6
    instance = catalogue.squared(points, 0.08)
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)
    fine = fusionopt.solve(instance.problem(), AdmmSettings(eps_rel=1e-12))
    oracles.assert_same_partition(result.labels, fine.labels)
    oracles.assert_close(result.x, fine.x, rtol=1e-8)
    # Two published counts of "fused" pairs: 703 at 1e-6 (one solver), 760 at 1e-4 (both).
    equal = sum(size * (size - 1) // 2 for size in result.cluster_sizes.tolist())
    assert equal == 760
    assert result.labels_certified is True
