"""CSV and its relatives: records of fields between commas, tabs, semicolons or blanks, quoted or not.

The first part of the module cuts text into records and records into fields; `CsvTable` reads them as rows.
"""

import io
import re
from collections.abc import Iterator

import numpy as np

from streamkpca.cli.tables.columns import (
    Choice,
    TableError,
    check_width,
    choose_columns,
    list_names,
    need_pyarrow,
    short,
)
from streamkpca.cli.tables.reader import MISSING, Array, Counts, Time
from streamkpca.cli.tables.source import Source
from streamkpca.cli.tables.text import BOM, BadRecord, Parsed, Records, TextTable, decode, is_utf8

_SNIFFED = (",", "\t", ";")
# A quotation mark that opens a field and is not closed within this many bytes spoils its own line alone.
_LONGEST_QUOTED = 1 << 20
_MISSING_SPELLINGS = sorted({spelling for text in MISSING for spelling in (text, text.upper(), text.capitalize())})
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
# Numbers as people and other programs write them; a first line that holds one is no line of names.
_MISSPELLED = re.compile(r"[+-]?\d+([_'\u2019\u00a0\u202f]\d+)+([.,]\d*)?|[+-]?\d+(\.\d{3})*,\d+")
# With more columns numpy is faster than pyarrow.
_FEW_COLUMNS = 1000
_QUOTED = re.compile(rb'"[^"]*"')
_CONTROLS = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")


def sniff_delimiter(line: str) -> str:
    r"""Guess the delimiter from the first line: a blank between numbers, else what cuts it into most fields.

    Examples
    --------
    >>> [sniff_delimiter(line) for line in ("a,b", "a b;c", "1.5 2.5", '"a;b",c')]
    [',', ';', ' ', ',']
    """
    parts = line.split(" ")
    if len(parts) > 1 and all(parts) and all(map(is_number, parts)):
        return " "
    return max(_SNIFFED, key=lambda delimiter: len(split_fields(line, delimiter) or ()))


def is_number(field: str) -> bool:
    """Tell whether a field is a number or a missing one.

    Examples
    --------
    >>> [is_number(field) for field in (" 1e3", "n/a", "1_000", "10:00")]
    [True, True, False, False]
    """
    if field.strip().lower() in MISSING:
        return True
    try:
        float(field)
    except ValueError:
        return False
    return "_" not in field


def split_fields(line: str, delimiter: str) -> list[str] | None:
    """Cut a record, without its line's end, into fields; None if a quotation mark opens one and is never closed.

    Examples
    --------
    >>> split_fields('1,"a ""b"", c",2', ",")
    ['1', 'a "b", c', '2']
    """
    if '"' not in line:
        return line.split(delimiter)
    fields, at = [], 0
    while True:
        field = ""
        if line.startswith('"', at):
            at += 1
            while (closing := line.find('"', at)) >= 0 and line.startswith('"', closing + 1):
                field += line[at : closing + 1]
                at = closing + 2
            if closing < 0:
                return None
            field += line[at:closing]
            at = closing + 1
        end = line.find(delimiter, at)
        fields.append(field + line[at : end if end >= 0 else None])
        if end < 0:
            return fields
        at = end + 1


def closed_on_their_lines(text: bytes, newlines: Counts, delimiter: str) -> bool:
    """Tell whether all quotation marks enclose whole fields that end on their lines.

    If not, the lines must be examined one by one. `newlines` holds the positions of the line ends in the text.
    """
    codes = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero(codes == ord('"'))
    if (np.bincount(np.searchsorted(newlines, marks)) % 2).any():
        return False
    # Two marks in a row stand for one; here they may count as closing and opening again.
    edges = [ord(delimiter), ord("\n"), ord("\r"), ord('"')]
    opening, closing = marks[::2], marks[1::2]
    before, after = codes[opening[opening > 0] - 1], codes[closing[closing < len(text) - 1] + 1]
    return bool(np.isin(before, edges).all() and np.isin(after, edges).all())


