"""Assumption 3 of Armacki et al.: gradient differences over all x, in closed form where they are bounded."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.losses._glm import GlmLoss
from fusionopt.losses.base import NodeLoss, QuadraticNodeLoss
from fusionopt.losses.huber import Huber
from fusionopt.recovery._nodes import EPS, lengths, traces
from fusionopt.recovery._ranges import row_lengths

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def difference_bounds(loss: NodeLoss, names: IntArray) -> tuple[FloatArray, FloatArray]:
    """epsilon (K,) and delta (K, K); refused where some epsilon is infinite or not known."""
    if isinstance(loss, QuadraticNodeLoss):
        return _quadratic(loss, names)
    if isinstance(loss, Huber):
        return _distance(loss, names)
    if isinstance(loss, GlmLoss):
        return _predictions(loss, names)
    _refuse(f"loss {type(loss).__name__} has no known bound on its gradient differences", type(loss).__name__)


def _refuse(reason: str, got: str) -> NoReturn:
    _checks.refuse(
        f"{reason}, so epsilon of Assumption 3 is infinite or unknown and Theorem 3 says nothing; use theorem1_bound, "
        "min_flow or recovery_interval.",
        argument="problem",
        got=got,
        wanted="losses with bounded gradient differences inside the clusters",
    )


def _quadratic(loss: QuadraticNodeLoss, names: IntArray) -> tuple[FloatArray, FloatArray]:
    hessians, linear, k = loss.hessians(), loss.linear(), int(names.max()) + 1
    sizes = traces(hessians, loss.n_features)
    inside, between = np.zeros(k), np.full((k, k), np.inf)
    for i in range(len(names)):
        offsets = linear[i] - linear
        turns = hessians[i] - hessians
        same = _zero(turns, sizes + sizes[i], loss.n_features)
        mates = names == names[i]
        if not same[mates].all():
            j = int(np.flatnonzero(mates & ~same)[0])
            _refuse(f"nodes {i} and {j} of one cluster have different Hessians", type(loss).__name__)
        inside[names[i]] = max(inside[names[i]], float(lengths(offsets[mates]).max()))
        others = np.flatnonzero(~mates)
        least = _residuals(turns[others], offsets[others], same[others], sizes[others] + sizes[i])
        np.minimum.at(between[names[i]], names[others], least)
    return inside, between


def _distance(loss: Huber, names: IntArray) -> tuple[FloatArray, FloatArray]:
    """A clipped force m P(x - a): two of them differ most half way between their targets, and far away they are
    equal, so delta is 0. Different weights: by the triangle inequality.
    """
    k = int(names.max()) + 1
    inside, weights = np.zeros(k), loss.sample_weight
    for i in range(len(names)):
        mates = np.flatnonzero(names == names[i])
        apart = np.minimum(lengths(loss.targets[i] - loss.targets[mates]), 2.0 * loss.delta)
        common = np.minimum(weights[i], weights[mates])
        largest = common * apart + np.abs(weights[i] - weights[mates]) * loss.delta
        inside[names[i]] = max(inside[names[i]], float(largest.max()))
    return inside, np.zeros((k, k))


def _predictions(loss: GlmLoss, names: IntArray) -> tuple[FloatArray, FloatArray]:
    """Slopes within [low, high]: gradients less the ridge are within mean(w sup |phi'| ||z||) of zero."""
    low, high = loss._family.slope_range(loss._targets)
    slopes = np.maximum(np.abs(low), np.abs(high))
    if not np.isfinite(slopes).all():
        _refuse(f"gradients of {type(loss).__name__} grow without bound", type(loss).__name__)
    reach = loss._design.means(loss._weights * slopes * row_lengths(loss))
    k = int(names.max()) + 1
    inside = np.zeros(k)
    for name in range(k):
        largest = np.sort(reach[names == name])[-2:]
        inside[name] = float(largest.sum()) if len(largest) == 2 else 0.0
    return inside, np.zeros((k, k))


def _zero(turns: FloatArray, sizes: FloatArray, d: int) -> BoolArray:
    """Which Hessian differences are zero up to the rounding of computing the Hessians."""
    largest = np.abs(turns) if turns.ndim == 1 else np.abs(turns).max(axis=(1, 2))
    zero: BoolArray = largest <= 8 * d * EPS * sizes
    return zero


def _residuals(turns: FloatArray, offsets: FloatArray, same: BoolArray, sizes: FloatArray) -> FloatArray:
    """min over x of ||turn x - offset||: what of the offset lies outside the range of the turn."""
    norms = lengths(offsets)
    if turns.ndim == 1:
        return np.where(same, norms, 0.0)
    values, vectors = np.linalg.eigh(turns)
    flat = np.abs(values) <= 8 * turns.shape[1] * EPS * sizes[:, None]
    along = np.einsum("iab,ia->ib", vectors, offsets)
    left: FloatArray = np.sqrt(np.where(flat, np.square(along), 0.0).sum(axis=1))
    return np.where(same, norms, left)
