"""The work of watch and score: a monitor goes through the rows of a file, and events and lasting changes are told."""

import io
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import numpy as np

from streamkpca._core.files import SHARED, replace_file
from streamkpca.cli.console import Signals, print_facts, print_json, print_warning, printable
from streamkpca.cli.events import Found, describe, event_of, tell, tell_list, write_page
from streamkpca.cli.models import Autosave, Saved, check_target, is_among, read_saved
from streamkpca.cli.options import CHANGE, CHANGED_LATER, MONITOR_PARAMETERS, is_given, refuse_given
from streamkpca.cli.reading import (
    FOLLOW_SECONDS,
    at,
    bad_facts,
    each_batch,
    list_machines,
    open_tables,
    tell_bad,
    tell_look,
    write_command,
)
from streamkpca.monitoring import Monitor, MonitorRecord
from streamkpca.monitoring.report import Facts
from streamkpca.tables import Batch, Table, Writer

_ENDINGS = (".png", ".svg", ".pdf")
_MANY_ALARMS = 0.1


def score(files: Sequence[str], **options: Any) -> None:
    """Score the rows of files by a saved model, whose file stays as it is."""
    for path, its_files, its in _each_machine(files, options):
        saved = read_saved(path)
        monitor = _monitor_of(saved, path, its)
        keeper = Autosave(None, math.inf, saved, monitor)
        _go_through(its_files, monitor, saved._replace(places={}), keeper, its, inputs=[*files, path])


def watch(
    files: Sequence[str],
    from_start: bool,
    accept: Sequence[int | str],
    confirm: Sequence[int],
    healthy_until: int | str | None,
    **options: Any,
) -> None:
    """Score each row of files before it is learned, with a new monitor or one that goes on and is saved again."""
    if not options["model"]:
        why = "these concern what a saved model has learned"
        refuse_given({"from_start", "accept", "confirm"}, why, "name its file (--model FILE), or leave out")
    if (by := options["by"]) and by[1] is None:
        refuse_given({"accept", "confirm"}, f"these concern events of one machine, as in --by {by[0]}=M1")
    if both := {*accept} & {*confirm}:
        raise click.UsageError(f"event {min(both)}: --accept and --confirm contradict each other; give one of them")
    for path, its_files, its in _each_machine(files, options):
        saved = Saved(Monitor().model)
        if path is not None:
            check_target(path, its_files)
            saved = read_saved(path, fitted=False) if Path(path).exists() or accept or confirm else saved
        monitor = _monitor_of(saved, path, its)
        keeper = Autosave(path, FOLLOW_SECONDS if its["follow"] else math.inf, saved, monitor)
        for number in accept:
            found: Any = monitor.change_detected_ if number == CHANGE else event_of(monitor, int(number))
            if found is None:
                raise ValueError(f"{path}: --accept change: there is no lasting change; streamkpca info lists events")
            monitor.accept(found)
            told = printable(str(found)) if number == CHANGE else describe(found, int(number))
            click.echo(f"Accepted: {told}; such rows raise no alarm from now on", err=True)
        for number in confirm:
            monitor.confirm(event := event_of(monitor, number))
            click.echo(f"Confirmed: {describe(event, number)}; such rows are alarms from now on", err=True)
        if accept or confirm:
            keeper.save()
        saved = saved._replace(places={}) if from_start else saved
        inputs = [*its_files, *filter(None, [path])]
        _go_through(its_files, monitor, saved, keeper, its, inputs=inputs, looks=True, healthy_until=healthy_until)


def _each_machine(files: Sequence[str], options: Facts) -> Iterator[tuple[Any, Sequence[str], Facts]]:
    """Yield the model, the files and the options: as they are, or those of each machine of --by."""
    by, whose = options["by"], dict[str | None, list[str]]()
    if not by or by[1] is not None:
        whose[None] = list(files)
    else:
        for file in files:
            for found in list_machines(file, options):
                whose.setdefault(found, []).append(file)
    for machine in sorted(whose, key=str):
        one = dict(options)
        if machine is not None:
            one["by"] = by[0], machine
            for name in ("model", "save", "plot", "report"):
                if one[name] not in (None, "-"):
                    path = Path(one[name])
                    one[name] = str(path.with_name(f"{path.stem}-{quote(machine, safe='')}{path.suffix}"))
        yield one.pop("model"), whose[machine], one


