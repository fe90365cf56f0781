"""PDMM (Algorithm 1 of Armacki et al.) with pairs as units, its own duality gap and a finished partition."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt._bridge_pdmm import PdmmEngine
from fusionopt.clusters import cluster_means, components
from fusionopt.losses.base import EPS, NodeLoss, QuadraticNodeLoss
from fusionopt.losses.pooled import pooled_minimiser
from fusionopt.methods._check import Check, judge_nodes, to_result
from fusionopt.methods._inner import exact_step
from fusionopt.methods._monitor import Monitor
from fusionopt.methods._range import RangeRepair
from fusionopt.penalties import L2Norm
from fusionopt.problem import FusionProblem
from fusionopt.recovery import solve_restricted
from fusionopt.result import Result
from fusionopt.settings import PdmmSettings, check_pdmm_stability

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_CHUNK = 10
_MARGINS = (0.0, 1e-8, 1e-6, 1e-4, 1e-2)
"""A pair with ||v|| <= lam w (1 - margin) and z = 0 counts as fused in one candidate partition."""
_RESTRICTED_LIMIT = 1500
"""Centres times features up to which a candidate's centres are solved for; beyond they are plain means."""
_MAX_FINISHES = 6
_LOOK, _FAST, _STRETCH = 40, 0.02, 32.0
"""Where rho and eta are left to the method, they are looked at every 40 iterations, changed while the gap falls by less
than a factor exp(0.02) an iteration, and stay within a factor 32 of the start."""
_HEAVY_SLACK, _HEAVY_NODES = 100.0, 10.0
"""The edges' and the nodes' part of the gap out of balance."""


