"""Tables of all formats give the same rows in batches of any size; bad rows keep the numbers of the file."""

import bz2
import gzip
import io
import json
import lzma
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pyarrow import feather, parquet

from streamkpca.tables import WRITTEN, Asked, Reading, Table, TableError, Writer

FINITE = st.floats(-1e59, 1e59)
MATRICES = st.tuples(st.integers(1, 20), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=FINITE)
)


def read(table: Table, n_rows: int = 7):
    """Read a table and return rows, numbers, times and labels."""
    batches = list(table.batches(n_rows))
    assert all(0 < len(batch.rows) <= n_rows and batch.numbers.flags.c_contiguous for batch in batches)
    columns = list(zip(*(batch[:4] for batch in batches), strict=True))
    return [None if column[0] is None else np.concatenate(column) for column in columns]


def opened(data: bytes | str, folder: Path | None = None, name: str = "table.csv", **options) -> Table:
    """Open a table written to a file; in a folder of its own if none is given."""
    path = Path(folder or tempfile.mkdtemp(), name)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return Table(str(path), Asked(**options))


def piped(monkeypatch, data: bytes, piece: int, **options) -> Table:
    """Open standard input, whose bytes arrive piece by piece, and which cannot seek."""
    pieces = iter([data[i : i + piece] for i in range(0, len(data), piece)])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=SimpleNamespace(read1=lambda size: next(pieces, b""))))
    return Table("-", Asked(**options))


# Every format, with dates in the column "t" but for those of numpy.


def frame(X, times):
    return pd.DataFrame({"t": times} | {f"c{j}": X[:, j] for j in range(X.shape[1])})


def csv_text(X, times, **options) -> bytes:
    return frame(X, times).to_csv(index=False, **options).encode()


def json_text(X, times) -> bytes:
    rows = frame(X, times.astype(str)).to_dict("records")
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def arrow(X, times, write) -> bytes:
    sink, table = io.BytesIO(), pa.Table.from_pandas(frame(X, times))
    write(table, sink)
    return sink.getvalue()


def npy(X) -> bytes:
    sink = io.BytesIO()
    np.save(sink, X)
    return sink.getvalue()


def parquet_of(columns) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue()


FORMATS = {
    "csv": csv_text,
    "bom.csv": lambda X, t: b"\xef\xbb\xbf" + csv_text(X, t, lineterminator="\r\n"),
    "semicolon.csv": lambda X, t: csv_text(X, t, sep=";", decimal=","),
    "quoted.csv": lambda X, t: csv_text(X, t, sep="|", quoting=1),
    "tab.csv.gz": lambda X, t: gzip.compress(csv_text(X, t, sep="\t")),
    "csv.bz2": lambda X, t: bz2.compress(csv_text(X, t)),
    "csv.xz": lambda X, t: lzma.compress(csv_text(X, t)),
    "csv.zst": lambda X, t: pa.compress(csv_text(X, t), "zstd", asbytes=True),
    "jsonl": json_text,
    "parquet": lambda X, t: arrow(X, t, lambda table, sink: parquet.write_table(table, sink, row_group_size=4)),
    "arrow": lambda X, t: arrow(X, t, lambda table, sink: feather.write_feather(table, sink, chunksize=5)),
    "npy": lambda X, t: npy(X),
    "columns.npy": lambda X, t: npy(np.asfortranarray(X)),
}
PIPED = [name for name in FORMATS if name.endswith(("csv", "jsonl"))]


def options_of(name: str):
    options: dict[str, str | tuple[()]] = {"time": "t", "gaps": ()} if "np" not in name else {"gaps": ()}
    return options | ({"decimal": ","} if name.startswith("semicolon") else {})


