"""Tables of results, written as rows come: to a file or to standard output."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import IO, Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import compute, csv

from streamkpca._core.files import SHARED, replace_file
from streamkpca.tables.errors import TableError

WRITTEN: Final = ("csv", "jsonl")


class Writer:
    """Write rows of results: to a file that is whole or as it was, or so that rows can be read as they come.

    A path "-" is standard output. The format is one of `WRITTEN`, by default the path's ending, and CSV on standard
    output. A `live` writer writes into the file itself, as one does that goes on after the first `n_kept` bytes of an
    older file, if it is as long.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> with Writer(str(path)) as writer:
    ...     writer.write({"row": np.arange(2), "novelty": np.array([0.5, 0.25])})
    >>> print(path.read_text())
    "row","novelty"
    0,0.5
    1,0.25
    """

    def __init__(self, path: str, *, format: str | None = None, live: bool = False, n_kept: int = 0) -> None:
        self.path, self.is_output = path, path == "-"
        self.format = format or ("csv" if self.is_output else os.path.splitext(path)[1].lower().removeprefix("."))
        if self.format not in WRITTEN:
            expected = f"expected results as {', '.join(WRITTEN)} but got {self.format!r}"
            raise TableError(f"{path}: {expected}; end the name in one of these")
        self._n_kept = n_kept if os.path.isfile(path) and os.path.getsize(path) >= n_kept else 0
        self._is_live, self._has_header, self._stack = live, self._n_kept > 0, ExitStack()

    def __enter__(self) -> Self:
        # Before anything is learned, so that a folder without write access does not cost an hour first.
        if self.is_output:
            if sys.stdout is None:
                raise TableError("-: standard output is closed; name a file")
            self._file: IO[bytes] = sys.stdout.buffer
        elif self._n_kept:
            self._file = self._stack.enter_context(open(self.path, "r+b"))
            self._file.truncate(self._n_kept)
            self._file.seek(self._n_kept)
        else:
            target = open(self.path, "wb") if self._is_live else replace_file(self.path, mode=SHARED)
            self._file = self._stack.enter_context(target)
        return self

    def write(self, columns: Mapping[str, npt.ArrayLike]) -> None:
        """Append rows: names and arrays (n,) of numbers, truth values, dates or text; the same names in every call."""
        arrays: dict[str, Any] = {name: np.asarray(column) for name, column in columns.items()}
        for name, array in arrays.items():
            if array.dtype.kind == "M":
                arrays[name] = _spell(array)
            elif array.dtype.kind == "f" and self.format == "jsonl":
                # JSON lacks NaN and infinity.
                arrays[name] = pyarrow.array(array, mask=~np.isfinite(array))
        table = pyarrow.table(arrays)
        if self.format == "jsonl":
            self._file.writelines(json.dumps(row).encode() + b"\n" for row in table.to_pylist())
        else:
            csv.write_csv(table, self._file, csv.WriteOptions(include_header=not self._has_header))
            self._has_header = True
        self._file.flush()

    @property
    def n_bytes(self) -> int:
        """The length of the file so far."""
        return self._file.tell()

    def __exit__(self, *error: Any) -> None:
        """Complete the file, or leave the older one if there was an error."""
        self._stack.__exit__(*error)


def _spell(times: npt.NDArray[Any]) -> Any:
    """Write times as ISO 8601, without the zeros of a fraction of a second."""
    return compute.utf8_rtrim(compute.utf8_rtrim(np.datetime_as_string(times, unit="ns").astype(object), "0"), ".")
