"""The change detector: tells when rows come from another distribution than the healthy ones, since when, and where."""

import copy
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from streamkpca._core.arrays import Array, Flags
from streamkpca._core.parameters import check_integer, check_real
from streamkpca.changes.chart import N_GROUPS, N_RATES, Chart, RunLengthTable, learn_chart
from streamkpca.changes.columns import Columns, Projection
from streamkpca.changes.shifts import MOST_FEATURES, FeatureMoments, Shift, find_shifts
from streamkpca.checkpoint.fields import Context, record_fields, restore_section, whole_of
from streamkpca.components.snapshot import Snapshot
from streamkpca.errors import name_errors, require, warn
from streamkpca.models._protocol import explain_unknown_arguments
from streamkpca.models.saving import ParameterCheck, SavedWithModel
from streamkpca.models.streaming import StreamingKernelPCA, check_model
from streamkpca.rows.validation import check_parts, feature_names
from streamkpca.stream.state import check_range, latest_axes

# Healthy rows, at least.
_LEAST_HEALTHY = 200
# Healthy rows by default: half of the run length, between these two.
_USUAL_HEALTHY = (1000, 20_000)
# Run lengths are extrapolated up to this many times the number of uncorrelated blocks of healthy rows.
_FARTHEST = 30
# Rows that are kept to look for the beginning of a change, and that are taken in at once.
_MOST_KEPT = 1024
# A change lasts if it is detected again within this share of the run length.
_SOON = 0.05
# Squares of larger numbers could not be added up.
_LARGEST_HEALTHY = 1e140


