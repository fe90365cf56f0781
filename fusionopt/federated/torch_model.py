"""Any `torch.nn.Module` as the clients' model; torch is imported when one is used."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.datasets import ClientData
from fusionopt.errors import InvalidArgumentError, MissingDependencyError
from fusionopt.federated._fleet import (
    FloatArray,
    IntArray,
    Model,
    check_records,
    class_places,
    judge_classes,
    judge_numbers,
    settle_classes,
)
from fusionopt.federated._loop_fleet import LocalWork, LoopFleet

CHUNK = 1024
"""Rows that pass through a module at once where no gradient is kept; it bounds memory, not results."""


@dataclass(frozen=True)
class TorchModel(Model):
    """Models that are modules of PyTorch, parameters as one flat vector in the order of ``module.parameters()``.

    Parameters
    ----------
    build : function without arguments that returns a torch.nn.Module
        Called for every random start, for instance the class of the module, or `mnist_cnn`. Parameters that need no
        gradient stay as they are built first.
    loss : {"cross_entropy", "squared"}
        y are classes and the module returns one score for each; or y are numbers, the module returns one, and the
        loss is half the squared error.
    shape : tuple of int, or None
        Shape of one row for the module, such as (1, 28, 28); None gives it the row of x.
    optimizer : function of (parameters, lr=rate) that returns a torch optimizer, or None
        None is stochastic gradient descent with the quadratic terms taken implicitly (`Fleet.descend`). An
        optimizer, such as ``torch.optim.Adam``, steps on the gradient of the whole proximal objective f_k(w) +
        ridge/2 ||w||^2 + pull/2 ||w - towards||^2; its memory starts anew in every round.
    dtype : {"float32", "float64"}
        Of the module's arithmetic.
    classes : sequence of labels, or None
        None: those that occur anywhere in the clients' training or test data.

    Raises
    ------
    MissingDependencyError
        torch is not installed (``pip install "fusionopt[torch]"``).
    InvalidArgumentError, InvalidTypeError
        A module instead of a function; a module with buffers (running means belong to no client).

    Notes
    -----
    Gradients and losses are those of the module in evaluation mode; local work trains it, so dropout is at work
    there, seeded by the round. torch works on one thread in each of `n_threads` processes (`LoopFleet`), and one seed
    gives one history for any number.

    Examples
    --------
    >>> TorchModel(mnist_cnn, shape=(1, 28, 28)).loss
    'cross_entropy'
    """

    build: Callable[[], Any]
    loss: str = "cross_entropy"
    shape: tuple[int, ...] | None = None
    optimizer: Callable[..., Any] | None = None
    dtype: str = "float32"
    classes: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if hasattr(self.build, "named_parameters") and not isinstance(self.build, type):
            _checks.refuse_type(
                "build is a module; give a function that makes one, for instance its class, because every random "
                "start needs a new one.",
                argument="build",
                got=type(self.build).__name__,
                wanted="a function without arguments",
            )
        _checks.check_callable("build", self.build)
        _checks.check_choice("loss", self.loss, ("cross_entropy", "squared"))
        _checks.check_choice("dtype", self.dtype, ("float32", "float64"))
        if self.optimizer is not None:
            _checks.check_callable("optimizer", self.optimizer)
        for length in self.shape or ():
            _checks.as_count("shape", length)

    def fleet(self, clients: Sequence[ClientData], n_threads: int = 1) -> TorchFleet:
        """These clients with this model."""
        return TorchFleet(self, check_records(clients), n_threads)

    def settle(self, ys: list[NDArray[Any]]) -> TorchModel:
        """With the classes that occur."""
        if self.loss == "squared":
            return self
        return replace(self, classes=settle_classes(ys, self.classes))


def mnist_cnn() -> Any:
    """A small network for 28 x 28 images and ten classes: two convolutions (5 x 5, stride 2), two linear layers.

    Layers conv1 (8 channels), conv2 (16), fc1 (64) and fc2 (10) with ReLU between; 20522 parameters. Strides in
    place of pooling halve the time on a CPU.

    Examples
    --------
    >>> import pytest
    >>> torch = pytest.importorskip("torch")
    >>> mnist_cnn()(torch.zeros(3, 1, 28, 28)).shape
    torch.Size([3, 10])
    """
    nn = import_torch().nn
    layers = [
        ("conv1", nn.Conv2d(1, 8, 5, stride=2)),
        ("relu1", nn.ReLU()),
        ("conv2", nn.Conv2d(8, 16, 5, stride=2)),
        ("relu2", nn.ReLU()),
        ("flat", nn.Flatten()),
        ("fc1", nn.Linear(256, 64)),
        ("relu3", nn.ReLU()),
        ("fc2", nn.Linear(64, 10)),
    ]
    return nn.Sequential(OrderedDict(layers))


def import_torch() -> Any:
    """torch, or one sentence that says how to get it."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependencyError(
            'TorchModel needs PyTorch, which is not installed; install it with: pip install "fusionopt[torch]"',
            package="torch",
        ) from error
    return torch


