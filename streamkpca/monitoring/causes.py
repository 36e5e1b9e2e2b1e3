"""Causes of an event: the fewest features that, had they been as expected, would have made it usual."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca.components.expectation import RANGE
from streamkpca.components.snapshot import Snapshot
from streamkpca.rows.times import Time

Array = npt.NDArray[np.float64]

# Alarms of an event that are kept, those of them that decide which features it names, and these features, at most.
_MOST_ROWS, _DECIDING, _MOST_CAUSES = 32, 8, 5
# Surprise of a feature that is named, as a share of the largest: usual numbers surprise, too.
_LEAST_SHARE = 0.1
DIRECTIONS = ("above", "below")


class Cause(NamedTuple):
    """A feature that explains an event, as `Event.features` lists them.

    Parameters
    ----------
    feature : str or int
        Its name, or its position.
    share : float
        Its share of what the listed features explain.
    value : float
        Its value at a typical alarm: of those where it is outside of its range, the one in the middle by how far it is.
    expected, low, high : float
        The value expected there, given the features that are not listed, and a range of two standard deviations to
        either side, in which about nine in ten healthy values lie.
    direction : {"above", "below"}
        Where the value lies.
    since : int
        Position of the first alarm at which the feature was outside of its range. Of more than 32 alarms, at least
        every second one is looked at, of more than 64 every fourth, and so on.
    since_time : datetime64 or float, optional
        Its time.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> random = np.random.default_rng(0)
    >>> rows = np.repeat(random.normal(size=(2000, 2)), 2, axis=1) + 0.1 * random.normal(size=(2000, 4))
    >>> rows[1500:1520, 3] += 3.0
    >>> monitor = Monitor()
    >>> record = monitor.update(rows)
    >>> cause = max(monitor.events_, key=lambda event: event.n_alarms).features[0]
    >>> cause.feature, cause.direction, cause.since, bool(abs(cause.value - cause.expected - 3.0) < 1.0)
    (3, 'above', 1500, True)
    """

    feature: str | int
    share: float
    value: float
    expected: float
    low: float
    high: float
    direction: str
    since: int
    since_time: Time | None = None


class EventRows(NamedTuple):
    """Alarms of an event, evenly spread from its first one on: positions (k,), rows (k, lags * d) and times."""

    positions: npt.NDArray[np.int64]
    rows: Array
    times: tuple[Time | None, ...]

    def added(self, n: int, position: int, row: Array, time: Time | None) -> "EventRows":
        """Take in alarm number n, counted from 0, or leave it out; which ones are kept depends on n alone."""
        n_doubled = max(n // _MOST_ROWS, 0).bit_length()
        kept = self
        if n_doubled and n == _MOST_ROWS << (n_doubled - 1):
            kept = EventRows(self.positions[::2], self.rows[::2], self.times[::2])
        if n % (1 << n_doubled):
            return kept
        positions = np.concatenate([kept.positions, [position]])
        return EventRows(positions, np.concatenate([kept.rows, row[None]]), (*kept.times, time))

    @classmethod
    def of_run(cls, rows: Array, start: int, start_time: Time | None) -> "EventRows":
        """Return some of the rows (n, lags * d) of a run, evenly spread, all at its start."""
        few = rows[:: max(-(-len(rows) // _MOST_ROWS), 1)]
        return cls(np.full(len(few), start), few, (start_time,) * len(few))

    @classmethod
    def none(cls, width: int) -> "EventRows":
        """Return no rows."""
        return cls(np.empty(0, dtype=np.int64), np.empty((0, width)), ())


def causes_of(
    kept: EventRows, answers: Snapshot, threshold: float, lags: int, names: list[str] | None, n_conditions: int = 0
) -> tuple[Cause, ...]:
    """Return the features that surprise most in an event, so many as bring its rows below the threshold.

    Surprises are means over some of its rows. Features come with their predecessors: what is expected of them follows
    from the features that are not named, at all lags, and from the last columns, conditions which are never named.
    """
    rows, expectation = kept.rows, answers.expectation
    few = rows[:: -(-len(rows) // _DECIDING)]
    with np.errstate(all="ignore"):
        added = expectation.surprise(few, lags, n_conditions).mean(axis=0)
        order = np.argsort(-added, kind="stable")[:_MOST_CAUSES]
        # A feature may be surprising by its predecessors alone, where its own number is missing.
        has_values = ~np.isnan(rows[:, order]).all(axis=0)
        order = order[has_values & (added[order] > _LEAST_SHARE * added[order[0]])]
        if not len(order):
            return ()
        for n in range(1, len(order) + 1):
            columns = (order[:n] + len(added) * np.arange(lags)[:, None]).ravel()
            usual, (expected, spread) = few.copy(), expectation.given(few, columns)
            usual[:, columns] = np.where(np.isnan(few[:, columns]), np.nan, expected)
            if answers.novelty_by_row(usual).mean() <= threshold:
                break
        order = order[:n]
        if len(few) < len(rows):
            expected, spread = expectation.given(rows, columns)
        distances = np.abs(rows[:, order] - expected[:, :n]) / spread[:, :n]
        distances = np.where(distances >= 0.0, distances, -1.0)
    causes = []
    for k, (j, share) in enumerate(zip(order.tolist(), added[order] / added[order].sum(), strict=True)):
        far = distances[:, k]
        outside = np.flatnonzero(far >= min(RANGE, far.max()))
        at = int(outside[np.argsort(far[outside], kind="stable")[len(outside) // 2]])
        value, middle, half = float(rows[at, j]), float(expected[at, k]), RANGE * float(spread[at, k])
        values = float(share), value, middle, middle - half, middle + half, "above" if value > middle else "below"
        causes.append(Cause(names[j] if names else j, *values, int(kept.positions[outside[0]]), kept.times[outside[0]]))
    return tuple(causes)
