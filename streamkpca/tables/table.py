"""A table in batches of numbers: parts become blocks of rows, and each stage is a function of blocks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyarrow import compute

from streamkpca._core.arrays import Array
from streamkpca.tables.bad_rows import OTHER_WIDTH, BadRows
from streamkpca.tables.columns import Asked, Look, Reading
from streamkpca.tables.errors import TableError, reading_errors
from streamkpca.tables.numbers import Bools, Form, read_numbers
from streamkpca.tables.readers import Block, Counts, Part, Reader
from streamkpca.tables.reshape import choose_key, cut, sort_by_time, subtract_counters, widen
from streamkpca.tables.times import has_day, join_texts, read_times

_LISTED_ROWS = 100_000
# Usual steps without rows that are told, and how often.
_SILENCE = 50
_SHOWN_SILENCES = 3


class Batch(NamedTuple):
    """Consecutive rows that were kept.

    rows (n,): their numbers in the file, lines of text from 1 with the header, other rows from 0. numbers (n, d):
    C-contiguous float64, NaN in gaps. times, labels (n,): the columns asked for; dates are datetime64[ns], in UTC where
    the file names a zone. position: where `open_table` goes on after these rows, as JSON; None for streams. done: how
    much was read so far, in the unit of `Reader.total`.
    """

    rows: Counts
    numbers: Array
    times: npt.NDArray[Any] | None
    labels: Array | None
    position: dict[str, Any] | None
    done: int


class Table:
    """A file or a stream whose rows are read once, in batches; `open_table` makes it.

    reader: of its format. reading: how its columns are read. names: of the columns of `Batch.numbers`. unit: what
    `Batch.rows` counts, "line" or "row". notes: warnings for the user, to which reading adds. look: what the first rows
    have shown. key: the one machine whose rows are read. sorts: whether rows are put in order of time. bad: the rows
    that were left out so far.
    """

    def __init__(
        self,
        reader: Reader,
        reading: Reading,
        forms: Mapping[int, Form | None],
        look: Look,
        asked: Asked,
        *,
        sorts: bool,
    ) -> None:
        self.path, self.notes, self.unit = reader.source.name, reader.source.notes, reader.unit
        self.reader, self.reading, self._forms, self.look, self._asked = reader, reading, forms, look, asked
        self.names, self.key, self.sorts = reading.columns, asked.by and asked.by[1], sorts
        self.bad = BadRows(reader, reading, asked)
        self._start, self._is_utc = asked.start, look.is_utc
        self._place = {name: j for j, name in enumerate(reader.names)}
        self._latest, self._n_silences = None, 0

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
        found, j = set[str](), self._place[name]
        with reading_errors(self.path):
            for part in self.reader.parts([j], _LISTED_ROWS, None):
                found |= set(compute.unique(join_texts([part.cells[j]]).drop_null()).to_pylist())
        return sorted(found)

    def batches(self, n_rows: int) -> Iterator[Batch]:
        """Read the rows in batches of at most `n_rows`; those of a pipe or a followed file come as they arrive."""
        is_empty = self._start is None
        with reading_errors(self.path):
            for block in self._blocks(n_rows):
                kept = self.bad.screen(block)
                if len(kept.rows):
                    is_empty = False
                    self._tell_silence(kept.times)
                    numbers, done = np.ascontiguousarray(kept.numbers), int(kept.after[:, 0].max())
                    yield Batch(kept.rows, numbers, kept.times, kept.labels, self._position(block), done)
        bad = self.bad
        if is_empty:
            skipped = f" ({bad.n_left_out} skipped, the first: {bad.examples[0]})" if bad.n_left_out else ""
            raise TableError(f"{self.path}: it has no rows of numbers{skipped}; give a table with at least one row")
        # Of a file that is read on, the rows before are not known.
        if self._start is None and 2 * (n_other := bad.kinds[OTHER_WIDTH]) > bad.n_read:
            what = f"so have {n_other:,} of {bad.n_read:,} rows in all"
            raise TableError(f"{bad.examples[0]}; {what}; split the file where its columns change")

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
        parts = self.reader.parts(list(dict.fromkeys(self._place[name] for name in wanted)), n_rows, self._start)
        blocks: Iterator[Block] = (self._convert(part, columns, key) for part in parts)
        if self._asked.by is not None:
            blocks = choose_key(blocks, self._asked.by[1])
        if self.sorts:
            blocks = sort_by_time(blocks, self.path, len(columns))
        if reading.wide:
            blocks = widen(blocks, reading.columns)
        blocks = cut(blocks, n_rows)
        if reading.differences:
            state = (self._start or {}).get("counters")
            blocks = subtract_counters(blocks, [reading.columns.index(name) for name in reading.differences], state)
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
        return Block(part.rows, numbers, texts, times, labels, keys, part.after, part.bad)

    def _read_numbers(self, part: Part, name: str) -> tuple[Array, Bools | None]:
        j = self._place[name]
        return read_numbers(part.cells[j], self._forms[j] or Form())

    def _position(self, block: Block) -> dict[str, Any] | None:
        """Make the position after a block, and the rows left out at its end."""
        position = None if self.sorts else self.reader.position(block.after[-1])
        return position if position is None or block.state is None else position | {"counters": block.state}
