"""Whether a minimiser exists: separable and one-sided data, flat directions, per component and per node."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt as fo
from fusionopt import existence as module
from fusionopt.errors import InvalidTypeError
from fusionopt.existence import existence


def told(loss, lam=1.0, **options):
    return existence(fo.FusionProblem(loss, lam=lam, **options))


SEPARABLE = [[-1.0, 0.3], [2.0, -0.1], [-0.5, 1.0]]
MIXED = [[-1.0, 0.3], [2.0, -0.1], [0.7, 1.0], [-1.5, 0.2], [0.2, -1.0], [-0.3, -0.8]]


def test_separable_logistic():
    labels = [-1, 1, -1]
    answer = told(fo.Logistic([SEPARABLE], [labels]), lam=0.0)
    assert answer.attained is False and answer.unique is None
    assert answer.reason.startswith("a direction classifies every sample of node 0 rightly")
    assert told(fo.Logistic([SEPARABLE], [labels], ridge=1e-12), lam=0.0).attained


def test_a_component_holds_what_a_node_alone_does_not():
    """Node 0 is separable; its neighbour's labels contradict it, in the same component only."""
    loss = fo.Logistic([[[1.0], [-2.0]], [[1.0], [2.0]], [[1.0], [-1.0]]], [[1, -1], [-1, 1], [1, 1]])
    assert told(loss, lam=0.0).attained is False
    assert told(loss, lam=0.1).attained is True
    pair = fo.Graph.from_edges(3, [[1, 2]])
    answer = told(loss, lam=0.1, graph=pair)
    assert answer.attained is False and "of component 0" in answer.reason
    assert told(loss, lam=0.1, graph=fo.Graph.from_edges(3, [[0, 1]])).attained is True


def test_quasi_separation_counts_and_weightless_samples_do_not():
    """The first column separates two samples, and the others lie on its plane with both labels."""
    z = [[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 1.0]]
    y = [1, -1, 1, -1, 1]
    assert told(fo.Logistic([z], [y])).attained is False
    assert told(fo.Logistic([z], [y], sample_weight=[[0, 0, 1, 1, 1]])).attained is True
    assert told(fo.Logistic([z], [y], sample_weight=[[0, 0, 1, 1, 1]])).unique is False
    assert told(fo.Logistic([[[1.0], [-1.0]], [[1.0], [-1.0]]], [[1, 1], [1, -1]])).attained is True


def test_both_labels_where_nothing_separates():
    answer = told(fo.Logistic([MIXED], [[1, 1, -1, 1, 1, -1]]))
    assert answer == module.Existence(
        True, True, "no direction lowers the loss for ever, and every node's loss is strictly convex"
    )


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_one_label_with_a_free_bias(ridge):
    z = [[[1.0], [2.0]], [[0.5], [-1.0]]]
    one = fo.Logistic(z, [[1, 1], [1, 1]], ridge=ridge, free_bias=True)
    both = fo.Logistic(z, [[1, 1], [1, -1]], ridge=ridge, free_bias=True)
    assert told(one).attained is False
    assert told(both, lam=0.0).attained is False
    assert told(fo.SquaredHinge(z, [[1, 1], [1, 1]], ridge=ridge)).attained is True
    if ridge:
        assert told(both).attained is True


def test_softmax():
    z = [[1.0, 0.2], [-1.0, 0.5], [0.3, -2.0]]
    assert told(fo.Softmax([z], [[0, 1, 2]])).attained is False
    mixed = [row for row in z for _ in range(3)]
    classes = [0, 1, 2] * 3
    answer = told(fo.Softmax([mixed], [classes]))
    # Every direction that is the same for all classes changes nothing.
    assert answer.attained is True and answer.unique is False
    # A class that never occurs is pushed away by an intercept; without one these rows hold it from every side.
    assert told(fo.Softmax([mixed], [classes], n_classes=4)).attained is True
    assert told(fo.Softmax([[[*row, 1.0] for row in mixed]], [classes], n_classes=4)).attained is False
    assert told(fo.Softmax([mixed], [classes], n_classes=4, ridge=1e-3)).unique is True
    deficient = fo.Softmax([[[1.0, 2.0]] * 3], [[0, 1, 2]])
    assert told(deficient).attained is True and told(deficient).unique is False


