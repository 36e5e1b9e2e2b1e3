"""A table in batches of numbers: parts become blocks of rows, and each stage is a function of blocks."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyarrow import compute

from streamkpca._core.arrays import Array
from streamkpca.tables.cells import Bools, Form, read_numbers
from streamkpca.tables.choice import Asked, Look, Reading
from streamkpca.tables.errors import TableError, drop_hint, list_names, reading_errors, short
from streamkpca.tables.parts import Counts, Part, Reader, Start
from streamkpca.tables.source import Source
from streamkpca.tables.text import COMMENT, NAMES_AGAIN
from streamkpca.tables.times import has_day, join_texts, read_times

_SHOWN_BAD_ROWS = 5
_LISTED_ROWS = 100_000
# Usual steps without rows that are told, and how often.
_SILENCE = 50
_SHOWN_SILENCES = 3
_SKIP = "correct such rows, or skip them (--on-bad-rows skip)"
_FILL = "fill such gaps, skip these rows (--on-missing skip), or learn with the gaps (--on-missing marginal)"
NO_TIME, NO_LABEL, NO_NUMBER, A_GAP = "no time", "no label", "no number", "a gap"
OTHER_TAG, NO_KEY = "another tag", "no machine"
# Rows of these kinds are no rows of the table, so they never stop it.
_PASSED = (COMMENT, NAMES_AGAIN)
# The most numbers of a table that is put in order of time in memory: 256 MB.
_MOST_SORTED = 2**25


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


_ARRAYS = ("rows", "numbers", "times", "labels", "after", "strange", "keys", "state")


@dataclass(frozen=True)
class Block:
    """Rows between two stages; see `Part` and `Batch`.

    strange (n, d): cells that hold something that is no number, with texts of the first ones in `examples`. keys (n,):
    tag or machine of a row. state (n, s): what counters need to go on after a row.
    """

    rows: Counts
    numbers: Array
    times: npt.NDArray[Any] | None
    labels: Array | None
    after: Counts
    done: int
    bad: Sequence[tuple[int, str, str]] = ()
    strange: Bools | None = None
    examples: Mapping[tuple[int, int], str] = field(default_factory=dict)
    keys: npt.NDArray[Any] | None = None
    state: Array | None = None
    n_read: int = 0

    def __getitem__(self, part: Any) -> "Block":
        arrays: Any = {name: None if (a := getattr(self, name)) is None else a[part] for name in _ARRAYS}
        return replace(self, **arrays, examples={}, bad=(), n_read=0)


class Table:
    """A file or a stream whose rows are read in batches; `open_table` makes it.

    names: the columns of `Batch.numbers`, "0", "1", ... if not `named` by the file. reading: how they are read. unit:
    what `Batch.rows` counts, "line" or "row". total: size in the unit of `Batch.done`, None if unknown. rereadable:
    whether `batches` can be called again. notes: warnings for the user, to which reading adds. look: what the
    first rows have shown. dialect: how text is cut. n_above: lines above
    its rows. key: the one
    machine whose rows are read. sorts: whether rows are put in order of time. n_read, n_bad: how many rows
    `batches` has met so far, and left out; bad_kinds, bad_examples: how many of each kind, and the first of them.
    gap_kinds: by column, how many cells held something else than a number, and the first of them.
    """

    def __init__(
        self,
        source: Source,
        reader: Reader,
        reading: Reading,
        forms: Mapping[int, Form | None],
        look: Look,
        asked: Asked,
        *,
        start: Start,
        sorts: bool,
    ) -> None:
        self.path, self.notes = source.name, source.notes
        self._reader, self.reading, self._forms, self.look, self._asked = reader, reading, forms, look, asked
        self.names, self.named, self.unit = reading.columns, reader.named, reader.unit
        self.total, self.rereadable, self.time_names = reader.total, reader.rereadable, reading.time
        self.dialect, self.n_above, self.key = reader.dialect, reader.n_above, asked.by and asked.by[1]
        self._start, self.sorts, self._is_utc = start, sorts, look.is_utc
        self._place = {name: j for j, name in enumerate(reader.names)}
        self._forget()

    def _forget(self) -> None:
        self.n_read, self.n_bad, self.bad_examples = 0, 0, list[str]()
        self._latest, self._n_silences = None, 0
        self.bad_kinds, self.gap_kinds, self._first_gaps = Counter[str](), Counter[str](), dict[str, str]()

    def clock(self, time: Any) -> str | float:
        """Write a time as a number, or as ISO 8601 with Z if the file names a zone, without a year that it lacks."""
        if not isinstance(time, np.datetime64):
            return float(time)
        text: str = np.datetime_as_string(time, unit="s" if time == time.astype("datetime64[s]") else "auto")
        form = self.reading.time_format or ""
        has_year = "%" not in form or any(sign in form for sign in ("%Y", "%y", "%F"))
        return f"{text if has_year else text[5:] if has_day(form) else text[11:]}{'Z' * self._is_utc}"

    def list_texts(self, name: str) -> list[str]:
        """List what stands in a column, in order."""
        if name not in self._place:
            raise TableError(f"{self.path}: no column {short(name)!r}; it has {list_names(list(self._place))}")
        found, j = set[str](), self._place[name]
        with reading_errors(self.path):
            for part in self._reader.parts([j], _LISTED_ROWS, None):
                found |= set(compute.unique(join_texts([part.cells[j]]).drop_null()).to_pylist())
        return sorted(found)

    def batches(self, n_rows: int) -> Iterator[Batch]:
        """Read the rows in batches of at most `n_rows`; those of a pipe or a followed file come as they arrive."""
        self._forget()
        is_empty = self._start is None
        with reading_errors(self.path):
            for block in self._blocks(n_rows):
                kept = self._screen(block)
                for begin in range(0, len(kept.rows), n_rows):
                    part, is_empty = kept[begin : begin + n_rows], False
                    self._tell_silence(part.times)
                    yield Batch(
                        part.rows,
                        np.ascontiguousarray(part.numbers),
                        part.times,
                        part.labels,
                        self._position(part),
                        part.done,
                    )
        if is_empty:
            skipped = f" ({self.n_bad} skipped, the first: {self.bad_examples[0]})" if self.n_bad else ""
            raise TableError(f"{self.path}: it has no rows of numbers{skipped}; give a table with at least one row")

    def _tell_silence(self, times: Any) -> None:
        """Note times without rows, the first of them."""
        if times is None or self.look.step is None:
            return
        steps = np.diff(times, prepend=times[:1] if self._latest is None else self._latest)
        for i in np.flatnonzero(steps > _SILENCE * self.look.step)[: _SHOWN_SILENCES - self._n_silences]:
            self.notes.append(f"{self.path}: no rows from {self.clock(times[i] - steps[i])} to {self.clock(times[i])}")
            self._n_silences += 1
        self._latest = times[-1:]

    def _blocks(self, n_rows: int) -> Iterator[Block]:
        """Read parts, and put their rows through the stages."""
        reading, place = self.reading, self._place
        columns = [reading.wide[1]] if reading.wide else list(reading.columns)
        key = reading.wide[0] if reading.wide else self._asked.by and self._asked.by[0]
        others = [*reading.time, *filter(None, [self._asked.labels, key])]
        wanted = list(dict.fromkeys(place[name] for name in (*columns, *others)))
        parts = self._reader.parts(wanted, n_rows, self._start)
        blocks: Iterator[Block] = (self._convert(part, columns, key) for part in parts)
        if self._asked.by is not None:
            blocks = _choose_key(blocks, self._asked.by[1])
        if reading.time_format and not has_day(reading.time_format):
            blocks = _count_days(blocks)
        if self.sorts:
            blocks = _sort_by_time(blocks, self.path, len(columns))
        if reading.wide:
            blocks = _widen(blocks, reading.columns)
        if reading.differences:
            state = (self._start or {}).get("counters")
            blocks = _subtract(blocks, [reading.columns.index(name) for name in reading.differences], state)
        return blocks

    def _convert(self, part: Part, columns: Sequence[str], key: str | None) -> Block:
        """Read the cells of a part as numbers and times."""
        n, place = len(part.rows), self._place
        numbers, strange = np.empty((n, len(columns))), np.zeros((n, len(columns)), bool)
        examples: dict[tuple[int, int], str] = {}
        for c, name in enumerate(columns):
            cells = part.cells[place[name]]
            numbers[:, c], odd = read_numbers(cells, self._forms[place[name]] or Form())
            if odd is not None:
                strange[:, c] = odd
                examples |= {
                    (int(i), c): f"{short(str(cells[int(i)].as_py()))!r}, which is no number" for i in _first(odd)
                }
            if gaps := self.reading.gaps.get(name):
                odd = np.isin(numbers[:, c], gaps)
                strange[:, c] |= odd
                examples |= {
                    (int(i), c): f"{numbers[i, c]:g}, which stands for a gap (--gaps none)" for i in _first(odd)
                }
                numbers[odd, c] = np.nan
        times, labels, keys = None, None, None
        if self.reading.time:
            times, is_utc = read_times(
                [part.cells[place[name]] for name in self.reading.time], str(self.reading.time_format)
            )
            self._is_utc |= is_utc
        if self._asked.labels is not None:
            labels = read_numbers(
                part.cells[place[self._asked.labels]], self._forms[place[self._asked.labels]] or Form()
            )[0]
        if key is not None:
            keys = np.array(join_texts([part.cells[place[key]]]).fill_null("").to_pylist(), object)
        bad = list(part.bad)
        return Block(
            part.rows, numbers, times, labels, part.after, part.done, bad, strange, examples, keys, n_read=n + len(bad)
        )

    def _position(self, block: Block) -> dict[str, Any] | None:
        """Make the position after the last row of a block."""
        position = None if self.sorts else self._reader.position(block.after[-1])
        if position is not None and block.state is not None:
            position["counters"] = [None if np.isnan(one) else float(one) for one in block.state[-1]]
        return position

    def _screen(self, block: Block) -> Block:
        """Leave out rows with faults or gaps, as the options say; refuse or count them in the order of the file."""
        n = len(block.rows)
        self.n_read += block.n_read
        gaps = np.isnan(block.numbers)
        no_time = np.zeros(n, bool) if block.times is None else ~np.isfinite(block.times)
        no_label = np.zeros(n, bool) if block.labels is None else np.isnan(block.labels)
        no_number: Any = gaps.all(axis=1)
        out: Bools = no_time | no_label | (no_number if self._asked.on_missing == "marginal" else gaps.any(axis=1))
        found = [(row, kind, detail, -1) for row, kind, detail in block.bad]
        for i in map(int, np.flatnonzero(out)):
            kind = NO_TIME if no_time[i] else NO_LABEL if no_label[i] else NO_NUMBER if no_number[i] else A_GAP
            found.append((int(block.rows[i]), kind, "", i))
        for row, kind, detail, i in sorted(found):
            is_gap = kind in (NO_NUMBER, A_GAP)
            remedy = (
                (_FILL if self._asked.on_missing == "raise" else "") if is_gap else "" if kind in _PASSED else _SKIP
            )
            stops = bool(remedy) and self._asked.on_bad_rows == "raise"
            self.n_bad += 1
            self.bad_kinds[kind] += 1
            tells = self._asked.follow and str(self.bad_kinds[kind]).strip("0") == "1"
            if stops or tells or len(self.bad_examples) < _SHOWN_BAD_ROWS:
                where = f"{self.path}, {self.unit} {row}{' (from 0)' if self.unit == 'row' else ''}"
                told = f"{where}: {detail or self._describe(block, i, kind)}"
                if stops:
                    raise TableError(f"{told}; {remedy}")
                self.bad_examples += [told][: len(self.bad_examples) < _SHOWN_BAD_ROWS]
                self.notes += [f"{told}; left out, {self.bad_kinds[kind]:,} so far"][:tells]
        kept = np.flatnonzero(~out)
        if block.strange is not None and block.strange[kept].any():
            self._count_gaps(block, kept)
        # Rows left out at the end are passed over too.
        block.after[kept[-1:]] = block.after[-1:]
        return block[kept] if out.any() else block

    def _count_gaps(self, block: Block, kept: Counts) -> None:
        """Count the cells of the kept rows that hold something else than a number."""
        assert block.strange is not None
        counts = block.strange[kept].sum(axis=0)
        for c in np.flatnonzero(counts):
            name, before = self.names[c], self.gap_kinds[self.names[c]]
            self.gap_kinds[name] += int(counts[c])
            if not before:
                i = int(kept[np.argmax(block.strange[kept, c])])
                self._first_gaps[name] = f"{self.unit} {block.rows[i]} holds {block.examples.get((i, int(c)), 'text')}"
            if self._asked.follow and (not before or len(str(before)) < len(str(self.gap_kinds[name]))):
                self.notes.append(self.describe_gaps(name))

    def describe_gaps(self, name: str) -> str:
        """Say how many cells of a column held something else than a number, and the first of them."""
        n = self.gap_kinds[name]
        return f"{self.path}, column {short(name)!r}: cells taken for gaps: {n:,}, the first: {self._first_gaps[name]}"

    def _describe(self, block: Block, i: int, kind: str) -> str:
        """Say what is wrong with row i of a block."""
        if kind == NO_TIME:
            return f"column {short(' '.join(self.time_names))!r} has no time in the form {self.reading.time_format}"
        if kind == NO_LABEL:
            return f"column {short(str(self._asked.labels))!r} has no number ({drop_hint(str(self._asked.labels))})"
        j = int(np.argmax(np.isnan(block.numbers[i])))
        text = block.examples.get((i, j))
        what = "has no value" if text is None else f"holds {text}"
        return f"column {short(self.names[j])!r} {what} ({drop_hint(self.names[j])})"


def _first(cells: Bools) -> npt.NDArray[Any]:
    """Return the positions of the first of some cells, of which texts are kept."""
    return np.flatnonzero(cells)[:_SHOWN_BAD_ROWS]


def _choose_key(blocks: Iterator[Block], key: str) -> Iterator[Block]:
    """Keep the rows of one machine."""
    for block in blocks:
        kept, lost = block[np.flatnonzero(block.keys == key)], np.flatnonzero(block.keys == "")
        bad = [*block.bad, *((int(block.rows[i]), NO_KEY, "names no machine") for i in lost)]
        yield replace(kept, bad=bad, n_read=len(kept.rows) + len(bad))


def _count_days(blocks: Iterator[Block]) -> Iterator[Block]:
    """Let hours that have no day go on after midnight."""
    last, days = None, np.timedelta64(0, "D")
    for block in blocks:
        times: Any = block.times
        if len(times):
            steps = np.diff(times, prepend=times[:1] if last is None else last)
            n_days = np.cumsum(steps < np.timedelta64(-12, "h"))
            last, times = times[-1:], times + days + n_days * np.timedelta64(1, "D")
            days += n_days[-1] * np.timedelta64(1, "D")
        yield replace(block, times=times)


def _sort_by_time(blocks: Iterator[Block], path: str, n_columns: int) -> Iterator[Block]:
    """Put all rows in order of time, in memory."""
    parts, n = list[Block](), 0
    for block in blocks:
        parts.append(block)
        n += len(block.rows)
        if n * n_columns > _MOST_SORTED:
            raise TableError(
                f"{path}: its rows are not in order of time, and too many to be sorted here; sort the file"
            )
    if not parts:
        return

    def join(name: str) -> Any:
        arrays = [getattr(part, name) for part in parts]
        return None if arrays[0] is None else np.concatenate(arrays)

    whole = Block(**{name: join(name) for name in _ARRAYS}, done=parts[-1].done)
    times: Any = whole.times
    order = np.argsort(times, kind="stable")
    if np.mean(times[1:] < times[:-1]) > 0.5:
        # The newest come first within one time, too.
        order = len(order) - 1 - np.argsort(times[::-1], kind="stable")
    bad = [one for part in parts for one in part.bad]
    yield replace(whole[order], bad=bad, n_read=sum(part.n_read for part in parts))


@dataclass
class _Row:
    """A row that is made of several: its number and time are those of the first, and `after` is of the last."""

    number: int
    time: Any
    after: Any
    cells: dict[int, tuple[float, bool, str | None]] = field(default_factory=dict)


def _widen(blocks: Iterator[Block], tags: Sequence[str]) -> Iterator[Block]:
    """Make one row of the values of all tags, in their order; it ends where a tag comes that stood before.

    Within one time, tags come in any order.
    """
    places, row, last = {tag: j for j, tag in enumerate(tags)}, _Row(0, None, None), None
    for last in blocks:
        made, bad, keys, strange = list[_Row](), list(last.bad), last.keys, last.strange
        assert keys is not None
        assert strange is not None
        for i, key in enumerate(keys):
            if (j := places.get(key)) is None:
                bad.append((int(last.rows[i]), OTHER_TAG, f"{key[:40]!r} is none of the tags of the first rows"))
                continue
            time = None if last.times is None else last.times[i]
            if (
                not row.cells
                or j in row.cells
                or (j < next(reversed(row.cells)) and (time is None or time != row.time))
            ):
                made += [row] if row.cells else []
                row = _Row(int(last.rows[i]), time, None)
            row.cells[j] = float(last.numbers[i, 0]), bool(strange[i, 0]), last.examples.get((i, 0))
            row.after = last.after[i]
            if len(row.cells) == len(tags):
                made.append(row)
                row = _Row(0, None, None)
        yield _join_rows(made, last, len(tags), bad)
    if last is not None and row.cells:
        yield _join_rows([row], last, len(tags), [])


def _join_rows(made: Sequence[_Row], last: Block, n_tags: int, bad: list[tuple[int, str, str]]) -> Block:
    """Make a block of rows."""
    shape = len(made), n_tags
    numbers, strange, examples = np.full(shape, np.nan), np.zeros(shape, bool), dict[tuple[int, int], str]()
    for i, row in enumerate(made):
        for j, (value, is_strange, text) in row.cells.items():
            numbers[i, j], strange[i, j] = value, is_strange
            examples |= {} if text is None else {(i, j): text}
    return Block(
        rows=np.array([row.number for row in made], int),
        numbers=numbers,
        times=None if last.times is None else np.array([row.time for row in made], last.times.dtype),
        labels=None,
        after=np.array([row.after for row in made], int).reshape(-1, 2),
        done=last.done,
        bad=bad,
        strange=strange,
        examples=examples,
        n_read=len(made) + len(bad),
    )


def _subtract(blocks: Iterator[Block], columns: Sequence[int], state: Sequence[float | None] | None) -> Iterator[Block]:
    """Replace counters by what they rise in a row, from zero on where they begin again.

    What they have risen over a gap is shared by its rows.
    """
    n = len(columns)
    last, since = np.array([np.nan if one is None else one for one in state or [None] * 2 * n], float).reshape(2, n)
    for block in blocks:
        numbers, states = block.numbers.copy(), np.empty((len(block.rows), 2, n))
        for c, j in enumerate(columns):
            values = np.concatenate([last[c : c + 1], numbers[:, j]])
            # The place of the latest value that is known, at each row.
            known = np.maximum.accumulate(np.where(np.isnan(values), 0, np.arange(len(values))))
            filled, age = values[known], np.arange(len(values)) - known
            age = np.where(known == 0, age + np.nan_to_num(since[c]), age)
            rises = values[1:] - filled[:-1]
            numbers[:, j] = np.where(rises < 0.0, values[1:], rises) / (age[:-1] + 1.0)
            states[:, 0, c], states[:, 1, c] = filled[1:], age[1:]
        last, since = states[-1] if len(states) else (last, since)
        yield replace(block, numbers=numbers, state=states.reshape(len(states), -1))
