"""FusedRegression and FusedClassifier: groups found, known and new groups, misuse; solve_many."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.typing import NDArray

import fusionopt
from fusionopt import FusedClassifier, FusedRegression, FusionProblem, SquaredDistance, solve, solve_many

Array = NDArray[np.float64]


def _regression(seed: int, n: int = 40) -> tuple[Array, Array, NDArray[np.str_], Array]:
    rng = np.random.default_rng(seed)
    truth = np.array([[1.0, -2.0, 0.5], [1.0, -2.0, 0.5], [-1.0, 1.0, 2.0], [-1.0, 1.0, 2.0]])
    X = rng.standard_normal((4 * n, 3))
    codes = np.repeat(np.arange(4), n)
    y = (X * truth[codes]).sum(axis=1) + 3.0 * (codes >= 2) + 0.1 * rng.standard_normal(4 * n)
    order = rng.permutation(4 * n)
    return X[order], y[order], np.array(list("badc"))[codes[order]], truth


def test_regression_recovers_groups_and_predicts() -> None:
    X, y, groups, truth = _regression(0)
    model = FusedRegression(lam="auto", n_lams=20).fit(X, y, groups=groups)
    assert list(model.groups_) == ["a", "b", "c", "d"]
    # groups b, a share the first model, d, c the second; groups_ is sorted
    assert model.labels_.tolist() == [0, 0, 1, 1]
    refit = model.result_.refit()
    np.testing.assert_allclose(refit[:, :3], truth[[0, 2]], atol=0.1)
    np.testing.assert_allclose(refit[:, 3], [0.0, 3.0], atol=0.1)
    own = model.predict(X, groups)
    assert np.mean((own - y) ** 2) < 0.5 * np.var(y)
    # An unknown group: the mean of all groups' predictions by their rows, here equal shares.
    each = np.array([model.predict(X[:5], [name] * 5) for name in "abcd"])
    np.testing.assert_allclose(model.predict(X[:5], ["z"] * 5), each.mean(axis=0))
    np.testing.assert_allclose(model.predict(X[:5]), each.mean(axis=0))


def test_regression_with_one_group_is_least_squares() -> None:
    X, y, _, _ = _regression(1)
    model = FusedRegression(lam=0.1).fit(X, y)
    exact = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
    np.testing.assert_allclose(np.append(model.coef_[0], model.intercept_[0]), exact, rtol=1e-8)
    np.testing.assert_allclose(model.predict(X), np.column_stack([X, np.ones(len(X))]) @ exact, rtol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_classifier(n_classes: int, fit_intercept: bool) -> None:
    rng = np.random.default_rng(2)
    X, groups = rng.standard_normal((400, 2)), np.repeat(np.arange(4), 100)
    score = np.where(groups < 2, X[:, 0], X[:, 1])
    y = np.array(["no", "so", "yes"])[np.digitize(score, [0.0] if n_classes == 2 else [-0.5, 0.5])]
    model = FusedClassifier(lam=0.08, fit_intercept=fit_intercept).fit(X, y, groups=groups)
    assert model.labels_.tolist() == [0, 0, 1, 1]
    probability = model.predict_proba(X, groups)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    # Fused models are biased towards each other; three classes suffer more than two, and most without intercepts.
    least = 0.85 if n_classes == 2 else 0.75 if fit_intercept else 0.6
    assert np.mean(model.predict(X, groups) == y) > least
    assert set(model.predict(X)) <= set(model.classes_)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X, groups), model.predict(X, groups))


def test_misuse() -> None:
    X, y, groups, _ = _regression(3)
    with pytest.raises(fusionopt.InvalidArgumentError, match="one group for each of the 160 rows"):
        FusedRegression(lam=0.1).fit(X, y, groups=groups[:-1])
    with pytest.raises(fusionopt.InvalidArgumentError, match="lam"):
        FusedRegression(lam="best").fit(X, y, groups=groups)  # type: ignore[arg-type]
    with pytest.raises(fusionopt.InvalidArgumentError, match="a single class"):
        FusedClassifier(lam=0.1).fit(X, np.ones(len(X)), groups=groups)
    with pytest.raises(ValueError, match="NaN"):
        FusedRegression(lam=0.1).fit(np.where(X > 2, np.nan, X), y, groups=groups)


def test_solve_many_agrees_with_solve() -> None:
    rng = np.random.default_rng(4)
    first = FusionProblem(SquaredDistance(rng.standard_normal((30, 2))))
    second = FusionProblem(SquaredDistance(rng.standard_normal((30, 2))))
    third = FusionProblem(SquaredDistance(rng.standard_normal((7, 3))), lam=0.01)
    problems = [first.with_lam(0.01), first.with_lam(0.05), second.with_lam(0.05), third]
    for result, problem in zip(solve_many(problems), problems, strict=True):
        alone = solve(problem)
        assert result.status == alone.status == "optimal"
        np.testing.assert_array_equal(result.labels, alone.labels)
        np.testing.assert_allclose(result.x, alone.x, atol=1e-5)
        v = result.edge_duals()
        assert (np.linalg.norm(v, axis=1) <= problem.lam).all()
    with pytest.raises(fusionopt.InvalidTypeError, match="problems is a int"):
        solve_many([3])  # type: ignore[list-item]
