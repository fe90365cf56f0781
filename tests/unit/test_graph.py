"""Graphs: invariants, agreement of the four ways to build one, nearest neighbours against brute force."""

from __future__ import annotations

import dataclasses
import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from fusionopt import Graph, graph
from fusionopt.errors import InvalidArgumentError, InvalidTypeError, MemoryLimitError
from tests.strategies import point_sets


def assert_well_formed(g):
    """Sorted, oriented, positive, read-only, and counted alike everywhere."""
    edges, weights = g.edges, g.weights
    assert edges.dtype == np.int64
    assert weights.dtype == np.float64
    assert edges.shape == (g.n_edges, 2)
    assert weights.shape == (g.n_edges,)
    assert type(g.n_edges) is int
    assert not edges.flags.writeable
    assert not weights.flags.writeable
    assert (edges[:, 0] < edges[:, 1]).all()
    assert (edges >= 0).all()
    assert (edges < g.n_nodes).all()
    keys = edges[:, 0] * g.n_nodes + edges[:, 1]
    assert (np.diff(keys) > 0).all()
    assert (weights > 0).all()
    labels = g.component_labels
    assert g.n_components == labels.max() + 1
    assert (labels[edges[:, 0]] == labels[edges[:, 1]]).all()


def test_the_helper_fails_on_a_malformed_graph():
    bad = Graph(2, False, float("nan"), None, np.array([[1, 0]]), np.ones(1))
    with pytest.raises(AssertionError):
        assert_well_formed(bad)


def as_dict(g):
    return {(int(i), int(j)): float(w) for (i, j), w in zip(g.edges, g.weights, strict=True)}


@given(st.integers(1, 9), st.sampled_from([0.0, 0.5, 3.0]), st.data())
def test_complete_graph_lists_exactly_its_positive_pairs(n, weight, data):
    r = data.draw(st.one_of(st.none(), st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=n, max_size=n)))
    g = Graph.complete(n, weight, r)
    assert_well_formed(g)
    scale = np.ones(n) if r is None else np.array(r)
    expected = {
        (i, j): weight * scale[i] * scale[j]
        for i in range(n)
        for j in range(i + 1, n)
        if weight * scale[i] * scale[j] > 0
    }
    assert as_dict(g) == expected
    assert g.n_components == Graph.from_edges(n, g.edges).n_components
    assert g.component_labels.tolist() == Graph.from_edges(n, g.edges).component_labels.tolist()


def test_a_huge_complete_graph_costs_nothing_until_its_edges_are_asked_for():
    n = 10**7
    g = Graph.complete(n)
    assert g.n_edges == n * (n - 1) // 2
    assert g.n_components == 1
    assert repr(g) == f"Graph(n_nodes={n}, n_edges={g.n_edges}, n_components=1, complete)"
    for name in ("edges", "weights"):
        with pytest.raises(
            MemoryLimitError, match=r"Building the .* edges of a complete graph.*use n_edges, weight"
        ):
            getattr(g, name)


def test_complete_attributes():
    r = np.array([1.0, 2.0, 0.0])
    g = Graph.complete(3, 2.0, r)
    r[0] = 9.0
    assert g.is_complete
    assert g.weight == 2.0
    assert g.node_weights.tolist() == [1.0, 2.0, 0.0]
    assert not g.node_weights.flags.writeable
    listed = Graph.from_edges(3, [(0, 1)])
    assert not listed.is_complete
    assert np.isnan(listed.weight)
    assert listed.node_weights is None


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((0,), InvalidArgumentError, "n=0 is too small; give an int >= 1"),
        ((2.0,), InvalidTypeError, r"n=2\.0 is not a whole number"),
        ((2, -1.0), InvalidArgumentError, r"weight=-1\.0 is negative"),
        ((2, float("nan")), InvalidArgumentError, "weight=nan is not finite"),
        ((2, 1.0, [1.0]), InvalidArgumentError, "node_weights has 1 entries; it needs 2, one for each node"),
        ((2, 1.0, [1.0, -1.0]), InvalidArgumentError, r"node_weights is -1\.0 for node 1"),
        ((2, 1.0, [1.0, np.inf]), InvalidArgumentError, "node_weights holds Inf at position 1"),
        ((2, 1.0, [1e-200, 1e-200]), InvalidArgumentError, "beyond the range of float64"),
        ((2, 1.0, [1e200, 1e200]), InvalidArgumentError, "beyond the range of float64"),
    ],
)
def test_complete_refuses(arguments, kind, message):
    with pytest.raises(kind, match=message):
        Graph.complete(*arguments)


