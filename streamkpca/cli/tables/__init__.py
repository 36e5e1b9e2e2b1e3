"""Rows of numbers from CSV, JSON lines, Parquet, Arrow and npy in batches, and tables of results.

`open_table` tells the format and returns a `Table`; `Writer` writes results.

* `table`: the choice of columns, batches, bad rows and gaps, `TableError`
* `source`: the bytes of files, pipes, compressed files, and files that grow
* `text`: CSV and JSON lines
* `times`: columns of times
* `look`: what the first rows show of the columns
* `arrays`: npy, Parquet, Arrow
* `writer`: results
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow

from streamkpca.cli.tables.arrays import ArrayReader, ArrowReader
from streamkpca.cli.tables.look import look
from streamkpca.cli.tables.source import Source
from streamkpca.cli.tables.table import Batch, Reader, Table, TableError, choose_columns, reading_errors
from streamkpca.cli.tables.text import BOM, CsvLines, JsonLines, TextReader
from streamkpca.cli.tables.times import Times
from streamkpca.cli.tables.writer import WRITTEN, Writer

__all__ = ["WRITTEN", "Batch", "Table", "TableError", "Writer", "open_table"]

# The first bytes of each. Letters that may also begin a column's name must not be followed by a delimiter.
_BEGINNINGS = {
    "npy": re.compile(rb"\x93NUMPY"),
    "parquet": re.compile(rb"PAR1(?![,;\t|\r\n])"),
    "arrow": re.compile(rb"ARROW1(?![,;\t|\r\n])|\xff\xff\xff\xff"),
    "jsonl": re.compile(rb"(" + BOM + rb")?\s*[{\[]"),
}


def open_table(
    path: str,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    time: Sequence[str] = (),
    time_format: str | None = None,
    learned_time: tuple[Sequence[str], str | None] = ((), None),
    labels: str | None = None,
    learned: Sequence[str] | int = (),
    on_bad_rows: str = "raise",
    on_missing: str = "raise",
    follow: bool = False,
    start: Mapping[str, Any] | None = None,
    looks: bool = False,
) -> Table:
    r"""Open a file, or standard input ("-"), for reading in batches; its first bytes tell the format.

    header : whether the first line of CSV holds names; None: its contents tell.
    delimiter, decimal : of CSV; None: the comma, semicolon, tab or bar that cuts the first lines into most fields, and
        a comma where numbers have commas and never points.
    columns, drop : names of columns to read, in this order, and to leave out; without names they are "0", "1", ...
    time, labels : columns handed out beside the rows, and never features: numbers or dates, and numbers. Several
        columns of times are joined by spaces.
    time_format : of `strptime`, or "s", "ms", "us" or "ns" for numbers since 1970; None: numbers, or ISO 8601.
    learned_time : time and time_format where `time` is empty and the file has these columns.
    learned : names of the columns to read where the file has names and `columns` is empty; else, and with an int,
        only the number of columns is checked.
    on_bad_rows : "raise" refuses a row with another number of fields, text, or infinity; "skip" leaves it out.
    on_missing : a row with gaps (empty cells, NaN, null) is a bad row ("raise"), is left out ("skip"), or keeps NaN
        ("marginal"); rows without any number are left out and counted then too.
    follow : whether to wait for more at the end of text; a file that was replaced or emptied is read anew.
    start : `Batch.position` of an earlier reading, to go on after it. If the file is another one now, that is an
        error, or with `follow` a note, and reading from the beginning.
    looks : whether to look at the first rows for a time that is not given, and to leave out counters and empty columns
        if no columns are given or learned; `Table.look` tells what was found.

    Memory is that of a block of text (1 MiB), of some rows or pages, or of a batch in Arrow's file. Parquet,
    npy and Arrow's file that are piped or compressed are copied to a temporary file first.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "readings.csv")
    >>> _ = path.write_text("t,x,y\n10,1,2\n11,3,4.5\n12,5,oops\n13,6,7\n")
    >>> table = open_table(str(path), time=["t"], on_bad_rows="skip")
    >>> [(batch.rows.tolist(), batch.numbers.tolist()) for batch in table.batches(1000)]
    [([2, 3, 5], [[1.0, 2.0], [3.0, 4.5], [6.0, 7.0]])]
    >>> table.n_bad
    1
    """
    source = Source(path, follow=follow)
    with reading_errors(source.name):
        head = source.peek(lambda head: len(head.removeprefix(BOM).lstrip()) >= 8 or b"\n" in head.lstrip())
        kind = next((name for name, begin in _BEGINNINGS.items() if begin.match(head)), "csv")
        if follow and source.rereadable and kind not in ("csv", "jsonl"):
            raise TableError(f"{path}: only text (CSV, JSON lines) grows row by row; leave --follow out")
        reader: Reader
        if kind == "npy":
            reader = ArrayReader(source)
        elif kind in ("parquet", "arrow"):
            reader = ArrowReader(source, is_parquet=kind == "parquet", is_file=head.startswith(b"ARROW1"))
        elif kind == "jsonl":
            more = learned if on_missing == "marginal" and not isinstance(learned, int) else ()
            reader = TextReader(source, JsonLines(source, more=more))
        else:
            reader = TextReader(source, CsvLines(source, header=header, delimiter=delimiter, decimal=decimal))
        if not time and set(learned_time[0]) <= set(reader.names):
            time, time_format = learned_time
        found = None
        if looks:
            asked = columns or (() if isinstance(learned, int) else learned)
            found = look(reader, asked, {*drop, *filter(None, [labels])}, time, time_format)
            time, time_format = time or found.time, found.time_format
            drop = drop if asked else [*drop, *found.counters, *found.empty]
        chosen = choose_columns(source.name, reader, columns, drop, time, labels, learned)
        times = Times(reader.names, chosen.time, time_format)
        if looks:
            with suppress(ValueError):
                times.read([pyarrow.array(reader.sample(j)[:1]) for j in chosen.time])
        if start is not None and not reader.rereadable:
            raise TableError(f"{source.name}: a stream cannot go on at an earlier position; name a file")
        try:
            if start is not None:
                reader.check_start(start)
        except TableError as error:
            if not follow:
                raise
            source.notes.append(f"{error}; reading it from its beginning")
            start = None
        except (LookupError, TypeError, ValueError):
            what = f"expected a position as Batch.position gives it but got {start!r}"
            raise TableError(f"{source.name}: {what}; begin anew") from None
    skips = on_bad_rows == "skip"
    return Table(
        source.name, reader, chosen, times, source.notes, skips=skips, on_missing=on_missing, start=start, look=found
    )
