"""What every federated system has: a start, a round, and a model for each client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Traffic(NamedTuple):
    """Numbers sent in one round, 8 bytes each."""

    down: int
    up: int


@dataclass
class State:
    """Where a run stands: what changes from round to round.

    models : (n_clients, dim), the model that each client predicts with.
    labels : (n_clients,), clients with one label share a cluster.
    """

    models: FloatArray
    labels: IntArray


@dataclass(frozen=True)
class System(ABC):
    """A way to train the clients together; its fields are its settings.

    Parameters
    ----------
    steps : int >= 1
        Full-batch gradient steps of a client in a round.
    rate : float > 0
        Their length; it has the units of 1 / (squared size of a row of x).
    """

    steps: int = 10
    rate: float = 0.1

    def __post_init__(self) -> None:
        _checks.as_count("steps", self.steps)
        _checks.as_positive_scalar("rate", self.rate)

    @abstractmethod
    def start(self, fleet: Fleet, rng: np.random.Generator) -> State:
        """The state before the first round."""

    @abstractmethod
    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> Traffic:
        """One round with the clients `active`; changes `state`."""

    def sample(self, state: State, fleet: Fleet, count: int, rng: np.random.Generator) -> IntArray:
        """`count` different clients, uniformly, ascending."""
        return np.sort(rng.choice(fleet.n_clients, count, replace=False)).astype(np.int64)

    def probabilities(self, state: State, fleet: Fleet, k: int, x: FloatArray) -> FloatArray:
        """What client k predicts for rows x (with their one appended), (n, C)."""
        return fleet.probabilities(x, state.models[k])


def check_weighting(value: object) -> None:
    """By samples, or plain."""
    _checks.check_choice("weighting", value, ("samples", "uniform"))
