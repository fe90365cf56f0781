"""Recovery intervals against closed forms and against recorded ones."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import FusionProblem, Graph, LeastSquares, SquaredDistance, SquaredHinge
from fusionopt.datasets import make_ellipses
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.recovery import certify, flow_curve, min_flow, path_proofs, recovery_interval

# Merges of the points 0, 1, 3, 7, 12 on the complete graph, by hand.
LINE = FusionProblem(SquaredDistance([0.0, 1.0, 3.0, 7.0, 12.0]))


@pytest.mark.parametrize(
    ("labels", "low", "high"),
    [
        ([0, 1, 2, 3, 4], 0.0, 0.5),
        ([0, 0, 1, 2, 3], 0.5, 5 / 6),
        ([0, 0, 0, 1, 2], 5 / 6, 17 / 12),
        ([0, 0, 0, 0, 1], 17 / 12, 1.85),
        ([0, 0, 0, 0, 0], 1.85, np.inf),
    ],
)
def test_every_partition_of_a_path_on_the_line(labels, low, high):
    # The default scan for the ends of the path, a coarse one between.
    lams = None if low == 0 or high == np.inf else np.geomspace(0.4, 2.5, 8)
    ((found_low, found_high),) = recovery_interval(LINE, labels, lams).exact
    assert found_low == pytest.approx(low, rel=2e-4)
    assert found_high == pytest.approx(high, rel=2e-4)
    assert found_low >= low * (1 - 1e-9) and found_high <= high * (1 + 1e-9)


def test_a_partition_that_never_occurs():
    found = recovery_interval(LINE, [0, 1, 0, 1, 1], np.geomspace(0.1, 3.0, 8))
    assert found.exact == [] and found.guaranteed is None and not found.certified.any()


def test_a_path_that_splits_has_two_intervals():
    # Four nodes apart below 2/3 (the scan starts at 0.3) and again between 2 and 22/3: the splitting path, by hand.
    graph = Graph.from_edges(4, [[0, 1], [0, 3], [1, 2]], [0.5, 1.0, 1.0])
    problem = FusionProblem(SquaredDistance([1.0, -1.0, 10.0, -10.0]), graph)
    lams = np.geomspace(0.3, 11.0, 12)
    found = recovery_interval(problem, [0, 1, 2, 3], lams)
    assert np.array(found.exact) == pytest.approx(np.array([[0.3, 2 / 3], [2.0, 22 / 3]]), rel=2e-4)
    assert found.guaranteed is None and np.isnan(found.theorem1_from)
    middle = recovery_interval(problem, [0, 0, 1, 2], lams)
    assert np.array(middle.exact) == pytest.approx(np.array([[2 / 3, 2.0]]), rel=2e-4)


def test_agglomeration_fails_for_unequal_hessians():
    # Users .5 x^2, 5 (x - 1)^2 and three times .5 (x - 100)^2: 1 and 2 are one cluster on [1/3.8, .625] only.
    root = np.sqrt(10.0)
    loss = LeastSquares([[[1.0]], [[root]]] + [[[1.0]]] * 3, [[0.0], [root]] + [[100.0]] * 3)
    problem = FusionProblem(loss)
    (run,) = recovery_interval(problem, [0, 0, 1, 1, 1], np.geomspace(0.1, 2.0, 8)).exact
    assert run == pytest.approx((1 / 3.8, 0.625), rel=2e-4)
    # Split afterwards: five users in three clusters, and in the other order.
    told = certify(problem.with_lam(0.63), [0, 1, 2, 2, 2])
    assert told.holds
    assert told.centers[:2, 0] == pytest.approx([1.2600, 1.2520], abs=1e-6)


def test_agglomeration_holds_for_equal_hessians():
    rng = np.random.default_rng(0)
    for _ in range(2):
        points = np.concatenate([rng.normal(0, 1, (3, 2)), rng.normal(8, 1, (4, 2))])
        found = recovery_interval(
            FusionProblem(SquaredDistance(points)), [0] * 3 + [1] * 4, np.geomspace(0.2, 3.0, 20)
        )
        held = np.flatnonzero(found.certified)
        # One interval: what is fused stays fused until the clusters meet.
        assert len(found.exact) == 1 and found.certified[held[0] : held[-1] + 1].all()


def test_the_guaranteed_interval_lies_inside_the_exact_one():
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal(0, 0.1, (5, 2)), rng.normal(9, 0.1, (6, 2))])
    lams = np.geomspace(0.005, 2.0, 10)
    found = recovery_interval(FusionProblem(SquaredDistance(points)), [0] * 5 + [1] * 6, lams)
    ((low, high),) = found.exact
    assert found.guaranteed is not None
    assert low <= found.guaranteed[0] < found.guaranteed[1] <= high
    assert found.guaranteed == pytest.approx((found.theorem1_from, found.theorem2_to), rel=1e-3)


@pytest.mark.parametrize(
    ("geometry", "interval", "last"),
    [
        ({}, (0.0762, 0.0900), 0.0575),
        ({"delta": 2.0, "axes": (1.5, 2.4), "random_state": 4}, (0.0433, 0.1136), 0.0713),
    ],
)
def test_recorded_geometries_of_the_ellipses(geometry, interval, last):
    clients, labels = make_ellipses(**geometry)
    loss = SquaredHinge([c.x_train for c in clients], [c.y_train for c in clients], ridge=1e-3)
    lams = np.array([0.7, 0.95, 1.02]) * interval[0], np.array([0.98, 1.05]) * interval[1]
    found = recovery_interval(FusionProblem(loss), labels, np.concatenate(lams))
    ((low, high),) = found.exact
    assert low == pytest.approx(interval[0], abs=1e-4) and high == pytest.approx(interval[1], abs=1e-4)
    assert found.guaranteed is None  # no lam meets both printed conditions
    assert found.theorem1_from == np.inf  # none of these meets (6)
    assert found.theorem2_to == pytest.approx(last, rel=5e-3)


def test_the_flow_curve_brackets_the_least_flow_and_crosses_the_diagonal():
    rng = np.random.default_rng(2)
    designs = [rng.standard_normal((6, 2)) for _ in range(7)]
    centers = np.repeat([[0.0, 0.0], [6.0, 6.0]], [3, 4], axis=0)
    targets = [z @ c + 0.3 * rng.standard_normal(6) for z, c in zip(designs, centers, strict=True)]
    problem = FusionProblem(LeastSquares(designs, targets))
    labels = [0] * 3 + [1] * 4
    lams = np.geomspace(0.02, 0.4, 5)
    curve = flow_curve(problem, labels, lams)
    for lam, low, high in zip(*curve, strict=True):
        least = min_flow(problem.with_lam(float(lam)), labels).value
        assert low * (1 - 1e-9) <= least <= high * (1 + 1e-6)
        assert high <= low * 1.01
    found = recovery_interval(problem, labels, lams)
    for lam, low, high in zip(*curve, strict=True):
        if not low < lam < high:
            assert bool(found.certified[np.isclose(found.lams, lam)][0]) == (high <= lam)


def test_the_flow_curve_of_clusters_that_no_flow_can_hold():
    graph = Graph.from_edges(4, [[0, 1], [1, 2], [2, 3]])
    problem = FusionProblem(SquaredDistance([0.0, 5.0, 0.1, 9.0]), graph)
    assert np.isinf(flow_curve(problem, [0, 1, 0, 2], [0.1]).upper).all()
    assert recovery_interval(problem, [0, 1, 0, 2], [0.1, 1.0]).exact == []


def test_units_do_not_matter():
    scaled = FusionProblem(SquaredDistance(1e-8 * np.array([0.0, 1.0, 3.0, 7.0, 12.0])))
    ((low, high),) = recovery_interval(scaled, [0, 0, 0, 1, 2], 1e-8 * np.geomspace(0.4, 2.5, 8)).exact
    assert (low, high) == pytest.approx((5e-8 / 6, 17e-8 / 12), rel=2e-4)


def test_path_proofs_say_which_lams_are_proved():
    import fusionopt

    path = fusionopt.solution_path(LINE, lams=[2.0, 1.0, 0.2])
    proofs = path_proofs(path)
    assert [(p.lam, p.proved, p.n_clusters) for p in proofs] == [
        (2.0, True, 1),
        (1.0, True, 3),
        (0.2, True, 5),
    ]
    assert all(p.margin > 0 for p in proofs)

    class Wrong:
        problem, labels, has_duals = LINE.with_lam(1.0), np.array([0, 0, 0, 0, 1]), False

    class Path:
        results = [Wrong()]  # noqa: RUF012

    (proof,) = path_proofs(Path())
    assert not proof.proved and proof.margin < 0


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: recovery_interval(LINE, [0, 1]), InvalidArgumentError, "labels"),
        (
            lambda: recovery_interval(LINE, [0] * 5, [0.0, 1.0]),
            InvalidArgumentError,
            "lams has 0; give positive",
        ),
        (lambda: recovery_interval("x", [0]), InvalidTypeError, "problem is a str"),
        (lambda: flow_curve(LINE, [0] * 5, [-1.0]), InvalidArgumentError, "lams has -1; give positive"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("lams", [[], 2.0, None, "x", [[1.0, 2.0]], [0.0, 1.0]])
def test_a_curve_wants_a_list_of_lams(lams):
    with pytest.raises((InvalidArgumentError, InvalidTypeError), match="lams"):
        flow_curve(LINE, [0, 0, 1, 1, 1][: LINE.n_nodes], lams)
    if lams is not None:
        with pytest.raises((InvalidArgumentError, InvalidTypeError), match="lams"):
            recovery_interval(LINE, [0, 0, 1, 1, 1][: LINE.n_nodes], lams)


def test_a_path_is_wanted():
    with pytest.raises(InvalidTypeError, match="give a PathResult"):
        path_proofs(3)


@pytest.mark.parametrize(
    "graph", [Graph.complete(4), Graph.chain(4), Graph.complete(4, node_weights=[1, 2, 3, 0])]
)
@pytest.mark.parametrize("lam", [1e-320, 1e-300, 1e300, 1e308])
def test_lams_beyond_all_data_warn_of_nothing(graph, lam):
    problem = FusionProblem(SquaredDistance([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0], [6.0, 5.0]]), graph, lam=lam)
    told = certify(problem, [0, 0, 1, 1], duals=np.zeros((graph.n_edges, 2)))
    assert not told.holds and told.refuted == (lam < 1)
    whole = certify(problem, graph.component_labels, duals=np.zeros((graph.n_edges, 2)))
    assert whole.holds or lam < 1
    flow_curve(problem, [0, 0, 1, 1], [lam])
