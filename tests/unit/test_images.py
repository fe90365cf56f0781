"""Image files: what is read is what was written, and every wrong file is refused by name."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

from fusionopt.datasets import load_digits, load_mnist
from fusionopt.errors import InvalidArgumentError, InvalidTypeError

NAMES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (6, 4, 4), dtype=np.uint8),
        "y_train": np.array([0, 1, 2, 0, 1, 9], dtype=np.uint8),
        "x_test": rng.integers(0, 256, (3, 4, 4), dtype=np.uint8),
        "y_test": np.array([2, 1, 0], dtype=np.uint8),
    }


def write_idx(folder, arrays, *, compress=False, dot=False):
    folder.mkdir()
    for key, name in NAMES.items():
        array = arrays[key]
        content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
        stem = name.replace("-idx", ".idx") if dot else name
        (folder / (stem + (".gz" if compress else ""))).write_bytes(
            gzip.compress(content) if compress else content
        )
    return folder


def assert_holds(data, arrays):
    for part in ("train", "test"):
        x, y = getattr(data, f"x_{part}"), getattr(data, f"y_{part}")
        assert (x.dtype, y.dtype) == (np.float32, np.int64)
        np.testing.assert_array_equal(np.rint(x * 255), arrays[f"x_{part}"].reshape(len(y), 16))
        assert x.min() >= 0 and x.max() <= 1
        np.testing.assert_array_equal(y, arrays[f"y_{part}"])


def test_npz(tmp_path, arrays):
    np.savez(tmp_path / "a.npz", **arrays)
    assert_holds(load_mnist(tmp_path / "a.npz"), arrays)
    np.savez_compressed(tmp_path / "b.npz", **arrays)
    assert_holds(load_mnist(str(tmp_path / "b.npz")), arrays)


@pytest.mark.parametrize(("compress", "dot"), [(False, False), (True, False), (True, True)])
def test_idx(tmp_path, arrays, compress, dot):
    assert_holds(load_mnist(write_idx(tmp_path / "idx", arrays, compress=compress, dot=dot)), arrays)


def cut(path):
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda a: a.pop("y_test"), "has no y_test"),
        (lambda a: a.update(x_train=a["x_train"].astype(float)), "type float64; images are uint8"),
        (lambda a: a.update(x_test=a["x_test"][:, :3]), r"x_test has shape \(3, 3, 4\)"),
        (lambda a: a.update(x_train=a["x_train"][:0], y_train=a["y_train"][:0]), r"shape \(0, 4, 4\)"),
        (lambda a: a.update(y_train=a["y_train"][:4]), "one whole number for each of the 6 images"),
        (lambda a: a.update(y_train=a["y_train"] / 2), "y_train has shape"),
        (lambda a: a.update(y_test=np.array([0, {}, 1], dtype=object)), "no intact .npz file of plain"),
    ],
)
def test_wrong_npz(tmp_path, arrays, spoil, message):
    spoil(arrays)
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InvalidArgumentError, match=message):
        load_mnist(tmp_path / "a.npz")


def test_files_that_are_no_npz(tmp_path, arrays):
    path = tmp_path / "a.npz"
    with pytest.raises(InvalidArgumentError, match="No such file"):
        load_mnist(path)
    with pytest.raises(InvalidTypeError, match="is not a path"):
        load_mnist(3)
    path.write_bytes(b"hello")
    with pytest.raises(InvalidArgumentError, match=r"no intact \.npz"):
        load_mnist(path)
    path.write_bytes(b"")
    with pytest.raises(InvalidArgumentError, match=r"no intact \.npz"):
        load_mnist(path)
    np.save(tmp_path / "b.npy", np.zeros(3))
    with pytest.raises(InvalidArgumentError, match="single array"):
        load_mnist(tmp_path / "b.npy")
    np.savez_compressed(path, **arrays)
    whole = path.read_bytes()
    for keep in (10, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:keep])
        with pytest.raises(InvalidArgumentError, match=r"no intact \.npz"):
            load_mnist(path)
    middle = len(whole) // 3
    path.write_bytes(
        whole[:middle] + bytes(b ^ 255 for b in whole[middle : middle + 9]) + whole[middle + 9 :]
    )
    with pytest.raises(InvalidArgumentError, match=r"no intact \.npz"):
        load_mnist(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / NAMES["y_train"]).unlink(), "holds none of train-labels-idx1-ubyte"),
        (lambda f: cut(f / NAMES["x_test"]), "announces 48 bytes .* holds 46"),
        (
            lambda f: (f / NAMES["x_test"]).write_bytes((f / NAMES["x_test"]).read_bytes() + b"\0"),
            "announces 48 bytes .* holds 49",
        ),
        (lambda f: (f / NAMES["x_train"]).write_bytes(b"\0\0\x08\x03\0"), "announces 0 bytes"),
        (lambda f: (f / NAMES["x_train"]).write_bytes(b""), "begins with b''"),
        (lambda f: (f / NAMES["x_test"]).write_bytes(b"\0\0\x08\x03" + b"\xff" * 12), "announces 7.* bytes"),
        (lambda f: (f / NAMES["y_test"]).write_bytes((f / NAMES["x_test"]).read_bytes()), "1-dimensional"),
        (lambda f: (f / NAMES["y_test"]).write_bytes(b"\x1f\x8bxxxx"), "cannot be read"),
        (lambda f: (f / NAMES["y_test"]).write_bytes(gzip.compress(b"\0\0\x08\x01")[:-6]), "cannot be read"),
    ],
)
def test_wrong_idx(tmp_path, arrays, spoil, message):
    folder = write_idx(tmp_path / "idx", arrays)
    spoil(folder)
    with pytest.raises(InvalidArgumentError, match=message):
        load_mnist(folder)


def test_digits_have_every_class_in_both_parts():
    digits = load_digits()
    assert digits.x_train.dtype == np.float32 and digits.x_train.max() == 1
    for y in (digits.y_train, digits.y_test):
        assert np.unique(y).tolist() == list(range(10))
