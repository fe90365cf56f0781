"""Generators: shapes, seeds, separation, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from fusionopt.datasets import make_gaussian_groups, make_mixture_regression
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
        (lambda: make_mixture_regression(9, n_samples=0), InvalidArgumentError, "n_samples=0 is too small"),
        (lambda: make_mixture_regression(9, noise=-1), InvalidArgumentError, r"noise=-1\.0 is negative"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
