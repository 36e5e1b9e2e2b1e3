"""The work of the commands that learn: demo, fit."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from streamkpca._core.files import check_target
from streamkpca.cli.console import BadInput, one_line, print_facts, print_json, print_warning, show_progress
from streamkpca.cli.hints import Spread, column_hints, component_hints
from streamkpca.cli.models import (
    Autosave,
    ModelFile,
    check_columns,
    check_writable,
    learned_columns,
    n_learned,
    saved_beside,
)
from streamkpca.cli.options import MODEL_PARAMETERS, SaveInterval, given_options
from streamkpca.cli.pipeline import (
    learn,
    make_model,
    make_writer,
    open_tables,
    project,
    reading_of,
    reading_options,
    results_form,
    skipped_facts,
    tell_skipped,
    with_categories,
)
from streamkpca.cli.reports import model_facts, show_model
from streamkpca.cli.results import ResultWriter
from streamkpca.cli.signals import SignalGuard
from streamkpca.cli.tables import Table, TableError
from streamkpca.models.streaming import StreamingKernelPCA

# A follower is likely to be killed rather than stopped in the end.
_FOLLOW_SECONDS = 60.0


def demo(rows: int, seed: int, out: str, as_json: bool) -> None:
    """Simulate a plant, learn it as a stream, and measure how well novelty finds its faults."""
    from streamkpca.cli.demo import N_SENSORS, Watch, simulate_plant
    from streamkpca.cli.pictures import write_picture

    folder = Path(out)
    table_file, picture_file = folder / "projections.parquet", folder / "picture.png"
    with one_line():
        folder.mkdir(parents=True, exist_ok=True)
        check_target(picture_file)
    if not as_json:
        print_facts(
            "A simulated plant, not real data",
            [("sensors", str(N_SENSORS)), ("rows", f"{rows:,} (one every ten minutes)"), ("seed", str(seed))],
        )
    model = StreamingKernelPCA()
    watch, signals = Watch(model), SignalGuard()
    interrupted = False
    with signals.installed(), one_line(), ResultWriter(table_file) as writer:
        try:
            with show_progress("learning", rows, lines=True) as report:
                for block in simulate_plant(rows, seed=seed):
                    with signals.deferred():
                        projections, novelty = watch.take(block)
                        writer.write(novelty, projections, labels=block.faults)
                    report(writer.n_rows, writer.n_rows, model.n_atoms_)
        except KeyboardInterrupt:
            interrupted = True
    if writer.n_rows:
        measures = watch.measure()
        with one_line():
            write_picture(watch.picture(), picture_file, dots_per_inch=120)
        if as_json:
            files = {"projections": str(table_file), "picture": str(picture_file)}
            print_json({"model": model_facts(model), "seconds": watch.seconds, "faults": dict(measures), **files})
        else:
            show_model(model, watch.seconds)
            print_facts("How well novelty found the faults (each row scored before it was learned)", measures)
            click.echo(f"Projections and scores: {table_file}\nPicture: {picture_file}")
    if interrupted:
        signals.leave(f"interrupted after {writer.n_rows:,} of {rows:,} rows")


def fit(
    files: tuple[str, ...],
    model: str | None,
    resume: bool,
    interval: SaveInterval,
    as_json: bool,
    chunk_rows: int,
    save: str | None,
    form: str | None,
    follow: bool,
    from_start: bool,
    **options: Any,
) -> None:
    """Learn the rows of FILE... (CSV, JSON lines, Parquet, Arrow, npy, npz; - for standard input)."""
    form = results_form(save, form, as_json=as_json)
    (learner, file), signals = _learner(model, resume, files, options), SignalGuard()
    learned = learned_columns(learner) if n_learned(learner) else None
    reading = reading_options(options) | {"follow": follow} | reading_of(learner)
    tables = open_tables(files, reading, learned=learned)
    if not n_learned(learner):
        learner = with_categories(learner, tables[0])
    replay = not follow and all(table.rereadable for table in tables)
    for table in tables if n_learned(learner) else ():
        check_columns(learner, str(model), table)
    if from_start and not resume:
        raise BadInput("fit: --from-start needs a model to continue; give --resume and --model too")
    if interval != SaveInterval() and model is None:
        raise BadInput("fit: --save-every saves the model; name a file for it with --model")
    if follow and interval == SaveInterval():
        interval = SaveInterval(seconds=_FOLLOW_SECONDS)
    # What a monitor knew does not agree with the model any more.
    learner.extra_ = saved_beside(learner.extra_)
    autosave, projected, before = Autosave(model, interval, learner.extra_, file), True, n_learned(learner)
    if not from_start:
        _seek_ends(tables, autosave, follow=follow)
    writer: ResultWriter | None = None
    spread = Spread()
    with signals.installed(), one_line(), ExitStack() as stack:
        if save:
            others = files if model is None else [*files, model]
            writer = make_writer(save, others, tables[0], time=options["time"], form=form, live=follow)
            stack.enter_context(writer)
        seconds, finished = learn(
            learner,
            tables,
            chunk_rows,
            signals,
            autosave=autosave,
            writer=None if replay else writer,
            exact=save is not None and not replay and not follow,
            spread=spread,
        )
        if writer and replay and finished:
            projected = project(learner, tables, chunk_rows, signals, writer=writer)
    tell_skipped(tables)
    if n_learned(learner):
        hints = column_hints(spread, learner.kernel_, list(tables[0].columns.feature_names), files[0])
        for hint in hints + component_hints(learner):
            print_warning(hint)
    has_learned, quiet = n_learned(learner) > 0, writer is not None and writer.is_output
    if as_json and not quiet:
        facts = {"new_rows": n_learned(learner) - before, "seconds": seconds} | skipped_facts(tables)
        print_json({"model": model_facts(learner) if has_learned else None} | facts)
    elif has_learned and not quiet:
        show_model(learner, seconds, n_new=n_learned(learner) - before)
        if writer and writer.n_rows:
            click.echo(f"Projections and scores of {writer.n_rows:,} rows: {writer.path}")
        if model:
            click.echo(f"Model: {model}")
    if not finished:
        signals.leave(f"interrupted after {n_learned(learner):,} rows")
    if not projected:
        signals.leave("interrupted while projecting; all rows were learned")


def _seek_ends(tables: Sequence[Table], autosave: Autosave, *, follow: bool) -> None:
    """Move to where each file was learned before, so that each row is learned once."""
    for table in tables:
        offset = autosave.offset_in(table.source) if table.rereadable else None
        try:
            table.seek(offset)
        except TableError as error:
            if not follow:
                raise BadInput(f"{error} (--from-start)") from None
            # A log that was rotated meanwhile must not stop the process that follows it.
            print_warning(f"{error}; learning it from its beginning")


def _learner(
    path: str | None, resume: bool, files: Sequence[str], options: dict[str, Any]
) -> tuple[StreamingKernelPCA, ModelFile | None]:
    """Make a model, or read the saved one to continue; also return its file."""
    if resume and path is None:
        raise BadInput("fit: --resume continues a saved model; name it with --model FILE")
    if path is None:
        return make_model(options), None
    check_writable(path, files)
    file = ModelFile(path)
    if not (resume and Path(path).exists()):
        return make_model(options), file
    if not Path(path).is_file():
        raise BadInput(f"{path}: is no regular file, so no model can be read from it; leave --resume out")
    named = given_options({"units", *MODEL_PARAMETERS})
    if named:
        raise BadInput(
            f"fit: the model in {path} keeps the parameters that it began with; leave out {', '.join(named)}, or "
            "start a new model without --resume"
        )
    return file.read(), file
