"""A slow solver that shares no code with the tested modules: relaxed ADMM with a dense factor.

minimise over x:  sum_i 1/2 x_i'H_i x_i - q_i'x_i + lam sum_e w_e ||x_i - x_j||
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def incidence(n: int, edges: IntArray) -> FloatArray:
    """Row e is +1 at i and -1 at j."""
    b = np.zeros((len(edges), n))
    b[np.arange(len(edges)), edges[:, 0]] = 1.0
    b[np.arange(len(edges)), edges[:, 1]] = -1.0
    return b


def admm(
    hessians: FloatArray, linear: FloatArray, edges: IntArray, radii: FloatArray, n_iter: int, rho: float
) -> tuple[FloatArray, FloatArray]:
    """x and feasible duals v (||v_e|| <= radii_e) after `n_iter` steps."""
    n, d = linear.shape
    b = incidence(n, edges)
    if hessians.ndim == 1:
        scalar = linalg.cho_factor(np.diag(hessians) + rho * b.T @ b)

        def update(c: FloatArray) -> FloatArray:
            return linalg.cho_solve(scalar, c)

    else:
        full = linalg.cho_factor(linalg.block_diag(*hessians) + rho * np.kron(b.T @ b, np.eye(d)))

        def update(c: FloatArray) -> FloatArray:
            return linalg.cho_solve(full, c.ravel()).reshape(n, d)

    def ball(y: FloatArray) -> FloatArray:
        norms = np.linalg.norm(y, axis=1)
        factors = np.divide(radii, norms, out=np.ones_like(norms), where=norms > radii)
        return y * factors[:, None]

    y = np.zeros((len(edges), d))
    x = np.zeros((n, d))
    for _ in range(n_iter):
        inside = ball(y)
        x = update(linear + b.T @ (y - 2 * inside))
        y = y + 1.7 * (rho * (b @ x) - y + inside)
    return x, ball(y)
