"""What all formats read into, and the formats whose rows are counted: numpy's npy, Parquet and Arrow."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import ipc, parquet

from streamkpca.tables.errors import TableError
from streamkpca.tables.source import Source

Counts = npt.NDArray[np.int64]
Start = Mapping[str, Any] | None

# A table of more columns has rows and columns exchanged, or is none.
MOST_COLUMNS = 2**20
# Numbers of a part, and rows of a sample.
_MOST_NUMBERS = 2**22
_SAMPLE_ROWS = 10_000


@dataclass(frozen=True)
class Part:
    """Rows as a format reads them.

    rows (n,): their numbers in the file. cells: those of the columns that were asked for, by their positions, as
    Arrow's arrays (n,) of text, numbers or times. after (n, 2): what `Reader.position` needs to go on after each row.
    done: how much was read so far. bad: numbers, kinds and details of lines that cannot be read as rows.
    """

    rows: Counts
    cells: dict[int, Any]
    after: Counts
    done: int
    bad: Sequence[tuple[int, str, str]] = ()


def name_columns(names: Sequence[str]) -> list[str]:
    """Call columns without a name by their position, and append it to a name that came before.

    >>> name_columns(["x", "", "x"])
    ['x', '1', 'x.2']
    """
    first: dict[str, int] = {}
    named = [name or str(j) for j, name in enumerate(names)]
    return [name if first.setdefault(name, j) == j else f"{name}.{j}" for j, name in enumerate(named)]


def check_width(path: str, n_columns: int) -> None:
    """Refuse a table of more columns than any has, before they are named."""
    if not 0 < n_columns <= MOST_COLUMNS:
        raise TableError(f"{path}: expected 1 to {MOST_COLUMNS:,} columns but got {n_columns}; transpose the table")


class Reader(ABC):
    """One format.

    names: of the columns, "0", "1", ... if not `named` by the file. dialect: how text is cut. n_above: lines above its
    rows. unit: what rows are counted in, "line" or "row". total: the size in the unit of `Part.done`, None if unknown.
    """

    unit = "row"
    n_above = 0

    def __init__(self, source: Source, names: Sequence[str], *, named: bool, total: int | None) -> None:
        check_width(source.name, len(names))
        self._source, self.names, self.named, self.total = source, list(names), named, total
        self.rereadable, self.dialect = source.rereadable, dict[str, Any]()

    @abstractmethod
    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse a position that is not one of this file."""

    @abstractmethod
    def sample(self) -> Part:
        """Return the first rows, with all columns."""

    @abstractmethod
    def parts(self, wanted: Sequence[int], n_rows: int, start: Start) -> Iterator[Part]:
        """Yield the columns at these positions, in parts of any size, from a position on."""

    @abstractmethod
    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row."""


class _RowReader(Reader):
    """Base of the readers whose positions are numbers of rows."""

    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse a position beyond the rows of this file."""
        row, total = int(start["row"]), self.total
        if row < 0 or (total is not None and row > total):
            what = f"expected at least the {row} rows that were read before but it has {total}"
            raise TableError(f"{self._source.name}: {what}; name that file, or begin anew")

    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row."""
        return {"row": int(after[0])} if self.rereadable else None

    def sample(self) -> Part:
        """Return the first rows."""
        wanted = range(len(self.names))
        return next(
            self.parts(wanted, _SAMPLE_ROWS, None),
            _part(0, 0, {j: pyarrow.array([], pyarrow.float64()) for j in wanted}),
        )

    def parts(self, wanted: Sequence[int], n_rows: int, start: Start) -> Iterator[Part]:
        """Yield the columns at these positions in parts of at most `n_rows` rows."""
        n_rows = max(1, min(n_rows, _MOST_NUMBERS // len(self.names)))
        return self._parts(wanted, n_rows, 0 if start is None else int(start["row"]))

    @abstractmethod
    def _parts(self, wanted: Sequence[int], n_rows: int, begin: int) -> Iterator[Part]:
        """Yield the columns at these positions in parts of at most `n_rows` rows, from row `begin` on."""


def _part(first: int, n: int, cells: dict[int, Any]) -> Part:
    rows = np.arange(first, first + n)
    return Part(rows, cells, np.column_stack([rows + 1, rows + 1]), first + n)


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

    def _parts(self, wanted: Sequence[int], n_rows: int, begin: int) -> Iterator[Part]:
        for first in range(begin, len(self._rows), n_rows):
            with np.errstate(over="ignore"):
                rows = self._rows[first : first + n_rows].astype(np.float64)
            yield _part(first, len(rows), {j: pyarrow.array(rows[:, j]) for j in wanted})


class ArrowReader(_RowReader):
    """Columns of a Parquet file, or of Arrow's file or stream."""

    def __init__(self, source: Source, *, is_parquet: bool, is_file: bool) -> None:
        self._path, self._is_parquet, self._is_file = source.on_disk(), is_parquet, is_file
        opened = self._open()
        schema = opened.schema_arrow if is_parquet else opened.schema
        check_width(source.name, len(schema.names))
        if name_columns(schema.names) != schema.names:
            raise TableError(f"{source.name}: has two columns of one name; rename one")
        super().__init__(source, schema.names, named=True, total=opened.metadata.num_rows if is_parquet else None)

    def _open(self) -> Any:
        if self._is_parquet:
            return parquet.ParquetFile(self._path)
        return (ipc.open_file if self._is_file else ipc.open_stream)(pyarrow.OSFile(self._path))

    def _parts(self, wanted: Sequence[int], n_rows: int, begin: int) -> Iterator[Part]:
        first = 0
        for batch in self._batches(n_rows, [self.names[j] for j in wanted]):
            part, first = batch.slice(max(begin - first, 0)), first + len(batch)
            if len(part):
                part.validate(full=True)
                yield _part(first - len(part), len(part), dict(zip(wanted, map(_plain, part.columns), strict=True)))

    def _batches(self, n_rows: int, names: list[str]) -> Iterator[Any]:
        opened: Any = self._open()
        if self._is_parquet:
            opened = opened.iter_batches(n_rows, columns=names, use_threads=False)
        elif self._is_file:
            opened = map(opened.get_batch, range(opened.num_record_batches))
        for batch in opened:
            yield from (batch.select(names).slice(begin, n_rows) for begin in range(0, len(batch), n_rows))


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
