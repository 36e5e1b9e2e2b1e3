"""Parquet files and Arrow's files and streams, read batch by batch."""

import io
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from streamkpca.cli.tables.columns import Choice, TableError, choose_columns, need_pyarrow, reading_errors, short
from streamkpca.cli.tables.reader import Array, BinaryTable, Block, Time, time_values
from streamkpca.cli.tables.source import Source

_BUFFER_BYTES = 1 << 16
# An Arrow file begins with this padded mark; a stream follows, so that a file can be read from a pipe too.
_FILE_MAGIC = b"ARROW1\0\0"


class ArrowTable(BinaryTable):
    """Number columns of a Parquet file, which must be on disk, or of Arrow's file or stream format."""

    def __init__(self, source: Source, *, choice: Choice, skips: bool = False, on_missing: str = "raise") -> None:
        self.source, self._source, self.skips, self.notes = source.name, source, skips, []
        self.on_missing = on_missing
        self.rereadable, self._arrow = source.rereadable, need_pyarrow(source.name)
        self.total = None
        head = source.peek(lambda head: len(head) >= len(_FILE_MAGIC))
        self._format = "Parquet" if head.startswith(b"PAR1") else "Arrow"
        # An Arrow file that cannot be read from its end is read as the stream within.
        self._skipped = len(_FILE_MAGIC) if head.startswith(_FILE_MAGIC[:6]) else 0
        self._mapped = bool(self._skipped) and source.on_disk
        if self._format == "Parquet" and not source.on_disk:
            raise TableError(
                f"{self.source}: a Parquet file is read from its end; write it to a file, uncompressed, and name that"
            )
        self._stream: Any = None
        with reading_errors(source.name), ExitStack() as stack:
            schema = self._open(stack)
            names, kinds = schema.names, schema.types
        self.columns = choose_columns(source.name, names, choice, named=True)
        self._note_names()
        for j in self.columns.wanted:
            if not self._holds_numbers(kinds[j]) and not (j in self.columns.categories and self._holds_text(kinds[j])):
                name = self.columns.option(j)
                raise TableError(
                    f"{source.name}: {self.columns.called(j)} holds {short(str(kinds[j]))} but numbers are required; "
                    f"leave the column out (--drop {name}), or keep it beside the rows (--time {name})"
                    + (f", or compare it as categories (--category {name})" if self._holds_text(kinds[j]) else "")
                )

    def _open(self, stack: ExitStack) -> Any:
        """Read the schema, and the number of rows if the file tells it."""
        if self._format == "Parquet":
            parquet = self._open_parquet(stack)
            self.total = parquet.metadata.num_rows
            return parquet.schema_arrow
        if self._mapped:
            file = self._open_file(stack)
            # Older versions of pyarrow cannot count without reading.
            self.total = file.count_rows() if hasattr(file, "count_rows") else None
            return file.schema
        return self._open_stream(stack).schema

    def _open_parquet(self, stack: ExitStack) -> Any:
        # With reading ahead or without a buffer, columns are held up to the end of their row group: often of the file.
        file = self._arrow.parquet.ParquetFile(self._source.path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
        return stack.enter_context(file)

    def _open_file(self, stack: ExitStack, options: Any = None) -> Any:
        memory = stack.enter_context(self._arrow.memory_map(str(self._source.path)))
        return stack.enter_context(self._arrow.ipc.open_file(memory, options=options))

    def _open_stream(self, stack: ExitStack, options: Any = None) -> Any:
        """Open the stream of batches; a pipe's stays open, because its schema cannot be read twice."""
        if self._stream is not None:
            return self._stream
        file = io.BufferedReader(stack.enter_context(self._source.opened()))
        file.read(self._skipped)
        stream = self._arrow.ipc.open_stream(file, options=options)
        if not self.rereadable:
            self._stream = stream
        return stream

    def _holds_numbers(self, kind: Any) -> bool:
        types = self._arrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        return any(check(kind) for check in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal))

    def _holds_text(self, kind: Any) -> bool:
        types = self._arrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        return any(check(kind) for check in (types.is_string, types.is_large_string, types.is_string_view))

    def _batches(self, stack: ExitStack, n_rows: int, read: list[int], first: int) -> Iterator[Any]:
        """Yield batches of the columns to read, from row `first` on."""
        if self._format == "Parquet":
            file = self._open_parquet(stack)
            groups = list(range(file.metadata.num_row_groups))
            while groups and first >= (size := file.metadata.row_group(groups[0]).num_rows):
                groups, first = groups[1:], first - size
            names = [self.columns.names[j] for j in read]
            yield from self._skip_rows(file.iter_batches(batch_size=n_rows, columns=names, row_groups=groups), first)
            return
        options = self._arrow.ipc.IpcReadOptions(included_fields=read)
        if self._mapped:
            whole = self._open_file(stack, options)
            yield from self._skip_rows((whole.get_batch(i) for i in range(whole.num_record_batches)), first)
        else:
            yield from self._skip_rows(self._open_stream(stack, options), first)

    def _skip_rows(self, batches: Iterable[Any], first: int) -> Iterator[Any]:
        """Pass over the first rows of the batches."""
        for batch in batches:
            if batch.num_rows > first:
                yield batch.slice(first) if first else batch
            first = max(0, first - batch.num_rows)
        if first:
            raise TableError(f"{self.source}: it ends {first} rows before the offset to resume at; name the same file")

    def _blocks(self, n_rows: int) -> Iterator[Block]:
        start, (wanted, time) = self._first_row, (self.columns.wanted, self.columns.time)
        read = {*wanted, *([] if time is None else [time])}
        if self._format == "Parquet":
            # Parquet columns are read by name, so all columns of that name come.
            names = {self.columns.names[j] for j in read}
            read = {j for j, name in enumerate(self.columns.names) if name in names}
        ordered = sorted(read if self.rereadable else range(len(self.columns.names)))
        at = {j: i for i, j in enumerate(ordered)}
        with reading_errors(self.source), ExitStack() as stack:
            n_rows = self._most_rows(n_rows)
            for batch in self._batches(stack, n_rows, ordered, start):
                # Arrow trusts what it reads: a damaged offset would point anywhere in memory.
                for j in read:
                    batch.column(at[j]).validate(full=True)
                for first in range(0, batch.num_rows, n_rows):
                    part = batch.slice(first, n_rows)
                    values: Array = np.empty((part.num_rows, len(wanted)))
                    for i, j in enumerate(wanted):
                        values[:, i] = self._numbers(part.column(at[j]))
                    times = None if time is None else self._times(part.column(at[time]))
                    yield self._make_block(values, start, times)
                    start += part.num_rows

    def _numbers(self, column: Any) -> Any:
        if self._arrow.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if self._holds_text(column.type):
            return self._coded(column.to_pylist())
        # A missing value becomes None or NaN, and both become NaN here.
        return column.to_numpy(zero_copy_only=False).astype(np.float64)

    def _times(self, column: Any) -> list[Time]:
        types = self._arrow.types
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        kind = column.type
        if types.is_timestamp(kind) or types.is_date(kind):
            # Times with a time zone are stored in UTC.
            zone = "Z" if types.is_timestamp(kind) and kind.tz else ""
            return time_values(column.to_numpy(zero_copy_only=False), zone)
        if types.is_time(kind):
            column = column.cast(self._arrow.string())
        return [time if isinstance(time, str | int | float | None) else str(time) for time in column.to_pylist()]
