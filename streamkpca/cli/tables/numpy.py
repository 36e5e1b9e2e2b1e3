"""Arrays that numpy wrote: npy files mapped or read as they come, arrays of npz files decompressed as they are read."""

import io
import zipfile
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from streamkpca.cli.tables.columns import Choice, TableError, choose_columns, reading_errors
from streamkpca.cli.tables.reader import Array, BinaryTable, Block, time_values
from streamkpca.cli.tables.source import READ_BYTES, Source

# Shape, whether the order is column-major, and type.
_Header = tuple[tuple[int, ...], bool, np.dtype[Any]]


class ArrayTable(BinaryTable):
    """Rows of one two-dimensional array of real numbers; `name` is the array in errors."""

    def __init__(self, source: Source, name: str, header: _Header, *, choice: Choice, skips: bool) -> None:
        self.source, self._source, self.skips, self.rereadable = source.name, source, skips, source.rereadable
        shape, _, dtype = header
        if dtype.kind not in "fiub":
            raise TableError(f"{name}: holds {dtype} but real numbers are required; save it as float64")
        if len(shape) != 2 or not shape[1]:
            raise TableError(
                f"{name}: expected an array of rows and columns but its shape is {shape}; save it with two dimensions"
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
            for array in self._arrays(n_rows, start):
                part = slice(start, start + len(array))
                values: Array = np.asarray(array[:, wanted], dtype=np.float64)
                if labels is not None:
                    values = np.column_stack([values, labels[part]])
                when = array[:, time] if time is not None else None if times is None else times[part]
                yield self._make_block(values, start, None if when is None else time_values(when))
                start = part.stop


class NpyTable(ArrayTable):
    """A two-dimensional array in an npy file or from a pipe, read as it comes; mapped into memory if column-major."""

    _format = "npy"

    def __init__(self, source: Source, *, choice: Choice, skips: bool = False) -> None:
        with source.opened() as stream:
            file = io.BufferedReader(stream)
            self._header = _read_header(file)
            # Kept, because a pipe cannot give its header again.
            self._file = None if source.rereadable else file
        if source.on_disk:
            with reading_errors(source.name):
                # Refuses a file that is shorter than its header tells.
                np.load(source.path, mmap_mode="r", allow_pickle=False)
        # Row-major arrays are read, not mapped: a mapped file that is cut short meanwhile kills the process.
        self._mapped = source.on_disk and self._header[1]
        super().__init__(source, source.name, self._header, choice=choice, skips=skips)

    def _arrays(self, n_rows: int, first: int) -> Iterator[npt.NDArray[Any]]:
        if self._mapped:
            array = np.load(self._source.path, mmap_mode="r", allow_pickle=False)
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

    def __init__(self, source: Source, *, array: str | None, choice: Choice, skips: bool = False) -> None:
        if not source.on_disk:
            raise TableError(f"{source.name}: an npz file is read from its end; write it to a file and name that")
        with reading_errors(source.name):
            headers = _npz_headers(source.name)
        tables = [name for name, (shape, _, _) in headers.items() if len(shape) == 2]
        if array is None and len(tables) == 1:
            array = tables[0]
        if array is None or array not in headers:
            what = "choose one of its arrays" if array is None else f"no array {array!r} in it; choose one"
            raise TableError(f"{source.name}: {what} with --array: {', '.join(headers) or 'it has none'}")
        self._array = array
        # Arrays beside the table are chosen like columns but have no positions.
        beside = {name for name in (choice.labels, choice.time) if name in headers and name != array}
        self._labels = choice.labels if choice.labels in beside else None
        self._time = choice.time if choice.time in beside else None
        apart = replace(
            choice, labels=None if self._labels else choice.labels, time=None if self._time else choice.time
        )
        super().__init__(source, f"{source.name}[{array}]", headers[array], choice=apart, skips=skips)
        for name, kinds, option in ((self._labels, "fiub", "--labels"), (self._time, "fiubMU", "--time")):
            if name is None:
                continue
            shape, _, dtype = headers[name]
            if shape not in {(self.total,), (self.total, 1)} or dtype.kind not in kinds:
                raise TableError(
                    f"{source.name}[{name}]: expected one value for each of the {self.total} rows of {array} "
                    f"but got shape {shape} of type {dtype}; name another array or a column with {option}"
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


def _npz_headers(source: str) -> dict[str, _Header]:
    """Read the headers of an npz file's arrays, in the file's order."""
    headers = {}
    with zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                with archive.open(name) as file:
                    headers[name.removesuffix(".npy")] = _read_header(file)
    return headers


def _read_header(file: IO[bytes]) -> _Header:
    version = np.lib.format.read_magic(file)
    # Version 3 differs from 2 only for field names, and an array with fields is refused anyway.
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    header: _Header = read(file)
    return header


def _array_blocks(
    file: Any, header: _Header, n_rows: int, first: int, *, piped: bool = False
) -> Iterator[npt.NDArray[Any]]:
    """Yield rows of an array, from row `first` on; the file stands after the array's header."""
    (n, d), column_major, dtype = header
    if column_major:
        columns = np.frombuffer(file.read(n * d * dtype.itemsize), dtype).reshape(d, n)
        yield from (columns[:, start : start + n_rows].T for start in range(first, n, n_rows))
        return
    size = d * dtype.itemsize
    before = first * size
    while before and (piece := file.read(min(before, READ_BYTES))):
        before -= len(piece)
    left, rest = n - first, b""
    while left:
        # Rows of a pipe are returned as they arrive.
        piece = (file.read1 if piped else file.read)(min(left, n_rows) * size - len(rest))
        if not piece:
            raise ValueError(f"it ends {left} rows early")
        rest += piece
        if whole := len(rest) // size:
            yield np.frombuffer(rest[: whole * size], dtype).reshape(whole, d)
            left, rest = left - whole, rest[whole * size :]
