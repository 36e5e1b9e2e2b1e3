"""Tables of results, written as rows come: to a file or to standard output."""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import ExitStack, nullcontext, suppress
from typing import IO, Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import compute, csv, parquet

from streamkpca._core.files import SHARED, replace_file
from streamkpca.tables.errors import TableError

WRITTEN: Final = ("csv", "jsonl", "parquet")
# These can be read before they are complete, so they may grow for ever, and be continued.
_LIVE = ("csv", "jsonl")


class Writer:
    """Write rows of results: to a file that is whole or as it was, or so that rows can be read as they come.

    With `n_kept`, so many bytes of the file, of results before these, stay, if it has them.

    A path "-" is standard output. The format is one of `WRITTEN`, by default the path's ending, and CSV on standard
    output. A `live` writer writes into the file itself, and flushes every call.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> with Writer(str(path)) as writer:
    ...     writer.write({"row": np.arange(2), "novelty": np.array([0.5, 0.25])})
    >>> print(path.read_text())
    "row","novelty"
    0,0.5
    1,0.25
    """

    def __init__(self, path: str, *, format: str | None = None, live: bool = False, n_kept: int | None = None) -> None:
        self.path, self.is_output = path, path == "-"
        self.format = format or ("csv" if self.is_output else os.path.splitext(path)[1].lower().removeprefix("."))
        self._is_live = live or self.is_output
        known = _LIVE if self._is_live else WRITTEN
        if self.format not in known:
            what = "results that are read as they come" if self._is_live else "results"
            expected = f"expected {what} as {', '.join(known)} but got {self.format!r}"
            raise TableError(f"{path}: {expected}; end the name in one of these")
        has_older = n_kept is not None and os.path.isfile(path) and os.path.getsize(path) >= n_kept
        self._n_kept = n_kept if n_kept is not None and has_older else 0
        if self._n_kept and self.format not in _LIVE:
            what = f"holds results of the rows before, and {self.format} cannot be continued"
            raise TableError(f"{path}: {what}; name another file, or one that ends in {', '.join(_LIVE)}")
        self._sink: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        # Before anything is learned, so that a folder without write access does not cost an hour first.
        if self.is_output:
            if sys.stdout is None:
                raise TableError("-: standard output is closed; name a file")
            self._file: IO[bytes] = sys.stdout.buffer
        elif self._is_live:
            self._file = self._stack.enter_context(open(self.path, "r+b" if self._n_kept else "wb"))
        else:
            self._file = self._stack.enter_context(replace_file(self.path, mode=SHARED))
            if self._n_kept:
                with open(self.path, "rb") as older:
                    shutil.copyfileobj(older, self._file)
        if self._n_kept:
            self._file.seek(self._n_kept)
            self._file.truncate()
        self._stack.push(self._finish)
        return self

    def write(self, columns: Mapping[str, npt.ArrayLike]) -> None:
        """Append rows: names and arrays (n,) of numbers, truth values, dates or text; the same names in every call."""
        arrays: dict[str, Any] = {name: np.asarray(column) for name, column in columns.items()}
        kinds = {name: array.dtype.kind for name, array in arrays.items()}
        if self.format in _LIVE:
            arrays |= {name: _spell(arrays[name]) for name, kind in kinds.items() if kind == "M"}
        if self.format == "jsonl":
            # JSON lacks NaN and infinity.
            reals = {name: arrays[name] for name, kind in kinds.items() if kind == "f"}
            arrays |= {name: pyarrow.array(array, mask=~np.isfinite(array)) for name, array in reals.items()}
        table = pyarrow.table(arrays)
        if self.format == "jsonl":
            self._file.writelines(json.dumps(row).encode() + b"\n" for row in table.to_pylist())
        else:
            header = csv.WriteOptions(include_header=not self._n_kept)
            if self._sink is None and self.format == "csv":
                self._sink = csv.CSVWriter(self._file, table.schema, write_options=header)
            self._sink = self._sink or parquet.ParquetWriter(self._file, table.schema)
            self._sink.write_table(table)
        if self._is_live:
            self._file.flush()

    @property
    def n_bytes(self) -> int:
        """The length of the file so far."""
        return self._file.tell()

    def __exit__(self, *error: Any) -> None:
        """Complete the file, or leave the older one if there was an error."""
        self._stack.__exit__(*error)

    def _finish(self, kind: object, *rest: object) -> None:
        # The end of a file that is thrown away may fail to be written, but the libraries want to write it.
        with nullcontext() if kind is None else suppress(Exception):
            if self._sink is not None:
                self._sink.close()


def _spell(times: npt.NDArray[Any]) -> Any:
    """Write times as ISO 8601, without the zeros of a fraction of a second."""
    return compute.utf8_rtrim(compute.utf8_rtrim(np.datetime_as_string(times, unit="ns").astype(object), "0"), ".")
