"""Options that several commands share, and help that shows them in named sections."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import click
from click.shell_completion import CompletionItem

from streamkpca.cli.results import FORMATS

Decorated = Callable[..., Any]

# Options that a model begins with, and keeps.
MODEL_PARAMETERS = {
    "components", "kernel", "max_atoms", "tolerance", "noise_variance", "block_size", "refit_every", "half_life",
    "no_center",
}  # fmt: skip

INPUT, MODEL, LEARNING, PICTURE, RESULTS, OTHER = "Input", "Model", "Learning", "Picture", "Results", "Other"
FILE = click.Path(allow_dash=True)

_OPTION_SECTIONS = (INPUT, MODEL, LEARNING, PICTURE, RESULTS, OTHER)
_EXIT_CODES = (
    ("0", "Done."),
    ("2", "Wrong use or bad input: one line on standard error says where, what, and what to do."),
    ("130, 143", "Stopped by Ctrl-C or SIGTERM. Neither breaks off in the middle of a chunk; a second one does."),
    ("141", "Nobody reads standard output any more."),
)


class SectionOption(click.Option):
    """An option with its place in a section of the help.

    Parameters
    ----------
    *args, **more
        As click has them.
    section : str
        Heading that it stands below.
    """

    def __init__(self, *args: Any, section: str = OTHER, **more: Any) -> None:
        super().__init__(*args, **more)
        self.section = section


class Command(click.Command):
    """A command whose help is a manual page: options in sections, examples, streams and exit codes.

    Parameters
    ----------
    *args, **more
        As click has them.
    examples : sequence of (str, str)
        Command lines without the command's own name, and what each does.
    streams : str
        What goes to standard output and standard error.
    """

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), streams: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.examples = examples
        self.streams = streams

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
        if self.examples:
            with formatter.section("Examples"):
                for line, meaning in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")
                    formatter.indent()
                    formatter.write_text(meaning)
                    formatter.dedent()
        if self.streams:
            with formatter.section("Standard output and error"):
                formatter.write_text(self.streams)
        with formatter.section("Exit codes"):
            formatter.write_dl(_EXIT_CODES)


option = partial(click.option, cls=SectionOption)


def grouped(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Make one decorator of several options.

    Parameters
    ----------
    *options : callable
        Of click.

    Returns
    -------
    callable
    """
    return lambda command: reduce(lambda inner, one: one(inner), reversed(options), command)


def named_on_the_line(names: set[str]) -> list[str]:
    """Pick those of some options that the user has written, not their defaults.

    Parameters
    ----------
    names : set of str
        Parameter names.

    Returns
    -------
    list of str
        As they are written, ``--max-atoms``.
    """
    context = click.get_current_context()
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and context.get_parameter_source(str(parameter.name)) is click.core.ParameterSource.COMMANDLINE
    ]


def _atoms(context: click.Context, option: click.Parameter, value: str) -> int | None:
    if value.lower() == "none":
        return None
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a whole number nor 'none'.", context, option) from None


def _noise(context: click.Context, option: click.Parameter, value: str) -> float | str | None:
    if value.lower() in {"none", "auto"}:
        return None if value.lower() == "none" else "auto"
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a number nor 'auto' or 'none'.", context, option) from None


def _split(context: click.Context, option: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


def _kernel_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    del context, parameter
    from streamkpca.kernels.registry import KERNELS

    return [CompletionItem(name) for name in KERNELS if name.startswith(incomplete)]


model_options = grouped(
    option("--components", default=10, show_default=True, metavar="N", section=LEARNING, help="Principal components."),
    option(
        "--kernel",
        default="rbf",
        show_default=True,
        metavar="KERNEL",
        section=LEARNING,
        shell_complete=_kernel_names,
        help="A name, or an expression: 'RBF(gamma=0.5) + Linear()', 'RBF().in_units(std)'.",
    ),
    option(
        "--max-atoms",
        default="256",
        show_default=True,
        callback=_atoms,
        metavar="N|none",
        section=LEARNING,
        help="Most rows kept; 'none' for no limit.",
    ),
    option(
        "--tolerance",
        default=1e-3,
        show_default=True,
        section=LEARNING,
        help="Share of the energy that may stay unexplained.",
    ),
    option(
        "--noise-variance",
        default="auto",
        show_default=True,
        callback=_noise,
        metavar="NUMBER|auto|none",
        section=LEARNING,
        help="Sparsity of the projections: 'auto', a number (larger: fewer atoms), or 'none' for all atoms.",
    ),
    option(
        "--block-size",
        default=512,
        show_default=True,
        metavar="ROWS",
        section=LEARNING,
        help="Rows learned at a time.",
    ),
    option(
        "--refit-every",
        type=int,
        metavar="ROWS",
        section=LEARNING,
        help="Rows between two refits.  [default: 128 an atom, or 16384]",
    ),
    option(
        "--half-life",
        type=float,
        metavar="ROWS",
        section=LEARNING,
        help="Rows after which a row counts half.  [default: never]",
    ),
    option("--no-center", is_flag=True, section=LEARNING, help="Do not subtract the mean in feature space."),
)
json_option = option(
    "--json", "as_json", is_flag=True, section=RESULTS, help="Standard output is JSON for machines, and nothing else."
)
model_option = option("--model", required=True, type=FILE, metavar="FILE", section=MODEL, help="A saved model.")
save_option = option(
    "--save",
    type=FILE,
    metavar="FILE",
    section=RESULTS,
    help="Write a line of results for every row to FILE, whose ending tells the format: "
    ".csv, .jsonl, .parquet, .arrow (file) or .arrows (stream); - is standard output.",
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
    help="Wait for more at the end of FILE, as tail -F does, through rotation and truncation, until Ctrl-C; "
    "text files only. Results come row by row. A pipe ends where its writer closes it.",
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
        help="Column that is not learned but kept beside the results, as it stands.",
    ),
    option(
        "--on-bad-rows",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        show_default=True,
        section=INPUT,
        help="Rows that are no finite numbers: stop there, or leave them out and say at the end how many they were.",
    ),
    option(
        "--header/--no-header",
        default=None,
        section=INPUT,
        help="CSV: whether line one holds names.  [default: look]",
    ),
    option(
        "--delimiter",
        metavar="CHAR",
        section=INPUT,
        help="CSV: what separates fields.  [default: comma; tab for .tsv]",
    ),
    option(
        "--chunk-rows",
        default=4096,
        show_default=True,
        metavar="ROWS",
        type=click.IntRange(min=1),
        section=INPUT,
        help="Most rows read at a time.",
    ),
)
