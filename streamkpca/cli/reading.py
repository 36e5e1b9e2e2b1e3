"""From options to rows, and back: tables, batches with progress, and the command line that states what was decided."""

import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from shutil import which
from typing import Any

import click

from streamkpca.cli.console import Signals, print_facts, print_warning, printable, write_count
from streamkpca.cli.models import Saved
from streamkpca.cli.options import is_given
from streamkpca.errors import text_of
from streamkpca.tables import Asked, Batch, Table, TableError
from streamkpca.tables.errors import list_names, write_names

_LAYOUT = ("header", "skip", "names_line", "names", "encoding", "delimiter")
_READING = (
    *_LAYOUT,
    *"decimal columns drop time time_format differences gaps quality wide by labels on_bad_rows follow".split(),
)
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "white space"}
_SHOWN_CELLS = 3
# A follower is likely to be killed rather than stopped in the end, so it saves its model so often.
FOLLOW_SECONDS = 60.0


def open_tables(files: Sequence[str], options: Mapping[str, Any], saved: Saved, *, looks: bool = False) -> list[Table]:
    """Open all files for a saved model before the first row is read: a mistake in the last costs nothing."""
    if list(files).count("-") > 1:
        raise click.UsageError("- (standard input) can be read only once; name it once")
    if options.get("follow") and len(files) > 1:
        raise click.UsageError(f"--follow never reaches the end of {files[0]}; name one file only")
    reading = {name: options[name] for name in _READING if options.get(name) is not None}
    if reading.get("by", ("", ""))[1] is None:
        column = reading["by"][0]
        raise click.UsageError(f"--by {column}: expected one machine for this command, as in --by {column}=M1")
    tables: list[Table] = []
    known = saved.reading
    for file in files:
        start = saved.places.get(os.path.realpath(file)) if file != "-" else None
        # Results of several files have the same columns, but not each file may have a time.
        one = known if len(files) == 1 else known._replace(time=())
        try:
            asked = Asked(**reading, known=one, missing=saved.model.missing, looks=looks, start=start)
            table = Table(file, asked)
        except TableError as error:
            if start is None:
                raise
            raise TableError(f"{error} (--from-start)") from None
        for why, names in {} if looks else table.look.left_out.items():
            print_warning(f"{file}: columns left out, {why}: {', '.join(names)}")
        _tell_notes(table)
        tables.append(table)
        if not known.columns and table.reader.named:
            known = table.reading
    return _order(tables)


def list_machines(file: str, options: Mapping[str, Any]) -> list[str]:
    """List the machines of a file by the column of --by."""
    reading = {name: options[name] for name in _LAYOUT if options.get(name) is not None}
    column = options["by"][0]
    if options["follow"] or file == "-" or Path(file).is_fifo():
        raise click.UsageError(f"--by {column}: reads FILE once for each machine; choose one, as in --by {column}=M1")
    return Table(file, Asked(**reading, by=(column, ""))).list_texts(column)


def _order(tables: list[Table]) -> list[Table]:
    """Put files in order of their first times, if all have some."""
    firsts: list[Any] = [table.look.times and table.look.times[0] for table in tables]
    if len(tables) < 2 or any(first is None for first in firsts) or len({type(first) for first in firsts}) > 1:
        return tables
    ordered = [tables[i] for i in sorted(range(len(tables)), key=lambda i: firsts[i])]
    if ordered != tables:
        print_warning(f"read in order of time: {', '.join(table.path for table in ordered)}")
    return ordered


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
        "clocks_wrong": sum(table.bad.n_wrong_clocks for table in tables),
        "read_as": [_tell_reading(table) for table in tables],
    }


def _tell_reading(table: Table) -> dict[str, Any]:
    """Tell how a table was read, as JSON has it."""
    (time, numbers), other = table.look.first, table.look.other
    return {
        "file": table.path,
        "time": table.reading.time,
        "time_format": table.reading.time_format,
        "other_time_format": other and other[0],
        "first_time": None if time is None else table.clock(time),
        "other_first_time": other and table.clock(other[1]),
        "first_row": dict([*numbers.items()][:_SHOWN_CELLS]),
        "put_in_order": table.sorts,
        "wide": table.reading.wide,
        "counters": table.reading.differences,
        "quality": table.reading.quality,
        "notes": table.told,
    }


def tell_bad(tables: Sequence[Table]) -> None:
    """Warn of rows that were left out, and of cells without a number, with the place of the first in each file."""
    for table in tables:
        for message in table.bad.describe():
            print_warning(message)


def _tell_notes(table: Table) -> None:
    while table.notes:
        table.told.append(table.notes.pop(0))
        print_warning(table.told[-1])


