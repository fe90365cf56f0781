"""The lam that is taken from a path, and the sentence about it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fusionopt import (
    FusionProblem,
    Graph,
    Huber,
    LeastSquares,
    Logistic,
    PathResult,
    SquaredDistance,
    solution_path,
)
from fusionopt._resampled import bootstrap, left_out
from fusionopt.datasets import make_gaussian_groups
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.selection import select_plateau


def test_middle_of_the_longest_plateau() -> None:
    """Equal weights in one dimension: 0|1 and 10|11 are pairs from lam = 0.5 until all meet at lam = 2.5."""
    problem = FusionProblem(SquaredDistance([0.0, 1.0, 10.0, 11.0]))
    path = solution_path(problem, lams=np.geomspace(0.1, 10.0, 21))
    selection = select_plateau(path)
    assert selection.criterion == "plateau"
    assert selection.result.n_clusters == 2
    np.testing.assert_array_equal(selection.result.labels, [0, 0, 1, 1])
    assert "0.5012 to 1.995" in selection.sentence


def test_coarsest_when_no_clustering_has_two_large_clusters() -> None:
    path = solution_path(FusionProblem(SquaredDistance(np.ones((5, 2)))), lams=[0.5, 2.0, 1.0])
    selection = select_plateau(path)
    assert selection.criterion == "coarsest"
    assert selection.result is path.results[1]
    assert "shows no groups" in selection.sentence


# -- criteria with curves


def _groups(n: int = 30, spread: float = 0.5) -> tuple[FusionProblem, np.ndarray]:
    points, labels = make_gaussian_groups(n, n_groups=3, n_features=4, spread=spread, random_state=0)
    return FusionProblem(SquaredDistance(points), Graph.knn(points, n_neighbors=12)), labels


@pytest.fixture(scope="module")
def grouped() -> tuple[PathResult, np.ndarray]:
    problem, labels = _groups()
    return solution_path(problem, n_lams=30, lam_min_ratio=1e-4), labels


@pytest.mark.parametrize("criterion", ["plateau", "ebic", "stability"])
def test_clear_groups_are_found(grouped: tuple[PathResult, np.ndarray], criterion: str) -> None:
    path, labels = grouped
    selection = path.selection(criterion, n_repeats=6)
    assert adjusted_rand_score(selection.result.labels, labels) == 1.0
    assert selection.result is path.select(criterion, n_repeats=6)
    assert selection.lams is path.lams
    assert len(selection.scores) == len(selection.standard_errors) == len(path.lams)
    assert selection.lam == path.lams[selection.index] == selection.result.problem.lam
    assert f"{selection.lam:.4g}" in selection.sentence


def test_one_standard_error_takes_the_largest_lam_that_is_near_enough(
    grouped: tuple[PathResult, np.ndarray],
) -> None:
    path, _ = grouped
    chosen = path.selection("holdout", n_repeats=6)
    limit = chosen.scores[chosen.best_index] + chosen.standard_errors[chosen.best_index]
    assert chosen.scores[chosen.best_index] == chosen.scores.min()
    near = path.lams[chosen.scores <= limit]
    assert chosen.lam == near.max()
    assert "within one standard error" in chosen.sentence


def test_bic_is_the_formula() -> None:
    a = np.array([[0.0, 0.0], [0.2, 0.1], [4.0, 4.0], [4.1, 4.2], [9.0, 0.0], [9.1, 0.3]])
    path = solution_path(FusionProblem(SquaredDistance(a)), lams=[1e-6, 0.4, 3.0])
    assert path.n_clusters.tolist() == [6, 3, 1]
    selection = path.selection("bic")
    labels = path.results[1].labels
    means = np.stack([a[labels == k].mean(axis=0) for k in range(3)])
    rss = float(np.square(a - means[labels]).sum())
    assert np.isnan(selection.scores[0])  # a parameter for every number
    np.testing.assert_allclose(selection.scores[1], 12 * np.log(rss / 12) + 6 * np.log(12), rtol=1e-12)
    np.testing.assert_allclose(
        selection.scores[2],
        12 * np.log(np.square(a - a.mean(axis=0)).sum() / 12) + 2 * np.log(12),
        rtol=1e-12,
    )
    assert np.isnan(selection.standard_errors).all()
    # 6! / (2!^3 3!) = 15 ways to pair, binom(5, 2) = 10 ways to cut 6 into 3 sizes.
    extended = path.selection("ebic").scores
    np.testing.assert_allclose(extended[1] - selection.scores[1], 2 * np.log(15 * 10), rtol=1e-10)
    np.testing.assert_allclose(extended[2], selection.scores[2], rtol=1e-12)


def test_equal_rows_are_a_perfect_fit() -> None:
    a = np.repeat([[0.0, 0.0], [5.0, 1.0]], 6, axis=0)
    path = solution_path(FusionProblem(SquaredDistance(a)), lams=[0.001, 0.01, 10.0])
    selection = path.selection("bic")
    assert selection.scores[0] == selection.scores[1] == -np.inf
    assert selection.lam == 0.01  # of two perfect fits the larger lam


def _regressions() -> tuple[FusionProblem, np.ndarray]:
    rng = np.random.default_rng(1)
    labels = np.arange(12) % 2
    # Orthogonal columns: unequal curvature would pull single nodes out of their groups along the path.
    designs = [np.linalg.qr(rng.normal(size=(10, 2)))[0] * np.sqrt(10) for _ in labels]
    noise = [0.3 * rng.normal(size=10) for _ in labels]
    targets = [z @ [2.0, -1.0 + 3.0 * k] + e for z, k, e in zip(designs, labels, noise, strict=True)]
    return FusionProblem(LeastSquares(designs, targets)), labels


@pytest.mark.parametrize("criterion", ["bic", "ebic", "holdout", "kfold", "stability"])
def test_regressions_are_grouped(criterion: str) -> None:
    problem, labels = _regressions()
    path = solution_path(problem, n_lams=25, lam_min_ratio=1e-2)
    result = path.select(criterion, n_repeats=5)
    assert adjusted_rand_score(result.labels, labels) == 1.0


def test_classifiers_are_grouped() -> None:
    rng = np.random.default_rng(2)
    labels = np.arange(8) % 2
    designs = [rng.normal(size=(40, 2)) for _ in labels]
    signs = [np.where(z[:, 0] * (1 - 2 * k) > 0, 1.0, -1.0) for z, k in zip(designs, labels, strict=True)]
    path = solution_path(FusionProblem(Logistic(designs, signs, ridge=0.05)), n_lams=8, lam_min_ratio=0.02)
    for criterion in ("bic", "kfold"):
        result = path.select(criterion, n_folds=3)
        assert adjusted_rand_score(result.labels, labels) == 1.0


def test_the_same_seed_gives_the_same_curve() -> None:
    problem, _ = _regressions()
    path = solution_path(problem, n_lams=5)
    first, again = (path.selection("kfold", random_state=3) for _ in range(2))
    np.testing.assert_array_equal(first.scores, again.scores)
    assert not np.array_equal(first.scores, path.selection("kfold", random_state=4).scores)


def test_left_out_samples_do_not_change_the_scale() -> None:
    problem, _ = _regressions()
    loss = problem.loss
    assert isinstance(loss, LeastSquares)
    out = np.zeros(120, dtype=bool)
    out[::5] = True
    rest = left_out(loss, out)
    kept = [z[np.arange(10) % 5 != 0] for z in np.split(np.asarray(loss.designs), 12)]
    targets = [y[np.arange(10) % 5 != 0] for y in np.split(loss.targets, 12)]
    x = np.random.default_rng(0).normal(size=(12, 2))
    np.testing.assert_allclose(rest.values(x), LeastSquares(kept, targets).values(x), rtol=1e-13)
    np.testing.assert_allclose(rest.hessians(), LeastSquares(kept, targets).hessians(), rtol=1e-13)


def test_bootstrap_is_the_problem_with_copies() -> None:
    rng = np.random.default_rng(7)
    points = rng.normal(size=(6, 2))
    problem = FusionProblem(SquaredDistance(points), Graph.complete(6, 0.7), lam=0.1)
    drawn = bootstrap(problem, np.random.default_rng(0))
    counts = np.random.default_rng(0).multinomial(6, np.full(6, 1 / 6))
    np.testing.assert_array_equal(drawn.nodes, np.flatnonzero(counts))
    copies = np.repeat(np.arange(6), counts)
    whole = FusionProblem(SquaredDistance(points[copies]), Graph.complete(6, 0.7), lam=0.1)
    x = rng.normal(size=(len(drawn.nodes), 2))
    place = np.searchsorted(drawn.nodes, copies)
    np.testing.assert_allclose(
        drawn.problem.with_lam(0.1).objective(x), whole.objective(x[place]), rtol=1e-13
    )
    # The same pairs as a list of edges.
    pairs = np.array([(i, j) for i in range(6) for j in range(i + 1, 6)])
    listed = FusionProblem(SquaredDistance(points), Graph.from_edges(6, pairs, np.full(15, 0.7)))
    again = bootstrap(listed, np.random.default_rng(0))
    np.testing.assert_allclose(
        again.problem.with_lam(0.1).objective(x), whole.objective(x[place]), rtol=1e-13
    )


@pytest.mark.parametrize(
    ("make", "criterion", "error", "message"),
    [
        (lambda: SquaredDistance([[0.0, 1.0], [2.0, 3.0]]), "kfold", InvalidTypeError, "one row a node"),
        (lambda: SquaredDistance([0.0, 2.0]), "holdout", InvalidArgumentError, "no cell can be left out"),
        (
            lambda: LeastSquares([np.ones((1, 1))] * 2, [[0.0], [1.0]]),
            "holdout",
            InvalidArgumentError,
            "every node has one sample",
        ),
        (lambda: Huber([[0.0], [2.0]], 1.0), "holdout", InvalidTypeError, "cannot be left out in part"),
        (lambda: Huber([[0.0], [2.0]], 1.0), "bic", InvalidTypeError, "no negative log likelihood"),
        (
            lambda: SquaredDistance([0.0, 2.0]),
            "stability",
            InvalidArgumentError,
            "no grouping whose stability",
        ),
        (lambda: SquaredDistance([0.0, 2.0]), "plateau", InvalidArgumentError, "no plateau to choose"),
        (lambda: SquaredDistance([0.0, 2.0]), "aic", InvalidArgumentError, "criterion='aic' is unknown"),
    ],
)
def test_what_does_not_fit_is_refused(make, criterion, error, message) -> None:
    path = solution_path(FusionProblem(make()), lams=[0.1, 0.2])
    with pytest.raises(error, match=message):
        path.select(criterion)


def test_bic_needs_few_parameters() -> None:
    path = solution_path(FusionProblem(SquaredDistance([0.0, 2.0, 5.0])), lams=[0.01])
    with pytest.raises(InvalidArgumentError, match="two numbers for each parameter"):
        path.select("bic")


def test_an_empty_path_says_so() -> None:
    path = solution_path(FusionProblem(SquaredDistance([0.0, 2.0])), lams=[0.1])
    empty = PathResult(path.problem, path.lams[:0], [], status="interrupted")
    for ask in (
        lambda: empty.at(lam=0.1),
        lambda: empty.at(n_clusters=1),
        empty.linkage,
        empty.plot,
        empty.select,
        lambda: empty.selection("bic"),
    ):
        with pytest.raises(
            InvalidArgumentError, match="the path is empty: it was stopped before its first lam"
        ):
            ask()
    assert empty.events == []
    assert len(np.asarray(empty.to_frame()["lam"])) == 0
    assert "0 lams" in repr(empty)
