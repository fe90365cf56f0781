"""PDMM: the kernel against a plain one, its optima against ADMM, literal sampling, the stability rule."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import (
    FusionProblem,
    Graph,
    LeastSquares,
    Logistic,
    PdmmSettings,
    SquaredDistance,
    SquaredHinge,
    _core,
    reference,
    solve,
)
from fusionopt.datasets import make_ellipses, make_gaussian_groups, make_mixture_regression
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.penalties import SquaredL2
from fusionopt.settings import pdmm_tau_limit

POINTS, _ = make_gaussian_groups(30, n_groups=3, n_features=2, separation=5.0, random_state=3)


class Plain:
    """Full participation or given active users, one matrix of ordered pairs, on 1/2 ||x - a||^2."""

    def __init__(self, a, lam, rho, eta, tau, nu):
        m, d = a.shape
        self.a, self.lam, self.rho, self.eta, self.tau, self.nu = a, lam, rho, eta, tau, nu
        self.x = np.zeros((m, d))
        self.z, self.mu, self.hat = np.zeros((3, m, m, d))

    def step(self, active):
        m = len(self.a)
        old = self.x.copy()
        for i in active:
            others = [j for j in range(m) if j != i]
            pull = sum(self.rho * (old[j] + self.z[i, j]) - self.hat[i, j] for j in others)
            top = self.a[i] + pull + self.eta * old[i]
            self.x[i] = top / (1 + self.rho * (m - 1) + self.eta)
        for i in range(m):
            for j in range(m):
                if i == j or not (i in active or j in active):
                    continue
                arg = self.hat[i, j] + self.rho * (old[i] - old[j]) + self.eta * self.z[i, j]
                shrink = max(0.0, 1 - self.lam / max(np.linalg.norm(arg), 1e-300))
                self.z[i, j] = arg * shrink / (self.rho + self.eta)
                r = self.x[i] - self.x[j] - self.z[i, j]
                self.mu[i, j] += self.tau * self.rho * r
                self.hat[i, j] = self.mu[i, j] - self.nu * self.rho * r


def kernel(points, lam, *, rho, eta, tau=0.8, nu=0.2, scheme="full", participation=1.0, seed=0, skip=0):
    m, d = points.shape
    i, j = np.triu_indices(m, 1)
    core = _core.Pdmm(
        m,
        d,
        i.astype(np.int32),
        j.astype(np.int32),
        np.full(len(i), lam),
        np.full(m, eta),
        scheme=scheme,
        participation=participation,
        rho=rho,
        eta=eta,
        tau=tau,
        nu=nu,
        seed=seed,
        skip_after=skip,
        skip_period=10,
    )
    core.set_quadratic(np.ones(m), None, points)
    return core


@pytest.mark.parametrize("scheme", ["full", "users"])
def test_the_kernel_takes_the_printed_steps(scheme):
    a = np.random.default_rng(0).standard_normal((7, 3))
    core = kernel(a, 0.2, rho=0.7, eta=0.4, scheme=scheme, participation=1.0 if scheme == "full" else 0.4)
    plain = Plain(a, 0.2, 0.7, 0.4, 0.8, 0.2)
    for _ in range(25):
        active, pull = core.begin()
        assert len(active) == (7 if scheme == "full" else 2)
        plain.step(set(active.tolist()))
        core.end((a + pull) / (1.0 + core.modulus)[:, None])
        np.testing.assert_allclose(core.x, plain.x, rtol=0, atol=1e-13)
    upper = np.triu_indices(7, 1)
    clipped = plain.mu[upper]
    clipped *= np.minimum(1.0, 0.2 / np.linalg.norm(clipped, axis=1))[:, None]
    np.testing.assert_allclose(core.duals(), clipped, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scheme", ["full", "users", "pairs"])
@pytest.mark.parametrize("lam", [0.02, 0.12, 5.0])
def test_the_optimum_is_that_of_admm(scheme, lam):
    problem = FusionProblem(SquaredDistance(POINTS), lam=lam)
    share = 1.0 if scheme == "full" else 0.4
    settings = PdmmSettings(scheme=scheme, participation=share, random_state=1, eps_rel=1e-8)
    ours, admm = solve(problem, settings), solve(problem)
    assert ours.status == "optimal" and ours.rel_gap <= 1e-8
    assert ours.objective == pytest.approx(admm.objective, rel=2e-8)
    assert problem.objective(ours.x) == pytest.approx(ours.objective, rel=1e-13)
    lengths = np.linalg.norm(ours.edge_duals(), axis=1)
    assert (lengths <= lam).all()
    if lam == 5.0:
        assert ours.n_clusters == 1 and (ours.x == ours.x[0]).all()


@pytest.mark.parametrize(
    "graph",
    [
        Graph.from_edges(30, [(k, k + 1) for k in range(29)]),
        Graph.from_edges(30, [(k, (k + 1) % 30) for k in range(30)], np.linspace(0.1, 2, 30)),
        Graph.knn(POINTS, 4),
    ],
    ids=["chain", "ring", "knn"],
)
def test_other_graphs_converge_though_jacobi_steps_would_not(graph):
    problem = FusionProblem(SquaredDistance(POINTS), graph, lam=0.5)
    ours, admm = solve(problem, PdmmSettings(eps_rel=1e-8)), solve(problem)
    assert ours.status == "optimal"
    assert ours.objective == pytest.approx(admm.objective, rel=2e-8)


def test_least_squares_and_a_fused_partition():
    designs, targets, _ = make_mixture_regression(18, random_state=0)
    problem = FusionProblem(LeastSquares(designs, targets), lam=0.4)
    ours, admm = solve(problem, PdmmSettings(eps_rel=1e-9)), solve(problem)
    assert ours.status == "optimal"
    np.testing.assert_array_equal(ours.labels, admm.labels)
    np.testing.assert_allclose(ours.x, admm.x, rtol=0, atol=1e-4)
    for group in range(ours.n_clusters):
        rows = ours.x[ours.labels == group]
        assert (rows == rows[0]).all()


@pytest.mark.parametrize("scheme", ["full", "users"])
@pytest.mark.parametrize("n_samples", [1, 3])
def test_losses_that_do_not_feel_every_direction_are_certified_too(scheme, n_samples):
    rng = np.random.default_rng(0)
    designs, targets = rng.standard_normal((12, n_samples, 5)), rng.standard_normal((12, n_samples))
    problem = FusionProblem(LeastSquares(list(designs), list(targets)), lam=0.03)
    settings = PdmmSettings(scheme=scheme, participation=0.5 if scheme == "users" else 1.0, random_state=0)
    result = solve(problem, settings)
    best = solve(problem)
    assert result.status == "optimal" and result.rel_gap <= 1e-6
    assert best.dual_objective - 1e-12 <= result.objective and result.dual_objective <= best.objective + 1e-12
    v = result.edge_duals()
    assert (np.linalg.norm(v, axis=1) <= 0.03).all()
    # The gap holds because the sums of the duals have no part where H_i is zero.
    i, j = problem.graph.edges.T
    sums = np.zeros((12, 5))
    np.add.at(sums, i, v)
    np.add.at(sums, j, -v)
    _, _, basis = np.linalg.svd(designs)
    assert np.abs(np.einsum("ikd,id->ik", basis[:, n_samples:], sums)).max() <= 1e-14


def test_units_change_nothing():
    for factor in (1e-8, 1e8):
        problem = FusionProblem(SquaredDistance(factor * POINTS), lam=0.12 * factor)
        result = solve(problem, PdmmSettings(eps_rel=1e-8))
        base = solve(FusionProblem(SquaredDistance(POINTS), lam=0.12), PdmmSettings(eps_rel=1e-8))
        assert result.n_iter == base.n_iter
        np.testing.assert_allclose(result.x / factor, base.x, rtol=1e-9)


def test_literal_sampling_sticks_at_a_wrong_point_and_units_do_not():
    # The optimum fuses the two at .05; drawn apart, the duals settle where they cancel each node's gradient alone.
    a, lam = np.array([[0.0], [0.1]]), 0.1
    found = {}
    for scheme in ("literal", "pairs"):
        core = kernel(a, lam, rho=10.0, eta=10.0, scheme=scheme, participation=0.4, seed=5)
        core.run(30000)
        before = core.x
        core.run(3000)
        np.testing.assert_allclose(core.x, before, rtol=0, atol=1e-9)  # at rest
        found[scheme] = core
    np.testing.assert_allclose(found["pairs"].x, 0.05, rtol=0, atol=1e-7)
    assert np.abs(found["literal"].x - 0.05).max() > 1e-3
    assert found["literal"].asymmetry() > 1e-3 and found["pairs"].asymmetry() == 0.0


def test_literal_warns_and_never_claims_an_optimum_it_has_not():
    problem = FusionProblem(SquaredDistance(POINTS[:8]), lam=0.3)
    settings = PdmmSettings(scheme="literal", participation=0.4, rho=10, max_iter=400, random_state=0)
    with pytest.warns(RuntimeWarning, match="can stop at a point that is not optimal"):
        result = solve(problem, settings)
    assert result.status == "user_limit"
    assert "ordered duals differ from antisymmetric ones by up to" in result.message
    best = solve(problem)
    assert result.dual_objective <= best.objective <= result.objective


LINE = np.random.default_rng(7).standard_normal((60, 1))


def _settles(e, tau, nu):
    core = kernel(LINE, 0.02, rho=10.0, eta=10.0 * e, tau=tau, nu=nu)
    core.run(3000)
    return bool(core.largest_residual() < 1e-3)


@pytest.mark.parametrize("e", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("nu", [0.0, 0.2, 0.6])
def test_the_stability_rule_tells_both_sides(e, nu):
    limit = pdmm_tau_limit(nu, e)
    assert _settles(e, limit - 0.025, nu)
    assert not _settles(e, limit + 0.025, nu)


@pytest.mark.parametrize("e", [0.3, 3.0])
def test_the_rule_of_a_small_graph_tells_both_sides_too(e):
    limit = pdmm_tau_limit(0.2, e, coupling=60 / (59 + e + 0.1))  # a loss of curvature 1 adds 1 / rho
    assert _settles(e, limit - 0.01, 0.2)
    assert not _settles(e, limit + 0.01, 0.2)


def test_the_rule_is_the_one_written():
    assert pdmm_tau_limit(0.2, 0.5) == pytest.approx(0.8)
    assert pdmm_tau_limit(1 / 3, 0.0) == pytest.approx(2 / 3)


@pytest.fixture(scope="module")
def appendix_c():
    """30 users of Appendix C, and F* at lam = .02 as CVXPY gave it (theory.md, section 2)."""
    clients, _ = make_ellipses(n_users=10, n_samples=170, delta=2.0, axes=(1.5, 2.4), random_state=0)
    loss = SquaredHinge([c.x_train for c in clients], [c.y_train for c in clients], ridge=1e-3)
    return FusionProblem(loss, lam=0.02), 10.659022435593


def test_the_papers_parameters_follow_the_recorded_curve(appendix_c):
    problem, best = appendix_c
    settings = PdmmSettings(rho=10, eta=10, tau=0.8, nu=0.2, max_iter=1000, check_every=100)
    trace = solve(problem, settings, warm_start=np.zeros((30, 3))).trace
    assert trace["objective"][0] - best == pytest.approx(2.565, abs=0.02)
    assert trace["objective"][9] - best == pytest.approx(1.81e-2, rel=0.02)


def test_defaults_reach_a_tight_gap_and_three_clusters(appendix_c):
    problem, best = appendix_c
    result = solve(problem, PdmmSettings(eps_rel=1e-8))
    assert result.status == "optimal" and result.rel_gap <= 1e-8 and result.n_iter <= 1000
    assert result.objective == pytest.approx(best, rel=1e-8)
    assert sorted(result.cluster_sizes.tolist()) == [10, 10, 10]


def test_fused_pairs_may_rest_without_moving_the_optimum(appendix_c):
    problem, best = appendix_c
    common = {"eps_rel": 1e-7, "scheme": "users", "participation": 0.4, "random_state": 0}
    plain = solve(problem, PdmmSettings(**common))
    rested = solve(problem, PdmmSettings(**common, skip_fused=10))
    assert rested.status == plain.status == "optimal"
    assert rested.objective == pytest.approx(best, rel=1e-7)
    share = int(rested.message.split("; ")[3].split("%")[0])
    assert 10 <= share <= 31  # 135 of the 435 pairs are fused
    assert "were left out at fused pairs" in rested.message


@pytest.mark.parametrize("free_bias", [True, False])
def test_logistic_nodes_satisfy_the_optimality_conditions(free_bias):
    clients, _ = make_ellipses(n_users=2, n_samples=40, random_state=2)
    loss = Logistic(
        [c.x_train for c in clients], [c.y_train for c in clients], ridge=0.01, free_bias=free_bias
    )
    problem = FusionProblem(loss, lam=0.03)
    result = solve(problem, PdmmSettings(eps_rel=1e-8))
    assert result.status == "optimal"
    v, edges = result.edge_duals(), problem.graph.edges
    sums = np.zeros_like(result.x)
    np.add.at(sums, edges[:, 0], v)
    np.add.at(sums, edges[:, 1], -v)
    np.testing.assert_allclose(loss.gradient(result.x) + sums, 0, rtol=0, atol=1e-4)
    u = result.x[edges[:, 0]] - result.x[edges[:, 1]]
    assert (np.linalg.norm(v, axis=1) <= 0.03).all()
    slack = 0.03 * np.linalg.norm(u, axis=1) - (v * u).sum(axis=1)
    assert slack.sum() <= result.gap + result.objective * 1e-12


def test_vectors_are_counted_as_the_paper_does():
    core = kernel(POINTS, 0.1, rho=1.0, eta=1.0, scheme="users", participation=0.4)
    active, _ = core.begin()
    core.end(np.zeros_like(POINTS))
    idle = 30 - len(active)
    pairs = 30 * 29 // 2 - idle * (idle - 1) // 2
    assert core.counts["up"] == len(active) + pairs  # S_P
    assert core.counts["down"] == len(active) + 2 * pairs  # S_P + S_D


def test_the_seed_decides_the_draws():
    problem = FusionProblem(SquaredDistance(POINTS), lam=0.12)
    runs = [
        solve(problem, PdmmSettings(scheme="users", participation=0.3, max_iter=30, random_state=seed)).x
        for seed in (4, 4, 5)
    ]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "half"}, "scheme='half' is unknown"),
        ({"participation": 0.0, "scheme": "users"}, r"participation=0\.0 breaks 0 < participation <= 1"),
        ({"participation": 0.5}, "participation=0.5 needs a scheme that draws"),
        ({"rho": 0}, r"rho=0\.0 is not positive"),
        ({"nu": 1.0}, r"nu=1\.0 breaks 0 <= nu < 1"),
        ({"rho": 1, "eta": 0.4}, r"tau=0\.8 breaks tau < 2 nu \+ 2 e / \(2 \+ e\) = 0\.733333"),
        ({"tau": 1.1}, r"tau=1\.1 breaks tau < 2 nu"),
        ({"bregman": "kl"}, "bregman='kl' is unknown"),
        ({"skip_fused": 0}, "skip_fused=0 is too small"),
        ({"scheme": "literal", "skip_fused": 5}, "skip_fused is not available with scheme='literal'"),
    ],
)
def test_settings_that_break_a_rule(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        PdmmSettings(**options)


def test_the_squared_bregman_function_doubles_eta():
    assert PdmmSettings(rho=1, eta=0.3, bregman="squared").ratio == pytest.approx(0.6)
    with pytest.raises(InvalidArgumentError, match=r"e = eta / rho = 0\.4"):
        PdmmSettings(rho=1, eta=0.2, bregman="squared")


def test_what_does_not_fit_is_refused_before_any_work():
    problem = FusionProblem(SquaredDistance(POINTS), penalty=SquaredL2(), lam=1.0)
    with pytest.raises(InvalidTypeError, match="PDMM solves the l2 penalty"):
        solve(problem, PdmmSettings())
    # Two users: the modes of the pair are steeper than on a large graph.
    small = FusionProblem(SquaredDistance([0.0, 1.0]), lam=0.1)
    with pytest.raises(InvalidArgumentError, match="the rule at coupling"):
        solve(small, PdmmSettings(rho=1.0, eta=0.55))


def test_callback_and_limits():
    problem = FusionProblem(SquaredDistance(POINTS), lam=0.12)
    seen = []
    result = solve(problem, PdmmSettings(check_every=5), callback=lambda p: seen.append(p) or len(seen) == 3)
    assert (result.status, result.n_iter) == ("user_limit", 15)
    assert "the callback asked to stop" in result.message
    assert seen[-1].gap == pytest.approx(result.trace["gap"][2])


@pytest.mark.parametrize("options", [{}, {"scheme": "users", "participation": 0.4, "random_state": 0}])
def test_a_bound_with_fewer_samples_than_features(options):
    rng = np.random.default_rng(0)
    designs = [rng.standard_normal((3, 4)) for _ in range(12)]
    loss = Logistic(designs, [rng.choice([-1.0, 1.0], 3) for _ in range(12)])
    problem = FusionProblem(loss, lam=1 / 12)
    result = solve(problem, PdmmSettings(max_iter=1500, **options))
    assert result.status == "optimal" and result.rel_gap <= 1e-6
    told = reference.solve(problem)
    assert result.dual_objective <= told.objective * (1 + 1e-7)
    assert result.objective == pytest.approx(told.objective, rel=1e-6)


def test_one_node_that_does_not_feel_every_direction():
    problem = FusionProblem(LeastSquares([np.ones((1, 2))], [[3.0]]), lam=0.1)
    result = solve(problem, PdmmSettings(max_iter=100))
    assert result.status == "optimal" and result.objective <= 1e-12
