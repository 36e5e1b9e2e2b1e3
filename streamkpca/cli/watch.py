"""The work of watch and score: a monitor goes through the rows of a file, and events and lasting changes are told."""

import math
import os
import shlex
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import numpy as np

from streamkpca import plots
from streamkpca.cli.console import Signals, print_facts, print_json, print_warning, printable
from streamkpca.cli.decisions import tell_look, write_command
from streamkpca.cli.learn import make_writer, row_columns
from streamkpca.cli.models import Autosave, ModelFile, Saved, check_target, read_saved
from streamkpca.cli.options import MONITOR_PARAMETERS, refuse_given
from streamkpca.cli.reading import FOLLOW_SECONDS, at, bad_facts, each_batch, list_machines, open_tables, tell_bad
from streamkpca.cli.reports import auroc, average_precision, check_picture, write_picture
from streamkpca.cli.tables import Batch, Table
from streamkpca.compilation import cache_folder
from streamkpca.monitoring import Cause, Change, Event, Monitor, MonitorRecord
from streamkpca.monitoring.monitor import LASTING

Facts = dict[str, Any]

# Events that are kept, rows whose numbers are, and groups of events and features that are shown.
_MOST_EVENTS = 1000
_MOST_ROWS = 200_000
_SHOWN_GROUPS = 10
# Severity from which on events are shown, however many rows there are: 2,048 healthy rows tell little beyond it.
_MOST_BY_CHANCE = 4096
_SHOWN_FEATURES = 3
_MANY_ALARMS = 0.1
_MEASURES = ("labelled_faults", "area_under_roc_curve", "average_precision")
# A row with those before it has at most so many numbers, which cost 134 MB in 256 atoms.
_MOST_NUMBERS = 2**16


def score(files: Sequence[str], model: str | None, **options: Any) -> None:
    """Score the rows of files by a saved model, whose file stays as it is."""
    if model is None:
        raise click.UsageError(
            "score needs a model of what is normal (--model FILE, as streamkpca fit and watch save it); to find events "
            f"without one, in one pass: streamkpca watch {shlex.join(files)}"
        )
    for one, its_files, its in _each_machine(files, {"model": model, **options}):
        saved = read_saved(one)
        _go_through(its_files, _monitor_of(saved, one, its), saved, None, inputs=[*files, one], **its)


def watch(files: Sequence[str], model: str | None, from_start: bool, **options: Any) -> None:
    """Score each row of files before it is learned, with a new monitor or one that goes on and is saved again."""
    for one, its_files, its in _each_machine(files, {"model": model, **options}):
        _watch_one(its_files, one, from_start, **its)


def _each_machine(files: Sequence[str], options: Facts) -> Iterator[tuple[Any, Sequence[str], Facts]]:
    """Yield the model, the files and the options: as they are, or those of each machine of --by."""
    by, whose = options["by"], dict[str | None, list[str]]()
    if not by or by[1] is not None:
        whose[None] = list(files)
    else:
        for file in files:
            for found in list_machines(file, options):
                whose.setdefault(found, []).append(file)
    for machine in sorted(whose, key=str):
        one = dict(options)
        if machine is not None:
            one["by"] = by[0], machine
            for name in ("model", "save", "plot"):
                if one[name] not in (None, "-"):
                    path = Path(one[name])
                    one[name] = str(path.with_name(f"{path.stem}-{quote(machine, safe='')}{path.suffix}"))
        yield one.pop("model"), whose[machine], one


def _watch_one(files: Sequence[str], model: str | None, from_start: bool, **options: Any) -> None:
    if from_start and model is None:
        raise click.UsageError(
            "--from-start watches a file anew that a saved model has seen; name it with --model FILE"
        )
    if model is not None:
        check_target(model, files)
    if model is not None and Path(model).exists():
        saved = read_saved(model, fitted=False)
        monitor = _monitor_of(saved, model, options)
    else:
        # Rows without gaps are scored and learned as they are without this.
        saved = Saved(Monitor().model.set_params(on_missing="marginal"))
        monitor = _monitor_of(saved, "", options)
    keeper = Autosave(ModelFile(model) if model else None, FOLLOW_SECONDS if options["follow"] else math.inf, saved)
    saved = saved._replace(places={}) if from_start else saved
    _go_through(files, monitor, saved, keeper, inputs=[*files, *([model] if model else [])], looks=True, **options)


