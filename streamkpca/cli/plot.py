"""The work of the command plot: a picture of each kind."""

from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt

from streamkpca import plots
from streamkpca.cli.console import BadInput, one_line, print_json
from streamkpca.cli.models import check_columns, learned_columns, read_fitted
from streamkpca.cli.pictures import (
    Collected,
    as_drawn,
    check_picture,
    column_position,
    drift_looks,
    label_dates,
    make_axes,
    time_axis,
    write_picture,
)
from streamkpca.cli.pipeline import (
    monitor_of,
    open_for,
    open_tables,
    project,
    reading_of,
    reading_options,
    tell_skipped,
    watch,
)
from streamkpca.cli.signals import SignalGuard
from streamkpca.cli.tables import Chunk
from streamkpca.cli.watch import Found, Watcher
from streamkpca.models.streaming import StreamingKernelPCA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_DOTS_PER_INCH = 150


def _read_model(model: str, save: str, *files: str) -> StreamingKernelPCA:
    """Read a model after checking that its picture can be written, and not over one of the files read."""
    check_picture(save, [model, *files])
    return read_fitted(model)


def _finish(figure: "Figure", save: str, kind: str, *, n_rows: int | None = None, as_json: bool) -> None:
    """Write a picture, and tell where it is."""
    with one_line(save):
        write_picture(figure, save, dots_per_inch=_DOTS_PER_INCH)
    if as_json:
        print_json({"picture": save, "kind": kind} | ({} if n_rows is None else {"rows": n_rows}))
    else:
        click.echo(f"Picture: {save}")


def novelty(
    file: str,
    model: str,
    labels: str | None,
    save: str,
    size: tuple[float, float],
    as_json: bool,
    **options: Any,
) -> None:
    """Draw the novelty of the rows of FILE, the threshold, the alarms above it, events, and lasting changes."""
    learner = _read_model(model, save, file)
    monitor = monitor_of(learner, model, options)
    reading = reading_options(options) | {"labels": labels}
    table = open_for(learner, model, file, reading, lags=monitor.lags)
    watcher, rows = Watcher(monitor, table.columns.feature_names), Collected(learner)
    thresholds: list[npt.NDArray[np.float64]] = []

    def take(chunk: Chunk, found: Found) -> None:
        rows.take(chunk, found.record.smoothed)
        thresholds.append(np.where(np.isfinite(found.record.threshold), found.record.threshold, np.nan))

    signals = SignalGuard()
    with signals.installed(), one_line():
        done = watch(watcher, [table], options["chunk_rows"], signals, callbacks=[take])
    tell_skipped([table])
    if not done:
        signals.leave(f"interrupted after {rows.n_rows:,} rows; no picture was made")
    figure, axes = make_axes(size)
    when = None if rows.times is None else time_axis(rows.times, file)
    with one_line():
        plots.draw_novelty(
            rows.novelty,
            time=when,
            threshold=np.concatenate(thresholds),
            labels=rows.labels,
            events=watcher.events,
            changes=list(watcher.changes),
            ax=axes,
        )
    if when is not None and when.dtype.kind == "M":
        label_dates(axes)
    _finish(figure, save, "novelty", n_rows=rows.n_rows, as_json=as_json)


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
    with one_line():
        plots.draw_projections(rows.projections, groups=_whole(rows.labels), color=when, color_name=name, ax=axes)
    _name_components(axes, components)
    _finish(figure, save, "projections", n_rows=rows.n_rows, as_json=as_json)


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
    """Draw contours of the reconstruction error, or of a component, over two columns."""
    learner = _read_model(model, save, file)
    names = learned_columns(learner) or [f"column {i}" for i in range(learner.n_features_in_)]
    i, j = (column_position(names, name, path=model) for name in over)
    if i == j:
        raise BadInput(f"--over {','.join(over)}: these are one column; choose two")
    if component is not None:
        _check_component(learner, model, component)
    rows = _collect(learner, model, file, options | {"labels": None}, Collected(learner, keep_rows=True))
    figure, axes = make_axes(size)
    with one_line():
        drawn = as_drawn(names)
        # Rows are drawn as points, which need all of their numbers.
        points = learner.impute(rows.rows) if learner.on_missing == "marginal" else rows.rows
        plots.draw_contours(learner, points, component=component, features=(i, j), feature_names=drawn, ax=axes)
    _finish(figure, save, "contours", n_rows=rows.n_rows, as_json=as_json)


def _collect(
    learner: StreamingKernelPCA, model: str, file: str, options: dict[str, Any], collected: Collected
) -> Collected:
    """Project all rows of a file, and collect what the picture needs of them."""
    reading = reading_options(options) | {"labels": options["labels"]}
    (table,) = open_tables([file], reading | reading_of(learner), learned=learned_columns(learner))
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


def atoms(
    model: str, shape: tuple[int, int] | None, most: int, save: str, size: tuple[float, float], as_json: bool
) -> None:
    """Draw the atoms, the rows that a model keeps: as lines over the columns, or as images."""
    learner = _read_model(model, save)
    if shape and shape[0] * shape[1] != learner.n_features_in_:
        raise BadInput(
            f"--shape {shape[0]}x{shape[1]}: expected rows of {shape[0] * shape[1]} columns but {model} has learned "
            f"{learner.n_features_in_}; leave --shape out, or give another"
        )
    figure, axes = make_axes(size)
    learned = None if shape else learned_columns(learner)
    names = None if learned is None else as_drawn(learned)
    with one_line():
        plots.draw_atoms(learner.atoms_, weights=learner.weights_, shape=shape, most=most, feature_names=names, ax=axes)
    _finish(figure, save, "atoms", as_json=as_json)


def sparsity(model: str, save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw how the noise variance trades active atoms for the reconstruction error."""
    learner = _read_model(model, save)
    figure, axes = make_axes(size)
    with one_line():
        plots.draw_sparsity_path(learner.sparsity_path(), noise_variance=learner.noise_variance_, ax=axes)
    _finish(figure, save, "sparsity", as_json=as_json)


def drift(models: tuple[str, ...], save: str, size: tuple[float, float], as_json: bool) -> None:
    """Draw where in the stream the atoms come from, in one model or several saved as the stream went on."""
    looks = drift_looks([(model, _read_model(model, save)) for model in models])
    figure, axes = make_axes(size)
    plots.draw_atom_drift(*looks, ax=axes)
    _finish(figure, save, "drift", as_json=as_json)
