"""Arrays that numpy wrote: npy files mapped or read as they come, arrays of npz files decompressed as they are read."""

import ast
import io
import math
import struct
import warnings
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca.cli.tables.columns import (
    Choice,
    TableError,
    check_width,
    choose_columns,
    list_names,
    reading_errors,
    reason_of,
)
from streamkpca.cli.tables.reader import Array, BinaryTable, Block, time_values
from streamkpca.cli.tables.signatures import contents_of_zip
from streamkpca.cli.tables.source import LONGEST_LINE, READ_BYTES, Source


def _parse_version_3(file: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Parse a header as numpy does, which offers this for versions 1 and 2 only.

    Version 3 differs in the letters of field names, and an array with fields is refused anyway; and its headers are
    literals of Python 3, without the ``3L`` of Python 2.
    """
    ast.literal_eval(file.getvalue()[4:].decode())
    return np.lib.format.read_array_header_2_0(file)


# numpy itself reads no longer ones.
_LONGEST_HEADER = 10_000
_PARSERS: dict[tuple[int, ...], tuple[str, Callable[[io.BytesIO], Any]]] = {
    (1, 0): ("<H", np.lib.format.read_array_header_1_0),
    (2, 0): ("<I", np.lib.format.read_array_header_2_0),
    (3, 0): ("<I", _parse_version_3),
}


class _Header(NamedTuple):
    """What the beginning of an array in a file says, and how many bytes it takes."""

    shape: tuple[int, ...]
    column_major: bool
    dtype: np.dtype[Any]
    size: int

    @property
    def n_bytes(self) -> int:
        """Size of the array that follows, in an integer that cannot overflow."""
        return math.prod(self.shape) * self.dtype.itemsize

    def check_length(self, n_bytes: int) -> None:
        """Refuse an array that is longer than its file or member."""
        if self.size + self.n_bytes > n_bytes:
            raise ValueError(
                f"its header claims {_counted(self.n_bytes)} of numbers, but {_counted(n_bytes - self.size)} follow"
            )


class ArrayTable(BinaryTable):
    """Rows of one two-dimensional array of real numbers; `name` is the array in errors."""

    def __init__(
        self, source: Source, name: str, header: _Header, *, choice: Choice, skips: bool, on_missing: str
    ) -> None:
        self.source, self._source, self.skips, self.notes = source.name, source, skips, []
        self.on_missing = on_missing
        self.rereadable = source.rereadable
        shape, dtype = header.shape, header.dtype
        if dtype.kind not in "fiub":
            raise TableError(f"{name}: holds {_written(dtype)} but real numbers are required; save it as float64")
        if len(shape) != 2 or not shape[1]:
            raise TableError(
                f"{name}: expected an array of rows and columns but its shape is {_written(shape)}; "
                "save it with two dimensions"
            )
        check_width(name, shape[1])
        if shape[1] * dtype.itemsize > LONGEST_LINE:
            raise TableError(
                f"{name}: its rows have {_counted(shape[1] * dtype.itemsize)} each, but at most "
                f"{_counted(LONGEST_LINE)} are read; check that rows and columns are not exchanged"
            )
        self.total = shape[0]
        self.columns = choose_columns(source.name, [str(j) for j in range(shape[1])], choice, named=False)

    @abstractmethod
    def _arrays(self, n_rows: int, first: int) -> Iterator[npt.NDArray[Any]]:
        """Yield rows from row `first` on."""

    def _beside(self) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
        """Return labels and times that are not columns of the array."""
        return None, None

    def _blocks(self, n_rows: int) -> Iterator[Block]:
        start, time = self._first_row, self.columns.time
        with reading_errors(self.source):
            labels, times = self._beside()
            wanted = list(self.columns.wanted if labels is None else self.columns.features)
            for array in self._arrays(self._most_rows(n_rows), start):
                part = slice(start, start + len(array))
                # Numbers beyond float64 become infinite, and are refused below with their place.
                with np.errstate(over="ignore"):
                    values: Array = np.asarray(array[:, wanted], dtype=np.float64)
                if labels is not None:
                    values = np.column_stack([values, labels[part]])
                when = array[:, time] if time is not None else None if times is None else times[part]
                yield self._make_block(values, start, None if when is None else time_values(when))
                start = part.stop


class NpyTable(ArrayTable):
    """A two-dimensional array in an npy file or from a pipe, read as it comes; mapped into memory if column-major."""

    _format = "npy"

    def __init__(self, source: Source, *, choice: Choice, skips: bool = False, on_missing: str = "raise") -> None:
        with source.opened() as stream:
            file = io.BufferedReader(stream)
            self._header = _read_header(file)
            # Kept, because a pipe cannot give its header again.
            self._file = None if source.rereadable else file
            if source.size is not None:
                self._header.check_length(source.size)
        super().__init__(source, source.name, self._header, choice=choice, skips=skips, on_missing=on_missing)
        # Row-major arrays are read, not mapped: a mapped file that is cut short meanwhile kills the process.
        self._mapped = source.on_disk and self._header.column_major

    def _arrays(self, n_rows: int, first: int) -> Iterator[npt.NDArray[Any]]:
        if self._mapped:
            array = np.memmap(self._source.path, self._header.dtype, "r", self._header.size, self._header.shape, "F")
            yield from (array[start : start + n_rows] for start in range(first, len(array), n_rows))
            return
        with self._source.opened() as stream:
            file = self._file
            if file is None:
                file = io.BufferedReader(stream)
                _read_header(file)
            yield from _array_blocks(file, self._header, n_rows, first, piped=self._file is not None)


class NpzTable(ArrayTable):
    """One two-dimensional array of an npz file, decompressed as it is read.

    The source must be a file, because it is read from its end. `array` is needed unless exactly one array has two
    dimensions. The choice's labels and time may also name another array that has one value a row.
    """

    _format = "npz"

    def __init__(
        self,
        source: Source,
        *,
        array: str | None,
        choice: Choice,
        skips: bool = False,
        on_missing: str = "raise",
    ) -> None:
        if not source.on_disk:
            raise TableError(f"{source.name}: an npz file is read from its end; write it to a file and name that")
        with reading_errors(source.name), zipfile.ZipFile(source.name) as archive:
            names = archive.namelist()
            found = None if array is not None else contents_of_zip(names)
            headers = {} if found else _npz_headers(archive, array)
        if found is not None:
            raise TableError(f"{source.name}: is {found.what}; {found.remedy}")
        tables = [name for name, header in headers.items() if len(header.shape) == 2]
        if array is None and len(tables) == 1:
            array = tables[0]
        if array is None or array not in headers:
            what = "choose one of its arrays" if array is None else f"no array {array!r} in it; choose one"
            raise TableError(f"{source.name}: {what} with --array: {list_names(list(headers)) or 'it has none'}")
        self._array = array
        # Arrays beside the table are chosen like columns but have no positions.
        beside = {name for name in (choice.labels, choice.time) if name in headers and name != array}
        self._labels = choice.labels if choice.labels in beside else None
        self._time = choice.time if choice.time in beside else None
        apart = replace(
            choice, labels=None if self._labels else choice.labels, time=None if self._time else choice.time
        )
        called = f"{source.name}[{array}]"
        super().__init__(source, called, headers[array], choice=apart, skips=skips, on_missing=on_missing)
        for name, kinds, option in ((self._labels, "fiub", "--labels"), (self._time, "fiubMU", "--time")):
            if name is None:
                continue
            shape, dtype = headers[name].shape, headers[name].dtype
            if shape not in {(self.total,), (self.total, 1)} or dtype.kind not in kinds:
                raise TableError(
                    f"{source.name}[{name}]: expected one value for each of the {self.total} rows of {array} "
                    f"but got shape {_written(shape)} of type {_written(dtype)}; name another array or a column with "
                    f"{option}"
                )
        if self._labels is not None:
            self.columns = replace(
                self.columns, labels=len(self.columns.names), names=(*self.columns.names, self._labels)
            )

    def _beside(self) -> tuple[npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
        with np.load(self.source, allow_pickle=False) as archive:
            labels, times = (None if name is None else archive[name].ravel() for name in (self._labels, self._time))
        return labels, times

    def _arrays(self, n_rows: int, first: int) -> Iterator[npt.NDArray[Any]]:
        with zipfile.ZipFile(self.source) as archive, archive.open(f"{self._array}.npy") as file:
            yield from _array_blocks(file, _read_header(file), n_rows, first)


def _npz_headers(archive: zipfile.ZipFile, wanted: str | None) -> dict[str, _Header]:
    """Read the headers of an npz file's arrays, in the file's order; those that cannot be read matter if wanted."""
    headers = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name == member.filename:
            continue
        try:
            with archive.open(member.filename) as file:
                headers[name] = _read_header(file)
            headers[name].check_length(archive.getinfo(member.filename).file_size)
        except Exception as error:
            headers.pop(name, None)
            if name == wanted:
                raise ValueError(f"array {name!r}: {reason_of(error)}") from None
    return headers


def _read_header(file: IO[bytes]) -> _Header:
    """Read an array's header; nothing larger than numpy's own limit is read, whatever length it claims."""
    mark = file.read(8)
    version = tuple(mark[6:8])
    if mark[:6] != b"\x93NUMPY" or version not in _PARSERS:
        raise ValueError("it is not npy of version 1, 2 or 3")
    form, parse = _PARSERS[version]
    size = struct.calcsize(form)
    packed = file.read(size)
    length = struct.unpack(form, packed)[0] if len(packed) == size else 0
    if length > _LONGEST_HEADER:
        raise ValueError(f"its header claims {length:,} bytes; at most {_LONGEST_HEADER:,} are read")
    text = file.read(length)
    if not length or len(text) < length:
        raise ValueError("it ends within its header")
    try:
        with warnings.catch_warnings():
            # Types that numpy deprecates, and headers as Python 2 wrote them.
            warnings.simplefilter("ignore")
            shape, column_major, dtype = parse(io.BytesIO(packed + text))
    except Exception:
        raise ValueError("its header is not one that numpy writes") from None
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"its header claims the shape {_written(shape)}")
    return _Header(shape, column_major, dtype, len(mark) + size + length)


def _array_blocks(
    file: Any, header: _Header, n_rows: int, first: int, *, piped: bool = False
) -> Iterator[npt.NDArray[Any]]:
    """Yield rows of an array, from row `first` on; the file stands after the array's header.

    Memory grows with the bytes that come, not with those that the header claims.
    """
    (n, d), dtype = header.shape, header.dtype
    if header.column_major:
        numbers = _read_fully(file, header.n_bytes)
        if len(numbers) < header.n_bytes:
            raise ValueError(f"it ends after {_counted(len(numbers))} of {_counted(header.n_bytes)}")
        columns = np.frombuffer(numbers, dtype).reshape(d, n)
        yield from (columns[:, start : start + n_rows].T for start in range(first, n, n_rows))
        return
    size = d * dtype.itemsize
    before = first * size
    while before and (piece := file.read(min(before, READ_BYTES))):
        before -= len(piece)
    left, rest = n - first, b""
    while left:
        wanted = min(left, n_rows) * size - len(rest)
        # Rows of a pipe are returned as they arrive.
        piece = file.read1(min(wanted, READ_BYTES)) if piped else bytes(_read_fully(file, wanted))
        if not piece:
            raise ValueError(f"it ends {left} rows early")
        rest += piece
        if whole := len(rest) // size:
            yield np.frombuffer(rest[: whole * size], dtype).reshape(whole, d)
            left, rest = left - whole, rest[whole * size :]


def _read_fully(file: IO[bytes], n_bytes: int) -> bytearray:
    """Read up to `n_bytes`, fewer at the end; a single call would allocate as much as is asked for."""
    found = bytearray()
    while len(found) < n_bytes and (piece := file.read(min(n_bytes - len(found), READ_BYTES))):
        found += piece
    return found


def _counted(n_bytes: int) -> str:
    """Write a number of bytes; one of thousands of digits, which Python refuses to print, is short."""
    return f"{n_bytes:,} bytes" if n_bytes < 2**64 else "more than 2^64 bytes"


def _written(value: Any) -> str:
    """Write what a header claims in a few words."""
    try:
        text = str(value)
    except ValueError:
        return "of a number with thousands of digits"
    return text if len(text) <= 80 else f"{text[:80]}..."
