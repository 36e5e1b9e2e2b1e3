"""What a text shows by itself: the mark between its cells, where its rows begin, and what its columns are called.

As in van den Burg, Nazábal and Sutton (2019, "Wrangling messy CSV files by detecting row and type patterns"), a mark is
right if many lines have one number of cells, and these are numbers or times. Cells that hold another mark count against
it, which tells decimal commas from commas between cells.
"""

import csv
import re
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

from streamkpca.tables.asked import Asked
from streamkpca.tables.errors import TableError, short
from streamkpca.tables.numbers import MISSING
from streamkpca.tables.times import TIME_NAME

# White space, the last, is one mark however much of it there is.
DELIMITERS = (",", ";", "\t", "|", " ")
_NUMBER = re.compile(
    r" *[-+\u2212]? *\(?(?:\d[\d.,'\u2019 \u00a0\u202f]*|[.,]\d+)(?:e[-+]?\d+)?"
    r" *(?:(?:[^\W\d_]|[%‰°])[\w/%°²³·.]{0,11})? *\)? *|[-+]?inf(?:inity)?|(?:0x)?[\dA-F]{2,8}",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"\s*(?:[^\W\d]{3,9}\.?,?\s+){0,2}\d{1,4}"
    r"(?:[-/.:](?:\d{1,2}|[^\W\d]{3,9})[-/.:]\d{2,4}|\d{4}[:T_]\d{4}|\. \d{1,2}\. ?\d{4}| \d\d \d\d|[年년]"
    r"|[-/]\d{1,2}(?=[ T])|:\d\d|\s+[^\W\d]{3,9}\.?\s+\d{4}|\s+\d\d:\d\d)"
    r"[^,;\t|]*(?:,\d+)?"
)
# A mark beside a digit, in a cell that is neither number nor time.
_OTHER_MARK = re.compile(r"\d\s*[,;\t|]|[,;\t|]\s*\d| +\d| \d")
# Comments begin with these.
MARKS = frozenset("#/%")
_COMMENT = re.compile(r"\s*(?:#(?!N/A|NA\b|DIV/0|REF!|VALUE!|NAME\?|NUM!|NULL!)|//|%)")
_SEPARATOR = re.compile(r"\s*sep=(.)\s*", re.IGNORECASE)
# Lines, and letters, that show the layout.
_SHOWN_LINES = 1000
_SHOWN_LETTERS = 1 << 18
# A quotation mark that is not closed within this number of lines is no sign of a cell of several lines.
_LONGEST_CELL = 50
# Rows one after another that show where the rows begin.
_RUN = 3
# Share of rows without their last cells, from which they are rows.
_SHORT_ROWS = 0.05
# A letter that no number has by itself.
_LETTER = re.compile(r"[^\W\d_](?<!\d[eE](?=[-+\d]))")
_PLAIN = re.compile(r"[-+]?[\d.,]+")
_KEY_VALUE = re.compile(r"\W*([^\W\d][\w ]*?)\s*\d*\s*[:=]\s*(.+)")
_METER = re.compile("100,NEM1[23],")
# Cells below names: units, kinds of values, and forms of times.
_UNIT = re.compile(
    r"[\[(].*[\])]|-|[dmyhs]{2,4}(?:\W+(?i:[dmyhs]){2,4})+|[mckµ]?m[23²³]?|%|(?:(?:[dD]eg|°|º) ?|[kMGmcµu]|k?W/)?"
    r"(?:[VAWCFKNglLsJB]|Wh|Hz|VA|[Vv][Aa][Rr]|Pa|bar|[Oo]hm|Ω|eV)|(?:k?g|mg|[lLmt]|N?m3|m³|km|mm|gal|SM3|STB|k?Wh?|[µu]g)/"
    r"(?:s|min|h|d|[lL]|m[23²³]|DAYS?)|℃|min|hr?|d|rpm|RPM|psi[ag]?|PSI[AG]?|hPa|mbar|BARS[AG]?|atm|t|lb|Nm|mph|gpm|pp[mb]|"
    r"pH|dBm?|l[ux]x|[dD]eg|DAYS|SM3|TS|RN|Avg|Smp|Max|Min|Std|Tot|Raw|Analog|Digital|Counter|number|string|bool|boolean|"
    r"float|double|int|integer|long"
)


