"""`recovery.verify` on generated numbers and on runs that these tests make themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.recovery import verify
from fusionopt.recovery.papers import fpfc_constants


def test_all_generated_corrections_hold():
    for seed in range(6):
        report = verify(random_state=seed)
        assert len(report) == 5
        assert report.holds, str(report)


def test_the_report_states_both_readings():
    text = str(verify("fedsoft-5"))
    assert "as printed FAILS" in text and "corrected holds" in text
    assert "argmin sum_k n_k h_k" in text


# FPFC: a run of Algorithm 1 on quadratics with the exact prox of the smoothed SCAD penalty ---------------------------

LAM, XI, A, RHO = 0.6, 0.5, 3.7, 3.5


def slope(t):
    return np.where(
        t <= XI, LAM * t / XI, np.where(t <= LAM, LAM, np.clip((A * LAM - t) / (A - 1), 0.0, None))
    )


def shrink(r):
    """argmin over t of the surrogate plus RHO/2 (t - r)^2, from its four pieces."""
    steep = ((A - 1) * RHO * r - A * LAM) / ((A - 1) * RHO - 1)
    return np.where(
        r <= XI + LAM / RHO,
        XI * RHO * r / (LAM + XI * RHO),
        np.where(r <= LAM + LAM / RHO, r - LAM / RHO, np.where(r <= A * LAM, steep, r)),
    )


def fpfc(rng, active_count, rounds, m=6, d=2, local=12):
    """Squared norms after every round, the constants of the run and F at the start."""
    curvature = rng.uniform(0.5, 1.0, size=m)
    targets = rng.standard_normal((m, d)) + 3.0 * (np.arange(m) % 2)[:, None]
    alpha = 1.0 / (1.0 + 2 * RHO)
    w, theta, v = np.zeros((m, d)), np.zeros((m, m, d)), np.zeros((m, m, d))
    objective = 0.5 * float((curvature[:, None] * targets**2).sum())
    rows = []
    for _ in range(rounds):
        active = rng.choice(m, active_count, replace=False)
        anchor = np.mean(w[None] + theta - v / RHO, axis=1)
        for i in active:
            for _ in range(local):
                w[i] -= alpha * (curvature[i] * (w[i] - targets[i]) + RHO * (w[i] - anchor[i]))
        for i in active:
            for j in active:
                if i < j:
                    delta = w[i] - w[j] + v[i, j] / RHO
                    r = float(np.linalg.norm(delta))
                    theta[i, j] = delta * (float(shrink(r)) / r if r else 0.0)
                    v[i, j] = RHO * (delta - theta[i, j])
                    theta[j, i], v[j, i] = -theta[i, j], -v[i, j]
        gradient = curvature[:, None] * (w - targets) + v.mean(axis=1)
        size = np.linalg.norm(theta, axis=2)
        # v is the slope of the surrogate; prox of the penalty itself at theta + v, unit step, gives back
        # theta where the slope is LAM or less steep, and moves by (LAM - slope) below the knee.
        moved = np.minimum(size, LAM - np.minimum(slope(size), LAM)) * (size < XI)
        residual = (w[:, None] - w[None] - theta) / (2 * m)
        rows.append([(gradient**2).sum(), (moved**2).sum(), (residual**2).sum()])
    columns = np.array(rows).T
    share = active_count / m
    return {
        "trace": {
            "gradient_squares": columns[0],
            "prox_squares": columns[1],
            "residual_squares": columns[2],
            "time": np.arange(rounds),
        },
        "objective_start": objective,
        "lipschitz": 1.0,
        "curvature_below": 1e-3,
        "lam": LAM,
        "xi": XI,
        "a": A,
        "rho": RHO,
        "alpha": alpha,
        "n_local_steps": local,
        "n_nodes": m,
        "participation": share,
        "pair_participation": share * (active_count - 1) / (m - 1),
    }


def test_fpfc_theorem_1_holds_on_a_run_and_fails_when_pairs_never_meet():
    run = fpfc(np.random.default_rng(0), 6, 200)
    (finding,) = verify("fpfc-1", **run)
    assert finding.holds and finding.holds_corrected
    # One device at a time: each takes part with probability 1/6 > 0, as the printed assumption asks, but no
    # pair is ever updated.
    alone = fpfc(np.random.default_rng(0), 1, 3000)
    (finding,) = verify("fpfc-1", **alone)
    assert finding.figures["printed_conditions"] == 1.0
    assert not finding.holds and finding.margin < 0
    assert not finding.holds_corrected and "FAIL in the corrected form" in finding.assumption


def test_fpfc_constants_of_the_recorded_example():
    given = {
        "lipschitz": 1.47,
        "curvature_below": 1e-3,
        "lam": 0.6,
        "xi": 0.05,
        "a": 3.7,
        "rho": 25.2,
        "alpha": 1 / (1.47 + 50.4 - 1e-3),
        "n_nodes": 12,
        "participation": 1.0,
        "pair_participation": 1.0,
    }
    three = fpfc_constants(n_local_steps=3, **given)
    assert three["printed_conditions"] == 1.0 and three["corrected_conditions"] == 0.0
    assert three["first_denominator"] == pytest.approx(-5.5, abs=0.05) and math.isnan(three["C_1"])
    four = fpfc_constants(n_local_steps=4, **given)
    assert four["corrected_conditions"] == 1.0 and four["first_denominator"] == pytest.approx(5.9, abs=0.05)
    assert four["C_1"] > 0


# CFL ----------------------------------------------------------------------------------------------------------------


def test_three_symmetric_groups_break_the_cosines_but_not_the_order():
    angles = 2 * np.pi * np.arange(3) / 3
    gradients = np.repeat(np.stack([np.cos(angles), np.sin(angles)], axis=1), 2, axis=0)
    (finding,) = verify("cfl-4", gradients=gradients, labels=[0, 0, 1, 1, 2, 2])
    assert not finding.holds and finding.figures["largest_across"] == pytest.approx(-0.5)
    assert finding.holds_corrected


def test_a_skewed_third_group_breaks_the_order_too():
    gradients = [[1.0, 0.3], [1.0, -0.3], [1.0, 0.1], [-3.0, -0.1]]
    (finding,) = verify("cfl-4", gradients=gradients, labels=[0, 0, 1, 2])
    assert finding.figures["largest_across"] > 0.95
    assert not finding.holds and not finding.holds_corrected


def test_a_large_split_is_held_against_the_spanning_tree():
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((40, 3))
    (finding,) = verify("cfl-6", similarity=rows @ rows.T)
    assert finding.holds and "lower bound" in finding.assumption


# FedSoft ------------------------------------------------------------------------------------------------------------


def soft_run(rng, rounds, chosen=None, clients=20):
    u = rng.dirichlet(np.ones(2), size=clients)
    n = rng.integers(100, 200, size=clients).astype(float)
    a = rng.standard_normal((clients, 3))
    h = np.array([(q := rng.standard_normal((3, 3))) @ q.T / 3 + 0.3 * np.eye(3) for _ in range(clients)])
    lam, c = 1.0, rng.standard_normal((2, 3))
    solver = np.linalg.inv(h + lam * np.eye(3))
    weights = u * n[:, None] / (u * n[:, None]).sum(axis=0)
    centers = [c]
    for _ in range(rounds):
        w = np.einsum("kab,kb->ka", solver, np.einsum("kab,kb->ka", h, a) + lam * u @ c)
        if chosen is None:
            c = weights.T @ w
        else:
            c = np.array([w[rng.choice(clients, chosen, p=weights[:, s])].mean(axis=0) for s in range(2)])
        centers.append(c)
    return {
        "hessians": h,
        "minimisers": a,
        "importance": u,
        "sizes": n,
        "lam": lam,
        "centers": np.array(centers),
    }


def test_fedsoft_reaches_the_weighted_minimiser_at_the_rate():
    (finding,) = verify("fedsoft-5", **soft_run(np.random.default_rng(1), 200))
    figures = finding.figures
    assert finding.holds_corrected and not finding.holds
    assert figures["distance_to_argmin_sum_n_h"] < 1e-12 < 1e-3 < figures["distance_to_argmin_sum_h"]
    assert figures["factor"] == pytest.approx(figures["spectral_radius"], rel=0.1)
    assert figures["factor"] <= figures["factor_bound"]


def test_fedsoft_with_sampled_clients_does_not_converge_linearly():
    (finding,) = verify("fedsoft-5", **soft_run(np.random.default_rng(1), 200, chosen=6))
    assert not finding.holds and not finding.holds_corrected
    assert finding.figures["distance_to_argmin_sum_n_h"] > 1e-2


# RFedAvg ------------------------------------------------------------------------------------------------------------


def test_the_printed_bound_fails_and_the_corrected_one_holds():
    held = [verify("rfedavg-15", random_state=seed)[0] for seed in range(30)]
    assert all(finding.holds_corrected for finding in held)
    assert any(not finding.holds for finding in held)


def test_a_balanced_clustering_gains_nothing_and_one_cluster_has_no_weights():
    (finding,) = verify("rfedavg-q1", class_counts=[[5, 1], [1, 5], [3, 3]], clusters=[[0, 1, 2]])
    assert not finding.holds and finding.margin == -math.inf
    assert finding.holds_corrected


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: verify("cfl-5"), InvalidArgumentError, "cfl-4"),
        (lambda: verify("fpfc-1"), InvalidArgumentError, "cannot be generated"),
        (
            lambda: verify("fpfc-1", trace={}, objective_start=1.0, lam=1.0, xi=0.1, n_nodes=2),
            InvalidArgumentError,
            "trace has no column 'gradient_squares'",
        ),
        (lambda: verify(similarity=np.eye(2)), InvalidArgumentError, "without a statement"),
        (lambda: verify("cfl-6", alpha=np.eye(2)), InvalidArgumentError, "cfl-6: .*alpha"),
        (
            lambda: verify("cfl-4", gradients=[[0.0], [1.0]], labels=[0, 1]),
            InvalidArgumentError,
            "gradient 0 is zero",
        ),
        (lambda: verify("cfl-4", random_state=0.5), InvalidTypeError, "random_state"),
        (
            lambda: verify(
                "fedsoft-5",
                hessians=np.ones((2, 1, 1)),
                minimisers=[[1.0], [2.0]],
                importance=[[1.0]],
                sizes=[1, 1],
                lam=1,
            ),
            InvalidArgumentError,
            r"must be \(N, d, d\)",
        ),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


RUN = {
    "trace": {name: [1.0, 0.5] for name in ("gradient_squares", "prox_squares", "residual_squares")},
    "objective_start": 10.0,
    "lam": 0.6,
    "xi": 0.05,
    "n_nodes": 12,
    "lipschitz": 1.5,
    "curvature_below": 0.0,
    "a": 3.7,
    "rho": 30.0,
    "alpha": 0.016,
    "n_local_steps": 10,
    "participation": 1.0,
    "pair_participation": 1.0,
}
ROUND = dict.fromkeys(
    (
        "lipschitz",
        "gradient_bound",
        "step",
        "distance",
        "next_distance",
        "next_gap",
        "reference",
        "smoothness",
    ),
    1.0,
) | {"shift": 0.1}
SOFT = {
    "hessians": np.array([np.eye(2)] * 3),
    "minimisers": np.zeros((3, 2)),
    "importance": np.full((3, 2), 0.5),
    "sizes": [1, 2, 3],
    "lam": 1.0,
}


@pytest.mark.parametrize(
    ("statement", "numbers", "name"),
    [
        *(
            ("fpfc-1", RUN | {name: 0}, name)
            for name in ("xi", "n_nodes", "a", "n_local_steps", "participation")
        ),
        ("fpfc-1", RUN | {"trace": RUN["trace"] | {"prox_squares": [1.0]}}, "2, 1, 2 rows"),
        ("fpfc-1", RUN | {"trace": {key: [] for key in RUN["trace"]}}, "0, 0, 0 rows"),
        ("fpfc-1", RUN | {"trace": 3}, "trace is a int"),
        ("fpfc-1", RUN | {"pair_participation": 2}, "pair_participation=2"),
        ("rfedavg-15", ROUND | {"shift": np.nan}, "shift=nan"),
        ("rfedavg-15", ROUND | {"step": -1.0}, "step=-1.0"),
        ("rfedavg-15", ROUND | {"step": "a"}, "step='a'"),
        ("fedsoft-5", SOFT | {"hessians": -SOFT["hessians"]}, "positive definite"),
        ("fedsoft-5", SOFT | {"hessians": SOFT["hessians"] + np.triu(np.ones((2, 2)), 1)}, "symmetric"),
        ("rfedavg-q1", {"class_counts": np.ones((3, 2)), "clusters": [[0.5], [1]]}, "whole client numbers"),
        ("rfedavg-q1", {"class_counts": np.ones((3, 2)), "clusters": 3}, "clusters is empty"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(statement, numbers, name):
    with pytest.raises((InvalidArgumentError, InvalidTypeError), match=name):
        verify(statement, **numbers)


def test_statements_at_zero_and_in_extreme_units():
    assert verify("fedsoft-5", **SOFT).holds  # all minimisers are zero
    for unit in (1e-200, 1.0, 1e200):
        finding = verify("cfl-4", gradients=unit * np.array([[1.0, 2.0], [-2.0, -4.0]]), labels=[0, 1])[0]
        assert finding.holds and finding.figures["balance"] == pytest.approx(1 / 3)
