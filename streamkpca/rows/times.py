"""Times of rows: dates of any kind, as ``datetime64`` in UTC, or numbers; given beside the rows or in their table."""

from datetime import UTC, date
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import measure_steps
from streamkpca.rows.validation import arrow_table, is_arrow_table

# The first date that steps in nanoseconds tell exactly.
_FIRST = np.datetime64("1678", "D")
# The date after the last one.
_LAST = np.datetime64("2262", "D")
# Units of dates, and the one that they are told in: years and months differ in length.
_UNITS = {"Y": "D", "M": "D", "W": "D", "ps": "ns", "fs": "ns", "as": "ns"}

Time = np.datetime64 | float
Times = npt.NDArray[Any]


def without_times(X: Any, time: Any) -> tuple[Any, Any]:
    """Return rows and their times: `time`, the column of that name, or without any, the dates that index a table."""
    X = arrow_table(X)
    if time is None:
        index = getattr(X, "index", None)
        return X, index if getattr(getattr(index, "dtype", None), "kind", "") == "M" else None
    if not isinstance(time, str):
        return X, time
    names = X.schema.names if is_arrow_table(X) else list(getattr(X, "columns", ()))
    if time not in names:
        raise ValueError(
            f"expected time to name a column of X but got {time!r}, and X has "
            f"{f'the columns {names}' if names else 'no names'}; pass one of them, or a time a row"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"X has several columns of one name among {names}; rename them, or pass the times")
    rest = [name for name in names if name != time]
    return (X.select(rest) if is_arrow_table(X) else X[rest]), X[time]


def as_times(times: Any, count: int, last: Time | None) -> tuple[Times, npt.NDArray[np.float64]]:
    """Return times (n,), as ``datetime64`` or float64, and seconds since the one before; `last` precedes the first.

    Dates with a zone become UTC, and those without one count as UTC. Durations become seconds.
    """
    values = np.asarray(times)
    if values.shape != (count,):
        raise ValueError(f"expected one time for each of {count} rows but got shape {values.shape}; pass a time a row")
    values = in_utc(values)
    kind = values.dtype.kind
    if kind == "M":
        unit = np.datetime_data(values.dtype)[0]
        values = values.astype(f"datetime64[{_UNITS.get(unit, unit)}]")
        usable = (values >= _FIRST) & (values < _LAST)
    elif kind in "miuf":
        values = values / np.timedelta64(1, "s") if kind == "m" else values.astype(np.float64)
        usable = np.isfinite(values)
    else:
        raise TypeError(
            f"expected times as numbers or dates but got {values.dtype} values; pass seconds, datetime64 or "
            "datetime, such as pandas.to_datetime returns"
        )
    if not usable.all():
        row = int(np.argmin(usable))
        raise ValueError(
            f"expected finite times but that of row {row} is {values[row]}; leave such rows out, and dates "
            "before 1678 or after 2261"
        )
    if last is not None and isinstance(last, np.datetime64) != (kind == "M"):
        raise TypeError(
            f"expected times of one kind, but that of the last row was {last} and now comes {values[0]}; pass "
            "dates or numbers throughout, or call reset() where a new recording begins"
        )
    before = values[:1] if last is None else np.array([last])
    steps = measure_steps(np.concatenate([before, values]).astype("datetime64[ns]" if kind == "M" else np.float64))
    if (steps < 0).any():
        row = int(np.argmax(steps < 0))
        raise ValueError(
            f"expected ascending times but that of row {row} is {-steps[row]:.6g} before the last one; "
            "sort the rows by time, or call reset() where a new recording begins"
        )
    return values, steps


def in_utc(values: Times) -> Times:
    """Return ``datetime64`` for dates that are objects, in UTC if they have a zone, and other arrays as they are."""
    if values.dtype == object and all(isinstance(value, date) for value in values):
        return np.array([_in_utc(value) for value in values], dtype=None if len(values) else "datetime64[ns]")
    return values


def _in_utc(value: Any) -> np.datetime64:
    if hasattr(value, "to_datetime64"):
        # Of pandas, to the nanosecond, or its NaT.
        return np.datetime64(value.to_datetime64())
    zone = getattr(value, "tzinfo", None)
    return np.datetime64(value.astimezone(UTC).replace(tzinfo=None) if zone else value)


def time_of(times: Times | None, i: int) -> Time | None:
    """Return one of the times, if there are any."""
    if times is None:
        return None
    time = times[i]
    return time if isinstance(time, np.datetime64) else float(time)
