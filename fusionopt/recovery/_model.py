"""A problem and a partition in the coordinates that the theory works in.

Around a shift c, constant on every part of the graph that the partition ties together, a quadratic loss is

    f_i(c + y) = const + <g_i, y> + 1/2 y'H_i y,      g_i = grad f_i(c),

so a large common offset of the data costs no digits. Gradients, Hessians and weights are divided by powers
of two near their largest entry, so no number here knows the units of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.clusters import components, first_appearance
from fusionopt.losses.base import NodeLoss, QuadraticNodeLoss
from fusionopt.losses.least_squares import LeastSquares
from fusionopt.losses.squared_distance import SquaredDistance
from fusionopt.penalties.l2_norm import L2Norm
from fusionopt.problem import FusionProblem
from fusionopt.recovery._coupling import Coupling, EdgeCoupling, ProductCoupling, tally
from fusionopt.recovery._nodes import (
    BEYOND,
    EPS,
    ClusterSums,
    NodeFunctions,
    QuadraticNodes,
    apply_blocks,
    lengths,
    traces,
)
from fusionopt.recovery._smooth import SmoothNodes, newton_minimisers

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClusterModel:
    """The scaled problem and one partition of its nodes into K clusters.

    In these units the objective is sum_i f_i(y_i) + lam sum_e w_e ||y_i - y_j||.
    """

    problem: FusionProblem
    loss: NodeLoss
    labels: IntArray
    sizes: IntArray
    order: IntArray
    starts: IntArray
    lam: float
    nodes: NodeFunctions
    """The f_i around the shift."""
    shift: FloatArray
    """c, (K, d): one row for each cluster, in the units of the data."""
    step_unit: float
    gradient_unit: float
    weight_unit: float
    node_weights: FloatArray | None
    """r of a complete graph, scaled; None for an edge list."""
    common_weight: float
    """w_ij = common_weight r_i r_j, scaled; NaN for an edge list."""
    edge_weights: FloatArray
    """w_e, scaled; empty for a complete graph."""
    coupling: Coupling
    """Pulls between the clusters, lam included."""

    @property
    def n_clusters(self) -> int:
        return len(self.sizes)

    @property
    def n_features(self) -> int:
        return int(self.shift.shape[1])

    @property
    def is_complete(self) -> bool:
        return self.node_weights is not None

    def members(self, k: int) -> IntArray:
        """Nodes of cluster k, ascending."""
        return self.order[self.starts[k] : self.starts[k + 1]]

    def sum_clusters(self, values: FloatArray) -> FloatArray:
        """Sums of the rows of `values` over the clusters."""
        sums: FloatArray = np.add.reduceat(values[self.order], self.starts[:-1], axis=0)
        return sums

    @cached_property
    def sums(self) -> ClusterSums:
        """The losses added up over the clusters."""
        return self.nodes.sums(self.labels, self.sizes, self.sum_clusters)

    def to_centers(self, y: FloatArray) -> FloatArray:
        """y (K, d) in the units of the data."""
        centers: FloatArray = self.shift + self.step_unit * y
        return centers

    def from_centers(self, centers: FloatArray) -> FloatArray:
        """Inverse of `to_centers`."""
        y: FloatArray = (centers - self.shift) / self.step_unit
        return y

    @property
    def value_unit(self) -> float:
        """Objective values here times this are in the units of the data."""
        return self.step_unit * self.gradient_unit

    @property
    def flow_unit(self) -> float:
        """Flow over weight here times this is in the units of lam."""
        return self.gradient_unit / self.weight_unit


def check_problem(problem: FusionProblem) -> NodeLoss:
    """The l2 penalty; anything else is refused with a sentence."""
    _checks.check_instance("problem", problem, FusionProblem, "built by FusionProblem(loss, graph, lam=...)")
    if not isinstance(problem.penalty, L2Norm):
        _checks.refuse(
            f"penalty is {type(problem.penalty).__name__}; recovery needs L2Norm.",
            argument="problem",
            got=type(problem.penalty).__name__,
            wanted="L2Norm",
        )
    return problem.loss


@BEYOND
def build_model(problem: FusionProblem, labels: ArrayLike) -> ClusterModel:
    """Check the arguments, shift and scale."""
    loss = check_problem(problem)
    names = first_appearance(_checks.as_labels("labels", labels, problem.n_nodes))
    order = np.argsort(names, kind="stable")
    sizes = np.bincount(names)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
    graph, k = problem.graph, len(sizes)

    weight_unit, node_weights, common, edge_weights = _scaled_weights(problem)
    if graph.is_complete:
        assert node_weights is not None
        totals = tally(names, node_weights, k)
        linked = np.flatnonzero(totals > 0) if common > 0 else np.empty(0, dtype=np.int64)
        tied = np.stack([np.repeat(linked[:1], max(len(linked) - 1, 0)), linked[1:]], axis=1)
        pairs, strengths = np.empty((0, 2), dtype=np.int64), np.empty(0)
    else:
        totals = np.empty(0)
        pairs, strengths = _between(names, graph.edges, edge_weights, k)
        tied = pairs
    parts = np.arange(k) if problem.lam == 0 else components(k, tied)

    shift = pooled_minimisers(loss, parts[names])
    point = shift[parts[names]]
    gradients = loss.gradient(point)
    hessians = hessians_at(loss, point)
    gradient_unit = _power_of_two(np.abs(gradients).max())
    hessian_unit = _power_of_two(traces(hessians, loss.n_features).max())
    nodes: NodeFunctions
    if isinstance(loss, QuadraticNodeLoss):
        with np.errstate(over="ignore", under="ignore"):
            nodes = QuadraticNodes(
                gradients / gradient_unit,
                lengths(_gradient_errors(loss, point) / gradient_unit),
                hessians / hessian_unit,
                _hessian_errors(loss, hessians) / hessian_unit,
            )
    else:
        nodes = SmoothNodes(loss, point, gradient_unit, hessian_unit)
    with np.errstate(over="ignore", under="ignore"):
        lam = problem.lam / gradient_unit * weight_unit
    coupling: Coupling = (
        ProductCoupling(totals, lam * common, (totals > 0) & (common > 0))
        if graph.is_complete
        else EdgeCoupling(k, pairs, lam * strengths)
    )
    return ClusterModel(
        problem=problem,
        loss=loss,
        labels=names,
        sizes=sizes,
        order=order,
        starts=starts,
        lam=lam,
        nodes=nodes,
        shift=shift[parts],
        step_unit=gradient_unit / hessian_unit,
        gradient_unit=gradient_unit,
        weight_unit=weight_unit,
        node_weights=node_weights,
        common_weight=common,
        edge_weights=edge_weights,
        coupling=coupling,
    )


def cluster_minimisers(model: ClusterModel) -> FloatArray:
    """(K, d), in the units of the model: minimisers of the clusters' summed losses alone."""
    if isinstance(model.nodes, QuadraticNodes):
        start = np.zeros_like(model.shift)
        return -apply_blocks(_inverses(model.sums.hessians(start)), model.sums.gradients(start))
    return model.from_centers(pooled_minimisers(model.loss, model.labels))


