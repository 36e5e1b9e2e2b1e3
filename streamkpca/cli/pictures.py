"""What pictures are made of: rows collected chunk by chunk, axes of times, figures in files."""

import io
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.files import SHARED, write_durably
from streamkpca.cli.console import BadInput, one_line, printable
from streamkpca.cli.models import check_writable
from streamkpca.cli.tables import Chunk
from streamkpca.cli.tables.reader import Time
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.plots import make_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Array = npt.NDArray[np.float64]

_ENDINGS = (".png", ".svg", ".pdf")
_MOST_ROWS = 2000


def time_axis(times: Sequence[Any], source: str) -> npt.NDArray[Any]:
    """Turn the times of all rows into ascending numbers, or dates in universal time; errors name their `source`."""
    axis = _as_axis(times, source)
    steps = np.diff(axis)
    back = np.flatnonzero(steps < np.zeros(1, dtype=steps.dtype))
    if len(back):
        i = int(back[0]) + 1
        raise BadInput(
            f"{source}: expected ascending times but row {i} (from 0) has {times[i]} after {times[i - 1]}; "
            "sort the rows, or leave --time out"
        )
    return axis


def label_dates(axes: "Axes") -> None:
    """Write dates along an axis of times so short that they do not overlap."""
    from matplotlib import dates as untyped_dates

    dates: Any = untyped_dates
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def _as_axis(times: Sequence[Any], source: str) -> npt.NDArray[Any]:
    """Turn times into numbers or dates; the first tells which."""
    numbers = np.array([_as_number(when) for when in times])
    if not np.isnan(numbers[0]):
        bad, axis = np.isnan(numbers), numbers
    else:
        axis = np.array([_as_date(when) for when in times])
        bad = np.isnat(axis)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise BadInput(
            f"{source}: expected times, all numbers or all dates such as 2024-05-01T10:00, but row {i} (from 0) has "
            f"{times[i]!r}; repair the column, or leave --time out"
        )
    return axis


def _as_number(when: Any) -> float:
    try:
        number = float(when)
    except (TypeError, ValueError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _as_date(when: Any) -> np.datetime64:
    try:
        date = datetime.fromisoformat(when.strip())
    except (AttributeError, ValueError):
        return np.datetime64("NaT", "us")
    return np.datetime64(date if date.tzinfo is None else date.astimezone(UTC).replace(tzinfo=None), "us")


class Collected:
    """What a picture needs of rows, collected chunk by chunk.

    Novelty, labels and times of every row, its projections on two `components`, and with `keep_rows` an even selection
    of 1,000 to 2,000 `rows`: 8 bytes a row for novelty, 16 for projections, and what labels and times take.
    """

    def __init__(
        self, model: StreamingKernelPCA, *, components: tuple[int, int] | None = None, keep_rows: bool = False
    ) -> None:
        self.n_rows = 0
        self._model = model
        self._components = components
        self._keep_rows = keep_rows
        self._step = 1
        self._novelty: list[Array] = []
        self._projections: list[Array] = []
        self._labels: list[Array] = []
        self.times: list[Time] | None = None
        self.rows: Array = np.empty((0, model.n_features_in_))

    @property
    def novelty(self) -> Array:
        """Scores of all rows."""
        return np.concatenate(self._novelty)

    @property
    def projections(self) -> Array:
        """Projections of all rows on the two components."""
        return np.concatenate(self._projections)

    @property
    def labels(self) -> Array | None:
        """Labels of all rows, if there are any."""
        return np.concatenate(self._labels) if self._labels else None

    def take(self, chunk: Chunk, novelty: Array) -> None:
        """Add the next rows and their scores (n,)."""
        self._novelty.append(novelty)
        if chunk.labels is not None:
            self._labels.append(chunk.labels)
        if chunk.times is not None:
            self.times = (self.times or []) + chunk.times
        if self._components is not None:
            self._projections.append(self._model.transform(chunk.rows)[:, list(self._components)])
        if self._keep_rows:
            first = -self.n_rows % self._step
            self.rows = np.concatenate([self.rows, chunk.rows[first :: self._step]])
            while len(self.rows) > _MOST_ROWS:
                self.rows, self._step = self.rows[::2], 2 * self._step
        self.n_rows += len(chunk.rows)


def check_picture(path: str, inputs: Sequence[str]) -> None:
    """Refuse, before the work begins, a picture of another format, in no folder, or over an input."""
    if Path(path).suffix.lower() not in _ENDINGS:
        raise BadInput(f"{path}: pictures are written as {', '.join(_ENDINGS)}; end the name in one of these")
    check_writable(path, inputs, what="the picture")
    with one_line():
        make_figure()


def write_picture(figure: "Figure", path: str | Path, *, dots_per_inch: int) -> None:
    """Write a picture in the format of the name's ending; the file before stays if that fails."""
    # In memory first: drawing into a file on a full disk leaves matplotlib's PDF writer in errors of its own.
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix.lower().removeprefix("."), dpi=dots_per_inch)
    write_durably(path, lambda file: file.write(drawn.getvalue()), mode=SHARED)


def make_axes(size: tuple[float, float]) -> tuple["Figure", "Axes"]:
    """Make a figure of a width and height in inches, and its axes."""
    figure = make_figure(width=size[0], height=size[1])
    return figure, figure.add_subplot()


def as_drawn(names: Sequence[str]) -> list[str]:
    """Spell names of columns so that a picture can hold them: no control characters, no formulas between dollars."""
    return [printable(name).replace("$", r"\$") for name in names]


def column_position(names: Sequence[str], wanted: str, *, path: str) -> int:
    """Find a learned column by its name or else its position; errors name the model's `path`."""
    if wanted in names:
        return list(names).index(wanted)
    if wanted.isdecimal() and int(wanted) < len(names):
        return int(wanted)
    raise BadInput(
        f"{path}: expected a column that the model has learned but got {wanted!r}; see streamkpca info {path}"
    )


def drift_looks(models: Sequence[tuple[str, Any]]) -> tuple[list[int], list[npt.NDArray[np.int64]]]:
    """Return the rows seen, ascending, and the atoms' origins of several checkpoints (path, model) of one stream."""
    looks = sorted(
        ((model.n_samples_seen_, path, model.atom_origins_) for path, model in models), key=lambda one: one[:2]
    )
    for (count, path, _), (other, later, _) in pairwise(looks):
        if count == other:
            raise BadInput(
                f"{later}: has seen {count:,} rows, as {path} has; give models of one stream saved at different times"
            )
    return [count for count, _, _ in looks], [rows for _, _, rows in looks]
