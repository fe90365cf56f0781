"""The recovery theorems on random problems, in the canonical scale and in the scales where they fail."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import (
    FusionProblem,
    Graph,
    Huber,
    HuberRegression,
    LeastSquares,
    Logistic,
    SquaredDistance,
    SquaredHinge,
    reference,
    scaling,
)
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.recovery import (
    conservative_bounds,
    theorem1_bound,
    theorem2_bound,
    theorem2_bound_sharp,
    theorem3_interval,
    theorem4_bounds,
)
from fusionopt.recovery._conservative import farthest, nearest


def n_distinct(x, size=1e-5):
    """Clusters of rows that are equal within `size`, for data of size about one."""
    names = np.arange(len(x))
    for i in range(len(x)):
        for j in range(i):
            if np.linalg.norm(x[i] - x[j]) <= size:
                names[names == names[i]] = names[j]
    return len(np.unique(names))


TWO_PAIRS = SquaredDistance([-1.0, -1.0, 1.0, 1.0])
PARTS = [0, 0, 1, 1]


def test_theorem_2_is_tight_in_the_canonical_scale_and_false_in_the_others():
    problem = FusionProblem(TWO_PAIRS, lam=0.26)
    assert theorem2_bound(problem, PARTS) == pytest.approx(0.5, rel=1e-12)
    assert theorem2_bound_sharp(problem, PARTS) == pytest.approx(0.5, rel=1e-12)
    assert n_distinct(reference.solve(problem).x) == 2
    # lam = 0.26 < 0.5 in the papers' other scales: the theorem would promise two clusters, and there is one.
    for convention in ("ordered", "mean_ordered", "mean_unordered"):
        lam = scaling.to_canonical(0.26, convention, n_nodes=4)
        assert n_distinct(reference.solve(problem.with_lam(lam)).x) == 1
    for lam, clusters in ((0.499, 2), (0.501, 1)):
        assert n_distinct(reference.solve(problem.with_lam(lam)).x) == clusters


def test_theorem_1_is_false_in_the_scale_of_fpfc():
    problem = FusionProblem(SquaredDistance([-1.0, 1.0]), lam=1.01)
    assert theorem1_bound(problem, [0, 0]) == pytest.approx(1.0, rel=1e-12)
    assert n_distinct(reference.solve(problem).x) == 1
    # 1.01 >= 1 in FPFC's scale (1/m for each pair): not fused.
    fpfc = problem.with_lam(scaling.to_canonical(1.01, "fpfc", n_nodes=2))
    assert n_distinct(reference.solve(fpfc).x) == 2


def random_problem(rng):
    """Separated groups of unequal sizes; squared distances or least squares."""
    sizes = rng.integers(1, 5, size=int(rng.integers(2, 4)))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    d = int(rng.integers(1, 4))
    centers = 4.0 * rng.standard_normal((len(sizes), d))
    spread = 10.0 ** rng.uniform(-2, 0)
    points = centers[labels] + spread * rng.standard_normal((len(labels), d))
    if rng.random() < 0.5:
        return SquaredDistance(points), labels
    designs = [rng.standard_normal((6, d)) for _ in labels]
    return LeastSquares(designs, [z @ p for z, p in zip(designs, points, strict=True)], ridge=0.1), labels


def fused_value(problem, labels):
    """Least F over x that is constant on the clusters, by the reference solver on the merged nodes."""
    import cvxpy as cp

    k, d = int(labels.max()) + 1, problem.n_features
    w = cp.Variable((k, d))
    loss = problem.loss
    hessians = loss.hessians()
    blocks = hessians[:, None, None] * np.eye(d) if hessians.ndim == 1 else hessians
    terms = []
    for i, name in enumerate(labels):
        root = np.linalg.cholesky(blocks[i]).T
        terms.append(0.5 * cp.sum_squares(root @ w[int(name)]) - loss.linear()[i] @ w[int(name)])
    sizes = np.bincount(labels)
    for a in range(k):
        for b in range(a + 1, k):
            terms.append(problem.lam * float(sizes[a] * sizes[b]) * cp.norm(w[a] - w[b]))
    program = cp.Problem(cp.Minimize(sum(terms)))
    program.solve(solver="CLARABEL")
    return float(program.value) + float(loss.constants().sum()), np.asarray(w.value)


def test_theorems_1_and_2_hold_on_quadratics():
    rng = np.random.default_rng(1)
    first = second = 0
    for _ in range(12):
        loss, labels = random_problem(rng)
        size = float(np.abs(loss.gradient(np.zeros((len(labels), loss.n_features)))).max())
        for lam in size * 10.0 ** rng.uniform(-3, -0.5, size=2):
            problem = FusionProblem(loss, lam=float(lam))
            if lam >= theorem1_bound(problem, labels):
                first += 1
                value, _ = fused_value(problem, labels)
                assert value <= reference.solve(problem).objective * (1 + 1e-6)
            if lam < theorem2_bound_sharp(problem, labels):
                second += 1
                assert theorem2_bound(problem, labels) <= theorem2_bound_sharp(problem, labels) * (1 + 1e-12)
                _, w = fused_value(problem, labels)
                assert n_distinct(w) == len(w)
    assert first >= 4 and second >= 4


def test_theorem_3_gives_both_at_its_ends():
    rng = np.random.default_rng(3)
    found = 0
    while found < 8:
        loss, labels = random_problem(rng)
        if not isinstance(loss, SquaredDistance):
            continue
        low, high = theorem3_interval(FusionProblem(loss), labels)
        if low > high:
            continue
        found += 1
        for lam in {low, 0.5 * (low + high), high}:
            problem = FusionProblem(loss, lam=max(lam, 1e-9))
            assert problem.lam >= theorem1_bound(problem, labels) * (1 - 1e-12)
            assert problem.lam <= theorem2_bound(problem, labels)
            bounds = conservative_bounds(problem, labels)
            assert bounds.lower_exact and bounds.upper_exact
            assert theorem1_bound(problem, labels) <= bounds.lower * (1 + 1e-9)
            assert theorem2_bound(problem, labels) >= bounds.upper * (1 - 1e-9)


def test_theorem_3_with_shared_designs_and_with_different_ones():
    rng = np.random.default_rng(0)
    design = rng.standard_normal((8, 2))
    targets = [design @ c + 0.01 * rng.standard_normal(8) for c in ([0, 0], [0, 0], [5, 5], [5, 5])]
    problem = FusionProblem(LeastSquares([design] * 4, targets))
    low, high = theorem3_interval(problem, PARTS)
    assert 0 < low < high
    lam = 0.5 * (low + high)
    assert theorem1_bound(problem.with_lam(lam), PARTS) <= lam <= theorem2_bound(problem.with_lam(lam), PARTS)
    mixed = FusionProblem(LeastSquares([design, design + 1.0, design, design], targets))
    with pytest.raises(InvalidArgumentError, match="nodes 0 and 1 of one cluster have different Hessians"):
        theorem3_interval(mixed, PARTS)
    # Different Hessians only across: their difference is invertible, so delta is 0 and nothing is left.
    other = FusionProblem(LeastSquares([design, design, design + 1.0, design + 1.0], targets))
    assert theorem3_interval(other, PARTS)[1] <= 0
    weighted = FusionProblem(SquaredDistance([0.0, 0.0, 9.0, 9.0], sample_weight=[1, 1, 2, 2]))
    assert theorem3_interval(weighted, PARTS) == (0.0, 0.0)


def test_theorem_4_bounds_the_distances_of_the_own_minimisers():
    rng = np.random.default_rng(4)
    for _ in range(10):
        designs = [rng.standard_normal((7, 3)) for _ in range(6)]
        loss = LeastSquares(designs, [rng.standard_normal(7) for _ in range(6)], ridge=0.2)
        labels = rng.integers(0, 2, size=6)
        own = np.linalg.solve(loss.hessians(), loss.linear()[:, :, None])[:, :, 0]
        inside, between = theorem4_bounds(FusionProblem(loss), labels)
        distance = np.linalg.norm(own[:, None] - own[None], axis=2)
        mates = (labels[:, None] == labels[None]) & ~np.eye(6, dtype=bool)
        others = labels[:, None] != labels[None]
        if mates.any():
            assert distance[mates].max() <= inside * (1 + 1e-9)
        if others.any():
            assert distance[others].min() >= between * (1 - 1e-9)
    assert theorem4_bounds(FusionProblem(SquaredDistance([0.0, 1.0, 5.0])), [0, 0, 1]) == (1.0, 4.0)


def test_conservative_bounds_are_the_extremes_over_the_set():
    rng = np.random.default_rng(6)
    for _ in range(4):
        designs = [rng.standard_normal((5, 2)) for _ in range(4)]
        loss = LeastSquares(designs, [rng.standard_normal(5) for _ in range(4)], ridge=0.1)
        bounds = conservative_bounds(FusionProblem(loss), PARTS)
        hessians, linear = loss.hessians(), loss.linear()

        def lowest(nodes, hessians=hessians, linear=linear):
            h, q = hessians[nodes].sum(axis=0), linear[nodes].sum(axis=0)
            return np.linalg.solve(h, q), -0.5 * q @ np.linalg.solve(h, q)

        parts = [[0, 1], [2, 3]]
        room = lowest([0, 1, 2, 3])[1] - sum(lowest(p)[1] for p in parts)
        largest, least = 0.0, np.inf
        for a, b in (parts, parts[::-1]):
            center, _ = lowest(a)
            h = hessians[a].sum(axis=0)
            angle = np.linspace(0, 2 * np.pi, 4001)
            circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
            rim = np.linalg.solve(np.linalg.cholesky(h).T, circle.T).T * np.sqrt(2 * room)
            disc = np.concatenate([center + s * rim[::40] for s in np.linspace(0, 1, 101)])
            w = np.concatenate([center + rim, disc])
            g = w @ hessians - linear[:, None]
            largest = max(largest, np.linalg.norm(g[a[0]] - g[a[1]], axis=1).max() / 2)
            least = min(least, np.linalg.norm(g[a].mean(axis=0) - g[b].mean(axis=0), axis=1).min())
        assert bounds.lower == pytest.approx(largest, rel=1e-5)
        assert bounds.upper == pytest.approx(least / 4, rel=2e-2, abs=1e-3 * largest)
        assert bounds.upper <= least / 4 * (1 + 1e-9)


def test_extremes_of_an_affine_map_on_the_unit_ball():
    rng = np.random.default_rng(7)
    ball = rng.standard_normal((20000, 3))
    ball /= np.maximum(np.linalg.norm(ball, axis=1, keepdims=True), 1.0)
    cases = [(rng.standard_normal((3, 3)), rng.standard_normal(3)) for _ in range(5)]
    cases.append((np.diag([2.0, 1.0, 0.0]), np.array([0.0, 0.3, 0.0])))  # no pull along the longest axis
    cases.append((np.diag([1.0, 1.0, 1e-9]), np.array([0.0, 0.0, 5.0])))
    cases.append((np.zeros((3, 3)), np.array([3.0, 0.0, 4.0])))
    for matrix, offset in cases:
        for scale in (1.0, 1e-8, 1e8):
            lengths = np.linalg.norm(ball @ (scale * matrix).T + scale * offset, axis=1)
            top, bottom = farthest(scale * matrix, scale * offset), nearest(scale * matrix, scale * offset)
            assert lengths.max() <= top * (1 + 1e-9)
            assert top <= lengths.max() * 1.05
            assert bottom <= lengths.min() * (1 + 1e-9)
            assert bottom >= lengths.min() * 0.5 - 0.2 * scale
    # By hand: s = (sqrt(1 - t^2), t) with t = 0.3 * 1 / (4 - 1).
    t = 0.1
    assert farthest(*cases[5]) == pytest.approx(np.hypot(2 * np.sqrt(1 - t * t), 0.3 + t), rel=1e-12)
    assert nearest(np.eye(2), np.array([3.0, 4.0])) == pytest.approx(4.0, rel=1e-12)


def test_bounds_follow_the_units_and_the_common_weight():
    rng = np.random.default_rng(8)
    points = np.concatenate([rng.standard_normal((4, 2)), 9 + rng.standard_normal((5, 2))])
    labels = np.repeat([0, 1], [4, 5])
    base = FusionProblem(SquaredDistance(points), lam=0.1)
    tilted = FusionProblem(SquaredDistance(1e8 * points), Graph.complete(9, weight=4.0), lam=0.1e8 / 4)
    for bound in (theorem1_bound, theorem2_bound, theorem2_bound_sharp):
        assert bound(tilted, labels) == pytest.approx(bound(base, labels) * 1e8 / 4, rel=1e-9)
    assert theorem3_interval(tilted, labels) == pytest.approx(
        tuple(v * 1e8 / 4 for v in theorem3_interval(base, labels)), rel=1e-9
    )
    assert conservative_bounds(tilted, labels)[:2] == pytest.approx(
        tuple(v * 1e8 / 4 for v in conservative_bounds(base, labels)[:2]), rel=1e-9
    )


def test_one_cluster_and_single_nodes():
    problem = FusionProblem(SquaredDistance([0.0, 2.0]), lam=0.1)
    assert theorem2_bound(problem, [0, 0]) == theorem2_bound_sharp(problem, [0, 0]) == np.inf
    assert theorem1_bound(problem, [0, 1]) == 0.0
    assert theorem3_interval(problem, [0, 0]) == (1.0, np.inf)
    assert conservative_bounds(problem, [0, 0]) == (1.0, np.inf, True, True)
    assert theorem4_bounds(problem, [0, 1])[0] == 0.0
    assert theorem4_bounds(problem, [0, 0])[1] == np.inf


@pytest.mark.parametrize(
    "bound", [theorem1_bound, theorem2_bound, theorem2_bound_sharp, theorem3_interval, conservative_bounds]
)
def test_other_graphs_are_refused(bound):
    loss = SquaredDistance([0.0, 1.0])
    for graph in (Graph.from_edges(2, [[0, 1]]), Graph.complete(2, node_weights=[1.0, 2.0])):
        with pytest.raises(InvalidArgumentError, match=r"for Graph\.complete with one positive weight"):
            bound(FusionProblem(loss, graph, lam=0.1), [0, 1])
    with pytest.raises(InvalidArgumentError, match="labels"):
        bound(FusionProblem(loss, lam=0.1), [0])
    with pytest.raises(InvalidTypeError, match="problem is a str"):
        bound("problem", [0, 1])


def test_theorem_4_needs_strong_convexity():
    loss = LeastSquares([[[1.0, 0.0]], [[0.0, 1.0]]], [[1.0], [2.0]])
    with pytest.raises(InvalidArgumentError, match="LeastSquares of node 0 is not strongly convex"):
        theorem4_bounds(FusionProblem(loss), [0, 1])


def test_theorem_3_of_losses_with_bounded_gradients_is_empty_between_clusters():
    rng = np.random.default_rng(9)
    points = rng.standard_normal((6, 2)) + 5.0 * (np.arange(6) > 2)[:, None]
    labels = [0, 0, 0, 1, 1, 1]
    huber = Huber(points, delta=0.4)
    low, high = theorem3_interval(FusionProblem(huber), labels)
    assert high <= 0 < low
    # epsilon is attained half way between two targets, or is twice the clipped force.
    apart = max(np.linalg.norm(points[i] - points[j]) for c in ([0, 1, 2], [3, 4, 5]) for i in c for j in c)
    assert low == pytest.approx(min(apart, 0.8) / 3, rel=1e-12)
    designs = [rng.standard_normal((5, 2)) for _ in labels]
    for loss in (
        Logistic(designs, [np.array([1, -1, 1, -1, 1])] * 6),
        HuberRegression(designs, [rng.standard_normal(5) for _ in labels], delta=0.3),
    ):
        low, high = theorem3_interval(FusionProblem(loss), labels)
        assert high <= 0
        for _ in range(200):
            x = 10.0 ** rng.uniform(-1, 2) * rng.standard_normal(2)
            g = loss.gradient(np.tile(x, (6, 1)))
            for cluster in ([0, 1, 2], [3, 4, 5]):
                assert max(np.linalg.norm(g[i] - g[j]) for i in cluster for j in cluster) <= 3 * low * (
                    1 + 1e-12
                )
    with pytest.raises(InvalidArgumentError, match="gradients of SquaredHinge grow without bound"):
        theorem3_interval(FusionProblem(SquaredHinge(designs, [np.array([1, -1, 1, -1, 1])] * 6)), labels)
    weighted = Huber(points, delta=0.4, sample_weight=[1.0, 2.0, 1.0, 1.0, 1.0, 1.0])
    low, _ = theorem3_interval(FusionProblem(weighted), labels)
    for x in points[:3, None] + 0.5 * rng.standard_normal((3, 200, 2)):
        for point in x:
            g = weighted.gradient(np.tile(point, (6, 1)))
            assert max(np.linalg.norm(g[i] - g[j]) for i in range(3) for j in range(3)) <= 3 * low * (
                1 + 1e-12
            )