class Line(NamedTuple):
    """A line that is not blank, or several with a cell that goes on: its position, the next one's, and its text."""

    first: int
    following: int
    text: str


@dataclass(frozen=True)
class Layout:
    """How the lines of a text are cut: `width` cells between delimiters; the first `n_head` lines are no rows.

    least: cells of a row at least, where the last may be left out. names: those of the columns, None if the text has
    none. head: texts of the lines above the rows.
    """

    delimiter: str
    width: int
    least: int
    names: list[str] | None
    n_head: int
    head: frozenset[str]


def is_typed(cell: str) -> bool:
    """Tell whether a cell looks like a number, with or without a unit, or like a time."""
    return _NUMBER.fullmatch(cell) is not None or _TIME.fullmatch(cell) is not None


def is_missing(cell: str) -> bool:
    """Tell whether a cell says that there is no value."""
    return cell.strip().lower() in MISSING


def is_comment(line: str) -> bool:
    """Tell whether a line is a comment; errors of spreadsheets begin with the same mark."""
    return line.lstrip()[:1] in MARKS and _COMMENT.match(line) is not None


def join_lines(lines: Sequence[str]) -> Iterator[Line]:
    """Join the lines of cells that go on after a line end, and pass over blank lines.

    >>> [line.text for line in join_lines(['a,"b', 'c",d', '', 'e"', 'f'])]
    ['a,"b c",d', 'e"', 'f']
    """
    at = 0
    while at < len(lines):
        text, end = lines[at], at + 1
        if text.count('"') % 2 and re.search(r'(?:^|[,;\t|])\s*"', text):
            close = next((i for i in range(end, min(len(lines), at + _LONGEST_CELL)) if lines[i].count('"') % 2), None)
            # The mark that closes a cell is the last thing in it.
            if close is not None and re.search(r'"\s*(?:[,;\t|]|$)', lines[close]):
                text, end = " ".join(lines[at : close + 1]), close + 1
        if text.strip():
            yield Line(at, end, text)
        at = end


def cut(text: str, delimiter: str) -> list[str]:
    """Cut a line into cells."""
    if delimiter == " " and '"' not in text:
        return [*filter(None, text.split(" "))]
    try:
        cells = next(csv.reader([text], delimiter=delimiter, skipinitialspace=delimiter == " "), [])
        return [*filter(None, cells)] if delimiter == " " else cells
    except csv.Error:
        # A cell is longer than the module takes.
        return text.split(delimiter)


def find_layout(text: str, name: str, asked: Asked) -> Layout:
    r"""Find the layout of the beginning of a text, as far as it is not given.

    >>> find_layout("Plant 7\n\nt;flow\ns;m3/h\n0,5;1,25\n1;1,5\n", "a.csv", Asked())
    Layout(delimiter=';', width=2, least=2, names=['t', 'flow'], n_head=4, head=frozenset({...}))
    """
    texts = text.split("\n", _SHOWN_LINES)[:_SHOWN_LINES]
    n_shown = bisect(list(accumulate(map(len, texts))), _SHOWN_LETTERS)
    n_passed = max(asked.skip, (asked.names_line or 1) - 1)
    lines = list(join_lines([*[""] * n_passed, *texts[n_passed : max(n_shown, n_passed + 2 * _RUN)]]))
    if mark := _SEPARATOR.fullmatch(lines[0].text) if lines else None:
        asked = asked._replace(delimiter=asked.delimiter or mark[1])
    rows = [line for line in lines if not is_comment(line.text)][mark is not None :] or lines
    if not rows:
        raise TableError(f"{name}: the file is empty; give a table with at least one row")
    if _METER.match(rows[0].text):
        remedy = "write a line for each reading (docs/command.md, Files as they come, has a script)"
        raise TableError(f"{name}: holds a day of a meter in each line (NEM12); {remedy}")
    marks = [asked.delimiter] if asked.delimiter else DELIMITERS
    delimiter, width = max(((mark, *_judge(rows, mark)) for mark in marks), key=lambda one: one[2:])[:2]
    if (delimiter, width) == (",", 2) and asked.header is not False and not {*rows[0].text} & {*DELIMITERS[:4]}:
        # Below one name stand numbers with decimal commas.
        delimiter, width = (",", 2) if is_typed(rows[0].text) else (";", 1)
    return _find_rows(lines, rows, delimiter, width, asked, name)


