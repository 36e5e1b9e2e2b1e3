"""The command plot, with a command for each kind of picture."""

import math
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from streamkpca.cli.console import BadInput, Ordered, one_line, print_json
from streamkpca.cli.models import check_columns, learned_columns, read_fitted
from streamkpca.cli.options import (
    FILE,
    INPUT,
    MODEL,
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
    save_picture,
    time_axis,
)
from streamkpca.cli.pipeline import open_tables, project, reading_options, tell_skipped
from streamkpca.cli.signals import SignalGuard

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from streamkpca.estimators.streaming import StreamingKernelPCA


PICTURE_STREAMS: Final = (
    "Standard output: where the picture is. Standard error: progress, on terminals; warnings and errors, a line each."
)


def pair_of(
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


picture_options = grouped(
    option("--save", required=True, type=FILE, metavar="FILE", section=RESULTS, help="Ends in .png, .svg or .pdf."),
    option(
        "--size",
        default="7x4.5",
        show_default=True,
        metavar="WxH",
        section=PICTURE,
        callback=pair_of(
            float, "two sizes in inches, from 1 to 100, such as 7x4.5", separator="x", least=1.0, most=100.0
        ),
        help="Width and height in inches.",
    ),
    json_option,
)


def learned_for_picture(model: str, save: str, *files: str) -> "StreamingKernelPCA":
    """Read a model after making sure that its picture can be written beside all `files` that are read."""
    check_picture(save, [model, *files])
    return read_fitted(model)


def finish_picture(figure: "Figure", save: str, kind: str, *, n_rows: int | None = None, as_json: bool) -> None:
    """Save a picture, and tell where it is."""
    save_picture(figure, save)
    if as_json:
        print_json({"picture": save, "kind": kind} | ({} if n_rows is None else {"rows": n_rows}))
    else:
        click.echo(f"Picture: {save}")


_rows_options = grouped(
    click.argument("file", metavar="FILE", type=FILE),
    model_option,
    table_options,
)
_named_models = option("--model", "named_models", multiple=True, type=FILE, hidden=True, section=MODEL)
_labels_option = option("--labels", metavar="COLUMN", section=INPUT, help="Column (or npz array) with a class a row.")


@click.command(
    cls=Command,
    short_help="How novel rows are, and which are alarms.",
    examples=[
        ("streamkpca plot novelty today.csv --time when --model plant.npz --save novelty.png", "Scores and alarms."),
        ("streamkpca plot novelty day.npz --array test --labels label --model m.npz --save n.svg", "Known anomalies."),
    ],
    streams=PICTURE_STREAMS,
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
    help="Share of rows like those learned that raises no alarm.",
)
@picture_options
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
    """Draw how novel the rows of FILE are, with the threshold, the alarms above it, and known anomalies."""
    from streamkpca.plots import draw_novelty

    learner = learned_for_picture(model, save, file)
    with one_line():
        threshold = learner.novelty_threshold(quantile) if learner.reservoir_size else None
    rows = _collect(learner, model, file, options | {"labels": labels}, Collected(learner))
    figure, axes = make_axes(size)
    when = None if rows.times is None else time_axis(rows.times, file)
    draw_novelty(rows.novelty, time=when, threshold=threshold, labels=rows.labels, ax=axes)
    if when is not None and when.dtype.kind == "M":
        label_dates(axes)
    finish_picture(figure, save, "novelty", n_rows=rows.n_rows, as_json=as_json)


@click.command(
    cls=Command,
    short_help="Rows in the plane of two components.",
    examples=[
        ("streamkpca plot projections today.csv --model plant.npz --save map.png", "Coloured by row."),
        ("streamkpca plot projections all.csv --model m.npz --labels kind --axes 0,2 --save map.png", "By class."),
    ],
    streams=PICTURE_STREAMS,
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
    callback=pair_of(int, "two components, such as 0,1", separator=",", least=0),
    help="The two components to draw.",
)
@picture_options
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
    from streamkpca.plots import draw_projections

    learner = learned_for_picture(model, save, file)
    _check_component(learner, model, max(components))
    collected = Collected(learner, components=components)
    rows = _collect(learner, model, file, options | {"labels": labels}, collected)
    figure, axes = make_axes(size)
    when = None if rows.times is None else time_axis(rows.times, file)
    name = "row" if when is None else "time"
    draw_projections(rows.projections, groups=_whole(rows.labels), color=when, color_name=name, ax=axes)
    _name_components(axes, components)
    finish_picture(figure, save, "projections", n_rows=rows.n_rows, as_json=as_json)


@click.command(
    cls=Command,
    short_help="Novelty or a component over two columns.",
    examples=[
        ("streamkpca plot contours day.csv --over load,temp --model plant.npz --save map.png", "Where rows are novel."),
        ("streamkpca plot contours day.csv --component 0 --model plant.npz --save first.png", "What an axis means."),
    ],
    streams=PICTURE_STREAMS,
)
@_rows_options
@option(
    "--over",
    metavar="A,B",
    default="0,1",
    show_default=True,
    section=PICTURE,
    callback=pair_of(str, "two columns, such as load,temp", separator=","),
    help="Columns on the two axes, by name or position among those learned.",
)
@option(
    "--component",
    type=click.IntRange(min=0),
    metavar="N",
    section=PICTURE,
    help="Draw this component.  [default: the error of reconstruction]",
)
@picture_options
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
    """Draw contours of the error of reconstruction, or of a component, over two columns.

    Other columns are held at their medians over the rows of FILE, which also say how far the axes reach.
    """
    from streamkpca.plots import draw_contours

    learner = learned_for_picture(model, save, file)
    names = learned_columns(learner) or [f"feature {i}" for i in range(learner.n_features_in_)]
    i, j = (column_position(names, name, path=model) for name in over)
    if component is not None:
        _check_component(learner, model, component)
    rows = _collect(learner, model, file, options | {"labels": None}, Collected(learner, keep_rows=True))
    figure, axes = make_axes(size)
    with one_line():
        draw_contours(learner, rows.rows, component=component, features=(i, j), feature_names=names, ax=axes)
    finish_picture(figure, save, "contours", n_rows=rows.n_rows, as_json=as_json)


def _collect(
    learner: "StreamingKernelPCA", model: str, file: str, options: dict[str, Any], collected: Collected
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


def _check_component(learner: "StreamingKernelPCA", model: str, component: int) -> None:
    q = len(learner.eigenvalues_)
    if component >= q:
        raise BadInput(f"{model}: expected components from 0 to {q - 1}, which it has, but got {component}")


def _name_components(axes: "Axes", components: tuple[int, int]) -> None:
    # Only the two that are drawn were kept, as 0 and 1.
    axes.set_xlabel(f"component {components[0]}")
    axes.set_ylabel(f"component {components[1]}")


def _whole(labels: Any) -> Any:
    """Turn classes that are whole numbers into such for the legend."""
    return labels.astype(int) if labels is not None and (labels == labels.astype(int)).all() else labels


def _models(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the models that the user names by position, or with `--model` as older scripts do."""

    @click.argument("models", nargs=-1, metavar="MODEL...", type=FILE)
    @_named_models
    @wraps(command)
    def with_models(models: tuple[str, ...], named_models: tuple[str, ...], **options: Any) -> None:
        if not models + named_models:
            raise click.UsageError("Missing argument 'MODEL'.")
        command(models=models + named_models, **options)

    return with_models


def _one_model(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its one model in the same way."""

    @click.argument("model", metavar="MODEL", required=False, type=FILE)
    @_named_models
    @wraps(command)
    def with_model(model: str | None, named_models: tuple[str, ...], **options: Any) -> None:
        models = named_models if model is None else (model, *named_models)
        if not models:
            raise click.UsageError("Missing argument 'MODEL'.")
        if len(models) > 1:
            raise click.UsageError(f"Expected one model but got {', '.join(models)}.")
        command(model=models[0], **options)

    return with_model


@click.command(
    cls=Command,
    short_help="Variance along each axis.",
    examples=[("streamkpca plot spectrum plant.npz --save spectrum.png", "A bar for each component.")],
    streams=PICTURE_STREAMS,
)
@_one_model
@picture_options
def spectrum(model: str, save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw the variance along each axis, what they explain together, and bounds that hold."""
    from streamkpca.plots import draw_spectrum

    learner = learned_for_picture(model, save)
    figure, axes = make_axes(size)
    draw_spectrum(
        learner.eigenvalues_,
        explained=learner.explained_variance_ratio_,
        bounds=learner.eigenvalue_bounds_,
        ax=axes,
    )
    finish_picture(figure, save, "spectrum", as_json=as_json)


@click.command(
    cls=Command,
    short_help="The rows that the model keeps.",
    examples=[
        ("streamkpca plot atoms plant.npz --save atoms.png", "Lines over the columns."),
        ("streamkpca plot atoms digits.npz --shape 16x16 --save atoms.png", "Images."),
    ],
    streams=PICTURE_STREAMS,
)
@_one_model
@option(
    "--shape",
    metavar="HxW",
    section=PICTURE,
    callback=pair_of(int, "a height and a width, such as 16x16", separator="x", least=1),
    help="Rows are images of so many lines and columns.  [default: draw lines]",
)
@option(
    "--most",
    default=40,
    show_default=True,
    metavar="N",
    type=click.IntRange(min=1),
    section=PICTURE,
    help="Draw no more atoms than this, the heaviest.",
)
@picture_options
def atoms(
    model: str, shape: tuple[int, int] | None, most: int, save: str, size: tuple[float, float], as_json: bool
) -> None:
    """Draw the atoms, the rows that a model keeps: as lines over the columns, or as images."""
    from streamkpca.plots import draw_atoms

    learner = learned_for_picture(model, save)
    figure, axes = make_axes(size)
    names = None if shape else learned_columns(learner)
    with one_line():
        draw_atoms(learner.atoms_, weights=learner.weights_, shape=shape, most=most, feature_names=names, ax=axes)
    finish_picture(figure, save, "atoms", as_json=as_json)


@click.command(
    cls=Command,
    short_help="Active atoms against the error of reconstruction.",
    examples=[("streamkpca plot sparsity plant.npz --save path.pdf", "Active atoms against error.")],
    streams=PICTURE_STREAMS,
)
@_one_model
@picture_options
def sparsity(model: str, save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw how the noise variance trades active atoms for the error of reconstruction."""
    from streamkpca.plots import draw_sparsity_path

    learner = learned_for_picture(model, save)
    figure, axes = make_axes(size)
    with one_line():
        draw_sparsity_path(learner.sparsity_path(), noise_variance=learner.noise_variance_, ax=axes)
    finish_picture(figure, save, "sparsity", as_json=as_json)


@click.command(
    cls=Command,
    short_help="Where in the stream the atoms come from.",
    examples=[
        ("streamkpca plot drift day1.npz day2.npz --save drift.png", "Two looks at one stream."),
    ],
    streams=PICTURE_STREAMS,
)
@_models
@picture_options
def drift(models: tuple[str, ...], save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw where in the stream the atoms come from, in one model or several saved as the stream went on."""
    from streamkpca.plots import draw_atom_drift

    looks = drift_looks([(model, learned_for_picture(model, save)) for model in models])
    figure, axes = make_axes(size)
    draw_atom_drift(*looks, ax=axes)
    finish_picture(figure, save, "drift", as_json=as_json)


@click.group(cls=Ordered, short_help="Draw a saved model, or rows that it is asked about.")
def plot() -> None:
    """Draw a saved model, or rows that it is asked about.

    Of a model alone: spectrum, atoms, sparsity, drift.

    Of rows of a FILE: novelty, projections, contours.

    Each kind has options of its own: streamkpca plot KIND --help.
    """


for _kind in (spectrum, atoms, sparsity, drift, novelty, projections, contours):
    plot.add_command(_kind)
