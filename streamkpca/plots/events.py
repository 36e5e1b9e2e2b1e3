"""An event's features over time."""

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_integer
from streamkpca.errors import name_errors
from streamkpca.monitoring.periods import n_features_of
from streamkpca.plots import canvas
from streamkpca.rows.validation import feature_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

    from streamkpca.monitoring import Event, Monitor

# Letters beside a panel in one line.
_MOST_LETTERS = 16
# Rows drawn on either side of an event: as many as it has, and at least this number.
_AROUND = 50


@name_errors
def draw_event(
    monitor: "Monitor",
    event: "Event",
    X: Any,
    *,
    first: int = 0,
    time: npt.ArrayLike | None = None,
    n_features: int = 3,
    names: Sequence[str] | None = None,
    figure: "Figure | SubFigure | None" = None,
) -> "Figure | SubFigure":
    """Draw the features that explain an event over time, with the values that are expected from the others.

    Parameters
    ----------
    monitor : Monitor
        Its model, as it is now, says what is expected; when the rows were judged, it may have known less.
    event : Event
        One of its `events_`.
    X : array-like of shape (n, d)
        Rows of the stream, among them those of the event.
    first : int
        Position in the stream of the first of these rows.
    time : array-like of shape (n,), optional
        Times of the rows; their positions if None.
    n_features : int
        Most features that are drawn, each in a panel.
    names : sequence of str, optional
        Names of the features, by default those of the columns of X.
    figure : Figure or SubFigure, optional
        Where it is drawn; a new figure if None.

    Returns
    -------
    Figure or SubFigure

    Raises
    ------
    TypeError, ValueError
        The event names no feature, or lies outside of the rows; X is no array of the monitor's features; there is not
        one time a row.

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
    >>> draw_event(monitor, max(monitor.events_, key=lambda event: event.severity), rows).axes[0].get_ylabel()
    'feature 2'
    """
    n_features = check_integer("n_features", n_features, least=1)
    n, around = len(X), max(_AROUND, event.end - event.start)
    if not first <= event.start < event.end <= first + n:
        raise ValueError(
            f"expected the rows of the event, {event.start} to {event.end}, but got {n} rows from row {first} "
            "on; pass X with these rows, and first="
        )
    if not event.features:
        raise ValueError("the event names no feature; draw its scores with draw_novelty")
    when = canvas.positions_or_times(n, time, first=first)
    begin, end = max(event.start - around - first, 0), min(event.end + around - first, n)
    # Without a period, times may be anything that can be drawn.
    times = None if monitor.period is None or time is None else when[begin:end]
    rows = monitor.stack(X[begin:end], first=first + begin, time=times)
    own_names, n_seen = feature_names(X), monitor.model.n_features_in_
    d = n_features_of(n_seen, monitor.period)
    if rows.shape[1] != n_seen:
        raise ValueError(f"expected the {d} features of the monitor but got {np.shape(X)[1]}; pass its rows")
    known = getattr(monitor.model, "feature_names_in_", None)
    if known is not None and own_names is not None and list(own_names) != list(known):
        raise ValueError(f"expected the columns {list(known)} but got {list(own_names)}; sort them so")
    known_names = own_names if names is None else names
    names = [f"feature {j}" for j in range(d)] if known_names is None else [str(name) for name in known_names]
    chosen = slice(None, None, canvas.every_nth(len(rows), canvas.MOST_POINTS))
    rows, drawn = rows[chosen], when[begin:end][chosen]
    features = [cause.feature for cause in event.features[:n_features]]
    figure = figure or canvas.make_figure(height=1.2 + 1.6 * len(features))
    for axes, feature in zip(figure.subplots(len(features), sharex=True, squeeze=False)[:, 0], features, strict=True):
        if isinstance(feature, str) and feature not in names:
            raise ValueError(f"the event is one of {feature!r}, but X has no such name; pass the table")
        column = names.index(feature) if isinstance(feature, str) else feature
        part = rows.copy()
        part[:, column] = np.nan
        expected, low, high = monitor.model.expected(part, column).T
        axes.fill_between(drawn, low, high, color=canvas.GOOD, linewidth=0, alpha=0.3, label="expected in hindsight")
        axes.plot(drawn, expected, color=canvas.GOOD, linewidth=0.9)
        values = rows[:, column]
        axes.plot(drawn, values, color=canvas.LINE, linewidth=0.9, label="value", **canvas.mark_alone(values))
        canvas.shade(axes, when[event.start - first], when[event.end - 1 - first], "event")
        canvas.finish(axes, "", "row" if time is None else "time", fill(names[column], _MOST_LETTERS))
        axes.label_outer()
    canvas.add_legend_below(axes)
    return canvas.show(figure, figure.figure)
