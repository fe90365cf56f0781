"""The only file that words an argument error: what was given, what is wanted, how to mend it."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fusionopt._memory import available_bytes
from fusionopt.errors import InvalidArgumentError, InvalidTypeError, MemoryLimitError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def refuse(sentence: str, *, argument: str, got: object, wanted: str) -> NoReturn:
    """Raise `InvalidArgumentError`."""
    raise InvalidArgumentError(sentence, argument=argument, got=got, wanted=wanted)


def refuse_type(sentence: str, *, argument: str, got: object, wanted: str) -> NoReturn:
    """Raise `InvalidTypeError`."""
    raise InvalidTypeError(sentence, argument=argument, got=got, wanted=wanted)


def refuse_memory(what: str, n_bytes: float, limit: float, remedy: str) -> NoReturn:
    """Raise `MemoryLimitError`."""
    raise MemoryLimitError(
        f"{what} would take {n_bytes / 2**30:.3g} GiB, more than the limit of {limit / 2**30:.3g} GiB; "
        f"{remedy}."
    )


def memory_limit() -> float:
    """What one request may take: most of the machine's memory; inf where the system does not tell."""
    return 0.8 * available_bytes()


def check_memory(
    what: str, n_bytes: float, remedy: str = "use a sparser graph, fewer nodes or a larger machine"
) -> None:
    """Refuse a request that the machine's memory cannot hold."""
    if n_bytes > memory_limit():
        refuse_memory(what, n_bytes, memory_limit(), remedy)


