"""Exception classes and the lazy package."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import fusionopt
from fusionopt import errors


@pytest.mark.parametrize(
    ("kind", "builtin", "data"),
    [
        (errors.InvalidArgumentError, ValueError, {"argument": "lam", "got": -1, "wanted": ">= 0"}),
        (errors.InvalidTypeError, TypeError, {"argument": "lam", "got": "x", "wanted": "a number"}),
        (errors.NotConvergedError, RuntimeError, {"result": "partial"}),
        (errors.MissingDependencyError, ImportError, {"package": "pandas"}),
        (errors.MemoryLimitError, RuntimeError, {}),
    ],
)
def test_each_error_is_also_the_built_in_one_and_carries_its_data(kind, builtin, data):
    error = kind("a sentence", **data)
    assert isinstance(error, errors.FusionoptError)
    assert isinstance(error, builtin)
    assert str(error) == "a sentence"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == "a sentence"
    for name, value in data.items():
        assert getattr(error, name) == value
        assert getattr(copy, name) == value


def test_every_public_name_is_in_the_table_and_in_the_type_checking_block():
    tree = ast.parse(Path(fusionopt.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = {name for name, source in imported.items() if source == "fusionopt"}
    names = {
        name: source.removeprefix("fusionopt.") for name, source in imported.items() if name not in modules
    }
    assert modules == set(fusionopt._MODULES)
    assert names == fusionopt._NAMES
    assert set(fusionopt.__all__) == modules | set(names) | {"__version__"}


@pytest.mark.parametrize("name", sorted(set(fusionopt._NAMES) | set(fusionopt._MODULES)))
def test_every_public_name_loads(name):
    assert getattr(fusionopt, name) is not None
    assert name in dir(fusionopt)


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fusionopt' has no attribute 'nonsense'"):
        _ = fusionopt.nonsense


def test_version_is_text():
    assert isinstance(fusionopt.__version__, str)
    assert fusionopt.__version__


def test_importing_the_package_loads_none_of_its_parts():
    code = (
        "import sys, fusionopt; "
        "heavy = ('numpy', 'scipy', 'cvxpy'); "
        "print(sorted(m for m in sys.modules if m.startswith('fusionopt.') or m in heavy))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("module", ["reference", "clusters", "datasets", "scaling", "problem"])
def test_oracles_load_no_solver_and_no_cvxpy(module):
    code = (
        f"import sys, fusionopt.{module}; "
        "banned = ('fusionopt.solver', 'fusionopt._bridge', 'fusionopt._core', "
        "'cvxpy', 'sklearn', 'matplotlib'); print([m for m in banned if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
