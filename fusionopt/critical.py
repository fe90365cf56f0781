"""lambda_max: the smallest lam at which every component of the graph is one cluster."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt._bridge import Certificate, Engine
from fusionopt._bridge_implicit import ImplicitEngine
from fusionopt._quotient import at_rest, flow_bound, quotient
from fusionopt.clusters import exact_labels
from fusionopt.estimate import pairs_need_no_storage
from fusionopt.graph import Graph
from fusionopt.losses.base import QuadraticNodeLoss
from fusionopt.losses.pooled import newton_minimiser, pooled_minimiser
from fusionopt.losses.quadratic_model import QuadraticModel
from fusionopt.methods import Interrupt, implicit
from fusionopt.penalties import L1Norm, L2Norm, SquaredL2
from fusionopt.problem import FusionProblem
from fusionopt.settings import AdmmSettings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_SETTINGS = AdmmSettings(eps_rel=1e-6, max_iter=5000)
_WIDTH = 1e-9
"""Relative width of the bracket."""
_LAST = 0.95 * _WIDTH
"""The upper end stands half of it above the lower one; where that does not fit, nearly all, then ever more."""
_BELOW = 1e-8
"""How far below the present bound the next direction is taken, relative."""
_MAX_STEPS = 60
_SHARPER = tuple(0.01**k for k in range(1, 7))
"""Shares of the tolerance that are tried in turn while a partition is not proven."""
_TOO_MANY = 1e6
"""Edges times features of an edge list above which flows are swept for and balanced, but no solve is finished."""
_COARSE, _SLOW = 0.3, 0.1
"""Edge lists: how far below the bound the first sweeps are made, relative; a rise that is hardly worth the move,"""
_MOST_MOVES, _MOST_SLOW = 40, 8
"""and the most moves, and such moves, on the way to few groups."""
_FEW = 64
"""So many groups are a small problem (graphs of less than _MANY_TIMES as many nodes are one themselves)."""
_MANY_TIMES = 16
_ROOM, _MOST_ROUNDS = 0.01, 4
"""Room left to the flow inside the groups that part last, relative (a tenth of it at each attempt more); attempts,"""
_MOST_CHECKS, _MOST_CUTS = 10, 100
"""checks of the sweeps towards one, and times that a flow between groups is cut to its length."""
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
        relative 1e-9; on complete graphs too large to store their pairs by about 1e-4, and on edge lists with more than
        1e6 edges times features by up to 1e-3 where the digits would cost too much.

    Raises
    ------
    InvalidArgumentError
        A penalty that is not convex; a weight so small that lambda_max lies beyond float64.
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
        1e-4 high, 1e-3 where the flow is hard to find; edge lists with more than 1e6 edges times features: 1e-9 where
        the flow is found at once, else up to about 1e-3.

    Raises
    ------
    InvalidArgumentError
        A penalty that is not convex; a weight so small that lambda_max lies beyond float64.
    InvalidTypeError
        A loss or penalty that the engine does not solve.

    Notes
    -----
    Dinkelbach's method: the solution at the present lower bound is the direction of the next one, so the bound
    rises monotonically and superlinearly; theory of the duals in 2006.11355 and the flow test of `recovery`.
    Edge lists of more than 1000 nodes: once few groups are left, the same between groups, where by complementary
    slackness the flow between those that part last is known, and a flow inside them.
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
    graph = problem.graph
    if isinstance(problem.penalty, SquaredL2):
        _, force = _at_rest(problem)
        return (math.inf, math.inf) if force.any() and graph.n_edges else (0.0, 0.0)
    low, high = _bracket(problem, interrupt)
    if math.isinf(high):
        _refuse_weights(graph)
    return low, high


def _bracket(problem: FusionProblem, interrupt: Interrupt | None) -> tuple[float, float]:
    graph = problem.graph
    if isinstance(problem.penalty, L1Norm) and problem.n_features > 1:
        # Every coordinate is a problem of its own: flows along the edges and their intervals do not mix.
        each = [bracket_lambda_max(one, interrupt) for one in _coordinates(problem)]
        return max(low for low, _ in each), max(high for _, high in each)
    one_line = problem.n_features == 1 and graph.node_weights is None
    if implicit.stores_too_much(problem) and pairs_need_no_storage(problem) and not one_line:
        return _without_pairs(problem, interrupt)
    return _with_pairs(replace(problem, loss=_at_rest(problem)[0]), interrupt)[:2]


def _with_pairs(problem: FusionProblem, interrupt: Interrupt | None) -> tuple[float, float, Engine]:
    """The bracket, and the engine that found it: its duals are about the flow of the upper end."""
    engine = Engine(problem.with_lam(0.0), _SETTINGS)
    force, graph = engine.pooled_force(), problem.graph
    labels = graph.component_labels
    if not engine.coupled or not force.any():
        return 0.0, 0.0, engine
    if problem.n_features == 1 and graph.is_complete and graph.node_weights is None:
        value = _one_dimension(force[:, 0], graph.weight)
        # The closed form is right to rounding; the upper end must fuse, so it stands as far above as elsewhere.
        return value * (1 - 0.01 * _WIDTH), value * (1 + 0.5 * _WIDTH), engine
    low, top = float(_ratios(engine, force, force, labels).max()), math.inf
    if not graph.is_complete and graph.n_nodes > _MANY_TIMES * _FEW:
        low, top = _by_groups(engine, force, low, interrupt)
        if top > low * (1 + _WIDTH) and _too_many(graph, force):
            top = _from_above(engine, force, low, top, interrupt)
        if top <= low * (1 + _WIDTH) or (_too_many(graph, force) and top < math.inf):
            return low, top, engine
    for _ in range(_MAX_STEPS):
        # Just below the bound: there the clusters that part last are still apart and point along the direction wanted.
        engine.set_lam(low * (1 - _BELOW))
        raised = 0.0
        for factor in _SHARPER:
            # No proof is needed of a direction that raises the bound.
            proven = _finished(engine, interrupt)
            raised = _raised(engine, force, labels)
            if proven or raised > low * (1 + 0.1 * _WIDTH):
                break
            engine.tighten(factor)
        tight = raised <= low * (1 + 0.1 * _WIDTH)
        low = max(low, raised)
        if tight:
            break
    # Just above it the same duals, lengthened with lam, are the flow that holds everything together.
    step, growth = 0.5 * _WIDTH, 2.0
    while step < 1.0:
        high = low * (1 + step)
        engine.set_lam(high)
        if (engine.finish().proven or _solve(engine, interrupt)) and _carries(engine, labels):
            return low, high, engine
        # Rounding (or a direction that was not the last one) kept the flow from fitting: the bracket widens honestly.
        low = max(low, _raised(engine, force, labels))
        step, growth = (step * growth, 2.0 * growth) if step >= _LAST else (_LAST, 2.0)
    return low, min(top, 2.0 * low), engine


def _by_groups(
    engine: Engine, force: FloatArray, low: float, interrupt: Interrupt | None
) -> tuple[float, float]:
    """The bracket of an edge list through the small problem between few groups; (low, inf) where that does not get far.

    Sweeps ever nearer to lambda_max until few groups are left: the lambda_max between those bounds that of the whole
    from below. Where it is exact, the flow between the groups that part last is known, and what it leaves to the edges
    inside them has room, so that a flow there is soon found. Where it is not, they come apart further, and the bound
    rises.
    """
    graph = engine.problem.graph
    few = _FEW + graph.n_components
    distance, slow = _COARSE, 0
    for _ in range(_MOST_MOVES):
        engine.set_lam(low * (1 - distance))
        _sweep(engine, interrupt)
        raised = _raised(engine, force, graph.component_labels)
        if raised <= low * (1 + distance / 4) and engine.n_fused > few:
            distance = distance / 3
        slow += raised < low * (1 + _SLOW)
        low = max(low, raised)
        if graph.n_components < engine.n_fused <= few:
            break
        if slow > _MOST_SLOW and not _too_many(graph, force):
            break
    groups = exact_labels(engine.fused_point(), graph)
    high = math.inf
    for attempt in range(_MOST_ROUNDS):
        if not graph.n_components < groups.max() + 1 <= min(few, graph.n_nodes // 2):
            break
        parts = quotient(graph, force, groups)
        bound, _, small = _with_pairs(parts.problem, interrupt)
        if bound == 0.0:
            break
        low = max(low, bound)
        # Only the groups that part last: a flow need not be as long as it may be between the others.
        small.set_lam(bound * (1 - _BELOW))
        _solve(small, interrupt)
        groups = exact_labels(small.point(), parts.problem.graph)[groups]
        if groups.max() + 1 == graph.n_components:
            break
        parts = quotient(graph, force, groups)
        bound, _, small = _with_pairs(parts.problem, interrupt)
        across, between = _between(small, bound, interrupt)
        if across == math.inf:
            break
        groups, within = _inside(parts.inside(between), low, _ROOM * 0.1**attempt, interrupt)
        high = min(high, max(across, within, low * (1 + 0.5 * _WIDTH)))
        if within <= across:
            break
    return low, high


def _between(engine: Engine, low: float, interrupt: Interrupt | None) -> tuple[float, FloatArray]:
    """The length of a flow of a small problem, and the flow: balanced and cut to about `low` in turns."""
    graph, force = engine.problem.graph, engine.pooled_force()
    engine.set_lam(low * (1 - _WIDTH))
    _solve(engine, interrupt)
    bound, flow = flow_bound(graph, force, engine.duals(), low)
    for _ in range(_MOST_CUTS):
        if bound <= low * (1 + 0.5 * _WIDTH) or bound == math.inf:
            break
        lengths = np.linalg.norm(flow, axis=1) / graph.weights
        cut = low * (1 + 0.25 * _WIDTH) / np.maximum(lengths, low)
        bound, flow = flow_bound(graph, force, flow * np.minimum(cut, 1.0)[:, None], low)
    return bound, flow


def _inside(
    problem: FusionProblem, low: float, room: float, interrupt: Interrupt | None
) -> tuple[IntArray, float]:
    """Groups of the solution that much below `low`, and the length of a flow, inf where none was found."""
    engine, graph = Engine(problem.with_lam(low * (1 - room)), _SETTINGS), problem.graph
    if not engine.coupled:
        return graph.component_labels, 0.0
    force = engine.pooled_force()
    if not _too_many(graph, force):
        fits = _solve(engine, interrupt) and _carries(engine, graph.component_labels)
        return exact_labels(engine.fused_point(), graph), low * (1 - room) if fits else math.inf
    bound = _swept_bound(engine, force, low, math.inf, interrupt)
    return exact_labels(engine.fused_point(), graph), bound


def _from_above(
    engine: Engine, force: FloatArray, low: float, high: float, interrupt: Interrupt | None
) -> float:
    """An upper end from flows that are swept for above the lower one and not finished."""
    for distance in _ABOVES:
        if high > low * (1 + distance):
            engine.set_lam(low * (1 + distance))
            high = min(high, _swept_bound(engine, force, low, high, interrupt))
    return high


def _swept_bound(
    engine: Engine, force: FloatArray, low: float, enough: float, interrupt: Interrupt | None
) -> float:
    for _ in range(_MOST_CHECKS):
        if _sweep(engine, interrupt):
            break
    graph = engine.problem.graph
    bound, _ = flow_bound(graph, force, engine.duals(), low, enough)
    # Where conjugate gradients are slow (grids, chains), the core's factor balances at once.
    fits = bound == math.inf and engine.finish().proven and _carries(engine, graph.component_labels)
    return engine.problem.lam if fits else bound


def _too_many(graph: Graph, force: FloatArray) -> bool:
    return bool(graph.n_edges * force.shape[1] > _TOO_MANY)


def _sweep(engine: Engine, interrupt: Interrupt | None) -> bool:
    """To the next check; whether the tolerance is met there."""
    if interrupt is not None and interrupt.requested:
        raise KeyboardInterrupt
    return bool(engine.run(engine.check_every))


def _raised(engine: Engine, force: FloatArray, labels: IntArray) -> float:
    """The largest lower bound that the present point tells."""
    return float(_ratios(engine, engine.point() - engine.shift, force, labels).max(initial=0.0))


def _at_rest(problem: FusionProblem) -> tuple[QuadraticModel, FloatArray]:
    """A quadratic with the same forces where every component is at its minimiser, and those forces.

    So singular and badly conditioned losses cost no more than squared distances: see `at_rest`.
    """
    loss, components = problem.loss, problem.graph.component_labels
    if isinstance(loss, QuadraticNodeLoss):
        y = pooled_minimiser(loss, components)[components]
    else:
        y = newton_minimiser(loss, components, np.zeros((int(components.max()) + 1, loss.n_features)))[
            components
        ]
    slope, error = loss.gradient(y), loss.gradient_error(y)
    force = np.where(np.abs(slope) <= error, 0.0, -slope)
    return at_rest(force, error), force


def _coordinates(problem: FusionProblem) -> list[FusionProblem]:
    _, force = _at_rest(problem)
    columns = [force[:, k : k + 1] for k in range(problem.n_features)]
    return [FusionProblem(at_rest(column), problem.graph, L2Norm()) for column in columns]


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


def _solve(engine: Engine, interrupt: Interrupt | None) -> bool:
    """Run to the tolerance and finish, with sharper duals while the partition is not proven."""
    for factor in _SHARPER:
        if _finished(engine, interrupt):
            return True
        engine.tighten(factor)
    return False


def _finished(engine: Engine, interrupt: Interrupt | None) -> bool:
    """Run to the present tolerance and finish; whether the partition is proven."""
    first = engine.n_iter + engine.n_between
    while not _sweep(engine, interrupt) and engine.n_iter + engine.n_between - first < _SETTINGS.max_iter:
        pass
    return engine.finish().proven


def _carries(engine: Engine, labels: IntArray) -> bool:
    """Whether every component is one point, and the duals balance its forces up to rounding."""
    x = engine.point()
    _, first = np.unique(labels, return_index=True)
    certificate: Certificate = engine.certify(x)
    balanced: bool = certificate.gap <= certificate.rounding
    return balanced and bool((x == x[first][labels]).all())


def _ratios(engine: Engine, z: FloatArray, force: FloatArray, labels: IntArray) -> FloatArray:
    """<force, z> / sum w ||z_i - z_j|| of each component: lower bounds of its lambda_max."""
    penalties = engine.component_penalties(z)
    products = np.bincount(labels, (force * z).sum(axis=1), minlength=len(penalties))
    with np.errstate(over="ignore"):
        ratios = np.divide(products, penalties, out=np.zeros_like(products), where=penalties > 0)
    if np.isinf(ratios).any():
        _refuse_weights(engine.problem.graph)
    return ratios


def _refuse_weights(graph: Graph) -> NoReturn:
    least = graph.weight
    if not graph.is_complete:
        least = float(graph.weights.min())
    elif graph.node_weights is not None:
        least *= float(graph.node_weights[graph.node_weights > 0].min()) ** 2
    _checks.refuse(
        f"lambda_max grows as 1 / weight and lies beyond float64 here: the smallest weight is {least:g}; make weights "
        "0 where they are meant to be, or scale them.",
        argument="problem.graph",
        got=f"a weight of {least:g}",
        wanted="weights that lambda_max can be divided by",
    )


def _one_dimension(force: FloatArray, weight: float) -> float:
    """max_k |sum of the k smallest| / (W k (n - k)): the cut that holds out longest."""
    n = len(force)
    k = np.arange(1, n)
    with np.errstate(over="ignore"):
        return float((np.abs(np.cumsum(np.sort(force))[:-1]) / (k * (n - k))).max() / weight)
