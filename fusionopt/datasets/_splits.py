"""One data set dealt out to clients: evenly, by Dirichlet shares of each class, or with few classes a client."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.datasets._clients import ClientData, FloatArray, IntArray, as_record, generator


def split_evenly(data: ClientData, n_clients: int = 20, random_state: int | None = None) -> list[ClientData]:
    """Deal the rows out at random, training and test rows each; sizes differ by at most one.

    Parameters
    ----------
    data : ClientData
        For instance from `load_mnist`.
    n_clients : int >= 1
        At most the number of training rows and of test rows.
    random_state : int >= 0, or None
        Seed; None draws a new one.

    Returns
    -------
    list of ClientData

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument; fewer rows than clients.

    References
    ----------
    Sattler, Mueller and Samek, Clustered Federated Learning, section 4.

    Examples
    --------
    >>> from fusionopt.datasets import load_digits
    >>> [len(client.y_train) for client in split_evenly(load_digits(), 4, random_state=0)]
    [360, 360, 359, 359]
    """
    record = as_record("data", data)
    count = _count(record, n_clients)
    rng = generator(random_state)
    parts = [np.array_split(rng.permutation(len(y)), count) for y in (record.y_train, record.y_test)]
    return _deal(record, parts[0], parts[1])


def split_dirichlet(
    data: ClientData,
    n_clients: int = 20,
    alpha: float = 1.0,
    independent_test: bool = False,
    random_state: int | None = None,
) -> list[ClientData]:
    """Deal each class out by shares q ~ Dirichlet(alpha, ..., alpha) over the clients.

    Parameters
    ----------
    data : ClientData
        For instance from `load_mnist`.
    n_clients : int >= 1
        At most the number of training rows and of test rows.
    alpha : float > 0
        Small: a class is with few clients; large: every client has all classes alike.
    independent_test : bool
        False: the test rows follow the shares of the training rows, so a client is tested on what it trains for.
        True: they have shares of their own, as in FPFC's public code.
    random_state : int >= 0, or None
        Seed; None draws a new one.

    Returns
    -------
    list of ClientData
        Every row is dealt out once. A client that would have none gets one from the client with the most.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument; fewer rows than clients.

    References
    ----------
    Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution; FPFC's label swap uses alpha = 1.

    Examples
    --------
    >>> from fusionopt.datasets import load_digits
    >>> clients = split_dirichlet(load_digits(), 5, random_state=0)
    >>> sum(len(client.y_train) for client in clients)
    1438
    """
    record = as_record("data", data)
    count = _count(record, n_clients)
    concentration = _checks.as_positive_scalar("alpha", alpha)
    rng = generator(random_state)
    classes = np.unique(np.concatenate([record.y_train, record.y_test]))

    def draw() -> FloatArray:
        return rng.dirichlet(np.full(count, concentration), len(classes))

    shares = draw()
    train = _by_shares(record.y_train, classes, shares, rng)
    if _checks.as_flag("independent_test", independent_test):
        shares = draw()
    return _deal(record, train, _by_shares(record.y_test, classes, shares, rng))


def split_imbalanced(
    data: ClientData, n_clients: int = 100, n_classes: int = 10, random_state: int | None = None
) -> list[ClientData]:
    """RFedAvg's split: each device has `n_classes` classes, most rows of a dominant one.

    The dominant class is N(5, 10) rounded and clipped to 1, ..., C (a place in the sorted classes, C of them). The
    device draws n_classes whole numbers from 1, ..., 99; the largest is its number of rows of the dominant class,
    the others are those of other classes, drawn without replacement.

    Parameters
    ----------
    data : ClientData
        For instance from `load_mnist`.
    n_clients : int >= 1
        At most the number of test rows.
    n_classes : int, 1 <= n_classes <= C
        The paper's B.
    random_state : int >= 0, or None
        Seed; None draws a new one.

    Returns
    -------
    list of ClientData
        Devices share training rows only where a class has too few for all of them. The test rows are dealt out
        evenly and have all classes: the mean accuracy of one model over equal shares is that on the whole test set.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument; a class with fewer than 99 training rows.

    Notes
    -----
    The paper draws from U(0, 100) and "limits" the normal numbers to 1, ..., 10; whether it clips or draws again
    is not said, nor how the test rows are used.

    References
    ----------
    Wang, Zhang and Tao, Adaptive Clustering-Based Model Aggregation, section IV.C.

    Examples
    --------
    >>> from fusionopt.datasets import load_digits
    >>> clients = split_imbalanced(load_digits(), 10, n_classes=2, random_state=0)
    >>> [len(np.unique(client.y_train)) for client in clients[:3]]
    [2, 2, 2]
    """
    record = as_record("data", data)
    count = _count(record, n_clients)
    wanted = _checks.as_count("n_classes", n_classes)
    classes, sizes = np.unique(record.y_train, return_counts=True)
    if wanted > len(classes):
        _checks.refuse(
            f"n_classes={wanted} is more than the {len(classes)} classes of the training rows.",
            argument="n_classes",
            got=wanted,
            wanted=f"at most {len(classes)}",
        )
    if sizes.min() < 99:
        _checks.refuse(
            f"class {classes[sizes.argmin()]} has {sizes.min()} training rows; a device may need 99 of one class.",
            argument="data",
            got=int(sizes.min()),
            wanted="at least 99 training rows of each class",
        )
    rng = generator(random_state)
    decks = [_Deck(np.flatnonzero(record.y_train == label), rng) for label in classes]
    train = []
    for dominant in np.clip(np.rint(rng.normal(5.0, np.sqrt(10.0), count)), 1, len(classes)).astype(int) - 1:
        amounts = np.sort(rng.integers(1, 100, wanted))[::-1]
        others = rng.permutation(np.delete(np.arange(len(classes)), dominant))[: wanted - 1]
        held = [decks[c].take(n) for c, n in zip([dominant, *others], amounts.tolist(), strict=True)]
        train.append(np.concatenate(held))
    test = np.array_split(rng.permutation(len(record.y_test)), count)
    return _deal(record, train, test)


class _Deck:
    """Rows in random order, dealt from the top; shuffled anew when they do not suffice."""

    def __init__(self, rows: IntArray, rng: np.random.Generator) -> None:
        self.rows, self.rng, self.place = rng.permutation(rows), rng, 0

    def take(self, n: int) -> IntArray:
        if self.place + n > len(self.rows):
            self.rows, self.place = self.rng.permutation(self.rows), 0
        self.place += n
        result: IntArray = self.rows[self.place - n : self.place]
        return result


def _count(record: ClientData, n_clients: int) -> int:
    count = _checks.as_count("n_clients", n_clients)
    rows = min(len(record.y_train), len(record.y_test))
    if count > rows:
        _checks.refuse(
            f"n_clients={count} is more than the {rows} rows to deal out; every client needs one of each part.",
            argument="n_clients",
            got=count,
            wanted=f"at most {rows}",
        )
    return count


def _by_shares(
    y: NDArray[Any], classes: NDArray[Any], shares: FloatArray, rng: np.random.Generator
) -> list[IntArray]:
    """Rows of each client, class by class in random order, cut at the rounded running sums of the shares."""
    parts: list[list[IntArray]] = [[] for _ in range(shares.shape[1])]
    for label, share in zip(classes, shares, strict=True):
        rows = rng.permutation(np.flatnonzero(y == label))
        cuts = np.rint(np.cumsum(share)[:-1] * len(rows)).astype(np.int64)
        for part, piece in zip(parts, np.split(rows, cuts), strict=True):
            part.append(piece)
    dealt = [np.concatenate(part) for part in parts]
    for k in range(len(dealt)):
        if len(dealt[k]) == 0:
            richest = max(range(len(dealt)), key=lambda j: len(dealt[j]))
            dealt[k], dealt[richest] = dealt[richest][-1:], dealt[richest][:-1]
    return dealt


def _deal(record: ClientData, train: list[IntArray], test: list[IntArray]) -> list[ClientData]:
    return [
        ClientData(record.x_train[a], record.y_train[a], record.x_test[b], record.y_test[b])
        for a, b in zip(train, test, strict=True)
    ]
