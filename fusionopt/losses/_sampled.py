"""Losses that are means over samples: reading the data, and linear algebra node by node, dense or sparse."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from fusionopt import _checks
from fusionopt.losses.base import EPS, NodeLoss, read_only

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Design:
    """All rows z_s, those of one node together, and what the losses do with them.

    Parameters
    ----------
    rows : float64 (N, p), dense or CSR
    counts : int64 (m,)
        n_i, all >= 1.

    Notes
    -----
    Dense nodes of equal size go through one batched product; a sparse design is never made dense.
    """

    def __init__(self, rows: FloatArray | sparse.csr_array, counts: IntArray) -> None:
        self.rows = rows
        self.counts = counts
        self.offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        self.nodes = np.repeat(np.arange(len(counts)), counts)
        for array in (self.counts, self.offsets, self.nodes):
            array.flags.writeable = False

    @property
    def is_sparse(self) -> bool:
        return not isinstance(self.rows, np.ndarray)

    @property
    def n_columns(self) -> int:
        return int(self.rows.shape[1])

    @cached_property
    def _batches(self) -> list[tuple[IntArray | slice, IntArray | slice, int]]:
        """(nodes, rows, n) of nodes with equally many samples n."""
        sizes = np.unique(self.counts)
        if len(sizes) == 1:
            return [(slice(None), slice(None), int(sizes[0]))]
        out: list[tuple[IntArray | slice, IntArray | slice, int]] = []
        for size in sizes:
            nodes = np.flatnonzero(self.counts == size)
            rows = (self.offsets[nodes][:, None] + np.arange(size)).ravel()
            out.append((nodes, rows, int(size)))
        return out

    @cached_property
    def _block(self) -> Any:
        """CSR (N, m p): the sparse designs on a block diagonal."""
        rows: Any = self.rows
        per_row = np.diff(rows.indptr)
        columns = rows.indices.astype(np.int64) + np.repeat(self.nodes * self.n_columns, per_row)
        shape = (rows.shape[0], len(self.counts) * self.n_columns)
        return sparse.csr_array((rows.data, columns, rows.indptr.astype(np.int64)), shape=shape)

    def absolute(self) -> Design:
        """The design of |z_s|."""
        return Design(abs(self.rows), self.counts)

    def predict(self, x: FloatArray) -> FloatArray:
        """z_s'x_i for every sample: (N,) from x (m, p), (N, k) from x (m, p, k)."""
        flat = x[:, :, None] if x.ndim == 2 else x
        k = flat.shape[2]
        if self.is_sparse:
            out: FloatArray = np.asarray(self._block @ flat.reshape(-1, k))
        else:
            assert isinstance(self.rows, np.ndarray)
            out = np.empty((len(self.rows), k))
            for nodes, rows, n in self._batches:
                cube = self.rows[rows].reshape(-1, n, self.n_columns)
                out[rows] = np.matmul(cube, flat[nodes]).reshape(-1, k)
        return out[:, 0] if x.ndim == 2 else out

    def means(self, samples: FloatArray) -> FloatArray:
        """(1/n_i) sum over the samples of node i, (m,)."""
        first = self._batches[0]
        if len(self._batches) == 1:
            sums = samples.reshape(-1, first[2]).sum(axis=1)
        else:
            sums = np.add.reduceat(samples, self.offsets[:-1])
        means: FloatArray = sums / self.counts
        return means

    def pull(self, a: FloatArray) -> FloatArray:
        """(1/n_i) sum_s a_s z_s: (m, p) from a (N,), (m, p, k) from a (N, k)."""
        flat = a[:, None] if a.ndim == 1 else a
        m, k = len(self.counts), flat.shape[1]
        if self.is_sparse:
            out: FloatArray = np.asarray(self._block.T @ flat).reshape(m, self.n_columns, k)
        else:
            assert isinstance(self.rows, np.ndarray)
            out = np.empty((m, self.n_columns, k))
            for nodes, rows, n in self._batches:
                cube = self.rows[rows].reshape(-1, n, self.n_columns)
                out[nodes] = np.matmul(cube.swapaxes(1, 2), flat[rows].reshape(-1, n, k))
        out /= self.counts[:, None, None]
        return out[:, :, 0] if a.ndim == 1 else out

    def gram(self, a: FloatArray) -> FloatArray:
        """(1/n_i) sum_s a_s z_s z_s', (m, p, p), symmetric, from a >= 0 (N,)."""
        m, p = len(self.counts), self.n_columns
        _checks.check_memory(
            "The Hessians of all nodes", 8.0 * m * p * p, "use fewer columns, or fewer nodes at a time"
        )
        out = np.zeros((m, p, p))
        if self.is_sparse:
            block = self._block
            product = (block.T @ (block * a[:, None])).tocoo()
            node, row = np.divmod(product.coords[0], p)
            out[node, row, product.coords[1] % p] = product.data
        else:
            assert isinstance(self.rows, np.ndarray)
            for nodes, rows, n in self._batches:
                cube = self.rows[rows].reshape(-1, n, p)
                out[nodes] = np.matmul(cube.swapaxes(1, 2) * a[rows].reshape(-1, 1, n), cube)
        out /= self.counts[:, None, None]
        return np.asarray(0.5 * (out + out.swapaxes(1, 2)))


