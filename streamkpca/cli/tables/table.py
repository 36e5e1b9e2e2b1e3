"""The parts that all formats share: the choice of columns, rows in batches, bad rows and gaps, and the error."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from click import ClickException

from streamkpca.cli.console import written_names

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Start = Mapping[str, Any] | None
Learned = Sequence[str] | int

# A table of more columns has rows and columns exchanged, or is none.
MOST_COLUMNS = 2**20
# What libraries raise that did not expect such a file.
_STUMBLES = (LookupError, TypeError, AttributeError, RecursionError)
_SHOWN_NAMES = 8
_SHOWN_LETTERS = 60
_SHOWN_BAD_ROWS = 5
_SKIP = "correct such rows, or skip them (--on-bad-rows skip)"
_FILL = "fill such gaps, skip these rows (--on-missing skip), or learn with the gaps (--on-missing marginal)"


class TableError(ValueError):
    """Raised when a file cannot be read as a table; the message is one line, even where names hold line ends."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.encode("utf-8", "replace").decode().split()))


@contextmanager
def reading_errors(path: str) -> Iterator[None]:
    """Turn whatever a library raises over damaged bytes into a TableError that names the file."""
    try:
        yield
    except (TableError, ClickException):
        # The handler of a signal may raise the second while rows are awaited.
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or (str(error).splitlines() or [""])[0].rstrip(".:")[:200]
        if isinstance(error, MemoryError):
            reason = "it claims to need more memory than there is"
        elif not reason or " at 0x" in reason or isinstance(error, _STUMBLES):
            reason = "its parts contradict each other"
        remedy = "check that the file is complete and has the format it claims"
        raise TableError(f"{path}: cannot be read ({reason}); {remedy}") from None


def short(text: str) -> str:
    """Cut text from a file to a length that an error can quote."""
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."


def drop_hint(name: str) -> str:
    """Say how a column is left out."""
    return f"to leave the column out: --drop {shlex.quote(written_names([short(name)]))}"


def list_names(names: Sequence[str]) -> str:
    """List the first of some names."""
    return ", ".join([*map(short, names[:_SHOWN_NAMES]), *["..."][: len(names) > _SHOWN_NAMES]])


class Batch(NamedTuple):
    """Consecutive rows that were kept.

    rows (n,): their numbers in the file, lines of text from 1 with the header, other rows from 0. numbers (n, d):
    C-contiguous float64, NaN in gaps. times, labels (n,): the columns asked for; dates are datetime64[ns], in UTC where
    the file names a zone. position: where `open_table` goes on after these rows, as JSON; None for streams. done: how
    much was read so far, in the unit of `Table.total`.
    """

    rows: Counts
    numbers: Array
    times: npt.NDArray[Any] | None
    labels: Array | None
    position: dict[str, Any] | None
    done: int


@dataclass(frozen=True)
class Block:
    """Rows as a format reads them: `numbers` (n, k) are those of the features, then the labels.

    `after` (n, 2) holds, for each row, what `Reader.position` needs to go on after it; `bad` holds the numbers and
    faults of rows that are left out already. For the others see `Batch`.
    """

    rows: Counts
    numbers: Array
    times: npt.NDArray[Any] | None
    after: Counts
    done: int
    bad: Sequence[tuple[int, str]] = ()

    def __getitem__(self, part: Any) -> "Block":
        times = None if self.times is None else self.times[part]
        return Block(self.rows[part], self.numbers[part], times, self.after[part], self.done)


class Reader(Protocol):
    """One format; texts are the positions of the columns without numbers, and for the others see `Table`."""

    names: list[str]
    named: bool
    texts: set[int]
    dialect: dict[str, Any]
    unit: str
    total: int | None
    rereadable: bool

    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse a position that is not one of this file."""

    def sample(self, column: int) -> Any:
        """Return the first cells of a column: a list of text, or numbers (n,) with NaN in gaps."""

    def blocks(self, wanted: list[int], times: Any, n_rows: int, start: Start) -> Iterator[Block]:
        """Yield the columns at these positions, in blocks of any size, from a position on."""

    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row."""


