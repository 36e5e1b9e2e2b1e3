import math
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamkpca.rows.validation import as_sample_weight, check_parts, feature_names

REALS = st.floats(allow_nan=False, allow_infinity=False)

BAD_ROWS = [
    pytest.param([[1.0, math.nan]], ValueError, r"contains NaN \(first at row 0, column 1; 1 of 1", id="nan"),
    pytest.param([[1.0], [math.inf]], ValueError, r"contains infinity \(first at row 1, column 0", id="inf"),
    pytest.param(3.0, ValueError, r"expected a 2D array .* got 0D.*reshape\(1, -1\)", id="0D"),
    pytest.param([1.0, 2.0], ValueError, r"got 1D. Reshape your data.*reshape\(-1, 1\)", id="1D"),
    pytest.param(np.ones((2, 2, 2)), ValueError, r"got 3D.*reshape\(len\(X\), -1\)", id="3D"),
    pytest.param(np.ones((0, 3)), ValueError, r"0 sample\(s\) .*minimum of 1", id="no-rows"),
    pytest.param(np.ones((3, 0)), ValueError, r"0 feature\(s\) .*minimum of 1", id="no-columns"),
    pytest.param("rows", TypeError, "must be an array of numbers, got 'rows'", id="string"),
    pytest.param(None, TypeError, "must be an array of numbers, got None", id="none"),
    pytest.param([["1.0", "2.0"]], ValueError, r"'1.0' at row 0, column 0 .*astype\(float\)", id="numeric-strings"),
    pytest.param([[1.5, "19,93"]], ValueError, "'19,93' at row 0, column 1 .* decimal comma as a point", id="comma"),
    pytest.param([[1.0 + 0j]], ValueError, "Complex data not supported.*X.real", id="complex"),
    pytest.param([[1.0], [1.0, 2.0]], ValueError, "not a rectangular array", id="ragged"),
    pytest.param(
        np.array([[1.0, None]], dtype=object), TypeError, "None at row 0, column 1 .*encode, fill in", id="objects"
    ),
    pytest.param(
        {"a": [1.0]}, TypeError, r"holds {'a': \[1.0\]} at place 0 but numbers .*encode, fill", id="dictionary"
    ),
    pytest.param(
        np.array([["2020-01-01"]], dtype="M8[D]"), TypeError, "2020-01-01.*pass them to Monitor.update", id="dates"
    ),
    pytest.param(np.array([[1]], dtype="m8[s]"), TypeError, "timedelta64.*row 0, column 0 .*durations out", id="spans"),
    pytest.param(
        pd.DataFrame({"a": [1], "b": ["x"]}), TypeError, "'x' at row 0, column 'b' .*Encoder", id="text-column"
    ),
    pytest.param(
        pl.DataFrame({"a": [1.0], "b": [date(2026, 5, 4)]}), TypeError, "row 0, column 'b'", id="polars-dates"
    ),
    pytest.param(Path("rows.csv"), TypeError, r"got \w+Path\('rows.csv'\); pass an array or a table", id="path"),
    pytest.param(np.empty((0, 2), dtype=str), ValueError, r"0 sample\(s\)", id="no-text"),
]


@pytest.mark.parametrize(("rows", "error", "message"), BAD_ROWS)
def test_rows_that_are_not_finite_numbers_are_refused(rows, error, message):
    with pytest.raises(error, match=rf"^.*{message}"):
        check_parts(rows)


def test_a_float128_too_large_for_float64_is_reported_as_infinity():
    if np.finfo(np.longdouble).max == np.finfo(np.float64).max:
        pytest.skip("long double is double here")
    with pytest.raises(ValueError, match="contains infinity"):
        check_parts(np.array([[np.longdouble("1e400")]]))


def test_an_integer_too_large_for_float64_is_refused():
    with pytest.raises((TypeError, ValueError), match=r"^X"):
        check_parts([[10**400]])


def test_the_error_for_another_width_names_both_widths_and_the_estimator():
    with pytest.raises(ValueError, match=r"X has 2 features, but it is expecting 3 features as input"):
        check_parts(np.ones((1, 2)), n_features=3)


def test_the_first_bad_entry_is_the_one_named():
    rows = np.zeros((5, 4))
    rows[3, 2], rows[4, 0] = math.inf, math.nan
    with pytest.raises(ValueError, match=r"infinity \(first at row 3, column 2; 2 of 5 rows"):
        check_parts(rows)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "i1", "u8", "i8", "?", np.longdouble])
