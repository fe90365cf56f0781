"""Problems with a known optimum, as plain arrays, and their relatives: scaled, shifted, permuted.

    F(x) = sum_i f_i(x_i) + lam sum_e w_e ||x_i - x_j||

Answers come from closed forms (named at each function) or are planted: x and a feasible dual are chosen first
and the data follow from the optimality condition grad f_i(x_i) + u_i = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from tests import oracles
from tests.oracles import FloatArray, IntArray, RegressionNodes, SquaredNodes

if TYPE_CHECKING:
    import fusionopt


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem in plain arrays and, where known, its answer.

    Attributes
    ----------
    nodes : SquaredNodes or RegressionNodes
    edges, weights : (E, 2) with i < j, lexicographic, and (E,)
    lam : float
    complete : (weight, node_weights) or None
        How the same graph is stated with `Graph.complete`; None means `Graph.from_edges`.
    x : (m, d) array or None
        The minimiser.
    labels : (m,) array or None
        Its partition, first-appearance order.
    """

    nodes: SquaredNodes | RegressionNodes
    edges: IntArray
    weights: FloatArray
    lam: float
    complete: tuple[float, FloatArray | None] | None = None
    x: FloatArray | None = None
    labels: IntArray | None = None

    @property
    def n_nodes(self) -> int:
        """m."""
        return len(self.nodes.targets if isinstance(self.nodes, SquaredNodes) else self.nodes.designs)

    @property
    def n_features(self) -> int:
        """d."""
        nodes = self.nodes
        return int((nodes.targets if isinstance(nodes, SquaredNodes) else nodes.designs[0]).shape[1])

    @cached_property
    def optimum(self) -> float:
        """F at the known minimiser, in extended precision."""
        assert self.x is not None
        return oracles.objective(self, self.x)

    def graph(self) -> fusionopt.Graph:
        """The graph as fusionopt states it."""
        import fusionopt

        if self.complete is None:
            return fusionopt.Graph.from_edges(self.n_nodes, self.edges, self.weights)
        weight, node_weights = self.complete
        return fusionopt.Graph.complete(self.n_nodes, weight=weight, node_weights=node_weights)

    def problem(self) -> fusionopt.FusionProblem:
        """The problem as fusionopt states it."""
        import fusionopt

        nodes = self.nodes
        loss: fusionopt.SquaredDistance | fusionopt.LeastSquares
        if isinstance(nodes, SquaredNodes):
            uniform = bool(np.all(nodes.sample_weight == 1.0))
            loss = fusionopt.SquaredDistance(
                nodes.targets, sample_weight=None if uniform else nodes.sample_weight
            )
        else:
            loss = fusionopt.LeastSquares(
                list(nodes.designs),
                list(nodes.responses),
                ridge=nodes.ridge,
                sample_weight=None if nodes.sample_weight is None else list(nodes.sample_weight),
            )
        return fusionopt.FusionProblem(loss, graph=self.graph(), lam=self.lam)

    def with_lam(self, lam: float) -> Instance:
        """The same data at another lam; the answer is forgotten."""
        return replace(self, lam=lam, x=None, labels=None)

    def scaled(self, c: float) -> Instance:
        """Data, lam and x times c (F times c^2), for a power of two without any rounding."""
        nodes: SquaredNodes | RegressionNodes
        if isinstance(self.nodes, SquaredNodes):
            nodes = replace(self.nodes, targets=self.nodes.targets * c)
        else:
            nodes = replace(self.nodes, responses=[y * c for y in self.nodes.responses])
        x = None if self.x is None else self.x * c
        return replace(self, nodes=nodes, lam=self.lam * c, x=x)

    def shifted(self, offset: ArrayLike) -> Instance:
        """Squared distances only: every target and x plus a vector."""
        assert isinstance(self.nodes, SquaredNodes)
        nodes = replace(self.nodes, targets=self.nodes.targets + np.asarray(offset))
        return replace(self, nodes=nodes, x=None if self.x is None else self.x + np.asarray(offset))

    def permuted(self, order: IntArray) -> Instance:
        """Row k of the new problem is row order[k] of this one."""
        inverse = np.argsort(order)
        ends = np.sort(inverse[self.edges], axis=1)
        place = np.lexsort((ends[:, 1], ends[:, 0]))
        nodes: SquaredNodes | RegressionNodes
        if isinstance(self.nodes, SquaredNodes):
            nodes = SquaredNodes(self.nodes.targets[order], self.nodes.sample_weight[order])
        else:
            weight = self.nodes.sample_weight
            nodes = RegressionNodes(
                [self.nodes.designs[k] for k in order],
                [self.nodes.responses[k] for k in order],
                self.nodes.ridge,
                None if weight is None else [weight[k] for k in order],
            )
        complete = self.complete
        if complete is not None and complete[1] is not None:
            complete = (complete[0], complete[1][order])
        return Instance(
            nodes,
            ends[place],
            self.weights[place],
            self.lam,
            complete,
            None if self.x is None else self.x[order],
            None if self.labels is None else oracles.renumber(self.labels[order]),
        )


