"""Finishing under the l1 penalty, where every coordinate has its own partition.

With the groups of each coordinate and their order given, the penalty is linear, and what is left is a smooth problem
in the group values z:   min_z  sum_i f_i((E z)_i) + lam sum_ij w_ij s_ij (E z)_i - (E z)_j.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from fusionopt.clusters import components
from fusionopt.problem import FusionProblem

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

MARGINS = (1e-9, 1e-7, 1e-5, 1e-3, 1e-2)
"""How far inside its interval, relative to it, a dual must lie for its edge to be taken as fused."""
_MAX_ROUNDS = 30


def finish_coordinates(problem: FusionProblem, x: FloatArray, duals: FloatArray) -> FloatArray:
    """The best point found whose coordinates are exactly equal where the duals join them.

    Parameters
    ----------
    problem : FusionProblem
        With the l1 penalty.
    x : float64 (n_nodes, n_features)
    duals : float64 (n_edges, n_features)

    Returns
    -------
    float64 (n_nodes, n_features)
        ``x`` itself where no candidate has a lower (or, within rounding, an equal) objective.
    """
    edges, room = problem.graph.edges, problem.lam * problem.graph.weights
    best, value = x, problem.objective(x)
    noise = 64 * np.finfo(np.float64).eps * max(abs(value), problem.loss_value(x))
    fused = False
    tried: set[bytes] = set()
    for margin in MARGINS:
        inside = np.abs(duals) < (1 - margin) * room[:, None]
        groups = np.column_stack(
            [components(problem.n_nodes, edges[inside[:, k]]) for k in range(problem.n_features)]
        )
        if groups.tobytes() in tried:
            continue
        tried.add(groups.tobytes())
        candidate = _solve(problem, x, groups)
        reached = problem.objective(candidate)
        # Equal within rounding: the first candidate has the most equal coordinates.
        if reached < value - noise or (not fused and reached <= value + noise):
            best, value, fused = candidate, reached, True
    return best


def _solve(problem: FusionProblem, x: FloatArray, groups: IntArray) -> FloatArray:
    """Newton over the group values; groups that a step carries through each other along an edge are joined."""
    loss, edges = problem.loss, problem.graph.edges
    weights = problem.lam * problem.graph.weights
    m, d = x.shape
    x = _means(x, groups)
    for _ in range(_MAX_ROUNDS):
        signs = np.sign(x[edges[:, 0]] - x[edges[:, 1]])
        force = np.zeros((m, d))
        np.add.at(force, edges[:, 0], weights[:, None] * signs)
        np.add.at(force, edges[:, 1], -weights[:, None] * signs)
        offset = np.concatenate([[0], np.cumsum(groups.max(axis=0) + 1)])
        column = (groups + offset[:-1]).ravel()
        gather = sparse.csr_array((np.ones(m * d), column, np.arange(m * d + 1)), shape=(m * d, offset[-1]))
        hessians = loss.hessians_at(x)
        blocks = hessians[:, None, None] * np.eye(d) if hessians.ndim == 1 else hessians
        full = sparse.bsr_array((blocks, np.arange(m), np.arange(m + 1)), shape=(m * d, m * d))
        reduced = (gather.T @ (full @ gather)).tocsc()
        size = float(reduced.diagonal().max(initial=0.0))
        reduced = reduced + 1e-14 * (size if size > 0 else 1.0) * sparse.eye_array(offset[-1], format="csc")
        slope = gather.T @ (loss.gradient(x) + force).ravel()
        step = -(gather @ np.atleast_1d(linalg.spsolve(reduced.tocsc(), slope))).reshape(m, d)
        crossing = _first_crossing(x, step, edges, signs)
        share = _share(problem, x, step, force, min(crossing, 1.0))
        moved = x + share * step
        if crossing <= 1.0 and share == crossing:
            # The order holds up to here; beyond, these two groups are one.
            met = (signs != 0) & (
                signs * (moved[edges[:, 0]] - moved[edges[:, 1]]) <= 1e-12 * np.abs(step).max() * share
            )
            groups = _join(groups, edges, met)
            moved = _means(moved, groups)
        done = crossing > 1.0 and np.abs(share * step).max() <= 4e-16 * np.abs(moved).max()
        x = _means(moved, groups)
        if done:
            break
    return x


def _first_crossing(x: FloatArray, step: FloatArray, edges: IntArray, signs: FloatArray) -> float:
    """Share of the step at which the first two neighbouring groups meet; inf where none do."""
    apart, closing = x[edges[:, 0]] - x[edges[:, 1]], step[edges[:, 0]] - step[edges[:, 1]]
    towards = (signs != 0) & (signs * closing < 0)
    return float((-apart[towards] / closing[towards]).min()) if towards.any() else np.inf


def _share(
    problem: FusionProblem, x: FloatArray, step: FloatArray, force: FloatArray, longest: float
) -> float:
    """Backtracking on the smooth objective, from the longest step that keeps the order."""
    loss = problem.loss
    value = loss.value(x) + float((force * x).sum())
    share = longest
    for _ in range(40):
        moved = x + share * step
        if loss.value(moved) + float((force * moved).sum()) <= value:
            return share
        share *= 0.5
    return longest


def _means(x: FloatArray, groups: IntArray) -> FloatArray:
    """Every coordinate at the mean of its group: bitwise equal inside groups."""
    out = np.empty_like(x)
    for k in range(x.shape[1]):
        sums = np.bincount(groups[:, k], x[:, k])
        out[:, k] = (sums / np.bincount(groups[:, k]))[groups[:, k]]
    return out


def _join(groups: IntArray, edges: IntArray, met: NDArray[np.bool_]) -> IntArray:
    out = groups.copy()
    for k in range(groups.shape[1]):
        pairs = groups[:, k][edges[met[:, k]]]
        if len(pairs):
            out[:, k] = components(int(groups[:, k].max()) + 1, pairs)[groups[:, k]]
    return out
