"""What a monitor knows besides its model, as a value, and as JSON data in its checkpoint."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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
    """What a monitor knows besides its model; replaced as a whole."""

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
        "counts": [state.n_rows, state.n_learned, state.n_young, log.n_closed],
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
        "context": None if state.context is None else state.context.tolist(),
        "waiting": [part.tolist() for part in state.all_waiting] if state.waiting else None,
        "left_out": [rows.tolist() for rows in state.left_out],
    }


def state_from_record(record: dict[str, Any], lags: int) -> MonitorState:
    """Read what `state_record` wrote; KeyError, TypeError or ValueError where it makes no sense."""
    d = int(record["n_features"])
    n_rows, n_learned, n_young, n_closed = map(int, record["counts"])
    raw_threshold, threshold = (np.inf if level is None else float(level) for level in record["thresholds"])
    raw, smoothed = _numbers(record["raw"], (-1,)), _numbers(record["smoothed"], (-1,))
    start, excess, n_alarms, contributions = record["run"]
    context = record["context"]
    pending, released = (tuple((float(a), float(b)) for a, b in record[name]) for name in ("pending", "released"))
    waiting: tuple[ScoredRows, ...] = ()
    if record["waiting"] is not None:
        stacked, novelty, mean, is_alarm, usual = record["waiting"]
        rows = _numbers(stacked, (-1, d * lags))
        n = (len(rows),)
        alarms, usuals = (np.array(part, dtype=bool).reshape(n) for part in (is_alarm, usual))
        waiting = (ScoredRows(rows, _numbers(novelty, n), _numbers(mean, n), alarms, usuals),)
    if min(d, n_rows, n_learned, n_closed) < 0 or len(raw) != len(smoothed):
        raise ValueError("counts are negative, or scores differ in number")
    return MonitorState(
        n_features=d,
        names=None if record["names"] is None else [str(name) for name in record["names"]],
        scores=RecentScores(float(record["quantile"]), raw, smoothed, raw_threshold, threshold, int(record["n_new"])),
        run=AlarmRun(int(start), float(excess), int(n_alarms), _numbers(contributions, (d,))),
        log=EventLog(
            tuple(_event(event) for event in record["closed"]),
            None if record["current"] is None else _event(record["current"]),
            n_closed,
            pending,
            released,
        ),
        change=None if record["change"] is None else Change(**_with_features(record["change"])),
        n_rows=n_rows,
        n_learned=n_learned,
        n_young=n_young,
        last_smoothed=None if record["last_smoothed"] is None else float(record["last_smoothed"]),
        context=None if context is None else _numbers(context, (lags - 1, d)),
        waiting=waiting,
        left_out=tuple(_numbers(rows, (-1, d * lags)) for rows in record["left_out"]),
    )


def _numbers(values: Any, shape: tuple[int, ...]) -> Array:
    """Return finite numbers as an array of a shape."""
    array = np.array(values, dtype=np.float64).reshape(shape)
    if not np.isfinite(array).all():
        raise ValueError("a number is not finite")
    return array


def _event(record: dict[str, Any]) -> Event:
    return Event(**_with_features(record))


def _with_features(record: dict[str, Any]) -> dict[str, Any]:
    features = (Contribution(feature, float(value)) for feature, value in record["features"])
    return {**record, "features": tuple(features)}
