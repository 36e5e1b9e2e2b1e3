"""The monitor: scores the rows of a stream, raises alarms, and learns what is normal."""

import itertools
import math
import os
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_choice, check_integer, check_real
from streamkpca._core.validation import checked_rows, feature_names
from streamkpca.errors import CheckpointError, not_fitted
from streamkpca.estimators.streaming import StreamingKernelPCA
from streamkpca.kernels import RBF, Kernel
from streamkpca.monitoring.events import AlarmRun, Change, Event, EventLog, largest_contributions
from streamkpca.monitoring.state import MonitorState, ScoredRows, state_from_record, state_record
from streamkpca.monitoring.thresholds import RecentScores, smoothed_run
from streamkpca.stream.calibration import held_out_runs

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# Rows that are learned, and thresholds that are renewed, together. So results do not depend on how calls cut the rows.
_CHUNK = 32
# Learned rows after which a young model is refitted, and its thresholds are found by cross-validation.
_YOUNG = tuple(64 << i for i in range(6))
# Until this many rows are learned, nothing is known well enough to leave rows out.
_LEARNED_WHOLE = 512
# Numbers that the rows which are not learned may take until a change is accepted; the latest rows are kept.
_MOST_KEPT = 100_000
_MOST_EVENTS = 1000


class MonitorRecord(NamedTuple):
    """What `Monitor.update` finds out about its rows; all arrays have shape (n,).

    Attributes
    ----------
    novelty : ndarray
        Scores in units of k(x, x); 0 before there is a model, NaN for rows that are skipped.
    smoothed : ndarray
        Exponentially weighted scores, which are compared with the threshold; without smoothing, `novelty`.
    threshold : ndarray
        Level above which a row is an alarm; infinite before there is one.
    is_alarm : ndarray of bool
    """

    novelty: Array
    smoothed: Array
    threshold: Array
    is_alarm: Flags

    def piece(self, piece: slice) -> "MonitorRecord":
        """Return the record of some of the rows, as views.

        Parameters
        ----------
        piece : slice

        Returns
        -------
        MonitorRecord

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca.monitoring import Monitor
        >>> record = Monitor().update(np.random.default_rng(0).normal(size=(100, 3)))
        >>> record.piece(slice(90, None)).novelty.shape
        (10,)
        """
        return MonitorRecord(self.novelty[piece], self.smoothed[piece], self.threshold[piece], self.is_alarm[piece])


