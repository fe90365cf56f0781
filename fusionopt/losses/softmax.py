"""One multinomial logistic regression for each node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, logsumexp, softmax, xlogy

from fusionopt import _checks
from fusionopt.losses._families import relative_entropy
from fusionopt.losses._glm import (
    HESSIAN_NUMBERS,
    NEWTON_STEPS,
    SHARPENING_STEPS,
    smaller,
    solve_semidefinite,
)
from fusionopt.losses._labels import class_indices
from fusionopt.losses._sampled import SampledLoss
from fusionopt.losses.base import EPS, FenchelGap, scaled_square

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Softmax(SampledLoss):
    """f_i(x) = (1/n_i) sum_s w_s [log sum_c exp(z_s'X_c) - z_s'X_{y_s}] + ridge/2 ||x||_2^2.

    x is the (p, C) matrix X flattened in C order, so x.reshape(p, C)[:, c] = X_c are the weights of class c.

    Parameters
    ----------
    designs : sequence of array-likes (n_i, p), or array-like (N, p) with `groups`
        As in `LeastSquares`; SciPy sparse matrices are kept as CSR.
    classes : sequence of array-likes (n_i,), or array-like (N,)
        The y_s, whole numbers 0, ..., C - 1.
    ridge : float >= 0
    n_classes : int >= 2, or None
        C; None is the largest class plus one.
    sample_weight, groups
        As in `LeastSquares`.

    Raises
    ------
    InvalidArgumentError
        Classes that are not whole numbers, or beyond n_classes; else as in `LeastSquares`.
    InvalidTypeError
        As in `LeastSquares`.

    Notes
    -----
    Adding one vector to all X_c changes nothing but the ridge: without one a minimiser is never unique.

    Examples
    --------
    >>> loss = Softmax([[[1.0], [2.0]]], [[0, 2]])
    >>> loss.n_features, round(loss.value([[0.0, 0.0, 0.0]]), 6)
    (3, 1.098612)
    """

    def __init__(
        self,
        designs: Sequence[ArrayLike] | ArrayLike,
        classes: Sequence[ArrayLike] | ArrayLike,
        ridge: float = 0.0,
        n_classes: int | None = None,
        sample_weight: Sequence[ArrayLike] | ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> None:
        super().__init__(designs, classes, ridge, sample_weight, groups, name="classes")
        self._classes, self._n_classes = class_indices("classes", self._targets, n_classes)
        self._seal()

    @property
    def n_features(self) -> int:
        """p C."""
        return self._design.n_columns * self._n_classes

    @property
    def n_classes(self) -> int:
        """C."""
        return self._n_classes

    @property
    def classes(self) -> IntArray:
        """y, (N,), in the order of `designs`; read-only."""
        return self._classes

    def _ridge_values(self, x: FloatArray) -> FloatArray:
        values: FloatArray = 0.5 * self._ridge * np.einsum("ij,ij->i", x, x)
        return values

    def _predict(self, x: FloatArray) -> FloatArray:
        """z_s'X_c, (N, C)."""
        return self._design.predict(x.reshape(self.n_nodes, -1, self._n_classes))

    def _pull(self, a: FloatArray) -> FloatArray:
        return self._design.pull(a).reshape(self.n_nodes, -1)

    def _slopes(self, eta: FloatArray) -> FloatArray:
        """softmax(eta) - e_y, (N, C); the entry of y from the others, so that it does not cancel."""
        slopes: FloatArray = softmax(eta, axis=1)
        rows = np.arange(len(eta))
        slopes[rows, self._classes] = 0.0
        slopes[rows, self._classes] = -slopes.sum(axis=1)
        return slopes

    def _values(self, x: FloatArray) -> FloatArray:
        eta = self._predict(x)
        away = eta - np.take_along_axis(eta, self._classes[:, None], axis=1)
        return self._design.means(self._weights * logsumexp(away, axis=1)) + self._ridge_values(x)

    def _gradient(self, x: FloatArray) -> FloatArray:
        slopes = self._slopes(self._predict(x))
        return self._pull(self._weights[:, None] * slopes) + self._ridge * x

    def _slopes_error(self, eta: FloatArray, eta_error: FloatArray) -> FloatArray:
        probabilities = softmax(eta, axis=1)
        # d pi_c = pi_c (d eta_c - sum_k pi_k d eta_k); the exponentials round their argument.
        own = np.maximum(np.abs(eta - eta.max(axis=1, keepdims=True)), 1.0) * 4 * EPS + 2 * eta_error
        mean = (probabilities * own).sum(axis=1, keepdims=True)
        error = probabilities * (own + mean)
        rows = np.arange(len(eta))
        error[rows, self._classes] = error.sum(axis=1) - error[rows, self._classes]
        return np.asarray(error * 1.01 + self._n_classes * EPS * np.abs(self._slopes(eta)))

    def _eta_error(self, x: FloatArray) -> FloatArray:
        return self._prediction_error(x.reshape(self.n_nodes, -1, self._n_classes))

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        eta = self._predict(x)
        error = self._pull_error(self._slopes(eta), self._slopes_error(eta, self._eta_error(x)))
        return error.reshape(x.shape) + 4 * EPS * self._ridge * np.abs(x)

    def _blocks(self, pair: FloatArray | None) -> FloatArray:
        """(1/n_i) sum_s w_s K_s (x) z_s z_s' + ridge I, with K_s = diag(pi) - pi pi', or its bound for None."""
        m, p, c = self.n_nodes, self._design.n_columns, self._n_classes
        _checks.check_memory(
            "The Hessians of all nodes", 8.0 * m * (p * c) ** 2, "use fewer columns or classes"
        )
        out = np.zeros((m, p, c, p, c))
        if pair is None:
            gram = self._design.gram(self._weights)
            # K_s <= (I - 11'/C)/2 (Boehning 1992).
            bound = 0.5 * (np.eye(c) - 1.0 / c)
            out[:] = gram[:, :, None, :, None] * bound[None, None, :, None, :]
        else:
            for a in range(c):
                for b in range(a, c):
                    # Grams take weights >= 0; off the diagonal the sign is put back.
                    weight = pair[:, a] * (1 - pair[:, a]) if a == b else pair[:, a] * pair[:, b]
                    block = self._design.gram(self._weights * weight)
                    out[:, :, a, :, b] = block if a == b else -block
                    out[:, :, b, :, a] = out[:, :, a, :, b]
        hessians = out.reshape(m, p * c, p * c)
        columns = np.arange(p * c)
        hessians[:, columns, columns] += self._ridge
        return hessians

    def _hessians_at(self, x: FloatArray) -> FloatArray:
        return self._blocks(softmax(self._predict(x), axis=1))

    def majorant(self) -> FloatArray:
        """(1/n_i) sum_s w_s z_s z_s' (x) (I - 11'/C)/2 + ridge I (Boehning 1992)."""
        return self._blocks(None)

    def strong_convexity(self) -> FloatArray:
        """The ridge."""
        return np.full(self.n_nodes, self._ridge)

    # The conjugate as in _glm.py, with alpha_s = q_s - e_y, q_s in the simplex, phi^*(alpha) = sum_c q_c log q_c; a
    # sample's gap is the Kullback-Leibler divergence of q_s from softmax(eta_s).

    def _fenchel(self, x: FloatArray, g: FloatArray, g_error: FloatArray) -> FenchelGap:
        judge = _Judge(self, x, -g, g_error)
        best, y = judge(judge.probabilities, x), x
        if self._ridge > 0 and self.n_nodes * self.n_features**2 > HESSIAN_NUMBERS:
            return best
        for k in range(NEWTON_STEPS):
            before = best.gap
            q = softmax(self._predict(y), axis=1)
            dy = solve_semidefinite(self._hessians_at(y), -g - self._gradient(y), definite=self._ridge > 0)
            along = self._predict(dy)
            along = along - (q * along).sum(axis=1, keepdims=True)
            best = smaller(best, judge(q + q * along, y + dy))
            improved = bool((best.gap < 0.9 * before).any())
            if np.isfinite(best.gap).all() and not (improved and k < SHARPENING_STEPS):
                break
            longest = np.maximum.reduceat(np.abs(along).max(axis=1), self.offsets[:-1])
            y = y + dy / np.maximum(longest, 1.0)[:, None]
        return best


class _Judge:
    """The bound of the gap at one x and p by any q in the simplex, and its rounding error."""

    def __init__(self, loss: Softmax, x: FloatArray, p: FloatArray, p_error: FloatArray) -> None:
        self._loss, self._x, self._p, self._p_error = loss, x, p, p_error
        eta = loss._predict(x)
        self._log = log_softmax(eta, axis=1)
        self._absolute = loss._design.absolute()
        chain = (loss._design.n_columns + 2) * EPS
        cube = np.abs(x).reshape(loss.n_nodes, -1, loss.n_classes)
        self._log_error = 2 * chain * self._absolute.predict(cube) + 4 * EPS * (1 + np.abs(self._log))
        self.probabilities: FloatArray = softmax(eta, axis=1)

    def __call__(self, q: FloatArray, end: FloatArray) -> FenchelGap:
        """`end` is the point y + dy that belongs to q."""
        loss, x, pi = self._loss, self._x, self.probabilities
        counts = loss._weights > 0
        away = q - pi
        near = pi > 1e-300
        # Each term >= 0, and their excess over q log(q / pi) adds up to 0.
        entropy = relative_entropy(q, np.where(near, pi, 1.0), away)
        terms = np.where(near, entropy, xlogy(q, q) - q * self._log) - away
        samples = np.where((q >= 0).all(axis=1), np.maximum(terms, 0.0).sum(axis=1), np.inf)
        alpha = q.copy()
        alpha[np.arange(len(q)), loss._classes] -= 1.0
        sizes = np.abs(alpha) + np.abs(loss._slopes(self._log))
        slack = (np.abs(away) * self._log_error + pi * self._log_error**2 + 4 * EPS * sizes).sum(axis=1)
        samples, slack = np.where(counts, samples, 0.0), np.where(counts, slack + 8 * EPS * samples, 0.0)
        weighted = loss._weights[:, None] * np.where(counts[:, None], alpha, 0.0)
        r = self._p - loss._pull(weighted) - loss.ridge * x
        r_error = EPS * (loss.n_samples[:, None, None] + 4) * self._absolute.pull(np.abs(weighted))
        error = r_error.reshape(x.shape) + self._p_error
        error += EPS * (2 * np.abs(self._p) + 4 * loss.ridge * np.abs(x))
        rest = scaled_square(r, error, np.full_like(x, loss.ridge), np.abs(x) + np.abs(end))
        own = loss._design.means(loss._weights * samples)
        own_error = loss._design.means(loss._weights * slack) + EPS * loss.n_samples * own
        return FenchelGap(own + rest.gap, own_error + rest.error)
