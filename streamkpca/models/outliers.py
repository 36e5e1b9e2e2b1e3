"""Outlier detection in a table that holds its own outliers."""

from dataclasses import KW_ONLY, dataclass, replace
from secrets import randbits
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import numpy as np

from streamkpca._core.arrays import Array, Indices, Names
from streamkpca._core.concurrency import cached_property, replace_fields
from streamkpca._core.parameters import check_choice, check_integer, check_real
from streamkpca._core.reservoir import Reservoir
from streamkpca.components.relation import SMALLEST_UNIT, Relation, RowMoments
from streamkpca.components.snapshot import Snapshot
from streamkpca.errors import name_errors, require
from streamkpca.models._protocol import Parameterised, explain_unknown_arguments
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.rows import validation
from streamkpca.rows.parts import Rows, parts_of

# Share of the rows, the oddest at a first look, that is not learned from. On 28 tables with outliers, the mean area
# under the ROC curve is 0.838 with it and 0.819 without; a fifth gains 0.002, and costs 0.005 on tables without
# outliers.
_LEFT_OUT = 0.1
# Quantile of the residuals that is the unit of a feature. The 0.99 quantile, as in streams, is an outlier in many
# tables, and costs 0.020.
_UNIT_QUANTILE = 0.9
# Most atoms; 32 cost 0.002 on large tables without outliers, and 128 gain as much for twice the time.
_MOST_ATOMS = 64
# Least number of rows for each atom: where most rows are atoms, they are no measure of each other. Two rows cost 0.003.
_ROWS_PER_ATOM = 8
# Axes that rows are compared with at the first look: outliers become atoms, but hardly turn the first axes. Of 16, ten
# rows inside a ring have some for themselves.
_N_AXES = 10
# Scores count how often the rows of the table must be halved until one is as odd. So often they are; what is odder than
# the last eighth is rare as its tail says. With two or four halvings, areas are within 0.002.
_N_HALVINGS = 3
# Added before logarithms are taken.
_LEAST = 1e-9
# Least difference of logarithms in a halving: many rows may be equal.
_LEAST_STEP = 0.02
# With "auto", rows are outliers that are rarer than one in 32: 5% of the rows of tables with outliers or without.
_AUTO = 5.0


