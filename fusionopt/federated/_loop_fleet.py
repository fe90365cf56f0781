"""Clients whose work is asked for one by one, in this process or in several."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fusionopt import _checks
from fusionopt.federated._fleet import (
    LOSS,
    Fleet,
    FloatArray,
    IntArray,
    Model,
    Objective,
    Rows,
    Work,
    stepped,
)
from fusionopt.federated._workers import Workers, can_fork


class LocalWork(NamedTuple):
    """What one client does in `Fleet.descend`: steps of length `rate` on

        (1/n) sum_s weights_s loss(w; s) + 1/2 sum_j modulus_j (w - centre)_j^2

    rows : those of each step, None: all; weights : those of all rows, None: ones; modulus : (dim,) or (1,); centre :
    (dim,); implicit : as in `Objective`; seed : of anything else that is random.
    """

    steps: int
    rate: float
    rows: list[IntArray] | None
    weights: FloatArray | None
    modulus: FloatArray
    centre: FloatArray
    implicit: bool
    seed: int


class LoopFleet(Fleet):
    """A fleet from functions of one client, for models whose clients cannot be worked in one call.

    Parameters
    ----------
    model, dim, sizes, test_sizes, class_counts
        As in `Fleet`.
    n_threads : int >= 1
        Processes that work on different clients at once: forks of this one, started when there is first something to
        do, which see the clients as they are then. Everything random is drawn before, so results have the same bits
        for any number. With 1, and where there is no Linux, all is done in this process.
    """

    def __init__(
        self,
        model: Model,
        dim: int,
        sizes: Iterable[int],
        test_sizes: Iterable[int],
        class_counts: FloatArray | None = None,
        n_threads: int = 1,
    ) -> None:
        super().__init__(model, dim, sizes, test_sizes, class_counts)
        self.n_threads = n_threads
        self._workers: Workers | None = None

    @abstractmethod
    def client_losses(self, k: int, w: FloatArray) -> FloatArray:
        """The loss of every training row of client k, (n_k,)."""

    @abstractmethod
    def client_gradient(
        self, k: int, w: FloatArray, weights: FloatArray | None, rows: IntArray | None
    ) -> FloatArray:
        """Gradient (dim,) of (1/n) sum_s weights_s loss_s over `rows` (None: all n_k) of client k."""

    @abstractmethod
    def client_predictions(self, k: int, w: FloatArray) -> FloatArray:
        """Of client k's test rows, (n, n_outputs)."""

    def client_descent(self, k: int, w: FloatArray, work: LocalWork) -> FloatArray:
        """The local work of client k from w; a model may put an optimiser of its own in its place."""
        w = np.array(w, dtype=np.float64)
        for step in range(work.steps):
            g = self.client_gradient(k, w, work.weights, None if work.rows is None else work.rows[step])
            w = stepped(w, g, work.rate, work.modulus, work.centre, work.implicit)
        return w

    def begin_worker(self) -> None:
        """Called once in each worker process."""

    def sample_losses(self, clients: IntArray, models: FloatArray) -> FloatArray:
        """Client by client."""
        return np.concatenate(self._each("client_losses", self.sizes, clients, models))

    def gradients(
        self, clients: IntArray, models: FloatArray, weights: FloatArray | None = None, rows: Rows = None
    ) -> FloatArray:
        """Client by client."""
        parts = [None] * len(clients) if weights is None else self.split(clients, weights)
        picked = [None] * len(clients) if rows is None else rows
        return np.stack(self._each("client_gradient", self.dim, clients, models, parts, picked))

    def predict(self, clients: IntArray, models: FloatArray) -> FloatArray:
        """Client by client."""
        return np.concatenate(self._each("client_predictions", self.test_sizes, clients, models))

    def descend(
        self,
        clients: IntArray,
        models: FloatArray,
        work: Work,
        rng: np.random.Generator,
        objective: Objective = LOSS,
    ) -> FloatArray:
        """Client by client, each all its steps at once."""
        modulus, centre, _ = self.quadratic(clients, work.rate, objective)
        steps = self.steps(clients, work).tolist()
        batches: Any = [None] * len(clients)
        if work.batch is not None:
            batches = self.batches(clients, work.batch, self.steps(clients, work), rng)
        parts: Any = [None] * len(clients)
        if objective.weights is not None:
            parts = self.split(clients, objective.weights)
        seed, mask = int(rng.integers(2**62)), self.mask(objective.columns)
        orders = [
            LocalWork(
                steps[i],
                work.rate,
                batches[i],
                parts[i],
                modulus[i] * mask,
                centre[i],
                objective.implicit,
                seed + i,
            )
            for i in range(len(clients))
        ]
        return np.stack(self._each("client_descent", self.dim, clients, models, orders))

    def close(self) -> None:
        """End the workers."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def _each(
        self, name: str, lengths: FloatArray | int, clients: IntArray, *arguments: Sequence[Any] | FloatArray
    ) -> list[FloatArray]:
        """What the method `name` gives for every client with its arguments: arrays of these lengths."""
        calls = [(int(k), *mine) for k, *mine in zip(clients, *arguments, strict=True)]
        results = self._worked(name, calls)
        for (k, *_), result in zip(calls, results, strict=True):
            length = int(np.broadcast_to(lengths, self.n_clients)[k])
            wanted = (length, "n_outputs") if name == "client_predictions" else (length,)
            if np.ndim(result) != len(wanted) or len(result) != length:
                _checks.refuse(
                    f"{type(self).__name__}.{name} gave shape {np.shape(result)} for client {k}; it must be "
                    f"{wanted}.",
                    argument=name,
                    got=np.shape(result),
                    wanted=str(wanted),
                )
        return results

    def _worked(self, name: str, calls: list[tuple[Any, ...]]) -> list[Any]:
        if self.n_threads == 1 or len(calls) == 1 or not can_fork():
            return [getattr(self, name)(*call) for call in calls]
        if self._workers is None:
            self._workers = Workers(self, min(self.n_threads, self.n_clients))
            weakref.finalize(self, self._workers.close)
        try:
            return self._workers.map(name, calls)
        except BaseException:
            self.close()  # the others may be in the middle of something
            raise
