"""What a simulation leaves: the rounds, where it ended, and a file from which it goes on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _archive, _checks
from fusionopt.datasets import ClientData
from fusionopt.errors import FusionoptError, InvalidArgumentError
from fusionopt.federated._fleet import FloatArray, IntArray, Model
from fusionopt.federated._placement import Placement, by_loss, by_parameters
from fusionopt.federated._system import State, System
from fusionopt.plotting import dress, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Round(NamedTuple):
    """What is measured after a round.

    round : 1, 2, ...; accuracy : mean over clients of the accuracy on their own test rows; weighted_accuracy :
    the same weighted by their numbers of test rows; loss : mean over clients of minus the log-likelihood of a test
    row (of the squared error, where y are numbers); weighted_loss; n_clusters; ari : adjusted Rand index of the
    clusters against the true ones, where they are known; n_active : clients that answered; bytes_down, bytes_up : of
    this round; seconds : since the start. nan where nothing was measured.
    """

    round: int
    accuracy: float
    weighted_accuracy: float
    loss: float
    weighted_loss: float
    n_clusters: int
    ari: float
    n_active: int
    bytes_down: int
    bytes_up: int
    seconds: float


@dataclass(frozen=True)
class History:
    """What a simulation was and where it ended.

    Attributes
    ----------
    system : System
    rounds : list of Round
    client_accuracies, client_losses : float64 (n_rounds, n_clients)
        On each client's own test rows, after each round; nan in rounds that were not measured.
    client_labels : int64 (n_rounds, n_clients)
        The clusters after each round, numbered by first occurrence.
    state : State
        The system's state: `models`, and what else it keeps.
    model : Model, or None
        None after `load` of a run whose model is not one of fusionopt's own, or holds functions (`TorchModel`).
    sizes : float64 (n_clients,)
        Training rows of each client.
    request : dict
        What the run depends on beside system, model and clients: participation, random_state and so on.
    """

    system: System
    rounds: list[Round]
    client_accuracies: FloatArray
    client_losses: FloatArray
    client_labels: IntArray
    state: State
    model: Model | None
    sizes: FloatArray
    request: dict[str, Any]

    @property
    def final_accuracy(self) -> float:
        """Mean over clients of the accuracy on their own test rows, after the last round that was measured."""
        return self._last("accuracy")

    @property
    def final_loss(self) -> float:
        """The same of the loss."""
        return self._last("loss")

    @property
    def client_accuracy(self) -> FloatArray:
        """float64 (n_clients,), after the last round."""
        result: FloatArray = self.client_accuracies[-1]
        return result

    @property
    def client_loss(self) -> FloatArray:
        """float64 (n_clients,), after the last round."""
        result: FloatArray = self.client_losses[-1]
        return result

    @property
    def labels(self) -> IntArray:
        """int64 (n_clients,): clusters after the last round, numbered by first occurrence."""
        result: IntArray = self.client_labels[-1]
        return result

    @property
    def n_clusters(self) -> int:
        """Number of clusters after the last round."""
        return self.rounds[-1].n_clusters

    @property
    def cluster_models(self) -> FloatArray:
        """float64 (n_clusters, dim): the n_k-weighted mean of the models of each cluster's clients."""
        member = self.labels == np.arange(self.n_clusters)[:, None]
        weights = member * self.sizes
        result: FloatArray = weights / weights.sum(axis=1, keepdims=True) @ self.state.models
        return result

    @property
    def bytes_up(self) -> int:
        """Bytes from the clients to the server, all rounds: 8 for each number, no headers."""
        return sum(record.bytes_up for record in self.rounds)

    @property
    def bytes_down(self) -> int:
        """Bytes from the server to the clients, all rounds; models sent only to be evaluated do not count."""
        return sum(record.bytes_down for record in self.rounds)

    def place(self, clients: Sequence[ClientData]) -> Placement:
        """Clusters of new clients by the loss of `cluster_models` on their training rows: nothing is trained.

        Parameters
        ----------
        clients : sequence of ClientData

        Raises
        ------
        InvalidArgumentError, InvalidTypeError
            Clients that do not fit the model, or no model (see `load`).

        Examples
        --------
        >>> from fusionopt.datasets import make_ellipses
        >>> from fusionopt.federated import Oracle, simulate
        >>> clients, labels = make_ellipses(n_users=4, n_samples=60, random_state=0)
        >>> history = simulate(Oracle(labels=labels[::2], rate=0.5), clients[::2], rounds=30, random_state=0)
        >>> bool((history.place(clients[1::2]).labels == labels[1::2]).all())
        True
        """
        if self.model is None:
            _checks.refuse(
                "this history has no model; give it to History.load(path, model=...).",
                argument="model",
                got=None,
                wanted="the model of the run",
            )
        fleet = self.model.fleet(clients)
        if fleet.dim != self.state.models.shape[1]:
            _checks.refuse(
                f"the models have {self.state.models.shape[1]} parameters, and clients like these need {fleet.dim}; "
                "give rows with as many columns as in the run.",
                argument="clients",
                got=fleet.dim,
                wanted=f"{self.state.models.shape[1]} parameters",
            )
        return by_loss(fleet, self.cluster_models)

    def place_models(self, models: ArrayLike) -> Placement:
        """Clusters of new clients by the distance of models of their own, (n, dim), from `cluster_models`.

        Raises
        ------
        InvalidArgumentError
            Rows of another length, or that are not numbers.
        """
        dim = self.state.models.shape[1]
        return by_parameters(_checks.as_matrix("models", models, n_columns=dim), self.cluster_models)

    def _last(self, name: str) -> float:
        values = [value for record in self.rounds if not np.isnan(value := getattr(record, name))]
        return values[-1] if values else float("nan")

    def to_frame(self) -> Any:
        """One row a round: a pandas DataFrame where pandas is installed, else a dict of arrays."""
        columns = {
            name: np.array([getattr(record, name) for record in self.rounds]) for name in Round._fields
        }
        try:
            import pandas
        except ImportError:
            return columns
        return pandas.DataFrame(columns)

    def plot(self, ax: Axes | None = None, y: str = "accuracy", x: str = "round") -> Axes:
        """One column of `to_frame` against another; without classes, loss stands in for accuracy.

        Parameters
        ----------
        ax : matplotlib axes or None
            None makes a new figure.
        y, x : names of columns
            x may also be "bytes", the traffic so far in both directions.

        Raises
        ------
        MissingDependencyError
            matplotlib is not installed.
        InvalidArgumentError
            Another name.
        """
        _checks.check_choice("y", y, Round._fields)
        _checks.check_choice("x", x, (*Round._fields, "bytes"))
        if y == "accuracy" and np.isnan(self.final_accuracy):
            y = "loss"
        ax = new_axes(ax)
        across = np.array([getattr(record, x, 0) for record in self.rounds], dtype=np.float64)
        if x == "bytes":
            across = np.cumsum([float(record.bytes_up + record.bytes_down) for record in self.rounds])
        values = np.array([getattr(record, y) for record in self.rounds], dtype=np.float64)
        seen = np.isfinite(values)
        ax.plot(across[seen], values[seen], label=type(self.system).__name__)
        title = {
            "accuracy": "Accuracy on the clients' own test rows",
            "loss": "Loss on the clients' own test rows",
            "n_clusters": "Clusters",
            "ari": "Agreement with the true clusters",
        }
        dress(ax, title.get(y, y.replace("_", " ")), x, f"mean {y}" if y in ("accuracy", "loss") else y)
        ax.legend()
        return ax

    def plot_clients(self, ax: Axes | None = None) -> Axes:
        """Accuracy (without classes: loss) of each client against rounds, coloured by the last clusters."""
        values = self.client_losses if np.isnan(self.final_accuracy) else self.client_accuracies
        ax = new_axes(ax)
        seen = np.isfinite(values).all(axis=1)
        across = np.array([record.round for record in self.rounds])[seen]
        for k, label in enumerate(self.labels):
            ax.plot(across, values[seen, k], color=f"C{label % 10}", linewidth=0.8)
        what = "loss" if values is self.client_losses else "accuracy"
        dress(ax, f"{what.capitalize()} of each client on its own test rows", "round", what)
        return ax

    def save(self, path: str | Path) -> None:
        """Write all of it to one .npz file, without pickle; a kill at any moment leaves the old file or none.

        Raises
        ------
        InvalidArgumentError, InvalidTypeError
            A folder that does not exist, or a system that is not one of `fusionopt.federated`.
        """
        _archive.write(as_file("path", path), "History", pack(self))

    @classmethod
    def load(cls, path: str | Path, model: Model | None = None) -> History:
        """What `save` wrote.

        Parameters
        ----------
        path : path
        model : Model, or None
            The model of the run, where it is not one of fusionopt's own (those are in the file).

        Raises
        ------
        InvalidArgumentError, InvalidTypeError
            Not such a file, or what is no model.
        """
        if model is not None:
            _checks.check_instance("model", model, Model, "for instance fusionopt.federated.SoftmaxModel()")
        return unpack(_archive.read(_checks.as_path("path", path), "History"), model)


