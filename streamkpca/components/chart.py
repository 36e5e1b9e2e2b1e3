"""Control charts: moving averages of what rows are like, against what healthy rows were found to be.

The columns of a row are, each 0 on average and of variance 1 for healthy rows, and logarithms far from there: its
whitened coordinates in the span of the atoms; its features, whitened; the features themselves; logarithms of its
novelty and of its distance; and the products of any two features. In wide rows the first whitened coordinates stand for
features.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from streamkpca._core.linalg import squared_norms
from streamkpca.components import _loops as loops
from streamkpca.components.snapshot import Snapshot

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Rows of one matrix product, always: bits depend on its shape, and must not on how calls cut the stream.
_BLOCK: Final = 128
# Whitened coordinates, and features with their products, at most.
_MOST_AXES, MOST_FEATURES = 30, 24
# Rates of the averages, geometric from 1 to that whose memory is a twentieth of the healthy rows, at least so large.
_N_RATES, _SLOWEST, _MEMORIES = 5, 0.01, 20
# Correlation with the row so far before that ends a run of rows that resemble each other, squared.
_LEAST_SQUARED = 0.0025
# Resampled streams: rows of each, all rows for scales and for first passages, and rows before statistics are read.
_LENGTH, _FOR_SCALES, _FOR_PASSAGES, _BEFORE, _EVERY = 2048, 40_000, 250_000, 504, 8
# Tails of statistics beyond these quantiles are Weibull; those of passages are exponential beyond mean lengths that few
# rows decide. Passages that a length must have, the standard errors of a confidence of three quarters, by which such
# tails are taken to be less steep, and how much less, at most.
_QUANTILES, _FEW_PASSAGES, _SURE, _FLATTEST = (0.9, 0.995), 40, 0.674, 0.7
_LEVELS: Final = np.arange(1.0, 24.0, 0.25)
N_GROUPS, _N_MEANS = 5, 2
# Columns are as they are up to so many times this quantile of their size; rounds to find the middle.
_BEYOND, _USUAL, _ROUNDS = 2.0, 0.9, 10


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
        padded, start = np.empty((_BLOCK, rows.shape[1])), 0
        while start < len(rows):
            at = (first + start) % _BLOCK
            part = rows[start : start + _BLOCK - at]
            padded[:] = part[0]
            padded[at : at + len(part)] = part
            for column, found in self._parts(snapshot, padded, math.inf):
                out[start : start + len(part), column] = found[at : at + len(part)]
            start += len(part)
        return self.scaled(out)

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
class Chart:
    """Columns, rates (K,) and healthy precision (K, p) of their averages, and what statistics of healthy rows reach.

    `power` and `scale` (K, G) are as in `_loops`. The mean number of healthy rows up to the first that passes
    one of the `levels` (Q,) has the logarithm `log_lengths` (Q,). `mean` and `deviation` (d,) are those of features,
    `error` (2, d) the standard error of a mean of standardised features, 0 for constant ones, and of their squares,
    times the square root of the rows, and `correlation` (f, f) that of features, if these are few. The rows hold
    `n_independent` runs that do not resemble each other.
    """

    columns: Columns
    rates: Array
    precision: Array
    power: Array
    scale: Array
    levels: Array
    log_lengths: Array
    mean: Array
    deviation: Array
    error: Array
    correlation: Array
    n_independent: float

    def follow(self, few: Array, averages: Array, level: float) -> tuple[Array, int, int]:
        """Take rows into the averages in place, up to the first whose statistic passes the level.

        Returns the statistics, the number of rows taken, and the place of the last largest one, or -1.
        """
        plan = self.rates, self.precision, self.columns.bounds, self.power, self.scale
        values = np.empty(len(few))
        n, place = loops.follow_averages(few, self.columns.products, averages, plan, level, values)
        return values[:n], n, place

    def level_of(self, run_length: float) -> float:
        """Return the level that healthy rows first pass after this many rows, in the mean."""
        return float(np.interp(math.log(run_length), self.log_lengths, self.levels))

    def run_lengths(self, statistics: Array) -> Array:
        """Return in how many healthy rows such statistics are reached once."""
        lengths: Array = np.exp(np.minimum(np.interp(statistics, self.levels, self.log_lengths), 700.0))
        return lengths

    def beginning(self, few: Array, averages: Array, place: int) -> int:
        """Return the most likely first row of a change among rows (n, .), up to the one that passed at a place.

        It maximises the likelihood ratio of a shift in the direction of the averages, of unknown length.
        """
        k, g = divmod(place, N_GROUPS)
        start, stop = self.columns.bounds[g : g + 2]
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
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    # A feature that never varied has no scale, and counts in its own units.
    deviation[deviation <= 1e-9 * np.abs(mean)] = 1.0
    scores = (rows - mean) / deviation
    correlation = scores.T @ scores / n
    both = np.concatenate([scores, scores**2 - 1.0], axis=1)
    middle, bound = _bounds(rows)
    tamed = _tamed(rows - middle, bound)
    spread = _spread(tamed)
    tamed /= spread
    resembling, n_alike = (max(found) for found in zip(_resemblance(tamed), _resemblance(tamed**2), strict=True))
    n_independent = n / n_alike
    most = int(max(n_independent / _MEMORIES, 1))
    # In wide rows some features hardly ever vary: the kernel knows better in which units they count.
    n_used = d if d <= MOST_FEATURES else 0
    axes = _whitening(tamed.T @ tamed / n, min(n_used, most), 1e-6) / spread[:, None]
    features = np.diag(1.0 / spread)[:, :n_used]
    coordinates, novelty = snapshot.coordinates(rows)
    coordinate_mean, energy = coordinates.mean(axis=0), float((coordinates**2).sum(axis=1).mean())
    away = coordinates - coordinate_mean
    whitening = _whitening(away.T @ away / n, min(_MOST_AXES, most), 1e-4)
    least = max(0.01 * float(np.median(novelty)), 1e-9 * energy, 1e-300)
    none, one = np.zeros(1), np.ones(1)
    columns = Columns(coordinate_mean, whitening, middle, features, axes, least, none, one, one, none, one)
    raw = columns.of_healthy(snapshot, rows, n_independent)
    middle, bound = _bounds(raw)
    columns = replace(columns, middle=middle, bound=bound, scale=_spread(_tamed(raw - middle, bound)))
    few, f = columns.scaled(raw), columns.n_multiplied
    columns = replace(columns, product_mean=np.zeros(f * (f + 1) // 2), product_scale=np.ones(f * (f + 1) // 2))
    products = columns.with_products(few)[:, columns.bounds[-2] :]
    columns = replace(columns, product_mean=products.mean(axis=0), product_scale=_spread(products))
    rates = np.geomspace(1.0, max(_SLOWEST, 2.0 / max(n / _MEMORIES - n_alike, 3.0)), _N_RATES)
    length = 1 if resembling <= 1 else min(4 * resembling, n // 10, _LENGTH)
    known = _limits(columns.with_products(few), columns.bounds, rates, length, n_independent, n / max(resembling, 1))
    # From means of runs, as neighbours resemble each other.
    error = np.maximum(_of_runs(both, length).std(axis=0) * math.sqrt(length), both.std(axis=0)).reshape(2, d)
    error[0, error[0] < 1e-9] = 0.0
    # The squares of a feature with two values never vary.
    error[1] = np.maximum(error[1], 0.1)
    if d > MOST_FEATURES:
        correlation = np.empty((0, 0))
    return Chart(columns, rates, *known, mean, deviation, error, correlation, n / max(resembling, 1))


def _limits(
    columns: Array, bounds: Positions, rates: Array, length: int, n_independent: float, n_apart: float
) -> tuple[Array, Array, Array, Array, Array]:
    """Return what a chart knows of its statistics, from `precision` to `log_lengths`, from runs of healthy rows."""
    random, (n, p) = np.random.default_rng(0), columns.shape
    n_runs = -(-_LENGTH // length)
    rows_of_stream = n_runs * length

    def starts(n_rows: int) -> Positions:
        return random.integers(0, n - length + 1, size=(max(n_rows // rows_of_stream, 1), n_runs))

    def sampled(precision: Array, places: Positions, run: int, first: int, every: int) -> tuple[Array, Array]:
        n_read = len(places) * -(-(places.shape[1] * run - first) // every)
        squares, found = np.zeros((len(rates), p)), np.empty((n_read, len(rates), N_GROUPS))
        plan = rates, precision, bounds, found[0], found[0]
        loops.sample_averages(columns, places, (run, first, every), plan, squares, found)
        return squares / n_read, found

    usual = rates[:, None] / (2.0 - rates[:, None])
    plain = np.tile(1.0 / usual, (1, p))
    variance = np.maximum(sampled(plain, starts(_FOR_SCALES), length, _BEFORE, _EVERY)[0], 1e-12 * usual)
    constant = columns.std(axis=0) == 0.0
    variance[:, constant] = usual
    # Few independent averages tell the columns of a group apart: as far as chance would, they are taken as alike.
    logs, chance = np.log(variance / usual), 2.0 * (2.0 / rates + n / n_independent)[:, None] / n
    beyond = np.zeros((len(rates), N_GROUPS))
    path = sampled(plain, np.zeros((1, 1), dtype=np.int64), n, 0, 1)[0] if length > 1 else variance
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
    found = sampled(precision, starts(_FOR_SCALES), length, _BEFORE, _EVERY)[1]
    low, high = np.maximum(np.quantile(found, _QUANTILES, axis=0), 1e-12)
    y_low, y_high = -np.log1p(-np.array(_QUANTILES))
    with np.errstate(all="ignore"):
        power = np.minimum(math.log(y_high / y_low) / np.log(high / low), 4.0)
    scale = np.maximum(high / y_high ** (1.0 / power), 1e-9)
    # A statistic that is 0 for all healthy rows, of constant columns, has no tail: that of one square is taken.
    power[high <= 1e-12], scale[high <= 1e-12] = 1.0, 2.0
    runs, places = _of_runs(columns, length), starts(_FOR_PASSAGES)
    shares = random.multinomial(len(runs), np.full(len(runs), 1.0 / len(runs)), size=len(places)) / len(runs)
    # The healthy mean is known up to its own error, which each stream draws anew.
    errors, passed = shares @ runs - runs.mean(axis=0), np.empty((len(places), len(_LEVELS)), dtype=np.int64)
    plan = rates, precision, bounds, power, scale
    loops.first_passages(columns, errors, places, length, plan, _LEVELS, passed)
    for g, part in enumerate(map(slice, bounds[:-1], bounds[1:])):
        precision[:, part] *= np.exp(-beyond[:, g])[:, None]
    return precision, power, scale, *_run_lengths(passed, rows_of_stream, n_apart)


def _run_lengths(passed: Positions, length: int, n_independent: float) -> tuple[Array, Array]:
    """Return levels and the logarithms of mean numbers of rows up to the first that passes them.

    Passages of rare levels are exponential: their rate is a count over the rows seen. Rates beyond what the healthy
    rows can tell, one passage in a quarter of them, lie on the line through those before, or below it: its slope is
    known as well as the number of passages among `n_independent` runs of rows.
    """
    counts = (passed > 0).sum(axis=0)
    seen = np.where(passed > 0, passed, length).sum(axis=0)
    known = np.log(seen / np.maximum(counts, 1))
    longest = math.log(max(n_independent / 4.0, 100.0))
    last = int(np.flatnonzero((counts >= _FEW_PASSAGES) & (known <= longest)).max(initial=0))
    if last < 4:
        # Rows that hardly vary pass no level: their statistics are on the scale of logarithms anyway.
        return _LEVELS.copy(), _LEVELS.copy()
    first = min(int(np.argmax(known >= known[last] - math.log(8.0))), last - 4)
    slope, level = np.polyfit(_LEVELS[first : last + 1], known[first : last + 1], 1)
    start, end = known[first], level + slope * _LEVELS[last]
    lengths = np.append(known[:last], [end, end + 1000.0 * slope])
    less = max(1.0 - _SURE * math.sqrt(math.exp(start) / n_independent), _FLATTEST)
    lengths = np.minimum(lengths, start + less * (lengths - start))
    lengths = np.maximum.accumulate(lengths) + 1e-9 * np.arange(len(lengths))
    return np.append(_LEVELS[: last + 1], _LEVELS[last] + 1000.0), lengths


def _resemblance(scores: Array) -> tuple[int, float]:
    """Return the number of rows after which columns (n, p) no longer resemble themselves, and how many count as one."""
    n = len(scores)
    spectrum = np.abs(np.fft.rfft(scores - scores.mean(axis=0), 2 * n, axis=0)) ** 2
    correlation = np.fft.irfft(spectrum, axis=0)[:n]
    varies = correlation[0] > 1e-9 * n
    if not varies.any():
        return 1, 1.0
    squared = ((correlation[:, varies] / correlation[0, varies]) ** 2).mean(axis=1)
    end = int(np.argmax(squared < max(8.0 / n, _LEAST_SQUARED)))
    return end, 1.0 + 2.0 * float(squared[1:end].sum())


def _bounds(columns: Array) -> tuple[Array, Array]:
    """Return the middle and the bound of columns (n, p), for which tamed columns are 0 on average."""
    middle = np.median(columns, axis=0)
    for _ in range(_ROUNDS):
        bound = _BEYOND * np.quantile(np.abs(columns - middle), _USUAL, axis=0)
        # A column that hardly ever moves has no such quantile.
        bound = np.where(bound > 0.0, bound, _spread(columns))
        middle = middle + _tamed(columns - middle, bound).mean(axis=0)
    return middle, bound


def _tamed(away: Array, bound: Array) -> Array:
    """Return deviations (n, p), those beyond a bound as logarithms, so that tails of power laws become exponential."""
    out = away.copy()
    loops.scale_columns(out, np.zeros(len(bound)), bound, np.ones(len(bound)))
    return out


def _spread(columns: Array) -> Array:
    """Return the standard deviations of columns (n, p), 1 where they never vary."""
    spread: Array = columns.std(axis=0)
    spread[spread <= 1e-9 * np.maximum(np.abs(columns).max(axis=0), 1.0)] = 1.0
    return spread


def _whitening(covariance: Array, most: int, least: float) -> Array:
    """Return the leading principal axes (d, k) of a covariance, over their deviations."""
    values, vectors = np.linalg.eigh(covariance)
    values, vectors = values[::-1][:most], vectors[:, ::-1][:, :most]
    k = int(np.count_nonzero(values > least * max(values[0], 0.0))) if len(values) else 0
    whitening: Array = np.ascontiguousarray(vectors[:, :k] / np.sqrt(values[:k]))
    return whitening


def _of_runs(columns: Array, length: int) -> Any:
    """Return the means (n / length, p) of runs of rows."""
    n = len(columns) // length * length
    return columns[:n].reshape(-1, length, columns.shape[1]).mean(axis=1)
