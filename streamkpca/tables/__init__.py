"""Rows of numbers from files as loggers, historians and spreadsheets write them, and tables of results.

It serves the command; nothing here is part of the library's interface. A `Table` finds out how a file is to be read;
`Writer` writes results. Bytes become rows of numbers in stages, each a function of values:

source : the bytes of files, pipes, compressed files and files that grow; other codes become UTF-8
text_formats : readers of CSV, spreadsheets and JSON lines
binary_formats : readers of npy, Parquet and Arrow
reader : what every reader answers
csv_layout : the mark between cells, the names, and where the rows begin
numbers : cells as numbers: decimal commas, units, words
times : cells as times
columns : what the first rows show of the columns, and how they are read then
table : the table of formats, and the class `Table`
blocks : rows put in order, made wide, and with counters subtracted
bad_rows : rows left out, and cells without a number
writer : results
errors : what is refused, and how messages quote it
"""

from streamkpca.tables.columns import Asked, Look, Reading
from streamkpca.tables.errors import TableError
from streamkpca.tables.table import Batch, Table
from streamkpca.tables.writer import WRITTEN, Writer

__all__ = ["WRITTEN", "Asked", "Batch", "Look", "Reading", "Table", "TableError", "Writer"]
