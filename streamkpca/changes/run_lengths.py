"""First passages: after how many healthy rows a statistic of them passes a level.

Streams are put together from runs of healthy rows, so long that rows of two runs do not resemble each other.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca.changes import _loops as loops

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Rows of one matrix product, always: bits depend on its shape, and must not on how calls cut the stream.
_BLOCK: Final = 128
# Rates of the averages, geometric from 1 to that whose memory is a twentieth of the healthy rows, at least so large.
_N_RATES, _SLOWEST, _MEMORIES = 5, 0.01, 20
# Columns are as they are up to so many times this quantile of their size; rounds to find the middle.
_BEYOND, _USUAL, _ROUNDS = 2.0, 0.9, 10
# Correlation with the row so far before that ends a run of rows that resemble each other, squared.
_LEAST_SQUARED = 0.0025
# Resampled streams: rows of each, all rows for scales and for first passages.
_LENGTH, FOR_SCALES, FOR_PASSAGES = 2048, 40_000, 250_000
# Tails of statistics beyond these quantiles are Weibull; those of passages are exponential beyond mean lengths that few
# rows decide. Passages that a length must have, the standard errors of a confidence of three quarters, by which such
# tails are taken to be less steep, and how much less, at most.
_QUANTILES, _FEW_PASSAGES, _SURE, _FLATTEST = (0.9, 0.995), 40, 0.674, 0.7
LEVELS: Final = np.arange(1.0, 24.0, 0.25)


@dataclass(frozen=True)
class Passages:
    """Passages of healthy rows: the mean number of them up to the first that passes one of the `levels` (q,).

    Its logarithms are `log_lengths` (q,). Runs have `length` rows; the rows hold `n_independent` runs that do not
    resemble each other.
    """

    levels: Array
    log_lengths: Array
    length: int
    n_independent: float

    def level_of(self, run_length: float) -> float:
        """Return the level that healthy rows first pass after this many rows, in the mean."""
        return float(np.interp(math.log(run_length), self.log_lengths, self.levels))

    def run_lengths(self, statistics: Array) -> Array:
        """Return in how many healthy rows such statistics are reached once."""
        lengths: Array = np.exp(np.minimum(np.interp(statistics, self.levels, self.log_lengths), 700.0))
        return lengths


class Likeness(NamedTuple):
    """How far n rows resemble those before: up to `reach` rows, so that `n_alike` of them count as one."""

    n: int
    reach: int
    n_alike: float

    @property
    def n_apart(self) -> float:
        """Number of runs that do not resemble each other."""
        return self.n / max(self.reach, 1)

    @property
    def n_independent(self) -> float:
        """Number of rows that tell as much, if none resembles another."""
        return self.n / self.n_alike

    @property
    def n_memories(self) -> int:
        """Number of numbers, at most, that so few rows can tell."""
        return int(max(self.n_independent / _MEMORIES, 1))

    @property
    def length(self) -> int:
        """Rows of the runs that streams are put together from."""
        return 1 if self.reach <= 1 else min(4 * self.reach, self.n // 10, _LENGTH)

    @property
    def rates(self) -> Array:
        """Rates of averages, whose memory these rows fill many times."""
        return np.geomspace(1.0, max(_SLOWEST, 2.0 / max(self.n / _MEMORIES - self.n_alike, 3.0)), _N_RATES)

    def starts(self, random: np.random.Generator, n_rows: int) -> Positions:
        """Draw the starts (R, S) of runs for streams of that many rows together."""
        n_runs = -(-_LENGTH // self.length)
        n_streams = max(n_rows // (n_runs * self.length), 1)
        return random.integers(0, self.n - self.length + 1, size=(n_streams, n_runs))


def bounds_of(columns: Array) -> tuple[Array, Array]:
    """Return the middle and the bound of columns (n, p), for which tamed columns are 0 on average."""
    middle = np.median(columns, axis=0)
    for _ in range(_ROUNDS):
        bound = _BEYOND * np.quantile(np.abs(columns - middle), _USUAL, axis=0)
        # A column that hardly ever moves has no such quantile.
        bound = np.where(bound > 0.0, bound, spread_of(columns))
        middle = middle + tamed_beyond(columns - middle, bound).mean(axis=0)
    return middle, bound


def tamed_beyond(away: Array, bound: Array) -> Array:
    """Return deviations (n, p), those beyond a bound as logarithms, so that tails of power laws become exponential."""
    out = away.copy()
    loops.scale_columns(out, np.zeros(len(bound)), bound, np.ones(len(bound)))
    return out


def spread_of(columns: Array) -> Array:
    """Return the standard deviations of columns (n, p), 1 where they never vary."""
    spread: Array = columns.std(axis=0)
    spread[spread <= 1e-9 * np.maximum(np.abs(columns).max(axis=0), 1.0)] = 1.0
    return spread


def scores_of(rows: Array) -> tuple[Array, Array, Array]:
    """Return rows (n, d) centred, tamed, and then scaled, and the middle and the spread (d,)."""
    middle, bound = bounds_of(rows)
    tamed = tamed_beyond(rows - middle, bound)
    spread = spread_of(tamed)
    return tamed / spread, middle, spread


def likeness_of(scores: Array) -> Likeness:
    """Return how far scores (n, d) or, if these do so more, their squares resemble each other."""
    found = [_resemblance(scores), _resemblance(scores**2)]
    return Likeness(len(scores), max(reach for reach, _ in found), max(n_alike for _, n_alike in found))


def least_novelty(coordinates: Array, novelty: Array) -> float:
    """Return what is added to novelties before logarithms, so that tiny ones do not count, from healthy rows."""
    energy = float((coordinates**2).sum(axis=1).mean())
    return max(0.01 * float(np.median(novelty)), 1e-9 * energy, 1e-300)


def sampled(
    columns: Array,
    starts: Positions,
    reading: tuple[int, int, int],
    plan: tuple[Array, Array, Positions],
) -> tuple[Array, Array]:
    """Return mean squares (K, p) and statistics (S, K, G) of averages in streams, see `_loops`.

    `plan` is that of `_loops` up to the bounds, and `reading` is `length`, `first` and `every` of `sample_averages`.
    """
    length, first, every = reading
    n_read = len(starts) * -(-(starts.shape[1] * length - first) // every)
    squares = np.zeros((len(plan[0]), columns.shape[1]))
    found = np.empty((n_read, len(plan[0]), len(plan[2]) - 1))
    loops.sample_averages(columns, starts, reading, (*plan, found[0], found[0]), squares, found)
    return squares / n_read, found


def tails_of(statistics: Array) -> tuple[Array, Array]:
    """Return the power and the scale for which (s / scale)^power of statistics (S, ...) is exponential far out."""
    low, high = np.maximum(np.quantile(statistics, _QUANTILES, axis=0), 1e-12)
    y_low, y_high = -np.log1p(-np.array(_QUANTILES))
    with np.errstate(all="ignore"):
        power = np.minimum(math.log(y_high / y_low) / np.log(high / low), 4.0)
    scale = np.maximum(high / y_high ** (1.0 / power), 1e-9)
    # A statistic that is 0 for all healthy rows, of constant columns, has no tail: that of one square is taken.
    power[high <= 1e-12], scale[high <= 1e-12] = 1.0, 2.0
    return power, scale


def passages_of(passed: Positions, likeness: Likeness) -> Passages:
    """Return levels and mean numbers of rows up to the first that passes them, from those of streams (R, Q), or -1.

    Passages of rare levels are exponential: their rate is a count over the rows seen. Rates beyond what the healthy
    rows can tell, one passage in a quarter of them, lie on the line through those before, or below it: its slope is
    known as well as the number of passages among the runs that do not resemble each other.
    """
    rows_of_stream = -(-_LENGTH // likeness.length) * likeness.length
    counts = (passed > 0).sum(axis=0)
    seen = np.where(passed > 0, passed, rows_of_stream).sum(axis=0)
    known = np.log(seen / np.maximum(counts, 1))
    longest = math.log(max(likeness.n_apart / 4.0, 100.0))
    last = int(np.flatnonzero((counts >= _FEW_PASSAGES) & (known <= longest)).max(initial=0))
    if last < 4:
        # Rows that hardly vary pass no level: their statistics are on the scale of logarithms anyway.
        return Passages(LEVELS.copy(), LEVELS.copy(), likeness.length, likeness.n_apart)
    first = min(int(np.argmax(known >= known[last] - math.log(8.0))), last - 4)
    slope, level = np.polyfit(LEVELS[first : last + 1], known[first : last + 1], 1)
    start, end = known[first], level + slope * LEVELS[last]
    lengths = np.append(known[:last], [end, end + 1000.0 * slope])
    less = max(1.0 - _SURE * math.sqrt(math.exp(start) / likeness.n_apart), _FLATTEST)
    lengths = np.minimum(lengths, start + less * (lengths - start))
    lengths = np.maximum.accumulate(lengths) + 1e-9 * np.arange(len(lengths))
    levels = np.append(LEVELS[: last + 1], LEVELS[last] + 1000.0)
    return Passages(levels, lengths, likeness.length, likeness.n_apart)


def of_runs(columns: Array, length: int) -> Any:
    """Return the means (n / length, p) of runs of rows."""
    n = len(columns) // length * length
    return columns[:n].reshape(-1, length, columns.shape[1]).mean(axis=1)


def in_blocks(rows: Array, first: int, parts_of: Callable[[Array], Iterable[tuple[slice, Array]]], out: Array) -> Array:
    """Write columns (n, p) of rows from position `first` of the stream on, each row as if by itself.

    `parts_of` gives the columns of a block of rows, and where they belong.
    """
    padded, start = np.empty((_BLOCK, rows.shape[1])), 0
    while start < len(rows):
        at = (first + start) % _BLOCK
        part = rows[start : start + _BLOCK - at]
        padded[:] = part[0]
        padded[at : at + len(part)] = part
        for column, found in parts_of(padded):
            out[start : start + len(part), column] = found[at : at + len(part)]
        start += len(part)
    return out


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