def _copy_learned_model(name: str, model: Any) -> StreamingKernelPCA:
    """Return a copy of a model that has learned rows, which never learns more, and refuse others."""
    found = check_model(model)
    if getattr(found, "state_", None) is None:
        raise ValueError("the model has seen no rows; call its partial_fit with healthy rows first")
    return copy.copy(found)


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
        Means, spreads and correlations that moved in the latest 1,024 rows from `start` to `last`, the surest first, at
        most five; if nothing moved, any is named once in a hundred times. Fewer than ten rows show means only.

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
    `averages` (K, p) are those of the `n_since` rows since the statistics began; (0, 0) without a chart.
    """

    names: list[str] | None
    rows: Array
    averages: Array
    n_rows: int = 0
    n_since: int = 0
    chart: Chart | None = None
    change: DistributionChange | None = None


@name_errors
@explain_unknown_arguments
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
        A parameter is out of its range, `model` has learned nothing, or `run_length` is more than 30 times `n_healthy`.

    Notes
    -----
    Each row becomes columns: whitened coordinates in the span of the model's atoms; its features, whitened and not, or
    24 principal axes if these are more; the logarithms of its novelty and of its distance; and the products of any two
    features. Exponentially weighted averages [1]_ with five rates, from the row alone to a memory of up to 200 rows,
    are compared with those of healthy rows: by the sum of squares for whitened columns, by the largest square for the
    others. So means, spreads, correlations and shapes can be seen to move, in one row or slowly.

    The **run length** is the mean wait for a level, counted in streams that are put together from blocks of healthy
    rows [2]_, four times as long as rows stay correlated. Levels that are passed less than once in a quarter of the
    healthy rows are extrapolated, as waits for rare levels are exponential. A warning tells where correlated rows are
    too few. A spread that itself rises and falls in spells makes detections several times more frequent. Half of the
    detections come within 0.7 times the mean.

    After a detection the statistics begin anew against the same healthy rows. If they pass again within a twentieth of
    the run length, the change lasts: it is reported once, and `change_detected_` gets surer. A row costs O(m (d + m))
    for m atoms. Results do not depend on how calls cut the stream.

    References
    ----------
    .. [1] C. A. Lowry, W. H. Woodall, C. W. Champ, S. E. Rigdon, "A multivariate exponentially weighted moving average
       control chart", Technometrics 34, 1992.
    .. [2] H. R. Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17,
       1989.

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
    >>> detector.restart()
    <ChangeDetector: 0 of 1,000 healthy rows>
    """

    _entry, _noun = "changes", "change detector"
    _parameters: ClassVar = {
        "model": ParameterCheck(_copy_learned_model),
        "run_length": ParameterCheck(partial(check_real, least=100.0, most=1e12), is_fixed=False),
        "n_healthy": ParameterCheck(partial(check_integer, least=_LEAST_HEALTHY)),
    }

    def __init__(self, model: StreamingKernelPCA, *, run_length: float = 10_000, n_healthy: int | None = None) -> None:
        self.model, self.run_length = model, run_length
        usual = int(np.clip(0.5 * self.run_length, *_USUAL_HEALTHY))
        self.n_healthy = usual if n_healthy is None else n_healthy
        if self.run_length > _FARTHEST * self.n_healthy:
            raise ValueError(
                f"{self.n_healthy:,} healthy rows cannot tell what happens once in {self.run_length:,.0f}; "
                f"give n_healthy={math.ceil(self.run_length / _FARTHEST):,} at least, or a run_length of at most "
                f"{_FARTHEST * self.n_healthy:,}"
            )

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
        learned, state = self.model.state_, self._state
        names = learned.names if state is None or state.names is None else np.array(state.names, dtype=object)
        rows = check_parts(X, learned.n_features, names)
        check_range(learned, rows, 1.0)
        if state is None:
            given = feature_names(X) if names is None else names
            state = DetectorState(None if given is None else [*map(str, given)], rows[:0], np.empty((0, 0)))
        record = ChangeRecord(np.ones(len(rows)), np.zeros(len(rows), dtype=bool), ())
        snapshot, columns, start = latest_axes(learned, self.model.settings()), np.empty((0, 0)), 0
        while start < len(rows):
            if state.chart is None:
                part = rows[start : start + self.n_healthy - len(state.rows)]
                _check_healthy(part, start)
                state, start = self._gather(state, part, snapshot), start + len(part)
                continue
            if not len(columns):
                columns = state.chart.columns.compute(snapshot, rows[start : start + _MOST_KEPT], state.n_rows)
            part = rows[start : start + len(columns)]
            state, lengths = self._follow(state, state.chart, part, columns, snapshot)
            record.run_length[start : start + len(lengths)] = lengths
            columns, start, change = columns[len(lengths) :], start + len(lengths), state.change
            if state.n_since == 0 and change is not None and change.last == change.detected:
                record.is_change[start - 1] = True
                record = record._replace(changes=(*record.changes, change))
        self._state = state
        return record

    def restart(self) -> Self:
        """Take the next `n_healthy` rows for the healthy ones; the latest change and the count of rows stay."""
        if (state := self._state) is not None:
            self._state = replace(state, rows=state.rows[:0], averages=np.empty((0, 0)), n_since=0, chart=None)
        return self

    @property
    def change_detected_(self) -> DistributionChange | None:
        """The latest change, as it is known by now; None if there was none."""
        return require(self._state, "ChangeDetector", "change_detected_").change

    def __repr__(self) -> str:
        state = self._state
        if state is None or state.chart is None:
            return f"<ChangeDetector: {0 if state is None else len(state.rows):,} of {self.n_healthy:,} healthy rows>"
        since = "no change" if state.change is None else f"latest change since row {state.change.start:,}"
        return f"<ChangeDetector: {state.n_rows:,} rows, {since}, run_length={self.run_length:,.0f}>"

    def _record(self) -> dict[str, Any]:
        state = None if self._state is None else record_fields(_STATE, self._state)
        return {"run_length": self.run_length, "n_healthy": self.n_healthy, "state": state}

    @classmethod
    def _build(cls, model: StreamingKernelPCA, record: dict[str, Any]) -> Self:
        detector = cls(model, run_length=record["run_length"], n_healthy=record["n_healthy"])
        if record["state"] is not None:
            d, m = model.n_features_in_, len(latest_axes(model.state_, model.settings()).span_atoms)
            dim = dict[str, tuple[int, ...]](d=(d,), c=(d * (d <= MOST_FEATURES),), m=(m,), K=(N_RATES,), G=(N_GROUPS,))
            detector._state = state = restore_section(_STATE, record["state"], Context(lengths=dim))
            _check(state, detector.n_healthy)
        return detector

    def _gather(self, state: DetectorState, rows: Array, snapshot: Snapshot) -> DetectorState:
        """Take in healthy rows, and make a chart of them once they are complete."""
        state = replace(state, rows=np.concatenate([state.rows, rows]), n_rows=state.n_rows + len(rows))
        if len(state.rows) < self.n_healthy:
            return state
        chart, autocorrelation = learn_chart(state.rows, snapshot)
        longest = _FARTHEST * autocorrelation.n_blocks
        if self.run_length > longest:
            warn(
                f"ChangeDetector: {self.n_healthy:,} healthy rows resemble each other so much that they hold "
                f"{autocorrelation.n_blocks:,.0f} independent runs, too few for run_length={self.run_length:,.0f}: "
                f"expect more detections, give a larger n_healthy, or a run_length of {longest:,.0f}",
            )
        return replace(state, rows=state.rows[:0], n_since=0, averages=0.0 * chart.precision, chart=chart)

    def _follow(
        self, state: DetectorState, chart: Chart, rows: Array, columns: Array, snapshot: Snapshot
    ) -> tuple[DetectorState, Array]:
        """Take in rows up to the first that detects a change, and return the run lengths of those taken."""
        averages, change = state.averages.copy(), state.change
        statistics, place = chart.follow(columns, averages, chart.run_lengths.find_level(self.run_length))
        run_lengths = chart.run_lengths.find_run_lengths(statistics)
        n_rows, n_since = state.n_rows + len(statistics), state.n_since + len(statistics)
        kept = np.concatenate([state.rows, rows[: len(statistics)]])[-_MOST_KEPT:]
        if place < 0:
            return replace(state, rows=kept, n_rows=n_rows, n_since=n_since, averages=averages), run_lengths
        reached = float(run_lengths[-1])
        confidence = math.exp(-n_since / reached)
        if change is not None and change.last == n_rows - n_since and n_since <= self.run_length * _SOON:
            # Healthy rows would hardly be taken for changed ones again so soon: it lasts, and more is known of it.
            surest = max(change.run_length, reached), max(change.confidence, confidence)
            change = replace(change, last=n_rows, run_length=surest[0], confidence=surest[1])
        else:
            since = kept[-n_since:]
            columns = chart.columns.compute(snapshot, since, n_rows - len(since))
            kept = since[chart.locate_start(columns, averages, place) :]
            change = DistributionChange(n_rows - len(kept), n_rows, n_rows, reached, confidence)
        change = replace(change, features=find_shifts(chart.moments, kept, state.names))
        return replace(state, rows=kept, n_rows=n_rows, n_since=0, averages=0.0 * averages, change=change), run_lengths