def all_pairs(n: int) -> IntArray:
    """Every i < j, lexicographic."""
    i, j = np.triu_indices(n, 1)
    return np.stack([i, j], axis=1).astype(np.int64)


def squared(
    targets: ArrayLike,
    lam: float,
    edges: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    x: ArrayLike | None = None,
    labels: ArrayLike | None = None,
) -> Instance:
    """Squared distances; no edges given means the complete graph, weight 1. A 1-d target is one feature."""
    a = np.asarray(targets, dtype=np.float64)
    a = a[:, None] if a.ndim == 1 else a
    s = np.ones(len(a)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    pairs = all_pairs(len(a)) if edges is None else np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    w = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=np.float64)
    point = None if x is None else np.asarray(x, dtype=np.float64).reshape(a.shape)
    groups = None if labels is None else oracles.renumber(labels)
    complete = (1.0, None) if edges is None else None
    return Instance(SquaredNodes(a, s), pairs, w, lam, complete, point, groups)


# ---- closed forms


def line_complete(values: ArrayLike, lam: float) -> Instance:
    """One feature, complete graph, weight 1: x is the isotonic fit to a_(k) - lam (2k - n + 1), k = 0..n-1.

    x keeps the order of a, so the penalty is linear there. Solved in rational arithmetic: ties are ties
    and labels are exact, for the floats as given.
    """
    a = np.asarray(values, dtype=np.float64)
    order = np.argsort(a, kind="stable")
    n, exact = len(a), Fraction(lam)
    blocks: list[tuple[Fraction, int]] = []
    for k, i in enumerate(order):
        total, size = Fraction(float(a[i])) - exact * (2 * k - n + 1), 1
        # Pool while the block before is at least as high: equal heights are one cluster.
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / size:
            before, count = blocks.pop()
            total, size = total + before, size + count
        blocks.append((total, size))
    x, labels = np.empty(n), np.empty(n, dtype=np.int64)
    start = 0
    for k, (total, size) in enumerate(blocks):
        x[order[start : start + size]] = float(total / size)
        labels[order[start : start + size]] = k
        start += size
    return squared(a, lam, x=x, labels=labels)


def line_merges(values: ArrayLike) -> list[float]:
    """All merge points of `line_complete`, in rational arithmetic, from the speed of each cluster.

    A cluster holding sorted positions p..q moves at speed n - 1 - (p + q); neighbours meet, none ever splits.
    """
    a = sorted(Fraction(float(v)) for v in np.asarray(values, dtype=np.float64))
    n = len(a)
    groups = [(k, k, a[k]) for k in range(n)]  # first, last, mean of a
    merges: list[float] = []
    while len(groups) > 1:
        times = []
        for (p, q, left), (s, t, right) in pairwise(groups):
            times.append((right - left) / ((s + t) - (p + q)))
        now = min(times)
        merged = [groups[0]]
        for time, group in zip(times, groups[1:], strict=True):
            if time == now:
                p, q, left = merged[-1]
                s, t, right = group
                size = (q - p + 1, t - s + 1)
                merged[-1] = (p, t, (left * size[0] + right * size[1]) / sum(size))
                merges.append(float(now))
            else:
                merged.append(group)
        groups = merged
    return merges


