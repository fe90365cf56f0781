"""Assumption 3 of Armacki et al.: gradient differences over all x, in closed form where they are bounded."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.losses.base import NodeLoss, QuadraticNodeLoss
from fusionopt.recovery._nodes import EPS, traces

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def difference_bounds(loss: NodeLoss, names: IntArray) -> tuple[FloatArray, FloatArray]:
    """epsilon (K,) and delta (K, K); refused where some epsilon is infinite or not known."""
    if isinstance(loss, QuadraticNodeLoss):
        return _quadratic(loss, names)
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
        inside[names[i]] = max(inside[names[i]], float(_norms(offsets[mates]).max()))
        others = np.flatnonzero(~mates)
        least = _residuals(turns[others], offsets[others], same[others], sizes[others] + sizes[i])
        np.minimum.at(between[names[i]], names[others], least)
    return inside, between


def _zero(turns: FloatArray, sizes: FloatArray, d: int) -> BoolArray:
    """Which Hessian differences are zero up to the rounding of computing the Hessians."""
    largest = np.abs(turns) if turns.ndim == 1 else np.abs(turns).max(axis=(1, 2))
    zero: BoolArray = largest <= 8 * d * EPS * sizes
    return zero


def _norms(rows: FloatArray) -> FloatArray:
    norms: FloatArray = np.sqrt(np.square(rows).sum(axis=1))
    return norms


def _residuals(turns: FloatArray, offsets: FloatArray, same: BoolArray, sizes: FloatArray) -> FloatArray:
    """min over x of ||turn x - offset||: what of the offset lies outside the range of the turn."""
    norms = _norms(offsets)
    if turns.ndim == 1:
        return np.where(same, norms, 0.0)
    values, vectors = np.linalg.eigh(turns)
    flat = np.abs(values) <= 8 * turns.shape[1] * EPS * sizes[:, None]
    along = np.einsum("iab,ia->ib", vectors, offsets)
    left: FloatArray = np.sqrt(np.where(flat, np.square(along), 0.0).sum(axis=1))
    return np.where(same, norms, left)