@pytest.mark.parametrize("name", FORMATS)
@given(X=MATRICES, n_rows=st.integers(1, 25), data=st.data())
def test_every_format_is_read_as_written_and_resumes_at_every_batch(name, X, n_rows, data):
    # A clock that is once far from the rows around it is mended, which has tests of its own.
    steps = data.draw(st.lists(st.integers(1, 40), min_size=len(X), max_size=len(X)))
    seconds = data.draw(st.integers(-(2**33), 2**32)) + np.cumsum(steps, dtype=np.int64)
    times = seconds.astype("M8[s]").astype("M8[ns]")
    with tempfile.TemporaryDirectory() as folder:
        table = opened(FORMATS[name](X, times), folder, f"table.{name}", **options_of(name))
        assert table.reader.source.rereadable
        rows, numbers, read_times, _ = read(table, n_rows)
        np.testing.assert_array_equal(numbers, X)
        np.testing.assert_array_equal(
            rows, np.arange(len(X)) + (0 if table.unit == "row" else 1 if name == "jsonl" else 2)
        )
        if "np" not in name:
            assert read_times.dtype == "M8[ns]"
            np.testing.assert_array_equal(read_times, times)
        done = 0
        for batch in table.batches(n_rows):
            done += len(batch.rows)
            position = json.loads(json.dumps(batch.position))
            later = list(Table(table.path, Asked(start=position, **options_of(name))).batches(3))
            np.testing.assert_array_equal(np.concatenate([X[:0], *[part.numbers for part in later]]), X[done:])
            assert [row for part in later for row in part.rows] == rows[done:].tolist()
        assert table.reader.total is None or batch.done == table.reader.total


@pytest.mark.parametrize("name", PIPED)
@given(X=MATRICES, piece=st.integers(1, 200))
def test_a_pipe_is_read_as_it_comes(name, X, piece):
    with pytest.MonkeyPatch.context() as monkeypatch:
        data = FORMATS[name](X, np.arange(len(X)).astype("M8[s]"))
        table = piped(monkeypatch, data, piece, **options_of(name))
        assert not table.reader.source.rereadable
        np.testing.assert_array_equal(read(table)[1], X)


def test_rows_of_a_pipe_come_before_the_next_is_written(monkeypatch):
    pieces = iter([b"x,y\n1,2\n", b"3,", b"4\n5,6\n", b"7,8"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=SimpleNamespace(read1=lambda size: next(pieces, b""))))
    batches = Table("-", Asked()).batches(10)
    assert next(batches).numbers.tolist() == [[1, 2]]
    assert next(batches).numbers.tolist() == [[3, 4], [5, 6]]
    assert next(batches).position is None
    assert not list(batches)


@given(
    rows=st.lists(st.sampled_from(["1,2", "3,4", "5", "6,7,8", "oops,9", "10,", "11,inf", "", "  "]), max_size=60),
    n_rows=st.integers(1, 9),
)
@example(rows=["1,2", "1,2", "5"], n_rows=3)
@example(rows=["5", "1,2", "1,2", "1,2", "1,2"], n_rows=1)
@example(rows=["", "1,2", "1,2", "1,2"], n_rows=1)
@example(rows=["", "10,", "10,", "10,", "oops,9"], n_rows=1)
def test_bad_rows_are_left_out_and_good_ones_keep_their_lines(rows, n_rows):
    lines = ["x,y", "0,0", *rows]
    kept = [i for i, line in enumerate(lines, 1) if line in ("0,0", "1,2", "3,4")]
    # A file most of whose rows have another number of cells is another table.
    assume(2 * sum(line in ("5", "6,7,8") for line in lines) < len(kept))
    bad = [i for i, line in enumerate(lines, 1) if i > 1 and line.strip() and i not in kept]
    with tempfile.TemporaryDirectory() as folder:
        table = opened("\n".join(lines), folder, on_bad_rows="skip")
        numbers, values, _, _ = read(table, n_rows)
        assert numbers.tolist() == kept
        assert values[:, 0].tolist() == [float(lines[i - 1][0]) for i in kept]
        assert table.bad.n_left_out == len(bad)
        assert [int(told.split("line ")[1].split(":")[0]) for told in table.bad.examples] == bad[:5]
        done = 0
        assert table.bad.n_read == len(kept) + len(bad)
        for batch in Table(table.path, Asked(on_bad_rows="skip")).batches(n_rows):
            done += len(batch.rows)
            later = Table(table.path, Asked(on_bad_rows="skip", start=batch.position))
            assert [row for part in later.batches(4) for row in part.rows] == kept[done:]
        if bad:
            with pytest.raises(TableError, match=rf"line {bad[0]}: .*--on-bad-rows skip|line {bad[0]}: .*--missing"):
                list(Table(table.path, Asked()).batches(n_rows))


