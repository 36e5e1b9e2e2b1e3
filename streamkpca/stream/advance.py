"""The step from one summary to the next, by a block of rows."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from streamkpca._core.reservoir import Reservoir
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.moments import RowSums
from streamkpca.dictionary.moving import can_move
from streamkpca.kernels import Kernel
from streamkpca.stream.blocks import Block
from streamkpca.stream.schedule import MOVING_PACE, ROWS_PACE, SETTLED_PACE, Pace, mean_and_spread
from streamkpca.stream.search import MOST_FILLING, moved, searched, shrunk, usual_residual
from streamkpca.stream.settings import StreamSettings
from streamkpca.stream.summary import Summary, countable, decayed_weights

Array = npt.NDArray[np.float64]

# Rows whose kernel values with each other are summed at a time.
_CHUNK = 1024

# Tolerances refer to the variance, but to no less than this share of the energy: below it, variances are rounding.
_LEAST_VARIANCE_SHARE = 1e-9

# Maximum number of blocks prepared ahead if no schedule tells when the atoms will change.
_MOST_PREFETCHED = 16


def advanced(
    summary: Summary, rows: Array, weights: Array, settings: StreamSettings, block: Block | None = None
) -> Summary:
    """Search for atoms if that is due, then record a block (B, d).

    `block` is what `Summary.prepared` made of the same rows, possibly before the atoms changed.

    Notes
    -----
    O(B m (d + m)), and O(n m (d + m)) more for a search with n rows in the selection sample; O(B^2 (d + m)) while the
    budget is not used up.
    """
    summary, block = _met(shrunk(summary, settings.max_atoms), rows, weights, settings.half_life, block)
    if block is None:
        return summary
    times = summary.arrival_times(rows)
    sample = summary.selection_sample.add(rows, block.weights, summary.n_rows, times[1])
    variation = _variation(summary, block)
    summary = replace(_watched(summary, block, settings.tolerance, variation), selection_sample=sample)
    tolerated = settings.tolerance * variation
    # With zero tolerance every independent row is admitted, even if its residual is tiny beside the block's energy.
    if settings.tolerance > 0.0 and block.unexplained <= tolerated:
        return summary.recorded(block, times[0])
    moves_atoms = settings.moves_atoms and can_move(summary.basis.kernel)
    pace = MOVING_PACE if moves_atoms else ROWS_PACE
    if settings.max_atoms is None:
        return searched(summary, block, None, tolerated, moves_atoms=False).recorded(block, times[0])
    if not summary.schedule.is_due(block, summary.n_rows, pace):
        skipped = replace(summary, schedule=summary.schedule.skipped(block, summary.n_rows))
        return skipped.recorded(block, times[0])
    before = summary.basis.size
    summary = searched(summary, block, settings.max_atoms, tolerated, moves_atoms=moves_atoms)
    found = block if block.is_current_for(summary.basis) else Block(summary.basis, block.rows, block.weights)
    summary = summary.recorded(found, times[0])
    if moves_atoms:
        summary = moved(summary)
        pace = _pace_of_moves(summary, settings.half_life, len(rows))
    _, spread = mean_and_spread(np.maximum(block.projected().residual, 0.0), block.weights)
    # How much rows usually leave must be known after the search: before it, a drift would pass as usual.
    usual = usual_residual(summary, moves_atoms=moves_atoms)
    usual = usual if moves_atoms else max(usual, found.mean_residual)
    # While blocks fill the budget, each is searched.
    has_room = before < summary.basis.size < settings.max_atoms
    return replace(summary, schedule=summary.schedule.searched(summary.n_rows, usual, spread, pace, again=has_room))


def recorded(summary: Summary, rows: Array, weights: Array, half_life: float | None) -> Summary:
    """Record a block (B, d) of weights (B,) without searching for atoms."""
    later = summary.decayed(decayed_weights(weights, half_life)[0])
    if not weights.any():
        return replace(later, n_rows=later.n_rows + len(rows))
    later = later.meeting(rows, weights)
    return later.recorded(later.prepared(rows, weights, half_life), later.arrival_times(rows)[0])


def totals_after(summary: Summary, rows: Array, weights: Array, half_life: float | None) -> tuple[RowSums, Reservoir]:
    """Return the totals and the reservoir as they would be after a block; O(B d).

    This is all that certificates need of pending rows: it compares no rows and searches for no atoms.
    """
    later = summary.decayed(decayed_weights(weights, half_life)[0])
    if not weights.any():
        return later.record.totals, later.reservoir
    rows, weights = countable(rows, weights), decayed_weights(weights, half_life)[1]
    basis = later.meeting(rows, weights).basis
    sums = Block(Basis.empty(basis.kernel, rows.shape[1], basis.distribution), rows, weights).sums
    reservoir = later.reservoir.add(rows, weights, later.n_rows, later.arrival_times(rows)[0])
    return later.record.totals.plus(sums), reservoir


def n_prefetchable(summary: Summary, max_atoms: int | None) -> int:
    """Return for how many blocks, the next one included, the atoms will probably stay the same."""
    if max_atoms is not None:
        return summary.schedule.countdown
    # Without a budget, any block that is not explained brings atoms; recent sums show that the last one did not.
    return _MOST_PREFETCHED if summary.record.recent else 0


def _met(
    summary: Summary, rows: Array, weights: Array, half_life: float | None, block: Block | None
) -> tuple[Summary, Block | None]:
    """Let the rows so far decay, and compare the new ones with the atoms; no block if none of them weighs anything."""
    summary = summary.decayed(decayed_weights(weights, half_life)[0])
    if weights.any():
        summary = summary.meeting(rows, weights).with_distribution_renewed(if_due=True)
        if block is None or not block.is_current_for(summary.basis):
            block = summary.prepared(rows, weights, half_life)
        # The half-life may be so short that all rows but the newest, of weight zero, have faded.
        if block.weights.any():
            return summary, block
    return replace(summary, n_rows=summary.n_rows + len(rows)), None


def _variation(summary: Summary, block: Block) -> float:
    """Return the part of a block's energy that tolerances refer to: its variation around the stream's mean.

    It is the block's weight times the variance of the stream's rows, this block included, but no more than the energy
    of the block, so that the share of the stream's energy that is lost never exceeds the tolerance. Where a kernel is
    wide, most of the energy is that of the mean.
    """
    basis, energy, weight = summary.basis, block.sums.energy, summary.total_weight + block.sums.total_weight
    if basis.size:
        first = basis.inverse @ block.sums.first if basis.is_well_conditioned else block.sums.first
        first = summary.record.first(basis) + first
        total_energy, mean_energy = summary.record.energy + energy, float(first @ first) / weight
    else:
        # Rows before the first atom have no energy.
        total_energy = energy
        mean_energy = _weighted_sum(basis.kernel, basis.completed(block.rows), block.weights) / weight
    variation = max(total_energy - mean_energy, _LEAST_VARIANCE_SHARE * abs(total_energy)) / weight
    return min(variation * block.sums.total_weight, abs(energy))


def _watched(summary: Summary, block: Block, tolerance: float, variation: float) -> Summary:
    """Test for a drift; if one is signalled, the schedule searches at once."""
    if not summary.basis.size or variation == 0.0:
        return summary
    # Changes below the tolerance are no drift.
    share = max(block.unexplained, 0.0) / variation
    error = summary.schedule.standard_error(block) * block.sums.total_weight / variation
    trend = summary.trend.observe(max(share, tolerance), error)
    if not (trend.signalled and trend.n_blocks == 1):
        return replace(summary, trend=trend)
    # The sample changes no faster than rows are forgotten, so searches of it need not be much closer together. With a
    # half-life, half of the rows that count weigh as much as the whole stream.
    schedule = summary.schedule.reset_after_drift(int(_n_counting(summary) / 2.0 / len(block.rows)))
    return replace(summary, trend=trend, schedule=schedule, last_drift=summary.n_rows + len(block.rows))


def _pace_of_moves(summary: Summary, half_life: float | None, block_size: int) -> Pace:
    pace = SETTLED_PACE if summary.selection_sample.is_full else MOVING_PACE
    if half_life is None:
        return pace
    # Atoms of rows that are forgotten have to be replaced, although nothing is explained worse.
    return pace._replace(usual=min(pace.usual, _n_counting(summary) / block_size / (summary.schedule.n_blocks + 1)))


def _n_counting(summary: Summary) -> float:
    return summary.record.n_effective or float(summary.n_rows)


def _weighted_sum(kernel: Kernel, rows: Array, weights: Array) -> float:
    """Return sum_ij a_i a_j k(x_i, x_j) over rows (B, d) of weights (B,), of many rows in parts."""
    if len(rows) <= MOST_FILLING:
        return float(weights @ kernel.program.gram(rows) @ weights)
    parts = [slice(start, start + _CHUNK) for start in range(0, len(rows), _CHUNK)]
    total = 0.0
    for number, part in enumerate(parts):
        total += float(weights[part] @ kernel.program.gram(rows[part]) @ weights[part])
        # Both sides in parts: a part against all rows would be the largest matrix of the whole search.
        for other in parts[:number]:
            total += 2.0 * float(weights[part] @ kernel.program.matrix(rows[part], rows[other]) @ weights[other])
    return total