def _monitor_of(saved: Saved, path: str, options: Facts) -> Monitor:
    """Make the monitor of a saved model, or go on with the one that was saved with it."""
    if saved.monitor is None:
        return Monitor(saved.model, **{name: options[name] for name in MONITOR_PARAMETERS})
    refuse_given(MONITOR_PARAMETERS, f"{path} was saved with thresholds and events of its own")
    return saved.monitor


def _go_through(
    files: Sequence[str],
    monitor: Monitor,
    saved: Saved,
    keeper: Autosave | None,
    *,
    inputs: Sequence[str],
    save: str | None,
    plot: str | None,
    as_json: bool,
    chunk_rows: int,
    looks: bool = False,
    **options: Any,
) -> None:
    """Let a monitor score the rows of a file, and learn those that are to be learned; tell what it finds."""
    if plot:
        check_picture(plot, inputs)
    on_missing, places = monitor.model.on_missing, saved.places if keeper else {}
    # One pass does not come back, so a bad row must not stop it.
    options["on_bad_rows"] = options["on_bad_rows"] or "skip"
    tables = open_tables(files, options, saved=saved, places=places, looks=looks, on_missing=on_missing)
    table = tables[0]
    if looks:
        _refuse_machines(table)
        tell_look(table)
        if (folder := cache_folder()) and not any(folder.rglob("*.nbi")):
            click.echo("The first run compiles loops, some fifteen seconds", err=True)
    begun = places.get(os.path.realpath(table.path))
    if table.time_names and begun is None:
        # Another file may begin before the last one ended.
        monitor.reset_context()
    if isinstance(monitor.period, float) and not table.time_names:
        raise ValueError(
            f"{table.path}: the period is a time, {monitor.period:g} s, but the rows have none; name their column "
            "(--time), or begin with a period in rows, as in --period 144"
        )
    if (n_numbers := monitor.lags * len(table.names)) > _MOST_NUMBERS:
        raise ValueError(
            f"--lags {monitor.lags}: expected at most {_MOST_NUMBERS:,} numbers in a row and those before it but got "
            f"{n_numbers:,} ({len(table.names)} columns); give fewer --lags or --columns"
        )
    n_kept = begun["results"][1] if save and begun and begun.get("results", [""])[0] == os.path.realpath(save) else None
    writer = make_writer(save, inputs, live=options["follow"], as_json=as_json, n_kept=n_kept) if save else None
    tells, follows = not (writer and writer.is_output), options["follow"]
    found, signals = Watch(monitor, tables, draws=plot is not None), Signals()
    # Pieces in which at most one lasting change can be found.
    n_rows = min(chunk_rows, LASTING if monitor.accept_after is None else monitor.accept_after)
    with signals.handled(), writer or nullcontext():
        for table, batch in each_batch(tables, n_rows, signals, "watching", quiet=follows or not tells):
            with at(table, batch):
                record = found.take(table, batch)
            if writer:
                scores = {"novelty": record.novelty, "rarity": record.rarity, "threshold": record.threshold}
                columns = row_columns(table, batch, with_file=len(tables) > 1)
                writer.write(columns | scores | {"alarm": record.is_alarm})
                if save and batch.position is not None and not writer.is_output:
                    batch.position["results"] = [os.path.realpath(save), writer.n_bytes]
            if tells and (as_json or follows):
                for one in found.news(least=1.0 if as_json else found.least_severity, live=follows):
                    _tell(one, found, as_json=as_json)
            if keeper:
                keeper.note(table, batch)
                keeper.save_if_due(monitor)
        if keeper and found.n_rows:
            keeper.save(monitor)
    tell_bad(tables)
    if tells:
        _conclude(found, as_json=as_json, follows=follows)
    if plot and found.n_rows:
        write_picture(found.drawn(), plot, dots_per_inch=150)
    for what, name in (("Picture", plot), ("Results", save), ("Model", keeper.path if keeper else None)):
        if tells and name and not as_json:
            click.echo(f"{what}: {name}")
    signals.leave_if_stopped(f"after {found.n_rows:,} rows")


def _refuse_machines(table: Table) -> None:
    """Refuse rows of several machines, of which one monitor would know none."""
    if (found := table.look.machines) is not None:
        column, machines = found
        shown = ", ".join(map(printable, machines[:3])) + ", ..." * (len(machines) > 3)
        each, together = write_command({"by": column}), write_command({"drop": (column,)})
        raise ValueError(
            f"{table.path}: holds rows of {len(machines)} machines ({column}: {shown}); a monitor for each: {each}; or "
            f"one for all, if they are alike: {together}"
        )


