"""Text: CSV, spreadsheets and JSON lines. Blocks of whole lines are cut from the bytes as they arrive.

pyarrow cuts the cells of CSV: it reads 400,000 rows of 20 columns, as text and then as numbers, in half a second, gives
the place of rows of another width, and comes with the formats that need it anyway. Its streaming readers read ahead in
threads, so rows of a slow pipe would wait for a full block.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv

from streamkpca.tables import csv_layout as layout
from streamkpca.tables.asked import Asked
from streamkpca.tables.errors import TableError, short
from streamkpca.tables.numbers import MISSING
from streamkpca.tables.reader import COMMENT, NAMES_AGAIN, NO_JSON, OTHER_WIDTH, Counts, Part, Reader, Start
from streamkpca.tables.source import LONGEST_LINE, READ_BYTES, Source

# A stream is looked at when this number of rows has come, as fewer show little of its columns.
_LOOK_ROWS = 64
_BOM = b"\xef\xbb\xbf"
# NUL fills what a logger has reserved, Ctrl-Z ends files of old systems, and carriage returns stand before line ends.
_NO_TEXT = b"\0\x1a\r"
_AROUND_LINES = re.compile(rb"^[\0\x1a\r]+|[\0\x1a\r]+$", re.MULTILINE)
_IN_LINES = re.compile(rb"[\0\x1a\r]")
# What stands for bytes that are no text: cells with it hold no number.
_NO_LETTER = "\ufffd"
# Formulas by which spreadsheets are told to keep text.
_FORMULA = re.compile(r'(^|[,;\t|])(?:="([^"\n]*)"|"=""([^"\n]*)""")(?=[,;\t|]|$)', re.MULTILINE)
# Which lines are rows, their cells by columns, and the positions, kinds and details of others.
Rows = tuple[Counts, dict[str, Any], list[tuple[int, str, str]]]
_NULLS = sorted({spelling for text in MISSING for spelling in (text, text.upper(), text.capitalize(), "NaN")})
# pyarrow takes 10 KB for each column of a block, and is no faster than csv where there are more columns.
_MOST_FAST_COLUMNS = 2000

# A Ctrl-C that comes while pyarrow reads would be lost where there is nothing left to read.
pyarrow.enable_signal_handlers(False)


class LineReader(Reader):
    """Base of the readers of text."""

    unit = "line"
    _sample: bytes
    _code: str | None = None
    # Whether a cell in quotation marks may go on after a line end.
    has_long_cells = False

    def check_start(self, start: Mapping[str, Any]) -> None:
        """Refuse a position in another file."""
        self.source.check_start(start)

    def position(self, after: Counts) -> dict[str, Any] | None:
        """Make the position after a row from a byte and a line."""
        place = {"byte": int(after[0]), "line": int(after[1]), "head": self.source.mark()}
        return place if self.source.rereadable else None

    def sample(self) -> Part:
        """Return the first rows."""
        part, self.n_replaced = self._part(self._sample, 0, 1, self.names, is_first=True), 0
        return part

    def parts(self, wanted: Sequence[str], n_rows: int, start: Start) -> Iterator[Part]:
        """Yield the columns of these names, in parts of the size in which bytes arrive."""
        del n_rows
        at, line = (0, 1) if start is None else (int(start["byte"]), int(start["line"]))
        rest, is_first = b"", True
        for piece in chain(self.source.pieces(at), [b""]):
            if piece is None:
                if rest.strip():
                    lost = f"{self.source.name}: its last line, {line}, was never completed, and is left out"
                    self.source.notes.append(lost)
                at, line, rest, is_first = 0, 1, b"", False
                continue
            rest += piece
            # The empty piece is the last, after which the last line is whole even without a line end.
            end = _whole_lines(rest, quotes=self.has_long_cells) if piece else len(rest)
            if end:
                yield self._part(rest[:end], at, line, wanted, is_first=is_first)
                at, line, rest = at + end, line + rest.count(b"\n", 0, end), rest[end:]
            if len(rest) > LONGEST_LINE:
                raise TableError(f"{self.source.name}, line {line}: is longer than {LONGEST_LINE} bytes; give a table")

    def _part(self, block: bytes, at: int, number: int, wanted: Sequence[str], *, is_first: bool) -> Part:
        """Read whole lines that begin at a byte of the file and have numbers from this one on."""
        texts = self._decode(block).split("\n")
        n_above = 0 if at else self.n_above if is_first else self._n_above_anew(texts)
        # Whether any line ends between quotation marks.
        is_open = self.has_long_cells and any(text.count('"') % 2 for text in texts)
        all_lines = layout.join_lines(texts) if is_open else (layout.Line(i, i + 1, one) for i, one in enumerate(texts))
        lines = [line for line in all_lines if line.first >= n_above and line.text.strip()]
        # A last line that is not complete may lack more than its last cells.
        n_whole = len(lines) - (not block.endswith(b"\n"))
        kept, cells, bad = self._read([line.text for line in lines], wanted, n_whole)
        ends = np.append(np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1, len(block))
        first, following = np.array([line[:2] for line in lines], int).reshape(-1, 2)[kept].T
        after = np.column_stack([at + ends[following - 1], number + following])
        after[-1:] = at + len(block), number + block.count(b"\n")
        told = [(number + lines[i].first, kind, what) for i, kind, what in bad]
        return Part(number + first, cells, after, told)

    def _n_above_anew(self, texts: Sequence[str]) -> int:
        """Count the lines above the first row of a file that begins anew."""
        del texts
        return 0

    def _decode(self, block: bytes) -> str:
        """Decode a block in the code that the first letters beyond ASCII show, and count what is no text."""
        if self._code is None and not block.isascii():
            self._code = find_letters(block)
        text = decode(block, self._code or "utf-8")
        self.n_replaced += text.count(_NO_LETTER)
        return text

    @abstractmethod
    def _read(self, texts: Sequence[str], wanted: Sequence[str], n_whole: int) -> Rows:
        """Read lines: which are rows, their cells by columns, and the positions and faults of others."""


