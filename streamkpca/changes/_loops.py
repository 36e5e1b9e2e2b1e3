"""Compiled loops: moving averages of columns, and when they pass a level."""

import math
from typing import Any

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.jit import jit

# Charts: moving averages of many columns at several rates, and when they pass a level.
#
# h (p,): the columns of a row, 0 on average; e (K, p): their exponentially weighted averages.
# plan: rates r (K,); precision V (K, p), one over the healthy variances of e; bounds (G + 1,) of groups of neighbouring
# columns; power and scale (K, G). The statistic of a group is the mean of V e^2 in the first two, the largest in the
# others; (statistic / scale)^power is exponential for healthy rows.
_N_MEANS = 2
_LARGEST = 1e30


@jit
def scale_columns(rows: Array, middle: Array, bound: Array, scale: Array) -> None:
    """Centre and scale rows (n, p) in place; deviations x beyond a bound b count as b (1 + log(x / b))."""
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            x = rows[i, j] - middle[j]
            # Overflown numbers are as large as any column may be, and NaN is 0.
            x = min(max(x, -_LARGEST), _LARGEST) if x == x else 0.0
            far = abs(x) / bound[j]
            if far > 1.0:
                x = x / far * (1.0 + math.log(far))
            rows[i, j] = x / scale[j]


@jit
def fill_row(few: Array, products: Any, h: Array) -> None:
    """Write the columns (p,) of a row: the given few, then the products of any two of the f of them from `first` on."""
    first, f, mean, scale = products
    p = len(few)
    for j in range(p):
        h[j] = few[j]
    for i in range(first, first + f):
        for j in range(i, first + f):
            h[p] = (few[i] * few[j] - mean[p - len(few)]) / scale[p - len(few)]
            p += 1


@jit
def fill_rows(few: Array, products: Any, out: Array) -> None:
    """Write the columns (n, p) of rows, see `fill_row`."""
    for i in range(len(few)):
        fill_row(few[i], products, out[i])


@jit
def advance_averages(h: Array, e: Array, plan: Any, statistics: Array) -> None:
    """Take a row into the averages, and write the statistics (K, G); 0 for products in one row alone."""
    rates, precision, bounds, _, _ = plan
    for k in range(len(rates)):
        for g in range(len(bounds) - 1):
            total = 0.0
            if g == len(bounds) - 2 and rates[k] == 1.0:
                statistics[k, g] = 0.0
                continue
            for j in range(bounds[g], bounds[g + 1]):
                e[k, j] += rates[k] * (h[j] - e[k, j])
                square = e[k, j] * e[k, j] * precision[k, j]
                if g < _N_MEANS:
                    total += square
                elif square > total:
                    total = square
            statistics[k, g] = total / max(bounds[g + 1] - bounds[g], 1) if g < _N_MEANS else total


@jit
def largest_statistic(statistics: Array, plan: Any) -> Any:
    """Return the largest statistic on the common scale, and its place among the K G of them."""
    _, _, _, power, scale = plan
    best, place = 0.0, 0
    for k in range(statistics.shape[0]):
        for g in range(statistics.shape[1]):
            value = (statistics[k, g] / scale[k, g]) ** power[k, g]
            if value > best:
                best, place = value, k * statistics.shape[1] + g
    return best, place


@jit
def follow_averages(few: Array, products: Any, e: Array, plan: Any, level: float, values: Array) -> Any:
    """Take rows into averages, up to the first that passes the level; write the statistic of each.

    Rows are given as in `fill_row`. Returns the number of rows taken, and the place of the last largest statistic, or
    -1 if none passed.
    """
    statistics, h = np.empty(plan[3].shape), np.empty(e.shape[1])
    for i in range(len(few)):
        fill_row(few[i], products, h)
        advance_averages(h, e, plan, statistics)
        values[i], place = largest_statistic(statistics, plan)
        if values[i] > level:
            return i + 1, place
    return len(few), -1


@jit
def sample_averages(rows: Array, starts: Positions, reading: Any, plan: Any, squares: Array, found: Array) -> None:
    """Add up e^2 in `squares` (K, p), and write the statistics (S, K, G), of some rows of streams.

    Stream number i is the runs of `length` rows (n, p) that begin at `starts[i]`, one after the other; of each, every
    so many rows are read from the first on.
    """
    length, first, every = reading
    statistics, e, s = np.empty(plan[3].shape), np.empty(squares.shape), 0
    for i in range(starts.shape[0]):
        e[:] = 0.0
        for t in range(starts.shape[1] * length):
            advance_averages(rows[starts[i, t // length] + t % length], e, plan, statistics)
            if t >= first and t % every == 0:
                found[s] = statistics
                squares += e * e
                s += 1


@jit
def first_passages(
    rows: Array, errors: Array, starts: Positions, length: int, e: Array, plan: Any, levels: Array, passed: Positions
) -> None:
    """Write the number of rows (R, Q) after which resampled streams first passed each ascending level (Q,), or -1.

    `errors` (R, p) are taken from the rows of each stream; these are put together as in `sample_averages`.
    """
    statistics, h = np.empty(plan[3].shape), np.empty(rows.shape[1])
    for i in range(starts.shape[0]):
        e[:] = 0.0
        passed[i] = -1
        q = 0
        for t in range(starts.shape[1] * length):
            row = starts[i, t // length] + t % length
            for j in range(len(h)):
                h[j] = rows[row, j] - errors[i, j]
            advance_averages(h, e, plan, statistics)
            value, _ = largest_statistic(statistics, plan)
            while q < len(levels) and value > levels[q]:
                passed[i, q] = t + 1
                q += 1
            if q == len(levels):
                break
