"""A table in batches of numbers: parts become blocks of rows, and each stage is a function of blocks."""

from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyarrow import compute

from streamkpca._core.arrays import Array
from streamkpca.tables.choice import Asked, Look, Reading
from streamkpca.tables.errors import TableError, drop_hint, list_names, reading_errors, short
from streamkpca.tables.numbers import Bools, Form, read_numbers
from streamkpca.tables.parts import Counts, Part, Reader, Start
from streamkpca.tables.text import COMMENT, NAMES_AGAIN, OTHER_WIDTH
from streamkpca.tables.times import has_day, join_texts, read_times

_SHOWN_BAD_ROWS = 5
_LISTED_ROWS = 100_000
# Usual steps without rows, or rows without a number of a column at the end, that are told, and how often.
_SILENCE = 50
_SHOWN_SILENCES = 3
# Share of the rows: a column that has a number a day has none in some rows at the end.
_LEAST_SILENT = 0.1
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


_ARRAYS = ("rows", "numbers", "texts", "times", "labels", "keys", "after")


@dataclass(frozen=True)
class Block:
    """Rows between two stages; see `Part` and `Batch`.

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
    done: int
    bad: Sequence[tuple[int, str, str]]
    state: list[list[float | None]] | None = None

    def __getitem__(self, part: Any) -> "Block":
        arrays: Any = {name: None if (a := getattr(self, name)) is None else a[part] for name in _ARRAYS}
        return replace(self, **arrays)


class Table:
    """A file or a stream whose rows are read once, in batches; `open_table` makes it.

    names: the columns of `Batch.numbers`, "0", "1", ... if not `named` by the file. reading: how they are read. unit:
    what `Batch.rows` counts, "line" or "row". total: size in the unit of `Batch.done`, None if unknown. rereadable:
    whether the file can be opened again. notes: warnings for the user, to which reading adds. look: what the first rows
    have shown. dialect: how text is cut. n_above: lines above its rows. key: the one machine whose rows are read.
    sorts: whether rows are put in order of time. n_read, n_bad: how many rows `batches` has met so far, and left out;
    bad_kinds, bad_examples: how many of each kind, and the first of them. gap_kinds: by column, how many cells held
    something else than a number.
    """

    def __init__(
        self,
        reader: Reader,
        reading: Reading,
        forms: Mapping[int, Form | None],
        look: Look,
        asked: Asked,
        *,
        start: Start,
        sorts: bool,
    ) -> None:
        self.path, self.notes = reader.source.name, reader.source.notes
        self._reader, self.reading, self._forms, self.look, self._asked = reader, reading, forms, look, asked
        self.names, self.named, self.unit = reading.columns, reader.named, reader.unit
        self.total, self.rereadable, self.time_names = reader.total, reader.source.rereadable, reading.time
        self.dialect, self.n_above, self.key = reader.dialect, reader.n_above, asked.by and asked.by[1]
        self._start, self.sorts, self._is_utc = start, sorts, look.is_utc
        self._place = {name: j for j, name in enumerate(reader.names)}
        self.n_read, self.n_bad, self.bad_examples = 0, 0, list[str]()
        self.bad_kinds, self.gap_kinds, self._first_gaps = Counter[str](), Counter[str](), dict[str, str]()
        self._latest, self._n_silences = None, 0
        # Columns without a number in the latest rows: how many rows came before these, and the first of them.
        self._silent = dict[int, tuple[int, str]]()

    def clock(self, time: Any) -> str | float:
        """Write a time as a number, or as ISO 8601 with Z if the file names a zone, without a year that it lacks."""
        if not isinstance(time, np.datetime64):
            return float(time)
        text: str = np.datetime_as_string(time, unit="s" if time == time.astype("datetime64[s]") else "auto")
        form = self.reading.time_format or ""
        has_year = "%" not in form or any(sign in form for sign in ("%Y", "%y", "%F"))
        return f"{text if has_year else text[5:] if has_day(form) else text[11:]}{'Z' * self._is_utc}"

    def words(self, name: str) -> tuple[str, str] | None:
        """Return the file's words for off and on in a column, None if it holds numbers."""
        form = self._forms.get(self._place.get(name, -1))
        return form.words if form else None

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
        is_empty = self._start is None
        with reading_errors(self.path):
            for block in self._blocks(n_rows):
                kept = self._screen(block)
                if len(kept.rows):
                    is_empty = False
                    self._tell_silence(kept.times)
                    numbers = np.ascontiguousarray(kept.numbers)
                    yield Batch(kept.rows, numbers, kept.times, kept.labels, self._position(block), kept.done)
        if is_empty:
            skipped = f" ({self.n_bad} skipped, the first: {self.bad_examples[0]})" if self.n_bad else ""
            raise TableError(f"{self.path}: it has no rows of numbers{skipped}; give a table with at least one row")
        # Of a file that is read on, the rows before are not known.
        if self._start is None and 2 * (n_other := self.bad_kinds[OTHER_WIDTH]) > self.n_read:
            what = f"so have {n_other:,} of {self.n_read:,} rows in all"
            raise TableError(f"{self.bad_examples[0]}; {what}; split the file where its columns change")

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
        reading = self.reading
        columns = [reading.wide[1]] if reading.wide else list(reading.columns)
        key = reading.wide[0] if reading.wide else self._asked.by and self._asked.by[0]
        wanted = [*columns, *reading.time, *filter(None, [self._asked.labels, key])]
        parts = self._reader.parts(list(dict.fromkeys(self._place[name] for name in wanted)), n_rows, self._start)
        blocks: Iterator[Block] = (self._convert(part, columns, key) for part in parts)
        if self._asked.by is not None:
            blocks = _choose_key(blocks, self._asked.by[1])
        if self.sorts:
            blocks = _sort_by_time(blocks, self.path, len(columns))
        if reading.wide:
            blocks = _widen(blocks, reading.columns)
        blocks = _cut(blocks, n_rows)
        if reading.differences:
            state = (self._start or {}).get("counters")
            blocks = _subtract(blocks, [reading.columns.index(name) for name in reading.differences], state)
        return blocks

    def _convert(self, part: Part, columns: Sequence[str], key: str | None) -> Block:
        """Read the cells of a part as numbers and times."""
        shape = len(part.rows), len(columns)
        numbers, texts = np.empty(shape), np.full(shape, None, object)
        times, labels, keys = None, None, None
        for c, name in enumerate(columns):
            numbers[:, c], odd = self._read_numbers(part, name)
            if odd is not None:
                texts[odd, c] = list(map(str, part.cells[self._place[name]].filter(odd).to_pylist()))
            if gaps := self.reading.gaps.get(name):
                is_gap = np.isin(numbers[:, c], gaps)
                texts[is_gap, c], numbers[is_gap, c] = numbers[is_gap, c], np.nan
        if self.reading.time:
            cells = [part.cells[self._place[name]] for name in self.reading.time]
            times, is_utc = read_times(cells, str(self.reading.time_format))
            self._is_utc |= is_utc
        if self._asked.labels is not None:
            labels = self._read_numbers(part, self._asked.labels)[0]
        if key is not None:
            keys = np.array(join_texts([part.cells[self._place[key]]]).fill_null("").to_pylist(), object)
        return Block(part.rows, numbers, texts, times, labels, keys, part.after, part.done, part.bad)

    def _read_numbers(self, part: Part, name: str) -> tuple[Array, Bools | None]:
        j = self._place[name]
        return read_numbers(part.cells[j], self._forms[j] or Form())

    def _position(self, block: Block) -> dict[str, Any] | None:
        """Make the position after a block, and the rows left out at its end."""
        position = None if self.sorts else self._reader.position(block.after[-1])
        return position if position is None or block.state is None else position | {"counters": block.state}

    def _screen(self, block: Block) -> Block:
        """Leave out rows with faults or gaps, as the options say; refuse or count them in the order of the file."""
        self.n_read += len(block.rows) + len(block.bad)
        gaps, none = np.isnan(block.numbers), np.zeros(len(block.rows), bool)
        faults: dict[str, Any] = {
            NO_TIME: none if block.times is None else ~np.isfinite(block.times),
            NO_LABEL: none if block.labels is None else np.isnan(block.labels),
            NO_NUMBER: gaps.all(axis=1),
            A_GAP: none if self._asked.on_missing == "marginal" else gaps.any(axis=1),
        }
        out = np.any(list(faults.values()), axis=0)
        found = [(*one, -1) for one in block.bad]
        for i in map(int, np.flatnonzero(out)):
            kind = next(kind for kind, is_so in faults.items() if is_so[i])
            found.append((int(block.rows[i]), kind, "", i))
        for row, kind, detail, i in sorted(found):
            self._leave_out(block, row, kind, detail, i)
        kept = np.flatnonzero(~out)
        self._count_gaps(block, kept, gaps[kept])
        self._note_silent(block[kept], gaps[kept])
        return block[kept] if len(kept) < len(out) else block

    def _note_silent(self, block: Block, gaps: Bools) -> None:
        """Note which columns have no number in the last of some rows, and since when."""
        before, self._silent = self._silent, {} if len(gaps) else self._silent
        for j in map(int, np.flatnonzero(gaps[-1:])):
            i = 0 if gaps[:, j].all() else len(gaps) - int(np.argmin(gaps[::-1, j]))
            when = "" if block.times is None else f"{self.clock(block.times[i])} "
            now = self.n_read - len(gaps) + i, f"{when}({self.unit} {block.rows[i]:,})"
            self._silent[j] = before.get(j, now) if i == 0 else now

    def list_silent(self) -> list[str]:
        """Say which columns have had no number for long when the rows end."""
        least = max(_SILENCE, _LEAST_SILENT * self.n_read)
        found = {self.names[j]: where for j, (n, where) in self._silent.items() if self.n_read - n >= least}
        return [f"{self.path}, column {short(name)!r}: no number from {at} to the end" for name, at in found.items()]

    def _leave_out(self, block: Block, row: int, kind: str, detail: str, i: int) -> None:
        """Refuse a row, or count it: row i of a block, or with a `detail` a line that is no row."""
        remedy = _FILL if kind in (NO_NUMBER, A_GAP) else _SKIP
        is_passed = kind in _PASSED or (remedy == _FILL and self._asked.on_missing != "raise")
        stops = self._asked.on_bad_rows == "raise" and not is_passed
        self.n_bad += 1
        self.bad_kinds[kind] += 1
        is_shown = len(self.bad_examples) < _SHOWN_BAD_ROWS
        tells = self._asked.follow and str(self.bad_kinds[kind]).strip("0") == "1"
        if stops or tells or is_shown:
            where = f"{self.path}, {self.unit} {row}{' (from 0)' if self.unit == 'row' else ''}"
            told = f"{where}: {detail or self._describe(block, i, kind)}"
            if stops:
                raise TableError(f"{told}; {remedy}")
            self.bad_examples += [told] if is_shown else []
            self.notes += [f"{told}; left out, {self.bad_kinds[kind]:,} so far"] if tells else []

    def _describe(self, block: Block, i: int, kind: str) -> str:
        """Say what is wrong with row i of a block."""
        if kind == NO_TIME:
            return f"column {short(' '.join(self.time_names))!r} has no time in the form {self.reading.time_format}"
        if kind == NO_LABEL:
            return f"column {short(str(self._asked.labels))!r} has no number ({drop_hint(str(self._asked.labels))})"
        j = int(np.argmax(np.isnan(block.numbers[i])))
        return f"column {short(self.names[j])!r} {_describe_cell(block.texts[i, j])} ({drop_hint(self.names[j])})"

    def _count_gaps(self, block: Block, kept: Counts, gaps: Bools) -> None:
        """Count the cells of the kept rows that hold something else than a number."""
        i, j = np.nonzero(gaps)
        is_odd = np.array([text is not None for text in block.texts[kept[i], j]], bool)
        rows, columns = kept[i[is_odd]], j[is_odd]
        for c in np.unique(columns):
            name, before = self.names[c], self.gap_kinds[self.names[c]]
            self.gap_kinds[name] += int(np.count_nonzero(columns == c))
            if not before:
                first = rows[np.argmax(columns == c)]
                self._first_gaps[name] = f"{self.unit} {block.rows[first]} {_describe_cell(block.texts[first, c])}"
            if self._asked.follow and (not before or len(str(before)) < len(str(self.gap_kinds[name]))):
                self.notes.append(self.describe_gaps(name))

    def describe_gaps(self, name: str) -> str:
        """Say how many cells of a column held something else than a number, and the first of them."""
        n = self.gap_kinds[name]
        return f"{self.path}, column {short(name)!r}: cells taken for gaps: {n:,}, the first: {self._first_gaps[name]}"


