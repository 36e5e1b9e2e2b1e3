"""Tables of results, written as rows come: to a file or to standard output."""

import io
import json
import os
import sys
import zlib
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from itertools import takewhile
from typing import IO, Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import compute, csv

from streamkpca._core.files import SHARED, replace_file
from streamkpca.tables.errors import TableError, short

WRITTEN: Final = ("csv", "jsonl")
# Bytes at the beginning and before the end that tell a file from another one.
_SIGNED_BYTES = 1024
# Bytes in which the first line ends, which has a name for each column.
_HEADER_BYTES = 1 << 16


class Writer:
    """Write rows of results: to a file that is whole or as it was, or so that rows can be read as they come.

    A path "-" is standard output. The format is one of `WRITTEN`, by default the path's ending, and CSV on standard
    output. Only a file that holds such rows is replaced. A `live` writer takes nothing away: it appends to the file,
    from what `mark` told of an earlier writer on (`start`), or else from the beginning on. Rows that are there already
    are not written again; notes say what the user should know.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.csv")
    >>> with Writer(str(path)) as writer:
    ...     writer.write({"row": np.arange(2), "novelty": np.array([0.5, 0.25])})
    >>> print(path.read_text())
    "row","novelty"
    0,0.5
    1,0.25
    """

    def __init__(
        self, path: str, *, format: str | None = None, live: bool = False, start: Mapping[str, Any] | None = None
    ) -> None:
        self.path, self.is_output = path, path == "-"
        self.format = format or ("csv" if self.is_output else os.path.splitext(path)[1].lower().removeprefix("."))
        if self.format not in WRITTEN:
            expected = f"expected results as {', '.join(WRITTEN)} but got {self.format!r}"
            raise TableError(f"{path}: {expected}; end the name in one of these")
        self.notes: list[str] = []
        # A device or a FIFO cannot be read back.
        self._is_live = live and not self.is_output and (os.path.isfile(path) or not os.path.exists(path))
        self._start, self._has_header, self._stack = start, False, ExitStack()
        self._growing: _GrowingFile | None = None

    def __enter__(self) -> Self:
        # Before anything is learned, so that a folder without write access does not cost an hour first.
        if self.is_output:
            if sys.stdout is None:
                raise TableError("-: standard output is closed; name a file")
            self._file: IO[bytes] = sys.stdout.buffer
        elif self._is_live:
            self._growing = _GrowingFile(self.path, self._start, self.notes)
            self._stack.callback(self._growing.close)
        else:
            self._file = self._stack.enter_context(replace_file(self.path, mode=SHARED))
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
        header, rows = self._encode(pyarrow.table(arrays))
        if self._growing is not None:
            self._growing.write(header, rows, list(arrays))
            return
        if not self._has_header:
            if not self.is_output and os.path.isfile(self.path):
                _check_kind(self.path, list(arrays))
            self._file.write(header)
            self._has_header = True
        self._file.write(rows)
        self._file.flush()

    def mark(self) -> dict[str, Any] | None:
        """Return the `start` of a later writer that goes on after these rows; None if the file is replaced."""
        return self._growing.mark() if self._growing is not None else None

    def __exit__(self, *error: Any) -> None:
        """Complete the file, or leave the older one if there was an error."""
        self._stack.__exit__(*error)

    def _encode(self, table: pyarrow.Table) -> tuple[bytes, bytes]:
        """Return the line of names, which JSON lines have not, and the rows."""
        if self.format == "jsonl":
            return b"", b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist())
        header, rows = io.BytesIO(), io.BytesIO()
        csv.write_csv(table.slice(0, 0), header)
        csv.write_csv(table, rows, csv.WriteOptions(include_header=False))
        return header.getvalue(), rows.getvalue()


