"""The summary, an immutable value: all that is kept of the rows of full blocks.

A `Block` is compared with its atoms and recorded. `SearchSchedule` and `ResidualTrend` are the parts of it that tell
when a block is searched for atoms.
"""

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.concurrency import replace_fields
from streamkpca._core.reservoir import Reservoir, arrival_times, shift_positions
from streamkpca.dictionary.basis import AtomStats, Basis, Projected
from streamkpca.dictionary.moments import Moments, RecordedMoments, RowSums
from streamkpca.dictionary.selection import Choice
from streamkpca.rows.gaps import ColumnSums


class Block:
    """Rows (B, d) of decayed weights (B,), compared with the atoms of a basis.

    Attributes
    ----------
    rows, weights : ndarray
    sums : RowSums
        Sums of kernel values against the atoms if `Basis.is_well_conditioned`, else of coordinates.
    unexplained : float
        Energy of the block outside the span, without the variance of gaps; rounding may make it negative.

    As c(x) = L^-1 k_Z(x), sums over kernel values are enough: the product with L^-1 is computed once for many blocks,
    which saves a third of the work. The block leaves sum a k(x,x) - <K^-1, sum a k_Z k_Z^T> unexplained. If rounding
    would matter, coordinates are summed at once. O(B m (d + m)).
    """

    def __init__(self, basis: Basis, rows: Array, weights: Array) -> None:
        self.rows, self.weights = rows, weights
        self._basis = basis
        self._kernel_rows, self._row_energy, spread = basis.compare(rows)
        # The account holds what is expected of k(x, x), but no atom could explain the variance of what is missing.
        energy, apart = (self._row_energy + spread, spread) if len(spread) else (self._row_energy, None)
        if basis.is_well_conditioned:
            self.sums = RowSums.of(self._kernel_rows, energy, weights, apart)
            recorded = float(np.vdot(basis.precision, self.sums.second))
        else:
            coordinates = basis.coordinates(self._kernel_rows.copy())
            self.sums = RowSums.of(coordinates, energy, weights, apart)
            recorded = float(np.trace(self.sums.second))
        self.unexplained = self.sums.energy - recorded - self.sums.spread

    @property
    def mean_residual(self) -> float:
        """Weighted mean of the rows' squared distances to the span; never negative."""
        return max(self.unexplained, 0.0) / self.sums.total_weight

    def is_current_for(self, basis: Basis) -> bool:
        """Tell whether the basis still has the atoms that this block was compared with."""
        return self._basis.factor is basis.factor and self._basis.distribution is basis.distribution

    def project(self) -> Projected:
        """Return the rows' coordinates, O(B m^2)."""
        return Projected(self.rows, self._row_energy, self._basis.coordinates(self._kernel_rows.copy()))


# Drifts of less than half a standard deviation are tolerated. With a threshold of ten, a stream of independent blocks
# gives a false alarm about once in 10^5 blocks (Siegmund's approximation of the average run length,
# exp(2 k (h + 1.166)) / (2 k^2)).
_ALLOWANCE = 0.5
_THRESHOLD = 10.0
# A single block, however bad, is an outlier and no drift.
_LARGEST_STEP = 4.0
# Blocks that the level is first estimated from, and blocks after which old ones fade.
_FIRST_BLOCKS = 8
_MEMORY = 64
# Deviations of shares of energy below this are rounding.
_LEAST_DEVIATION = 1e-9


