"""Relaxed ADMM on quadratic losses with the l2 penalty: when to check, when to finish the partition, what to return."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from fusionopt._bridge import Certificate, Engine, Finish
from fusionopt.clusters import exact_labels
from fusionopt.methods._check import relative_gap
from fusionopt.methods._monitor import Monitor
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import AdmmSettings

FloatArray = NDArray[np.float64]

_CHUNK = 10
"""Sweeps between two looks at the clock and at Ctrl-C."""
_MAX_FINISHES = 4
_SHARPER = 1e-3
"""Share of the tolerance that half-open partitions of complete graphs are swept to before they are finished."""
_MOST_BETWEEN = 1000
"""Iterations between the clusters of the lam before."""
_LONG, _LONG_WARM = 40, 10
_NEAR = 1e-3
"""After _LONG sweeps of an edge list, at a gap below this share of the objective, the partition is finished there, and
where that does not meet the tolerance the second stage takes over; sooner where another lam's solution is at hand."""
_FEW, _FIRST_SHARE, _LATER_SHARE = 16, 0.5, 0.75
"""Sooner where few groups have formed (one for so many nodes), which cost less: shares of those sweeps."""
_STALLED_SHARE = 0.5
"""What finishing may cost there, in units of the sweeps so far."""
_RETRY = 0.01
"""A proof that failed is tried again at this share of the tolerance before."""
_PATIENCE = 2.0
"""How far beyond the sweeps that the tolerance took they go on for a sharper partition."""
_FIRST_CONTRACTION = 10
"""Sweeps of a complete graph before it is first looked at for clusters; then at twice as many, and so on."""
_QUICK_CHECKS, _FLOW_CHECKS = 2, 20
"""Checks of the flow inside a candidate cluster at the first look, and later."""
_CHEAP = 0.01
"""Finishing a complete graph at once may cost this share of the sweeps so far."""
_EXACT_WORK = 1e6
"""Numbers that may be visited for an exact solution where the partition is known without it."""
_WITHIN_REACH = 1e-5
"""A gap this many times smaller than the one met is worth sweeping for where it would prove the partition."""
_FREE_WORK = 6e6
"""Edges that may be visited for the sake of a proof, however little the tolerance took."""


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
        if point is not None and _helps(self._engine, point):
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

    def dual_sums(self, x: FloatArray) -> tuple[FloatArray, float]:
        """sum_j v_ij of the present duals, (n_nodes, n_features), and the rounding bound of the gap at x."""
        if self._engine.decoupled:
            return np.zeros_like(x), 0.0
        judgement = self._engine.judge(x)
        return judgement.sums, judgement.rounding

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam; the duals of the result are the engine's until it moves on."""
        result = _run(self._engine, self._settings, monitor, self._setup_time)
        result.keep_duals(self._engine.duals)
        return result


def _helps(engine: Engine, point: FloatArray) -> bool:
    """A start worse than the pooled minimiser is further away than the one that nobody gave."""
    with np.errstate(over="ignore", invalid="ignore"):
        return engine.problem.objective(point) <= engine.problem.objective(engine.pooled())


