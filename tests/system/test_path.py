"""Paths over a grid: order, certificates, look-ups, trees, and the refusals that must be plain."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt
from fusionopt._bridge import Engine
from tests import catalogue, oracles
from tests.catalogue import Instance

FIVE = [0.0, 1.0, 3.0, 7.0, 12.0]


@pytest.mark.parametrize("lams", [[0.1, 0.2], [0.2, 0.1], [0.2, 0.2], [0.2], 0.2, (0.0, 3.0, 0.5)])
def test_e2_any_grid_in_the_order_given(lams: list[float] | float) -> None:
    path = fusionopt.solution_path(catalogue.line_complete([0.0, 2.0], 0.0).problem(), lams=lams)
    given = np.atleast_1d(np.asarray(lams, dtype=float))
    assert path.lams.tolist() == given.tolist()
    assert len(path.results) == len(given)
    for lam, result in zip(given, path.results, strict=True):
        assert result.problem.lam == lam
        half = min(float(lam), 1.0)
        oracles.assert_close(result.x[:, 0], [half, 2.0 - half], rtol=1e-9)
    assert path.status == "optimal"


def _verify(instance: Instance, path: fusionopt.PathResult) -> None:
    for lam, result in zip(path.lams, path.results, strict=True):
        oracles.assert_solved(instance.with_lam(float(lam)), result)


@pytest.mark.parametrize("kind", ["complete", "node_weights", "knn", "sparse", "disconnected"])
def test_every_point_is_certified(kind: str) -> None:
    instance = catalogue.random_squared(np.random.default_rng(8), kind, 25, 2)
    path = fusionopt.solution_path(instance.problem(), n_lams=30)
    _verify(instance, path)
    assert len(path.lams) == 30
    assert np.all(np.isfinite(path.lams))
    # The automatic grid starts where everything is fused.
    top = int(np.argmax(path.lams))
    assert path.results[top].n_clusters == oracles.n_components(instance)
    assert path.n_clusters.tolist() == [result.n_clusters for result in path.results]
    cold = fusionopt.solve(instance.with_lam(float(path.lams[15])).problem())
    oracles.assert_close(path.results[15].objective, cold.objective, rtol=2e-6)


def test_grid_order_does_not_matter() -> None:
    instance = catalogue.random_squared(np.random.default_rng(9), "knn", 30, 2)
    lams = np.geomspace(instance.lam / 30, instance.lam, 8)
    up = fusionopt.solution_path(instance.problem(), lams=lams)
    down = fusionopt.solution_path(instance.problem(), lams=lams[::-1])
    for a, b in zip(up.results, down.results[::-1], strict=True):
        oracles.assert_close(a.objective, b.objective, rtol=2e-6)
        oracles.assert_same_partition(a.labels, b.labels)


@pytest.mark.parametrize("bad", [[0.1, -0.2], [np.nan], [np.inf], [], [[0.1, 0.2]]])
def test_bad_grid_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="lams"):
        fusionopt.solution_path(catalogue.line_complete([0.0, 2.0], 0.0).problem(), lams=bad)


def test_look_up() -> None:
    path = fusionopt.solution_path(
        catalogue.line_complete(FIVE, 0.0).problem(), lams=[0.1, 0.6, 1.0, 1.6, 2.0]
    )
    assert path.at(lam=0.6) is path.results[1]
    assert path.at(n_clusters=2).n_clusters == 2
    assert path.at(n_clusters=1).n_clusters == 1
    # Between grid points the nearest in ratio; beyond the ends nothing is known.
    assert path.at(lam=0.7) is path.results[1]
    for outside in (0.05, 2.5):
        with pytest.raises(ValueError, match="lam"):
            path.at(lam=outside)


def test_b3_two_clusters_are_not_on_the_path() -> None:
    path = fusionopt.solution_path(catalogue.square(0.0).problem(), lams=np.linspace(0.0, 1.0, 41))
    assert set(path.n_clusters.tolist()) == {1, 4}
    with pytest.raises(ValueError, match=r"(?s)2.*(1.*4|4.*1)"):
        path.at(n_clusters=2)
    tree = np.asarray(path.linkage())
    assert tree.shape == (3, 4)
    assert len(set(tree[:, 2].tolist())) == 1
    # The upper end of the bracket of grid points around 0.5857864.
    oracles.assert_close(tree[0, 2], 0.6, rtol=1e-12)


def test_a4_tree() -> None:
    lams = np.linspace(0.0, 2.0, 81)
    path = fusionopt.solution_path(catalogue.line_complete(FIVE, 0.0).problem(), lams=lams)
    assert path.is_hierarchy
    tree = np.asarray(path.linkage())
    assert tree.shape == (4, 4)
    assert np.all(np.isfinite(tree))
    heights = tree[:, 2]
    assert np.all(np.diff(heights) >= 0)
    for height, merge in zip(heights, catalogue.line_merges(FIVE), strict=True):
        assert merge <= height + 1e-9
        assert height <= merge + 0.025 + 1e-9
    assert tree[-1, 3] == 5
    assert all(event.kind == "merge" for event in path.events)
    for event in path.events:
        low, high = event.bracket
        assert low < high
        assert low <= event.lam <= high


def test_b1_duplicates_have_a_finite_height() -> None:
    path = fusionopt.solution_path(
        catalogue.two_piles([0, 0, 0], [2, 2, 2], (2, 1), 0.0).problem(), lams=[0.0, 0.5, 1.0, 1.2]
    )
    tree = np.asarray(path.linkage())
    assert np.all(np.isfinite(tree))
    assert tree[0].tolist() == [0.0, 1.0, 0.0, 2.0]
    assert tree[1, 2] == 1.2


def test_b2_automatic_grid_of_equal_points() -> None:
    for points in (np.ones((5, 2)), np.array([[3.0, 4.0]])):
        path = fusionopt.solution_path(catalogue.squared(points, 0.0).problem())
        assert np.all(np.isfinite(path.lams))
        assert path.status == "optimal"
        assert set(path.n_clusters.tolist()) == {1}
        for result in path.results:
            assert result.x.tobytes() == points.tobytes()
            assert result.objective == 0.0


def test_d1_components_join_last() -> None:
    path = fusionopt.solution_path(catalogue.disconnected().problem(), lams=[0.0, 0.5, 1.5, 3.0, 100.0])
    tree = np.asarray(path.linkage())
    assert tree.shape == (4, 4)
    assert np.isinf(tree[2:, 2]).all()
    assert np.isfinite(tree[:2, 2]).all()


def test_e1_splits_are_reported_and_no_tree_is_drawn() -> None:
    lams = [0.3, 1.0, 3.0, 7.4, 12.0, 20.0]
    path = fusionopt.solution_path(catalogue.splitting(0.1).problem(), lams=lams)
    for lam, result in zip(lams, path.results, strict=True):
        want = catalogue.splitting(lam)
        oracles.assert_brackets(want, result, want.optimum)
        assert want.labels is not None
        oracles.assert_same_partition(result.labels, want.labels)
    assert not path.is_hierarchy
    assert any(event.kind == "split" for event in path.events)
    with pytest.raises(ValueError, match="hierarchy"):
        path.linkage()


def test_paths_of_edge_lists_start_between_the_clusters() -> None:
    rng = np.random.default_rng(3)
    points = rng.standard_normal((300, 2)) + 4.0 * rng.integers(0, 3, (300, 1))
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points), fusionopt.Graph.knn(points, 6))
    path = fusionopt.solution_path(problem, lams=np.geomspace(0.05, 20.0, 20))
    assert sum("between the clusters" in result.message for result in path.results) > 10
    for result in path.results:
        cold = fusionopt.solve(result.problem, fusionopt.AdmmSettings(eps_rel=1e-10))
        assert "between the clusters" not in cold.message
        assert result.status == "optimal"
        oracles.assert_close(result.objective, cold.objective, rtol=1e-6)
        if result.proven and cold.proven:
            oracles.assert_same_partition(result.labels, cold.labels)


def test_a_repeated_lam_tells_of_its_own_iterations() -> None:
    points = 0.3 * np.random.default_rng(1).standard_normal((120, 3)) + 3.0 * (np.arange(120) % 3)[:, None]
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points), fusionopt.Graph.knn(points, 5))
    settings = fusionopt.AdmmSettings(max_iter=60)
    results = fusionopt.solve_many([problem.with_lam(lam) for lam in (0.5, 1.0, 1.0, 1.0, 1.0)], settings)
    assert "between the clusters" in results[1].message
    for again in results[2:]:
        assert again.status == "optimal"
        assert "between the clusters" not in again.message
        oracles.assert_same_partition(again.labels, results[1].labels)


def _beside_a_pile(lam: float) -> fusionopt.FusionProblem:
    """Case E1 and, as a component of its own, twenty nodes that are fused early and own most of the edges."""
    split = catalogue.splitting(lam).problem()
    points = np.asarray(split.loss.targets)  # type: ignore[attr-defined]
    m, n = len(points), 20
    pile = 50.0 + 0.1 * np.random.default_rng(0).standard_normal((n, points.shape[1]))
    i, j = np.triu_indices(n, 1)
    edges = np.concatenate([split.graph.edges, np.stack([m + i, m + j], axis=1)])
    weights = np.concatenate([split.graph.weights, np.ones(len(i))])
    loss = fusionopt.SquaredDistance(np.concatenate([points, pile]))
    return fusionopt.FusionProblem(loss, fusionopt.Graph.from_edges(m + n, edges, weights), lam=lam)


def test_clusters_that_split_again_are_found_on_a_path() -> None:
    lams = [0.3, 1.0, 1.3, 3.0, 7.4, 12.0, 20.0]
    path = fusionopt.solution_path(_beside_a_pile(0.1), lams=lams)
    assert any("between the clusters" in result.message for result in path.results)
    for lam, result in zip(lams, path.results, strict=True):
        want = catalogue.splitting(lam)
        assert want.labels is not None
        assert result.proven
        oracles.assert_same_partition(result.labels[: len(want.labels)], want.labels)
        assert len(set(result.labels[len(want.labels) :].tolist())) == 1
    assert not path.is_hierarchy


def _large_beside_a_split(scale: float) -> fusionopt.FusionProblem:
    """350,000 edges at random, mostly inside three blobs, which have no cheap factor; beside them case E1."""
    rng = np.random.default_rng(3)
    m, blob = 31_000, np.arange(31_000) % 3
    points = 3.0 * rng.standard_normal((3, 2))[blob] + rng.standard_normal((m, 2))
    i = rng.integers(0, m, 11 * m)
    inside = (i + 3 * rng.integers(0, m // 3, len(i))) % (m - m % 3)
    across = rng.integers(0, m, (len(i) // 50, 2))
    split = catalogue.splitting(1.0).problem()
    edges = np.concatenate([np.stack([i, inside], axis=1), across, m + split.graph.edges])
    weights = np.concatenate([np.ones(len(i) + len(across)), split.graph.weights])
    keep = edges[:, 0] != edges[:, 1]
    ends, first = np.unique(np.sort(edges[keep], axis=1), axis=0, return_index=True)
    targets = np.asarray(split.loss.targets)  # type: ignore[attr-defined]
    loss = fusionopt.SquaredDistance(np.concatenate([points, scale * np.pad(targets, ((0, 0), (0, 1)))]))
    return fusionopt.FusionProblem(
        loss, fusionopt.Graph.from_edges(m + len(targets), ends, weights[keep][first])
    )


def test_large_partitions_are_aggregated_once_flows_nearly_prove_them() -> None:
    scale = 0.125
    problem = _large_beside_a_split(scale)
    n_split = catalogue.splitting(1.0).n_nodes
    i, j = problem.graph.edges.T
    targets = np.asarray(problem.loss.targets)  # type: ignore[attr-defined]
    lams = [0.1, 0.2, 0.24, 0.37, 0.6, 1.0]
    results = fusionopt.solution_path(problem, lams).results
    aggregated = ["between the clusters" in result.message for result in results]
    assert aggregated == [False, False, True, True, True, True]
    assert not results[2].proven
    for lam, result in zip(lams, results, strict=True):
        assert result.status == "optimal"
        v = result.edge_duals()
        assert np.all(np.linalg.norm(v, axis=1) <= lam * problem.graph.weights * (1 + 1e-12))
        sums = np.zeros_like(targets)
        np.add.at(sums, i, v)
        np.subtract.at(sums, j, v)
        dual = float(np.sum(sums * targets) - 0.5 * np.sum(sums**2))
        assert problem.with_lam(lam).objective(result.x) - dual <= 1e-6 * result.objective
        if "between the clusters" in result.message:
            want = catalogue.splitting(lam / scale).labels
            assert want is not None
            oracles.assert_same_partition(result.labels[-n_split:], want)


def test_a_restored_engine_goes_on_between_the_clusters_with_the_same_bits() -> None:
    points = np.random.default_rng(4).standard_normal((200, 3))
    problem = fusionopt.FusionProblem(
        fusionopt.SquaredDistance(points), fusionopt.Graph.knn(points, 6), lam=2.0
    )
    settings = fusionopt.AdmmSettings(eps_rel=1e-10)
    first, second = Engine(problem, settings), Engine(problem, settings)
    while not first.run(10):
        pass
    assert first.finish().proven
    second.restore(first.state())
    for lam in (2.3, 2.5):
        for engine in (first, second):
            engine.set_lam(lam)
            assert engine.aggregated
            while not engine.run(10):
                pass
            assert engine.finish().proven
            assert not engine.aggregated
            assert engine.n_between > 0
            assert engine.certify(engine.point()).met
        assert np.array_equal(first.point(), second.point())
        assert np.array_equal(first.duals(), second.duals())
    first.set_lam(2.0)  # clusters of a larger lam say nothing about a smaller one
    assert not first.aggregated


def test_tree_of_an_unfinished_path_is_refused() -> None:
    path = fusionopt.solution_path(catalogue.line_complete(FIVE, 0.0).problem(), lams=[0.1, 0.6])
    with pytest.raises(ValueError, match="cluster"):
        path.linkage()


def test_plateau() -> None:
    rng = np.random.default_rng(4)
    points = np.concatenate([rng.normal(0, 0.3, (20, 2)), rng.normal(6, 0.3, (20, 2))])
    path = fusionopt.solution_path(catalogue.squared(points, 0.0).problem(), n_lams=60)
    chosen = path.select("plateau")
    oracles.assert_same_partition(chosen.labels, np.repeat([0, 1], 20))


def test_callback_sees_every_point_and_can_stop() -> None:
    seen: list[tuple[int, int, float]] = []

    def watch(progress: fusionopt.PathProgress) -> bool:
        seen.append((progress.done, progress.total, progress.lam))
        assert progress.elapsed >= 0.0
        return progress.done == 3

    path = fusionopt.solution_path(
        catalogue.line_complete(FIVE, 0.0).problem(), lams=[0.1, 0.2, 0.3, 0.4, 0.5], callback=watch
    )
    assert [done for done, _, _ in seen] == [1, 2, 3]
    assert {total for _, total, _ in seen} == {5}
    assert len(path.results) == 3
    assert path.status == "user_limit"
    _verify(catalogue.line_complete(FIVE, 0.0), path)


def test_frame() -> None:
    path = fusionopt.solution_path(catalogue.line_complete(FIVE, 0.0).problem(), lams=[0.1, 0.6, 2.0])
    frame = path.to_frame()
    assert np.asarray(frame["lam"]).tolist() == [0.1, 0.6, 2.0]
    assert np.asarray(frame["n_clusters"]).tolist() == [5, 4, 1]


@pytest.mark.parametrize("scale", [1.0, 1e8])
def test_lams_above_the_largest_are_noted(scale: float) -> None:
    problem = catalogue.line_complete([scale * value for value in FIVE], 0.0).problem()
    assert fusionopt.solution_path(problem, n_lams=4).notes == ()
    (note,) = fusionopt.solution_path(problem, lams=[0.1 * scale, 10 * scale, 20 * scale]).notes
    assert note.startswith("2 of the lams lie above lambda_max")
    (same,) = fusionopt.solution_path(catalogue.line_complete([1.0, 1.0], 0.0).problem(), n_lams=3).notes
    assert "Nothing is left to fuse" in same
