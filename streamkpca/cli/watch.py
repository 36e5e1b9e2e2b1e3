"""The work of watch and score: a monitor goes through the rows of a file, and tells events and lasting changes."""

import math
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from streamkpca import plots
from streamkpca.cli.decisions import tell_look
from streamkpca.cli.console import Signals, print_facts, print_json, print_warning, printable, written
from streamkpca.cli.learn import make_writer, projections_of, row_columns
from streamkpca.cli.models import Autosave, ModelFile, Saved, check_target, read_saved
from streamkpca.cli.options import MONITOR_PARAMETERS, refuse_given
from streamkpca.cli.plot import check_picture, write_picture
from streamkpca.cli.reading import FOLLOW_SECONDS, at, bad_facts, each_batch, open_tables, tell_bad
from streamkpca.cli.reports import auroc, average_precision
from streamkpca.cli.tables import Batch, Table
from streamkpca.monitoring import Monitor, MonitorRecord
from streamkpca.monitoring.events import Change, Event

Array = npt.NDArray[np.float64]
Facts = dict[str, Any]

# Events and changes that are kept, rows of which time and number are, and events and features that are shown.
_MOST_KEPT = 1000
_MOST_ROWS = 200_000
_TOP = 10
_SHOWN_FEATURES = 3
_MANY_ALARMS = 0.1
_MOST_BACK = 0.5


def score(file: str, model: str | None, **options: Any) -> None:
    """Score the rows of a file by a saved model, which stays as it is."""
    if model is None:
        raise click.UsageError(
            "score needs a model of what is normal (--model FILE, which streamkpca fit or watch saves); to find events "
            f"in one pass without one: streamkpca watch {shlex.quote(file)}"
        )
    saved = read_saved(model)
    _go_through(file, monitor_of(saved, model, options), saved, None, inputs=[model], **options)


def watch(file: str, model: str | None, from_start: bool, **options: Any) -> None:
    """Score each row of a file before it is learned, with a new monitor or one that goes on."""
    if from_start and model is None:
        raise click.UsageError("--from-start watches a file anew that a --model has seen; name that model")
    if model is not None:
        check_target(model, [file])
    saved = read_saved(model) if model and Path(model).exists() else None
    if saved:
        monitor = monitor_of(saved, str(model), options)
    else:
        # Rows without gaps are scored and learned as they are without this.
        new = Monitor().model.set_params(on_missing="marginal")
        monitor, saved = Monitor(new, **_monitor_options(options)), Saved(new)
    keeper = Autosave(ModelFile(model) if model else None, FOLLOW_SECONDS if options["follow"] else math.inf, saved)
    _go_through(file, monitor, saved, keeper, places={} if from_start else saved.places, looks=True, **options)
    if model and not options["as_json"]:
        click.echo(f"Model: {model}")


def monitor_of(saved: Saved, path: str, options: Facts) -> Monitor:
    """Make the monitor of a saved model, or go on with the one that was saved with it."""
    if saved.monitor is None:
        return Monitor(saved.model, **_monitor_options(options))
    refuse_given(MONITOR_PARAMETERS, f"{path} was saved with thresholds and events of its own")
    return saved.monitor


def _monitor_options(options: Facts) -> dict[str, Any]:
    return {name: options[name] for name in MONITOR_PARAMETERS}


