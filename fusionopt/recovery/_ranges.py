"""How far the curvature of a loss can change on a ball around each node's point."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.losses._families import Family, HuberFamily, LogisticFamily, PoissonFamily
from fusionopt.losses._glm import GlmLoss
from fusionopt.losses.base import NodeLoss
from fusionopt.losses.huber import Huber
from fusionopt.losses.softmax import Softmax
from fusionopt.recovery._nodes import EPS, as_matrices, traces

FloatArray = NDArray[np.float64]


def hessian_range(loss: NodeLoss, x: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Matrices (m, d, d) below and above every Hessian of f_i on the ball of radius_i around x_i.

    Rounding of the sums that make the Hessians is not counted, see `hessian_errors`; that of reading x is.
    Losses that are not listed here keep to the bounds that hold everywhere.
    """
    if isinstance(loss, GlmLoss):
        return _of_predictions(loss, x, radius)
    if isinstance(loss, Softmax):
        return _of_softmax(loss, x, radius)
    if isinstance(loss, Huber):
        return _of_distance(loss, x, radius)
    most = loss.majorant()
    if most is None:
        _checks.refuse(
            f"loss is {type(loss).__name__} without a Lipschitz constant, so its curvature is not known beyond the "
            "points where it was evaluated; give one (lipschitz=).",
            argument="problem",
            got=type(loss).__name__,
            wanted="a loss with bounded curvature",
        )
    d = loss.n_features
    return as_matrices(loss.strong_convexity(), d), as_matrices(most, d)


def hessian_errors(loss: NodeLoss, x: FloatArray, hessians: FloatArray) -> FloatArray:
    """(m,): bounds on the spectral norm of the rounding error of `hessians_at` and of the matrices above."""
    chain = np.full(loss.n_nodes, 32.0 + 8.0 * loss.n_features)
    if isinstance(loss, GlmLoss | Softmax):
        design = loss._design
        chain = chain + design.counts
        if isinstance(loss, Softmax) or isinstance(loss._family, LogisticFamily | PoissonFamily):
            # Their curvatures are exponentials, which round their arguments; those of the others are 0, 1 or 2.
            rows = x if isinstance(loss, GlmLoss) else x.reshape(loss.n_nodes, -1, loss.n_classes)
            arguments = np.abs(design.absolute().predict(np.abs(rows))).reshape(len(design.nodes), -1)
            chain = chain + 8.0 * np.maximum.reduceat(arguments.max(axis=1), design.offsets[:-1])
    bound: FloatArray = EPS * chain * traces(hessians, loss.n_features)
    return bound


def _of_predictions(loss: GlmLoss, x: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means of phi''(eta) z z': each eta = z'x stays within ||z|| radius."""
    design, family, y = loss._design, loss._family, loss._targets
    eta, lengths = design.predict(x), row_lengths(loss)
    reading = (design.n_columns + 2) * EPS * design.absolute().predict(np.abs(x))
    reach = (lengths * radius[design.nodes] + reading) * (1.0 + 4 * EPS)
    with np.errstate(over="ignore"):
        ends = [family.curvature(end, y) for end in (eta - reach, eta + reach)]
        # Every phi'' here rises to a peak and falls: its least value on an interval is at an end.
        low = np.minimum(*ends)
        high = family.curvature(np.clip(_peak(family, y), eta - reach, eta + reach), y)
        high = np.maximum(high, np.maximum(*ends))
    return (
        loss._with_ridge(design.gram(loss._weights * low)),
        loss._with_ridge(design.gram(loss._weights * high)),
    )


def _peak(family: Family, y: FloatArray) -> FloatArray:
    """Where phi'' is largest."""
    if isinstance(family, LogisticFamily):
        return np.zeros_like(y)
    if isinstance(family, HuberFamily):
        return y
    # Both ends are looked at anyway: a squared hinge and an exponential are monotone.
    return np.full_like(y, np.inf)


def row_lengths(loss: GlmLoss | Softmax) -> FloatArray:
    """||z_s|| for every sample."""
    rows = loss._design.rows
    if isinstance(rows, np.ndarray):
        norms: FloatArray = np.sqrt(np.einsum("sp,sp->s", rows, rows))
        return norms
    return np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64)).ravel()


def _of_softmax(loss: Softmax, x: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """K = diag(pi) - pi pi' changes by at most exp(max_c h_c - min_c h_c) <= exp(sqrt(2) ||h||) when eta moves by h.

    u'Ku is the variance of u under pi, and its derivative along h is at most that spread times itself.
    """
    design = loss._design
    lengths = np.maximum.reduceat(row_lengths(loss), design.offsets[:-1])
    hessians = loss.hessians_at(x)
    ridge = loss.ridge * np.eye(loss.n_features)
    with np.errstate(over="ignore", invalid="ignore"):
        factor = np.exp(np.sqrt(2.0) * lengths * radius * (1.0 + 8 * EPS))[:, None, None]
        curved = hessians - ridge
        return curved / factor + ridge, np.where(curved == 0, 0.0, curved * factor) + ridge


def _of_distance(loss: Huber, x: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """m I inside, m delta / r (I - uu') outside; u turns by at most 2 radius / r."""
    away = x - loss.targets
    r = np.sqrt(np.square(away).sum(axis=1))
    reach = radius + 4 * EPS * (
        np.sqrt(np.square(x).sum(axis=1)) + np.sqrt(np.square(loss.targets).sum(axis=1)) + r
    )
    eye = np.eye(loss.n_features)
    inside, outside = r + reach <= loss.delta, r - reach > loss.delta
    unit = away / np.where(r > 0, r, 1.0)[:, None]
    tangent = eye - unit[:, :, None] * unit[:, None, :]
    turn = np.divide(4.0 * reach, r, out=np.full_like(r, np.inf), where=r > reach)
    weak = np.divide(loss.delta, r + reach, out=np.zeros_like(r), where=r + reach > 0)
    strong = np.divide(loss.delta, r - reach, out=np.ones_like(r), where=outside)
    turned = np.where(outside, turn, 0.0)[:, None, None] * eye
    low = np.where(outside[:, None, None], weak[:, None, None] * (tangent - turned), 0.0)
    high = np.where(outside[:, None, None], strong[:, None, None] * (tangent + turned), eye)
    low = np.where(inside[:, None, None], eye, low)
    weights = loss.sample_weight[:, None, None]
    return weights * low, weights * high
