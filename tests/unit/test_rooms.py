"""The bridge alone imports the compiled core. `make imports` holds the other arrows: it sees no compiled module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent.parent / "fusionopt"


def importers_of_core(package: Path) -> list[str]:
    """Files that name `_core` in an import, at the top or in a function."""
    found = []
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = [node.value] if node.value.endswith("._core") else []
            if any("_core" in name.split(".") for name in names):
                found.append(file.relative_to(package).as_posix())
                break
    return found


def test_only_the_bridge_imports_the_core() -> None:
    found = importers_of_core(PACKAGE)
    assert "_bridge.py" in found
    assert [name for name in found if not name.startswith("_bridge")] == []


@pytest.mark.parametrize(
    "line",
    [
        "import fusionopt._core",
        "from fusionopt import _core",
        "from fusionopt._core import Admm",
        "from . import _core",
        "import_module('fusionopt._core')",
    ],
)
def test_every_way_of_importing_is_seen(tmp_path: Path, line: str) -> None:
    (tmp_path / "room.py").write_text(f"def f():\n    {line}\n", encoding="utf-8")
    (tmp_path / "other.py").write_text("from fusionopt import _checks\n", encoding="utf-8")
    assert importers_of_core(tmp_path) == ["room.py"]
