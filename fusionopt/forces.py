"""Why two rows are together and what would part them, read off the edge duals of a solution.

The dual v_ij of an edge is the force that holds its ends together; it may grow to lam w_ij. An edge inside a cluster
below that limit has slack and ties its ends by itself; one at the limit is binding: it gives all it has.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from fusionopt import _checks

if TYPE_CHECKING:
    from fusionopt.path import PathResult
    from fusionopt.result import Result

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

BINDING = 1e-6
"""An edge whose force is within this share of its limit is binding: solutions are known to such a share."""


@dataclass(frozen=True, eq=False)
class EdgeForces:
    """The forces on all edges of a solution, rows in the order of ``graph.edges``.

    Attributes
    ----------
    edges : int64 (E, 2)
    inside : bool (E,)
        Both ends in one cluster.
    force : float64 (E,)
        ||v_ij||_2.
    limit : float64 (E,)
        lam w_ij.
    """

    edges: IntArray
    inside: BoolArray
    force: FloatArray
    limit: FloatArray

    @property
    def slack(self) -> FloatArray:
        """limit - force, >= 0."""
        return np.maximum(self.limit - self.force, 0.0)

    @property
    def share(self) -> FloatArray:
        """force / limit, 1 where the limit is 0."""
        shares = np.divide(self.force, self.limit, out=np.ones_like(self.force), where=self.limit > 0)
        return np.minimum(shares, 1.0)

    @property
    def binding(self) -> BoolArray:
        """Inside edges at their limit."""
        held: BoolArray = self.inside & (self.share >= 1.0 - BINDING)
        return held


@dataclass(frozen=True)
class Tie:
    """One edge of the answer to "why are i and j together?"."""

    i: int
    j: int
    share: float
    slack: float


@dataclass(frozen=True)
class Together:
    """Why two rows are in one cluster.

    Attributes
    ----------
    i, j, cluster, size : int
    direct : Tie or None
        The edge between them, if there is one.
    chain : tuple of Tie
        The way from i to j over inside edges whose weakest link is as slack as possible. Every link ties its ends.
    n_inside, n_binding : int
        Inside edges of the cluster, and how many of them are at their limit.
    """

    i: int
    j: int
    cluster: int
    size: int
    direct: Tie | None
    chain: tuple[Tie, ...]
    n_inside: int
    n_binding: int


@dataclass(frozen=True)
class Parting:
    """What would part two rows of one cluster, seen on a path.

    Attributes
    ----------
    below, above : float or None
        The nearest lams of the path, smaller and larger, where the two are in different clusters.
    parts : tuple of int
        Sizes of the parts that the cluster has at ``below``, largest first.
    """

    below: float | None
    above: float | None
    parts: tuple[int, ...]


def edge_forces(result: Result) -> EdgeForces:
    """The force on every edge, and its limit.

    Parameters
    ----------
    result : Result
        With duals.
    """
    graph = result.problem.graph
    edges = graph.edges
    duals = result.edge_duals()
    inside: BoolArray = result.labels[edges[:, 0]] == result.labels[edges[:, 1]]
    force = np.sqrt(np.einsum("ea,ea->e", duals, duals))
    return EdgeForces(edges, inside, force, result.problem.lam * graph.weights)


def why_together(result: Result, forces: EdgeForces, i: int, j: int) -> Together:
    """Why rows i and j are in one cluster.

    Raises
    ------
    InvalidArgumentError
        They are in different clusters, or not two rows of the table.
    """
    n = len(result.labels)
    if not (0 <= i < n and 0 <= j < n and i != j):
        _checks.refuse(
            f"rows {i} and {j} are not two different rows from 0 to {n - 1}.",
            argument="pair",
            got=(i, j),
            wanted="two rows",
        )
    if result.labels[i] != result.labels[j]:
        _checks.refuse(
            f"rows {i} and {j} are in different clusters at lam = {result.problem.lam:g}; give two of one cluster.",
            argument="pair",
            got=(i, j),
            wanted="two rows of one cluster",
        )
    cluster = int(result.labels[i])
    rows = np.flatnonzero(forces.inside & (result.labels[forces.edges[:, 0]] == cluster))
    place = {(int(a), int(b)): int(e) for e, (a, b) in zip(rows, forces.edges[rows], strict=True)}

    def tie(a: int, b: int) -> Tie:
        e = place[(min(a, b), max(a, b))]
        return Tie(a, b, float(forces.share[e]), float(forces.slack[e]))

    chain = _widest_chain(n, forces, rows, i, j)
    key = (min(i, j), max(i, j))
    return Together(
        i=i,
        j=j,
        cluster=cluster,
        size=int(np.count_nonzero(result.labels == cluster)),
        direct=tie(i, j) if key in place else None,
        chain=tuple(tie(a, b) for a, b in pairwise(chain)),
        n_inside=len(rows),
        n_binding=int(np.count_nonzero(forces.binding[rows])),
    )


def _widest_chain(n: int, forces: EdgeForces, rows: IntArray, i: int, j: int) -> list[int]:
    """Nodes from i to j over edges that are all at least as slack as the widest bottleneck, and as few as possible."""
    ranks = np.empty(len(rows))
    ranks[np.argsort(forces.share[rows], kind="stable")] = np.arange(1, len(rows) + 1)
    a, b = forces.edges[rows].T
    # The way in a spanning tree of the most slack has the widest bottleneck of all ways.
    tree = minimum_spanning_tree(sparse.csr_matrix((ranks, (a, b)), shape=(n, n)))
    tree = tree + tree.T
    way = _way(tree, i, j)
    worst = max(float(tree[u, v]) for u, v in pairwise(way))
    kept = ranks <= worst
    return _way(sparse.csr_matrix((ranks[kept], (a[kept], b[kept])), shape=(n, n)), i, j)


def _way(graph: sparse.csr_matrix, i: int, j: int) -> list[int]:
    _, before = breadth_first_order(graph, i, directed=False)
    way = [j]
    while way[-1] != i:
        way.append(int(before[way[-1]]))
    return way[::-1]


def loosest_pair(result: Result, forces: EdgeForces) -> tuple[int, int] | None:
    """The two rows of one cluster, joined by an edge, that carry the largest share of their limit without reaching
    it; None where no inside edge has slack.
    """
    free = np.flatnonzero(forces.inside & ~forces.binding & (forces.limit > 0))
    if len(free) == 0:
        return None
    i, j = forces.edges[free[int(np.argmax(forces.share[free]))]]
    return int(i), int(j)


def what_parts(path: PathResult, chosen: Result, i: int, j: int) -> Parting:
    """Where on a path two rows that are together at the chosen lam are apart."""
    lam = float(chosen.problem.lam)
    apart = [
        (float(at), r) for at, r in zip(path.lams, path.results, strict=True) if r.labels[i] != r.labels[j]
    ]
    below = max((item for item in apart if item[0] < lam), key=lambda item: item[0], default=None)
    above = min((item for item in apart if item[0] > lam), key=lambda item: item[0], default=None)
    parts: tuple[int, ...] = ()
    if below is not None:
        members = chosen.labels == chosen.labels[i]
        sizes = np.unique(below[1].labels[members], return_counts=True)[1]
        parts = tuple(int(size) for size in -np.sort(-sizes))
    return Parting(None if below is None else below[0], None if above is None else above[0], parts)
