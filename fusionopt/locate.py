"""Where exactly clusters merge and split: between two neighbouring lams whose partitions differ.

Three ways, the sharpest that applies:

- closed form: `SquaredDistance` with equal weights on a complete graph. There a set of rows is fused at lam exactly
  when lam >= h(set), whatever the other rows do (theory of agglomeration), and two clusters of sizes p, q and means a,
  b that meet without a third do so at s ||a - b|| / (W (p + q)); in one dimension every meeting is of this kind;
- flow test: at a merge or a split of parts P_1, P_2, ... of one cluster C, the least flow between the rigid parts just
  fills its balls. t(lam) = that least flow at the restricted optimum in which C is one cluster; the event is the root
  of t(lam) = lam. It is believed only when solves on both sides of the root show the change;
- bisection of the solves themselves, down to a bracket of relative width 1e-4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fusionopt.critical import bracket_lambda_max
from fusionopt.errors import InvalidTypeError
from fusionopt.graph import Graph
from fusionopt.losses import SquaredDistance
from fusionopt.methods import Interrupt, Monitor, open_session
from fusionopt.penalties import L2Norm
from fusionopt.problem import FusionProblem
from fusionopt.recovery import solve_restricted
from fusionopt.settings import AdmmSettings
from fusionopt.tree import Event, changes, find_events

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_EPS = float(np.finfo(np.float64).eps)
_WIDTH = 1e-4
"""Relative width at which bisection ends."""
_SIDES = (1e-6, 2e-5)
"""Relative distances from a root at which solves must show the change."""
_SAME = {"closed form": 8 * _EPS, "flow": 1e-9}
"""Relative distance within which two located events share a lam."""
_FEW_GROUPS = 6
"""Groups up to which a merger on a complete graph is sought from above instead of by halves."""
_TIED = 1e-3
"""Relative width at which several changes are taken for one moment."""
_SHARP = 1e-12
"""Relative tolerance of a root."""
_MANY_PARTS = 400
"""A block of more parts than this is first divided by bisection."""


@dataclass(frozen=True, eq=False)
class Point:
    """A lam whose partition is known."""

    lam: float
    labels: IntArray
    x: FloatArray | None
    proven: bool


Solve = Callable[[float, FloatArray | None], Point]


def locate_events(problem: FusionProblem, low: Point, high: Point, solve: Solve) -> list[Event]:
    """Every event seen between two lams, in ascending order.

    Parameters
    ----------
    problem : FusionProblem
        Its lam is not used.
    low, high : Point
        Neighbouring lams of a path.
    solve : callable
        (lam, start) -> Point, the same for the same arguments.

    Returns
    -------
    list of Event

    Notes
    -----
    A cluster that forms and breaks again between two lams at which the partition is the same is not seen.
    """
    if np.array_equal(low.labels, high.labels):
        return []
    unit = agglomeration_unit(problem)
    if unit is not None and not any(change.kind == "split" for change in changes(low.labels, high.labels)):
        return _agglomerate(problem, unit, low, high)
    out: list[Event] = []
    waiting = [(low, high)]
    while waiting:
        below, above = waiting.pop()
        if np.array_equal(below.labels, above.labels):
            continue
        found = _by_flow(problem, below, above, solve)
        if found is not None:
            events, left, right = found
            out += events
            waiting += [(right, above), (below, left)]
        elif above.lam - below.lam <= _WIDTH * above.lam:
            ends = np.array([below.lam, above.lam])
            sure = [below.proven, above.proven]
            out += find_events(ends, [below.labels, above.labels], below.labels, "bisection", sure)
        else:
            # From zero the scale of the next event is unknown: halving finds it. Else the middle in ratio.
            ratio = below.lam / above.lam
            middle = above.lam * (0.5 if ratio < 0.1 else float(np.sqrt(ratio)))
            between = solve(middle, below.x)
            waiting += [(between, above), (below, between)]
    return share_heights(out)


def share_heights(events: list[Event]) -> list[Event]:
    """Ascending, with one lam for located events of a kind that cannot be told apart."""
    events = sorted(events, key=lambda event: (event.lam, len(event.members)))
    out: list[Event] = []
    for event in events:
        if out and out[-1].kind == event.kind and event.located and out[-1].located:
            before = out[-1]
            if event.lam <= before.lam * (1.0 + _SAME[event.how]):
                event = event.at(before.lam)
        out.append(event)
    return out


# -- the flow between parts


def _by_flow(
    problem: FusionProblem, low: Point, high: Point, solve: Solve
) -> tuple[list[Event], Point, Point] | None:
    """(events at the first root, the points beside it), or None where no root is found or it is not confirmed."""
    blocks = _blocks(low.labels, high.labels)
    if len(blocks) > 1 and high.lam - low.lam > _TIED * high.lam:
        return None  # with another change in between the rest of the partition is not known: bisection parts them
    roots = [root for block in blocks if (root := _root(problem, low, high, block))]
    if not roots:
        return None
    for side in _SIDES:
        left, right = min(roots) * (1.0 - side), min(roots) * (1.0 + side)
        before = solve(left, low.x) if left > low.lam else low
        after = solve(right, high.x) if right < high.lam else high
        if after.lam - before.lam > _WIDTH * after.lam:
            return None
        if not np.array_equal(before.labels, after.labels):
            return _told_apart(problem, before, after), before, after
    return None


def _told_apart(problem: FusionProblem, before: Point, after: Point) -> list[Event]:
    """Every change between two close points: at its own root where it has one."""
    sure = before.proven and after.proven
    at = {}
    for block in _blocks(before.labels, after.labels):
        root = _root(problem, before, after, block)
        if root is not None:
            at[int(block[0][0])] = root
    return [
        Event(
            change.kind,
            at.get(int(change.members[0]), after.lam),
            (before.lam, after.lam),
            change.members,
            "flow" if int(change.members[0]) in at else "bisection",
            sure,
        )
        for change in changes(before.labels, after.labels)
    ]


def _blocks(low: IntArray, high: IntArray) -> list[tuple[IntArray, IntArray]]:
    """(members, part of each member) of every set that is one cluster on one side and several on the other."""
    out = []
    for whole, parts in ((high, low), (low, high)):
        for members in [change.members for change in changes(parts, whole) if change.kind == "merge"]:
            # Its parts must lie inside it, or something else changed too.
            if len(members) == np.isin(parts, np.unique(parts[members])).sum():
                out.append((members, parts[members]))
    return out


def _root(problem: FusionProblem, low: Point, high: Point, block: tuple[IntArray, IntArray]) -> float | None:
    """lam where the least flow between the parts of a block equals lam, the rest as it is at `low`."""
    members, part = block
    names, part = np.unique(part, return_inverse=True)
    if len(names) > _MANY_PARTS:
        return None
    labels = low.labels.copy()
    labels[members] = labels[members[0]]
    inside = _between(problem.graph, members, part, len(names))
    if inside is None:
        return None
    edges, weights = inside
    start = None if low.x is None else _first_rows(low.x, labels)

    def excess(lam: float) -> float:
        nonlocal start
        solution = solve_restricted(problem.with_lam(lam), labels, start)
        start = solution.centers
        x = solution.centers[solution.labels]
        return _least_flow(problem.with_lam(lam), labels, x, members, part, edges, weights) - lam

    try:
        at_low, at_high = excess(low.lam), excess(high.lam)
        if not at_low * at_high < 0:
            return None
        root = brentq(excess, low.lam, high.lam, xtol=_SHARP * high.lam, rtol=_SHARP)
    except InvalidTypeError:  # a loss or penalty without a restricted solver: bisection is left
        return None
    return float(root)


def _first_rows(x: FloatArray, labels: IntArray) -> FloatArray:
    """The row of x at the first node of each cluster, in the order of these nodes."""
    return x[np.sort(np.unique(labels, return_index=True)[1])]


def _least_flow(
    problem: FusionProblem,
    labels: IntArray,
    x: FloatArray,
    members: IntArray,
    part: IntArray,
    edges: IntArray,
    weights: FloatArray,
) -> float:
    """min over flows q between rigid parts of max ||q|| / weight, at a point constant on `labels`."""
    demand = -problem.loss.gradient(x)[members] - _outside_pull(problem, labels, x, members)
    sums = np.zeros((int(part.max()) + 1, problem.n_features))
    np.add.at(sums, part, demand)
    sums -= sums.mean(axis=0)  # zero but for rounding
    if len(edges) == 1:
        return float(np.linalg.norm(sums[0]) / weights[0])
    quotient = FusionProblem(SquaredDistance(sums), Graph.from_edges(len(sums), edges, weights))
    low, high = bracket_lambda_max(quotient)
    return 0.5 * (low + high)


def _outside_pull(problem: FusionProblem, labels: IntArray, x: FloatArray, members: IntArray) -> FloatArray:
    """lam sum_j w_ij (x_i - x_j) / ||x_i - x_j|| over the neighbours j in other clusters, for each member i."""
    graph, lam = problem.graph, problem.lam
    own = np.zeros(graph.n_nodes, dtype=np.bool_)
    own[members] = True
    out = np.zeros_like(x)
    if graph.is_complete:
        r = np.ones(graph.n_nodes) if graph.node_weights is None else graph.node_weights
        names, first = np.unique(labels, return_index=True)
        mass = np.bincount(np.searchsorted(names, labels), r)
        inside = names == labels[members[0]]
        direction = x[members[0]] - x[first]
        length = np.linalg.norm(direction, axis=1)
        keep = ~inside & (length > 0)
        pull = (mass[keep, None] * direction[keep] / length[keep, None]).sum(axis=0)
        return np.asarray(lam * graph.weight * r[members, None] * pull)
    i, j = graph.edges.T
    crossing = own[i] != own[j]
    i, j, w = i[crossing], j[crossing], graph.weights[crossing]
    direction = x[i] - x[j]
    length = np.linalg.norm(direction, axis=1, keepdims=True)
    pull = w[:, None] * np.divide(direction, length, out=np.zeros_like(direction), where=length > 0)
    np.add.at(out, i, pull)
    np.add.at(out, j, -pull)
    return np.asarray(lam * out[members])


def _between(
    graph: Graph, members: IntArray, part: IntArray, n_parts: int
) -> tuple[IntArray, FloatArray] | None:
    """Edges between the parts, with summed weights; None where they do not connect them."""
    if graph.is_complete:
        r = np.ones(graph.n_nodes) if graph.node_weights is None else graph.node_weights
        mass = _sums(part, r[members], n_parts)
        if not (mass > 0).all():
            return None
        i, j = np.triu_indices(n_parts, 1)
        return np.stack([i, j], axis=1), graph.weight * mass[i] * mass[j]
    of = np.full(graph.n_nodes, -1, dtype=np.int64)
    of[members] = part
    ends = of[graph.edges]
    keep = (ends >= 0).all(axis=1) & (ends[:, 0] != ends[:, 1])
    ends, weights = np.sort(ends[keep], axis=1), graph.weights[keep]
    pairs, place = np.unique(ends, axis=0, return_inverse=True)
    sums = _sums(place.ravel(), weights, len(pairs))
    if len(pairs) == 0 or Graph.from_edges(n_parts, pairs, sums).n_components > 1:
        return None
    return pairs, sums


def _sums(places: IntArray, values: FloatArray, n: int) -> FloatArray:
    return np.asarray(np.bincount(places, values, minlength=n), dtype=np.float64)


# -- equal weights on a complete graph


def agglomeration_unit(problem: FusionProblem) -> float | None:
    """s / W where clusters only ever merge: squared distances of one weight s, complete graph of one weight W."""
    loss, graph = problem.loss, problem.graph
    if not (isinstance(loss, SquaredDistance) and isinstance(problem.penalty, L2Norm) and graph.is_complete):
        return None
    weight = loss.sample_weight
    if (
        graph.node_weights is not None
        or not (weight == weight[0]).all()
        or not np.isfinite(loss.targets).all()
    ):
        return None
    return float(weight[0]) / graph.weight if graph.weight > 0 else None


def _agglomerate(problem: FusionProblem, unit: float, low: Point, high: Point) -> list[Event]:
    loss = problem.loss
    assert isinstance(loss, SquaredDistance)
    out: list[Event] = []
    for change in changes(low.labels, high.labels):
        members = change.members
        names, part = np.unique(low.labels[members], return_inverse=True)
        sizes = np.bincount(part).astype(np.float64)
        # Means around one row: no digits are lost to an offset.
        anchor = loss.targets[members[0]]
        means = np.zeros((len(names), problem.n_features))
        np.add.at(means, part, loss.targets[members] - anchor)
        means /= sizes[:, None]
        for height, width, together in _tree_of(means, sizes, unit, low.lam, high.lam):
            inside = members[np.isin(part, together)]
            out.append(Event("merge", height, (height * (1.0 - width), height), inside, "closed form", True))
    return sorted(out, key=lambda event: (event.lam, len(event.members)))


def _tree_of(
    means: FloatArray, sizes: FloatArray, unit: float, low: float, high: float
) -> list[tuple[float, float, IntArray]]:
    """(height, relative width of its bracket, parts) of every merger of parts that ends in one cluster.

    The parts are alone: rows outside do not matter (theory of agglomeration), so a problem over them will do.
    """
    if means.shape[1] == 1:
        return _line_tree(means[:, 0], sizes, unit)
    out = []
    # Each job: some of the parts, already grouped, which are one cluster at `high` and those groups at `low`.
    waiting = [(np.arange(len(sizes)), np.arange(len(sizes)), low, high)]
    while waiting:
        parts, group, low, high = waiting.pop()
        mean, size = _pooled(means[parts], sizes[parts], group)
        if len(size) == 2:
            height = unit * float(np.linalg.norm(mean[0] - mean[1]) / size.sum())
            out.append((height, 8 * _EPS, parts))
            continue
        alone = FusionProblem(
            SquaredDistance(mean, sample_weight=unit * size), Graph.complete(len(size), node_weights=size)
        )
        while len(size) > _FEW_GROUPS and high > 1.01 * low:
            # Many groups: solves in the middle part them into smaller jobs.
            middle = 0.5 * high if low < 0.1 * high else float(np.sqrt(low * high))
            coarse = _partition(alone, middle)
            if coarse.max() == 0:
                high = middle
            elif coarse.max() == len(size) - 1:
                low = middle
            else:
                waiting.append((parts, coarse[group], middle, high))
                waiting += _inner_jobs(parts, group, coarse, low, middle)
                break
        else:
            first, last = bracket_lambda_max(alone)
            coarse, below = _just_below(alone, first)
            mean, size = _pooled(mean, size, coarse)
            if len(size) == 2:
                height = unit * float(np.linalg.norm(mean[0] - mean[1]) / size.sum())
                out.append((height, 8 * _EPS, parts))
            else:
                out.append((last, max((last - first) / last, 8 * _EPS), parts))
            waiting += _inner_jobs(parts, group, coarse, low, below)
    return out


def _inner_jobs(
    parts: IntArray, group: IntArray, coarse: IntArray, low: float, high: float
) -> list[tuple[IntArray, IntArray, float, float]]:
    """A job for each coarse group of several groups."""
    jobs = []
    for k in range(int(coarse.max()) + 1):
        inside = coarse[group] == k
        names, inner = np.unique(group[inside], return_inverse=True)
        if len(names) > 1:
            jobs.append((parts[inside], inner, low, high))
    return jobs


def _partition(problem: FusionProblem, lam: float) -> IntArray:
    settings = AdmmSettings()
    session = open_session(problem.with_lam(lam), settings, None)
    return session.run(Monitor(settings, Interrupt())).labels


def _just_below(problem: FusionProblem, top: float) -> tuple[IntArray, float]:
    """The partition just before everything is one, and a lam where it holds."""
    for side in (1e-8, 1e-7, 1e-6, 1e-5, 1e-4):
        lam = top * (1.0 - side)
        labels = _partition(problem, lam)
        if labels.max() > 0:
            return labels, lam
    return np.arange(problem.n_nodes), lam


def _pooled(means: FloatArray, sizes: FloatArray, groups: IntArray) -> tuple[FloatArray, FloatArray]:
    total = _sums(groups, sizes, int(groups.max()) + 1)
    out = np.zeros((len(total), means.shape[1]))
    np.add.at(out, groups, sizes[:, None] * means)
    return out / total[:, None], total


def _line_tree(values: FloatArray, sizes: FloatArray, unit: float) -> list[tuple[float, float, IntArray]]:
    """One feature: neighbours on the line meet at unit (b - a) / (p + q), the nearest meeting first."""
    order = np.argsort(values, kind="stable")
    n = len(order)
    mean, size = values[order].copy(), sizes[order].copy()
    noise = 8 * _EPS * unit * float(np.abs(values).max()) / float(sizes.min())
    following, preceding = np.arange(1, n + 1), np.arange(-1, n - 1)
    alive, inside = np.ones(n, dtype=np.bool_), [[int(k)] for k in order]
    meeting = unit * np.diff(mean) / (size[:-1] + size[1:])
    meeting = np.append(meeting, np.inf)
    out: list[tuple[float, float, IntArray]] = []
    tied: list[tuple[float, int]] = []
    now = -np.inf

    def flush() -> None:
        # Mergers at one height, to rounding, are one event for each cluster that they leave.
        if tied:
            for k in dict.fromkeys(_alive(alive, preceding, k) for _, k in tied):
                out.append((tied[0][0], 8 * _EPS, np.array(inside[k])))
            tied.clear()

    for _ in range(n - 1):
        k = int(np.argmin(meeting))
        height = max(float(meeting[k]), 0.0)
        if height > now + noise:
            flush()
            now = height
        other = int(following[k])
        total = size[k] + size[other]
        mean[k] += (mean[other] - mean[k]) * (size[other] / total)
        size[k] = total
        inside[k] += inside[other]
        alive[other] = False
        preceding[other] = k
        following[k] = following[other]
        meeting[other] = np.inf
        tied.append((now, k))
        last = int(following[k])
        meeting[k] = np.inf if last >= n else unit * (mean[last] - mean[k]) / (total + size[last])
        if last < n:
            preceding[last] = k
        first = int(preceding[k])
        if first >= 0:
            meeting[first] = unit * (mean[k] - mean[first]) / (total + size[first])
    flush()
    return out


def _alive(alive: NDArray[np.bool_], preceding: IntArray, k: int) -> int:
    while not alive[k]:
        k = int(preceding[k])
    return k
