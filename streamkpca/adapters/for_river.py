"""Kernel PCA in River's pipelines: a transformer and an anomaly detector. Needs the extra ``river``."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streamkpca.kernels import Kernel
from streamkpca.models.streaming import StreamingKernelPCA
from streamkpca.rows.parts import RowParts, Rows
from streamkpca.rows.validation import as_rows, is_pandas_na
from streamkpca.stream.checks import check_continued
from streamkpca.stream.parameters import PARAMETERS
from streamkpca.stream.settings import StreamSettings

try:
    from river import base
    from river.utils import dataframe
except ModuleNotFoundError as error:
    raise ImportError(f'streamkpca.adapters.for_river needs {error.name}; pip install "streamkpca[river]"') from error

__all__ = ["KernelPCADetector", "KernelPCATransformer"]

# Mini-batches of up to so many numbers are converted at once.
_CONVERTED_WHOLE = 2**19

Array = npt.NDArray[np.float64]


class _Learner:
    """Base of the transformer and the detector: learning. The first row sets the features, sorted by name."""

    def _begin(self, parameters: dict[str, Any]) -> None:
        """Make the model behind from parameters under River's names."""
        self._features: list[Any] = []
        self._next_refit = 1
        seed = parameters.pop("seed")
        self._model = StreamingKernelPCA(**parameters, random_state=seed)

    @property
    def _mutable_attributes(self) -> set[str]:
        """Parameters that may change in the middle of a stream."""
        return {one.name for one in PARAMETERS if one.can_change and not one.concerns_axes}

    def __getstate__(self) -> dict[str, Any]:
        # A copy, as pickle and deepcopy iterate over it.
        return vars(self).copy()

    def __setattr__(self, name: str, value: Any) -> None:
        # River's `mutate` sets attributes of this object; the model it wraps has parameters of its own.
        model = self.__dict__.get("_model")
        if model is not None and name in self._mutable_attributes:
            changed, where = model.get_params(deep=False) | {name: value}, f"{type(self).__name__}.mutate"
            settings = StreamSettings.checked(**changed, where=where)
            state = getattr(model, "state_", None)
            if state is not None:
                check_continued(state, settings, where)
            setattr(model, name, value)
        object.__setattr__(self, name, value)

    @property
    def kernel_pca(self) -> StreamingKernelPCA:
        """The wrapped model, for everything else: certificates, drift, atoms, saving.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCADetector
        >>> detector = KernelPCADetector()
        >>> for i in range(100):
        ...     detector.learn_one({"load": i % 7})
        >>> detector.kernel_pca.n_atoms_  # 100 rows, 7 of them different
        7
        """
        return self._model

    @property
    def features_(self) -> list[Any]:
        """Names of the features in the order of the model's columns; empty before the first row.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCATransformer
        >>> model = KernelPCATransformer(2)
        >>> model.learn_one({"load": 0.5, "heat": 20.0})
        >>> model.features_
        ['heat', 'load']
        """
        return list(self._features)

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Learn the next row of the stream.

        Parameters
        ----------
        x : dict
            Numbers by feature. The first row that has any sets the features.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number, unless it is missing and `on_missing` allows that. Nothing is learned.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCATransformer
        >>> model = KernelPCATransformer(2)
        >>> model.learn_one({"load": 0.5, "heat": 20.0})
        >>> model.learn_one({"load": 0.7})  # heat counts as 0
        >>> model.kernel_pca.n_samples_seen_
        2
        """
        if features := self._features or _in_order(x):
            self._learn(self._row(x, features, "learn_one"), features)

    def learn_many(self, X: Any) -> None:
        """Learn a mini-batch, with the same result as its rows one by one.

        Parameters
        ----------
        X : DataFrame
            From pandas, polars, pyarrow, or any other library that River takes. Each column is a feature.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number, unless it is missing and `on_missing` allows that. Nothing is learned.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamkpca.adapters.for_river import KernelPCATransformer
        >>> model = KernelPCATransformer(2)
        >>> model.learn_many(pd.DataFrame({"load": [0.5, 0.7], "heat": [20.0, 21.0]}))
        >>> model.kernel_pca.n_samples_seen_
        2
        """
        frame = dataframe.into_frame(X)
        if len(frame) and (features := self._features or _in_order(frame.columns)):
            self._learn(self._rows(frame, features, "learn_many"), features)

    def _learn(self, rows: Rows, features: list[Any]) -> None:
        block_size = self._model.settings(f"{type(self).__name__}.learn_one").block_size
        if self._next_refit < block_size:
            self._learn_in_first_block(rows, block_size)
        else:
            self._model.partial_fit(rows)
        self._features = features

    def _learn_in_first_block(self, rows: Rows, block_size: int) -> None:
        """Learn rows; until the first block is full, refit whenever the stream has grown by a quarter.

        River queries the model after every row, and the model would refit for each query to include all rows. That took
        70 s for the first 510 rows; this schedule takes 1 s. It depends on row counts alone, so the way the stream is
        cut into calls does not change the result.
        """
        model, before, next_refit = self._model, getattr(self._model, "state_", None), self._next_refit
        seen = 0 if before is None else before.n_rows
        try:
            while seen + len(rows) >= next_refit < block_size:
                count = next_refit - seen
                model.partial_fit(rows[:count]).refit()
                rows = rows.since(count) if isinstance(rows, RowParts) else rows[count:]
                seen = next_refit
                next_refit += max(1, next_refit // 4)
            if len(rows):
                model.partial_fit(rows)
        except BaseException:
            model.state_ = before
            raise
        self._next_refit = next_refit

    @property
    def _absent(self) -> float:
        """The number that stands for a feature that a row does not have."""
        return np.nan if self._model.on_missing == "marginal" else 0.0

    def _row(self, x: Mapping[Any, Any], features: list[Any], method: str) -> Array:
        absent = self._absent
        values = [x.get(name, absent) for name in features]
        try:
            row = np.array([values])
        except ValueError:
            # Values of different lengths.
            row = np.array([[None]])
        if row.dtype.kind not in "fiub" or row.ndim != 2:
            # Slower, for numbers without a numpy type: fractions, decimals, large integers.
            row = np.array([[self._number(value, name, method) for name, value in zip(features, values, strict=True)]])
        return row.astype(np.float64, copy=False)

    def _number(self, value: Any, feature: Any, method: str) -> float:
        # A zero-dimensional array is a number, too.
        given = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
        if is_pandas_na(given) or (given is None and self._model.on_missing != "raise"):
            return np.nan
        if not isinstance(given, Real | Decimal | np.bool_):
            raise self._refusal(method, feature, repr(value))
        try:
            return float(given)
        except OverflowError:
            return np.inf

    def _rows(self, frame: Any, features: list[Any], method: str) -> Rows:
        """Return the rows of a mini-batch, absent features filled in; many rows are converted where they are used."""
        column_of = {name: j for j, name in enumerate(frame.columns)}
        present = [i for i, name in enumerate(features) if name in column_of]
        for i in present:
            column = frame[:0, [column_of[features[i]]]]
            if not _is_numeric(column):
                raise self._refusal(method, features[i], f"a column of {column.schema.dtypes()[0]}")
        shape = len(frame), len(features)
        positions = [column_of[features[i]] for i in present]
        where, absent = f"{type(self).__name__}.{method}", self._absent

        def converted(start: int, stop: int) -> Array:
            if not positions:
                return np.full((stop - start, shape[1]), absent)
            # Rows first: to choose columns copies them.
            values = as_rows(frame[start:stop][:, positions].to_native(), where=where, finite=False)
            if len(present) == shape[1]:
                return values
            rows = np.full((stop - start, shape[1]), absent)
            rows[:, present] = values
            return rows

        return converted(0, shape[0]) if shape[0] * shape[1] <= _CONVERTED_WHOLE else RowParts(shape, converted)

    def _refusal(self, method: str, feature: Any, got: str) -> TypeError:
        return TypeError(
            f"{type(self).__name__}.{method} expected numbers but feature {feature!r} is {got}; encode it "
            "(preprocessing.OneHotEncoder), or select numeric features (compose.SelectType(numbers.Number))"
        )


def _in_order(names: Iterable[Any]) -> list[Any]:
    """Sort features by name: the order within River's dicts has no meaning."""
    given = list(names)
    try:
        return sorted(given)
    except TypeError:
        return sorted(given, key=repr)


