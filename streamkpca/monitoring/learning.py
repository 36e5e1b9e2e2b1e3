"""What a monitor learns of the rows that it judged, and the scales that it makes of rows it holds out."""

from typing import Any

import numpy as np

from streamkpca._core.arrays import Array, Flags
from streamkpca._core.concurrency import replace_fields
from streamkpca.components.relation import Relation, count_related
from streamkpca.kernels import Kernel
from streamkpca.monitoring.judging import SHORTEST_CHUNK, YOUNG, Scorer, smooth
from streamkpca.monitoring.lasting_changes import Cusum
from streamkpca.monitoring.periods import has_passed
from streamkpca.monitoring.rarity import Views
from streamkpca.monitoring.state import JudgedRows, MonitorState
from streamkpca.stream import advance, calibrate, refit

LEARN = ("normal", "all", "none")
# One chunk of this number is held out: its rows are not learned, and their scores tell what healthy rows score.
_HELD_OUT = 4
# Most rows that are held out: they resolve once in 2,000 rows.
_MOST_HELD = 2048
# A chunk is held out whole if at most this share of it is not to be learned; of another one the rows that are.
_MOST_LEFT_OUT = 0.5
# Recent rows that count as much as all before them.
_RECENT = 512
# Share of the recent rows that are odder than the healthy row in the middle, from which on the stream has moved. Faults
# move the upper end of the scores, drifts the middle.
_MOVED = 0.6
# Share of the recent rows that are odder, from which on the stream drifts, unless many are too rare to be learned:
# where a fault or another state begins at once, nearly as many are too rare as are odder.
_DRIFTED = 0.9
# Share of the recent rows that are too rare to be learned, up to which odder rows are a drift.
_FEW_RARE = 0.6
# A number of the first rows is wild if it is this many times farther from their median than three of four are: one such
# number in the sums hides all later deviations of its column, as no row is taken out of them.
_WILD = 100.0
# One wild row in this number of rows is a fault of the record.
_ROWS_FOR_ONE_WILD = 16
# Neighbours that are learned, or held out, together when a change is accepted.
_NEIGHBOURS = 16
# Most numbers kept of rows that are held out.
_MOST_HELD_NUMBERS = 1_000_000
# Most numbers kept of rows that were left out until a change is accepted.
_MOST_LEFT_NUMBERS = 100_000
# Scores of learned rows that are enough to begin with, where a model was given.
_ENOUGH = 250


def learn_chunk(state: MonitorState, scorer: Scorer, learns_all: bool) -> MonitorState:
    """Learn the rows of a chunk that may be learned, or hold it out, and renew the scales when it is time."""
    before, n_chunks, rows = state.model.summary, state.n_chunks + 1, JudgedRows.join(state.waiting)
    share_odder = _average(state.share_odder, rows.is_odder)
    share_rare = _average(state.share_rare, ~rows.is_learnable)
    state = replace_fields(state, waiting=(), n_chunks=n_chunks, share_odder=share_odder, share_rare=share_rare)
    is_fault = rows.is_fault.copy()
    is_fault[rows.is_rare] = _are_faults(state, scorer, rows.stacked[rows.is_rare])
    is_learnable = rows.is_learnable & (state.n_learned >= YOUNG.n_first or ~_are_wild(rows.stacked))
    is_learned = ((is_learnable | _drifts(state)) & _needs_rows(state, scorer) | learns_all) & ~is_fault
    # The second chunk is held out, too, so that there is a scale soon.
    if n_chunks % _HELD_OUT == 0 or n_chunks == 2:
        is_whole = np.count_nonzero(is_learned) >= (1.0 - _MOST_LEFT_OUT) * len(is_learned)
        state = _hold_out(state, rows.stacked[~is_fault if is_whole else is_learned], n_chunks)
    else:
        waits = rows.is_rare & (state.n_learned < YOUNG.n_grown and not learns_all)
        state = _learn_late(state, scorer, rows.stacked[is_learned], waits[is_learned], YOUNG.n_late)
    state = replace_fields(state, left_out=_leave_out(state, rows.stacked[~(is_learned | is_fault)]))
    # Scores in another scale of the kernel cannot be compared with those in the last one.
    has_moved = state.n_renewed > 0 and _kernel_of(state.model.summary) != _kernel_of(before)
    return renew(state, scorer) if has_moved or _is_due(state, scorer) else state


