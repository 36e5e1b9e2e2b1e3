"""The step from one summary to the next, by a block of rows, and the search for better atoms on the way."""

from dataclasses import replace
from functools import reduce

import numpy as np

from streamkpca._core.arrays import Array, Positions
from streamkpca._core.concurrency import replace_fields
from streamkpca._core.reservoir import Reservoir
from streamkpca.dictionary.basis import Basis
from streamkpca.dictionary.moments import RecordedMoments, RowSums
from streamkpca.dictionary.moving import move_basis
from streamkpca.dictionary.selection import choose_rows, choose_to_shrink
from streamkpca.dictionary.swaps import MOST_CANDIDATES, SCREENING_ROWS, SwapSearch
from streamkpca.rows.gaps import gaps_in
from streamkpca.stream.parameters import Settings
from streamkpca.stream.schedule import (
    MOVING_INTERVAL,
    ROWS_INTERVAL,
    SETTLED_INTERVAL,
    Block,
    SearchInterval,
    spread_of,
)
from streamkpca.stream.summary import Summary, countable, decay_weights

# Rows compared with a basis, or with each other, at a time.
_CHUNK = 1024

# Tolerances refer to the variance, but to no less than this share of the energy: below it, variances are rounding.
_LEAST_VARIANCE_SHARE = 1e-9

# Most rounds of swaps in one search.
_MOST_ROUNDS = 10
# A search goes on while a round gains this share of the mean residual, as in the first blocks after a drift.
_WORTH_ANOTHER_ROUND = 0.03

# Atoms move once there are this many sampled rows for each. Moves decided by 1.5 rows for each atom left 4% less of
# other rows unexplained than the rows that the atoms began as, by 4 rows 14% less, by 8 rows 18%.
_LEAST_ROWS_TO_MOVE = 4
# Evaluations in a move of a kernel of squared distances; with 3, drifting rows and digits were explained 5% worse.
_N_EVALUATIONS = 4
# Sampled rows for each atom that decide a move. With 32, moves left 2% to 3% less and took twice the time.
_MOVING_SAMPLE = 16
# Sampled rows for each atom that judge a swap before a move.
_SWAPPING_SAMPLE = 4
# Candidates of that swap.
_MOVING_CANDIDATES = 512
# The sample judges which atoms to remove, and swaps, while it stands for this share of all rows. Rows that devices have
# learned are not in it.
_LEAST_SAMPLED_SHARE = 0.5
# How many rows to come, for each row so far, must regain the recorded moments that a move loses. With 1, nearly all
# moves were refused in streams whose regimes change, and with 4 little more was gained.
_HORIZON = 2.0
# After m atoms moved for n rows, later rows leave up to 1 + this m / n times as much unexplained as these.
_OPTIMISM = 2.5


def advance_block(summary: Summary, rows: Array, weights: Array, settings: Settings) -> Summary:
    """Let rows decay, test for a drift, search a block (B, d) for atoms if that is due, and record it.

    O(B m (d + m)), and with n sampled rows O(n m (d + m)) more for a search.
    """
    summary, counting, aged = _decay_and_mask(shrink(summary, settings.max_atoms), rows, weights, settings.half_life)
    if not aged.any():
        return replace(summary, n_rows=summary.n_rows + len(rows))
    summary = summary.with_distribution_renewed(if_due=True)
    block = Block(summary.basis, counting, aged)
    times = summary.arrival_times(rows)
    sample = summary.selection_sample.add(rows, block.weights, summary.n_rows, times[1])
    variation = _variation(summary, block)
    summary = replace_fields(_watch_drift(summary, block, settings.tolerance, variation), selection_sample=sample)
    tolerated = settings.tolerance * variation
    # With zero tolerance every independent row is admitted, even if its residual is tiny beside the block's energy.
    if settings.tolerance > 0.0 and block.unexplained <= tolerated:
        return summary.record_block(block, times[0])
    if settings.max_atoms is None:
        return search_block(summary, block, None, tolerated, moves_atoms=False).record_block(block, times[0])
    moves_atoms = settings.moves_atoms and summary.basis.kernel.is_positive_definite
    if summary.schedule.is_due(block, summary.n_rows, MOVING_INTERVAL if moves_atoms else ROWS_INTERVAL):
        return _renew_atoms(summary, block, times[0], settings, tolerated, moves_atoms=moves_atoms)
    skipped = replace_fields(summary, schedule=summary.schedule.record_skip(block, summary.n_rows))
    return skipped.record_block(block, times[0])


