"""Tables from delimited text: delimiter and header found out, every cell a finite number or refused."""

from __future__ import annotations

import csv
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from fusionopt._checks import refuse, shown

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "space": " ", "pipe": "|"}
_MISSING = frozenset({"", "na", "n/a", "nan", "-nan", "null", "none", "?", "#n/a"})
_INFINITE = frozenset({"inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"})
_SNIFFED = (";", "\t", ",", " ")
_SNIFFED_RECORDS = 50


@dataclass(frozen=True)
class TextTable:
    """What a text table holds: numbers (n, d), names of the d columns, labels and their name, notes."""

    values: NDArray[np.float64]
    column_names: tuple[str, ...]
    labels: NDArray[np.str_] | None
    labels_name: str | None
    notes: tuple[str, ...]


def index_of(column: str | int, names: Sequence[str], argument: str, source: Path) -> int:
    """Position of a column given by name or index; names win over numbers."""
    n = len(names)
    if isinstance(column, str):
        matches = [i for i, name in enumerate(names) if name == column]
        if len(matches) == 1:
            return matches[0]
        if len(matches) > 1:
            places = ", ".join(map(str, matches))
            refuse(
                f"{argument}={column!r} names {len(matches)} columns of {source.name!r} (indices {places}); "
                "give the index instead.",
                argument=argument,
                got=column,
                wanted="a column that exists once",
            )
        try:
            index = int(column)
        except ValueError:
            index = n  # neither a name nor a number: falls through to the refusal
    else:
        index = column
    if -n <= index < n:
        return index % n
    listed = ", ".join(f"{i}: {name}" for i, name in enumerate(names[:30])) + (", ..." if n > 30 else "")
    refuse(
        f"{argument}={column!r} is not a column of {source.name!r}; its columns are {listed}.",
        argument=argument,
        got=column,
        wanted="a column of the file",
    )


def _open_text(source: Path) -> IO[str]:
    with source.open("rb") as stream:
        start = stream.read(4096)
    wide = start[:2] in (b"\xff\xfe", b"\xfe\xff")
    if not wide and b"\0" in start:
        refuse(
            f"{source.name!r} is not a text table (it holds zero bytes); save it as CSV in UTF-8.",
            argument="path",
            got=str(source),
            wanted="UTF-8 text",
        )
    return source.open("r", encoding="utf-16" if wide else "utf-8-sig", newline="")