def quoted_ends(text: bytes, ends: Counts, delimiter: str, *, final: bool) -> Iterator[int]:
    """Yield the ends of records whose fields may hold line ends between quotation marks.

    `ends` holds the bytes after the line ends; the last line may be incomplete unless the text is `final`.
    """
    mark, edges = delimiter.encode(), [0, *map(int, ends)]
    if final and edges[-1] < len(text):
        edges.append(len(text))
    begin, alone = 0, 0
    while begin < len(edges) - 1:
        inside, line = False, begin
        while line < len(edges) - 1:
            inside = _ends_inside(text, edges[line], edges[line + 1], mark, inside)
            line += 1
            if not inside or begin < alone or edges[line] - edges[begin] > _LONGEST_QUOTED:
                break
        else:
            if inside and not final:
                return
        if inside:
            # Nothing closes it: its line is a record of its own, and so are the lines that were searched in vain.
            alone, line = max(alone, line), begin + 1
        begin = line
        yield edges[begin]


def _ends_inside(text: bytes, at: int, end: int, delimiter: bytes, inside: bool) -> bool:
    """Tell whether a line ends inside quotation marks; `inside` tells whether it begins there."""
    if text.find(b'"', at, end) < 0:
        return inside
    while True:
        if inside or text.startswith(b'"', at, end):
            at += not inside
            while (closing := text.find(b'"', at, end)) >= 0 and text.startswith(b'"', closing + 1, end):
                at = closing + 2
            if closing < 0:
                return True
            inside, at = False, closing + 1
        at = text.find(delimiter, at, end) + 1
        if not at:
            return False


