"""Options that several commands share. Those of the model come from the table in `stream.parameters`."""

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cache, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from streamkpca.stream.parameters import Parameter

Decorator = Callable[[Any], Any]

FILE = click.Path(allow_dash=True)
SHARE = click.FloatRange(0.0, 1.0, min_open=True, max_open=True)
COUNT = click.IntRange(1, 2**31 - 1)
RESULT_FORMATS = ("csv", "jsonl", "parquet", "arrow", "arrows")

MONITOR_PARAMETERS = ("quantile", "lags", "smoothing", "learn", "accept_after")


class SaveInterval(NamedTuple):
    """How often a model is saved while it learns, in rows or in seconds."""

    rows: float = float("inf")
    seconds: float = float("inf")


def read_interval(context: click.Context, option: click.Parameter, value: str | None) -> SaveInterval | None:
    """Read a number of rows (5000) or a time (30s, 5m, 1h)."""
    del context, option
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([smh]?)", value)
    number = float(found[1]) if found else 0.0
    if found is None or number <= 0.0 or (not found[2] and number % 1.0):
        raise click.BadParameter(f"{value!r} is neither a number of rows (5000) nor a time (30s, 5m, 1h).")
    return SaveInterval(seconds=number * {"s": 1, "m": 60, "h": 3600}[found[2]]) if found[2] else SaveInterval(number)


def _read_names(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    del context, option
    return None if value is None else tuple(filter(None, map(str.strip, value.split(","))))


def _reader(parameter: "Parameter") -> Callable[[click.Context, click.Parameter, str], Any]:
    """Make the function that reads a model's parameter: a number in its range, or a word; ``none`` is None."""

    def read(context: click.Context, option: click.Parameter, value: str) -> Any:
        word = None if value == "none" else value
        if word in parameter.words:
            return word
        for kind in parameter.numbers:
            with suppress(ValueError):
                number = kind(value)
                break
        else:
            raise click.BadParameter(f"expected {option.metavar} but got {value!r}.")
        try:
            return parameter.checked(number, where=str(context.info_name))
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return read


def given_options(names: Collection[str]) -> list[str]:
    """List the options among these that stand on the command line, as they are written: ``--max-atoms``."""
    context = click.get_current_context()
    return [
        parameter.opts[0]
        for parameter in context.command.get_params(context)
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ]


def refuse_given(names: Collection[str], why: str) -> None:
    """Refuse options that have no meaning beside others."""
    if given := given_options(names):
        raise click.UsageError(f"{why}; leave out {', '.join(given)}")


def _grouped(*options: Decorator) -> Decorator:
    return lambda command: reduce(lambda inner, option: option(inner), reversed(options), command)


@cache
def model_parameters() -> dict[str, "Parameter"]:
    """Return the parameters that are options; rows that cannot be read are left out before the model sees them."""
    from streamkpca.stream.parameters import PARAMETERS

    return {parameter.name: parameter for parameter in PARAMETERS if parameter.name != "on_bad_rows"}


class LearningCommand(click.Command):
    """A command with an option for each parameter of a model.

    Their table is read when the command is used: loading it takes the compiled loops.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return all parameters."""
        known = {parameter.name for parameter in self.params}
        self.params += [_option_of(one) for name, one in model_parameters().items() if name not in known]
        return super().get_params(ctx)


def _option_of(parameter: "Parameter") -> click.Option:
    """Make the option of a model's parameter from its line in the table."""
    name = "components" if parameter.name == "n_components" else parameter.name.replace("_", "-")
    names, default = [f"--{name}", parameter.name], parameter.default
    if isinstance(default, bool):
        return click.Option([f"--{name}/--no-{name}", parameter.name], default=default, help=parameter.help)
    if parameter.choices:
        return click.Option(names, default=default, type=click.Choice(parameter.choices), help=parameter.help)
    words = ["none" if word is None else word for word in parameter.words]
    return click.Option(
        names,
        default="none" if default is None else str(default),
        metavar="|".join([parameter.unit, *words]),
        callback=None if parameter.name == "kernel" else _reader(parameter),
        help=parameter.help,
    )


units_option = click.option(
    "--units",
    type=click.Choice(("auto", "none", "range", "std", "whitened")),
    default="auto",
    help="Units in which columns are compared: as they are (none), their range or standard deviation in the first "
    "rows, or made uncorrelated; auto: the range where a few columns would make up nearly all distances.",
)
monitor_options = _grouped(
    click.option("--quantile", type=SHARE, default=0.99, help="Share of normal rows without alarm."),
    click.option(
        "--lags",
        type=COUNT,
        default=1,
        help="Rows that are scored together, each with those before it; for rows in time order, where 3 is usual.",
    ),
    click.option(
        "--smoothing",
        type=click.FloatRange(0.0, 1.0, min_open=True),
        help="Weight of the newest score in the running mean that raises alarms; for rows in time order, where 0.3 is "
        "usual.  [default: each score by itself]",
    ),
    click.option(
        "--learn",
        type=click.Choice(("normal", "all", "none")),
        default="normal",
        help="Rows that are learned once they are scored: those without alarm, all, or none.",
    ),
    click.option(
        "--accept-after",
        type=click.IntRange(32, 2**31 - 1),
        default=1000,
        help="Alarms, beyond one in twenty rows, that are a lasting change; --learn normal learns them then.",
    ),
)
table_options = _grouped(
    click.option(
        "--columns",
        metavar="A,B,...",
        callback=_read_names,
        help="Columns to read.  [default: those of the model, or all]",
    ),
    click.option("--drop", metavar="A,B,...", callback=_read_names, help="Columns to leave out."),
    click.option("--time", metavar="COLUMN", help="Column of times: not learned, but kept beside the results."),
    click.option(
        "--on-bad-rows",
        type=click.Choice(("raise", "skip")),
        default="raise",
        help="Rows that are no numbers: stop there, or leave them out and count them.",
    ),
    click.option("--array", metavar="NAME", help="Array of an npz file; needed if it holds several tables."),
    click.option("--header/--no-header", default=None, help="CSV: whether the first line holds names."),
    click.option("--delimiter", metavar="CHAR", help="CSV: character between fields.  [default: detected]"),
    click.option("--decimal", type=click.Choice((".", ",")), default=".", help="CSV: mark before decimals."),
    click.option("--chunk-rows", type=COUNT, default=4096, help="Most rows read at a time."),
)
follow_option = click.option(
    "--follow", is_flag=True, help="Wait for more rows at the end of FILE, as tail -F does, until Ctrl-C; text only."
)
model_option = click.option("--model", required=True, type=FILE, help="A saved model.")
result_options = _grouped(
    click.option(
        "--save",
        type=FILE,
        help="Write a line of results for each row to this file; its ending sets the format: "
        ".csv, .jsonl, .parquet, .arrow (file) or .arrows (stream). - is standard output.",
    ),
    click.option(
        "--format",
        "form",
        type=click.Choice(RESULT_FORMATS),
        help="Format of the results.  [default: by the ending; csv on standard output]",
    ),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON only, for other programs.")
