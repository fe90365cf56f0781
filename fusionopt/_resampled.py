"""The same problem on part of its data: cells or samples left out, nodes or samples drawn again."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.graph import Graph
from fusionopt.losses import SquaredDistance
from fusionopt.losses._sampled import SampledLoss
from fusionopt.problem import FusionProblem

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Replicate:
    """A bootstrap replicate.

    Attributes
    ----------
    problem : FusionProblem
    nodes : int64 (k,)
        Nodes of the original problem that take part, in its order.
    """

    problem: FusionProblem
    nodes: IntArray


def left_out(loss: SampledLoss, out: BoolArray) -> SampledLoss:
    """The mean over the samples that are not left out: their weights grow by n_i over what is left."""
    offsets, weight = loss.offsets, loss.sample_weight
    kept = np.where(out, 0.0, weight)
    before = np.add.reduceat(weight, offsets[:-1])
    after = np.add.reduceat(kept, offsets[:-1])
    scale = np.divide(before, after, out=np.zeros_like(after), where=after > 0)
    return loss.with_sample_weight(kept * np.repeat(scale, np.diff(offsets)))


def folds_of_samples(loss: SampledLoss, n_folds: int, rng: np.random.Generator) -> list[BoolArray]:
    """For each fold the samples left out, (N,): the samples of every node are dealt out evenly.

    A node of one sample never leaves it out: nothing would be left to fit.
    """
    offsets = loss.offsets
    sizes = np.diff(offsets)
    fold = np.empty(offsets[-1], dtype=np.int64)
    for first, size in zip(offsets[:-1], sizes, strict=True):
        # The first fold rotates from node to node, so that small nodes do not all leave out the same one.
        fold[first : first + size] = (rng.permutation(size) + rng.integers(n_folds)) % n_folds
    alone = np.repeat(sizes == 1, sizes)
    return [(fold == k) & ~alone for k in range(n_folds)]


def sample_part(loss: SampledLoss, fraction: float, rng: np.random.Generator) -> BoolArray:
    """Samples left out, (N,): a share of every node's, at least one where it has two."""
    offsets = loss.offsets
    out = np.zeros(offsets[-1], dtype=np.bool_)
    for first, last in pairwise(offsets):
        size = int(last - first)
        count = min(max(round(fraction * size), 1), size - 1)
        out[first + rng.permutation(size)[:count]] = True
    return out


def cell_part(observed: BoolArray, fraction: float, rng: np.random.Generator) -> BoolArray:
    """Cells left out: a share of the observed ones, but never the last of a row or a column."""
    out = np.zeros_like(observed)
    rows, columns = observed.sum(axis=1), observed.sum(axis=0)
    cells = np.argwhere(observed)
    wanted = max(1, round(fraction * len(cells)))
    for i, j in rng.permutation(cells).tolist():
        if rows[i] > 1 and columns[j] > 1:
            out[i, j] = True
            rows[i] -= 1
            columns[j] -= 1
            wanted -= 1
            if wanted == 0:
                break
    return out


def bootstrap(problem: FusionProblem, rng: np.random.Generator) -> Replicate:
    """Draw again with replacement: the samples of each node where there are several, else the nodes.

    Node i drawn r_i times is r_i copies of it: f_i counts r_i times, an edge r_i r_j times. Copies of one node are
    equal at the optimum, so they are one node here; what was never drawn leaves the problem.
    """
    loss, graph = problem.loss, problem.graph
    if isinstance(loss, SampledLoss):
        offsets = loss.offsets
        counts = np.concatenate(
            [rng.multinomial(size, np.full(size, 1.0 / size)) for size in np.diff(offsets)]
        )
        drawn = loss.with_sample_weight(loss.sample_weight * counts)
        return Replicate(FusionProblem(drawn, graph, problem.penalty), np.arange(loss.n_nodes))
    _checks.check_instance("problem.loss", loss, SquaredDistance, "or a loss over several samples a node")
    assert isinstance(loss, SquaredDistance)
    n = loss.n_nodes
    r = rng.multinomial(n, np.full(n, 1.0 / n)).astype(np.float64)
    weight = loss.sample_weight * r
    nodes = np.flatnonzero(weight > 0)
    if graph.is_complete:
        own = np.ones(n) if graph.node_weights is None else graph.node_weights
        part = Graph.complete(len(nodes), graph.weight, (own * r)[nodes])
    else:
        place = np.full(n, -1, dtype=np.int64)
        place[nodes] = np.arange(len(nodes))
        i, j = graph.edges.T
        keep = (place[i] >= 0) & (place[j] >= 0)
        ends = np.stack([place[i[keep]], place[j[keep]]], axis=1)
        part = Graph.from_edges(len(nodes), ends, graph.weights[keep] * r[i[keep]] * r[j[keep]])
    targets = SquaredDistance(loss.targets[nodes], sample_weight=weight[nodes])
    return Replicate(FusionProblem(targets, part, problem.penalty), nodes)
