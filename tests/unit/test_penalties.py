"""L2Norm: values, derivatives and proximal maps against a grid and against calculus."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fusionopt import L2Norm
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.penalties.base import row_norms

PENALTY = L2Norm()


def test_value_derivative_flags_and_repr():
    np.testing.assert_array_equal(PENALTY.value([0.0, 2.0], 0.5), [0.0, 1.0])
    np.testing.assert_array_equal(PENALTY.derivative([0.0, 2.0], 0.5), [0.5, 0.5])
    assert PENALTY.value(2.0, 0.5) == 1.0
    assert PENALTY.convex
    assert PENALTY.linear_in_lam
    assert repr(PENALTY) == "L2Norm()"


@given(t=st.floats(0, 10), lam=st.floats(0, 5), step=st.floats(0.01, 5))
def test_prox_beats_every_point_of_a_grid(t, lam, step):
    z = float(PENALTY.prox(t, lam, step))
    grid = np.linspace(0, 12, 2001)

    def objective(s):
        return lam * s + (s - t) ** 2 / (2 * step)

    # Rounding of two terms only: the minimum over a superset of the grid cannot be above the grid's.
    assert objective(z) <= objective(grid).min() * (1 + 1e-14) + 1e-13


@given(u=arrays(np.float64, (4, 3), elements=st.floats(-5, 5)), lam=st.floats(0, 3), step=st.floats(0, 3))
def test_prox_vector_is_the_radial_prox(u, lam, step):
    moved = PENALTY.prox_vector(u, lam, step)
    lengths = np.linalg.norm(u, axis=1)
    shrunk = np.maximum(lengths - lam * step, 0)
    np.testing.assert_allclose(np.linalg.norm(moved, axis=1), shrunk, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(moved * lengths[:, None], u * shrunk[:, None], rtol=1e-12, atol=1e-12)


def test_prox_vector_at_zero_and_inside_is_exactly_zero():
    moved = PENALTY.prox_vector([[0.0, 0.0], [0.3, 0.4], [3.0, 4.0]], lam=1.0, step=0.5)
    np.testing.assert_array_equal(moved[:2], 0.0)
    np.testing.assert_allclose(moved[2], [2.7, 3.6], rtol=1e-15)
    assert PENALTY.prox_vector([3.0, 4.0], 1.0, 1.0).shape == (2,)


def test_step_zero_is_the_identity():
    np.testing.assert_array_equal(PENALTY.prox([0.0, 1.5], 2.0, 0.0), [0.0, 1.5])
    np.testing.assert_array_equal(PENALTY.prox_vector([[1.5, 0.1]], 2.0, 0.0), [[1.5, 0.1]])


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1e8, 1e200])
def test_prox_vector_knows_no_units(scale):
    u = np.array([[3.0, 4.0], [0.3, 0.4]])
    moved = PENALTY.prox_vector(u * scale, lam=scale, step=1.0)
    np.testing.assert_allclose(moved / scale, PENALTY.prox_vector(u, 1.0, 1.0), rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: PENALTY.value([-1.0], 1.0),
            InvalidArgumentError,
            r"t holds -1\.0; every entry must be >= 0",
        ),
        (lambda: PENALTY.value([np.nan], 1.0), InvalidArgumentError, r"t holds NaN at position \(0,\)"),
        (lambda: PENALTY.derivative([1.0], -1.0), InvalidArgumentError, r"lam=-1\.0 is negative"),
        (lambda: PENALTY.prox(1.0, 1.0, -1.0), InvalidArgumentError, r"step=-1\.0 is negative"),
        (lambda: PENALTY.prox(1.0, 1.0, None), InvalidTypeError, "step=None is not a number"),
        (lambda: PENALTY.prox_vector([["a"]], 1.0, 1.0), InvalidTypeError, "u holds text"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_row_norms_over_the_whole_range():
    u = np.array([[3.0, 4.0], [0.0, 0.0], [3e200, 4e200], [3e-200, 4e-200], [5e-324, 0.0], [1.0, 1e-300]])
    # Tolerance: one rounding in each of sum, square root and scaling.
    np.testing.assert_allclose(row_norms(u), [5.0, 0.0, 5e200, 5e-200, 5e-324, 1.0], rtol=4e-16)
    assert row_norms(np.zeros((0, 3))).shape == (0,)
    assert row_norms(np.array([3.0, 4.0])) == 5.0