def _monitor_of(saved: Saved, path: str | None, options: Facts) -> Monitor:
    """Make the monitor of a saved model, or go on with the one that was saved with it."""
    if saved.monitor is None:
        return Monitor(saved.model, **{name: options[name] for name in MONITOR_PARAMETERS})
    refuse_given({*MONITOR_PARAMETERS} - {*CHANGED_LATER}, f"{path} keeps the settings that it began with")
    for name in filter(is_given, CHANGED_LATER):
        setattr(saved.monitor, name, options[name])
    return saved.monitor


def _go_through(
    files: Sequence[str],
    monitor: Monitor,
    saved: Saved,
    keeper: Autosave,
    options: Facts,
    *,
    inputs: Sequence[str],
    looks: bool = False,
    healthy_until: int | str | None = None,
) -> None:
    """Let a monitor score the rows of a file, and learn those that are to be learned; tell what it finds."""
    plot, page, as_json, follows = options["plot"], options["report"], options["as_json"], options["follow"]
    _check_pictures(plot, page, inputs)
    # One pass does not come back, so a bad row must not stop it.
    options["on_bad_rows"] = options["on_bad_rows"] or "skip"
    tables = open_tables(files, options, saved, looks=looks)
    table = tables[0]
    if looks:
        _refuse_machines(table)
        tell_look(table)
    begun = [saved.places.get(os.path.realpath(one.path)) for one in tables]
    if begun[0] is None and (table.reading.time or saved.reading.time):
        # Another file may begin before the last one ended, or have no times.
        monitor.reset()
    _check_context(monitor, table)
    writer = _open_results(options, inputs, keeper)
    tells = not (writer and writer.is_output)
    found, signals = Found(monitor, tables, draws=bool(plot or page)), Signals()
    with signals.handle(), writer or nullcontext():
        for table, batch in each_batch(tables, options["chunk_rows"], signals, "watching", quiet=follows or not tells):
            with at(table, batch):
                record = found.take(table, batch, n_healthy=_count_healthy(healthy_until, found.n_rows, batch))
            if writer:
                writer.write(_list_results(tables, table, batch, record))
                keeper.results = writer.mark() or keeper.results
                while writer.notes:
                    print_warning(writer.notes.pop(0))
            if tells and (as_json or follows):
                _tell_news(found, live=follows, as_json=as_json)
            if page and follows and found.has_news():
                write_page(found, page, keeper.path, options["by"])
            keeper.note(table, batch)
        if found.n_rows:
            keeper.save()
    tell_bad(tables)
    if tells:
        _conclude(found, as_json=as_json, follows=follows)
    if plot and found.n_rows:
        _write_picture(found.draw(), plot)
    if page and found.n_rows:
        write_page(found, page, keeper.path, options["by"])
    drawn = (("Picture", plot), ("Report", page)) if found.n_rows else ()
    for what, name in (*drawn, ("Results", options["save"]), ("Model", keeper.path)):
        if tells and name and not as_json:
            click.echo(f"{what}: {name}")
    signals.leave_if_stopped(f"after {found.n_rows:,} rows")


def _count_healthy(until: int | str | None, n_before: int, batch: Batch) -> int:
    """Return how many of the next rows are before the row, or the time, until which rows are declared healthy."""
    if until is None or isinstance(until, int):
        return max((until or 0) - n_before, 0)
    if batch.times is None:
        raise ValueError(f"--healthy-until {until}: the rows have no times; name their column (--time), or give rows")
    try:
        end = np.datetime64(until) if batch.times.dtype.kind == "M" else float(until)
    except ValueError:
        raise ValueError(
            f"--healthy-until {until}: expected a number of rows, or a time such as 2026-05-04T14:00"
        ) from None
    return int(np.searchsorted(np.maximum.accumulate(batch.times), end))


def _check_pictures(plot: str | None, page: str | None, inputs: Sequence[str]) -> None:
    """Refuse, before the work begins, a picture or page in an unknown format, without its library or over an input."""
    for path, what, endings in ((plot, "pictures are", _ENDINGS), (page, "the report is", (".html",))):
        if path is None:
            continue
        if Path(path).suffix.lower() not in endings:
            raise click.UsageError(f"{path}: {what} written as {', '.join(endings)}; end the name so")
        check_target(path, inputs)
    if page and find_spec("bokeh") is None:
        raise click.UsageError('--report needs bokeh; pip install "streamkpca[report]"')


