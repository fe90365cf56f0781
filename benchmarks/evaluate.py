"""The judge of every row: objective, dual value and feasibility in plain NumPy, shared with no solver."""

from __future__ import annotations

import numpy as np

from benchmarks.problems import ClusteringProblem, FloatArray, IntArray, RegressionProblem

_CHUNK = 1 << 18


def _penalty(x: FloatArray, edges: IntArray, weights: FloatArray) -> float:
    total = 0.0
    for s in range(0, len(edges), _CHUNK):
        part = slice(s, s + _CHUNK)
        difference = x[edges[part, 0]] - x[edges[part, 1]]
        total += float(weights[part] @ np.linalg.norm(difference, axis=1))
    return total


def divergence(v: FloatArray, edges: IntArray, n_nodes: int) -> FloatArray:
    """u_i = sum_j v_ij with v_ji = -v_ij."""
    u = np.zeros((n_nodes, v.shape[1]))
    for k in range(v.shape[1]):
        u[:, k] = np.bincount(edges[:, 0], v[:, k], n_nodes) - np.bincount(edges[:, 1], v[:, k], n_nodes)
    return u


def objective(problem: ClusteringProblem | RegressionProblem, x: FloatArray) -> float:
    """F(x) = sum_i f_i(x_i) + lam sum_e w_e ||x_i - x_j||."""
    edges, weights = problem.pairs()
    fusion = problem.lam * _penalty(x, edges, weights)
    if isinstance(problem, ClusteringProblem):
        return 0.5 * float(np.square(x - problem.points).sum()) + fusion
    loss = 0.5 * problem.ridge * float(np.square(x).sum())
    for z, y, row in zip(problem.designs, problem.responses, x, strict=True):
        loss += 0.5 * float(np.square(z @ row - y).mean())
    return loss + fusion


def dual_value(problem: ClusteringProblem | RegressionProblem, v: FloatArray) -> float:
    """D(v) = sum_i min_x f_i(x) + <u_i, x>, or -inf when some ||v_e|| > lam w_e."""
    edges, weights = problem.pairs()
    if np.any(np.linalg.norm(v, axis=1) > problem.lam * weights * (1.0 + 4.0 * np.finfo(float).eps)):
        return -np.inf
    u = divergence(v, edges, problem.shape[0])
    if isinstance(problem, ClusteringProblem):
        centred = problem.points - problem.points.mean(axis=0)
        return float((u * centred).sum() - 0.5 * np.square(u).sum())
    total = 0.0
    for z, y, row in zip(problem.designs, problem.responses, u, strict=True):
        hessian = z.T @ z / len(y) + problem.ridge * np.eye(z.shape[1])
        best = np.linalg.solve(hessian, z.T @ y / len(y) - row)
        total += 0.5 * float(np.square(z @ best - y).mean()) + 0.5 * problem.ridge * float(best @ best)
        total += float(row @ best)
    return total


def n_distinct_rows(x: FloatArray) -> int:
    """Rows that differ in at least one bit (the two zeros count as one)."""
    return len(np.unique(x + 0.0, axis=0))


def complete_certificate(
    points: FloatArray, lam: float, x: FloatArray, y: FloatArray, delta: float, reach: float
) -> tuple[float, float]:
    """F(x) and D(v), v_ij = reach (y_i - y_j) / max(||y_i - y_j||, delta), on the complete graph of weight 1.

    D is -inf when reach > lam. Rows in blocks, no pair is stored: O(m^2 d) time.
    """
    if reach > lam:
        return float("nan"), -np.inf
    m = len(points)
    centres, counts = np.unique(x, axis=0, return_counts=True)
    fusion = 0.0
    u = np.zeros_like(points)
    rows = max(1, (1 << 22) // m)
    for s in range(0, len(centres), rows):
        lengths = np.sqrt(_squared_distances(centres[s : s + rows], centres))
        fusion += 0.5 * float(counts[s : s + rows] @ lengths @ counts)
    for s in range(0, m, rows):
        block = y[s : s + rows]
        scale = reach / np.maximum(np.sqrt(_squared_distances(block, y)), delta)
        # sum_j scale_ij (y_i - y_j), column by column so that differences are formed before they are summed.
        for k in range(points.shape[1]):
            u[s : s + rows, k] = (scale * (block[:, k, None] - y[None, :, k])).sum(axis=1)
    centred = points - points.mean(axis=0)
    dual = float((u * centred).sum() - 0.5 * np.square(u).sum())
    return 0.5 * float(np.square(x - points).sum()) + lam * fusion, dual


def _squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    total = np.zeros((len(a), len(b)))
    for k in range(a.shape[1]):
        total += np.square(a[:, k, None] - b[None, :, k])
    return total
