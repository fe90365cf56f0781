"""The problem over x that is constant on the clusters of a partition, solved to rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.problem import FusionProblem
from fusionopt.recovery._model import EPS, ClusterModel, apply_blocks, build_model, traces
from fusionopt.recovery._newton import Newton

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_EIGEN_LIMIT = 1000
"""Up to this many unknowns the least eigenvalue of the Newton matrix is computed where it is needed."""


@dataclass(frozen=True, eq=False)
class RestrictedSolution:
    """What `solve_restricted` reached.

    Attributes
    ----------
    labels : int64 (m,)
        The partition, in first-appearance order.
    centers : float64 (K, d)
        One row for each cluster, rounded to the units of the data.
    objective : float
        F of the centres.
    gap : float
        A bound on objective minus the restricted optimum from a feasible dual, rounding of the residual
        included; inf where a cluster's summed Hessian is singular and the penalty does not make up for it.
    residual : float
        Largest Euclidean norm of a centre's gradient, in the units of lam times weight.
    separated : bool
        The centres of all clusters joined by an edge are different. False: the partition is too fine at
        this lam (its restricted optimum fuses clusters), and the centres are the best point found.
    radii : float64 (K,)
        The restricted optimum's centre k lies within radii[k] of centers[k]; inf where the bound does not
        hold.
    n_iter : int
        Newton steps.
    """

    labels: IntArray
    centers: FloatArray
    objective: float
    gap: float
    residual: float
    separated: bool
    radii: FloatArray
    n_iter: int


@dataclass(frozen=True, eq=False)
class ScaledSolution:
    """The same in the units of the model."""

    y: FloatArray
    residuals: FloatArray
    """(K, d)."""
    residual_errors: FloatArray
    """(K,): bounds on the rounding error of the residuals' norms."""
    mu: FloatArray
    """(K,): lower bounds on the least eigenvalue of the summed Hessians, >= 0."""
    gap: float
    radii: FloatArray
    rounding_radii: FloatArray
    """(K,): the radii if the residuals were exactly zero."""
    separated: bool
    n_iter: int


def solve_restricted(
    problem: FusionProblem, labels: ArrayLike, start: ArrayLike | None = None
) -> RestrictedSolution:
    """minimise over w_1..w_K:  sum_k sum_{i in C_k} f_i(w_k) + lam sum_{k<l} W_kl ||w_k - w_l||_2.

    W_kl is the sum of the weights of the edges between clusters k and l.

    Parameters
    ----------
    problem : FusionProblem
        Quadratic losses, `L2Norm`.
    labels : array-like (m,)
        The partition, any labels.
    start : array-like (K, d), or None
        Centres to start from, clusters in the order of their first appearance.

    Returns
    -------
    RestrictedSolution
        The global optimum to rounding when `separated`.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong shape, another loss or penalty.

    Notes
    -----
    Damped Newton steps on sqrt(||.||^2 + delta^2) with a falling delta, then on the norm itself once the
    centres are apart. Each step factors a (K d) matrix (dense up to 250 unknowns, sparse on edge lists),
    or runs conjugate gradients beyond. The gap is 1/2 sum_k ||r_k||^2 in the inverse summed Hessian, plus
    the slack of the dual.

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance
    >>> problem = FusionProblem(SquaredDistance([0.0, 1.0, 10.0]), lam=1.0)
    >>> solve_restricted(problem, [0, 0, 1]).centers.ravel().tolist()
    [1.5, 8.0]
    """
    model = build_model(problem, labels)
    first = None
    if start is not None:
        shape = (model.n_clusters, model.n_features)
        first = model.from_centers(_checks.as_point("start", start, shape))
    return published(model, solve_scaled(model, first))