class Monitor:
    """Watch a stream: score its rows, raise alarms, gather them in events, and learn the rows that are normal.

    Parameters
    ----------
    model : StreamingKernelPCA, optional
        The model that scores and learns, which may have learned rows before; with `lags`, such rows as `stacked`
        makes. By default a new one with the kernel ``RBF().in_units("auto")``. It belongs to the monitor from then on.
    lags : int, default=1
        Rows that are scored together: each with its predecessors, so that the model sees d times `lags` features. Only
        for rows in time order.
    smoothing : float, optional
        Weight, between 0 and 1, of the newest score in the exponentially weighted mean that alarms are raised by; the
        smaller, the smoother. None: the scores themselves. Only for rows in time order.
    quantile : float, default=0.99
        Share of normal rows that should be below the threshold.
    learn : {"normal", "all", "none"}
        Rows that the model learns: those that are no alarm and not above the threshold of single scores; all; or none,
        so that the model stays as it is.
    accept_after : int, default=1000
        Alarms, beyond one in twenty rows, after which they are a lasting change, and with ``learn="normal"`` are
        learned.
    max_gap : float, optional
        Largest difference of the times of two rows that follow each other. After a longer one, or after a row that was
        skipped, lags and smoothing start anew.

    Raises
    ------
    TypeError, ValueError
        A parameter is out of its range, or `model` is something else.

    Notes
    -----
    **Scores** are `StreamingKernelPCA.novelty` of each row, before it is learned. Until 64 rows are learned, there is
    no threshold, and no row is an alarm.

    **Thresholds** are quantiles of the scores of earlier rows, smoothed as the new ones are, the latest counting most:
    the level of split-conformal prediction [1]_. While the model is young (up to 2,048 learned rows), they come from
    rows that are left out in turn, in runs of neighbours. Alarms in events of three or more do not count, or a long
    fault would raise the threshold. So for exchangeable rows the share of false alarms is 1 - `quantile`, up to chance;
    where neighbours resemble each other or the stream changes slowly, expect several times that, and where it changes
    for good, a `change_detected_`.

    **Events** are runs of alarms with less than ten rows between them. **Lasting changes** are found by Page's
    cumulative sum of alarms less one in twenty rows [2]_. When it reaches `accept_after`, after 1,053 rows of alarms or
    5,000 rows of which a quarter are, the change is reported as `change_detected_`, and with ``learn="normal"`` the
    latest of these alarms are learned: what lasts is normal.

    Results do not depend on how calls cut the stream. Monitors are not merged: their thresholds belong to one order of
    rows; `model` can be merged. A row costs what scoring and learning it cost, and some microseconds more.

    References
    ----------
    .. [1] J. Lei, M. G'Sell, A. Rinaldo, R. J. Tibshirani, L. Wasserman, "Distribution-free predictive inference for
       regression", Journal of the American Statistical Association 113, 2018.
    .. [2] E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> random = np.random.default_rng(0)
    >>> rows = np.repeat(random.normal(size=(2000, 2)), 2, axis=1) + 0.1 * random.normal(size=(2000, 4))
    >>> rows[1500:1520, 3] += 3.0
    >>> monitor = Monitor(smoothing=0.3)
    >>> record = monitor.update(rows)
    >>> event = max(monitor.events_, key=lambda event: event.n_alarms)
    >>> event.start, event.end, event.features[0].feature
    (1500, 1524, 3)
    """

    def __init__(
        self,
        model: StreamingKernelPCA | None = None,
        *,
        lags: int = 1,
        smoothing: float | None = None,
        quantile: float = 0.99,
        learn: str = "normal",
        accept_after: int = 1000,
        max_gap: float | None = None,
    ) -> None:
        where = "Monitor"
        if model is not None and not isinstance(model, StreamingKernelPCA):
            raise TypeError(
                f"{where} expects a StreamingKernelPCA but got {type(model).__name__}; make one of the rows"
            )
        self.model = StreamingKernelPCA(kernel=RBF().in_units("auto")) if model is None else model
        self.lags = check_integer("lags", lags, least=1, where=where)
        self.smoothing = (
            None
            if smoothing is None
            else check_real("smoothing", smoothing, least=0.0, most=1.0, open_below=True, where=where)
        )
        self.quantile = check_real(
            "quantile", quantile, least=0.0, most=1.0, open_below=True, open_above=True, where=where
        )
        self.learn = check_choice("learn", learn, choices=("normal", "all", "none"), where=where)
        self.accept_after = check_integer("accept_after", accept_after, least=_CHUNK, where=where)
        self.max_gap = (
            None if max_gap is None else check_real("max_gap", max_gap, least=0.0, open_below=True, where=where)
        )
        # One odd row makes alarms of those that it is a predecessor of, and of those that it is averaged with.
        self._n_few = 2 * self.lags + (0 if self.smoothing is None else math.ceil(2.0 / self.smoothing))
        self._state: MonitorState | None = None
        self._last_time: float | None = None
        self.extra_: Any = None
        if self.model._stream is not None:
            width = self.model.n_features_in_
            if width % self.lags:
                raise ValueError(
                    f"{where}: with lags={self.lags} the model should have learned stacked rows, but {width} features "
                    f"are no multiple of {self.lags}; pass it Monitor(lags={self.lags}).stacked(rows)"
                )
        elif self.learn == "none":
            raise ValueError(
                f"{where}: learn='none' needs a model that has learned rows, but it has seen none; call "
                "partial_fit, or begin with learn='normal' and set monitor.learn = 'none' later"
            )

    def update(self, X: Any, *, time: Any = None) -> MonitorRecord:
        """Score the next rows, then learn those that are to be learned.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows of the stream, without lags.
        time : array-like of shape (n,), optional
            Their times, as numbers, ascending; they only matter for `max_gap`.

        Returns
        -------
        MonitorRecord
            Arrays of shape (n,).

        Raises
        ------
        TypeError, ValueError
            As `StreamingKernelPCA.partial_fit` raises them, or the times are not one finite number a row. The monitor
            is as before the call.

        Notes
        -----
        Rows are learned 32 at a time: the model may be up to 31 rows behind.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca.monitoring import Monitor
        >>> rows = np.random.default_rng(0).normal(size=(1000, 3))
        >>> monitor = Monitor()
        >>> record = monitor.update(rows)
        >>> bool(np.isinf(record.threshold[0])), monitor.update([[9.0, 9.0, 9.0]]).is_alarm
        (True, array([ True]))
        """
        where = "Monitor.update"
        state, stream, last_time = self._state, self.model._stream, self._last_time
        skips = self.model.on_bad_rows == "skip"
        width, names = (None, None) if state is None else (state.n_features, state.names)
        if state is None and stream is not None:
            width = stream.n_features // self.lags
            names = stream.names.tolist() if stream.names is not None and self.lags == 1 else None
        rows = checked_rows(X, where, width, None if names is None else np.array(names, dtype=object), finite=not skips)
        if state is None:
            given = feature_names(X)
            state = self._started(rows.shape[1], names if given is None else [str(name) for name in given])
        breaks = self._breaks(rows, time, where)
        n = len(rows)
        record = MonitorRecord(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool))
        try:
            start = 0
            while start < len(rows):
                stop = min(len(rows), start + _CHUNK - state.n_rows % _CHUNK)
                piece = slice(start, stop)
                state = self._scored(state, rows[piece], breaks[piece], record.piece(piece))
                if state.n_rows % _CHUNK == 0:
                    state = self._learned(state)
                start = stop
        except BaseException:
            self.model._stream, self._last_time = stream, last_time
            raise
        self._state = state
        return record

    def stacked(self, X: Any) -> Array:
        """Return rows with their predecessors, as the model sees them; the first row stands for what came before it.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows in time order.

        Returns
        -------
        ndarray of shape (n, d * lags)
            The row itself first, then its predecessors, the latest first.

        Raises
        ------
        TypeError, ValueError
            X is not a finite real array.

        Examples
        --------
        >>> from streamkpca.monitoring import Monitor
        >>> Monitor(lags=2).stacked([[1.0], [2.0], [3.0]])
        array([[1., 1.],
               [2., 1.],
               [3., 2.]])
        """
        rows = checked_rows(X, "Monitor.stacked", None, None)
        return _stacked(rows, np.repeat(rows[:1], self.lags - 1, axis=0)) if len(rows) else rows

    def reset_context(self) -> Self:
        """Forget the predecessors of the next row and the smoothed score, as after a gap.

        Returns
        -------
        Monitor
            This monitor.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca.monitoring import Monitor
        >>> monitor = Monitor(lags=2, smoothing=0.3)
        >>> record = monitor.update(np.random.default_rng(0).normal(size=(500, 3)))
        >>> record = monitor.reset_context().update([[0.0, 0.0, 0.0]])
        >>> bool(np.isclose(record.smoothed[0], record.novelty[0]))
        True
        """
        if self._state is not None:
            self._state = replace(self._state, context=None, last_smoothed=None)
        self._last_time = None
        return self

    def forget_alarms(self) -> Self:
        """Take all rows so far for normal: forget their events, their alarms and the lasting change.

        Thresholds stay, and rows are counted on. Lags and smoothing start anew.

        Returns
        -------
        Monitor
            This monitor.

        Examples
        --------
        Learn all rows of a time without faults, and only normal rows from then on:

        >>> import numpy as np
        >>> from streamkpca.monitoring import Monitor
        >>> random = np.random.default_rng(0)
        >>> monitor = Monitor(learn="all")
        >>> record = monitor.update(random.normal(size=(1000, 3)))
        >>> monitor.forget_alarms().learn = "normal"
        >>> monitor.n_events_, monitor.update(random.normal(size=(1, 3)) + 9.0).is_alarm
        (0, array([ True]))
        """
        if self._state is not None:
            run = AlarmRun.none(self._state.n_features)
            self._state = replace(self._state, run=run, log=EventLog(), change=None, left_out=())
        return self.reset_context()

    def save(self, path: str | os.PathLike[str], extra: Any = None) -> None:
        """Write the monitor and its model to a file, which `load` of either reads.

        Parameters
        ----------
        path : path-like
            An existing file is replaced in one step, once the new one is complete and on the disk.
        extra : object, optional
            JSON data, which `load` returns as `extra_`.

        Raises
        ------
        OSError, TypeError, ValueError
            As `StreamingKernelPCA.save` raises them.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from streamkpca.monitoring import Monitor
        >>> monitor = Monitor(lags=2)
        >>> record = monitor.update(np.random.default_rng(0).normal(size=(1000, 3)))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     monitor.save(pathlib.Path(folder, "plant.npz"))
        ...     Monitor.load(pathlib.Path(folder, "plant.npz")).n_rows_
        1000
        """
        self.model.save(path, {"monitor": self._record(), "extra": extra})

    def to_bytes(self, extra: Any = None) -> bytes:
        """Return the bytes that `save` would write.

        Parameters
        ----------
        extra : object, optional
            As for `save`.

        Returns
        -------
        bytes

        Raises
        ------
        TypeError, ValueError
            As `save`.

        Examples
        --------
        However the rows are cut, the monitor is the same, to the byte:

        >>> import numpy as np
        >>> from streamkpca.monitoring import Monitor
        >>> rows = np.random.default_rng(0).normal(size=(1000, 3))
        >>> whole, pieces = Monitor(), Monitor()
        >>> record = whole.update(rows)
        >>> for piece in np.split(rows, [1, 500, 999]):
        ...     record = pieces.update(piece)
        >>> whole.to_bytes() == pieces.to_bytes()
        True
        """
        return self.model.to_bytes({"monitor": self._record(), "extra": extra})

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, kernel: Kernel | None = None) -> Self:
        """Read a monitor that `save` wrote.

        Parameters
        ----------
        path : path-like
        kernel : Kernel, optional
            As for `StreamingKernelPCA.load`.

        Returns
        -------
        Monitor
            With the `extra_` that it was saved with. It goes on as if it had never been stopped.

        Raises
        ------
        CheckpointError, OSError
            As `StreamingKernelPCA.load` raises them, or the file holds a model without a monitor.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from streamkpca.monitoring import Monitor
        >>> monitor = Monitor(smoothing=0.3)
        >>> record = monitor.update([[1.0, 2.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     monitor.save(pathlib.Path(folder, "plant.npz"), extra={"offset": 1})
        ...     loaded = Monitor.load(pathlib.Path(folder, "plant.npz"))
        >>> loaded.smoothing, loaded.extra_
        (0.3, {'offset': 1})
        """
        return cls._restored(StreamingKernelPCA.load(path, kernel=kernel), f"load: {os.fspath(path)!s}")

    @classmethod
    def from_bytes(cls, data: bytes, *, kernel: Kernel | None = None) -> Self:
        """Read a monitor that `to_bytes` wrote.

        Parameters
        ----------
        data : bytes
        kernel : Kernel, optional
            As for `StreamingKernelPCA.load`.

        Returns
        -------
        Monitor

        Raises
        ------
        CheckpointError
            As `load`.

        Examples
        --------
        >>> from streamkpca.monitoring import Monitor
        >>> monitor = Monitor()
        >>> record = monitor.update([[1.0, 2.0]])
        >>> Monitor.from_bytes(monitor.to_bytes()).n_rows_
        1
        """
        return cls._restored(StreamingKernelPCA.from_bytes(data, kernel=kernel), "from_bytes")

    def _record(self) -> dict[str, Any]:
        """Return JSON data that, with the model, determine the future of the monitor."""
        names = ("lags", "smoothing", "quantile", "learn", "accept_after", "max_gap")
        return {
            "parameters": {name: getattr(self, name) for name in names},
            "last_time": self._last_time,
            "state": None if self._state is None else state_record(self._state),
        }

    @classmethod
    def _restored(cls, model: StreamingKernelPCA, where: str) -> Self:
        found = model.extra_ if isinstance(model.extra_, dict) else {}
        if "monitor" not in found:
            raise CheckpointError(f"{where}: it holds a model without a monitor; read it with StreamingKernelPCA.load")
        try:
            record = found["monitor"]
            parameters = dict(record["parameters"])
            learn = parameters.pop("learn")
            state = None if record["state"] is None else state_from_record(record["state"], parameters["lags"])
            monitor = cls(model, learn="all", **parameters)
            monitor.learn = check_choice("learn", learn, choices=("normal", "all", "none"), where=where)
            monitor._last_time = None if record["last_time"] is None else float(record["last_time"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise CheckpointError(f"{where}: its monitor makes no sense: {error!r}") from None
        monitor._state, monitor.extra_ = state, found.get("extra")
        return monitor

    @property
    def events_(self) -> list[Event]:
        """Runs of alarms, the oldest first; the last may be open. The latest 1,000 are kept.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca.monitoring import Monitor
        >>> monitor = Monitor()
        >>> record = monitor.update(np.random.default_rng(0).normal(size=(1000, 3)))
        >>> all(event.n_alarms >= 1 for event in monitor.events_)
        True
        """
        return self._fitted("events_").log.events

    @property
    def n_events_(self) -> int:
        """Number of events so far, the open one included.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca.monitoring import Monitor
        >>> monitor = Monitor()
        >>> record = monitor.update(np.random.default_rng(0).normal(size=(64, 3)))
        >>> monitor.n_events_
        0
        """
        log = self._fitted("n_events_").log
        return log.n_closed + (log.current is not None)

    @property
    def change_detected_(self) -> Change | None:
        """The latest lasting change: since which row, and which features; None if there was none.

        Examples
        --------
        >>> import numpy as np
        >>> from streamkpca.monitoring import Monitor
        >>> rows = np.random.default_rng(0).normal(size=(3000, 2))
        >>> rows[1000:, 1] += 20.0
        >>> monitor = Monitor(accept_after=500)
        >>> record = monitor.update(rows)
        >>> change = monitor.change_detected_
        >>> change.start, change.detected, change.features[0].feature, bool(record.is_alarm[-500:].mean() < 0.05)
        (1000, 1536, 1, True)
        """
        return self._fitted("change_detected_").change

    @property
    def n_rows_(self) -> int:
        """Number of rows given.

        Examples
        --------
        >>> from streamkpca.monitoring import Monitor
        >>> monitor = Monitor()
        >>> record = monitor.update([[1.0, 2.0], [3.0, 4.0]])
        >>> monitor.n_rows_
        2
        """
        return self._fitted("n_rows_").n_rows

    # One chunk

    def _scored(self, state: MonitorState, rows: Array, breaks: Flags, record: MonitorRecord) -> MonitorState:
        """Score rows (n, d) of one chunk into a record; the model and the threshold stay the same."""
        first, good = state.n_rows, np.logical_and.reduce(np.isfinite(rows), axis=1)
        record.threshold[:] = state.scores.threshold
        log, context, last, waiting = state.log, state.context, state.last_smoothed, state.waiting
        for start, stop in _runs(breaks, good):
            if breaks[start] or not good[start]:
                context = last = None
            if not good[start]:
                record.novelty[start:stop] = record.smoothed[start:stop] = np.nan
                continue
            run = rows[start:stop]
            # Rows whose predecessors are made up are not learned, except the first rows of all.
            n_made_up = self.lags - 1 if context is None and state.n_rows else 0
            if context is None:
                context = np.repeat(run[:1], self.lags - 1, axis=0)
            stacked = _stacked(run, context)
            context = np.concatenate([run[::-1], context])[: self.lags - 1]
            novelty = self._novelty(stacked)
            smoothed = smoothed_run(novelty, self.smoothing, last)
            last = float(smoothed[-1])
            is_alarm = smoothed > state.scores.threshold
            usual = ~is_alarm & (novelty <= state.scores.raw_threshold)
            usual[:n_made_up] = False
            record.novelty[start:stop], record.smoothed[start:stop] = novelty, smoothed
            record.is_alarm[start:stop] = is_alarm
            waiting = (*waiting, ScoredRows(stacked, novelty, smoothed, is_alarm, usual))
            log = self._logged(state, log, waiting[-1], first + start)
        return replace(
            state,
            n_rows=first + len(rows),
            run=state.run.advanced(record.is_alarm, first),
            log=log,
            context=context,
            last_smoothed=last,
            waiting=waiting,
        )

    def _logged(self, state: MonitorState, log: EventLog, rows: ScoredRows, first: int) -> EventLog:
        """Add the alarms among rows from position `first` on to the events."""
        n = len(rows.novelty)
        for i in np.flatnonzero(rows.is_alarm).tolist():
            if log.is_over(first + i):
                log = self._described(state, log, rows, first).ended(_MOST_EVENTS)
            log = log.alarmed(first + i, float(rows.novelty[i]), float(rows.smoothed[i]), self._n_few)
        log = self._described(state, log, rows, first)
        return log.ended(_MOST_EVENTS) if log.is_over(first + n) else log

    def _described(self, state: MonitorState, log: EventLog, rows: ScoredRows, first: int) -> EventLog:
        """Name the features of the open event's peak, if that is among rows from position `first` on."""
        event = log.current
        if event is None or not first <= event.peak_row < first + len(rows.novelty):
            return log
        contributions = self._contributions(rows.stacked[event.peak_row - first], state.n_features)
        return log._replace(current=replace(event, features=largest_contributions(contributions, state.names)))

    def _learned(self, state: MonitorState) -> MonitorState:
        """Learn the rows of a chunk, and renew the thresholds."""
        log, scores, run = state.log, state.scores, state.run
        n_learned, left_out = state.n_learned, state.left_out
        if state.waiting:
            rows = state.all_waiting
            learns_all = self.learn == "all" or n_learned < _LEARNED_WHOLE
            chosen = np.ones(len(rows.usual), dtype=bool) if learns_all else rows.usual
            if self.learn != "none" and chosen.any():
                self.model.partial_fit(rows.stacked[chosen])
                n_learned += int(np.count_nonzero(chosen))
            if self.learn == "normal" and not chosen.all():
                left_out = self._latest((*left_out, rows.stacked[~chosen]))
            counting = ~rows.is_alarm
            released = np.array(log.released).reshape(-1, 2)
            scores = scores.added(
                np.concatenate([released[:, 0], rows.novelty[counting]]),
                np.concatenate([released[:, 1], rows.smoothed[counting]]),
            )
            if run.excess and rows.is_alarm.any():
                run = run.explained(self._contributions(rows.stacked[np.argmax(rows.novelty)], state.n_features))
        state = replace(
            state,
            scores=scores,
            run=run,
            log=log._replace(released=()),
            n_learned=n_learned,
            waiting=(),
            left_out=left_out if run.excess else (),
        )
        if run.excess >= self.accept_after:
            state = self._changed(state)
        young = max((n for n in _YOUNG if n <= state.n_learned), default=0)
        return self._calibrated(replace(state, n_young=young)) if young > state.n_young else state

    def _changed(self, state: MonitorState) -> MonitorState:
        """Report a lasting change and, if normal rows are learned, learn the rows since as such."""
        run, features = state.run, state.run.contributions
        is_accepted = self.learn == "normal"
        change = Change(
            start=run.start,
            detected=state.n_rows,
            share=run.n_alarms / (state.n_rows - run.start),
            features=largest_contributions(features / max(features.sum(), 1e-300), state.names),
            is_accepted=is_accepted,
        )
        rows = state.left_out
        state = replace(state, change=change, run=AlarmRun.none(state.n_features), left_out=())
        if not is_accepted:
            return state
        new = np.concatenate(rows)
        # The second half shows how novel such rows are for a model that knows the first half.
        first, second = np.array_split(new, 2)
        self.model.partial_fit(first).refit()
        novelty = self._novelty(second)
        self.model.partial_fit(second)
        state = replace(state, n_learned=state.n_learned + len(new))
        if self.model._require_stream("update").holds_all_rows:
            return self._calibrated(state)
        self.model.refit()
        return replace(state, scores=state.scores.renewed(novelty, smoothed_run(novelty, self.smoothing, None)))

    def _latest(self, rows: tuple[Array, ...]) -> tuple[Array, ...]:
        """Drop the oldest of some arrays of rows while the others hold enough."""
        most = max(_MOST_KEPT // rows[0].shape[1], _CHUNK)
        while sum(map(len, rows[1:])) >= most:
            rows = rows[1:]
        return rows

    def _calibrated(self, state: MonitorState) -> MonitorState:
        """Publish axes of all rows, and take the thresholds from rows that are left out in turn."""
        self.model.refit()
        settings = self.model._settings("Monitor")
        runs = held_out_runs(self.model._require_stream("update"), settings, math.ceil(1.0 / (1.0 - self.quantile)))
        smoothed = [smoothed_run(scores, self.smoothing, None) for scores in runs]
        if not runs:
            return state
        return replace(state, scores=state.scores.replaced(np.concatenate(runs), np.concatenate(smoothed)))

    def _started(self, n_features: int, names: list[str] | None) -> MonitorState:
        """Return the state before the first row, with thresholds if the model has learned rows."""
        state = MonitorState(n_features, names, RecentScores.none(self.quantile), AlarmRun.none(n_features), EventLog())
        if self.model._stream is None:
            return state
        n_learned = self.model.n_samples_seen_
        return self._calibrated(replace(state, n_learned=n_learned, n_young=n_learned))

    def _novelty(self, stacked: Array) -> Array:
        """Score rows; before the first refit there is nothing to compare them with."""
        stream = self.model._stream
        if stream is None or stream.published is None:
            return np.zeros(len(stacked))
        rows, score = stream.rounded(stacked, "Monitor.update", finite=True), stream.published.novelty
        # One by one, because matrix products round differently for different numbers of rows.
        return np.concatenate([score(rows[i : i + 1]) for i in range(len(rows))])

    def _contributions(self, row: Array, n_features: int) -> Array:
        """Return what each feature (d,) adds to the novelty of a row with its predecessors."""
        of_all: Array = self.model.contributions(row[None])[0]
        summed: Array = of_all.reshape(self.lags, n_features).sum(axis=0)
        return summed

    def _breaks(self, rows: Array, time: Any, where: str) -> Flags:
        """Tell before which rows lags and smoothing start anew, and remember the last time."""
        breaks = np.zeros(len(rows), dtype=bool)
        if time is None or not len(rows):
            return breaks
        times = np.asarray(time, dtype=np.float64)
        if times.shape != (len(rows),) or not np.isfinite(times).all():
            raise ValueError(
                f"{where} expected one finite time for each of {len(rows)} rows but got an array of shape "
                f"{times.shape}; pass times as numbers, such as seconds"
            )
        if self.max_gap is not None:
            first = times[0] if self._last_time is None else self._last_time
            breaks = np.diff(times, prepend=first) > self.max_gap
        self._last_time = float(times[-1])
        return breaks

    def _fitted(self, request: str) -> MonitorState:
        if self._state is None:
            raise not_fitted("Monitor", request)
        return self._state


def _stacked(rows: Array, context: Array) -> Array:
    """Return rows (n, d), each with the rows before it, given those before the first one, the latest first."""
    if not len(context):
        return rows
    n, n_before = len(rows), len(context)
    series = np.concatenate([context[::-1], rows])
    return np.concatenate([series[n_before - lag : n_before - lag + n] for lag in range(n_before + 1)], axis=1)


def _runs(breaks: Flags, good: Flags) -> list[tuple[int, int]]:
    """Cut rows where lags start anew, and where good rows change to bad ones or back."""
    edges = [0, *(np.flatnonzero(breaks[1:] | (good[1:] != good[:-1])) + 1).tolist(), len(good)]
    return list(itertools.pairwise(edges))
