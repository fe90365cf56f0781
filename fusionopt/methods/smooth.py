"""The squared penalty joins the nodes smoothly: damped Newton on everything at once.

    F(x) = sum_i f_i(x_i) + lam sum_ij w_ij ||x_i - x_j||^2,       v_ij = 2 lam w_ij (x_i - x_j)

With these duals the penalty has no slack, so the gap is that of the nodes alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from fusionopt.graph import Graph
from fusionopt.losses.base import EPS
from fusionopt.losses.pooled import newton_minimiser
from fusionopt.methods._check import Check, judge_nodes, to_result
from fusionopt.methods._monitor import Monitor
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import AdmmSettings

FloatArray = NDArray[np.float64]
Solver = Callable[[FloatArray], FloatArray]

_ARMIJO = 1e-4
_FLAT = 1e-12
"""Least curvature of a step, relative to the largest of all nodes."""
_DIRECT = 20000
"""Unknowns up to which a sparse factor is taken; beyond it conjugate gradients."""


class SmoothSession:
    """A problem with `SquaredL2`, which moves from lam to lam and keeps its point."""

    def __init__(self, problem: FusionProblem, settings: AdmmSettings, point: FloatArray | None) -> None:
        start = time.perf_counter()
        self._problem, self._settings = problem, settings
        self._coupling = _Coupling(problem.graph)
        if point is None:
            components = problem.graph.component_labels
            zero = np.zeros((int(components.max()) + 1, problem.n_features))
            point = newton_minimiser(problem.loss, components, zero)[components]
        self._x = point
        self._setup_time = time.perf_counter() - start

    def set_lam(self, lam: float) -> None:
        """Go on at another lam."""
        self._problem = self._problem.with_lam(lam)
        self._setup_time = 0.0

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam."""
        problem, settings, coupling = self._problem, self._settings, self._coupling
        loss, lam, x = problem.loss, problem.lam, self._x
        stopped, damping, n_iter = "", 0.0, 0
        best = self._judge(x)
        while not stopped:
            stopped = monitor.report(n_iter, best.objective, best.dual_objective, best.gap)
            if best.exact or stopped:
                break
            if n_iter >= settings.max_iter:
                stopped = f"max_iter = {settings.max_iter} was reached"
                break
            slope = loss.gradient(x) + 2 * lam * coupling.laplacian(x)
            step = -coupling.solver(loss.hessians_at(x), lam, damping)(slope)
            expected = float((slope * step).sum())
            check, share = best, 1.0
            for _ in range(40):
                check = self._judge(x + share * step)
                if check.objective <= best.objective + _ARMIJO * share * min(expected, 0.0):
                    break
                # At the rounding of the objective only forces still tell: cells that nobody feels want them at zero.
                even = EPS * (problem.n_nodes + 8) * abs(best.objective)
                if check.objective <= best.objective + even and check.distance < 0.5 * best.distance:
                    break
                share *= 0.5
            n_iter += 1
            damping = 0.1 * damping if share == 1.0 else max(10 * damping, 1e-6)
            damping = damping if damping > 1e-9 else 0.0
            # Newton converges fast: it goes on until a step gains nothing, and the tolerance is only the least.
            better = check.gap < 0.5 * best.gap or check.objective < best.objective
            if better or (not np.isfinite(best.gap) and check.distance < 0.5 * best.distance):
                best, x = check, check.x
            elif best.done(settings) or share == 1.0:
                break
        self._x = best.x
        return to_result(
            problem,
            settings,
            best,
            monitor,
            stopped=stopped,
            n_iter=n_iter,
            how=f"{n_iter} Newton steps",
            setup_time=self._setup_time,
            primal_residual=0.0,
            duals=lambda: best.dual_scale * 2 * lam * coupling.differences(best.x),
        )

    def _judge(self, x: FloatArray) -> Check:
        problem = self._problem
        sums = 2 * problem.lam * self._coupling.laplacian(x)
        # Differences of rows cancel: what rounds is the rows themselves.
        error = (
            2 * problem.lam * EPS * (len(x) + 8) * self._coupling.degrees()[:, None] * np.abs(x).max(axis=0)
        )
        scale = problem.loss.dual_scale(sums, error)
        value, gap, rounding, residual, distance = judge_nodes(problem.loss, x, scale * sums, error)
        penalty = problem.penalty_value(x)
        # w g(u) + w g*(s v / w) - <s v, u> = (1 - s)^2 w g(u) for the v of this penalty.
        return Check(
            x=x,
            objective=value + penalty,
            gap=gap + (1.0 - scale) ** 2 * penalty,
            rounding=rounding + EPS * (problem.n_nodes + 8) * penalty,
            residual=residual,
            distance=distance,
            dual_scale=scale,
        )


