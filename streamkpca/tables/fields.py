"""Fields of a line: what separates them, quotation marks around them, numbers in them."""

from collections.abc import Iterator

import numpy as np

from streamkpca.tables.chunks import Counts

MISSING = ("", "na", "n/a", "nan", "-nan", "null", "none", "#n/a", "#na", "?")
_SNIFFED = (",", "\t", ";")
# A quotation mark that opens a field and is not closed within so many bytes is taken for a slip of its line alone.
_LONGEST_QUOTED = 1 << 20


def sniff_delimiter(line: str) -> str:
    r"""Guess what separates fields.

    Parameters
    ----------
    line : str
        The first line.

    Returns
    -------
    str
        A blank between numbers, else what cuts the line into most fields of comma, tab and semicolon.

    Examples
    --------
    >>> [sniff_delimiter(line) for line in ("a,b", "a b;c", "1.5 2.5", '"a;b",c')]
    [',', ';', ' ', ',']
    """
    parts = line.split(" ")
    if len(parts) > 1 and all(parts) and all(map(is_number, parts)):
        return " "
    return max(_SNIFFED, key=lambda delimiter: len(split_fields(line, delimiter) or ()))


def closed_on_their_lines(text: bytes, newlines: Counts, delimiter: str) -> bool:
    """Say whether all quotation marks stand around whole fields, each of which ends on its line.

    Parameters
    ----------
    text : bytes
        Some lines.
    newlines : ndarray
        Where they end.
    delimiter : str
        What separates fields.

    Returns
    -------
    bool
        Where it is false, lines must be looked at one by one.
    """
    codes = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero(codes == ord('"'))
    if (np.bincount(np.searchsorted(newlines, marks)) % 2).any():
        return False
    # Two marks in a row stand for one, and close and open again as far as this is concerned.
    edges = [ord(delimiter), ord("\n"), ord("\r"), ord('"')]
    opening, closing = marks[::2], marks[1::2]
    before, after = codes[opening[opening > 0] - 1], codes[closing[closing < len(text) - 1] + 1]
    return bool(np.isin(before, edges).all() and np.isin(after, edges).all())


def quoted_ends(text: bytes, ends: Counts, delimiter: str, *, final: bool) -> Iterator[int]:
    """Yield the ends of records whose fields may hold line ends between quotation marks.

    Parameters
    ----------
    text : bytes
        Some lines, the last of which may be incomplete.
    ends : ndarray
        The bytes after their line ends.
    delimiter : str
        What separates fields.
    final : bool
        Whether no more text follows.

    Yields
    ------
    int
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
            # Nothing closes it: its line stands alone, and so do those that were looked through in vain.
            alone, line = max(alone, line), begin + 1
        begin = line
        yield edges[begin]


def split_fields(line: str, delimiter: str) -> list[str] | None:
    """Cut a record into fields.

    Parameters
    ----------
    line : str
        The record, without its line's end.
    delimiter : str
        One character.

    Returns
    -------
    list of str or None
        None where a quotation mark opens a field and is never closed.

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


def _ends_inside(text: bytes, at: int, end: int, delimiter: bytes, inside: bool) -> bool:
    """Say whether a line ends inside quotation marks; `inside` tells that it begins there."""
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


def is_number(field: str) -> bool:
    """Say whether a field is a number or a missing one.

    Parameters
    ----------
    field : str
        As it stands.

    Returns
    -------
    bool

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
