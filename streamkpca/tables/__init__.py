"""Rows of numbers from files as loggers, historians and spreadsheets write them, and tables of results.

It serves the command; nothing here is part of the library's interface. `open_table` finds out how a file is to be read,
and returns a `Table`; `Writer` writes results. Bytes become rows of numbers in stages, each a function of values:

* `source`: the bytes of files, pipes, compressed files and files that grow; other codes become UTF-8
* `formats`: the reader of each: `csv_reader`, `json_reader`, `array_readers`, `sheet_reader`; `readers` has their base;
  `csv_layout` finds the mark between cells, the names, and where the rows begin
* `numbers`, `times`: cells as numbers (decimal commas, units, words), and as times
* `detect`, `columns`: what the first rows show of the columns, and how they are read then
* `table`: blocks of rows; `reshape` puts them in order, makes them wide, subtracts counters; `bad_rows` leaves rows out
* `writer`: results
"""

from typing import Any

import numpy as np

from streamkpca.tables.columns import Asked, Look, Reading, choose_columns
from streamkpca.tables.detect import Sample
from streamkpca.tables.errors import TableError, reading_errors
from streamkpca.tables.formats import open_reader
from streamkpca.tables.source import Source
from streamkpca.tables.table import Batch, Table
from streamkpca.tables.writer import WRITTEN, Writer

__all__ = ["WRITTEN", "Batch", "Look", "Reading", "Table", "TableError", "Writer", "open_table"]

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
    known : how an earlier file of these columns was read.
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
        reader = open_reader(source, asked)
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
        try:
            if asked.start is not None:
                reader.check_start(asked.start)
        except TableError as error:
            if not asked.follow:
                raise
            source.notes.append(f"{error}; reading it from its beginning")
            asked = asked._replace(start=None)
    return Table(reader, reading, sample.forms, look, asked, sorts=sorts)
