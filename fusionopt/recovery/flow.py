"""Can a cluster's pull be carried inside it?  The flow test, by a cone program or by clipping and repairing
duals.

At centres w, node l of cluster C_k feels s_l = grad f_l(w_k) + lam sum_{e=(l,j), j not in C_k} w_e u_e, u_e
the unit vector from the other centre to w_k. The partition is that of the solution exactly when, in every
cluster, some flow q on its inside edges has divergence -s_l and ||q_e|| <= lam w_e.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fusionopt import _checks
from fusionopt.clusters import components
from fusionopt.errors import MissingDependencyError
from fusionopt.problem import FusionProblem
from fusionopt.recovery._coupling import tally
from fusionopt.recovery._model import ClusterModel, build_model
from fusionopt.recovery._regions import Clique, Patch, Region
from fusionopt.recovery._repair import FoundFlow, potential_bounds, repaired
from fusionopt.recovery.restricted import solve_scaled

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FlowResult:
    """What `min_flow` found; all in the units of lam.

    Attributes
    ----------
    value : float
        Largest of `values`: the partition's flows exist when value <= lam. 0 where no cluster has two nodes.
    values : float64 (K,)
        max_e ||q_e|| / w_e of the flow found in each cluster: an upper bound of the least possible. 0 for
        single nodes; inf where inside edges do not connect the cluster.
    lower_values : float64 (K,)
        Lower bounds of the least possible, from potentials.
    edges : int64 (E_in, 2)
        Inside edges of the connected clusters.
    flows : float64 (E_in, d)
        q for i < j, in the units of the duals.
    """

    value: float
    values: FloatArray
    lower_values: FloatArray
    edges: IntArray
    flows: FloatArray


def min_flow(
    problem: FusionProblem,
    labels: ArrayLike,
    centers: ArrayLike | None = None,
    duals: ArrayLike | None = None,
) -> FlowResult:
    """min over flows q inside the clusters of max_e ||q_e|| / w_e, with (div q)_l = -s_l; compare with lam.

    Parameters
    ----------
    problem : FusionProblem
        Any smooth convex losses, `L2Norm`.
    labels : array-like (m,)
        The partition.
    centers : array-like (K, d), or None
        Where s is taken, clusters in the order of their first appearance; the restricted optimum if None.
    duals : array-like (n_edges, d), or None
        Rows in the order of ``graph.edges``. None: the exact minimum by CVXPY, a cone program for each
        cluster. Given: the inside rows, repaired to exact divergence, then clipped and repaired again until
        they are within lam, a potential shows that no flow is, or the rounds end.

    Returns
    -------
    FlowResult

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong shape, another penalty.
    MissingDependencyError
        `duals` is None and CVXPY is not installed.

    Notes
    -----
    s_l adds up to zero over a cluster at the restricted optimum; elsewhere its mean (weighted with the node
    weights on a complete graph) is taken off. Works on one cluster after the other; memory is twice the
    inside edges of the largest beside the flows returned.

    References
    ----------
    The flow test for uniform weights is the exact form of Theorem 1 of Armacki et al.; derivation in
    docs/certificates.md.

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance
    >>> problem = FusionProblem(SquaredDistance([0.0, 2.0]), lam=1.5)
    >>> round(min_flow(problem, [0, 0], duals=[[0.0]]).value, 12)
    1.0
    """
    model = build_model(problem, labels)
    given = check_duals(problem, duals)
    if centers is None:
        y = solve_scaled(model).y
    else:
        y = model.from_centers(_checks.as_point("centers", centers, (model.n_clusters, model.n_features)))
    demand = node_demand(model, y)
    unit = model.flow_unit
    values, lower = np.zeros(model.n_clusters), np.zeros(model.n_clusters)
    values[(model.sizes > 1) & ~connected(model)] = np.inf
    edges, flows = [np.empty((0, 2), dtype=np.int64)], [np.empty((0, model.n_features))]
    for region in regions(model):
        found = find_flow(model, region, demand[region.nodes], given)
        bound = potential_bounds(region, demand[region.nodes], found.potentials)
        values[region.clusters] = found.ratios * unit
        lower[region.clusters] = np.minimum(bound, found.ratios) * unit
        edges.append(region.edges)
        flows.append(found.flow * model.gradient_unit)
    value = float(values.max())
    return FlowResult(value, values, lower, np.concatenate(edges), np.concatenate(flows))


def check_duals(problem: FusionProblem, duals: ArrayLike | None) -> FloatArray | None:
    """Checked duals, or None."""
    if duals is None:
        return None
    if problem.graph.n_edges == 0:
        return np.zeros((0, problem.n_features))
    return _checks.as_point("duals", duals, (problem.graph.n_edges, problem.n_features))


def connected(model: ClusterModel) -> BoolArray:
    """(K,): whether inside edges connect the cluster; True for single nodes."""
    graph = model.problem.graph
    if model.node_weights is not None:
        linked = (
            (model.node_weights > 0) if model.common_weight > 0 else np.zeros(graph.n_nodes, dtype=np.bool_)
        )
        alone = model.sum_clusters((~linked).astype(np.float64)) > 0
        held: BoolArray = ~alone | (model.sizes == 1)
        return held
    ends = model.labels[graph.edges]
    parts = components(graph.n_nodes, graph.edges[ends[:, 0] == ends[:, 1]])
    # Parts refine clusters; a cluster is connected when it holds exactly one part.
    counts = np.bincount(model.labels[np.unique(parts, return_index=True)[1]], minlength=model.n_clusters)
    whole: BoolArray = counts == 1
    return whole


def regions(model: ClusterModel) -> Iterator[Region]:
    """The connected clusters of two nodes or more: one by one on a complete graph, else together."""
    graph = model.problem.graph
    wanted = np.flatnonzero((model.sizes > 1) & connected(model))
    if len(wanted) == 0:
        return
    if model.node_weights is None:
        yield Patch(model.labels, wanted, graph, model.edge_weights)
        return
    for k in wanted.tolist():
        nodes = model.members(k)
        yield Clique(k, nodes, model.node_weights[nodes], model.common_weight, graph)


def graph_divergence(model: ClusterModel, duals: FloatArray) -> FloatArray:
    """(m, d): sum_j v_ij over all edges of the graph, in the units of the duals."""
    graph = model.problem.graph
    out = np.zeros((graph.n_nodes, duals.shape[1]))
    if len(duals) == 0:
        return out
    if model.node_weights is not None:
        linked = np.flatnonzero(model.node_weights > 0)
        everything = Clique(0, linked, model.node_weights[linked], model.common_weight, graph)
        out[linked] = everything.divergence(duals)
        return out
    for column in range(duals.shape[1]):
        out[:, column] = tally(graph.edges[:, 0], duals[:, column], graph.n_nodes)
        out[:, column] -= tally(graph.edges[:, 1], duals[:, column], graph.n_nodes)
    return out


def node_demand(model: ClusterModel, y: FloatArray) -> FloatArray:
    """(m, d): the divergence -s_l wanted at each node, adding up to zero over each cluster.

    On a complete graph the pull from outside is proportional to r_l, so that taking off the share r_l / sum
    r of the cluster's sum removes it exactly: only gradients are left.
    """
    labels = model.labels
    pull = model.nodes.gradients(y[labels])
    if model.node_weights is not None:
        totals = model.sum_clusters(model.node_weights)[labels]
        share = np.divide(model.node_weights, totals, out=np.zeros_like(totals), where=totals > 0)
    else:
        share = 1.0 / model.sizes[labels]
        edges = model.problem.graph.edges
        ends = labels[edges]
        across = np.flatnonzero(ends[:, 0] != ends[:, 1])
        diff = y[ends[across, 0]] - y[ends[across, 1]]
        lengths = np.sqrt(np.einsum("ea,ea->e", diff, diff))
        scale = np.divide(
            model.lam * model.edge_weights[across], lengths, out=np.zeros_like(lengths), where=lengths > 0
        )
        forces = scale[:, None] * diff
        for column in range(pull.shape[1]):
            pull[:, column] += tally(edges[across, 0], forces[:, column], len(labels))
            pull[:, column] -= tally(edges[across, 1], forces[:, column], len(labels))
    demand: FloatArray = share[:, None] * model.sum_clusters(pull)[labels] - pull
    return demand


def find_flow(model: ClusterModel, region: Region, demand: FloatArray, duals: FloatArray | None) -> FoundFlow:
    """By cone programs, or from duals when they are given."""
    if duals is None:
        return _exact(region, demand)
    flow = region.gather(duals, model.gradient_unit)
    return repaired(region, demand, flow, model.lam)


def _exact(region: Region, demand: FloatArray) -> FoundFlow:
    """One cone program for each cluster of the region."""
    weights = region.weights
    local = np.searchsorted(region.nodes, region.edges)
    if isinstance(region, Patch):
        node_name, edge_name = region.cluster_of_node, region.cluster_of_edge
    else:
        node_name, edge_name = (
            np.zeros(len(region.nodes), dtype=np.int64),
            np.zeros(len(weights), dtype=np.int64),
        )
    flow = np.zeros((len(weights), demand.shape[1]))
    potentials = np.zeros_like(demand)
    for name in range(len(region.clusters)):
        nodes, rows = np.flatnonzero(node_name == name), np.flatnonzero(edge_name == name)
        ends = np.searchsorted(nodes, local[rows])
        flow[rows], potentials[nodes] = _cone_program(ends, weights[rows], demand[nodes])
    region.correct(flow, demand - region.divergence(flow))
    return FoundFlow(flow, region.cluster_max(region.ratios(flow)), potentials)


def _cone_program(ends: IntArray, weights: FloatArray, demand: FloatArray) -> tuple[FloatArray, FloatArray]:
    """minimise t: ||q_e|| <= t w_e, div q = demand. The flow, and the potentials of that constraint."""
    n, d = demand.shape
    size = float(np.abs(demand).max())
    if size == 0:
        return np.zeros((len(ends), d)), np.zeros((n, d))
    cp = load_cvxpy()
    rows = np.repeat(np.arange(len(ends)), 2)
    signs = np.tile([1.0, -1.0], len(ends))
    incidence = sparse.csr_matrix((signs, (rows, ends.ravel())), shape=(len(ends), n))
    unit = float(weights.max())
    q, t = cp.Variable((len(ends), d)), cp.Variable()
    # The rows of the divergence add up to zero: one of them says nothing new.
    balance = incidence.T.tocsr()[1:] @ q == demand[1:] / size
    program = cp.Problem(cp.Minimize(t), [cp.SOC(t * (weights / unit), q, axis=1), balance])
    with warnings.catch_warnings():
        # An inaccurate answer is still repaired to an exact flow, and its bounds are computed from that.
        warnings.simplefilter("ignore")
        try:
            program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-10, tol_feas=1e-11)
        except cp.error.SolverError:
            # Clarabel stops short of these tolerances on badly scaled weights; its own defaults it reaches.
            program.solve(solver=cp.CLARABEL)
    potentials = np.zeros((n, d))
    if balance.dual_value is not None:
        potentials[1:] = np.asarray(balance.dual_value).reshape(n - 1, d)
    flow = np.zeros((len(ends), d)) if q.value is None else np.asarray(q.value).reshape(len(ends), d) * size
    return flow, potentials


def load_cvxpy() -> Any:
    """CVXPY, imported on first use because that takes a second."""
    try:
        import cvxpy
    except ImportError as error:
        raise MissingDependencyError(
            "CVXPY is not installed and the exact flow test needs it; run 'pip install cvxpy', or give "
            "the duals of a solution (duals=).",
            package="cvxpy",
        ) from error
    return cvxpy
