"""The columns of a table: what the first rows show of them, and the decision how they are read."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pyarrow import compute

from streamkpca.tables.asked import Asked, Reading
from streamkpca.tables.clocks import choose_time, share_back
from streamkpca.tables.errors import TableError, drop_hint, list_names, short
from streamkpca.tables.keys import Machines, choose_keys
from streamkpca.tables.numbers import Floats, convert_unit
from streamkpca.tables.quality import find_quality
from streamkpca.tables.sample import Sample
from streamkpca.tables.sentinels import find_sentinels
from streamkpca.tables.times import find_other_form, find_steps, find_wrong_stamps, join_texts, read_times

# Fewer numbers show nothing of a column but its kind, and fewer of them not that it is a counter.
_LEAST = 10
_LEAST_COUNTED = 32
# Fewer numbers do not show a counter that rises in few rows, or falls, and in how many it has to.
_LEAST_SLOW = 256
_LEAST_MOVES = 20
# Columns of units hold few.
_MOST_UNITS = 5


class Look(NamedTuple):
    """Facts about the first `n_rows` rows, by names of columns.

    times: the first and the last, in UTC if `is_utc`; step: the usual one. other: another form that is as likely, and
    its first time. first: time and numbers of the first row. back: share of the rows that are earlier than the one
    before; farthest_back: by how much at most, where years do not only change as in typical years. left_out:
    columns that are not read, by the reason. constants: columns of one value. gaps: share of missing values where there
    are any. sentinels: numbers that stand for gaps, and occur. machines: their column, their names, and, if they may be
    tags, the numbers beside their value.
    """

    n_rows: int
    times: tuple[Any, Any] | None
    step: Any
    other: tuple[str, Any] | None
    first: tuple[Any, Mapping[str, float]]
    back: float
    farthest_back: Any
    left_out: Mapping[str, tuple[str, ...]]
    constants: Mapping[str, float]
    gaps: Mapping[str, float]
    sentinels: Mapping[str, tuple[float, ...]]
    is_utc: bool = False
    machines: Machines | None = None


def choose_columns(sample: Sample, asked: Asked) -> tuple[Reading, Look]:
    """Choose the columns of a file, and how they are read, and tell what the first rows have shown."""
    drop, wanted = _check_names(sample, asked)
    is_free = asked.looks and not wanted and not asked.known.columns
    time, form = choose_time(sample, asked, {*drop, *wanted})
    times, is_utc = read_times([sample.cells[name] for name in time], form) if form else (None, False)
    rest = [name for name in sample.names if name not in drop and name not in time]
    quality = find_quality(sample, asked, rest) if asked.looks else asked.known.quality
    of_quality = {name for name, *_ in quality.values()}
    rest = [name for name in rest if name not in of_quality]
    if is_free:
        _refuse_mixed_units(sample, asked, rest)
    wide, machines = choose_keys(sample, asked, rest, times, is_free=is_free)
    key = asked.by[0] if asked.by else machines and machines[0]
    rows = _choose_rows(sample, asked, wide)
    values = {*rest} - {key}
    names = [name for name in wanted or rest if name in values]
    features = _read_features(sample, asked, wide, rows, names)
    features, differences, hidden = _choose_features(sample, asked, features, is_new=not wanted, is_free=is_free)
    _check_columns(sample, asked, [*features])
    gaps = {
        name: found
        for name in features
        if name not in differences and (found := _find_gaps(name, features[name], asked))
    }
    used = {*features, *(wide or [key])}
    numbers = [name for name in rest if sample.forms[name] is not None]
    texts = tuple(name for name in rest if sample.forms[name] is None and name not in used)
    constant = tuple(name for name in numbers if name not in wide) if wide else ()
    left_out = {"text": texts, **hidden, "constant": constant}
    reading = Reading(tuple(features), time, form, differences, gaps, wide, quality)
    return reading, _look(sample, reading, features, times, rows, left_out)._replace(is_utc=is_utc, machines=machines)


def _check_names(sample: Sample, asked: Asked) -> tuple[set[str], list[str]]:
    """Return the columns that are no features, and those that are asked for or known, and refuse what is not there."""
    names, known = sample.names, asked.known
    drop = {*sample.check([*asked.drop, *filter(None, [asked.labels])])}
    if sample.named:
        # Marks at the end of all lines make a column without a name and without a cell.
        ends = (name for j, name in enumerate(names) if name == str(j))
        drop |= {name for name in ends if sample.cells[name].null_count == sample.n_rows}
    learned = known.columns if sample.named and not known.wide and not asked.columns else ()
    if lost := [name for name in learned if name not in sample.forms]:
        what = f"expected the columns that were learned, {list_names(learned)}, but it lacks {list_names(lost)}"
        raise TableError(f"{sample.path}: {what}; it has {list_names(names)}; rename them, or give another model")
    return drop, sample.check(asked.columns or learned)


def _choose_rows(sample: Sample, asked: Asked, wide: tuple[str, str] | None) -> Any:
    """Choose the first rows that show the rhythm: all, or those of one machine or tag."""
    if wide is not None:
        tags = sample.texts(wide[0])
        return tags == next(iter(asked.known.columns if asked.known.wide else filter(None, tags)), None)
    return sample.texts(asked.by[0]) == asked.by[1] if asked.by else slice(None)


def _read_features(
    sample: Sample, asked: Asked, wide: tuple[str, str] | None, rows: Any, names: Sequence[str]
) -> dict[str, Floats]:
    """Read the first numbers of columns, or of tags."""
    if wide is not None:
        tags, values = sample.texts(wide[0]), sample.numbers(wide[1])
        tagged = asked.known.columns if asked.known.wide else filter(None, dict.fromkeys(tags))
        return {name: values[tags == name] for name in tagged}
    if asked.columns or asked.known.columns:
        for name in names:
            _refuse_text(sample, name)
    return {name: sample.numbers(name)[rows] for name in names if sample.forms[name] is not None}


def _choose_features(
    sample: Sample, asked: Asked, features: dict[str, Floats], *, is_new: bool, is_free: bool
) -> tuple[dict[str, Floats], tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Choose the features, which of them are counters, and what is left out."""
    # Of a pipe, or of a file that grows, the first rows may be too few.
    is_new = is_new and not asked.known.columns and (asked.looks or (sample.is_whole and not asked.follow))
    even, counters = _find_growth(features) if is_new else ([], [])
    empty = [name for name, one in features.items() if is_free and len(one) >= _LEAST and np.isnan(one).all()]
    chosen = {name: one for name, one in features.items() if name not in (*even, *empty)}
    # Of long tables, columns are tags.
    sample.check([name for name in asked.differences or () if name not in chosen])
    counters = (
        [*(counters if is_free else asked.known.differences)] if asked.differences is None else [*asked.differences]
    )
    hidden = {"numbering rows": tuple(even), "empty": tuple(empty)}
    return chosen, tuple(name for name in counters if name in chosen), hidden


