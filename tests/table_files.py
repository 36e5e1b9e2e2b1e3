"""Tables written in every format; what is written is the oracle of the tests that read them."""

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import ipc, parquet

Rows = np.ndarray


def names_of(X: Rows) -> list[str]:
    return [f"c{j}" for j in range(X.shape[1])]


def csv_text(X: Rows, times: Sequence[str], *, delimiter: str = ",", newline: str = "\n") -> bytes:
    lines = [["t", *names_of(X)]]
    lines += [[time, *map(repr, row)] for time, row in zip(times, X.tolist(), strict=True)]
    return "".join(delimiter.join(line) + newline for line in lines).encode()


def json_objects(X: Rows, times: Sequence[str]) -> bytes:
    rows = ({"t": time} | dict(zip(names_of(X), row, strict=True)) for time, row in zip(times, X.tolist(), strict=True))
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def json_arrays(X: Rows, times: Sequence[str]) -> bytes:
    return "".join(json.dumps([time, *row]) + "\n" for time, row in zip(times, X.tolist(), strict=True)).encode()


def arrow_table(X: Rows, times: Sequence[str]) -> pa.Table:
    return pa.table({"t": pa.array(list(times), pa.string())} | dict(zip(names_of(X), X.T, strict=True)))


def _arrow(X: Rows, times: Sequence[str], new: Callable) -> bytes:
    sink, table = io.BytesIO(), arrow_table(X, times)
    with new(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return sink.getvalue()


def arrow_stream(X: Rows, times: Sequence[str]) -> bytes:
    return _arrow(X, times, ipc.new_stream)


def arrow_file(X: Rows, times: Sequence[str]) -> bytes:
    return _arrow(X, times, ipc.new_file)


def parquet_file(X: Rows, times: Sequence[str]) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(arrow_table(X, times), sink, row_group_size=4)
    return sink.getvalue()


def npz_file(X: Rows, times: Sequence[str], *, order: str = "C") -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, rows=np.asarray(X, order=order), t=np.array(times, dtype=str))
    return sink.getvalue()


def compressed(data: bytes, codec: str) -> bytes:
    sink = io.BytesIO()
    with pa.CompressedOutputStream(pa.PythonFile(sink, mode="w"), codec) as stream:
        stream.write(data)
        stream.flush()
        # Closing the outer stream closes the inner one too.
        sink.close = lambda: None
    return sink.getvalue()


# Formats with a text column "t", or at position 0, for the time; formats of numbers alone are in `NUMBERS`.
WITH_TIMES: dict[str, Callable[[Rows, Sequence[str]], bytes]] = {
    "csv": csv_text,
    "tsv": lambda X, times: csv_text(X, times, delimiter="\t"),
    "csv_semicolons": lambda X, times: csv_text(X, times, delimiter=";"),
    "csv_crlf": lambda X, times: csv_text(X, times, newline="\r\n"),
    "csv_bom": lambda X, times: b"\xef\xbb\xbf" + csv_text(X, times),
    "csv_gz": lambda X, times: gzip.compress(csv_text(X, times)),
    "csv_bz2": lambda X, times: bz2.compress(csv_text(X, times)),
    "csv_xz": lambda X, times: lzma.compress(csv_text(X, times)),
    "csv_zstd": lambda X, times: compressed(csv_text(X, times), "zstd"),
    "csv_lz4": lambda X, times: compressed(csv_text(X, times), "lz4"),
    "jsonl": json_objects,
    "jsonl_gz": lambda X, times: gzip.compress(json_objects(X, times)),
    "jsonl_arrays": json_arrays,
    "arrow_stream": arrow_stream,
    "arrow_file": arrow_file,
    "arrow_gz": lambda X, times: gzip.compress(arrow_file(X, times)),
    "parquet": parquet_file,
    "npz": npz_file,
    "npz_columns": lambda X, times: npz_file(X, times, order="F"),
}
# These are read from their end.
NEED_A_FILE = {"parquet", "npz", "npz_columns"}


def npy_file(X: Rows, *, order: str = "C") -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.asarray(X, order=order))
    return sink.getvalue()


NUMBERS: dict[str, Callable[[Rows], bytes]] = {
    "npy": npy_file,
    "npy_columns": lambda X: npy_file(X, order="F"),
    "npy_gz": lambda X: gzip.compress(npy_file(X)),
    "csv_bare": lambda X: "".join(",".join(map(repr, row)) + "\n" for row in X.tolist()).encode(),
    "jsonl_bare": lambda X: "".join(json.dumps(row) + "\n" for row in X.tolist()).encode(),
}


def time_name(kind: str) -> str:
    return "0" if kind == "jsonl_arrays" else "t"


def written(folder: Path, kind: str, data: bytes) -> Path:
    path = folder / f"table.{kind}"
    path.write_bytes(data)
    return path
