"""Which nodes are pulled together, and how strongly: all pairs, nearest neighbours, edge lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fusionopt import _checks
from fusionopt._knn import neighbour_edges
from fusionopt.clusters import components, first_appearance

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

EDGE_BYTES_LIMIT = 4 * 2**30
"""Edge arrays beyond this are not built (24 bytes an edge, 120 while they are sorted)."""


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An undirected weighted graph on the nodes 0, ..., n_nodes - 1.

    Built by `Graph.complete`, `Graph.knn`, `Graph.chain`, `Graph.ring`, `Graph.grid`, `Graph.tree`,
    `Graph.from_edges`, `Graph.from_matrix` or `Graph.from_networkx`. Each unordered pair counts once; only pairs
    with a positive weight are edges. The graph is never completed silently.

    Attributes
    ----------
    n_nodes : int
    is_complete : bool
        Built by `Graph.complete`: pairs are not stored.
    weight : float
        Common weight of a complete graph; NaN otherwise.
    node_weights : float64 (n_nodes,) or None
        r of a complete graph with weights ``weight * r_i * r_j``.
    """

    n_nodes: int
    is_complete: bool
    weight: float
    node_weights: FloatArray | None
    _edges: IntArray | None
    _weights: FloatArray | None

    @classmethod
    def complete(cls, n: int, weight: float = 1.0, node_weights: ArrayLike | None = None) -> Graph:
        """All pairs i < j, with weight w_ij = weight, or weight * r_i * r_j.

        Parameters
        ----------
        n : int >= 1
            Number of nodes.
        weight : float >= 0
            0 leaves no edges.
        node_weights : array-like (n,) >= 0, or None
            r, copied. A node with r_i = 0 has no edges.

        Returns
        -------
        Graph
            O(1) memory beside `node_weights`; `edges` and `weights` build n (n - 1) / 2 rows on each access.

        Raises
        ------
        InvalidArgumentError
            A negative or non-finite weight, or a product of positive weights that leaves the float64 range.
        """
        size = _checks.as_count("n", n)
        common = _checks.as_nonnegative_scalar("weight", weight)
        if node_weights is None:
            return cls(size, True, common, None, None, None)
        r = _checks.as_node_weights("node_weights", node_weights, size, of="node", all_zero_refused=False)
        positive = np.sort(r[r > 0])
        if common > 0 and len(positive) > 1:
            with np.errstate(over="ignore", under="ignore"):
                least, most = (float(common * a * b) for a, b in (positive[:2], positive[-2:]))
            if least == 0 or not np.isfinite(most):
                _checks.refuse(
                    f"weight * node_weights[i] * node_weights[j] runs from {least:g} to {most:g}, beyond the "
                    "range of float64; give node_weights of a more moderate size.",
                    argument="node_weights",
                    got=(least, most),
                    wanted="products within the range of float64",
                )
        return cls(size, True, common, r, None, None)

    @classmethod
    def from_edges(cls, n: int, edges: ArrayLike, weights: ArrayLike | None = None) -> Graph:
        """The given pairs.

        Parameters
        ----------
        n : int >= 1
            Number of nodes; nodes without an edge stay alone.
        edges : int array-like (E, 2)
            Pairs of different nodes, in any order and orientation; may be empty. A pair given several times
            is one edge with the sum of its weights. Copied.
        weights : array-like (E,) >= 0, or None
            1 for every edge if None. Edges of weight 0 are left out, which changes nothing in the objective.

        Returns
        -------
        Graph

        Raises
        ------
        InvalidTypeError
            `edges` are not whole numbers.
        InvalidArgumentError
            A node out of range, an edge from a node to itself, a negative or NaN weight; the message names
            the edge.
        """
        size = _checks.as_count("n", n)
        pairs = _as_pairs(edges, size)
        if weights is None:
            return _from_pairs(size, pairs, np.ones(len(pairs)))
        w = np.asarray(weights)
        if w.ndim != 1 or len(w) != len(pairs):
            _checks.refuse(
                f"weights has shape {w.shape}; it needs ({len(pairs)},), one weight for each edge.",
                argument="weights",
                got=w.shape,
                wanted=f"shape ({len(pairs)},)",
            )
        if w.dtype.kind not in "fiub":
            _checks.as_vector("weights", weights)  # words the refusal
        w = np.array(w, dtype=np.float64)
        bad = ~((w >= 0) & np.isfinite(w))
        if bad.any():
            place = int(np.argmax(bad))
            i, j = (int(k) for k in pairs[place])
            _checks.refuse(
                f"weights[{place}] of edge ({i}, {j}) is {w[place]}; weights must be finite numbers >= 0 "
                "(0 leaves the edge out).",
                argument="weights",
                got=float(w[place]),
                wanted="a finite number >= 0",
            )
        return _from_pairs(size, pairs, w)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Graph:
        """The pairs with a positive entry in a symmetric matrix of weights.

        Parameters
        ----------
        matrix : scipy sparse (n, n) or array-like (n, n)
            Weights >= 0, symmetric, zero on the diagonal. The upper triangle is used; entries that differ
            from their mirror by no more than rounding (1e-12 relative) are taken as equal. Zeros, stored or
            not, are no edges.

        Returns
        -------
        Graph

        Raises
        ------
        InvalidArgumentError
            Not square, not symmetric, non-zero diagonal, a negative or NaN weight; the message names the
            entry.
        """
        table = sparse.coo_array(matrix) if sparse.issparse(matrix) else _checks.as_matrix("matrix", matrix)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or table.shape[0] == 0:
            _checks.refuse(
                f"matrix has shape {table.shape}; give a square matrix of weights, one row and one column "
                "for each node.",
                argument="matrix",
                got=table.shape,
                wanted="a square matrix",
            )
        if isinstance(table, np.ndarray):
            rows, columns = np.nonzero(table)
            values = table[rows, columns]
        else:
            if table.dtype.kind not in "fiub":
                _checks.as_matrix("matrix", np.zeros((1, 1), dtype=table.dtype))  # words the refusal
            table = table.copy()
            table.sum_duplicates()
            rows, columns, values = table.row, table.col, table.data.astype(np.float64)
        return _from_entries(table.shape[0], rows.astype(np.int64), columns.astype(np.int64), values)

    @classmethod
    def from_networkx(cls, graph: Any, weight: str = "weight", nodes: Sequence[Any] | None = None) -> Graph:
        """The edges of a networkx graph.

        Parameters
        ----------
        graph : networkx graph of any kind
            Directed or not, with or without parallel edges: what joins two nodes, in either direction, is one edge
            with the sum of the weights.
        weight : str
            Name of the edge attribute that holds w >= 0; an edge without it has weight 1.
        nodes : sequence or None
            Row i of x belongs to nodes[i]; None takes the graph's own order, ``list(graph.nodes)``.

        Returns
        -------
        Graph

        Raises
        ------
        InvalidTypeError
            Not a networkx graph, or weights that are no numbers.
        InvalidArgumentError
            `nodes` does not name each node once; a graph without nodes; otherwise as in `from_edges`.

        Examples
        --------
        >>> import networkx
        >>> Graph.from_networkx(networkx.path_graph(3)).edges.tolist()
        [[0, 1], [1, 2]]
        """
        if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed", "is_multigraph")):
            _checks.refuse_type(
                f"graph is a {type(graph).__name__}; give a networkx graph (Graph.from_matrix takes matrices, "
                "Graph.from_edges pairs).",
                argument="graph",
                got=type(graph).__name__,
                wanted="a networkx graph",
            )
        own = list(graph.nodes)
        order = own if nodes is None else list(nodes)
        place = {node: k for k, node in enumerate(order)}
        if len(place) != len(order) or len(order) != len(own) or any(node not in place for node in own):
            _checks.refuse(
                f"nodes has {len(order)} entries and graph has {len(own)} nodes; name each node of graph once.",
                argument="nodes",
                got=_checks.shown(order),
                wanted="every node of graph, once",
            )
        links = list(graph.edges(data=weight, default=1.0))
        pairs = np.array([(place[u], place[v]) for u, v, _ in links], dtype=np.int64)
        return cls.from_edges(len(order), pairs, np.array([w for _, _, w in links]) if links else None)

    @classmethod
    def chain(cls, n: int, weight: float = 1.0) -> Graph:
        """Nodes in a row: edges (0, 1), (1, 2), ..., (n - 2, n - 1).

        Parameters
        ----------
        n : int >= 1
        weight : float >= 0
            Of every edge; 0 leaves no edges.

        Returns
        -------
        Graph

        Raises
        ------
        InvalidArgumentError, InvalidTypeError
            A wrong argument.
        """
        return cls.grid((_checks.as_count("n", n),), weight)

    @classmethod
    def ring(cls, n: int, weight: float = 1.0) -> Graph:
        """A chain whose ends are joined; with two nodes that is one edge.

        Parameters and exceptions as in `chain`.
        """
        size = _checks.as_count("n", n)
        nodes = np.arange(size if size > 2 else size - 1, dtype=np.int64)
        return _unit_graph(size, np.stack([nodes, (nodes + 1) % size], axis=1), weight)

    @classmethod
    def grid(cls, shape: Sequence[int], weight: float = 1.0) -> Graph:
        """Cells of a box, each joined to the next one along every axis.

        Parameters
        ----------
        shape : ints >= 1
            Number of cells along each axis. Node number: the position in C order (``np.ravel_multi_index``).
        weight : float >= 0
            Of every edge; 0 leaves no edges.

        Returns
        -------
        Graph

        Raises
        ------
        InvalidArgumentError, InvalidTypeError
            No axis, or a wrong argument.

        Examples
        --------
        >>> Graph.grid((2, 2)).edges.tolist()
        [[0, 1], [0, 2], [1, 3], [2, 3]]
        """
        entries = list(shape) if np.ndim(shape) == 1 else []
        if not entries:
            _checks.refuse_type(
                f"shape={_checks.shown(shape)} is not a list of whole numbers; give the number of cells along each "
                "axis, for instance (20, 30).",
                argument="shape",
                got=shape,
                wanted="a non-empty list of ints",
            )
        sides = [_checks.as_count(f"shape[{k}]", side) for k, side in enumerate(entries)]
        n = math.prod(sides)
        # Edges are sorted as they are merged: about 120 bytes an edge.
        if 120.0 * n * len(sides) > EDGE_BYTES_LIMIT:
            _checks.refuse_memory(
                f"Building the grid of {n} cells",
                120.0 * n * len(sides),
                EDGE_BYTES_LIMIT,
                "give a smaller shape",
            )
        cells = np.arange(n, dtype=np.int64).reshape(sides)
        pairs = [
            np.stack([np.delete(cells, -1, axis).ravel(), np.delete(cells, 0, axis).ravel()], axis=1)
            for axis in range(len(sides))
        ]
        return _unit_graph(n, np.concatenate(pairs), weight)

    @classmethod
    def tree(cls, parents: ArrayLike, weights: ArrayLike | None = None) -> Graph:
        """A rooted tree, or several.

        Parameters
        ----------
        parents : int array-like (n,)
            parents[i] is the node above node i, -1 for a root.
        weights : array-like (n,) >= 0, or None
            weights[i] is that of the edge from i to its parent (unread for a root); 1 if None.

        Returns
        -------
        Graph

        Raises
        ------
        InvalidTypeError
            `parents` are not whole numbers.
        InvalidArgumentError
            A parent out of range, a node that is above itself, a wrong weight.

        Examples
        --------
        >>> Graph.tree([-1, 0, 0, 1]).edges.tolist()
        [[0, 1], [0, 2], [1, 3]]
        """
        above = np.asarray(parents)
        if above.ndim != 1 or above.size == 0 or above.dtype.kind not in "iu":
            _checks.refuse_type(
                f"parents has shape {above.shape} and type {above.dtype}; give one whole number for each node, -1 for "
                "a root.",
                argument="parents",
                got=(above.shape, str(above.dtype)),
                wanted="whole numbers, shape (n,)",
            )
        n = len(above)
        outside = (above < -1) | (above >= n)
        if outside.any():
            node = int(np.argmax(outside))
            _checks.refuse(
                f"parents[{node}] = {int(above[node])} is out of range; give 0 to {n - 1}, or -1 for a root.",
                argument="parents",
                got=int(above[node]),
                wanted=f"-1 to {n - 1}",
            )
        below = np.flatnonzero(above >= 0)
        w = np.ones(n) if weights is None else _checks.as_vector("weights", weights, length=n, of="node")
        pairs = np.stack([below, above[below].astype(np.int64)], axis=1)
        if len(below) + int(components(n, pairs).max()) + 1 != n:
            _checks.refuse(
                "parents has a cycle: some node is above itself; follow it up from any node to end at a root (-1).",
                argument="parents",
                got="a cycle",
                wanted="a forest",
            )
        return cls.from_edges(n, pairs, w[below])

    @classmethod
    def knn(
        cls,
        points: ArrayLike,
        n_neighbors: int = 10,
        kernel: str = "gaussian",
        bandwidth: float | str = "median",
    ) -> Graph:
        """Each point with its nearest neighbours: the union of both directions.

        Equal points are collapsed first: each distinct point, represented by its lowest index, is joined to
        its `n_neighbors` nearest distinct points, and all copies of a point are joined to each other. With
        Gaussian weights w_ij = exp(-d_ij^2 / (2 h)), d_ij the Euclidean distance, so copies have weight 1.

        Parameters
        ----------
        points : array-like (n, d) or (n,)
            Finite numbers; copied.
        n_neighbors : int >= 1
            More than there are other distinct points means all of them.
        kernel : "gaussian" | "unit"
            "unit": every weight is 1.
        bandwidth : "median" or float > 0
            h, in squared units of the points. "median": the median of the positive squared edge lengths, each
            edge counted once (1 if there is none).

        Returns
        -------
        Graph

        Raises
        ------
        InvalidArgumentError, InvalidTypeError
            A wrong argument.
        MemoryLimitError
            So many copies of one point that joining them all would not fit.

        Notes
        -----
        Distances that differ by no more than the rounding of the coordinates count as ties, and ties go to
        the lowest index, so the graph does not change when the points are shifted or scaled. A Gaussian
        weight that underflows to 0 (d_ij^2 > 1490 h) is no edge. About O(n log n) for few columns (SciPy's
        k-d tree).
        """
        data = _checks.as_matrix("points", points, allow_vector=True)
        k = _checks.as_count("n_neighbors", n_neighbors)
        _checks.check_choice("kernel", kernel, ("gaussian", "unit"))
        if isinstance(bandwidth, str):
            if bandwidth != "median":
                _checks.refuse(
                    f"bandwidth={bandwidth!r} is unknown; give 'median' or a positive number.",
                    argument="bandwidth",
                    got=bandwidth,
                    wanted="'median' or a positive number",
                )
        else:
            bandwidth = _checks.as_positive_scalar("bandwidth", bandwidth, hint=" or 'median'")
        pairs, lengths, exponent = neighbour_edges(data, k, EDGE_BYTES_LIMIT)
        if kernel == "unit":
            return _from_pairs(len(data), pairs, np.ones(len(pairs)))
        if isinstance(bandwidth, str):
            positive = lengths[lengths > 0]
            root = float(np.sqrt(np.median(positive**2))) if len(positive) else 1.0
        else:
            # Lengths are in units of 2**exponent; the exponent is taken off the square root, which cannot
            # overflow.
            root = float(np.ldexp(np.sqrt(bandwidth), -exponent))
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            ratios = np.where(lengths > 0, lengths / root, 0.0)
            weights = np.exp(-(ratios**2) / 2)
        return _from_pairs(len(data), pairs, weights)

    @property
    def edges(self) -> IntArray:
        """The pairs (n_edges, 2), int64, i < j, in lexicographic order; read-only.

        Raises
        ------
        MemoryLimitError
            A complete graph whose pairs would take more than `EDGE_BYTES_LIMIT`.

        Notes
        -----
        Built anew on each access for a complete graph.
        """
        if self._edges is not None:
            return self._edges
        self._check_memory()
        nodes = self._linked_nodes()
        m = len(nodes)
        pairs = np.empty((m * (m - 1) // 2, 2), dtype=np.int64)
        counts = np.arange(m - 1, -1, -1, dtype=np.int64)
        pairs[:, 0] = np.repeat(nodes, counts)
        # Row i of the upper triangle starts at position start_i and runs over i + 1, ..., m - 1.
        starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)[:-1]])
        places = np.arange(len(pairs), dtype=np.int64) + np.repeat(np.arange(1, m + 1) - starts, counts)
        pairs[:, 1] = nodes[places]
        pairs.flags.writeable = False
        return pairs

    @property
    def weights(self) -> FloatArray:
        """Weights (n_edges,) > 0 in the order of `edges`; read-only.

        Raises
        ------
        MemoryLimitError
            As for `edges`.
        """
        if self._weights is not None:
            return self._weights
        self._check_memory()
        if self.node_weights is None:
            w = np.full(self.n_edges, self.weight)
        else:
            pairs = self.edges
            w = self.weight * self.node_weights[pairs[:, 0]] * self.node_weights[pairs[:, 1]]
        w.flags.writeable = False
        return w

    @property
    def n_edges(self) -> int:
        """Number of pairs with a positive weight, an exact Python int."""
        if self._edges is not None:
            return len(self._edges)
        m = len(self._linked_nodes()) if self.node_weights is not None or self.weight == 0 else self.n_nodes
        return m * (m - 1) // 2

    @cached_property
    def component_labels(self) -> IntArray:
        """Connected component (n_nodes,) of each node, int64, in first-appearance order; read-only."""
        if self._edges is not None:
            labels = components(self.n_nodes, self._edges)
        else:
            groups = np.arange(self.n_nodes, dtype=np.int64)
            linked = self._linked_nodes()
            groups[linked] = linked[0] if len(linked) else 0
            labels = first_appearance(groups)
        labels.flags.writeable = False
        return labels

    @property
    def n_components(self) -> int:
        """Number of connected components; a node without an edge is one."""
        if self.is_complete and self.node_weights is None and self.weight > 0:
            return 1
        return int(self.component_labels.max()) + 1

    def _linked_nodes(self) -> IntArray:
        """Nodes of a complete graph that may have edges."""
        if self.weight == 0:
            return np.empty(0, dtype=np.int64)
        if self.node_weights is None:
            return np.arange(self.n_nodes, dtype=np.int64)
        return np.flatnonzero(self.node_weights > 0)

    def _check_memory(self) -> None:
        need = 24.0 * self.n_edges
        if need > EDGE_BYTES_LIMIT:
            _checks.refuse_memory(
                f"Building the {self.n_edges} edges of a complete graph on {self.n_nodes} nodes",
                need,
                EDGE_BYTES_LIMIT,
                "use n_edges, weight and node_weights, which need no edge list",
            )

    def __repr__(self) -> str:
        kind = ", complete" if self.is_complete else ""
        return (
            f"Graph(n_nodes={self.n_nodes}, n_edges={self.n_edges}, n_components={self.n_components}{kind})"
        )


