"""Extremes of gradient differences over the sublevel set of Remarks 2 and 3."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fusionopt.losses.base import QuadraticNodeLoss
from fusionopt.problem import FusionProblem
from fusionopt.recovery._model import curvature_bounds, pooled_minimisers
from fusionopt.recovery._nodes import EPS, apply_blocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def sublevel_bounds(problem: FusionProblem, names: IntArray) -> tuple[float, float, bool, bool]:
    """(23), (24) for weight one, and whether each is exact."""
    loss, sizes = problem.loss, np.bincount(names)
    means = pooled_minimisers(loss, names)
    common = pooled_minimisers(loss, np.zeros_like(names))
    at_means = loss.gradient(means[names])
    share = 2.0 * float(len(names) - sizes.min())
    if isinstance(loss, QuadraticNodeLoss):
        lower, upper = _quadratic(loss, names, means, common, at_means)
        return lower, upper / share if len(sizes) > 1 else np.inf, True, True
    rest = max(loss.value(np.broadcast_to(common, at_means.shape)) - loss.value(means[names]), 0.0)
    strong, lipschitz = curvature_bounds(loss)
    moduli = np.bincount(names, weights=strong)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.where(rest == 0, 0.0, np.sqrt(2.0 * rest / moduli))
    lower, upper = 0.0, np.inf
    for k in range(len(sizes)):
        nodes = np.flatnonzero(names == k)
        for place, i in enumerate(nodes[:-1]):
            others = nodes[place + 1 :]
            sharp = np.maximum(lipschitz[i] - strong[others], lipschitz[others] - strong[i])
            largest = np.sqrt(np.square(at_means[i] - at_means[others]).sum(axis=1)) + _moved(sharp, reach[k])
            lower = max(lower, float(largest.max()) / len(nodes))
        if len(sizes) > 1:
            gradients = _means(loss.gradient(np.broadcast_to(means[k], at_means.shape)), names, sizes)
            tops, bottoms = (np.bincount(names, weights=v) / sizes for v in (lipschitz, strong))
            sharp = np.maximum(tops[k] - bottoms, tops - bottoms[k])
            least = np.sqrt(np.square(gradients[k] - gradients).sum(axis=1)) - _moved(sharp, reach[k])
            upper = min(upper, float(np.delete(least, k).min()))
    return lower, max(upper, 0.0) / share if len(sizes) > 1 else np.inf, False, False


def _moved(sharp: FloatArray, reach: float) -> FloatArray:
    """sharp * reach with 0 * inf = 0: equal constants cannot part."""
    moved: FloatArray = np.where(sharp > 0, np.where(sharp > 0, sharp, 1.0) * reach, 0.0)
    return moved


def _means(rows: FloatArray, names: IntArray, sizes: IntArray) -> FloatArray:
    out = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(out, names, rows)
    out /= sizes[:, None]
    return out


def _quadratic(
    loss: QuadraticNodeLoss, names: IntArray, means: FloatArray, common: FloatArray, at_means: FloatArray
) -> tuple[float, float]:
    sizes, d = np.bincount(names), loss.n_features
    hessians = loss.hessians()
    blocks = hessians[:, None, None] * np.eye(d) if hessians.ndim == 1 else hessians
    sums = np.zeros((len(sizes), d, d))
    np.add.at(sums, names, blocks)
    away = common - means
    radius = float(np.sqrt(max(float((away * apply_blocks(sums, away)).sum()), 0.0)))
    lower, upper = 0.0, np.inf
    for k in range(len(sizes)):
        root = radius * _inverse_root(sums[k])
        nodes = np.flatnonzero(names == k)
        for place, i in enumerate(nodes[:-1]):
            for j in nodes[place + 1 :]:
                found = farthest((blocks[i] - blocks[j]) @ root, at_means[i] - at_means[j])
                lower = max(lower, found / len(nodes))
        if len(sizes) > 1:
            gradients = _means(loss.gradient(np.broadcast_to(means[k], at_means.shape)), names, sizes)
            for other in range(len(sizes)):
                if other != k:
                    turn = (sums[k] / sizes[k] - sums[other] / sizes[other]) @ root
                    upper = min(upper, nearest(turn, gradients[k] - gradients[other]))
    return lower, upper


def _inverse_root(matrix: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(matrix)
    kept = values > 16 * len(values) * EPS * max(float(values[-1]), 0.0)
    scale = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    root: FloatArray = (vectors * scale) @ vectors.T
    return root


def farthest(matrix: FloatArray, offset: FloatArray) -> float:
    """max over ||s|| <= 1 of ||matrix s + offset||: a trust-region problem, exact by its secular equation."""
    if not np.any(matrix):
        return float(np.linalg.norm(offset))
    u, sigma, _ = np.linalg.svd(matrix)
    c = u.T @ offset
    top = float(sigma[0]) ** 2
    pull = sigma * c
    # s = pull / (mu - sigma^2) with mu >= top and ||s|| = 1.
    gap = top - sigma**2
    first = sigma >= sigma[0] * (1.0 - 8 * EPS)

    def excess(extra: float) -> float:
        return float(np.square(pull / (gap + extra)).sum()) - 1.0

    high = float(np.linalg.norm(pull))
    s = np.zeros_like(sigma)
    if high == 0:
        s[0] = 1.0
    else:
        # Without pull along the leading direction the root may lie at mu = top: the rest of s is free there.
        tiny = high * EPS
        if excess(tiny) > 0:
            s = pull / (gap + brentq(excess, tiny, 2.0 * high, xtol=0.0 + tiny * EPS, rtol=8 * EPS))
        else:
            s = np.where(first, 0.0, pull / np.where(first, 1.0, gap))
            s[0] = np.sqrt(max(1.0 - float(s @ s), 0.0)) * (1.0 if c[0] >= 0 else -1.0)
    return float(np.linalg.norm(sigma * s + c))


def nearest(matrix: FloatArray, offset: FloatArray) -> float:
    """min over ||s|| <= 1 of ||matrix s + offset||: convex, by its secular equation."""
    if not np.any(matrix):
        return float(np.linalg.norm(offset))
    u, sigma, _ = np.linalg.svd(matrix)
    c = u.T @ offset
    kept = sigma > 8 * len(sigma) * EPS * sigma[0]
    free = np.where(kept, -c / np.where(kept, sigma, 1.0), 0.0)
    if float(free @ free) <= 1.0:
        return float(np.linalg.norm(np.where(kept, 0.0, c)))
    pull = sigma * c

    def excess(mu: float) -> float:
        return float(np.square(pull / (sigma**2 + mu)).sum()) - 1.0

    high = float(np.linalg.norm(pull))
    low = high * EPS
    while excess(low) <= 0:  # the root is closer to zero than the pull's own rounding
        low *= EPS
    mu = brentq(excess, low, high, xtol=low * EPS, rtol=8 * EPS)
    s = -pull / (sigma**2 + mu)
    return float(np.linalg.norm(sigma * s + c))
