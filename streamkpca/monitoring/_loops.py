"""Compiled loops: the level of healthy scores, and moving averages of scores."""

import math

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.jit import jit

# Share of the lowest scores that are healthy for certain, and levels among healthy scores between which the logarithms
# rise as they go on to rise: their tail is exponential, as that of scores is where some healthy rows are far out.
_CERTAIN, _MIDDLE, _UPPER = 0.88, 0.5, 0.85
# Level, at least, that healthy scores may reach.
_HEALTHY = 0.99
# A valley has at most this share of the farther scores, where an exponential tail would have .39 of them and one three
# times as heavy .15, in a step of this share of the tail's slope; at least so many are farther.
_VALLEY, _STEP, _FEWEST = 0.125, 0.5, 10
# Scores below this, in units of k(x, x), are rounding.
_ROUNDING = 1e-12


@jit
def _upper_tail(scores: Array, n: int) -> tuple[float, float]:
    """Return the upper level of the n lowest logarithms, and the slope of the tail through it and their middle."""
    upper = math.log(max(scores[round(_UPPER * (n - 1))], _ROUNDING))
    middle = math.log(max(scores[round(_MIDDLE * (n - 1))], _ROUNDING))
    return upper, (upper - middle) / math.log((1.0 - _MIDDLE) / (1.0 - _UPPER))


@jit
def level_of_ordered(scores: Array, quantile: float) -> float:
    """Return the level that the share 1 - `quantile` of healthy ones among ascending scores exceeds.

    `monitoring.thresholds.healthy_level` says which of them are healthy.
    """
    n, end = len(scores), max(quantile, _HEALTHY)
    certain = healthy = math.ceil(_CERTAIN * n)
    grows = True
    while grows:
        upper, slope = _upper_tail(scores, healthy)
        reached, grows = upper - slope * math.log((1.0 - end) / (1.0 - _UPPER)), False
        while healthy < n and math.log(max(scores[healthy], _ROUNDING)) <= reached:
            healthy += 1
            grows = True
    # The end of a step from the place before each.
    stop, deepest, least = certain, certain, np.inf
    for place in range(certain, min(healthy, n - max(_FEWEST, round((1.0 - end) * n)))):
        stop = max(stop, place)
        reached = math.log(max(scores[place - 1], _ROUNDING)) + _STEP * slope
        while stop < n and math.log(max(scores[stop], _ROUNDING)) <= reached:
            stop += 1
        share = (stop - place) / (n - place)
        if share < least:
            least, deepest = share, place
    if least <= _VALLEY:
        healthy = deepest
        upper, slope = _upper_tail(scores, healthy)
    # The quantile of split-conformal prediction, for which a newcomer counts as the largest.
    n_healthy = min(float(n), healthy * (1.0 + 0.5 * (1.0 - end)))
    level = math.log(max(scores[min(math.ceil(quantile * (n_healthy + 1.0)), healthy) - 1], _ROUNDING))
    if quantile > _UPPER:
        level = min(level, upper - slope * math.log((1.0 - quantile) / (1.0 - _UPPER)))
    return math.exp(level)


@jit
def smooth_roots(scores: Array, smoothing: float, last: float, smoothed: Array) -> None:
    """Write the squares of exponentially weighted means of roots of scores (n,), after a mean whose square is `last`.

    No bit depends on where a run of scores is cut.
    """
    mean = math.sqrt(last)
    for i in range(len(scores)):
        mean += smoothing * (math.sqrt(scores[i]) - mean)
        smoothed[i] = mean * mean
