"""Control charts: moving averages of columns, and after how many healthy rows a statistic of them passes a level."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca.changes import _loops as loops
from streamkpca.changes.autocorrelation import Autocorrelation, average_blocks
from streamkpca.changes.columns import Columns, learn_columns
from streamkpca.changes.shifts import FeatureMoments, measure_moments
from streamkpca.components.snapshot import Snapshot

# Rates of the averages, geometric from 1 on.
N_RATES: Final = 5
# The slowest rate, with a memory of 200 rows.
_SLOWEST = 0.01
# Healthy rows, at least, for each row of the longest memory.
_ROWS_FOR_MEMORY = 20
# Groups of columns.
N_GROUPS: Final = 5
# Rows of a drawn stream before its statistics are read.
_BEFORE = 504
# Rows from one reading of the statistics to the next.
_EVERY = 8
# Drawn rows that scales come from.
_FOR_SCALES = 40_000
# Drawn rows that run lengths come from.
_FOR_RUN_LENGTHS = 250_000
# A tail is fitted between these two quantiles of a statistic.
_TAIL_QUANTILES = (0.9, 0.995)
# Crossings that the mean length up to a level comes from, at least.
_LEAST_CROSSINGS = 40
# Standard errors of a confidence of three quarters, by which the slope of extrapolated lengths is reduced.
_CONFIDENCE = 0.674
# The smallest factor by which that slope is reduced.
_LEAST_FACTOR = 0.7
LEVELS: Final = np.arange(1.0, 24.0, 0.25)


@dataclass(frozen=True)
class RunLengthTable:
    """Mean numbers of healthy rows up to the first that passes `levels` (q,), as logarithms `log_lengths` (q,)."""

    levels: Array
    log_lengths: Array

    def find_level(self, run_length: float) -> float:
        """Return the level that healthy rows first pass after this many rows, on average."""
        return float(np.interp(math.log(run_length), self.log_lengths, self.levels))

    def find_run_lengths(self, statistics: Array) -> Array:
        """Return in how many healthy rows such statistics are reached once."""
        lengths: Array = np.exp(np.minimum(np.interp(statistics, self.levels, self.log_lengths), 700.0))
        return lengths


@dataclass(frozen=True)
class Chart:
    """What healthy rows are like: columns, moments, and the run lengths of statistics of their averages.

    The averages have `rates` (K,) and, for healthy rows, `precision` (K, p); `power` and `scale` (K, G) are as in
    `_loops`.
    """

    columns: Columns
    moments: FeatureMoments
    run_lengths: RunLengthTable
    rates: Array
    precision: Array
    power: Array
    scale: Array

    def follow(self, columns: Array, averages: Array, level: float) -> tuple[Array, int]:
        """Take rows (n, p) into the averages, in place, up to the first whose statistic passes the level.

        Returns the statistics of the rows taken, and the place of the last largest one, or -1 if none passed.
        """
        weights, values = (self.rates, self.precision, self.columns.bounds), np.empty(len(columns))
        n, place = loops.follow_averages(columns, averages, weights, (self.power, self.scale), level, values)
        return values[:n], place

    def locate_start(self, columns: Array, averages: Array, place: int) -> int:
        """Return the most likely first row of a change among rows (n, p), up to the one that passed at a place.

        It maximises the likelihood ratio of a shift in the direction of the averages, of unknown length.
        """
        k, g = divmod(place, N_GROUPS)
        part = slice(*self.columns.bounds[g : g + 2])
        direction, sure = averages[k, part], averages[k, part] ** 2 * self.precision[k, part]
        # The rest are noise: of the largest by itself, all others; of a mean, those that no sum of them would miss.
        direction = np.where(sure >= (sure.max() if g >= loops.N_MEANS else 1.0), direction, 0.0)
        with np.errstate(all="ignore"):
            along = columns[:, part] @ (direction / np.abs(direction).max())
            sums = np.maximum(np.cumsum(along[::-1]), 0.0) / np.sqrt(np.arange(1, len(along) + 1))
        return len(along) - 1 - int(np.argmax(sums))


def learn_chart(rows: Array, snapshot: Snapshot) -> tuple[Chart, Autocorrelation]:
    """Make the chart of healthy rows (n, d) in time order, and tell how long these stay correlated."""
    columns, healthy, autocorrelation = learn_columns(rows, snapshot)
    random, (n, p), bounds = np.random.default_rng(0), healthy.shape, columns.bounds
    length, time = autocorrelation.block_length, autocorrelation.integrated_time
    rates = np.geomspace(1.0, max(_SLOWEST, 2.0 / max(n / _ROWS_FOR_MEMORY - time, 3.0)), N_RATES)
    usual = rates[:, None] / (2.0 - rates[:, None])
    streams, weights = autocorrelation.draw_streams(random, _FOR_SCALES), (rates, np.tile(1.0 / usual, (1, p)), bounds)
    variance = np.maximum(_sample_averages(healthy, streams, weights)[0], 1e-12 * usual)
    constant = healthy.std(axis=0) == 0.0
    variance[:, constant] = usual
    # Few independent averages tell the columns of a group apart: as far as chance would, they are taken as alike.
    logs, chance = np.log(variance / usual), 2.0 * (2.0 / rates + time)[:, None] / n
    beyond = np.zeros((N_RATES, N_GROUPS))
    path = _sample_averages(healthy, np.arange(n)[None], weights, 0, 1)[0] if length > 1 else variance
    for g, part in enumerate(map(slice, bounds[:-1], bounds[1:])):
        if part.start == part.stop:
            continue
        middle = logs[:, part].mean(axis=1, keepdims=True)
        apart = logs[:, part] - middle
        kept = np.maximum(1.0 - chance / np.maximum(apart.var(axis=1, keepdims=True), 1e-300), 0.0)
        logs[:, part] = middle + kept * apart
        # Blocks that end remember less than the stream itself does.
        longer = np.log(np.maximum(path[:, part], 1e-300) / variance[:, part])[:, ~constant[part]]
        if longer.size and length > 1:
            beyond[:, g] = np.maximum(longer.mean(axis=1) + chance[:, 0] / 2.0, 0.0)
    precision = np.exp(-logs) / usual
    weights = rates, precision, bounds
    tails = _fit_tails(_sample_averages(healthy, autocorrelation.draw_streams(random, _FOR_SCALES), weights)[1])
    blocks, streams = average_blocks(healthy, length), autocorrelation.draw_streams(random, _FOR_RUN_LENGTHS)
    shares = random.multinomial(len(blocks), np.full(len(blocks), 1.0 / len(blocks)), size=len(streams)) / len(blocks)
    # The healthy mean is known up to its own error, which each stream draws anew.
    errors, values = shares @ blocks - blocks.mean(axis=0), np.empty(streams.shape)
    for stream, error, value in zip(streams, errors, values, strict=True):
        loops.follow_averages(healthy[stream] - error, np.zeros((N_RATES, p)), weights, tails, math.inf, value)
    precision = precision * np.repeat(np.exp(-beyond), np.diff(bounds), axis=1)
    run_lengths, moments = tabulate_run_lengths(values, autocorrelation), measure_moments(rows, length)
    return Chart(columns, moments, run_lengths, rates, precision, *tails), autocorrelation


def tabulate_run_lengths(statistics: Array, autocorrelation: Autocorrelation) -> RunLengthTable:
    """Return run lengths by level, from the statistics (R, T) of the rows of drawn streams.

    Waits for rare levels are exponential: their rate is a count over the rows seen. Rates beyond what the healthy
    rows can tell, one crossing in a quarter of their blocks, lie on the line through those before, or below it: its
    slope is known as well as the number of crossings among the blocks.
    """
    records, length = np.maximum.accumulate(statistics, axis=1), statistics.shape[1]
    # Rows of each stream up to the first that passes a level, or all.
    n_before = np.array([np.searchsorted(record, LEVELS, side="right") for record in records])
    counts = np.count_nonzero(n_before < length, axis=0)
    known = np.log(np.minimum(n_before + 1, length).sum(axis=0) / np.maximum(counts, 1))
    longest = math.log(max(autocorrelation.n_blocks / 4.0, 100.0))
    last = int(np.flatnonzero((counts >= _LEAST_CROSSINGS) & (known <= longest)).max(initial=0))
    if last < 4:
        # Rows that hardly vary pass no level: their statistics are on the scale of logarithms anyway.
        return RunLengthTable(LEVELS.copy(), LEVELS.copy())
    first = min(int(np.argmax(known >= known[last] - math.log(8.0))), last - 4)
    slope, level = np.polyfit(LEVELS[first : last + 1], known[first : last + 1], 1)
    start, end = known[first], level + slope * LEVELS[last]
    lengths = np.append(known[:last], [end, end + 1000.0 * slope])
    factor = max(1.0 - _CONFIDENCE * math.sqrt(math.exp(start) / autocorrelation.n_blocks), _LEAST_FACTOR)
    lengths = np.minimum(lengths, start + factor * (lengths - start))
    lengths = np.maximum.accumulate(lengths) + 1e-9 * np.arange(len(lengths))
    return RunLengthTable(np.append(LEVELS[: last + 1], LEVELS[last] + 1000.0), lengths)


def _sample_averages(
    columns: Array,
    streams: Positions,
    weights: tuple[Array, Array, Positions],
    first: int = _BEFORE,
    step: int = _EVERY,
) -> tuple[Array, Array]:
    """Return mean squares (K, p) and statistics (S, K, G) of averages, at every `step` rows of streams (R, T)."""
    squares, statistics = np.zeros(weights[1].shape), np.empty((streams[:, first::step].size, N_RATES, N_GROUPS))
    loops.sample_averages(columns, streams, (first, step), weights, squares, statistics)
    return squares / len(statistics), statistics


def _fit_tails(statistics: Array) -> tuple[Array, Array]:
    """Return the power and the scale for which (s / scale)^power of statistics (S, ...) is exponential far out."""
    low, high = np.maximum(np.quantile(statistics, _TAIL_QUANTILES, axis=0), 1e-12)
    y_low, y_high = -np.log1p(-np.array(_TAIL_QUANTILES))
    with np.errstate(all="ignore"):
        power = np.minimum(math.log(y_high / y_low) / np.log(high / low), 4.0)
    scale = np.maximum(high / y_high ** (1.0 / power), 1e-9)
    # A statistic that is 0 for all healthy rows, of constant columns, has no tail: that of one square is taken.
    power[high <= 1e-12], scale[high <= 1e-12] = 1.0, 2.0
    return power, scale
