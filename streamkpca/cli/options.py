"""Options that several commands share. Those of the model come from the table in `stream.parameters`."""

import csv
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from fractions import Fraction
from functools import reduce
from typing import Any

import click
from click.core import ParameterSource

from streamkpca.stream.parameters import PARAMETERS, Parameter

Decorator = Callable[[Any], Any]

FILE = click.Path(allow_dash=True)
COUNT = click.IntRange(1, 2**31 - 1)

MODEL_PARAMETERS = {parameter.name: parameter for parameter in PARAMETERS}
MONITOR_PARAMETERS = ("quantile", "most_events", "period", "learn", "accept_after")
# What --accept takes beside the numbers of events.
CHANGE = "change"
# What a saved monitor may be given anew: its rarities and events do not depend on it.
CHANGED_LATER = ("learn", "accept_after")

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
# The letter m alone may be a minute or a month.
_PERIOD = re.compile(r"(\d+(?:\.\d+)?) ?((?:s|sec|second|min|minute|h|hour|d|day|w|week)s?)?")


def _read_names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, next(csv.reader([text]), ()))))


def _read_list(text: str) -> tuple[str, ...]:
    return () if text == "none" else _read_names(text)


def _read_gaps(text: str) -> tuple[float, ...]:
    try:
        return () if text == "none" else tuple(map(float, _read_names(text)))
    except ValueError:
        raise click.BadParameter(f"expected numbers, as in -999,-9999, or none, but got {text!r}.") from None


def _read_mark(text: str) -> str:
    return "\t" if text == r"\t" else text


def _read_key(text: str) -> tuple[str, str | None]:
    name, has_key, key = text.partition("=")
    return name, key if has_key else None


def _read_period(text: str) -> int | float:
    if not (found := _PERIOD.fullmatch(text)):
        raise click.BadParameter(f"expected rows, as in 144, or a time, as in 1d, 24h, 90min, but got {text!r}.")
    number, unit = found.groups()
    # With a decimal point, these are seconds, as they are told again.
    return int(number) if unit is None and "." not in number else float(number) * _SECONDS[(unit or "s")[0]]


def _read_rate(text: str) -> float | str:
    try:
        return float(Fraction(text))
    except ValueError:
        # Such as 2/day, which the monitor checks.
        return text
    except ArithmeticError:
        raise click.BadParameter(f"expected a rate, as in 1/1000 or 2/day, but got {text!r}.") from None


def read_accepted(text: str) -> int | str:
    """Read the number of an event, or that the lasting change is meant."""
    if text == CHANGE:
        return text
    if not re.fullmatch(r"\d+", text):
        raise click.BadParameter(f"expected the number of an event, or {CHANGE}, but got {text!r}.")
    return int(text)


def read_until(text: str) -> int | str:
    """Read a number of rows, or a time, which the file's own reading of times takes."""
    return int(text) if re.fullmatch(r"\d+", text) else text


def _read_parameter(parameter: Parameter, metavar: str, text: str) -> Any:
    """Read a model's parameter: a number in its range, or a word; ``none`` is None."""
    word = None if text == "none" else text
    if word in parameter.words:
        return word
    for kind in parameter.numbers:
        with suppress(ValueError):
            number = kind(text)
            break
    else:
        raise click.BadParameter(f"expected {metavar} but got {text!r}.")
    try:
        return parameter.check_value(number)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def is_given(name: str) -> bool:
    """Tell whether an option stands on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_given(names: Collection[str], why: str, remedy: str = "leave out") -> None:
    """Refuse options that have no meaning beside others, if they stand on the command line."""
    options = click.get_current_context().command.params
    if given := [option.opts[0] for option in options if option.name in names and is_given(option.name)]:
        raise click.UsageError(f"{why}; {remedy} {', '.join(given)}")


def _group(*options: Decorator) -> Decorator:
    return lambda command: reduce(lambda inner, option: option(inner), reversed(options), command)


def _option_of(parameter: Parameter) -> Decorator:
    """Make the option of a model's parameter from its line in the table."""
    name = "components" if parameter.name == "n_components" else parameter.name.replace("_", "-")
    names, default = [f"--{name}", parameter.name], parameter.default
    if isinstance(default, bool):
        return click.option(f"--{name}/--no-{name}", parameter.name, default=default, help=parameter.help)
    if parameter.choices:
        return click.option(*names, default=default, type=click.Choice(parameter.choices), help=parameter.help)
    metavar = "|".join([parameter.unit, *("none" if word is None else word for word in parameter.words)])
    return click.option(
        *names,
        default="none" if default is None else str(default),
        metavar=metavar,
        type=str if parameter.name == "kernel" else lambda text: _read_parameter(parameter, metavar, text),
        help=parameter.help,
    )


