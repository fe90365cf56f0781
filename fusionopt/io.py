"""Tables in (.csv, .parquet, .npy, .npz), result folders out.

Nothing is guessed silently: a cell that is not a finite number is refused with its place, and every liberty
taken (a row-number column left out, say) is listed in `Table.notes`.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt._checks import refuse
from fusionopt._csv import TextTable, index_of, read_text
from fusionopt._folder import ResultFolder, require_pyarrow

__all__ = ["ResultFolder", "Standardised", "Table", "read_table", "standardise"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A table of numbers as read from a file.

    Attributes
    ----------
    values : float64 (n, d)
        One row per observation, every entry finite.
    column_names : tuple of d str
        Names from the header, or ``"column 0"``, ... when there is none.
    labels : str (n,) or None
        The label column as text, when one was asked for; never part of `values`.
    labels_name : str or None
        Name of the label column.
    source : Path
        The file.
    notes : tuple of str
        Sentences about what was left out or assumed while reading.
    """

    values: FloatArray
    column_names: tuple[str, ...]
    labels: NDArray[np.str_] | None
    labels_name: str | None
    source: Path
    notes: tuple[str, ...] = ()


def read_table(
    path: str | os.PathLike[str],
    labels_column: str | int | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    *,
    key: str | None = None,
    drop_columns: Sequence[str | int] = (),
) -> Table:
    """Read a table of finite numbers from a .csv, .parquet, .npy or .npz file.

    Parameters
    ----------
    path : path
        The file; its ending tells the format (.parquet needs pyarrow). A .csv file may be delimited by
        comma, semicolon, tab or spaces, may have a byte order mark, either kind of line end, and comment lines
        starting with ``#`` at the top.
    labels_column : str or int, optional
        Column with known labels, by name or by index from 0 (negative: from the end). It may hold text. For a
        .npz file it may also name a one-dimensional array of the file.
    delimiter : str, optional
        One character, or ``"comma"``, ``"semicolon"``, ``"tab"``, ``"space"``, ``"pipe"``. Detected when
        None.
    header : bool, optional
        Whether the first line of a .csv names the columns. Detected when None: it does when it holds text
        above numbers.
    key : str, optional
        Name of the array in a .npz file; needed when the file has several.
    drop_columns : sequence of str or int
        Columns to leave out, named like `labels_column`.

    Returns
    -------
    Table

    Raises
    ------
    InvalidArgumentError
        The file is missing, empty, a folder, of an unknown type or pickled; a column holds text; a cell is
        missing, NaN or infinite; the rows differ in length; a named column does not exist.
    MissingDependencyError
        A .parquet file without pyarrow.

    Notes
    -----
    Lines are counted from 1 as in an editor, rows and columns of arrays from 0.
    """
    source = Path(path)
    suffix = source.suffix.lower()
    if not source.exists():
        refuse(
            f"There is no file {str(source)!r}; check the path.",
            argument="path",
            got=str(source),
            wanted="an existing file",
        )
    if source.is_dir():
        refuse(
            f"{str(source)!r} is a folder; a .csv, .parquet, .npy or .npz file in it is wanted.",
            argument="path",
            got=str(source),
            wanted="a file",
        )
    if suffix not in (".csv", ".parquet", ".npy", ".npz"):
        hint = (
            "; a text table under another ending can be renamed to .csv"
            if suffix in (".txt", ".tsv", ".dat")
            else ""
        )
        refuse(
            f"{source.name!r} has the unknown type {suffix!r}; a .csv, .parquet, .npy or .npz file is wanted"
            f"{hint}.",
            argument="path",
            got=str(source),
            wanted="a .csv, .parquet, .npy or .npz file",
        )
    if suffix != ".npz" and key is not None:
        refuse(
            f"key={key!r} names an array of a .npz file, and {source.name!r} is not one.",
            argument="key",
            got=key,
            wanted="a .npz file",
        )
    if suffix != ".csv" and (delimiter is not None or header is not None):
        name, value = ("delimiter", delimiter) if delimiter is not None else ("header", header)
        refuse(
            f"{name}={value!r} is for .csv files, and {source.name!r} is not one.",
            argument=name,
            got=value,
            wanted="a .csv file",
        )
    try:
        if source.stat().st_size == 0:
            refuse(
                f"{source.name!r} is empty; a table with one row or more is wanted.",
                argument="path",
                got=str(source),
                wanted="a table",
            )
        if suffix == ".csv":
            return _from_text(source, read_text(source, labels_column, delimiter, header, drop_columns))
        if suffix == ".parquet":
            return _read_parquet(source, labels_column, drop_columns)
        if suffix == ".npy":
            return _from_array(source, _load_npy(source), None, labels_column, drop_columns)
        return _read_npz(source, labels_column, key, drop_columns)
    except OSError as error:
        refuse(
            f"{str(source)!r} cannot be read: {error.strerror or error}.",
            argument="path",
            got=str(source),
            wanted="a readable file",
        )


