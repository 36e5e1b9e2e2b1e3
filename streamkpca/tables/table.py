"""A table in batches of numbers: its format is found, and its parts become blocks of rows."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pyarrow import compute, record_batch

from streamkpca.tables.asked import Asked
from streamkpca.tables.bad_rows import BadRows
from streamkpca.tables.binary_formats import ArrowReader, NpyReader, ParquetReader
from streamkpca.tables.blocks import Block, choose_key, cut, mend_clock, sort_by_time, subtract_counters, widen
from streamkpca.tables.columns import choose_columns
from streamkpca.tables.errors import TableError, reading_errors
from streamkpca.tables.numbers import Bools, Floats, Form, read_numbers
from streamkpca.tables.quality import find_bad
from streamkpca.tables.reader import OTHER_WIDTH, Counts, Part, Reader
from streamkpca.tables.sample import Sample
from streamkpca.tables.source import Source
from streamkpca.tables.text_formats import CsvReader, read_json, read_sheet
from streamkpca.tables.times import FAR, find_steps, has_day, has_year, join_texts, read_times


class Format(NamedTuple):
    """A format of files: its name, the pattern of their first bytes, and what makes its reader.

    is_text: whether its lines are read as they come, from pipes, compressed files, and files that grow.
    """

    name: str
    begins: bytes
    open_reader: Callable[[Source, Asked], Reader]
    is_text: bool = False


# The first that fits. Letters that may also begin a column's name must not be followed by a delimiter.
FORMATS = (
    Format("npy", rb"\x93NUMPY", NpyReader),
    Format("Parquet", rb"PAR1(?![,;\t|\r\n])", ParquetReader),
    Format("Arrow", rb"ARROW1(?![,;\t|\r\n])", ArrowReader),
    Format("xlsx", rb"PK\x03\x04|\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", read_sheet),
    Format("JSON lines", rb"(\xef\xbb\xbf)?\s*[{\[]", read_json, is_text=True),
    Format("CSV", rb"", CsvReader, is_text=True),
)
_NO_TABLE = rb"\x89PNG|\xff\xd8\xff|GIF8|%PDF-|PK\x03\x04.{26}(header\.json|.{1,30}\.npy)"
_NO_TEXT = rb"[^\n]*[\x01-\x08\x0e-\x19\x1b-\x1f\x7f]"
# A file whose times go back in more rows than this is put in order.
_MOST_BACK = 0.3
# Clocks go back by an hour in autumn.
_MOST_HOURS = np.timedelta64(90, "m")
_LISTED_ROWS = 100_000
# How many times without rows, and times that go back, are told.
_SHOWN_SILENCES = 3


class Batch(NamedTuple):
    """Consecutive rows that were kept.

    rows (n,): their numbers in the file, lines of text from 1 with the header, other rows from 0. numbers (n, d):
    C-contiguous float64, NaN in gaps. times, labels (n,): the columns asked for; dates are datetime64[ns], in UTC where
    the file names a zone. position: `Asked.start` of a reading that goes on after these rows, as JSON; none of streams.
    done: how much was read so far, in the unit of `Reader.total`.
    """

    rows: Counts
    numbers: Floats
    times: npt.NDArray[Any] | None
    labels: Floats | None
    position: dict[str, Any] | None
    done: int


class Table:
    r"""A file, or standard input ("-"), whose rows are read once, in batches; its first bytes tell the format.

    reader: of its format. reading: how its columns are read. names: of the columns of `Batch.numbers`. unit: what
    `Batch.rows` counts, "line" or "row". notes: warnings for the user, to which reading adds; told: those that were
    shown. look: what the first rows have shown. key: the machine whose rows are read. sorts: whether rows are put in
    order of time. bad: the rows that were left out so far.

    Memory is that of a block of text (1 MiB), of some rows or pages, of a batch in Arrow's file, or of all rows if they
    are put in order.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "readings.csv")
    >>> _ = path.write_text("t,x,y\n10,1,2\n11,3,Bad\n12,5\n13,6,7\n")
    >>> table = Table(str(path), Asked(time=["t"], on_bad_rows="skip", missing="marginal"))
    >>> [(batch.rows.tolist(), batch.numbers.tolist()) for batch in table.batches(1000)]
    [([2, 3, 5], [[1.0, 2.0], [3.0, nan], [6.0, 7.0]])]
    >>> table.bad.n_read, dict(table.bad.kinds), dict(table.bad.odd_cells)
    (4, {'other number of cells': 1}, {'y': 1})
    """

    def __init__(self, path: str, asked: Asked) -> None:
        source = Source(path, follow=asked.follow, code=asked.encoding)
        self.path, self.notes, self._start = source.name, source.notes, asked.start
        self.told: list[str] = []
        with reading_errors(self.path):
            self.reader = _open_reader(source, asked)
            sample = Sample(self.reader, decimal=asked.decimal)
            # Steps between numbers may be larger than any number.
            with np.errstate(over="ignore", invalid="ignore"):
                self.reading, self.look = choose_columns(sample, asked)
            # Tags may come one after the other, each with all its times.
            can_sort, back = source.rereadable and not asked.follow, self.look.farthest_back
            least = 0.0 if can_sort and (self.reading.wide or self._is_far(back)) else _MOST_BACK
            self.sorts = asked.looks and self.look.back > least
            if self.sorts and not can_sort:
                what = "its rows are not in order of time; only a file that is complete is put in order"
                raise TableError(f"{self.path}: {what}; write it to a file, and leave --follow out")
            try:
                if self._start is not None:
                    self.reader.check_start(self._start)
            except TableError as error:
                if not asked.follow:
                    raise
                self.notes.append(f"{error}; reading it from its beginning")
                self._start = None
        self.unit, self.names, self.key = self.reader.unit, self.reading.columns, asked.by and asked.by[1]
        self._forms, self._asked, self._is_utc = sample.forms, asked, self.look.is_utc
        self.bad = BadRows(self.reader, self.reading, asked)
        self._latest: Any = None
        self._n_silences = 0

    def clock(self, time: Any) -> str | float:
        """Write a time as a number, or as ISO 8601 with Z if the file names a zone, without a year that it lacks."""
        if not isinstance(time, np.datetime64):
            return float(time)
        text: str = np.datetime_as_string(time, unit="s" if time == time.astype("datetime64[s]") else "auto")
        form = self.reading.time_format or ""
        return f"{text if has_year(form) else text[5:] if has_day(form) else text[11:]}{'Z' * self._is_utc}"

    def _is_far(self, back: Any) -> bool:
        """Tell whether times go back by more than the hour of a clock in autumn, on days of a year."""
        form = str(self.reading.time_format)
        return isinstance(back, np.timedelta64) and bool(back > _MOST_HOURS) and has_day(form) and has_year(form)

    def words(self, name: str) -> tuple[str, str] | None:
        """Return the file's words for off and on in a column, None if it holds numbers."""
        form = self._forms.get(name)
        return form.words if form else None

    def name_columns(self, numbers: Floats) -> Any:
        """Return rows with the names of the columns, or as they are if the file has no names."""
        return record_batch(dict(zip(self.names, numbers.T, strict=True))) if self.reader.named else numbers

    def list_texts(self, name: str) -> list[str]:
        """List what stands in a column, in order."""
        found = set[str]()
        with reading_errors(self.path):
            for part in self.reader.parts([name], _LISTED_ROWS, None):
                found |= set(compute.unique(join_texts([part.cells[name]]).drop_null()).to_pylist())
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
            kind = "rows of numbers" if (by := self._asked.by) is None else f"rows of {by[1]!r} in column {by[0]!r}"
            raise TableError(f"{self.path}: it has no {kind}{skipped}; give a table with at least one")
        # Of a file that is read on, the rows before are not known.
        if self._start is None and 2 * (n_other := bad.kinds[OTHER_WIDTH]) > bad.n_read:
            what = f"so have {n_other:,} of {bad.n_read:,} rows in all"
            raise TableError(f"{bad.examples[0]}; {what}; split the file where its columns change")

    def _tell_wrong_clock(self, row: int, time: Any) -> None:
        """Count the rows whose clock was wrong, and note the first of them."""
        self.bad.n_wrong_clocks += 1
        if self.bad.n_wrong_clocks <= _SHOWN_SILENCES:
            self.notes.append(
                f"{self.path}, {self.unit} {row}: its clock says {self.clock(time)}; taken for the next time"
            )

    def _tell_silence(self, times: Any) -> None:
        """Note times without rows, and times that go back, the first of them."""
        if times is None or self.look.step is None:
            return
        if self._latest is not None:
            times = np.concatenate([self._latest, times])
        steps = find_steps(times)
        is_odd = np.abs(steps) / FAR > self.look.step
        for i in np.flatnonzero(is_odd)[: _SHOWN_SILENCES - self._n_silences]:
            what = "no rows" if times[i + 1] > times[i] else "times go back"
            self.notes.append(f"{self.path}: {what} from {self.clock(times[i])} to {self.clock(times[i + 1])}")
            self._n_silences += 1
        self._latest = times[-1:]

    def _blocks(self, n_rows: int) -> Iterator[Block]:
        """Read parts, and put their rows through the stages."""
        reading = self.reading
        columns = [reading.wide[1]] if reading.wide else list(reading.columns)
        key = reading.wide[0] if reading.wide else self._asked.by and self._asked.by[0]
        quality = (reading.quality[name][0] for name in columns if name in reading.quality)
        wanted = [*columns, *reading.time, *filter(None, [self._asked.labels, key]), *quality]
        parts = self.reader.parts(list(dict.fromkeys(wanted)), n_rows, self._start)
        blocks: Iterator[Block] = (self._convert(part, columns, key) for part in parts)
        if reading.time and isinstance(self.look.step, np.timedelta64):
            blocks = mend_clock(blocks, self.look.step, self._tell_wrong_clock)
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
                texts[odd, c] = list(map(str, part.cells[name].filter(odd).to_pylist()))
            if gaps := self.reading.gaps.get(name):
                is_gap = np.isin(numbers[:, c], gaps)
                texts[is_gap, c], numbers[is_gap, c] = numbers[is_gap, c], np.nan
            if beside := self.reading.quality.get(name):
                words = part.cells[beside[0]]
                is_bad = find_bad(words, beside[1:])
                texts[is_bad, c], numbers[is_bad, c] = list(map(str, words.filter(is_bad).to_pylist())), np.nan
        if self.reading.time:
            cells = [part.cells[name] for name in self.reading.time]
            times, is_utc = read_times(cells, str(self.reading.time_format))
            self._is_utc |= is_utc
        if self._asked.labels is not None:
            labels = self._read_numbers(part, self._asked.labels)[0]
        if key is not None:
            keys = np.array(join_texts([part.cells[key]]).fill_null("").to_pylist(), object)
        return Block(part.rows, numbers, texts, times, labels, keys, part.after, part.bad)

    def _read_numbers(self, part: Part, name: str) -> tuple[Floats, Bools | None]:
        return read_numbers(part.cells[name], self._forms[name] or Form())

    def _position(self, block: Block) -> dict[str, Any] | None:
        """Make the position after a block, and the rows left out at its end."""
        position = None if self.sorts else self.reader.position(block.after[-1])
        return position if position is None or block.state is None else position | {"counters": block.state}


def _open_reader(source: Source, asked: Asked) -> Reader:
    """Open the reader of the format that the first bytes tell."""
    head = source.peek(lambda head: len(head.removeprefix(b"\xef\xbb\xbf").lstrip()) >= 8 or b"\n" in head.lstrip())
    found = next(one for one in FORMATS if re.match(one.begins, head, re.DOTALL))
    texts = " and ".join(one.name for one in FORMATS if one.is_text)
    if re.match(_NO_TABLE, head, re.DOTALL):
        raise TableError(f"{source.name}: is a picture, a document or a model; give a table (--model takes models)")
    if found.is_text and re.match(_NO_TEXT, head):
        known = f"{', '.join(one.name for one in FORMATS)}, compressed ones with the suffix .gz, .bz2, ..."
        raise TableError(f"{source.name}: is neither text nor any other known format; give {known}")
    if not found.is_text and source.follows:
        raise TableError(f"{source.name}: only {texts} grow row by row; leave --follow out")
    if not found.is_text and not source.is_plain:
        what = f"only {texts} are read from a pipe, or compressed"
        raise TableError(f"{source.name}: {what}; unpack it, and name the file")
    return found.open_reader(source, asked)
