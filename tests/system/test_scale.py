"""Nothing knows the units, the origin or the order of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fusionopt
from fusionopt import AdmmSettings, FusionProblem, Graph, SquaredDistance
from tests import catalogue, oracles, strategies
from tests.catalogue import Instance

FIVE = [0.0, 1.0, 3.0, 7.0, 12.0]
DECADES = [10.0**k for k in range(-8, 9, 2)]
QUIET = settings(max_examples=300, deadline=None, phases=[__import__("hypothesis").Phase.generate])


def _planted(kind: str, seed: int, n: int = 14, d: int = 2, ratio: float = 1e4) -> Instance:
    rng = np.random.default_rng([1, seed])
    if kind == "complete":
        return catalogue.planted(
            rng, catalogue.all_pairs(n), np.ones(n * (n - 1) // 2), n, d, 3, complete=(1.0, None)
        )
    if kind == "regression":
        edges = catalogue.all_pairs(n)
        weights = np.ones(len(edges))
        return catalogue.planted_regression(rng, edges, weights, n, d, 3, complete=(1.0, None))
    edges = catalogue.sparse_pairs(rng, n, 0.3, connected=kind == "sparse")
    return catalogue.planted(rng, edges, catalogue.spread_weights(rng, len(edges), ratio), n, d, 3)


@pytest.mark.parametrize("c", [1e-8, 1e-4, 1.0, 1e4, 1e8])
def test_c1_case(c: float) -> None:
    instance = catalogue.squared(np.array(FIVE) * c, 0.6 * c)
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)
    oracles.assert_close(result.x[:, 0], np.array([2.3, 2.3, 3.0, 5.8, 9.6]) * c, rtol=1e-10)
    oracles.assert_close(result.objective, 28.81 * c * c, rtol=1e-12)
    assert result.labels.tolist() == [0, 0, 1, 2, 3]
    plain = fusionopt.solve(catalogue.squared(FIVE, 0.6).problem())
    assert abs(result.n_iter - plain.n_iter) <= max(10, plain.n_iter // 2)


@pytest.mark.parametrize("c", DECADES)
@pytest.mark.parametrize("kind", ["complete", "sparse", "disconnected", "regression"])
def test_c1_kin_decades(kind: str, c: float) -> None:
    instance = _planted(kind, 0).scaled(c)
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)
    oracles.assert_brackets(instance, result, instance.optimum)
    assert instance.x is not None
    oracles.assert_close(result.x, instance.x, rtol=1e-7)
    assert instance.labels is not None
    oracles.assert_same_partition(result.labels, instance.labels)


@pytest.mark.parametrize("power", [-27, -3, 1, 10, 26])
@pytest.mark.parametrize("kind", ["complete", "sparse", "regression"])
def test_powers_of_two_change_no_bit(kind: str, power: int) -> None:
    """Scaling by 2^k rounds nothing, so every bit of the answer and every count must follow."""
    c = 2.0**power
    plain = fusionopt.solve(_planted(kind, 1).problem())
    scaled = fusionopt.solve(_planted(kind, 1).scaled(c).problem())
    assert scaled.n_iter == plain.n_iter
    assert scaled.x.tobytes() == (c * plain.x).tobytes()
    assert scaled.objective == c * c * plain.objective
    assert scaled.gap == c * c * plain.gap


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("ratio", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("kind", ["complete", "sparse", "disconnected"])
def test_offsets(kind: str, ratio: float, scale: float) -> None:
    """Data far from the origin: up to a million times their spread."""
    instance = _planted(kind, 2)
    assert isinstance(instance.nodes, oracles.SquaredNodes)
    spread = float(np.ptp(instance.nodes.targets))
    shifted = instance.shifted(ratio * spread * np.array([1.0, -0.37])).scaled(scale)
    result = fusionopt.solve(shifted.problem())
    oracles.assert_solved(shifted, result)
    assert shifted.labels is not None
    oracles.assert_same_partition(result.labels, shifted.labels)
    assert shifted.x is not None
    oracles.assert_close(result.x, shifted.x, rtol=1e-7 + 1e-15 * ratio, scale=scale * spread)


def test_offset_of_a_disconnected_pair() -> None:
    """Two components a million spreads apart from each other: no common origin suits both."""
    points = np.array([[0.0], [1.0], [1e6], [1e6 + 1.0]])
    instance = catalogue.squared(
        points,
        0.25,
        edges=[(0, 1), (2, 3)],
        x=[0.25, 0.75, 1e6 + 0.25, 1e6 + 0.75],
        labels=[0, 1, 2, 3],
    )
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)
    assert instance.x is not None
    oracles.assert_close(result.x, instance.x, rtol=1e-9, scale=1.0)
    oracles.assert_close(result.objective, 0.375, rtol=1e-9)


@pytest.mark.parametrize("kind", ["complete", "sparse", "disconnected", "regression"])
@pytest.mark.parametrize("seed", range(4))
def test_row_order(kind: str, seed: int) -> None:
    instance = _planted(kind, 3 + seed)
    order = np.random.default_rng(seed).permutation(instance.n_nodes)
    other = instance.permuted(order)
    a, b = fusionopt.solve(instance.problem()), fusionopt.solve(other.problem())
    oracles.assert_solved(other, b)
    oracles.assert_close(b.x, a.x[order], rtol=1e-8)
    oracles.assert_same_partition(b.labels, a.labels[order])
    oracles.assert_close(b.objective, a.objective, rtol=1e-12)


@pytest.mark.parametrize("ratio", [1e4, 1e6])
@pytest.mark.parametrize("d", [1, 2, 20])
@pytest.mark.parametrize("seed", range(4))
def test_wild_weights(seed: int, d: int, ratio: float) -> None:
    instance = _planted("sparse", 20 + seed, n=20, d=d, ratio=ratio)
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)
    oracles.assert_brackets(instance, result, instance.optimum)
    assert instance.labels is not None
    oracles.assert_same_partition(result.labels, instance.labels)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("d", [1, 20, 50])
def test_more_features_than_rows(n: int, d: int) -> None:
    rng = np.random.default_rng([n, d])
    instance = catalogue.squared(rng.standard_normal((n, d)), 0.2)
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)


@pytest.mark.parametrize("c", [1e-6, 1e-3, 1e3, 1e6])
def test_least_squares_units_of_the_design(c: float) -> None:
    """Designs times c: x divided by c, lam times c. Ridge 0."""
    base = _planted("regression", 5)
    assert isinstance(base.nodes, oracles.RegressionNodes)
    designs = [z * c for z in base.nodes.designs]
    nodes = oracles.RegressionNodes(designs, base.nodes.responses, 0.0)
    assert base.x is not None
    instance = Instance(nodes, base.edges, base.weights, base.lam * c, base.complete, base.x / c, base.labels)
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)
    assert instance.x is not None
    oracles.assert_close(result.x, instance.x, rtol=1e-7)
    assert base.labels is not None
    oracles.assert_same_partition(result.labels, base.labels)


@QUIET
@given(strategies.instances())
def test_any_small_problem_is_certified(instance: Instance) -> None:
    result = fusionopt.solve(instance.problem())
    oracles.assert_solved(instance, result)


@QUIET
@given(strategies.instances(), st.sampled_from([1, 2, 5]))
def test_any_small_problem_stopped_early_is_certified(instance: Instance, stop: int) -> None:
    result = fusionopt.solve(instance.problem(), AdmmSettings(max_iter=stop))
    oracles.assert_certificate(instance, result)
    oracles.assert_partition(instance, result)


@QUIET
@given(strategies.instances(), st.sampled_from([1e-8, 1e-3, 1e5, 1e8]))
def test_any_small_problem_scales(instance: Instance, c: float) -> None:
    a, b = fusionopt.solve(instance.problem()), fusionopt.solve(instance.scaled(c).problem())
    oracles.assert_solved(instance.scaled(c), b)
    allowed = 1e-10 * max(c * c * abs(a.objective), abs(b.objective)) + 1e-12 * c * c
    assert abs(b.objective - c * c * a.objective) <= allowed


@QUIET
@given(strategies.instances(), st.data())
def test_any_small_problem_in_any_order(instance: Instance, data: st.DataObject) -> None:
    order = data.draw(strategies.orders(instance.n_nodes))
    other = instance.permuted(order)
    a, b = fusionopt.solve(instance.problem()), fusionopt.solve(other.problem())
    oracles.assert_solved(other, b)
    oracles.assert_close(b.x, a.x[order], rtol=1e-5, scale=1.0)


@pytest.mark.parametrize("seed", range(4))
def test_edges_without_length_tell_no_penalty_parameter(seed: int) -> None:
    """Repeated points with weights: their minimisers differ by rounding, which once set rho, and took 10,000 sweeps."""
    rng = np.random.default_rng(seed)
    points = 3.0 * rng.standard_normal((30, 3))[rng.integers(0, 30, 100)]
    loss = SquaredDistance(points, sample_weight=rng.uniform(0.5, 2.0, 100))
    result = fusionopt.solve(FusionProblem(loss, Graph.knn(points, n_neighbors=3), lam=1.0))
    assert result.status == "optimal"
    assert result.n_iter <= 100


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-12])
def test_a_large_component_of_small_data(scale: float) -> None:
    """Nor do lengths in other units of the larger part of the graph."""
    rng = np.random.default_rng(0)
    large, small = rng.normal(size=(60, 3)), rng.normal(size=(140, 3))
    edges = np.concatenate([Graph.knn(large, 5).edges, Graph.knn(small, 5).edges + 60])
    problem = FusionProblem(
        SquaredDistance(np.concatenate([large, scale * small])), Graph.from_edges(200, edges), lam=0.3
    )
    result = fusionopt.solve(problem)
    assert result.status == "optimal"
    assert result.n_iter <= 100