def find_letters(block: bytes) -> str:
    """Find the code of letters: UTF-8, or the single bytes in which spreadsheets often write names and units."""
    text = block.decode("utf-8", "replace")
    n_bad = text.count(_NO_LETTER)
    return "utf-8" if 2 * n_bad < sum(not letter.isascii() for letter in text) or not n_bad else "cp1252"


def decode(block: bytes, code: str) -> str:
    """Decode text. Bytes that are none part cells from their numbers, but are nothing at the ends of lines."""
    block = block.removeprefix(_BOM).replace(b"\r\n", b"\n")
    if any(byte in block for byte in (b"\0", b"\x1a", b"\r")):
        block = _IN_LINES.sub(_NO_LETTER.encode(code, "replace"), _AROUND_LINES.sub(b"", block))
    text = block.decode(code, "replace")
    return _FORMULA.sub(r'\1"\2\3"', text) if '="' in text else text


def _whole_lines(text: bytes, *, quotes: bool) -> int:
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


def _look_at_beginning(source: Source, n_lines: int, *, quotes: bool) -> bytes:
    """Look at the whole lines that have arrived: at least `n_lines` that are not blank, or all text."""

    def take_whole(text: bytes) -> bytes:
        return text[: _whole_lines(text, quotes=quotes)]

    def is_enough(text: bytes) -> bool:
        return sum(bool(line.strip()) for line in take_whole(text).split(b"\n", 10 * n_lines)) >= n_lines

    text = source.peek(is_enough)
    if not text.translate(None, _NO_TEXT).strip():
        raise TableError(f"{source.name}: the file is empty; give a table with at least one row")
    if b"\r" in text.rstrip() and b"\n" not in text:
        raise TableError(f"{source.name}: expected line feeds but lines end in carriage returns; save it as CSV UTF-8")
    return take_whole(text) if is_enough(text) else text


