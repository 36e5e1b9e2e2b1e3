"""The summary, which is all that is kept of the rows of full blocks, and how weights decay."""

from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.positions import shifted
from streamkpca._core.reservoir import Reservoir, arrival_times
from streamkpca.dictionary.basis import AtomStats, Basis
from streamkpca.dictionary.moments import Moments, RowSums
from streamkpca.dictionary.moving import can_move, moved_basis
from streamkpca.dictionary.selection import (
    SCREENING_ROWS,
    Choice,
    candidates_in,
    choose_below_budget,
    choose_by_tolerance,
    choose_swaps,
    choose_to_shrink,
    selection_sample_size,
)
from streamkpca.kernels import Kernel
from streamkpca.rows.gaps import ColumnSums, gaps_in
from streamkpca.stream.blocks import MOVING_PACE, ROWS_PACE, SETTLED_PACE, Block, Pace, SearchSchedule, mean_and_spread
from streamkpca.stream.drift import PageCusum

Array = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

# Forgetting stops at these total weights. New rows, whose weights are at least 1e-100, then outweigh the old ones
# beyond all digits, and until they come the old rows keep their shares. Decay with the rows stops later than `forget`,
# so that pending and recorded rows keep their shares too.
LEAST_TOTAL_WEIGHT = 1e-120
LEAST_DECAYED_WEIGHT = 1e-150
# Rows of a block that are searched at once, whose kernel matrix takes 128 MiB.
_MOST_FILLING = 4096
# A row whose weight decays below this within a block gets weight zero, as nothing could be divided by it.
_LEAST_WEIGHT = 1e-200
# Pending sums that weigh less are solved before they decay: sums of kernel values, whose unit is k^2, fall below the
# smallest numbers and lose their digits long before moments do.
_LEAST_PENDING_WEIGHT = 1e-50

# A search goes on while a round of swaps gains this share of the mean residual, as in the first blocks after a drift.
_MOST_ROUNDS = 10
_WORTH_ANOTHER_ROUND = 0.03

# Atoms move once there are this many sampled rows for each. Moves decided by 1.5 rows for each atom left 4% less of
# other rows unexplained than the rows that the atoms began as, by 4 rows 14% less, by 8 rows 18%.
_LEAST_ROWS_TO_MOVE = 4
# Evaluations of the gradient in a move while the sample holds all rows, and later. 50 instead of 6 left 1.5% less.
_N_EVALUATIONS, _N_LATER_EVALUATIONS = 6, 4
# Sampled rows for each atom that decide later moves, and as many others that judge them; candidates of a swap before.
_MOVING_SAMPLE, _MOVING_CANDIDATES = 16, 512
# How many rows to come, for each row so far, must regain what a move loses of the recorded moments. With 1, nearly all
# moves were refused in streams whose regimes change, and with 4 little more was gained.
_HORIZON = 2.0
# Moved atoms explain the n rows that they moved for better than later ones, by up to 1 + this m / n.
_OPTIMISM = 2.5
# What gaps could hold is decided anew after this share of more rows, or after so many.
_MORE_ROWS, _ROWS_TO_RENEW = 0.25, 4096
# Rows compared with a basis at a time.
_CHUNK = 1024

# Tolerances refer to the variance, but to no less than this share of the energy: below it, variances are rounding.
_LEAST_VARIANCE_SHARE = 1e-9

# Maximum number of blocks prepared ahead if no schedule tells when the atoms will change.
_MOST_PREFETCHED = 16


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


