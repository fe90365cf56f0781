"""Slow checks in extended precision that share no code with `fusionopt`.

Everything is recomputed from the plain data of a `catalogue.Instance`: nothing here asks fusionopt for an
objective, a dual value, a label or an edge list. Extended precision is NumPy's longdouble.

    F(x) = sum_i f_i(x_i) + lam sum_e w_e ||x_i - x_j||
    D(v) = sum_i min_x f_i(x) + <u_i, x>,    u_i = sum_j v_ij

Every assert_* helper has a test, in tests/unit/test_oracles.py, that it fails when it should.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
LongArray = NDArray[np.longdouble]

EPS = float(np.finfo(np.float64).eps)
# Sums of a few thousand float64 terms: a generous multiple of eps, relative to the sum of absolute values.
ROUNDING = 1e3 * EPS


class InstanceLike(Protocol):
    """What an oracle reads: node data, edges, weights, lam."""

    @property
    def edges(self) -> IntArray: ...
    @property
    def weights(self) -> FloatArray: ...
    @property
    def lam(self) -> float: ...
    @property
    def n_nodes(self) -> int: ...
    @property
    def n_features(self) -> int: ...
    @property
    def nodes(self) -> NodeData: ...


class NodeData(Protocol):
    """Losses of all nodes, each a convex quadratic."""

    def values(self, x: LongArray) -> LongArray:
        """f_i(x_i), shape (m,)."""
        ...

    def gradients(self, x: LongArray) -> LongArray:
        """grad f_i(x_i), shape (m, d)."""
        ...

    def minima(self, u: LongArray) -> tuple[LongArray, LongArray]:
        """min_x f_i(x) + <u_i, x> over the range of the Hessian, and ||part of u_i outside that range||."""
        ...

    def term_sizes(self, u: LongArray) -> LongArray:
        """Sum of the absolute values of the terms that make up each minimum, shape (m,)."""
        ...


@dataclass(frozen=True, eq=False)
class SquaredNodes:
    """f_i(x) = s_i/2 ||x - a_i||^2."""

    targets: FloatArray
    sample_weight: FloatArray

    def values(self, x: LongArray) -> LongArray:
        """f_i(x_i)."""
        r = x - self.targets.astype(np.longdouble)
        return 0.5 * self.sample_weight.astype(np.longdouble) * np.square(r).sum(axis=1)

    def gradients(self, x: LongArray) -> LongArray:
        """s_i (x_i - a_i)."""
        return self.sample_weight.astype(np.longdouble)[:, None] * (x - self.targets.astype(np.longdouble))

    def _centre(self) -> LongArray:
        return self.targets.astype(np.longdouble).mean(axis=0)

    def minima(self, u: LongArray) -> tuple[LongArray, LongArray]:
        """<u_i, a_i - c> - ||u_i||^2 / (2 s_i); c, the mean, drops out because the u_i add to zero."""
        s = self.sample_weight.astype(np.longdouble)
        heavy = s > 0
        norms = np.square(u).sum(axis=1)
        value = (u * (self.targets.astype(np.longdouble) - self._centre())).sum(axis=1)
        value[heavy] -= norms[heavy] / (2 * s[heavy])
        value[~heavy] = 0
        return value, np.where(heavy, np.longdouble(0), np.sqrt(norms))

    def term_sizes(self, u: LongArray) -> LongArray:
        """|<u_i, a_i - c>| + ||u_i||^2 / (2 s_i)."""
        s = self.sample_weight.astype(np.longdouble)
        safe = np.where(s > 0, s, 1)
        size = np.abs(u * (self.targets.astype(np.longdouble) - self._centre())).sum(axis=1)
        return np.where(s > 0, size + np.square(u).sum(axis=1) / (2 * safe), 0)


@dataclass(frozen=True, eq=False)
class RegressionNodes:
    """f_i(x) = 1/(2 n_i) sum_s w_s (z_s'x - y_s)^2 + ridge/2 ||x||^2."""

    designs: Sequence[FloatArray]
    responses: Sequence[FloatArray]
    ridge: float
    sample_weight: Sequence[FloatArray] | None = None

    def _samples(self, i: int) -> tuple[LongArray, LongArray, LongArray]:
        z = self.designs[i].astype(np.longdouble)
        y = self.responses[i].astype(np.longdouble)
        w = np.ones(len(y)) if self.sample_weight is None else self.sample_weight[i]
        return z, y, w.astype(np.longdouble) / len(y)

    def _value(self, i: int, x: LongArray) -> np.longdouble:
        z, y, w = self._samples(i)
        return np.longdouble(
            0.5 * (w * np.square(z @ x - y)).sum() + 0.5 * np.longdouble(self.ridge) * (x @ x)
        )

    def _gradient(self, i: int, x: LongArray) -> LongArray:
        z, y, w = self._samples(i)
        return z.T @ (w * (z @ x - y)) + np.longdouble(self.ridge) * x

    def hessian(self, i: int) -> FloatArray:
        """H_i in float64."""
        z, _, w = self._samples(i)
        return np.asarray((z.T * w) @ z + np.longdouble(self.ridge) * np.eye(z.shape[1]), dtype=np.float64)

    def values(self, x: LongArray) -> LongArray:
        """f_i(x_i)."""
        return np.array([self._value(i, row) for i, row in enumerate(x)], dtype=np.longdouble)

    def gradients(self, x: LongArray) -> LongArray:
        """grad f_i(x_i)."""
        return np.array([self._gradient(i, row) for i, row in enumerate(x)], dtype=np.longdouble)

    def minima(self, u: LongArray) -> tuple[LongArray, LongArray]:
        """Newton steps from 0 with the pseudo-inverse; the last residual r enters as -r'H^+ r / 2."""
        values, outside = [], []
        for i, row in enumerate(u):
            eigenvalues, vectors = np.linalg.eigh(self.hessian(i))
            keep = eigenvalues > 1e-13 * max(float(eigenvalues[-1]), np.finfo(float).tiny)
            basis = vectors[:, keep].astype(np.longdouble)
            inverse = (basis / eigenvalues[keep]) @ basis.T
            x = np.zeros(len(row), dtype=np.longdouble)
            for _ in range(4):
                x = x - inverse @ (self._gradient(i, x) + row)
            r = self._gradient(i, x) + row
            values.append(self._value(i, x) + row @ x - 0.5 * (r @ inverse @ r))
            outside.append(np.sqrt(np.square(row - basis @ (basis.T @ row)).sum()))
        return np.array(values, dtype=np.longdouble), np.array(outside, dtype=np.longdouble)

    def term_sizes(self, u: LongArray) -> LongArray:
        """f_i(0) + |<u_i, x>| + ..., with x the minimiser: every term of the minimum in absolute value."""
        sizes = []
        for i, row in enumerate(u):
            inverse = np.linalg.pinv(self.hessian(i))
            _, y, w = self._samples(i)
            x = -inverse @ np.asarray(self._gradient(i, np.zeros(len(row), dtype=np.longdouble)) + row, float)
            sizes.append(
                float((w * np.square(y)).sum()) + 2 * float(np.abs(np.asarray(row, float) * x).sum())
            )
        return np.array(sizes, dtype=np.longdouble)


def _long(x: ArrayLike) -> LongArray:
    return np.asarray(x).astype(np.longdouble)


def divergence(instance: InstanceLike, v: ArrayLike) -> LongArray:
    """u_i = sum_j v_ij, v_ji = -v_ij."""
    flow = _long(v)
    u = np.zeros((instance.n_nodes, instance.n_features), dtype=np.longdouble)
    np.add.at(u, instance.edges[:, 0], flow)
    np.subtract.at(u, instance.edges[:, 1], flow)
    return u


def edge_lengths(instance: InstanceLike, x: ArrayLike) -> LongArray:
    """||x_i - x_j|| for every edge."""
    point = _long(x)
    return np.sqrt(np.square(point[instance.edges[:, 0]] - point[instance.edges[:, 1]]).sum(axis=1))


def objective(instance: InstanceLike, x: ArrayLike) -> float:
    """F(x)."""
    point = _long(x)
    fusion = np.longdouble(instance.lam) * (_long(instance.weights) * edge_lengths(instance, x)).sum()
    return float(instance.nodes.values(point).sum() + fusion)


def dual_value(instance: InstanceLike, v: ArrayLike, radius: float = 0.0) -> float:
    """D(v), less `radius` times whatever part of the flow a flat loss cannot absorb.

    A node whose loss is flat along some direction needs a flow that vanishes there; in float64 it does so
    only up to rounding. With a minimiser inside a ball of `radius` around the data's mean the value returned
    is still a lower bound of F.
    """
    values, outside = instance.nodes.minima(divergence(instance, v))
    return float(values.sum() - radius * outside.sum())


def size_of_terms(instance: InstanceLike, x: ArrayLike, v: ArrayLike) -> float:
    """Sum of absolute values of what P - D adds up: the scale of its rounding error."""
    point, flow = _long(x), np.sqrt(np.square(_long(v)).sum(axis=1))
    lengths = edge_lengths(instance, x)
    through = np.zeros(instance.n_nodes, dtype=np.longdouble)
    np.add.at(through, instance.edges[:, 0], flow)
    np.add.at(through, instance.edges[:, 1], flow)
    spread = np.sqrt(np.square(point - point.mean(axis=0)).sum(axis=1))
    size = (
        instance.nodes.values(point).sum() + np.longdouble(instance.lam) * (instance.weights * lengths).sum()
    )
    size += instance.nodes.term_sizes(divergence(instance, v)).sum() + (through * spread).sum()
    return float(size)


def exact_labels(instance: InstanceLike, x: ArrayLike) -> IntArray:
    """Nodes joined by edges of positive weight whose ends are exactly equal; numbered by first appearance."""
    rows = np.asarray(x)
    parent = list(range(instance.n_nodes))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    equal = (rows[instance.edges[:, 0]] == rows[instance.edges[:, 1]]).all(axis=1) & (instance.weights > 0)
    for i, j in instance.edges[equal]:
        a, b = root(int(i)), root(int(j))
        parent[max(a, b)] = min(a, b)
    return renumber([root(i) for i in range(instance.n_nodes)])


def renumber(labels: ArrayLike) -> IntArray:
    """The same partition with labels 0, 1, ... in order of first appearance."""
    seen: dict[int, int] = {}
    return np.array([seen.setdefault(int(k), len(seen)) for k in np.asarray(labels)], dtype=np.int64)


def n_components(instance: InstanceLike) -> int:
    """Connected components of the edges with positive weight."""
    return int(exact_labels(instance, np.zeros((instance.n_nodes, 1))).max()) + 1


def kkt_residual(instance: InstanceLike, x: ArrayLike, v: ArrayLike) -> float:
    """max_i ||grad f_i(x_i) + u_i||."""
    r = instance.nodes.gradients(_long(x)) + divergence(instance, v)
    return float(np.sqrt(np.square(r).sum(axis=1)).max())


def assert_close(got: ArrayLike, want: ArrayLike, rtol: float, scale: float | None = None) -> None:
    """|got - want| <= rtol * scale elementwise; scale is max|want| unless given."""
    a, b = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
    assert a.shape == b.shape, f"shape {a.shape}, wanted {b.shape}"
    assert np.all(np.isfinite(a)), f"not finite: {a}"
    size = float(np.abs(b).max(initial=0.0)) if scale is None else scale
    worst = float(np.abs(a - b).max(initial=0.0))
    assert worst <= rtol * size, f"off by {worst:.3e}, allowed {rtol * size:.3e}\ngot {a}\nwanted {b}"


def assert_same_partition(got: ArrayLike, want: ArrayLike) -> None:
    """Two label vectors name the same partition, whatever the numbers."""
    a, b = renumber(got), renumber(want)
    assert a.shape == b.shape and bool((a == b).all()), f"partition {a.tolist()}, wanted {b.tolist()}"


def assert_dual_feasible(instance: InstanceLike, v: ArrayLike) -> None:
    """||v_e|| <= lam w_e for every edge, with no tolerance at all."""
    flow = np.asarray(v)
    want = (len(instance.edges), instance.n_features)
    assert flow.shape == want, f"duals have shape {flow.shape}, wanted {want}"
    assert np.all(np.isfinite(flow)), "a dual is not finite"
    norms = np.sqrt(np.square(_long(flow)).sum(axis=1))
    radii = np.longdouble(instance.lam) * _long(instance.weights)
    if len(radii):
        worst = int(np.argmax(norms - radii))
        excess = float(norms[worst] - radii[worst])
        assert excess <= 0.0, (
            f"edge {worst}: ||v|| = {float(norms[worst])!r} > lam w = {float(radii[worst])!r}"
        )


def assert_partition(instance: InstanceLike, result: Any) -> None:
    """labels, n_clusters, sizes and centres follow from exact equality of the rows of x, bit for bit."""
    x = np.asarray(result.x)
    labels = np.asarray(result.labels)
    want = exact_labels(instance, x)
    assert labels.shape == want.shape and bool((labels == want).all()), (
        f"labels {labels.tolist()}, rows of x say {want.tolist()}"
    )
    n = int(want.max()) + 1
    assert result.n_clusters == n, f"n_clusters {result.n_clusters}, wanted {n}"
    sizes = np.asarray(result.cluster_sizes)
    assert sizes.tolist() == np.bincount(want, minlength=n).tolist(), f"cluster sizes {sizes.tolist()}"
    first = [int(np.flatnonzero(want == k)[0]) for k in range(n)]
    for k in range(n):
        rows = {row.tobytes() for row in x[want == k]}
        assert len(rows) == 1, f"cluster {k} has {len(rows)} different bit patterns"
    assert_close(result.centers, x[first], rtol=1e-12, scale=float(np.abs(x).max()) + np.finfo(float).tiny)


def _offset_slack(instance: InstanceLike, x: ArrayLike) -> float:
    """First-order change of F when every coordinate of x is rounded once."""
    point = np.asarray(x, dtype=np.float64)
    degree = np.zeros(instance.n_nodes)
    np.add.at(degree, instance.edges[:, 0], instance.weights)
    np.add.at(degree, instance.edges[:, 1], instance.weights)
    gradient = np.sqrt(np.square(instance.nodes.gradients(_long(x))).sum(axis=1)).astype(float)
    return float(EPS * (np.linalg.norm(point, axis=1) * (gradient + instance.lam * degree)).sum())


def assert_certificate(instance: InstanceLike, result: Any, radius: float = 0.0) -> None:
    """The certificate holds at any stop: feasible duals, and P, D, gap, rel_gap, dual_residual as recomputed.

    Tolerance: `ROUNDING` times the sum of absolute values of the terms, plus one rounding of x.
    """
    x, v = np.asarray(result.x), np.asarray(result.edge_duals())
    assert x.shape == (instance.n_nodes, instance.n_features), f"x has shape {x.shape}"
    assert np.all(np.isfinite(x)), "x is not finite"
    assert_dual_feasible(instance, v)
    primal, dual = objective(instance, x), dual_value(instance, v, radius)
    slack = ROUNDING * size_of_terms(instance, x, v) + _offset_slack(instance, x)
    assert abs(result.objective - primal) <= slack, (
        f"objective {result.objective!r}, recomputed {primal!r}, slack {slack:.2e}"
    )
    assert abs(result.dual_objective - dual) <= slack, (
        f"dual objective {result.dual_objective!r}, recomputed {dual!r}, slack {slack:.2e}"
    )
    assert result.gap >= 0.0, f"gap {result.gap!r} is negative"
    assert abs(result.gap - (primal - dual)) <= 2 * slack, (
        f"gap {result.gap!r}, recomputed {primal - dual!r}, slack {slack:.2e}"
    )
    size = max(abs(result.objective), abs(result.dual_objective))
    expected = result.gap / size if size > 0.0 else 0.0
    assert abs(result.rel_gap - expected) <= 1e-9 * expected or (
        result.rel_gap == 0.0 and result.gap <= slack
    ), f"rel_gap {result.rel_gap!r}, wanted {expected!r}"
    residual = kkt_residual(instance, x, v)
    through = ROUNDING * (
        float(np.abs(instance.nodes.gradients(_long(x))).max()) + _largest_flow(instance, v)
    )
    curvature = EPS * float(np.abs(x).max()) * _largest_curvature(instance)
    assert abs(result.dual_residual - residual) <= 1e-9 * residual + through + curvature, (
        f"dual_residual {result.dual_residual!r}, recomputed {residual!r}"
    )


def _largest_flow(instance: InstanceLike, v: ArrayLike) -> float:
    through = np.zeros(instance.n_nodes)
    norms = np.linalg.norm(np.asarray(v, dtype=np.float64), axis=1)
    np.add.at(through, instance.edges[:, 0], norms)
    np.add.at(through, instance.edges[:, 1], norms)
    return float(through.max())


def _largest_curvature(instance: InstanceLike) -> float:
    nodes = instance.nodes
    if isinstance(nodes, RegressionNodes):
        return max(float(np.linalg.norm(nodes.hessian(i))) for i in range(instance.n_nodes))
    assert isinstance(nodes, SquaredNodes)
    return float(nodes.sample_weight.max())


def assert_solved(instance: InstanceLike, result: Any, eps_rel: float = 1e-6, radius: float = 0.0) -> None:
    """Status "optimal", the stop rule met as recomputed, certificate and partition right."""
    assert result.status == "optimal", f"status {result.status!r}: {result.message}"
    assert_certificate(instance, result, radius)
    assert_partition(instance, result)
    x, v = np.asarray(result.x), np.asarray(result.edge_duals())
    primal, dual = objective(instance, x), dual_value(instance, v, radius)
    slack = ROUNDING * size_of_terms(instance, x, v) + _offset_slack(instance, x)
    allowed = eps_rel * max(abs(primal), abs(dual)) + slack
    assert primal - dual <= allowed, f"status optimal, but the gap is {primal - dual:.3e} > {allowed:.3e}"


def assert_brackets(instance: InstanceLike, result: Any, optimum: float) -> None:
    """0 <= F(x) - F* <= gap and D <= F*, up to rounding."""
    x, v = np.asarray(result.x), np.asarray(result.edge_duals())
    slack = ROUNDING * size_of_terms(instance, x, v) + _offset_slack(instance, x) + 8 * EPS * abs(optimum)
    excess = objective(instance, x) - optimum
    assert excess >= -slack, f"F(x) is {-excess:.3e} below the optimum {optimum!r}"
    assert excess <= result.gap + slack, f"F(x) - F* = {excess:.3e} > gap = {result.gap:.3e}"
    assert result.dual_objective <= optimum + slack, (
        f"dual objective {result.dual_objective!r} above the optimum {optimum!r}"
    )
