"""What every federated system has: a start, a round, what it sends, and a model for each client."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet, Work

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]


class Traffic(NamedTuple):
    """Numbers sent in one round, 8 bytes each.

    down, up : to each client that was chosen, and from each that answered.
    down_all, up_all : besides, to and from all clients together, chosen or not.
    """

    down: int
    up: int
    down_all: int = 0
    up_all: int = 0


@dataclass
class State:
    """Where a run stands: what changes from round to round.

    models : (n_clients, dim), the model that each client predicts with.
    labels : (n_clients,), clients with one label share a cluster.
    """

    models: FloatArray
    labels: IntArray

    def to_arrays(self) -> Arrays:
        """All fields as named arrays; a list of arrays is numbered."""
        out: Arrays = {}
        for part in dataclasses.fields(self):
            value = getattr(self, part.name)
            if isinstance(value, list):
                out[part.name] = np.array(len(value))
                out |= {f"{part.name}.{i}": entry for i, entry in enumerate(value)}
            else:
                out[part.name] = np.asarray(value)
        return out

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """What `to_arrays` gave."""
        values: dict[str, Any] = {}
        for part in dataclasses.fields(cls):
            value = arrays[part.name]
            if f"{part.name}.0" in arrays or part.type.startswith("list"):
                values[part.name] = [arrays[f"{part.name}.{i}"] for i in range(int(value))]
            else:
                values[part.name] = value.item() if value.ndim == 0 else value
        return cls(**values)


@dataclass(frozen=True)
class System(ABC):
    """A way to train the clients together; its fields are its settings.

    Parameters
    ----------
    steps : int >= 1
        Gradient steps of a client in a round.
    rate : float > 0
        Their length; it has the units of 1 / (squared size of a row of x).
    batch : int >= 1, or None
        Rows of a step (see `Work`); None is all rows.
    epochs : int >= 1, or None
        Passes over a client's rows in a round, in place of `steps`.
    decay : float, 0 < decay <= 1
        Round r takes steps of length rate decay^(r - 1).
    """

    state_type: ClassVar[type[State]] = State

    steps: int = 10
    rate: float = 0.1
    batch: int | None = field(default=None, kw_only=True)
    epochs: int | None = field(default=None, kw_only=True)
    decay: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        _checks.as_count("steps", self.steps)
        _checks.as_positive_scalar("rate", self.rate)
        for name in ("batch", "epochs"):
            if getattr(self, name) is not None:
                _checks.as_count(name, getattr(self, name))
        _checks.as_share("decay", self.decay)

    @property
    def work(self) -> Work:
        """The local work of a round."""
        return Work(self.steps, self.rate, self.batch, self.epochs)

    @abstractmethod
    def start(self, fleet: Fleet, rng: np.random.Generator) -> State:
        """The state before the first round."""

    @abstractmethod
    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """One round in which the clients `active` (at least one, ascending) answer; changes `state`."""

    def traffic(self, state: State, fleet: Fleet) -> Traffic:
        """What the round just done has sent: a model each way unless a system says otherwise."""
        return Traffic(fleet.dim, fleet.dim)

    def sample(self, state: State, fleet: Fleet, count: int, rng: np.random.Generator) -> IntArray:
        """`count` different clients, uniformly, ascending."""
        return np.sort(rng.choice(fleet.n_clients, count, replace=False)).astype(np.int64)

    def predict(self, state: State, fleet: Fleet) -> FloatArray:
        """What the clients predict for their test rows, as `Fleet.predict`."""
        return fleet.predict(np.arange(fleet.n_clients), state.models)


def check_weighting(value: object) -> None:
    """By samples, or plain."""
    _checks.check_choice("weighting", value, ("samples", "uniform"))
