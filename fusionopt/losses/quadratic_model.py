"""The quadratic that stands for a smooth loss near a point."""

from __future__ import annotations

import numpy as np

from fusionopt.losses.base import EPS, FloatArray, QuadraticNodeLoss, read_only


class QuadraticModel(QuadraticNodeLoss):
    """f_i(x) ~ c_i + <g_i, x - z_i> + 1/2 (x - z_i)'H_i (x - z_i) around the anchor z.

    Parameters
    ----------
    anchor : float64 (n_nodes, n_features)
        z.
    values : float64 (n_nodes,)
        c_i.
    gradients : float64 (n_nodes, n_features)
        g_i.
    hessians : float64 (n_nodes, n_features, n_features), or (n_nodes,) of h_i where H_i = h_i I
        Positive semidefinite.
    gradient_errors : float64 (n_nodes, n_features)
        Bound on the rounding error of g_i.
    """

    def __init__(
        self,
        anchor: FloatArray,
        values: FloatArray,
        gradients: FloatArray,
        hessians: FloatArray,
        gradient_errors: FloatArray,
    ) -> None:
        self._anchor = read_only(anchor.copy())
        self._constants = read_only(values.copy())
        self._slope = read_only(gradients.copy())
        self._curvature = read_only(hessians.copy())
        self._slope_error = read_only(gradient_errors.copy())
        self._seal()

    @property
    def anchor(self) -> FloatArray:
        """z, read-only."""
        return self._anchor

    @property
    def n_nodes(self) -> int:
        return len(self._anchor)

    @property
    def n_features(self) -> int:
        return int(self._anchor.shape[1])

    def hessians(self) -> FloatArray:
        return self._curvature

    def linear(self) -> FloatArray:
        return self._bent(self._anchor) - self._slope

    def constants(self) -> FloatArray:
        z = self._anchor
        along: FloatArray = ((0.5 * self._bent(z) - self._slope) * z).sum(axis=1)
        return self._constants + along

    def _bent(self, u: FloatArray, curvature: FloatArray | None = None) -> FloatArray:
        """H_i u_i."""
        h = self._curvature if curvature is None else curvature
        bent = h[:, None] * u if h.ndim == 1 else np.matmul(h, u[:, :, None])[:, :, 0]
        return np.asarray(bent, dtype=np.float64)

    def _values(self, x: FloatArray) -> FloatArray:
        u = x - self._anchor
        inner: FloatArray = ((self._slope + 0.5 * self._bent(u)) * u).sum(axis=1)
        return self._constants + inner

    def _gradient(self, x: FloatArray) -> FloatArray:
        return self._slope + self._bent(x - self._anchor)

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        u = np.abs(x - self._anchor) + EPS * np.abs(x)
        terms = np.abs(self._slope) + self._bent(u, np.abs(self._curvature))
        return self._slope_error + (self.n_features + 4) * EPS * terms
