"""The work of plot: a picture of a model, or of rows that it projects or watches."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from streamkpca import StreamingKernelPCA, plots
from streamkpca._core.files import SHARED, write_durably
from streamkpca.cli.console import Signals, print_result
from streamkpca.cli.models import check_target, read_saved
from streamkpca.cli.reading import at, each_batch, open_tables, tell_bad
from streamkpca.cli.tables import Batch, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
    if (kind == "projections") is (file is None):
        raise click.UsageError(
            f"plot {kind} draws " + ("rows; name FILE" if file is None else "no rows; leave FILE out")
        )
    check_picture(save, [model, *([file] if file else [])])
    saved = read_saved(model)
    figure = plots.make_figure()
    axes = figure.add_subplot()
    learner = saved.model
    if file is None:
        shares, bounds = learner.explained_variance_ratio_, learner.eigenvalue_bounds_
        plots.draw_spectrum(learner.eigenvalues_, explained=shares, bounds=bounds, ax=axes)
    else:
        columns: Any = {"learned": saved.learned, "time": saved.time}
        (table,) = open_tables([file], options, **columns, on_missing=learner.on_missing)
        signals = Signals()
        with signals.handled():
            batches = (batch for _, batch in each_batch([table], chunk_rows, signals, "reading"))
            _draw_projections(learner, table, batches, axes)
        tell_bad([table])
        signals.leave_if_stopped("before all rows were drawn")
    write_picture(figure, save, dots_per_inch=150)
    print_result({"picture": save, "kind": kind}, f"Picture: {save}", as_json=as_json)


def check_picture(path: str, inputs: Sequence[str]) -> None:
    """Refuse, before the work begins, a picture in an unknown format or over an input."""
    if Path(path).suffix.lower() not in _ENDINGS:
        raise click.UsageError(f"{path}: pictures are written as {', '.join(_ENDINGS)}; end the name in one of these")
    check_target(path, inputs)


def write_picture(figure: "Figure", path: str | Path, *, dots_per_inch: int) -> None:
    """Write a picture in the format of the name's ending; the file before stays if that fails."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix.lower().removeprefix("."), dpi=dots_per_inch)
    write_durably(path, lambda file: file.write(drawn.getvalue()), mode=SHARED)


def _draw_projections(model: StreamingKernelPCA, table: Table, batches: Iterator[Batch], axes: "Axes") -> None:
    """Draw rows in the plane of the first two components, coloured by their class, their time or their order."""
    points, found = [], []
    for batch in batches:
        with at(table, batch):
            points.append(model.transform(batch.numbers)[:, :2])
        found.append((batch.times, batch.labels))
    times, labels = (None if column[0] is None else np.concatenate(column) for column in zip(*found, strict=True))
    if labels is not None and (labels == labels.astype(int)).all():
        labels = labels.astype(int)
    name = "row" if times is None else "time"
    plots.draw_projections(np.concatenate(points), groups=labels, color=times, color_name=name, ax=axes)
