"""Tables in: what is read, and the sentence of every refusal. Result folders: whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

from fusionopt._folder import to_jsonable
from fusionopt.errors import InvalidArgumentError
from fusionopt.io import ResultFolder, read_table, standardise

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(content: str | bytes) -> Path:
        path = tmp_path / "table.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return make


@pytest.mark.parametrize("delimiter", [",", ";", "\t", " ", "   "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_delimiters_line_ends_and_byte_order_mark(
    write: Write, delimiter: str, end: str, mark: bytes
) -> None:
    rows = [["x", "y"], ["1.5", "-2e3"], ["3", "4"], [""]]
    table = read_table(write(mark + end.join(delimiter.join(row).strip() for row in rows).encode()))
    assert table.column_names == ("x", "y")
    np.testing.assert_array_equal(table.values, [[1.5, -2e3], [3.0, 4.0]])
    assert table.labels is None


def test_values_are_those_written_to_the_last_bit(write: Write) -> None:
    values = np.random.default_rng(0).standard_normal((50, 3)) * 10.0 ** np.arange(-150, 151, 150)
    table = read_table(write("\n".join(",".join(map(repr, row)) for row in values.tolist())))
    np.testing.assert_array_equal(table.values, values)
    assert table.column_names == ("column 0", "column 1", "column 2")


def test_utf16_as_spreadsheets_export_it(write: Write) -> None:
    table = read_table(write("größe\ty\r\n1\t2\r\n".encode("utf-16")))
    assert table.column_names == ("größe", "y")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b\n1,2\n", ("a", "b")),
        ("id,2019\n1,2\n", ("id", "2019")),
        ("1,2\n3,4\n", ("column 0", "column 1")),
        ("1,2\n", ("column 0", "column 1")),
        ("# a made-up table\n# a,b\n1,2\n", ("a", "b")),
        ("# a made-up table\n1,2\n", ("column 0", "column 1")),
        ("a\n1\n2\n", ("a",)),
        ("x y\n1 2\n", ("x", "y")),
        ('"x, left",y\n1,2\n', ("x, left", "y")),
    ],
)
def test_header_is_detected(write: Write, text: str, names: tuple[str, ...]) -> None:
    assert read_table(write(text)).column_names == names


def test_header_can_be_told(write: Write) -> None:
    path = write("1,2\n3,4\n")
    assert read_table(path, header=True).column_names == ("1", "2")
    assert read_table(path, header=True).values.shape == (1, 2)
    with pytest.raises(InvalidArgumentError, match=r"Column 'column 0' .* holds text, first 'a' on line 1"):
        read_table(write("a,b\n1,2\n"), header=False)


@pytest.mark.parametrize("column", ["kind", "1", 1, "-2", -2])
def test_label_column_by_name_and_index(write: Write, column: str | int) -> None:
    table = read_table(write("a,kind,b\n1,red,2\n3,blue one,4\n"), labels_column=column)
    assert table.labels is not None
    assert table.labels.tolist() == ["red", "blue one"]
    assert table.labels_name == "kind"
    assert table.column_names == ("a", "b")
    np.testing.assert_array_equal(table.values, [[1, 2], [3, 4]])


def test_label_column_without_header(write: Write) -> None:
    table = read_table(write("1,red\n3,blue\n"), labels_column=-1)
    assert table.labels is not None
    assert table.labels.tolist() == ["red", "blue"]
    assert table.column_names == ("column 0",)


def test_row_numbers_and_row_names_are_left_out_and_told(write: Write) -> None:
    pandas = read_table(write(",a,b\n0,5,6\n1,7,8\n"))
    assert pandas.column_names == ("a", "b")
    assert "counts the rows" in pandas.notes[0]
    r_table = read_table(write("a b\nfirst 5 6\nsecond 7 8\n"))
    assert r_table.column_names == ("a", "b")
    np.testing.assert_array_equal(r_table.values, pandas.values)
    assert "row names" in r_table.notes[0]
    data = read_table(write(",a\n0.5,5\n1.5,7\n"))
    assert data.column_names == ("column 0", "a")
    assert data.notes == ()


def test_columns_can_be_dropped(write: Write) -> None:
    table = read_table(write("id,a,b\nx1,1,2\nx2,3,4\n"), drop_columns=["id", -1])
    assert table.column_names == ("a",)


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        ("", {}, r"'table\.csv' is empty"),
        ("\n \n", {}, r"'table\.csv' is empty"),
        ("# only a comment\n", {}, r"'table\.csv' is empty"),
        ("a,b\n", {}, r"has a header line but no rows"),
        ("a,c\n1,red\n2,blue\n", {}, r"Column 'c' \(index 1\).*'red' on line 2.*--labels-column 'c'.*--drop"),
        ("a,c\n1,2\n2,blue\n", {}, r"Column 'c'.*'blue' on line 3"),
        ("a;b\n1,5;2\n", {}, r"'1,5' on line 2.*decimal point"),
        ("a,b\n1_000,2\n", {}, r"'1_000' on line 2"),
        ("a,b\n1,2\n3,\n", {}, r"cell on line 3, column 'b' \(index 1\).* is missing"),
        ("a,b\n\n1,2\n\n\nnan,4\n", {}, r"cell on line 6, column 'a' .* is 'nan'"),
        ("a,b\n1,2\n3,NA\n", {}, r"line 3, column 'b' .* is 'NA'"),
        ("a,b\n1,inf\n", {}, r"line 2, column 'b' .* is 'inf'"),
        ("a,b\n1,1e999\n", {}, r"line 2, column 'b' .* is '1e999'"),
        ("a\n1\n\n3\n", {}, r"line 3, column 'a' .* is missing"),
        ("a,b\n1,2\n1,2,3\n", {}, r"Line 3 .* has 3 cells where the lines before have 2"),
        ("a,b\n1,2\n1\n", {}, r"Line 3 .* has 1 cells where the lines before have 2"),
        ("a,b,c,d\n1,2\n", {}, r"header .* names 4 columns but line 2 has 2 cells"),
        ("a,b\n1,2\n", {"labels_column": "kind"}, r"labels_column='kind' is not a column .* 0: a, 1: b"),
        ("a,b\n1,2\n", {"labels_column": 2}, r"labels_column=2 is not a column"),
        ("a,b\n1,2\n", {"labels_column": "-3"}, r"labels_column='-3' is not a column"),
        ("a,a\n1,2\n", {"labels_column": "a"}, r"labels_column='a' names 2 columns .*indices 0, 1"),
        ("a,b\n1,x\n1,\n", {"labels_column": "b"}, r"label column 'b' .* is empty on line 3"),
        ("a\n1\n", {"labels_column": "a"}, r"no column left besides the labels"),
        ("a,b\n1,2\n", {"drop_columns": ["z"]}, r"drop_columns='z' is not a column"),
        ("a,b\n1,2\n", {"delimiter": "ab"}, r"delimiter='ab' is not one character"),
        ("a,b\n1,2\n", {"key": "x"}, r"key='x' names an array of a \.npz file"),
        (b"a,b\n1,\xff\n", {}, r"is not UTF-8 text"),
        (b"\x00\x01\x02\n", {}, r"is not a text table \(it holds zero bytes\)"),
    ],
)  # fmt: skip
def test_refusals_of_text_tables(
    write: Write, content: str | bytes, options: dict[str, object], sentence: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence) as caught:
        read_table(write(content), **options)  # type: ignore[arg-type]
    assert caught.value.argument
    assert caught.value.wanted


def test_text_column_is_named_before_an_earlier_hole(write: Write) -> None:
    with pytest.raises(InvalidArgumentError, match="holds text, first 'red' on line 3"):
        read_table(write("a,c\n,1\n2,red\n"))


def test_refusals_of_paths(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"There is no file .*nothing\.csv"):
        read_table(tmp_path / "nothing.csv")
    with pytest.raises(InvalidArgumentError, match="is a folder"):
        read_table(tmp_path)
    odd = tmp_path / "table.xlsx"
    odd.write_text("1,2\n")
    with pytest.raises(
        InvalidArgumentError, match=r"unknown type '\.xlsx'; a \.csv, \.parquet, \.npy or \.npz"
    ):
        read_table(odd)


def test_npy_in_any_layout(tmp_path: Path) -> None:
    values = np.arange(12.0).reshape(4, 3)
    path = tmp_path / "table.npy"
    for array in (values, np.asfortranarray(values), values.astype(np.float32), values.astype(np.int8)):
        np.save(path, array)
        table = read_table(path)
        np.testing.assert_array_equal(table.values, values)
        assert table.values.dtype == np.float64
        assert table.values.flags.c_contiguous
    table = read_table(path, labels_column=-1)
    assert table.labels is not None
    assert table.labels.tolist() == ["2", "5", "8", "11"]
    np.testing.assert_array_equal(table.values, values[:, :2])


def test_npz_arrays_by_name(tmp_path: Path) -> None:
    path = tmp_path / "table.npz"
    x = np.arange(6.0).reshape(3, 2)
    np.savez(path, x)
    np.testing.assert_array_equal(read_table(path).values, x)
    np.savez_compressed(path, x=x, y=np.array(["a", "b", "a"]))
    table = read_table(path, labels_column="y")
    assert table.labels is not None
    assert table.labels.tolist() == ["a", "b", "a"]
    np.testing.assert_array_equal(table.values, x)
    np.testing.assert_array_equal(read_table(path, key="x").values, x)
    with pytest.raises(InvalidArgumentError, match=r"not hold exactly one array \(arrays: x, y\).*--key"):
        read_table(path)
    with pytest.raises(InvalidArgumentError, match=r"has no array 'z'; its arrays are x, y"):
        read_table(path, key="z")
    with pytest.raises(InvalidArgumentError, match="type <U1; real numbers"):
        read_table(path, key="y")


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (np.zeros(3), r"shape \(3,\).*reshape\(-1, 1\)"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        (np.zeros((0, 2)), r"is empty: its array has shape \(0, 2\)"),
        (np.zeros((2, 2), dtype=complex), "type complex128; real numbers"),
        (np.array([["a"]]), "real numbers are wanted"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), r"row 1, column 1 .* is nan"),
        (np.array([[1.0, -np.inf]]), r"row 0, column 1 .* is -inf"),
        (np.array([["a", None]], dtype=object), "pickled Python objects"),
    ],
)
def test_refusals_of_arrays(tmp_path: Path, array: np.ndarray, sentence: str) -> None:
    path = tmp_path / "table.npy"
    np.save(path, array, allow_pickle=True)
    with pytest.raises(InvalidArgumentError, match=sentence):
        read_table(path)
    np.savez(tmp_path / "table.npz", array)
    with pytest.raises(InvalidArgumentError, match=sentence):
        read_table(tmp_path / "table.npz")


def test_refusals_of_damaged_arrays(tmp_path: Path) -> None:
    path = tmp_path / "table.npy"
    np.save(path, np.zeros((4, 4)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(InvalidArgumentError, match="damaged or cut short"):
        read_table(path)
    path.write_bytes(b"1,2\n3,4\n")
    with pytest.raises(InvalidArgumentError, match=r"not a \.npy file despite its name"):
        read_table(path)
    path.write_bytes(b"\x80\x04K\x01.")
    with pytest.raises(InvalidArgumentError, match="pickled Python objects"):
        read_table(path)
    archive = tmp_path / "table.npz"
    archive.write_bytes(whole)
    with pytest.raises(InvalidArgumentError, match=r"not a \.npz file despite its name"):
        read_table(archive)
    with pytest.raises(InvalidArgumentError, match=r"delimiter=',' is for \.csv files"):
        read_table(path, delimiter=",")


def test_label_array_of_wrong_length_and_label_that_is_nan(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", x=np.zeros((3, 2)), y=np.zeros(2))
    with pytest.raises(InvalidArgumentError, match=r"label array 'y' .* shape \(2,\); one label for each"):
        read_table(tmp_path / "t.npz", labels_column="y")
    np.save(tmp_path / "t.npy", np.array([[1.0, 0.0], [2.0, np.nan]]))
    with pytest.raises(InvalidArgumentError, match="label in row 1, column 1"):
        read_table(tmp_path / "t.npy", labels_column=1)


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1.0, 1e8, 1e300])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_standardise_at_every_scale(scale: float, offset: float) -> None:
    values = (np.random.default_rng(1).standard_normal((40, 3)) + offset) * scale
    scaled = standardise(values)
    spread = max(1.0, offset)  # the offset costs as many digits as it has
    np.testing.assert_allclose(scaled.values.mean(axis=0), 0.0, atol=1e-14 * spread)
    np.testing.assert_allclose(scaled.values.std(axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(scaled.to_original(scaled.values), values, rtol=1e-12)
    assert scaled.constant == ()


def test_standardise_leaves_constant_columns_at_zero() -> None:
    values = np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])
    scaled = standardise(values)
    assert scaled.constant == (0,)
    np.testing.assert_array_equal(scaled.values[:, 0], 0.0)
    np.testing.assert_array_equal(scaled.to_original(scaled.values)[:, 0], 0.1)
    assert standardise([[1.0, 2.0]]).constant == (0, 1)


def test_json_is_standard() -> None:
    value = {
        "a": np.float64("nan"),
        "b": [np.inf, np.int64(3)],
        "c": np.array([1.0, -np.inf]),
        "d": True,
        "e": Path("x"),
    }
    text = json.dumps(to_jsonable(value), allow_nan=False)
    assert json.loads(text) == {"a": None, "b": [None, 3], "c": [1.0, None], "d": True, "e": "x"}


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def _fill(folder: ResultFolder, text: str) -> None:
    folder.write_json("results.json", {"fusionopt": text})
    folder.write_text("figures/a.svg", text)


def _fail(target: Path, error: type[BaseException]) -> None:
    with ResultFolder(target, force=True) as folder:
        _fill(folder, "half")
        raise error


def test_folder_appears_whole(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with ResultFolder(target) as folder:
        _fill(folder, "1")
        assert not target.exists()
    assert _names(target) == ["figures", "results.json"]
    assert _names(target.parent) == ["out"]
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o777 & ~umask


def test_nothing_remains_after_an_exception(tmp_path: Path) -> None:
    for error in (RuntimeError, KeyboardInterrupt, SystemExit):
        with pytest.raises(error):
            _fail(tmp_path / "deep" / "out", error)
        assert _names(tmp_path) == []


def test_existing_folder_is_kept_without_force(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with ResultFolder(target) as folder:
        _fill(folder, "1")
    with pytest.raises(InvalidArgumentError, match=r"exists and is kept; say --force"):
        ResultFolder(target).__enter__()
    with ResultFolder(target, force=True) as folder:
        _fill(folder, "2")
        assert "1" in (target / "results.json").read_text()
    assert "2" in (target / "results.json").read_text()
    with pytest.raises(RuntimeError):
        _fail(target, RuntimeError)
    assert "2" in (target / "results.json").read_text()
    assert _names(tmp_path) == ["out"]


def test_force_never_replaces_what_is_not_a_result_folder(tmp_path: Path) -> None:
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter.txt").write_text("years of work")
    with (
        pytest.raises(InvalidArgumentError, match="not one that fusionopt wrote"),
        ResultFolder(mine, force=True),
    ):
        pass
    (mine / "results.json").write_text('{"other": 1}')
    with pytest.raises(InvalidArgumentError, match="kept even with --force"):
        ResultFolder(mine, force=True).__enter__()
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(InvalidArgumentError, match="is a file"):
        ResultFolder(file, force=True).__enter__()
    with pytest.raises(InvalidArgumentError, match="cannot be made"):
        ResultFolder(file / "out").__enter__()
    assert (mine / "chapter.txt").read_text() == "years of work"


def test_folder_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "out"
    folder = ResultFolder(target).__enter__()
    _fill(folder, "1")
    target.mkdir()
    (target / "theirs").write_text("x")
    with pytest.raises(InvalidArgumentError, match="exists and is kept"):
        folder.__exit__(None, None, None)
    assert _names(target) == ["theirs"]
    assert _names(tmp_path) == ["out"]


def test_csv_cells_are_exact(tmp_path: Path) -> None:
    with ResultFolder(tmp_path / "out") as folder:
        folder.write_csv("t.csv", ["name", "x"], [["a,b", np.float64(0.1)], ['"', float("nan")]])
    assert (tmp_path / "out" / "t.csv").read_text() == 'name,x\n"a,b",0.1\n"""",\n'