def _inverses(hessians: FloatArray) -> FloatArray:
    """Pseudo-inverses of (K,) or (K, d, d)."""
    if hessians.ndim == 1:
        return np.divide(1.0, hessians, out=np.zeros_like(hessians), where=hessians > 0)
    rcond = 16 * hessians.shape[1] * EPS
    return np.asarray(np.linalg.pinv(hessians, rcond=rcond, hermitian=True), dtype=np.float64)


def _power_of_two(size: float) -> float:
    """2**e with size / 2**e in [1, 2), and 1 at zero."""
    return float(np.ldexp(1.0, int(np.frexp(size)[1]) - 1)) if size > 0 else 1.0


def _scaled_weights(problem: FusionProblem) -> tuple[float, FloatArray | None, float, FloatArray]:
    """Unit of the weights, node weights, common weight and edge weights in that unit."""
    graph = problem.graph
    if not graph.is_complete:
        unit = _power_of_two(float(graph.weights.max(initial=0.0)))
        return unit, None, float("nan"), graph.weights / unit
    r = np.ones(graph.n_nodes) if graph.node_weights is None else graph.node_weights
    node_unit = _power_of_two(float(r.max()))
    common_unit = _power_of_two(graph.weight)
    return common_unit * node_unit * node_unit, r / node_unit, graph.weight / common_unit, np.empty(0)


