"""The minimax concave penalty."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.penalties.base import RadialPenalty

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Mcp(RadialPenalty):
    """A slope that falls from lam at zero to nothing at gamma lam: distant clusters are not pulled.

        g(t; lam) = lam t - t^2 / (2 gamma)        t <= gamma lam
                    gamma lam^2 / 2                t > gamma lam,          t = ||u||_2

    Parameters
    ----------
    gamma : float > 0
        The knee is at gamma lam.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        gamma <= 0, or not a number.

    References
    ----------
    Zhang, Annals of Statistics 38 (2010), equation (2.1).

    Examples
    --------
    >>> Mcp().prox([0.5, 2.0, 4.0], lam=1.0, step=1.0).tolist()
    [0.0, 1.5, 4.0]
    """

    gamma: float = 3.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", _checks.as_positive_scalar("gamma", self.gamma))

    @property
    def convex(self) -> bool:
        """False."""
        return False

    @property
    def concave(self) -> bool:
        """True."""
        return True

    @property
    def linear_in_lam(self) -> bool:
        """False: the knee moves with lam."""
        return False

    @property
    def weak_convexity(self) -> float:
        """1 / gamma."""
        return 1 / self.gamma

    def value(self, t: ArrayLike, lam: float) -> FloatArray:
        """The formula of the class."""
        weight = _checks.check_lam(lam)
        within = np.minimum(_checks.as_nonnegative_array("t", t), self.gamma * weight)
        return np.asarray(within * (weight - within / (2 * self.gamma)))

    def derivative(self, t: ArrayLike, lam: float) -> FloatArray:
        """max(lam - t / gamma, 0)."""
        return np.asarray(
            np.maximum(_checks.check_lam(lam) - _checks.as_nonnegative_array("t", t) / self.gamma, 0.0)
        )

    def prox(self, t: ArrayLike, lam: float, step: float) -> FloatArray:
        """argmin over z >= 0 of g(z; lam) + (z - t)^2 / (2 step).

        For step < gamma: 0 for t <= lam step, gamma (t - lam step) / (gamma - step) up to gamma lam, t beyond;
        from step = gamma on, where the prox jumps: 0 for t <= lam sqrt(gamma step), t beyond.
        """
        lengths, weight = _checks.as_nonnegative_array("t", t), _checks.check_lam(lam)
        size, gamma = _checks.as_nonnegative_scalar("step", step), self.gamma
        if size < gamma:
            knee = gamma * weight
            # The same as gamma (t - lam step) / (gamma - step), without cancelling at the knee.
            middle = np.clip(
                lengths - size * (np.maximum(knee - lengths, 0.0) / (gamma - size)), 0.0, lengths
            )
            return np.asarray(
                np.where(lengths <= weight * size, 0.0, np.where(lengths <= knee, middle, lengths))
            )
        return np.asarray(np.where(lengths <= weight * math.sqrt(gamma * size), 0.0, lengths))
