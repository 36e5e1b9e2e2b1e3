"""Events: runs of alarms, and what users said of them."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from streamkpca._core.arrays import Array, Flags, Positions
from streamkpca._core.concurrency import cached_property, replace_fields
from streamkpca.monitoring.causes import MOST_ROWS, Cause, EventRows, Healthy, write_cause, write_place
from streamkpca.rows.times import Time

# Numbers that are kept of the alarms of closed events, if all have as many rows as are kept of one.
_MOST_NUMBERS = 200_000
# Features, of those that explain events, by which these are alike.
_LEADING = 2
# Numbers that are this many deviations from healthy ones, or fewer, say nothing about the kind of an event.
_USUAL = 3.0
# Two rows are alike if they differ by less than this share of the larger one.
_LARGEST_DIFFERENCE = 0.5
# Rows of reviewed events that are kept, at most; the latest are.
_MOST_REVIEWED = 2048


@dataclass(frozen=True)
class Event:
    """A run of alarms, which begins at one that is rarer than the rows before it.

    Parameters
    ----------
    start, end : int
        Positions of the first alarm and of the row after the last one, counted from the first row of the monitor.
    n_alarms : int
    severity : float
        Rarity of its rarest row: the number of healthy rows in which one is as odd.
    peak_row, peak : int and float
        Position of this row, and its novelty.
    kind : {"place", "relation", "recent"}
        What is rare about it: a few features, half at most, do not fit the others, beside which all would be usual;
        features do not fit the last rows; or, if neither, its rows are where no row was before.
    group : int
        `start` of the first event with the same two leading features and directions.
    start_time, end_time, peak_time : datetime64 or float, optional
        Times of the first alarm, of the last one and of the peak, in UTC.
    features : tuple of Cause
        The features that explain it, at most five: those that are extreme during it, alone and given the others.
    ranking : tuple of str or int
        All features, by how extreme they are during it.
    feedback : {"accepted", "confirmed"}, optional
        What was said of it, by `Monitor.accept` or `Monitor.confirm`.
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
    >>> print(event)
    event at row 1,000, in feature 1, once in 5,300 rows
    """

    start: int
    end: int
    n_alarms: int
    severity: float
    peak_row: int
    peak: float
    kind: str
    group: int
    start_time: Time | None = None
    end_time: Time | None = None
    peak_time: Time | None = None
    features: tuple[Cause, ...] = ()
    ranking: tuple[str | int, ...] = ()
    feedback: str | None = None
    is_open: bool = True

    @cached_property
    def _likeness(self) -> tuple[Any, ...]:
        """What events that are alike share."""
        return tuple((cause.feature, cause.direction) for cause in self.features[:_LEADING])

    def __str__(self) -> str:
        begin, said = write_place(self.start, self.start_time), f", {self.feedback}" if self.feedback else ""
        return f"event at {begin}{write_cause(self.features)}, once in {write_rarity(self.severity)} rows{said}"


class EventLog(NamedTuple):
    """The latest events, the number of closed ones, and rows of the open one.

    Of the latest closed events, one for each of `sizes` (e,), the rows (k, D) are kept one after another.
    """

    kept: Array
    sizes: Positions
    closed: tuple[Event, ...] = ()
    current: Event | None = None
    n_closed: int = 0
    rows: EventRows | None = None

    @classmethod
    def none(cls, width: int) -> Self:
        """Return the log of a stream without events, of rows of `width` numbers."""
        return cls(np.empty((0, width)), np.empty(0, dtype=np.int64))

    def add_alarm(self, position: int, row: Array, novelty: float, rarity: float, kind: str, time: Time | None) -> Self:
        """Add an alarm to the open event, or open one."""
        event = self.current
        if self.rows is None or event is None:
            event = Event(position, position + 1, 1, rarity, position, novelty, kind, position, time, time, time)
            return self._replace(current=event, rows=EventRows(np.array([position]), row[None], (time,)))
        rows = self.rows.add(event.n_alarms, position, row, time)
        event = replace_fields(event, end=position + 1, n_alarms=event.n_alarms + 1, end_time=time)
        if rarity > event.severity:
            event = replace(event, severity=rarity, peak_row=position, peak=novelty, kind=kind, peak_time=time)
        return self._replace(current=event, rows=rows)

    def is_over(self, position: int, end_after: int) -> bool:
        """Tell whether the open event cannot go on with a row at this position."""
        return self.current is not None and position - self.current.end >= end_after

    def explain(self, event: Event, features: tuple[Cause, ...], ranking: tuple[str | int, ...]) -> Event:
        """Return the open event with its features, in the group of the first event that is like it."""
        event = replace(event, features=features, ranking=ranking)
        # Events that are alike are of one group, and most resemble one of the latest.
        alike = (other.group for other in reversed(self.closed) if other._likeness == event._likeness)
        return replace(event, group=next(alike, event.start)) if features else event

    def end(self, event: Event | None, most: int) -> Self:
        """End the open event: keep it as `event`, unless that is None; of the closed ones the latest `most` stay."""
        if event is None or self.rows is None:
            return self._replace(current=None, rows=None)
        n_kept = min(max(_MOST_NUMBERS // (MOST_ROWS * self.kept.shape[1]), 1), most)
        sizes = np.append(self.sizes, len(self.rows.rows))[-n_kept:]
        kept = np.concatenate([self.kept, self.rows.rows])
        return self._replace(
            kept=kept[len(kept) - int(sizes.sum()) :],
            sizes=sizes,
            closed=(*self.closed, replace_fields(event, is_open=False))[-most:],
            current=None,
            n_closed=self.n_closed + 1,
            rows=None,
        )

    def rows_of(self, event: Event) -> Array | None:
        """Return the rows (k, D) kept of a closed event, or of the latest one in its group; None if none are."""
        kept = self.closed[len(self.closed) - len(self.sizes) :]
        same = [i for i, other in enumerate(kept) if other.start == event.start]
        same = same or [i for i, other in enumerate(kept) if other.group == event.group]
        if not same:
            return None
        stop = int(self.sizes[: same[-1] + 1].sum())
        return self.kept[stop - self.sizes[same[-1]] : stop]

    def note(self, event: Event, feedback: str) -> Self:
        """Note what was said of a closed event."""
        noted = (replace_fields(e, feedback=feedback) if e.start == event.start else e for e in self.closed)
        return self._replace(closed=tuple(noted))


@dataclass(frozen=True)
class ReviewedEvents:
    """Rows (k, D) of events that a user has reviewed, and which of these were faults; a value.

    The signature of a row has, for each of its features, how far it is from healthy ones: alone, and given the others
    by linear prediction. Of each distance x only log(1 + |x| - 3) counts, with its sign, and nothing below 3. A row is
    like the nearest reviewed one if their signatures differ by less than half of the longer one.
    """

    rows: Array
    are_faults: Flags

    @classmethod
    def none(cls, width: int) -> Self:
        """Return no events, of rows of `width` numbers."""
        return cls(np.empty((0, width)), np.zeros(0, dtype=bool))

    def add(self, rows: Array, is_fault: bool) -> Self:
        """Add the rows (n, D) of an event."""
        most = min(_MOST_REVIEWED, max(_MOST_NUMBERS // rows.shape[1], len(rows)))
        are_faults = np.concatenate([np.full(len(rows), is_fault), self.are_faults])
        # The newest stand first: of two equal rows, the last word counts.
        return type(self)(np.concatenate([rows, self.rows])[:most], are_faults[:most])

    def recognise(self, rows: Array, healthy: Healthy) -> tuple[Flags, Flags]:
        """Tell which rows (n, D) are like those of events that were fine, and which like those of faults: (n,)."""
        reviewed, found = _signatures(self.rows, healthy), _signatures(rows, healthy)
        # One by one, as rows may be many.
        nearest = [int(np.argmin(np.linalg.norm(reviewed - signature, axis=1))) for signature in found]
        differences = np.linalg.norm(found - reviewed[nearest], axis=1)
        longer = np.maximum(np.linalg.norm(found, axis=1), np.linalg.norm(reviewed, axis=1)[nearest])
        is_like = differences < _LARGEST_DIFFERENCE * longer
        return is_like & ~self.are_faults[nearest], is_like & self.are_faults[nearest]


def _signatures(rows: Array, healthy: Healthy) -> Array:
    """Return the signatures (n, s) of rows (n, D)."""
    distances = np.concatenate(healthy.measure(rows), axis=1)
    signatures: Array = np.sign(distances) * np.log1p(np.maximum(np.abs(distances) - _USUAL, 0.0))
    return signatures


def write_rarity(rarity: float) -> str:
    """Write a rarity in two digits."""
    return f"{float(f'{rarity:.2g}'):,.0f}"
