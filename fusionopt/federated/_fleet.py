"""The clients of a simulation and the local work they do: softmax models, one flat vector each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from fusionopt import _checks
from fusionopt.datasets import ClientData

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Fleet:
    """Clients k = 0, ..., m - 1 with f_k(w) = (1/n_k) sum_s [log sum_c exp(z_s'W_c) - z_s'W_{y_s}].

    z is a row of x with a one appended (the intercept); w is the (p + 1, C) matrix W flattened in C order, the
    layout of `losses.Softmax`. The classes are those that occur anywhere in the clients' training or test data.

    Parameters
    ----------
    clients : sequence of records with x_train (n_k, p), y_train (n_k,), x_test, y_test
        Copied.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        No clients, a client whose arrays do not fit together, NaN or Inf, fewer than two classes.
    """

    def __init__(self, clients: Sequence[ClientData]) -> None:
        records = list(clients)
        if not records:
            _checks.refuse(
                "clients is empty; give at least one.",
                argument="clients",
                got=0,
                wanted="at least one client",
            )
        self.x: list[FloatArray] = []
        self.x_test: list[FloatArray] = []
        raw: list[list[NDArray[np.generic]]] = [[], []]
        columns: int | None = None
        for k, record in enumerate(records):
            if not all(hasattr(record, name) for name in ("x_train", "y_train", "x_test", "y_test")):
                _checks.refuse_type(
                    f"clients[{k}] is a {type(record).__name__}; give records with x_train, y_train, x_test and "
                    "y_test, for instance fusionopt.datasets.ClientData.",
                    argument="clients",
                    got=type(record).__name__,
                    wanted="records with x_train, y_train, x_test, y_test",
                )
            for part, rows, ys in (("train", self.x, raw[0]), ("test", self.x_test, raw[1])):
                x = _checks.as_matrix(f"clients[{k}].x_{part}", getattr(record, f"x_{part}"))
                if columns is not None and x.shape[1] != columns:
                    _checks.refuse(
                        f"clients[{k}].x_{part} has {x.shape[1]} columns; the clients before have {columns}.",
                        argument="clients",
                        got=x.shape[1],
                        wanted=f"{columns} columns",
                    )
                columns = x.shape[1]
                name = f"clients[{k}].y_{part}"
                ys.append(_checks.as_labels(name, getattr(record, f"y_{part}"), len(x)))
                rows.append(np.hstack([x, np.ones((len(x), 1))]))
        self.classes = np.unique(np.concatenate([*raw[0], *raw[1]]))
        if len(self.classes) < 2:
            _checks.refuse(
                "clients hold one class only; there is nothing to tell apart.",
                argument="clients",
                got=1,
                wanted="at least two classes",
            )
        self.y = [np.searchsorted(self.classes, y) for y in raw[0]]
        self.y_test = [np.searchsorted(self.classes, y) for y in raw[1]]
        self.sizes: FloatArray = np.array([len(y) for y in self.y], dtype=np.float64)
        self.n_clients = len(records)
        self.n_classes = len(self.classes)
        self.dim = self.x[0].shape[1] * self.n_classes
        self.class_counts: FloatArray = np.array(
            [np.bincount(y, minlength=self.n_classes) for y in self.y], dtype=np.float64
        )

    def first_models(self, rng: np.random.Generator, count: int) -> FloatArray:
        """(count, dim) starting models with independent N(0, 0.1^2) entries."""
        return 0.1 * rng.standard_normal((count, self.dim))

    def sample_losses(self, k: int, w: FloatArray) -> FloatArray:
        """The loss of every training sample of client k, (n_k,)."""
        return self._losses(self.x[k], self.y[k], w)

    def loss(self, k: int, w: FloatArray) -> float:
        """f_k(w)."""
        return float(self.sample_losses(k, w).mean())

    def gradient(
        self, k: int, w: FloatArray, weights: FloatArray | None = None, rows: IntArray | None = None
    ) -> FloatArray:
        """Gradient (dim,) of (1/n) sum_s weights_s loss_s over `rows` (None: all) of client k."""
        x, y = (self.x[k], self.y[k]) if rows is None else (self.x[k][rows], self.y[k][rows])
        slopes: FloatArray = softmax(x @ w.reshape(x.shape[1], -1), axis=1)
        slopes[np.arange(len(y)), y] -= 1.0
        if weights is not None:
            slopes *= weights[:, None]
        result: FloatArray = (x.T @ slopes).ravel() / len(y)
        return result

    def descend(
        self,
        k: int,
        w: FloatArray,
        steps: int,
        rate: float,
        *,
        weights: FloatArray | None = None,
        ridge: float = 0.0,
        pull: float = 0.0,
        towards: FloatArray | None = None,
    ) -> FloatArray:
        """`steps` full-batch proximal gradient steps on f_k(w) + ridge/2 ||w||^2 + pull/2 ||w - towards||^2.

        The quadratic terms are taken implicitly, w <- (w - rate f_k'(w) + rate pull towards) /
        (1 + rate (ridge + pull)): the same minimiser as explicit steps, and stable for any pull.
        """
        shrink = 1.0 / (1.0 + rate * (ridge + pull))
        drift = 0.0 if towards is None else rate * pull * towards
        for _ in range(steps):
            w = (w - rate * self.gradient(k, w, weights) + drift) * shrink
        return w

    def probabilities(self, x: FloatArray, w: FloatArray) -> FloatArray:
        """Softmax probabilities (n, C) of rows that have their one appended."""
        result: FloatArray = softmax(x @ w.reshape(x.shape[1], -1), axis=1)
        return result

    def mean(self, models: FloatArray, members: IntArray, weighting: str) -> FloatArray:
        """Mean of rows: weighted by the members' n_k ("samples") or plain ("uniform")."""
        return np.average(models, axis=0, weights=self.sizes[members] if weighting == "samples" else None)

    def _losses(self, x: FloatArray, y: IntArray, w: FloatArray) -> FloatArray:
        eta = x @ w.reshape(x.shape[1], -1)
        result: FloatArray = logsumexp(eta - eta[np.arange(len(y)), y][:, None], axis=1)
        return result
