"""Clusters made of clients that hold alike data: labels exchanged, labels permuted, images turned."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.datasets._clients import ClientData, IntArray, as_clusters, as_records, generator

Array = NDArray[Any]

PAIRS = ((0, 8), (1, 7), (2, 6), (3, 5))


def label_swap(
    clients: Sequence[ClientData],
    n_clusters: int = 4,
    labels: Sequence[int] | IntArray | None = None,
    pairs: Sequence[tuple[int, int]] = PAIRS,
) -> tuple[list[ClientData], IntArray]:
    """Exchange two classes in each cluster: y = a becomes b and y = b becomes a, (a, b) = pairs[cluster].

    Parameters
    ----------
    clients : sequence of ClientData
        Not changed; x is shared, not copied.
    n_clusters : int >= 1
        At most the number of pairs; the first n_clusters of them are used.
    labels : int (n_clients,), or None
        Cluster of each client; None is contiguous blocks whose sizes differ by at most one.
    pairs : sequence of pairs of classes
        The default exchanges p and 8 - p in cluster p = 0, 1, 2, 3.

    Returns
    -------
    clients : list of ClientData
    labels : int64 (n_clients,)

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument; a class of a pair that no client holds.

    References
    ----------
    Yu et al., FPFC, image experiments (the pairs are those of its public code).

    Examples
    --------
    >>> from fusionopt.datasets import load_digits, split_evenly
    >>> clients, labels = label_swap(split_evenly(load_digits(), 8))
    >>> labels.tolist()
    [0, 0, 1, 1, 2, 2, 3, 3]
    """
    records = as_records(clients)
    count = _checks.as_count("n_clusters", n_clusters)
    classes = _classes(records)
    couples = [tuple(np.atleast_1d(pair).tolist()) for pair in pairs][:count]
    for pair in couples:
        if len(pair) != 2 or pair[0] == pair[1] or not np.isin(pair, classes).all():
            _checks.refuse(
                f"pairs holds {pair}; give pairs of two different classes that occur: "
                f"{_checks.shown(classes.tolist())}.",
                argument="pairs",
                got=pair,
                wanted="two classes that occur",
            )
    if len(couples) < count:
        _checks.refuse(
            f"n_clusters={count} needs as many pairs of classes; pairs={_checks.shown(pairs)} has {len(couples)}.",
            argument="pairs",
            got=len(couples),
            wanted=f"{count} pairs",
        )
    clusters = as_clusters(labels, len(records), count)

    def swap(y: Array, cluster: int) -> Array:
        a, b = couples[cluster]
        return np.where(y == a, b, np.where(y == b, a, y)).astype(y.dtype)

    return _change_y(records, clusters, swap), clusters


def permute_labels(
    clients: Sequence[ClientData],
    n_clusters: int = 4,
    labels: Sequence[int] | IntArray | None = None,
    random_state: int | None = None,
) -> tuple[list[ClientData], IntArray]:
    """Permute the classes in each cluster: y becomes P_cluster(y), the permutations random and all different.

    Parameters
    ----------
    clients : sequence of ClientData
        Not changed; x is shared, not copied.
    n_clusters : int >= 1
        At most the number of permutations of the classes that occur.
    labels : int (n_clients,), or None
        Cluster of each client; None is contiguous blocks whose sizes differ by at most one.
    random_state : int >= 0, or None
        Seed; None draws a new one.

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
    Sattler, Mueller and Samek, Clustered Federated Learning, equation (7).

    Examples
    --------
    >>> from fusionopt.datasets import load_digits, split_evenly
    >>> clients, labels = permute_labels(split_evenly(load_digits(), 4), n_clusters=2, random_state=0)
    >>> labels.tolist()
    [0, 0, 1, 1]
    """
    records = as_records(clients)
    count = _checks.as_count("n_clusters", n_clusters)
    classes = _classes(records)
    if count > math.factorial(min(len(classes), 20)):
        _checks.refuse(
            f"n_clusters={count} is more than the permutations of {len(classes)} classes.",
            argument="n_clusters",
            got=count,
            wanted=f"at most {math.factorial(len(classes))}",
        )
    rng = generator(random_state)
    chosen: dict[tuple[int, ...], None] = {}
    while len(chosen) < count:
        chosen[tuple(rng.permutation(len(classes)).tolist())] = None
    orders = [np.array(order) for order in chosen]
    clusters = as_clusters(labels, len(records), count)

    def permute(y: Array, cluster: int) -> Array:
        result: Array = classes[orders[cluster]][np.searchsorted(classes, y)]
        return result

    return _change_y(records, clusters, permute), clusters


def rotate(
    clients: Sequence[ClientData],
    n_clusters: int = 4,
    labels: Sequence[int] | IntArray | None = None,
    shape: tuple[int, int] | None = None,
) -> tuple[list[ClientData], IntArray]:
    """Turn the images of cluster c by 360 c / n_clusters degrees, counter-clockwise.

    Parameters
    ----------
    clients : sequence of ClientData
        A row of x is a square image in C order. Not changed.
    n_clusters : {1, 2, 4}
        Quarter turns move pixels and interpolate nothing; 2 is upright and upside down.
    labels : int (n_clients,), or None
        Cluster of each client; None is contiguous blocks whose sizes differ by at most one.
    shape : pair of int, or None
        Rows and columns of an image; None takes the root of the number of columns of x.

    Returns
    -------
    clients : list of ClientData
    labels : int64 (n_clients,)

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument; images that are not square.

    References
    ----------
    Ghosh et al., IFCA (rotated MNIST); Ruan and Joe-Wong, FedSoft (quarter turns); Sattler et al. (half turns).

    Examples
    --------
    >>> from fusionopt.datasets import load_digits, split_evenly
    >>> clients, labels = rotate(split_evenly(load_digits(), 4), n_clusters=2)
    >>> labels.tolist(), clients[3].x_train.shape[1]
    ([0, 0, 1, 1], 64)
    """
    records = as_records(clients)
    count = _checks.as_count("n_clusters", n_clusters)
    if count not in (1, 2, 4):
        _checks.refuse(
            f"n_clusters={count} would need turns that interpolate; give 1, 2 or 4.",
            argument="n_clusters",
            got=count,
            wanted="1, 2 or 4",
        )
    columns = records[0].x_train.shape[1]
    side = math.isqrt(columns)
    height, width = (side, side) if shape is None else shape
    if height != width or height * width != columns:
        _checks.refuse(
            f"rows of {columns} numbers are no square images"
            f"{'' if shape is None else f' of shape {shape}'}; give images with as many rows as columns.",
            argument="shape",
            got=shape,
            wanted="a square image in each row of x",
        )
    clusters = as_clusters(labels, len(records), count)

    def turn(x: Array, cluster: int) -> Array:
        images = np.rot90(x.reshape(-1, height, width), k=cluster * (4 // count), axes=(1, 2))
        return np.ascontiguousarray(images).reshape(x.shape)

    turned = [
        record._replace(x_train=turn(record.x_train, cluster), x_test=turn(record.x_test, cluster))
        for record, cluster in zip(records, clusters.tolist(), strict=True)
    ]
    return turned, clusters


def _classes(records: list[ClientData]) -> Array:
    return np.unique(np.concatenate([np.concatenate([r.y_train, r.y_test]) for r in records]))


def _change_y(
    records: list[ClientData], clusters: IntArray, change: Callable[[Array, int], Array]
) -> list[ClientData]:
    return [
        record._replace(y_train=change(record.y_train, cluster), y_test=change(record.y_test, cluster))
        for record, cluster in zip(records, clusters.tolist(), strict=True)
    ]