class Watch:
    """A monitor that goes through the rows of a file, and what it finds there, by the file's rows, times and columns.

    `events`, by the positions of their first rows, and `changes` are as JSON has them.
    """

    def __init__(self, monitor: Monitor, tables: Sequence[Table], *, draws: bool) -> None:
        self.monitor, self.n_rows, self.n_alarms, self.n_events = monitor, 0, 0, 0
        self.threshold: float | None = None
        self.n_back, self.first_back = 0, 0
        self.events: dict[int, Facts] = {}
        self.changes: list[Facts] = []
        self.tables, self._table, self._draws = tables, tables[0], draws
        # Events that were told, and whether as ended; and the number of changes that were.
        self._told: dict[int, bool] = {}
        self._n_told = 0
        self._kept: list[tuple[MonitorRecord, Any]] = []
        self._latest: Any = None
        # The positions, among all rows that the monitor has seen, of the first one here and of the latest batches.
        self._first = getattr(monitor, "n_rows_", 0)
        self._batches: deque[tuple[int, Any, str]] = deque()
        self._change, self._n_known = monitor.change_detected_, monitor.n_events_

    def take(self, table: Table, batch: Batch) -> MonitorRecord:
        """Score the next rows, and learn those that are to be learned."""
        while len(self.events) > _MOST_EVENTS:
            ended = (start for start, event in self.events.items() if not event["is_open"])
            mildest = min(ended, key=lambda start: self.events[start]["severity"])
            del self.events[mildest]
            self._told.pop(mildest, None)
        position, times = self._first + self.n_rows, batch.times
        self._batches.append((position, batch.rows, table.path))
        while position - self._batches[0][0] > _MOST_ROWS:
            self._batches.popleft()
        if times is not None:
            # Clocks are set back once a year, and logs are not always in order.
            times = np.maximum.accumulate(times if self._latest is None else np.maximum(times, self._latest))
            if (back := np.flatnonzero(batch.times < times)).size:
                self.first_back = self.first_back or int(batch.rows[back[0]])
            self.n_back, self._latest = self.n_back + len(back), times[-1]
        record = self.monitor.update(batch.numbers, time=times)
        self.n_rows += len(batch.rows)
        self.n_alarms += int(record.is_alarm.sum())
        if np.isfinite(record.threshold[-1]):
            self.threshold = float(record.threshold[-1])
        if self._draws or batch.labels is not None:
            self._kept.append((record, batch.labels))
        n_recent = self.monitor.n_events_ - self._n_known + 1
        self._n_known = self.monitor.n_events_
        for event in self.monitor.events_[-n_recent:]:
            # An event that ended in an earlier file is not one of this file.
            if event.end > self._first and self.events.get(event.start, {}).get("is_open", True):
                self.n_events += event.start not in self.events
                self.events[event.start] = self._event(event)
        change = self.monitor.change_detected_
        if change is not None and change != self._change:
            self._change = change
            self.changes.append(self._lasting(change))
        return record

    def _place(self, name: str, position: int, time: Any) -> Facts:
        """Name a row by its number in its file, None before this run or long ago, and by the file if there are more."""
        first, rows, path = next((one for one in reversed(self._batches) if position >= one[0]), (0, None, None))
        place: Facts = {f"{name}_row": None if rows is None else int(rows[position - first])}
        if len(self.tables) > 1:
            place[f"{name}_file"] = path
        return place if time is None else place | {f"{name}_time": self._table.clock(time)}

    def _event(self, event: Event) -> Facts:
        known = self.events.get(event.start, {})
        return {
            "kind": "event",
            **self._place("first", event.start, event.start_time),
            **{name: known[name] for name in ("first_row",) if name in known},
            **self._place("last", event.end - 1, event.end_time),
            **self._place("peak", event.peak_row, event.peak_time),
            "alarms": event.n_alarms,
            "severity": event.severity,
            "event_kind": event.kind,
            "group": event.group,
            "is_open": event.is_open,
            "features": [self._cause(cause) for cause in event.features],
        }

    def _cause(self, cause: Cause) -> Facts:
        facts: Facts = cause._replace(feature=self._name(cause.feature))._asdict()
        return facts | self._place("since", facts.pop("since"), facts.pop("since_time"))

    def _lasting(self, change: Change) -> Facts:
        return {
            "kind": "change",
            **self._place("first", change.start, change.start_time),
            **self._place("detected", change.detected - 1, change.detected_time),
            "share_of_alarms": change.share,
            "is_accepted": change.is_accepted,
            "features": [self._name(one.feature) for one in change.features],
        }

    def _name(self, feature: str | int) -> str:
        return self._table.names[feature] if isinstance(feature, int) else feature

    def groups(self) -> list[list[Facts]]:
        """Return the events that are rare enough, those that are alike together, the worst first.

        Of up to 4,096 healthy rows, about one is as rare, and one more in each 4,096 beyond.
        """
        alike: dict[int, list[Facts]] = {}
        for event in self.events.values():
            if event["severity"] >= self.least_severity:
                alike.setdefault(event["group"], []).append(event)
        return sorted(alike.values(), key=lambda events: -_worst(events)["severity"])

    @property
    def least_severity(self) -> float:
        """The severity from which on events are shown: once in as many rows as were read, as far as scales reach."""
        return min(self.n_rows, _MOST_BY_CHANCE)

    def news(self, *, least: float, live: bool) -> Iterator[Facts]:
        """Yield changes, and events of a severity from `least` on, that were not told yet.

        Events are told when they have ended; `live` ones as soon as they are as severe too.
        """
        yield from self.changes[self._n_told :]
        self._n_told = len(self.changes)
        for start, event in self.events.items():
            is_new = not self._told.get(start, False) if not event["is_open"] else live and start not in self._told
            if is_new and event["severity"] >= least:
                self._told[start] = not event["is_open"]
                yield event

    def facts(self) -> Facts:
        """Return a summary as JSON has it."""
        n_alarms = None if self.threshold is None else self.n_alarms
        found: Facts = {"kind": "summary", "rows": self.n_rows, "events": self.n_events, "alarms": n_alarms}
        found["threshold"] = self.threshold
        if self._kept and self._kept[0][1] is not None:
            records, labels = zip(*self._kept, strict=True)
            is_fault, scores = np.concatenate(labels) != 0, np.concatenate([one.rarity for one in records])
            found["labelled_faults"] = int(is_fault.sum())
            if 0 < is_fault.mean() < 1:
                found["area_under_roc_curve"] = auroc(is_fault, scores)
                found["average_precision"] = average_precision(is_fault, scores)
        return found

    def drawn(self) -> Any:
        """Draw rarities, thresholds, alarms, rare events and lasting changes."""
        records, labels = zip(*self._kept, strict=True)
        times = None if records[0].time is None else np.concatenate([record.time for record in records])
        events = [e for e in self.monitor.events_ if e.start in self.events and e.severity >= self.least_severity]
        figure, change = plots.make_figure(), self._change if self.changes else None
        plots.draw_novelty(
            np.concatenate([record.rarity for record in records]),
            name="rarity",
            time=times,
            threshold=np.concatenate([record.threshold for record in records]),
            alarms=np.concatenate([record.is_alarm for record in records]),
            labels=None if labels[0] is None else np.concatenate(labels),
            events=[replace(e, start=max(e.start - self._first, 0), end=e.end - self._first) for e in events],
            changes=[replace(change, start=max(change.start - self._first, 0))] if change else [],
            ax=figure.add_subplot(),
        )
        return figure


