"""Arrays of numpy, Parquet and Arrow: files whose rows are counted."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow
from pyarrow import ipc, parquet

from streamkpca.tables.columns import Asked
from streamkpca.tables.errors import TableError
from streamkpca.tables.readers import RowReader
from streamkpca.tables.source import Source


class NpyReader(RowReader):
    """Rows of an array in two dimensions, whose file is mapped."""

    def __init__(self, source: Source, _: Asked) -> None:
        self._rows = np.load(source.on_disk(), mmap_mode="r", allow_pickle=False)
        shape, kind = self._rows.shape, self._rows.dtype
        if kind.kind not in "fiub" or len(shape) != 2:
            what = f"expected real numbers in rows and columns but got {kind} of shape {shape}"
            raise TableError(f"{source.name}: {what}; save them as float64 in two dimensions")
        super().__init__(source, range(shape[1]), named=False, total=shape[0])

    def _batches(self, wanted: Sequence[int], n_rows: int) -> Iterator[list[Any]]:
        for first in range(0, len(self._rows), n_rows):
            with np.errstate(over="ignore"):
                rows = self._rows[first : first + n_rows].astype(np.float64)
            yield [pyarrow.array(rows[:, j]) for j in wanted]


class ParquetReader(RowReader):
    """Columns of a Parquet file, some rows of a group at a time."""

    def __init__(self, source: Source, _: Asked) -> None:
        self._file = parquet.ParquetFile(source.on_disk())
        super().__init__(source, self._file.schema_arrow.names, named=True, total=self._file.metadata.num_rows)

    def _batches(self, wanted: Sequence[int], n_rows: int) -> Iterator[list[Any]]:
        names = [self.names[j] for j in wanted]
        for batch in self._file.iter_batches(n_rows, columns=names, use_threads=False):
            yield _read_cells(batch.select(names))


class ArrowReader(RowReader):
    """Columns of an Arrow file, whose batches are in memory one by one."""

    def __init__(self, source: Source, _: Asked) -> None:
        self._file = ipc.open_file(source.on_disk())
        super().__init__(source, self._file.schema.names, named=True, total=None)

    def _batches(self, wanted: Sequence[int], n_rows: int) -> Iterator[list[Any]]:
        for i in range(self._file.num_record_batches):
            batch = self._file.get_batch(i).select([self.names[j] for j in wanted])
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
    if any(
        test(kind) for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    ):
        return cells.cast(pyarrow.float64(), safe=False)
    try:
        return cells.cast(pyarrow.string())
    except pyarrow.ArrowException:
        return pyarrow.array(map(str, cells.to_pylist()), pyarrow.string())
