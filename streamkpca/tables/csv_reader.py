"""CSV, and the base of readers of text: blocks of whole lines are cut from the bytes as they arrive.

pyarrow cuts the cells: it reads 400,000 rows of 20 columns, as text and then as numbers, in half a second, gives the
place of rows of another width, and comes with the formats that need it anyway. Its streaming readers read ahead in
threads, so rows of a slow pipe would wait for a full block.
"""

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
from streamkpca.tables.bad_rows import COMMENT, NAMES_AGAIN, OTHER_WIDTH
from streamkpca.tables.columns import Asked
from streamkpca.tables.errors import TableError, short
from streamkpca.tables.numbers import MISSING
from streamkpca.tables.readers import Counts, Part, Reader, Start, name_columns
from streamkpca.tables.source import LONGEST_LINE, READ_BYTES, Source, find_code, recode

# A stream is looked at when this number of rows has come, as fewer show little of its columns.
LOOK_ROWS = 64
_BOM = b"\xef\xbb\xbf"
# NUL fills what a logger has reserved, Ctrl-Z ends files of old systems, and carriage returns stand before line ends.
_NO_TEXT = b"\0\x1a\r"
_CONTROLS = re.compile(rb"[\x01-\x08\x0e-\x19\x1b-\x1f\x7f]")
# Which lines are rows, their cells by columns, and the positions, kinds and details of others.
Rows = tuple[Counts, dict[int, Any], list[tuple[int, str, str]]]
_NULLS = sorted({spelling for text in MISSING for spelling in (text, text.upper(), text.capitalize(), "NaN")})
# pyarrow takes 10 KB for each column of a block, and is no faster than csv where there are more columns.
_MOST_FAST_COLUMNS = 2000

# A Ctrl-C that comes while pyarrow reads would be lost where there is nothing left to read.
pyarrow.enable_signal_handlers(False)


class LineReader(Reader):
    """Base of the readers of text, which cut blocks of whole lines from the bytes as they arrive."""

    unit = "line"
    _sample: bytes
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
        return self._part(self._sample, 0, 1, range(len(self.names)), is_first=True)

    def parts(self, wanted: Sequence[int], n_rows: int, start: Start) -> Iterator[Part]:
        """Yield the columns at these positions, in parts of the size in which bytes arrive."""
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
            end = whole_lines(rest, quotes=self.has_long_cells) if piece else len(rest)
            if end:
                yield self._part(rest[:end], at, line, wanted, is_first=is_first)
                at, line, rest = at + end, line + rest.count(b"\n", 0, end), rest[end:]
            if len(rest) > LONGEST_LINE:
                raise TableError(f"{self.source.name}, line {line}: is longer than {LONGEST_LINE} bytes; give a table")

    def _part(self, block: bytes, at: int, number: int, wanted: Sequence[int], *, is_first: bool) -> Part:
        """Read whole lines that begin at a byte of the file and have numbers from this one on."""
        texts = decode(block).split("\n")
        n_above = 0 if at else self._n_above(texts, is_first=is_first)
        lines: Sequence[tuple[int, int, str]]
        if self.has_long_cells and _has_open_cells(texts):
            lines = [line for line in layout.join_lines(texts) if line.first >= n_above]
        else:
            lines = [(i, i + 1, text) for i, text in enumerate(texts) if i >= n_above and text.strip()]
        kept, cells, bad = self._read([text for *_, text in lines], wanted)
        ends = np.append(np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1, len(block))
        first, following = np.array([line[:2] for line in lines], int).reshape(-1, 2)[kept].T
        after = np.column_stack([at + ends[following - 1], number + following])
        after[-1:] = at + len(block), number + block.count(b"\n")
        told = [(number + lines[i][0], kind, what) for i, kind, what in bad]
        return Part(number + first, cells, after, told)

    def _n_above(self, texts: Sequence[str], *, is_first: bool) -> int:
        """Count the lines above the first row of a file."""
        del texts, is_first
        return 0

    @abstractmethod
    def _read(self, texts: Sequence[str], wanted: Sequence[int]) -> Rows:
        """Read lines: which are rows, their cells by columns, and the positions and faults of others."""


def _has_open_cells(texts: Sequence[str]) -> bool:
    """Tell whether any line ends between quotation marks."""
    return any(text.count('"') % 2 for text in texts)


def decode(block: bytes) -> str:
    """Decode UTF-8, or else the single bytes in which spreadsheets often write names and units."""
    block = block.removeprefix(_BOM).translate(None, _NO_TEXT)
    try:
        return block.decode()
    except UnicodeDecodeError:
        return block.decode("cp1252", "replace")


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


