"""A point judged by duals, the stop rule, and the `Result` that is made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusionopt.clusters import exact_labels
from fusionopt.losses.base import EPS, NodeLoss
from fusionopt.methods._monitor import Monitor
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import Settings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Check:
    """A point judged by duals.

    Attributes
    ----------
    x : float64 (n_nodes, n_features)
    objective, gap, rounding : float
        F(x); F(x) - D(v), inf where no bound exists; bound on the rounding error of the gap.
    residual, distance : float
        max_i ||grad f_i(x_i) + G_i||; the same over all nodes together, relative to the forces.
    model_gap : float
        Gap of the model that a method works on.
    dual_scale : float
        The duals judged are this many times the method's.
    """

    x: FloatArray
    objective: float
    gap: float
    rounding: float
    residual: float
    distance: float
    model_gap: float = 0.0
    dual_scale: float = 1.0

    @classmethod
    def overflowed(cls, x: FloatArray) -> Check:
        """Iterates that are no numbers any more; x is the last that was."""
        return cls(x, np.nan, np.inf, 0.0, np.nan, np.inf)

    @property
    def dual_objective(self) -> float:
        return self.objective - self.gap

    @property
    def exact(self) -> bool:
        """The gap is zero up to rounding."""
        return bool(np.isfinite(self.gap) and self.gap <= self.rounding)

    def optimal(self, settings: Settings) -> bool:
        """The stop rule: gap <= eps_rel max(|P|, |D|) + eps_abs, or within rounding."""
        size = max(abs(self.objective), abs(self.dual_objective))
        return self.exact or bool(
            np.isfinite(self.gap) and self.gap <= settings.eps_rel * size + settings.eps_abs
        )

    def stationary(self, settings: Settings) -> bool:
        """Where no bound exists: the subdifferential comes within eps_rel of zero, relative to the forces."""
        return not np.isfinite(self.gap) and self.distance <= settings.eps_rel

    def done(self, settings: Settings) -> bool:
        return self.optimal(settings) or self.stationary(settings)


def relative_gap(gap: float, objective: float, rounding: float, settings: Settings) -> float:
    """gap / max(|P|, |D|); 0.0 where it is within the tolerance only because it is within rounding, inf where there is
    no bound."""
    size = max(abs(objective), abs(objective - gap))
    if gap == 0.0:
        return 0.0
    if not (np.isfinite(gap) and np.isfinite(size)):
        return float(np.inf)
    relative = gap / size if size > 0.0 else np.inf
    return 0.0 if gap <= rounding and relative > settings.eps_rel else float(relative)


def judge_nodes(
    loss: NodeLoss, x: FloatArray, sums: FloatArray, sums_error: FloatArray | None = None
) -> tuple[float, float, float, float, float]:
    """The losses' part of a certificate: value, gap, rounding, residual, relative distance.

    ``sums`` are G_i = sum_j v_ij. A node whose gradient is zero within its rounding error, and that nothing pulls,
    is at its own minimum also where no bound is known. Within ``sums_error``, their rounding error, the sums count as
    zero at a node that feels nothing; None: the core's own bound, a chain over all duals of a node and its rotation,
    in units of the largest sum.
    """
    if sums_error is None:
        chain = len(x) + 2 * x.shape[1] + 64
        sums_error = EPS * chain * np.full_like(sums, np.abs(sums).max(initial=0.0))
    node, slope = loss.fenchel(x, sums, sums_error), loss.gradient(x)
    at_rest = ((np.abs(slope) <= 4 * loss.gradient_error(x)) & (sums == 0)).all(axis=1)
    gaps = np.where(at_rest & ~np.isfinite(node.gap), 0.0, node.gap)
    errors = np.where(at_rest & ~np.isfinite(node.error), 0.0, node.error)
    value = loss.value(x)
    residual = np.linalg.norm(slope + sums, axis=1)
    forces = max(float(np.linalg.norm(slope)), float(np.linalg.norm(sums)))
    rounding = float(errors.sum()) + EPS * (len(x) + 8) * abs(value)
    at_rest |= residual == 0
    distance = 0.0 if at_rest.all() or forces == 0 else float(np.linalg.norm(residual)) / forces
    return value, float(gaps.sum()), rounding, float(residual.max()), distance


def to_result(
    problem: FusionProblem,
    settings: Settings,
    check: Check,
    monitor: Monitor,
    *,
    stopped: str,
    n_iter: int,
    how: str,
    setup_time: float,
    primal_residual: float,
    duals: Callable[[], FloatArray],
    unbounded: str = "",
    labels: IntArray | None = None,
    extra: dict[str, float] | None = None,
) -> Result:
    """The result of a run that ended at ``check``; ``how`` says in a clause what the method did.

    ``unbounded`` says why the problem has no minimiser, where it has none; ``labels`` are those of `exact_labels` if
    None; ``extra`` ends the method's own columns of the trace.
    """
    bounded = np.isfinite(check.gap)
    if unbounded:
        status = "unbounded"
    elif check.optimal(settings):
        status = "optimal"
    elif check.stationary(settings):
        status = "stationary"
    elif not np.isfinite(check.objective):
        status = "numerical_error"
    else:
        status = "interrupted" if stopped == "interrupted" else "user_limit"
    rel_gap = relative_gap(check.gap, check.objective, check.rounding, settings) if bounded else np.nan
    found = f"relative gap {rel_gap:.1e}"
    if unbounded:
        found = unbounded
    elif status == "numerical_error":
        found = "no number to judge by"
    elif not bounded:
        found = f"no bound exists here: subdifferential within {check.distance:.1e} of zero, relative to the forces"
    words = {"optimal": "certified optimum", "stationary": "stationary", "unbounded": "no minimiser"}
    start = words.get(status, stopped or "the tolerance was not met")
    elapsed = monitor.elapsed
    monitor.trace.add(n_iter, elapsed, check.objective, check.dual_objective, check.gap, **(extra or {}))
    result = Result(
        problem=problem,
        settings=settings,
        x=check.x,
        labels=exact_labels(check.x, problem.graph) if labels is None else labels,
        objective=check.objective,
        dual_objective=check.dual_objective if bounded else np.nan,
        gap=check.gap if bounded else np.nan,
        rel_gap=rel_gap,
        status=status,
        message=f"{start}: {found}; {how}",
        n_iter=n_iter,
        primal_residual=primal_residual,
        dual_residual=check.residual,
        setup_time=setup_time,
        solve_time=elapsed,
        trace=monitor.trace.arrays(),
    )
    result.keep_duals(duals)
    return result
