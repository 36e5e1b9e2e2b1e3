"""Commands whose help lists options in named sections, and the options that several commands share."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial, reduce
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from streamkpca.cli.console import one_line, say
from streamkpca.cli.results import FORMATS
from streamkpca.cli.undisturbed import undisturbed
from streamkpca.cli.wording import option_of
from streamkpca.stream.parameters import PARAMETERS, Parameter

Decorated = Callable[..., Any]

# A model keeps these for ever. Bad rows are left out as files are read, before the model sees them.
MODEL_PARAMETERS = {parameter.name: parameter for parameter in PARAMETERS if parameter.name != "on_bad_rows"}
_BAD_ROWS = next(parameter for parameter in PARAMETERS if parameter.name == "on_bad_rows")

INPUT, MODEL, LEARNING, ALARMS, PICTURE, RESULTS, OTHER = (
    "Input", "Model", "Learning", "Alarms", "Picture", "Results", "Other",
)  # fmt: skip

_SHOWN_LETTERS = 60
_OPTION_SECTIONS = (INPUT, MODEL, LEARNING, ALARMS, PICTURE, RESULTS, OTHER)
_EXIT_CODES = (
    ("0", "Done."),
    ("2", "Wrong use or bad input: one line on standard error tells where, what, and what to do."),
    ("130, 143, 129", "Stopped by Ctrl-C, SIGTERM or SIGHUP at the end of a chunk; a second one stops at once."),
    ("141", "The reader of standard output closed the pipe."),
)


class FilePath(click.Path):
    """The name of a file; - is a standard stream."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse what no file can be called."""
        if not value or "\0" in value:
            self.fail(f"expected the name of a file but got {shown(value)}.", param, ctx)
        return super().convert(value, param, ctx)


FILE = FilePath(allow_dash=True)


class WholeNumber(click.IntRange):
    """A whole number of at least `least`, and small enough for an array."""

    def __init__(self, least: int) -> None:
        super().__init__(min=least, max=2**31 - 1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"expected a whole number from {self.min} to {self.max:,} but got {shown(value)}.", param, ctx)


class Share(click.FloatRange):
    """A number above 0, and below 1 or at most 1."""

    def __init__(self, *, with_one: bool) -> None:
        super().__init__(0.0, 1.0, min_open=True, max_open=not with_one)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the number, which may be no NaN."""
        try:
            number = super().convert(value, param, ctx)
            if number == number:
                return number
        except click.BadParameter:
            pass
        most = "at most" if not self.max_open else "below"
        self.fail(f"expected a number above 0 and {most} 1 but got {shown(value)}.", param, ctx)


def shown(value: Any) -> str:
    """Quote what the user has given, or the beginning of it."""
    return repr(value) if len(str(value)) <= _SHOWN_LETTERS else f"{str(value)[:_SHOWN_LETTERS]!r}..."


# The first is the default.
UNITS = ("auto", "none", "range", "std", "whitened")


class SaveInterval(NamedTuple):
    """How often a model is saved while it learns, in rows or in seconds."""

    rows: int | None = None
    seconds: float | None = None


class SectionOption(click.Option):
    """An option and the section of the help that lists it."""

    def __init__(self, *args: Any, section: str = OTHER, **more: Any) -> None:
        super().__init__(*args, **more)
        self.section = section


class Command(click.Command):
    """A command whose help is a manual page: options in sections, examples, streams and exit codes.

    `does` names the module and the function that does the work. It is imported when the command runs: help, completion
    and usage errors need neither numba nor scipy. `opening` is printed on standard error before that, with the options
    filled in. `examples` are pairs of a command line and what it does; `output` tells what goes to standard output,
    `progress` what goes to standard error meanwhile.
    """

    def __init__(
        self,
        *args: Any,
        does: str,
        examples: Sequence[tuple[str, str]],
        output: str,
        opening: str = "",
        progress: str = "progress, on terminals",
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self.does = does
        self.examples = examples
        self.output = output
        self.opening = opening
        self.progress = progress

    @property
    def function(self) -> Callable[..., None]:
        """The function that does the work, imported now; it takes all options by name."""
        module, _, name = self.does.partition(":")
        with undisturbed():
            function: Callable[..., None] = getattr(import_module(f"streamkpca.cli.{module}"), name)
        return function

    def invoke(self, ctx: click.Context) -> None:
        """Do the work with the options given."""
        if self.opening:
            say(self.opening.format(**ctx.params))
        self.function(**ctx.params)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in _OPTION_SECTIONS}
        for parameter in self.get_params(ctx):
            # The first line shows the arguments.
            record = None if isinstance(parameter, click.Argument) else parameter.get_help_record(ctx)
            if record:
                sections.setdefault(getattr(parameter, "section", OTHER), []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, streams and exit codes."""
        with formatter.section("Examples"):
            for line, meaning in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
                formatter.indent()
                formatter.write_text(meaning)
                formatter.dedent()
        with formatter.section("Standard output and error"):
            formatter.write_text(
                f"Standard output: {self.output} Standard error: {self.progress}; warnings and errors, one line each."
            )
        with formatter.section("Exit codes"):
            formatter.write_dl(_EXIT_CODES)


