"""Federated averaging inside the true clusters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet
from fusionopt.federated._system import IntArray, State, System


@dataclass(frozen=True)
class Oracle(System):
    """FedAvg inside each cluster of a partition that is given: what clustering could at best achieve.

    Parameters
    ----------
    steps, rate
        As in `System`.
    labels : sequence of int (n_clients,), or None
        The true cluster of each client. None can be constructed, and `simulate` refuses it: clients do not know
        their cluster, so there is no other place it could come from.

    References
    ----------
    Armacki et al., Personalized Federated Learning via Convex Clustering, section V (the oracle).

    Examples
    --------
    >>> Oracle(labels=[0, 0, 1]).labels
    [0, 0, 1]
    """

    labels: Sequence[int] | IntArray | None = None

    def start(self, fleet: Fleet, rng: np.random.Generator) -> State:
        """One common random model for all clusters."""
        if self.labels is None:
            _checks.refuse(
                "Oracle has no labels; give the true cluster of each client, Oracle(labels=labels).",
                argument="labels",
                got=None,
                wanted="one label for each client",
            )
        names = _checks.as_labels("labels", self.labels, fleet.n_clients)
        labels = np.unique(names, return_inverse=True)[1].astype(np.int64)
        return State(np.repeat(fleet.first_models(rng, 1), fleet.n_clients, axis=0), labels)

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """FedAvg's round in each cluster that has an active client."""
        trained = fleet.descend(active, state.models[active], self.work, rng)
        for cluster in np.unique(state.labels[active]):
            mine = state.labels[active] == cluster
            state.models[state.labels == cluster] = fleet.mean(trained[mine], active[mine], "samples")