def _run(engine: Engine, settings: AdmmSettings, monitor: Monitor, setup_time: float) -> Result:
    """Run an engine at its present lam until the stop rule holds or something stops it."""
    first, first_between = engine.n_iter, engine.n_between
    effort = _Effort(engine)
    stopped = ""
    proven, finished, given_up = False, False, False
    judged: tuple[FloatArray, Certificate] | None = None
    while not engine.decoupled:
        left = settings.max_iter - (engine.n_iter - first) - (engine.n_between - first_between)
        if left <= 0:
            stopped = f"max_iter = {settings.max_iter} was reached"
            break
        aggregated = engine.aggregated
        met = engine.run(min(engine.check_every, _CHUNK, left))
        n_iter, last = engine.n_iter - first, engine.last()
        if aggregated:
            # For what _LONG sweeps of every edge cost.
            enough = min(
                _LONG * engine.problem.graph.n_edges // engine.n_swept, _MOST_BETWEEN, settings.max_iter // 2
            )
            stalled, attempt = False, met or engine.n_between - first_between >= enough
        else:
            stalled = not met and effort.stalls(n_iter, last)
            if met or n_iter % engine.check_every == 0:
                stopped = monitor.report(n_iter, last.objective, last.dual_objective, last.gap)
            if not met:
                effort.contract(n_iter)
            attempt = stalled or effort.due(met, n_iter)
        while attempt and not stopped:
            finish = effort.finish(stalled)
            x = engine.point()
            certificate = engine.certify(x)
            proven = finish.proven and (effort.apart or certificate.gap <= certificate.rounding)
            finished = finish.accepted and certificate.met
            if finished and (proven or finish.enough or effort.spent(finish, n_iter)):
                judged = (x, certificate)
                break
            if aggregated:
                effort = _Effort(engine)  # every node takes part again
                break
            if finished or not stalled:
                effort.sharpen(finished, n_iter)  # the iteration moves on
                given_up = not finished and met and effort.spent(finish, n_iter)
                break
            # Not even with the partition that the duals tell: Newton may get it nearer.
            stalled = False
            met = effort.refine() and engine.last().met
            attempt = effort.due(met, n_iter)
        if judged is not None or given_up:
            break
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
    rel_gap = relative_gap(certificate.gap, certificate.objective, certificate.rounding, settings)
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
        message=_message(
            engine,
            status,
            stopped,
            rel_gap,
            engine.n_iter - first,
            engine.n_between - first_between,
            effort.newton_steps,
            proven,
        ),
        n_iter=engine.n_iter - first,
        primal_residual=engine.primal_residual(),
        dual_residual=certificate.dual_residual,
        setup_time=setup_time,
        solve_time=elapsed,
        trace=monitor.trace.arrays(),
        proven=proven or engine.decoupled,
    )


class _Effort:
    """When the partition is finished, and how long a proof of it is sought.

    Finishing and the sweeps for the sake of a proof together stay within a share of what the tolerance took, or
    below _FREE_WORK visited edges: more would be spent on what was not asked for.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._finishes = 0
        self._work = 0.0
        self._met_at = 0
        self._factor = 1.0
        self._next = 0.0
        self._last_chance = np.inf
        self._next_stall = float(_LONG_WARM if engine.n_iter > 0 else _LONG)
        self._few_share = _FIRST_SHARE
        self.newton_steps = 0
        self._complete = engine.problem.graph.is_complete
        self._next_contraction = _FIRST_CONTRACTION
        self.apart = False
        self._enough = np.inf
        self._met_work = 0.0

    def stalls(self, n_iter: int, last: Certificate) -> bool:
        """Whether the gap is small and still not met after many sweeps: there exact steps are the faster method."""
        if self._complete or self._met_at > 0 or last.gap > _NEAR * abs(last.objective):
            return False
        few = _FEW * self._engine.n_fused <= self._engine.problem.n_nodes
        if n_iter < (self._few_share if few else 1.0) * self._next_stall:
            return False
        self._few_share = _LATER_SHARE
        self._next_stall = 2.0 * n_iter
        return True

    def refine(self) -> bool:
        """Try the second stage; False where it would cost more than the budget, or does not help."""
        steps, work, improved = self._engine.refine(self._engine.sweep_work)
        self.newton_steps += steps
        self._work += work
        return improved

    def contract(self, n_iter: int) -> None:
        """On a complete graph: look for clusters that can be proven while the gap is still open."""
        if self._complete and n_iter >= self._next_contraction:
            first = self._next_contraction == _FIRST_CONTRACTION
            self._next_contraction = 2 * n_iter
            self._engine.contract(False, _QUICK_CHECKS if first else _FLOW_CHECKS)

    @property
    def _cheap(self) -> bool:
        """Finishing costs little beside the sweeps, or at all."""
        engine = self._engine
        return engine.finishing_work <= max(
            _CHEAP * engine.sweep_work, _EXACT_WORK / engine.problem.n_features
        )

    def finish(self, stalled: bool) -> Finish:
        """The core's finishing, where the gap alone does not settle the partition."""
        if self.apart:
            return Finish(accepted=True, proven=True, enough=False, n_clusters=0, work=0.0)
        return self._engine.finish(_STALLED_SHARE) if stalled else self._engine.finish()

    def due(self, met: bool, n_iter: int) -> bool:
        """Whether to finish now, given that the present tolerance is met."""
        if self._complete:
            return self._due_complete(met, n_iter)
        if met and self._met_at == 0:
            self._met_at = n_iter
            groups, nodes = self._engine.n_fused, self._engine.problem.n_nodes
            if self._engine.check_every < n_iter < _LONG and nodes < 4 * groups < 3 * nodes:
                # So early, many groups are still to be merged, one by one: the next sweeps do it for less.
                self._next = n_iter + 1.0
        return (met and n_iter >= self._next) or n_iter >= self._last_chance

    def _due_complete(self, met: bool, n_iter: int) -> bool:
        """On a complete graph Newton over many centres costs as much as many sweeps: where clusters are proven already
        and a gap within reach of the sweeps would tell all others apart, these go on to that gap."""
        engine = self._engine
        last_chance = self._met_at > 0 and engine.sweep_work >= self._enough
        if not (met and n_iter >= self._next) and not last_chance:
            return False
        first = self._met_at == 0
        if first:
            self._met_at = n_iter
            self._met_work = engine.sweep_work
            self._enough = _PATIENCE * engine.sweep_work
        share = 0.0 if self._cheap else engine.apart()
        if first and share < 1.0:
            # Some rows may be equal.
            engine.contract(True, _FLOW_CHECKS)
            share = 0.0 if self._cheap else engine.apart()
        cheap = self._cheap
        if cheap and not (first and engine.half_open):
            return True
        self.apart = share >= 1.0 and not cheap
        if share >= 1.0 or last_chance:
            return True
        self._factor *= 0.8 * share if share > _WITHIN_REACH else _SHARPER
        engine.tighten(self._factor)
        return False

    def spent(self, finish: Finish, n_iter: int) -> bool:
        """A partition that is not proven, or no better than the raw point: whether to leave it at that."""
        self._finishes += finish.accepted
        self._met_at = self._met_at or n_iter
        self._work += finish.work
        if self._complete:
            return self._spent_complete(finish)
        graph = self._engine.problem.graph
        # Where groups have formed the partition is what is asked for, and worth as much again.
        share = 1.0 if 2 * finish.n_clusters < graph.n_nodes else 0.5
        extra = 2.0 * (n_iter - self._met_at) * graph.n_edges
        left = max(_FREE_WORK, share * 2.0 * n_iter * graph.n_edges) - self._work - extra
        # What is left goes into sweeps at most; then comes the last attempt.
        self._last_chance = n_iter + min(left / (2.0 * graph.n_edges), _PATIENCE * self._met_at)
        return self._finishes >= _MAX_FINISHES or left < 0.0

    def _spent_complete(self, finish: Finish) -> bool:
        """The same on a complete graph, where sweeps converge fast: twice what the tolerance took is worth it."""
        free = 4 * _FREE_WORK if finish.n_clusters == 1 else _FREE_WORK
        left = max(free, 2.0 * self._met_work) - self._work - (self._engine.sweep_work - self._met_work)
        self._enough = self._engine.sweep_work + left
        return self._finishes >= _MAX_FINISHES or left < 0.0

    def sharpen(self, finished: bool, n_iter: int) -> None:
        """Ask for sharper duals before the next attempt."""
        self._factor = max(self._factor * (_RETRY if finished else 0.1), 1e-14)
        self._engine.tighten(self._factor)
        # At the floor of rounding every check is met: proofs are tried at growing distances.
        self._next = 1.3 * n_iter if finished else 0.0
        if not finished:
            self._last_chance = np.inf


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


