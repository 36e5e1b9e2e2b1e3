"""When a block is searched for atoms: blocks compared with atoms, the schedule of searches, and a test for drifts."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.concurrency import replace_fields
from streamkpca.dictionary.basis import Basis, Projected
from streamkpca.dictionary.moments import RowSums


class Block:
    """Rows (B, d) of decayed weights (B,), compared with the atoms of a basis.

    Attributes
    ----------
    rows, weights : ndarray
    sums : RowSums
        Sums of kernel values against the atoms if `Basis.is_well_conditioned`, else of coordinates.
    unexplained : float
        Energy of the block outside the span, without the variance of gaps; rounding may make it negative.

    As c(x) = L^-1 k_Z(x), sums over kernel values are enough: the product with L^-1 is computed once for many blocks,
    which saves a third of the work. The block leaves sum a k(x,x) - <K^-1, sum a k_Z k_Z^T> unexplained. If rounding
    would matter, coordinates are summed at once. O(B m (d + m)).
    """

    def __init__(self, basis: Basis, rows: Array, weights: Array) -> None:
        self.rows, self.weights = rows, weights
        self._basis = basis
        self._kernel_rows, self._row_energy, spread = basis.compare(rows)
        # The account holds what is expected of k(x, x), but no atom could explain the variance of what is missing.
        energy, apart = (self._row_energy + spread, spread) if len(spread) else (self._row_energy, None)
        if basis.is_well_conditioned:
            self.sums = RowSums.of(self._kernel_rows, energy, weights, apart)
            recorded = float(np.vdot(basis.precision, self.sums.second))
        else:
            coordinates = basis.coordinates(self._kernel_rows.copy())
            self.sums = RowSums.of(coordinates, energy, weights, apart)
            recorded = float(np.trace(self.sums.second))
        self.unexplained = self.sums.energy - recorded - self.sums.spread

    @property
    def mean_residual(self) -> float:
        """Weighted mean of the rows' squared distances to the span; never negative."""
        return max(self.unexplained, 0.0) / self.sums.total_weight

    def is_current_for(self, basis: Basis) -> bool:
        """Tell whether the basis still has the atoms that this block was compared with."""
        return self._basis.factor is basis.factor and self._basis.distribution is basis.distribution

    def project(self) -> Projected:
        """Return the rows' coordinates, O(B m^2)."""
        return Projected(self.rows, self._row_energy, self._basis.coordinates(self._kernel_rows.copy()))


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
class ResidualTrend:
    """Page's test [1]_ of the share of each block's energy that the atoms leave unexplained.

    `level` and `variance` are the mean and the variance of the shares of `n_blocks` since the level began, `rise` and
    `fall` sum up standardised deviations, never below zero, and `signalled` says if the last level ended with a rise.

    With z the block's deviation from the level in standard deviations, between blocks or as the spread within a block
    predicts, the rise is that of z - 1/2; it signals at 10. A fall ends the level without a signal. The level is
    estimated from the stream [2]_.

    .. [1] E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954.
    .. [2] D. V. Hinkley, "Inference about the change-point from cumulative sum tests", Biometrika 58, 1971.
    """

    n_blocks: int = 0
    level: float = 0.0
    variance: float = 0.0
    rise: float = 0.0
    fall: float = 0.0
    signalled: bool = False

    @property
    def strength(self) -> float:
        """The upward sum as a share of the threshold: 0 is no rise, 1 a signal."""
        return self.rise / _THRESHOLD

    @property
    def is_fresh(self) -> bool:
        """Whether a rise was signalled and the new level is still being estimated."""
        return self.signalled and self.n_blocks < _FIRST_BLOCKS

    def observe(self, share: float, standard_error: float) -> Self:
        """Add a block's unexplained share of energy; if `n_blocks` is 1 afterwards, a new level has begun."""
        deviation = max(math.sqrt(self.variance), standard_error, _LEAST_DEVIATION)
        step = min(max((share - self.level) / deviation, -_LARGEST_STEP), _LARGEST_STEP)
        if self.n_blocks < _FIRST_BLOCKS:
            return self._learn(share)
        rise, fall = (max(total, 0.0) for total in (self.rise + (step - _ALLOWANCE), self.fall + (-step - _ALLOWANCE)))
        if max(rise, fall) >= _THRESHOLD:
            return type(self)(n_blocks=1, level=share, signalled=rise >= _THRESHOLD)
        # An outlier moves the level by no more than the largest step.
        return replace_fields(self._learn(self.level + step * deviation), rise=rise, fall=fall)

    def _learn(self, share: float) -> Self:
        """Average in a block's share; after 64 blocks the old ones fade."""
        n_blocks = self.n_blocks + 1
        gain = 1.0 / min(n_blocks, _MEMORY)
        difference = share - self.level
        return replace_fields(
            self,
            n_blocks=n_blocks,
            level=self.level + gain * difference,
            variance=(1.0 - gain) * (self.variance + gain * difference**2),
        )


