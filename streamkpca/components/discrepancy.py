"""Discrepancies: how far the latest rows are from all rows since some row, by the means of their coordinates.

The coordinates of a row in the span of the atoms keep inner products, so that squared distances between means of them
are maximum mean discrepancies [1]_, as far as the span holds the rows.

.. [1] A. Gretton, K. M. Borgwardt, M. J. Rasch, B. Schoelkopf, A. Smola, "A kernel two-sample test", JMLR 13, 2012.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamkpca.components import _loops as loops
from streamkpca.components.passages import (
    FOR_PASSAGES,
    FOR_SCALES,
    LEVELS,
    Passages,
    in_blocks,
    least_novelty,
    likeness_of,
    passages_of,
    sampled,
    scores_of,
    tails_of,
)
from streamkpca.components.snapshot import Snapshot

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Rows of resampled streams before statistics are read: one row has no discrepancy.
_BEFORE, _EVERY = 8, 8
# Columns have no products, and no bounds: kernels with heavy tails have their heavy discrepancies.
_NO_PRODUCTS = 0, 0, np.empty(0), np.empty(0)


@dataclass(frozen=True)
class Discrepancy(Passages):
    """Averages of rates (K,) less the mean of all rows since some row, and what healthy rows reach.

    The columns of a row are its coordinates in the span of the atoms and the logarithm of its novelty plus
    `least_novelty`, less a `middle` (p,), over a `spread` (p,), one for all coordinates. `power` and `scale` (K, 2) are
    as in `_loops`.
    """

    middle: Array
    spread: Array
    least_novelty: float
    rates: Array
    power: Array
    scale: Array

    @property
    def bounds(self) -> Positions:
        """Where the two groups of columns begin, and the last one ends."""
        return np.array([0, len(self.middle) - 1, len(self.middle)])

    @property
    def new_averages(self) -> Array:
        """The averages and the mean before the first row."""
        return np.zeros((len(self.rates) + 1, len(self.middle)))

    def few(self, snapshot: Snapshot, rows: Array, first: int) -> Array:
        """Return the columns of rows from position `first` of the stream on; each row by itself."""
        out = np.empty((len(rows), len(self.middle)))
        in_blocks(rows, first, lambda block: _columns(snapshot, block, self.least_novelty), out)
        return _scaled(out, self.middle, self.spread)

    def follow(self, few: Array, n_before: int, averages: Array, level: float) -> tuple[Array, int, int]:
        """Take rows into the averages of others before, in place, as `Chart.follow` does."""
        precision = np.ones((len(self.rates), len(self.middle)))
        plan = self.rates, precision, self.bounds, self.power, self.scale
        values = np.empty(len(few))
        n, place = loops.follow_averages(few, _NO_PRODUCTS, n_before, averages, plan, level, values)
        return values[:n], n, place

    def beginning(self, few: Array, averages: Array, place: int) -> int:
        """Return the most likely first row of a change among rows (n, p), up to the one that passed at a place.

        It maximises the likelihood ratio of two means along the direction of the averages.
        """
        k, g = divmod(place, len(self.bounds) - 1)
        start, stop = self.bounds[g : g + 2]
        along = few[:, start:stop] @ (averages[k, start:stop] - averages[-1, start:stop])
        after = np.arange(1, len(along))
        sums = np.maximum(np.cumsum((along - along.mean())[:0:-1]), 0.0) / np.sqrt(after * (1.0 - after / len(along)))
        return len(along) - 1 - int(np.argmax(sums))


def discrepancy_of(rows: Array, snapshot: Snapshot) -> Discrepancy:
    """Return what discrepancies healthy rows (n, d) in time order reach; the same for the same rows."""
    coordinates, novelty = snapshot.coordinates(rows)
    least = least_novelty(coordinates, novelty)
    columns = np.column_stack([coordinates, np.log(novelty + least)])
    middle, spread = columns.mean(axis=0), columns.std(axis=0)
    # Coordinates keep their proportions, as inner products are made of them.
    spread[:-1] = math.sqrt(float((spread[:-1] ** 2).mean()))
    spread[spread <= 1e-9 * math.sqrt(float((coordinates**2).sum(axis=1).mean()))] = 1.0
    columns = _scaled(columns, middle, spread)
    likeness, random = likeness_of(scores_of(rows)[0]), np.random.default_rng(0)
    # A mean of all rows so far tells nothing of a single row.
    rates, length, bounds = likeness.rates[1:], likeness.length, np.array([0, len(middle) - 1, len(middle)])
    precision = np.ones((len(rates), len(middle)))
    places, reading = likeness.starts(random, FOR_SCALES), (length, _BEFORE, _EVERY)
    power, scale = tails_of(sampled(columns, places, reading, (rates, precision, bounds), len(rates) + 1)[1])
    places = likeness.starts(random, FOR_PASSAGES)
    errors, passed = np.zeros((len(places), len(middle))), np.empty((len(places), len(LEVELS)), dtype=np.int64)
    plan = rates, precision, bounds, power, scale
    loops.first_passages(columns, errors, places, length, np.empty((len(rates) + 1, len(middle))), plan, LEVELS, passed)
    passages = vars(passages_of(passed, likeness))
    return Discrepancy(
        **passages, middle=middle, spread=spread, least_novelty=least, rates=rates, power=power, scale=scale
    )


def _columns(snapshot: Snapshot, rows: Array, least: float) -> Iterator[tuple[slice, Array]]:
    """Give the columns of rows, unscaled, and where they belong."""
    with np.errstate(all="ignore"):
        coordinates, novelty = snapshot.coordinates(rows)
        m = coordinates.shape[1]
        yield slice(0, m), coordinates
        yield slice(m, m + 1), np.log(novelty + least)[:, None]


def _scaled(columns: Array, middle: Array, spread: Array) -> Array:
    """Centre and scale columns (n, p) in place."""
    loops.scale_columns(columns, middle, np.full(len(middle), np.inf), spread)
    return columns