def _judge(rows: Sequence[Line], delimiter: str) -> tuple[int, int, int]:
    """Return the number of cells that suits a mark best, by how many of them are typed, and then by how many lines."""
    score, n_texts, n_lines = Counter[int](), Counter[int](), Counter[int]()
    for row in rows:
        cells = cut(row.text, delimiter)
        typed = [is_typed(cell) for cell in cells]
        others = (bool(_OTHER_MARK.search(cell)) for cell, known in zip(cells, typed, strict=True) if not known)
        score[len(cells)] += sum(typed) - sum(others)
        if not any(typed) and not n_texts[len(cells)]:
            # Names have the width of the rows.
            n_texts[len(cells)] = sum(not is_missing(cell) and not {*cell} & {*";\t|"} for cell in cells)
        n_lines[len(cells)] += len(cells) - 1 if delimiter != " " else 0
    score = Counter({width: n + n_texts[width] * (n > 0) for width, n in score.items()})
    best = max(score, key=lambda width: (score[width], n_lines[width]))
    return best, score[best], n_lines[best]


class _Body:
    """What the lines of a table show of its columns; most of them are rows of `width` cells, some of `least` cells."""

    def __init__(self, cells: Sequence[Sequence[str]], width: int) -> None:
        self.width = self.least = width
        alike = [one for one in cells if len(one) == width]
        # The first may hold names.
        self.columns = [*zip(*(alike[1:] or alike), strict=True)]
        n = len(self.columns[0])
        self.typed = [j for j, column in enumerate(self.columns) if _are_typed(column)]
        self.is_used = [True] * width
        self.clocks = [j for j in self.typed if 2 * sum(map(bool, map(_TIME.fullmatch, self.columns[j]))) > n]
        self._has_letters = [10 * sum(map(bool, map(_LETTER.search, column))) > n for column in self.columns]
        for least in range(2, width):
            if sum(len(one) == least and self.is_row(one, least) for one in cells) > max(_SHORT_ROWS * n, 2):
                self.least = least
                break

    def find_used(self, cells: Sequence[Sequence[str]]) -> None:
        """Find the columns that are not empty in rows, which may lack their last cells."""
        values = [{j for j, cell in enumerate(one) if not is_missing(cell)} for one in cells]
        used = set[int]().union(*values)
        self.is_used = [j in used for j in range(self.width)]

    def is_row(self, one: Sequence[str], least: int | None = None) -> bool:
        """Tell whether a line is a row: it has a time where the others have one, or else numbers where they have."""
        if not (least or self.least) <= len(one) <= self.width:
            return False
        cells = {j: one[j] for j in self.typed if j < len(one)}
        if any(_TIME.fullmatch(cells[j]) for j in self.clocks if j in cells):
            return True
        known = {j: self._is_value(j, cell) for j, cell in cells.items() if not is_missing(cell)}
        keys = [j for j in self.clocks or self.typed[:1] if j in known]
        return sum(known.values()) * 2 >= max(len(known), 1) and all(known[j] for j in keys)

    def _is_value(self, j: int, cell: str) -> bool:
        # Names such as 12V look like numbers, too.
        if j in self.clocks:
            return is_typed(cell)
        return bool(_NUMBER.fullmatch(cell)) and (self._has_letters[j] or not _LETTER.search(cell))

    def may_lack_name(self, j: int) -> bool:
        """Tell whether a column may have no name: one of times, or of names or numbers of rows."""
        column = self.columns[j]
        is_rising = all(map(str.isdecimal, column)) and all(int(a) < int(b) for a, b in pairwise(column))
        return j in self.clocks or j not in self.typed or is_rising


