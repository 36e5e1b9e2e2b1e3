"""From options to results: opening tables, making the model, learning rows, projecting them."""

import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from types import FrameType
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from streamkpca.cli.console import BadInput, one_line, placed, print_warning, show_progress
from streamkpca.cli.hints import Spread
from streamkpca.cli.models import Autosave, check_columns, learned_categories, learned_columns, n_learned
from streamkpca.cli.options import MODEL_PARAMETERS, given_options, shown
from streamkpca.cli.results import STANDARD_OUTPUT, ResultWriter, is_among
from streamkpca.cli.signals import SignalGuard
from streamkpca.cli.tables import Chunk, Table, check_same_columns, open_table, regroup
from streamkpca.cli.tables.columns import short
from streamkpca.cli.watch import Found, Watcher, stacked_after
from streamkpca.cli.wording import MONITOR_PARAMETERS, in_options
from streamkpca.kernels import Equal, Kernel
from streamkpca.kernels.equality import category_columns
from streamkpca.kernels.registry import KERNELS, kernel_from
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.monitoring import Monitor
from streamkpca.stream.settings import StreamSettings

Array = npt.NDArray[np.float64]

STDIN = "-"
# As the library speaks of rows that it was given, and of their columns.
_ROW = re.compile(r"\brow (\d+)\b(?: of these)?")
_FEATURE = re.compile(r"\bfeature (\d+)(?: of these rows)?")
_TOLD = "streamkpca.notes that were printed"
# Rows that a monitor scores one by one before it learns them, from which thresholds come.
_MOST_WATCHED, _LEAST_WATCHED, _MOST_NUMBERS = 8192, 1024, 4_000_000
_ROWS_AT_ONCE = 512
# Fewer rows than this make no threshold in order of time.
_SHORT = 64
_READING = ("array", "columns", "drop", "header", "delimiter", "time", "categories", "on_bad_rows")


def reading_options(options: dict[str, Any]) -> dict[str, Any]:
    """Pick from a command's options the keyword arguments of `open_table`."""
    return {name: options[name] for name in _READING}


def reading_of(model: StreamingKernelPCA) -> dict[str, Any]:
    """Return the keyword arguments of `open_table` that a model decides: its categories, and what becomes of gaps."""
    categories = learned_categories(model) if n_learned(model) else ()
    return {"category_features": categories, "on_missing": model.on_missing}


def open_tables(files: Sequence[str], reading: dict[str, Any], *, learned: Sequence[str] | None = None) -> list[Table]:
    """Open all files before the first row is learned, so that a mistake in the last costs nothing.

    `reading` holds the keyword arguments of `open_table`. `learned` columns are chosen by name where a file has names
    and the user has chosen none.
    """
    if list(files).count(STDIN) > 1:
        raise BadInput("- (standard input) can be read only once; name it once")
    if reading.get("follow") and len(files) > 1:
        raise BadInput(f"--follow never reaches the end of {files[0]}; name one file only")
    tables: list[Table] = []
    with one_line():
        for file in files:
            options = reading | {"array": None} if file == STDIN and len(files) > 1 else reading
            tables.append(_open(file, options | {"learned": learned or (), "tell": print_warning}))
            check_same_columns(tables[0], tables[-1])
    told = click.get_current_context().meta.setdefault(_TOLD, set())
    for note in dict.fromkeys(note for table in tables for note in table.notes):
        # A file may be opened twice.
        if note not in told:
            told.add(note)
            print_warning(note)
    return tables


def open_pair(
    file: str, train: str, labels: str | None, train_array: str | None, reading: dict[str, Any]
) -> tuple[Table, Table]:
    """Open the table to be scored and the one to learn from, in which the labels are left out if it has them."""
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


def _time_name(table: Table, wanted: str | None) -> str | None:
    """Name the column of times in the results: by its own name, unless results use that one; None for no times."""
    if wanted is None:
        return None
    columns = table.columns
    name = wanted if columns.time is None else columns.names[columns.time]
    taken = name in {"row", "label", "novelty", "smoothed", "threshold", "alarm"} or name.startswith("component_")
    return "time" if taken or name.isdecimal() else name


