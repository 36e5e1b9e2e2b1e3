"""Alarms within a bound: a ratio to the threshold that keeps false alarm runs at a promised rate or below."""

import math
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from scipy.special import pdtr

from streamkpca._core.arrays import Array, Flags
from streamkpca._core.concurrency import cached_property

# Rows of the shortest block.
_SHORTEST = 8
# Blocks that are kept, at most.
_MOST = 2048
# Blocks, at least, of a length that is used.
_LEAST = 16
# Lengths that are averaged.
_LENGTHS = 3
# There is a ratio from this many healthy rows on, in units of 1 / `false_alarms`.
_FIRST = 0.5
# Healthy rows that the reference keeps, in the same unit.
_ENOUGH = 4.0
# The first healthy rows, when all is new to a model; they are left out once twice as many others are known.
_YOUNG = 512
# Highest maxima that the tail is fitted to, at most.
_TAIL = 16
# Highest maxima that the tail is fitted to, at least.
_FEWEST = 8
# Share of the blocks that the tail is fitted to, in between.
_SHARE = 0.25
# Share of the highest maxima that may be followed by another, beyond chance, if blocks are taken for independent.
_FOLLOWED = 0.2
# Confidence of the bounds.
_SURE = 0.96
# Its quantile of the normal distribution.
_SURE_NORMAL = 1.751
# The ratio is found anew once one in eight blocks of the reference has come since.
_BLOCKS_FOR_NEW = 8
# The first alarm of a run, among ratios, which are not negative.
_FIRST_ALARM = -2.0
# Other alarms.
_LATER_ALARM = -1.0
# Ratios below this are rounding.
_LOWEST = 1e-9
# Logarithms above this have no exponential.
_FARTHEST = 500.0


