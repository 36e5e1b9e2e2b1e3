"""Tables of all formats give the same rows in chunks of any size, and tell in one line what is wrong."""

import gzip
import io
import os
import threading
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pyarrow import parquet

from streamkpca.cli.tables import TableError, check_same_columns, open_table, regroup

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
MATRICES = st.tuples(st.integers(1, 30), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=FINITE)
)


class Dribble(io.RawIOBase):
    """A pipe that hands over a few bytes at a time."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._data = io.BytesIO(data)
        self._piece = piece

    def read1(self, size: int = -1) -> bytes:
        return self._data.read(min(size, self._piece))


def rows_of(table, n_rows=7):
    return np.concatenate([chunk.rows for chunk in table.chunks(n_rows)])


def text_of(X, header=None, newline="\n"):
    lines = [",".join(repr(float(value)) for value in row) for row in X]
    return newline.join(([] if header is None else [header]) + lines + [""]).encode()


def read_text(text, **options):
    data = text if isinstance(text, bytes) else text.encode()
    return rows_of(open_table("<text>", stream=io.BytesIO(data), **options))


@given(MATRICES, st.integers(1, 40), st.integers(1, 9), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_csv_is_read_exactly_however_it_arrives(X, piece, n_rows, named, newline):
    header = ",".join(f"c{j}" for j in range(X.shape[1])) if named else None
    stream = Dribble(text_of(X, header, newline), piece)
    table = open_table("<pipe>", stream=stream)
    chunks = list(table.chunks(n_rows))
    np.testing.assert_array_equal(np.concatenate([chunk.rows for chunk in chunks]), X)
    assert max(len(chunk.rows) for chunk in chunks) <= n_rows
    assert all(chunk.rows.flags.c_contiguous for chunk in chunks)


@given(MATRICES, st.integers(1, 9), st.integers(1, 9))
def test_regroup_fills_every_chunk_but_the_last(X, n_rows, cut):
    table = open_table("<pipe>", stream=io.BytesIO(text_of(X)))
    chunks = list(regroup(table.chunks(cut), n_rows))
    np.testing.assert_array_equal(np.concatenate([chunk.rows for chunk in chunks]), X)
    assert all(len(chunk.rows) == n_rows for chunk in chunks[:-1])
    assert 0 < len(chunks[-1].rows) <= n_rows


def test_regroup_keeps_labels_beside_their_rows():
    X = np.arange(24.0).reshape(12, 2)
    chunks = regroup(open_table("<pipe>", stream=io.BytesIO(text_of(X)), labels="1").chunks(5), 4)
    for chunk in chunks:
        np.testing.assert_array_equal(chunk.labels, chunk.rows[:, 0] + 1)


@pytest.mark.parametrize("kind", ["csv", "gz", "npy", "npy_F", "npz", "npz_F", "npz_stored", "parquet", "fifo"])
def test_every_format_gives_the_same_rows_twice(tmp_path, kind):
    X = np.random.default_rng(0).normal(size=(50, 3))
    path, rereadable = tmp_path / f"x.{kind.partition('_')[0]}", True
    order = np.asfortranarray if kind.endswith("_F") else np.ascontiguousarray
    if kind == "csv":
        path.write_bytes(text_of(X))
    elif kind == "gz":
        path = tmp_path / "x.csv.gz"
        path.write_bytes(gzip.compress(text_of(X)))
    elif kind == "fifo":
        os.mkfifo(path)
        threading.Thread(target=path.write_bytes, args=(text_of(X),)).start()
        rereadable = False
    elif kind == "parquet":
        parquet.write_table(pa.table({f"c{j}": X[:, j] for j in range(3)}), path, row_group_size=20)
    elif kind.startswith("npy"):
        np.save(path, order(X))
    else:
        (np.savez if kind == "npz_stored" else np.savez_compressed)(path, rows=order(X), other=np.zeros(4))
    table = open_table(str(path))
    assert table.rereadable is rereadable
    for _ in range(1 + rereadable):
        chunks = list(table.chunks(7))
        np.testing.assert_array_equal(np.concatenate([chunk.rows for chunk in chunks]), X)
        if table.total is not None:
            assert chunks[-1].position == table.total


@pytest.mark.parametrize("dtype", ["float32", "int16", "uint8", "bool", ">f8"])
def test_numbers_of_any_type_become_float64(tmp_path, dtype):
    X = np.array([[0, 1], [1, 0]]).astype(dtype)
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", X)
    for name in ("x.npy", "x.npz"):
        rows = rows_of(open_table(str(tmp_path / name)))
        assert rows.dtype == np.float64
        np.testing.assert_array_equal(rows, [[0, 1], [1, 0]])


def test_a_parquet_table_may_mix_number_types_and_names_with_dots(tmp_path):
    path = tmp_path / "x.parquet"
    columns = {"a.b": pa.array([1, 2**60]), "flag": pa.array([True, False]), "t": pa.array(["x", "y"])}
    parquet.write_table(pa.table(columns), path)
    table = open_table(str(path), columns=["flag", "a.b"])
    np.testing.assert_array_equal(rows_of(table), [[1, 1], [0, 2**60]])


@pytest.mark.parametrize(
    ("text", "names", "n_rows"),
    [
        ("1,2\n3,4\n", ("0", "1"), 2),
        ("a,b\n1,2\n", ("a", "b"), 1),
        ("\ufeffa,b\n1,2\n", ("a", "b"), 1),
        (",a\n0,2\n", ("", "a"), 1),
        ("time,1,2\n0,1,2\n", ("time", "1", "2"), 1),
        ('"a, b",c\n"1",2\n', ("a, b", "c"), 1),
        ("a,b\n1,2", ("a", "b"), 1),
        ("1,2\n\n3,4\n   \n", ("0", "1"), 2),
        ("1, +2\n 3 ,4e0\n", ("0", "1"), 2),
    ],
)
def test_the_header_is_recognised(text, names, n_rows):
    table = open_table("<text>", stream=io.BytesIO(text.encode()))
    assert table.columns.names == names
    assert len(rows_of(table)) == n_rows


def test_a_headerless_file_with_timestamps_keeps_its_first_row():
    text = "10:00,1,2\n10:01,3,4\n"
    np.testing.assert_array_equal(read_text(text, drop=["0"]), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(read_text(text, drop=["0"], header=True), [[3, 4]])


def test_header_and_delimiter_can_be_given(tmp_path):
    np.testing.assert_array_equal(read_text("1;2\n3;4\n", header=True, delimiter=";"), [[3, 4]])
    path = tmp_path / "x.tsv"
    path.write_text("a\tb\n1\t2\n")
    np.testing.assert_array_equal(rows_of(open_table(str(path))), [[1, 2]])


def test_an_integer_column_may_turn_fractional_a_megabyte_later():
    text = "a,b\n" + "1,2\n" * 400_000 + "1.5,2\n"
    table = open_table("<text>", stream=io.BytesIO(text.encode()))
    *_, last = table.chunks(100_000)
    assert last.rows[-1].tolist() == [1.5, 2]


def test_quoted_text_with_commas_and_line_ends_can_be_dropped():
    text = 'note,x\n"a, b\nc",1\nplain,2\n"d ""e""",3\n'
    np.testing.assert_array_equal(read_text(text, drop=["note"]), [[1], [2], [3]])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"columns": ["c", "a"]}, [[3, 1]]),
        ({"columns": ["-1", "0"]}, [[3, 1]]),
        ({"columns": ["a", "a"]}, [[1]]),
        ({"drop": ["b"]}, [[1, 3]]),
        ({"columns": ["a", "b"], "drop": ["0"]}, [[2]]),
        ({"labels": "b"}, [[1, 3]]),
    ],
)
def test_columns_are_chosen_by_name_or_position(options, expected):
    np.testing.assert_array_equal(read_text("a,b,c\n1,2,3\n", **options), expected)