def _is_numeric(column: Any) -> bool:
    """Whether a one-column frame holds numbers or booleans."""
    dtype = column.schema.dtypes()[0]
    if dtype.is_numeric() or dtype.is_boolean():
        return True
    # narwhals does not know sparse columns, which River's OneHotEncoder makes.
    return column.implementation.is_pandas_like() and column.to_native().dtypes.iloc[0].kind in "fiub"


class KernelPCATransformer(_Learner, base.MiniBatchTransformer):
    """Kernel PCA as a transformer: features in, coordinates along the principal axes out.

    Parameters
    ----------
    n_components : int or float
        Number q of axes. A float between 0 and 1 asks for the fewest axes that explain this share of the variance.
    kernel : Kernel or str
        A kernel of `streamkpca.kernels`, or the name of one. Scale the features first: `preprocessing.StandardScaler`.
    max_atoms : int or None
        Largest number of rows kept as atoms; None for no limit.
    atoms : {"moved", "rows"}
        Whether atoms move from their rows to where they explain more of the stream.
    tolerance : float
        Share of the energy sum k(x, x) that may stay outside the span of the atoms.
    noise_variance : float, "auto" or None
        The larger it is, the fewer atoms are active, that is, used by the axes. "auto" keeps the fewest that hold at
        least 99% of the variance that all atoms hold on the axes; None keeps all.
    n_active : int or None
        Number of active atoms; the noise variance is then chosen to leave this many.
    axes : {"ritz", "likelihood"}
        The best axes in the span of the active atoms, or the axes of the likelihood's model.
    center : bool
        Subtract the mean in feature space.
    half_life : float or None
        Number of rows after which the weight of a row has halved; None for no forgetting.
    block_size : int
        Number of rows processed together.
    refit_every : int or "auto"
        Number of rows between refits of the axes.
    reservoir_size : int
        Number of rows in the random sample that serves the certificates.
    on_bad_rows : {"raise", "skip"}
        How to handle rows with NaN or infinity when learning.
    on_missing : {"raise", "skip", "marginal"}
        How to handle rows in which a feature is NaN or None: "raise" as `on_bad_rows` says (None is refused), "skip"
        leaves them out when learning, "marginal" takes them, in all methods, with what they have.
    seed : int or None
        Seed of that sample; nothing else is random.
    dtype : {"float64", "float32"}
        Type in which rows are stored; "float32" halves the memory.

    Notes
    -----
    The first row sets the features. They are sorted by name, and a kernel's ``.on`` counts them in that order. Features
    that appear later are ignored. An absent feature counts as 0, which is its mean after a StandardScaler; with
    ``on_missing="marginal"`` it is missing, as one that is NaN or None is.

    Components are named by number, from 0. Before the first row there are none, and a row becomes ``{}``. Axes change
    when they are refitted: every `refit_every` rows, and earlier while the stream is short, whenever it has grown by a
    quarter. Signs are kept.

    River's ``mutate`` changes parameters in the middle of a stream, all but `kernel`, `block_size`, `reservoir_size`,
    `seed` and `dtype`, and `on_missing` but not to or from "marginal". Parameters of the axes take effect at the next
    refit.

    See Also
    --------
    streamkpca.StreamingKernelPCA : The wrapped model, with more on the parameters.

    Examples
    --------
    >>> from river import datasets, preprocessing
    >>> from streamkpca.adapters.for_river import KernelPCATransformer
    >>> model = preprocessing.StandardScaler() | KernelPCATransformer(n_components=2, max_atoms=32)
    >>> for x, _ in datasets.Phishing().take(300):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    [0, 1]
    """

    def __init__(
        self,
        n_components: int | float = 10,
        *,
        kernel: Kernel | str = "rbf",
        max_atoms: int | None = 256,
        atoms: Literal["moved", "rows"] = "moved",
        tolerance: float = 1e-3,
        noise_variance: float | Literal["auto"] | None = "auto",
        n_active: int | None = None,
        axes: Literal["ritz", "likelihood"] = "ritz",
        center: bool = True,
        half_life: float | None = None,
        block_size: int = 512,
        refit_every: int | Literal["auto"] = "auto",
        reservoir_size: int = 512,
        on_bad_rows: Literal["raise", "skip"] = "raise",
        on_missing: Literal["raise", "skip", "marginal"] = "raise",
        seed: int | None = 0,
        dtype: Literal["float64", "float32"] = "float64",
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.max_atoms = max_atoms
        self.atoms = atoms
        self.tolerance = tolerance
        self.noise_variance = noise_variance
        self.n_active = n_active
        self.axes = axes
        self.center = center
        self.half_life = half_life
        self.block_size = block_size
        self.refit_every = refit_every
        self.reservoir_size = reservoir_size
        self.on_bad_rows = on_bad_rows
        self.on_missing = on_missing
        self.seed = seed
        self.dtype = dtype
        self._begin(self._get_params())

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Project a row.

        Parameters
        ----------
        x : dict
            Numbers by feature.

        Returns
        -------
        dict
            Coordinates by component, 0 to q - 1; empty before the first row is learned.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number, unless it is missing and `on_missing` allows that.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCATransformer
        >>> model = KernelPCATransformer(1, kernel="linear", center=False)
        >>> for i in range(5):
        ...     model.learn_one({"load": 3.0 * i, "heat": 4.0 * i})
        >>> {name: round(value, 3) for name, value in model.transform_one({"load": 3.0, "heat": 4.0}).items()}
        {0: 5.0}
        """
        if not self._features:
            return {}
        return dict(enumerate(self._model.transform(self._row(x, self._features, "transform_one"))[0].tolist()))

    def transform_many(self, X: Any) -> Any:
        """Project a mini-batch.

        Parameters
        ----------
        X : DataFrame
            Each column is a feature.

        Returns
        -------
        DataFrame
            From the same library, with the same index and a column for each component; without columns before the
            first row is learned.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number, unless it is missing and `on_missing` allows that.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamkpca.adapters.for_river import KernelPCATransformer
        >>> rows = pd.DataFrame({"load": [3.0, 6.0, 9.0], "heat": [4.0, 8.0, 12.0]})
        >>> model = KernelPCATransformer(1, kernel="linear", center=False)
        >>> model.learn_many(rows)
        >>> model.transform_many(rows).round(3)
              0
        0   5.0
        1  10.0
        2  15.0
        """
        frame = dataframe.into_frame(X)
        if not self._features:
            # Keep the index of a pandas DataFrame; narwhals would drop it with the last column.
            return X[[]] if frame.implementation.is_pandas_like() else frame[:, []].to_native()
        if not len(frame):
            projections = np.empty((0, len(self._model.eigenvalues_)))
        else:
            projections = self._model.transform(self._rows(frame, self._features, "transform_many"))
        # Libraries that name columns by text alone get "0", "1" and so on.
        return dataframe.to_native_frame(dict(enumerate(projections.T)), like=frame)

    @property
    def _mutable_attributes(self) -> set[str]:
        """Parameters of the axes may change too; they take effect at the next refit."""
        return {one.name for one in PARAMETERS if one.can_change}

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"n_components": 3, "max_atoms": 32, "block_size": 64}


class KernelPCADetector(_Learner, base.AnomalyDetector):
    """Novelty by kernel PCA: how far a row is, in feature space, from what the model has learned.

    Parameters
    ----------
    n_components : int or None
        None measures how far a row is from the span of all atoms, by `streamkpca.StreamingKernelPCA.novelty`. A number
        measures the squared distance to the mean plus this many principal axes, which also notices rows between the
        known ones, but tells rows that are far from all others no longer apart.
    kernel : Kernel or str
        A kernel of `streamkpca.kernels`, or the name of one. Scale the features first: `preprocessing.StandardScaler`.
    max_atoms : int or None
        Largest number of rows kept as atoms; None for no limit.
    atoms : {"moved", "rows"}
        Whether atoms move from their rows to where they explain more of the stream.
    tolerance : float
        Share of the energy sum k(x, x) that may stay outside the span of the atoms.
    center : bool
        Subtract the mean in feature space; only matters if `n_components` is given.
    half_life : float or None
        Number of rows after which the weight of a row has halved; None for no forgetting.
    block_size : int
        Number of rows processed together.
    refit_every : int or "auto"
        Number of rows between refits; scores take newly learned rows into account at each refit.
    reservoir_size : int
        Number of rows in the random sample that serves `kernel_pca.novelty_threshold`.
    on_bad_rows : {"raise", "skip"}
        How to handle rows with NaN or infinity when learning.
    on_missing : {"raise", "skip", "marginal"}
        How to handle rows in which a feature is NaN or None: "raise" as `on_bad_rows` says (None is refused), "skip"
        leaves them out when learning, "marginal" takes them, in all methods, with what they have.
    seed : int or None
        Seed of that sample; nothing else is random.
    dtype : {"float64", "float32"}
        Type in which rows are stored; "float32" halves the memory.

    Notes
    -----
    Scores are in units of k(x, x): squared distances in feature space for rows near the known ones, and growing with
    the distance to these far away. Before the first row is learned, scores are 0.

    The first row sets the features. They are sorted by name, and a kernel's ``.on`` counts them in that order. Features
    that appear later are ignored. An absent feature counts as 0, which is its mean after a StandardScaler; with
    ``on_missing="marginal"`` it is missing, as one that is NaN or None is.

    River's ``mutate`` changes `max_atoms`, `atoms`, `tolerance`, `center`, `half_life`, `refit_every`, `on_bad_rows`
    and, but not to or from "marginal", `on_missing` in the middle of a stream.

    See Also
    --------
    streamkpca.StreamingKernelPCA : The wrapped model, with more on the parameters.

    Examples
    --------
    River's own filters give a threshold, and keep anomalies from being learned:

    >>> from river import anomaly, preprocessing
    >>> from streamkpca.adapters.for_river import KernelPCADetector
    >>> detector = anomaly.QuantileFilter(KernelPCADetector(max_atoms=32), q=0.99)
    >>> model = preprocessing.StandardScaler() | detector
    >>> for i in range(1000):
    ...     model.learn_one({"load": i % 7, "heat": 3.0 * (i % 7)})
    >>> detector.classify(model.score_one({"load": 5, "heat": 0.0}))
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: Kernel | str = "rbf",
        max_atoms: int | None = 256,
        atoms: Literal["moved", "rows"] = "moved",
        tolerance: float = 1e-3,
        center: bool = True,
        half_life: float | None = None,
        block_size: int = 512,
        refit_every: int | Literal["auto"] = "auto",
        reservoir_size: int = 512,
        on_bad_rows: Literal["raise", "skip"] = "raise",
        on_missing: Literal["raise", "skip", "marginal"] = "raise",
        seed: int | None = 0,
        dtype: Literal["float64", "float32"] = "float64",
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.max_atoms = max_atoms
        self.atoms = atoms
        self.tolerance = tolerance
        self.center = center
        self.half_life = half_life
        self.block_size = block_size
        self.refit_every = refit_every
        self.reservoir_size = reservoir_size
        self.on_bad_rows = on_bad_rows
        self.on_missing = on_missing
        self.seed = seed
        self.dtype = dtype
        # The distance to the span of all atoms needs no axes. Sparse weights would make projections cheap, but
        # distances use all atoms anyway.
        n_axes = 1 if n_components is None else n_components
        self._begin(self._get_params() | {"n_components": n_axes, "noise_variance": None})

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """Score a row: the higher, the more anomalous.

        Parameters
        ----------
        x : dict
            Numbers by feature.

        Returns
        -------
        float
            In units of k(x, x); 0 before the first row is learned.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number, unless it is missing and `on_missing` allows that.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCADetector
        >>> from streamkpca.kernels import RBF
        >>> detector = KernelPCADetector(kernel=RBF(1.0))
        >>> for i in range(100):
        ...     detector.learn_one({"load": i % 7})
        >>> round(detector.score_one({"load": 3}), 3), round(detector.score_one({"load": 30}), 3)
        (0.0, 1151.833)
        """
        if not self._features:
            return 0.0
        row = self._row(x, self._features, "score_one")
        return float(self._scores(row)[0])

    def explain_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:
        """Measure how much each feature adds to the novelty of a row: why its score is high.

        Parameters
        ----------
        x : dict
            Numbers by feature.

        Returns
        -------
        dict
            A contribution by feature, the largest first. They are never negative and add up to the score; empty before
            the first row is learned.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number, unless it is missing and `on_missing` allows that.

        See Also
        --------
        streamkpca.StreamingKernelPCA.contributions : How they are measured.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCADetector
        >>> from streamkpca.kernels import RBF
        >>> detector = KernelPCADetector(kernel=RBF(0.1))
        >>> for i in range(100):
        ...     detector.learn_one({"load": i % 7, "heat": 3.0 * (i % 7)})
        >>> {name: round(part) for name, part in detector.explain_one({"load": 40.0, "heat": 6.0}).items()}
        {'load': 237, 'heat': 23}
        """
        if not self._features:
            return {}
        row = self._row(x, self._features, "explain_one")
        contributions = self._model.contributions(row, self.n_components)[0].tolist()
        parts = zip(self._features, contributions, strict=True)
        return dict(sorted(parts, key=lambda part: part[1], reverse=True))

    def score_many(self, X: Any) -> Any:
        """Score a mini-batch.

        Parameters
        ----------
        X : DataFrame
            Each column is a feature.

        Returns
        -------
        Series
            From the same library, with the same index: the `score_one` of each row.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number, unless it is missing and `on_missing` allows that.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamkpca.adapters.for_river import KernelPCADetector
        >>> from streamkpca.kernels import RBF
        >>> detector = KernelPCADetector(kernel=RBF(1.0))
        >>> detector.learn_many(pd.DataFrame({"load": range(7)}))
        >>> detector.score_many(pd.DataFrame({"load": [3, 30]}, index=["mon", "tue"])).round(3)
        mon       0.000
        tue    1151.833
        Name: score, dtype: float64
        """
        frame = dataframe.into_frame(X)
        if self._features and len(frame):
            rows = self._rows(frame, self._features, "score_many")
            scores = self._scores(rows)
        else:
            scores = np.zeros(len(frame))
        return dataframe.to_native_series(scores, name="score", like=frame)

    def _scores(self, rows: Rows) -> Array:
        if self.n_components is None:
            return self._model.novelty(rows)
        return self._model.reconstruction_error(rows, self.n_components)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"max_atoms": 32, "block_size": 64}
