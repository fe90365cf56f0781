"""`solve`: the loop in chunks, so that Ctrl-C, callbacks and time limits are seen between them."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt._bridge import Certificate, Engine
from fusionopt.clusters import exact_labels
from fusionopt.problem import FusionProblem
from fusionopt.result import Result, Trace
from fusionopt.settings import AdmmSettings

FloatArray = NDArray[np.float64]
Callback = Callable[["Progress"], object]

log = logging.getLogger("fusionopt")

_CHUNK = 10
"""Sweeps between two looks at the clock and at Ctrl-C."""
_MAX_FINISHES = 8
"""Finishing is tried at the tolerance asked for, then at a hundredth of it, and so on, ..."""
_EXTRA_ITERATIONS = 5000
_EXTRA_NUMBERS = 3e6
"""... while that touches no more than _EXTRA_NUMBERS dual entries, and takes no more than ten times the iterations
that the tolerance took plus _EXTRA_ITERATIONS (more on complete graphs where groups have formed)."""


@dataclass(frozen=True)
class Progress:
    """What a callback of `solve` sees at each check.

    Attributes
    ----------
    iteration : int
    elapsed : float
        Seconds since the start.
    objective, dual_objective, gap, rel_gap : float
        The certificate of the best point of this check.
    """

    iteration: int
    elapsed: float
    objective: float
    dual_objective: float
    gap: float
    rel_gap: float


class Interrupt:
    """Set by the first Ctrl-C of the main thread; the second raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def watch_interrupt() -> Iterator[Interrupt]:
    """Turn the first Ctrl-C into a request; a no-op outside the main thread or under a handler of the caller's."""
    interrupt = Interrupt()
    own = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not own:
        yield interrupt
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def solve(
    problem: FusionProblem,
    settings: AdmmSettings | None = None,
    *,
    warm_start: Result | ArrayLike | None = None,
    callback: Callback | None = None,
) -> Result:
    """Solve one problem to a certified duality gap, and finish its partition.

        minimise over x:  F(x) = sum_i f_i(x_i) + lam sum_{(i,j) in E} w_ij ||x_i - x_j||

    Parameters
    ----------
    problem : FusionProblem
    settings : AdmmSettings or None
        None takes every default.
    warm_start : Result, array-like (n_nodes, n_features) or None
        Where to start; the answer does not depend on it beyond the tolerance.
    callback : callable or None
        Called with a `Progress` at each check; a true return value stops the run.

    Returns
    -------
    Result
        ``status`` "optimal" promises gap <= eps_rel max(|P|, |D|) + eps_abs, or a gap within the rounding error
        of computing it, at the x returned and with the duals returned. "user_limit" and "interrupted" come with
        the best point reached and its own valid gap.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        An argument that breaks a rule, before any work.
    MemoryLimitError
        The pairs of a complete graph would not fit the machine.
    KeyboardInterrupt
        On a second Ctrl-C.

    Notes
    -----
    Relaxed ADMM, O(n_edges n_features) a sweep; see docs/architecture.md. The library prints nothing;
    ``verbose`` logs to the logger "fusionopt".

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance, solve
    >>> result = solve(FusionProblem(SquaredDistance([0.0, 2.0]), lam=0.25))
    >>> result.status, result.x.ravel().tolist()
    ('optimal', [0.25, 1.75])
    """
    _checks.check_instance(
        "problem", problem, FusionProblem, "for instance FusionProblem(loss, graph, lam=1.0)"
    )
    chosen = AdmmSettings() if settings is None else settings
    _checks.check_instance("settings", chosen, AdmmSettings, "for instance AdmmSettings(), or None")
    start = time.perf_counter()
    point = None
    if warm_start is not None:
        x = warm_start.x if isinstance(warm_start, Result) else warm_start
        point = _checks.as_point("warm_start", x, (problem.n_nodes, problem.n_features))
    engine = Engine(problem, chosen)
    if point is not None:
        engine.warm_start(point)
    setup_time = time.perf_counter() - start
    with watch_interrupt() as interrupt:
        result = run(engine, chosen, callback, interrupt, setup_time)
    result.keep_duals(engine.duals)
    return result


def run(
    engine: Engine, settings: AdmmSettings, callback: Callback | None, interrupt: Interrupt, setup_time: float
) -> Result:
    """Run an engine at its present lam until the stop rule holds or something stops it."""
    start = time.perf_counter()
    trace = Trace()
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
        elapsed = time.perf_counter() - start
        if met or (engine.n_iter - first) % engine.check_every == 0:
            trace.add(engine.n_iter - first, elapsed, last)
            if settings.verbose:
                log.info("iteration %d: objective %.10g, gap %.3g", engine.n_iter, last.objective, last.gap)
            if callback is not None and callback(_progress(trace, last)):
                stopped = "the callback asked to stop"
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
        if interrupt.requested:
            stopped = "interrupted"
        elif settings.time_limit is not None and elapsed > settings.time_limit:
            stopped = f"time_limit = {settings.time_limit:g} s was reached"
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
    elapsed = time.perf_counter() - start
    trace.add(engine.n_iter - first, elapsed, certificate)
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
        trace=trace.arrays(),
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


def _progress(trace: Trace, last: Certificate) -> Progress:
    size = max(abs(last.objective), abs(last.dual_objective))
    rel_gap = last.gap / size if size > 0 else 0.0
    return Progress(
        trace.iteration[-1], trace.time[-1], last.objective, last.dual_objective, last.gap, rel_gap
    )


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