def shown(value: object, limit: int = 60) -> str:
    """A short repr for messages."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _as_numbers(name: str, value: object) -> NDArray[Any]:
    """An array of a real number type, not necessarily a copy."""
    if sparse.issparse(value):
        refuse_type(
            f"{name} is a sparse matrix; give a dense array, for instance {name}.toarray().",
            argument=name,
            got=type(value).__name__,
            wanted="a dense array",
        )
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        refuse(
            f"{name} has masked entries, which would be read as numbers; leave those rows out or fill them "
            "in.",
            argument=name,
            got="masked entries",
            wanted="an array without a mask",
        )
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"{name} cannot be read as an array ({error}); give rows of equal length.",
            argument=name,
            got=type(value).__name__,
            wanted="a rectangular array of numbers",
        ) from error
    if array.dtype.kind not in "fiub":
        kind = {"c": "complex numbers", "O": "Python objects", "U": "text", "S": "text"}.get(
            array.dtype.kind, f"values of type {array.dtype}"
        )
        refuse_type(
            f"{name} holds {kind} (dtype {array.dtype}); give real numbers, for instance an array of dtype "
            "float64.",
            argument=name,
            got=str(array.dtype),
            wanted="real numbers",
        )
    return array


def _as_float64(array: NDArray[Any]) -> FloatArray:
    # A longdouble beyond the float64 range becomes Inf here and is then refused by name, without a warning.
    with np.errstate(over="ignore"):
        return np.array(array, dtype=np.float64, order="C", copy=True)


def _read_only(array: FloatArray) -> FloatArray:
    array.flags.writeable = False
    return array


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Inf" if value > 0 else "-Inf"


def as_matrix(
    name: str,
    value: object,
    *,
    allow_vector: bool = False,
    n_columns: int | None = None,
    missing: bool = False,
) -> FloatArray:
    """A read-only C-contiguous float64 copy with two dimensions and finite entries.

    Parameters
    ----------
    name : str
        The argument's name in messages.
    value : array-like (n, d)
        Real numbers in any layout: lists, pandas, float32, integers, bool, Fortran order, read-only.
    allow_vector : bool
        Take a vector (n,) as n rows with one feature.
    n_columns : int or None
        Number of columns that is wanted.
    missing : bool
        NaN marks a missing entry and is kept.

    Returns
    -------
    float64 (n, d), n >= 1, d >= 1

    Raises
    ------
    InvalidTypeError
        Complex numbers, text or other objects; sparse matrices.
    InvalidArgumentError
        Wrong number of dimensions, nothing inside, NaN or Inf, wrong number of columns.
    """
    array = _as_numbers(name, value)
    if array.ndim == 1 and allow_vector:
        array = array[:, None]
    if array.ndim != 2:
        mend = (
            f"use reshape(-1, 1) if it is one feature or reshape(1, -1) if it is one row of {name}"
            if array.ndim == 1
            else "give one row for each node and one column for each feature"
        )
        refuse(
            f"{name} has {array.ndim} dimensions (shape {array.shape}); it needs 2: {mend}.",
            argument=name,
            got=array.shape,
            wanted="2 dimensions",
        )
    if 0 in array.shape:
        refuse(
            f"{name} is empty (shape {array.shape}); give at least one row and one column.",
            argument=name,
            got=array.shape,
            wanted="at least one row and one column",
        )
    if n_columns is not None and array.shape[1] != n_columns:
        refuse(
            f"{name} has {array.shape[1]} columns (shape {array.shape}); it needs {n_columns}.",
            argument=name,
            got=array.shape,
            wanted=f"{n_columns} columns",
        )
    copy = _as_float64(array)
    bad = np.isinf(copy) if missing else ~np.isfinite(copy)
    if bad.any():
        row, column = (int(k) for k in np.argwhere(bad)[0])
        word = _word(float(copy[row, column]))
        count = int(bad.sum())
        others = f" ({count} such entries in all)" if count > 1 else ""
        refuse(
            f"{name} holds {word} at row {row}, column {column}{others}; every entry must be a finite "
            "number. Remove or fill in those rows first.",
            argument=name,
            got=word,
            wanted="finite numbers",
        )
    return _read_only(copy)


def as_sparse_matrix(name: str, value: object, *, n_columns: int | None = None) -> sparse.csr_array:
    """A CSR float64 copy of a SciPy sparse matrix with finite entries, duplicates summed, indices sorted.

    Parameters and exceptions as in `as_matrix`.
    """
    kind = getattr(value, "dtype", np.dtype(object)).kind
    if kind not in "fiub":
        refuse_type(
            f"{name} is a sparse matrix of dtype {getattr(value, 'dtype', None)}; give real numbers.",
            argument=name,
            got=str(getattr(value, "dtype", None)),
            wanted="real numbers",
        )
    shape: tuple[int, ...] = getattr(value, "shape", ())
    if len(shape) != 2 or 0 in shape:
        refuse(
            f"{name} has shape {shape}; give at least one row and one column.",
            argument=name,
            got=shape,
            wanted="at least one row and one column",
        )
    if n_columns is not None and shape[1] != n_columns:
        refuse(
            f"{name} has {shape[1]} columns (shape {shape}); it needs {n_columns}.",
            argument=name,
            got=shape,
            wanted=f"{n_columns} columns",
        )
    copy = sparse.csr_array(value, dtype=np.float64, copy=True)
    copy.sum_duplicates()
    bad = ~np.isfinite(copy.data)
    if bad.any():
        place = int(np.argmax(bad))
        row = int(np.searchsorted(copy.indptr, place, side="right")) - 1
        word = _word(float(copy.data[place]))
        refuse(
            f"{name} holds {word} at row {row}, column {int(copy.indices[place])}; every entry must be a finite "
            "number.",
            argument=name,
            got=word,
            wanted="finite numbers",
        )
    return copy


def as_array(name: str, value: object) -> FloatArray:
    """A float64 array of finite numbers with any number of dimensions."""
    array = _as_float64(_as_numbers(name, value))
    if not np.isfinite(array).all():
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        word = _word(float(array[place]))
        refuse(
            f"{name} holds {word}{f' at position {place}' if place else ''}; every entry must be a finite "
            "number.",
            argument=name,
            got=word,
            wanted="finite numbers",
        )
    return array


def as_nonnegative_array(name: str, value: object) -> FloatArray:
    """As `as_array`, with every entry >= 0."""
    array = as_array(name, value)
    if (array < 0).any():
        refuse(
            f"{name} holds {array[array < 0].flat[0]}; every entry must be >= 0.",
            argument=name,
            got=float(array[array < 0].flat[0]),
            wanted=">= 0",
        )
    return array


def as_vector(name: str, value: object, *, length: int | None = None, of: str = "") -> FloatArray:
    """A read-only float64 copy with one dimension and finite entries.

    Parameters
    ----------
    name : str
    value : array-like (n,)
    length : int or None
        Length that is wanted.
    of : str
        What there is one entry for, as in "one for each node".

    Returns
    -------
    float64 (n,)

    Raises
    ------
    InvalidTypeError, InvalidArgumentError
        As in `as_matrix`.
    """
    array = _as_numbers(name, value)
    if array.ndim != 1:
        refuse(
            f"{name} has {array.ndim} dimensions (shape {array.shape}); it needs 1: give a flat array, for "
            f"instance numpy.ravel({name}).",
            argument=name,
            got=array.shape,
            wanted="1 dimension",
        )
    if length is not None and len(array) != length:
        each = f", one for each {of}" if of else ""
        refuse(
            f"{name} has {len(array)} entries; it needs {length}{each}.",
            argument=name,
            got=len(array),
            wanted=f"{length} entries",
        )
    copy = _as_float64(array)
    bad = ~np.isfinite(copy)
    if bad.any():
        place = int(np.argmax(bad))
        word = _word(float(copy[place]))
        refuse(
            f"{name} holds {word} at position {place}; every entry must be a finite number.",
            argument=name,
            got=word,
            wanted="finite numbers",
        )
    return _read_only(copy)


def as_node_weights(
    name: str, value: object, length: int, *, of: str, all_zero_refused: bool = True
) -> FloatArray:
    """A read-only float64 copy of finite weights >= 0, not all of them zero unless that is allowed."""
    weights = as_vector(name, value, length=length, of=of)
    negative = weights < 0
    if negative.any():
        place = int(np.argmax(negative))
        refuse(
            f"{name} is {weights[place]} for {of} {place}; weights must be >= 0 (0 leaves the {of} out).",
            argument=name,
            got=float(weights[place]),
            wanted=">= 0",
        )
    if all_zero_refused and not weights.any():
        refuse(
            f"{name} is zero for every {of}, so there is nothing to fit; give at least one positive weight.",
            argument=name,
            got="all zero",
            wanted="at least one positive weight",
        )
    return weights


def as_point(name: str, value: object, shape: tuple[int, int], of: str = "node") -> FloatArray:
    """A finite float64 array of this shape, one row for each `of`; a vector will do for one feature."""
    array = as_matrix(name, value, allow_vector=shape[1] == 1)
    if array.shape != shape:
        refuse(
            f"{name} has shape {array.shape}; the problem needs {shape}: one row for each {of}, one "
            "column for each feature.",
            argument=name,
            got=array.shape,
            wanted=f"shape {shape}",
        )
    return array


def as_labels(name: str, value: object, length: int | None = None) -> NDArray[Any]:
    """Labels of any kind that can be sorted, one for each row, as a flat array."""
    try:
        labels = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InvalidArgumentError(
            f"{name} cannot be read as an array ({error}); give one label for each row.",
            argument=name,
            got=type(value).__name__,
            wanted="a flat array",
        ) from error
    if labels.ndim != 1:
        refuse(
            f"{name} has {labels.ndim} dimensions (shape {labels.shape}); it needs 1: one label for each "
            "row.",
            argument=name,
            got=labels.shape,
            wanted="1 dimension",
        )
    if len(labels) == 0:
        refuse(
            f"{name} is empty; give one label for each row.",
            argument=name,
            got=0,
            wanted="at least one label",
        )
    if length is not None and len(labels) != length:
        refuse(
            f"{name} has {len(labels)} entries; it needs {length}, one for each row.",
            argument=name,
            got=len(labels),
            wanted=f"{length} entries",
        )
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        place = int(np.argmin(np.isfinite(labels)))
        refuse(
            f"{name} holds {_word(float(labels[place]))} at position {place}; a label must be a finite "
            "number or text.",
            argument=name,
            got=float(labels[place]),
            wanted="finite labels",
        )
    if labels.dtype.kind == "O":
        kinds = sorted({type(label).__name__ for label in labels})
        if len(kinds) > 1 or not isinstance(labels[0], str | int):
            refuse_type(
                f"{name} mixes or holds labels of type {', '.join(kinds)}; give whole numbers or text.",
                argument=name,
                got=kinds,
                wanted="whole numbers or text",
            )
    elif labels.dtype.kind not in "fiubUS":
        refuse_type(
            f"{name} holds values of type {labels.dtype}; give whole numbers or text.",
            argument=name,
            got=str(labels.dtype),
            wanted="whole numbers or text",
        )
    return labels


def as_real(name: str, value: object) -> float:
    """A finite float from a real number; bool and text are refused."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        refuse_type(
            f"{name}={shown(value)} is not a number; give a finite real number.",
            argument=name,
            got=value,
            wanted="a finite real number",
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        refuse(
            f"{name}={value} is not finite; give a finite real number.",
            argument=name,
            got=value,
            wanted="a finite real number",
        )
    return number


