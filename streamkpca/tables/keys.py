"""The columns of machines and of tags: as asked, as known, or as the first rows show."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pyarrow import compute

from streamkpca.tables.asked import Asked
from streamkpca.tables.errors import TableError, list_names, short
from streamkpca.tables.numbers import Floats
from streamkpca.tables.sample import Sample
from streamkpca.tables.times import join_texts

_LEAST = 10
_TAG_NAME = re.compile(
    r"_?(tag|sensor|entity|point|channel|variable|parameter|field|signal|metric|item|measurement|measure|quantity|topic|"
    r"path|name|series|register|object|obis)([ _]?(id|name|code|no|nr))?",
    re.IGNORECASE,
)
# Columns of whole numbers may tell of machines or tags if they have such a name.
_KEY_NAME = re.compile(
    _TAG_NAME.pattern
    + r"|id|(machine|unit|device|asset|node|station|meter|turbine|pump|motor|engine|gpu|cpu|core|disk|host|slot|rack)"
    r"([ _]?(id|no|nr|number|index))?",
    re.IGNORECASE,
)
_VALUE_NAME = re.compile(r"_?(value|val|state|reading)(_?num)?", re.IGNORECASE)
# Share of rows whose times come again, from which they are those of several machines or tags.
_REPEATED = 0.3
# Share of the machines that have a row at the usual time, at least, where they are numbers.
_LEAST_PRESENT = 0.5
# Share of rows whose machine or tag comes again after a whole round, and the fewest rounds that show it.
_IN_ROUNDS = 0.98
_LEAST_ROUNDS = 5
# More machines or tags than these are no such thing, but texts of rows.
_MOST_KEYS = 1000

# The column of machines, their names, and the numbers beside their value if they may be tags.
Machines = tuple[str, tuple[str, ...], tuple[str, ...]]


def choose_keys(
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
        comes_in_rounds = _KEY_NAME.fullmatch(key) is not None and _comes_in_rounds(codes, n_keys)
        is_rare = key in numbers and n_keys > most_numbers and not comes_in_rounds
        if not 2 <= n_keys <= min(_MOST_KEYS, n / 4) or is_rare:
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
        # One after the other, and with each the times begin anew.
        is_new = np.diff(codes) != 0
        falls = times[1:] < times[:-1]
        begins_anew = key not in numbers and is_one_each and is_new.sum() == n_keys - 1 and (falls == is_new).all()
        if values and ((repeats and is_one_each) or is_enough or comes_in_rounds or begins_anew):
            return key, values, [name for name in values if is_tag and _VALUE_NAME.fullmatch(name)]
    return None


def _comes_in_rounds(codes: npt.NDArray[np.int64], n_keys: int) -> bool:
    """Tell whether keys come by turns, each once in a round."""
    is_again = codes[n_keys:] == codes[:-n_keys]
    is_other = codes[1:] != codes[:-1]
    return len(codes) > _LEAST_ROUNDS * n_keys and min(is_again.mean(), is_other.mean()) > _IN_ROUNDS


def _find_varying(times: npt.NDArray[Any], numbers: Mapping[str, Floats]) -> list[str]:
    """Find the columns that vary, without other times: those that never fall and are one in all rows of a time."""
    order, start = np.argsort(times, kind="stable"), np.zeros(1, int)
    is_same = times[order][1:] == times[order][:-1]
    varying = [name for name, column in numbers.items() if len(column) and _varies_within(column, start)]
    steps = {name: np.diff(numbers[name][order]) for name in varying}
    return [name for name, step in steps.items() if not is_same.any() or (step < 0.0).any() or step[is_same].any()]


def _varies_within(values: Floats, first: npt.NDArray[np.intp]) -> bool:
    # The runs begin at the places `first`.
    return bool((np.fmax.reduceat(values, first) > np.fmin.reduceat(values, first)).any())
