"""Tables whose rows are counted: npy and npz of numpy, Parquet and Arrow."""

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import ipc, parquet

from streamkpca.cli.tables.source import Source
from streamkpca.cli.tables.table import Block, Chosen, Counts, TableError, check_width, distinct, list_names
from streamkpca.cli.tables.text import Times

# Numbers of a block, and bytes of an array in an npz file, which is read whole.
_MOST_NUMBERS = 2**22
_LARGEST_WHOLE = 2**31
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class _RowReader:
    """What tables have in common whose positions are numbers of rows."""

    unit = "row"

    def __init__(self, source: Source, names: Sequence[str], *, named: bool, total: int | None) -> None:
        if source.follows:
            raise TableError(f"{source.name}: only CSV and JSON lines grow row by row; leave --follow out")
        self._source, self.names, self.named, self.total = source, list(names), named, total
        self.rereadable = source.rereadable
        self.texts: set[int] = set()

    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse a position beyond the rows of this file."""
        row = int(start["row"])
        if not 0 <= row <= (row if self.total is None else self.total):
            raise TableError(
                f"{self._source.name}: expected at least the {row} rows that were read before but it has {self.total}; "
                "name that file, or begin anew"
            )

    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row."""
        return {"row": int(after[0])} if self.rereadable else None


def _block(first: int, numbers: npt.NDArray[Any], times: Any, labels: Any) -> Block:
    rows = np.arange(first, first + len(numbers))
    # Numbers beyond float64 become infinite, and are refused with their place.
    with np.errstate(over="ignore"):
        numbers = numbers.astype(np.float64)
        labels = None if labels is None else labels.astype(np.float64)
    if times is not None:
        times = times.astype("M8[ns]" if times.dtype.kind == "M" else np.float64)
    return Block(rows, numbers, times, labels, rows[:, None] + 1, first + len(rows))


