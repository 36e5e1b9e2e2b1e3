"""Types of arrays, and steps between times."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
# Row numbers, and positions of rows in a stream; `Indices` are those that numpy's searches return.
Positions = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
Names = npt.NDArray[np.object_]


def measure_steps(times: npt.NDArray[Any]) -> Array:
    """Return the steps between times, of dates in seconds: numpy refuses those of more than 292 years."""
    if times.dtype.kind != "M":
        return np.diff(times)
    counts = times.astype("datetime64[ns]").astype(np.int64)
    steps = np.diff(counts.astype(np.float64))
    # Whole nanoseconds, unless they overflow.
    return np.where(np.abs(steps) < 2.0**62, np.diff(counts), steps) / 1e9
