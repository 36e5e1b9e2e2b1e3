"""From options to rows: tables, new models, and batches with progress, signals and the place of errors."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import click

from streamkpca import StreamingKernelPCA
from streamkpca.cli.console import Signals, print_warning
from streamkpca.cli.models import Saved
from streamkpca.cli.options import MODEL_PARAMETERS
from streamkpca.errors import text_of
from streamkpca.kernels import kernel_from
from streamkpca.tables import Batch, Reading, Table, TableError, open_table

_READING = (
    "header delimiter decimal columns drop time time_format differences gaps wide by labels on_bad_rows follow".split()
)
# A follower is likely to be killed rather than stopped in the end, so it saves its model so often.
FOLLOW_SECONDS = 60.0


def open_tables(
    files: Sequence[str],
    options: Mapping[str, Any],
    *,
    saved: Saved | None = None,
    on_missing: str = "raise",
    places: Mapping[str, Any] = {},
    looks: bool = False,
) -> list[Table]:
    """Open all files before the first row is read, so that a mistake in the last costs nothing.

    `saved` is the model whose columns are read, and `places` those where files go on.
    """
    if list(files).count("-") > 1:
        raise click.UsageError("- (standard input) can be read only once; name it once")
    if options.get("follow") and len(files) > 1:
        raise click.UsageError(f"--follow never reaches the end of {files[0]}; name one file only")
    reading = {name: options[name] for name in _READING if options.get(name) is not None}
    if reading.get("by", ("", ""))[1] is None:
        column = reading["by"][0]
        raise click.UsageError(f"--by {column}: expected one machine for this command, as in --by {column}=M1")
    tables: list[Table] = []
    known = saved.reading if saved else Reading()
    for file in files:
        start = places.get(os.path.realpath(file)) if file != "-" else None
        # Results of several files have the same columns, but not each file may have a time.
        one = known if len(files) == 1 else known._replace(time=())
        try:
            more: Any = {"known": one, "on_missing": on_missing, "looks": looks}
            table = open_table(file, **reading, **more, start=start)
        except TableError as error:
            if start is None:
                raise
            raise TableError(f"{error} (--from-start)") from None
        if (texts := table.look.left_out.get("text")) and not looks:
            print_warning(f"{file}: left out columns of text: {', '.join(texts)}")
        _tell_notes(table)
        tables.append(table)
        if not known.columns and table.reader.named:
            known = table.reading
    return _order(tables)


def list_machines(file: str, options: Mapping[str, Any]) -> list[str]:
    """List the machines of a file by the column of --by."""
    reading = {name: options[name] for name in ("header", "delimiter") if options.get(name) is not None}
    column = options["by"][0]
    if options["follow"] or file == "-" or Path(file).is_fifo():
        raise click.UsageError(f"--by {column}: reads FILE once for each machine; choose one, as in --by {column}=M1")
    return open_table(file, **reading, by=(column, "")).list_texts(column)


def _order(tables: list[Table]) -> list[Table]:
    """Put files in order of their first times, if all have some."""
    firsts: list[Any] = [table.look.times and table.look.times[0] for table in tables]
    if len(tables) < 2 or any(first is None for first in firsts) or len({type(first) for first in firsts}) > 1:
        return tables
    ordered = [tables[i] for i in sorted(range(len(tables)), key=lambda i: firsts[i])]
    if ordered != tables:
        print_warning(f"read in order of time: {', '.join(table.path for table in ordered)}")
    return ordered


def make_model(options: Mapping[str, Any]) -> StreamingKernelPCA:
    """Make the unfitted model that a command's options describe."""
    try:
        kernel = kernel_from(options["kernel"])
    except ValueError as error:
        raise ValueError(f"--kernel: {text_of(error)}") from None
    # Scales in numbers belong to the units in which rows are given.
    if not kernel.has_units and not kernel.is_settled:
        kernel = kernel.in_units("std")
    return StreamingKernelPCA(**{name: options[name] for name in MODEL_PARAMETERS} | {"kernel": kernel})


def each_batch(
    tables: Sequence[Table], n_rows: int, signals: Signals, what: str, *, quiet: bool = False
) -> Iterator[tuple[Table, Batch]]:
    """Read tables in turn until they end or a signal comes, with a progress bar if standard error is a terminal."""
    totals = [table.reader.total for table in tables]
    length = None if None in totals else sum(filter(None, totals))
    hidden = quiet or sys.stderr is None or not sys.stderr.isatty()
    with click.progressbar(repeat(None), length=length, label=what, file=sys.stderr, hidden=hidden) as bar:
        for table in tables:
            done = 0
            for batch in signals.until_stopped(table.batches(n_rows)):
                yield table, batch
                _tell_notes(table)
                bar.update(batch.done - done)
                done = batch.done


@contextmanager
def at(table: Table, batch: Batch) -> Iterator[None]:
    """Name the file and the rows in what the library says of a batch."""
    try:
        yield
    except ValueError as error:
        where = f"{table.unit} {batch.rows[0]:,} to {batch.rows[-1]:,}"
        raise ValueError(f"{table.path}, {where}: {text_of(error)}") from error


def bad_facts(tables: Sequence[Table]) -> dict[str, Any]:
    """Count the rows that were read and left out, and cells without a number, as JSON has it."""
    return {
        "rows_read": sum(table.bad.n_read for table in tables),
        "rows_skipped": sum(table.bad.n_left_out for table in tables),
        "skipped_because": dict(sum((table.bad.kinds for table in tables), Counter())),
        "skipped": [example for table in tables for example in table.bad.examples],
        "cells_without_numbers": dict(sum((table.bad.odd_cells for table in tables), Counter())),
    }


def tell_bad(tables: Sequence[Table]) -> None:
    """Warn of rows that were left out, and of cells without a number, with the place of the first in each file."""
    for table in tables:
        for message in table.bad.describe():
            print_warning(message)


def _tell_notes(table: Table) -> None:
    while table.notes:
        print_warning(table.notes.pop(0))
