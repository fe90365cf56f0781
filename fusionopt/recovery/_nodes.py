"""The node losses around a shift, in the units of the model, with bounds on what rounding did to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
SumClusters = Callable[[FloatArray], FloatArray]

BEYOND = np.errstate(over="ignore", invalid="ignore")
"""As a decorator: lam beyond 1e150 times what the data know gives inf and NaN here and there, which prove nothing."""
EPS = float(np.finfo(np.float64).eps)


def apply_blocks(blocks: FloatArray, y: FloatArray) -> FloatArray:
    """blocks_i y_i, for scalars or matrices."""
    if blocks.ndim == 1:
        scaled: FloatArray = blocks[:, None] * y
        return scaled
    product: FloatArray = np.einsum("iab,ib->ia", blocks, y)
    return product


def traces(blocks: FloatArray, d: int) -> FloatArray:
    """Bounds on the spectral norms: h_i itself, or the trace."""
    return blocks if blocks.ndim == 1 else np.einsum("iaa->i", blocks)


def lengths(rows: FloatArray) -> FloatArray:
    """Euclidean norms of the rows."""
    norms: FloatArray = np.sqrt(np.square(rows).sum(axis=1))
    return norms


def as_matrices(blocks: FloatArray, d: int) -> FloatArray:
    """(K, d, d), from (K,) for multiples of the identity."""
    if blocks.ndim == 3:
        return blocks
    matrices: FloatArray = blocks[:, None, None] * np.eye(d)
    return matrices


def shortening(turn: int) -> float:
    """Factors of a step that was too long: halves, then tenths, because flat directions overshoot by 1e15."""
    return 0.5 if turn < 10 else 0.1


class NodeFunctions(ABC):
    """f_i(shift + z) for each node i; z (m, d) has one point for each node."""

    quadratic: bool
    """Whether the Hessians are the same everywhere."""

    @abstractmethod
    def gradients(self, z: FloatArray) -> FloatArray:
        """(m, d)."""

    @abstractmethod
    def hessians(self, z: FloatArray) -> FloatArray:
        """(m,) for h_i I, or (m, d, d)."""

    @abstractmethod
    def gradient_errors(self, z: FloatArray) -> FloatArray:
        """(m,): bounds on the norm of the rounding error of each gradient."""

    @abstractmethod
    def gradient_sizes(self, z: FloatArray) -> FloatArray:
        """(m,): sizes of the terms that the gradients are made of."""

    @abstractmethod
    def hessian_errors(self, z: FloatArray) -> FloatArray:
        """(m,): bounds on the spectral norm of the rounding error of each Hessian."""

    @abstractmethod
    def within(self, z: FloatArray, reach: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Matrices below and above every Hessian of f_i on the ball of radius reach_i around z_i."""

    @abstractmethod
    def sums(self, labels: NDArray[np.int64], sizes: NDArray[np.int64], over: SumClusters) -> ClusterSums:
        """The losses added up over the clusters."""


class ClusterSums(ABC):
    """sum_{i in C_k} f_i for each cluster k; y (K, d) has one point for each cluster."""

    @abstractmethod
    def gradients(self, y: FloatArray) -> FloatArray:
        """(K, d)."""

    @abstractmethod
    def hessians(self, y: FloatArray) -> FloatArray:
        """(K,) or (K, d, d)."""

    @abstractmethod
    def gradient_errors(self, y: FloatArray) -> FloatArray:
        """(K,)."""

    @abstractmethod
    def hessian_errors(self, y: FloatArray) -> FloatArray:
        """(K,)."""

    @abstractmethod
    def strong_convexity(self) -> FloatArray:
        """(K,): moduli that hold everywhere, >= 0, rounding taken off."""

    @abstractmethod
    def below(self, y: FloatArray, reach: float) -> FloatArray:
        """(K,) or (K, d, d): below the Hessians on the balls of radius `reach` around y_k."""


class QuadraticNodes(NodeFunctions):
    """<g_i, z> + 1/2 z'H_i z."""

    quadratic = True

    def __init__(
        self, linear: FloatArray, linear_errors: FloatArray, blocks: FloatArray, block_errors: FloatArray
    ) -> None:
        self.linear, self.linear_errors, self.blocks, self.block_errors = (
            linear,
            linear_errors,
            blocks,
            block_errors,
        )

    def gradients(self, z: FloatArray) -> FloatArray:
        gradients: FloatArray = apply_blocks(self.blocks, z) + self.linear
        return gradients

    def hessians(self, z: FloatArray) -> FloatArray:
        return self.blocks

    def gradient_errors(self, z: FloatArray) -> FloatArray:
        d = self.linear.shape[1]
        products = self.block_errors + 2 * (d + 1) * EPS * traces(self.blocks, d)
        errors: FloatArray = self.linear_errors + products * lengths(z)
        return errors

    def gradient_sizes(self, z: FloatArray) -> FloatArray:
        sizes: FloatArray = lengths(self.linear) + traces(self.blocks, self.linear.shape[1]) * lengths(z)
        return sizes

    def hessian_errors(self, z: FloatArray) -> FloatArray:
        return self.block_errors

    def within(self, z: FloatArray, reach: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.blocks, self.blocks

    def sums(self, labels: NDArray[np.int64], sizes: NDArray[np.int64], over: SumClusters) -> ClusterSums:
        return _QuadraticSums(self, sizes, over)


class _QuadraticSums(ClusterSums):
    """Summed once: no later step costs more than the number of clusters."""

    def __init__(self, nodes: QuadraticNodes, sizes: NDArray[np.int64], over: SumClusters) -> None:
        d = nodes.linear.shape[1]
        self._blocks, self._linear = over(nodes.blocks), over(nodes.linear)
        count = sizes.astype(np.float64)
        curvature = traces(self._blocks, d)
        block_errors = over(nodes.block_errors)
        self._fixed = over(nodes.linear_errors) + EPS * count * over(lengths(nodes.linear))
        self._growing = block_errors + EPS * (count + 2 * d) * curvature
        self._block_errors = block_errors
        least = self._blocks if self._blocks.ndim == 1 else np.linalg.eigvalsh(self._blocks)[:, 0]
        rounding = block_errors + EPS * (sizes + 8.0 * d) * curvature
        self._strong: FloatArray = np.maximum(least - rounding, 0.0)

    def gradients(self, y: FloatArray) -> FloatArray:
        gradients: FloatArray = apply_blocks(self._blocks, y) + self._linear
        return gradients

    def hessians(self, y: FloatArray) -> FloatArray:
        return self._blocks

    def gradient_errors(self, y: FloatArray) -> FloatArray:
        errors: FloatArray = self._fixed + self._growing * lengths(y)
        return errors

    def hessian_errors(self, y: FloatArray) -> FloatArray:
        return self._block_errors

    def strong_convexity(self) -> FloatArray:
        return self._strong

    def below(self, y: FloatArray, reach: float) -> FloatArray:
        return self._blocks