class CsvTable(TextTable):
    """Rows of fields between delimiters.

    Parameters
    ----------
    source : Source
        A file, which may be compressed or growing, or a stream.
    choice : Choice
        Columns to read.
    header : bool, optional
        Whether the first line holds names. None finds out: a first line of numbers alone is a row; one with
        text holds names, unless it has numbers too and the second line has its text in the same columns.
    delimiter : str, optional
        What separates fields; None is a tab for a file named ``.tsv``, a blank if the first line is numbers between
        blanks, else the one of comma, tab and semicolon that cuts the first line into most fields.
    skips, on_missing : bool, str
        What becomes of bad rows and of gaps; see `Table`.

    Notes
    -----
    When one file follows another under the same name, a first line that is repeated in the new file is no row.
    """

    _format = "CSV"

    def __init__(
        self,
        source: Source,
        *,
        choice: Choice,
        header: bool | None = None,
        delimiter: str | None = None,
        skips: bool = False,
        on_missing: str = "raise",
    ) -> None:
        super().__init__(source, skips=skips, on_missing=on_missing)
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii()):
            raise TableError(
                f"{source.name}: expected a delimiter of one ASCII character but got {short(delimiter)!r}; "
                "give one such as --delimiter ','"
            )
        suffixes = [suffix for suffix in source.path.suffixes if suffix[1:] not in {"gz", "bz2", "xz", "zst", "lz4"}]
        self._delimiter = delimiter or ("\t" if suffixes[-1:] == [".tsv"] else "")
        # Read on until it is certain whether there are names: a first line of text and numbers needs the second.
        self._header: bool | None = header
        head = source.peek(lambda head: self._names(head, header, final=False) is not None)
        names = self._names(head, header, final=True)
        assert names is not None, "the end decides"
        self._first = names
        if self._header:
            # numpy.savetxt writes names as a comment.
            names = [name.strip() for name in (names[0].lstrip("# "), *names[1:])]
        else:
            names = [str(j) for j in range(len(names))]
        self.columns = choose_columns(source.name, names, choice, named=bool(self._header))
        if self._header and not is_utf8(self._first_line):
            self.notes.append(
                f"{source.name}: the column names are not UTF-8; they are read as Windows-1252 ({list_names(names)}); "
                "if that is wrong, save the file as UTF-8"
            )
        self._note_names()

    def _names(self, head: bytes, header: bool | None, *, final: bool) -> list[str] | None:
        """Return the fields of the first line, once it is certain whether they are names."""
        head = head.removeprefix(BOM)
        if b"\n" not in head and not final:
            return None
        self._check_text(head)
        first = head.partition(b"\n")[0]
        if not first.strip():
            raise TableError(f"{self.source}: the file is empty or begins with an empty line; give a table with rows")
        given = self._delimiter
        self._delimiter = given or sniff_delimiter(decode(first).rstrip("\r"))
        self._first_line = first
        check_width(self.source, first.count(self._delimiter.encode()) + 1)
        records, _, _ = self._records(head, line=1, final=final)
        lines = [self._fields(records.one(i)) for i in range(min(2, len(records)))]
        self._header = None if not lines else self._looks_named(lines, final=final) if header is None else header
        if self._header is None:
            self._delimiter = given
            return None
        return lines[0]

    def _looks_named(self, lines: list[list[str]], *, final: bool) -> bool | None:
        first = lines[0]
        if any(_MISSPELLED.fullmatch(field.strip()) for field in first):
            return False
        text = [not is_number(field) for field in first]
        if all(text) or not any(text):
            return any(text)
        if len(lines) == 1:
            return True if final else None
        second = lines[1]
        return len(second) != len(first) or any(t and is_number(field) for t, field in zip(text, second, strict=True))

    def _check_text(self, head: bytes) -> None:
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise TableError(f"{self.source}: is text in UTF-16; save it as UTF-8")
        line = head.partition(b"\n")[0]
        if _CONTROLS.search(line):
            raise TableError(
                f"{self.source}: is neither text nor any other known format; give a CSV, TSV, JSON lines, npy, npz, "
                "Parquet or Arrow file"
            )
        if b"\r" in line.rstrip(b"\r"):
            raise TableError(
                f"{self.source}: its lines end in carriage returns without line feeds; save it with line feeds"
            )

    def _fields(self, record: str) -> list[str]:
        fields = split_fields(record, self._delimiter)
        # If the line must be read anyway, a quotation mark that is never closed is an ordinary letter.
        return record.split(self._delimiter) if fields is None else fields

    def _n_header_records(self, records: Records) -> int:
        if not self._header:
            return 0
        first = self._fields(records.one(0))
        # Any other first line is a row, or the rest of one that was torn when the file was emptied.
        is_named = not any(map(is_number, first)) and (len(first) > 1 or len(self._first) == 1)
        if first != self._first and is_named:
            raise TableError(
                f"{self.source}: expected it to begin anew with {self._delimiter.join(self._first)[:80]!r} but got "
                f"{records.one(0)[:80]!r}; read files of other columns separately"
            )
        return int(first == self._first)

    def _record_ends(self, text: bytes, newlines: Counts, *, final: bool) -> Counts:
        ends = newlines + 1
        if b'"' not in text or not (len(ends) or final):
            return ends
        if closed_on_their_lines(text, newlines, self._delimiter):
            return ends
        return np.array(list(quoted_ends(text, ends, self._delimiter, final=final)), dtype=np.int64)

    def _parse_fast(self, records: Records) -> Parsed | None:
        if len(self.columns.names) > _FEW_COLUMNS:
            return self._parse_slowly(records) if self.columns.categories else self._parse_wide(records)
        arrow = need_pyarrow(self.source)
        block, wanted = records.joined, [str(j) for j in self.columns.wanted]
        time = None if self.columns.time is None else str(self.columns.time)
        # All numbers have one type: a column of integers may turn fractional a million rows later.
        categories = {str(j) for j in self.columns.categories}
        types = {j: arrow.string() if j in categories else arrow.float64() for j in wanted} | (
            {} if time is None else {time: arrow.binary()}
        )
        try:
            table = arrow.csv.read_csv(
                arrow.BufferReader(block),
                read_options=arrow.csv.ReadOptions(
                    column_names=[str(j) for j in range(len(self.columns.names))],
                    use_threads=False,
                    block_size=len(block) + 1,
                ),
                parse_options=arrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=b'"' in block),
                convert_options=arrow.csv.ConvertOptions(
                    column_types=types, include_columns=list(types), null_values=_MISSING_SPELLINGS
                ),
            )
            values: Array = np.empty((table.num_rows, len(wanted)))
            for j, name in enumerate(wanted):
                column = table.column(name)
                if name in categories:
                    values[:, j] = self._coded(column.cast(arrow.string()).to_pylist())
                    continue
                # A time column that is also a feature was read as text.
                values[:, j] = (
                    column.cast(arrow.string()).cast(arrow.float64()) if name == time else column
                ).to_numpy()
        except arrow.ArrowInvalid:
            return None
        # Bytes are decoded here as all text is: odd bytes must not stop the numbers.
        times: list[Time] | None = None if time is None else [decode(text) for text in table.column(time).to_pylist()]
        return self._screen_fast(values, times, records)

    def _parse_wide(self, records: Records) -> Parsed | None:
        """Parse rows of many columns: pyarrow takes 66 us and 10 KB for each column of a block, numpy nothing."""
        block, mark = records.joined, self._delimiter.encode()
        newlines = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        if b'"' in block and not closed_on_their_lines(block, newlines, self._delimiter):
            # numpy would read some of these marks otherwise than `split_fields`.
            return self._parse_slowly(records)
        # numpy takes the wanted columns from rows of any length.
        edges = zip(records.starts, records.ends, strict=True)
        lengths = {_QUOTED.sub(b"", records.text[start:end]).count(mark) + 1 for start, end in edges}
        if lengths != {len(self.columns.names)}:
            return None
        try:
            values = np.loadtxt(
                io.BytesIO(block),
                delimiter=self._delimiter,
                comments=None,
                quotechar='"',
                usecols=self.columns.wanted,
                ndmin=2,
                encoding="utf-8",
            )
        except ValueError:
            return None
        times: list[Time] | None = None
        if (time := self.columns.time) is not None:
            times = [self._fields(records.one(i))[time] for i in range(len(records))]
        return self._screen_fast(values, times, records)

    def _parse_one(self, record: str) -> tuple[list[float], Time]:
        fields, names = split_fields(record, self._delimiter), self.columns.names
        if fields is None:
            raise BadRecord("a quotation mark opens a field and is never closed")
        if len(fields) != len(names):
            raise BadRecord(f"expected {len(names)} fields (as in the first line) but found {len(fields)}")
        numbers = [self._number(fields[j], j) for j in self.columns.wanted]
        return numbers, None if self.columns.time is None else fields[self.columns.time]

    def _number(self, field: str, j: int) -> float:
        text = field.strip()
        if text.lower() in MISSING:
            return self._gap(f"{self.columns.called(j)} has no value ({short(field)!r})", j)
        if j in self.columns.categories:
            return float(self._coded([text])[0])
        if not is_number(text):
            hint = "" if self._header else "; if the first line holds names, add --header"
            if len(self.columns.names) == 1:
                hint = "; if another character separates fields, give it with --delimiter"
            if _DECIMAL_COMMA.fullmatch(text):
                hint = "; if this is a decimal comma, write a decimal point"
            elif _MISSPELLED.fullmatch(text):
                hint += "; if this is a number, write it without marks between its digits"
            what = f"{self.columns.called(j)} holds text ({field[:40]!r}) but numbers are required"
            raise BadRecord(what, self.columns.option(j), text=True, hint=hint)
        number = float(text)
        if not np.isfinite(number):
            raise BadRecord(f"{self.columns.called(j)} is infinite", self.columns.option(j))
        return number
