"""The command ``streamkpca``: demo, fit, score, transform, info, merge, export, warmup."""

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamkpca import __version__
from streamkpca.command.models import (
    check_columns,
    check_writable,
    export_model,
    merge_models,
    read_fitted,
    read_model,
    save_model,
)
from streamkpca.command.options import MODEL_PARAMETERS, json_option, model_option, model_options, table_options
from streamkpca.command.reports import Scores, model_facts, show_model
from streamkpca.command.runs import (
    learn,
    make_model,
    make_writer,
    n_learned,
    one_line,
    open_pair,
    open_tables,
    project,
    reading_options,
)
from streamkpca.command.terminal import (
    INTERRUPTED,
    BadInput,
    Interruption,
    OneLineErrors,
    print_facts,
    show_progress,
)
from streamkpca.warmup import cache_folder, warmup

if TYPE_CHECKING:
    from streamkpca.streaming import StreamingKernelPCA


# The control character keeps click from filling the lines up.
_HELP = """Learn streams of numbers by sparse kernel PCA, in one pass and bounded memory.

\b
streamkpca demo                                       a simulated plant with faults
streamkpca fit readings.csv --model plant.npz         learn a file, and keep the model
collect | streamkpca fit - --model plant.npz --resume go on with rows of CSV from a pipe
streamkpca score new.csv --model plant.npz            find rows unlike those learned
streamkpca transform new.csv --model plant.npz --save out.parquet
streamkpca info plant.npz                             what a model has learned
streamkpca merge east.npz west.npz --out both.npz     one model of two
streamkpca export plant.npz plant.onnx                for ONNX runtimes; plant.c for microcontrollers
streamkpca warmup                                     compile all loops now, for images

Exit codes: 0 fine, 2 wrong usage or bad input (one line says what), 130 stopped by Ctrl-C.
"""


@click.group(
    cls=OneLineErrors,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__)
def cli() -> None:
    """Learn streams of numbers by sparse kernel PCA."""


@cli.command()
@click.option("--rows", default=200_000, show_default=True, type=click.IntRange(min=1), help="Rows to simulate.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Another seed, another plant.")
@click.option(
    "--out",
    default="streamkpca-demo",
    show_default=True,
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Folder for projections and picture.",
)
def demo(rows: int, seed: int, out: str) -> None:
    """Stream a simulated plant, learn it online, and see whether novelty finds its faults.

    24 sensors, one row every ten minutes, a slow drift and labelled faults. Every row is scored before it is learned.
    Nothing here is real data.
    """
    from streamkpca.command.demo import Watch
    from streamkpca.command.plant import N_SENSORS, simulate_plant
    from streamkpca.command.results import ResultWriter
    from streamkpca.streaming import StreamingKernelPCA

    folder = Path(out)
    with one_line():
        folder.mkdir(parents=True, exist_ok=True)
    print_facts(
        "A simulated plant, not real data",
        [("sensors", str(N_SENSORS)), ("rows", f"{rows:,} (one every ten minutes)"), ("seed", str(seed))],
    )
    model = StreamingKernelPCA()
    watch, hands = Watch(model, n_rows=rows), Interruption()
    interrupted = False
    table_file, picture_file = folder / "projections.parquet", folder / "picture.png"
    with hands.armed(), one_line(), ResultWriter(table_file) as writer:
        try:
            with show_progress("learning", rows) as report:
                for block in simulate_plant(rows, seed=seed):
                    with hands.shielded():
                        writer.write(*watch.take(block), block.faults)
                    report(writer.n_rows, writer.n_rows, model.n_atoms_)
        except KeyboardInterrupt:
            interrupted = True
    if writer.n_rows:
        show_model(model, watch.seconds)
        print_facts("How well novelty found the faults (each row scored before it was learned)", watch.measure())
        with one_line():
            watch.picture().savefig(picture_file, dpi=120)
        click.echo(f"Projections and scores: {table_file}\nPicture: {picture_file}")
    if interrupted:
        _stop(f"interrupted after {writer.n_rows:,} of {rows:,} rows")


