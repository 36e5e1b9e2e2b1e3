"""The state of a monitor beside its model, as a value, and as data of its checkpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from streamkpca._core.arrays import Array, Flags, Positions
from streamkpca._core.concurrency import replace_fields
from streamkpca._core.parameters import check_integer
from streamkpca.checkpoint.fields import Context, record_fields, restore_section, whole_of
from streamkpca.components.relation import Relation, RowMoments, count_related
from streamkpca.monitoring._loops import N_BINS
from streamkpca.monitoring.alarms import N_COUNTERS, N_RECENT, AlarmState
from streamkpca.monitoring.causes import Cause, EventRows
from streamkpca.monitoring.events import Event, EventLog, ReviewedEvents
from streamkpca.monitoring.lasting_changes import Change, Cusum
from streamkpca.monitoring.periods import time_passed
from streamkpca.monitoring.rarity import KINDS, RarityScale, Views
from streamkpca.monitoring.recent import N_NUMBERS, begin_anew, no_averages
from streamkpca.rows.times import Time
from streamkpca.stream import State


class JudgedRows(NamedTuple):
    """Rows (n, D), and which may be learned, are as rare as an alarm, odder than half, faults, or declared healthy."""

    stacked: Array
    is_learnable: Flags
    is_rare: Flags
    is_odder: Flags
    is_fault: Flags
    is_healthy: Flags

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of all parts, one part or more."""
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, zip(*parts, strict=True)))


@dataclass(frozen=True)
class MonitorState:
    """The state of a monitor and its model; replaced as a whole.

    `views` say how rows are scored and how rare they are, and `alarms` which are told. `moments` are those of the
    learned rows, `recent_moments` those beside the last rows, and `averages` (2, d) means and variances of the last
    rows. `log` has the events, and `reviewed` those that a user has reviewed. `held` (m, D) are rows held out, in
    chunks of the numbers `held_chunks` (m,), and `left_out` (k, D) rows not learned since alarms have been many.
    `waiting` are parts of the present chunk. Of the recent rows, `share_odder` are odder than the healthy row in the
    middle, and `share_rare` too rare to be learned. `n_before` rows were learned before the change that was accepted
    last. `is_declared` says that rows were declared healthy, `is_declaring` that the last one was.
    """

    n_features: int
    names: list[str] | None
    held: Array
    held_chunks: Positions
    left_out: Array
    alarms: AlarmState
    moments: RowMoments
    recent_moments: RowMoments
    averages: Array
    log: EventLog
    reviewed: ReviewedEvents
    views: Views = field(default_factory=Views)
    cusum: Cusum = field(default_factory=Cusum)
    changes: tuple[Change, ...] = ()
    n_rows: int = 0
    n_learned: int = 0
    n_renewed: int = 0
    n_before: int = 0
    n_chunks: int = 0
    share_odder: float = 0.5
    share_rare: float = 0.0
    time_passed: float = 0.0
    first_time: Time | None = None
    last_time: Time | None = None
    is_declared: bool = False
    is_declaring: bool = False
    waiting: tuple[JudgedRows, ...] = ()
    # Files hold it beside the monitor.
    model: State = None  # type: ignore[assignment]

    @classmethod
    def begin(cls, model: State, names: list[str] | None, d: int) -> Self:
        """Return the state before the first row (d,)."""
        width = model.n_features + (N_NUMBERS - 1) * d
        rows, none = np.empty((0, width)), np.empty(0, dtype=np.int64)
        return cls(
            n_features=d,
            names=names,
            held=rows,
            held_chunks=none,
            left_out=rows,
            alarms=AlarmState.begin(len(KINDS)),
            moments=RowMoments.none(count_related(d)),
            recent_moments=RowMoments.none(count_related(N_NUMBERS * d)),
            averages=no_averages(d),
            log=EventLog.none(width),
            reviewed=ReviewedEvents.none(width),
            model=model,
        )

    @property
    def all_time_passed(self) -> float:
        """The time from the first row to the last, of all recordings."""
        return self.time_passed + time_passed(self.first_time, self.last_time)

    def begin_anew(self) -> Self:
        """Forget the means of the last rows, as the next one does not follow them."""
        return replace_fields(self, averages=begin_anew(self.averages))


def record_state(state: MonitorState) -> dict[str, Any]:
    """Return JSON data and arrays that determine a state, by the table of its fields."""
    waiting: Any = JudgedRows.join(state.waiting) if state.waiting else None
    return record_fields(_STATE, replace(state, waiting=waiting))


