"""Random losses of every kind, and their formulas written out sample by sample, for the tests of losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

import fusionopt as fo
from fusionopt.losses import NodeLoss

SAMPLED = (
    "least_squares",
    "logistic",
    "logistic_bias",
    "hinge",
    "hinge_bias",
    "huber_regression",
    "poisson",
    "softmax",
)
KINDS = (*SAMPLED, "distance", "missing", "huber")
CLASSES = 3
DELTA = 0.7


@dataclass
class Drawn:
    """A loss and the plain data it was made from."""

    kind: str
    loss: NodeLoss
    designs: list[np.ndarray]
    targets: list[np.ndarray]
    weights: list[np.ndarray]
    ridge: float

    def value(self, i: int, x: np.ndarray) -> Any:
        """f_i(x) by its formula, in the precision of x."""
        if self.kind in ("distance", "missing", "huber"):
            away = np.where(np.isnan(self.targets[i]), 0, x - np.nan_to_num(self.targets[i]))
            r = np.sqrt((away**2).sum())
            flat = self.kind == "huber" and r > DELTA
            return self.weights[i] * (DELTA * r - DELTA**2 / 2 if flat else r**2 / 2)
        total = x[0] * 0
        for z, y, w in zip(self.designs[i], self.targets[i], self.weights[i], strict=True):
            total = total + w * self._sample(z.astype(x.dtype), y, x)
        w = x[:-1] if self.kind.endswith("bias") else x
        return total / len(self.designs[i]) + self.ridge * (w**2).sum() / 2

    def _sample(self, z: np.ndarray, y: Any, x: np.ndarray) -> Any:
        if self.kind == "softmax":
            scores = z @ x.reshape(len(z), CLASSES)
            return np.log(np.exp(scores).sum()) - scores[int(y)]
        eta = z @ x[:-1] - x[-1] if self.kind.endswith("bias") else z @ x
        if self.kind == "least_squares":
            return (eta - y) ** 2 / 2
        if self.kind.startswith("logistic"):
            return np.log1p(np.exp(-y * eta))
        if self.kind.startswith("hinge"):
            return max(0, 1 - y * eta) ** 2
        if self.kind == "poisson":
            return np.exp(eta) - y * eta
        r = abs(eta - y)
        return r**2 / 2 if r <= DELTA else DELTA * r - type(r)(DELTA) ** 2 / 2


def draw(
    kind: str,
    rng: np.random.Generator,
    *,
    m: int = 4,
    p: int = 3,
    counts: Any = None,
    ridge: float = 0.2,
    is_sparse: bool = False,
    one_label: bool = False,
    unit_weights: bool = False,
) -> Drawn:
    """A loss of one kind with random shapes and weights, some of them zero."""
    if kind in ("distance", "missing", "huber"):
        points = rng.normal(size=(m, p))
        if kind == "missing":
            points[rng.uniform(size=points.shape) < 0.4] = np.nan
            points[0, 0] = 1.5
        weights = np.ones(m) if unit_weights else rng.uniform(0.1, 2, size=m) * (rng.uniform(size=m) < 0.8)
        weights[0] = 1.0
        loss = fo.Huber(points, DELTA, weights) if kind == "huber" else fo.SquaredDistance(points, weights)
        return Drawn(kind, loss, [], list(points), list(weights), 0.0)
    sizes = rng.integers(1, 8, size=m) if counts is None else np.broadcast_to(counts, m)
    designs = [rng.normal(size=(n, p)) for n in sizes]
    if is_sparse:
        designs = [z * (rng.uniform(size=z.shape) < 0.6) for z in designs]
    spread = [
        np.ones(n) if unit_weights else rng.uniform(0, 2, size=n) * (rng.uniform(size=n) < 0.8) for n in sizes
    ]
    spread[0][0] = 1.0
    targets = [_targets(kind, rng, n, one_label) for n in sizes]
    given: Any = [sparse.csr_array(z) for z in designs] if is_sparse else designs
    options: dict[str, Any] = {"ridge": ridge, "sample_weight": spread}
    if kind == "least_squares":
        made: NodeLoss = fo.LeastSquares(given, targets, **options)
    elif kind.startswith("logistic"):
        made = fo.Logistic(given, targets, free_bias=kind.endswith("bias"), **options)
    elif kind.startswith("hinge"):
        made = fo.SquaredHinge(given, targets, free_bias=kind.endswith("bias"), **options)
    elif kind == "huber_regression":
        made = fo.HuberRegression(given, targets, DELTA, **options)
    elif kind == "poisson":
        made = fo.Poisson(given, targets, **options)
    else:
        made = fo.Softmax(given, targets, n_classes=CLASSES, **options)
    return Drawn(kind, made, designs, targets, spread, ridge)


def _targets(kind: str, rng: np.random.Generator, n: int, one_label: bool) -> np.ndarray:
    if kind.startswith(("logistic", "hinge")):
        return np.ones(n) if one_label else rng.choice([-1.0, 1.0], size=n)
    if kind == "poisson":
        return np.zeros(n) if one_label else rng.poisson(1.5, size=n).astype(float)
    if kind == "softmax":
        return np.zeros(n) if one_label else rng.integers(0, CLASSES, size=n).astype(float)
    return rng.normal(size=n)


def dense(hessians: np.ndarray, d: int) -> np.ndarray:
    """(m, d, d) from that or from (m,)."""
    return hessians[:, None, None] * np.eye(d) if hessians.ndim == 1 else hessians
