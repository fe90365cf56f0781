"""Every node loss: values, gradients, Hessians, majorants and Fenchel gaps against formulas and numeric suprema."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import minimize

import fusionopt as fo
from fusionopt.errors import InvalidArgumentError, InvalidTypeError, MemoryLimitError
from fusionopt.losses import _glm, _sampled
from tests import loss_zoo
from tests.loss_zoo import KINDS, SAMPLED, dense, draw

SHAPES = [
    {},
    {"counts": 1, "p": 1},
    {"counts": 6, "ridge": 0.0},
    {"counts": 2, "p": 5, "m": 1},
    {"m": 7, "is_sparse": True},
    {"is_sparse": True, "counts": 4, "ridge": 0.0},
    {"one_label": True},
    {"one_label": True, "ridge": 0.0, "unit_weights": True},
]


def drawn(kind, seed, shape):
    return draw(kind, np.random.default_rng([seed, KINDS.index(kind)]), **shape)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=range(len(SHAPES)))
def case(request, kind):
    return drawn(kind, request.param, SHAPES[request.param])


def point(loss, seed=0, size=1.0):
    return size * np.random.default_rng(seed).normal(size=(loss.n_nodes, loss.n_features))


def test_values_by_the_formula(case):
    x = point(case.loss)
    expected = [float(case.value(i, row)) for i, row in enumerate(x)]
    np.testing.assert_allclose(case.loss.values(x), expected, rtol=1e-13, atol=1e-15)


def test_gradient_and_hessian_are_derivatives(case):
    loss, x, h = case.loss, point(case.loss, 1), 1e-6
    d = loss.n_features
    hessians = dense(loss.hessians_at(x), d)
    np.testing.assert_array_equal(hessians, hessians.swapaxes(1, 2))
    assert np.linalg.eigvalsh(hessians).min() >= -1e-13 * np.abs(hessians).max()
    for k, step in enumerate(h * np.eye(d)):
        slope = (loss.values(x + step) - loss.values(x - step)) / (2 * h)
        # Rounding of a difference quotient: eps * value / h, and h^2 times a third derivative.
        np.testing.assert_allclose(loss.gradient(x)[:, k], slope, atol=1e-7 * (1 + np.abs(slope).max()))
        bend = (loss.gradient(x + step) - loss.gradient(x - step)) / (2 * h)
        np.testing.assert_allclose(hessians[:, :, k], bend, atol=1e-7 * (1 + np.abs(bend).max()))


def test_rounding_of_the_gradient_is_within_its_bound(case):
    loss, x = case.loss, point(case.loss, 2)
    h = np.longdouble(2.0**-13)
    gradient, bound = loss.gradient(x), loss.gradient_error(x)
    size = 1 + np.abs(gradient).max() + np.abs(x).max()
    assert (bound <= 1e-12 * size).all()
    for i, row in enumerate(x.astype(np.longdouble)):
        for k in range(loss.n_features):
            step = np.zeros_like(row)
            step[k] = h
            near, far = (case.value(i, row + s * step) - case.value(i, row - s * step) for s in (1, 2))
            # Five points in extended precision: h^4 of a fifth derivative, and 1e-19 / h of the value.
            exact = (8 * near - far) / (12 * h)
            assert abs(gradient[i, k] - exact) <= bound[i, k] + 1e-13 * size


def test_majorant_dominates_every_hessian(case):
    loss = case.loss
    if case.kind == "poisson":
        assert loss.majorant() is None
        return
    top = dense(loss.majorant(), loss.n_features)
    size = np.abs(top).max()
    for seed in range(5):
        hessians = dense(loss.hessians_at(point(loss, seed, 10.0 ** (seed - 3))), loss.n_features)
        assert np.linalg.eigvalsh(top - hessians).min() >= -1e-13 * size
        low = np.linalg.eigvalsh(hessians)[:, 0]
        assert (loss.strong_convexity() <= low + 1e-13 * size).all()


def test_fenchel_gap_of_a_gradient_is_the_bregman_distance(case):
    """With g = -grad f(y) the exact value is f(x) - f(y) - <grad f(y), x - y>."""
    loss, x = case.loss, point(case.loss, 3)
    for size in (1e-3, 1.0):
        y = x + point(loss, 4, size)
        g = -loss.gradient(y)
        g *= loss.dual_scale(g) if case.kind == "huber" else 1.0
        exact = loss.values(x) - loss.values(y) + (g * (x - y)).sum(axis=1)
        told = loss.fenchel(x, g)
        noise = 1e-14 * (1 + np.abs(loss.values(x)) + np.abs(loss.values(y)))
        assert (told.gap + told.error >= exact - noise).all()
        assert (told.gap >= 0).all()
        if size == 1e-3:
            assert (told.gap <= 1.01 * exact + told.error + noise).all(), (
                "loose next to the minimiser of f + <g, .>"
            )
            assert (told.error <= 1e-9 * (1 + np.abs(loss.values(x)))).all()
    same = -loss.gradient(x)
    same *= loss.dual_scale(same) if case.kind == "huber" else 1.0
    tight = loss.fenchel(x, same)
    # Huber's force had to be drawn back inside its ball by a few roundings, which is a gap of as much.
    assert (tight.gap <= (4 if case.kind == "huber" else 1) * tight.error + 1e-25).all()
    np.testing.assert_array_equal(loss.fenchel_gap(x, same), tight.gap)


@pytest.mark.parametrize(
    "kind", ["least_squares", "logistic", "hinge", "huber_regression", "poisson", "softmax"]
)
@pytest.mark.parametrize("seed", range(4))
def test_fenchel_gap_bounds_a_numeric_supremum(kind, seed):
    """Any g: with a ridge f* is finite everywhere, and its value is a smooth maximum."""
    case = drawn(kind, seed + 50, {"ridge": 0.3, "counts": 5})
    loss, x = case.loss, point(case.loss, seed)
    g = point(loss, seed + 9, 2.0)
    told = loss.fenchel(x, g)
    for i in range(loss.n_nodes):

        def tilted(z, i=i):
            rows = np.tile(z, (loss.n_nodes, 1))
            return loss.values(rows)[i] + g[i] @ z, loss.gradient(rows)[i] + g[i]

        lowest = minimize(tilted, x[i], jac=True, method="BFGS", options={"gtol": 1e-9}).fun
        exact = loss.values(x)[i] + g[i] @ x[i] - lowest
        assert exact - 1e-9 <= told.gap[i] < np.inf
        assert told.gap[i] <= max(50 * exact, 1.01 * ((loss.gradient(x)[i] + g[i]) ** 2).sum() / (2 * 0.3))


@pytest.mark.parametrize("kind", ["logistic_bias", "hinge_bias"])
def test_free_bias_meets_its_range(kind):
    case = drawn(kind, 7, {"counts": 8, "unit_weights": True, "ridge": 0.1})
    loss = case.loss
    x, g = point(loss, 1), point(loss, 2, 5.0)
    scale = loss.dual_scale(g)
    told = loss.fenchel(x, scale * g)
    assert np.isfinite(told.gap).all()
    if kind == "hinge_bias":
        assert scale == 1.0
        return
    share = np.array([[(y < 0).mean(), (y > 0).mean()] for y in case.targets])
    # The derivative in b runs over (-n_-/n, n_+/n).
    limits = np.where(g[:, -1] > 0, share[:, 0], share[:, 1]) / np.abs(g[:, -1])
    assert scale == pytest.approx(min(1.0, limits.min()), rel=1e-12) and scale < limits.min()
    assert np.isinf(loss.fenchel_gap(x, 1.01 * scale * g)).any() or scale == 1.0


@pytest.mark.parametrize("kind", ["logistic_bias", "hinge_bias"])
def test_one_label_with_a_free_bias(kind):
    """Labels all +1: the derivative in b is >= 0, so g_b > 0 leaves the domain, and f* (0) = 0."""
    case = drawn(kind, 8, {"one_label": True, "unit_weights": True})
    loss, x = case.loss, point(case.loss, 1)
    g = np.zeros_like(x)
    np.testing.assert_allclose(loss.fenchel_gap(x, g), loss.values(x), rtol=1e-12)
    g[:, -1] = 1e-3
    assert loss.dual_scale(g) == 0.0
    assert np.isinf(loss.fenchel_gap(x, g)).all()
    assert loss.dual_scale(-g) == 1.0
    assert np.isfinite(loss.fenchel_gap(x, -g)).all()


def test_domain_of_huber():
    loss = fo.Huber([[0.0, 0.0], [1.0, 1.0]], delta=0.5, sample_weight=[1.0, 0.0])
    g = np.array([[0.6, 0.8], [0.0, 0.0]])
    assert loss.dual_scale(g) == pytest.approx(0.5, rel=1e-13)
    assert loss.dual_scale(g) * 1.0 < 0.5
    assert loss.dual_scale(0.1 * g) == 1.0
    assert loss.dual_scale(g, 1e-3 * np.ones((2, 2))) < 0.5 / (1 + 1e-3)
    x = np.array([[0.1, 0.0], [3.0, 3.0]])
    assert np.isinf(loss.fenchel_gap(x, g)).tolist() == [True, False]
    # f + f*(-g) + <g, x> by hand, and a node without weight: f* is 0 at 0 only.
    np.testing.assert_allclose(loss.fenchel_gap(x, 0.25 * g)[0], 0.005 + 0.0625 / 2 + 0.25 * 0.06, rtol=1e-14)
    assert np.isinf(loss.fenchel_gap(x, g + 1e-3)[1])


def test_directions_that_a_loss_does_not_feel():
    flat = fo.Softmax([[[1.0, 2.0], [0.5, 1.0]]], [[0, 1]], n_classes=3)
    x = point(flat, 1)
    g = -flat.gradient(x)
    assert flat.fenchel_gap(x, g)[0] <= 1e-25
    shifted = g.reshape(2, 3) + 0.1
    assert np.isinf(flat.fenchel_gap(x, shifted.reshape(1, -1)))[0]
    short = fo.LeastSquares([[[1.0, 0.0]]], [[2.0]])
    assert short.fenchel_gap([[0.0, 5.0]], [[1.0, 0.0]])[0] == 0.5
    assert np.isinf(short.fenchel_gap([[0.0, 5.0]], [[1.0, 1e-9]])[0])
    told = short.fenchel([[0.0, 5.0]], [[1.0, 1e-9]], g_error=[[0.0, 1e-9]])
    assert told.gap[0] == 0.5 and 1e-9 * 5 <= told.error[0] <= 1e-7
    weightless = fo.Logistic([[[1.0]], [[1.0]]], [[1], [1]], sample_weight=[[1], [0]])
    gaps = weightless.fenchel_gap([[0.0], [4.0]], [[0.5], [0.0]])
    assert gaps[0] <= 1e-20 and gaps[1] == 0.0


@pytest.mark.parametrize("kind", ["hinge", "huber_regression", "least_squares", "huber"])
def test_units_pass_through(kind):
    """x in units 1/c of the design, or of the targets: gaps follow exactly, whatever the size."""
    base = drawn(kind, 3, {"counts": 6, "ridge": 0.0, "unit_weights": True})
    x, g = point(base.loss, 1, 0.1), point(base.loss, 2, 1e-2)
    expected = base.loss.fenchel(x, g).gap
    for c in (2.0**-40, 2.0**40):
        if kind == "hinge":
            loss = fo.SquaredHinge([c * z for z in base.designs], base.targets, free_bias=False)
            told = loss.fenchel(x / c, g * c).gap
            unit = 1.0
        elif kind == "huber":
            loss = fo.Huber([c * row for row in base.targets], c * loss_zoo.DELTA, base.weights)
            told, unit = loss.fenchel(x * c, g * c).gap, c**2
        elif kind == "huber_regression":
            loss = fo.HuberRegression(base.designs, [c * y for y in base.targets], c * loss_zoo.DELTA)
            told, unit = loss.fenchel(x * c, g * c).gap, c**2
        else:
            loss = fo.LeastSquares(base.designs, [c * y for y in base.targets])
            told, unit = loss.fenchel(x * c, g * c).gap, c**2
        np.testing.assert_allclose(told, unit * expected, rtol=1e-7)


@pytest.mark.parametrize("kind", SAMPLED)
def test_sparse_designs_give_the_dense_numbers_and_stay_sparse(kind):
    case = drawn(kind, 4, {"is_sparse": True, "m": 6})
    twin = drawn(kind, 4, {"is_sparse": True, "m": 6})
    classes = {"n_classes": 3} if kind == "softmax" else {}
    delta = (loss_zoo.DELTA,) if kind == "huber_regression" else ()
    bias = {"free_bias": kind.endswith("bias")} if kind.startswith(("logistic", "hinge")) else {}
    flat = type(case.loss)(
        twin.designs, twin.targets, *delta, ridge=0.2, sample_weight=twin.weights, **bias, **classes
    )
    assert sparse.issparse(case.loss.designs) and isinstance(flat.designs, np.ndarray)
    np.testing.assert_array_equal(case.loss.designs.toarray(), flat.designs)
    x, g = point(flat, 5), point(flat, 6, 0.1)
    g *= flat.dual_scale(g)
    for name in ("values", "gradient", "hessians_at"):
        np.testing.assert_allclose(
            getattr(case.loss, name)(x), getattr(flat, name)(x), rtol=1e-12, atol=1e-14
        )
    np.testing.assert_allclose(case.loss.fenchel_gap(x, g), flat.fenchel_gap(x, g), rtol=1e-9)
    grouped = type(flat)(
        sparse.vstack([sparse.csr_array(z) for z in twin.designs]),
        np.concatenate(twin.targets),
        *delta,
        ridge=0.2,
        sample_weight=np.concatenate(twin.weights),
        groups=np.repeat(np.arange(6), [len(z) for z in twin.designs]),
        **bias,
        **classes,
    )
    np.testing.assert_array_equal(grouped.values(x), case.loss.values(x))


def test_a_wide_sparse_design_is_never_made_dense():
    rng = np.random.default_rng(0)
    p = 60_000
    rows = [sparse.random_array((3, p), density=1e-4, rng=rng, format="csr") for _ in range(20)]
    loss = fo.Logistic(rows, [[1, -1, 1]] * 20, ridge=0.1)
    x = np.zeros((20, p))
    gap = loss.fenchel(x, -loss.gradient(x)).gap
    assert (gap <= 1e-25).all()
    with pytest.raises(MemoryLimitError, match="The Hessians of all nodes would take"):
        loss.majorant()


@pytest.mark.parametrize(
    "make", [np.asfortranarray, np.float32, pd.DataFrame, lambda z: z.tolist(), sparse.coo_array]
)
def test_designs_of_any_kind_are_copied(make):
    base = drawn("logistic", 5, {"counts": 4, "ridge": 0.0})
    z = [np.float32(design) for design in base.designs]
    given = [make(design) for design in z]
    loss = fo.Logistic(given, [y.astype(int) for y in base.targets], sample_weight=base.weights)
    x = point(loss, 1)
    expected = fo.Logistic(z, base.targets, sample_weight=base.weights).values(x)
    np.testing.assert_allclose(loss.values(x), expected, rtol=1e-13)
    z[0][:] = 7.0
    np.testing.assert_allclose(loss.values(x), expected, rtol=1e-13)
    frozen = x.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(loss.gradient(frozen), loss.gradient(x))


def test_zero_one_labels_and_properties():
    loss = fo.Logistic([[[1.0], [2.0]]], [[0, 1]], ridge=0.5, free_bias=True)
    np.testing.assert_array_equal(loss.labels, [-1, 1])
    assert (loss.n_features, loss.ridge, loss.designs.tolist()) == (2, 0.5, [[1.0], [2.0]])
    np.testing.assert_array_equal(loss.strong_convexity(), [0.0])
    assert fo.SquaredHinge([[[1.0]]], [[1]]).n_features == 2
    np.testing.assert_array_equal(fo.SquaredHinge([[[1.0]]], [[1]]).labels, [1.0])
    assert fo.HuberRegression([[[1.0]]], [[1]], 0.3).delta == 0.3
    np.testing.assert_array_equal(fo.Poisson([[[1.0]]], [[3]]).counts, [3.0])
    soft = fo.Softmax([[[1.0]], [[1.0]]], [[0], [2]])
    assert soft.n_classes == 3 and soft.classes.tolist() == [0, 2]
    huber = fo.Huber([1.0, 2.0], 0.5)
    assert (huber.delta, huber.sample_weight.tolist(), huber.targets.tolist()) == (
        0.5,
        [1, 1],
        [[1.0], [2.0]],
    )
    missing = fo.SquaredDistance([[np.nan, 1.0]])
    assert missing.has_missing and np.isnan(missing.targets[0, 0])


def test_far_points_overflow_to_infinity_without_a_warning():
    loss = fo.Poisson([[[1.0]]], [[1]], ridge=0.1)
    assert loss.values([[1000.0]])[0] == np.inf
    assert np.isinf(loss.gradient([[1000.0]])[0, 0])
    assert loss.fenchel_gap([[1000.0]], [[0.0]])[0] == np.inf
    logistic = fo.Logistic([[[1.0], [1.0]]], [[1, -1]])
    np.testing.assert_allclose(logistic.values([[1e5]]), [5e4])
    told = logistic.fenchel([[1e5]], [[0.0]])
    assert told.gap[0] == pytest.approx(5e4 - np.log(2), rel=1e-12)


DESIGN = [[[1.0], [2.0]]]


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: fo.Logistic(DESIGN, [[1, 2]]),
            InvalidArgumentError,
            "labels holds the values 1, 2; give two classes",
        ),
        (
            lambda: fo.SquaredHinge(DESIGN, [[-1, 0]]),
            InvalidArgumentError,
            "labels holds the values -1, 0; give two",
        ),
        (
            lambda: fo.Logistic([np.ones((7, 1))], [np.arange(7.0)]),
            InvalidArgumentError,
            r"labels holds the values 0, 1, 2, 3, 4, \.\.\.; give",
        ),
        (lambda: fo.Logistic(DESIGN, [[1]]), InvalidArgumentError, r"labels\[0\] has 1 entries; it needs 2"),
        (
            lambda: fo.Logistic(DESIGN, [[1, 1]], free_bias="yes"),
            InvalidTypeError,
            "free_bias='yes' is not True or",
        ),
        (lambda: fo.Logistic(DESIGN, [[1, 1]], ridge=-1), InvalidArgumentError, "ridge=-1.0 is negative"),
        (
            lambda: fo.Softmax(DESIGN, [[0, 0.5]]),
            InvalidArgumentError,
            r"classes holds 0\.5 for sample 1; classes are",
        ),
        (lambda: fo.Softmax(DESIGN, [[0, -1]]), InvalidArgumentError, "classes holds -1 for sample 1"),
        (
            lambda: fo.Softmax(DESIGN, [[0, 0]]),
            InvalidArgumentError,
            "classes holds class 0 only; give n_classes",
        ),
        (
            lambda: fo.Softmax(DESIGN, [[0, 2]], n_classes=2),
            InvalidArgumentError,
            "holds class 2, and n_classes=2",
        ),
        (lambda: fo.Softmax(DESIGN, [[0, 1]], n_classes=1), InvalidArgumentError, "n_classes=1 is too small"),
        (
            lambda: fo.Poisson(DESIGN, [[0, -2]]),
            InvalidArgumentError,
            "counts holds -2 for sample 1; a count is >= 0",
        ),
        (
            lambda: fo.HuberRegression(DESIGN, [[0, 2]], 0.0),
            InvalidArgumentError,
            "delta=0.0 is not positive",
        ),
        (lambda: fo.Huber([0.0], -1.0), InvalidArgumentError, "delta=-1.0 is not positive"),
        (lambda: fo.Huber([np.nan], 1.0), InvalidArgumentError, "targets holds NaN at row 0, column 0"),
        (
            lambda: fo.Logistic(sparse.csr_array([[1.0]]), [1]),
            InvalidArgumentError,
            "designs is one array with 2 dimensions",
        ),
        (
            lambda: fo.Logistic([sparse.csr_array([[1.0, 1.0]]), sparse.csr_array([[1.0]])], [1, 1]),
            InvalidArgumentError,
            r"designs\[1\] has 1 columns \(shape \(1, 1\)\); it needs 2",
        ),
        (
            lambda: fo.Logistic([sparse.csr_array([[0.0, 1.0], [0.0, np.inf]])], [1, 1]),
            InvalidArgumentError,
            r"designs\[0\] holds Inf at row 1, column 1",
        ),
        (
            lambda: fo.Logistic([sparse.csr_array((0, 2))], [[]]),
            InvalidArgumentError,
            r"designs\[0\] has shape \(0, 2\); give at least one row",
        ),
        (
            lambda: fo.Logistic([sparse.csr_array([[1j]])], [1]),
            InvalidTypeError,
            r"designs\[0\] is a sparse matrix of dtype complex128",
        ),
    ],
)
def test_refusals(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_hessians_of_missing_cells_are_checked_for_memory(monkeypatch):
    points = np.ones((100, 100_000))
    points[0, 0] = np.nan
    with pytest.raises(MemoryLimitError, match="The Hessians of nodes with missing cells would take"):
        fo.SquaredDistance(points)


def test_force_is_checked():
    loss = fo.Huber([0.0, 1.0], 1.0)
    with pytest.raises(InvalidArgumentError, match="g has shape"):
        loss.fenchel_gap([[0.0], [0.0]], [[1.0]])
    with pytest.raises(InvalidArgumentError, match="g_error has shape"):
        loss.dual_scale([[0.0], [0.0]], [[1.0]])


def test_equal_sizes_take_one_batch_and_ragged_nodes_one_for_each_size():
    assert len(_sampled.Design(np.ones((6, 2)), np.array([3, 3]))._batches) == 1
    assert len(_sampled.Design(np.ones((7, 2)), np.array([3, 1, 3]))._batches) == 2


@pytest.mark.parametrize("kind", ["logistic", "hinge", "hinge_bias", "huber_regression", "poisson"])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_without_ridge_least_squares_with_bounds_find_the_domain(kind, is_sparse, monkeypatch):
    """Newton steps switched off: near the solution the bound is finite, valid and of first order; far out it is inf."""
    monkeypatch.setattr(_glm, "NEWTON_STEPS", 0)
    case = drawn(kind, 12, {"counts": 9, "ridge": 0.0, "is_sparse": is_sparse, "unit_weights": True})
    loss, x = case.loss, point(case.loss, 1, 0.5)
    y = x + point(loss, 2, 1e-5)
    g = -loss.gradient(y)
    exact = loss.values(x) - loss.values(y) + (g * (x - y)).sum(axis=1)
    told = loss.fenchel(x, g)
    assert (told.gap + told.error >= exact - 1e-15).all()
    assert np.isfinite(told.gap).sum() >= 3, "one node may have no room left in its bounds"
    assert (told.gap[np.isfinite(told.gap)] <= 1e-3).all()
    far = loss.fenchel(x, 5.0 + 3 * g).gap
    assert np.isinf(far).all()


def test_models_of_huber_losses_lie_between_hessian_and_majorant():
    for kind in ("huber", "huber_regression"):
        loss = drawn(kind, 13, {"counts": 5}).loss
        for size in (0.1, 1.0, 10.0):
            x, d = point(loss, 3, size), loss.n_features
            model, hessian, top = (
                dense(h, d) for h in (loss.model_hessians_at(x), loss.hessians_at(x), loss.majorant())
            )
            assert np.linalg.eigvalsh(model - hessian).min() >= -1e-14
            assert np.linalg.eigvalsh(top - model).min() >= -1e-14


def test_relative_entropy_keeps_its_digits() -> None:
    """q log(q / p) against mpmath-free closed values: q = p gives 0, tiny q neither -inf nor 0 log 0."""
    from fusionopt.losses._families import relative_entropy

    p = np.array([0.5, 0.5, 0.5, 0.5, 1e-200])
    q = np.array([0.5, 0.5 + 1e-12, 1e-18, 0.0, 1e-300])
    got = relative_entropy(q, p, q - p)
    away = q[1] - 0.5
    expected = [0.0, away + away**2, 1e-18 * np.log(2e-18), 0.0, 1e-300 * np.log(1e-100)]
    np.testing.assert_allclose(got, expected, rtol=1e-10)
