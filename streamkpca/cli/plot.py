"""The command plot, with a command for each kind of picture."""

import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamkpca import plots
from streamkpca._core.files import write_durably
from streamkpca.cli.console import BadInput, Ordered, one_line, print_json
from streamkpca.cli.models import check_columns, learned_columns, read_fitted
from streamkpca.cli.options import (
    FILE,
    INPUT,
    PICTURE,
    RESULTS,
    Command,
    grouped,
    json_option,
    model_option,
    option,
    table_options,
)
from streamkpca.cli.pictures import (
    Collected,
    check_picture,
    column_position,
    drift_looks,
    label_dates,
    make_axes,
    time_axis,
)
from streamkpca.cli.pipeline import open_tables, project, reading_options, tell_skipped
from streamkpca.cli.signals import SignalGuard
from streamkpca.estimators.streaming import StreamingKernelPCA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_OUTPUT = "the path of the picture."
_DOTS_PER_INCH = 150


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
            raise click.BadParameter(f"{value!r} is not {what}.", context, parameter) from None
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


def _read_model(model: str, save: str, *files: str) -> StreamingKernelPCA:
    """Read a model after checking that its picture can be written, and not over one of the files read."""
    check_picture(save, [model, *files])
    return read_fitted(model)


def _finish(figure: "Figure", save: str, kind: str, *, n_rows: int | None = None, as_json: bool) -> None:
    """Write a picture in the format of its ending, and tell where it is; the file before stays if that fails."""
    ending = Path(save).suffix.lower().removeprefix(".")
    with one_line(save):
        write_durably(save, lambda file: figure.savefig(file, format=ending, dpi=_DOTS_PER_INCH))
    if as_json:
        print_json({"picture": save, "kind": kind} | ({} if n_rows is None else {"rows": n_rows}))
    else:
        click.echo(f"Picture: {save}")


_rows_options = grouped(
    click.argument("file", metavar="FILE", type=FILE),
    model_option,
    table_options,
)
_labels_option = option(
    "--labels", metavar="COLUMN", section=INPUT, help="Column (or npz array) with a class for each row."
)


@click.command(
    cls=Command,
    short_help="Novelty of rows, and alarms among them.",
    examples=[
        ("streamkpca plot novelty today.csv --time when --model plant.npz --save novelty.png", "Scores and alarms."),
        ("streamkpca plot novelty day.npz --array test --labels label --model m.npz --save n.svg", "Known anomalies."),
    ],
    output=_OUTPUT,
)
@_rows_options
@_labels_option
@option(
    "--quantile",
    type=float,
    metavar="SHARE",
    default=0.99,
    show_default=True,
    section=PICTURE,
    help="Share of rows like those learned that should raise no alarm.",
)
@_picture_options
def novelty(
    file: str,
    model: str,
    labels: str | None,
    quantile: float,
    save: str,
    size: tuple[float, float],
    as_json: bool,
    **options: Any,
) -> None:
    """Draw the novelty of the rows of FILE, the threshold, the alarms above it, and known anomalies."""
    learner = _read_model(model, save, file)
    with one_line():
        threshold = learner.novelty_threshold(quantile) if learner.reservoir_size else None
    rows = _collect(learner, model, file, options | {"labels": labels}, Collected(learner))
    figure, axes = make_axes(size)
    when = None if rows.times is None else time_axis(rows.times, file)
    plots.draw_novelty(rows.novelty, time=when, threshold=threshold, labels=rows.labels, ax=axes)
    if when is not None and when.dtype.kind == "M":
        label_dates(axes)
    _finish(figure, save, "novelty", n_rows=rows.n_rows, as_json=as_json)