def _renew_atoms(
    summary: Summary, block: Block, times: Array, settings: Settings, tolerated: float, *, moves_atoms: bool
) -> Summary:
    """Search a block for atoms within the budget, record it, let atoms move, and plan the next search."""
    assert settings.max_atoms is not None
    before, fades, interval = summary.basis.size, settings.half_life is not None, ROWS_INTERVAL
    summary = search_block(summary, block, settings.max_atoms, tolerated, moves_atoms=moves_atoms, fades=fades)
    found = block if block.is_current_for(summary.basis) else Block(summary.basis, block.rows, block.weights)
    summary = summary.record_block(found, times)
    if moves_atoms:
        summary = move_atoms(summary)
        interval = _find_move_interval(summary, settings.half_life, len(block.rows))
    spread = spread_of(np.maximum(block.project().residual, 0.0), block.weights)
    # How much rows usually leave must be known after the search: before it, a drift would pass as usual.
    usual = usual_residual(summary, moves_atoms=moves_atoms)
    usual = usual if moves_atoms else max(usual, found.mean_residual)
    # While blocks fill the budget, each is searched.
    has_room = before < summary.basis.size < settings.max_atoms
    schedule = summary.schedule.record_search(summary.n_rows, usual, spread, interval, again=has_room)
    return replace(summary, schedule=schedule)


def record_block(summary: Summary, rows: Array, weights: Array, half_life: float | None) -> Summary:
    """Record a block (B, d) of weights (B,) without searching for atoms."""
    later, counting, aged = _decay_and_mask(summary, rows, weights, half_life)
    if not aged.any():
        return replace(later, n_rows=later.n_rows + len(rows))
    return later.record_block(Block(later.basis, counting, aged), later.arrival_times(rows)[0])


def totals_after(summary: Summary, rows: Array, weights: Array, half_life: float | None) -> tuple[RowSums, Reservoir]:
    """Return the totals and the reservoir as they would be after a block, for certificates; O(B d)."""
    later, counting, aged = _decay_and_mask(summary, rows, weights, half_life)
    totals, basis = later.record.totals, later.basis
    if not aged.any():
        return totals, later.reservoir
    sums = Block(Basis.empty(basis.kernel, rows.shape[1], basis.distribution), counting, aged).sums
    return totals.plus(sums), later.reservoir.add(counting, aged, later.n_rows, later.arrival_times(rows)[0])


def _decay_and_mask(
    summary: Summary, rows: Array, weights: Array, half_life: float | None
) -> tuple[Summary, Array, Array]:
    """Let the rows so far decay; return also the rows (B, d) and weights (B,) that a block is made of.

    All weights may be zero then: a half-life may be so short that all rows but the newest have faded.
    """
    decay, aged = decay_weights(weights, half_life)
    summary = summary.decay(decay)
    if not aged.any():
        return summary, rows, aged
    return summary.begin_distribution(rows, weights), countable(rows, weights), aged


def _variation(summary: Summary, block: Block) -> float:
    """Return the part of a block's energy that tolerances refer to: its weight times the variance of all rows so far.

    It is no more than the energy of the block, so the lost share of the stream's energy never exceeds the tolerance.
    """
    basis, energy, weight = summary.basis, block.sums.energy, summary.total_weight + block.sums.total_weight
    if basis.size:
        first = summary.record.first_with(block.sums, basis)
        total_energy, mean_energy = summary.record.energy + energy, float(first @ first) / weight
    else:
        # Rows before the first atom have no energy.
        total_energy = energy
        products = basis.kernel.program.gram(basis.complete(block.rows))
        mean_energy = float(block.weights @ products @ block.weights) / weight
    variation = max(total_energy - mean_energy, _LEAST_VARIANCE_SHARE * abs(total_energy)) / weight
    return min(variation * block.sums.total_weight, abs(energy))


def _watch_drift(summary: Summary, block: Block, tolerance: float, variation: float) -> Summary:
    """Test for a drift; if one is signalled, the schedule searches at once."""
    if not summary.basis.size or variation == 0.0:
        return summary
    # Changes below the tolerance are no drift.
    error = summary.schedule.standard_error(block) * block.sums.total_weight / variation
    trend = summary.trend.observe(max(block.unexplained / variation, tolerance), error)
    if not (trend.signalled and trend.n_blocks == 1):
        return replace_fields(summary, trend=trend)
    # The sample changes no faster than rows are forgotten, so searches need not follow each other much more closely
    # than half of the effective number of rows.
    schedule = summary.schedule.reset_after_drift(block, int(_n_counting(summary) / 2.0 / len(block.rows)))
    return replace(summary, trend=trend, schedule=schedule, last_drift=summary.n_rows + len(block.rows))


def _find_move_interval(summary: Summary, half_life: float | None, block_size: int) -> SearchInterval:
    interval = SETTLED_INTERVAL if summary.selection_sample.is_full else MOVING_INTERVAL
    if half_life is None:
        return interval
    # Atoms of rows that are forgotten have to be replaced, although nothing is explained worse.
    return interval._replace(
        usual=min(interval.usual, _n_counting(summary) / block_size / (summary.schedule.n_blocks + 1))
    )


