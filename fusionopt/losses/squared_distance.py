"""Squared distance to one target for each node: convex clustering."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.losses.base import EPS, QuadraticNodeLoss, read_only

FloatArray = NDArray[np.float64]


class SquaredDistance(QuadraticNodeLoss):
    """f_i(x) = m_i/2 ||x - a_i||_2^2.

    Parameters
    ----------
    targets : array-like (n_nodes, n_features) or (n_nodes,)
        Row i is a_i; a vector is one feature. Copied. Every entry must be finite.
    sample_weight : array-like (n_nodes,) >= 0, or None
        m_i, copied; 1 if None. A node may weigh nothing, the whole problem may not.

    Raises
    ------
    InvalidArgumentError
        NaN or Inf (named by row and column), an empty array, a negative weight, all weights zero.
    InvalidTypeError
        Complex numbers, text or other objects.

    Examples
    --------
    >>> loss = SquaredDistance([[0.0, 0.0], [2.0, 0.0]])
    >>> loss.value([[1.0, 0.0], [2.0, 0.0]])
    0.5
    """

    def __init__(self, targets: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        hint = "This version has no missing cells: leave those rows out, or fill the cells in first."
        self._targets = _checks.as_matrix("targets", targets, allow_vector=True, hint=hint)
        n = len(self._targets)
        self._weights = (
            read_only(np.ones(n))
            if sample_weight is None
            else _checks.as_node_weights("sample_weight", sample_weight, n, of="node")
        )
        self._seal()

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self._targets.shape[0])

    @property
    def n_features(self) -> int:
        """Number of columns of the targets."""
        return int(self._targets.shape[1])

    @property
    def targets(self) -> FloatArray:
        """a, (n_nodes, n_features); read-only."""
        return self._targets

    @property
    def sample_weight(self) -> FloatArray:
        """m, (n_nodes,); read-only, all ones when none was given."""
        return self._weights

    def _values(self, x: FloatArray) -> FloatArray:
        residuals = x - self._targets
        values: FloatArray = 0.5 * self._weights * np.einsum("ij,ij->i", residuals, residuals)
        return values

    def _gradient(self, x: FloatArray) -> FloatArray:
        gradient: FloatArray = self._weights[:, None] * (x - self._targets)
        return gradient

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        bound: FloatArray = 2 * EPS * self._weights[:, None] * (np.abs(x) + np.abs(self._targets))
        return bound

    def hessians(self) -> FloatArray:
        """m_i, (n_nodes,): H_i = m_i I."""
        return self._weights

    def linear(self) -> FloatArray:
        """m_i a_i, (n_nodes, n_features)."""
        return read_only(self._weights[:, None] * self._targets)

    def constants(self) -> FloatArray:
        """m_i/2 ||a_i||^2, (n_nodes,)."""
        return read_only(0.5 * self._weights * np.einsum("ij,ij->i", self._targets, self._targets))
