"""Tables whose rows are counted: npy and npz of numpy, Parquet and Arrow."""

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import ipc, parquet

from streamkpca.cli.tables.source import LONGEST_LINE, Source
from streamkpca.cli.tables.table import Block, Chosen, Counts, TableError, check_width, list_names
from streamkpca.cli.tables.text import Times

# Numbers of a block, and bytes of an array that cannot be read row by row.
_MOST_NUMBERS = 2**22
_LARGEST_WHOLE = 2**30
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class _RowReader:
    """What tables have in common whose positions are numbers of rows."""

    unit = "row"

    def __init__(self, source: Source, names: Sequence[str], *, named: bool, total: int | None) -> None:
        if source.follows:
            raise TableError(
                f"{source.name}: only text can grow row by row; leave --follow out, or write CSV or JSON lines"
            )
        self._source, self.names, self.named, self.total = source, list(names), named, total
        self.rereadable = source.rereadable
        self.texts: set[int] = set()

    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse a position beyond the rows of this file, or of a file with other columns."""
        row, names = int(start["row"]), list(start["names"])
        if row < 0:
            raise ValueError(start)
        if names != self._known_names():
            raise TableError(
                f"{self._source.name}: expected the file that was read before, with columns {list_names(names)}, but "
                f"this one has {list_names(self.names)}; name that file, or begin anew"
            )
        if self.total is not None and row > self.total:
            raise TableError(
                f"{self._source.name}: expected at least the {row} rows that were read before but it has {self.total}; "
                "name that file, or begin anew"
            )

    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row."""
        return {"row": int(after[0]), "names": self._known_names()} if self.rereadable else None

    def _known_names(self) -> list[str]:
        return self.names[:100]

    def _made(self, numbers: npt.NDArray[Any], times: Any, labels: Any, first: int) -> Block:
        end = first + len(numbers)
        rows = np.arange(first, end)
        # Numbers beyond float64 become infinite, and are refused with their place.
        with np.errstate(over="ignore"):
            numbers = numbers.astype(np.float64)
            labels = None if labels is None else np.asarray(labels).astype(np.float64)
        return Block(rows, numbers, None if times is None else _as_times(times), labels, rows[:, None] + 1, end)


