"""What a monitor finds in files: events and changes by the files' rows, times and columns; as JSON, text, a picture."""

import math
from bisect import bisect
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from heapq import nlargest
from itertools import groupby
from typing import Any

import click
import numpy as np

from streamkpca import plots
from streamkpca.cli.console import printable, write_count
from streamkpca.monitoring import Cause, Change, Event, Monitor, MonitorRecord
from streamkpca.monitoring.events import write_rarity
from streamkpca.tables import Batch, Table

Facts = dict[str, Any]

# The rarest events, of which a long run has kept at least this number for the list at the end.
_MOST_EVENTS = 1000
# Stretches of rows without a break whose numbers in the file are known.
_MOST_STRETCHES = 100_000
# Groups of events in the list.
_SHOWN_GROUPS = 10
# Features of each.
_SHOWN_FEATURES = 3
# Events in the picture.
_DRAWN_EVENTS = 3
# Rows after which a monitor is grown, weaker broken relations that are few from then on, and how many are listed then.
_ROWS_UNTIL_GROWN = 4096
_FEW_BROKEN = 10
_LISTED_BROKEN = 3
# Similar events whose first rows are told.
_DATED_EVENTS = 6
# Severity from which on events are shown, however many rows there are: 2,048 healthy rows tell little beyond it.
_MOST_BY_CHANCE = 4096
# Numbers of the latest rows that are kept for a picture: 128 MB.
_MOST_DRAWN = 2**24
_KINDS = {"place": "not seen before: a new state or a fault", "relation": "values that do not fit each other"}


