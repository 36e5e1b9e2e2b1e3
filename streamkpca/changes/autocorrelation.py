"""How long the rows of a stream stay correlated, and streams that are drawn of them all the same.

Streams are drawn by a moving block bootstrap [1]_: they are put together from blocks of neighbours, which are so long
that rows of two blocks are not correlated.

.. [1] H. R. Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17,
   1989.
"""

from typing import NamedTuple

import numpy as np

from streamkpca._core.arrays import Array, Positions

# Squared correlation below which rows count as uncorrelated: that of 0.05.
_LEAST_SQUARED = 0.0025
# Rows of a drawn stream, and of a block at most.
_STREAM = 2048


class Autocorrelation(NamedTuple):
    """How long n rows stay correlated: `cutoff_lag` rows, so that `integrated_time` of them count as one."""

    n: int
    cutoff_lag: int
    integrated_time: float

    @property
    def n_blocks(self) -> float:
        """Number of uncorrelated blocks."""
        return self.n / max(self.cutoff_lag, 1)

    @property
    def block_length(self) -> int:
        """Rows of a block that streams are put together from."""
        return 1 if self.cutoff_lag <= 1 else min(4 * self.cutoff_lag, self.n // 10, _STREAM)

    def draw_streams(self, random: np.random.Generator, n_rows: int) -> Positions:
        """Draw the rows (R, T) of R streams, n_rows together."""
        length = self.block_length
        n_blocks = -(-_STREAM // length)
        size = max(n_rows // (n_blocks * length), 1), n_blocks
        starts: Positions = random.integers(0, self.n - length + 1, size=size)
        return (starts[:, :, None] + np.arange(length)).reshape(len(starts), -1)


def estimate_autocorrelation(scores: Array) -> Autocorrelation:
    """Estimate how long rows (n, d) stay correlated or, if that is longer, their squares."""
    n, lags, times = len(scores), [1], [1.0]
    for values in (scores, scores**2):
        spectrum = np.abs(np.fft.rfft(values - values.mean(axis=0), 2 * n, axis=0)) ** 2
        correlation = np.fft.irfft(spectrum, axis=0)[:n]
        varies = correlation[0] > 1e-9 * n
        if varies.any():
            squared = ((correlation[:, varies] / correlation[0, varies]) ** 2).mean(axis=1)
            lags.append(int(np.argmax(squared < max(8.0 / n, _LEAST_SQUARED))))
            times.append(1.0 + 2.0 * float(squared[1 : lags[-1]].sum()))
    return Autocorrelation(n, max(lags), max(times))


def average_blocks(columns: Array, length: int) -> Array:
    """Return the means (n / length, p) of blocks of rows."""
    n = len(columns) // length * length
    means: Array = columns[:n].reshape(-1, length, columns.shape[1]).mean(axis=1)
    return means
