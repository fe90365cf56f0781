"""The same problems stated once in CVXPY, in the form that CLARABEL solves fastest; one thread."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from benchmarks.problems import ClusteringProblem, FloatArray, IntArray, RegressionProblem


def _incidence(edges: IntArray, weights: FloatArray, n_nodes: int) -> sp.csr_array:
    """Row e holds w_e at i and -w_e at j."""
    rows = np.arange(len(edges))
    values = np.concatenate([weights, -weights])
    places = (np.concatenate([rows, rows]), np.concatenate([edges[:, 0], edges[:, 1]]))
    return sp.csr_array((values, places), shape=(len(edges), n_nodes))


def solve(problem: ClusteringProblem | RegressionProblem, eps: float = 1e-6) -> FloatArray:
    """State, compile and solve; every tolerance of CLARABEL is `eps`. Returns x of shape (m, d)."""
    edges, weights = problem.pairs()
    m, d = problem.shape
    x = cp.Variable((m, d))
    lengths = cp.Variable(len(edges))
    if isinstance(problem, ClusteringProblem):
        loss = 0.5 * cp.sum_squares(x - problem.points)
    else:
        # ||Z x - y||^2 = ||R x - Q'y||^2 + constant: p rows a node instead of n_i.
        factors = [np.linalg.qr(z) for z in problem.designs]
        scales = [1.0 / np.sqrt(len(y)) for y in problem.responses]
        stacked = sp.block_diag([s * f.R for s, f in zip(scales, factors, strict=True)], format="csr")
        right = np.concatenate(
            [s * (f.Q.T @ y) for s, f, y in zip(scales, factors, problem.responses, strict=True)]
        )
        loss = 0.5 * cp.sum_squares(stacked @ cp.vec(x, order="C") - right)
        loss += 0.5 * problem.ridge * cp.sum_squares(x)
    cones = cp.SOC(lengths, _incidence(edges, weights, m) @ x, axis=1)
    model = cp.Problem(cp.Minimize(loss + problem.lam * cp.sum(lengths)), [cones])
    model.solve(solver="CLARABEL", tol_gap_abs=eps, tol_gap_rel=eps, tol_feas=eps, max_threads=1)
    if x.value is None:
        raise RuntimeError(f"CLARABEL ended with status {model.status}")
    return np.asarray(x.value, dtype=np.float64)
