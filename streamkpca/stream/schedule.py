"""When a stream is searched for atoms, and the test for drift that makes searches frequent again."""

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca.stream.blocks import Block

Array = npt.NDArray[np.float64]

# Every block of a young stream is searched. After n blocks, one block in n^2 / 8192 is searched, or four times as many
# while searches find something: the gain of one more search falls as 1 / n, its cost does not. In the end one block in
# 256 to 1024 is searched. After a drift a stream counts as younger, but not as new.
_YOUNG_BLOCKS = 8192
_LONGEST_INTERVAL = 1024
_PATIENCE = 4
_BLOCKS_AFTER_DRIFT = 512


def mean_and_spread(residual: Array, weights: Array) -> tuple[float, float]:
    """Return the mean of residuals (B,), and their standard deviation in units of the mean (0 if that is 0)."""
    mean = float(np.average(residual, weights=weights))
    if mean == 0.0:
        return 0.0, 0.0
    counting = weights > 0.0
    # A row that has nearly faded may exceed the mean by more than can be squared.
    relative = np.minimum(residual[counting] / mean, 1e100)
    return mean, float(np.sqrt(np.average((relative - 1.0) ** 2, weights=weights[counting])))


@dataclass(frozen=True)
class SearchSchedule:
    """When to search for atoms: rarely while searches find nothing, at once when the stream is explained worse.

    Parameters
    ----------
    interval : int
        Blocks between searches.
    countdown : int
        Blocks until the next search.
    usual_residual : float
        Mean residual of the rows at the last search.
    spread : float
        Their standard deviation at the last search, in units of the mean.
    n_blocks : int
        Blocks since the stream began; fewer after a drift.
    """

    interval: int = 1
    countdown: int = 0
    usual_residual: float = np.inf
    spread: float = 0.0
    n_blocks: int = 0

    def standard_error(self, block: Block) -> float:
        """Predict the standard error of a block's mean residual from the spread at the last search.

        Notes
        -----
        Residuals from 0 to e with mean r have a variance of at most r (e - r) [1]_: if almost nothing is explained any
        more, they can spread little.

        References
        ----------
        .. [1] R. Bhatia, C. Davis, "A better bound on the variance", American Mathematical Monthly 107, 2000.
        """
        mean, most = block.mean_residual, block.sums.largest_energy
        deviation = min(self.spread * mean, np.sqrt(mean * max(most - mean, 0.0)))
        return float(deviation * np.sqrt(block.sums.total_squared_weight) / block.sums.total_weight)

    def is_due(self, block: Block) -> bool:
        """Tell whether to search this block: at the end of the interval, or in its second half if residuals rise."""
        if 2 * self.countdown > self.interval:
            return False
        return self.countdown == 0 or block.mean_residual - 3.0 * self.standard_error(block) > self.usual_residual

    def reset_after_drift(self) -> Self:
        """Return the schedule after a drift: search at once, then as if at most 512 blocks had come.

        A stream that never stops drifting is thus searched every eighth block, and not every block.
        """
        return type(self)(n_blocks=min(self.n_blocks, _BLOCKS_AFTER_DRIFT))

    def skipped(self) -> Self:
        """Return the schedule after a block that was not searched."""
        return replace(self, countdown=self.countdown - 1, n_blocks=self.n_blocks + 1)

    def searched(self, *, found: bool, mean_residual: float, spread: float = 0.0) -> Self:
        """Return the schedule after a search."""
        longest = min(self.n_blocks**2 // _YOUNG_BLOCKS, _LONGEST_INTERVAL)
        interval = self.interval // 2 if found else min(2 * self.interval, longest)
        interval = max(interval, longest // _PATIENCE, 1)
        return type(self)(interval, interval - 1, mean_residual, spread, self.n_blocks + 1)


# Drifts of less than half a standard deviation are tolerated. With a threshold of ten, a stream of independent blocks
# gives a false alarm about once in 10^5 blocks (Siegmund's approximation of the average run length,
# exp(2 k (h + 1.166)) / (2 k^2)).
_ALLOWANCE = 0.5
_THRESHOLD = 10.0
# A single block, however bad, is an outlier and no drift.
_LARGEST_STEP = 4.0
# Blocks that the level is first estimated from, and blocks after which old ones fade.
_FIRST_BLOCKS = 8
_MEMORY = 64
# Deviations of shares of energy below this are rounding.
_LEAST_DEVIATION = 1e-9


@dataclass(frozen=True)
class PageCusum:
    """Page's cumulative sum test on the share of each block's energy that the atoms leave unexplained.

    Parameters
    ----------
    n_blocks : int
        Blocks since the level began.
    level, variance : float
        Mean and variance of the blocks' unexplained shares.
    cusum_up, cusum_down : float
        Cumulative sums of the standardised deviations, upwards and downwards.
    signalled : bool
        Whether the last level ended with a rise.

    Notes
    -----
    With z the block's deviation from the level in standard deviations, cusum_up <- max(0, cusum_up + z - 1/2) [1]_; it
    signals at 10. The standard deviation is that between blocks, or the one that the spread within a block predicts if
    that is larger. A fall ends the level too, without a signal: atoms were found that explain the stream better.

    References
    ----------
    .. [1] E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954; with the level estimated from the stream as
       in D. V. Hinkley, "Inference about the change-point from cumulative sum tests", Biometrika 58, 1971.
    """

    n_blocks: int = 0
    level: float = 0.0
    variance: float = 0.0
    cusum_up: float = 0.0
    cusum_down: float = 0.0
    signalled: bool = False

    @property
    def strength(self) -> float:
        """The upward sum as a share of the threshold: 0 is no rise, 1 a signal."""
        return self.cusum_up / _THRESHOLD

    @property
    def is_fresh(self) -> bool:
        """Whether a rise was signalled and the new level is still being estimated."""
        return self.signalled and self.n_blocks < _FIRST_BLOCKS

    def observe(self, share: float, standard_error: float) -> Self:
        """Add a block's unexplained share of energy; if `n_blocks` is 1 afterwards, a new level has begun."""
        deviation = max(math.sqrt(self.variance), standard_error, _LEAST_DEVIATION)
        step = min(max((share - self.level) / deviation, -_LARGEST_STEP), _LARGEST_STEP)
        if self.n_blocks < _FIRST_BLOCKS:
            return self._learned(share)
        cusum_up = max(0.0, self.cusum_up + step - _ALLOWANCE)
        cusum_down = max(0.0, self.cusum_down - step - _ALLOWANCE)
        if max(cusum_up, cusum_down) >= _THRESHOLD:
            return type(self)(n_blocks=1, level=share, signalled=cusum_up >= _THRESHOLD)
        # An outlier moves the level by no more than the largest step.
        return replace(self._learned(self.level + step * deviation), cusum_up=cusum_up, cusum_down=cusum_down)

    def _learned(self, share: float) -> Self:
        """Average in a block's share; after 64 blocks the old ones fade."""
        n_blocks = self.n_blocks + 1
        gain = 1.0 / min(n_blocks, _MEMORY)
        difference = share - self.level
        return replace(
            self,
            n_blocks=n_blocks,
            level=self.level + gain * difference,
            variance=(1.0 - gain) * (self.variance + gain * difference**2),
        )
