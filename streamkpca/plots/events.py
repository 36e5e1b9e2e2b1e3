"""An event's features over time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_integer
from streamkpca.plots import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from streamkpca.monitoring import Event

Array = npt.NDArray[np.float64]

# Rows drawn on either side of an event: as many as it has, and at least so many.
_AROUND = 50


def draw_event(
    event: "Event",
    X: Any,
    *,
    first: int = 0,
    time: npt.ArrayLike | None = None,
    names: Sequence[str] | None = None,
    n_features: int = 3,
) -> "Figure":
    """Draw the features that explain an event over time, with the values that were expected.

    Parameters
    ----------
    event : Event
        One of `Monitor.events_`.
    X : array-like of shape (n, d)
        Rows of the stream, among them those of the event.
    first : int, default=0
        Position in the stream of the first of these rows.
    time : array-like of shape (n,), optional
        Times of the rows; their positions if None.
    names : sequence of str, optional
        Names of the columns of X where events have names and X has none.
    n_features : int, default=3
        Most features that are drawn, each in a panel.

    Returns
    -------
    Figure
        Features from the first one down. The expected value and its range begin where the feature began to deviate.

    Raises
    ------
    ValueError
        The event names no feature, or lies outside of the rows; times or names are too few.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> from streamkpca.plots import draw_event
    >>> random = np.random.default_rng(0)
    >>> rows = np.repeat(random.normal(size=(1500, 1)), 3, axis=1) + 0.1 * random.normal(size=(1500, 3))
    >>> rows[1200:1230, 2] += 3.0
    >>> monitor = Monitor()
    >>> record = monitor.update(rows)
    >>> worst = max(monitor.events_, key=lambda event: event.severity)
    >>> draw_event(worst, rows).axes[0].get_ylabel()
    'feature 2'
    """
    where = "draw_event"
    n_features = check_integer("n_features", n_features, least=1, where=where)
    n_rows = len(X)
    if not (first <= event.start and event.end <= first + n_rows):
        raise ValueError(
            f"{where} expected the rows of the event, {event.start} to {event.end}, but got {n_rows} rows from row "
            f"{first} on; pass X with these rows, and first="
        )
    if not event.features:
        raise ValueError(f"{where}: the event names no feature; draw its rows with draw_novelty")
    if time is not None:
        canvas.check_count(time, n_rows, "times", where=where)
    when = np.arange(first, first + n_rows) if time is None else np.asarray(time)
    around = max(_AROUND, event.end - event.start)
    begin, end = max(event.start - around - first, 0), min(event.end + around - first, n_rows)
    causes = event.features[:n_features]
    figure = canvas.make_figure(height=1.2 + 1.6 * len(causes))
    for axes, cause in zip(figure.subplots(len(causes), sharex=True, squeeze=False)[:, 0], causes, strict=True):
        values = _column(X, cause.feature, names, where)
        axes.plot(when[begin:end], values[begin:end], color=canvas.LINE, linewidth=0.9, label="value")
        since = max(cause.since - first, begin)
        span = when[[since, min(event.end - first, n_rows) - 1]]
        style: dict[str, Any] = {"color": canvas.GOOD, "linewidth": 0}
        axes.fill_between(span, cause.low, cause.high, alpha=0.3, label="expected", **style)
        axes.hlines(cause.expected, *span, color=canvas.GOOD, linewidth=1.1)
        axes.axvspan(when[event.start - first], when[event.end - 1 - first], color=canvas.EVENT, alpha=0.3, zorder=0)
        name = f"feature {cause.feature}" if isinstance(cause.feature, int) else cause.feature
        canvas.finish(axes, "", "", name)
    canvas.add_legend_below(axes)
    canvas.finish(axes, "", "row" if time is None else "time", name)
    return canvas.shown(figure, figure)


def _column(X: Any, feature: str | int, names: Sequence[str] | None, where: str) -> Array:
    """Return the numbers of a feature: by its name in a table, by the position of its name else."""
    if isinstance(feature, str) and not isinstance(X, np.ndarray) and hasattr(X, "columns"):
        return np.asarray(X[feature], dtype=np.float64)
    if isinstance(feature, str):
        if names is None or feature not in names:
            raise ValueError(f"{where}: the event has feature {feature!r}, but X has no such name; pass names=")
        feature = list(names).index(feature)
    return np.asarray(X, dtype=np.float64)[:, feature]