def test_poisson():
    z = [[1.0, 0.5], [0.4, 1.0]]
    assert told(fo.Poisson([z], [[0, 0]])).attained is False
    assert "whose counts are zero" in told(fo.Poisson([z], [[0, 0]])).reason
    assert told(fo.Poisson([z], [[0, 3]])).attained is False
    assert told(fo.Poisson([z], [[2, 3]])).attained is True
    assert told(fo.Poisson([[*z, [-1.0, -0.5]]], [[0, 0, 0]])).attained is False
    # The three rows span the plane positively: no direction lowers one without raising another.
    assert told(fo.Poisson([[*z, [-1.4, -1.5]]], [[0, 0, 0]])).attained is True
    assert told(fo.Poisson([z, z], [[0, 0], [1, 2]]), lam=0.0).attained is False
    assert told(fo.Poisson([z, z], [[0, 0], [1, 2]])).attained is True


def test_losses_of_squares_always_attain():
    short = fo.LeastSquares([[[1.0, 0.0]], [[0.0, 1.0]]], [[1], [2]])
    assert told(short) == module.Existence(True, None, "no direction lowers the loss for ever")
    assert told(short, penalty=fo.SquaredL2()).unique is True
    assert told(short, lam=0.0).unique is False
    assert told(fo.LeastSquares([[[1.0, 0.0]]], [[1]])).unique is False
    assert told(fo.LeastSquares([[[1.0, 0.0]]], [[1]], ridge=0.1)).unique is True
    assert told(fo.SquaredDistance([0.0, 1.0])).unique is True
    assert told(fo.SquaredDistance([[0.0, np.nan], [np.nan, np.nan]])).unique is False
    assert told(fo.Huber([0.0, 1.0], 0.5)).attained is True
    assert told(fo.HuberRegression([[[1.0]]], [[1]], 0.5)) == told(fo.SquaredHinge([[[1.0]]], [[1]]))


def test_callable_goes_by_what_is_declared():
    def make(strong):
        return fo.CallableLoss(lambda x: (x**2).sum(axis=1), lambda x: 2 * x, 2, 1, strong_convexity=strong)

    assert told(make(2.0)).unique is True
    assert told(make([2.0, 0.0])) == module.Existence(
        True, None, "a node of each component is strongly convex, as declared"
    )
    assert told(make([2.0, 0.0]), lam=0.0).attained is None
    assert "nothing is known" in told(make(None)).reason


def test_a_loss_of_another_make():
    class Own(fo.losses.NodeLoss):
        n_nodes = n_features = 1
        _values = _gradient = _gradient_error = _hessians_at = majorant = None

        def strong_convexity(self):
            return np.zeros(1)

    assert told(Own(), graph=fo.Graph.complete(1)).reason == "nothing is known of the growth of Own"


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
def test_units_do_not_matter(size):
    scale = np.array([size, 1 / size])
    rng = np.random.default_rng(0)
    z = rng.normal(size=(30, 2))
    y = np.where(z @ [1.0, -0.5] > 0, 1, -1)
    assert told(fo.Logistic([z * scale], [y])).attained is False
    y[0] = -y[0]
    inner = np.argmax(np.abs(z @ [1.0, -0.5]))
    y[inner] = -np.sign(z[inner] @ [1.0, -0.5])
    assert told(fo.Logistic([z * scale], [y])).attained is True


def test_with_a_ridge_no_program_is_solved(monkeypatch):
    monkeypatch.setattr(module, "linprog", None)
    rng = np.random.default_rng(1)
    z, y = rng.normal(size=(10, 4, 3)), rng.choice([-1, 1], size=(10, 4))
    assert told(fo.Logistic(z, list(y), ridge=1e-6)).unique is True
    assert told(fo.Softmax(z, list(y > 0), ridge=1e-6)).unique is True


def test_large_designs_leave_uniqueness_open(monkeypatch):
    monkeypatch.setattr(module, "_GRAM_NUMBERS", 1)
    assert told(fo.LeastSquares([[[1.0, 0.0]]], [[1]])).unique is None


def test_only_a_problem_will_do():
    with pytest.raises(InvalidTypeError, match="problem is a str; give a FusionProblem"):
        existence("problem")
