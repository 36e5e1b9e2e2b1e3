"""The work of fit and transform."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy.typing as npt

from streamkpca.cli.console import Signals, print_json, print_result
from streamkpca.cli.models import Autosave, check_target, is_among, n_learned, read_saved
from streamkpca.cli.options import MODEL_PARAMETERS, refuse_given
from streamkpca.cli.reading import FOLLOW_SECONDS, at, bad_facts, each_batch, make_model, open_tables, tell_bad
from streamkpca.cli.reports import model_facts, show_model
from streamkpca.tables import Batch, Table, Writer


def fit(
    files: tuple[str, ...],
    model: str | None,
    resume: bool,
    save_every: float | None,
    from_start: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Learn the rows of files, in order, and save the model."""
    if model is None:
        refuse_given({"resume", "save_every"}, "these need a saved model (--model FILE)")
    else:
        check_target(model, files)
    if not resume:
        refuse_given({"from_start"}, "without --resume there is no model to continue")
    saved = read_saved(model, fitted=False, alone=True) if model and resume and Path(model).exists() else None
    if saved:
        refuse_given(MODEL_PARAMETERS, f"the model in {model} keeps the parameters that it began with")
    learner = saved.model if saved else make_model(options)
    if save_every is None:
        save_every = FOLLOW_SECONDS if options["follow"] else math.inf
    autosave = Autosave(model, save_every, saved)
    signals, n_before = Signals(), n_learned(learner)
    tables = open_tables(
        files,
        options,
        saved=saved,
        on_missing=learner.on_missing,
        places={} if from_start else autosave.places,
    )
    with signals.handle():
        for table, batch in each_batch(tables, options["chunk_rows"], signals, "learning"):
            with at(table, batch):
                learner.partial_fit(batch.numbers)
            autosave.note(table, batch)
            autosave.save_if_due(learner)
        if n_learned(learner):
            learner.refit()
            autosave.save(learner)
    tell_bad(tables)
    n_new = n_learned(learner) - n_before
    if as_json:
        facts = model_facts(learner, autosave.reading.columns) if n_learned(learner) else None
        print_json({"model": facts, "new_rows": n_new} | bad_facts(tables))
    elif n_learned(learner):
        n_skipped = bad_facts(tables)["rows_skipped"]
        show_model(model_facts(learner, autosave.reading.columns), new_rows=n_new, rows_skipped=n_skipped or None)
        if model:
            click.echo(f"Model: {model}")
    signals.leave_if_stopped(f"after {n_learned(learner):,} rows")


def transform(
    files: tuple[str, ...], model: str, save: str | None, as_json: bool, chunk_rows: int, **options: Any
) -> None:
    """Project rows with a saved model: write row, novelty and projections of each."""
    saved, signals = read_saved(model, alone=True), Signals()
    learner = saved.model
    tables = open_tables(files, options, saved=saved, on_missing=learner.on_missing)
    writer = make_writer(save or "-", [*files, model], live=options["follow"], as_json=as_json)
    with signals.handle(), writer:
        for table, batch in each_batch(tables, chunk_rows, signals, "writing", quiet=writer.is_output):
            with at(table, batch):
                answers = row_columns(table, batch, with_file=len(files) > 1)
                answers["novelty"] = learner.novelty(batch.numbers)
                answers |= {f"component_{i}": column for i, column in enumerate(learner.transform(batch.numbers).T)}
            writer.write(answers)
    tell_bad(tables)
    if not writer.is_output:
        facts = {"rows": writer.n_rows, "saved": writer.path} | bad_facts(tables)
        print_result(facts, f"Results of {writer.n_rows:,} rows: {writer.path}", as_json=as_json)
    signals.leave_if_stopped(f"after {writer.n_rows:,} rows")


def make_writer(path: str, inputs: Sequence[str], *, live: bool, as_json: bool, n_kept: int | None = None) -> Writer:
    """Make the writer of results, not over an input; with --json, standard output takes JSON lines."""
    if path != "-" and is_among(path, inputs):
        raise click.UsageError(f"{path}: is read as input; give --save another name")
    return Writer(path, format="jsonl" if path == "-" and as_json else None, live=live, n_kept=n_kept)


def row_columns(table: Table, batch: Batch, *, with_file: bool = False) -> dict[str, npt.ArrayLike]:
    """Return the columns of results that come first: the rows' numbers in their file, their times and labels."""
    columns: dict[str, npt.ArrayLike] = {"file": [table.path] * len(batch.rows)} if with_file else {}
    columns["row"] = batch.rows
    if batch.times is not None:
        columns[" ".join(table.time_names)] = batch.times
    if batch.labels is not None:
        columns["label"] = batch.labels
    return columns
