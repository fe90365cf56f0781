"""Robust distance to one target for each node: convex clustering with outliers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.losses.base import EPS, FenchelGap, NodeLoss, read_only

FloatArray = NDArray[np.float64]


class Huber(NodeLoss):
    """f_i(x) = m_i h(||x - a_i||_2), h(r) = r^2/2 for r <= delta, delta r - delta^2/2 beyond.

    Parameters
    ----------
    targets : array-like (n_nodes, n_features) or (n_nodes,)
        Row i is a_i; a vector is one feature. Copied. Every entry must be finite.
    delta : float > 0
        The distance from which a target pulls with the constant force m_i delta, in the units of the targets.
    sample_weight : array-like (n_nodes,) >= 0, or None
        m_i, copied; 1 if None. A node may weigh nothing, the whole problem may not.

    Raises
    ------
    InvalidArgumentError
        NaN or Inf (named by row and column), an empty array, delta <= 0, a negative weight, all weights zero.
    InvalidTypeError
        Complex numbers, text or other objects.

    Examples
    --------
    >>> loss = Huber([[0.0, 0.0], [3.0, 4.0]], delta=2.0)
    >>> loss.values([[0.0, 1.0], [0.0, 0.0]]).tolist()
    [0.5, 8.0]
    """

    conjugate_exact = True

    def __init__(self, targets: ArrayLike, delta: float, sample_weight: ArrayLike | None = None) -> None:
        self._targets = _checks.as_matrix("targets", targets, allow_vector=True)
        self._delta = _checks.as_positive_scalar("delta", delta)
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
    def delta(self) -> float:
        """The distance from which a target pulls with a constant force."""
        return self._delta

    @property
    def sample_weight(self) -> FloatArray:
        """m, (n_nodes,); read-only, all ones when none was given."""
        return self._weights

    def _clipped(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """x - a, its length r, and min(1, delta / r)."""
        away = x - self._targets
        r = np.linalg.norm(away, axis=1)
        shrink = np.divide(self._delta, r, out=np.ones_like(r), where=r > self._delta)
        return away, r, shrink

    def _values(self, x: FloatArray) -> FloatArray:
        _, r, _ = self._clipped(x)
        inside = np.minimum(r, self._delta)
        values: FloatArray = self._weights * inside * (r - 0.5 * inside)
        return values

    def _gradient(self, x: FloatArray) -> FloatArray:
        away, _, shrink = self._clipped(x)
        gradient: FloatArray = (self._weights * shrink)[:, None] * away
        return gradient

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        away, _, shrink = self._clipped(x)
        reading = EPS * (np.abs(x) + np.abs(self._targets))
        # The projection onto the ball never stretches: the error of x - a passes with factor `shrink`.
        passed = reading + np.linalg.norm(reading, axis=1)[:, None] * (shrink < 1)[:, None]
        own = (self.n_features + 6) * EPS * np.abs(away)
        bound: FloatArray = (self._weights * shrink)[:, None] * (passed + own)
        return bound

    def _hessians_at(self, x: FloatArray) -> FloatArray:
        away, r, shrink = self._clipped(x)
        unit = away / np.where(r > 0, r, 1.0)[:, None]
        outside = np.where(shrink < 1, 1.0, 0.0)
        tangent = np.eye(self.n_features) - outside[:, None, None] * unit[:, :, None] * unit[:, None, :]
        hessians: FloatArray = (self._weights * shrink)[:, None, None] * tangent
        return hessians

    def _model_hessians_at(self, x: FloatArray) -> FloatArray:
        shrink = self._clipped(x)[2]
        return np.asarray(self._weights * shrink)

    def majorant(self) -> FloatArray:
        """m_i, (n_nodes,): the Hessian is at most m_i I."""
        return self._weights

    def strong_convexity(self) -> FloatArray:
        """Zero: far from its target a node's loss is linear along the ray."""
        return np.zeros(self.n_nodes)

    def _dual_scale(self, g: FloatArray, g_error: FloatArray) -> float:
        sizes = np.linalg.norm(g, axis=1) * (1 + EPS * (self.n_features + 4)) + np.linalg.norm(
            g_error, axis=1
        )
        limits = self._delta * self._weights * (1 - 8 * EPS)
        limited = (self._weights > 0) & (sizes > 0)
        factors = np.divide(limits, sizes, out=np.ones_like(sizes), where=limited)
        return float(factors.min())

    def _fenchel(self, x: FloatArray, g: FloatArray, g_error: FloatArray) -> FenchelGap:
        # f*(p) = ||p||^2 / (2 m) + <a, p> for ||p|| <= m delta. With q = p / m and the clipped force P = shrink (x - a)
        # the gap is m [ ||q - P||^2 / 2 + <P - q, x - a - P> ], both terms >= 0 for ||q|| <= delta.
        m = np.where(self._weights > 0, self._weights, 1.0)
        away, _, shrink = self._clipped(x)
        pull = shrink[:, None] * away
        q = -g / m[:, None]
        apart = q - pull
        gap = 0.5 * (apart**2).sum(axis=1)
        gap += np.maximum(-(apart * away).sum(axis=1) * (1 - shrink), 0.0)
        reading = EPS * (np.abs(x) + np.abs(self._targets))
        sizes = np.abs(apart) + reading + g_error / m[:, None]
        errors = (4 * EPS * (np.abs(q) + np.abs(pull)) + 2 * reading + g_error / m[:, None]) * sizes
        far = (1 - shrink)[:, None] * (
            np.abs(apart) * (2 * reading + self.n_features * EPS * np.abs(away))
            + (4 * EPS * (np.abs(q) + np.abs(pull)) + g_error / m[:, None]) * np.abs(away)
        )
        error = (errors + far).sum(axis=1) + 8 * EPS * gap
        inside = np.linalg.norm(q, axis=1) <= self._delta
        gap = np.where(inside, m * gap, np.inf)
        # A node without weight has f* = 0 at 0 and inf elsewhere.
        nothing = np.where((np.abs(g) <= g_error).all(axis=1), 0.0, np.inf)
        gap = np.where(self._weights > 0, gap, nothing)
        error = np.where(self._weights > 0, m * error, (g_error * np.abs(x)).sum(axis=1))
        return FenchelGap(gap, error)