def _from_text(source: Path, text: TextTable) -> Table:
    return Table(text.values, text.column_names, text.labels, text.labels_name, source, text.notes)


def _read_parquet(source: Path, labels_column: str | int | None, drop_columns: Sequence[str | int]) -> Table:
    require_pyarrow()
    import pyarrow
    from pyarrow import parquet

    try:
        columns = parquet.read_table(source)
    except pyarrow.ArrowException as error:
        refuse(
            f"{source.name!r} is not a whole Parquet file ({error}); write the table again.",
            argument="path",
            got=str(source),
            wanted="a .parquet file",
        )
    names = tuple(columns.column_names)
    label = None if labels_column is None else index_of(labels_column, names, "labels_column", source)
    left_out = {index_of(column, names, "drop_columns", source) for column in drop_columns}
    kept = [i for i in range(len(names)) if i not in left_out and i != label]
    if not kept or columns.num_rows == 0:
        refuse(
            f"{source.name!r} has no row, or no column left besides the labels.",
            argument="path",
            got=columns.shape,
            wanted="a table with one row or more",
        )
    if label is not None and columns.column(label).null_count:
        refuse(
            f"The label column {names[label]!r} of {source.name!r} has empty cells; give every row a label.",
            argument="labels_column",
            got="an empty cell",
            wanted="a label in every row",
        )
    values = np.empty((columns.num_rows, len(kept)))
    for place, i in enumerate(kept):
        kind = columns.schema.field(i).type
        types = pyarrow.types
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            refuse(
                f"Column {names[i]!r} (index {i}) of {source.name!r} is of type {kind}; every column must hold "
                f"numbers: if it holds the known labels, say --labels-column {names[i]!r} (labels_column= in "
                f"Python); to leave it out, say --drop {names[i]!r} (drop_columns=).",
                argument="path",
                got=str(kind),
                wanted="numbers",
            )
        values[:, place] = columns.column(i).cast(pyarrow.float64(), safe=False).to_numpy()
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, place = bad[0]
        refuse(
            f"The cell in row {row}, column {names[kept[place]]!r} (index {kept[place]}) of {source.name!r} is "
            "missing or not finite; every cell must be a finite number: fill it in, or leave out its row or column.",
            argument="path",
            got=float(values[row, place]),
            wanted="a finite number in every cell",
        )
    labels = None if label is None else _label_text(np.array(columns.column(label).to_pylist()))
    return Table(
        values, tuple(names[i] for i in kept), labels, None if label is None else names[label], source
    )


def _pickled(source: Path) -> NoReturn:
    refuse(
        f"{source.name!r} holds pickled Python objects, which are never loaded because they can run code; "
        "save a plain array of numbers: numpy.save(path, array.astype(float)).",
        argument="path",
        got="pickled objects",
        wanted="an array of numbers",
    )


def _load_npy(source: Path) -> NDArray[Any]:
    with source.open("rb") as stream:
        start = stream.read(6)
        if start[:1] == b"\x80":
            _pickled(source)
        if start != b"\x93NUMPY":
            refuse(
                f"{source.name!r} is not a .npy file despite its name; save the array with numpy.save.",
                argument="path",
                got=str(source),
                wanted="a .npy file",
            )
        stream.seek(0)
        return _read_stream(source, stream)


