"""Runs of alarms, and changes that last."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# An event ends with its last alarm once this number of rows without an alarm has come after it.
PATIENCE = 10
# Share of alarms that is no lasting change.
ALLOWANCE = 0.05


class Contribution(NamedTuple):
    """How much a feature adds to a novelty."""

    feature: str | int
    contribution: float


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
    features : tuple of Contribution
        Features by what they add to the novelty of that row, at most five, the largest first.
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
    features: tuple[Contribution, ...]
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
    features : tuple of Contribution
        Features by their share of the largest novelties since, at most five.
    is_accepted : bool
        Whether the alarms since `start` were learned.

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
    features: tuple[Contribution, ...]
    is_accepted: bool


@dataclass(frozen=True)
class AlarmRun:
    """A cumulative sum of alarms, which tells when there have been many for long.

    It is positive since position `start`. `excess` are the alarms since then, less one in twenty rows, and
    `contributions` (d,) the sum of those to the largest novelty of each chunk.
    """

    start: int
    excess: float
    n_alarms: int
    contributions: Array

    @classmethod
    def none(cls, n_features: int) -> Self:
        """Return a sum of 0."""
        return cls(0, 0.0, 0, np.zeros(n_features))

    def advanced(self, is_alarm: npt.NDArray[np.bool_], first: int) -> Self:
        """Count the alarms among rows (n,) from position `first` on."""
        if not self.excess and not is_alarm.any():
            return self
        start, excess, n_alarms, contributions = self.start, self.excess, self.n_alarms, self.contributions
        for i, alarm in enumerate(is_alarm.tolist()):
            if not excess and alarm:
                start, n_alarms = first + i, 0
            n_alarms += alarm
            excess = max(excess + alarm - ALLOWANCE, 0.0)
            if not excess:
                start, n_alarms, contributions = 0, 0, np.zeros_like(contributions)
        return type(self)(start, excess, n_alarms, contributions)

    def explained(self, contributions: Array) -> Self:
        """Add the contributions (d,) to the largest novelty of a chunk."""
        return replace(self, contributions=self.contributions + contributions)


class EventLog(NamedTuple):
    """The latest events, and the number of closed ones."""

    closed: tuple[Event, ...] = ()
    current: Event | None = None
    n_closed: int = 0

    @property
    def events(self) -> list[Event]:
        """All events that are kept, the oldest first."""
        return [*self.closed, *([self.current] if self.current else [])]

    def alarmed(self, position: int, novelty: float) -> "EventLog":
        """Add an alarm to the open event, or open one."""
        event = self.current
        if event is None:
            return self._replace(current=Event(position, position + 1, 1, novelty, position, ()))
        event = replace(event, end=position + 1, n_alarms=event.n_alarms + 1)
        if novelty > event.peak:
            event = replace(event, peak=novelty, peak_row=position)
        return self._replace(current=event)

    def is_over(self, position: int) -> bool:
        """Tell whether the open event cannot go on with a row at this position."""
        return self.current is not None and position - self.current.end >= PATIENCE

    def ended(self, most: int) -> "EventLog":
        """Close the open event, and keep the latest `most` of the closed ones."""
        assert self.current is not None
        closed = (*self.closed, replace(self.current, is_open=False))[-most:]
        return EventLog(closed, None, self.n_closed + 1)


def largest_contributions(contributions: Array, names: list[str] | None, most: int = 5) -> tuple[Contribution, ...]:
    """Return the features with the largest contributions (d,), without those that add nothing."""
    order = np.argsort(-contributions, kind="stable")[:most]
    return tuple(
        Contribution(names[i] if names else int(i), float(contributions[i])) for i in order if contributions[i] > 0.0
    )
