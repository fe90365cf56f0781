"""Proof that a partition is that of the exact solution: the flow test with its error bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.problem import FusionProblem
from fusionopt.recovery._coupling import tally
from fusionopt.recovery._model import ClusterModel, build_model
from fusionopt.recovery._nodes import BEYOND, EPS, QuadraticNodes, as_matrices, lengths, traces
from fusionopt.recovery._regions import Clique, Patch, Region
from fusionopt.recovery._repair import FoundFlow, potential_bounds
from fusionopt.recovery.flow import (
    check_duals,
    connected,
    find_flow,
    graph_divergence,
    node_demand,
    regions,
)
from fusionopt.recovery.restricted import ScaledSolution, solve_scaled

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_TIE = 1e-9
"""No tie is accepted further than this, relative to the ball, beyond the limit."""


_UNKNOWN = 1e200
"""Stands for an infinite error in sums, where inf - inf would be NaN; gradients are scaled to about one."""


@dataclass(frozen=True, eq=False)
class Certification:
    """What `certify` proved.

    Attributes
    ----------
    holds : bool
        The exact solution has exactly these clusters (a proof up to rounding; see `margin`).
    refuted : bool
        It has not: in some cluster that the restricted optimum is known for, no flow is short enough.
    margin : float
        The least of: over the clusters, 1 - max_e (||q_e|| + error_e) / (lam w_e); over the pairs that must
        be apart, (distance - error) / (distance + error). Positive: proved with every rounding error
        counted. A tie within rounding (lam equal to the least flow) counts as fused and has a margin of
        about -1e-16. 1.0 where there is nothing to prove; -inf where a cluster is not connected by inside
        edges or no error bound exists.
    fused : bool (K,)
        Cluster k stays together in the restricted solution.
    undecided : tuple of tuples
        (k,) for each cluster that is neither proved fused nor refuted, (k, l) for each pair that is not
        proved apart.
    labels : int64 (m,)
        The partition, in first-appearance order: cluster k is where labels == k.
    centers : float64 (K, d)
        Centres of the restricted optimum.
    radii : float64 (K,)
        How far the exact centres can be from these.
    """

    holds: bool
    refuted: bool
    margin: float
    fused: BoolArray
    undecided: tuple[tuple[int, ...], ...]
    labels: IntArray
    centers: FloatArray
    radii: FloatArray

    @cached_property
    def apart(self) -> BoolArray:
        """(K, K): whether clusters k and l have different centres or share no edge; built on first access.

        Pairs that are not proved apart are also listed in `undecided`, which costs no K x K array.
        """
        k = len(self.fused)
        table = np.ones((k, k), dtype=np.bool_)
        np.fill_diagonal(table, False)
        for item in self.undecided:
            if len(item) == 2:
                table[item[0], item[1]] = table[item[1], item[0]] = False
        return table


def certify(
    problem: FusionProblem,
    labels: ArrayLike,
    duals: ArrayLike | None = None,
    centers: ArrayLike | None = None,
) -> Certification:
    """Is the partition that of the exact solution?

    Solves the problem restricted to the partition, bounds how far its exact optimum w* can be from the
    point found (radii R_k), and looks for flows that stay feasible for every w* within these radii.

    Parameters
    ----------
    problem : FusionProblem
        `L2Norm`; quadratic losses, or losses whose curvature and rounding are known (all of `fusionopt.losses`
        but `CallableLoss`).
    labels : array-like (m,)
        The partition, any labels.
    duals : array-like (n_edges, d), or None
        Duals of a solution, rows in the order of ``graph.edges``; they need not be feasible. None: flows by
        CVXPY.
    centers : array-like (K, d), or None
        Where the restricted solve starts, clusters in the order of their first appearance. Saves time;
        nothing in the proof trusts them.

    Returns
    -------
    Certification
        Never wrong beyond rounding; may be undecided (a singular summed Hessian, a tie, rough duals).

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong shape, another loss or penalty.
    MissingDependencyError
        `duals` is None and CVXPY is not installed.

    Notes
    -----
    Clusters that share no edge need not be apart. Time O(E d) for each round of repair, none where the
    duals are good.

    References
    ----------
    Derivation and rounding: docs/certificates.md. For uniform weights and equal Hessians this is the test
    of Jiang and Vavasis (arXiv 2006.11355).

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance
    >>> problem = FusionProblem(SquaredDistance([0.0, 1.0, 10.0]), lam=1.0)
    >>> certify(problem, [0, 0, 1], duals=[[-0.5], [-1.0], [-1.0]]).holds
    True
    """
    model = build_model(problem, labels)
    given = check_duals(problem, duals)
    start = None
    if centers is not None:
        start = model.from_centers(_checks.as_point("centers", centers, (model.n_clusters, model.n_features)))
    elif given is not None and model.lam > 0:
        start = _centers_from_duals(model, given)
    return certified(model, given, start)[0]


@BEYOND
def certified(
    model: ClusterModel, given: FloatArray | None, start: FloatArray | None
) -> tuple[Certification, ScaledSolution]:
    """`certify` in the units of the model, with the restricted solution it rests on."""
    solution = solve_scaled(model, start)
    if model.lam > 0:
        fused, lost, margins = _decide(model, solution, given)
        close, apart_margin = model.coupling.pairs_below(solution.y, solution.radii)
    else:
        fused, lost, margins = _decide_decoupled(model, solution)
        close, apart_margin = _decoupled_pairs(model, solution)
    unproved: list[tuple[int, ...]] = [(int(k),) for k in np.flatnonzero(~fused & ~lost)]
    unproved += [(int(k), int(other)) for k, other in close]
    told = Certification(
        holds=bool(fused.all()) and len(close) == 0,
        refuted=bool(lost.any()),
        margin=min(float(margins.min()), apart_margin),
        fused=fused,
        undecided=tuple(unproved),
        labels=model.labels,
        centers=model.to_centers(solution.y),
        radii=solution.radii * model.step_unit,
    )
    return told, solution


def _centers_from_duals(model: ClusterModel, duals: FloatArray) -> FloatArray | None:
    """Minimisers of the clusters' quadratic losses plus <u, y>, u the divergence of the duals; None if not
    unique.
    """
    if not model.nodes.quadratic:
        return None
    start = np.zeros_like(model.shift)
    blocks = as_matrices(model.sums.hessians(start), model.n_features)
    outside = model.sum_clusters(graph_divergence(model, duals) / model.gradient_unit)
    pull = model.sums.gradients(start) + outside
    try:
        y = -np.asarray(np.linalg.solve(blocks, pull[:, :, None]), dtype=np.float64)[:, :, 0]
    except np.linalg.LinAlgError:
        return None
    return y if bool(np.isfinite(y).all()) else None


def _decide(
    model: ClusterModel, solution: ScaledSolution, duals: FloatArray | None
) -> tuple[BoolArray, BoolArray, FloatArray]:
    """Fused, refuted and margin of each cluster at lam > 0."""
    fused = connected(model)
    lost = np.zeros(model.n_clusters, dtype=np.bool_)
    margins = np.where(fused, 1.0, -np.inf)
    demand = node_demand(model, solution.y)
    errors = _NodeErrors(model, solution)
    for region in regions(model):
        wanted = demand[region.nodes]
        found = find_flow(model, region, wanted, duals)
        room, rounding = _margins(model, region, wanted, found, errors)
        names = region.clusters
        margins[names] = np.where(room > -np.sqrt(_UNKNOWN), room, -np.inf)
        # A flow that fills its ball exactly is a tie: it counts as fused as long as only rounding is in the
        # way.
        fused[names] = margins[names] >= -np.minimum(4.0 * rounding + 8.0 * EPS, _TIE)
        lost[names] = ~fused[names] & (
            _lower_bounds(region, wanted, found, errors) > (1.0 + _TIE) * model.lam
        )
    return fused, lost, margins


class _NodeErrors:
    """How far the demand at the restricted optimum can be from the demand computed at y, node by node.

    `drift` is the part that grows with the radii, `rounding` the rest; `floor` is what `drift` would be if
    the restricted problem were solved exactly. All are bounds on norms, (m,), after taking off the
    cluster's share.
    """

    def __init__(self, model: ClusterModel, solution: ScaledSolution) -> None:
        labels = model.labels
        z = solution.y[labels]
        own, terms = model.nodes.gradient_errors(z), model.nodes.gradient_sizes(z)
        if model.node_weights is not None:
            share = _shares(model)
            spread = _spread(model, solution, share)
            self.drift = _product(spread, solution.radii[labels])
            self.floor = _product(spread, solution.rounding_radii[labels])
        else:
            share = 1.0 / model.sizes[labels]
            spread = _spread(model, solution, share)
            turn, floor_turn, outside = _outside(model, solution)
            own, terms = own + outside, terms + outside / EPS
            mean = model.sum_clusters(np.stack([turn, floor_turn], axis=1))[labels] * share[:, None]
            self.drift = _product(spread, solution.radii[labels]) + turn + mean[:, 0]
            self.floor = _product(spread, solution.rounding_radii[labels]) + floor_turn + mean[:, 1]
        sums = model.sum_clusters(np.stack([own, terms], axis=1))[labels] * share[:, None]
        count = model.sizes[labels].astype(np.float64)
        self.rounding: FloatArray = own + sums[:, 0] + 4 * EPS * terms + (count + 4) * EPS * sums[:, 1]


def _product(spread: FloatArray, radii: FloatArray) -> FloatArray:
    """spread * radii with 0 * inf = inf: without a radius nothing is known."""
    product: FloatArray = np.where(
        np.isfinite(radii), spread * np.where(np.isfinite(radii), radii, 0.0), np.inf
    )
    return product


def _shares(model: ClusterModel) -> FloatArray:
    """r_l over the sum of r in the cluster; 0 in a cluster without weight."""
    assert model.node_weights is not None
    totals = model.sum_clusters(model.node_weights)[model.labels]
    return np.divide(model.node_weights, totals, out=np.zeros_like(totals), where=totals > 0)


def _spread(model: ClusterModel, solution: ScaledSolution, share: FloatArray) -> FloatArray:
    """(m,): Lipschitz constants of the demand around y: bounds on ||H_l - share_l sum_C H||.

    Where the Hessians change, any of them lies between the two matrices that hold on the ball around y.
    """
    labels, d = model.labels, model.n_features
    z = solution.y[labels]
    # Where no radius is known nothing is made of the constant.
    reach = np.where(np.isfinite(solution.radii), solution.radii, 0.0)[labels]
    errors = model.nodes.hessian_errors(z)
    errors = errors + share * model.sum_clusters(errors)[labels]
    low, high = model.nodes.within(z, reach)
    if not model.nodes.quadratic:
        # Between: the difference is at most that of the lower matrices plus what any of them can gain.
        gain = traces(high, d) - traces(low, d)
        errors = errors + gain + share * model.sum_clusters(gain)[labels]
    summed = model.sum_clusters(low)[labels]
    if low.ndim == 1:
        gap: FloatArray = np.abs(low - share * summed)
        return gap + errors
    difference = low - share[:, None, None] * summed
    bound: FloatArray = np.sqrt(np.einsum("iab,iab->i", difference, difference)) + errors
    return bound


def _outside(model: ClusterModel, solution: ScaledSolution) -> tuple[FloatArray, FloatArray, FloatArray]:
    """How far the pulls from other clusters can turn within the radii and within rounding, and their
    rounding, (m,).

    || a/||a|| - b/||b|| || <= 2 ||a - b|| / ||a||.
    """
    edges, labels = model.problem.graph.edges, model.labels
    ends = labels[edges]
    across = np.flatnonzero(ends[:, 0] != ends[:, 1])
    low, high = ends[across].T
    diff = solution.y[low] - solution.y[high]
    lengths = np.sqrt(np.einsum("ea,ea->e", diff, diff))
    strengths = model.lam * model.edge_weights[across]

    def collect(values: FloatArray) -> FloatArray:
        return tally(edges[across].T.ravel(), np.tile(values, 2), len(labels))

    def turn(radii: FloatArray) -> FloatArray:
        reach = radii[low] + radii[high]
        angle = np.full_like(lengths, np.inf)
        np.divide(2.0 * reach, lengths, out=angle, where=lengths > reach)
        return collect(_product(strengths, angle) if model.lam > 0 else strengths)

    degrees = np.bincount(edges[across].ravel(), minlength=len(labels))
    rounding = (degrees + model.n_features + 8) * EPS * collect(strengths)
    return turn(solution.radii), turn(solution.rounding_radii), rounding


def _margins(
    model: ClusterModel, region: Region, demand: FloatArray, found: FoundFlow, errors: _NodeErrors
) -> tuple[FloatArray, FloatArray]:
    """Margin of each cluster, and the part of its error that is pure rounding, relative to the balls."""
    flow, nodes = found.flow, region.nodes
    missing = demand - region.divergence(flow)
    left = np.sqrt(np.einsum("ia,ia->i", missing, missing))
    ratios = region.ratios(flow) / model.lam
    rounding = errors.rounding[nodes] + region.divergence_error(ratios * model.lam)
    bounds = np.fmin(left + rounding + errors.drift[nodes], _UNKNOWN)
    floors = np.fmin(rounding + errors.floor[nodes], _UNKNOWN)
    if isinstance(region, Clique):
        # The repair (r_j e_i - r_i e_j) / sum r over the ball lam common r_i r_j.
        ball = model.lam * region.common * region.total * region.r
        worst = region.largest_sum(ratios, bounds / ball)
        return np.array([1.0 - worst]), np.array([2.0 * float((floors / ball).max())])
    assert isinstance(region, Patch)
    balls = model.lam * region.weights
    loads = region.tree_loads(1.0 - ratios, np.stack([bounds, floors], axis=1))
    worst_of = region.cluster_max(ratios + loads[:, 0] / balls)
    return 1.0 - worst_of, region.cluster_max(loads[:, 1] / balls)


def _lower_bounds(region: Region, demand: FloatArray, found: FoundFlow, errors: _NodeErrors) -> FloatArray:
    """Lower bounds, for each cluster, on max ||q_e|| / w_e at the restricted optimum."""
    nodes = region.nodes
    doubt = np.fmin(errors.rounding[nodes] + errors.drift[nodes], _UNKNOWN)
    return potential_bounds(region, demand, found.potentials, doubt)


def _decide_decoupled(
    model: ClusterModel, solution: ScaledSolution
) -> tuple[BoolArray, BoolArray, FloatArray]:
    """At lam = 0: a cluster holds if its nodes share one function; a non-zero gradient refutes it."""
    labels, nodes = model.labels, model.nodes
    if isinstance(nodes, QuadraticNodes):
        first = model.order[model.starts[:-1]][labels]
        same = (nodes.linear == nodes.linear[first]).all(axis=1)
        blocks = nodes.blocks.reshape(len(labels), -1)
        same &= (blocks == blocks[first]).all(axis=1)
    else:
        same = model.sizes[labels] == 1
    settled = np.isfinite(solution.radii)
    fused = connected(model) & (model.sum_clusters((~same).astype(np.float64)) == 0) & settled
    z, reach = solution.y[labels], solution.radii[labels]
    pull = nodes.gradients(z)
    size = traces(nodes.within(z, np.where(np.isfinite(reach), reach, 0.0))[1], model.n_features)
    errors = _NodeErrors(model, solution)
    moved = lengths(pull) > errors.rounding + _product(size, reach)
    lost = model.sum_clusters((moved & (model.sizes[labels] > 1)).astype(np.float64)) > 0
    margins = np.where(fused, np.where(model.sizes > 1, 0.0, 1.0), -np.inf)
    return fused, lost & ~fused, margins


def _decoupled_pairs(model: ClusterModel, solution: ScaledSolution) -> tuple[IntArray, float]:
    """At lam = 0 every cluster has its own shift: compare the centres themselves, with their rounding."""
    centers = model.to_centers(solution.y) / model.step_unit
    reach = solution.radii + 4 * EPS * np.sqrt(np.square(centers).sum(axis=1))
    return model.coupling.pairs_below(centers, reach)
