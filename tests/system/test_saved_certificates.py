"""From a solve to a saved certificate to its stand-alone check: a loss without a closed conjugate, missing cells."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt as fo
from fusionopt import verify
from fusionopt.certificate import Certificate


@pytest.mark.parametrize("free_bias", [False, True])
def test_a_logistic_answer_is_checked_without_the_solver(tmp_path, free_bias):
    rng = np.random.default_rng(2)
    truth = np.repeat([[1.5, -1.0], [-1.5, 1.0]], 4, axis=0)
    designs = [rng.standard_normal((40, 2)) for _ in range(8)]
    labels = [(z @ w + rng.logistic(size=40) > 0).astype(int) for z, w in zip(designs, truth, strict=True)]
    groups = np.repeat(np.arange(8), 40)
    stacked, flat = np.concatenate(designs), np.concatenate(labels)
    problem = fo.FusionProblem(
        fo.Logistic(stacked, flat, ridge=0.02, free_bias=free_bias, groups=groups), lam=0.03
    )
    result = fo.solve(problem)
    assert result.status == "optimal" and result.labels_certified
    assert result.n_clusters < 8
    result.certificate().save(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", designs=stacked, targets=flat, groups=groups)
    check = [str(tmp_path / "c.npz"), "--data", str(tmp_path / "d.npz")]
    assert verify.main(check) == 0
    assert verify.main(check[:1]) == 3
    # The same claims for other labels are false.
    flat[0] = 1 - flat[0]
    np.savez(tmp_path / "d.npz", designs=stacked, targets=flat, groups=groups)
    assert verify.main(check) == 1
    # A lie that is hashed anew is still a lie.
    claims = dict(Certificate.load(tmp_path / "c.npz").arrays)
    claims["dual_objective"] = claims["objective"] + 0.0
    claims["gap"] = claims["gap"] * 0
    claims["duals"] = 0.9 * claims["duals"]
    flat[0] = 1 - flat[0]
    np.savez(tmp_path / "d.npz", designs=stacked, targets=flat, groups=groups)
    Certificate(claims).save(tmp_path / "c.npz")
    assert verify.main(check) == 1


def test_missing_cells_stay_missing_in_the_check(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((12, 3))
    a[0, 1] = a[5, 2] = np.nan
    result = fo.solve(fo.FusionProblem(fo.SquaredDistance(a), lam=0.1))
    assert result.status == "optimal"
    result.certificate().save(tmp_path / "c.npz")
    for name, cells, code in (("same", a, 0), ("filled", np.nan_to_num(a), 1)):
        np.save(tmp_path / f"{name}.npy", cells)
        assert verify.main([str(tmp_path / "c.npz"), "--data", str(tmp_path / f"{name}.npy")]) == code


def test_the_word_optimal_is_held_to_the_tolerance_that_was_asked_for(tmp_path):
    points = np.random.default_rng(0).standard_normal((30, 2))
    problem = fo.FusionProblem(fo.SquaredDistance(points), lam=0.02)
    early = fo.solve(problem, fo.AdmmSettings(eps_rel=1e-9, max_iter=2, check_every=1))
    assert early.status == "user_limit" and early.rel_gap > 1e-7
    np.save(tmp_path / "d.npy", points)
    for word, code in (("user_limit", 0), ("optimal", 1)):
        arrays = dict(early.certificate().arrays)
        arrays["status"] = np.frombuffer(word.encode(), dtype=np.uint8)
        Certificate(arrays).save(tmp_path / "c.npz")
        assert verify.main([str(tmp_path / "c.npz"), "--data", str(tmp_path / "d.npy")]) == code
    fo.solve(problem).certificate().save(tmp_path / "c.npz")
    assert verify.main([str(tmp_path / "c.npz"), "--data", str(tmp_path / "d.npy")]) == 0
