"""Printed and corrected conditions of the FPFC theorem."""

from __future__ import annotations

import math

import pytest

from fusionopt.errors import InvalidArgumentError
from fusionopt.recovery import check_fpfc_parameters


def test_the_printed_conditions_can_hold_where_the_constant_is_negative():
    # theory.md section 5: rho = 25.2, L_f = 1.47; T = 3 passes as printed, T = 4 is the first that is sound.
    common = {"lipschitz": 1.47, "lam": 0.6, "xi": 0.05, "rho": 25.2, "alpha": 1 / (1.47 + 50.4)}
    short, long = (check_fpfc_parameters(local_steps=T, **common) for T in (3, 4))
    assert short.printed_hold and not short.corrected_hold
    assert long.printed_hold and long.corrected_hold
    for report, sound in ((short, False), (long, True)):
        q = report.q
        assert (25.2 - 1.47 - 2 * q / (1 - q) * (1.47 + 25.2) > 0) is sound


@pytest.mark.parametrize("lipschitz", [1e-3, 1.0, 300.0])
@pytest.mark.parametrize("lower", [0.0, 0.4])
def test_the_proposal_meets_both_sets(lipschitz, lower):
    common = {"lipschitz": lipschitz, "lam": 0.6, "xi": 1e-3, "lower_curvature": lower * lipschitz}
    first = check_fpfc_parameters(rho=1.0, alpha=0.1, local_steps=10, **common)
    assert not first.printed["rho > 2 lam / xi"]
    proposed = check_fpfc_parameters(**common, **first.proposal)
    assert proposed.printed_hold and proposed.corrected_hold
    assert proposed.q < 1 / 3 and proposed.smoothness == pytest.approx(600)


def test_one_active_device_touches_no_pair():
    common = {"lipschitz": 1.0, "lam": 0.6, "xi": 0.05, "rho": 30.0, "alpha": 1 / 61, "local_steps": 20}
    alone = check_fpfc_parameters(**common, participation=0.1, n_nodes=12)
    assert alone.co_activation == 0 and alone.printed_hold and not alone.corrected_hold
    quarter = check_fpfc_parameters(**common, participation=0.25, n_nodes=12)
    assert quarter.co_activation == pytest.approx(3 * 2 / (12 * 11))
    assert "FAILS: every two devices" in alone.summary()


def test_too_long_a_step_has_no_contraction():
    report = check_fpfc_parameters(lipschitz=1.0, lam=0.6, xi=0.05, rho=30.0, alpha=0.1, local_steps=5)
    assert math.isnan(report.q) and not report.printed["alpha <= 1 / (L_f + 2 rho - L_-)"]


def test_a_smoothing_beyond_lam_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"xi=0\.7 is not below lam=0\.6"):
        check_fpfc_parameters(lipschitz=1.0, lam=0.6, xi=0.7, rho=1.0, alpha=0.1, local_steps=5)


def test_a_rho_below_the_curvature_fails_without_a_crash():
    report = check_fpfc_parameters(
        lipschitz=1.0, lam=0.6, xi=0.05, rho=1.0, alpha=0.1, local_steps=10, lower_curvature=3.0
    )
    assert not report.printed["rho > L_-"] and not report.printed["alpha <= 1 / (L_f + 2 rho - L_-)"]
