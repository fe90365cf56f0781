"""Radial penalties in the compiled core, and the pass over pairs that splits a concave one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks, _core
from fusionopt.clusters import equal_rows
from fusionopt.penalties import L2Norm, Mcp, Penalty, Scad, SmoothedScad, SquaredL2
from fusionopt.penalties.base import RadialPenalty, row_norms
from fusionopt.problem import FusionProblem

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_BLOCK = 128
"""Rows and columns of pairs that are formed at once."""

_KINDS: dict[type[Penalty], _core.PenaltyKind] = {
    L2Norm: _core.PenaltyKind.L2Norm,
    SquaredL2: _core.PenaltyKind.SquaredL2,
    Scad: _core.PenaltyKind.Scad,
    SmoothedScad: _core.PenaltyKind.SmoothedScad,
    Mcp: _core.PenaltyKind.Mcp,
}


def native_penalty(penalty: Penalty) -> _core.RadialPenalty:
    """The compiled twin of a penalty: value, derivative and prox of arrays, without checks.

    Parameters
    ----------
    penalty : L2Norm, SquaredL2, Scad, SmoothedScad or Mcp

    Returns
    -------
    _core.RadialPenalty

    Raises
    ------
    InvalidTypeError
        Another penalty.
    """
    kind = _KINDS.get(type(penalty))
    if kind is None:
        _checks.refuse_type(
            f"penalty is {penalty!r}, which has no compiled twin; give one of "
            f"{', '.join(known.__name__ for known in _KINDS)}.",
            argument="penalty",
            got=type(penalty).__name__,
            wanted="a penalty of fusionopt that depends on the length of a difference only",
        )
    shape = penalty.a if isinstance(penalty, Scad | SmoothedScad) else 0.0
    if isinstance(penalty, Mcp):
        shape = penalty.gamma
    return _core.RadialPenalty(kind, shape, penalty.xi if isinstance(penalty, SmoothedScad) else 0.0)


def tilt(problem: FusionProblem, x: FloatArray) -> tuple[FloatArray, float]:
    """The gradient of sum w h(||x_i - x_j||), where g(t; lam) = g'(0) t - h(t) with h convex, h'(0) = 0.

        b_i = sum_j w_ij h'(t_ij) (x_i - x_j) / t_ij

    Parameters
    ----------
    problem : FusionProblem
        Its penalty is concave in t.
    x : float64 (n_nodes, n_features)

    Returns
    -------
    b : float64 (n_nodes, n_features)
        Sums to zero over each component.
    penalty : float
        sum w g(||x_i - x_j||; lam).

    Notes
    -----
    O(n_edges n_features), on a complete graph O(K^2 n_features) for K distinct rows; compiled for `Scad` and `Mcp`.
    Pairs of a complete graph are visited in blocks.
    """
    graph, penalty = problem.graph, problem.penalty
    assert isinstance(penalty, RadialPenalty)
    if isinstance(penalty, Scad | Mcp):
        return _native_tilt(problem, penalty, x)
    slope = float(penalty.derivative(0.0, problem.lam))

    def forces(u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """h'(t) u / t and g(t) of differences (..., d)."""
        t = row_norms(u)
        apart = np.where(t > 0, t, 1.0)
        factor = np.where(t > 0, (slope - penalty.derivative(t, problem.lam)) / apart, 0.0)
        return factor[..., None] * u, penalty.value(t, problem.lam)

    b, value = np.zeros_like(x), 0.0
    if not graph.is_complete:
        for first in range(0, graph.n_edges, _BLOCK**2):
            (i, j), w = graph.edges[first : first + _BLOCK**2].T, graph.weights[first : first + _BLOCK**2]
            pulls, values = forces(x[i] - x[j])
            np.add.at(b, i, w[:, None] * pulls)
            np.subtract.at(b, j, w[:, None] * pulls)
            value += float(w @ values)
        return b, value
    centres, masses, labels, r = _distinct(problem, x)
    pulled = np.zeros_like(centres)
    for first in range(0, len(centres), _BLOCK):
        rows = slice(first, first + _BLOCK)
        for second in range(0, len(centres), _BLOCK):
            columns = slice(second, second + _BLOCK)
            pulls, values = forces(centres[rows, None, :] - centres[None, columns, :])
            pulled[rows] += np.einsum("j,ijk->ik", masses[columns], pulls)
            value += 0.5 * float(masses[rows] @ values @ masses[columns])
    return graph.weight * r[:, None] * pulled[labels], graph.weight * value


def _native_tilt(problem: FusionProblem, penalty: Scad | Mcp, x: FloatArray) -> tuple[FloatArray, float]:
    graph, native = problem.graph, native_penalty(penalty)
    base = x - x[0]
    largest = float(np.abs(base).max())
    # Both penalties are homogeneous, g(c t; c lam) = c^2 g(t; lam): in this unit no square over- or underflows.
    unit = math.ldexp(1.0, math.frexp(largest)[1]) if largest > 0 else 1.0
    base, lam = base / unit, problem.lam / unit
    if not graph.is_complete:
        ends = graph.edges.astype(np.int32)
        tail, head = np.ascontiguousarray(ends[:, 0]), np.ascontiguousarray(ends[:, 1])
        b, value = _core.tilt_edges(native, lam, tail, head, graph.weights, base)
        return b * unit, value * unit * unit
    centres, masses, labels, r = _distinct(problem, base)
    b, value = _core.tilt_complete(native, lam, centres, masses)
    return graph.weight * unit * r[:, None] * b[labels], graph.weight * value * unit * unit


def _distinct(problem: FusionProblem, x: FloatArray) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
    """Distinct rows on a complete graph, the node weights of each together, each node's row, the node weights."""
    labels = equal_rows(x)
    _, first = np.unique(labels, return_index=True)
    weights = problem.graph.node_weights
    r = np.ones(problem.n_nodes) if weights is None else weights
    return x[first], np.asarray(np.bincount(labels, r), dtype=np.float64), labels, r