class TorchFleet(LoopFleet):
    """Clients one after the other through one module, whose parameters are views of one flat tensor."""

    model: TorchModel

    def __init__(self, model: TorchModel, records: list[ClientData], n_threads: int) -> None:
        self.torch = import_torch()
        xs, ys = [[f"{axis}_{part}" for part in ("train", "test")] for axis in "xy"]
        labels = {
            name: [_checks.as_labels(f"clients[{k}].{name}", getattr(r, name)) for k, r in enumerate(records)]
            for name in ys
        }
        model = model.settle([y for name in ys for y in labels[name]])
        self._type = getattr(self.torch, model.dtype)
        self._shared: dict[int, tuple[object, Any]] = {}
        self._columns = 0
        self._x, self._x_test = (
            [self._rows(f"clients[{k}].{name}", getattr(r, name), model) for k, r in enumerate(records)]
            for name in xs
        )
        self._y, self._y_test = (
            [self._targets(f"clients[{k}].{name}", y, model) for k, y in enumerate(labels[name])]
            for name in ys
        )
        self._shared.clear()
        for name, rows in zip(ys, (self._x, self._x_test), strict=True):
            for k, x in enumerate(rows):
                _checks.as_labels(f"clients[{k}].{name}", labels[name][k], len(x))
        self.model = model
        self._module = self._built(0)
        self._flatten()
        self._try_out()
        counts: FloatArray | None = None
        if model.classes is not None:
            places = [np.bincount(y.numpy(), minlength=len(model.classes)) for y in self._y]
            counts = np.array(places, dtype=np.float64)
        super().__init__(model, len(self._flat), map(len, self._y), map(len, self._y_test), counts, n_threads)

    def first_models(self, rng: np.random.Generator, count: int) -> FloatArray:
        """As the module starts itself."""
        models = np.empty((count, self.dim))
        for row in models:
            built = self._built(int(rng.integers(2**62)))
            parts = [p.detach().reshape(-1) for p in built.parameters() if p.requires_grad]
            row[:] = self.torch.cat(parts).double().numpy()
        return models

    def columns(self, layers: Sequence[str]) -> IntArray:
        """Where in w the parameters of these layers are, such as "fc2" or "fc2.weight"."""
        names = [(name, p.numel()) for name, p in self._module.named_parameters() if p.requires_grad]
        ends = np.cumsum([count for _, count in names])
        found: list[IntArray] = []
        for layer in layers:
            mine = [
                np.arange(end - count, end)
                for (name, count), end in zip(names, ends, strict=True)
                if name == layer or name.startswith(f"{layer}.")
            ]
            if not mine:
                known = ", ".join(name for name, _ in names)
                _checks.refuse(
                    f"layers names {layer!r}, which is no layer; the parameters are {known}.",
                    argument="layers",
                    got=layer,
                    wanted=known,
                )
            found += mine
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *found]))

    def client_losses(self, k: int, w: FloatArray) -> FloatArray:
        """The loss of every training row, (n_k,)."""
        with self._at(w), self.torch.no_grad():
            parts = [
                self._losses(x, y)
                for x, y in zip(self._x[k].split(CHUNK), self._y[k].split(CHUNK), strict=True)
            ]
            return _numbers(self.torch.cat(parts))

    def client_gradient(
        self, k: int, w: FloatArray, weights: FloatArray | None, rows: IntArray | None
    ) -> FloatArray:
        """Gradient (dim,) of (1/n) sum_s weights_s loss_s over `rows` of client k; weights are those of all rows."""
        x, y = self._x[k], self._y[k]
        if rows is not None:
            x, y, weights = x[rows], y[rows], None if weights is None else weights[rows]
        scale = None if weights is None else self._tensor(weights)
        with self._at(w):
            self._backward(x, y, scale)
            return _numbers(self._slope)

    def client_predictions(self, k: int, w: FloatArray) -> FloatArray:
        """Probabilities of the classes, or numbers, of client k's test rows."""
        with self._at(w), self.torch.no_grad():
            out = self.torch.cat([self._module(x) for x in self._x_test[k].split(CHUNK)])
            if self.model.classes is not None:
                out = out.double().softmax(dim=1)
            return _numbers(out.reshape(len(out), -1))

    def client_descent(self, k: int, w: FloatArray, work: LocalWork) -> FloatArray:
        """All steps of client k in the module, by the optimizer where there is one."""
        scale = None if work.weights is None else self._tensor(work.weights)
        felt, anchor = self._tensor(work.modulus), self._tensor(work.centre)
        step = self._stepper(work.rate, work.rate / (1 + work.rate * felt) if work.implicit else work.rate)
        with self._at(w), self._training(work.seed):
            for turn in range(work.steps):
                rows = slice(None) if work.rows is None else self.torch.from_numpy(work.rows[turn])
                self._backward(self._x[k][rows], self._y[k][rows], None if scale is None else scale[rows])
                if work.modulus.any():
                    self._slope.addcmul_(felt, self._flat - anchor)
                step()
            return _numbers(self._flat)

    def begin_worker(self) -> None:
        """One thread for torch: those of the parent are not there, and waiting for them would be for ever."""
        self.torch.set_num_threads(1)

    def measure(self, predictions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Accuracy (nan without classes), and minus the log-likelihood or the squared error."""
        y = np.concatenate([part.numpy() for part in self._y_test])
        if self.model.classes is not None:
            return judge_classes(predictions, y, self.test_sizes)
        return judge_numbers(predictions, y, self.test_sizes)

    def _stepper(self, rate: float, length: Any) -> Callable[[], object]:
        """A step along `_slope`: the optimizer's, or w <- w - length slope."""
        if self.model.optimizer is not None:
            stepper: Callable[[], object] = self.model.optimizer(self._parameters, lr=rate).step
            return stepper
        return lambda: self._flat.sub_(self._slope * length)

    def _losses(self, x: Any, y: Any) -> Any:
        out = self._module(x)
        if self.model.classes is not None:
            return self.torch.nn.functional.cross_entropy(out, y, reduction="none")
        return 0.5 * (out.reshape(len(y)) - y) ** 2

    def _backward(self, x: Any, y: Any, scale: Any) -> None:
        """The gradient of the mean of scale_s loss_s into `_slope`."""
        self._slope.zero_()
        losses = self._losses(x, y)
        (losses if scale is None else losses * scale).mean().backward()

    @contextmanager
    def _at(self, w: FloatArray) -> Iterator[None]:
        """The module with parameters w, on one thread."""
        before = self.torch.get_num_threads()
        self.torch.set_num_threads(1)
        try:
            with self.torch.no_grad():
                self._flat.copy_(self.torch.tensor(w))
            with self.torch.enable_grad():
                yield
        finally:
            self.torch.set_num_threads(before)

    @contextmanager
    def _training(self, seed: int) -> Iterator[None]:
        """The module in training mode; what it draws comes from the seed and leaves torch's own stream alone."""
        self._module.train()
        try:
            with self._seeded(seed):
                yield
        finally:
            self._module.eval()

    @contextmanager
    def _seeded(self, seed: int) -> Iterator[None]:
        """torch's own stream of the CPU from a seed, and as it was afterwards."""
        before = self.torch.get_rng_state()
        self.torch.default_generator.manual_seed(seed)  # torch.manual_seed writes a traceback at every call
        try:
            yield
        finally:
            self.torch.set_rng_state(before)

    def _built(self, seed: int) -> Any:
        """A new module, random from the seed, in evaluation mode."""
        with self._seeded(seed):
            module = self.model.build()
        if not isinstance(module, self.torch.nn.Module):
            _checks.refuse_type(
                f"build returned a {type(module).__name__}; it must return a torch.nn.Module.",
                argument="build",
                got=type(module).__name__,
                wanted="a torch.nn.Module",
            )
        return module.to(self._type).eval()

    def _flatten(self) -> None:
        """Make the module's parameters and their gradients views of two flat tensors."""
        own = [p for p in self._module.parameters() if p.requires_grad]
        if not own:
            _checks.refuse(
                "build returned a module without parameters to train.",
                argument="build",
                got=0,
                wanted="a module with parameters",
            )
        self._flat = self.torch.cat([p.detach().reshape(-1) for p in own])
        self._slope = self.torch.zeros_like(self._flat)
        place = 0
        for p in own:
            here = slice(place, place + p.numel())
            p.data, p.grad = self._flat[here].view(p.shape), self._slope[here].view(p.shape)
            place += p.numel()
        self._parameters = own

    def _try_out(self) -> None:
        """Two rows through the module: it takes them, answers in the right shape, and keeps nothing of them."""
        x = self._x[0][:1].repeat(2, *[1] * (self._x[0].ndim - 1))
        before = [buffer.clone() for buffer in self._module.buffers()]
        try:
            with self._training(0), self.torch.no_grad():
                out = self._module(x)
        except Exception as error:
            raise InvalidArgumentError(
                f"the module cannot take rows of shape {tuple(x.shape[1:])} ({error}); give their shape, for instance "
                "TorchModel(..., shape=(1, 28, 28)).",
                argument="shape",
                got=tuple(x.shape[1:]),
                wanted="a shape that the module takes",
            ) from error
        wanted = (2, len(self.model.classes)) if self.model.classes is not None else (2,)
        if tuple(out.shape) != wanted and not (self.model.classes is None and tuple(out.shape) == (2, 1)):
            _checks.refuse(
                f"the module answers two rows with shape {tuple(out.shape)}; the loss {self.model.loss!r} needs "
                f"{wanted}{': one score for each class' if self.model.classes is not None else ''}.",
                argument="build",
                got=tuple(out.shape),
                wanted=str(wanted),
            )
        if any((a != b).any() for a, b in zip(before, self._module.buffers(), strict=True)):
            _checks.refuse(
                "the module keeps running averages of what it sees (BatchNorm does): they would belong to no client; "
                "use a module without them, for instance with GroupNorm.",
                argument="build",
                got="buffers that change",
                wanted="a module without running averages",
            )

    def _rows(self, name: str, value: object, model: TorchModel) -> Any:
        """x as a tensor; clients that hold one array share one tensor."""
        if id(value) in self._shared:
            return self._shared[id(value)][1]
        x = _checks.as_matrix(name, value, n_columns=self._columns or None)
        self._columns = x.shape[1]
        shape = model.shape or (self._columns,)
        if math.prod(shape) != self._columns:
            _checks.refuse(
                f"shape={shape} has {math.prod(shape)} entries; the rows of {name} have {self._columns}.",
                argument="shape",
                got=shape,
                wanted=f"{self._columns} entries",
            )
        tensor = self._tensor(x).reshape(len(x), *shape)
        self._shared[id(value)] = value, tensor  # the array is kept, lest another gets its id
        return tensor

    def _targets(self, name: str, y: NDArray[Any], model: TorchModel) -> Any:
        if model.classes is None:
            return self._tensor(_checks.as_vector(name, y))
        return self.torch.from_numpy(class_places(name, y, model.classes))

    def _tensor(self, array: FloatArray) -> Any:
        return self.torch.tensor(array, dtype=self._type)


def _numbers(tensor: Any) -> FloatArray:
    result: FloatArray = tensor.detach().double().numpy().copy()
    return result
