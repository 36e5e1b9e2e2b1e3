"""Every format is read as it was written: in chunks of any size, from file or pipe, from the start or an offset."""

import io
import json
import os
import sys
import tempfile
import threading
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pyarrow import ipc, parquet
from table_files import NEED_A_FILE, NUMBERS, WITH_TIMES, arrow_file, arrow_stream, arrow_table, time_name, written

from streamkpca.cli.tables import TableError, open_table, regroup

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
MATRICES = st.tuples(st.integers(1, 20), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=FINITE)
)
# Nothing that ends a field or a line, and nothing that numpy's text arrays would drop.
TIMES = st.text(
    st.characters(codec="utf-8", exclude_characters='\0\r\n\t",;\ufeff', exclude_categories=["Cs"]), min_size=1
)


class Pipe(io.RawIOBase):
    """A stream that gives a few bytes at a time and refuses `seek`."""

    def __init__(self, data, piece):
        self._data, self._piece = io.BytesIO(data), piece

    def readable(self):
        return True

    def read1(self, size=-1):
        return self._data.read(self._piece if size < 0 else min(size, self._piece))

    def seek(self, *_):
        raise AssertionError("seek was called on a pipe")


def read_all(table, n_rows):
    chunks = list(table.chunks(n_rows))
    assert all(0 < len(chunk.rows) <= n_rows for chunk in chunks)
    assert all(chunk.rows.flags.c_contiguous and chunk.rows.dtype == np.float64 for chunk in chunks)
    times = None if chunks and chunks[0].times is None else [time for chunk in chunks for time in chunk.times]
    return np.concatenate([np.empty((0, len(table.columns.features))), *[chunk.rows for chunk in chunks]]), times


@pytest.mark.parametrize("kind", WITH_TIMES)
@settings(max_examples=30)
@given(X=MATRICES, data=st.data())
def test_tables_with_times_are_read_as_written_from_files_and_pipes(kind, X, data):
    times = data.draw(st.lists(TIMES, min_size=len(X), max_size=len(X)))
    n_rows, piece = data.draw(st.integers(1, 25)), data.draw(st.integers(1, 200))
    content = WITH_TIMES[kind](X, times)
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), kind, content)
        table = open_table(str(path), time=time_name(kind))
        for _ in range(2):
            rows, read = read_all(table, n_rows)
            np.testing.assert_array_equal(rows, X)
            assert read == times
    if kind in NEED_A_FILE:
        with pytest.raises(TableError, match="is read from its end; write it to a file"):
            open_table("<pipe>", stream=Pipe(content, piece))
    else:
        rows, read = read_all(open_table("<pipe>", stream=Pipe(content, piece), time=time_name(kind)), n_rows)
        np.testing.assert_array_equal(rows, X)
        assert read == times


@pytest.mark.parametrize("kind", NUMBERS)
@settings(max_examples=30)
@given(X=MATRICES, n_rows=st.integers(1, 25), piece=st.integers(1, 200))
def test_tables_of_numbers_are_read_as_written_from_files_and_pipes(kind, X, n_rows, piece):
    content = NUMBERS[kind](X)
    with tempfile.TemporaryDirectory() as folder:
        table = open_table(str(written(Path(folder), kind, content)))
        np.testing.assert_array_equal(read_all(table, n_rows)[0], X)
    np.testing.assert_array_equal(read_all(open_table("<pipe>", stream=Pipe(content, piece)), n_rows)[0], X)


@pytest.mark.parametrize("kind", [*WITH_TIMES, *NUMBERS])
@settings(max_examples=15)
@given(data=st.data())
def test_reading_resumes_at_every_offset(kind, data):
    X = data.draw(MATRICES)
    times = [f"{i}:00" for i in range(len(X))] if kind in WITH_TIMES else None
    n_rows, other, regrouped = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)))
    content = WITH_TIMES[kind](X, times) if kind in WITH_TIMES else NUMBERS[kind](X)
    with tempfile.TemporaryDirectory() as folder:
        path = str(written(Path(folder), kind, content))
        option = {"time": time_name(kind)} if times else {}
        done = 0
        for chunk in regroup(open_table(path, **option).chunks(n_rows), regrouped):
            done += len(chunk.rows)
            later = open_table(path, **option)
            later.seek(json.loads(json.dumps(chunk.offset)))
            rows, read = read_all(later, other)
            np.testing.assert_array_equal(rows, X[done:])
            assert times is None or not len(rows) or read == times[done:]
        assert done == len(X)


