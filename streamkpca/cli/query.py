"""The work of the commands that apply a model to rows: score, transform."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from streamkpca.cli.console import BadInput, one_line, print_json
from streamkpca.cli.models import WatchedModel, check_columns, learned_columns, n_learned, read_fitted
from streamkpca.cli.options import MODEL_PARAMETERS, given_options
from streamkpca.cli.pipeline import (
    learn,
    make_model,
    make_writer,
    open_pair,
    open_tables,
    project,
    reading_options,
    results_form,
    skipped_facts,
    tell_skipped,
)
from streamkpca.cli.reports import Scores, model_facts, show_model
from streamkpca.cli.results import STANDARD_OUTPUT, ResultWriter
from streamkpca.cli.signals import SignalGuard
from streamkpca.cli.tables import Chunk
from streamkpca.estimators.streaming import StreamingKernelPCA

Array = npt.NDArray[np.float64]


def score(
    file: str,
    train: str | None,
    model: str | None,
    as_json: bool,
    train_array: str | None,
    labels: str | None,
    quantile: float,
    top: int,
    chunk_rows: int,
    save: str | None,
    form: str | None,
    follow: bool,
    **options: Any,
) -> None:
    """Learn --train, or read a saved --model, then measure how novel each row of FILE is (- for standard input)."""
    if (train is None) == (model is None):
        raise BadInput("score: give either --train FILE to learn first, or --model FILE learned before (see --help)")
    form, signals = results_form(save, form, as_json=as_json), SignalGuard()
    reading, watched = reading_options(options) | {"follow": follow}, None
    if train is not None:
        target, source = open_pair(file, train, labels, train_array, reading)
        learner = make_model(options)
    else:
        named = given_options({"train_array", *MODEL_PARAMETERS})
        if named:
            raise BadInput(
                f"score: {model} has its parameters already; leave out {', '.join(named)}, or learn with --train"
            )
        watched = WatchedModel(str(model))
        learner = watched.model
        (target,) = open_tables([file], reading | {"labels": labels}, learned=learned_columns(learner))
        check_columns(learner, str(model), target)
    result: Scores | None = None
    writer: ResultWriter | None = None
    scored, seconds, learned = False, None, True
    with signals.installed(), one_line(), ExitStack() as stack:
        if save:
            inputs = [file, str(train or model)]
            writer = make_writer(save, inputs, target, time=options["time"], form=form, live=follow)
            stack.enter_context(writer)
        if train is not None:
            seconds, learned = learn(learner, [source], chunk_rows, signals)
        if learned:
            result = Scores(top, threshold=_threshold(learner, quantile))
            shows_alarms = follow and save != STANDARD_OUTPUT
            scored = project(
                learner,
                [target],
                chunk_rows,
                signals,
                writer=writer,
                callbacks=[_alarm_printer(result, as_json=as_json) if shows_alarms else result.take],
                # Projections of several models do not belong in one table.
                newer=_newer(watched, result, quantile) if watched and follow and not save else None,
                quiet=shows_alarms,
            )
    if watched:
        learner = watched.model
    tell_skipped([target])
    if not (writer and writer.is_output):
        if as_json:
            found = {"scores": result.facts() | skipped_facts([target]) if result else None}
            print_json(found | {"model": model_facts(learner) if n_learned(learner) else None})
        else:
            if result and result.n_rows:
                result.show(file)
            if n_learned(learner):
                show_model(learner, seconds)
            if writer and writer.n_rows:
                click.echo(f"Projections and scores of {writer.n_rows:,} rows: {writer.path}")
    if not scored:
        n_scored = result.n_rows if result else 0
        signals.leave(f"interrupted after {n_learned(learner):,} rows learned, {n_scored:,} scored")


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
    reading = reading_options(options) | {"follow": follow}
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


def _newer(watched: WatchedModel, scores: Scores, quantile: float) -> Callable[[], StreamingKernelPCA | None]:
    """Make the function that returns a replaced model and moves the threshold of alarms to the model's."""

    def newer() -> StreamingKernelPCA | None:
        model = watched.newer()
        if model is not None:
            scores.threshold = _threshold(model, quantile)
        return model

    return newer


def _alarm_printer(scores: Scores, *, as_json: bool) -> Callable[[Chunk, Array], None]:
    """Make the callback that takes scores and prints the alarms among them at once."""

    def take(chunk: Chunk, novelty: Array) -> None:
        for alarm in scores.take(chunk, novelty):
            if as_json:
                print_json({"alarm": alarm | {"threshold": scores.threshold}})
            else:
                when = f", time {alarm['time']}" if "time" in alarm else ""
                click.echo(f"alarm: row {alarm['row']}{when}, novelty {alarm['novelty']:.4g}")

    return take


def _threshold(model: StreamingKernelPCA, quantile: float) -> float | None:
    """Return the novelty from which a row is an alarm; None for a model without a sample of its stream."""
    asked = bool(given_options({"quantile"}))
    with one_line():
        return model.novelty_threshold(quantile) if asked or model.reservoir_size else None
