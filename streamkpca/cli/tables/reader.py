"""What all tables have in common: rows in chunks, offsets at which reading can resume, and the handling of bad rows.

A format reads `Block`s, in the sizes that suit it; `Table.chunks` cuts them into `Chunk`s of at most the rows asked
for. Both carry the `Offsets` after each of their rows, so that the end of any chunk can be given to `Table.seek`.
"""

import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca._core.concurrency import cached_property
from streamkpca.cli.tables.columns import Columns, TableError, list_names, short
from streamkpca.rows.categories import CategoryReader

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Time = str | int | float | None

ON_BAD_ROWS = ("raise", "skip")
ON_MISSING = ("raise", "skip", "marginal")
# Bytes at the beginning of a file, and before an offset, that tell it from another.
SUMMED_BYTES = 1024
# Numbers of a block of a binary format: 256 MB, which a table of many columns reaches with few rows.
_MOST_NUMBERS = 2**25


@dataclass(frozen=True)
class Offsets:
    """The offsets in a file after each of n rows.

    `common` is what identifies the file; `counted` holds the bytes and lines, or the rows, after each row (n,). Text
    files have the last `text` read too, which begins at a byte: what stands before an offset tells whether it is one of
    the same file.
    """

    common: Mapping[str, Any]
    counted: Mapping[str, Counts]
    text: bytes = b""
    text_begins: int = 0

    def __getitem__(self, part: slice) -> "Offsets":
        counted = {name: counts[part] for name, counts in self.counted.items()}
        return Offsets(self.common, counted, self.text, self.text_begins)

    @property
    def last(self) -> dict[str, Any]:
        """The offset after the last row."""
        offset = {**self.common, **{name: int(counts[-1]) for name, counts in self.counted.items()}}
        if not self.text:
            return offset
        end = offset["byte"] - self.text_begins
        before = self.text[max(0, end - SUMMED_BYTES) : end]
        return offset | {"tail": [len(before), zlib.crc32(before)]}


class Chunk(NamedTuple):
    """Some consecutive rows of a table.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
        C-contiguous float64, finite but for the gaps, which are NaN, of a table that takes them.
    labels : ndarray of shape (n,), or None
        The label column, if one was asked for.
    position : int
        How much of the table's `total` has been read.
    times : list, or None
        The time column, if one was asked for: unchanged text in text files, ISO 8601 for time stamps of Parquet, Arrow
        and numpy, numbers for numbers; None where it is missing.
    offsets : Offsets or None
        The offsets after each row; None if a table cannot be read again.
    """

    rows: Array
    labels: Array | None
    position: int
    times: list[Time] | None = None
    offsets: Offsets | None = None

    @property
    def offset(self) -> dict[str, Any] | None:
        """What `Table.seek` takes to resume after this chunk: a small dict that JSON can hold."""
        return None if self.offsets is None else self.offsets.last

    def cut(self, part: slice) -> "Chunk":
        """Take some of the rows, with their labels, times and offsets."""
        labels = None if self.labels is None else self.labels[part]
        times = None if self.times is None else self.times[part]
        offsets = None if self.offsets is None else self.offsets[part]
        return Chunk(self.rows[part], labels, self.position, times, offsets)


class Block(NamedTuple):
    """Rows as a format reads them, bad ones left out; otherwise as `Chunk`.

    values (n, len(columns.wanted)); `bad` holds, for every row left out, the number of rows of the block before it;
    `reason` tells what is wrong with the first of them.
    """

    values: Array
    times: list[Time] | None
    position: int
    offsets: Offsets | None
    bad: Sequence[int] | Counts = ()
    reason: str | None = None


