"""How the columns of a table are read: what the user asks for, what is known of them, and what the first rows show."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca.tables.detect import MOST_COLUMNS, Sample, find_growth, find_key, find_sentinels, find_time, share_back
from streamkpca.tables.errors import TableError, drop_hint, list_names, short
from streamkpca.tables.times import ISO, NUMBER, find_form, read_times

# Fewer numbers show nothing of a column but its kind.
_LEAST = 10

Machines = tuple[str, tuple[str, ...], tuple[str, ...]]


class Reading(NamedTuple):
    """How the columns of a file are read, by names; what is known of it beside a saved model.

    columns: the features. time, time_format: see `open_table`. differences: features that are counters. gaps: numbers
    of a feature that stand for gaps. wide: the columns of the tag and of the value, where the features are tags.
    """

    columns: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    time_format: str | None = None
    differences: tuple[str, ...] = ()
    gaps: Mapping[str, tuple[float, ...]] = {}
    wide: tuple[str, str] | None = None


class Asked(NamedTuple):
    """The options of `open_table`, which says what they mean."""

    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    columns: Sequence[str] = ()
    drop: Sequence[str] = ()
    time: Sequence[str] = ()
    time_format: str | None = None
    differences: Sequence[str] | None = None
    gaps: Sequence[float] | None = None
    wide: str | None = None
    by: tuple[str, str] | None = None
    labels: str | None = None
    known: Reading = Reading()
    on_bad_rows: str = "raise"
    on_missing: str = "raise"
    follow: bool = False
    start: Mapping[str, Any] | None = None
    looks: bool = False


class Look(NamedTuple):
    """Facts about the first `n_rows` rows, by names of columns.

    times: the first and the last, in UTC if `is_utc`; step: the usual one. back: share of the rows that are earlier
    than the one before. machines: their column, their names, and, if they may be tags, the numbers beside their
    value. left_out: columns that nobody asked for, by the reason. constants: columns of one value. gaps: share of
    missing values where there are any. sentinels: numbers that stand for gaps, and occur.
    """

    n_rows: int
    times: tuple[Any, Any] | None
    is_utc: bool
    step: Any
    back: float
    machines: Machines | None
    left_out: Mapping[str, tuple[str, ...]]
    constants: Mapping[str, float]
    gaps: Mapping[str, float]
    sentinels: Mapping[str, tuple[float, ...]]


def choose_columns(sample: Sample, asked: Asked) -> tuple[Reading, Look]:
    """Choose the columns of a file, and how they are read, and tell what the first rows have shown."""
    names, known = sample.names, asked.known
    drop = {sample.find(name) for name in (*asked.drop, *filter(None, [asked.labels]))}
    # Marks at the end of all lines make a column without a name and without a cell.
    if sample.named:
        drop |= {j for j, cells in sample.cells.items() if names[j] == str(j) and cells.null_count == len(cells)}
    learned = known.columns if sample.named and not known.wide and not asked.columns else ()
    if len(lost := [name for name in learned if name not in names]) > 1:
        what = f"expected the columns that were learned, {list_names(learned)}, but {list_names(lost)} are not there"
        raise TableError(f"{sample.path}: {what}; it has {list_names(names)}; give such a file, or another model")
    wanted = [sample.find(name) for name in asked.columns or learned]
    is_free = asked.looks and not wanted and not known.columns
    time, form = _choose_time(sample, asked, drop | set(wanted))
    times, is_utc = read_times([sample.cells[j] for j in time], form) if form else (None, False)
    rest = [j for j in range(len(names)) if j not in drop and j not in time]
    key, value, machines = _choose_keys(sample, asked, rest, times, is_free=is_free)
    if value is not None and key is not None:
        tags, values = sample.texts(key), sample.numbers(value)
        columns = known.columns if known.wide else tuple(filter(None, dict.fromkeys(tags)))
        features = {name: values[tags == name] for name in columns}
        rhythm = times if times is None or not columns else times[tags == columns[0]]
    else:
        for j in wanted:
            _refuse_text(sample, j)
        free = set(rest) - {key}
        places = [j for j in wanted or rest if sample.forms[j] is not None and j in free]
        mine = slice(None) if asked.by is None or key is None else sample.texts(key) == asked.by[1]
        features = {names[j]: sample.numbers(j)[mine] for j in dict.fromkeys(places)}
        rhythm = times = None if times is None else times[mine]
    even, counters = find_growth(features) if is_free else ([], known.differences)
    empty = [name for name, values in features.items() if len(values) >= _LEAST and np.isnan(values).all()]
    hidden = {*empty, *even} if is_free else set()
    columns = tuple(name for name in features if name not in hidden)
    _check_columns(sample, asked, columns)
    differences = counters if asked.differences is None else asked.differences
    differences = tuple(name for name in differences if name in columns)
    seen = {name: features[name] for name in columns if len(features[name])}
    gaps = {name: _find_gaps(name, features[name], asked) for name in columns if name not in differences}
    reading = Reading(
        columns,
        tuple(names[j] for j in time),
        form,
        differences,
        {name: found for name, found in gaps.items() if found},
        None if value is None or key is None else (names[key], names[value]),
    )
    texts = [names[j] for j in rest if sample.forms[j] is None and j != key and names[j] not in features]
    left_out = {"text": texts, "numbering rows": even, "empty": empty if is_free else []}
    if value is not None:
        left_out["constant"] = [names[j] for j in rest if sample.forms[j] is not None and j not in (key, value)]
    whole = {name: v[~np.isnan(v) & ~np.isin(v, reading.gaps.get(name, ()))] for name, v in seen.items()}
    rhythm = np.empty(0) if rhythm is None else rhythm
    clock = np.empty(0) if times is None else times[~np.isnan(times)]
    return reading, Look(
        n_rows=sample.n_rows,
        times=(clock.min(), clock.max()) if len(clock) else None,
        is_utc=is_utc,
        step=np.median(steps) if len(steps := np.diff(np.unique(rhythm[~np.isnan(rhythm)]))) else None,
        back=share_back(clock),
        machines=machines,
        left_out={why: tuple(found) for why, found in left_out.items() if found},
        constants={name: float(v[0]) for name, v in whole.items() if len(v) >= _LEAST and np.ptp(v) == 0.0},
        gaps={name: 1.0 - len(v) / len(seen[name]) for name, v in whole.items() if 0 < len(v) < len(seen[name])},
        sentinels={name: tuple(one for one in gaps.get(name, ()) if one in v) for name, v in seen.items()},
    )


def _choose_time(sample: Sample, asked: Asked, others: set[int]) -> tuple[tuple[int, ...], str | None]:
    """Choose the columns of the time and their form: as asked, as known, or as found."""
    known, form = asked.known, asked.time_format
    columns = tuple(sample.find(name) for name in asked.time)
    if not columns and known.time and set(known.time) <= set(sample.names):
        columns, form = tuple(sample.find(name) for name in known.time), form or known.time_format
    if not columns:
        free = [j for j in sample.cells if j not in others and j < MOST_COLUMNS]
        found = find_time(sample, free) if asked.looks else None
        if not found and form:
            raise TableError(f"{sample.path}: no column of times is found for --time-format {form!r}; name it (--time)")
        return (found[0], form or found[1]) if found else ((), None)
    if form:
        return columns, form
    if (as_text := find_form([sample.cells[j] for j in columns])) is not None:
        return columns, as_text[0]
    # The hour may come before the day, or the year, the month and so on be columns of their own.
    found = find_time(sample, columns)
    is_number = len(columns) == 1 and sample.forms[columns[0]] is not None
    return found[:2] if found and {*found[0]} == {*columns} else (columns, NUMBER if is_number else ISO)


def _choose_keys(
    sample: Sample, asked: Asked, rest: Sequence[int], times: Any, *, is_free: bool
) -> tuple[int | None, int | None, Machines | None]:
    """Choose the column of tags and that of their values, or the column of machines, and name these."""
    names, known = sample.names, asked.known
    numbers = [j for j in rest if sample.forms[j] is not None]
    if asked.by is not None:
        return sample.find(asked.by[0]), None, None
    if known.wide is not None and not asked.columns:
        return sample.find(known.wide[0]), sample.find(known.wide[1]), None
    if asked.wide is not None:
        key = sample.find(asked.wide)
        values = [j for j in numbers if j != key]
        if len(values) != 1:
            have = f"expected one column of values beside the tags in {short(names[key])!r} but got {len(values)}"
            raise TableError(f"{sample.path}: {have}: {list_names([names[j] for j in values])}; --drop the others")
        return key, values[0], None
    clock = np.arange(sample.n_rows) if times is None else times
    found = find_key(sample, clock, rest) if is_free else None
    if found is None:
        return None, None, None
    key, values, named = found
    if len(values) == 1:
        return key, values[0], None
    besides = tuple(names[j] for j in numbers if len(named) == 1 and j not in (key, *named))
    return key, None, (names[key], tuple(sorted({*sample.texts(key)} - {""})), besides)


def _refuse_text(sample: Sample, j: int) -> None:
    if sample.forms[j] is None:
        cell = next((text for text in sample.texts(j) if text), "")
        what = f"column {short(sample.names[j])!r} holds text ({cell[:40]!r}) but numbers are required"
        raise TableError(f"{sample.path}: {what} ({drop_hint(sample.names[j])})")


def _check_columns(sample: Sample, asked: Asked, columns: Sequence[str]) -> None:
    if not columns:
        remedy = "choose others with --columns, --drop, --time or --labels"
        remedy = "names hold semicolons: try --delimiter ';'" if ";" in "".join(sample.names) else remedy
        raise TableError(f"{sample.path}: no column of numbers is left of {list_names(sample.names)}; {remedy}")
    if (n_known := len(asked.known.columns)) not in (0, len(columns)):
        have = f"expected {n_known} columns (as learned) but got {len(columns)}: {list_names(columns)}"
        raise TableError(f"{sample.path}: {have}; choose the same columns with --columns or --drop")


def _find_gaps(name: str, values: Array, asked: Asked) -> tuple[float, ...]:
    """Find the numbers of a column that stand for gaps."""
    if asked.gaps is not None:
        return tuple(asked.gaps)
    return tuple(dict.fromkeys((*find_sentinels(values), *asked.known.gaps.get(name, ()))))