@cli.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--model", metavar="FILE", help="Save the model there.")
@click.option("--resume", is_flag=True, help="Go on from the model that --model names, if it is there.")
@json_option
@table_options
@model_options
def fit(
    files: tuple[str, ...],
    model: str | None,
    resume: bool,
    as_json: bool,
    chunk_rows: int,
    save: str | None,
    **options: Any,
) -> None:
    """Learn the rows of FILE... (CSV, npy, npz, parquet; - for CSV rows on standard input).

    Files are read in chunks, never whole. How they are cut makes no difference to what is learned.

    --save writes row, novelty and projections of every row. Files are read a second time for that, and all
    rows are projected by the final model. Standard input cannot be read again: its rows are projected as soon
    as they are learned, by the model of that moment; they are then taken in full chunks of --chunk-rows.

    --model keeps what was learned, also after Ctrl-C; with --resume a later run goes on from there.
    """
    tables = open_tables(files, reading_options(options))
    replay = all(table.rereadable for table in tables)
    learner, hands = _learner(model, resume, files, options), Interruption()
    for table in tables if n_learned(learner) else ():
        check_columns(learner, str(model), table)
    projected = True
    with hands.armed(), one_line(), ExitStack() as stack:
        writer = stack.enter_context(make_writer(save, files)) if save else None
        in_passing = None if replay else writer
        seconds, learned = learn(learner, tables, chunk_rows, hands, writer=in_passing)
        if model and n_learned(learner):
            save_model(learner, model)
        if writer and replay and learned:
            projected = project(learner, tables, chunk_rows, hands, writer=writer)
    if as_json:
        _print_json({"model": model_facts(learner) if n_learned(learner) else None, "seconds": seconds})
    elif n_learned(learner):
        show_model(learner, seconds)
        if writer and writer.n_rows:
            click.echo(f"Projections and scores of {writer.n_rows:,} rows: {writer.path}")
        if model:
            click.echo(f"Model: {model}")
    if not learned:
        _stop(f"interrupted after {n_learned(learner):,} rows")
    if not projected:
        _stop("interrupted while projecting; all rows were learned")


@cli.command()
@click.argument("file")
@click.option("--train", metavar="FILE", help="What to learn first.")
@model_option
@click.option("--train-array", metavar="NAME", help="Array of an npz --train file.  [default: as --array]")
@click.option("--labels", metavar="COLUMN", help="Column (or npz array) that is not 0 in anomalous rows of FILE.")
@click.option("--top", default=10, show_default=True, type=click.IntRange(min=0), help="Most novel rows to show.")
@json_option
@table_options
@model_options
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
    **options: Any,
) -> None:
    """Learn --train, or take a --model that was saved, then tell how novel each row of FILE is.

    The novelty of a row is its reconstruction error: the squared distance, in feature space, to what was
    learned. FILE may be - for standard input. With --labels, area under the ROC curve and average precision
    are reported; the scores of all rows are kept for that, 9 bytes a row.
    """
    if (train is None) == (model is None):
        raise BadInput("score: give either --train FILE, to learn first, or --model FILE, learned before; Try --help")
    hands, result = Interruption(), Scores(top, labelled=labels is not None)
    if train is not None:
        target, source = open_pair(file, train, labels, train_array, reading_options(options))
        learner = make_model(options)
    else:
        (target,) = open_tables([file], reading_options(options) | {"labels": labels})
        learner = read_fitted(str(model))
        check_columns(learner, str(model), target)
    scored, seconds, learned = False, None, True
    with hands.armed(), one_line(), ExitStack() as stack:
        writer = stack.enter_context(make_writer(save, [file, str(train or model)])) if save else None
        if train is not None:
            seconds, learned = learn(learner, [source], chunk_rows, hands)
        if learned:
            scored = project(learner, [target], chunk_rows, hands, writer=writer, scores=result)
    if as_json:
        _print_json({"model": model_facts(learner) if n_learned(learner) else None, "scores": result.facts()})
    else:
        if n_learned(learner):
            show_model(learner, seconds)
        if result.n_rows:
            result.show(file)
        if writer and writer.n_rows:
            click.echo(f"Projections and scores of {writer.n_rows:,} rows: {writer.path}")
    if not scored:
        _stop(f"interrupted after {n_learned(learner):,} rows learned, {result.n_rows:,} scored")


