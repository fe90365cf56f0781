"""The point that minimises the summed losses of each group of nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusionopt.losses.base import EPS, QuadraticNodeLoss

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
