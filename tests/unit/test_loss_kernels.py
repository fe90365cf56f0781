"""The compiled losses give the numbers of the NumPy losses, for all nodes and for some."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt as fo
from fusionopt import _core
from fusionopt._bridge_losses import loss_kernel
from tests.loss_zoo import KINDS, dense, draw

SHAPES = [
    {"m": 5, "p": 11},
    {"counts": 1, "p": 1, "ridge": 0.0},
    {"counts": 9, "p": 8, "m": 3},
    {"is_sparse": True, "m": 6, "p": 4},
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_twins_agree(kind, shape):
    rng = np.random.default_rng([shape, KINDS.index(kind)])
    loss = draw(kind, rng, **SHAPES[shape]).loss
    kernel = loss_kernel(loss)
    assert isinstance(kernel, _core.LossKernel)
    d = loss.n_features
    for size in (0.1, 1.0, 3.0):
        x = size * rng.normal(size=(loss.n_nodes, d))
        # Both round: a few eps of the terms, which gradient_error bounds entry by entry.
        np.testing.assert_allclose(kernel.values(x), loss.values(x), rtol=1e-13)
        gradient, hessians = loss.gradient(x), dense(loss.hessians_at(x), d)
        assert (np.abs(kernel.gradient(x) - gradient) <= 2 * loss.gradient_error(x)).all()
        np.testing.assert_allclose(
            kernel.hessians(x), hessians, rtol=1e-11, atol=1e-13 * np.abs(hessians).max()
        )
        np.testing.assert_array_equal(kernel.hessians(x), kernel.hessians(x).swapaxes(1, 2))
    active = np.array([loss.n_nodes - 1, 0], dtype=np.int64)
    np.testing.assert_array_equal(kernel.values(x, active), kernel.values(x)[active])
    np.testing.assert_array_equal(kernel.gradient(x, active), kernel.gradient(x)[active])
    np.testing.assert_array_equal(kernel.hessians(x, active), kernel.hessians(x)[active])
    threaded = loss_kernel(loss, n_threads=3)
    for name in ("values", "gradient", "hessians"):
        np.testing.assert_array_equal(getattr(threaded, name)(x), getattr(kernel, name)(x))


def test_the_kernel_keeps_its_data_alive():
    kernel = loss_kernel(fo.Logistic([np.ones((50, 3)) * k for k in range(40)], [np.ones(50)] * 40))
    filler = [np.full((50, 3), np.nan) for _ in range(200)]
    np.testing.assert_allclose(kernel.values(np.zeros((40, 3))), np.log(2), rtol=1e-15)
    del filler


def test_extreme_predictions():
    x = np.array([[800.0], [-800.0]])
    logistic = fo.Logistic([[[1.0]], [[1.0]]], [[-1], [-1]])
    np.testing.assert_array_equal(loss_kernel(logistic).values(x), [800.0, 0.0])
    np.testing.assert_array_equal(loss_kernel(logistic).gradient(x), [[1.0], [0.0]])
    soft = fo.Softmax([[[1.0]], [[1.0]]], [[0], [0]], n_classes=2)
    wide = np.array([[800.0, 0.0], [0.0, 800.0]])
    np.testing.assert_array_equal(loss_kernel(soft).values(wide), [0.0, 800.0])
    np.testing.assert_array_equal(loss_kernel(soft).gradient(wide), [[0.0, 0.0], [-1.0, 1.0]])
    # The logarithm of one plus a small number keeps its digits.
    near = np.array([[50.0, 0.0], [50.0, 0.0]])
    np.testing.assert_allclose(loss_kernel(soft).values(near), np.exp(-50.0), rtol=1e-12)
    np.testing.assert_allclose(soft.values(near), np.exp(-50.0), rtol=1e-12)
    poisson = loss_kernel(fo.Poisson([[[1.0]]], [[1]]))
    assert poisson.values(np.array([[1000.0]]))[0] == np.inf


def test_a_loss_without_twin_answers_in_the_same_clothes():
    loss = fo.CallableLoss(
        lambda x: (x**2).sum(axis=1), lambda x: 2 * x, 3, 2, lipschitz=2, strong_convexity=2
    )
    kernel, x = loss_kernel(loss), np.arange(6.0).reshape(3, 2)
    active = np.array([2, 1])
    np.testing.assert_array_equal(kernel.values(x), [1, 13, 41])
    np.testing.assert_array_equal(kernel.gradient(x, active), 2 * x[active])
    np.testing.assert_allclose(kernel.hessians(x, active), np.tile(2 * np.eye(2), (2, 1, 1)), rtol=1e-8)

    class Own(fo.SquaredDistance):
        """A derived class, with scalar Hessians: its own formulas count, not those of the twin."""

        def _values(self, x):
            return super()._values(x) + 1.0

    own = loss_kernel(Own([[0.0, 1.0], [2.0, 3.0]], sample_weight=[1.0, 3.0]))
    np.testing.assert_array_equal(own.values(np.zeros((2, 2))), [1.5, 20.5])
    np.testing.assert_array_equal(own.hessians(np.zeros((2, 2)), np.array([1])), [3.0 * np.eye(2)])


def test_shapes_are_checked_in_the_binding():
    kernel = loss_kernel(fo.Huber([0.0, 1.0], 1.0))
    with pytest.raises(ValueError, match=r"x must have shape \(2,1,\)"):
        kernel.values(np.zeros((3, 1)))
    with pytest.raises(ValueError, match="active holds a node that does not exist"):
        kernel.gradient(np.zeros((2, 1)), np.array([2]))
    with pytest.raises(ValueError, match="weights must hold 2 numbers"):
        _core.LossKernel.distance(np.zeros((2, 1)), np.ones(3), 1.0, 1)