def _records(source: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(first line, cells) of each record that is not blank; leading comment lines are left out."""
    with _open_text(source) as stream:
        lines: Iterable[str] = stream
        if delimiter == " ":
            lines = (" ".join(line.split()) + "\n" for line in stream)
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        started = False
        last = 0
        try:
            for cells in reader:
                first, last = last + 1, reader.line_num
                if not started and cells and cells[0].startswith("#"):
                    continue
                if not cells or (len(cells) == 1 and not cells[0].strip()):
                    continue
                started = True
                yield first, cells
        except csv.Error as error:
            refuse(
                f"{source.name!r} is not a text table: line {reader.line_num}: {error}.",
                argument="path",
                got=str(source),
                wanted="a text table",
            )
        except UnicodeError:
            refuse(
                f"{source.name!r} is not UTF-8 text (near line {reader.line_num + 1}); save it as CSV in "
                "UTF-8.",
                argument="path",
                got=str(source),
                wanted="UTF-8 text",
            )


def _commented_header(source: Path, delimiter: str, n_cells: int) -> list[str] | None:
    """Names in the last leading comment line (numpy.savetxt writes them so), if one for every column."""
    last = ""
    with _open_text(source) as stream:
        for line in stream:
            if not line.startswith("#"):
                break
            last = line
    text = last.lstrip("#").strip()
    cells = text.split() if delimiter == " " else next(csv.reader([text], delimiter=delimiter), [])
    if n_cells > 1 and len(cells) == n_cells and not any(_kind(cell) == "number" for cell in cells):
        return cells
    return None


def _sniff_delimiter(source: Path) -> str:
    """The delimiter that splits most of the first records into the same number (> 1) of cells."""
    best, best_share = ",", 0.0
    for delimiter in _SNIFFED:
        counts: Counter[int] = Counter()
        for n, (_, cells) in enumerate(_records(source, delimiter)):
            counts[len(cells)] += 1
            if n + 1 == _SNIFFED_RECORDS:
                break
        total = sum(counts.values())
        size, agreeing = max(counts.items(), key=lambda item: item[1], default=(1, 0))
        if size > 1 and agreeing / total > best_share:
            best, best_share = delimiter, agreeing / total
    return best


def _kind(cell: str) -> Literal["number", "missing", "infinite", "text"]:
    text = cell.strip()
    lowered = text.lower()
    if lowered in _MISSING:
        return "missing"
    if lowered in _INFINITE:
        return "infinite"
    try:
        value = float(text)
    except ValueError:
        return "text"
    if "_" in text:  # float("1_000") is Python syntax, not a number in a table
        return "text"
    return "number" if math.isfinite(value) else "infinite"


def _has_header(first: Sequence[str], second: Sequence[str] | None, labels_column: str | int | None) -> bool:
    kinds = [_kind(cell) for cell in first]
    if isinstance(labels_column, str) and labels_column in [cell.strip() for cell in first]:
        return True
    if second is None:
        return all(kind == "text" for kind in kinds)
    if len(second) == len(first) + 1:  # R leaves out the name of the row-name column
        return all(kind == "text" for kind in kinds)
    return any(kind == "text" and _kind(below) != "text" for kind, below in zip(kinds, second, strict=False))


def _delimiter_character(delimiter: str) -> str:
    character = DELIMITERS.get(delimiter, delimiter)
    if len(character) != 1 or character in '\r\n"':
        refuse(
            f"delimiter={delimiter!r} is not one character; give for example ',' ';' 'tab' or 'space'.",
            argument="delimiter",
            got=delimiter,
            wanted="one character",
        )
    return character


def _text_refusal(source: Path, name: str, index: int, line: int, cell: str) -> NoReturn:
    text = cell.strip()
    if _kind(text.replace(",", ".", 1)) == "number" or _kind(text.replace(",", "")) == "number":
        fix = "write numbers with a decimal point and without thousands separators"
    else:
        fix = (
            f"if it holds the known labels, say --labels-column {name!r} (labels_column= in Python); to "
            f"leave it out, say --drop {name!r} (drop_columns=)"
        )
    refuse(
        f"Column {name!r} (index {index}) of {source.name!r} holds text, first {shown(text)} on line "
        f"{line}; every column must hold numbers: {fix}.",
        argument="path",
        got=cell,
        wanted="numbers",
    )


def _counts_rows(column: NDArray[np.float64]) -> bool:
    return len(column) > 1 and column[0] in (0.0, 1.0) and bool(np.all(np.diff(column) == 1.0))


def _convert(
    source: Path,
    separator: str,
    has_header: bool,
    names: Sequence[str],
    kept: Sequence[int],
    label_index: int | None,
) -> tuple[array[float], list[str], array[int]]:
    """Numbers row by row, labels, and the line of each record."""
    numbers: array[float] = array("d")
    lines: array[int] = array("q")
    labels: list[str] = []
    hole: tuple[int, int, str] | None = None
    for n, (line, cells) in enumerate(_records(source, separator)):
        if n == 0 and has_header:
            continue
        if len(cells) != len(names):
            refuse(
                f"Line {line} of {source.name!r} has {len(cells)} cells where the lines before have "
                f"{len(names)}; give every row the same number of cells, or name the delimiter with "
                "--delimiter.",
                argument="path",
                got=len(cells),
                wanted=f"{len(names)} cells",
            )
        if len(names) == 1 and lines and line - lines[-1] > 1 and hole is None:
            hole = (
                lines[-1] + 1,
                kept[0],
                "",
            )  # a blank line is a missing cell where there is one column only
        lines.append(line)
        if label_index is not None:
            label = cells[label_index].strip()
            if not label:
                refuse(
                    f"The label column {names[label_index]!r} of {source.name!r} is empty on line {line}; "
                    "give every row a label.",
                    argument="labels_column",
                    got="an empty cell",
                    wanted="a label in every row",
                )
            labels.append(label)
        for i in kept:
            cell = cells[i]
            kind = "number"
            try:
                value = float(cell)
                if "_" in cell or not math.isfinite(value):
                    kind = _kind(cell)
            except ValueError:
                value, kind = math.nan, _kind(cell)
            if kind == "text":
                _text_refusal(source, names[i], i, line, cell)
            if kind != "number" and hole is None:
                # A text column is the likelier mistake and the better message: read on before refusing.
                hole = (line, i, cell)
            numbers.append(value)
    if hole is not None:
        line, i, cell = hole
        what = "is missing" if _kind(cell) == "missing" and not cell.strip() else f"is {shown(cell.strip())}"
        refuse(
            f"The cell on line {line}, column {names[i]!r} (index {i}) of {source.name!r} {what}; every "
            "cell must be a finite number: fill it in, or leave out its row or column.",
            argument="path",
            got=cell,
            wanted="a finite number in every cell",
        )
    return numbers, labels, lines


def read_text(
    source: Path,
    labels_column: str | int | None,
    delimiter: str | None,
    header: bool | None,
    drop_columns: Sequence[str | int],
) -> TextTable:
    """Read a delimited text table; the arguments are those of `fusionopt.io.read_table`."""
    separator = _sniff_delimiter(source) if delimiter is None else _delimiter_character(delimiter)
    records = _records(source, separator)
    head = [record for _, record in zip(range(2), records, strict=False)]
    records.close()  # type: ignore[attr-defined]
    if not head:
        refuse(
            f"{source.name!r} is empty; a table with one row or more is wanted.",
            argument="path",
            got=str(source),
            wanted="a table",
        )

    first = head[0][1]
    second = head[1][1] if len(head) > 1 else None
    has_header = _has_header(first, second, labels_column) if header is None else header
    if has_header and second is None:
        refuse(
            f"{source.name!r} has a header line but no rows below it.",
            argument="path",
            got=str(source),
            wanted="one row or more",
        )

    notes: list[str] = []
    n_cells = len(second) if has_header and second is not None else len(first)
    named = [cell.strip() for cell in first] if has_header else _commented_header(source, separator, n_cells)
    dropped: set[int] = set()
    if named is None:
        names = [f"column {i}" for i in range(n_cells)]
    elif len(named) == n_cells - 1:
        names = ["row names", *named]
        dropped.add(0)
        notes.append("The first column has no name in the header: taken as row names and left out.")
    else:
        names = [name or f"column {i}" for i, name in enumerate(named)]
    if named is not None and len(names) != n_cells:
        refuse(
            f"The header of {source.name!r} names {len(names)} columns but line {head[1][0]} has {n_cells} "
            "cells; give every row the same number of cells, or name the delimiter with --delimiter.",
            argument="path",
            got=n_cells,
            wanted=f"{len(names)} cells",
        )
    dropped |= {index_of(column, names, "drop_columns", source) for column in drop_columns}
    label_index = None if labels_column is None else index_of(labels_column, names, "labels_column", source)
    kept = [i for i in range(n_cells) if i not in dropped and i != label_index]
    if not kept:
        refuse(
            f"{source.name!r} has no column left besides the labels.",
            argument="path",
            got=n_cells,
            wanted="a column of numbers",
        )

    numbers, labels, lines = _convert(source, separator, has_header, names, kept, label_index)
    values = np.frombuffer(numbers, dtype=np.float64).reshape(len(lines), len(kept)).copy()
    column_names = [names[i] for i in kept]
    unnamed_first = has_header and named is not None and len(named) == n_cells and not named[0]
    if unnamed_first and kept[0] == 0 and len(kept) > 1 and _counts_rows(values[:, 0]):
        values, column_names = np.ascontiguousarray(values[:, 1:]), column_names[1:]
        notes.append("The first column has no name and counts the rows: taken as row numbers and left out.")
    return TextTable(
        values=values,
        column_names=tuple(column_names),
        labels=None if label_index is None else np.array(labels, dtype=np.str_),
        labels_name=None if label_index is None else names[label_index],
        notes=tuple(notes),
    )