@st.composite
def edge_lists(draw):
    n = draw(st.integers(1, 8))
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    if not pairs:
        return n, np.empty((0, 2), dtype=int), np.empty(0)
    edges = draw(st.lists(st.sampled_from(pairs), max_size=20))
    weights = draw(st.lists(st.sampled_from([0.0, 0.1, 0.7, 1e6]), min_size=len(edges), max_size=len(edges)))
    return n, np.array(edges, dtype=int).reshape(-1, 2), np.array(weights)


@given(edge_lists(), st.randoms(use_true_random=False))
def test_from_edges_merges_orients_and_drops_zeros(instance, random):
    n, edges, weights = instance
    g = Graph.from_edges(n, edges, weights)
    assert_well_formed(g)
    expected: dict[tuple[int, int], float] = {}
    for (i, j), w in zip(edges, weights, strict=True):
        key = (int(min(i, j)), int(max(i, j)))
        expected[key] = expected.get(key, 0.0) + w
    found = as_dict(g)
    assert set(found) == {key for key, w in expected.items() if w > 0}
    for key, w in found.items():
        assert w == pytest.approx(expected[key], rel=1e-14)
    # Order and orientation of the rows change no bit.
    order = list(range(len(edges)))
    random.shuffle(order)
    again = Graph.from_edges(n, edges[order][:, ::-1], weights[order])
    assert as_dict(again) == found


@given(edge_lists())
def test_from_matrix_is_the_same_graph(instance):
    n, edges, weights = instance
    g = Graph.from_edges(n, edges, weights)
    dense = np.zeros((n, n))
    dense[g.edges[:, 0], g.edges[:, 1]] = g.weights
    dense += dense.T
    stored = np.vstack([g.edges, g.edges[:, ::-1]])
    entries = np.concatenate([g.weights, g.weights])
    loose = sparse.coo_matrix((entries, (stored[:, 0], stored[:, 1])), shape=(n, n))
    explicit_zero = sparse.csr_array(
        (np.append(entries, 0.0), (np.append(stored[:, 0], 0), np.append(stored[:, 1], 0))), shape=(n, n)
    )
    forms = [dense, dense.tolist(), np.asfortranarray(dense), pd.DataFrame(dense)]
    forms += [sparse.csr_array(dense), sparse.csc_matrix(dense), loose, explicit_zero]
    for matrix in forms:
        assert as_dict(Graph.from_matrix(matrix)) == as_dict(g)


def test_from_edges_takes_other_forms():
    expected = {(0, 1): 1.0, (1, 2): 1.0}
    for edges in (
        [[1, 0], [1, 2]],
        np.array([[0, 1], [2, 1]], dtype=np.uint8),
        pd.DataFrame([[0, 1], [1, 2]]),
    ):
        assert as_dict(Graph.from_edges(3, edges)) == expected
    for empty in ([], np.empty((0, 2)), ()):
        assert Graph.from_edges(3, empty).n_components == 3
        assert Graph.from_edges(3, empty, []).n_edges == 0


def test_duplicates_are_added_and_zero_weights_do_not_connect():
    g = Graph.from_edges(4, [(1, 0), (0, 1), (2, 3)], [1.0, 2.5, 0.0])
    assert as_dict(g) == {(0, 1): 3.5}
    assert g.n_components == 3
    assert g.component_labels.tolist() == [0, 0, 1, 2]
    assert repr(g) == "Graph(n_nodes=4, n_edges=1, n_components=3)"


