"""Node losses in the compiled core: values, gradients and Hessians of all nodes or of some."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fusionopt import _core
from fusionopt.losses import (
    Huber,
    HuberRegression,
    LeastSquares,
    Logistic,
    NodeLoss,
    Poisson,
    Softmax,
    SquaredDistance,
    SquaredHinge,
)
from fusionopt.losses._sampled import SampledLoss

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class LossKernel(Protocol):
    """f_i without checks. `active` names nodes, (k,) int64; outputs have a row for each of them, in that order.

    x is C-contiguous float64 (n_nodes, n_features), with a row for every node, asked for or not.
    """

    def values(self, x: FloatArray, active: IntArray | None = None) -> FloatArray:
        """f_i(x_i), (n_nodes,) or (k,)."""

    def gradient(self, x: FloatArray, active: IntArray | None = None) -> FloatArray:
        """grad f_i(x_i), (n_nodes, d) or (k, d)."""

    def hessians(self, x: FloatArray, active: IntArray | None = None) -> FloatArray:
        """Generalised Hessians of f_i at x_i, (n_nodes, d, d) or (k, d, d)."""


class SampleKernel(LossKernel, Protocol):
    """A `LossKernel` of a loss with samples."""

    def samples(self, x: FloatArray, active: IntArray | None = None) -> FloatArray:
        """l(z_s, y_s; x_i), the samples of each node asked for one after the other, without weights or ridge."""

    def descend(
        self,
        x: FloatArray,
        active: IntArray,
        centre: FloatArray,
        modulus: FloatArray,
        alpha: FloatArray,
        steps: IntArray,
    ) -> FloatArray:
        """steps_k steps of length alpha_k of gradient descent on f_i + modulus_k/2 ||. - centre_k||^2 from x_i, for the
        k-th active node i: (k, d)."""


_FAMILIES: dict[type[NodeLoss], _core.Family] = {
    LeastSquares: _core.Family.Squared,
    Logistic: _core.Family.Logistic,
    SquaredHinge: _core.Family.SquaredHinge,
    HuberRegression: _core.Family.Huber,
    Poisson: _core.Family.Poisson,
}


def loss_kernel(loss: NodeLoss, n_threads: int = 1, weights: FloatArray | None = None) -> LossKernel:
    """The compiled twin of a loss; the loss itself in the same clothes where there is none (`CallableLoss`).

    Parameters
    ----------
    loss : NodeLoss
    n_threads : int
        Nodes are shared out among these; the answers have the same bits for any number.
    weights : float64 (N,) or None
        Viewed in the place of a sampled loss's sample weights: what the caller writes there later counts.

    Returns
    -------
    LossKernel
        A `_core.LossKernel` for the losses of fusionopt. It views the arrays of the loss, which it keeps alive.
    """
    # A class derived from these may have formulas of its own: only the classes themselves have twins.
    kind = type(loss)
    if isinstance(loss, SquaredDistance) and kind is SquaredDistance:
        return _core.LossKernel.distance(loss.targets, loss.sample_weight, math.inf, n_threads)
    if isinstance(loss, Huber) and kind is Huber:
        return _core.LossKernel.distance(loss.targets, loss.sample_weight, loss.delta, n_threads)
    if isinstance(loss, Softmax) and kind is Softmax:
        return _core.LossKernel.softmax(
            **_rows(loss, weights),
            classes=loss.classes,
            n_classes=loss.n_classes,
            ridge=loss.ridge,
            n_threads=n_threads,
        )
    family = _FAMILIES.get(kind)
    if family is None or not isinstance(loss, SampledLoss):
        return _NumpyKernel(loss)
    return _core.LossKernel.glm(
        family=family,
        delta=loss.delta if isinstance(loss, HuberRegression) else 0.0,
        **_rows(loss, weights),
        targets=loss.targets,
        ridge=loss.ridge,
        n_ridge=loss.n_features - loss.free_bias,
        n_threads=n_threads,
    )


def sample_kernel(loss: SampledLoss, n_threads: int = 1, weights: FloatArray | None = None) -> SampleKernel:
    """`loss_kernel` of one of fusionopt's losses with samples (not of a class derived from them)."""
    kernel = loss_kernel(loss, n_threads, weights)
    assert isinstance(kernel, _core.LossKernel)
    return kernel


def _rows(loss: SampledLoss, weights: FloatArray | None) -> dict[str, Any]:
    rows: Any = loss.design.rows
    is_sparse = loss.design.is_sparse
    return {
        "data": rows.data if is_sparse else rows,
        "indices": rows.indices.astype(np.int32, copy=False) if is_sparse else None,
        "row_starts": rows.indptr.astype(np.int64, copy=False) if is_sparse else None,
        "n_columns": loss.design.n_columns,
        "offsets": loss.offsets,
        "weights": loss.sample_weight if weights is None else weights,
    }


class _NumpyKernel:
    """The interface of a kernel around any loss: all nodes are worked out, those asked for are given."""

    def __init__(self, loss: NodeLoss) -> None:
        self._loss = loss

    def values(self, x: FloatArray, active: IntArray | None = None) -> FloatArray:
        return self._some(self._loss.values(x), active)

    def gradient(self, x: FloatArray, active: IntArray | None = None) -> FloatArray:
        return self._some(self._loss.gradient(x), active)

    def hessians(self, x: FloatArray, active: IntArray | None = None) -> FloatArray:
        hessians = self._loss.hessians_at(x)
        if hessians.ndim == 1:
            hessians = hessians[:, None, None] * np.eye(self._loss.n_features)
        return self._some(hessians, active)

    @staticmethod
    def _some(rows: FloatArray, active: IntArray | None) -> FloatArray:
        return rows if active is None else np.asarray(rows[active])
