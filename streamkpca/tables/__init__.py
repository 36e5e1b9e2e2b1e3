"""Rows of numbers from files as loggers, historians and spreadsheets write them, and tables of results.

It serves the command; nothing here is part of the library's interface. A `Table` finds out how a file is to be read;
`Writer` writes results. Bytes become rows of numbers in stages, each a function of values:

source : the bytes of files, pipes, compressed files and files that grow; other codes become UTF-8
text_formats : readers of CSV, spreadsheets and JSON lines
binary_formats : readers of npy, Parquet and Arrow
reader : what every reader answers
asked : what the user asks for, and what is known of columns
csv_layout : the mark between cells, the names, and where the rows begin
numbers : cells as numbers: decimal commas, units, words
times : cells as times
sample : the first rows
clocks, keys, quality, sentinels : the time, machines and tags, marks of bad values, numbers for gaps
columns : the decision how columns are read
table : the table of formats, and the class `Table`
blocks : rows put in order, made wide, and with counters subtracted
bad_rows : rows left out, and cells without a number
writer : results
errors : what is refused, and how messages quote it
"""

from streamkpca.tables.asked import Asked, Reading
from streamkpca.tables.columns import Look
from streamkpca.tables.errors import TableError
from streamkpca.tables.table import Batch, Table
from streamkpca.tables.writer import WRITTEN, Writer

__all__ = ["WRITTEN", "Asked", "Batch", "Look", "Reading", "Table", "TableError", "Writer"]
