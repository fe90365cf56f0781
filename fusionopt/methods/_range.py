"""Duals whose sums lie where singular losses feel them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array

from fusionopt.losses import Logistic, Poisson, Softmax, SquaredHinge
from fusionopt.losses.base import EPS, QuadraticNodeLoss
from fusionopt.losses.pooled import null_projectors
from fusionopt.problem import FusionProblem

FloatArray = NDArray[np.float64]

_BENT = (Logistic, Softmax, Poisson, SquaredHinge)
_HESSIAN_LIMIT = 100
"""Features up to which their Hessians are looked at."""
_ROUNDS, _STEPS, _TOLERANCE = 5, 200, 1e-10


class RangeRepair:
    """Takes from duals v the least that keeps sum_j v_ij outside the range of H_i, and shrinks them into their balls.

    f_i^*(-g) is infinite unless N_i g = 0, N_i the projector on the null space of H_i (of losses that are not quadratic
    but bend at zero with every sample, the Hessian there). The correction
    w_ij (y_i - y_j), y = N lambda, is the least in the norm sum ||c_ij||^2 / w_ij, and N L N lambda = N s with the
    weighted Laplacian L, sums s; conjugate gradients solve it. The constraint has no units, so one factor for all
    duals brings them back inside ||v_ij|| <= lam w_ij (theory.md section 4).

    Attributes
    ----------
    needed : bool
        Some H_i is singular.
    """

    def __init__(self, problem: FusionProblem) -> None:
        loss, graph, null = problem.loss, problem.graph, None
        if isinstance(loss, QuadraticNodeLoss):
            null = null_projectors(loss.hessians(), problem.n_features)
        elif isinstance(loss, _BENT) and problem.n_features <= _HESSIAN_LIMIT:
            origin = np.zeros((problem.n_nodes, problem.n_features))
            null = null_projectors(loss.hessians_at(origin), problem.n_features)
        self.needed = null is not None and problem.lam > 0 and graph.n_edges > 0
        if null is None or not self.needed:
            return
        self._null = np.broadcast_to(null, (problem.n_nodes, *null.shape[1:]))
        self._edges, self._weights = graph.edges, graph.weights
        self._radius = problem.lam * graph.weights
        n, places = problem.n_nodes, np.arange(graph.n_edges)
        self._noise = EPS * float(np.bincount(graph.edges.ravel(), np.repeat(self._radius, 2)).max())
        rows, columns = graph.edges.T.ravel(), np.tile(places, 2)
        signs = np.repeat([1.0, -1.0], graph.n_edges)
        self._incidence = coo_array((signs, (rows, columns)), shape=(n, graph.n_edges)).tocsr()

    def sums(self, duals: FloatArray) -> FloatArray:
        """sum_j v_ij, (n_nodes, n_features)."""
        return np.asarray(self._incidence @ duals)

    def __call__(self, duals: FloatArray) -> FloatArray:
        """New duals, (n_edges, n_features)."""
        v = duals.copy()
        for _ in range(_ROUNDS):  # what is left of one is taken by the next
            outside = self._inside(self.sums(v))
            # Of pure rounding, conjugate gradients would make large steps where N L N is next to singular.
            if np.abs(outside).max() <= self._noise:
                break
            y = self._solve(outside)
            v -= self._weights[:, None] * (y[self._edges[:, 0]] - y[self._edges[:, 1]])
        size = np.linalg.norm(v, axis=1)
        over = np.divide(size, self._radius, out=np.zeros_like(size), where=self._radius > 0)
        v[self._radius == 0] = 0.0
        return v / max(1.0, float(over.max(initial=0.0)) * (1.0 + 8.0 * EPS))

    def _inside(self, rows: FloatArray) -> FloatArray:
        return np.asarray(np.einsum("iab,ib->ia", self._null, rows))

    def _apply(self, y: FloatArray) -> FloatArray:
        flow = self._weights[:, None] * (y[self._edges[:, 0]] - y[self._edges[:, 1]])
        return self._inside(self.sums(flow))

    def _solve(self, target: FloatArray) -> FloatArray:
        y, r = np.zeros_like(target), target.copy()
        p, square = r.copy(), float(np.sum(r * r))
        goal = _TOLERANCE**2 * square
        for _ in range(_STEPS):
            if not square > goal:
                break
            ap = self._apply(p)
            bend = float(np.sum(p * ap))
            if not bend > 0:
                break
            step = square / bend
            y += step * p
            r -= step * ap
            square, last = float(np.sum(r * r)), square
            p = r + (square / last) * p
        return y
