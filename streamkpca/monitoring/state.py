"""What a monitor knows besides its model, as a value, and as JSON data in its checkpoint."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_flag, check_integer, check_real
from streamkpca.monitoring.events import AlarmRun, Change, Contribution, Event, EventLog
from streamkpca.monitoring.thresholds import RecentScores

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


class ScoredRows(NamedTuple):
    """Rows with their predecessors that wait to be learned, their scores, and which of them are alarms or usual."""

    stacked: Array
    novelty: Array
    smoothed: Array
    is_alarm: Flags
    usual: Flags


@dataclass(frozen=True)
class MonitorState:
    """What a monitor knows besides its model; replaced as a whole.

    `context` (lags - 1, d) are the predecessors of the next row, the latest first, and `n_made_up` is the number of
    rows to come that have predecessors which were made up after a gap.
    """

    n_features: int
    names: list[str] | None
    scores: RecentScores
    run: AlarmRun
    log: EventLog
    change: Change | None = None
    n_rows: int = 0
    n_learned: int = 0
    n_young: int = 0
    last_smoothed: float | None = None
    context: Array | None = None
    n_made_up: int = 0
    waiting: tuple[ScoredRows, ...] = ()
    left_out: tuple[Array, ...] = ()

    @property
    def all_waiting(self) -> ScoredRows:
        """All rows that wait, of which there must be one."""
        return ScoredRows(*map(np.concatenate, zip(*self.waiting, strict=True)))


def state_record(state: MonitorState) -> dict[str, Any]:
    """Return JSON data that determine a state."""
    log, scores, run = state.log, state.scores, state.run
    return {
        "n_features": state.n_features,
        "names": state.names,
        "counts": [state.n_rows, state.n_learned, state.n_young, state.n_made_up, log.n_closed],
        "quantile": scores.quantile,
        "raw": scores.raw.tolist(),
        "smoothed": scores.smoothed.tolist(),
        "thresholds": [level if np.isfinite(level) else None for level in (scores.raw_threshold, scores.threshold)],
        "n_new": scores.n_new,
        "run": [run.start, run.excess, run.n_alarms, run.contributions.tolist()],
        "closed": [asdict(event) for event in log.closed],
        "current": None if log.current is None else asdict(log.current),
        "pending": log.pending,
        "released": log.released,
        "change": None if state.change is None else asdict(state.change),
        "last_smoothed": state.last_smoothed,
        "context": None if state.context is None else _with_gaps_as_none(state.context),
        "waiting": [_with_gaps_as_none(part) for part in state.all_waiting] if state.waiting else None,
        "left_out": [_with_gaps_as_none(rows) for rows in state.left_out],
    }


def _with_gaps_as_none(values: Array) -> list[Any]:
    """Return nested lists; JSON has no NaN."""
    cells = values.astype(object)
    cells[np.isnan(values)] = None
    listed: list[Any] = cells.tolist()
    return listed


def state_from_record(record: dict[str, Any], lags: int, quantile: float) -> MonitorState:
    """Read what `state_record` wrote; KeyError, TypeError, ValueError or ArithmeticError where it makes no sense."""
    d = check_integer("n_features", record["n_features"], least=1, where="state")
    n_rows, n_learned, n_young, n_made_up, n_closed = (_count(value) for value in record["counts"])
    raw, smoothed = _scores(record["raw"], (-1,)), _scores(record["smoothed"], (-1,))
    levels = [np.inf if level is None else _score(level) for level in record["thresholds"]]
    raw_threshold, threshold = levels
    start, excess, n_alarms, contributions = record["run"]
    names, context, last = record["names"], record["context"], record["last_smoothed"]
    pending, released = (tuple((_score(a), _score(b)) for a, b in record[name]) for name in ("pending", "released"))
    waiting = () if record["waiting"] is None else (_waiting(record["waiting"], d * lags),)
    state = MonitorState(
        n_features=d,
        names=None if names is None else [_text(name) for name in names],
        scores=RecentScores(quantile, raw, smoothed, raw_threshold, threshold, _count(record["n_new"])),
        run=AlarmRun(_count(start), _score(excess), _count(n_alarms), _scores(contributions, (d,))),
        log=EventLog(
            tuple(_event(event, n_rows) for event in record["closed"]),
            None if record["current"] is None else _event(record["current"], n_rows),
            n_closed,
            pending,
            released,
        ),
        change=None if record["change"] is None else _change(record["change"], n_rows),
        n_rows=n_rows,
        n_learned=n_learned,
        n_young=n_young,
        last_smoothed=None if last is None else _score(last),
        context=None if context is None else _rows(context, (lags - 1, d)),
        n_made_up=n_made_up,
        waiting=waiting,
        left_out=tuple(_rows(rows, (-1, d * lags)) for rows in record["left_out"]),
    )
    if record["quantile"] != quantile or np.isfinite(threshold) != np.isfinite(raw_threshold):
        raise ValueError("thresholds belong to another quantile, or one of two is missing")
    if len(raw) != len(smoothed) or (names is not None and len(names) != d):
        raise ValueError("there are too many or too few numbers or names")
    if state.run.start > n_rows or state.run.n_alarms > n_rows or n_closed < len(state.log.closed):
        raise ValueError("counts contradict each other")
    return state


def _waiting(record: Any, width: int) -> ScoredRows:
    stacked, novelty, smoothed, is_alarm, usual = record
    rows = _rows(stacked, (-1, width))
    n = (len(rows),)
    alarms, usuals = (
        np.array([check_flag("flag", flag, where="state") for flag in part]) for part in (is_alarm, usual)
    )
    return ScoredRows(rows, _scores(novelty, n), _scores(smoothed, n), alarms.reshape(n), usuals.reshape(n))


def _count(value: Any) -> int:
    return check_integer("count", value, least=0, where="state")


def _score(value: Any) -> float:
    return check_real("score", value, least=0.0, where="state")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a name is {value!r}")
    return value


def _rows(values: Any, shape: tuple[int, ...]) -> Array:
    """Return finite numbers, and NaN for None, as an array of a shape."""
    cells = np.array(values, dtype=object).reshape(shape)
    missing = np.array([cell is None for cell in cells.ravel()], dtype=bool).reshape(cells.shape)
    cells[missing] = 0.0
    return np.where(missing, np.nan, _numbers(cells.tolist(), cells.shape))


def _numbers(values: Any, shape: tuple[int, ...]) -> Array:
    """Return finite numbers as an array of a shape."""
    array = np.array(values, dtype=np.float64).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError("a number is not finite")
    return array


def _scores(values: Any, shape: tuple[int, ...]) -> Array:
    """Return finite numbers that are not negative as an array of a shape."""
    array = _numbers(values, shape)
    if (array < 0.0).any():
        raise ValueError("a score is negative")
    return array


def _event(record: dict[str, Any], n_rows: int) -> Event:
    event = Event(**_with_features(record))
    start, end, peak_row, n_alarms = map(_count, (event.start, event.end, event.peak_row, event.n_alarms))
    _score(event.peak)
    check_flag("is_open", event.is_open, where="state")
    if not (start <= peak_row < end <= n_rows and 1 <= n_alarms <= end - start):
        raise ValueError("an event is outside of the stream")
    return event


def _change(record: dict[str, Any], n_rows: int) -> Change:
    change = Change(**_with_features(record))
    check_real("share", change.share, least=0.0, most=1.0, where="state")
    check_flag("is_accepted", change.is_accepted, where="state")
    if not _count(change.start) <= _count(change.detected) <= n_rows:
        raise ValueError("a change is outside of the stream")
    return change


def _with_features(record: dict[str, Any]) -> dict[str, Any]:
    """Give an event or a change its features, each a name or a position."""
    features = (
        Contribution(feature if isinstance(feature, str) else _count(feature), _score(value))
        for feature, value in record["features"]
    )
    return {**record, "features": tuple(features)}
