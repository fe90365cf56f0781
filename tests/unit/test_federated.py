"""Federated systems: the laws that tie them together, and the accounting."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fusionopt import federated
from fusionopt.datasets import (
    ClientData,
    make_conflict,
    make_fedsoft_synthetic,
    make_fpfc_synthetic,
    make_xor,
)
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.federated import (
    Cfl,
    FedAvg,
    FedEm,
    FedSoft,
    Fpfc,
    FpfcL1,
    Ifca,
    KMeansAggregation,
    LinearModel,
    Local,
    Oracle,
    Pdmm,
    PerFedAvg,
    RFedAvg,
    SoftmaxModel,
    SquaredPenalty,
    rfedavg_weights,
    simulate,
)
from fusionopt.federated.cfl import CflState, cosines, split
from fusionopt.federated.per_fed_avg import hessian_products
from fusionopt.federated.rfed_avg import star_cover

SYSTEMS = [
    Cfl,
    FedAvg,
    FedEm,
    FedSoft,
    Fpfc,
    FpfcL1,
    Ifca,
    KMeansAggregation,
    Local,
    Pdmm,
    PerFedAvg,
    RFedAvg,
    SquaredPenalty,
]


@pytest.fixture(scope="module")
def clients():
    return make_fpfc_synthetic(8, 4, random_state=1, max_samples=60)[0]


@pytest.mark.parametrize("system", SYSTEMS)
def test_one_seed_one_history(system, clients):
    first, again = (
        simulate(system(), clients, 3, participation=0.5, random_state=7, labels=[0, 0, 1, 1, 2, 2, 3, 3])
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.state.models, again.state.models)
    assert [r[:-1] for r in first.rounds] == [r[:-1] for r in again.rounds]
    other = simulate(system(), clients, 3, participation=0.5, random_state=8)
    assert not np.array_equal(first.state.models, other.state.models)


@pytest.mark.parametrize("system", SYSTEMS)
def test_history_is_consistent(system, clients):
    history = simulate(system(), clients, 2, random_state=0)
    assert history.final_accuracy == history.client_accuracy.mean()
    assert history.n_clusters == len(np.unique(history.labels)) == history.labels.max() + 1
    frame = history.to_frame()
    assert frame["bytes_up"].sum() == history.bytes_up
    assert frame["round"].tolist() == [1, 2]


def test_final_accuracy_is_that_of_the_models(clients):
    history = simulate(Local(), clients, 4, random_state=0)
    classes = np.unique(np.concatenate([np.concatenate([c.y_train, c.y_test]) for c in clients]))
    shares = []
    for client, model in zip(clients, history.state.models, strict=True):
        w = model.reshape(61, -1)
        shares.append(np.mean(classes[(client.x_test @ w[:60] + w[60]).argmax(axis=1)] == client.y_test))
    assert history.final_accuracy == pytest.approx(np.mean(shares), abs=1e-12)


def test_ifca_with_one_cluster_is_fed_avg(clients):
    one = simulate(Ifca(n_clusters=1), clients, 4, participation=0.5, random_state=3)
    avg = simulate(FedAvg(), clients, 4, participation=0.5, random_state=3)
    np.testing.assert_allclose(one.state.models, avg.state.models, rtol=1e-12, atol=1e-14)
    assert one.bytes_down == avg.bytes_down


def test_ifca_gradient_averaging_with_one_cluster_is_one_step_of_fed_avg(clients):
    one = simulate(Ifca(n_clusters=1, averaging="gradients"), clients, 3, random_state=3)
    avg = simulate(FedAvg(steps=1), clients, 3, random_state=3)
    np.testing.assert_allclose(one.state.models, avg.state.models, rtol=1e-12, atol=1e-14)


def test_ifca_keeps_the_model_that_nobody_takes(clients):
    system = Ifca(n_clusters=30)
    start = system.start(SoftmaxModel().fleet(clients), np.random.default_rng(3))
    history = simulate(system, clients, 1, random_state=3)
    unused = np.setdiff1d(np.arange(30), start.labels)
    assert len(unused) >= 22
    np.testing.assert_array_equal(history.state.centres[unused], start.centres[unused])


def _regressions(n_clients, n_clusters, seed):
    """Clients in interleaved groups, each with its own true parameters."""
    rng = np.random.default_rng(seed)
    theta = 3 * rng.standard_normal((n_clusters, 4))
    labels = np.arange(n_clients) % n_clusters
    data = []
    for label in labels:
        x = rng.standard_normal((20, 4))
        y = x @ theta[label] + 0.1 * rng.standard_normal(20)
        data.append(ClientData(x, y, x, y))
    return data, labels


def test_ifca_finds_the_clusters_by_several_starts_where_one_fails():
    data, labels = _regressions(12, 4, 0)
    options = {"labels": labels, "model": LinearModel(intercept=False), "evaluate_every": 30}
    found = {
        n: [
            simulate(Ifca(n_init=n), data, 30, random_state=seed, **options).rounds[-1].ari == 1
            for seed in range(5)
        ]
        for n in (1, 10)
    }
    assert found == {1: [False, False, True, False, False], 10: [True] * 5}


@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_ifca_keeps_the_start_with_the_smallest_loss(weighting, clients):
    system = Ifca(n_clusters=2, n_init=5, init_rounds=2, weighting=weighting)
    before = simulate(system, clients, 1, 0.5, random_state=4).state
    after = simulate(system, clients, 2, 0.5, random_state=4).state
    later = simulate(system, clients, 3, 0.5, random_state=4).state
    fleet, everyone = SoftmaxModel().fleet(clients), np.arange(8)
    assert before.starts.shape == (5, 2, fleet.dim)
    assert after.starts.shape == later.starts.shape == (1, 2, fleet.dim)
    rng = np.random.default_rng(4)
    state = system.start(fleet, rng)
    for _ in range(2):
        active = system.sample(state, fleet, 4, rng)
        starts = state.starts
        system.round(state, fleet, active, rng)
    weights = fleet.sizes if weighting == "samples" else np.ones(8)
    losses = [
        min(fleet.losses(everyone[[k]], w[None])[0] for w in centres) * weights[k]
        for centres in starts  # changed in place by the round
        for k in everyone
    ]
    best = np.reshape(losses, (5, 8)).sum(axis=1).argmin()
    np.testing.assert_array_equal(after.starts[0], starts[best])
    assert len(np.unique(starts.reshape(5, -1), axis=0)) == 5


def test_ifca_counts_what_its_starts_send(clients):
    dim = SoftmaxModel().fleet(clients).dim
    system = Ifca(n_clusters=2, n_init=3, init_rounds=2)
    rounds = simulate(system, clients, 3, 0.5, random_state=0).rounds
    assert [r.bytes_down / 8 for r in rounds] == [4 * 6 * dim, (4 + 8) * 6 * dim, 4 * 2 * dim]
    assert [r.bytes_up / 8 for r in rounds] == [4 * 3 * (dim + 1), 4 * 3 * (dim + 1) + 8 * 3, 4 * (dim + 1)]
    # A round without an answer after the choice sends the models of one start only.
    fleet, rng = SoftmaxModel().fleet(clients), np.random.default_rng(0)
    state = system.start(fleet, rng)
    for _ in range(2):
        system.round(state, fleet, system.sample(state, fleet, 4, rng), rng)
    system.sample(state, fleet, 4, rng)
    assert system.traffic(state, fleet) == (2 * dim, dim + 1, 0, 0)


def test_nobody_takes_a_diverged_model(clients):
    fleet, rng, system = SoftmaxModel().fleet(clients), np.random.default_rng(0), Ifca(n_clusters=2, n_init=2)
    state = system.start(fleet, rng)
    state.starts[0], state.starts[1, 0] = np.nan, np.nan
    system.round(state, fleet, np.array([0]), rng)
    state.starts[0], state.starts[1, 0] = np.nan, np.nan
    system.round(state, fleet, np.array([0]), rng)
    assert state.best == 1
    assert (state.labels == 1).all()


def test_oracle_with_one_cluster_is_fed_avg_and_with_all_is_local(clients):
    for labels, other in (([0] * 8, FedAvg()), (range(8), Local())):
        oracle = simulate(Oracle(labels=list(labels)), clients, 3, random_state=3)
        np.testing.assert_allclose(
            oracle.state.models,
            simulate(other, clients, 3, random_state=3).state.models,
            rtol=1e-12,
            atol=1e-14,
        )


def test_bytes(clients):
    dim = 61 * len(np.unique(np.concatenate([np.concatenate([c.y_train, c.y_test]) for c in clients])))
    history = simulate(FedAvg(), clients, 3, participation=0.25, random_state=0)
    assert history.bytes_up == history.bytes_down == 3 * 2 * dim * 8
    assert simulate(Ifca(), clients, 1, random_state=0).bytes_down == 8 * 4 * dim * 8
    assert simulate(Local(), clients, 1, random_state=0).bytes_up == 0


def _all_bipartitions(alpha):
    """Largest similarity across, for every bipartition: (left sides as bits, worst)."""
    m = len(alpha)
    sides = 2 * np.arange(2 ** (m - 1), dtype=np.int64) + 1  # client 0 on the left
    sides = sides[:-1]  # not everybody
    bits = (sides[:, None] >> np.arange(m)) & 1
    worst = np.full(len(sides), -np.inf)
    for i, j in combinations(range(m), 2):
        np.maximum(worst, alpha[i, j], out=worst, where=bits[:, i] != bits[:, j])
    return bits, worst


def test_cfl_split_is_the_best_of_all_bipartitions():
    rng = np.random.default_rng(0)
    unique = 0
    for case in range(300):
        m = int(rng.integers(2, 13))
        # Half of the cases have many ties, half have none.
        updates = (
            rng.integers(-1, 2, (m, 3)).astype(float)
            if case % 2
            else rng.standard_normal((m, int(rng.integers(1, 9))))
        )
        state = CflState(updates.copy(), np.zeros(m, dtype=np.int64), updates, np.ones(m, dtype=bool), 1.0)
        split(state, np.arange(m))
        alpha = cosines(updates)
        bits, worst = _all_bipartitions(alpha)
        left = (state.labels == state.labels[0]).astype(np.int64)
        mine = worst[np.flatnonzero((bits == left).all(axis=1))]
        assert len(mine) == 1  # a bipartition
        assert mine[0] == worst.min()
        unique += np.sum(worst == worst.min()) == 1
    assert 100 < unique < 290


def test_cfl_names_clients_rightly_at_levels_two_and_three():
    # Clusters {0, 3, 6}, {1, 4}, {2}, {5, 7}: opposite at the top, then the less similar inside.
    directions = {0: [1, 0, 0], 1: [1, 1.5, 0], 2: [1, 1.5, 3], 3: [-1, -0.5, -1]}
    truth = np.array([0, 1, 2, 0, 1, 3, 0, 3])
    updates = np.array([directions[t] for t in truth], dtype=float)
    state = CflState(updates.copy(), np.zeros(8, dtype=np.int64), updates, np.ones(8, dtype=bool), 1.0)
    while True:
        mixed = [c for c in np.unique(state.labels) if len(set(truth[state.labels == c])) > 1]
        if not mixed:
            break
        split(state, np.flatnonzero(state.labels == mixed[0]))
    assert len(np.unique(state.labels)) == 4
    for t in range(4):
        assert len(np.unique(state.labels[truth == t])) == 1


def test_cfl_names_clients_rightly_at_every_level_of_random_trees():
    """Clients in random order, in a binary tree of clusters three levels deep: splits follow the tree."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        m = 16
        truth = rng.permutation(np.repeat(np.arange(8), 2))
        # Directions that share the first branches have the larger cosine.
        axes = np.eye(14)
        codes = np.array([8.0 * axes[c // 4] + 3.0 * axes[2 + c // 2] + 1.0 * axes[6 + c] for c in range(8)])
        updates = codes[truth] + 0.01 * rng.standard_normal((m, 14))
        state = CflState(updates.copy(), np.zeros(m, dtype=np.int64), updates, np.ones(m, dtype=bool), 1.0)
        for level in (1, 2, 3):
            for label in np.unique(state.labels):
                split(state, np.flatnonzero(state.labels == label))
            branch = truth // 2 ** (3 - level)
            assert adjusted_rand_score(branch, state.labels) == 1.0


def test_cfl_cosines_are_plus_and_minus_one_where_fed_avg_ends():
    """Two clusters of clients with the same data inside: (3) and (4) of the paper."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 30, 3))
    y = [x[c] @ rng.standard_normal(3) + rng.standard_normal(30) for c in (0, 1)]
    truth = np.array([0, 1, 1, 0, 1])
    data = [ClientData(x[c], y[c], x[c], y[c]) for c in truth]
    model = LinearModel()
    end = simulate(FedAvg(steps=1, rate=0.3), data, 400, random_state=0, model=model).state.models
    alpha = cosines(model.fleet(data).gradients(np.arange(5), end))
    np.testing.assert_allclose(alpha, np.where(truth[:, None] == truth, 1.0, -1.0), atol=1e-9)


@pytest.mark.parametrize("make", [make_xor, make_conflict])
def test_cfl_solves_the_toys_that_one_linear_model_cannot(make):
    clients, labels = make(8, random_state=1)
    cfl = simulate(Cfl(rate=0.5), clients, 60, random_state=1, labels=labels)
    assert cfl.rounds[-1].ari == 1.0
    assert cfl.final_accuracy > 0.99
    assert simulate(FedAvg(rate=0.5), clients, 60, random_state=1).final_accuracy < 0.6


def _opposed(n=60, seed=0):
    """Four clients in two interleaved groups whose labels are opposed: one model cannot serve both."""
    rng = np.random.default_rng(seed)
    out = []
    for k in range(4):
        x = rng.standard_normal((n, 2))
        y = (x[:, 0] > 0).astype(int) if k % 2 == 0 else (x[:, 0] <= 0).astype(int)
        out.append(ClientData(x, y, x, y))
    return out


def test_cfl_finds_two_opposed_groups():
    history = simulate(Cfl(steps=5, rate=0.5), _opposed(), 40, random_state=0)
    assert history.labels[0] == history.labels[2] != history.labels[1] == history.labels[3]
    assert history.final_accuracy > 0.95
    assert simulate(FedAvg(steps=5, rate=0.5), _opposed(), 40, random_state=0).final_accuracy < 0.7


def test_cfl_waits_until_every_member_has_sent_an_update():
    system, fleet = Cfl(steps=5, rate=0.5, eps_1=1e9, eps_2=1e-9), SoftmaxModel().fleet(_opposed())
    rng = np.random.default_rng(0)
    state = system.start(fleet, rng)
    system.round(state, fleet, np.array([0, 1]), rng)
    assert len(np.unique(state.labels)) == 1
    system.round(state, fleet, np.array([2, 3]), rng)
    assert len(np.unique(state.labels)) == 2
    assert not state.known.any()


def test_ifca_finds_two_opposed_groups():
    history = simulate(Ifca(n_clusters=2, rate=0.5), _opposed(), 20, random_state=1)
    assert history.labels.tolist() == [0, 1, 0, 1]


def test_fed_em_with_one_component_is_fed_avg(clients):
    em = simulate(FedEm(n_components=1), clients, 4, participation=0.5, random_state=3)
    avg = simulate(FedAvg(), clients, 4, participation=0.5, random_state=3)
    np.testing.assert_allclose(em.state.models, avg.state.models, rtol=1e-12, atol=1e-14)
    assert em.final_accuracy == avg.final_accuracy
    assert (em.bytes_down, em.bytes_up) == (avg.bytes_down, avg.bytes_up)


def test_fed_em_mixes_probabilities(clients):
    system = FedEm(n_components=3)
    history = simulate(system, clients, 3, random_state=3)
    state, fleet = history.state, SoftmaxModel().fleet(clients)
    np.testing.assert_allclose(state.pi.sum(axis=1), 1.0, rtol=1e-12)
    told = system.predict(state, fleet)
    sizes = [len(c.x_test) for c in clients]
    x, k = np.column_stack([clients[2].x_test, np.ones(sizes[2])]), 2
    eta = [x @ w.reshape(61, -1) for w in state.centres]
    parts = [np.exp(e) / np.exp(e).sum(axis=1, keepdims=True) for e in eta]
    np.testing.assert_allclose(
        told[sum(sizes[:2]) : sum(sizes[:3])],
        sum(p * part for p, part in zip(state.pi[k], parts, strict=True)),
        rtol=1e-10,
    )


def test_rfedavg_weights():
    """They sum to one, are never negative, and 1 / p is proportional to D - D_Cn where no device has more of a class
    than D / M, as in the paper."""
    rng = np.random.default_rng(2)
    for _ in range(200):
        counts = rng.integers(0, 20, (12, 5)) + np.eye(5, dtype=int)[rng.integers(0, 5, 12)]
        counts = np.minimum(counts, counts.sum() // 5)
        clusters = [part.tolist() for part in np.array_split(rng.permutation(12), rng.integers(1, 6))]
        p = rfedavg_weights(counts, clusters)
        assert p.sum() == pytest.approx(1.0, abs=1e-12)
        assert p.min() >= 0
        if len(clusters) == 1:
            continue
        inverse = np.array([1 / (counts.sum() - counts[part].sum()) for part in clusters])
        np.testing.assert_allclose(p, inverse / inverse.sum(), rtol=1e-9)
    for _ in range(200):  # any counts at all, one device with nearly everything included
        counts = rng.integers(0, 3, (6, 4)) * rng.integers(1, 10 ** int(rng.integers(1, 7)), (6, 1))
        counts[:, 0] += 1
        clusters = [part.tolist() for part in np.array_split(rng.permutation(6), rng.integers(1, 5))]
        p = rfedavg_weights(counts, clusters)
        assert p.sum() == pytest.approx(1.0, abs=1e-12)
        assert p.min() >= 0


def test_rfed_avg_with_every_client_in_one_cluster_is_fed_avg():
    # One cluster at first: every client has the same data, so all cosines are one.
    same = [_opposed()[0]] * 3
    rfed = simulate(RFedAvg(), same, 2, random_state=3)
    assert [part.tolist() for part in rfed.state.groups] == [[0, 1, 2]]
    avg = simulate(FedAvg(), same, 2, random_state=3)
    np.testing.assert_allclose(rfed.state.models, avg.state.models, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("weights", ["uniform", "optimal", "rfedavg"])
def test_rfed_avg_separates_opposed_groups(weights):
    history = simulate(RFedAvg(weights=weights, steps=1, angle=0.7), _opposed(), 1, random_state=0)
    assert {frozenset(part.tolist()) for part in history.state.groups} == {
        frozenset([0, 2]),
        frozenset([1, 3]),
    }


def test_k_means_separates_opposed_groups():
    history = simulate(KMeansAggregation(n_clusters=2), _opposed(), 1, random_state=0)
    assert {frozenset(part.tolist()) for part in history.state.groups} == {
        frozenset([0, 2]),
        frozenset([1, 3]),
    }


def test_star_cover_takes_the_largest_star_first():
    alpha = np.array([[1, 0.9, 0, 0], [0.9, 1, 0.9, 0], [0, 0.9, 1, 0.9], [0, 0, 0.9, 1]])
    assert [part.tolist() for part in star_cover(alpha, 0.5)] == [[0, 1, 2], [3]]


def test_fed_soft_contracts_at_full_participation(clients):
    """Two sets of centres under one round with exact local solves and u fixed."""
    system = FedSoft(n_clusters=2, lam=1.0, ridge=0.5, rate=0.3, steps=300, interval=100, sigma=1e-9)
    fleet, rng = SoftmaxModel().fleet(clients), np.random.default_rng(0)
    for _ in range(3):
        states = [system.start(fleet, rng) for _ in range(2)]
        states[1].u = states[0].u = rng.dirichlet([1.0, 1.0], fleet.n_clients)
        before = np.linalg.norm(states[0].centres - states[1].centres, axis=1).max()
        for state in states:
            active = system.sample(state, fleet, fleet.n_clients, rng)
            system.round(state, fleet, active, rng)
        after = np.linalg.norm(states[0].centres - states[1].centres, axis=1).max()
        assert 0 < after <= before * system.lam / (system.lam + system.ridge) * (1 + 1e-9)


def test_fed_soft_centres_lie_where_the_published_ones_do():
    """On the segment between the true models, at the places that the errors of Table 1 imply, within 0.1; with
    replacement and all clients they come nearer the ends."""
    clients, _, theta = make_fedsoft_synthetic("10:90", random_state=1)
    options = {"n_clusters": 2, "lam": 1.0, "steps": 20}
    model = LinearModel(intercept=False)
    along = theta[1] - theta[0]
    found = []
    for system, share in ((FedSoft(**options, replacement=False), 0.6), (FedSoft(**options), 1.0)):
        history = simulate(system, clients, 40, share, random_state=1, model=model, evaluate_every=40)
        at = np.sort((history.state.centres - theta[0]) @ along / (along @ along))
        found.append(at)
        off = (
            history.state.centres
            - theta[0]
            - ((history.state.centres - theta[0]) @ along / (along @ along))[:, None] * along
        )
        assert np.linalg.norm(off, axis=1).max() < 0.05 * np.linalg.norm(along)
    np.testing.assert_allclose(found[0], [0.36, 0.59], atol=0.1)
    assert found[1][0] < found[0][0] < found[0][1] < found[1][1]


def test_fed_soft_draws_from_all_clients_by_importance(clients):
    system, fleet, rng = FedSoft(n_clusters=2), SoftmaxModel().fleet(clients), np.random.default_rng(0)
    state = system.start(fleet, rng)
    v = system.chances(state, fleet)
    np.testing.assert_allclose(v.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(v[0] / v[0, 0], state.u[:, 0] * fleet.sizes / (state.u[0, 0] * fleet.sizes[0]))
    active = system.sample(state, fleet, 3, rng)
    assert [len(drawn) for drawn in state.draws] == [3, 3]
    system.round(state, fleet, active, rng)
    np.testing.assert_allclose(state.centres[1], state.models[state.draws[1]].mean(axis=0), rtol=1e-12)


def test_per_fed_avg_hessian_free_is_the_exact_hessian(clients):
    fleet, rng = SoftmaxModel().fleet(clients), np.random.default_rng(0)
    everyone = np.arange(fleet.n_clients)
    w = 0.3 * rng.standard_normal((fleet.n_clients, fleet.dim))
    H = fleet.loss.hessians_at(w)
    np.testing.assert_allclose(fleet.gradients(everyone, w), fleet.loss.gradient(w), rtol=1e-9, atol=1e-13)
    for length in (1e-6, 1.0, 1e6):
        g = length * rng.standard_normal(w.shape)
        exact = np.einsum("kij,kj->ki", H, g)
        error = np.abs(hessian_products(fleet, everyone, w, g) - exact).max(axis=1)
        assert (error <= 1e-7 * np.abs(exact).max(axis=1)).all()
    system = PerFedAvg(alpha=0.2)
    g = fleet.loss.gradient(w - 0.2 * fleet.loss.gradient(w))
    np.testing.assert_allclose(
        system.meta_gradients(fleet, everyone, w, rng),
        g - 0.2 * np.einsum("kij,kj->ki", H, g),
        rtol=0,
        atol=1e-7 * np.abs(g).max(),
    )


def test_per_fed_avg_variants(clients):
    fleet, rng = SoftmaxModel().fleet(clients), np.random.default_rng(0)
    some = np.array([0, 3])
    w = fleet.first_models(rng, 2)
    ahead = w - 0.1 * fleet.gradients(some, w)
    first = PerFedAvg(variant="first_order").meta_gradients(fleet, some, w, rng)
    np.testing.assert_array_equal(first, fleet.gradients(some, ahead))
    batched = simulate(PerFedAvg(batch=5), clients, 1, random_state=0)
    assert not np.array_equal(
        batched.state.shared, simulate(PerFedAvg(), clients, 1, random_state=0).state.shared
    )
    tuned = simulate(PerFedAvg(variant="fine_tune"), clients, 2, random_state=0).state
    averaged = simulate(FedAvg(weighting="uniform"), clients, 2, random_state=0).state
    np.testing.assert_allclose(tuned.shared, averaged.models[0], rtol=1e-12, atol=1e-14)


def test_squared_penalty_settles_where_its_gradient_vanishes():
    lam, fleet = 0.05, SoftmaxModel().fleet(_opposed())
    state = simulate(SquaredPenalty(lam=lam, rate=2.0), _opposed(), 150, random_state=0).state
    slopes = fleet.gradients(np.arange(4), state.models)
    pulls = 2 * lam * (4 * state.models - state.models.sum(axis=0))
    np.testing.assert_allclose(slopes + pulls, 0.0, atol=1e-6)
    assert np.abs(slopes).max() > 1e-2


def test_callback_stops(clients):
    history = simulate(FedAvg(), clients, 5, random_state=0, callback=lambda r: r.round == 2)
    assert len(history.rounds) == 2


def test_plot_has_one_point_a_round(clients):
    ax = simulate(FedAvg(), clients, 3, random_state=0).plot()
    assert len(ax.lines[0].get_xdata()) == 3


def test_systems_construct_with_nothing():
    for name in federated.__all__:
        kind = getattr(federated, name)
        if isinstance(kind, type) and issubclass(kind, federated.System) and kind is not federated.System:
            assert kind() == kind()


def test_misuse(clients):
    with pytest.raises(InvalidTypeError, match=r"system is a ABCMeta; give a System"):
        simulate(FedAvg, clients, 1)
    with pytest.raises(InvalidArgumentError, match=r"Oracle has no labels; give the true cluster"):
        simulate(Oracle(), clients, 1)
    with pytest.raises(InvalidArgumentError, match=r"clients is empty"):
        simulate(FedAvg(), [], 1)
    with pytest.raises(InvalidTypeError, match=r"clients\[0\] is a int; give records with x_train"):
        simulate(FedAvg(), [3], 1)
    with pytest.raises(InvalidArgumentError, match=r"0 < participation <= 1"):
        simulate(FedAvg(), clients, 1, participation=0.0)
    x = np.ones((2, 1))
    with pytest.raises(InvalidArgumentError, match="one class only"):
        simulate(FedAvg(), [ClientData(x, [0, 0], x, [0, 0])], 1)
    with pytest.raises(InvalidArgumentError, match="the clients before have 1"):
        simulate(
            FedAvg(), [ClientData(x, [0, 1], x, [0, 1]), ClientData(np.ones((2, 2)), [0, 1], x, [0, 1])], 1
        )
    for wrong in (
        lambda: FedAvg(steps=0),
        lambda: FedAvg(rate=-1.0),
        lambda: FedAvg(weighting="none"),
        lambda: Ifca(n_clusters=0),
        lambda: Ifca(averaging="none"),
        lambda: Ifca(n_init=0),
        lambda: Ifca(init_rounds=0),
        lambda: Cfl(eps_1=0.0),
        lambda: FedEm(n_components=0),
        lambda: FedSoft(lam=-1.0),
        lambda: FedSoft(interval=0),
        lambda: KMeansAggregation(n_clusters=0),
        lambda: PerFedAvg(variant="none"),
        lambda: PerFedAvg(batch=0),
        lambda: RFedAvg(weights="none"),
        lambda: SquaredPenalty(lam=-1.0),
        lambda: Cfl(min_size=1),
    ):
        with pytest.raises(InvalidArgumentError, match="give"):
            wrong()
    for wrong in (lambda: FedSoft(sigma=1.0), lambda: RFedAvg(angle=2.0)):
        with pytest.raises(InvalidArgumentError, match="breaks 0 < "):
            wrong()
