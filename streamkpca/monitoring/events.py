"""Runs of alarms, and changes that last."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_choice
from streamkpca.monitoring.causes import Cause, EventRows
from streamkpca.rows.times import Time, Times

Array = npt.NDArray[np.float64]

# One alarm in so many rows is no lasting change.
ROWS_FOR_ALARM = 20


@dataclass(frozen=True)
class Event:
    """A run of alarms.

    Parameters
    ----------
    start, end : int
        Positions of the first alarm and of the row after the last one, counted from the first row of the monitor.
    n_alarms : int
    peak : float
        The largest novelty.
    peak_row : int
        Position of its row.
    severity : float
        The largest ratio of a smoothed score to its threshold; while the model has learned few rows, n, its power
        n / (n + 512), as a part of the stream that is new to a young model is as far off as a fault.
    start_time, end_time, peak_time : datetime64 or float, optional
        Times of the first alarm, of the last one and of the peak, in UTC.
    features : tuple of Cause
        The features that explain it: the fewest whose numbers, had they been as expected, would have made its rows
        usual, at most five. By how surprising they are, alone and given the others.
    is_open : bool
        Whether the next rows may still belong to it.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> monitor = Monitor()
    >>> record = monitor.update(np.random.default_rng(0).normal(size=(1000, 3)))
    >>> record = monitor.update([[0.0, 9.0, 0.0]])
    >>> event = monitor.events_[-1]
    >>> event.end, event.features[0].feature, event.is_open
    (1001, 1, True)
    """

    start: int
    end: int
    n_alarms: int
    peak: float
    peak_row: int
    severity: float
    start_time: Time | None = None
    end_time: Time | None = None
    peak_time: Time | None = None
    features: tuple[Cause, ...] = ()
    is_open: bool = True


@dataclass(frozen=True)
class Change:
    """A lasting change: many rows since some row are alarms.

    Parameters
    ----------
    start : int
        Position of the row that it began with.
    detected : int
        Position of the row after which it was detected.
    share : float
        Share of alarms among the rows from `start` to `detected`.
    features : tuple of Cause
        The features that explain the alarms since that were not learned, as those of an event do; empty if there are
        none. `since` is that of the change.
    is_accepted : bool
        Whether the alarms since `start` were learned.
    start_time, detected_time : datetime64 or float, optional
        Times of the row that it began with, and of the row after which it was detected, in UTC.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> rows = np.random.default_rng(0).normal(size=(2000, 3))
    >>> rows[1000:, 1] += 20.0
    >>> monitor = Monitor(accept_after=500)
    >>> record = monitor.update(rows)
    >>> change = monitor.change_detected_
    >>> change.start, change.features[0].feature, change.is_accepted
    (1000, 1, True)
    """

    start: int
    detected: int
    share: float
    features: tuple[Cause, ...]
    is_accepted: bool
    start_time: Time | None = None
    detected_time: Time | None = None


@dataclass(frozen=True)
class AlarmRun:
    """A cumulative sum of alarms, which tells when there have been many for long.

    It is positive since position `start`, at `start_time`. `excess` are the alarms since then, less one in twenty
    rows.
    """

    start: int = 0
    excess: float = 0.0
    n_alarms: int = 0
    start_time: Time | None = None

    def advanced(self, is_alarm: npt.NDArray[np.bool_], first: int, times: Times | None = None) -> Self:
        """Count the alarms among rows (n,) from position `first` on."""
        if not self.excess and not np.count_nonzero(is_alarm):
            return self
        alarms = np.flatnonzero(is_alarm).tolist()
        # In rows that pay for it: whole numbers, whatever the cuts.
        left, n_alarms, n_seen = round(self.excess * ROWS_FOR_ALARM), self.n_alarms, 0
        start, start_time = self.start, self.start_time
        for i in (*alarms, len(is_alarm)):
            left = max(left - (i - n_seen), 0)
            if not left:
                start, n_alarms, start_time = 0, 0, None
            if i < len(is_alarm):
                if not left:
                    start, start_time = first + i, time_of(times, i)
                left, n_alarms, n_seen = left + ROWS_FOR_ALARM - 1, n_alarms + 1, i + 1
        return type(self)(start, left / ROWS_FOR_ALARM, n_alarms, start_time)


class EventLog(NamedTuple):
    """The latest events, the number of closed ones, and rows of the open one."""

    closed: tuple[Event, ...] = ()
    current: Event | None = None
    n_closed: int = 0
    rows: EventRows | None = None

    def alarmed(
        self, position: int, row: Array, novelty: float, severity: float, time: Time | None = None
    ) -> "EventLog":
        """Add an alarm to the open event, or open one."""
        event = self.current
        if self.rows is None or event is None:
            event = Event(position, position + 1, 1, novelty, position, severity, time, time, time)
            return self._replace(current=event, rows=EventRows.none(len(row)).added(0, position, row, time))
        rows = self.rows.added(event.n_alarms, position, row, time)
        severity = max(event.severity, severity)
        event = replace(event, end=position + 1, n_alarms=event.n_alarms + 1, severity=severity, end_time=time)
        if novelty > event.peak:
            event = replace(event, peak=novelty, peak_row=position, peak_time=time)
        return self._replace(current=event, rows=rows)

    def is_over(self, position: int, end_after: int) -> bool:
        """Tell whether the open event cannot go on with a row at this position."""
        return self.current is not None and position - self.current.end >= end_after

    def ended(self, event: Event | None, most: int) -> "EventLog":
        """End the open event: keep it as `event`, unless that is None, with the latest of `most` closed ones."""
        if event is None:
            return EventLog(self.closed, None, self.n_closed)
        return EventLog((*self.closed, replace(event, is_open=False))[-most:], None, self.n_closed + 1)


def time_of(times: Times | None, i: int) -> Time | None:
    """Return one of the times, if there are any."""
    if times is None:
        return None
    time = times[i]
    return time if isinstance(time, np.datetime64) else float(time)


_OF_FEATURE = "feature direction value expected".split()
_COLUMNS = "start end start_time end_time n_alarms severity peak peak_row peak_time is_open".split()


def events_frame(events: Sequence[Event], to: str, where: str) -> Any:
    """Return events as a table of pandas or polars, with the first of their features."""
    check_choice("to", to, choices=("pandas", "polars"), where=where)
    try:
        library = import_module(to)
    except ImportError:
        raise ImportError(f"{where}: {to} is not installed; pip install {to}, or read monitor.events_") from None
    columns = {name: [getattr(event, name) for event in events] for name in _COLUMNS}
    first = [next(iter(event.features), None) for event in events]
    columns |= {name: [getattr(cause, name, None) for cause in first] for name in _OF_FEATURE}
    return library.DataFrame({name: _column(values) if "time" in name else values for name, values in columns.items()})


def _column(times: list[Time | None]) -> Times:
    """Return times, some of which may be missing, as an array."""
    # polars takes no seconds and no minutes.
    missing = np.datetime64("NaT", "ms") if any(isinstance(time, np.datetime64) for time in times) else np.nan
    return np.array([missing, *(missing if time is None else time for time in times)])[1:]