@dataclass(frozen=True)
class ResidualTrend:
    """Page's test [1]_ of the share of each block's energy that the atoms leave unexplained.

    `level` and `variance` are the mean and the variance of the shares of `n_blocks` since the level began, `rise` and
    `fall` sum up standardised deviations, never below zero, and `signalled` says if the last level ended with a rise.

    With z the block's deviation from the level in standard deviations, between blocks or as the spread within a block
    predicts, the rise is that of z - 1/2; it signals at 10. A fall ends the level without a signal. The level is
    estimated from the stream [2]_.

    .. [1] E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954.
    .. [2] D. V. Hinkley, "Inference about the change-point from cumulative sum tests", Biometrika 58, 1971.
    """

    n_blocks: int = 0
    level: float = 0.0
    variance: float = 0.0
    rise: float = 0.0
    fall: float = 0.0
    signalled: bool = False

    @property
    def strength(self) -> float:
        """The upward sum as a share of the threshold: 0 is no rise, 1 a signal."""
        return self.rise / _THRESHOLD

    @property
    def is_fresh(self) -> bool:
        """Whether a rise was signalled and the new level is still being estimated."""
        return self.signalled and self.n_blocks < _FIRST_BLOCKS

    def observe(self, share: float, standard_error: float) -> Self:
        """Add a block's unexplained share of energy; if `n_blocks` is 1 afterwards, a new level has begun."""
        deviation = max(math.sqrt(self.variance), standard_error, _LEAST_DEVIATION)
        step = min(max((share - self.level) / deviation, -_LARGEST_STEP), _LARGEST_STEP)
        if self.n_blocks < _FIRST_BLOCKS:
            return self._learn(share)
        rise, fall = (max(total, 0.0) for total in (self.rise + (step - _ALLOWANCE), self.fall + (-step - _ALLOWANCE)))
        if max(rise, fall) >= _THRESHOLD:
            return type(self)(n_blocks=1, level=share, signalled=rise >= _THRESHOLD)
        # An outlier moves the level by no more than the largest step.
        return replace_fields(self._learn(self.level + step * deviation), rise=rise, fall=fall)

    def _learn(self, share: float) -> Self:
        """Average in a block's share; after 64 blocks the old ones fade."""
        n_blocks = self.n_blocks + 1
        gain = 1.0 / min(n_blocks, _MEMORY)
        difference = share - self.level
        return replace_fields(
            self,
            n_blocks=n_blocks,
            level=self.level + gain * difference,
            variance=(1.0 - gain) * (self.variance + gain * difference**2),
        )


LONGEST_PAUSE = 1024
# A block may be searched before the end of the pause if, by two standard errors, it leaves more than the usual residual
# and this share of it. With 0.1, digits that came class by class were explained worse.
_UNUSUAL = 0.05


class SearchInterval(NamedTuple):
    """Pauses between searches, as shares of the blocks so far: the usual one, and that before twice the usual residual.

    The gain of one more search falls as 1 / n with the number of blocks n, its cost does not.
    """

    usual: float
    unusual: float


# The interval where rows become atoms.
ROWS_INTERVAL = SearchInterval(0.25, 0.0)
# Moves cost more, and adapt the atoms to a regime that may soon end: without a pause, metrics of a server took three
# times as long and were explained no better. If the pause did not fall with the residual, classes of rows that came one
# after the other were explained half as well.
MOVING_INTERVAL = SearchInterval(1.5, 0.25)
# Once the sample does not hold all rows any more, a move loses some of the recorded moments, and needs a cause.
SETTLED_INTERVAL = SearchInterval(np.inf, 0.25)


def spread_of(residual: Array, weights: Array) -> float:
    """Return the standard deviation of residuals (B,), in units of their mean; 0 if that is 0."""
    mean = float(np.average(residual, weights=weights))
    if mean == 0.0:
        return 0.0
    counting = weights > 0.0
    # A row that has nearly faded may exceed the mean by more than can be squared.
    relative = np.minimum(residual[counting] / mean, 1e100)
    return float(np.sqrt(np.average((relative - 1.0) ** 2, weights=weights[counting])))


