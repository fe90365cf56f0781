"""The round loop that all systems share, and the history it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.datasets import ClientData
from fusionopt.federated._fleet import Fleet
from fusionopt.federated._system import State, System
from fusionopt.plotting import dress, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Round(NamedTuple):
    """What is measured after a round.

    round : 1, 2, ...; accuracy : mean over clients of the accuracy on their own test rows; weighted_accuracy :
    the same weighted by their numbers of test rows; loss : mean over clients of minus the log-likelihood of a test
    row; n_clusters; n_active; bytes_down, bytes_up : of this round; seconds : since the start.
    """

    round: int
    accuracy: float
    weighted_accuracy: float
    loss: float
    n_clusters: int
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
    client_accuracy : float64 (n_clients,)
        After the last round, on each client's test rows.
    labels : int64 (n_clients,)
        Clusters after the last round, numbered by first occurrence.
    state : State
        The system's state: `models`, and what else it keeps.
    """

    system: System
    rounds: list[Round]
    client_accuracy: FloatArray
    labels: IntArray
    state: State

    @property
    def final_accuracy(self) -> float:
        """Mean over clients of the accuracy on their own test rows, after the last round."""
        return self.rounds[-1].accuracy

    @property
    def n_clusters(self) -> int:
        """Number of clusters after the last round."""
        return self.rounds[-1].n_clusters

    @property
    def bytes_up(self) -> int:
        """Bytes from the clients to the server, all rounds: 8 for each number, no headers."""
        return sum(record.bytes_up for record in self.rounds)

    @property
    def bytes_down(self) -> int:
        """Bytes from the server to the clients, all rounds; models sent only to be evaluated do not count."""
        return sum(record.bytes_down for record in self.rounds)

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

    def plot(self, ax: Axes | None = None) -> Axes:
        """Accuracy against rounds.

        Parameters
        ----------
        ax : matplotlib axes or None
            None makes a new figure.

        Raises
        ------
        MissingDependencyError
            matplotlib is not installed.
        """
        ax = new_axes(ax)
        ax.plot(
            [record.round for record in self.rounds],
            [record.accuracy for record in self.rounds],
            label=type(self.system).__name__,
        )
        dress(ax, "Accuracy on the clients' own test rows", "round", "mean accuracy")
        ax.legend()
        return ax


def simulate(
    system: System,
    clients: Sequence[ClientData],
    rounds: int,
    participation: float = 1.0,
    random_state: int | None = None,
    callback: Callable[[Round], object] | None = None,
) -> History:
    """Run a federated system on clients that classify with softmax models.

    Parameters
    ----------
    system : System
        For instance ``Ifca(n_clusters=4)``.
    clients : sequence of ClientData
        Records with x_train (n, p), y_train (n,), x_test, y_test; y are class labels. An intercept is added.
    rounds : int >= 1
    participation : float, 0 < participation <= 1
        Share of the clients in a round: round(participation n_clients) of them, at least one, drawn without
        replacement (FedSoft draws for each centre).
    random_state : int >= 0, or None
        Seed of everything random in the run; None draws a new one.
    callback : function of one argument, or None
        Called with the `Round` just done; True stops the run.

    Returns
    -------
    History

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument, or clients whose arrays do not fit together.

    Examples
    --------
    >>> from fusionopt.datasets import make_ellipses
    >>> from fusionopt.federated import Oracle
    >>> clients, labels = make_ellipses(n_users=2, n_samples=40, random_state=0)
    >>> history = simulate(Oracle(labels=labels), clients, rounds=3, random_state=0)
    >>> history.n_clusters, history.bytes_up == 3 * 6 * 6 * 8
    (3, True)
    """
    _checks.check_instance("system", system, System, "for instance fusionopt.federated.FedAvg()")
    total = _checks.as_count("rounds", rounds)
    share = _checks.as_share("participation", participation)
    if random_state is not None:
        random_state = _checks.as_count("random_state", random_state, minimum=0)
    _checks.check_callback(callback)
    fleet = Fleet(clients)
    rng = np.random.default_rng(random_state)
    begin = time.perf_counter()
    count = max(1, round(share * fleet.n_clients))
    state = system.start(fleet, rng)
    records: list[Round] = []
    accuracy: FloatArray = np.empty(0)
    for number in range(1, total + 1):
        active = system.sample(state, fleet, count, rng)
        traffic = system.round(state, fleet, active, rng)
        accuracy, losses = _evaluate(system, state, fleet)
        records.append(
            Round(
                round=number,
                accuracy=float(accuracy.mean()),
                weighted_accuracy=float(np.average(accuracy, weights=[len(y) for y in fleet.y_test])),
                loss=float(losses.mean()),
                n_clusters=len(np.unique(state.labels)),
                n_active=len(active),
                bytes_down=8 * traffic.down,
                bytes_up=8 * traffic.up,
                seconds=time.perf_counter() - begin,
            )
        )
        if callback is not None and _checks.as_stop(callback(records[-1])):
            break
    return History(system, records, accuracy, _by_first(state.labels), state)


def _evaluate(system: System, state: State, fleet: Fleet) -> tuple[FloatArray, FloatArray]:
    """Accuracy and mean loss of each client on its test rows."""
    accuracy, losses = np.empty(fleet.n_clients), np.empty(fleet.n_clients)
    for k, (x, y) in enumerate(zip(fleet.x_test, fleet.y_test, strict=True)):
        chances = system.probabilities(state, fleet, k, x)
        accuracy[k] = np.mean(chances.argmax(axis=1) == y)
        # A probability that underflows to zero counts as the smallest positive number.
        losses[k] = -np.log(np.maximum(chances[np.arange(len(y)), y], np.finfo(np.float64).tiny)).mean()
    return accuracy, losses


def _by_first(labels: IntArray) -> IntArray:
    """The same partition, numbered in the order in which clusters first occur."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    result: IntArray = rank[inverse]
    return result