class ArrayReader(_RowReader):
    """Rows of an array in two dimensions: an npy file, which is mapped, or an array of an npz file.

    `beside` names arrays of one dimension in an npz file that are handed out as columns (times and labels).
    """

    def __init__(self, source: Source, *, is_zip: bool, array: str | None, beside: Sequence[str]) -> None:
        self._columns: list[Any] = []
        names: list[str] = []
        if is_zip:
            headers = _headers_of(source)
            name = _array_named(source.name, headers, array)
            names = [one for one in beside if one in headers and one != name]
            with np.load(source.on_disk(), allow_pickle=False) as archive:
                self._rows = archive[name]
                self._columns = [archive[one] for one in names]
        else:
            self._rows = np.load(source.on_disk(), mmap_mode="r", allow_pickle=False)
        if self._rows.dtype.kind not in "fiub":
            raise TableError(
                f"{source.name}: holds {self._rows.dtype} but real numbers are required; save it as float64"
            )
        if self._rows.ndim != 2:
            raise TableError(
                f"{source.name}: expected an array of rows and columns but its shape is {self._rows.shape}; save it "
                "with two dimensions"
            )
        n, self._d = self._rows.shape
        for one, column in zip(names, self._columns, strict=True):
            if column.shape != (n,):
                raise TableError(
                    f"{source.name}: expected {one!r} to have one value for each of the {n} rows but its shape is "
                    f"{column.shape}; name another array"
                )
        check_width(source.name, self._d)
        super().__init__(source, [*map(str, range(self._d)), *names], named=False, total=n)
        self.texts = set(range(self._d, len(self.names)))

    def blocks(self, chosen: Chosen, n_rows: int, start: Mapping[str, Any] | None) -> Iterator[Block]:
        """Yield the chosen columns in blocks of at most `n_rows` rows."""
        n_rows = max(1, min(n_rows, _MOST_NUMBERS // self._d))

        def column(j: int | None, part: slice) -> Any:
            return None if j is None else self._rows[part, j] if j < self._d else self._columns[j - self._d][part]

        for first in range(0 if start is None else int(start["row"]), len(self._rows), n_rows):
            part = slice(first, first + n_rows)
            numbers = self._rows[part][:, list(chosen.features)]
            yield _block(first, numbers, column(chosen.time, part), column(chosen.labels, part))


def _headers_of(source: Source) -> dict[str, Any]:
    """Return the shape, order and type of each array of an archive; refuse one that is too large to be read whole."""
    headers = {}
    with zipfile.ZipFile(source.on_disk()) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename:
                continue
            with archive.open(info) as file:
                headers[name] = _HEADERS[np.lib.format.read_magic(file)](file)
            if info.file_size > _LARGEST_WHOLE:
                raise TableError(f"{source.name}: array {name!r} is too large to be read whole; save it by numpy.save")
    if not headers:
        raise TableError(f"{source.name}: is a ZIP archive without arrays of numpy; save a spreadsheet as CSV")
    return headers


def _array_named(path: str, headers: Mapping[str, Any], array: str | None) -> str:
    if array in headers:
        return str(array)
    found = [name for name, header in headers.items() if len(header[0]) == 2]
    if array is not None or len(found) != 1:
        what = f"no array {array!r} in it" if array is not None else f"expected one array of rows but got {len(found)}"
        raise TableError(f"{path}: {what}; choose one with --array: {list_names(list(headers))}")
    return found[0]


class ArrowReader(_RowReader):
    """Columns of numbers in a Parquet file, or in Arrow's file or stream."""

    def __init__(self, source: Source, *, is_parquet: bool, is_file: bool) -> None:
        self._source, self._is_parquet, self._is_file = source, is_parquet, is_file
        opened = self._open()
        self._opened = None if source.rereadable else opened
        schema = opened.schema_arrow if is_parquet else opened.schema
        check_width(source.name, len(schema.names))
        if distinct(schema.names) != schema.names:
            raise TableError(f"{source.name}: has two columns of one name; rename one")
        super().__init__(source, schema.names, named=True, total=opened.metadata.num_rows if is_parquet else None)
        self._types = schema.types
        self.texts = {j for j, kind in enumerate(schema.types) if not is_number(kind)}

    def _open(self) -> Any:
        if self._is_parquet:
            return parquet.ParquetFile(self._source.on_disk())
        if self._is_file:
            return ipc.open_file(pyarrow.OSFile(self._source.on_disk()))
        # A pipe is read as it comes.
        is_file = self._source.rereadable
        return ipc.open_stream(pyarrow.OSFile(self._source.on_disk()) if is_file else self._source.stream())

    def blocks(self, chosen: Chosen, n_rows: int, start: Mapping[str, Any] | None) -> Iterator[Block]:
        """Yield the chosen columns in blocks of at most `n_rows` rows."""
        for j in self.texts & set(chosen.numbers):
            raise TableError(
                f"{self._source.name}: column {self.names[j]!r} holds {self._types[j]} but numbers are required; leave "
                f"it out (--drop {self.names[j]})"
            )
        first, passed, d = 0, 0 if start is None else int(start["row"]), len(chosen.features)
        times = Times("" if chosen.time is None else self.names[chosen.time])
        wanted = [*chosen.numbers, *([] if chosen.time is None else [chosen.time])]
        n_rows = max(1, min(n_rows, _MOST_NUMBERS // len(self.names)))
        for batch in self._batches(n_rows, [self.names[j] for j in wanted]):
            part, first = batch.slice(max(passed - first, 0)), first + len(batch)
            if not len(part):
                continue
            part.validate(full=True)
            columns = [part.column(i).cast(pyarrow.float64(), safe=False) for i in range(len(chosen.numbers))]
            numbers = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
            when = None if chosen.time is None else _times(part.column(len(columns)), times)
            labels = None if chosen.labels is None else numbers[:, d]
            yield _block(first - len(part), numbers[:, :d], when, labels)

    def _batches(self, n_rows: int, names: list[str]) -> Iterator[Any]:
        opened = self._opened or self._open()
        if self._is_parquet:
            yield from (batch.select(names) for batch in opened.iter_batches(n_rows, columns=names, use_threads=False))
            return
        for batch in map(opened.get_batch, range(opened.num_record_batches)) if self._is_file else opened:
            for begin in range(0, len(batch), n_rows):
                yield batch.select(names).slice(begin, n_rows)


def is_number(kind: Any) -> bool:
    """Tell whether a type of Arrow holds numbers, truth values or nothing."""
    types = pyarrow.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def _times(column: Any, times: Times) -> npt.NDArray[Any]:
    kind, types = column.type, pyarrow.types
    if types.is_timestamp(kind) or types.is_date(kind):
        column = column.cast(pyarrow.timestamp("ns", getattr(kind, "tz", None)))
    elif is_number(kind):
        column = column.cast(pyarrow.float64(), safe=False)
    else:
        return times.read(column.cast(pyarrow.string()))
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found
