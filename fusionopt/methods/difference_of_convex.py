"""Difference-of-convex steps for concave penalties: each step is a certified l2 problem with a linear tilt.

g(t; lam) = c t - h(t) with c = g'(0) (lam for Scad and Mcp) and h convex and smooth. At x^k the tangent of h gives a
majorant of F that touches it there,

    sum_i f_i(x_i) - <b_i, x_i> + c sum w_ij ||x_i - x_j||,   b_i = sum_j w_ij h'(t_ij) (x_i - x_j) / t_ij,

so its minimiser has no larger F, and a point that is its own minimiser is stationary for F.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt._bridge_penalties import tilt
from fusionopt._duals import ImplicitDuals
from fusionopt.clusters import exact_labels
from fusionopt.existence import existence
from fusionopt.graph import Graph
from fusionopt.losses.base import EPS
from fusionopt.losses.pooled import pooled_point
from fusionopt.losses.tilted import tilted
from fusionopt.methods._envelope import chord_lams, difference_radii
from fusionopt.methods._monitor import Monitor
from fusionopt.penalties import L2Norm
from fusionopt.penalties.base import RadialPenalty, row_norms
from fusionopt.problem import FusionProblem
from fusionopt.result import Result, Start, Trace
from fusionopt.settings import AdmmSettings, DcSettings

if TYPE_CHECKING:
    from fusionopt.methods._choice import Session

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
OpenL2 = Callable[[FusionProblem, AdmmSettings, FloatArray | None], "Session"]

_PATH_LAMS = 7
"""The l2 path that offers starts runs over lam, lam/2, ..., lam/2^6."""
_SHORT_PATH, _SHORT_ITERATIONS = 3, 200
"""... where nodes have no minimisers of their own, for which little lam is a hard problem ..."""
_PATH_EPS, _PATH_ITERATIONS = 1e-4, 1000
"""... as sharply as a start needs."""
_TAU = 1e-2
"""Curvature added to nodes without a curvature of their own, relative to the mean Hessian: a proximal term at x^k."""
_MAX_REACH = 64.0
"""Longest extrapolation, in steps."""
_MAX_TIGHTENINGS = 4
"""Times a step is repeated at a hundredth of the l2 tolerance before a start is given up."""


@dataclass(frozen=True)
class _Anchor:
    """A point at which the majorant is taken: x, its tilt and F."""

    x: FloatArray
    b: FloatArray
    objective: float


@dataclass
class _Run:
    """One start on its way down."""

    name: str
    x: FloatArray
    objective: float
    first_objective: float
    trace: Trace
    residual: float = math.inf
    n_steps: int = 0
    n_iter: int = 0
    last: Result | None = None
    stopped: str = ""

    def record(self, n_clusters: int) -> Start:
        return Start(
            name=self.name,
            first_objective=self.first_objective,
            objective=self.objective,
            n_clusters=n_clusters,
            n_steps=self.n_steps,
            dual_residual=self.residual,
            status=self.stopped or "stationary",
        )


class DcSession:
    """Difference-of-convex steps from several starts, and from lam to lam.

    Parameters
    ----------
    problem : FusionProblem
        With a penalty that is concave in t.
    settings : DcSettings
    point : float64 (n_nodes, n_features) or None
        A start of the caller's.
    open_l2 : callable
        Opens a session for the same loss, plus a linear function, with `L2Norm`.
    """

    def __init__(
        self, problem: FusionProblem, settings: DcSettings, point: FloatArray | None, open_l2: OpenL2
    ) -> None:
        self._problem = problem
        self._settings = settings
        self._point = point
        self._point_name = "given"
        self._open_l2 = open_l2
        # A bounded penalty does not hold a node whose own loss has no minimiser.
        alone = existence(FusionProblem(problem.loss, problem.graph, lam=0.0))
        self._held = alone.attained is not False

    def set_lam(self, lam: float) -> None:
        """Go on at another lam; the present answer becomes a start."""
        self._problem = self._problem.with_lam(lam)

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam."""
        descent = _Descent(self._problem, self._settings, self._open_l2, monitor, self._held)
        result = descent.solve(self._point, self._point_name)
        self._point, self._point_name = result.x, "previous lam"
        return result