@dataclass(frozen=True)
class SearchSchedule:
    """When to search for atoms: ever more rarely, but at once when the stream is explained worse.

    `countdown` is the number of blocks until the next search; `usual_residual` the mean residual of rows after the last
    one, and `spread` the standard deviation of residuals before it, in units of their mean; `n_blocks` counts from the
    beginning of the stream or the last drift; rows after the first `n_rows_searched` are candidates of the next search.
    """

    countdown: int = 0
    usual_residual: float = np.inf
    spread: float = 0.0
    n_blocks: int = 0
    n_rows_searched: int = 0

    def standard_error(self, block: Block) -> float:
        """Predict the standard error of a block's mean residual from the spread at the last search.

        Residuals from 0 to e with mean r have a variance of at most r (e - r) (R. Bhatia, C. Davis, "A better bound on
        the variance", American Mathematical Monthly 107, 2000).
        """
        mean, most = block.mean_residual, block.sums.largest_energy
        deviation = min(self.spread * mean, np.sqrt(mean * max(most - mean, 0.0)))
        return float(deviation * np.sqrt(block.sums.total_squared_weight) / block.sums.total_weight)

    def is_due(self, block: Block, n_rows: int, interval: SearchInterval) -> bool:
        """Tell whether to search a block after `n_rows` rows: after the usual pause, or if it is explained worse."""
        if self.countdown == 0:
            return True
        n_paused = (n_rows - self.n_rows_searched) // len(block.rows)
        usual = self.usual_residual
        excess = block.mean_residual - 2.0 * self.standard_error(block) - usual
        if not excess > _UNUSUAL * usual:
            return False
        return excess * (n_paused + 1) >= usual * interval.unusual * (self.n_blocks - n_paused)

    def is_worse(self, block: Block) -> bool:
        """Tell whether a block leaves more unexplained than the usual residual and a share of it."""
        return block.mean_residual > (1.0 + _UNUSUAL) * self.usual_residual

    def reset_after_drift(self, block: Block, n_blocks: int) -> Self:
        """Return the schedule after a drift: as in a stream of at most `n_blocks` blocks."""
        # Blocks that leave no more than usual can wait: a stream that repeats its rows, and the rises in them, was
        # searched in every epoch, in vain.
        countdown = 0 if self.is_worse(block) else self.countdown
        return replace(self, countdown=countdown, n_blocks=min(self.n_blocks, n_blocks))

    def record_skip(self, block: Block, n_rows: int) -> Self:
        """Return the schedule after a block that was not searched and follows on `n_rows` rows."""
        usual = self.usual_residual
        if n_rows == self.n_rows_searched:
            usual = min(usual, block.mean_residual + self.standard_error(block))
        return replace_fields(self, countdown=self.countdown - 1, usual_residual=usual, n_blocks=self.n_blocks + 1)

    def record_search(
        self, n_rows: int, usual_residual: float, spread: float, interval: SearchInterval, *, again: bool = False
    ) -> Self:
        """Return the schedule after a search, at row `n_rows`; `again` has the next block searched too."""
        n_blocks = self.n_blocks + 1
        pause = 0 if again else int(min(interval.usual * n_blocks, LONGEST_PAUSE))
        return type(self)(pause, usual_residual, spread, n_blocks, n_rows)


# Forgetting stops at these total weights. New rows, whose weights are at least 1e-100, then outweigh the old ones
# beyond all digits, and until they come the old rows keep their shares. Decay with the rows stops later than `forget`,
# so that pending and recorded rows keep their shares too.
LEAST_TOTAL_WEIGHT = 1e-120
LEAST_DECAYED_WEIGHT = 1e-150
# A row whose weight decays below this within a block gets weight zero, as nothing could be divided by it.
_LEAST_WEIGHT = 1e-200
# Rounding changes sums of weights by less than this share.
_NEGLIGIBLE_SHARE = 1e-6
# The distribution of gaps is made anew after this share of more rows.
_MORE_ROWS = 0.25
# The distribution of gaps is made anew after this many more rows.
_ROWS_TO_RENEW = 4096


def decay_weights(weights: Array, half_life: float | None, n_later: int = 0) -> tuple[float, Array]:
    """Return the decay of rows before a block and its weights (B,), `n_later` rows later; the newest keeps its own."""
    if half_life is None:
        return 1.0, weights
    # If the half-life is so short that ages overflow, only the newest row keeps a weight.
    with np.errstate(over="ignore"):
        decay = np.exp2(-(n_later + np.arange(len(weights) + 1)[::-1]) / half_life)
    aged: Array = weights * decay[1:]
    return float(decay[0]), np.where(aged < _LEAST_WEIGHT, 0.0, aged)


def clamp_decay(factor: float, total_weight: float, least: float) -> float:
    """Return the factor, or a larger one that leaves a total weight of at least `least`."""
    return max(factor, min(least / total_weight, 1.0)) if total_weight > 0.0 else 1.0