def published(model: ClusterModel, solution: ScaledSolution) -> RestrictedSolution:
    """In the units of the data."""
    centers = model.to_centers(solution.y)
    norms = np.sqrt(np.square(solution.residuals).sum(axis=1))
    penalty = model.coupling.pull(solution.y, 0.0).value * model.value_unit
    return RestrictedSolution(
        labels=model.labels,
        centers=centers,
        objective=model.loss.value(centers[model.labels]) + penalty,
        gap=solution.gap * model.value_unit,
        residual=float(norms.max()) * model.gradient_unit,
        separated=solution.separated,
        radii=solution.radii * model.step_unit,
        n_iter=solution.n_iter,
    )


def solve_scaled(model: ClusterModel, start: FloatArray | None = None) -> ScaledSolution:
    """The restricted problem in the units of the model; see `solve_restricted`."""
    newton = Newton(model)
    alone = -apply_blocks(newton.inverses(), newton.gradients)
    y = alone if start is None else start
    if model.coupling.total.max(initial=0.0) == 0:
        return _finish(newton, alone, 0.0)
    if start is not None:
        polished = _polish(newton, y)
        if polished is not None:
            return _finish(newton, polished, 0.0)
    scale = float(np.abs(alone).max())
    if scale == 0:
        scale = float(np.abs(y).max())
    if scale == 0:
        return _finish(newton, y, 0.0)
    delta, previous = scale, np.inf
    for _ in range(13):
        y = _descend(newton, y, delta)
        distance = model.coupling.smallest_distance(y)
        if distance > delta:
            polished = _polish(newton, y)
            if polished is not None:
                return _finish(newton, polished, 0.0)
        # A pair that is fused at the optimum keeps distance / delta at a constant as delta falls.
        if delta <= 1e-6 * scale and abs(distance / delta - previous) <= 0.05 * previous:
            break
        previous = distance / delta
        delta *= 0.1
    return _finish(newton, y, delta)


def _descend(newton: Newton, y: FloatArray, delta: float) -> FloatArray:
    """Newton steps at a fixed delta until the moves are small against it."""
    residual = newton.residual(y, delta)
    for _ in range(50):
        y, residual, move = newton.step(y, delta, residual)
        if move <= 0.02 * delta:
            break
    return y


def _polish(newton: Newton, y: FloatArray) -> FloatArray | None:
    """Newton steps on the norm itself down to rounding; None when a pair of centres does not stay apart."""
    coupling = newton.coupling
    apart = coupling.smallest_distance(y)
    if not apart > 0:
        return None
    residual = newton.residual(y, 0.0)
    if _at_rounding(newton, y, residual, 4.0):
        return y
    size = float(np.abs(residual).max())
    best, best_size, stalls = y, size, 0
    for _ in range(40):
        y, residual, _ = newton.step(y, 0.0, residual)
        distance = coupling.smallest_distance(y)
        if not distance > 0.1 * apart:
            return None
        size = float(np.abs(residual).max())
        stalls = 0 if size < 0.5 * best_size else stalls + 1
        if size < best_size:
            best, best_size = y, size
        if stalls == 3 or size == 0:
            break
    # A point that stalled far from rounding is not the solution: let a smaller delta bring a better start.
    return best if _at_rounding(newton, best, newton.residual(best, 0.0), 1e4) else None


def _at_rounding(newton: Newton, y: FloatArray, residual: FloatArray, times: float) -> bool:
    norms = np.sqrt(np.square(residual).sum(axis=1))
    return bool((norms <= times * _residual_errors(newton, y)).all())


def _residual_errors(newton: Newton, y: FloatArray) -> FloatArray:
    """Bounds (K,) on the norm of the rounding error of the residuals at y."""
    model, coupling, d = newton.model, newton.coupling, newton.model.n_features
    norms = np.sqrt(np.square(model.gradients).sum(axis=1))
    sizes = model.sizes.astype(np.float64)
    lengths = np.sqrt(np.square(y).sum(axis=1))
    gradient = model.sum_clusters(model.gradient_errors) + EPS * sizes * model.sum_clusters(norms)
    curvature = traces(newton.hessians, d)
    hessian = model.sum_clusters(model.hessian_errors) + EPS * (sizes + 2 * d) * curvature
    pulls = EPS * (coupling.n_terms + d + 8) * coupling.total
    errors: FloatArray = gradient + hessian * lengths + pulls
    return errors


