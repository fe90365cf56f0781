"""Newton steps for the restricted problem."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse.linalg import splu

from fusionopt.recovery._coupling import Operator
from fusionopt.recovery._model import ClusterModel
from fusionopt.recovery._nodes import EPS, apply_blocks, as_matrices, shortening

FloatArray = NDArray[np.float64]

_DENSE_LIMIT = 250
"""Up to this many unknowns the Newton matrix is dense: threaded LAPACK is slow on a busy machine."""
_SPARSE_LIMIT = 4_000_000
"""Up to this many entries an edge list's Newton matrix is factored; beyond, conjugate gradients."""


class Newton:
    """Gradient, Newton step and value of the restricted problem in the units of the model."""

    def __init__(self, model: ClusterModel) -> None:
        self.model, self.coupling, self.sums = model, model.coupling, model.sums
        self.n_iter = 0

    def residual(self, y: FloatArray, delta: float) -> FloatArray:
        return self.sums.gradients(y) + self.coupling.pull(y, delta).force

    def dense(self, y: FloatArray, delta: float, blocks: FloatArray) -> FloatArray:
        """Second derivative (K d, K d), `blocks` (K,) or (K, d, d) for the losses."""
        k, d = y.shape
        curvature: Any = self.coupling.curvature(y, delta)
        matrix: FloatArray = curvature.toarray() if sparse.issparse(curvature) else curvature
        place = np.arange(k)
        matrix.reshape(k, d, k, d)[place, :, place] += as_matrices(blocks, d)
        return matrix

    def direction(self, y: FloatArray, delta: float, residual: FloatArray) -> FloatArray:
        """Solve (Hessian) p = -residual."""
        k, d = y.shape
        hessians = self.sums.hessians(y)
        if k * d <= _DENSE_LIMIT:
            return -_solve_dense(self.dense(y, delta, hessians), residual.ravel()).reshape(k, d)
        blocks = as_matrices(hessians, d)
        pairs = getattr(self.coupling, "pairs", None)
        if pairs is not None and len(pairs) * d * d <= _SPARSE_LIMIT:
            matrix: Any = self.coupling.curvature(y, delta) + sparse.block_diag(list(blocks))
            ridge = 4 * EPS * float(matrix.diagonal().max())
            matrix = (matrix + ridge * sparse.identity(k * d, format="csc")).tocsc()
            factor = splu(matrix, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
            solved: FloatArray = factor.solve(residual.ravel())
            return -solved.reshape(k, d)
        apply, diagonal = self.coupling.curvature_operator(y, delta)
        return -conjugate_gradients(
            lambda p: apply_blocks(hessians, p) + apply(p), diagonal + blocks, residual, 1e-6, 200
        )

    def step(self, y: FloatArray, delta: float, residual: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """One damped step: the new point, its residual, and the length of the largest move of a centre."""
        self.n_iter += 1
        p = self.direction(y, delta, residual)
        slope = float(np.vdot(p, residual))
        t, trial = 1.0, y + p
        trial_residual = self.residual(trial, delta)
        for turn in range(40):
            # The objective is convex: along p its slope only grows, so a slope that is not yet steep the
            # other way means a decrease, without the cancellation of comparing two nearly equal values.
            if float(np.vdot(p, trial_residual)) <= 0.5 * abs(slope):
                break
            t *= shortening(turn)
            trial = y + t * p
            trial_residual = self.residual(trial, delta)
        move = t * float(np.sqrt(np.square(p).sum(axis=1).max()))
        return trial, trial_residual, move


def _solve_dense(matrix: FloatArray, rhs: FloatArray) -> FloatArray:
    """Cholesky with the least multiple of the identity that it needs."""
    size = float(np.abs(np.diagonal(matrix)).max())
    if not np.isfinite(matrix).all():
        return rhs / size if np.isfinite(size) else np.zeros_like(rhs)
    ridge = 0.0
    for power in range(-15, 0):
        try:
            factor = linalg.cho_factor(matrix + ridge * np.eye(len(matrix)), lower=True)
        except linalg.LinAlgError:
            ridge = size * 10.0**power
            continue
        solved: FloatArray = linalg.cho_solve(factor, rhs)
        return solved
    return rhs / size if size > 0 else rhs


def conjugate_gradients(
    apply: Operator, diagonal: FloatArray, rhs: FloatArray, tolerance: float, max_iter: int
) -> FloatArray:
    """Solve apply(x) = rhs, (K, d), preconditioned by the inverse diagonal blocks (K, d, d)."""
    inverse = np.asarray(np.linalg.pinv(diagonal, hermitian=True), dtype=np.float64)
    x, r = np.zeros_like(rhs), rhs.copy()
    z = apply_blocks(inverse, r)
    p, rz = z, float(np.vdot(r, z))
    goal = tolerance * np.sqrt(rz)
    for _ in range(max_iter):
        if np.sqrt(max(rz, 0.0)) <= goal:
            break
        q = apply(p)
        curvature = float(np.vdot(p, q))
        if curvature <= 0:
            break
        step = rz / curvature
        x = x + step * p
        r = r - step * q
        z = apply_blocks(inverse, r)
        previous, rz = rz, float(np.vdot(r, z))
        p = z + (rz / previous) * p
    return x
