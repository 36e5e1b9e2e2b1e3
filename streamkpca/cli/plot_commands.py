"""The command plot as users see it: a command for each kind of picture, with its arguments, options and help."""

import math
from collections.abc import Callable
from typing import Any

import click

from streamkpca.cli.console import Ordered
from streamkpca.cli.options import (
    FILE,
    INPUT,
    PICTURE,
    RESULTS,
    Decorated,
    WholeNumber,
    command,
    grouped,
    json_option,
    model_option,
    monitor_options,
    option,
    shown,
    table_options,
)

_OUTPUT = "the path of the picture."


def _pair_of(
    kind: Callable[[str], Any], what: str, *, separator: str, least: float | None = None, most: float = math.inf
) -> Callable[..., Any]:
    """Make a callback that reads two values of a kind, each from `least` to `most` if `least` is given."""

    def read(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[Any, Any] | None:
        if value is None:
            return None
        try:
            first, second = (kind(part.strip()) for part in value.split(separator))
            if least is not None and not (least <= first <= most and least <= second <= most):
                raise ValueError(value)
        except ValueError:
            raise click.BadParameter(f"{shown(value)} is not {what}.", context, parameter) from None
        return first, second

    return read


_picture_options = grouped(
    option("--save", required=True, type=FILE, metavar="FILE", section=RESULTS, help="Ends in .png, .svg or .pdf."),
    option(
        "--size",
        default="7x4.5",
        show_default=True,
        metavar="WxH",
        section=PICTURE,
        callback=_pair_of(
            float, "two sizes in inches, from 1 to 100, such as 7x4.5", separator="x", least=1.0, most=100.0
        ),
        help="Width and height in inches.",
    ),
    json_option,
)

_rows_options = grouped(
    click.argument("file", metavar="FILE", type=FILE),
    model_option,
    table_options,
)
_labels_option = option(
    "--labels", metavar="COLUMN", section=INPUT, help="Column (or npz array) with a class for each row."
)


def _models(*, many: bool = False) -> Callable[[Decorated], Decorated]:
    """Make the argument of models, which `--model` may name too, as older scripts do."""

    def read(context: click.Context, argument: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...] | str:
        del argument
        models: tuple[str, ...] = values + context.params.pop("named_models")
        if not models:
            raise click.UsageError("Missing argument 'MODEL'.", context)
        if len(models) > 1 and not many:
            raise click.UsageError(f"Expected one model but got {', '.join(models)}.", context)
        return models if many else models[0]

    return grouped(
        option("--model", "named_models", multiple=True, type=FILE, hidden=True, is_eager=True),
        click.argument(
            "models" if many else "model", nargs=-1, metavar="MODEL..." if many else "MODEL", type=FILE, callback=read
        ),
    )


@command(
    does="plot:spectrum",
    short_help="Variance along each axis.",
    examples=[("streamkpca plot spectrum plant.npz --save spectrum.png", "A bar for each component.")],
    output=_OUTPUT,
)
@_models()
@_picture_options
def spectrum() -> None:
    """Draw the variance along each axis, the share that all explain together, and guaranteed bounds."""


@command(
    does="plot:atoms",
    short_help="The rows that the model keeps as atoms.",
    examples=[
        ("streamkpca plot atoms plant.npz --save atoms.png", "Lines over the columns."),
        ("streamkpca plot atoms digits.npz --shape 16x16 --save atoms.png", "Images."),
    ],
    output=_OUTPUT,
)
@_models()
@option(
    "--shape",
    metavar="HxW",
    section=PICTURE,
    callback=_pair_of(int, "a height and a width, such as 16x16", separator="x", least=1),
    help="Draw rows as images of this height and width.  [default: draw lines]",
)
@option(
    "--most",
    default=40,
    show_default=True,
    metavar="N",
    type=WholeNumber(1),
    section=PICTURE,
    help="Most atoms to draw; those of largest weight come first.",
)
@_picture_options
def atoms() -> None:
    """Draw the atoms, the rows that a model keeps: as lines over the columns, or as images."""


@command(
    does="plot:sparsity",
    short_help="Active atoms against the reconstruction error.",
    examples=[("streamkpca plot sparsity plant.npz --save path.pdf", "Active atoms against error.")],
    output=_OUTPUT,
)
@_models()
@_picture_options
def sparsity() -> None:
    """Draw how the noise variance trades active atoms for the reconstruction error."""


@command(
    does="plot:drift",
    short_help="Where in the stream the atoms come from.",
    examples=[
        ("streamkpca plot drift day1.npz day2.npz --save drift.png", "One stream at two times."),
    ],
    output=_OUTPUT,
)
@_models(many=True)
@_picture_options
def drift() -> None:
    """Draw where in the stream the atoms come from, in one model or several saved as the stream went on."""


@command(
    does="plot:novelty",
    short_help="Novelty of rows, and alarms among them.",
    examples=[
        ("streamkpca plot novelty today.csv --time when --model plant.npz --save novelty.png", "Scores and alarms."),
        ("streamkpca plot novelty day.npz --array test --labels label --model m.npz --save n.svg", "Known anomalies."),
    ],
    output=_OUTPUT,
)
@_rows_options
@_labels_option
@monitor_options
@_picture_options
def novelty() -> None:
    """Draw the novelty of the rows of FILE, the threshold, the alarms above it, their events, and lasting changes.

    They are those that score finds with the same options. Known anomalies are shown too, with --labels.
    """


@command(
    does="plot:projections",
    short_help="Rows in the plane of two components.",
    examples=[
        ("streamkpca plot projections today.csv --model plant.npz --save map.png", "Coloured by row."),
        ("streamkpca plot projections all.csv --model m.npz --labels kind --axes 0,2 --save map.png", "By class."),
    ],
    output=_OUTPUT,
)
@_rows_options
@_labels_option
@option(
    "--axes",
    "components",
    default="0,1",
    show_default=True,
    metavar="I,J",
    section=PICTURE,
    callback=_pair_of(int, "two components, such as 0,1", separator=",", least=0),
    help="The two components to draw.",
)
@_picture_options
def projections() -> None:
    """Draw the rows of FILE in the plane of two components, coloured by their order, their time or their class."""


@command(
    does="plot:contours",
    short_help="Novelty or a component over two columns.",
    examples=[
        ("streamkpca plot contours day.csv --over load,temp --model plant.npz --save map.png", "Where rows are novel."),
        (
            "streamkpca plot contours day.csv --component 0 --model plant.npz --save first.png",
            "The meaning of an axis.",
        ),
    ],
    output=_OUTPUT,
)
@_rows_options
@option(
    "--over",
    metavar="A,B",
    default="0,1",
    show_default=True,
    section=PICTURE,
    callback=_pair_of(str, "two columns, such as load,temp", separator=","),
    help="Columns on the two axes, by name or position among those learned.",
)
@option(
    "--component",
    type=WholeNumber(0),
    metavar="N",
    section=PICTURE,
    help="Draw this component.  [default: the reconstruction error]",
)
@_picture_options
def contours() -> None:
    """Draw contours of the reconstruction error, or of a component, over two columns.

    The other columns are held at their medians over the rows of FILE, which also set the range of the axes.
    """


@click.group(cls=Ordered, short_help="Draw a saved model, or rows that it projects and scores.")
def plot() -> None:
    """Draw a saved model, or rows that it projects and scores.

    From a MODEL alone: spectrum, atoms, sparsity, drift.

    From the rows of a FILE: novelty, projections, contours.

    Each kind has its own options: streamkpca plot KIND --help.
    """


for _kind in (spectrum, atoms, sparsity, drift, novelty, projections, contours):
    plot.add_command(_kind)
