"""What a text shows by itself: the mark between its cells, where its rows begin, and what its columns are called.

As in van den Burg, Nazábal and Sutton (2019, "Wrangling messy CSV files by detecting row and type patterns"), a mark is
right if many lines have one number of cells, and these are numbers or times. Cells that hold another mark count against
it, which tells decimal commas from commas between cells.
"""

import csv
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from streamkpca.tables.errors import TableError
from streamkpca.tables.numbers import MISSING

# White space, the last, is one mark however much of it there is.
DELIMITERS = (",", ";", "\t", "|", " ")
_NUMBER = re.compile(
    r" *[-+\u2212]?(?:\d[\d.,'\u2019 \u00a0\u202f]*|[.,]\d+)(?:e[-+]?\d+)?"
    r" *(?:(?:[^\W\d_]|[%‰°])[\w/%°²³·.]{0,11})? *|[-+]?inf(?:inity)?",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"\s*(?:[^\W\d]{3,9}\.?,?\s+){0,2}\d{1,4}"
    r"(?:[-/.](?:\d{1,2}|[^\W\d]{3,9})[-/.:]\d{2,4}|[-/]\d{1,2}(?=[ T])|:\d\d|\s+[^\W\d]{3,9}\.?\s+\d{4}|\s+\d\d:\d\d)"
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


class Line(NamedTuple):
    """A line that is not blank, or several with a cell that goes on: its position, the next one's, and its text."""

    first: int
    following: int
    text: str


@dataclass(frozen=True)
class Layout:
    """How the lines of a text are cut: `width` cells between delimiters; the first `n_head` lines are no rows.

    names: those of the columns, None if the text has none. head: texts of the lines above the rows.
    """

    delimiter: str
    width: int
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


def find_layout(text: str, name: str, *, header: bool | None = None, delimiter: str | None = None) -> Layout:
    r"""Find the layout of the beginning of a text; `header` and `delimiter` are known, or None.

    >>> find_layout("Plant 7\n\nt;flow\ns;m3/h\n0,5;1,25\n1;1,5\n", "a.csv")
    Layout(delimiter=';', width=2, names=['t', 'flow'], n_head=4, head=frozenset({...}))
    """
    texts = text.split("\n", _SHOWN_LINES)[:_SHOWN_LINES]
    n_shown = bisect(list(accumulate(map(len, texts))), _SHOWN_LETTERS)
    lines = list(join_lines(texts[: max(n_shown, 2 * _RUN)]))
    if mark := _SEPARATOR.fullmatch(lines[0].text) if lines else None:
        delimiter = delimiter or mark[1]
    rows = [line for line in lines if not is_comment(line.text)][mark is not None :] or lines
    if not rows:
        raise TableError(f"{name}: the file is empty; give a table with at least one row")
    marks = [delimiter] if delimiter else DELIMITERS
    delimiter, width = max(((mark, *_judge(rows, mark)) for mark in marks), key=lambda one: one[2:])[:2]
    if (delimiter, width) == (",", 2) and header is not False and not {*rows[0].text} & {*DELIMITERS[:4]}:
        # Below one name stand numbers with decimal commas.
        delimiter, width = (",", 2) if is_typed(rows[0].text) else (";", 1)
    return _find_rows(lines, rows, delimiter, width, header, name)


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


def _find_rows(
    lines: Sequence[Line], rows: Sequence[Line], delimiter: str, width: int, header: bool | None, name: str
) -> Layout:
    """Find the first row, and the names above it, of lines whose rows have `width` cells."""
    cells = [cut(row.text, delimiter) for row in rows]
    n_names = len(cells[0])
    if delimiter == "," and n_names + 1 < width < 2 * n_names and not any(map(is_typed, cells[0])):
        raise TableError(
            f"{name}: its rows have up to {width} cells between commas, but there are {n_names} names: where commas "
            "are decimal marks too, numbers cannot be told apart; export it with semicolons, or with decimal points"
        )
    alike = [one for one in cells if len(one) == width]
    # The first may hold names.
    alike = alike[1:] or alike
    columns = [*zip(*alike, strict=True)]
    typed = [j for j, column in enumerate(columns) if _are_typed(column)]
    is_used = [not all(map(is_missing, column)) for column in columns]
    clocks = [j for j in typed if 2 * sum(map(bool, map(_TIME.fullmatch, columns[j]))) > len(alike)]
    is_row = [
        len(one) == width and (_are_typed([one[j] for j in typed]) or any(_TIME.fullmatch(one[j]) for j in clocks))
        for one in cells
    ]
    run = next((i for i in range(len(rows)) if all(is_row[i : i + _RUN])), len(rows))
    names, first = None, next((i for i, one in enumerate(is_row) if one), 0)
    # Lines of text, and nothing but text where rows have numbers.
    texts = {
        i: one
        for i, one in enumerate(cells[: run if typed else 1] if header is not False else [])
        if (len(one) == width or abs(len(one) - width) == 1 < len(one))
        and not all(map(is_missing, one))
        and not any(is_typed(one[j]) for j in typed if j < len(one))
    }
    if texts:
        names, first = _choose_names(texts, is_used)
        is_short = all(len(one) == width - 1 for one in texts.values())
        if is_short and is_used[-1] and _count_up([one[0] for one in alike]):
            # Above numbers of rows there is no name.
            names = ["", *names[:-1]]
    begin = rows[first].first if first < len(rows) else rows[-1].following
    titles = [
        one
        for line in lines
        if line.first < begin and is_comment(line.text)
        and len(one := cut(line.text.strip().lstrip("#/%").strip(" "), delimiter)) in (width, width + 1)
        and not any(is_typed(one[j]) for j in typed)
    ]  # fmt: skip
    if names is None and titles and header is not False:
        names = _choose_names(dict(enumerate(titles)), is_used)[0]
    elif names is None and first < len(rows) and header is not False:
        # The first row holds names if it has text where the others have numbers.
        is_text = any(not is_typed(cells[first][j]) and not is_missing(cells[first][j]) for j in typed)
        if header or is_text:
            names = [cell.strip() for cell in cells[first]]
            begin = rows[first].following
    return Layout(delimiter, width, names, begin, frozenset(line.text.strip() for line in lines if line.first < begin))


def _count_up(cells: Sequence[str]) -> bool:
    return cells[0].isdecimal() and all(one == str(i) for i, one in enumerate(cells, start=int(cells[0])))


def _are_typed(cells: Sequence[str]) -> bool:
    """Tell whether most cells that hold something look like numbers or times."""
    known = [is_typed(cell) for cell in cells if not is_missing(cell)]
    return sum(known) * 2 >= max(len(known), 1)


def _choose_names(texts: Mapping[int, Sequence[str]], is_used: Sequence[bool]) -> tuple[list[str], int]:
    """Choose the names of columns, used or empty, from lines of text, and return the position after these lines.

    The first line with a name for each column that is used holds them, at best different ones, and those just after it
    units. If none has, names are spread over lines, as the last ones have it.
    """
    width = len(is_used)
    shown = {i: [*(cell.strip() for cell in one), *[""] * width][:width] for i, one in texts.items()}
    whole = [i for i, one in shown.items() if all(name or not used for name, used in zip(one, is_used, strict=True))]
    different = [i for i in whole if len(set(shown[i])) == width]
    first = last = [*different, *whole, max(shown)][0]
    while not whole and first - 1 in shown:
        first -= 1
    while last + 1 in shown:
        last += 1
    parts = [shown[first]] if whole else [shown[i] for i in range(first, last + 1)]
    return [" ".join(filter(None, column)) for column in zip(*parts, strict=True)], last + 1
