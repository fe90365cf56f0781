"""Whether a problem has a minimiser at all, before any solver is asked for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from fusionopt import _checks
from fusionopt.losses import (
    CallableLoss,
    Huber,
    LeastSquares,
    Logistic,
    NodeLoss,
    Poisson,
    Softmax,
    SquaredDistance,
    SquaredHinge,
)
from fusionopt.losses._sampled import SampledLoss
from fusionopt.losses.pooled import null_projectors
from fusionopt.penalties import SquaredL2
from fusionopt.problem import FusionProblem

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_REACH = 1e6
"""Bound on a direction in the linear program, where the largest entry of every row and column is about 1."""
_GRAM_NUMBERS = 2e7
"""Uniqueness is left open where the Hessians would hold more numbers than this."""


@dataclass(frozen=True)
class Existence:
    """What is known of the minimisers of a problem.

    Attributes
    ----------
    attained : bool or None
        There is a minimiser; None where nothing tells (a `CallableLoss` without strong convexity).
    unique : bool or None
        There is exactly one; None where that was not decided.
    reason : str
        Why, in one sentence.
    """

    attained: bool | None
    unique: bool | None
    reason: str


def existence(problem: FusionProblem) -> Existence:
    """Tell whether F has a minimiser, and whether it is the only one.

    A minimiser exists if every common direction d of a component with sum_i f_i^inf(d) <= 0 is one along which
    sum_i f_i is constant (f^inf: recession function); at lam = 0, of each node.

    Parameters
    ----------
    problem : FusionProblem
        With a penalty that is not convex the answer is about points that fuse: such a penalty is bounded, and does not
        hold a node whose own loss has no minimiser.

    Returns
    -------
    Existence

    Raises
    ------
    InvalidTypeError
        Not a problem.

    Notes
    -----
    With a ridge on every coordinate nothing is computed. Without one, `Logistic`, `Softmax` and `Poisson` take one
    linear program for each component (each node at lam = 0). The losses made of squares (`LeastSquares`,
    `SquaredDistance`, `Huber`, `HuberRegression`, `SquaredHinge`) always attain their minimum.

    References
    ----------
    Rockafellar, Convex Analysis, theorem 27.1; Albert and Anderson (1984) for logistic regression.

    Examples
    --------
    >>> from fusionopt import Logistic
    >>> existence(FusionProblem(Logistic([[[1.0], [2.0]]], [[-1, 1]]), lam=1.0)).attained
    True
    >>> existence(FusionProblem(Logistic([[[-1.0], [2.0]]], [[-1, 1]]), lam=1.0)).reason
    'a direction classifies every sample of component 0 rightly or leaves it alone: the infimum is not attained'
    """
    _checks.check_instance("problem", problem, FusionProblem, "built by FusionProblem(loss, graph, lam=...)")
    loss = problem.loss
    coupled = problem.lam > 0
    parts = problem.graph.component_labels if coupled else np.arange(loss.n_nodes, dtype=np.int64)
    what = "component" if coupled else "node"
    if isinstance(loss, CallableLoss):
        return _of_callable(loss, parts)
    if (loss.strong_convexity() > 0).all():
        return Existence(True, True, "every node's loss is strongly convex")
    if isinstance(loss, Logistic | Softmax | Poisson):
        for part in range(int(parts.max()) + 1):
            if _escapes(loss, np.flatnonzero(parts == part)):
                return Existence(False, None, _WORDS[type(loss)].format(f"{what} {part}"))
    elif not isinstance(loss, SampledLoss | SquaredDistance | Huber):
        return Existence(None, None, f"nothing is known of the growth of {type(loss).__name__}")
    return _attained(problem, parts)


_WORDS: dict[type[NodeLoss], str] = {
    Logistic: "a direction classifies every sample of {} rightly or leaves it alone: the infimum is not attained",
    Softmax: "a direction raises the right class of every sample of {} or leaves it alone: the infimum is not attained",
    Poisson: "a direction lowers means of {} whose counts are zero and leaves the others alone: the infimum is not "
    "attained",
}


def _of_callable(loss: CallableLoss, parts: IntArray) -> Existence:
    strong = loss.strong_convexity() > 0
    if strong.all():
        return Existence(True, True, "every node's loss is strongly convex, as declared")
    held = np.bincount(parts, strong, minlength=int(parts.max()) + 1) > 0
    if held.all():
        return Existence(True, None, "a node of each component is strongly convex, as declared")
    return Existence(None, None, "CallableLoss without strong_convexity: nothing is known of its growth")


def _attained(problem: FusionProblem, parts: IntArray) -> Existence:
    """The verdict on uniqueness, where a minimiser exists."""
    loss = problem.loss
    if isinstance(loss, Huber | SquaredHinge) or (
        isinstance(loss, SampledLoss) and not isinstance(loss, LeastSquares | Logistic | Softmax | Poisson)
    ):
        # Flat pieces: far from its data, or with all margins met, such a loss need not be strictly convex.
        return Existence(True, None, "the loss is made of squares and lines and is bounded below")
    grams = _grams(loss)
    if grams is None:
        return Existence(True, None, "no direction lowers the loss for ever")
    d = loss.n_features
    if null_projectors(grams, d) is None:
        return Existence(
            True, True, "no direction lowers the loss for ever, and every node's loss is strictly convex"
        )
    pooled = np.zeros((int(parts.max()) + 1, *grams.shape[1:]))
    np.add.at(pooled, parts, grams)
    if null_projectors(pooled, d) is not None:
        return Existence(True, False, "the losses of a component are constant along a direction")
    # What no node feels alone the others may hold: surely so where the penalty is strictly convex along edges.
    alone = problem.lam > 0 and isinstance(problem.penalty, SquaredL2)
    return Existence(True, True if alone else None, "no direction lowers the loss for ever")


def _grams(loss: NodeLoss) -> FloatArray | None:
    """Matrices with the null spaces of the Hessians; None where they would be too large."""
    if not isinstance(loss, SquaredDistance) and loss.n_nodes * loss.n_features**2 > _GRAM_NUMBERS:
        return None
    majorant = loss.majorant()
    return loss.hessians_at(np.zeros((loss.n_nodes, loss.n_features))) if majorant is None else majorant


def _escapes(loss: Logistic | Softmax | Poisson, nodes: IntArray) -> bool:
    """Whether a common direction of these nodes lowers their summed loss for ever."""
    rows = _samples(loss, nodes)
    if len(rows) == 0:
        return False
    design: Any = loss.design.rows[rows]
    if loss.ridge > 0:
        # Left only with a free bias: the one column without ridge, and one direction up to its sign.
        assert isinstance(loss, Logistic)
        return bool(np.ptp(loss.labels[rows]) == 0)
    if isinstance(loss, Logistic):
        return _improves(_scaled_rows(design, loss.labels[rows]), None)
    if isinstance(loss, Poisson):
        silent = loss.counts[rows] == 0
        return bool(silent.any()) and _improves(
            _scaled_rows(design[silent], -np.ones(silent.sum())), design[~silent]
        )
    return _improves(_against_others(design, loss.classes[rows], loss.n_classes), None)


def _samples(loss: SampledLoss, nodes: IntArray) -> IntArray:
    """Samples of these nodes that weigh something."""
    member = np.zeros(loss.n_nodes, dtype=bool)
    member[nodes] = True
    return np.flatnonzero(member[loss.design.nodes] & (loss.sample_weight > 0))


def _scaled_rows(design: Any, signs: FloatArray) -> Any:
    return sparse.csr_array(sparse.diags_array(signs) @ sparse.csr_array(design))


def _against_others(design: Any, classes: IntArray, n_classes: int) -> Any:
    """Rows z'(D_y - D_c) for every sample and every c other than y, D (p, C) in C order."""
    n = len(classes)
    blocks = []
    for c in range(n_classes):
        others = np.flatnonzero(classes != c)
        difference = sparse.coo_array(
            (
                np.concatenate([np.ones(len(others)), -np.ones(len(others))]),
                (
                    np.tile(np.arange(len(others)), 2),
                    np.concatenate([classes[others], np.full(len(others), c)]),
                ),
            ),
            shape=(len(others), n_classes),
        ).tocsr()
        rows = sparse.csr_array(design)[others]
        # Row by row the Kronecker product z_s (x) (e_y - e_c).
        blocks.append(_row_kronecker(rows, difference, n_classes))
    assert n > 0
    return sparse.vstack(blocks, format="csr")