class Chosen(NamedTuple):
    """Positions of columns: features in order, those of the time, labels, and texts that nobody asked for."""

    features: list[int]
    time: list[int]
    labels: int | None
    left_out: list[int]


class Table:
    """A file or a stream whose rows are read in batches; `open_table` makes it.

    names: the columns of `Batch.numbers`, "0", "1", ... if not `named` by the file. left_out: columns without numbers
    that nobody asked for. unit: what `Batch.rows` counts, "line" or "row". total: size in the unit of `Batch.done`,
    None if unknown. rereadable: whether `batches` can be called again. notes: warnings for the user, to which a
    followed file adds. look: what a look at the first rows has shown, if there was one. n_bad, bad_examples: how many
    rows `batches` has left out so far, and the first of them.
    """

    def __init__(
        self,
        path: str,
        reader: Reader,
        chosen: Chosen,
        times: Any,
        notes: list[str],
        *,
        skips: bool,
        on_missing: str,
        start: Start,
        look: Any = None,
    ) -> None:
        self.path, self._reader, self._chosen, self._times, self.notes = path, reader, chosen, times, notes
        self.names = tuple(reader.names[j] for j in chosen.features)
        self.named, self.unit, self.total, self.rereadable = reader.named, reader.unit, reader.total, reader.rereadable
        self.left_out = tuple(reader.names[j] for j in chosen.left_out)
        self.time_names, self.time_format = tuple(reader.names[j] for j in chosen.time), times.format
        self.dialect, self.look = reader.dialect, look
        self.n_bad, self.bad_examples = 0, list[str]()
        self._wanted = [*chosen.features, *([] if chosen.labels is None else [chosen.labels])]
        self._skips, self._on_missing, self._start = skips, on_missing, start

    def clock(self, time: Any) -> str | float:
        """Write a time as a number, or as ISO 8601 with Z if the file names a zone."""
        if not isinstance(time, np.datetime64):
            return float(time)
        text: str = np.datetime_as_string(time, unit="s" if time == time.astype("datetime64[s]") else "auto")
        return f"{text}{'Z' * self._times.is_utc}"

    def batches(self, n_rows: int) -> Iterator[Batch]:
        """Read the rows in batches of at most `n_rows`; those of a pipe or a followed file come as they arrive."""
        self.n_bad, self.bad_examples, is_empty, d = 0, [], self._start is None, len(self.names)
        with reading_errors(self.path):
            for block in self._reader.blocks(self._wanted, self._times, n_rows, self._start):
                kept = self._screened(block)
                for begin in range(0, len(kept.rows), n_rows):
                    part, is_empty = kept[begin : begin + n_rows], False
                    numbers, position = np.ascontiguousarray(part.numbers[:, :d]), self._reader.position(part.after[-1])
                    labels = None if self._chosen.labels is None else part.numbers[:, d]
                    yield Batch(part.rows, numbers, part.times, labels, position, part.done)
        if is_empty:
            skipped = f" ({self.n_bad} skipped, the first: {self.bad_examples[0]})" if self.n_bad else ""
            raise TableError(f"{self.path}: it has no rows of numbers{skipped}; give a table with at least one row")

    def _screened(self, block: Block) -> Block:
        """Leave out rows with faults or gaps, as the options say; refuse or count them in the order of the file."""
        d = len(self.names)
        gaps = np.isnan(block.numbers[:, :d])
        faulty: npt.NDArray[np.bool_] = np.logical_or.reduce(np.isinf(block.numbers), axis=1)
        faulty |= np.isnan(block.numbers[:, d:]).any(axis=1)
        faulty |= False if block.times is None else ~np.isfinite(block.times)
        out = np.flatnonzero(faulty | (gaps.all(axis=1) if self._on_missing == "marginal" else gaps.any(axis=1)))
        kept = np.setdiff1d(np.arange(len(gaps)), out)
        found = [(row, fault, _SKIP) for row, fault in block.bad]
        for i in out:
            remedy = _SKIP if faulty[i] else _FILL if self._on_missing == "raise" else ""
            found.append((int(block.rows[i]), self._fault(block, i), remedy))
        for row, fault, remedy in sorted(found):
            told = f"{self.path}, {self.unit} {row}{' (from 0)' if self.unit == 'row' else ''}: {fault}"
            if remedy and not self._skips:
                raise TableError(f"{told}; {remedy}")
            self.n_bad += 1
            self.bad_examples += [told][: len(self.bad_examples) < _SHOWN_BAD_ROWS]
        # Rows left out at the end are passed over too.
        block.after[kept[-1:]] = block.after[-1:]
        return block[kept] if len(out) else block

    def _fault(self, block: Block, i: Any) -> str:
        """Say what is wrong with row i of a block."""
        if block.times is not None and not np.isfinite(block.times[i]):
            return f"column {short(' '.join(self.time_names))!r} has no time"
        # An infinity is worse than a missing label, and that is worse than a gap.
        worst = np.where(np.isnan(block.numbers[i]), np.arange(len(self._wanted)) >= len(self.names), -1)
        worst[np.isinf(block.numbers[i])] = 2
        j = int(np.argmax(worst))
        name, what = self._reader.names[self._wanted[j]], "is infinite" if worst[j] == 2 else "has no value"
        return f"column {short(name)!r} {what} ({drop_hint(name)})"