def _check_healthy(rows: Array, first: int) -> None:
    """Refuse healthy rows that have no variance in double precision."""
    i, j = np.unravel_index(np.abs(rows).argmax(), rows.shape)
    if abs(rows[i, j]) > _LARGEST_HEALTHY:
        raise ValueError(
            f"expected healthy rows of numbers up to {_LARGEST_HEALTHY:g} but row {first + i} has "
            f"{rows[i, j]:.3g} in feature {j}; leave such rows out, or scale the feature"
        )


def _check(state: DetectorState, n_healthy: int) -> None:
    """Refuse parts that do not fit together."""
    chart, (n_kept, d), most = state.chart, state.rows.shape, _MOST_KEPT if state.chart else n_healthy - 1
    if n_kept > most or state.n_rows < max(state.n_since, n_kept, state.change.last if state.change else 0):
        raise ValueError("it keeps too many rows, or a change or a count is outside of the stream")
    if len(state.names or range(d)) != d or state.averages.shape != (chart.precision.shape if chart else (0, 0)):
        raise ValueError("it has too few or too many names or averages")
    if chart is not None:
        *_, n_raw, p = chart.columns.bounds.tolist()
        widths = chart.precision.shape[1], len(chart.columns.middle), len(chart.columns.product_mean)
        if widths != (p, n_raw, p - n_raw):
            raise ValueError("its chart has too few or too many columns")


_DIRECTIONS = " | ".join(f"{what} {way}" for what in ("mean", "spread", "correlation") for way in ("up", "down"))
# Lengths: d features, c of them if they are few; m atoms; K rates; G groups; r, k, h and t columns, p of all; q levels.
_STATE = whole_of(
    f"""
    DetectorState:
        n_rows n_since / integer / / >= 0
        names / texts?
        rows / <f8 / nd
        averages / <f8 / kp
    DistributionChange: change?
        start detected last / integer / / >= 0
        run_length confidence / real / / >= 0
    Shift: change.features*
        feature / feature
        direction / text / / {_DIRECTIONS}
        before after / real
        other / feature?
    Chart: chart?
        rates / <f8 / K / >= 0
        precision / <f8 / Kp / >= 0
        power scale / <f8 / KG / > 0
    FeatureMoments: chart.moments
        n_rows / integer / / >= 1
        mean / <f8 / d
        deviation / <f8 / d / > 0
        error / <f8 / 2d / >= 0
        correlation / <f8 / cc
    RunLengthTable: chart.run_lengths
        levels log_lengths / <f8 / q / ascending
    Columns: chart.columns
        middle / <f8 / h
        bound scale / <f8 / h / > 0
        product_mean / <f8 / t
        product_scale / <f8 / t / > 0
    Projection: chart.columns.projection
        coordinate_mean / <f8 / m
        whitening / <f8 / mr
        feature_middle / <f8 / d
        feature_scale / <f8 / c
        axes / <f8 / dk
        least_novelty / real / / > 0
    """,
    (DetectorState, DistributionChange, Shift, Chart, FeatureMoments, RunLengthTable, Columns, Projection),
)