def _as_times(times: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return times.astype("M8[ns]" if times.dtype.kind == "M" else np.float64)


class _Header(NamedTuple):
    """What the beginning of an array says of it, and how many bytes that takes."""

    shape: tuple[int, ...]
    column_major: bool
    dtype: np.dtype[Any]
    size: int

    @classmethod
    def read(cls, file: IO[bytes]) -> "_Header":
        """Read a header; its size is known where the file can tell its position."""
        shape, column_major, dtype = _HEADERS[np.lib.format.read_magic(file)](file)  # type: ignore[no-untyped-call]
        return cls(shape, column_major, dtype, file.tell() if file.seekable() else 0)

    @property
    def n_bytes(self) -> int:
        """Size of the numbers that follow, in an integer that cannot overflow."""
        return math.prod(self.shape) * self.dtype.itemsize


class ArrayReader(_RowReader):
    """One array of real numbers in two dimensions: an npy file or stream, or an array of an npz file.

    `beside` names arrays of one dimension in an npz file that are handed out as columns (times and labels).
    """

    def __init__(self, source: Source, *, is_zip: bool, array: str | None, beside: Sequence[str]) -> None:
        self._member: str | None = None
        headers: dict[str, _Header] = {}
        if is_zip:
            if not source.is_plain:
                raise TableError(f"{source.name}: npz is read from its end; write it to a plain file")
            headers = _headers_of(source)
            self._member = _array_named(source.name, headers, array)
            self._header = headers[self._member]
        elif source.rereadable:
            with source.stream() as file:
                self._header = _Header.read(file)
        else:
            self._stream = source.stream()
            self._header = _Header.read(self._stream)
        shape, dtype = self._header.shape, self._header.dtype
        if dtype.kind not in "fiub":
            raise TableError(f"{source.name}: holds {dtype} but real numbers are required; save it as float64")
        if len(shape) != 2:
            raise TableError(
                f"{source.name}: expected an array of rows and columns but its shape is {shape}; save it with two "
                "dimensions"
            )
        check_width(source.name, shape[1])
        names = [str(j) for j in range(shape[1])]
        super().__init__(source, names, named=False, total=shape[0])
        if source.is_plain and not is_zip and self._header.size + self._header.n_bytes > (source.size or 0):
            raise ValueError(f"its header claims {self._header.n_bytes:,} bytes of numbers, but fewer follow")
        self._beside = [name for name in beside if name in headers and name != self._member]
        for name in self._beside:
            if headers[name].shape != shape[:1]:
                raise TableError(
                    f"{source.name}: expected {name!r} to have one value for each of the {shape[0]} rows but its shape "
                    f"is {headers[name].shape}; name another array"
                )
        self.texts = set(range(shape[1], shape[1] + len(self._beside)))
        self.names += self._beside

    def blocks(self, chosen: Chosen, n_rows: int, start: Mapping[str, Any] | None) -> Iterator[Block]:
        """Yield the chosen columns in blocks of at most `n_rows` rows."""
        first, d = 0 if start is None else int(start["row"]), self._header.shape[1]
        beside = {d + i: self._whole(name) for i, name in enumerate(self._beside)}
        n_rows = max(1, min(n_rows, _MOST_NUMBERS // d))
        for rows in self._arrays(n_rows, first):

            def column(j: int | None, rows: Any = rows, first: int = first) -> Any:
                return None if j is None else rows[:, j] if j < d else beside[j][first : first + len(rows)]

            yield self._made(rows[:, list(chosen.features)], column(chosen.time), column(chosen.labels), first)
            first += len(rows)

    def _arrays(self, n_rows: int, first: int) -> Iterator[npt.NDArray[Any]]:
        header = self._header
        n, d = header.shape
        if header.column_major:
            # Its first row is complete only when the last column has begun.
            if self._source.is_plain and self._member is None:
                whole: npt.NDArray[Any] = np.memmap(
                    self._source.path, header.dtype, "r", header.size, (n, d), order="F"
                )
            else:
                whole = self._whole(self._member)
            for begin in range(first, n, n_rows):
                yield whole[begin : begin + n_rows]
            return
        file, _ = self._opened(self._member)
        with file:
            width = d * header.dtype.itemsize
            to_skip = first * width
            while to_skip and (piece := file.read(min(to_skip, LONGEST_LINE))):
                to_skip -= len(piece)
            for begin in range(first, n, n_rows):
                size = min(n_rows, n - begin) * width
                data = file.read(size)
                if len(data) < size:
                    raise ValueError(f"it ends {n - begin - len(data) // width:,} rows early")
                yield np.frombuffer(data, header.dtype).reshape(-1, d)

    def _opened(self, member: str | None) -> tuple[IO[bytes], _Header]:
        """Open the numbers of an array, after its header."""
        if not self._source.rereadable:
            return self._stream, self._header
        archive = None if member is None else zipfile.ZipFile(self._source.path)
        file = self._source.stream() if archive is None else archive.open(f"{member}.npy")
        return file, _Header.read(file)

    def _whole(self, member: str | None) -> npt.NDArray[Any]:
        """Read an array whole, if it is small enough."""
        file, header = self._opened(member)
        with file:
            if header.n_bytes > _LARGEST_WHOLE:
                raise TableError(
                    f"{self._source.name}: an array of {header.n_bytes:,} bytes is too large to be read whole; save it "
                    "row by row (numpy.ascontiguousarray)"
                )
            data = file.read(header.n_bytes)
        if len(data) < header.n_bytes:
            raise ValueError(f"it ends {header.n_bytes - len(data):,} bytes early")
        return np.frombuffer(data, header.dtype).reshape(header.shape, order="F" if header.column_major else "C")


def _headers_of(source: Source) -> dict[str, _Header]:
    headers = {}
    with zipfile.ZipFile(source.path) as archive:
        for info in archive.infolist():
            if not info.filename.endswith(".npy"):
                continue
            with archive.open(info) as file:
                header = _Header.read(file)
            if header.size + header.n_bytes > info.file_size:
                raise ValueError(f"{info.filename} claims {header.n_bytes:,} bytes of numbers, but fewer follow")
            headers[info.filename.removesuffix(".npy")] = header
    if not headers:
        raise TableError(
            f"{source.name}: is a ZIP archive without arrays of numpy; save a spreadsheet as CSV, or unpack the archive"
        )
    return headers


def _array_named(path: str, headers: Mapping[str, _Header], array: str | None) -> str:
    if array in headers:
        return str(array)
    found = [name for name, header in headers.items() if len(header.shape) == 2]
    if array is not None or len(found) != 1:
        what = f"no array {array!r} in it" if array is not None else f"expected one array of rows but got {len(found)}"
        raise TableError(f"{path}: {what}; choose one with --array: {list_names(list(headers))}")
    return found[0]


class ArrowReader(_RowReader):
    """Columns of numbers in a Parquet file, or in Arrow's file or stream."""

    def __init__(self, source: Source, *, is_parquet: bool, is_file: bool) -> None:
        self._is_parquet, self._is_file = is_parquet, is_file
        if is_parquet or is_file:
            if not source.is_plain:
                raise TableError(f"{source.name}: this format is read from its end; write it to a plain file")
        self._opened: Any = None
        opened = self._open(source)
        self._opened = None if source.rereadable else opened
        schema = opened.schema_arrow if is_parquet else opened.schema
        check_width(source.name, len(schema.names))
        if len(set(schema.names)) < len(schema.names):
            raise TableError(f"{source.name}: has two columns of one name; rename one")
        super().__init__(source, schema.names, named=True, total=opened.metadata.num_rows if is_parquet else None)
        self._types = schema.types
        self.texts = {j for j, kind in enumerate(schema.types) if not is_number(kind)}

    def _open(self, source: Source) -> Any:
        if self._is_parquet:
            return parquet.ParquetFile(source.path)
        return ipc.open_file(pyarrow.OSFile(str(source.path))) if self._is_file else ipc.open_stream(source.stream())

    def blocks(self, chosen: Chosen, n_rows: int, start: Mapping[str, Any] | None) -> Iterator[Block]:
        """Yield the chosen columns in blocks of at most `n_rows` rows."""
        for j in chosen.numbers:
            if j in self.texts:
                raise TableError(
                    f"{self._source.name}: column {self.names[j]!r} holds {self._types[j]} but numbers are required; "
                    f"leave it out (--drop {self.names[j]})"
                )
        first, passed = 0, 0 if start is None else int(start["row"])
        times = Times("" if chosen.time is None else self.names[chosen.time])
        n_rows = max(1, min(n_rows, _MOST_NUMBERS // len(self.names)))
        wanted = [*chosen.numbers, *([] if chosen.time is None else [chosen.time])]
        for batch in self._batches(n_rows, [self.names[j] for j in wanted]):
            if first + len(batch) > passed:
                part = batch.slice(max(passed - first, 0))
                part.validate(full=True)
                columns = [part.column(i).cast(pyarrow.float64(), safe=False) for i in range(len(chosen.numbers))]
                numbers = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
                when = None if chosen.time is None else _arrow_times(part.column(len(columns)), times)
                d = len(chosen.features)
                begin = first + len(batch) - len(part)
                yield self._made(numbers[:, :d], when, None if chosen.labels is None else numbers[:, d], begin)
            first += len(batch)
        if first < passed:
            raise TableError(
                f"{self._source.name}: it ends {passed - first} rows before the position to go on at; name the same "
                "file, or begin anew"
            )

    def _batches(self, n_rows: int, names: list[str]) -> Iterator[Any]:
        opened = self._opened or self._open(self._source)
        if self._is_parquet:
            for batch in opened.iter_batches(n_rows, columns=names, use_threads=False):
                yield batch.select(names)
            return
        batches = map(opened.get_batch, range(opened.num_record_batches)) if self._is_file else iter(opened)
        for batch in batches:
            for begin in range(0, len(batch), n_rows):
                yield batch.select(names).slice(begin, n_rows)


def is_number(kind: Any) -> bool:
    types = pyarrow.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def _arrow_times(column: Any, times: Times) -> npt.NDArray[Any]:
    kind, types = column.type, pyarrow.types
    if types.is_timestamp(kind) or types.is_date(kind):
        column = column.cast(pyarrow.timestamp("ns", getattr(kind, "tz", None)))
    elif is_number(kind):
        column = column.cast(pyarrow.float64(), safe=False)
    else:
        return times.read(column.cast(pyarrow.string()))
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found
