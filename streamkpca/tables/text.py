"""CSV and JSON lines: blocks of whole lines are cut from the bytes as they arrive, and pyarrow and json read them.

pyarrow reads 400,000 rows of 20 columns, as text and then as numbers, in half a second, gives the place of rows of
another width, and comes with the formats that need it anyway. Its streaming readers read ahead in threads, so rows of a
slow pipe would wait for a full block.
"""

import json
import re
import shlex
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv

from streamkpca.tables import layout
from streamkpca.tables.bad_rows import COMMENT, NAMES_AGAIN, NO_JSON, OPEN_QUOTE, OTHER_WIDTH
from streamkpca.tables.errors import TableError, short
from streamkpca.tables.parts import Counts, Part, Reader, Start, name_columns
from streamkpca.tables.source import LONGEST_LINE, READ_BYTES, Source, find_code, recode, spell

_BOM = b"\xef\xbb\xbf"
_NULLS = sorted({spelling for text in layout.MISSING for spelling in (text, text.upper(), text.capitalize(), "NaN")})
# NUL fills what a logger has reserved, Ctrl-Z ends files of old systems, and carriage returns stand before line ends.
_NO_TEXT = b"\0\x1a\r"
_CONTROLS = re.compile(rb"[\x01-\x08\x0e-\x19\x1b-\x1f\x7f]")
# pyarrow takes 10 KB for each column of a block, and is no faster than csv where there are more columns.
_MOST_FAST_COLUMNS = 2000
# Which lines are rows, their cells by columns, and the positions, kinds and details of others.
Rows = tuple[Counts, dict[int, Any], list[tuple[int, str, str]]]


# A Ctrl-C that comes while pyarrow reads would be lost where there is nothing left to read.
pyarrow.enable_signal_handlers(False)


class TextReader(Reader):
    """Base of the readers of text, in blocks of whole lines."""

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


class CsvReader(TextReader):
    """Rows of cells between delimiters."""

    has_long_cells = True

    def __init__(self, source: Source, n_lines: int, *, header: bool | None, delimiter: str | None) -> None:
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
        bare, mark = text.strip(), self._layout.delimiter
        if bare[:1] in layout.MARKS and layout.is_comment(text):
            return COMMENT
        if bare in self._layout.head:
            return NAMES_AGAIN
        # Inside a cell, a mark stands for inches.
        return OPEN_QUOTE if bare.count('"') % 2 and f'{mark}"' in f"{mark}{text}" else None

    def _read(self, texts: Sequence[str], wanted: Sequence[int]) -> Rows:
        width, delimiter, whole = self._layout.width, self._layout.delimiter, "\n".join(texts)
        # Most blocks hold none of these, and need no look at each line.
        signs = (*layout.MARKS, *self._layout.head)
        is_plain = not (_has_open_cells(texts) or any(sign in whole for sign in signs))
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


class JsonReader(TextReader):
    """Rows of JSON, one a line: objects, whose keys are the columns.

    Names of values inside others have a point between. A key that is absent or null is a gap. The columns are those of
    the first lines and of `more`.
    """

    def __init__(self, source: Source, n_lines: int, *, more: Sequence[str] = ()) -> None:
        self._sample, rows, fault = look_at_beginning(source, n_lines, quotes=False), list[dict[str, Any]](), ""
        for i, text in enumerate(decode(self._sample).split("\n")[:1000], start=1):
            try:
                rows += [_row(text)] if text.strip() else []
            except ValueError as error:
                fault = fault or f"{source.name}, line {i}: {error}"
        if not rows or decode(self._sample).lstrip().startswith("["):
            remedy = f"for an array of rows, jq -c '.[]' {shlex.quote(str(source.path))} | streamkpca watch -"
            raise TableError(f"{fault}; {remedy}")
        super().__init__(source, list(dict.fromkeys(chain(*rows, more))), named=True, total=source.size)

    def _read(self, texts: Sequence[str], wanted: Sequence[int]) -> Rows:
        rows, kept, bad = list[dict[str, Any]](), list[int](), []
        for i, text in enumerate(texts):
            try:
                rows.append(_row(text))
                kept.append(i)
            except ValueError as error:
                bad.append((i, NO_JSON, str(error)))
        return np.array(kept, int), {j: _column([row.get(self.names[j]) for row in rows]) for j in wanted}, bad


def _row(line: str) -> dict[str, Any]:
    try:
        # A float of any number of digits is known, if need be as infinity.
        row = json.loads(line, parse_int=float)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON ({error}); write one object a line") from None
    if not isinstance(row, dict) or not row:
        raise ValueError(f"expected an object with values but got {line[:40]!r}")
    return dict(_flatten(row, ""))


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
    return pyarrow.array([None if value is None else spell(value) for value in values], pyarrow.string())
