"""Duals of a complete graph that are kept as a point instead of as pairs; NumPy only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ImplicitDuals:
    """v_ij = reach w_i w_j (y_i - y_j) / max(||y_i - y_j||, delta): the duals that a point implies.

    Attributes
    ----------
    points : float64 (n_nodes, n_features)
        y.
    weights : float64 (n_nodes,)
        w.
    delta : float
    reach : float
        lam in the units of w, strictly inside its ball after rounding.
    """

    points: FloatArray
    weights: FloatArray
    delta: float
    reach: float

    def arrays(self) -> dict[str, FloatArray]:
        """What `of` takes."""
        return {
            "points": self.points,
            "weights": self.weights,
            "scalars": np.array([self.delta, self.reach]),
        }

    @classmethod
    def of(cls, points: FloatArray, weights: FloatArray, scalars: FloatArray) -> ImplicitDuals:
        """The inverse of `arrays`."""
        return cls(points, weights, float(scalars[0]), float(scalars[1]))

    @property
    def n_bytes(self) -> int:
        """What `__call__` allocates."""
        m, d = (int(n) for n in self.points.shape)
        return 4 * m * (m - 1) * d

    def __call__(self) -> FloatArray:
        """All of them, in the order of `Graph.edges`.

        Raises
        ------
        MemoryLimitError
            They do not fit the machine.
        """
        m, d = self.points.shape
        _checks.check_memory(
            f"The duals of {m * (m - 1) // 2} pairs",
            self.n_bytes,
            "use objective, dual_objective and gap instead",
        )
        out = np.empty((m * (m - 1) // 2, d))
        place = 0
        for i in range(m - 1):
            out[place : place + m - 1 - i] = self.row(i)
            place += m - 1 - i
        return out

    def row(self, i: int) -> FloatArray:
        """v_ij for j = i + 1, ..., m - 1, in this order."""
        apart = self.points[i] - self.points[i + 1 :]
        length = np.sqrt(np.einsum("jk,jk->j", apart, apart))
        scale = (self.reach * self.weights[i]) * self.weights[i + 1 :] / np.maximum(length, self.delta)
        return np.asarray(apart * scale[:, None])
