"""FusionProblem: the objective against plain loops, blocks, units, refusals."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest
from hypothesis import given

from fusionopt import FusionProblem, Graph, L2Norm, LeastSquares, SquaredDistance
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from tests.strategies import instances


def literal_penalty(x, graph, lam):
    return lam * sum(
        w * np.linalg.norm(x[i] - x[j]) for (i, j), w in zip(graph.edges, graph.weights, strict=True)
    )


@given(instances())
def test_penalty_value_is_the_sum_over_edges(instance):
    n = instance.n_nodes
    graph = (
        Graph.from_edges(n, instance.edges, instance.weights)
        if instance.complete is None
        else Graph.complete(n, *instance.complete)
    )
    points = instance.nodes.targets
    problem = FusionProblem(SquaredDistance(points), graph, lam=instance.lam)
    x = points[::-1] * 0.7
    expected = literal_penalty(x, graph, instance.lam)
    assert problem.penalty_value(x) == pytest.approx(expected, rel=1e-13)
    assert problem.objective(x) == problem.loss_value(x) + problem.penalty_value(x)


@pytest.mark.parametrize("r", [None, [0.5, 1, 2, 0, 1, 3, 1, 1, 1, 2, 1]])
@pytest.mark.parametrize("block", [1, 7, 40, 10**6])
def test_blocks_do_not_change_the_penalty(monkeypatch, block, r):
    monkeypatch.setattr("fusionopt.problem._BLOCK_NUMBERS", block)
    x = np.random.default_rng(0).normal(size=(11, 2))
    complete = Graph.complete(11, 0.7, r)
    listed = Graph.from_edges(11, complete.edges, complete.weights)
    expected = literal_penalty(x, complete, 0.3)
    for graph in (complete, listed):
        value = FusionProblem(SquaredDistance(x), graph, lam=0.3).penalty_value(x)
        assert value == pytest.approx(expected, rel=1e-13)


def test_a_complete_graph_is_summed_in_little_memory():
    x = np.random.default_rng(0).normal(size=(3000, 4))
    problem = FusionProblem(SquaredDistance(x), lam=1.0)
    tracemalloc.start()
    problem.penalty_value(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All pairs at once would take 288 MB for the differences alone.
    assert peak < 32e6


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e150])
def test_units(scale):
    points = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    problem = FusionProblem(SquaredDistance(points * scale), lam=scale)
    assert problem.penalty_value(points * scale) / scale / scale == pytest.approx(20.0, rel=1e-14)


def test_known_objectives():
    problem = FusionProblem(SquaredDistance([0, 1, 3, 7, 12]), lam=0.6)
    assert problem.objective([2.3, 2.3, 3, 5.8, 9.6]) == pytest.approx(28.81, rel=1e-14)
    assert problem.with_lam(1.6).objective([4.35, 4.35, 4.35, 4.35, 5.6]) == pytest.approx(47.975, rel=1e-14)
    split = Graph.from_edges(4, [(0, 1), (0, 3), (1, 2)], [0.5, 1, 1])
    problem = FusionProblem(SquaredDistance([1, -1, 10, -10]), split, lam=7.4)
    assert problem.objective([-2.65, 2.65, 2.65, -2.65]) == pytest.approx(86.955, rel=1e-14)
    assert FusionProblem(SquaredDistance([[3.0, 4.0]]), lam=2.0).objective([[3.0, 4.0]]) == 0.0


def test_defaults_and_sharing():
    loss = LeastSquares([[[1.0]], [[2.0]]], [1.0, 2.0])
    problem = FusionProblem(loss)
    assert problem.graph.is_complete
    assert problem.graph.weight == 1.0
    assert isinstance(problem.penalty, L2Norm)
    assert problem.lam == 0.0
    assert (problem.n_nodes, problem.n_features) == (2, 1)
    other = problem.with_lam(np.float32(2))
    assert type(other.lam) is float
    assert other.lam == 2.0
    assert problem.lam == 0.0
    assert other.loss is loss
    assert other.graph is problem.graph
    assert other.penalty is problem.penalty


def test_frozen_and_short():
    problem = FusionProblem(SquaredDistance(np.zeros((1000, 3))), lam=0.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.lam = 1.0
    assert repr(problem) == (
        "FusionProblem(SquaredDistance(n_nodes=1000, n_features=3), "
        "Graph(n_nodes=1000, n_edges=499500, n_components=1, complete), L2Norm(), lam=0.5)"
    )


LOSS = SquaredDistance([[0.0, 1.0], [2.0, 3.0]])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: FusionProblem([[0.0]]),
            InvalidTypeError,
            r"loss is a list; give a NodeLoss.*SquaredDistance",
        ),
        (
            lambda: FusionProblem(LOSS, "knn"),
            InvalidTypeError,
            r"graph is a str; give a Graph.*None for all pairs",
        ),
        (lambda: FusionProblem(LOSS, None, "l2"), InvalidTypeError, "penalty is a str; give a Penalty"),
        (
            lambda: FusionProblem(LOSS, Graph.complete(3)),
            InvalidArgumentError,
            "graph has 3 nodes and loss has 2",
        ),
        (
            lambda: FusionProblem(LOSS, lam=-1.0),
            InvalidArgumentError,
            r"lam=-1\.0 is negative; give a number >= 0",
        ),
        (lambda: FusionProblem(LOSS, lam=np.nan), InvalidArgumentError, "lam=nan is not finite"),
        (lambda: FusionProblem(LOSS, lam="1"), InvalidTypeError, "lam='1' is not a number"),
        (lambda: FusionProblem(LOSS).with_lam(np.inf), InvalidArgumentError, "lam=inf is not finite"),
        (lambda: FusionProblem(LOSS).objective([0.0, 1.0]), InvalidArgumentError, "x has 1 dimensions"),
        (
            lambda: FusionProblem(LOSS).penalty_value([[0.0, 1.0]]),
            InvalidArgumentError,
            r"x has shape \(1, 2\)",
        ),
        (lambda: FusionProblem(LOSS).loss_value([[0.0, 1.0]]), InvalidArgumentError, r"x has shape \(1, 2\)"),
        (
            lambda: FusionProblem(LOSS).objective([[0.0, np.nan]] * 2),
            InvalidArgumentError,
            "x holds NaN at row 0",
        ),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
