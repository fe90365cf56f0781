"""Nearest neighbours with ties, duplicates and any scale settled the same way every time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from fusionopt import _checks
from fusionopt.clusters import equal_rows

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_BLOCK_ENTRIES = 2**21
_TREE_COLUMNS = 32


def neighbour_edges(points: FloatArray, n_neighbors: int, limit: float) -> tuple[IntArray, FloatArray, int]:
    """Edges of the graph of nearest distinct points, and the links between copies.

    Parameters
    ----------
    points : float64 (n, d)
        Finite.
    n_neighbors : int >= 1
    limit : float
        Bytes beyond which the links between copies are refused.

    Returns
    -------
    edges : int64 (E, 2)
        Each pair once, i < j, unsorted.
    lengths : float64 (E,)
        Euclidean lengths in units of 2**exponent; exactly 0 between copies.
    exponent : int
        A power of two is taken off the points, exactly, so that squares neither overflow nor underflow.
    """
    # frexp of the largest entry: after ldexp all entries are at most 1 in absolute value.
    exponent = int(np.frexp(np.abs(points).max())[1])
    scaled = np.ldexp(points, -exponent)
    groups = equal_rows(scaled)
    order = np.argsort(groups, kind="stable")
    sizes = np.bincount(groups)
    starts = np.cumsum(sizes) - sizes
    # Representatives in the order of their index, so that ties between distinct points go to the lowest
    # index.
    representatives = np.sort(order[starts])
    distinct = np.ascontiguousarray(scaled[representatives])
    pairs = representatives[_nearest(distinct, min(n_neighbors, len(distinct) - 1))]
    copies = _copies(order, starts, sizes, limit)
    lengths = np.zeros(len(pairs) + len(copies))
    lengths[: len(pairs)] = _lengths(scaled, pairs)
    return np.concatenate([pairs, copies]), lengths, exponent


def _nearest(points: FloatArray, k: int) -> IntArray:
    """Pairs i < j, each once, such that j is among the k nearest of i or i of j; all rows are different.

    Distances that differ from the k-th one by no more than rounding are ties and go to the lowest index.
    """
    n = len(points)
    if k == 0:
        return np.empty((0, 2), dtype=np.int64)
    if k == n - 1:
        i, j = np.triu_indices(n, 1)
        return np.stack([i, j], axis=1).astype(np.int64)
    # A constant column has exact differences and so no part in the rounding errors that make ties.
    varies = (points != points[0]).any(axis=0)
    sizes = np.sqrt((points[:, varies] ** 2).sum(axis=1))
    search = _by_tree if points.shape[1] <= _TREE_COLUMNS else _by_products
    ends, others = search(points, sizes, k)
    keys = np.unique(np.minimum(ends, others) * n + np.maximum(ends, others))
    return np.stack([keys // n, keys % n], axis=1)


def _tolerance(sizes: FloatArray, kth: FloatArray) -> FloatArray:
    """How far from the k-th distance a distance counts as tied with it.

    Coordinates are rounded to eps/2 of their size; differences and the sum of squares add a few eps of the
    distance.
    """
    tolerance: FloatArray = np.finfo(np.float64).eps * (4 * sizes + 8 * kth)
    return tolerance


def _by_tree(points: FloatArray, sizes: FloatArray, k: int) -> tuple[IntArray, IntArray]:
    """Each point (k times) and its neighbours, from a k-d tree; best for few columns."""
    n = len(points)
    tree = cKDTree(points, balanced_tree=False)  # splitting at midpoints copes better with far outliers
    todo = tree.indices.astype(np.int64)  # in the order of the tree, whose leaves are then still in the cache
    width = min(
        k + 2, n
    )  # the point itself, its neighbours, and one more to see whether the last one is tied
    ends, others = [], []
    while len(todo):
        tied: list[IntArray] = []
        step = max(1, _BLOCK_ENTRIES // width)
        for start in range(0, len(todo), step):
            rows = todo[start : start + step]
            distances, candidates = tree.query(points[rows], k=width)
            candidates = candidates.astype(np.int64)
            itself = candidates == rows[:, None]
            kth = distances[:, k]  # position 0 is the point itself
            tolerance = _tolerance(sizes[rows], kth)
            settled = itself.any(axis=1) & (distances[:, -1] > kth + tolerance) | (width == n)
            near = distances < (kth - tolerance)[:, None]
            tie = ~near & (distances <= (kth + tolerance)[:, None])
            # Sorted keys: the nearer ones, then the ties by index, then the rest, last the point itself.
            keys = np.where(near, 0, np.where(tie, n, 2 * n)) + candidates
            keys[itself] = 3 * n
            chosen = np.partition(keys, k - 1, axis=1)[:, :k] % n
            ends.append(np.repeat(rows[settled], k))
            others.append(chosen[settled].ravel())
            tied.append(rows[~settled])
        todo = np.concatenate(tied)
        width = min(4 * width, n)
    return np.concatenate(ends), np.concatenate(others)


def _by_products(points: FloatArray, sizes: FloatArray, k: int) -> tuple[IntArray, IntArray]:
    """The same from all inner products, bounds that leave few distances to compute; best for many columns."""
    n, d = points.shape
    centred = points - np.median(points, axis=0)
    squares = np.einsum("ij,ij->i", centred, centred)
    # ||y_i||^2 + ||y_j||^2 - 2 y_i'y_j and the shift err by at most about d eps (||y_i|| + ||y_j||)^2.
    margins = 2 * (d + 8) * np.finfo(np.float64).eps * squares
    ends, others = [], []
    step = max(1, _BLOCK_ENTRIES // n)
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        bounds = centred[rows] @ centred.T
        bounds *= -2
        bounds += squares + margins
        bounds += (squares + margins)[rows, None]  # at least the squared distance
        bounds[np.arange(len(rows)), rows] = np.inf
        reach = np.sqrt(np.partition(bounds, k - 1, axis=1)[:, k - 1])  # at least the k-th distance
        reach += 2 * _tolerance(sizes[rows], reach)
        bounds -= 2 * (margins + margins[rows, None])  # at most the squared distance
        row, other = np.nonzero(bounds <= reach[:, None] ** 2)
        end = rows[row]
        distance = _lengths(points, np.stack([end, other], axis=1))
        by_distance = np.lexsort((distance, row))
        first = np.searchsorted(row, np.arange(len(rows)))
        kth = distance[by_distance[first + k - 1]]
        tolerance = _tolerance(sizes[rows], kth)
        # As in the tree: the nearer ones, then the ties by index, then the rest.
        rank = (distance >= (kth - tolerance)[row]).astype(np.int64) + (distance > (kth + tolerance)[row])
        by_rank = np.lexsort((other, rank, row))
        chosen = by_rank[(first[:, None] + np.arange(k)).ravel()]
        ends.append(end[chosen])
        others.append(other[chosen])
    return np.concatenate(ends), np.concatenate(others)


def _copies(order: IntArray, starts: IntArray, sizes: IntArray, limit: float) -> IntArray:
    """All pairs within each group of equal points, i < j."""
    many = sizes > 1
    total = sum(int(size) * (int(size) - 1) // 2 for size in sizes[many])
    if 120.0 * total > limit:
        _checks.refuse_memory(
            f"Joining the copies of equal points (up to {int(sizes.max())} copies of one point, {total} "
            "edges)",
            120.0 * total,
            limit,
            "give each distinct point once, with the number of its copies as sample_weight",
        )
    blocks = [np.empty((0, 2), dtype=np.int64)]
    for size in np.unique(sizes[many]):
        members = order[starts[sizes == size][:, None] + np.arange(size)]  # ascending within each group
        i, j = np.triu_indices(int(size), 1)
        blocks.append(np.stack([members[:, i].ravel(), members[:, j].ravel()], axis=1))
    return np.concatenate(blocks).astype(np.int64)


def _lengths(points: FloatArray, pairs: IntArray) -> FloatArray:
    """Lengths of the edges, in blocks."""
    lengths = np.empty(len(pairs))
    step = max(1, _BLOCK_ENTRIES // points.shape[1])
    for start in range(0, len(pairs), step):
        block = pairs[start : start + step]
        difference = points[block[:, 0]] - points[block[:, 1]]
        lengths[start : start + step] = np.sqrt(np.einsum("ij,ij->i", difference, difference))
    return lengths
