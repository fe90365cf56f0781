"""Arguments: what is accepted in which form, and what each refusal says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from fusionopt import _checks
from fusionopt.errors import FusionoptError, InvalidArgumentError, InvalidTypeError, MemoryLimitError

VALUES = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def _read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "given",
    [
        VALUES,
        tuple(map(tuple, VALUES)),
        np.array(VALUES, dtype=np.float32),
        np.array(VALUES, dtype=np.int8),
        np.array(VALUES, dtype=np.uint64),
        np.array(VALUES, dtype=np.longdouble),
        np.array(VALUES, dtype=np.float64).astype(">f8"),
        np.asfortranarray(VALUES),
        np.array(VALUES + VALUES)[::2] * 0 + np.array(VALUES),
        np.repeat(np.array(VALUES), 2, axis=1)[:, ::2],
        _read_only(np.array(VALUES)),
        pd.DataFrame(VALUES, columns=["a", "b", "c"]),
        np.ma.MaskedArray(VALUES),
    ],
    ids=lambda given: type(given).__name__,
)
def test_as_matrix_takes_every_layout(given):
    matrix = _checks.as_matrix("X", given)
    assert matrix.dtype == np.float64
    assert matrix.flags.c_contiguous
    assert not matrix.flags.writeable
    np.testing.assert_array_equal(matrix, VALUES)


def test_as_matrix_copies():
    given = np.array(VALUES)
    matrix = _checks.as_matrix("X", given)
    given[0, 0] = 99.0
    assert matrix[0, 0] == 1.0


def test_as_matrix_takes_bool_and_a_vector_when_allowed():
    np.testing.assert_array_equal(_checks.as_matrix("X", [[True, False]]), [[1.0, 0.0]])
    assert _checks.as_matrix("X", pd.Series([1, 2]), allow_vector=True).shape == (2, 1)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ([[1 + 2j]], InvalidTypeError, r"X holds complex numbers \(dtype complex128\); give real numbers"),
        ([["a"]], InvalidTypeError, "X holds text"),
        (np.array([[None]]), InvalidTypeError, "X holds Python objects"),
        (
            np.array([["2020-01-01"]], dtype="datetime64[D]"),
            InvalidTypeError,
            r"values of type datetime64\[D\]",
        ),
        (sparse.eye_array(2), InvalidTypeError, r"X is a sparse matrix; give a dense array.*toarray"),
        (np.ma.MaskedArray(VALUES, np.eye(2, 3)), InvalidArgumentError, "X has masked entries"),
        ([[1, 2], [3]], InvalidArgumentError, "X cannot be read as an array.*rows of equal length"),
        (
            [1, 2],
            InvalidArgumentError,
            r"X has 1 dimensions \(shape \(2,\)\); it needs 2: use reshape\(-1, 1\)",
        ),
        (np.zeros((1, 1, 1)), InvalidArgumentError, "X has 3 dimensions.*one row for each node"),
        (3.0, InvalidArgumentError, "X has 0 dimensions"),
        (np.zeros((0, 2)), InvalidArgumentError, r"X is empty \(shape \(0, 2\)\); give at least one row"),
        (np.zeros((2, 0)), InvalidArgumentError, "X is empty"),
        ([[1, np.nan]], InvalidArgumentError, "X holds NaN at row 0, column 1; every entry must be a finite"),
        (
            [[1, 2], [np.inf, np.nan]],
            InvalidArgumentError,
            r"Inf at row 1, column 0 \(2 such entries in all\)",
        ),
        ([[-np.inf]], InvalidArgumentError, "X holds -Inf at row 0"),
        (np.array([[np.longdouble("1e400")]]), InvalidArgumentError, "X holds Inf"),
        (VALUES, InvalidArgumentError, r"X has 3 columns \(shape \(2, 3\)\); it needs 5"),
    ],
)
def test_as_matrix_refuses(given, kind, message):
    with pytest.raises(kind, match=message) as caught:
        _checks.as_matrix("X", given, n_columns=5 if given is VALUES else None)
    assert caught.value.argument == "X"
    assert caught.value.wanted
    assert isinstance(caught.value, FusionoptError)


def test_as_matrix_keeps_missing_cells_where_asked():
    assert np.isnan(_checks.as_matrix("X", [[np.nan, 1.0]], missing=True)).tolist() == [[True, False]]
    with pytest.raises(InvalidArgumentError, match="X holds Inf at row 0, column 0"):
        _checks.as_matrix("X", [[np.inf, np.nan]], missing=True)


def test_as_array_names_the_place():
    np.testing.assert_array_equal(_checks.as_array("u", [[[1.0]]]), [[[1.0]]])
    with pytest.raises(InvalidArgumentError, match=r"u holds NaN at position \(0, 1\)"):
        _checks.as_array("u", [[0.0, np.nan]])
    with pytest.raises(InvalidArgumentError, match="u holds Inf; every entry"):
        _checks.as_array("u", np.inf)
    with pytest.raises(InvalidArgumentError, match=r"t holds -2\.0; every entry must be >= 0"):
        _checks.as_nonnegative_array("t", [1.0, -2.0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[1.0]], r"w has 2 dimensions.*numpy\.ravel\(w\)"),
        ([1.0, 2.0], "w has 2 entries; it needs 3, one for each node"),
        ([1.0, np.nan, 2.0], "w holds NaN at position 1"),
        ([1.0, -2.0, 2.0], r"w is -2\.0 for node 1; weights must be >= 0"),
        ([0, 0, 0], "w is zero for every node.*at least one positive weight"),
    ],
)
def test_as_node_weights_refuses(given, message):
    with pytest.raises(InvalidArgumentError, match=message):
        _checks.as_node_weights("w", given, 3, of="node")


def test_as_vector_without_a_unit_in_its_message():
    with pytest.raises(InvalidArgumentError, match="w has 1 entries; it needs 3\\."):
        _checks.as_vector("w", [1.0], length=3)


def test_as_point_wants_the_shape():
    assert _checks.as_point("x", [1.0, 2.0], (2, 1)).shape == (2, 1)
    with pytest.raises(
        InvalidArgumentError, match=r"x has shape \(1, 2\); the problem needs \(2, 2\): one row"
    ):
        _checks.as_point("x", [[1.0, 2.0]], (2, 2))


@pytest.mark.parametrize(
    "given", [["b", "a"], [1, 2], [1.5, 2.0], [True, False], np.array(["x", "y"], object)]
)
def test_as_labels_takes(given):
    assert len(_checks.as_labels("labels", given, 2)) == 2


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ([[1]], InvalidArgumentError, "labels has 2 dimensions"),
        ([[1], [1, 2]], InvalidArgumentError, "labels cannot be read as an array"),
        ([], InvalidArgumentError, "labels is empty"),
        ([1, 2, 3], InvalidArgumentError, "labels has 3 entries; it needs 2"),
        ([1.0, np.nan], InvalidArgumentError, "labels holds NaN at position 1"),
        (np.array([1, "a"], object), InvalidTypeError, "labels mixes or holds labels of type int, str"),
        (np.array([None, None]), InvalidTypeError, "labels mixes or holds labels of type NoneType"),
        (np.array([1j, 2j]), InvalidTypeError, "labels holds values of type complex128"),
    ],
)
def test_as_labels_refuses(given, kind, message):
    with pytest.raises(kind, match=message):
        _checks.as_labels("labels", given, 2)


@pytest.mark.parametrize("given", [2, 2.0, np.float32(2), np.int64(2), np.array(2.0)])
def test_scalars_take_any_real_number(given):
    assert _checks.as_real("lam", given) == 2.0
    assert type(_checks.check_lam(given)) is float


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("2", InvalidTypeError, "lam='2' is not a number"),
        (True, InvalidTypeError, "lam=True is not a number"),
        (None, InvalidTypeError, "lam=None is not a number"),
        (1j, InvalidTypeError, "lam=1j is not a number"),
        (np.array([1.0]), InvalidTypeError, "is not a number"),
        (float("nan"), InvalidArgumentError, "lam=nan is not finite"),
        (float("inf"), InvalidArgumentError, "lam=inf is not finite"),
        (10**400, InvalidArgumentError, "is not finite"),
        (-1e-300, InvalidArgumentError, "lam=-1e-300 is negative; give a number >= 0"),
    ],
)
def test_check_lam_refuses(given, kind, message):
    with pytest.raises(kind, match=message):
        _checks.check_lam(given)


def test_minus_zero_becomes_zero():
    assert np.signbit(_checks.check_lam(-0.0)) == np.False_


def test_other_scalars():
    assert _checks.as_count("n", np.int32(3)) == 3
    assert _checks.as_flag("verbose", np.True_) is True
    with pytest.raises(InvalidTypeError, match=r"n=3\.0 is not a whole number; give an int >= 1"):
        _checks.as_count("n", 3.0)
    with pytest.raises(InvalidTypeError, match="n=True is not a whole number"):
        _checks.as_count("n", True)
    with pytest.raises(InvalidArgumentError, match="n=0 is too small; give an int >= 1"):
        _checks.as_count("n", 0)
    with pytest.raises(InvalidTypeError, match="verbose=1 is not True or False"):
        _checks.as_flag("verbose", 1)
    with pytest.raises(InvalidArgumentError, match=r"rho=0\.0 is not positive; give a number > 0, please"):
        _checks.as_positive_scalar("rho", 0, hint=", please")
    with pytest.raises(InvalidArgumentError, match=r"share=1\.0 breaks 0 < share < 1; it is a share"):
        _checks.as_scalar_between("share", 1, 0.0, 1.0, "it is a share")


def test_check_choice_and_check_instance():
    assert _checks.check_choice("kernel", "unit", ("gaussian", "unit")) == "unit"
    with pytest.raises(InvalidArgumentError, match="kernel='x' is unknown; give one of 'gaussian', 'unit'"):
        _checks.check_choice("kernel", "x", ("gaussian", "unit"))
    with pytest.raises(InvalidArgumentError, match="kernel=3 is unknown; give 'unit'"):
        _checks.check_choice("kernel", 3, ("unit",))
    with pytest.raises(InvalidTypeError, match="loss is a list; give a dict, like this"):
        _checks.check_instance("loss", [], dict, "like this")


def test_refuse_memory_tells_need_limit_and_remedy():
    with pytest.raises(MemoryLimitError, match="It would take 4 GiB, more than the limit of 2 GiB; do less"):
        _checks.refuse_memory("It", 2.0**32, 2.0**31, "do less")


def test_long_values_are_shortened():
    assert len(_checks.shown("x" * 500)) == 60
