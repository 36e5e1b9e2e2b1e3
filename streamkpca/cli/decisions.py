"""A message of what a look at a file has found, and the command line that states the decisions."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from typing import Any

import click
from click.core import ParameterSource

from streamkpca.cli.console import print_facts, printable
from streamkpca.tables import Table
from streamkpca.tables.errors import write_names

_SHOWN_NAMES = 8
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "white space"}


def tell_look(table: Table) -> None:
    """Say what a look at the first rows of a table has found and decided, and which command line states it."""
    found, dialect, reading = table.look, table.reader.dialect, table.reading
    sentinels = {name: ", ".join(f"{one:g}" for one in ones) for name, ones in found.sentinels.items() if ones}
    facts = {
        "above the rows": f"{table.reader.n_above} lines, with names and units" if table.reader.n_above > 1 else None,
        "between cells": _MARKS.get(dialect.get("delimiter", ""), dialect.get("delimiter")),
        "before decimals": {",": "commas"}.get(dialect.get("decimal", "")),
        "names": None if table.reader.named else "none; columns are counted from 0",
        "time": _time_found(table),
        "order": "rows are put in order of time" if table.sorts else None,
        "wide": reading.wide and f"a column for each {reading.wide[0]}, of its {reading.wide[1]}",
        "watched": _list(table.names),
        "by their differences": _list(reading.differences, "counters, which only rise"),
        **{f"left out, {why}": _list(names) for why, names in found.left_out.items()},
        "numbers for gaps": _list([f"{name} ({numbers})" for name, numbers in sentinels.items()]),
        "gaps": _list(
            [f"{name} ({100 * share:.2g}%)" for name, share in found.gaps.items()], "rows are judged by the rest"
        ),
        "constant so far": _list([f"{name} ({value:g})" for name, value in found.constants.items()]),
    }
    print_facts(f"{table.path}, by its first {found.n_rows:,} rows", facts, err=True)
    given = click.get_current_context().params
    stated = dialect | {"time": table.reading.time, "time_format": reading.time_format}
    stated["differences"] = "none" if given["differences"] == () else reading.differences
    stated["drop"] = *(given["drop"] or ()), *(name for names in found.left_out.values() for name in names)
    stated["gaps"] = given["gaps"] or (
        "none"
        if given["gaps"] == ()
        else tuple(sorted({f"{one:g}" for ones in found.sentinels.values() for one in ones}))
    )
    stated["wide"] = reading.wide and reading.wide[0]
    if stated.get("delimiter") == "\t":
        # A terminal would show it as spaces.
        stated["delimiter"] = r"\t"
    click.echo(f"  The same in full: {write_command(stated)}\n", err=True)


def write_command(stated: dict[str, Any]) -> str:
    """Write the present command line with more options, quoted for a shell."""
    context = click.get_current_context()
    words = [str(context.info_name), *context.params["files"]]
    for option in context.command.get_params(context):
        name = str(option.name)
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        value = stated.get(name, context.params.get(name) if is_given else None)
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
    shown = write_names(names[:_SHOWN_NAMES], ", ") + f" and {len(names) - _SHOWN_NAMES:,} more" * (
        len(names) > _SHOWN_NAMES
    )
    return f"{shown}; {more}" if names and more else shown or None


def _time_found(table: Table) -> str:
    """Describe the column of times."""
    found, form = table.look, table.reading.time_format or ""
    if not table.reading.time:
        return "none found (--time NAME)"
    text = " ".join(table.reading.time)
    if not found.times:
        return f"{text}, but these rows do not hold such times"
    first, last = map(table.clock, found.times)
    return f"{text}, as {form}: {first} to {last}"
