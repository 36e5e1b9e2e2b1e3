"""The columns of a table: what the user asks for, what is known of them, what the first rows show, and the decision."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise, takewhile
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import compute

from streamkpca._core.arrays import Array, measure_steps
from streamkpca.tables.errors import TableError, drop_hint, list_names, short
from streamkpca.tables.numbers import Form, find_forms, read_numbers, trim
from streamkpca.tables.reader import Reader
from streamkpca.tables.times import EPOCHS, ISO, NUMBER, find_form, has_clock, has_day, join_texts, read_times

# Fewer numbers show nothing of a column but its kind, and fewer of them not that it is a counter.
_LEAST = 10
_LEAST_COUNTED = 32
# The first rows of more columns are not looked at.
_MOST_COLUMNS = 2000
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
_SENTINELS = (
    -999.0, -9999.0, -99999.0, -999.9, -999.99, -9999.9, -999.25, -99.9, -99.0, -88.8, -6999.0, 7999.0, 999.9, 9999.0,
    9999.9, 99999.0, 999999.0, 32767.0, -32768.0, 65535.0, 2147483647.0, -2147483648.0, 4294967295.0, 1e20, -1e20, 1e30,
    -1e30,
)  # fmt: skip
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
Found = tuple[tuple[str, ...], str, Any]
# The column of machines, their names, and the numbers beside their value if they may be tags.
Machines = tuple[str, tuple[str, ...], tuple[str, ...]]


class Reading(NamedTuple):
    """How the columns of a file are read, by names; what is known of it beside a saved model.

    columns: the features. time, time_format: see `Asked`. differences: features that are counters. gaps: numbers
    of a feature that stand for gaps. wide: the columns of the tag and of the value, where the features are tags.
    """

    columns: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    time_format: str | None = None
    differences: tuple[str, ...] = ()
    gaps: Mapping[str, tuple[float, ...]] = {}
    wide: tuple[str, str] | None = None


class Asked(NamedTuple):
    """How a table is to be read.

    header : whether text has names above its rows; None: its contents tell.
    delimiter, decimal : of CSV; None: its contents tell.
    columns, drop : names of columns to read, in this order, and to leave out; without names they are "0", "1", ...
    time, labels : columns handed out beside the rows, and never features: numbers or dates, and numbers. Several
        columns of times are joined by spaces.
    time_format : of `strptime`, "number", or "s", "ms", "us" or "ns" for numbers since 1970; None: the cells tell.
    differences : columns of counters, whose differences are read; None: those of `known`, or what a look finds.
    gaps : numbers that stand for gaps; None: the first rows tell.
    wide : column of tags, if each row holds the value of one; the table then has a column for each tag.
    by : column of machines, and the one whose rows are read.
    known : how an earlier file of these columns was read.
    on_bad_rows : "raise" refuses a row with another number of cells, or without a time; "skip" leaves it out.
    missing : a row with gaps (cells without a number) is refused ("raise"), left out ("skip"), or keeps NaN
        ("marginal"); rows without any number are left out then, and counted.
    follow : whether to wait for more at the end of text; a file that was replaced or emptied is read anew.
    start : `Batch.position` of an earlier reading, to go on after it. If the file is another one now, that is an
        error, or with `follow` a note, and reading from the beginning.
    looks : whether to look at the first rows for what is not given: the time, tags, machines, counters, columns
        without numbers; rows that are not in order of time are put in order. `Table.look` tells what was found.
    """

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
    missing: str = "raise"
    follow: bool = False
    start: Mapping[str, Any] | None = None
    looks: bool = False


class Look(NamedTuple):
    """Facts about the first `n_rows` rows, by names of columns.

    times: the first and the last, in UTC if `is_utc`; step: the usual one. back: share of the rows that are earlier
    than the one before. machines: their column, their names, and, if they may be tags, the numbers beside their
    value. left_out: columns that are not read, by the reason. constants: columns of one value. gaps: share of
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