LONGEST_PAUSE = 1024
# A block may be searched before the end of the pause if, by two standard errors, it leaves more than the usual residual
# and this share of it. With 0.1, digits that came class by class were explained worse.
_UNUSUAL = 0.05


class SearchInterval(NamedTuple):
    """Pauses between searches, as shares of the blocks so far: the usual one, and that before twice the usual residual.

    The gain of one more search falls as 1 / n with the number of blocks n, its cost does not.
    """

    usual: float
    unusual: float


# The interval where rows become atoms.
ROWS_INTERVAL = SearchInterval(0.25, 0.0)
# Moves cost more, and adapt the atoms to a regime that may soon end: without a pause, metrics of a server took three
# times as long and were explained no better. If the pause did not fall with the residual, classes of rows that came one
# after the other were explained half as well.
MOVING_INTERVAL = SearchInterval(1.5, 0.25)
# Once the sample does not hold all rows any more, a move loses some of the recorded moments, and needs a cause.
SETTLED_INTERVAL = SearchInterval(np.inf, 0.25)


def spread_of(residual: Array, weights: Array) -> float:
    """Return the standard deviation of residuals (B,), in units of their mean; 0 if that is 0."""
    mean = float(np.average(residual, weights=weights))
    if mean == 0.0:
        return 0.0
    counting = weights > 0.0
    # A row that has nearly faded may exceed the mean by more than can be squared.
    relative = np.minimum(residual[counting] / mean, 1e100)
    return float(np.sqrt(np.average((relative - 1.0) ** 2, weights=weights[counting])))


@dataclass(frozen=True)
class SearchSchedule:
    """When to search for atoms: ever more rarely, but at once when the stream is explained worse.

    `countdown` is the number of blocks until the next search; `usual_residual` the mean residual of rows after the last
    one, and `spread` the standard deviation of residuals before it, in units of their mean; `n_blocks` counts from the
    beginning of the stream or the last drift; rows after the first `n_rows_searched` are candidates of the next search.
    """

    countdown: int = 0
    usual_residual: float = np.inf
    spread: float = 0.0
    n_blocks: int = 0
    n_rows_searched: int = 0

    def standard_error(self, block: Block) -> float:
        """Predict the standard error of a block's mean residual from the spread at the last search.

        Residuals from 0 to e with mean r have a variance of at most r (e - r) (R. Bhatia, C. Davis, "A better bound on
        the variance", American Mathematical Monthly 107, 2000).
        """
        mean, most = block.mean_residual, block.sums.largest_energy
        deviation = min(self.spread * mean, np.sqrt(mean * max(most - mean, 0.0)))
        return float(deviation * np.sqrt(block.sums.total_squared_weight) / block.sums.total_weight)

    def is_due(self, block: Block, n_rows: int, interval: SearchInterval) -> bool:
        """Tell whether to search a block after `n_rows` rows: after the usual pause, or if it is explained worse."""
        if self.countdown == 0:
            return True
        n_paused = (n_rows - self.n_rows_searched) // len(block.rows)
        usual = self.usual_residual
        excess = block.mean_residual - 2.0 * self.standard_error(block) - usual
        if not excess > _UNUSUAL * usual:
            return False
        return excess * (n_paused + 1) >= usual * interval.unusual * (self.n_blocks - n_paused)

    def is_worse(self, block: Block) -> bool:
        """Tell whether a block leaves more unexplained than the usual residual and a share of it."""
        return block.mean_residual > (1.0 + _UNUSUAL) * self.usual_residual

    def reset_after_drift(self, block: Block, n_blocks: int) -> Self:
        """Return the schedule after a drift: as in a stream of at most `n_blocks` blocks."""
        # Blocks that leave no more than usual can wait: a stream that repeats its rows, and the rises in them, was
        # searched in every epoch, in vain.
        countdown = 0 if self.is_worse(block) else self.countdown
        return replace(self, countdown=countdown, n_blocks=min(self.n_blocks, n_blocks))

    def record_skip(self, block: Block, n_rows: int) -> Self:
        """Return the schedule after a block that was not searched and follows on `n_rows` rows."""
        usual = self.usual_residual
        if n_rows == self.n_rows_searched:
            usual = min(usual, block.mean_residual + self.standard_error(block))
        return replace_fields(self, countdown=self.countdown - 1, usual_residual=usual, n_blocks=self.n_blocks + 1)

    def record_search(
        self, n_rows: int, usual_residual: float, spread: float, interval: SearchInterval, *, again: bool = False
    ) -> Self:
        """Return the schedule after a search, at row `n_rows`; `again` has the next block searched too."""
        n_blocks = self.n_blocks + 1
        pause = 0 if again else int(min(interval.usual * n_blocks, LONGEST_PAUSE))
        return type(self)(pause, usual_residual, spread, n_blocks, n_rows)
