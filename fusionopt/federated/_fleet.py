"""The clients of a simulation: their data, and the local work that systems ask of them, many clients at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.datasets import ClientData

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Rows = list[IntArray] | None


class Work(NamedTuple):
    """Local work of one round: `steps` gradient steps, or `epochs` passes, of length `rate`.

    batch : rows of a step, the next ones of a random order of the client's rows (drawn anew for each pass, the last
    step of a pass taking what is left); None is all rows, so that a pass is a step.
    """

    steps: int
    rate: float
    batch: int | None = None
    epochs: int | None = None


class Objective(NamedTuple):
    """What local work of client k goes down.

        (1/n_k) sum_s weights_s loss(w; s) + ridge/2 ||w||^2 + pull_k/2 ||w - towards_k||^2

    weights : flat numbers of the clients' training rows, None for ones.
    pull, towards : (len(clients),) or one number, and (len(clients), dim), None for 0.
    columns : the parameters that the quadratic terms count, None for all.
    implicit : the quadratic terms are taken at the end of a step, w <- (w - rate g + rate pull towards) / (1 + rate
    (ridge + pull)): the same minimiser as explicit steps, and stable for any pull.
    """

    weights: FloatArray | None = None
    ridge: float = 0.0
    pull: FloatArray | float = 0.0
    towards: FloatArray | None = None
    columns: IntArray | None = None
    implicit: bool = True


LOSS = Objective()
"""f_k alone."""


class Model(ABC):
    """What the clients train: a family of functions with one flat vector of `dim` float64 parameters."""

    @abstractmethod
    def fleet(self, clients: Sequence[ClientData], n_threads: int = 1) -> Fleet:
        """These clients with this model; what was open (classes, columns) is settled in `Fleet.model`."""


class Fleet(ABC):
    """Clients k = 0, ..., m - 1, each with f_k(w) = (1/n_k) sum_s loss(w; s) over its training rows.

    Where `clients` is asked for, it names different clients in ascending order, and the rows of `models`
    (len(clients), dim) are theirs in that order. Numbers of samples (`weights`, losses, predictions) are flat: those
    of the first client of `clients`, then those of the second, and so on.

    Attributes
    ----------
    model : Model
        Settled: ``fleet.model.fleet(others)`` are other clients with parameters that mean the same.
    n_clients, dim : int
    n_classes : int
        0 where y are numbers and not classes.
    sizes, test_sizes : float64 (n_clients,)
        Numbers n_k of training rows, and of test rows.
    class_counts : float64 (n_clients, n_classes)
        Training rows of each class.
    effort : float64 (n_clients,)
        Share of the local work that each client manages in this round; set by the round loop.
    """

    def __init__(
        self,
        model: Model,
        dim: int,
        sizes: Iterable[int],
        test_sizes: Iterable[int],
        class_counts: FloatArray | None = None,
    ) -> None:
        self.model = model
        self.dim = dim
        self.sizes: FloatArray = np.array(list(sizes), dtype=np.float64)
        self.test_sizes: FloatArray = np.array(list(test_sizes), dtype=np.float64)
        self.n_clients = len(self.sizes)
        self.class_counts: FloatArray = (
            np.zeros((self.n_clients, 0)) if class_counts is None else class_counts
        )
        self.n_classes = self.class_counts.shape[1]
        self.effort: FloatArray = np.ones(self.n_clients)

    @abstractmethod
    def first_models(self, rng: np.random.Generator, count: int) -> FloatArray:
        """(count, dim) random starting models."""

    @abstractmethod
    def sample_losses(self, clients: IntArray, models: FloatArray) -> FloatArray:
        """The loss of every training row of the clients, flat."""

    @abstractmethod
    def gradients(
        self, clients: IntArray, models: FloatArray, weights: FloatArray | None = None, rows: Rows = None
    ) -> FloatArray:
        """Gradients (len(clients), dim) of (1/n) sum_s weights_s loss_s over `rows` of each client, None: all."""

    @abstractmethod
    def predict(self, clients: IntArray, models: FloatArray) -> FloatArray:
        """What the models say of the clients' test rows, flat (sum of test_sizes, n_outputs): probabilities of the
        classes, or numbers."""

    @abstractmethod
    def measure(self, predictions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Accuracy (nan without classes) and mean loss of each client's test rows, from the predictions of all."""

    def losses(self, clients: IntArray, models: FloatArray) -> FloatArray:
        """f_k, (len(clients),)."""
        return self.means(clients, self.sample_losses(clients, models))

    def means(self, clients: IntArray, samples: FloatArray) -> FloatArray:
        """Means over each client's training rows of flat numbers (N,) or (N, k)."""
        counts = self.sizes[clients]
        starts = (np.cumsum(counts) - counts).astype(np.int64)
        shape = (-1,) + (1,) * (samples.ndim - 1)
        result: FloatArray = np.add.reduceat(samples, starts, axis=0) / counts.reshape(shape)
        return result

    def steps(self, clients: IntArray, work: Work) -> IntArray:
        """Gradient steps of each client: those of `work`, cut to its effort, at least one."""
        whole = np.full(len(clients), float(work.steps))
        if work.epochs is not None:
            whole = work.epochs * np.ceil(self.sizes[clients] / (work.batch or np.inf)).clip(1)
        result: IntArray = np.maximum(np.rint(self.effort[clients] * whole), 1).astype(np.int64)
        return result

    def descend(
        self,
        clients: IntArray,
        models: FloatArray,
        work: Work,
        rng: np.random.Generator,
        objective: Objective = LOSS,
    ) -> FloatArray:
        """Local work from `models`, (len(clients), dim)."""
        modulus, centre, _ = self.quadratic(clients, work.rate, objective)
        steps = self.steps(clients, work)
        w = np.array(models, dtype=np.float64)
        batches = None if work.batch is None else self.batches(clients, work.batch, steps, rng)
        parts = None if objective.weights is None else self.split(clients, objective.weights)
        mask = self.mask(objective.columns)
        for step in range(int(steps.max(initial=0))):
            busy = np.flatnonzero(steps > step)
            rows = None if batches is None else [batches[k][step] for k in busy]
            theirs = None if parts is None else np.concatenate([parts[k] for k in busy])
            g = self.gradients(clients[busy], w[busy], theirs, rows)
            felt = modulus[busy, None] * mask
            w[busy] = stepped(w[busy], g, work.rate, felt, centre[busy], objective.implicit)
        return w

    def quadratic(
        self, clients: IntArray, rate: float, objective: Objective
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """modulus, centre and step lengths such that explicit steps on f_k(w) + modulus_k/2 ||w - centre_k||^2 are
        those of `descend`; (len(clients),), (len(clients), dim), (len(clients),)."""
        pull = np.broadcast_to(np.asarray(objective.pull, dtype=np.float64), len(clients))
        modulus: FloatArray = pull + objective.ridge
        centre = np.zeros((len(clients), self.dim))
        if objective.towards is not None:
            share = np.divide(pull, modulus, out=np.zeros(len(clients)), where=modulus > 0)
            centre += share[:, None] * objective.towards
        # An implicit step of length a is an explicit one of length a / (1 + a modulus).
        return (
            modulus,
            centre,
            rate / (1.0 + rate * modulus) if objective.implicit else np.full(len(clients), rate),
        )

    def mask(self, columns: IntArray | None) -> FloatArray:
        """(dim,), 1 for the parameters in `columns` and 0 for the others; (1,) for None, which is all."""
        return np.ones(1) if columns is None else np.isin(np.arange(self.dim), columns).astype(np.float64)

    def batches(
        self, clients: IntArray, batch: int, steps: IntArray, rng: np.random.Generator
    ) -> list[list[IntArray]]:
        """The rows of each step of each client."""
        out = []
        for k, count in zip(clients, steps.tolist(), strict=True):
            n, mine = int(self.sizes[k]), list[IntArray]()
            while len(mine) < count:
                order = rng.permutation(n)
                mine += [order[i : i + batch] for i in range(0, n, batch)]
            out.append(mine[:count])
        return out

    def split(self, clients: IntArray, samples: FloatArray) -> list[FloatArray]:
        """Flat numbers of training rows, client by client."""
        return np.split(samples, np.cumsum(self.sizes[clients]).astype(np.int64)[:-1])

    def draw(self, clients: IntArray, batch: int | None, rng: np.random.Generator) -> Rows:
        """`batch` different rows of each client (all it has, where that is less); None for None."""
        if batch is None:
            return None
        sizes = self.sizes[clients].astype(np.int64).tolist()
        return [rng.choice(n, min(batch, n), replace=False).astype(np.int64) for n in sizes]

    def mean(self, models: FloatArray, members: IntArray, weighting: str) -> FloatArray:
        """Mean of rows: weighted by the members' n_k ("samples") or plain ("uniform")."""
        return np.average(models, axis=0, weights=self.sizes[members] if weighting == "samples" else None)

    def largest_change(self, clients: IntArray, w: FloatArray, g: FloatArray) -> FloatArray:
        """(len(clients),), a bound on how much w_k + g_k changes what client k's model says of its rows; here the
        length of g relative to that of w, a plain guess."""
        size = np.linalg.norm(w, axis=1)
        result: FloatArray = np.linalg.norm(g, axis=1) / np.where(size > 0, size, 1.0)
        return result

    def close(self) -> None:  # noqa: B027 - most fleets keep nothing
        """End what the fleet keeps running beside it; nothing here."""

    def columns(self, layers: Sequence[str]) -> IntArray:
        """Where in w the parameters of these layers are."""
        _checks.refuse(
            f"layers={list(layers)!r}, and {type(self.model).__name__} has no named layers; give None for all "
            "parameters.",
            argument="layers",
            got=list(layers),
            wanted="None",
        )


def stepped(
    w: FloatArray, g: FloatArray, rate: float, modulus: FloatArray, centre: FloatArray, implicit: bool
) -> FloatArray:
    """A step on f + modulus/2 ||w - centre||^2 from w, g being f'(w)."""
    length = rate / (1.0 + rate * modulus) if implicit else rate
    return w - length * (g + modulus * (w - centre))


def row_norms(rows: FloatArray) -> FloatArray:
    """Euclidean norms, inf where a row is not finite or its norm overflows."""
    top = np.abs(rows).max(axis=1)
    units = np.where((top > 0) & np.isfinite(top), top, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = units * np.linalg.norm(rows / units[:, None], axis=1)
    return np.where(np.isfinite(norms), norms, np.inf)


def check_records(clients: Sequence[ClientData]) -> list[ClientData]:
    """Records with the four arrays, at least one.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
    """
    if not isinstance(clients, Iterable):
        _checks.refuse_type(
            f"clients is a {type(clients).__name__}; give a list of records, such as fusionopt.datasets.ClientData.",
            argument="clients",
            got=type(clients).__name__,
            wanted="a list of records",
        )
    records = list(clients)
    if not records:
        _checks.refuse(
            "clients is empty; give at least one.", argument="clients", got=0, wanted="at least one client"
        )
    for k, record in enumerate(records):
        if not all(hasattr(record, name) for name in ("x_train", "y_train", "x_test", "y_test")):
            _checks.refuse_type(
                f"clients[{k}] is a {type(record).__name__}; give records with x_train, y_train, x_test and "
                "y_test, for instance fusionopt.datasets.ClientData.",
                argument="clients",
                got=type(record).__name__,
                wanted="records with x_train, y_train, x_test, y_test",
            )
    return records


def judge_classes(
    chances: FloatArray, y_test: IntArray, test_sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Accuracy and mean of minus the log-likelihood, client by client, from probabilities of all test rows.

    Rows whose probabilities are not numbers are wrong.
    """
    starts = (np.cumsum(test_sizes) - test_sizes).astype(np.int64)
    right = (chances.argmax(axis=1) == y_test) & np.isfinite(chances).all(axis=1)
    hits = np.add.reduceat(right.astype(np.float64), starts)
    # A probability that underflows to zero counts as the smallest positive number.
    own = np.maximum(chances[np.arange(len(y_test)), y_test], np.finfo(np.float64).tiny)
    return hits / test_sizes, np.add.reduceat(-np.log(own), starts) / test_sizes


def judge_numbers(
    predictions: FloatArray, y_test: FloatArray, test_sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """nan in place of an accuracy, and the mean squared error, client by client."""
    starts = (np.cumsum(test_sizes) - test_sizes).astype(np.int64)
    squares = (predictions[:, 0] - y_test) ** 2
    return np.full(len(test_sizes), np.nan), np.add.reduceat(squares, starts) / test_sizes


def settle_classes(ys: list[NDArray[Any]], given: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """The classes in order: those given, or those that occur.

    Raises
    ------
    InvalidArgumentError
        Fewer than two.
    """
    found = np.unique(np.concatenate(ys)) if given is None else np.unique(np.array(given))
    if len(found) < 2:
        _checks.refuse(
            "clients hold one class only; there is nothing to tell apart.",
            argument="clients",
            got=1,
            wanted="at least two classes",
        )
    return tuple(found.tolist())


def class_places(name: str, y: NDArray[Any], settled: tuple[Any, ...]) -> IntArray:
    """Places of y among the settled classes.

    Raises
    ------
    InvalidArgumentError
        Another class.
    """
    classes = np.array(settled)
    places = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    wrong = np.flatnonzero(classes[places] != y)
    if len(wrong):
        _checks.refuse(
            f"{name} holds {_checks.shown(y[wrong[0]].item())}, none of the {len(classes)} classes of the model.",
            argument=name,
            got=y[wrong[0]],
            wanted="classes of the model",
        )
    return places.astype(np.int64)
