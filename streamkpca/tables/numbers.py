"""Cells of text as numbers: marks before decimals and between thousands, units, and words for on and off."""

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import compute

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Patterns of the marks before decimals, and between thousands.
_MARKS = {",": (",", "."), ".": (r"\.", ",")}
# How tables spell that a value is missing.
MISSING = ("", "na", "n/a", "nan", "-nan", "null", "none", "#n/a", "#na", "?")
# Between thousands, beside points and commas: apostrophes, and spaces of several widths.
_SPACES = "'\u2019 \u00a0\u202f\u2009"
_MINUS = "\u2212"
# Whole numbers in hexadecimal, which all have one length or a mark, and letters; the mark of their form.
_HEXADECIMAL = r"^(?:0x[0-9a-fA-F]{1,8}|[0-9A-F]{2,8})$"
_BASE = "x"
_ON = "on open opened true yes running started active enabled up online connected occupied detected home"
_OFF = "off closed false no stopped inactive disabled down offline disconnected vacant clear not_home"
_WORDS = dict.fromkeys(_ON.split(), 1.0) | dict.fromkeys(_OFF.split(), 0.0) | {"1": 1.0, "0": 0.0}
_WORD_LIST = pyarrow.array(_WORDS)
# What stands for a switch of which nothing is known.
_UNKNOWN = "unavailable unknown bad uncertain - -- --- undefined".split()
_SCALES = {
    **{"": 1.0, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "m": 1e-3, "c": 1e-2, "h": 1e2, "k": 1e3, "K": 1e3},
    **{"M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40},
}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
# More units than these in one column are no units: names that begin with a digit.
_MOST_UNITS = 5
# Status words, such as Bad and I/O Timeout, may stand in most cells of a sensor; these are more than any has.
_MOST_STATUSES = 3
_LEAST_NUMBERS = 0.05
_LEAST_HEXADECIMAL = 10
# Numbers of this size are errors of a logger; kernels refuse rows beyond 1e65 units, which would end the watch.
_TOO_LARGE = 1e60


class Form(NamedTuple):
    """How the cells of a column are read: the mark before decimals and the usual unit, or as words for off and on.

    The mark "x" stands for hexadecimal.
    """

    decimal: str = "."
    unit: str = ""
    words: tuple[str, str] | None = None


@cache
def _number(decimal: str) -> str:
    """Make the pattern of a number and its unit; commas or points between thousands have three digits after each."""
    mark, between = _MARKS[decimal]
    whole = rf"(?:\d{{1,3}}(?:[{between}{_SPACES}]\d{{3}})+|\d+)"
    # Classes of all letters would take 20 ms to compile.
    unit = r"[^\s\d!-$&-@\[-`{-~\x{FFFD}][^\s!-$&-\-:-@\[-`{-~\x{FFFD}]{0,11}"
    return rf"^(?P<number>[-+]?\s*(?:{whole}(?:{mark}\d*)?|{mark}\d+)(?:[eE][-+]?\d+)?)\s*(?P<unit>{unit})?$"


@cache
def _decimals(decimal: str) -> str:
    """Make the pattern of a number that has this mark before its decimals for sure, not between thousands."""
    mark, between = _MARKS[decimal]
    return (
        rf"^[-+{_MINUS}]?(?:[\d{between}{_SPACES}]*{mark}(?:\d{{1,2}}|\d{{4,}}|\d*[eE].*)(?:[^\d,.].*)?|0?{mark}\d+.*)$"
    )


def trim(cells: Any) -> Any:
    """Remove white space around cells of text, and make cells without a value null."""
    cells = compute.utf8_trim_whitespace(cells)
    nothing = compute.is_in(compute.utf8_lower(cells), value_set=pyarrow.array(MISSING))
    return compute.if_else(nothing, pyarrow.scalar(None, cells.type), cells)


def find_forms(columns: Sequence[Any], *, delimiter: str = ",", decimal: str | None = None) -> list[Form | None]:
    """Find how columns of cells are read, each by its own; None for text.

    Where a column does not show which mark stands before decimals, the others do.

    >>> def forms(*columns):
    ...     return find_forms([pyarrow.array(cells) for cells in columns], delimiter=";")
    >>> forms(["1,5", "1.200,25"], ["1.200", "7"], ["5 ms", "1 s"], ["ON", "OFF"], ["red", "green"])
    [Form(decimal=',', ...), ..., Form(decimal=',', unit='ms', ...), Form(..., words=('OFF', 'ON')), None]
    """
    texts = {j: cells for j, cells in enumerate(columns) if pyarrow.types.is_string(cells.type)}
    if not texts:
        return [Form()] * len(columns)
    # All cells at once, as there may be very many columns.
    cells, n = trim(pyarrow.concat_arrays(list(texts.values()))), len(columns[0])
    owner = np.repeat(np.arange(len(texts)), n)

    def count(is_so: Any) -> npt.NDArray[np.int64]:
        return np.bincount(owner[is_so.fill_null(False).to_numpy(zero_copy_only=False)], minlength=len(texts))

    found = {mark: compute.extract_regex(_write_signs(cells), _number(mark)) for mark in ",."}
    commas, points = (count(compute.match_substring_regex(cells, _decimals(mark))) for mark in ",.")
    if decimal is None and delimiter != "," and not points.any():
        # Where no number has a point, commas with three digits after them stand before decimals, too.
        decimal = "," if commas.any() or count(compute.match_substring_regex(cells, r"\d,\d")).any() else "."
    is_comma = np.full(len(texts), decimal == ",")
    if decimal is None:
        is_comma = np.where(commas == points, commas.any() and not points.any(), commas > points)
    n_known, n_words = count(cells.is_valid()), count(compute.is_in(compute.utf8_lower(cells), value_set=_WORD_LIST))
    n_numbers = np.where(is_comma, *(count(found[mark].is_valid()) for mark in ",."))
    n_units = np.where(is_comma, *(count(compute.not_equal(found[mark].field("unit"), "")) for mark in ",."))
    forms: list[Form | None] = [Form()] * len(columns)
    for c, j in enumerate(texts):
        mark = "," if is_comma[c] else "."
        mine, read = (one.slice(c * n, n) for one in (cells, found[mark]))
        if n_words[c] > n_numbers[c] and 2 * n_words[c] >= n_known[c]:
            seen = compute.unique(mine).drop_null().to_pylist()
            words = {_WORDS[word.lower()]: word for word in reversed(seen) if word.lower() in _WORDS}
            # A third state is no gap.
            is_switch = {word.lower() for word in seen} <= {*_WORDS, *_UNKNOWN}
            forms[j] = Form(words=(words.get(0.0, "0"), words.get(1.0, "1"))) if is_switch else None
            continue
        if _are_hexadecimal(mine):
            forms[j] = Form(_BASE)
            continue
        units = compute.value_counts(read.drop_null().field("unit")).to_pylist() if n_units[c] else []
        units.sort(key=lambda one: -one["counts"])
        is_number = len(units) <= _MOST_UNITS
        if 2 * n_numbers[c] < n_known[c]:
            statuses = compute.unique(mine.filter(compute.and_(mine.is_valid(), read.is_null())))
            is_number &= n_numbers[c] > _LEAST_NUMBERS * n_known[c] and len(statuses) <= _MOST_STATUSES
        unit = next((one["values"] for one in units if one["values"]), "")
        forms[j] = Form(mark, unit) if is_number else None
    return forms


def _write_signs(cells: Any) -> Any:
    """Write signs as computers do: bookkeepers put what is below zero into brackets."""
    return compute.replace_substring_regex(compute.replace_substring(cells, _MINUS, "-"), r"^\((.*)\)$", r"-\1")


def _are_hexadecimal(cells: Any) -> bool:
    cells = cells.drop_null()
    if not len(cells) or not compute.all(compute.match_substring_regex(cells, _HEXADECIMAL)).as_py():
        return False
    is_marked = compute.all(compute.starts_with(cells, "0x")).as_py()
    letters = compute.unique(compute.replace_substring_regex(cells, r"\d", ""))
    # One letter at the end may be a unit.
    is_mixed = len(letters) > 2 or compute.any(compute.match_substring_regex(cells, r"^\d+E\d+$")).as_py()
    is_even = len(compute.unique(compute.utf8_length(cells))) == 1
    has_digits = 2 * compute.sum(compute.match_substring_regex(cells, r"\d")).as_py() > len(cells)
    return bool(is_marked or (is_mixed and is_even and has_digits and len(cells) >= _LEAST_HEXADECIMAL))


def read_numbers(cells: Any, form: Form) -> tuple[Floats, Bools | None]:
    """Read numbers, NaN where there is none, and tell which cells hold something that is no number, if any do."""
    if not pyarrow.types.is_string(cells.type):
        return _finite(cells.cast(pyarrow.float64(), safe=False))
    if form.decimal == _BASE:
        texts = trim(cells).dictionary_encode()
        values = pyarrow.array([_read_base(text) for text in texts.dictionary.to_pylist()], pyarrow.float64())
        values = np.asarray(compute.take(values, texts.indices).to_numpy(zero_copy_only=False), np.float64)
        strange = np.isnan(values) & texts.is_valid().to_numpy(zero_copy_only=False)
        return values, strange if strange.any() else None
    if not form.words and not form.unit:
        with suppress(pyarrow.ArrowInvalid):
            if form.decimal == ".":
                return _finite(cells.cast(pyarrow.float64()))
            if not compute.any(compute.match_substring(cells, ".")).as_py():
                return _finite(compute.replace_substring(cells, ",", ".").cast(pyarrow.float64()))
    texts = trim(cells)
    if form.words:
        place = compute.index_in(compute.utf8_lower(texts), value_set=_WORD_LIST)
        numbers = compute.take(pyarrow.array(_WORDS.values()), place)
    else:
        found = compute.extract_regex(_write_signs(texts), _number(form.decimal))
        digits = compute.if_else(found.is_valid(), found.field("number"), None)
        digits = compute.replace_substring_regex(digits, f"[{_MARKS[form.decimal][1]}{_SPACES}]", "")
        numbers = compute.replace_substring(digits, form.decimal, ".").cast(pyarrow.float64())
        units = found.field("unit").dictionary_encode()
        factors = pyarrow.array(
            [convert_unit(unit, form.unit) for unit in units.dictionary.to_pylist()], pyarrow.float64()
        )
        numbers = compute.multiply(numbers, compute.take(factors, units.indices))
    values, too_large = _finite(numbers)
    strange = np.isnan(values) & texts.is_valid().to_numpy(zero_copy_only=False)
    return values, strange if strange.any() else too_large


def _read_base(text: str) -> float | None:
    try:
        return float(int(text, 16))
    except ValueError:
        return None


def _finite(numbers: Any) -> tuple[Floats, Bools | None]:
    """Take what is infinite, or too large to be measured, for no number."""
    values: Floats = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
    is_too_large = np.abs(values) >= _TOO_LARGE
    values[is_too_large] = np.nan
    return values, is_too_large if is_too_large.any() else None


def convert_unit(unit: str, main: str) -> float | None:
    """Return how many main units make up one unit, None if they are of different kinds.

    >>> convert_unit("GiB", "MiB"), convert_unit("min", "s"), convert_unit("", "V"), convert_unit("V", "A")
    (1024.0, 60.0, 1.0, None)
    """
    if unit in ("", main):
        return 1.0
    if unit in _SECONDS and main in _SECONDS:
        return _SECONDS[unit] / _SECONDS[main]
    for n in (2, 1, 0):
        scale, base = main[:n], main[n:]
        if scale in _SCALES and unit.endswith(base) and unit.removesuffix(base) in _SCALES:
            return _SCALES[unit.removesuffix(base)] / _SCALES[scale]
    # Letters alone: 1.2k and 3M, but 5 m and 5 h are units.
    large = all(_SCALES.get(one, 0.0) >= 1e3 or not one for one in (unit, main))
    return _SCALES[unit] / _SCALES[main] if large else None