def _read_stream(source: Path, stream: IO[bytes]) -> NDArray[Any]:
    try:
        loaded: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    except (ValueError, EOFError, MemoryError) as error:
        if "Object arrays" in str(error):
            _pickled(source)
        refuse(
            f"{source.name!r} is damaged or cut short ({error}); save the array again with numpy.save.",
            argument="path",
            got=str(source),
            wanted="a whole array",
        )
    return loaded


def _read_npz(
    source: Path, labels_column: str | int | None, key: str | None, drop_columns: Sequence[str | int]
) -> Table:
    try:
        archive = zipfile.ZipFile(source)
    except zipfile.BadZipFile:
        refuse(
            f"{source.name!r} is not a .npz file despite its name; save the arrays with numpy.savez.",
            argument="path",
            got=str(source),
            wanted="a .npz file",
        )
    with archive:
        members = {name.removesuffix(".npy"): name for name in archive.namelist() if name.endswith(".npy")}
        listed = ", ".join(sorted(members)) or "none"
        candidates = set(members)
        label_array = labels_column if isinstance(labels_column, str) and labels_column in members else None
        if label_array is not None:
            candidates.discard(label_array)
        if key is None and len(candidates) == 1:
            key = next(iter(candidates))
        if key is None:
            refuse(
                f"{source.name!r} does not hold exactly one array (arrays: {listed}); name the table with "
                "--key (key=).",
                argument="key",
                got=None,
                wanted="the name of one array",
            )
        if key not in members:
            refuse(
                f"{source.name!r} has no array {key!r}; its arrays are {listed}.",
                argument="key",
                got=key,
                wanted="an array of the file",
            )

        def load(name: str) -> NDArray[Any]:
            try:
                with archive.open(members[name]) as stream:
                    return _read_stream(source, stream)
            except zipfile.BadZipFile as error:
                refuse(
                    f"{source.name!r} is damaged ({error}); save the arrays again with numpy.savez.",
                    argument="path",
                    got=str(source),
                    wanted="a whole file",
                )

        labels = None if label_array is None else (label_array, load(label_array))
        return _from_array(source, load(key), labels, None if labels else labels_column, drop_columns)


def _label_text(values: NDArray[Any]) -> NDArray[np.str_]:
    if values.dtype.kind == "f":
        return np.array(
            [f"{v:.0f}" if v == round(v) else repr(float(v)) for v in values.tolist()], dtype=np.str_
        )
    if values.dtype.kind == "S":
        return np.array([v.decode("utf-8", "replace") for v in values.tolist()], dtype=np.str_)
    return np.array([str(v) for v in values.tolist()], dtype=np.str_)


