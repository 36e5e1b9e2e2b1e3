"""CSV and JSON lines: blocks of whole lines are cut from the bytes as they arrive, and pyarrow, csv and json read them.

pyarrow's own streaming readers read ahead in threads, so rows of a slow pipe would wait for a full block.
"""

import csv
import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.csv

from streamkpca.cli.tables.source import LONGEST_LINE, READ_BYTES, Source
from streamkpca.cli.tables.table import Array, Block, Counts, Start, TableError, check_width, distinct, drop_hint, short
from streamkpca.cli.tables.times import Times

BOM = b"\xef\xbb\xbf"
_UTF_16 = b"\xff\xfe", b"\xfe\xff"
# How tables spell that a value is missing.
MISSING = ("", "na", "n/a", "nan", "-nan", "null", "none", "#n/a", "#na", "?")
_NULLS = sorted({spelling for text in MISSING for spelling in (text, text.upper(), text.capitalize(), "NaN")})
_WORDS = {**dict.fromkeys(MISSING, math.nan), "true": 1.0, "false": 0.0}
_DELIMITERS = (",", ";", "\t", "|")
_NUMBER_WITH_POINT = re.compile(r"[+-]?\d*\.\d+")
_NUMBER_WITH_COMMA = re.compile(r"[+-]?[\d.']*\d,\d+")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")
_SEPARATOR = re.compile(r"sep=(.)", re.IGNORECASE)
_SWAPPED = str.maketrans(".,", ",.")
_DIGITS = re.compile(r"\d,(?=\d)")
_CONTROLS = re.compile(rb"[\0-\x08\x0e-\x1f\x7f]")
# Cells from which columns of text are told from columns of numbers.
_SAMPLE_CELLS = 10_000
_SAMPLE_BYTES = 1 << 19
_MOST_TITLES = 20
# pyarrow takes 10 KB for each column of a block, and is no faster than csv where there are more columns.
_MOST_FAST_COLUMNS = 2000
# A Ctrl-C that comes while pyarrow reads would be lost where there is nothing left to read.
pyarrow.enable_signal_handlers(False)


class Record(NamedTuple):
    """One row of text: its line and the line after it, counted from 0, and its fields or what is wrong with it."""

    line: int
    following: int
    fields: Any


# Numbers (n, k), times (n,) and lines (n, 2) of rows, and the lines that are no rows with their faults.
Parsed = tuple[Array, npt.NDArray[Any] | None, Counts, list[tuple[int, str]]]


