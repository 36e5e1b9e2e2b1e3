"""The commands that draw rows: plot novelty, projections, contours."""

from typing import TYPE_CHECKING, Any

import click

from streamkpca.command.inputs import open_tables, reading_options, tell_skipped
from streamkpca.command.models import check_columns, learned_columns
from streamkpca.command.options import FILE, INPUT, PICTURE, Command, grouped, model_option, option, table_options
from streamkpca.command.picture_options import (
    PICTURE_STREAMS,
    finish_picture,
    learned_for_picture,
    pair_of,
    picture_options,
)
from streamkpca.command.pictures import Collected, column_position, make_axes
from streamkpca.command.runs import project
from streamkpca.command.stops import Interruption
from streamkpca.command.terminal import BadInput, one_line
from streamkpca.command.times import label_dates, time_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from streamkpca.streaming import StreamingKernelPCA

_rows_options = grouped(
    click.argument("file", metavar="FILE", type=FILE),
    model_option,
    table_options,
)
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
    """Ask the model about all rows of a file."""
    reading = reading_options(options) | {"labels": options["labels"]}
    (table,) = open_tables([file], reading, learned=learned_columns(learner))
    check_columns(learner, model, table)
    hands = Interruption()
    with hands.armed(), one_line():
        done = project(learner, [table], options["chunk_rows"], hands, takers=[collected.take])
    tell_skipped([table])
    if not done:
        hands.leave(f"interrupted after {collected.n_rows:,} rows; no picture was made")
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
    """Write classes that are whole numbers as such in the legend."""
    return labels.astype(int) if labels is not None and (labels == labels.astype(int)).all() else labels
