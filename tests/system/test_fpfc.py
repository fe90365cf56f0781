"""FPFC: the sparse server against a dense one, stationarity, the convex variant, settings."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import (
    CallableLoss,
    FpfcSettings,
    FusionProblem,
    Graph,
    L2Norm,
    LeastSquares,
    Logistic,
    Mcp,
    Poisson,
    Scad,
    SmoothedScad,
    Softmax,
    SquaredDistance,
    reference,
    solve,
)
from fusionopt._bridge_fpfc import FpfcServer
from fusionopt.datasets import make_mixture_regression
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.methods import fpfc
from fusionopt.methods.fpfc import FpfcSession
from fusionopt.penalties import L1Norm

M, D = 17, 19


def _graph(kind):
    rng = np.random.default_rng(3)
    if kind == "uniform":
        weights = np.full((M, M), 1 / M)
        return Graph.complete(M, weight=1 / M), weights, np.full(M, 1 / M)
    if kind == "products":
        r = rng.random(M) + 0.5
        return Graph.complete(M, weight=0.1, node_weights=r), 0.1 * np.outer(r, r), 0.1 * r * r
    edges = np.array([(i, j) for i in range(M) for j in range(i + 1, M) if j == i + 1 or rng.random() < 0.3])
    graph = Graph.from_edges(M, edges, rng.random(len(edges)))
    weights = np.zeros((M, M))
    weights[graph.edges[:, 0], graph.edges[:, 1]] = graph.weights
    weights += weights.T
    return graph, weights, weights.sum(axis=1)


class Dense:
    """theta and v of every ordered pair, refreshed as printed."""

    def __init__(self, x, weights, own, penalty, lam, rho, both):
        self.x, self.weights, self.own = x.copy(), weights.copy(), own
        np.fill_diagonal(self.weights, 0)
        self.penalty, self.lam, self.rho, self.both = penalty, lam, rho, both
        self.theta, self.v = np.zeros((2, len(x), *x.shape))

    def zeta(self):
        terms = self.x[None] + self.theta - self.v / self.rho
        total = (self.weights[:, :, None] * terms).sum(axis=1) + self.own[:, None] * self.x
        return total / (self.weights.sum(axis=1) + self.own)[:, None]

    def update(self, active, fresh):
        self.x[active] = fresh
        on = np.isin(np.arange(len(self.x)), active)
        touched = on[:, None] & on[None] if self.both else on[:, None] | on[None]
        touched &= self.weights > 0
        delta = self.x[:, None] - self.x[None] + self.v / self.rho
        size = np.linalg.norm(delta, axis=2)
        tau = self.penalty.prox(size, self.lam, 1 / self.rho)
        theta = delta * np.divide(tau, size, out=np.zeros_like(size), where=size > 0)[:, :, None]
        self.v = np.where(touched[:, :, None], self.rho * (delta - theta), self.v)
        self.theta = np.where(touched[:, :, None], theta, self.theta)


def _run_both(penalty, kind, settings, rounds=120):
    graph, weights, own = _graph(kind)
    rng = np.random.default_rng(1)
    target = rng.integers(0, 3, M)[:, None] * np.full(D, 1.5 / np.sqrt(D)) + 0.02 * rng.standard_normal(
        (M, D)
    )
    problem = FusionProblem(SquaredDistance(target), graph, penalty, lam=0.35)
    start = np.tile(rng.standard_normal(D), (M, 1))
    server = FpfcServer(problem, settings, 1.0)
    server.start(start)
    dense = Dense(start, weights, own, penalty, 0.35, 1.0, settings.pairs == "both")
    worst = 0.0
    for k in range(rounds):
        active = np.sort(rng.permutation(M)[:5])
        zeta = dense.zeta()[active]
        worst = max(worst, float(np.abs(server.zeta(active) - zeta).max()))
        fresh = (target[active] + zeta) / 2
        if k % 40 == 39:  # saturated pairs come back
            fresh = dense.x[active] + 0.3 * rng.standard_normal((5, D))
        dense.update(active, fresh)
        server.update(active, fresh)
    i, j = np.nonzero(np.triu(dense.weights))
    theta, v = dense.theta[i, j], dense.weights[i, j][:, None] * dense.v[i, j]
    worst = max(worst, np.abs(server.thetas() - theta).max(), np.abs(server.duals() - v).max())
    return server, worst


@pytest.mark.parametrize("penalty", [SmoothedScad(xi=0.05), Scad(), Mcp(), L2Norm()], ids=repr)
@pytest.mark.parametrize("kind", ["uniform", "products", "edges"])
@pytest.mark.parametrize("pairs", ["any", "both"])
def test_what_is_not_kept_changes_no_iterate(penalty, kind, pairs):
    server, worst = _run_both(penalty, kind, FpfcSettings(pairs=pairs))
    assert worst <= 1e-13
    store = server.store
    if pairs == "any" and penalty.weak_convexity > 0:
        assert store.dropped > 0.2 * store.kept
    else:
        assert store.dropped == 0


def test_float32_pairs_stay_within_their_rounding():
    _, worst = _run_both(SmoothedScad(xi=0.05), "uniform", FpfcSettings(dtype="float32"))
    assert 1e-12 < worst < 1e-6


@pytest.mark.parametrize("kind", ["uniform", "edges"])
def test_threads_give_the_same_bits(kind):
    (one, _), (two, _) = (
        _run_both(SmoothedScad(xi=0.05), kind, FpfcSettings(n_threads=n), rounds=40) for n in (1, 2)
    )
    np.testing.assert_array_equal(one.thetas(), two.thetas())
    np.testing.assert_array_equal(one.zeta(np.arange(M)), two.zeta(np.arange(M)))


def _regression(lam, penalty=None, xi=0.05):
    designs, targets, labels = make_mixture_regression(12, n_features=4, n_samples=30, random_state=0)
    loss = LeastSquares(designs, targets)
    graph = Graph.complete(12, weight=1 / 12)
    return FusionProblem(loss, graph, SmoothedScad(xi=xi) if penalty is None else penalty, lam), labels


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_rounds_end_stationary_at_the_oracle_centres(participation):
    problem, labels = _regression(0.9, xi=5e-3)
    settings = FpfcSettings(
        rho=1.0, alpha=0.1, participation=participation, eps_rel=1e-9, max_iter=5000, random_state=0, nu=0.5
    )
    result = solve(problem, settings)
    assert result.status == "stationary" and result.trace["grad_w"][-1] <= 1e-8
    pairs = {(int(a), int(b)) for a, b in zip(labels, result.labels, strict=True)}
    assert len(pairs) == 3 == result.n_clusters
    # Centres next to the least squares over all data of a cluster.
    for a, b in pairs:
        rows = [i for i in range(12) if labels[i] == a]
        Z = np.concatenate([problem.loss.designs[30 * i : 30 * i + 30] for i in rows])
        y = np.concatenate([problem.loss.targets[30 * i : 30 * i + 30] for i in rows])
        np.testing.assert_allclose(result.centers[b], np.linalg.lstsq(Z, y)[0], atol=0.005)
    # The gradient of the smooth F itself, from the formulas in NumPy.
    x, g = result.x, problem.loss.gradient(result.x)
    for i in range(12):
        for j in range(12):
            u = x[i] - x[j]
            t = np.linalg.norm(u)
            if t > 0:
                g[i] += problem.penalty.derivative(t, 0.9) * u / t / 12
    assert np.abs(g).max() <= 1e-6
    assert "has no proof" in result.message


def test_smoothed_scad_without_settings_is_solved_by_exact_steps():
    problem, _ = _regression(0.6)
    result = solve(problem)
    assert result.status == "stationary" and isinstance(result.settings, FpfcSettings)
    assert result.settings.local_steps is None and np.isnan(result.gap)
    best = solve(problem, FpfcSettings(rho=1.0, alpha=0.1, eps_rel=1e-9, max_iter=5000))
    assert result.objective == pytest.approx(best.objective, rel=1e-9)


def test_the_convex_variant_is_the_canonical_problem_at_lam_over_m():
    problem, _ = _regression(0.6, L2Norm())
    result = solve(problem, FpfcSettings(eps_rel=1e-9, max_iter=20000))
    certified = solve(FusionProblem(problem.loss, Graph.complete(12), lam=0.6 / 12))
    assert result.status == "optimal"
    assert result.objective == pytest.approx(certified.objective, rel=1e-8)
    np.testing.assert_allclose(result.x, certified.x, atol=1e-5)
    assert (np.linalg.norm(result.edge_duals(), axis=1) <= 0.6 / 12).all()


def test_the_convex_variant_is_cvxpys_optimum():
    problem, _ = _regression(0.6, L2Norm())
    result = solve(problem, FpfcSettings(eps_rel=1e-9, max_iter=20000))
    # Pairs weigh 1 / m in FPFC: lam / m on the complete graph of weight one.
    told = reference.solve(FusionProblem(problem.loss, Graph.complete(12), lam=0.6 / 12))
    assert result.objective == pytest.approx(told.objective, rel=1e-6)
    assert np.linalg.norm(result.x - told.x) <= 1e-3 * np.linalg.norm(told.x)
    partial = solve(problem, FpfcSettings(eps_rel=1e-7, max_iter=20000, participation=0.5, random_state=3))
    assert partial.status == "optimal" and partial.objective == pytest.approx(told.objective, rel=1e-6)


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_the_convex_variant_has_a_bound_where_losses_do_not_feel_every_direction(participation):
    rng = np.random.default_rng(4)
    designs = [rng.standard_normal((3, 5)) for _ in range(6)]
    loss = LeastSquares(designs, [rng.standard_normal(3) for _ in range(6)])
    problem = FusionProblem(loss, Graph.complete(6, weight=1 / 6), L2Norm(), 0.6)
    settings = FpfcSettings(eps_rel=1e-6, max_iter=20000, participation=participation, random_state=0)
    result = solve(problem, settings)
    assert result.status == "optimal" and result.rel_gap <= 1e-6
    told = reference.solve(FusionProblem(loss, Graph.complete(6), lam=0.6 / 6))
    assert result.objective == pytest.approx(told.objective, rel=2e-6)
    assert result.dual_objective <= told.objective * (1 + 1e-7)
    # The bound from the duals that the result keeps, by a pseudo-inverse.
    duals, bound = result.edge_duals(), 0.0
    assert np.linalg.norm(duals, axis=1).max() <= 0.1
    sums = np.zeros((6, 5))
    np.add.at(sums, problem.graph.edges[:, 0], duals)
    np.subtract.at(sums, problem.graph.edges[:, 1], duals)
    for design, target, g in zip(designs, loss.targets.reshape(6, 3), sums, strict=True):
        H = design.T @ design / 3
        assert np.abs(g - H @ np.linalg.pinv(H) @ g).max() <= 1e-9
        c = design.T @ target / 3 - g
        bound += target @ target / 6 - c @ np.linalg.pinv(H) @ c / 2
    assert result.dual_objective == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_convex_variant_has_a_bound_with_fewer_samples_than_features(classes):
    rng = np.random.default_rng(0)
    designs = [rng.standard_normal((3, 4)) for _ in range(12)]
    labels = [rng.integers(0, classes, 3) for _ in range(12)]
    loss = Softmax(designs, labels, n_classes=3) if classes == 3 else Logistic(designs, labels)
    problem = FusionProblem(loss, Graph.complete(12, weight=1 / 12), L2Norm(), 1.0)
    result = solve(problem, FpfcSettings(rho=1.0, eps_rel=1e-6, max_iter=3000))
    assert result.status == "optimal" and result.rel_gap <= 1e-6
    told = reference.solve(problem)
    assert result.dual_objective <= told.objective * (1 + 1e-7)
    assert result.objective == pytest.approx(told.objective, rel=1e-6)
    # Too large for duals to be mended: said, and judged by the subdifferential.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fpfc, "_REPAIR_LIMIT", 0)
        blunt = solve(problem, FpfcSettings(rho=1.0, eps_rel=1e-6, max_iter=3000))
    assert blunt.status == "stationary" and np.isnan(blunt.gap)
    assert "no bound exists here: subdifferential within" in blunt.message


def test_a_pair_never_touched_is_not_taken_for_fused():
    problem, _ = _regression(0.6)
    settings = FpfcSettings(participation=0.1, rho=1.0, alpha=0.1, pairs="both", max_iter=40, random_state=0)
    result = solve(problem, settings)  # one active node a round: no pair has two active ends
    assert result.n_clusters == 12 and (result.edge_duals() == 0).all()


def test_local_steps_are_those_of_the_formula_for_any_loss():
    rng = np.random.default_rng(0)
    designs, classes = rng.random((4, 30, 3)), rng.integers(0, 3, (4, 30))
    twin = Softmax(list(designs), list(classes), n_classes=3)
    own = CallableLoss(twin.values, twin.gradient, 4, 9)
    graph = Graph.complete(4, weight=0.25)
    settings = FpfcSettings(rho=1.0, alpha=0.1, participation=0.5, max_iter=30, random_state=2)
    x = [solve(FusionProblem(loss, graph, SmoothedScad(), 0.3), settings).x for loss in (twin, own)]
    np.testing.assert_allclose(x[0], x[1], rtol=0, atol=1e-12)


def test_batches_pick_that_many_samples_and_keep_the_mean():
    designs, targets, _ = make_mixture_regression(6, n_samples=20, random_state=1)
    problem = FusionProblem(LeastSquares(designs, targets), Graph.complete(6, weight=1 / 6), L2Norm(), 0.3)
    session = FpfcSession(problem, FpfcSettings(batch_size=5, local_steps=2, random_state=0), None)
    session.round()
    weights = session._steps._weights.reshape(6, 20)
    assert ((weights > 0).sum(axis=1) == 5).all()
    np.testing.assert_allclose(weights.sum(axis=1), 20)
    result = solve(problem, FpfcSettings(batch_size=5, alpha=0.05, random_state=0, max_iter=600))
    exact = solve(FusionProblem(problem.loss, Graph.complete(6), lam=0.05))
    assert exact.objective <= result.objective <= exact.objective * 1.05
    with pytest.raises(InvalidTypeError, match="batch_size=5 needs a loss with samples"):
        solve(FusionProblem(SquaredDistance(np.eye(3)), lam=0.1), FpfcSettings(batch_size=5))


def test_warm_starts_go_on_from_different_rows():
    problem, _ = _regression(0.6)
    first = solve(problem)
    again = solve(problem, warm_start=first)
    assert again.n_iter <= first.n_iter
    assert again.objective == pytest.approx(first.objective, rel=1e-9)


def test_centres_are_weighted_by_samples_and_survive_saving(tmp_path):
    rng = np.random.default_rng(5)
    sizes = [10, 40, 20]
    loss = LeastSquares([rng.standard_normal((n, 2)) for n in sizes], [rng.standard_normal(n) for n in sizes])
    problem = FusionProblem(loss, Graph.complete(3, weight=1 / 3), L2Norm(), 0.4)
    result = solve(problem, FpfcSettings(nu=100.0, max_iter=3))
    assert result.n_clusters == 1 and len(np.unique(result.x, axis=0)) == 3
    np.testing.assert_allclose(result.centers[0], np.average(result.x, axis=0, weights=sizes))
    result.save(tmp_path / "fpfc.npz")
    loaded = type(result).load(tmp_path / "fpfc.npz")
    assert loaded.settings == result.settings
    np.testing.assert_array_equal(loaded.trace["grad_w"], result.trace["grad_w"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"participation": 1.5}, r"participation=1\.5 breaks 0 < participation <= 1"),
        ({"local_steps": 0}, "local_steps=0 is too small"),
        ({"local_steps": None, "batch_size": 4}, "batch_size=4 needs local steps"),
        ({"alpha": -1}, r"alpha=-1\.0 is not positive"),
        ({"nu": -0.1}, r"nu=-0\.1 is negative"),
        ({"pairs": "all"}, "pairs='all' is unknown"),
        ({"dtype": "float16"}, "dtype='float16' is unknown"),
    ],
)
def test_settings_that_break_a_rule(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        FpfcSettings(**options)


def test_steps_that_are_too_long_end_as_a_numerical_error():
    problem = FusionProblem(SquaredDistance(np.eye(4)), Graph.complete(4, weight=0.25), SmoothedScad(), 0.5)
    for every in (7, 500):
        result = solve(problem, FpfcSettings(alpha=1e3, rho=1.0, max_iter=500, check_every=every))
        assert (
            result.status == "numerical_error"
            and "the iterates overflow: give a smaller alpha" in result.message
        )
        assert np.isfinite(result.x).all() and np.isnan(result.objective)


def test_what_does_not_fit_is_refused_before_any_work():
    problem, _ = _regression(0.6)
    with pytest.raises(InvalidArgumentError, match=r"rho=0\.3 breaks rho > 1 / \(a - 1\)"):
        solve(problem, FpfcSettings(rho=0.3))
    with pytest.raises(InvalidTypeError, match="which has no compiled twin"):
        solve(FusionProblem(problem.loss, penalty=L1Norm(), lam=0.1), FpfcSettings(rho=1.0))
    counts = Poisson([np.ones((3, 1))] * 2, [np.ones(3)] * 2)
    with pytest.raises(InvalidArgumentError, match="alpha=None needs a bound on the curvature"):
        solve(FusionProblem(counts, lam=0.1), FpfcSettings(rho=1.0))
