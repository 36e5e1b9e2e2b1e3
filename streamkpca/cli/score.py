"""The work of score: a monitor goes through the rows of a file, and events, changes and novel rows are told."""

from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from streamkpca.cli.console import Signals, print_facts, print_json, print_table, print_warning, written
from streamkpca.cli.learn import Constant, make_writer, projections_of, row_columns
from streamkpca.cli.models import (
    ModelFile,
    Saved,
    check_target,
    n_learned,
    noted_columns,
    read_saved,
    with_notes,
)
from streamkpca.cli.options import MODEL_PARAMETERS, MONITOR_PARAMETERS, refuse_given
from streamkpca.cli.reading import at, bad_facts, each_batch, make_model, open_tables, tell_bad
from streamkpca.cli.reports import auroc, average_precision, model_facts, show_model
from streamkpca.cli.tables import Batch, Table
from streamkpca.monitoring import Monitor, MonitorRecord
from streamkpca.monitoring.events import largest_contributions

Array = npt.NDArray[np.float64]
Facts = dict[str, Any]

_MOST_KEPT = 1000
_MOST_PLACES = 100_000
_SHOWN_FEATURES = 3
# Events and novel rows that are shown.
_TOP = 10
# Fewer learned rows leave the level that one row in a hundred exceeds to chance.
_ENOUGH_ROWS = 300
_MANY_ALARMS = 0.1


def score(
    file: str,
    train: str | None,
    model: str | None,
    save_model: str | None,
    save: str | None,
    as_json: bool,
    chunk_rows: int,
    **options: Any,
) -> None:
    """Learn --train, or read a saved model, then score the rows of a file and learn those that are normal."""
    if (train is None) == (model is None):
        raise click.UsageError("give either --train FILE to learn first, or --model FILE that was learned before")
    if train == "-":
        raise click.UsageError("--train -: standard input cannot be learned first; write it to a file")
    inputs = [file, *([train] if train else [])]
    if save_model:
        check_target(save_model, inputs)
    target = ModelFile(save_model) if save_model else None
    if model:
        refuse_given({"units", *MODEL_PARAMETERS}, f"the model in {model} has its parameters already")
        saved = read_saved(model)
        monitor = monitor_of(saved, model, options)
    else:
        source = _source(str(train), options)
        saved = Saved(make_model(options), columns=noted_columns(source))
        monitor = Monitor(saved.model, **_monitor_options(options) | {"learn": "all"})
    # Opened before anything is learned, so that a mistake costs no hour first.
    learned = saved.learned or len(source.names)
    (table,) = open_tables([file], options, learned=learned, on_missing=saved.model.on_missing)
    written = [*inputs, *filter(None, [model, save_model])]
    writer = make_writer(save, written, live=options["follow"], as_json=as_json) if save else None
    is_quiet = writer is not None and writer.is_output
    tells, columns = options["follow"] and not is_quiet, saved.columns or noted_columns(table)
    signals = Signals()
    with signals.handled(), writer or nullcontext():
        if train:
            _learn_all(monitor, source, chunk_rows, signals)
            monitor.learn = options["learn"]
        n_before, watch = n_learned(monitor.model), Watch(monitor, table.names)
        # Pieces in which at most one lasting change can be found.
        n_rows = min(chunk_rows, monitor.accept_after)
        for _, batch in each_batch([table], n_rows, signals, "scoring", quiet=tells or is_quiet):
            with at(table, batch):
                record, stacked = watch.take(batch)
            if writer:
                writer.write(row_columns(table, batch) | _columns_of(watch, record, stacked))
            if tells:
                _tell(watch.news, as_json=as_json)
        if target and watch.n_rows:
            extra = with_notes(saved.extra, columns, saved.places)
            target.replace(lambda path: monitor.save(path, extra))
    tell_bad([table])
    facts = watch.facts() | bad_facts([table])
    if watch.n_rows:
        for hint in score_hints(facts, n_learned=n_before, monitor=monitor, told=tells):
            print_warning(hint)
    model_found = model_facts(monitor.model, columns, lags=monitor.lags) if n_learned(monitor.model) else None
    if as_json and not is_quiet:
        print_json({"scores": facts, "model": model_found, "saved_model": save_model})
    elif not is_quiet:
        show_scores(facts, file)
        if model_found:
            show_model(model_found, new_rows=n_learned(monitor.model) - n_before)
        for what, path in (("Results", save), ("Model", save_model)):
            if path:
                click.echo(f"{what}: {path}")
    signals.leave_if_stopped(f"after {watch.n_rows:,} rows scored")


