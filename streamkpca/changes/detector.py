"""The change detector: tells when rows come from another distribution than the healthy ones, since when, and where."""

import copy
import math
import warnings
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_integer, check_real
from streamkpca.changes.chart import MOST_FEATURES, Chart, Columns, chart_of
from streamkpca.changes.shifts import Moments, Shift, moments_of, read_shift, shifts_of
from streamkpca.checkpoint.fields import Context, recorded, restored, whole_of
from streamkpca.components.snapshot import Snapshot
from streamkpca.errors import required
from streamkpca.models.saving import SavedWithModel, check_model
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.rows.validation import checked_parts, feature_names
from streamkpca.stream.state import answering, check_range

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

# Healthy rows: at least, by default at most, and as many as make this share of a run length.
_LEAST_HEALTHY, _USUAL_HEALTHY, _SHARE = 200, 20_000, 0.5
# Run lengths are extrapolated up to this many times the number of independent healthy rows.
_FARTHEST = 30
# Rows that are kept to look for the beginning of a change.
_MOST_KEPT = 1024
# Rows that are taken in at once; the chart cuts them further.
_AT_ONCE = 1024
# A change lasts if it is detected again within this share of the run length.
_SOON = 0.05
# Squares of larger numbers could not be added up.
_LARGEST_HEALTHY = 1e140


@dataclass(frozen=True)
class DistributionChange:
    """A change of distribution.

    Parameters
    ----------
    start : int
        Position of the row that it most likely began with; at most 1,024 rows before it was detected.
    detected : int
        Position of the row after which it was detected.
    last : int
        Position of the row after which it was last detected again, each time within a twentieth of the run length.
    run_length : float
        The mean number of healthy rows up to the first statistic as large as the largest that detected it.
    confidence : float
        Probability that a healthy stream would not have reached that statistic since the statistics began.
    features : tuple of Shift
        Means, spreads and correlations of the rows from `start` to `last`, of the latest 1,024 of them, that moved, the
        surest first, at most five; if nothing moved, the chance that any is named is one in a hundred. Fewer than ten
        rows show means only.

    Examples
    --------
    >>> from streamkpca.changes import DistributionChange
    >>> DistributionChange(start=100, detected=120, last=120, run_length=1e6, confidence=0.99).features
    ()
    """

    start: int
    detected: int
    last: int
    run_length: float
    confidence: float
    features: tuple[Shift, ...] = ()


class ChangeRecord(NamedTuple):
    """Answers of `ChangeDetector.update` to its rows.

    Parameters
    ----------
    run_length : ndarray of shape (n,)
        The mean number of healthy rows up to the first statistic as large as that of each row; 1 for healthy rows.
    is_change : ndarray of bool of shape (n,)
        Rows after which a new change was detected.
    changes : tuple of DistributionChange
        These changes.

    Examples
    --------
    >>> from streamkpca.changes import ChangeRecord
    >>> ChangeRecord._fields
    ('run_length', 'is_change', 'changes')
    """

    run_length: Array
    is_change: Flags
    changes: tuple[DistributionChange, ...]


@dataclass(frozen=True)
class DetectorState:
    """The state of a detector beside its model; replaced as a whole.

    `rows` (m, d) are the healthy rows so far or, once there is a chart, the latest ones since the last change began;
    `averages` (k, p) are those of the `n_since` rows since the statistics began. `moments` are those of the healthy
    rows.
    """

    n_features: int
    names: list[str] | None
    rows: Array
    n_rows: int = 0
    n_since: int = 0
    averages: Array | None = None
    chart: Chart | None = None
    moments: Moments | None = None
    change: DistributionChange | None = None


