"""The work of the commands that apply a model to rows: score, transform, impute."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import click

from streamkpca.cli.console import BadInput, one_line, print_json, print_warning
from streamkpca.cli.hints import Spread, change_hint, column_hints, score_hints
from streamkpca.cli.models import (
    NOTES,
    ModelFile,
    WatchedModel,
    check_columns,
    check_writable,
    learned_categories,
    learned_columns,
    n_learned,
    own_notes,
    read_fitted,
    saved_beside,
)
from streamkpca.cli.options import MODEL_PARAMETERS, given_options
from streamkpca.cli.pipeline import (
    complete,
    learn_as_normal,
    make_model,
    make_monitor,
    make_writer,
    monitor_of,
    open_for,
    open_pair,
    open_tables,
    project,
    reading_of,
    reading_options,
    results_form,
    skipped_facts,
    tell_skipped,
    watch,
    with_categories,
)
from streamkpca.cli.reports import Scores, model_facts, show_model
from streamkpca.cli.results import STANDARD_OUTPUT, ResultWriter
from streamkpca.cli.signals import SignalGuard
from streamkpca.cli.tables import Chunk, Table
from streamkpca.cli.watch import Found, Watcher, written_shares
from streamkpca.monitoring import Monitor


def score(
    file: str,
    train: str | None,
    model: str | None,
    as_json: bool,
    train_array: str | None,
    labels: str | None,
    top: int,
    chunk_rows: int,
    save: str | None,
    save_model: str | None,
    form: str | None,
    follow: bool,
    **options: Any,
) -> None:
    """Learn --train, or read a saved --model, then measure how novel each row of FILE is (- for standard input)."""
    if (train is None) == (model is None):
        raise BadInput("score: give either --train FILE to learn first, or --model FILE learned before (see --help)")
    form, signals = results_form(save, form, as_json=as_json), SignalGuard()
    reading, watched = reading_options(options) | {"follow": follow}, None
    saved: ModelFile | None = None
    if save_model is not None:
        check_writable(save_model, [file, *([train] if train else [])])
        saved = ModelFile(save_model)
    if train is not None:
        gaps = {"on_missing": options["on_missing"]}
        target, source = open_pair(file, train, labels, train_array, reading | gaps)
        learner = with_categories(make_model(options), source, lags=options["lags"])
        monitor, n_before = make_monitor(learner, options), 0
    else:
        named = given_options({"train_array", "units", *MODEL_PARAMETERS})
        if named:
            raise BadInput(
                f"score: {model} has its parameters already; leave out {', '.join(named)}, or learn with --train"
            )
        watched = WatchedModel(str(model))
        if save_model is not None and os.path.realpath(save_model) == os.path.realpath(str(model)):
            saved = watched.file
        monitor = monitor_of(watched.model, str(model), options)
        target = open_for(watched.model, str(model), file, reading | {"labels": labels}, lags=monitor.lags)
        n_before = n_learned(watched.model)
    spread, names = Spread(), list(target.columns.feature_names)
    scores: Scores | None = None
    writer: ResultWriter | None = None
    scored, seconds, learned, hints = False, None, True, []
    with signals.installed(), one_line(), ExitStack() as stack:
        if save:
            inputs = [file, str(train or model), *([save_model] if save_model else [])]
            writer = make_writer(save, inputs, target, time=options["time"], form=form, live=follow)
            stack.enter_context(writer)
        if train is not None:
            seconds, learned = learn_as_normal(monitor, source, chunk_rows, signals, spread=spread)
            monitor.forget_alarms()
            n_before = spread.n_rows
        if learned:
            scores = Scores(top, Watcher(monitor, names))
            shows_alarms = follow and save != STANDARD_OUTPUT
            printer = _alarm_printer(scores, as_json=as_json)
            scored = watch(
                scores.watcher,
                [target],
                chunk_rows,
                signals,
                writer=writer,
                callbacks=[printer.take if shows_alarms else scores.take],
                # Projections of several models do not belong in one table.
                before=_take_newer(watched, printer, options) if watched and follow and not save else None,
                quiet=shows_alarms,
            )
            monitor = scores.watcher.monitor
            if saved is not None:
                saved.replace(lambda path: monitor.save(path, _notes(monitor, target)))
    learner = monitor.model
    tell_skipped([target])
    if n_learned(learner) and train is not None:
        hints = column_hints(spread, learner.kernel_, names, str(train)) if monitor.lags == 1 else []
    if scores and scores.n_rows:
        found = scores.facts()
        if follow:
            # They were printed when they were detected.
            found["changes"] = []
        hints += score_hints(found, n_learned=n_before, quantile=monitor.quantile, learn=monitor.learn)
    for hint in hints:
        print_warning(hint)
    if not (writer and writer.is_output):
        if as_json:
            answer = {"scores": scores.facts() | skipped_facts([target]) if scores else None}
            where = {} if save_model is None else {"saved_model": save_model}
            print_json(answer | {"model": model_facts(learner) if n_learned(learner) else None} | where)
        else:
            if scores and scores.n_rows:
                scores.show(file)
            if n_learned(learner):
                n_more = n_learned(learner) - n_before
                note = f"{n_more:,} of them from {file}" if n_more else ""
                show_model(learner, seconds, n_new=n_before, note=note, lags=monitor.lags)
            if writer and writer.n_rows:
                click.echo(f"Projections and scores of {writer.n_rows:,} rows: {writer.path}")
            if save_model is not None and scores:
                click.echo(f"Model: {save_model}")
    if not scored:
        n_scored = scores.n_rows if scores else 0
        signals.leave(f"interrupted after {n_before:,} rows learned, {n_scored:,} scored")


def transform(
    files: tuple[str, ...],
    model: str,
    chunk_rows: int,
    save: str | None,
    form: str | None,
    as_json: bool,
    follow: bool,
    **options: Any,
) -> None:
    """Project the rows of FILE... with a saved model: write row, novelty and projections of each."""
    target = save or "-"
    form, signals = results_form(target, form, as_json=as_json), SignalGuard()
    learner = read_fitted(model)
    reading = reading_options(options) | {"follow": follow} | reading_of(learner)
    tables = open_tables(files, reading, learned=learned_columns(learner))
    for table in tables:
        check_columns(learner, model, table)
    writer = make_writer(target, [*files, model], tables[0], time=options["time"], form=form, live=follow)
    with signals.installed(), one_line(), writer:
        done = project(learner, tables, chunk_rows, signals, writer=writer)
    tell_skipped(tables)
    if as_json and not writer.is_output:
        print_json({"rows": writer.n_rows, "saved": str(writer.path)} | skipped_facts(tables))
    elif not writer.is_output:
        click.echo(f"Projections and scores of {writer.n_rows:,} rows: {writer.path}")
    if not done:
        signals.leave(f"interrupted after {writer.n_rows:,} rows")


def impute(
    files: tuple[str, ...],
    model: str,
    chunk_rows: int,
    save: str | None,
    form: str | None,
    as_json: bool,
    follow: bool,
    **options: Any,
) -> None:
    """Complete the gaps of FILE... with a saved model: write row and its columns, with a number in each gap."""
    target = save or "-"
    form, signals = results_form(target, form, as_json=as_json), SignalGuard()
    learner = read_fitted(model)
    if learned_categories(learner):
        raise BadInput(f"impute: {model} compares categories, which are not written; use StreamingKernelPCA.impute")
    # A model that learned complete rows completes others too.
    reading = reading_options(options) | {"follow": follow, "on_missing": "marginal"}
    tables = open_tables(files, reading, learned=learned_columns(learner))
    for table in tables:
        check_columns(learner, model, table)
    writer = make_writer(target, [*files, model], tables[0], time=options["time"], form=form, live=follow)
    with signals.installed(), one_line(), writer:
        done = complete(learner, tables, chunk_rows, signals, writer=writer)
    tell_skipped(tables)
    if as_json and not writer.is_output:
        print_json({"rows": writer.n_rows, "saved": str(writer.path)} | skipped_facts(tables))
    elif not writer.is_output:
        click.echo(f"Complete rows, {writer.n_rows:,}: {writer.path}")
    if not done:
        signals.leave(f"interrupted after {writer.n_rows:,} rows")


class _AlarmPrinter:
    """Prints alarms, events and lasting changes as they come."""

    def __init__(self, scores: Scores, *, as_json: bool) -> None:
        self.scores = scores
        self._as_json = as_json

    def take(self, chunk: Chunk, found: Found) -> None:
        """Take what was found about the next rows."""
        for alarm in self.scores.take(chunk, found):
            if self._as_json:
                print_json({"alarm": alarm})
            else:
                when = f", time {alarm['time']}" if "time" in alarm else ""
                click.echo(f"alarm: row {alarm['row']}{when}, novelty {alarm['novelty']:.4g}")
        self.print_events([*found.news.closed, *found.news.opened])
        for change in found.news.changes:
            if self._as_json:
                print_json({"change": change})
            else:
                click.echo(f"change: {change_hint(change, learn=self.scores.watcher.monitor.learn)}")

    def print_events(self, events: list[dict[str, Any]]) -> None:
        """Print events that have begun or ended."""
        for event in events:
            if self._as_json:
                print_json({"event": event})
                continue
            first = f"row {event['first_row']}" + (f", time {event['first_time']}" if "first_time" in event else "")
            most = f", most novel in {written_shares(event['features'])}" if event["features"] else ""
            if event["is_open"]:
                click.echo(f"event begins: {first}{most}")
            else:
                last = f"row {event['last_row']}" + (f", time {event['last_time']}" if "last_time" in event else "")
                peak = f"peak {event['peak']:.4g} at row {event['peak_row']}"
                click.echo(f"event ended: {first} to {last}, {event['alarms']} alarms, {peak}{most}")


def _alarm_printer(scores: Scores, *, as_json: bool) -> _AlarmPrinter:
    """Make what prints alarms, events and changes as they come."""
    return _AlarmPrinter(scores, as_json=as_json)


def _take_newer(watched: WatchedModel, printer: _AlarmPrinter, options: dict[str, Any]) -> Callable[[], None]:
    """Make the function that goes on with a replaced model; the open event ends with the old one."""

    def take_newer() -> None:
        model = watched.newer()
        if model is not None:
            printer.print_events(printer.scores.watcher.replace(make_monitor(model, options)))

    return take_newer


def _notes(monitor: Monitor, table: Table) -> Any:
    """Return what to save beside a monitor: what was there before, and the names of the columns."""
    before = saved_beside(monitor.model.extra_)
    if not isinstance(before, dict | None):
        return before
    names = list(table.columns.feature_names)
    if not table.columns.named or len(set(names)) < len(names) or own_notes(before).get("columns"):
        return before
    return {**(before or {}), NOTES: {**own_notes(before), "columns": names}}
