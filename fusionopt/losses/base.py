"""What every node loss offers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks

FloatArray = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)


class NodeLoss(ABC):
    """A convex function f_i for each node i; x has one row for each node.

    Immutable: the data are copied and read-only, and attributes cannot be set after construction.
    """

    _sealed: bool = False

    def _seal(self) -> None:
        object.__setattr__(self, "_sealed", True)

    def __setattr__(self, name: str, value: object) -> None:
        if self._sealed:
            raise AttributeError(
                f"{type(self).__name__} is immutable: {name!r} cannot be set; build a new loss instead."
            )
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: {name!r} cannot be deleted.")

    @property
    @abstractmethod
    def n_nodes(self) -> int:
        """Number of nodes m."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of columns d of x."""

    @abstractmethod
    def _values(self, x: FloatArray) -> FloatArray:
        """f_i(x_i) for a checked x."""

    @abstractmethod
    def _gradient(self, x: FloatArray) -> FloatArray:
        """Row i is the gradient of f_i at x_i, for a checked x."""

    def _point(self, x: ArrayLike) -> FloatArray:
        return _checks.as_point("x", x, (self.n_nodes, self.n_features))

    def values(self, x: ArrayLike) -> FloatArray:
        """f_i(x_i) for each node.

        Parameters
        ----------
        x : array-like (n_nodes, n_features)

        Returns
        -------
        float64 (n_nodes,)

        Raises
        ------
        InvalidArgumentError
            Wrong shape, NaN or Inf.
        """
        return self._values(self._point(x))

    def value(self, x: ArrayLike) -> float:
        """sum_i f_i(x_i).

        Parameters and exceptions as in `values`.
        """
        return float(self.values(x).sum())

    def gradient(self, x: ArrayLike) -> FloatArray:
        """Row i is the gradient of f_i at x_i.

        Parameters and exceptions as in `values`.

        Returns
        -------
        float64 (n_nodes, n_features)
        """
        return self._gradient(self._point(x))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_nodes={self.n_nodes}, n_features={self.n_features})"


class QuadraticNodeLoss(NodeLoss):
    """A quadratic loss: f_i(x) = 1/2 x'H_i x - q_i'x + c_i with H_i positive semidefinite.

    Values and gradients are computed from residuals, not from this expansion, so they do not cancel near a
    fit.
    """

    @abstractmethod
    def hessians(self) -> FloatArray:
        """H_i as (n_nodes, n_features, n_features), or (n_nodes,) of h_i where H_i = h_i I; read-only."""

    @abstractmethod
    def linear(self) -> FloatArray:
        """q_i, (n_nodes, n_features); read-only."""

    @abstractmethod
    def constants(self) -> FloatArray:
        """c_i, (n_nodes,); read-only."""

    @abstractmethod
    def _gradient_error(self, x: FloatArray) -> FloatArray:
        """The bound for a checked x."""

    def gradient_error(self, x: ArrayLike) -> FloatArray:
        """A bound on the rounding error of `gradient`: c * eps * (sum of absolute values of the terms).

        Parameters
        ----------
        x : array-like (n_nodes, n_features)

        Returns
        -------
        float64 (n_nodes, n_features)
            At least |computed - exact|, entry by entry, also when x itself carries a rounding error of eps/2.

        Notes
        -----
        c is the number of roundings in the longest chain of the formula (the usual gamma_n bound).
        """
        return self._gradient_error(self._point(x))


def read_only(array: FloatArray) -> FloatArray:
    """The same array, not writeable."""
    array.flags.writeable = False
    return array