GOOD_JSON = ['{"x": 1, "y": 2}', '{"y": 4, "x": 3, "z": "a"}']
BAD_JSON = ['{"x": 5}', '{"x": 6, "y": "t"}', '{"x": 7, "y": null}', "{}", "[1, 2]", "oops", '{"x": 1e400, "y": 2}']


@given(st.lists(st.sampled_from([*GOOD_JSON, *BAD_JSON, ""]), max_size=40))
def test_json_lines_keep_their_numbers_too(rows):
    lines = ['{"x": 0, "y": 0.5}', *rows]
    kept = [i for i, line in enumerate(lines, 1) if i == 1 or line in GOOD_JSON]
    table = opened("\n".join(lines), name="a.jsonl", columns=["x", "y"], on_bad_rows="skip")
    numbers, values, _, _ = read(table)
    assert numbers.tolist() == kept
    assert values.tolist() == [[row["x"], row["y"]] for row in (json.loads(lines[i - 1]) for i in kept)]
    assert table.bad.n_left_out == sum(1 for line in lines if line) - len(kept)


@pytest.mark.parametrize("name", ["parquet", "npy"])
def test_rows_with_nan_or_infinity_are_left_out_of_arrays(name):
    X = np.column_stack([np.arange(5.0), [0.0, np.nan, 0.0, np.inf, 0.0]])
    data = FORMATS[name](X, np.zeros(5, "M8[s]"))
    table = opened(data, name=f"a.{name}", on_bad_rows="skip", drop=["t"] * (name == "parquet"))
    assert read(table, 2)[0].tolist() == [0, 2, 4]
    assert table.bad.n_left_out == 2


@pytest.mark.parametrize(("missing", "rows"), [("skip", [2, 6]), ("marginal", [2, 3, 6])])
def test_gaps_are_left_out_or_handed_out(missing, rows):
    table = opened("x,y\n1,2\n3,\n,\n\n5,6\n", missing=missing)
    numbers, values, _, _ = read(table)
    assert numbers.tolist() == rows
    assert np.isnan(values).sum() == len(rows) - 2
    assert table.bad.n_left_out == 4 - len(rows)
    with pytest.raises(TableError, match=r"line 3: column 'y' has no value .*--drop y.*--missing marginal"):
        read(opened("x,y\n1,2\n3,\n"))


# Columns


@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("1,2\n3,4\n", ("0", "1"), [1, 2]),
        ("a,b\n1,2", ("a", "b"), [2]),
        (",a\n0,2\n", ("0", "a"), [2]),
        ("time,1,2\n0,1,2\n", ("time", "1", "2"), [2]),
        ('"a, b",c\n"1",2\n', ("a, b", "c"), [2]),
        ('"a\nb",c\n1,2\n', ("a b", "c"), [3]),
        ("\n\na,b\n1,2\n", ("a", "b"), [4]),
        ("x,,x,\n1,2,3,4\n", ("x", "1", "x.2", "3"), [2]),
        ("10:00,1,2\n10:01,3,4\n", ("1", "2"), [1, 2]),
        ("1,5;2,5;3,5\n4,5;5,5;6,5\n", ("0", "1", "2"), [1, 2]),
        ("a, b;c, d\n1,5;2,25\n", ("a, b", "c, d"), [2]),
    ],
)
def test_the_header_and_the_delimiter_are_found(text, names, rows):
    table = opened(text)
    assert table.names == names
    assert read(table)[0].tolist() == rows


