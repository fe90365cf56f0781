"""Seeded generators with a known partition."""

from __future__ import annotations

import numpy as np

from fusionopt import _checks
from fusionopt.datasets._clients import ClientData, FloatArray, IntArray, generator


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
    rng = generator(random_state)
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
    rng = generator(random_state)
    coefficients = distance * _grid(groups, p)
    labels = rng.permutation(np.arange(count, dtype=np.int64) % groups)
    designs = [rng.standard_normal((rows, p)) for _ in range(count)]
    targets = [
        design @ coefficients[label] + sigma * rng.standard_normal(rows)
        for design, label in zip(designs, labels, strict=True)
    ]
    return designs, targets, labels


def make_ellipses(
    n_users: int = 20,
    n_samples: int = 10,
    delta: float = 1.62,
    axes: tuple[float, float] = (1.55, 2.2),
    n_clusters: int = 3,
    n_per_class: int = 100,
    n_test: int = 2000,
    random_state: int = 1,
) -> tuple[list[ClientData], IntArray]:
    """Users whose two classes are uniform on two overlapping ellipses, with another axis in each cluster.

    In cluster k, theta = pi/2 + 2 pi k / n_clusters and u = (cos theta, sin theta), class +1 is uniform on the
    ellipse around delta u and class -1 on that around -delta u; the half axes are axes[1] along u and axes[0]
    across. delta < axes[1] makes the classes overlap.

    Parameters
    ----------
    n_users : int >= 1
        Users of each cluster.
    n_samples : int >= 2
        Rows of a user, drawn without replacement from the 2 n_per_class rows of its cluster, drawn again until
        both classes occur; with all rows, the pool of the cluster in another order.
    delta : float >= 0
    axes : pair of floats > 0
    n_clusters, n_per_class, n_test : int >= 1
        n_per_class training rows and n_test test rows for each class of each cluster; users of a cluster share
        the test rows.
    random_state : int >= 0
        Seed s. The pools come from ``default_rng([s, 0])``, the users' draws from ``[s, 1]`` and the test rows
        from ``[s, 2]``, so the pools do not depend on n_users.

    Returns
    -------
    clients : list of ClientData, cluster by cluster
        y is -1.0 or 1.0.
    labels : int64 (n_clusters n_users,)

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument.

    References
    ----------
    Section V and Appendix C of Armacki et al., which do not print their ellipses; the defaults and delta = 2.0,
    axes = (1.5, 2.4), random_state = 4 are two recorded choices that are recovered exactly (docs/recovery.md).

    Examples
    --------
    >>> clients, labels = make_ellipses(n_users=2)
    >>> len(clients), clients[0].x_train.shape, labels.tolist()
    (6, (10, 2), [0, 0, 1, 1, 2, 2])
    """
    users = _checks.as_count("n_users", n_users)
    rows = _checks.as_count("n_samples", n_samples, minimum=2)
    clusters = _checks.as_count("n_clusters", n_clusters)
    pool = _checks.as_count("n_per_class", n_per_class)
    tests = _checks.as_count("n_test", n_test)
    offset = _checks.as_nonnegative_scalar("delta", delta)
    half = _checks.as_vector("axes", axes, length=2, of="axis")
    across, along = (_checks.as_positive_scalar("axes", value) for value in half.tolist())
    seed = _checks.as_count("random_state", random_state, minimum=0)
    if rows > 2 * pool:
        _checks.refuse(
            f"n_samples={rows} is more than the {2 * pool} rows of a cluster; give at most 2 n_per_class.",
            argument="n_samples",
            got=rows,
            wanted=f"at most {2 * pool}",
        )
    train, draw, test = (np.random.default_rng([seed, stream]) for stream in range(3))

    def cluster(rng: np.random.Generator, k: int, n: int) -> tuple[FloatArray, FloatArray]:
        theta = np.pi / 2 + 2 * np.pi * k / clusters
        u = np.array([np.cos(theta), np.sin(theta)])
        # A rotation by theta + pi/2: the axis across u, then -u.
        frame = np.stack([[-u[1], u[0]], -u], axis=1)
        points = []
        for sign in (1.0, -1.0):
            radius, angle = np.sqrt(rng.random(n)), 2 * np.pi * rng.random(n)
            flat = np.stack([across * radius * np.cos(angle), along * radius * np.sin(angle)], axis=1)
            points.append(sign * offset * u + flat @ frame.T)
        return np.concatenate(points), np.repeat([1.0, -1.0], n)

    pools = [cluster(train, k, pool) for k in range(clusters)]
    tested = [cluster(test, k, tests) for k in range(clusters)]
    clients = []
    for (x, y), (x_test, y_test) in zip(pools, tested, strict=True):
        for _ in range(users):
            chosen = draw.choice(len(x), rows, replace=False)
            while np.ptp(y[chosen]) == 0:
                chosen = draw.choice(len(x), rows, replace=False)
            clients.append(ClientData(x[chosen], y[chosen], x_test, y_test))
    return clients, np.repeat(np.arange(clusters), users)


