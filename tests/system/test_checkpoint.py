"""Paths that are stopped, killed and taken up again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fusionopt
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from tests import catalogue

CHILD = """
import sys, numpy as np, fusionopt
kind, folder, out = sys.argv[1:4]
rng = np.random.default_rng(5)
if kind == "regression":
    designs = [rng.normal(size=(5, 3)) for _ in range(20)]
    loss = fusionopt.LeastSquares(designs, [z @ [1.0, k % 3, 0.0] for k, z in enumerate(designs)])
    graph = fusionopt.Graph.complete(20)
else:
    points = rng.normal(size=(30, 2))
    loss = fusionopt.SquaredDistance(points)
    graph = fusionopt.Graph.complete(30) if kind == "complete" else fusionopt.Graph.knn(points, 5)
problem = fusionopt.FusionProblem(loss, graph)
events = "locate" if kind == "complete" else "grid"
path = fusionopt.solution_path(problem, n_lams=25, events=events, checkpoint=folder or None)
path.save(out)
"""


def _start(kind: str, folder: Path | str, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", CHILD, kind, str(folder), str(out)])


def assert_same_bits(a: fusionopt.PathResult, b: fusionopt.PathResult) -> None:
    assert a.lams.tobytes() == b.lams.tobytes()
    assert a.status == b.status
    for p, q in zip(a.results, b.results, strict=True):
        assert p.x.tobytes() == q.x.tobytes()
        assert p.labels.tobytes() == q.labels.tobytes()
        for name in ("objective", "dual_objective", "gap", "n_iter", "status", "message", "proven"):
            assert getattr(p, name) == getattr(q, name), name
    assert [(e.kind, e.lam, e.bracket, e.members.tolist()) for e in a.events] == [
        (e.kind, e.lam, e.bracket, e.members.tolist()) for e in b.events
    ]


@pytest.mark.parametrize("kind", ["complete", "knn", "regression"])
def test_killed_runs_end_in_the_same_bits(kind: str, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole.npz", tmp_path / "broken.npz"
    assert _start(kind, "", whole).wait(60) == 0
    folder = tmp_path / "kept"
    finished = 0
    # Killed as soon as some new lams are on the disk, in the middle of whatever it is doing then.
    for goal in (3, 14):
        child = _start(kind, folder, broken)
        while child.poll() is None and len(list(folder.glob("lam-*.npz"))) < goal:
            time.sleep(0.001)
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        now = len(list(folder.glob("lam-*.npz")))
        assert now >= finished
        finished = now
    assert _start(kind, folder, broken).wait(60) == 0
    assert_same_bits(fusionopt.PathResult.load(whole), fusionopt.PathResult.load(broken))
    assert not list(folder.glob(".*.tmp"))


def _problem() -> fusionopt.FusionProblem:
    return catalogue.line_complete([0.0, 1.0, 3.0, 7.0, 12.0], 0.0).problem()


def test_a_stop_and_a_second_call(tmp_path: Path) -> None:
    lams = [1.0, 0.5, 0.2, 0.2, 2.0]
    part = fusionopt.solution_path(
        _problem(), lams=lams, checkpoint=tmp_path / "kept", callback=lambda progress: progress.done == 2
    )
    assert part.lams.tolist() == [0.5, 0.2, 0.2]
    seen: list[int] = []
    rest = fusionopt.solution_path(
        _problem(),
        lams=lams,
        checkpoint=tmp_path / "kept",
        callback=lambda progress: seen.append(progress.done),
    )
    assert seen == [3, 4]
    assert_same_bits(rest, fusionopt.solution_path(_problem(), lams=lams))
    # The duals come back too.
    assert rest.results[2].edge_duals().tobytes() == part.results[1].edge_duals().tobytes()
    third = fusionopt.solution_path(_problem(), lams=lams, checkpoint=tmp_path / "kept")
    assert_same_bits(third, rest)


def test_capped_weights_are_resumed(tmp_path: Path) -> None:
    problem = fusionopt.FusionProblem(
        fusionopt.SquaredDistance([0.0, 1.0, 5.0, 9.0]),
        fusionopt.Graph.from_edges(4, [(0, 1), (1, 2), (2, 3)], [1e12, 1.0, 2.0]),
    )
    lams = np.geomspace(1e-3, 50.0, 9)
    folder = tmp_path / "kept"
    fusionopt.solution_path(problem, lams=lams, checkpoint=folder, callback=lambda told: told.done == 4)
    again = fusionopt.solution_path(problem, lams=lams, checkpoint=folder)
    assert_same_bits(again, fusionopt.solution_path(problem, lams=lams))


def test_another_problem_is_refused(tmp_path: Path) -> None:
    fusionopt.solution_path(_problem(), lams=[0.5], checkpoint=tmp_path / "kept")
    other = catalogue.line_complete([0.0, 1.0, 3.0, 7.0, 12.5], 0.0).problem()
    with pytest.raises(InvalidArgumentError, match="holds another path"):
        fusionopt.solution_path(other, lams=[0.5], checkpoint=tmp_path / "kept")
    with pytest.raises(InvalidArgumentError, match="holds another path"):
        fusionopt.solution_path(_problem(), lams=[0.4], checkpoint=tmp_path / "kept")
    with pytest.raises(InvalidArgumentError, match="holds another path"):
        fusionopt.solution_path(
            _problem(),
            lams=[0.5],
            checkpoint=tmp_path / "kept",
            settings=fusionopt.AdmmSettings(eps_rel=1e-7),
        )


def test_a_folder_of_someone_else_is_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidArgumentError, match="holds files but no checkpoint"):
        fusionopt.solution_path(_problem(), lams=[0.5], checkpoint=tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(InvalidArgumentError, match="cannot be used"):
        fusionopt.solution_path(_problem(), lams=[0.5], checkpoint=tmp_path / "notes.txt")
    with pytest.raises(InvalidTypeError, match="checkpoint=3 is not a path"):
        fusionopt.solution_path(_problem(), lams=[0.5], checkpoint=3)  # type: ignore[arg-type]


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    def inner(progress: fusionopt.PathProgress) -> None:
        with pytest.raises(InvalidArgumentError, match="in use by another run"):
            fusionopt.solution_path(_problem(), lams=[0.5, 1.0], checkpoint=tmp_path / "kept")

    fusionopt.solution_path(_problem(), lams=[0.5, 1.0], checkpoint=tmp_path / "kept", callback=inner)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    fusionopt.solution_path(_problem(), lams=[0.5, 1.0], checkpoint=tmp_path / "kept")
    file = tmp_path / "kept" / "lam-00000.npz"
    file.write_bytes(file.read_bytes()[: os.path.getsize(file) // 2])
    with pytest.raises(InvalidArgumentError, match=r"lam-00000\.npz is not a file written by"):
        fusionopt.solution_path(_problem(), lams=[0.5, 1.0], checkpoint=tmp_path / "kept")


@pytest.mark.parametrize("lams", [[0.0, 0.1, 0.2, 0.3], [0.3, 0.0, 0.1, 0.1]])
def test_paths_through_lam_zero_are_resumed(lams: list[float], tmp_path: Path) -> None:
    points = np.random.default_rng(0).standard_normal((4, 5))  # fewer dimensions than coordinates
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points), fusionopt.Graph.chain(4))
    whole = fusionopt.solution_path(problem, lams=lams)
    for stop in (1, 2, 3):
        folder = tmp_path / str(stop)
        fusionopt.solution_path(problem, lams=lams, checkpoint=folder, callback=lambda q: q.done >= stop)  # noqa: B023
        path = fusionopt.solution_path(problem, lams=lams, checkpoint=folder)
        assert path.status == "optimal"
        for a, b in zip(path.results, whole.results, strict=True):
            assert np.array_equal(a.x, b.x)
