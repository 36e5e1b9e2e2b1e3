"""Options that several commands share."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import click

Command = Callable[..., Any]

# Options that a model begins with, and keeps.
MODEL_PARAMETERS = {
    "components", "kernel", "max_atoms", "tolerance", "noise_variance", "block_size", "refit_every", "half_life",
    "no_center",
}  # fmt: skip


def grouped(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Make one decorator of several options.

    Parameters
    ----------
    *options : callable
        Of click.

    Returns
    -------
    callable
    """
    return lambda command: reduce(lambda inner, option: option(inner), reversed(options), command)


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


model_options = grouped(
    click.option("--components", default=10, show_default=True, metavar="N", help="Number of principal components."),
    click.option(
        "--kernel",
        default="rbf",
        show_default=True,
        help="A name, or an expression: 'RBF(gamma=0.5) + Linear()'.",
    ),
    click.option(
        "--max-atoms",
        default="256",
        show_default=True,
        callback=_atoms,
        help="Most rows kept; 'none' for no limit.",
    ),
    click.option("--tolerance", default=1e-3, show_default=True, help="Share of the energy that may stay unexplained."),
    click.option(
        "--noise-variance",
        default="auto",
        show_default=True,
        callback=_noise,
        help="Sparsity of the projections: 'auto', a number (larger: fewer atoms), or 'none' for all atoms.",
    ),
    click.option("--block-size", default=512, show_default=True, metavar="ROWS", help="Rows learned at a time."),
    click.option(
        "--refit-every", type=int, metavar="ROWS", help="Rows between two refits.  [default: 128 an atom, or 16384]"
    ),
    click.option(
        "--half-life", type=float, metavar="ROWS", help="Rows after which a row counts half.  [default: never]"
    ),
    click.option("--no-center", is_flag=True, help="Do not subtract the mean in feature space."),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
model_option = click.option("--model", metavar="FILE", help="A model that was saved.")
table_options = grouped(
    click.option("--array", metavar="NAME", help="Array of an npz file; needed if it holds several tables."),
    click.option(
        "--columns", multiple=True, callback=_split, help="Columns to read: names or positions from 0, a,b,c."
    ),
    click.option("--drop", multiple=True, callback=_split, help="Columns to leave out, such as timestamps."),
    click.option("--header/--no-header", default=None, help="CSV: whether line one holds names.  [default: look]"),
    click.option("--delimiter", metavar="CHAR", help="CSV: what separates fields.  [default: comma; tab for .tsv]"),
    click.option(
        "--chunk-rows",
        default=4096,
        show_default=True,
        type=click.IntRange(min=1),
        help="Most rows read at a time.",
    ),
    click.option(
        "--save",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Write results to FILE.parquet or FILE.csv.",
    ),
)