def describe_look(table: Table) -> dict[str, str | None]:
    """Return what a look at the first rows of a table has found and decided."""
    found, dialect, reading = table.look, table.reader.dialect, table.reading
    return {
        "above the rows": f"{table.reader.n_above} lines, with names and units" if table.reader.n_above > 1 else None,
        "between cells": _MARKS.get(dialect.get("delimiter", ""), dialect.get("delimiter")),
        "before decimals": {",": "commas"}.get(dialect.get("decimal", "")),
        "names": None if table.reader.named else "none; columns are counted from 0",
        "time": _time_found(table),
        "first row": _first_row(table),
        "order": "rows are put in order of time" if table.sorts else None,
        "wide": reading.wide and f"a column for each {reading.wide[0]}, of its {reading.wide[1]}",
        "watched": _list(table.names),
        "by their differences": _list(reading.differences, "as counters"),
        "by their quality": _list([f"{name} ({how[0]})" for name, how in reading.quality.items()], "bad ones are gaps"),
        **{f"left out, {why}": _list(names) for why, names in found.left_out.items()},
        "numbers for gaps": _list(
            [f"{name} ({', '.join(f'{one:g}' for one in ones)})" for name, ones in found.sentinels.items()]
        ),
        "gaps": _list(
            [f"{name} ({100 * share:.2g}%)" for name, share in found.gaps.items()], "rows are judged by the rest"
        ),
        "constant so far": _list([f"{name} ({value:g})" for name, value in found.constants.items()]),
    }


def tell_look(table: Table) -> None:
    """Say how the first rows of a table are read, and which command line states it."""
    found, dialect, reading = table.look, table.reader.dialect, table.reading
    whose = ", ".join(filter(None, [table.path, table.key]))
    print_facts(f"{printable(whose)}, by its first {write_count(found.n_rows, 'row')}", describe_look(table), err=True)
    given = click.get_current_context().params
    stated = dialect | {"time": table.reading.time, "time_format": reading.time_format}
    stated["differences"] = reading.differences or given["differences"]
    stated["drop"] = *(given["drop"] or ()), *(name for names in found.left_out.values() for name in names)
    stated["gaps"] = given["gaps"] or tuple(sorted({f"{one:g}" for ones in found.sentinels.values() for one in ones}))
    stated["wide"] = reading.wide and reading.wide[0]
    stated["quality"] = tuple(dict.fromkeys(how[0] for how in reading.quality.values())) or given["quality"]
    # A terminal would show it as spaces.
    stated |= {"delimiter": r"\t"} if stated.get("delimiter") == "\t" else {}
    click.echo(f"  The same in full: {write_command(stated)}\n", err=True)


def write_command(stated: dict[str, Any]) -> str:
    """Write the present command line with more options, quoted for a shell."""
    context = click.get_current_context()
    words = [str(context.info_name), *context.params["files"]]
    for option in context.command.get_params(context):
        name = str(option.name)
        value = stated.get(name, context.params.get(name) if is_given(name) else None)
        if value == () and is_given(name) and "|none" in str(option.metavar):
            value = "none"
        # What is done once is not repeated by a line that is kept.
        if not isinstance(option, click.Option) or value in (None, ()) or name in ("accept", "confirm", "from_start"):
            continue
        if name == "by" and isinstance(value, tuple):
            value = "=".join(filter(None, value))
        if isinstance(value, bool):
            words.append(option.opts[0] if value else option.secondary_opts[0])
        else:
            words += [option.opts[0], write_names([*map(str, value)]) if isinstance(value, tuple) else str(value)]
    return write_line(words)


def write_line(words: Sequence[str]) -> str:
    """Write a line for a shell that calls this command: by its path, as here, if no shell finds it by its name."""
    is_found = which("streamkpca") or Path(sys.argv[0]).stem != "streamkpca"
    words = ["streamkpca" if is_found else sys.argv[0], *words]
    line = subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
    return line if line.isprintable() else printable(line)


def _list(names: Sequence[str], more: str = "") -> str | None:
    return "; ".join(filter(None, [list_names(names), more])) if names else None


def _time_found(table: Table) -> str:
    """Describe the column of times."""
    found, form = table.look, table.reading.time_format or ""
    if not table.reading.time:
        return "none found (--time NAME)"
    text = " ".join(table.reading.time)
    if not found.times:
        return f"{text}, but these rows do not hold such times"
    first, last = map(table.clock, found.times)
    other = f"; or {found.other[0]}: from {table.clock(found.other[1])} (--time-format)" if found.other else ""
    return f"{text}, as {form}: {first} to {last}{other}"


def _first_row(table: Table) -> str:
    """Write the first row as it is read: its time, and some of its numbers."""
    time, numbers = table.look.first
    shown = [f"{name} {number:.10g}" for name, number in [*numbers.items()][:_SHOWN_CELLS]]
    return "; ".join(filter(None, ["" if time is None else str(table.clock(time)), ", ".join(shown)]))
