"""Numbers that stand for gaps: those that loggers write where they have none."""

import numpy as np
import numpy.typing as npt

_SENTINELS = (
    -999.0, -9999.0, -99999.0, -999.9, -999.99, -9999.9, -999.25, -99.9, -99.0, -88.8, -6999.0, 7999.0, 999.9, 9999.0,
    9999.9, 99999.0, 999999.0, 32767.0, -32768.0, 65535.0, 2147483647.0, -2147483648.0, 4294967295.0, 1e20, -1e20, 1e30,
    -1e30,
)  # fmt: skip
# Ranges of all other numbers that such a number is away from them.
_FAR = 3.0
# Numbers below this are no readings where all others are above 0.
_BELOW = -900.0
# Fewer other numbers tell nothing.
_LEAST = 10


def find_sentinels(values: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """Find the numbers that stand for gaps: those of loggers that are far outside all others, or below 0 alone.

    They need not be in these rows. A number that only repeats far outside is a reading, as of a sensor that failed.

    >>> find_sentinels(np.array([20.0, 21.5, -999.0, 20.5, 19.0, 22.0, 21.0, 20.0, 19.5, 20.1, 20.2, 85.0, 85.0]))[:3]
    (-999.0, -9999.0, -99999.0)
    """
    # Some tables have very many columns of few rows.
    others = values[~np.isnan(values) & ~np.isin(values, _SENTINELS)] if len(values) >= _LEAST else values[:0]
    if len(others) < _LEAST:
        return ()
    low, high = float(others.min()), float(others.max())
    reach = _FAR * max(high - low, abs(low), abs(high))
    return tuple(one for one in _SENTINELS if one < low - reach or one > high + reach or (low >= 0.0 and one < _BELOW))