def _row_kronecker(left: Any, right: Any, width: int) -> Any:
    left, right = left.tocoo(), right.tocsr()
    per_row = np.diff(right.indptr)[left.coords[0]]
    rows = np.repeat(left.coords[0], per_row)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    place = np.repeat(right.indptr[left.coords[0]], per_row) + within
    columns = np.repeat(left.coords[1].astype(np.int64) * width, per_row) + right.indices[place]
    values = np.repeat(left.data, per_row) * right.data[place]
    shape = (left.shape[0], left.shape[1] * width)
    return sparse.csr_array((values, (rows, columns)), shape=shape)


def _improves(rows: Any, fixed: Any | None) -> bool:
    """Whether some d has rows d >= 0, not all zero, and fixed d = 0.

    One linear program: maximise the sum of rows d over 0 <= rows d <= 1. A direction that does so can be stretched
    until its largest entry is 1, so the optimum is 0 or at least 1.
    """
    rows = sparse.csr_array(rows)
    held = sparse.csr_array((0, rows.shape[1])) if fixed is None else sparse.csr_array(fixed)
    rows, held = _unit_rows(rows), _unit_rows(held)
    top = np.maximum(
        abs(rows).max(axis=0).toarray(), abs(held).max(axis=0).toarray() if held.shape[0] else 0.0
    ).ravel()
    columns = sparse.diags_array(1 / np.where(top > 0, top, 1.0))
    rows, held = _unit_rows(rows @ columns), _unit_rows(held @ columns)
    gain = np.asarray(rows.sum(axis=0)).ravel()
    told = linprog(
        -gain,
        A_ub=sparse.vstack([rows, -rows], format="csr"),
        b_ub=np.concatenate([np.ones(rows.shape[0]), np.zeros(rows.shape[0])]),
        A_eq=held if held.shape[0] else None,
        b_eq=np.zeros(held.shape[0]) if held.shape[0] else None,
        bounds=(-_REACH, _REACH),
        method="highs",
    )
    return bool(told.status == 0 and -told.fun > 0.5)


def _unit_rows(matrix: Any) -> Any:
    if matrix.shape[0] == 0:
        return matrix
    top = abs(matrix).max(axis=1).toarray().ravel()
    return sparse.csr_array(sparse.diags_array(1 / np.where(top > 0, top, 1.0)) @ matrix)
