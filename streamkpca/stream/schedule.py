"""The schedule: when a block is searched for atoms."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca.stream.blocks import Block

Array = npt.NDArray[np.float64]

LONGEST_PAUSE = 1024
# A block may be searched before the end of the pause if, by two standard errors, it leaves more than the usual residual
# and this share of it. With .1, digits that came class by class were explained worse.
_UNUSUAL = 0.05


class Pace(NamedTuple):
    """Pauses between searches, as shares of the blocks so far: the usual one, and that before twice the usual residual.

    The gain of one more search falls as 1 / n with the number of blocks n, its cost does not. The pause before a block
    that leaves more than usual is in inverse proportion to how much more.
    """

    usual: float
    unusual: float


# Moves cost more than the search for rows, and adapt the atoms to a regime that may soon end: without a pause, metrics
# of a server took three times as long and were explained no better; if the pause did not fall with the residual,
# classes of rows that came one after the other were explained half as well.
# Once the sample does not hold all rows any more, a move loses some of the recorded moments, and needs a cause.
ROWS_PACE, MOVING_PACE, SETTLED_PACE = Pace(0.25, 0.0), Pace(1.5, 0.25), Pace(np.inf, 0.25)


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
    """When to search for atoms: ever more rarely, but at once when the stream is explained worse.

    Parameters
    ----------
    countdown : int
        Blocks until the next search.
    usual_residual : float
        Mean residual of rows after the last search.
    spread : float
        Standard deviation of residuals before the last search, in units of their mean.
    n_blocks : int
        Blocks since the stream began, or since the last drift.
    n_rows_searched : int
        Rows of the stream up to the last search; the later ones are candidates of the next.
    """

    countdown: int = 0
    usual_residual: float = np.inf
    spread: float = 0.0
    n_blocks: int = 0
    n_rows_searched: int = 0

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

    def is_due(self, block: Block, n_rows: int, pace: Pace) -> bool:
        """Tell whether to search a block that follows on `n_rows` rows.

        That is at the end of the usual pause, or earlier if its rows are explained worse than usual, and the sooner the
        worse they are.
        """
        if self.countdown == 0:
            return True
        n_paused = (n_rows - self.n_rows_searched) // len(block.rows)
        excess = block.mean_residual - 2.0 * self.standard_error(block) - self.usual_residual
        if not excess > _UNUSUAL * self.usual_residual:
            return False
        return excess * (n_paused + 1) >= self.usual_residual * pace.unusual * (self.n_blocks - n_paused)

    def reset_after_drift(self, n_blocks: int) -> Self:
        """Return the schedule after a drift: search at once, then as in a stream of at most `n_blocks` blocks."""
        return type(self)(n_blocks=min(self.n_blocks, n_blocks), n_rows_searched=self.n_rows_searched)

    def skipped(self, block: Block, n_rows: int) -> Self:
        """Return the schedule after a block that was not searched and follows on `n_rows` rows."""
        usual = self.usual_residual
        if n_rows == self.n_rows_searched:
            usual = min(usual, block.mean_residual + self.standard_error(block))
        return replace(self, countdown=self.countdown - 1, usual_residual=usual, n_blocks=self.n_blocks + 1)

    def searched(self, n_rows: int, usual_residual: float, spread: float, pace: Pace, *, again: bool = False) -> Self:
        """Return the schedule after a search, at row `n_rows`; `again` has the next block searched too."""
        n_blocks = self.n_blocks + 1
        pause = 0 if again else int(min(pace.usual * n_blocks, LONGEST_PAUSE))
        return type(self)(pause, usual_residual, spread, n_blocks, n_rows)
