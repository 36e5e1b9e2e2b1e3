"""The monitor: scores the rows of a stream, raises alarms, and learns what is normal."""

import copy
import inspect
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.concurrency import replaced
from streamkpca._core.parameters import check_choice, check_integer, check_real
from streamkpca.errors import RowError, required
from streamkpca.kernels import RBF
from streamkpca.models.saving import SavedWithModel, check_model
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.monitoring.causes import EventRows
from streamkpca.monitoring.contract import Contract, judged, renewed
from streamkpca.monitoring.events import AlarmRun, Change, Event, EventLog, events_frame, time_of
from streamkpca.monitoring.learning import CHUNK, LEARN, YOUNG, accepted, calibrated, caught_up, has_grown
from streamkpca.monitoring.periods import checked_period, n_features_of, with_phases
from streamkpca.monitoring.rules import as_seconds, check_known, checked_rules, is_count, is_ignored, is_short
from streamkpca.monitoring.scoring import WHOLE, Scorer, with_predecessors
from streamkpca.monitoring.state import MonitorState, ScoredRows, state_from_record, state_record
from streamkpca.monitoring.thresholds import RecentScores
from streamkpca.rows.times import Times, as_times, without_times
from streamkpca.rows.validation import Rows, checked_parts, feature_names, parts_of, round_to_single

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# Rows that are scored with one model and one threshold, as results must not depend on how calls cut the rows: one for
# so many rows that came before, rounded down to a power of two, and this many at most.
_LONG_CHUNK, _ROWS_FOR_ONE = 256, 16
# Alarms that make a lasting change: this many times the learned rows, and at least so many, while that is less than
# `accept_after`.
_MAJORITY, _LEAST_CHANGE = 4, 256
_MOST_EVENTS = 1000
# Scores, thresholds and states are made with these.
_FIXED = ("model", "period", "lags", "smoothing", "quantile", "false_alarms")
_QUANTILE = 0.99
# Rarer false alarms would need more than five million healthy rows.
_RAREST = 1e-7
# On ten families of real streams, mean average precision after training was 0.61; with 256 atoms, it was 0.60.
_ATOMS = 128


class MonitorRecord(NamedTuple):
    """Answers of `Monitor.update` to its rows; arrays of shape (n,).

    Parameters
    ----------
    novelty : ndarray
        Scores in units of k(x, x); 0 before there is a model, NaN for rows that are skipped.
    smoothed : ndarray
        Exponentially weighted scores, which are compared with the threshold; without smoothing, `novelty`.
    threshold : ndarray
        Level above which a row is an alarm; infinite before there is one. With `false_alarms`, within an alarm run that
        of the quantile, else the higher one at which runs begin.
    is_alarm : ndarray of bool
    time : ndarray of datetime64 or float, optional
        Times of the rows, in UTC; None without times.

    Examples
    --------
    >>> from streamkpca.monitoring import Monitor
    >>> Monitor().update([[1.0, 2.0]]).threshold
    array([inf])
    """

    novelty: Array
    smoothed: Array
    threshold: Array
    is_alarm: Flags
    time: Times | None = None