def _between(labels: IntArray, edges: IntArray, weights: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
    """Pairs of clusters joined by edges, and the sums of the weights."""
    ends = labels[edges]
    across = ends[:, 0] != ends[:, 1]
    low, high = ends[across].min(axis=1, initial=k), ends[across].max(axis=1, initial=0)
    keys, inverse = np.unique(low * k + high, return_inverse=True)
    sums = tally(inverse, weights[across], len(keys))
    return np.stack(np.divmod(keys, k), axis=1), sums


def hessians_at(loss: NodeLoss, point: FloatArray) -> FloatArray:
    """(m,) or (m, d, d)."""
    return loss.hessians() if isinstance(loss, QuadraticNodeLoss) else loss.hessians_at(point)


def curvature_bounds(loss: NodeLoss) -> tuple[FloatArray, FloatArray]:
    """Moduli of strong convexity and Lipschitz constants of the gradients, (m,); inf where there is none."""
    if isinstance(loss, QuadraticNodeLoss):
        hessians = loss.hessians()
        if hessians.ndim == 1:
            return hessians, hessians
        values = np.linalg.eigvalsh(hessians)
        return np.maximum(values[:, 0], 0.0), np.maximum(values[:, -1], 0.0)
    most = loss.majorant()
    if most is None:
        return loss.strong_convexity(), np.full(loss.n_nodes, np.inf)
    largest = most if most.ndim == 1 else np.asarray(np.linalg.eigvalsh(most)[:, -1], dtype=np.float64)
    return loss.strong_convexity(), largest


def pooled_minimisers(loss: NodeLoss, parts: IntArray) -> FloatArray:
    """One minimiser of sum_{i in part} f_i for each part, (n_parts, d)."""
    return (
        _quadratic_minimisers(loss, parts)
        if isinstance(loss, QuadraticNodeLoss)
        else newton_minimisers(loss, parts)
    )


def _quadratic_minimisers(loss: QuadraticNodeLoss, parts: IntArray) -> FloatArray:
    """Of least norm where there are several."""
    n_parts, d = int(parts.max()) + 1, loss.n_features
    hessians = loss.hessians()
    summed = np.zeros((n_parts, *hessians.shape[1:]))
    np.add.at(summed, parts, hessians)
    solver = (
        np.divide(1.0, summed, out=np.zeros_like(summed), where=summed > 0)
        if summed.ndim == 1
        else (np.linalg.pinv(summed, rcond=d * EPS * 16, hermitian=True))
    )
    shift = np.zeros((n_parts, d))
    # Each pass gains about 16 digits; the second one repairs what a large offset took from the first.
    for _ in range(3):
        pull = np.zeros((n_parts, d))
        np.add.at(pull, parts, loss.gradient(shift[parts]))
        shift -= apply_blocks(solver, pull)
    return shift


def _gradient_errors(loss: QuadraticNodeLoss, point: FloatArray) -> FloatArray:
    """Bounds on |computed - exact| for gradient(point); `point` itself is exact here."""
    if isinstance(loss, SquaredDistance):
        # One subtraction and one product: no cancellation beyond the data's own digits.
        bound: FloatArray = 2 * EPS * np.abs(loss.gradient(point))
        return bound
    return loss.gradient_error(point)


def _hessian_errors(loss: QuadraticNodeLoss, hessians: FloatArray) -> FloatArray:
    """Bounds on the spectral norm of each H_i's rounding error: gamma_n trace(H_i) for sums of n squares."""
    if isinstance(loss, SquaredDistance):
        return np.zeros(loss.n_nodes)
    chain = loss.n_samples + 4.0 if isinstance(loss, LeastSquares) else np.full(loss.n_nodes, 16.0)
    bound: FloatArray = EPS * chain * traces(hessians, loss.n_features)
    return bound