class SampledLoss(NodeLoss):
    """A loss f_i(x) = (1/n_i) sum_s w_s l(z_s, y_s; x) + ridge/2 ||x||_2^2 over the samples of node i."""

    def __init__(
        self,
        designs: Sequence[ArrayLike] | ArrayLike,
        targets: Sequence[ArrayLike] | ArrayLike,
        ridge: float,
        sample_weight: Sequence[ArrayLike] | ArrayLike | None,
        groups: ArrayLike | None,
        *,
        name: str = "targets",
        free_bias: bool = False,
    ) -> None:
        self._ridge = _checks.as_nonnegative_scalar("ridge", ridge)
        self._free_bias = free_bias
        self._group_names: NDArray[Any] | None = None
        rows: FloatArray | sparse.csr_array
        if groups is None:
            blocks = _blocks(designs)
            counts = np.array([block.shape[0] for block in blocks], dtype=np.int64)
            if any(sparse.issparse(block) for block in blocks):
                rows = sparse.csr_array(sparse.vstack(blocks, format="csr"))
            else:
                rows = np.concatenate(blocks)
            self._targets = _stacked(name, targets, counts)
            weights = None if sample_weight is None else _stacked("sample_weight", sample_weight, counts)
        else:
            stacked = _matrix("designs", designs)
            total = stacked.shape[0]
            names = _checks.as_labels("groups", groups, total)
            self._group_names, nodes = np.unique(names, return_inverse=True)
            self._group_names.flags.writeable = False
            order = np.argsort(nodes, kind="stable")
            counts = np.bincount(nodes)
            rows = stacked[order]
            self._targets = read_only(
                _checks.as_vector(name, targets, length=total, of="row of designs")[order]
            )
            weights = (
                None
                if sample_weight is None
                else _checks.as_vector("sample_weight", sample_weight, length=total, of="row of designs")[
                    order
                ]
            )
        self._weights = (
            read_only(np.ones(rows.shape[0]))
            if weights is None
            else _checks.as_node_weights("sample_weight", weights, rows.shape[0], of="sample")
        )
        if free_bias:
            rows = _with_bias(rows)
        if not isinstance(rows, np.ndarray):
            rows.sort_indices()
        for array in (rows,) if isinstance(rows, np.ndarray) else (rows.data, rows.indices, rows.indptr):
            array.flags.writeable = False
        self._design = Design(rows, counts)
        ridges = np.full(rows.shape[1], self._ridge)
        if free_bias:
            ridges[-1] = 0.0
        self._ridges = read_only(ridges)

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self._design.counts)

    @property
    def n_features(self) -> int:
        """Number of columns p of the designs, and one more for a free bias."""
        return self._design.n_columns

    @property
    def designs(self) -> Any:
        """All samples, (N, p), the rows of one node together, an array or CSR as given; read-only."""
        rows = self._design.rows
        return rows[:, :-1] if self._free_bias else rows

    @property
    def design(self) -> Design:
        """The rows as the losses work with them: with a last column of -1 for a free bias."""
        return self._design

    @property
    def free_bias(self) -> bool:
        """The last entry of x is a bias without ridge."""
        return self._free_bias

    @property
    def targets(self) -> FloatArray:
        """y, (N,), in the order of `designs`; read-only."""
        return self._targets

    @property
    def sample_weight(self) -> FloatArray:
        """w, (N,), in the order of `designs`; read-only, all ones when none was given."""
        return self._weights

    @property
    def offsets(self) -> IntArray:
        """(n_nodes + 1,): the rows of node i are offsets[i], ..., offsets[i + 1] - 1; read-only."""
        return self._design.offsets

    @property
    def n_samples(self) -> IntArray:
        """n_i, (n_nodes,); read-only."""
        return self._design.counts

    @property
    def ridge(self) -> float:
        """Ridge weight."""
        return self._ridge

    @property
    def group_names(self) -> NDArray[Any] | None:
        """Value of `groups` for each node, or None when the designs came node by node; read-only."""
        return self._group_names

    def with_sample_weight(self, weights: ArrayLike) -> Self:
        """The same loss with other weights of its samples, (N,) in the order of `designs`; the data are shared."""
        new = self._copy()
        new.__dict__["_weights"] = _checks.as_node_weights(
            "weights", weights, len(self._weights), of="sample"
        )
        return new

    def part(self, rows: IntArray, counts: ArrayLike) -> Self:
        """The loss of some samples only: counts_i >= 1 of them for node i, node by node in `rows` (copied)."""
        new = self._copy()
        new.__dict__["_design"] = Design(self._design.rows[rows], np.array(counts, dtype=np.int64))
        for name in ("_targets", "_weights", "_classes"):
            if name in vars(self):
                new.__dict__[name] = vars(self)[name][rows]
                new.__dict__[name].flags.writeable = False
        return new

    def _copy(self) -> Self:
        new = copy.copy(self)
        for name in [
            name for name in vars(new) if isinstance(getattr(type(new), name, None), cached_property)
        ]:
            del new.__dict__[name]
        return new

    def sample_values(self, x: ArrayLike) -> FloatArray:
        """(1/n_i) sum_s w_s l(z_s, y_s; x_i) for each node: the loss without its ridge."""
        point = self._point(x)
        return np.asarray(self._values(point) - self._ridge_values(point))

    def strong_convexity(self) -> FloatArray:
        """The ridge; 0 with a free bias."""
        return np.full(self.n_nodes, 0.0 if self._free_bias else self._ridge)

    def _ridge_values(self, x: FloatArray) -> FloatArray:
        values: FloatArray = 0.5 * np.einsum("ij,j,ij->i", x, self._ridges, x)
        return values

    def _prediction_error(self, x: FloatArray) -> FloatArray:
        """Bound on the rounding error of z_s'x_i, (N,) or (N, k), x's own rounding included."""
        chain = (self._design.n_columns + 2) * EPS
        return np.asarray(chain * self._design.absolute().predict(np.abs(x)))

    def _pull_error(self, slopes: FloatArray, slopes_error: FloatArray) -> FloatArray:
        """Bound on the rounding error of ``pull(w * slopes)``."""
        weights = self._weights if slopes.ndim == 1 else self._weights[:, None]
        chain = self._design.counts + 4
        absolute = self._design.absolute()
        spread = absolute.pull(weights * np.abs(slopes))
        own = absolute.pull(weights * slopes_error)
        return np.asarray(EPS * chain.reshape(-1, *[1] * (spread.ndim - 1)) * (spread + own) + own)


