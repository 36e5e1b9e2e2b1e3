"""The reservoir: a weighted random sample of the stream, of fixed size."""

import zlib
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Rows of the stream, drawn one after another without replacement, each time in proportion to what they weigh.

    Parameters
    ----------
    size : int
        The most rows that are kept.
    seed : int
        What the draws depend on, besides the rows themselves.
    rows : ndarray of shape (k, d)
        The sample, in the order of the draws.
    positions : ndarray of shape (k,) of int64
        Their positions in the stream.
    weights : ndarray of shape (k,)
        What they count now.
    keys : ndarray of shape (k,)
        Logarithm of each row's time of arrival in the race, ascending.

    Notes
    -----
    Every row runs a race: its time is exponential with rate a_n, and the first `size` to arrive are kept. So the first
    is row n with probability a_n / sum a, the second likewise among the others, and so on [1]_. Forgetting slows all
    rows down alike, which keeps their order; a row that comes later runs at full rate, so the sample leans to the
    present exactly as the weights do. The union of two races is a race: merging keeps the first to arrive of both.

    Times come from a generator seeded with the seed, the block's position and its contents. They do not depend on how
    calls cut the stream, and shards that share a seed draw independently.

    References
    ----------
    .. [1] P. S. Efraimidis, P. G. Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters
       97, 2006. Keys u^(1/w) there; here -log(u)/w, whose logarithm neither over- nor underflows.
    """

    size: int
    seed: int
    rows: Array
    positions: Positions
    weights: Array
    keys: Array

    @classmethod
    def empty(cls, size: int, seed: int, n_features: int) -> Self:
        """Return a reservoir without rows."""
        return cls(size, seed, np.empty((0, n_features)), np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))

    def __len__(self) -> int:
        """Return the number of rows kept."""
        return len(self.rows)

    @property
    def is_full(self) -> bool:
        """Whether rows may have been left out."""
        return len(self.rows) == self.size

    def add(self, rows: Array, weights: Array, start: int) -> Self:
        """Take in a block, O(B log B + size d) where a row of it is kept.

        Parameters
        ----------
        rows : ndarray of shape (B, d)
        weights : ndarray of shape (B,)
            Rows of weight zero are never drawn.
        start : int
            Position of the first row in the stream.

        Returns
        -------
        Reservoir
        """
        if self.size == 0:
            return self
        generator = np.random.default_rng([self.seed, start, zlib.crc32(rows.tobytes())])
        times = generator.standard_exponential(len(rows))
        running = np.flatnonzero(weights > 0.0)
        keys = np.log(times[running]) - np.log(weights[running])
        early = keys < (self.keys[-1] if self.is_full else np.inf)
        running = running[early]
        if not len(running):
            return self
        return self._first_of(rows[running], start + running, weights[running], keys[early])

    def decayed(self, factor: float) -> Self:
        """Let all rows count `factor` times what they did.

        Parameters
        ----------
        factor : float
            Above 0, at most 1.

        Returns
        -------
        Reservoir
        """
        return replace(self, weights=self.weights * factor, keys=self.keys - np.log(factor))

    def merged(self, other: Self, start: int) -> Self:
        """Draw from the rows of both streams.

        Parameters
        ----------
        other : Reservoir
        start : int
            Position of the other stream's first row.

        Returns
        -------
        Reservoir
            As large as the smaller of the two: of the stream that was sampled with fewer, no more rows are known.
        """
        smaller = replace(self, size=min(self.size, other.size))
        return smaller._first_of(other.rows, start + other.positions, other.weights, other.keys)

    def inclusion_weights(self) -> Array:
        """Return what each row stands for, shape (k,): weighted sums over the sample estimate sums over the stream.

        Notes
        -----
        While all rows are kept a row stands for itself. Later the last to arrive at time T is only the clock: a row of
        weight a was kept with probability 1 - exp(-a T), so it stands for a / (1 - exp(-a T)) [1]_.

        References
        ----------
        .. [1] E. Cohen, H. Kaplan, "Summarizing data using bottom-k sketches", PODC 2007.
        """
        if not self.is_full or len(self) < 2:
            return self.weights
        stands_for = np.zeros(len(self))
        counting = np.flatnonzero(self.weights[:-1] > 0.0)
        weights = self.weights[counting]
        # Times of faded rows are beyond all numbers: a row that is sure to arrive by then stands for itself.
        rate = np.exp(np.clip(np.log(weights) + self.keys[-1], -700.0, 700.0))
        stands_for[counting] = weights / -np.expm1(-rate)
        return stands_for

    def _first_of(self, rows: Array, positions: Positions, weights: Array, keys: Array) -> Self:
        """Keep the first to arrive among the sample and other rows."""
        keys = np.concatenate([self.keys, keys])
        # Equal keys: the order in which rows are given must not depend on how they are cut.
        order = np.argsort(keys, kind="stable")[: self.size]
        return replace(
            self,
            rows=np.concatenate([self.rows, rows])[order],
            positions=np.concatenate([self.positions, positions])[order],
            weights=np.concatenate([self.weights, weights])[order],
            keys=keys[order],
        )
