"""Causes of an event: the features whose numbers are extreme, alone and given the others."""

import math
from typing import NamedTuple

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca.components.expectation import RANGE, Expectation
from streamkpca.components.relation import Relation
from streamkpca.errors import plainly
from streamkpca.rows.times import Time

# Alarms of an event that are kept, at most.
MOST_ROWS = 32
# Those of them that are compared with all healthy rows, which takes longest, at most.
_MOST_COMPARED = 8
# Features that an event lists, at most.
_MOST_CAUSES = 5
# What is extreme about a healthy feature in some 30 rows: three numbers of 2.5 deviations.
_USUAL = 3.0 * math.log1p(2.5**2)
# Share of what is more than usual about the first feature that others need to be listed. On 73 labelled events of seven
# servers, 0.7 of the listed ones were right.
_LEAST_SHARE = 0.5
# Share of an event's alarms at which a listed feature, but for the first, is outside of its range.
_LEAST_OUTSIDE = 0.25
# Deviations from which on a feature counts as wrong: healthy ones are two off in one alarm of twenty.
_CERTAIN = 3.0
DIRECTIONS = ("above", "below")


class Cause(NamedTuple):
    """A feature that explains an event, as `Event.features` lists them.

    Parameters
    ----------
    feature : str or int
        Its name, or its position.
    share : float
        Its share of what is extreme about the listed features.
    value : float
        Its value at the alarm where it is farthest, in deviations, from what was expected.
    expected, low, high : float
        The value expected there, given the features that are not listed, and a range of two standard deviations to
        either side. Of a linear prediction and of one by similar healthy rows, the one with the narrower range.
    direction : {"above", "below"}
        Where the value lies.
    since : int
        Position of the first alarm at which the feature was three standard deviations from what was expected,
        or at its farthest. Of more than 32 alarms, at least every second one is looked at, of more than 64
        every fourth, and so on.
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
    """Alarms of an event, evenly spread from its first one on: positions (k,), rows (k, D) and times."""

    positions: Positions
    rows: Array
    times: tuple[Time | None, ...]

    def add(self, n: int, position: int, row: Array, time: Time | None) -> "EventRows":
        """Take in alarm number n, counted from 0, or leave it out; which ones are kept depends on n alone."""
        n_doubled = (n // MOST_ROWS).bit_length()
        kept = self
        if n_doubled and n == MOST_ROWS << (n_doubled - 1):
            kept = EventRows(self.positions[::2], self.rows[::2], self.times[::2])
        if n % (1 << n_doubled):
            return kept
        positions = np.concatenate([kept.positions, [position]])
        return EventRows(positions, np.concatenate([kept.rows, row[None]]), (*kept.times, time))


class Healthy(NamedTuple):
    """What is known of healthy rows: what is expected of numbers by similar rows, and by linear prediction.

    There are no relations of more than 1,024 numbers. A row (D,) holds its features, `n_conditions` columns of the
    phase, which are given and never named, and the means and deviations of its features in the last rows.
    """

    expectation: Expectation
    relation: Relation | None
    recent: Relation | None
    n_features: int
    n_conditions: int = 0

    def measure(self, rows: Array) -> list[Array]:
        """Return how far features of rows (k, D) are from healthy ones, in deviations: arrays (k, d), 0 in gaps.

        They are what features are alone, what they differ from their linear prediction, and what they, their mean or
        their deviation differ from that by the others and the last rows, whichever is most.
        """
        d = self.n_features
        own = rows[:, :d]
        if self.relation is None:
            found = [self.expectation.standardise(self._see(rows))[:, :d]]
        else:
            found = [self.relation.standardise(own), self.relation.residuals(own) / self.relation.deviations]
        if self.recent is not None:
            recent = np.hstack([own, rows[:, d + self.n_conditions :]])
            distances = np.nan_to_num(self.recent.residuals(recent) / self.recent.deviations)
            of_feature = distances.reshape(len(rows), -1, d)
            farthest = np.abs(of_feature).argmax(axis=1)[:, None]
            found.append(np.take_along_axis(of_feature, farthest, axis=1)[:, 0])
        return [np.where(np.isnan(distances), 0.0, distances) for distances in found]

    def surprise(self, rows: Array) -> Array:
        """Return how surprising features of rows (k, D) are beside similar rows, in about deviations: (k, d)."""
        surprise: Array = np.sqrt(self.expectation.surprise(self._see(rows), 1, self.n_conditions))
        return np.where(np.isnan(rows[:, : self.n_features]), 0.0, surprise)

    def compare(self, rows: Array, features: Positions) -> tuple[Array, Array, Array]:
        """Compare features (f,) of rows (k, D) with what is expected of them, given the others.

        Returns what is expected, its deviations, and how many of these the features are off, -1 in gaps: (k, f) each.
        """
        with np.errstate(all="ignore"):
            expected, spread = self.expectation.predict(self._see(rows), features)
            if self.relation is not None:
                linear, deviation = self.relation.predict(rows[:, : self.n_features], features)
                # Where many features are wrong, what the others let expect may be far from all that was seen.
                is_linear = (deviation < spread.mean(axis=0)) & self.expectation.covers(linear, features)
                expected = np.where(is_linear, linear, expected)
                spread = np.where(is_linear, deviation, spread)
            off = np.abs(rows[:, features] - expected) / spread
        return expected, spread, np.where(off >= 0.0, off, -1.0)

    def _see(self, rows: Array) -> Array:
        """Return what the model sees of rows (k, D)."""
        return rows[:, : self.n_features + self.n_conditions]


def find_causes(
    kept: EventRows, healthy: Healthy, names: list[str] | None
) -> tuple[tuple[Cause, ...], tuple[str | int, ...]]:
    """Return the features that explain an event, at most five, and all features, the most extreme first.

    Features are ranked by the sum of log(1 + x^2) over their distances x from healthy ones, each the largest of the
    alarms: alone, given the others by linear prediction, and beside similar rows.
    """
    rows = kept.rows
    distances = [*healthy.measure(rows), healthy.surprise(rows[:: -(-len(rows) // _MOST_COMPARED)])]
    extremes = sum(np.log1p((each * each).max(axis=0)) for each in distances)
    order = np.argsort(-extremes, kind="stable")
    ranking = tuple(names[j] if names else j for j in order.tolist())
    listed = order[:_MOST_CAUSES]
    more = extremes[listed] - _USUAL
    if more[0] == -_USUAL:
        return (), ranking
    listed = listed[more >= _LEAST_SHARE * more[0]] if more[0] > 0.0 else listed[:1]
    expected, spread, off = healthy.compare(rows, listed)
    # Features that only go with the first one are inside of their ranges once it is left out.
    is_outside = (off >= RANGE).sum(axis=0) >= _LEAST_OUTSIDE * len(rows)
    is_outside[0] = True
    if not is_outside.all():
        listed = listed[is_outside]
        expected, spread, off = healthy.compare(rows, listed)
    causes = []
    for k, (j, share) in enumerate(zip(listed.tolist(), extremes[listed] / extremes[listed].sum(), strict=True)):
        far = off[:, k]
        at = int(np.argmax(far))
        value, middle, half = float(rows[at, j]), float(expected[at, k]), RANGE * float(spread[at, k])
        since = int(np.flatnonzero(far >= min(_CERTAIN, far.max()))[0])
        values = float(share), value, middle, middle - half, middle + half, "above" if value > middle else "below"
        causes.append(Cause(names[j] if names else j, *values, int(kept.positions[since]), kept.times[since]))
    return tuple(causes), ranking


def write_place(row: int, time: Time | None) -> str:
    """Write when something begins or ends: its time, if there is one, or its row."""
    return f"row {row:,}" if time is None else str(time).partition(".0000")[0]


def write_cause(causes: tuple[Cause, ...]) -> str:
    """Write the first of the causes, to follow what it explains; nothing if there are none."""
    if not causes:
        return ""
    feature = causes[0].feature
    # Names from files may hold letters that a terminal obeys.
    return f", in feature {feature}" if isinstance(feature, int) else f", in {plainly(feature)}"
