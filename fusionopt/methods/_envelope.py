"""Where the differences of a global minimiser lie, and the chord of a concave penalty over that ball.

The convex envelope of Scad and Mcp over all of R^d is zero: they are bounded. On a ball ||u|| <= R it is the chord

    (g(R; lam) / R) ||u||,

an l2 penalty. Where some global minimiser has no difference longer than R, the l2 problem with that smaller
lam bounds F from below, and its certified dual value is a rigorous number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fusionopt.graph import Graph
from fusionopt.losses import SquaredDistance
from fusionopt.losses.base import EPS, NodeLoss
from fusionopt.penalties.base import RadialPenalty, row_norms

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_BLOCK = 1024
"""Nodes whose distances are formed at once."""


def difference_radii(loss: NodeLoss, graph: Graph, own: FloatArray, excess: float) -> FloatArray:
    """R_e such that some global minimiser has ||x_i - x_j|| <= R_e on every edge; inf where none is known.

    Parameters
    ----------
    loss : NodeLoss
    graph : Graph
    own : float64 (n_nodes, n_features)
        argmin f_i of each node.
    excess : float >= 0
        F(x) - sum_i min f_i at some x.

    Returns
    -------
    float64 (n_edges,), or () on a complete graph: one number for all its pairs

    Notes
    -----
    Level set: sum_i f_i(x_i) - min f_i <= excess at every minimiser. With mu_i the modulus of f_i and
    r_i = ||x_i - own_i|| that gives mu_i r_i^2 / 2 + mu_j r_j^2 / 2 <= excess, and by Cauchy-Schwarz
    r_i + r_j <= sqrt(2 excess (1 / mu_i + 1 / mu_j)).
    Hull, for squared distances: projecting every row on the convex hull of its component's targets raises neither a
    loss nor the length of a difference, so some minimiser lies there (with missing cells: in the box of the observed
    ones), and the projection of a minimiser is one, so both bounds hold at once.
    """
    with np.errstate(divide="ignore"):
        softness = 1 / loss.strong_convexity()
    labels = graph.component_labels
    cap = (
        _hull_widths(loss, labels) if isinstance(loss, SquaredDistance) else np.full(labels.max() + 1, np.inf)
    )
    if not graph.is_complete:
        i, j = graph.edges.T
        level = row_norms(own[i] - own[j]) + np.sqrt(2 * excess * (softness[i] + softness[j]))
        return np.asarray(np.minimum(level, cap[labels[i]]) * (1 + 16 * EPS))
    joined = np.flatnonzero(labels == labels[np.argmax(np.bincount(labels)[labels])])
    radius = 0.0
    for first in range(0, len(joined), _BLOCK):
        rows = joined[first : first + _BLOCK]
        for second in range(first, len(joined), _BLOCK):
            columns = joined[second : second + _BLOCK]
            level = cdist(own[rows], own[columns])
            level += np.sqrt(2 * excess * (softness[rows][:, None] + softness[columns]))
            radius = max(radius, float(level.max()))
    return np.asarray(min(radius, float(cap[labels[joined[0]]])) * (1 + 16 * EPS))


def _hull_widths(loss: SquaredDistance, labels: IntArray) -> FloatArray:
    """An upper bound of the diameter of the hull (with missing cells: box) of each component's targets, (K,)."""
    # A node without weight lies in the hull of the others: its target does not count.
    counts = np.isfinite(loss.targets) & (loss.sample_weight > 0)[:, None]
    shape = (int(labels.max()) + 1, loss.n_features)
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    np.minimum.at(low, labels, np.where(counts, loss.targets, np.inf))
    np.maximum.at(high, labels, np.where(counts, loss.targets, -np.inf))
    # A column that nobody observed can be the same everywhere.
    seen = high >= low
    widths = row_norms(np.where(seen, high - low, 0.0))
    if loss.has_missing:
        return widths
    centre = np.where(seen, low + (high - low) / 2, 0.0)
    away = np.where(counts[:, 0], row_norms(loss.targets - centre[labels]), 0.0)
    spheres = np.zeros(shape[0])
    np.maximum.at(spheres, labels, away)
    return np.asarray(np.minimum(widths, 2 * spheres))


def chord_lams(penalty: RadialPenalty, lam: float, radii: FloatArray) -> FloatArray:
    """g(R; lam) / R, rounded down: the lam of an l2 penalty below g on [0, R]; g'(0) at R = 0, 0 at R = inf.

    Parameters
    ----------
    penalty : RadialPenalty
        Concave in t.
    lam : float >= 0
    radii : float64 (...)

    Returns
    -------
    float64 (...)
    """
    known = np.isfinite(radii) & (radii > 0)
    slope = float(penalty.derivative(0.0, lam))
    finite = np.where(known, radii, 1.0)
    chords = np.where(known, penalty.value(finite, lam) / finite, np.where(radii == 0, slope, 0.0))
    return np.asarray(np.minimum(chords, slope) * (1 - 16 * EPS))
