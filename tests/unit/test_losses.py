"""SquaredDistance and LeastSquares: values, gradients, quadratic forms, rounding bounds, every refusal."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusionopt import LeastSquares, SquaredDistance
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.losses import NodeLoss, QuadraticNodeLoss


def _distance(seed=0, weights=(1.0, 0.0, 2.5)):
    rng = np.random.default_rng(seed)
    return SquaredDistance(rng.normal(size=(3, 2)), sample_weight=weights)


def _regression(seed=0, ridge=0.3, counts=(1, 4, 7), p=3, weighted=True):
    rng = np.random.default_rng(seed)
    designs = [rng.normal(size=(n, p)) for n in counts]
    targets = [rng.normal(size=n) for n in counts]
    weights = [rng.uniform(0, 2, size=n) for n in counts] if weighted else None
    return LeastSquares(designs, targets, ridge=ridge, sample_weight=weights)


def _literal_regression(loss, x, i):
    part = slice(loss.offsets[i], loss.offsets[i + 1])
    residual = loss.designs[part] @ x - loss.targets[part]
    n = loss.offsets[i + 1] - loss.offsets[i]
    return (loss.sample_weight[part] * residual**2).sum() / (2 * n) + loss.ridge / 2 * (x @ x)


ALL = pytest.mark.parametrize(
    "loss",
    [
        _distance(),
        _distance(weights=None),
        _regression(),
        _regression(ridge=0.0, weighted=False),
        _regression(p=1),
    ],
    ids=["distance", "distance-unit", "regression", "regression-plain", "regression-p1"],
)


@ALL
def test_gradient_is_the_derivative_of_values(loss):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(loss.n_nodes, loss.n_features))
    gradient = loss.gradient(x)
    h = 1e-4
    for column in range(loss.n_features):
        step = np.zeros(loss.n_features)
        step[column] = h
        central = (loss.values(x + step) - loss.values(x - step)) / (2 * h)
        # A central difference is exact for quadratics; what is left is eps * value / h.
        np.testing.assert_allclose(gradient[:, column], central, atol=1e-10)


@ALL
def test_quadratic_form_gives_the_same_values_and_gradients(loss):
    x = np.random.default_rng(2).normal(size=(loss.n_nodes, loss.n_features))
    hessians, q, c = loss.hessians(), loss.linear(), loss.constants()
    if hessians.ndim == 1:
        hessians = hessians[:, None, None] * np.eye(loss.n_features)
    products = np.einsum("ikl,il->ik", hessians, x)
    np.testing.assert_allclose(products - q, loss.gradient(x), atol=1e-13)
    np.testing.assert_allclose((0.5 * products * x - q * x).sum(axis=1) + c, loss.values(x), atol=1e-13)
    assert loss.value(x) == pytest.approx(loss.values(x).sum())
    np.testing.assert_array_equal(hessians, np.swapaxes(hessians, 1, 2))


@ALL
def test_immutable_and_picklable(loss):
    assert isinstance(loss, QuadraticNodeLoss)
    assert isinstance(loss, NodeLoss)
    for array in (loss.targets, loss.sample_weight, loss.hessians(), loss.linear(), loss.constants()):
        assert not array.flags.writeable
    with pytest.raises(AttributeError, match="is immutable: '_targets' cannot be set; build a new loss"):
        loss._targets = 0
    with pytest.raises(AttributeError, match="is immutable: '_targets' cannot be deleted"):
        del loss._targets
    copy = pickle.loads(pickle.dumps(loss))
    x = np.ones((loss.n_nodes, loss.n_features))
    assert copy.value(x) == loss.value(x)


@ALL
def test_x_is_checked(loss):
    shape = (loss.n_nodes, loss.n_features)
    with pytest.raises(InvalidArgumentError, match="x has shape"):
        loss.values(np.zeros((shape[0] + 1, shape[1])))
    with pytest.raises(InvalidArgumentError, match="x holds NaN at row 0, column 0"):
        loss.gradient(np.full(shape, np.nan))
    with pytest.raises(InvalidTypeError, match="x holds complex"):
        loss.gradient_error(np.zeros(shape) * 1j)


def test_distance_by_hand():
    loss = SquaredDistance([[0, 0], [2, 0]], sample_weight=[1, 3])
    x = [[1, 0], [0, 2]]
    np.testing.assert_array_equal(loss.values(x), [0.5, 12.0])
    np.testing.assert_array_equal(loss.gradient(x), [[1, 0], [-6, 6]])
    np.testing.assert_array_equal(loss.hessians(), [1, 3])
    np.testing.assert_array_equal(loss.linear(), [[0, 0], [6, 0]])
    np.testing.assert_array_equal(loss.constants(), [0, 6])
    assert repr(loss) == "SquaredDistance(n_nodes=2, n_features=2)"


def test_distance_takes_a_vector_and_does_not_cancel_at_an_offset():
    loss = SquaredDistance(pd.Series([1e9, 1e9 + 1]))
    assert (loss.n_nodes, loss.n_features) == (2, 1)
    assert loss.value([1e9 + 0.25, 1e9 + 1]) == 0.03125
    np.testing.assert_array_equal(loss.gradient([1e9 + 0.25, 1e9 + 1]), [[0.25], [0.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.int64, bool])
def test_distance_copies_its_targets(dtype):
    targets = np.array([[0, 1], [1, 0]], dtype=dtype, order="F")
    loss = SquaredDistance(targets)
    targets[0, 0] = 1
    assert loss.targets[0, 0] == 0.0


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            ([[np.nan, np.nan]],),
            InvalidArgumentError,
            "targets has no cell with a number and a positive weight",
        ),
        (([[1, np.nan], [2, 3]], [0, 0]), InvalidArgumentError, "sample_weight is zero for every node"),
        (([[0], [np.inf]],), InvalidArgumentError, "targets holds Inf at row 1, column 0"),
        (([],), InvalidArgumentError, r"targets is empty"),
        ((np.zeros((2, 2, 2)),), InvalidArgumentError, "targets has 3 dimensions"),
        (([["a"]],), InvalidTypeError, "targets holds text"),
        (([0, 1], [1, -1]), InvalidArgumentError, r"sample_weight is -1\.0 for node 1"),
        (([0, 1], [1]), InvalidArgumentError, "sample_weight has 1 entries; it needs 2, one for each node"),
        (([0, 1], [0, 0]), InvalidArgumentError, "sample_weight is zero for every node"),
        (([0, 1], [1, np.nan]), InvalidArgumentError, "sample_weight holds NaN at position 1"),
    ],
)
def test_distance_refuses(arguments, kind, message):
    with pytest.raises(kind, match=message):
        SquaredDistance(*arguments)


def test_regression_by_the_formula():
    loss = _regression()
    x = np.random.default_rng(3).normal(size=(3, 3))
    expected = [_literal_regression(loss, x[i], i) for i in range(3)]
    np.testing.assert_allclose(loss.values(x), expected, rtol=1e-14)
    np.testing.assert_array_equal(loss.n_samples, [1, 4, 7])
    np.testing.assert_array_equal(loss.offsets, [0, 1, 5, 12])
    assert loss.group_names is None


def test_every_way_of_giving_the_same_data():
    rng = np.random.default_rng(4)
    designs, targets, weights = rng.normal(size=(4, 5, 2)), rng.normal(size=(4, 5)), rng.uniform(size=(4, 5))
    x = rng.normal(size=(4, 2))
    base = LeastSquares(list(designs), list(targets), sample_weight=list(weights)).values(x)
    groups = np.repeat([10, 20, 30, 40], 5)
    order = rng.permutation(20)
    stacked, flat, heavy = designs.reshape(-1, 2), targets.ravel(), weights.ravel()
    frame = pd.DataFrame(stacked[order])
    others = [
        LeastSquares(designs, targets, sample_weight=weights),
        LeastSquares(tuple(designs), flat, sample_weight=heavy),
        LeastSquares([d.tolist() for d in designs], targets.tolist(), sample_weight=heavy.tolist()),
        LeastSquares(
            [pd.DataFrame(d) for d in designs],
            [pd.Series(t) for t in targets],
            sample_weight=pd.Series(heavy),
        ),
        LeastSquares(stacked, flat, sample_weight=heavy, groups=groups),
        LeastSquares(
            frame, pd.Series(flat[order]), sample_weight=heavy[order], groups=pd.Series(groups[order])
        ),
        LeastSquares(frame, flat[order], sample_weight=heavy[order], groups=[f"g{g}" for g in groups[order]]),
    ]
    for other in others:
        np.testing.assert_allclose(other.values(x), base, rtol=1e-13)
    assert others[4].group_names.tolist() == [10, 20, 30, 40]
    assert others[6].group_names.tolist() == ["g10", "g20", "g30", "g40"]


def test_singular_regression_and_a_node_that_weighs_nothing():
    loss = LeastSquares([[[1, 0]], [[1, 1]], [[1, 2]]], [1, 3, 5], sample_weight=[1, 0, 1])
    np.testing.assert_array_equal(loss.hessians()[1], 0.0)
    np.testing.assert_array_equal(loss.gradient(np.tile([1, 2], (3, 1))), 0.0)
    assert loss.value(np.tile([1, 2], (3, 1))) == 0.0


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        (
            ((np.ones((4, 2)), np.ones(4)), {}),
            InvalidArgumentError,
            "designs is one array with 2 dim.*with groups",
        ),
        (
            ((pd.DataFrame(np.ones((4, 2))), np.ones(4)), {}),
            InvalidTypeError,
            "designs is a DataFrame; give a list",
        ),
        ((3, [1]), InvalidTypeError, "designs is a int; give a list"),
        (([], []), InvalidArgumentError, "designs is empty; give one"),
        (([np.ones((0, 2))], [[]]), InvalidArgumentError, r"designs\[0\] is empty"),
        (
            ([np.ones((1, 2)), np.ones((1, 3))], [[1], [1]]),
            InvalidArgumentError,
            r"designs\[1\] has 3 columns",
        ),
        (([[[np.nan]]], [[1]]), InvalidArgumentError, r"designs\[0\] holds NaN at row 0, column 0"),
        (
            ([[[1.0]]], [[1], [2]]),
            InvalidArgumentError,
            "targets has 2 entries and designs has 1; give one vector",
        ),
        (([[[1.0]]], 3.0), InvalidArgumentError, "targets has float entries"),
        (
            ([[[1.0]], [[1.0]]], [[1], [1, 2]]),
            InvalidArgumentError,
            r"targets\[1\] has 2 entries; it needs 1",
        ),
        (([[[1.0]]], [[np.inf]]), InvalidArgumentError, r"targets\[0\] holds Inf at position 0"),
        (
            ([[[1.0]]], [1.0, 2.0]),
            InvalidArgumentError,
            "targets has 2 entries; it needs 1, one for each sample",
        ),
        (([[[1.0]]], [1.0], -1.0), InvalidArgumentError, r"ridge=-1\.0 is negative"),
        (([[[1.0]]], [1.0], 0.0, [-1.0]), InvalidArgumentError, r"sample_weight is -1\.0 for sample 0"),
        (([[[1.0]]], [1.0], 1.0, [0.0]), InvalidArgumentError, "sample_weight is zero for every sample"),
        ((np.ones((2, 1)), [1, 2], 0.0, None, [0]), InvalidArgumentError, "groups has 1 entries; it needs 2"),
        (
            (np.ones((2, 1)), [1], 0.0, None, [0, 1]),
            InvalidArgumentError,
            "targets has 1 entries; it needs 2, one for",
        ),
        (
            (np.ones((2, 1)), [1, 2], 0.0, [1], [0, 1]),
            InvalidArgumentError,
            "sample_weight has 1 entries; it needs 2",
        ),
    ],
)
def test_regression_refuses(arguments, kind, message):
    if isinstance(arguments[-1], dict):
        arguments = arguments[0]
    with pytest.raises(kind, match=message):
        LeastSquares(*arguments)


def _exact_gradient_distance(loss, x):
    rows = []
    for a, m, r in zip(loss.targets, loss.sample_weight, x, strict=True):
        rows.append([Fraction(m) * (Fraction(s) - Fraction(t)) for s, t in zip(r, a, strict=True)])
    return rows


def _exact_gradient_regression(loss, x):
    rows = []
    for i in range(loss.n_nodes):
        part = range(loss.offsets[i], loss.offsets[i + 1])
        point = [Fraction(v) for v in x[i]]
        row = [Fraction(loss.ridge) * v for v in point]
        for s in part:
            z = [Fraction(v) for v in loss.designs[s]]
            residual = sum(a * b for a, b in zip(z, point, strict=True)) - Fraction(loss.targets[s])
            for k, entry in enumerate(z):
                row[k] += Fraction(loss.sample_weight[s]) * residual * entry / len(part)
        rows.append(row)
    return rows


@given(
    seed=st.integers(0, 10_000),
    offset=st.sampled_from([0.0, 1e6, -1e9]),
    scale=st.sampled_from([1e-8, 1.0, 1e8]),
)
def test_gradient_error_bounds_the_true_error(seed, offset, scale):
    rng = np.random.default_rng(seed)
    targets = scale * (offset + rng.normal(size=(3, 2)))
    distance = SquaredDistance(targets, rng.uniform(0.1, 3, size=3))
    near = targets + scale * 1e-3 * rng.normal(size=(3, 2))
    designs = [offset + rng.normal(size=(n, 2)) for n in (1, 5, 2)]
    truth = rng.normal(size=2)
    regression = LeastSquares(designs, [scale * (d @ truth) for d in designs], ridge=0.1)
    # At the fit the terms cancel: here a bound that looked at the result only would be wrong.
    for loss, x, exact in (
        (distance, near, _exact_gradient_distance),
        (regression, np.tile(scale * truth, (3, 1)), _exact_gradient_regression),
    ):
        computed, bound = loss.gradient(x), loss.gradient_error(x)
        for row, expected, allowed in zip(computed, exact(loss, x), bound, strict=True):
            for value, true, limit in zip(row, expected, allowed, strict=True):
                assert abs(Fraction(value) - true) <= Fraction(limit)


def test_gradient_error_is_small_and_follows_the_units():
    loss, x = _regression(), np.ones((3, 3))
    assert (loss.gradient_error(x) <= 1e-13 * np.abs(loss.hessians()).sum() * 10).all()
    distance = SquaredDistance([[1.0, 2.0]])
    larger = SquaredDistance([[1e8, 2e8]])
    np.testing.assert_allclose(
        larger.gradient_error([[3e8, 4e8]]), 1e8 * distance.gradient_error([[3, 4]]), rtol=1e-14
    )