def _unit_graph(n: int, pairs: IntArray, weight: object) -> Graph:
    """Pairs that need no check, all with one weight."""
    common = _checks.as_nonnegative_scalar("weight", weight)
    return _from_pairs(n, pairs, np.full(len(pairs), common))


def _as_pairs(edges: ArrayLike, n: int) -> IntArray:
    """Checked int64 copy (E, 2)."""
    try:
        given = np.asarray(edges)
    except (ValueError, TypeError):
        given = np.empty((0, 1))
    if given.size == 0 and given.shape in ((0,), (0, 2)):
        return np.empty((0, 2), dtype=np.int64)
    if given.ndim != 2 or given.shape[1] != 2:
        _checks.refuse(
            f"edges has shape {given.shape}; it needs (n_edges, 2): one pair of node indices in each row.",
            argument="edges",
            got=given.shape,
            wanted="shape (n_edges, 2)",
        )
    if given.dtype.kind not in "iu":
        _checks.refuse_type(
            f"edges holds values of type {given.dtype}; give node indices as whole numbers, for instance "
            "edges.astype(int).",
            argument="edges",
            got=str(given.dtype),
            wanted="whole numbers",
        )
    outside = ((given < 0) | (given >= n)).any(axis=1)
    if outside.any():
        place = int(np.argmax(outside))
        i, j = (int(k) for k in given[place])
        _checks.refuse(
            f"edges[{place}] = ({i}, {j}) names a node out of range; nodes are 0 to {n - 1}.",
            argument="edges",
            got=(i, j),
            wanted=f"0 to {n - 1}",
        )
    pairs = given.astype(np.int64)
    loops = pairs[:, 0] == pairs[:, 1]
    if loops.any():
        place = int(np.argmax(loops))
        node = int(pairs[place, 0])
        _checks.refuse(
            f"edges[{place}] = ({node}, {node}) joins a node to itself; leave it out.",
            argument="edges",
            got=(node, node),
            wanted="two different nodes",
        )
    return pairs