def test_text_columns_are_named_and_left_out_unless_they_are_asked_for():
    text = 'id,x,flag,note,empty\na1,1,true,"b, c",\na2,2,False,d,\n'
    table = opened(text, missing="marginal")
    assert (table.names, table.look.left_out) == (("x", "flag", "empty"), {"text": ("id", "note")})
    np.testing.assert_array_equal(read(table)[1], [[1, 1, np.nan], [2, 0, np.nan]])
    assert opened(text, drop=["note"], time=["id"]).look.left_out == {}
    with pytest.raises(TableError, match=r"column 'id' holds text .'a1'. but numbers are required .*--drop id"):
        read(opened(text, columns=["id", "x"]))
    data = parquet_of({"x": [1, 2], "flag": [True, False], "s": ["a", "b"], "a.b": [None, 2**60]})
    table = opened(data, name="a.parquet", missing="marginal")
    assert table.look.left_out == {"text": ("s",)}
    np.testing.assert_array_equal(read(table)[1], [[1, 1, np.nan], [2, 0, 2**60]])
    with pytest.raises(TableError, match=r"column 's' holds text .'a'. but numbers are required .*--drop s"):
        read(opened(data, name="a.parquet", columns=["s"]))
    table = opened('{"x": 1, "s": "a"}\n{"x": true, "y": 2}\n', name="a.jsonl", missing="marginal")
    assert (table.names, table.look.left_out) == (("x", "y"), {"text": ("s",)})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"columns": ["c", "a"]}, [[3, 1]]),
        ({"drop": ["b"]}, [[1, 3]]),
        ({"columns": ["a", "b"], "drop": ["a"]}, [[2]]),
        ({"labels": "b"}, [[1, 3]]),
        ({"time": "a", "columns": ["a", "b"]}, [[2]]),
        ({"known": Reading(("c", "b"))}, [[3, 2]]),
        ({"known": Reading(("u", "v")), "columns": ["a", "b"]}, [[1, 2]]),
        ({"known": Reading(("b", "z")), "columns": ["z"]}, "no column 'z'; it has 3: a, b, c; give one of these names"),
        ({"drop": ["A"]}, "no column 'A'; it has 3: a, b, c"),
        ({"drop": ["a", "b", "c"]}, "no column of numbers is left of a, b, c"),
        ({"known": Reading(("a", "z"))}, "learned, a, z, but it lacks z; it has a, b, c; rename them"),
        ({"delimiter": ",,"}, "expected a delimiter of one ASCII character but got ',,'"),
    ],
)
def test_columns_are_chosen_by_name(options, expected):
    if isinstance(expected, str):
        with pytest.raises(TableError, match=expected):
            opened("a,b,c\n1,2,3\n", **options)
    else:
        assert read(opened("a,b,c\n1,2,3\n", **options))[1].tolist() == expected


def test_times_are_numbers_or_dates_and_labels_are_numbers():
    table = opened("t,x,y\n2024-05-31T10:00+02:00,1,0\n2024-05-31 10:00:00Z,2,1\n", time=["t"], labels="y")
    _, numbers, times, labels = read(table)
    assert (table.reading.time, numbers.tolist(), labels.tolist()) == (("t",), [[1], [2]], [0, 1])
    np.testing.assert_array_equal(times, np.array(["2024-05-31T08:00", "2024-05-31T10:00"], "M8[ns]"))
    assert read(opened("t,x\n1.5,1\n2.5,2\n", time=["t"]))[2].tolist() == [1.5, 2.5]
    assert read(opened('{"t": 1.5, "x": 2}\n', name="a.jsonl", time=["t"]))[2].tolist() == [1.5]
    table = opened("t,x\n1,1\nnoon,2\n,3\n2,4\n", time=["t"], on_bad_rows="skip")
    assert read(table)[0].tolist() == [2, 5]
    assert table.bad.kinds == {"no time": 2}
    assert "line 3: column 't' has no time in the form number" in table.bad.examples[0]
    table = opened("x,y\n1,0\n2,\n3,1\n", labels="y", on_bad_rows="skip")
    assert [column.tolist() for column in read(table)[::3]] == [[2, 4], [0, 1]]
    assert table.bad.examples == [f"{table.path}, line 3: column 'y' has no number (to leave the column out: --drop y)"]


