"""Every loss through arrays and back; results of new losses on disk."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt as fo
from fusionopt._archive_losses import pack_loss, unpack_loss
from fusionopt.errors import InvalidTypeError
from tests.loss_zoo import KINDS, SAMPLED, draw


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_sparse", [False, True])
def test_round_trip(kind, is_sparse, tmp_path):
    loss = draw(kind, np.random.default_rng(KINDS.index(kind)), is_sparse=is_sparse).loss
    np.savez(tmp_path / "loss.npz", allow_pickle=False, **pack_loss(loss))
    with np.load(tmp_path / "loss.npz", allow_pickle=False) as file:
        again = unpack_loss(type(loss).__name__, dict(file))
    assert type(again) is type(loss)
    x = np.random.default_rng(1).normal(size=(loss.n_nodes, loss.n_features))
    np.testing.assert_array_equal(again.values(x), loss.values(x))
    np.testing.assert_array_equal(again.gradient(x), loss.gradient(x))
    if kind in SAMPLED:
        assert type(again.designs) is type(loss.designs)


@pytest.mark.parametrize("groups", [[3, 1, 1], ["b", "a", "a"]])
def test_names_of_groups_are_kept(groups):
    loss = fo.Logistic([[1.0], [2.0], [3.0]], [1, -1, 1], ridge=0.5, groups=groups)
    again = unpack_loss("Logistic", pack_loss(loss))
    np.testing.assert_array_equal(again.group_names, loss.group_names)
    np.testing.assert_array_equal(again.values([[0.5], [0.1]]), loss.values([[0.5], [0.1]]))
    mixed = fo.Logistic([[1.0], [2.0]], [1, -1], groups=np.array(["x", "y"], dtype=object))
    assert unpack_loss("Logistic", pack_loss(mixed)).group_names is None


def test_a_file_of_the_first_version():
    loss = fo.LeastSquares([[[1.0]], [[2.0]]], [[1], [3]], ridge=0.25)
    arrays = pack_loss(loss)
    del arrays["loss.options"]
    again = unpack_loss("LeastSquares", arrays | {"loss.ridge": np.array(0.25)})
    np.testing.assert_array_equal(again.values([[1.0], [1.0]]), loss.values([[1.0], [1.0]]))


def test_a_result_with_a_new_loss(tmp_path):
    missing = fo.SquaredDistance([[0, 0], [2, np.nan], [np.nan, 4]])
    logistic = fo.Logistic([[[1.0], [2.0]], [[1.0], [-1.0]]], [[-1, 1], [1, -1]], ridge=0.1)
    for loss in (missing, logistic):
        result = fo.solve(fo.FusionProblem(loss, lam=0.2))
        assert result.status == "optimal"
        result.save(tmp_path / "r.npz")
        loaded = fo.Result.load(tmp_path / "r.npz")
        np.testing.assert_array_equal(loaded.x, result.x)
        assert loaded.problem.objective(loaded.x) == result.objective


def test_functions_are_not_data(tmp_path):
    own = fo.CallableLoss(
        lambda x: (x**2).sum(axis=1), lambda x: 2 * x, 2, 1, lipschitz=2, strong_convexity=2
    )
    result = fo.solve(fo.FusionProblem(own, lam=0.2))
    assert result.status == "optimal"
    with pytest.raises(InvalidTypeError, match="CallableLoss cannot be saved, for functions are not data"):
        result.save(tmp_path / "r.npz")
    assert not list(tmp_path.iterdir())
