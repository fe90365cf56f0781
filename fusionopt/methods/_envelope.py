"""Where the differences of a global minimiser lie, and the chord of a concave penalty over that ball.

The convex envelope of Scad and Mcp over all of R^d is zero: they are bounded. On a ball ||u|| <= R it is the chord

    (g(R; lam) / R) ||u||,

an l2 penalty. Where some global minimiser has no difference longer than R, the l2 problem with that smaller lam
bounds F from below, and its certified dual value is a rigorous number.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fusionopt.graph import Graph
from fusionopt.losses import SquaredDistance
from fusionopt.losses.base import EPS, QuadraticNodeLoss
from fusionopt.penalties.base import RadialPenalty

FloatArray = NDArray[np.float64]

_BLOCK = 1024
"""Nodes whose distances are formed at once."""


def difference_radius(loss: QuadraticNodeLoss, graph: Graph, own: FloatArray, excess: float) -> float:
    """R such that some global minimiser has ||x_i - x_j|| <= R on every edge; inf where none is known.

    Parameters
    ----------
    loss : QuadraticNodeLoss
    graph : Graph
    own : float64 (n_nodes, n_features)
        argmin f_i of each node.
    excess : float >= 0
        F(x) - sum_i min f_i at some x.

    Returns
    -------
    float

    Notes
    -----
    Squared distances: projecting every row on the hull of its component's targets raises neither a loss nor the length
    of a difference, so some minimiser lies in it, and R is the largest distance of two targets of one component.
    Otherwise sum_i f_i(x_i) - min f_i <= excess at every minimiser. With mu_i the smallest eigenvalue of H_i and
    r_i = ||x_i - own_i|| that gives mu_i r_i^2 / 2 + mu_j r_j^2 / 2 <= excess, and by Cauchy-Schwarz
    r_i + r_j <= sqrt(2 excess (1 / mu_i + 1 / mu_j)). O(n_nodes^2 n_features) at most.
    """
    hull = isinstance(loss, SquaredDistance)
    hessians = loss.hessians()
    mu = hessians if hessians.ndim == 1 else np.linalg.eigvalsh(hessians)[:, 0]
    with np.errstate(divide="ignore", over="ignore"):
        softness = np.where(mu > 0, 1 / np.maximum(mu, 0.0), np.inf)
    if hull:
        # A node without weight lies in the hull of the others, and has no target of its own.
        placed = np.flatnonzero(mu > 0)
        softness = np.zeros_like(mu)
    elif not np.isfinite(softness).all():
        return math.inf
    else:
        placed = np.arange(len(own))
        # The eigenvalues carry the rounding of their matrix.
        largest = hessians if hessians.ndim == 1 else np.linalg.norm(hessians, axis=(1, 2))
        safe = mu - 8 * loss.n_features * EPS * largest
        if not (safe > 0).all():
            return math.inf
        softness = 1 / safe
    radius = 0.0
    if not hull and not graph.is_complete:
        i, j = graph.edges.T
        lengths = np.linalg.norm(own[i] - own[j], axis=1)
        lengths += np.sqrt(2 * excess * (softness[i] + softness[j]))
        radius = float(lengths.max(initial=0.0))
    else:
        labels = graph.component_labels
        for first in range(0, len(placed), _BLOCK):
            rows = placed[first : first + _BLOCK]
            for second in range(first, len(placed), _BLOCK):
                columns = placed[second : second + _BLOCK]
                reach = cdist(own[rows], own[columns])
                reach += np.sqrt(2 * excess * (softness[rows][:, None] + softness[columns]))
                joined = labels[rows][:, None] == labels[columns]
                radius = max(radius, float(reach[joined].max(initial=0.0)))
    return radius * (1 + 16 * EPS)


def chord_lam(penalty: RadialPenalty, lam: float, radius: float) -> float:
    """g(R; lam) / R, rounded down: the lam of an l2 penalty below g on [0, R]. lam itself at R = 0, 0 at R = inf."""
    if not math.isfinite(radius):
        return 0.0
    if radius == 0:
        return lam
    return min(lam, float(penalty.value(radius, lam)) / radius) * (1 - 16 * EPS)
