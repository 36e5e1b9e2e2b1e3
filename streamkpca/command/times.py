"""Times beside rows, as an axis of a picture."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca.command.terminal import BadInput

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def time_axis(times: Sequence[Any], source: str) -> npt.NDArray[Any]:
    """Make an axis of the times of all rows.

    Parameters
    ----------
    times : sequence of length n
        Numbers or dates, as they stand; the first tells which they are.
    source : str
        Where they come from, for the error text.

    Returns
    -------
    ndarray of shape (n,) of float or datetime64
        Dates in universal time.

    Raises
    ------
    BadInput
        One is missing, is neither a number nor a date, or comes before the one before it.
    """
    axis = _as_axis(times, source)
    steps = np.diff(axis)
    back = np.flatnonzero(steps < np.zeros(1, dtype=steps.dtype))
    if len(back):
        i = int(back[0]) + 1
        raise BadInput(
            f"{source}: expected ascending times but row {i} (from 0) has {times[i]} after {times[i - 1]}; "
            "sort the rows, or leave --time out"
        )
    return axis


def label_dates(axes: "Axes") -> None:
    """Write dates along an axis of times so short that they do not run into each other.

    Parameters
    ----------
    axes : Axes
    """
    from matplotlib import dates as untyped_dates

    dates: Any = untyped_dates
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))


def _as_axis(times: Sequence[Any], source: str) -> npt.NDArray[Any]:
    """Turn times into numbers, or into dates in universal time; the first tells which they are."""
    numbers = np.array([_as_number(when) for when in times])
    if not np.isnan(numbers[0]):
        bad, axis = np.isnan(numbers), numbers
    else:
        axis = np.array([_as_date(when) for when in times])
        bad = np.isnat(axis)
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        raise BadInput(
            f"{source}: expected times, all numbers or all dates such as 2024-05-01T10:00, but row {i} (from 0) has "
            f"{times[i]!r}; mend the column, or leave --time out"
        )
    return axis


def _as_number(when: Any) -> float:
    try:
        number = float(when)
    except (TypeError, ValueError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _as_date(when: Any) -> np.datetime64:
    try:
        date = datetime.fromisoformat(when.strip())
    except (AttributeError, ValueError):
        return np.datetime64("NaT", "us")
    return np.datetime64(date if date.tzinfo is None else date.astimezone(UTC).replace(tzinfo=None), "us")
