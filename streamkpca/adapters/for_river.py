"""Kernel PCA in River's pipelines: a transformer and an anomaly detector. Needs the extra ``river``."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streamkpca.estimators.streaming import StreamingKernelPCA
from streamkpca.kernels import Kernel
from streamkpca.stream.settings import PARAMETERS, StreamSettings

try:
    from river import base
    from river.utils import dataframe
except ModuleNotFoundError as error:
    raise ImportError(f'streamkpca.adapters.for_river needs {error.name}; pip install "streamkpca[river]"') from error

Array = npt.NDArray[np.float64]


class Learner:
    """Base of both: everything that learns.

    Notes
    -----
    The first row decides which features there are, and their names decide their order.
    """

    def _begin(self, parameters: dict[str, Any]) -> None:
        """Make the model behind from parameters under River's names."""
        self._features: list[Any] = []
        self._next_refit = 1
        seed = parameters.pop("seed")
        self._model = StreamingKernelPCA(**parameters, random_state=seed)

    @property
    def _mutable_attributes(self) -> set[str]:
        """Parameters that may change while the stream goes on."""
        return {one.name for one in PARAMETERS if one.can_change and not one.concerns_axes}

    def __setattr__(self, name: str, value: Any) -> None:
        # River's `mutate` sets attributes; the model behind has parameters of its own.
        model = self.__dict__.get("_model")
        if model is not None and name in self._mutable_attributes:
            changed = model.get_params(deep=False) | {name: value}
            StreamSettings.checked(**changed, where=f"{type(self).__name__}.mutate")
            setattr(model, name, value)
        object.__setattr__(self, name, value)

    @property
    def kernel_pca(self) -> StreamingKernelPCA:
        """The model that learns, for all other questions: certificates, drift, atoms, saving.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCADetector
        >>> detector = KernelPCADetector()
        >>> for i in range(100):
        ...     detector.learn_one({"load": i % 7})
        >>> detector.kernel_pca.n_atoms_  # for seven different rows
        7
        """
        return self._model

    @property
    def features_(self) -> list[Any]:
        """Names of the features, in the order of the model's columns; empty before the first row.

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
            Numbers by feature. The first that has any decides which features there are.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number. Nothing is learned then.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCATransformer
        >>> model = KernelPCATransformer(2)
        >>> model.learn_one({"load": 0.5, "heat": 20.0})
        >>> model.learn_one({"load": 0.7})  # no heat: 0
        >>> model.kernel_pca.n_samples_seen_
        2
        """
        if features := self._features or _in_order(x):
            self._learn(self._row(x, features, "learn_one"), features)

    def learn_many(self, X: Any) -> None:
        """Learn a mini-batch; the result is that of its rows one by one.

        Parameters
        ----------
        X : DataFrame
            Of pandas, polars, pyarrow, or whatever else River takes; a column is a feature.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number. Nothing is learned then.

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

    def _learn(self, rows: Array, features: list[Any]) -> None:
        block_size = self._model._settings(f"{type(self).__name__}.learn_one").block_size
        if self._next_refit < block_size:
            self._learn_young(rows, block_size)
        else:
            self._model.partial_fit(rows)
        self._features = features

    def _learn_young(self, rows: Array, block_size: int) -> None:
        """Learn rows, and before the first block is full publish after every growth by a quarter.

        River asks after every row. The model would answer from all rows so far, and the refits for that took 70 s for
        the first 510 rows; these take 1 s. Their counts are fixed, so that cuts do not matter.
        """
        model, before, next_refit = self._model, copy.copy(self._model._stream), self._next_refit
        seen = 0 if before is None else before.n_rows
        try:
            while seen + len(rows) >= next_refit < block_size:
                head, rows = np.split(rows, [next_refit - seen])
                model.partial_fit(head).refit()
                seen = next_refit
                next_refit += max(1, next_refit // 4)
            if len(rows):
                model.partial_fit(rows)
        except BaseException:
            model._stream = before
            raise
        self._next_refit = next_refit

    def _row(self, x: Mapping[Any, Any], features: list[Any], method: str) -> Array:
        values = [x.get(name, 0.0) for name in features]
        try:
            row = np.array([values])
        except ValueError:
            # Of several lengths.
            row = np.array([[None]])
        if row.dtype.kind not in "fiub" or row.ndim != 2:
            # Slower, for what numpy has no type for: fractions, decimals, large integers.
            row = np.array([[self._number(value, name, method) for name, value in zip(features, values, strict=True)]])
        return row.astype(np.float64, copy=False)

    def _number(self, value: Any, feature: Any, method: str) -> float:
        # Zero-dimensional arrays are numbers to numpy.
        given = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
        if not isinstance(given, Real | Decimal | np.bool_):
            raise self._refusal(method, feature, repr(value))
        try:
            return float(given)
        except OverflowError:
            return np.inf

    def _rows(self, frame: Any, features: list[Any], method: str) -> Array:
        rows = np.zeros((len(frame), len(features)))
        place_of = {name: place for place, name in enumerate(frame.columns)}
        for i, name in enumerate(features):
            if (place := place_of.get(name)) is not None:
                column = frame[:, [place]]
                if not _is_numeric(column):
                    raise self._refusal(method, name, f"a column of {column.schema.dtypes()[0]}")
                rows[:, i] = dataframe.to_numpy(column)[:, 0]
        return rows

    def _refusal(self, method: str, feature: Any, got: str) -> TypeError:
        return TypeError(
            f"{type(self).__name__}.{method} expected numbers but feature {feature!r} is {got}; encode it "
            "(preprocessing.OneHotEncoder), or pick what is numeric (compose.SelectType(numbers.Number))"
        )


def _in_order(names: Iterable[Any]) -> list[Any]:
    """Order features by name: River's dicts have no order that counts."""
    given = list(names)
    try:
        return sorted(given)
    except TypeError:
        return sorted(given, key=repr)