def distinct(names: Sequence[str]) -> list[str]:
    """Append the position to a name that came before.

    >>> distinct(["x", "y", "x"])
    ['x', 'y', 'x.2']
    """
    first: dict[str, int] = {}
    named = [name or str(j) for j, name in enumerate(names)]
    return [name if first.setdefault(name, j) == j else f"{name}.{j}" for j, name in enumerate(named)]


def check_width(path: str, n_columns: int) -> None:
    """Refuse a table of more columns than any has, before they are named."""
    if not 0 < n_columns <= MOST_COLUMNS:
        raise TableError(f"{path}: expected 1 to {MOST_COLUMNS:,} columns but got {n_columns}; transpose the table")


def choose_columns(
    path: str,
    reader: Reader,
    columns: Sequence[str],
    drop: Sequence[str],
    time: Sequence[str],
    labels: str | None,
    learned: Learned,
) -> Chosen:
    """Apply the options of `open_table` to the columns of a file."""
    names = reader.names
    positions = {name: j for j, name in enumerate(names)}

    def find(wanted: str) -> int:
        if wanted in positions:
            return positions[wanted]
        known = f"it has {len(names):,}: {list_names(names)}; give one of these names, or rename the file's columns"
        raise TableError(f"{path}: no column {short(wanted)!r}; {known}")

    times, label = [find(name) for name in time], None if labels is None else find(labels)
    out = {find(name) for name in drop} | {*times, label}
    left_out: list[int] = []
    if columns:
        wanted = [find(name) for name in columns]
    elif reader.named and learned and not isinstance(learned, int):
        wanted = [find(name) for name in learned]
    else:
        wanted = [j for j in range(len(names)) if j not in reader.texts]
        left_out = sorted(reader.texts - out)
    features = [j for j in dict.fromkeys(wanted) if j not in out]
    found = list_names([names[j] for j in features])
    if not features:
        remedy = "choose others with --columns, --drop, --time or --labels"
        raise TableError(f"{path}: no column of numbers is left of {list_names(names)}; {remedy}")
    n_learned = learned if isinstance(learned, int) else len(learned)
    if n_learned not in (0, len(features)):
        remedy = "choose the same columns with --columns or --drop"
        raise TableError(
            f"{path}: expected {n_learned} columns (as learned) but got {len(features)}: {found}; {remedy}"
        )
    return Chosen(features, times, label, left_out)
