"""The nodes' own step of the splitting methods: argmin f_i(x) + modulus_i / 2 ||x||^2 - <b_i, x>, all nodes at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusionopt.losses.base import EPS, NodeLoss

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_MAX_STEPS = 50
_HALVINGS = 40


def exact_step(loss: NodeLoss, start: FloatArray, modulus: FloatArray, b: FloatArray) -> FloatArray:
    """The minimisers, to rounding, by (semismooth) Newton steps.

    Parameters
    ----------
    loss : NodeLoss
    start : float64 (n_nodes, n_features)
    modulus : float64 (n_nodes,) > 0
    b : float64 (n_nodes, n_features)

    Returns
    -------
    float64 (n_nodes, n_features)

    Notes
    -----
    Every step is halved until the norm of the gradient falls, node by node. A node is done when its gradient is within
    the rounding of its terms, or when no halving helps any more.
    """
    x = start.copy()
    residual = _residual(loss, x, modulus, b)
    norms = np.linalg.norm(residual, axis=1)
    open_nodes = norms > _floor(x, modulus, b, residual)
    for _ in range(_MAX_STEPS):
        if not open_nodes.any():
            break
        step = np.where(open_nodes[:, None], _newton(loss.hessians_at(x), modulus, residual), 0.0)
        moving = open_nodes.copy()
        length = np.ones(len(x))
        for _ in range(_HALVINGS):
            trial = x - length[:, None] * step
            trial_residual = _residual(loss, trial, modulus, b)
            trial_norms = np.linalg.norm(trial_residual, axis=1)
            better = moving & (trial_norms < norms)
            x = np.where(better[:, None], trial, x)
            residual = np.where(better[:, None], trial_residual, residual)
            norms = np.where(better, trial_norms, norms)
            moving &= ~better
            if not moving.any():
                break
            length = np.where(moving, length / 2, 0.0)
        open_nodes &= ~moving & (norms > _floor(x, modulus, b, residual))
    return x


def _residual(loss: NodeLoss, x: FloatArray, modulus: FloatArray, b: FloatArray) -> FloatArray:
    return np.asarray(loss.gradient(x) + modulus[:, None] * x - b)


def _floor(x: FloatArray, modulus: FloatArray, b: FloatArray, residual: FloatArray) -> FloatArray:
    """Rounding of a residual, node by node: its terms are b, modulus x and the gradient, which is what is left."""
    terms = np.abs(b).max(axis=1) + modulus * np.abs(x).max(axis=1) + np.linalg.norm(residual, axis=1)
    return np.asarray(8 * EPS * np.sqrt(x.shape[1]) * terms)


def _newton(hessians: FloatArray, modulus: FloatArray, residual: FloatArray) -> FloatArray:
    if hessians.ndim == 1:
        return np.asarray(residual / (hessians + modulus)[:, None])
    d = residual.shape[1]
    matrices = hessians + modulus[:, None, None] * np.eye(d)
    return np.asarray(np.linalg.solve(matrices, residual[:, :, None])[:, :, 0])
