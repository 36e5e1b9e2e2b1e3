"""The columns of the time and their form: as asked, as known, or as the first rows show."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice, pairwise, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import compute

from streamkpca.tables.asked import Asked
from streamkpca.tables.errors import TableError
from streamkpca.tables.numbers import Floats, Form, trim
from streamkpca.tables.sample import MOST_COLUMNS, Sample
from streamkpca.tables.times import (
    DAYS,
    EPOCHS,
    IN_COLUMNS,
    ISO,
    LIKELY_SECONDS,
    NUMBER,
    TIME_NAME,
    find_form,
    find_steps,
    has_clock,
    has_day,
    read_times,
)  # fmt: skip

# Columns of dates among which the time is looked for.
_MOST_DATES = 50
# Names of columns in which parts of a time begin, hold an hour, or a fraction of a second.
_DATE_NAME = re.compile(r"#?(year|yyyy|yy|yr|jahr|date|datum|day|yymmdd|yyyymmdd|ddmmyy)", re.IGNORECASE)
_HOUR_NAME = re.compile(r"(hh?mm(ss)?|hours?|hr|hh|uhrzeit|stunde|heure)", re.IGNORECASE)
_FRACTION_NAMES = {"%3f": ("ms", "msec", "millis", "millisecond", "milliseconds"), "%6f": ("us", "µs", "usec")}

# The columns of a time, its form, and the times.
Found = tuple[tuple[str, ...], str, Any]


def choose_time(sample: Sample, asked: Asked, others: Collection[str]) -> tuple[tuple[str, ...], str | None]:
    """Choose the columns of the time and their form: as asked, as known, or as found."""
    known, form = asked.known, asked.time_format
    columns = tuple(sample.check(asked.time))
    if not columns and known.time and {*known.time} <= {*sample.names}:
        columns, form = known.time, form or known.time_format
    if not columns:
        free = [name for name in sample.names[:MOST_COLUMNS] if name not in others]
        found = _find_time(sample, free) if asked.looks else None
        if not found and form:
            raise TableError(f"{sample.path}: no column of times is found for --time-format {form!r}; name it (--time)")
        return (found[0], form or found[1]) if found else ((), None)
    if form:
        return columns, form
    if (as_text := find_form([sample.cells[name] for name in columns])) is not None:
        return columns, as_text[0]
    # The hour may come before the day, or the year, the month and so on be columns of their own.
    found = _find_time(sample, columns)
    is_number = len(columns) == 1 and sample.forms[columns[0]] is not None
    return found[:2] if found and {*found[0]} == {*columns} else (columns, NUMBER if is_number else ISO)


def _find_time(sample: Sample, columns: Collection[str]) -> Found | None:
    """Find the columns of the time, their form, and the times: of all columns of times, the one that moves most."""
    dates = [*_dates(sample, columns)]
    found = [*dates, *_in_columns(sample, dates, columns), *_numbers_of_time(sample, columns)]
    best = max(found, key=_rate_time, default=None)
    # A date that stands still is no time, if there is more than one row.
    return best if best is None or _rate_time(best)[0] or len(best[2]) == 1 else None


def _rate_time(found: Found) -> tuple[float, ...]:
    """Rate times: whether they move, are in order (or the reverse), have a day; how many differ; columns; steps."""
    times = found[2][~np.isnan(found[2])]
    back = share_back(times)
    n_different = len(np.unique(times))
    moves = -float(np.abs(find_steps(times)).astype(float).sum())
    return n_different > 1, min(back, 1.0 - back) < 0.1, has_day(found[1]), n_different, len(found[0]), moves


def _dates(sample: Sample, columns: Collection[str]) -> Iterator[Found]:
    """Yield columns of dates, and neighbours that hold a day and an hour, or the year, the month and so on."""
    names, cells, forms, days = sample.names, sample.cells, sample.forms, set[str]()
    likely = (name for name in columns if _may_be_time(cells[name], is_text=forms[name] is None))
    for name in islice(likely, _MOST_DATES):
        if (found := find_form([cells[name]])) is not None:
            days |= set() if has_clock(found[0]) and has_day(found[0]) else {name}
            yield (name,), *found
    for day, hour in chain(pairwise(names), pairwise(names[::-1])):
        if day in days and hour in columns and (forms[hour] is None or TIME_NAME.match(hour)):
            found = find_form([cells[day], cells[hour]])
            if found is not None and has_clock(found[0]):
                yield (day, hour), *found


def _in_columns(sample: Sample, dates: Sequence[Found], columns: Collection[str]) -> Iterator[Found]:
    """Yield neighbours that hold the parts of a time: the year, the day and so on, or an hour after a date."""
    names, cells = sample.names, sample.cells
    whole = [name for name in columns if sample.forms[name] == Form() and _is_whole(sample.numbers(name))]
    for name in whole:
        j = names.index(name)
        run = [*takewhile(whole.__contains__, names[j : j + 6])]
        if not (_DATE_NAME.fullmatch(name) if sample.named else _may_be_years(sample.numbers(name))) or len(run) < 2:
            continue
        for form in IN_COLUMNS:
            signs = form.split(" ")[: len(run)]
            for n in range(len(signs), 1, -1):
                if sample.named and not all(map(_is_named, signs[1:n], run[1:n])):
                    continue
                times, _ = read_times([cells[one] for one in run[:n]], " ".join(signs[:n]))
                if _are_times(times) and _may_hold(signs[n - 1], sample.numbers(run[n - 1])):
                    yield tuple(run[:n]), " ".join(signs[:n]), times
                    break
    for before, form, _ in dates:
        after = names[max(map(names.index, before)) + 1 :][:1]
        if not after or after[0] not in whole:
            continue
        signs = [sign for sign, known in _FRACTION_NAMES.items() if after[0].lower() in known]
        if not has_clock(form):
            signs = ["%H%M%S", "%H%M", "%H"] if _HOUR_NAME.fullmatch(after[0]) else []
        for sign in signs:
            times, _ = read_times([cells[one] for one in (*before, *after)], f"{form} {sign}")
            if _are_times(times) and _may_hold(sign, sample.numbers(after[0])):
                yield (*before, *after), f"{form} {sign}", times
                break


def _is_named(sign: str, name: str) -> bool:
    """Tell whether a column may hold a month, or a day of the year, by its name."""
    return {"%m": "m", "%j": "d", "%d": "dtj"}.get(sign, name[:1].lower()).find(name[:1].lower()) >= 0


def _may_hold(sign: str, values: Floats) -> bool:
    """Tell whether numbers are as large as hours with minutes, or seconds, are once in a day."""
    return bool(np.nanmax(values) > {"%H%M": 24, "%H%M%S": 2400}.get(sign, -1))


def _is_whole(values: Floats) -> bool:
    known = values[~np.isnan(values)]
    return len(known) > 0 and not (known % 1.0).any()


def _may_be_years(values: Floats) -> bool:
    return bool(np.nanmin(values) >= 1900 and np.nanmax(values) <= 2100)


def _are_times(times: npt.NDArray[Any]) -> bool:
    """Tell whether nearly all cells are times, in order."""
    return np.mean(~np.isnat(times)) > 0.95 and share_back(times) < 0.1


def _may_be_time(column: Any, *, is_text: bool) -> bool:
    """Tell whether the first cells have digits enough for a date or an hour."""
    if pyarrow.types.is_string(column.type):
        few = trim(column[:20])
        digits = compute.match_substring_regex(few, r"\d.*\d" if is_text else r"^\d{8,14}$")
        return bool(2 * (compute.sum(digits).as_py() or 0) > len(few) - few.null_count)
    few = column[:20].drop_null()
    return pyarrow.types.is_timestamp(column.type) or (len(few) > 0 and bool(compute.min(few).as_py() > 1e7))


def _numbers_of_time(sample: Sample, columns: Collection[str]) -> Iterator[Found]:
    """Yield the columns of numbers that never fall, or never rise, and are times: since 1970, or by their names."""
    for name in columns:
        if sample.forms[name] is None:
            continue
        numbers = sample.numbers(name)
        known = numbers[~np.isnan(numbers)]
        steps = np.diff(known)
        if not len(known) or (len(steps) and (steps < 0.0).mean() > 0.1 < (steps > 0.0).mean()):
            continue
        units = (
            unit
            for unit, (n, begin) in EPOCHS.items()
            if LIKELY_SECONDS[0] < (known[0] - begin) * n / 1e9 < LIKELY_SECONDS[1]
            and (unit not in DAYS or TIME_NAME.match(name) or name.lower() in DAYS)
        )
        if unit := next(units, None):
            yield (name,), unit, read_times([sample.cells[name]], unit)[0]
        elif TIME_NAME.match(name) and known[-1] > known[0]:
            yield (name,), NUMBER, numbers


def share_back(times: npt.NDArray[Any]) -> float:
    """Return the share of times that are before the one before them."""
    times = times[~np.isnan(times)]
    return float(np.mean(times[1:] < times[:-1])) if len(times) > 1 else 0.0
