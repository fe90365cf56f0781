"""Stopping, watching, interrupting, saving and repeating a solve."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import fusionopt
from fusionopt import AdmmSettings, FusionProblem, Graph, SquaredDistance
from tests import catalogue, oracles
from tests.catalogue import Instance

ROOT = Path(__file__).resolve().parents[2]

# Near total fusion of many rows with a tolerance that is out of reach: minutes of work.
LONG = textwrap.dedent(
    """
    import os, signal, sys, threading
    import numpy as np
    import fusionopt
    from fusionopt import AdmmSettings, FusionProblem, SquaredDistance

    points = np.random.default_rng(0).standard_normal((1500, 10))
    lam = np.linalg.norm(points - points.mean(axis=0), axis=1).max() / 1499
    problem = FusionProblem(SquaredDistance(points), lam=0.95 * lam)
    settings = AdmmSettings(eps_rel=0.0, max_iter=10**8)
    """
)


def _child(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LONG + textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def _hard(n: int = 60) -> Instance:
    return catalogue.squared(np.random.default_rng(1).standard_normal((n, 3)), 0.03)


def test_first_interrupt_returns_the_best_point() -> None:
    done = _child(
        """
        strike = threading.Timer(0.0, lambda: os.kill(os.getpid(), signal.SIGINT))
        before = signal.getsignal(signal.SIGINT)
        # From another thread, while the sweeps after the second check run.
        result = fusionopt.solve(
            problem, settings, callback=lambda p: strike.start() if p.iteration == 10 else None
        )
        assert signal.getsignal(signal.SIGINT) is before
        v = result.edge_duals()
        assert (np.linalg.norm(v, axis=1) <= problem.lam * (1 + 1e-15)).all()
        assert result.gap == result.objective - result.dual_objective >= 0 or result.gap >= 0
        recomputed = problem.objective(result.x)
        assert abs(recomputed - result.objective) <= 1e-12 * recomputed
        print(result.status, result.n_iter > 0, result.rel_gap < 1e-2)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["interrupted", "True", "True"]