def restore_state(record: dict[str, Any], n_phases: int, has_gaps: bool) -> MonitorState:
    """Make the state that `record_state` recorded, but for the model; ValueError where it makes no sense."""
    d = check_integer("n_features", record["n_features"], least=1)
    lengths = {
        "d": d,
        "D": N_NUMBERS * d + n_phases,
        "R": count_related(d),
        "T": count_related(N_NUMBERS * d),
        "c": N_BINS + 1,
    }
    context = Context(has_gaps=has_gaps, lengths={letter: (length,) for letter, length in lengths.items()})
    state: MonitorState = restore_section(_STATE, record, context)
    log, run, views, alarms = state.log, state.cusum, state.views, state.alarms
    rows, opened = log.rows, [] if log.current is None else [log.current]
    last = max(
        [run.start, state.changes[-1].detected if state.changes else 0, *(e.end for e in (*log.closed, *opened))]
    )
    holds = {
        "there are too many or too few names": len(state.names or range(d)) == d,
        "a scale has no scores": all(len(scale.logs) for scale in views.scales),
        "there are variances below 0": not (state.averages[1] < 0.0).any(),
        "the recent rarities are no ring": len(alarms.recent) == N_RECENT
        and len(alarms.counters) == N_COUNTERS
        and alarms.counters[0] < N_RECENT,
        "a view has no scale, or a scale no view": len(views.scales) == (len(views.kinds) if views.joint else 0),
        "the open event has no rows, or too many times": len(opened) == (rows is not None)
        and (rows is None or 0 < len(rows.rows) == len(rows.times)),
        "closed events have too many or too few rows": log.sizes.sum() == len(log.kept)
        and len(log.sizes) <= len(log.closed) <= log.n_closed,
        "alarms have too many or too few times": len(run.firsts) == len(run.first_times),
        "an event or a change is outside of the stream": last <= state.n_rows,
    }
    if wrong := [problem for problem, is_right in holds.items() if not is_right]:
        raise ValueError(wrong[0])
    return replace(state, waiting=(state.waiting,) if isinstance(state.waiting, JudgedRows) else ())


_PARTS = (MonitorState, AlarmState, Views, RarityScale, RowMoments, Relation, Cusum, JudgedRows)
_FINDINGS = (EventLog, EventRows, Event, Change, Cause, ReviewedEvents)
# Lengths: d columns, D those of a row with its L predecessors, R those that are related, n rows of the part.
_STATE = whole_of(
    f"""
    MonitorState:
        n_features n_rows n_learned n_renewed n_before n_chunks / integer / / >= 0
        names / texts?
        time_passed / real / / >= 0
        share_odder share_rare / real / / >= 0
        first_time last_time / time?
        is_declared is_declaring / flag
        averages / <f8 / 2d / or unknown
        held / <f8 / mD / or NaN
        held_chunks / <i8 / m
        left_out / <f8 / kD / or NaN
    AlarmState: alarms
        counts calm_counts / <f8 / {len(KINDS)}c / >= 0
        is_away / flag
        recent / <f8 / w / >= 0
        counters / <f8 / k / >= 0
    Views: views
        -
    RarityScale: views.scales*
    RarityScale: views.joint?
        logs / <f8 / n / ascending
    RowMoments: moments
        weights / <f8 / vv / >= 0
        means / <f8 / vR
        scatter / <f8 / RR / symmetric
    RowMoments: recent_moments
        weights / <f8 / tt / >= 0
        means / <f8 / tT
        scatter / <f8 / TT / symmetric
    Relation: views.relation?
        mean / <f8 / R
        scale units / <f8 / R / > 0
        precision / <f8 / RR / symmetric
    Relation: views.recent?
        mean / <f8 / T
        scale units / <f8 / T / > 0
        precision / <f8 / TT / symmetric
    Cusum: cusum
        start / integer / / >= 0
        width / integer / / >= 1
        excess / real / / >= 0
        counts firsts / <i8 / b
        first_times / times
    EventLog: log
        n_closed / integer / / >= 0
        kept / <f8 / kD / or NaN
        sizes / <i8 / e / >= 0
    ReviewedEvents: reviewed
        rows / <f8 / kD / or NaN
        are_faults / |b1 / k
    EventRows: log.rows?
        positions / <i8 / n
        rows / <f8 / nD / or NaN
        times / times
    Event: log.closed*
    Event: log.current?
        start end peak_row / integer / / >= 0
        n_alarms / integer / / >= 1
        group / integer / / >= 0
        kind / text / / {" | ".join(KINDS)}
        peak severity / real / / >= 0
        start_time end_time peak_time / time?
        is_open / flag
        ranking / features
        feedback / text? / / accepted | confirmed
    Change: changes*
        start detected / integer / / >= 0
        share / real / / >= 0
        start_time detected_time / time?
        is_accepted / flag
    Cause: log.closed.features*
    Cause: log.current.features*
    Cause: changes.features*
        feature / feature
        share / real / / >= 0
        value expected low high / real
        direction / text / / above | below
        since / integer / / >= 0
        since_time / time?
    JudgedRows: waiting?
        stacked / <f8 / nD / or NaN
        is_learnable is_rare is_odder is_fault is_healthy / |b1 / n
    """,
    (*_PARTS, *_FINDINGS),
)