def _n_counting(summary: Summary) -> float:
    return summary.record.n_effective or float(summary.n_rows)


def search_block(
    summary: Summary, block: Block, max_atoms: int | None, tolerated: float, *, moves_atoms: bool, fades: bool = False
) -> Summary:
    """Search a block for atoms; it may leave the energy `tolerated` unexplained. The weight of rows may fade."""
    # Sorted once and kept, as a sorted copy for each query would need memory for both.
    summary = replace(summary.solve(), selection_sample=summary.selection_sample.sort())
    fills = max_atoms is None or summary.basis.size < max_atoms
    if fills:
        summary = _fill_budget(summary, block, max_atoms, tolerated)
    # Atoms that move follow their rows. A swap brings one to rows that none is near, which shows: blocks are explained
    # worse, unless few rows tell what is usual. Or it takes one from rows that have faded. Otherwise, and right after
    # the choice of atoms among the same rows, it finds little that a move does not.
    has_few = len(summary.selection_sample) < _MOVING_SAMPLE * summary.basis.size
    swaps = not moves_atoms or (not fills and (fades or has_few or summary.schedule.is_worse(block)))
    if summary.basis.size == max_atoms and swaps and summary.sampled_share >= _LEAST_SAMPLED_SHARE:
        summary = _swap_atoms(summary, block, moves_atoms=moves_atoms)
    return summary


def usual_residual(summary: Summary, *, moves_atoms: bool) -> float:
    """Estimate the mean residual of rows to come from a part of the selection sample, O(m (d + m))."""
    sample = summary.selection_sample.first(SCREENING_ROWS)
    residual = np.maximum(summary.basis.project(sample.rows).residual, 0.0)
    usual = float(sample.normalised_weights() @ residual)
    return usual * (1.0 + _OPTIMISM * summary.basis.size / len(summary.selection_sample)) if moves_atoms else usual


def shrink(summary: Summary, max_atoms: int | None) -> Summary:
    """Remove the weakest atoms until at most `max_atoms` are left."""
    if max_atoms is None or summary.basis.size <= max_atoms:
        return summary
    summary = replace(summary, selection_sample=summary.selection_sample.sort())
    basis, stats = summary.basis, summary.atom_stats
    sample = summary.selection_sample.map(basis.complete)
    moments = summary.moments if summary.sampled_share < _LEAST_SAMPLED_SHARE else None
    choice = choose_to_shrink(basis, stats, sample, max_atoms, total_weight=summary.total_weight, moments=moments)
    return summary.apply_choice(choice, basis.atoms[:0], stats.positions[:0], np.empty(0))


