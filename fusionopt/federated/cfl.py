"""Clustered federated learning by recursive bipartition."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet, row_norms
from fusionopt.federated._system import FloatArray, IntArray, State, System
from fusionopt.recovery import bipartition


@dataclass
class CflState(State):
    """updates : (n_clients, dim), the last update of each client since its cluster was last split.

    known : (n_clients,), whether there is one; scale : the largest update norm so far.
    """

    updates: FloatArray
    known: NDArray[np.bool_]
    scale: float


@dataclass(frozen=True)
class Cfl(System):
    """FedAvg in each cluster; a cluster whose mean update vanishes while a client's does not is split in two.

    Split C when ||sum_{k in C} (n_k / n_C) D_k|| < eps_1 and max_{k in C} ||D_k|| >= eps_2, into the two sides
    with the smallest largest cosine across, D_k being client k's update (`recovery.bipartition`).

    Parameters
    ----------
    steps, rate
        As in `System`.
    eps_1, eps_2 : float > 0, or None
        None: shares 0.1 and 0.2 of the largest update norm that any client had so far, so the gates do not depend
        on units. Numbers are norms.
    min_size : int >= 2
        Clusters smaller than this stay whole.

    Notes
    -----
    Corrections to the published code: the split is by single linkage, which solves the printed criterion exactly
    (complete linkage does not); members are kept as client numbers at every level; norms are Euclidean; and
    inactive clients are not taken for zero updates: the mean is over active clients, and a cluster is judged only
    when every member has sent an update since the last split, on these cached updates.

    References
    ----------
    Sattler, Mueller and Samek, Clustered Federated Learning, algorithm 1.

    Examples
    --------
    >>> Cfl().min_size
    2
    """

    state_type = CflState

    eps_1: float | None = None
    eps_2: float | None = None
    min_size: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("eps_1", "eps_2"):
            if getattr(self, name) is not None:
                _checks.as_positive_scalar(name, getattr(self, name))
        _checks.as_count("min_size", self.min_size, minimum=2)

    def start(self, fleet: Fleet, rng: np.random.Generator) -> CflState:
        """One cluster with a random model."""
        m = fleet.n_clients
        return CflState(
            models=np.repeat(fleet.first_models(rng, 1), m, axis=0),
            labels=np.zeros(m, dtype=np.int64),
            updates=np.zeros((m, fleet.dim)),
            known=np.zeros(m, dtype=np.bool_),
            scale=0.0,
        )

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """FedAvg in each cluster, then the splits."""
        assert isinstance(state, CflState)
        before = state.models[active]
        state.updates[active] = fleet.descend(active, before, self.work, rng) - before
        state.known[active] = True
        norms = row_norms(state.updates)
        state.scale = max(state.scale, float(norms[active].max()))
        for cluster in np.unique(state.labels):
            members = np.flatnonzero(state.labels == cluster)
            present = active[state.labels[active] == cluster]
            if len(present):
                state.models[members] += fleet.mean(state.updates[present], present, "samples")
            if self._ripe(state, fleet, members, norms):
                split(state, members)

    def _ripe(self, state: CflState, fleet: Fleet, members: IntArray, norms: FloatArray) -> bool:
        if len(members) < self.min_size or not state.known[members].all():
            return False
        low = 0.1 * state.scale if self.eps_1 is None else self.eps_1
        high = 0.2 * state.scale if self.eps_2 is None else self.eps_2
        mean = row_norms(fleet.mean(state.updates[members], members, "samples")[None])[0]
        largest = float(norms[members].max())
        return bool(mean < low and high <= largest < np.inf)  # never where a client has diverged


def split(state: CflState, members: IntArray) -> None:
    """Give one side of the best bipartition of `members` a new label; both sides await new updates."""
    right = members[bipartition(cosines(state.updates[members]))[1]]
    state.labels[right] = state.labels.max() + 1
    state.known[members] = False


def cosines(updates: FloatArray) -> FloatArray:
    """Cosines between rows, (m, m); 0 with a row of zeros or one that is not finite."""
    top = np.abs(updates).max(axis=1, keepdims=True)
    known = np.isfinite(top)
    rows = np.where(known, updates, 0.0) / np.where(known & (top > 0), top, 1.0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(norms > 0, norms, 1.0)
    result: FloatArray = unit @ unit.T
    return (result + result.T) / 2
