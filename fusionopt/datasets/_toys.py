"""The two toy problems of clustered federated learning: no single model fits, each cluster alone is easy."""

from __future__ import annotations

import numpy as np

from fusionopt import _checks
from fusionopt.datasets._clients import ClientData, FloatArray, IntArray, generator


def make_xor(
    n_clients: int = 20, n_samples: int = 100, spread: float = 0.3, random_state: int | None = None
) -> tuple[list[ClientData], IntArray]:
    """Federated XOR: together the clients pose XOR, which no linear model solves; each cluster is linear.

    The clients of cluster 0 have points around (1, 1), class 0, and (1, -1), class 1; those of cluster 1 around
    (-1, -1), class 0, and (-1, 1), class 1.

    Parameters
    ----------
    n_clients : int >= 2
        In two contiguous blocks.
    n_samples : int >= 2
        Rows of a client, for training and again for testing; the classes take turns.
    spread : float >= 0
        Standard deviation of each coordinate about its centre.
    random_state : int >= 0, or None
        Seed; None draws a new one.

    Returns
    -------
    clients : list of ClientData
        y is int64, 0 or 1.
    labels : int64 (n_clients,)

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument.

    References
    ----------
    Sattler, Mueller and Samek, Clustered Federated Learning, Figure 1 left (its numbers are not printed).

    Examples
    --------
    >>> clients, labels = make_xor(4, random_state=0)
    >>> labels.tolist(), clients[0].x_train.shape
    ([0, 0, 1, 1], (100, 2))
    """
    side = np.array([1.0, -1.0])
    centres = np.array([[[s, s], [s, -s]] for s in side])
    return _make(centres, np.array([[0, 1], [0, 1]]), n_clients, n_samples, spread, random_state)


def make_conflict(
    n_clients: int = 20, n_samples: int = 100, spread: float = 0.3, random_state: int | None = None
) -> tuple[list[ClientData], IntArray]:
    """The same x in both clusters and opposite classes: no model of any kind fits all clients.

    All clients have points around (1, 0) and (-1, 0); in cluster 0 the classes are 0 and 1, in cluster 1 they are 1
    and 0.

    Parameters
    ----------
    n_clients, n_samples, spread, random_state
        As in `make_xor`.

    Returns
    -------
    clients : list of ClientData
    labels : int64 (n_clients,)

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument.

    References
    ----------
    Sattler, Mueller and Samek, Clustered Federated Learning, Figure 1 right (its numbers are not printed).

    Examples
    --------
    >>> make_conflict(4, random_state=0)[1].tolist()
    [0, 0, 1, 1]
    """
    centres = np.array([[[1.0, 0.0], [-1.0, 0.0]]] * 2)
    return _make(centres, np.array([[0, 1], [1, 0]]), n_clients, n_samples, spread, random_state)


def _make(
    centres: FloatArray,
    classes: IntArray,
    n_clients: int,
    n_samples: int,
    spread: float,
    random_state: int | None,
) -> tuple[list[ClientData], IntArray]:
    """centres (cluster, which, 2) and their classes (cluster, which); the rows of a client take turns."""
    count = _checks.as_count("n_clients", n_clients, minimum=2)
    rows = _checks.as_count("n_samples", n_samples, minimum=2)
    sigma = _checks.as_nonnegative_scalar("spread", spread)
    rng = generator(random_state)
    labels = np.arange(count, dtype=np.int64) * 2 // count
    which = np.arange(rows) % 2
    clients = []
    for label in labels:
        x, x_test = (centres[label, which] + sigma * rng.standard_normal((rows, 2)) for _ in range(2))
        y = classes[label, which].astype(np.int64)
        clients.append(ClientData(x, y, x_test, y.copy()))
    return clients, labels
