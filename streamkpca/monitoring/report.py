"""The list of what a monitor found: alike events together, the rarest first; as text, as a table, as data."""

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

import numpy as np

from streamkpca.monitoring.causes import Cause
from streamkpca.monitoring.events import Event, write_rarity
from streamkpca.monitoring.lasting_changes import Change
from streamkpca.rows.times import Time

Facts = dict[str, Any]

# Lines of the text, and of the table.
SHOWN_LINES = 10
# Features of an event that have a line; the others are named.
_SHOWN_FEATURES = 3
# Similar events whose first rows are told.
_DATED_EVENTS = 6
# Rows after which a monitor is grown.
_ROWS_UNTIL_GROWN = 4096
# Severity from which on events are listed, however many rows there are: 2,048 healthy rows tell little beyond it.
_MOST_BY_CHANCE = 16_384
# Events that chance may bring to the list: with two, 83 of 120 lines on fifteen made machines were of faults; with four
# 88 of 147, and with one 76 of 94.
_LISTED_BY_CHANCE = 2
# Rows from which on events of a monitor that is not grown must be as rare as scales tell, as all was new to it: on the
# same machines none of 80 lines was of a fault. They come last, of fewer rows, too.
_MANY_ROWS = 8192
_KINDS = {
    "place": "not seen before: a new state or a fault",
    "relation": "values that do not fit the others",
    "recent": "values that do not fit the last rows",
}
_UNITS = (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0))


class Places:
    """Where rows are: by their positions in the stream, and their times. Rows of files have other numbers there."""

    unit = "row"

    def find(self, name: str, position: int, time: Time | None) -> Facts:
        """Return the row's number, and its time if it has one, under this name."""
        return {f"{name}_row": position} | ({} if time is None else {f"{name}_time": write_time(time)})

    def describe_feature(self, feature: str | int) -> Facts:
        """Return the name of a feature, and how its values are to be read."""
        return {"feature": feature if isinstance(feature, str) else f"feature {feature}"}


@dataclass(frozen=True)
class ReportLine:
    """Events that are alike, in the order of time, and the number of each among all of the monitor.

    Parameters
    ----------
    events : dict of int and Event
    worst : int
        The number of the rarest one.
    is_early : bool
        Whether it began before a monitor knows enough rows to tell how rare it is.

    Examples
    --------
    >>> from streamkpca.monitoring import Monitor
    >>> Monitor().report().lines
    ()
    """

    events: Mapping[int, Event]
    worst: int
    is_early: bool


