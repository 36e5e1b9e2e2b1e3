"""Lasting changes: found by a cumulative sum of rows that are rare among healthy ones, and dated."""

import math
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from scipy.special import xlogy

from streamkpca._core.arrays import Array, Flags, Positions
from streamkpca.monitoring.causes import Cause, write_cause, write_place
from streamkpca.rows.times import Time, Times, time_of

# A change that is not learned is reported once rare rows exceed a twentieth of all rows by this number: when about half
# of the last 512 were not learned.
LASTING = 256
# One rare row in this number of rows is no lasting change.
_ROWS_FOR_ONE = 20
# Rows of the bins that rare rows are counted in at first.
_BIN = 32
# Most bins; beyond, they get twice as wide.
_MOST_BINS = 512


@dataclass(frozen=True)
class Change:
    """A lasting change: many rows since some row are as rare among healthy ones as alarms are.

    Parameters
    ----------
    start, detected : int
        Positions of the row that it began with, and of the row after which it was detected.
    share : float
        Share of such rows among those from `start` to `detected`.
    features : tuple of Cause
        The features that explain those rows since then that were not learned; `since` is that of the change.
    is_accepted : bool
        Whether the rows since `start` were learned.
    start_time, detected_time : datetime64 or float, optional
        Times of these rows, in UTC.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> rows = np.random.default_rng(0).normal(size=(6000, 3))
    >>> rows[5000:, 1] += 20.0
    >>> monitor = Monitor(accept_after=500)
    >>> record = monitor.update(rows)
    >>> change = monitor.change_detected_
    >>> change.start, change.features[0].feature, change.is_accepted
    (5000, 1, True)
    >>> print(change)
    lasting change from row 5,000 on, in feature 1, noticed at row 5,632
    """

    start: int
    detected: int
    share: float
    features: tuple[Cause, ...]
    is_accepted: bool
    start_time: Time | None = None
    detected_time: Time | None = None

    def __str__(self) -> str:
        begin, end = write_place(self.start, self.start_time), write_place(self.detected, self.detected_time)
        state = "" if self.is_accepted else ", not learned: a fault, or another state?"
        return f"lasting change from {begin} on{write_cause(self.features)}, noticed at {end}{state}"


@dataclass(frozen=True)
class Cusum:
    """Page's cumulative sum of rows that exceed the threshold, which tells when there have been many for long.

    It is positive since position `start`, and `excess` are the rows since then that exceed it, less one in twenty. They
    are counted in bins of `width` rows, `counts` (b,) where there are any, the first at `firsts` and `first_times`.
    """

    start: int = 0
    excess: float = 0.0
    width: int = _BIN
    counts: Positions = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    firsts: Positions = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    first_times: tuple[Time | None, ...] = ()

    def advance(self, exceeds: Flags, first: int, times: Times | None = None) -> Self:
        """Count which of the rows (n,) from position `first` on exceed the threshold."""
        if not self.excess and not np.count_nonzero(exceeds):
            return self
        rare, total, since, n_seen = np.flatnonzero(exceeds), self, 0, 0
        # In other rows that would bring it to zero: whole numbers, so that cuts change no bit.
        left = round(self.excess * _ROWS_FOR_ONE)
        for k, i in enumerate(rare.tolist()):
            left -= i - n_seen
            if left <= 0:
                total, since, left = type(self)(start=first + i), k, 0
            left, n_seen = left + _ROWS_FOR_ONE - 1, i + 1
        left -= len(exceeds) - n_seen
        if left <= 0:
            return type(self)()
        return replace(total._count(rare[since:], first, times), excess=left / _ROWS_FOR_ONE)

    def _count(self, rare: Positions, first: int, times: Times | None) -> Self:
        """Count rare rows (r,), given by their places behind position `first`, in bins."""
        positions = np.concatenate([self.firsts, first + rare])
        at = (*self.first_times, *(time_of(times, i) for i in rare.tolist()))
        numbers = np.concatenate([self.counts, np.ones(len(rare), dtype=np.int64)])
        width = self.width
        while len(places := np.unique(positions // width, return_index=True)[1]) > _MOST_BINS:
            width *= 2
        counts, first_times = np.add.reduceat(numbers, places), tuple(at[i] for i in places.tolist())
        return replace(self, width=width, counts=counts, firsts=positions[places], first_times=first_times)

    def find_start(self, n_rows: int) -> tuple[int, Time | None]:
        """Return since when there have been more rare rows, up to row `n_rows`: the likeliest place of a higher rate.

        Rare rows are taken for independent, one in twenty before a place, as the sum was zero just before, and more
        from it on. The sum itself begins with the first rare row after which it never was zero, which may be one of
        chance, long before.
        """
        before = np.concatenate([[0], np.cumsum(self.counts)[:-1]]).astype(float)
        after, n_before = float(self.counts.sum()) - before, (self.firsts - self.start).astype(float)
        n_after = float(n_rows - self.start) - n_before
        likelihood = before * math.log(1.0 / _ROWS_FOR_ONE) + (n_before - before) * math.log1p(-1.0 / _ROWS_FOR_ONE)
        likelihood += _bernoulli(after, n_after)
        best = int(np.argmax(np.where(_ROWS_FOR_ONE * after >= n_after, likelihood, -np.inf)))
        return int(self.firsts[best]), self.first_times[best]


def _bernoulli(rare: Array, rows: Array) -> Array:
    """Return the largest log likelihood of numbers of rare rows among numbers of rows."""
    rows = np.maximum(rows, rare)
    return np.asarray(xlogy(rare, rare) + xlogy(rows - rare, rows - rare) - xlogy(rows, rows))