class _Descent:
    """All starts of one problem."""

    def __init__(
        self,
        problem: FusionProblem,
        settings: DcSettings,
        open_l2: OpenL2,
        monitor: Monitor,
        held: bool,
    ) -> None:
        loss, penalty = problem.loss, problem.penalty
        assert isinstance(penalty, RadialPenalty)  # chosen for that
        self._penalty = penalty
        self._slope = float(penalty.derivative(0.0, problem.lam))
        self.problem, self.settings, self.monitor = problem, settings, monitor
        self._loss = loss
        self._open_l2 = open_l2
        self._held = held
        self._n_iter = 0
        components = problem.graph.component_labels
        self.fused = pooled_point(loss, components)[components]
        pulls = row_norms(loss.gradient(self.fused))
        # All forces there are, in one number: what a distance of the subdifferential is measured against.
        self.force = float(pulls.max())
        self._tau = 0.0
        if not (loss.strong_convexity() > 0).all():
            hessians = loss.hessians_at(self.fused)
            sizes = hessians if hessians.ndim == 1 else np.einsum("iaa->i", hessians) / problem.n_features
            self._tau = _TAU * float(sizes.mean())
        # Where the pairs do not fit, squared distances have a method without them; where they do, ADMM starts warm.
        pairs = problem.graph.n_edges if problem.graph.is_complete else 0
        self._crowded = 16.0 * pairs * problem.n_features > _checks.memory_limit()
        self._own: Result | None = None

    # -- l2 problems --------------------------------------------------------------------------------------

    def l2_settings(self, eps_rel: float) -> AdmmSettings:
        """The settings of an l2 problem within what is left of the time."""
        s = self.settings
        left = None if s.time_limit is None else max(s.time_limit - self.monitor.elapsed, 1e-3)
        own = {f.name: getattr(s, f.name) for f in dataclasses.fields(AdmmSettings)}
        return AdmmSettings(
            **own | {"eps_rel": eps_rel, "eps_abs": 0.0, "time_limit": left, "verbose": False}
        )

    def rough_settings(self) -> AdmmSettings:
        """As sharp as a start needs."""
        rough = self.l2_settings(max(self.settings.eps_rel, _PATH_EPS))
        most = _PATH_ITERATIONS if self._held else _SHORT_ITERATIONS
        return dataclasses.replace(rough, max_iter=min(rough.max_iter, most))

    def l2_solve(self, problem: FusionProblem, x: FloatArray | None, eps_rel: float) -> Result:
        settings = self.l2_settings(eps_rel)
        result = self._open_l2(problem, settings, x).run(Monitor(settings, self.monitor.interrupt))
        self._n_iter += result.n_iter
        return result

    def l2_problem(self, lam: float) -> FusionProblem:
        return FusionProblem(self._loss, self.problem.graph, L2Norm(), lam)

    @property
    def own(self) -> Result:
        """Every node at its own minimiser, and the certified sum of their minima."""
        if self._own is None:
            self._own = self.l2_solve(self.l2_problem(0.0), None, self.settings.eps_rel)
        return self._own

    # -- starts -------------------------------------------------------------------------------------------

    def starts(self, point: FloatArray | None, point_name: str) -> Iterator[tuple[str, FloatArray]]:
        """Named starting points, each computed when it is asked for."""
        count = self.settings.n_starts
        if count is None:
            count = 1 if point is not None and point_name == "given" else 3
        made = 0
        if point is not None:
            yield point_name, point
            made += 1
        makers: list[tuple[str, Callable[[], FloatArray]]]
        makers = [("data", self.from_own), ("fused", self.from_fused), ("l2 path", self.from_path)]
        if not self._held:
            makers = makers[1:]
        for name, make in makers:
            if made < count:
                yield name, make()
                made += 1
        rng = np.random.default_rng(0 if self.settings.random_state is None else self.settings.random_state)
        for k in range(count - made):
            yield f"random {k + 1}", self.random(rng)

    def from_own(self) -> FloatArray:
        """Every node at its own minimiser."""
        return self.own.x

    def from_fused(self) -> FloatArray:
        """Every component at the minimiser of its summed losses."""
        return self.fused

    def from_path(self) -> FloatArray:
        """The best of an l2 path."""
        return self.path_start

    @cached_property
    def path_start(self) -> FloatArray:
        """The lowest F among the points of an l2 path and the refits of their partitions."""
        lams = [self._slope * 0.5**k for k in range(_PATH_LAMS if self._held else _SHORT_PATH)][::-1]
        settings = self.rough_settings()
        session = self._open_l2(self.l2_problem(lams[0]), settings, None)
        best, lowest = self.fused, self.objective(self.fused)[1]
        for lam in lams:
            session.set_lam(lam)
            result = session.run(Monitor(settings, self.monitor.interrupt))
            self._n_iter += result.n_iter
            points = [result.x]
            if self._held:
                points.append(pooled_point(self._loss, result.labels)[result.labels])
            for x in points:
                value = self.objective(x)[1]
                if value < lowest:
                    best, lowest = x, value
            if self.monitor.stopped():
                break
        return best

    def random(self, rng: np.random.Generator) -> FloatArray:
        """Every node at the nearest of a few nodes' own minimisers (rows of `path_start`), without replacement."""
        own, m = self.own.x if self._held else self.path_start, self.problem.n_nodes
        chosen = rng.choice(m, size=int(rng.integers(1, min(m, 10) + 1)), replace=False)
        distances = np.stack([row_norms(own - own[c]) for c in chosen])
        return np.asarray(own[chosen[distances.argmin(axis=0)]])

    # -- descent ------------------------------------------------------------------------------------------

    def objective(self, x: FloatArray) -> tuple[FloatArray, float]:
        """The tilt at x, and F(x)."""
        b, penalty = tilt(self.problem, x)
        return b, self._loss.value(x) + penalty

    def tolerance(self, x: FloatArray) -> float:
        """What counts as a distance of zero: eps_rel of all forces, or the rounding of a gradient."""
        rounding = float(row_norms(self._loss.gradient_error(x)).max()) + 64 * EPS * self.force
        return max(self.settings.eps_rel * self.force, rounding)

    def descend(self, name: str, start: FloatArray) -> _Run:
        b, value = self.objective(start)
        run = _Run(name, start, value, value, Trace())
        anchor = _Anchor(start, b, value)
        eps_rel, tightenings, reach = self.settings.eps_rel, 0, 1.0
        while True:
            majorant = tilted(self._loss, anchor.b, self._tau, anchor.x if self._tau else None, self._crowded)
            step = self.l2_solve(
                FusionProblem(majorant, self.problem.graph, L2Norm(), self._slope), anchor.x, eps_rel
            )
            b, value = self.objective(step.x)
            # F is a sum of positive terms, each with a few roundings.
            noise = 16 * EPS * (abs(value) + abs(anchor.objective))
            if math.isfinite(value) and value <= anchor.objective + noise:
                moved = b - anchor.b - self._tau * (step.x - anchor.x)
                residual = step.dual_residual + float(row_norms(moved).max())
                better = value < anchor.objective - noise or residual < 0.9 * run.residual
                last = run.x
                run.x, run.objective, run.last = step.x, min(value, run.objective), step
                run.residual = residual
                run.n_steps += 1
                run.n_iter += step.n_iter
                run.trace.add(run.n_iter, self.monitor.elapsed, run.objective, math.nan, math.nan)
                stopped = self.monitor.report(self._n_iter, run.objective, math.nan, math.nan)
                if residual <= self.tolerance(run.x):
                    run.residual = self.distance(run.x, step)
                    if run.residual <= self.tolerance(run.x):
                        return run
                    better = False
                anchor = _Anchor(step.x, b, value)
                further, reach = self.extrapolate(anchor, last, reach)
                anchor = further or anchor
            else:
                better, stopped = False, self.monitor.stopped()
            if not better and not stopped:
                # The l2 problem was not solved sharply enough to tell which way is down.
                tightenings += 1
                eps_rel *= 1e-2
                if tightenings > _MAX_TIGHTENINGS:
                    stopped = "the steps no longer lower the objective"
            if run.n_steps >= self.settings.max_steps and not stopped:
                stopped = f"max_steps = {self.settings.max_steps} was reached"
            if stopped:
                run.stopped = stopped
                if run.last is not None:
                    run.residual = self.distance(run.x, run.last)
                return run

    def extrapolate(self, here: _Anchor, last: FloatArray, reach: float) -> tuple[_Anchor | None, float]:
        """A point further along the last step where F is lower still, and how far to reach next time.

        Steps shrink by a constant factor near a stationary point; the majorant may be taken at any point with a lower
        F, so the next step starts from here. Rows that moved together stay equal bit by bit.
        """
        x = here.x + reach * (here.x - last)
        b, value = self.objective(x)
        if value < here.objective:
            return _Anchor(x, b, value), min(2 * reach, _MAX_REACH)
        return None, max(reach / 4, 1.0)

    def subgradients(self, x: FloatArray, step: Result) -> FloatArray:
        """Elements of the subdifferential of w_ij g(x_i - x_j; lam) at x, in the order of the edges."""
        v = np.empty((self.problem.graph.n_edges, self.problem.n_features))
        for place, _, _, block in self.subgradient_blocks(x, step):
            v[place] = block
        return v

    def distance(self, x: FloatArray, step: Result) -> float:
        """max_i ||grad f_i(x_i) + sum_j v_ij|| for the subgradients v: an upper bound of the distance of 0."""
        sums = self._loss.gradient(x)
        for _, i, j, block in self.subgradient_blocks(x, step):
            np.add.at(sums, i, block)
            np.subtract.at(sums, j, block)
        return float(row_norms(sums).max())

    def subgradient_blocks(
        self, x: FloatArray, step: Result
    ) -> Iterator[tuple[slice, IntArray, IntArray, FloatArray]]:
        """Subgradients a block of edges at a time.

        Edges inside a cluster keep the duals of the l2 step (||v|| <= g'(0) w, and every such vector is a subgradient
        at 0); those between clusters get w g'(t) u / t. No array of pairs beside what the step itself keeps.
        """
        source = step.dual_source
        if isinstance(source, ImplicitDuals):
            kept = source

            def duals(place: slice, node: int) -> FloatArray:
                return kept.row(node)
        else:
            whole = step.edge_duals()

            def duals(place: slice, node: int) -> FloatArray:
                return whole[place]

        for place, i, j, w in self.edge_blocks():
            u = x[i] - x[j]
            t = row_norms(u)
            apart = t > 0
            slope = np.divide(
                w * self._penalty.derivative(t, self.problem.lam), t, out=np.zeros_like(t), where=apart
            )
            block = duals(place, int(i[0]))
            yield place, i, j, np.where(apart[:, None], slope[:, None] * u, block)

    def edge_blocks(self) -> Iterator[tuple[slice, IntArray, IntArray, FloatArray]]:
        """Edges in the order of `Graph.edges`, a node's worth or a few thousand at a time."""
        graph = self.problem.graph
        if not graph.is_complete:
            edges, weights = graph.edges, graph.weights
            for first in range(0, len(edges), 4096):
                place = slice(first, first + 4096)
                yield place, edges[place, 0], edges[place, 1], weights[place]
            return
        r = np.ones(graph.n_nodes) if graph.node_weights is None else graph.node_weights
        nodes = np.flatnonzero(r > 0)
        first = 0
        for k, node in enumerate(nodes[:-1]):
            others = nodes[k + 1 :]
            place = slice(first, first + len(others))
            yield place, np.full(len(others), node), others, graph.weight * r[node] * r[others]
            first = place.stop

    # -- the answer ---------------------------------------------------------------------------------------

    def solve(self, point: FloatArray | None, point_name: str) -> Result:
        if self._slope == 0 or self.problem.graph.n_edges == 0 or self.force == 0:
            return self.decoupled()
        best: _Run | None = None
        table: list[Start] = []
        for name, start in self.starts(point, point_name):
            run = self.descend(name, start)
            table.append(run.record(int(exact_labels(run.x, self.problem.graph).max()) + 1))
            # A later start must be lower by more than rounding.
            if best is None or run.objective < best.objective - 64 * EPS * abs(best.objective):
                best = run
            if self.monitor.stopped():
                break
        assert best is not None
        return self.result(best, tuple(table))

    def result(self, best: _Run, table: tuple[Start, ...]) -> Result:
        problem, monitor = self.problem, self.monitor
        stopped = monitor.stopped()
        if not math.isfinite(best.objective):
            status = "numerical_error"
        elif stopped == "interrupted":
            status = "interrupted"
        else:
            status = "user_limit" if stopped or best.stopped else "stationary"
        lower, radius = self.lower_bound(best)
        objective = problem.objective(best.x)
        result = Result(
            problem=problem,
            settings=self.settings,
            x=best.x,
            labels=exact_labels(best.x, problem.graph),
            objective=objective,
            dual_objective=math.nan,
            gap=math.nan,
            rel_gap=math.nan,
            status=status,
            message=self.message(best, table, stopped, objective - lower, radius),
            n_iter=self._n_iter,
            primal_residual=math.nan if best.last is None else best.last.primal_residual,
            dual_residual=best.residual,
            setup_time=0.0,
            solve_time=monitor.elapsed,
            trace=best.trace.arrays(),
            lower_bound=min(lower, objective),
            starts=table,
        )
        last = best.last
        if last is not None:
            result.keep_duals(lambda: self.subgradients(result.x, last))
        return result

    def lower_bound(self, best: _Run) -> tuple[float, float]:
        """A number below F everywhere, and the largest difference it rests on (inf: only g >= 0)."""
        problem, graph = self.problem, self.problem.graph
        if not self._held:
            # f_i(x) - [f_i(x) + f_i^*(0)] is the infimum of f_i, at any x.
            told = self._loss.fenchel(self.fused, np.zeros_like(self.fused))
            return float((self._loss.values(self.fused) - told.gap - told.error).sum()), math.inf
        alone = self.own.dual_objective
        radii = difference_radii(self._loss, graph, self.own.x, max(best.objective - alone, 0.0))
        lams = chord_lams(self._penalty, problem.lam, radii)
        if not lams.any() or self.monitor.stopped():
            return alone, math.inf
        if not graph.is_complete:
            # One l2 problem: lam stays, and each edge carries its own chord in its weight.
            graph = Graph.from_edges(graph.n_nodes, graph.edges, graph.weights * (lams / self._slope))
        lam = float(lams) if graph.is_complete else self._slope
        chord = self.l2_solve(FusionProblem(self._loss, graph, L2Norm(), lam), best.x, self.settings.eps_rel)
        if chord.dual_objective > alone:
            return chord.dual_objective, float(radii[lams > 0].max())
        return alone, math.inf

    def message(self, best: _Run, table: tuple[Start, ...], stopped: str, gap: float, radius: float) -> str:
        reason = stopped or best.stopped
        head = f"{reason}: not stationary yet" if reason else "stationary point"
        parts = [
            f"{head}: distance of the subdifferential {best.residual:.1e} ({best.residual / self.force:.1e} of all "
            f"forces) after {best.n_steps} difference-of-convex steps"
        ]
        if len(table) > 1:
            parts.append(f"the lowest of {len(table)} starts ({best.name})")
        where = "g >= 0"
        if radius < math.inf:
            where = f"the chord of the penalty up to differences of {radius:.4g}"
        claim = f"F is at most {max(gap, 0.0):.3g} above its minimum, by {where}"
        if gap == math.inf:
            claim = "no lower bound is known"
        parts.append(f"no global optimality is claimed: {claim}")
        if not self._held:
            parts.append(
                "some node's own loss has no minimiser and a bounded penalty does not hold it: the infimum of F need "
                "not be attained"
            )
        if self.problem.graph.n_components > 1:
            parts.append(f"{self.problem.graph.n_components} components")
        return "; ".join(parts)

    def decoupled(self) -> Result:
        """Nothing to trade off: each node's own minimiser, or the one on which all of a component agree."""
        problem = self.problem
        agreed = self.force == 0
        x = self.fused if agreed else self.own.x
        objective = problem.objective(x)
        why = "every node's own minimiser serves its whole component" if agreed else "no pair is penalised"
        self.monitor.report(0, objective, math.nan, math.nan)
        result = Result(
            problem=problem,
            settings=self.settings,
            x=x,
            labels=exact_labels(x, problem.graph),
            objective=objective,
            dual_objective=math.nan,
            gap=math.nan,
            rel_gap=math.nan,
            status="stationary" if self._held or agreed else "unbounded",
            message=f"{why}: no point has a lower objective"
            if self._held or agreed
            else "no pair is penalised, and some node's loss has no minimiser: its infimum is not attained",
            n_iter=0,
            primal_residual=0.0,
            dual_residual=float(row_norms(self._loss.gradient(x)).max()),
            setup_time=0.0,
            solve_time=self.monitor.elapsed,
            trace=self.monitor.trace.arrays(),
            lower_bound=min(self.own.dual_objective, objective) if self._held else -math.inf,
        )
        shape = (problem.graph.n_edges, problem.n_features)
        result.keep_duals(lambda: np.zeros(shape))
        return result