def test_labels_come_from_a_column_or_from_an_array_of_their_own(tmp_path):
    path = tmp_path / "x.npz"
    X, labels = np.arange(20.0).reshape(10, 2), np.arange(10) % 3
    np.savez(path, rows=X, labels=labels)
    table = open_table(str(path), labels="labels")
    np.testing.assert_array_equal(np.concatenate([c.labels for c in table.chunks(3)]), labels)
    np.testing.assert_array_equal(rows_of(table), X)
    column = open_table(str(path), labels="1")
    np.testing.assert_array_equal(np.concatenate([c.labels for c in column.chunks(3)]), X[:, 1])
    np.testing.assert_array_equal(rows_of(column), X[:, :1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n1,2\n", "begins with an empty line"),
        ("a,b\n", "it has no rows of numbers"),
        ("a,b\n1,2\n1\n", r"<text>, line 3: expected 2 fields .* found 1"),
        ("a,b\n1,2\n\n1,2,3\n", r"line 4: expected 2 fields .* found 3"),
        ("a,b\n1,2\n1,\n", r"line 3: column 'b' has no value \(''\).*--drop b"),
        ("a,b\n1,2\nNaN,2\n", r"line 3: column 'a' has no value \('NaN'\)"),
        ("a,b\n1,2\n1,-inf\n", r"line 3: column 'b' is infinite"),
        (
            "a,b\n1,2\n1,x y\n",
            r"line 3: column 'b' holds text \('x y'\).*--drop b\), .*--on-bad-rows skip\); .*--time b\)$",
        ),
        ("t,x\n10:00,1\n", r"line 2: column 't' holds text \('10:00'\)"),
        ("10:00,1\n10:01,1\n", r"line 1: column '0' holds text .* add --header"),
        ("1,2\n1,1_0\n", r"line 2: column '1' holds text \('1_0'\)"),
    ],
)
def test_a_bad_csv_is_refused_with_the_line_at_fault(text, message):
    with pytest.raises(TableError, match=message) as caught:
        read_text(text)
    assert "\n" not in str(caught.value)


