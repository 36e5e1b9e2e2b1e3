"""Shifts: which means, spreads and correlations of features moved with a change of distribution."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtrit

from streamkpca._core.arrays import Array
from streamkpca.changes.autocorrelation import average_blocks

# Features of rows whose correlations are compared, at most.
MOST_FEATURES = 24
# Chance that a feature is named which did not move.
_BY_CHANCE = 0.01
# Rows that show a spread or a correlation, at least.
_LEAST_FOR_SPREAD = 10
# Shifts that are named, at most.
_MOST_SHIFTS = 5
# Standardised numbers are cut here, so that their squares can be added up.
_LARGEST_SCORE = 1e9


class Shift(NamedTuple):
    """A mean, spread or correlation that moved with a change of distribution.

    Parameters
    ----------
    feature : str or int
        Name or position of the feature.
    direction : {"mean up", "mean down", "spread up", "spread down", "correlation up", "correlation down"}
    before, after : float
        Mean, standard deviation or correlation of the rows that it is compared with, and of those since the change.
    other : str or int, optional
        The other feature of a correlation.

    Examples
    --------
    >>> from streamkpca.changes import Shift
    >>> Shift("flow", "mean up", 2.0, 2.5).direction
    'mean up'
    """

    feature: str | int
    direction: str
    before: float
    after: float
    other: str | int | None = None


@dataclass(frozen=True)
class FeatureMoments:
    """The `mean` and `deviation` (d,) of features in `n_rows` rows, and how well they are known.

    `error` (2, d) is the standard error of a mean of standardised features, 0 for constant ones, and of their squares,
    times the square root of the rows. `correlation` (f, f) is that of features, if these are few.
    """

    n_rows: int
    mean: Array
    deviation: Array
    error: Array
    correlation: Array


def measure_moments(rows: Array, length: int) -> FeatureMoments:
    """Return the moments of rows (n, d), of which blocks of that length are not correlated."""
    n, d = rows.shape
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    # A feature that never varied has no scale, and counts in its own units.
    deviation[deviation <= 1e-9 * np.abs(mean)] = 1.0
    scores = (rows - mean) / deviation
    both = np.concatenate([scores, scores**2 - 1.0], axis=1)
    # From means of blocks, as neighbours are correlated.
    error = np.maximum(average_blocks(both, length).std(axis=0) * math.sqrt(length), both.std(axis=0)).reshape(2, d)
    error[0, error[0] < 1e-9] = 0.0
    # The squares of a feature with two values never vary.
    error[1] = np.maximum(error[1], 0.1)
    correlation = scores.T @ scores / n if d <= MOST_FEATURES else np.empty((0, 0))
    return FeatureMoments(n, mean, deviation, error, correlation)


def find_shifts(moments: FeatureMoments, rows: Array, names: list[str] | None) -> tuple[Shift, ...]:
    """Return the means, spreads and correlations of rows (n, d) that differ from others, the surest first."""
    n, d = rows.shape
    named: list[str | int] = [*(range(d) if names is None else names)]
    # Rows that tell as much as both sides together.
    n_both = n / (1.0 + n / moments.n_rows)
    with np.errstate(all="ignore"):
        scores = np.clip((rows - moments.mean) / moments.deviation, -_LARGEST_SCORE, _LARGEST_SCORE)
        middle, variance = scores.mean(axis=0), scores.var(axis=0, ddof=min(n - 1, 1))
        # A feature that never varied counts in its own units.
        constant = moments.error[0] == 0.0
        error = np.where(constant, 1.0, moments.error)
        variance = np.where(constant, np.maximum(variance, 1.0), variance)
        i = j = np.arange(d)
        size, after = middle * math.sqrt(n_both) / error[0], moments.mean + middle * moments.deviation
        compared: list[tuple[Any, ...]] = [("mean", i, j, size, moments.mean, after)]
        if n >= _LEAST_FOR_SPREAD:
            # Logarithms are compared, as the variance of a small sample is skewed.
            size = np.log(np.maximum(variance, 1e-12)) * math.sqrt(n_both) / error[1]
            compared.append(("spread", i, j, size, moments.deviation, np.sqrt(variance) * moments.deviation))
        if n >= _LEAST_FOR_SPREAD and len(moments.correlation):
            away = (scores - middle) / np.where(variance > 0.0, np.sqrt(variance), 1.0)
            before, after = (np.clip(r, -0.999, 0.999) for r in (moments.correlation, away.T @ away / (n - 1)))
            moved = (np.arctanh(after) - np.arctanh(before)) * math.sqrt(max(n_both - 3.0, 0.0))
            moved /= np.maximum(np.sqrt(np.outer(error[0], error[0])), 1.0)
            varies = (variance > 0.0) & ~constant
            i, j = np.nonzero(np.triu(np.outer(varies, varies), 1))
            compared.append(("correlation", i, j, moved[i, j], before[i, j], after[i, j]))
    found = []
    for what, *columns in compared:
        for i, j, size, before, after in zip(*(column.tolist() for column in columns), strict=True):
            direction = f"{what} {'up' if size > 0.0 else 'down'}"
            found.append((abs(size), Shift(named[i], direction, before, after, named[j] if j > i else None)))
    # Student's distribution, as few rows hardly know their own spread.
    level = float(stdtrit(moments.n_rows - 1.0, 1.0 - _BY_CHANCE / 2.0 / len(found)))
    found.sort(key=lambda entry: -entry[0])
    return tuple(shift for size, shift in found[:_MOST_SHIFTS] if size > level)
