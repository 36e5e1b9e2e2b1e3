"""Columns that tell whether the values beside them are good."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import compute

from streamkpca.tables.asked import Asked
from streamkpca.tables.numbers import trim
from streamkpca.tables.sample import Sample
from streamkpca.tables.times import join_texts

_NAME = re.compile(r"(.*?)[ _.\-/]?(q|qual|quality|qc|status|state|flag|valid|validity)", re.IGNORECASE)
# Beginnings of what stands beside values; what is uncertain is a value. Numbers are codes of OPC.
_GOOD = r"^(good|ok|valid|normal|uncertain|true|yes|19[2-9]|2[0-4]\d|25[0-5]|6[4-9]|[7-9]\d|1[0-8]\d|19[01])"
_BAD = r"^(bad|invalid|error|fail|fault|comm|no data|not |stale|offline|timeout|false|no$|\d\d?$)"
_SURE = "good", "192"
_MOST_WORDS = 20

# Columns of values, with the one that tells of their quality, and the words for good ones that only this file has.
Quality = Mapping[str, tuple[str, ...]]


def find_quality(sample: Sample, asked: Asked, rest: Sequence[str]) -> Quality:
    """Find the columns of quality: those that are asked for, or that are named so and hold such words alone."""
    if asked.quality is None and asked.known.columns:
        return asked.known.quality
    found: dict[str, tuple[str, ...]] = {}
    asked_for = sample.check(asked.quality or ())
    for name in filter(_NAME.fullmatch, rest) if asked.quality is None else asked_for:
        words = compute.drop_null(_read_words(sample.cells[name]))
        n_words = compute.value_counts(words).to_pylist()
        is_known = compute.match_substring_regex(words, f"{_GOOD}|{_BAD}")
        is_sure = any(one["values"].startswith(_SURE) for one in n_words[:_MOST_WORDS])
        if asked_for:
            # Where no word is known, most values are good.
            is_good = compute.any(compute.match_substring_regex(words, _GOOD)).as_py()
            found[name] = () if is_good or not n_words else (max(n_words, key=lambda one: one["counts"])["values"],)
        elif is_sure and compute.all(is_known).as_py():
            found[name] = ()
    values = [name for name in rest if sample.forms[name] is not None and name not in found]
    quality: dict[str, tuple[str, ...]] = {}
    for name, good in found.items():
        match = _NAME.fullmatch(name)
        mine = [one for one in values if match and one.lower() == match[1].lower()]
        before = [one for one in values if sample.names.index(one) < sample.names.index(name)][-1:]
        quality |= dict.fromkeys(mine or (values if len(found) == 1 else before), (name, *good))
    return quality


def find_bad(cells: Any, good: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Tell which cells of a column of quality tell of a bad value."""
    words = _read_words(cells)
    is_good = compute.match_substring_regex(words, _GOOD)
    if good:
        is_good = compute.is_in(words, value_set=pyarrow.array(good))
    return ~np.asarray(is_good.fill_null(True).to_numpy(zero_copy_only=False), bool)


def _read_words(cells: Any) -> Any:
    if not pyarrow.types.is_string(cells.type):
        cells = compute.cast(compute.cast(cells, pyarrow.int64(), safe=False), pyarrow.string())
    return compute.utf8_lower(trim(join_texts([cells])))
