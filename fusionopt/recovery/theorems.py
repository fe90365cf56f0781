"""The recovery theorems of Armacki, Bajovic, Jakovetic and Kar, Personalized Federated Learning via Convex
Clustering, in the canonical scale of lam.

    F(x) = sum_i f_i(x_i) + lam w sum_{i<j} ||x_i - x_j||      (complete graph, one weight w; the paper has w = 1)

In this scale the formulas (6), (13), (27) hold with the lam of the problem. In the scale of the printed problem (3),
(1/N) sum f_i + lam sum_{j != i}, they do not: convert by ``scaling.to_canonical`` first. All bounds are divided by w.
Sharper than any of them, and for any graph: `recovery.certify` and `recovery.recovery_interval`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.clusters import first_appearance
from fusionopt.problem import FusionProblem
from fusionopt.recovery._assumption import difference_bounds
from fusionopt.recovery._conservative import sublevel_bounds
from fusionopt.recovery._model import check_problem, curvature_bounds
from fusionopt.recovery.restricted import solve_restricted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class ConservativeBounds(NamedTuple):
    """What `conservative_bounds` returns."""

    lower: float
    """lam >= lower implies (6) at this and every larger lam."""
    upper: float
    """lam < upper implies (13) at this and every smaller lam."""
    lower_exact: bool
    """Whether `lower` is the number (23) itself, or a rigorous relaxation that is not below it."""
    upper_exact: bool
    """Whether `upper` is the number (24) itself, or a rigorous relaxation that is not above it."""


def theorem1_bound(problem: FusionProblem, labels: ArrayLike) -> float:
    """Right side of (6): max over clusters k and i, j in C_k of ||grad f_i(w_k) - grad f_j(w_k)|| / n_k.

    w_1..w_K solve the problem restricted to the partition at ``problem.lam``, so the bound depends on lam.

    Parameters
    ----------
    problem : FusionProblem
        `L2Norm`, a complete graph with one weight.
    labels : array-like (m,)
        The partition, any labels.

    Returns
    -------
    float
        In the canonical scale. ``problem.lam >= theorem1_bound(problem, labels)`` means that x_i = w_k for i in
        C_k solves the problem: rows of one cluster are equal in some solution (the only one where F is strictly
        convex). It does not say that different clusters have different rows. 0.0 for single nodes.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        Another graph or penalty, a wrong shape.

    Notes
    -----
    Assumptions: convex differentiable losses (no Lipschitz constant is needed) and a restricted problem with a
    solution. Sufficient, not necessary: `min_flow` is the exact form. Where clusters meet in the restricted
    solution, w is known to about 1e-6 of its scale. O(sum n_k^2 d) time.

    References
    ----------
    Theorem 1, equation (6).

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance
    >>> problem = FusionProblem(SquaredDistance([-1.0, -0.8, 0.8, 1.0]), lam=0.2)
    >>> round(theorem1_bound(problem, [0, 0, 1, 1]), 12)
    0.1
    """
    weight, names, centers = _restricted(problem, labels)
    gradients = problem.loss.gradient(centers[names])
    largest = max(
        _diameter(gradients[names == k]) / np.count_nonzero(names == k) for k in range(len(centers))
    )
    return float(largest) / weight


def theorem2_bound(problem: FusionProblem, labels: ArrayLike) -> float:
    """Right side of (13): min_{k != l} ||grad g_k(w_k) - grad g_l(w_k)|| / (2 max_k sum_{l != k} n_l).

    g_k is the mean of the losses of cluster k; w_1..w_K as in `theorem1_bound`.

    Parameters and exceptions as in `theorem1_bound`.

    Returns
    -------
    float
        In the canonical scale. ``problem.lam < theorem2_bound(problem, labels)`` means that the centres of the
        restricted solution all differ. inf for one cluster.

    Notes
    -----
    The printed proof misses a gradient in front of g_l and does not need its Lipschitz assumption: if w_k = w_l,
    (7) bounds the norm by 2 lam max_k sum_{l != k} n_l. Together with `theorem1_bound`: the partition is exactly
    that of a solution.

    References
    ----------
    Theorem 2, equation (13).

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance
    >>> problem = FusionProblem(SquaredDistance([-1.0, -1.0, 1.0, 1.0]), lam=0.1)
    >>> round(theorem2_bound(problem, [0, 0, 1, 1]), 12)
    0.5
    """
    return _theorem2(problem, *_restricted(problem, labels))


def theorem2_bound_sharp(problem: FusionProblem, labels: ArrayLike) -> float:
    """The sharper (13'): min_{k != l} ||grad g_k(w_k) - grad g_l(w_k)|| / (2N - n_k - n_l).

    Parameters, return value, exceptions and meaning as in `theorem2_bound`; equal to it for clusters of one
    size, larger otherwise.

    Notes
    -----
    If the clusters of a set S meet at w, (7) gives ||grad g_k(w) - mean|| <= lam (n_S - n_k) for each k in S, so
    two of them differ by at most lam (2 n_S - n_k - n_l), and n_S <= N.

    References
    ----------
    The proof of Theorem 2, read closely.
    """
    weight, names, centers = _restricted(problem, labels)
    sizes = np.bincount(names)
    if len(sizes) == 1:
        return np.inf
    least = np.inf
    for k, row in enumerate(_mean_differences(problem, names, centers)):
        limits = 2.0 * len(names) - sizes[k] - sizes
        least = min(least, float((row / limits).min()))
    return least / weight


def theorem3_interval(problem: FusionProblem, labels: ArrayLike) -> tuple[float, float]:
    """The interval (27), which does not depend on lam or on any solution.

        [ max_k epsilon_k / n_k,  min_{k != l} (delta_kl - epsilon_k - epsilon_l) / (2 max_k sum_{l != k} n_l) ]

    epsilon_k = sup_x max_{i, j in C_k} ||grad f_i(x) - grad f_j(x)||, delta_kl = inf_x min_{i in C_k, j in C_l}
    ||grad f_i(x) - grad f_j(x)||.

    Parameters
    ----------
    problem : FusionProblem
        As in `theorem1_bound`; its lam is not read. `SquaredDistance`, `LeastSquares` with equal Hessians inside
        each cluster, `Huber`: epsilon and delta in closed form. `Logistic`, `HuberRegression`: epsilon from the
        bound on the gradients, delta = 0, so the interval is empty.
    labels : array-like (m,)

    Returns
    -------
    low, high : float
        In the canonical scale; low > high where the interval is empty. For every lam in [low, high] the
        partition is exactly that of a solution. high is inf for one cluster.

    Raises
    ------
    InvalidArgumentError
        epsilon_k is infinite: Hessians differ inside a cluster, or the loss has unbounded differences.
    InvalidTypeError
        As in `theorem1_bound`.

    Notes
    -----
    Assumption 3 is nearly empty outside f_i(x) = h(x) + <b_i, x>: Hessians whose difference is invertible give
    epsilon = inf inside clusters and delta = 0 between them.

    References
    ----------
    Theorem 3, equations (25) to (27).

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance
    >>> low, high = theorem3_interval(FusionProblem(SquaredDistance([-9.0, -8.0, 8.0, 9.0])), [0, 0, 1, 1])
    >>> low, high
    (0.5, 3.5)
    """
    weight = _check_uniform(problem)
    names = first_appearance(_checks.as_labels("labels", labels, problem.n_nodes))
    sizes = np.bincount(names)
    inside, between = difference_bounds(problem.loss, names)
    low = float((inside / sizes).max()) / weight
    if len(sizes) == 1:
        return low, np.inf
    room = between - inside[:, None] - inside[None, :]
    np.fill_diagonal(room, np.inf)
    return low, float(room.min()) / (2.0 * float(len(names) - sizes.min())) / weight


def theorem4_bounds(problem: FusionProblem, labels: ArrayLike) -> tuple[float, float]:
    """Theorem 4 at the minimisers x_i of the single losses: how far apart they are at most inside clusters, and
    at least between them.

        inside  = max over i, j in one cluster  of ||grad f_j(x_i)|| / mu_j  >=  ||x_i - x_j||
        between = min over i, j in two clusters of ||grad f_j(x_i)|| / L_j   <=  ||x_i - x_j||

    mu_j and L_j are constants of strong convexity and of the gradient's Lipschitz continuity of f_j.

    Parameters
    ----------
    problem : FusionProblem
        Its graph and lam are not read.
    labels : array-like (m,)

    Returns
    -------
    inside, between : float
        In the units of x. inside < between means that the minimisers of the single losses already show the
        partition: any two of one cluster are closer than any two of different clusters. 0.0 and inf where
        there are no such pairs.

    Raises
    ------
    InvalidArgumentError
        A loss that is not strongly convex (inside would be infinite) or whose gradient has no Lipschitz constant.

    Notes
    -----
    The paper takes epsilon_k / mu and delta_kl / L with epsilon, delta from Assumption 3 and one mu, L for all
    losses; only the gradients at the minimisers are needed, so no assumption on differences is. m gradients of all
    losses: O(m^2 d) and more.

    References
    ----------
    Theorem 4, equations (28) and (29).
    """
    loss = check_problem(problem)
    names = first_appearance(_checks.as_labels("labels", labels, problem.n_nodes))
    strong, lipschitz = curvature_bounds(loss)
    for found, words in (
        (strong <= 0, "strongly convex"),
        (~np.isfinite(lipschitz), "of Lipschitz gradient"),
    ):
        if found.any():
            _checks.refuse(
                f"loss {type(loss).__name__} of node {int(np.flatnonzero(found)[0])} is not {words}, which Theorem 4 "
                "assumes; add a ridge or use another bound.",
                argument="problem",
                got=type(loss).__name__,
                wanted=f"losses that are {words}",
            )
    own = solve_restricted(problem.with_lam(0.0), np.arange(problem.n_nodes)).centers
    inside, between = 0.0, np.inf
    for i in range(problem.n_nodes):
        gradients = loss.gradient(np.broadcast_to(own[i], own.shape))
        norms = np.sqrt(np.square(gradients).sum(axis=1))
        mates = names == names[i]
        mates[i] = False
        if mates.any():
            inside = max(inside, float((norms[mates] / strong[mates]).max()))
        others = names != names[i]
        if others.any():
            between = min(between, float((norms[others] / lipschitz[others]).min()))
    return inside, between


def conservative_bounds(problem: FusionProblem, labels: ArrayLike) -> ConservativeBounds:
    """The bounds (23) and (24) of Remarks 2 and 3: (6) and (13) with w over a set that holds w(lam) for every lam.

    W = {w : sum_k n_k g_k(w_k) <= f*}, f* the least value of sum_i f_i at a common point. In W the loss of cluster k
    is at most r = f* - sum_k min n_k g_k above its minimum.

    Parameters
    ----------
    problem : FusionProblem
        As in `theorem1_bound`; its lam is not read.
    labels : array-like (m,)

    Returns
    -------
    ConservativeBounds
        Quadratic losses: the exact numbers, each a quadratic over an ellipsoid. Other losses: W is put into balls
        by strong convexity and gradients are bounded by Lipschitz constants; without them (inf, 0).

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        As in `theorem1_bound`.

    Notes
    -----
    The paper prints W with "<", a sum to N and without lam in (21): a fused solution has G = f*, so W must be closed.
    ``lower <= lam < upper`` is sufficient for exact recovery, and the interval is often empty. One eigenvalue
    problem for each pair of nodes of a cluster with different Hessians.

    References
    ----------
    Remarks 2 and 3, equations (20) to (24).
    """
    weight = _check_uniform(problem)
    names = first_appearance(_checks.as_labels("labels", labels, problem.n_nodes))
    lower, upper, lower_exact, upper_exact = sublevel_bounds(problem, names)
    return ConservativeBounds(lower / weight, upper / weight, lower_exact, upper_exact)


def theorems_at(problem: FusionProblem, names: IntArray, centers: FloatArray) -> tuple[float, float]:
    """(6) and (13) at given restricted centres, for a partition in first-appearance order."""
    weight = _check_uniform(problem)
    return _theorem1(problem, weight, names, centers), _theorem2(problem, weight, names, centers)


def _theorem1(problem: FusionProblem, weight: float, names: IntArray, centers: FloatArray) -> float:
    gradients = problem.loss.gradient(centers[names])
    largest = max(
        _diameter(gradients[names == k]) / np.count_nonzero(names == k) for k in range(len(centers))
    )
    return float(largest) / weight


def _theorem2(problem: FusionProblem, weight: float, names: IntArray, centers: FloatArray) -> float:
    sizes = np.bincount(names)
    if len(sizes) == 1:
        return np.inf
    least = min(float(row.min()) for row in _mean_differences(problem, names, centers))
    return least / (2.0 * float(len(names) - sizes.min())) / weight


def is_uniform(problem: FusionProblem) -> bool:
    """Whether the theorems of the paper apply to the graph: complete, one positive weight."""
    graph = problem.graph
    return graph.is_complete and graph.node_weights is None and graph.weight > 0


def _check_uniform(problem: FusionProblem) -> float:
    """The weight of a complete graph with one weight; anything else is refused."""
    check_problem(problem)
    if not is_uniform(problem):
        _checks.refuse(
            "the theorems of the paper are for Graph.complete with one positive weight for all pairs; for other graphs "
            "use certify, min_flow or recovery_interval.",
            argument="problem",
            got=repr(problem.graph),
            wanted="Graph.complete(n, weight)",
        )
    return float(problem.graph.weight)


def _restricted(problem: FusionProblem, labels: ArrayLike) -> tuple[float, IntArray, FloatArray]:
    """Weight, partition in first-appearance order and centres of the restricted solution."""
    weight = _check_uniform(problem)
    solution = solve_restricted(problem, labels)
    return weight, solution.labels, solution.centers


def _diameter(rows: FloatArray) -> float:
    """Largest distance between two rows, in blocks."""
    largest, block = 0.0, max(1, 2**20 // max(rows.size, 1))
    for start in range(0, len(rows), block):
        diff = rows[start : start + block, None, :] - rows[None, :, :]
        largest = max(largest, float(np.einsum("ija,ija->ij", diff, diff).max()))
    return float(np.sqrt(largest))


def _mean_differences(problem: FusionProblem, names: IntArray, centers: FloatArray) -> Iterator[FloatArray]:
    """For each k: ||grad g_k(w_k) - grad g_l(w_k)|| for all l; inf at l = k."""
    sizes = np.bincount(names).astype(np.float64)
    for k, center in enumerate(centers):
        gradients = problem.loss.gradient(np.broadcast_to(center, (problem.n_nodes, problem.n_features)))
        means = np.zeros_like(centers)
        np.add.at(means, names, gradients)
        means /= sizes[:, None]
        row: FloatArray = np.sqrt(np.square(means[k] - means).sum(axis=1))
        row[k] = np.inf
        yield row