def test_stored_entries_given_twice_are_added():
    doubled = sparse.coo_array(([1.0, 1.0, 2.0], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert as_dict(Graph.from_matrix(doubled)) == {(0, 1): 2.0}
    assert doubled.nnz == 3  # the argument is left as it was


def test_rounding_does_not_make_a_matrix_asymmetric():
    third = 1.0 / 3.0
    assert as_dict(Graph.from_matrix([[0, third], [np.nextafter(third, 1), 0]])) == {(0, 1): third}


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((3, [(0, 1, 2)]), InvalidArgumentError, r"edges has shape \(1, 3\); it needs \(n_edges, 2\)"),
        ((3, [0, 1]), InvalidArgumentError, r"edges has shape \(2,\)"),
        ((3, [(0, 1), (2,)]), InvalidArgumentError, "edges has shape"),
        ((3, [(0.0, 1.0)]), InvalidTypeError, r"edges holds values of type float64; give node indices"),
        ((3, [(True, False)]), InvalidTypeError, "edges holds values of type bool"),
        (
            (3, [(0, 1), (1, 3)]),
            InvalidArgumentError,
            r"edges\[1\] = \(1, 3\) names a node out of range.*0 to 2",
        ),
        ((3, [(-1, 1)]), InvalidArgumentError, r"edges\[0\] = \(-1, 1\) names a node out of range"),
        ((3, [(0, 1), (2, 2)]), InvalidArgumentError, r"edges\[1\] = \(2, 2\) joins a node to itself"),
        ((3, [(0, 1), (2, 1)], [1, -2]), InvalidArgumentError, r"weights\[1\] of edge \(2, 1\) is -2\.0"),
        ((3, [(0, 1)], [np.nan]), InvalidArgumentError, r"weights\[0\] of edge \(0, 1\) is nan"),
        ((3, [(0, 1)], [np.inf]), InvalidArgumentError, r"weights\[0\] of edge \(0, 1\) is inf"),
        ((3, [(0, 1)], [1, 2]), InvalidArgumentError, r"weights has shape \(2,\); it needs \(1,\)"),
        ((3, [(0, 1)], 1.0), InvalidArgumentError, r"weights has shape \(\)"),
        ((3, [(0, 1)], ["a"]), InvalidTypeError, "weights holds text"),
        (
            (3, [(0, 1), (1, 0)], [1e308, 1e308]),
            InvalidArgumentError,
            r"weights of edge \(0, 1\).*add up to Inf",
        ),
        ((0, []), InvalidArgumentError, "n=0 is too small"),
    ],
)
def test_from_edges_refuses(arguments, kind, message):
    with pytest.raises(kind, match=message):
        Graph.from_edges(*arguments)


@pytest.mark.parametrize("form", [np.array, sparse.csr_array])
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.0, 1.0, 0.0]], r"matrix has shape \(1, 3\); give a square matrix"),
        (
            [[0.0, 1.0], [2.0, 0.0]],
            r"matrix is not symmetric: matrix\[0, 1\] is 1\.0 and matrix\[1, 0\] is 2\.0",
        ),
        ([[0.0, 1.0], [0.0, 0.0]], r"matrix is not symmetric.*\(matrix \+ matrix\.T\) / 2"),
        ([[0.0, 1.0], [1.0, 3.0]], r"matrix\[1, 1\] on the diagonal is 3\.0.*set the diagonal to zero"),
        ([[0.0, -1.0], [-1.0, 0.0]], r"the weight of edge \(0, 1\), is -1\.0"),
    ],
)
def test_from_matrix_refuses(matrix, message, form):
    with pytest.raises(InvalidArgumentError, match=message):
        Graph.from_matrix(form(matrix))


def test_from_matrix_refuses_nan_complex_and_emptiness():
    nan = [[0.0, np.nan], [np.nan, 0.0]]
    with pytest.raises(InvalidArgumentError, match="matrix holds NaN at row 0, column 1"):
        Graph.from_matrix(nan)
    with pytest.raises(InvalidArgumentError, match=r"the weight of edge \(0, 1\), is nan"):
        Graph.from_matrix(sparse.csr_array(nan))
    with pytest.raises(InvalidTypeError, match="matrix holds complex"):
        Graph.from_matrix(sparse.csr_array([[0, 1j], [1j, 0]]))
    with pytest.raises(InvalidArgumentError, match=r"matrix has shape \(0, 0\)"):
        Graph.from_matrix(sparse.csr_array((0, 0)))


@pytest.mark.parametrize("g", [Graph.complete(3, 2.0, [1, 2, 3]), Graph.from_edges(3, [(0, 1)])])
def test_frozen_and_picklable(g):
    with pytest.raises(dataclasses.FrozenInstanceError):
        g.n_nodes = 5
    assert as_dict(pickle.loads(pickle.dumps(g))) == as_dict(g)


