"""Losses whose Hessians change: gradients and Hessians where they are asked for, and minimisers by Newton steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusionopt.losses.base import NodeLoss
from fusionopt.losses.huber import Huber
from fusionopt.recovery._nodes import (
    EPS,
    ClusterSums,
    NodeFunctions,
    SumClusters,
    lengths,
    shortening,
    traces,
)
from fusionopt.recovery._ranges import hessian_errors, hessian_range

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class SmoothNodes(NodeFunctions):
    """f_i(shift + unit z) in the units of the model."""

    quadratic = False

    def __init__(self, loss: NodeLoss, shift: FloatArray, gradient_unit: float, hessian_unit: float) -> None:
        self.loss, self.shift = loss, shift
        self.gradient_unit, self.hessian_unit = gradient_unit, hessian_unit
        self.step_unit = gradient_unit / hessian_unit

    def point(self, z: FloatArray) -> FloatArray:
        """x in the units of the data."""
        x: FloatArray = self.shift + self.step_unit * z
        return x

    def gradients(self, z: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            gradients: FloatArray = self.loss.gradient(self.point(z)) / self.gradient_unit
        return gradients

    def hessians(self, z: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            hessians: FloatArray = self.loss.hessians_at(self.point(z)) / self.hessian_unit
        return hessians

    def gradient_errors(self, z: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            return lengths(self.loss.gradient_error(self.point(z))) / self.gradient_unit

    def gradient_sizes(self, z: FloatArray) -> FloatArray:
        return self.gradient_errors(z) / EPS

    def hessian_errors(self, z: FloatArray) -> FloatArray:
        x = self.point(z)
        with np.errstate(over="ignore", invalid="ignore"):
            errors: FloatArray = hessian_errors(self.loss, x, self.loss.hessians_at(x)) / self.hessian_unit
        return errors

    def within(self, z: FloatArray, reach: FloatArray) -> tuple[FloatArray, FloatArray]:
        x = self.point(z)
        # The computed x is off by a rounding of its own.
        radius = reach * self.step_unit + 2 * EPS * lengths(x)
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = hessian_range(self.loss, x, radius)
        return low / self.hessian_unit, high / self.hessian_unit

    def sums(self, labels: IntArray, sizes: IntArray, over: SumClusters) -> ClusterSums:
        return _SmoothSums(self, labels, sizes, over)


class _SmoothSums(ClusterSums):
    def __init__(self, nodes: SmoothNodes, labels: IntArray, sizes: IntArray, over: SumClusters) -> None:
        self._nodes, self._labels, self._sizes, self._over = nodes, labels, sizes, over

    def gradients(self, y: FloatArray) -> FloatArray:
        return self._over(self._nodes.gradients(y[self._labels]))

    def hessians(self, y: FloatArray) -> FloatArray:
        return self._over(self._nodes.hessians(y[self._labels]))

    def gradient_errors(self, y: FloatArray) -> FloatArray:
        z = y[self._labels]
        own, terms = self._nodes.gradient_errors(z), self._nodes.gradient_sizes(z)
        errors: FloatArray = self._over(own) + EPS * self._sizes * self._over(terms)
        return errors

    def hessian_errors(self, y: FloatArray) -> FloatArray:
        z = y[self._labels]
        size = traces(self._nodes.hessians(z), y.shape[1])
        errors: FloatArray = self._over(self._nodes.hessian_errors(z)) + EPS * self._sizes * self._over(size)
        return errors

    def strong_convexity(self) -> FloatArray:
        moduli = self._over(self._nodes.loss.strong_convexity())
        rounded: FloatArray = moduli * (1.0 - (self._sizes + 4) * EPS) / self._nodes.hessian_unit
        return rounded

    def below(self, y: FloatArray, reach: float) -> FloatArray:
        z = y[self._labels]
        return self._over(self._nodes.within(z, np.full(len(z), reach))[0])


_STEPS = 100
"""Most Newton steps for a minimiser; ten are usual, many where there is none."""
_PATIENCE = 6
"""Halvings of a Newton step after which another direction is taken."""


def newton_minimisers(loss: NodeLoss, parts: IntArray) -> FloatArray:
    """One minimiser of sum_{i in part} f_i for each part; the last point of the iteration where there is none.

    Damped Newton steps for all parts side by side, each with its own step length. Where a Newton step must be
    shortened a lot, a step with the curvature that holds everywhere, if there is one, takes its place.
    """
    n_parts, d = int(parts.max()) + 1, loss.n_features

    def over(rows: FloatArray) -> FloatArray:
        out = np.zeros((n_parts, *rows.shape[1:]))
        np.add.at(out, parts, rows)
        return out

    def pull(point: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            return over(loss.gradient(point[parts]))

    count = np.bincount(parts)
    most = loss.majorant()
    safe = None if most is None else over(most)
    x = over(loss.targets) / count[:, None] if isinstance(loss, Huber) else np.zeros((n_parts, d))
    gradients = pull(x)
    smallest, stalls = np.full(n_parts, np.inf), np.zeros(n_parts)
    for _ in range(_STEPS):
        with np.errstate(over="ignore", invalid="ignore"):
            errors, hessians = over(lengths(loss.gradient_error(x[parts]))), over(loss.hessians_at(x[parts]))
        sizes = lengths(gradients)
        stalls = np.where(sizes < 0.5 * smallest, 0, stalls + 1)
        smallest = np.minimum(smallest, sizes)
        # At rounding level a few more steps gain the last digit; a stall far above it means no minimiser.
        active = (sizes > 0) & ~((sizes <= errors * (count + 1)) & (stalls > 1))
        if not active.any() or not np.isfinite(hessians).all():
            break
        p = _direction(hessians, gradients, d)
        slopes = np.abs(np.einsum("ka,ka->k", p, gradients))
        steps = np.where(active, 1.0, 0.0)
        for turn in range(40):
            trial = x + steps[:, None] * p
            found = pull(trial)
            steep = ~(np.einsum("ka,ka->k", p, found) <= 0.5 * slopes) & (steps > 0)
            if not steep.any():
                break
            if turn == _PATIENCE and safe is not None:
                p = np.where(steep[:, None], _direction(safe, gradients, d), p)
                slopes = np.abs(np.einsum("ka,ka->k", p, gradients))
                steps = np.where(steep, 1.0, steps)
            else:
                steps = np.where(steep, shortening(turn) * steps, steps)
        x, gradients = trial, found
    return x


def _direction(hessians: FloatArray, gradients: FloatArray, d: int) -> FloatArray:
    """-H^{-1} g with a multiple of the identity at rounding level, so that flat directions do not blow up."""
    size = traces(hessians, d)
    ridge = np.where(size > 0, 8 * d * EPS * size, 1.0)
    if hessians.ndim == 1:
        return -gradients / (hessians + ridge)[:, None]
    matrix = hessians + ridge[:, None, None] * np.eye(d)
    return -np.asarray(np.linalg.solve(matrix, gradients[:, :, None]), dtype=np.float64)[:, :, 0]
