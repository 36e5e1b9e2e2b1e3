"""What the commands do with rows between reading options and printing results: learn, project, score."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt

from streamkpca.cli.autosave import ModelKeeper
from streamkpca.cli.console import BadInput, one_line, print_warning, show_progress
from streamkpca.cli.models import n_learned
from streamkpca.cli.options import MODEL_PARAMETERS
from streamkpca.cli.results import STANDARD_OUTPUT, ResultWriter, is_among
from streamkpca.cli.signals import Interruption
from streamkpca.cli.tables import Chunk, Table, check_same_columns, open_table, regroup
from streamkpca.stream.settings import StreamSettings

if TYPE_CHECKING:
    from streamkpca.estimators.streaming import StreamingKernelPCA


STDIN = "-"
_READING = ("array", "columns", "drop", "header", "delimiter", "time", "on_bad_rows")


def reading_options(options: dict[str, Any]) -> dict[str, Any]:
    """Pick those of a command's options that say how to read a table.

    Parameters
    ----------
    options : dict
        All options, by parameter name.

    Returns
    -------
    dict
        Keyword arguments of `open_table`.
    """
    return {name: options[name] for name in _READING}


def open_tables(files: Sequence[str], reading: dict[str, Any], *, learned: Sequence[str] | None = None) -> list[Table]:
    """Open all files before the first row is learned, so that a mistake in the last costs nothing.

    Parameters
    ----------
    files : sequence of str
        Paths; ``-`` is standard input.
    reading : dict
        Keyword arguments of `open_table`.
    learned : sequence of str, optional
        Columns to choose where a file names its own and the user has chosen none.

    Returns
    -------
    list of Table

    Raises
    ------
    BadInput
        A file that cannot be read, or whose columns are not those of the first.
    """
    if list(files).count(STDIN) > 1:
        raise BadInput("- (standard input) can be read only once; name it once")
    if reading.get("follow") and len(files) > 1:
        raise BadInput(f"--follow: the end of {files[0]} never comes; name one file")
    tables: list[Table] = []
    with one_line():
        for file in files:
            options = reading | {"array": None} if file == STDIN and len(files) > 1 else reading
            tables.append(_open(file, options | {"learned": learned or ()}))
            check_same_columns(tables[0], tables[-1])
    return tables


def open_pair(
    file: str, train: str, labels: str | None, train_array: str | None, reading: dict[str, Any]
) -> tuple[Table, Table]:
    """Open the table to be scored and the one to learn from.

    Parameters
    ----------
    file, train : str
        Paths; only `file` may be ``-``.
    labels : str or None
        Label column of `file`; where `train` has it too, it is left out there.
    train_array : str or None
        Array of an npz `train`.
    reading : dict
        Keyword arguments of `open_table`.

    Returns
    -------
    target, source : Table

    Raises
    ------
    BadInput
        A file that cannot be read, or columns that differ.
    """
    if train == STDIN:
        raise BadInput("--train -: standard input cannot be learned first; write it to a file and name that")
    options = reading | {"array": train_array or reading["array"], "follow": False}
    (source,) = open_tables([train], options)
    learned = [name for name in source.columns.feature_names if name != labels] if source.columns.named else None
    (target,) = open_tables([file], reading | {"labels": labels}, learned=learned)
    same_width = len(source.columns.names) == len(target.columns.names)
    named = source.columns.named and labels in source.columns.names
    if labels is not None and target.columns.labels is not None and (named or same_width):
        (source,) = open_tables([train], options | {"drop": (*reading["drop"], labels)})
    with one_line():
        check_same_columns(source, target)
    return target, source


def time_name(table: Table, wanted: str | None) -> str | None:
    """Name the column of times in the results.

    Parameters
    ----------
    table : Table
        The first that is read.
    wanted : str or None
        What the user has asked for; None for no times.

    Returns
    -------
    str or None
        The column's own name, if it has one that says so much and means nothing else in results.
    """
    if wanted is None:
        return None
    columns = table.columns
    name = wanted if columns.time is None else columns.names[columns.time]
    taken = name in {"row", "label", "novelty"} or name.startswith("component_")
    return "time" if taken or name.isdecimal() else name


def skipped_facts(tables: Sequence[Table]) -> dict[str, Any]:
    """Count the rows that were left out.

    Parameters
    ----------
    tables : sequence of Table

    Returns
    -------
    dict
        ``rows_skipped`` and ``first_skipped``, of what JSON knows.
    """
    first = next((table.first_skipped for table in tables if table.first_skipped), None)
    return {"rows_skipped": sum(table.n_skipped for table in tables), "first_skipped": first}


def tell_skipped(tables: Sequence[Table]) -> None:
    """Say on standard error how many rows were left out, if any were.

    Parameters
    ----------
    tables : sequence of Table
    """
    found = skipped_facts(tables)
    if found["rows_skipped"]:
        what = "row was" if found["rows_skipped"] == 1 else "rows were"
        message = f"{found['rows_skipped']:,} {what} skipped, the first: {found['first_skipped']}"
        print_warning(message)


def all_chunks(tables: Sequence[Table], n_rows: int, *, exact: bool = False) -> Iterator[tuple[Table, Chunk]]:
    """Read tables one after the other; positions count on.

    Parameters
    ----------
    tables : sequence of Table
    n_rows : int
        Most rows of a chunk.
    exact : bool, default=False
        Every chunk of a table but its last has so many.

    Yields
    ------
    table : Table
        Whose rows they are.
    chunk : Chunk
    """
    before = 0
    for table in tables:
        chunks = table.chunks(n_rows)
        for chunk in regroup(chunks, n_rows) if exact else chunks:
            yield table, chunk._replace(position=before + chunk.position)
        before += table.total or 0


def total_of(tables: Sequence[Table]) -> int | None:
    """Add up the sizes of tables, in the units of their positions.

    Parameters
    ----------
    tables : sequence of Table

    Returns
    -------
    int or None
        None where one does not know its own.
    """
    sizes = [table.total for table in tables]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _open(file: str, reading: dict[str, Any]) -> Table:
    if file != STDIN:
        return open_table(file, **reading)
    if sys.stdin is None:
        raise BadInput("-: standard input is closed; name a file, or redirect one")
    return open_table("standard input", stream=sys.stdin.buffer, **reading)


Array = npt.NDArray[np.float64]


def make_model(options: dict[str, Any]) -> "StreamingKernelPCA":
    """Make the model that a command's options describe.

    Parameters
    ----------
    options : dict
        All options, by parameter name.

    Returns
    -------
    StreamingKernelPCA
        Unfitted.

    Raises
    ------
    BadInput
        A value that the model refuses.
    """
    from streamkpca.estimators.streaming import StreamingKernelPCA
    from streamkpca.kernels.parsing import parse_kernel

    parameters = {name: options[name] for name in MODEL_PARAMETERS}
    with one_line():
        model = StreamingKernelPCA(**parameters | {"kernel": parse_kernel(options["kernel"])})
        # All are checked before a file is opened, not by the first rows.
        StreamSettings.checked(**model.get_params(deep=False), where=str(click.get_current_context().info_name))
    return model


def results_form(save: str | None, form: str | None, *, as_json: bool) -> str | None:
    """Settle the format of results, if they have any place.

    Parameters
    ----------
    save : str or None
        Where results go.
    form : str or None
        What the user asks for.
    as_json : bool
        Whether standard output is for JSON.

    Returns
    -------
    str or None
        None for what the ending tells.

    Raises
    ------
    BadInput
        A format without results, or JSON mixed with something else.
    """
    if save is None and form is not None:
        raise BadInput("--format is that of the results; name a file for them with --save, or - for standard output")
    if save == STANDARD_OUTPUT and as_json:
        if form not in (None, "jsonl"):
            raise BadInput(f"--json makes standard output JSON, but --format {form} is none; leave one of them out")
        return "jsonl"
    return form


def make_writer(path: str, inputs: Sequence[str], **options: Any) -> ResultWriter:
    """Prepare the file of results.

    Parameters
    ----------
    path : str
        Where results go.
    inputs : sequence of str
        Files that are read meanwhile, and the model's.
    **options
        As `ResultWriter` has them.

    Returns
    -------
    ResultWriter

    Raises
    ------
    BadInput
        A name of an unknown ending, or one whose file, or what is written until it is complete, would take an input's
        place.
    """
    with one_line():
        writer = ResultWriter(path, **options)
    for written in () if writer.is_output else (writer.path, writer.part):
        if is_among(written, inputs):
            raise BadInput(
                f"{written}: is read as input or takes the model, and cannot take the results; give --save another name"
            )
    return writer


def learn(
    model: "StreamingKernelPCA",
    tables: Sequence[Table],
    n_rows: int,
    hands: Interruption,
    *,
    keeper: ModelKeeper | None = None,
    writer: ResultWriter | None = None,
    exact: bool = False,
) -> tuple[float, bool]:
    """Learn tables chunk by chunk, until they end or a signal stops it, and publish what was learned.

    Parameters
    ----------
    model : StreamingKernelPCA
        What learns.
    tables : sequence of Table
        The rows.
    n_rows : int
        Most rows of a chunk.
    hands : Interruption
        Holds signals back while a chunk is learned.
    keeper : ModelKeeper, optional
        Saves the model in between, when that is due, and at the end.
    writer : ResultWriter, optional
        Takes every row's projection as soon as the row is learned.
    exact : bool, default=False
        Learn full chunks, so that those projections do not depend on how rows trickle in.

    Returns
    -------
    seconds : float
        Time taken.
    finished : bool
        False after a signal.
    """
    start, finished = time.perf_counter(), True
    try:
        bar = show_progress("learning", total_of(tables), quiet=_is_shown(writer))
        with _saving(model, keeper, hands), bar as report:
            for table, chunk in all_chunks(tables, n_rows, exact=exact):
                with hands.shielded():
                    model.partial_fit(chunk.rows)
                    if writer is not None:
                        _write(model, chunk, writer)
                    if keeper is not None:
                        keeper.note(table, chunk)
                        keeper.save_if_due(model)
                report(chunk.position, model.n_samples_seen_, model.n_atoms_)
    except KeyboardInterrupt:
        finished = False
    if n_learned(model):
        try:
            with hands.shielded():
                model.refit()
                if keeper is not None:
                    keeper.save(model)
        except KeyboardInterrupt:
            finished = False
    return time.perf_counter() - start, finished


def project(
    model: "StreamingKernelPCA",
    tables: Sequence[Table],
    n_rows: int,
    hands: Interruption,
    *,
    writer: ResultWriter | None = None,
    takers: Sequence[Callable[[Chunk, Array], object]] = (),
    newer: Callable[[], "StreamingKernelPCA | None"] | None = None,
    quiet: bool = False,
) -> bool:
    """Project and score tables with a model that was learned before.

    Parameters
    ----------
    model : StreamingKernelPCA
        What was learned.
    tables : sequence of Table
        The rows.
    n_rows : int
        Most rows of a chunk.
    hands : Interruption
        Holds signals back while a chunk is written.
    writer : ResultWriter, optional
        Takes projections and scores.
    takers : sequence of callable
        Each takes chunks and their scores.
    newer : callable, optional
        Asked before every chunk for another model to go on with; None keeps the one at hand.
    quiet : bool, default=False
        Show no progress, because something else may be shown meanwhile.

    Returns
    -------
    bool
        False after a signal.
    """
    done = 0
    try:
        with show_progress("projecting", total_of(tables), quiet=quiet or _is_shown(writer)) as report:
            for _, chunk in all_chunks(tables, n_rows):
                with hands.shielded():
                    model = (newer and newer()) or model
                    novelty = model.reconstruction_error(chunk.rows)
                    if writer is not None:
                        writer.write(novelty, model.transform(chunk.rows), times=chunk.times, labels=chunk.labels)
                    for take in takers:
                        take(chunk, novelty)
                done += len(chunk.rows)
                report(chunk.position, done, model.n_atoms_)
    except KeyboardInterrupt:
        return False
    return True


@contextmanager
def _saving(model: "StreamingKernelPCA", keeper: ModelKeeper | None, hands: Interruption) -> Iterator[None]:
    """Save a model in time also while no rows come, which may be for hours."""
    seconds = None if keeper is None else keeper.pace.seconds
    if keeper is None or seconds is None or not hasattr(signal, "setitimer"):
        yield
        return

    def save(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        # While a chunk is learned, its end will save.
        if not hands.is_shielded and n_learned(model):
            with hands.shielded():
                keeper.save_if_due(model)

    before = signal.signal(signal.SIGALRM, save)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _is_shown(writer: ResultWriter | None) -> bool:
    """Say whether rows may run over the terminal, where a bar would be in their way."""
    return writer is not None and writer.is_output


def _write(model: "StreamingKernelPCA", chunk: Chunk, writer: ResultWriter) -> None:
    novelty, projections = model.reconstruction_error(chunk.rows), model.transform(chunk.rows)
    writer.write(novelty, projections, times=chunk.times, labels=chunk.labels)