class PdmmSession:
    """PDMM on one problem; another lam starts from the last x with fresh pairs.

    Parameters
    ----------
    problem : FusionProblem
        The l2 penalty, any graph.
    settings : PdmmSettings
    point : float64 (n_nodes, n_features) or None
        Where to start. None: a common point, the minimiser of the summed losses of a quadratic problem, zero otherwise.
    """

    def __init__(self, problem: FusionProblem, settings: PdmmSettings, point: FloatArray | None) -> None:
        _checks.check_instance("problem.penalty", problem.penalty, L2Norm, "PDMM solves the l2 penalty")
        if settings.scheme == "literal":
            warnings.warn(
                "scheme='literal' draws z_ij, z_ji and their duals apart, so the duals lose their antisymmetry and the "
                "run can stop at a point that is not optimal; scheme='pairs' draws pairs as units.",
                RuntimeWarning,
                stacklevel=4,
            )
        self._settings = settings
        self._point = point
        self._open(problem)

    def _open(self, problem: FusionProblem) -> None:
        begun = time.perf_counter()
        settings, loss = self._settings, problem.loss
        self.problem = problem
        if self._point is None:
            common = np.zeros((1, problem.n_features))
            if isinstance(loss, QuadraticNodeLoss):
                common = pooled_minimiser(loss, np.zeros(problem.n_nodes, dtype=np.int64))
            self._point = np.repeat(common, problem.n_nodes, axis=0)
        rho, eta = self._steps(problem, self._point)
        if problem.graph.is_complete:
            curvature = settings.ratio / ((settings.eta or 1.0) / (settings.rho or settings.eta or 1.0))
            n, users = problem.n_nodes, curvature * eta / rho
            check_pdmm_stability(settings.tau, settings.nu, settings.ratio, max(1.0, n / (n - 1 + users)))
        self._engine = PdmmEngine(problem, settings, rho, eta, self._point.mean(axis=0))
        if isinstance(loss, QuadraticNodeLoss):
            self._engine.use_quadratic(loss)
        self._engine.start(self._point)
        # sum_j v_ij has at most deg_i terms of length lam w_ij.
        degree, pull = np.zeros((2, problem.n_nodes))
        edges, weights = problem.graph.edges, problem.graph.weights
        for end in edges.T:
            degree += np.bincount(end, minlength=problem.n_nodes)
            pull += np.bincount(end, weights, minlength=problem.n_nodes)
        bound = EPS * (degree + 4.0) * problem.lam * pull
        self._sums_error = np.repeat(bound[:, None], problem.n_features, axis=1)
        self._repair = RangeRepair(problem)
        self._finite = self._point
        self._setup_time = time.perf_counter() - begun

    def _steps(self, problem: FusionProblem, point: FloatArray) -> tuple[float, float]:
        """rho and eta of the pairs."""
        rho, eta = self._settings.rho, self._settings.eta
        if rho is None and eta is None:
            degree = 2.0 * problem.graph.n_edges / problem.n_nodes
            rho = 2.0 * _curvature(problem.loss, point) / (degree + 1.0)
        rho = rho if rho is not None else eta
        assert rho is not None
        return rho, rho if eta is None else eta

    def set_lam(self, lam: float) -> None:
        """Go on at another lam, from the present answer."""
        if lam != self.problem.lam:
            self._open(self.problem.with_lam(lam))

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam."""
        settings, engine = self._settings, self._engine
        every = settings.check_every or 10
        self._next_look, self._last_look, self._stretched = _LOOK, 0, 1.0
        self._last_gap = np.inf
        first, finishes, tightening, stopped = engine.n_iter, 0, 1.0, ""
        check = self._judge(engine.x)
        while not stopped:
            left = settings.max_iter - (engine.n_iter - first)
            if left <= 0:
                stopped = f"max_iter = {settings.max_iter} was reached"
                break
            self._advance(min(every, left))
            check = self._judge(engine.x)
            if not np.isfinite(check.objective):
                stopped = "the iterates overflow: give a smaller tau or a larger eta"
                break
            stopped = monitor.report(engine.n_iter - first, check.objective, check.dual_objective, check.gap)
            goal = replace(
                settings, eps_rel=tightening * settings.eps_rel, eps_abs=tightening * settings.eps_abs
            )
            if check.done(goal) and not stopped:
                finishes += 1
                check = self._finish(check)
                if check.done(settings) or finishes >= _MAX_FINISHES:
                    break
                tightening *= 0.1
            elif settings.rho is None and settings.eta is None:
                self._retune(check, engine.n_iter - first)
        if stopped and np.isfinite(check.objective):
            check = self._finish(check)
        return self._result(check, stopped, engine.n_iter - first, monitor)

    def _retune(self, check: Check, n_iter: int) -> None:
        """While the gap falls slowly: a large slack of the edges asks for more rho (and eta), a large residual of the
        nodes for less."""
        gap, slack = check.gap, self._slack
        nodes = gap - slack
        if n_iter < self._next_look or not 0 < gap < np.inf:
            return
        rate = np.log(self._last_gap / gap) / (n_iter - self._last_look) if self._last_gap < np.inf else 0.0
        known = self._last_gap < np.inf
        self._last_gap, self._last_look = gap, n_iter
        # Convergence needs rho to settle: the pauses grow.
        self._next_look = n_iter + max(_LOOK, n_iter // 8)
        factor = 2.0 if slack > _HEAVY_SLACK * nodes else 0.5 if nodes > _HEAVY_NODES * slack else 1.0
        if known and rate < _FAST and 1 / _STRETCH <= self._stretched * factor <= _STRETCH:
            self._stretched *= factor
            self._engine.stretch(factor)

    def _advance(self, iterations: int) -> None:
        engine, loss = self._engine, self.problem.loss
        if isinstance(loss, QuadraticNodeLoss):
            engine.run(iterations)
            return
        for _ in range(iterations):
            _, b = engine.begin()
            engine.end(exact_step(loss, engine.x, engine.modulus, b))

    @np.errstate(over="ignore", invalid="ignore")
    def _judge(self, x: FloatArray) -> Check:
        problem, loss = self.problem, self.problem.loss
        edges = self._engine.balance(x)
        if not (np.isfinite(x).all() and np.isfinite(edges.sums).all()):
            return Check.overflowed(self._finite)
        sums, product = edges.sums, edges.product
        if self._repair.needed:
            duals = self._repair(self._engine.duals())
            sums, ends = self._repair.sums(duals), problem.graph.edges
            product = float(np.sum(duals * (x[ends[:, 0]] - x[ends[:, 1]])))
        # The duals may leave the domain of an f_i^*: one factor for all of them brings them back.
        scale = loss.dual_scale(sums, self._sums_error)
        value, gap, rounding, residual, distance = judge_nodes(loss, x, scale * sums, self._sums_error)
        self._slack = max(edges.penalty - scale * product, 0.0)
        terms = 8.0 + problem.n_features + np.sqrt(problem.graph.n_edges)
        rounding += EPS * terms * (edges.penalty + abs(product))
        if not np.isfinite(value + edges.penalty):
            return Check.overflowed(self._finite)
        self._finite = x + 0.0
        objective, gap = value + edges.penalty, gap + self._slack
        return Check(self._finite, objective, gap, rounding, residual, distance, dual_scale=scale)

    def _finish(self, raw: Check) -> Check:
        """The lowest of the raw point and of points constant on candidate partitions read off the duals."""
        problem = self.problem
        lengths, zero = self._engine.edge_state()
        edges, radius = problem.graph.edges, problem.lam * problem.graph.weights
        candidates, seen = [raw], set[bytes]()
        for margin in _MARGINS:
            fused = zero & (lengths <= radius * (1.0 - margin))
            labels = components(problem.n_nodes, edges[fused])
            if labels.tobytes() in seen or int(labels.max()) + 1 == problem.n_nodes:
                continue
            seen.add(labels.tobytes())
            candidates.append(self._judge(self._centres(labels, raw.x)[labels]))
        least = min(candidate.objective for candidate in candidates)
        # Equal within rounding: the coarsest, which comes first among those that are not raw.
        level = [c for c in candidates if c.objective <= least + max(c.rounding, EPS * abs(least))]
        return level[-1] if len(level) == 1 else next(c for c in level if c is not raw)

    def _centres(self, labels: IntArray, x: FloatArray) -> FloatArray:
        problem = self.problem
        means = cluster_means(x, labels)
        quadratic = isinstance(problem.loss, QuadraticNodeLoss)
        if not quadratic or means.size > _RESTRICTED_LIMIT:
            return means
        return solve_restricted(problem, labels, start=means).centers

    def _result(self, check: Check, stopped: str, n_iter: int, monitor: Monitor) -> Result:
        engine, settings, repair = self._engine, self._settings, self._repair
        sent = engine.messages
        how = f"{n_iter} iterations of PDMM ({settings.scheme}); {sent.up} vectors up, {sent.down} down"
        if settings.skip_fused is not None:
            share = sent.skipped / max(sent.pairs + sent.skipped, 1)
            how += f"; {share:.0%} of the pair updates were left out at fused pairs"
        if settings.scheme == "literal":
            how += f"; ordered duals differ from antisymmetric ones by up to {engine.asymmetry():.2g}"
        self._point = check.x
        return to_result(
            self.problem,
            settings,
            check,
            monitor,
            stopped=stopped,
            n_iter=n_iter,
            how=how,
            setup_time=self._setup_time,
            primal_residual=engine.primal_residual(),
            duals=lambda: check.dual_scale * (repair(engine.duals()) if repair.needed else engine.duals()),
        )


def _curvature(loss: NodeLoss, x: FloatArray) -> float:
    """Least eigenvalue of the mean Hessian; where that is next to zero, a thousandth of the largest."""
    hessians = loss.hessians() if isinstance(loss, QuadraticNodeLoss) else loss.hessians_at(x)
    if hessians.ndim == 1:
        return float(hessians.mean())
    values = np.linalg.eigvalsh(hessians.mean(axis=0))
    return float(max(values[0], 1e-3 * values[-1]))