class ChangeDetector(SavedWithModel[DetectorState]):
    """Tell when the rows of a stream come from another distribution than the healthy rows that it begins with.

    Parameters
    ----------
    model : StreamingKernelPCA
        A model that has learned rows of the stream. The detector keeps a copy, which never learns.
    run_length : float, default=10_000
        Average number of rows between two detections while nothing changes, at least 100.
    n_healthy : int, optional
        Number of rows, the first ones given, that tell what healthy rows are like, at least 200. They must be healthy,
        in time order, and unknown to the model. By default half of `run_length`, between 1,000 and 20,000.

    Raises
    ------
    TypeError, ValueError
        A parameter is out of its range, `model` has learned nothing, or `run_length` is more than 20 times `n_healthy`.

    Notes
    -----
    Each row becomes whitened coordinates in the span of the model's atoms, its features, or 24 principal axes if these
    are more, with and without whitening, the logarithms of its novelty and of its distance, and the products of any two
    features. Exponentially weighted averages [1]_ with five rates, from the row alone to a memory of up to 200 rows,
    are compared with those of healthy rows: by the sum of squares for whitened columns, by the largest square for the
    others. So means, spreads, correlations and shapes can be seen to move, in one row or slowly. Beyond twice the size
    that one healthy row in ten exceeds, columns count by their logarithm, which makes exponential tails of power laws.

    The **run length** is that of first passages. Streams are put together from runs of healthy rows, four times as long
    as rows resemble each other, and the rows until the largest statistic passes a level are counted. Levels that are
    passed less than once in a quarter of the healthy rows are extrapolated, as passages of rare levels are exponential,
    at a rate that is bounded with a confidence of three quarters. Healthy rows that resemble each other count for
    fewer; a warning tells where there are too few. A spread that itself rises and falls in spells makes detections
    several times more frequent than promised. A run length is a mean: half of the detections come within .7 times as
    many rows.

    After a detection the statistics begin anew against the same healthy rows. If they pass again within a twentieth of
    the run length, the change lasts: it is reported once, and `change_detected_` gets surer. Call `restart` to take it
    for the new normal.

    A row costs O(m (d + m)) for m atoms. Results do not depend on how calls cut the stream.

    References
    ----------
    .. [1] C. A. Lowry, W. H. Woodall, C. W. Champ, S. E. Rigdon, "A multivariate exponentially weighted moving average
       control chart", Technometrics 34, 1992.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.changes import ChangeDetector
    >>> random = np.random.default_rng(0)
    >>> model = StreamingKernelPCA(max_atoms=32).partial_fit(random.normal(size=(1000, 3)))
    >>> detector = ChangeDetector(model, run_length=1000)
    >>> record = detector.update(random.normal(size=(1000, 3)))
    >>> record = detector.update(random.normal(size=(200, 3)) * [1.0, 5.0, 1.0])
    >>> change = detector.change_detected_
    >>> change.features[0].feature, change.features[0].direction
    (1, 'spread up')
    """

    _entry, _noun = "changes", "change detector"

    def __init__(
        self,
        model: StreamingKernelPCA,
        *,
        run_length: float = 10_000,
        n_healthy: int | None = None,
    ) -> None:
        where = "ChangeDetector"
        check_model(model, where)
        if getattr(model, "state_", None) is None:
            raise ValueError(f"{where}: the model has seen no rows; call its partial_fit with healthy rows first")
        self.run_length = check_real("run_length", run_length, least=100.0, most=1e12, where=where)
        if n_healthy is None:
            n_healthy = int(min(max(_SHARE * self.run_length, 1000), _USUAL_HEALTHY))
        self.n_healthy = check_integer("n_healthy", n_healthy, least=_LEAST_HEALTHY, where=where)
        if self.run_length > _FARTHEST * self.n_healthy:
            raise ValueError(
                f"{where}: {self.n_healthy:,} healthy rows cannot tell what happens once in {self.run_length:,.0f}; "
                f"give n_healthy={math.ceil(self.run_length / _FARTHEST):,} at least, or a run_length of at most "
                f"{_FARTHEST * self.n_healthy:,}"
            )
        self.model = copy.copy(model)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("model", "n_healthy") and name in self.__dict__:
            raise AttributeError(
                f"ChangeDetector: {name} cannot change, as levels come from the present one; begin a new "
                f"ChangeDetector({'' if name == 'model' else 'model, '}{name}=...)"
            )
        object.__setattr__(self, name, value)

    def update(self, X: Any) -> ChangeRecord:
        """Take in the next rows; the first `n_healthy` ones are learned as the healthy ones.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Rows in time order, without NaN.

        Returns
        -------
        ChangeRecord

        Raises
        ------
        TypeError, ValueError
            As `StreamingKernelPCA.partial_fit` raises them. The detector is as before the call.

        Warns
        -----
        UserWarning
            The healthy rows resemble each other so much that they are too few for the run length.
        """
        where = "ChangeDetector.update"
        known, state = self.model.state_, self._state
        names = known.names if state is None or state.names is None else np.array(state.names, dtype=object)
        rows = checked_parts(X, where, known.n_features, names)
        check_range(known, rows, 1.0)
        if state is None:
            given = feature_names(X) if names is None else names
            listed = None if given is None else [str(name) for name in given]
            state = DetectorState(known.n_features, listed, np.empty((0, known.n_features)))
        record = ChangeRecord(np.ones(len(rows)), np.zeros(len(rows), dtype=bool), ())
        snapshot = answering(known, self.model.settings(where))
        changes: list[DistributionChange] = []
        start = 0
        while start < len(rows):
            most = _AT_ONCE if state.chart else self.n_healthy - len(state.rows)
            part = rows[start : start + most]
            if state.chart is None:
                _check_healthy(part, start, where)
                state = self._gathered(state, part, snapshot)
            else:
                few = state.chart.few(snapshot, part, state.n_rows)
                done = 0
                while done < len(part):
                    lengths = record.run_length[start + done : start + len(part)]
                    state, n = self._followed(state, state.chart, part[done:], few[done:], snapshot, lengths)
                    done += n
                    change = state.change
                    if state.n_since == 0 and change is not None and change.last == change.detected:
                        record.is_change[start + done - 1] = True
                        changes.append(change)
            start += len(part)
        self._state = state
        return record._replace(changes=tuple(changes))

    def restart(self) -> Self:
        """Take the next `n_healthy` rows for the healthy ones; the latest change and the count of rows stay.

        Returns
        -------
        ChangeDetector
            This detector.

        Examples
        --------
        >>> detector = ChangeDetector(StreamingKernelPCA().partial_fit([[0.0], [1.0]]), run_length=1000)
        >>> record = detector.restart().update([[1.0]])
        >>> detector.n_rows_, detector.is_ready_
        (1, False)
        """
        if self._state is not None:
            none = np.empty((0, self._state.n_features))
            self._state = replace(self._state, rows=none, n_since=0, averages=None, chart=None, moments=None)
        return self

    @property
    def change_detected_(self) -> DistributionChange | None:
        """The latest change, as it is known by now; None if there was none."""
        return required(self._state, "ChangeDetector", "change_detected_").change

    @property
    def is_ready_(self) -> bool:
        """Whether the healthy rows are complete, so that changes can be detected."""
        return required(self._state, "ChangeDetector", "is_ready_").chart is not None

    def __repr__(self) -> str:
        state = self._state
        if state is None or state.chart is None:
            n = 0 if state is None else len(state.rows)
            return f"<ChangeDetector: {n:,} of {self.n_healthy:,} healthy rows>"
        since = "no change" if state.change is None else f"latest change since row {state.change.start:,}"
        return f"<ChangeDetector: {state.n_rows:,} rows, {since}, run_length={self.run_length:,.0f}>"

    def _record(self) -> dict[str, Any]:
        state, found = self._state, None
        if state is not None:
            found = recorded(_STATE, state)
            if state.change is not None:
                found["change.features"] = [list(shift) for shift in state.change.features]
        return {"run_length": self.run_length, "n_healthy": self.n_healthy, "state": found}

    @classmethod
    def _made(cls, model: StreamingKernelPCA, record: dict[str, Any]) -> Self:
        detector = cls(model, run_length=record["run_length"], n_healthy=record["n_healthy"])
        if record["state"] is not None:
            d = model.n_features_in_
            context = Context(lengths={"d": (d,), "c": (d if d <= MOST_FEATURES else 0,)})
            detector._state = state = restored(_STATE, record["state"], context)
            _check(state, detector.n_healthy, d, model)
        return detector

    def _gathered(self, state: DetectorState, rows: Array, snapshot: Snapshot) -> DetectorState:
        """Take in healthy rows, and make a chart of them once they are complete."""
        kept, n_rows = np.concatenate([state.rows, rows]), state.n_rows + len(rows)
        if len(kept) < self.n_healthy:
            return replace(state, rows=kept, n_rows=n_rows)
        chart = chart_of(kept, snapshot)
        moments = moments_of(kept, chart.length)
        if self.run_length > _FARTHEST * chart.n_independent:
            warnings.warn(
                f"ChangeDetector: {self.n_healthy:,} healthy rows resemble each other so much that they hold "
                f"{chart.n_independent:,.0f} independent runs, too few for run_length={self.run_length:,.0f}: expect "
                f"more detections, give a larger n_healthy, or a run_length of {_FARTHEST * chart.n_independent:,.0f}",
                UserWarning,
                stacklevel=3,
            )
        averages = chart.new_averages
        return replace(state, rows=kept[:0], n_rows=n_rows, n_since=0, averages=averages, chart=chart, moments=moments)

    def _followed(
        self,
        state: DetectorState,
        chart: Chart,
        rows: Array,
        few: Array,
        snapshot: Snapshot,
        run_length: Array,
    ) -> tuple[DetectorState, int]:
        """Take in rows up to the first that detects a change, and write their run lengths; return how many they are."""
        assert state.averages is not None
        assert state.moments is not None
        averages = state.averages.copy()
        values, n, place = chart.follow(few, averages, chart.level_of(self.run_length))
        run_length[:n] = chart.run_lengths(values)
        n_rows, n_since = state.n_rows + n, state.n_since + n
        kept = np.concatenate([state.rows, rows[:n]])[-_MOST_KEPT:]
        if place < 0:
            return replace(state, rows=kept, n_rows=n_rows, n_since=n_since, averages=averages), n
        reached = float(run_length[n - 1])
        confidence, change = math.exp(-n_since / reached), state.change
        lasts = change is not None and change.last == n_rows - n_since and n_since <= self.run_length * _SOON
        if change is not None and lasts:
            # Healthy rows would hardly be taken for changed ones again so soon: it lasts, and more is known of it.
            surest = max(change.run_length, reached), max(change.confidence, confidence)
            change = replace(change, last=n_rows, run_length=surest[0], confidence=surest[1])
        else:
            since = kept[-n_since:]
            start = chart.beginning(chart.few(snapshot, since, n_rows - len(since)), averages, place)
            start += len(kept) - len(since)
            change = DistributionChange(n_rows - len(kept) + start, n_rows, n_rows, reached, confidence)
            kept = kept[start:]
        change = replace(change, features=shifts_of(state.moments, kept, state.names))
        return replace(state, rows=kept, n_rows=n_rows, n_since=0, averages=0.0 * averages, change=change), n


