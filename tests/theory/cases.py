"""Random instances and partitions that the theory tests share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests import catalogue
from tests.catalogue import Instance
from tests.oracles import renumber
from tests.theory import plain

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

KINDS = ("complete", "node_weights", "knn", "sparse", "chain", "tree", "cycle", "disconnected")


def graph(rng: np.random.Generator, kind: str, n: int) -> tuple[IntArray, FloatArray]:
    """Edges of a chain, a random tree or a cycle, with weights spread over 1e3."""
    if kind == "tree":
        edges = np.array([(int(rng.integers(j)), j) for j in range(1, n)])
    else:
        closing = [(0, n - 1)] if kind == "cycle" else []
        edges = np.array([(j, j + 1) for j in range(n - 1)] + closing)
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))], catalogue.spread_weights(rng, len(edges), 1e3)


def random_instance(rng: np.random.Generator, kind: str, n: int, d: int) -> Instance:
    """Squared distances, in two of five cases least squares with ridge 0 or 0.1; weights spread over 1e3."""
    inner = kind if kind in ("complete", "node_weights", "knn", "sparse", "disconnected") else "sparse"
    if rng.random() < 0.4:
        instance = catalogue.random_regression(rng, inner, n, d, float(rng.choice([0.0, 0.1])))
    else:
        instance = catalogue.random_squared(rng, inner, n, d, 1e3)
    if inner == kind:
        return instance
    edges, weights = graph(rng, kind, n)
    degree = float(np.median(np.bincount(edges.ravel(), np.repeat(weights, 2))))
    scale = float(np.abs(plain.quadratic(instance).linear).max())
    lam = scale / degree * 10.0 ** rng.uniform(-1.5, 0.5)
    return Instance(instance.nodes, edges, weights, lam)


def random_partition(rng: np.random.Generator, instance: Instance, solved: IntArray) -> IntArray:
    """The solution's partition, or two of its clusters merged, or one split, or another one altogether."""
    kind, n = rng.integers(5), len(solved)
    labels = solved.copy()
    crossing = instance.edges[labels[instance.edges[:, 0]] != labels[instance.edges[:, 1]]]
    if kind == 1 and len(crossing):
        i, j = crossing[rng.integers(len(crossing))]
        labels[labels == labels[j]] = labels[i]
    elif kind == 2:
        chosen = np.flatnonzero(labels == labels[rng.integers(n)])
        labels[chosen[rng.random(len(chosen)) < 0.5]] = n
    elif kind == 3:
        labels = rng.integers(0, int(rng.integers(1, n + 1)), size=n)
    return renumber(labels)


def connected(instance: Instance, labels: IntArray) -> bool:
    """Whether inside edges connect every cluster."""
    names = np.arange(len(labels))
    for i, j in instance.edges[labels[instance.edges[:, 0]] == labels[instance.edges[:, 1]]]:
        names[names == names[j]] = names[i]
    return bool(np.array_equal(renumber(names), renumber(labels)))
