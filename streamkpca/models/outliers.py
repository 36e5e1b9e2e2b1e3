"""Outlier detection in a table that holds its own outliers."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from secrets import randbits
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import numpy as np

from streamkpca._core.arrays import Array, Indices, Names
from streamkpca._core.concurrency import cached_property, replace_fields
from streamkpca._core.parameters import check_choice, check_integer, check_real
from streamkpca._core.reservoir import Reservoir
from streamkpca.checkpoint.fields import Context, record_fields, restore_section, whole_of
from streamkpca.checkpoint.table import make_reservoir
from streamkpca.components._loops import FARTHEST, score_neighbours
from streamkpca.errors import name_errors, require
from streamkpca.models._protocol import Parameterised, explain_unknown_arguments
from streamkpca.models.saving import ParameterCheck, SavedWithModel
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.rows import validation
from streamkpca.rows.parts import Rows, parts_of

# Share of the rows, the oddest at a first look, that are no references and set no units. On 28 tables with outliers,
# the mean area under the ROC curve is 0.841 with a tenth, 0.838 with a fifth and 0.836 with three tenths; by each 27 of
# them, a tenth would be chosen.
_LEFT_OUT = 0.1
# Quantile of the distances from the median that is the unit of a column; 0.8 is within 0.001, and 0.95 costs 0.005.
_UNIT_QUANTILE = 0.9
# Most rows that others are compared with; 1,024 gain nothing.
_MOST_REFERENCES = 512
# Which of the nearest references count. The 12th alone is as good on those tables and takes three quarters of the time,
# but the area of a table varies by 0.010 with the sample, not by 0.007, and 13 equal outliers hide each other.
_ORDERS = np.array([12, 24])
# With "auto", the share of the rows that are outliers.
_AUTO = 0.05
# Added to seeds: rows that a user drew from a generator of the same seed would be in the order of their values.
_OURS = 0x6F75746C
# A unit below this share of the median is the rounding of numbers that are all the same.
_ROUNDING = 1e-12


class _Neighbours(NamedTuple):
    """The rows that others are compared with, `references` (d, m), standardised by the centre and units (d,)."""

    centre: Array
    units: Array
    references: Array

    @classmethod
    def learn(cls, rows: Array) -> Self:
        """Take units from rows (k, d), and references from the first of them, which are in random order."""
        # Quantiles are numbers of the column, as the mean of two may overflow.
        centre = np.quantile(rows, 0.5, axis=0, method="lower")
        size = np.abs(centre)
        with np.errstate(over="ignore"):
            away = np.abs(rows - centre)
            units = np.quantile(away, _UNIT_QUANTILE, axis=0, method="lower")
            for spare in (np.sqrt((away * away).mean(axis=0)), np.where(size > 0.0, size, 1.0)):
                units = np.where(units > _ROUNDING * size, units, spare)
        begun = cls(centre, np.minimum(units, np.finfo(float).max), rows)
        return begun._replace(references=np.ascontiguousarray(begun.standardise(rows[:_MOST_REFERENCES]).T))

    def standardise(self, rows: Array) -> Array:
        """Return rows (n, d) less the centre, in units; of size 1e60 at most."""
        with np.errstate(over="ignore"):
            standard: Array = np.clip((rows - self.centre) / self.units, -FARTHEST, FARTHEST)
        return standard

    def score(self, rows: Rows) -> Array:
        """Score rows (n, d): (n,)."""
        scores = np.empty(len(rows))
        for place, part in parts_of(rows):
            score_neighbours(self.standardise(part), self.references, _ORDERS, scores[place])
        return scores


@dataclass(frozen=True, eq=False)
class _Table:
    """A random sample of the rows given so far, and what is learned from it, when it is first asked for."""

    names: Names | None
    sample: Reservoir
    n_rows: int
    seed: int
    contamination: float
    table_scores: Array | None = None

    def add(self, rows: Rows, contamination: float) -> Self:
        """Add rows (n, d); which ones the sample holds does not depend on how calls cut the table."""
        sample, n_rows = self.sample, self.n_rows
        for _, part in parts_of(rows):
            # One number of the generator for each row, by its position.
            draws = np.random.Generator(np.random.PCG64([_OURS, self.seed]).advance(n_rows)).random(len(part))
            sample = sample.add(part, np.ones(len(part)), n_rows, -np.log1p(-draws))
            n_rows += len(part)
        return replace(self, sample=sample, n_rows=n_rows, contamination=contamination, table_scores=None)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.sample.n_features

    @cached_property
    def neighbours(self) -> _Neighbours:
        """What rows are compared with, learned twice: at the second time without the rows that are odd at the first."""
        rows = self.sample.rows
        first = _Neighbours.learn(rows).score(rows)
        return _Neighbours.learn(rows[first <= np.quantile(first, 1.0 - _LEFT_OUT)])

    @cached_property
    def threshold(self) -> float:
        """The score beyond which rows are outliers."""
        scores = self.neighbours.score(self.sample.rows) if self.table_scores is None else self.table_scores
        return float(np.quantile(scores, 1.0 - self.contamination))


@name_errors
@explain_unknown_arguments
@dataclass(eq=False, repr=False)
class OutlierDetector(Parameterised, SavedWithModel[_Table]):
    """Find the outliers of a table among its own rows, and of other rows like them.

    The detector is fitted to rows of which some are outliers, and ranks these rows and others. To find rows that are
    unlike healthy ones, ask a `StreamingKernelPCA` that has learned these for the `novelty` of others. Questions raise
    `NotFittedError` before the first row, and TypeError or ValueError if X has other columns or is not finite and real.

    Parameters
    ----------
    contamination : float or "auto", default="auto"
        Share of outliers in the table, above 0 and at most 0.5: the share of its rows beyond the threshold; "auto"
        is 0.05, whether there are fewer outliers or more. It changes nothing but the threshold.
    max_samples : int, default=4096
        Most rows that are kept and learned from, a random sample of all rows.
    random_state : int or None, default=0
        Seed of the sample; None for a new seed each time. Tables of at most `max_samples` rows are not sampled.

    See Also
    --------
    StreamingKernelPCA : Learn healthy rows, and find novel ones.

    Notes
    -----
    The score is the mean distance to the 12th and the 24th nearest of 512 rows, a random sample of the table: a sample
    holds few outliers that are alike, so that these do not hide each other [1]_.
    Columns are measured from their median, in units of the 0.9 quantile of the distances to it, which a tenth of
    outliers hardly moves. A column where that is 0 has the root of the mean square as its unit, and one that did not
    vary its size.

    Units and sample are learned twice, the second time without the tenth of the rows that is oddest at the first. A row
    costs O(512 d), alone as in a batch to the bit, and learning as much for each sampled row. The order of the rows
    matters for which are sampled.

    References
    ----------
    .. [1] M. Sugiyama, K. Borgwardt, "Rapid distance-based outlier detection via sampling", NIPS 2013.

    Examples
    --------
    A circle, and two rows that are not on it:

    >>> import pandas as pd
    >>> from streamkpca import OutlierDetector
    >>> angle = np.random.default_rng(0).uniform(0, 2 * np.pi, 500)
    >>> table = pd.DataFrame({"load": np.cos(angle), "heat": np.sin(angle)})
    >>> table.iloc[:2] = [[0.0, 0.0], [1.1, 1.1]]
    >>> detector = OutlierDetector(contamination=0.004)
    >>> np.flatnonzero(detector.fit_predict(table) == -1)
    array([0, 1])
    >>> detector.n_samples_seen_, detector.n_features_in_, detector.feature_names_in_
    (500, 2, array(['load', 'heat'], dtype=object))

    Other rows, by scikit-learn's names and signs, and the fitted ones by PyOD's:

    >>> row = [[0.1, 0.0]]
    >>> detector.predict(row), detector.decision_function(row) < 0.0, detector.score_samples(row) < detector.offset_
    (array([-1]), array([ True]), array([ True]))
    >>> np.flatnonzero(detector.labels_), np.flatnonzero(detector.decision_scores_ > detector.threshold_)
    (array([0, 1]), array([0, 1]))
    """

    contamination: float | Literal["auto"] = "auto"
    _: KW_ONLY
    max_samples: int = 4096
    random_state: int | None = 0

    # Without annotations, as these are no parameters. A file holds a model, and what is beside it; here an empty one.
    model = StreamingKernelPCA()
    extra_ = cast(Any, None)
    _state = cast("_Table | None", None)
    _entry: ClassVar[str] = "outliers"
    _noun: ClassVar[str] = "outlier detector"
    _parameters: ClassVar[Mapping[str, ParameterCheck]] = {}
    _sklearn_type: ClassVar[str | None] = "outlier_detector"
    # Parameters are checked when they are used.
    __setattr__ = object.__setattr__  # type: ignore[assignment]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find out what is usual among the rows of a table, and score them.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Also a sparse matrix, a DataFrame or an Arrow table.
        y : object
            Ignored; accepted for scikit-learn.

        Raises
        ------
        TypeError, ValueError
            X is not a finite real array, or a parameter is invalid. The detector is as before the call.
        """
        del y
        X = validation.arrow_table(X)
        table, rows = self._extend(None, X)
        self._state = replace_fields(table, table_scores=table.neighbours.score(rows))
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add rows of a table that is larger than the memory; the next question learns from the sample anew.

        Parameters
        ----------
        X, y
            As for `fit`, with the columns of the rows before. An Arrow stream is read batch by batch.

        Examples
        --------
        >>> rows = np.random.default_rng(0).normal(size=(20_000, 3))
        >>> whole, parts = OutlierDetector().fit(rows), OutlierDetector()
        >>> for part in np.array_split(rows, 7):
        ...     parts = parts.partial_fit(part)
        >>> bool((parts.score_samples(rows) == whole.score_samples(rows)).all())
        True
        """
        del y
        table = self._state
        for batch in validation.arrow_batches(X) if validation.is_arrow(X) else [X]:
            table, _ = self._extend(table, batch)
        self._state = table
        return self

    def score_samples(self, X: Any) -> Array:
        """Return minus the scores (n,) of rows (n, d), of the table or others; the lower, the odder.

        Parameters
        ----------
        X : array-like of shape (n, d)
        """
        table, rows = self._ask("score_samples", X)
        return -table.neighbours.score(rows)

    def decision_function(self, X: Any) -> Array:
        """Return `score_samples` less `offset_`, (n,): how far rows are from being outliers, negative for these.

        PyOD's method of the same name has the other sign, as its `decision_scores_` have here too.

        Parameters
        ----------
        X : array-like of shape (n, d)
        """
        table, rows = self._ask("decision_function", X)
        return table.threshold - table.neighbours.score(rows)

    def predict(self, X: Any) -> Indices:
        """Return -1 for outliers and 1 for other rows: (n,).

        Parameters
        ----------
        X : array-like of shape (n, d)
        """
        table, rows = self._ask("predict", X)
        return np.where(table.neighbours.score(rows) > table.threshold, -1, 1)

    def fit_predict(self, X: Any, y: Any = None) -> Indices:
        """Return -1 for the outliers among rows, after a fit to them, and 1 for the others: (n,).

        Parameters
        ----------
        X, y
            As for `fit`.
        """
        return 1 - 2 * self.fit(X, y).labels_

    @property
    def offset_(self) -> float:
        """The `score_samples` below which rows are outliers."""
        return -self._require("offset_").threshold

    @property
    def threshold_(self) -> float:
        """The `decision_scores_` beyond which rows are outliers: PyOD's name for minus `offset_`."""
        return self._require("threshold_").threshold

    @property
    def decision_scores_(self) -> Array:
        """The scores of the rows given to `fit`, the higher the odder: PyOD's name for minus `score_samples`."""
        return self._scores_of_table("decision_scores_")

    @property
    def labels_(self) -> Indices:
        """PyOD's labels of the rows that were given to `fit`: 1 for outliers, and 0."""
        scores = self._scores_of_table("labels_")
        return (scores > self._require("labels_").threshold).astype(np.intp)

    @property
    def n_samples_seen_(self) -> int:
        """Number of rows of the table so far."""
        return self._require("n_samples_seen_").n_rows

    def _width(self) -> tuple[int, Names | None] | None:
        return None if self._state is None else (self._state.n_features, self._state.names)

    def _record(self) -> dict[str, Any]:
        state = None if self._state is None else record_fields(_STATE, self._state)
        return {"parameters": self.get_params(), "state": state}

    @classmethod
    def _build(cls, model: StreamingKernelPCA, record: dict[str, Any]) -> Self:
        del model
        detector = cls(**record["parameters"])
        detector._check()
        if record["state"] is not None:
            detector._state = restore_section(_STATE, record["state"], Context())
        return detector

    def _check(self) -> tuple[float, int, int]:
        """Return the share of outliers, the size of the sample and the seed."""
        share = _AUTO
        if isinstance(self.contamination, str):
            check_choice("contamination", self.contamination, choices=("auto",))
        else:
            share = check_real("contamination", self.contamination, least=0.0, most=0.5, open_below=True)
        size = check_integer("max_samples", self.max_samples, least=1)
        seed = randbits(60) if self.random_state is None else check_integer("random_state", self.random_state, least=0)
        return share, size, seed

    def _extend(self, table: _Table | None, X: Any) -> tuple[_Table, Rows]:
        """Return a table, or a new one, with more rows, and these rows, checked."""
        contamination, size, seed = self._check()
        width, names = (None, None) if table is None else (table.n_features, table.names)
        rows = validation.check_parts(X, width, names)
        if table is None:
            table = _Table(validation.feature_names(X), Reservoir.empty(size, rows.shape[1]), 0, seed, contamination)
        return table.add(rows, contamination), rows

    def _require(self, request: str) -> _Table:
        return require(self._state, type(self).__name__, request)

    def _ask(self, method: str, X: Any) -> tuple[_Table, Rows]:
        """Return what is known of the table, and rows that a method is asked about, checked."""
        table = self._require(method)
        return table, validation.check_parts(X, table.n_features, table.names)

    def _scores_of_table(self, request: str) -> Array:
        scores = self._require(request).table_scores
        if scores is None:
            raise AttributeError(
                f"OutlierDetector has no {request}: partial_fit keeps a sample of the rows; score rows by score_samples"
            )
        return scores


def _restore_table(names: list[str] | None, sample: Reservoir, n_rows: int, **rest: Any) -> _Table:
    if len(sample) != min(sample.size, n_rows) or len(names or [""] * sample.n_features) != sample.n_features:
        raise ValueError("its sample has too few or too many rows or columns")
    columns = None if names is None else np.array(names, dtype=object)
    return _Table(columns, sample, n_rows, **rest)


_STATE = whole_of(
    """
    _restore_table:
        names / texts?
        n_rows / integer / / >= 1
        seed / large integer / / >= 0
        contamination / real / / > 0
        table_scores / <f8? / n
    make_reservoir: sample
        size / integer / / >= 1
        rows / <f8 / nd
        weights / <f8 / n / >= 0
        positions / <i8 / n / >= 0
        keys / <f8 / n / ascending
    """,
    (_restore_table, make_reservoir),
)
