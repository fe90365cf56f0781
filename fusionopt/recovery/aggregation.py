"""Splits and weights of clustered federated averaging, as pure functions of matrices of numbers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from fusionopt import _checks
from fusionopt.recovery.flow import load_cvxpy

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

FLOOR = 1e-3
"""Least imbalance of a cluster, as a share of all samples, in `rfedavg_weights`."""


def bipartition(similarity: ArrayLike) -> tuple[IntArray, IntArray]:
    """The split into two that makes the largest similarity across it as small as possible.

        argmin over c_1, c_2 of max_{i in c_1, j in c_2} alpha_ij

    Parameters
    ----------
    similarity : array-like (m, m), m >= 2
        alpha, symmetric; the diagonal is not read.

    Returns
    -------
    left, right : int64 arrays
        Ascending members; node 0 is in `left`. Where several splits are best, one of them.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        Not square, not symmetric, NaN or Inf.

    Notes
    -----
    Every split crosses an edge of a maximum spanning tree, so no split does better than the tree's smallest
    edge, and removing that edge attains it: single linkage. Complete linkage, which published code uses, solves
    another problem. O(m^2 log m).

    References
    ----------
    Sattler, Mueller and Samek, Clustered Federated Learning, equation (6).

    Examples
    --------
    >>> left, right = bipartition([[1.0, 0.9, -0.8], [0.9, 1.0, -0.7], [-0.8, -0.7, 1.0]])
    >>> left.tolist(), right.tolist()
    ([0, 1], [2])
    """
    alpha = as_similarity("similarity", similarity)
    tree = spanning_tree(alpha)
    smallest = int(np.argmin(alpha[tree[:, 0], tree[:, 1]]))
    kept = np.delete(tree, smallest, axis=0)
    m = len(alpha)
    joined = sparse.csr_matrix((np.ones(len(kept)), (kept[:, 0], kept[:, 1])), shape=(m, m))
    side = connected_components(joined, directed=False)[1]
    return np.flatnonzero(side == side[0]), np.flatnonzero(side != side[0])


def spanning_tree(alpha: FloatArray) -> IntArray:
    """Edges (m - 1, 2) of a maximum spanning tree."""
    m = len(alpha)
    i, j = np.triu_indices(m, 1)
    # Ranks: SciPy takes an entry of zero for no edge, and shifting values would lose their last digits.
    ranks = np.empty(len(i))
    ranks[np.argsort(-alpha[i, j], kind="stable")] = np.arange(1, len(i) + 1)
    tree = minimum_spanning_tree(sparse.csr_matrix((ranks, (i, j)), shape=(m, m))).tocoo()
    return np.stack([tree.row, tree.col], axis=1).astype(np.int64)


def as_similarity(name: str, value: ArrayLike) -> FloatArray:
    """A checked symmetric matrix of at least two rows."""
    alpha = _checks.as_matrix(name, value)
    if alpha.shape[0] != alpha.shape[1] or len(alpha) < 2:
        _checks.refuse(
            f"{name} has shape {alpha.shape}; give a square matrix of at least two rows.",
            argument=name,
            got=alpha.shape,
            wanted="(m, m) with m >= 2",
        )
    size = float(np.abs(alpha).max())
    if float(np.abs(alpha - alpha.T).max()) > 1e-9 * size:
        i, j = np.unravel_index(int(np.abs(alpha - alpha.T).argmax()), alpha.shape)
        _checks.refuse(
            f"{name}[{i}, {j}] and {name}[{j}, {i}] differ; give a symmetric matrix.",
            argument=name,
            got=(float(alpha[i, j]), float(alpha[j, i])),
            wanted="a symmetric matrix",
        )
    upper: FloatArray = np.maximum(alpha, alpha.T)
    return upper


def as_counts(name: str, value: ArrayLike) -> FloatArray:
    """Checked numbers of samples, one row for each client or cluster, one column for each class."""
    counts = _checks.as_matrix(name, value)
    if float(counts.min()) < 0:
        _checks.refuse(
            f"{name} has a negative entry; give numbers of samples.",
            argument=name,
            got=float(counts.min()),
            wanted=">= 0",
        )
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if len(empty):
        _checks.refuse(
            f"row {empty[0]} of {name} has no samples; leave it out.",
            argument=name,
            got=f"row {empty[0]} all zero",
            wanted="samples in every row",
        )
    return counts


def _as_clusters(clusters: Sequence[Sequence[int]], m: int) -> list[IntArray]:
    try:
        found = [np.asarray(members).ravel() for members in clusters]
    except TypeError:
        found = [np.empty(0)]
    if any(len(members) and members.dtype.kind not in "iu" for members in found):
        _checks.refuse_type(
            "clusters must be lists of whole client numbers.",
            argument="clusters",
            got=_checks.shown(clusters),
            wanted="lists of client numbers",
        )
    groups = [members.astype(np.int64) for members in found]
    if len(groups) == 0 or min(map(len, groups)) == 0:
        _checks.refuse(
            "clusters is empty or has an empty cluster; give at least one client for each.",
            argument="clusters",
            got=[len(group) for group in groups],
            wanted="lists of client numbers",
        )
    everyone = np.concatenate(groups)
    if everyone.min() < 0 or everyone.max() >= m or len(np.unique(everyone)) < len(everyone):
        _checks.refuse(
            f"clusters must name each client at most once, by numbers from 0 to {m - 1}.",
            argument="clusters",
            got=_checks.shown([group.tolist() for group in groups]),
            wanted="disjoint lists",
        )
    return groups


def data_imbalance(class_counts: ArrayLike, clusters: Sequence[Sequence[int]]) -> FloatArray:
    """I_C of each cluster: max_{k in C} I_k minus the samples of its other clients.

    I_k = sum_m |D / M - D_k^m|, D the samples of all clients, M the number of classes.

    Parameters and exceptions as in `rfedavg_weights`.

    Returns
    -------
    float64 (n_clusters,)
        D - D_C wherever no client has more than D / M samples of a class, whatever the classes are.

    References
    ----------
    Wang, Zhang and Tao, Adaptive Clustering-Based Model Aggregation, equation (17), steps 1 and 2.
    """
    counts = as_counts("class_counts", class_counts)
    groups = _as_clusters(clusters, len(counts))
    total, classes = float(counts.sum()), counts.shape[1]
    sizes = counts.sum(axis=1)
    levels = np.abs(total / classes - counts).sum(axis=1)
    values = []
    for members in groups:
        worst = members[int(np.argmax(levels[members]))]
        values.append(float(levels[worst] - (sizes[members].sum() - sizes[worst])))
    return np.array(values)


def rfedavg_weights(class_counts: ArrayLike, clusters: Sequence[Sequence[int]]) -> FloatArray:
    """Weights of the clusters' gradients: p_n proportional to 1 / max(I_n, 0.001 D), adding up to one.

    Parameters
    ----------
    class_counts : array-like (n_clients, n_classes) >= 0
        Samples of each client by class.
    clusters : list of lists of int
        Clients of each cluster; a client in none counts in D only.

    Returns
    -------
    float64 (n_clusters,)

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        Negative counts, a client without samples, clusters that overlap or name an unknown client.

    Notes
    -----
    The paper's p_n = (1/I_n) / sum (1/I_n) divides by zero for one cluster and is negative where D is read as a
    part of the data; the floor keeps it a weight.

    References
    ----------
    Wang, Zhang and Tao (RFedAvg), section III-B.

    Examples
    --------
    >>> rfedavg_weights([[10, 0], [0, 10], [10, 0]], [[0, 2], [1]]).round(4).tolist()
    [0.6667, 0.3333]
    """
    imbalance = data_imbalance(class_counts, clusters)
    if len(imbalance) == 1:
        return np.ones(1)
    total = float(as_counts("class_counts", class_counts).sum())
    inverse = 1.0 / np.maximum(imbalance, FLOOR * total)
    weights: FloatArray = inverse / inverse.sum()
    return weights


def optimal_cluster_weights(cluster_class_counts: ArrayLike) -> FloatArray:
    """argmin over the simplex of sum_j (sum_n p_n D_n^j / D_n - 1/M)^2, by CVXPY.

    Parameters
    ----------
    cluster_class_counts : array-like (n_clusters, n_classes) >= 0
        Samples of each cluster by class.

    Returns
    -------
    float64 (n_clusters,)
        Not unique where clusters share their mix of classes.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        Negative counts, a cluster without samples.
    MissingDependencyError
        CVXPY is not installed.

    References
    ----------
    Wang, Zhang and Tao (RFedAvg), problem Q1, equation (16).
    """
    counts = as_counts("cluster_class_counts", cluster_class_counts)
    shares = counts / counts.sum(axis=1, keepdims=True)
    cp = load_cvxpy()
    p = cp.Variable(len(shares), nonneg=True)
    program = cp.Problem(cp.Minimize(cp.sum_squares(shares.T @ p - 1.0 / shares.shape[1])), [cp.sum(p) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-13, tol_gap_rel=1e-13, tol_feas=1e-13)
    found = np.maximum(np.asarray(p.value, dtype=np.float64), 0.0)
    weights: FloatArray = found / found.sum()
    return weights