@dataclass(frozen=True)
class Report:
    """What a monitor found, as `Monitor.report` returns it; it prints as text, and shows as a table in notebooks.

    Parameters
    ----------
    lines : tuple of ReportLine
        Events that are rare enough, alike ones together: broken relations first, then the rarest, early ones last.
    changes : tuple of Change
    n_rows, n_learned, n_events : int
        Rows and events so far, and rows that the model has learned.
    least_severity : float
        Severity from which on events are listed: once in half as many rows as there were, as far as scales reach.
    n_fitted : int
        Rows that the model had learned before the first row.
    is_declared : bool
        Whether rows were declared healthy.
    seconds_per_row : float, optional
        Mean time between rows, where rows have dates.
    places : Places
        How rows and features are named.
    confirmed : dict of int and int, optional
        For groups of events, the number of one that was confirmed.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> random = np.random.default_rng(0)
    >>> rows = np.repeat(random.normal(size=(6000, 2)), 2, axis=1) + 0.1 * random.normal(size=(6000, 4))
    >>> rows[5500:5520, 3] += 3.0
    >>> monitor = Monitor().fit(rows[:5000])
    >>> record = monitor.update(rows[5000:])
    >>> report = monitor.report()
    >>> report.to_dict()["events"][0]["features"][0]["feature"]
    'feature 3'
    """

    lines: tuple[ReportLine, ...]
    changes: tuple[Change, ...]
    n_rows: int
    n_learned: int
    n_events: int
    least_severity: float
    n_fitted: int = 0
    is_declared: bool = False
    seconds_per_row: float | None = None
    places: Places = Places()  # noqa: RUF009
    confirmed: Mapping[int, int] | None = None

    @property
    def _n_listed(self) -> int:
        """Number of events in all lines."""
        return sum(len(line.events) for line in self.lines)

    def to_dict(self) -> Facts:
        """Return all of it as JSON has it.

        Examples
        --------
        >>> from streamkpca.monitoring import Monitor
        >>> Monitor().report().to_dict()["events"]
        []
        """
        return {
            "rows": self.n_rows,
            "rows_learned": self.n_learned,
            "events_so_far": self.n_events,
            "least_severity": self.least_severity,
            "events": [self.describe(line.worst, line.events) for line in self.lines],
            "changes": [self.describe_change(change) for change in self.changes],
        }

    def describe(self, number: int, alike: Mapping[int, Event]) -> Facts:
        """Return one of some events that are alike as JSON has it, with the times and the number of all of them.

        Parameters
        ----------
        number : int
            The number of the event.
        alike : dict of int and Event
            It and those that are like it.

        Examples
        --------
        >>> from streamkpca.monitoring import Monitor
        >>> monitor = Monitor().fit(np.random.default_rng(0).normal(size=(1000, 2)))
        >>> record = monitor.update([[9.0, 9.0]])
        >>> report = monitor.report()
        >>> line = report.lines[0]
        >>> report.describe(line.worst, line.events)["alarms"]
        1
        """
        event, events = alike[number], list(alike.values())
        begins = [self.places.find("first", one.start, one.start_time) for one in events]
        return {
            "kind": "event",
            "number": number,
            **begins[0],
            **self.places.find("last", events[-1].end - 1, events[-1].end_time),
            **self.places.find("peak", event.peak_row, event.peak_time),
            "alarms": sum(one.n_alarms for one in events),
            **({"begins": begins} if len(begins) > 1 else {}),
            "severity": event.severity,
            "severity_seconds": None if self.seconds_per_row is None else event.severity * self.seconds_per_row,
            "known_rows": event.start + self.n_fitted,
            "is_early": not self.is_declared and event.start + self.n_fitted < _ROWS_UNTIL_GROWN,
            "event_kind": event.kind,
            "feedback": event.feedback,
            "like_confirmed": (self.confirmed or {}).get(event.group),
            "group": event.group,
            "is_open": events[-1].is_open,
            "features": [self._describe_cause(cause) for cause in event.features],
        }

    def _describe_cause(self, cause: Cause) -> Facts:
        facts = cause._asdict() | self.places.describe_feature(cause.feature)
        return facts | self.places.find("since", facts.pop("since"), facts.pop("since_time"))

    def describe_change(self, change: Change) -> Facts:
        """Return a lasting change as JSON has it.

        Parameters
        ----------
        change : Change

        Examples
        --------
        >>> from streamkpca.monitoring import Change, Monitor
        >>> Monitor().report().describe_change(Change(5, 9, 1.0, (), False))["first_row"]
        5
        """
        return {
            "kind": "change",
            **self.places.find("first", change.start, change.start_time),
            **self.places.find("detected", change.detected - 1, change.detected_time),
            "share_of_alarms": change.share,
            "is_accepted": change.is_accepted,
            "features": [self.places.describe_feature(one.feature)["feature"] for one in change.features],
        }

    def __str__(self) -> str:
        together = ", similar ones together" if len(self.lines) < self._n_listed else ""
        kinds = {line.events[line.worst].kind for line in self.lines}
        order = ", the strongest first" if len(self.lines) > 1 else ""
        if self.lines and self.lines[0].events[self.lines[0].worst].kind == "relation" and len(kinds) > 1:
            order = ", broken relations first, then the strongest"
        if len({line.is_early for line in self.lines}) > 1:
            order += ", early ones last"
        texts = [f"{write_count(self.n_rows, 'row')}: {write_count(self._n_listed, 'event')}{together}{order}"]
        shown = self.lines[:SHOWN_LINES]
        texts += [self.write(self.describe(line.worst, line.events)) for line in shown]
        texts += [self.write(self.describe_change(change)) for change in self.changes]
        n_more = self._n_listed - sum(len(line.events) for line in shown)
        n_weaker = self.n_events - self._n_listed
        weaker = f"{write_count(n_weaker, 'weaker event')}, less rare than once in {self.least_severity:,.0f} rows"
        rest = [write_count(n_more, "more event")] * (n_more > 0) + [weaker] * (n_weaker > 0)
        return "\n\n".join([*texts, *([f"Not listed: {'; '.join(rest)}"] if rest else [])])

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self).partition(chr(10))[0])}</p>{self.write_table(SHOWN_LINES)}"

    def write_table(self, most: int) -> str:
        """Write the first lines as a table of HTML, whose cells have what sorts them as `data-order`.

        Parameters
        ----------
        most : int

        Examples
        --------
        >>> from streamkpca.monitoring import Monitor
        >>> Monitor().report().write_table(10).partition("<th>")[0]
        '<table><thead><tr>'
        """
        names = ("event", "once in", "from", "sensor", "value", "expected", "kind", "to", "alarms", "similar")
        head = "".join(f"<th>{name}</th>" for name in names)
        rows = []
        for line in self.lines[:most]:
            found = self.describe(line.worst, line.events)
            cause = next(iter(found["features"]), None)
            value, expected = ("", "") if cause is None else write_numbers(cause)[:2]
            cells = [
                (f"{found['number']:,}", found["number"]),
                (self._write_severity(found), found["severity"]),
                (self._when(found, "first"), line.events[min(line.events)].start),
                ("" if cause is None else str(cause["feature"]), None),
                (value, cause and cause["value"]),
                (expected, cause and cause["expected"]),
                (_KINDS[found["event_kind"]], None),
                (self._when(found, "last"), line.events[max(line.events)].end),
                (f"{found['alarms']:,}", found["alarms"]),
                (f"{len(line.events) - 1:,}", len(line.events)),
            ]
            row = (
                f"<td{'' if order is None else f' data-order={float(order)!r}'}>{html.escape(text)}</td>"
                for text, order in cells
            )
            rows.append(f"<tr>{''.join(row)}</tr>")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"

    def write(self, found: Facts) -> str:
        """Write what `describe` or `describe_change` returns: when, where, how rare, and what was expected.

        Parameters
        ----------
        found : dict

        Examples
        --------
        >>> from streamkpca.monitoring import Monitor
        >>> monitor = Monitor().fit(np.random.default_rng(0).normal(size=(1000, 2)))
        >>> record = monitor.update([[9.0, 9.0]])
        >>> report = monitor.report()
        >>> line = report.lines[0]
        >>> report.write(report.describe(line.worst, line.events)).partition(":")[0].startswith("Event")
        True
        """
        begin, end = (self._when(found, name) for name in ("first", "last" if "last_row" in found else "detected"))
        causes = found["features"][:_SHOWN_FEATURES]
        if found["kind"] == "change":
            head = f"Lasting change from {begin} on, noticed at {end}"
            where = ", ".join(causes)
            if found["is_accepted"]:
                return "\n  ".join(filter(None, [f"{head}, learned as normal", where]))
            share = f"{found['share_of_alarms']:.0%} of the rows since then were not learned"
            return "\n  ".join(filter(None, [head, where, f"{share}: a fault, or another state?"]))
        span = begin if found["alarms"] == 1 else f"{begin} to {end}"
        begins = [self._when(one, "first") for one in found.get("begins", ())]
        if begins:
            span = f"{len(begins):,} similar events between {begin} and {end}"
        head = f"Event {found['number']:,}: once in {self._write_severity(found)}"
        if found["is_early"]:
            head += f" (an estimate, from the {found['known_rows']:,} before)"
        more = [span, write_count(found["alarms"], "alarm")]
        if found["is_open"]:
            more.append("still open")
        if found["feedback"]:
            more.append(found["feedback"])
        if found["like_confirmed"]:
            more.append(f"like event {found['like_confirmed']:,}, which was confirmed")
        lines = [f"{head}, {_KINDS[found['event_kind']]}; {', '.join(more)}"]
        if begins:
            dots = ["..."] * (len(begins) > _DATED_EVENTS)
            lines.append(f"begun at {', '.join([*begins[:_DATED_EVENTS], *dots])}")
        lines += [f"{cause['feature']}: {self._write_deviation(cause)}" for cause in causes]
        if others := ", ".join(cause["feature"] for cause in found["features"][_SHOWN_FEATURES:]):
            lines.append(f"also: {others}")
        return "\n  ".join(lines)

    def _write_severity(self, found: Facts) -> str:
        text = f"{write_rarity(found['severity'])} rows"
        seconds = found["severity_seconds"]
        return text if seconds is None else f"{text} ({write_duration(seconds)})"

    def _write_deviation(self, cause: Facts) -> str:
        is_usual = cause["low"] <= cause["value"] <= cause["high"]
        since = "in line with the others" if is_usual else f"{cause['direction']} since {self._when(cause, 'since')}"
        if (words := cause.get("words")) and (cause["value"] > 0.5) != (cause["expected"] > 0.5):
            return f"{words[cause['value'] > 0.5]}, expected {words[cause['expected'] > 0.5]}, {since}"
        value, expected, low, high = write_numbers(cause)
        return f"{value}, expected {expected} ({low} to {high}), {since}"

    def _when(self, found: Facts, name: str) -> str:
        row, time, file = found[f"{name}_row"], found.get(f"{name}_time"), found.get(f"{name}_file")
        where = "before the rows read here" if row is None else f"{self.places.unit} {row:,}"
        where = f"{file}, {where}" if file else where
        return where if time is None else f"{str(time).replace('T', ' ')} ({where})"