def _parquet(path: Path, **columns: object) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_reads_what_csv_reads(tmp_path: Path, write: Write) -> None:
    text = write("width,kind,size\n1.5,a,2\n-3,b,4\n")
    table = read_table(
        _parquet(tmp_path / "t.parquet", width=[1.5, -3.0], kind=["a", "b"], size=[2, 4]),
        labels_column="kind",
    )
    same = read_table(text, labels_column="kind")
    np.testing.assert_array_equal(table.values, same.values)
    assert table.values.dtype == np.float64
    assert table.column_names == same.column_names
    assert table.labels is not None
    assert same.labels is not None
    assert table.labels.tolist() == same.labels.tolist()
    assert table.labels_name == same.labels_name
    assert read_table(tmp_path / "t.parquet", drop_columns=["kind", 0]).column_names == ("size",)


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ({"a": [1.0, None]}, {}, r"row 1, column 'a' .*missing"),
        ({"a": [1.0, np.inf]}, {}, r"row 1, column 'a' .*not finite"),
        ({"a": [1.0], "b": ["x"]}, {}, r"Column 'b' .*--labels-column 'b'"),
        ({"a": [1.0], "b": [None]}, {"labels_column": "b"}, r"'b' .*empty"),
        ({"b": ["x"]}, {"labels_column": "b"}, r"no column left"),
        ({"a": np.empty(0)}, {}, r"no row"),
        ({"a": [1.0]}, {"drop_columns": ["c"]}, r"'c' is not a column"),
        ({"a": [1.0]}, {"delimiter": ","}, r"for \.csv files"),
    ],
)
def test_parquet_refusals(
    tmp_path: Path, columns: dict[str, object], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        read_table(_parquet(tmp_path / "t.parquet", **columns), **options)