class Sample:
    """The first rows of a file: cells by columns, and the forms in which these are read."""

    def __init__(self, reader: Reader, *, decimal: str | None) -> None:
        self.path, self.names, self.named = reader.source.name, reader.names, reader.named
        part, mark = reader.sample(), reader.dialect.get("delimiter", ",")
        self.cells, self.n_rows, self.is_whole = part.cells, len(part.rows), reader.source.rereadable
        forms = find_forms([*self.cells.values()], delimiter=mark, decimal=decimal)
        self.forms = dict(zip(self.names, forms, strict=True))
        marks = {form.decimal for form in forms if form}
        if "delimiter" in reader.dialect and len(marks) == 1:
            reader.dialect["decimal"] = marks.pop()

    def check(self, names: Sequence[str]) -> list[str]:
        """Return names of columns, and refuse those that there are not."""
        for name in names:
            if name not in self.cells:
                what = f"no column {short(name)!r}; it has {len(self.names):,}: {list_names(self.names)}"
                raise TableError(f"{self.path}: {what}; give one of these names, or rename the file's columns")
        return [*names]

    def numbers(self, name: str) -> Array:
        """Read the numbers of a column, none of very many columns."""
        if len(self.names) > _MOST_COLUMNS:
            return np.full(self.n_rows, np.nan)[:0]
        return read_numbers(self.cells[name], self.forms[name] or Form())[0]

    def texts(self, name: str) -> npt.NDArray[Any]:
        """Read the text of a column."""
        return np.array(join_texts([self.cells[name]]).fill_null("").to_pylist(), object)


def choose_columns(sample: Sample, asked: Asked) -> tuple[Reading, Look]:
    """Choose the columns of a file, and how they are read, and tell what the first rows have shown."""
    names, forms, known = sample.names, sample.forms, asked.known
    drop = {*sample.check([*asked.drop, *filter(None, [asked.labels])])}
    if sample.named:
        # Marks at the end of all lines make a column without a name and without a cell.
        ends = (name for j, name in enumerate(names) if name == str(j))
        drop |= {name for name in ends if sample.cells[name].null_count == sample.n_rows}
    learned = known.columns if sample.named and not known.wide and not asked.columns else ()
    if lost := [name for name in learned if name not in forms]:
        what = f"expected the columns that were learned, {list_names(learned)}, but it lacks {list_names(lost)}"
        raise TableError(f"{sample.path}: {what}; it has {list_names(names)}; rename them, or give another model")
    wanted = sample.check(asked.columns or learned)
    is_free = asked.looks and not wanted and not known.columns
    time, form = _choose_time(sample, asked, {*drop, *wanted})
    times, is_utc = read_times([sample.cells[name] for name in time], form) if form else (None, False)
    rest = [name for name in names if name not in drop and name not in time]
    wide, machines = _choose_keys(sample, asked, rest, times, is_free=is_free)
    numbers = [name for name in rest if forms[name] is not None]
    key = asked.by[0] if asked.by else machines and machines[0]
    if wide is not None:
        tags, values = sample.texts(wide[0]), sample.numbers(wide[1])
        tagged = known.columns if known.wide else filter(None, dict.fromkeys(tags))
        features = {name: values[tags == name] for name in tagged}
        # The usual step is that of one tag.
        rhythm = times if times is None else times[tags == next(iter(features), None)]
    else:
        mine, free = sample.texts(asked.by[0]) == asked.by[1] if asked.by else slice(None), {*rest} - {key}
        for name in wanted:
            _refuse_text(sample, name)
        features = {name: sample.numbers(name)[mine] for name in wanted or numbers if name in free}
        rhythm = times = None if times is None else times[mine]
    # Of a pipe, or of a file that grows, the first rows may be too few.
    is_new = not wanted and not known.columns and (asked.looks or (sample.is_whole and not asked.follow))
    even, rising = _find_growth(features) if is_new else ([], [])
    counters = rising if is_free else known.differences
    empty = [name for name, one in features.items() if len(one) >= _LEAST and np.isnan(one).all()] if is_free else []
    hidden, used = {*empty, *even}, {*features, *(wide or [key])}
    columns = tuple(name for name in features if name not in hidden)
    _check_columns(sample, asked, columns)
    # Of long tables, columns are tags.
    sample.check([name for name in asked.differences or () if name not in columns])
    differences = tuple(n for n in (counters if asked.differences is None else asked.differences) if n in columns)
    gaps = {n: found for n in columns if n not in differences and (found := _find_gaps(n, features[n], asked))}
    texts = [name for name in rest if forms[name] is None and name not in used]
    constant = [name for name in numbers if name not in wide] if wide else []
    left_out = {"text": texts, "numbering rows": even, "empty": empty, "constant": constant}
    seen = {name: features[name] for name in columns if len(features[name])}
    whole = {name: v[~np.isnan(v) & ~np.isin(v, gaps.get(name, ()))] for name, v in seen.items()}
    clock = np.empty(0) if times is None else times[~np.isnan(times)]
    steps: Any = [] if rhythm is None else measure_steps(np.unique(rhythm[~np.isnan(rhythm)]))
    return Reading(columns, time, form, differences, gaps, wide), Look(
        n_rows=sample.n_rows,
        times=(clock.min(), clock.max()) if len(clock) else None,
        is_utc=is_utc,
        step=np.median(steps) if len(steps) else None,
        back=_share_back(clock),
        machines=machines,
        left_out={why: tuple(found) for why, found in left_out.items() if found},
        constants={name: float(v[0]) for name, v in whole.items() if len(v) >= _LEAST and np.ptp(v) == 0.0},
        gaps={name: 1.0 - len(v) / len(seen[name]) for name, v in whole.items() if 0 < len(v) < len(seen[name])},
        sentinels={name: met for name in seen if (met := tuple(x for x in gaps.get(name, ()) if x in seen[name]))},
    )


