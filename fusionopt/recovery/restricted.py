"""The problem over x that is constant on the clusters of a partition, solved to rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.problem import FusionProblem
from fusionopt.recovery._model import ClusterModel, build_model, cluster_minimisers
from fusionopt.recovery._newton import Newton
from fusionopt.recovery._nodes import BEYOND, EPS, lengths, traces

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
        Any smooth convex losses, `L2Norm`.
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
        A wrong shape, another penalty.

    Notes
    -----
    Damped Newton steps on sqrt(||.||^2 + delta^2) with a falling delta, then on the norm itself once the
    centres are apart. Each step factors a (K d) matrix (dense up to 250 unknowns, sparse on edge lists),
    or runs conjugate gradients beyond. The gap is 1/2 sum_k ||r_k||^2 / mu_k, mu_k a modulus of strong
    convexity of cluster k, plus the slack of the dual.

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


@BEYOND
def published(model: ClusterModel, solution: ScaledSolution) -> RestrictedSolution:
    """In the units of the data."""
    centers = model.to_centers(solution.y)
    norms = lengths(solution.residuals)
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


@BEYOND
def solve_scaled(model: ClusterModel, start: FloatArray | None = None) -> ScaledSolution:
    """The restricted problem in the units of the model; see `solve_restricted`."""
    newton = Newton(model)
    alone = cluster_minimisers(model)
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
    norms = lengths(residual)
    return bool((norms <= times * _residual_errors(newton, y)).all())


def _residual_errors(newton: Newton, y: FloatArray) -> FloatArray:
    """Bounds (K,) on the norm of the rounding error of the residuals at y."""
    coupling = newton.coupling
    pulls = EPS * (coupling.n_terms + newton.model.n_features + 8) * coupling.total
    errors: FloatArray = newton.sums.gradient_errors(y) + pulls
    return errors


def _finish(newton: Newton, y: FloatArray, delta: float) -> ScaledSolution:
    """Gap, radii and separation at y with the duals of the smoothed norm (the norm itself at delta = 0)."""
    model = newton.model
    pull = model.coupling.pull(y, delta)
    residuals = newton.sums.gradients(y) + pull.force
    errors = _residual_errors(newton, y)
    mu = newton.sums.strong_convexity()
    slack = pull.slack + 8 * EPS * pull.value * (delta > 0)
    norms = lengths(residuals)
    gap = slack + _half_squares(norms + errors, mu)
    radii, rounding_radii = _radii(gap, mu), _radii(_half_squares(errors, mu), mu)
    if not np.isfinite(gap) and delta == 0:
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
    """Gap, radius and radius from rounding alone where some cluster has no modulus that holds everywhere.

    Let a be below the second derivatives on the ball of radius t >= 2 ||r|| / a around y. Then F(y') >= F(y) -
    ||r|| t + a t^2 / 2 >= F(y) on the ball's surface, so a minimiser, the only one, lies inside, and F(y) is at
    most ||r||^2 / (2 a) above it. First with the losses alone; where a summed Hessian is singular, with the
    penalty, whose second derivative may change by half of a on the ball.
    """
    total, total_rounding = (float(np.sqrt(np.square(v).sum())) for v in (norms, errors))
    k, d = y.shape
    doubt: float = float(newton.sums.hessian_errors(y).max())

    def least(reach: float, penalty: bool) -> float:
        blocks: FloatArray = newton.sums.below(y, reach)
        if not np.isfinite(blocks).all():
            return -np.inf
        if not penalty:
            values = blocks if blocks.ndim == 1 else np.linalg.eigvalsh(blocks)[:, 0]
            return float(values.min() - (8.0 * d + 32) * EPS * traces(blocks, d).max() - doubt)
        matrix = newton.dense(y, 0.0, blocks)
        size = float(np.abs(matrix).sum(axis=1).max())
        return float(np.linalg.eigvalsh(matrix)[0] - (k * d + 32) * EPS * size - doubt)

    for penalty in (False, True):
        if penalty and y.size > _EIGEN_LIMIT:
            break
        first = least(0.0, penalty)
        if not first > 0:
            continue
        reach = 8.0 * total / first
        modulus = least(reach, penalty)
        if not modulus >= 0.5 * first:
            continue
        if penalty:
            if not newton.coupling.curvature_drift(y, reach) <= 0.5 * modulus:
                continue
            modulus *= 0.5
        return 0.5 * total * total / modulus, 2.0 * total / modulus, 2.0 * total_rounding / modulus
    return None


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
