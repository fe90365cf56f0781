"""`events="locate"`: every merge and split at its own lam, and the tree that follows from them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import is_valid_linkage

import fusionopt
from tests import catalogue, oracles

FIVE = [0.0, 1.0, 3.0, 7.0, 12.0]


def test_a4_heights_are_exact_whatever_the_grid() -> None:
    for lams in ([0.7, 2.0], [5.0], np.geomspace(0.01, 3.0, 9)):
        path = fusionopt.solution_path(
            catalogue.line_complete(FIVE, 0.0).problem(), lams=lams, events="locate"
        )
        heights = path.linkage()[:, 2]
        np.testing.assert_allclose(heights, [0.5, 5 / 6, 17 / 12, 1.85], rtol=1e-14)
        assert {event.how for event in path.events} == {"closed form"}


def test_a3_float_tie_shares_a_height() -> None:
    path = fusionopt.solution_path(
        catalogue.line_complete([1.3, 2.1, 2.9, 7.2, 8.1, 8.8], 0.0).problem(), events="locate"
    )
    tree = path.linkage()
    assert is_valid_linkage(tree)
    assert tree[1, 2] == tree[2, 2]
    np.testing.assert_allclose(tree[:4, 2], [0.35, 0.4, 0.4, 5 / 12], rtol=1e-13)
    assert [len(event.members) for event in path.events] == [2, 3, 3, 6]


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_one_feature_merges_at_the_rational_heights(scale: float, weight: float) -> None:
    values = np.random.default_rng(0).normal(size=30) * scale
    problem = fusionopt.FusionProblem(
        fusionopt.SquaredDistance(values, sample_weight=np.full(30, 2.0)),
        fusionopt.Graph.complete(30, weight),
    )
    path = fusionopt.solution_path(problem, n_lams=6, events="locate")
    want = 2.0 / weight * np.array(catalogue.line_merges(values))
    np.testing.assert_allclose(path.linkage()[:, 2], want, rtol=1e-12)


def test_b3_all_at_once() -> None:
    for cycle, height in ((False, 1.0 / (1.0 + np.sqrt(0.5))), (True, 1.0)):
        path = fusionopt.solution_path(catalogue.square(0.0, cycle).problem(), n_lams=5, events="locate")
        assert len(path.events) == 1
        assert len(path.events[0].members) == 4
        tree = path.linkage()
        assert len(set(tree[:, 2].tolist())) == 1
        np.testing.assert_allclose(tree[0, 2], height, rtol=2e-9)
        with pytest.raises(ValueError, match=r"(?s)2.*(1.*4|4.*1)"):
            path.at(n_clusters=2)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_e1_merges_and_the_split(scale: float) -> None:
    problem = catalogue.splitting(0.0).scaled(scale).problem()
    path = fusionopt.solution_path(problem, lams=scale * np.array([3.0, 20.0, 1.0]), events="locate")
    told = [(event.kind, event.lam / scale, event.members.tolist()) for event in path.events]
    assert [kind for kind, _, _ in told] == ["merge", "split", "merge", "merge", "merge"]
    np.testing.assert_allclose([lam for _, lam, _ in told], [2 / 3, 2.0, 22 / 3, 22 / 3, 18.0], rtol=1e-9)
    assert [members for _, _, members in told] == [[0, 1], [0, 1], [0, 3], [1, 2], [0, 1, 2, 3]]
    assert told[2][1] == told[3][1]
    for event in path.events:
        low, high = event.bracket
        assert low <= event.lam <= high
        assert high - low <= 1e-4 * high
        assert event.certified
    assert not path.is_hierarchy
    with pytest.raises(ValueError, match="no hierarchy"):
        path.linkage()


def test_plane_complete_does_not_depend_on_the_grid() -> None:
    points = np.random.default_rng(0).normal(size=(40, 2))
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points))
    fine = fusionopt.solution_path(problem, n_lams=20, events="locate")
    coarse = fusionopt.solution_path(problem, lams=[1.0], events="locate")
    np.testing.assert_allclose(
        [event.lam for event in fine.events], [event.lam for event in coarse.events], rtol=3e-9
    )
    assert [e.members.tolist() for e in fine.events] == [e.members.tolist() for e in coarse.events]
    assert is_valid_linkage(fine.linkage())
    # Cold solves on both sides of a height see the change.
    for event in fine.events[-3:]:
        below, above = (
            fusionopt.solve(problem.with_lam(event.lam * side)).labels for side in (1 - 1e-6, 1 + 1e-6)
        )
        assert len(np.unique(above[event.members])) == 1
        assert len(np.unique(below[event.members])) > 1


def test_edges_are_located_by_their_flow() -> None:
    points = np.random.default_rng(3).normal(size=(8, 2))
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points), fusionopt.Graph.knn(points, 3))
    path = fusionopt.solution_path(problem, n_lams=8, events="locate")
    assert all(event.how == "flow" for event in path.events)
    lams = [event.lam for event in path.events]
    assert lams == sorted(lams)
    for event in path.events[-2:]:
        labels = [fusionopt.solve(problem.with_lam(event.lam * side)).labels for side in (1 - 1e-5, 1 + 1e-5)]
        assert not np.array_equal(*labels)


def test_regressions_are_located_too() -> None:
    rng = np.random.default_rng(2)
    designs = [rng.normal(size=(6, 2)) for _ in range(5)]
    targets = [z @ [1.0, k % 2] for k, z in enumerate(designs)]
    problem = fusionopt.FusionProblem(fusionopt.LeastSquares(designs, targets, ridge=0.01))
    path = fusionopt.solution_path(problem, n_lams=10, events="locate")
    assert path.events
    for event in path.events:
        assert event.bracket[1] - event.bracket[0] <= 1.1e-4 * event.lam
    event = path.events[-1]
    low = fusionopt.solve(problem.with_lam(event.lam * (1 - 3e-4))).n_clusters
    high = fusionopt.solve(problem.with_lam(event.lam * (1 + 3e-4))).n_clusters
    assert high < low


def test_callback_counts_steps_and_can_stop() -> None:
    seen: list[tuple[str, int, int]] = []

    def watch(progress: fusionopt.PathProgress) -> bool:
        seen.append((progress.phase, progress.done, progress.total))
        return progress.phase == "locate" and progress.done == 2

    path = fusionopt.solution_path(
        catalogue.line_complete(FIVE, 0.0).problem(), lams=[0.6, 1.0, 2.0], events="locate", callback=watch
    )
    assert seen == [("grid", 1, 3), ("grid", 2, 3), ("grid", 3, 3), ("locate", 1, 3), ("locate", 2, 3)]
    assert path.status == "user_limit"
    # What was not searched is told by the grid.
    assert [event.how for event in path.events] == ["closed form"] * 2 + ["grid"]
    assert path.events[-1].bracket == (1.0, 2.0)


def test_events_travel_with_the_file(tmp_path: object) -> None:
    path = fusionopt.solution_path(catalogue.splitting(0.0).problem(), lams=[1.0, 3.0, 20.0], events="locate")
    file = f"{tmp_path}/path.npz"
    path.save(file)
    again = fusionopt.PathResult.load(file)
    assert [(e.kind, e.lam, e.bracket, e.how, e.certified) for e in again.events] == [
        (e.kind, e.lam, e.bracket, e.how, e.certified) for e in path.events
    ]
    for a, b in zip(again.events, path.events, strict=True):
        assert a.members.tolist() == b.members.tolist()
    assert again.status == path.status
    for a, b in zip(again.results, path.results, strict=True):
        assert a.x.tobytes() == b.x.tobytes()
        assert a.proven == b.proven


def test_deep_chain_has_a_tree() -> None:
    # Row k, at k (k + 1) / 2, joins the cluster of all rows before it, nearer than its next neighbour: depth n - 1.
    n = 3000
    k = np.arange(n)
    values = k * (k + 1) / 2.0
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(values), fusionopt.Graph.complete(n))
    top = fusionopt.lambda_max(problem)
    path = fusionopt.PathResult(
        problem.with_lam(top), np.array([top]), [_all_fused(problem, top)], None, "", _line_events(values)
    )
    tree = path.linkage()
    assert tree.shape == (n - 1, 4)
    assert is_valid_linkage(tree)
    before = np.cumsum(values)[:-1] / k[1:]
    np.testing.assert_allclose(tree[:, 2], (values[1:] - before) / (k[1:] + 1), rtol=1e-11)
    assert tree[-1, 3] == n


def _line_events(values: np.ndarray) -> list[fusionopt.path.Event]:
    from fusionopt.locate import Point, locate_events

    n = len(values)
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(values))
    low, high = Point(0.0, np.arange(n), None, True), Point(1e9, np.zeros(n, dtype=np.int64), None, True)

    def never(lam: float, start: object) -> Point:
        raise AssertionError("one feature needs no solve")

    return locate_events(problem, low, high, never)


def _all_fused(problem: fusionopt.FusionProblem, lam: float) -> fusionopt.Result:
    mean = problem.loss.targets.mean(axis=0)  # type: ignore[attr-defined]
    x = np.tile(mean, (problem.n_nodes, 1))
    value = problem.objective(x)
    return fusionopt.Result(
        problem=problem.with_lam(lam),
        settings=fusionopt.AdmmSettings(),
        x=x,
        labels=np.zeros(problem.n_nodes, dtype=np.int64),
        objective=value,
        dual_objective=value,
        gap=0.0,
        rel_gap=0.0,
        status="optimal",
        message="",
        n_iter=0,
        primal_residual=0.0,
        dual_residual=0.0,
        setup_time=0.0,
        solve_time=0.0,
        trace={},
    )


def test_ties_of_an_interval_are_told_apart_from_neighbours() -> None:
    # Two pairs that merge at 0.5 and 0.5 (1 + 1e-4): two events, two lams.
    path = fusionopt.solution_path(
        catalogue.line_complete([0.0, 1.0, 50.0, 51.0001], 0.0).problem(), lams=[0.1, 30.0], events="locate"
    )
    lams = [event.lam for event in path.events]
    np.testing.assert_allclose(lams[:2], [0.5, 0.50005], rtol=1e-11)
    oracles.assert_close(lams[2], 50.00005 / 4.0, rtol=1e-12)
