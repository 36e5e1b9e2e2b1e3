"""Scores over time."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import Array
from streamkpca.errors import name_errors
from streamkpca.monitoring import Monitor
from streamkpca.plots import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from streamkpca.monitoring import Change, Event


# Longer series are drawn as ranges of pieces.
_PIECES = 1500
_MOST_SINGLE_ROWS = 2 * _PIECES


# Lowest score drawn, as a share of the median. The 1e-16 of atoms would squeeze all other scores.
_LOWEST_SHARE = 1e-4


@name_errors
def draw_novelty(
    novelty: "npt.ArrayLike | Monitor",
    *,
    name: str | None = None,
    time: npt.ArrayLike | None = None,
    threshold: npt.ArrayLike | None = None,
    alarms: npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    label_names: Sequence[str] = ("healthy", "anomalous"),
    events: "Sequence[Event]" = (),
    changes: "Sequence[Change]" = (),
    ax: "Axes | None" = None,
) -> "Axes":
    """Draw scores over time, with their threshold, the alarms and the known anomalies.

    Parameters
    ----------
    novelty : array-like of shape (n,), or Monitor
        Scores; the higher, the more novel. NaN for a row without a score. Of a monitor, the rarities that its last call
        of `update` returned, with their times, threshold, alarms, events and change.
    name : str, optional
        Name of the scores; "novelty", or "rarity" of a monitor, if None.
    time : array-like of shape (n,), optional
        Time of each row, ascending, as numbers or datetime64; its position if None.
    threshold : float or array-like of shape (n,), optional
        Score above which a row is an alarm.
    alarms : array-like of shape (n,) of bool, optional
        Whether each row is an alarm, a tick at the upper edge; by default, rows above the threshold are.
    labels : array-like of shape (n,), optional
        0 for healthy rows, another number for each kind of anomaly.
    label_names : sequence of str
        Names of the kinds 0, 1 and so on; others are called by their number.
    events : sequence of Event
        Shaded spans, whose rows are counted from the first score, as of `Monitor.events_`.
    changes : sequence of Change
        Marked lines, such as `Monitor.change_detected_`.
    ax : Axes, optional
        Axes to draw on; those of a new figure if None.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError, ValueError
        The scores are not one-dimensional; times, thresholds, alarms or labels differ from them in number; a label
        is not finite; or times are neither numbers nor dates.

    Notes
    -----
    The scale is logarithmic. Scores below 1e-4 of the median, such as those of atoms, are drawn at that value. A long
    series is drawn as the range and the median of 1,500 equal pieces: no peak and no lone alarm is lost.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> from streamkpca.plots import draw_novelty
    >>> monitor, rows = Monitor(), np.random.default_rng(0).normal(size=(600, 3))
    >>> rows[500:] += 9.0
    >>> record = monitor.update(rows)
    >>> draw_novelty(record.novelty, threshold=record.threshold, events=monitor.events_).get_title()
    'novelty over time'
    """
    first = 0
    if isinstance(novelty, Monitor):
        record, change, n_rows = novelty.record_, novelty.change_detected_, novelty.n_rows_
        first = n_rows - len(record.rarity)
        events = [replace(event, start=event.start - first, end=event.end - first) for event in novelty.events_]
        changes = [replace(change, start=change.start - first)] if change else ()
        name, time, threshold, alarms = name or "rarity", record.time, record.threshold, record.is_alarm
        novelty = record.rarity
    name = name or "novelty"
    scores = np.asarray(novelty, dtype=np.float64)
    if scores.ndim != 1:
        raise ValueError(f"expected one score for each row but got an array of shape {scores.shape}; ravel it")
    when = canvas.positions_or_times(len(scores), time, first=first)
    for values, what in ((labels, "labels"), (threshold, "thresholds"), (alarms, "alarms")):
        if values is not None and np.ndim(values):
            canvas.check_count(values, len(scores), what)
    classes = np.zeros(len(scores)) if labels is None else np.asarray(labels, dtype=np.float64)
    if not np.isfinite(classes).all():
        raise ValueError("expected numbers as labels but got NaN or infinity; 0 is a healthy row")
    axes = canvas.axes_or_new(ax)
    known = np.isfinite(scores)
    positive = scores[known & (scores > 0)]
    lowest = max(float(positive.min()), _LOWEST_SHARE * float(np.median(positive))) if len(positive) else 1e-12
    shown = np.maximum(scores, lowest)
    axes.set_yscale("log")
    name_of_rest = label_names[0] if classes.any() else None if threshold is None else "rows"
    _draw_series(axes, when, np.where(classes == 0, shown, np.nan), name_of_rest)
    palette = canvas.on_background(canvas.GROUP_COLORS, axes)
    for i, kind in enumerate(np.unique(classes[classes != 0])):
        part = np.flatnonzero(known & (classes == kind))
        if len(part) > canvas.MOST_POINTS:
            # The highest of each piece.
            pieces = np.array_split(part, _PIECES)
            part = np.array([piece[np.argmax(shown[piece])] for piece in pieces])
        label = label_names[int(kind)] if kind in range(len(label_names)) else f"{kind:g}"
        style: dict[str, Any] = {"s": 5, "linewidths": 0, "zorder": 3, "rasterized": True}
        axes.scatter(when[part], shown[part], color=palette[i % len(palette)], label=label, **style)
    if threshold is not None:
        level = np.broadcast_to(np.asarray(threshold, dtype=np.float64), scores.shape)
        dashes: dict[str, Any] = {"marker": "_" if len(level) == 1 else "", "linewidth": 0.9, "linestyle": "--"}
        axes.plot(when, level, color=canvas.ink(axes), zorder=4, label="threshold", **dashes)
        if alarms is None:
            with np.errstate(invalid="ignore"):
                alarms = known & (scores > level)
    if alarms is not None:
        _draw_alarms(axes, when, np.flatnonzero(np.asarray(alarms)))
    _draw_events(axes, when, events)
    _draw_changes(axes, when, changes)
    if axes.get_legend_handles_labels()[0]:
        canvas.add_legend_below(axes)
    axes.margins(x=0.005)
    name_of_axis = f"{name}, at least {lowest:.2g}" if (known & (scores < lowest)).any() else name
    canvas.finish(axes, f"{name} over time", "row" if time is None else "time", name_of_axis)
    return axes


def _draw_series(axes: "Axes", when: npt.NDArray[Any], values: Array, label: str | None) -> None:
    if len(values) <= _MOST_SINGLE_ROWS:
        axes.plot(when, values, color=canvas.LINE, linewidth=0.7, label=label, **canvas.mark_alone(values))
        return
    pieces = np.array_split(values, _PIECES)
    starts = when[np.cumsum([0, *map(len, pieces)])[:-1]]
    known = [piece[np.isfinite(piece)] for piece in pieces]
    low, middle, high = np.array([np.percentile(p, [0, 50, 100]) if len(p) else (np.nan,) * 3 for p in known]).T
    # The edge keeps a peak in a single piece visible.
    axes.fill_between(
        starts, low, high, facecolor=canvas.BAR, edgecolor=canvas.BAR, alpha=0.6, linewidth=0.6, label=label
    )
    axes.plot(starts, middle, color=canvas.LINE, linewidth=0.8)


def _draw_alarms(axes: "Axes", when: npt.NDArray[Any], alarms: npt.NDArray[np.intp]) -> None:
    """Draw a tick for the first alarm of each piece: lone ones always stay."""
    if len(alarms):
        first = np.unique(alarms * _PIECES // max(len(when), _PIECES), return_index=True)[1]
        style: dict[str, Any] = {"color": canvas.ink(axes), "markersize": 7, "alpha": 0.6, "label": "alarm"}
        axes.plot(when[alarms[first]], np.full(len(first), 0.985), "|", transform=axes.get_xaxis_transform(), **style)


def _draw_events(axes: "Axes", when: npt.NDArray[Any], events: "Sequence[Event]") -> None:
    """Shade the rows of events; those that are nearer than a piece of the picture are one span."""
    spans = list[list[int]]()
    for start, end in sorted((event.start, event.end) for event in events):
        first, last = max(start, 0), min(end, len(when)) - 1
        if spans and first - spans[-1][1] <= len(when) // _PIECES:
            spans[-1][1] = max(spans[-1][1], last)
        elif first <= last:
            spans.append([first, last])
    for i, (first, last) in enumerate(spans):
        canvas.shade(axes, when[first], when[last], None if i else "event")


def _draw_changes(axes: "Axes", when: npt.NDArray[Any], changes: "Sequence[Change]") -> None:
    """Mark the rows that lasting changes began with, and name the first feature that changed."""
    ink, plane = canvas.ink(axes), axes.get_xaxis_transform()
    # An annotation that is not in units of the data does not convert dates by itself.
    convert: Any = axes.convert_xunits
    style: dict[str, Any] = {"fontsize": "small", "color": ink, "va": "bottom", "parse_math": False}
    for i, change in enumerate(one for one in changes if 0 <= one.start < len(when)):
        at = convert(when[change.start])
        axes.axvline(at, color=ink, linewidth=1.2, linestyle=":", label=None if i else "lasting change", zorder=4)
        causes = (cause.feature for cause in change.features[:1])
        text = ": ".join(["change", *(f"feature {one}" if isinstance(one, int) else one for one in causes)])
        axes.annotate(text, (at, 0.02 + 0.05 * (i % 4)), (3, 0), xycoords=plane, textcoords="offset points", **style)
