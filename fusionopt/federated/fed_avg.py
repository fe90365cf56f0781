"""Federated averaging."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionopt.federated._fleet import Fleet
from fusionopt.federated._system import IntArray, State, System, check_weighting


@dataclass(frozen=True)
class FedAvg(System):
    """One model w for all: w <- sum_k (n_k / sum n) w_k over the active clients, w_k local steps from w.

    Parameters
    ----------
    steps, rate
        As in `System`.
    weighting : {"samples", "uniform"}
        Weights n_k / sum n, or equal ones.

    References
    ----------
    McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, algorithm 1.

    Examples
    --------
    >>> FedAvg().weighting
    'samples'
    """

    weighting: str = "samples"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weighting(self.weighting)

    def start(self, fleet: Fleet, rng: np.random.Generator) -> State:
        """One random model."""
        return State(
            np.repeat(fleet.first_models(rng, 1), fleet.n_clients, axis=0),
            np.zeros(fleet.n_clients, dtype=np.int64),
        )

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """Broadcast, local steps, mean."""
        trained = fleet.descend(active, state.models[active], self.work, rng)
        state.models[:] = fleet.mean(trained, active, self.weighting)