@dataclass(frozen=True, eq=False)
class Summary:
    """Atoms, their orthonormal basis, and the stream's moments in it; a function of the blocks alone.

    Atoms are judged by `selection_sample`, certificates by `reservoir`: on the first, the atoms would look too good.
    `n_rows` counts all rows so far, including those before the first of positive weight; `last_drift` is the number of
    rows recorded when a drift was last signalled, or None. `column_sums` gives the distribution of the basis, now and
    then, where rows may have gaps.
    """

    seed: int
    basis: Basis
    record: RecordedMoments
    atom_stats: AtomStats
    selection_sample: Reservoir
    reservoir: Reservoir
    n_rows: int = 0
    schedule: SearchSchedule = field(default_factory=SearchSchedule)
    trend: ResidualTrend = field(default_factory=ResidualTrend)
    last_drift: int | None = None
    column_sums: ColumnSums | None = None

    @property
    def moments(self) -> Moments:
        """Moments of all rows recorded; O(m^3) if sums of kernel values are to be solved."""
        return self.record.solve(self.basis)

    @property
    def total_weight(self) -> float:
        """Weight of all rows recorded."""
        return self.record.total_weight

    @property
    def sampled_share(self) -> float:
        """Share of the weight that `selection_sample` stands for; less than 1 after rows that devices have learned."""
        weight = self.total_weight
        return float(self.selection_sample.inclusion_weights().sum()) / weight if weight > 0.0 else 1.0

    @property
    def samples_all_rows(self) -> bool:
        """Whether `selection_sample` holds all rows."""
        return not self.selection_sample.is_full and self.sampled_share > 1.0 - _NEGLIGIBLE_SHARE

    def solve(self) -> Self:
        """Return the same summary with its moments solved, as is needed before the atoms are compared or changed."""
        return self if self.record.recent is None else replace(self, record=RecordedMoments(self.moments))

    def arrival_times(self, rows: Array) -> Array:
        """Draw the times (2, B) at which the rows of the next block arrive in the samples."""
        return arrival_times(self.seed, self.n_rows, rows, 2)

    def record_block(self, block: Block, times: Array) -> Self:
        """Take in a block, whose rows arrive in the reservoir at `times` (B,)."""
        if not block.is_current_for(self.basis):
            block = Block(self.basis, block.rows, block.weights)
        sums = self.column_sums
        return replace_fields(
            self,
            record=self.record.plus(block.sums, self.basis),
            atom_stats=self.atom_stats.advance(block.sums.total_weight),
            reservoir=self.reservoir.add(block.rows, block.weights, self.n_rows, times),
            n_rows=self.n_rows + len(block.rows),
            column_sums=None if sums is None else sums.plus(block.rows, block.weights),
        )

    def apply_choice(self, choice: Choice, rows: Array, positions: Positions, weights: Array) -> Self:
        """Apply a choice among rows (n, d), and project what is recorded onto the new span; O(m^2 (m + d))."""
        basis, moments, stats = self.basis, self.moments, self.atom_stats
        if len(choice.removed):
            (basis, rotation), stats = basis.without(choice.removed), stats.without(choice.removed)
        if len(choice.admitted):
            basis, independent = basis.extend(rows[choice.admitted])
            accepted = choice.admitted[independent]
            stats = stats.join(positions[accepted], weights[accepted], np.zeros(len(accepted)))
        if len(choice.removed) and len(choice.admitted):
            # Projected onto the atoms that stay alone, what new atoms share with removed ones would be lost: the whole
            # record with its mean, where all atoms are replaced at once.
            amplification = self.basis.rounding_amplification + basis.rounding_amplification
            moments = moments.reproject(self.basis.vectors_in(basis), amplification)
        elif len(choice.removed):
            moments = moments.rotate(rotation)
        else:
            moments = moments.grow(basis.size - self.basis.size)
        return replace(self, basis=basis, record=RecordedMoments(moments), atom_stats=stats)

    def decay(self, factor: float) -> Self:
        """Multiply the weights of all rows recorded so far by `factor`, from 0 to 1."""
        factor = clamp_decay(factor, self.total_weight, LEAST_DECAYED_WEIGHT)
        if factor == 1.0:
            return self
        return replace(
            self,
            record=self.record.decay(factor, self.basis),
            atom_stats=self.atom_stats.decay(factor),
            selection_sample=self.selection_sample.decay(factor),
            reservoir=self.reservoir.decay(factor),
            column_sums=self.column_sums.decay(factor) if self.column_sums else None,
        )

    def merge(self, other: Self) -> Self:
        """Add the summary of another stream with the same kernel.

        Rows of the other are numbered after these, and no weight changes. The other's atoms join the basis, and its
        moments are expressed in the union: O(m^3) for m atoms in all, O(m^2) where both have the same atoms.
        """
        basis, moments, theirs = self.basis, self.moments, other.atom_stats
        if np.array_equal(basis.factor, other.basis.factor) and np.array_equal(basis.atoms, other.basis.atoms):
            joined, moments = np.empty(0, dtype=np.int64), moments.join(other.moments)
        else:
            basis, joined = basis.extend(other.basis.atoms)
            coordinates = other.basis.vectors_in(basis)
            amplification = basis.rounding_amplification + other.basis.rounding_amplification
            moments = moments.grow(len(joined)).merge(other.moments, coordinates, amplification)
        union = replace(
            self,
            basis=basis,
            record=RecordedMoments(moments),
            atom_stats=self.atom_stats.advance(other.total_weight).join(
                shift_positions(theirs.positions[joined], self.n_rows),
                theirs.weights[joined],
                theirs.weight_since_admission[joined] + self.total_weight,
            ),
            selection_sample=self.selection_sample.merge(other.selection_sample, self.n_rows),
            reservoir=self.reservoir.merge(other.reservoir, self.n_rows),
            n_rows=self.n_rows + other.n_rows,
            last_drift=self.last_drift if other.last_drift is None else other.last_drift + self.n_rows,
            # How well the union explains later rows is not known yet.
            trend=ResidualTrend(),
            schedule=SearchSchedule(),
        )
        if self.column_sums is None or other.column_sums is None:
            return union
        return replace(union, column_sums=self.column_sums.merge(other.column_sums)).with_distribution_renewed()

    def without_rows(self) -> Self:
        """Return the summary of no rows that begins with these atoms, and judges them by rows of its own."""
        return replace(
            self.reset_counts(),
            atom_stats=self.atom_stats.from_outside(self.basis.atoms),
            selection_sample=self.selection_sample.drop_rows(),
            schedule=replace(self.schedule, n_blocks=min(self.schedule.n_blocks, 1), n_rows_searched=0),
            trend=ResidualTrend(),
            last_drift=None,
        )

    def reset_counts(self) -> Self:
        """Forget the rows recorded but keep the atoms: the second pass records every row in the final basis."""
        stats = self.atom_stats
        return replace(
            self,
            record=RecordedMoments.zero(self.basis.size),
            atom_stats=replace(stats, weight_since_admission=np.zeros(self.basis.size)),
            reservoir=self.reservoir.drop_rows(),
            n_rows=0,
            # Gaps are judged by the distribution of the first pass until the second is over.
            column_sums=None if self.column_sums is None else ColumnSums.none(self.basis.atoms.shape[1]),
        )

    # The distribution of gaps

    def begin_distribution(self, rows: Array, weights: Array) -> Self:
        """Take the first distribution of gaps from the rows of a block (B, d) themselves."""
        if self.column_sums is None or self.basis.distribution is not None:
            return self
        return replace(self, basis=self.basis.with_distribution(ColumnSums.of(rows, weights).distribution()))

    def with_distribution_renewed(self, *, if_due: bool = False) -> Self:
        """Renew the distribution of gaps; `if_due`: once enough more rows are known."""
        sums = self.column_sums
        if sums is None:
            return self
        n_new, is_known = self.n_rows - sums.n_rows, sums.total_weight > 0.0
        if if_due and not (is_known and n_new > min(_MORE_ROWS * sums.n_rows, _ROWS_TO_RENEW)):
            return self
        sums = sums._replace(n_rows=self.n_rows)
        return replace(self, column_sums=sums, basis=self.basis.with_distribution(sums.distribution()))


def countable(rows: Array, weights: Array) -> Array:
    """Replace rows of weight zero, which may be outside the kernel's range, by a row of positive weight."""
    if weights.all():
        return rows
    counting = weights > 0.0
    return np.where(counting[:, None], rows, rows[np.argmax(counting)])