def as_nonnegative_scalar(name: str, value: object) -> float:
    """A finite float >= 0."""
    number = as_real(name, value)
    if number < 0:
        refuse(
            f"{name}={number} is negative; give a number >= 0.",
            argument=name,
            got=value,
            wanted="a number >= 0",
        )
    return number + 0.0  # turns -0.0 into 0.0


def as_positive_scalar(name: str, value: object, hint: str = "") -> float:
    """A finite float > 0."""
    number = as_real(name, value)
    if number <= 0:
        refuse(
            f"{name}={number} is not positive; give a number > 0{hint}.",
            argument=name,
            got=value,
            wanted="a number > 0",
        )
    return number


def as_scalar_between(name: str, value: object, low: float, high: float, why: str) -> float:
    """A float strictly between `low` and `high`."""
    number = as_real(name, value)
    if not low < number < high:
        refuse(
            f"{name}={number} breaks {low:g} < {name} < {high:g}; {why}.",
            argument=name,
            got=value,
            wanted=f"a number between {low:g} and {high:g}",
        )
    return number


def as_scalar_above(name: str, value: object, low: float, why: str) -> float:
    """A finite float strictly above `low`."""
    number = as_real(name, value)
    if not number > low:
        refuse(
            f"{name}={number} breaks {name} > {low:g}; {why}.",
            argument=name,
            got=value,
            wanted=f"a number > {low:g}",
        )
    return number


