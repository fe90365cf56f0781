"""Penalties: values by calculus, every prox against a grid, conjugates against a supremum over a grid."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

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
)
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.penalties import Penalty
from fusionopt.penalties.base import row_norms

RADIAL = [L2Norm(), SquaredL2(), Scad(), SmoothedScad(xi=0.3), Mcp()]
EVERY = [*RADIAL, L1Norm()]
CONVEX = [L2Norm(), SquaredL2(), L1Norm()]


def names(penalties: list[Penalty]) -> list[str]:
    return [type(p).__name__ for p in penalties]


# The textbook formulas, written out anew, with arrays in every place.


def plain_value(penalty: Penalty, t, lam):
    if isinstance(penalty, L2Norm):
        return lam * t
    if isinstance(penalty, SquaredL2):
        return lam * t**2
    if isinstance(penalty, Mcp):
        gamma = penalty.gamma
        return np.where(t <= gamma * lam, lam * t - t**2 / (2 * gamma), gamma * lam**2 / 2)
    a = penalty.a
    scad = np.where(t <= lam, lam * t, (a * lam * t - (t**2 + lam**2) / 2) / (a - 1))
    scad = np.where(t <= a * lam, scad, lam**2 * (a + 1) / 2)
    if isinstance(penalty, Scad):
        return scad
    xi = np.minimum(penalty.xi, lam)
    return np.where(t <= xi, lam * t**2 / (2 * xi) + xi * lam / 2, scad)


def knees(penalty: Penalty, lam):
    """Where a formula changes, as fixed multiples of the parameters."""
    if isinstance(penalty, Mcp):
        return [penalty.gamma * lam]
    if isinstance(penalty, Scad | SmoothedScad):
        xi = np.minimum(getattr(penalty, "xi", 0.0), lam)
        return [xi, lam, penalty.a * lam]
    return []


def branches(penalty: Penalty, t, lam, step, z) -> dict[str, np.ndarray]:
    """Which line of the prox formula each set falls on, read off the answer."""
    if isinstance(penalty, L2Norm):
        return {"zero": z == 0, "soft": z > 0}
    if isinstance(penalty, SquaredL2):
        return {"shrunk": z < t}
    still = z == t
    if isinstance(penalty, Mcp):
        smooth = step < penalty.gamma
        return {
            "zero": smooth & (z == 0),
            "middle": smooth & (z > 0) & ~still,
            "outer": smooth & still,
            "jump zero": ~smooth & (z == 0),
            "jump outer": ~smooth & still,
        }
    xi = np.minimum(getattr(penalty, "xi", 0.0), lam)
    a = penalty.a
    smooth, wide = step < a - 1, ~(step < a - 1)
    # The jump leaves from the soft zone, or (for large steps) from the zone around zero.
    low = lam * (a + 1) / 2 - lam * step / 2 < xi
    near = z <= xi if isinstance(penalty, SmoothedScad) else z == 0
    return {
        "near": smooth & near,
        "soft": smooth & ~near & (z <= lam),
        "middle": smooth & (z > lam) & ~still,
        "outer": smooth & still,
        "jump near": wide & ~low & near,
        "jump soft": wide & ~low & ~near & ~still,
        "jump outer": wide & ~low & still,
        "far near": wide & low & near,
        "far outer": wide & low & still,
    }


def random_penalty(kind: type, rng: np.random.Generator) -> Penalty:
    if kind is Mcp:
        return Mcp(gamma=1 + rng.exponential(2.0))
    if kind is Scad:
        return Scad(a=2.001 + rng.exponential(2.0))
    if kind is SmoothedScad:
        return SmoothedScad(a=2.001 + rng.exponential(2.0), xi=10 ** rng.uniform(-3, 0.5))
    return kind()


@pytest.mark.parametrize("kind", [type(p) for p in RADIAL])
def test_prox_beats_a_grid_on_every_branch(kind):
    """2200 random parameter sets for each penalty, 11000 in all (with L1Norm below 13000)."""
    rng = np.random.default_rng(5)
    counts: dict[str, int] = {}
    for _ in range(22):
        penalty = random_penalty(kind, rng)
        n = 100
        lam = 10 ** rng.uniform(-1.5, 1.0, n)
        a = getattr(penalty, "a", getattr(penalty, "gamma", 3.0))
        step = a * np.where(rng.random(n) < 0.7, 10 ** rng.uniform(-2, 1, n), rng.uniform(0.5, 1.5, n))
        t = lam * a * (1 + np.sqrt(step)) * rng.uniform(0, 1.3, n)
        near = rng.random(n) < 0.3  # enough sets in the zone around zero too
        t[near] *= rng.random(near.sum()) ** 2 / 3
        z = np.array([float(penalty.prox(*args)) for args in zip(t, lam, step, strict=True)])

        def objective(points, penalty=penalty, lam=lam, step=step, t=t):
            return plain_value(penalty, points, lam) + (points - t) ** 2 / (2 * step)

        grid = np.linspace(0, 1, 1501)[:, None] * (1.05 * t)
        grid = np.concatenate([grid, np.broadcast_to(t, (1, n)), *[k[None] for k in knees(penalty, lam)]])
        values, best = objective(grid), objective(z)
        # The prox minimises over a superset of the grid: it may exceed the grid's minimum by rounding only.
        np.testing.assert_array_less(best, values.min(axis=0) * (1 + 1e-12) + 1e-300)
        assert ((z >= 0) & (z <= t)).all()
        for name, hit in branches(penalty, t, lam, step, z).items():
            counts[name] = counts.get(name, 0) + int(hit.sum())
    assert sum(counts.values()) == 2200
    assert min(counts.values()) >= 10, counts


def test_prox_of_the_l1_norm_beats_a_grid():
    rng = np.random.default_rng(6)
    u, lam, step = rng.normal(size=2000), rng.exponential(size=2000), rng.exponential(size=2000)
    z = np.array([float(L1Norm().prox_vector([v], c, s)[0]) for v, c, s in zip(u, lam, step, strict=True)])

    def objective(points):
        return lam * np.abs(points) + (points - u) ** 2 / (2 * step)

    values = objective(np.concatenate([np.linspace(-1.05, 1.05, 1501)[:, None] * np.abs(u), u[None]]))
    np.testing.assert_array_less(objective(z), values.min(axis=0) * (1 + 1e-12))
    assert (z == 0).sum() > 300 and (z > 0).sum() > 100 and (z < 0).sum() > 100


def test_the_grid_check_notices_a_wrong_prox():
    """Soft thresholding in place of the branches beyond lam is caught."""
    penalty, t, lam, step = (
        Scad(a=2.1),
        3.0,
        1.0,
        2.0,
    )  # step > a - 1: the printed four branches are wrong here
    grid = np.linspace(0, 3, 1501)
    values = plain_value(penalty, grid, lam) + (grid - t) ** 2 / (2 * step)
    wrong = t - lam * step
    assert plain_value(penalty, wrong, lam) + (wrong - t) ** 2 / (2 * step) > values.min() + 0.4
    assert float(penalty.prox(t, lam, step)) == 3.0


@pytest.mark.parametrize("penalty", RADIAL, ids=names(RADIAL))
@pytest.mark.parametrize("lam", [0.0, 0.2, 1.3])
def test_value_and_derivative(penalty, lam):
    t = np.linspace(0, 8, 4001)
    value = penalty.value(t, lam)
    if lam > 0:
        np.testing.assert_allclose(value, plain_value(penalty, t, lam), rtol=1e-13, atol=1e-15)
    else:
        np.testing.assert_array_equal(value, 0.0)
    middle = (t[1:] + t[:-1]) / 2
    slope = np.diff(value) / np.diff(t)
    # Piecewise quadratic: the slope at the middle is exact off the knees, and within curvature * h at one of them.
    np.testing.assert_allclose(slope, penalty.derivative(middle, lam), atol=5 * 0.002 + 1e-12)
    assert (value >= 0).all() and (np.diff(value) >= -1e-15).all()
    # At zero from the right.
    assert abs(penalty.derivative(1e-300, lam) - penalty.derivative(0.0, lam)) <= 1e-290


def test_values_by_hand():
    np.testing.assert_array_equal(L2Norm().value([0.0, 2.0], 0.5), [0.0, 1.0])
    np.testing.assert_array_equal(L2Norm().derivative([0.0, 2.0], 0.5), [0.5, 0.5])
    np.testing.assert_array_equal(SquaredL2().value([0.0, 2.0], 0.5), [0.0, 2.0])
    np.testing.assert_array_equal(SquaredL2().derivative([0.0, 2.0], 0.5), [0.0, 2.0])
    np.testing.assert_array_equal(L1Norm().value_vector([[1.0, -2.0], [0.0, 0.0]], 0.5), [1.5, 0.0])
    # a = 3: lam^2 (a + 1) / 2 = 8 beyond 6; at 4: (24 - (16 + 4) / 2) / 2 = 7.
    np.testing.assert_array_equal(Scad(a=3.0).value([1.0, 2.0, 4.0, 6.0, 9.0], 2.0), [2, 4, 7, 8, 8])
    np.testing.assert_array_equal(Scad(a=3.0).derivative([0.0, 2.0, 4.0, 6.0, 9.0], 2.0), [2, 2, 1, 0, 0])
    np.testing.assert_array_equal(
        SmoothedScad(3.0, 0.5).value([0.0, 0.25, 0.5, 4.0], 2.0), [0.5, 0.625, 1, 7]
    )
    np.testing.assert_array_equal(SmoothedScad(3.0, 0.5).derivative([0.0, 0.25, 0.5, 4.0], 2.0), [0, 1, 2, 1])
    # gamma = 2: gamma lam^2 / 2 = 4 beyond 4; at 2: 4 - 1 = 3.
    np.testing.assert_array_equal(Mcp(gamma=2.0).value([0.0, 2.0, 4.0, 9.0], 2.0), [0, 3, 4, 4])
    np.testing.assert_array_equal(Mcp(gamma=2.0).derivative([0.0, 2.0, 4.0, 9.0], 2.0), [2, 1, 0, 0])


@pytest.mark.parametrize("penalty", EVERY, ids=names(EVERY))
def test_flags_and_constants(penalty):
    assert penalty.convex == (penalty in CONVEX or isinstance(penalty, L2Norm | L1Norm | SquaredL2))
    assert penalty.linear_in_lam == penalty.convex
    assert penalty.smoothness(0.0) == 0.0
    c = penalty.weak_convexity
    # g + c/2 |u|^2 is convex: second differences of a grid are >= 0, and not for a smaller c.
    u = np.linspace(-6, 6, 2401)
    values = penalty.value_vector(u[:, None], 1.3)
    assert np.diff(values + c / 2 * u**2, 2).min() >= -1e-13
    if c > 0:
        assert np.diff(values + 0.99 * c / 2 * u**2, 2).min() < -1e-9
    bend = np.abs(np.diff(values, 2)).max() / (u[1] - u[0]) ** 2
    assert bend <= penalty.smoothness(1.3) * (1 + 1e-9)
    if np.isfinite(penalty.smoothness(1.3)):
        assert bend >= 0.9 * penalty.smoothness(1.3)


def test_constants_by_hand():
    assert Scad(a=3.0).weak_convexity == 0.5
    assert Mcp(gamma=4.0).weak_convexity == 0.25
    assert SmoothedScad(a=3.0, xi=0.5).smoothness(2.0) == 4.0
    assert SmoothedScad(a=3.0, xi=5.0).smoothness(2.0) == 1.0
    assert SquaredL2().smoothness(2.0) == 4.0
    assert L1Norm().smoothness(2.0) == np.inf


@pytest.mark.parametrize("penalty", EVERY, ids=names(EVERY))
@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_conjugate_against_a_supremum_over_a_grid(penalty, lam):
    u = np.linspace(-30, 30, 60001)
    v = np.array([0.0, 0.3, 0.69, 0.7, 0.71, 2.0])
    told = penalty.conjugate_vector(v[:, None], lam)
    reach = (v[:, None] * u - penalty.value_vector(u[:, None], lam)).max(axis=1)
    finite = np.isfinite(told)
    # The supremum of a parabola over a grid of width 1e-3 is short by no more than lam h^2 / 4.
    np.testing.assert_allclose(told[finite], reach[finite], atol=1e-6)
    assert (reach[~finite] > 0.2).all()  # grows with the grid's end: 0.01 * 30 at least
    assert finite[0]
    if penalty.convex and lam > 0:
        assert finite[:4].all()


def test_conjugate_at_the_extremes():
    assert SquaredL2().conjugate(1e200, 1e-300) == np.inf
    np.testing.assert_array_equal(SquaredL2().conjugate([0.0, 1.0], 0.0), [0.0, np.inf])
    np.testing.assert_array_equal(SmoothedScad(xi=0.5).conjugate([0.0, 1e-300], 1.0), [-0.25, np.inf])
    np.testing.assert_array_equal(L1Norm().conjugate_vector([[1.0, -1.0], [1.1, 0.0]], 1.0), [0.0, np.inf])


@pytest.mark.parametrize("penalty", EVERY, ids=names(EVERY))
@given(u=arrays(np.float64, (4, 3), elements=st.floats(-5, 5)), lam=st.floats(0, 3), step=st.floats(0, 6))
def test_prox_vector_is_no_worse_than_its_neighbours(penalty, u, lam, step):
    moved = penalty.prox_vector(u, lam, step)

    def objective(z):
        return step * penalty.value_vector(z, lam) + ((z - u) ** 2).sum(axis=-1) / 2

    rng = np.random.default_rng(0)
    others = [u, np.zeros_like(u), *[moved + s * rng.normal(size=u.shape) for s in (1e-3, 0.1, 1.0, 5.0)]]
    for z in others:
        # Rounding of a few terms, each no larger than 3 * 6 * 75.
        assert (objective(moved) <= objective(z) + 1e-12 * (1 + objective(z))).all()
    if not isinstance(penalty, L1Norm):
        shrunk = penalty.prox(row_norms(u), lam, step)
        np.testing.assert_allclose(row_norms(moved), shrunk, rtol=1e-14, atol=1e-300)


@pytest.mark.parametrize("penalty", EVERY, ids=names(EVERY))
def test_identities(penalty):
    u = np.array([[0.0, 0.0], [0.3, 0.4], [-3.0, 4.0]])
    np.testing.assert_array_equal(penalty.prox_vector(u, 2.0, 0.0), u)
    np.testing.assert_array_equal(penalty.prox_vector(u, 0.0, 2.0), u)
    assert not penalty.prox_vector(u, 1.0, 1.0)[0].any()
    assert penalty.prox_vector(u[2], 0.1, 1.0).shape == (2,)
    assert penalty.value_vector(u[2], 1.0).shape == ()
    assert penalty.value_vector(np.zeros((0, 2)), 1.0).shape == (0,)
    np.testing.assert_array_equal(penalty.value_vector(u, 1.0), penalty.value_vector(-u, 1.0))


def test_prox_vector_at_zero_and_inside_is_exactly_zero():
    for penalty in (L2Norm(), L1Norm(), Scad(), Mcp()):
        moved = penalty.prox_vector([[0.0, 0.0], [0.3, -0.4], [30.0, 40.0]], lam=1.0, step=0.5)
        np.testing.assert_array_equal(moved[:2], 0.0)
        assert not np.signbit(moved[:2]).all()
    np.testing.assert_allclose(L2Norm().prox_vector([3.0, 4.0], 1.0, 0.5), [2.7, 3.6], rtol=1e-15)


@pytest.mark.parametrize("penalty", [Scad(), Mcp()], ids=["Scad", "Mcp"])
def test_far_pairs_are_left_alone_bit_by_bit(penalty):
    u = np.random.default_rng(1).normal(size=(50, 3)) + 10
    np.testing.assert_array_equal(penalty.prox_vector(u, 1.0, 1.0), u)


def test_prox_at_its_knees():
    # step < a - 1: continuous, so at each knee both formulas agree.
    scad = Scad(a=4.0)
    np.testing.assert_allclose(scad.prox([1.0, 3.0, 8.0], 2.0, 0.5), [0.0, 2.0, 8.0], rtol=1e-15)
    smoothed = SmoothedScad(a=4.0, xi=0.5)
    np.testing.assert_allclose(smoothed.prox([1.5, 3.0, 8.0], 2.0, 0.5), [0.5, 2.0, 8.0], rtol=1e-15)
    mcp = Mcp(gamma=4.0)
    np.testing.assert_allclose(mcp.prox([1.0, 8.0], 2.0, 0.5), [0.0, 8.0], rtol=1e-15)


@pytest.mark.parametrize(
    ("penalty", "lam", "step", "jump", "below"),
    [
        (Scad(a=3.0), 1.0, 2.0, 3.0, 1.0),  # lam (a + 1 + step) / 2 from the soft zone, t - lam step
        (Scad(a=3.0), 1.0, 4.0, 4.0, 0.0),  # step = a + 1: both formulas of the jump agree
        (Scad(a=3.0), 2.0, 16.0, 16.0, 0.0),  # lam sqrt((a + 1) step)
        (Mcp(gamma=2.0), 1.0, 2.0, 2.0, 0.0),  # lam sqrt(gamma step)
        (Mcp(gamma=2.0), 0.5, 8.0, 2.0, 0.0),
        # sqrt((lam (a + 1) - xi) (xi + lam step)) from the parabola: sqrt(3 * 12); there z = xi t / (xi + lam step).
        (SmoothedScad(a=3.0, xi=1.0), 1.0, 11.0, 6.0, 0.5),
        (SmoothedScad(a=3.0, xi=0.25), 1.0, 2.5, 3.25, 0.75),
    ],
)
def test_a_tie_goes_to_the_smaller_minimiser(penalty, lam, step, jump, below):
    assert float(penalty.prox(jump, lam, step)) == below
    assert float(penalty.prox(np.nextafter(jump, np.inf), lam, step)) > jump

    def objective(z):
        return plain_value(penalty, z, lam) + (z - jump) ** 2 / (2 * step)

    assert objective(below) == objective(jump)


@pytest.mark.parametrize("penalty", EVERY, ids=names(EVERY))
@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e8, 1e100])
def test_nothing_knows_units(penalty, scale):
    """g(c u; c lam) = c^2 g(u; lam), with SquaredL2 linear in lam, and prox(c u; c lam) = c prox(u; lam)."""
    u = np.random.default_rng(2).normal(size=(200, 2)) * np.geomspace(0.1, 20, 200)[:, None]
    other = (
        dataclasses.replace(penalty, xi=penalty.xi * scale) if isinstance(penalty, SmoothedScad) else penalty
    )
    lam = 1.0 if isinstance(penalty, SquaredL2) else scale
    for step in (0.5, 2.7, 3.0, 20.0):
        moved = other.prox_vector(u * scale, lam, step)
        np.testing.assert_allclose(moved / scale, penalty.prox_vector(u, 1.0, step), rtol=1e-12, atol=1e-14)
    value = other.value_vector(u * scale, lam) / scale / scale
    np.testing.assert_allclose(value, penalty.value_vector(u, 1.0), rtol=1e-13)


@pytest.mark.parametrize("penalty", EVERY, ids=names(EVERY))
@pytest.mark.parametrize("graph", ["complete", "weighted", "edges"])
def test_penalty_value_of_a_problem(penalty, graph, monkeypatch):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(9, 3))
    made = {
        "complete": Graph.complete(9, weight=0.5),
        "weighted": Graph.complete(9, node_weights=rng.random(9)),
        "edges": Graph.knn(x, 3),
    }[graph]
    problem = FusionProblem(SquaredDistance(x), made, penalty, lam=0.8)
    pairs = x[made.edges[:, 0]] - x[made.edges[:, 1]]
    by_hand = 0.0
    for weight, u in zip(made.weights, pairs, strict=True):
        t = np.abs(u).sum() if isinstance(penalty, L1Norm) else np.sqrt(u @ u)
        by_hand += weight * float(plain_value(L2Norm() if isinstance(penalty, L1Norm) else penalty, t, 0.8))
    assert problem.penalty_value(x) == pytest.approx(by_hand, rel=1e-13)
    monkeypatch.setattr("fusionopt.problem._BLOCK_NUMBERS", 12)  # blocks of 2 x 2 pairs
    assert problem.penalty_value(x) == pytest.approx(by_hand, rel=1e-13)


def test_repr_and_equality():
    assert [repr(p) for p in (L2Norm(), SquaredL2(), L1Norm())] == ["L2Norm()", "SquaredL2()", "L1Norm()"]
    assert repr(Scad()) == "Scad(a=3.7)"
    assert repr(SmoothedScad()) == "SmoothedScad(a=3.7, xi=0.001)"
    assert repr(Mcp()) == "Mcp(gamma=3.0)"
    assert Scad(a=3) == Scad(a=3.0) != Scad(a=4.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Scad().a = 5.0


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: Scad(a=2.0),
            InvalidArgumentError,
            r"a=2\.0 breaks a > 2; SCAD needs room between its knees",
        ),
        (lambda: SmoothedScad(a=1.5), InvalidArgumentError, r"a=1\.5 breaks a > 2"),
        (lambda: SmoothedScad(xi=0.0), InvalidArgumentError, r"xi=0\.0 is not positive"),
        (lambda: Mcp(gamma=0.0), InvalidArgumentError, r"gamma=0\.0 is not positive"),
        (lambda: Mcp(gamma="3"), InvalidTypeError, "gamma='3' is not a number"),
        (lambda: Scad(a=float("nan")), InvalidArgumentError, "a=nan is not finite"),
    ],
)
def test_shapes_that_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("penalty", RADIAL, ids=names(RADIAL))
@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda p: p.value([-1.0], 1.0), InvalidArgumentError, r"t holds -1\.0; every entry must be >= 0"),
        (lambda p: p.value([np.nan], 1.0), InvalidArgumentError, r"t holds NaN at position \(0,\)"),
        (lambda p: p.derivative([1.0], -1.0), InvalidArgumentError, r"lam=-1\.0 is negative"),
        (lambda p: p.prox(1.0, 1.0, -1.0), InvalidArgumentError, r"step=-1\.0 is negative"),
        (lambda p: p.prox(1.0, 1.0, None), InvalidTypeError, "step=None is not a number"),
        (lambda p: p.conjugate(-1.0, 1.0), InvalidArgumentError, r"s holds -1\.0"),
    ],
)
def test_refusals_of_radial_penalties(penalty, call, kind, message):
    with pytest.raises(kind, match=message):
        call(penalty)


@pytest.mark.parametrize("penalty", EVERY, ids=names(EVERY))
@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda p: p.prox_vector([["a"]], 1.0, 1.0), InvalidTypeError, "u holds text"),
        (lambda p: p.prox_vector([[1.0]], -1.0, 1.0), InvalidArgumentError, r"lam=-1\.0 is negative"),
        (lambda p: p.prox_vector([[1.0]], 1.0, np.inf), InvalidArgumentError, "step=inf is not finite"),
        (lambda p: p.value_vector([np.inf], 1.0), InvalidArgumentError, "u holds Inf"),
        (lambda p: p.conjugate_vector([np.nan], 1.0), InvalidArgumentError, "v holds NaN"),
        (lambda p: p.smoothness(-1.0), InvalidArgumentError, r"lam=-1\.0 is negative"),
    ],
)
def test_refusals(penalty, call, kind, message):
    with pytest.raises(kind, match=message):
        call(penalty)


def test_row_norms_over_the_whole_range():
    u = np.array([[3.0, 4.0], [0.0, 0.0], [3e200, 4e200], [3e-200, 4e-200], [5e-324, 0.0], [1.0, 1e-300]])
    # Tolerance: one rounding in each of sum, square root and scaling.
    np.testing.assert_allclose(row_norms(u), [5.0, 0.0, 5e200, 5e-200, 5e-324, 1.0], rtol=4e-16)
    assert row_norms(np.zeros((0, 3))).shape == (0,)
    assert row_norms(np.array([3.0, 4.0])) == 5.0
