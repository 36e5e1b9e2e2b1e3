"""What a monitor finds in files: events and changes by the files' rows, times and columns; as JSON, text, a picture."""

import math
from bisect import bisect
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import nlargest
from os.path import exists
from typing import Any

import click
import numpy as np

from streamkpca import plots
from streamkpca.cli.console import printable
from streamkpca.cli.reading import describe_look, write_line
from streamkpca.monitoring import Change, Event, Monitor, MonitorRecord, Report
from streamkpca.monitoring.events import write_rarity
from streamkpca.monitoring.report import EventJudge, Facts, Places, write_count
from streamkpca.tables import Batch, Table

# The rarest events, of which a long run has kept at least this number for the list at the end.
_MOST_EVENTS = 1000
# Stretches of rows without a break whose numbers in the file are known.
_MOST_STRETCHES = 100_000
# Events in the picture.
_DRAWN_EVENTS = 3
# Events of a saved monitor in the list of `info`.
_LISTED_EVENTS = 10
# Numbers of the latest rows that are kept for pictures: 256 MB.
_MOST_DRAWN = 2**25


class FilePlaces(Places):
    """Where rows are in their files, and how these name columns."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = tables
        self.unit = f"{'unsorted ' * tables[0].sorts}{tables[0].unit}"
        # Where stretches of rows begin: in the stream, in their file, and its name.
        self._stretches = list[tuple[int, int, str]]()

    def note(self, position: int, table: Table, rows: Any) -> None:
        """Note that rows of these numbers (n,) in a file are at a position of the stream."""
        goes_on = self._row_of(position) == (rows[0], table.path)
        starts = np.flatnonzero(np.diff(rows, prepend=rows[0] - (1 if goes_on else 2)) != 1)
        self._stretches += [(position + i, int(rows[i]), table.path) for i in starts.tolist()]
        del self._stretches[:-_MOST_STRETCHES]

    def _row_of(self, position: int) -> tuple[int | None, str | None]:
        """Return the number of a row in its file, and the file; None before this run, or long ago."""
        i = bisect(self._stretches, position, key=lambda one: one[0]) - 1
        if i < 0:
            return None, None
        first, row, path = self._stretches[i]
        return row + position - first, path

    def find(self, name: str, position: int, time: Any) -> Facts:
        """Return the row's number in its file, and its time."""
        row, path = self._row_of(position)
        place: Facts = {f"{name}_row": row}
        if len(self.tables) > 1:
            place[f"{name}_file"] = path
        if time is not None:
            place[f"{name}_time"] = self.tables[0].clock(time)
        return place

    def describe_feature(self, feature: str | int) -> Facts:
        """Return the name of a column, whether it is read by its differences, and words that it stands for."""
        table = self.tables[0]
        name = table.names[feature] if isinstance(feature, int) else feature
        facts: Facts = {"feature": name, "is_difference": name in table.reading.differences}
        if words := table.words(name):
            facts["words"] = words
        return facts


