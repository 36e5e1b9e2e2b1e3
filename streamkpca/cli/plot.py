"""The work of plot: a picture of a model, or of rows that it projects or watches."""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt

from streamkpca import StreamingKernelPCA, plots
from streamkpca._core.files import SHARED, write_durably
from streamkpca.cli.console import Signals, print_result, printable
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
    as_json: bool,
    chunk_rows: int,
    **options: Any,
) -> None:
    """Draw a saved model, or the rows of a file."""
    if Path(save).suffix.lower() not in _ENDINGS:
        raise click.UsageError(f"{save}: pictures are written as {', '.join(_ENDINGS)}; end the name in one of these")
    if (kind in _OF_ROWS) is (file is None):
        raise click.UsageError(
            f"plot {kind} draws " + ("rows; name FILE" if file is None else "no rows; leave FILE out")
        )
    check_target(save, [model, *([file] if file else [])])
    saved = read_saved(model)
    figure = plots.make_figure()
    axes = figure.add_subplot()
    learner = saved.model
    if file is None:
        shares, bounds = learner.explained_variance_ratio_, learner.eigenvalue_bounds_
        plots.draw_spectrum(learner.eigenvalues_, explained=shares, bounds=bounds, ax=axes)
    else:
        monitor = monitor_of(saved, model, options) if kind == "novelty" else None
        (table,) = open_tables([file], options, learned=saved.learned, on_missing=learner.on_missing)
        signals = Signals()
        with signals.handled():
            batches = (batch for _, batch in each_batch([table], chunk_rows, signals, "reading"))
            if monitor:
                _draw_novelty(monitor, table, batches, axes)
            else:
                _draw_projections(learner, table, batches, axes)
        tell_bad([table])
        signals.leave_if_stopped("before all rows were drawn")
    write_picture(figure, save, dots_per_inch=150)
    print_result({"picture": save, "kind": kind}, f"Picture: {save}", as_json=as_json)


def write_picture(figure: "Figure", path: str | Path, *, dots_per_inch: int) -> None:
    """Write a picture in the format of the name's ending; the file before stays if that fails."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix.lower().removeprefix("."), dpi=dots_per_inch)
    write_durably(path, lambda file: file.write(drawn.getvalue()), mode=SHARED)


def _draw_novelty(monitor: Monitor, table: Table, batches: Iterator[Batch], axes: "Axes") -> None:
    """Draw scores, thresholds, alarms, events and the lasting change that a monitor finds in rows."""
    n_before = getattr(monitor, "n_rows_", 0)
    records, times, labels = _collected(monitor.update, table, batches)
    threshold = np.concatenate([record.threshold for record in records])
    change = monitor.change_detected_
    plots.draw_novelty(
        np.concatenate([record.smoothed for record in records]),
        time=times,
        threshold=np.where(np.isfinite(threshold), threshold, np.nan),
        labels=labels,
        events=[_moved(event, n_before, table.names) for event in monitor.events_ if event.end > n_before],
        changes=[_moved(change, n_before, table.names)] if change and change.detected > n_before else [],
        ax=axes,
    )
    if times is not None and times.dtype.kind == "M":
        # Dates are long, and would overlap.
        axes.tick_params(axis="x", rotation=30)


def _draw_projections(model: StreamingKernelPCA, table: Table, batches: Iterator[Batch], axes: "Axes") -> None:
    """Draw rows in the plane of the first two components, coloured by their class, their time or their order."""
    points, times, labels = _collected(lambda rows: model.transform(rows)[:, :2], table, batches)
    if labels is not None and (labels == labels.astype(int)).all():
        labels = labels.astype(int)
    name = "row" if times is None else "time"
    plots.draw_projections(np.concatenate(points), groups=labels, color=times, color_name=name, ax=axes)


def _collected(
    answer: Callable[[npt.NDArray[np.float64]], Any], table: Table, batches: Iterator[Batch]
) -> tuple[list[Any], Any, Any]:
    """Return the answers to all batches, and the times and labels of all rows, None without any."""
    answers, found = [], []
    for batch in batches:
        with at(table, batch):
            answers.append(answer(batch.numbers))
        found.append((batch.times, batch.labels))
    times, labels = (None if column[0] is None else np.concatenate(column) for column in zip(*found, strict=True))
    return answers, times, labels


def _moved(found: Any, n_before: int, names: Sequence[str]) -> Any:
    """Count the rows of an event or a change from the first one of the file, and name its columns."""
    rows = {name: getattr(found, name) for name in ("start", "end", "peak_row", "detected") if hasattr(found, name)}
    named = tuple(
        one._replace(feature=printable(names[one.feature]).replace("$", r"\$")) if isinstance(one.feature, int) else one
        for one in found.features
    )
    return replace(found, **{name: max(row - n_before, 0) for name, row in rows.items()}, features=named)
