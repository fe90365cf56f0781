"""Radial penalties in the compiled core, and the pass over pairs that splits a concave one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks, _core
from fusionopt.clusters import equal_rows
from fusionopt.penalties import L2Norm, Mcp, Penalty, Scad, SmoothedScad, SquaredL2
from fusionopt.problem import FusionProblem

FloatArray = NDArray[np.float64]

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
    """The gradient of sum w h(||x_i - x_j||), where g(t; lam) = lam t - h(t) with h convex and smooth.

        b_i = sum_j w_ij h'(t_ij) (x_i - x_j) / t_ij

    Parameters
    ----------
    problem : FusionProblem
        Its penalty is `Scad` or `Mcp`.
    x : float64 (n_nodes, n_features)

    Returns
    -------
    b : float64 (n_nodes, n_features)
        Sums to zero over each component.
    penalty : float
        sum w g(||x_i - x_j||; lam).

    Notes
    -----
    O(n_edges n_features), on a complete graph O(K^2 n_features) for K distinct rows; no array of pairs is built.
    """
    graph, native = problem.graph, native_penalty(problem.penalty)
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
    labels = equal_rows(base)
    _, first = np.unique(labels, return_index=True)
    r = np.ones(problem.n_nodes) if graph.node_weights is None else graph.node_weights
    masses = np.asarray(np.bincount(labels, r), dtype=np.float64)
    b, value = _core.tilt_complete(native, lam, base[first], masses)
    return graph.weight * unit * r[:, None] * b[labels], graph.weight * value * unit * unit
