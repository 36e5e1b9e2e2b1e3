"""Text as people and programs really write it is read as meant, or refused in one line that tells why."""

import bz2
import gzip
import io
import lzma

import numpy as np
import pytest

from streamkpca.cli.tables import TableError, open_table
from streamkpca.cli.tables import source as sources
from streamkpca.cli.tables import text as text_tables


def gzipped(data: bytes) -> bytes:
    # Without the time: the data name the tests, and parallel workers must agree on the names.
    return gzip.compress(data, mtime=0)


def read(data, **options):
    table = open_table("<text>", stream=io.BytesIO(data), **options)
    return table, np.concatenate([chunk.rows for chunk in table.chunks(100)])


@pytest.mark.parametrize(
    ("data", "names", "rows"),
    [
        (b"\xef\xbb\xbfa;b\r\n1.5;2\r\n", ["a", "b"], [[1.5, 2]]),
        (b"a\tb c\n1\t2\n", ["a", "b c"], [[1, 2]]),
        (b"1.5e+00 2.5e+00\n3e+00 4e+00\n", ["0", "1"], [[1.5, 2.5], [3, 4]]),
        (b"# a,b\n1,2\n", ["a", "b"], [[1, 2]]),
        (b'"a;b",c\n1,2\n', ["a;b", "c"], [[1, 2]]),
        (b'"a\nb",c\n1,2\n', ["a\nb", "c"], [[1, 2]]),
        ("Temp°,b\n1,2\n".encode("latin-1"), ["Temp°", "b"], [[1, 2]]),
        (b"a\n\n1\n\r\n  \n2", ["a"], [[1], [2]]),
        (b'a\n1\n"2"', ["a"], [[1], [2]]),
        (b"a,b\n1\t, 2\n", ["a", "b"], [[1, 2]]),
        ("a,b\n\u00a01,2\u00a0\n".encode(), ["a", "b"], [[1, 2]]),
        (b"PAR1,PAR2\n1,2\n", ["PAR1", "PAR2"], [[1, 2]]),
        (b"PKW,BZh9\n1,2\n", ["PKW", "BZh9"], [[1, 2]]),
        (b"BZh91,x\n1,2\n", ["BZh91", "x"], [[1, 2]]),
        (b"ARROW1\n1\n", ["ARROW1"], [[1]]),
        (gzipped(b"a\n1\n") + gzipped(b"2\n"), ["a"], [[1], [2]]),
        (bz2.compress(b"a\n1\n") + bz2.compress(b"2\n"), ["a"], [[1], [2]]),
        (lzma.compress(b"a\n1\n") + lzma.compress(b"2\n"), ["a"], [[1], [2]]),
        (b'\xef\xbb\xbf{"a": 1}\r\n\r\n{"a": true}', ["a"], [[1], [1]]),
        (b'\n {"": -0, "a": 1E2}\n', ["", "a"], [[-0.0, 100]]),
        (b'{"\\u0061": 9007199254740993}\n{"a": ' + b"9" * 300 + b"}\n", ["a"], [[9007199254740992], [1e300]]),
        (b'{"a": 1, "b": 2}\n{"b": 4, "c": {"a": [7]}, "a": 3}\n', ["a", "b"], [[1, 2], [3, 4]]),
        (b'{"a": true, "b": 0}\n{"a": false, "b": true}\n{"a": 2, "b": 0.5}\n', ["a", "b"], [[1, 0], [0, 1], [2, 0.5]]),
        (b"[1, true]\n[2.5, false]\n", ["0", "1"], [[1, 1], [2.5, 0]]),
    ],
)
def test_odd_text_is_read_as_it_is_meant(data, names, rows):
    table, read_rows = read(data)
    assert list(table.columns.names) == names
    np.testing.assert_array_equal(read_rows, rows)
    np.testing.assert_array_equal(np.signbit(read_rows), np.signbit(rows))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("a,b\n1,2\n".encode("utf-16"), "is text in UTF-16; save it as UTF-8"),
        ('{"a": 1}\n'.encode("utf-16"), "is text in UTF-16"),
        (b"a,b\r1,2\r", "lines end in carriage returns without line feeds; save it with line feeds"),
        (bytes(range(256)), "is neither text nor any other known format; give a CSV"),
        (b"\x89HDF\r\n\x1a\n" + bytes(20), "is an HDF5 file, which cannot be read; save it as CSV, Parquet or Arrow"),
        (b"\xd0\xcf\x11\xe0" + bytes(20), "is an Excel file"),
        (gzipped(gzipped(b"a\n1\n")), "is a gzip file within another compressed one; unpack it once"),
        (gzipped(b""), "the file is empty"),
        (gzipped(b"a\n1\n")[:-4], r"cannot be read \(Compressed file ended"),
        (gzipped(b"a\n1\n") + b"junk", r"cannot be read \(Not a gzipped file"),
        (bz2.compress(b"a\n1\n")[:-4], r"cannot be read \(Compressed file ended"),
        (lzma.compress(b"a\n1\n")[:-4], r"cannot be read \(Compressed file ended"),
        (b"a;b\n1,5;2,5\n", r"column 'a' holds text \('1,5'\).*if this is a decimal comma, write a decimal point"),
        (b"a|b\n1|2\n", r"column 'a\|b' holds text .*if another character separates fields, give it with --delimiter"),
        (b"a,b,\n1,2,\n", "column '' has no value .*--drop 2"),
        (b"a,a\n1,x\n", "column 'a' holds text .*--drop 1"),
        (b'"a,b",c\nx,1\n', "column 'a,b' holds text .*--drop 0"),
        (b'a,b\n1,"' + b"x\n" * 100_000 + b'"\n', r"line 2: column 'b' holds text \('x.nx"),
        (b"a,b\n1," + b"2" * 10_000_000 + b"\n", "line 2: column 'b' is infinite"),
        (b'[\n {"x": 1}\n]\n', "line 1: is not JSON .* one object or array of numbers a line, or add --header"),
        (b'[{"x": 1}]\n', "column '0' holds an object"),
        (b'{"a\\ud800": 1}\n', "line 1: has half a surrogate pair in a key"),
        (b"{}\n", "line 1: is an object or array without values"),
        (b'{"a": "x"}\n', r"line 1: column 'a' holds text .*--drop a\).*--time a"),
        (b'{"a": ' + b"9" * 5000 + b"}\n", "line 1: column 'a' is infinite"),
    ],
)
def test_text_that_makes_no_sense_is_refused_in_one_line(data, message):
    with pytest.raises(TableError, match=rf"^<text>.*({message})") as caught:
        read(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_text_that_looks_like_json_is_csv_if_a_header_is_asked_for():
    table, rows = read(b"[id],[x]\n1,2\n", header=True)
    assert table.columns.names == ("[id]", "[x]")
    np.testing.assert_array_equal(rows, [[1, 2]])


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n", "é"])
def test_a_delimiter_is_one_ascii_character(delimiter):
    with pytest.raises(TableError, match="expected a delimiter of one ASCII character but got"):
        read(b"a\n1\n", delimiter=delimiter)
    np.testing.assert_array_equal(read(b"a|b\n1|2\n", delimiter="|")[1], [[1, 2]])


def test_times_may_have_any_encoding():
    table = open_table("<text>", stream=io.BytesIO("t,x\né,1\nü,2\n".encode("latin-1")), time="t")
    (chunk,) = table.chunks(10)
    assert chunk.times == ["é", "ü"]
    (chunk,) = open_table("<text>", stream=io.BytesIO(b'{"t": "\\ud800", "x": 1}\n'), time="t").chunks(10)
    assert chunk.times == ["?"]


def test_the_first_row_of_json_may_be_bad_and_skipped():
    table, rows = read(b'garbage\n{"x": 1}\n'[8:] + b"oops\n", on_bad_rows="skip")
    np.testing.assert_array_equal(rows, [[1]])
    table, rows = read(b'{"x": 1\n{"x": 2}\n', on_bad_rows="skip")
    np.testing.assert_array_equal(rows, [[2]])
    assert table.n_skipped == 1
    assert table.first_skipped.startswith("<text>, line 1: is not JSON")


def test_thousands_of_columns_are_read():
    names = [f"c{j}" for j in range(5000)]
    text = ",".join(names) + "\n" + ",".join(map(str, range(5000))) + "\n"
    table, rows = read(text.encode(), columns=["c4999", "17"])
    assert table.columns.feature_names == ("c4999", "c17")
    np.testing.assert_array_equal(rows, [[4999, 17]])


def test_text_streams_and_chunks_of_no_rows_are_refused():
    with pytest.raises(TableError, match="<text>: expected a stream of bytes but got one of text; give its buffer"):
        open_table("<text>", stream=io.StringIO("a\n1\n"))
    with pytest.raises(TableError, match="expected chunks of at least 1 row but got 0"):
        next(open_table("<text>", stream=io.BytesIO(b"a\n1\n")).chunks(0))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a" * 5000 + b"\n1\n", "<text>: a line is longer than 1000 bytes; check that this is a table"),
        (b"a\n1\n" + b"2" * 5000, "<text>, line 3: longer than 1000 bytes; check that this is a CSV file"),
        (
            b'{"a": 1}\n{"a": ' + b"2" * 5000,
            "<text>, line 2: longer than 1000 bytes; check that this is a JSON lines file",
        ),
    ],
)
def test_a_line_without_end_is_refused(monkeypatch, data, message):
    for module in (sources, text_tables):
        monkeypatch.setattr(module, "LONGEST_LINE", 1000)
        monkeypatch.setattr(module, "READ_BYTES", 100)
    with pytest.raises(TableError, match=message):
        read(data)


def test_text_without_any_row_is_refused_even_if_bad_rows_are_skipped():
    with pytest.raises(TableError, match="<text>: none of its lines is a JSON object or array; give a table with rows"):
        read(b"{oops\n[1\n", on_bad_rows="skip")