class Found:
    """What a monitor finds in tables, told by their rows, times and columns."""

    def __init__(self, monitor: Monitor, tables: Sequence[Table], *, draws: bool) -> None:
        self.monitor, self.tables, self.n_rows, self.n_alarms = monitor, tables, 0, 0
        self.changes: list[Change] = []
        self._machine = {} if tables[0].key is None else {"machine": tables[0].key}
        self._draws, self._is_back, self._first = draws, False, monitor.n_rows_
        # A model may have learned rows before the monitor began.
        self._n_fitted = max(getattr(monitor.model, "n_samples_seen_", 0) - self._first, 0)
        self._latest: Any = None
        # Where stretches of rows begin: in the stream, in their file, and its name.
        self._stretches = list[tuple[int, int, str]]()
        # Events of before; the last change; the last event told, and whether it had ended.
        self._n_before = self._n_known = monitor.n_events_
        self._change, self._n_changes_told, self._told = monitor.change_detected_, 0, (0, False)
        # By their numbers among all events of the monitor, from 1 on: the rarest, and the latest.
        self._events, self._usual_alarms = dict[int, Event](), 1.0
        self._confirmed = {e.group: number for number, e in number_events(monitor).items() if e.feedback == "confirmed"}
        self._records, self._labels, self._numbers = list[MonitorRecord](), list[Any](), deque[Any]()

    def take(self, table: Table, batch: Batch) -> MonitorRecord:
        """Score the next rows, and learn those that are to be learned."""
        self._note_rows(table, batch)
        # A monitor keeps the names of its first rows, for its events and for users in Python.
        rows = batch.numbers if self.monitor.n_rows_ else table.name_columns(batch.numbers)
        record = self.monitor.update(rows, time=self._sort_times(table, batch))
        self.n_rows += len(batch.rows)
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
        # Beside twenty events of one alarm, as independent rows bring them: a few events may all be faults.
        self._usual_alarms = float(np.median([*(event.n_alarms for event in events), *[1] * 20]))
        if (change := self.monitor.change_detected_) not in (None, self._change):
            self._change = change
            self.changes.append(change)
        return record

    def _note_rows(self, table: Table, batch: Batch) -> None:
        position, rows = self._first + self.n_rows, batch.rows
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

    def _sort_times(self, table: Table, batch: Batch) -> Any:
        """Return times that never go back: clocks are set back once a year, and logs are not always in order."""
        if batch.times is None:
            if self._latest is not None:
                self.monitor.reset_context()
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

    @property
    def least_severity(self) -> float:
        """The severity from which on events are shown: once in as many rows as were read, as far as scales reach."""
        return min(self.n_rows, _MOST_BY_CHANCE)

    def is_shown(self, event: Event) -> bool:
        """Tell whether an event is rare enough to be shown: by its rarest row, or by the number of its alarms."""
        return event.severity >= self.least_severity or self._weigh(event) >= math.log2(max(self.n_rows, 1))

    def _weigh(self, event: Event) -> float:
        # Half of the events have more alarms than the usual one, so each further such number is half as likely.
        # The root of that is counted, so that about two events are shown by chance.
        return math.log2(event.severity) + (event.n_alarms - 1) / (2.0 * self._usual_alarms)

    def groups(self) -> list[list[Event]]:
        """Return the events that are rare enough, alike ones together: broken relations first, then the worst.

        A machine that explores its range is where it was never before, and nothing need be broken. Where a grown
        monitor finds few other broken relations, chance has brought less than it may, and three of them come last: on
        30 made machines 16 of 16 lines that this adds are of faults, on 42 real streams three of seven.
        """
        known, grown = self._events.values(), _ROWS_UNTIL_GROWN - self._n_fitted
        rare = [*filter(self.is_shown, known)]
        weaker = [one for one in known if one.kind == "relation" and one.start >= grown and not self.is_shown(one)]
        added = nlargest(_LISTED_BROKEN, weaker, key=self._weigh) if len(weaker) <= _FEW_BROKEN else []
        # Those that are like a rare one would only blur when it was.
        added = [one for one in added if one.group not in {other.group for other in rare}]
        listed = sorted([*rare, *added], key=lambda event: (event.group, event.start))
        groups = [list(events) for _, events in groupby(listed, key=lambda event: event.group)]
        return sorted(groups, key=self._order)

    def _order(self, events: Sequence[Event]) -> tuple[bool, bool, float]:
        worst = self.worst(events)
        return not any(map(self.is_shown, events)), worst.kind != "relation", -self._limit_severity(worst)

    def worst(self, events: Sequence[Event]) -> Event:
        """Return the rarest of some events."""
        return max(events, key=self._limit_severity)

    def _limit_severity(self, event: Event) -> float:
        # More than the rows before an event tell is an estimate: in short files, the first events would lead the list.
        return min(event.severity, event.start + self._n_fitted)

    def news(self, *, rare: bool, live: bool) -> Iterator[Facts]:
        """Yield changes, and events, all or rare ones, that were not told yet; `live` ones before they have ended."""
        for change in self.changes[self._n_changes_told :]:
            yield self.change_facts(change) | self._machine
        self._n_changes_told = len(self.changes)
        for number, event in self._events.items():
            key = number, not event.is_open
            if key > self._told and (live or not event.is_open) and (self.is_shown(event) or not rare):
                self._told = key
                yield self.event_facts(event) | self._machine

    def _place(self, name: str, position: int, time: Any) -> Facts:
        row, path = self._row_of(position)
        place: Facts = {f"{name}_row": row, **({f"{name}_file": path} if len(self.tables) > 1 else {})}
        return place if time is None else place | {f"{name}_time": self.tables[0].clock(time)}

    def event_facts(self, event: Event, alike: Sequence[Event] = ()) -> Facts:
        """Return an event as JSON has it, with the times and the number of all that are alike."""
        alike = alike or [event]
        begins = [self._place("first", one.start, one.start_time) for one in alike]
        return {
            "kind": "event",
            "number": next(number for number, one in self._events.items() if one is event),
            **self._place("first", alike[0].start, alike[0].start_time),
            **self._place("last", alike[-1].end - 1, alike[-1].end_time),
            **self._place("peak", event.peak_row, event.peak_time),
            "alarms": sum(one.n_alarms for one in alike),
            **({"begins": begins} if len(begins) > 1 else {}),
            "severity": event.severity,
            "known_rows": event.start + self._n_fitted,
            "event_kind": event.kind,
            "feedback": event.feedback,
            "like_confirmed": self._confirmed.get(event.group),
            "group": event.group,
            "is_open": alike[-1].is_open,
            "features": [self._cause_facts(cause) for cause in event.features],
        }

    def _cause_facts(self, cause: Cause) -> Facts:
        name = self._name(cause.feature)
        facts = cause._asdict() | {"feature": name, "is_difference": name in self.tables[0].reading.differences}
        if words := self.tables[0].words(facts["feature"]):
            facts["words"] = words
        return facts | self._place("since", facts.pop("since"), facts.pop("since_time"))

    def change_facts(self, change: Change) -> Facts:
        """Return a change as JSON has it."""
        return {
            "kind": "change",
            **self._place("first", change.start, change.start_time),
            **self._place("detected", change.detected - 1, change.detected_time),
            "share_of_alarms": change.share,
            "is_accepted": change.is_accepted,
            "features": [self._name(one.feature) for one in change.features],
        }

    def _name(self, feature: str | int) -> str:
        return self.tables[0].names[feature] if isinstance(feature, int) else feature

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
        records, first = self._records, self._first
        times = np.concatenate([record.time for record in records]) if records[0].time is not None else None
        rows = np.concatenate(self._numbers)
        # The rows whose numbers are still known.
        begin = self.n_rows - len(rows)
        worst = [event for event in map(self.worst, self.groups()) if event.start >= first + begin and event.features]
        figure: Any = plots.make_figure(width=11.0, height=8.5 if worst else 4.5)
        below = figure
        if worst := worst[:_DRAWN_EVENTS]:
            above, below = figure.subfigures(2, 1, height_ratios=(1.6, 1.0))
            when = None if times is None else times[begin:]
            options: Facts = {"first": first + begin, "time": when, "names": self.tables[0].names}
            for event, panel in zip(worst, above.subfigures(1, len(worst), squeeze=False)[0], strict=True):
                plots.draw_event(self.monitor, event, rows, **options, figure=panel)
                number = self.event_facts(event)["number"]
                panel.suptitle(f"Event {number:,}: once in {write_rarity(event.severity)} rows", fontsize="medium")
        plots.draw_novelty(
            np.concatenate([record.rarity for record in records]),
            name="rarity",
            time=times,
            threshold=np.concatenate([record.threshold for record in records]),
            alarms=np.concatenate([record.is_alarm for record in records]),
            labels=np.concatenate(self._labels) if self._labels[0] is not None else None,
            events=[replace(e, start=e.start - first, end=e.end - first) for events in self.groups() for e in events],
            changes=[replace(change, start=change.start - first) for change in self.changes],
            ax=below.add_subplot(),
        )
        return figure


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
    """Describe the events of a monitor that a user has judged, and the rarest of the others."""
    events = number_events(monitor)
    rarest = nlargest(_SHOWN_GROUPS, events, key=lambda number: events[number].severity)
    return [describe(one, number) for number, one in events.items() if one.feedback or number in rarest]


