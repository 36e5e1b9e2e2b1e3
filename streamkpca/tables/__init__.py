"""Rows of numbers from files as loggers, historians and spreadsheets write them, and tables of results.

It serves the command; nothing here is part of the library's interface. A `Table` finds out how a file is to be read;
`Writer` writes results. Bytes become rows of numbers in stages, each a function of values:

* `source`: the bytes of files, pipes, compressed files and files that grow; other codes become UTF-8
* `text_formats`, `binary_formats`: the reader of each format; `reader` says what it answers; `csv_layout` finds the
  mark between cells, the names, and where the rows begin
* `numbers`, `times`: cells as numbers (decimal commas, units, words), and as times
* `columns`: what the first rows show of them, and how they are read then
* `table`: the table of formats, and blocks of rows; `blocks` puts them in order, makes them wide, subtracts counters;
  `bad_rows` leaves rows out
* `writer`: results; `errors`: what is refused, and how messages quote it
"""

from streamkpca.tables.columns import Asked, Look, Reading
from streamkpca.tables.errors import TableError
from streamkpca.tables.table import Batch, Table
from streamkpca.tables.writer import WRITTEN, Writer

__all__ = ["WRITTEN", "Asked", "Batch", "Look", "Reading", "Table", "TableError", "Writer"]