class Table(ABC):
    """Rows of numbers in a file or a stream, read in chunks and never whole.

    Attributes
    ----------
    source : str
        The file, for error texts.
    columns : Columns
        The columns to read.
    total : int or None
        Size in the unit of `Chunk.position`; None if it is unknown before the end.
    rereadable : bool
        Whether `chunks` can be called again.
    skips : bool
        Whether rows that cannot be read as finite numbers are left out.
    on_missing : "raise", "skip" or "marginal"
        What becomes of rows with missing features: as `skips` says; they are left out; or what is missing is NaN, and
        only rows without any number are left out.
    n_skipped : int
        How many rows the last call of `chunks` has left out so far.
    first_skipped : str or None
        Where the first of them is, and what is wrong with it.
    notes : list of str
        What the user should know of the table, although it can be read.
    """

    source: str
    columns: Columns
    total: int | None
    rereadable: bool
    notes: list[str]
    skips: bool = False
    on_missing: str = "raise"
    n_skipped: int = 0
    first_skipped: str | None = None
    _after: Mapping[str, Any] | None = None

    @cached_property
    def category_reader(self) -> CategoryReader:
        """Turns text in columns of categories into codes, and notes the texts that it has seen."""
        return CategoryReader(lambda d: ())

    def _coded(self, cells: Sequence[Any]) -> Array:
        """Turn n cells of a column of categories into codes (n,), missing ones into NaN."""
        return self.category_reader.coded(map(category_cell, cells), len(cells))

    def _note_names(self) -> None:
        """Note that names are lost where several columns have the same one."""
        counts = Counter(self.columns.feature_names)
        if self.columns.named and len(counts) < len(self.columns.features):
            name, count = counts.most_common(1)[0]
            self.notes.append(
                f"{self.source}: {count} columns are named {short(name)!r}, so a model keeps no names, and other files "
                "are read by position; rename them, or leave some out (--drop, by position)"
            )

    def _screened(self, values: Array) -> tuple[Flags, Flags]:
        """Tell which rows (n, len(columns.wanted)) are used, and which are bad; others are left out for their gaps."""
        if self.on_missing == "raise":
            finite = np.asarray(np.isfinite(values).all(axis=1))
            return finite, ~finite
        d = len(self.columns.features)
        missing = np.isnan(values)
        bad = np.isinf(values).any(axis=1) | missing[:, d:].any(axis=1)
        gaps = missing[:, :d]
        left_out = gaps.all(axis=1) if self.on_missing == "marginal" else gaps.any(axis=1)
        return np.asarray(~(bad | left_out)), np.asarray(bad)

    @abstractmethod
    def _blocks(self, n_rows: int) -> Iterator[Block]:
        """Yield the wanted columns in blocks, from the offset given to `seek`."""

    @abstractmethod
    def _check_offset(self, offset: Mapping[str, Any]) -> None:
        """Refuse an offset that is not in this file."""

    def seek(self, offset: Mapping[str, Any] | None) -> None:
        """Let `chunks` begin after an offset that an earlier reading of the same file reached.

        Parameters
        ----------
        offset : mapping or None
            `Chunk.offset` of the last chunk to pass over; None for the beginning. It may have been through JSON.

        Raises
        ------
        TableError
            The offset is not one of this file, or the source cannot be read again.
        """
        if offset is not None:
            if not self.rereadable:
                raise TableError(f"{self.source}: a stream cannot resume at an earlier offset; name a file")
            try:
                self._check_offset(offset)
            except TableError:
                raise
            except (LookupError, TypeError, ValueError):
                raise TableError(
                    f"{self.source}: expected an offset as Chunk.offset gives it but got {offset!r}; begin anew"
                ) from None
        self._after = offset

    def chunks(self, n_rows: int) -> Iterator[Chunk]:
        """Yield the rows in chunks of at most n_rows; rows of a pipe are returned as they arrive, in smaller chunks.

        Raises
        ------
        TableError
            There are no rows; or a row has another width, text, or a missing or infinite number, unless such rows are
            skipped, or gaps are taken.
        """
        if n_rows < 1:
            raise TableError(f"{self.source}: expected chunks of at least 1 row but got {n_rows}; ask for more")
        d, empty = len(self.columns.features), self._after is None
        self.n_skipped, self.first_skipped = 0, None
        for values, times, position, offsets, bad, reason in self._blocks(n_rows):
            self.first_skipped = self.first_skipped or reason
            counted = 0
            for start in range(0, len(values), n_rows):
                rows = slice(start, start + n_rows)
                # Rows left out count with the chunk that follows them, so that its offset agrees with the count.
                passed = int(np.searchsorted(bad, rows.stop, side="left")) if rows.stop < len(values) else len(bad)
                self.n_skipped += passed - counted
                counted, empty = passed, False
                yield Chunk(
                    np.ascontiguousarray(values[rows, :d]),
                    None if self.columns.labels is None else values[rows, d].copy(),
                    position,
                    None if times is None else times[rows],
                    None if offsets is None else offsets[rows],
                )
            self.n_skipped += len(bad) - counted
        if empty:
            skipped = f" ({self.n_skipped} skipped, the first: {self.first_skipped})" if self.n_skipped else ""
            drop = "leave columns that are not numbers out (--drop A,B,...), or " if self.n_skipped else ""
            raise TableError(
                f"{self.source}: it has no rows of numbers{skipped}; {drop}give a table with at least one row"
            )


