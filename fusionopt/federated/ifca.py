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

    state_type = IfcaState

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
        labels = best_models(fleet, centres)
        return IfcaState(centres[labels], labels, centres)

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """Choose, train, average; then every client's choice under the new models."""
        assert isinstance(state, IfcaState)
        choice = state.labels[active]  # theirs under the present models
        before = state.centres[choice]
        if self.averaging == "models":
            trained = fleet.descend(active, before, self.work, rng)
            for j in np.unique(choice):
                state.centres[j] = fleet.mean(trained[choice == j], active[choice == j], self.weighting)
        else:
            weight = fleet.sizes[active] if self.weighting == "samples" else np.ones(len(active))
            rows = fleet.draw(active, self.batch, rng)
            slopes = fleet.gradients(active, before, rows=rows) * (weight / weight.sum())[:, None]
            np.subtract.at(state.centres, choice, self.rate * slopes)
        state.labels = best_models(fleet, state.centres)
        state.models = state.centres[state.labels]

    def traffic(self, state: State, fleet: Fleet) -> Traffic:
        """All models down; a model (or gradient) and the choice up."""
        return Traffic(self.n_clusters * fleet.dim, fleet.dim + 1)


def best_models(fleet: Fleet, centres: FloatArray) -> IntArray:
    """For each client the centre with the smallest training loss; ties: the first."""
    everyone, shape = np.arange(fleet.n_clients), (fleet.n_clients, fleet.dim)
    losses = [fleet.losses(everyone, np.broadcast_to(w, shape)) for w in centres]
    result: IntArray = np.stack(losses, axis=1).argmin(axis=1)
    return result