def two_piles(a: ArrayLike, b: ArrayLike, sizes: tuple[int, int], lam: float) -> Instance:
    """n_a copies of a and n_b copies of b, complete graph: the piles close at speed lam (n_a + n_b)."""
    p, q = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    distance = float(np.linalg.norm(q - p))
    targets = np.concatenate([np.tile(p, (sizes[0], 1)), np.tile(q, (sizes[1], 1))])
    if lam * sum(sizes) >= distance:
        x, labels = np.tile(targets.mean(axis=0), (sum(sizes), 1)), np.zeros(sum(sizes))
    else:
        unit = (q - p) / distance
        x = np.concatenate(
            [
                np.tile(p + lam * sizes[1] * unit, (sizes[0], 1)),
                np.tile(q - lam * sizes[0] * unit, (sizes[1], 1)),
            ]
        )
        labels = np.repeat([0, 1], sizes)
    return squared(targets, lam, x=x, labels=labels)


def simplex(n: int, lam: float) -> Instance:
    """The n unit vectors of R^n, complete graph: x = mean + s (a - mean), s = 1 - lam n / sqrt 2."""
    a = np.eye(n)
    s = max(0.0, 1.0 - lam * n / np.sqrt(2.0))
    mean = np.full(n, 1.0 / n)
    return squared(a, lam, x=mean + s * (a - mean), labels=np.arange(n) if s > 0 else np.zeros(n))


def polygon(n: int, lam: float, cycle: bool = False) -> Instance:
    """Regular n-gon, unit circle: x = s a; complete s = 1 - lam cot(pi/2n), cycle s = 1 - 2 lam sin(pi/n)."""
    angle = 2.0 * np.pi * np.arange(n) / n
    a = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rate = 2.0 * np.sin(np.pi / n) if cycle else 1.0 / np.tan(np.pi / (2 * n))
    s = max(0.0, 1.0 - lam * rate)
    edges = np.sort(np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1), axis=1) if cycle else None
    if edges is not None:
        edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    return squared(a, lam, edges=edges, x=s * a, labels=np.arange(n) if s > 0 else np.zeros(n))


SQUARE = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


def square(lam: float, cycle: bool = False) -> Instance:
    """Case B3: the four corners; complete s = 1 - lam (1 + sqrt2/2), 4-cycle s = 1 - lam."""
    s = max(0.0, 1.0 - lam * (1.0 if cycle else 1.0 + np.sqrt(0.5)))
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)] if cycle else None
    return squared(SQUARE, lam, edges=edges, x=s * SQUARE, labels=np.arange(4) if s > 0 else np.zeros(4))


def splitting(lam: float) -> Instance:
    """Case E1: 4 clusters, 3 on [2/3, 2], 4 again until 22/3, 2 until 18, then 1; linear in between."""
    if lam <= 2.0 / 3.0:
        inner, outer, labels = 1.0 - 1.5 * lam, 10.0 - lam, [0, 1, 2, 3]
        x = [inner, -inner, outer, -outer]
    elif lam <= 2.0:
        x, labels = [0.0, 0.0, 10.0 - lam, lam - 10.0], [0, 0, 1, 2]
    elif lam < 22.0 / 3.0:
        x, labels = [1.0 - 0.5 * lam, 0.5 * lam - 1.0, 10.0 - lam, lam - 10.0], [0, 1, 2, 3]
    elif lam < 18.0:
        h = 4.5 - 0.25 * lam
        x, labels = [-h, h, h, -h], [0, 1, 1, 0]
    else:
        x, labels = [0.0] * 4, [0] * 4
    edges, weights = [(0, 1), (0, 3), (1, 2)], [0.5, 1.0, 1.0]
    return squared([1.0, -1.0, 10.0, -10.0], lam, edges=edges, weights=weights, x=x, labels=labels)


def weighted_pair(a: ArrayLike, b: ArrayLike, s: tuple[float, float], weight: float, lam: float) -> Instance:
    """Two nodes of sample weight s, one edge: node i moves lam w / s_i; fused at the weighted mean."""
    p, q = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    distance, pull = float(np.linalg.norm(q - p)), lam * weight
    if pull * (1.0 / s[0] + 1.0 / s[1]) >= distance:
        x = np.tile((s[0] * p + s[1] * q) / (s[0] + s[1]), (2, 1))
        labels = [0, 0]
    else:
        unit = (q - p) / distance
        x, labels = np.stack([p + pull / s[0] * unit, q - pull / s[1] * unit]), [0, 1]
    return squared([p, q], lam, edges=[(0, 1)], weights=[weight], sample_weight=s, x=x, labels=labels)


