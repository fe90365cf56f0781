"""Relaxed ADMM on quadratic losses with the l2 penalty: when to check, when to finish the partition, what to return."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from fusionopt._bridge import Certificate, Engine
from fusionopt.clusters import exact_labels
from fusionopt.methods._monitor import Monitor
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import AdmmSettings

FloatArray = NDArray[np.float64]

_CHUNK = 10
"""Sweeps between two looks at the clock and at Ctrl-C."""
_MAX_FINISHES = 8
"""Finishing is tried at the tolerance asked for, then at a hundredth of it, and so on, ..."""
_EXTRA_ITERATIONS = 5000
_EXTRA_NUMBERS = 3e6
"""... while that touches no more than _EXTRA_NUMBERS dual entries, and takes no more than ten times the iterations
that the tolerance took plus _EXTRA_ITERATIONS (more on complete graphs where groups have formed)."""


class AdmmSession:
    """An engine that moves from lam to lam and keeps its state.

    Parameters
    ----------
    problem : FusionProblem
        A quadratic loss and the l2 penalty.
    settings : AdmmSettings
    point : float64 (n_nodes, n_features) or None
        Where to start.
    """

    def __init__(self, problem: FusionProblem, settings: AdmmSettings, point: FloatArray | None) -> None:
        start = time.perf_counter()
        self._settings = settings
        self._engine = Engine(problem, settings)
        if point is not None:
            self._engine.warm_start(point)
        self._setup_time = time.perf_counter() - start

    def set_lam(self, lam: float) -> None:
        """Go on at another lam."""
        start = time.perf_counter()
        if lam != self._engine.problem.lam:
            self._engine.set_lam(lam)
        self._setup_time = time.perf_counter() - start

    def state(self) -> dict[str, FloatArray]:
        """What the next `set_lam` builds on."""
        return self._engine.state()

    def restore(self, state: dict[str, FloatArray]) -> None:
        """Go on from such a state: what is computed from here on has the same bits."""
        self._engine.restore(state)

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam; the duals of the result are the engine's until it moves on."""
        result = _run(self._engine, self._settings, monitor, self._setup_time)
        result.keep_duals(self._engine.duals)
        return result


def _run(engine: Engine, settings: AdmmSettings, monitor: Monitor, setup_time: float) -> Result:
    """Run an engine at its present lam until the stop rule holds or something stops it."""
    first = engine.n_iter
    finishes, budget, next_finish, stopped = 0, 0, 0.0, ""
    proven, finished, wants_proof = False, False, True
    judged: tuple[FloatArray, Certificate] | None = None
    while not engine.decoupled:
        left = settings.max_iter - (engine.n_iter - first)
        if left <= 0:
            stopped = f"max_iter = {settings.max_iter} was reached"
            break
        met = engine.run(min(engine.check_every, _CHUNK, left))
        last = engine.last()
        if met or (engine.n_iter - first) % engine.check_every == 0:
            stopped = monitor.report(engine.n_iter - first, last.objective, last.dual_objective, last.gap)
        late = wants_proof and 0 < budget <= engine.n_iter - first
        if ((met and engine.n_iter - first >= next_finish) or late) and not stopped:
            finish = engine.finish()
            finishes += 1
            proven = finish.proven
            x = engine.point()
            certificate = engine.certify(x)
            judged = (x, certificate)
            finished = finish.accepted and certificate.met
            # At the floor of rounding every check is met: proofs are tried at growing distances.
            next_finish = 1.3 * (engine.n_iter - first) if finished else 0.0
            if finished and budget == 0:
                budget = _proof_budget(engine, engine.n_iter - first, finish.n_clusters)
            wants_proof = wants_proof and not late and finishes < _MAX_FINISHES
            wants_proof = wants_proof and (budget == 0 or engine.n_iter - first < budget)
            if finished and (proven or finish.untouched or not wants_proof):
                break
            judged = None  # the iteration moves on
            # A partition that the duals do not prove needs sharper duals; past the budget the tolerance is enough.
            engine.tighten(0.01**finishes if wants_proof else 0.1 ** min(finishes, 12))
        stopped = stopped or monitor.stopped()
        if stopped:
            break

    x, certificate = judged or _best_point(engine, finished)
    if certificate.met:
        status = "optimal"
    elif not np.isfinite(certificate.objective):
        status = "numerical_error"
    else:
        status = "interrupted" if stopped == "interrupted" else "user_limit"
    size = max(abs(certificate.objective), abs(certificate.dual_objective))
    exact = np.isfinite(certificate.gap) and certificate.gap <= certificate.rounding
    rel_gap = (
        0.0 if exact or certificate.gap == 0 else certificate.gap / size if np.isfinite(size) else np.inf
    )
    elapsed = monitor.elapsed
    monitor.trace.add(
        engine.n_iter - first, elapsed, certificate.objective, certificate.dual_objective, certificate.gap
    )
    return Result(
        problem=engine.problem,
        settings=settings,
        x=x,
        labels=exact_labels(x, engine.problem.graph),
        objective=certificate.objective,
        dual_objective=certificate.dual_objective,
        gap=certificate.gap,
        rel_gap=rel_gap,
        status=status,
        message=_message(engine, status, stopped, rel_gap, engine.n_iter - first, proven),
        n_iter=engine.n_iter - first,
        primal_residual=engine.primal_residual(),
        dual_residual=certificate.dual_residual,
        setup_time=setup_time,
        solve_time=elapsed,
        trace=monitor.trace.arrays(),
        proven=proven or engine.decoupled,
    )


