"""What CSV and JSON lines share: text cut into records, records found again by their bytes, and files that grow.

pyarrow's own streaming readers would be shorter, but they read ahead in threads of their own: rows of a slow
pipe would wait for a full megabyte, and Ctrl-C would wait for the pipe. So blocks of whole records are cut
here, on the calling thread, and pyarrow only parses them.
"""

import math
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca.cli.tables.columns import TableError
from streamkpca.cli.tables.reader import (
    NO_NUMBER,
    SUMMED_BYTES,
    Array,
    Block,
    Counts,
    Flags,
    Offsets,
    Table,
    Time,
    remedy_for_row,
)
from streamkpca.cli.tables.source import LONGEST_LINE, READ_BYTES, AtEnd, Source, read_fully

BOM = b"\xef\xbb\xbf"

# At most this many records are read one by one where the fast parser has refused them.
_FEW = 32


@dataclass(frozen=True)
class Records:
    """Records of a text: lines, or several lines if a quoted field holds line ends.

    starts, ends (n,): first byte, and the byte after the line's end. lines, following (n,): numbers, from 1, of the
    first line and of the line after the record.
    """

    text: bytes
    starts: Counts
    ends: Counts
    lines: Counts
    following: Counts

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, part: slice) -> "Records":
        return Records(self.text, self.starts[part], self.ends[part], self.lines[part], self.following[part])

    @property
    def joined(self) -> bytes:
        """The text from the first record to the last."""
        return self.text[self.starts[0] : self.ends[-1]]

    def one(self, i: int) -> str:
        """Return the text of record i without its line's end."""
        return decode(self.text[self.starts[i] : self.ends[i]]).rstrip("\r\n")


class Parsed(NamedTuple):
    """The rows found in n records.

    values (good.sum(), len(columns.wanted)) and times of the good records; good (n,); `reason` tells what is wrong with
    the first bad record.
    """

    values: Array
    times: list[Time] | None
    good: Flags
    reason: str | None = None


class BadRecord(Exception):
    """Raised if a record is no row of numbers; tells why, and which column is at fault.

    `missing` tells that it has no value, and `left_out` that the row is no error, whatever becomes of bad rows.
    """

    def __init__(
        self,
        what: str,
        column: str | None = None,
        *,
        text: bool = False,
        missing: bool = False,
        left_out: bool = False,
        hint: str = "",
    ) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy_for_row(column, text=text, missing=missing) + hint
        self.left_out = left_out