def _conclude(found: Watch, *, as_json: bool, follows: bool) -> None:
    """Print what is still to be told, a summary, and what looks wrong."""
    facts, table = found.facts() | bad_facts(found.tables), found.tables[0]
    name = ", ".join([*(one.path for one in found.tables), *([] if table.key is None else [printable(table.key)])])
    n, n_alarms = found.n_rows, found.n_alarms
    if as_json:
        for one in [*found.news(least=1.0, live=True), facts]:
            _tell(one, found, as_json=True)
    elif not follows:
        groups = found.groups()
        n_rare = sum(map(len, groups))
        which = f"{n_rare:,} events" if n_rare != 1 else "1 event"
        kinds = f" of {len(groups):,} kinds" if 1 < len(groups) < n_rare else ""
        order = ", the rarest first" if len(groups) > 1 else ""
        click.echo(f"{name}, {n:,} rows: {which}{kinds}{order}")
        for alike in groups[:_SHOWN_GROUPS]:
            _tell(_gathered(alike), found)
        for change in found.changes:
            _tell(change, found)
        n_more, n_weak = sum(map(len, groups[_SHOWN_GROUPS:])), found.n_events - n_rare
        if n_more or n_weak:
            less = f"{n_weak:,} less rare than once in {found.least_severity:,.0f} rows"
            click.echo(f"\nNot shown: {n_more:,} more events, and {less}; --json lists all")
    if not as_json and "labelled_faults" in facts:
        print_facts("Labels", {name: facts.get(name) for name in _MEASURES})
    if found.n_back:
        where = f"{table.path}, {table.unit} {found.first_back}"
        print_warning(f"{where}: times go back here, and in {found.n_back:,} rows are before one that was read")
    if not n:
        print_warning(f"{name}: no new rows since it was read for this model; --from-start watches it anew")
    elif found.threshold is None:
        least = "64 at least, and one period" if found.monitor.period else "64 at least"
        print_warning(f"too few rows were learned for a threshold ({least}), so there are no alarms; learn more")
    elif not found.changes and n_alarms > n * max(_MANY_ALARMS, 3.0 * (1.0 - found.monitor.quantile)):
        learns_all = found.monitor.learn == "all"
        remedy = "raise --quantile" if learns_all else "if these rows are normal, learn them (--learn all)"
        print_warning(f"{n_alarms / n:.0%} of the rows are alarms; {remedy}")


