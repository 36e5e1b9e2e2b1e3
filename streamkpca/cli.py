"""The command ``streamkpca``: demo, fit, score, warmup."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import Any

import click

from streamkpca import __version__
from streamkpca.command.reports import Scores, show_model
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

Command = Callable[..., Any]


# The control character keeps click from filling the lines up.
_HELP = """Learn streams of numbers by sparse kernel PCA, in one pass and bounded memory.

\b
streamkpca demo                            a simulated plant with faults
streamkpca fit readings.csv                learn a file
collect | streamkpca fit -                 learn rows of CSV from a pipe
streamkpca score new.csv --train old.csv   find rows unlike those learned
streamkpca warmup                          compile all loops now, for images

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


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    return lambda command: reduce(lambda inner, option: option(inner), reversed(options), command)


def _atoms(context: click.Context, option: click.Parameter, value: str) -> int | None:
    if value.lower() == "none":
        return None
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a whole number nor 'none'.", context, option) from None


def _noise(context: click.Context, option: click.Parameter, value: str) -> float | str | None:
    if value.lower() in {"none", "auto"}:
        return None if value.lower() == "none" else "auto"
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a number nor 'auto' or 'none'.", context, option) from None


def _split(context: click.Context, option: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())


_model_options = _options(
    click.option("--components", default=10, show_default=True, metavar="N", help="Number of principal components."),
    click.option(
        "--kernel",
        default="rbf",
        show_default=True,
        help="A name, or an expression: 'RBF(gamma=0.5) + Linear()'.",
    ),
    click.option(
        "--max-atoms",
        default="256",
        show_default=True,
        callback=_atoms,
        help="Most rows kept; 'none' for no limit.",
    ),
    click.option("--tolerance", default=1e-3, show_default=True, help="Share of the energy that may stay unexplained."),
    click.option(
        "--noise-variance",
        default="auto",
        show_default=True,
        callback=_noise,
        help="Sparsity of the projections: 'auto', a number (larger: fewer atoms), or 'none' for all atoms.",
    ),
    click.option("--block-size", default=512, show_default=True, metavar="ROWS", help="Rows learned at a time."),
    click.option(
        "--refit-every", type=int, metavar="ROWS", help="Rows between two refits.  [default: 128 an atom, or 16384]"
    ),
    click.option("--no-center", is_flag=True, help="Do not subtract the mean in feature space."),
)
_table_options = _options(
    click.option("--array", metavar="NAME", help="Array of an npz file; needed if it holds several tables."),
    click.option(
        "--columns", multiple=True, callback=_split, help="Columns to read: names or positions from 0, a,b,c."
    ),
    click.option("--drop", multiple=True, callback=_split, help="Columns to leave out, such as timestamps."),
    click.option("--header/--no-header", default=None, help="CSV: whether line one holds names.  [default: look]"),
    click.option("--delimiter", metavar="CHAR", help="CSV: what separates fields.  [default: comma; tab for .tsv]"),
    click.option(
        "--chunk-rows",
        default=4096,
        show_default=True,
        type=click.IntRange(min=1),
        help="Most rows read at a time.",
    ),
    click.option(
        "--save",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Write results to FILE.parquet or FILE.csv.",
    ),
)


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
@_table_options
@_model_options
def fit(files: tuple[str, ...], chunk_rows: int, save: str | None, **options: Any) -> None:
    """Learn the rows of FILE... (CSV, npy, npz, parquet; - for CSV rows on standard input).

    Files are read in chunks, never whole. How they are cut makes no difference to what is learned.

    --save writes row, novelty and projections of every row. Files are read a second time for that, and all
    rows are projected by the final model. Standard input cannot be read again: its rows are projected as soon
    as they are learned, by the model of that moment; they are then taken in full chunks of --chunk-rows.
    """
    tables = open_tables(files, reading_options(options))
    replay = all(table.rereadable for table in tables)
    model, hands = make_model(options), Interruption()
    projected = True
    with hands.armed(), one_line(), ExitStack() as stack:
        writer = stack.enter_context(make_writer(save, files)) if save else None
        in_passing = None if replay else writer
        seconds, learned = learn(model, tables, chunk_rows, hands, writer=in_passing)
        if writer and replay and learned:
            projected = project(model, tables, chunk_rows, hands, writer=writer)
    if n_learned(model):
        show_model(model, seconds)
    if writer and writer.n_rows:
        click.echo(f"Projections and scores of {writer.n_rows:,} rows: {writer.path}")
    if not learned:
        _stop(f"interrupted after {n_learned(model):,} rows")
    if not projected:
        _stop("interrupted while projecting; all rows were learned")


@cli.command()
@click.argument("file")
@click.option("--train", required=True, metavar="FILE", help="What to learn first.")
@click.option("--train-array", metavar="NAME", help="Array of an npz --train file.  [default: as --array]")
@click.option("--labels", metavar="COLUMN", help="Column (or npz array) that is not 0 in anomalous rows of FILE.")
@click.option("--top", default=10, show_default=True, type=click.IntRange(min=0), help="Most novel rows to show.")
@_table_options
@_model_options
def score(
    file: str,
    train: str,
    train_array: str | None,
    labels: str | None,
    top: int,
    chunk_rows: int,
    save: str | None,
    **options: Any,
) -> None:
    """Learn --train, then tell how novel each row of FILE is.

    The novelty of a row is its reconstruction error: the squared distance, in feature space, to what was
    learned. FILE may be - for standard input. With --labels, area under the ROC curve and average precision
    are reported; the scores of all rows are kept for that, 9 bytes a row.
    """
    target, source = open_pair(file, train, labels, train_array, reading_options(options))
    model, hands = make_model(options), Interruption()
    result = Scores(top, labelled=labels is not None)
    scored = False
    with hands.armed(), one_line(), ExitStack() as stack:
        writer = stack.enter_context(make_writer(save, [file, train])) if save else None
        seconds, learned = learn(model, [source], chunk_rows, hands)
        if learned:
            scored = project(model, [target], chunk_rows, hands, writer=writer, scores=result)
    if n_learned(model):
        show_model(model, seconds)
    if result.n_rows:
        result.show(file)
    if writer and writer.n_rows:
        click.echo(f"Projections and scores of {writer.n_rows:,} rows: {writer.path}")
    if not scored:
        _stop(f"interrupted after {n_learned(model):,} rows learned, {result.n_rows:,} scored")


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


def _stop(how_far: str) -> None:
    click.echo(f"streamkpca: {how_far}", err=True)
    click.get_current_context().exit(INTERRUPTED)