def _choose_time(sample: Sample, asked: Asked, others: Collection[str]) -> tuple[tuple[str, ...], str | None]:
    """Choose the columns of the time and their form: as asked, as known, or as found."""
    known, form = asked.known, asked.time_format
    columns = tuple(sample.check(asked.time))
    if not columns and known.time and {*known.time} <= {*sample.names}:
        columns, form = known.time, form or known.time_format
    if not columns:
        free = [name for name in sample.names[:_MOST_COLUMNS] if name not in others]
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


def _choose_keys(
    sample: Sample, asked: Asked, rest: Sequence[str], times: Any, *, is_free: bool
) -> tuple[tuple[str, str] | None, Machines | None]:
    """Choose the columns of tags and of their values, or find the column of machines, and name these."""
    numbers = [name for name in rest if sample.forms[name] is not None]
    if asked.by is not None:
        sample.check(asked.by[:1])
    elif asked.known.wide is not None and not asked.columns:
        sample.check(asked.known.wide)
        return asked.known.wide, None
    elif asked.wide is not None:
        sample.check([asked.wide])
        values = [name for name in numbers if name != asked.wide]
        if len(values) != 1:
            have = f"expected one column of values beside the tags in {short(asked.wide)!r} but got {len(values)}"
            raise TableError(f"{sample.path}: {have}: {list_names(values)}; --drop the others")
        return (asked.wide, values[0]), None
    elif is_free and (found := _find_key(sample, np.arange(sample.n_rows) if times is None else times, rest)):
        key, values, named = found
        if len(values) == 1:
            return (key, values[0]), None
        besides = tuple(name for name in numbers if len(named) == 1 and name not in (key, *named))
        return None, (key, tuple(sorted({*sample.texts(key)} - {""})), besides)
    return None, None


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


def _find_gaps(name: str, values: Array, asked: Asked) -> tuple[float, ...]:
    """Find the numbers of a column that stand for gaps."""
    if asked.gaps is not None:
        return tuple(asked.gaps)
    return tuple(dict.fromkeys((*find_sentinels(values), *asked.known.gaps.get(name, ()))))


def _find_time(sample: Sample, columns: Collection[str]) -> Found | None:
    """Find the columns of the time, their form, and the times: of all columns of times, the one that moves most."""
    found = [*_dates(sample, columns), *_numbers_of_time(sample, columns)]
    best = max(found, key=_rate_time, default=None)
    # A date that stands still is no time, if there is more than one row.
    return best if best is None or _rate_time(best)[0] or len(best[2]) == 1 else None


def _rate_time(found: Found) -> tuple[bool, bool, bool, int, int]:
    """Rate times: whether they move, are in order (or the reverse), have a day; how many differ; their columns."""
    times = found[2][~np.isnan(found[2])]
    back = _share_back(times)
    n_different = len(np.unique(times))
    return n_different > 1, min(back, 1.0 - back) < 0.1, has_day(found[1]), n_different, len(found[0])


def _dates(sample: Sample, columns: Collection[str]) -> Iterator[Found]:
    """Yield columns of dates, and neighbours that hold a day and an hour, or the year, the month and so on."""
    names, cells, forms, days = sample.names, sample.cells, sample.forms, set[str]()
    likely = (name for name in columns if _may_be_time(cells[name], is_text=forms[name] is None))
    for name in islice(likely, _MOST_DATES):
        if (found := find_form([cells[name]])) is not None:
            days |= set() if has_clock(found[0]) and has_day(found[0]) else {name}
            yield (name,), *found
    for day, hour in chain(pairwise(names), pairwise(names[::-1])):
        if day in days and hour in columns and (forms[hour] is None or _TIME_NAME.match(hour)):
            found = find_form([cells[day], cells[hour]])
            if found is not None and has_clock(found[0]):
                yield (day, hour), *found
    for name in filter(_YEAR_NAME.fullmatch, columns):
        after = zip(names[names.index(name) + 1 :], _DATE_NAMES, strict=False)
        rest = takewhile(lambda one: one[0] in columns and one[0].lower().startswith(one[1]) and forms[one[0]], after)
        parts = name, *(part for part, _ in rest)
        for year in ("%Y", "%y") if len(parts) >= 3 else ():
            form = " ".join([year, "%m", "%d", "%H", "%M", "%S"][: len(parts)])
            times, _ = read_times([cells[part] for part in parts], form)
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