def test_every_real_type_and_order_becomes_the_same_numbers(dtype):
    for order in ("C", "F"):
        given_rows = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype, order=order)
        rows = check_parts(given_rows)
        assert rows.dtype == np.float64
        assert rows.flags.c_contiguous
        np.testing.assert_array_equal(rows, [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 2], [3, 4]],
        ((1, 2), (3, 4)),
        [np.array([1, 2]), np.array([3, 4])],
        np.array([[1, 9, 2, 9], [3, 9, 4, 9]])[:, ::2],
        np.array([[3, 4], [1, 2]])[::-1],
        np.array([[1, 3], [2, 4]]).T,
        np.ma.masked_array([[1, 2], [3, 4]]),
        memoryview(np.array([[1, 2], [3, 4]])),
        [[True, 2], [3.0, np.int8(4)]],
        np.array([[True, 2], [3.0, np.int8(4)]], dtype=object),
        pd.DataFrame({"a": [1, 3], "b": [2.0, 4.0]}),
        pd.DataFrame({"a": pd.array([1, 3], dtype="Int64"), "b": [2.0, 4.0]}),
        pl.DataFrame({"a": [1, 3], "b": [2.0, 4.0]}),
        pl.DataFrame({"a": [1, 3], "b": [2, 4]}, schema={"a": pl.Int8, "b": pl.UInt32}),
    ],
    ids=lambda rows: type(rows).__module__.split(".")[0] + "-" + type(rows).__name__,
)
def test_rows_of_any_container_are_accepted(rows):
    np.testing.assert_array_equal(check_parts(rows), [[1.0, 2.0], [3.0, 4.0]])


def test_masked_entries_are_refused():
    masked = np.ma.masked_array([[1.0, 2.0], [3.0, -999.0]], mask=[[False, False], [False, True]])
    with pytest.raises((TypeError, ValueError), match="masked"):
        check_parts(masked)


def test_memory_maps_and_read_only_arrays_are_not_copied(tmp_path):
    np.save(tmp_path / "rows.npy", np.arange(6.0).reshape(3, 2))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    rows = check_parts(mapped)
    assert np.shares_memory(rows, mapped)
    np.testing.assert_array_equal(rows, np.arange(6.0).reshape(3, 2))


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2), elements=REALS))
def test_conversion_is_the_identity_on_valid_rows(rows):
    np.testing.assert_array_equal(check_parts(rows), rows)
    np.testing.assert_array_equal(check_parts(np.asfortranarray(rows)), rows)
    np.testing.assert_array_equal(check_parts(rows.tolist()), rows)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (None, [1, 1, 1]),
        (2, [2, 2, 2]),
        (np.float32(0.5), [0.5] * 3),
        ([0, 1, 2], [0, 1, 2]),
        ([True, False, True], [1, 0, 1]),
    ],
)
def test_sample_weights_become_one_number_a_row(weights, expected):
    np.testing.assert_array_equal(as_sample_weight(weights, 3), expected)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([1.0, 2.0], ValueError, r"sample_weight has shape \(2,\) but X has 3 rows; give one weight a row"),
        ([1.0, -1.0, 1.0], ValueError, r"sample_weight\[1\] is -1.0 but must be finite and not negative"),
        ([1.0, 1.0, math.nan], ValueError, r"sample_weight\[2\] is nan"),
        ([math.inf, 1.0, 1.0], ValueError, r"sample_weight\[0\] is inf"),
        ([0.0, 0.0, 0.0], ValueError, "zero for every row; leave the rows out"),
        ("balanced", TypeError, "sample_weight must be an array of numbers, got 'balanced'"),
        (["1", "2", "3"], ValueError, r"sample_weight holds '1' at place 0 .*sample_weight\.astype\(float\)"),
        ([1j, 1, 1], ValueError, "Complex data not supported"),
        ([1.0, None, 1.0], TypeError, "sample_weight holds None at place 1 but"),
        ([[1.0], [1.0, 2.0]], ValueError, "not a rectangular array"),
    ],
)
def test_invalid_sample_weights_are_refused(weights, error, message):
    with pytest.raises(error, match=rf"^.*{message}"):
        as_sample_weight(weights, 3)


def test_feature_names_are_read_from_tables_with_string_columns():
    assert list(feature_names(pd.DataFrame({"a": [1], "b": [2]}))) == ["a", "b"]
    assert list(feature_names(pl.DataFrame({"a": [1], "b": [2]}))) == ["a", "b"]


@pytest.mark.parametrize(
    "nameless",
    [np.ones((1, 2)), [[1.0]], None, pd.DataFrame([[1, 2]]), pd.DataFrame([[1, 2]], columns=["a", 2]), pd.DataFrame()],
    ids=["array", "list", "none", "numbered", "mixed", "empty"],
)
def test_anything_else_has_no_feature_names(nameless):
    assert feature_names(nameless) is None
