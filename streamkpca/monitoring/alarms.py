"""Which rows are alarms, and which of these begin an event: rarities limited by all rows so far, records, a budget."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from streamkpca._core.arrays import Array, Flags, Indices
from streamkpca.monitoring._loops import N_BINS, follow_events, limit_rarities

# By each view a row is at most ten times rarer than by rank among all rows: nine of ten of the rows as odd may be
# anomalies.
_MOST_TIMES_RARER = 10.0
# An event begins at a row that is rarer than this many rows before it: what is wrong is told once.
N_RECENT = 200
# Numbers that say how far events are: a place in the ring of these rows, a number of rows, and what is needed.
N_COUNTERS = 3
# Rows since the last event where there was none.
_LONG_AGO = 2.0**40


# Share of a chunk's rows that are as rare as once in 100, from which on the stream is away from its healthy state.
_AWAY = 0.5
# Share below which it is back.
_BACK = 0.1


@dataclass(frozen=True, eq=False)
class AlarmState:
    """What decides which rows begin an event; a value.

    `counts` (v, N_BINS + 1) say how many rarities by each view there were in each bin, as Fenwick trees with the totals
    first. `calm_counts` are those before the stream went away from its healthy state, and `is_away` says that it is.
    `recent` (w,) is a ring of the latest rarities, `counters` (3,) are its place, the rows since the last alarm, and
    the logarithm to base 10 of the rarity that the next event needs.
    """

    counts: Array
    calm_counts: Array
    is_away: bool = False
    recent: Array = field(default_factory=lambda: np.zeros(N_RECENT))
    counters: Array = field(default_factory=lambda: np.array([0.0, _LONG_AGO, 0.0]))

    @classmethod
    def begin(cls, n_views: int) -> Self:
        """Return the state before the first row."""
        counts = np.zeros((n_views, N_BINS + 1))
        return cls(counts, counts)

    def end(self) -> Self:
        """End the open event: the next alarm begins another one, if it may."""
        return replace(self, counters=np.where(np.arange(N_COUNTERS) == 1, _LONG_AGO, self.counters))

    def begin_anew(self) -> Self:
        """Begin a new recording, of which no row is compared with those before; the budget stays."""
        begun = type(self).begin(len(self.counts))
        counters = np.concatenate([begun.counters[:-1], self.counters[-1:]])
        return replace(self, recent=begun.recent, counters=counters)

    def finish_chunk(self, is_rare: Flags) -> Self:
        """Note whether the stream is away from its healthy state; once it is back, count as if it had never left.

        Otherwise a stop would hide the faults after it: they would be no rarer than its rows.
        """
        share = float(np.mean(is_rare))
        if share > _AWAY:
            return replace(self, is_away=True)
        if share < _BACK:
            return self.come_back()
        return self if self.is_away else replace(self, calm_counts=self.counts)

    def come_back(self) -> Self:
        """Count as if the stream had never left its healthy state, or take its present rows for part of it."""
        counts = self.calm_counts if self.is_away else self.counts
        return replace(self, counts=counts, calm_counts=counts, is_away=False)

    def skip(self, n: int) -> Self:
        """Go on after rows that are not judged."""
        return replace(self, counters=self.counters + np.array([0.0, n, 0.0]))


class Alarms(NamedTuple):
    """What is found of rows (n,): rarities among all so far, by which view, alarms, and which of them begin events."""

    rarity_so_far: Array
    views: Indices
    is_alarm: Flags
    begins: Flags


def find_alarms(
    state: AlarmState,
    rarity: Array,
    rarities: Array,
    is_fine: Flags,
    is_fault: Flags,
    threshold: float,
    end_after: int,
    allowance: Array,
    is_limited: bool,
) -> tuple[AlarmState, Alarms]:
    """Judge the next rows by their rarity (n,) among healthy rows, and by each view's (v, n), limited by rows so far.

    Where a stream has moved on, all its rows would be rare among the healthy ones. So by each view a row is at most
    ten times rarer than among all rows so far, of which the latest 512 to 1,024 count most. Rows like accepted and
    like confirmed events do not count, and are not limited. `allowance` (n,) is the number of events that each row
    allows for, if there is a budget, and infinite otherwise.
    """
    n = len(rarity)
    counts, limited = state.counts, rarities
    if is_limited:
        counts, limited = counts.copy(), np.empty(rarities.shape)
        is_counted = ~(is_fine | is_fault)
        for view, row, out in zip(rarities, counts, limited, strict=False):
            limit_rarities(view, is_counted, _MOST_TIMES_RARER, row, out)
    so_far, views = limited.max(axis=0), limited.argmax(axis=0)
    so_far[is_fine] = 1.0
    recent, counters = state.recent.copy(), state.counters.copy()
    is_alarm, begins = np.empty((2, n), dtype=bool)
    follow_events(
        np.minimum(so_far, rarity), is_fault, threshold, float(end_after), allowance, recent, counters, is_alarm, begins
    )
    state = replace(state, counts=counts, recent=recent, counters=counters)
    return state, Alarms(so_far, views, is_alarm, begins)