def _check_healthy(rows: Array, first: int, where: str) -> None:
    """Refuse healthy rows that have no variance in double precision."""
    i, j = np.unravel_index(np.abs(rows).argmax(), rows.shape)
    if abs(rows[i, j]) > _LARGEST_HEALTHY:
        raise ValueError(
            f"{where} expected healthy rows of numbers up to {_LARGEST_HEALTHY:g} but row {first + i} has "
            f"{rows[i, j]:.3g} in feature {j}; leave such rows out, or scale the feature"
        )


def _made_change(features: Any, **rest: Any) -> DistributionChange:
    return DistributionChange(features=tuple(read_shift(*entry) for entry in features), **rest)


def _check(state: DetectorState, n_healthy: int, d: int, model: StreamingKernelPCA) -> None:
    """Refuse parts that do not fit together."""
    chart, averages, moments = state.chart, state.averages, state.moments
    if state.n_features != d or (state.names is not None and len(state.names) != d):
        raise ValueError("its features are not those of the model")
    if len({part is None for part in (chart, averages, moments)}) > 1:
        raise ValueError("it has a chart without averages or moments, or these without a chart")
    if len(state.rows) > (_MOST_KEPT if chart else n_healthy - 1):
        raise ValueError("it keeps too many rows")
    if state.n_rows < max(state.n_since, len(state.rows), state.change.last if state.change else 0):
        raise ValueError("a change or a count is outside of the stream")
    if chart is None or averages is None or moments is None:
        return
    n_atoms = len(answering(model.state_, model.settings("load")).span_atoms)
    if averages.shape != chart.new_averages.shape or chart.power.shape != (len(chart.rates), len(chart.bounds) - 1):
        raise ValueError("its averages are not those of the columns of its chart")
    columns = chart.columns
    n_before, n_products = len(columns.middle), len(columns.product_mean)
    if n_before + n_products != averages.shape[1] or n_before != columns.bounds[-2]:
        raise ValueError("its chart has too few or too many columns")
    if len(columns.coordinate_mean) != n_atoms:
        raise ValueError("its chart belongs to another model")
    rising = (np.diff(chart.levels) > 0.0).all() and (np.diff(chart.log_lengths) > 0.0).all()
    scales = chart.power, chart.scale, columns.scale, columns.product_scale, moments.deviation
    if not rising or not all((scale > 0.0).all() for scale in scales) or columns.least_novelty <= 0.0:
        raise ValueError("its chart has no scale")