def skipped_facts(tables: Sequence[Table]) -> dict[str, Any]:
    """Count the rows that were skipped, and name the first, as JSON has it."""
    first = next((table.first_skipped for table in tables if table.first_skipped), None)
    return {"rows_skipped": sum(table.n_skipped for table in tables), "first_skipped": first}


def tell_skipped(tables: Sequence[Table]) -> None:
    """Warn of skipped rows, if there were any."""
    found = skipped_facts(tables)
    if found["rows_skipped"]:
        what = "row was" if found["rows_skipped"] == 1 else "rows were"
        print_warning(f"{found['rows_skipped']:,} {what} skipped, the first: {found['first_skipped']}")


def _all_chunks(tables: Sequence[Table], n_rows: int, *, exact: bool = False) -> Iterator[tuple[Table, Chunk]]:
    """Read tables in turn, in chunks of at most `n_rows`, with `exact` of `n_rows` each; positions count on."""
    before = 0
    for table in tables:
        chunks = table.chunks(n_rows)
        for chunk in regroup(chunks, n_rows) if exact else chunks:
            yield table, chunk._replace(position=before + chunk.position)
        before += table.total or 0


def _total_of(tables: Sequence[Table]) -> int | None:
    """Add up the sizes of tables in the units of their positions; None if one does not know its own."""
    sizes = [table.total for table in tables]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _open(file: str, reading: dict[str, Any]) -> Table:
    if file != STDIN:
        return open_table(file, **reading)
    if sys.stdin is None:
        raise BadInput("-: standard input is closed; name a file, or redirect one")
    return open_table("standard input", stream=sys.stdin.buffer, **reading)


def make_model(options: dict[str, Any]) -> StreamingKernelPCA:
    """Make the unfitted model that a command's options describe, with all parameters checked."""
    parameters = {name: options[name] for name in MODEL_PARAMETERS}
    with one_line():
        kernel = _in_units(_kernel(options["kernel"]), options["units"])
        model = StreamingKernelPCA(**parameters | {"kernel": kernel})
        # All are checked before a file is opened, not by the first rows.
        StreamSettings.checked(**model.get_params(deep=False), where=str(click.get_current_context().info_name))
    return model


def _kernel(text: str) -> Kernel:
    """Read the kernel that an option names or describes."""
    name = text.strip()
    if name.isidentifier() and name not in KERNELS:
        similar = get_close_matches(name.lower(), KERNELS, 1)
        meant = f"did you mean {similar[0]}? " if similar else ""
        raise BadInput(f"--kernel: there is no kernel {shown(name)}; {meant}there are {', '.join(sorted(KERNELS))}")
    try:
        return kernel_from(name, where="--kernel")
    except ValueError as error:
        raise BadInput(in_options(str(error))) from None


def _in_units(kernel: Kernel, units: str) -> Kernel:
    """Give a kernel the units asked for; "auto" leaves units of its own, and scales in numbers, which have units."""
    asked = bool(given_options({"units"})) and units != "auto"
    if kernel.has_units and asked and units != "none":
        raise BadInput(f"--units {units}: the kernel {kernel!r} has units of its own; leave one of them out")
    is_fixed = kernel.has_units or (kernel.is_settled and not asked)
    return kernel if units == "none" or is_fixed else kernel.in_units(units)


def with_categories(model: StreamingKernelPCA, table: Table, *, lags: int = 1) -> StreamingKernelPCA:
    """Multiply the kernel of a model that has learned nothing by one of the table's columns of categories, if any.

    The model's own kernel then compares the other columns; one that compares categories itself stays as it is.
    """
    chosen, d = table.columns.category_features, len(table.columns.features)
    if not chosen:
        return model
    if model.dtype != "float64":
        raise BadInput(
            f"--dtype {model.dtype} cannot tell the codes of categories (--category) apart; leave one of them out"
        )
    kernel = model.kernel
    assert isinstance(kernel, Kernel)
    if category_columns(kernel, d * lags):
        return model
    columns = [lag * d + i for lag in range(lags) for i in chosen]
    others = sorted(set(range(d * lags)) - set(columns))
    equal = Equal().on(columns).exp()
    with one_line():
        return model.set_params(kernel=kernel.on(others) * equal if others else equal)


