"""Scad and Mcp: brute force on tiny problems, stationarity by its definition, bounds, starts, paths."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fusionopt
from fusionopt import (
    AdmmSettings,
    DcSettings,
    FusionProblem,
    Graph,
    LeastSquares,
    Mcp,
    Result,
    Scad,
    SquaredDistance,
    solution_path,
    solve,
)
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.existence import existence

PENALTIES = [Scad(), Scad(a=2.2), Mcp(), Mcp(gamma=1.2)]


def plain_objective(problem: FusionProblem, x: np.ndarray) -> np.ndarray:
    """F of many points (..., m, d) of a squared-distance problem, from the textbook formulas."""
    loss, penalty, lam = problem.loss, problem.penalty, problem.lam
    total = (loss.sample_weight / 2 * ((x - loss.targets) ** 2).sum(axis=-1)).sum(axis=-1)
    for (i, j), w in zip(problem.graph.edges, problem.graph.weights, strict=True):
        t = np.sqrt(((x[..., i, :] - x[..., j, :]) ** 2).sum(axis=-1))
        if isinstance(penalty, Mcp):
            knee = penalty.gamma * lam
            total += w * np.where(t <= knee, lam * t - t**2 / (2 * penalty.gamma), knee * lam / 2)
        else:
            a = penalty.a
            middle = (a * lam * t - (t**2 + lam**2) / 2) / (a - 1)
            total += w * np.where(t <= lam, lam * t, np.where(t <= a * lam, middle, lam**2 * (a + 1) / 2))
    return total


def brute_force(problem: FusionProblem, points: int = 13, zooms: int = 12) -> float:
    """The lowest F on a grid over the box of the targets (a minimiser lies there), refined around its best cells."""
    targets = problem.loss.targets
    low, high = targets.min(axis=0), targets.max(axis=0)
    m, d = targets.shape
    centres = [((low + high) / 2 * np.ones((m, d))).ravel()]
    width = np.tile((high - low) / 2, m)
    best = np.inf
    for _ in range(zooms):
        cells = []
        for centre in centres:
            axes = [np.linspace(c - w, c + w, points) for c, w in zip(centre, width, strict=True)]
            grid = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=-1)
            # Equal rows, which a grid around unequal centres would miss.
            values = plain_objective(problem, grid.reshape(-1, m, d))
            order = np.argsort(values)[: 40 if len(centres) == 1 and zooms else 3]
            cells += [(values[k], grid[k]) for k in order]
        cells.sort(key=lambda cell: cell[0])
        best = min(best, cells[0][0])
        centres = [x for _, x in cells[:12]]
        width = width * (2.5 / (points - 1))
    return best


def random_problem(rng: np.random.Generator, m: int, d: int) -> FusionProblem:
    targets = rng.normal(size=(m, d)) * rng.choice([0.5, 2.0], size=(m, 1))
    pairs = [pair for pair in itertools.combinations(range(m), 2) if rng.random() < 0.7] or [(0, 1)]
    graph = Graph.from_edges(m, pairs, rng.uniform(0.2, 1.5, len(pairs)))
    penalty = PENALTIES[int(rng.integers(len(PENALTIES)))]
    loss = SquaredDistance(targets, rng.uniform(0.5, 2.0, m))
    return FusionProblem(loss, graph, penalty, lam=float(rng.uniform(0.1, 1.2)))


@pytest.mark.parametrize(("m", "d", "count"), [(2, 1, 8), (3, 1, 5), (2, 2, 3), (4, 1, 2)])
def test_starts_find_the_global_minimum_of_tiny_problems(m: int, d: int, count: int) -> None:
    for seed in range(count):
        problem = random_problem(np.random.default_rng([m, d, seed]), m, d)
        lowest = brute_force(problem, points=13 if m * d < 4 else 9)
        result = solve(problem, DcSettings(n_starts=12, random_state=0))
        assert result.status == "stationary"
        # The grid's best is a point, so no minimum lies above it; its last cell is 1e-8 of the box.
        assert result.objective <= lowest * (1 + 1e-9)
        assert lowest <= result.objective * (1 + 1e-6)
        assert result.lower_bound <= result.objective
        assert_stationary(result)


def assert_stationary(result: Any, tolerance: float = 1e-5) -> None:
    """0 is within `tolerance` (of all forces) of the subdifferential: the subgradients returned say so."""
    problem = result.problem
    loss, graph, lam = problem.loss, problem.graph, problem.lam
    v, edges = result.edge_duals(), graph.edges
    residual = loss.gradient(result.x)
    for (i, j), w, force in zip(edges, graph.weights, v, strict=True):
        u = result.x[i] - result.x[j]
        t = np.sqrt(u @ u)
        if (result.x[i] == result.x[j]).all():
            assert np.linalg.norm(force) <= lam * w * (1 + 1e-14)
        else:
            slope = float(problem.penalty.derivative(t, lam))
            np.testing.assert_allclose(force, w * slope * u / t, rtol=1e-12, atol=1e-14 * lam * w)
        residual[i] += force
        residual[j] -= force
    distance = np.linalg.norm(residual, axis=1).max()
    mean = np.broadcast_to(result.x.mean(axis=0), result.x.shape)
    forces = np.linalg.norm(loss.gradient(mean), axis=1).max()
    assert distance <= tolerance * forces
    assert result.dual_residual == pytest.approx(distance, rel=1e-6, abs=1e-13 * forces)


def test_the_stationarity_check_fails_off_a_stationary_point() -> None:
    problem = FusionProblem(SquaredDistance([0.0, 1.0, 5.0]), penalty=Scad(), lam=0.3)
    result = solve(problem)
    assert_stationary(result)
    moved = SimpleNamespace(
        problem=problem,
        x=result.x + np.array([[0.0], [0.0], [0.1]]),
        edge_duals=result.edge_duals,
        dual_residual=result.dual_residual,
    )
    with pytest.raises(AssertionError):
        assert_stationary(moved)


def test_brute_force_finds_a_known_minimum() -> None:
    problem = FusionProblem(SquaredDistance([0.0, 1.6]), penalty=Mcp(gamma=1.5), lam=1.0)
    assert brute_force(problem) == pytest.approx(0.64, rel=1e-12)


# -- trouble cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "apart", "lowest"), [(1.6, False, 0.64), (1.9, True, 0.75)])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_f1_two_local_minima(d: float, apart: bool, lowest: float, scale: float) -> None:
    a = scale * np.array([0.0, d])
    problem = FusionProblem(SquaredDistance(a), penalty=Mcp(gamma=1.5), lam=scale)
    from_data = solve(problem, warm_start=a)
    from_fused = solve(problem, warm_start=[scale * d / 2] * 2)
    assert {from_data.status, from_fused.status} == {"stationary"}
    np.testing.assert_allclose(from_data.x.ravel(), a, atol=1e-12 * scale)
    np.testing.assert_array_equal(from_fused.x.ravel(), [scale * d / 2] * 2)
    assert [start.name for start in from_fused.starts] == ["given"]
    best = solve(problem)
    assert best.objective == pytest.approx(lowest * scale**2, rel=1e-12)
    assert best.n_clusters == 1 + apart
    assert best.lower_bound < best.objective
    assert np.isnan(best.gap) and np.isnan(best.rel_gap) and np.isnan(best.dual_objective)
    assert "no global optimality is claimed" in best.message


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_f2_no_bias_where_the_convex_answer_has_one(offset: float) -> None:
    problem = FusionProblem(SquaredDistance(offset + np.array([0.0, 0.1, 5.0, 5.1])), penalty=Mcp(), lam=0.5)
    result = solve(problem)
    np.testing.assert_allclose(
        result.x.ravel() - offset, [0.05, 0.05, 5.05, 5.05], atol=1e-12 + 1e-15 * offset
    )
    assert result.objective == pytest.approx(1.505, rel=1e-9)
    assert result.labels.tolist() == [0, 0, 1, 1]
    assert result.x[0] == result.x[1] and result.x[2] == result.x[3]


def test_smallest_problems() -> None:
    alone = solve(FusionProblem(SquaredDistance([[3.0, 4.0]]), penalty=Scad(), lam=1.0))
    assert alone.x.tolist() == [[3.0, 4.0]] and alone.objective == 0.0
    equal = solve(FusionProblem(SquaredDistance(np.ones((5, 2))), penalty=Mcp(), lam=1.0))
    assert equal.n_clusters == 1 and equal.objective == 0.0 and equal.lower_bound == 0.0
    free = solve(FusionProblem(SquaredDistance([0.0, 2.0, 2.0]), penalty=Mcp(), lam=0.0))
    assert free.x.ravel().tolist() == [0.0, 2.0, 2.0]
    assert free.labels.tolist() == [0, 1, 1]
    for result in (alone, equal, free):
        assert result.status == "stationary"
        assert "no point has a lower objective" in result.message
        assert result.dual_residual == 0.0
        assert not result.edge_duals().any()


def test_components_are_told_and_kept_apart() -> None:
    graph = Graph.from_edges(5, [(0, 1), (2, 3)])
    result = solve(FusionProblem(SquaredDistance([0.0, 2.0, 10.0, 14.0, 99.0]), graph, Scad(), lam=3.0))
    # Fused pairs: within lam of each other's mean, lam w is more than either pulls.
    assert result.x.ravel().tolist() == [1.0, 1.0, 12.0, 12.0, 99.0]
    assert "3 components" in result.message


# -- descent, starts, bounds --------------------------------------------------------------------------------------


def regression(rng: np.random.Generator, m: int, n: int, p: int = 3) -> LeastSquares:
    centres = np.array([[2.0, 1.0, 0.0], [-2.0, 0.0, 1.0]])[:, :p]
    designs = [rng.normal(size=(n, p)) for _ in range(m)]
    noise = 0.3 * rng.normal(size=(m, n))
    return LeastSquares(designs, [designs[i] @ centres[i % 2] + noise[i] for i in range(m)])


def some_problems() -> dict[str, FusionProblem]:
    rng = np.random.default_rng(7)
    points = np.concatenate([rng.normal(size=(15, 2)), rng.normal(size=(15, 2)) + 4])
    weights = np.ones(30)
    weights[::5] = 0.0
    holes = points.copy()
    holes[rng.random(holes.shape) < 0.2] = np.nan
    return {
        "complete": FusionProblem(SquaredDistance(points), Graph.complete(30, 1 / 30), Scad(), 0.8),
        "node weights": FusionProblem(
            SquaredDistance(points), Graph.complete(30, 0.1, rng.integers(0, 3, 30)), Mcp(), 0.4
        ),
        "knn": FusionProblem(SquaredDistance(points), Graph.knn(points, 5), Mcp(), 0.4),
        "weightless": FusionProblem(SquaredDistance(points, weights), Graph.knn(points, 5), Scad(), 0.4),
        "missing": FusionProblem(SquaredDistance(holes), Graph.knn(points, 5), Scad(), 0.4),
        "regression": FusionProblem(regression(rng, 20, 8), Graph.complete(20, 1 / 20), Scad(), 0.8),
        "singular": FusionProblem(regression(rng, 20, 2), Graph.complete(20, 1 / 20), Scad(), 0.8),
        "grid": FusionProblem(SquaredDistance(points), Graph.grid((5, 6)), Scad(a=2.5), 0.4),
    }


@pytest.mark.parametrize("kind", list(some_problems()))
def test_every_start_goes_down_to_a_stationary_point(kind: str) -> None:
    problem = some_problems()[kind]
    result = solve(problem, DcSettings(n_starts=5, random_state=3))
    assert result.status == "stationary"
    assert [start.name for start in result.starts] == ["data", "fused", "l2 path", "random 1", "random 2"]
    for start in result.starts:
        assert start.status == "stationary"
        assert start.objective <= start.first_objective * (1 + 1e-14)
        assert start.objective >= result.objective * (1 - 1e-12)
        assert start.n_steps >= 1 and start.n_clusters >= 1
    assert (np.diff(result.trace["objective"]) <= 0).all()
    assert result.objective == problem.objective(result.x)
    assert result.objective == pytest.approx(result.trace["objective"][-1], rel=1e-12)
    assert 0 <= result.lower_bound <= result.objective
    assert_stationary(result)
    # Rows of a cluster are equal bit by bit, and labels say no more than that.
    for label in range(result.n_clusters):
        rows = result.x[result.labels == label]
        assert (rows == rows[0]).all()


@pytest.mark.parametrize("penalty", PENALTIES, ids=repr)
def test_the_lower_bound_is_below_every_point_tried(penalty: fusionopt.penalties.Penalty) -> None:
    rng = np.random.default_rng(11)
    for loss in (SquaredDistance(rng.normal(size=(6, 2)) * 2), regression(rng, 6, 6)):
        for graph in (Graph.complete(6), Graph.ring(6)):
            problem = FusionProblem(loss, graph, penalty, lam=0.5)
            result = solve(problem, DcSettings(n_starts=4))
            assert 0 < result.lower_bound <= result.objective
            lowest = min(start.objective for start in result.starts)
            assert result.lower_bound <= lowest


def general_losses() -> dict[str, fusionopt.losses.NodeLoss]:
    rng = np.random.default_rng(5)
    m, n = 12, 30
    designs = [rng.normal(size=(n, 2)) for _ in range(m)]
    slopes = [design @ np.array([2.0, 1.0 if i % 2 else -2.0]) for i, design in enumerate(designs)]
    signs = [np.where(rng.random(n) < 1 / (1 + np.exp(-s)), 1, -1) for s in slopes]
    points = rng.normal(size=(m, 2)) + np.where(np.arange(m) % 2, 4.0, 0.0)[:, None]
    return {
        "logistic": fusionopt.Logistic(designs, signs),
        "hinge": fusionopt.SquaredHinge(designs, signs, ridge=0.01),
        "huber regression": fusionopt.HuberRegression(designs, slopes, delta=0.5, ridge=0.1),
        "poisson": fusionopt.Poisson(designs, [rng.poisson(np.exp(0.3 * s)) for s in slopes], ridge=0.01),
        "huber": fusionopt.Huber(points, delta=1.0),
    }


@pytest.mark.parametrize("kind", list(general_losses()))
def test_losses_that_are_not_quadratic(kind: str) -> None:
    loss = general_losses()[kind]
    problem = FusionProblem(loss, Graph.complete(12, 1 / 12), Scad(), lam=0.4)
    result = solve(problem)
    assert result.status == "stationary"
    assert [start.status for start in result.starts] == ["stationary"] * 3
    assert (np.diff(result.trace["objective"]) <= 0).all()
    assert result.lower_bound <= result.objective
    assert_stationary(result)


def test_a_bounded_penalty_does_not_hold_a_node_without_a_minimiser_of_its_own() -> None:
    rng = np.random.default_rng(0)
    designs = [rng.normal(size=(6, 2)) for _ in range(8)]
    labels = [np.where(z @ [1, 0.5] + 0.5 * rng.normal(size=6) > 0, 1, -1) for z in designs]
    loss = fusionopt.Logistic(designs, labels)
    assert existence(FusionProblem(loss, lam=1.0)).attained
    assert not existence(FusionProblem(loss, lam=0.0)).attained
    result = solve(FusionProblem(loss, Graph.complete(8, 1 / 8), Scad(), lam=1.0))
    assert result.status == "stationary"
    assert "some node's own loss has no minimiser" in result.message
    assert result.lower_bound <= result.objective
    assert [start.name for start in result.starts] == ["fused", "l2 path", "random 1"]
    assert np.isfinite(result.x).all() and np.abs(result.x).max() < 100
    free = solve(FusionProblem(loss, penalty=Scad(), lam=0.0))
    assert free.status == "unbounded" and "infimum is not attained" in free.message


def test_the_first_interrupt_returns_the_best_point() -> None:
    problem = some_problems()["knn"]
    result = solve(problem, callback=lambda progress: signal.raise_signal(signal.SIGINT))
    assert result.status == "interrupted"
    assert len(result.starts) == 1 and result.starts[0].status == "interrupted"
    assert np.isfinite(result.objective) and result.lower_bound <= result.objective


def test_a_larger_tolerance_of_the_sub_problems_is_met_all_the_same() -> None:
    problem = some_problems()["regression"]
    for eps_rel in (1e-3, 1e-9):
        result = solve(problem, DcSettings(eps_rel=eps_rel))
        assert result.status == "stationary"
        assert_stationary(result, tolerance=10 * eps_rel)


def test_complete_and_listed_graphs_agree() -> None:
    problem = some_problems()["complete"]
    graph = Graph.from_edges(30, problem.graph.edges, problem.graph.weights)
    listed = solve(FusionProblem(problem.loss, graph, problem.penalty, problem.lam))
    result = solve(problem)
    assert listed.objective == pytest.approx(result.objective, rel=1e-9)
    assert listed.labels.tolist() == result.labels.tolist()


def test_same_seed_same_answer_and_other_seeds_other_starts() -> None:
    problem = some_problems()["knn"]
    first, again, other = (solve(problem, DcSettings(n_starts=5, random_state=seed)) for seed in (0, 0, 2))
    np.testing.assert_array_equal(first.x, again.x)
    assert first.starts == again.starts
    assert first.starts != other.starts
    assert first.starts[:3] == other.starts[:3]
    assert first.starts == solve(problem, DcSettings(n_starts=5)).starts


def test_limits_are_told() -> None:
    problem = some_problems()["knn"]
    short = solve(problem, DcSettings(max_steps=1, n_starts=1))
    assert short.status == "user_limit"
    assert "max_steps = 1 was reached: not stationary yet" in short.message
    assert short.starts[0].status == "max_steps = 1 was reached"
    hurried = solve(problem, DcSettings(time_limit=1e-9))
    assert hurried.status == "user_limit" and "time_limit" in hurried.message
    assert np.isfinite(hurried.objective) and hurried.lower_bound <= hurried.objective
    seen: list[float] = []
    stopped = solve(problem, callback=lambda progress: seen.append(progress.objective) or len(seen) == 3)
    assert len(seen) == 3
    assert stopped.status == "user_limit" and "the callback asked to stop" in stopped.message
    with pytest.raises(fusionopt.NotConvergedError, match="user_limit"):
        short.require_converged()
    assert solve(problem).require_converged().summary().startswith("stationary: stationary point")


def test_save_and_load(tmp_path: Path) -> None:
    result = solve(some_problems()["complete"])
    result.save(tmp_path / "scad.npz")
    loaded = Result.load(tmp_path / "scad.npz")
    assert loaded.problem.penalty == Scad()
    assert loaded.settings == result.settings == DcSettings()
    assert loaded.starts == result.starts
    assert loaded.lower_bound == result.lower_bound
    np.testing.assert_array_equal(loaded.edge_duals(), result.edge_duals())
    assert loaded.labels_certified is None


# -- paths --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [Scad(), Mcp()], ids=repr)
def test_a_path_over_given_lams_starts_from_its_last_answer(penalty: fusionopt.penalties.Penalty) -> None:
    problem = FusionProblem(some_problems()["complete"].loss, Graph.complete(30, 1 / 30), penalty)
    lams = [2.0, 0.5, 1.0, 0.1]
    path = solution_path(problem, lams)
    assert path.lams.tolist() == lams
    assert path.status == "stationary"
    for lam, result in zip(lams, path.results, strict=True):
        assert result.problem.lam == lam
        assert result.status == "stationary"
        assert_stationary(result)
    assert [start.name for start in path.results[0].starts] == ["previous lam", "data", "fused"]
    assert [start.name for start in path.results[3].starts] == ["data", "fused", "l2 path"]
    assert path.n_clusters[0] < path.n_clusters[3]
    assert len(path.events) > 0


def test_no_lam_is_the_largest_for_a_penalty_that_is_not_convex() -> None:
    problem = FusionProblem(SquaredDistance([0.0, 1.0, 3.0]), penalty=Mcp(), lam=1.0)
    for call in (fusionopt.lambda_max, fusionopt.lambda_max_bounds, solution_path):
        with pytest.raises(
            InvalidArgumentError, match="lambda_max is not defined for Mcp, which is not convex"
        ):
            call(problem)
    with pytest.raises(InvalidArgumentError, match="is not convex"):
        _ = solution_path(problem, [0.1, 1.0]).lambda_max


# -- settings meet penalty ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("penalty", "rho", "message"),
    [
        (Mcp(gamma=1.5), 2 / 3, r"rho=0\.666667 breaks rho > 1 / gamma = 0\.666667 of Mcp\(gamma=1\.5\)"),
        (Scad(a=3.0), 0.4, r"rho=0\.4 breaks rho > 1 / \(a - 1\) = 0\.5 of Scad\(a=3\.0\)"),
        (fusionopt.SmoothedScad(a=3.0), 0.4, r"rho > 1 / \(a - 1\) = 0\.5 of SmoothedScad"),
    ],
)
def test_a_rho_for_which_a_pair_has_two_answers_is_refused(
    penalty: fusionopt.penalties.Penalty, rho: float, message: str
) -> None:
    problem = FusionProblem(SquaredDistance([0.0, 1.0]), penalty=penalty, lam=1.0)
    with pytest.raises(InvalidArgumentError, match=message):
        solve(problem, AdmmSettings(rho=rho))


def test_settings_of_the_l2_steps_may_be_given_alone() -> None:
    problem = FusionProblem(SquaredDistance([0.0, 0.1, 5.0, 5.1]), penalty=Mcp(), lam=0.5)
    result = solve(problem, AdmmSettings(rho=1.0, eps_rel=1e-8))
    assert isinstance(result.settings, DcSettings) and result.settings.rho == 1.0
    assert result.objective == pytest.approx(1.505, rel=1e-9)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"n_starts": 0}, InvalidArgumentError, "n_starts=0 is too small"),
        ({"n_starts": 1.5}, InvalidTypeError, r"n_starts=1\.5 is not a whole number"),
        ({"max_steps": 0}, InvalidArgumentError, "max_steps=0 is too small"),
        ({"eps_rel": -1.0}, InvalidArgumentError, r"eps_rel=-1\.0 is negative"),
    ],
)
def test_settings_that_are_refused(options: dict[str, float], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        DcSettings(**options)


@pytest.mark.parametrize("penalty", [fusionopt.Scad(), fusionopt.Mcp()])
def test_classes_that_one_direction_separates_leave_no_stationary_point(
    penalty: fusionopt.Scad | fusionopt.Mcp,
) -> None:
    rng = np.random.default_rng(0)
    designs = [rng.standard_normal((8, 2)) for _ in range(4)]
    labels = [np.where(z[:, 0] > 0, 1, -1) for z in designs]
    for lam in (0.1, 0.0):
        result = fusionopt.solve(
            fusionopt.FusionProblem(fusionopt.Logistic(designs, labels), penalty=penalty, lam=lam)
        )
        assert result.status == "unbounded" and "the infimum is not attained" in result.message
        assert not result.x.any()
    held = fusionopt.solve(
        fusionopt.FusionProblem(fusionopt.Logistic(designs, labels, ridge=0.1), penalty=penalty, lam=0.1)
    )
    assert held.status == "stationary" and held.x.any()