def _message(
    engine: Engine,
    status: str,
    stopped: str,
    rel_gap: float,
    n_iter: int,
    n_between: int,
    newton_steps: int,
    proven: bool,
) -> str:
    graph = engine.problem.graph
    how = " of ADMM"
    if engine.narrow:
        how += " on pairs in float32 (half the memory to move; the certificate is float64)"
    newton = f" and {newton_steps} Newton steps of the second stage" if newton_steps else ""
    if n_between:
        newton += f", {n_between} more between the clusters of the lam before"
    if engine.decoupled:
        why = "every node's own minimiser serves its whole component"
        if not engine.agreed or engine.problem.lam == 0:
            why = "lam = 0" if graph.n_edges else "no edges"
            why += ": every node is solved on its own, in closed form"
        parts = [f"certified optimum: {why}"]
    elif status == "optimal":
        parts = [f"certified optimum: relative gap {rel_gap:.1e} after {n_iter} iterations{how}{newton}"]
        if proven:
            parts.append("the duals prove the partition exact up to rounding")
    else:
        why = stopped or "the tolerance was not met"
        parts = [f"{why}: relative gap {rel_gap:.1e} after {n_iter} iterations{how}{newton}"]
    if graph.n_components > 1:
        parts.append(f"{graph.n_components} components")
    if not engine.unique:
        parts.append("the minimiser is not unique: the one given has minimum norm in each component")
    return "; ".join(parts)
