"""Labels, components, centres and the choice of a plateau; NumPy and SciPy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from fusionopt import _checks

if TYPE_CHECKING:
    from fusionopt.graph import Graph

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MIN_SHARE = 0.05
"""Share of the rows from which on a cluster counts as a group."""


def first_appearance(labels: ArrayLike) -> IntArray:
    """Rename labels 0, 1, 2, ... in the order in which they first appear.

    Parameters
    ----------
    labels : array-like (n,)
        Whole numbers or text.

    Returns
    -------
    int64 (n,)
        The same partition; the first row has label 0.

    Examples
    --------
    >>> first_appearance([7, 7, 2, 7, 5]).tolist()
    [0, 0, 1, 0, 2]
    """
    values = _checks.as_labels("labels", labels)
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(len(first))
    return rank[inverse]


def components(n: int, edges: ArrayLike) -> IntArray:
    """Connected components of n nodes joined by edges.

    Parameters
    ----------
    n : int
        Number of nodes.
    edges : int array-like (E, 2)
        Pairs of node indices; every pair joins, in either orientation.

    Returns
    -------
    int64 (n,)
        Component of each node, in first-appearance order.

    Notes
    -----
    O(n + E).
    """
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    if len(pairs) == 0:
        return np.arange(n, dtype=np.int64)
    joined = sparse.coo_array((np.ones(len(pairs), dtype=np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    _, labels = connected_components(joined, directed=False)
    return first_appearance(labels)


def exact_labels(x: ArrayLike, graph: Graph) -> IntArray:
    """Clusters of a solution: nodes joined by edges whose two rows are exactly equal.

    Parameters
    ----------
    x : array-like (n_nodes, n_features)
        The solution; rows of one cluster are equal bit by bit, so no threshold is involved.
    graph : Graph
        Equal rows that no path of edges joins are different clusters. On a complete graph every node that has
        an edge is joined to all the others, so equal rows are one cluster.

    Returns
    -------
    int64 (n_nodes,)
        Labels in first-appearance order.

    Notes
    -----
    O(E d), or O(n log n d) on a complete graph, whose edges are not built.
    """
    points = np.asarray(x, dtype=np.float64)
    if not graph.is_complete:
        edges = graph.edges
        equal = np.ones(len(edges), dtype=np.bool_)
        for column in points.T:  # column by column: no array of E x d
            equal &= column[edges[:, 0]] == column[edges[:, 1]]
        return components(graph.n_nodes, edges[equal])
    groups = equal_rows(points)
    alone = graph.component_labels
    if graph.n_components > 1:
        # Nodes without an edge (weight 0) are clusters of their own, whatever their rows.
        groups = groups * graph.n_nodes + alone
    return first_appearance(groups)


def equal_rows(points: FloatArray) -> IntArray:
    """Label (n,) of each row such that two rows have the same label when they are exactly equal.

    Notes
    -----
    0.0 and -0.0 are equal. O(n log n d) by sorting the columns.
    """
    order = np.lexsort(points.T[::-1])
    ordered = points[order]
    new = np.ones(len(points), dtype=np.bool_)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    labels = np.empty(len(points), dtype=np.int64)
    labels[order] = np.cumsum(new) - 1
    return labels


def cluster_sizes(labels: ArrayLike) -> IntArray:
    """Number of rows of each cluster, in the order of the labels.

    Parameters
    ----------
    labels : int array-like (n,)
        Labels 0, ..., K - 1.

    Returns
    -------
    int64 (K,)
    """
    return np.bincount(np.asarray(labels, dtype=np.int64)).astype(np.int64)


def cluster_means(x: ArrayLike, labels: ArrayLike) -> FloatArray:
    """Mean row of each cluster.

    Parameters
    ----------
    x : array-like (n, d)
    labels : int array-like (n,)
        Labels 0, ..., K - 1, each of which occurs.

    Returns
    -------
    float64 (K, d)
        Where all the rows of a cluster are equal, exactly that row.
    """
    points, names = np.asarray(x, dtype=np.float64), np.asarray(labels, dtype=np.int64)
    _, first = np.unique(names, return_index=True)
    anchors = points[first]
    # Means of the differences to one row: exact for equal rows, and no loss of digits at a large offset.
    sizes = cluster_sizes(names)
    shifts = np.empty_like(anchors)
    for column in range(points.shape[1]):
        differences = points[:, column] - anchors[names, column]
        shifts[:, column] = np.bincount(names, weights=differences, minlength=len(sizes))
    means: FloatArray = anchors + shifts / sizes[:, None]
    return means


def n_large(sizes: ArrayLike, min_share: float = MIN_SHARE) -> int:
    """Number of clusters that hold a share of all rows, and two rows at least: one row alone is no group."""
    counts = np.asarray(sizes)
    return int(np.count_nonzero(counts >= max(min_share * counts.sum(), 2)))


def longest_plateau(lams: ArrayLike, labels_list: Sequence[ArrayLike], min_share: float = MIN_SHARE) -> int:
    """Index of the clustering in the middle of the longest run of lams with the same number of clusters.

    Parameters
    ----------
    lams : array-like (L,)
        Regularisation weights >= 0 in any order; lam = 0 never counts.
    labels_list : sequence of L int arrays (n,)
        Labels 0, 1, ... at each lam.
    min_share : float in (0, 1)
        Only clusterings with at least two clusters that each hold this share of the rows, and two rows, count.

    Returns
    -------
    int
        Index into `lams`. Length is measured in log lam; of two equally long runs the one at larger lam is
        taken. The middle is the entry nearest to the middle of the run in log lam.

    Raises
    ------
    InvalidArgumentError
        No clustering counts, or the arguments do not have the same length.

    Examples
    --------
    >>> longest_plateau([1, 2, 4, 8], [[0, 1, 2, 3], [0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 0, 0]])
    1
    """
    return plateaus(lams, labels_list, min_share)[0]


def plateaus(
    lams: ArrayLike, labels_list: Sequence[ArrayLike], min_share: float = MIN_SHARE
) -> tuple[int, list[list[int]]]:
    """What `longest_plateau` returns, and every run: indices into `lams`, ascending in lam."""
    weights = _checks.as_vector("lams", lams)
    share = _checks.as_scalar_between("min_share", min_share, 0.0, 1.0, "it is a share of the rows")
    if len(weights) != len(labels_list):
        _checks.refuse(
            f"labels_list has {len(labels_list)} entries and lams has {len(weights)}; give labels for every "
            "lam.",
            argument="labels_list",
            got=len(labels_list),
            wanted=f"{len(weights)} entries",
        )
    order = [int(k) for k in np.argsort(weights, kind="stable")]
    runs: list[list[int]] = []
    previous = 0  # number of clusters of the run that may still grow; 0: none
    for k in order:
        sizes = cluster_sizes(labels_list[k])
        if weights[k] <= 0 or n_large(sizes, share) < 2:
            previous = 0
            continue
        if len(sizes) == previous:
            runs[-1].append(k)
        else:
            runs.append([k])
        previous = len(sizes)
    if not runs:
        _checks.refuse(
            f"no clustering has two clusters that each hold {share:.0%} of the rows (and two rows), so there is no "
            "plateau to choose; give more lams, smaller min_share, or choose by lam.",
            argument="labels_list",
            got="no such clustering",
            wanted="two clusters of that size at some lam",
        )
    # Rounded, so that two runs of equally many steps on a log grid tie instead of being told apart by noise.
    best = max(
        runs, key=lambda run: (round(float(np.log(weights[run[-1]] / weights[run[0]])), 9), weights[run[-1]])
    )
    logs = np.log(weights[best])
    return best[int(np.argmin(np.abs(logs - (logs[0] + logs[-1]) / 2)))], runs
