"""What every pair penalty offers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks

FloatArray = NDArray[np.float64]


class Penalty(ABC):
    """A penalty g(u; lam) >= 0 on the difference u of two rows, with g(-u) = g(u).

    Every lam >= 0 and every step >= 0 is accepted, also where the prox is not continuous.
    """

    @property
    @abstractmethod
    def convex(self) -> bool:
        """Whether g is convex in u."""

    @property
    @abstractmethod
    def linear_in_lam(self) -> bool:
        """Whether g(u; c lam) = c g(u; lam), so that a weight and a factor of lam are the same thing."""

    @property
    def weak_convexity(self) -> float:
        """Smallest c such that g(u; lam) + c/2 ||u||_2^2 is convex in u for every lam; 0 for a convex penalty.

        A prox with step < 1 / c is single-valued and continuous.
        """
        return 0.0

    def smoothness(self, lam: float) -> float:
        """Lipschitz constant of the gradient of g in u; inf where g has a kink.

        Parameters
        ----------
        lam : float >= 0

        Returns
        -------
        float
            0 at lam = 0.

        Raises
        ------
        InvalidArgumentError
            A negative or non-finite lam.
        """
        return np.inf if _checks.check_lam(lam) > 0 else 0.0

    @abstractmethod
    def value_vector(self, u: ArrayLike, lam: float) -> FloatArray:
        """g of each row.

        Parameters
        ----------
        u : array-like (..., d)
            Vectors along the last axis.
        lam : float >= 0

        Returns
        -------
        float64 (...)

        Raises
        ------
        InvalidArgumentError
            A non-finite entry, a negative or non-finite lam.
        """

    @abstractmethod
    def prox_vector(self, u: ArrayLike, lam: float, step: float) -> FloatArray:
        """argmin over z of g(z; lam) + ||z - u||_2^2 / (2 step), for each row.

        Parameters
        ----------
        u : array-like (..., d)
            Vectors along the last axis.
        lam : float >= 0
        step : float >= 0
            0 is the identity.

        Returns
        -------
        float64, the shape of u
            Of two minimisers the shorter one.

        Raises
        ------
        InvalidArgumentError
            A non-finite entry, a negative or non-finite lam or step.
        """

    @abstractmethod
    def conjugate_vector(self, v: ArrayLike, lam: float) -> FloatArray:
        """g^*(v) = sup over u of <v, u> - g(u; lam), of each row; inf where there is no bound.

        Parameters
        ----------
        v : array-like (..., d)
            Vectors along the last axis. A pair of weight w has (w g)^*(v) = w g^*(v / w).
        lam : float >= 0

        Returns
        -------
        float64 (...)

        Raises
        ------
        InvalidArgumentError
            A non-finite entry, a negative or non-finite lam.
        """

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RadialPenalty(Penalty):
    """A penalty that depends on t = ||u||_2 only and never falls with it."""

    @property
    def concave(self) -> bool:
        """Whether g is concave in t >= 0, with g = 0 and a finite slope at t = 0: `solve` then takes
        difference-of-convex steps (unless g is convex as well, as lam t is)."""
        return False

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
            Between 0 and t, never decreasing in t; at a tie the smaller minimiser.

        Raises
        ------
        InvalidArgumentError
            A negative or non-finite argument.
        """

    def conjugate(self, s: ArrayLike, lam: float) -> FloatArray:
        """g^* at ||v||_2 = s: sup over t >= 0 of s t - g(t; lam).

        A bounded penalty, as every non-convex one here is, has the value -g(0) at s = 0 and inf elsewhere.

        Parameters
        ----------
        s : array-like >= 0
        lam : float >= 0

        Returns
        -------
        float64, the shape of s

        Raises
        ------
        InvalidArgumentError
            A negative or non-finite s or lam.
        """
        lengths = _checks.as_nonnegative_array("s", s)
        return np.asarray(np.where(lengths > 0, np.inf, 0.0 - self.value(0.0, lam)))

    def value_vector(self, u: ArrayLike, lam: float) -> FloatArray:
        """`value` of the Euclidean norms of the rows."""
        return self.value(row_norms(_checks.as_array("u", u)), lam)

    def prox_vector(self, u: ArrayLike, lam: float, step: float) -> FloatArray:
        """u prox(||u||) / ||u||, and zero at u = 0; exactly zero or exactly u where `prox` is 0 or ||u||."""
        vectors = _checks.as_array("u", u)
        norms = row_norms(vectors)
        shrunk = self.prox(norms, lam, step)
        factors = np.divide(shrunk, norms, out=np.zeros_like(norms), where=shrunk > 0)
        moved: FloatArray = factors[..., None] * vectors
        return moved

    def conjugate_vector(self, v: ArrayLike, lam: float) -> FloatArray:
        """`conjugate` of the Euclidean norms of the rows."""
        return self.conjugate(row_norms(_checks.as_array("v", v)), lam)


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
