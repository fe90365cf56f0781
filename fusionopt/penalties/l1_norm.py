"""The sum of absolute values: fuses each column on its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.penalties.base import Penalty

FloatArray = NDArray[np.float64]


class L1Norm(Penalty):
    """g(u; lam) = lam ||u||_1.

    Not radial: the columns of x are penalised one by one, so two nodes may share one coefficient and differ in another.

    Examples
    --------
    >>> L1Norm().prox_vector([0.5, -3.0], lam=1.0, step=2.0).tolist()
    [0.0, -1.0]
    """

    @property
    def convex(self) -> bool:
        """True."""
        return True

    @property
    def linear_in_lam(self) -> bool:
        """True."""
        return True

    def value_vector(self, u: ArrayLike, lam: float) -> FloatArray:
        """lam sum_k |u_k|."""
        return np.asarray(_checks.check_lam(lam) * np.abs(_checks.as_array("u", u)).sum(axis=-1))

    def prox_vector(self, u: ArrayLike, lam: float, step: float) -> FloatArray:
        """sign(u_k) max(|u_k| - lam step, 0) for each entry."""
        threshold = _checks.check_lam(lam) * _checks.as_nonnegative_scalar("step", step)
        vectors = _checks.as_array("u", u)
        # Adding 0.0 turns -0.0 into 0.0: entries that fuse have the same bits.
        return np.asarray(np.copysign(np.maximum(np.abs(vectors) - threshold, 0.0), vectors) + 0.0)

    def conjugate_vector(self, v: ArrayLike, lam: float) -> FloatArray:
        """0 where every |v_k| <= lam, inf beyond."""
        weight = _checks.check_lam(lam)
        return np.where((np.abs(_checks.as_array("v", v)) <= weight).all(axis=-1), 0.0, np.inf)
