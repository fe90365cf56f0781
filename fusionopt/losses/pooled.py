"""The point that minimises the summed losses of each group of nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusionopt.losses.base import EPS, NodeLoss, QuadraticNodeLoss

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def pooled_minimiser(loss: QuadraticNodeLoss, labels: IntArray) -> FloatArray:
    """Row k minimises sum_{i: labels_i = k} f_i; of minimum norm where that is not unique.

    Parameters
    ----------
    loss : QuadraticNodeLoss
    labels : int64 (n_nodes,)
        Groups 0..K-1.

    Returns
    -------
    float64 (K, n_features)
    """
    d = loss.n_features
    total = pooled_hessians(loss, labels)
    n = len(total)
    # Newton from zero, and once more: the second step takes out the rounding of the first at large offsets.
    centre = np.zeros((n, d))
    for _ in range(2):
        force = np.zeros((n, d))
        np.add.at(force, labels, -loss.gradient(centre[labels]))
        if total.ndim == 1:
            centre += np.divide(force, total[:, None], out=np.zeros_like(force), where=total[:, None] > 0)
        else:
            inverse = np.linalg.pinv(total, rcond=8 * d * EPS, hermitian=True)
            centre += np.einsum("kab,kb->ka", inverse, force)
    return centre


def pooled_hessians(loss: QuadraticNodeLoss, labels: IntArray) -> FloatArray:
    """Summed H_i of each group: (K,) for scalar Hessians, (K, d, d) otherwise."""
    hessians = loss.hessians()
    total = np.zeros((int(labels.max()) + 1, *hessians.shape[1:]))
    np.add.at(total, labels, hessians)
    return total


def null_projectors(hessians: FloatArray, d: int) -> FloatArray | None:
    """Projectors (K, d, d) on the null spaces of the given Hessians, None where all are definite.

    An eigenvalue within the rounding error of its matrix counts as zero.
    """
    if hessians.ndim == 1:
        flat = hessians <= 0
        return flat[:, None, None] * np.eye(d) if flat.any() else None
    values, vectors = np.linalg.eigh(hessians)
    flat = values <= 8 * d * EPS * np.maximum(values[:, -1:], 0.0)
    return np.einsum("kac,kc,kbc->kab", vectors, flat, vectors) if flat.any() else None


def pooled_point(loss: NodeLoss, labels: IntArray) -> FloatArray:
    """Row k minimises sum_{i: labels_i = k} f_i: for any loss (quadratics: of minimum norm)."""
    if isinstance(loss, QuadraticNodeLoss):
        return pooled_minimiser(loss, labels)
    return newton_minimiser(loss, labels, np.zeros((int(labels.max()) + 1, loss.n_features)))


_MAX_STEPS = 200
_ARMIJO = 1e-4


def newton_minimiser(loss: NodeLoss, labels: IntArray, start: FloatArray) -> FloatArray:
    """Row k minimises sum_{i: labels_i = k} f_i for any smooth convex losses, by damped Newton steps.

    Parameters
    ----------
    loss : NodeLoss
    labels : int64 (n_nodes,)
        Groups 0..K-1, each with a minimiser (`existence` says whether it has one).
    start : float64 (K, n_features)

    Returns
    -------
    float64 (K, n_features)
        Where no step lowers the objective beyond its rounding; gradients there are zero up to rounding.
    """
    d, n = loss.n_features, len(start)
    centre = start.copy()
    damping = np.zeros(n)

    def summed(values: FloatArray) -> FloatArray:
        total = np.zeros((n, *values.shape[1:]))
        np.add.at(total, labels, values)
        return total

    value = summed(loss.values(centre[labels]))
    for _ in range(_MAX_STEPS):
        slope = summed(loss.gradient(centre[labels]))
        noise = summed(loss.gradient_error(centre[labels]))
        hessians = summed(loss.hessians_at(centre[labels]))
        if hessians.ndim == 1:
            hessians = hessians[:, None, None] * np.eye(d)
        size = np.trace(hessians, axis1=1, axis2=2)
        # A flat direction takes the least step that the others' scale allows.
        lifted = hessians + ((damping + d * EPS) * size)[:, None, None] * np.eye(d)
        flat = size <= 0
        lifted[flat] = np.eye(d)
        step = -np.linalg.solve(lifted, slope[:, :, None])[:, :, 0]
        decrease = -(slope * step).sum(axis=1)
        moving = (np.abs(slope) > noise).any(axis=1) & (decrease > 0)
        if not moving.any():
            break
        share = np.where(moving, 1.0, 0.0)
        for _ in range(60):
            trial = centre + share[:, None] * step
            reached = summed(loss.values(trial[labels]))
            bad = moving & ~(reached <= value - _ARMIJO * share * decrease)
            if not bad.any():
                break
            share[bad] *= 0.5
        else:
            # Below the rounding of the objective: the last full step is the best guess, once.
            share[bad] = 0.0
        damping = np.where(share == 1.0, 0.1 * damping, np.maximum(10 * damping, 1e-8))
        damping[damping < 1e-14] = 0.0
        tiny = (np.abs(share[:, None] * step) <= 4 * EPS * np.abs(centre)).all(axis=1)
        centre = centre + share[:, None] * step
        value = summed(loss.values(centre[labels]))
        if (tiny | ~moving).all():
            break
    return centre
