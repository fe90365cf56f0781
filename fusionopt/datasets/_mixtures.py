"""Clients whose rows come from several distributions, in shares that differ from client to client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusionopt import _checks
from fusionopt.datasets._clients import ClientData, FloatArray, IntArray, as_records, generator

PARTITIONS = ("10:90", "30:70", "linear", "random")


def mixture_shares(
    partition: str = "10:90",
    n_clients: int = 100,
    n_distributions: int = 2,
    random_state: int | None = None,
) -> FloatArray:
    """Shares of the distributions at each client.

    "10:90"   the first half of the clients has (0.1, 0.9), the second (0.9, 0.1)
    "30:70"   (0.3, 0.7) and (0.7, 0.3)
    "linear"  client k has (s, 1 - s), s = (k + 1/2) / n_clients
    "random"  the pieces into which n_distributions - 1 uniform points cut the unit interval

    Parameters
    ----------
    partition : {"10:90", "30:70", "linear", "random"}
        All but "random" have two distributions.
    n_clients : int >= 1
    n_distributions : int >= 2
    random_state : int >= 0, or None
        Seed of "random"; None draws a new one.

    Returns
    -------
    float64 (n_clients, n_distributions)
        Rows add up to one.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument; other than two distributions without "random".

    References
    ----------
    Ruan and Joe-Wong, FedSoft, experiments.

    Examples
    --------
    >>> mixture_shares("linear", n_clients=2).tolist()
    [[0.25, 0.75], [0.75, 0.25]]
    """
    _checks.check_choice("partition", partition, PARTITIONS)
    count = _checks.as_count("n_clients", n_clients)
    kinds = _checks.as_count("n_distributions", n_distributions, minimum=2)
    rng = generator(random_state)
    if partition == "random":
        cuts = np.sort(rng.random((count, kinds - 1)), axis=1)
        return np.diff(cuts, axis=1, prepend=0.0, append=1.0)
    if kinds != 2:
        _checks.refuse(
            f'partition={partition!r} is for two distributions, not {kinds}; use "random".',
            argument="partition",
            got=partition,
            wanted='"random" for more than two distributions',
        )
    if partition == "linear":
        first = (np.arange(count) + 0.5) / count
    else:
        low = float(partition.split(":")[0]) / 100
        first = np.where(np.arange(count) < count / 2, low, 1 - low)
    return np.stack([first, 1 - first], axis=1)


def make_fedsoft_synthetic(
    partition: str = "10:90",
    n_clients: int = 100,
    n_distributions: int = 2,
    n_features: int = 10,
    scale: float = 10**0.5,
    noise: float = 1.0,
    random_state: int | None = None,
) -> tuple[list[ClientData], FloatArray, FloatArray]:
    """Mixtures of linear regressions: y = <x, theta_s> + noise e with s drawn by the client's shares.

    theta_s has entries N(0, scale^2), x and e are standard normal. Each client has n ~ U{100, ..., 200} training
    rows, shares n of them of distribution s (rounded), and a quarter as many test rows of the same shares.

    Parameters
    ----------
    partition, n_clients, n_distributions
        As in `mixture_shares`.
    n_features : int >= 1
    scale : float >= 0
        The paper prints "sigma_0 = 10"; its code and its Table 1 have variance 10, the default.
    noise : float >= 0
    random_state : int >= 0, or None
        Seed; None draws a new one.

    Returns
    -------
    clients : list of ClientData
        y is float64.
    shares : float64 (n_clients, n_distributions)
    theta : float64 (n_distributions, n_features)
        A model c has mean squared error noise^2 + ||c - theta_s||^2 on distribution s.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument.

    References
    ----------
    Ruan and Joe-Wong, FedSoft, experiments (synthetic data).

    Examples
    --------
    >>> clients, shares, theta = make_fedsoft_synthetic(n_clients=4, random_state=0)
    >>> shares[:, 0].tolist(), theta.shape
    ([0.1, 0.1, 0.9, 0.9], (2, 10))
    """
    shares = mixture_shares(partition, n_clients, n_distributions, random_state)
    p = _checks.as_count("n_features", n_features)
    spread = _checks.as_nonnegative_scalar("scale", scale)
    sigma = _checks.as_nonnegative_scalar("noise", noise)
    # A stream of its own: shares drawn from the first numbers of the same one would tie them to theta.
    rng = generator(random_state).spawn(1)[0]
    theta = spread * rng.standard_normal((n_distributions, p))

    def draw(n: int, share: FloatArray) -> tuple[FloatArray, FloatArray]:
        source = np.repeat(np.arange(len(theta)), amounts(n, share))
        x = rng.standard_normal((n, p))
        y = np.einsum("sp,sp->s", x, theta[source]) + sigma * rng.standard_normal(n)
        order = rng.permutation(n)
        return x[order], y[order]

    clients = []
    for share in shares:
        n = int(rng.integers(100, 201))
        clients.append(ClientData(*draw(n, share), *draw(max(1, n // 4), share)))
    return clients, shares, theta


def split_mixture(
    data: Sequence[ClientData],
    partition: str = "10:90",
    n_clients: int = 100,
    n_samples: tuple[int, int] = (100, 200),
    random_state: int | None = None,
) -> tuple[list[ClientData], FloatArray]:
    """Clients whose rows are drawn from several data sets, for instance upright and turned images.

    A client has n ~ U{n_samples[0], ..., n_samples[1]} training rows, shares n of them of data set s (rounded,
    different rows), and a quarter as many test rows. Clients may share rows.

    Parameters
    ----------
    data : sequence of ClientData
        The distributions, at least two, with the same columns.
    partition, n_clients
        As in `mixture_shares`.
    n_samples : pair of int, 1 <= first <= second
        The second at most the training rows of the smallest data set, and four times its test rows.
    random_state : int >= 0, or None
        Seed; None draws a new one.

    Returns
    -------
    clients : list of ClientData
    shares : float64 (n_clients, len(data))

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument.

    References
    ----------
    Ruan and Joe-Wong, FedSoft, experiments (letters).

    Examples
    --------
    >>> from fusionopt.datasets import load_digits, rotate
    >>> upright, turned = rotate([load_digits()] * 2, n_clusters=2)[0]
    >>> clients, shares = split_mixture([upright, turned], "linear", n_clients=3, random_state=0)
    >>> shares[1].tolist()
    [0.5, 0.5]
    """
    pools = as_records(data)
    shares = mixture_shares(partition, n_clients, len(pools), random_state)
    low = _checks.as_count("n_samples", n_samples[0])
    high = _checks.as_count("n_samples", n_samples[1], minimum=low)
    room = min(min(len(pool.y_train), 4 * len(pool.y_test)) for pool in pools)
    if high > room or len({pool.x_train.shape[1] for pool in pools}) > 1:
        _checks.refuse(
            f"n_samples={n_samples} needs data sets with the same columns and at least {high} training rows and "
            f"{high // 4} test rows each.",
            argument="n_samples",
            got=n_samples,
            wanted=f"at most {room}",
        )
    rng = generator(random_state).spawn(1)[0]
    clients = []
    for share in shares:
        n = int(rng.integers(low, high + 1))
        parts = []
        for part, size in (("train", n), ("test", max(1, n // 4))):
            xs, ys = [], []
            for pool, amount in zip(pools, amounts(size, share).tolist(), strict=True):
                x, y = getattr(pool, f"x_{part}"), getattr(pool, f"y_{part}")
                rows = rng.choice(len(y), amount, replace=False)
                xs.append(x[rows])
                ys.append(y[rows])
            order = rng.permutation(size)
            parts += [np.concatenate(xs)[order], np.concatenate(ys)[order]]
        clients.append(ClientData(*parts))
    return clients, shares


def amounts(n: int, share: FloatArray) -> IntArray:
    """Whole numbers that add up to n, next to n share: running sums are rounded."""
    return np.diff(np.rint(n * np.cumsum(share)[:-1]), prepend=0, append=n).astype(np.int64)
