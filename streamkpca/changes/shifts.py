"""Shifts: which means, spreads and correlations of features moved with a change of distribution."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from streamkpca._core.parameters import check_choice, check_real
from streamkpca.changes.chart import MOST_FEATURES
from streamkpca.changes.run_lengths import of_runs
from streamkpca.models.saving import read_feature

Array = npt.NDArray[np.float64]

# Chance that a feature is named which did not move.
_BY_CHANCE = 0.01
_LEAST_FOR_SPREAD, _MOST_SHIFTS, _LARGEST_SCORE = 10, 5, 1e9
_DIRECTIONS = tuple(f"{what} {way}" for what in ("mean", "spread", "correlation") for way in ("up", "down"))


class Shift(NamedTuple):
    """A mean, spread or correlation that moved with a change of distribution.

    Parameters
    ----------
    feature : str or int
        Name or position of the feature.
    direction : {"mean up", "mean down", "spread up", "spread down", "correlation up", "correlation down"}
    before, after : float
        Mean, standard deviation or correlation of the rows that it is compared with, and of the rows since the change
        began.
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
class Moments:
    """The `mean` and `deviation` (d,) of features in `n_rows` rows, and how well they are known.

    `error` (2, d) is the standard error of a mean of standardised features, 0 for constant ones, and of their squares,
    times the square root of the rows. `correlation` (f, f) is that of features, if these are few.
    """

    n_rows: int
    mean: Array
    deviation: Array
    error: Array
    correlation: Array


def moments_of(rows: Array, length: int) -> Moments:
    """Return the moments of rows (n, d), of which runs of that length do not resemble each other."""
    n, d = rows.shape
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    # A feature that never varied has no scale, and counts in its own units.
    deviation[deviation <= 1e-9 * np.abs(mean)] = 1.0
    scores = (rows - mean) / deviation
    both = np.concatenate([scores, scores**2 - 1.0], axis=1)
    length = min(length, n)
    # From means of runs, as neighbours resemble each other.
    error = np.maximum(of_runs(both, length).std(axis=0) * math.sqrt(length), both.std(axis=0)).reshape(2, d)
    error[0, error[0] < 1e-9] = 0.0
    # The squares of a feature with two values never vary.
    error[1] = np.maximum(error[1], 0.1)
    correlation = scores.T @ scores / n if d <= MOST_FEATURES else np.empty((0, 0))
    return Moments(n, mean, deviation, error, correlation)


def shifts_of(moments: Moments, rows: Array, names: list[str] | None) -> tuple[Shift, ...]:
    """Return the means, spreads and correlations of rows (n, d) that differ from others, the surest first."""
    (n, d), usual = rows.shape, moments.mean
    called: list[Any] = list(range(d)) if names is None else names
    found: list[tuple[float, Shift]] = []
    # Rows, of which both sides together tell as much.
    n_both = n / (1.0 + n / moments.n_rows)

    def compare(what: str, surprise: float, j: int, before: float, after: float, other: Any = None) -> None:
        direction = f"{what} {'up' if surprise > 0.0 else 'down'}"
        found.append((abs(surprise), Shift(called[j], direction, float(before), float(after), other)))

    with np.errstate(all="ignore"):
        scores = np.clip((rows - usual) / moments.deviation, -_LARGEST_SCORE, _LARGEST_SCORE)
        middle, variance = scores.mean(axis=0), scores.var(axis=0, ddof=min(n - 1, 1))
        # A feature that never varied counts in its own units.
        constant = moments.error[0] == 0.0
        error, variance = (
            np.where(constant, 1.0, moments.error),
            np.where(constant, np.maximum(variance, 1.0), variance),
        )
        for j, surprise in enumerate((middle * math.sqrt(n_both) / error[0]).tolist()):
            compare("mean", surprise, j, usual[j], usual[j] + middle[j] * moments.deviation[j])
        if n >= _LEAST_FOR_SPREAD:
            # Logarithms are compared, as the variance of a small sample is skewed.
            spread = np.sqrt(variance) * moments.deviation
            for j, surprise in enumerate((np.log(np.maximum(variance, 1e-12)) * math.sqrt(n_both) / error[1]).tolist()):
                compare("spread", surprise, j, moments.deviation[j], spread[j])
            away = (scores - middle) / np.where(variance > 0.0, np.sqrt(variance), 1.0)
            before, after = (np.clip(r, -0.999, 0.999) for r in (moments.correlation, away.T @ away / (n - 1)))
            if len(before):
                moved = (np.arctanh(after) - np.arctanh(before)) * math.sqrt(max(n_both - 3.0, 0.0))
                moved /= np.maximum(np.sqrt(np.outer(error[0], error[0])), 1.0)
                for i, j in zip(*(k.tolist() for k in np.triu_indices(d, 1)), strict=True):
                    if variance[i] > 0.0 and variance[j] > 0.0 and not constant[i] and not constant[j]:
                        compare("correlation", float(moved[i, j]), i, before[i, j], after[i, j], called[j])
    # Student's distribution, as few rows hardly know their own spread.
    level = float(stdtrit(moments.n_rows - 1.0, 1.0 - _BY_CHANCE / 2.0 / len(found)))
    found.sort(key=lambda entry: -entry[0])
    return tuple(shift for surprise, shift in found[:_MOST_SHIFTS] if surprise > level)


def read_shift(feature: Any, direction: Any, before: Any, after: Any, other: Any) -> Shift:
    """Make a shift of an entry of a file, and check it."""
    first, last = (check_real("shift", value, where="state") for value in (before, after))
    direction = check_choice("direction", direction, choices=_DIRECTIONS, where="state")
    return Shift(read_feature(feature), direction, first, last, None if other is None else read_feature(other))