def test_second_interrupt_raises() -> None:
    done = _child(
        """
        def strike():
            os.kill(os.getpid(), signal.SIGINT)
        def twice(progress):
            strike()
            strike()
        try:
            fusionopt.solve(problem, settings, callback=twice)
        except KeyboardInterrupt:
            print("raised", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["raised", "True"]


def test_interrupt_from_the_callback_is_the_first() -> None:
    done = _child(
        """
        result = fusionopt.solve(problem, settings, callback=lambda p: os.kill(os.getpid(), signal.SIGINT))
        print(result.status)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["interrupted"]


def test_interrupted_path_keeps_what_is_done() -> None:
    done = _child(
        """
        from fusionopt import solution_path
        small = FusionProblem(SquaredDistance(points[:50]), lam=0.0)
        def strike(progress):
            if progress.done == 3:
                os.kill(os.getpid(), signal.SIGINT)
        path = solution_path(small, lams=[0.01 * k for k in range(1, 9)], callback=strike)
        print(path.status, len(path.results))
        """
    )
    assert done.returncode == 0, done.stderr
    status, count = done.stdout.split()
    assert status == "interrupted"
    assert 3 <= int(count) <= 4


def test_other_threads_leave_the_handler_alone() -> None:
    done = _child(
        """
        from concurrent.futures import ThreadPoolExecutor
        small = FusionProblem(SquaredDistance(points[:50]), lam=lam)
        before = signal.getsignal(signal.SIGINT)
        with ThreadPoolExecutor(1) as pool:
            status = pool.submit(fusionopt.solve, small).result().status
        print(status, signal.getsignal(signal.SIGINT) is before)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["optimal", "True"]


@pytest.mark.parametrize("check_every", [None, 20000])
def test_time_limit(check_every: int | None) -> None:
    """The limit holds between checks too: 20,000 sweeps of 80,000 pairs take far more than 0.2 seconds."""
    points = np.random.default_rng(0).standard_normal((400, 5))
    instance = catalogue.squared(points, 0.004)
    settings = AdmmSettings(eps_rel=0.0, max_iter=10**8, check_every=check_every, time_limit=0.2)
    result = fusionopt.solve(instance.problem(), settings)
    assert result.status in ("user_limit", "optimal")
    assert result.n_iter < 20000
    if result.status == "user_limit":
        assert "time" in result.message
    oracles.assert_certificate(instance, result)
    oracles.assert_partition(instance, result)


@pytest.mark.parametrize("limit", [1, 2, 7, 33])
def test_max_iter(limit: int) -> None:
    instance = _hard()
    result = fusionopt.solve(instance.problem(), AdmmSettings(eps_rel=1e-15, max_iter=limit))
    assert result.status in ("user_limit", "optimal")
    assert result.n_iter <= limit
    oracles.assert_certificate(instance, result)
    if result.status == "user_limit":
        assert "iteration" in result.message
        with pytest.raises(fusionopt.NotConvergedError) as caught:
            result.require_converged()
        assert caught.value.result is result


def test_eps_abs_is_in_units_of_the_objective() -> None:
    instance = _hard()
    result = fusionopt.solve(instance.problem(), AdmmSettings(eps_rel=0.0, eps_abs=1e-3))
    assert result.status == "optimal"
    assert result.gap <= 1e-3
    oracles.assert_certificate(instance, result)


@pytest.mark.parametrize("eps", [1e-3, 1e-8, 1e-12, 0.0])
def test_any_tolerance_ends(eps: float) -> None:
    """Even 0: the rounding bound of the gap ends the run."""
    instance = _hard(20)
    result = fusionopt.solve(instance.problem(), AdmmSettings(eps_rel=eps))
    oracles.assert_solved(instance, result, eps_rel=max(eps, 1e-12))


def test_callback_is_told_and_can_stop() -> None:
    instance = _hard()
    seen: list[fusionopt.Progress] = []

    def watch(progress: fusionopt.Progress) -> bool:
        seen.append(progress)
        return len(seen) == 2

    result = fusionopt.solve(instance.problem(), AdmmSettings(eps_rel=1e-14, check_every=1), callback=watch)
    assert result.status == "user_limit"
    assert len(seen) == 2
    oracles.assert_certificate(instance, result)
    first, second = seen
    assert first.iteration < second.iteration <= result.n_iter
    for progress in seen:
        assert progress.elapsed >= 0.0
        assert progress.gap >= 0.0
        assert progress.objective >= progress.dual_objective
        size = max(abs(progress.objective), abs(progress.dual_objective))
        oracles.assert_close(progress.rel_gap, progress.gap / size, rtol=1e-9)


def test_callback_returning_none_or_false_goes_on() -> None:
    problem = _hard().problem()
    plain = fusionopt.solve(problem)
    for answer in (None, False):
        result = fusionopt.solve(problem, callback=lambda progress, answer=answer: answer)
        assert result.status == "optimal"
        assert result.n_iter == plain.n_iter
        assert result.x.tobytes() == plain.x.tobytes()


def test_callback_error_comes_through() -> None:
    def fail(progress: fusionopt.Progress) -> bool:
        raise LookupError("from the callback")

    with pytest.raises(LookupError, match="from the callback"):
        fusionopt.solve(_hard().problem(), callback=fail)


def test_trace() -> None:
    instance = _hard()
    result = fusionopt.solve(instance.problem(), AdmmSettings(eps_rel=1e-9))
    lengths = {len(result.trace[key]) for key in ("iteration", "time", "objective", "dual_objective", "gap")}
    assert len(lengths) == 1
    assert lengths.pop() >= 1
    # The finished point is a row of its own, at the iteration of the last check.
    assert np.all(np.diff(result.trace["iteration"]) >= 0)
    assert np.all(np.diff(result.trace["time"]) >= 0)
    # Every traced pair brackets the optimum that the final certificate pins down.
    slack = 1e-11 * result.objective
    assert np.all(result.trace["objective"] >= result.dual_objective - slack)
    assert np.all(result.trace["dual_objective"] <= result.objective + slack)
    assert result.setup_time >= 0.0
    assert result.solve_time >= 0.0


def test_inputs_are_left_alone() -> None:
    rng = np.random.default_rng(2)
    points, edges = rng.standard_normal((12, 2)), catalogue.sparse_pairs(rng, 12, 0.3)
    weights, s = rng.random(len(edges)) + 0.1, rng.random(12) + 0.1
    kept = [array.copy() for array in (points, edges, weights, s)]
    problem = FusionProblem(
        SquaredDistance(points, sample_weight=s), graph=Graph.from_edges(12, edges, weights), lam=0.2
    )
    result = fusionopt.solve(problem)
    for array, copy in zip((points, edges, weights, s), kept, strict=True):
        assert array.tobytes() == copy.tobytes()
        array[...] = 0
    again = fusionopt.solve(problem)
    assert again.x.tobytes() == result.x.tobytes()


@pytest.mark.parametrize("form", ["float32", "int", "fortran", "strided", "list", "read-only"])
def test_input_forms_give_the_same_answer(form: str) -> None:
    base = np.random.default_rng(3).integers(-9, 10, (14, 3)).astype(np.float64)
    frozen = base.copy()
    frozen.setflags(write=False)
    forms = {
        "float32": base.astype(np.float32),
        "int": base.astype(int),
        "fortran": np.asfortranarray(base),
        "strided": np.repeat(base, 2, axis=0)[::2],
        "list": base.tolist(),
        "read-only": frozen,
    }
    want = fusionopt.solve(FusionProblem(SquaredDistance(base), lam=0.3))
    got = fusionopt.solve(FusionProblem(SquaredDistance(forms[form]), lam=0.3))
    assert got.x.tobytes() == want.x.tobytes()


def test_threads_do_not_disturb_each_other() -> None:
    instances = [
        catalogue.random_squared(np.random.default_rng(k), kind, 40, 2)
        for k, kind in enumerate(["complete", "knn", "sparse", "node_weights"] * 4)
    ]
    alone = [fusionopt.solve(instance.problem()) for instance in instances]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda instance: fusionopt.solve(instance.problem()), instances))
    for a, b in zip(alone, together, strict=True):
        assert a.x.tobytes() == b.x.tobytes()
        assert a.edge_duals().tobytes() == b.edge_duals().tobytes()
        assert (a.objective, a.gap, a.n_iter, a.status) == (b.objective, b.gap, b.n_iter, b.status)


def test_one_problem_solved_by_two_threads_at_once() -> None:
    problem = _hard().problem()
    with ThreadPoolExecutor(2) as pool:
        a, b = pool.map(fusionopt.solve, [problem, problem])
    assert a.x.tobytes() == b.x.tobytes()


@pytest.mark.parametrize("kind", ["complete", "sparse", "regression"])
def test_save_and_load(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    instance = (
        catalogue.random_regression(rng, "complete", 9, 2, 0.1)
        if kind == "regression"
        else catalogue.random_squared(rng, kind, 15, 2)
    )
    result = fusionopt.solve(instance.problem(), AdmmSettings(eps_rel=1e-8))
    path = tmp_path / "answer.npz"
    result.save(path)
    with np.load(path, allow_pickle=False) as stored:
        for key in stored.files:
            assert stored[key].dtype.kind != "O"
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            assert not archive.read(member).startswith(b"\x80")
    back = fusionopt.Result.load(path)
    assert back.x.tobytes() == result.x.tobytes()
    assert back.edge_duals().tobytes() == result.edge_duals().tobytes()
    assert back.labels.tolist() == result.labels.tolist()
    for name in (
        "objective",
        "dual_objective",
        "gap",
        "rel_gap",
        "status",
        "message",
        "n_iter",
        "dual_residual",
    ):
        assert getattr(back, name) == getattr(result, name), name
    assert back.settings == result.settings
    assert back.problem.lam == instance.lam
    oracles.assert_solved(instance, back)


def test_load_refuses_pickles(tmp_path: Path) -> None:
    path = tmp_path / "evil.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError):  # noqa: PT011 - any refusal, but no unpickling
        fusionopt.Result.load(path)


@pytest.mark.parametrize("kind", ["complete", "knn", "sparse"])
def test_warm_start(kind: str) -> None:
    instance = catalogue.random_squared(np.random.default_rng(10), kind, 60, 2)
    cold = fusionopt.solve(instance.problem())
    again = fusionopt.solve(instance.problem(), warm_start=cold)
    oracles.assert_solved(instance, again)
    assert again.n_iter <= cold.n_iter
    for factor in (0.5, 0.9, 1.1, 2.0):
        other = instance.with_lam(factor * instance.lam)
        warm = fusionopt.solve(other.problem(), warm_start=cold)
        plain = fusionopt.solve(other.problem())
        oracles.assert_solved(other, warm)
        oracles.assert_close(warm.objective, plain.objective, rtol=2e-6)
        oracles.assert_same_partition(warm.labels, plain.labels)


@pytest.mark.parametrize("size", [1e4, 1e14, 1e200])
def test_a_start_far_off_is_as_good_as_none(size: float) -> None:
    """Worse than the pooled minimiser: with missing cells sweeps would not come back from it."""
    rng = np.random.default_rng(1)
    points = np.where(rng.random((60, 3)) < 0.3, np.nan, rng.standard_normal((60, 3)))
    points[0] = 0.0  # every feature is seen somewhere
    problem = FusionProblem(SquaredDistance(points), lam=0.01)
    cold = fusionopt.solve(problem)
    far = fusionopt.solve(problem, warm_start=size * rng.standard_normal(points.shape))
    assert far.status == cold.status == "optimal"
    assert far.n_iter == cold.n_iter
    assert far.x.tobytes() == cold.x.tobytes()


def test_warm_start_from_another_shape_is_refused() -> None:
    cold = fusionopt.solve(_hard(10).problem())
    with pytest.raises(ValueError, match="warm_start"):
        fusionopt.solve(_hard(11).problem(), warm_start=cold)


def test_a_solve_repeats_bit_for_bit() -> None:
    for kind in ("complete", "knn"):
        problem = catalogue.random_squared(np.random.default_rng(12), kind, 50, 3).problem()
        a, b = fusionopt.solve(problem), fusionopt.solve(problem)
        assert a.x.tobytes() == b.x.tobytes()
        assert a.edge_duals().tobytes() == b.edge_duals().tobytes()


@pytest.mark.parametrize("run", [fusionopt.solve, fusionopt.solution_path])
def test_a_callback_must_be_callable_and_say_yes_or_no(run: Callable[..., object]) -> None:
    problem = catalogue.line_complete([0.0, 1.0, 5.0], 0.1).problem()
    with pytest.raises(fusionopt.InvalidTypeError, match="callback=3 cannot be called; give a function"):
        run(problem, callback=3)
    with pytest.raises(
        fusionopt.InvalidTypeError, match="the callback returned a ndarray; return True to stop"
    ):
        run(problem, callback=lambda progress: np.zeros(2))


@pytest.mark.parametrize("kind", [fusionopt.Result, fusionopt.PathResult])
def test_a_missing_file_is_a_sentence(kind: type, tmp_path: Path) -> None:
    with pytest.raises(
        fusionopt.InvalidArgumentError, match=r"none\.npz' cannot be read: No such file.*\.save is"
    ):
        kind.load(tmp_path / "none.npz")
    with pytest.raises(fusionopt.InvalidArgumentError, match="cannot be read: Is a directory"):
        kind.load(tmp_path)


def test_a_path_keeps_one_row_a_cluster_and_gives_back_the_same_bits() -> None:
    problem = catalogue.random_squared(np.random.default_rng(4), "knn", 40, 3).problem()
    path = fusionopt.solution_path(problem, n_lams=6)
    assert all(result.is_compact for result in path.results)
    result = path.results[2]
    assert result.x.shape == (40, 3)
    assert result.centers.shape == (result.n_clusters, 3)
    assert problem.with_lam(result.problem.lam).objective(result.x) == pytest.approx(
        result.objective, rel=1e-9
    )
    # Rows of a cluster that differ are kept as they are.
    rough = fusionopt.solve(problem.with_lam(0.05))
    values = {
        name: getattr(rough, name) for name in ("problem", "settings", "objective", "dual_objective", "gap")
    }
    values |= {name: getattr(rough, name) for name in ("rel_gap", "status", "message", "n_iter", "trace")}
    values |= {name: getattr(rough, name) for name in ("primal_residual", "dual_residual")}
    own = np.random.default_rng(0).normal(size=(40, 3))
    odd = fusionopt.Result(
        **values, x=own, labels=np.zeros(40, dtype=np.int64), setup_time=0.0, solve_time=0.0
    )
    assert not odd.compact().is_compact
    assert odd.x is own
