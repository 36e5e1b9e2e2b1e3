"""Columns of times: text in many forms, or numbers."""

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow
from pyarrow import compute

from streamkpca.cli.tables.table import short

_TYPES = (pyarrow.float64(), pyarrow.timestamp("ns"), pyarrow.timestamp("ns", "UTC"))
# Units of times that are numbers since 1970, in nanoseconds.
EPOCHS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAYS = (
    *(
        "%Y-%m-%d",
        "%Y/%m/%d",
        "%Y.%m.%d",
        "%Y%m%d",
        "%d.%m.%Y",
        "%d.%m.%y",
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%d/%m/%y",
        "%m/%d/%y",
    ),
    *("%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y"),
)
_CLOCKS = (
    *(" %H:%M:%S", " %H:%M", " %I:%M:%S %p", " %I:%M %p", " %H.%M.%S", " %H%M%S", "T%H:%M:%S", ", %H:%M:%S"),
    *(" %H:%M:%S UTC", ""),
)
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d(:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d:?\d\d)?)?")
_YEARS = np.datetime64("1900"), np.datetime64("2200")


class Times:
    """Converts the columns of times of a table, joined by spaces: to numbers, or to dates, as the first ones are.

    A format is one of `strptime`, or one of `EPOCHS`.

    >>> Times(["t", "x"], [0]).read([["2024-05-31 10:00", "2024-06-01"]])
    array(['2024-05-31T10:00:00.000000000', '2024-06-01T00:00:00.000000000'],
          dtype='datetime64[ns]')
    >>> Times(["day", "hour"], [0, 1], "%d.%m.%Y %H:%M").read([["31.5.2024"], ["10:00"]])
    array(['2024-05-31T10:00:00.000000000'], dtype='datetime64[ns]')
    """

    def __init__(self, names: Sequence[str], columns: Sequence[int], format: str | None = None) -> None:
        self.columns, self._name, self.format = columns, " ".join(names[j] for j in columns), format
        self._types: Sequence[Any] = _TYPES
        self.is_utc = format in EPOCHS or (format or "").endswith(("%z", "UTC"))

    def read(self, columns: Sequence[Any]) -> Any:
        """Convert text to float64 or datetime64[ns] (n,), or raise ValueError; None without columns."""
        if not columns:
            return None
        parts = [pyarrow.array(cells, pyarrow.string()) if isinstance(cells, list) else cells for cells in columns]
        array = parts[0] if len(parts) == 1 else compute.binary_join_element_wise(*parts, " ")
        if self.format:
            with suppress(pyarrow.ArrowException):
                return epoch_times(array, self.format) if self.format in EPOCHS else formatted_times(array, self.format)
        for kind in [] if self.format else self._types:
            with suppress(pyarrow.ArrowException):
                times: npt.NDArray[Any] = array.cast(kind, safe=kind != _TYPES[0]).to_numpy(zero_copy_only=False)
                if len(times):
                    self.is_utc = kind == _TYPES[2]
                    self._types = _TYPES[:1] if kind == _TYPES[0] else _TYPES[1:]
                return times
        expected = self.format or "a number, or a date as 2024-05-31 10:00:00"
        what = f"column {short(self._name)!r} holds {short(str(array[0]))!r} but a time is expected: {expected}"
        raise ValueError(f"{what} (for other forms, --time-format)")


def epoch_times(cells: Any, unit: str) -> npt.NDArray[Any]:
    """Read numbers since 1970."""
    numbers = cells.cast(pyarrow.float64()).to_numpy(zero_copy_only=False) * EPOCHS[unit]
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(numbers) < 2.0**63, numbers, np.nan).astype("datetime64[ns]")


def formatted_times(cells: Any, format: str, *, strict: bool = True) -> npt.NDArray[Any]:
    """Read times in a format of `strptime`, without fractions of a second; unless `strict`, NaT for other text."""
    cells = compute.replace_substring_regex(cells, r"(:\d\d)[.,]\d+", r"\1")
    times = compute.strptime(cells, format=format, unit="s", error_is_null=not strict).to_numpy(zero_copy_only=False)
    is_known = (times > _YEARS[0]) & (times < _YEARS[1])
    return np.where(is_known, times, np.datetime64("NaT")).astype("datetime64[ns]")


def find_format(cells: Sequence[str]) -> tuple[str | None, npt.NDArray[Any]] | None:
    """Find how most cells write dates: a format, None for ISO 8601, and the dates, NaT for other cells.

    If several do, as day and month may be either, the one in which the dates are closest together; of equals the one
    with the month first where clocks say AM or PM, and else the day.

    >>> find_format(["01/02/2024 23:55", "02/02/2024 00:00"])[0]
    '%d/%m/%Y %H:%M'
    """
    known = [cell if _ISO.fullmatch(cell) else None for cell in cells]
    if 2 * known.count(None) < len(cells):
        with suppress(ValueError):
            return None, Times(["time"], [0]).read([known])
    found: list[tuple[Any, str, npt.NDArray[Any]]] = []
    for day, clock in product(_DAYS, _CLOCKS):
        for part in (cells[:20], cells):
            times = formatted_times(pyarrow.array(part, pyarrow.string()), day + clock, strict=False)
            if 2 * np.count_nonzero(~np.isnat(times)) <= len(part):
                break
        else:
            found.append((np.abs(np.diff(times[~np.isnat(times)])).sum(), day + clock, times))
    if not found:
        return None
    return min(found, key=lambda one: (one[0], one[1].endswith("%p") != one[1].startswith("%m")))[1:]