class _Coupling:
    """B'WB of a graph: products, differences, and solves with node Hessians added."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        if graph.is_complete:
            r = graph.node_weights
            self._r = np.ones(graph.n_nodes) if r is None else r
            return
        i, j = graph.edges.T
        n = graph.n_nodes
        weights = sparse.coo_array((graph.weights, (i, j)), shape=(n, n))
        both = (weights + weights.T).tocsr()
        self._matrix = (sparse.diags_array(both.sum(axis=1)) - both).tocsc()

    def laplacian(self, x: FloatArray) -> FloatArray:
        """Row i is sum_j w_ij (x_i - x_j)."""
        if not self._graph.is_complete:
            return np.asarray(self._matrix @ x)
        r = self._r / self._r.sum()
        mean = r @ x
        pulled: FloatArray = self._graph.weight * self._r.sum() * self._r[:, None] * (x - mean)
        return pulled

    def degrees(self) -> FloatArray:
        """sum_j w_ij."""
        if self._graph.is_complete:
            return np.asarray(self._graph.weight * self._r * self._r.sum())
        return np.asarray(self._matrix.diagonal())

    def differences(self, x: FloatArray) -> FloatArray:
        """w_ij (x_i - x_j) in the order of the edges."""
        i, j = self._graph.edges.T
        return np.asarray(self._graph.weights[:, None] * (x[i] - x[j]))

    def solver(self, hessians: FloatArray, lam: float, damping: float) -> Solver:
        """b -> (H + damping + 2 lam B'WB)^-1 b."""
        m = len(hessians)
        size = hessians if hessians.ndim == 1 else np.trace(hessians, axis1=1, axis2=2) / hessians.shape[1]
        largest = float(size.max())
        lift = damping * np.maximum(size, 1e-3 * largest) + _FLAT * (largest if largest > 0 else 1.0)
        if self._graph.is_complete:
            return self._complete_solver(hessians, lift, 2 * lam * self._graph.weight)
        if hessians.ndim == 1:
            factor = linalg.splu((2 * lam * self._matrix + sparse.diags_array(hessians + lift)).tocsc())
            return lambda b: np.asarray(factor.solve(b))
        d = hessians.shape[1]
        blocks = hessians + lift[:, None, None] * np.eye(d)
        diagonal = sparse.bsr_array((blocks, np.arange(m), np.arange(m + 1)), shape=(m * d, m * d))
        matrix = (diagonal + sparse.kron(2 * lam * self._matrix, sparse.eye_array(d))).tocsc()
        if m * d <= _DIRECT:
            factor = linalg.splu(matrix)
            return lambda b: np.asarray(factor.solve(b.ravel())).reshape(b.shape)
        inverse = np.linalg.inv(blocks + (2 * lam * self._matrix.diagonal())[:, None, None] * np.eye(d))
        jacobi = linalg.LinearOperator(
            matrix.shape, lambda v: np.matmul(inverse, v.reshape(m, d, 1)).ravel(), dtype=np.float64
        )

        def by_gradients(b: FloatArray) -> FloatArray:
            answer, _ = linalg.cg(matrix, b.ravel(), rtol=1e-10, maxiter=2000, M=jacobi)
            return np.asarray(answer).reshape(b.shape)

        return by_gradients

    def _complete_solver(self, hessians: FloatArray, lift: FloatArray, c: float) -> Solver:
        # A_i = H_i + c r_i R I;  (A - c r r')^-1 by elimination of s = sum_j r_j x_j, whose matrix is written as
        # sum_j (r_j / R) A_j^-1 H_j: free of the cancellation in I - c sum_j r_j^2 A_j^-1.
        r, total = self._r, float(self._r.sum())
        if hessians.ndim == 1:
            h = hessians + lift
            a = h + c * r * total
            core = float((r / total * h / a).sum())

            def scalar(b: FloatArray) -> FloatArray:
                own = b / a[:, None]
                return np.asarray(own + (c * r / a)[:, None] * ((r @ own) / core))

            return scalar
        d = hessians.shape[1]
        h_full = hessians + lift[:, None, None] * np.eye(d)
        inverse = np.linalg.inv(h_full + (c * r * total)[:, None, None] * np.eye(d))
        matrix = np.einsum("i,iab,ibc->ac", r / total, inverse, h_full)

        def dense(b: FloatArray) -> FloatArray:
            own = np.matmul(inverse, b[:, :, None])[:, :, 0]
            s = np.linalg.solve(matrix, r @ own)
            return np.asarray(own + np.matmul(inverse, (c * r[:, None] * s)[:, :, None])[:, :, 0])

        return dense
