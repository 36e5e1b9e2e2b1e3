"""Rows of numbers from CSV, JSON lines, Parquet, Arrow, npy and npz, read in chunks and never whole.

`open_table` recognises the format and returns a `Table`. The modules, from the bottom up:

* `columns`: the columns of a table, the choice among them, and `TableError`
* `signatures`: what files are that are no tables
* `source`: bytes of files, pipes, compressed files and files that grow
* `reader`: `Table`, its chunks, the offsets at which reading can resume, and bad rows
* `text`: records of text, for `csv` and `jsonl`
* `numpy` and `arrow`: npy and npz; Parquet and Arrow
"""

import re
from collections.abc import Collection, Sequence
from typing import BinaryIO

from streamkpca.cli.tables.columns import Choice, Columns, TableError
from streamkpca.cli.tables.csv import CsvTable
from streamkpca.cli.tables.reader import ON_BAD_ROWS, ON_MISSING, Chunk, Table, check_same_columns, regroup
from streamkpca.cli.tables.signatures import contents_of
from streamkpca.cli.tables.source import MAGIC_BYTES, Source, Tell
from streamkpca.cli.tables.text import BOM

__all__ = ["Chunk", "Columns", "Table", "TableError", "check_same_columns", "open_table", "regroup"]

# The first bytes of each format. Letters that may also begin a column's name must not be followed by a delimiter.
_NUMPY = re.compile(rb"\x93NUMPY")
_ZIP = re.compile(rb"PK(\x03\x04|\x05\x06)")
_ARROW = re.compile(rb"(PAR1|ARROW1)(?![,;\t\r\n])|\xff\xff\xff\xff")


def open_table(
    source: str,
    *,
    stream: BinaryIO | None = None,
    array: str | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    columns: Sequence[str] = (),
    drop: Sequence[str] = (),
    labels: str | None = None,
    time: str | None = None,
    learned: Sequence[str] = (),
    categories: Sequence[str] = (),
    category_features: Collection[int] = (),
    on_bad_rows: str = "raise",
    on_missing: str = "raise",
    follow: bool = False,
    tell: Tell = lambda line: None,
) -> Table:
    r"""Open a file or a stream for reading in chunks, whatever its format.

    Parameters
    ----------
    source : str
        The file. Its first bytes tell the format: npy, npz, Parquet, Arrow's file or stream; text that begins with
        ``{`` or ``[`` is JSON lines, other text is CSV. Text, npy and Arrow may be compressed as gzip, bzip2, xz, zstd
        or lz4.
    stream : binary file, optional
        Read this instead of `source`, which then is only the stream's name in errors. `seek` is never called on it, so
        npz and Parquet, which are read from their end, are refused.
    array : str, optional
        Name of the array inside an npz file; not needed if only one has two dimensions.
    header, delimiter : bool, str, optional
        For CSV: see `CsvTable`.
    columns, drop, labels, time, learned, categories, category_features : str or sequence
        See `Choice`. For npz, `labels` and `time` may also name an array with one value a row.
    on_bad_rows : "raise" or "skip"
        Whether a row that cannot be read as finite numbers is an error, or is left out and counted in
        `Table.n_skipped`.
    on_missing : "raise", "skip" or "marginal"
        What becomes of rows with missing features: as `on_bad_rows` says; they are left out and counted; or what is
        missing is NaN, and only rows without any number are left out and counted.
    follow : bool
        Whether to wait for more at a text file's end, across rotation and truncation, as ``tail -F`` does. The file
        need not exist yet. A pipe is always read until its writer closes it.
    tell : callable
        Takes a line for the user when rows of a followed file may have been lost.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        The file is absent, unreadable, without rows or columns, or without a column that is asked for.

    Notes
    -----
    Memory is O(chunk) for all formats, with these exceptions: an Arrow stream is held one batch at a time, in the
    size in which it was written; a Parquet file takes some pages of each column, about 1 MB each; an npz array in
    column-major order is held whole in the type that it has in the file, because its first row is complete only when
    its last column has begun.

    Examples
    --------
    >>> import io
    >>> text = b"t,x,y\n10:00,1,2\n10:01,3,4.5\n10:02,5,n/a\n"
    >>> table = open_table("<text>", stream=io.BytesIO(text), time="t", on_bad_rows="skip")
    >>> [(chunk.rows.tolist(), chunk.times) for chunk in table.chunks(1000)]
    [([[1.0, 2.0], [3.0, 4.5]], ['10:00', '10:01'])]
    >>> table.n_skipped, table.first_skipped
    (1, "<text>, line 4: column 'y' has no value ('n/a')")

    Read a file up to an offset, and resume there another day:

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "readings.csv")
    >>> _ = path.write_text("x\n1\n2\n3\n")
    >>> offset = next(open_table(str(path)).chunks(2)).offset
    >>> later = open_table(str(path))
    >>> later.seek(offset)
    >>> [chunk.rows.tolist() for chunk in later.chunks(2)]
    [[[3.0]]]
    """
    if on_bad_rows not in ON_BAD_ROWS:
        raise TableError(f"on_bad_rows: expected 'raise' or 'skip' but got {on_bad_rows!r}; choose one of these")
    if on_missing not in ON_MISSING:
        raise TableError(
            f"on_missing: expected 'raise', 'skip' or 'marginal' but got {on_missing!r}; choose one of these"
        )
    # Each format is imported when a table needs it.
    skips, choice = on_bad_rows == "skip", Choice(columns, drop, labels, time, learned, categories, category_features)
    origin = Source(source, stream, follow=follow, tell=tell)
    magic = origin.peek(lambda head: len(_without_blanks(head)) >= MAGIC_BYTES or b"\n" in _without_blanks(head))
    if found := contents_of(magic):
        raise TableError(f"{source}: is {found.what}; {found.remedy}")
    if array is not None and not _ZIP.match(magic):
        raise TableError(f"{source}: --array names an array of an npz file, but this is not one; leave --array out")
    if any(beginning.match(magic) for beginning in (_NUMPY, _ZIP, _ARROW)):
        if origin.followed:
            raise TableError(f"{source}: only text can grow row by row; leave --follow out, or write CSV or JSON lines")
        if _ARROW.match(magic):
            from streamkpca.cli.tables.arrow import ArrowTable

            return ArrowTable(origin, choice=choice, skips=skips, on_missing=on_missing)
        from streamkpca.cli.tables.numpy import NpyTable, NpzTable

        if _ZIP.match(magic):
            return NpzTable(origin, array=array, choice=choice, skips=skips, on_missing=on_missing)
        return NpyTable(origin, choice=choice, skips=skips, on_missing=on_missing)
    if _without_blanks(magic).startswith((b"{", b"[")) and header is None and delimiter is None:
        from streamkpca.cli.tables.jsonl import JsonTable

        return JsonTable(origin, choice=choice, skips=skips, on_missing=on_missing)
    return CsvTable(origin, choice=choice, header=header, delimiter=delimiter, skips=skips, on_missing=on_missing)


def _without_blanks(head: bytes) -> bytes:
    return head.removeprefix(BOM).lstrip()
