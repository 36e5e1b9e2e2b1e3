"""The summary, an immutable value: all that is kept of the rows of full blocks."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.concurrency import replace_fields
from streamkpca._core.reservoir import Reservoir, arrival_times, shift_positions
from streamkpca.dictionary.basis import AtomStats, Basis
from streamkpca.dictionary.moments import Moments, RecordedMoments
from streamkpca.dictionary.selection import Choice
from streamkpca.rows.gaps import ColumnSums
from streamkpca.stream.schedule import Block, ResidualTrend, SearchSchedule

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
