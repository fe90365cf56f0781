"""A loss plus a linear function of each node: what a difference-of-convex step minimises."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusionopt.losses.base import EPS, FenchelGap, NodeLoss, QuadraticNodeLoss, read_only
from fusionopt.losses.squared_distance import SquaredDistance

FloatArray = NDArray[np.float64]


class TiltedLoss(NodeLoss):
    """f_i(x) - <b_i, x> + tau/2 ||x - y_i||^2.

    Parameters
    ----------
    loss : NodeLoss
        The f_i.
    tilt : float64 (n_nodes, n_features)
        The b_i.
    tau : float >= 0
        Curvature that is added to every node; > 0 unless every f_i is strongly convex.
    centre : float64 (n_nodes, n_features) or None
        The y_i; needed where tau > 0.
    """

    def __init__(
        self, loss: NodeLoss, tilt: FloatArray, tau: float = 0.0, centre: FloatArray | None = None
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
        added: FloatArray = self._tau / 2 * (away**2).sum(axis=1) - np.einsum("ij,ij->i", x, self._tilt)
        return self._loss.values(x) + added

    def _gradient(self, x: FloatArray) -> FloatArray:
        return self._loss.gradient(x) - self._tilt + self._tau * (x - self._centre)

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        added = np.abs(self._tilt) + self._tau * (np.abs(x) + np.abs(self._centre))
        return self._loss.gradient_error(x) + 4 * EPS * (added + np.abs(self._loss.gradient(x)))

    def _lifted(self, hessians: FloatArray) -> FloatArray:
        if self._tau == 0:
            return hessians
        return hessians + (self._tau if hessians.ndim == 1 else self._tau * np.eye(self.n_features))

    def _hessians_at(self, x: FloatArray) -> FloatArray:
        return self._lifted(self._loss.hessians_at(x))

    def _model_hessians_at(self, x: FloatArray) -> FloatArray:
        return self._lifted(self._loss.model_hessians_at(x))

    def majorant(self) -> FloatArray | None:
        """That of the loss, plus tau."""
        majorant = self._loss.majorant()
        return None if majorant is None else self._lifted(majorant)

    def strong_convexity(self) -> FloatArray:
        """mu_i + tau."""
        return self._loss.strong_convexity() + self._tau

    def _fenchel(self, x: FloatArray, g: FloatArray, g_error: FloatArray) -> FenchelGap:
        # The conjugate of a sum is at most the sum of the conjugates at any split of the force. The parabola takes its
        # gradient at x, where it has no gap; the loss takes the rest. Strong convexity alone is the other bound.
        rest = g - self._tilt + self._tau * (x - self._centre)
        error = g_error + 4 * EPS * (np.abs(self._tilt) + self._tau * (np.abs(x) + np.abs(self._centre)))
        split, plain = self._loss.fenchel(x, rest, error), super()._fenchel(x, g, g_error)
        better = split.gap <= plain.gap
        return FenchelGap(np.where(better, split.gap, plain.gap), np.where(better, split.error, plain.error))


class TiltedQuadratic(QuadraticNodeLoss):
    """The same for quadratic f_i, as a quadratic.

    Parameters
    ----------
    loss : QuadraticNodeLoss
    tilt, tau, centre
        As in `TiltedLoss`.
    """

    def __init__(
        self, loss: QuadraticNodeLoss, tilt: FloatArray, tau: float = 0.0, centre: FloatArray | None = None
    ) -> None:
        self._loss = loss
        self._sum = TiltedLoss(loss, tilt, tau, centre)
        self._tilt, self._tau = self._sum._tilt, tau
        self._centre = self._sum._centre
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
        return self._sum._values(x)

    def _gradient(self, x: FloatArray) -> FloatArray:
        return self._sum._gradient(x)

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        return self._sum._gradient_error(x)

    def hessians(self) -> FloatArray:
        """H_i + tau I, in the form of the loss."""
        return self._sum._lifted(self._loss.hessians())

    def linear(self) -> FloatArray:
        """q_i + b_i + tau y_i."""
        return read_only(self._loss.linear() + self._tilt + self._tau * self._centre)

    def constants(self) -> FloatArray:
        """c_i + tau/2 ||y_i||^2."""
        return read_only(self._loss.constants() + self._tau / 2 * (self._centre**2).sum(axis=1))


def tilted(
    loss: NodeLoss,
    tilt: FloatArray,
    tau: float = 0.0,
    centre: FloatArray | None = None,
    as_distance: bool = False,
) -> NodeLoss:
    """The tilted loss in the form of the loss.

    Parameters
    ----------
    loss, tilt, tau, centre
        As in `TiltedLoss`.
    as_distance : bool
        Squared distances that every node feels in full stay squared distances, to a_i + b_i / m_i and less a constant.

    Returns
    -------
    NodeLoss
        `TiltedQuadratic` for a quadratic loss, `TiltedLoss` otherwise.
    """
    if as_distance and isinstance(loss, SquaredDistance) and tau == 0 and not loss.has_missing:
        return SquaredDistance(loss.targets + tilt / loss.sample_weight[:, None], loss.sample_weight)
    if isinstance(loss, QuadraticNodeLoss):
        return TiltedQuadratic(loss, tilt, tau, centre)
    return TiltedLoss(loss, tilt, tau, centre)
