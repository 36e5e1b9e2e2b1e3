"""A message of what a look at a file has found, and the command line that states the decisions."""

import shlex
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from streamkpca.cli.console import print_facts, printable, written_names
from streamkpca.cli.tables import Table

_SHOWN_NAMES = 8
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def tell_look(table: Table) -> None:
    """Say what a look at the first rows of a table has found and decided, and which command line states it."""
    found, dialect = table.look, table.dialect
    facts = {
        "between fields": _MARKS.get(dialect.get("delimiter", ""), dialect.get("delimiter")),
        "before decimals": {",": "commas"}.get(dialect.get("decimal", "")),
        "names": None if table.named else "none; columns are counted from 0",
        "time": _time_found(table),
        "watched": _listed(table.names),
        "left out, text": _listed(table.left_out),
        "left out, always growing": _listed(found.counters),
        "left out, empty": _listed(found.empty),
        "gaps": _listed(
            [f"{name} ({100 * share:.2g}%)" for name, share in found.gaps.items()], "rows are judged by the rest"
        ),
        "constant so far": _listed([f"{name} ({value:g})" for name, value in found.constants.items()]),
    }
    print_facts(f"{table.path}, by its first {found.n_rows:,} rows", facts, err=True)
    drop = *(click.get_current_context().params["drop"] or ()), *table.left_out, *found.counters, *found.empty
    stated = dialect | {"drop": drop, "time": found.time, "time_format": found.time_format}
    if stated.get("delimiter") == "\t":
        # A terminal would show it as spaces.
        stated["delimiter"] = r"\t"
    click.echo(f"  The same in full: {_command_line(stated)}\n", err=True)


def _command_line(stated: dict[str, Any]) -> str:
    """Write the present command line with more options, quoted for a shell."""
    context = click.get_current_context()
    words = ["streamkpca", str(context.info_name), context.params["file"]]
    for option in context.command.get_params(context):
        name = str(option.name)
        is_given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        value = stated.get(name, context.params.get(name) if is_given else None)
        if not isinstance(option, click.Option) or value in (None, ()):
            continue
        if isinstance(value, bool):
            words.append(option.opts[0] if value else option.secondary_opts[0])
        else:
            words += [option.opts[0], written_names([*map(str, value)]) if isinstance(value, tuple) else str(value)]
    line = shlex.join(words)
    return line if line.isprintable() else printable(line)


def _listed(names: Sequence[str], more: str = "") -> str | None:
    shown = written_names(names[:_SHOWN_NAMES], ", ") + f" and {len(names) - _SHOWN_NAMES:,} more" * (
        len(names) > _SHOWN_NAMES
    )
    return f"{shown}; {more}" if names and more else shown or None


def _time_found(table: Table) -> str:
    """Describe the column of times."""
    found = table.look
    if not found.time:
        return "none found (--time NAME)"
    text = " ".join(found.time)
    if not found.times:
        return f"{text}, but these rows do not hold such times"
    first, last = map(table.clock, found.times)
    form = found.time_format or ("numbers" if isinstance(first, float) else "ISO 8601")
    # Rows of several days show which number is the day; those of one do not, up to the 12th.
    one, other, dates = form[:2], form[3:5], [str(time)[:10] for time in found.times]
    is_either = {one, other} == {"%d", "%m"} and form[2] in "/-" and dates[0] == dates[1] and int(dates[0][8:]) <= 12
    other = f"; or is it --time-format '{other}{form[2]}{one}{form[5:]}'?" if is_either else ""
    return f"{text}, as {form}: {first} to {last}{other}"