def tell(found: Facts, unit: str) -> None:
    """Print an event or a change: when, where, how rare, and each column with the value that was expected."""
    begin, end = (_when(found, name, unit) for name in ("first", "last" if "last_row" in found else "detected"))
    causes = found["features"][:_SHOWN_FEATURES]
    if found["kind"] == "change":
        state = "learned as normal" if found["is_accepted"] else "not learned (--accept-after)"
        lines = [f"Lasting change from {begin} on, noticed at {end}, {state}", ", ".join(map(printable, causes))]
    else:
        span = begin if found["alarms"] == 1 else f"{begin} to {end}"
        begins = [_when(one, "first", unit) for one in found.get("begins", ())]
        span = f"{len(begins):,} similar events between {begin} and {end}" if begins else span
        head = f"Event {found['number']:,}: once in {write_rarity(found['severity'])} rows"
        head += f" (an estimate, from the {found['known_rows']:,} before)" * (found["severity"] > found["known_rows"])
        like = found["like_confirmed"] and f"like event {found['like_confirmed']:,}, which was confirmed"
        more = [span, write_count(found["alarms"], "alarm"), *["still open"] * found["is_open"]]
        more += filter(None, [found["feedback"], like])
        lines = [f"{head}, {_KINDS[found['event_kind']]}; {', '.join(more)}"]
        dots = ["..."] * (len(begins) > _DATED_EVENTS)
        lines += [f"begun at {', '.join([*begins[:_DATED_EVENTS], *dots])}"] * bool(begins)
        lines += [f"{printable(cause['feature'])}: {_deviation(cause, unit)}" for cause in causes]
        others = ", ".join(printable(cause["feature"]) for cause in found["features"][_SHOWN_FEATURES:])
        lines += [f"also: {others}" if others else ""]
    click.echo("\n  ".join(["\n" + lines[0], *filter(None, lines[1:])]))


