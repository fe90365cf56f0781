"""Flows on the edges inside clusters: divergence, exact repair, clipping.

A flow q_ij = -q_ji has divergence (div q)_i = sum_j q_ij. Both rooms below offer the same few operations:
`Clique` is one cluster of a complete graph, whose pairs follow the upper triangle row by row; `Patch` is
any number of clusters of an edge list at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree
from scipy.sparse.linalg import splu

from fusionopt.graph import Graph
from fusionopt.recovery._coupling import tally

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_BLOCK_EDGES = 2**15
_FACTOR_LIMIT = 3000
"""Patches with more nodes than this and more than two edges a node are repaired by conjugate gradients."""


EPS = float(np.finfo(np.float64).eps)


class Region(ABC):
    """Nodes and edges inside clusters; node arrays follow `nodes`, flows the region's own edge order."""

    nodes: IntArray
    clusters: IntArray
    """Names of the clusters of this region."""

    @property
    @abstractmethod
    def n_edges(self) -> int: ...

    @property
    @abstractmethod
    def edges(self) -> IntArray:
        """(n_edges, 2): the ends as nodes of the graph, i < j."""

    @property
    @abstractmethod
    def weights(self) -> FloatArray:
        """(n_edges,): scaled weights."""

    @abstractmethod
    def gather(self, duals: FloatArray, unit: float) -> FloatArray:
        """The rows of the graph's duals on the region's edges, divided by `unit`."""

    @abstractmethod
    def divergence(self, flow: FloatArray) -> FloatArray:
        """(n, d)."""

    @abstractmethod
    def correct(self, flow: FloatArray, excess: FloatArray) -> None:
        """Add to `flow`, in place, the flow of least sum ||c_e||^2 / w_e that has divergence `excess`.

        `excess` adds up to zero over each cluster.
        """

    @abstractmethod
    def ratios(self, flow: FloatArray) -> FloatArray:
        """(n_edges,): ||q_e|| / w_e."""

    @abstractmethod
    def clip(self, flow: FloatArray, ratios: FloatArray) -> float:
        """Shorten every row to ||q_e|| <= ratio w_e, one ratio for each cluster, in place.

        Returns the sum of (what was cut)^2 / w_e.
        """

    @abstractmethod
    def length(self, potentials: FloatArray) -> float:
        """sum_e w_e ||p_i - p_j|| for node potentials p."""

    @abstractmethod
    def potentials(self, excess: FloatArray) -> FloatArray:
        """p such that `correct` adds w_e (p_i - p_j)."""

    @abstractmethod
    def divergence_error(self, ratios: FloatArray) -> FloatArray:
        """(n,): bounds on the rounding error of `divergence` for a flow with these ratios."""

    @abstractmethod
    def cluster_max(self, values: FloatArray) -> FloatArray:
        """Largest of the edge values in each cluster, in the order of `clusters`."""


