"""The smoothly clipped absolute deviation, and its twin without a kink at zero."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.penalties.base import RadialPenalty

FloatArray = NDArray[np.float64]


def _checked_a(a: object) -> float:
    return _checks.as_scalar_above("a", a, 2.0, "SCAD needs room between its knees lam and a lam")


def _scad_value(t: FloatArray, lam: float, a: float) -> FloatArray:
    within = np.minimum(t, a * lam)
    past = np.maximum(within - lam, 0.0)
    value: FloatArray = lam * within - past * (past / (2 * (a - 1)))
    return value


def _scad_derivative(t: FloatArray, lam: float, a: float) -> FloatArray:
    slope: FloatArray = np.minimum(np.maximum(a * lam - t, 0.0) / (a - 1), lam)
    return slope


def _scad_prox(t: FloatArray, lam: float, step: float, a: float, xi: float) -> FloatArray:
    """The prox of `SmoothedScad`, and with xi = 0 that of `Scad`."""
    reach = lam * step
    near = t * (xi / (xi + reach)) if xi + reach > 0 else t
    inner = np.where(t <= xi + reach, near, t - reach)
    if step < a - 1:
        # t - step g'(t): the same as ((a-1) t - a lam step) / (a-1-step), without cancelling at the knee a lam.
        middle = np.clip(t - step * (np.maximum(a * lam - t, 0.0) / ((a - 1) - step)), lam, t)
        return np.asarray(np.where(t <= lam + reach, inner, np.where(t <= a * lam, middle, t)))
    # Not convex between the knees: a jump from the inner zone to z = t, where both have the same objective.
    jump = lam * (a + 1) / 2 + reach / 2
    if jump - reach < xi:
        jump = lam * math.sqrt((a + 1 - xi / lam) * (xi / lam + step))
    return np.asarray(np.where(t <= jump, inner, t))


@dataclass(frozen=True)
class Scad(RadialPenalty):
    """Linear near zero, constant beyond a lam: distant clusters are not pulled.

        g(t; lam) = lam t                                       t <= lam
                    (a lam t - (t^2 + lam^2)/2) / (a - 1)       lam < t <= a lam
                    lam^2 (a + 1) / 2                           t > a lam,          t = ||u||_2

    Parameters
    ----------
    a : float > 2
        The second knee is at a lam.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        a <= 2, or not a number.

    References
    ----------
    Fan and Li, JASA 96 (2001), section 2; Ma and Huang, JASA 112 (2017), for pairs of nodes.

    Examples
    --------
    >>> Scad().value([0.5, 100.0], lam=1.0).tolist()
    [0.5, 2.35]
    >>> Scad().prox([0.5, 1.5, 4.0], lam=1.0, step=1.0).tolist()
    [0.0, 0.5, 4.0]
    """

    a: float = 3.7

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", _checked_a(self.a))

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
        """False: the knees move with lam."""
        return False

    @property
    def weak_convexity(self) -> float:
        """1 / (a - 1)."""
        return 1 / (self.a - 1)

    def value(self, t: ArrayLike, lam: float) -> FloatArray:
        """The formula of the class."""
        return _scad_value(_checks.as_nonnegative_array("t", t), _checks.check_lam(lam), self.a)

    def derivative(self, t: ArrayLike, lam: float) -> FloatArray:
        """lam for t <= lam, (a lam - t) / (a - 1) up to a lam, 0 beyond."""
        return _scad_derivative(_checks.as_nonnegative_array("t", t), _checks.check_lam(lam), self.a)

    def prox(self, t: ArrayLike, lam: float, step: float) -> FloatArray:
        """argmin over z >= 0 of g(z; lam) + (z - t)^2 / (2 step).

        For step < a - 1:

            max(t - lam step, 0)                                t <= lam + lam step
            ((a - 1) t - a lam step) / (a - 1 - step)           lam + lam step < t <= a lam
            t                                                   t > a lam

        and from step = a - 1 on, where the prox jumps: max(t - lam step, 0) for t <= s, and t beyond, with
        s = lam (a + 1 + step) / 2 for step <= a + 1 and s = lam sqrt((a + 1) step) for larger steps.
        """
        lengths, weight = _checks.as_nonnegative_array("t", t), _checks.check_lam(lam)
        return _scad_prox(lengths, weight, _checks.as_nonnegative_scalar("step", step), self.a, 0.0)


@dataclass(frozen=True)
class SmoothedScad(RadialPenalty):
    """SCAD with a parabola in place of its kink at zero; never fuses two rows exactly.

        g(t; lam) = lam t^2 / (2 xi) + xi lam / 2      t <= xi
                    Scad(a)                            t > xi,          t = ||u||_2

    g(0) = xi lam / 2. Where lam < xi the formula would jump, and xi is taken as lam there.

    Parameters
    ----------
    a : float > 2
        The last knee is at a lam.
    xi : float > 0
        Half-width of the parabola, in the units of x.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        a <= 2 or xi <= 0, or not a number.

    References
    ----------
    Yu, Liu, Wang and Sun, AAAI 2023 (FPFC), the surrogate of the SCAD penalty.

    Examples
    --------
    >>> SmoothedScad(xi=0.5).value([0.0, 0.5, 100.0], lam=1.0).tolist()
    [0.25, 0.5, 2.35]
    """

    a: float = 3.7
    xi: float = 1e-3

    def __post_init__(self) -> None:
        object.__setattr__(self, "a", _checked_a(self.a))
        object.__setattr__(self, "xi", _checks.as_positive_scalar("xi", self.xi))

    @property
    def convex(self) -> bool:
        """False."""
        return False

    @property
    def linear_in_lam(self) -> bool:
        """False: the knees move with lam."""
        return False

    @property
    def weak_convexity(self) -> float:
        """1 / (a - 1)."""
        return 1 / (self.a - 1)

    def smoothness(self, lam: float) -> float:
        """max(lam / xi, 1 / (a - 1)), xi no larger than lam; 0 at lam = 0."""
        weight = _checks.check_lam(lam)
        return 0.0 if weight == 0 else max(weight / min(self.xi, weight), 1 / (self.a - 1))

    def value(self, t: ArrayLike, lam: float) -> FloatArray:
        """The formula of the class."""
        lengths, weight = _checks.as_nonnegative_array("t", t), _checks.check_lam(lam)
        xi = min(self.xi, weight)
        near = weight / 2 * (xi + lengths * (np.minimum(lengths, xi) / xi)) if xi > 0 else 0.0
        return np.asarray(np.where(lengths <= xi, near, _scad_value(lengths, weight, self.a)))

    def derivative(self, t: ArrayLike, lam: float) -> FloatArray:
        """lam t / xi for t <= xi, then lam up to lam, (a lam - t) / (a - 1) up to a lam, 0 beyond."""
        lengths, weight = _checks.as_nonnegative_array("t", t), _checks.check_lam(lam)
        xi = min(self.xi, weight)
        near = weight * (np.minimum(lengths, xi) / xi) if xi > 0 else 0.0
        return np.asarray(np.where(lengths <= xi, near, _scad_derivative(lengths, weight, self.a)))

    def prox(self, t: ArrayLike, lam: float, step: float) -> FloatArray:
        """argmin over z >= 0 of g(z; lam) + (z - t)^2 / (2 step).

        For step < a - 1:

            xi t / (xi + lam step)                              t <= xi + lam step
            t - lam step                                        xi + lam step < t <= lam + lam step
            ((a - 1) t - a lam step) / (a - 1 - step)           lam + lam step < t <= a lam
            t                                                   t > a lam

        and from step = a - 1 on, where the prox jumps: the first two lines for t <= s, and t beyond, with
        s = lam (a + 1 + step) / 2 where that is at least xi + lam step, and
        s = sqrt((lam (a + 1) - xi) (xi + lam step)) elsewhere.
        """
        lengths, weight = _checks.as_nonnegative_array("t", t), _checks.check_lam(lam)
        size = _checks.as_nonnegative_scalar("step", step)
        return _scad_prox(lengths, weight, size, self.a, min(self.xi, weight))
