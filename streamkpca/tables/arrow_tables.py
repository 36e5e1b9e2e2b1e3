"""Parquet files and Arrow's files and streams, read batch by batch."""

import io
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from streamkpca.tables.chunks import Array, Block, Time, time_values
from streamkpca.tables.columns import Choice, choose_columns
from streamkpca.tables.errors import TableError, blaming, need_pyarrow
from streamkpca.tables.sources import Source
from streamkpca.tables.table import Table

# What opens an Arrow file, padded; a stream follows, so a file can be read from a pipe too.
_FILE_MAGIC = b"ARROW1\0\0"


class ArrowTable(Table):
    """Number columns of a Parquet file, or of Arrow's file or stream format.

    Parameters
    ----------
    source : Source
        Where they come from. A Parquet file must be one on disk: it is read from its end.
    choice : Choice
        Columns to read.
    skips : bool
        Whether bad rows are left out.

    Raises
    ------
    TableError
        A chosen column does not hold numbers.
    """

    def __init__(self, source: Source, *, choice: Choice, skips: bool = False) -> None:
        self.source, self._source, self.skips = source.name, source, skips
        self.rereadable, self._arrow = source.rereadable, need_pyarrow(source.name)
        head = source.peek(lambda head: len(head) >= len(_FILE_MAGIC))
        self._format = "Parquet" if head.startswith(b"PAR1") else "Arrow"
        # Read as the stream within: batches of a stream need no table of contents at the end.
        self._skipped = len(_FILE_MAGIC) if head.startswith(_FILE_MAGIC[:6]) else 0
        self.total: int | None = None
        self._stream: Any = None
        with ExitStack() as stack:
            schema = self._open_parquet(stack) if self._format == "Parquet" else self._open_stream(stack).schema
        self.columns = choose_columns(source.name, schema.names, choice, named=True)
        for j in self.columns.wanted:
            if not self._holds_numbers(schema.types[j]):
                name = schema.names[j]
                raise TableError(
                    f"{source.name}: column {name!r} holds {schema.types[j]} but numbers are required; "
                    f"leave the column out (--drop {name}), or keep it beside the rows (--time {name})"
                )

    def _open_parquet(self, stack: ExitStack) -> Any:
        """Read the schema and count the rows."""
        if not self.rereadable or self._source.compression is not None:
            raise TableError(
                f"{self.source}: a Parquet file is read from its end; write it to a file, uncompressed, and name that"
            )
        stack.enter_context(blaming(self.source))
        file = stack.enter_context(self._arrow.parquet.ParquetFile(self._source.path))
        self.total = file.metadata.num_rows
        return file.schema_arrow

    def _open_stream(self, stack: ExitStack) -> Any:
        """Open the stream of batches; that of a pipe stays open, for its schema cannot be read twice."""
        if self._stream is None:
            file = io.BufferedReader(stack.enter_context(self._source.opened()))
            file.read(self._skipped)
            stream = self._arrow.ipc.open_stream(file)
            if self.rereadable:
                return stream
            self._stream = stream
        return self._stream

    def _holds_numbers(self, kind: Any) -> bool:
        types = self._arrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        return any(check(kind) for check in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))

    def _batches(self, n_rows: int, first: int) -> Iterator[Any]:
        """Yield record batches from a row on, with the columns that are read alone where that saves work."""
        if self._format == "Arrow":
            with ExitStack() as stack:
                for batch in self._open_stream(stack):
                    rest = batch.slice(first)
                    first = max(0, first - batch.num_rows)
                    yield from (rest.slice(start, n_rows) for start in range(0, rest.num_rows, n_rows))
            if first:
                raise TableError(f"{self.source}: ends {first} rows before the place to go on at; name the same file")
            return
        columns = sorted({*self.columns.wanted, *([] if self.columns.time is None else [self.columns.time])})
        with self._arrow.parquet.ParquetFile(self._source.path) as file:
            groups = list(range(file.metadata.num_row_groups))
            while groups and first >= (size := file.metadata.row_group(groups[0]).num_rows):
                groups, first = groups[1:], first - size
            names = [self.columns.names[j] for j in columns]
            for batch in file.iter_batches(batch_size=n_rows, columns=names, row_groups=groups):
                rest = batch.slice(first)
                first = max(0, first - batch.num_rows)
                if rest.num_rows:
                    yield rest

    def _blocks(self, n_rows: int) -> Iterator[Block]:
        start = self._first_row
        common = {"format": self._format, "names": list(self.columns.names)} if self.rereadable else None
        with blaming(self.source):
            for batch in self._batches(n_rows, start):
                at = {name: j for j, name in enumerate(batch.schema.names)}
                columns = [batch.column(at[self.columns.names[j]]) for j in self.columns.wanted]
                values: Array = np.empty((batch.num_rows, len(columns)))
                for j, column in enumerate(columns):
                    values[:, j] = self._numbers(column)
                times = None
                if self.columns.time is not None:
                    times = self._times(batch.column(at[self.columns.names[self.columns.time]]))
                yield self._screened(values, start, times=times, common=common)
                start += batch.num_rows

    def _numbers(self, column: Any) -> Any:
        if self._arrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        # A missing value becomes None or NaN, and both become NaN here.
        return column.to_numpy(zero_copy_only=False).astype(np.float64)

    def _times(self, column: Any) -> list[Time]:
        types = self._arrow.types
        if types.is_timestamp(column.type) or types.is_date(column.type):
            zone = "Z" if types.is_timestamp(column.type) and column.type.tz else ""
            return time_values(column.to_numpy(zero_copy_only=False), zone)
        return [time if isinstance(time, str | int | float | None) else str(time) for time in column.to_pylist()]

    def _check_place(self, place: Mapping[str, Any]) -> None:
        self._check_row_place(place, self._format)