class BinaryTable(Table):
    """Rows of a binary format, whose offsets are row numbers."""

    _format: str

    @property
    def _first_row(self) -> int:
        return 0 if self._after is None else int(self._after["row"])

    def _most_rows(self, n_rows: int) -> int:
        """Return how many rows to read at a time: `n_rows`, or fewer of a table of many columns."""
        return max(1, min(n_rows, _MOST_NUMBERS // len(self.columns.names)))

    def _make_block(self, values: Array, first_row: int, times: list[Time] | None) -> Block:
        """Make a block of rows counted from 0; refuse bad ones, or leave them out."""
        position = first_row + len(values)
        ends = np.arange(first_row + 1, position + 1)
        good, refused = self._screened(values)
        bad: Counts = np.zeros(0, dtype=np.int64)
        reason = None
        if not good.all():
            row = int(np.flatnonzero(~good if self.skips or not refused.any() else refused)[0])
            what, remedy = self._fault(values[row])
            reason = f"{self.source}, row {first_row + row} (from 0): {what}"
            if refused[row] and not self.skips:
                raise TableError(f"{reason}; {remedy}")
            bad = np.cumsum(good, dtype=np.int64)[~good]
            values, ends = values[good], ends[good]
            times = None if times is None else list(compress(times, good))
        if len(ends):
            ends[-1] = position
        common = {"format": self._format, "names": list(self.columns.names)}
        offsets = Offsets(common, {"row": ends}) if self.rereadable else None
        return Block(values, times, position, offsets, bad, reason)

    def _fault(self, row: Array) -> tuple[str, str]:
        """Say why a row (len(columns.wanted),) is not used, and what can be done."""
        missing, faults = np.isnan(row), ~np.isfinite(row)
        d = len(self.columns.features)
        # Where gaps are no faults, another number may be one.
        worse = np.isinf(row) | (missing & (np.arange(len(row)) >= d))
        if self.on_missing != "raise" and worse.any():
            faults = worse
        elif self.on_missing == "marginal":
            return NO_NUMBER, remedy_for_row()
        i = int(np.flatnonzero(faults)[0])
        j = self.columns.wanted[i]
        what = f"{self.columns.called(j)} {'is missing (NaN)' if missing[i] else 'is infinite'}"
        return what, remedy_for_row(self.columns.option(j), missing=bool(missing[i]) and i < d)

    def _check_offset(self, offset: Mapping[str, Any]) -> None:
        """Refuse a row number beyond this file's rows, or of a file with another format or other columns."""
        if int(offset["row"]) < 0:
            raise ValueError(offset)
        if offset["format"] != self._format or list(offset["names"]) != list(self.columns.names):
            raise TableError(
                f"{self.source}: expected the file that was read earlier, {offset['format']} with columns "
                f"{list_names(offset['names'])}, but it is {self._format} with {list_names(self.columns.names)}; "
                "name that file, or begin anew"
            )
        if self.total is not None and offset["row"] > self.total:
            raise TableError(
                f"{self.source}: expected at least the {offset['row']} rows that were read earlier but it has "
                f"{self.total}; name that file, or begin anew"
            )


# What is wrong with a row all of whose features are missing, where gaps are taken.
NO_NUMBER = "no column has a value"


def remedy_for_row(column: str | None = None, *, text: bool = False, missing: bool = False) -> str:
    """Tell what can be done about a bad row.

    `column` is the column at fault, as an option takes it; `text` tells that it holds text, which may be the time, and
    `missing` that it holds nothing.
    """
    rows = "correct or remove such rows, or skip them (--on-bad-rows skip)"
    if missing:
        rows = rows.replace("or skip", "skip") + ", or learn with the gaps (--on-missing marginal)"
    if column is None:
        return rows
    beside = f"; a time can stay beside the rows (--time {column})" if text else ""
    return f"leave the column out (--drop {column}), {rows}{beside}"


# How tables spell that a value is missing.
MISSING = ("", "na", "n/a", "nan", "-nan", "null", "none", "#n/a", "#na", "?")


@lru_cache(maxsize=2**16)
def category_cell(cell: Any) -> Any:
    """Return a category without the blanks around it, None if it is missing; numbers stay."""
    if not isinstance(cell, str):
        return cell
    text = cell.strip()
    return None if text.lower() in MISSING else text


def time_values(column: npt.NDArray[Any], zone: str = "") -> list[Time]:
    """Convert an array (n,) of numbers, text or dates into `Chunk.times`; `zone` is written after each date.

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
    """Cut rows anew, so that every chunk but the last has n_rows rows."""
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


def check_same_columns(first: Table, other: Table) -> None:
    """Refuse a table whose columns differ from the first's: in number, or in their names if both files have names."""
    expected, got = first.columns.feature_names, other.columns.feature_names
    if len(expected) != len(got):
        raise TableError(
            f"{other.source}: expected {len(expected)} columns (as in {first.source}) but got {len(got)}; "
            "choose the same columns with --columns or --drop"
        )
    if first.columns.named and other.columns.named and expected != got:
        j = next(j for j, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b)
        raise TableError(
            f"{other.source}: expected column {expected[j]!r} at position {j} (as in {first.source}) but got "
            f"{got[j]!r}; choose the same columns in the same order with --columns"
        )
