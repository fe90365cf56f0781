"""The Euclidean norm: sum-of-norms clustering, the group fused lasso."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.penalties.base import RadialPenalty

FloatArray = NDArray[np.float64]


class L2Norm(RadialPenalty):
    """g(u; lam) = lam ||u||_2.

    Examples
    --------
    >>> L2Norm().prox([0.5, 3.0], lam=1.0, step=2.0).tolist()
    [0.0, 1.0]
    """

    @property
    def convex(self) -> bool:
        """True."""
        return True

    @property
    def linear_in_lam(self) -> bool:
        """True."""
        return True

    def value(self, t: ArrayLike, lam: float) -> FloatArray:
        """lam t."""
        return _checks.check_lam(lam) * _checks.as_nonnegative_array("t", t)

    def derivative(self, t: ArrayLike, lam: float) -> FloatArray:
        """lam, also at t = 0 (from the right)."""
        return np.full_like(_checks.as_nonnegative_array("t", t), _checks.check_lam(lam))

    def prox(self, t: ArrayLike, lam: float, step: float) -> FloatArray:
        """max(t - lam step, 0): soft thresholding, the argmin of lam z + (z - t)^2 / (2 step)."""
        threshold = _checks.check_lam(lam) * _checks.as_nonnegative_scalar("step", step)
        shrunk: FloatArray = np.maximum(_checks.as_nonnegative_array("t", t) - threshold, 0.0)
        return shrunk

    def conjugate(self, s: ArrayLike, lam: float) -> FloatArray:
        """0 for s <= lam, inf beyond."""
        weight = _checks.check_lam(lam)
        return np.where(_checks.as_nonnegative_array("s", s) <= weight, 0.0, np.inf)
