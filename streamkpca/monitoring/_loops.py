"""Compiled loops of change detection: moving averages of many columns at several rates, and when they pass a level.

Notation, in all loops:
    h (p,): the columns of a row, 0 on average; e (K, p): their exponentially weighted averages, at K rates r.
    V = precision (K, p): one over the healthy variances of e.
    bounds (G + 1,): groups of neighbouring columns. The statistic of one is the mean of V e^2, of those from number
    `n_means` on the largest.
    power, scale (K, G): (statistic / scale)^power is exponential for healthy rows.
"""

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.jit import jit


@jit
def fill_row(few: Array, first: int, f: int, mean: Array, scale: Array, h: Array) -> None:
    """Write the columns (p,) of a row: the given few, then the products of any two of the f of them from `first` on."""
    p = len(few)
    for j in range(p):
        h[j] = few[j]
    for i in range(first, first + f):
        for j in range(i, first + f):
            h[p] = (few[i] * few[j] - mean[p - len(few)]) / scale[p - len(few)]
            p += 1


@jit
def fill(few: Array, first: int, f: int, mean: Array, scale: Array, out: Array) -> None:
    """Write the columns (n, p) of rows, see `fill_row`."""
    for i in range(len(few)):
        fill_row(few[i], first, f, mean, scale, out[i])


@jit
def advance_row(
    h: Array, e: Array, rates: Array, precision: Array, bounds: Positions, n_means: int, statistics: Array
) -> None:
    """Take a row into the averages, and write the statistics (K, G)."""
    for k in range(len(rates)):
        for g in range(len(bounds) - 1):
            total = 0.0
            if g == len(bounds) - 2 and rates[k] == 1.0:
                statistics[k, g] = 0.0
                continue
            for j in range(bounds[g], bounds[g + 1]):
                e[k, j] += rates[k] * (h[j] - e[k, j])
                square = e[k, j] * e[k, j] * precision[k, j]
                if g < n_means:
                    total += square
                elif square > total:
                    total = square
            statistics[k, g] = total / max(bounds[g + 1] - bounds[g], 1) if g < n_means else total


@jit
def largest(statistics: Array, power: Array, scale: Array) -> tuple[float, int]:
    """Return the largest statistic on the common scale, and its place among the K G of them."""
    best, place = 0.0, 0
    for k in range(statistics.shape[0]):
        for g in range(statistics.shape[1]):
            value = (statistics[k, g] / scale[k, g]) ** power[k, g]
            if value > best:
                best, place = value, k * statistics.shape[1] + g
    return best, place


@jit
def follow(
    few: Array,
    first: int,
    f: int,
    mean: Array,
    product_scale: Array,
    e: Array,
    rates: Array,
    precision: Array,
    bounds: Positions,
    n_means: int,
    power: Array,
    scale: Array,
    level: float,
    values: Array,
) -> tuple[int, int]:
    """Take rows into the averages up to the first that passes the level; write the statistic of each (n,).

    Rows are given as in `fill_row`.

    Returns the number of rows taken, and the place of the last largest statistic, or -1 if none passed.
    """
    statistics, h = np.empty((len(rates), len(bounds) - 1)), np.empty(e.shape[1])
    for i in range(len(few)):
        fill_row(few[i], first, f, mean, product_scale, h)
        advance_row(h, e, rates, precision, bounds, n_means, statistics)
        values[i], place = largest(statistics, power, scale)
        if values[i] > level:
            return i + 1, place
    return len(few), -1


@jit
def sample(
    rows: Array,
    starts: Positions,
    length: int,
    rates: Array,
    precision: Array,
    bounds: Positions,
    n_means: int,
    first: int,
    every: int,
    squares: Array,
    found: Array,
) -> None:
    """Add up e^2 (K, p), and write the statistics (S, K, G), of every so many rows of resampled streams.

    Stream number i is the runs of `length` rows (n, p) that begin at `starts[i]`, one after the other.
    """
    statistics = np.empty((len(rates), len(bounds) - 1))
    e = np.empty(precision.shape)
    s = 0
    for i in range(starts.shape[0]):
        e[:] = 0.0
        for t in range(starts.shape[1] * length):
            advance_row(rows[starts[i, t // length] + t % length], e, rates, precision, bounds, n_means, statistics)
            if t >= first and t % every == 0 and s < len(found):
                found[s] = statistics
                squares += e * e
                s += 1


@jit
def first_passages(
    rows: Array,
    errors: Array,
    starts: Positions,
    length: int,
    rates: Array,
    precision: Array,
    bounds: Positions,
    n_means: int,
    power: Array,
    scale: Array,
    levels: Array,
    passed: Positions,
) -> None:
    """Write the number of rows (R, Q) after which resampled streams first passed each ascending level (Q,), or -1.

    `errors` (R, p) are taken from the rows of each stream, as in `sample`.
    """
    statistics = np.empty((len(rates), len(bounds) - 1))
    e, h = np.empty(precision.shape), np.empty(precision.shape[1])
    for i in range(starts.shape[0]):
        e[:] = 0.0
        next_level = 0
        for q in range(len(levels)):
            passed[i, q] = -1
        for t in range(starts.shape[1] * length):
            row = starts[i, t // length] + t % length
            for j in range(len(h)):
                h[j] = rows[row, j] - errors[i, j]
            advance_row(h, e, rates, precision, bounds, n_means, statistics)
            value, _ = largest(statistics, power, scale)
            while next_level < len(levels) and value > levels[next_level]:
                passed[i, next_level] = t + 1
                next_level += 1
            if next_level == len(levels):
                break
