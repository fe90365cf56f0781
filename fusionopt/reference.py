"""The same problem in CVXPY, and the dual value of any edge flow in plain NumPy.

Independent of the solver: nothing here imports it, and the two share no arithmetic beyond the problem's own
data.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import minimum_spanning_tree

from fusionopt import _checks
from fusionopt._reference_atoms import LOSSES, PENALTIES, loss_expression, natural_unit, penalty_expression
from fusionopt.errors import MissingDependencyError
from fusionopt.losses.base import NodeLoss
from fusionopt.losses.least_squares import LeastSquares
from fusionopt.losses.squared_distance import SquaredDistance
from fusionopt.penalties.base import Penalty, row_norms
from fusionopt.penalties.l2_norm import L2Norm
from fusionopt.penalties.squared_l2 import SquaredL2
from fusionopt.problem import FusionProblem

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class ReferenceResult:
    """What CVXPY found.

    Attributes
    ----------
    x : float64 (n_nodes, n_features)
        NaN where the solver returned nothing.
    objective : float
        ``problem.objective(x)``, not the solver's own figure.
    dual : float64 (n_edges, n_features)
        v in the order of ``problem.graph.edges``, with
        grad f_i(x_i) + sum_{e=(i,j)} v_e - sum_{e=(j,i)} v_e = 0, up to the tolerance; for `L2Norm` also
        ||v_e|| <= lam w_e.
    status : str
        "optimal", "optimal_inaccurate" (the solver stopped short of its tolerance) or "numerical_error".
    """

    x: FloatArray
    objective: float
    dual: FloatArray
    status: str


@dataclass(frozen=True, eq=False)
class _Rows:
    """f_i(centre_i + u) = 1/2 ||R_i u - b_i||^2 + k_i, with R (m, d, d), b (m, d), k (m,)."""

    matrix: FloatArray
    target: FloatArray
    constant: FloatArray


def solve(problem: FusionProblem, solver: str = "CLARABEL", eps: float = 1e-9) -> ReferenceResult:
    """Minimise F(x) = sum_i f_i(x_i) + sum_{(i,j) in E} w_ij g(x_i - x_j; lam) by a conic solver.

    For `SquaredDistance` and `LeastSquares` each connected component is moved to its pooled minimiser and divided by
    the size of its data before CVXPY sees it, so the units and the offset of the data do not matter. The targets of
    `Huber` and `HuberRegression` are divided by their size; the others are stated as they are.

    Parameters
    ----------
    problem : FusionProblem
        Any loss but `CallableLoss`, with `L2Norm`, `SquaredL2` or `L1Norm`.
    solver : str
        An installed CVXPY solver for second-order cones.
    eps : float > 0
        The solver's tolerances, for data of size 1.

    Returns
    -------
    ReferenceResult
        An approximate minimiser: rows of one cluster agree to about sqrt(eps), never exactly.

    Raises
    ------
    InvalidTypeError
        `CallableLoss`, a loss of another make, or a penalty that is not convex.
    InvalidArgumentError
        A solver that is not installed, or eps <= 0.
    MissingDependencyError
        CVXPY is not installed.

    Notes
    -----
    For small problems: every edge becomes a cone, also on a complete graph.
    """
    _check_problem(problem)
    tolerance = _checks.as_positive_scalar("eps", eps)
    cvxpy = _cvxpy()
    _checks.check_choice("solver", solver, sorted(cvxpy.installed_solvers()))
    way = _solve_quadratic if isinstance(problem.loss, SquaredDistance | LeastSquares) else _solve_other
    x, dual, status = way(cvxpy, problem, solver, tolerance)
    objective = problem.objective(x) if np.isfinite(x).all() else float("nan")
    return ReferenceResult(x, objective, dual, status)


def _solve_quadratic(
    cvxpy: Any, problem: FusionProblem, solver: str, tolerance: float
) -> tuple[FloatArray, FloatArray, str]:
    m, d, lam = problem.n_nodes, problem.n_features, problem.lam
    edges, weights = problem.graph.edges, problem.graph.weights
    labels = problem.graph.component_labels if lam > 0 else np.arange(m, dtype=np.int64)
    centres = _pooled_minimisers(problem.loss, labels)
    rows = _quadratic_rows(problem.loss, centres)
    x, dual = centres.copy(), np.zeros((len(edges), d))
    statuses = {"optimal"}
    order = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[order], np.arange(int(labels.max()) + 2))
    edge_labels = labels[edges[:, 0]]
    for component in range(int(labels.max()) + 1):
        nodes = order[bounds[component] : bounds[component + 1]]
        if len(nodes) == 1:
            continue  # its own minimiser is the answer
        inside = np.flatnonzero(edge_labels == component)
        local = np.searchsorted(nodes, edges[inside])
        part = _Rows(rows.matrix[nodes], rows.target[nodes], rows.constant[nodes])
        noise = _noise(problem.loss, centres, nodes)
        u, v, status = _solve_component(
            cvxpy, part, local, lam, weights[inside], noise, problem.penalty, solver, tolerance
        )
        x[nodes] += u
        dual[inside] = v
        statuses.add(status)
    for status in ("numerical_error", "optimal_inaccurate", "optimal"):
        if status in statuses:
            break
    return x, dual, status


def _solve_other(
    cvxpy: Any, problem: FusionProblem, solver: str, tolerance: float
) -> tuple[FloatArray, FloatArray, str]:
    loss, penalty = problem.loss, problem.penalty
    m, d = problem.n_nodes, problem.n_features
    edges, weights = problem.graph.edges, problem.graph.weights
    unit = natural_unit(loss)
    # F(unit x) / unit^2; only the squared penalty keeps its lam.
    lam = problem.lam if isinstance(penalty, SquaredL2) else problem.lam / unit
    x, z = cvxpy.Variable(m * d), cvxpy.Variable(max(len(edges), 1) * d)
    objective, constraints = loss_expression(cvxpy, loss, x, unit), []
    if problem.lam > 0 and len(edges) > 0:
        constraints = [sparse.kron(_incidence(edges, m), sparse.eye_array(d), format="csr") @ x == z]
        objective = objective + penalty_expression(cvxpy, penalty, z, lam * weights, d)
    status = _run(cvxpy, cvxpy.Problem(cvxpy.Minimize(objective), constraints), solver, tolerance)
    if x.value is None or status == "numerical_error":
        return np.full((m, d), np.nan), np.full((len(edges), d), np.nan), "numerical_error"
    dual = np.zeros((len(edges), d))
    if constraints:
        dual = constraints[0].dual_value.reshape(len(edges), d) * unit
    return x.value.reshape(m, d) * unit, dual, status


def _run(cvxpy: Any, model: Any, solver: str, eps: float) -> str:
    """Solve a model; "optimal", "optimal_inaccurate" or "numerical_error"."""
    options = {
        "CLARABEL": {"tol_gap_abs": eps, "tol_gap_rel": eps, "tol_feas": eps},
        "SCS": {"eps_abs": eps, "eps_rel": eps, "max_iters": 100_000},
        "ECOS": {"abstol": eps, "reltol": eps, "feastol": eps},
    }.get(solver, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what CVXPY warns of is in the status
        try:
            model.solve(solver=solver, **options)
        except cvxpy.error.SolverError:
            return "numerical_error"
    status = str(model.status)
    return status if status.startswith("optimal") else "numerical_error"


def feasible_dual_value(problem: FusionProblem, v: ArrayLike) -> float:
    """The dual objective D(v) = -sum_i f_i^*(-u_i) of a repaired flow v.

    u_i = sum_{e=(i,j)} v_e - sum_{e=(j,i)} v_e.

    v is clipped into its balls, ||v_e|| <= lam w_e. Where a Hessian is singular, v is first corrected (least
    norm) so that every u_i lies in the range of H_i, and then scaled into the balls by one factor. D of any
    such flow is at most min F, so F(x) - D bounds the error of any x.

    Parameters
    ----------
    problem : FusionProblem
        `SquaredDistance` or `LeastSquares` with `L2Norm`.
    v : array-like (n_edges, n_features)
        In the order of ``problem.graph.edges``.

    Returns
    -------
    float

    Raises
    ------
    InvalidTypeError
        Another loss or penalty.
    InvalidArgumentError
        v has a wrong shape, or holds NaN or Inf.
    """
    _check_dual_problem(problem)
    m, d = problem.n_nodes, problem.n_features
    edges, radii = problem.graph.edges, problem.lam * problem.graph.weights
    flow = np.zeros((0, d))
    if len(edges):
        flow = _checks.as_point("v", v, (len(edges), d), of="edge").copy()
    elif np.size(np.asarray(v)):
        _checks.refuse(
            f"v has shape {np.shape(v)}; the problem has no edges, so it needs (0, {d}).",
            argument="v",
            got=np.shape(v),
            wanted=f"shape (0, {d})",
        )
    labels = problem.graph.component_labels
    centres = _pooled_minimisers(problem.loss, labels)
    rows = _quadratic_rows(problem.loss, centres)
    left, singular, right = np.linalg.svd(rows.matrix)
    # The scale of all nodes: a node whose data are negligible beside it would otherwise give noise as
    # curvature.
    held = singular > EPS * d * singular.max(axis=1, keepdims=True)
    flow *= _ball_factors(flow, radii)[:, None]
    incidence = _incidence(edges, m)
    if not held.all():
        flow = _into_ranges(flow, incidence, right, held)
        flow *= _ball_factors(flow, radii).min(initial=1.0)
    sums = incidence.T @ flow
    # -f*(-u) with u = R'y: y'b - ||y||^2/2 in the coordinates of the left singular vectors, plus the minimum
    # of f.
    y = np.divide(np.einsum("ikl,il->ik", right, sums), singular, out=np.zeros((m, d)), where=held)
    b = np.einsum("ilk,il->ik", left, rows.target)
    minima = rows.constant + 0.5 * np.where(held, 0.0, b**2).sum(axis=1)
    return float((minima + np.where(held, y * b - 0.5 * y**2, 0.0).sum(axis=1)).sum())


def _check_problem(problem: FusionProblem) -> None:
    _checks.check_instance("problem", problem, FusionProblem, "for instance FusionProblem(loss)")
    loss, penalty = problem.loss, problem.penalty
    if not isinstance(loss, (SquaredDistance, LeastSquares, *LOSSES)):
        _checks.refuse_type(
            f"the loss is a {type(loss).__name__}; the reference solves the losses of fusionopt, of which it knows the "
            "formula.",
            argument="problem",
            got=type(loss).__name__,
            wanted="a loss of fusionopt other than CallableLoss",
        )
    if not isinstance(penalty, PENALTIES):
        _checks.refuse_type(
            f"the penalty is a {type(penalty).__name__}; the reference solves L2Norm, SquaredL2 and L1Norm.",
            argument="problem",
            got=type(penalty).__name__,
            wanted="a convex penalty of fusionopt",
        )


def _check_dual_problem(problem: FusionProblem) -> None:
    _checks.check_instance("problem", problem, FusionProblem, "for instance FusionProblem(loss)")
    if not isinstance(problem.loss, SquaredDistance | LeastSquares) or not isinstance(
        problem.penalty, L2Norm
    ):
        got = f"{type(problem.loss).__name__} with {type(problem.penalty).__name__}"
        _checks.refuse_type(
            f"problem has {got}; dual values are for SquaredDistance and LeastSquares with L2Norm.",
            argument="problem",
            got=got,
            wanted="SquaredDistance or LeastSquares with L2Norm",
        )


def _cvxpy() -> Any:
    try:
        import cvxpy
    except ImportError as error:
        raise MissingDependencyError(
            "The reference solution needs CVXPY, which is not installed; install it with: pip install cvxpy",
            package="cvxpy",
        ) from error
    return cvxpy


def _quadratic_rows(loss: NodeLoss, centres: FloatArray) -> _Rows:
    """The losses around given centres, from residuals of the data there."""
    m, d = centres.shape
    if isinstance(loss, SquaredDistance):
        roots = np.sqrt(loss.sample_weight)[:, None] * ~np.isnan(loss.targets)
        matrix = roots[:, :, None] * np.eye(d)
        return _Rows(matrix, roots * np.nan_to_num(loss.targets - centres), np.zeros(m))
    assert isinstance(loss, LeastSquares)
    matrix, target, constant = np.zeros((m, d, d)), np.zeros((m, d)), np.zeros(m)
    for i in range(m):
        part = slice(int(loss.offsets[i]), int(loss.offsets[i + 1]))
        scale = np.sqrt(loss.sample_weight[part] / loss.n_samples[i])[:, None]
        design = loss.designs[part]
        design = design if isinstance(design, np.ndarray) else design.toarray()
        residual = loss.targets[part] - design @ centres[i]
        root = np.sqrt(loss.ridge)
        table = np.vstack(
            [
                scale * np.hstack([design, residual[:, None]]),
                root * np.hstack([np.eye(d), -centres[i][:, None]]),
            ]
        )
        # QR of [design, residual]: a square root of the Hessian without squaring its condition number.
        triangle: FloatArray = np.linalg.qr(table)[1]
        k = min(len(triangle), d)
        matrix[i, :k] = triangle[:k, :d]
        target[i, :k] = triangle[:k, d]
        if len(triangle) > d:
            constant[i] = 0.5 * triangle[d, d] ** 2
    return _Rows(matrix, target, constant)


def _pooled_minimisers(loss: NodeLoss, labels: IntArray) -> FloatArray:
    """For each node, the minimiser of the sum of f_i over its component (least norm if there are several)."""
    m, d = loss.n_nodes, loss.n_features
    centres = np.zeros((m, d))
    if isinstance(loss, SquaredDistance):
        count = int(labels.max()) + 1
        for column in range(d):
            there = ~np.isnan(loss.targets[:, column])
            first = np.zeros(count)
            # Each component's first number in this column; 0, the point of least norm, where there is none.
            first[labels[there][::-1]] = loss.targets[there, column][::-1]
            weight = np.where(there, loss.sample_weight, 0.0)
            mass = np.bincount(labels, weights=weight, minlength=count)
            # A component that weighs nothing keeps its first target: every common point is a minimiser.
            away = np.where(there, loss.targets[:, column] - first[labels], 0.0)
            mean = np.bincount(labels, weight * away, count) / np.where(mass > 0, mass, 1.0)
            centres[:, column] = (first + mean)[labels]
        return centres
    # Twice: the second pass solves for the correction from the residuals at the first answer.
    for _ in range(2):
        rows = _quadratic_rows(loss, centres)
        for component in np.unique(labels):
            nodes = np.flatnonzero(labels == component)
            step = np.linalg.lstsq(rows.matrix[nodes].reshape(-1, d), rows.target[nodes].ravel(), rcond=None)[
                0
            ]
            centres[nodes] += step
    return centres


def _noise(loss: NodeLoss, centres: FloatArray, nodes: IntArray) -> float:
    """Rounding error of the residuals of some nodes at their centre, in the units of `_Rows.target`."""
    if isinstance(loss, SquaredDistance):
        roots = np.sqrt(loss.sample_weight[nodes])[:, None]
        sizes = np.nan_to_num(np.abs(loss.targets[nodes])) + np.abs(centres[nodes])
        return float((4 * EPS * roots * sizes).max())
    assert isinstance(loss, LeastSquares)
    sizes = np.zeros(loss.n_nodes)
    weights = np.sqrt(loss.sample_weight)
    terms = weights * (np.abs(loss.targets) + abs(loss.designs) @ np.abs(centres[nodes[0]]))
    np.maximum.at(sizes, np.repeat(np.arange(loss.n_nodes), loss.n_samples), terms)
    ridge = np.sqrt(loss.ridge) * float(np.abs(centres[nodes[0]]).max())
    return float(8 * EPS * (loss.n_features + 1) * (sizes[nodes].max() + ridge))


def _incidence(edges: IntArray, n: int) -> sparse.csr_array:
    """(E, n): row e is +1 at i and -1 at j for the edge (i, j)."""
    count = len(edges)
    signs = np.tile([1.0, -1.0], count)
    return sparse.csr_array((signs, (np.repeat(np.arange(count), 2), edges.ravel())), shape=(count, n))


def _solve_component(
    cvxpy: Any,
    rows: _Rows,
    edges: IntArray,
    lam: float,
    weights: FloatArray,
    noise: float,
    penalty: Penalty,
    solver: str,
    eps: float,
) -> tuple[FloatArray, FloatArray, str]:
    """Steps u from the centre, edge duals and status of one connected component."""
    n, d = rows.target.shape
    size, force = float(np.linalg.norm(rows.matrix, axis=(1, 2)).max()), float(np.abs(rows.target).max())
    if size == 0 or force <= noise:
        return np.zeros((n, d)), np.zeros((len(edges), d)), "optimal"  # the pooled minimiser fits every node
    # In units where the data have size 1: u = (force / size) y, F = force^2 (...), lam = size force (...).
    matrix, target = rows.matrix / size, rows.target / force
    heaviest = float(weights.max())
    ratios = weights / heaviest
    if isinstance(penalty, SquaredL2):
        strength = lam * heaviest / size**2
    else:
        # Beyond this value a flow along the heaviest spanning tree already fuses everything, and nothing changes
        # any more.
        pulls = np.linalg.norm(np.einsum("ikl,ik->il", matrix, target), axis=1).sum()
        tree = minimum_spanning_tree(sparse.csr_array((1 / ratios, (edges[:, 0], edges[:, 1])), shape=(n, n)))
        strength = min(lam / size / force * heaviest, 2 * float(pulls) * float(tree.data.max()))
    y, z = cvxpy.Variable(n * d), cvxpy.Variable(len(edges) * d)
    split = sparse.kron(_incidence(edges, n), sparse.eye_array(d), format="csr") @ y == z
    fit = sparse.csr_array(sparse.block_diag(list(matrix))) @ y - target.ravel()
    paid = penalty_expression(cvxpy, penalty, z, strength * ratios, d)
    model = cvxpy.Problem(cvxpy.Minimize(0.5 * cvxpy.sum_squares(fit) + paid), [split])
    status = _run(cvxpy, model, solver, eps)
    if y.value is None or split.dual_value is None or status == "numerical_error":
        nothing = np.full((n, d), np.nan), np.full((len(edges), d), np.nan)
        return *nothing, "numerical_error"
    u: FloatArray = y.value.reshape(n, d) * (force / size)
    v: FloatArray = split.dual_value.reshape(len(edges), d) * (size * force)
    return u, v, status


def _ball_factors(flow: FloatArray, radii: FloatArray) -> FloatArray:
    """Factor for each edge that brings its dual strictly inside its ball."""
    norms = row_norms(flow)
    outside = norms > radii * (1 - 4 * EPS)
    return np.divide(radii * (1 - 8 * EPS), norms, out=np.ones_like(norms), where=outside & (norms > 0))


def _into_ranges(
    flow: FloatArray, incidence: sparse.csr_array, right: FloatArray, held: NDArray[np.bool_]
) -> FloatArray:
    """The nearest flow whose sum at each node has no part in the null space of that node's Hessian."""
    n, d = right.shape[:2]
    node, direction = np.nonzero(~held)
    rows = np.repeat(np.arange(len(node)), d)
    columns = (node[:, None] * d + np.arange(d)).ravel()
    null = sparse.csr_array((right[node, direction].ravel(), (rows, columns)), shape=(len(node), n * d))
    constraint = null @ sparse.kron(incidence.T, sparse.eye_array(d), format="csr")
    gram = (constraint @ constraint.T).toarray()
    multiplier = np.linalg.lstsq(gram, constraint @ flow.ravel(), rcond=None)[0]
    corrected: FloatArray = flow - (constraint.T @ multiplier).reshape(flow.shape)
    return corrected
