"""The work of plot: a picture of a model, or of rows that it projects or watches."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from streamkpca import StreamingKernelPCA, plots
from streamkpca._core.files import SHARED, write_durably
from streamkpca.cli.console import Signals, print_json, printable
from streamkpca.cli.models import check_target, read_saved
from streamkpca.cli.reading import at, each_batch, open_tables, tell_bad
from streamkpca.cli.score import monitor_of
from streamkpca.cli.tables import Batch, Table
from streamkpca.monitoring import Monitor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OF_ROWS = ("novelty", "projections")
_ENDINGS = (".png", ".svg", ".pdf")


def plot(
    kind: str,
    file: str | None,
    model: str,
    save: str,
    size: tuple[float, float],
    components: tuple[int, int],
    as_json: bool,
    chunk_rows: int,
    **options: Any,
) -> None:
    """Draw a saved model, or the rows of a file."""
    if Path(save).suffix.lower() not in _ENDINGS:
        raise click.UsageError(f"{save}: pictures are written as {', '.join(_ENDINGS)}; end the name in one of these")
    if kind in _OF_ROWS and file is None:
        raise click.UsageError(f"plot {kind} draws rows; name their FILE")
    if kind not in _OF_ROWS and file is not None:
        raise click.UsageError(f"plot {kind} draws a model alone; leave {file} out")
    check_target(save, [model, *([file] if file else [])])
    saved = read_saved(model)
    figure = plots.make_figure(width=size[0], height=size[1])
    axes = figure.add_subplot()
    if file is None:
        _draw_model(kind, saved.model, axes)
    else:
        monitor = monitor_of(saved, model, options) if kind == "novelty" else None
        (table,) = open_tables([file], options, learned=saved.learned, on_missing=saved.model.on_missing)
        signals = Signals()
        with signals.handled():
            batches = (batch for _, batch in each_batch([table], chunk_rows, signals, "reading"))
            if monitor:
                _draw_novelty(monitor, table, batches, axes)
            else:
                _draw_projections(saved.model, table, batches, components, axes)
        tell_bad([table])
        signals.leave_if_stopped("before all rows were drawn")
    write_picture(figure, save, dots_per_inch=150)
    if as_json:
        print_json({"picture": save, "kind": kind})
    else:
        click.echo(f"Picture: {save}")


def write_picture(figure: "Figure", path: str | Path, *, dots_per_inch: int) -> None:
    """Write a picture in the format of the name's ending; the file before stays if that fails."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix.lower().removeprefix("."), dpi=dots_per_inch)
    write_durably(path, lambda file: file.write(drawn.getvalue()), mode=SHARED)


def _draw_model(kind: str, model: StreamingKernelPCA, axes: "Axes") -> None:
    """Draw the variance along each axis with its bounds, or active atoms against the reconstruction error."""
    if kind == "spectrum":
        shares, bounds = model.explained_variance_ratio_, model.eigenvalue_bounds_
        plots.draw_spectrum(model.eigenvalues_, explained=shares, bounds=bounds, ax=axes)
    else:
        plots.draw_sparsity_path(model.sparsity_path(), noise_variance=model.noise_variance_, ax=axes)


def _draw_novelty(monitor: Monitor, table: Table, batches: Iterator[Batch], axes: "Axes") -> None:
    """Draw scores, thresholds, alarms, events and the lasting change that a monitor finds in rows."""
    n_before = getattr(monitor, "n_rows_", 0)
    scores, thresholds, times, labels = [], [], [], []
    for batch in batches:
        with at(table, batch):
            record = monitor.update(batch.numbers)
        scores.append(record.smoothed)
        thresholds.append(np.where(np.isfinite(record.threshold), record.threshold, np.nan))
        times.append(batch.times)
        labels.append(batch.labels)
    events = [_moved(event, n_before, table.names) for event in monitor.events_ if event.end > n_before]
    change = monitor.change_detected_
    when = _joined(times)
    plots.draw_novelty(
        np.concatenate(scores),
        time=when,
        threshold=np.concatenate(thresholds),
        labels=_joined(labels),
        events=events,
        changes=[_moved(change, n_before, table.names)] if change and change.detected > n_before else [],
        ax=axes,
    )
    if when is not None and when.dtype.kind == "M":
        _label_dates(axes)


def _draw_projections(
    model: StreamingKernelPCA, table: Table, batches: Iterator[Batch], components: tuple[int, int], axes: "Axes"
) -> None:
    """Draw rows in the plane of two components, coloured by their class, their time or their order."""
    n = len(model.eigenvalues_)
    if not all(0 <= component < n for component in components):
        raise click.UsageError(f"--axes: expected components from 0 to {n - 1} but got {components}")
    points, times, labels = [], [], []
    for batch in batches:
        with at(table, batch):
            points.append(model.transform(batch.numbers)[:, list(components)])
        times.append(batch.times)
        labels.append(batch.labels)
    groups, when = _joined(labels), _joined(times)
    if groups is not None and (groups == groups.astype(int)).all():
        groups = groups.astype(int)
    name = "row" if when is None else "time"
    plots.draw_projections(np.concatenate(points), groups=groups, color=when, color_name=name, ax=axes)
    # Only two were kept, which draw_projections calls 0 and 1.
    axes.set_xlabel(f"component {components[0]}")
    axes.set_ylabel(f"component {components[1]}")


def _joined(parts: Sequence[Any]) -> Any:
    """Join what all batches have or none has."""
    return None if parts[0] is None else np.concatenate(parts)


def _moved(found: Any, n_before: int, names: Sequence[str]) -> Any:
    """Count the rows of an event or a change from the first one of the file, and name its columns."""
    rows = {name: getattr(found, name) for name in ("start", "end", "peak_row", "detected") if hasattr(found, name)}
    named = tuple(
        one._replace(feature=printable(names[one.feature]).replace("$", r"\$")) if isinstance(one.feature, int) else one
        for one in found.features
    )
    return replace(found, **{name: max(row - n_before, 0) for name, row in rows.items()}, features=named)


def _label_dates(axes: "Axes") -> None:
    """Write dates along an axis of times so short that they do not overlap."""
    from matplotlib import dates

    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