def monitor_of(saved: Saved, path: str, options: Facts) -> Monitor:
    """Make the monitor of a saved model, or go on with the one that was saved with it."""
    if saved.monitor is None:
        return Monitor(saved.model, **_monitor_options(options))
    refuse_given(MONITOR_PARAMETERS, f"{path} was saved with thresholds and events of its own")
    return saved.monitor


def _source(train: str, options: Facts) -> Table:
    """Open the table that is learned first, without the labels of the other one."""
    reading = options | {"labels": None, "follow": False}
    (source,) = open_tables([train], reading, on_missing=options["on_missing"])
    if options["labels"] in source.names:
        reading["drop"] = (*(options["drop"] or ()), options["labels"])
        (source,) = open_tables([train], reading, on_missing=options["on_missing"])
    return source


def _learn_all(monitor: Monitor, source: Table, chunk_rows: int, signals: Signals) -> None:
    """Learn all rows of a table as normal."""
    constant = Constant()
    for _, batch in each_batch([source], chunk_rows, signals, "learning"):
        constant.add(batch.numbers)
        with at(source, batch):
            monitor.update(batch.numbers)
    tell_bad([source])
    signals.leave_if_stopped("before the rows were scored")
    monitor.model.refit()
    monitor.forget_alarms()
    constant.tell(source.path, source.names)


def _monitor_options(options: Facts) -> dict[str, Any]:
    return {name: options[name] for name in MONITOR_PARAMETERS}


def _columns_of(watch: "Watch", record: MonitorRecord, stacked: Array) -> dict[str, npt.ArrayLike]:
    """Return what was found about rows as columns of results, with their projections by the model after them."""
    columns: dict[str, npt.ArrayLike] = record._asdict()
    columns["alarm"] = columns.pop("is_alarm")
    # The file's own times stand beside the rows.
    del columns["time"]
    return columns | projections_of(watch.monitor.model, stacked)


