"""The benchmark problems are the published ones, the baselines solve them, the judge notices bad answers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    cvxpy_baseline,
    evaluate,
    implicit,
    numpy_admm,
    penalty_figures,
    problems,
    subgroups,
    sweep,
)
from fusionopt import Scad


@pytest.mark.parametrize(("n", "edges"), [(500, 3067), (1000, 6068), (2000, 11980), (5000, 29805)])
def test_moons_have_the_published_edges(n: int, edges: int) -> None:
    assert len(problems.moons(n, "few").pairs()[0]) == edges


@pytest.mark.parametrize("kind", [numpy_admm.RowBlockedAdmm, numpy_admm.TiledAdmm])
@pytest.mark.parametrize("level", ["few", "half"])
def test_numpy_baselines_reach_the_published_optimum(level: str, kind: type[numpy_admm.TiledAdmm]) -> None:
    problem = problems.gauss(100, level)
    solver = kind(problem.points, problem.lam, 3.0 / 100, block=33)
    answer = solver.solve(1e-8)
    assert answer.converged
    assert problem.optimum is not None
    objective = evaluate.objective(problem, answer.x)
    assert objective == pytest.approx(answer.objective, rel=1e-12)
    assert answer.dual_objective <= problem.optimum * (1 + 1e-9)
    assert objective == pytest.approx(problem.optimum, rel=2e-8)


def test_both_layouts_are_one_algorithm() -> None:
    problem = problems.gmm_complete(50, 3, 0.5)
    a = numpy_admm.RowBlockedAdmm(problem.points, problem.lam, 0.1, block=7).solve(0.0, max_iter=20)
    b = numpy_admm.TiledAdmm(problem.points, problem.lam, 0.1, block=13).solve(0.0, max_iter=20)
    np.testing.assert_allclose(a.x, b.x, rtol=0, atol=1e-12 * np.abs(a.x).max())
    assert a.dual_objective == pytest.approx(b.dual_objective, rel=1e-12)


def test_tuned_rho_is_at_least_as_good() -> None:
    problem = problems.gmm_complete(60, 2, 0.5)
    rho = numpy_admm.tune(problem)
    tuned = numpy_admm.TiledAdmm(problem.points, problem.lam, rho).solve(1e-6, check_every=1)
    plain = numpy_admm.TiledAdmm(problem.points, problem.lam, 1.0 / 60).solve(1e-6, check_every=1)
    assert tuned.converged
    assert tuned.n_iter <= plain.n_iter


@pytest.mark.parametrize(
    "problem",
    [problems.moons(500, "half"), problems.gmm_complete(30, 2, 0.5), problems.regression_complete(20, 3)],
    ids=lambda problem: problem.name,
)
def test_cvxpy_baseline(problem: problems.ClusteringProblem | problems.RegressionProblem) -> None:
    coarse, fine = cvxpy_baseline.solve(problem, 1e-6), cvxpy_baseline.solve(problem, 1e-9)
    a, b = evaluate.objective(problem, coarse), evaluate.objective(problem, fine)
    assert a == pytest.approx(b, rel=1e-5)
    if isinstance(problem, problems.ClusteringProblem) and problem.optimum is not None:
        assert b == pytest.approx(problem.optimum, rel=1e-8)


def test_judge_refuses_infeasible_duals() -> None:
    problem = problems.gmm_complete(5, 2, 0.5)
    v = np.zeros((10, 2))
    assert evaluate.dual_value(problem, v) == 0.0
    v[3, 0] = problem.lam
    assert np.isfinite(evaluate.dual_value(problem, v))
    v[3, 0] *= 1.0 + 1e-12
    assert evaluate.dual_value(problem, v) == -np.inf


def test_judge_dual_of_least_squares_is_a_lower_bound() -> None:
    problem = problems.regression_complete(6, 2)
    rng = np.random.default_rng(0)
    v = rng.standard_normal((15, 2))
    v *= problem.lam / np.linalg.norm(v, axis=1, keepdims=True) / (1 + 1e-12)
    bound = evaluate.dual_value(problem, v)
    assert np.isfinite(bound)
    best = evaluate.objective(problem, cvxpy_baseline.solve(problem, 1e-9))
    assert bound <= best


def test_distinct_rows() -> None:
    x = np.array([[0.0, 1.0], [-0.0, 1.0], [np.nextafter(0.0, 1), 1.0]])
    assert evaluate.n_distinct_rows(x) == 2


def test_pictures_of_the_penalties_page_are_those_the_script_draws(tmp_path: Path) -> None:
    penalty_figures.draw(Scad()).savefig(tmp_path / "scad.svg")
    assert (tmp_path / "scad.svg").stat().st_size > 10_000
    page = (penalty_figures.FOLDER.parent / "penalties.md").read_text(encoding="utf-8")
    for name, penalty in penalty_figures.PENALTIES.items():
        assert (penalty_figures.FOLDER / f"penalty_{name}.svg").is_file()
        assert f"(figures/penalty_{name}.svg)" in page
        assert f"## {type(penalty).__name__}\n" in page


def test_subgroup_problem_and_its_oracle() -> None:
    designs, targets, labels = subgroups.subgroups(30, 3, seed=0)
    assert designs.shape == (30, 10, 3) and targets.shape == (30, 10)
    assert np.bincount(labels).tolist() == [10, 10, 10]
    centres, errors = subgroups.oracle(designs, targets, labels)
    # Three coefficients from a hundred samples: within five standard errors of the truth.
    assert (np.linalg.norm(centres - subgroups.CENTRES[3], axis=1) < 5 * errors).all()
    row = subgroups.measure(12, 2, seed=0)
    assert [r["penalty"] for r in row] == ["Scad", "Mcp", "L2Norm"]


def test_judge_of_large_complete_graphs_agrees_with_the_one_of_edges() -> None:
    problem = problems.gmm_complete(40, 2, 0.5)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2))
    x[5:20] = x[5]
    y = rng.standard_normal((40, 2))
    edges, _ = problem.pairs()
    apart = y[edges[:, 0]] - y[edges[:, 1]]
    reach = 0.999 * problem.lam
    v = reach * apart / np.maximum(np.linalg.norm(apart, axis=1, keepdims=True), 0.7)
    primal, dual = evaluate.complete_certificate(problem.points, problem.lam, x, y, 0.7, reach)
    assert primal == pytest.approx(evaluate.objective(problem, x), rel=1e-12)
    assert dual == pytest.approx(evaluate.dual_value(problem, v), rel=1e-10)
    beyond = evaluate.complete_certificate(problem.points, problem.lam, x, y, 0.7, 1.001 * problem.lam)
    assert beyond[1] == -np.inf


def test_implicit_benchmark_measures_and_judges() -> None:
    row = implicit.measure(implicit.Case("agree", "duplicates", 100, 2, 0.9))
    assert row["fault"] == "" and row["checked"] == "numpy"
    assert isinstance(row["gap"], float) and row["gap"] <= 1e-6
    kinds = [case for case in implicit.cases() if case.group == "kinds"]
    assert len(kinds) == 18
    assert {implicit.points(implicit.Case("", data, 50, 3, 0.5)).shape for data in ("moons", "t2")} == {
        (50, 3)
    }


def test_the_sweep_table_has_a_row_for_each_kind(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sweep, "_SHAPES", [(40, 2), (40, 5)])
    monkeypatch.setattr(sweep, "_NUMPY_SHAPES", [(40, 2)])
    monkeypatch.setattr(sweep, "_REPEATS", 2)
    assert sweep.main(["--threads", "1", "2", "--results", str(tmp_path)]) == 0
    lines = [line for line in (tmp_path / "sweep.csv").read_text().splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    assert [(row["m"], row["d"], row["dtype"], row["threads"]) for row in rows] == [
        ("40", d, dtype, threads) for d in "25" for dtype in ("float64", "float32") for threads in "12"
    ]
    for row in rows:
        assert float(row["sweep_ms"]) > 0
        assert float(row["share"]) > 0
        assert bool(row["times_numpy"]) == (row["d"] == "2")
    assert "stream_gb_per_s" in capsys.readouterr().out