def _find_rows(
    lines: Sequence[Line], rows: Sequence[Line], delimiter: str, width: int, asked: Asked, path: str
) -> Layout:
    """Find the first row, and the names above it, of lines whose rows have `width` cells."""
    cells = [cut(row.text, delimiter) for row in rows]
    body = _Body(cells, width)
    is_row = [body.is_row(one) and row.first >= (asked.names_line or 0) for one, row in zip(cells, rows, strict=True)]
    is_next = [line.following == after.first for line, after in pairwise(rows)] + [False]
    first = _find_first(cells, is_row, is_next, width)
    block = _take_block(rows, cells, first, width)
    if (asked.header or not body.typed) and not block and asked.header is not False and first < len(rows):
        # The first row holds the names, whatever it looks like.
        block, first = [cells[first]], first + 1
    body.find_used(cells[first:])
    begin = rows[first].first if first < len(rows) else rows[-1].following
    head = [line for line in lines if line.first < begin]
    titles = [cut(line.text.strip().lstrip("#/% "), delimiter) for line in head if is_comment(line.text)]
    titles = [one for one in titles if len(one) in (width, width + 1) and not any(is_typed(one[j]) for j in body.typed)]
    if asked.names_line:
        block = [cut(lines[0].text.strip().lstrip("#/% "), delimiter)]
    names = None if asked.header is False else [*asked.names]
    if names == [] and (block or titles):
        names = _choose_names(block or titles, body)
    elif names == []:
        names = _names_in_blocks(head, width)
    if names is not None:
        names = _fit_names(names, body, delimiter, f"{path}, line {begin + 1}", n_head=begin)
    return Layout(delimiter, width, body.least, names, begin, frozenset(line.text.strip() for line in head))


def _find_first(cells: Sequence[list[str]], is_row: Sequence[bool], is_next: Sequence[bool], width: int) -> int:
    """Find the first row: below names of all columns, or with others after it.

    Numbers of columns below names are no row, if names go on below them, or names and units above and a gap below.
    """
    are_names = [len(one) == width > 1 and not any(is_typed(cell) or is_missing(cell) for cell in one) for one in cells]
    for i in range(len(cells)):
        is_below = i > 0 and are_names[i - 1] and is_next[i - 1]
        are_numbers = are_names[i + 1] if is_next[i] else i > 1 and are_names[i - 2]
        is_run = i + _RUN <= len(cells) and all([*is_row[i : i + _RUN], *is_next[i : i + _RUN - 1]])
        if is_row[i] and (is_run or (is_below and not are_numbers)):
            return i
    return [*is_row, True].index(True)


def _take_block(rows: Sequence[Line], cells: Sequence[list[str]], first: int, width: int) -> list[list[str]]:
    """Take the lines that stand last above a row, without a gap between them, as far as they may hold names."""
    block: list[list[str]] = []
    for i in range(first - 1, -1, -1):
        one = [*cells[i]]
        while len(one) > width and is_missing(one[-1]):
            one.pop()
        is_empty = all(map(is_missing, one))
        is_apart = bool(block) and (is_empty or rows[i].following < rows[i + 1].first)
        # Fewer or more cells may be names, if they are text.
        may_be_names = width <= 2 * len(one) < 4 * width and not any(map(is_typed, one))
        if is_apart or not (is_empty or len(one) == width or may_be_names):
            break
        if not is_empty:
            block.insert(0, one)
    return block


def _names_in_blocks(lines: Sequence[Line], width: int) -> list[str] | None:
    """Find names that stand one a line after the same word: those of all columns, or of all but the time."""
    values: dict[str, list[str]] = {}
    for line in lines:
        if found := _KEY_VALUE.match(line.text):
            values.setdefault(found[1], []).append(found[2].strip())
    for names in values.values():
        if len(names) in (width, width - 1) and len({*names}) == len(names) and not all(map(is_typed, names)):
            return names
    return None


