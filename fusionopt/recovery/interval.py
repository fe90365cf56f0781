"""For which lam is a partition that of the exact solution?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.clusters import first_appearance
from fusionopt.problem import FusionProblem
from fusionopt.recovery._coupling import tally
from fusionopt.recovery._model import build_model, check_problem
from fusionopt.recovery._nodes import BEYOND, lengths
from fusionopt.recovery._regions import Region
from fusionopt.recovery._repair import potential_bounds, repaired
from fusionopt.recovery.certify import Certification, certified, certify
from fusionopt.recovery.flow import connected, min_flow, node_demand, regions
from fusionopt.recovery.restricted import solve_scaled
from fusionopt.recovery.theorems import is_uniform, theorems_at

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

TOLERANCE = 1e-4
"""Relative distance of an end to a lam that is not certified."""
SCAN = 32
"""Values of lam that are scanned when none are given."""
_DEEPEST = 1e-6
"""Smallest scanned lam, relative to the largest."""
_EXTREME = 1e250
"""No lam beyond this, or below its inverse, is looked at."""
_TOUCHES = 8
"""Steps that look for a certified lam between scanned ones, at each near miss."""
_NEAR = 0.25
"""A near miss: the least flow is at most this share above lam."""
_FLOW_TOLERANCE = 3e-3


@dataclass(frozen=True, eq=False)
class RecoveryInterval:
    """What `recovery_interval` found, in the canonical scale of lam.

    Attributes
    ----------
    exact : list of (low, high)
        Ascending. At both ends and at every scanned lam between them the partition is certified to be that of the
        exact solution; an end is within ``tolerance`` (relative) of a lam that is not certified, or is the end of
        the scan. low = 0.0 where it holds at lam = 0, high = inf where it holds from there on.
    guaranteed : (low, high) or None
        Where the printed conditions (6) and (13) both hold; None where no scanned lam meets both, and on graphs
        that the theorems are not about.
    theorem1_from, theorem2_to : float
        The smallest lam that meets (6) and the largest that meets (13), to the same tolerance; NaN as above.
    lams : float64 (L,)
        Every lam that was looked at, ascending.
    certified : bool (L,)
    margins : float64 (L,)
        Of the certification: 1 - least flow / lam where flows decide, -inf where centres have met.
    resolution : float
        Largest ratio between neighbouring scanned lams: an interval narrower than this may have been missed.
    tolerance : float
    """

    exact: list[tuple[float, float]]
    guaranteed: tuple[float, float] | None
    theorem1_from: float
    theorem2_to: float
    lams: FloatArray
    certified: BoolArray
    margins: FloatArray
    resolution: float
    tolerance: float


class _Point(NamedTuple):
    lam: float
    holds: bool
    margin: float
    theorem1: bool
    theorem2: bool


class _Scan:
    """One partition at many lams; each solve starts from the centres of the nearest lam before it."""

    def __init__(self, problem: FusionProblem, names: IntArray) -> None:
        self.problem, self.names = problem, names
        self.uniform = is_uniform(problem)
        self.points: dict[float, _Point] = {}
        self._centers: dict[float, FloatArray] = {}
        self._zero = np.zeros((problem.graph.n_edges, problem.n_features))

    def at(self, lam: float) -> _Point:
        """Look at one lam, once."""
        if lam not in self.points:
            told = self._certified(lam)
            first = second = False
            if self.uniform:
                bounds = theorems_at(self.problem, told.labels, told.centers)
                first, second = lam >= bounds[0], lam < bounds[1]
            self.points[lam] = _Point(lam, told.holds, told.margin, first, second)
        return self.points[lam]

    def _certified(self, lam: float) -> Certification:
        model = build_model(self.problem.with_lam(lam), self.names)
        start = None
        if self._centers and lam > 0:
            near = min(self._centers, key=lambda known: abs(np.log(known / lam)))
            start = model.from_centers(self._centers[near])
        told, solution = certified(model, self._zero, start)
        if solution.separated and lam > 0:
            self._centers[lam] = told.centers
        return told

    def boundary(self, inside: float, outside: float, test: Callable[[_Point], bool]) -> float:
        """The last lam that passes the test on the way from `inside`, which does, to `outside`, which does not."""
        while abs(inside - outside) > TOLERANCE * max(inside, outside):
            middle = (
                0.5 * (inside + outside) if min(inside, outside) == 0 else float(np.sqrt(inside * outside))
            )
            if test(self.at(middle)):
                inside = middle
            else:
                outside = middle
        return inside

    def widen(self, whole: bool) -> None:
        """Go on by decades from an end of the scan that is certified: weights of many magnitudes mislead its choice."""
        if not whole:
            lam = max(self.points)
            while self.at(lam).holds and lam < _EXTREME:
                lam *= 10.0
        lam = min(self.points)
        while lam > 1.0 / _EXTREME and self.at(lam).holds:
            lam *= 0.1

    def look_between(self, lams: Sequence[float]) -> None:
        """Golden sections towards near misses: local maxima of a negative margin."""
        ratio = 0.5 * (np.sqrt(5.0) - 1.0)
        points = [self.at(lam) for lam in lams]
        for before, here, after in zip(points, points[1:], points[2:], strict=False):
            held = before.holds or here.holds or after.holds
            if held or not here.margin >= max(before.margin, after.margin, -_NEAR) or before.lam == 0:
                continue
            low, high = np.log(before.lam), np.log(after.lam)
            left, right = high - ratio * (high - low), low + ratio * (high - low)
            for _ in range(_TOUCHES):
                first, second = (self.at(float(np.exp(place))) for place in (left, right))
                if first.holds or second.holds:
                    break
                if first.margin >= second.margin:
                    high, right = right, left
                    left = high - ratio * (high - low)
                else:
                    low, left = left, right
                    right = low + ratio * (high - low)


def recovery_interval(
    problem: FusionProblem, labels: ArrayLike, lams: ArrayLike | None = None
) -> RecoveryInterval:
    """The lams at which a partition is certified to be that of the exact solution.

    Parameters
    ----------
    problem : FusionProblem
        `L2Norm`, any loss and graph that `certify` takes; its lam is not read.
    labels : array-like (m,)
        The partition, any labels.
    lams : array-like (L,) > 0, or None
        Scanned values. None: 32 values evenly spaced in log lam, from a quarter of the least flow that the clusters
        need at lam = 0 up to a lam that fuses every component; lam = 0 too where no cluster needs a flow.

    Returns
    -------
    RecoveryInterval

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong shape, a lam that is not positive, another penalty.

    Notes
    -----
    The set of these lams need not be an interval: for losses with different Hessians clusters may split again as lam
    grows. Certified is each lam that was looked at, not what lies between; between scanned lams whose flows nearly
    fit, golden sections look for a touch. About 60 restricted problems and flow tests.

    References
    ----------
    Exact form of Theorems 1 and 2 of Armacki et al.; docs/recovery.md.

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance
    >>> found = recovery_interval(FusionProblem(SquaredDistance([0.0, 1.0, 7.0, 8.0])), [0, 0, 1, 1])
    >>> [(round(low, 3), round(high, 3)) for low, high in found.exact]
    [(0.5, 1.75)]
    >>> [round(end, 3) for end in found.guaranteed]
    [0.5, 1.75]
    """
    check_problem(problem)
    names = first_appearance(_checks.as_labels("labels", labels, problem.n_nodes))
    scan = _Scan(problem, names)
    given = _default_lams(problem, names) if lams is None else _checked_lams(lams)
    for lam in given.tolist()[::-1]:  # from the largest: its centres are closest to a common start
        scan.at(lam)
    scan.look_between(given.tolist())
    whole = bool(np.array_equal(names, problem.graph.component_labels))
    if lams is None:
        scan.widen(whole)
    known = sorted(scan.points)
    exact = _runs(scan, known, lambda point: point.holds)
    if exact and exact[-1][1] == known[-1] and whole:
        # No edge leaves a cluster, so its flow does not change with lam any more.
        exact[-1] = (exact[-1][0], np.inf)
    guaranteed, first, last = None, np.nan, np.nan
    if scan.uniform:
        lower = _runs(scan, known, lambda point: point.theorem1)
        upper = _runs(scan, known, lambda point: point.theorem2)
        first = lower[0][0] if lower else np.inf
        last = upper[-1][1] if upper else 0.0
        both = _runs(scan, known, lambda point: point.theorem1 and point.theorem2)
        guaranteed = max(both, key=lambda run: run[1] - run[0], default=None)
        if guaranteed is not None and exact and exact[-1][1] == np.inf and guaranteed[1] == known[-1]:
            guaranteed = (guaranteed[0], np.inf)
    final = [scan.points[lam] for lam in sorted(scan.points)]
    positive = given[given > 0]
    return RecoveryInterval(
        exact=exact,
        guaranteed=guaranteed,
        theorem1_from=first,
        theorem2_to=last,
        lams=np.array([point.lam for point in final]),
        certified=np.array([point.holds for point in final]),
        margins=np.array([point.margin for point in final]),
        resolution=float((positive[1:] / positive[:-1]).max(initial=1.0)),
        tolerance=TOLERANCE,
    )


def _checked_lams(lams: object) -> FloatArray:
    values = np.unique(_checks.as_vector("lams", lams))
    if len(values) == 0:
        _checks.refuse(
            "lams is empty; give one value or more.", argument="lams", got=[], wanted="positive values"
        )
    if values[0] <= 0:
        _checks.refuse(
            f"lams has {float(values[0]):g}; give positive values.",
            argument="lams",
            got=float(values[0]),
            wanted="> 0",
        )
    return values


def _default_lams(problem: FusionProblem, names: IntArray) -> FloatArray:
    zero = np.zeros((problem.graph.n_edges, problem.n_features))
    decoupled = problem.with_lam(0.0)
    top = min_flow(decoupled, problem.graph.component_labels, duals=zero).value
    if not (np.isfinite(top) and top > 0):
        top = 1.0  # nothing to fuse: every lam is as good as another
    need = float(min_flow(decoupled, names, duals=zero).lower_values.max())
    lowest = _least_demand(decoupled, names)
    bottom = float(np.clip(0.25 * max(need, lowest), _DEEPEST * top, 0.1 * top))
    grid = np.geomspace(bottom, 1.25 * top, SCAN)
    return np.concatenate([[0.0], grid]) if max(need, lowest) == 0 else grid


def _least_demand(problem: FusionProblem, names: IntArray) -> float:
    """A lower bound of the flow at lam = 0 from single nodes: what leaves a node over the weight that leaves it."""
    model = build_model(problem, names)
    demand = node_demand(model, solve_scaled(model).y)
    least = 0.0
    for region in regions(model):
        ends = np.searchsorted(region.nodes, region.edges).ravel()
        degrees = tally(ends, np.repeat(region.weights, 2), len(region.nodes))
        least = max(least, float((lengths(demand[region.nodes]) / degrees).max()))
    return least * model.flow_unit


def _runs(scan: _Scan, known: list[float], test: Callable[[_Point], bool]) -> list[tuple[float, float]]:
    """Maximal runs of the known lams that pass, their ends refined."""
    passed = [test(scan.points[lam]) for lam in known]
    runs, start = [], None
    for place, good in enumerate([*passed, False]):
        if good and start is None:
            start = place
        elif not good and start is not None:
            low, high = known[start], known[place - 1]
            if start > 0:
                low = scan.boundary(low, known[start - 1], test)
            if place < len(known):
                high = scan.boundary(high, known[place], test)
            runs.append((low, high))
            start = None
    return runs


class FlowCurve(NamedTuple):
    """Bounds of the least largest flow of a partition at several lams; lam where they meet it is the diagonal."""

    lams: FloatArray
    lower: FloatArray
    upper: FloatArray
    """inf where a cluster is not connected by inside edges, NaN where the restricted centres have met."""


@BEYOND
def flow_curve(problem: FusionProblem, labels: ArrayLike, lams: ArrayLike | Iterable[float]) -> FlowCurve:
    """The least flow that the clusters need, as a function of lam, within some thousandths.

    Parameters
    ----------
    problem : FusionProblem
    labels : array-like (m,)
    lams : iterable of float > 0

    Returns
    -------
    FlowCurve
        The partition can be that of a solution only where lower <= lam, and is where upper <= lam.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        As in `min_flow`.
    """
    names = first_appearance(_checks.as_labels("labels", labels, problem.n_nodes))
    grid = _checked_lams(list(lams) if isinstance(lams, Iterable) else lams)
    lower, upper = np.full(len(grid), np.nan), np.full(len(grid), np.nan)
    before: list[tuple[FloatArray, float, float]] = []
    for place, lam in enumerate(grid.tolist()):
        model = build_model(problem.with_lam(lam), names)
        solution = solve_scaled(model)
        if not solution.separated and len(model.sizes) > 1:
            continue
        demand, unit = node_demand(model, solution.y), model.flow_unit
        bounds, kept = [(0.0, 0.0)], []
        for index, region in enumerate(regions(model)):
            wanted = demand[region.nodes]
            low = high = np.nan
            if index < len(before) and np.allclose(wanted * unit, before[index][0], rtol=1e-9, atol=0.0):
                low, high = before[index][1:]  # equal Hessians: the flow does not depend on lam
            else:
                low, high = (value * unit for value in _least_flow(region, wanted))
            kept.append((wanted * unit, low, high))
            bounds.append((low, high))
        before = kept
        lower[place], upper[place] = (max(values) for values in zip(*bounds, strict=True))
        if not connected(model).all():
            upper[place] = np.inf
    return FlowCurve(grid, lower, upper)


def _least_flow(region: Region, demand: FloatArray) -> tuple[float, float]:
    """Bounds on the least largest flow of the region's clusters together."""
    flow = np.zeros((region.n_edges, demand.shape[1]))
    region.correct(flow, demand)
    high = float(region.ratios(flow).max(initial=0.0))
    low = float(potential_bounds(region, demand, region.potentials(demand)).max(initial=0.0))
    for _ in range(8):
        if high <= low * (1.0 + _FLOW_TOLERANCE) or high == 0:
            break
        target = low + 0.3 * (high - low)
        found = repaired(region, demand, flow.copy(), target)
        reached = float(found.ratios.max())
        low = max(low, float(potential_bounds(region, demand, found.potentials).max()))
        if reached < high:
            high, flow = reached, found.flow
        elif low < target:
            break
    return min(low, high), high