def _write_picture(figure: Any, path: str) -> None:
    """Write a picture in the format of the name's ending; the file before stays if that fails."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix.lower().removeprefix("."), dpi=150)
    with replace_file(path, mode=SHARED) as file:
        file.write(drawn.getvalue())


def _check_context(monitor: Monitor, table: Table) -> None:
    """Refuse a period that the rows have no times for."""
    if isinstance(monitor.period, float) and not table.reading.time:
        raise ValueError(
            f"{table.path}: the period is a time, {monitor.period:g} s, but the rows have none; name their column "
            "(--time), or begin with a period in rows, as in --period 144"
        )


def _open_results(options: Facts, inputs: Sequence[str], keeper: Autosave) -> Writer | None:
    """Open the file of results, which goes on after those of earlier runs if a model does, or a file is followed."""
    save: str | None = options["save"]
    if save is None:
        return None
    if save == "-":
        # With --json, standard output takes JSON lines.
        return Writer(save, format="jsonl" if options["as_json"] else "csv")
    if is_among(save, inputs):
        raise click.UsageError(f"{save}: is read as input; give --save another name")
    return Writer(save, live=options["follow"] or keeper.path is not None, start=keeper.results)


def _list_results(tables: Sequence[Table], table: Table, batch: Batch, record: MonitorRecord) -> Facts:
    """Return the columns of results: the rows' numbers in their file, times and labels, and what the monitor says."""
    columns: Facts = {"file": [table.path] * len(batch.rows)} if len(tables) > 1 else {}
    columns["row"] = batch.rows
    # The first names of times: all lines have the same columns.
    if time := next(filter(None, (one.reading.time for one in tables)), None):
        missing = np.full(len(batch.rows), np.datetime64("NaT", "ns"))
        columns[" ".join(time)] = missing if batch.times is None else batch.times
    if batch.labels is not None:
        columns["label"] = batch.labels
    scores = {"novelty": record.novelty, "rarity": record.rarity, "rarity_so_far": record.rarity_so_far}
    return columns | scores | {"alarm": record.is_alarm}


def _refuse_machines(table: Table) -> None:
    """Refuse rows of several machines, of which one monitor would know none, and tags beside several numbers."""
    if (found := table.look.machines) is not None:
        column, names, besides = found
        dropped = click.get_current_context().params["drop"] or ()
        shown = ", ".join(map(printable, names[:3])) + ", ..." * (len(names) > 3)
        what, remedy = "machines", f"a monitor for each: {write_command({'by': column})}"
        if besides:
            wide = write_command({"wide": column, "drop": (*dropped, *besides)})
            what, remedy = "tags", f"a column for each: {wide}; or {remedy}"
        else:
            remedy += f"; or one for all, if they are alike: {write_command({'drop': (*dropped, column)})}"
        raise ValueError(f"{table.path}: holds rows of {len(names)} {what} ({column}: {shown}); {remedy}")


def _conclude(found: Found, *, as_json: bool, follows: bool) -> None:
    """Print what is still to be told, a summary, and what looks wrong."""
    facts, table, monitor = found.facts() | bad_facts(found.tables), found.tables[0], found.monitor
    name = ", ".join([*(one.path for one in found.tables), *([] if table.key is None else [printable(table.key)])])
    n, n_alarms = found.n_rows, found.n_alarms
    if as_json:
        _tell_news(found, live=True, as_json=True)
        print_json(facts)
    elif not follows and n:
        tell_list(found, name)
    if not as_json and (measures := found.measure()):
        print_facts("Labels", measures)
    if not n:
        print_warning(f"{name}: no new rows since it was read for this model; --from-start watches it anew")
    elif facts["threshold"] is None:
        why = f"these begin once 64 rows are learned{' and one period has passed' if monitor.period else ''}"
        print_warning(f"no alarms yet: {why}")
    elif found.n_declared == n:
        print_warning(f"all {n:,} rows were declared healthy (--healthy-until), so none was judged")
    elif not found.changes and n_alarms > n * _MANY_ALARMS:
        learned = {"none": "let the monitor learn (not --learn none)", "normal": "learn them all (--learn all)"}
        remedy = f"if these rows are normal, {learned.get(monitor.learn, 'raise --quantile')}"
        print_warning(f"{n_alarms / n:.0%} of the rows are alarms; {remedy}")


def _tell_news(found: Found, *, live: bool, as_json: bool) -> None:
    report = found.report()
    for one in found.news(rare=not as_json, live=live):
        if as_json:
            print_json(one)
        else:
            tell(one, report)
