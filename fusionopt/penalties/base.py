"""What every pair penalty offers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


class Penalty(ABC):
    """A penalty g(u; lam) on the difference u of two rows that depends on t = ||u||_2 only."""

    @property
    @abstractmethod
    def convex(self) -> bool:
        """Whether g is convex in u."""

    @property
    @abstractmethod
    def linear_in_lam(self) -> bool:
        """Whether g(u; c lam) = c g(u; lam), so that a weight and a factor of lam are the same thing."""

    @abstractmethod
    def value(self, t: ArrayLike, lam: float) -> FloatArray:
        """g at ||u||_2 = t.

        Parameters
        ----------
        t : array-like >= 0
        lam : float >= 0

        Returns
        -------
        float64, the shape of t

        Raises
        ------
        InvalidArgumentError
            A negative or non-finite t or lam.
        """

    @abstractmethod
    def derivative(self, t: ArrayLike, lam: float) -> FloatArray:
        """Derivative of `value` in t; at t = 0 from the right. Arguments as in `value`."""

    @abstractmethod
    def prox(self, t: ArrayLike, lam: float, step: float) -> FloatArray:
        """argmin over z >= 0 of g(z; lam) + (z - t)^2 / (2 step).

        Parameters
        ----------
        t : array-like >= 0
        lam : float >= 0
        step : float >= 0
            0 is the identity.

        Returns
        -------
        float64, the shape of t

        Raises
        ------
        InvalidArgumentError
            A negative or non-finite argument.
        """

    @abstractmethod
    def prox_vector(self, u: ArrayLike, lam: float, step: float) -> FloatArray:
        """argmin over z of g(z; lam) + ||z - u||_2^2 / (2 step), for each row.

        Parameters
        ----------
        u : array-like (..., d)
            Vectors along the last axis.
        lam, step
            As in `prox`.

        Returns
        -------
        float64, the shape of u
            Exactly zero where `prox` is.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def row_norms(u: FloatArray) -> FloatArray:
    """Euclidean norms along the last axis, without overflow or underflow of the squares.

    Parameters
    ----------
    u : float64 (..., d)

    Returns
    -------
    float64 (...)
    """
    with np.errstate(over="ignore", under="ignore"):
        norms: FloatArray = np.asarray(np.sqrt(np.einsum("...j,...j->...", u, u)))
    # Squares are safe between about 1e-140 and 1e150; only the rows beyond are scaled, by a power of two.
    beyond = ~((norms > 1e-140) & (norms < 1e150))
    if u.shape[-1] and np.any(beyond):
        rows = u[beyond]
        exponents = np.frexp(np.abs(rows).max(axis=-1))[1]
        with np.errstate(under="ignore"):
            scaled = np.ldexp(rows, -exponents[..., None])
            norms[beyond] = np.ldexp(np.sqrt(np.einsum("...j,...j->...", scaled, scaled)), exponents)
    return norms
