"""The state of a monitor beside its model, as a value, and as data of its checkpoint."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.concurrency import replaced
from streamkpca._core.parameters import check_choice, check_integer
from streamkpca.checkpoint.fields import Context, recorded, restored, whole_of
from streamkpca.models.saving import read_feature
from streamkpca.monitoring.causes import DIRECTIONS, Cause, EventRows
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
    values = recorded(_STATE, replace(state, waiting=waiting))
    current, closed = state.log.current, [_recorded_event(event) for event in state.log.closed]
    if state.change is not None:
        values["change.features"] = [recorded(_CAUSE, cause) for cause in state.change.features]
    if state.log.rows is not None:
        values["log.rows.times"] = [recorded(_TIME, _Moment(time)) for time in state.log.rows.times]
    return {**values, "log.current": None if current is None else _recorded_event(current), "log.closed": closed}


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


def _recorded_event(event: Event) -> dict[str, Any]:
    return {**recorded(_EVENT, event), "features": [recorded(_CAUSE, cause) for cause in event.features]}


class _Moment(NamedTuple):
    time: Time | None


def _made_rows(times: Any, **rest: Any) -> EventRows:
    return EventRows(times=tuple(restored(_TIME, time, Context()).time for time in times), **rest)


def _made_log(closed: Any, current: Any, n_closed: int, rows: EventRows | None) -> EventLog:
    opened = None if current is None else restored(_EVENT, current, Context())
    return EventLog(tuple(restored(_EVENT, event, Context()) for event in closed), opened, n_closed, rows)


def _made_event(features: Any, **rest: Any) -> Event:
    return Event(features=tuple(restored(_CAUSE, cause, Context()) for cause in features), **rest)


def _made_cause(feature: Any, direction: str, **rest: Any) -> Cause:
    return Cause(
        read_feature(feature), direction=check_choice("direction", direction, choices=DIRECTIONS, where="state"), **rest
    )


def _made_change(features: Any, **rest: Any) -> Change:
    return Change(features=tuple(restored(_CAUSE, cause, Context()) for cause in features), **rest)


_TIME = whole_of(
    """
    _Moment:
        time / time?
    """,
    (_Moment,),
)
_CAUSE = whole_of(
    """
    _made_cause:
        feature / data
        share / real / / >= 0
        value expected low high / real
        direction / text
        since / integer / / >= 0
        since_time / time?
    """,
    (_made_cause,),
)
_EVENT = whole_of(
    """
    _made_event:
        start end peak_row / integer / / >= 0
        n_alarms / integer / / >= 1
        peak severity / real / / >= 0
        start_time end_time peak_time / time?
        features / data
        is_open / flag
    """,
    (_made_event,),
)
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
    _made_log: log
        n_closed / integer / / >= 0
        closed current / data
    _made_rows: log.rows?
        positions / <i8 / n
        rows / <f8 / nD / or NaN
        times / data
    _made_change: change?
        start detected / integer / / >= 0
        share / real / / >= 0
        start_time detected_time / time?
        features / data
        is_accepted / flag
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
    (MonitorState, RecentScores, AlarmRun, _made_log, _made_rows, _made_change, Contract, ScoredRows),
)
