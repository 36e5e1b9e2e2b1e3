"""What a monitor learns of the rows that it scored: normal ones, and changes that last; and its thresholds."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from streamkpca._core.concurrency import replaced
from streamkpca.monitoring.events import AlarmRun
from streamkpca.monitoring.periods import has_passed
from streamkpca.monitoring.scoring import WHOLE, Scorer
from streamkpca.monitoring.state import MonitorState
from streamkpca.monitoring.thresholds import healthy_level, is_quiet, smoothed_run
from streamkpca.stream.calibration import calibrate, rows_for_level

Flags = npt.NDArray[np.bool_]

LEARN = ("normal", "all", "none")
# Rows that are scored with one model and one threshold, at least.
CHUNK = 32
# Learned rows between which a model is young: it is refitted, and its thresholds come from the rows learned so far.
YOUNG, _OLD = 64, 4096
# Rows that are learned at once. Of those that follow, the later half waits, up to so many: a slow fault is noticed by a
# model that has not learned its beginning. They are learned together, this many at most.
_AT_ONCE, _LATE, _TOGETHER = 2048, 1024, 256
# Neighbours that are learned, or scored, together when a change is accepted.
_RUN = 16
# Most numbers kept of rows that wait to be learned, and of unlearned rows until a change is accepted; the oldest rows
# go first.
_MOST_LATE, _MOST_KEPT = 1_000_000, 100_000


def caught_up(state: MonitorState, scorer: Scorer, learn: str) -> MonitorState:
    """Learn the normal ones among the rows that have waited long enough."""
    n, is_late = len(state.late), learn == "normal" and np.isfinite(state.scores.threshold)
    most = min(_LATE, _MOST_LATE // state.late.shape[1])
    n_due = n - (min(max(state.n_rows - _AT_ONCE, 0) // 2, most) if is_late else 0)
    if n_due < (min(max(state.n_learned // 8, CHUNK), _TOGETHER) if is_late else 1):
        return state
    due, chosen, left_out = state.late[:n_due], _are_normal(state, learn)[:n_due], state.left_out[:0]
    if chosen.any():
        scorer.learn(due[chosen])
    if state.run.excess and not chosen.all():
        most = max(_MOST_KEPT // due.shape[1], CHUNK)
        left_out = np.concatenate([state.left_out, due[~chosen]])[-most:]
    late, is_usual = state.late[n_due:], state.is_usual[n_due:]
    n_learned = state.n_learned + int(np.count_nonzero(chosen))
    return replaced(state, n_learned=n_learned, late=late, is_usual=is_usual, left_out=left_out)


def _are_normal(state: MonitorState, learn: str) -> Flags:
    """Tell which rows that wait to be learned are usual and, once the model knows enough, with few alarms near."""
    if learn == "all" or state.n_learned < WHOLE:
        return state.is_usual
    is_alarm = state.scores.is_alarm
    return state.is_usual & is_quiet(is_alarm)[len(is_alarm) - len(state.is_usual) :]


def accepted(state: MonitorState, scorer: Scorer, learn: str) -> tuple[MonitorState, bool]:
    """Learn the rows since a lasting change; tell also whether thresholds are to be found anew."""
    is_normal = _are_normal(state, learn)
    normal, rows = state.late[is_normal], np.concatenate([state.left_out, state.late[~is_normal]])
    # Rows that stand out among the others are no part of the change.
    novelty = scorer.novelty(rows)
    if len(rows):
        rows = rows[novelty <= healthy_level(novelty, state.scores.limit_quantile)]
    if len(normal):
        scorer.model.partial_fit(normal)
    none, run, n_learned = state.late[:0], AlarmRun(), state.n_learned + len(normal)
    state = replace(state, run=run, n_learned=n_learned, late=none, is_usual=state.is_usual[:0], left_out=none)
    if len(rows) < 2:
        return state, True
    # Every other run of neighbours shows how novel such rows are for a model that knows the others.
    is_shown = np.arange(len(rows)) // min(_RUN, len(rows) // 2) % 2 == 1
    scorer.model.partial_fit(rows[~is_shown]).refit()
    novelty = scorer.novelty(rows[is_shown])
    scorer.model.partial_fit(rows[is_shown]).refit()
    smoothed = smoothed_run(novelty, scorer.smoothing, None)
    scores = state.scores.replaced(novelty, smoothed, np.zeros(len(novelty), dtype=bool))
    n_learned += len(rows)
    return replace(state, n_learned=n_learned, n_young=n_learned, scores=scores), False


def has_grown(state: MonitorState, scorer: Scorer) -> bool:
    """Tell whether enough more rows are learned to find thresholds for the first time, or anew while few are."""
    if state.n_young:
        return 2 * state.n_young <= state.n_learned < _OLD
    return state.n_learned >= YOUNG and has_passed(scorer.period, state.n_rows, state.all_time_passed)


def calibrated(state: MonitorState, scorer: Scorer, learn: str) -> MonitorState:
    """Take the thresholds from rows that the published axes have not seen; before the first block, publish some.

    They are those that wait to be learned and, while these are few, learned rows that are left out in turn.
    """
    # Later, the schedule of the model publishes soon enough, and a refit would search for atoms among few rows.
    if learn != "none" and (scorer.known is None or scorer.known.scheduled is None):
        scorer.model.refit()
    n, before, n_wanted = len(state.late), state.scores.is_alarm, rows_for_level(state.scores.quantile)
    is_alarm, runs = before[len(before) - n :], [scorer.novelty(state.late, learn != "none")]
    if np.count_nonzero(is_quiet(before)[len(before) - n :]) < n_wanted:
        found = calibrate(scorer.model.state_, scorer.model.settings("Monitor"), n_wanted)
        runs = [*np.split(found.novelty, np.flatnonzero(np.diff(found.runs)) + 1), *runs]
        is_alarm = np.concatenate([np.zeros(len(found.novelty), dtype=bool), is_alarm])
    smoothed = np.concatenate([smoothed_run(scores, scorer.smoothing, None) for scores in runs])
    scores = state.scores.replaced(np.concatenate(runs), smoothed, is_alarm)
    return replace(state, scores=scores, n_young=state.n_learned)
