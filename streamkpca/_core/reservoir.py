"""Rows of the stream by their positions, and the reservoir: a weighted random sample of fixed size."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.arrays import Array, Flags, Positions
from streamkpca._core.concurrency import cached_property

# Positions from here on are of rows that a stream knows but has not counted: those of the template that it began with.
# Contents of the rows and the number of equal ones before determine them, so that streams of one template agree.
_OUTSIDE: Final = 2**62


def positions_outside(rows: Array) -> Positions:
    """Return distinct positions for rows (n, d) of no stream, which the rows and their order determine."""
    n_equal: Counter[bytes] = Counter()
    digests = []
    for row in np.ascontiguousarray(rows, dtype="<f8"):
        content = row.tobytes()
        digests.append(blake2b(content + n_equal[content].to_bytes(8, "little"), digest_size=8).digest())
        n_equal[content] += 1
    contents = np.frombuffer(b"".join(digests), dtype="<u8") % _OUTSIDE
    return contents.astype(np.int64) + _OUTSIDE


def origins_of(positions: Positions) -> Positions:
    """Return the positions of the rows that atoms are, or began as: those of atoms that moved are complements."""
    return np.where(positions < 0, ~positions, positions)


def are_outside(positions: Positions) -> Flags:
    """Tell which positions are of rows that the stream has not counted."""
    return origins_of(positions) >= _OUTSIDE


def shift_positions(positions: Positions, count: int) -> Positions:
    """Return positions in a stream that has `count` more rows at its beginning."""
    return np.where(are_outside(positions), positions, np.where(positions < 0, positions - count, positions + count))


# Unsorted draws are sorted in once there are more of them than this share of the sorted ones.
_LARGEST_UNSORTED_SHARE = 0.125


def arrival_times(seed: int, start: int, rows: Array, races: int) -> Array:
    """Draw when the rows of a block arrive in `races` independent races: exponential with rate 1, (races, B).

    Seed, position and contents make times depend neither on cuts nor on other shards that share the seed.
    """
    contents = int(np.add.reduce(rows.view(np.uint64), axis=None))
    return np.random.default_rng([seed, start, contents]).standard_exponential((races, len(rows)))


@dataclass(frozen=True, eq=False)
class Draws:
    """Rows (k, d) that were drawn from the stream.

    `positions` (k,) are those in the stream, `weights` (k,) the present ones, and `keys` (k,) the logarithms of the
    times at which the rows arrived in the race.
    """

    rows: Array
    positions: Positions
    weights: Array
    keys: Array

    def decay(self, factor: float) -> "Draws":
        """Multiply the weights of all rows by `factor`."""
        return replace(self, weights=self.weights * factor, keys=self.keys - math.log(factor))

    def at(self, chosen: npt.NDArray[Any] | slice) -> "Draws":
        """Return the rows at some places, or those that a mask selects."""
        return Draws(*(values[chosen] for values in vars(self).values()))

    def map(self, change: Callable[[Array], Array]) -> "Draws":
        """Return the draws with a change of their rows; these draws themselves if it changes none."""
        changed = change(self.rows)
        return self if changed is self.rows else replace(self, rows=changed)

    def first(self, count: int, others: "tuple[Draws, ...]") -> "Draws":
        """Return the first `count` to arrive among these rows and others, in the order of arrival."""
        every = Draws(*map(np.concatenate, zip(*(vars(draws).values() for draws in (self, *others)), strict=True)))
        # A stable sort, so that the order of equal keys does not depend on how the stream is cut.
        return every.at(np.argsort(every.keys, kind="stable")[:count])


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Rows drawn one after another without replacement, each draw with probabilities in proportion to weight.

    Parameters
    ----------
    size : int
        Most rows to keep.
    sorted_draws : Draws
        The first `size` rows to arrive up to some block, in the order of arrival.
    unsorted_draws : tuple of Draws
        Rows of later blocks that may be among these, `n_unsorted` in all, sorted in together later.

    All rows run a race: the time of row n is exponential with rate a_n, and the first `size` rows to arrive are kept.
    So row n arrives first with probability a_n / sum a, and likewise second among the others, and so on [1]_.
    Forgetting slows all rows down alike, so the sample favours the present exactly as the weights do. The union of two
    races is a race: a merge keeps the first to arrive of both.

    References
    ----------
    .. [1] P. S. Efraimidis, P. G. Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters
       97, 2006. Its keys are u^(1/w); here they are -log(u)/w, whose logarithm neither overflows nor underflows.
    """

    size: int
    sorted_draws: Draws
    unsorted_draws: tuple[Draws, ...] = ()
    # An old stream has hundreds of pieces, which would be counted again for each block.
    n_unsorted: int = 0

    @classmethod
    def empty(cls, size: int, n_features: int) -> Self:
        """Return a reservoir without rows."""
        return cls(size, Draws(np.empty((0, n_features)), np.empty(0, dtype=np.int64), np.empty(0), np.empty(0)))

    def __getstate__(self) -> dict[str, Any]:
        # Without the cached sorted sample, which another thread may be adding at this moment.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def drop_rows(self) -> Self:
        """Return a reservoir of the same size and width without rows."""
        return self.empty(self.size, self.n_features)

    def __len__(self) -> int:
        """Return the number k of rows kept."""
        return min(self.size, len(self.sorted_draws.keys) + self.n_unsorted)

    @property
    def n_features(self) -> int:
        """Number of columns of the rows."""
        return int(self.sorted_draws.rows.shape[1])

    @property
    def rows(self) -> Array:
        """The sample, in the order of the draws; shape (k, d)."""
        return self._drawn.rows

    @property
    def positions(self) -> Positions:
        """Positions in the stream; shape (k,)."""
        return self._drawn.positions

    @property
    def weights(self) -> Array:
        """Present weights of the rows; shape (k,)."""
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
        """Take in a block: rows (B, d), weights (B,), position of the first row, and `arrival_times` (B,)."""
        if self.size == 0:
            return self
        with np.errstate(divide="ignore"):
            keys = np.log(times) - np.log(weights)
        last = self.sorted_draws.keys[-1] if len(self.sorted_draws.keys) == self.size else np.inf
        early = np.flatnonzero(keys < last)
        if not len(early):
            return self
        drawn = Draws(rows[early], start + early, weights[early], keys[early])
        n_unsorted = self.n_unsorted + len(early)
        added = type(self)(self.size, self.sorted_draws, (*self.unsorted_draws, drawn), n_unsorted)
        most = _LARGEST_UNSORTED_SHARE * max(len(self.sorted_draws.keys), 1)
        return added.sort() if n_unsorted > most else added

    def decay(self, factor: float) -> Self:
        """Multiply the weights of all rows by `factor`, above 0 and at most 1."""
        unsorted_draws = tuple(draws.decay(factor) for draws in self.unsorted_draws)
        return replace(self, sorted_draws=self.sorted_draws.decay(factor), unsorted_draws=unsorted_draws)

    def merge(self, other: Self, start: int) -> Self:
        """Draw from the rows of both streams, as many as the smaller sample; the other's first row is at `start`."""
        theirs = replace(other._drawn, positions=start + other.positions)
        return replace(self, size=min(self.size, other.size), unsorted_draws=(*self.unsorted_draws, theirs)).sort()

    def sort(self) -> Self:
        """Sort the unsorted draws into the sample."""
        if not self.unsorted_draws and len(self.sorted_draws.keys) <= self.size:
            return self
        return type(self)(self.size, self.sorted_draws.first(self.size, self.unsorted_draws))

    def first(self, count: int) -> Self:
        """Return the sample of at most `count` rows that the same draws give."""
        return type(self)(min(count, self.size), self._drawn.at(slice(count)))

    def map(self, change: Callable[[Array], Array]) -> Self:
        """Return the sample with a change of its rows; this sample itself if it changes none."""
        changed = self._drawn.map(change)
        return self if changed is self._drawn else type(self)(self.size, changed)

    def since(self, start: int) -> Draws:
        """Return the rows from position `start` of the stream on, in the order of the draws."""
        return self._drawn.at(self.positions >= start)

    def in_stream_order(self) -> tuple[Array, Array, Positions]:
        """Return the rows, `inclusion_weights` and positions in the order of the stream."""
        order = np.argsort(self.positions)
        return self.rows[order], self.inclusion_weights()[order], self.positions[order]

    def inclusion_weights(self) -> Array:
        """Return the weight that each row stands for in estimates of sums over the stream, shape (k,).

        While all rows are kept, a row stands for itself. Later the last row, at time T, is only the clock, and a row of
        weight a stands for a / (1 - exp(-a T)) (E. Cohen, H. Kaplan, "Summarizing data using bottom-k sketches", 2007).
        """
        if not self.is_full or len(self) < 2:
            return self.weights
        stands_for = np.zeros(len(self))
        counting = np.flatnonzero(self.weights[:-1] > 0.0)
        weights = self.weights[counting]
        # Times of decayed rows overflow, so the exponent is clipped: a row that is certain to arrive stands for itself.
        rate = np.exp(np.clip(np.log(weights) + self.keys[-1], -700.0, 700.0))
        stands_for[counting] = weights / -np.expm1(-rate)
        return stands_for

    def normalised_weights(self) -> Array:
        """Return `inclusion_weights` divided by their sum, shape (k,)."""
        weights = self.inclusion_weights()
        shares: Array = weights / weights.sum()
        return shares

    @cached_property
    def _drawn(self) -> Draws:
        return self.sort().sorted_draws
