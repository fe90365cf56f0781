"""Generators: shapes, seeds, separation, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from fusionopt.datasets import make_ellipses, make_gaussian_groups, make_mixture_regression
from fusionopt.errors import InvalidArgumentError, InvalidTypeError


@pytest.mark.parametrize(("n_groups", "d"), [(1, 1), (3, 1), (5, 2), (9, 3), (4, 100)])
def test_gaussian_groups(n_groups, d):
    x, labels = make_gaussian_groups(50, n_groups, d, separation=8.0, spread=1e-9, random_state=3)
    assert x.shape == (50, d)
    sizes = np.bincount(labels)
    assert len(sizes) == n_groups
    assert sizes.max() - sizes.min() <= 1
    centres = np.array([x[labels == k].mean(axis=0) for k in range(n_groups)])
    if n_groups > 1:
        # Means of ten points of spread 1 move by less than 2 along the line between two centres.
        assert pdist(centres).min() > 4e-9


def test_seeds():
    first, again, other = (make_gaussian_groups(20, random_state=s)[0] for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (make_gaussian_groups(20)[0] != make_gaussian_groups(20)[0]).any()


def test_mixture_regression_without_noise_is_solved_by_the_group_coefficients():
    designs, targets, labels = make_mixture_regression(12, 3, 2, n_samples=4, noise=0.0, random_state=0)
    assert len(designs) == len(targets) == len(labels) == 12
    fits = np.array([np.linalg.lstsq(z, y, rcond=None)[0] for z, y in zip(designs, targets, strict=True)])
    centres = np.array([fits[labels == k].mean(axis=0) for k in range(3)])
    np.testing.assert_allclose(fits, centres[labels], atol=1e-12)
    assert pdist(centres).min() == pytest.approx(4.0)


def test_ellipses_lie_where_they_are_said_to():
    clients, labels = make_ellipses(n_users=1, n_samples=200, delta=2.0, axes=(1.0, 1.5), n_test=50)
    assert labels.tolist() == [0, 1, 2]
    for k, client in enumerate(clients):
        theta = np.pi / 2 + 2 * np.pi * k / 3
        u, across = np.array([np.cos(theta), np.sin(theta)]), np.array([-np.sin(theta), np.cos(theta)])
        for x, y in ((client.x_train, client.y_train), (client.x_test, client.y_test)):
            assert np.unique(y, return_counts=True)[1].tolist() == [len(y) // 2] * 2
            offset = x - 2.0 * y[:, None] * u
            inside = (offset @ across) ** 2 + (offset @ u / 1.5) ** 2
            assert inside.max() < 1.0
            assert inside.mean() == pytest.approx(0.5, abs=0.1)  # uniform: the squared radius is uniform


def test_ellipses_keep_their_pools_and_give_every_user_both_labels():
    few, _ = make_ellipses(n_users=40, n_samples=2, random_state=7)
    whole, _ = make_ellipses(n_users=1, n_samples=200, random_state=7)
    assert all(np.ptp(client.y_train) == 2 for client in few)
    pool = {tuple(row) for row in whole[0].x_train}
    assert all(tuple(row) in pool for client in few[:40] for row in client.x_train)
    np.testing.assert_array_equal(few[0].x_test, whole[0].x_test)


def test_ellipses_draw_in_the_recorded_order():
    # Written out for the first user of the first cluster: pools, then users, each from its own stream.
    clients, _ = make_ellipses(n_samples=10)
    train, draw = np.random.default_rng([1, 0]), np.random.default_rng([1, 1])
    rows = []
    for sign in (1.0, -1.0):
        r, a = np.sqrt(train.random(100)), 2 * np.pi * train.random(100)
        # theta = pi/2: across is (-1, 0), and the second axis points to -u = (0, -1).
        rows.append(np.stack([-1.55 * r * np.cos(a), sign * 1.62 - 2.2 * r * np.sin(a)], axis=1))
    chosen = draw.choice(200, 10, replace=False)
    np.testing.assert_allclose(clients[0].x_train, np.concatenate(rows)[chosen], atol=1e-12)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: make_gaussian_groups(2, 3), InvalidArgumentError, "n=2 is too small; give an int >= 3"),
        (lambda: make_gaussian_groups(2.0), InvalidTypeError, r"n=2\.0 is not a whole number"),
        (lambda: make_gaussian_groups(9, spread=0), InvalidArgumentError, r"spread=0\.0 is not positive"),
        (
            lambda: make_gaussian_groups(9, separation=-1),
            InvalidArgumentError,
            r"separation=-1\.0 is negative",
        ),
        (
            lambda: make_gaussian_groups(9, random_state=-1),
            InvalidArgumentError,
            "random_state=-1 is too small",
        ),
        (
            lambda: make_ellipses(n_samples=201),
            InvalidArgumentError,
            "n_samples=201 is more than the 200 rows",
        ),
        (lambda: make_ellipses(n_samples=1), InvalidArgumentError, "n_samples=1 is too small"),
        (lambda: make_ellipses(axes=(1.0, 0.0)), InvalidArgumentError, r"axes=0\.0 is not positive"),
        (lambda: make_ellipses(delta=-1), InvalidArgumentError, r"delta=-1\.0 is negative"),
        (lambda: make_mixture_regression(9, n_samples=0), InvalidArgumentError, "n_samples=0 is too small"),
        (lambda: make_mixture_regression(9, noise=-1), InvalidArgumentError, r"noise=-1\.0 is negative"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
