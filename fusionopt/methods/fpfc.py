"""FPFC (Algorithm 1 of Yu et al.) at any participation, with exact memory saving; its answer for smoothed SCAD."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt._bridge_fpfc import FpfcServer, LocalSteps, PairReport
from fusionopt.losses.base import EPS, NodeLoss, QuadraticNodeLoss
from fusionopt.losses.pooled import pooled_minimiser
from fusionopt.methods._check import Check, judge_nodes, to_result
from fusionopt.methods._inner import exact_step
from fusionopt.methods._monitor import Monitor
from fusionopt.methods._range import RangeRepair
from fusionopt.penalties import SmoothedScad
from fusionopt.problem import FusionProblem
from fusionopt.recovery import check_fpfc_parameters
from fusionopt.result import Result
from fusionopt.settings import FpfcSettings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Judged = tuple[float, float, float, float, float]

_PATIENCE = 300
"""Rounds without halving the distance to stationarity after which rho is raised."""
_REPAIR_LIMIT = 2**24
"""Pairs times features up to which duals are mended at every look; beyond there is no bound for singular losses."""


class FpfcSession:
    """FPFC on one problem; another lam goes on from models and pairs as they are.

    Parameters
    ----------
    problem : FusionProblem
        Any loss, a radial penalty, any graph; the paper's is ``Graph.complete(m, weight=1 / m)``.
    settings : FpfcSettings
    point : float64 (n_nodes, n_features) or None
        Where to start. None: a common point, the minimiser of the summed losses of a quadratic problem, zero otherwise.
    """

    def __init__(self, problem: FusionProblem, settings: FpfcSettings, point: FloatArray | None) -> None:
        begun = time.perf_counter()
        self._settings = settings
        self.problem = problem
        loss, m = problem.loss, problem.n_nodes
        self._rng = np.random.default_rng(settings.random_state)
        if point is None:
            common = np.zeros((1, problem.n_features))
            if isinstance(loss, QuadraticNodeLoss):
                common = pooled_minimiser(loss, np.zeros(m, dtype=np.int64))
            point = np.repeat(common, m, axis=0)
        self._exact = settings.local_steps is None
        # Curvature is only looked at where a step is left to the method: for many features it is a large matrix.
        needs_majorant = settings.alpha is None and not self._exact
        self._lipschitz = _largest_curvature(loss) if needs_majorant or settings.rho is None else None
        kappa = np.ones(m)
        rho = settings.rho
        if rho is None:
            kappa = FpfcServer(problem, settings, 1.0).kappa
            rho = _default_rho(problem, kappa, point, self._lipschitz)
        if not self._exact:
            self._steps = LocalSteps(loss, settings, self._rng)
        self._use(rho, point)
        self._repair: RangeRepair | None = None
        self._mend: Callable[[FloatArray], FloatArray] = _as_they_are
        self._n_active = max(int(settings.participation * m), 1)
        self._best_distance, self._best_round = np.inf, 0
        self._finite = self.server.x
        self._setup_time = time.perf_counter() - begun

    def _use(self, rho: float, point: FloatArray) -> None:
        """A server with this rho, from these models."""
        self.server = FpfcServer(self.problem, self._settings, rho)
        self._rho = rho
        self._modulus = rho * self.server.kappa
        if not self._exact:
            self._alpha = self._step_lengths()
        self.server.start(point)

    def _raise_rho(self, n: int, distance: float) -> None:
        """Where rho is left to the method: four times as much when nothing was gained for a while, up to the 2 L_g of
        the convergence theorem (below it the rounds may circle)."""
        if self._settings.rho is not None or self.problem.penalty.convex:
            return
        if distance < 0.5 * self._best_distance:
            self._best_distance, self._best_round = distance, n
            return
        limit = 2.1 * max(self._smoothness(), self.problem.penalty.weak_convexity)
        if n - self._best_round >= _PATIENCE and self._rho < limit:
            self._use(min(4.0 * self._rho, limit), self.server.x)
            self._best_distance, self._best_round = np.inf, n

    def _step_lengths(self) -> FloatArray:
        if self._settings.alpha is not None:
            return np.full(self.problem.n_nodes, self._settings.alpha)
        if self._lipschitz is None:
            _checks.refuse(
                f"alpha=None needs a bound on the curvature of the loss, and {type(self.problem.loss).__name__} has "
                "none; give alpha, or local_steps=None.",
                argument="alpha",
                got=None,
                wanted="a number > 0",
            )
        return np.asarray(1.0 / np.maximum(self._lipschitz + self._modulus, np.finfo(float).tiny))

    def set_lam(self, lam: float) -> None:
        """Go on at another lam, from the present models and pairs."""
        begun = time.perf_counter()
        self.problem = self.problem.with_lam(lam)
        self.server.set_lam(lam)
        self._repair = None
        self._setup_time = time.perf_counter() - begun

    def round(self) -> IntArray:
        """One round; the active nodes."""
        m = self.problem.n_nodes
        active = np.arange(m, dtype=np.int64)
        if self._n_active < m:
            active = np.sort(self._rng.choice(m, self._n_active, replace=False)).astype(np.int64)
        zeta = self.server.zeta(active)
        self.server.update(active, self._local(active, zeta))
        return active

    def _local(self, active: IntArray, zeta: FloatArray) -> FloatArray:
        x, modulus = self.server.x, self._modulus[active]
        if not self._exact:
            return self._steps(x, active, zeta, modulus, self._alpha[active])
        target = x.copy()
        target[active] = zeta
        fresh = exact_step(self.problem.loss, x, self._modulus, self._modulus[:, None] * target)
        return np.asarray(fresh[active])

    def run(self, monitor: Monitor) -> Result:
        """Rounds until the stop rule holds at the present lam."""
        settings = self._settings
        every = settings.check_every or 50
        n, stopped = 0, ""
        self._best_distance, self._best_round = np.inf, 0
        check, extra = self._check()
        while not stopped:
            if n >= settings.max_iter:
                stopped = f"max_iter = {settings.max_iter} was reached"
                break
            self.round()
            n += 1
            if n % every == 0:
                check, extra = self._check()
                stopped = monitor.report(n, check.objective, check.dual_objective, check.gap, **extra)
                if check.done(settings) or not np.isfinite(check.objective):
                    break
                self._raise_rho(n, check.distance)
            else:
                stopped = monitor.stopped()
        check, extra = self._check()
        if not np.isfinite(check.objective):
            stopped = "the iterates overflow: give a smaller alpha, or local_steps=None"
            if settings.dtype == "float32":
                stopped += " (dtype='float32' holds numbers up to 3e38)"
        store = self.server.store
        how = (
            f"{n} rounds of FPFC, {self._n_active} of {self.problem.n_nodes} nodes active; {store.share:.0%} of the "
            f"pairs are kept ({store.bytes / 2**20:.3g} MiB)"
        )
        return to_result(
            self.problem,
            settings,
            check,
            monitor,
            stopped=stopped,
            n_iter=n,
            how=how + self._proof(),
            setup_time=self._setup_time,
            primal_residual=self._primal,
            duals=lambda: self._mend(self.server.duals()),
            labels=self.server.labels(settings.nu),
            extra=extra,
        )

    @np.errstate(over="ignore", invalid="ignore")
    def _check(self) -> tuple[Check, dict[str, float]]:
        """The present point with its own duals, and the norms of Theorem 1: grad_w L, G, grad_v L."""
        problem, report = self.problem, self.server.report()
        x = self.server.x
        nothing = {"grad_w": np.nan, "prox_residual": np.nan, "grad_v": np.nan}
        self._primal = report.residual
        if not (np.isfinite(x).all() and np.isfinite(report.sums).all()):
            return Check.overflowed(self._finite), nothing
        bounded = problem.penalty.convex and problem.penalty.linear_in_lam
        judged = judge_nodes(problem.loss, x, report.sums)
        product, self._mend = report.product, _as_they_are
        if bounded and not np.isfinite(judged[1]):
            judged, product = self._mended(x, report)
        value, gap, rounding, residual, distance = judged
        objective = value + report.penalty
        if not np.isfinite(objective):
            return Check.overflowed(self._finite), nothing
        self._finite = x + 0.0
        slope = problem.loss.gradient(x)
        extra = {
            "grad_w": float(np.linalg.norm(slope + report.sums)),
            "prox_residual": float(np.sqrt(report.prox_squares)),
            "grad_v": float(np.sqrt(report.squares)),
        }
        if bounded and np.isfinite(gap):
            terms = 8.0 + problem.n_features + np.sqrt(problem.graph.n_edges)
            gap += max(report.penalty - product, 0.0)
            rounding += EPS * terms * (report.magnitude + abs(product))
        else:
            gap, rounding = np.inf, 0.0
        distance = max(distance, self._distance(slope, report))
        return Check(self._finite, objective, gap, rounding, residual, distance), extra

    def _mended(self, x: FloatArray, report: PairReport) -> tuple[Judged, float]:
        """The nodes judged by duals brought into the domain of every f_i^*, and the pairs' sum of <v_ij, x_i - x_j>."""
        problem, sums, product = self.problem, report.sums, report.product
        repair = None
        if 0 < problem.graph.n_edges * problem.n_features <= _REPAIR_LIMIT:
            if self._repair is None:
                self._repair = RangeRepair(problem)
            repair = self._repair if self._repair.needed else None
        if repair is not None:
            duals, ends = repair(self.server.duals()), problem.graph.edges
            sums, product = repair.sums(duals), float(np.sum(duals * (x[ends[:, 0]] - x[ends[:, 1]])))
        scale = problem.loss.dual_scale(sums)
        self._mend = lambda duals: scale * (duals if repair is None else repair(duals))
        return judge_nodes(problem.loss, x, scale * sums), scale * product

    def _distance(self, slope: FloatArray, report: PairReport) -> float:
        """theta instead of x_i - x_j, as a force relative to all forces."""
        forces = max(float(np.linalg.norm(slope)), float(np.linalg.norm(report.sums)))
        force = max(self._rho, self._smoothness()) * float(np.sqrt(report.squares))
        return 0.0 if force == 0 else force / forces if forces > 0 else np.inf

    def _smoothness(self) -> float:
        penalty = self.problem.penalty
        return float(penalty.smoothness(self.problem.lam)) if isinstance(penalty, SmoothedScad) else 0.0

    def _proof(self) -> str:
        """What to say where rho lacks the conditions of the convergence theorem."""
        penalty, lam = self.problem.penalty, self.problem.lam
        if not isinstance(penalty, SmoothedScad) or self._exact or not penalty.xi < lam:
            return ""
        limit = 2.0 * self._smoothness()
        if self._lipschitz is None:
            return (
                ""
                if self._rho > limit
                else f"; rho = {self._rho:g} <= 2 max(lam / xi, 1 / (a - 1)) has no proof"
            )
        report = check_fpfc_parameters(
            lipschitz=max(float(self._lipschitz.max()), np.finfo(float).tiny),
            lam=lam,
            xi=penalty.xi,
            rho=self._rho,
            alpha=float(self._alpha.max()),
            local_steps=self._settings.local_steps or 1,
            a=penalty.a,
            participation=self._settings.participation,
            n_nodes=self.problem.n_nodes,
        )
        failed = [what for what, held in report.corrected.items() if not held]
        return (
            "" if not failed else f"; no proof of convergence at these parameters: {', '.join(failed)} fails"
        )


def _as_they_are(duals: FloatArray) -> FloatArray:
    return duals


def _largest_curvature(loss: NodeLoss) -> FloatArray | None:
    """L_i, (n_nodes,); None where curvature is unbounded."""
    bound = loss.majorant()
    if bound is None or bound.ndim == 1:
        return bound
    return np.asarray(np.linalg.eigvalsh(bound)[:, -1])


def _default_rho(
    problem: FusionProblem, kappa: FloatArray, point: FloatArray, lipschitz: FloatArray | None
) -> float:
    hessians = problem.loss.hessians_at(point) if problem.n_features <= 100 else None
    if hessians is None:
        curvature = 1.0 if lipschitz is None else float(lipschitz.mean())
    elif hessians.ndim == 1:
        curvature = float(hessians.mean())
    else:
        curvature = float(np.trace(hessians.mean(axis=0))) / problem.n_features
    mean = float(kappa.mean())
    balanced = curvature / mean if mean > 0 and curvature > 0 else 1.0
    return max(balanced, 2.0 * problem.penalty.weak_convexity)