class Found:
    """What a monitor finds in tables, told by their rows, times and columns."""

    def __init__(self, monitor: Monitor, tables: Sequence[Table], *, draws: bool) -> None:
        self.monitor, self.tables, self.n_rows, self.n_alarms, self.n_declared = monitor, tables, 0, 0, 0
        self.places = FilePlaces(tables)
        self.changes: list[Change] = []
        self._machine = {} if tables[0].key is None else {"machine": tables[0].key}
        self._draws, self._is_back, self._first = draws, False, monitor.n_rows_
        # A model may have learned rows before the monitor began.
        self._n_fitted = max(getattr(monitor.model, "n_samples_seen_", 0) - self._first, 0)
        self._latest: Any = None
        # Events of before; the last change; the last event told, and whether it had ended.
        self._n_before = self._n_known = monitor.n_events_
        self._n_changes_told, self._told = 0, (0, False)
        self._in_report: Any = None
        # By their numbers among all events of the monitor, from 1 on: the rarest, and the latest.
        self._events = dict[int, Event]()
        self._records, self._labels, self._numbers = list[MonitorRecord](), list[Any](), deque[Any]()

    def take(self, table: Table, batch: Batch, *, n_healthy: int = 0) -> MonitorRecord:
        """Score the next rows, of which the first are known to be healthy, and learn those that are to be learned."""
        self.places.note(self._first + self.n_rows, table, batch.rows)
        # A monitor keeps the names of its first rows, for its events and for users in Python.
        rows = batch.numbers if self.monitor.n_rows_ else table.name_columns(batch.numbers)
        record = self._update(rows, self._sort_times(table, batch), min(n_healthy, len(batch.rows)))
        self.n_rows += len(batch.rows)
        self.n_declared += min(n_healthy, len(batch.rows))
        self.n_alarms += int(record.is_alarm.sum())
        if self._draws or batch.labels is not None:
            self._records.append(record)
            self._labels.append(batch.labels)
        if self._draws:
            self._numbers.append(batch.numbers)
            while sum(one.size for one in self._numbers) > _MOST_DRAWN:
                self._numbers.popleft()
        events, n = self.monitor.events_, self.monitor.n_events_
        if len(self._events) > 2 * _MOST_EVENTS:
            self._events = dict(sorted(nlargest(_MOST_EVENTS, self._events.items(), key=lambda one: one[1].severity)))
        # The last one known may have been open. An event that ended in an earlier file is not one of this file.
        recent, self._n_known = events[self._n_known - n - 1 :], n
        numbered = enumerate(recent, start=n - len(recent) + 1)
        self._events |= {number: event for number, event in numbered if event.end > self._first}
        self.changes = [change for change in self.monitor.report().changes if change.detected > self._first]
        return record

    def _update(self, rows: Any, times: Any, n_healthy: int) -> MonitorRecord:
        """Update the monitor with rows of which the first are declared healthy."""
        records = []
        for part, healthy in ((slice(None, n_healthy), True), (slice(n_healthy, None), False)):
            if len(rows[part]):
                when = None if times is None else times[part]
                records.append(self.monitor.update(rows[part], time=when, healthy=healthy))
        joined: Any = [None if column[0] is None else np.concatenate(column) for column in zip(*records, strict=True)]
        return MonitorRecord(*joined)

    def _sort_times(self, table: Table, batch: Batch) -> Any:
        """Return times that never go back: clocks are set back once a year, and logs are not always in order."""
        if batch.times is None:
            if self._latest is not None:
                self.monitor.reset()
                self._latest = None
            return None
        before = batch.times[:1] if self._latest is None else self._latest
        times = np.maximum.accumulate(np.concatenate([before, batch.times]))
        if not self._is_back and (back := np.flatnonzero(batch.times < times[1:])).size:
            where = f"{table.path}, {table.unit} {batch.rows[back[0]]}"
            table.notes.append(f"{where}: times go back here; until they catch up, rows have the latest time so far")
            self._is_back = True
        self._latest = times[-1:]
        return times[1:]

    @property
    def n_events(self) -> int:
        """The number of events so far, with one of before that went on."""
        return self.monitor.n_events_ - self._n_before + (self._n_before in self._events)

    def _judge(self, report: Report) -> EventJudge:
        return EventJudge(self._events, self.n_rows, self._n_fitted, report.is_declared)

    def report(self) -> Report:
        """Return the list of these files."""
        report = self.monitor.report()
        judge = self._judge(report)
        return replace(
            report,
            lines=judge.list_lines(),
            changes=tuple(self.changes),
            n_rows=self.n_rows,
            n_events=self.n_events,
            least_severity=judge.least_severity,
            n_fitted=self._n_fitted,
            places=self.places,
        )

    def news(self, *, rare: bool, live: bool) -> Iterator[Facts]:
        """Yield changes, and events, all or rare ones, that were not told yet; `live` ones before they have ended."""
        report = self.report()
        judge = self._judge(report)
        for change in self.changes[self._n_changes_told :]:
            yield report.describe_change(change) | self._machine
        self._n_changes_told = len(self.changes)
        for number, event in self._events.items():
            key = number, not event.is_open
            if key > self._told and (live or not event.is_open) and (not rare or judge.is_rare(event)):
                self._told = key
                yield report.describe(number, {number: event}) | self._machine

    def has_news(self) -> bool:
        """Tell whether an event or a change has begun or ended since the last call."""
        before = self._in_report
        self._in_report = self.n_events, len(self.changes), any(event.is_open for event in self._events.values())
        return bool(self._in_report != before)

    def facts(self) -> Facts:
        """Return a summary as JSON has it."""
        threshold = self.monitor.record_.threshold[-1] if self.n_rows else math.inf
        is_known = math.isfinite(threshold)
        more = {"alarms": self.n_alarms if is_known else None, "threshold": float(threshold) if is_known else None}
        return {"kind": "summary", "rows": self.n_rows, "events": self.n_events} | more | self.measure() | self._machine

    def measure(self) -> Facts:
        """Return how well labelled faults are found; nothing without labels."""
        if not self._labels or self._labels[0] is None:
            return {}
        is_fault = np.concatenate(self._labels) != 0
        is_alarm = np.concatenate([one.is_alarm for one in self._records])
        edges = np.flatnonzero(np.diff(is_fault, prepend=False, append=False)).reshape(-1, 2)
        return {
            "labelled_rows": int(is_fault.sum()),
            "labelled_faults": len(edges),
            "faults_with_an_alarm": sum(bool(is_alarm[first:end].any()) for first, end in edges),
            "alarms_in_other_rows": float(is_alarm[~is_fault].mean()) if not is_fault.all() else None,
        }

    def draw(self) -> Any:
        """Draw the features of the worst events over time with what was expected of them, and below all rarities."""
        records, first, times, rows = self._records, self._first, self.list_times(), np.concatenate(self._numbers)
        # The rows whose numbers are still known.
        begin, lines = self.n_rows - len(rows), self.report().lines
        worst = {line.worst: line.events[line.worst] for line in lines}
        worst = {number: e for number, e in worst.items() if e.start >= first + begin and e.features}
        figure: Any = plots.make_figure(width=11.0, height=8.5 if worst else 4.5)
        below = figure
        if worst:
            shown = list(worst.items())[:_DRAWN_EVENTS]
            above, below = figure.subfigures(2, 1, height_ratios=(1.6, 1.0))
            when = None if times is None else times[begin:]
            options: Facts = {"first": first + begin, "time": when, "names": self.tables[0].names}
            panels = above.subfigures(1, len(shown), squeeze=False)[0]
            for (number, event), panel in zip(shown, panels, strict=True):
                plots.draw_event(self.monitor, event, rows, **options, figure=panel)
                panel.suptitle(f"Event {number:,}: once in {write_rarity(event.severity)} rows", fontsize="medium")
        listed = [event for line in lines for event in line.events.values()]
        plots.draw_novelty(
            np.concatenate([record.rarity for record in records]),
            name="rarity",
            time=times,
            threshold=np.concatenate([record.threshold for record in records]),
            alarms=np.concatenate([record.is_alarm for record in records]),
            labels=np.concatenate(self._labels) if self._labels[0] is not None else None,
            events=[replace(event, start=event.start - first, end=event.end - first) for event in listed],
            changes=[replace(change, start=change.start - first) for change in self.changes],
            ax=below.add_subplot(),
        )
        return figure

    def list_times(self) -> Any:
        """Return the times of all rows, or None."""
        records = self._records
        return np.concatenate([record.time for record in records]) if records[0].time is not None else None

    def list_latest(self) -> tuple[int, Facts]:
        """Return the position of the first row whose numbers are known, and rows, times and rarities from it on."""
        rows, times = np.concatenate(self._numbers), self.list_times()
        begin = self.n_rows - len(rows)
        rarity = np.concatenate([record.rarity for record in self._records])[begin:]
        return self._first + begin, {"rows": rows, "time": None if times is None else times[begin:], "rarity": rarity}


