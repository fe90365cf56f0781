"""The compiled penalties against the NumPy ones."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import (
    FusionProblem,
    Graph,
    L1Norm,
    L2Norm,
    Mcp,
    Scad,
    SmoothedScad,
    SquaredDistance,
    SquaredL2,
    _core,
)
from fusionopt._bridge_penalties import native_penalty, tilt
from fusionopt.errors import InvalidTypeError
from fusionopt.penalties import RadialPenalty

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


def plain_tilt(problem, x):
    """Edge by edge, from the derivative of the penalty."""
    graph, lam = problem.graph, problem.lam
    b, value = np.zeros_like(x), 0.0
    for (i, j), w in zip(graph.edges, graph.weights, strict=True):
        u = x[i] - x[j]
        t = np.sqrt(u @ u)
        value += w * float(problem.penalty.value(t, lam))
        if t > 0:
            pull = w * (lam - float(problem.penalty.derivative(t, lam))) * u / t
            b[i] += pull
            b[j] -= pull
    return b, value


@pytest.mark.parametrize("penalty", [Scad(), Mcp(gamma=1.5)], ids=repr)
@pytest.mark.parametrize("kind", ["complete", "weighted", "edges"])
@pytest.mark.parametrize("scale", [1e-170, 1.0, 1e150])
def test_tilt_against_a_loop_over_edges(penalty, kind, scale):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(21, 3)) * rng.uniform(0.1, 3, (21, 1))
    x[5:9] = x[4]  # a cluster
    graph = {
        "complete": Graph.complete(21, 0.3),
        "weighted": Graph.complete(21, 0.3, rng.integers(0, 3, 21)),
        "edges": Graph.knn(x, 4),
    }[kind]
    problem = FusionProblem(SquaredDistance(x), graph, penalty, lam=0.6)
    b, value = plain_tilt(problem, x)
    # The forces of an edge are lam w at most, and their sums have twenty terms.
    at_scale = FusionProblem(SquaredDistance(x), graph, penalty, lam=0.6 * scale)
    told, penalty_value = tilt(at_scale, x * scale)
    np.testing.assert_allclose(told / scale, b, atol=1e-13)
    if kind == "complete":
        np.testing.assert_array_equal(told[5:9], told[[4] * 4])
    if 1e-100 < scale < 1e100:
        assert penalty_value == pytest.approx(value, rel=1e-13)
        assert penalty_value == pytest.approx(at_scale.penalty_value(x), rel=1e-13)


def test_tilt_of_equal_rows_and_of_penalties_without_one():
    fused = FusionProblem(SquaredDistance(np.ones((4, 2))), penalty=Scad(), lam=1.0)
    b, value = tilt(fused, np.full((4, 2), 7.0))
    assert not b.any() and value == 0.0
    with pytest.raises(ValueError, match="only Scad and Mcp"):
        _core.tilt_complete(native_penalty(SmoothedScad()), 1.0, np.ones((4, 2)), np.ones(4))


class Saturating(RadialPenalty):
    """lam (1 - exp(-t)): a concave penalty of a user's own."""

    convex, linear_in_lam, concave = False, True, True

    def value(self, t, lam):
        return lam * -np.expm1(-np.asarray(t))

    def derivative(self, t, lam):
        return lam * np.exp(-np.asarray(t))

    def prox(self, t, lam, step):
        raise AssertionError("difference-of-convex steps need no prox")


@pytest.mark.parametrize("kind", ["complete", "weighted", "edges"])
def test_tilt_of_a_penalty_of_ones_own(kind, monkeypatch):
    monkeypatch.setattr("fusionopt._bridge_penalties._BLOCK", 4)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(13, 2))
    x[5:9] = x[4]
    graph = {
        "complete": Graph.complete(13, 0.3),
        "weighted": Graph.complete(13, 0.3, rng.integers(0, 3, 13)),
        "edges": Graph.knn(x, 4),
    }[kind]
    problem = FusionProblem(SquaredDistance(x), graph, Saturating(), lam=0.6)
    b, value = plain_tilt(problem, x)
    told, penalty_value = tilt(problem, x)
    np.testing.assert_allclose(told, b, atol=1e-14)
    assert penalty_value == pytest.approx(value, rel=1e-13)
