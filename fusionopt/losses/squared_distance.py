"""Squared distance to one target for each node: convex clustering."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.losses.base import EPS, QuadraticNodeLoss, read_only

FloatArray = NDArray[np.float64]


class SquaredDistance(QuadraticNodeLoss):
    """f_i(x) = m_i/2 ||x - a_i||_2^2, over the cells of a_i that are not missing.

    Parameters
    ----------
    targets : array-like (n_nodes, n_features) or (n_nodes,)
        Row i is a_i; a vector is one feature. Copied. A NaN cell is missing and left out of the sum; a node whose
        cells are all missing has no loss.
    sample_weight : array-like (n_nodes,) >= 0, or None
        m_i, copied; 1 if None. A node may weigh nothing, the whole problem may not.

    Raises
    ------
    InvalidArgumentError
        Inf (named by row and column), an empty array, every cell missing, a negative weight, all weights zero.
    InvalidTypeError
        Complex numbers, text or other objects.

    Notes
    -----
    With missing cells the Hessians are diagonal, m_i times 0 or 1, kept as (n_nodes, n_features, n_features): a
    column that is missing in a whole component is felt by nothing there, and the answer has minimum norm in it.

    Examples
    --------
    >>> loss = SquaredDistance([[0.0, 0.0], [2.0, float("nan")]])
    >>> loss.value([[1.0, 0.0], [2.0, 7.0]])
    0.5
    """

    def __init__(self, targets: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        self._targets = _checks.as_matrix("targets", targets, allow_vector=True, missing=True)
        n, d = self._targets.shape
        self._weights = (
            read_only(np.ones(n))
            if sample_weight is None
            else _checks.as_node_weights("sample_weight", sample_weight, n, of="node")
        )
        missing = np.isnan(self._targets)
        self._observed: FloatArray | None = None
        self._filled = self._targets
        if missing.any():
            _checks.check_memory(
                "The Hessians of nodes with missing cells",
                8.0 * n * d * d,
                "fill in the missing cells, or use fewer columns",
            )
            self._observed = read_only(1.0 - missing)
            self._filled = read_only(np.where(missing, 0.0, self._targets))
            if not (self._observed * self._weights[:, None]).any():
                _checks.refuse(
                    "targets has no cell with a number and a positive weight, so there is nothing to fit; give at "
                    "least one.",
                    argument="targets",
                    got="every cell missing or without weight",
                    wanted="at least one cell that counts",
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
        """a, (n_nodes, n_features), NaN where missing; read-only."""
        return self._targets

    @property
    def sample_weight(self) -> FloatArray:
        """m, (n_nodes,); read-only, all ones when none was given."""
        return self._weights

    @property
    def has_missing(self) -> bool:
        """Some cell is missing."""
        return self._observed is not None

    def _residuals(self, x: FloatArray) -> FloatArray:
        residuals = x - self._filled
        return residuals if self._observed is None else residuals * self._observed

    def _values(self, x: FloatArray) -> FloatArray:
        residuals = self._residuals(x)
        values: FloatArray = 0.5 * self._weights * np.einsum("ij,ij->i", residuals, residuals)
        return values

    def _gradient(self, x: FloatArray) -> FloatArray:
        gradient: FloatArray = self._weights[:, None] * self._residuals(x)
        return gradient

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        bound: FloatArray = 2 * EPS * self._weights[:, None] * (np.abs(x) + np.abs(self._filled))
        return bound if self._observed is None else bound * self._observed

    @cached_property
    def _hessians(self) -> FloatArray:
        if self._observed is None:
            return self._weights
        hessians = np.zeros((self.n_nodes, self.n_features, self.n_features))
        columns = np.arange(self.n_features)
        hessians[:, columns, columns] = self._weights[:, None] * self._observed
        return read_only(hessians)

    def hessians(self) -> FloatArray:
        """m_i, (n_nodes,): H_i = m_i I; diagonal (n_nodes, n_features, n_features) where cells are missing."""
        return self._hessians

    def linear(self) -> FloatArray:
        """m_i a_i, (n_nodes, n_features), 0 where missing."""
        return read_only(self._weights[:, None] * self._filled)

    def constants(self) -> FloatArray:
        """m_i/2 ||a_i||^2 over the cells that are there, (n_nodes,)."""
        return read_only(0.5 * self._weights * np.einsum("ij,ij->i", self._filled, self._filled))