class _Score(NamedTuple):
    """How rare rows of the table are that are as odd as a row, in the view in which it is rarest.

    The views are of its numbers, alone in `units` (d,) and related, and of its place. `levels` (3, h + 1) are the
    logarithms that all, half, a quarter ... of the table's rows exceed in each view; `lasts` (3,) are the halvings to
    the rows beyond, more where many rows are equal, and `steps` (3,) the logarithms of one more.
    """

    units: Array
    related: Relation
    place: Snapshot
    is_first: bool
    levels: Array
    lasts: Array
    steps: Array

    @classmethod
    def learn(cls, rows: Array, table: Array, *, is_first: bool) -> Self:
        """Learn the views from rows (k, d), and their levels from those of the table (n, d), which they are some of."""
        related = Relation.fit(RowMoments.none(rows.shape[1]).add(rows), rows, _UNIT_QUANTILE)
        standard = related.standardise(rows)
        units = np.maximum(np.quantile(np.abs(standard), _UNIT_QUANTILE, axis=0), SMALLEST_UNIT)
        m = max(min(_MOST_ATOMS, len(rows) // _ROWS_PER_ATOM), 2)
        model = StreamingKernelPCA(min(_N_AXES, m), max_atoms=m, noise_variance=None, reservoir_size=0)
        place = model.fit(standard).snapshot_
        begun = cls(units, related, place, is_first, np.empty((3, 0)), np.empty(3), np.empty(3))
        views = begun.view(table)
        levels = np.quantile(views, 1.0 - 0.5 ** np.arange(_N_HALVINGS + 1), axis=0).T
        excess = np.maximum(views.T - levels[:, -1:], 0.0)
        n_beyond = np.maximum(np.count_nonzero(excess, axis=1), 1)
        lasts = np.maximum(np.log2(len(table) / n_beyond), _N_HALVINGS)
        steps = np.log(2.0) * excess.sum(axis=1) / n_beyond
        return begun._replace(levels=levels, lasts=lasts, steps=np.maximum(steps, _LEAST_STEP))

    def view(self, rows: Array) -> Array:
        """Return the logarithms of how odd rows (n, d) are in each view (n, 3)."""
        standard = self.related.standardise(rows)
        alone = np.log1p((standard / self.units) ** 2).sum(axis=1)
        place = self.place.unshared_error(standard) if self.is_first else self.place.novelty(standard)
        return np.log(np.column_stack([alone, self.related.score(rows), place]) + _LEAST)

    def of(self, rows: Rows) -> Array:
        """Score rows (n, d): (n,)."""
        scores = np.empty(len(rows))
        for place, part in parts_of(rows):
            columns = zip(self.view(part).T, self.levels, self.lasts, self.steps, strict=True)
            scores[place] = np.max([_count_halvings(*column) for column in columns], axis=0)
        return scores


def _count_halvings(numbers: Array, levels: Array, last: float, step: float) -> Array:
    """Return where numbers (n,) lie among ascending levels (h + 1,), which count as steps, and go on beyond."""
    beyond: Array = last + (numbers - levels[-1]) / step
    return np.where(numbers > levels[-1], beyond, np.interp(numbers, levels, np.arange(float(len(levels)))))


@dataclass(frozen=True, eq=False)
class _Table:
    """A random sample of the rows given so far, and what is learned from it, when it is first asked for."""

    names: Names | None
    sample: Reservoir
    n_rows: int
    seed: int
    contamination: float | None
    table_scores: Array | None = None

    def add(self, rows: Rows, contamination: float | None) -> Self:
        """Add rows (n, d); which ones the sample holds does not depend on how calls cut the table."""
        sample, n_rows = self.sample, self.n_rows
        for _, part in parts_of(rows):
            # One number of the generator for each row, by its position.
            draws = np.random.Generator(np.random.PCG64(self.seed).advance(n_rows)).random(len(part))
            sample = sample.add(part, np.ones(len(part)), n_rows, -np.log1p(-draws))
            n_rows += len(part)
        return replace(self, sample=sample, n_rows=n_rows, contamination=contamination, table_scores=None)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.sample.n_features

    @cached_property
    def rows(self) -> Array:
        """The sampled rows (k, d), in the order of the table."""
        return self.sample.in_stream_order()[0]

    @cached_property
    def score(self) -> _Score:
        """The score, learned twice: at the second time without the rows that are odd at the first."""
        rows = self.rows
        first = _Score.learn(rows, rows, is_first=True).of(rows)
        return _Score.learn(rows[first <= np.quantile(first, 1.0 - _LEFT_OUT)], rows, is_first=False)

    @cached_property
    def threshold(self) -> float:
        """The score beyond which rows are outliers."""
        if self.contamination is None:
            return _AUTO
        scores = self.score.of(self.rows) if self.table_scores is None else self.table_scores
        return float(np.quantile(scores, 1.0 - self.contamination))


@name_errors
@explain_unknown_arguments
@dataclass(eq=False, repr=False)
class OutlierDetector(Parameterised):
    """Find the outliers of a table among its own rows, and of other rows like them.

    The detector is fitted to rows of which some are outliers, and ranks these rows and others. To find rows that are
    unlike healthy ones, ask a `StreamingKernelPCA` that has learned these for the `novelty` of others. Questions raise
    `NotFittedError` before the first row, and TypeError or ValueError if X has other columns or is not finite and real.

    Parameters
    ----------
    contamination : float or "auto", default="auto"
        Share of outliers in the table, above 0 and at most 0.5: the share of its rows beyond the threshold. "auto":
        rows that are rarer than one in 32 are outliers. It changes nothing but the threshold.
    max_samples : int, default=4096
        Most rows that are kept and learned from, a random sample of all rows.
    random_state : int or None, default=0
        Seed of the sample; None for a new seed each time. Tables of at most `max_samples` rows are not sampled.

    See Also
    --------
    StreamingKernelPCA : Learn healthy rows, and find novel ones.

    Notes
    -----
    A row is as odd as in the view in which it is rarest, of three, on standardised columns. *Alone*: the sum over its
    numbers z_j of log(1 + (z_j / q_j)^2), where q_j is the 0.9 quantile of their sizes. *Related*: the same with what
    z_j differs from its ridge regression on the other numbers [1]_. *Place*: the novelty of the row for a kernel PCA of
    at most 64 atoms. The score is the binary logarithm of how many rows of the table have one that is as odd. It is
    counted up to 3, one row in eight; beyond, views have a Pareto tail, by the mean excess of their logarithms [2]_.

    Outliers that are learned hide themselves: deviations grow with them, and atoms are chosen where residuals are
    largest. So all is learned twice, the second time without the tenth of the rows that is oddest at the first, which
    compares rows with ten axes. Learning costs O(k d^2 + k m (d + m)) with m atoms for k sampled rows, a row
    O(d^2 + m (d + m)). The order of the rows matters for which are sampled, and a little for which atoms are found.

    References
    ----------
    .. [1] J. Besag, "Statistical analysis of non-lattice data", The Statistician 24, 1975.
    .. [2] B. M. Hill, "A simple general approach to inference about the tail of a distribution", Annals of Statistics
       3, 1975.

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

    # Without an annotation, as it is no parameter.
    _table = cast("_Table | None", None)
    _sklearn_type: ClassVar[str | None] = "outlier_detector"

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
        self._table = replace_fields(table, table_scores=table.score.of(rows))
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
        table = self._table
        for batch in validation.arrow_batches(X) if validation.is_arrow(X) else [X]:
            table, _ = self._extend(table, batch)
        self._table = table
        return self

    def score_samples(self, X: Any) -> Array:
        """Return minus the scores (n,) of rows (n, d), of the table or others; the lower, the odder.

        Parameters
        ----------
        X : array-like of shape (n, d)
        """
        table, rows = self._ask("score_samples", X)
        return -table.score.of(rows)

    def decision_function(self, X: Any) -> Array:
        """Return `score_samples` less `offset_`, (n,): how far rows are from being outliers, negative for these.

        PyOD's method of the same name has the other sign, as its `decision_scores_` have here too.

        Parameters
        ----------
        X : array-like of shape (n, d)
        """
        table, rows = self._ask("decision_function", X)
        return table.threshold - table.score.of(rows)

    def predict(self, X: Any) -> Indices:
        """Return -1 for outliers and 1 for other rows: (n,).

        Parameters
        ----------
        X : array-like of shape (n, d)
        """
        table, rows = self._ask("predict", X)
        return np.where(table.score.of(rows) > table.threshold, -1, 1)

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
        return None if self._table is None else (self._table.n_features, self._table.names)

    def _extend(self, table: _Table | None, X: Any) -> tuple[_Table, Rows]:
        """Return a table, or a new one, with more rows, and these rows, checked."""
        contamination: float | None = None
        if isinstance(self.contamination, str):
            check_choice("contamination", self.contamination, choices=("auto",))
        else:
            contamination = check_real("contamination", self.contamination, least=0.0, most=0.5, open_below=True)
        size = check_integer("max_samples", self.max_samples, least=1)
        seed = randbits(63) if self.random_state is None else check_integer("random_state", self.random_state, least=0)
        width, names = (None, None) if table is None else (table.n_features, table.names)
        rows = validation.check_parts(X, width, names)
        if table is None:
            table = _Table(validation.feature_names(X), Reservoir.empty(size, rows.shape[1]), 0, seed, None)
        return table.add(rows, contamination), rows

    def _require(self, request: str) -> _Table:
        return require(self._table, type(self).__name__, request)

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