# Errors


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "the file is empty"),
        ("a,b\r1,2\r", "expected line feeds but lines end in carriage returns"),
        ("a,b\n", "it has no rows of numbers|no column of numbers is left of a, b"),
        ("a,b\n1,2\n1\n", r"table.csv, line 3: expected 2 cells but got 1; correct such rows, or skip them"),
        ("a,b\n1,2\n\n1,2,3\n", "line 4: expected 2 cells but got 3"),
        ("a,b\n1,2\n1,-inf\n", r"line 3: column 'b' holds '-inf', which is no number .*--missing skip"),
        ("a,b\n1,2\n1,x y\n", r"line 3: column 'b' holds 'x y', which is no number .*--drop b\); fill"),
        ("a,b\n1,2\n1,1_0\n", r"line 3: column 'b' holds '1_0'"),
        ("1,2\n3,x\n4,5\n", r"line 2: column '1' holds 'x'"),
        ("a;b\n1,5;2\n1,5;2\n1.5;2\n", r"line 4: column 'a' holds '1.5', which is no number"),
        ("a,b\nx,y\n", "it has no rows of numbers|no column of numbers is left of a, b"),
        ('a,b\n1,2\n"1,2\n3,4\n', "line 3: expected 2 cells but got 1"),
        ("a,b\n1,2\n3,4\né,2\n".encode("latin1"), "line 4: column 'a' holds 'é'"),
        (b"\x01\x02\x03\n", "is neither text nor any other known format"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\0", "compressed ones with the suffix .gz"),
        ('[\n {"x": "y"},\n]\n', "is not JSON .*write one object a line"),
        ('{"x": [1, 2]\n}\n', "has no array of objects"),
        ('{"a": 1}\n{"a": {}}\n', r"line 2: column 'a' holds '{}', which is no number"),
        ("[1, 2]\n[1]\n", "is not JSON .Extra data"),
        ('{"a": ' + "9" * 400 + "}\n", "line 1: column 'a' holds 'inf'|no rows of numbers"),
        ("[" * 100_000 + "\n", "is not JSON .(maximum recursion|Stack overflow)"),
    ],
)  # fmt: skip
def test_text_that_makes_no_sense_is_refused_in_one_line(data, message):
    with pytest.raises(TableError, match=message) as caught:
        list(opened(data).batches(10))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


ONES = np.ones((5, 2))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("absent.csv", None, "no such file; give a table"),
        (".", None, "is a folder; name a file in it"),
        ("1d.npy", npy(ONES[0]), r"of shape \(2,\); save them as float64 in two dimensions"),
        ("complex.npy", npy(ONES + 1j), "expected real numbers in rows and columns but got complex128"),
        ("objects.npy", npy(np.array([[1, "a"]], object)), "cannot be read .*Python objects in dtype"),
        ("empty.npy", npy(ONES[:0]), "it has no rows of numbers"),
        ("none.npy", npy(ONES[:, :0]), "expected 1 to 1,048,576 columns but got 0; transpose it"),
        ("cut.npy", npy(ONES)[:130], "cannot be read .*check that the file is complete"),
        ("cut.parquet", parquet_of({"x": [1.0] * 5})[:130], "cannot be read"),
        (
            "x.xlsx",
            b"PK\x03\x04\x14\0\0\0\x08\0",
            "is a spreadsheet, which needs python-calamine|cannot be read",
        ),
        ("a.npy.gz", gzip.compress(npy(ONES)), "only JSON lines and CSV are read from a pipe, or compressed"),
        ("gap.parquet", parquet_of({"x": [1.0, None, np.inf]}), r"row 1 \(from 0\): column 'x' has no value"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, name, data, message):
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(TableError, match=message) as caught:
        list(Table(str(path), Asked()).batches(10))
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:20], "begins with other text"),
        (
            lambda text: text.replace(b"x,y", b"x,z"),
            "read up to byte 4,003 but it begins with other text; name that file, or begin anew",
        ),
        (lambda text: text[:-1] + b"5\n", "has a longer last line; .*--follow reads whole lines only"),
    ],
)
def test_a_position_of_another_file_is_refused(tmp_path, change, message):
    text = b"x,y\n" + b"1.5,2.5\n" * 500
    *_, last = opened(text[:-1], tmp_path).batches(10)
    with pytest.raises(TableError, match=message):
        opened(change(text), tmp_path, start=last.position)
    assert not list(opened(text, tmp_path, start=last.position).batches(10))
    for wrong in ({}, {"byte": -1, "line": 1, "head": [0, 0]}, {"byte": 2, "line": 1, "head": 7}):
        with pytest.raises(TableError, match=r"cannot be read|begins with other text"):
            opened(text, tmp_path, start=wrong)


