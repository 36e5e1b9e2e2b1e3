"""What the commands fit and score do between reading options and printing results."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkpca.command.reports import Scores
from streamkpca.command.results import ResultWriter
from streamkpca.command.terminal import BadInput, Interruption, show_progress
from streamkpca.tables import Chunk, Table, check_same_columns, open_table, regroup

if TYPE_CHECKING:
    from streamkpca.streaming import StreamingKernelPCA

STDIN = "-"
_READING = ("array", "columns", "drop", "header", "delimiter")


@contextmanager
def one_line() -> Iterator[None]:
    """Turn bad input, wherever it shows, into the command's one-line error.

    Raises
    ------
    BadInput
        For ValueError and for what the operating system refuses.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        where = f"{error.filename}: " if error.filename is not None else ""
        raise BadInput(f"{where}{reason}; check the path and your rights to it") from None
    except ValueError as error:
        raise BadInput(str(error)) from None


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
    from streamkpca.kernels.expressions import parse_kernel
    from streamkpca.streaming import StreamingKernelPCA

    with one_line():
        return StreamingKernelPCA(
            options["components"],
            kernel=parse_kernel(options["kernel"]),
            max_atoms=options["max_atoms"],
            tolerance=options["tolerance"],
            noise_variance=options["noise_variance"],
            center=not options["no_center"],
            half_life=options["half_life"],
            block_size=options["block_size"],
            refit_every="auto" if options["refit_every"] is None else options["refit_every"],
        )


def open_tables(files: Sequence[str], reading: dict[str, Any]) -> list[Table]:
    """Open all files before the first row is learned, so that a mistake in the last costs nothing.

    Parameters
    ----------
    files : sequence of str
        Paths; ``-`` is standard input.
    reading : dict
        Keyword arguments of `open_table`.

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
    tables: list[Table] = []
    with one_line():
        for file in files:
            if file == STDIN:
                stream = sys.stdin.buffer
                options = reading | {"array": None} if len(files) > 1 else reading
                tables.append(open_table("standard input", stream=stream, **options))
            else:
                tables.append(open_table(file, **reading))
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
    (target,) = open_tables([file], reading | {"labels": labels})
    options = reading | {"array": train_array or reading["array"]}
    (source,) = open_tables([train], options)
    same_width = len(source.columns.names) == len(target.columns.names)
    named = source.columns.named and labels in source.columns.names
    if labels is not None and target.columns.labels is not None and (named or same_width):
        (source,) = open_tables([train], options | {"drop": (*reading["drop"], labels)})
    with one_line():
        check_same_columns(source, target)
    return target, source


def make_writer(path: str, inputs: Sequence[str]) -> ResultWriter:
    """Prepare the file of results.

    Parameters
    ----------
    path : str
        Where results go.
    inputs : sequence of str
        Files that are read meanwhile.

    Returns
    -------
    ResultWriter

    Raises
    ------
    BadInput
        A name of an unknown ending, or an input's own.
    """
    with one_line():
        writer = ResultWriter(path)
        if any(writer.path.resolve() == Path(name).resolve() for name in inputs):
            raise ValueError(f"{path}: is read as input and cannot take the results; give --save another name")
    return writer


def learn(
    model: "StreamingKernelPCA",
    tables: Sequence[Table],
    n_rows: int,
    hands: Interruption,
    *,
    writer: ResultWriter | None = None,
) -> tuple[float, bool]:
    """Learn tables chunk by chunk, until they end or Ctrl-C is pressed, and publish what was learned.

    Parameters
    ----------
    model : StreamingKernelPCA
        What learns.
    tables : sequence of Table
        The rows.
    n_rows : int
        Most rows of a chunk.
    hands : Interruption
        Holds Ctrl-C back while a chunk is learned.
    writer : ResultWriter, optional
        Takes every row's projection as soon as the row is learned. Chunks are full then, so that the
        projections do not depend on how rows trickle in.

    Returns
    -------
    seconds : float
        Time taken.
    finished : bool
        False after Ctrl-C.
    """
    start, finished = time.perf_counter(), True
    try:
        with show_progress("learning", _total(tables)) as report:
            for chunk in _chunks(tables, n_rows, exact=writer is not None):
                with hands.shielded():
                    model.partial_fit(chunk.rows)
                    if writer is not None:
                        writer.write(model.transform(chunk.rows), model.reconstruction_error(chunk.rows))
                report(chunk.position, model.n_samples_seen_, model.n_atoms_)
    except KeyboardInterrupt:
        finished = False
    if n_learned(model):
        model.refit()
    return time.perf_counter() - start, finished


def project(
    model: "StreamingKernelPCA",
    tables: Sequence[Table],
    n_rows: int,
    hands: Interruption,
    *,
    writer: ResultWriter | None = None,
    scores: Scores | None = None,
) -> bool:
    """Project and score tables with a model that changes no more.

    Parameters
    ----------
    model : StreamingKernelPCA
        What was learned.
    tables : sequence of Table
        The rows.
    n_rows : int
        Most rows of a chunk.
    hands : Interruption
        Holds Ctrl-C back while a chunk is written.
    writer : ResultWriter, optional
        Takes projections and scores.
    scores : Scores, optional
        Takes scores.

    Returns
    -------
    bool
        False after Ctrl-C.
    """
    done = 0
    try:
        with show_progress("projecting", _total(tables)) as report:
            for chunk in _chunks(tables, n_rows):
                with hands.shielded():
                    novelty = model.reconstruction_error(chunk.rows)
                    if writer is not None:
                        writer.write(model.transform(chunk.rows), novelty, chunk.labels)
                    if scores is not None:
                        scores.take(novelty, chunk.labels)
                done += len(chunk.rows)
                report(chunk.position, done, model.n_atoms_)
    except KeyboardInterrupt:
        return False
    return True


def n_learned(model: "StreamingKernelPCA") -> int:
    """Count the rows that a model has seen; 0 before the first.

    Parameters
    ----------
    model : StreamingKernelPCA
        Fitted or not.

    Returns
    -------
    int
    """
    return int(getattr(model, "n_samples_seen_", 0))


def _total(tables: Sequence[Table]) -> int | None:
    sizes = [table.total for table in tables]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _chunks(tables: Sequence[Table], n_rows: int, *, exact: bool = False) -> Iterator[Chunk]:
    """Read tables one after the other; positions count on."""
    chunks = _concatenated(tables, n_rows)
    return regroup(chunks, n_rows) if exact else chunks


def _concatenated(tables: Sequence[Table], n_rows: int) -> Iterator[Chunk]:
    before = 0
    for table in tables:
        for chunk in table.chunks(n_rows):
            yield chunk._replace(position=before + chunk.position)
        before += table.total or 0
