"""What all tables have in common: rows in chunks, going on at a place, and what becomes of bad rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca.cli.tables.columns import Columns, TableError

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Time = str | int | float | None


@dataclass(frozen=True)
class Places:
    """Where reading stands after each of some rows.

    Attributes
    ----------
    common : mapping
        What all these places share: what tells the file from another.
    counted : mapping of str to ndarray of shape (n,)
        What is counted, after each row.
    """

    common: Mapping[str, Any]
    counted: Mapping[str, Counts]

    def __getitem__(self, part: slice) -> "Places":
        return Places(self.common, {name: counts[part] for name, counts in self.counted.items()})

    @property
    def last(self) -> dict[str, Any]:
        """The place after the last row."""
        return {**self.common, **{name: int(counts[-1]) for name, counts in self.counted.items()}}


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
    times : list, or None
        The time column, where one was asked for: text as it stands in text files, ISO 8601 for time stamps of
        Parquet, Arrow and numpy, numbers for numbers; None where it is missing.
    places : Places or None
        The places after each row; None where a table cannot be read again.
    """

    rows: Array
    labels: Array | None
    position: int
    times: list[Time] | None = None
    places: Places | None = None

    @property
    def place(self) -> dict[str, Any] | None:
        """What `Table.go_on` needs to go on after this chunk: a small dict that JSON can hold."""
        return None if self.places is None else self.places.last

    def cut(self, part: slice) -> "Chunk":
        """Take some of the rows, with all that stands beside them.

        Parameters
        ----------
        part : slice
            Which rows.

        Returns
        -------
        Chunk
        """
        labels = None if self.labels is None else self.labels[part]
        times = None if self.times is None else self.times[part]
        places = None if self.places is None else self.places[part]
        return Chunk(self.rows[part], labels, self.position, times, places)


class Block(NamedTuple):
    """Rows as a format reads them, bad ones left out.

    Attributes
    ----------
    values : ndarray of shape (n, len(columns.wanted))
        Finite numbers.
    times : list of length n, or None
        The time column.
    position : int
        How much of the table's `total` has been read.
    places : Places or None
        The place after each row.
    bad : sequence of int
        For every row left out, how many rows of the block came before it.
    reason : str or None
        What is wrong with the first row left out.
    """

    values: Array
    times: list[Time] | None
    position: int
    places: Places | None
    bad: Sequence[int] | Counts = ()
    reason: str | None = None


def time_values(column: npt.NDArray[Any], zone: str = "") -> list[Time]:
    """Turn an array of times into what stands beside rows.

    Parameters
    ----------
    column : ndarray of shape (n,)
        Numbers, texts, or numpy's dates and times.
    zone : str
        What to write after a time.

    Returns
    -------
    list
        Dates and times in ISO 8601, None where there is none.

    Examples
    --------
    >>> time_values(np.array(["2024-05-01T10:00", "NaT"], dtype="datetime64[s]"), "Z")
    ['2024-05-01T10:00:00Z', None]
    """
    if column.dtype.kind != "M":
        values: list[Time] = column.tolist()
        return values
    return [None if text == "NaT" else f"{text}{zone}" for text in np.datetime_as_string(column).tolist()]


def regroup(chunks: Iterable[Chunk], n_rows: int) -> Iterator[Chunk]:
    """Cut rows anew, so that every chunk but the last has the same number of them.

    Parameters
    ----------
    chunks : iterable of Chunk
        Rows as they came.
    n_rows : int
        Rows of each chunk.

    Yields
    ------
    Chunk
    """
    held: list[Chunk] = []
    n_held = 0
    for chunk in chunks:
        start = 0
        while n_held + len(chunk.rows) - start >= n_rows:
            stop = start + n_rows - n_held
            yield _join([*held, chunk.cut(slice(start, stop))])
            held, n_held, start = [], 0, stop
        if start < len(chunk.rows):
            held.append(chunk.cut(slice(start, None)))
            n_held += len(held[-1].rows)
    if held:
        yield _join(held)


def _join(chunks: list[Chunk]) -> Chunk:
    last = chunks[-1]
    if len(chunks) == 1:
        return last
    labels = None if last.labels is None else np.concatenate([c.labels for c in chunks if c.labels is not None])
    times = None if last.times is None else [time for c in chunks for time in c.times or ()]
    return last._replace(rows=np.concatenate([chunk.rows for chunk in chunks]), labels=labels, times=times)