parameter_options = _group(*map(_option_of, MODEL_PARAMETERS.values()))
# What the monitor checks is not checked here.
monitor_options = _group(
    click.option("--quantile", type=float, default=0.997, help="Share of normal rows that begin no event."),
    click.option("--most-events", metavar="RATE", type=_read_rate, help="Most events: 1/1000 (a row), 2/day."),
    click.option("--period", metavar="ROWS|TIME", type=_read_period, help="Length of a cycle: 144 rows, 1d, 24h."),
    click.option(
        "--learn", type=click.Choice(("normal", "all", "none")), default="normal", help="Rows learned once scored."
    ),
    click.option("--accept-after", type=int, help="Rare rows after which a change is learned."),
)
table_options = _group(
    click.option("--columns", metavar="A,B,...", type=_read_names, help="Columns to read."),
    click.option("--drop", metavar="A,B,...", type=_read_names, help="Columns to leave out."),
    click.option("--time", metavar="A[,B]", type=_read_names, help="Column of times, or of day and hour."),
    click.option("--time-format", metavar="FORMAT", help="As %d.%m.%Y %H:%M, number, s, ms, us or ns."),
    click.option("--by", metavar="A[=KEY]", type=_read_key, help="Column of machines: a monitor each, or one."),
    click.option("--wide", metavar="A", help="Column of tags: a column for each."),
    click.option("--differences", metavar="A,B,...|none", type=_read_list, help="Counters, read by their differences."),
    click.option("--gaps", metavar="NUMBERS|none", type=_read_gaps, help="Numbers that stand for gaps."),
    click.option("--on-bad-rows", type=click.Choice(("raise", "skip")), help="Stop at them, or leave them out."),
    click.option("--quality", metavar="A,B,...|none", type=_read_list, help="Columns that tell which values are good."),
    click.option("--header/--no-header", default=None, help="CSV: the line above the rows has names, or none has."),
    click.option("--names", metavar="A,B,...", type=_read_names, help="CSV: names of all columns."),
    click.option("--names-line", type=COUNT, metavar="N", help="CSV: line that holds the names."),
    click.option("--skip", type=COUNT, metavar="N", help="CSV: lines at the beginning that are passed over."),
    click.option("--encoding", metavar="CODE", help="Code of text, as utf-8, latin-1 or cp1252."),
    click.option("--delimiter", metavar="CHAR", type=_read_mark, help=r"CSV: mark between cells, as ';' or '\t'."),
    click.option("--decimal", type=click.Choice((".", ",")), help="CSV: mark before decimals."),
    click.option("--chunk-rows", type=COUNT, metavar="N", default=4096, help="Most rows read at a time."),
)

picture_options = _group(
    click.option("--plot", type=FILE, help="Draw the worst events: .png, .svg or .pdf."),
    click.option("--report", type=FILE, help="Write all events as a page for a browser: .html."),
)
labels_option = click.option("--labels", metavar="COLUMN", help="Column, not 0 in faults: counts those found.")
follow_option = click.option("--follow", is_flag=True, help="Wait for more rows, as tail -F does.")
model_option = click.option("--model", required=True, type=FILE, help="A saved model.")
results_option = click.option("--save", type=FILE, help="Results of each row: .csv, .jsonl; - prints.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON only, for other programs.")
# What the commands share that watch rows.
watching_options = _group(
    follow_option, table_options, monitor_options, labels_option, results_option, picture_options, json_option
)
files_argument = click.argument("files", nargs=-1, required=True, metavar="FILE...", type=FILE)