class _Solved(Protocol):
    """What is read of a `Result`."""

    problem: FusionProblem
    labels: IntArray

    @property
    def has_duals(self) -> bool: ...

    def edge_duals(self) -> FloatArray: ...


class _Path(Protocol):
    """What is read of a `PathResult`."""

    @property
    def results(self) -> Sequence[Any]: ...


class PathProof(NamedTuple):
    """One lam of `path_proofs`."""

    lam: float
    proved: bool
    """The exact solution at this lam has exactly the partition of the result."""
    margin: float
    n_clusters: int


def path_proofs(path: _Path) -> list[PathProof]:
    """Which lams of a path carry a proof that their partition is exact.

    Parameters
    ----------
    path : PathResult, or anything with ``results``
        Each with ``problem``, ``labels``, ``has_duals`` and ``edge_duals()``. Without duals flows are looked for
        from zero.

    Returns
    -------
    list of PathProof, in the order of the results

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        As in `certify`.
    """
    if not hasattr(path, "results"):
        _checks.refuse_type(
            f"path is a {type(path).__name__}; give a PathResult, from solution_path.",
            argument="path",
            got=type(path).__name__,
            wanted="a PathResult",
        )
    proofs = []
    for result in path.results:
        solved: _Solved = result
        problem = solved.problem
        shape = (problem.graph.n_edges, problem.n_features)
        duals = solved.edge_duals() if solved.has_duals else np.zeros(shape)
        told = certify(problem, solved.labels, duals=duals)
        proofs.append(PathProof(float(problem.lam), told.holds, told.margin, len(told.fused)))
    return proofs