def _from_pairs(n: int, pairs: IntArray, weights: FloatArray) -> Graph:
    """Sort, merge and drop zeros; `pairs` and `weights` are already checked."""
    low, high = np.minimum(pairs[:, 0], pairs[:, 1]), np.maximum(pairs[:, 0], pairs[:, 1])
    # Sorted by weight within a pair: the sum of a repeated pair does not depend on the order of the rows.
    order = np.lexsort((weights, high, low))
    low, high, weights = low[order], high[order], weights[order]
    new = np.ones(len(low), dtype=np.bool_)
    new[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    starts = np.flatnonzero(new)
    with np.errstate(over="ignore"):
        merged = np.add.reduceat(weights, starts) if len(starts) else np.empty(0)
    low, high = low[starts], high[starts]
    if not np.isfinite(merged).all():
        place = int(np.argmin(np.isfinite(merged)))
        _checks.refuse(
            f"the weights of edge ({low[place]}, {high[place]}), which is given several times, add up to "
            "Inf; give smaller weights.",
            argument="weights",
            got=float("inf"),
            wanted="a finite sum",
        )
    kept = merged > 0
    edges = np.ascontiguousarray(np.stack([low[kept], high[kept]], axis=1))
    values = np.ascontiguousarray(merged[kept])
    edges.flags.writeable = False
    values.flags.writeable = False
    return Graph(n, False, float("nan"), None, edges, values)


def _from_entries(n: int, rows: IntArray, columns: IntArray, values: FloatArray) -> Graph:
    """Check the entries of a weight matrix, each given once, and keep the upper triangle."""

    def entry(k: int) -> str:
        return f"matrix[{int(rows[k])}, {int(columns[k])}]"

    bad = ~((values >= 0) & np.isfinite(values))
    if bad.any():
        k = int(np.argmax(bad))
        _checks.refuse(
            f"{entry(k)}, the weight of edge ({min(rows[k], columns[k])}, {max(rows[k], columns[k])}), is "
            f"{values[k]}; weights must be finite numbers >= 0.",
            argument="matrix",
            got=float(values[k]),
            wanted="finite numbers >= 0",
        )
    kept = values > 0
    rows, columns, values = rows[kept], columns[kept], values[kept]
    if (rows == columns).any():
        k = int(np.argmax(rows == columns))
        _checks.refuse(
            f"{entry(k)} on the diagonal is {values[k]}; a node is not joined to itself: set the diagonal to "
            "zero (the entries are weights, not distances).",
            argument="matrix",
            got=float(values[k]),
            wanted="a zero diagonal",
        )
    upper = rows < columns
    ups, downs = np.flatnonzero(upper), np.flatnonzero(~upper)
    ups = ups[np.lexsort((columns[ups], rows[ups]))]
    downs = downs[np.lexsort((rows[downs], columns[downs]))]
    symmetric = len(ups) == len(downs)
    if symmetric:
        same = (
            (rows[ups] == columns[downs])
            & (columns[ups] == rows[downs])
            & (np.abs(values[ups] - values[downs]) <= 1e-12 * np.maximum(values[ups], values[downs]))
        )
        symmetric = bool(same.all())
    if not symmetric:
        _refuse_asymmetric(n, rows, columns, values)
    return _from_pairs(n, np.stack([rows[ups], columns[ups]], axis=1), values[ups])


def _refuse_asymmetric(n: int, rows: IntArray, columns: IntArray, values: FloatArray) -> None:
    matrix = sparse.coo_array((values, (rows, columns)), shape=(n, n)).tocsr()
    difference = abs(matrix - matrix.T).tocoo()
    k = int(np.argmax(difference.data))
    i, j = sorted((int(difference.row[k]), int(difference.col[k])))
    _checks.refuse(
        f"matrix is not symmetric: matrix[{i}, {j}] is {matrix[i, j]} and matrix[{j}, {i}] is "
        f"{matrix[j, i]}; give (matrix + matrix.T) / 2, or Graph.from_edges for pairs that are stored once.",
        argument="matrix",
        got=(float(matrix[i, j]), float(matrix[j, i])),
        wanted="a symmetric matrix",
    )