@dataclass(frozen=True)
class FalseAlarmBound:
    """The bound of `Monitor(false_alarms=...)`: at most this many false alarm runs a healthy row; a value.

    Parameters
    ----------
    false_alarms : float
        Alarm runs for each healthy row, at most.
    maxima : ndarray of shape (n,)
        The reference: largest ratio of a rarity to the monitor's threshold in each block of healthy rows.
    ratio : float
        The ratio to the threshold above which an alarm run begins; infinite while too little is known.
    n_blocks, n_new, n_since : int
        Blocks of healthy rows so far, since the ratio was found, and since an alarm run counted as healthy.
    pending : ndarray of shape (k,)
        Ratios of rows whose block is not full; -2 for the first alarm of a run, -1 for others.
    is_open : bool
        Whether the last row was an alarm.

    Notes
    -----
    **Alarms.** A run begins with a rarity above `ratio` times the monitor's threshold, and lasts while rows are rarer
    than the threshold. So rarities that waver around that one make one run.

    **The ratio.** Rarities of rows that no model has learned, as ratios to the threshold, are cut into blocks; the
    reference keeps those of the latest 4 / `false_alarms` healthy rows, without the first 512 once 1,024 others are
    known. Let p(u) be an upper bound of the probability that the maximum M of a healthy block of b rows exceeds u. Then
    e = 1{M > u} / p(u) is an e-value: E e <= 1. So is an average of e-values, and the ratio is the lowest u at which b
    / p(u), averaged over several lengths b, reaches 1 / `false_alarms`. The shortest length is the first at which high
    maxima do not follow each other (the extremogram [5]_); those of twice and four times as many rows join it. p(u)
    comes from an exponential tail through the logarithms of the highest 8 to 16 maxima, at 96% confidence. The ratio is
    at least the highest maximum of the reference, until fewer exceedances would be improbable if the bound were broken.

    **The theorem.** If blocks to come are distributed as those of the reference, and p(u) is a bound, the expected
    number of alarm blocks among n healthy rows is at most n `false_alarms`, however blocks depend on each other. If the
    bound holds for each block given those before it, the average run length to a false alarm is at least 1 /
    `false_alarms`: a block alarms no sooner than the Shiryaev-Roberts e-detector of these e-values, for which [1]_
    proves it; [4]_ has the same bound from confidence sequences. All e-values share the chance of their reference
    [2]_, [3]_: the bound holds for 96% of references.

    **Its assumptions.** The reference is healthy: its faults raise the ratio, so that the bound is kept and other
    faults are missed. Blocks of alarms are left out, but for one alarm run in 1 / `false_alarms` healthy rows, which
    counts as if it had just reached the ratio. Tails beyond the highest maxima are exponential, or lighter, in the
    logarithms; a rare healthy state that the reference does not hold breaks the bound. **Under drift** a change of
    scale keeps the bound soon, a heavier tail breaks it until the reference holds it, and a healthy change to new rows
    is an alarm until it is learned.

    References
    ----------
    .. [1] J. Shin, A. Ramdas, A. Rinaldo, "E-detectors: a nonparametric framework for sequential change detection",
       arXiv 2203.03532.
    .. [2] V. Vovk, I. Nouretdinov, A. Gammerman, "Validity and efficiency of the conformal CUSUM procedure", arXiv
       2412.03464.
    .. [3] "Testing for distribution shifts with conditional conformal test martingales", arXiv 2602.13848.
    .. [4] S. Shekhar, A. Ramdas, "Reducing sequential change detection to sequential estimation", arXiv 2309.09111.
    .. [5] R. A. Davis, T. Mikosch, "The extremogram", Bernoulli 15, 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> monitor = Monitor(false_alarms=1 / 10_000)
    >>> record = monitor.update(np.random.default_rng(0).normal(size=(1000, 3)))
    >>> monitor.bound_.n_needed, monitor.bound_.n_known < 1000, record.is_alarm.any()
    (5000, True, np.False_)
    """

    false_alarms: float
    maxima: Array = field(default_factory=lambda: np.empty(0))
    ratio: float = math.inf
    n_blocks: int = 0
    n_new: int = 0
    n_since: int = 0
    pending: Array = field(default_factory=lambda: np.empty(0))
    is_open: bool = False

    @property
    def _length(self) -> int:
        """Rows of a block of the reference, which holds enough rows in a bounded number of blocks."""
        return _SHORTEST << max(math.ceil(math.log2(_ENOUGH / (self.false_alarms * _SHORTEST * _MOST))), 0)

    @property
    def n_known(self) -> int:
        """Number of healthy rows in the reference."""
        return len(self.maxima) * self._length

    @property
    def n_needed(self) -> int:
        """Number of healthy rows from which there are alarms, as far as the dependence of the rows is known."""
        return max(math.ceil(_FIRST / self.false_alarms), _LEAST * self._series[0][0])

    def __repr__(self) -> str:
        rows = f"{1 / self.false_alarms:,.0f} healthy rows"
        known = f"needs {self.n_needed:,} healthy rows, {self.n_known:,} known"
        if math.isinf(self.ratio):
            return f"<FalseAlarmBound: one false alarm run in {rows} {known}; no alarm before>"
        begin = f"runs begin at {self.ratio:.3g} times the threshold"
        return f"<FalseAlarmBound: at most one false alarm run in {rows}; {begin}; {known}>"

    def _add(self, blocks: Array) -> Self:
        """Add the maxima of blocks (n, length) to the reference, the latest of which stay."""
        maxima, lowest, n_since = blocks.max(axis=1), blocks.min(axis=1), self.n_since
        counts = lowest >= 0.0
        for i in range(len(blocks)):
            # Left out, the false alarms would lower the ratio; an alarm run counts as if it had just reached it.
            if lowest[i] == _FIRST_ALARM and n_since * self._length * self.false_alarms >= 1.0:
                counts[i], maxima[i], n_since = True, self.ratio, 0
            n_since += int(counts[i])
        n_added = int(np.count_nonzero(counts))
        n_blocks, n_young = self.n_blocks + n_added, math.ceil(_YOUNG / self._length)
        most = min(math.ceil(_ENOUGH / (self.false_alarms * self._length)), max(n_blocks - n_young, 2 * n_young))
        kept = np.concatenate([self.maxima, maxima[counts]])[-most:]
        return replace(self, maxima=kept, n_blocks=n_blocks, n_new=self.n_new + n_added, n_since=n_since)

    @cached_property
    def _series(self) -> list[tuple[int, Array]]:
        """The lengths that are averaged, from the shortest whose high maxima do not follow each other; and maxima."""
        maxima, length = np.log(np.maximum(self.maxima, _LOWEST)), self._length
        while len(maxima) >= _LEAST and _share_followed(maxima) > _FOLLOWED:
            maxima, length = _merge(maxima), 2 * length
        series = [(length, maxima)]
        while len(series) < _LENGTHS and len(maxima := _merge(maxima)) >= _LEAST:
            series.append((length << len(series), maxima))
        return series

    def _find_ratio(self) -> float:
        """Return the lowest ratio at which the mean of the e-values, a block's rows each, keeps the rate."""
        if self.n_known < self.n_needed:
            return self.ratio
        # Rows, number k of the highest maxima, and where their logarithms begin, with the mean distance from there.
        tails = []
        for length, maxima in self._series:
            ordered = np.sort(maxima)[::-1]
            k = int(np.clip(_SHARE * len(maxima), _FEWEST, _TAIL))
            tails.append((len(maxima) * length, k, ordered[k], max(ordered[:k].mean() - ordered[k], _LOWEST)))
        # Fewer maxima than this above a ratio are improbable if it is exceeded at the promised rate.
        at_least = np.searchsorted(pdtr(np.arange(64), tails[0][0] * self.false_alarms), 1.0 - _SURE)
        low = max(float(np.sort(self._series[0][1])[-max(int(at_least), 1)]), 0.0)
        high = low + 1.0
        while _rows_for_one(tails, high) * self.false_alarms < 1.0:
            high += high - low
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if _rows_for_one(tails, middle) * self.false_alarms >= 1.0 else (middle, high)
        return math.exp(min(high, _FARTHEST))


