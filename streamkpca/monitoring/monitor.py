"""The monitor: scores the rows of a stream, raises alarms, and learns what is normal."""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, Self

import numpy as np

from streamkpca._core.arrays import Array, Flags, Names
from streamkpca._core.concurrency import replace_fields
from streamkpca._core.parameters import check_integer, show
from streamkpca.errors import RowError, name_errors, require
from streamkpca.kernels import RBF
from streamkpca.models._protocol import explain_unknown_arguments
from streamkpca.models.saving import SavedWithModel
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.monitoring.alarms import Alarms
from streamkpca.monitoring.causes import MOST_ROWS, Cause, EventRows, find_causes
from streamkpca.monitoring.events import Event, EventLog
from streamkpca.monitoring.judging import Scorer, find_chunk_length, judge
from streamkpca.monitoring.lasting_changes import LASTING, Change, Cusum
from streamkpca.monitoring.learning import (
    accept_change,
    begin_with_model,
    conclude,
    is_grown,
    learn,
    learn_chunk,
    renew,
)
from streamkpca.monitoring.parameters import PARAMETER_CHECKS, QUANTILE, check_features, is_ignored, is_short
from streamkpca.monitoring.periods import add_phases, append_phases, check_stacked, n_features_of, n_phases
from streamkpca.monitoring.policy import YOUNG
from streamkpca.monitoring.report import EventJudge, Report
from streamkpca.monitoring.state import MonitorState, record_state, restore_state
from streamkpca.rows.parts import Rows, parts_of
from streamkpca.rows.times import Times, as_times, time_of, without_times
from streamkpca.rows.validation import check_parts, feature_names
from streamkpca.stream.state import State, check_continued

# Lasting changes that are kept.
_MOST_CHANGES = 100
# Closed events that are kept.
_MOST_EVENTS = 1000
# On 28 families of streams, mean average precision was within 0.002 of that with 256 atoms and a tolerance of 1e-6.
_ATOMS = 128


class MonitorRecord(NamedTuple):
    """Answers of `Monitor.update` to its rows; arrays of shape (n,).

    Parameters
    ----------
    rarity : ndarray
        In how many healthy rows one is as odd, by all views of it; 1 before there is a scale, NaN for rows that are
        skipped. Rank rows by it, and judge by it what is wrong.
    rarity_so_far : ndarray
        The same by the rarest view, and at most ten times as rare as by rank among the latest rows, except with
        ``learn="none"``. Events begin by it. Rank rows by it where states of the stream change and no user accepts
        them.
    threshold : ndarray
        Rarity so far from which on a row may begin an event, 1 / (1 - `quantile`); infinite before there is a scale.
    is_alarm : ndarray of bool
        Whether the row belongs to an event.
    novelty : ndarray
        Score of the model, in units of k(x, x). 0 before the model's first refit, NaN for rows that are skipped.
    time : ndarray of datetime64 or float, optional
        Times of the rows, in UTC; None without times.

    Examples
    --------
    >>> from streamkpca.monitoring import Monitor
    >>> Monitor().update([[1.0, 2.0]]).threshold
    array([inf])
    """

    rarity: Array
    rarity_so_far: Array
    threshold: Array
    is_alarm: Flags
    novelty: Array
    time: Times | None = None