def tell_list(found: Found, name: str) -> None:
    """Print the events of all rows, those that are alike in one line, then changes, and what is not shown."""
    groups = found.groups()
    n_rare = sum(map(len, groups))
    together = ", similar ones together" if len(groups) < n_rare else ""
    kinds = {found.worst(alike).kind for alike in groups}
    order = ", broken relations first, then the rarest" if len(kinds) > 1 else ", the rarest first" * (len(groups) > 1)
    click.echo(f"{name}, {write_count(found.n_rows, 'row')}: {write_count(n_rare, 'event')}{together}{order}")
    unit = f"{'unsorted ' * found.tables[0].sorts}{found.tables[0].unit}"
    for alike in groups[:_SHOWN_GROUPS]:
        tell(found.event_facts(found.worst(alike), alike), unit)
    for change in found.changes:
        tell(found.change_facts(change), unit)
    n_more, n_short = sum(map(len, groups[_SHOWN_GROUPS:])), found.n_events - n_rare
    short = f"{write_count(n_short, 'weaker event')}, less rare than once in {found.least_severity:,.0f} rows"
    if rest := [write_count(n_more, "more event")] * (n_more > 0) + [short] * (n_short > 0):
        click.echo(f"\nNot listed: {'; '.join(rest)} (--json lists all)")


def _deviation(cause: Facts, unit: str) -> str:
    """Write a value and the one that was expected, with the digits that the range and their difference need."""
    width = max(cause["high"] - cause["low"], abs(cause["value"] - cause["expected"]) / 100.0)
    digits = min(max(1 - math.floor(math.log10(width)), 0), 12) if width > 0.0 else 4
    form = f"{'+' * cause['is_difference']}z.{digits}f"
    value, expected, low, high = (f"{cause[name]:{form}}" for name in ("value", "expected", "low", "high"))
    is_usual = cause["low"] <= cause["value"] <= cause["high"]
    since = "in line with the others" if is_usual else f"{cause['direction']} since {_when(cause, 'since', unit)}"
    if words := cause.get("words"):
        return f"{words[cause['value'] > 0.5]}, expected {words[cause['expected'] > 0.5]}, {since}"
    return f"{value}, expected {expected} ({low} to {high}), {since}"


def _when(found: Facts, name: str, unit: str) -> str:
    """Write the time and the number of a row."""
    row, time = found[f"{name}_row"], found.get(f"{name}_time")
    where = "before the rows read here" if row is None else f"{unit} {row:,}"
    where = f"{found[f'{name}_file']}, {where}" if found.get(f"{name}_file") else where
    return where if time is None else f"{str(time).replace('T', ' ')} ({where})"
