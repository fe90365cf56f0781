"""A missing or too old tool is answered with one sentence saying what to install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PREFLIGHT = Path(__file__).resolve().parent.parent.parent / ".ci" / "preflight"
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def script(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def link(folder: Path, name: str, target: str | None) -> None:
    assert target is not None, "the tests need the compiler that built the package"
    script(folder, name, f'exec "{target}" "$@"')


def run(folder: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with nothing on PATH but the given folder."""
    return subprocess.run(
        ["/bin/sh", str(PREFLIGHT)],
        env={"PATH": str(folder), **extra},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def check_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, f"wanted one line, got {done.stderr!r}"
    assert done.stderr.startswith("fusionopt: ")
    for word in words:
        assert word in done.stderr


def test_check_refused_fails_on_success_and_on_chatter() -> None:
    for done in (
        subprocess.CompletedProcess([], 0, "python3\n", ""),
        subprocess.CompletedProcess([], 1, "", "fusionopt: one\ntwo\n"),
        subprocess.CompletedProcess([], 1, "", "something else\n"),
    ):
        with pytest.raises(AssertionError):
            check_refused(done)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with this Python and a compiler, and nothing else."""
    link(tmp_path, "c++", f'/usr/bin/env" PATH="{os.environ["PATH"]}" "{COMPILER}')
    link(tmp_path, "python3", sys.executable)
    return tmp_path


def test_a_complete_machine_gets_its_python(tools: Path) -> None:
    done = run(tools)
    assert (done.returncode, done.stdout, done.stderr) == (0, "python3\n", "")


def test_no_compiler(tools: Path) -> None:
    (tools / "c++").unlink()
    check_refused(run(tools), "no C++ compiler was found", "apt-get install g++")


def test_compiler_too_old(tools: Path) -> None:
    script(tools, "c++", "exit 1")
    check_refused(run(tools), "cannot compile a C++20 program", "GCC 11, Clang 14")


def test_named_compiler_missing(tools: Path) -> None:
    check_refused(run(tools, CXX="no-such-compiler"), "CXX=no-such-compiler was not found")


def test_no_python(tools: Path) -> None:
    (tools / "python3").unlink()
    check_refused(run(tools), "no Python was found", "Python 3.11 or newer", "apt-get install python3")


def test_python_too_old(tools: Path) -> None:
    script(tools, "python3", 'case "$2" in *version_info\\ *) exit 1;; *print*) echo 3.9.18;; esac')
    check_refused(run(tools), "Python 3.11 or newer is needed, and python3 is 3.9.18")


def test_a_newer_python_is_taken_where_python3_is_too_old(tools: Path) -> None:
    script(tools, "python3", 'case "$2" in *version_info\\ *) exit 1;; esac')
    link(tools, "python3.12", sys.executable)
    assert run(tools).stdout == "python3.12\n"


def test_named_python_missing(tools: Path) -> None:
    check_refused(run(tools, PYTHON="no-such-python"), "PYTHON=no-such-python does not run")


def test_no_venv_module(tools: Path) -> None:
    script(tools, "python3", 'case "$2" in *ensurepip*) exit 1;; esac')
    check_refused(run(tools), "no venv module", "apt-get install python3-venv")


def test_no_python_headers(tools: Path) -> None:
    script(tools, "python3", 'case "$2" in *Python.h*) exit 1;; esac')
    check_refused(run(tools), "Python.h", "apt-get install python3-dev")