def _go_through(
    file: str,
    monitor: Monitor,
    saved: Saved,
    keeper: Autosave | None,
    *,
    save: str | None,
    plot: str | None,
    as_json: bool,
    chunk_rows: int,
    inputs: Sequence[str] = (),
    places: Any = {},
    looks: bool = False,
    **options: Any,
) -> None:
    """Let a monitor score the rows of a file, and learn those that are to be learned; tell what it finds."""
    inputs = [file, *inputs]
    if plot:
        check_picture(plot, inputs)
    (table,) = open_tables(
        [file],
        options,
        learned=saved.learned,
        time=saved.time,
        places=places,
        looks=looks,
        on_missing=monitor.model.on_missing,
    )
    if table.look:
        tell_look(table)
        if table.look.back > _MOST_BACK:
            path, n = shlex.quote(file), int(table.named)
            turned = f"(head -n {n} {path}; tail -n +{n + 1} {path} | tac) | streamkpca watch -"
            raise ValueError(
                f"{file}: its newest rows come first, but a stream begins with the oldest; turn it: {turned}"
            )
    if not places and table.time_names:
        # A time before the last one of another file is no error.
        monitor.reset_context()
    writer = make_writer(save, inputs, live=options["follow"], as_json=as_json) if save else None
    tells = not (writer and writer.is_output)
    found, signals = Watch(monitor, table, draws=plot is not None), Signals()
    # Pieces in which at most one lasting change can be found.
    n_rows = min(chunk_rows, monitor.accept_after)
    with signals.handled(), writer or nullcontext():
        for _, batch in each_batch([table], n_rows, signals, "watching", quiet=not tells or options["follow"]):
            with at(table, batch):
                record, stacked = found.take(batch)
            if writer:
                writer.write(row_columns(table, batch) | _columns_of(monitor, record, stacked))
            if tells and (as_json or options["follow"]):
                for one in found.news(least=0.0 if as_json else found.chance_level, live=options["follow"]):
                    print_json(one) if as_json else click.echo(described(one, table))
            if keeper:
                keeper.note(table, batch)
                keeper.save_if_due(monitor)
        if keeper and found.n_rows:
            keeper.save(monitor)
    tell_bad([table])
    facts = found.facts() | bad_facts([table])
    if tells:
        _conclude(facts, found, table, as_json=as_json, follows=options["follow"])
    if plot and found.n_rows:
        write_picture(found.drawn(), plot, dots_per_inch=150)
    for what, path in (("Picture", plot), ("Results", save)):
        if tells and path and not as_json:
            click.echo(f"{what}: {path}")
    signals.leave_if_stopped(f"after {found.n_rows:,} rows")


def _columns_of(monitor: Monitor, record: MonitorRecord, stacked: Array) -> dict[str, npt.ArrayLike]:
    """Return what was found about rows as columns of results, with their projections by the model after them."""
    columns = {"novelty": record.novelty, "smoothed": record.smoothed, "threshold": record.threshold}
    return columns | {"alarm": record.is_alarm} | projections_of(monitor.model, stacked)


