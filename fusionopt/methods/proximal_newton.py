"""Proximal Newton: any smooth convex loss with the l2 penalty, by quadratic models that the ADMM engine solves.

    x <- argmin_z  sum_i [ <grad f_i(x_i), z_i - x_i> + 1/2 (z_i - x_i)'H_i (z_i - x_i) ] + penalty(z)

The engine keeps its duals from one model to the next. They are feasible for the true problem too, so each check
bounds it by Fenchel's inequality at each node (theory: duality gap), whatever the model:

    gap = sum_i [ f_i(x_i) + f_i^*(-G_i) + <G_i, x_i> ] + [ penalty(x) - <v, Bx> ],     G_i = sum_j v_ij
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from fusionopt._bridge import Engine
from fusionopt.losses.base import NodeLoss, QuadraticNodeLoss
from fusionopt.losses.pooled import newton_minimiser
from fusionopt.losses.quadratic_model import QuadraticModel
from fusionopt.methods._check import Check, judge_nodes, to_result
from fusionopt.methods._coordinates import finish_coordinates
from fusionopt.methods._monitor import Monitor
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import AdmmSettings

FloatArray = NDArray[np.float64]

_INNER_SHARE = 0.2
"""A model is replaced when its own gap is this share of the true gap: solving it further would not pay."""
_INNER_SWEEPS = 200
"""... or after this many sweeps."""
_MAX_FINISHES = 6
_ARMIJO = 1e-4
_TRUST = 0.5
"""A model may lie below the loss at its solution by this share of what it promises to gain."""
_FIRST_DAMPING = 1e-2
"""Of losses with flat directions, relative to the mean curvature of each node."""
_LEAST_DAMPING = 1e-8
_FLAT = 1e-10
"""Least curvature of a model where a loss has flat directions, relative to the largest of all nodes."""


def quadratic_model(loss: NodeLoss, x: FloatArray, damping: float) -> QuadraticModel:
    """Second-order expansion of a loss at x, made definite.

    ``damping`` adds that share of the mean curvature to each node's Hessian.
    """
    hessians, slopes = loss.model_hessians_at(x), loss.gradient(x)
    d = loss.n_features
    if hessians.ndim == 1:
        size = hessians
    else:
        size = np.trace(hessians, axis1=1, axis2=2) / d
    largest = float(size.max())
    flat = _FLAT if float(loss.strong_convexity().min()) <= 0 else 0.0
    lift = damping * np.maximum(size, 1e-3 * largest) + flat * (largest if largest > 0 else 1.0)
    # A node that its loss neither bends nor pulls goes where the others put it: curvature would need a force on it.
    lift = np.where((size > 0) | slopes.any(axis=1), lift, 0.0)
    lifted = hessians + (lift if hessians.ndim == 1 else lift[:, None, None] * np.eye(d))
    return QuadraticModel(x, loss.values(x), slopes, lifted, loss.gradient_error(x))


class ProximalNewtonSession:
    """A smooth problem that moves from lam to lam and keeps its point and its duals.

    Parameters
    ----------
    problem : FusionProblem
    settings : AdmmSettings
    point : float64 (n_nodes, n_features) or None
        Where to start.
    """

    def __init__(self, problem: FusionProblem, settings: AdmmSettings, point: FloatArray | None) -> None:
        start = time.perf_counter()
        self._problem, self._settings = problem, settings
        components = problem.graph.component_labels
        zero = np.zeros((int(components.max()) + 1, problem.n_features))
        self._pooled = newton_minimiser(problem.loss, components, zero)[components]
        self._anchor = self._pooled if point is None else point
        # A quadratic is its own model; only the l1 penalty brings one here.
        self._exact = isinstance(problem.loss, QuadraticNodeLoss)
        flat = not self._exact and float(problem.loss.strong_convexity().min()) <= 0
        self._damping = _FIRST_DAMPING if flat else 0.0
        self._engine: Engine | None = None
        self._model: QuadraticNodeLoss
        self._models = 0
        self._setup_time = time.perf_counter() - start

    def set_lam(self, lam: float) -> None:
        """Go on at another lam."""
        start = time.perf_counter()
        self._problem = self._problem.with_lam(lam)
        if self._engine is not None:
            self._engine.set_lam(lam)
        self._setup_time = time.perf_counter() - start

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam; the duals of the result are the engine's until it moves on."""
        problem, settings = self._problem, self._settings
        if problem.lam == 0 or problem.graph.n_edges == 0:
            return self._decoupled(monitor)
        engine = self._open()
        if engine.decoupled:  # every node agrees with the minimiser of its component
            return self._decoupled(monitor)
        first, since, stopped, finishes, tried = engine.n_iter, 0, "", 0, np.inf
        self._models = 1
        found: tuple[Check, FloatArray | None] | None = None
        while not stopped:
            left = settings.max_iter - (engine.n_iter - first)
            if left <= 0:
                stopped = f"max_iter = {settings.max_iter} was reached"
                break
            before = engine.n_iter
            engine.run(min(engine.check_every, left))
            since += engine.n_iter - before
            check = self._judge(engine, engine.point())
            stopped = monitor.report(engine.n_iter - first, check.objective, check.dual_objective, check.gap)
            if self._done(check) and (check.exact or not check.gap > 0.1 * tried):
                finishes += 1
                tried = check.gap
                found = self._finish(engine, check)
                if found is not None or finishes > _MAX_FINISHES:
                    break
            due = check.model_gap <= _INNER_SHARE * check.gap or since >= _INNER_SWEEPS
            if due and not self._exact:
                self._advance(engine, check)
                since = 0
        n_iter = engine.n_iter - first
        final, kept = found or (self._judge(engine, engine.point()), None)
        if not final.objective <= self._ceiling():
            final, kept = self._judge(engine, self._best_known()), None
        self._anchor = final.x
        return to_result(
            problem,
            settings,
            final,
            monitor,
            stopped=stopped,
            n_iter=n_iter,
            how=f"{n_iter} sweeps on {self._models} quadratic models (proximal Newton)",
            setup_time=self._setup_time,
            primal_residual=engine.primal_residual(),
            duals=(lambda: final.dual_scale * engine.duals()) if kept is None else kept.copy,
        )

    def _best_known(self) -> FloatArray:
        """The better of the last accepted point and the components' common minimisers."""
        objective = self._problem.objective
        return self._anchor if objective(self._anchor) <= objective(self._pooled) else self._pooled

    def _ceiling(self) -> float:
        """No optimum lies above this, so no point that does is one, whatever its rounding error excuses."""
        least = self._problem.objective(self._best_known())
        return least + self._settings.eps_rel * abs(least)

    def _done(self, check: Check) -> bool:
        return check.done(self._settings) and check.objective <= self._ceiling()

    def _expand(self, x: FloatArray) -> QuadraticNodeLoss:
        loss = self._problem.loss
        return loss if isinstance(loss, QuadraticNodeLoss) else quadratic_model(loss, x, self._damping)

    def _open(self) -> Engine:
        if self._engine is None:
            problem = self._problem
            self._model = self._expand(self._pooled)
            self._engine = Engine(
                FusionProblem(self._model, problem.graph, problem.penalty, problem.lam), self._settings
            )
            if self._anchor is not self._pooled and not self._engine.decoupled:
                if not self._exact:
                    self._model = self._expand(self._anchor)
                    self._engine.update(self._model)
                self._engine.warm_start(self._anchor)
        return self._engine

    def _judge(self, engine: Engine, x: FloatArray) -> Check:
        loss = self._problem.loss
        told = engine.judge(x)
        scale = loss.dual_scale(told.sums)
        value, gap, rounding, residual, distance = judge_nodes(loss, x, scale * told.sums)
        gap += (1.0 - scale) * told.penalty + scale * told.slack
        if self._exact:
            # The engine brings the duals of singular quadratics into the range of their Hessians.
            gap, scale = told.model_gap, 1.0
        return Check(
            x=x,
            objective=value + told.penalty,
            gap=gap,
            # The engine's bound covers the sums of the duals and the penalty.
            rounding=rounding + told.rounding,
            residual=residual,
            distance=distance,
            model_gap=told.model_gap,
            dual_scale=scale,
        )

    def _advance(self, engine: Engine, check: Check) -> None:
        """Expand the loss at the new point, or where the line search stops on the way to it.

        The point is as good as the engine has solved the model, so it may lie above the old one; what a step is
        judged by is how far the model lies below the loss there, beside all that the model may still promise.
        """
        problem, old, model = self._problem, self._anchor, self._model
        value, penalty = problem.objective(old), check.objective - problem.loss.value(check.x)
        modelled = model.value(check.x) + penalty
        promised = value - (modelled - check.model_gap)
        new = check.x
        # A point that ran far away has a rounding error that would excuse anything.
        noise = min(check.rounding, self._settings.eps_rel * abs(value))
        if check.objective - modelled <= _TRUST * max(promised, 0.0) + noise:
            self._damping = 0.1 * self._damping if self._damping > _LEAST_DAMPING else 0.0
        else:
            self._damping = min(max(10 * self._damping, 1e-3), 1e6)
            slope = (
                float((problem.loss.gradient(old) * (new - old)).sum()) + penalty - problem.penalty_value(old)
            )
            share = 1.0
            for _ in range(20):
                share *= 0.5
                new = old + share * (check.x - old)
                if problem.objective(new) <= value + _ARMIJO * share * min(slope, 0.0):
                    break
            else:
                new = old
        self._anchor = new
        self._models += 1
        self._model = self._expand(new)
        engine.update(self._model)

    def _finish(self, engine: Engine, raw: Check) -> tuple[Check, FloatArray | None] | None:
        """The partition of the model, then of the model at its own solution, until the gap is at rounding.

        Returns the best point, and its duals where the engine has moved on from them; None where no finished point
        meets the stop rule.
        """
        if engine.separable:
            check = self._judge(engine, finish_coordinates(self._problem, raw.x, engine.duals()))
            return (check, None) if self._done(check) else None
        best: Check | None = None
        duals: FloatArray | None = None
        for _ in range(_MAX_FINISHES):
            told = engine.finish()
            check = self._judge(engine, engine.point())
            good = told.accepted and self._done(check)
            if not good or check.objective > raw.objective + raw.rounding + check.rounding:
                break
            stalled = best is not None and check.gap > 0.5 * best.gap
            best, duals = check, None
            if check.exact or stalled:
                break
            duals = check.dual_scale * engine.duals()
            self._advance(engine, check)
            engine.run(engine.check_every)
        return None if best is None else (best, duals)

    def _decoupled(self, monitor: Monitor) -> Result:
        """lam = 0, no edges, or nodes that all agree: every node (or component) on its own."""
        problem = self._problem
        apart = problem.lam == 0 or problem.graph.n_edges == 0
        x = (
            newton_minimiser(problem.loss, np.arange(problem.n_nodes), self._pooled)
            if apart
            else self._pooled
        )
        value, gap, rounding, residual, distance = judge_nodes(problem.loss, x, np.zeros_like(x))
        check = Check(x, value, gap, rounding, residual, distance)
        monitor.report(0, check.objective, check.dual_objective, check.gap)
        shape = (problem.graph.n_edges, problem.n_features)
        return to_result(
            problem,
            self._settings,
            check,
            monitor,
            stopped="",
            n_iter=0,
            how="every node is solved on its own" if apart else "every component is at its common minimiser",
            setup_time=self._setup_time,
            primal_residual=0.0,
            duals=lambda: np.zeros(shape),
        )
