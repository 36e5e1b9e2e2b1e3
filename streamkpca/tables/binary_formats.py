"""Arrays of numpy, Parquet and Arrow: files whose rows are counted."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow
from pyarrow import ipc, parquet

from streamkpca.tables.asked import Asked
from streamkpca.tables.errors import TableError
from streamkpca.tables.reader import Counts, Part, Reader, Start
from streamkpca.tables.source import Source

# Numbers of a part, and rows of a sample.
_MOST_NUMBERS = 2**22
_SAMPLE_ROWS = 10_000


class RowReader(Reader):
    """Base of the readers whose positions are numbers of rows."""

    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse a position beyond the rows of this file."""
        if self.total is not None and int(start["row"]) > self.total:
            what = f"expected at least the {start['row']} rows that were read before but it has {self.total}"
            raise TableError(f"{self.source.name}: {what}; name that file, or begin anew")

    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row."""
        return {"row": int(after[0])}

    def sample(self) -> Part:
        """Return the first rows."""
        first = next(self.parts(self.names, _SAMPLE_ROWS, None), None)
        if first is None:
            raise TableError(f"{self.source.name}: it has no rows of numbers; give a table with at least one")
        return first

    def parts(self, wanted: Sequence[str], n_rows: int, start: Start) -> Iterator[Part]:
        """Yield the columns of these names in parts of at most `n_rows` rows."""
        begin, first = 0 if start is None else int(start["row"]), 0
        for columns in self._batches(wanted, max(1, min(n_rows, _MOST_NUMBERS // len(self.names)))):
            n, n_known = len(columns[0]), max(begin - first, 0)
            rows = np.arange(first + n_known, first + n)
            first += n
            if len(rows):
                cells = {name: column.slice(n_known) for name, column in zip(wanted, columns, strict=True)}
                yield Part(rows, cells, np.column_stack([rows + 1, rows + 1]))

    @abstractmethod
    def _batches(self, wanted: Sequence[str], n_rows: int) -> Iterator[list[Any]]:
        """Yield the cells of the columns of these names, of at most `n_rows` rows at a time."""


class NpyReader(RowReader):
    """Rows of an array in two dimensions, whose file is mapped."""

    def __init__(self, source: Source, _: Asked) -> None:
        self._rows = np.load(str(source.path), mmap_mode="r", allow_pickle=False)
        shape, kind = self._rows.shape, self._rows.dtype
        if kind.kind not in "fiub" or len(shape) != 2:
            what = f"expected real numbers in rows and columns but got {kind} of shape {shape}"
            raise TableError(f"{source.name}: {what}; save them as float64 in two dimensions")
        super().__init__(source, range(shape[1]), named=False, total=shape[0])

    def _batches(self, wanted: Sequence[str], n_rows: int) -> Iterator[list[Any]]:
        for first in range(0, len(self._rows), n_rows):
            with np.errstate(over="ignore"):
                rows = self._rows[first : first + n_rows].astype(np.float64)
            yield [pyarrow.array(rows[:, int(name)]) for name in wanted]


class ParquetReader(RowReader):
    """Columns of a Parquet file, some rows of a group at a time."""

    def __init__(self, source: Source, _: Asked) -> None:
        self._file = parquet.ParquetFile(str(source.path))
        super().__init__(source, self._file.schema_arrow.names, named=True, total=self._file.metadata.num_rows)

    def _batches(self, wanted: Sequence[str], n_rows: int) -> Iterator[list[Any]]:
        for batch in self._file.iter_batches(n_rows, columns=wanted, use_threads=False):
            yield _read_cells(batch.select(wanted))


class ArrowReader(RowReader):
    """Columns of an Arrow file, whose batches are in memory one by one."""

    def __init__(self, source: Source, _: Asked) -> None:
        self._file = ipc.open_file(str(source.path))
        super().__init__(source, self._file.schema.names, named=True, total=None)

    def _batches(self, wanted: Sequence[str], n_rows: int) -> Iterator[list[Any]]:
        for i in range(self._file.num_record_batches):
            batch = self._file.get_batch(i).select(wanted)
            for begin in range(0, len(batch), n_rows):
                yield _read_cells(batch.slice(begin, n_rows))


def _read_cells(batch: Any) -> list[Any]:
    batch.validate(full=True)
    return list(map(_plain, batch.columns))


def _plain(cells: Any) -> Any:
    """Return cells as numbers, times or text; what is none of these is text."""
    types, kind = pyarrow.types, cells.type
    if types.is_timestamp(kind):
        return cells
    if (types.is_primitive(kind) and not types.is_temporal(kind)) or types.is_decimal(kind) or types.is_null(kind):
        return cells.cast(pyarrow.float64(), safe=False)
    try:
        return cells.cast(pyarrow.string())
    except pyarrow.ArrowException:
        return pyarrow.array(map(str, cells.to_pylist()), pyarrow.string())