def _look(
    sample: Sample, reading: Reading, features: Mapping[str, Floats], times: Any, rows: Any, left_out: Mapping[str, Any]
) -> Look:
    """Tell what the first rows have shown."""
    seen = {name: one for name, one in features.items() if len(one)}
    gaps = reading.gaps
    whole = {name: v[~np.isnan(v) & ~np.isin(v, gaps.get(name, ()))] for name, v in seen.items()}
    clock, steps, other = np.empty(0), np.empty(0), None
    if times is not None:
        mine = times[rows]
        steps = find_steps(np.unique(mine[~np.isnan(mine)]))
        clock = times[~np.isnan(times)] if reading.wide else mine[~np.isnan(mine)]
    step: Any = np.median(steps) if len(steps) else None
    if clock.dtype.kind == "M" and step is not None:
        clock = clock[~find_wrong_stamps(clock, clock[0], step)]
        cells = [sample.cells[name] for name in reading.time]
        if form := find_other_form(cells, str(reading.time_format), times):
            other = form, next(iter(read_times(cells, form)[0][rows]), None)
    falls = find_steps(clock)
    # A typical year has months of several years.
    is_typical = clock.dtype.kind == "M" and share_back(clock - clock.astype("M8[Y]")) == 0.0
    return Look(
        n_rows=sample.n_rows,
        times=(clock.min(), clock.max()) if len(clock) else None,
        step=step,
        other=other,
        first=(next(iter([] if times is None else times[rows]), None), {name: float(v[0]) for name, v in seen.items()}),
        back=share_back(clock),
        farthest_back=-falls.min() if len(falls) and not is_typical else None,
        left_out={why: found for why, found in left_out.items() if found},
        constants={name: float(v[0]) for name, v in whole.items() if len(v) >= _LEAST and np.ptp(v) == 0.0},
        gaps={name: 1.0 - len(v) / len(seen[name]) for name, v in whole.items() if 0 < len(v) < len(seen[name])},
        sentinels={name: met for name in seen if (met := tuple(x for x in gaps.get(name, ()) if x in seen[name]))},
    )