def _note_categories(model: StreamingKernelPCA, table: Table) -> None:
    """Keep the texts of categories in a model that has learned rows of them."""
    if table.columns.categories and n_learned(model):
        model._note_categories(table.category_reader)


def make_monitor(model: StreamingKernelPCA, options: Mapping[str, Any]) -> Monitor:
    """Make a monitor of a model, as the options describe it."""
    with one_line():
        # A monitor that learns nothing refuses a model that has yet to learn.
        monitor = Monitor(model, **{name: options[name] for name in MONITOR_PARAMETERS} | {"learn": "all"})
    monitor.learn = options["learn"]
    return monitor


def monitor_of(model: StreamingKernelPCA, path: str, options: Mapping[str, Any]) -> Monitor:
    """Make the monitor of a saved model, or go on with the one that was saved with it."""
    if not isinstance(model.extra_, dict) or "monitor" not in model.extra_:
        if model.n_features_in_ % options["lags"]:
            raise BadInput(
                f"--lags {options['lags']}: {path} has learned single rows of {model.n_features_in_} columns; learn "
                "rows with those before them: score FILE --train FILE --lags N"
            )
        return make_monitor(model, options)
    if named := given_options(MONITOR_PARAMETERS):
        raise BadInput(f"{path} was saved with thresholds and events of its own; leave out {', '.join(named)}")
    with one_line(), placed(path):
        return Monitor.from_bytes(model.to_bytes(model.extra_))


def open_for(model: StreamingKernelPCA, path: str, file: str, reading: dict[str, Any], *, lags: int) -> Table:
    """Open the table that a saved model shall score, and refuse one with more or fewer columns."""
    (table,) = open_tables([file], reading | reading_of(model), learned=learned_columns(model))
    check_columns(model, path, table, lags=lags)
    return table


def results_form(save: str | None, form: str | None, *, as_json: bool) -> str | None:
    """Check the format of results and return it, None for the one of the file's ending."""
    if save is None and form is not None:
        raise BadInput("--format needs results; name a file for them with --save, or - for standard output")
    if save == STANDARD_OUTPUT and as_json:
        if form not in (None, "jsonl"):
            raise BadInput(
                f"--json prints JSON on standard output, but --format {form} is not JSON; leave one of them out"
            )
        return "jsonl"
    return form


def make_writer(
    path: str, inputs: Sequence[str], table: Table, *, time: str | None, form: str | None, live: bool
) -> ResultWriter:
    """Prepare the file of results, with a column of times if the user names one of the table.

    Refuse to write it over an input or the model.
    """
    with one_line():
        writer = ResultWriter(path, form=form, live=live, time_name=_time_name(table, time))
    if not writer.is_output and is_among(writer.path, inputs):
        raise BadInput(
            f"{writer.path}: is read as input or holds the model, so results cannot go there; give --save another name"
        )
    return writer


def learn(
    model: StreamingKernelPCA,
    tables: Sequence[Table],
    n_rows: int,
    signals: SignalGuard,
    *,
    autosave: Autosave | None = None,
    writer: ResultWriter | None = None,
    exact: bool = False,
    spread: Spread | None = None,
) -> tuple[float, bool]:
    """Learn tables in chunks of at most `n_rows` until they end or a signal comes, and publish what was learned.

    Return the seconds, and whether the tables ended. `autosave` saves the model when that is due and at the end.
    `writer` takes every row's projection as soon as the row is learned; `exact` learns full chunks, so that these
    projections do not depend on how rows trickle in. `spread` takes the rows.
    """
    start, finished = time.perf_counter(), True
    try:
        bar = show_progress("learning", _total_of(tables), quiet=_is_shown(writer))
        with _saving(model, autosave, signals), bar as report:
            for table, chunk in _all_chunks(tables, n_rows, exact=exact):
                with signals.deferred():
                    with _placed(table, chunk):
                        model.partial_fit(chunk.rows)
                    _note_categories(model, table)
                    if spread is not None:
                        spread.add(chunk.rows)
                    if writer is not None:
                        _write(model, chunk, writer)
                    if autosave is not None:
                        autosave.note(table, chunk)
                        autosave.save_if_due(model)
                report(chunk.position, model.n_samples_seen_, model.n_atoms_)
    except KeyboardInterrupt:
        finished = False
    if n_learned(model):
        try:
            with signals.deferred():
                model.refit()
                if autosave is not None:
                    autosave.save(model)
        except KeyboardInterrupt:
            finished = False
    return time.perf_counter() - start, finished


