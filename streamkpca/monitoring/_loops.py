"""Compiled loops: moving averages of scores, and their ranks among all earlier ones."""

import math

from streamkpca._core.arrays import Array, Flags
from streamkpca._core.jit import jit

# Scores below this are rounding, in units of k(x, x).
ROUNDING = 1e-12
# Logarithm of the factor beyond the number of healthy scores up to which rarity grows as an exponential tail has it.
EXTRAPOLATED = 2.302585092994046
# Bins of logarithms that scores are counted in, a power of two, from rounding on to scores of 1e15.
N_BINS = 2048
# Bins for a factor of e.
_PER_UNIT = 32.0
# Logarithm of the lowest bin, that of rounding.
_LOWEST = -27.631021115928547
# Scores counted, from which on all counts are halved, so that a row is compared with the latest ones: what lasts is
# common, and its alarms end, after some 1,600 rows at the latest.
_MOST_COUNTED = 2.0**15
# Earlier scores that there must be before a rank among them says anything.
_LEAST_COUNTED = 64.0


@jit
def smooth_roots(scores: Array, smoothing: float, last: float, smoothed: Array) -> None:
    """Write the squares of exponentially weighted means of roots of scores (n,), after a mean whose square is `last`.

    No bit depends on where a run of scores is cut.
    """
    mean = math.sqrt(last)
    for i in range(len(scores)):
        # A difference of the two would lose the digits of the smaller one.
        mean = (1.0 - smoothing) * mean + smoothing * math.sqrt(scores[i])
        smoothed[i] = mean * mean


@jit
def take_logarithms(scores: Array, logs: Array) -> None:
    """Write the logarithms of scores (n,), with the digits that `rank_scores` compares: those of numpy may differ."""
    for i in range(len(scores)):
        logs[i] = math.log(max(scores[i], ROUNDING))


@jit
def rank_scores(
    scores: Array,
    is_counted: Flags,
    ordered: Array,
    slope: float,
    most: float,
    counts: Array,
    rarity: Array,
    limited: Array,
) -> None:
    """Write the rarities of scores (n,) among healthy ones, and these limited by their ranks among all earlier scores.

    `ordered` (h,) are the logarithms of the healthy scores, ascending, beyond which rarity grows by their tail's
    `slope`. By its rank among all earlier scores a row that is counted is at most `most` times rarer; `counts` has the
    total first, and a Fenwick tree of the numbers in each bin.
    """
    n_healthy = len(ordered)
    for i in range(len(scores)):
        logarithm = math.log(max(scores[i], ROUNDING))
        low, high = 0, n_healthy
        while low < high:
            middle = (low + high) // 2
            if ordered[middle] < logarithm:
                low = middle + 1
            else:
                high = middle
        beyond = max(logarithm - ordered[n_healthy - 1], 0.0) / slope
        grown = math.exp(min(beyond, EXTRAPOLATED)) * (1.0 + max(beyond - EXTRAPOLATED, 0.0))
        rarity[i] = limited[i] = (n_healthy + 1.0) / (n_healthy - low + 1.0) * grown
        if not is_counted[i]:
            continue
        index = int(min(max((logarithm - _LOWEST) * _PER_UNIT, 0.0), N_BINS - 1.0))
        below, place = 0.0, index
        while place > 0:
            below += counts[place]
            place -= place & -place
        total = counts[0]
        if total >= _LEAST_COUNTED:
            limited[i] = min(rarity[i], most * (total + 1.0) / (total - below + 1.0))
        if total >= _MOST_COUNTED:
            for k in range(N_BINS + 1):
                counts[k] *= 0.5
        counts[0] += 1.0
        place = index + 1
        while place <= N_BINS:
            counts[place] += 1.0
            place += place & -place