def _tell(found: Facts, watch: Watch, *, as_json: bool = False) -> None:
    """Print an event or a change: when, where, how sure, and each column with the value that was expected."""
    table = watch.tables[0]
    if as_json:
        print_json(found if table.key is None else found | {"machine": table.key})
        return
    begin, end = (_when(found, name, table.unit) for name in ("first", "last" if "last_row" in found else "detected"))
    causes = found["features"][:_SHOWN_FEATURES]
    if found["kind"] == "change":
        state = "learned as normal" if found["is_accepted"] else "not learned (--accept-after)"
        head = f"Lasting change from {begin} on, noticed at {end}, {state}"
        lines = [", ".join(map(printable, causes))]
    else:
        span = begin if found["alarms"] == 1 else f"{begin} to {end}"
        counts = f"{found['alarms']:,} alarms" if found["alarms"] != 1 else "1 alarm"
        if (n_events := found.get("events", 1)) > 1:
            counts = f"{n_events:,} events, {counts}"
        head = f"Once in {_rounded(found['severity'])} rows: {span}, {counts}" + ", still open" * found["is_open"]
        lines = [f"{printable(cause['feature'])}: {_deviation(cause, table.unit)}" for cause in causes]
    click.echo("\n  ".join(["\n" + head, *lines]))


def _worst(events: list[Facts]) -> Facts:
    return max(events, key=lambda event: event["severity"])


def _gathered(events: list[Facts]) -> Facts:
    """Return events that are alike, in the order of time, as one with the features of the worst."""
    first, last = ("first_row", "first_file", "first_time"), ("last_row", "last_file", "last_time", "is_open")
    edges: tuple[tuple[Facts, tuple[str, ...]], ...] = ((events[0], first), (events[-1], last))
    span = {name: event[name] for event, names in edges for name in names if name in event}
    return _worst(events) | span | {"events": len(events), "alarms": sum(event["alarms"] for event in events)}


def _rounded(severity: float) -> str:
    return f"{float(f'{severity:.2g}'):,.0f}"


def _deviation(cause: Facts, unit: str) -> str:
    """Write a value and the one that was expected, with the digits that the range leaves sure."""
    width = cause["high"] - cause["low"]
    digits = min(max(1 - math.floor(math.log10(width)), 0), 12) if width > 0.0 else 4
    value, expected, low, high = (f"{cause[name]:.{digits}f}" for name in ("value", "expected", "low", "high"))
    since = f"{cause['direction']} since {_when(cause, 'since', unit)}"
    return f"{value}, expected {expected} ({low} to {high}), {since}; explains {cause['share']:.0%}"


def _when(found: Facts, name: str, unit: str) -> str:
    """Write the time and the number of a row."""
    row, time = found[f"{name}_row"], found.get(f"{name}_time")
    where = "before the rows read here" if row is None else f"{unit} {row:,}"
    where = f"{found[f'{name}_file']}, {where}" if found.get(f"{name}_file") else where
    return where if time is None else f"{str(time).replace('T', ' ')} ({where})"
