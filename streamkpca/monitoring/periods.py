"""Lengths in rows or in time, and the phase of a cycle: two columns behind the features, as a condition of rows."""

import math
from datetime import timedelta
from typing import Any

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.parameters import check_integer, check_real
from streamkpca.kernels import RBF, Kernel
from streamkpca.kernels.base import OnColumns, Product
from streamkpca.rows.times import Time, Times
from streamkpca.stream import State

Period = int | float | None

# Standard deviation of the kernel of phases, as a share of the period: an hour of a day, in which people come, machines
# warm up, the sun rises; seven hours of a week, which tell a day from a night. On six families of made streams, false
# alarms at equal recall were .4 to 1.2 times those with twice the width, and half of it gave up to 2.6 times as many.
_WIDTH = 1.0 / 24.0
# Columns of a phase t: cos(2 pi t) and sin(2 pi t).
_PHASES = 2


def check_length(name: str, value: Any, *, least: int) -> int | float:
    """Return a length in rows as an integer, and one in time as a float, in seconds if it is a timedelta."""
    # numpy takes its durations for integers.
    if isinstance(value, timedelta | np.timedelta64) or not isinstance(value, int | np.integer):
        return as_seconds(name, value)
    return check_integer(f"{name}, in rows,", value, least=least)


def as_seconds(name: str, value: Any) -> float:
    """Return a positive duration, in seconds if it is a timedelta."""
    if isinstance(value, str):
        raise TypeError(f"{name} must be a number or a timedelta, got {value!r}; for a day pass timedelta(days=1)")
    if isinstance(value, timedelta | np.timedelta64):
        if np.datetime_data(np.timedelta64(value).dtype)[0] in ("Y", "M"):
            raise TypeError(f"{name} must have a length, but months and years differ, got {value!r}; give days")
        value = float(np.timedelta64(value) / np.timedelta64(1, "s"))
    return check_real(name, value, least=0.0, open_below=True)


def time_passed(first: Time | None, last: Time | None) -> float:
    """Return the time from one row to another, in seconds if these are dates; 0 without times."""
    passed: Any = 0.0 if first is None or last is None else last - first  # type: ignore[operator]
    return float(passed / np.timedelta64(1, "s") if isinstance(passed, np.timedelta64) else passed)


def n_phases(period: Period) -> int:
    """Return how many columns follow the features."""
    return 0 if period is None else _PHASES


def n_features_of(n_seen: int, period: Period) -> int:
    """Return how many features rows have of which a model sees `n_seen` numbers, the phases among them."""
    return n_seen - n_phases(period)


def append_phases(rows: Array, period: int | float, first: int, times: Times | None) -> Array:
    """Append the phases to rows (n, d), from position `first` on: (n, d + 2)."""
    if isinstance(period, int):
        shares = (first + np.arange(len(rows))) % period / period
    elif times is None:
        raise ValueError(f"period is a time, {period:g}, but rows have none; pass time=, or a whole number of rows")
    elif times.dtype.kind == "M":
        # In whole nanoseconds, as a float has too few digits for a date.
        length = round(1e9 * period)
        if not 1 <= length < 2**63:
            raise ValueError(
                f"expected a period of 1e-9 to 9e9 seconds for rows with dates but got {period:g}; give a "
                "timedelta, as in timedelta(days=1)"
            )
        shares = times.astype("datetime64[ns]").astype(np.int64) % length / length
    else:
        shares = np.mod(times, period) / period
    # By rows, as vectorised functions may round a row by its place; in single precision, which all models keep.
    angles = (2.0 * math.pi * shares).tolist()
    phases = np.array([(math.cos(angle), math.sin(angle)) for angle in angles], dtype=np.float32)
    return np.hstack([rows, phases.reshape(-1, _PHASES)])


def has_passed(period: Period, n_rows: int, time: float) -> bool:
    """Tell whether the stream has gone through a period, before which each phase is new, and there is no threshold."""
    return period is None or (n_rows > period if isinstance(period, int) else time >= period)


def has_phases(kernel: Kernel, d: int) -> bool:
    """Tell whether a kernel is a product with one of the two columns after d others."""
    right = kernel.right if isinstance(kernel, Product) else None
    return isinstance(right, OnColumns) and right.columns == (d, d + 1)


def add_phases(kernel: Kernel, d: int) -> Kernel:
    """Return the product of a kernel of d columns and one of the phases; a kernel that is such a product stays.

    With r = 2 pi _WIDTH, that of phases is exp(-(1 - cos 2 pi (s - t)) / r^2), near exp(-(2 pi (s - t))^2 / (2 r^2)).
    """
    if has_phases(kernel, d):
        return kernel
    return kernel.on(range(d)) * RBF(0.5 / (2.0 * math.pi * _WIDTH) ** 2).on((d, d + 1))


def check_stacked(model: State, period: Period) -> None:
    """Refuse a model that has learned rows without phases, as its kernel cannot change any more."""
    n_learned = model.n_features - n_phases(period)
    if period is not None and not has_phases(model.settled_kernel, n_learned):
        raise ValueError(
            f"with a period the model should see phases, but it has learned rows of {model.n_features} "
            f"features with the kernel {model.settled_kernel!r}, which compares none; pass a model that has learned "
            "nothing, or the model of a monitor with a period"
        )
