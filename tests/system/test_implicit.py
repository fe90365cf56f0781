"""The storage-free method, forced on problems small enough to be checked pair by pair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fusionopt
from fusionopt import AdmmSettings, _core
from fusionopt._duals import ImplicitDuals
from fusionopt.errors import MemoryLimitError
from fusionopt.estimate import chooses_storage_free, pairs_need_no_storage
from fusionopt.methods import Interrupt, Monitor, Progress, implicit
from fusionopt.methods.implicit import ImplicitSession
from tests import catalogue, oracles
from tests.catalogue import FloatArray, Instance


def solve_implicit(
    instance: Instance, settings: AdmmSettings | None = None, monitor: Monitor | None = None
) -> fusionopt.Result:
    """What `solve` does for problems of many nodes."""
    chosen = AdmmSettings() if settings is None else settings
    watch = Monitor(chosen, Interrupt()) if monitor is None else monitor
    return ImplicitSession(instance.problem(), chosen).run(watch)


def groups(m: int, d: int, seed: int, k: int = 4, sep: float = 3.0) -> FloatArray:
    rng = np.random.default_rng([7, seed, m, d])
    centres = sep * rng.standard_normal((k, d))
    return centres[rng.integers(k, size=m)] + rng.standard_normal((m, d))


def fraction(points: FloatArray, share: float) -> float:
    """lam as a share of what total fusion needs at least."""
    return share * float(np.linalg.norm(points - points.mean(axis=0), axis=1).max()) / (len(points) - 1)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 1.5, 100.0])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 10])
def test_certified_and_equal_to_the_stored_engine(d: int, share: float) -> None:
    points = groups(150, d, 0)
    instance = catalogue.squared(points, fraction(points, share))
    result = solve_implicit(instance)
    assert result.status == "optimal"
    oracles.assert_solved(instance, result)
    stored = fusionopt.solve(instance.problem())
    assert stored.status == "optimal"
    # Each lies between the other's bounds.
    slack = 1e-12 * abs(stored.objective)
    assert result.dual_objective <= stored.objective + slack
    assert stored.dual_objective <= result.objective + slack


@pytest.mark.parametrize("c", [1e-8, 1e8])
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_units_change_only_units(share: float, c: float) -> None:
    points = groups(120, 2, 1)
    plain = catalogue.squared(points, fraction(points, share))
    scaled = plain.scaled(c)
    result, reference = solve_implicit(scaled), solve_implicit(plain)
    oracles.assert_solved(scaled, result)
    oracles.assert_close(result.objective / c**2, reference.objective, rtol=1e-6)
    oracles.assert_same_partition(result.labels, reference.labels)


def test_an_offset_changes_only_the_offset() -> None:
    points = groups(120, 3, 2)
    instance = catalogue.squared(points + 1e6, fraction(points, 0.9))
    result = solve_implicit(instance)
    oracles.assert_solved(instance, result)


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_duplicates_stay_together(share: float) -> None:
    points = np.repeat(groups(40, 2, 3), 5, axis=0)
    instance = catalogue.squared(points, fraction(points, share))
    result = solve_implicit(instance)
    oracles.assert_solved(instance, result)
    blocks = result.labels.reshape(40, 5)
    assert (blocks == blocks[:, :1]).all()


def test_points_that_agree_need_no_search() -> None:
    instance = catalogue.squared(np.full((30, 2), 7.0), 0.1)
    result = solve_implicit(instance)
    oracles.assert_solved(instance, result)
    assert result.n_clusters == 1 and result.objective == 0.0


def test_lam_zero_needs_no_search() -> None:
    points = groups(20, 2, 4)
    result = solve_implicit(catalogue.squared(points, 0.0))
    assert result.status == "optimal" and (result.x == points).all()


@pytest.mark.parametrize("lam", [0.3, 1.0, 5.0])
def test_two_points_in_closed_form(lam: float) -> None:
    instance = catalogue.squared(np.array([[0.0, 0.0], [2.0, 0.0]]), lam)
    result = solve_implicit(instance)
    oracles.assert_solved(instance, result)
    step = min(lam, 1.0)
    oracles.assert_close(result.x, [[step, 0.0], [2.0 - step, 0.0]], rtol=1e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_node_and_sample_weights(seed: int) -> None:
    rng = np.random.default_rng([8, seed])
    m, points = 90, groups(90, 2, 5)
    r, s = rng.uniform(0.1, 3.0, m), rng.uniform(0.2, 5.0, m)
    problem = fusionopt.FusionProblem(
        fusionopt.SquaredDistance(points, sample_weight=s),
        fusionopt.Graph.complete(m, weight=0.7, node_weights=r),
        lam=0.02,
    )
    edges = catalogue.all_pairs(m)
    weights = 0.7 * r[edges[:, 0]] * r[edges[:, 1]]
    instance = Instance(oracles.SquaredNodes(points, s), edges, weights, 0.02, complete=(0.7, r))
    result = solve_implicit(instance)
    oracles.assert_dual_feasible(instance, result.edge_duals())
    oracles.assert_partition(instance, result)
    assert result.status == "optimal"
    oracles.assert_close(result.objective, oracles.objective(instance, result.x), rtol=1e-12)
    stored = fusionopt.solve(problem)
    assert result.dual_objective <= stored.objective * (1 + 1e-12)
    assert stored.dual_objective <= result.objective * (1 + 1e-12)


def test_tighter_than_float32() -> None:
    points = groups(100, 2, 6)
    instance = catalogue.squared(points, fraction(points, 0.6))
    settings = AdmmSettings(eps_rel=1e-9)
    result = solve_implicit(instance, settings)
    oracles.assert_solved(instance, result, eps_rel=1e-9)


def test_levels_and_tree_keep_the_certificate() -> None:
    # Enough nodes for a coarse level; the oracles of pairs would be slow, so the bounds are compared.
    points = groups(4000, 2, 7)
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points), lam=fraction(points, 0.9))
    result = fusionopt.solve(problem)
    assert result.status == "optimal" and "storage-free" in result.message
    centre = points.mean(axis=0)
    fused = 0.5 * float(((points - centre) ** 2).sum())
    assert result.dual_objective <= result.objective <= fused
    oracles.assert_close(result.objective, problem.objective(result.x), rtol=1e-10)
    duals = result.edge_duals()
    assert float(np.sqrt((duals**2).sum(axis=1)).max()) <= problem.lam
    flow = np.zeros_like(points)
    i, j = np.triu_indices(4000, 1)
    for k in range(2):
        flow[:, k] = np.bincount(i, duals[:, k], 4000) - np.bincount(j, duals[:, k], 4000)
    dual = float((flow * (points - centre)).sum() - 0.5 * (flow**2).sum())
    oracles.assert_close(result.dual_objective, dual, rtol=1e-9)
    assert result.gap <= 1e-6 * result.objective


def test_one_thread_or_two_give_the_same_bits() -> None:
    points = np.ascontiguousarray(groups(300, 2, 8))
    points -= points.mean(axis=0)

    def run(n_threads: int) -> tuple[FloatArray, float]:
        one = np.ones(len(points))
        core = _core.Implicit(
            points / 16,
            one,
            one,
            fraction(points, 0.6) / 16,
            eps_rel=1e-6,
            eps_abs=0.0,
            max_newton=500,
            seed=0,
            n_threads=n_threads,
        )
        assert core.run(lambda fresh, steps, objective, dual: False)
        return core.dual_point, core.delta

    (first, delta), (second, other) = run(1), run(2)
    assert (first == second).all() and delta == other


def test_the_callback_and_the_clock_stop_it() -> None:
    points = groups(400, 2, 9)
    instance = catalogue.squared(points, fraction(points, 0.9))
    seen: list[float] = []

    def enough(progress: Progress) -> bool:
        seen.append(progress.rel_gap)
        return len(seen) == 2

    settings = AdmmSettings()
    result = solve_implicit(instance, monitor=Monitor(settings, Interrupt(), enough))
    assert result.status == "user_limit" and result.message.startswith("the callback asked to stop")
    assert len(seen) == 2
    oracles.assert_certificate(instance, result)
    timed = AdmmSettings(time_limit=1e-9)
    result = solve_implicit(instance, timed)
    assert result.status == "user_limit" and "time_limit" in result.message
    oracles.assert_certificate(instance, result)
    asked = Interrupt()
    asked.requested = True
    result = solve_implicit(instance, monitor=Monitor(settings, asked))
    assert result.status == "interrupted"
    oracles.assert_certificate(instance, result)


def test_few_newton_steps_are_a_limit_like_any_other() -> None:
    points = groups(200, 2, 10)
    instance = catalogue.squared(points, fraction(points, 0.9))
    result = solve_implicit(instance, AdmmSettings(max_iter=2))
    assert result.status == "user_limit" and "max_iter = 2 was reached" in result.message
    assert result.n_iter == 2
    oracles.assert_certificate(instance, result)


def test_duals_travel_as_a_point(tmp_path: Path) -> None:
    points = groups(150, 2, 11)
    instance = catalogue.squared(points, fraction(points, 0.9))
    result = solve_implicit(instance)
    result.save(tmp_path / "result.npz")
    assert (tmp_path / "result.npz").stat().st_size < result.edge_duals().nbytes / 4
    loaded = fusionopt.Result.load(tmp_path / "result.npz")
    assert (loaded.edge_duals() == result.edge_duals()).all()


def test_duals_of_too_many_pairs_are_refused_with_the_number() -> None:
    duals = ImplicitDuals(np.zeros((2_000_000, 2)), np.ones(2_000_000), 1.0, 1.0)
    with pytest.raises(
        MemoryLimitError, match=r"The duals of 1999999000000 pairs would take .*use objective"
    ):
        duals()


@pytest.mark.parametrize(
    ("problem", "fit"),
    [
        (fusionopt.FusionProblem(fusionopt.SquaredDistance(np.eye(3)), lam=1.0), True),
        (fusionopt.FusionProblem(fusionopt.SquaredDistance(np.eye(3), [1, 0, 1]), lam=1.0), False),
        (fusionopt.FusionProblem(fusionopt.SquaredDistance(np.eye(3), [1, 1e-9, 1]), lam=1.0), False),
        (fusionopt.FusionProblem(fusionopt.SquaredDistance([[np.nan, 1.0], [0.0, 0.0]]), lam=1.0), False),
        (fusionopt.FusionProblem(fusionopt.SquaredDistance(np.eye(3)), penalty=fusionopt.L1Norm()), False),
        (
            fusionopt.FusionProblem(
                fusionopt.SquaredDistance(np.eye(3)), fusionopt.Graph.from_edges(3, [[0, 1]])
            ),
            False,
        ),
        (
            fusionopt.FusionProblem(
                fusionopt.SquaredDistance(np.eye(3)), fusionopt.Graph.complete(3, node_weights=[1, 0, 1])
            ),
            False,
        ),
    ],
)
def test_what_it_takes(problem: fusionopt.FusionProblem, fit: bool) -> None:
    assert pairs_need_no_storage(problem) is fit


def test_a_given_rho_asks_for_the_stored_sweep() -> None:
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(np.zeros((5000, 2))), lam=1.0)
    assert chooses_storage_free(problem, AdmmSettings())
    assert not chooses_storage_free(problem, AdmmSettings(rho=1.0))


@pytest.mark.parametrize("d", [2, 5])
def test_lambda_max_without_pairs(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(groups(80, d, 12)))
    low, high = fusionopt.lambda_max_bounds(problem)
    monkeypatch.setattr(implicit, "stores_too_much", lambda problem: True)
    below, above = fusionopt.lambda_max_bounds(problem)
    assert below <= high and low <= above
    assert above <= below * (1 + 1e-3)


def test_lambda_max_without_pairs_and_with_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    r = np.random.default_rng(13).uniform(0.5, 2.0, 60)
    problem = fusionopt.FusionProblem(
        fusionopt.SquaredDistance(groups(60, 1, 13)), fusionopt.Graph.complete(60, 2.0, r)
    )
    low, high = fusionopt.lambda_max_bounds(problem)
    monkeypatch.setattr(implicit, "stores_too_much", lambda problem: True)
    below, above = fusionopt.lambda_max_bounds(problem)
    assert below <= high and low <= above
    assert above <= below * (1 + 1e-3)
    agreed = fusionopt.FusionProblem(fusionopt.SquaredDistance(np.ones((5, 2))))
    assert fusionopt.lambda_max_bounds(agreed) == (0.0, 0.0)
