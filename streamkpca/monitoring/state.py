"""The state of a monitor beside its model, as a value, and as data of its checkpoint."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.concurrency import replaced
from streamkpca._core.parameters import check_integer
from streamkpca.checkpoint.fields import Context, recorded, restored, whole_of
from streamkpca.monitoring.causes import Cause, EventRows
from streamkpca.monitoring.contract import Contract
from streamkpca.monitoring.events import AlarmRun, Change, Event, EventLog, time_of
from streamkpca.monitoring.rules import time_passed
from streamkpca.monitoring.thresholds import RecentScores
from streamkpca.rows.times import Time, Times

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class ScoredRows(NamedTuple):
    """Rows with their predecessors, their scores, and which of them are alarms, or usual enough to be learned."""

    stacked: Array
    novelty: Array
    smoothed: Array
    is_alarm: Flags
    usual: Flags

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, one part or more."""
        columns: Any = zip(*parts, strict=True)
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, columns))


@dataclass(frozen=True)
class MonitorState:
    """The state of a monitor besides that of its model; replaced as a whole.

    `context` (lags - 1, d) are the predecessors of the next row, the latest first, and `n_made_up` counts the rows
    to come whose predecessors were made up after a gap. `waiting` are parts of the present chunk, `late`
    (n, lags * d) the latest ones before it, which are to be learned if `is_usual` (n,), and `left_out` (n, lags * d)
    rows that were not learned.
    """

    n_features: int
    names: list[str] | None
    late: Array
    is_usual: Flags
    left_out: Array
    scores: RecentScores
    run: AlarmRun
    log: EventLog
    change: Change | None = None
    n_rows: int = 0
    n_learned: int = 0
    n_young: int = 0
    last_smoothed: float | None = None
    time_passed: float = 0.0
    first_time: Time | None = None
    last_time: Time | None = None
    context: Array | None = None
    n_made_up: int = 0
    contract: Contract | None = None
    waiting: tuple[ScoredRows, ...] = ()

    @property
    def all_time_passed(self) -> float:
        """The time from the first row to the last, of all recordings."""
        return self.time_passed + time_passed(self.first_time, self.last_time)

    def passed(self, n: int, times: Times | None, **changes: Any) -> Self:
        """Count n rows with their times, if they have any, and change what they change."""
        if times is not None:
            changes["last_time"] = time_of(times, -1)
            changes["first_time"] = time_of(times, 0) if self.first_time is None else self.first_time
        return replaced(self, n_rows=self.n_rows + n, **changes)

    def begun_anew(self) -> Self:
        """Forget what lags and smoothing know of the latest rows."""
        return replaced(self, context=None, last_smoothed=None)


def state_record(state: MonitorState) -> dict[str, Any]:
    """Return JSON data and arrays that determine a state, by the table of its fields."""
    waiting: Any = ScoredRows.joined(state.waiting) if state.waiting else None
    return recorded(_STATE, replace(state, waiting=waiting))


def state_from_record(record: dict[str, Any], context: Callable[[int], Context], quantile: float) -> MonitorState:
    """Make the state that `state_record` recorded; ValueError where it makes no sense."""
    d = check_integer("n_features", record["n_features"], least=1, where="state")
    state: MonitorState = restored(_STATE, record, context(d))
    if state.names is not None and len(state.names) != d:
        raise ValueError("there are too many or too few names")
    if state.scores.quantile != quantile:
        raise ValueError("its thresholds belong to another quantile")
    if len(state.late) > len(state.scores.is_alarm):
        raise ValueError("rows wait to be learned that have no score")
    log = state.log
    if (log.current is None) != (log.rows is None) or (log.rows and not len(log.rows.rows) == len(log.rows.times) > 0):
        raise ValueError("the open event has no rows, or too many times")
    last = max((event.end for event in [*log.closed, *([log.current] if log.current else [])]), default=0)
    last = max(last, state.run.start, state.change.detected if state.change else 0)
    if last > state.n_rows or state.log.n_closed < len(state.log.closed):
        raise ValueError("an event, a change or a count is outside of the stream")
    return replace(state, waiting=(state.waiting,) if isinstance(state.waiting, ScoredRows) else ())


# Lengths: d columns, D those of a row with its L predecessors, n rows of the part.
_STATE = whole_of(
    """
    MonitorState:
        n_features n_rows n_learned n_young n_made_up / integer / / >= 0
        names / texts?
        last_smoothed / real? / / >= 0
        time_passed / real / / >= 0
        first_time last_time / time?
        context / <f8? / Ld / or NaN
        left_out / <f8 / mD / or NaN
        late / <f8 / nD / or NaN
        is_usual / |b1 / n
    RecentScores: scores
        quantile / real / / >= 0
        raw smoothed / <f8 / n / >= 0
        is_alarm / |b1 / n
        limit threshold / real or null / / >= 0
        n_new / integer / / >= 0
    AlarmRun: run
        start n_alarms / integer / / >= 0
        excess / real / / >= 0
        start_time / time?
    EventLog: log
        n_closed / integer / / >= 0
    EventRows: log.rows?
        positions / <i8 / n
        rows / <f8 / nD / or NaN
        times / times
    Event: log.closed*
    Event: log.current?
        start end peak_row / integer / / >= 0
        n_alarms / integer / / >= 1
        peak severity / real / / >= 0
        start_time end_time peak_time / time?
        is_open / flag
    Change: change?
        start detected / integer / / >= 0
        share / real / / >= 0
        start_time detected_time / time?
        is_accepted / flag
    Cause: log.closed.features*
    Cause: log.current.features*
    Cause: change.features*
        feature / feature
        share / real / / >= 0
        value expected low high / real
        direction / text / / above | below
        since / integer / / >= 0
        since_time / time?
    Contract: contract?
        false_alarms / real / / >= 0
        maxima / <f8 / n / >= 0
        level / real or null / / >= 1
        n_blocks n_new n_since / integer / / >= 0
        pending / <f8 / p
        is_open / flag
    ScoredRows: waiting?
        stacked / <f8 / nD / or NaN
        novelty smoothed / <f8 / n / >= 0
        is_alarm usual / |b1 / n
    """,
    (MonitorState, RecentScores, AlarmRun, EventLog, EventRows, Event, Change, Cause, Contract, ScoredRows),
)