@given(X=MATRICES, n_rows=st.integers(1, 9), cut=st.integers(1, 9))
def test_regroup_keeps_times_and_labels_beside_their_rows(X, n_rows, cut):
    times = [str(i) for i in range(len(X))]
    content = WITH_TIMES["csv"](np.column_stack([X, np.arange(len(X))]), times)
    table = open_table("<pipe>", stream=io.BytesIO(content), time="t", labels=f"c{X.shape[1]}")
    chunks = list(regroup(table.chunks(cut), n_rows))
    assert [len(chunk.rows) for chunk in chunks[:-1]] == [n_rows] * (len(chunks) - 1)
    np.testing.assert_array_equal(np.concatenate([chunk.rows for chunk in chunks]), X)
    assert [time for chunk in chunks for time in chunk.times] == times
    np.testing.assert_array_equal(np.concatenate([chunk.labels for chunk in chunks]), np.arange(len(X)))


def test_a_time_is_a_feature_only_if_asked_for():
    text = b"t,x\n1.50,2\n2.50,3\n"
    for options, rows in (({}, [[2], [3]]), ({"columns": ["t", "x"]}, [[1.5, 2], [2.5, 3]])):
        (chunk,) = open_table("<text>", stream=io.BytesIO(text), time="t", **options).chunks(10)
        assert chunk.rows.tolist() == rows
        assert chunk.times == ["1.50", "2.50"]


