"""The phase of a cycle: a condition that rows are compared under, as two columns behind their features."""

import math
from typing import Any

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.parameters import check_integer
from streamkpca.kernels import RBF, Kernel
from streamkpca.kernels.base import OnColumns, Product
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.monitoring.rules import as_seconds, is_count
from streamkpca.rows.times import Times

Period = int | float | None

# Standard deviation of the kernel of phases, as a share of the period: an hour of a day, in which people come, machines
# warm up, the sun rises; seven hours of a week, which tell a day from a night. On six families of made streams, false
# alarms at equal recall were .4 to 1.2 times those with twice the width, and half of it gave up to 2.6 times as many.
_WIDTH = 1.0 / 24.0
# Columns of a phase t: cos(2 pi t) and sin(2 pi t).
_PHASES = 2


def check_period(period: Any) -> Period:
    """Return a period in rows as an integer, and one in time as a float, in seconds if it is a timedelta."""
    if period is None:
        return None
    if is_count(period):
        return check_integer("period, in rows,", period, least=2)
    return as_seconds("period", period)


def n_phases(period: Period) -> int:
    """Return how many columns follow the features."""
    return 0 if period is None else _PHASES


def n_features_of(n_seen: int, lags: int, period: Period) -> int:
    """Return how many features rows have of which a model sees `n_seen` numbers, with their predecessors and phases."""
    return (n_seen - n_phases(period)) // lags


def with_phases(rows: Array, period: Period, first: int, times: Times | None) -> Array:
    """Append the phases to rows (n, d), from position `first` on: (n, d + 2); without a period, return the rows."""
    if period is None:
        return rows
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


def kernel_with_phases(kernel: Kernel, d: int) -> Kernel:
    """Return the product of a kernel of d columns and one of the phases; a kernel that is such a product stays.

    With r = 2 pi _WIDTH, that of phases is exp(-(1 - cos 2 pi (s - t)) / r^2), near exp(-(2 pi (s - t))^2 / (2 r^2)).
    """
    if has_phases(kernel, d):
        return kernel
    return kernel.on(range(d)) * RBF(0.5 / (2.0 * math.pi * _WIDTH) ** 2).on((d, d + 1))


def check_knows_phases(model: StreamingKernelPCA) -> None:
    """Refuse a model that has learned rows without phases, whose kernel cannot change any more."""
    if not has_phases(model.kernel_, model.n_features_in_ - _PHASES):
        raise ValueError(
            f"with a period the model should see phases, but it has learned rows of {model.n_features_in_} "
            f"features with the kernel {model.kernel_!r}, which compares none; pass a model that has learned nothing, "
            "or the model of a monitor with a period"
        )
