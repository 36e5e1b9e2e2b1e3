"""The reservoir: a weighted random sample of the stream, of fixed size."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.concurrency import cached_property

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Rows wait aside until they are this share of the settled ones.
_MOST_LATE = 0.125


def arrival_times(seed: int, start: int, rows: Array, races: int) -> Array:
    """Draw when the rows of a block arrive in independent races.

    Parameters
    ----------
    seed : int
        Of the stream.
    start : int
        Position of the block in the stream.
    rows : ndarray of shape (B, d)
    races : int

    Returns
    -------
    ndarray of shape (races, B)
        Exponential with rate 1.

    Notes
    -----
    The generator is seeded with the seed, the block's position and a checksum of its contents. So times do not depend
    on how calls cut the stream, and shards that share a seed draw independently.
    """
    contents = int(np.add.reduce(rows.view(np.uint64), axis=None))
    return np.random.default_rng([seed, start, contents]).standard_exponential((races, len(rows)))


@dataclass(frozen=True, eq=False)
class Draws:
    """Rows that were drawn.

    Parameters
    ----------
    rows : ndarray of shape (k, d)
        Maybe in single precision.
    positions : ndarray of shape (k,) of int64
        Their positions in the stream.
    weights : ndarray of shape (k,)
        What they count now.
    keys : ndarray of shape (k,)
        Logarithm of each row's time of arrival in the race.
    """

    rows: Array
    positions: Positions
    weights: Array
    keys: Array

    def decayed(self, factor: float) -> "Draws":
        """Let all rows count `factor` times what they did."""
        return replace(self, weights=self.weights * factor, keys=self.keys - math.log(factor))

    def first(self, count: int, others: "tuple[Draws, ...]") -> "Draws":
        """Return the first to arrive among these rows and others, in the order of arrival."""
        every = (self, *others)
        keys = np.concatenate([draws.keys for draws in every])
        # Equal keys: the order in which rows are given must not depend on how they are cut.
        order = np.argsort(keys, kind="stable")[:count]
        return Draws(
            np.concatenate([draws.rows for draws in every])[order],
            np.concatenate([draws.positions for draws in every])[order],
            np.concatenate([draws.weights for draws in every])[order],
            keys[order],
        )


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Rows of the stream, drawn one after another without replacement, each time in proportion to what they weigh.

    Parameters
    ----------
    size : int
        The most rows that are kept.
    sorted_draws : Draws
        The first `size` to arrive of the rows up to some block, in the order of arrival.
    unsorted_draws : tuple of Draws
        Rows of later blocks that may be among the first.

    Notes
    -----
    Every row runs a race: its time is exponential with rate a_n, and the first `size` to arrive are kept. So the first
    is row n with probability a_n / sum a, the second likewise among the others, and so on [1]_. Forgetting slows all
    rows down alike, which keeps their order; a row that comes later runs at full rate, so the sample leans to the
    present exactly as the weights do. The union of two races is a race: merging keeps the first to arrive of both.

    Rows that arrive before the last of the settled ones wait aside until there is some number of them: sorting them in
    one by one would copy the whole sample for each.

    References
    ----------
    .. [1] P. S. Efraimidis, P. G. Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters
       97, 2006. Keys u^(1/w) there; here -log(u)/w, whose logarithm neither over- nor underflows.
    """

    size: int
    sorted_draws: Draws
    unsorted_draws: tuple[Draws, ...] = ()

    @classmethod
    def empty(cls, size: int, n_features: int, dtype: str = "float64") -> Self:
        """Return a reservoir without rows, which keeps them as so precise numbers."""
        nobody = Draws(np.empty((0, n_features), dtype=dtype), np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
        return cls(size, nobody)

    def __getstate__(self) -> dict[str, Any]:
        # Not the sample put in order on demand, which another thread may just be adding.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def emptied(self) -> Self:
        """Return a reservoir of the same kind without rows."""
        return self.empty(self.size, self.sorted_draws.rows.shape[1], self.sorted_draws.rows.dtype.name)

    def __len__(self) -> int:
        """Return the number k of rows kept."""
        return min(self.size, len(self.sorted_draws.keys) + self._n_late)

    @property
    def rows(self) -> Array:
        """The sample, in the order of the draws; shape (k, d)."""
        return self.part(slice(None))

    @property
    def kept_rows(self) -> Array:
        """The sample as it is kept; shape (k, d)."""
        return self._drawn.rows

    def part(self, place: slice) -> Array:
        """Return some rows of the sample, in double precision: whoever reads many takes them in parts."""
        return self._drawn.rows[place].astype(np.float64, copy=False)

    @property
    def positions(self) -> Positions:
        """Positions in the stream; shape (k,)."""
        return self._drawn.positions

    @property
    def weights(self) -> Array:
        """What the rows count now; shape (k,)."""
        return self._drawn.weights

    @property
    def keys(self) -> Array:
        """Logarithm of each row's time of arrival in the race, ascending; shape (k,)."""
        return self._drawn.keys

    @property
    def is_full(self) -> bool:
        """Whether rows may have been left out."""
        return len(self) == self.size

    def add(self, rows: Array, weights: Array, start: int, times: Array) -> Self:
        """Take in a block, O(B) and O(size d) now and then.

        Parameters
        ----------
        rows : ndarray of shape (B, d)
        weights : ndarray of shape (B,)
            Rows of weight zero are never drawn.
        start : int
            Position of the first row in the stream.
        times : ndarray of shape (B,)
            Exponential with rate 1, see `arrival_times`.

        Returns
        -------
        Reservoir
        """
        if self.size == 0:
            return self
        with np.errstate(divide="ignore"):
            keys = np.log(times) - np.log(weights)
        last = self.sorted_draws.keys[-1] if len(self.sorted_draws.keys) == self.size else np.inf
        early = np.flatnonzero(keys < last)
        if not len(early):
            return self
        kept = rows[early].astype(self.sorted_draws.rows.dtype, copy=False)
        drawn = Draws(kept, start + early, weights[early], keys[early])
        waiting = replace(self, unsorted_draws=(*self.unsorted_draws, drawn))
        return waiting.sorted() if waiting._n_late > max(len(self.sorted_draws.keys), 1) * _MOST_LATE else waiting

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
        late = tuple(draws.decayed(factor) for draws in self.unsorted_draws)
        return replace(self, sorted_draws=self.sorted_draws.decayed(factor), unsorted_draws=late)

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
        theirs = replace(other._drawn, positions=start + other.positions)
        return replace(self, size=min(self.size, other.size), unsorted_draws=(*self.unsorted_draws, theirs)).sorted()

    def sorted(self) -> Self:
        """Let the rows that wait aside take their places."""
        if not self.unsorted_draws and len(self.sorted_draws.keys) <= self.size:
            return self
        return replace(self, sorted_draws=self.sorted_draws.first(self.size, self.unsorted_draws), unsorted_draws=())

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

    def normalised_weights(self) -> Array:
        """Return `inclusion_weights` as shares of one, shape (k,)."""
        weights = self.inclusion_weights()
        shares: Array = weights / weights.sum()
        return shares

    @cached_property
    def _drawn(self) -> Draws:
        return self.sorted().sorted_draws

    @property
    def _n_late(self) -> int:
        return sum(len(draws.keys) for draws in self.unsorted_draws)