class _GrowingFile:
    """A file that only grows, whatever others do to it; after it was emptied or renamed, it begins anew.

    `_at` is the byte behind what is known to be there. What follows it is compared with what is to be written, as a
    process may have been killed after it had written rows: the same bytes are kept, and after other ones rows go to the
    end of the file.
    """

    _is_checked: bool

    def __init__(self, path: str, start: Mapping[str, Any] | None, notes: list[str]) -> None:
        self.path, self._notes = path, notes
        self._open()
        # Others may have written the start.
        with suppress(LookupError, TypeError):
            path_then, at, crc = ((start or {})[key] for key in ("path", "byte", "crc"))
            if path_then == os.path.realpath(path) and 0 < at <= self._size and crc == self._sign(at):
                self._at = at

    def write(self, header: bytes, rows: bytes, names: list[str]) -> None:
        """Write rows where they belong, after the header in a new file; refuse a file with other columns."""
        self._follow_name()
        if not self._size:
            rows = header + rows
        elif not self._is_checked:
            _check_kind(self.path, names, header)
            self._at = max(self._at, len(header))
        self._is_checked = True
        found = self._read(self._at, len(rows))
        n = len(found)
        if not rows.startswith(found):
            lines = zip(found.split(b"\n"), rows.split(b"\n"), strict=False)
            n = sum(len(one) + 1 for one, _ in takewhile(lambda pair: pair[0] == pair[1], lines))
            self._note(f"holds other rows from byte {self._at + n:,} on, which stay; results go on after them")
            self._at = self._size - n
        is_whole = rows[:n].endswith(b"\n") or not n
        if rows[n:] and is_whole and self._size and self._read(self._size - 1, 1) != b"\n":
            self._append(b"\n")
            self._at += 1
        self._append(rows[n:])
        self._at += len(rows)

    def mark(self) -> dict[str, Any]:
        """Return what tells this file, as it is up to here, from another one."""
        return {"path": os.path.realpath(self.path), "byte": self._at, "crc": self._sign(self._at)}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _open(self) -> None:
        self._file = open(self.path, "a+b", buffering=0)
        self._begin()

    def _begin(self) -> None:
        """Know nothing of what is there."""
        self._at = 0
        self._is_checked = False

    @property
    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def _read(self, at: int, n: int) -> bytes:
        self._file.seek(at)
        return self._file.read(n)

    def _append(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]

    def _sign(self, at: int) -> int:
        """Return a checksum of the first bytes, and of the last before byte `at`."""
        n = min(at, _SIGNED_BYTES)
        return zlib.crc32(self._read(at - n, n), zlib.crc32(self._read(0, n)))

    def _follow_name(self) -> None:
        """Go on in a new file if the name has passed to another one, or this one was emptied."""
        try:
            is_named = os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            is_named = False
        if not is_named:
            self._note("was renamed or removed; results go on in a new file of this name")
            self._file.close()
            self._open()
        elif self._size < self._at:
            self._note("was emptied or cut; results go on at its end")
            self._begin()

    def _note(self, text: str) -> None:
        self._notes.append(f"{self.path}: {text}")


def _check_kind(path: str, names: list[str], header: bytes = b"") -> None:
    """Refuse a file that holds something else than rows of most of these columns, or does not begin with a header."""
    with open(path, "rb") as file:
        first = file.readline(_HEADER_BYTES)
        file.seek(0)
        is_same = file.read(len(header)) == header
    n_known = sum(json.dumps(name).encode() in first for name in names)
    if first and not (is_same and (header or 2 * n_known > len(names))):
        found = short(first.decode("utf-8", "replace").strip())
        raise TableError(
            f"{path}: expected no file, or results with the columns {', '.join(names)}, but it begins with {found!r}; "
            "name another file"
        )


def _spell(times: npt.NDArray[Any]) -> Any:
    """Write times as ISO 8601, without the zeros of a fraction of a second; NaT as nothing."""
    found = np.datetime_as_string(times, unit="ns").astype(object)
    texts = pyarrow.array(found, pyarrow.string(), mask=np.isnat(times))
    return compute.utf8_rtrim(compute.utf8_rtrim(texts, "0"), ".")
