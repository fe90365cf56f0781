"""The squared Euclidean norm: the penalty of the older personalised methods; it pulls and never fuses."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.penalties.base import RadialPenalty

FloatArray = NDArray[np.float64]


class SquaredL2(RadialPenalty):
    """g(u; lam) = lam ||u||_2^2 (no factor 1/2).

    Examples
    --------
    >>> SquaredL2().prox([0.0, 3.0], lam=0.5, step=2.0).tolist()
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

    def smoothness(self, lam: float) -> float:
        """2 lam."""
        return 2 * _checks.check_lam(lam)

    def value(self, t: ArrayLike, lam: float) -> FloatArray:
        """lam t^2."""
        weight, lengths = _checks.check_lam(lam), _checks.as_nonnegative_array("t", t)
        # In this order t^2 alone cannot overflow or underflow where the value does not.
        return np.asarray((weight * lengths) * lengths)

    def derivative(self, t: ArrayLike, lam: float) -> FloatArray:
        """2 lam t."""
        return np.asarray(2 * _checks.check_lam(lam) * _checks.as_nonnegative_array("t", t))

    def prox(self, t: ArrayLike, lam: float, step: float) -> FloatArray:
        """t / (1 + 2 lam step): the argmin of lam z^2 + (z - t)^2 / (2 step)."""
        pull = 2 * _checks.check_lam(lam) * _checks.as_nonnegative_scalar("step", step)
        return np.asarray(_checks.as_nonnegative_array("t", t) / (1 + pull))

    def conjugate(self, s: ArrayLike, lam: float) -> FloatArray:
        """s^2 / (4 lam); at lam = 0 it is 0 for s = 0 and inf beyond."""
        weight, lengths = _checks.check_lam(lam), _checks.as_nonnegative_array("s", s)
        if weight == 0:
            return np.where(lengths > 0, np.inf, 0.0)
        with np.errstate(over="ignore"):
            return np.asarray(lengths * (lengths / (4 * weight)))
