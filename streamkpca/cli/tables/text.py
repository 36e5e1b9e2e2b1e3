"""What CSV and JSON lines share: text cut into records, rows found again by their bytes, files that grow.

pyarrow's own streaming readers would be shorter, but they read ahead in threads of their own: rows of a slow
pipe would wait for a full megabyte, and Ctrl-C would wait for the pipe. So blocks of whole records are cut
here, on the calling thread, and only their parsing is pyarrow's.
"""

import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streamkpca.cli.tables.columns import TableError
from streamkpca.cli.tables.reader import Array, Block, Counts, Flags, Places, Table, Time, remedy_for_row
from streamkpca.cli.tables.source import LONGEST_LINE, READ_BYTES, Next, Source

BOM = b"\xef\xbb\xbf"

_BLANK = b" \r\n"
_BLANK_CODES = list(_BLANK)
# So many records are read one by one where the fast parser has refused them.
_FEW = 32
_TOLD_APART_BY = 1024


@dataclass(frozen=True)
class Records:
    """Records of a text: lines, or several lines where a quoted field holds line ends.

    Attributes
    ----------
    text : bytes
        Where they are.
    starts, ends : ndarray of shape (n,)
        First byte, and the byte after the line's end.
    lines, following : ndarray of shape (n,)
        Numbers, from 1, of the first line and of the line after.
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
        """Return a record's text, without its line's end.

        Parameters
        ----------
        i : int
            Which.

        Returns
        -------
        str
        """
        return decode(self.text[self.starts[i] : self.ends[i]]).rstrip("\r\n")


class Parsed(NamedTuple):
    """What was found in some records.

    Attributes
    ----------
    values : ndarray of shape (n, len(columns.wanted))
        Finite numbers of the good ones.
    times : list of length n, or None
        Their times.
    good : ndarray of bool, one a record
        Which ones are good.
    reason : str or None
        What is wrong with the first that is not.
    """

    values: Array
    times: list[Time] | None
    good: Flags
    reason: str | None = None


class BadRecord(Exception):
    """Raised where a record is no row of numbers; says why, and which column is at fault."""

    def __init__(self, what: str, column: str | None = None, *, text: bool = False, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy_for_row(column, text=text) + hint


class TextTable(Table):
    """Rows of text, one a record.

    Parameters
    ----------
    source : Source
        Where they come from.
    skips : bool
        Whether bad rows are left out.
    """

    _format: str

    def __init__(self, source: Source, *, skips: bool) -> None:
        self.source, self._source, self.skips = source.name, source, skips
        self.rereadable = source.rereadable
        self.total = None if source.followed else source.size

    @abstractmethod
    def _begin(self, records: Records) -> int:
        """Say how many of the first records of a file are no rows, and refuse a file of other columns."""

    @abstractmethod
    def _parse_fast(self, records: Records) -> Parsed | None:
        """Parse many records at once; None where that cannot tell which are at fault."""

    @abstractmethod
    def _parse_one(self, record: str) -> tuple[list[float], Time]:
        """Parse one record, or raise BadRecord."""

    def _record_ends(self, text: bytes, newlines: Counts, *, final: bool) -> Counts:
        """Find the bytes after each whole record; `final` tells that no more text follows."""
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
        for i in np.flatnonzero(np.isin(codes[starts], _BLANK_CODES)):
            kept[i] = bool(text[starts[i] : ends[i]].strip(_BLANK))
        lines, following = (line + np.searchsorted(newlines, edges) for edges in (starts, ends))
        records = Records(text, starts[kept], ends[kept], lines[kept], following[kept])
        return (records, int(ends[-1]), int(following[-1])) if len(ends) else (records, 0, line)

    def _blocks(self, n_rows: int) -> Iterator[Block]:
        del n_rows
        at, line, head = 0, 1, None
        if self._after is not None:
            at, line, head = int(self._after["byte"]), int(self._after["line"]), self._after["head"]
        with self._source.opened(at) as opening:
            rest, begun = b"", at > 0
            while True:
                more = opening.read(READ_BYTES)
                following = Next.MORE if more else opening.wait()
                rest += more
                if following is Next.CUT and rest.strip():
                    self._lost(line)
                elif rest:
                    records, end, next_line = self._records(rest, line=line, final=following is not Next.MORE)
                    if head is None and end:
                        summed = min(end, _TOLD_APART_BY)
                        head = [summed, zlib.crc32(rest[:summed])]
                    if not begun and len(records):
                        records, begun = records[self._begin(records) :], True
                    if len(records):
                        yield self._block(records, at, (at + end, next_line), head)
                    at, line, rest = at + end, next_line, rest[end:]
                if following is Next.END:
                    return
                if following is not Next.MORE:
                    at, line, head, rest, begun = 0, 1, None, b"", False
                elif len(rest) > LONGEST_LINE:
                    raise TableError(
                        f"{self.source}, line {line}: longer than {LONGEST_LINE} bytes; is this a {self._format} file?"
                    )

    def _block(self, records: Records, at: int, after: tuple[int, int], head: list[int] | None) -> Block:
        """Parse records that begin `at` a byte of the file; `after` is the byte and the line after the last."""
        values, times, good, reason = self._parse(records)
        places = None
        if self.rereadable:
            ends, lines = (records.ends + at)[good], records.following[good]
            if len(ends):
                ends[-1], lines[-1] = after
            places = Places({"format": self._format, "head": head}, {"byte": ends, "line": lines})
        return Block(values, times, after[0], places, np.cumsum(good, dtype=np.int64)[~good], reason)

    def _parse(self, records: Records) -> Parsed:
        n = len(records)
        parsed = self._parse_fast(records)
        if parsed is None and n > _FEW:
            # The fast parser does not say where it stopped: halves are tried until few records are at fault.
            a, b = self._parse(records[: n // 2]), self._parse(records[n // 2 :])
            times = None if a.times is None or b.times is None else a.times + b.times
            values, good = np.concatenate([a.values, b.values]), np.concatenate([a.good, b.good])
            return Parsed(values, times, good, a.reason or b.reason)
        return parsed or self._parse_slowly(records)

    def _parse_slowly(self, records: Records) -> Parsed:
        """Parse record by record: finds the one to blame, and reads the numbers that only Python reads."""
        n = len(records)
        good, reason = np.ones(n, dtype=bool), None
        rows: list[list[float]] = []
        times: list[Time] = []
        for i in range(n):
            try:
                row, time = self._parse_one(records.one(i))
            except BadRecord as bad:
                found = f"{self.source}, line {records.lines[i]}: {bad.what}"
                if not self.skips:
                    raise TableError(f"{found}; {bad.remedy}") from None
                reason, good[i] = reason or found, False
            else:
                rows.append(row)
                times.append(time)
        values = np.array(rows, dtype=np.float64).reshape(len(rows), len(self.columns.wanted))
        return Parsed(values, None if self.columns.time is None else times, good, reason)

    def _screen_fast(self, values: Array, times: list[Time] | None, records: Records) -> Parsed | None:
        """Judge what the fast parser has made of records, if it has made one row of each."""
        if len(values) != len(records):
            return None
        good = np.asarray(np.isfinite(values).all(axis=1))
        if good.all():
            return Parsed(values, times, good)
        first = int(np.flatnonzero(~good)[0])
        judged = self._parse_slowly(records[first : first + 1])
        if judged.good[0]:
            return None
        times = None if times is None else [time for time, kept in zip(times, good, strict=True) if kept]
        return Parsed(values[good], times, good, judged.reason)

    def _lost(self, line: int) -> None:
        what = f"{self.source}, line {line}: the file was emptied before the line was complete"
        if not self.skips:
            raise TableError(f"{what}; {remedy_for_row()}")
        self.n_skipped += 1
        self.first_skipped = self.first_skipped or what

    def _check_place(self, place: Mapping[str, Any]) -> None:
        head, crc = place["head"]
        at, _ = int(place["byte"]), int(place["line"])
        where = f"{self.source}: expected the file that the place at byte {at} was taken of but"
        if place["format"] != self._format:
            raise TableError(f"{where} it is {self._format}, not {place['format']}; name that file, or begin anew")
        if self._source.size is not None and self._source.path.stat().st_size < at:
            raise TableError(
                f"{where} it has only {self._source.path.stat().st_size} bytes; name that file, or begin anew"
            )
        if self._source.checksum(head) != crc:
            raise TableError(f"{where} it begins otherwise; name that file, or begin anew")
        with self._source.opened(max(at - 1, 0), wait=False) as opening:
            around = opening.read(1) + opening.read(1)
        if not around:
            raise TableError(f"{where} it is shorter; name that file, or begin anew")
        if around[:1] != b"\n" and around[1:] not in {b"", b"\r", b"\n"}:
            raise TableError(
                f"{where} the last line read, {place['line']}, has grown since: it was read before it was complete; "
                "begin anew, or read growing files with --follow"
            )


def decode(text: bytes) -> str:
    """Decode UTF-8.

    Parameters
    ----------
    text : bytes
        May begin with a byte order mark, which is left out.

    Returns
    -------
    str
        Other encodings give replacement characters: they must not stop the numbers.
    """
    return text.removeprefix(BOM).decode("utf-8", errors="replace")
