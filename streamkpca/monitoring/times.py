"""Times of rows, as seconds."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt


def in_seconds(times: Any, count: int, where: str) -> npt.NDArray[np.float64]:
    """Return `count` times: numbers as they are, dates as seconds since 1970, durations as seconds.

    Dates without a zone count as UTC.
    """
    values = np.asarray(times)
    if values.shape != (count,):
        raise ValueError(
            f"{where} expected one time for each of {count} rows but got shape {values.shape}; pass a time a row"
        )
    if values.dtype == object and all(isinstance(value, datetime) for value in values):
        zones = [value if value.tzinfo else value.replace(tzinfo=UTC) for value in values]
        seconds = np.array([(value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() for value in zones])
    elif values.dtype.kind == "M":
        seconds = (values - np.datetime64(0, "s")) / np.timedelta64(1, "s")
    elif values.dtype.kind == "m":
        seconds = values / np.timedelta64(1, "s")
    elif values.dtype.kind in "iuf":
        seconds = values.astype(np.float64)
    else:
        raise TypeError(
            f"{where} expected times as numbers or dates but got {values.dtype} values; pass seconds, datetime64 or "
            "datetime, such as pandas.to_datetime returns"
        )
    if not np.isfinite(seconds).all():
        row = int(np.argmin(np.isfinite(seconds)))
        raise ValueError(f"{where} expected finite times but that of row {row} is {values[row]}; leave such rows out")
    return seconds
