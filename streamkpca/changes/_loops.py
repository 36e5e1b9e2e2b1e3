"""Compiled loops of charts: moving averages of many columns at several rates, and when they pass a level.

Notation: h (n, p) columns of rows, 0 on average; e (K, p) their exponentially weighted averages.

* weights: rates (K,); precision (K, p), one over the healthy variances of e; bounds (G + 1,) of groups of neighbouring
  columns. The statistic of a group is the mean of precision e^2 in the first two groups, the largest in the others.
* tails: power and scale (K, G). (statistic / scale)^power is exponential for healthy rows.
"""

import math
from typing import Any, Final

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.jit import jit

# Groups whose statistic is a mean.
N_MEANS: Final = 2
# Numbers become no larger than this.
_LARGEST = 1e30


@jit
def scale_columns(h: Array, middle: Array, bound: Array, scale: Array) -> None:
    """Centre and scale the first columns in place; deviations x beyond a bound b count as b (1 + log(x / b))."""
    for i in range(len(h)):
        for j in range(len(middle)):
            x = h[i, j] - middle[j]
            # Overflown numbers are as large as any column may be, and NaN is 0.
            x = min(max(x, -_LARGEST), _LARGEST) if x == x else 0.0
            far = abs(x) / bound[j]
            if far > 1.0:
                x = x / far * (1.0 + math.log(far))
            h[i, j] = x / scale[j]


@jit
def fill_products(h: Array, first: int, mean: Array, scale: Array) -> None:
    """Write the last columns: the products of any two, from the first given up to two before them, less their mean."""
    start = h.shape[1] - len(mean)
    for row in h:
        t = 0
        for i in range(first, start - 2):
            for j in range(i, start - 2):
                row[start + t] = (row[i] * row[j] - mean[t]) / scale[t]
                t += 1


@jit
def advance_averages(row: Array, e: Array, weights: Any, statistics: Array) -> None:
    """Take a row (p,) into the averages, and write the statistics (K, G); 0 for products in one row alone."""
    rates, precision, bounds = weights
    for k in range(len(rates)):
        for g in range(len(bounds) - 1):
            # The products of one row alone tell nothing new.
            is_own = g == len(bounds) - 2 and rates[k] == 1.0
            total = 0.0
            for j in range(bounds[g], bounds[g] if is_own else bounds[g + 1]):
                e[k, j] += rates[k] * (row[j] - e[k, j])
                square = e[k, j] * e[k, j] * precision[k, j]
                if g < N_MEANS:
                    total += square
                elif square > total:
                    total = square
            statistics[k, g] = total / max(bounds[g + 1] - bounds[g], 1) if g < N_MEANS else total


@jit
def follow_averages(h: Array, e: Array, weights: Any, tails: Any, level: float, values: Array) -> Any:
    """Take rows into averages, up to the first that passes the level; write the largest statistic (n,) of each.

    Returns the number of rows taken, and the place of the last one among the K G statistics, or -1 if none passed.
    """
    power, scale = tails
    statistics = np.empty(power.shape)
    for i in range(len(h)):
        advance_averages(h[i], e, weights, statistics)
        values[i], place = 0.0, 0
        for k in range(statistics.shape[0]):
            for g in range(statistics.shape[1]):
                value = (statistics[k, g] / scale[k, g]) ** power[k, g]
                if value > values[i]:
                    values[i], place = value, k * statistics.shape[1] + g
        if values[i] > level:
            return i + 1, place
    return len(h), -1


@jit
def sample_averages(
    h: Array, streams: Positions, reading: Any, weights: Any, squares: Array, statistics: Array
) -> None:
    """Add up e^2 in `squares` (K, p), and write statistics (S, K, G), at some rows of streams (R, T) of rows.

    `reading` is the first row of a stream that is read, and how many rows later the next one is.
    """
    first, step = reading
    found, e, s = np.empty(statistics.shape[1:]), np.empty(squares.shape), 0
    for i in range(streams.shape[0]):
        e[:] = 0.0
        for t in range(streams.shape[1]):
            advance_averages(h[streams[i, t]], e, weights, found)
            if t >= first and (t - first) % step == 0:
                statistics[s] = found
                squares += e * e
                s += 1