def _proof_budget(engine: Engine, n_iter: int, n_clusters: int) -> int:
    graph = engine.problem.graph
    numbers = _EXTRA_NUMBERS
    if n_clusters == graph.n_components:
        # All fused and not proven: lam is next to lambda_max, where the objective tells the least.
        numbers *= 4
    extra = min(10 * n_iter + _EXTRA_ITERATIONS, numbers / (graph.n_edges * engine.problem.n_features))
    if graph.is_complete and 2 * n_clusters < graph.n_nodes:
        extra = max(extra, 1.5 * n_iter)  # groups have formed, and sweeps over all pairs converge fast
    return n_iter + int(extra)


def _best_point(engine: Engine, finished: bool) -> tuple[FloatArray, Certificate]:
    """The finished point; without one the lowest of the raw point, the mean over fused components, and two that cost
    nothing: every component at its pooled minimiser, every node at its own."""
    x = engine.point()
    certificate = engine.certify(x)
    if finished or engine.decoupled:
        return x, certificate
    for candidate in (engine.fused_point(), engine.pooled(), engine.alone()):
        if engine.problem.objective(candidate) < engine.problem.objective(x):
            x = candidate
    return x, engine.certify(x)


def _message(engine: Engine, status: str, stopped: str, rel_gap: float, n_iter: int, proven: bool) -> str:
    graph = engine.problem.graph
    if engine.decoupled:
        why = "every node's own minimiser serves its whole component"
        if not engine.agreed or engine.problem.lam == 0:
            why = "lam = 0" if graph.n_edges else "no edges"
            why += ": every node is solved on its own, in closed form"
        parts = [f"certified optimum: {why}"]
    elif status == "optimal":
        parts = [f"certified optimum: relative gap {rel_gap:.1e} after {n_iter} iterations of ADMM"]
        if proven:
            parts.append("the duals prove the partition exact up to rounding")
    else:
        parts = [
            f"{stopped or 'the tolerance was not met'}: relative gap {rel_gap:.1e} after {n_iter} iterations"
        ]
    if graph.n_components > 1:
        parts.append(f"{graph.n_components} components")
    if not engine.unique:
        parts.append("the minimiser is not unique: the one given has minimum norm in each component")
    return "; ".join(parts)
