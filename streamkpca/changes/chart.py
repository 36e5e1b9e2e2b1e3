"""Control charts: moving averages of what rows are like, against what healthy rows were found to be.

The columns of a row are, each 0 on average and of variance 1 for healthy rows, and logarithms far from there: its
whitened coordinates in the span of the atoms; its features, whitened; the features themselves; logarithms of its
novelty and of its distance; and the products of any two features. In wide rows the first whitened coordinates stand for
features.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from streamkpca._core.linalg import squared_norms
from streamkpca.changes import _loops as loops
from streamkpca.changes.run_lengths import (
    FOR_PASSAGES,
    FOR_SCALES,
    LEVELS,
    Likeness,
    Passages,
    bounds_of,
    in_blocks,
    least_novelty,
    likeness_of,
    of_runs,
    passages_of,
    sampled,
    scores_of,
    spread_of,
    tails_of,
    tamed_beyond,
)
from streamkpca.components.snapshot import Snapshot

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Whitened coordinates, and features with their products, at most.
_MOST_AXES, MOST_FEATURES = 30, 24
# Rows of resampled streams before statistics are read.
_BEFORE, _EVERY = 504, 8
N_GROUPS, _N_MEANS = 5, 2


@dataclass(frozen=True)
class Columns:
    """Columns of rows (n, d), see above: `whitening` (m, r), `features` (d, f), `axes` (d, k), centred and scaled.

    They are 0 at the `middle`, and grow as logarithms beyond a `bound`, so that few rows cannot decide a healthy scale.

    The products follow from the others; `product_mean` and `product_scale` are those of products of scaled features.
    """

    coordinate_mean: Array
    whitening: Array
    feature_middle: Array
    features: Array
    axes: Array
    least_novelty: float
    middle: Array
    bound: Array
    scale: Array
    product_mean: Array
    product_scale: Array

    @property
    def bounds(self) -> Positions:
        """Where the groups of columns begin, and the last one ends."""
        f = self.n_multiplied
        return np.cumsum([0, self.whitening.shape[1], self.axes.shape[1], f, 2, f * (f + 1) // 2])

    @property
    def n_multiplied(self) -> int:
        """Number of columns whose products are columns: features or, of wide rows, the first whitened coordinates."""
        return int(self.features.shape[1] or min(self.whitening.shape[1], MOST_FEATURES))

    @property
    def products(self) -> tuple[int, int, Array, Array]:
        """How the products are made, for `_loops`."""
        before = self.whitening.shape[1] + self.axes.shape[1]
        return before, self.n_multiplied, self.product_mean, self.product_scale

    def few(self, snapshot: Snapshot, rows: Array, first: int) -> Array:
        """Return the columns of rows from position `first` of the stream on, without products; each row by itself."""
        out = np.empty((len(rows), len(self.middle)))
        return self.scaled(in_blocks(rows, first, lambda block: self._parts(snapshot, block, math.inf), out))

    def scaled(self, raw: Array) -> Array:
        """Centre and scale columns (n, .) in place."""
        loops.scale_columns(raw, self.middle, self.bound, self.scale)
        return raw

    def with_products(self, few: Array) -> Array:
        """Return all columns (n, p)."""
        out = np.empty((len(few), self.bounds[-1]))
        loops.fill_rows(few, self.products, out)
        return out

    def of_healthy(self, snapshot: Snapshot, rows: Array, n_independent: float) -> Array:
        """Return columns of the healthy rows themselves, unscaled, as if whitening had left out each."""
        return np.concatenate([part for _, part in self._parts(snapshot, rows, n_independent)], axis=1)

    def _parts(self, snapshot: Snapshot, rows: Array, n_independent: float) -> list[tuple[slice, Array]]:
        """Return columns, unscaled, and where they belong."""
        with np.errstate(all="ignore"):
            coordinates, novelty = snapshot.coordinates(rows)
            away = rows - self.feature_middle
            whitened, axes = (coordinates - self.coordinate_mean) @ self.whitening, away @ self.axes
            if n_independent < math.inf:
                for part in (whitened, axes):
                    part /= np.sqrt(np.maximum(1.0 - squared_norms(part) / n_independent, 0.1))[:, None]
            is_wide = not self.features.shape[1]
            scores, far = (whitened[:, : self.n_multiplied], whitened) if is_wide else (away @ self.features, axes)
            distance = squared_norms(far) + 0.01 * far.shape[1] + 1e-9
            logs = np.log(np.stack([novelty + self.least_novelty, distance], axis=1))
        parts = [whitened, axes, scores, logs]
        ends = np.cumsum([part.shape[1] for part in parts]).tolist()
        return [(slice(end - part.shape[1], end), part) for end, part in zip(ends, parts, strict=True)]


@dataclass(frozen=True)
class Chart(Passages):
    """Columns, rates (K,) and healthy precision (K, p) of their averages, and what statistics of healthy rows reach.

    `power` and `scale` (K, G) are as in `_loops`.
    """

    columns: Columns
    rates: Array
    precision: Array
    power: Array
    scale: Array

    @property
    def bounds(self) -> Positions:
        """Where the groups of columns begin, and the last one ends."""
        return self.columns.bounds

    @property
    def new_averages(self) -> Array:
        """The averages before the first row."""
        return np.zeros((len(self.rates), self.bounds[-1]))

    def few(self, snapshot: Snapshot, rows: Array, first: int) -> Array:
        """Return what `follow` reads of rows from position `first` of the stream on."""
        return self.columns.few(snapshot, rows, first)

    def follow(self, few: Array, averages: Array, level: float) -> tuple[Array, int, int]:
        """Take rows into the averages, in place, up to the first whose statistic passes the level.

        Returns the statistics, the number of rows taken, and the place of the last largest one, or -1.
        """
        plan = self.rates, self.precision, self.bounds, self.power, self.scale
        values = np.empty(len(few))
        n, place = loops.follow_averages(few, self.columns.products, averages, plan, level, values)
        return values[:n], n, place

    def beginning(self, few: Array, averages: Array, place: int) -> int:
        """Return the most likely first row of a change among rows (n, .), up to the one that passed at a place.

        It maximises the likelihood ratio of a shift in the direction of the averages, of unknown length.
        """
        k, g = divmod(place, N_GROUPS)
        start, stop = self.bounds[g : g + 2]
        direction, sure = averages[k, start:stop], averages[k, start:stop] ** 2 * self.precision[k, start:stop]
        # The rest are noise: of the largest by itself, all others; of a mean, those that no sum of them would miss.
        direction = np.where(sure >= (sure.max() if g >= _N_MEANS else 1.0), direction, 0.0)
        with np.errstate(all="ignore"):
            along = self.columns.with_products(few)[:, start:stop] @ (direction / np.abs(direction).max())
            sums = np.maximum(np.cumsum(along[::-1]), 0.0) / np.sqrt(np.arange(1, len(along) + 1))
        return len(along) - 1 - int(np.argmax(sums))


def chart_of(rows: Array, snapshot: Snapshot) -> Chart:
    """Make the chart of healthy rows (n, d) in time order; the same for the same rows."""
    n, d = rows.shape
    tamed, middle, spread = scores_of(rows)
    likeness = likeness_of(tamed)
    most = likeness.n_memories
    # In wide rows some features hardly ever vary: the kernel knows better in which units they count.
    n_used = d if d <= MOST_FEATURES else 0
    axes = _whitening(tamed.T @ tamed / n, min(n_used, most), 1e-6) / spread[:, None]
    features = np.diag(1.0 / spread)[:, :n_used]
    coordinates, novelty = snapshot.coordinates(rows)
    coordinate_mean, least = coordinates.mean(axis=0), least_novelty(coordinates, novelty)
    away = coordinates - coordinate_mean
    whitening = _whitening(away.T @ away / n, min(_MOST_AXES, most), 1e-4)
    none, one = np.zeros(1), np.ones(1)
    columns = Columns(coordinate_mean, whitening, middle, features, axes, least, none, one, one, none, one)
    raw = columns.of_healthy(snapshot, rows, likeness.n_independent)
    middle, bound = bounds_of(raw)
    columns = replace(columns, middle=middle, bound=bound, scale=spread_of(tamed_beyond(raw - middle, bound)))
    few, f = columns.scaled(raw), columns.n_multiplied
    columns = replace(columns, product_mean=np.zeros(f * (f + 1) // 2), product_scale=np.ones(f * (f + 1) // 2))
    products = columns.with_products(few)[:, columns.bounds[-2] :]
    columns = replace(columns, product_mean=products.mean(axis=0), product_scale=spread_of(products))
    return _chart(columns, columns.with_products(few), likeness)


def _chart(kinds: Columns, columns: Array, likeness: Likeness) -> Chart:
    """Return the chart of columns (n, p) of healthy rows, from runs of them."""
    random, (n, p) = np.random.default_rng(0), columns.shape
    rates, bounds, length = likeness.rates, kinds.bounds, likeness.length

    reading = length, _BEFORE, _EVERY
    usual = rates[:, None] / (2.0 - rates[:, None])
    plain = np.tile(1.0 / usual, (1, p))
    places, plan = likeness.starts(random, FOR_SCALES), (rates, plain, bounds)
    variance = np.maximum(sampled(columns, places, reading, plan)[0], 1e-12 * usual)
    constant = columns.std(axis=0) == 0.0
    variance[:, constant] = usual
    # Few independent averages tell the columns of a group apart: as far as chance would, they are taken as alike.
    logs, chance = np.log(variance / usual), 2.0 * (2.0 / rates + likeness.n_alike)[:, None] / n
    beyond = np.zeros((len(rates), N_GROUPS))
    whole = np.zeros((1, 1), dtype=np.int64)
    path = sampled(columns, whole, (n, 0, 1), plan)[0] if length > 1 else variance
    for g, part in enumerate(map(slice, bounds[:-1], bounds[1:])):
        if part.start == part.stop:
            continue
        middle = logs[:, part].mean(axis=1, keepdims=True)
        apart = logs[:, part] - middle
        kept = np.maximum(1.0 - chance / np.maximum(apart.var(axis=1, keepdims=True), 1e-300), 0.0)
        logs[:, part] = middle + kept * apart
        # Runs that end remember less than the stream itself does.
        longer = np.log(np.maximum(path[:, part], 1e-300) / variance[:, part])[:, ~constant[part]]
        beyond[:, g] = np.maximum(longer.mean(axis=1) + chance[:, 0] / 2.0, 0.0) if longer.size and length > 1 else 0.0
    precision = np.exp(-logs) / usual
    places = likeness.starts(random, FOR_SCALES)
    power, scale = tails_of(sampled(columns, places, reading, (rates, precision, bounds))[1])
    runs, places = of_runs(columns, length), likeness.starts(random, FOR_PASSAGES)
    shares = random.multinomial(len(runs), np.full(len(runs), 1.0 / len(runs)), size=len(places)) / len(runs)
    # The healthy mean is known up to its own error, which each stream draws anew.
    errors, passed = shares @ runs - runs.mean(axis=0), np.empty((len(places), len(LEVELS)), dtype=np.int64)
    full_plan = rates, precision, bounds, power, scale
    loops.first_passages(columns, errors, places, length, np.empty((len(rates), p)), full_plan, LEVELS, passed)
    for g, part in enumerate(map(slice, bounds[:-1], bounds[1:])):
        precision[:, part] *= np.exp(-beyond[:, g])[:, None]
    return Chart(
        **vars(passages_of(passed, likeness)), columns=kinds, rates=rates, precision=precision, power=power, scale=scale
    )


def _whitening(covariance: Array, most: int, least: float) -> Array:
    """Return the leading principal axes (d, k) of a covariance, over their deviations."""
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1][:most], vectors[:, ::-1][:, :most]
    k = int(np.count_nonzero(values > least * max(values[0], 0.0))) if len(values) else 0
    whitening: Array = np.ascontiguousarray(vectors[:, :k] / np.sqrt(values[:k]))
    return whitening
