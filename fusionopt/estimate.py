"""What a solve will take, told before it starts: bytes from the arrays that are made, seconds from measured costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusionopt import _checks
from fusionopt.losses.squared_distance import SquaredDistance
from fusionopt.penalties import L2Norm
from fusionopt.settings import Settings

if TYPE_CHECKING:
    from fusionopt.problem import FusionProblem

STORAGE_FREE_FROM = 4000
"""Nodes of a complete graph from which passes that store no pair are faster than the stored sweep."""
_NEAREST = 2.0**20
"""Bytes below which the pair duals lie in the nearest caches."""
_SPREAD = 1e6
"""Widest ratio of node weights that the storage-free method takes."""

# Seconds of one core, measured where memory moves 50 GB/s: a pass over stored pairs or edges for each number and for
# each pair, a storage-free pass for each number of a pair, and how many passes a certified gap of 1e-6 takes.
_PAIR = (0.45e-9, 0.6e-9)
_EDGE = (6e-9, 25e-9)
_FREE = 2e-11
_PAIR_PASSES, _EDGE_PASSES, _FREE_PASSES = 60, 120, 50


@dataclass(frozen=True)
class Estimate:
    """What `FusionProblem.estimate` tells.

    Attributes
    ----------
    method : str
        What `solve` would run, in words.
    memory_bytes : float
        Most that the solve will hold beside the problem itself, the duals of the result included.
    limit_bytes : float
        What a request may take on this machine (its memory, or the control group's); inf where nothing tells.
    seconds : float
        Order of magnitude on one core for a relative gap of 1e-6: a factor of 3 either way is common, and problems
        close to a merger take longer still.
    """

    method: str
    memory_bytes: float
    limit_bytes: float
    seconds: float

    @property
    def fits(self) -> bool:
        """`solve` would not refuse it for its memory."""
        return self.memory_bytes <= self.limit_bytes


def pair_bytes(n_nodes: int, n_features: int) -> float:
    """Bytes of the stored pair duals of a complete graph while a partition is finished.

    The state and the one set aside, m (m + 24) / 2 pairs with padding, 16 bytes a number; a float32 state is half as
    large, but finishing, and gaps beyond its digits, work in float64.
    """
    return n_nodes * (n_nodes + 24) / 2 * n_features * 16.0


def edge_bytes(n_nodes: int, n_edges: int, n_features: int, n_threads: int) -> float:
    """Bytes of an edge list at work: state, the one set aside, weights, neighbour lists; per-thread parts; vectors."""
    numbers = 2 if n_threads == 1 else 2.25  # parts of an eighth of the edges at a time
    return n_edges * (8.0 * numbers * n_features + 128) + n_nodes * (8.0 * 26 * n_features + 40)


def pairs_need_no_storage(problem: FusionProblem) -> bool:
    """Whether the storage-free method takes a problem: every pair joined, w_ij = weight r_i r_j, H_i = m_i I, l2."""
    loss, graph = problem.loss, problem.graph
    if not (type(loss) is SquaredDistance and type(problem.penalty) is L2Norm and graph.is_complete):
        return False
    if graph.n_nodes < 2 or graph.weight == 0:
        return False
    curvature = loss.hessians()
    weights = [curvature] if graph.node_weights is None else [curvature, graph.node_weights]
    return curvature.ndim == 1 and all(w.min() > 0 and w.max() <= _SPREAD * w.min() for w in weights)


def default_dtype(problem: FusionProblem) -> str:
    """Type of the dual state where no settings are given.

    Sweeps of stored pairs wait for memory, and in float32 a state is half as large; the certificate is float64 from
    either. Small states, other losses and other graphs gain nothing; nodes of different weights may need the digits.
    """
    narrow = (
        problem.graph.is_complete
        and problem.n_nodes < STORAGE_FREE_FROM
        and isinstance(problem.penalty, L2Norm)
        and isinstance(problem.loss, SquaredDistance)
        and problem.graph.node_weights is None
        and not problem.loss.has_missing
        and bool((problem.loss.sample_weight == problem.loss.sample_weight[0]).all())
        and pair_bytes(problem.n_nodes, problem.n_features) > _NEAREST
    )
    return "float32" if narrow else Settings.dtype


def chooses_storage_free(problem: FusionProblem, settings: Settings) -> bool:
    """Whether `solve` takes it: it applies, and the pairs are many or do not fit. A given rho asks for ADMM."""
    if (
        problem.n_nodes < 2
        or getattr(settings, "rho", None) is not None
        or not pairs_need_no_storage(problem)
    ):
        return False
    stored = pair_bytes(problem.n_nodes, problem.n_features)
    return problem.n_nodes >= STORAGE_FREE_FROM or stored > _checks.memory_limit()


def estimate(problem: FusionProblem, settings: Settings) -> Estimate:
    """See `FusionProblem.estimate`."""
    m, d, graph = problem.n_nodes, problem.n_features, problem.graph
    limit = _checks.memory_limit()
    if graph.n_edges == 0 or problem.lam == 0:
        return Estimate("every node on its own, in closed form", 8.0 * 8 * m * d, limit, 1e-8 * m * d)
    if not graph.is_complete:
        n = graph.n_edges
        seconds = _EDGE_PASSES * n * (_EDGE[0] * d + _EDGE[1])
        return Estimate("ADMM on the edges", edge_bytes(m, n, d, settings.n_threads), limit, seconds)
    if chooses_storage_free(problem, settings):
        seconds = _FREE_PASSES * _FREE * float(m) ** 2 * (d + 1)
        return Estimate("storage-free Newton-CG on the complete graph", 8.0 * 60 * m * d, limit, seconds)
    seconds = _PAIR_PASSES * m * (m - 1) / 2 * (_PAIR[0] * d + _PAIR[1])
    return Estimate("ADMM on stored pairs", pair_bytes(m, d), limit, seconds)
