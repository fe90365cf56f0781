"""The compiled penalties against the NumPy ones."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import L1Norm, L2Norm, Mcp, Scad, SmoothedScad, SquaredL2
from fusionopt._bridge_penalties import native_penalty
from fusionopt.errors import InvalidTypeError

SHAPES = [
    L2Norm(),
    SquaredL2(),
    Scad(),
    Scad(a=2.1),
    SmoothedScad(),
    SmoothedScad(a=5.0, xi=0.7),
    Mcp(),
    Mcp(gamma=0.6),
]


@pytest.mark.parametrize("penalty", SHAPES, ids=repr)
@pytest.mark.parametrize("scale", [1e-60, 1.0, 1e60])
def test_value_derivative_and_prox_agree_to_rounding(penalty, scale):
    rng = np.random.default_rng(0)
    twin = native_penalty(penalty)
    knees = [0.0, 0.5, 1.0, 2.1, 3.7, 5.0, 3.0, 0.6, 0.7]
    t = scale * np.concatenate([knees, np.nextafter(knees, 9), 8 * rng.random(500)])
    for lam in (0.0, scale, 0.3 * scale):
        np.testing.assert_allclose(twin.value(t, lam), penalty.value(t, lam), rtol=1e-15)
        np.testing.assert_allclose(twin.derivative(t, lam), penalty.derivative(t, lam), rtol=1e-15)
        for step in (0.0, 0.3, 0.6, 1.1, 2.699, 2.7, 2.71, 3.0, 4.0, 6.0, 50.0):
            # Near the step at which the prox begins to jump the middle piece is steep: one rounding of t is
            # carried on with its slope.
            np.testing.assert_allclose(
                twin.prox(t, lam, step), penalty.prox(t, lam, step), rtol=4e-16, atol=1e-13 * scale
            )


def test_a_penalty_without_a_twin_is_refused():
    with pytest.raises(InvalidTypeError, match=r"penalty is L1Norm\(\), which has no compiled twin"):
        native_penalty(L1Norm())