def disconnected() -> Instance:
    """Case D1."""
    return squared(
        [0.0, 2.0, 10.0, 14.0, 99.0],
        100.0,
        edges=[(0, 1), (2, 3)],
        x=[1.0, 1.0, 12.0, 12.0, 99.0],
        labels=[0, 0, 1, 1, 2],
    )


def weightless_end() -> Instance:
    """Case D3: the last node has no loss and sits on its neighbour."""
    return squared(
        [0.0, 2.0, 10.0],
        0.5,
        edges=[(0, 1), (1, 2)],
        sample_weight=[1.0, 1.0, 0.0],
        x=[0.5, 1.5, 1.5],
        labels=[0, 1, 1],
    )


def exact_lines(lam: float) -> Instance:
    """Case A6: one observation a node, all on the line y = 1 + 2t; x_i = (1, 2), F* = 0 for every lam > 0."""
    t = np.arange(4.0)
    designs = [np.array([[1.0, value]]) for value in t]
    # A mean over one observation: 1/(2 n) with n = 1 is the 1/2 of the case.
    responses = [np.array([1.0 + 2.0 * value]) for value in t]
    nodes = RegressionNodes(designs, responses, 0.0)
    x = np.tile([1.0, 2.0], (4, 1))
    return Instance(nodes, all_pairs(4), np.ones(6), lam, (1.0, None), x, np.zeros(4, dtype=np.int64))


# ---- graphs


def knn_pairs(points: FloatArray, k: int) -> IntArray:
    """Union of the k nearest neighbours each way, by brute force; ties by lowest index."""
    n = len(points)
    distance = np.square(points[:, None] - points[None]).sum(axis=2)
    pairs: set[tuple[int, int]] = set()
    for i in range(n):
        others = [j for j in np.lexsort((np.arange(n), distance[i])) if j != i]
        pairs.update((min(i, int(j)), max(i, int(j))) for j in others[:k])
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def sparse_pairs(rng: np.random.Generator, n: int, density: float, connected: bool = True) -> IntArray:
    """Random pairs; with a random spanning tree when `connected`."""
    pairs = {(int(i), int(j)) for i, j in all_pairs(n) if rng.random() < density}
    if connected:
        order = rng.permutation(n)
        for k in range(1, n):
            i, j = int(order[k]), int(order[rng.integers(k)])
            pairs.add((min(i, j), max(i, j)))
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def spread_weights(rng: np.random.Generator, n: int, ratio: float) -> FloatArray:
    """Log-uniform weights in [1/sqrt(ratio), sqrt(ratio)]."""
    return np.asarray(ratio ** (rng.random(n) - 0.5))


# ---- planted answers


def _planted_parts(
    rng: np.random.Generator, edges: IntArray, weights: FloatArray, n: int, n_groups: int, d: int
) -> tuple[FloatArray, IntArray, FloatArray, FloatArray]:
    """x, its partition, a dual at lam = 1 with a tenth of every inside ball to spare, and its divergence."""
    wanted = rng.integers(n_groups, size=n)
    inside = wanted[edges[:, 0]] == wanted[edges[:, 1]]
    shell = Instance(SquaredNodes(np.zeros((n, d)), np.ones(n)), edges[inside], np.ones(inside.sum()), 1.0)
    labels = oracles.exact_labels(shell, np.zeros((n, 1)))
    x = rng.standard_normal((int(labels.max()) + 1, d))[labels]
    v = np.empty((len(edges), d))
    for e, (i, j) in enumerate(edges):
        u = rng.standard_normal(d) if labels[i] == labels[j] else x[i] - x[j]
        radius = 0.9 * rng.random() if labels[i] == labels[j] else 1.0
        v[e] = weights[e] * radius * u / np.linalg.norm(u)
    u = np.zeros((n, d))
    np.add.at(u, edges[:, 0], v)
    np.subtract.at(u, edges[:, 1], v)
    return x, labels, v, u