def as_file(name: str, value: object) -> Path:
    """A path in a folder that exists."""
    path = _checks.as_path(name, value)
    if path.is_dir() or not path.parent.is_dir():
        _checks.refuse(
            f"{name}={str(path)!r} is a folder or lies in none; give a file in a folder that exists.",
            argument=name,
            got=str(path),
            wanted="a file in a folder that exists",
        )
    return path


def pack(history: History) -> dict[str, NDArray[Any]]:
    """As named arrays."""
    head = heading(history.system, history.model, history.request)
    out: dict[str, NDArray[Any]] = {
        "head": np.frombuffer(json.dumps(head).encode(), dtype=np.uint8),
        "client_accuracies": history.client_accuracies,
        "client_losses": history.client_losses,
        "client_labels": history.client_labels,
        "sizes": history.sizes,
    }
    for name in Round._fields:
        out[f"rounds.{name}"] = np.array([getattr(record, name) for record in history.rounds])
    return out | {f"state.{name}": array for name, array in history.state.to_arrays().items()}


def heading(system: System, model: Model | None, request: dict[str, Any]) -> dict[str, Any]:
    """System, model (null where it is not one of fusionopt's, or holds functions) and request, as JSON gives them
    back."""
    head: dict[str, Any] = {
        "system": [known_name(system), _fields(system)],
        "model": None,
        "request": request,
    }
    if model is not None and _library().get(type(model).__name__) is type(model):
        values = _fields(model)
        if not any(map(callable, values.values())):
            head["model"] = [type(model).__name__, values]
    result: dict[str, Any] = json.loads(json.dumps(head))
    return result