def brute_force_edges(points, k):
    """All pairs of distinct points one by one; exact for coordinates that are multiples of 2**-k."""
    points = np.asarray(points, dtype=float)
    first = {}
    for i, row in enumerate(map(tuple, points + 0.0)):
        first.setdefault(row, i)
    distinct = sorted(first.values())
    edges = set()
    for i in distinct:
        others = sorted((float(((points[i] - points[j]) ** 2).sum()), j) for j in distinct if j != i)
        edges |= {(min(i, j), max(i, j)) for _, j in others[:k]}
    for i in range(len(points)):
        for j in range(i + 1, len(points)):
            if (points[i] == points[j]).all():
                edges.add((i, j))
    return sorted(edges)


def brute_force_weights(points, edges):
    squares = np.array([((points[i] - points[j]) ** 2).sum() for i, j in edges])
    positive = squares[squares > 0]
    return np.exp(-squares / (2 * (np.median(positive) if len(positive) else 1.0)))


SEARCHES = pytest.mark.parametrize("tree_columns", [0, 32], ids=["products", "tree"])


@SEARCHES
@given(points=point_sets(max_nodes=14), k=st.integers(1, 6))
def test_knn_agrees_with_brute_force(tree_columns, points, k):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fusionopt._knn._TREE_COLUMNS", tree_columns)
        g = Graph.knn(points, k)
    assert_well_formed(g)
    expected = brute_force_edges(points, k)
    weights = brute_force_weights(points, expected) if expected else np.empty(0)
    # A Gaussian weight that underflows to zero is no edge.
    expected = [e for e, w in zip(expected, weights, strict=True) if w > 0]
    assert [tuple(e) for e in g.edges.tolist()] == expected
    # d^2 and its median carry a few roundings, which the exponent of at most 745 magnifies.
    np.testing.assert_allclose(g.weights, weights[weights > 0], rtol=5e-12, atol=1e-300)


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("kind", ["line", "lattice", "hypercube", "simplex", "circle", "copies"])
@SEARCHES
def test_knn_on_point_sets_full_of_ties(monkeypatch, tree_columns, kind, k):
    monkeypatch.setattr("fusionopt._knn._TREE_COLUMNS", tree_columns)
    rng = np.random.default_rng(0)
    points = {
        "line": np.arange(40.0)[:, None],
        "lattice": np.stack(np.meshgrid(np.arange(8.0), np.arange(7.0)), axis=-1).reshape(-1, 2),
        "hypercube": ((np.arange(64)[:, None] >> np.arange(6)) & 1).astype(float),
        "simplex": np.eye(30),
        "circle": np.vstack([np.zeros((1, 2)), np.array([[3, 4], [4, 3], [-3, 4], [0, 5], [5, 0], [-5, 0]])]),
        "copies": rng.integers(0, 3, size=(80, 2)).astype(float),
    }[kind]
    points = points[rng.permutation(len(points))]
    g = Graph.knn(points, k)
    assert [tuple(e) for e in g.edges.tolist()] == brute_force_edges(points, k)


@SEARCHES
def test_knn_of_random_points_with_several_blocks(monkeypatch, tree_columns):
    monkeypatch.setattr("fusionopt._knn._TREE_COLUMNS", tree_columns)
    monkeypatch.setattr("fusionopt._knn._BLOCK_ENTRIES", 50)
    points = np.random.default_rng(1).normal(size=(120, 3))
    g = Graph.knn(points, 4)
    expected = brute_force_edges(points, 4)
    assert [tuple(e) for e in g.edges.tolist()] == expected
    np.testing.assert_allclose(g.weights, brute_force_weights(points, expected), rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e-4, 1e4, 1e8, 1e150, -1.0])
@pytest.mark.parametrize("tied", [True, False])
@SEARCHES
def test_knn_knows_no_units(monkeypatch, tree_columns, scale, tied):
    monkeypatch.setattr("fusionopt._knn._TREE_COLUMNS", tree_columns)
    rng = np.random.default_rng(2)
    # Multiples of 0.1 carry rounding errors, so equal distances come out slightly different at each scale.
    points = rng.integers(0, 6, size=(60, 2)) * 0.1 if tied else rng.normal(size=(60, 3))
    base, other = Graph.knn(points, 3), Graph.knn(points * scale, 3)
    np.testing.assert_array_equal(base.edges, other.edges)
    np.testing.assert_allclose(base.weights, other.weights, rtol=1e-12)