class TextTable(Table):
    """Rows of text, one a record. `skips` and `on_missing` say what becomes of bad rows and of gaps."""

    _format: str
    # The first bytes of a file that is read from an offset on.
    _beginning = b""

    def __init__(self, source: Source, *, skips: bool, on_missing: str) -> None:
        self.source, self._source, self.skips, self.notes = source.name, source, skips, []
        self.on_missing = on_missing
        self.rereadable = source.rereadable
        self.total = None if source.followed else source.size

    @abstractmethod
    def _n_header_records(self, records: Records) -> int:
        """Count the records at a file's beginning that are no rows; refuse a file of other columns."""

    @abstractmethod
    def _parse_fast(self, records: Records) -> Parsed | None:
        """Parse many records at once; return None if that cannot tell which are at fault."""

    @abstractmethod
    def _parse_one(self, record: str) -> tuple[list[float], Time]:
        """Parse one record, gaps as NaN where they are taken or left out, or raise BadRecord."""

    def _gap(self, what: str, j: int) -> float:
        """Return the number that stands for a missing one in column j, or raise BadRecord, which says `what` is so."""
        is_label = j == self.columns.labels
        if self.on_missing == "raise" or is_label:
            raise BadRecord(what, self.columns.option(j), missing=not is_label)
        return math.nan

    def _check_gaps(self, row: Sequence[float]) -> None:
        """Raise BadRecord if a row is left out for its gaps."""
        missing = [j for j, number in zip(self.columns.features, row, strict=False) if math.isnan(number)]
        if missing and self.on_missing == "skip":
            raise BadRecord(f"{self.columns.called(missing[0])} has no value", left_out=True)
        if len(missing) == len(self.columns.features):
            raise BadRecord(NO_NUMBER, left_out=True)

    def _record_ends(self, text: bytes, newlines: Counts, *, final: bool) -> Counts:
        """Find the byte after each whole record; `final` tells that no more text follows."""
        del text, final
        return newlines + 1

    def _records(self, text: bytes, *, line: int, final: bool) -> tuple[Records, int, int]:
        """Cut text into records, leaving out empty ones; also return the byte and the line after the last."""
        codes = np.frombuffer(text, np.uint8)
        newlines = np.flatnonzero(codes == ord("\n"))
        ends = self._record_ends(text, newlines, final=final)
        if final and len(text) > (ends[-1] if len(ends) else 0):
            ends = np.append(ends, len(text))
        starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
        kept = np.ones(len(ends), dtype=bool)
        if _are_blank(codes[starts]).any():
            kept = np.logical_or.reduceat(~_are_blank(codes[: ends[-1]]), starts)
        lines, following = (line + np.searchsorted(newlines, edges) for edges in (starts, ends))
        records = Records(text, starts[kept], ends[kept], lines[kept], following[kept])
        return (records, int(ends[-1]), int(following[-1])) if len(ends) else (records, 0, line)

    def _blocks(self, n_rows: int) -> Iterator[Block]:
        del n_rows
        # The first bytes of the file, and the last ones before `at`.
        at, line, beginning, before = 0, 1, b"", b""
        if self._after is not None:
            at, line, beginning = int(self._after["byte"]), int(self._after["line"]), self._beginning
        with self._source.opened(at) as stream:
            rest, begun = b"", at > 0
            while True:
                more = stream.read(READ_BYTES)
                following = AtEnd.MORE if more else stream.wait()
                rest += more
                if following is AtEnd.TRUNCATED and rest.strip():
                    self._skip_lost_line(line)
                elif rest:
                    records, end, next_line = self._records(rest, line=line, final=following is not AtEnd.MORE)
                    if len(beginning) < SUMMED_BYTES:
                        beginning += rest[: min(end, SUMMED_BYTES - len(beginning))]
                    if not begun and len(records):
                        records, begun = records[self._n_header_records(records) :], True
                    if len(records):
                        yield self._make_block(records, at, (at + end, next_line), beginning, before)
                    before = (before + rest[max(0, end - SUMMED_BYTES) : end])[-SUMMED_BYTES:]
                    at, line, rest = at + end, next_line, rest[end:]
                if following is AtEnd.END:
                    return
                if following is not AtEnd.MORE:
                    at, line, rest, begun = 0, 1, b"", False
                    beginning = before = b""
                elif len(rest) > LONGEST_LINE:
                    raise TableError(
                        f"{self.source}, line {line}: longer than {LONGEST_LINE} bytes; "
                        f"check that this is a {self._format} file"
                    )

    def _make_block(self, records: Records, at: int, after: tuple[int, int], beginning: bytes, before: bytes) -> Block:
        """Parse records whose text begins `at` a byte of the file; `after` is the byte and the line after the last.

        `beginning` holds the first bytes of the file, and `before` those before the text.
        """
        values, times, good, reason = self._parse(records)
        offsets = None
        if self.rereadable:
            ends, lines = (records.ends + at)[good], records.following[good]
            if len(ends):
                ends[-1], lines[-1] = after
            head = [len(beginning), zlib.crc32(beginning)]
            offsets = Offsets(
                {"format": self._format, "head": head},
                {"byte": ends, "line": lines},
                before + records.text,
                at - len(before),
            )
        return Block(values, times, after[0], offsets, np.cumsum(good, dtype=np.int64)[~good], reason)

    def _parse(self, records: Records) -> Parsed:
        n = len(records)
        parsed = self._parse_fast(records)
        if parsed is None and n > _FEW:
            # The fast parser does not tell where it stopped, so each half is tried until few records are at fault.
            a, b = self._parse(records[: n // 2]), self._parse(records[n // 2 :])
            times = None if a.times is None or b.times is None else a.times + b.times
            values, good = np.concatenate([a.values, b.values]), np.concatenate([a.good, b.good])
            return Parsed(values, times, good, a.reason or b.reason)
        return parsed or self._parse_slowly(records)

    def _parse_slowly(self, records: Records) -> Parsed:
        """Parse record by record: finds the record at fault, and reads the numbers that only Python reads."""
        n = len(records)
        good, reason = np.ones(n, dtype=bool), None
        rows: list[list[float]] = []
        times: list[Time] = []
        for i in range(n):
            try:
                row, time = self._parse_one(records.one(i))
                self._check_gaps(row)
            except BadRecord as bad:
                found = f"{self.source}, line {records.lines[i]}: {bad.what}"
                if not (self.skips or bad.left_out):
                    raise TableError(f"{found}; {bad.remedy}") from None
                reason, good[i] = reason or found, False
            else:
                rows.append(row)
                times.append(time)
        values = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.columns.wanted))
        return Parsed(values, None if self.columns.time is None else times, good, reason)

    def _screen_fast(self, values: Array, times: list[Time] | None, records: Records) -> Parsed | None:
        """Leave out bad rows from what the fast parser returned; None unless it made one row of each record."""
        if len(values) != len(records):
            return None
        good, bad = self._screened(values)
        if good.all():
            return Parsed(values, times, good)
        if bad.any() and not self.skips:
            # Refused, wherever rows are left out for their gaps.
            refused = int(np.flatnonzero(bad)[0])
            self._parse_slowly(records[refused : refused + 1])
            return None
        first = int(np.flatnonzero(~good)[0])
        checked = self._parse_slowly(records[first : first + 1])
        if checked.good[0]:
            return None
        times = None if times is None else list(compress(times, good))
        return Parsed(values[good], times, good, checked.reason)

    def _skip_lost_line(self, line: int) -> None:
        what = f"{self.source}, line {line}: the file was emptied before the line was complete"
        if not self.skips:
            raise TableError(f"{what}; {remedy_for_row()}")
        self.n_skipped += 1
        self.first_skipped = self.first_skipped or what

    def _check_offset(self, offset: Mapping[str, Any]) -> None:
        head, crc = offset["head"]
        at, line = int(offset["byte"]), int(offset["line"])
        # Offsets of earlier releases have no tail.
        summed, tail_crc = offset.get("tail", (0, 0))
        if not (0 <= head <= SUMMED_BYTES and 0 <= summed <= SUMMED_BYTES and summed <= at and line >= 1):
            raise ValueError(offset)
        where = f"{self.source}: expected the file that was read up to byte {at} but"
        remedy = "name that file, or begin anew"
        if offset["format"] != self._format:
            raise TableError(f"{where} it is {self._format}, not {offset['format']}; {remedy}")
        size = self._source.size
        if size is not None and size < at:
            raise TableError(f"{where} it has only {size} bytes; {remedy}")
        beginning = self._source.beginning(SUMMED_BYTES)
        if zlib.crc32(beginning[:head]) != crc:
            raise TableError(f"{where} it begins with other text; {remedy}")
        self._beginning = beginning[: min(at, SUMMED_BYTES)]
        begin = max(at - max(summed, 1), 0)
        with self._source.opened(begin, wait=False) as stream:
            found = read_fully(stream, at - begin + 1)
        before, after = found[: at - begin], found[at - begin :]
        if len(before) < at - begin:
            raise TableError(f"{where} it is shorter; {remedy}")
        if summed and zlib.crc32(before) != tail_crc:
            raise TableError(f"{where} other text stands there; {remedy}")
        if before[-1:] != b"\n" and after not in {b"", b"\r", b"\n"}:
            raise TableError(
                f"{where} the last line read, {line}, has grown since: it was read before it was complete; "
                "begin anew, or read growing files with --follow"
            )


def _are_blank(codes: npt.NDArray[np.uint8]) -> Flags:
    """Tell which bytes are blanks or of line ends, in the memory of the answer."""
    blank: Flags = codes == ord(" ")
    for code in b"\r\n":
        blank |= codes == code
    return blank


def decode(text: bytes) -> str:
    r"""Decode text, leaving out a byte order mark; what is not UTF-8 is taken for Windows-1252 or Latin-1.

    Examples
    --------
    >>> [decode("Temp\u00b0".encode(encoding)) for encoding in ("utf-8", "latin-1")]
    ['Temp°', 'Temp°']
    """
    text = text.removeprefix(BOM)
    for encoding in ("utf-8", "cp1252"):
        with suppress(UnicodeDecodeError):
            return text.decode(encoding)
    # Every byte is a letter of it, so that no two names become equal.
    return text.decode("latin-1")


def is_utf8(text: bytes) -> bool:
    """Tell whether text is UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
