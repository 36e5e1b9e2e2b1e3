"""What all formats read into, and the formats whose rows are counted: numpy's npy, Parquet and Arrow."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import ipc, parquet

from streamkpca._core.arrays import Array
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
    Arrow's arrays (n,) of text, numbers or times. after (n, 2): what `Reader.position` needs to go on after each row;
    first how much was read. bad: numbers, kinds and details of lines that cannot be read as rows.
    """

    rows: Counts
    cells: dict[int, Any]
    after: Counts
    bad: Sequence[tuple[int, str, str]] = ()


BLOCK_ARRAYS = ("rows", "numbers", "texts", "times", "labels", "keys", "after")


@dataclass(frozen=True)
class Block:
    """Rows between two stages; of a table; see `Part` and `Batch`.

    texts (n, d): what stands in cells that are taken for gaps: text that is no number, or a number that stands for a
    gap. keys (n,): tag or machine of a row. state: what counters need to go on after these rows.
    """

    rows: Counts
    numbers: Array
    texts: npt.NDArray[Any]
    times: npt.NDArray[Any] | None
    labels: Array | None
    keys: Any
    after: Counts
    bad: Sequence[tuple[int, str, str]]
    state: list[list[float | None]] | None = None

    def __getitem__(self, part: Any) -> "Block":
        arrays: Any = {name: None if (a := getattr(self, name)) is None else a[part] for name in BLOCK_ARRAYS}
        return replace(self, **arrays)


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
    rows. unit: what rows are counted in, "line" or "row". total: the size in the unit of `Part.after`, None if unknown.
    """

    unit = "row"
    n_above = 0

    def __init__(self, source: Source, names: Sequence[str], *, named: bool, total: int | None) -> None:
        check_width(source.name, len(names))
        self.source, self.names, self.named, self.total = source, list(names), named, total
        self.dialect = dict[str, Any]()

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
        if self.total is not None and int(start["row"]) > self.total:
            what = f"expected at least the {start['row']} rows that were read before but it has {self.total}"
            raise TableError(f"{self.source.name}: {what}; name that file, or begin anew")

    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row."""
        return {"row": int(after[0])}

    def sample(self) -> Part:
        """Return the first rows."""
        first = next(self.parts(range(len(self.names)), _SAMPLE_ROWS, None), None)
        if first is None:
            raise TableError(f"{self.source.name}: it has no rows of numbers; give a table with at least one row")
        return first

    def parts(self, wanted: Sequence[int], n_rows: int, start: Start) -> Iterator[Part]:
        """Yield the columns at these positions in parts of at most `n_rows` rows."""
        begin, first = 0 if start is None else int(start["row"]), 0
        for columns in self._batches(wanted, max(1, min(n_rows, _MOST_NUMBERS // len(self.names)))):
            n, n_known = len(columns[0]), max(begin - first, 0)
            rows = np.arange(first + n_known, first + n)
            first += n
            if len(rows):
                cells = {j: column.slice(n_known) for j, column in zip(wanted, columns, strict=True)}
                yield Part(rows, cells, np.column_stack([rows + 1, rows + 1]))

    @abstractmethod
    def _batches(self, wanted: Sequence[int], n_rows: int) -> Iterator[list[Any]]:
        """Yield the cells of the columns at these positions, of at most `n_rows` rows at a time."""


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

    def _batches(self, wanted: Sequence[int], n_rows: int) -> Iterator[list[Any]]:
        for first in range(0, len(self._rows), n_rows):
            with np.errstate(over="ignore"):
                rows = self._rows[first : first + n_rows].astype(np.float64)
            yield [pyarrow.array(rows[:, j]) for j in wanted]


class ArrowReader(_RowReader):
    """Columns of a file of Parquet or Arrow."""

    def __init__(self, source: Source, *, is_parquet: bool) -> None:
        self._is_parquet = is_parquet
        self._file = (parquet.ParquetFile if is_parquet else ipc.open_file)(source.on_disk())
        names = self._file.schema_arrow.names if is_parquet else self._file.schema.names
        if name_columns(names) != names:
            raise TableError(f"{source.name}: has two columns of one name; rename one")
        super().__init__(source, names, named=True, total=self._file.metadata.num_rows if is_parquet else None)

    def _batches(self, wanted: Sequence[int], n_rows: int) -> Iterator[list[Any]]:
        names = [self.names[j] for j in wanted]
        if self._is_parquet:
            batches = self._file.iter_batches(n_rows, columns=names, use_threads=False)
        else:
            batches = map(self._file.get_batch, range(self._file.num_record_batches))
        for batch in batches:
            for begin in range(0, len(batch), n_rows):
                part = batch.select(names).slice(begin, n_rows)
                part.validate(full=True)
                yield list(map(_plain, part.columns))


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