def look_at_beginning(source: Source, n_lines: int, *, quotes: bool) -> bytes:
    """Look at the whole lines that have arrived: at least `n_lines` that are not blank, or all text."""

    def text_of(head: bytes) -> bytes:
        return b"".join(filter(None, recode(iter([head]), find_code(head))))

    def enough(head: bytes) -> bool:
        text = text_of(head)
        lines = text[: whole_lines(text, quotes=quotes)].split(b"\n", 10 * n_lines)
        return sum(1 for line in lines if line.strip()) >= n_lines

    head = source.peek(enough)
    text = text_of(head)
    if not text.translate(None, _NO_TEXT).strip():
        raise TableError(f"{source.name}: the file is empty; give a table with at least one row")
    if _CONTROLS.search(text.partition(b"\n")[0]):
        known = "CSV, JSON lines, Parquet, Arrow, npy or xlsx, compressed ones with the suffix .gz, .bz2, ..."
        raise TableError(f"{source.name}: is neither text nor any other known format; give {known}")
    return text[: whole_lines(text, quotes=quotes)] if enough(head) else text


class CsvReader(LineReader):
    """Rows of cells between delimiters."""

    has_long_cells = True

    def __init__(self, source: Source, asked: Asked) -> None:
        header, delimiter = asked.header, asked.delimiter
        n_lines = LOOK_ROWS if asked.looks else 1 if header is False else 2
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii()):
            what = f"expected a delimiter of one ASCII character but got {short(delimiter)!r}"
            raise TableError(f"{source.name}: {what}; give one such as --delimiter ';'")
        self._sample = look_at_beginning(source, n_lines, quotes=True)
        self._layout = layout.find_layout(decode(self._sample), source.name, header=header, delimiter=delimiter)
        names = self._layout.names or [""] * self._layout.width
        super().__init__(source, name_columns(names), named=self._layout.names is not None, total=source.size)
        self.n_above = self._layout.n_head
        self.dialect = {"header": self.named, "delimiter": self._layout.delimiter}

    def _n_above(self, texts: Sequence[str], *, is_first: bool) -> int:
        """Count the lines above the first row; a file that begins anew may have none, but not other names."""
        if is_first:
            return self._layout.n_head
        for i, text in enumerate(texts):
            if text.strip() and text.strip() not in self._layout.head and not layout.is_comment(text):
                cells = layout.cut(text, self._layout.delimiter)
                if (
                    self.named
                    and len(cells) == len(self.names)
                    and not any(layout.is_typed(cell) or layout.is_missing(cell) for cell in cells)
                ):
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

    def _read(self, texts: Sequence[str], wanted: Sequence[int]) -> Rows:
        width, delimiter, whole = self._layout.width, self._layout.delimiter, "\n".join(texts)
        # Most blocks hold none of these, and need no look at each line.
        signs = (*layout.MARKS, *self._layout.head)
        is_plain = not any(sign in whole for sign in signs)
        odd = ((i, self._kind(text)) for i, text in enumerate([] if is_plain else texts))
        bad = [(i, kind, f"{kind}: {texts[i][:40]!r}") for i, kind in odd if kind]
        kept = np.delete(np.arange(len(texts)), [i for i, *_ in bad])
        lines = [texts[i] for i in kept.tolist()] if bad else texts
        found: list[tuple[int, int]] = []

        def note(row: Any) -> str:
            found.append((row.number - 1, row.actual_columns))
            return "skip"

        names = list(map(str, range(width)))
        text = "\n".join("\t".join(layout.cut(one, " ")) if delimiter == " " else one for one in lines)
        data, quotes, mark = text.encode(), '"' if '"' in text else False, "\t" if delimiter == " " else delimiter
        types, used = dict.fromkeys(names, pyarrow.string()), [names[j] for j in wanted]
        options = (
            pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            pyarrow.csv.ParseOptions(delimiter=mark, quote_char=quotes, invalid_row_handler=note),
            pyarrow.csv.ConvertOptions(
                column_types=types, include_columns=used, null_values=_NULLS, strings_can_be_null=True
            ),
        )
        table = None
        with suppress(pyarrow.ArrowInvalid):
            if 0 < width <= _MOST_FAST_COLUMNS and lines:
                table = pyarrow.csv.read_csv(pyarrow.BufferReader(data), *options)
        if table is not None and len(table) + len(found) == len(lines):
            cells = {j: table.column(names[j]).combine_chunks() for j in wanted}
        else:
            rows = [layout.cut(one, delimiter) for one in lines]
            found = [(i, len(row)) for i, row in enumerate(rows) if len(row) != width]
            known = [[None if layout.is_missing(cell) else cell for cell in row] for row in rows if len(row) == width]
            cells = {j: pyarrow.array([row[j] for row in known], pyarrow.string()) for j in wanted}
        bad += [(int(kept[i]), OTHER_WIDTH, f"expected {width} cells but got {n}") for i, n in found]
        return np.delete(kept, [i for i, _ in found]), cells, bad
