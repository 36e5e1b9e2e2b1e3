"""A monitor that goes through the rows of a file, and the events and lasting changes that it finds there."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca.cli.models import n_learned
from streamkpca.cli.tables import Chunk
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.monitoring import Change, Event, Monitor, MonitorRecord
from streamkpca.monitoring.events import Contribution

Array = npt.NDArray[np.float64]

_MOST_KEPT = 1000
_SHOWN_FEATURES = 3


Facts = dict[str, Any]


class News(NamedTuple):
    """The event that began and is still open, if there is one, the events that ended, and the lasting changes."""

    opened: list[Facts]
    closed: list[Facts]
    changes: list[Facts]


class Found(NamedTuple):
    """What a monitor says about a chunk; `stacked` (n, d * lags) are the rows as the model sees them."""

    record: MonitorRecord
    stacked: Array
    news: News


class Watcher:
    """A monitor that goes through the rows of a file.

    Rows are counted from the first one of the file, whatever the monitor has seen before. `names` are those of the
    columns. The latest 1,000 events and changes are kept.
    """

    def __init__(self, monitor: Monitor, names: Sequence[str]) -> None:
        self.monitor = monitor
        self.n_rows = self.n_events = 0
        self.changes: deque[Change] = deque(maxlen=_MOST_KEPT)
        self._names = list(names)
        self._closed: deque[Event] = deque(maxlen=_MOST_KEPT)
        self._open: Event | None = None
        self._times: dict[int, Any] = {}
        self._shift = self._n_closed = 0
        self._change: Change | None = None
        self._before: Array = np.empty((0, len(self._names)))
        self._take_up()

    @property
    def model(self) -> StreamingKernelPCA:
        """The model, which learns."""
        return self.monitor.model

    @property
    def events(self) -> list[Event]:
        """The latest events, by rows of the file and names of columns; the last may be open."""
        return [*self._closed, *([self._open] if self._open else [])]

    def replace(self, monitor: Monitor) -> list[Facts]:
        """Go on with another monitor, and return the open event, which that closes."""
        closed = [] if self._open is None else [replace(self._open, is_open=False)]
        self._closed.extend(closed)
        self.monitor, self._open = monitor, None
        self._take_up()
        return [self._event_facts(event) for event in closed]

    def take(self, chunk: Chunk) -> Found:
        """Score the next rows, and learn those that are to be learned."""
        records, stacked, news = [], [], News([], [], [])
        # A piece holds one change at most.
        step = self.monitor.accept_after
        for start in range(0, max(len(chunk.rows), 1), step):
            part = chunk.cut(slice(start, start + step))
            seen, self._before = stacked_after(self.monitor, self._before, part.rows)
            stacked.append(seen)
            records.append(self.monitor.update(part.rows))
            new = self._follow_events(part)
            # The event that began before is open still, or among those that ended.
            opened = new.opened if new.closed else news.opened + new.opened
            news = News(opened, news.closed + new.closed, news.changes + new.changes)
        record = MonitorRecord(*map(np.concatenate, zip(*records, strict=True)))
        return Found(record, np.concatenate(stacked), news)

    def shares(self, stacked: Array) -> list[list[Facts]]:
        """Name the columns that add most to the novelty of rows (n, d * lags), and their shares of it."""
        if not len(stacked) or not n_learned(self.model):
            return [[] for _ in stacked]
        summed = self.model.contributions(stacked).reshape(len(stacked), self.monitor.lags, -1).sum(axis=1)
        return [
            [
                {"feature": self._names[i], "share": float(row[i] / row.sum())}
                for i in np.argsort(-row, kind="stable")[:_SHOWN_FEATURES]
                if row[i] > 0.0
            ]
            for row in summed
        ]

    def facts(self) -> Facts:
        """Return the events and changes as JSON has them."""
        return {
            "events": [self._event_facts(event) for event in self.events],
            "number_of_events": self.n_events,
            "changes": [self._change_facts(change) for change in self.changes],
        }

    def _take_up(self) -> None:
        """Begin to count the rows and events of a monitor."""
        n_before = int(getattr(self.monitor, "n_rows_", 0))
        self._shift = self.n_rows - n_before
        events = self.monitor.events_ if n_before else []
        self._n_closed = self.monitor.n_events_ - bool(events and events[-1].is_open) if n_before else 0
        self._change = self.monitor.change_detected_ if n_before else None
        self._before = np.empty((0, len(self._names)))

    def _follow_events(self, chunk: Chunk) -> News:
        """Take over what the monitor has found since the last rows."""
        first, self.n_rows = self.n_rows, self.n_rows + len(chunk.rows)
        was_open = self._open
        events, n_events = self.monitor.events_, self.monitor.n_events_
        unknown = events[max(0, len(events) - (n_events - self._n_closed)) :]
        self._open = None
        closed = []
        for event in map(self._own, unknown):
            self._remember(event, chunk, first)
            if event.is_open:
                self._open = event
            else:
                closed.append(event)
        self._n_closed += len(closed)
        self._closed.extend(closed)
        self.n_events += len(unknown) - (was_open is not None)
        opened = self._open is not None and (was_open is None or bool(closed))
        changes = []
        if (change := self.monitor.change_detected_) is not None and change != self._change:
            self._change = change
            start, detected = max(change.start + self._shift, 0), change.detected + self._shift
            changes.append(replace(change, start=start, detected=detected, features=self._named(change.features)))
            self.changes.extend(changes)
        news = News(
            [self._event_facts(self._open)] if opened and self._open else [],
            [self._event_facts(event) for event in closed],
            [self._change_facts(one) for one in changes],
        )
        self._forget_times()
        return news

    def _own(self, event: Event) -> Event:
        """Count the rows of an event from the first one of the file, and name its columns."""
        start, end, peak_row = (max(row + self._shift, 0) for row in (event.start, event.end, event.peak_row))
        return replace(event, start=start, end=end, peak_row=peak_row, features=self._named(event.features))

    def _named(self, features: Sequence[Contribution]) -> tuple[Contribution, ...]:
        return tuple(
            one if isinstance(one.feature, str) else Contribution(self._names[one.feature], one.contribution)
            for one in features
        )

    def _remember(self, event: Event, chunk: Chunk, first: int) -> None:
        """Keep the times of an event that are in this chunk."""
        if chunk.times is not None:
            for row in (event.start, event.end - 1, event.peak_row):
                if first <= row < first + len(chunk.times):
                    self._times[row] = chunk.times[row - first]

    def _forget_times(self) -> None:
        """Keep the times of the events that are kept."""
        if len(self._times) > 6 * _MOST_KEPT:
            needed = {row for event in self.events for row in (event.start, event.end - 1, event.peak_row)}
            self._times = {row: when for row, when in self._times.items() if row in needed}

    def _event_facts(self, event: Event) -> Facts:
        rows = {"first": event.start, "last": max(event.end - 1, 0), "peak": event.peak_row}
        facts: Facts = {f"{name}_row": row for name, row in rows.items()}
        facts |= {f"{name}_time": self._times[row] for name, row in rows.items() if row in self._times}
        shares = [
            {"feature": one.feature, "share": min(one.contribution / max(event.peak, 1e-300), 1.0)}
            for one in event.features[:_SHOWN_FEATURES]
        ]
        return facts | {
            "alarms": event.n_alarms,
            "peak": event.peak,
            "features": shares,
            "is_open": event.is_open,
        }

    def _change_facts(self, change: Change) -> Facts:
        facts: Facts = {"first_row": change.start, "detected_row": change.detected}
        if change.start in self._times:
            facts["first_time"] = self._times[change.start]
        shares = [{"feature": one.feature, "share": one.contribution} for one in change.features[:_SHOWN_FEATURES]]
        return facts | {"share_of_alarms": change.share, "features": shares, "is_accepted": change.is_accepted}


def stacked_after(monitor: Monitor, before: Array, rows: Array) -> tuple[Array, Array]:
    """Return rows as the model of a monitor sees them, given some before them, and those before the next ones."""
    both = np.concatenate([before, rows])
    return monitor.stacked(both)[len(before) :], both[len(both) - min(len(both), monitor.lags - 1) :]


def written_shares(features: Sequence[Facts]) -> str:
    """Write columns and their shares in one line."""
    return ", ".join(f"{one['feature']} {one['share']:.0%}" for one in features)