def _describe_cell(text: str | float | None) -> str:
    if text is None:
        return "has no value"
    if isinstance(text, str):
        return f"holds {short(text)!r}, which is no number"
    return f"holds {text:g}, which stands for a gap (--gaps none)"


def _join(blocks: Sequence[Block]) -> Block:
    """Put blocks one after the other."""
    parts = {name: [getattr(block, name) for block in blocks] for name in _ARRAYS}
    arrays: Any = {name: None if part[0] is None else np.concatenate(part) for name, part in parts.items()}
    return Block(**arrays, done=blocks[-1].done, bad=[one for block in blocks for one in block.bad])


def _choose_key(blocks: Iterator[Block], key: str) -> Iterator[Block]:
    """Keep the rows of one machine."""
    for block in blocks:
        bad = [(int(row), NO_KEY, "names no machine") for row in block.rows[block.keys == ""]]
        yield replace(block[block.keys == key], bad=[*block.bad, *bad])


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
    if parts:
        whole = _join(parts)
        times: Any = whole.times
        order = np.argsort(times, kind="stable")
        if np.mean(times[1:] < times[:-1]) > 0.5:
            # The newest come first within one time, too.
            order = len(order) - 1 - np.argsort(times[::-1], kind="stable")
        yield whole[order]


def _widen(blocks: Iterator[Block], tags: Sequence[str]) -> Iterator[Block]:
    """Make one row of the values of all tags, in their order; it ends where a tag comes that stood before.

    Within one time, tags come in any order. The number and the time of a row are those of its first tag.
    """
    places, rest = {tag: j for j, tag in enumerate(tags)}, list[Block]()
    for block in blocks:
        known = [i for i, key in enumerate(block.keys) if key in places]
        others = np.delete(np.arange(len(block.rows)), known)
        what = "is none of the tags of the first rows"
        bad = [(int(block.rows[i]), OTHER_TAG, f"{block.keys[i][:40]!r} {what}") for i in others]
        long = replace(_join([*rest, block[np.array(known, int)]]), bad=[*block.bad, *bad])
        columns, times = [places[key] for key in long.keys], long.times
        starts, seen, last = list[int](), set[int](), 0
        for i, j in enumerate(columns):
            if not seen or j in seen or (j < last and (times is None or times[i] != times[starts[-1]])):
                starts.append(i)
                seen = set()
            seen.add(j)
            last = j
        # A row without some tags may go on in the next block.
        end = starts.pop() if 0 < len(seen) < len(tags) else len(columns)
        rest = [replace(long[end:], bad=[])]
        yield _spread(long[:end], columns[:end], starts, len(tags))
    if rest and len(rest[0].rows):
        yield _spread(rest[0], [places[key] for key in rest[0].keys], [0], len(tags))


