"""Images from files on this machine: MNIST, and the small digits that scikit-learn brings."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.datasets._clients import ClientData
from fusionopt.errors import InvalidArgumentError

_IDX = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def load_mnist(path: str | Path) -> ClientData:
    """MNIST, or images filed alike (Fashion-MNIST), from a file or folder; the network is not used.

    Parameters
    ----------
    path : path
        Either an .npz file with the uint8 arrays x_train (n, h, w), y_train (n,), x_test and y_test (the layout of
        Keras' mnist.npz), or a folder with the four IDX files ``train-images-idx3-ubyte``,
        ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte``, ``t10k-labels-idx1-ubyte``, each plain or with
        ``.gz``; a dot before ``idx`` is understood too.

    Returns
    -------
    ClientData
        x float32 (n, h w), grey levels divided by 255, a row an image in C order; y int64. The whole data set as one
        record: deal it out with `split_evenly`, `split_dirichlet` or `split_imbalanced`.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        No such file, another kind of file, a missing part, a file cut short, labels that do not fit the images.

    Notes
    -----
    With a network, scikit-learn fetches the same images: ``fetch_openml("mnist_784", version=1, as_frame=False)``,
    the first 60000 rows for training; put them into a `ClientData`.
    """
    place = _checks.as_path("path", path)
    if place.is_dir():
        arrays = {name: _read_idx(place, file) for name, file in _IDX.items()}
    else:
        arrays = _read_npz(place)
    rows: list[NDArray[Any]] = []
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.dtype != np.uint8 or x.ndim != 3 or 0 in x.shape or x.shape[1:] != arrays["x_train"].shape[1:]:
            _refuse(
                f"{str(place)!r}: x_{part} has shape {x.shape} and type {x.dtype}; images are uint8 (n, h, w), of one "
                "size in both parts."
            )
        if y.dtype.kind not in "iu" or y.shape != (len(x),):
            _refuse(
                f"{str(place)!r}: y_{part} has shape {y.shape} and type {y.dtype}; it needs one whole number for each "
                f"of the {len(x)} images."
            )
        rows += [x.reshape(len(x), -1).astype(np.float32) / np.float32(255), y.astype(np.int64)]
    return ClientData(*rows)


def load_digits() -> ClientData:
    """The 1797 8 x 8 digits that scikit-learn brings: 1438 training rows and 359 test rows.

    Every fifth row is for testing. x is float32 (n, 64), grey levels divided by 16; y int64, 0, ..., 9.

    Raises
    ------
    MissingDependencyError
        scikit-learn is not installed.

    Examples
    --------
    >>> digits = load_digits()
    >>> digits.x_train.shape, digits.x_test.shape
    ((1438, 64), (359, 64))
    """
    from sklearn.datasets import load_digits as load

    x, y = load(return_X_y=True)
    x, y = (x / 16).astype(np.float32), y.astype(np.int64)
    test = np.arange(len(y)) % 5 == 4
    return ClientData(x[~test], y[~test], x[test], y[test])


def _refuse(sentence: str) -> NoReturn:
    _checks.refuse(sentence, argument="path", got="", wanted="an .npz file or a folder of IDX files")


def _read_npz(place: Path) -> dict[str, NDArray[Any]]:
    wanted = "a .npz file with x_train, y_train, x_test, y_test or a folder with the four IDX files"
    try:
        with place.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                _refuse(f"{str(place)!r} holds a single array; give {wanted}.")
            missing = [name for name in _IDX if name not in file.files]
            if missing:
                _refuse(f"{str(place)!r} has no {missing[0]}; give {wanted}.")
            return {name: file[name] for name in _IDX}
    except OSError as error:
        _refuse(f"{str(place)!r} cannot be read: {error.strerror or error}; give {wanted}.")
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        _refuse(f"{str(place)!r} is no intact .npz file of plain arrays ({error}); give {wanted}.")


def _read_idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """An IDX file of bytes: 0, 0, type 8, number of dimensions, each length as big-endian uint32, then the data."""
    names = [stem + end for stem in (name, name.replace("-idx", ".idx")) for end in ("", ".gz")]
    place = next((folder / each for each in names if (folder / each).is_file()), None)
    if place is None:
        _refuse(f"{str(folder)!r} holds none of {', '.join(names)}; give a folder with the four IDX files.")
    try:
        raw = place.read_bytes()
        content = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        _refuse(f"{str(place)!r} cannot be read: {error}; fetch the file again.")
    n_dimensions = 3 if "idx3" in name else 1
    if content[:4] != bytes([0, 0, 8, n_dimensions]):
        _refuse(
            f"{str(place)!r} begins with {content[:4]!r}; an IDX file of {n_dimensions}-dimensional bytes begins with "
            f"{bytes([0, 0, 8, n_dimensions])!r}."
        )
    head = 4 + 4 * n_dimensions
    shape = tuple(int(n) for n in np.frombuffer(content[4:head].ljust(head - 4, b"\0"), dtype=">u4"))
    size = 1
    for length in shape:
        size *= length
    if len(content) != head + size:
        _refuse(
            f"{str(place)!r} announces {size} bytes of shape {shape} and holds {len(content) - head}; fetch the file "
            "again."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)