def _refuse_text(sample: Sample, name: str) -> None:
    if sample.forms[name] is None:
        cell = next((text for text in sample.texts(name) if text), "")
        what = f"column {short(name)!r} holds text ({cell[:40]!r}) but numbers are required"
        raise TableError(f"{sample.path}: {what} ({drop_hint(name)})")


def _check_columns(sample: Sample, asked: Asked, columns: Sequence[str]) -> None:
    if not columns:
        remedy = "choose others with --columns, --drop, --time or --labels"
        remedy = "names hold semicolons: try --delimiter ';'" if ";" in "".join(sample.names) else remedy
        raise TableError(f"{sample.path}: no column of numbers is left of {list_names(sample.names)}; {remedy}")
    if (n_known := len(asked.known.columns)) not in (0, len(columns)):
        have = f"expected {n_known} columns (as learned) but got {len(columns)}: {list_names(columns)}"
        raise TableError(f"{sample.path}: {have}; choose the same columns with --columns or --drop")


def _refuse_mixed_units(sample: Sample, asked: Asked, rest: Sequence[str]) -> None:
    """Refuse numbers whose unit stands beside them and changes."""
    for name in rest:
        if sample.forms[name] is not None or (asked.by or [asked.wide])[0] == name:
            continue
        units = compute.unique(join_texts([sample.cells[name]]).drop_null()).to_pylist()[: _MOST_UNITS + 1]
        factors = [convert_unit(unit, units[0]) for unit in units]
        if 1 < len(units) <= _MOST_UNITS and None not in factors and {*factors} != {1.0}:
            what = f"column {short(name)!r} holds units that change ({list_names(units)}), so its rows do not compare"
            remedy = f"read those of one (--by {name}={units[0]}), or convert them and --drop {name}"
            raise TableError(f"{sample.path}: {what}; {remedy}")


def _find_gaps(name: str, values: Floats, asked: Asked) -> tuple[float, ...]:
    """Find the numbers of a column that stand for gaps."""
    if asked.gaps is not None:
        return tuple(asked.gaps)
    return tuple(dict.fromkeys((*find_sentinels(values), *asked.known.gaps.get(name, ()))))


def _find_growth(numbers: Mapping[str, Floats]) -> tuple[list[str], list[str]]:
    """Find the columns that only rise or fall: at even steps, as numbers of rows, or as counters, which may restart."""
    even, counters = list[str](), list[str]()
    for name, values in numbers.items():
        known = values[~np.isnan(values)]
        steps = np.diff(known)
        n_moves = np.count_nonzero(steps)
        # Slow ones rise in few rows.
        is_enough = n_moves > (0.2 * len(steps) if len(known) < _LEAST_SLOW else _LEAST_MOVES)
        if len(known) < _LEAST_COUNTED or not is_enough or len(np.unique(known)) < _LEAST:
            continue
        if len(known) >= _LEAST_SLOW and (steps <= 0.0).all():
            known, steps = -known, -steps
        falls = np.flatnonzero(steps < 0.0)
        # A counter restarts near zero.
        if len(falls) and (
            len(falls) > 0.05 * n_moves or (known[falls + 1] > 0.2 * known[falls]).any() or known.min() < 0.0
        ):
            continue
        usual = np.median(steps)
        is_even = usual > 0.0 and np.mean(np.isclose(steps, usual, rtol=1e-3, atol=0.0)) > 0.9
        (even if is_even else counters).append(name)
    return even, counters
