"""Sample losses phi(eta; y) of a linear prediction eta: value, slope, curvature, Fenchel gap.

The Fenchel gap phi(eta) + phi^*(alpha) - alpha eta is written so that it does not cancel where alpha is near the slope
at eta; it is inf for alpha outside the domain of phi^*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlog1py, xlogy

FloatArray = NDArray[np.float64]


class Family(ABC):
    """phi and its relatives, entry by entry on arrays of equal shape."""

    largest_curvature: float | None
    """sup phi'', None where it is infinite."""
    unitless: bool = False
    """eta is the argument of an exponential: a change of 1 in it is a natural step."""

    @abstractmethod
    def value(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        """phi(eta; y)."""

    @abstractmethod
    def slope(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        """phi'(eta; y), non-decreasing in eta."""

    @abstractmethod
    def curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        """phi''(eta; y), an element of the generalised derivative of the slope at a knee."""

    def model_curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        """Curvature for a quadratic model around eta: phi'', and something below its bound where phi'' vanishes."""
        return self.curvature(eta, y)

    @abstractmethod
    def fenchel_gap(self, eta: FloatArray, alpha: FloatArray, y: FloatArray) -> FloatArray:
        """phi(eta) + phi^*(alpha) - alpha eta >= 0."""

    def fenchel_error(
        self, eta: FloatArray, alpha: FloatArray, y: FloatArray, eta_error: FloatArray, eps: float
    ) -> FloatArray:
        """Bound on the error of a computed `fenchel_gap` at an eta known to within `eta_error`."""
        # The derivative of the gap in eta is the slope less alpha.
        away = np.abs(alpha - self.slope(eta, y))
        reading = eta_error + 4 * eps * (np.abs(eta) + np.abs(y))
        error = away * reading + self.curvature(eta, y) * eta_error**2
        return np.asarray(
            error + 8 * eps * self.fenchel_gap(eta, alpha, y) + eps * self._terms(eta, alpha, y)
        )

    def _terms(self, eta: FloatArray, alpha: FloatArray, y: FloatArray) -> FloatArray:
        """Size of what cancels in `fenchel_gap` even where it is 0."""
        return np.zeros_like(eta)

    @abstractmethod
    def slope_range(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Infimum and supremum of the slope: the domain of phi^*, up to its ends."""

    @abstractmethod
    def slope_error(self, eta: FloatArray, y: FloatArray, eta_error: FloatArray, eps: float) -> FloatArray:
        """Bound on the error of a computed slope at an eta known to within `eta_error`."""


def relative_entropy(q: FloatArray, p: FloatArray, away: FloatArray) -> FloatArray:
    """q log(q / p) for q >= 0, p > 0 and away = q - p, to full precision near q = p and where q is a tiny part of p."""
    # away / p rounds to -1 there, and log1p of that would be -inf.
    small = q < 0.5 * p
    held = np.maximum(q, 0.0)
    near = xlog1py(q, np.where(small, 0.0, away / p))
    return np.asarray(np.where(small, xlogy(held, np.where(small, held / p, 1.0)), near))


class LogisticFamily(Family):
    """phi = log(1 + exp(-y eta)), y in {-1, 1};  phi^*: with s = -y alpha in [0, 1], s log s + (1 - s) log(1 - s)."""

    largest_curvature = 0.25
    unitless = True

    def value(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.logaddexp(0.0, -y * eta))

    def slope(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(-y * expit(-y * eta))

    def curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(expit(eta) * expit(-eta))

    def fenchel_gap(self, eta: FloatArray, alpha: FloatArray, y: FloatArray) -> FloatArray:
        # Kullback-Leibler divergence of s from the probability pi that eta gives.
        s, pi, rest = -y * alpha, expit(-y * eta), expit(y * eta)
        gap = relative_entropy(s, pi, s - pi) + relative_entropy(1 - s, rest, pi - s)
        # pi has underflowed: log pi is -y eta, up to rounding.
        far = (pi < 1e-300) | (rest < 1e-300)
        if far.any():
            m = y * eta
            entropy = xlog1py(s, s - 1) + xlog1py(1 - s, -s)
            gap = np.where(far, entropy + np.logaddexp(0.0, -m) + s * m, gap)
        return np.where((s >= 0) & (s <= 1), gap, np.inf)

    def _terms(self, eta: FloatArray, alpha: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(4 * (np.abs(alpha) + expit(-y * eta)))

    def slope_range(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)

    def slope_error(self, eta: FloatArray, y: FloatArray, eta_error: FloatArray, eps: float) -> FloatArray:
        nearest = np.maximum(np.abs(eta) - eta_error, 0.0)
        return np.asarray(
            self.curvature(nearest, y) * eta_error + 4 * eps * (1 + np.abs(eta)) * np.abs(self.slope(eta, y))
        )


class SquaredHingeFamily(Family):
    """phi = max(0, 1 - y eta)^2, y in {-1, 1};  phi^*: with t = y alpha <= 0, t + t^2/4."""

    largest_curvature = 2.0

    def value(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(0.0, 1 - y * eta) ** 2)

    def slope(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(-2 * y * np.maximum(0.0, 1 - y * eta))

    def curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.where(y * eta < 1, 2.0, 0.0)

    def fenchel_gap(self, eta: FloatArray, alpha: FloatArray, y: FloatArray) -> FloatArray:
        tau, short = -0.5 * y * alpha, 1 - y * eta
        gap = (np.maximum(short, 0.0) - tau) ** 2 + 2 * tau * np.maximum(-short, 0.0)
        return np.where(tau >= 0, gap, np.inf)

    def slope_range(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.where(y > 0, -np.inf, 0.0), np.where(y > 0, 0.0, np.inf)

    def slope_error(self, eta: FloatArray, y: FloatArray, eta_error: FloatArray, eps: float) -> FloatArray:
        return np.asarray(2 * eta_error + 4 * eps * (1 + np.abs(eta)))


@dataclass(frozen=True)
class HuberFamily(Family):
    """phi = h(eta - y), h(r) = r^2/2 for |r| <= delta, delta |r| - delta^2/2 beyond;  phi^* = alpha^2/2 + alpha y,
    |alpha| <= delta."""

    delta: float
    largest_curvature = 1.0

    def value(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        r = np.abs(eta - y)
        inside = np.minimum(r, self.delta)
        return np.asarray(inside * (r - 0.5 * inside))

    def slope(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.clip(eta - y, -self.delta, self.delta))

    def curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.where(np.abs(eta - y) <= self.delta, 1.0, 0.0)

    def model_curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(self.delta / np.maximum(np.abs(eta - y), self.delta))

    def fenchel_gap(self, eta: FloatArray, alpha: FloatArray, y: FloatArray) -> FloatArray:
        r, slope = eta - y, self.slope(eta, y)
        gap = 0.5 * (alpha - slope) ** 2 + (slope - alpha) * (r - slope)
        return np.where(np.abs(alpha) <= self.delta, gap, np.inf)

    def slope_range(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.full_like(y, -self.delta), np.full_like(y, self.delta)

    def slope_error(self, eta: FloatArray, y: FloatArray, eta_error: FloatArray, eps: float) -> FloatArray:
        return np.asarray(eta_error + 2 * eps * (np.abs(eta) + np.abs(y)))


class PoissonFamily(Family):
    """phi = exp(eta) - y eta, y >= 0;  phi^*: with q = alpha + y >= 0, q log q - q."""

    largest_curvature = None
    unitless = True

    def value(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.exp(eta) - y * eta)

    def slope(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.exp(eta) - y)

    def curvature(self, eta: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.exp(eta))

    def fenchel_gap(self, eta: FloatArray, alpha: FloatArray, y: FloatArray) -> FloatArray:
        q, mean = alpha + y, np.exp(eta)
        gap = relative_entropy(q, mean, q - mean) - (q - mean)
        far = mean < 1e-300
        if far.any():
            gap = np.where(far, xlog1py(q, q - 1) - q * eta - (q - mean), gap)
        return np.where(q >= 0, gap, np.inf)

    def _terms(self, eta: FloatArray, alpha: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(4 * (np.abs(alpha + y) + np.exp(eta)))

    def slope_range(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        return -y, np.full_like(y, np.inf)

    def slope_error(self, eta: FloatArray, y: FloatArray, eta_error: FloatArray, eps: float) -> FloatArray:
        mean = np.exp(eta)
        return np.asarray(mean * np.expm1(eta_error) + 4 * eps * ((1 + np.abs(eta)) * mean + np.abs(y)))
