"""How weights fade, and where that ends."""

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Forgetting stops where the stream weighs so little: rows that count, the least of them 1e-100, outweigh it beyond all
# digits, and its shares are kept for as long as none come. Fading with the rows stops later than the user's own clock,
# so that pending rows and recorded ones keep their shares too.
LEAST_TOTAL_WEIGHT = 1e-120
LEAST_DECAYED_WEIGHT = 1e-150
# What rows have faded to within a block is no weight any more: nothing can be divided by it.
_LEAST_WEIGHT = 1e-200


def decayed_weights(weights: Array, half_life: float | None) -> tuple[float, Array]:
    """Make older rows count less; the newest of the block keeps its weight.

    Parameters
    ----------
    weights : ndarray of shape (B,)
    half_life : float or None
        Rows after which a row counts half; None for never.

    Returns
    -------
    factor : float
        What rows before the block count now, of what they did.
    weights : ndarray of shape (B,)
    """
    if half_life is None:
        return 1.0, weights
    # A clock so fast that a single row's age is beyond all numbers leaves the newest row.
    with np.errstate(over="ignore"):
        fading = np.exp2(-np.arange(len(weights) + 1)[::-1] / half_life)
    aged: Array = weights * fading[1:]
    return float(fading[0]), np.where(aged < _LEAST_WEIGHT, 0.0, aged)


def clamp_decay(factor: float, total_weight: float, least: float) -> float:
    """Limit forgetting to what leaves a total weight that can be divided by.

    Parameters
    ----------
    factor : float
        From 0 to 1.
    total_weight : float
    least : float
        What must be left of it.

    Returns
    -------
    float
        The factor, or one nearer to 1.
    """
    return max(factor, min(least / total_weight, 1.0)) if total_weight > 0.0 else 1.0
