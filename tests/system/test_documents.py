"""What a reader is shown does run: Python blocks of README and docs, scripts of examples, the wine table."""

from __future__ import annotations

import csv
import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def test_blocks_finds_the_blocks_of_one_language(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\na = 1\n```\ntext\n```sh\nls\n```\n```python\nb = 2\n```\n", encoding="utf-8")
    assert blocks(page, "python") == ["a = 1\n", "b = 2\n"]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda page: page.name)
def test_python_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of one page run from top to bottom in one namespace, from the top of the checkout."""
    monkeypatch.chdir(ROOT)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), namespace)
    assert len(namespace) > 2, "the blocks defined nothing"


def test_readme_has_a_python_block_and_the_two_commands() -> None:
    readme = ROOT / "README.md"
    assert len(blocks(readme, "python")) >= 1
    assert readme.read_text(encoding="utf-8").index("make demo") < 1000
    assert readme.read_text(encoding="utf-8").index("make test") < 1000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_on_command_lines_exist(page: Path) -> None:
    app = get_command(__import__("fusionopt.cli", fromlist=["app"]).app)
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words or not words[0].endswith("fusionopt"):
                continue
            command = app.commands[words[1]]  # type: ignore[attr-defined]
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= known, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_into_the_checkout_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_examples_run(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip(), f"{script.name} printed nothing"


def test_wine_table_is_the_one_scikit_learn_ships(wine_csv: Path) -> None:
    sklearn_datasets = pytest.importorskip("sklearn.datasets")
    shipped = sklearn_datasets.load_wine()
    with wine_csv.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    table = np.array(rows, dtype=float)
    assert header[0] == "cultivar"
    assert len(header) == 14
    np.testing.assert_array_equal(table[:, 0], shipped.target + 1)
    np.testing.assert_array_equal(table[:, 1:], shipped.data)
