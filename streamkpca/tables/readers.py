"""What all formats read into, and the bases of their readers."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import Array
from streamkpca.tables.errors import TableError
from streamkpca.tables.source import Source

Counts = npt.NDArray[np.int64]
Start = Mapping[str, Any] | None

# A table of more columns has rows and columns exchanged, or is none.
_WIDEST = 2**20
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
    """Rows of a table between two stages; see `Part` and `Batch`.

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


class Reader(ABC):
    """One format.

    names: of the columns, "0", "1", ... if not `named` by the file. dialect: how text is cut. n_above: lines above its
    rows. unit: what rows are counted in, "line" or "row". total: the size in the unit of `Part.after`, None if unknown.
    """

    unit = "row"
    n_above = 0

    def __init__(self, source: Source, names: Sequence[str] | range, *, named: bool, total: int | None) -> None:
        # Before they are made, as a file may claim any number.
        if not 0 < len(names) <= _WIDEST:
            raise TableError(f"{source.name}: expected 1 to {_WIDEST:,} columns but got {len(names)}; transpose it")
        if len({*names}) < len(names):
            raise TableError(f"{source.name}: has two columns of one name; rename one")
        self.source, self.names, self.named, self.total = source, list(map(str, names)), named, total
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
