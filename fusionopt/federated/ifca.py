"""Iterative federated clustering."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet
from fusionopt.federated._system import FloatArray, IntArray, State, System, Traffic, check_weighting


@dataclass
class IfcaState(State):
    """centres : (n_clusters, dim)."""

    centres: FloatArray


@dataclass(frozen=True)
class Ifca(System):
    """k models; in each round a client takes the one with the smallest loss on its training data.

    averaging "models":     w_j <- mean of the clients of j after `steps` steps from w_j
    averaging "gradients":  w_j <- w_j - rate sum_{k of j} (share of k among all active) f_k'(w_j)

    A model that no active client takes stays as it is.

    Parameters
    ----------
    steps, rate
        As in `System`.
    n_clusters : int >= 1
        k.
    averaging : {"models", "gradients"}
    weighting : {"samples", "uniform"}
        "samples" weights client k by n_k, so that one cluster is FedAvg; "uniform" is the printed mean.

    Notes
    -----
    Models are divided by the weight of their own clients, gradients by that of all active ones. A published port
    divides models by all active clients, which shrinks them to zero. Local minima remain: two models may share
    a cluster.

    References
    ----------
    Ghosh et al., An Efficient Framework for Clustered Federated Learning, algorithm 1.

    Examples
    --------
    >>> Ifca().n_clusters
    4
    """

    n_clusters: int = 4
    averaging: str = "models"
    weighting: str = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.as_count("n_clusters", self.n_clusters)
        _checks.check_choice("averaging", self.averaging, ("models", "gradients"))
        check_weighting(self.weighting)

    def start(self, fleet: Fleet, rng: np.random.Generator) -> IfcaState:
        """Random models, and the cluster of every client under them."""
        centres = fleet.first_models(rng, self.n_clusters)
        labels = _losses(fleet, np.arange(fleet.n_clients), centres).argmin(axis=1)
        return IfcaState(centres[labels], labels, centres)

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> Traffic:
        """Choose, train, average; then every client's choice under the new models."""
        assert isinstance(state, IfcaState)
        choice = _losses(fleet, active, state.centres).argmin(axis=1)
        weight = fleet.sizes[active] if self.weighting == "samples" else np.ones(len(active))
        for j in np.unique(choice):
            members = active[choice == j]
            if self.averaging == "models":
                trained = [fleet.descend(k, state.centres[j], self.steps, self.rate) for k in members]
                state.centres[j] = fleet.mean(np.stack(trained), members, self.weighting)
            else:
                slopes = np.stack([fleet.gradient(k, state.centres[j]) for k in members])
                state.centres[j] -= self.rate * (weight[choice == j] / weight.sum()) @ slopes
        state.labels = _losses(fleet, np.arange(fleet.n_clients), state.centres).argmin(axis=1)
        state.models = state.centres[state.labels]
        return Traffic(len(active) * self.n_clusters * fleet.dim, len(active) * (fleet.dim + 1))


def _losses(fleet: Fleet, clients: IntArray, centres: FloatArray) -> FloatArray:
    return np.array([[fleet.loss(int(k), w) for w in centres] for k in clients])