def as_share(name: str, value: object) -> float:
    """A float with 0 < value <= 1."""
    number = as_real(name, value)
    if not 0 < number <= 1:
        refuse(
            f"{name}={number} breaks 0 < {name} <= 1; it is a share, 1 for all.",
            argument=name,
            got=value,
            wanted="a number above 0, at most 1",
        )
    return number


def as_count(name: str, value: object, minimum: int = 1) -> int:
    """A Python int >= `minimum`; 3.0 and True are refused."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        refuse_type(
            f"{name}={shown(value)} is not a whole number; give an int >= {minimum}.",
            argument=name,
            got=value,
            wanted=f"an int >= {minimum}",
        )
    number = int(value)
    if number < minimum:
        refuse(
            f"{name}={number} is too small; give an int >= {minimum}.",
            argument=name,
            got=value,
            wanted=f"an int >= {minimum}",
        )
    return number


def as_flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        refuse_type(
            f"{name}={shown(value)} is not True or False; give one of them.",
            argument=name,
            got=value,
            wanted="True or False",
        )
    return bool(value)


def check_lam(value: object) -> float:
    """The regularisation weight: a finite float >= 0."""
    return as_nonnegative_scalar("lam", value)


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        wanted = ", ".join(repr(choice) for choice in choices)
        refuse(
            f"{name}={shown(value)} is unknown; give {'one of ' if len(choices) > 1 else ''}{wanted}.",
            argument=name,
            got=value,
            wanted=wanted,
        )
    return value


def check_callable(name: str, value: object) -> None:
    """Something that can be called."""
    if not callable(value):
        refuse_type(
            f"{name} is a {type(value).__name__}; give a function.",
            argument=name,
            got=type(value).__name__,
            wanted="a function",
        )


def check_instance(name: str, value: object, kind: type | tuple[type, ...], how: str) -> None:
    """An object of a fusionopt class (or of one of several)."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        wanted = " or ".join(k.__name__ for k in kinds)
        refuse_type(
            f"{name} is a {type(value).__name__}; give a {wanted}, {how}.",
            argument=name,
            got=type(value).__name__,
            wanted=wanted,
        )


def check_callback(value: object) -> None:
    """None, or something that can be called."""
    if value is not None and not callable(value):
        refuse_type(
            f"callback={shown(value)} cannot be called; give a function of one argument, or None.",
            argument="callback",
            got=value,
            wanted="a function of one argument, or None",
        )


def as_stop(value: object) -> bool:
    """What a callback returned: whether to stop. An array has no one truth, and is refused."""
    if value is None or isinstance(value, bool | np.bool_ | int | str):
        return bool(value)
    if isinstance(value, np.ndarray) or not _has_truth(value):
        refuse_type(
            f"the callback returned a {type(value).__name__}; return True to stop, False or None to go on.",
            argument="callback",
            got=type(value).__name__,
            wanted="True, False or None",
        )
    return bool(value)


def _has_truth(value: object) -> bool:
    try:
        bool(value)
    except (TypeError, ValueError):
        return False
    return True


def as_path(name: str, value: object) -> Path:
    """A path from text or a path object."""
    if not isinstance(value, str | os.PathLike):
        refuse_type(
            f"{name}={shown(value)} is not a path; give a string or a pathlib.Path.",
            argument=name,
            got=value,
            wanted="a path",
        )
    return Path(os.fsdecode(value))