class Watch:
    """A monitor that goes through the rows of a file, and what it finds there, by the file's rows, times and columns."""

    def __init__(self, monitor: Monitor, table: Table, *, draws: bool) -> None:
        self.monitor, self.n_rows, self.n_alarms, self.n_events = monitor, 0, 0, 0
        self.threshold: float | None = None
        # By the positions of their first rows.
        self.events: dict[int, Facts] = {}
        self.changes: list[Facts] = []
        self._changes: list[Change] = []
        self._told: dict[int, bool] = {}
        self._n_told_changes = 0
        self._table, self._draws = table, draws
        self._kept: list[tuple[Any, ...]] = []
        self._before = np.empty((0, len(table.names)))
        self._last_time: Any = None
        self._went_back = False
        # Where rows stand among all that the monitor has seen: the first of each batch, and its rows and times.
        self._first = getattr(monitor, "n_rows_", 0)
        self._batches: deque[tuple[int, Batch]] = deque()
        self._change = getattr(monitor, "change_detected_", None)
        self._n_known = getattr(monitor, "n_events_", 0)

    def take(self, batch: Batch) -> tuple[MonitorRecord, Array]:
        """Score the next rows, and learn those that are to be learned; also return the rows as the model sees them."""
        position = self._first + self.n_rows
        self._batches.append((position, batch._replace(numbers=self._before[:0])))
        while position - self._batches[0][0] > _MOST_ROWS:
            self._batches.popleft()
        both = np.concatenate([self._before, batch.numbers])
        stacked = self.monitor.stacked(both)[len(self._before) :]
        self._before = both[len(both) - min(len(both), self.monitor.lags - 1) :]
        record = self.monitor.update(batch.numbers, time=self._ascending(batch))
        self.n_rows += len(batch.rows)
        self.n_alarms += int(record.is_alarm.sum())
        if np.isfinite(record.threshold[-1]):
            self.threshold = float(record.threshold[-1])
        if self._draws or batch.labels is not None:
            self._kept.append((record.smoothed, record.threshold, batch.times, batch.labels))
        n_recent = self.monitor.n_events_ - self._n_known + 1
        self._n_known = self.monitor.n_events_
        for event in self.monitor.events_[-n_recent:]:
            # An event that ended in an earlier file is not one of this file.
            if event.end > self._first and self.events.get(event.start, {}).get("is_open", True):
                self.n_events += event.start not in self.events
                self.events[event.start] = self._event(event)
        while len(self.events) > _MOST_KEPT:
            del self.events[next(iter(self.events))]
        change = self.monitor.change_detected_
        if change is not None and change != self._change:
            self._change = change
            self._changes.append(change)
            self.changes.append(self._changed(change))
        return record, stacked

    def _ascending(self, batch: Batch) -> Any:
        """Return times that never go back, as clocks do once a year, and say where they do."""
        if batch.times is None:
            return None
        times = batch.times if self._last_time is None else np.append(self._last_time, batch.times)
        highest = np.maximum.accumulate(times)
        if (back := np.flatnonzero(times < highest)).size and not self._went_back:
            self._went_back = True
            row = batch.rows[back[0] - len(times) + len(batch.rows)]
            print_warning(
                f"{self._table.path}, {self._table.unit} {row}: its time {self._table.clock(times[back[0]])} is before "
                f"{self._table.clock(highest[back[0]])}; rows stay in the order of the file"
            )
        self._last_time = highest[-1]
        return highest[len(times) - len(batch.rows) :]

    def _place(self, name: str, position: int) -> Facts:
        """Return the number of a row in its file, and its time; None for rows that were seen before this run."""
        for first, batch in reversed(self._batches):
            if position >= first:
                i = min(position - first, len(batch.rows) - 1)
                time = {} if batch.times is None else {f"{name}_time": self._table.clock(batch.times[i])}
                return {f"{name}_row": int(batch.rows[i])} | time
        return {f"{name}_row": None}

    def _event(self, event: Event) -> Facts:
        known = self.events.get(event.start, {})
        first: Facts = {name: known[name] for name in ("first_row", "first_time") if name in known}
        return {
            "kind": "event",
            **(first or self._place("first", event.start)),
            **self._place("last", event.end - 1),
            **self._place("peak", event.peak_row),
            "alarms": event.n_alarms,
            "severity": getattr(event, "severity", event.peak / (self.threshold or math.inf)),
            "is_open": event.is_open,
            "features": [self._cause(cause) for cause in event.features],
        }

    def _cause(self, cause: Any) -> Facts:
        facts: Facts = cause._asdict()
        facts["feature"] = self._name(cause.feature)
        facts.pop("since_time", None)
        return facts | (self._place("since", facts.pop("since")) if "since" in facts else {})

    def _changed(self, change: Change) -> Facts:
        return {
            "kind": "change",
            **self._place("first", change.start),
            **self._place("detected", change.detected - 1),
            "share_of_alarms": change.share,
            "is_accepted": change.is_accepted,
            "features": [self._name(one.feature) for one in change.features],
        }

    def _name(self, feature: str | int) -> str:
        return self._table.names[feature] if isinstance(feature, int) else feature

    @property
    def chance_level(self) -> float:
        """The severity that chance is expected to reach once in as many rows.

        If scores have an exponential tail, of which a share 1 - quantile is above the threshold, a share
        (1 - quantile)^s is above s times the threshold.
        """
        return max(1.0, math.log(max(self.n_rows, 1)) / -math.log(1.0 - self.monitor.quantile))

    def news(self, *, least: float, live: bool) -> Iterator[Facts]:
        """Yield changes, and events of a severity from `least` on, that were not told yet.

        Events are told when they have ended; `live` ones as soon as they are as severe too.
        """
        yield from self.changes[self._n_told_changes :]
        self._n_told_changes = len(self.changes)
        for start, event in self.events.items():
            is_new = not event["is_open"] if start in self._told else live or not event["is_open"]
            if is_new and not self._told.get(start) and event["severity"] >= least:
                self._told[start] = not event["is_open"]
                yield event

    def facts(self) -> Facts:
        """Return a summary as JSON has it."""
        found: Facts = {
            "kind": "summary",
            "rows": self.n_rows,
            "events": self.n_events,
            "chance_severity": self.chance_level,
            "alarms": None if self.threshold is None else self.n_alarms,
            "threshold": self.threshold,
        }
        labels = [part[3] for part in self._kept if part[3] is not None]
        if labels:
            is_fault, scores = np.concatenate(labels) != 0, np.concatenate([part[0] for part in self._kept])
            found["anomalous_rows"] = int(is_fault.sum())
            if 0 < is_fault.mean() < 1:
                found["area_under_roc_curve"] = auroc(is_fault, scores)
                found["average_precision"] = average_precision(is_fault, scores)
        return found

    def drawn(self) -> Any:
        """Draw scores, thresholds, alarms, events and lasting changes."""
        smoothed, threshold, times, labels = (
            None if parts[0] is None else np.concatenate(parts) for parts in zip(*self._kept, strict=True)
        )
        figure = plots.make_figure()
        axes = plots.draw_novelty(
            smoothed,
            time=None if times is None else np.maximum.accumulate(times),
            threshold=np.where(np.isfinite(threshold), threshold, np.nan),
            labels=labels,
            events=[self._moved(event) for event in self.monitor.events_ if event.start in self.events],
            changes=[self._moved(change) for change in self._changes],
            ax=figure.add_subplot(),
        )
        if times is not None and times.dtype.kind == "M":
            # Dates are long, and would overlap.
            axes.tick_params(axis="x", rotation=30)
        return figure

    def _moved(self, found: Any) -> Any:
        """Count the rows of an event or a change from the first one of the file, and name its columns."""
        rows = {name: getattr(found, name) for name in ("start", "end", "peak_row", "detected") if hasattr(found, name)}
        named = [one._replace(feature=printable(self._name(one.feature)).replace("$", r"\$")) for one in found.features]
        rows = {name: max(row - self._first, 0) for name, row in rows.items()}
        return replace(found, **rows, features=tuple(named))