class EventJudge:
    """Which events are listed: those that are rarer than chance brings, by their rarest row or by all their alarms.

    `n_rows` rows were judged, and the model had learned `n_fitted` before them. A monitor whose first rows were
    declared healthy is grown from them on.
    """

    def __init__(self, events: Mapping[int, Event], n_rows: int, n_fitted: int, is_declared: bool) -> None:
        self._events, self._n_rows, self._n_fitted = events, n_rows, n_fitted
        # The row from which on events are told by a grown monitor.
        self._grown = 0 if is_declared else _ROWS_UNTIL_GROWN - n_fitted
        # Beside twenty events of one alarm, as independent rows bring them: a few events may all be faults.
        self._usual_alarms = median([*(event.n_alarms for event in events.values()), *[1] * 20])

    @property
    def least_severity(self) -> float:
        """Severity from which on events are listed: once in half as many rows as there were, as far as scales reach."""
        return min(self._n_rows / _LISTED_BY_CHANCE, _MOST_BY_CHANCE)

    def is_rare(self, event: Event) -> bool:
        """Tell whether an event is rare enough to be listed: by its rarest row, or by the number of its alarms."""
        if self._n_rows >= _MANY_ROWS and event.start < self._grown:
            return event.severity >= _MOST_BY_CHANCE
        least = max(self._n_rows / _LISTED_BY_CHANCE, 1.0)
        return event.severity >= self.least_severity or self._weigh(event) >= math.log2(least)

    def _weigh(self, event: Event, most: float = math.inf) -> float:
        # Half of the events have more alarms than the usual one, so each further such number is half as likely.
        # The root of that is counted, so that about two events are shown by chance.
        return math.log2(min(event.severity, most)) + (event.n_alarms - 1) / (2.0 * self._usual_alarms)

    def list_lines(self) -> tuple[ReportLine, ...]:
        """Return the events that are rare enough, alike ones together: broken relations first, then the worst.

        A machine that explores its range is where it was never before, and nothing need be broken.
        """
        listed = [number for number, event in self._events.items() if self.is_rare(event)]
        listed.sort(key=lambda number: (self._events[number].group, self._events[number].start))
        lines = []
        for _, numbers in groupby(listed, key=lambda number: self._events[number].group):
            alike = {number: self._events[number] for number in numbers}
            worst = max(alike, key=lambda number: self._rank(alike[number]))
            lines.append(ReportLine(alike, worst, alike[worst].start < self._grown))
        return tuple(sorted(lines, key=self._order))

    def _order(self, line: ReportLine) -> tuple[bool, bool, float]:
        worst = line.events[line.worst]
        return line.is_early, worst.kind == "place", -self._rank(worst)

    def _rank(self, event: Event) -> float:
        # More than the rows before an event tell is an estimate: in short files, the first events would lead the list.
        return self._weigh(event, event.start + self._n_fitted + 1)


def write_numbers(cause: Facts) -> tuple[str, ...]:
    """Write a value, the one expected and its range, with the digits that the range and the difference need."""
    width = max(cause["high"] - cause["low"], abs(cause["value"] - cause["expected"]) / 100.0)
    digits = min(max(1 - math.floor(math.log10(width)), 0), 12) if width > 0.0 else 4
    form = f"{'+' * cause.get('is_difference', False)}z.{digits}f"
    return tuple(f"{cause[name]:{form}}" for name in ("value", "expected", "low", "high"))


def write_count(n: int, noun: str) -> str:
    """Write a number with its noun, in the plural unless it is 1."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def write_duration(seconds: float) -> str:
    """Write a length of time in the largest unit that it reaches, in two digits."""
    name, unit = next(((name, unit) for name, unit in _UNITS if seconds >= 2.0 * unit), ("seconds", 1.0))
    return f"{write_rarity(seconds / unit)} {name}"


def write_time(time: Time) -> str | float:
    """Write a date without zeros of a second's parts; numbers stay."""
    if not isinstance(time, np.datetime64):
        return time
    text, _, fraction = str(time).partition(".")
    return f"{text}.{fraction.rstrip('0')}".rstrip(".")
