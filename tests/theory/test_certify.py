"""Certificates of partitions against cone programmes, full solutions, and sampled perturbations."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fusionopt as fo
from fusionopt.errors import InvalidArgumentError
from fusionopt.recovery import certify, lambda_max_socp
from fusionopt.recovery import certify as certify_function
from fusionopt.recovery._model import build_model
from fusionopt.recovery.certify import _NodeErrors
from fusionopt.recovery.flow import node_demand
from fusionopt.recovery.restricted import ScaledSolution, solve_scaled
from tests import catalogue, oracles
from tests.catalogue import Instance
from tests.theory import plain
from tests.theory.cases import KINDS, connected, random_instance, random_partition

N_PAIRS = 48
"""Random (partition, lam) pairs compared with cone programmes; 300 takes about a minute."""


def labels_of(instance: Instance) -> tuple[np.ndarray, np.ndarray]:
    """Partition and duals by the slow solver."""
    p = plain.quadratic(instance)
    x, v = plain.solve_slowly(p)
    return plain.close_labels(p, x, 1e-6), v


def assert_agrees_with_cone_programs(instance: Instance, labels: np.ndarray) -> str:
    """Without duals: the same verdict and the same margin as programmes written out elsewhere."""
    problem, p = instance.problem(), plain.quadratic(instance)
    verdict = certify(problem, labels)
    if not connected(instance, labels):
        assert not verdict.holds and verdict.margin == -np.inf
        return "disconnected"
    centres, value = plain.restricted_centres(p, labels)
    ends = labels[instance.edges]
    crossing = ends[ends[:, 0] != ends[:, 1]]
    gaps = np.linalg.norm(centres[crossing[:, 0]] - centres[crossing[:, 1]], axis=1)
    spread = np.abs(centres - centres.mean(axis=0)).max() + 1e-6 * np.abs(centres).max()
    if len(gaps) and gaps.min() <= 1e-5 * spread:
        # Centres that meet: the partition is too fine (or nearly so, beyond the programme's accuracy).
        assert not verdict.holds or gaps.min() > 1e-9 * spread
        return "too fine"
    assert np.isfinite(value)
    # Flows depend on directions between centres: take both at the same, sharper ones.
    least = plain.least_flow(p, labels, verdict.centers)
    margin = 1.0 - least / instance.lam
    if len(np.unique(labels)) == len(labels):
        assert verdict.holds and verdict.margin > 0.99
        return "holds"
    assert verdict.margin == pytest.approx(margin, abs=2e-7 * max(1.0, abs(margin)))
    if abs(margin) > 1e-6:
        assert verdict.holds == (margin > 0)
        assert verdict.refuted == (margin < 0)
    return "holds" if verdict.holds else "refuted"


def test_agrees_with_cone_programs_on_random_pairs() -> None:
    rng = np.random.default_rng(0)
    seen: list[str] = []
    for trial in range(N_PAIRS):
        instance = random_instance(
            rng, KINDS[trial % len(KINDS)], int(rng.integers(4, 15)), int(rng.integers(1, 4))
        )
        labels = random_partition(rng, instance, labels_of(instance)[0])
        if rng.random() < 0.4:
            instance = instance.with_lam(instance.lam * float(10.0 ** rng.uniform(-0.3, 0.3)))
        seen.append(assert_agrees_with_cone_programs(instance, labels))
    assert min(seen.count(kind) for kind in ("holds", "refuted", "too fine")) >= N_PAIRS // 24


@pytest.mark.parametrize("kind", KINDS)
def test_right_partitions_hold_and_wrong_ones_do_not(kind: str) -> None:
    rng = np.random.default_rng(200 + KINDS.index(kind))
    for _ in range(6):
        instance = random_instance(rng, kind, int(rng.integers(6, 25)), int(rng.integers(1, 4)))
        labels, duals = labels_of(instance)
        problem = instance.problem()
        verdict = certify(problem, labels, duals=duals)
        assert verdict.holds and not verdict.refuted and verdict.undecided == ()
        assert verdict.margin > 0 and verdict.fused.all()
        assert verdict.margin <= certify(problem, labels).margin + 1e-7
        n_clusters = len(verdict.fused)
        np.testing.assert_array_equal(verdict.apart, ~np.eye(n_clusters, dtype=bool))
        ends = labels[instance.edges]
        crossing = instance.edges[ends[:, 0] != ends[:, 1]]
        if len(crossing):
            i, j = crossing[rng.integers(len(crossing))]
            merged = np.where(labels == labels[j], labels[i], labels)
            assert not certify(problem, merged, duals=duals).holds
            assert not certify(problem, merged).holds
        inside = instance.edges[ends[:, 0] == ends[:, 1]]
        if len(inside):
            split = labels.copy()
            split[inside[rng.integers(len(inside)), 0]] = len(labels)
            wrong = certify(problem, split, duals=duals)
            assert not wrong.holds and wrong.undecided


@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1e4, 1e8])
def test_scale_changes_nothing(scale: float) -> None:
    rng = np.random.default_rng(1)
    for kind in ("complete", "knn"):
        for make, extra in ((catalogue.random_squared, ()), (catalogue.random_regression, (0.1,))):
            instance = make(rng, kind, 15, 2, *extra)  # type: ignore[operator]
            labels, duals = labels_of(instance)
            base = certify(instance.problem(), labels, duals=duals)
            other = certify(instance.scaled(scale).problem(), labels, duals=duals * scale)
            assert base.holds and other.holds
            # Accelerated rounds may stop one earlier or later.
            assert other.margin == pytest.approx(base.margin, rel=0.5)
            graph = fo.Graph.from_edges(15, instance.edges, instance.weights / scale)
            loss = instance.problem().loss
            moved = certify(fo.FusionProblem(loss, graph, lam=instance.lam * scale), labels, duals=duals)
            assert moved.holds


def test_offset_changes_nothing() -> None:
    instance = catalogue.random_squared(np.random.default_rng(2), "complete", 15, 2)
    labels, duals = labels_of(instance)
    for offset in (1e3, 1e6):
        verdict = certify(instance.shifted([offset, -offset]).problem(), labels, duals=duals)
        assert verdict.holds and verdict.margin > 0


def test_equal_hessians_leave_the_flow_alone() -> None:
    """Then no Lipschitz term enters: the margin is 1 - least flow / lam to rounding."""
    a = np.random.default_rng(3).standard_normal((8, 2))
    problem = fo.FusionProblem(fo.SquaredDistance(a))
    least = lambda_max_socp(problem)
    for factor in (1.5, 1.01, 1.0001, 0.9999, 0.99):
        verdict = certify(problem.with_lam(factor * least), np.zeros(8))
        assert verdict.margin == pytest.approx(1 - 1 / factor, abs=1e-8)
        assert verdict.holds == (factor > 1) and verdict.refuted == (factor < 1)


def test_a_tie_counts_as_fused() -> None:
    problem = fo.FusionProblem(fo.SquaredDistance([0.0, 2.0]), lam=1.0)
    verdict = certify(problem, [0, 0], duals=[[-1.0]])
    assert verdict.holds and abs(verdict.margin) <= 1e-14
    assert not certify(problem, [0, 1], duals=[[-1.0]]).holds
    above = certify(problem.with_lam(1.0 + 1e-12), [0, 0], duals=[[-1.0]])
    assert above.holds and above.margin > 0
    below = certify(problem.with_lam(1.0 - 1e-12), [0, 0], duals=[[-1.0]])
    assert not below.holds
    assert certify(problem.with_lam(1.0 - 1e-6), [0, 1], duals=[[-1.0]]).holds
    # So close to the merge the centres cannot be told apart: undecided, never wrong.
    near = certify(problem.with_lam(1.0 - 1e-12), [0, 1], duals=[[-1.0]])
    assert near.undecided == ((0, 1),) and not near.refuted


def test_a_path_that_splits() -> None:
    """Clusters 4 | 3 | 4 | 2 | 1 as lam grows; each is certified where it is right and nowhere else."""
    right = {0.5: [0, 1, 2, 3], 1.5: [0, 0, 1, 2], 3.0: [0, 1, 2, 3], 12.0: [0, 1, 1, 0], 19.0: [0, 0, 0, 0]}
    for lam, labels in right.items():
        problem = catalogue.splitting(lam).problem()
        for other in map(list, {tuple(value) for value in right.values()}):
            assert certify(problem, other).holds == (other == labels)


def test_without_penalty_only_equal_functions_hold() -> None:
    problem = fo.FusionProblem(fo.SquaredDistance([1.0, 1.0, 3.0]))
    assert certify(problem, [0, 0, 1]).holds
    split = certify(problem, [0, 1, 2])
    assert not split.holds and split.undecided == ((0, 1),)
    merged = certify(problem, [0, 0, 0])
    assert not merged.holds and merged.refuted and merged.undecided == ()
    chain = fo.FusionProblem(fo.SquaredDistance([1.0, 1.0, 1.0]), fo.Graph.from_edges(3, [[0, 1]]))
    assert certify(chain, [0, 0, 1]).holds
    assert not certify(chain, [0, 0, 0]).holds


def test_clusters_without_common_edges_need_not_be_apart() -> None:
    graph = fo.Graph.from_edges(4, [[0, 1], [2, 3]])
    problem = fo.FusionProblem(fo.SquaredDistance([0.0, 2.0, 0.0, 2.0]), graph, lam=0.5)
    verdict = certify(problem, [0, 1, 2, 3], duals=[[-0.5], [-0.5]])
    assert verdict.holds and verdict.apart[0, 2]
    together = certify(problem.with_lam(1.5), [0, 0, 1, 1], duals=[[-1.0], [-1.0]])
    assert together.holds


def test_disconnected_clusters_cannot_be_certified() -> None:
    chain = fo.Graph.from_edges(3, [[0, 1], [1, 2]])
    verdict = certify(fo.FusionProblem(fo.SquaredDistance([0.0, 9.0, 0.0]), chain, lam=0.1), [0, 1, 0])
    assert not verdict.holds and verdict.margin == -np.inf and (0,) in verdict.undecided
    lonely = fo.Graph.complete(3, node_weights=[1.0, 1.0, 0.0])
    problem = fo.FusionProblem(fo.SquaredDistance([0.0, 0.1, 0.05]), lonely, lam=1.0)
    assert not certify(problem, [0, 0, 0]).holds
    assert certify(problem, [0, 0, 1]).holds


def test_weightless_nodes_and_singular_hessians() -> None:
    end = catalogue.weightless_end()
    assert certify(end.problem(), [0, 1, 1], duals=[[-0.5], [0.0]]).holds
    alone = certify(end.problem(), [0, 1, 2])
    assert not alone.holds and not alone.refuted and alone.undecided
    lines = catalogue.exact_lines(0.01)
    assert certify(lines.problem(), np.zeros(4)).holds
    # A singular node whose minimiser nothing pins down is undecided, not wrong.
    loss = fo.LeastSquares([[[1.0, 0.0]], [[1.0, 0.0]], [[1.0, 0.0]]], [[0.0], [5.0], [9.0]])
    flat = certify(fo.FusionProblem(loss, lam=0.1), [0, 1, 2])
    assert not flat.holds and not flat.refuted and np.isinf(flat.radii).all()


def test_equal_points() -> None:
    for lam in (0.0, 1e-300, 1.0, 1e5):
        assert certify(fo.FusionProblem(fo.SquaredDistance(np.ones((5, 2))), lam=lam), np.zeros(5)).holds
        assert certify(fo.FusionProblem(fo.SquaredDistance([[3.0, 4.0]]), lam=lam), [0]).holds
    # Rows 0 and 1 are equal; row 2 joins them at 2 / sqrt(3).
    for lam in (0.0, 0.2, 1.1547005, 1.1547006, 2.0):
        problem = fo.FusionProblem(fo.SquaredDistance([[0.0] * 3, [0.0] * 3, [2.0] * 3]), lam=lam)
        held = [certify(problem, labels).holds for labels in ([0, 0, 1], [0, 0, 0], [0, 1, 2], [0, 1, 1])]
        assert held == [lam < 2 / np.sqrt(3), lam > 2 / np.sqrt(3), False, False]


@pytest.mark.parametrize("scale", [1e-150, 1e100])
def test_extreme_units(scale: float) -> None:
    instance = catalogue.random_squared(np.random.default_rng(9), "complete", 12, 2)
    instance = instance.with_lam(0.4 * instance.lam)
    labels, duals = labels_of(instance)
    assert certify(instance.problem(), labels, duals=duals).holds and 1 < len(set(labels)) < 12
    assert certify(instance.scaled(scale).problem(), labels, duals=duals * scale).holds
    graph = fo.Graph.complete(12, weight=instance.weights[0] * scale)
    problem = fo.FusionProblem(instance.problem().loss, graph, lam=instance.lam / scale)
    assert certify(problem, labels, duals=duals).holds


def test_any_labels_and_a_start() -> None:
    instance = catalogue.random_squared(np.random.default_rng(4), "knn", 20, 2)
    labels, duals = labels_of(instance)
    problem = instance.problem()
    words = np.array([f"group {k}" for k in labels])
    base = certify(problem, labels, duals=duals)
    for verdict in (
        certify(problem, words, duals=duals),
        certify(problem, labels, duals=duals, centers=base.centers),
        certify(problem, labels, duals=duals, centers=np.zeros_like(base.centers)),
    ):
        assert verdict.holds
        np.testing.assert_array_equal(verdict.labels, labels)
        np.testing.assert_allclose(verdict.centers, base.centers, atol=1e-12)


def test_rough_duals_are_undecided_at_worst() -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        instance = random_instance(rng, "complete", 10, 2)
        labels, duals = labels_of(instance)
        noise = duals + rng.standard_normal(duals.shape) * instance.lam
        assert not certify(instance.problem(), labels, duals=noise).refuted
        assert certify(instance.problem(), labels, duals=0 * duals).holds


def test_duals_need_no_cone_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    problem = fo.FusionProblem(fo.SquaredDistance([0.0, 1.0, 10.0]), lam=1.0)
    assert certify(problem, [0, 0, 1], duals=np.zeros((3, 1))).holds


def test_arguments_are_checked() -> None:
    problem = fo.FusionProblem(fo.SquaredDistance([0.0, 1.0, 10.0]), lam=1.0)
    with pytest.raises(InvalidArgumentError, match="labels has 2 entries"):
        certify(problem, [0, 0])
    with pytest.raises(InvalidArgumentError, match="duals"):
        certify(problem, [0, 0, 1], duals=np.zeros((2, 1)))
    with pytest.raises(InvalidArgumentError, match="centers"):
        certify(problem, [0, 0, 1], centers=np.zeros((3, 1)))
    assert certify_function is certify


# ---- the derivation


def test_unit_vectors_turn_slowly() -> None:
    """|| a/||a|| - b/||b|| || <= 2 ||a - b|| / ||a||."""
    rng = np.random.default_rng(6)
    a, b = rng.standard_normal((2, 1000, 3))
    b = a + b * 10.0 ** rng.uniform(-3, 1, 1000)[:, None]
    unit = a / np.linalg.norm(a, axis=1)[:, None] - b / np.linalg.norm(b, axis=1)[:, None]
    assert (
        np.linalg.norm(unit, axis=1) <= 2 * np.linalg.norm(a - b, axis=1) / np.linalg.norm(a, axis=1)
    ).all()


@pytest.mark.parametrize("kind", ["complete", "node_weights", "knn", "sparse", "tree"])
def test_drift_covers_every_centre_within_the_radii(kind: str) -> None:
    """Move the centres by at most R_k: the demand changes by no more than the bound says, node by node."""
    rng = np.random.default_rng(7)
    for _ in range(4):
        instance = random_instance(rng, kind, 12, 2)
        labels = np.arange(12) // 3
        model = build_model(instance.problem(), labels)
        solution = solve_scaled(model)
        y = rng.standard_normal((4, 2)) + 3.0 * np.arange(4)[:, None]
        for size in (1e-6, 1e-2):
            radii = size * rng.random(4)
            moved = ScaledSolution(
                y, solution.residuals, solution.residual_errors, solution.mu, 0.0, radii, 0 * radii, True, 0
            )
            bound = _NodeErrors(model, moved)
            base = node_demand(model, y)
            for _ in range(40):
                step = rng.standard_normal((4, 2))
                step *= (radii * rng.random(4) / np.linalg.norm(step, axis=1))[:, None]
                change = np.linalg.norm(node_demand(model, y + step) - base, axis=1)
                assert (change <= bound.drift + 2 * bound.rounding).all()


@pytest.mark.parametrize("kind", ["complete", "node_weights", "knn", "cycle"])
def test_demand_bound_covers_rounding(kind: str) -> None:
    """Against extended precision at exactly the computed point, data with an offset included."""
    rng = np.random.default_rng(8)
    for trial in range(4):
        instance = random_instance(rng, kind, 20, 2)
        if trial % 2 and isinstance(instance.nodes, oracles.SquaredNodes):
            instance = instance.shifted([1e4, -7.0])
        instance = instance.with_lam(1e-3 * instance.lam)
        labels = np.arange(20) // 4
        problem = instance.problem()
        model = build_model(problem, labels)
        solution = solve_scaled(model)
        x = model.shift.astype(np.longdouble) + model.step_unit * solution.y.astype(np.longdouble)
        s = instance.nodes.gradients(x[labels])
        w = instance.weights.astype(np.longdouble) * instance.lam
        diff = x[labels[instance.edges[:, 0]]] - x[labels[instance.edges[:, 1]]]
        length = np.sqrt(np.square(diff).sum(axis=1))
        pull = np.where(length > 0, w / np.where(length > 0, length, 1), 0)[:, None] * diff
        if instance.complete is None:
            np.add.at(s, instance.edges[:, 0], pull)
            np.subtract.at(s, instance.edges[:, 1], pull)
        r = np.ones(20) if problem.graph.node_weights is None else problem.graph.node_weights
        share = r / np.bincount(labels, weights=r)[labels]
        sums = np.array([s[labels == k].sum(axis=0) for k in range(5)])
        true = np.asarray((share[:, None] * sums[labels] - s) / model.gradient_unit, dtype=np.longdouble)
        error = np.sqrt(np.square(node_demand(model, solution.y) - true).sum(axis=1))
        bound = _NodeErrors(model, solution).rounding
        assert (error <= bound).all()
        assert bound.max() <= 1e-9


@pytest.mark.parametrize("scale", [1e30, 2.0**300])
def test_extreme_units_of_huber_targets(scale: float) -> None:
    rng = np.random.default_rng(2)
    designs = [rng.standard_normal((6, 3)) for _ in range(8)]
    targets = [z @ [1.0, 2.0, 3.0] + 0.1 * rng.standard_normal(6) for z in designs]

    def told(unit: float) -> fo.recovery.Certification:
        loss = fo.HuberRegression(designs, [unit * t for t in targets], delta=unit, ridge=0.3)
        return certify(fo.FusionProblem(loss, lam=0.3 * unit), np.zeros(8, dtype=int))

    assert told(1.0).holds and told(scale).holds
    assert abs(told(scale).margin - told(1.0).margin) <= 1e-6