@pytest.mark.parametrize("offset", [1.0, 1e4, 1e8, 1e12])
@SEARCHES
def test_knn_knows_no_offset(monkeypatch, tree_columns, offset):
    monkeypatch.setattr("fusionopt._knn._TREE_COLUMNS", tree_columns)
    # Integers, so that the shifted points are exact; thirds, so that they are not.
    points = np.random.default_rng(3).integers(0, 9, size=(50, 2)).astype(float)
    base = Graph.knn(points, 3)
    other = Graph.knn(points + offset, 3)
    np.testing.assert_array_equal(base.edges, other.edges)
    np.testing.assert_array_equal(base.weights, other.weights)
    rounded = Graph.knn(points / 3 + offset, 3)
    np.testing.assert_array_equal(base.edges, rounded.edges)


@SEARCHES
def test_a_constant_column_of_any_size_changes_nothing(monkeypatch, tree_columns):
    monkeypatch.setattr("fusionopt._knn._TREE_COLUMNS", tree_columns)
    points = np.random.default_rng(4).normal(size=(300, 1))
    wide = np.hstack([points, np.full((300, 1), 1e15)])
    np.testing.assert_array_equal(Graph.knn(points, 5).edges, Graph.knn(wide, 5).edges)


@SEARCHES
def test_an_outlier_does_not_blur_its_neighbours(monkeypatch, tree_columns):
    monkeypatch.setattr("fusionopt._knn._TREE_COLUMNS", tree_columns)
    points = np.append(np.random.default_rng(5).normal(size=50), 1e14)[:, None]
    g = Graph.knn(points, 3, kernel="unit")
    # Its own neighbours are ties at the precision of 1e14, where neighbouring numbers are 1/64 apart.
    among_the_others = [tuple(e) for e in g.edges.tolist() if 50 not in e]
    assert among_the_others == brute_force_edges(points[:50], 3)
    assert g.n_edges == len(among_the_others) + 3


@pytest.mark.parametrize("seed", range(12))
def test_both_searches_agree_where_brute_force_would_be_decided_by_rounding(monkeypatch, seed):
    rng = np.random.default_rng(seed)
    n, d, k = (int(v) for v in rng.integers([50, 1, 1], [300, 8, 15]))
    for points in (
        rng.integers(0, 4, size=(n, d)) * 0.1,
        rng.standard_t(0.3, size=(n, d)),
        rng.normal(size=(n, d)) * 10.0 ** rng.integers(-9, 9, size=d) + 1e8,
    ):
        found = []
        for tree_columns in (0, 32):
            monkeypatch.setattr("fusionopt._knn._TREE_COLUMNS", tree_columns)
            found.append(Graph.knn(points, k))
        np.testing.assert_array_equal(found[0].edges, found[1].edges)


def test_many_columns():
    points = np.random.default_rng(7).normal(size=(80, 50))
    g = Graph.knn(points, 4)
    assert [tuple(e) for e in g.edges.tolist()] == brute_force_edges(points, 4)


def test_case_b4_duplicates():
    points = [[0, 0], [0, 0], [0, 0], [5, 5], [6, 5]]
    g = Graph.knn(points, n_neighbors=2)
    assert g.edges.tolist() == [[0, 1], [0, 2], [0, 3], [0, 4], [1, 2], [3, 4]]
    weights = as_dict(g)
    assert weights[0, 1] == weights[0, 2] == weights[1, 2] == 1.0
    # Positive squared lengths 1, 50, 61: h = 50.
    np.testing.assert_allclose(
        [weights[3, 4], weights[0, 3], weights[0, 4]], np.exp([-0.01, -0.5, -0.61]), rtol=1e-15
    )
    rows, columns = np.vstack([g.edges, g.edges[:, ::-1]]).T
    matrix = sparse.coo_array((np.tile(g.weights, 2), (rows, columns)), shape=(5, 5))
    assert as_dict(Graph.from_matrix(matrix)) == weights


def test_copies_stay_linked_to_the_rest_however_many_there_are():
    points = np.vstack([np.zeros((30, 2)), np.arange(20.0).reshape(10, 2) + 1])
    g = Graph.knn(points, n_neighbors=2)
    assert g.n_components == 1
    assert sum(j < 30 for _, j in g.edges) == 30 * 29 // 2


