"""A look at the first rows of a table: its column of times, and columns that tell nothing about a state."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow

from streamkpca.cli.tables.table import Reader
from streamkpca.cli.tables.text import MISSING
from streamkpca.cli.tables.times import EPOCHS, Times, find_format

# Fewer rows show nothing of a column but its kind.
_LEAST = 10
_MOST_BACK = 0.1
_TIME_NAME = re.compile(r"(date|time|timestamp|ts|t|epoch|unix\w*)(?![a-z])", re.IGNORECASE)
_EPOCH = 1e9, 4e9


class Look(NamedTuple):
    """Facts about the first `n_rows` rows, by names of columns.

    time, time_format: as for `open_table`. times: the first and the last one. back: share of the rows that are earlier
    than the one before. counters: columns that always grow; empty: those without numbers; constants: those of one
    value; gaps: share of missing values where there are any.
    """

    n_rows: int
    time: tuple[str, ...]
    time_format: str | None
    times: tuple[Any, Any] | None
    back: float
    counters: list[str]
    empty: list[str]
    constants: dict[str, float]
    gaps: dict[str, float]


def look(
    reader: Reader, asked: Collection[str], passed: Collection[str], time: Sequence[str], time_format: str | None
) -> Look:
    """Look at the columns that are asked for, or else at all that are not passed over.

    The time is that given, or else looked for among the columns that are not asked for.
    """
    names = reader.names
    samples = {j: reader.sample(j) for j, name in enumerate(names) if name not in passed or name in time}
    numbers = {j: cells for j, cells in samples.items() if j not in reader.texts}
    n = max(map(len, samples.values()), default=0)
    counters = [j for j, values in numbers.items() if n >= _LEAST and _grows(values)]
    if time:
        columns: Sequence[int] = [names.index(name) for name in time if name in names]
        cells = [samples[j] if j in reader.texts else pyarrow.array(samples[j]) for j in columns]
        times = _read(names, columns, cells, time_format)
    else:
        free = {j: cells for j, cells in samples.items() if names[j] not in asked}
        columns, time_format, times = max(
            [*_of_text(reader, free), *_of_numbers(reader, free)], key=_usefulness, default=((), None, None)
        )
    out = {*columns, *([] if asked else counters)}
    rest = {names[j]: values for j, values in numbers.items() if j not in out and (not asked or names[j] in asked)}
    known = {name: values[~np.isnan(values)] for name, values in rest.items()}
    times = np.empty(0) if times is None else times[~np.isnan(times)]
    return Look(
        n_rows=n,
        time=tuple(names[j] for j in columns),
        time_format=time_format,
        times=(times[0], times[-1]) if len(times) else None,
        back=_back(times),
        counters=[names[j] for j in counters if j in out and j not in columns],
        empty=[name for name, values in known.items() if n >= _LEAST and not len(values)],
        constants={name: float(v[0]) for name, v in known.items() if len(v) >= _LEAST and np.ptp(v) == 0.0},
        gaps={name: 1.0 - len(values) / n for name, values in known.items() if 0 < len(values) < n},
    )


def _of_text(reader: Reader, samples: dict[int, Any]) -> Iterator[tuple[Any, str | None, Any]]:
    """Find the columns of text that hold dates, and neighbours that hold a day and an hour."""
    texts = {
        j: ["" if one.strip().lower() in MISSING else one for one in samples[j]] for j in reader.texts & {*samples}
    }
    for i, j in pairwise(sorted(texts)):
        if j == i + 1 and (found := find_format([f"{a} {b}" for a, b in zip(texts[i], texts[j], strict=True)])):
            yield (i, j), *found
    for j, cells in texts.items():
        if found := find_format(cells):
            yield (j,), *found


def _of_numbers(reader: Reader, samples: dict[int, Any]) -> Iterator[tuple[Any, str | None, Any]]:
    """Find the columns of numbers that never fall and are times: since 1970, or by their names."""
    names = reader.names
    for j, values in samples.items():
        if j in reader.texts:
            continue
        known = values[~np.isnan(values)]
        if not len(known) or (np.diff(known) < 0.0).any():
            continue
        units = (unit for unit, n in EPOCHS.items() if _EPOCH[0] < known[0] * n / EPOCHS["s"] < _EPOCH[1])
        if unit := next(units, None):
            yield (j,), unit, Times(names, [j], unit).read([pyarrow.array(values)])
        elif _TIME_NAME.match(names[j]) and known[-1] > known[0]:
            yield (j,), None, values


def _usefulness(found: tuple[Any, str | None, Any]) -> tuple[bool, int]:
    """Prefer times in order, and of these a day with its hour."""
    return _back(found[2][~np.isnan(found[2])]) <= _MOST_BACK, len(found[0])


def _back(times: npt.NDArray[Any]) -> float:
    return float(np.mean(times[1:] < times[:-1])) if len(times) > 1 else 0.0


def _grows(values: Any) -> bool:
    """Tell whether numbers never fall and mostly rise: a counter, whose values never come again."""
    steps = np.diff(values[~np.isnan(values)])
    return len(steps) + 1 >= _LEAST and bool((steps >= 0.0).all()) and float(np.mean(steps > 0.0)) > 0.5


def _read(names: Sequence[str], columns: Sequence[int], cells: Sequence[Any], form: str | None) -> Any:
    """Read times that are known by name, None where some are not written so: reading the rows tells which."""
    try:
        return Times(names, columns, form).read(cells)
    except ValueError:
        return None