def project(
    model: StreamingKernelPCA,
    tables: Sequence[Table],
    n_rows: int,
    signals: SignalGuard,
    *,
    writer: ResultWriter | None = None,
    callbacks: Sequence[Callable[[Chunk, Array], object]] = (),
    newer: Callable[[], StreamingKernelPCA | None] | None = None,
    quiet: bool = False,
) -> bool:
    """Project and score tables with a fitted model, in chunks of at most `n_rows`; return False after a signal.

    `writer` takes projections and scores, each of `callbacks` chunks and their scores. `newer` is called before every
    chunk and may return another model to continue with. `quiet` hides the progress where alarms are printed.
    """
    done = 0
    try:
        with show_progress("projecting", _total_of(tables), quiet=quiet or _is_shown(writer)) as report:
            for table, chunk in _all_chunks(tables, n_rows):
                with signals.deferred():
                    model = (newer and newer()) or model
                    with _placed(table, chunk):
                        novelty = model.novelty(chunk.rows)
                    if writer is not None:
                        writer.write(novelty, model.transform(chunk.rows), times=chunk.times, labels=chunk.labels)
                    for take in callbacks:
                        take(chunk, novelty)
                done += len(chunk.rows)
                report(chunk.position, done, model.n_atoms_)
    except KeyboardInterrupt:
        return False
    return True


def complete(
    model: StreamingKernelPCA, tables: Sequence[Table], n_rows: int, signals: SignalGuard, *, writer: ResultWriter
) -> bool:
    """Complete the gaps of tables with a fitted model, in chunks of at most `n_rows`; return False after a signal."""
    names = list(tables[0].columns.feature_names)
    if len(set(names)) < len(names):
        names = [str(i) for i in range(len(names))]
    try:
        with show_progress("completing", _total_of(tables), quiet=_is_shown(writer)) as report:
            for table, chunk in _all_chunks(tables, n_rows):
                with signals.deferred(), _placed(table, chunk):
                    writer.write_rows(model.impute(chunk.rows), names, times=chunk.times)
                report(chunk.position, writer.n_rows, model.n_atoms_)
    except KeyboardInterrupt:
        return False
    return True