class Monitor(SavedWithModel[MonitorState]):
    """Watch a stream: score its rows, raise alarms, gather them in events, and learn the rows that are normal.

    Parameters
    ----------
    model : StreamingKernelPCA, optional
        The model that scores and learns, which may have learned rows before; with `lags`, such rows as `stacked`
        makes. By default a new one with the kernel ``RBF().in_units("std")``, ``max_atoms=128`` and
        ``noise_variance=None``. It belongs to the monitor from then on. One with ``on_missing="marginal"`` scores rows
        by the numbers that they have, and learns them; with "skip", rows with NaN get no score. With `period`, its
        kernel is multiplied by one of the phase, unless the last factor of it is such a kernel already. If it has
        learned rows, that must be so, as in the model of another monitor with a period.
    period : int, float or timedelta, optional
        Length of a cycle, such as a day: rows (int), or time (timedelta; float in units of the times, seconds where
        these are dates). Rows are then compared with those of about the same phase, and what is expected depends on
        it. Until one period has passed there is no threshold. Dates are in UTC, so daylight saving moves the phase.
    lags : int, default=1
        Rows that are scored together, each with its predecessors: the model sees d times `lags` features. Only for rows
        in time order.
    smoothing : float, optional
        Weight, between 0 and 1, of the newest score in the exponentially weighted mean that alarms are raised by. None:
        the scores themselves. Only for rows in time order.
    quantile : float, default=0.99
        Share of normal rows that should be below the threshold.
    false_alarms : float, optional
        False alarm runs for each healthy row, at most, such as 1 / 10_000; from 1e-7 to .01. Alarms then begin at a
        higher level, which `contract_` explains, and there are none until enough healthy rows are known. Learning,
        lasting changes and severities stay as they are without it. Only for rows in time order.
    learn : {"normal", "all", "none"}
        Rows that the model learns: normal ones, which do not stand out and have few alarms around them; all; or none.
        The first 512 rows are learned unless they are grossly novel. After the first 2,048 rows, the later half of
        those that follow waits, up to 1,024; rows that wait when learning ends are learned first.
    accept_after : int, default=1000
        Alarms, beyond one in twenty rows, after which they are a lasting change, and with ``learn="normal"`` are
        learned; at least 32. While few rows are learned, four alarms for each of them are enough, and at least 256.
    max_gap : float or timedelta, optional
        Largest time between two rows, in seconds where times are dates. After a longer one, or after a row that was
        skipped, lags and smoothing start anew: the first row stands for its predecessors, and rows with such
        predecessors are not learned, unless all are.
    end_after : int, default=10
        Rows without an alarm after which an event ends.
    min_duration : int, float or timedelta, optional
        Rows (int), or time (timedelta; float in units of the times, seconds where these are dates), from the first
        alarm to the last that an event needs to be reported. Shorter ones are not in `events_`.
    ignore : dict, optional
        For features, by name or position, "above" or "below", a largest difference from the expected value, or a list
        of these. An event is not reported if each of its features deviates as one of its rules says.

    Raises
    ------
    TypeError, ValueError
        A parameter is out of its range; `model` is something else, has learned nothing though ``learn="none"``, has
        learned rows of a width that is no multiple of `lags`, or without phases though there is a `period`, or has
        neither a budget of atoms nor a random sample.

    Notes
    -----
    **Scores** are `StreamingKernelPCA.novelty` of each row, before it is learned. Until 64 rows are learned, scores are
    0, there is no threshold, and no row is an alarm. With ``learn="none"`` any model has scores and a threshold.

    **Phases** t, as shares of a period, are two columns, cos 2 pi t and sin 2 pi t, which units and widths do not see.
    Their kernel is an RBF whose standard deviation is 1/24 of the period: an hour of a day. They count from the first
    row, from 1970 in UTC, or from time 0. All rows of the first period are learned, as each phase is new then.

    **Thresholds** are quantiles of the scores of healthy rows among the latest 2,048, smoothed as the new ones are: the
    level of split-conformal prediction [1]_. An eighth of the scores may be of anomalies: those beyond a valley of the
    logarithms, or beyond an exponential tail through their middle and .85 quantile, do not count, nor do rows with 50
    alarms or more among 201 neighbours. So where healthy scores have a heavier tail, or a rare state of its own,
    false alarms are more. While the model is young, and whenever the scale of its kernel is settled again, the scores
    are those of rows that wait to be learned and, if these are few, of learned rows that are left out in turn. For
    exchangeable rows the share of false alarms is 1 - `quantile`, up to chance; where neighbours resemble each other or
    the stream changes, expect several times that.

    **Events** are runs of alarms with less than `end_after` rows between them. **Lasting changes** are found by Page's
    cumulative sum of alarms less one in twenty rows [2]_. When it reaches `accept_after`, after 1,053 rows of alarms or
    5,000 rows of which a quarter are, the change is reported as `change_detected_`, and with ``learn="normal"`` the
    latest of these rows are learned, but for those that stand out among them. With ``learn="none"`` it is reported
    once, and alarms go on.

    Results do not depend on how calls cut the stream. Monitors are not merged: their thresholds belong to one order of
    rows. `model`, `period`, `lags`, `smoothing`, `quantile` and `false_alarms` cannot change; the other parameters may
    be set later, for the rows to come. One thread may update while others read; writers and `save` wait for each other.

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
    >>> event.start, event.features[0].feature
    (1500, 3)
    """

    _entry = _noun = "monitor"

    def __init__(
        self,
        model: StreamingKernelPCA | None = None,
        *,
        period: float | timedelta | np.timedelta64 | None = None,
        lags: int = 1,
        smoothing: float | None = None,
        quantile: float = _QUANTILE,
        false_alarms: float | None = None,
        learn: str = "normal",
        accept_after: int = 1000,
        max_gap: float | timedelta | np.timedelta64 | None = None,
        end_after: int = 10,
        min_duration: float | timedelta | np.timedelta64 | None = None,
        ignore: Mapping[str | int, Any] | None = None,
    ) -> None:
        where = "Monitor"
        if model is not None:
            check_model(model, where)
        # Scores need no sparse weights, which a noise variance is for.
        self.model = model or StreamingKernelPCA(kernel=RBF().in_units("std"), max_atoms=_ATOMS, noise_variance=None)
        if self.model.max_atoms is None and self.model.reservoir_size == 0:
            raise ValueError(
                f"{where}: with max_atoms=None, thresholds come from the model's random sample, but reservoir_size is "
                "0; give the model reservoir_size=512 or a number of atoms"
            )
        self.period: Any = checked_period(period, where)
        self.lags = check_integer("lags", lags, least=1, where=where)
        if smoothing is not None:
            smoothing = check_real("smoothing", smoothing, least=0.0, most=1.0, open_below=True, where=where)
        self.smoothing = smoothing
        self.quantile = check_real(
            "quantile", quantile, least=0.0, most=1.0, open_below=True, open_above=True, where=where
        )
        if false_alarms is not None:
            if isinstance(false_alarms, int | float) and 1.0 < false_alarms <= 1.0 / _RAREST:
                raise ValueError(
                    f"{where} expects false_alarms as a rate below 1 but got {false_alarms!r}; for one false alarm in "
                    f"{false_alarms:,.0f} healthy rows, pass 1 / {false_alarms:_.0f}"
                )
            false_alarms = check_real(
                "false_alarms", false_alarms, least=_RAREST, most=1.0, open_above=True, where=where
            )
            if self.quantile != _QUANTILE:
                raise ValueError(
                    f"{where} expects false_alarms or quantile but got both; with false_alarms, leave quantile out"
                )
            if false_alarms > 1.0 - self.quantile:
                raise ValueError(
                    f"{where} expects false_alarms of at most {1.0 - self.quantile:.2g} a row but got "
                    f"{false_alarms:g}; for more alarms, pass quantile={1.0 - false_alarms:g} instead"
                )
        self.false_alarms = false_alarms
        self._answers: MonitorRecord | None = None
        self._scorer = Scorer(self.model, self.period, self.lags, smoothing)
        self.learn, self.accept_after = learn, accept_after
        self.max_gap, self.end_after = max_gap, end_after
        self.min_duration: Any = min_duration
        self.ignore: Any = ignore
        self._check_learns(where)

    def __setattr__(self, name: str, value: Any) -> None:
        where = "Monitor"
        if name in _FIXED and name in self.__dict__:
            raise AttributeError(
                f"{where}: {name} cannot change, as scores and thresholds were made with the present one; begin a new "
                f"Monitor({'' if name in ('model', 'period') else 'monitor.model, '}{name}=...)"
            )
        if name == "learn":
            value = check_choice(name, value, choices=LEARN, where=where)
        elif name == "accept_after":
            value = check_integer(name, value, least=CHUNK, where=where)
        elif name == "end_after" or (name == "min_duration" and is_count(value)):
            value = check_integer(name, value, least=1, where=where)
        elif name in ("max_gap", "min_duration") and value is not None:
            value = as_seconds(name, value, where)
        elif name == "ignore":
            value = checked_rules(value, where)
        object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        # The rows that the model has learned and the thresholds belong together, so no update may come between.
        with self.model.write_lock:
            scorer = copy.copy(self._scorer)
            return vars(self) | {"model": scorer.model, "_scorer": scorer}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Not of what `__getstate__` returns: a copy of a monitor and its model must hold one model, not two.
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        with self.model.write_lock:
            vars(twin).update(copy.deepcopy(vars(self).copy(), memo))
        return twin

    def __copy__(self) -> Self:
        # Two monitors that share a model would learn its rows twice.
        return copy.deepcopy(self)

    def update(self, X: Any, *, time: Any = None) -> MonitorRecord:
        """Score the next rows, then learn those that are to be learned, in chunks of 32 to 256 as the stream grows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows of the stream, without lags.
        time : array-like of shape (n,) or str, optional
            Their times, ascending, as ``datetime64``, ``datetime`` or numbers, or the name of the column of X that
            holds them. By default the index of a pandas frame, if it is a DatetimeIndex. Dates with a zone become UTC.

        Returns
        -------
        MonitorRecord

        Raises
        ------
        TypeError, ValueError
            As `StreamingKernelPCA.partial_fit` raises them, or the times are not one ascending time a row. The monitor
            is as before the call.

        Examples
        --------
        >>> monitor = Monitor()
        >>> record = monitor.update(np.random.default_rng(0).normal(size=(1000, 3)))
        >>> bool(np.isinf(record.threshold[0])), monitor.update([[9.0, 9.0, 9.0]]).is_alarm
        (True, array([ True]))
        >>> record = monitor.update([[9.0, 9.0, 9.0]], time=[np.datetime64("2026-05-04T14:02")])
        >>> monitor.events_[-1].end_time
        np.datetime64('2026-05-04T14:02')
        """
        where = "Monitor.update"
        with self.model.write_lock:
            self._check_learns(where)
            state, before = self._state, self._scorer.states
            X, time = without_times(X, time, where)
            rows, names = self._checked(X, where)
            times, breaks = self._breaks(rows, time, where)
            n = len(rows)
            record = MonitorRecord(np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n, dtype=bool), times)
            try:
                if state is None:
                    state = self._started(rows.shape[1], names)
                if self.ignore:
                    check_known(self.ignore, state.n_features, state.names, where)
                start = 0
                while start < n:
                    chunk = 1 << max(state.n_rows // _ROWS_FOR_ONE, 1).bit_length() - 1
                    chunk = min(max(chunk, CHUNK), _LONG_CHUNK)
                    stop = min(n, start + chunk - state.n_rows % chunk)
                    try:
                        state = self._scored(state, rows[start:stop], breaks[start:stop], _part(record, start, stop))
                    except RowError as error:
                        raise error.at(start + error.row) from None
                    if state.n_rows % chunk == 0:
                        state = self._learned(state)
                    start = stop
            except BaseException:
                self._scorer.states = before
                raise
            self._state, self._answers = state, record
        return record

    def stacked(self, X: Any, *, first: int = 0, time: Any = None) -> Array:
        """Return rows with their predecessors, as the model sees them; the first row stands for what came before it.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows in time order.
        first : int, default=0
            Position of the first row in the stream, for a period in rows.
        time : array-like of shape (n,) or str, optional
            Their times, as for `update`, for a period in time.

        Returns
        -------
        ndarray of shape (n, d * lags), or (n, d * lags + 2) with a period
            The row itself first, then its predecessors, the latest first; at last cosine and sine of the phase.

        Raises
        ------
        TypeError, ValueError
            X is not a finite real array, or the times are not one ascending time a row.

        Examples
        --------
        >>> Monitor(lags=2).stacked([[1.0], [2.0], [3.0]])
        array([[1., 1.],
               [2., 1.],
               [3., 2.]])
        """
        where = "Monitor.stacked"
        X, time = without_times(X, time, where)
        rows = checked_parts(X, where, None, None, gaps=self.model.on_missing == "marginal")
        n, d = rows.shape
        out, before = np.empty((n, self.lags * d)), np.repeat(rows[:1], self.lags - 1, axis=0)
        for place, part in parts_of(rows, 2 * d * self.lags):
            out[place], before = with_predecessors(part, before)
        first = check_integer("first", first, least=0, where=where)
        times = None if time is None else as_times(time, n, None, where)[0]
        return with_phases(out, self.period, first, times, where)

    def reset_context(self) -> Self:
        """Forget the predecessors of the next row, the smoothed score and the last time, and end the open event.

        Returns
        -------
        Monitor
            This monitor.

        Examples
        --------
        >>> monitor = Monitor(lags=2)
        >>> record = monitor.update([[1.0], [2.0]], time=[5.0, 6.0])
        >>> monitor.reset_context().update([[3.0]], time=[0.0]).is_alarm
        array([False])
        """
        with self.model.write_lock:
            if self._state is not None:
                state = self._closed(self._state).begun_anew()
                self._state = replace(state, time_passed=state.all_time_passed, first_time=None, last_time=None)
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
        >>> monitor = Monitor(learn="all")
        >>> record = monitor.update(np.random.default_rng(0).normal(size=(500, 3)))
        >>> monitor.forget_alarms().learn = "normal"
        >>> monitor.n_events_
        0
        """
        with self.model.write_lock:
            if self._state is not None:
                run, rest = AlarmRun(), self._state.left_out[:0]
                self._state = replace(self._state, run=run, log=EventLog(), change=None, left_out=rest)
            return self.reset_context()

    def _record(self) -> dict[str, Any]:
        return {
            "parameters": {
                **{name: getattr(self, name) for name in _PARAMETERS},
                "ignore": [[feature, list(rules)] for feature, rules in self.ignore.items()],
            },
            "state": None if self._state is None else state_record(self._state),
        }

    @classmethod
    def _made(cls, model: StreamingKernelPCA, record: dict[str, Any]) -> Self:
        monitor = cls(model, **{**dict.fromkeys(_PARAMETERS, ...), **record["parameters"]})
        if record["state"] is not None:
            scorer = monitor._scorer
            state = state_from_record(record["state"], scorer.record_context, monitor.quantile)
            if monitor.false_alarms != (None if state.contract is None else state.contract.false_alarms):
                raise ValueError("its contract is another one")
            if scorer.known is None:
                if state.n_learned or np.isfinite(state.scores.threshold):
                    raise ValueError("it has learned rows, but its model has not")
            elif model.n_features_in_ != scorer.width(state.n_features):
                raise ValueError("its model has another number of features")
            monitor._state = state
        return monitor

    @property
    def events_(self) -> list[Event]:
        """Runs of alarms that are reported, the oldest first; the last may be open. The latest 1,000 are kept."""
        state = required(self._state, "Monitor", "events_")
        opened = self._explained(state)
        return [*state.log.closed, *([opened] if opened else [])]

    @property
    def n_events_(self) -> int:
        """Number of events so far, the open one included."""
        state = required(self._state, "Monitor", "n_events_")
        log = state.log
        is_short_one = log.current is None or is_short(log.current, self.min_duration)
        return log.n_closed + (not is_short_one and (not self.ignore or self._explained(state) is not None))

    def events_frame(self, to: str = "pandas") -> Any:
        """Return the events as a table, a row each, the oldest first.

        Parameters
        ----------
        to : {"pandas", "polars"}

        Returns
        -------
        DataFrame
            The columns `start` to `peak_time` and `is_open` of `Event`, and of the first of its features `feature`,
            `direction`, `value` and `expected`.

        Raises
        ------
        ImportError, ValueError
            pandas or polars is not installed, or `to` is another word.

        Examples
        --------
        >>> monitor = Monitor()
        >>> record = monitor.update(np.random.default_rng(0).normal(size=(1000, 3)))
        >>> record = monitor.update([[0.0, 9.0, 0.0]])
        >>> monitor.events_frame().nlargest(1, "severity")[["start", "n_alarms", "feature"]].values.tolist()
        [[1000, 1, 1]]
        """
        return events_frame(self.events_, to, "Monitor.events_frame")

    def __repr__(self) -> str:
        state = self._state
        if state is None:
            return f"<Monitor: no rows yet, learn={self.learn!r}>"
        return (
            f"<Monitor: {state.n_rows:,} rows, {self.n_events_:,} events, threshold {state.scores.threshold:.3g}, "
            f"learn={self.learn!r}, {state.n_learned:,} rows learned>"
        )

    def _explained(self, state: MonitorState) -> Event | None:
        """Return the open event with its causes, if there is one that is reported."""
        event, rows = state.log.current, state.log.rows
        if event is None or rows is None or self._scorer.known is None or is_short(event, self.min_duration):
            return None
        features = self._scorer.causes(rows, state.scores.threshold, state.names)
        return None if is_ignored(features, self.ignore) else replace(event, features=features)

    def _closed(self, state: MonitorState) -> MonitorState:
        """End the open event, if there is one."""
        if state.log.current is None:
            return state
        return replaced(state, log=state.log.ended(self._explained(state), _MOST_EVENTS))

    @property
    def change_detected_(self) -> Change | None:
        """The latest lasting change: since which row, and which features; None if there was none.

        Examples
        --------
        >>> monitor = Monitor()
        >>> record = monitor.update([[1.0, 2.0]])
        >>> monitor.change_detected_ is None
        True
        """
        return required(self._state, "Monitor", "change_detected_").change

    @property
    def contract_(self) -> Contract | None:
        """How many healthy rows the promise of `false_alarms` needs, how many are known, and its level.

        Examples
        --------
        >>> monitor = Monitor(false_alarms=1 / 10_000)
        >>> record = monitor.update([[1.0, 2.0]])
        >>> monitor.contract_
        <Contract: one false alarm run in 10,000 healthy rows needs 5,000 healthy rows, 0 known; no alarm before>
        """
        return required(self._state, "Monitor", "contract_").contract

    @property
    def record_(self) -> MonitorRecord:
        """Answers to the latest call of `update`, which `plots.draw_novelty` draws; files do not hold them.

        Examples
        --------
        >>> monitor = Monitor()
        >>> monitor.update([[1.0, 2.0]]) is monitor.record_
        True
        """
        required(self._state, "Monitor", "record_")
        if self._answers is None:
            raise AttributeError(
                "Monitor: files do not hold record_, the answers to the latest rows; call update first"
            )
        return self._answers

    # One chunk

    def _scored(self, state: MonitorState, rows: Array, breaks: Flags, record: MonitorRecord) -> MonitorState:
        """Score the rows (n, d) of one chunk into their record; the model and the threshold stay the same."""
        record.threshold[:] = threshold = state.scores.threshold
        for start, stop, is_good in self._scorer.runs(rows, breaks):
            part, first, contract = _part(record, start, stop), state.n_rows, state.contract
            if breaks[start] or not is_good:
                state = state.begun_anew()
            if is_good:
                is_new = state.last_smoothed is None
                try:
                    state = self._scorer.scored(state, rows[start:stop], part.time, self.learn != "none")
                except RowError as error:
                    raise error.at(start + error.row) from None
                stacked, part.novelty[:], part.smoothed[:], exceeds, _ = state.waiting[-1]
                part.is_alarm[:] = exceeds
                if contract is not None:
                    contract, part.is_alarm[:], part.threshold[:] = judged(
                        contract, part.smoothed, threshold, is_new, state.n_learned
                    )
                if np.count_nonzero(part.is_alarm):
                    state = self._logged(state, first, stacked, part)
            else:
                state, exceeds = state.passed(stop - start, part.time), part.is_alarm
                part.novelty[:] = part.smoothed[:] = np.nan
            run = state.run.advanced(exceeds, first, part.time)
            if run is not state.run or contract is not state.contract:
                state = replaced(state, run=run, contract=contract)
        return self._closed(state) if state.log.is_over(state.n_rows, self.end_after) else state

    def _logged(self, state: MonitorState, first: int, rows: Array, record: MonitorRecord) -> MonitorState:
        """Add the alarms among rows (n, D) from position `first` on to the events."""
        experience = state.n_learned / (state.n_learned + WHOLE)
        for i in np.flatnonzero(record.is_alarm).tolist():
            if state.log.is_over(first + i, self.end_after):
                state = self._closed(state)
            # No number that files hold is larger.
            ratio = min(float(record.smoothed[i]) / state.scores.threshold, sys.float_info.max)
            time = time_of(record.time, i)
            log = state.log.alarmed(first + i, rows[i], float(record.novelty[i]), ratio**experience, time)
            state = replaced(state, log=log)
        return state

    def _learned(self, state: MonitorState) -> MonitorState:
        """Learn the rows whose time has come, and renew the thresholds."""
        scorer, learn, n_young, kernel = self._scorer, self.learn, state.n_young, self._scorer.kernel
        if state.waiting:
            rows = ScoredRows.joined(state.waiting)
            state = replaced(state, scores=state.scores.added(rows.novelty, rows.smoothed, rows.is_alarm))
            if learn != "none":
                late, is_usual = (state.late, rows.stacked), (state.is_usual, rows.usual | (learn == "all"))
                state = replaced(state, late=np.concatenate(late), is_usual=np.concatenate(is_usual))
        contract = None if state.contract is None else renewed(state.contract)
        state = caught_up(replaced(state, waiting=(), contract=contract), scorer, learn)
        is_due = learn == "none" and not np.isfinite(state.scores.threshold)
        if state.run.excess >= min(self.accept_after, max(_MAJORITY * state.n_learned, _LEAST_CHANGE)):
            state, is_due = self._changed(state)
        # Scores in another scale of the kernel cannot be compared with thresholds in the last one.
        is_due |= has_grown(state, scorer) or (n_young > 0 and scorer.kernel != kernel)
        return calibrated(state, scorer, learn) if is_due else state

    def _changed(self, state: MonitorState) -> tuple[MonitorState, bool]:
        """Report a lasting change and, if normal rows are learned, learn the rows since as such.

        Returns also whether thresholds are to be found anew.
        """
        run, log = state.run, state.log
        if self.learn == "none" and state.change is not None and state.change.start == run.start:
            # It lasts. Its sum stays where it is, so that its end is noticed soon.
            return replace(state, run=replace(run, excess=float(self.accept_after))), False
        rows = np.concatenate([state.left_out, state.late[~state.is_usual]])
        if not len(rows) and log.rows is not None:
            rows = log.rows.rows
        kept = EventRows.of_run(rows, run.start, run.start_time)
        change = Change(
            start=run.start,
            detected=state.n_rows,
            share=run.n_alarms / (state.n_rows - run.start),
            features=self._scorer.causes(kept, state.scores.threshold, state.names) if len(rows) else (),
            is_accepted=self.learn != "none",
            start_time=run.start_time,
            detected_time=state.last_time,
        )
        state = replace(state, change=change)
        if self.learn == "none":
            return state, False
        # Its alarms are explained by the model that raised them.
        return accepted(self._closed(state), self._scorer, self.learn)

    def _checked(self, X: Any, where: str) -> tuple[Rows, list[str] | None]:
        """Return the rows, in the model's precision, and the names of their features."""
        state, stream, skips = self._state, self._scorer.known, self.model.on_bad_rows == "skip"
        width, names = (None, None) if state is None else (state.n_features, state.names)
        if state is None and stream is not None:
            width = n_features_of(stream.n_features, self.lags, self.period)
            names = stream.names.tolist()[:width] if stream.names is not None and self.lags == 1 else None
        known = None if names is None else np.array(names, dtype=object)
        rows = checked_parts(X, where, width, known, finite=not skips, gaps=self.model.on_missing != "raise")
        if self.model.dtype == "float32":
            rows = round_to_single(rows, where, finite=not skips)
        if names is None and state is None:
            given = feature_names(X)
            names = None if given is None else [str(name) for name in given]
        return rows, names

    def _started(self, n_features: int, names: list[str] | None) -> MonitorState:
        """Return the state before the first row, with thresholds if the model has learned enough rows."""
        scores, run = RecentScores.none(self.quantile), AlarmRun()
        self._scorer.begin(n_features)
        none, is_usual = np.empty((0, self._scorer.width(n_features))), np.empty(0, dtype=bool)
        state = MonitorState(n_features, names, none, is_usual, none, scores, run, EventLog())
        if self.false_alarms is not None:
            state = replace(state, contract=Contract(self.false_alarms))
        if self._scorer.known is None:
            return state
        n_learned = self.model.n_samples_seen_
        state = replace(state, n_learned=n_learned)
        is_due = n_learned >= YOUNG or self.learn == "none"
        return calibrated(state, self._scorer, self.learn) if is_due else state

    def _breaks(self, rows: Rows, time: Any, where: str) -> tuple[Times | None, Flags]:
        """Return the times of rows, if they have any, and tell before which rows lags and smoothing start anew."""
        breaks = np.zeros(len(rows), dtype=bool)
        if time is None:
            if isinstance(self.min_duration, float):
                raise ValueError(
                    f"{where}: min_duration is a time, {self.min_duration:g}, but rows have none; pass time=, or a "
                    "whole number of rows"
                )
            return None, breaks
        times, steps = as_times(time, len(rows), None if self._state is None else self._state.last_time, where)
        gap: Any = self.max_gap
        return times, breaks if gap is None else np.asarray(steps > gap)

    def _check_learns(self, where: str) -> None:
        """Refuse to score without a model that has learned or will learn rows."""
        if self.learn == "none" and self._scorer.known is None:
            raise ValueError(
                f"{where}: learn='none' needs a model that has learned rows, but it has seen none; call its "
                "partial_fit, or begin with learn='normal' and set monitor.learn = 'none' later"
            )


def _part(record: MonitorRecord, start: int, stop: int) -> MonitorRecord:
    """Return the answers to some of the rows, which can be written."""
    if stop - start == len(record.novelty):
        return record
    return MonitorRecord(*(None if column is None else column[start:stop] for column in record))  # type: ignore[arg-type]


# Arguments that files hold beside the model.
_PARAMETERS = tuple(inspect.signature(Monitor).parameters)[1:]
