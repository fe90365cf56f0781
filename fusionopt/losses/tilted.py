"""A loss plus a linear function of each node: what a difference-of-convex step minimises."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusionopt.losses.base import EPS, QuadraticNodeLoss, read_only

FloatArray = NDArray[np.float64]


class TiltedQuadratic(QuadraticNodeLoss):
    """f_i(x) - <b_i, x> + tau/2 ||x - y_i||^2 for a quadratic f_i.

    Parameters
    ----------
    loss : QuadraticNodeLoss
        The f_i.
    tilt : float64 (n_nodes, n_features)
        The b_i.
    tau : float >= 0
        Curvature that is added to every node.
    centre : float64 (n_nodes, n_features) or None
        The y_i; needed where tau > 0.
    """

    def __init__(
        self, loss: QuadraticNodeLoss, tilt: FloatArray, tau: float = 0.0, centre: FloatArray | None = None
    ) -> None:
        self._loss = loss
        self._tilt = read_only(np.array(tilt))
        self._tau = tau
        self._centre = read_only(np.zeros_like(tilt) if centre is None else np.array(centre))
        self._seal()

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self._loss.n_nodes

    @property
    def n_features(self) -> int:
        """Number of columns of x."""
        return self._loss.n_features

    def _values(self, x: FloatArray) -> FloatArray:
        away = x - self._centre
        added: FloatArray = np.einsum("ij,ij->i", x, self._tilt) - self._tau / 2 * (away**2).sum(axis=1)
        return self._loss.values(x) - added

    def _gradient(self, x: FloatArray) -> FloatArray:
        return self._loss.gradient(x) - self._tilt + self._tau * (x - self._centre)

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        added = np.abs(self._tilt) + self._tau * (np.abs(x) + np.abs(self._centre))
        return self._loss.gradient_error(x) + 4 * EPS * (added + np.abs(self._loss.gradient(x)))

    def hessians(self) -> FloatArray:
        """H_i + tau I, in the form of the loss."""
        hessians = self._loss.hessians()
        return read_only(
            hessians + (self._tau if hessians.ndim == 1 else self._tau * np.eye(self.n_features))
        )

    def linear(self) -> FloatArray:
        """q_i + b_i + tau y_i."""
        return read_only(self._loss.linear() + self._tilt + self._tau * self._centre)

    def constants(self) -> FloatArray:
        """c_i + tau/2 ||y_i||^2."""
        return read_only(self._loss.constants() + self._tau / 2 * (self._centre**2).sum(axis=1))