def number_events(monitor: Monitor) -> dict[int, Event]:
    """Return the latest events by their numbers among all events of a monitor, from 1 on."""
    return dict(enumerate(monitor.events_, start=monitor.n_events_ - len(monitor.events_) + 1))


def event_of(monitor: Monitor, number: int) -> Event:
    """Return the event of a number, one of the latest."""
    if number not in (events := number_events(monitor)):
        known = f"the latest events, {min(events):,} to {max(events):,}," if events else "an event, and there are none,"
        raise ValueError(f"expected the number of {known} but got {number:,}; streamkpca info lists them")
    return events[number]


def describe(event: Event, number: int) -> str:
    """Describe an event of a saved monitor in a line."""
    text = str(event).replace("event", f"event {number:,}", 1)
    return printable(text.replace(" at row ", " at the monitor's row ", 1))


def list_events(monitor: Monitor) -> list[str]:
    """Describe the events of a monitor that its report lists, and those that a user has judged."""
    events = number_events(monitor)
    listed = [line.worst for line in monitor.report().lines[:_LISTED_EVENTS]]
    judged = [number for number, event in events.items() if event.feedback and number not in listed]
    return [describe(events[number], number) for number in [*listed, *judged]]


def write_page(found: Found, path: str, model: str | None, by: tuple[str, str | None] | None) -> None:
    """Write the events as a page for a browser, with how the file is read and the command that judges an event."""
    first, latest = found.list_latest()
    table, files = found.tables[0], [one.path for one in found.tables]
    notes = [f"{write_count(found.n_alarms, 'alarm')} in {write_count(found.n_events, 'event')}."]
    notes += [f"{name}: {text}" for name, text in describe_look(table).items() if text]
    if model is None:
        notes.append("To say of an event that it was fine, or a fault, watch with a model that is saved: --model FILE.")
    whose = ["--by", "=".join(filter(None, by))] if by else []
    plots.write_report(
        found.monitor,
        path,
        **latest,
        first=first,
        names=table.names,
        report=found.report(),
        title=", ".join([*files, *filter(None, [table.key])]),
        notes=notes,
        # What comes by a pipe does not come again.
        command=write_line(["watch", *files, *whose, "--model", model]) if model and all(map(exists, files)) else None,
    )


def tell(found: Facts, report: Report) -> None:
    """Print an event or a change: when, where, how rare, and each column with the value that was expected."""
    click.echo("\n" + _make_printable(report.write(found)))


def tell_list(found: Found, name: str) -> None:
    """Print the events of all rows, those that are alike in one line, then changes, and what is not listed."""
    text = _make_printable(f"{name}, {found.report()}")
    click.echo(text.replace("\n\nNot listed: ", "\n\nNot listed (--json lists all): "))


def _make_printable(text: str) -> str:
    """Return lines without control characters in them."""
    lines = text.split("\n")
    return "\n".join(line[: len(line) - len(line.lstrip())] + printable(line) for line in lines)
