"""Labels, components, centres and the plateau choice."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionopt import Graph
from fusionopt.clusters import (
    cluster_means,
    cluster_sizes,
    components,
    equal_rows,
    exact_labels,
    first_appearance,
    longest_plateau,
    n_large,
)
from fusionopt.errors import InvalidArgumentError
from tests.strategies import point_sets


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=20))
def test_first_appearance_keeps_the_partition_and_numbers_it_in_order(values):
    labels = first_appearance(values).tolist()
    assert labels[0] == 0
    for i, label in enumerate(labels):
        assert label <= max(labels[:i], default=-1) + 1
        assert [k == label for k in labels] == [v == values[i] for v in values]


def test_first_appearance_of_text():
    assert first_appearance(["b", "a", "b"]).tolist() == [0, 1, 0]
    with pytest.raises(InvalidArgumentError, match="labels is empty"):
        first_appearance([])


@given(st.integers(1, 12), st.data())
def test_components_agree_with_networkx(n, data):
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    edges = data.draw(st.lists(pairs, max_size=15))
    labels = components(n, edges)
    graph = nx.Graph(edges)
    graph.add_nodes_from(range(n))
    expected = np.empty(n, dtype=int)
    for k, members in enumerate(nx.connected_components(graph)):
        expected[list(members)] = k
    assert labels.tolist() == first_appearance(expected).tolist()


@given(point_sets())
def test_equal_rows_by_pairwise_comparison(points):
    labels = equal_rows(points)
    for i in range(len(points)):
        for j in range(len(points)):
            assert (labels[i] == labels[j]) == bool((points[i] == points[j]).all())


def test_equal_rows_of_signed_zeros():
    assert len(set(equal_rows(np.array([[0.0, 1.0], [-0.0, 1.0]])).tolist())) == 1


def test_exact_labels_need_a_path_of_edges():
    x = np.array([[1.0], [1.0], [1.0 + 2**-52], [1.0]])
    assert exact_labels(x, Graph.complete(4)).tolist() == [0, 0, 1, 0]
    assert exact_labels(x, Graph.from_edges(4, [(0, 1), (1, 2), (2, 3)])).tolist() == [0, 0, 1, 2]
    assert exact_labels(x, Graph.from_edges(4, [])).tolist() == [0, 1, 2, 3]


@given(point_sets(), st.data())
def test_exact_labels_of_a_complete_graph_are_those_of_its_edges(points, data):
    n = len(points)
    r = data.draw(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=n, max_size=n))
    weight = data.draw(st.sampled_from([0.0, 1.0]))
    for graph in (Graph.complete(n, weight), Graph.complete(n, weight, r)):
        listed = Graph.from_edges(n, graph.edges, graph.weights)
        assert exact_labels(points, graph).tolist() == exact_labels(points, listed).tolist()


def test_sizes_and_means():
    labels = [0, 1, 0, 2]
    assert cluster_sizes(labels).tolist() == [2, 1, 1]
    np.testing.assert_array_equal(cluster_means([[0.0], [5.0], [2.0], [7.0]], labels), [[1.0], [5.0], [7.0]])


def test_the_mean_of_equal_rows_is_that_row_exactly():
    x = np.tile([0.1, 1e9 + 0.3], (7, 1))
    np.testing.assert_array_equal(cluster_means(x, np.zeros(7, dtype=int))[0], x[0])


def _labels(*sizes):
    return np.repeat(np.arange(len(sizes)), sizes)


TWO, THREE, ONE = _labels(10, 10), _labels(7, 7, 6), _labels(20)


def test_plateau_takes_the_longest_run_in_log_lam_whatever_the_order():
    lams = [0.01, 0.1, 1.0, 2.0, 3.0, 4.0, 100.0]
    labels = [THREE, THREE, THREE, TWO, TWO, TWO, ONE]
    assert longest_plateau(lams, labels) == 1
    order = [6, 2, 0, 5, 1, 4, 3]
    assert order[longest_plateau([lams[k] for k in order], [labels[k] for k in order])] == 1


def test_plateau_ties_go_to_the_larger_lam_and_the_middle_is_geometric():
    lams = np.geomspace(0.1, 10, 7)
    assert longest_plateau(lams, [THREE, THREE, THREE, TWO, TWO, TWO, ONE]) == 4
    assert longest_plateau([1.0, 3.0, 100.0], [TWO, TWO, TWO]) == 1
    assert longest_plateau([1.0, 50.0, 100.0], [TWO, TWO, TWO]) == 1


def test_plateau_leaves_out_dust_and_lam_zero():
    dust = _labels(38, 2)  # the small one holds 5 %
    speck = _labels(78, 2)  # it holds 2.5 %
    assert longest_plateau([1.0, 2.0], [dust, ONE]) == 0
    assert longest_plateau([1.0, 2.0, 4.0, 8.0], [speck, speck, speck, _labels(20, 20)]) == 3
    assert longest_plateau([0.0, 1.0, 2.0], [_labels(2, 2), _labels(2, 2), _labels(4)]) == 1
    assert longest_plateau([1.0, 2.0], [speck, _labels(20, 20)], min_share=0.01) == 0


def test_a_row_alone_is_no_group_however_few_rows_there_are():
    alone = _labels(9, 1)  # one row of ten is 10 %
    assert n_large([9, 1]) == 1
    assert n_large([8, 2]) == 2
    assert longest_plateau([1.0, 2.0, 4.0, 8.0], [alone, alone, alone, _labels(8, 2)]) == 3


def test_a_run_is_broken_by_a_clustering_that_does_not_count():
    lams = np.geomspace(1, 32, 6)
    # Two large clusters, then two of which one is dust, then two large ones again: three runs, not one.
    labels = [TWO, TWO, _labels(39, 1), TWO, TWO, TWO]
    assert longest_plateau(lams, labels) == 4


@pytest.mark.parametrize(
    ("lams", "labels", "share", "message"),
    [
        ([1.0], [ONE], 0.05, "no clustering has two clusters that each hold 5% of the rows"),
        ([0.0], [TWO], 0.05, "no clustering has two clusters"),
        ([1.0, 2.0], [TWO], 0.05, "labels_list has 1 entries and lams has 2"),
        ([1.0], [TWO], 1.5, r"min_share=1\.5 breaks 0 < min_share < 1"),
        ([np.nan], [TWO], 0.05, "lams holds NaN at position 0"),
    ],
)
def test_plateau_refuses(lams, labels, share, message):
    with pytest.raises(InvalidArgumentError, match=message):
        longest_plateau(lams, labels, share)
