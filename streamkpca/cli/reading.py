"""From options to rows: tables, new models, and batches with progress, signals and the place of errors."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import click

from streamkpca import StreamingKernelPCA
from streamkpca.cli.console import Signals, print_warning
from streamkpca.cli.models import Saved
from streamkpca.cli.options import MODEL_PARAMETERS, given_options
from streamkpca.cli.tables import Batch, Table, TableError, open_table
from streamkpca.kernels import kernel_from

_READING = "header delimiter decimal columns drop time time_format labels on_bad_rows follow".split()
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
    tables: list[Table] = []
    # Results of several files have the same columns, but not each file may have a time.
    learned, time = saved.learned if saved else (), saved.time if saved and len(files) == 1 else ((), None)
    for file in files:
        start = places.get(os.path.realpath(file)) if file != "-" else None
        try:
            known: Any = {"learned": learned, "learned_time": time, "on_missing": on_missing, "looks": looks}
            table = open_table(file, **reading, **known, start=start)
        except TableError as error:
            if start is None:
                raise
            raise TableError(f"{error} (--from-start)") from None
        if table.left_out and not looks:
            print_warning(f"{file}: left out columns of text: {', '.join(table.left_out)}")
        _tell_notes(table)
        tables.append(table)
        learned = learned or (table.names if table.named else len(table.names))
    return tables


def make_model(options: Mapping[str, Any]) -> StreamingKernelPCA:
    """Make the unfitted model that a command's options describe."""
    kernel, units = kernel_from(options["kernel"], where="--kernel"), options["units"]
    is_asked = bool(given_options({"units"}))
    if kernel.has_units and is_asked and units != "none":
        raise click.UsageError(f"--units {units}: the kernel {kernel!r} has units of its own; leave one of them out")
    # Scales in numbers belong to the units in which rows are given.
    if units != "none" and not kernel.has_units and (is_asked or not kernel.is_settled):
        kernel = kernel.in_units(units)
    return StreamingKernelPCA(**{name: options[name] for name in MODEL_PARAMETERS} | {"kernel": kernel})


def each_batch(
    tables: Sequence[Table], n_rows: int, signals: Signals, what: str, *, quiet: bool = False
) -> Iterator[tuple[Table, Batch]]:
    """Read tables in turn until they end or a signal comes, with a progress bar if standard error is a terminal."""
    totals = [table.total for table in tables]
    with progress_bar(None if None in totals else sum(filter(None, totals)), what, quiet=quiet) as bar:
        for table in tables:
            done = 0
            for batch in signals.until_stopped(table.batches(n_rows)):
                yield table, batch
                _tell_notes(table)
                bar.update(batch.done - done)
                done = batch.done


def progress_bar(length: int | None, what: str, *, quiet: bool = False) -> Any:
    """Make a progress bar, which is shown if standard error is a terminal."""
    hidden = quiet or sys.stderr is None or not sys.stderr.isatty()
    return click.progressbar(repeat(None), length=length, label=what, file=sys.stderr, hidden=hidden)


@contextmanager
def at(table: Table, batch: Batch) -> Iterator[None]:
    """Name the file and the rows in what the library says of a batch."""
    try:
        yield
    except ValueError as error:
        where = f"{table.unit} {batch.rows[0]:,} to {batch.rows[-1]:,}"
        raise ValueError(f"{table.path}, {where}: {error}") from error


def bad_facts(tables: Sequence[Table]) -> dict[str, Any]:
    """Count the rows that were left out, and name the first ones, as JSON has it."""
    return {
        "rows_skipped": sum(table.n_bad for table in tables),
        "skipped": [example for table in tables for example in table.bad_examples],
    }


def tell_bad(tables: Sequence[Table]) -> None:
    """Warn of rows that were left out, with the place of the first in each file."""
    for table in tables:
        if table.n_bad:
            print_warning(f"{table.n_bad:,} rows left out, the first: {table.bad_examples[0]}")


def _tell_notes(table: Table) -> None:
    while table.notes:
        print_warning(table.notes.pop(0))