def judge_by_bound(
    bound: FalseAlarmBound, rarity: Array, threshold: float, is_fault: Flags | bool = False
) -> tuple[FalseAlarmBound, Flags, Array]:
    """Judge rows (n,), of which faults are known, by their rarity (n,): alarms and thresholds."""
    if math.isinf(threshold):
        return bound, np.zeros(len(rarity), dtype=bool), np.full(len(rarity), threshold)
    begin = threshold * bound.ratio
    was_open, ends = bound.is_open, np.arange(len(rarity))
    begins = np.maximum.accumulate(np.where((rarity > begin) | is_fault, ends, -1 - (not was_open)))
    is_alarm = begins > np.maximum.accumulate(np.where((rarity > threshold) | is_fault, -1 - was_open, ends))
    goes_on = np.concatenate([[was_open], is_alarm[:-1]])
    thresholds = np.where(goes_on, threshold, begin)
    ratios = np.where(is_alarm, np.where(goes_on, _LATER_ALARM, _FIRST_ALARM), rarity / threshold)
    pending = np.concatenate([bound.pending, ratios])
    blocks = pending[: len(pending) // bound._length * bound._length].reshape(-1, bound._length)
    judged = replace(bound, pending=pending[blocks.size :], is_open=bool(is_alarm[-1]))
    return judged._add(blocks) if len(blocks) else judged, is_alarm, thresholds


def renew_ratio(bound: FalseAlarmBound) -> FalseAlarmBound:
    """Find the ratio anew if enough blocks have come since."""
    if bound.n_new * _BLOCKS_FOR_NEW < max(len(bound.maxima), 1):
        return bound
    return replace(bound, n_new=0, ratio=bound._find_ratio())


def _rows_for_one(tails: list[tuple[int, int, float, float]], log_ratio: float) -> float:
    """Return in how many healthy rows, at the least, with confidence, one block exceeds exp(log_ratio), on average."""
    total = 0.0
    for n_rows, k, start, mean in tails:
        t = min(max((log_ratio - start) / mean, 0.0), _FARTHEST)
        # The delta method for log(k) - t, with a relative variance of 1 / k of both the count and the mean.
        total += n_rows / k * math.exp(t - _SURE_NORMAL * math.sqrt((1.0 + t * t) / k))
    return total / len(tails)


def _merge(maxima: Array) -> Array:
    """Return the maxima of pairs of neighbours."""
    merged: Array = maxima[: len(maxima) // 2 * 2].reshape(-1, 2).max(axis=1)
    return merged


def _share_followed(maxima: Array) -> float:
    """Return the share of the highest maxima that are followed by another, beyond chance."""
    is_high = maxima >= np.sort(maxima)[-min(_TAIL, len(maxima) // 4)]
    n = np.count_nonzero(is_high)
    return float(np.count_nonzero(is_high[1:] & is_high[:-1]) / n - n / len(maxima))