class TextReader:
    """Rows of text, in blocks of whole lines."""

    unit = "line"

    def __init__(self, source: Source, lines: "CsvLines | JsonLines") -> None:
        self._source, self._lines = source, lines
        self.names, self.named, self.texts, self.dialect = lines.names, lines.named, lines.texts, lines.dialect
        self.total, self.rereadable, self.check_start = source.size, source.rereadable, source.check_start
        check_width(source.name, len(self.names))

    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row from a byte and a line."""
        place = {"byte": int(after[0]), "line": int(after[1]), "head": self._source.mark()}
        return place if self.rereadable else None

    def sample(self, column: int) -> Any:
        """Return the first cells of a column, as the lines have them."""
        return self._lines.sample(column)

    def blocks(self, wanted: list[int], times: Times, n_rows: int, start: Start) -> Iterator[Block]:
        """Yield the columns at these positions, in blocks of the size in which bytes arrive."""
        del n_rows
        at, line, rest = (0, 1, b"") if start is None else (int(start["byte"]), int(start["line"]), b"")
        for piece in chain(self._source.pieces(at), [b""]):
            if piece is None:
                if rest.strip():
                    lost = f"{self._source.name}: its last line, {line}, was never completed, and is left out"
                    self._source.notes.append(lost)
                at, line, rest = 0, 1, b""
                continue
            rest += piece
            # The empty piece is the last, after which the last line is whole even without a line end.
            end = whole_lines(rest, quotes=isinstance(self._lines, CsvLines)) if piece else len(rest)
            if end:
                yield self._block(rest[:end], at, line, wanted, times)
                at, line, rest = at + end, line + rest.count(b"\n", 0, end), rest[end:]
            if len(rest) > LONGEST_LINE:
                raise TableError(f"{self._source.name}, line {line}: is longer than {LONGEST_LINE} bytes; give a table")

    def _block(self, text: bytes, at: int, line: int, wanted: list[int], times: Times) -> Block:
        """Read whole lines that begin at a byte and a line of the file."""
        end, next_line, parsed = at + len(text), line + text.count(b"\n"), None
        decoded = decode(text, self._source.name)
        text = text.removeprefix(BOM)
        if at == 0 and isinstance(self._lines, CsvLines) and (n_before := self._lines.n_before(decoded)):
            text, line = (text + b"\n").split(b"\n", n_before)[-1][:-1], line + n_before
            decoded = decode(text, self._source.name)
        codes = np.frombuffer(text, np.uint8)
        ends = np.append(np.flatnonzero(codes[:-1] == ord("\n")) + 1, len(text))
        if isinstance(self._lines, CsvLines):
            marks = np.flatnonzero(codes == ord('"'))
            if not (np.searchsorted(marks, ends) % 2).any():
                parsed = self._lines.parse_fast(text, len(ends), wanted, times)
        numbers, when, lines, bad = parsed or self._parse_slowly(decoded, wanted, times)
        after = np.column_stack([end - len(text) + ends[lines[:, 1] - 1], line + lines[:, 1]])
        after[-1:] = end, next_line
        return Block(line + lines[:, 0], numbers, when, after, end, [(line + i, fault) for i, fault in bad])

    def _parse_slowly(self, text: str, wanted: list[int], times: Times) -> Parsed:
        """Read record by record, which finds the rows at fault and reads whatever Python reads."""
        numbers, whens, lines, bad = [], list[Any](), [], []
        for record in self._lines.records(text):
            try:
                row, cells = self._lines.values(record, wanted, times)
                whens += [times.read([[cell] for cell in cells])] if cells else []
            except ValueError as error:
                bad.append((record.line, str(error)))
            else:
                numbers.append(row)
                lines.append(record[:2])
        when = np.concatenate(whens or [np.empty(0)]) if times.columns else None
        shape = len(lines), len(wanted)
        return np.array(numbers, float).reshape(shape), when, np.array(lines, int).reshape(-1, 2), bad


def decode(text: bytes, name: str) -> str:
    """Decode UTF-8, or else the single bytes in which spreadsheets often write names and units; refuse UTF-16."""
    try:
        return text.removeprefix(BOM).decode()
    except UnicodeDecodeError:
        if text[:2] not in _UTF_16:
            return text.decode("cp1252", "replace")
        raise TableError(f"{name}: is UTF-16; convert it: iconv -f utf-16 -t utf-8 FILE > OTHER") from None


def whole_lines(text: bytes, *, quotes: bool) -> int:
    """Return the byte after the last line that is complete, and with `quotes` does not end between quotation marks."""
    last = text.rfind(b"\n") + 1
    if not quotes or b'"' not in text:
        return last
    codes = np.frombuffer(text, np.uint8)
    newlines = np.flatnonzero(codes == ord("\n"))
    outside = newlines[np.searchsorted(np.flatnonzero(codes == ord('"')), newlines) % 2 == 0]
    end = int(outside[-1]) + 1 if len(outside) else 0
    # A mark that is not closed for as long as this never will be.
    return end if len(text) - end < READ_BYTES else last


def beginning(source: Source, n_lines: int) -> str:
    """Look at the whole lines that have arrived: at least `n_lines` that are not blank, or all text."""

    def enough(head: bytes) -> bool:
        lines = head[: whole_lines(head, quotes=True)].split(b"\n", 100)
        return sum(1 for line in lines if line.strip()) >= n_lines

    head = source.peek(enough)
    if not head.strip():
        raise TableError(f"{source.name}: the file is empty; give a table with rows")
    if _CONTROLS.search(head.partition(b"\n")[0]) and head[:2] not in _UTF_16:
        kinds = "CSV (save a spreadsheet as CSV), JSON lines, Parquet, Arrow or npy"
        remedy = f"give {kinds}, compressed ones with the suffix .gz, .bz2, ..."
        raise TableError(f"{source.name}: is neither text nor any other known format; {remedy}")
    return decode(head[: whole_lines(head, quotes=True)] if enough(head) else head, source.name)


class CsvLines:
    """Rows of fields between delimiters.

    With `header` None, a first line of numbers alone is a row, and one of text and numbers holds names unless the
    second has its text in the same columns. With `delimiter` None, the one that cuts the first line into most fields.
    """

    def __init__(self, source: Source, *, header: bool | None, delimiter: str | None, decimal: str | None) -> None:
        self._source, self._decimal = source, decimal or "."
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii()):
            what = f"expected a delimiter of one ASCII character but got {short(delimiter)!r}"
            raise TableError(f"{source.name}: {what}; give one such as --delimiter ';'")
        head = beginning(source, 1 if header is False else 2)
        first, *more = islice((line for line in head.split("\n") if line.strip()), 2)
        if mark := _SEPARATOR.fullmatch(first.strip()):
            remedy = f"leave it out: tail -n +2 FILE | streamkpca ... - --delimiter '{mark[1]}'"
            raise TableError(f"{source.name}: its first line {short(first.strip())!r} is for spreadsheets; {remedy}")
        # Commas between digits may be decimal ones.
        lines = [_DIGITS.sub("0", line) for line in (first, *more)]
        self._delimiter = delimiter or max(
            (mark for mark in _DELIMITERS if mark != decimal),
            key=lambda mark: min(len(next(csv.reader([line], delimiter=mark))) for line in lines),
        )
        cut = head[: _SAMPLE_BYTES + 2 * len(first)]
        whole = cut if len(cut) == len(head) else cut[: cut.rindex("\n") + 1]
        sample = [record.fields for record in self.records(whole)]
        if isinstance(sample[0], str):
            raise TableError(f"{source.name}: its first line {sample[0]}; correct it")
        self._first: list[str] = sample[0]
        n = len(self._first)
        for i, line in enumerate(head.split("\n")[1:_MOST_TITLES] if n == 1 else [], start=2):
            if any(mark in _DIGITS.sub("0", line) for mark in _DELIMITERS):
                what = f"its first line has one field, but line {i} has more"
                remedy = f"leave out what stands above the names: tail -n +{i} FILE | streamkpca ... -"
                raise TableError(f"{source.name}: {what}; {remedy}")
        rows = [row for row in sample if len(row) == n and isinstance(row, list)]
        if decimal is None and _has_decimal_commas(rows, self._delimiter):
            self._decimal = ","
        self.named = self._looks_named(rows[:2]) if header is None else header
        self.names = distinct([name.strip() for name in self._first]) if self.named else list(map(str, range(n)))
        self._columns = list(zip(*rows[self.named :], strict=True)) or [()] * n
        self.texts = {j for j, cells in enumerate(self._columns) if self._is_text(cells[: max(2, _SAMPLE_CELLS // n)])}
        self.dialect = {"header": self.named, "delimiter": self._delimiter, "decimal": self._decimal}

    def _looks_named(self, rows: Sequence[Sequence[str]]) -> bool:
        text, *second = ([not self._is_number(cell) for cell in row] for row in rows)
        # Text above text may be a row too, unless there is nothing else.
        return all(text) or (any(text) and (not second or any(a and not b for a, b in zip(text, *second, strict=True))))

    def _is_text(self, cells: Sequence[str]) -> bool:
        known = [cell for cell in cells if cell.strip().lower() not in MISSING]
        return bool(known) and 2 * sum(map(self._is_number, known)) < len(known)

    def sample(self, column: int) -> Any:
        """Return the first cells of a column: text, or numbers with NaN for others."""
        cells = self._columns[column]
        return list(cells) if column in self.texts else np.array([self._number_or_gap(cell) for cell in cells], float)

    def _number_or_gap(self, cell: str) -> float:
        try:
            return self._number(cell)
        except ValueError:
            return math.nan

    def _is_number(self, cell: str) -> bool:
        """Tell whether a cell holds a number or nothing, or is meant to be a number."""
        try:
            self._number(cell)
        except ValueError:
            return _NUMBER_WITH_COMMA.fullmatch(cell.strip()) is not None
        return True

    def _number(self, cell: str) -> float:
        text = (cell if self._decimal == "." else cell.translate(_SWAPPED)).strip().lower()
        try:
            return float(text if "_" not in text else "")
        except ValueError:
            if text in _WORDS:
                return _WORDS[text]
            if _THOUSANDS.fullmatch(text):
                return float(text.replace(",", ""))
            raise

    def records(self, text: str) -> Iterator[Record]:
        """Cut text into records; a quotation mark that is never closed spoils its own line alone."""
        lines = text.removesuffix("\n").split("\n")
        at = 0
        while at < len(lines):
            begin, fault = at, ""
            reader = csv.reader((line + "\n" for line in islice(lines, begin, None)), delimiter=self._delimiter)
            try:
                for fields in reader:
                    end = begin + reader.line_num
                    if end > at + 1 and sum(line.count('"') for line in lines[at:end]) % 2:
                        fault = "has a quotation mark that opens a field and is never closed"
                        break
                    if end > at + 1 or lines[at].strip():
                        yield Record(at, end, fields)
                    at = end
            except csv.Error as error:
                fault = f"is not CSV ({error})"
            if fault:
                yield Record(at, at + 1, fault)
                at += 1

    def n_before(self, text: str) -> int:
        """Count the lines before the rows at the beginning of a file; refuse a file with other names."""
        first = next(self.records(text), None)
        if first is None or not self.named or isinstance(first.fields, str):
            return 0
        if first.fields != self._first and not any(map(self._is_number, first.fields)):
            expected, got = (self._delimiter.join(fields)[:80] for fields in (self._first, first.fields))
            what = f"expected it to begin anew with {expected!r} but got {got!r}"
            raise TableError(f"{self._source.name}: {what}; read files of other columns separately")
        return first.following if first.fields == self._first else 0

    def values(self, record: Record, wanted: list[int], times: Times) -> tuple[list[float], list[str]]:
        """Read the chosen fields of a record."""
        fields = record.fields
        if isinstance(fields, str):
            raise ValueError(fields)
        if len(fields) != len(self.names):
            raise ValueError(f"expected {len(self.names)} fields but got {len(fields)}")
        numbers = []
        for j in wanted:
            try:
                numbers.append(self._number(fields[j]))
            except ValueError:
                hint = "; names in the first line need --header" if record.line == 0 and not self.named else ""
                if _NUMBER_WITH_COMMA.fullmatch(fields[j].strip()):
                    hint = "; numbers with decimal commas need --decimal ,"
                raise ValueError(_text_in(self.names[j], fields[j]) + hint) from None
        return numbers, [fields[j] for j in times.columns]

    def parse_fast(self, text: bytes, n_lines: int, wanted: list[int], times: Times) -> Parsed | None:
        """Read text with a row on every line by pyarrow; None where any row needs `values`."""
        n = len(self.names)
        if n > _MOST_FAST_COLUMNS:
            return None
        passed: list[tuple[int, str]] = []

        def note(row: Any) -> str:
            fault = f"expected {n} fields but got {row.actual_columns}" if row.text.strip() else ""
            passed.append((row.number - 1, fault))
            return "skip"

        types = {str(j): pyarrow.float64() for j in wanted}
        types |= {str(j): pyarrow.string() for j in times.columns}
        names, size = list(map(str, range(n))), len(text) + 1
        options = (
            pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=size),
            pyarrow.csv.ParseOptions(delimiter=self._delimiter, invalid_row_handler=note),
            pyarrow.csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=_NULLS, decimal_point=self._decimal
            ),
        )
        try:
            table = pyarrow.csv.read_csv(pyarrow.BufferReader(text), *options)
            when = times.read([table.column(str(j)) for j in times.columns])
        except ValueError:
            # Among these is ArrowInvalid.
            return None
        # Empty lines, and odd quotation marks, make other numbers of rows.
        if len(table) + len(passed) != n_lines:
            return None
        columns = [table.column(str(j)).to_numpy() for j in wanted]
        lines = np.delete(np.arange(n_lines), [line for line, _ in passed])
        bad = [(line, fault) for line, fault in passed if fault]
        return np.column_stack(columns), when, np.column_stack([lines, lines + 1]), bad


class JsonLines:
    """Rows of JSON, one a line: objects, whose keys are the columns, or arrays of one length, without names.

    A key that is absent or null is a gap. The columns are those of the first lines and of `more`.
    """

    def __init__(self, source: Source, *, more: Sequence[str] = ()) -> None:
        rows: list[dict[str, Any]] = []
        faults = []
        for record in islice(self.records(beginning(source, 1)), 1000):
            try:
                rows.append(_row(record.fields))
            except ValueError as error:
                faults.append(f"{source.name}, line {record.line + 1}: {error}")
        if not rows:
            raise TableError(faults[0])
        self.named = list(rows[0]) != [str(j) for j in range(len(rows[0]))]
        self.names = list(dict.fromkeys(chain(*rows, more if self.named else ())))
        samples = ([row.get(name) for row in rows[: max(2, _SAMPLE_CELLS // len(self.names))]] for name in self.names)
        known = [{type(cell) for cell in cells if cell is not None} for cells in samples]
        self.texts = {j for j, kinds in enumerate(known) if kinds and not kinds & {float, bool}}
        self.dialect: dict[str, Any] = {}
        self._rows = rows

    def sample(self, column: int) -> Any:
        """Return the first cells of a column: text, or numbers with NaN for others."""
        cells = [row.get(self.names[column]) for row in self._rows]
        if column in self.texts:
            return ["" if cell is None else str(cell) for cell in cells]
        return np.array([cell if isinstance(cell, float | bool) else math.nan for cell in cells], float)

    def records(self, text: str) -> Iterator[Record]:
        """Give every line that is not blank."""
        return (Record(i, i + 1, line) for i, line in enumerate(text.split("\n")) if line.strip())

    def values(self, record: Record, wanted: list[int], times: Times) -> tuple[list[float], list[str]]:
        """Read the chosen values of a line."""
        row = _row(record.fields)
        numbers = [_value(row.get(self.names[j]), self.names[j]) for j in wanted]
        return numbers, [str(row.get(self.names[j])) for j in times.columns]


def _row(line: str) -> dict[str, Any]:
    try:
        # A float of any number of digits is known, if need be as infinity.
        row = json.loads(line, parse_int=float)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({error}); write one object or array a line (jq -c '.[]')") from None
    if isinstance(row, list):
        row = {str(j): value for j, value in enumerate(row)}
    if not isinstance(row, dict) or not row:
        raise ValueError(f"expected an object or an array with values but got {line[:40]!r}")
    return row


def _value(value: Any, name: str) -> float:
    if not isinstance(value, float | bool | None):
        raise ValueError(_text_in(name, str(value)))
    return math.nan if value is None else float(value)


def _has_decimal_commas(rows: Sequence[Sequence[str]], delimiter: str) -> bool:
    """Tell whether numbers have commas before their decimals: some do, and none has a point there.

    Between commas, numbers whose commas are all followed by three digits have them between thousands.
    """
    cells = [cell.strip() for row in rows for cell in row]
    numbers = [cell for cell in cells if _NUMBER_WITH_COMMA.fullmatch(cell)]
    are_thousands = delimiter == "," and all(map(_THOUSANDS.fullmatch, numbers))
    return bool(numbers) and not (are_thousands or any(map(_NUMBER_WITH_POINT.fullmatch, cells)))


def _text_in(name: str, cell: str) -> str:
    return f"column {short(name)!r} holds text ({cell[:40]!r}) but numbers are required ({drop_hint(name)})"
