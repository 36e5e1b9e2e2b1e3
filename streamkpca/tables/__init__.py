"""Rows of numbers from files as loggers, historians and spreadsheets write them, and tables of results.

It serves the command; nothing here is part of the library's interface. `open_table` finds out how a file is to be read,
and returns a `Table`; `Writer` writes results. Bytes become rows of numbers in stages, each a function of values:

* `source`: the bytes of files, pipes, compressed files, files that grow, spreadsheets; other codes become UTF-8
* `layout`: of text, the mark between cells, the names, and where the rows begin
* `text`, `parts`: CSV, JSON lines; npy, Parquet, Arrow: parts of the table, as columns of cells
* `cells`, `times`: cells as numbers, and as times
* `look`, `choice`: what the first rows show of the columns, and how they are read then
* `table`: blocks of rows, put in order, made wide, counters subtracted, gaps and bad rows counted; `Table`
* `writer`: results
"""

import re
from typing import Any

import numpy as np

from streamkpca.tables.choice import Asked, Look, Reading, choose_columns
from streamkpca.tables.errors import TableError, reading_errors
from streamkpca.tables.look import Sample
from streamkpca.tables.parts import ArrayReader, ArrowReader, Reader, Start
from streamkpca.tables.source import Source, open_sheet
from streamkpca.tables.table import Batch, Table
from streamkpca.tables.text import CsvReader, JsonReader
from streamkpca.tables.writer import WRITTEN, Writer

__all__ = ["WRITTEN", "Batch", "Look", "Reading", "Table", "TableError", "Writer", "open_table"]

# The first bytes of each. Letters that may also begin a column's name must not be followed by a delimiter.
_BEGINNINGS = {
    "npy": re.compile(rb"\x93NUMPY"),
    "parquet": re.compile(rb"PAR1(?![,;\t|\r\n])"),
    "arrow": re.compile(rb"ARROW1(?![,;\t|\r\n])"),
    "picture, a document or a model": re.compile(
        rb"\x89PNG|\xff\xd8\xff|GIF8|%PDF-|PK\x03\x04.{26}(header\.json|.{1,30}\.npy)", re.DOTALL
    ),
    "sheet": re.compile(rb"PK\x03\x04|\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    "jsonl": re.compile(rb"(\xef\xbb\xbf)?\s*[{\[]"),
}
# A stream is looked at when so many rows have come, as fewer show little of its columns.
_LOOK_ROWS = 64
# A file whose times go back in more rows than this is put in order.
_MOST_BACK = 0.3


def open_table(path: str, **options: Any) -> Table:
    r"""Open a file, or standard input ("-"), for reading in batches; its first bytes tell the format.

    header : whether text has names above its rows; None: its contents tell.
    delimiter, decimal : of CSV; None: its contents tell.
    columns, drop : names of columns to read, in this order, and to leave out; without names they are "0", "1", ...
    time, labels : columns handed out beside the rows, and never features: numbers or dates, and numbers. Several
        columns of times are joined by spaces.
    time_format : of `strptime`, "number", or "s", "ms", "us" or "ns" for numbers since 1970; None: the cells tell.
    differences : columns of counters, whose differences are read; None: those of `known`, or what a look finds.
    gaps : numbers that stand for gaps; None: the first rows tell.
    wide : column of tags, if each row holds the value of one; the table then has a column for each tag.
    by : column of machines, and the one whose rows are read.
    known : how an earlier file of these columns was read. n_columns : their number, if only that is known.
    on_bad_rows : "raise" refuses a row with another number of cells, or without a time; "skip" leaves it out.
    on_missing : a row with gaps (cells without a number) is refused ("raise"), left out ("skip"), or keeps NaN
        ("marginal"); rows without any number are left out then, and counted.
    follow : whether to wait for more at the end of text; a file that was replaced or emptied is read anew.
    start : `Batch.position` of an earlier reading, to go on after it. If the file is another one now, that is an
        error, or with `follow` a note, and reading from the beginning.
    looks : whether to look at the first rows for what is not given: the time, tags, machines, counters, columns
        without numbers; rows that are not in order of time are put in order. `Table.look` tells what was found.

    Memory is that of a block of text (1 MiB), of some rows or pages, of a batch in Arrow's file, or of all rows if they
    are put in order.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "readings.csv")
    >>> _ = path.write_text("t,x,y\n10,1,2\n11,3,Bad\n12,5\n13,6,7\n")
    >>> table = open_table(str(path), time=["t"], on_bad_rows="skip", on_missing="marginal")
    >>> [(batch.rows.tolist(), batch.numbers.tolist()) for batch in table.batches(1000)]
    [([2, 3, 5], [[1.0, 2.0], [3.0, nan], [6.0, 7.0]])]
    >>> table.bad.n_read, dict(table.bad.kinds), dict(table.bad.odd_cells)
    (4, {'other number of cells': 1}, {'y': 1})
    """
    asked = Asked(**options)
    source = Source(path, follow=asked.follow)
    with reading_errors(source.name):
        reader = _open_reader(source, asked)
        sample = Sample(reader, decimal=asked.decimal)
        # Steps between numbers may be larger than any number.
        with np.errstate(over="ignore", invalid="ignore"):
            reading, look = choose_columns(sample, asked)
        # Tags may come one after the other, each with all its times.
        can_sort, is_long = source.rereadable and not asked.follow, reading.wide is not None
        sorts = asked.looks and (look.back > _MOST_BACK or (is_long and can_sort and look.back > 0.0))
        if sorts and not can_sort:
            what = "its rows are not in order of time; only a file that is complete is put in order"
            raise TableError(f"{source.name}: {what}; write it to a file, and leave --follow out")
        start = _find_start(reader, asked)
    return Table(reader, reading, sample.forms, look, asked, start=start, sorts=sorts)


def _find_start(reader: Reader, asked: Asked) -> Start:
    """Return the position to go on at, if the file is still the one that it belongs to."""
    try:
        if asked.start is not None:
            reader.check_start(asked.start)
        return asked.start
    except TableError as error:
        if not asked.follow:
            raise
        reader.source.notes.append(f"{error}; reading it from its beginning")
        return None


def _open_reader(source: Source, asked: Asked) -> Reader:
    """Open the reader of the format that the first bytes tell."""
    head = source.peek(lambda head: len(head.removeprefix(b"\xef\xbb\xbf").lstrip()) >= 8 or b"\n" in head.lstrip())
    kind = next((name for name, begin in _BEGINNINGS.items() if begin.match(head)), "csv")
    if source.follows and kind not in ("csv", "jsonl"):
        raise TableError(f"{source.name}: only text (CSV, JSON lines) grows row by row; leave --follow out")
    if kind == "npy":
        return ArrayReader(source)
    if kind in ("parquet", "arrow"):
        return ArrowReader(source, is_parquet=kind == "parquet")
    if kind == "jsonl":
        more = asked.known.columns if asked.on_missing == "marginal" else ()
        return JsonReader(source, _LOOK_ROWS if asked.looks else 1, more=more)
    n_lines = _LOOK_ROWS if asked.looks else 1 if asked.header is False else 2
    if kind == "sheet":
        open_sheet(source)
    elif kind != "csv":
        raise TableError(f"{source.name}: is a {kind}; give a table; a model is given as --model")
    return CsvReader(source, n_lines, header=asked.header, delimiter=asked.delimiter)
