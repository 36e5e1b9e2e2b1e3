"""Compiled loops: moving averages of scores, and their ranks among all earlier ones."""

import math

from streamkpca._core.arrays import Array
from streamkpca._core.jit import jit

# Levels of logarithms that scores are counted at, a power of two, so many of them for a factor of e; from the logarithm
# of rounding on, to scores of 1e15.
N_LEVELS, _PER_UNIT, _LOWEST = 2048, 32.0, -27.631021115928547
# Scores counted, from which on all counts are halved, so that those of months ago count less.
_MOST_COUNTED = 2.0**18
# Earlier scores that there must be before a rank among them says anything.
_LEAST_COUNTED = 64.0


@jit
def smooth_roots(scores: Array, smoothing: float, last: float, smoothed: Array) -> None:
    """Write the squares of exponentially weighted means of roots of scores (n,), after a mean whose square is `last`.

    No bit depends on where a run of scores is cut.
    """
    mean = math.sqrt(last)
    for i in range(len(scores)):
        mean += smoothing * (math.sqrt(scores[i]) - mean)
        smoothed[i] = mean * mean


@jit
def limit_by_counts(logs: Array, rarity: Array, most: float, counts: Array, limited: Array) -> None:
    """Write the rarities of scores (n,), at most `most` times what their ranks among all earlier scores say.

    The scores are then counted in `counts`: the total first, and a Fenwick tree of the numbers at each level.
    """
    for i in range(len(logs)):
        level = int(min(max((logs[i] - _LOWEST) * _PER_UNIT, 0.0), N_LEVELS - 1.0))
        below, place = 0.0, level
        while place > 0:
            below += counts[place]
            place -= place & -place
        total = counts[0]
        limited[i] = rarity[i]
        if total >= _LEAST_COUNTED:
            limited[i] = min(rarity[i], most * (total + 1.0) / (total - below + 1.0))
        if total >= _MOST_COUNTED:
            for k in range(N_LEVELS + 1):
                counts[k] *= 0.5
        counts[0] += 1.0
        place = level + 1
        while place <= N_LEVELS:
            counts[place] += 1.0
            place += place & -place
