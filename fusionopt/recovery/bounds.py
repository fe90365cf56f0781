"""The lam at which everything is fused, by cone programs and in closed form: slow oracles."""

from __future__ import annotations

import numpy as np

from fusionopt import _checks
from fusionopt.problem import FusionProblem
from fusionopt.recovery._model import build_model
from fusionopt.recovery.flow import connected, min_flow
from fusionopt.recovery.restricted import solve_scaled


def lambda_max_socp(problem: FusionProblem) -> float:
    """The least lam at which every connected component of the graph is one cluster, by CVXPY.

    The largest over the components of  min over antisymmetric q with sum_j q_ij = -g_i of max_e ||q_e||_2 /
    w_e, g_i = grad f_i(y) at a minimiser y of the component's sum of losses.

    Parameters
    ----------
    problem : FusionProblem
        Any smooth convex losses, `L2Norm`; its lam does not matter.

    Returns
    -------
    float
        In the units of lam; 0.0 when all nodes of each component agree or there are no edges.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        Another penalty.
    MissingDependencyError
        CVXPY is not installed.

    Notes
    -----
    A cone program with (edges x features) unknowns for each component: minutes beyond some hundred nodes on
    a complete graph. With a singular summed Hessian y is not unique, but the g_i are.
    """
    return min_flow(problem.with_lam(0.0), problem.graph.component_labels).value


def lambda_max_1d(problem: FusionProblem) -> float:
    """The least lam that fuses all nodes of a complete graph when x has one feature.

    max over k of |sum of g_i over the k smallest g_i / r_i| / (weight R_k (R - R_k)), with g_i = f_i'(y) at
    the pooled minimiser y, R_k the sum of their r_i and R the sum of all; r_i = 1 without node weights.

    Parameters
    ----------
    problem : FusionProblem
        Losses with one feature, `L2Norm`, ``Graph.complete``; its lam does not matter.

    Returns
    -------
    float
        In the units of lam; 0.0 when all nodes agree or there are no edges.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        More features, another graph or penalty.

    Notes
    -----
    In one dimension the least largest flow is the largest ratio of a cut's demand to its weight. A set that
    attains it can be taken from the sorted order: see docs/certificates.md. O(m log m).

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance
    >>> round(lambda_max_1d(FusionProblem(SquaredDistance([0.0, 1.0, 3.0, 7.0, 12.0]))), 12)
    1.85
    """
    model = build_model(problem.with_lam(0.0), problem.graph.component_labels)
    if model.n_features != 1 or model.node_weights is None:
        kind = "complete" if problem.graph.is_complete else "not complete"
        _checks.refuse(
            f"problem has {model.n_features} features and a graph that is {kind}; the closed form is for "
            "one feature on Graph.complete. Use lambda_max_socp, or fusionopt.lambda_max.",
            argument="problem",
            got=(model.n_features, kind),
            wanted="one feature and a complete graph",
        )
    y = solve_scaled(model).y[model.labels]
    slopes = model.nodes.gradients(y)[:, 0]
    largest = 0.0
    for k in np.flatnonzero(connected(model) & (model.sizes > 1)).tolist():
        nodes = model.members(k)
        g, r = slopes[nodes], model.node_weights[nodes]
        order = np.argsort(g / r, kind="stable")
        demand, weight = np.cumsum(g[order])[:-1], np.cumsum(r[order])
        cuts = model.common_weight * weight[:-1] * (weight[-1] - weight[:-1])
        largest = max(largest, float((np.abs(demand) / cuts).max()))
    return largest * model.flow_unit
