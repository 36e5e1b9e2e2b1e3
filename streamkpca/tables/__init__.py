"""Rows of numbers from CSV, npy, npz and parquet files, in chunks and never whole."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from streamkpca.tables.array_tables import NpyTable, NpzTable
from streamkpca.tables.columns import (
    Array,
    Chunk,
    Table,
    TableError,
    blaming,
    check_finite,
    choose_columns,
)
from streamkpca.tables.csv_tables import CsvTable


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
) -> Table:
    r"""Open a file for reading in chunks, whatever its format.

    Parameters
    ----------
    source : str
        The file. Its first bytes tell whether it is npy, npz or parquet; anything else is CSV.
    stream : binary file, optional
        CSV rows to read instead of `source`, which then is only the stream's name in errors.
    array : str, optional
        Name of the array inside an npz file; not needed where only one has two dimensions.
    header, delimiter : bool, str, optional
        For CSV: see `CsvTable`.
    columns, drop : sequence of str
        Columns to read or leave out, by name or by position from 0.
    labels : str, optional
        Column that tells which rows are anomalous; for npz also the name of an array with one number a row.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        The file is absent, unreadable, without rows and columns, or without a column asked for.

    Notes
    -----
    Memory is O(chunk) for all formats, but for an npz array in column-major order, which is held whole in the
    type that it has in the file: its first row is complete only when its last column has begun.

    Examples
    --------
    >>> import io
    >>> table = open_table("<text>", stream=io.BytesIO(b"t,x,y\n10:00,1,2\n10:01,3,4.5\n"), drop=["t"])
    >>> [chunk.rows.tolist() for chunk in table.chunks(1000)]
    [[[1.0, 2.0], [3.0, 4.5]]]
    """
    path = Path(source)
    magic = b""
    if stream is None:
        if path.is_dir() or not path.exists():
            what = "is a folder" if path.is_dir() else "no such file"
            raise TableError(f"{source}: {what}; give a CSV, npy, npz or parquet file, or - for standard input")
        if path.is_file():
            with blaming(source), path.open("rb") as file:
                magic = file.read(6)
    if array is not None and not magic.startswith(b"PK"):
        raise TableError(f"{source}: --array names an array of an npz file, but this is none; leave --array out")
    if magic == b"\x93NUMPY":
        return NpyTable(source, columns=columns, drop=drop, labels=labels)
    if magic.startswith(b"PK"):
        return NpzTable(source, array=array, columns=columns, drop=drop, labels=labels)
    if magic.startswith(b"PAR1"):
        return ParquetTable(source, columns=columns, drop=drop, labels=labels)
    return CsvTable(
        source, stream=stream, header=header, delimiter=delimiter, columns=columns, drop=drop, labels=labels
    )


def regroup(chunks: Iterable[Chunk], n_rows: int) -> Iterator[Chunk]:
    """Cut rows anew, so that every chunk but the last has the same number of them.

    Parameters
    ----------
    chunks : iterable of Chunk
        Rows as they came.
    n_rows : int
        Rows of each chunk.

    Yields
    ------
    Chunk
    """
    held: list[Chunk] = []
    for chunk in chunks:
        held.append(chunk)
        while sum(len(part.rows) for part in held) >= n_rows:
            whole = _join(held)
            yield Chunk(*_cut(whole, slice(None, n_rows)), chunk.position)
            held = [Chunk(*_cut(whole, slice(n_rows, None)), chunk.position)]
    if held and len((rest := _join(held)).rows):
        yield rest


class ParquetTable(Table):
    """Number columns of a parquet file, read by batches.

    Parameters
    ----------
    source : str
        The file.
    columns, drop, labels : sequence of str, sequence of str, str or None
        As in `choose_columns`.

    Raises
    ------
    TableError
        A chosen column does not hold numbers.
    """

    rereadable = True

    def __init__(
        self, source: str, *, columns: Sequence[str] = (), drop: Sequence[str] = (), labels: str | None = None
    ) -> None:
        import pyarrow
        from pyarrow import parquet

        self.source = source
        with blaming(source), parquet.ParquetFile(source) as file:
            schema, self.total = file.schema_arrow, file.metadata.num_rows
        self.columns = choose_columns(source, schema.names, named=True, columns=columns, drop=drop, labels=labels)
        types = pyarrow.types
        for j in self.columns.wanted:
            kind = schema.types[j]
            if not any(
                check(kind) for check in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
            ):
                name = schema.names[j]
                raise TableError(
                    f"{source}: column {name!r} holds {kind} but numbers are required; "
                    f"leave the column out (--drop {name})"
                )

    def _blocks(self, n_rows: int) -> Iterator[tuple[Array, int]]:
        from pyarrow import parquet

        names = [self.columns.names[j] for j in self.columns.wanted]
        start = 0
        with blaming(self.source), parquet.ParquetFile(self.source) as file:
            for batch in file.iter_batches(batch_size=n_rows, columns=names):
                values = np.empty((batch.num_rows, len(names)))
                for j, name in enumerate(names):
                    # A missing value becomes None or NaN, and both become NaN here.
                    values[:, j] = batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
                check_finite(values, source=self.source, first_row=start, columns=self.columns)
                start += len(values)
                yield values, start


def _join(chunks: list[Chunk]) -> Chunk:
    first = chunks[0]
    if len(chunks) == 1:
        return first
    labels = None if first.labels is None else np.concatenate([c.labels for c in chunks if c.labels is not None])
    return Chunk(np.concatenate([chunk.rows for chunk in chunks]), labels, chunks[-1].position)


def _cut(chunk: Chunk, part: slice) -> tuple[Array, Array | None]:
    return chunk.rows[part], None if chunk.labels is None else chunk.labels[part]