class Clique(Region):
    """One cluster of n >= 2 nodes of a complete graph: w_ij = common r_i r_j, all r positive."""

    def __init__(self, name: int, nodes: IntArray, r: FloatArray, common: float, graph: Graph) -> None:
        self.nodes, self.clusters, self.r, self.common, self._graph = (
            nodes,
            np.array([name]),
            r,
            common,
            graph,
        )
        self.total = float(r.sum())

    @property
    def n_edges(self) -> int:
        n = len(self.nodes)
        return n * (n - 1) // 2

    def _rows(self) -> Iterator[tuple[int, slice]]:
        """Row i of the upper triangle: the pairs (i, j) with j > i, in order."""
        n, start = len(self.nodes), 0
        for i in range(n - 1):
            yield i, slice(start, start + n - 1 - i)
            start += n - 1 - i

    @property
    def edges(self) -> IntArray:
        i, j = np.triu_indices(len(self.nodes), 1)
        return np.stack([self.nodes[i], self.nodes[j]], axis=1)

    @cached_property
    def weights(self) -> FloatArray:
        w = np.empty(self.n_edges)
        for i, row in self._rows():
            w[row] = (self.common * self.r[i]) * self.r[i + 1 :]
        return w

    def gather(self, duals: FloatArray, unit: float) -> FloatArray:
        # Row a of the graph's own upper triangle, over the nodes that have edges, starts at a m - a (a + 1)
        # / 2.
        linked = np.arange(self._graph.n_nodes)
        if self._graph.node_weights is not None:
            linked = np.cumsum(self._graph.node_weights > 0) - 1
        m, place = int(linked[-1]) + 1, linked[self.nodes]
        flow = np.empty((self.n_edges, duals.shape[1]))
        for i, row in self._rows():
            a = int(place[i])
            flow[row] = duals[a * m - a * (a + 1) // 2 - a - 1 + place[i + 1 :]]
        flow /= unit
        return flow

    def divergence(self, flow: FloatArray) -> FloatArray:
        out = np.zeros((len(self.nodes), flow.shape[1]))
        for i, row in self._rows():
            block = flow[row]
            out[i] += block.sum(axis=0)
            out[i + 1 :] -= block
        return out

    def potentials(self, excess: FloatArray) -> FloatArray:
        p: FloatArray = excess / (self.common * self.total * self.r)[:, None]
        return p

    def length(self, potentials: FloatArray) -> float:
        sums = []
        for i, _ in self._rows():
            diff = potentials[i] - potentials[i + 1 :]
            sums.append(self.r[i] * float(self.r[i + 1 :] @ np.sqrt(np.einsum("ja,ja->j", diff, diff))))
        return self.common * math.fsum(sums)

    def correct(self, flow: FloatArray, excess: FloatArray) -> None:
        # c_ij = (r_j e_i - r_i e_j) / sum r = r_i r_j (p_i - p_j) with p = e / (r sum r): a potential flow
        # for these weights, with divergence e_i exactly.
        share, r = excess / self.total, self.r
        uniform = bool((r == r[0]).all())
        for i, row in self._rows():
            if uniform:
                flow[row] += r[0] * (share[i] - share[i + 1 :])
            else:
                flow[row] += r[i + 1 :, None] * share[i] - r[i] * share[i + 1 :]

    def ratios(self, flow: FloatArray) -> FloatArray:
        out = np.empty(self.n_edges)
        for part in _parts(self.n_edges):
            block = flow[part]
            out[part] = np.sqrt(np.einsum("ja,ja->j", block, block)) / self.weights[part]
        return out

    def clip(self, flow: FloatArray, ratios: FloatArray) -> float:
        limit = float(ratios[0])
        return math.fsum(
            _clip_rows(flow[part], limit * self.weights[part], self.weights[part])
            for part in _parts(self.n_edges)
        )

    def divergence_error(self, ratios: FloatArray) -> FloatArray:
        largest = float(ratios.max()) * self.common
        errors: FloatArray = (len(self.nodes) + 4) * EPS * largest * self.r * (self.total - self.r)
        return errors

    def cluster_max(self, values: FloatArray) -> FloatArray:
        return np.array([values.max()])

    def largest_sum(self, values: FloatArray, at_nodes: FloatArray) -> float:
        """max over the pairs of values_ij + at_i + at_j."""
        return max(float(at_nodes[i] + (values[row] + at_nodes[i + 1 :]).max()) for i, row in self._rows())


class Patch(Region):
    """Clusters of an edge list, each with at least one inside edge; each is connected by its inside edges."""

    def __init__(self, labels: IntArray, clusters: IntArray, graph: Graph, edge_weights: FloatArray) -> None:
        wanted = np.zeros(int(labels.max()) + 1, dtype=np.bool_)
        wanted[clusters] = True
        ends = labels[graph.edges]
        self._places = np.flatnonzero((ends[:, 0] == ends[:, 1]) & wanted[ends[:, 0]])
        self._edges = graph.edges[self._places]
        self._weights = edge_weights[self._places]
        self.clusters = clusters
        self.nodes = np.flatnonzero(wanted[labels])
        rank = np.cumsum(wanted[labels]) - 1
        self._local = rank[self._edges]
        position = np.zeros(len(wanted), dtype=np.int64)
        position[clusters] = np.arange(len(clusters))
        self.cluster_of_node = position[labels[self.nodes]]
        self.cluster_of_edge = self.cluster_of_node[self._local[:, 0]]
        e, n = len(self._edges), len(self.nodes)
        rows = np.repeat(np.arange(e), 2)
        signs = np.tile([1.0, -1.0], e)
        self._incidence = sparse.csr_matrix((signs, (rows, self._local.ravel())), shape=(e, n))
        self._collect = self._incidence.T.tocsr()
        self._solver: _Laplacian | None = None
        self._source = (labels, graph, edge_weights)

    def subset(self, chosen: BoolArray) -> Patch:
        """Some of the clusters; nodes and edges keep their order."""
        labels, graph, edge_weights = self._source
        return Patch(labels, self.clusters[chosen], graph, edge_weights)

    @property
    def n_edges(self) -> int:
        return len(self._edges)

    @property
    def edges(self) -> IntArray:
        return self._edges

    @property
    def weights(self) -> FloatArray:
        return self._weights

    def gather(self, duals: FloatArray, unit: float) -> FloatArray:
        flow: FloatArray = duals[self._places] / unit
        return flow

    def divergence(self, flow: FloatArray) -> FloatArray:
        out: FloatArray = self._collect @ flow
        return out

    def potentials(self, excess: FloatArray) -> FloatArray:
        if self._solver is None:
            _, roots = np.unique(self.cluster_of_node, return_index=True)
            self._solver = _Laplacian(self._incidence, self._collect, self._weights, roots)
        return self._solver.solve(excess)

    def correct(self, flow: FloatArray, excess: FloatArray) -> None:
        flow += self._weights[:, None] * (self._incidence @ self.potentials(excess))

    def length(self, potentials: FloatArray) -> float:
        return float(self.edge_lengths(potentials).sum())

    def edge_lengths(self, potentials: FloatArray) -> FloatArray:
        """(n_edges,): w_e ||p_i - p_j||."""
        diff = self._incidence @ potentials
        lengths: FloatArray = self._weights * np.sqrt(np.einsum("ea,ea->e", diff, diff))
        return lengths

    def ratios(self, flow: FloatArray) -> FloatArray:
        lengths: FloatArray = np.sqrt(np.einsum("ea,ea->e", flow, flow))
        return lengths / self._weights

    def clip(self, flow: FloatArray, ratios: FloatArray) -> float:
        return _clip_rows(flow, ratios[self.cluster_of_edge] * self._weights, self._weights)

    def divergence_error(self, ratios: FloatArray) -> FloatArray:
        loads = np.repeat(ratios * self._weights, 2)
        n = len(self.nodes)
        degrees = np.bincount(self._local.ravel(), minlength=n)
        errors: FloatArray = (degrees + 4) * EPS * tally(self._local.ravel(), loads, n)
        return errors

    def cluster_max(self, values: FloatArray) -> FloatArray:
        out = np.full(len(self.clusters), -np.inf)
        np.maximum.at(out, self.cluster_of_edge, values)
        return out

    def tree_loads(self, slack: FloatArray, bounds: FloatArray) -> FloatArray:
        """(n_edges, b): how much an unknown repair of node errors may load the edges of a spanning tree; 0
        off the tree.

        The errors of a cluster add up to zero and have norms of at most a column of `bounds` (n, b). Sent
        along a tree, the edge above a subtree carries the sum of the errors on either side: at most the
        smaller of the two sums of bounds. The tree is taken along the edges with the most relative `slack`
        (n_edges,).
        """
        n, e = len(self.nodes), self.n_edges
        # Ranks, because SciPy takes an entry of zero for no edge.
        ranks = np.empty(e)
        ranks[np.argsort(-slack, kind="stable")] = np.arange(1, e + 1)
        i, j = self._local.T
        tree = minimum_spanning_tree(sparse.csr_matrix((ranks, (i, j)), shape=(n, n))).tocoo()
        edge_of_rank = np.argsort(ranks)
        chosen = edge_of_rank[np.rint(tree.data).astype(np.int64) - 1]
        # One walk over all the trees, from an extra node that is joined to the first node of each cluster.
        _, roots = np.unique(self.cluster_of_node, return_index=True)
        heads = np.concatenate([i[chosen], np.full(len(roots), n)])
        tails = np.concatenate([j[chosen], roots])
        names = np.concatenate([chosen + 1, np.full(len(roots), e + 1)]).astype(np.float64)
        walk = sparse.csr_matrix((names, (heads, tails)), shape=(n + 1, n + 1))
        walk = walk + walk.T
        order, parents = breadth_first_order(walk, n, directed=False)
        sums = np.concatenate([bounds, np.zeros((1, bounds.shape[1]))])
        for node in order[:0:-1].tolist():
            sums[parents[node]] += sums[node]
        totals = np.zeros((len(self.clusters), bounds.shape[1]))
        np.add.at(totals, self.cluster_of_node, bounds)
        loads = np.zeros((e, bounds.shape[1]))
        child = np.where(parents[i[chosen]] == j[chosen], i[chosen], j[chosen])
        below = sums[child]
        rest = totals[self.cluster_of_edge[chosen]] - below
        loads[chosen] = np.fmin(below, np.maximum(rest, 0.0))
        return loads


def _parts(n: int) -> Iterator[slice]:
    """Blocks of edges that stay in the cache."""
    return (slice(start, start + _BLOCK_EDGES) for start in range(0, n, _BLOCK_EDGES))


def _clip_rows(block: FloatArray, limits: FloatArray, weights: FloatArray) -> float:
    lengths = np.sqrt(np.einsum("ea,ea->e", block, block))
    long = np.flatnonzero(lengths > limits)
    block[long] *= (limits[long] / lengths[long])[:, None]
    return float((np.square(lengths[long] - limits[long]) / weights[long]).sum())


class _Laplacian:
    """Potentials p with B' W B p = e, each cluster's root at zero."""

    def __init__(
        self, incidence: sparse.csr_matrix, collect: sparse.csr_matrix, weights: FloatArray, roots: IntArray
    ) -> None:
        n = incidence.shape[1]
        self._matrix = (collect @ incidence.multiply(weights[:, None])).tocsc()
        self._free = np.setdiff1d(np.arange(n), roots)
        self._diagonal = self._matrix.diagonal()
        self._factor = None
        if n <= _FACTOR_LIMIT or incidence.shape[0] <= 2 * n:
            inner = self._matrix[self._free][:, self._free].tocsc()
            self._factor = splu(inner, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})

    def solve(self, excess: FloatArray) -> FloatArray:
        potentials = np.zeros_like(excess)
        if self._factor is not None:
            potentials[self._free] = self._factor.solve(np.ascontiguousarray(excess[self._free]))
            return potentials
        return _laplacian_gradients(self._matrix, self._diagonal, excess)


def _laplacian_gradients(matrix: sparse.csc_matrix, diagonal: FloatArray, rhs: FloatArray) -> FloatArray:
    """Conjugate gradients on all columns, preconditioned by the diagonal; a repair need not be exact."""
    x, r = np.zeros_like(rhs), rhs.copy()
    z = r / diagonal[:, None]
    p, rz = z, np.einsum("ia,ia->a", r, z)
    goal = 1e-24 * rz
    for _ in range(20 * int(np.sqrt(len(diagonal))) + 100):
        active = rz > goal
        if not active.any():
            break
        q = matrix @ p
        curvature = np.einsum("ia,ia->a", p, q)
        step = np.divide(rz, curvature, out=np.zeros_like(rz), where=active & (curvature > 0))
        x = x + step * p
        r = r - step * q
        z = r / diagonal[:, None]
        previous, rz = rz, np.einsum("ia,ia->a", r, z)
        p = z + np.divide(rz, previous, out=np.zeros_like(rz), where=previous > 0) * p
    return x
