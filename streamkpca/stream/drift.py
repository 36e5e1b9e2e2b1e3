"""Drift: a test of whether the stream is explained worse now than before."""

import math
from dataclasses import dataclass, replace
from typing import Self

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