class CsvReader(LineReader):
    """Rows of cells between delimiters."""

    has_long_cells = True

    def __init__(self, source: Source, asked: Asked) -> None:
        delimiter, n_above = asked.delimiter, max(asked.skip, asked.names_line or 0)
        n_lines = n_above + (_LOOK_ROWS if asked.looks else 1 if asked.header is False else 2)
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii()):
            what = f"expected a delimiter of one ASCII character but got {short(delimiter)!r}"
            raise TableError(f"{source.name}: {what}; give one such as --delimiter ';'")
        self._sample = _look_at_beginning(source, n_lines, quotes=True)
        self._layout = layout.find_layout(self._decode(self._sample), source.name, asked)
        is_named, first = self._layout.names is not None, dict[str, int]()
        # Columns without a name are called by their position, which is appended to a name that came before.
        names = [name or str(j) for j, name in enumerate(self._layout.names or [""] * self._layout.width)]
        names = [name if first.setdefault(name, j) == j else f"{name}.{j}" for j, name in enumerate(names)]
        super().__init__(source, names, named=is_named, total=source.size)
        self.n_above = self._layout.n_head
        self.dialect = {"header": is_named, "delimiter": self._layout.delimiter}

    def _n_above_anew(self, texts: Sequence[str]) -> int:
        """Count the lines above the first row: there may be none, but no other names."""
        for i, text in enumerate(texts):
            if text.strip() and self._kind(text) is None:
                cells = layout.cut(text, self._layout.delimiter)
                is_text = not any(layout.is_typed(cell) or layout.is_missing(cell) for cell in cells)
                if self.named and len(cells) == len(self.names) and is_text:
                    expected = self._layout.delimiter.join(self.names)[:80]
                    what = f"expected it to begin anew with {expected!r} but got {text[:80]!r}"
                    raise TableError(f"{self.source.name}: {what}; read files of other columns separately")
                return i
        return len(texts)

    def _kind(self, text: str) -> str | None:
        """Tell what a line is that is no row."""
        if layout.is_comment(text):
            return COMMENT
        return NAMES_AGAIN if text.strip() in self._layout.head else None

    def _read(self, texts: Sequence[str], wanted: Sequence[str], n_whole: int) -> Rows:
        width, delimiter, whole = self._layout.width, self._layout.delimiter, "\n".join(texts)
        # Most blocks hold none of these, and need no look at each line.
        is_plain = not any(sign in whole for sign in (*layout.MARKS, *self._layout.head))
        odd = ((i, self._kind(text)) for i, text in enumerate([] if is_plain else texts))
        bad = [(i, kind, f"{kind}: {texts[i][:40]!r}") for i, kind in odd if kind]
        kept = np.delete(np.arange(len(texts)), [i for i, *_ in bad])
        lines = [texts[i] for i in kept.tolist()] if bad else [*texts]
        found, table = self._cut_fast(lines, wanted)
        if short_rows := [(i, n) for i, n in found if self._layout.least <= n < width and kept[i] < n_whole]:
            for i, n in short_rows:
                lines[i] += delimiter * (width - n)
            found, table = self._cut_fast(lines, wanted)
        if table is not None and len(table) + len(found) == len(lines):
            cells = {name: table.column(name).combine_chunks() for name in wanted}
        else:
            rows = [layout.cut(one, delimiter) for one in lines]
            found = [(i, len(row)) for i, row in enumerate(rows) if len(row) != width]
            known = [[None if layout.is_missing(cell) else cell for cell in row] for row in rows if len(row) == width]
            places = {name: j for j, name in enumerate(self.names)}
            cells = {name: pyarrow.array([row[places[name]] for row in known], pyarrow.string()) for name in wanted}
        bad += [(int(kept[i]), OTHER_WIDTH, f"expected {width} cells but got {n}") for i, n in found]
        return np.delete(kept, [i for i, _ in found]), cells, bad

    def _cut_fast(self, lines: Sequence[str], wanted: Sequence[str]) -> tuple[list[tuple[int, int]], Any]:
        """Cut lines by pyarrow where it can, and list the positions and widths of those that have another width."""
        found: list[tuple[int, int]] = []

        def note(row: Any) -> str:
            found.append((row.number - 1, row.actual_columns))
            return "skip"

        if not lines or self._layout.width > _MOST_FAST_COLUMNS:
            return found, None
        mark = self._layout.delimiter
        if mark == " ":
            lines, mark = ["\t".join(layout.cut(one, " ")) for one in lines], "\t"
        data = "\n".join(lines).encode()
        quote = '"' if b'"' in data else False
        with suppress(pyarrow.ArrowInvalid):
            return found, pyarrow.csv.read_csv(
                pyarrow.BufferReader(data),
                pyarrow.csv.ReadOptions(column_names=self.names, use_threads=False, block_size=len(data) + 1),
                pyarrow.csv.ParseOptions(delimiter=mark, quote_char=quote, invalid_row_handler=note),
                pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(wanted, pyarrow.string()),
                    include_columns=wanted,
                    null_values=_NULLS,
                    strings_can_be_null=True,
                ),
            )
        return found, None


