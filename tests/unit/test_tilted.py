"""A loss with a tilt: values by hand, and every promise of a node loss kept."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import Huber, LeastSquares, Logistic, SquaredDistance
from fusionopt.losses import NodeLoss
from fusionopt.losses.base import QuadraticNodeLoss
from fusionopt.losses.tilted import TiltedLoss, TiltedQuadratic, tilted

RNG = np.random.default_rng(3)
DESIGNS = [RNG.normal(size=(5, 2)) for _ in range(4)]
LOSSES: dict[str, NodeLoss] = {
    "squared distance": SquaredDistance(RNG.normal(size=(4, 2)), [1.0, 2.0, 0.5, 0.0]),
    "least squares": LeastSquares(DESIGNS, [RNG.normal(size=5) for _ in range(4)], ridge=0.1),
    "short": LeastSquares([d[:1] for d in DESIGNS], RNG.normal(size=4)),
    "logistic": Logistic(DESIGNS, [np.array([1, 1, -1, 1, -1])] * 4),
    "huber": Huber(RNG.normal(size=(4, 2)), delta=0.5),
}


def made(name: str, tau: float = 0.3) -> tuple[NodeLoss, NodeLoss, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    b, y, x = rng.normal(size=(3, 4, 2))
    return LOSSES[name], tilted(LOSSES[name], b, tau, y), b, y, x


@pytest.mark.parametrize("name", list(LOSSES))
def test_values_and_derivatives(name: str) -> None:
    loss, tilt, b, y, x = made(name)
    assert isinstance(tilt, TiltedQuadratic if isinstance(loss, QuadraticNodeLoss) else TiltedLoss)
    assert (tilt.n_nodes, tilt.n_features) == (4, 2)
    by_hand = loss.values(x) - (b * x).sum(axis=1) + 0.15 * ((x - y) ** 2).sum(axis=1)
    np.testing.assert_allclose(tilt.values(x), by_hand, rtol=1e-14)
    step = 1e-6
    for k in range(2):
        along = np.zeros(2)
        along[k] = step
        slope = (tilt.values(x + along) - tilt.values(x - along)) / (2 * step)
        np.testing.assert_allclose(tilt.gradient(x)[:, k], slope, atol=1e-8)
    lifted = loss.hessians_at(x)
    np.testing.assert_allclose(
        tilt.hessians_at(x), lifted + (0.3 if lifted.ndim == 1 else 0.3 * np.eye(2)), rtol=1e-14
    )
    np.testing.assert_allclose(tilt.strong_convexity(), loss.strong_convexity() + 0.3, rtol=1e-12, atol=1e-14)
    majorant, plain = tilt.majorant(), loss.majorant()
    np.testing.assert_allclose(majorant, plain + (0.3 if plain.ndim == 1 else 0.3 * np.eye(2)), rtol=1e-14)


@pytest.mark.parametrize("name", list(LOSSES))
def test_the_fenchel_gap_bounds_a_supremum_over_a_grid(name: str) -> None:
    _, tilt, _, _, x = made(name)
    g = np.random.default_rng(2).normal(size=(4, 2))
    told = tilt.fenchel(x, g)
    axis = np.linspace(-12, 12, 97)
    conjugate = np.full(4, -np.inf)
    for u in axis:
        for w in axis:
            z = np.tile([u, w], (4, 1))
            conjugate = np.maximum(conjugate, -(g * z).sum(axis=1) - tilt.values(z))
    exact = tilt.values(x) + conjugate + (g * x).sum(axis=1)
    # The grid is 1/8 off at most along each axis, which costs no more than curvature * (1/8)^2.
    assert (told.gap + told.error >= exact).all()
    if isinstance(tilt, TiltedQuadratic):
        assert tilt.conjugate_exact
        np.testing.assert_allclose(told.gap, exact, atol=0.05)
    at_gradient = tilt.fenchel(x, -tilt.gradient(x))
    assert (at_gradient.gap <= 1e-12 + at_gradient.error).all()


def test_a_quadratic_keeps_its_form() -> None:
    loss, tilt, _, _, x = made("least squares")
    assert isinstance(tilt, TiltedQuadratic)
    quadratic = (
        0.5 * np.einsum("ia,iab,ib->i", x, tilt.hessians(), x)
        - (tilt.linear() * x).sum(axis=1)
        + tilt.constants()
    )
    np.testing.assert_allclose(tilt.values(x), quadratic, rtol=1e-12)
    assert (tilt.gradient_error(x) >= loss.gradient_error(x)).all()


def test_without_curvature_added_nothing_but_the_tilt_changes() -> None:
    loss = LOSSES["squared distance"]
    b = np.ones((4, 2))
    plain = tilted(loss, b)
    np.testing.assert_array_equal(plain.gradient(b), loss.gradient(b) - b)
    np.testing.assert_array_equal(plain.hessians_at(b), loss.hessians_at(b))
    assert plain.strong_convexity()[3] == 0.0
