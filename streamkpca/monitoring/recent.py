"""The last rows of a stream: exponentially weighted means and deviations of its columns, beside each row."""

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca.monitoring._loops import average_recent

# Weight of the newest row.
_WEIGHT = 1.0 / 8.0
# Numbers of a column that are related: that of the row, its mean, and its deviation.
N_NUMBERS = 3


def no_averages(d: int) -> Array:
    """Return the averages (2, d) before the first row: means that are unknown, and variances of 0."""
    return np.array([np.full(d, np.nan), np.zeros(d)])


def begin_anew(averages: Array) -> Array:
    """Forget the means, as rows do not follow the last ones; how much columns vary stays."""
    return np.array([np.full(averages.shape[1], np.nan), averages[1]])


def average(rows: Array, averages: Array) -> tuple[Array, Array]:
    """Return the means and deviations (n, 2 d) before each of the rows (n, d), and the averages.

    With weight a, the difference e = x - m and m' = m + a e, the variance becomes (1 - a) (v + a e^2) [1]_. A column
    starts at its first number, and gaps leave it as it is. No bit depends on where a run of rows is cut.

    References
    ----------
    .. [1] T. Finch, "Incremental calculation of weighted mean and variance", 2009, eq. (143).
    """
    averages, found = averages.copy(), np.empty((len(rows), (N_NUMBERS - 1) * rows.shape[1]))
    average_recent(np.ascontiguousarray(rows), _WEIGHT, averages, found)
    return found, averages
