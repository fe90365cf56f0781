"""One linear regression for each node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt.losses._sampled import SampledLoss
from fusionopt.losses.base import EPS, QuadraticNodeLoss, read_only

FloatArray = NDArray[np.float64]


class LeastSquares(QuadraticNodeLoss, SampledLoss):
    """f_i(x) = 1/(2 n_i) sum_s w_s (z_s'x - y_s)^2 + ridge/2 ||x||_2^2.

    s runs over the n_i samples (z_s, y_s) of node i.

    Parameters
    ----------
    designs : sequence of array-likes (n_i, p), or array-like (N, p) with `groups`
        Row s of entry i is a z_s' of node i; SciPy sparse matrices are kept as CSR. n_i >= 1; n_i < p is allowed.
        Copied.
    targets : sequence of array-likes (n_i,), or array-like (N,)
        The y_s, in the same order as the rows of the designs. Copied.
    ridge : float >= 0
    sample_weight : like `targets`, >= 0, or None
        The w_s, not renormalised; 1 if None. A node may weigh nothing, the whole problem may not.
    groups : array-like (N,) or None
        Node of each row of a stacked array; node i is the i-th of the sorted distinct values (`group_names`).

    Raises
    ------
    InvalidArgumentError
        Shapes that do not match, a node without samples, NaN or Inf, a negative weight or ridge, all weights
        zero.
    InvalidTypeError
        Complex numbers, text or other objects.

    Examples
    --------
    >>> loss = LeastSquares([[[1.0, 0.0], [1.0, 1.0]], [[1.0, 2.0]]], [[1.0, 3.0], [5.0]])
    >>> loss.value([[1.0, 2.0], [1.0, 2.0]])
    0.0
    """

    def __init__(
        self,
        designs: Sequence[ArrayLike] | ArrayLike,
        targets: Sequence[ArrayLike] | ArrayLike,
        ridge: float = 0.0,
        sample_weight: Sequence[ArrayLike] | ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> None:
        super().__init__(designs, targets, ridge, sample_weight, groups)
        self._seal()

    def _residuals(self, x: FloatArray) -> FloatArray:
        return self._design.predict(x) - self._targets

    def _values(self, x: FloatArray) -> FloatArray:
        fit = self._design.means(self._weights * self._residuals(x) ** 2)
        values: FloatArray = 0.5 * fit + self._ridge_values(x)
        return values

    def _gradient(self, x: FloatArray) -> FloatArray:
        return self._design.pull(self._weights * self._residuals(x)) + self._ridge * x

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        absolute = self._design.absolute()
        sizes = absolute.predict(np.abs(x)) + np.abs(self._targets)
        terms = absolute.pull(self._weights * sizes) + self._ridge * np.abs(x)
        # Chain: p products and sums in a residual, n_i in the mean, and a few for weight, division, ridge and
        # x itself.
        chain = self.n_features + self.n_samples + 6
        bound: FloatArray = EPS * chain[:, None] * terms
        return bound

    @cached_property
    def _hessians(self) -> FloatArray:
        p = self.n_features
        hessians = self._design.gram(self._weights)
        hessians[:, np.arange(p), np.arange(p)] += self._ridge
        return read_only(hessians)

    def hessians(self) -> FloatArray:
        """(1/n_i) sum_s w_s z_s z_s' + ridge I, (n_nodes, p, p)."""
        return self._hessians

    def linear(self) -> FloatArray:
        """(1/n_i) sum_s w_s y_s z_s, (n_nodes, p)."""
        return read_only(self._design.pull(self._weights * self._targets))

    def constants(self) -> FloatArray:
        """1/(2 n_i) sum_s w_s y_s^2, (n_nodes,)."""
        return read_only(0.5 * self._design.means(self._weights * self._targets**2))

    def strong_convexity(self) -> FloatArray:
        """Smallest eigenvalue of H_i, less its rounding error; at least the ridge."""
        return np.maximum(QuadraticNodeLoss.strong_convexity(self), self._ridge)
