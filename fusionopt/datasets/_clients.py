"""What one client holds, and what all generators ask of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class ClientData(NamedTuple):
    """What one client of a federated problem holds: rows of x and their y, for training and for testing.

    The same record holds a whole data set before it is dealt out. x is float64, of images float32; y are class
    labels or, for regression, numbers.
    """

    x_train: NDArray[np.floating[Any]]
    y_train: NDArray[np.float64] | IntArray
    x_test: NDArray[np.floating[Any]]
    y_test: NDArray[np.float64] | IntArray


def generator(random_state: int | None) -> np.random.Generator:
    """A generator from a seed, or from the system's entropy."""
    if random_state is None:
        return np.random.default_rng()
    return np.random.default_rng(_checks.as_count("random_state", random_state, minimum=0))


def as_record(name: str, value: Any) -> ClientData:
    """A record whose arrays have a row of x for each y, and the same columns in both parts."""
    if not all(hasattr(value, part) for part in ClientData._fields):
        _checks.refuse_type(
            f"{name} is a {type(value).__name__}; give a record with x_train, y_train, x_test and y_test, for "
            "instance fusionopt.datasets.ClientData.",
            argument=name,
            got=type(value).__name__,
            wanted="a record with x_train, y_train, x_test, y_test",
        )
    arrays = ClientData(*(np.asarray(getattr(value, part)) for part in ClientData._fields))
    for part, x, y in (("train", arrays.x_train, arrays.y_train), ("test", arrays.x_test, arrays.y_test)):
        _checks.as_labels(f"{name}.y_{part}", y, len(x) if x.ndim else None)
        if x.ndim != 2 or x.dtype.kind not in "fiub" or x.shape[1:] != arrays.x_train.shape[1:]:
            _checks.refuse(
                f"{name}.x_{part} has shape {x.shape} and type {x.dtype}; give numbers, one row for each y, with as "
                "many columns in x_train as in x_test.",
                argument=f"{name}.x_{part}",
                got=x.shape,
                wanted="a matrix of numbers",
            )
    return arrays


def as_records(clients: Sequence[Any]) -> list[ClientData]:
    """At least one record."""
    records = [as_record(f"clients[{k}]", client) for k, client in enumerate(clients)]
    if not records:
        _checks.refuse(
            "clients is empty; give at least one.",
            argument="clients",
            got=0,
            wanted="at least one client",
        )
    return records


def as_clusters(labels: Sequence[int] | IntArray | None, n_clients: int, n_clusters: int) -> IntArray:
    """The cluster of each client: as given, or contiguous blocks whose sizes differ by at most one."""
    if labels is None:
        if n_clients < n_clusters:
            _checks.refuse(
                f"{n_clients} clients cannot form {n_clusters} clusters; give at least {n_clusters} clients.",
                argument="clients",
                got=n_clients,
                wanted=f"at least {n_clusters} clients",
            )
        return np.arange(n_clients, dtype=np.int64) * n_clusters // n_clients
    given = _checks.as_labels("labels", labels, n_clients)
    if given.dtype.kind not in "iu" or given.min() < 0 or given.max() >= n_clusters:
        _checks.refuse(
            f"labels must be whole numbers from 0 to {n_clusters - 1}, one for each client; got "
            f"{_checks.shown(given.tolist())}.",
            argument="labels",
            got=given,
            wanted=f"0, ..., {n_clusters - 1}",
        )
    return given.astype(np.int64)