def test_knn_options():
    points = [0.0, 1.0, 3.0]
    unit = Graph.knn(points, 1, kernel="unit")
    assert as_dict(unit) == {(0, 1): 1.0, (1, 2): 1.0}
    fixed = Graph.knn(points, 1, bandwidth=2.0)
    assert as_dict(fixed) == pytest.approx({(0, 1): np.exp(-1 / 4), (1, 2): np.exp(-4 / 4)}, rel=1e-15)
    everything = Graph.knn(points, 50)
    assert everything.n_edges == 3
    small = Graph.knn(np.array(points) * 1e-150, 1, bandwidth=2e-300)
    assert as_dict(small) == pytest.approx(as_dict(fixed), rel=1e-12)


@pytest.mark.parametrize("points", [[[3.0, 4.0]], np.ones((5, 2)), np.zeros((4, 1))])
def test_knn_of_one_distinct_point(points):
    g = Graph.knn(points)
    assert_well_formed(g)
    assert g.n_components == 1
    assert (g.weights == 1.0).all()


def test_a_weight_that_underflows_is_no_edge():
    g = Graph.knn([0.0, 1.0, 2.0, 1000.0], 1)
    assert g.n_components == 2
    assert g.component_labels.tolist() == [0, 0, 0, 1]


def test_knn_of_read_only_and_single_precision_points():
    points = np.random.default_rng(6).normal(size=(20, 2)).astype(np.float32)
    points.flags.writeable = False
    before = points.copy()
    g = Graph.knn(np.asfortranarray(points), 3)
    np.testing.assert_array_equal(points, before)
    assert as_dict(g) == as_dict(Graph.knn(points.astype(float), 3))


def test_too_many_copies_are_refused_before_they_are_joined(monkeypatch):
    monkeypatch.setattr(graph, "EDGE_BYTES_LIMIT", 120 * 14)
    with pytest.raises(MemoryLimitError, match=r"up to 6 copies of one point, 15 edges.*as sample_weight"):
        Graph.knn(np.ones((6, 2)))


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (([[0, np.nan]],), InvalidArgumentError, "points holds NaN at row 0, column 1"),
        (([],), InvalidArgumentError, "points is empty"),
        (([0, 1], 0), InvalidArgumentError, "n_neighbors=0 is too small"),
        (([0, 1], 1.5), InvalidTypeError, r"n_neighbors=1\.5 is not a whole number"),
        (
            ([0, 1], 1, "tricube"),
            InvalidArgumentError,
            "kernel='tricube' is unknown; give one of 'gaussian', 'unit'",
        ),
        (
            ([0, 1], 1, "gaussian", "mean"),
            InvalidArgumentError,
            "bandwidth='mean' is unknown; give 'median' or",
        ),
        (([0, 1], 1, "gaussian", 0.0), InvalidArgumentError, r"bandwidth=0\.0 is not positive.*or 'median'"),
        (([0, 1], 1, "gaussian", None), InvalidTypeError, "bandwidth=None is not a number"),
    ],
)
def test_knn_refuses(arguments, kind, message):
    with pytest.raises(kind, match=message):
        Graph.knn(*arguments)


# -- shapes and other libraries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1,), (5,), (1, 1), (3, 4), (4, 1), (2, 3, 2)])
def test_grid_agrees_with_networkx(shape):
    g = Graph.grid(shape, weight=0.5)
    assert_well_formed(g)
    lattice = nx.grid_graph(shape[::-1])  # networkx counts the axes from the last
    expected = {
        tuple(sorted(int(np.ravel_multi_index(cell if len(shape) > 1 else (cell,), shape)) for cell in edge))
        for edge in lattice.edges
    }
    assert as_dict(g) == dict.fromkeys(expected, 0.5)
    assert g.n_nodes == np.prod(shape)
    assert g.n_components == 1


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_chain_and_ring(n):
    assert as_dict(Graph.chain(n, 2.0)) == {(i, i + 1): 2.0 for i in range(n - 1)}
    ring = Graph.ring(n, 2.0)
    assert_well_formed(ring)
    ends = {(0, n - 1): 2.0} if n > 2 else {}
    assert as_dict(ring) == as_dict(Graph.chain(n, 2.0)) | ends
    assert Graph.ring(n, 0.0).n_edges == 0