@cli.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--model", required=True, metavar="FILE", help="A model that was saved.")
@table_options
def transform(files: tuple[str, ...], model: str, chunk_rows: int, save: str | None, **options: Any) -> None:
    """Project the rows of FILE... with a model that was saved, and write projections and novelty to --save."""
    if save is None:
        raise BadInput("transform: expected --save FILE.parquet or FILE.csv for the results; Try --help")
    tables, learner, hands = open_tables(files, reading_options(options)), read_fitted(model), Interruption()
    for table in tables:
        check_columns(learner, model, table)
    with hands.armed(), one_line(), make_writer(save, [*files, model]) as writer:
        done = project(learner, tables, chunk_rows, hands, writer=writer)
    click.echo(f"Projections and scores of {writer.n_rows:,} rows: {writer.path}")
    if not done:
        _stop(f"interrupted after {writer.n_rows:,} rows")


@cli.command()
@click.argument("model")
@json_option
def info(model: str, as_json: bool) -> None:
    """Tell what a saved MODEL has learned. The file is not trusted: it is checked, and nothing in it is run."""
    learner = read_fitted(model)
    if as_json:
        _print_json(model_facts(learner))
    else:
        show_model(learner)


@cli.command("merge")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--out", required=True, metavar="FILE", help="Save the merged model there.")
@json_option
def merge_saved(models: tuple[str, ...], out: str, as_json: bool) -> None:
    """Merge saved MODELs that have learned different rows with one kernel, scale included."""
    check_writable(out, ())
    merged = merge_models(models)
    save_model(merged, out)
    if as_json:
        _print_json(model_facts(merged))
    else:
        show_model(merged)
        click.echo(f"Model: {out}")


@cli.command("export")
@click.argument("model")
@click.argument("out", metavar="OUT.onnx|OUT.c")
@click.option("--double", is_flag=True, help="Numbers in double precision.  [default: single]")
@click.option("--name", default="streamkpca", show_default=True, help="C: what the functions' names begin with.")
@click.option(
    "--quantile", type=float, help="C: make NAME_is_novel, true above this share of the rows like those learned."
)
def export_saved(model: str, out: str, double: bool, name: str, quantile: float | None) -> None:
    """Write a saved MODEL as a graph for ONNX runtimes, or as a C99 file without heap for microcontrollers."""
    check_writable(out, [model])
    export_model(read_fitted(model), out, double=double, name=name, quantile=quantile)
    click.echo(f"Written: {out}")


@cli.command("warmup")
def warm_up() -> None:
    """Compile all loops now, so that no later process does: for container images and installers.

    Compiled loops are kept beside the package, or else in the user's cache; the environment variable
    NUMBA_CACHE_DIR names another folder. Whoever runs the package later must be allowed to write there too.
    """
    wanted, folder = os.environ.get("NUMBA_CACHE_DIR"), cache_folder()
    remedy = "set NUMBA_CACHE_DIR to a folder that you may write to"
    if folder is None:
        raise BadInput(f"expected a folder for compiled loops but none can be written to; {remedy}")
    if wanted and Path(wanted).resolve() not in folder.resolve().parents:
        raise BadInput(f"NUMBA_CACHE_DIR={wanted}: expected a folder that can be written to; {remedy}")
    found = warmup()
    if found.unsaved:
        raise BadInput(f"{folder}: {found.unsaved} of {found.compiled} compiled loops could not be saved; make room")
    facts = [("compiled", str(found.compiled)), ("from the cache", str(found.ready - found.compiled))]
    print_facts("Loops, one for each combination of types", facts)
    click.echo(f"Cache: {folder}")


def _learner(path: str | None, resume: bool, files: Sequence[str], options: dict[str, Any]) -> "StreamingKernelPCA":
    """Make a model, or read the one to go on from."""
    if resume and path is None:
        raise BadInput("fit: --resume goes on from a saved model; name it with --model FILE")
    if path is None:
        return make_model(options)
    check_writable(path, files)
    if not (resume and Path(path).exists()):
        return make_model(options)
    context = click.get_current_context()
    named = [
        option.opts[0]
        for option in context.command.params
        if option.name in MODEL_PARAMETERS
        and context.get_parameter_source(str(option.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    if named:
        raise BadInput(f"fit: {path} goes on with the parameters that it began with; leave out {', '.join(named)}")
    return read_model(path)


def _print_json(found: dict[str, Any]) -> None:
    click.echo(json.dumps(found, allow_nan=False))


def _stop(how_far: str) -> None:
    click.echo(f"streamkpca: {how_far}", err=True)
    click.get_current_context().exit(INTERRUPTED)