def move_atoms(summary: Summary, *, decided_by_all: bool = False) -> Summary:
    """Move the atoms to where they leave less unexplained, if that outweighs what they lose of what is recorded.

    While the selection sample holds all rows, they are recorded anew, and nothing is lost. Later twice as many rows to
    come must regain what the recorded moments lose. Sampled rows that did not decide where the atoms move judge that;
    with `decided_by_all`, there are none. O(n m (m + d)) for each evaluation on n rows.
    """
    basis, sample = summary.basis, summary.selection_sample.sort()
    if not (basis.size and basis.kernel.is_positive_definite and len(sample) >= _LEAST_ROWS_TO_MOVE * basis.size):
        return summary
    before, holds_all = summary.moments, summary.samples_all_rows
    stays = replace(summary, selection_sample=sample, record=RecordedMoments(before))
    rows, weights = sample.rows, sample.inclusion_weights()
    # A small sample, which rows of any order and offset are in, decides as a whole.
    n_most = max(_MOVING_SAMPLE * basis.size, SCREENING_ROWS) if holds_all else _MOVING_SAMPLE * basis.size
    n_most = len(rows) if decided_by_all else min(n_most, len(rows) if holds_all else len(rows) // 2)
    there, kept, has_moved = move_basis(basis, rows[:n_most], weights[:n_most], n_evaluations=_N_EVALUATIONS)
    # The same rows judge both; where all are recorded anew, those that come first.
    judging = slice(_CHUNK) if holds_all else slice(n_most, n_most + _CHUNK)
    old, new = (Block(either, rows[judging], weights[judging]) for either in (basis, there))
    gained = (old.unexplained - new.unexplained) / weights[judging].sum() * before.total_weight
    if (share := summary.sampled_share) < _LEAST_SAMPLED_SHARE:
        gained *= share
    if holds_all:
        if not gained > 0.0:
            there, kept, has_moved, new = basis, np.arange(basis.size), np.zeros(basis.size, dtype=bool), old
        moments = before.record_anew(_sums_of(there, new, rows, weights), there.rounding_amplification)
    elif not has_moved.any():
        return stays
    else:
        amplification = basis.rounding_amplification + there.rounding_amplification
        moments = before.reproject(basis.vectors_in(there), amplification)
        lost = moments.losses.by_removal - before.losses.by_removal
        if not _HORIZON * gained > lost:
            return stays
    stats = summary.atom_stats.move(kept, has_moved)
    if holds_all:
        stats = replace(stats, weight_since_admission=np.full(there.size, before.total_weight))
    return replace(stays, basis=there, record=RecordedMoments(moments), atom_stats=stats)


def _fill_budget(summary: Summary, block: Block, max_atoms: int | None, tolerated: float) -> Summary:
    """Admit rows of the block, until it is explained or the budget is used up; rows with gaps are completed.

    Before the first atom, rows without gaps come first: expected numbers may be far from all rows.
    """
    positions = _as_completed(block.rows, summary.n_rows + np.arange(len(block.rows)), summary.basis)
    has_gaps = positions < 0
    if not has_gaps.any():
        return _admit_rows(summary, block, positions, max_atoms, tolerated)
    weights = np.where(has_gaps, 0.0, block.weights)
    if not summary.basis.size and weights.any():
        whole = Block(summary.basis, countable(block.rows, weights), weights)
        share = whole.sums.total_weight / block.sums.total_weight
        summary = _admit_rows(summary, whole, positions, max_atoms, tolerated * share)
    if summary.basis.size == max_atoms:
        return summary
    block = Block(summary.basis, summary.basis.complete(block.rows), block.weights)
    return _admit_rows(summary, block, positions, max_atoms, tolerated)


def _admit_rows(
    summary: Summary, block: Block, positions: Positions, max_atoms: int | None, tolerated: float
) -> Summary:
    """Admit rows of a block without gaps, at positions (B,), until it is explained or the budget is used up."""
    weight = summary.total_weight + block.sums.total_weight
    choice = choose_rows(
        summary.basis, block.project(), block.weights, tolerated=tolerated, max_atoms=max_atoms, total_weight=weight
    )
    return summary.apply_choice(choice, block.rows, positions, block.weights)


def _swap_atoms(summary: Summary, block: Block, *, moves_atoms: bool) -> Summary:
    """Let rows sampled since the last search replace atoms; a coarser search is enough for atoms that move."""
    total_weight = summary.total_weight + block.sums.total_weight
    sample, n_rounds, usual_weight = summary.selection_sample, _MOST_ROUNDS, 0.0
    candidates = sample.since(summary.schedule.n_rows_searched).at(slice(MOST_CANDIDATES))
    if moves_atoms:
        # An outlier that explains nothing but itself must not hold an atom, which cannot move away from it either.
        usual_weight = float(sample.weights.mean())
        sample, n_rounds = sample.first(max(_SWAPPING_SAMPLE * summary.basis.size, SCREENING_ROWS)), 1
        candidates = candidates.at(slice(_MOVING_CANDIDATES))
    for _ in range(n_rounds):
        basis = summary.basis
        # In the present basis, as the atoms that complete a row may be gone in the next round.
        whole, ready = sample.map(basis.complete), candidates.map(basis.complete)
        search = SwapSearch(basis, summary.atom_stats, summary.moments, whole, total_weight, usual_weight)
        choice, promising = search.choose(ready)
        if not choice:
            break
        positions = _as_completed(candidates.rows, candidates.positions, basis)
        summary = summary.apply_choice(choice, ready.rows, positions, candidates.weights)
        if choice.profit <= _WORTH_ANOTHER_ROUND * block.mean_residual:
            break
        # As they came, since the next round may complete them otherwise.
        order = np.argsort(candidates.positions)
        candidates = candidates.at(order[np.searchsorted(candidates.positions[order], promising.positions)])
    return summary


def _as_completed(rows: Array, positions: Positions, basis: Basis) -> Positions:
    """Mark the positions (n,) of rows (n, d) with gaps: atoms of these are no rows of the stream."""
    missing = None if basis.distribution is None else gaps_in(rows)
    return positions if missing is None else np.where(missing.any(axis=1), ~positions, positions)


def _sums_of(basis: Basis, first: Block, rows: Array, weights: Array) -> RowSums:
    """Return the sums over rows (n, d) of weights (n,), in coordinates, given the block of the first ones."""
    parts = [slice(start, start + _CHUNK) for start in range(_CHUNK, len(rows), _CHUNK)]
    sums = reduce(RowSums.plus, (Block(basis, rows[part], weights[part]).sums for part in parts), first.sums)
    return sums.solve(basis.inverse) if basis.is_well_conditioned else sums