@given(st.lists(st.integers(-1, 30), min_size=1, max_size=12), st.randoms())
def test_tree_joins_each_node_to_its_parent(draws, random):
    n = len(draws)
    names = list(range(n))
    random.shuffle(names)  # a parent need not come before its children
    parents = np.full(n, -1)
    for k, drawn in enumerate(draws):
        if k > 0 and drawn >= 0:
            parents[names[k]] = names[drawn % k]
    weights = np.arange(1.0, n + 1)
    g = Graph.tree(parents, weights)
    assert_well_formed(g)
    assert as_dict(g) == {
        (min(i, p), max(i, p)): weights[i] for i, p in enumerate(parents.tolist()) if p >= 0
    }
    assert g.n_components == int((parents < 0).sum())
    assert as_dict(Graph.tree(parents.tolist())) == dict.fromkeys(as_dict(g), 1.0)


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_from_networkx_of_every_kind(kind):
    made = kind()
    made.add_nodes_from("cab")
    made.add_edge("a", "b", weight=2.0)
    made.add_edge("b", "c")
    made.add_edge("b", "a", weight=3.0)  # the same pair again, the other way round
    g = Graph.from_networkx(made)
    assert_well_formed(g)
    # Rows in the order c, a, b. A plain Graph keeps the later weight of a pair, all others keep both edges.
    assert as_dict(g) == {(1, 2): 3.0 if kind is nx.Graph else 5.0, (0, 2): 1.0}
    renamed = Graph.from_networkx(made, weight="cost", nodes=["a", "b", "c"])
    assert as_dict(renamed) == {(0, 1): 1.0 if kind is nx.Graph else 2.0, (1, 2): 1.0}


def test_from_networkx_agrees_with_from_matrix():
    rng = np.random.default_rng(0)
    made = nx.gnp_random_graph(12, 0.4, seed=1)
    for u, v in made.edges:
        made.edges[u, v]["weight"] = rng.random()
    listed = Graph.from_networkx(made)
    for matrix in (nx.to_numpy_array(made), nx.to_scipy_sparse_array(made, format="csr")):
        assert as_dict(Graph.from_matrix(matrix)) == as_dict(listed)
    assert Graph.from_networkx(nx.empty_graph(3)).n_components == 3


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: Graph.grid(()), InvalidTypeError, r"shape=\(\) is not a list of whole numbers"),
        (lambda: Graph.grid(5), InvalidTypeError, "shape=5 is not a list of whole numbers"),
        (lambda: Graph.grid((3, 0)), InvalidArgumentError, r"shape\[1\]=0 is too small; give an int >= 1"),
        (lambda: Graph.grid((10**5, 10**5)), MemoryLimitError, "Building the grid of 10000000000 cells"),
        (lambda: Graph.chain(0), InvalidArgumentError, "n=0 is too small"),
        (lambda: Graph.ring(3, -1.0), InvalidArgumentError, r"weight=-1\.0 is negative"),
        (lambda: Graph.tree([-1, 2]), InvalidArgumentError, r"parents\[1\] = 2 is out of range; give 0 to 1"),
        (lambda: Graph.tree([-1, 2, 1]), InvalidArgumentError, "parents has a cycle"),
        (
            lambda: Graph.tree([0]),
            InvalidArgumentError,
            r"edges\[0\] = \(0, 0\) joins a node to itself|cycle",
        ),
        (lambda: Graph.tree([0.0]), InvalidTypeError, "give one whole number for each node"),
        (lambda: Graph.tree([-1, 0], [1.0]), InvalidArgumentError, "weights has 1 entries; it needs 2"),
        (lambda: Graph.tree([-1, 0], [1.0, -1.0]), InvalidArgumentError, r"edge \(1, 0\) is -1\.0"),
        (lambda: Graph.from_networkx([1]), InvalidTypeError, "graph is a list; give a networkx graph"),
        (
            lambda: Graph.from_networkx(nx.path_graph(3), nodes=[0, 1, 1]),
            InvalidArgumentError,
            "name each node of graph once",
        ),
        (
            lambda: Graph.from_networkx(nx.Graph([(0, 0)])),
            InvalidArgumentError,
            "joins a node to itself; leave it out",
        ),
        (
            lambda: Graph.from_networkx(nx.Graph([(0, 1, {"weight": "x"})])),
            InvalidTypeError,
            "weights holds text",
        ),
        (lambda: Graph.from_networkx(nx.Graph()), InvalidArgumentError, "n=0 is too small"),
    ],
)
def test_shapes_refuse(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