def _is_numeric(column: Any) -> bool:
    """Whether a frame of one column holds numbers or booleans."""
    dtype = column.schema.dtypes()[0]
    if dtype.is_numeric() or dtype.is_boolean():
        return True
    # Sparse columns, as River's OneHotEncoder makes them, are unknown to narwhals.
    return column.implementation.is_pandas_like() and column.to_native().dtypes.iloc[0].kind in "fiub"


class KernelPCATransformer(Learner, base.MiniBatchTransformer):
    """Kernel PCA as a transformer: features in, coordinates along the principal axes out.

    Parameters
    ----------
    n_components : int or float
        Number q of axes; a float between 0 and 1: the fewest that explain this share of the variance.
    kernel : Kernel or str
        A kernel of `streamkpca.kernels`, or the name of one. Scale features before: `preprocessing.StandardScaler`.
    max_atoms : int or None
        Budget of rows that are kept as basis.
    tolerance : float
        Share of the energy sum k(x, x) that may stay outside of their span.
    noise_variance : float, "auto" or None
        The larger, the fewer atoms make the axes; None for all.
    n_active : int or None
        Look for the noise variance that leaves so many, instead.
    axes : {"ritz", "likelihood"}
        The best axes in the span of these atoms, or those of the likelihood's own model.
    center : bool
        Subtract the mean in feature space.
    half_life : float or None
        Rows after which a row counts half; None for never.
    block_size : int
        Rows that are worked off together.
    refit_every : int or "auto"
        Rows between refits of the axes.
    reservoir_size : int
        Rows of the random sample that certificates read.
    on_bad_rows : {"raise", "skip"}
        What to do about rows with NaN or infinity when learning.
    seed : int or None
        Of that sample; nothing else is random.
    dtype : {"float64", "float32"}
        What rows are kept in; "float32" halves the memory.

    Notes
    -----
    The first row decides which features there are, and their order is that of their names: what a kernel's ``.on``
    counts. Features that appear later are ignored; one that is missing counts as 0, its mean behind a StandardScaler.

    A component is named by its number, from 0. Before anything was learned there are none, and rows become ``{}``.
    Axes change when they are refitted, `refit_every` rows apart; while the stream is young, after every growth by a
    quarter. Signs are kept.

    River's ``mutate`` changes parameters while the stream goes on, all but `kernel`, `block_size`, `reservoir_size`,
    `seed` and `dtype`; what concerns the axes shows at the next refit.

    See Also
    --------
    streamkpca.StreamingKernelPCA : The model behind it, with more on the parameters.

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
        seed: int | None = 0,
        dtype: Literal["float64", "float32"] = "float64",
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.max_atoms = max_atoms
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
            Coordinates by component, 0 to q - 1; empty before anything was learned.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number.

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
            A column is a feature.

        Returns
        -------
        DataFrame
            Of the same library, with the same index: a column is a component. It has none before anything was learned.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number.

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
            # Of a pandas DataFrame the index stays; narwhals would drop it with the last column.
            return X[[]] if frame.implementation.is_pandas_like() else frame[:, []].to_native()
        if not len(frame):
            projections = np.empty((0, len(self._model.eigenvalues_)))
        else:
            projections = self._model.transform(self._rows(frame, self._features, "transform_many"))
        # By column: libraries whose columns are named by text alone get "0", "1" and so on.
        return dataframe.to_native_frame(dict(enumerate(projections.T)), like=frame)

    @property
    def _mutable_attributes(self) -> set[str]:
        """Axes change with them when they are refitted."""
        return {one.name for one in PARAMETERS if one.can_change}

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"n_components": 3, "max_atoms": 32, "block_size": 64}


class KernelPCADetector(Learner, base.AnomalyDetector):
    """Novelty by kernel PCA: how far a row is, in feature space, from what the stream has taught.

    Parameters
    ----------
    n_components : int or None
        None: measure to the span of all rows that are kept as basis. A number: to the centre and the first so many
        principal axes, which notices rows between the known ones too.
    kernel : Kernel or str
        A kernel of `streamkpca.kernels`, or the name of one. Scale features before: `preprocessing.StandardScaler`.
    max_atoms : int or None
        Budget of rows that are kept as basis.
    tolerance : float
        Share of the energy sum k(x, x) that may stay outside of their span.
    center : bool
        Subtract the mean in feature space; matters with `n_components` alone.
    half_life : float or None
        Rows after which a row counts half; None for never.
    block_size : int
        Rows that are worked off together.
    refit_every : int or "auto"
        Rows between the moments when what was learned begins to count for scores.
    reservoir_size : int
        Rows of the random sample that `kernel_pca.novelty_threshold` reads.
    on_bad_rows : {"raise", "skip"}
        What to do about rows with NaN or infinity when learning.
    seed : int or None
        Of that sample; nothing else is random.
    dtype : {"float64", "float32"}
        What rows are kept in; "float32" halves the memory.

    Notes
    -----
    Scores are squared distances in units of k(x, x): with an RBF kernel 0 for known rows, 1 for rows that resemble
    nothing. Before anything was learned they are 0.

    The first row decides which features there are, and their order is that of their names: what a kernel's ``.on``
    counts. Features that appear later are ignored; one that is missing counts as 0, its mean behind a StandardScaler.

    River's ``mutate`` changes `max_atoms`, `tolerance`, `center`, `half_life`, `refit_every` and `on_bad_rows` while
    the stream goes on.

    See Also
    --------
    streamkpca.StreamingKernelPCA : The model behind it, with more on the parameters.

    Examples
    --------
    A threshold comes from River's own filters, which also keep anomalies from being learned:

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
        tolerance: float = 1e-3,
        center: bool = True,
        half_life: float | None = None,
        block_size: int = 512,
        refit_every: int | Literal["auto"] = "auto",
        reservoir_size: int = 512,
        on_bad_rows: Literal["raise", "skip"] = "raise",
        seed: int | None = 0,
        dtype: Literal["float64", "float32"] = "float64",
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.max_atoms = max_atoms
        self.tolerance = tolerance
        self.center = center
        self.half_life = half_life
        self.block_size = block_size
        self.refit_every = refit_every
        self.reservoir_size = reservoir_size
        self.on_bad_rows = on_bad_rows
        self.seed = seed
        self.dtype = dtype
        # Distances to the span of all atoms need no axes. Sparse weights make projections cheap; here all atoms are
        # compared with anyway.
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
            Squared distance in feature space, in units of k(x, x); 0 before anything was learned.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number.

        Examples
        --------
        >>> from streamkpca.adapters.for_river import KernelPCADetector
        >>> from streamkpca.kernels import RBF
        >>> detector = KernelPCADetector(kernel=RBF(1.0))
        >>> for i in range(100):
        ...     detector.learn_one({"load": i % 7})
        >>> round(detector.score_one({"load": 3}), 3), round(detector.score_one({"load": 30}), 3)
        (0.0, 1.0)
        """
        if not self._features:
            return 0.0
        row = self._row(x, self._features, "score_one")
        return float(self._model.reconstruction_error(row, self.n_components)[0])

    def score_many(self, X: Any) -> Any:
        """Score a mini-batch.

        Parameters
        ----------
        X : DataFrame
            A column is a feature.

        Returns
        -------
        Series
            Of the same library, with the same index: what `score_one` says of each row.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number.

        Examples
        --------
        >>> import pandas as pd
        >>> from streamkpca.adapters.for_river import KernelPCADetector
        >>> from streamkpca.kernels import RBF
        >>> detector = KernelPCADetector(kernel=RBF(1.0))
        >>> detector.learn_many(pd.DataFrame({"load": range(7)}))
        >>> detector.score_many(pd.DataFrame({"load": [3, 30]}, index=["mon", "tue"])).round(3)
        mon    0.0
        tue    1.0
        Name: score, dtype: float64
        """
        frame = dataframe.into_frame(X)
        if self._features and len(frame):
            rows = self._rows(frame, self._features, "score_many")
            scores = self._model.reconstruction_error(rows, self.n_components)
        else:
            scores = np.zeros(len(frame))
        return dataframe.to_native_series(scores, name="score", like=frame)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"max_atoms": 32, "block_size": 64}


__all__ = ["KernelPCADetector", "KernelPCATransformer"]
