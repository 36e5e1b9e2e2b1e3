"""What the first rows show of columns: times, tags, machines, counters, and numbers that stand for gaps."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import compute

from streamkpca._core.arrays import Array
from streamkpca.tables.errors import TableError, list_names, short
from streamkpca.tables.numbers import Form, find_forms, read_numbers, trim
from streamkpca.tables.readers import Reader
from streamkpca.tables.times import EPOCHS, NUMBER, find_form, has_clock, has_day, join_texts, read_times

# Fewer numbers show nothing of a column but its kind, and fewer of them not that it is a counter.
_LEAST = 10
_LEAST_COUNTED = 32
# The first rows of more columns are not looked at.
MOST_COLUMNS = 2000
# Columns of dates among which the time is looked for.
_MOST_DATES = 50
_TIME_NAME = re.compile(
    r"_?(date|time|timestamp|ts|t|epoch|unix\w*|x_value|elapsed|seconds|zeit|datum|horodat\w*|temps|fecha|hora)(?![a-z])",
    re.IGNORECASE,
)
_TAG_NAME = re.compile(
    r"_?(tag|sensor|entity|point|channel|variable|parameter|field|signal|metric|item)(_?(id|name|no|nr))?",
    re.IGNORECASE,
)
# Columns of whole numbers may tell of machines or tags if they have such a name.
_KEY_NAME = re.compile(
    _TAG_NAME.pattern
    + r"|id|(machine|unit|device|asset|node|station|meter|turbine|pump|motor|engine)([ _]?(id|no|nr|number))?",
    re.IGNORECASE,
)
_VALUE_NAME = re.compile(r"_?(value|val|state|reading)(_?num)?", re.IGNORECASE)
_YEAR_NAME = re.compile(r"#?(year|yyyy|yy|yr|jahr)", re.IGNORECASE)
_DATE_NAMES = ("m", "d", "h", "m", "s")
# Seconds since 1970 of the years 2001 to 2096.
_EPOCH = 1e9, 4e9
# Numbers that loggers write where they have none.
_SENTINELS = tuple(
    map(
        float,
        "-999 -9999 -99999 -999.9 -999.99 -9999.9 -999.25 -99.9 -99 -88.8 -6999 7999 999.9 9999 9999.9 99999 999999 "
        "32767 -32768 65535 2147483647 -2147483648 4294967295 1e20 -1e20 1e30 -1e30".split(),
    )
)
# Ranges of all other numbers that such a number is away from them.
_FAR_KNOWN = 3.0
# Ranges for a number that only repeats exactly, and how often it does at least.
_FAR_REPEATED = 5.0
_LEAST_REPEATED = 3
# Share of rows whose times come again, from which they are those of several machines or tags.
_REPEATED = 0.3
# Share of the machines that have a row at the usual time, at least, where they are numbers.
_LEAST_PRESENT = 0.5
# More machines or tags than these are no such thing, but texts of rows.
_MOST_KEYS = 1000

# The columns of a time, its form, and the times.
Found = tuple[tuple[int, ...], str, Any]


class Sample:
    """The first rows of a file: cells by columns, and the forms in which these are read."""

    def __init__(self, reader: Reader, *, decimal: str | None) -> None:
        self.path, self.names, self.named = reader.source.name, reader.names, reader.named
        self.cells = reader.sample().cells
        columns = [self.cells[j] for j in range(len(self.names))]
        self.n_rows = len(columns[0])
        mark = reader.dialect.get("delimiter", ",")
        self.forms = dict(enumerate(find_forms(columns, delimiter=mark, decimal=decimal)))
        marks = {form.decimal for form in self.forms.values() if form}
        if "delimiter" in reader.dialect and len(marks) == 1:
            reader.dialect["decimal"] = marks.pop()
        self._places = {name: j for j, name in enumerate(self.names)}

    def find(self, name: str) -> int:
        """Return the position of a column."""
        if name in self._places:
            return self._places[name]
        have = f"it has {len(self.names):,}: {list_names(self.names)}"
        raise TableError(
            f"{self.path}: no column {short(name)!r}; {have}; give one of these names, or rename the file's columns"
        )

    def numbers(self, j: int) -> Array:
        """Read the numbers of a column, none of very many columns."""
        if len(self.names) > MOST_COLUMNS:
            return np.full(self.n_rows, np.nan)[:0]
        return read_numbers(self.cells[j], self.forms[j] or Form())[0]

    def texts(self, j: int) -> npt.NDArray[Any]:
        """Read the text of a column."""
        return np.array(join_texts([self.cells[j]]).fill_null("").to_pylist(), object)


def find_time(sample: Sample, columns: Collection[int]) -> Found | None:
    """Find the columns of the time, their form, and the times: of all columns of times, the one that moves most."""
    found = [*_dates(sample, columns), *_numbers_of_time(sample, columns)]
    best = max(found, key=_rate_time, default=None)
    # A date that stands still is no time, if there is more than one row.
    return best if best is None or _rate_time(best)[0] or len(best[2]) == 1 else None


def _rate_time(found: Found) -> tuple[bool, bool, bool, int, int]:
    """Rate times: whether they move, are in order (or the reverse), have a day; how many differ; their columns."""
    times = found[2][~np.isnan(found[2])]
    back = share_back(times)
    n_different = len(np.unique(times))
    return n_different > 1, min(back, 1.0 - back) < 0.1, has_day(found[1]), n_different, len(found[0])


def _dates(sample: Sample, columns: Collection[int]) -> Iterator[Found]:
    """Yield columns of dates, and neighbours that hold a day and an hour, or the year, the month and so on."""
    names, cells, forms, days = sample.names, sample.cells, sample.forms, dict[int, str]()
    likely = (j for j in columns if _may_be_time(cells[j], is_text=forms[j] is None))
    for j in islice(likely, _MOST_DATES):
        if (found := find_form([cells[j]])) is not None:
            days |= {} if has_clock(found[0]) and has_day(found[0]) else {j: found[0]}
            yield (j,), *found
    for j in days:
        for k in (j + 1, j - 1):
            if k in columns and (forms[k] is None or _TIME_NAME.match(names[k])):
                found = find_form([cells[j], cells[k]])
                if found is not None and has_clock(found[0]):
                    yield (j, k), *found
    for j in columns:
        if _YEAR_NAME.fullmatch(names[j]):
            n = 1
            while n < 6 and j + n in columns and names[j + n].lower().startswith(_DATE_NAMES[n - 1]) and forms[j + n]:
                n += 1
            parts = tuple(range(j, j + n))
            for year in ("%Y", "%y") if n >= 3 else ():
                form = " ".join([year, "%m", "%d", "%H", "%M", "%S"][:n])
                times, _ = read_times([cells[k] for k in parts], form)
                if 2 * np.count_nonzero(~np.isnat(times)) > len(times):
                    yield parts, form, times


def _may_be_time(column: Any, *, is_text: bool) -> bool:
    """Tell whether the first cells have digits enough for a date or an hour."""
    if pyarrow.types.is_string(column.type):
        few = trim(column[:20])
        digits = compute.match_substring_regex(few, r"\d.*\d" if is_text else r"^\d{8,14}$")
        return bool(2 * (compute.sum(digits).as_py() or 0) > len(few) - few.null_count)
    few = column[:20].drop_null()
    return pyarrow.types.is_timestamp(column.type) or (len(few) > 0 and bool(compute.min(few).as_py() > 1e7))


def _numbers_of_time(sample: Sample, columns: Collection[int]) -> Iterator[Found]:
    """Yield the columns of numbers that never fall, or never rise, and are times: since 1970, or by their names."""
    for j in columns:
        cells = sample.cells[j]
        if sample.forms[j] is None or pyarrow.types.is_timestamp(cells.type):
            continue
        numbers = sample.numbers(j)
        known = numbers[~np.isnan(numbers)]
        steps = np.diff(known)
        if not len(known) or ((steps < 0.0).mean() > 0.1 < (steps > 0.0).mean() if len(steps) else False):
            continue
        units = (unit for unit, n in EPOCHS.items() if _EPOCH[0] < known[0] * n / EPOCHS["s"] < _EPOCH[1])
        if unit := next(units, None):
            yield (j,), unit, read_times([cells], unit)[0]
        elif _TIME_NAME.match(sample.names[j]) and known[-1] > known[0]:
            yield (j,), NUMBER, numbers


def share_back(times: npt.NDArray[Any]) -> float:
    """Return the share of times that are before the one before them."""
    times = times[~np.isnan(times)]
    return float(np.mean(times[1:] < times[:-1])) if len(times) > 1 else 0.0


def find_key(sample: Sample, times: npt.NDArray[Any], rest: Sequence[int]) -> tuple[int, list[int], list[int]] | None:
    """Find the column of machines or tags, the columns that vary within one (or all), and those named as a tag's value.

    Times repeat then, but not those of one machine or tag. The name is enough for text if one column varies.
    """
    names, numbers = sample.names, {j: sample.numbers(j) for j in rest if sample.forms[j] is not None}
    n = len(times)
    _, place, counts = np.unique(times, return_inverse=True, return_counts=True)
    repeats = n >= _LEAST and len(counts) < (1.0 - _REPEATED) * n
    # Where a time has few rows, a reading of many values also has each of them once at most, but not most of them.
    most_numbers = np.median(counts[place]) / _LEAST_PRESENT if n else 0
    varying = _find_varying(times, numbers)
    ids = [j for j in varying if _KEY_NAME.fullmatch(names[j]) and not (np.nan_to_num(numbers[j]) % 1.0).any()]
    for j in (*(j for j in rest if j not in numbers), *ids):
        keys = compute.dictionary_encode(join_texts([sample.cells[j]]).fill_null(""))
        n_keys, codes = len(keys.dictionary), keys.indices.to_numpy(zero_copy_only=False)
        if not 2 <= n_keys <= min(_MOST_KEYS, n / 4) or (j in numbers and n_keys > most_numbers):
            continue
        order = np.argsort(codes, kind="stable")
        is_same = np.diff(codes[order]) == 0
        before, after = times[order][:-1][is_same], times[order][1:][is_same]
        is_one_each = max(np.mean(before < after), np.mean(before > after)) > 0.95
        # What stands still with a tag is no value of it.
        first = np.flatnonzero(np.append(True, ~is_same))
        values = [k for k in varying if k != j and _varies_within(numbers[k][order], first)]
        # Not for numbers: `signal` may be 0 and 1.
        is_tag = _TAG_NAME.fullmatch(names[j]) is not None
        is_enough = j not in numbers and is_tag and len(values) == 1 and {*varying} <= {*values, *ids}
        values = values or [k for k in numbers if k != j]
        if values and ((repeats and is_one_each) or is_enough):
            return j, values, [k for k in values if is_tag and _VALUE_NAME.fullmatch(names[k])]
    return None


def _find_varying(times: npt.NDArray[Any], numbers: Mapping[int, Array]) -> list[int]:
    """Find the columns that vary, without other times: those that never fall and are one in all rows of a time."""
    order, start = np.argsort(times, kind="stable"), np.zeros(1, int)
    is_same = times[order][1:] == times[order][:-1]
    varying = [j for j, column in numbers.items() if len(column) and _varies_within(column, start)]
    steps = {j: np.diff(numbers[j][order]) for j in varying}
    return [j for j, step in steps.items() if not is_same.any() or (step < 0.0).any() or step[is_same].any()]


def _varies_within(values: Array, first: npt.NDArray[np.intp]) -> bool:
    # The runs begin at the places `first`.
    return bool((np.fmax.reduceat(values, first) > np.fmin.reduceat(values, first)).any())


def find_growth(numbers: Mapping[str, Array]) -> tuple[list[str], list[str]]:
    """Find the columns that only rise: at even steps, as numbers of rows do, and as counters do, which may restart."""
    even, counters = list[str](), list[str]()
    for name, values in numbers.items():
        known = values[~np.isnan(values)]
        steps = np.diff(known)
        if len(known) < _LEAST_COUNTED or np.mean(steps > 0.0) < 0.2 or len(np.unique(known)) < _LEAST:
            continue
        falls = np.flatnonzero(steps < 0.0)
        # A counter restarts near zero.
        if len(falls) and (
            len(falls) > 0.05 * len(steps) or (known[falls + 1] > 0.2 * known[falls]).any() or known.min() < 0.0
        ):
            continue
        is_even = np.mean(np.isclose(steps, np.median(steps), rtol=1e-3, atol=0.0)) > 0.9
        (even if is_even else counters).append(name)
    return even, counters


def find_sentinels(values: Array) -> tuple[float, ...]:
    """Find the numbers that stand for gaps: those that loggers use, or that repeat exactly, far outside all others.

    Those that loggers use are among them if they are not in these rows, but would be as far outside.

    >>> find_sentinels(np.array([20.0, 21.5, -999.0, 20.5, 19.0, 22.0, 21.0, 20.0, 19.5, 20.1, 20.2]))[:3]
    (-999.0, -9999.0, -99999.0)
    """
    values = values[~np.isnan(values)]
    middle, found = np.median(values) if len(values) else 0.0, list[float]()
    while len(values) > _LEAST:
        one = float(values[np.argmax(abs(values - middle))])
        others = values[values != one]
        is_known = one in _SENTINELS
        # Of two or three states of a switch, one may be far from the others.
        is_candidate = is_known or (len(values) - len(others) >= _LEAST_REPEATED and len(np.unique(others)) > 3)
        reach = (_FAR_KNOWN if is_known else _FAR_REPEATED) * (np.ptp(others) if len(others) else np.inf)
        is_far = len(others) >= _LEAST and abs(one) >= 2.0 * abs(others).max() and _is_beyond(one, others, reach)
        if not (is_candidate and is_far):
            break
        found.append(one)
        values = others
    if len(values) < _LEAST:
        return tuple(found)
    reach = _FAR_KNOWN * max(np.ptp(values), abs(values).max())
    return (*found, *(one for one in _SENTINELS if one not in found and _is_beyond(one, values, reach)))


def _is_beyond(one: float, others: Array, reach: float) -> bool:
    return bool(one < others.min() - reach or one > others.max() + reach)