def test_times_of_json_stay_as_they_are_spelled():
    spelled = ['"t": 1.50, ', '"t": 17000000000000000000001, ', "", '"t": "noon", ', '"t": true, ']
    text = "".join(f'{{{time}"x": {i}}}\n' for i, time in enumerate(spelled, 1)).encode()
    (chunk,) = open_table("<text>", stream=io.BytesIO(text), time="t").chunks(10)
    assert chunk.times == ["1.50", "17000000000000000000001", None, "noon", "true"]
    assert chunk.rows.ravel().tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([0, None], pa.timestamp("ms")), ["1970-01-01T00:00:00.000", None]),
        (pa.array([1, 2], pa.timestamp("ns", "Europe/Berlin")), [f"1970-01-01T00:00:00.00000000{i}Z" for i in (1, 2)]),
        (pa.array([1, None], pa.int32()).cast(pa.date32()), ["1970-01-02", None]),
        (pa.array([1, None], pa.time64("ns")), ["00:00:00.000000001", None]),
        (pa.array(["a", None]).dictionary_encode(), ["a", None]),
        (pa.array([7, None]), [7, None]),
        (pa.array([0.5, 1.5]), [0.5, 1.5]),
        (pa.array([90, None], pa.duration("s")), ["0:01:30", None]),
    ],
)
def test_times_of_arrow_and_parquet_are_iso_text_or_numbers(tmp_path, column, expected):
    table = pa.table({"t": column, "x": [1.0, 2.0]})
    parquet.write_table(table, tmp_path / "x.parquet")
    with ipc.new_file(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    for name in ("x.parquet", "x.arrow"):
        (chunk,) = open_table(str(tmp_path / name), time="t").chunks(10)
        assert chunk.times == expected
        assert chunk.rows.tolist() == [[1], [2]]


def test_times_of_npz_are_an_array_or_a_column(tmp_path):
    path = tmp_path / "x.npz"
    when = np.array(["2024-05-01T10:00", "2024-05-01T10:01", "NaT"], dtype="datetime64[s]")
    np.savez(path, rows=np.arange(6.0).reshape(3, 2), when=when, label=[0, 1, 0])
    (chunk,) = open_table(str(path), time="when", labels="label").chunks(10)
    assert chunk.times == ["2024-05-01T10:00:00", "2024-05-01T10:01:00", None]
    assert chunk.labels.tolist() == [0, 1, 0]
    (chunk,) = open_table(str(path), time="0").chunks(10)
    assert chunk.times == [0, 2, 4]
    assert chunk.rows.tolist() == [[1], [3], [5]]
    with pytest.raises(TableError, match=r"x.npz\[rows\]: .* holds|no column|one value for each"):
        open_table(str(path), array="rows", time="rows")


def test_arrow_columns_may_have_any_number_type_and_the_same_name(tmp_path):
    columns = [pa.array([1, 2**60]), pa.array([True, False]), pa.array([0.5, 1.5]).dictionary_encode()]
    table = pa.table([*columns, pa.array([1, 2]).cast(pa.decimal128(21, 2))], names=["a", "a", "b", "c.d"])
    with ipc.new_file(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    parquet.write_table(table, tmp_path / "x.parquet")
    for name in ("x.arrow", "x.parquet"):
        for options, expected in (({}, [0, 1, 2, 3]), ({"columns": ["c.d", "1", "b"]}, [3, 1, 2])):
            rows, _ = read_all(open_table(str(tmp_path / name), **options), 10)
            np.testing.assert_array_equal(rows, np.array([[1, 1, 0.5, 1], [2**60, 0, 1.5, 2]])[:, expected])


class PipeWriter(threading.Thread):
    """Write to a pipe piece by piece, each after the reader has taken the one before."""

    def __init__(self, pieces):
        super().__init__(daemon=True)
        self._pieces, self.taken = pieces, threading.Semaphore(0)
        reading, self._writing = os.pipe()
        self.stream = os.fdopen(reading, "rb")
        self.start()

    def run(self):
        for piece in self._pieces:
            os.write(self._writing, piece)
            if not self.taken.acquire(timeout=60):
                break
        os.close(self._writing)


def test_damaged_offsets_of_arrow_are_refused_before_they_are_followed(tmp_path):
    data = arrow_file(np.ones((2, 1)), ["aa", "bb"])
    offsets = np.array([0, 2, 4], np.int32).tobytes()
    assert data.count(offsets) == 1
    for kind, damaged in (("file", data), ("stream", arrow_stream(np.ones((2, 1)), ["aa", "bb"]))):
        path = written(tmp_path, kind, damaged.replace(offsets, np.array([0, 2**30, 2**31 - 1], np.int32).tobytes()))
        with pytest.raises(TableError, match=r"cannot be read .*; check that the file is complete"):
            list(open_table(str(path), time="t").chunks(10))


def gzip_pieces(pieces):
    squeeze = zlib.compressobj(wbits=31)
    pieces = [squeeze.compress(piece) + squeeze.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [*pieces[:-1], pieces[-1] + squeeze.flush()]


def arrow_pieces(n):
    sink = io.BytesIO()
    table, ends = arrow_table(np.arange(float(n)).reshape(n, 1), [""] * n).drop(["t"]), [0]
    with ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=1):
            writer.write_batch(batch)
            ends.append(sink.tell())
    data = sink.getvalue()
    return [data[a:b] for a, b in zip(ends, [*ends[1:-1], None], strict=False)]


TEXT = [b"x\n0.0\n", *(f"{i}.0\n".encode() for i in range(1, 4))]
NPY = NUMBERS["npy"](np.arange(4.0).reshape(4, 1))


@pytest.mark.parametrize(
    "pieces",
    [
        TEXT,
        gzip_pieces(TEXT),
        [f'{{"x": {i}.0}}\n'.encode() for i in range(4)],
        [f"[{i}]\n".encode() for i in range(4)],
        [NPY[:-24], NPY[-24:-16], NPY[-16:-8], NPY[-8:]],
        arrow_pieces(4),
    ],
    ids=["csv", "csv_gz", "jsonl", "jsonl_arrays", "npy", "arrow"],
)
def test_a_pipe_holds_no_row_back(pieces):
    writer = PipeWriter(pieces)
    with writer.stream:
        got = []
        for chunk in open_table("<pipe>", stream=writer.stream).chunks(1000):
            got.append(chunk.rows.ravel().tolist())
            writer.taken.release()
        writer.join(timeout=60)
    assert got == [[0], [1], [2], [3]]


def test_a_long_stream_takes_little_memory():
    class Endless(io.RawIOBase):
        left = 20_000_000

        def read1(self, size):
            self.left -= size
            return (b"1.25,2.5,3.75,4.5\n" * (size // 18 + 1))[: size - size % 18] if self.left > 0 else b""

    table = open_table("<pipe>", stream=Endless())
    tracemalloc.start()
    try:
        n = sum(len(chunk.rows) for chunk in table.chunks(4096))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n > 1_000_000
    assert peak < 12_000_000, "a block is a megabyte, its rows and their offsets a few"


def test_a_row_group_of_parquet_is_never_held_whole(tmp_path):
    X = np.random.default_rng(0).normal(size=(1_000_000, 2))
    parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "x.parquet", row_group_size=len(X))
    before, held = pa.total_allocated_bytes(), []
    for chunk in open_table(str(tmp_path / "x.parquet")).chunks(10_000):
        np.testing.assert_array_equal(chunk.rows, X[chunk.position - len(chunk.rows) : chunk.position])
        held.append(pa.total_allocated_bytes() - before)
    assert max(held) < X.nbytes / 2


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "arrow_stream"])
def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch, kind):
    path = written(tmp_path, kind, WITH_TIMES[kind](np.ones((3, 2)), ["a", "b", "c"]))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TableError, match=r'needs pyarrow; pip install "streamkpca\[cli\]"'):
        list(open_table(str(path), time="t").chunks(10))
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    assert len(read_all(open_table(str(tmp_path / "x.npy")), 10)[0]) == 3
