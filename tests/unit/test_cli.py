"""The command line: what it writes, what it prints, and its exit codes."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

import fusionopt
from fusionopt import verify
from fusionopt.cli import main

FILES = {"results.json", "report.html", "labels.csv", "centers.csv", "path.csv", "figures"}
PATH = {"events.csv", "selection.csv", "explorer.html"}
PROOF = {"solution.npz", "certificate.npz", "data_as_solved.npy"}

N_LAMS = 100_000


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two groups of 15 rows and one stray row, with labels; the working folder is the temporary one."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["width", "height", "kind"])
        for i in range(30):
            x, y = rng.standard_normal(2) + (8.0 if i % 2 else 0.0)
            writer.writerow([x, 100 * y, "odd" if i % 2 else "even"])
        writer.writerow([-4.0, -400.0, "odd"])
    return path


def _read(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / name).open(newline="") as stream:
        return list(csv.DictReader(stream))


def _left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_path_writes_a_whole_folder(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "path",
        str(table),
        "--labels-column",
        "kind",
        "--standardise",
        "--n-lams",
        "15",
        "--out",
        "deep/out",
    ]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    folder = table.parent / "deep" / "out"
    assert printed.out.splitlines()[-1] == str(folder)
    assert printed.err == ""
    assert "ARI" in printed.out
    assert "rows alone" in printed.out
    assert _left(folder) == FILES | PATH | PROOF | {"centers_original_units.csv", "tree.csv"}
    assert _left(folder / "figures") >= {
        "paths.svg",
        "paths.png",
        "clusters.svg",
        "projection.png",
        "gaps.svg",
        "tree.svg",
        "heat-map.png",
    }
    assert _left(table.parent) == {"table.csv", "deep"}

    results = json.loads((folder / "results.json").read_text(), parse_constant=pytest.fail)
    assert results["fusionopt"] == fusionopt.__version__
    assert results["converged"] is True
    assert results["interrupted"] is False
    assert results["settings"]["eps_rel"] == 1e-6
    assert results["data"]["rows"] == 31
    assert results["data"]["standardised"] is True
    assert len(results["path"]) == 15
    for row in results["path"]:
        assert row["status"] == "optimal"
        assert row["rel_gap"] <= 1e-6
        assert row["dual_objective"] <= row["objective"]
        assert -1.0 <= row["ari"] <= 1.0
    chosen = results["chosen"]
    assert sum(chosen["cluster_sizes"]) == 31
    assert 0.0 < results["comparison"]["ari"] <= 1.0

    labels = _read(folder, "labels.csv")
    assert [row["row"] for row in labels] == [str(i) for i in range(31)]
    assert [row["known"] for row in labels[:2]] == ["even", "odd"]
    assert len({row["label"] for row in labels}) == chosen["n_clusters"]
    centres, original = _read(folder, "centers.csv"), _read(folder, "centers_original_units.csv")
    assert len(centres) == len(original) == chosen["n_clusters"]
    mean, scale = results["data"]["mean"], results["data"]["scale"]
    for row, raw in zip(centres, original, strict=True):
        assert float(raw["height"]) == pytest.approx(float(row["height"]) * scale[1] + mean[1])
    assert len(_read(folder, "path.csv")) == 15

    report = (folder / "report.html").read_text()
    assert not re.search(r"https?://", report)
    assert "table.csv" in report
    assert "fusionopt path" in report
    assert verify.main([str(folder / "certificate.npz"), "--data", str(folder / "data_as_solved.npy")]) == 0
    saved = fusionopt.Result.load(folder / "solution.npz")
    assert saved.objective == chosen["objective"]


def test_solve_at_one_lam_is_the_closed_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "two.npy"
    np.save(data, np.array([[0.0], [2.0]]))
    code = main(
        ["solve", str(data), "--lam", "0.25", "--graph", "complete", "--out", str(tmp_path / "o"), "--quiet"]
    )
    printed = capsys.readouterr()
    assert code == 0
    assert printed.out == f"{tmp_path / 'o'}\n"
    assert printed.err == ""
    results = json.loads((tmp_path / "o" / "results.json").read_text())
    assert results["chosen"]["objective"] == pytest.approx(2 * 0.25 - 0.25**2, rel=1e-6)
    assert results["comparison"] is None
    assert [float(row["column 0"]) for row in _read(tmp_path / "o", "centers.csv")] == pytest.approx(
        [0.25, 1.75]
    )


def test_default_folder_is_named_after_the_table(table: Path) -> None:
    assert main(["solve", "table.csv", "--lam", "1", "--drop", "kind"]) == 0
    assert _left(table.parent / "table-fusionopt") == FILES | PROOF


def test_existing_folder_is_kept_unless_forced(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["solve", "table.csv", "--drop", "kind", "--out", "out", "--lam"]
    assert main([*arguments, "1"]) == 0
    before = (table.parent / "out" / "results.json").read_bytes()
    assert main([*arguments, "2"]) == 2
    assert "exists and is kept; say --force" in capsys.readouterr().err
    assert (table.parent / "out" / "results.json").read_bytes() == before
    assert main([*arguments, "2", "--force"]) == 0
    assert json.loads((table.parent / "out" / "results.json").read_text())["chosen"]["lam"] == 2.0
    (table.parent / "bad.csv").write_text("a,b\n1,\n")
    assert main(["solve", "bad.csv", "--lam", "1", "--out", "out", "--force"]) == 2
    assert json.loads((table.parent / "out" / "results.json").read_text())["chosen"]["lam"] == 2.0
    assert _left(table.parent) == {"table.csv", "bad.csv", "out"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["path", "nothing.csv"], r"There is no file 'nothing\.csv'"),
        (["path", "."], r"is a folder"),
        (["path", "odd.parquet"], r"'odd\.parquet' is not a whole Parquet file"),
        (["path", "odd.arrow"], r"unknown type '\.arrow'"),
        (["path", "table.csv"], r"Column 'kind' .*'even' on line 2.*--labels-column 'kind'"),
        (["path", "table.csv", "--labels-column", "sort"], r"labels_column='sort' is not a column.*0: width"),
        (["path", "table.csv", "--drop", "kind", "--n-lams", "0"], r"n_lams"),
        (["path", "table.csv", "--drop", "kind", "--lam-min-ratio", "0"], r"lam_min_ratio"),
        (["path", "table.csv", "--drop", "kind", "--select", "best"], r"--select.*best"),
        (["path", "table.csv", "--drop", "kind", "--eps-rel", "-1"], r"eps_rel=-1"),
        (["path", "table.csv", "--drop", "kind", "--time-limit", "0"], r"time_limit"),
        (["path", "table.csv", "--drop", "kind", "--max-iter", "0"], r"max_iter"),
        (["path", "table.csv", "--drop", "kind", "--n-neighbors", "0"], r"n_neighbors"),
        (["path", "table.csv", "--drop", "kind", "--n-neighbors", "3", "--graph", "complete"], r"--n-n"),
        (["path", "table.csv", "--drop", "kind", "--graph", "mst"], r"--graph.*mst"),
        (["path", "table.csv", "--drop", "kind", "--lams", "1,a"], r"--lams '1,a' is not a list of numbers"),
        (["path", "table.csv", "--drop", "kind", "--lams", "1,-2"], r"lams holds -2"),
        (["path", "table.csv", "--drop", "kind", "--events", "all"], r"--events.*all"),
        (["path", "table.csv", "--drop", "kind", "--checkpoint", "table.csv"], r"cannot be used"),
        (["path", "table.csv", "--drop", "kind", "--n-repeats", "1"], r"--n-repeats"),
        (["solve", "table.csv", "--drop", "kind"], r"--lam"),
        (["solve", "table.csv", "--drop", "kind", "--lam", "-1"], r"lam=-1"),
        (["solve", "table.csv", "--drop", "kind", "--lam", "nan"], r"lam=nan"),
        (["solve", "table.csv", "--drop", "kind", "--lam", "much"], r"value for '--lam'.*number\. See"),
        (["solve", "table.csv", "--wrong"], r"--wrong"),
        (["guess"], r"guess"),
        (["path"], r"DATA"),
        (["info", "nothing.csv"], r"There is no file"),
    ],
)  # fmt: skip
def test_misuse_is_one_sentence_and_exit_code_2(
    table: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("odd.parquet", "odd.arrow"):
        (table.parent / name).write_text("x")
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.search(sentence, printed.err, re.IGNORECASE)
    assert printed.err.startswith("fusionopt: ")
    assert printed.err.count("\n") == 1
    assert _left(table.parent) == {"table.csv", "odd.parquet", "odd.arrow"}


def test_tolerance_not_met_is_code_3_and_written(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "path",
        "table.csv",
        "--drop",
        "kind",
        "--n-lams",
        "5",
        "--max-iter",
        "1",
        "--eps-rel",
        "1e-12",
    ]
    assert main([*arguments, "--out", "out"]) == 3
    results = json.loads((table.parent / "out" / "results.json").read_text())
    assert re.search(
        r"exit code 3: \d of 5 solves did not meet --eps-rel 1e-12; at lam = .*max_iter = 1 was reached",
        capsys.readouterr().out,
    )
    assert results["converged"] is False
    assert "user_limit" in {row["status"] for row in results["path"]}
    assert "within the tolerance" in (table.parent / "out" / "report.html").read_text()


def test_progress_on_stderr_only_when_asked(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["path", "table.csv", "--drop", "kind", "--n-lams", "4", "--progress", "--out", "a"]) == 0
    printed = capsys.readouterr()
    assert re.search(r"^4/4  lam .* clusters  gap ", printed.err, re.MULTILINE)
    assert "left" in printed.err
    assert "4/4" not in printed.out


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_tables(tmp_path: Path, n: int) -> None:
    data = tmp_path / "tiny.csv"
    data.write_text("a,b\n" + "1,2\n3,5\n1,2\n"[: 4 * n])
    assert main(["path", str(data), "--n-lams", "3", "--standardise", "--out", str(tmp_path / "out")]) == 0


def test_constant_column_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "flat.csv"
    data.write_text("a,b\n1,2\n3,2\n5,2\n")
    assert main(["solve", str(data), "--lam", "0.1", "--standardise", "--out", str(tmp_path / "out")]) == 0
    assert "left at zero: b." in capsys.readouterr().out
    assert "left at zero: b." in (tmp_path / "out" / "report.html").read_text()


def test_info(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    assert f"fusionopt: {fusionopt.__version__}" in printed
    assert "python: " in printed
    assert main(["info", "table.csv", "--labels-column", "kind"]) == 0
    printed = capsys.readouterr().out
    assert "31 rows, 2 columns" in printed
    assert "even (15), odd (16)" in printed
    assert "no duplicate rows" in printed
    assert "fusionopt path table.csv --labels-column kind --standardise" in printed
    (table.parent / "twice.csv").write_text("x,class\n1,0\n1,0\n2,1\n3,1\n4,1\n5,1\n")
    assert main(["info", "twice.csv"]) == 0
    printed = capsys.readouterr().out
    assert "duplicate rows: 1" in printed
    assert "--labels-column class" in printed


def test_module_is_the_command_line() -> None:
    command = [sys.executable, "-m", "fusionopt", "info"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.startswith(f"fusionopt: {fusionopt.__version__}\n")


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["path", "--help"]):
        assert main(arguments) == 0
        assert "Usage" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert fusionopt.__version__ in capsys.readouterr().out


@contextmanager
def _long_run(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`fusionopt path` with far more lams than time allows, after its first lam is finished."""
    np.save(folder / "long.npy", np.random.default_rng(0).standard_normal((200, 4)))
    root = Path(fusionopt.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    # A parent that ignores Ctrl-C (a job in the background) hands that on; the run must not inherit it here.
    start = (
        "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from fusionopt.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-W", "error", "-c", start, "path", "long.npy", "--out", "out", "--progress"]
    process = subprocess.Popen(
        [*command, "--n-lams", str(N_LAMS), *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            assert process.stderr is not None
            assert f"1/{N_LAMS}" in process.stderr.readline()
            yield process
        finally:
            process.kill()


def test_interrupt_writes_what_is_finished(tmp_path: Path) -> None:
    with _long_run(tmp_path) as process:
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert out.splitlines()[-1] == str(tmp_path / "out")
    assert _left(tmp_path) == {"long.npy", "out"}
    assert _left(tmp_path / "out") == FILES | PATH  # a path of this length keeps no duals
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["interrupted"] is True
    assert 1 <= len(results["path"]) < N_LAMS
    assert "Interrupted" in (tmp_path / "out" / "report.html").read_text()


def test_termination_leaves_nothing_behind(tmp_path: Path) -> None:
    with _long_run(tmp_path) as process:
        process.terminate()
        _, err = process.communicate(timeout=100)
    assert process.returncode == 143, err
    assert _left(tmp_path) == {"long.npy"}


def test_time_limit_is_for_the_whole_path(tmp_path: Path) -> None:
    with _long_run(tmp_path, "--time-limit", "0.5") as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 3, err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert 1 <= len(results["path"]) < N_LAMS
    assert any("values of lam were reached" in note for note in results["notes"])
    assert "exit code 3: the run ended before the last lam: raise --time-limit" in out


def test_path_options(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["path", "table.csv", "--drop", "kind", "--lams", "0.01,1,5,1e6", "--events", "locate"]
    arguments += ["--select", "ebic", "--checkpoint", "kept", "--tables", "parquet", "--standardise"]
    assert main([*arguments, "--out", "out"]) == 0
    folder = table.parent / "out"
    printed = capsys.readouterr().out
    assert "chosen by extended BIC" in printed
    assert "lie above lambda_max" in printed
    results = json.loads((folder / "results.json").read_text())
    assert results["selection"]["criterion"] == "ebic"
    assert [row["lam"] for row in results["path"]] == [0.01, 1.0, 5.0, 1e6]
    assert results["selection"]["curve"]["lam"] == [0.01, 1.0, 5.0, 1e6]
    events = pyarrow.parquet.read_table(folder / "events.parquet").to_pydict()
    assert set(events["kind"]) <= {"merge", "split"}
    assert set(events["how"]) <= {"flow", "bisection"}
    assert pyarrow.parquet.read_table(folder / "labels.parquet").num_rows == 31
    assert len(list((table.parent / "kept").glob("lam-*.npz"))) == 4
    # The same command goes on from the folder: nothing is solved again.
    kept = {f.name: f.stat().st_mtime_ns for f in (table.parent / "kept").glob("*.npz")}
    assert main([*arguments, "--out", "out", "--force"]) == 0
    assert {f.name: f.stat().st_mtime_ns for f in (table.parent / "kept").glob("*.npz")} == kept


def test_a_criterion_that_cannot_choose_leaves_the_path(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (table.parent / "one.csv").write_text("a\n" + "\n".join(map(str, range(8))) + "\n")
    assert main(["path", "one.csv", "--select", "holdout", "--n-lams", "6"]) == 0
    out = capsys.readouterr().out
    assert "holdout could not choose (with one column no cell can be left out" in out
    assert "the plateau did" in out


def test_force_keeps_a_file_that_is_not_ours(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["solve", "table.csv", "--drop", "kind", "--lam", "1", "--out", "out", "--force"]
    assert main(arguments) == 0
    stray = table.parent / "out" / "figures" / "notes.txt"
    stray.write_text("mine")
    assert main(arguments) == 2
    assert "holds figures/notes.txt, which fusionopt did not write" in capsys.readouterr().err
    assert stray.read_text() == "mine"
    stray.unlink()
    assert main(arguments) == 0


def test_parquet_without_pyarrow_is_one_sentence(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["path", "table.csv", "--drop", "kind", "--tables", "parquet"]) == 2
    assert "pip install pyarrow" in capsys.readouterr().err
    assert _left(table.parent) == {"table.csv"}