def learn_as_normal(
    monitor: Monitor, table: Table, n_rows: int, signals: SignalGuard, *, spread: Spread
) -> tuple[float, bool]:
    """Learn all rows of a table as normal, and find the thresholds from the last ones, scored before they are learned.

    Return the seconds, and whether the table ended. `spread` takes all rows.
    """
    start, finished, model = time.perf_counter(), True, monitor.model
    d = len(table.columns.features)
    before, last = np.empty((0, d)), deque[Array]()
    n_watched = max(_LEAST_WATCHED, min(_MOST_WATCHED, _MOST_NUMBERS // d))
    try:
        with show_progress("learning", table.total) as report:
            for chunk in regroup(table.chunks(n_rows), _ROWS_AT_ONCE):
                spread.add(chunk.rows)
                last.append(chunk.rows)
                # Scoring row by row takes ten times as long, and older scores hardly count.
                if _ROWS_AT_ONCE * len(last) > n_watched:
                    stacked, before = stacked_after(monitor, before, last.popleft())
                    with signals.deferred(), _placed(table, chunk):
                        model.partial_fit(stacked)
                        _note_categories(model, table)
                report(chunk.position, spread.n_rows, getattr(model, "n_atoms_", 0))
            for rows in last:
                with signals.deferred(), placed(table.source):
                    _learn_watched(monitor, rows, is_short=spread.n_rows < _SHORT)
                    _note_categories(model, table)
    except KeyboardInterrupt:
        finished = False
    if n_learned(model):
        model.refit()
    return time.perf_counter() - start, finished


def _learn_watched(monitor: Monitor, rows: Array, *, is_short: bool) -> None:
    """Let a monitor learn rows that are normal, or its model, if there are too few for a threshold."""
    if is_short:
        monitor.model.partial_fit(monitor.stacked(rows))
        return
    asked, monitor.learn = monitor.learn, "all"
    try:
        monitor.update(rows)
    finally:
        monitor.learn = asked


def watch(
    watcher: Watcher,
    tables: Sequence[Table],
    n_rows: int,
    signals: SignalGuard,
    *,
    writer: ResultWriter | None = None,
    callbacks: Sequence[Callable[[Chunk, Found], object]] = (),
    before: Callable[[], object] | None = None,
    quiet: bool = False,
) -> bool:
    """Let a monitor go through tables in chunks of at most `n_rows`; return False after a signal.

    `writer` takes what it says about each row, and the projections by the model that has gone through the chunk; the
    `callbacks` take the chunks and what was found. `before` is called before every chunk.
    """
    try:
        with show_progress("scoring", _total_of(tables), quiet=quiet or _is_shown(writer)) as report:
            for table, chunk in _all_chunks(tables, n_rows):
                with signals.deferred():
                    if before is not None:
                        before()
                    with _placed(table, chunk):
                        found = watcher.take(chunk)
                    if watcher.monitor.learn != "none":
                        _note_categories(watcher.model, table)
                    if writer is not None:
                        _write_found(watcher, chunk, found, writer)
                    for take in callbacks:
                        take(chunk, found)
                report(chunk.position, watcher.n_rows, getattr(watcher.model, "n_atoms_", 0))
    except KeyboardInterrupt:
        return False
    return True


@contextmanager
def _saving(model: StreamingKernelPCA, autosave: Autosave | None, signals: SignalGuard) -> Iterator[None]:
    """Save a model in time also while no rows come, which may be for hours."""
    seconds = None if autosave is None else autosave.interval.seconds
    if autosave is None or seconds is None or not hasattr(signal, "setitimer"):
        yield
        return

    def save(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        # A chunk that is being learned will save at its end.
        if not signals.is_deferring and n_learned(model):
            with signals.deferred():
                autosave.save_if_due(model)

    before = signal.signal(signal.SIGALRM, save)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _placed(table: Table, chunk: Chunk) -> Iterator[None]:
    """Name the file, the line and the column in what the library says of the rows of a chunk."""

    def row(found: re.Match[str]) -> str:
        counted = {} if chunk.offsets is None else chunk.offsets.counted
        i = int(found[1])
        if i >= len(chunk.rows):
            return found[0]
        # Offsets are those after a row.
        return f"line {counted['line'][i] - 1:,}" if "line" in counted else f"row {i} of the last {len(chunk.rows):,}"

    def column(found: re.Match[str]) -> str:
        names = table.columns.feature_names
        return f"column {short(names[int(found[1]) % len(names)])!r}"

    with placed(table.source, lambda text: _FEATURE.sub(column, _ROW.sub(row, text))):
        yield


def _is_shown(writer: ResultWriter | None) -> bool:
    """Tell whether rows may run over the terminal, where a progress bar would be in their way."""
    return writer is not None and writer.is_output


def _write_found(watcher: Watcher, chunk: Chunk, found: Found, writer: ResultWriter) -> None:
    record, projections = found.record, watcher.model.transform(found.stacked)
    smoothed = {} if watcher.monitor.smoothing is None else {"smoothed": record.smoothed}
    more: dict[str, npt.ArrayLike] = {**smoothed, "threshold": record.threshold, "alarm": record.is_alarm}
    writer.write(record.novelty, projections, times=chunk.times, labels=chunk.labels, more=more)


def _write(model: StreamingKernelPCA, chunk: Chunk, writer: ResultWriter) -> None:
    novelty, projections = model.novelty(chunk.rows), model.transform(chunk.rows)
    writer.write(novelty, projections, times=chunk.times, labels=chunk.labels)