def _are_wild(rows: Array) -> Flags:
    """Tell which of the first rows (n, D), which no scale can judge, have numbers far beyond those of nearly all."""
    distances = np.abs(rows - np.sort(rows, axis=0)[(len(rows) - 1) // 2])
    usual = np.sort(distances, axis=0)[3 * len(rows) // 4]
    is_wild = np.asarray(((distances > _WILD * usual) & (usual > 0.0)).any(axis=1))
    # More of them are a state of the machine.
    return is_wild & (np.count_nonzero(is_wild) * _ROWS_FOR_ONE_WILD <= len(rows))


def _kernel_of(summary: Any) -> Kernel | None:
    return None if summary is None else summary.basis.kernel


def _average(share: float, flags: Flags) -> float:
    """Return the weighted share of flagged rows after some more (n,), of which the latest 512 count half."""
    weights = 0.5 ** (np.arange(len(flags), 0, -1) / _RECENT)
    return float(share * weights[0] + (1.0 - weights[0]) * (weights @ flags) / weights.sum())


def _needs_rows(state: MonitorState, scorer: Scorer) -> bool:
    """Tell whether a model has more to learn: it is not settled, is to forget, or the bulk of the stream has moved."""
    is_settled = state.n_learned - state.n_before >= YOUNG.n_settled and scorer.settings.half_life is None
    return not is_settled or state.share_odder >= _MOVED


def _drifts(state: MonitorState) -> bool:
    """Tell whether the bulk of a stream has left the healthy rows so slowly that few of its rows are too rare."""
    return state.n_learned >= YOUNG.n_grown and state.share_odder >= _DRIFTED and state.share_rare <= _FEW_RARE


def learn(state: MonitorState, scorer: Scorer, rows: Array) -> MonitorState:
    """Learn rows (n, D): their moments, and by the model."""
    related, moments = scorer.leave_phases_out(rows), state.moments
    if count_related(related.shape[1]):
        moments = moments.add(related)
    model = advance(state.model, rows, 1.0, scorer.settings)
    return replace_fields(state, model=model, moments=moments, n_learned=state.n_learned + len(rows))


def _learn_late(state: MonitorState, scorer: Scorer, rows: Array, waits: Flags, n_late: int) -> MonitorState:
    """Learn rows (n, D) but for those that wait, and rows that have waited for `n_late` others and are no faults."""
    late = np.concatenate([state.late, rows[waits]])
    since = np.concatenate([state.late_since, np.full(np.count_nonzero(waits), state.n_rows)])
    is_due = since <= state.n_rows - min(n_late, _MOST_HELD_NUMBERS // rows.shape[1])
    due = late[is_due]
    learned = np.concatenate([due[~_are_faults(state, scorer, due)], rows[~waits]])
    state = replace_fields(state, late=late[~is_due], late_since=since[~is_due])
    return learn(state, scorer, learned) if len(learned) else state


def _are_faults(state: MonitorState, scorer: Scorer, rows: Array) -> Flags:
    """Tell which rows (n, D) are like confirmed events, as these may have been confirmed since the rows came."""
    if not (len(rows) and len(state.reviewed.rows)):
        return np.zeros(len(rows), dtype=bool)
    return state.reviewed.recognise(rows, scorer.describe_healthy(state))[1]


def _hold_out(state: MonitorState, rows: Array, chunk: int) -> MonitorState:
    most = min(_MOST_HELD, max(_MOST_HELD_NUMBERS // state.held.shape[1], SHORTEST_CHUNK))
    held = np.concatenate([state.held, rows])[-most:]
    chunks = np.concatenate([state.held_chunks, np.full(len(rows), chunk)])[-most:]
    return replace_fields(state, held=held, held_chunks=chunks)


def _leave_out(state: MonitorState, rows: Array) -> Array:
    """Return the rows (k, D) that were not learned since alarms have been many."""
    if not state.cusum.excess:
        return state.left_out[:0]
    most = max(_MOST_LEFT_NUMBERS // rows.shape[1], SHORTEST_CHUNK)
    return np.concatenate([state.left_out, rows])[-most:] if len(rows) else state.left_out


def _is_due(state: MonitorState, scorer: Scorer) -> bool:
    """Tell whether enough more rows are learned to make scales for the first time, or anew."""
    due = min(YOUNG.growth * state.n_renewed, state.n_renewed + YOUNG.n_between)
    return state.n_learned >= max(YOUNG.n_first, due) and has_passed(scorer.period, state.n_rows, state.all_time_passed)


def renew(state: MonitorState, scorer: Scorer) -> MonitorState:
    """Make the scales of both views anew, from the rows that are held out, if there are any."""
    if not len(state.held):
        return state
    if state.n_learned < YOUNG.n_refitted or state.model.scheduled is None:
        state = replace_fields(state, model=refit(state.model, scorer.settings))
    held, relation = scorer.leave_phases_out(state.held), None
    if count_related(held.shape[1]) and state.moments.weights.max() >= YOUNG.n_first:
        relation = Relation.fit(state.moments, held)
    # Scores of another relation are nothing to go on from.
    state = replace_fields(state, views=Views(relation), last_scores=None, n_renewed=state.n_learned)
    segments = np.split(state.held, np.flatnonzero(np.diff(state.held_chunks)) + 1)
    scores = np.concatenate([scorer.score(state, rows, learns=True)[1] for rows in segments], axis=1)
    return replace_fields(state, views=Views.fit(relation, scores))


def begin_with_model(state: MonitorState, scorer: Scorer) -> MonitorState:
    """Take the first scales from a model that has learned rows: scores of rows that it leaves out in turn."""
    found = calibrate(state.model, scorer.settings, n_least=_ENOUGH)
    related, relation, scores = scorer.leave_phases_out(found.rows), None, found.novelty[None]
    if count_related(related.shape[1]) and len(related) >= YOUNG.n_first:
        relation, surprise = Relation.fit_in_parts(related, state.n_features)
        scores = np.stack([found.novelty, surprise])
        state = replace_fields(state, moments=state.moments.add(related))
    if scorer.smoothing is not None:
        segments = np.split(scores, np.flatnonzero(np.diff(found.runs)) + 1, axis=1)
        scores = np.concatenate([smooth(segment, None, scorer.smoothing) for segment in segments], axis=1)
    return replace_fields(state, views=Views.fit(relation, scores), n_renewed=state.n_learned)


def accept_change(state: MonitorState, scorer: Scorer) -> MonitorState:
    """Learn the rows since a lasting change, but for some that are held out in place of those before it."""
    # In the new state the model learns as many rows as in the first before it stands still: on five streams, average
    # precision after 14 changes was 0.43; where it stood still at once, or began anew, 0.40.
    rows = state.left_out[~_are_faults(state, scorer, state.left_out)]
    state = _learn_late(state, scorer, rows[:0], np.empty(0, dtype=bool), 0)
    # Rows are ranked among those of the new state alone: beside the change, others as odd would pass for common.
    state = replace_fields(state, cusum=Cusum(), left_out=rows[:0], n_before=state.n_learned, counts=0.0 * state.counts)
    if len(rows) < 2 * _NEIGHBOURS:
        # A young monitor has learned them, but its scales do not know it yet.
        return renew(state, scorer)
    chunks = np.arange(len(rows)) // _NEIGHBOURS
    is_held = chunks % _HELD_OUT == 1
    state = learn(state, scorer, rows[~is_held])
    return renew(replace_fields(state, held=rows[is_held], held_chunks=-1 - chunks[is_held]), scorer)
