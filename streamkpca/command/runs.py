"""What the commands do with rows between reading options and printing results: learn, project, score."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca.command.inputs import all_chunks, total_of
from streamkpca.command.keeper import ModelKeeper
from streamkpca.command.models import n_learned
from streamkpca.command.results import STANDARD_OUTPUT, ResultWriter, is_among
from streamkpca.command.stops import Interruption
from streamkpca.command.terminal import BadInput, one_line, show_progress
from streamkpca.tables import Chunk, Table

if TYPE_CHECKING:
    from streamkpca.streaming import StreamingKernelPCA

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
