"""Columns of times: text in forms of `strptime`, or numbers since 1970 or some other beginning."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import compute

from streamkpca.tables.numbers import trim

Times = npt.NDArray[Any]

# Names of columns of times.
TIME_NAME = re.compile(
    r"(?:.*\s)?_?(date|time|timestamp|ts|t|epoch|ms|millis\w*|unix\w*|x_value|elapsed|seconds|zeit|datum|horodat\w*|temps|fecha|hora)(?![a-z])",
    re.IGNORECASE,
)
# Numbers that count from a beginning: units in nanoseconds, and the beginning in these units. All others are "number".
_DAY = 86_400 * 10**9
EPOCHS = {
    **{"s": (10**9, 0), "ms": (10**6, 0), "us": (10**3, 0), "ns": (1, 0), "s1904": (10**9, 2_082_844_800)},
    **{"filetime": (100, 116_444_736 * 10**9), "ticks": (100, 621_355_968 * 10**9), "excel": (_DAY, 25569)},
    **{"mjd": (_DAY, 40587), "jd": (_DAY, 2_440_587.5), "datenum": (_DAY, 719_529)},
}
# Those of days are so small that other columns may hold such numbers.
DAYS = ("excel", "mjd", "jd", "datenum")
# Seconds since 1970 of the years 1999 to 2033, as later digits such as 2026050100 are a date and an hour: where one of
# these units gives them, no other does.
LIKELY_SECONDS = 9.4e8, 2.0e9
NUMBER = "number"
ISO = "%Y-%m-%d %H:%M:%S"
_DAYS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y:%m:%d", "%Y %m %d", "%Y%m%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y"),
    *("%d-%m-%Y", "%m-%d-%Y", "%d:%m:%Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%y/%m/%d", "%y.%m.%d", "%d-%m-%y"),
    *("%y-%m-%d", "%d-%b-%Y", "%d-%b-%y", "%Y-%b-%d", "%d %b %Y", "%d. %b %Y", "%b %d, %Y", "%b %d %Y", "%a %d %b %Y"),
    *("%a, %d %b %Y", "%a, %b %d, %Y", "%a %d/%m/%Y", "%a %m/%d/%Y", "%d/%b/%Y", "%Y-%j", "%d-%m", "%d.%m.", "%d/%m"),
    *("%m-%d", "%m/%d", "%b %d"),
)
_CLOCKS = ("", " %H:%M:%S", " %I:%M:%S %p", " %H.%M.%S", " %H-%M-%S", " %H%M%S", " %H%M")
_WHOLE = (
    *("%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S", "%Y%m%d:%H%M", "%a %b %d %H:%M:%S %Y", "%a %b %d %H:%M:%S %z %Y"),
    *(
        "%d/%b/%Y:%H:%M:%S",
        "%H:%M:%S",
        "%I:%M:%S %p",
        *(f"%H:%M:%S {day}" for day in _DAYS if "%Y" in day[-2:] + day[:2]),
    ),
)
# What columns of numbers hold, one after the other.
IN_COLUMNS = (
    *("%Y %m %d %H %M %S", "%Y %j %H %M %S", "%y %m %d %H %M %S", "%Y %j %H%M", "%Y %m %d %H%M", "%y%m%d %H%M%S"),
    *("%d%m%y %H%M%S", "%y%m%d %H%M", "%Y%m%d %H%M%S", "%Y%m%d %H%M", "%Y%m%d %H"),
)
# Words of eastern Asia for parts of a day, and marks after years, months and days there.
_LOCAL = (
    *((r"\s*[年년月월]\s*", "-"), (r"\s*[日일]", ""), (r"\s*[時时시分분]\s*", ":"), (r"\s*[秒초]", ""), (r":$", "")),
    *((r"(?:오전|上午|午前)\s*([\d:.]+)", r"\1 AM"), (r"(?:오후|下午|午後)\s*([\d:.]+)", r"\1 PM")),
)
# Beginnings of the months' names, in English and in other languages of Europe.
_MONTHS = (
    "jan ene gen,feb fév fev,mar mär mrz maa,apr avr abr,may mai mag mei,jun juin giu,jul juil lug,aug aoû ago,sep set,"
    "oct okt ott out,nov,dec dez déc dic"
).split(",")
_MONTH = {name: number for number, names in enumerate(_MONTHS, 1) for name in names.split()}
# Hours ahead of UTC; where a name has several meanings, the one of North America or Europe.
_ZONES = {
    **{"Z": 0, "UTC": 0, "GMT": 0, "WET": 0, "WEST": 1, "BST": 1, "CET": 1, "MEZ": 1, "CEST": 2, "MESZ": 2, "EET": 2},
    **{"EEST": 3, "MSK": 3, "JST": 9, "KST": 9, "AEST": 10, "AEDT": 11, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5},
    **{"MST": -7, "MDT": -6, "PST": -8, "PDT": -7},
}
_ZONE = r"(?P<z>Z|[A-Z]{3,5}|(?:UTC|GMT)?[+-]\d\d:?(?:\d\d)?)"
_FRACTION = r"(?:[.,](?P<f>\d{1,9})\d*)?"
_NAME = r"[^\d\s.,:/-]"
_SIGNS = {
    **{
        "j": r"(?P<j>\d{1,3})",
        "f": r"(?P<u>\d{1,9})",
        "Y": r"(?P<Y>\d{4})",
        "y": r"(?P<y>\d\d)",
        "m": r"(?P<m>\d{1,2})",
        "d": r"(?P<d>\d{1,2})",
    },
    **{"H": r"(?P<H>\d{1,2})", "I": r"(?P<H>\d{1,2})", "M": r"(?P<M>\d{1,2})", "S": rf"(?P<S>\d{{1,2}}){_FRACTION}"},
    **dict.fromkeys("bB", rf"(?P<b>{_NAME}{{3,9}})\.?"),
    **dict.fromkeys("aA", rf"{_NAME}{{2,10}}\.?"),
    **{"z": _ZONE, "Z": _ZONE, "p": "(?P<p>[AaPp])(?:\\.?[ \u00a0\u202f]?[Mm])?\\.?", "%": "%"},
}
# Usual steps that are far: without rows, or between a wrong clock and the rows around it.
FAR = 50
_YEAR = np.timedelta64(366, "D")
# Years that nanoseconds since 1970 reach, and those in which digits alone are taken for a time.
_YEARS = np.datetime64("1678"), np.datetime64("2262")
_LIKELY_YEARS = np.datetime64("1900"), np.datetime64("2200")
_MISSING = np.datetime64("NaT", "ns")


@cache
def _pattern(form: str) -> str:
    """Make the pattern of a form; seconds and their fraction, the whole clock, and a zone may be absent."""
    for short, long in {
        "%F": "%Y-%m-%d",
        "%T": "%H:%M:%S",
        "%S.%f": "%S",
        "%S,%f": "%S",
        "%3f": "%f",
        "%6f": "%f",
    }.items():
        form = form.replace(short, long)
    pattern, rest = "", re.split(r"%(.)", form)
    for between, sign in zip(rest[::2], rest[1::2], strict=False):
        if sign not in _SIGNS:
            raise ValueError(f"--time-format {form}: expected signs among %{' %'.join(_SIGNS)} but got %{sign}")
        part = re.escape(between).replace(r"\ ", r"\s+").replace(r"\.", r"\.\s?") + _SIGNS[sign]
        if between == " " and sign in "HI":
            part = r"(?:[T_]|[,;]?\s+)" + _SIGNS[sign]
            # What follows a day is a clock, and is left out at midnight by spreadsheets.
            rest_of_form = form.partition(between + "%" + sign)[2]
            pattern += "(?:" if re.fullmatch(r"[^%]*(%[HIMSpzZ][^%]*)*", rest_of_form) else ""
        elif between == ":" and sign == "S":
            part = f"(?::{_SIGNS[sign]})?"
        elif between == " " and sign in "pzZ":
            part = r"\s*" + _SIGNS[sign]
        pattern += part
    pattern += re.escape(rest[-1]) + ")?" * (pattern.count("(?:(?:[T_]"))
    # Digits without a mark between them have all their places.
    pattern = pattern.replace(r"\d{1,2}", r"\d\d") if re.search(r"%[YymdHIM]%[mdHIMS]", form) else pattern
    zone = "" if _ZONE in pattern else rf"(?:\s*{_ZONE})?"
    return f"^{pattern}{zone}$"


def has_clock(form: str) -> bool:
    """Tell whether times of a form have an hour."""
    return "%H" in form or "%I" in form


def has_day(form: str) -> bool:
    """Tell whether times of a form have a day, not only an hour."""
    return form in (*EPOCHS, NUMBER) or any(sign in form for sign in ("%d", "%j", "%F"))


def has_year(form: str) -> bool:
    """Tell whether times of a form have a year."""
    return "%" not in form or any(sign in form for sign in ("%Y", "%y", "%F"))


def read_times(columns: Sequence[Any], form: str) -> tuple[Times, bool]:
    """Read columns of times, joined by spaces, in a form: numbers, or datetime64[ns] in UTC where cells name a zone.

    NaN or NaT stands for cells of other forms. Returned is also whether they name a zone.

    >>> times, is_utc = read_times([pyarrow.array(["31.5.2024"]), pyarrow.array(["10:00 +02:00"])], "%d.%m.%Y %H:%M")
    >>> times, is_utc
    (array(['2024-05-31T08:00:00.000000000'], dtype='datetime64[ns]'), True)
    """
    if len(columns) == 1 and pyarrow.types.is_timestamp(columns[0].type):
        return columns[0].cast(pyarrow.timestamp("ns")).to_numpy(zero_copy_only=False), columns[0].type.tz is not None
    if form in (*EPOCHS, NUMBER):
        return _read_epoch(columns[0], form), form != NUMBER
    cells = _translate(trim(join_texts(_pad(columns, form))))
    found = compute.extract_regex(cells, _pattern(form))
    is_valid = found.is_valid()
    names = {field.name for field in found.type}

    def look_up(name: str, read: Callable[[str], int], default: int) -> Times:
        """Read each text of a group once; the default stands where there is none."""
        if name not in names:
            return np.full(len(cells), default)
        texts = compute.if_else(is_valid, found.field(name), "").dictionary_encode()
        values: Times = np.array([read(text) if text else default for text in texts.dictionary.to_pylist()] or [0])
        codes: Times = texts.indices.to_numpy(zero_copy_only=False)
        return values[codes]

    year, two = look_up("Y", int, 2000), look_up("y", int, -1)
    year = np.where(two >= 0, two + np.where(two < 69, 2000, 1900), year)
    month = look_up("b", _read_month, 0) if "b" in names else look_up("m", int, 1)
    first = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    day = look_up("j", int, 1) if "j" in names else look_up("d", int, 1)
    days = first.astype("M8[D]") + (day - 1).astype("m8[D]")
    hour, minute, second = look_up("H", int, 0), look_up("M", int, 0), look_up("S", int, 0)
    half = look_up("p", lambda text: 12 * (text in "Pp"), -1)
    is_known = (
        is_valid.to_numpy(zero_copy_only=False)
        & (days.astype("M8[Y]" if "j" in names else "M8[M]") == first)
        & (month > 0)
        & (month < 13)
    )
    is_known &= (hour < 25) & (minute < 60) & (second < 61) & ((half < 0) | ((hour > 0) & (hour < 13)))
    hour = np.where(half < 0, hour, hour % 12 + half)
    part = next((part for part in "uf" if part in names), None)
    fraction = compute.utf8_rpad(found.field(part), 9, "0").cast(pyarrow.int64()) if part else 0
    zone = look_up("z", _minutes_ahead, 0)
    seconds = (hour * 3600 + (minute - zone) * 60 + second).astype("m8[s]")
    is_known &= (days >= _YEARS[0]) & (days < _YEARS[1])
    # Other days have no nanoseconds.
    days = np.where(is_known, days, np.datetime64(0, "D"))
    times = days.astype("M8[ns]") + seconds + np.asarray(fraction).astype("m8[ns]")
    zones = compute.not_equal(found.field("z"), "").to_numpy(zero_copy_only=False) if "z" in names else np.zeros(1)
    return np.where(is_known, times, _MISSING), bool(2 * np.count_nonzero(zones) > is_known.sum())


def find_steps(times: Times) -> Times:
    """Return the steps between times; dates of more than 146 years have no nanoseconds, as these would overflow."""
    if times.dtype.kind == "M" and len(times):
        span = float(times.max().astype(np.int64)) - float(times.min().astype(np.int64))
        times = times.astype("datetime64[us]") if abs(span) > 2.0**62 else times
    return np.asarray(np.diff(times))


def find_wrong_stamps(times: Times, last: Any, step: Any) -> Times:
    """Find single times that are many usual steps from those on both sides, which are in order; `last` is before them.

    The last one is wrong if it is years ahead of the one before.
    """
    # Nanoseconds count 292 years at most.
    times = times.astype("datetime64[us]")
    limit = FAR * step.astype("timedelta64[us]")
    before = np.concatenate([[last], times[:-1]])
    after = np.concatenate([times[1:], times[-1:]])
    is_wrong = (before <= after) & ((times - after > limit) | (before - times > limit))
    is_wrong[-1:] |= times[-1:] - before[-1:] > _YEAR
    return np.asarray(is_wrong)


def _pad(columns: Sequence[Any], form: str) -> Sequence[Any]:
    """Put zeros before the numbers of columns that hold a part of a form each, as numbers have none there."""
    if len(columns) == 1:
        return columns
    parts, padded = ["-", *form.split(" ")][-len(columns) :], []
    for cells, part in zip(columns, parts, strict=True):
        is_digits = re.fullmatch(r"(?:%[YymdHMSj])+|%[36]f", part)
        width = (int(part[1]) if part.endswith("f") else len(part) + 2 * part.count("%Y")) if is_digits else 0
        padded.append(compute.utf8_lpad(trim(join_texts([cells])), width, "0") if width else cells)
    return padded


def _translate(cells: Any) -> Any:
    """Write times of eastern Asia as those of Europe."""
    if compute.any(compute.match_substring_regex(cells[:1], r"[년年오上下午]")).as_py():
        for pattern, words in _LOCAL:
            cells = compute.replace_substring_regex(cells, pattern, words)
    return cells


def _read_month(name: str) -> int:
    return _MONTH.get(name[:3].lower(), _MONTH.get(name[:4].lower(), 0))


def _minutes_ahead(zone: str) -> int:
    offset = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d\d):?(\d\d)?", zone)
    if offset is None:
        return 60 * _ZONES.get(zone, 0)
    return int(offset[1] + "1") * (60 * int(offset[2]) + int(offset[3] or 0))


def _read_epoch(cells: Any, form: str) -> Times:
    """Read numbers, those since 1970 as dates."""
    if pyarrow.types.is_string(cells.type):
        cells = trim(cells)
        is_number = compute.match_substring_regex(cells, r"^[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?$")
        cells = compute.replace_substring(compute.if_else(is_number, cells, None), ",", ".")
        if form != NUMBER:
            # Floating point would round the last digits of nanoseconds.
            with suppress(pyarrow.ArrowInvalid):
                cells = cells.cast(pyarrow.int64())
    if form == NUMBER:
        return np.asarray(cells.cast(pyarrow.float64(), safe=False))
    scale, begin = EPOCHS[form]
    first, after = (edge.astype("M8[ns]").astype(int) // scale for edge in _YEARS)
    if pyarrow.types.is_integer(cells.type):
        counts = np.asarray(cells.fill_null(int(after + begin))) - int(begin)
        is_known = (counts >= first) & (counts < after)
        return np.where(is_known, (np.where(is_known, counts, 0) * scale).astype("M8[ns]"), _MISSING)
    numbers = np.asarray(cells.cast(pyarrow.float64(), safe=False)) - begin
    whole = np.floor(np.where((numbers >= first) & (numbers < after), numbers, np.nan))
    # A float of today's seconds holds microseconds.
    fraction = np.round((numbers - whole) * (scale / 1000.0)) * 1000.0
    with np.errstate(invalid="ignore"):
        times = (whole.astype(np.int64) * scale + fraction.astype(np.int64)).astype("M8[ns]")
    return np.where(np.isnan(whole), _MISSING, times)


def join_texts(columns: Sequence[Any]) -> Any:
    """Join columns of cells by spaces."""
    texts = [compute.cast(cells, pyarrow.string()) for cells in columns]
    return texts[0] if len(texts) == 1 else compute.binary_join_element_wise(*texts, " ")


def find_form(columns: Sequence[Any]) -> tuple[str, Times] | None:
    """Find the form in which most cells are times, of text alone, and the times.

    If there are several, as day and month may be either, the one in which times are closest together; of equals the one
    with the month first where clocks say AM or PM, and else the day, and then the latest.

    >>> find_form([pyarrow.array(["01/02/2024 23:55", "02/02/2024 00:00"])])[0]
    '%d/%m/%Y %H:%M:%S'
    """
    cells = compute.drop_null(trim(join_texts(columns)))
    few, found = _translate(cells[:20]), list[tuple[Any, ...]]()
    seen = {*"".join(few.to_pylist()), " "}
    for form in (*(day + clock for day, clock in product(_DAYS, _CLOCKS)), *_WHOLE):
        if not {*re.sub("%.|:%S", "", form)} <= seen:
            continue
        if 2 * (compute.sum(compute.match_substring_regex(few, _pattern(form))).as_py() or 0) > len(few):
            times, _ = read_times([cells], form)
            known = times[~np.isnat(times)]
            if form.startswith("%Y%m%d"):
                known = known[(known > _LIKELY_YEARS[0]) & (known < _LIKELY_YEARS[1])]
            if len(known) == len(cells) and form.startswith("%Y"):
                # Nothing else reads as well.
                return form, times if len(times) == len(columns[0]) else read_times(columns, form)[0]
            if 2 * len(known) > len(cells):
                # Months stand first where clocks say AM or PM, and else days.
                is_odd = form.endswith("%p") != form.startswith("%m")
                latest = -known.max().astype(np.int64)
                found.append((-len(known), np.abs(find_steps(known)).sum(), has_clock(form), is_odd, latest, form))
    return (form := min(found)[-1], read_times(columns, form)[0]) if found else None


def find_other_form(columns: Sequence[Any], form: str, times: Times) -> str | None:
    """Find another form in which these times are as close together: with the day and the month, or year, exchanged."""
    known = ~np.isnat(times)
    for one in "my":
        other = form.replace("%d", "%-").replace(f"%{one}", "%d").replace("%-", f"%{one}")
        if f"%{one}" in form and "%d" in form:
            read = read_times(columns, other)[0]
            if (np.isnat(read) != known).all() and (find_steps(read[known]) == find_steps(times[known])).all():
                return other
    return None
