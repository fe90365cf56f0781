"""Groups of nodes as the nodes of a small problem, and flows: what proves both ends of lambda_max."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fusionopt.graph import Graph
from fusionopt.losses.quadratic_model import QuadraticModel
from fusionopt.problem import FusionProblem

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LOOSE, _TIGHT = 1e-3, 1e-10
"""What a first and a second balancing leave, relative to what they were given: rounding in the end."""
_MAX_PASSES = 400
_CAP = 2.0
"""Largest ball that matters, in units of the sum of all forces."""


def at_rest(force: FloatArray, error: FloatArray | None = None) -> QuadraticModel:
    """A quadratic with these forces -grad f_i(0).

    lambda_max depends on the losses through their forces at rest only. Curvature and place are free: 0 because around
    y itself a step of the size of the forces could be lost in the digits of y, one curvature for all because the
    iteration likes it best, and of the size of the forces so that steps are of order one.
    """
    h = math.ldexp(1.0, math.frexp(float(np.abs(force).max(initial=0.0)))[1]) if force.any() else 1.0
    values = (
        0.5 * np.square(force / h).sum(axis=1) * h
    )  # as for squared distances: tolerances are relative to them
    origin = np.zeros_like(force)
    return QuadraticModel(origin, values, -force, np.full(len(force), h), origin if error is None else error)


@dataclass(frozen=True)
class Quotient:
    """The groups of an edge list as nodes, joined by the summed weights of the edges between them.

    Attributes
    ----------
    problem : FusionProblem
        K nodes with the summed forces: a direction that is constant on the groups has the same ratio in both problems,
        so a lower bound of lambda_max here is one of the whole.
    graph, force, groups
        The whole.
    crossing : bool (n_edges,)
        Edges between two groups.
    edge : int (crossing edges,)
        Their edge in the quotient.
    sign : float (crossing edges,)
        -1 where the ends are exchanged there.
    """

    problem: FusionProblem
    graph: Graph
    force: FloatArray
    groups: IntArray
    crossing: NDArray[np.bool_]
    edge: IntArray
    sign: FloatArray

    def inside(self, between: FloatArray) -> FusionProblem:
        """What a flow of the quotient, spread over the crossing edges by weight, leaves to the edges inside groups.

        The whole has a flow of length t where `between` and a flow of this problem have that length. At lambda_max and
        for groups that part there, no other flow crosses: those edges are as long as they may be, along the direction.
        """
        crossing, weights = self.crossing, self.graph.weights
        unit = (between / self.problem.graph.weights[:, None])[self.edge]
        flow = unit * (self.sign * weights[crossing])[:, None]
        rest = self.force - _incidence(self.graph.n_nodes, self.graph.edges[crossing]) @ flow
        edges = self.graph.edges[~crossing]
        graph = Graph.from_edges(self.graph.n_nodes, edges, weights[~crossing])
        return FusionProblem(at_rest(_balanced(rest, self.groups)), graph)


def quotient(graph: Graph, force: FloatArray, groups: IntArray) -> Quotient:
    """By groups 0..K-1 of the nodes, K > 1, each connected by edges of its own."""
    n = int(groups.max()) + 1
    sums = np.zeros((n, force.shape[1]))
    np.add.at(sums, groups, force)
    i, j = groups[graph.edges[:, 0]], groups[graph.edges[:, 1]]
    crossing = i != j
    i, j = i[crossing], j[crossing]
    keys, edge = np.unique(np.minimum(i, j) * n + np.maximum(i, j), return_inverse=True)
    weights = np.bincount(edge, graph.weights[crossing], minlength=len(keys))
    small = Graph.from_edges(n, np.stack([keys // n, keys % n], axis=1), weights)
    sign = np.where(i < j, 1.0, -1.0)
    return Quotient(FusionProblem(at_rest(sums), small), graph, force, groups, crossing, edge, sign)


def flow_bound(
    graph: Graph, force: FloatArray, duals: FloatArray, scale: float, enough: float = math.inf
) -> tuple[float, FloatArray]:
    """A flow u with B'u = force up to rounding, and max ||u_e|| / w_e: an upper bound of lambda_max (inf: none found).

    Parameters
    ----------
    graph : Graph
        An edge list.
    force : float64 (n_nodes, n_features)
        Adds up to zero over each component.
    duals : float64 (n_edges, n_features)
        About such a flow.
    scale : float > 0
        About lambda_max.
    enough : float
        A flow that is longer than this when roughly balanced is given up.
    """
    tail, head = graph.edges.T
    # An edge that could carry everything several times over takes no more of the rest than the other such edges.
    total = float(np.linalg.norm(force, axis=1).sum())
    conductance = np.minimum(graph.weights, _CAP * total / scale)
    incidence = _incidence(graph.n_nodes, graph.edges)
    laplacian = (incidence @ sparse.diags_array(conductance) @ incidence.T).tocsr()
    flow, bound = duals, math.inf
    for tolerance in (_LOOSE, _TIGHT):
        lacking = _balanced(force - incidence @ flow, graph.component_labels)
        phi, passes = _potentials(laplacian, lacking, tolerance)
        flow = flow + conductance[:, None] * (phi[tail] - phi[head])
        bound = float((np.linalg.norm(flow, axis=1) / graph.weights).max(initial=0.0))
        if passes > _MAX_PASSES or not bound <= enough:
            return math.inf, flow
    return bound, flow


def _incidence(n: int, edges: IntArray) -> sparse.csr_array:
    """B' (n_nodes, n_edges)."""
    ones, each = np.ones(len(edges)), np.arange(len(edges))
    places = (np.r_[edges[:, 0], edges[:, 1]], np.r_[each, each])
    return sparse.csr_array((np.r_[ones, -ones], places), shape=(n, len(edges)))


def _balanced(rows: FloatArray, groups: IntArray) -> FloatArray:
    """Without the means of the groups, which are rounding."""
    count = np.bincount(groups)
    means = [np.bincount(groups, column) / count for column in rows.T]
    return np.asarray(rows - np.stack(means, axis=1)[groups])


def _potentials(laplacian: sparse.csr_array, demand: FloatArray, tolerance: float) -> tuple[FloatArray, int]:
    """phi with L phi = demand, a column at a time in step, by conjugate gradients; and the passes made."""
    phi, rest = np.zeros_like(demand), demand.copy()
    diagonal = laplacian.diagonal()[:, None]
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    wanted = tolerance * float(np.abs(demand).max(initial=0.0))
    step = inverse * rest
    size = np.einsum("ik,ik->k", step, rest)
    for passes in range(_MAX_PASSES):
        if float(np.abs(rest).max(initial=0.0)) <= wanted:
            return phi, passes
        image = laplacian @ step
        curvature = np.einsum("ik,ik->k", step, image)
        length = np.divide(size, curvature, out=np.zeros_like(size), where=curvature > 0)
        phi += length * step
        rest -= length * image
        preconditioned = inverse * rest
        before, size = size, np.einsum("ik,ik->k", preconditioned, rest)
        step *= np.divide(size, before, out=np.zeros_like(size), where=before > 0)
        step += preconditioned
    return phi, _MAX_PASSES + 1
