"""Result folders that appear whole or not at all."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from fusionopt._checks import check_choice, refuse
from fusionopt.errors import MissingDependencyError

_OLD_FILES = (
    *("results.json", "report.html", "labels.csv", "centers.csv", "centers_original_units.csv", "path.csv"),
    *("solution.npz", "certificate.npz", "data_as_solved.npy"),
    *(
        f"figures/{name}.{kind}"
        for name in ("paths", "clusters", "projection", "gaps", "gap")
        for kind in ("svg", "png")
    ),
)
"""What version 0.1.0 wrote before results.json listed it."""


def to_jsonable(value: Any) -> Any:
    """`value` with arrays as lists, and NaN and infinities as None, so that it is standard JSON."""
    if isinstance(value, dict):
        return {str(name): to_jsonable(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [to_jsonable(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


class ResultFolder:
    """A result folder that appears whole or not at all.

    Files go to a hidden folder beside the target, which is renamed to the target when the ``with`` block
    ends. When it ends in an exception, the hidden folder is removed and the target is as it was.

    Parameters
    ----------
    target : path
        The folder to make; missing parents are made too.
    force : bool
        Replace an existing result folder, after the new one is whole. A folder that does not look like one
        (it is neither empty nor holds a results.json of this package), or that holds a file which is not listed
        there, is never replaced.
    tables : "csv" or "parquet"
        Format of `write_table`.

    Raises
    ------
    InvalidArgumentError
        On entry: the target exists and `force` is False, is not a result folder, or cannot be made.
    MissingDependencyError
        tables="parquet" without pyarrow.
    """

    def __init__(self, target: str | os.PathLike[str], force: bool = False, tables: str = "csv") -> None:
        self._tables = check_choice("tables", tables, ("csv", "parquet"))
        if tables == "parquet":
            require_pyarrow()
        self.target = Path(os.path.abspath(os.path.realpath(target)))
        self.force = force
        self.path: Path = self.target
        self._made_parents: list[Path] = []

    def __enter__(self) -> ResultFolder:
        self._check_target()
        try:
            self._make_parents()
            prefix = f".{self.target.name}."
            self.path = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=self.target.parent))
            umask = os.umask(0)
            os.umask(umask)
            self.path.chmod(0o777 & ~umask)  # mkdtemp gives a private folder
        except OSError as error:
            self._remove_parents()
            refuse(
                f"The folder {str(self.target)!r} cannot be made: {error.strerror or error}; choose another "
                "with --out.",
                argument="out",
                got=str(self.target),
                wanted="a folder that can be written",
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._discard()
            return
        try:
            self._list_files()
            self._publish()
        except BaseException:
            self._discard()
            raise

    def write_text(self, name: str, text: str) -> None:
        """Write a UTF-8 file; `name` may hold one folder level."""
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="\n")

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a binary file; `name` may hold one folder level."""
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)

    def write_json(self, name: str, value: Any) -> None:
        """Write standard JSON (NaN and infinities become null)."""
        self.write_text(
            name, json.dumps(to_jsonable(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        )

    def write_table(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a table as NAME.csv, or as NAME.parquet where that was asked for."""
        if self._tables == "csv":
            self.write_csv(f"{name}.csv", header, rows)
            return
        import pyarrow
        from pyarrow import parquet

        cells = [[_plain(cell) for cell in row] for row in rows]
        columns = {title: [row[j] for row in cells] for j, title in enumerate(header)}
        parquet.write_table(pyarrow.table(columns), self.path / f"{name}.parquet")

    def write_csv(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a comma separated table; floats with every digit, NaN as an empty cell."""
        file = self.path / name
        file.parent.mkdir(exist_ok=True)
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(header)
            for row in rows:
                writer.writerow(
                    ["" if isinstance(cell, float) and math.isnan(cell) else _plain(cell) for cell in row]
                )

    def _check_target(self) -> None:
        target = self.target
        if not os.path.lexists(target):
            return
        if not target.is_dir():
            refuse(
                f"{str(target)!r} is a file; choose another folder with --out.",
                argument="out",
                got=str(target),
                wanted="a new folder",
            )
        if not self.force:
            refuse(
                f"The folder {str(target)!r} exists and is kept; say --force to replace it, or choose "
                "another with --out.",
                argument="out",
                got=str(target),
                wanted="a new folder",
            )
        if not _is_result_folder(target):
            refuse(
                f"The folder {str(target)!r} is not one that fusionopt wrote (no results.json of it "
                "inside), so it is kept even with --force; choose another with --out.",
                argument="out",
                got=str(target),
                wanted="a result folder",
            )
        strays = _strays(target)
        if strays:
            refuse(
                f"The folder {str(target)!r} holds {', '.join(strays[:3])}{', ...' if len(strays) > 3 else ''}, which "
                "fusionopt did not write, so it is kept even with --force; move it away, or choose another with --out.",
                argument="out",
                got=strays[0],
                wanted="a folder with nothing but results",
            )

    def _list_files(self) -> None:
        """Name every file in results.json: what is not named there is somebody else's."""
        content = _content(self.path)
        if content is not None:
            content["files"] = _files(self.path)
            self.write_json("results.json", content)

    def _make_parents(self) -> None:
        missing = []
        parent = self.target.parent
        while not parent.exists():
            missing.append(parent)
            parent = parent.parent
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            self._made_parents.append(folder)

    def _remove_parents(self) -> None:
        for folder in reversed(self._made_parents):
            try:
                folder.rmdir()
            except OSError:  # somebody else put something there
                break
        self._made_parents.clear()

    def _discard(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._remove_parents()

    def _publish(self) -> None:
        if not os.path.lexists(self.target):
            os.rename(self.path, self.target)
            return
        self._check_target()  # it may have appeared, or changed, while the work was going on
        aside = Path(tempfile.mkdtemp(prefix=f".{self.target.name}.", suffix=".old", dir=self.target.parent))
        old = aside / self.target.name
        os.rename(self.target, old)
        try:
            os.rename(self.path, self.target)
        except BaseException:
            os.rename(old, self.target)
            aside.rmdir()
            raise
        shutil.rmtree(aside, ignore_errors=True)


def _plain(cell: Any) -> Any:
    return cell.item() if isinstance(cell, np.generic) else cell


def require_pyarrow() -> None:
    """Raise MissingDependencyError, with the command that installs it, when pyarrow is not installed."""
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "Parquet tables need pyarrow, which is not installed; install it with: pip install pyarrow",
            package="pyarrow",
        ) from error


def _content(folder: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and "fusionopt" in content else None


def _is_result_folder(folder: Path) -> bool:
    return not any(folder.iterdir()) or _content(folder) is not None


def _strays(folder: Path) -> list[str]:
    """Files that the folder's own list does not name."""
    content = _content(folder)
    if content is None:
        return []
    listed = set(content.get("files", _OLD_FILES))
    return [name for name in _files(folder) if name not in listed]


def _files(folder: Path) -> list[str]:
    found = [f for f in folder.rglob("*") if f.is_symlink() or not f.is_dir()]
    return sorted(f.relative_to(folder).as_posix() for f in found)