class Watch:
    """A monitor that goes through the rows of a file, and what it finds there, by the file's rows, times and columns.

    `news` are the alarms, events and changes of the last batch. The latest 1,000 events and changes are kept, the ten
    most novel rows, and where rows have labels all scores.
    """

    def __init__(self, monitor: Monitor, names: Sequence[str]) -> None:
        self.n_rows = self.n_alarms = self.n_events = 0
        self.threshold: float | None = None
        self.changes: deque[Facts] = deque(maxlen=_MOST_KEPT)
        self.news: list[Facts] = []
        self._names = list(names)
        # By position among the rows scored: events by their starts, and rows of the file by those of alarms.
        self._events: dict[int, Facts] = {}
        self._places: dict[int, Facts] = {}
        self._first: Facts = {}
        self._highest: list[Facts] = []
        self._scores: list[Array] = []
        self._labels: list[Array] = []
        self.monitor = monitor
        self._before = np.empty((0, len(names)))
        # From positions in the monitor's stream to positions among the rows scored.
        self._shift = -getattr(monitor, "n_rows_", 0)
        self._change = getattr(monitor, "change_detected_", None)
        self._n_known = getattr(monitor, "n_events_", 0)

    def take(self, batch: Batch) -> tuple[MonitorRecord, Array]:
        """Score the next rows, and learn those that are to be learned; also return the rows as the model sees them."""
        first = self.n_rows
        both = np.concatenate([self._before, batch.numbers])
        stacked = self.monitor.stacked(both)[len(self._before) :]
        self._before = both[len(both) - min(len(both), self.monitor.lags - 1) :]
        record = self.monitor.update(batch.numbers)
        self._first = self._first or _place(batch, 0)
        alarms = {first + i: _place(batch, i) for i in np.flatnonzero(record.is_alarm).tolist()}
        self._places |= alarms
        self.n_rows += len(batch.rows)
        self.n_alarms += len(alarms)
        if np.isfinite(record.threshold[-1]):
            self.threshold = float(record.threshold[-1])
        if batch.labels is not None:
            self._scores.append(record.smoothed)
            self._labels.append(batch.labels)
        self._rank(batch, record, stacked)
        scores = {"novelty": record.novelty, "threshold": record.threshold}
        self.news = [
            {"alarm": place | {name: float(values[position - first]) for name, values in scores.items()}}
            for position, place in alarms.items()
        ]
        self._follow_events()
        self._follow_changes(batch, first)
        return record, stacked

    def _rank(self, batch: Batch, record: MonitorRecord, stacked: Array) -> None:
        """Keep the most novel rows, and the columns that make them so."""
        best = np.argsort(-record.novelty, kind="stable")[:_TOP].tolist()
        if len(self._highest) == _TOP:
            best = [i for i in best if record.novelty[i] > self._highest[-1]["novelty"]]
        # Rows that were learned are not novel to the model any more.
        is_explained = best and self.monitor.learn != "all" and n_learned(self.monitor.model)
        features: list[Facts] = [{} for _ in best]
        if is_explained:
            added = self.monitor.model.contributions(stacked[best]).reshape(len(best), self.monitor.lags, -1)
            features = [self._shares(largest_contributions(row, None), row.sum()) for row in added.sum(axis=1)]
        self._highest += [
            _place(batch, i) | {"novelty": float(record.novelty[i]), "features": names}
            for i, names in zip(best, features, strict=True)
        ]
        self._highest = sorted(self._highest, key=lambda one: -one["novelty"])[:_TOP]

    def _follow_events(self) -> None:
        """Take over the events that the monitor has found since the last batch, and the one that was open."""
        n_recent = self.monitor.n_events_ - self._n_known + 1
        self._n_known = self.monitor.n_events_
        for event in self.monitor.events_[-n_recent:]:
            start = event.start + self._shift
            known = self._events.get(start, {})
            # An event that ended in an earlier file is not one of this file.
            if event.end + self._shift <= 0 or not known.get("is_open", True):
                continue
            first: Facts = {name: known[name] for name in ("first_row", "first_time") if name in known}
            self._events[start] = {
                **(first or self._named("first", event.start)),
                **self._named("last", event.end - 1),
                **self._named("peak", event.peak_row),
                "alarms": event.n_alarms,
                "peak": event.peak,
                "features": self._shares([(cause.feature, cause.share) for cause in event.features], 1.0),
                "is_open": event.is_open,
            }
            self.n_events += not known
            if not known or not event.is_open:
                self.news.append({"event": self._events[start]})
        while len(self._events) > _MOST_KEPT:
            del self._events[next(iter(self._events))]

    def _follow_changes(self, batch: Batch, first: int) -> None:
        """Take over the lasting change that the monitor has found, if it is new, and forget alarms of long ago."""
        change = self.monitor.change_detected_
        if change is not None and change != self._change:
            self._change = change
            last = min(max(change.detected + self._shift - first, 1), len(batch.rows)) - 1
            facts = {
                **self._named("first", change.start),
                "detected_row": int(batch.rows[last]),
                "share_of_alarms": change.share,
                "features": self._shares(change.features, 1.0),
                "is_accepted": change.is_accepted,
            }
            self.changes.append(facts)
            self.news.append({"change": facts})
        if len(self._places) > _MOST_PLACES:
            self._places = dict(list(self._places.items())[-_MOST_PLACES // 2 :])

    def _named(self, name: str, position: int) -> Facts:
        """Return the row and time of an alarm under names of their own; those before the file count as its first."""
        place = self._places.get(position + self._shift, self._first)
        return {f"{name}_{what}": value for what, value in place.items()}

    def _shares(self, features: Sequence[tuple[str | int, float]], whole: float) -> Facts:
        """Return the columns that add most to a novelty, and their shares of it."""
        return {
            self._names[name] if isinstance(name, int) else name: min(float(added / max(whole, 1e-300)), 1.0)
            for name, added in features[:_SHOWN_FEATURES]
        }

    def facts(self) -> Facts:
        """Return what was found as JSON has it."""
        found: Facts = {
            "events": list(self._events.values()),
            "number_of_events": self.n_events,
            "changes": list(self.changes),
            "most_novel": self._highest,
            "rows": self.n_rows,
            "threshold": self.threshold,
            "alarms": None if self.threshold is None else self.n_alarms,
            "smoothing": self.monitor.smoothing,
            "lags": self.monitor.lags,
        }
        if self._labels:
            labels, scores = np.concatenate(self._labels) != 0, np.concatenate(self._scores)
            found["anomalous_rows"] = int(labels.sum())
            if 0 < labels.mean() < 1:
                found["area_under_roc_curve"] = auroc(labels, scores)
                found["average_precision"] = average_precision(labels, scores)
        return found


def _place(batch: Batch, i: int) -> Facts:
    """Return the number of a row in its file, and its time if it has one."""
    place: Facts = {"row": int(batch.rows[i])}
    if batch.times is not None:
        when = batch.times[i]
        is_date = isinstance(when, np.datetime64)
        place["time"] = str(np.datetime_as_string(when, unit="auto")) if is_date else float(when)
    return place


def _tell(news: Sequence[Facts], *, as_json: bool) -> None:
    """Print alarms, events and lasting changes as they come."""
    for one in news:
        if as_json:
            print_json(one)
        else:
            click.echo("; ".join(f"{kind}: {written(facts)}" for kind, facts in one.items()))


def score_hints(found: Facts, *, n_learned: int, monitor: Monitor, told: bool) -> list[str]:
    """Say what looks wrong with the scores of a file, given as `Watch.facts` returns them."""
    n, n_alarms = found["rows"], found["alarms"] or 0
    if found["threshold"] is None:
        return [f"only {n_learned:,} rows were learned, too few for a threshold, so there are no alarms; learn more"]
    hints = []
    if found["changes"] and not told:
        accepted = "was learned as normal" if found["changes"][-1]["is_accepted"] else "was not learned (--learn)"
        hints.append(f"a lasting change {accepted}: {written(found['changes'][-1])}")
    if n_learned < _ENOUGH_ROWS:
        hints.append(f"fewer than {_ENOUGH_ROWS} rows were learned ({n_learned:,}): the threshold is uncertain")
    if not found["changes"] and n_alarms > n * max(_MANY_ALARMS, 3.0 * (1.0 - monitor.quantile)):
        remedy = "raise --quantile" if monitor.learn == "all" else "if these rows are normal, learn them (--learn all)"
        hints.append(f"{n_alarms / n:.0%} of the rows are alarms; {remedy}")
    return hints


def show_scores(found: Facts, source: str) -> None:
    """Print what was found in the rows of `source`: events, the most novel rows, and a summary."""
    largest = sorted(found["events"], key=lambda event: -event["alarms"] * event["peak"])[:_TOP]
    largest.sort(key=lambda event: event["first_row"])
    print_table(f"The largest {len(largest)} of {found['number_of_events']:,} events", largest)
    print_table("Most novel rows", found["most_novel"])
    facts = {name: fact for name, fact in found.items() if name not in ("events", "most_novel")}
    print_facts(f"Novelty of {source}", facts)