command = partial(click.command, cls=Command)
option = partial(click.option, cls=SectionOption)


def grouped(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Make one decorator of several options."""
    return lambda command: reduce(lambda inner, one: one(inner), reversed(options), command)


def given_options(names: Collection[str]) -> list[str]:
    """List the options of these parameters that the user has given, as they are written: ``--max-atoms``."""
    context = click.get_current_context()
    return [
        "/".join([*parameter.opts, *parameter.secondary_opts])
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
    ]


def _split(context: click.Context, option: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def _completed(words: Sequence[str]) -> Callable[..., list[CompletionItem]]:
    """Make the shell completion of a value from its usual words."""
    return lambda _context, _parameter, begun: [CompletionItem(word) for word in words if word.startswith(begun)]


def _reader(parameter: Parameter) -> Callable[..., Any]:
    """Make the callback that reads a number, or one of the parameter's words; `none` stands for None."""
    words = _written_words(parameter)
    what = "a whole number" if parameter.numbers == (int,) else "a number"
    expected = " or ".join(filter(None, [", ".join([what, *map(repr, words[:-1])]), *map(repr, words[-1:])]))

    def read(context: click.Context, option: click.Parameter, text: str) -> Any:
        if text.lower() in words:
            return None if text.lower() == "none" else text.lower()
        for kind in parameter.numbers:
            with suppress(ValueError):
                number = kind(text)
                break
        else:
            raise click.BadParameter(f"expected {expected} but got {shown(text)}.", context, option)
        with one_line():
            return parameter.checked(number, where=str(context.info_name))

    return read


def _written_words(parameter: Parameter) -> list[str]:
    return ["none" if word is None else word for word in parameter.words]


def _parameter_option(parameter: Parameter) -> Callable[[Decorated], Decorated]:
    """Make the option of a model's parameter from its line in the table."""
    name = option_of(parameter.name).removeprefix("--")
    make = partial(option, section=LEARNING, show_default=True, help=parameter.help)
    if isinstance(parameter.default, bool):
        return make(f"--{name}/--no-{name}", parameter.name, default=parameter.default)
    if parameter.choices:
        return make(f"--{name}", parameter.name, default=parameter.default, type=click.Choice(parameter.choices))
    is_kernel = parameter.name == "kernel"
    words = _written_words(parameter)
    return make(
        f"--{name}",
        parameter.name,
        default="none" if parameter.default is None else str(parameter.default),
        metavar="|".join([parameter.unit, *words]),
        callback=None if is_kernel else _reader(parameter),
        shell_complete=_completed([*words, *parameter.usual]),
    )


_units_option = option(
    "--units",
    type=click.Choice(UNITS),
    default=UNITS[0],
    show_default=True,
    section=LEARNING,
    help="Units in which rows are compared: as they are (none), or each column by its range or standard deviation in "
    "the first rows, or made uncorrelated; auto: by the range where a few columns would make up nearly all distances.",
)
model_options = grouped(
    *(_parameter_option(parameter) for parameter in MODEL_PARAMETERS.values()),
    _units_option,
)
monitor_options = grouped(
    option(
        "--quantile",
        type=Share(with_one=False),
        metavar="SHARE",
        default=0.99,
        show_default=True,
        section=ALARMS,
        help="Share of rows like those learned that should raise no alarm.",
    ),
    option(
        "--lags",
        type=WholeNumber(1),
        metavar="N",
        default=1,
        show_default=True,
        section=ALARMS,
        help="Rows that are scored together, each with those before it; for rows in time order, where 3 is usual.",
    ),
    option(
        "--smoothing",
        type=Share(with_one=True),
        metavar="SHARE",
        section=ALARMS,
        help="Weight of the newest score in the running mean that raises alarms; for rows in time order, where 0.3 is "
        "usual.  [default: each score by itself]",
    ),
    option(
        "--learn",
        type=click.Choice(("normal", "all", "none")),
        default="normal",
        show_default=True,
        section=ALARMS,
        help="Rows of FILE that are learned once they are scored: those below the threshold, all, or none.",
    ),
    option(
        "--accept-after",
        type=WholeNumber(32),
        metavar="ROWS",
        default=1000,
        show_default=True,
        section=ALARMS,
        help="Alarms, beyond one in twenty rows, that are a lasting change; with --learn normal they are learned then.",
    ),
)
json_option = option("--json", "as_json", is_flag=True, section=RESULTS, help="Print JSON only, for other programs.")
model_option = option("--model", required=True, type=FILE, metavar="FILE", section=MODEL, help="A saved model.")
save_option = option(
    "--save",
    type=FILE,
    metavar="FILE",
    section=RESULTS,
    help="Write a line of results for each row to FILE; its ending sets the format: "
    ".csv, .jsonl, .parquet, .arrow (file) or .arrows (stream). - is standard output.",
)
format_option = option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    section=RESULTS,
    help="Format of the results.  [default: by the ending; csv on standard output]",
)
follow_option = option(
    "--follow",
    is_flag=True,
    section=INPUT,
    help="Wait for more rows at the end of FILE, as tail -F does, through rotation and truncation, until Ctrl-C; "
    "text files only. Results come row by row. A pipe ends when its writer closes it.",
)
table_options = grouped(
    option("--array", metavar="NAME", section=INPUT, help="Array of an npz file; needed if it holds several tables."),
    option(
        "--columns",
        multiple=True,
        callback=_split,
        metavar="A,B,...",
        section=INPUT,
        help="Columns to read, by name or position from 0.  [default: those that the model has learned, or all]",
    ),
    option(
        "--drop",
        multiple=True,
        callback=_split,
        metavar="A,B,...",
        section=INPUT,
        help="Columns to leave out.",
    ),
    option(
        "--time",
        metavar="COLUMN",
        section=INPUT,
        help="Column of times: not learned, but kept beside the results as it is.",
    ),
    option(
        "--category",
        "categories",
        multiple=True,
        callback=_split,
        metavar="A,B,...",
        section=INPUT,
        help="Columns of categories, text or numbers, which are equal or not; --kernel compares the other columns. A "
        "saved model knows its own.",
    ),
    option(
        "--on-bad-rows",
        type=click.Choice(_BAD_ROWS.choices),
        default=_BAD_ROWS.default,
        show_default=True,
        section=INPUT,
        help="Rows with text, NaN or infinity: stop there, or skip them and count them at the end. A model that was "
        "learned with --on-missing marginal takes NaN, as empty cells are.",
    ),
    option(
        "--header/--no-header",
        default=None,
        section=INPUT,
        help="CSV: whether the first line holds names.  [default: detect]",
    ),
    option(
        "--delimiter",
        metavar="CHAR",
        section=INPUT,
        help="CSV: character between fields.  [default: detected; tab for .tsv]",
    ),
    option(
        "--chunk-rows",
        default=4096,
        show_default=True,
        metavar="ROWS",
        type=WholeNumber(1),
        section=INPUT,
        help="Most rows read at a time.",
    ),
)