def _fields(record: Any) -> dict[str, Any]:
    return {part.name: _plain(getattr(record, part.name)) for part in dataclasses.fields(record)}


def unpack(arrays: dict[str, NDArray[Any]], model: Model | None = None) -> History:
    """From `pack`.

    Raises
    ------
    InvalidArgumentError
        Written by a version whose systems have other settings or states.
    """
    try:
        return _unpacked(arrays, model)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FusionoptError):
            raise
        raise InvalidArgumentError(
            f"the file was written by another version of fusionopt ({type(error).__name__}: {error}); read it with "
            "that version, or run again.",
            argument="path",
            got=str(error),
            wanted="a file written by this version",
        ) from error


def _unpacked(arrays: dict[str, NDArray[Any]], model: Model | None) -> History:
    head = json.loads(arrays["head"].tobytes().decode())
    name, settings = head["system"]
    system = _named(name, System)(**settings)
    if model is None and head["model"] is not None:
        kind, values = head["model"]
        values = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        model = _named(kind, Model)(**values)
    inside = {key.removeprefix("state."): value for key, value in arrays.items() if key.startswith("state.")}
    columns = [arrays[f"rounds.{name}"].tolist() for name in Round._fields]
    return History(
        system=system,
        rounds=[Round(*values) for values in zip(*columns, strict=True)],
        client_accuracies=arrays["client_accuracies"],
        client_losses=arrays["client_losses"],
        client_labels=arrays["client_labels"],
        state=system.state_type.from_arrays(inside),
        model=model,
        sizes=arrays["sizes"],
        request=head["request"],
    )


def known_name(system: System) -> str:
    """The name of a system of fusionopt."""
    name = type(system).__name__
    if _library().get(name) is not type(system):
        _checks.refuse_type(
            f"{name} is not a system of fusionopt.federated and cannot be saved; keep history.rounds yourself.",
            argument="system",
            got=name,
            wanted="a system of fusionopt.federated",
        )
    return name


def _named(name: str, kind: type) -> Any:
    """The class of that name; a file cannot name anything else."""
    found = _library()[name]
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise KeyError(name)
    return found


def _library() -> dict[str, Any]:
    from fusionopt import federated

    return vars(federated)


def _plain(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return value