def planted(
    rng: np.random.Generator,
    edges: IntArray,
    weights: FloatArray,
    n: int,
    d: int,
    n_groups: int,
    lam: float = 1.0,
    complete: tuple[float, FloatArray | None] | None = None,
    sample_weight: FloatArray | None = None,
) -> Instance:
    """Squared distances whose minimiser is known: a_i = x_i + lam u_i / s_i."""
    x, labels, _, u = _planted_parts(rng, edges, weights, n, n_groups, d)
    s = np.ones(n) if sample_weight is None else sample_weight
    x = x * lam
    nodes = SquaredNodes(x + lam * u / s[:, None], s)
    return Instance(nodes, edges, weights, lam, complete, x, labels)


def planted_regression(
    rng: np.random.Generator,
    edges: IntArray,
    weights: FloatArray,
    n: int,
    p: int,
    n_groups: int,
    ridge: float = 0.0,
    complete: tuple[float, FloatArray | None] | None = None,
) -> Instance:
    """Least squares whose minimiser is known: Z'y/n = H x + u, y in range(Z) plus noise orthogonal to it."""
    x, labels, _, u = _planted_parts(rng, edges, weights, n, n_groups, p)
    designs, responses = [], []
    for i in range(n):
        size = int(rng.integers(p + 1, 3 * p + 3))
        z = rng.standard_normal((size, p))
        gram = z.T @ z
        y = z @ x[i] + z @ np.linalg.solve(gram, size * (u[i] + ridge * x[i]))
        noise = rng.standard_normal(size)
        responses.append(y + noise - z @ np.linalg.solve(gram, z.T @ noise))
        designs.append(z)
    return Instance(RegressionNodes(designs, responses, ridge), edges, weights, 1.0, complete, x, labels)


# ---- random problems without a known answer


def random_squared(rng: np.random.Generator, kind: str, n: int, d: int, ratio: float = 1e4) -> Instance:
    """Clustered data; lam log-uniform over three decades up to about total fusion.

    `kind` is "complete" (any weight), "node_weights", "knn" (Gaussian weights), "sparse" (connected, weights
    over `ratio`) or "disconnected" (the same without the spanning tree).
    """
    centres = 3.0 * rng.standard_normal((3, d))
    a = centres[rng.integers(3, size=n)] + rng.standard_normal((n, d))
    complete: tuple[float, FloatArray | None] | None = None
    if kind == "complete":
        complete = (float(10.0 ** rng.uniform(-2, 2)), None)
        edges = all_pairs(n)
        weights = np.full(len(edges), complete[0])
    elif kind == "node_weights":
        common, r = float(10.0 ** rng.uniform(-2, 2)), rng.uniform(0.2, 5.0, size=n)
        complete = (common, r)
        edges = all_pairs(n)
        weights = common * r[edges[:, 0]] * r[edges[:, 1]]
    elif kind == "knn":
        edges = knn_pairs(a, min(5, n - 1))
        length = np.square(a[edges[:, 0]] - a[edges[:, 1]]).sum(axis=1)
        weights = np.exp(-0.5 * length / np.median(length))
    elif kind in ("sparse", "disconnected"):
        edges = sparse_pairs(rng, n, 2.5 / n, connected=kind == "sparse")
        weights = spread_weights(rng, len(edges), ratio)
    else:
        raise ValueError(kind)
    degree = max(float(np.median(np.bincount(edges.ravel(), np.repeat(weights, 2), n))), 1e-300)
    lam = float(np.abs(a - a.mean(axis=0)).max() / degree * 10.0 ** rng.uniform(-2.5, 0.5))
    return Instance(SquaredNodes(a, np.ones(n)), edges, weights, lam, complete)


def random_regression(rng: np.random.Generator, kind: str, n: int, p: int, ridge: float) -> Instance:
    """Least squares with n_i from 1 to 40 samples; graph kinds as in `random_squared`."""
    shell = random_squared(rng, kind, n, p)
    models = rng.standard_normal((3, p))
    designs, responses = [], []
    for _ in range(n):
        z = rng.standard_normal((int(rng.integers(1, 41)), p))
        designs.append(z)
        responses.append(z @ models[rng.integers(3)] + 0.3 * rng.standard_normal(len(z)))
    nodes = RegressionNodes(designs, responses, ridge)
    return Instance(nodes, shell.edges, shell.weights, shell.lam / 3.0, shell.complete)
