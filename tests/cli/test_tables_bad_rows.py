"""Rows that are not numbers are refused with their line and a remedy, or left out and counted."""

import csv
import gzip
import io
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pyarrow import ipc, parquet

from streamkpca.cli.tables import TableError, jsonl, open_table
from streamkpca.cli.tables import csv as csv_tables

# Each with the error that it gives.
BAD = {
    "csv": [
        ("7", "expected 2 fields"),
        ("7,8,9", "found 3"),
        (",", "column 'x' has no value"),
        ("7,n/a", "column 'y' has no value"),
        ("nan,8", "column 'x' has no value"),
        ("7,-inf", "column 'y' is infinite"),
        ("1e400,8", "column 'x' is infinite"),
        ("oops,8", r"column 'x' holds text \('oops'\)"),
        ("7,1_0", r"column 'y' holds text \('1_0'\)"),
        ("7,0x10", "column 'y' holds text"),
        ("7 7,8", "column 'x' holds text"),
        ("7,\0", "column 'y' holds text"),
        ("7,é", "column 'y' holds text"),
        ("x,y", "column 'x' holds text"),
        ('"7,8",9,10', "found 3"),
        ('"a\nb",8', "column 'x' holds text"),
        ('7,"8"9"', "column 'y' holds text"),
    ],
    "jsonl": [
        ('{"x": 7}', "column 'y' has no value"),
        ('{"x": null, "y": 8}', "column 'x' has no value"),
        ('{"x": "7", "y": 8}', r'column \'x\' holds text \("7"\)'),
        ('{"x": 7, "y": [8]}', r"column 'y' holds an array \(\[\"8\"\]\)|column 'y' holds an array"),
        ('{"x": 7, "y": {"z": 8}}', "column 'y' holds an object"),
        ('{"x": 7, "y": NaN}', "column 'y' has no value"),
        ('{"x": -Infinity, "y": 8}', "column 'x' is infinite"),
        ('{"x": 7, "y": 1e400}', "column 'y' is infinite"),
        ('{"x": 7, "y": 8, "y": 9}', "column 'y' is repeated"),
        ('{"x": 7, "y": 8', "is not JSON"),
        ('{"x": 7, "y": 8}{"x": 7, "y": 8}', "is not JSON"),
        ('{"x": 7, "y": 08}', "is not JSON"),
        ("[7, 8]", r"expected an object \(as in the first line\)"),
        ("{}", "without values"),
        ("null", "expected an object or an array"),
        ("7", "expected an object or an array"),
        ("x,y", "is not JSON"),
        ("[" * 100_000, "is nested too deeply|is not JSON"),
    ],
    "jsonl_bare": [
        ("[7]", "expected 2 values .* found 1"),
        ("[7, 8, 9]", "found 3"),
        ("[7, null]", "column '1' has no value"),
        ('["7", 8]', "column '0' holds text"),
        ("[7, [8]]", "column '1' holds an array"),
        ("[7, NaN]", "column '1' has no value"),
        ("[7, 8], [7, 8]", "is not JSON"),
        ("[7", "is not JSON"),
        ("8]", "is not JSON"),
        ('{"x": 7, "y": 8}', "expected an array"),
        ("[]", "without values"),
    ],
}
GOOD = {
    "csv": ("x,y\n", lambda row: f"{row[0]!r},{row[1]!r}", ["", "  ", "\r"]),
    "jsonl": ("", lambda row: f'{{"y": {row[1]!r}, "other": "é", "x": {row[0]!r}}}', ["", "  ", "\r"]),
    "jsonl_bare": ("", lambda row: f"[{row[0]!r}, {row[1]!r}]", ["", "  ", "\r"]),
}
FIRST = {"csv": "1.0,2.0", "jsonl": '{"x": 1.0, "y": 2.0}', "jsonl_bare": "[1.0, 2.0]"}
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@pytest.fixture(params=["few columns", "many columns"], scope="module")
def parsers(request):
    """Read tables of two columns also with the parsers that are for tables of many."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "many columns":
            patch.setattr(csv_tables, "_FEW_COLUMNS", 0)
            patch.setattr(jsonl, "_FEW_COLUMNS", 0)
        yield


@st.composite
def texts(draw):
    """Draw a format, its text, the good rows of it, and line and fault of the bad ones."""
    kind = draw(st.sampled_from(list(GOOD)))
    header, spell, blanks = GOOD[kind]
    lines, rows, faults = [FIRST[kind]], [(1.0, 2.0)], []
    line = 2 + header.count("\n")
    what = st.tuples(st.sampled_from(["good", "bad", "blank"]), st.integers(0, 40))
    # Long runs of good rows make the parsers' halving stop early, or late.
    for choice, repeated in draw(st.lists(what, max_size=12)):
        for _ in range(repeated):
            if choice == "good":
                rows.append(draw(st.sampled_from([(0.5, -3.0), (1e300, 5e-324)])))
                lines.append(spell(rows[-1]))
            elif choice == "bad":
                text, fault = draw(st.sampled_from(BAD[kind]))
                faults.append((line, fault))
                lines.append(text)
            else:
                lines.append(draw(st.sampled_from(blanks)))
            line += 1 + lines[-1].count("\n")
    newline = draw(st.sampled_from(["", "\n", "\r\n"]))
    return kind, (header + "\n".join(lines) + newline).encode(), rows, faults


@pytest.mark.usefixtures("parsers")
@settings(max_examples=100)
@given(written=texts(), n_rows=st.integers(5, 50))
def test_bad_rows_are_left_out_and_counted_from_any_offset(written, n_rows):
    _, text, rows, faults = written
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text")
        path.write_bytes(text)
        table, got = open_table(str(path), on_bad_rows="skip"), []
        for chunk in table.chunks(n_rows):
            got += chunk.rows.tolist()
            later = open_table(str(path), on_bad_rows="skip")
            later.seek(chunk.offset)
            rest = [row for part in later.chunks(7) for row in part.rows.tolist()]
            assert got + rest == [list(row) for row in rows]
            assert table.n_skipped + later.n_skipped == len(faults)
    assert got == [list(row) for row in rows]
    assert table.n_skipped == len(faults)
    assert (table.first_skipped is None) is (not faults)


@pytest.mark.usefixtures("parsers")
@given(written=texts())
@example(written=("csv", b"x,y\n1,2\n", [(1.0, 2.0)], []))
def test_the_first_bad_row_is_reported_with_its_line(written):
    _, text, rows, faults = written
    if not faults:
        table = open_table("<text>", stream=io.BytesIO(text))
        assert [tuple(row) for chunk in table.chunks(7) for row in chunk.rows.tolist()] == rows
        return
    line, fault = faults[0]
    with pytest.raises(TableError, match=rf"^<text>, line {line}: .*({fault})") as caught:
        list(open_table("<text>", stream=io.BytesIO(text)).chunks(7))
    assert "--on-bad-rows skip" in str(caught.value)
    assert "\n" not in str(caught.value)
    table = open_table("<text>", stream=io.BytesIO(text), on_bad_rows="skip")
    list(table.chunks(7))
    assert str(caught.value).startswith(table.first_skipped)


@pytest.mark.usefixtures("parsers")
@pytest.mark.parametrize(("kind", "bad", "fault"), [(kind, *bad) for kind in BAD for bad in BAD[kind]])
@pytest.mark.parametrize("n_before", [1, 40])
def test_one_bad_row_among_good_ones_is_found(kind, bad, fault, n_before):
    header, spell, _ = GOOD[kind]
    lines = [FIRST[kind], *[spell((0.5, -3.0))] * (n_before - 1), bad, *[spell((0.5, -3.0))] * 3]
    text = (header + "\n".join(lines) + "\n").encode()
    with pytest.raises(TableError, match=rf"line {n_before + 1 + header.count(chr(10))}: .*({fault})"):
        list(open_table("<text>", stream=io.BytesIO(text)).chunks(100))
    table = open_table("<text>", stream=io.BytesIO(text), on_bad_rows="skip")
    rows = [row for chunk in table.chunks(100) for row in chunk.rows.tolist()]
    assert rows == [[1.0, 2.0], *[[0.5, -3.0]] * (n_before + 2)]
    assert table.n_skipped == 1


LETTERS = [*"{}[],:1 \ré", "-0", "null", "true", "NaN", '"x"', '"y"', '"q"', '"\\u0078"']
PHRASES = ['"x":1', '"y":2', "{}", "[null]"]
LINES = st.one_of(
    st.just('{"x":1,"y":2}'),
    st.lists(st.sampled_from([*LETTERS, *PHRASES]), max_size=8).map(lambda parts: f"{{{''.join(parts)}}}"),
)


@pytest.mark.usefixtures("parsers")
@given(st.lists(LINES, max_size=6))
def test_json_lines_are_read_as_the_standard_library_reads_them(lines):
    lines = ['{"x": 0, "y": 0}', *lines]
    expected = []
    for line in lines:
        try:
            row = json.loads(line, object_pairs_hook=lambda pairs: pairs)
        except ValueError:
            continue
        values = [[value for key, value in row if key == name] for name in ("x", "y")]
        numbers = [value[0] for value in values if len(value) == 1 and isinstance(value[0], int | float)]
        if len(numbers) == 2 and np.isfinite(numbers).all():
            expected.append([float(number) for number in numbers])
    text = ("\n".join(lines) + "\n").encode()
    table = open_table("<text>", stream=io.BytesIO(text), on_bad_rows="skip")
    assert [row for chunk in table.chunks(100) for row in chunk.rows.tolist()] == expected
    assert table.n_skipped == len(lines) - len(expected)


MARKED = ['"', '""', ",", "\n", "1", "2.5", "x", " ", "\r\n", '"a,b"', '"1"', "1,2\n"]


@pytest.mark.usefixtures("parsers")
@given(st.lists(st.sampled_from(MARKED), max_size=25).map("".join), st.integers(1, 9))
def test_csv_is_read_as_the_standard_library_reads_it(text, piece):
    text = "1,2\n" + text + "\n"
    records = list(csv.reader(io.StringIO(text, newline="")))
    # If a mark is never closed, the library reads on to the end and the package does not.
    assume(not records[-1][-1:] or not records[-1][-1].endswith("\n"))
    expected, bad = [], 0
    for fields in records:
        if len(fields) > 1 or "".join(fields).strip():
            try:
                numbers = [float(field) for field in fields]
            except ValueError:
                numbers = []
            expected += [numbers] if len(numbers) == 2 else []
            bad += len(numbers) != 2
        else:
            # An empty line, unless it has marks with nothing between them, which the library does not tell apart.
            assume('"' not in text)

    class Pieces(io.BytesIO):
        def read1(self, size=-1):
            return super().read1(min(size, piece))

    stream = Pieces(text.encode())
    table = open_table("<text>", stream=stream, header=False, delimiter=",", columns=["0", "1"], on_bad_rows="skip")
    assert [row for chunk in table.chunks(100) for row in chunk.rows.tolist()] == expected
    assert table.n_skipped == bad


@pytest.mark.parametrize("kind", ["npy", "npy_gz", "npz", "parquet", "arrow"])
@given(
    bad=st.lists(st.sampled_from([0.0, np.nan, np.inf, -np.inf]), min_size=1, max_size=30), n_rows=st.integers(1, 40)
)
@settings(max_examples=20)
def test_rows_with_nan_or_infinity_are_left_out_of_arrays(kind, bad, n_rows):
    X = np.column_stack([np.arange(len(bad)), bad])
    good, n_bad = X[np.isfinite(X[:, 1])], int((~np.isfinite(X)).sum())
    with tempfile.TemporaryDirectory() as folder:
        path = save(Path(folder), kind, X)
        first = f"row {int(np.argmin(np.isfinite(X[:, 1])))} \\(from 0\\): column '(1|y)' is (missing|infinite)"
        table = open_table(path, on_bad_rows="skip", time="when" if kind == "npz" else None)
        if not len(good):
            with pytest.raises(TableError, match=rf"it has no rows of numbers \({n_bad} skipped, the first: .*{first}"):
                list(table.chunks(n_rows))
            return
        done = 0
        for chunk in table.chunks(n_rows):
            np.testing.assert_array_equal(chunk.rows, good[done : done + len(chunk.rows)])
            if kind == "npz":
                assert chunk.times == [f"t{int(row[0])}" for row in chunk.rows]
            done += len(chunk.rows)
            later = open_table(path, on_bad_rows="skip")
            later.seek(chunk.offset)
            rest = [row for part in later.chunks(7) for row in part.rows.tolist()]
            assert rest == good[done:].tolist()
            assert table.n_skipped + later.n_skipped == n_bad
        assert table.n_skipped == n_bad
        if n_bad:
            with pytest.raises(TableError, match=first):
                list(open_table(path).chunks(n_rows))


def save(folder, kind, X):
    path = folder / f"x.{kind}"
    if kind.startswith("npy"):
        sink = io.BytesIO()
        np.save(sink, X)
        with pa.output_stream(path, compression="gzip" if kind == "npy_gz" else None) as file:
            file.write(sink.getvalue())
    elif kind == "npz":
        with path.open("wb") as file:
            np.savez(file, rows=X, when=[f"t{i}" for i in range(len(X))])
    else:
        table = pa.table({"x": X[:, 0], "y": pa.array(X[:, 1], from_pandas=True)})
        if kind == "parquet":
            parquet.write_table(table, path, row_group_size=4)
        else:
            with ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=4)
    return str(path)


def test_labels_that_are_missing_make_bad_rows_too(tmp_path):
    np.savez(tmp_path / "x.npz", rows=np.arange(6.0).reshape(3, 2), label=[0, np.nan, 1])
    table = open_table(str(tmp_path / "x.npz"), labels="label", on_bad_rows="skip")
    (chunk,) = table.chunks(10)
    assert chunk.rows.tolist() == [[0, 1], [4, 5]]
    assert chunk.labels.tolist() == [0, 1]
    assert table.first_skipped.endswith("row 1 (from 0): column 'label' is missing (NaN)")


def test_a_quotation_mark_that_is_never_closed_spoils_only_its_own_line(tmp_path):
    lines = [f"{i},a\n" for i in range(200_000)]
    lines[1000] = '1000,"a\n'
    table = open_table("<text>", stream=io.BytesIO("".join(lines).encode()), columns=["0"], on_bad_rows="skip")
    assert sum(len(chunk.rows) for chunk in table.chunks(4096)) == 199_999
    assert table.first_skipped == "<text>, line 1001: a quotation mark opens a field and is never closed"


def test_line_numbers_continue_after_an_offset(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('x,note\n1,"a\nb"\n\n2,c\nthree,d\n')
    offset = next(open_table(str(path), drop=["note"], on_bad_rows="skip").chunks(1)).offset
    table = open_table(str(path), drop=["note"])
    table.seek(offset)
    with pytest.raises(TableError, match="line 6: column 'x' holds text"):
        list(table.chunks(10))


def test_an_unknown_value_of_on_bad_rows_is_refused():
    with pytest.raises(TableError, match="expected 'raise' or 'skip' but got 'ignore'"):
        open_table("x.csv", on_bad_rows="ignore")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:20], "it has only 20 bytes"),
        (lambda text: text.replace(b"x,y", b"x,z"), "it begins with other text"),
        (lambda text: b"[1, 2]\n" * 100, "it is JSON lines, not CSV"),
        (lambda text: b"", "the file is empty"),
    ],
)
def test_an_offset_of_another_file_is_refused(tmp_path, change, message):
    path = tmp_path / "x.csv"
    path.write_bytes(text := b"x,y\n" + b"1.5,2.5\n" * 50)
    *_, last = open_table(str(path)).chunks(10)
    path.write_bytes(change(text))
    with pytest.raises(TableError, match=message):
        open_table(str(path)).seek(last.offset)


def test_a_last_line_that_has_grown_since_is_noticed(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("x\n1\n12")
    *_, last = open_table(str(path)).chunks(10)
    for more, expected in (("", []), ("\n", []), ("\n4\n", [[4]]), ("\r\n4\n", [[4]])):
        path.write_text("x\n1\n12" + more)
        table = open_table(str(path))
        table.seek(last.offset)
        assert [row for chunk in table.chunks(5) for row in chunk.rows.tolist()] == expected
    path.write_text("x\n1\n123\n4\n")
    with pytest.raises(TableError, match="the last line read, 3, has grown since"):
        open_table(str(path)).seek(last.offset)


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet", "arrow"])
def test_an_offset_beyond_the_last_row_of_an_array_is_refused(tmp_path, kind):
    X = np.arange(20.0).reshape(10, 2)
    *_, last = open_table(save(tmp_path, kind, X)).chunks(4)
    with pytest.raises(TableError, match="expected at least the 10 rows that were read earlier but it has 9"):
        open_table(save(tmp_path, kind, X[:9])).seek(last.offset)
    (tmp_path / f"x.{kind}").write_text("x,y\n1,2\n")
    with pytest.raises(TableError, match=r"it is CSV, not|expected an offset as Chunk.offset"):
        open_table(str(tmp_path / f"x.{kind}")).seek(last.offset)


@pytest.mark.parametrize(
    "offset",
    [
        {},
        {"format": "CSV"},
        {"format": "CSV", "head": 3, "byte": "a", "line": 1},
        {"format": "CSV", "head": [2, 0], "byte": "a", "line": 1},
        7,
    ],
)
def test_an_offset_of_the_wrong_form_is_refused(tmp_path, offset):
    (tmp_path / "x.csv").write_text("x\n1\n")
    with pytest.raises(TableError, match=r"expected an offset as Chunk.offset gives it but got"):
        open_table(str(tmp_path / "x.csv")).seek(offset)


def test_a_stream_has_no_offsets(tmp_path):
    table = open_table("<pipe>", stream=io.BytesIO(b"x\n1\n"))
    assert next(table.chunks(1)).offset is None
    with pytest.raises(TableError, match="a stream cannot resume at an earlier offset; name a file"):
        table.seek({"format": "CSV", "byte": 2, "line": 2, "head": [2, 0]})


def test_an_offset_beyond_the_end_of_a_compressed_file_is_refused(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"x\n" + b"1\n" * 2000))
    *_, last = open_table(str(path)).chunks(1000)
    path.write_bytes(gzip.compress(b"x\n" + b"1\n" * 1000))
    with pytest.raises(TableError, match="file that was read up to byte 4002 but it is shorter"):
        open_table(str(path)).seek(last.offset)


def test_an_offset_of_a_file_with_other_columns_is_refused(tmp_path):
    *_, last = open_table(save(tmp_path, "npy", np.ones((3, 2)))).chunks(10)
    np.save(tmp_path / "wide.npy", np.ones((3, 3)))
    with pytest.raises(
        TableError, match="read earlier, npy with columns 0, 1, but it is npy with 0, 1, 2; name that file"
    ):
        open_table(str(tmp_path / "wide.npy")).seek(last.offset)


def test_a_stream_of_arrow_that_is_shorter_now_is_refused_where_it_ends(tmp_path):
    table = pa.table({"x": [1.0, 2.0, 3.0]})
    for n in (3, 2):
        with ipc.new_stream(tmp_path / f"{n}", table.schema) as writer:
            writer.write_table(table.slice(0, n))
    *_, last = open_table(str(tmp_path / "3")).chunks(10)
    later = open_table(str(tmp_path / "2"))
    later.seek(last.offset)
    with pytest.raises(TableError, match="it ends 1 rows before the offset to resume at; name the same file"):
        list(later.chunks(10))


def test_an_array_that_is_cut_short_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "rows.npy"
    np.save(path, np.ones((50_000, 8)))
    chunks = open_table(str(path)).chunks(1000)
    assert next(chunks).rows.shape == (1000, 8)
    os.truncate(path, 1_000_000)
    with pytest.raises(TableError, match=r"rows\.npy: cannot be read \(it ends 34377 rows early\)"):
        list(chunks)
