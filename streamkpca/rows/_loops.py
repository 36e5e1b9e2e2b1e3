"""Compiled loops: statistics of the last rows."""

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.jit import jit

_LARGEST = 1.7976931348623157e308


@jit
def _clear(total: Array) -> None:
    """Set counts, means, squared deviations, least and largest numbers (5, d) to those of no rows."""
    total[:3] = 0.0
    total[3] = _LARGEST
    total[4] = -_LARGEST


@jit
def _add(total: Array, row: Array) -> None:
    """Add a row (d,); NaN counts for nothing."""
    for j in range(row.shape[0]):
        x = row[j]
        if x == x:
            total[0, j] += 1.0
            apart = x - total[1, j]
            total[1, j] += apart / total[0, j]
            total[2, j] += apart * (x - total[1, j])
            total[3, j] = min(total[3, j], x)
            total[4, j] = max(total[4, j], x)


@jit
def window_statistics(rows: Array, origin: int, first: int, length: int, out: Array) -> None:
    """Write mean, standard deviation and range (n, 3 d) of the last `length` rows for each of the rows from `first` on.

    Rows (k, d) have the numbers origin, origin + 1, ..., of which `first` is length - 1 or more, and the one that
    `rows` begin with is the first of a block of `length`, or earlier. A window is the end of one such block and the
    beginning of the next (van Herk 1992), so no sum runs on, and no bit depends on where `rows` begin. O(d) a row.
    A number that is missing in more than half of a window has no statistics: NaN.
    """
    d = rows.shape[1]
    ends, begun = np.empty((length + 1, 5, d)), np.empty((5, d))
    _clear(ends[length])
    _clear(begun)
    block = first - first % length - length
    for number in range(max(block, origin), origin + rows.shape[0]):
        place = number % length
        _add(begun, rows[number - origin])
        if number >= first:
            for j in range(d):
                n_old, n_new = ends[place + 1, 0, j], begun[0, j]
                n = n_old + n_new
                if 2.0 * n < length:
                    out[number - first, j] = out[number - first, d + j] = out[number - first, 2 * d + j] = np.nan
                    continue
                apart, share = begun[1, j] - ends[place + 1, 1, j], n_new / n
                squares = ends[place + 1, 2, j] + begun[2, j] + apart * apart * n_old * share
                mean = ends[place + 1, 1, j] + apart * share
                least = min(ends[place + 1, 3, j], begun[3, j])
                largest = max(ends[place + 1, 4, j], begun[4, j])
                out[number - first, j] = mean
                out[number - first, d + j] = np.sqrt(squares / n)
                out[number - first, 2 * d + j] = largest - least
        if place == length - 1:
            for k in range(length - 1, 0, -1):
                ends[k] = ends[k + 1]
                _add(ends[k], rows[number - origin - length + 1 + k])
            _clear(begun)