def test_a_position_of_another_array_is_refused(tmp_path):
    *_, last = opened(FORMATS["npy"](np.ones((9, 2)), None), tmp_path, "a.npy").batches(10)
    for X, message in (
        (np.ones((8, 2)), "expected at least the 9 rows"),
        (np.ones((3, 3)), "but it has 3; name that file"),
    ):
        with pytest.raises(TableError, match=message):
            opened(FORMATS["npy"](X, None), tmp_path, "a.npy", start=last.position)


def test_the_lines_are_right_after_many_blocks_of_odd_rows():
    good, lines = "1,2,a\n", ["x,y,note\n"]
    for i in range(1, 120_000):
        lines.append(f'{i},2,"b{i % 7}"\n' if i % 20_000 else f'{i},oops,"c\nd"\n')
    table = opened("".join(lines) + good, on_bad_rows="skip", columns=["x", "y"])
    rows, numbers, _, _ = read(table, 40_000)
    expected = [i for i in range(1, 120_000) if i % 20_000]
    np.testing.assert_array_equal(numbers[:-1, 0], expected)
    np.testing.assert_array_equal(rows[:-1], [i + 1 + (i - 1) // 20_000 for i in expected])
    assert table.bad.n_left_out == 5


# Results


@pytest.mark.parametrize("form", WRITTEN)
def test_results_are_read_back_as_they_were_written(form, tmp_path):
    path = str(tmp_path / f"a.{form}")
    times = np.array(["2024-05-31T10:00", "2024-05-31T10:00:00.5", "2024-06-01"], "M8[ns]")
    columns = {"row": np.arange(3), "x": np.array([1 / 3, np.nan, 1e30]), "alarm": np.array([True, False, True])}
    columns |= {"t": times}
    with Writer(path) as writer:
        for part in (slice(0, 2), slice(2, 3)):
            writer.write({name: column[part] for name, column in columns.items()})
    table = Table(path, Asked(missing="marginal", time=["t"]))
    _, numbers, read_times, _ = read(table)
    np.testing.assert_array_equal(numbers, np.column_stack([columns["row"], columns["x"], columns["alarm"]]))
    np.testing.assert_array_equal(read_times, times)


def test_an_error_leaves_the_older_results(tmp_path):
    (tmp_path / "a.csv").write_text('"row"\n7\n')
    with suppress(KeyError), Writer(str(tmp_path / "a.csv")) as writer:
        writer.write({"row": np.arange(3)})
        raise KeyError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.csv", '"row"\n7\n')]


def test_live_results_can_be_read_at_once(tmp_path, capsysbinary):
    with Writer(str(tmp_path / "a.jsonl"), live=True) as writer, Writer("-", format="csv") as output:
        for one in (writer, output):
            one.write({"row": [1], "t": np.array(["2024-05-31"], "M8[D]")})
        assert (tmp_path / "a.jsonl").read_text() == '{"row": 1, "t": "2024-05-31T00:00:00"}\n'
        assert capsysbinary.readouterr().out == b'"row","t"\n1,"2024-05-31T00:00:00"\n'
    with pytest.raises(TableError, match="expected results as csv, jsonl but got 'parquet'; end the name in one of"):
        Writer(str(tmp_path / "a.parquet"))
