"""Fpfc, FpfcL1 and Pdmm as federated systems: the solvers' rounds and their optima."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import FpfcSettings, FusionProblem, Graph, SmoothedScad, solve
from fusionopt.datasets import ClientData, make_fpfc_synthetic
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.federated import Fpfc, FpfcL1, LinearModel, Pdmm, SoftmaxModel, simulate
from fusionopt.methods.fpfc import FpfcSession

MODEL = LinearModel(intercept=False)


@pytest.fixture(scope="module")
def regressions():
    """Six clients in two interleaved groups."""
    rng = np.random.default_rng(0)
    out = []
    for k in range(6):
        x = rng.standard_normal((20, 2))
        y = x @ [[1.0, 2.0], [-3.0, 1.0]][k % 2] + 0.3 * rng.standard_normal(20)
        out.append(ClientData(x, y, x, y))
    return out


def test_fpfc_takes_the_rounds_of_the_solver_bit_for_bit():
    clients, _ = make_fpfc_synthetic(6, 3, random_state=1, max_samples=40)
    state = simulate(Fpfc(lam=0.5, rho=1.0), clients, 8, random_state=0).state
    fleet = SoftmaxModel().fleet(clients)
    session = FpfcSession(
        FusionProblem(fleet.loss, Graph.complete(6, weight=1 / 6), SmoothedScad(), 0.5),
        FpfcSettings(alpha=0.1, rho=1.0, local_steps=10),
        np.repeat(fleet.first_models(np.random.default_rng(0), 1), 6, axis=0),
    )
    for _ in range(8):
        session.round()
    np.testing.assert_array_equal(session.server.x, state.models)


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("kind", ["pdmm", "fpfc-l1"])
def test_convex_systems_reach_the_certified_optimum(kind, participation, regressions):
    # FPFC counts a pair 1/m times: lam = 0.6 there is 0.1 in the canonical scale.
    system = (
        Pdmm(lam=0.1, rate=0.3, steps=20) if kind == "pdmm" else FpfcL1(lam=0.6, rate=0.3, steps=20, nu=1e-3)
    )
    history = simulate(
        system, regressions, 300, participation, random_state=0, model=MODEL, labels=[0, 1] * 3
    )
    problem = FusionProblem(MODEL.fleet(regressions).loss, lam=0.1)
    best = solve(problem)
    assert best.status == "optimal"
    assert problem.objective(history.state.models) <= best.objective * (1 + 1e-6)
    assert history.rounds[-1].ari == 1.0
    np.testing.assert_array_equal(history.labels, best.labels)


def test_fpfc_is_less_biased_than_its_convex_variant(regressions):
    """Beyond a lam the concave penalty exerts no force: the clusters' models are their own least squares fits."""
    history = simulate(
        Fpfc(lam=0.6, rate=0.3, steps=20, nu=0.1), regressions, 300, random_state=0, model=MODEL
    )
    assert history.labels.tolist() == [0, 1] * 3
    convex = simulate(FpfcL1(lam=0.6, rate=0.3, steps=20), regressions, 300, random_state=0, model=MODEL)
    for label in (0, 1):
        x, y = (
            np.concatenate([getattr(c, part) for c in regressions[label::2]])
            for part in ("x_train", "y_train")
        )
        fit = np.linalg.lstsq(x, y, rcond=None)[0]
        own = np.linalg.norm(history.cluster_models[label] - fit)
        assert own < 0.02 < np.linalg.norm(convex.state.models[label] - fit)


def test_one_client_is_local(regressions):
    for system in (Fpfc(), FpfcL1(), Pdmm()):
        assert simulate(system, regressions[:1], 2, random_state=0, model=MODEL).n_clusters == 1


def test_misuse():
    for wrong in (
        lambda: Fpfc(lam=-1.0),
        lambda: Fpfc(nu=-1.0),
        lambda: Pdmm(lam=-1.0),
        lambda: Pdmm(rho=0.0),
    ):
        with pytest.raises(InvalidArgumentError, match="give"):
            wrong()
    with pytest.raises(InvalidArgumentError, match=r"rho > 1 / \(a - 1\)"):
        Fpfc(rho=0.3)
    for system in (Fpfc, Pdmm):
        for wrong in (3, [3]):
            with pytest.raises(InvalidTypeError, match=r"holds what is no name of a layer; give names"):
                system(layers=wrong)
        with pytest.raises(InvalidArgumentError, match="layers is empty"):
            system(layers=[])
    with pytest.raises(InvalidArgumentError, match="no named layers"):
        simulate(Fpfc(layers=["last"]), make_fpfc_synthetic(4, 2, 0, 50)[0], 1)
