"""Which rows are equal is settled, not guessed: planted partitions, published cluster counts."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt
from benchmarks import evaluate, problems
from fusionopt import AdmmSettings, FusionProblem, Graph, SquaredDistance
from tests import catalogue, oracles
from tests.catalogue import Instance


def _planted(kind: str, seed: int) -> Instance:
    rng = np.random.default_rng([5, seed])
    n, d, groups = int(rng.integers(4, 60)), int(rng.integers(1, 6)), int(rng.integers(1, 6))
    complete: tuple[float, np.ndarray | None] | None = None
    if kind in ("complete", "node_weights"):
        edges = catalogue.all_pairs(n)
        r = np.ones(n) if kind == "complete" else rng.uniform(0.2, 5.0, n)
        complete = (1.0, None if kind == "complete" else r)
        weights = r[edges[:, 0]] * r[edges[:, 1]]
    else:
        edges = catalogue.sparse_pairs(rng, n, 4.0 / n, connected=kind != "disconnected")
        weights = catalogue.spread_weights(rng, len(edges), 1e6 if kind == "wild" else 10.0)
    if kind == "regression":
        return catalogue.planted_regression(rng, edges, weights, n, d, groups, 0.1 * (seed % 2))
    s = rng.uniform(0.3, 3.0, n) if kind == "sample_weight" else None
    return catalogue.planted(rng, edges, weights, n, d, groups, complete=complete, sample_weight=s)


@pytest.mark.parametrize(
    "kind", ["complete", "node_weights", "sparse", "disconnected", "wild", "sample_weight", "regression"]
)
@pytest.mark.parametrize("seed", range(12))
def test_planted_partition(kind: str, seed: int) -> None:
    """A tenth of every inside ball is free, so the partition is unambiguous and must be found."""
    instance = _planted(kind, seed)
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)
    oracles.assert_brackets(instance, result, instance.optimum)
    assert instance.labels is not None
    oracles.assert_same_partition(result.labels, instance.labels)
    assert instance.x is not None
    oracles.assert_close(result.x, instance.x, rtol=1e-7)


@pytest.mark.parametrize("kind", ["complete", "sparse", "regression"])
@pytest.mark.parametrize("seed", range(4))
def test_planted_partition_is_certified(kind: str, seed: int) -> None:
    instance = _planted(kind, seed)
    result = fusionopt.solve(instance.problem())
    assert instance.labels is not None
    oracles.assert_same_partition(result.labels, instance.labels)
    assert result.labels_certified is True


def test_loose_stop_is_never_certified_wrongly() -> None:
    """With a gap of 1e-2 the labels may be wrong, but then they are not called certified."""
    for seed in range(12):
        instance = _planted("complete", seed)
        result = fusionopt.solve(instance.problem(), AdmmSettings(eps_rel=1e-2, max_iter=2))
        oracles.assert_certificate(instance, result)
        oracles.assert_partition(instance, result)
        assert instance.labels is not None
        if not np.array_equal(oracles.renumber(result.labels), instance.labels):
            assert result.labels_certified is not True


def _stated(problem: problems.ClusteringProblem) -> FusionProblem:
    graph = (
        None if problem.edges is None else Graph.from_edges(problem.shape[0], problem.edges, problem.weights)
    )
    return FusionProblem(SquaredDistance(problem.points), graph=graph, lam=problem.lam)


def _assert_published(problem: problems.ClusteringProblem) -> None:
    result = fusionopt.solve(_stated(problem))
    assert result.status == "optimal"
    duals = result.edge_duals()
    dual = evaluate.dual_value(problem, duals)
    primal = evaluate.objective(problem, result.x)
    assert primal - dual <= 1e-6 * primal * (1 + 1e-6)
    assert problem.optimum is not None
    # Published with ten digits.
    assert dual <= problem.optimum * (1 + 6e-10)
    assert primal >= problem.optimum * (1 - 6e-10)
    assert result.n_clusters == problem.n_clusters
    assert evaluate.n_distinct_rows(result.x) == problem.n_clusters


@pytest.mark.parametrize("n", [500, 1000, 2000])
@pytest.mark.parametrize("level", ["few", "half"])
def test_published_moons(n: int, level: str) -> None:
    _assert_published(problems.moons(n, level))


@pytest.mark.parametrize("n", [100, 200, 500])
@pytest.mark.parametrize("level", ["few", "half"])
def test_published_gauss(n: int, level: str) -> None:
    _assert_published(problems.gauss(n, level))


@pytest.mark.parametrize("level", ["few", "half"])
def test_published_gauss_1000(level: str) -> None:
    _assert_published(problems.gauss(1000, level))


@pytest.mark.parametrize(
    ("n", "level", "n_clusters"),
    [(500, "half", 244), (1000, "half", 502), (2000, "half", 992), (2000, "few", 2), (5000, "half", 2511)],
)
def test_half_open_partitions_are_proven(n: int, level: str, n_clusters: int) -> None:
    """At a gap of 1e-6 many clusters are still wrong: those whose flow does not fit are parted or settled one by one.

    Each proof stands on its own: 2,511 clusters at n = 5,000, where the table that the problem is from counts 2,510.
    """
    result = fusionopt.solve(_stated(problems.moons(n, level)))
    assert result.proven
    assert "the duals prove the partition exact" in result.message
    assert result.n_clusters == n_clusters


def test_centres_that_touch_prove_nothing() -> None:
    """Two centres meet at exactly this lam: as long as they are 1e-12 apart the gap is not rounding yet."""
    rng = np.random.default_rng(491)
    n, d = int(rng.integers(2, 31)), int(rng.integers(1, 4))
    points = rng.integers(-3, 4, (n, d)).astype(float)
    r = rng.choice([0, 1, 2, 3.0], n, p=[0.1, 0.5, 0.3, 0.1]) if rng.random() < 0.4 else np.ones(n)
    i, j = np.triu_indices(n, 1)
    graph = Graph.from_edges(n, np.stack([i, j], axis=1), r[i] * r[j] / n)
    problem = FusionProblem(SquaredDistance(points), graph, lam=1.5)
    for eps in (1e-3, 1e-6, 1e-9, 1e-11):
        result = fusionopt.solve(problem, AdmmSettings(eps_rel=eps))
        assert result.status == "optimal"
        assert not result.proven or result.gap <= 1e-13 * result.objective


@pytest.mark.parametrize("eps", [1e-9, 1e-12])
def test_second_stage_reaches_small_gaps(eps: float) -> None:
    """Where sweeps need thousands; the certificate is recomputed by code of its own."""
    stated = problems.moons(500, "half")
    result = fusionopt.solve(_stated(stated), AdmmSettings(eps_rel=eps))
    assert result.status == "optimal"
    primal, dual = evaluate.objective(stated, result.x), evaluate.dual_value(stated, result.edge_duals())
    assert primal - dual <= max(eps, 1e-13) * primal
    assert result.n_iter < 500


@pytest.mark.parametrize("seed", range(12))
def test_whole_components_do_not_hide_a_proof(seed: int) -> None:
    """Forces on a whole component cancel: what is left is rounding, and no reason to doubt its centre."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(90, 3)) + 50.0 * np.repeat(np.arange(3), 30)[:, None]
    points[60:75] += 3.0
    edges = [Graph.knn(points[k : k + 30], 6).edges + k for k in (0, 30, 60)]
    problem = FusionProblem(SquaredDistance(points), Graph.from_edges(90, np.concatenate(edges)), lam=0.6)
    assert fusionopt.solve(problem).proven


