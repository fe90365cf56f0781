"""One model from weighted clusters of updates: adaptive clustering with RFedAvg weights, and its rivals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet
from fusionopt.federated._system import FloatArray, IntArray, State, System, Traffic
from fusionopt.federated.cfl import cosines
from fusionopt.recovery import optimal_cluster_weights, rfedavg_weights


@dataclass
class RFedAvgState(State):
    """first_loss : l_0, nan before the first round; groups : the clusters of the last round, client numbers."""

    first_loss: float
    groups: list[IntArray]


@dataclass(frozen=True)
class RFedAvg(System):
    """One model; the round's updates are clustered by their cosines, and each cluster has one weight p_n.

        w <- w + sum_n p_n (sum_{k in C_n} n_k D_k / sum_{k in C_n} n_k)

    Clients k and j may share a cluster when cos(D_k, D_j) >= cos(angle + (pi/2 - angle) r), where
    r = (l_0 - l_t) / (l_0 - least_loss), clipped to [0, 1], and l_t is the n_k-weighted loss of the active clients
    at w. Repeatedly the client with the most unclustered partners (ties: the first) takes them as its cluster.

    Parameters
    ----------
    steps, rate
        As in `System`; steps = 1 sends gradients, as in the paper.
    weights : {"rfedavg", "uniform", "optimal"}
        p by `recovery.rfedavg_weights`, equal, or by `recovery.optimal_cluster_weights`.
    angle : float, 0 < angle < pi/2
        The angle that is wanted at the start, in radians.
    least_loss : float >= 0
        l*, the loss at which any acute angle will do.

    Notes
    -----
    Corrections: r is clipped (else the printed threshold leaves [0, 1]), a single cluster has weight 1 where the
    formula divides by zero, and weights are floored where it would make them negative. The labels are all 0: there
    is one model. The clusters of the last round are in ``history.state.groups``.

    References
    ----------
    Wang, Zhang and Tao, Adaptive Clustering-Based Model Aggregation, algorithm 1 and equation (17).

    Examples
    --------
    >>> RFedAvg().weights
    'rfedavg'
    """

    state_type = RFedAvgState

    weights: str = "rfedavg"
    angle: float = 0.1
    least_loss: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.check_choice("weights", self.weights, ("rfedavg", "uniform", "optimal"))
        _checks.as_scalar_between("angle", self.angle, 0.0, np.pi / 2, "it is an acute angle in radians")
        _checks.as_nonnegative_scalar("least_loss", self.least_loss)

    def start(self, fleet: Fleet, rng: np.random.Generator) -> RFedAvgState:
        """One random model."""
        if not fleet.n_classes and self.weights != "uniform":
            _checks.refuse(
                f"{type(self).__name__} weighs clusters by their classes, and y are numbers; give weights='uniform'.",
                argument="weights",
                got=self.weights,
                wanted="'uniform'",
            )
        models = np.repeat(fleet.first_models(rng, 1), fleet.n_clients, axis=0)
        return RFedAvgState(models, np.zeros(fleet.n_clients, dtype=np.int64), float("nan"), [])

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """Updates, clusters, weighted mean of cluster means."""
        assert isinstance(state, RFedAvgState)
        w = state.models[0].copy()
        copies = np.broadcast_to(w, (len(active), fleet.dim))
        loss = float(np.average(fleet.losses(active, copies), weights=fleet.sizes[active]))
        if np.isnan(state.first_loss):
            state.first_loss = loss
        updates = fleet.descend(active, copies, self.work, rng) - w
        parts = self.cluster(updates, state.first_loss, loss, rng)
        state.groups = [active[part] for part in parts]
        p = self._shares(fleet.class_counts[active], parts)
        means = np.stack([fleet.mean(updates[part], active[part], "samples") for part in parts])
        state.models[:] = w + p @ means

    def traffic(self, state: State, fleet: Fleet) -> Traffic:
        """Beside its update a client reports its loss and its numbers of samples by class."""
        return Traffic(fleet.dim, fleet.dim + 1 + fleet.n_classes)

    def cluster(
        self, updates: FloatArray, first_loss: float, loss: float, rng: np.random.Generator
    ) -> list[IntArray]:
        """Clusters of rows by the adaptive threshold."""
        drop = first_loss - self.least_loss
        progress = float(np.clip((first_loss - loss) / drop, 0.0, 1.0)) if drop > 0 else 1.0
        return star_cover(cosines(updates), float(np.cos(self.angle + (np.pi / 2 - self.angle) * progress)))

    def _shares(self, class_counts: FloatArray, parts: list[IntArray]) -> FloatArray:
        if self.weights == "uniform":
            return np.full(len(parts), 1.0 / len(parts))
        if self.weights == "optimal":
            return optimal_cluster_weights(np.stack([class_counts[part].sum(axis=0) for part in parts]))
        return rfedavg_weights(class_counts, [part.tolist() for part in parts])


def star_cover(alpha: FloatArray, threshold: float) -> list[IntArray]:
    """Greedy clusters: the row with the most unclustered rows at least `threshold` similar takes them; repeat."""
    close = alpha >= threshold
    np.fill_diagonal(close, True)
    free = np.ones(len(alpha), dtype=np.bool_)
    parts = []
    while free.any():
        counts = np.where(free, (close & free).sum(axis=1), -1)
        part = np.flatnonzero(close[int(counts.argmax())] & free)
        parts.append(part)
        free[part] = False
    return parts