def _spread(long: Block, columns: Sequence[int], starts: Sequence[int], n_tags: int) -> Block:
    """Put the one number of each row into its column, in wide rows that begin at some of them."""
    first = np.array(starts, int)
    ends = np.append(first[1:], len(columns))[: len(first)]
    which = np.repeat(np.arange(len(first)), ends - first)
    numbers, texts = np.full((len(first), n_tags), np.nan), np.full((len(first), n_tags), None, object)
    numbers[which, columns], texts[which, columns] = long.numbers[:, 0], long.texts[:, 0]
    return replace(long[first], numbers=numbers, texts=texts, after=long.after[ends - 1])


def _cut(blocks: Iterator[Block], n_rows: int) -> Iterator[Block]:
    """Cut blocks into smaller ones, with the bad rows before the end of each."""
    for block in blocks:
        bad = sorted(block.bad)
        for begin in range(0, max(len(block.rows), 1), n_rows):
            part, rest = block[begin : begin + n_rows], block.rows[begin + n_rows :]
            n_bad = bisect(bad, (int(rest[0]),)) if len(rest) else len(bad)
            yield replace(part, bad=bad[:n_bad])
            bad = bad[n_bad:]


def _subtract(blocks: Iterator[Block], columns: Sequence[int], state: Any) -> Iterator[Block]:
    """Replace counters by what they rise in a row, from zero on where they begin again.

    What they have risen over a gap is shared by its rows. The state holds the last values, and their ages in rows.
    """
    last, since = np.array(state or [[np.nan] * len(columns), [0.0] * len(columns)], float)
    for block in blocks:
        numbers, places = block.numbers.copy(), np.arange(len(block.rows) + 1)[:, np.newaxis]
        values = np.vstack([last, numbers[:, columns]])
        # The place of the latest value that is known, at each row.
        known = np.maximum.accumulate(np.where(np.isnan(values), 0, places))
        filled = np.take_along_axis(values, known, axis=0)
        age = places - known + np.where(known == 0, since, 0.0)
        rises = values[1:] - filled[:-1]
        numbers[:, columns] = np.where(rises < 0.0, values[1:], rises) / (age[:-1] + 1.0)
        last, since = filled[-1], age[-1]
        kept = [[None if np.isnan(one) else float(one) for one in last], since.tolist()]
        yield replace(block, numbers=numbers, state=kept)
