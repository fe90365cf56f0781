"""Seeded generators with a known partition."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def make_gaussian_groups(
    n: int,
    n_groups: int = 3,
    n_features: int = 2,
    separation: float = 6.0,
    spread: float = 1.0,
    random_state: int | None = None,
) -> tuple[FloatArray, IntArray]:
    """Points around centres: x_i = c_{label(i)} + spread e_i, e_i standard normal.

    The centres stand on the corners of a grid with spacing `separation`, so any two are at least that far
    apart.

    Parameters
    ----------
    n : int >= n_groups
        Number of points; group sizes differ by at most one.
    n_groups, n_features : int >= 1
    separation : float >= 0
        Smallest distance between two centres, in the units of `spread`.
    spread : float > 0
        Standard deviation of each coordinate about its centre.
    random_state : int >= 0, or None
        Seed; None draws a new one.

    Returns
    -------
    x : float64 (n, n_features)
    labels : int64 (n,)
        Group of each row, 0, ..., n_groups - 1; the rows are in random order.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument.

    Examples
    --------
    >>> x, labels = make_gaussian_groups(30, random_state=0)
    >>> x.shape, int(labels.max())
    ((30, 2), 2)
    """
    groups = _checks.as_count("n_groups", n_groups)
    count = _checks.as_count("n", n, minimum=groups)
    d = _checks.as_count("n_features", n_features)
    distance = _checks.as_nonnegative_scalar("separation", separation)
    sigma = _checks.as_positive_scalar("spread", spread)
    rng = _generator(random_state)
    centres = distance * sigma * _grid(groups, d)
    labels = rng.permutation(np.arange(count, dtype=np.int64) % groups)
    return centres[labels] + sigma * rng.standard_normal((count, d)), labels


def make_mixture_regression(
    n_nodes: int,
    n_groups: int = 3,
    n_features: int = 3,
    n_samples: int = 20,
    separation: float = 4.0,
    noise: float = 0.5,
    random_state: int | None = None,
) -> tuple[list[FloatArray], list[FloatArray], IntArray]:
    """One regression for each node, with coefficients shared inside a group: y = Z c_{label(i)} + noise e.

    Parameters
    ----------
    n_nodes : int >= n_groups
        Group sizes differ by at most one.
    n_groups, n_features, n_samples : int >= 1
        n_samples rows for each node; fewer than n_features leaves a node undetermined on its own.
    separation : float >= 0
        Smallest distance between the coefficients of two groups.
    noise : float >= 0
        Standard deviation of the errors.
    random_state : int >= 0, or None
        Seed; None draws a new one.

    Returns
    -------
    designs : list of float64 (n_samples, n_features)
        Standard normal entries.
    targets : list of float64 (n_samples,)
    labels : int64 (n_nodes,)
        Group of each node; the nodes are in random order.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument.

    Examples
    --------
    >>> designs, targets, labels = make_mixture_regression(6, random_state=0)
    >>> len(designs), designs[0].shape, targets[0].shape
    (6, (20, 3), (20,))
    """
    groups = _checks.as_count("n_groups", n_groups)
    count = _checks.as_count("n_nodes", n_nodes, minimum=groups)
    p = _checks.as_count("n_features", n_features)
    rows = _checks.as_count("n_samples", n_samples)
    distance = _checks.as_nonnegative_scalar("separation", separation)
    sigma = _checks.as_nonnegative_scalar("noise", noise)
    rng = _generator(random_state)
    coefficients = distance * _grid(groups, p)
    labels = rng.permutation(np.arange(count, dtype=np.int64) % groups)
    designs = [rng.standard_normal((rows, p)) for _ in range(count)]
    targets = [
        design @ coefficients[label] + sigma * rng.standard_normal(rows)
        for design, label in zip(designs, labels, strict=True)
    ]
    return designs, targets, labels


def _generator(random_state: int | None) -> np.random.Generator:
    if random_state is None:
        return np.random.default_rng()
    return np.random.default_rng(_checks.as_count("random_state", random_state, minimum=0))


def _grid(count: int, d: int) -> FloatArray:
    """`count` points (count, d) with whole coordinates, all different, around the origin."""
    side = 1
    while side**d < count:
        side += 1
    # Mixed-radix digits: any two numbers below side**d differ in a digit.
    digits = np.array(
        [[(k // side**j) % side for j in range(min(d, 60))] for k in range(count)], dtype=np.float64
    )
    points = np.zeros((count, d))
    points[:, : digits.shape[1]] = digits
    centred: FloatArray = points - points.mean(axis=0)
    return centred
