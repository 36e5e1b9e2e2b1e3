"""The work of fit."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from streamkpca import StreamingKernelPCA
from streamkpca.cli.console import Signals, print_json
from streamkpca.cli.models import Autosave, Saved, check_target, model_facts, n_learned, read_saved, show_model
from streamkpca.cli.options import MODEL_PARAMETERS, refuse_given
from streamkpca.cli.reading import FOLLOW_SECONDS, at, bad_facts, each_batch, open_tables, tell_bad
from streamkpca.errors import text_of
from streamkpca.kernels import kernel_from


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
    if model and resume and Path(model).exists():
        saved = read_saved(model, fitted=False, alone=True)
        if saved.monitor:
            raise ValueError(f"{model}: it has a monitor, whose events fit would lose; use watch, or another --model")
        refuse_given(MODEL_PARAMETERS, f"the model in {model} keeps the parameters that it began with")
    else:
        saved = Saved(_make_model(options))
    learner = saved.model
    if save_every is None:
        save_every = FOLLOW_SECONDS if options["follow"] else math.inf
    autosave = Autosave(model, save_every, saved, learner)
    signals, n_before = Signals(), n_learned(learner)
    tables = open_tables(files, options, saved._replace(places={}) if from_start else saved)
    with signals.handle():
        for table, batch in each_batch(tables, options["chunk_rows"], signals, "learning"):
            with at(table, batch):
                learner.partial_fit(batch.numbers)
            autosave.note(table, batch)
        if n_learned(learner):
            learner.refit()
            autosave.save()
    tell_bad(tables)
    n_new = n_learned(learner) - n_before
    facts, bad = model_facts(learner, autosave.reading.columns) if n_learned(learner) else None, bad_facts(tables)
    if as_json:
        print_json({"model": facts, "new_rows": n_new} | bad)
    elif facts:
        show_model(facts, new_rows=n_new, rows_skipped=bad["rows_skipped"] or None)
        if model:
            click.echo(f"Model: {model}")
    signals.leave_if_stopped(f"after {n_learned(learner):,} rows")


def _make_model(options: Mapping[str, Any]) -> StreamingKernelPCA:
    """Make the unfitted model that a command's options describe."""
    try:
        kernel = kernel_from(options["kernel"])
    except ValueError as error:
        raise ValueError(f"--kernel: {text_of(error)}") from None
    # Scales in numbers belong to the units in which rows are given.
    if not kernel.has_units and not kernel.is_settled:
        kernel = kernel.in_units("std")
    return StreamingKernelPCA(**{name: options[name] for name in MODEL_PARAMETERS} | {"kernel": kernel})
