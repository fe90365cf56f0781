"""Every client on its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionopt.federated._fleet import Fleet
from fusionopt.federated._system import IntArray, State, System, Traffic


@dataclass(frozen=True)
class Local(System):
    """No communication: an active client takes `steps` gradient steps on its own f_k.

    Each client is a cluster of its own. With participation 1, the default of `simulate`, all clients train in
    every round, as in the benchmarks that report LOCAL.

    Parameters
    ----------
    steps, rate
        As in `System`.

    Examples
    --------
    >>> Local().steps
    10
    """

    def start(self, fleet: Fleet, rng: np.random.Generator) -> State:
        """One common starting model."""
        return State(
            np.repeat(fleet.first_models(rng, 1), fleet.n_clients, axis=0),
            np.arange(fleet.n_clients, dtype=np.int64),
        )

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """Local steps."""
        state.models[active] = fleet.descend(active, state.models[active], self.work, rng)

    def traffic(self, state: State, fleet: Fleet) -> Traffic:
        """Nothing."""
        return Traffic(0, 0)