def _numbers_of_time(sample: Sample, columns: Collection[str]) -> Iterator[Found]:
    """Yield the columns of numbers that never fall, or never rise, and are times: since 1970, or by their names."""
    for name in columns:
        cells = sample.cells[name]
        if sample.forms[name] is None or pyarrow.types.is_timestamp(cells.type):
            continue
        numbers = sample.numbers(name)
        known = numbers[~np.isnan(numbers)]
        steps = np.diff(known)
        if not len(known) or (len(steps) and (steps < 0.0).mean() > 0.1 < (steps > 0.0).mean()):
            continue
        units = (unit for unit, n in EPOCHS.items() if _EPOCH[0] < known[0] * n / EPOCHS["s"] < _EPOCH[1])
        if unit := next(units, None):
            yield (name,), unit, read_times([cells], unit)[0]
        elif _TIME_NAME.match(name) and known[-1] > known[0]:
            yield (name,), NUMBER, numbers


def _share_back(times: npt.NDArray[Any]) -> float:
    """Return the share of times that are before the one before them."""
    times = times[~np.isnan(times)]
    return float(np.mean(times[1:] < times[:-1])) if len(times) > 1 else 0.0


def _find_key(sample: Sample, times: npt.NDArray[Any], rest: Sequence[str]) -> tuple[str, list[str], list[str]] | None:
    """Find the column of machines or tags, the columns that vary within one (or all), and those named as a tag's value.

    Times repeat then, but not those of one machine or tag. The name is enough for text if one column varies.
    """
    numbers = {name: sample.numbers(name) for name in rest if sample.forms[name] is not None}
    n = len(times)
    _, place, counts = np.unique(times, return_inverse=True, return_counts=True)
    repeats = n >= _LEAST and len(counts) < (1.0 - _REPEATED) * n
    # Where a time has few rows, a reading of many values also has each of them once at most, but not most of them.
    most_numbers = np.median(counts[place]) / _LEAST_PRESENT if n else 0
    varying = _find_varying(times, numbers)
    ids = [name for name in varying if _KEY_NAME.fullmatch(name) and not (np.nan_to_num(numbers[name]) % 1.0).any()]
    for key in (*(name for name in rest if name not in numbers), *ids):
        keys = compute.dictionary_encode(join_texts([sample.cells[key]]).fill_null(""))
        n_keys, codes = len(keys.dictionary), keys.indices.to_numpy(zero_copy_only=False)
        if not 2 <= n_keys <= min(_MOST_KEYS, n / 4) or (key in numbers and n_keys > most_numbers):
            continue
        order = np.argsort(codes, kind="stable")
        is_same = np.diff(codes[order]) == 0
        before, after = times[order][:-1][is_same], times[order][1:][is_same]
        is_one_each = max(np.mean(before < after), np.mean(before > after)) > 0.95
        # What stands still with a tag is no value of it.
        first = np.flatnonzero(np.append(True, ~is_same))
        values = [name for name in varying if name != key and _varies_within(numbers[name][order], first)]
        # Not for numbers: `signal` may be 0 and 1.
        is_tag = _TAG_NAME.fullmatch(key) is not None
        is_enough = key not in numbers and is_tag and len(values) == 1 and {*varying} <= {*values, *ids}
        values = values or [name for name in numbers if name != key]
        if values and ((repeats and is_one_each) or is_enough):
            return key, values, [name for name in values if is_tag and _VALUE_NAME.fullmatch(name)]
    return None


def _find_varying(times: npt.NDArray[Any], numbers: Mapping[str, Array]) -> list[str]:
    """Find the columns that vary, without other times: those that never fall and are one in all rows of a time."""
    order, start = np.argsort(times, kind="stable"), np.zeros(1, int)
    is_same = times[order][1:] == times[order][:-1]
    varying = [name for name, column in numbers.items() if len(column) and _varies_within(column, start)]
    steps = {name: np.diff(numbers[name][order]) for name in varying}
    return [name for name, step in steps.items() if not is_same.any() or (step < 0.0).any() or step[is_same].any()]


def _varies_within(values: Array, first: npt.NDArray[np.intp]) -> bool:
    # The runs begin at the places `first`.
    return bool((np.fmax.reduceat(values, first) > np.fmin.reduceat(values, first)).any())


def _find_growth(numbers: Mapping[str, Array]) -> tuple[list[str], list[str]]:
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