@name_errors
@explain_unknown_arguments
class Monitor(SavedWithModel[MonitorState]):
    """Watch a stream: score its rows, raise alarms, gather them in events, and learn the rows that are normal.

    Parameters
    ----------
    model : StreamingKernelPCA, optional
        The model that scores and learns; it belongs to the monitor from then on. By default one with
        ``kernel=RBF().in_units("std")``, ``max_atoms=128``, ``noise_variance=None`` and ``missing="marginal"``, so
        that rows are scored and learned by the numbers that they have. With "skip", rows with NaN get no score. With
        `period` it is a copy, its kernel times one of the phase.
    period : int, float or timedelta, optional
        Length of a cycle, such as a day: rows (int), or time (timedelta; float in units of the times, seconds where
        these are dates). Rows are compared with those of about the same phase, and there is no threshold until one
        period has passed. Dates are in UTC, so daylight saving moves the phase.
    quantile : float, default=0.997
        Share of healthy rows that should be less rare than the threshold, 1 / (1 - `quantile`).
    most_events : float or str, optional
        Most events that begin in a row, such as 1 / 1000, or in a time, as "2/day" (or hour, week), where rows have
        times. Beyond some 14 events in advance, no stream can break it: each event doubles the rarity that the next one
        needs, and this falls by half in the time that one event is allowed for 3.3 times.
    learn : {"normal", "all", "none"}
        Rows that the model learns. Rows that are declared healthy, and of others the first 4,000, are learned but for
        wild numbers; of later ones those that are less rare than once in 100. From 12,000 rows on, or once rows were
        declared healthy, a model without a half-life learns only while the stream moves: six of ten recent rows are
        odder than the healthy row in the middle. Where nine of ten are, but few are as rare as that, it learns
        those too. While it learns, one chunk of four is held out.
    accept_after : int, optional
        A lasting change is learned once rows as rare as the threshold exceed a twentieth of all rows by this number, at
        least 32. None: it is reported at 256, and not learned.
    max_gap : float or timedelta, optional
        Largest time between two rows, which then need times; in seconds where these are dates. After a longer one, as
        after a skipped row, the means of the last rows start anew.
    end_after : int, default=10
        Rows as common as healthy ones after which an event ends.
    min_duration : int, float or timedelta, optional
        Rows or time, given as for `period`, from the first alarm to the last that an event needs to be reported.
    ignore : dict, optional
        For features, by name or position, "above" or "below", a largest difference from the expected value, or a list
        of these. An event is not reported if each of its features deviates as one of its rules says.

    Raises
    ------
    TypeError, ValueError
        A parameter is out of its range, or `model` has neither a budget of atoms nor a random sample, or has learned
        other rows than `stack` makes.

    Notes ----- **Three views.** `StreamingKernelPCA.novelty` says how far a row is from the places where rows were: its
    *place*. How surprising its numbers are given each other, by linear prediction, says whether their *relation* holds.
    The *recent* view relates them also to the exponentially weighted means and deviations of each column over the last
    rows, of which the newest counts an eighth: so it sees a level that was left, and a sensor that became noisy. The
    relations are there for up to 1,024 numbers, the averages included. Until 64 rows are learned, there is no
    threshold, and no row is an alarm. A model that had learned rows brings the first two views, from a sample of these.

    **Phases** t, as shares of a period, are two columns, cos 2 pi t and sin 2 pi t, which units and widths do not see.
    Their kernel is an RBF whose standard deviation is 1/24 of the period. They count from the first row, from 1970 in
    UTC, or from time 0.

    **Rarity.** Scores by each view are ranked among those of the latest 2,048 rows that were held out while the monitor
    learned, as in conformal prediction [1]_; an eighth of these may be anomalies that a gap sets apart. With the
    rarities r by the views, (sum log^2 r)^1/2 is ranked among the same rows once more. They are scored again each time
    that the learned rows have grown by half, or by 512. For exchangeable rows the share of rarities from the threshold
    on is 1 - `quantile`, up to chance. Where neighbours resemble each other or the stream moves, expect several times
    as many.

    **Events** begin, while none is open, at a row whose rarity is at the threshold or beyond it, among healthy rows and
    among those so far, and higher than that of the 200 rows before it. They last while rows at the threshold follow
    with fewer than `end_after` rows between them. **Lasting changes** are found by Page's cumulative sum [2]_ of rows
    that are rare among healthy ones and are no confirmed faults. When it reaches `accept_after`, the change is reported
    as `change_detected_`, dated by the likelihood of two rates, and the latest of these rows are learned beside those
    of earlier states, whose return then raises no alarms.

    Results do not depend on how calls cut the stream. Monitors are not merged: their thresholds belong to one order of
    rows. `learn`, `accept_after`, `max_gap`, `end_after`, `min_duration` and `ignore` may be set later, for the rows to
    come. One thread may update while others read; writers and `save` wait for each other.

    References
    ----------
    .. [1] V. Vovk, A. Gammerman, G. Shafer, "Algorithmic Learning in a Random World", Springer 2005, section 2.2.
    .. [2] E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca.monitoring import Monitor
    >>> random = np.random.default_rng(0)
    >>> rows = np.repeat(random.normal(size=(2000, 2)), 2, axis=1) + 0.1 * random.normal(size=(2000, 4))
    >>> rows[1500:1520, 3] += 3.0
    >>> monitor = Monitor().fit(rows[:1000])
    >>> record = monitor.update(rows[1000:])
    >>> event = max(monitor.events_, key=lambda event: event.n_alarms)
    >>> event.start, event.features[0].feature
    (1500, 3)
    >>> monitor.record_ is record, monitor.change_detected_
    (True, None)

    What a user says of an event holds for rows like its rows, and a new recording begins a new history:

    >>> monitor.confirm(event).update(rows[1500:1520]).is_alarm[-1]
    np.True_
    >>> monitor.accept(event).reset().update(rows[1500:1520]).is_alarm[-1]
    np.False_
    >>> monitor.reset(events=True).n_events_
    0
    """

    _entry = _noun = "monitor"
    _parameters = PARAMETER_CHECKS
    # What their checks return.
    period: Any
    max_gap: Any
    min_duration: Any
    ignore: Any

    def __init__(
        self,
        model: StreamingKernelPCA | None = None,
        *,
        period: float | timedelta | np.timedelta64 | None = None,
        quantile: float = QUANTILE,
        most_events: float | str | None = None,
        learn: str = "normal",
        accept_after: int | None = None,
        max_gap: float | timedelta | np.timedelta64 | None = None,
        end_after: int = 10,
        min_duration: float | timedelta | np.timedelta64 | None = None,
        ignore: Mapping[str | int, Any] | None = None,
    ) -> None:
        if model is None:
            # Scores need no sparse weights, which a noise variance is for.
            kernel = RBF().in_units("std")
            model = StreamingKernelPCA(kernel=kernel, max_atoms=_ATOMS, noise_variance=None, missing="marginal")
        elif period is not None:
            # Its kernel will be another one.
            model = copy.copy(model)
        self.model = model
        self.period, self.quantile, self.most_events = period, quantile, most_events
        self.learn, self.accept_after = learn, accept_after
        self.max_gap, self.end_after = max_gap, end_after
        self.min_duration, self.ignore = min_duration, ignore
        if self._learned is not None:
            check_stacked(self._learned, self.period)
        self._answers: MonitorRecord | None = None
        self._explained: tuple[MonitorState | None, Event | None] = (None, None)

    def __getstate__(self) -> dict[str, Any]:
        # What the model has learned and the thresholds belong together, so no update may come between. Copies have a
        # model of their own: two monitors that share one would learn its rows twice.
        with self.model.write_lock:
            return vars(self) | {"model": copy.copy(self.model)}

    def update(self, X: Any, *, time: Any = None, planned: Any = None, healthy: bool = False) -> MonitorRecord:
        """Score the next rows, then learn those that are to be learned, in chunks of 32 to 128 as the stream grows.

        Parameters
        ----------
        X : array-like of shape (n, d)
        time : array-like of shape (n,) or str, optional
            Their times, ascending, as ``datetime64``, ``datetime`` or numbers, or the name of the column of X that
            holds them. By default the index of a pandas frame, if it is a DatetimeIndex. Dates with a zone become UTC.
            Once rows have had times, later ones need them, unless `reset()` begins a new recording.
        planned : array-like of bool of shape (n,), optional
            Rows of a planned window, such as maintenance: they are neither judged nor learned, and the means of the
            last rows start anew after them.
        healthy : bool, default=False
            Whether the rows are known to be healthy: they are learned but for wild numbers, whatever came before, and
            raise no alarm. From then on the monitor knows enough to learn on need alone.

        Returns
        -------
        MonitorRecord

        Raises
        ------
        TypeError, ValueError
            As `StreamingKernelPCA.partial_fit` raises them, or the times are not one ascending time a row, or with
            ``learn="none"`` the model has learned fewer than 64 rows. The monitor is as before the call.

        Examples
        --------
        >>> monitor = Monitor()
        >>> record = monitor.update(np.random.default_rng(0).normal(size=(1000, 3)))
        >>> monitor.update([[9.0, 9.0, 9.0]], time=[np.datetime64("2026-05-04T14:02")]).is_alarm
        array([ True])
        """
        with self.model.write_lock:
            rows, names, times, breaks, is_planned = self._check_rows(X, time, planned)
            n, start = len(rows), 0
            record = MonitorRecord(np.empty(n), np.empty(n), np.empty(n), np.empty(n, dtype=bool), np.empty(n), times)
            scorer, state = self._scorer, self._latest
            if state is None:
                scorer, state = self._start(rows.shape[1], names)
            check_features(self.ignore, state.n_features, state.names)
            # Otherwise it would be refused when the chunk is learned, if ever.
            check_continued(state.model, scorer.settings)
            if n and state.is_declaring != healthy:
                state = replace_fields(state if healthy else conclude(state, scorer, self.learn), is_declaring=healthy)
            while start < n:
                chunk = find_chunk_length(state.n_rows)
                stop = min(n, start + chunk - state.n_rows % chunk)
                part = rows[start:stop]
                for first, end, is_good in scorer.cut_segments(part, breaks[start:stop], is_planned[start:stop]):
                    if breaks[start + first] or not is_good:
                        state = state.begin_anew()
                    place = slice(start + first, start + end)
                    try:
                        at = None if times is None else times[place]
                        state, answers = self._judge_segment(state, scorer, part[first:end], at, is_good)
                    except RowError as error:
                        raise error.at(start + first + error.row) from None
                    for column, found in zip(record[:5], answers[:5], strict=True):
                        column[place] = found
                if state.log.is_over(state.n_rows, self.end_after):
                    state = self._close(state, scorer)
                if state.n_rows % chunk == 0:
                    state = self._finish_chunk(state, scorer)
                start = stop
            self._publish(state, _answers=record)
        return record

    def fit(self, X: Any, y: Any = None, *, time: Any = None) -> Self:
        """Begin anew with rows that are known to be healthy: learn them but for wild numbers, whatever was before.

        Parameters
        ----------
        X, time
            As for `update`; rows in time order.
        y : ignored
        """
        del y
        # A refused call leaves everything as it was.
        anew = copy.copy(self)
        model = type(self.model)(**self.model.get_params(deep=False))
        vars(anew).update(model=model, _state=None, _answers=None, _explained=(None, None))
        anew.update(X, time=time, healthy=True)
        if (state := anew._latest) is not None:
            anew._publish(replace(conclude(state, anew._scorer, self.learn), is_declaring=False))
        vars(self).update(vars(anew))
        return self

    def score_samples(self, X: Any, *, time: Any = None) -> Array:
        """Return minus the logarithms of the rarities that rows have as a recording of their own; learn nothing.

        Parameters
        ----------
        X : array-like of shape (n, d)
        time : array-like of shape (n,) or str, optional
            As for `update`.

        Returns
        -------
        ndarray of shape (n,)

        Examples
        --------
        >>> monitor = Monitor().fit(np.random.default_rng(0).normal(size=(1000, 2)))
        >>> monitor.score_samples([[0.0, 0.0], [9.0, 9.0]]) < -5.0
        array([False,  True])
        """
        judge = copy.copy(self)
        judge.learn = "none"
        scores: Array = -np.log(judge.reset().update(X, time=time).rarity)
        return scores

    def decision_function(self, X: Any, *, time: Any = None) -> Array:
        """Return `score_samples` plus the logarithm of the threshold: negative where rows are rarer.

        Parameters
        ----------
        X : array-like of shape (n, d)
        time : array-like of shape (n,) or str, optional
            As for `update`.

        Examples
        --------
        >>> monitor = Monitor().fit(np.random.default_rng(0).normal(size=(1000, 2)))
        >>> monitor.decision_function([[0.0, 0.0], [9.0, 9.0]]) < 0.0
        array([False,  True])
        """
        return self.score_samples(X, time=time) - math.log(1.0 - self.quantile)

    def predict(self, X: Any, *, time: Any = None) -> Array:
        """Return -1 for rows that are rarer than the threshold, and 1 for others.

        Parameters
        ----------
        X : array-like of shape (n, d)
        time : array-like of shape (n,) or str, optional
            As for `update`.

        Examples
        --------
        >>> Monitor().fit(np.random.default_rng(0).normal(size=(1000, 2))).predict([[0.0, 0.0], [9.0, 9.0]])
        array([ 1, -1])
        """
        return np.where(self.decision_function(X, time=time) < 0.0, -1, 1)

    def stack(self, X: Any, *, first: int = 0, time: Any = None) -> Array:
        """Return rows as the model sees them: with a period, behind them the phase.

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
        ndarray of shape (n, d), or (n, d + 2) with a period: at last cosine and sine of the phase

        Examples
        --------
        >>> Monitor(period=4).stack([[1.0], [2.0]]).round(2)
        array([[1., 1., 0.],
               [2., 0., 1.]])
        """
        X, time = without_times(X, time)
        rows = check_parts(X, None, None, gaps=self.model.missing == "marginal")
        n, d = rows.shape
        out = np.empty((n, d))
        for place, part in parts_of(rows, 2 * d):
            out[place] = part
        first = check_integer("first", first, least=0)
        times = None if time is None else as_times(time, n, None)[0]
        return out if self.period is None else append_phases(out, self.period, first, times)

    def reset(self, *, events: bool = False) -> Self:
        """Begin a new recording: forget the means of the last rows and the last time, and end the open event.

        Parameters
        ----------
        events : bool, default=False
            Forget all events, alarms and the lasting change, too; scales stay.
        """
        with self.model.write_lock:
            if (state := self._latest) is not None:
                state = self._close(state, self._scorer).begin_anew()
                alarms, passed = state.alarms.begin_anew(), state.all_time_passed
                state = replace(state, alarms=alarms, time_passed=passed, first_time=None, last_time=None)
                if events:
                    none = state.left_out[:0]
                    state = replace(state, cusum=Cusum(), log=EventLog.none(none.shape[1]), changes=(), left_out=none)
                self._state = state
        return self

    def accept(self, event: Event | Change) -> Self:
        """Take an event or a lasting change for one that was fine: learn its rows; rows like them raise no alarm.

        Rows are alike if the same features are about as far from healthy ones.

        Parameters
        ----------
        event : Event or Change
            One of `events_`, of which rows are kept: the latest ones, 200,000 numbers of 32 rows each; the latest of
            its group stands for an older one. Or `change_detected_`, while it lasts.

        Raises
        ------
        TypeError, ValueError
            It is no event of this monitor, or its rows are no longer kept.
        """
        if not isinstance(event, Change):
            return self._review(event, "accepted")
        with self.model.write_lock:
            state, scorer = self._latest, self._scorer
            if state is None or event not in state.changes[-1:] or not len(state.left_out) or self.learn == "none":
                raise ValueError(
                    f"of the change at row {event.start:,} no rows are kept; pass monitor.change_detected_ while it "
                    "lasts and the monitor learns, or accept its events"
                )
            change = replace(event, is_accepted=True)
            changes = (*state.changes[:-1], change)
            self._publish(replace_fields(accept_change(self._end(state, scorer), scorer), changes=changes))
        return self

    def confirm(self, event: Event) -> Self:
        """Take an event for a fault: rows like its rows are alarms from now on, however frequent, and never learned.

        Parameters
        ----------
        event : Event
            As for `accept`.
        """
        return self._review(event, "confirmed")

    def _review(self, event: Event, feedback: str) -> Self:
        """Take in what a user says of an event."""
        with self.model.write_lock:
            if not isinstance(event, Event):
                raise TypeError(f"expected an Event but got {show(event)}; pass one of monitor.events_")
            state, scorer = self._latest, self._scorer
            if state is not None and state.log.current is not None and state.log.current.start == event.start:
                state = self._end(state, scorer)
            rows = None if state is None else state.log.rows_of(event)
            if state is None or rows is None:
                raise ValueError(
                    f"of the event at row {event.start:,} no rows are kept; take one of the latest of monitor.events_"
                )
            reviewed = state.reviewed.add(rows, feedback == "confirmed")
            # Beside the rows of a long event, others as odd would pass for common.
            alarms = state.alarms.come_back()
            state = replace_fields(state, log=state.log.note(event, feedback), reviewed=reviewed, alarms=alarms)
            if feedback == "accepted" and self.learn != "none":
                state = renew(learn(state, scorer, rows), scorer)
            self._publish(state)
        return self

    def report(self) -> Report:
        """Return the list of what was found: alike events together, the rarest first; it prints as text.

        Returns
        -------
        Report

        Examples
        --------
        >>> print(Monitor().report())
        0 rows: 0 events
        """
        state = self._latest
        if state is None:
            return Report((), (), 0, 0, 0, 1.0)
        events, n_events = self.events_, self.n_events_
        numbered = dict(enumerate(events, start=n_events - len(events) + 1))
        n_fitted = max(state.model.n_rows - state.n_rows, 0)
        judge = EventJudge(numbered, state.n_rows, n_fitted, state.is_declared)
        is_dated = isinstance(state.last_time, np.datetime64)
        return Report(
            lines=judge.list_lines(),
            changes=state.changes,
            n_rows=state.n_rows,
            n_learned=state.n_learned,
            n_events=n_events,
            least_severity=judge.least_severity,
            n_fitted=n_fitted,
            is_declared=state.is_declared,
            seconds_per_row=state.all_time_passed / max(state.n_rows - 1, 1) if is_dated else None,
            confirmed={event.group: n for n, event in numbered.items() if event.feedback == "confirmed"},
        )

    def _record(self) -> dict[str, Any]:
        return {
            "parameters": {
                **{name: getattr(self, name) for name in PARAMETER_CHECKS if name != "model"},
                "ignore": [[feature, list(rules)] for feature, rules in self.ignore.items()],
            },
            "state": None if self._state is None else record_state(self._state),
        }

    @classmethod
    def _build(cls, model: StreamingKernelPCA, record: dict[str, Any]) -> Self:
        names = [name for name in PARAMETER_CHECKS if name != "model"]
        # A parameter that the file lacks is refused by its check, not taken for its default.
        monitor = cls(model, **{**dict.fromkeys(names, ...), **record["parameters"]})
        if record["state"] is not None:
            learned = monitor._learned
            state = restore_state(record["state"], n_phases(monitor.period), model.missing == "marginal")
            width = monitor._scorer.width(state.n_features)
            if learned is None and (state.n_learned or state.views.scales):
                raise ValueError("it has learned rows, but its model has not")
            if learned is not None and learned.n_features != width:
                raise ValueError("its model has another number of features")
            monitor._state = replace_fields(state, model=learned or State.begin(monitor.model.settings(), width))
        return monitor

    @property
    def n_features_in_(self) -> int:
        """Number of features of the rows.

        >>> Monitor().fit(np.random.default_rng(0).normal(size=(200, 3))).n_features_in_
        3
        """
        return require(self._state, type(self).__name__, "n_features_in_").n_features

    @property
    def feature_names_in_(self) -> Names:
        """Names of the features, if the first rows came with names.

        >>> import pandas
        >>> Monitor().fit(pandas.DataFrame(np.eye(200)[:, :2], columns=["flow", "heat"])).feature_names_in_
        array(['flow', 'heat'], dtype=object)
        """
        names = require(self._state, type(self).__name__, "feature_names_in_").names
        if names is None:
            raise AttributeError("Monitor has no feature_names_in_: its first rows came without column names")
        return np.array(names, dtype=object)

    @property
    def events_(self) -> list[Event]:
        """Runs of alarms that are reported, the oldest first; the last may be open. The latest 1,000 are kept."""
        if (state := self._latest) is None:
            return []
        opened = self._explain(state, self._scorer)
        return [*state.log.closed, *([opened] if opened else [])]

    @property
    def n_events_(self) -> int:
        """Number of events so far, the open one included."""
        state = self._latest
        return 0 if state is None else state.log.n_closed + (self._explain(state, self._scorer) is not None)

    def __repr__(self) -> str:
        state = self._state
        if state is None:
            return f"<Monitor: no rows yet, learn={self.learn!r}>"
        once = f"once in {self._threshold(state):,.0f} healthy rows" if state.views.scales else "not yet"
        rows = f"{state.n_rows:,} rows, {self.n_events_:,} events, alarms {once}"
        return f"<Monitor: {rows}, learn={self.learn!r}, {state.n_learned:,} rows learned>"

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    @property
    def change_detected_(self) -> Change | None:
        """The latest lasting change: since which row, and which features; None if there was none."""
        return self._state.changes[-1] if self._state is not None and self._state.changes else None

    @property
    def record_(self) -> MonitorRecord:
        """Answers to the latest call of `update`, which `plots.draw_novelty` draws; files do not hold them."""
        if self._answers is None:
            raise AttributeError(
                "Monitor: record_, the answers to the latest rows, is not there before the first call of update, and "
                "files do not hold it; call update first"
            )
        return self._answers

    # One chunk: score, judge, log; at its end learn

    @property
    def _learned(self) -> State | None:
        """What the model has learned, None before it has."""
        learned: State | None = getattr(self.model, "state_", None)
        return learned

    @property
    def _scorer(self) -> Scorer:
        return Scorer(self.model.settings(), self.period)

    @property
    def _latest(self) -> MonitorState | None:
        """The state, with the model's own where a user has changed the model since."""
        state, learned = self._state, self._learned
        if state is None or learned is None or learned is state.model:
            return state
        return replace_fields(state, model=learned)

    def _publish(self, state: MonitorState, **changes: Any) -> None:
        """Let the model and the monitor know what they have learned."""
        if self._state is None or state.model is not self._state.model:
            if self.period is not None and self._learned is None:
                self.model.kernel = state.model.kernel
            if state.model.n_rows:
                self.model.state_ = state.model
        vars(self).update(changes, _state=state)

    def _start(self, d: int, names: list[str] | None) -> tuple[Scorer, MonitorState]:
        """Return how rows (d,) are scored, and the state before the first, with a scale if the model can give one."""
        scorer, learned = self._scorer, self._learned
        width = scorer.width(d)
        if learned is None:
            if self.period is not None:
                kernel = add_phases(scorer.settings.kernel, d)
                scorer = scorer._replace(settings=replace(scorer.settings, kernel=kernel))
            scorer.settings.kernel.check_width(width)
        state = MonitorState.begin(learned or State.begin(scorer.settings, width), names, d)
        state = replace_fields(state, n_learned=state.model.n_rows)
        return scorer, begin_with_model(state, scorer) if state.n_learned >= YOUNG.n_first else state

    def _judge_segment(
        self, state: MonitorState, scorer: Scorer, rows: Array, times: Times | None, is_good: bool
    ) -> tuple[MonitorState, MonitorRecord]:
        """Judge rows (n, d) that follow each other; the model and the scales stay the same."""
        n, first, threshold = len(rows), state.n_rows, self._threshold(state)
        if is_good:
            learns = self.learn != "none"
            state, stacked = scorer.stack(state, rows, times)
            scores = scorer.score(state, stacked, learns)
            allowance = self._allowance(state, times, n)
            state, rarity, alarms = judge(state, scorer, scores, stacked, threshold, self.end_after, allowance, learns)
            record = MonitorRecord(
                rarity, alarms.rarity_so_far, np.full(n, threshold), alarms.is_alarm, scores[0], times
            )
            if np.count_nonzero(alarms.is_alarm):
                state = self._log(state, scorer, first, stacked, record, alarms)
            is_rare = state.waiting[-1].is_rare
        else:
            none, is_rare = np.full(n, np.nan), np.zeros(n, dtype=bool)
            record = MonitorRecord(none, none, np.full(n, threshold), is_rare, none)
            state = replace_fields(state, alarms=state.alarms.skip(n))
        cusum, since, last = state.cusum.advance(is_rare, first, times), state.first_time, state.last_time
        if times is not None:
            since, last = time_of(times, 0) if since is None else since, time_of(times, -1)
        state = replace_fields(state, n_rows=first + n, cusum=cusum, first_time=since, last_time=last)
        return state, record

    def _allowance(self, state: MonitorState, times: Times | None, n: int) -> Array:
        """Return how many events each of the next rows (n,) allows for."""
        rate: Any = self.most_events
        if not isinstance(rate, tuple):
            every: Array = np.full(n, math.inf if rate is None else rate, dtype=float)
            return every
        number, seconds = rate
        if times is None:
            raise ValueError(
                f"most_events is a rate in time, {number:g} in {seconds:g} s, but rows have no times; pass time=, or "
                "a rate in rows"
            )
        before = times[:1] if state.last_time is None else np.array([state.last_time])
        steps = np.diff(np.concatenate([before, times]))
        passed: Array = steps / np.timedelta64(1, "s") if steps.dtype.kind == "m" else steps
        allowed: Array = passed * (number / seconds)
        return allowed

    def _log(
        self, state: MonitorState, scorer: Scorer, first: int, rows: Array, record: MonitorRecord, alarms: Alarms
    ) -> MonitorState:
        """Add the alarms among rows (n, D) from position `first` on to the events."""
        for i in np.flatnonzero(alarms.is_alarm).tolist():
            if alarms.begins[i]:
                state = self._close(state, scorer)
            found = float(record.novelty[i]), float(record.rarity[i]), state.views.kinds[alarms.views[i]]
            state = replace_fields(state, log=state.log.add_alarm(first + i, rows[i], *found, time_of(record.time, i)))
        return state

    def _close(self, state: MonitorState, scorer: Scorer) -> MonitorState:
        """End the open event, if there is one."""
        if state.log.current is None:
            return state
        return replace_fields(state, log=state.log.end(self._explain(state, scorer), _MOST_EVENTS))

    def _end(self, state: MonitorState, scorer: Scorer) -> MonitorState:
        """End the open event before its rows are all there, so that later alarms do not go on with it."""
        return replace_fields(self._close(state, scorer), alarms=state.alarms.end())

    def _explain(self, state: MonitorState, scorer: Scorer) -> Event | None:
        """Return the open event with its causes, found once for each state, if there is one that is reported."""
        event, rows = state.log.current, state.log.rows
        if event is None or rows is None or not state.views.scales or is_short(event, self.min_duration):
            return None
        explained, found = self._explained
        if explained is not state or found is None:
            healthy = scorer.describe_healthy(state)
            causes, ranking = find_causes(rows, healthy, state.names)
            if event.kind != "recent":
                event = replace(event, kind=scorer.find_kind(state, rows.rows, healthy, causes))
            found = state.log.explain(event, causes, ranking)
            self._explained = (state, found)
        return None if is_ignored(found.features, self.ignore) else found

    def _finish_chunk(self, state: MonitorState, scorer: Scorer) -> MonitorState:
        """Learn the rows of a chunk, and report a change that has lasted; if it is accepted, learn its rows."""
        if self.learn == "none":
            state = replace_fields(state, waiting=())
        elif state.waiting:
            state = learn_chunk(state, scorer, self.learn == "all")
        cusum, most = state.cusum, self.accept_after or LASTING
        if cusum.excess < most:
            return state
        accepts = self.learn != "none" and self.accept_after is not None
        if not accepts and state.changes and state.changes[-1].start >= cusum.start:
            # It lasts. Its sum stays where it is, so that its end is noticed soon.
            return replace_fields(state, cusum=replace(cusum, excess=float(most)))
        # A young monitor learns the rows of a change, too.
        is_learned = accepts or self.learn == "all" or (self.learn == "normal" and not is_grown(state))
        change = _describe_change(state, scorer, is_learned)
        state = replace_fields(state, changes=(*state.changes, change)[-_MOST_CHANGES:])
        # Its alarms are explained by the model that raised them.
        return accept_change(self._end(state, scorer), scorer) if accepts else state

    def _threshold(self, state: MonitorState) -> float:
        """Return the rarity from which on rows are alarms, infinite before there is a scale."""
        return 1.0 / (1.0 - self.quantile) if state.views.scales else math.inf

    def _check_rows(self, X: Any, time: Any, planned: Any) -> tuple[Rows, list[str] | None, Times | None, Flags, Flags]:
        """Return rows, the names of their features, their times, those after a gap in time, and those planned."""
        learned = self._learned
        n_learned = 0 if learned is None else learned.n_rows
        if self.learn == "none" and n_learned < YOUNG.n_first:
            raise ValueError(
                f"learn='none' needs a model that has learned {YOUNG.n_first} rows or more, but it has seen "
                f"{n_learned}; call its partial_fit, or begin with learn='normal' and set monitor.learn = 'none' later"
            )
        X, time = without_times(X, time)
        state, settings = self._state, self.model.settings()
        width, names, leaves_out = None, None, settings.missing != "raise"
        if state is not None:
            width, names = state.n_features, state.names
        elif learned is not None:
            width = n_features_of(learned.n_features, self.period)
            names = learned.names.tolist()[:width] if learned.names is not None else None
        expected = None if names is None else np.array(names, dtype=object)
        rows = check_parts(X, width, expected, finite=not leaves_out, learner="give its model")
        if state is None and names is None and (given := feature_names(X)) is not None:
            names = [str(name) for name in given]
        n, times = len(rows), None
        breaks, is_planned = np.zeros((2, n), dtype=bool)
        if time is not None:
            times, steps = as_times(time, n, None if state is None else state.last_time)
            breaks = steps > (math.inf if self.max_gap is None else self.max_gap)
        elif self.max_gap is not None or isinstance(self.min_duration, float):
            name, other = ("min_duration", "a whole number of rows") if self.max_gap is None else ("max_gap", "None")
            value = getattr(self, name)
            raise ValueError(f"{name} is a time, {value:g}, but rows have none; pass time=, or set it to {other}")
        elif state is not None and state.last_time is not None:
            raise ValueError(
                f"expected times, as rows had them up to {state.last_time}, but got none; pass time=, or call "
                "reset() where a recording without times begins"
            )
        if planned is not None:
            is_planned = np.asarray(planned)
            if is_planned.dtype != bool or is_planned.shape != (n,):
                got = f"{is_planned.dtype} of shape {is_planned.shape}"
                raise ValueError(f"expected planned as {n:,} booleans, one a row, but got {got}")
        return rows, names, times, breaks, is_planned


def _describe_change(state: MonitorState, scorer: Scorer, accepts: bool) -> Change:
    """Return the change that has lasted: since when, and the features of its rows that were not learned."""
    start, start_time = state.cusum.find_start(state.n_rows)
    log, features = state.log, tuple[Cause, ...]()
    rows = state.left_out if len(state.left_out) or log.rows is None else log.rows.rows
    if len(rows) and state.views.scales:
        few = rows[:: -(-len(rows) // MOST_ROWS)]
        kept = EventRows(np.full(len(few), start), few, (start_time,) * len(few))
        features, _ = find_causes(kept, scorer.describe_healthy(state), state.names)
    elif log.closed and log.closed[-1].end > start:
        # A young monitor learns the rows of a change; its events were explained before.
        features = tuple(cause._replace(since=start, since_time=start_time) for cause in log.closed[-1].features)
    # Bins are not split by the start.
    share = int(state.cusum.counts[state.cusum.firsts >= start].sum()) / (state.n_rows - start)
    return Change(start, state.n_rows, share, features, accepts, start_time, state.last_time)
