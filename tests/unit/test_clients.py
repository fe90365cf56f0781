"""Data dealt out to clients, and clusters made of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fusionopt import datasets as ds
from fusionopt.datasets import ClientData
from fusionopt.datasets._mixtures import amounts
from fusionopt.errors import InvalidArgumentError, InvalidTypeError


@pytest.fixture(scope="module")
def pool():
    """x tells which row it is."""
    x, y = np.arange(1000.0)[:, None], np.arange(1000) % 10
    return ClientData(x, y, x[:300] + 5000, y[:300])


def rows(clients, part):
    return np.sort(np.concatenate([getattr(client, f"x_{part}")[:, 0] for client in clients]))


def shares(clients, part):
    return np.array([np.bincount(getattr(client, f"y_{part}"), minlength=10) for client in clients])


@pytest.mark.parametrize("split", [ds.split_evenly, ds.split_dirichlet])
def test_every_row_is_dealt_out_once_and_keeps_its_class(pool, split):
    clients = split(pool, 7, random_state=3)
    np.testing.assert_array_equal(rows(clients, "train"), pool.x_train[:, 0])
    np.testing.assert_array_equal(rows(clients, "test"), pool.x_test[:, 0])
    for client in clients:
        np.testing.assert_array_equal(client.x_train[:, 0] % 10, client.y_train)
    again, other = (split(pool, 7, random_state=s) for s in (3, 4))
    np.testing.assert_array_equal(clients[2].x_train, again[2].x_train)
    assert (
        clients[2].x_train.shape != other[2].x_train.shape or (clients[2].x_train != other[2].x_train).any()
    )


def test_even_split_is_even(pool):
    assert {len(c.y_train) for c in ds.split_evenly(pool, 7, random_state=0)} == {142, 143}


def test_dirichlet_split():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 20000)
    pool = ClientData(rng.random((40000, 1)), y, rng.random((40000, 1)), y)
    clients = ds.split_dirichlet(pool, 4, alpha=0.5, random_state=0)
    train, test = shares(clients, "train")[:, :2], shares(clients, "test")[:, :2]
    assert abs(train - test).max() <= 1  # the same shares of as many rows
    apart = ds.split_dirichlet(pool, 4, alpha=0.5, independent_test=True, random_state=0)
    assert abs(shares(apart, "train") - shares(apart, "test")).max() > 100
    # Shares of Dirichlet(a, a, a, a) have variance (1/4)(3/4)/(4 a + 1).
    for alpha in (0.5, 50.0):
        drawn = [
            shares(ds.split_dirichlet(pool, 4, alpha, random_state=s), "train")[:, :2] / 20000
            for s in range(60)
        ]
        assert np.var(drawn) == pytest.approx(3 / 16 / (4 * alpha + 1), rel=0.25)


def test_no_client_stays_empty(pool):
    clients = ds.split_dirichlet(pool, 100, alpha=1e-3, random_state=0)
    assert min(len(c.y_train) for c in clients) == min(len(c.y_test) for c in clients) == 1
    np.testing.assert_array_equal(rows(clients, "train"), pool.x_train[:, 0])


@pytest.mark.parametrize("n_classes", [1, 2, 5, 10])
def test_imbalanced_split(pool, n_classes):
    clients = ds.split_imbalanced(pool, 60, n_classes, random_state=1)
    counts = shares(clients, "train")
    assert ((counts > 0).sum(axis=1) == n_classes).all()
    assert counts.max() <= 99
    dominant = counts.argmax(axis=1)
    assert 3 < dominant.mean() < 5  # N(5, 10), rounded, is a place from 1 on
    assert (dominant == 0).any() and (dominant == 9).any()  # clipped at both ends
    for client in clients:
        assert len(np.unique(client.x_train)) == len(client.y_train)
        assert (client.x_train[:, 0] % 10 == client.y_train).all()
    np.testing.assert_array_equal(rows(clients, "test"), pool.x_test[:, 0])


@pytest.mark.parametrize("n_classes", [1, 3])
def test_dominant_classes_follow_the_clipped_normal_law(n_classes):
    y = np.arange(120000) % 10
    x = np.zeros((120000, 1))
    clients = ds.split_imbalanced(ClientData(x, y, x, y), 4000, n_classes, random_state=0)
    found = np.bincount(shares(clients, "train").argmax(axis=1), minlength=10) / 4000
    edges = stats.norm(5, np.sqrt(10)).cdf(np.arange(1.5, 10))
    np.testing.assert_allclose(found, np.diff(edges, prepend=0, append=1), atol=0.02)


def test_theta_does_not_follow_the_random_shares():
    # From one stream both would be made of the same bits: the length of the first normal number of those of the first
    # cut, less its three highest.
    drawn = [ds.make_fedsoft_synthetic("random", 1, random_state=s)[1:] for s in range(150)]
    cuts, first = np.array([[share[0, 0], theta[0, 0]] for share, theta in drawn]).T
    assert abs(stats.spearmanr(8 * cuts % 1, abs(first))[0]) < 0.25


def test_devices_share_no_rows_while_rows_suffice():
    y = np.arange(20000) % 10
    x = np.arange(20000.0)[:, None]
    clients = ds.split_imbalanced(ClientData(x, y, x, y), 20, 2, random_state=0)
    assert len(np.unique(rows(clients, "train"))) == sum(len(c.y_train) for c in clients)


def test_label_swap(pool):
    clients, labels = ds.label_swap(ds.split_evenly(pool, 8, random_state=0))
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    for client, p in zip(clients, labels, strict=True):
        for x, y in ((client.x_train, client.y_train), (client.x_test, client.y_test)):
            before = x[:, 0].astype(int) % 10
            for a in range(10):
                expected = {p: 8 - p, 8 - p: p}.get(a, a)
                assert (y[before == a] == expected).all()
    back, _ = ds.label_swap(clients, labels=labels)
    np.testing.assert_array_equal(back[5].y_train, back[5].x_train[:, 0] % 10)


def test_permuted_labels(pool):
    whole = ds.split_evenly(pool, 4, random_state=0)
    clients, labels = ds.permute_labels(whole, 2, labels=[1, 0, 1, 0], random_state=0)
    assert labels.tolist() == [1, 0, 1, 0]
    maps = []
    for before, after in zip(whole, clients, strict=True):
        pairs = {(int(a), int(b)) for a, b in zip(before.y_train, after.y_train, strict=True)}
        assert pairs >= {(int(a), int(b)) for a, b in zip(before.y_test, after.y_test, strict=True)}
        assert len(pairs) == len({b for _, b in pairs}) == 10
        maps.append(pairs)
    assert maps[0] == maps[2] != maps[1] == maps[3]
    two = ClientData(np.zeros((4, 1)), np.array([3, 3, 7, 7]), np.zeros((1, 1)), np.array([3]))
    swapped, _ = ds.permute_labels([two, two], 2, random_state=0)  # all the permutations that there are
    assert sorted([swapped[0].y_test[0], swapped[1].y_test[0]]) == [3, 7]


def test_rotation():
    image = np.arange(9.0).reshape(1, 9)
    one = ClientData(image, np.array([0]), image + 1, np.array([0]))
    clients, labels = ds.rotate([one] * 4)
    assert labels.tolist() == [0, 1, 2, 3]
    for client, turns in zip(clients, labels, strict=True):
        np.testing.assert_array_equal(client.x_train.reshape(3, 3), np.rot90(image.reshape(3, 3), turns))
        np.testing.assert_array_equal(client.x_test, client.x_train + 1)
    half = ds.rotate([one] * 2, n_clusters=2)[0][1]
    np.testing.assert_array_equal(half.x_train[0], image[0, ::-1])


def test_mixture_shares():
    np.testing.assert_allclose(ds.mixture_shares("10:90", 4)[:, 0], [0.1, 0.1, 0.9, 0.9])
    np.testing.assert_allclose(ds.mixture_shares("30:70", 3)[:, 0], [0.3, 0.3, 0.7])
    np.testing.assert_allclose(ds.mixture_shares("linear", 100)[:3, 0], [0.005, 0.015, 0.025])
    random = ds.mixture_shares("random", 4000, 3, random_state=0)
    np.testing.assert_allclose(random.sum(axis=1), 1)
    np.testing.assert_allclose(random.mean(axis=0), 1 / 3, atol=0.02)
    assert random.min() >= 0


def test_amounts_add_up():
    rng = np.random.default_rng(0)
    for _ in range(200):
        share = rng.dirichlet(np.ones(4))
        found = amounts(37, share)
        assert found.sum() == 37 and found.min() >= 0
        assert abs(found - 37 * share).max() <= 1


def test_fedsoft_synthetic_without_noise_tells_its_sources():
    clients, shares, theta = ds.make_fedsoft_synthetic("linear", 10, noise=0.0, random_state=1)
    for client, share in zip(clients, shares, strict=True):
        n = len(client.y_train)
        assert 100 <= n <= 200 and len(client.y_test) == n // 4
        exact = abs(client.x_train @ theta.T - client.y_train[:, None]) < 1e-9
        assert (exact.sum(axis=1) == 1).all()
        assert abs(exact.sum(axis=0) - n * share).max() <= 0.5 + 1e-9
    many = ds.make_fedsoft_synthetic(n_clients=1, n_features=4000, random_state=0)[2]
    assert many.var() == pytest.approx(10, rel=0.05)  # variance 10, not standard deviation


def test_split_mixture(pool):
    other = pool._replace(x_train=pool.x_train + 10000, x_test=pool.x_test + 10000)
    clients, shares = ds.split_mixture([pool, other], "30:70", 6, (100, 120), random_state=0)
    for client, share in zip(clients, shares, strict=True):
        n = len(client.y_train)
        first = (client.x_train < 10000).sum()
        assert abs(first - n * share[0]) <= 0.5 + 1e-9
        assert len(np.unique(client.x_train)) == n
        assert (client.x_train[:, 0] % 10 == client.y_train).all()
    assert len({len(c.y_train) for c in clients}) > 1


@pytest.mark.parametrize(("make", "linear"), [(ds.make_xor, True), (ds.make_conflict, False)])
def test_toys_are_easy_apart_and_impossible_together(make, linear):
    clients, labels = make(6, 200, spread=0.1, random_state=0)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]

    def error(members):
        x = np.concatenate([clients[k].x_train for k in members])
        y = np.concatenate([clients[k].y_train for k in members])
        z = np.hstack([x, np.ones((len(x), 1))])
        return np.mean((z @ np.linalg.lstsq(z, 2.0 * y - 1, rcond=None)[0] > 0) != y)

    assert error([0, 1, 2]) == error([3, 4, 5]) == 0
    assert error(range(6)) > 0.2
    x, y = (np.concatenate([getattr(c, part) for c in clients]) for part in ("x_test", "y_test"))
    best = max(np.mean((x[:, 0] * (x[:, 1] if linear else 1) * sign > 0) == y) for sign in (1, -1))
    assert (
        best == 1 if linear else abs(best - 0.5) < 0.01
    )  # a model with products solves XOR, none the conflict


BAD = ClientData(np.zeros((3, 5)), np.arange(3), np.zeros((2, 5)), np.arange(2))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ds.split_evenly(BAD, 3), InvalidArgumentError, "n_clients=3 is more than the 2 rows"),
        (lambda: ds.split_evenly(3), InvalidTypeError, "data is a int; give a record"),
        (
            lambda: ds.split_evenly(BAD._replace(y_test=np.arange(3))),
            InvalidArgumentError,
            "y_test has 3 entries",
        ),
        (
            lambda: ds.split_evenly(BAD._replace(x_test=np.zeros((2, 4)))),
            InvalidArgumentError,
            "as many columns",
        ),
        (lambda: ds.split_dirichlet(BAD, 2, alpha=0), InvalidArgumentError, "alpha"),
        (lambda: ds.split_imbalanced(BAD, 2, 1), InvalidArgumentError, "has 1 training rows"),
        (lambda: ds.split_imbalanced(BAD, 2, 4), InvalidArgumentError, "more than the 3 classes"),
        (lambda: ds.label_swap([]), InvalidArgumentError, "clients is empty"),
        (lambda: ds.label_swap([BAD], 1), InvalidArgumentError, r"pairs holds \(0, 8\)"),
        (lambda: ds.label_swap([BAD], 1, pairs=[(1, 1)]), InvalidArgumentError, r"pairs holds \(1, 1\)"),
        (
            lambda: ds.label_swap([BAD], 1, pairs=[]),
            InvalidArgumentError,
            r"needs as many pairs of classes; pairs=\[\] has 0",
        ),
        (
            lambda: ds.label_swap([BAD], 2, pairs=[(0, 1)]),
            InvalidArgumentError,
            "n_clusters=2 needs as many pairs",
        ),
        (lambda: ds.label_swap([BAD], 1, pairs=[0, 1]), InvalidArgumentError, r"pairs holds \(0,\)"),
        (
            lambda: ds.label_swap([BAD], 1, pairs=[(0, 1, 2)]),
            InvalidArgumentError,
            r"pairs holds \(0, 1, 2\)",
        ),
        (
            lambda: ds.label_swap([BAD], 2, pairs=[(0, 1), (1, 2)]),
            InvalidArgumentError,
            "cannot form 2 clusters",
        ),
        (
            lambda: ds.label_swap([BAD], 1, labels=[1], pairs=[(0, 1)]),
            InvalidArgumentError,
            "whole numbers from 0 to 0",
        ),
        (
            lambda: ds.permute_labels([BAD], 7),
            InvalidArgumentError,
            "more than the permutations of 3 classes",
        ),
        (lambda: ds.rotate([BAD] * 4), InvalidArgumentError, "rows of 5 numbers are no square images"),
        (lambda: ds.rotate([BAD] * 4, shape=(1, 5)), InvalidArgumentError, r"of shape \(1, 5\)"),
        (lambda: ds.rotate([BAD] * 4, n_clusters=3), InvalidArgumentError, "give 1, 2 or 4"),
        (lambda: ds.mixture_shares("linear", 3, 3), InvalidArgumentError, "for two distributions, not 3"),
        (lambda: ds.mixture_shares("20:80"), InvalidArgumentError, "partition='20:80' is unknown"),
        (lambda: ds.split_mixture([BAD, BAD]), InvalidArgumentError, "at least 200 training rows"),
        (lambda: ds.make_fedsoft_synthetic(noise=-1), InvalidArgumentError, r"noise=-1\.0 is negative"),
        (lambda: ds.make_xor(1), InvalidArgumentError, "n_clients=1 is too small"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