def _conclude(facts: Facts, found: Watch, table: Table, *, as_json: bool, follows: bool) -> None:
    """Print what is still to be told, and a summary."""
    if as_json:
        for one in found.news(least=0.0, live=True):
            print_json(one)
        print_json(facts)
    elif not follows:
        level, n = found.chance_level, facts["rows"]
        severe = sorted((e for e in found.events.values() if e["severity"] >= level), key=lambda e: -e["severity"])
        shown = [event for event in found.events.values() if event in severe[:_TOP]]
        which = f"the {_TOP} most severe of {len(severe):,} events" if len(severe) > _TOP else f"{len(severe)} events"
        click.echo(
            f"{table.path}, {n:,} rows: {which} in order of time"
            if shown
            else f"{table.path}, {n:,} rows: no event stands out"
        )
        for one in [*found.changes, *shown]:
            click.echo(described(one, table))
        if n_weak := found.n_events - len(severe):
            click.echo(
                f"\n{n_weak:,} events below severity {level:.2g} may be chance among {n:,} rows; --json lists them too"
            )
    measures = ("anomalous_rows", "area_under_roc_curve", "average_precision")
    if not as_json and "anomalous_rows" in facts:
        print_facts("How well novelty finds the labelled rows", {name: facts.get(name) for name in measures})
    n, n_alarms = facts["rows"], facts["alarms"]
    if n and n_alarms is None:
        print_warning("too few rows were learned for a threshold (64 at least), so there are no alarms; learn more")
    elif n and not found.changes and n_alarms > n * max(_MANY_ALARMS, 3.0 * (1.0 - found.monitor.quantile)):
        remedy = (
            "raise --quantile" if found.monitor.learn == "all" else "if these rows are normal, learn them (--learn all)"
        )
        print_warning(f"{n_alarms / n:.0%} of the rows are alarms; {remedy}")


def described(found: Facts, table: Table) -> str:
    """Write an event or a change for people: when, where, how sure, and each feature with the expected value."""
    begin, end = (_when(found, name, table.unit) for name in ("first", "last" if "last_row" in found else "detected"))
    if found["kind"] == "change":
        learned = "learned as normal since" if found["is_accepted"] else "not learned (--learn)"
        return (
            f"\nLasting change from {begin}: {found['share_of_alarms']:.0%} of the rows are alarms until {end}; {learned}\n"
            f"  {', '.join(map(printable, found['features'][:_SHOWN_FEATURES]))}"
        )
    state = ", still open" if found["is_open"] else ""
    span = f"{begin}, 1 alarm" if found["alarms"] == 1 else f"{begin} to {end}, {found['alarms']:,} alarms"
    lines = [f"\nSeverity {found['severity']:.3g}: {span}{state}"]
    for cause in found["features"][:_SHOWN_FEATURES]:
        lines.append(f"  {printable(cause['feature'])}{_deviation(cause, table.unit)}")
    return "\n".join(lines)


def _deviation(cause: Facts, unit: str) -> str:
    if "expected" not in cause:
        return ""
    width = cause["high"] - cause["low"]
    digits = 1 - math.floor(math.log10(width)) if width > 0.0 else 4
    value, expected, low, high = (
        f"{cause[name]:.{max(digits, 0)}f}" if digits < 9 else f"{cause[name]:.4g}"
        for name in ("value", "expected", "low", "high")
    )
    return (
        f" {value}, expected {expected} ({low} to {high}): {cause['direction']} since {_when(cause, 'since', unit)}, "
        f"{cause['share']:.0%} of the event"
    )


def _when(found: Facts, name: str, unit: str) -> str:
    """Write the time and the number of a row."""
    row, time = found[f"{name}_row"], found.get(f"{name}_time")
    where = "before this file" if row is None else f"{unit} {row:,}"
    return where if time is None else f"{str(time).replace('T', ' ')} ({where})"
