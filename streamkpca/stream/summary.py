"""The summary, an immutable value: all that is kept of the rows of full blocks."""

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.positions import shifted
from streamkpca._core.reservoir import Reservoir, arrival_times
from streamkpca.dictionary.basis import AtomStats, Basis
from streamkpca.dictionary.moments import Moments, Record
from streamkpca.dictionary.selection import Choice, selection_sample_size
from streamkpca.kernels import Kernel
from streamkpca.rows.gaps import ColumnSums
from streamkpca.stream.blocks import Block
from streamkpca.stream.drift import PageCusum
from streamkpca.stream.schedule import SearchSchedule

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Forgetting stops at these total weights. New rows, whose weights are at least 1e-100, then outweigh the old ones
# beyond all digits, and until they come the old rows keep their shares. Decay with the rows stops later than `forget`,
# so that pending and recorded rows keep their shares too.
LEAST_TOTAL_WEIGHT = 1e-120
LEAST_DECAYED_WEIGHT = 1e-150
# A row whose weight decays below this within a block gets weight zero, as nothing could be divided by it.
_LEAST_WEIGHT = 1e-200
# The distribution of gaps is made anew after this share of more rows, or after this many.
_MORE_ROWS, _ROWS_TO_RENEW = 0.25, 4096


def decayed_weights(weights: Array, half_life: float | None, n_later: int = 0) -> tuple[float, Array]:
    """Return the decay of rows before a block, and the block's weights (B,), after `n_later` more rows.

    The newest row keeps its weight.
    """
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

    Parameters
    ----------
    seed : int
        Seed of the samples.
    basis : Basis
    record : Record
        The moments of all rows recorded.
    atom_stats : AtomStats
    selection_sample : Reservoir
        The sample that gains and losses of atoms are measured on. Certificates need a separate one: measured on the
        rows of the selection, the atoms would look too good.
    reservoir : Reservoir
        The sample that certificates read.
    n_rows : int
        Number of rows recorded, and of those before the first that counts.
    schedule : SearchSchedule
    trend : PageCusum
    last_drift : int or None
        Number of rows recorded when a drift was last signalled.
    column_sums : ColumnSums or None
        Sums that the distribution of the basis comes from, now and then, where rows may have gaps. While the
        distribution stays, blocks can be compared ahead.
    """

    seed: int
    basis: Basis
    record: Record
    atom_stats: AtomStats
    selection_sample: Reservoir
    reservoir: Reservoir
    n_rows: int = 0
    schedule: SearchSchedule = field(default_factory=SearchSchedule)
    trend: PageCusum = field(default_factory=PageCusum)
    last_drift: int | None = None
    column_sums: ColumnSums | None = None

    @classmethod
    def empty(
        cls,
        kernel: Kernel,
        n_features: int,
        *,
        max_atoms: int | None = None,
        reservoir_size: int = 0,
        seed: int = 0,
        n_rows: int = 0,
        dtype: str = "float64",
        has_gaps: bool = False,
    ) -> Self:
        """Return the summary of no rows, for a settled kernel; samples keep rows in the precision `dtype`."""
        return cls(
            seed,
            Basis.empty(kernel, n_features),
            Record.zero(),
            AtomStats.none(),
            Reservoir.empty(selection_sample_size(max_atoms), n_features, dtype),
            Reservoir.empty(reservoir_size, n_features, dtype),
            n_rows,
            column_sums=ColumnSums.none(n_features) if has_gaps else None,
        )

    @property
    def moments(self) -> Moments:
        """Moments of all rows recorded; O(m^3) if sums of kernel values are to be solved."""
        return self.record.solved(self.basis)

    @property
    def total_weight(self) -> float:
        """Weight of all rows recorded."""
        return self.record.total_weight

    def solved(self) -> Self:
        """Return the same summary with its moments solved, as is needed before the atoms are compared or changed."""
        return self if self.record.recent is None else replace(self, record=Record(self.moments))

    def arrival_times(self, rows: Array) -> Array:
        """Draw the times (2, B) at which the rows of the next block arrive in the samples."""
        return arrival_times(self.seed, self.n_rows, rows, 2)

    def prepared(self, rows: Array, weights: Array, half_life: float | None = None) -> Block:
        """Compare rows (B, d) with the atoms; other threads can prepare later blocks."""
        return Block(self.basis, countable(rows, weights), decayed_weights(weights, half_life)[1])

    def recorded(self, block: Block, times: Array) -> Self:
        """Take in a block, whose rows arrive in the reservoir at `times` (B,)."""
        if not block.is_current_for(self.basis):
            block = Block(self.basis, block.rows, block.weights)
        sums = self.column_sums
        return replace(
            self,
            record=self.record.plus(block.sums, self.basis),
            atom_stats=self.atom_stats.advanced(block.sums.total_weight),
            reservoir=self.reservoir.add(block.rows, block.weights, self.n_rows, times),
            n_rows=self.n_rows + len(block.rows),
            column_sums=None if sums is None else sums.plus(block.rows, block.weights),
        )

    def changed(self, choice: Choice, rows: Array, positions: Positions, weights: Array) -> Self:
        """Apply a choice among rows (n, d); atoms are removed first, so that the budget always holds."""
        basis, moments, stats = self.basis, self.moments, self.atom_stats
        if len(choice.removed):
            basis, rotation = basis.without(choice.removed)
            moments, stats = moments.rotated(rotation), stats.without(choice.removed)
        if len(choice.admitted):
            basis, independent = basis.extended(rows[choice.admitted])
            accepted = choice.admitted[independent]
            moments = moments.grown(len(accepted))
            stats = stats.joined(positions[accepted], weights[accepted], np.zeros(len(accepted)))
        return replace(self, basis=basis, record=Record(moments), atom_stats=stats)

    def decayed(self, factor: float) -> Self:
        """Multiply the weights of all rows recorded so far by `factor`, from 0 to 1."""
        factor = clamp_decay(factor, self.total_weight, LEAST_DECAYED_WEIGHT)
        if factor == 1.0:
            return self
        return replace(
            self,
            record=self.record.decayed(factor, self.basis),
            atom_stats=self.atom_stats.decayed(factor),
            selection_sample=self.selection_sample.decayed(factor),
            reservoir=self.reservoir.decayed(factor),
            column_sums=self.column_sums.decayed(factor) if self.column_sums else None,
        )

    def merged(self, other: Self) -> Self:
        """Add the summary of another stream with the same kernel, as if its rows had come after these.

        Notes
        -----
        The other's atoms join the basis, and its moments are expressed in the union, where the moments along directions
        that only one of the two spans do not change. The statistics of an atom then count the rows of both streams.
        O(m^3) for m atoms in all; O(m^2) where both have the same atoms, whose moments are added up as they are.
        """
        basis, moments, theirs = self.basis, self.moments, other.atom_stats
        if np.array_equal(basis.factor, other.basis.factor) and np.array_equal(basis.atoms, other.basis.atoms):
            joined, moments = np.empty(0, dtype=np.int64), moments.joined(other.moments)
        else:
            basis, joined = basis.extended(other.basis.atoms)
            coordinates = other.basis.vectors_in(basis)
            amplification = basis.rounding_amplification + other.basis.rounding_amplification
            moments = moments.grown(len(joined)).merged(other.moments, coordinates, amplification)
        union = replace(
            self,
            basis=basis,
            record=Record(moments),
            atom_stats=self.atom_stats.advanced(other.total_weight).joined(
                shifted(theirs.positions[joined], self.n_rows),
                theirs.weights[joined],
                theirs.weight_since_admission[joined] + self.total_weight,
            ),
            selection_sample=self.selection_sample.merged(other.selection_sample, self.n_rows),
            reservoir=self.reservoir.merged(other.reservoir, self.n_rows),
            n_rows=self.n_rows + other.n_rows,
            # How well the union explains later rows is not known yet.
            trend=PageCusum(),
            schedule=SearchSchedule(),
        )
        if self.column_sums is None or other.column_sums is None:
            return union
        return replace(union, column_sums=self.column_sums.merged(other.column_sums)).with_distribution_renewed()

    def without_rows(self) -> Self:
        """Return the summary of no rows that begins with these atoms.

        Once they are settled, only rows that are explained worse than usual make it search. It then judges atoms by
        rows of its own: with the sample of this one, rows of another kind were left 14% more unexplained.
        """
        return replace(
            self.recounted(),
            atom_stats=self.atom_stats.from_outside(self.basis.atoms),
            selection_sample=self.selection_sample.emptied(),
            schedule=replace(self.schedule, n_blocks=min(self.schedule.n_blocks, 1), n_rows_searched=0),
            trend=PageCusum(),
            last_drift=None,
        )

    def recounted(self) -> Self:
        """Forget the rows recorded but keep the atoms: the second pass records every row in the final basis."""
        stats = self.atom_stats
        return replace(
            self,
            record=Record.zero(self.basis.size),
            atom_stats=replace(stats, weight_since_admission=np.zeros(self.basis.size)),
            reservoir=self.reservoir.emptied(),
            n_rows=0,
            # Gaps are judged by the distribution of the first pass until the second is over.
            column_sums=None if self.column_sums is None else ColumnSums.none(self.basis.atoms.shape[1]),
        )

    # What gaps could hold

    def meeting(self, rows: Array, weights: Array) -> Self:
        """Let the rows of a block (B, d) themselves say what gaps could hold, before anything else does."""
        if self.column_sums is None or self.basis.distribution is not None:
            return self
        return replace(self, basis=self.basis.with_distribution(ColumnSums.of(rows, weights).distribution()))

    def with_distribution_renewed(self, *, if_due: bool = False) -> Self:
        """Decide anew what gaps could hold; `if_due`: once so many more rows are known that it matters."""
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