def make_fpfc_synthetic(
    n_clients: int = 100,
    n_clusters: int = 4,
    random_state: int | None = None,
    max_samples: int | None = None,
) -> tuple[list[ClientData], IntArray]:
    """Clients of FPFC's synthetic experiment: 60 features, 10 classes, one softmax model for each cluster.

    n_i = 5 (floor(lognormal(4, 2)) + 50) rows; cluster l has u_l ~ N(0, 1) and W_l (10, 60), b_l with entries
    N(u_l, 1); x ~ Uniform[0, 1)^60, y = argmax(W_l x + b_l + e), e ~ N(0, 0.5^2) for each row and class. A random
    fifth of the rows is for testing.

    Parameters
    ----------
    n_clients : int >= n_clusters
        In contiguous blocks, whose sizes differ by at most one.
    n_clusters : int >= 1
    random_state : int >= 0, or None
        Seed; None draws a new one.
    max_samples : int >= 5, or None
        Cap on n_i, rounded down to a multiple of 5; None is the paper's, with up to tens of thousands of rows.

    Returns
    -------
    clients : list of ClientData
        y is int64, 0, ..., 9.
    labels : int64 (n_clients,)
        Cluster of each client.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument.

    Notes
    -----
    The order of the draws is that of the published generator, on a generator of NumPy's legacy kind with this
    seed; only the split into training and testing uses another stream, so its rows differ.

    References
    ----------
    Yu et al., FPFC (AAAI-23 student abstract), synthetic experiment and its public generator.

    Examples
    --------
    >>> clients, labels = make_fpfc_synthetic(8, random_state=1, max_samples=50)
    >>> clients[0].x_train.shape, labels.tolist()
    ((40, 60), [0, 0, 1, 1, 2, 2, 3, 3])
    """
    clusters = _checks.as_count("n_clusters", n_clusters)
    count = _checks.as_count("n_clients", n_clients, minimum=clusters)
    cap = None if max_samples is None else _checks.as_count("max_samples", max_samples, minimum=5) // 5
    seed = None if random_state is None else _checks.as_count("random_state", random_state, minimum=0)
    rng = np.random.RandomState(seed)
    split = generator(seed)
    fifths = rng.lognormal(4, 2, count).astype(np.int64) + 50
    if cap is not None:
        fifths = np.minimum(fifths, cap)
    labels = np.arange(count, dtype=np.int64) * clusters // count
    means = rng.normal(0, 1, clusters)
    models = [(rng.normal(mean, 1, (10, 60)), rng.normal(mean, 1, 10)) for mean in means]
    clients = []
    for n, label in zip((5 * fifths).tolist(), labels, strict=True):
        W, b = models[label]
        x = rng.uniform(0, 1, (n, 60))
        y = (x @ W.T + b + rng.normal(0, 0.5, (n, 10))).argmax(axis=1)
        order = split.permutation(n)
        train, test = order[n // 5 :], order[: n // 5]
        clients.append(ClientData(x[train], y[train], x[test], y[test]))
    return clients, labels


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
