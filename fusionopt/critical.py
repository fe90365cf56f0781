"""lambda_max: the smallest lam at which every component of the graph is one cluster."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt._bridge import Engine
from fusionopt._bridge_implicit import ImplicitEngine
from fusionopt.estimate import pairs_need_no_storage
from fusionopt.losses.base import QuadraticNodeLoss
from fusionopt.losses.pooled import newton_minimiser, pooled_minimiser
from fusionopt.losses.quadratic_model import QuadraticModel
from fusionopt.methods import Interrupt, implicit
from fusionopt.penalties import L1Norm, L2Norm, SquaredL2
from fusionopt.problem import FusionProblem
from fusionopt.settings import AdmmSettings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_WIDTH = 1e-9
"""Relative width of the bracket."""
_BELOW = 1e-8
"""How far below the present bound the next direction is taken, relative."""
_MAX_STEPS = 60
_BELOWS = (0.03, 0.003)
_ABOVES = (0.03, 1e-3, 1e-4)
"""Without stored pairs: distances from the bound at which a direction below and a flow above are sought, relative,"""
_MAX_ABOVE = 8
"""and the most flows that are sought."""


def lambda_max(problem: FusionProblem) -> float:
    """Smallest lam that fuses every component: the upper end of `lambda_max_bounds`.

    Parameters
    ----------
    problem : FusionProblem
        Its lam is not used.

    Returns
    -------
    float
        0 where nothing is left to fuse: one node, no edges, or nodes that agree already. Above the smallest by a
        relative 1e-9; on complete graphs too large to store their pairs by about 1e-4.

    Raises
    ------
    InvalidArgumentError
        A penalty that is not convex.
    InvalidTypeError
        A loss or penalty that the engine does not solve.

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance
    >>> round(lambda_max(FusionProblem(SquaredDistance([0.0, 2.0]))), 8)
    1.0
    """
    return bracket_lambda_max(problem)[1]


def lambda_max_bounds(problem: FusionProblem) -> tuple[float, float]:
    """(low, high] around the smallest lam that fuses every component, largest over components.

        lambda_max = min { t : B'z = -grad f(y), ||z_e|| <= t w_e }
                   = max_z  <-grad f(y), z> / sum_e w_e ||z_i - z_j||,       y = argmin sum_i f_i

    Parameters
    ----------
    problem : FusionProblem
        Its lam is not used.

    Returns
    -------
    (low, high) : floats
        A direction z proves the lower end, a feasible flow the upper one; high - low <= 1e-9 high unless rounding
        forbids it. Complete graphs too large to store their pairs: both ends are as rigorous, but apart by about
        1e-4 high, 1e-3 where the flow is hard to find.

    Raises
    ------
    InvalidArgumentError
        A penalty that is not convex.
    InvalidTypeError
        A loss or penalty that the engine does not solve.

    Notes
    -----
    Dinkelbach's method: the solution at the present lower bound is the direction of the next one, so the bound
    rises monotonically and superlinearly; theory of the duals in 2006.11355 and the flow test of `recovery`.
    """
    return bracket_lambda_max(problem)


def bracket_lambda_max(problem: FusionProblem, interrupt: Interrupt | None = None) -> tuple[float, float]:
    """`lambda_max_bounds`, watching a Ctrl-C request between sweeps (KeyboardInterrupt: there is no half result)."""
    _checks.check_instance("problem", problem, FusionProblem, "for instance FusionProblem(loss, graph)")
    if not problem.penalty.convex:
        _checks.refuse(
            f"lambda_max is not defined for {type(problem.penalty).__name__}, which is not convex: a stationary point "
            "may fuse at one lam and not at a larger one; give lams= yourself.",
            argument="problem.penalty",
            got=type(problem.penalty).__name__,
            wanted="a convex penalty",
        )
    if isinstance(problem.penalty, SquaredL2):
        _, force = _at_rest(problem)
        return (math.inf, math.inf) if force.any() and problem.graph.n_edges else (0.0, 0.0)
    if isinstance(problem.penalty, L1Norm) and problem.n_features > 1:
        # Every coordinate is a problem of its own: flows along the edges and their intervals do not mix.
        each = [bracket_lambda_max(one, interrupt) for one in _coordinates(problem)]
        return max(low for low, _ in each), max(high for _, high in each)
    if not isinstance(problem.loss, QuadraticNodeLoss):
        problem = replace(problem, loss=_at_rest(problem)[0])
    settings = AdmmSettings(eps_rel=1e-6, max_iter=5000)
    one_line = problem.n_features == 1 and problem.graph.node_weights is None
    if implicit.stores_too_much(problem) and pairs_need_no_storage(problem) and not one_line:
        return _without_pairs(problem, interrupt)
    engine = Engine(problem.with_lam(0.0), settings)
    force = engine.pooled_force()
    labels = problem.graph.component_labels
    if not engine.coupled or not force.any():
        return 0.0, 0.0
    if problem.n_features == 1 and problem.graph.is_complete and problem.graph.node_weights is None:
        value = _one_dimension(force[:, 0], problem.graph.weight)
        # The closed form is right to rounding; the upper end must fuse, so it stands as far above as elsewhere.
        return value * (1 - 0.01 * _WIDTH), value * (1 + 0.5 * _WIDTH)
    low = float(_ratios(engine, force, force, labels).max())
    for _ in range(_MAX_STEPS):
        # Just below the bound: there the clusters that part last are still apart and point along the direction wanted.
        engine.set_lam(low * (1 - _BELOW))
        _solve(engine, settings, interrupt)
        raised = float(_ratios(engine, engine.point() - engine.shift, force, labels).max(initial=0.0))
        tight = raised <= low * (1 + 0.1 * _WIDTH)
        low = max(low, raised)
        if tight:
            break
    # Just above it the same duals, lengthened with lam, are the flow that holds everything together.
    step = 0.5 * _WIDTH
    while step < 1.0:
        high = low * (1 + step)
        engine.set_lam(high)
        proven = engine.finish().proven or _solve(engine, settings, interrupt)
        x = engine.point()
        if proven and _constant(x, labels):
            return low, high
        # Rounding (or a direction that was not the last one) kept the flow from fitting: the bracket widens honestly.
        low = max(low, float(_ratios(engine, x - engine.shift, force, labels).max(initial=0.0)))
        step *= 4.0
    return low, 2.0 * low


def _at_rest(problem: FusionProblem) -> tuple[QuadraticModel, FloatArray]:
    """A quadratic with the same forces where every component is at its minimiser, and those forces.

    lambda_max depends on the losses through these forces only; the curvature and the place are free, and 1 and 0 are
    the simplest: around y itself a step of the size of the forces could be lost in the digits of y.
    """
    loss, components = problem.loss, problem.graph.component_labels
    if isinstance(loss, QuadraticNodeLoss):
        y = pooled_minimiser(loss, components)[components]
    else:
        y = newton_minimiser(loss, components, np.zeros((int(components.max()) + 1, loss.n_features)))[
            components
        ]
    slope, error = loss.gradient(y), loss.gradient_error(y)
    model = QuadraticModel(np.zeros_like(y), np.zeros(len(y)), slope, np.ones(len(y)), error)
    return model, np.where(np.abs(slope) <= error, 0.0, -slope)


def _coordinates(problem: FusionProblem) -> list[FusionProblem]:
    loss, _ = _at_rest(problem)
    y = loss.anchor
    slope, error = loss.gradient(y), loss.gradient_error(y)
    ones = np.ones(loss.n_nodes)
    columns = [slice(k, k + 1) for k in range(problem.n_features)]
    models = [QuadraticModel(y[:, c], 0 * ones, slope[:, c], ones, error[:, c]) for c in columns]
    return [FusionProblem(model, problem.graph, L2Norm()) for model in models]


def _without_pairs(problem: FusionProblem, interrupt: Interrupt | None) -> tuple[float, float]:
    """The bracket by solves that store no pair: directions from below, polished flows from above."""
    settings = AdmmSettings(eps_rel=1e-6)

    def stopped() -> bool:
        if interrupt is not None and interrupt.requested:
            raise KeyboardInterrupt
        return False

    def at(lam: float) -> ImplicitEngine:
        engine = ImplicitEngine(problem.with_lam(lam), settings)
        engine.run(lambda steps, objective, dual: stopped(), stopped)
        return engine

    start = ImplicitEngine(problem, settings)
    force = start.force()
    if not force.any():
        return 0.0, 0.0
    low, high = start.ratio(force), math.inf
    below = list(_BELOWS)
    while below:
        engine = at(low * (1 - below[0]))
        raised = engine.ratio(engine.point())
        if raised <= low * (1 + below[0] / 4):
            below.pop(0)
        low = max(low, raised)
    above = list(_ABOVES)
    for _ in range(_MAX_ABOVE):
        if not above:
            break
        engine = at(low * (1 + above[0]))
        bound = engine.fusing_bound(stopped)
        high = min(high, bound)
        # Still apart: its direction raises the lower end, from which the same distance is tried again.
        raised = engine.ratio(engine.point()) if bound == math.inf else 0.0
        if raised > low:
            low = raised
        else:
            above.pop(0)
    return low, high if high < math.inf else 2 * low


def _solve(engine: Engine, settings: AdmmSettings, interrupt: Interrupt | None) -> bool:
    """Run to the tolerance and finish, with sharper duals while the partition is not proven."""
    for attempt in range(6):
        first = engine.n_iter
        while not engine.run(engine.check_every) and engine.n_iter - first < settings.max_iter:
            if interrupt is not None and interrupt.requested:
                raise KeyboardInterrupt
        if engine.finish().proven:
            return True
        engine.tighten(0.01 ** (attempt + 1))
    return False


def _constant(x: FloatArray, labels: IntArray) -> bool:
    _, first = np.unique(labels, return_index=True)
    return bool((x == x[first][labels]).all())


def _ratios(engine: Engine, z: FloatArray, force: FloatArray, labels: IntArray) -> FloatArray:
    """<force, z> / sum w ||z_i - z_j|| of each component: lower bounds of its lambda_max."""
    penalties = engine.component_penalties(z)
    products = np.bincount(labels, (force * z).sum(axis=1), minlength=len(penalties))
    return np.divide(products, penalties, out=np.zeros_like(products), where=penalties > 0)


def _one_dimension(force: FloatArray, weight: float) -> float:
    """max_k |sum of the k smallest| / (W k (n - k)): the cut that holds out longest."""
    n = len(force)
    k = np.arange(1, n)
    return float((np.abs(np.cumsum(np.sort(force))[:-1]) / (k * (n - k))).max() / weight)