def _fit_names(names: list[str], body: _Body, delimiter: str, where: str, *, n_head: int) -> list[str]:
    """Give each column its name: one that has none stands first, or is empty."""
    if 2 * sum(map(bool, map(_TIME.fullmatch, names))) > max(len(names), 4):
        turn = f"csv.writer(sys.stdout).writerows(zip(*csv.reader(sys.stdin, delimiter={delimiter!r})))"
        remedy = f'transpose it, as by python -c "import csv, sys; {turn}"'
        raise TableError(f"{where}: has times above its columns, as {names[-1][:40]!r}; {remedy}")
    n_fewer = body.width - len(names)
    if n_fewer > 0 and delimiter == " ":
        # A day and its hour have one name.
        pairs = [j for j in body.clocks if j + 1 in body.clocks]
        names = [one for j, name in enumerate(names) for one in [name, *[""] * (j in pairs)]]
        n_fewer = body.width - len(names)
    if n_fewer > 0 and not any(body.is_used[len(names) :]):
        return [*names, *[""] * n_fewer]
    if n_fewer > 0 and all(map(body.may_lack_name, range(n_fewer))) and not TIME_NAME.match(names[0]):
        return [*[""] * n_fewer, *names]
    if not n_fewer:
        return names
    what = f"expected {body.width} names, as its rows have cells, but there are {len(names)} names"
    remedy = f"name all columns (--names A,B,...), or count them (--no-header --skip {n_head})"
    if delimiter == "," and n_fewer > 0:
        remedy += "; where commas are decimal marks too, export it with semicolons, or with decimal points"
    raise TableError(f"{where}: {what} ({short(', '.join(names))}); {remedy}")


def _are_typed(cells: Sequence[str]) -> bool:
    """Tell whether most cells that hold something look like numbers or times."""
    known = [is_typed(cell) for cell in cells if not is_missing(cell)]
    return sum(known) * 2 >= max(len(known), 1)


def _fill(last: str, cell: str) -> str:
    return cell or last


def _choose_names(block: Sequence[Sequence[str]], body: _Body) -> list[str]:
    """Choose the names of columns from lines of text: the line with most of them that is not one of units.

    Other lines are joined to it where a column has no name in it, or several have one. What stands above several
    columns is a name of those after it, too.
    """
    width = max(map(len, block))
    n_unnamed = max(body.width - width, 0)
    used = [j for j in range(width) if (body.is_used * 2)[j + n_unnamed] and j + n_unnamed not in body.clocks]
    shown = [[*(cell.strip() for cell in one), *[""] * width][:width] for one in block]
    above: list[list[str]] = [[*accumulate(line, _fill)] for line in shown[:-1]]

    def is_of_units(i: int) -> bool:
        texts = [shown[i][j] for j in used if shown[i][j]]
        return 2 * sum(map(bool, map(_UNIT.fullmatch, texts))) >= max(len(texts), 1)

    def rate(i: int) -> tuple[int, bool]:
        names = {cell for cell in shown[i] if not is_missing(cell) and not _PLAIN.fullmatch(cell)}
        return len(names), any(map(TIME_NAME.match, names))

    def join(chosen: Collection[int]) -> list[str]:
        lines = [(above + shown[-1:])[i] for i in sorted(chosen)]
        return [" ".join(dict.fromkeys(filter(None, column))) for column in zip(*lines, strict=True)]

    def count(chosen: Collection[int]) -> int:
        return len({name for j, name in enumerate(join(chosen)) if j in used})

    others = sorted(range(len(shown)), key=is_of_units)
    named = [i for i in others if not is_of_units(i)] or others
    best = max(named, key=rate)
    if count({best}) == len(used) and all(shown[best][j] for j in used):
        return shown[best]
    chosen = {best} if all(join({best})[j] for j in used) else {*named}
    for i in others:
        chosen |= {i} if count({*chosen, i}) > count(chosen) else set()
    return join(chosen)