@pytest.mark.parametrize("level", ["few", "half"])
def test_contracted_clusters_keep_their_certificate(level: str) -> None:
    """Clusters proven on the way stand for their nodes: the duals of all pairs hold, cold and on a path."""
    stated = problems.gauss(100, level)
    problem = FusionProblem(SquaredDistance(stated.points), lam=stated.lam)
    instance = catalogue.squared(stated.points, stated.lam)
    grid = stated.lam * np.array([0.8, 0.9, 1.0, 1.1])
    for dtype in ("float64", "float32"):
        settings = AdmmSettings(dtype=dtype)
        cold = fusionopt.solve(problem, settings)
        path = fusionopt.solution_path(problem, grid, settings=settings)
        assert cold.n_clusters == path.results[2].n_clusters == stated.n_clusters
        assert cold.proven and path.results[2].proven
        oracles.assert_solved(instance, cold)
        oracles.assert_same_partition(path.results[2].labels, cold.labels)
        assert all(r.status == "optimal" for r in path.results)


def test_contracted_rows_are_equal_when_the_gap_proves_the_rest_at_once() -> None:
    """Every point twice: the pairs are contracted, and nothing is left to sweep for."""
    rng = np.random.default_rng(80)
    points = rng.permutation(np.repeat(rng.normal(size=(150, 5)), 2, axis=0))
    result = fusionopt.solve(FusionProblem(SquaredDistance(points), lam=2e-3))
    assert result.proven
    assert result.n_clusters == 150