def read_sheet(source: Source, asked: Asked) -> CsvReader:
    """Read the first sheet that has rows as text: a line for each row, with tabs between cells."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError:
        remedy = 'pip install "streamkpca[xlsx]", or save it as CSV'
        raise TableError(f"{source.name}: is a spreadsheet, which needs python-calamine; {remedy}") from None
    book = CalamineWorkbook.from_path(str(source.path))
    sheets = ((name, book.get_sheet_by_name(name).to_python(skip_empty_area=False)) for name in book.sheet_names)
    name, rows = next(((name, rows) for name, rows in sheets if len(rows) > 1), ("", []))
    source.sheet = "".join("\t".join(map(_spell, row)) + "\n" for row in rows).encode()
    if len(book.sheet_names) > 1:
        source.notes.append(f"{source.name}: has {len(book.sheet_names)} sheets; reading {name!r}")
    return CsvReader(source, asked)


def read_json(source: Source, asked: Asked) -> LineReader:
    """Read JSON: rows one a line, or in a document; or CSV whose first name begins with a bracket."""
    line, *others = decode(_look_at_beginning(source, 1, quotes=False), "utf-8").strip().split("\n", 1)
    with suppress(RecursionError):
        try:
            if isinstance(value := json.loads(line), dict) and (others or not _list_rows(value)):
                return JsonReader(source, asked)
        except json.JSONDecodeError as error:
            # A document goes on in the next line.
            if error.pos < len(line.rstrip()) - 1:
                return CsvReader(source, asked)
    if source.follows:
        raise TableError(f"{source.name}: is one document of JSON, which does not grow row by row; leave --follow out")
    try:
        rows = _list_rows(json.loads(b"".join(filter(None, source.pieces()))))
    except (RecursionError, ValueError) as error:
        raise TableError(f"{source.name}: is not JSON ({error}); write one object a line") from None
    if not rows:
        raise TableError(f"{source.name}: has no array of objects among its JSON; write one object a line")
    objects = (row if isinstance(row, dict) else dict(enumerate(row)) for row in rows if isinstance(row, dict | list))
    source.sheet = "\n".join(map(json.dumps, objects)).encode()
    return JsonReader(source, asked)


def _list_rows(value: Any) -> list[Any]:
    """List the rows of a document: its longest array of objects, or its arrays of one length, which are columns."""
    if isinstance(value, list):
        return value if value and isinstance(value[0], dict | list) else []
    if not isinstance(value, dict):
        return []
    columns = {name: one for name, one in value.items() if isinstance(one, list) and not _list_rows(one)}
    if len(columns) > 1 and len({*map(len, columns.values())}) == 1:
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return max(map(_list_rows, value.values()), key=len, default=[])


class JsonReader(LineReader):
    """Rows of JSON, one a line: objects, whose keys are the columns.

    Names of values inside others have a point between. A key that is absent or null is a gap. The columns are those of
    the first lines and, where gaps are learned, those that are known.
    """

    def __init__(self, source: Source, asked: Asked) -> None:
        self._sample = _look_at_beginning(source, _LOOK_ROWS if asked.looks else 1, quotes=False)
        more = asked.known.columns if asked.missing == "marginal" else ()
        rows, bad = _read_objects(self._decode(self._sample).split("\n"))
        if not rows:
            raise TableError(f"{source.name}, line {bad[0][0] + 1}: {bad[0][2]}")
        super().__init__(source, list(dict.fromkeys(chain(*rows.values(), more))), named=True, total=source.size)

    def _read(self, texts: Sequence[str], wanted: Sequence[str], n_whole: int) -> Rows:
        del n_whole
        rows, bad = _read_objects(texts)
        return np.array([*rows], int), {name: _column([row.get(name) for row in rows.values()]) for name in wanted}, bad


def _read_objects(texts: Sequence[str]) -> tuple[dict[int, dict[str, Any]], list[tuple[int, str, str]]]:
    """Read objects from lines that are not blank, by positions, and list the faults of other lines."""
    rows, bad = dict[int, dict[str, Any]](), list[tuple[int, str, str]]()
    for i, text in enumerate(texts):
        try:
            # A float of any number of digits is known, if need be as infinity.
            row = json.loads(text, parse_int=float) if text.strip() else None
        except (RecursionError, ValueError) as error:
            bad.append((i, NO_JSON, f"is not JSON ({error}); write one object a line"))
            continue
        if isinstance(row, dict) and row:
            rows[i] = dict(_flatten(row, ""))
        elif text.strip():
            bad.append((i, NO_JSON, f"expected an object with values but got {text[:40]!r}"))
    return rows, bad


def _flatten(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the values inside an object or array, by names with points between."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in inside:
        if isinstance(inner, dict | list) and inner:
            yield from _flatten(inner, f"{name}{key}.")
        else:
            yield f"{name}{key}", inner


def _column(values: list[Any]) -> Any:
    """Make cells of what stands in JSON: numbers, or else text."""
    if all(value is None or type(value) is float for value in values):
        return pyarrow.array(values, pyarrow.float64())
    return pyarrow.array([None if value is None else _spell(value) for value in values], pyarrow.string())


def _spell(cell: Any) -> str:
    """Write a cell as one line of text, whole numbers without a point."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    return " ".join(str(cell).split())