def _least_eigenvalues(newton: Newton) -> FloatArray:
    """Lower bounds (K,), >= 0, on the least eigenvalue of each summed Hessian."""
    model, d = newton.model, newton.model.n_features
    hessians = newton.hessians
    least = hessians if hessians.ndim == 1 else np.linalg.eigvalsh(hessians)[:, 0]
    rounding = model.sum_clusters(model.hessian_errors)
    rounding = rounding + EPS * (model.sizes + 8.0 * d) * traces(hessians, d)
    bounds: FloatArray = np.maximum(least - rounding, 0.0)
    return bounds


def _finish(newton: Newton, y: FloatArray, delta: float) -> ScaledSolution:
    """Gap, radii and separation at y with the duals of the smoothed norm (the norm itself at delta = 0)."""
    model = newton.model
    pull = model.coupling.pull(y, delta)
    residuals = newton.smooth_part(y) + pull.force
    errors = _residual_errors(newton, y)
    mu = _least_eigenvalues(newton)
    slack = pull.slack + 8 * EPS * pull.value * (delta > 0)
    norms = np.sqrt(np.square(residuals).sum(axis=1))
    gap = slack + _half_squares(norms + errors, mu)
    radii, rounding_radii = _radii(gap, mu), _radii(_half_squares(errors, mu), mu)
    if not np.isfinite(gap) and delta == 0 and y.size <= _EIGEN_LIMIT:
        local = _local_bounds(newton, y, norms + errors, errors)
        if local is not None:
            gap, reach, rounding_reach = local
            radii, rounding_radii = np.full_like(mu, reach), np.full_like(mu, rounding_reach)
    if np.isfinite(radii).all():
        separated = len(model.coupling.pairs_below(y, radii)[0]) == 0
    else:  # no bound exists: say what the iteration saw
        separated = delta == 0 and model.coupling.smallest_distance(y) > 0
    return ScaledSolution(y, residuals, errors, mu, gap, radii, rounding_radii, separated, newton.n_iter)


def _local_bounds(
    newton: Newton, y: FloatArray, norms: FloatArray, errors: FloatArray
) -> tuple[float, float, float] | None:
    """Gap, radius and radius from rounding alone where a summed Hessian is singular but the penalty bends
    the rest.

    Let a be the least eigenvalue of the second derivative at y. If it stays above a/2 on the ball of radius
    t = 4 ||r|| / a, then F(y') >= F(y) - ||r|| t + a t^2 / 4 = F(y) on the ball's surface, so a minimiser,
    the only one, lies inside, and F(y) is at most ||r||^2 / a above it.
    """
    k, d = y.shape
    matrix = newton.dense(y, 0.0)
    size = float(np.abs(matrix).sum(axis=1).max())
    rounding = (k * d + 32) * EPS * size + float(newton.model.sum_clusters(newton.model.hessian_errors).max())
    least = float(np.linalg.eigvalsh(matrix)[0]) - rounding
    if not least > 0:
        return None
    total, total_rounding = (float(np.sqrt(np.square(v).sum())) for v in (norms, errors))
    reach = 4.0 * total / least
    if not newton.coupling.curvature_drift(y, reach) <= 0.5 * least:
        return None
    return total * total / least, reach, 4.0 * total_rounding / least


def _half_squares(norms: FloatArray, mu: FloatArray) -> float:
    """1/2 sum norms^2 / mu, with 0 / 0 = 0."""
    if bool((norms[mu <= 0] > 0).any()):
        return np.inf
    return 0.5 * float(np.divide(np.square(norms), mu, out=np.zeros_like(mu), where=mu > 0).sum())


def _radii(gap: float, mu: FloatArray) -> FloatArray:
    """sqrt(2 gap / mu): the strongly convex objective cannot be within gap of its minimum further away."""
    radii: FloatArray = np.full_like(mu, np.inf)
    positive = mu > 0
    if np.isfinite(gap):
        radii[positive] = np.sqrt(2.0 * gap / mu[positive])
    return radii
