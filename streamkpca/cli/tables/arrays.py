"""Tables whose rows are counted: numpy's npy, Parquet and Arrow."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import ipc, parquet

from streamkpca.cli.tables.source import Source
from streamkpca.cli.tables.table import Block, Counts, Start, TableError, check_width, distinct, drop_hint
from streamkpca.cli.tables.times import Times

# Numbers of a block, and rows of a sample.
_MOST_NUMBERS = 2**22
_SAMPLE_ROWS = 10_000


class _RowReader:
    """Base of the readers whose positions are numbers of rows."""

    unit = "row"

    def __init__(self, source: Source, names: Sequence[str], *, named: bool, total: int | None) -> None:
        self._source, self.names, self.named, self.total = source, list(names), named, total
        self.rereadable = source.rereadable
        self.texts: set[int] = set()
        self.dialect: dict[str, Any] = {}

    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse a position beyond the rows of this file."""
        row, total = int(start["row"]), self.total
        if row < 0 or (total is not None and row > total):
            what = f"expected at least the {row} rows that were read before but it has {total}"
            raise TableError(f"{self._source.name}: {what}; name that file, or begin anew")

    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row."""
        return {"row": int(after[0])} if self.rereadable else None


def _block(first: int, numbers: npt.NDArray[Any], times: Any) -> Block:
    rows = np.arange(first, first + len(numbers))
    # Numbers beyond float64 become infinite, and are refused with their place.
    with np.errstate(over="ignore"):
        return Block(rows, numbers.astype(np.float64), times, rows[:, None] + 1, first + len(rows))


class ArrayReader(_RowReader):
    """Rows of an array in two dimensions, whose file is mapped."""

    def __init__(self, source: Source) -> None:
        self._rows = np.load(source.on_disk(), mmap_mode="r", allow_pickle=False)
        shape, kind = self._rows.shape, self._rows.dtype
        if kind.kind not in "fiub":
            raise TableError(f"{source.name}: holds {kind} but real numbers are required; save it as float64")
        if len(shape) != 2:
            what = f"expected an array of rows and columns but its shape is {shape}"
            raise TableError(f"{source.name}: {what}; save it with two dimensions")
        check_width(source.name, shape[1])
        super().__init__(source, list(map(str, range(shape[1]))), named=False, total=shape[0])

    def sample(self, column: int) -> Any:
        """Return the first numbers of a column."""
        return self._rows[:_SAMPLE_ROWS, column].astype(np.float64)

    def blocks(self, wanted: list[int], times: Times, n_rows: int, start: Start) -> Iterator[Block]:
        """Yield the columns at these positions in blocks of at most `n_rows` rows."""
        n_rows = max(1, min(n_rows, _MOST_NUMBERS // len(self.names)))
        for first in range(0 if start is None else int(start["row"]), len(self._rows), n_rows):
            rows = self._rows[first : first + n_rows]
            when = times.read([pyarrow.array(rows[:, j].astype(np.float64)) for j in times.columns])
            yield _block(first, rows[:, wanted], when)


class ArrowReader(_RowReader):
    """Columns of numbers in a Parquet file, or in Arrow's file or stream."""

    def __init__(self, source: Source, *, is_parquet: bool, is_file: bool) -> None:
        self._path, self._is_parquet, self._is_file = source.on_disk(), is_parquet, is_file
        opened = self._opened()
        schema = opened.schema_arrow if is_parquet else opened.schema
        check_width(source.name, len(schema.names))
        if distinct(schema.names) != schema.names:
            raise TableError(f"{source.name}: has two columns of one name; rename one")
        super().__init__(source, schema.names, named=True, total=opened.metadata.num_rows if is_parquet else None)
        self._types = schema.types
        self.texts = {j for j, kind in enumerate(schema.types) if not _is_number(kind)}

    def _opened(self) -> Any:
        if self._is_parquet:
            return parquet.ParquetFile(self._path)
        return (ipc.open_file if self._is_file else ipc.open_stream)(pyarrow.OSFile(self._path))

    def sample(self, column: int) -> Any:
        """Return the first cells of a column, text as strings."""
        batch = next(iter(self._batches(_SAMPLE_ROWS, [self.names[column]])), None)
        if batch is None:
            return np.empty(0)
        if column not in self.texts:
            return batch.column(0).cast(pyarrow.float64(), safe=False).to_numpy(zero_copy_only=False)
        return ["" if cell is None else str(cell) for cell in batch.column(0).to_pylist()]

    def blocks(self, wanted: list[int], times: Times, n_rows: int, start: Start) -> Iterator[Block]:
        """Yield the columns at these positions in blocks of at most `n_rows` rows."""
        for j in self.texts & set(wanted):
            what = f"column {self.names[j]!r} holds {self._types[j]} but numbers are required"
            raise TableError(f"{self._source.name}: {what}; {drop_hint(self.names[j])}")
        first, passed = 0, 0 if start is None else int(start["row"])
        names = [self.names[j] for j in (*wanted, *times.columns)]
        for batch in self._batches(max(1, min(n_rows, _MOST_NUMBERS // len(self.names))), names):
            part, first = batch.slice(max(passed - first, 0)), first + len(batch)
            if len(part):
                part.validate(full=True)
                columns = [part.column(i).cast(pyarrow.float64(), safe=False) for i in range(len(wanted))]
                numbers = np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns])
                yield _block(first - len(part), numbers, times.read(part.columns[len(wanted) :]))

    def _batches(self, n_rows: int, names: list[str]) -> Iterator[Any]:
        opened: Any = self._opened()
        if self._is_parquet:
            opened = opened.iter_batches(n_rows, columns=names, use_threads=False)
        elif self._is_file:
            opened = map(opened.get_batch, range(opened.num_record_batches))
        for batch in opened:
            yield from (batch.select(names).slice(begin, n_rows) for begin in range(0, len(batch), n_rows))


def _is_number(kind: Any) -> bool:
    types = pyarrow.types
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)