@click.command(
    cls=Command,
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
def projections(
    file: str,
    model: str,
    labels: str | None,
    components: tuple[int, int],
    save: str,
    size: tuple[float, float],
    as_json: bool,
    **options: Any,
) -> None:
    """Draw the rows of FILE in the plane of two components, coloured by their order, their time or their class."""
    learner = _read_model(model, save, file)
    _check_component(learner, model, max(components))
    collected = Collected(learner, components=components)
    rows = _collect(learner, model, file, options | {"labels": labels}, collected)
    figure, axes = make_axes(size)
    when = None if rows.times is None else time_axis(rows.times, file)
    name = "row" if when is None else "time"
    plots.draw_projections(rows.projections, groups=_whole(rows.labels), color=when, color_name=name, ax=axes)
    _name_components(axes, components)
    _finish(figure, save, "projections", n_rows=rows.n_rows, as_json=as_json)


@click.command(
    cls=Command,
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
    type=click.IntRange(min=0),
    metavar="N",
    section=PICTURE,
    help="Draw this component.  [default: the reconstruction error]",
)
@_picture_options
def contours(
    file: str,
    model: str,
    over: tuple[str, str],
    component: int | None,
    save: str,
    size: tuple[float, float],
    as_json: bool,
    **options: Any,
) -> None:
    """Draw contours of the reconstruction error, or of a component, over two columns.

    The other columns are held at their medians over the rows of FILE, which also set the range of the axes.
    """
    learner = _read_model(model, save, file)
    names = learned_columns(learner) or [f"feature {i}" for i in range(learner.n_features_in_)]
    i, j = (column_position(names, name, path=model) for name in over)
    if component is not None:
        _check_component(learner, model, component)
    rows = _collect(learner, model, file, options | {"labels": None}, Collected(learner, keep_rows=True))
    figure, axes = make_axes(size)
    with one_line():
        plots.draw_contours(learner, rows.rows, component=component, features=(i, j), feature_names=names, ax=axes)
    _finish(figure, save, "contours", n_rows=rows.n_rows, as_json=as_json)


def _collect(
    learner: StreamingKernelPCA, model: str, file: str, options: dict[str, Any], collected: Collected
) -> Collected:
    """Project all rows of a file, and collect what the picture needs of them."""
    reading = reading_options(options) | {"labels": options["labels"]}
    (table,) = open_tables([file], reading, learned=learned_columns(learner))
    check_columns(learner, model, table)
    signals = SignalGuard()
    with signals.installed(), one_line():
        done = project(learner, [table], options["chunk_rows"], signals, callbacks=[collected.take])
    tell_skipped([table])
    if not done:
        signals.leave(f"interrupted after {collected.n_rows:,} rows; no picture was made")
    return collected


def _check_component(learner: StreamingKernelPCA, model: str, component: int) -> None:
    q = len(learner.eigenvalues_)
    if component >= q:
        raise BadInput(f"{model}: expected components from 0 to {q - 1} but got {component}")


def _name_components(axes: "Axes", components: tuple[int, int]) -> None:
    # Only the two that are drawn were kept, and draw_projections calls them 0 and 1.
    axes.set_xlabel(f"component {components[0]}")
    axes.set_ylabel(f"component {components[1]}")


def _whole(labels: Any) -> Any:
    """Turn classes that are whole numbers into integers, for the legend."""
    return labels.astype(int) if labels is not None and (labels == labels.astype(int)).all() else labels


def _takes_models(*, many: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a decorator for commands that take models by position, or with `--model` as older scripts do."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.argument("models", nargs=-1, metavar="MODEL..." if many else "MODEL", type=FILE)
        @option("--model", "named_models", multiple=True, type=FILE, hidden=True)
        @wraps(command)
        def with_models(models: tuple[str, ...], named_models: tuple[str, ...], **options: Any) -> None:
            models += named_models
            if not models:
                raise click.UsageError("Missing argument 'MODEL'.")
            if len(models) > 1 and not many:
                raise click.UsageError(f"Expected one model but got {', '.join(models)}.")
            command(**{"models": models} if many else {"model": models[0]}, **options)

        return with_models

    return decorate


@click.command(
    cls=Command,
    short_help="Variance along each axis.",
    examples=[("streamkpca plot spectrum plant.npz --save spectrum.png", "A bar for each component.")],
    output=_OUTPUT,
)
@_takes_models()
@_picture_options
def spectrum(model: str, save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw the variance along each axis, the share that all explain together, and guaranteed bounds."""
    learner = _read_model(model, save)
    figure, axes = make_axes(size)
    plots.draw_spectrum(
        learner.eigenvalues_,
        explained=learner.explained_variance_ratio_,
        bounds=learner.eigenvalue_bounds_,
        ax=axes,
    )
    _finish(figure, save, "spectrum", as_json=as_json)


@click.command(
    cls=Command,
    short_help="The rows that the model keeps as atoms.",
    examples=[
        ("streamkpca plot atoms plant.npz --save atoms.png", "Lines over the columns."),
        ("streamkpca plot atoms digits.npz --shape 16x16 --save atoms.png", "Images."),
    ],
    output=_OUTPUT,
)
@_takes_models()
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
    type=click.IntRange(min=1),
    section=PICTURE,
    help="Most atoms to draw; those of largest weight come first.",
)
@_picture_options
def atoms(
    model: str, shape: tuple[int, int] | None, most: int, save: str, size: tuple[float, float], as_json: bool
) -> None:
    """Draw the atoms, the rows that a model keeps: as lines over the columns, or as images."""
    learner = _read_model(model, save)
    figure, axes = make_axes(size)
    names = None if shape else learned_columns(learner)
    with one_line():
        plots.draw_atoms(learner.atoms_, weights=learner.weights_, shape=shape, most=most, feature_names=names, ax=axes)
    _finish(figure, save, "atoms", as_json=as_json)


@click.command(
    cls=Command,
    short_help="Active atoms against the reconstruction error.",
    examples=[("streamkpca plot sparsity plant.npz --save path.pdf", "Active atoms against error.")],
    output=_OUTPUT,
)
@_takes_models()
@_picture_options
def sparsity(model: str, save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw how the noise variance trades active atoms for the reconstruction error."""
    learner = _read_model(model, save)
    figure, axes = make_axes(size)
    with one_line():
        plots.draw_sparsity_path(learner.sparsity_path(), noise_variance=learner.noise_variance_, ax=axes)
    _finish(figure, save, "sparsity", as_json=as_json)


@click.command(
    cls=Command,
    short_help="Where in the stream the atoms come from.",
    examples=[
        ("streamkpca plot drift day1.npz day2.npz --save drift.png", "One stream at two times."),
    ],
    output=_OUTPUT,
)
@_takes_models(many=True)
@_picture_options
def drift(models: tuple[str, ...], save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw where in the stream the atoms come from, in one model or several saved as the stream went on."""
    looks = drift_looks([(model, _read_model(model, save)) for model in models])
    figure, axes = make_axes(size)
    plots.draw_atom_drift(*looks, ax=axes)
    _finish(figure, save, "drift", as_json=as_json)


@click.group(cls=Ordered, short_help="Draw a saved model, or rows that it projects and scores.")
def plot() -> None:
    """Draw a saved model, or rows that it projects and scores.

    From a MODEL alone: spectrum, atoms, sparsity, drift.

    From the rows of a FILE: novelty, projections, contours.

    Each kind has its own options: streamkpca plot KIND --help.
    """


for _kind in (spectrum, atoms, sparsity, drift, novelty, projections, contours):
    plot.add_command(_kind)
