"""The one body of all losses that are means of phi(z_s'x; y_s): only the family differs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import lsq_linear

from fusionopt.losses._families import Family
from fusionopt.losses._sampled import SampledLoss
from fusionopt.losses.base import EPS, FenchelGap, scaled_square

FloatArray = NDArray[np.float64]

NEWTON_STEPS = 12
"""Most dual Newton steps that look for a point in the domain of the conjugate."""
SHARPENING_STEPS = 3
"""Steps that are taken while the bound still falls, where it is finite already."""
_BISECTIONS = 200
_NEAR = 1e-2
_MOST_ENTRIES = 20_000
"""Least squares with bounds are tried at nodes that are this near, relative to the forces, and no larger."""
HESSIAN_NUMBERS = 2e7
"""Where the Hessians hold more numbers than this and there is a ridge, the bound by the ridge alone is enough."""


class GlmLoss(SampledLoss):
    """f_i(x) = (1/n_i) sum_s w_s phi(z_s'x; y_s) + 1/2 sum_k c_k x_k^2, with c_k = ridge, 0 for a free bias."""

    def __init__(
        self,
        family: Family,
        designs: Sequence[ArrayLike] | ArrayLike,
        targets: Sequence[ArrayLike] | ArrayLike,
        ridge: float,
        sample_weight: Sequence[ArrayLike] | ArrayLike | None,
        groups: ArrayLike | None,
        *,
        name: str,
        free_bias: bool = False,
    ) -> None:
        super().__init__(designs, targets, ridge, sample_weight, groups, name=name, free_bias=free_bias)
        self._family = family

    def _values(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            losses = self._family.value(self._design.predict(x), self._targets)
        return self._design.means(self._weights * losses) + self._ridge_values(x)

    def _gradient(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            slopes = self._family.slope(self._design.predict(x), self._targets)
        return self._design.pull(self._weights * slopes) + self._ridges * x

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        eta = self._design.predict(x)
        with np.errstate(over="ignore"):
            slopes = self._family.slope(eta, self._targets)
            error = self._family.slope_error(eta, self._targets, self._prediction_error(x), EPS)
        return self._pull_error(slopes, error) + 4 * EPS * self._ridges * np.abs(x)

    def _hessians_at(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            curvature = self._family.curvature(self._design.predict(x), self._targets)
        return self._with_ridge(self._design.gram(self._weights * curvature))

    def _model_hessians_at(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            curvature = self._family.model_curvature(self._design.predict(x), self._targets)
        return self._with_ridge(self._design.gram(self._weights * curvature))

    def majorant(self) -> FloatArray | None:
        """sup phi'' (1/n_i) sum_s w_s z_s z_s' + ridge; None for Poisson."""
        largest = self._family.largest_curvature
        return None if largest is None else self._with_ridge(self._design.gram(largest * self._weights))

    def _with_ridge(self, hessians: FloatArray) -> FloatArray:
        columns = np.arange(self.n_features)
        hessians[:, columns, columns] += self._ridges
        return hessians

    # -- the conjugate ------------------------------------------------------------------------------------
    #
    # For any alpha in the domain of phi^*, one number for each sample, and p = -g,
    #
    #   f^*(p) <= (1/n) sum_s w_s phi^*(alpha_s; y_s) + ||p - B'alpha||^2 / (2 c),
    #   B'alpha = (1/n) sum_s w_s alpha_s z_s,
    #
    # where coordinates with c = 0 must agree, p = B'alpha (theory.md section 4). Adding f(x) - <p, x> gives
    #
    #   gap <= (1/n) sum_s w_s [phi(eta_s) + phi^*(alpha_s) - alpha_s eta_s] + c/2 ||x - (p - B'alpha)/c||^2.
    #
    # alpha = phi'(eta(y)) at y = x gives ||grad f(x) + g||^2 / (2 c). One Newton step of min_y f(y) - <p, y> taken in
    # alpha, alpha = phi'(eta(y)) + phi''(eta(y)) Z dy with (Hessian) dy = p - grad f(y), makes B'alpha + c (y + dy) = p
    # hold in exact arithmetic, also where c = 0. What rounding leaves over in those coordinates is made up by changing
    # alpha by as little: the bound then moves by <leftover, y + dy - x>, which is counted in the error.

    def _fenchel(self, x: FloatArray, g: FloatArray, g_error: FloatArray) -> FenchelGap:
        judge = _Judge(self, x, -g, g_error)
        best = judge(judge.slopes, x)
        if self._ridges.all() and self.n_nodes * self.n_features**2 > HESSIAN_NUMBERS:
            return best
        for start in (x, np.zeros_like(x)):
            y = start
            for k in range(NEWTON_STEPS):
                before = best.gap
                y, alpha, end = self._dual_newton(y, -g)
                best = smaller(best, judge(alpha, end))
                improved = bool((best.gap < 0.9 * before).any())
                if np.isfinite(best.gap).all() and not (improved and k < SHARPENING_STEPS):
                    return best
        # No point of the domain was found from x, where all curvature may have died out, nor from 0.
        if self._free_bias:
            best = smaller(best, judge(*self._bias_root(x, -g)))
        left = np.flatnonzero(~np.isfinite(best.gap))
        return (
            smaller(best, judge(self._into_domain(x, -g, left), x))
            if len(left) and self._ridge == 0
            else best
        )

    def _dual_newton(self, y: FloatArray, p: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The next y, the alpha of a Newton step from y, and the end y + dy of the whole step."""
        eta = self._design.predict(y)
        r = p - self._gradient(y)
        dy = solve_semidefinite(self._hessians_at(y), r, definite=bool(self._ridges.all()))
        along = self._design.predict(dy)
        alpha = self._family.slope(eta, self._targets) + self._family.curvature(eta, self._targets) * along
        step = np.ones(self.n_nodes)
        if self._family.unitless:
            longest = np.maximum.reduceat(np.abs(along), self._design.offsets[:-1])
            step = 1 / np.maximum(longest, 1.0)
        return y + step[:, None] * dy, alpha, y + dy

    def _into_domain(self, x: FloatArray, p: FloatArray, nodes: NDArray[np.int64]) -> FloatArray:
        """Slopes at x, and at some nodes near their solution numbers of the domain of phi^* with B'alpha = p.

        Least squares with bounds, so that samples without curvature take part too. Nothing is tried far out.
        """
        alpha = self._family.slope(self._design.predict(x), self._targets)
        low, high = self._family.slope_range(self._targets)
        r = p - self._gradient(x)
        size = np.linalg.norm(p, axis=1) + np.linalg.norm(self._gradient(x), axis=1)
        for i in nodes:
            part = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
            weights = self._weights[part] / self.n_samples[i]
            if (
                np.linalg.norm(r[i]) > _NEAR * size[i]
                or (part.stop - part.start) * self.n_features > _MOST_ENTRIES
            ):
                continue
            rows = self._design.rows[part]
            columns = (rows if isinstance(rows, np.ndarray) else rows.toarray()).T * weights
            used = weights > 0
            room = (low[part] - alpha[part])[used], (high[part] - alpha[part])[used]
            if not used.any() or (room[0] >= room[1]).any():
                continue
            step = lsq_linear(columns[:, used], r[i], bounds=room, method="bvls", tol=1e-15).x
            own = alpha[part]
            own[used] = np.clip(own[used] + step, low[part][used], high[part][used])
            alpha[part] = own
        return alpha

    def _bias_root(self, x: FloatArray, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """alpha = phi' at (w, b) with the weights w of x and the b where the bias coordinate of p is met; and (w, b).

        The derivative in b never decreases, so bisection finds the root to the last bit; without a root b runs to
        infinity and the slopes to their limits.
        """
        y = x.copy()
        low, high = x[:, -1].copy(), x[:, -1].copy()
        reach = 1 + np.abs(low)

        def excess(b: FloatArray) -> FloatArray:
            y[:, -1] = b
            slopes = self._family.slope(self._design.predict(y), self._targets)
            return np.asarray(-self._design.means(self._weights * slopes) - p[:, -1])

        for _ in range(64):
            too_high, too_low = excess(low) > 0, excess(high) < 0
            if not (too_high.any() or too_low.any()):
                break
            low = np.where(too_high, low - reach, low)
            high = np.where(too_low, high + reach, high)
            reach *= 2
        for _ in range(_BISECTIONS):
            middle = low + 0.5 * (high - low)
            if ((middle == low) | (middle == high)).all():
                break
            above = excess(middle) > 0
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        y[:, -1] = low
        alpha = self._family.slope(self._design.predict(y), self._targets)
        return alpha, y

    def _dual_scale(self, g: FloatArray, g_error: FloatArray) -> float:
        if not self._free_bias:
            return 1.0
        # The derivative in b is -(1/n) sum w phi': what it can reach is an interval that holds 0.
        low, high = self._family.slope_range(self._targets)
        with np.errstate(invalid="ignore"):
            least, most = (
                self._design.means(np.where(self._weights > 0, -self._weights * end, 0.0))
                for end in (high, low)
            )
        wanted = -g[:, -1]
        # A limit is met only at infinity, and sums of samples round: keep strictly inside.
        limit = np.where(wanted > 0, most, -least) * (1 - 8 * EPS * (self._design.counts + 4))
        size = np.where(wanted != 0, np.abs(wanted) + g_error[:, -1], 0.0)
        factors = np.divide(limit, size, out=np.ones_like(size), where=size > 0)
        return float(factors.min())


class _Judge:
    """The bound of the gap at one x and p by any alpha, and its rounding error."""

    def __init__(self, loss: GlmLoss, x: FloatArray, p: FloatArray, p_error: FloatArray) -> None:
        self._family, self._design, self._y = loss._family, loss._design, loss._targets
        self._weights, self._ridges = loss._weights, loss._ridges
        self._absolute = self._design.absolute()
        self._x, self._p, self._p_error = x, p, p_error
        self._eta = self._design.predict(x)
        self._eta_error = (self._design.n_columns + 2) * EPS * self._absolute.predict(np.abs(x))
        self.slopes = self._family.slope(self._eta, self._y)

    def __call__(self, alpha: FloatArray, end: FloatArray) -> FenchelGap:
        """`end` is the point y + dy that belongs to alpha."""
        family, design, c, x = self._family, self._design, self._ridges, self._x
        counts = self._weights > 0
        samples = np.where(counts, family.fenchel_gap(self._eta, alpha, self._y), 0.0)
        samples_error = family.fenchel_error(self._eta, alpha, self._y, self._eta_error, EPS)
        samples_error = np.where(counts, samples_error, 0.0)
        weighted = self._weights * np.where(counts, alpha, 0.0)
        r = self._p - design.pull(weighted) - c * x
        r_error = EPS * (design.counts[:, None] + 4) * self._absolute.pull(np.abs(weighted))
        r_error += EPS * (2 * np.abs(self._p) + 4 * c * np.abs(x)) + self._p_error
        moved = np.abs(x) + np.abs(end)
        rest = scaled_square(r, r_error, np.broadcast_to(c, x.shape), moved)
        own = design.means(self._weights * np.maximum(samples, 0.0))
        error = design.means(self._weights * samples_error) + EPS * design.counts * own
        return FenchelGap(own + rest.gap, error + rest.error)


def solve_semidefinite(matrices: FloatArray, right: FloatArray, definite: bool = False) -> FloatArray:
    """Least-norm solutions of H_i u = r_i, after scaling the diagonal of H_i to one; (m, d)."""
    diagonal = np.einsum("ikk->ik", matrices)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = matrices * scale[:, :, None] * scale[:, None, :]
    scaled = np.where(np.isfinite(scaled), scaled, 0.0)
    if definite:
        try:
            return np.asarray(np.linalg.solve(scaled, (right * scale)[:, :, None])[:, :, 0] * scale)
        except np.linalg.LinAlgError:
            pass  # definite, but not in float64
    values, vectors = np.linalg.eigh(scaled)
    floor = 8 * right.shape[1] * EPS * np.maximum(values[:, -1:], 0.0)
    along = np.einsum("iac,ia->ic", vectors, right * scale)
    along = np.divide(along, values, out=np.zeros_like(along), where=values > floor)
    return np.asarray(np.einsum("iac,ic->ia", vectors, along) * scale)


def smaller(a: FenchelGap, b: FenchelGap) -> FenchelGap:
    """Node by node the better of two bounds; NaN loses."""
    first = np.where(np.isnan(a.gap), np.inf, a.gap)
    second = np.where(np.isfinite(b.gap) & (b.error >= 0), b.gap, np.inf)
    take = np.where(np.isfinite(second), second + b.error, np.inf) < first + a.error
    return FenchelGap(np.where(take, second, first), np.where(take, b.error, a.error))
