"""Pulls between cluster centres: sum of s_kl sqrt(||y_k - y_l||^2 + delta^2), its gradient and its curvature.

delta = 0 is the fusion penalty itself; a positive delta makes it smooth, and its gradient is then a dual
strictly inside its balls.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Operator = Callable[[FloatArray], FloatArray]

_BLOCK_NUMBERS = 2**20
"""Most numbers (8 MiB) of centre differences that are held at once on a complete graph."""
_KEPT_NUMBERS = 2**24
"""Most numbers (128 MiB) that are kept over the products of one solve."""


def tally(places: IntArray, values: FloatArray, n: int) -> FloatArray:
    """(n,): sum of the values at each place."""
    return np.asarray(np.bincount(places, weights=values, minlength=n), dtype=np.float64)


@dataclass(frozen=True)
class Pull:
    """The pulls at one point y."""

    value: float
    """sum s_kl sqrt(||y_k - y_l||^2 + delta^2)."""
    force: FloatArray
    """(K, d): the gradient."""
    slack: float
    """sum s_kl ||y_k - y_l|| - <v_kl, y_k - y_l> for the dual v that makes up the force; 0 at delta = 0."""


class Coupling(ABC):
    """Weighted pairs of clusters."""

    n_clusters: int
    total: FloatArray
    """(K,): sum over l of s_kl."""
    n_terms: FloatArray
    """(K,): number of pairs of each cluster, for rounding bounds."""

    @abstractmethod
    def pull(self, y: FloatArray, delta: float) -> Pull:
        """Value, gradient and slack."""

    @abstractmethod
    def curvature(self, y: FloatArray, delta: float) -> FloatArray | sparse.csc_matrix:
        """The second derivative (K d, K d)."""

    @abstractmethod
    def curvature_operator(self, y: FloatArray, delta: float) -> tuple[Operator, FloatArray]:
        """p (K, d) -> second derivative times p, and the diagonal blocks (K, d, d)."""

    @abstractmethod
    def pairs_below(self, y: FloatArray, reach: FloatArray) -> tuple[IntArray, float]:
        """Pairs (P, 2) with ||y_k - y_l|| <= reach_k + reach_l, and the least of (dist - reach) / (dist +
        reach).

        Both over the coupled pairs; the second is 1.0 where there are none, -1.0 where the reach is infinite.
        """

    @abstractmethod
    def curvature_drift(self, y: FloatArray, move: float) -> float:
        """A bound on the spectral norm by which the second derivative changes when all of y moves by `move`.

        The block s (I - uu') / ||diff|| of a pair changes by at most 3 s m / (||diff|| - m)^2 when its
        difference moves by m = sqrt(2) move, and a weighted Laplacian is at most twice its largest degree.
        inf when a pair can meet.
        """

    @abstractmethod
    def smallest_distance(self, y: FloatArray) -> float:
        """Least ||y_k - y_l|| over the coupled pairs; inf where there are none."""


def _unit(diff: FloatArray, delta: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Plain length, smoothed length and diff / smoothed length along the last axis (zero for zero)."""
    plain = np.sqrt(np.einsum("...j,...j->...", diff, diff))
    smooth = np.hypot(plain, delta) if delta > 0 else plain
    safe = np.where(smooth > 0, smooth, 1.0)
    return plain, smooth, diff / safe[..., None]


def _relative(distance: FloatArray, reach: FloatArray) -> FloatArray:
    """(distance - reach) / (distance + reach) in [-1, 1]; -1 at an infinite reach and at 0 / 0."""
    total = distance + reach
    finite = np.isfinite(total) & (total > 0)
    values: FloatArray = np.full_like(total, -1.0)
    np.divide(distance - reach, total, out=values, where=finite)
    return values


class EdgeCoupling(Coupling):
    """Pairs given as a list."""

    def __init__(self, n_clusters: int, pairs: IntArray, strengths: FloatArray) -> None:
        self.n_clusters = n_clusters
        self.pairs, self.strengths = pairs, strengths
        p = len(pairs)
        rows = np.repeat(np.arange(p), 2)
        signs = np.tile([1.0, -1.0], p)
        self._incidence = sparse.csr_matrix((signs, (rows, pairs.ravel())), shape=(p, n_clusters))
        self._collect = self._incidence.T.tocsr()
        ends = pairs.ravel()
        self.total = tally(ends, np.repeat(strengths, 2), n_clusters)
        self.n_terms = tally(ends, np.ones(len(ends)), n_clusters)

    def _lengths(self, y: FloatArray, delta: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        return _unit(self._incidence @ y, delta)

    def pull(self, y: FloatArray, delta: float) -> Pull:
        plain, smooth, unit = self._lengths(y, delta)
        force: FloatArray = self._collect @ (self.strengths[:, None] * unit)
        inner = plain * np.divide(plain, smooth, out=np.ones_like(plain), where=smooth > 0)
        return Pull(float(self.strengths @ smooth), force, float(self.strengths @ (plain - inner)))

    def _blocks(self, y: FloatArray, delta: float) -> FloatArray:
        _, smooth, unit = self._lengths(y, delta)
        scale = np.divide(self.strengths, smooth, out=np.zeros_like(smooth), where=smooth > 0)
        d = y.shape[1]
        blocks: FloatArray = scale[:, None, None] * (np.eye(d) - unit[:, :, None] * unit[:, None, :])
        return blocks

    def curvature(self, y: FloatArray, delta: float) -> sparse.csc_matrix:
        blocks, d, k = self._blocks(y, delta), y.shape[1], self.n_clusters
        i, j = self.pairs.T
        diagonal = np.zeros((k, d, d))
        np.add.at(diagonal, i, blocks)
        np.add.at(diagonal, j, blocks)
        rows = np.concatenate([np.arange(k), i, j])
        columns = np.concatenate([np.arange(k), j, i])
        data = np.concatenate([diagonal, -blocks, -blocks])
        inner_row, inner_column = np.divmod(np.arange(d * d), d)
        at_row = (rows[:, None] * d + inner_row).ravel()
        at_column = (columns[:, None] * d + inner_column).ravel()
        return sparse.csc_matrix((data.ravel(), (at_row, at_column)), shape=(k * d, k * d))

    def curvature_operator(self, y: FloatArray, delta: float) -> tuple[Operator, FloatArray]:
        blocks = self._blocks(y, delta)
        diagonal = np.zeros((self.n_clusters, y.shape[1], y.shape[1]))
        np.add.at(diagonal, self.pairs[:, 0], blocks)
        np.add.at(diagonal, self.pairs[:, 1], blocks)

        def apply(p: FloatArray) -> FloatArray:
            out: FloatArray = self._collect @ np.einsum("eab,eb->ea", blocks, self._incidence @ p)
            return out

        return apply, diagonal

    def pairs_below(self, y: FloatArray, reach: FloatArray) -> tuple[IntArray, float]:
        if len(self.pairs) == 0:
            return np.empty((0, 2), dtype=np.int64), 1.0
        plain, _, _ = self._lengths(y, 0.0)
        limit = reach[self.pairs].sum(axis=1)
        return self.pairs[~(plain > limit)], float(_relative(plain, limit).min())

    def curvature_drift(self, y: FloatArray, move: float) -> float:
        room = self._lengths(y, 0.0)[0] - math.sqrt(2.0) * move
        if bool((room <= 0).any()):
            return np.inf
        change = np.repeat(self.strengths / np.square(room), 2)
        degrees = tally(self.pairs.ravel(), change, self.n_clusters)
        return 6.0 * math.sqrt(2.0) * move * float(degrees.max())

    def smallest_distance(self, y: FloatArray) -> float:
        return float(self._lengths(y, 0.0)[0].min(initial=np.inf))


class ProductCoupling(Coupling):
    """All pairs, s_kl = strength * size_k * size_l, formed in blocks of rows.

    `linked` (K,) says which clusters have an edge at all; that does not depend on lam, which `strength`
    contains.
    """

    def __init__(self, sizes: FloatArray, strength: float, linked: BoolArray) -> None:
        self.sizes, self.strength, self._linked = sizes, strength, linked
        self.n_clusters = len(sizes)
        self.total = strength * sizes * (sizes.sum() - sizes)
        self.n_terms = np.where(self.total > 0, float(self.n_clusters), 0.0)

    def _rows(self, d: int) -> Iterator[slice]:
        step = max(1, _BLOCK_NUMBERS // (self.n_clusters * d))
        for start in range(0, self.n_clusters, step):
            yield slice(start, min(start + step, self.n_clusters))

    def pull(self, y: FloatArray, delta: float) -> Pull:
        value = slack = 0.0
        force = np.empty_like(y)
        for rows in self._rows(y.shape[1]):
            plain, smooth, unit = _unit(y[rows, None, :] - y[None, :, :], delta)
            weights = (self.strength * self.sizes[rows])[:, None] * self.sizes
            # A cluster with itself is no pair: its zero difference pulls nowhere, but its smoothed length
            # is delta.
            weights[np.arange(rows.stop - rows.start), np.arange(rows.start, rows.stop)] = 0.0
            force[rows] = np.einsum("kl,kla->ka", weights, unit)
            inner = plain * np.divide(plain, smooth, out=np.ones_like(plain), where=smooth > 0)
            value += 0.5 * float((weights * smooth).sum())
            slack += 0.5 * float((weights * (plain - inner)).sum())
        return Pull(value, force, slack)

    def _row_blocks(self, y: FloatArray, delta: float, k: int) -> FloatArray:
        _, smooth, unit = _unit(y[k] - y, delta)
        scale = np.divide(
            self.strength * self.sizes[k] * self.sizes, smooth, out=np.zeros_like(smooth), where=smooth > 0
        )
        scale[k] = 0.0
        blocks: FloatArray = scale[:, None, None] * (np.eye(y.shape[1]) - unit[:, :, None] * unit[:, None, :])
        return blocks

    def curvature(self, y: FloatArray, delta: float) -> FloatArray:
        k, d = y.shape
        matrix = np.empty((k, d, k, d))
        for row in range(k):
            blocks = self._row_blocks(y, delta, row)
            matrix[row] = -blocks.transpose(1, 0, 2)
            matrix[row, :, row] = blocks.sum(axis=0)
        return matrix.reshape(k * d, k * d)

    def curvature_operator(self, y: FloatArray, delta: float) -> tuple[Operator, FloatArray]:
        k, d = y.shape
        diagonal = np.empty((k, d, d))
        # Kept when there is room: every product needs the same square roots.
        kept: list[tuple[slice, FloatArray, FloatArray]] = []
        keep = k * k * (d + 1) <= _KEPT_NUMBERS
        for rows, scale, unit in self._curvature_rows(y, delta):
            outer = np.einsum("kl,kla,klb->kab", scale, unit, unit, optimize=True)
            diagonal[rows] = scale.sum(axis=1)[:, None, None] * np.eye(d) - outer
            if keep:
                kept.append((rows, scale, unit))

        def apply(p: FloatArray) -> FloatArray:
            out = np.empty_like(p)
            for rows, scale, unit in kept if keep else self._curvature_rows(y, delta):
                along = np.einsum("kla,ka->kl", unit, p[rows]) - np.einsum("kla,la->kl", unit, p)
                pulled = scale.sum(axis=1)[:, None] * p[rows] - scale @ p
                out[rows] = pulled - np.einsum("kl,kla->ka", scale * along, unit)
            return out

        return apply, diagonal

    def _curvature_rows(self, y: FloatArray, delta: float) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        """Rows of clusters, s_kl over the smoothed lengths, and the differences over these lengths."""
        for rows in self._rows(y.shape[1]):
            _, smooth, unit = _unit(y[rows, None, :] - y[None, :, :], delta)
            scale = (self.strength * self.sizes[rows])[:, None] * self.sizes
            scale = np.divide(scale, smooth, out=np.zeros_like(scale), where=smooth > 0)
            scale[np.arange(rows.stop - rows.start), np.arange(rows.start, rows.stop)] = 0.0
            yield rows, scale, unit

    def _distances(self, y: FloatArray) -> Iterator[tuple[IntArray, FloatArray]]:
        """Coupled pairs k < l and their distances, block by block."""
        linked = self._linked
        for rows in self._rows(y.shape[1]):
            plain, _, _ = _unit(y[rows, None, :] - y[None, :, :], 0.0)
            place = np.arange(rows.start, rows.stop)
            wanted = (place[:, None] < np.arange(self.n_clusters)) & linked[rows, None] & linked
            if wanted.any():
                k, other = np.nonzero(wanted)
                yield np.stack([k + rows.start, other], axis=1), plain[wanted]

    def pairs_below(self, y: FloatArray, reach: FloatArray) -> tuple[IntArray, float]:
        found, least = [np.empty((0, 2), dtype=np.int64)], 1.0
        for pairs, plain in self._distances(y):
            limit = reach[pairs].sum(axis=1)
            found.append(pairs[~(plain > limit)])
            least = min(least, float(_relative(plain, limit).min()))
        return np.concatenate(found), least

    def curvature_drift(self, y: FloatArray, move: float) -> float:
        degrees = np.zeros(self.n_clusters)
        for pairs, plain in self._distances(y):
            room = plain - math.sqrt(2.0) * move
            if bool((room <= 0).any()):
                return np.inf
            change = self.strength * self.sizes[pairs[:, 0]] * self.sizes[pairs[:, 1]] / np.square(room)
            degrees += tally(pairs[:, 0], change, self.n_clusters)
            degrees += tally(pairs[:, 1], change, self.n_clusters)
        return 6.0 * math.sqrt(2.0) * move * float(degrees.max())

    def smallest_distance(self, y: FloatArray) -> float:
        return min((float(plain.min()) for _, plain in self._distances(y)), default=np.inf)
