"""Scores of recent rows, and the level that few rows to come should exceed."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca.components.certificates import upper_quantile

Array = npt.NDArray[np.float64]

# Scores that decide, and the number after which a score counts half. A level of .99 needs a hundred.
_MOST_SCORES, _HALF_LIFE = 4096, 2048.0
# A threshold stays until there are this share more scores.
_REFRESH_SHARE = 16


@dataclass(frozen=True)
class RecentScores:
    """Scores of the latest rows, raw and smoothed, and their thresholds at a quantile; a value.

    `raw` and `smoothed` (k,) begin with the oldest. The share 1 - `quantile` of them exceeds the thresholds, later
    scores counting more. `n_new` scores came after the thresholds.
    """

    quantile: float
    raw: Array
    smoothed: Array
    raw_threshold: float = np.inf
    threshold: float = np.inf
    n_new: int = 0

    @classmethod
    def none(cls, quantile: float) -> Self:
        """Return no scores; the thresholds are infinite."""
        return cls(quantile, np.empty(0), np.empty(0))

    def replaced(self, raw: Array, smoothed: Array) -> Self:
        """Return only these scores, with their thresholds."""
        return type(self)(self.quantile, raw[-_MOST_SCORES:], smoothed[-_MOST_SCORES:])._refreshed()

    def added(self, raw: Array, smoothed: Array) -> Self:
        """Add scores of later rows; thresholds that exist follow every now and then."""
        if not len(raw):
            return self
        added = type(self)(
            self.quantile,
            np.concatenate([self.raw, raw])[-_MOST_SCORES:],
            np.concatenate([self.smoothed, smoothed])[-_MOST_SCORES:],
            self.raw_threshold,
            self.threshold,
            self.n_new + len(raw),
        )
        is_due = np.isfinite(self.threshold) and added.n_new * _REFRESH_SHARE >= len(added.raw)
        return added._refreshed() if is_due else added

    def renewed(self, raw: Array, smoothed: Array) -> Self:
        """Add scores of a new regime, and renew the thresholds now."""
        return self.added(raw, smoothed)._refreshed()

    def _refreshed(self) -> Self:
        if not len(self.raw):
            return self
        weights = np.exp2(-np.arange(len(self.raw))[::-1] / _HALF_LIFE)
        raw, smoothed = (upper_quantile(scores, weights, self.quantile) for scores in (self.raw, self.smoothed))
        return type(self)(self.quantile, self.raw, self.smoothed, raw, smoothed)


def smoothed_run(scores: Array, smoothing: float | None, last: float | None) -> Array:
    """Return the exponentially weighted means of a run of scores (n,), after the last mean if there is one.

    Roots are averaged, and the mean squared: s_t = ((1 - a) s_(t-1)^1/2 + a x_t^1/2)^2. Novelty behaves like a sum of
    squares, whose roots are nearer to symmetric; in the plain mean one far row would outweigh the next ten.
    """
    if smoothing is None or not len(scores):
        return scores
    smoothed = np.empty(len(scores))
    mean = float(np.sqrt(scores[0] if last is None else last))
    for i, root in enumerate(np.sqrt(scores).tolist()):
        mean += smoothing * (root - mean)
        smoothed[i] = mean * mean
    return smoothed