def _from_array(
    source: Path,
    loaded: NDArray[Any],
    label_array: tuple[str, NDArray[Any]] | None,
    labels_column: str | int | None,
    drop_columns: Sequence[str | int],
) -> Table:
    if loaded.dtype.kind not in "biuf":
        refuse(
            f"{source.name!r} holds an array of type {loaded.dtype}; real numbers are wanted.",
            argument="path",
            got=str(loaded.dtype),
            wanted="real numbers",
        )
    if loaded.ndim != 2:
        fix = "; a single column is array.reshape(-1, 1)" if loaded.ndim == 1 else ""
        refuse(
            f"{source.name!r} holds an array of shape {loaded.shape}; rows and columns, shape (n, d), are "
            f"wanted{fix}.",
            argument="path",
            got=loaded.shape,
            wanted="two dimensions",
        )
    if loaded.size == 0:
        refuse(
            f"{source.name!r} is empty: its array has shape {loaded.shape}; one row and one column or more "
            "are wanted.",
            argument="path",
            got=loaded.shape,
            wanted="one row and one column or more",
        )
    n, d = loaded.shape
    names = [f"column {i}" for i in range(d)]
    labels: NDArray[np.str_] | None = None
    labels_name: str | None = None
    dropped = {index_of(column, names, "drop_columns", source) for column in drop_columns}
    if label_array is not None:
        labels_name, raw = label_array
        if raw.shape != (n,):
            refuse(
                f"The label array {labels_name!r} of {source.name!r} has shape {raw.shape}; one label for "
                f"each of the {n} rows, shape ({n},), is wanted.",
                argument="labels_column",
                got=raw.shape,
                wanted=f"shape ({n},)",
            )
        labels = _label_text(raw)
    elif labels_column is not None:
        index = index_of(labels_column, names, "labels_column", source)
        dropped.add(index)
        labels_name = names[index]
        if loaded.dtype.kind == "f" and not np.isfinite(loaded[:, index]).all():
            row = int(np.flatnonzero(~np.isfinite(loaded[:, index]))[0])
            refuse(
                f"The label in row {row}, column {index} of {source.name!r} is {loaded[row, index]} "
                "(counted from 0); give every row a label.",
                argument="labels_column",
                got=float(loaded[row, index]),
                wanted="a label in every row",
            )
        labels = _label_text(loaded[:, index])
    kept = [i for i in range(d) if i not in dropped]
    if not kept:
        refuse(
            f"{source.name!r} has no column left besides the labels.",
            argument="path",
            got=d,
            wanted="a column of numbers",
        )
    with np.errstate(over="ignore"):  # a longdouble too large for float64 becomes inf, refused below
        values = np.ascontiguousarray(loaded[:, kept], dtype=np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = int(bad[0, 0]), kept[int(bad[0, 1])]
        refuse(
            f"The cell in row {row}, column {column} of {source.name!r} (counted from 0) is "
            f"{values[row, bad[0, 1]]}; every cell must be a finite number: fill it in, or leave out its "
            "row or column.",
            argument="path",
            got=float(values[row, bad[0, 1]]),
            wanted="a finite number in every cell",
        )
    return Table(values, tuple(names[i] for i in kept), labels, labels_name, source)


@dataclass(frozen=True)
class Standardised:
    """Columns moved to mean 0 and scaled to variance 1: ``values = (original - mean) / scale``.

    Attributes
    ----------
    values : float64 (n, d)
    mean, scale : float64 (d,)
        Column means and population standard deviations; the scale of a constant column is 1.
    constant : tuple of int
        Columns with one value only; they are all zero in `values`.
    """

    values: FloatArray
    mean: FloatArray
    scale: FloatArray
    constant: tuple[int, ...]

    def to_original(self, x: FloatArray) -> FloatArray:
        """Rows (k, d) in standardised units, put back into the units of the file."""
        return x * self.scale + self.mean


def standardise(values: ArrayLike) -> Standardised:
    """Give every column mean 0 and variance 1.

        z_ij = (a_ij - mean_j) / s_j,   s_j^2 = (1/n) sum_i (a_ij - mean_j)^2

    Parameters
    ----------
    values : (n, d)
        Finite numbers; copied.

    Returns
    -------
    Standardised
        A constant column has no variance to scale: it is left at exactly zero and listed in `constant`.

    Notes
    -----
    Columns are divided by a power of two near their largest entry first, so that squares neither overflow nor
    underflow; the mean is refined once, so that an offset of 1e6 spreads costs no digits.
    """
    a = np.array(values, dtype=np.float64, ndmin=2)
    _, exponent = np.frexp(np.max(np.abs(a), axis=0, initial=0.0))
    unit = np.ldexp(1.0, np.clip(exponent, -1000, 1000))
    a /= unit
    constant = np.all(a == a[:1], axis=0)
    mean = a.mean(axis=0)
    mean += (a - mean).mean(axis=0)
    mean[constant] = a[0, constant]
    a -= mean
    scale = np.sqrt(np.mean(a * a, axis=0))
    scale[constant] = 1.0
    a /= scale
    scale[~constant] *= unit[~constant]
    return Standardised(a, mean * unit, scale, tuple(int(i) for i in np.flatnonzero(constant)))