ON_BAD_ROWS = ("raise", "skip")


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
    skips : bool
        Whether rows that cannot be read as finite numbers are left out.
    n_skipped : int
        How many rows the last call of `chunks` has left out so far.
    first_skipped : str or None
        Where the first of them is, and what is wrong with it.
    """

    source: str
    columns: Columns
    total: int | None
    rereadable: bool
    skips: bool = False
    n_skipped: int = 0
    first_skipped: str | None = None
    _after: Mapping[str, Any] | None = None

    @abstractmethod
    def _blocks(self, n_rows: int) -> Iterator[Block]:
        """Yield the wanted columns, some rows at a time, from where `go_on` said."""

    @abstractmethod
    def _check_place(self, place: Mapping[str, Any]) -> None:
        """Refuse a place that is not in this file."""

    def go_on(self, place: Mapping[str, Any] | None) -> None:
        """Let `chunks` begin after a place that was reached when the same file was read earlier.

        Parameters
        ----------
        place : mapping or None
            `Chunk.place` of the last chunk that was taken in; None for the beginning. It may have been through JSON.

        Raises
        ------
        TableError
            The place is not of this file, or the source cannot be read again.
        """
        if place is not None:
            if not self.rereadable:
                raise TableError(f"{self.source}: a stream cannot go on at an earlier place; name a file")
            try:
                self._check_place(place)
            except (KeyError, TypeError, IndexError):
                raise TableError(f"{self.source}: expected a place as Chunk.place gives it but got {place!r}") from None
        self._after = place

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
            No rows, or a row of another width, with text, or with a missing or infinite number, unless such rows are
            skipped.
        """
        if n_rows < 1:
            raise TableError(f"{self.source}: expected chunks of at least 1 row but got {n_rows}")
        d, empty = len(self.columns.features), self._after is None
        self.n_skipped, self.first_skipped = 0, None
        for values, times, position, places, bad, reason in self._blocks(n_rows):
            self.first_skipped = self.first_skipped or reason
            counted = 0
            for start in range(0, len(values), n_rows):
                rows = slice(start, start + n_rows)
                # Rows left out count with the chunk that comes after them, so that a place agrees with the count.
                passed = int(np.searchsorted(bad, rows.stop, side="left")) if rows.stop < len(values) else len(bad)
                self.n_skipped += passed - counted
                counted, empty = passed, False
                yield Chunk(
                    np.ascontiguousarray(values[rows, :d]),
                    None if self.columns.labels is None else values[rows, d].copy(),
                    position,
                    None if times is None else times[rows],
                    None if places is None else places[rows],
                )
            self.n_skipped += len(bad) - counted
        if empty:
            skipped = f" ({self.n_skipped} skipped, the first: {self.first_skipped})" if self.n_skipped else ""
            drop = "leave columns that are not numbers out (--drop A,B,...), or " if self.n_skipped else ""
            raise TableError(
                f"{self.source}: no rows of numbers in it{skipped}; {drop}give a table with at least one row"
            )

    def _screened(
        self,
        values: Array,
        first_row: int,
        *,
        times: list[Time] | None = None,
        common: Mapping[str, Any] | None = None,
    ) -> Block:
        """Make a block of rows that are counted from 0; those with NaN or infinity are refused or left out."""
        position = first_row + len(values)
        ends = np.arange(first_row + 1, position + 1)
        finite = np.isfinite(values)
        bad: Counts = np.zeros(0, dtype=np.int64)
        reason = None
        if not finite.all():
            row, j = (int(i) for i in np.argwhere(~finite)[0])
            name = self.columns.names[self.columns.wanted[j]]
            what = "is missing (NaN)" if np.isnan(values[row, j]) else "is infinite"
            reason = f"{self.source}, row {first_row + row} (from 0): column {name!r} {what}"
            if not self.skips:
                raise TableError(f"{reason}; {remedy_for_row(self.columns.option(self.columns.wanted[j]))}")
            good = np.asarray(finite.all(axis=1))
            bad = np.cumsum(good, dtype=np.int64)[~good]
            values, ends = values[good], ends[good]
            times = None if times is None else [time for time, kept in zip(times, good, strict=True) if kept]
        if len(ends):
            ends[-1] = position
        places = None if common is None else Places(common, {"row": ends})
        return Block(values, times, position, places, bad, reason)

    def _check_row_place(self, place: Mapping[str, Any], kind: str) -> dict[str, Any]:
        """Refuse a row number that this file does not have, or that was counted in another file."""
        common = {"format": kind, "names": list(self.columns.names)}
        if place["format"] != kind or list(place["names"]) != common["names"]:
            raise TableError(
                f"{self.source}: expected the file that the place was taken of, {place['format']} with columns "
                f"{', '.join(place['names'])}, but it is {kind} with {', '.join(self.columns.names)}; "
                "name that file, or begin anew"
            )
        if self.total is not None and place["row"] > self.total:
            raise TableError(
                f"{self.source}: expected at least the {place['row']} rows that were read of it earlier but it has "
                f"{self.total}; name that file, or begin anew"
            )
        return common

    @property
    def _first_row(self) -> int:
        return 0 if self._after is None else int(self._after["row"])


def remedy_for_row(column: str | None = None, *, text: bool = False) -> str:
    """Say what can be done about a bad row.

    Parameters
    ----------
    column : str, optional
        The column at fault, as an option names it.
    text : bool
        Whether it holds text, which may be the time.

    Returns
    -------
    str
    """
    rows = "mend or remove such rows, or skip them (--on-bad-rows skip)"
    if column is None:
        return rows
    beside = f"; a time can stay beside the rows (--time {column})" if text else ""
    return f"leave the column out (--drop {column}), {rows}{beside}"


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
