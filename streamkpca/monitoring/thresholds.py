"""Scores of recent rows, and the level that few healthy rows to come should exceed."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca.monitoring._loops import level_of_ordered, smooth_roots

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# Scores that decide. A level of .99 needs a hundred.
_MOST_SCORES = 2048
# Thresholds stay until there are this share more scores.
_REFRESH_SHARE = 8
# Neighbours on either side of a row, and alarms among them from which they are no isolated ones.
_NEAR, _LOUD = 100, 50


@dataclass(frozen=True)
class RecentScores:
    """Scores of the latest rows, raw and smoothed, and their threshold at a quantile; a value.

    `raw`, `smoothed` and `is_alarm` (k,) begin with the oldest. The `threshold` is that of smoothed scores, and `limit`
    a level of raw ones that a tenth as many healthy rows exceed. `n_new` scores came after them.
    """

    quantile: float
    raw: Array
    smoothed: Array
    is_alarm: Flags
    limit: float = np.inf
    threshold: float = np.inf
    n_new: int = 0

    @property
    def limit_quantile(self) -> float:
        """The share of healthy rows below the limit."""
        return 1.0 - 0.1 * (1.0 - self.quantile)

    @classmethod
    def none(cls, quantile: float) -> Self:
        """Return no scores; the thresholds are infinite."""
        return cls(quantile, np.empty(0), np.empty(0), np.empty(0, dtype=bool))

    def replaced(self, raw: Array, smoothed: Array, is_alarm: Flags) -> Self:
        """Return only these scores, with their thresholds."""
        return type(self).none(self.quantile).added(raw, smoothed, is_alarm).renewed()

    def added(self, raw: Array, smoothed: Array, is_alarm: Flags) -> Self:
        """Add scores of later rows; thresholds that exist follow every now and then."""
        added = type(self)(
            self.quantile,
            np.concatenate([self.raw, raw])[-_MOST_SCORES:],
            np.concatenate([self.smoothed, smoothed])[-_MOST_SCORES:],
            np.concatenate([self.is_alarm, is_alarm])[-_MOST_SCORES:],
            self.limit,
            self.threshold,
            self.n_new + len(raw),
        )
        is_due = np.isfinite(self.threshold) and added.n_new * _REFRESH_SHARE >= len(added.raw)
        return added.renewed() if is_due else added

    def renewed(self) -> Self:
        """Find the thresholds anew, from scores that are not among many alarms."""
        counting = is_quiet(self.is_alarm)
        if not counting.any():
            return self
        limit = healthy_level(self.raw[counting], self.limit_quantile)
        threshold = healthy_level(self.smoothed[counting], self.quantile)
        return type(self)(self.quantile, self.raw, self.smoothed, self.is_alarm, limit, threshold)


def is_quiet(is_alarm: Flags) -> Flags:
    """Tell of rows (n,) in a stream's order whether few of their neighbours, a hundred on either side, are alarms."""
    if np.count_nonzero(is_alarm) < _LOUD:
        return np.ones(len(is_alarm), dtype=bool)
    around = np.pad(is_alarm.astype(np.int64), (_NEAR + 1, _NEAR)).cumsum()
    quiet: Flags = around[2 * _NEAR + 1 :] - around[: len(is_alarm)] < _LOUD
    return quiet


def healthy_level(scores: Array, quantile: float) -> float:
    """Return the level that the share 1 - `quantile` of healthy scores exceeds; an eighth may be of anomalies.

    Of the logarithms, those below the end of an exponential tail are healthy, which is found from the lowest ones
    outwards, or those below a valley: a step outwards in which few of the farther ones lie. So anomalies do not move
    the level if they lie apart from healthy scores, and else not beyond the tail. Half as many of those that are left
    out as such a tail has beyond its end count as healthy.
    """
    return level_of_ordered(np.sort(scores), quantile)


def smoothed_run(scores: Array, smoothing: float | None, last: float | None) -> Array:
    """Return the exponentially weighted means of a run of scores (n,), after the last mean if there is one.

    Roots are averaged, and the mean squared: s_t = ((1 - a) s_(t-1)^1/2 + a x_t^1/2)^2. Novelty behaves like a sum of
    squares, whose roots are nearer to symmetric; in the plain mean one far row would outweigh the next ten.
    """
    if smoothing is None or not len(scores):
        return scores
    smoothed = np.empty(len(scores))
    smooth_roots(scores, smoothing, scores[0] if last is None else last, smoothed)
    return smoothed
