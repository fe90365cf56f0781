"""Complete graphs without storing a pair: smoothed Newton-CG on nested subsets, rounded to clusters, certified."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt._bridge_implicit import ImplicitEngine
from fusionopt.clusters import exact_labels
from fusionopt.estimate import pair_bytes
from fusionopt.methods._check import relative_gap
from fusionopt.methods._monitor import Monitor
from fusionopt.methods.admm import AdmmSession
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import AdmmSettings

FloatArray = NDArray[np.float64]

_MANY_BYTES = 2**30


def stores_too_much(problem: FusionProblem) -> bool:
    """Whether keeping the pairs of a complete graph is not worth a search that is only needed once."""
    stored = pair_bytes(problem.n_nodes, problem.n_features)
    return problem.graph.is_complete and stored > min(_MANY_BYTES, _checks.memory_limit())


class ImplicitSession:
    """The storage-free method; each lam is solved on its own.

    Parameters
    ----------
    problem : FusionProblem
        One that `estimate.pairs_need_no_storage`.
    settings : AdmmSettings
        max_iter counts Newton steps; random_state seeds the order of the nodes in the subsets.

    Notes
    -----
    O(n_nodes n_features) memory, O(n_nodes^2 n_features) time a pass. A start is of no use to it: at a small
    smoothing radius the search from a neighbouring solution takes longer than from a coarse subset.

    References
    ----------
    The dual implied by a point: a gradient of the Huber-smoothed norm, Nesterov (2005), Smooth minimization of
    non-smooth functions, section 4.
    """

    def __init__(self, problem: FusionProblem, settings: AdmmSettings) -> None:
        start = time.perf_counter()
        self._settings = settings
        self._engine = ImplicitEngine(problem, settings)
        self._setup_time = time.perf_counter() - start

    def set_lam(self, lam: float) -> None:
        """Go on at another lam."""
        start = time.perf_counter()
        self._engine = ImplicitEngine(self._engine.problem.with_lam(lam), self._settings)
        self._setup_time = time.perf_counter() - start

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam."""
        engine, settings = self._engine, self._settings
        problem = engine.problem
        if engine.decoupled or not engine.in_range:
            # Closed forms, and the refusal of numbers beyond float64, are in one place.
            return AdmmSession(problem, settings, None).run(monitor)
        stopped = ""

        def report(steps: int, objective: float, dual: float) -> bool:
            nonlocal stopped
            stopped = monitor.report(steps, objective, dual, objective - dual)
            return bool(stopped)

        def ask() -> bool:
            nonlocal stopped
            stopped = monitor.stopped()
            return bool(stopped)

        engine.run(report, ask)
        x = engine.point()
        certificate = engine.certify(x)
        counts = engine.counts()
        n_iter = int(counts["newton_steps"])
        if not certificate.met and not stopped:
            stopped = (
                f"max_iter = {settings.max_iter} was reached"
                if n_iter >= settings.max_iter
                else "smaller smoothing radii bring no more progress"
            )
        if certificate.met:
            status = "optimal"
        elif not np.isfinite(certificate.objective):
            status = "numerical_error"
        else:
            status = "interrupted" if stopped == "interrupted" else "user_limit"
        rel_gap = relative_gap(certificate.gap, certificate.objective, certificate.rounding, settings)
        elapsed = monitor.elapsed
        monitor.trace.add(n_iter, elapsed, certificate.objective, certificate.dual_objective, certificate.gap)
        result = Result(
            problem=problem,
            settings=settings,
            x=x,
            labels=exact_labels(x, problem.graph),
            objective=certificate.objective,
            dual_objective=certificate.dual_objective,
            gap=certificate.gap,
            rel_gap=rel_gap,
            status=status,
            message=self._message(status, stopped, rel_gap, counts),
            n_iter=n_iter,
            primal_residual=0.0,
            dual_residual=certificate.dual_residual,
            setup_time=self._setup_time,
            solve_time=elapsed,
            trace=monitor.trace.arrays(),
        )
        result.keep_duals(engine.duals())
        return result

    def _message(self, status: str, stopped: str, rel_gap: float, counts: dict[str, float]) -> str:
        problem = self._engine.problem
        m = problem.n_nodes
        passes = counts["pairs"] / m**2
        steps = int(counts["newton_steps"])
        done = f"relative gap {rel_gap:.1e} after {steps} Newton steps ({passes:.0f} passes over all pairs)"
        begin = f"certified optimum: {done}" if status == "optimal" else f"{stopped}: {done}"
        stored = pair_bytes(problem.n_nodes, problem.n_features)
        why = (
            f"storing the duals of {m * (m - 1) // 2} pairs would be slower"
            if stored <= _checks.memory_limit()
            else f"storing the duals of the pairs would take {stored / 2**30:.3g} GiB"
        )
        return f"{begin}; storage-free method, since {why}"
