"""Prints what pyproject.toml requires, one a line: arguments build, run or the name of an extra."""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))
lists = {
    # Without build isolation pip does not fetch CMake and Ninja by itself.
    "build": [*project["build-system"]["requires"], "cmake>=3.24", "ninja>=1.11"],
    "run": project["project"]["dependencies"],
    **project["project"]["optional-dependencies"],
}
for name in sys.argv[1:]:
    print("\n".join(lists[name]))
