"""What every table on disk has in common: a source, named columns, a choice among them, rows in chunks."""

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_SHOWN_NAMES = 8
_UNREADABLE = (OSError, ValueError, EOFError, zipfile.BadZipFile)


class TableError(ValueError):
    """Raised when a file cannot be read as rows of numbers.

    The message is one line: where, what is wrong, and what to do about it.
    """


class Chunk(NamedTuple):
    """Some consecutive rows of a table.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
        Finite, C-contiguous float64.
    labels : ndarray of shape (n,), or None
        The label column, where one was asked for.
    position : int
        How much of the table's `total` has been read by now.
    """

    rows: Array
    labels: Array | None
    position: int


@dataclass(frozen=True)
class Columns:
    """The columns of a table and the choice among them.

    Attributes
    ----------
    names : tuple of str
        All columns of the file; positions as text where the file has no names.
    features : tuple of int
        Positions of the chosen columns, in the order in which they were asked for.
    labels : int or None
        Position of the label column.
    named : bool
        Whether the file itself brings the names.
    """

    names: tuple[str, ...]
    features: tuple[int, ...]
    labels: int | None
    named: bool

    @property
    def wanted(self) -> tuple[int, ...]:
        """Positions of everything that must be read: features, then labels."""
        return self.features if self.labels is None else (*self.features, self.labels)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the chosen columns."""
        return tuple(self.names[j] for j in self.features)


class Table(ABC):
    """Rows of numbers in a file or a stream, read in chunks and never whole.

    Attributes
    ----------
    source : str
        The file, for error texts.
    columns : Columns
        What is read.
    total : int or None
        Size in the unit of `Chunk.position`; None where no one knows it before the end.
    rereadable : bool
        Whether `chunks` can be called again.
    """

    source: str
    columns: Columns
    total: int | None
    rereadable: bool

    @abstractmethod
    def _blocks(self, n_rows: int) -> Iterator[tuple[Array, int]]:
        """Yield the wanted columns, some rows at a time, with the position reached."""

    def chunks(self, n_rows: int) -> Iterator[Chunk]:
        """Read the rows, a chunk at a time.

        Parameters
        ----------
        n_rows : int
            Most rows of one chunk. Chunks may be smaller: rows from a pipe are handed on as they come.

        Yields
        ------
        Chunk

        Raises
        ------
        TableError
            No rows; a row of another width; text, a missing or an infinite number.
        """
        d = len(self.columns.features)
        empty = True
        for values, position in self._blocks(n_rows):
            for start in range(0, len(values), n_rows):
                part = values[start : start + n_rows]
                empty = False
                labels = None if self.columns.labels is None else part[:, d].copy()
                yield Chunk(np.ascontiguousarray(part[:, :d]), labels, position)
        if empty:
            raise TableError(f"{self.source}: no rows of numbers in it; give a table with at least one row")


def choose_columns(
    source: str,
    names: Sequence[str],
    *,
    named: bool,
    columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    labels: str | None = None,
) -> Columns:
    """Settle which columns of a table are read.

    Parameters
    ----------
    source : str
        The file, for error texts.
    names : sequence of str
        All its columns.
    named : bool
        Whether the names come from the file.
    columns : sequence of str
        Columns to read, by name or by position from 0; a name wins over a position. All if empty.
    drop : sequence of str
        Columns to leave out.
    labels : str, optional
        Column that is no feature but tells which rows are anomalous.

    Returns
    -------
    Columns

    Raises
    ------
    TableError
        A column that is not there, or no column left.

    Examples
    --------
    >>> choose_columns("a.csv", ["time", "x", "y"], named=True, drop=["time"]).feature_names
    ('x', 'y')
    """
    dropped = {_find_column(source, names, wanted) for wanted in drop}
    label = None if labels is None else _find_column(source, names, labels)
    chosen = [_find_column(source, names, wanted) for wanted in columns] if columns else range(len(names))
    features = tuple(j for j in dict.fromkeys(chosen) if j not in dropped and j != label)
    if not features:
        raise TableError(
            f"{source}: no column is left of {_list_names(names)}; choose others with --columns, --drop or --labels"
        )
    return Columns(tuple(names), features, label, named)


def check_same_columns(first: Table, other: Table) -> None:
    """Refuse a table whose rows cannot follow those of the first.

    Parameters
    ----------
    first, other : Table
        The table that set the columns, and the one that must match.

    Raises
    ------
    TableError
        Another number of columns, or other names where both files bring names.
    """
    expected, got = first.columns.feature_names, other.columns.feature_names
    if len(expected) != len(got):
        raise TableError(
            f"{other.source}: expected {len(expected)} columns (as in {first.source}) but got {len(got)}; "
            "choose the same columns with --columns or --drop"
        )
    if first.columns.named and other.columns.named and expected != got:
        j = next(j for j, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b)
        raise TableError(
            f"{other.source}: expected column {expected[j]!r} in place {j} (as in {first.source}) but got "
            f"{got[j]!r}; choose the same columns in the same order with --columns"
        )


def check_finite(values: Array, *, source: str, first_row: int, columns: Columns) -> None:
    """Refuse rows with NaN or infinity.

    Parameters
    ----------
    values : ndarray of shape (n, len(columns.wanted))
        Rows as read.
    source : str
        The file, for the error text.
    first_row : int
        Position of the first of these rows in the file, from 0.
    columns : Columns
        What was read.

    Raises
    ------
    TableError
        Names the first such row and its column.
    """
    finite = np.isfinite(values)
    if finite.all():
        return
    row, j = (int(i) for i in np.argwhere(~finite)[0])
    name = columns.names[columns.wanted[j]]
    what = "is missing (NaN)" if np.isnan(values[row, j]) else "is infinite"
    raise TableError(
        f"{source}, row {first_row + row} (from 0): column {name!r} {what}; "
        f"fill or remove such rows first, or leave the column out (--drop {name})"
    )


@contextmanager
def blaming(source: str) -> Iterator[None]:
    """Turn what numpy, zipfile and pyarrow say of a bad file into one line that names the file.

    Parameters
    ----------
    source : str
        The file.

    Raises
    ------
    TableError
        For any error that tells of a file that is not what it claims to be.
    """
    try:
        yield
    except TableError:
        raise
    except _UNREADABLE as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
        raise TableError(
            f"{source}: cannot be read ({reason}); is the file whole and of the format it claims?"
        ) from None


def _find_column(source: str, names: Sequence[str], wanted: str) -> int:
    if wanted in names:
        if names.count(wanted) > 1:
            raise TableError(f"{source}: column {wanted!r} is there {names.count(wanted)} times; give its position")
        return names.index(wanted)
    try:
        position = int(wanted)
    except ValueError:
        position = len(names)
    if not -len(names) <= position < len(names):
        raise TableError(
            f"{source}: no column {wanted!r}; it has {len(names)}: {_list_names(names)}; "
            "give one of these names or a position, counting from 0"
        )
    return position % len(names)


def _list_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_NAMES])
    return shown if len(names) <= _SHOWN_NAMES else f"{shown}, ..."