def _with_bias(rows: FloatArray | sparse.csr_array) -> FloatArray | sparse.csr_array:
    """A last column of -1: the margin of x = [w, b] is z.w - b."""
    column = -np.ones((rows.shape[0], 1))
    if isinstance(rows, np.ndarray):
        return np.hstack([rows, column])
    return sparse.csr_array(sparse.hstack([rows, sparse.csr_array(column)], format="csr"))


def _matrix(name: str, value: object, n_columns: int | None = None) -> Any:
    if sparse.issparse(value):
        return _checks.as_sparse_matrix(name, value, n_columns=n_columns)
    return _checks.as_matrix(name, value, n_columns=n_columns)


def _is_flat(value: object) -> bool:
    """Whether the argument is one vector (numbers), not a sequence of vectors."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind != "O"
    if hasattr(value, "to_numpy"):
        return True
    return isinstance(value, Sequence) and len(value) > 0 and all(np.ndim(entry) == 0 for entry in value)


def _blocks(designs: Any) -> list[Any]:
    """The designs of all nodes, checked, with equally many columns."""
    if (isinstance(designs, np.ndarray) and designs.dtype.kind != "O" and designs.ndim != 3) or (
        sparse.issparse(designs)
    ):
        _checks.refuse(
            f"designs is one array with {designs.ndim} dimensions (shape {designs.shape}); give a list with "
            "one (n_i, p) array for each node, or a stacked (N, p) array together with groups.",
            argument="designs",
            got=designs.shape,
            wanted="a list of arrays, or groups",
        )
    if (
        hasattr(designs, "to_numpy")
        or not hasattr(designs, "__len__")
        or isinstance(designs, str | bytes | dict)
    ):
        _checks.refuse_type(
            f"designs is a {type(designs).__name__}; give a list with one (n_i, p) array for each node, or a "
            "stacked (N, p) array together with groups.",
            argument="designs",
            got=type(designs).__name__,
            wanted="a list of arrays, or groups",
        )
    if len(designs) == 0:
        _checks.refuse(
            "designs is empty; give one (n_i, p) array for each node.",
            argument="designs",
            got="no nodes",
            wanted="at least one node",
        )
    blocks: list[Any] = []
    for i, design in enumerate(designs):
        columns = blocks[0].shape[1] if blocks else None
        blocks.append(_matrix(f"designs[{i}]", design, columns))
    return blocks


def _stacked(name: str, values: Any, counts: IntArray) -> FloatArray:
    """One number for each sample, from a vector or a sequence of vectors, in the order of the nodes."""
    if _is_flat(values):
        return _checks.as_vector(name, values, length=int(counts.sum()), of="sample")
    if not hasattr(values, "__len__") or len(values) != len(counts):
        got = len(values) if hasattr(values, "__len__") else type(values).__name__
        _checks.refuse(
            f"{name} has {got} entries and designs has {len(counts)}; give one vector for each node, or one "
            f"flat vector with {int(counts.sum())} entries.",
            argument=name,
            got=got,
            wanted=f"{len(counts)} vectors",
        )
    vectors = [
        _checks.as_vector(f"{name}[{i}]", value, length=int(counts[i]), of=f"row of designs[{i}]")
        for i, value in enumerate(values)
    ]
    return read_only(np.concatenate(vectors))
