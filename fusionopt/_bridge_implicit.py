"""The storage-free solver of the core in the caller's units: complete graphs whose pairs are never stored.

    x = shift + s x',   m_i = h m_i',   r_i = r_max w_i,   lam weight r_max^2 = (h s) lam'

with powers of two for h and s, as in `_bridge`; shift is the pooled minimiser.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fusionopt import _core
from fusionopt._bridge import Certificate
from fusionopt._duals import ImplicitDuals
from fusionopt.losses import SquaredDistance
from fusionopt.losses.pooled import pooled_minimiser
from fusionopt.problem import FusionProblem
from fusionopt.settings import Settings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_CAP = 2.0
"""Largest ball of the lightest pair, in units of the sum of all forces: beyond it a larger lam changes nothing."""


class ImplicitEngine:
    """One problem in the storage-free core.

    Parameters
    ----------
    problem : FusionProblem
        One that `fits`.
    settings : Settings
    """

    def __init__(self, problem: FusionProblem, settings: Settings) -> None:
        loss, graph = problem.loss, problem.graph
        assert isinstance(loss, SquaredDistance)
        self.problem = problem
        self._loss, self._settings = loss, settings
        self.shift = pooled_minimiser(loss, np.zeros(loss.n_nodes, dtype=np.int64))[0]
        everywhere = np.broadcast_to(self.shift, (loss.n_nodes, loss.n_features))
        force = -loss.gradient(everywhere)
        force[np.abs(force) <= loss.gradient_error(everywhere)] = 0.0
        self._force = force
        curvature = loss.hessians()
        self._h = _power_of_two(float(curvature.max()))
        self._s = _power_of_two(float(np.abs(force / curvature[:, None]).max()))
        with np.errstate(over="ignore", under="ignore"):
            unit = float(np.float64(self._h) * np.float64(self._s) ** 2)
        r = np.ones(loss.n_nodes) if graph.node_weights is None else graph.node_weights
        self._weights = r / r.max()
        self._u = graph.weight * float(r.max()) ** 2
        #: Every node agrees with the pooled minimiser, or nothing pulls: no pass is needed.
        self.decoupled = not force.any() or problem.lam == 0
        self.in_range = 0 < unit < math.inf
        if self.decoupled or not self.in_range:
            return
        targets = force / curvature[:, None] / self._s
        curvature = curvature / self._h
        lam = problem.lam * self._u / (self._h * self._s)
        forces = float((curvature * np.linalg.norm(targets, axis=1)).sum())
        self._lam = min(lam, _CAP * forces / float(self._weights.min()) ** 2)
        self._capped = self._lam < lam
        self._core = _core.Implicit(
            np.ascontiguousarray(targets),
            curvature,
            self._weights,
            self._lam,
            eps_rel=settings.eps_rel,
            eps_abs=settings.eps_abs / unit,
            max_newton=settings.max_iter,
            seed=0 if settings.random_state is None else settings.random_state,
            n_threads=settings.n_threads,
        )

    def run(self, report: Callable[[int, float, float], bool], stopped: Callable[[], bool]) -> bool:
        """Search until the gap is met, no progress is made, or asked to stop (False then).

        `report` gets Newton steps, an upper and a lower bound at each point of the whole problem; it and `stopped`
        return True to stop.
        """
        unit = self._h * self._s**2

        def hook(fresh: bool, steps: int, objective: float, dual: float) -> bool:
            return report(steps, objective * unit, dual * unit) if fresh else stopped()

        return bool(self._core.run(hook))

    def force(self) -> FloatArray:
        """-grad f_i at the pooled minimiser."""
        return self._force

    def ratio(self, z: FloatArray) -> float:
        """<force, z> / sum w_ij ||z_i - z_j||: no lam below it fuses everything; 0 for a constant z."""
        centred = z - z.mean(axis=0)
        size = _power_of_two(float(np.abs(centred).max()))
        length = _core.pair_length(
            np.ascontiguousarray(centred / size), self._weights, self._settings.n_threads
        )
        return float((self._force * centred).sum() / size / (length * self._u)) if length > 0 else 0.0

    def fusing_bound(self, stopped: Callable[[], bool]) -> float:
        """A lam that fuses everything, proven by a flow; inf unless the last run ended in one cluster."""
        bound = self._core.fusing_bound(lambda fresh, steps, objective, dual: stopped())
        return float(bound) * (self._h * self._s) / self._u

    def point(self) -> FloatArray:
        """The rounded point; rows of a cluster are bitwise equal."""
        return np.asarray(self.shift + self._s * self._core.point + 0.0)

    def certify(self, x: FloatArray) -> Certificate:
        """Judge `point()` as rounded to the caller's coordinates."""
        labels = self._core.labels
        _, first = np.unique(labels, return_index=True)
        told = self._core.certify(np.ascontiguousarray((x[first] - self.shift) / self._s))
        unit = self._h * self._s**2
        lam = self.problem.lam
        penalty = told["penalty"] * self._s * self._u
        # The loss from residuals at the point itself; what capping left out of the penalty belongs to the gap.
        objective = self._loss.value(x) + lam * penalty
        gap = told["gap"] * unit
        if self._capped:
            gap += max(lam * penalty - self._lam * told["penalty"] * unit, 0.0)
        rounding = told["rounding"] * unit
        size = max(abs(objective), abs(objective - gap))
        tolerance = self._settings.eps_rel * size + self._settings.eps_abs
        met = math.isfinite(gap) and (gap <= tolerance or gap <= rounding)
        residual = told["residual"] * self._h * self._s
        return Certificate(objective, objective - gap, gap, rounding, penalty, residual, met)

    def duals(self) -> ImplicitDuals:
        reach = self._core.shrink * self._lam * (self._h * self._s)
        return ImplicitDuals(self._core.dual_point, self._weights, self._core.delta, reach)

    def counts(self) -> dict[str, float]:
        """Newton and CG steps, levels, stages, ordered pairs visited."""
        return dict(self._core.counts)


def _power_of_two(value: float) -> float:
    """The power of two just above value; 1 for 0."""
    return math.ldexp(1.0, math.frexp(value)[1]) if value > 0 else 1.0