# Lengths: d features, m atoms, r, f and k columns, p of all, a averages, K rates, g groups, q levels, c correlated
# features.
_STATE = whole_of(
    """
    DetectorState:
        n_features n_rows n_since / integer / / >= 0
        names / texts?
        rows / <f8 / nd
        averages / <f8? / ap
    _made_change: change?
        start detected last / integer / / >= 0
        run_length confidence / real / / >= 0
        features / data
    Moments: moments?
        n_rows / integer / / >= 1
        mean / <f8 / d
        deviation / <f8 / d / >= 0
        error / <f8 / 2d / >= 0
        correlation / <f8 / cc
    Chart: chart?
        levels log_lengths / <f8 / q
        length / integer / / >= 1
        n_independent / real / / >= 0
        rates / <f8 / K / >= 0
        power scale / <f8 / Kg / >= 0
        precision / <f8 / Kp / >= 0
    Columns: chart.columns
        coordinate_mean / <f8 / m
        whitening / <f8 / mr
        feature_middle / <f8 / d
        features / <f8 / df
        axes / <f8 / dk
        least_novelty / real / / >= 0
        middle / <f8 / h
        bound scale / <f8 / h / >= 0
        product_mean product_scale / <f8 / t
    """,
    (DetectorState, _made_change, Moments, Chart, Columns),
)
