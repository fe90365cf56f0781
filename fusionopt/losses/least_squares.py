"""One linear regression for each node."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.losses.base import EPS, QuadraticNodeLoss, read_only

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class LeastSquares(QuadraticNodeLoss):
    """f_i(x) = 1/(2 n_i) sum_s w_s (z_s'x - y_s)^2 + ridge/2 ||x||_2^2.

    s runs over the n_i samples (z_s, y_s) of node i.

    Parameters
    ----------
    designs : sequence of array-likes (n_i, p), or array-like (N, p) with `groups`
        Row s of entry i is a z_s' of node i. n_i >= 1; n_i < p is allowed. Copied.
    targets : sequence of array-likes (n_i,), or array-like (N,)
        The y_s, in the same order as the rows of the designs. Copied.
    ridge : float >= 0
    sample_weight : like `targets`, >= 0, or None
        The w_s, not renormalised; 1 if None. A node may weigh nothing, the whole problem may not.
    groups : array-like (N,) or None
        Node of each row of a stacked array; node i is the i-th of the sorted distinct values (`group_names`).

    Raises
    ------
    InvalidArgumentError
        Shapes that do not match, a node without samples, NaN or Inf, a negative weight or ridge, all weights
        zero.
    InvalidTypeError
        Complex numbers, text or other objects.

    Examples
    --------
    >>> loss = LeastSquares([[[1.0, 0.0], [1.0, 1.0]], [[1.0, 2.0]]], [[1.0, 3.0], [5.0]])
    >>> loss.value([[1.0, 2.0], [1.0, 2.0]])
    0.0
    """

    def __init__(
        self,
        designs: Sequence[ArrayLike] | ArrayLike,
        targets: Sequence[ArrayLike] | ArrayLike,
        ridge: float = 0.0,
        sample_weight: Sequence[ArrayLike] | ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> None:
        self._ridge = _checks.as_nonnegative_scalar("ridge", ridge)
        self._group_names: NDArray[Any] | None = None
        if groups is None:
            blocks = _blocks(designs)
            counts = np.array([len(block) for block in blocks], dtype=np.int64)
            self._designs = read_only(np.concatenate(blocks))
            self._targets = _stacked("targets", targets, counts)
            weights = None if sample_weight is None else _stacked("sample_weight", sample_weight, counts)
        else:
            stacked = _checks.as_matrix("designs", designs)
            names = _checks.as_labels("groups", groups, len(stacked))
            self._group_names, nodes = np.unique(names, return_inverse=True)
            self._group_names.flags.writeable = False
            order = np.argsort(nodes, kind="stable")
            counts = np.bincount(nodes)
            self._designs = read_only(stacked[order])
            rows = len(stacked)
            self._targets = read_only(
                _checks.as_vector("targets", targets, length=rows, of="row of designs")[order]
            )
            weights = (
                None
                if sample_weight is None
                else _checks.as_vector("sample_weight", sample_weight, length=rows, of="row of designs")[
                    order
                ]
            )
        total = len(self._designs)
        self._weights = (
            read_only(np.ones(total))
            if weights is None
            else _checks.as_node_weights("sample_weight", weights, total, of="sample")
        )
        self._counts = counts
        self._offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        self._nodes = np.repeat(np.arange(len(counts)), counts)
        for array in (self._counts, self._offsets, self._nodes):
            array.flags.writeable = False
        self._seal()

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self._counts)

    @property
    def n_features(self) -> int:
        """Number of columns p of the designs."""
        return int(self._designs.shape[1])

    @property
    def designs(self) -> FloatArray:
        """All samples, (N, p), the rows of one node together; read-only."""
        return self._designs

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
        return self._offsets

    @property
    def n_samples(self) -> IntArray:
        """n_i, (n_nodes,); read-only."""
        return self._counts

    @property
    def ridge(self) -> float:
        """Ridge weight."""
        return self._ridge

    @property
    def group_names(self) -> NDArray[Any] | None:
        """Value of `groups` for each node, or None when the designs came node by node; read-only."""
        return self._group_names

    def _residuals(self, x: FloatArray) -> FloatArray:
        residuals: FloatArray = np.einsum("sp,sp->s", self._designs, x[self._nodes]) - self._targets
        return residuals

    def _node_means(self, samples: FloatArray) -> FloatArray:
        """(1/n_i) sum over the samples of node i."""
        sums = np.add.reduceat(samples, self._offsets[:-1], axis=0)
        means: FloatArray = sums / (self._counts if samples.ndim == 1 else self._counts[:, None])
        return means

    def _values(self, x: FloatArray) -> FloatArray:
        fit = self._node_means(self._weights * self._residuals(x) ** 2)
        values: FloatArray = 0.5 * (fit + self._ridge * np.einsum("ij,ij->i", x, x))
        return values

    def _gradient(self, x: FloatArray) -> FloatArray:
        pull = self._weights * self._residuals(x)
        return self._node_means(self._designs * pull[:, None]) + self._ridge * x

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        sizes = np.einsum("sp,sp->s", np.abs(self._designs), np.abs(x)[self._nodes]) + np.abs(self._targets)
        terms = self._node_means(
            np.abs(self._designs) * (self._weights * sizes)[:, None]
        ) + self._ridge * np.abs(x)
        # Chain: p products and sums in a residual, n_i in the mean, and a few for weight, division, ridge and
        # x itself.
        chain = self.n_features + self._counts + 6
        bound: FloatArray = EPS * chain[:, None] * terms
        return bound

    @cached_property
    def _hessians(self) -> FloatArray:
        p = self.n_features
        hessians = np.empty((self.n_nodes, p, p))
        roots = self._designs * np.sqrt(self._weights)[:, None]
        for i in range(self.n_nodes):
            block = roots[self._offsets[i] : self._offsets[i + 1]]
            hessians[i] = block.T @ block / self._counts[i]
        hessians[:, np.arange(p), np.arange(p)] += self._ridge
        return read_only(hessians)

    def hessians(self) -> FloatArray:
        """(1/n_i) sum_s w_s z_s z_s' + ridge I, (n_nodes, p, p)."""
        return self._hessians

    def linear(self) -> FloatArray:
        """(1/n_i) sum_s w_s y_s z_s, (n_nodes, p)."""
        return read_only(self._node_means(self._designs * (self._weights * self._targets)[:, None]))

    def constants(self) -> FloatArray:
        """1/(2 n_i) sum_s w_s y_s^2, (n_nodes,)."""
        return read_only(0.5 * self._node_means(self._weights * self._targets**2))


def _is_flat(value: object) -> bool:
    """Whether the argument is one vector (numbers), not a sequence of vectors."""
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and value.dtype.kind != "O"
    if hasattr(value, "to_numpy"):
        return True
    return isinstance(value, Sequence) and len(value) > 0 and all(np.ndim(entry) == 0 for entry in value)


def _blocks(designs: Any) -> list[FloatArray]:
    """The designs of all nodes, checked, with equally many columns."""
    if isinstance(designs, np.ndarray) and designs.dtype.kind != "O" and designs.ndim != 3:
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
    blocks: list[FloatArray] = []
    for i, design in enumerate(designs):
        columns = blocks[0].shape[1] if blocks else None
        blocks.append(_checks.as_matrix(f"designs[{i}]", design, n_columns=columns))
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
