"""Squared distances under the l1 penalty: every coordinate is a problem of its own.

    F(x) = sum_k [ sum_i h_ik / 2 (x_ik - a_ik)^2 + lam sum_ij w_ij |x_ik - x_jk| ],    h_ik = 0 for a missing cell

In one dimension the l1 penalty is the l2 penalty, so its method, with finishing and proof, serves each coordinate.
Objectives, dual bounds and gaps add up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fusionopt.clusters import exact_labels
from fusionopt.losses import SquaredDistance
from fusionopt.losses.pooled import pooled_point
from fusionopt.methods._check import relative_gap
from fusionopt.methods._monitor import Monitor
from fusionopt.penalties import L2Norm
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import AdmmSettings

if TYPE_CHECKING:
    from fusionopt.methods._choice import Session

FloatArray = NDArray[np.float64]


class _Part(Monitor):
    """What one coordinate tells, reported as the whole: the other coordinates add what is known of them."""

    def __init__(self, whole: Monitor, settings: AdmmSettings, known: FloatArray, first: int) -> None:
        super().__init__(settings, whole.interrupt)
        self._whole, self._known, self._first = whole, known, first

    def report(
        self, iteration: int, objective: float, dual_objective: float, gap: float, **extra: float
    ) -> str:
        at = np.array([objective, dual_objective, gap]) + self._known
        return self._whole.report(max(self._first, iteration), *at.tolist())

    def stopped(self) -> str:
        return self._whole.stopped()


class ByCoordinatesSession:
    """One session for each coordinate that has a cell that counts; the others stay at zero.

    Parameters
    ----------
    problem : FusionProblem
        `SquaredDistance` with `L1Norm`.
    settings : AdmmSettings
    point : float64 (n_nodes, n_features) or None
        Where to start.
    open_session : callable
        Opens the session of one coordinate.

    Notes
    -----
    `n_iter` is the largest of the coordinates; the residuals are bounds, the root of the sum of their squares.
    """

    def __init__(
        self,
        problem: FusionProblem,
        settings: AdmmSettings,
        point: FloatArray | None,
        open_session: Callable[[FusionProblem, AdmmSettings, FloatArray | None], Session],
    ) -> None:
        loss = problem.loss
        assert isinstance(loss, SquaredDistance)  # for the type checker: `_choice` sends no other
        self._problem, self._settings = problem, settings
        self._inner = dataclasses.replace(settings, eps_abs=settings.eps_abs / problem.n_features)
        there = ~np.isnan(loss.targets)
        weights, filled = loss.sample_weight[:, None] * there, np.where(there, loss.targets, 0.0)
        self._columns = np.flatnonzero(weights.any(axis=0)).tolist()
        self._parts = [
            FusionProblem(SquaredDistance(filled[:, k], weights[:, k]), problem.graph, L2Norm(), problem.lam)
            for k in self._columns
        ]
        self._sessions = [
            open_session(part, self._inner, None if point is None else point[:, k : k + 1])
            for k, part in zip(self._columns, self._parts, strict=True)
        ]

    def set_lam(self, lam: float) -> None:
        """Go on at another lam."""
        self._problem = self._problem.with_lam(lam)
        for session in self._sessions:
            session.set_lam(lam)

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam."""
        components = self._problem.graph.component_labels
        # Until a coordinate is solved: total fusion, and no force, which leaves every node at its own cell.
        fused = [part.loss_value(pooled_point(part.loss, components)[components]) for part in self._parts]
        known = np.array([[value, 0.0, value] for value in fused])
        found: list[Result] = []
        for k, session in enumerate(self._sessions):
            others = np.delete(known, k, axis=0).sum(axis=0)
            told = session.run(_Part(monitor, self._inner, others, max((r.n_iter for r in found), default=0)))
            known[k] = told.objective, told.dual_objective, told.gap
            found.append(told)
        return self._together(found, monitor)

    def _together(self, found: list[Result], monitor: Monitor) -> Result:
        problem, settings, d = self._problem, self._settings, self._problem.n_features
        x = np.zeros((problem.n_nodes, d))
        for k, told in zip(self._columns, found, strict=True):
            x[:, k] = told.x[:, 0]
        gap = sum(told.gap for told in found)
        objective = problem.objective(x)
        dual = objective - gap
        size = max(abs(objective), abs(dual))
        exact = all(told.rel_gap <= settings.eps_rel for told in found)
        words = [told.status for told in found]
        if exact or gap <= settings.eps_rel * size + settings.eps_abs:
            status = "optimal"
        else:
            status = next(w for w in ("numerical_error", "interrupted", "user_limit") if w in words)
        rel_gap = relative_gap(gap, objective, gap if exact else 0.0, settings)
        n_iter = max(told.n_iter for told in found)
        start = monitor.stopped() if status == "interrupted" else "the tolerance was not met"
        start = "certified optimum" if status == "optimal" else start
        worst = max(found, key=lambda told: told.rel_gap)
        detail = "" if status == "optimal" else f", worst: {worst.message}"
        if problem.graph.n_components > 1:
            detail += f"; {problem.graph.n_components} components"
        elapsed = monitor.elapsed
        monitor.report(n_iter, objective, dual, gap)
        result = Result(
            problem=problem,
            settings=settings,
            x=x,
            labels=exact_labels(x, problem.graph),
            objective=objective,
            dual_objective=dual,
            gap=gap,
            rel_gap=rel_gap,
            status=status,
            message=f"{start}: relative gap {rel_gap:.1e}; {len(found)} coordinates, each solved on its own{detail}",
            n_iter=n_iter,
            primal_residual=float(np.sqrt(sum(told.primal_residual**2 for told in found))),
            dual_residual=float(np.sqrt(sum(told.dual_residual**2 for told in found))),
            setup_time=sum(told.setup_time for told in found),
            solve_time=elapsed,
            trace=monitor.trace.arrays(),
            proven=all(told.proven for told in found),
        )

        def duals() -> FloatArray:
            v = np.zeros((problem.graph.n_edges, d))
            for k, told in zip(self._columns, found, strict=True):
                v[:, k] = told.edge_duals()[:, 0]
            return v

        result.keep_duals(duals)
        return result
