"""Functions that make the next state of a stream: advance, fit, refit, forget, merge.

They return new states and change none, so a call that is refused or fails changes nothing.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca._core.concurrency import replace_fields
from streamkpca._core.linalg import one_blas_thread
from streamkpca._core.parameters import check_integer, check_real
from streamkpca._core.reservoir import Reservoir, arrival_times
from streamkpca.dictionary.moments import RecordedMoments
from streamkpca.errors import name_errors
from streamkpca.kernels import Kernel
from streamkpca.rows.parts import Rows
from streamkpca.rows.validation import LARGEST_WEIGHT, as_sample_weight
from streamkpca.stream.parameters import Settings
from streamkpca.stream.state import (
    RowBuffer,
    State,
    axes,
    begin_summary,
    check_continued,
    check_kernel_range,
    check_mergeable,
    check_range,
    check_rows,
    publish_axes,
    record_pending,
    settle_kernel,
)
from streamkpca.stream.step import advance_block, move_atoms, record_block, shrink
from streamkpca.stream.summary import (
    LEAST_DECAYED_WEIGHT,
    LEAST_TOTAL_WEIGHT,
    Summary,
    clamp_decay,
    decay_weights,
)

# Rows between two refits for each atom: a refit of m atoms takes as long as recording 10 m rows.
_ROWS_PER_ATOM = 128
# Atoms that are counted at least: a refit of few takes as long as recording 1,300 rows.
_LEAST_ATOMS = 128

# While a stream is shorter, the scale of the kernel is settled again whenever its rows have doubled. The first 512 rows
# of servers and plants showed 10% to 60% of the spread of later ones; from 4,096 rows on it was right to a half.
ROWS_TO_SETTLE: Final = 4096

# `fit` settles the scale on this many numbers (8 MiB) of the rows.
_NUMBERS_TO_SETTLE = 2**20
# Least rows that it settles the scale on.
_LEAST_TO_SETTLE = 2048
# Neighbours that are taken together: evenly spaced rows could all have the same time of day.
_RUN = 64


@name_errors
def advance(state: State, rows: Rows, weights: Array | float, settings: Settings, *, n_rejected: int = 0) -> State:
    """Return the state after the next rows: every full block advances the summary, and refits the axes if that is due.

    Parameters
    ----------
    state : State
    rows : ndarray of shape (n, d) of float64
        In C order; NaN stands for a gap where the state has them.
    weights : ndarray of shape (n,), or float
        0 for rows that only keep their place.
    settings : Settings
    n_rejected : int
        How many of the rows were left out.

    Raises
    ------
    TypeError, ValueError
        Rows, weights or their number are not such arrays or numbers, rows are outside the range of the kernel, or the
        stream began with other settings.

    Examples
    --------
    >>> from streamkpca.stream import Settings, State, advance
    >>> settings = Settings.make(n_components=1, kernel="linear")
    >>> state = advance(State.begin(settings, 2), np.array([[1.0, 2.0], [3.0, 4.0]]), 0.5, settings)
    >>> state.pending.weights
    array([0.5, 0.5])
    """
    check_rows(state, rows)
    check_continued(state, settings)
    n_rejected = check_integer("n_rejected", n_rejected, least=0, most=len(rows))
    return with_rows(state, rows, _check_weights(weights, len(rows)), settings, n_rejected)


def with_rows(state: State, rows: Rows, weights: Array | float, settings: Settings, n_rejected: int) -> State:
    """Learn as `advance` does, from rows and weights that are already checked."""
    check_range(state, rows, weights)
    if not n_rejected and state.pending.n_rows + len(rows) < state.block_size:
        return replace_fields(state, pending=state.pending.join(rows[:], weights))
    with one_blas_thread():
        state = replace_fields(state, n_rejected=state.n_rejected + n_rejected)
        return _advance_or_restart(state, rows, _one_for_each(weights, len(rows)), settings, publish=True)


@name_errors
def fit(state: State, rows: Rows, weights: Array | float, settings: Settings, *, n_rejected: int = 0) -> State:
    """Return the state after two passes over the first rows: one chooses atoms, from a sample, the other records.

    Its axes are published.

    Parameters
    ----------
    state : State
        Without rows.
    rows, weights, settings, n_rejected
        As for `advance`.

    Raises
    ------
    TypeError, ValueError
        As `advance`, or the state has seen rows.

    Examples
    --------
    >>> from streamkpca.stream import Settings, State, fit
    >>> settings = Settings.make(n_components=1, kernel="linear")
    >>> fit(State.begin(settings, 1), np.array([[1.0], [2.0], [6.0]]), 1.0, settings).published.eigenvalues
    array([7.])
    """
    check_rows(state, rows)
    check_continued(state, settings)
    n_rejected = check_integer("n_rejected", n_rejected, least=0, most=len(rows))
    if state.n_rows:
        raise ValueError(f"expected a state that has seen no rows but got one of {state.n_rows}; advance adds rows")
    weights = _one_for_each(_check_weights(weights, len(rows)), len(rows))
    if not weights.any():
        raise ValueError(
            f"none of the {len(rows)} rows can be used: each was left out, or has a weight of zero; pass at least one "
            "finite row of positive weight"
        )
    with one_blas_thread():
        check_range(state, rows, weights)
        # A row of the first pass is followed by all others, so the scale is settled on rows from all over.
        kernel = settle_kernel(state, *_spread_rows(rows, weights))
        check_kernel_range(kernel, rows, weights, gaps=state.has_gaps)
        state = replace_fields(state, n_rejected=n_rejected, settling=None)
        if settings.max_atoms is None:
            chosen = _advance_all(state, rows, weights, settings, kernel).summary
        else:
            chosen = _choose_from_sample(state, rows, weights, settings, kernel)
        assert chosen is not None
        summary, sample = chosen.reset_counts(), chosen.selection_sample
        for start in range(0, len(rows), settings.block_size):
            block = slice(start, start + settings.block_size)
            summary = record_block(summary, rows[block], np.ascontiguousarray(weights[block]), settings.half_life)
        # The first pass has aged these already, unless all rows have faded to nothing; the second aged them again.
        sampled, total = float(sample.weights.sum()), summary.total_weight
        # A part of the rows cannot weigh more than all of them, but for rounding.
        if sampled > 2.0 * total:
            sample = sample.decay(total / sampled) if total > 0.0 else sample.drop_rows()
        stats = replace(summary.atom_stats, weights=np.minimum(chosen.atom_stats.weights, total))
        summary = replace(summary, selection_sample=sample, atom_stats=stats).with_distribution_renewed()
        return publish_axes(replace_fields(state, pending=_empty_buffer(state), summary=summary), settings)


def refit(state: State, settings: Settings) -> State:
    """Return the state with axes of all rows published, outside the schedule of refits and without changing it.

    Parameters
    ----------
    state : State
    settings : Settings

    Examples
    --------
    >>> from streamkpca.stream import Settings, State, advance, refit
    >>> settings = Settings.make(n_components=1, kernel="linear")
    >>> state = advance(State.begin(settings, 1), np.array([[1.0], [2.0], [6.0]]), 1.0, settings)
    >>> state.published is None, refit(state, settings).published.total_weight
    (True, 3.0)
    """
    return replace_fields(state, published=axes(state, settings))


@name_errors
def forget(state: State, factor: float) -> State:
    """Return the state with the weights of all rows multiplied by a factor.

    Parameters
    ----------
    state : State
    factor : float
        From 0 to 1; anything else is refused by TypeError or ValueError.

    Examples
    --------
    >>> from streamkpca.stream import Settings, State, advance, forget
    >>> settings = Settings.make(n_components=1, kernel="linear")
    >>> state = advance(State.begin(settings, 1), np.array([[1.0], [2.0]]), 1.0, settings)
    >>> forget(state, 0.25).pending.weights
    array([0.25, 0.25])
    """
    factor = check_real("factor", factor, least=0.0, most=1.0)
    total_weight = (state.summary.total_weight if state.summary else 0.0) + float(state.pending.weights.sum())
    factor = clamp_decay(factor, total_weight, LEAST_TOTAL_WEIGHT)
    return replace_fields(
        state,
        summary=state.summary.decay(factor) if state.summary else None,
        pending=state.pending.decay(factor),
        # A row that counted once stays one, or the stream would begin later when it is learned anew.
        settling=None if state.settling is None else state.settling.decay(factor, least=LEAST_DECAYED_WEIGHT),
    )


def without_rows(state: State, settings: Settings) -> State:
    """Return a state of no rows, whose kernel is settled, that begins with the atoms of this one."""
    begun = replace(settings, kernel=state.settled_kernel, random_state=state.seed)
    empty = State.begin(begun, state.n_features, state.names)
    if state.summary is None:
        return empty
    with one_blas_thread():
        return replace_fields(empty, summary=record_pending(state, settings).without_rows())


@name_errors
def merge(own: State | None, others: Iterable[tuple[State, Settings]], settings: Settings) -> State | None:
    """Return the union of the states of several streams, its axes published; None if none has seen a row.

    Rows of a state are numbered after those of the states before it. All streams end at the union: with a half-life,
    the newest row of each has its full weight.

    Parameters
    ----------
    own : State or None
    others : iterable of (State, Settings)
    settings : Settings
        Those of the union.

    Raises
    ------
    ValueError
        States have other features, another half-life or kernel.

    Examples
    --------
    >>> from streamkpca.stream import Settings, State, advance, merge
    >>> settings = Settings.make(n_components=1, kernel="linear")
    >>> parts = [advance(State.begin(settings, 1), np.array(x), 1.0, settings) for x in ([[1.0]], [[2.0], [6.0]])]
    >>> merge(parts[0], [(parts[1], settings)], settings).published.eigenvalues
    array([7.])
    """
    union = own
    with one_blas_thread():
        for other, other_settings in others:
            if union is None:
                union = State.begin(replace(settings, kernel=other.kernel), other.n_features, other.names)
            check_continued(union, settings)
            check_mergeable(union, other, settings, other_settings)
            union = _merge_pair(union, other, settings, other_settings)
        return None if union is None else publish_axes(union, settings)


def _merge_pair(own: State, other: State, settings: Settings, other_settings: Settings) -> State:
    """Add another stream, including its pending rows."""
    own = replace_fields(own, n_rejected=own.n_rejected + other.n_rejected)
    if own.summary is None and other.summary is None and not own.kernel.is_settled:
        # The kernel's scale is not settled yet, so the other stream is nothing but rows. Those counted before its first
        # row of positive weight are counted here too, and so come before the pending rows.
        own = replace_fields(own, n_rows_before=own.n_rows_before + other.n_rows_before)
        check_range(own, other.pending.rows, other.pending.weights)
        return _advance_or_restart(own, other.pending.rows, other.pending.weights, settings, publish=False)
    kernel = (own if own.summary else other).settled_kernel
    union = record_pending(own, settings, kernel).merge(record_pending(other, other_settings, kernel))
    if settings.max_atoms is not None and union.basis.size > settings.max_atoms:
        union = shrink(union, settings.max_atoms)
        if settings.moves_atoms:
            union = move_atoms(union)
    return replace_fields(own, summary=union, pending=_empty_buffer(own), settling=None)


class BlockCutter:
    """Pending rows and new ones, (n, d) and (n,), cut into `n_blocks` full blocks and a rest, mostly views."""

    def __init__(self, pending: RowBuffer, rows: Rows, weights: Array, block_size: int) -> None:
        self.n_blocks = (pending.n_rows + len(rows)) // block_size
        self._rows, self._weights, self._size = rows, weights, block_size
        self._n_missing = block_size - pending.n_rows
        self._first = rows[: self._n_missing], np.ascontiguousarray(weights[: self._n_missing])
        if pending.n_rows:
            self._first = (
                np.concatenate([pending.rows, self._first[0]]),
                np.concatenate([pending.weights, self._first[1]]),
            )

    def block(self, number: int) -> tuple[Array, Array]:
        """Return the rows and weights of a block; those of number `n_blocks` are the rest."""
        if number == 0:
            return self._first
        start = self._n_missing + (number - 1) * self._size
        piece = slice(start, start + self._size)
        return self._rows[piece], np.ascontiguousarray(self._weights[piece])


def _advance_or_restart(state: State, rows: Rows, weights: Array, settings: Settings, *, publish: bool) -> State:
    """Advance the summary by every full block, and keep the rest pending.

    Where the scale of the kernel changes, the stream is what it would be had it begun with that scale.
    """
    cutter, first = BlockCutter(state.pending, rows, weights, state.block_size), 0
    state = replace_fields(state, pending=_empty_buffer(state))
    if state.settling is not None:
        state, kernel, first = _settle_scale(state, cutter)
        known = state.settling
        assert known is not None
        if known.n_rows >= ROWS_TO_SETTLE:
            state = replace_fields(state, settling=None)
        if state.summary is not None and kernel != state.summary.basis.kernel:
            state = replace_fields(state, summary=None, scheduled=None, published=None, n_rows_at_refit=0)
        n_learned = 0 if state.summary is None else state.summary.n_rows - state.n_rows_before
        if known.n_rows > n_learned:
            rest = known.rows[n_learned:], known.weights[n_learned:]
            new = BlockCutter(RowBuffer.empty(state.n_features), *rest, state.block_size)
            state = _with_blocks(state, new, range(new.n_blocks), settings, kernel, publish=publish)
    state = _with_blocks(state, cutter, range(first, cutter.n_blocks), settings, publish=publish)
    return replace_fields(state, pending=state.pending.join(*cutter.block(cutter.n_blocks)))


def _settle_scale(state: State, cutter: BlockCutter) -> tuple[State, Kernel, int]:
    """Add the next blocks to the rows that settle the scale; return the state, the kernel and how many blocks they are.

    A kernel stays until another would be clearly wider or narrower, so that most streams are learned only once.
    """
    kernel, known, n_before = state.summary.basis.kernel if state.summary else None, state.settling, 0
    assert known is not None
    number = 0
    while number < cutter.n_blocks and known.n_rows < ROWS_TO_SETTLE:
        rows, weights = cutter.block(number)
        number += 1
        if not known.n_rows and not weights.any():
            n_before += len(rows)
            continue
        known = known.join(rows, weights)
        if known.n_rows >= ROWS_TO_SETTLE or (known.n_rows // state.block_size).bit_count() == 1:
            settled = settle_kernel(state, known.rows, known.weights)
            kernel = settled if kernel is None or not settled.is_near(kernel) else kernel
    state = replace_fields(state, settling=known, n_rows_before=state.n_rows_before + n_before)
    return state, kernel or state.kernel, number


def _with_blocks(
    state: State,
    cutter: BlockCutter,
    numbers: range,
    settings: Settings,
    kernel: Kernel | None = None,
    *,
    publish: bool,
) -> State:
    """Advance the summary by some blocks; before the first row of positive weight, blocks are only counted."""
    for number in numbers:
        rows, weights = cutter.block(number)
        if state.summary is None and not weights.any():
            state = replace_fields(state, n_rows_before=state.n_rows_before + len(rows))
            continue
        summary = advance_block(begin_summary(state, settings, kernel), rows, weights, settings)
        state = replace_fields(state, summary=summary)
        # While the stream is young, a growth by a half comes first.
        interval = min(refit_interval(settings, summary.basis.size), state.n_rows_at_refit / 2)
        if publish and state.n_rows - state.n_rows_at_refit >= interval:
            state = publish_axes(state, settings)
    return state


def _advance_all(state: State, rows: Rows, weights: Array, settings: Settings, kernel: Kernel) -> State:
    """Advance the summary by all rows, the last block being shorter; publish nothing."""
    cutter = BlockCutter(state.pending, rows, weights, state.block_size)
    state = replace_fields(state, pending=_empty_buffer(state))
    return _with_blocks(state, cutter, range(cutter.n_blocks + 1), settings, kernel, publish=False)


def _choose_from_sample(state: State, rows: Rows, weights: Array, settings: Settings, kernel: Kernel) -> Summary:
    """Make a summary without moments, of atoms that a sample of the rows chooses."""
    size, half_life = settings.block_size, settings.half_life
    blocks = [slice(start, start + size) for start in range(0, len(rows), size)]
    summary = begin_summary(state, settings, kernel)
    sample = summary.selection_sample
    if not any(_age_weights(weights, block, half_life).any() for block in reversed(blocks)):
        half_life = None
    for block in blocks:
        some = rows[block]
        times = arrival_times(state.seed, block.start, some, 2)[1]
        sample = sample.add(some, _age_weights(weights, block, half_life), block.start, times)
    sample = sample.sort()
    # An order that depends on nothing but the number of rows, as that of the draws depends on their contents.
    order = np.argsort(sample.positions)[np.random.default_rng(state.seed).permutation(len(sample))]
    chooser = replace(
        summary,
        selection_sample=Reservoir.empty(len(order) + 1, state.n_features),
        reservoir=Reservoir.empty(0, state.n_features),
    )
    begun = replace_fields(State.begin(replace(settings, kernel=kernel), state.n_features), summary=chooser)
    taken = sample.rows[order], sample.inclusion_weights()[order]
    chosen = _advance_all(begun, *taken, replace(settings, half_life=None), kernel).summary
    assert chosen is not None
    if settings.moves_atoms:
        # This move is the last one.
        chosen = move_atoms(chosen, decided_by_all=True)
    stats = chosen.atom_stats
    origins = order[stats.origins]
    positions = np.where(stats.positions < 0, ~sample.positions[origins], sample.positions[origins])
    return replace(
        summary,
        basis=chosen.basis,
        selection_sample=sample,
        column_sums=chosen.column_sums,
        atom_stats=replace(stats, positions=positions, weights=sample.weights[origins]),
        record=RecordedMoments.zero(chosen.basis.size),
    )


def refit_interval(settings: Settings, n_atoms: int) -> float:
    """Return how many rows may come between two refits: O(m^3) each, small beside O(m^2) for each row."""
    if not isinstance(settings.refit_every, str):
        return settings.refit_every
    rows = _ROWS_PER_ATOM * max(n_atoms, _LEAST_ATOMS)
    return rows if settings.half_life is None else min(rows, settings.half_life / 4.0)


def _empty_buffer(state: State) -> RowBuffer:
    return RowBuffer.empty(state.n_features)


def _check_weights(weights: Array | float, count: int) -> Array | float:
    """Return a weight for each row, or one for all if that is above 0."""
    if isinstance(weights, float) and 1.0 / LARGEST_WEIGHT <= weights <= LARGEST_WEIGHT:
        return float(weights)
    return as_sample_weight(weights, count, all_zero=True)


def _one_for_each(weights: Array | float, count: int) -> Array:
    """Return a weight for each row; one weight for all takes no memory."""
    return weights if isinstance(weights, np.ndarray) else np.broadcast_to(np.float64(weights), count)


def _age_weights(weights: Array, block: slice, half_life: float | None) -> Array:
    """Return the weights that the rows of a block have after all rows, of weights (n,)."""
    return decay_weights(np.ascontiguousarray(weights[block]), half_life, max(len(weights) - block.stop, 0))[1]


def _spread_rows(rows: Rows, weights: Array) -> tuple[Array, Array]:
    """Return all rows (n, d) and weights (n,), or of many some runs of neighbours, which are compared."""
    n_runs = -(-len(rows) // _RUN)
    most = max(_NUMBERS_TO_SETTLE // rows.shape[1], _LEAST_TO_SETTLE) // _RUN
    if n_runs <= most:
        return rows[:], weights
    starts = np.linspace(0, n_runs - 1, most).astype(np.intp) * _RUN
    pieces = [slice(start, start + _RUN) for start in starts.tolist()]
    if not any(weights[piece].any() for piece in pieces):
        # All weight is in a few rows elsewhere.
        pieces = [slice(i, i + 1) for i in np.flatnonzero(weights)[: most * _RUN].tolist()]
    return np.concatenate([rows[piece] for piece in pieces]), np.concatenate([weights[piece] for piece in pieces])
