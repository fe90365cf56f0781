"""Models whose loss is one of the toolkit's: all clients at once in the compiled core."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from fusionopt import _checks
from fusionopt._bridge_losses import SampleKernel, sample_kernel
from fusionopt.datasets import ClientData
from fusionopt.federated._fleet import (
    LOSS,
    Fleet,
    FloatArray,
    IntArray,
    Model,
    Objective,
    Rows,
    Work,
    check_records,
    class_places,
    judge_classes,
    judge_numbers,
    row_norms,
    settle_classes,
)
from fusionopt.losses import LeastSquares, Logistic, Softmax, SquaredHinge
from fusionopt.losses._labels import signs
from fusionopt.losses._sampled import Design, SampledLoss


@dataclass(frozen=True)
class LossModel(Model):
    """A model with a loss of fusionopt on rows z = (x, 1), or z = x without an intercept.

    Parameters
    ----------
    ridge : float >= 0
        ridge/2 ||w||^2 is added to each f_k, intercept included.
    intercept : bool
    spread : float > 0
        Starting parameters are independent N(0, spread^2).
    """

    ridge: float = 0.0
    intercept: bool = True
    spread: float = 0.1

    def __post_init__(self) -> None:
        _checks.as_nonnegative_scalar("ridge", self.ridge)
        _checks.as_positive_scalar("spread", self.spread)
        _checks.as_flag("intercept", self.intercept)

    def fleet(self, clients: Sequence[ClientData], n_threads: int = 1) -> LossFleet:
        """These clients with this model."""
        records = check_records(clients)
        columns: int | None = None
        rows: dict[str, list[FloatArray]] = {"train": [], "test": []}
        ys: dict[str, list[NDArray[Any]]] = {"train": [], "test": []}
        for k, record in enumerate(records):
            for part in ("train", "test"):
                x = _checks.as_matrix(f"clients[{k}].x_{part}", getattr(record, f"x_{part}"))
                if columns is not None and x.shape[1] != columns:
                    _checks.refuse(
                        f"clients[{k}].x_{part} has {x.shape[1]} columns; the clients before have {columns}.",
                        argument="clients",
                        got=x.shape[1],
                        wanted=f"{columns} columns",
                    )
                columns = x.shape[1]
                rows[part].append(np.hstack([x, np.ones((len(x), 1))]) if self.intercept else x)
                y = getattr(record, f"y_{part}")
                ys[part].append(_checks.as_labels(f"clients[{k}].y_{part}", y, len(x)))
        model = self.settle(ys["train"] + ys["test"])
        targets = [[model.encode(f"clients[{k}].y_{part}", y) for k, y in enumerate(ys[part])] for part in ys]
        return LossFleet(model, rows["train"], rows["test"], targets[0], targets[1], n_threads)

    def settle(self, ys: list[NDArray[Any]]) -> LossModel:
        """The model with what the data decide."""
        return self

    @property
    def n_classes(self) -> int:
        """0 where y are numbers."""
        return 0

    @property
    def n_outputs(self) -> int:
        """Parameters for each column of z."""
        return 1

    @abstractmethod
    def encode(self, name: str, y: NDArray[Any]) -> NDArray[Any]:
        """y as the loss wants it."""

    @abstractmethod
    def loss(self, designs: Sequence[FloatArray], targets: Sequence[NDArray[Any]]) -> SampledLoss:
        """The f_k."""

    @abstractmethod
    def predict(self, scores: FloatArray) -> FloatArray:
        """Predictions from z'W, (N, n_outputs)."""

    @abstractmethod
    def measure(
        self, predictions: FloatArray, y_test: NDArray[Any], test_sizes: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """As `Fleet.measure`."""


@dataclass(frozen=True)
class SoftmaxModel(LossModel):
    """Multinomial regression: probabilities softmax(z'W), w the (p + 1, C) matrix W flattened in C order.

    Parameters
    ----------
    ridge, intercept, spread
        As in `LossModel`.
    classes : sequence of labels, or None
        None: those that occur anywhere in the clients' training or test data.

    Examples
    --------
    >>> SoftmaxModel(ridge=1e-3).ridge
    0.001
    """

    classes: tuple[Any, ...] | None = None

    def settle(self, ys: list[NDArray[Any]]) -> SoftmaxModel:
        """With its classes."""
        return replace(self, classes=settle_classes(ys, self.classes))

    @property
    def n_classes(self) -> int:
        """C."""
        return len(self.classes or ())

    @property
    def n_outputs(self) -> int:
        """C."""
        return self.n_classes

    def encode(self, name: str, y: NDArray[Any]) -> IntArray:
        """Places among the classes."""
        return class_places(name, y, self.classes or ())

    def loss(self, designs: Sequence[FloatArray], targets: Sequence[NDArray[Any]]) -> SampledLoss:
        """`losses.Softmax`."""
        return Softmax(designs, targets, ridge=self.ridge, n_classes=self.n_classes)

    def predict(self, scores: FloatArray) -> FloatArray:
        """Probabilities."""
        result: FloatArray = softmax(scores, axis=1)
        return result

    def measure(
        self, predictions: FloatArray, y_test: NDArray[Any], test_sizes: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Accuracy, and minus the log-likelihood."""
        return judge_classes(predictions, y_test, test_sizes)


@dataclass(frozen=True)
class LinearModel(LossModel):
    """Linear regression: y = z'w + e, loss (z'w - y)^2 / 2; what is measured is the squared error.

    Examples
    --------
    >>> LinearModel(intercept=False).intercept
    False
    """

    def encode(self, name: str, y: NDArray[Any]) -> FloatArray:
        """Numbers."""
        return _checks.as_vector(name, y)

    def loss(self, designs: Sequence[FloatArray], targets: Sequence[NDArray[Any]]) -> SampledLoss:
        """`losses.LeastSquares`."""
        return LeastSquares(designs, targets, ridge=self.ridge)

    def predict(self, scores: FloatArray) -> FloatArray:
        """z'w."""
        return scores

    def measure(
        self, predictions: FloatArray, y_test: NDArray[Any], test_sizes: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """nan, and the squared error."""
        return judge_numbers(predictions, y_test, test_sizes)


@dataclass(frozen=True)
class LogisticModel(LossModel):
    """Logistic regression of y in {-1, 1} (or {0, 1}): loss log(1 + exp(-y z'w)).

    Examples
    --------
    >>> LogisticModel().n_classes
    2
    """

    @property
    def n_classes(self) -> int:
        """2."""
        return 2

    def encode(self, name: str, y: NDArray[Any]) -> FloatArray:
        """Signs."""
        return _signs(name, y)

    def loss(self, designs: Sequence[FloatArray], targets: Sequence[NDArray[Any]]) -> SampledLoss:
        """`losses.Logistic`."""
        return Logistic(designs, targets, ridge=self.ridge)

    def predict(self, scores: FloatArray) -> FloatArray:
        """Probabilities of -1 and of 1."""
        return np.hstack([expit(-scores), expit(scores)])

    def measure(
        self, predictions: FloatArray, y_test: NDArray[Any], test_sizes: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Accuracy, and minus the log-likelihood."""
        return judge_classes(predictions, (y_test > 0).astype(np.int64), test_sizes)


@dataclass(frozen=True)
class SquaredHingeModel(LossModel):
    """Support vector machine for y in {-1, 1} (or {0, 1}): loss max(0, 1 - y z'w)^2.

    Examples
    --------
    >>> SquaredHingeModel(ridge=1e-3).n_classes
    2
    """

    @property
    def n_classes(self) -> int:
        """2."""
        return 2

    def encode(self, name: str, y: NDArray[Any]) -> FloatArray:
        """Signs."""
        return _signs(name, y)

    def loss(self, designs: Sequence[FloatArray], targets: Sequence[NDArray[Any]]) -> SampledLoss:
        """`losses.SquaredHinge`, the bias inside w."""
        return SquaredHinge(designs, targets, ridge=self.ridge, free_bias=False)

    def predict(self, scores: FloatArray) -> FloatArray:
        """z'w."""
        return scores

    def measure(
        self, predictions: FloatArray, y_test: NDArray[Any], test_sizes: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Accuracy of the sign, and the squared hinge."""
        starts = (np.cumsum(test_sizes) - test_sizes).astype(np.int64)
        margin = y_test * predictions[:, 0]
        hits = np.add.reduceat((margin > 0).astype(np.float64), starts)
        return hits / test_sizes, np.add.reduceat(np.maximum(1 - margin, 0) ** 2, starts) / test_sizes


class LossFleet(Fleet):
    """Clients whose losses the core works out together.

    Attributes
    ----------
    loss : NodeLoss
        The f_k as the solvers take them.
    """

    model: LossModel

    def __init__(
        self,
        model: LossModel,
        x: list[FloatArray],
        x_test: list[FloatArray],
        y: list[NDArray[Any]],
        y_test: list[NDArray[Any]],
        n_threads: int,
    ) -> None:
        counts: FloatArray | None = None
        if model.n_classes:
            places = y if isinstance(model, SoftmaxModel) else [(part > 0).astype(np.int64) for part in y]
            counts = np.array([np.bincount(p, minlength=model.n_classes) for p in places], dtype=np.float64)
        super().__init__(model, x[0].shape[1] * model.n_outputs, map(len, x), map(len, x_test), counts)
        self.loss = model.loss(x, y)
        self._y = np.concatenate(y)
        self._y_test = np.concatenate(y_test)
        self._test = Design(np.concatenate(x_test), self.test_sizes.astype(np.int64))
        self._starts = self.loss.offsets
        self._kernel = sample_kernel(self.loss, n_threads)
        # What a call writes there counts in its place only: every call writes the rows of its clients.
        self._weights: FloatArray = np.ones(len(self._y))
        self._weighted = sample_kernel(self.loss, n_threads, weights=self._weights)
        self._reach: FloatArray = np.array([row_norms(rows).max() for rows in x])
        self._n_threads = n_threads

    def first_models(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Independent N(0, spread^2) entries."""
        return self.model.spread * rng.standard_normal((count, self.dim))

    def sample_losses(self, clients: IntArray, models: FloatArray) -> FloatArray:
        """As in `Fleet`."""
        return self._kernel.samples(self._everyone(clients, models), clients)

    def losses(self, clients: IntArray, models: FloatArray) -> FloatArray:
        """As in `Fleet`, the ridge included."""
        return self._kernel.values(self._everyone(clients, models), clients)

    def gradients(
        self, clients: IntArray, models: FloatArray, weights: FloatArray | None = None, rows: Rows = None
    ) -> FloatArray:
        """As in `Fleet`."""
        if rows is None:
            return self._with(clients, weights).gradient(self._everyone(clients, models), clients)
        places = np.concatenate([mine + self._starts[k] for k, mine in zip(clients, rows, strict=True)])
        counts = [len(mine) for mine in rows]
        self._with(clients, weights)
        own = None if weights is None else self._weights[places]
        part = sample_kernel(self.loss.part(places, counts), self._n_threads, weights=own)
        return part.gradient(np.ascontiguousarray(models))

    def descend(
        self,
        clients: IntArray,
        models: FloatArray,
        work: Work,
        rng: np.random.Generator,
        objective: Objective = LOSS,
    ) -> FloatArray:
        """As in `Fleet`; full batches in one call."""
        if work.batch is not None or objective.columns is not None:
            return super().descend(clients, models, work, rng, objective)
        modulus, centre, rates = self.quadratic(clients, work.rate, objective)
        kernel = self._with(clients, objective.weights)
        return kernel.descend(
            self._everyone(clients, models), clients, centre, modulus, rates, self.steps(clients, work)
        )

    def largest_change(self, clients: IntArray, w: FloatArray, g: FloatArray) -> FloatArray:
        """max_s ||z_s|| max_c ||G_c||, which bounds every |z_s'G_c|."""
        columns = np.linalg.norm(g.reshape(len(g), -1, self.model.n_outputs), axis=1)
        result: FloatArray = self._reach[clients] * columns.max(axis=1)
        return result

    def predict(self, clients: IntArray, models: FloatArray) -> FloatArray:
        """As in `Fleet`."""
        w = self._everyone(clients, models).reshape(self.n_clients, -1, self.model.n_outputs)
        if len(clients) == self.n_clients:
            return self.model.predict(self._test.predict(w))
        chosen = np.isin(self._test.nodes, clients)
        return self.model.predict(self._test.predict(w)[chosen])

    def measure(self, predictions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """As in `Fleet`."""
        return self.model.measure(predictions, self._y_test, self.test_sizes)

    def _with(self, clients: IntArray, weights: FloatArray | None) -> SampleKernel:
        """The kernel with these weights of the clients' rows."""
        if weights is None:
            return self._kernel
        if len(weights) == len(self._weights):
            self._weights[:] = weights
        else:
            self._weights[np.isin(self.loss.design.nodes, clients)] = weights
        return self._weighted

    def _everyone(self, clients: IntArray, models: FloatArray) -> FloatArray:
        if len(clients) == self.n_clients and (clients == np.arange(self.n_clients)).all():
            return np.ascontiguousarray(models)
        x = np.zeros((self.n_clients, self.dim))
        x[clients] = models
        return x


def _signs(name: str, y: NDArray[Any]) -> FloatArray:
    return signs(name, _checks.as_vector(name, y))