class Summary:
    """Atoms, their orthonormal basis, and the stream's moments in it.

    Parameters
    ----------
    kernel : Kernel
        A settled kernel.
    n_features : int
        Width d of the rows.
    max_atoms : int or None
        Budget of atoms that the stream begins with.
    reservoir_size : int
        Rows of the random sample.
    seed : int
        Seed of the samples.
    n_rows : int
        Rows before the first that counts.
    dtype : str
        Precision that samples keep their rows in.
    has_gaps : bool
        Whether rows may have gaps, whose numbers the basis' distribution stands in for.

    Attributes
    ----------
    basis : Basis
    column_sums : ColumnSums or None
        What the distribution of the basis is made of, now and then: while it stays, blocks can be compared ahead.
    reservoir : Reservoir
        The sample that certificates read.
    trend : PageCusum
    last_drift : int or None
        Number of rows recorded when a drift was last signalled.
    atom_stats : AtomStats
    selection_sample : Reservoir
        The sample that gains and losses of atoms are measured on. Certificates need a separate one: measured on the
        rows of the selection, the atoms would look too good.
    n_rows : int
        Number of rows recorded.
    moments_base : Moments
        Moments, in coordinates, of the rows recorded before the atoms last changed.
    pending_sums : RowSums or None
        Sums, of kernel values, over the rows recorded since.
    schedule : SearchSchedule

    Notes
    -----
    The summary is a function of the blocks alone. Arrays are replaced, never written to, so `copy` is cheap.
    """

    def __init__(
        self,
        kernel: Kernel,
        n_features: int,
        *,
        max_atoms: int | None = None,
        reservoir_size: int = 0,
        seed: int = 0,
        n_rows: int = 0,
        dtype: str = "float64",
        has_gaps: bool = False,
    ) -> None:
        self.seed = seed
        self.basis = Basis(kernel, n_features)
        self.column_sums = ColumnSums.none(n_features) if has_gaps else None
        self.pending_sums: RowSums | None = None
        self.moments_base = Moments.zero()
        self.atom_stats = AtomStats.none()
        self.n_rows = n_rows
        self.selection_sample = Reservoir.empty(selection_sample_size(max_atoms), n_features, dtype)
        self.reservoir = Reservoir.empty(reservoir_size, n_features, dtype)
        self.trend = PageCusum()
        self.last_drift: int | None = None
        self.schedule = SearchSchedule()

    def copy(self) -> Self:
        """Return an independent copy, O(m)."""
        twin = type(self)(self.basis.kernel, self.basis.atoms.shape[1])
        twin.__dict__.update(self.__dict__)
        twin.basis = self.basis.copy()
        return twin

    @property
    def moments(self) -> Moments:
        """Moments of all rows recorded; O(m^3) if there are pending sums."""
        if self.pending_sums is None:
            return self.moments_base
        return self.moments_base.recorded(
            self.pending_sums.solved(self.basis.inverse), self.basis.rounding_amplification
        )

    @property
    def total_weight(self) -> float:
        """Weight of all rows recorded."""
        return self.moments_base.total_weight + (self.pending_sums.total_weight if self.pending_sums else 0.0)

    def n_prefetchable(self, max_atoms: int | None) -> int:
        """Return for how many blocks, this one included, the atoms will probably stay the same."""
        if max_atoms is not None:
            return self.schedule.countdown
        # Without a budget, any block that is not explained brings atoms; pending sums show that the last one did not.
        return _MOST_PREFETCHED if self.pending_sums else 0

    def _arrival_times(self, rows: Array) -> Array:
        """Draw the times (2, B) at which the rows of the next block arrive in the samples."""
        return arrival_times(self.seed, self.n_rows, self.basis.kernel.contents(rows), 2)

    def prepare_block(self, rows: Array, weights: Array, half_life: float | None = None) -> Block:
        """Compare rows (B, d) with the atoms; this changes nothing, so other threads can prepare later blocks."""
        return Block(self.basis, _countable(rows, weights), decayed_weights(weights, half_life)[1])

    def advance(
        self,
        rows: Array,
        weights: Array,
        *,
        max_atoms: int | None,
        tolerance: float,
        half_life: float | None = None,
        moves_atoms: bool = False,
        block: Block | None = None,
    ) -> None:
        """Search for atoms if that is due, then record a block (B, d); `max_atoms` is at least the present number.

        `block` is what `prepare_block` made of the same rows, possibly before the atoms changed.

        Notes
        -----
        O(B m (d + m)), and O(n m (d + m)) more for a search with n rows in the selection sample; O(B^2 (d + m)) while
        the budget is not used up.
        """
        self._decay(weights, half_life)
        if not weights.any():
            self.n_rows += len(rows)
            return
        self._meet(rows, weights)
        if self._is_renewal_due():
            self.renew_distribution()
        if block is None or not block.is_current_for(self.basis):
            block = self.prepare_block(rows, weights, half_life)
        weights = block.weights
        if not weights.any():
            # The half-life is so short that all rows but the newest, of weight zero, have faded.
            self.n_rows += len(rows)
            return
        variation = self._variation(block)
        if self.basis.size:
            self._watch(block, tolerance, variation)
        times = self._arrival_times(rows)
        self.selection_sample = self.selection_sample.add(rows, weights, self.n_rows, times[1])
        moves_atoms = moves_atoms and can_move(self.basis.kernel)
        pace = MOVING_PACE if moves_atoms else ROWS_PACE
        # With zero tolerance every independent row is admitted, even if its residual is tiny beside the block's energy.
        is_explained = tolerance > 0.0 and block.unexplained <= tolerance * variation
        if is_explained or not self._is_worth_searching(block, max_atoms, pace):
            self._record(block, times[0])
            return
        n_atoms = self.basis.size
        searched = self._search(block, max_atoms, tolerance * variation, moves_atoms=moves_atoms)
        self._record(searched, times[0])
        if max_atoms is None:
            return
        if moves_atoms:
            self.move()
            pace = SETTLED_PACE if self.selection_sample.is_full else MOVING_PACE
            if half_life is not None:
                # Atoms of rows that are forgotten have to be replaced, although nothing is explained worse.
                n_counting = self._n_rows_counting() / len(block.rows)
                pace = pace._replace(usual=min(pace.usual, n_counting / (self.schedule.n_blocks + 1)))
        _, spread = mean_and_spread(np.maximum(block.projected().residual, 0.0), block.weights)
        # How much rows usually leave must be known after the search: before it, a drift would pass as usual.
        usual = self._sampled_residual()
        if moves_atoms:
            usual *= 1.0 + _OPTIMISM * self.basis.size / len(self.selection_sample)
        else:
            usual = max(usual, searched.mean_residual)
        # While blocks fill the budget, each is searched.
        has_room = n_atoms < self.basis.size < max_atoms
        self.schedule = self.schedule.searched(self.n_rows, usual, spread, pace, again=has_room)

    def record(self, rows: Array, weights: Array, *, half_life: float | None = None) -> None:
        """Record a block (B, d) of weights (B,) without searching for atoms."""
        self._decay(weights, half_life)
        if not weights.any():
            self.n_rows += len(rows)
            return
        self._meet(rows, weights)
        self._record(self.prepare_block(rows, weights, half_life), self._arrival_times(rows)[0])

    def sampled(self, rows: Array, weights: Array, half_life: float | None = None) -> tuple[Reservoir, RowSums]:
        """Return the reservoir and the totals (sums without directions) as they would be after a block; O(B d).

        This is all that certificates need of pending rows: it compares no rows and searches for no atoms.
        """
        later = self.copy()
        later._decay(weights, half_life)
        base, pending = later.moments_base, later.pending_sums
        totals = base.along_nothing().plus(pending.along_nothing()) if pending else base.along_nothing()
        if not weights.any():
            return later.reservoir, totals
        rows, weights = _countable(rows, weights), decayed_weights(weights, half_life)[1]
        later._meet(rows, weights)
        nothing = Basis(self.basis.kernel, rows.shape[1])
        nothing.distribution = later.basis.distribution
        times = self._arrival_times(rows)[0]
        sums = Block(nothing, rows, weights).sums
        return later.reservoir.add(rows, weights, self.n_rows, times), totals.plus(sums)

    def shrink(self, max_atoms: int) -> None:
        """Remove the weakest atoms until at most `max_atoms` are left."""
        if self.basis.size > max_atoms:
            self.selection_sample = self.selection_sample.sorted()
            sample = self.selection_sample.mapped(self.basis.completed)
            choice = choose_to_shrink(self.basis, self.atom_stats, sample, max_atoms, total_weight=self.total_weight)
            self._change(choice, self.basis.atoms[:0], self.atom_stats.positions[:0], np.empty(0))

    def move(self) -> None:
        """Move the atoms to where they leave less unexplained, if that outweighs what they lose of what is recorded.

        Notes
        -----
        While the selection sample holds all rows, they are recorded anew in the basis that results, and nothing is
        lost. Later the recorded moments are projected onto the new span. What that loses of the rows so far, twice as
        many rows to come must regain, judged by sampled rows that did not decide where the atoms move.

        O(n m (m + d)) for n sampled rows and each evaluation of the gradient.
        """
        basis, sample = self.basis, self.selection_sample.sorted()
        if not basis.size or not can_move(basis.kernel) or len(sample) < _LEAST_ROWS_TO_MOVE * basis.size:
            return
        self._solve_pending_sums()
        self.selection_sample = sample
        before, holds_all = self.moments_base, not sample.is_full
        rows, weights = sample.rows, sample.inclusion_weights()
        deciding = judging = slice(None)
        n_evaluations = _N_EVALUATIONS if holds_all else _N_LATER_EVALUATIONS
        if not holds_all:
            n_most = min(_MOVING_SAMPLE * basis.size, len(rows) // 2)
            deciding, judging = slice(0, n_most), slice(n_most, 2 * n_most)
        moved, kept, has_moved = moved_basis(basis, rows[deciding], weights[deciding], n_evaluations=n_evaluations)
        rows, weights = rows[judging], weights[judging]
        (old_sums, old), (sums, new) = (_compared(either, rows, weights) for either in (basis, moved))
        gained = (old - new) / weights.sum() * before.total_weight
        if holds_all:
            if not gained > 0.0:
                moved, kept, has_moved, sums = basis, np.arange(basis.size), np.zeros(basis.size, dtype=bool), old_sums
            moments = before.recorded_anew(sums, moved.rounding_amplification)
        elif not has_moved.any():
            return
        else:
            amplification = basis.rounding_amplification + moved.rounding_amplification
            moments = before.reprojected(basis.vectors_in(moved), amplification)
            if not _HORIZON * gained > moments.losses.by_removal - before.losses.by_removal:
                return
        self.basis, self.moments_base = moved, moments
        self.atom_stats = self.atom_stats.moved(kept, has_moved)
        if holds_all:
            self.atom_stats = replace(self.atom_stats, weight_since_admission=np.full(moved.size, before.total_weight))

    def chooser(self, n_rows: int) -> Self:
        """Return an empty summary that chooses atoms from this number of rows, and keeps all of them as its sample."""
        chooser = type(self)(self.basis.kernel, self.basis.atoms.shape[1], seed=self.seed)
        chooser.selection_sample = Reservoir.empty(n_rows + 1, self.basis.atoms.shape[1])
        chooser.column_sums = self.column_sums
        return chooser

    def choose_from(self, sample: Reservoir, order: Positions, chooser: Self) -> None:
        """Take over the atoms that a chooser chose from the rows of a sample of this stream, taken in some order."""
        stats = chooser.atom_stats
        rows = order[stats.origins]
        positions = sample.positions[rows]
        self.basis, self.selection_sample, self.column_sums = chooser.basis, sample, chooser.column_sums
        self.atom_stats = replace(
            stats, positions=np.where(stats.positions < 0, ~positions, positions), weights=sample.weights[rows]
        )
        self.moments_base = Moments.zero(self.basis.size)

    def without_rows(self) -> Self:
        """Return the summary of no rows that begins with these atoms.

        Once they are settled, only rows that are explained worse than usual make it search. It then judges atoms by
        rows of its own: with the sample of this one, rows of another kind were left 14% more unexplained.
        """
        started = self.copy()
        started.pending_sums, started.n_rows, started.last_drift = None, 0, None
        started.column_sums = None if self.column_sums is None else ColumnSums.none(self.basis.atoms.shape[1])
        started.moments_base = Moments.zero(self.basis.size)
        started.atom_stats = self.atom_stats.from_outside(self.basis.atoms)
        started.reservoir, started.selection_sample = self.reservoir.emptied(), self.selection_sample.emptied()
        started.schedule = replace(self.schedule, n_blocks=min(self.schedule.n_blocks, 1), n_rows_searched=0)
        started.trend = PageCusum()
        return started

    def recount(self) -> None:
        """Forget the moments but keep the atoms: the second pass records every row in the final basis."""
        self.moments_base, self.pending_sums = Moments.zero(self.basis.size), None
        self.atom_stats = replace(self.atom_stats, weight_since_admission=np.zeros(self.basis.size))
        self.reservoir = self.reservoir.emptied()
        self.n_rows = 0
        if self.column_sums is not None:
            # Gaps are judged by the distribution of the first pass until the second is over.
            self.column_sums = ColumnSums.none(self.basis.atoms.shape[1])

    def forget(self, factor: float) -> None:
        """Multiply the weights of all rows recorded so far by `factor`, from 0 to 1."""
        factor = clamp_decay(factor, self.total_weight, LEAST_DECAYED_WEIGHT)
        if factor < 1.0:
            if self.pending_sums and factor * self.pending_sums.total_weight < _LEAST_PENDING_WEIGHT:
                self._solve_pending_sums()
            self.moments_base = self.moments_base.decayed(factor)
            self.pending_sums = self.pending_sums.decayed(factor) if self.pending_sums else None
            self.atom_stats = self.atom_stats.decayed(factor)
            self.selection_sample = self.selection_sample.decayed(factor)
            self.reservoir = self.reservoir.decayed(factor)
            self.column_sums = self.column_sums.decayed(factor) if self.column_sums else None

    def merge(self, other: Self) -> None:
        """Add the summary of another stream with the same kernel, as if its rows had come after these.

        Notes
        -----
        The other's atoms join the basis, and its moments are expressed in the union, where the moments along directions
        that only one of the two spans do not change. The statistics of an atom then count the rows of both streams.
        O(m^3) for m atoms in all; O(m^2) where both have the same atoms, whose moments are added up as they are.
        """
        self._solve_pending_sums()
        known, own_weight, other_weight = self.basis.size, self.total_weight, other.total_weight
        if np.array_equal(self.basis.factor, other.basis.factor) and np.array_equal(
            self.basis.atoms, other.basis.atoms
        ):
            joined = np.empty(0, dtype=np.int64)
            self.moments_base = self.moments_base.joined(other.moments)
        else:
            joined = self.basis.extend(other.basis.atoms)
            coordinates = other.basis.vectors_in(self.basis)
            amplification = self.basis.rounding_amplification + other.basis.rounding_amplification
            grown = self.moments_base.grown(self.basis.size - known)
            self.moments_base = grown.merged(other.moments, coordinates, amplification)
        theirs = other.atom_stats
        self.atom_stats = self.atom_stats.advanced(other_weight).joined(
            shifted(theirs.positions[joined], self.n_rows),
            theirs.weights[joined],
            theirs.weight_since_admission[joined] + own_weight,
        )
        self.selection_sample = self.selection_sample.merged(other.selection_sample, self.n_rows)
        self.reservoir = self.reservoir.merged(other.reservoir, self.n_rows)
        self.n_rows += other.n_rows
        if self.column_sums is not None and other.column_sums is not None:
            self.column_sums = self.column_sums.merged(other.column_sums)
            self.renew_distribution()
        # How well the union explains later rows is not known yet.
        self.trend, self.schedule = PageCusum(), SearchSchedule()

    def _meet(self, rows: Array, weights: Array) -> None:
        """Before anything is known of columns, let the rows of a block (B, d) themselves say what gaps could hold."""
        if self.column_sums is not None and self.basis.distribution is None:
            self.basis.distribution = ColumnSums.of(rows, weights).distribution()

    def _is_renewal_due(self) -> bool:
        """Tell whether there are so many more rows that what is known of columns has become clearly better."""
        sums = self.column_sums
        if sums is None or sums.total_weight == 0.0:
            return False
        return self.n_rows - sums.n_rows > min(_MORE_ROWS * sums.n_rows, _ROWS_TO_RENEW)

    def renew_distribution(self) -> None:
        """Let what is known of the columns now decide what gaps could hold."""
        if self.column_sums is not None:
            self.column_sums = self.column_sums._replace(n_rows=self.n_rows)
            self.basis.distribution = self.column_sums.distribution()

    def _decay(self, weights: Array, half_life: float | None) -> None:
        """Let the rows recorded so far decay by the length of a block."""
        self.forget(decayed_weights(weights, half_life)[0])

    def _solve_pending_sums(self) -> None:
        """Turn pending sums of kernel values into moments, before the atoms are compared or changed."""
        self.moments_base, self.pending_sums = self.moments, None

    def _record(self, block: Block, times: Array) -> None:
        if not block.is_current_for(self.basis):
            block = Block(self.basis, block.rows, block.weights)
        if self.basis.is_well_conditioned:
            self.pending_sums = self.pending_sums.plus(block.sums) if self.pending_sums else block.sums
        else:
            self.moments_base = self.moments_base.recorded(block.sums, self.basis.rounding_amplification)
        self.atom_stats = self.atom_stats.advanced(block.sums.total_weight)
        self.reservoir = self.reservoir.add(block.rows, block.weights, self.n_rows, times)
        self.n_rows += len(block.rows)
        if self.column_sums is not None:
            self.column_sums = self.column_sums.plus(block.rows, block.weights)

    def _n_rows_counting(self) -> float:
        """Return the number of rows of equal weight that estimate a mean as well as the rows recorded do."""
        squared = self.moments_base.total_squared_weight
        squared += self.pending_sums.total_squared_weight if self.pending_sums else 0.0
        return self.total_weight**2 / squared if squared > 0.0 else float(self.n_rows)

    def _variation(self, block: Block) -> float:
        """Return the part of a block's energy that tolerances refer to: what varies around the stream's mean.

        It is the block's weight times the variance of the stream's rows, this block included, but no more than the
        energy of the block, so that the share of the stream's energy that is lost never exceeds the tolerance. Where a
        kernel is wide, most of the energy is that of the mean.
        """
        energy, weight = block.sums.energy, self.total_weight + block.sums.total_weight
        if self.basis.size:
            base, pending = self.moments_base, self.pending_sums
            first, total_energy = base.first, base.energy + energy
            recent = block.sums.first if self.basis.is_well_conditioned else None
            if pending is not None:
                total_energy += pending.energy
                recent = pending.first if recent is None else pending.first + recent
            if recent is not None:
                first = first + self.basis.inverse @ recent
            if not self.basis.is_well_conditioned:
                first = first + block.sums.first
            mean_energy = float(first @ first) / weight
        else:
            # Rows before the first atom have no energy.
            total_energy = energy
            mean_energy = _weighted_sum(self.basis.kernel, self.basis.completed(block.rows), block.weights) / weight
        variation = max(total_energy - mean_energy, _LEAST_VARIANCE_SHARE * abs(total_energy)) / weight
        return min(variation * block.sums.total_weight, abs(energy))

    def _watch(self, block: Block, tolerance: float, variation: float) -> None:
        """Test for a drift; if one is signalled, the schedule searches at once."""
        if variation == 0.0:
            return
        # Changes below the tolerance are no drift.
        share = max(block.unexplained, 0.0) / variation
        error = self.schedule.standard_error(block) * block.sums.total_weight / variation
        trend = self.trend.observe(max(share, tolerance), error)
        if trend.signalled and trend.n_blocks == 1:
            self.last_drift = self.n_rows + len(block.rows)
            # The sample changes no faster than rows are forgotten, so searches of it need not be much closer together.
            # With a half-life, half of the rows that count weigh as much as the whole stream.
            self.schedule = self.schedule.reset_after_drift(int(self._n_rows_counting() / 2.0 / len(block.rows)))
        self.trend = trend

    def _is_worth_searching(self, block: Block, max_atoms: int | None, pace: Pace) -> bool:
        if not block.weights.any():
            return False
        if max_atoms is None or self.schedule.is_due(block, self.n_rows, pace):
            return True
        self.schedule = self.schedule.skipped(block, self.n_rows)
        return False

    def _search(self, block: Block, max_atoms: int | None, tolerated: float, *, moves_atoms: bool) -> Block:
        """Search for atoms, as the block may leave `tolerated` energy; return it compared with the atoms found."""
        self._solve_pending_sums()
        # Sorted once and kept, as a sorted copy for each query would need memory for both.
        self.selection_sample = self.selection_sample.sorted()
        fills = max_atoms is None or self.basis.size < max_atoms
        if fills:
            self._fill(block, max_atoms, tolerated)
        # Right after the choice of atoms among the same rows, a swap finds little that a move does not.
        if self.basis.size == max_atoms and not (fills and moves_atoms):
            self._swap(block, moves_atoms=moves_atoms)
        return block if block.is_current_for(self.basis) else Block(self.basis, block.rows, block.weights)

    def _fill(self, block: Block, max_atoms: int | None, tolerated: float) -> None:
        """Admit rows of the block, until it is explained or the budget is used up.

        Rows with gaps are completed. Without any atom they would be so by expected numbers alone, which may be far from
        all rows, as the centre of a circle is: then rows without gaps come first.
        """
        missing = None if self.basis.distribution is None else gaps_in(block.rows)
        positions = self.n_rows + np.arange(len(block.rows))
        if missing is not None:
            has_gaps = missing.any(axis=1)
            weights = np.where(has_gaps, 0.0, block.weights)
            if not self.basis.size and weights.any():
                whole = Block(self.basis, _countable(block.rows, weights), weights)
                share = whole.sums.total_weight / block.sums.total_weight
                self._admit(whole, positions, max_atoms, tolerated * share)
            if max_atoms is not None and self.basis.size == max_atoms:
                return
            block = Block(self.basis, self.basis.completed(block.rows), block.weights)
            positions = np.where(has_gaps, ~positions, positions)
        self._admit(block, positions, max_atoms, tolerated)

    def _admit(self, block: Block, positions: Positions, max_atoms: int | None, tolerated: float) -> None:
        """Admit rows of a block without gaps, at positions (B,), until it is explained or the budget is used up."""
        for start in range(0, len(block.rows), _MOST_FILLING):
            piece = slice(start, start + _MOST_FILLING)
            part, weights = block, block.weights[piece]
            if len(weights) < len(block.rows):
                if not weights.any():
                    continue
                part = Block(self.basis, block.rows[piece], weights)
            share = part.sums.total_weight / block.sums.total_weight
            if max_atoms is None:
                choice = choose_by_tolerance(self.basis, part.projected(), weights, tolerated * share)
            else:
                choice = choose_below_budget(
                    self.basis,
                    part.projected(),
                    weights,
                    max_atoms=max_atoms,
                    least_gain=tolerated / block.sums.total_weight / max_atoms,
                    total_weight=self.total_weight + block.sums.total_weight,
                )
            self._change(choice, part.rows, positions[piece], weights)

    def _swap(self, block: Block, *, moves_atoms: bool) -> None:
        """Let rows sampled since the last search replace atoms.

        Atoms that move find their places themselves, so a coarser search is enough for them.
        """
        total_weight = self.total_weight + block.sums.total_weight
        sample, n_rounds, usual_weight = self.selection_sample, _MOST_ROUNDS, 0.0
        candidates = candidates_in(sample, self.schedule.n_rows_searched)
        if moves_atoms:
            # An outlier that explains nothing but itself must not hold an atom, which cannot move away from it either.
            usual_weight = float(sample.weights.mean())
            sample, n_rounds = sample.first(max(_MOVING_SAMPLE * self.basis.size, SCREENING_ROWS)), 1
            candidates = candidates.at(slice(_MOVING_CANDIDATES))
        for _ in range(n_rounds):
            # In the present basis, as the atoms that complete a row may be gone in the next round.
            whole, ready = sample.mapped(self.basis.completed), candidates.mapped(self.basis.completed)
            choice, promising = choose_swaps(
                self.basis, self.atom_stats, self.moments_base, whole, ready, total_weight, usual_weight
            )
            if not choice:
                break
            positions = _as_completed(candidates.rows, candidates.positions, self.basis)
            self._change(choice, ready.double_rows, positions, candidates.weights)
            if choice.profit <= _WORTH_ANOTHER_ROUND * block.mean_residual:
                break
            # As they came, since the next round may complete them otherwise.
            order = np.argsort(candidates.positions)
            candidates = candidates.at(order[np.searchsorted(candidates.positions[order], promising.positions)])

    def _sampled_residual(self) -> float:
        """Return the mean residual of a part of the selection sample, O(m (d + m))."""
        sample = self.selection_sample.first(SCREENING_ROWS)
        return float(sample.normalised_weights() @ np.maximum(self.basis.project(sample.rows).residual, 0.0))

    def _change(self, choice: Choice, rows: Array, positions: Positions, weights: Array) -> None:
        """Apply a choice among rows; atoms are removed first, so that the budget always holds."""
        self._solve_pending_sums()
        if len(choice.removed):
            self.moments_base = self.moments_base.rotated(self.basis.remove(choice.removed))
            self.atom_stats = self.atom_stats.without(choice.removed)
        if len(choice.admitted):
            accepted = choice.admitted[self.basis.extend(rows[choice.admitted])]
            self.moments_base = self.moments_base.grown(len(accepted))
            self.atom_stats = self.atom_stats.joined(positions[accepted], weights[accepted], np.zeros(len(accepted)))


def _as_completed(rows: Array, positions: Positions, basis: Basis) -> Positions:
    """Mark the positions (n,) of rows (n, d) with gaps: atoms of these are no rows of the stream."""
    missing = None if basis.distribution is None else gaps_in(rows)
    return positions if missing is None else np.where(missing.any(axis=1), ~positions, positions)


def _compared(basis: Basis, rows: Array, weights: Array) -> tuple[RowSums, float]:
    """Return the sums over rows (n, d) of weights (n,), in coordinates, and what the basis leaves unexplained."""
    parts = [slice(start, start + _CHUNK) for start in range(0, len(rows), _CHUNK)]
    blocks = [Block(basis, rows[part], weights[part]) for part in parts]
    sums = blocks[0].sums
    for block in blocks[1:]:
        sums = sums.plus(block.sums)
    if basis.is_well_conditioned:
        sums = sums.solved(basis.inverse)
    return sums, sum(block.unexplained for block in blocks)


def _weighted_sum(kernel: Kernel, rows: Array, weights: Array) -> float:
    """Return sum_ij a_i a_j k(x_i, x_j) over rows (B, d) of weights (B,), of many rows in parts."""
    if len(rows) <= _MOST_FILLING:
        return float(weights @ kernel.program.gram(rows) @ weights)
    parts = [slice(start, start + _CHUNK) for start in range(0, len(rows), _CHUNK)]
    total = 0.0
    for number, part in enumerate(parts):
        total += float(weights[part] @ kernel.program.gram(rows[part]) @ weights[part])
        # Both sides in parts: a part against all rows would be the largest matrix of the whole search.
        for other in parts[:number]:
            total += 2.0 * float(weights[part] @ kernel.program.matrix(rows[part], rows[other]) @ weights[other])
    return total


def _countable(rows: Array, weights: Array) -> Array:
    """Replace rows of weight zero, which may be outside the kernel's range, by a row of positive weight."""
    if weights.all():
        return rows
    counting = weights > 0.0
    return np.where(counting[:, None], rows, rows[np.argmax(counting)])
