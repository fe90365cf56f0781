"""What every node loss offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks

FloatArray = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class FenchelGap:
    """What `NodeLoss.fenchel` says of a point x and a force g.

    Attributes
    ----------
    gap : float64 (n_nodes,)
        Computed upper bound of f_i(x_i) + f_i^*(-g_i) + <g_i, x_i>, >= 0; inf where no bound was found.
    error : float64 (n_nodes,)
        Bound on the rounding error of `gap`: the exact value is at most ``gap + error``.
    """

    gap: FloatArray
    error: FloatArray


class NodeLoss(ABC):
    """A convex function f_i for each node i; x has one row for each node.

    Immutable: the data are copied and read-only, and attributes cannot be set after construction.

    Attributes
    ----------
    conjugate_exact : bool
        `fenchel_gap` is the exact value, not only a bound of it.
    """

    conjugate_exact: bool = False
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

    @abstractmethod
    def _gradient_error(self, x: FloatArray) -> FloatArray:
        """The bound of `gradient_error` for a checked x."""

    @abstractmethod
    def _hessians_at(self, x: FloatArray) -> FloatArray:
        """The matrices of `hessians_at` for a checked x."""

    @abstractmethod
    def majorant(self) -> FloatArray | None:
        """Matrices that dominate every Hessian of f_i.

        Returns
        -------
        float64 (n_nodes, n_features, n_features), or (n_nodes,) of l_i for l_i I, or None
            M_i with v'M_i v >= v'(Hessian of f_i at x)v for all v and x; None where curvature is unbounded.
        """

    @abstractmethod
    def strong_convexity(self) -> FloatArray:
        """Moduli mu_i >= 0, (n_nodes,): f_i - mu_i/2 ||.||^2 is convex."""

    @property
    def has_bound(self) -> bool:
        """Whether `fenchel_gap` can be finite: the loss can take part in a certificate."""
        return True

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

    def hessians_at(self, x: ArrayLike) -> FloatArray:
        """Generalised Hessians of f_i at x_i: symmetric, positive semidefinite.

        Where f_i is only once differentiable (a knee of Huber or of the squared hinge) it is one element of the
        generalised Hessian.

        Parameters and exceptions as in `values`.

        Returns
        -------
        float64 (n_nodes, n_features, n_features), or (n_nodes,) of h_i where H_i = h_i I
        """
        return self._hessians_at(self._point(x))

    def model_hessians_at(self, x: ArrayLike) -> FloatArray:
        """Matrices for a quadratic model of f_i around x_i: at least the generalised Hessian, at most the majorant.

        Those of `hessians_at`, but where a loss is linear beyond a knee: there it has no curvature of its own, and a
        model without any would send its minimiser far away. Robust losses then take delta / |residual|, the weight of
        iteratively reweighted least squares, with which the model lies above the loss everywhere.

        Parameters, returns and exceptions as in `hessians_at`.

        References
        ----------
        Huber, Robust Statistics (1981), section 7.8.
        """
        return self._model_hessians_at(self._point(x))

    def _model_hessians_at(self, x: FloatArray) -> FloatArray:
        return self._hessians_at(x)

    def fenchel(self, x: ArrayLike, g: ArrayLike, g_error: ArrayLike | None = None) -> FenchelGap:
        """An upper bound of f_i(x_i) + f_i^*(-g_i) + <g_i, x_i> >= 0, and its rounding error.

        With G_i = sum_j v_ij for g, the sum over i is the losses' part of the duality gap (theory.md section 4).

        Parameters
        ----------
        x : array-like (n_nodes, n_features)
        g : array-like (n_nodes, n_features)
        g_error : array-like (n_nodes, n_features) >= 0, or None
            Bound on the rounding error of g itself, where g is a sum; None: 8 eps |g|. In directions that f_i does
            not feel, a part of g within it counts as zero.

        Returns
        -------
        FenchelGap

        Raises
        ------
        InvalidArgumentError
            Wrong shape, NaN or Inf.
        """
        force, error = self._force(g, g_error)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            told = self._fenchel(self._point(x), force, error)
        # A bound whose error is not a number is none: clipping below would make one of it.
        known = (told.error >= 0) & (told.gap > -np.inf)
        gap = np.where(known, np.maximum(told.gap, 0.0), np.inf)
        return FenchelGap(gap, np.where(np.isfinite(gap), told.error, np.inf))

    def fenchel_gap(self, x: ArrayLike, g: ArrayLike) -> FloatArray:
        """``fenchel(x, g).gap``, (n_nodes,)."""
        return self.fenchel(x, g).gap

    def dual_scale(self, g: ArrayLike, g_error: ArrayLike | None = None) -> float:
        """A factor s in [0, 1], as large as was found, with -s g_i in the domain of every f_i^*.

        Parameters
        ----------
        g : array-like (n_nodes, n_features)
        g_error : array-like (n_nodes, n_features) >= 0, or None
            As in `fenchel`: s keeps the exact g inside as well.

        Returns
        -------
        float
            1.0 where the domains do not limit g. Directions that f_i does not feel at all need g_i without a part in
            them; no scaling mends that, and it is not looked at here.

        Raises
        ------
        InvalidArgumentError
            Wrong shape, NaN or Inf.
        """
        force, error = self._force(g, g_error)
        return float(min(max(self._dual_scale(force, error), 0.0), 1.0))

    def _force(self, g: ArrayLike, g_error: ArrayLike | None) -> tuple[FloatArray, FloatArray]:
        shape = (self.n_nodes, self.n_features)
        force = _checks.as_point("g", g, shape)
        if g_error is None:
            return force, 8 * EPS * np.abs(force)
        return force, np.abs(_checks.as_point("g_error", g_error, shape))

    def _dual_scale(self, g: FloatArray, g_error: FloatArray) -> float:
        return 1.0

    def _fenchel(self, x: FloatArray, g: FloatArray, g_error: FloatArray) -> FenchelGap:
        # Strong convexity alone: with r = grad f(x) + g the value is at most ||r||^2 / (2 mu).
        mu = self.strong_convexity()
        return scaled_square(
            self._gradient(x) + g,
            self._gradient_error(x) + g_error,
            np.broadcast_to(mu[:, None], x.shape),
            np.abs(x),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_nodes={self.n_nodes}, n_features={self.n_features})"


def scaled_square(
    r: FloatArray, r_error: FloatArray, curvature: FloatArray, moved: FloatArray | None = None
) -> FenchelGap:
    """1/2 sum_k r_k^2 / h_k for each row, and its rounding error.

    Where h_k = 0 the exact r_k must be 0: the term is inf unless r_k is within four times its error bound `r_error`.
    Making up such a leftover moves the bound by as much times the length `moved`, which is counted in the error.
    """
    held = curvature > 0
    safe = np.where(held, curvature, 1.0)
    r_error = r_error + EPS * np.abs(r)
    square = np.where(held, 0.5 * r * (r / safe), np.where(np.abs(r) <= 4 * r_error, 0.0, np.inf))
    leftover = np.zeros_like(r) if moved is None else 5 * r_error * moved
    error = np.where(held, (np.abs(r) + r_error) * (r_error / safe), leftover).sum(axis=1)
    gap = square.sum(axis=1)
    return FenchelGap(gap, error + 4 * EPS * np.where(np.isfinite(gap), gap, 0.0))


class QuadraticNodeLoss(NodeLoss):
    """A quadratic loss: f_i(x) = 1/2 x'H_i x - q_i'x + c_i with H_i positive semidefinite.

    Values and gradients are computed from residuals, not from this expansion, so they do not cancel near a
    fit.
    """

    conjugate_exact = True

    @abstractmethod
    def hessians(self) -> FloatArray:
        """H_i as (n_nodes, n_features, n_features), or (n_nodes,) of h_i where H_i = h_i I; read-only."""

    @abstractmethod
    def linear(self) -> FloatArray:
        """q_i, (n_nodes, n_features); read-only."""

    @abstractmethod
    def constants(self) -> FloatArray:
        """c_i, (n_nodes,); read-only."""

    def _hessians_at(self, x: FloatArray) -> FloatArray:
        return self.hessians()

    def majorant(self) -> FloatArray:
        """The Hessians themselves."""
        return self.hessians()

    @cached_property
    def _spectrum(self) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues (zero where they are within rounding of zero) and eigenvectors of the Hessians."""
        values, vectors = np.linalg.eigh(self.hessians())
        floor = 8 * self.n_features * EPS * np.maximum(values[:, -1:], 0.0)
        return np.where(values > floor, values, 0.0), vectors

    def strong_convexity(self) -> FloatArray:
        """Smallest eigenvalue of H_i, less its rounding error; 0 where that leaves nothing."""
        if self.hessians().ndim == 1:
            return self.hessians()
        values = self._spectrum[0]
        return np.asarray(np.maximum(values[:, 0] - 8 * self.n_features * EPS * values[:, -1], 0.0))

    def _fenchel(self, x: FloatArray, g: FloatArray, g_error: FloatArray) -> FenchelGap:
        # f(x) + f*(-g) + <g, x> = 1/2 r'H^+ r with r = grad f(x) + g, inf for r out of the range of H.
        r, r_error = self._gradient(x) + g, self._gradient_error(x) + g_error
        hessians = self.hessians()
        if hessians.ndim == 1:
            return scaled_square(r, r_error, np.broadcast_to(hessians[:, None], r.shape), np.abs(x))
        values, vectors = self._spectrum
        along = np.einsum("iac,ia->ic", vectors, r)
        along_error = np.einsum("iac,ia->ic", np.abs(vectors), r_error + self.n_features * EPS * np.abs(r))
        size = np.linalg.norm(x, axis=1)[:, None]
        return scaled_square(along, along_error, values, np.broadcast_to(size, r.shape))


def read_only(array: FloatArray) -> FloatArray:
    """The same array, not writeable."""
    array.flags.writeable = False
    return array
