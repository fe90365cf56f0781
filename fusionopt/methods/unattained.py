"""A problem without a minimiser: what can be said of it instead of an answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fusionopt.existence import existence
from fusionopt.methods._check import Check, judge_nodes, to_result
from fusionopt.methods._monitor import Monitor
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import Settings

if TYPE_CHECKING:
    from fusionopt.methods._choice import Session

FloatArray = NDArray[np.float64]


def why_not(problem: FusionProblem) -> str:
    """The reason why a problem has no minimiser, empty where it may have one."""
    verdict = existence(problem)
    return verdict.reason if verdict.attained is False else ""


class UnattainedSession:
    """A loss that may lack a minimiser: `existence` is asked at each lam, and a method only where there is one.

    Parameters
    ----------
    problem : FusionProblem
    settings : Settings
    method : callable
        Opens the session that solves a problem with a minimiser.
    """

    def __init__(
        self, problem: FusionProblem, settings: Settings, method: Callable[[FusionProblem], Session]
    ) -> None:
        start = time.perf_counter()
        self._problem, self._settings, self._method = problem, settings, method
        self._reason = why_not(problem)
        self._session = None if self._reason else method(problem)
        self._setup_time = time.perf_counter() - start

    def set_lam(self, lam: float) -> None:
        """Go on at another lam; the verdict can change between lam = 0 and lam > 0 only."""
        changed = (lam > 0) != (self._problem.lam > 0)
        self._problem = self._problem.with_lam(lam)
        if changed:
            self._reason = why_not(self._problem)
        if self._reason:
            return
        if self._session is None:
            self._session = self._method(self._problem)
        else:
            self._session.set_lam(lam)

    def run(self, monitor: Monitor) -> Result:
        """Solve, or say that there is nothing to find: x is then 0, the point of least norm, with its own bound."""
        if self._session is not None and not self._reason:
            return self._session.run(monitor)
        problem = self._problem
        x = np.zeros((problem.n_nodes, problem.n_features))
        check = Check(x, *judge_nodes(problem.loss, x, np.zeros_like(x)))
        monitor.report(0, check.objective, check.dual_objective, check.gap)
        shape = (problem.graph.n_edges, problem.n_features)
        return to_result(
            problem,
            self._settings,
            check,
            monitor,
            stopped="",
            n_iter=0,
            how="x is the point of least norm",
            setup_time=self._setup_time,
            primal_residual=0.0,
            duals=lambda: np.zeros(shape),
            unbounded=self._reason,
        )
