"""CallableLoss: both call shapes, constants checked by sampling, what it gives the solver."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt as fo
from fusionopt.errors import InvalidArgumentError, InvalidTypeError

TARGETS = np.array([[0.0, 1.0], [2.0, -1.0], [0.5, 0.5]])
RADIUS = np.array([1.0, 2.0, 3.0])


def values(x):
    """sum_k sqrt(1 + (x - a)^2) - 1 + mu/2 (x - a)^2."""
    away = x - TARGETS
    return (np.sqrt(1 + away**2) - 1).sum(axis=1) + RADIUS / 2 * (away**2).sum(axis=1)


def gradient(x):
    away = x - TARGETS
    return away / np.sqrt(1 + away**2) + RADIUS[:, None] * away


def make(value=values, slope=gradient, m=3, d=2, **options):
    return fo.CallableLoss(value, slope, m, d, **options)


def test_both_call_shapes_agree():
    whole = make(lipschitz=RADIUS + 1, strong_convexity=RADIUS)
    single = make(lambda i, row: values(row + 0 * TARGETS)[i], lambda i, row: gradient(row + 0 * TARGETS)[i])
    x = np.random.default_rng(0).normal(size=(3, 2))
    np.testing.assert_array_equal(whole.values(x), values(x))
    np.testing.assert_array_equal(single.values(x), values(x))
    np.testing.assert_array_equal(single.gradient(x), whole.gradient(x))
    np.testing.assert_array_equal(whole.majorant(), RADIUS + 1)
    np.testing.assert_array_equal(whole.lipschitz, RADIUS + 1)
    np.testing.assert_array_equal(whole.strong_convexity(), RADIUS)
    assert single.majorant() is None and single.lipschitz is None
    assert whole.has_bound and not single.has_bound


def test_hessians_by_differences():
    loss = make(strong_convexity=1.0)
    x = np.random.default_rng(1).normal(size=(3, 2))
    away = x - TARGETS
    expected = (1 + away**2) ** -1.5 + RADIUS[:, None]
    hessians = loss.hessians_at(x)
    np.testing.assert_allclose(hessians[:, [0, 1], [0, 1]], expected, rtol=1e-8)
    np.testing.assert_allclose(hessians[:, 0, 1], 0.0, atol=1e-8)
    assert np.isfinite(loss.hessians_at(np.zeros((3, 2)))).all()


def test_fenchel_gap_needs_a_modulus():
    loss, x = make(lipschitz=RADIUS + 1, strong_convexity=RADIUS), TARGETS + 0.3
    y = x + 0.01
    g = -gradient(y)
    exact = values(x) - values(y) + (g * (x - y)).sum(axis=1)
    told = loss.fenchel(x, g)
    assert (told.gap >= exact).all() and (told.gap <= 2 * exact).all()
    assert (told.error < 1e-15).all()
    assert np.isinf(make().fenchel_gap(x, -gradient(x))).all()


def test_the_functions_cannot_change_x():
    def greedy(x):
        x[0] = 0.0
        return values(x)

    with pytest.raises(ValueError, match="read-only"):
        make(greedy)


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        ((3, gradient, 3, 2), {}, InvalidTypeError, "value is a int; give a function"),
        ((values, None, 3, 2), {}, InvalidTypeError, "gradient is a NoneType; give a function"),
        ((values, gradient, 0, 2), {}, InvalidArgumentError, "n_nodes=0 is too small"),
        (
            (lambda x: values(x).sum(), gradient, 3, 2),
            {},
            InvalidArgumentError,
            r"value\(x\) returned shape \(\); it",
        ),
        (
            (values, lambda x: gradient(x)[0], 3, 2),
            {},
            InvalidArgumentError,
            r"gradient\(x\) returned shape \(2,\)",
        ),
        (
            (lambda x: values(x) * np.nan, gradient, 3, 2),
            {},
            InvalidArgumentError,
            "returned NaN or Inf at a point",
        ),
        (
            (values, lambda x: 0.9 * gradient(x), 3, 2),
            {},
            InvalidArgumentError,
            "gradient does not hold at a pair of sampled points of node 0: the tangent lies above",
        ),
        (
            (lambda x: -values(x), lambda x: -gradient(x), 3, 2),
            {},
            InvalidArgumentError,
            "value is not convex",
        ),
        (
            (values, gradient, 3, 2),
            {"strong_convexity": [1.0, 2.0, 4.5]},
            InvalidArgumentError,
            "strong_convexity does not hold at a pair of sampled points of node 2.*declare a smaller",
        ),
        (
            (values, gradient, 3, 2),
            {"lipschitz": 1.5},
            InvalidArgumentError,
            "lipschitz does not hold at a pair of sampled points of node 0.*declare a larger",
        ),
        (
            (values, gradient, 3, 2),
            {"lipschitz": [1.0, 2.0]},
            InvalidArgumentError,
            "lipschitz has 2 entries; it needs",
        ),
        (
            (values, gradient, 3, 2),
            {"strong_convexity": -1.0},
            InvalidArgumentError,
            "strong_convexity=-1.0 is neg",
        ),
    ],
)
def test_refusals(arguments, options, kind, message):
    with pytest.raises(kind, match=message):
        fo.CallableLoss(*arguments, **options)


def test_values_that_overflow_far_out_are_not_held_against_the_loss():
    loss = fo.CallableLoss(
        lambda x: np.exp(x**2).sum(axis=1), lambda x: 2 * x * np.exp(x**2), 1, 1, strong_convexity=2
    )
    assert loss.values([[0.0]])[0] == 1.0