def test_the_line_is_right_after_many_blocks():
    text = "a,b\n" + "1,2\n" * 600_000 + "1,oops\n"
    table = open_table("<text>", stream=io.BytesIO(text.encode()))
    with pytest.raises(TableError, match="line 600002: column 'b' holds text"):
        list(table.chunks(100_000))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["z"]}, "no column 'z'; it has 3: a, b, c; give one of these names or a position"),
        ({"drop": ["3"]}, "no column '3'"),
        ({"drop": ["a", "b", "c"]}, "no column is left of a, b, c"),
        ({"array": "x"}, "this is not one; leave --array out"),
    ],
)
def test_a_choice_of_absent_columns_is_refused(options, message):
    with pytest.raises(TableError, match=message):
        read_text("a,b,c\n1,2,3\n", **options)


def test_a_repeated_name_must_be_given_by_position():
    np.testing.assert_array_equal(read_text("a,a\n1,2\n", columns=["1"]), [[2]])
    with pytest.raises(TableError, match="2 columns are named 'a'; give the position instead"):
        read_text("a,a\n1,2\n", columns=["a"])


def save_bad(folder: Path, what: str) -> Path:
    path = folder / f"{what}.{what.partition('_')[0]}"
    X = np.ones((5, 2))
    X[3, 1] = np.nan
    if what == "npy_nan":
        np.save(path, X)
    elif what == "npy_1d":
        np.save(path, np.ones(3))
    elif what == "npy_complex":
        np.save(path, np.ones((2, 2), dtype=complex))
    elif what == "npy_objects":
        np.save(path, np.array([[1, "a"]], dtype=object), allow_pickle=True)
    elif what == "npy_cut":
        np.save(path, np.ones((50, 2)))
        path.write_bytes(path.read_bytes()[:300])
    elif what == "npy_empty":
        np.save(path, np.ones((0, 2)))
    elif what == "npz_two":
        np.savez(path, a=X, b=X)
    elif what == "npz_nan":
        np.savez(path, a=X)
    elif what == "npz_cut":
        np.savez(path, a=X)
        path.write_bytes(path.read_bytes()[:50])
    elif what == "parquet_text":
        parquet.write_table(pa.table({"t": ["a"], "x": [1.0]}), path)
    elif what == "parquet_missing":
        parquet.write_table(pa.table({"x": pa.array([1, 2, None])}), path)
    elif what == "parquet_cut":
        path.write_bytes(b"PAR1 and nothing more")
    elif what == "dir_":
        path.mkdir()
    return path


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("csv_absent", "no such file; give a CSV"),
        ("dir_", "is a folder; give a CSV"),
        ("npy_nan", r"row 3 \(from 0\): column '1' is missing \(NaN\)"),
        ("npy_1d", r"shape is \(3,\); save it with two dimensions"),
        ("npy_complex", "complex128 but real numbers are required"),
        ("npy_objects", "cannot be read|object but real numbers"),
        ("npy_cut", "cannot be read"),
        ("npy_empty", "it has no rows of numbers"),
        ("npz_two", "choose one of its arrays with --array: a, b"),
        ("npz_nan", r"row 3 \(from 0\): column '1' is missing"),
        ("npz_cut", "cannot be read"),
        ("parquet_text", r"column 't' holds string .*--drop t"),
        ("parquet_missing", r"row 2 \(from 0\): column 'x' is missing"),
        ("parquet_cut", "cannot be read"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, what, message):
    path = save_bad(tmp_path, what)
    with warnings.catch_warnings(), pytest.raises(TableError, match=message) as caught:
        rows_of(open_table(str(path)))
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_an_absent_array_and_labels_of_another_length_are_refused(tmp_path):
    path = str(tmp_path / "x.npz")
    np.savez(path, rows=np.ones((5, 2)), labels=np.ones(4))
    with pytest.raises(TableError, match="no array 'z' in it; choose one with --array: rows, labels"):
        open_table(path, array="z")
    with pytest.raises(TableError, match="one value for each of the 5 rows of rows but got shape"):
        open_table(path, labels="labels")


def test_tables_of_different_columns_are_refused():
    def table(header):
        return open_table(header, stream=io.BytesIO(f"{header}\n{header.count(',') * '1,'}1\n".encode()))

    check_same_columns(table("a,b"), table("a,b"))
    check_same_columns(table("a,b"), table("1,2"))
    with pytest.raises(TableError, match=r"expected 2 columns \(as in a,b\) but got 3"):
        check_same_columns(table("a,b"), table("a,b,c"))
    with pytest.raises(TableError, match=r"expected column 'b' at position 1 .* but got 'c'"):
        check_same_columns(table("a,b"), table("a,c"))
