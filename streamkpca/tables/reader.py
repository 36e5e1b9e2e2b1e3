"""What each format of files answers: parts of the rows, by the names of the columns, and where reading goes on."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.tables.errors import TableError
from streamkpca.tables.source import Source

Counts = npt.NDArray[np.int64]
Start = Mapping[str, Any] | None

# Kinds of lines that are no rows, and of those that cannot be read as rows.
COMMENT = "a comment"
NAMES_AGAIN = "a line above the rows again"
OTHER_WIDTH = "other number of cells"
NO_JSON = "no JSON"
# A table of more columns has rows and columns exchanged, or is none.
_WIDEST = 2**20


@dataclass(frozen=True)
class Part:
    """Rows as a format reads them.

    rows (n,): their numbers in the file. cells: those of the columns that were asked for, as Arrow's arrays (n,) of
    text, numbers or times. after (n, 2): what `Reader.position` needs to go on after each row; first how much was read.
    bad: numbers, kinds and details of lines that cannot be read as rows.
    """

    rows: Counts
    cells: dict[str, Any]
    after: Counts
    bad: Sequence[tuple[int, str, str]] = ()


class Reader(ABC):
    """One format.

    names: of the columns, "0", "1", ... if not `named` by the file. dialect: how text is cut. n_above: lines above its
    rows. unit: what rows are counted in, "line" or "row". total: the size in the unit of `Part.after`, None if unknown.
    n_replaced: bytes so far that are no text.
    """

    unit = "row"
    n_replaced = 0
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
    def parts(self, wanted: Sequence[str], n_rows: int, start: Start) -> Iterator[Part]:
        """Yield the columns of these names, in parts of any size, from a position on."""

    @abstractmethod
    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row."""
