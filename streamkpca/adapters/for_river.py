"""Kernel PCA in River's pipelines: a transformer and an anomaly detector. Needs the extra ``river``."""

import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from streamkpca._core.arrays import Array
from streamkpca.errors import name_errors
from streamkpca.models.streaming import StreamingKernelPCA

try:
    from river import base
except ModuleNotFoundError as error:
    raise ImportError(f'streamkpca.adapters.for_river needs {error.name}; pip install "streamkpca[river]"') from error

__all__ = ["KernelPCADetector", "KernelPCATransformer"]


class _NamedRow:
    """A row as a table with names, which need not be of any library."""

    def __init__(self, row: Array, names: Iterable[Any]) -> None:
        self.shape, self.columns, self._row = row.shape, [str(name) for name in names], row

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self._row


@name_errors
class _Learner:
    """Base of the transformer and the detector: a model, and dicts as rows for it.

    Examples
    --------
    >>> model = KernelPCATransformer(2)
    >>> model.learn_one({"load": 0.5, "heat": 20.0})
    >>> model.learn_one({"load": 0.7})  # heat counts as 0
    >>> model.kernel_pca.n_samples_seen_
    2
    """

    def _begin(self, model: StreamingKernelPCA) -> None:
        self.kernel_pca = model
        self.features_: list[Any] = []
        self._n_rows, self._next_refit = 0, 1.0

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Learn the next row of the stream.

        Parameters
        ----------
        x : dict
            Numbers by feature. The first row that has any sets the features.

        Raises
        ------
        TypeError, ValueError
            A feature is no finite number, unless it is missing and `missing` allows that. Nothing is learned.
        """
        _check_row(x)
        features = self.features_ or _in_order(x.keys())
        if not features:
            return
        row = self._row(x, features)
        # From the first row the model takes the names, by which it refuses numbers.
        self.kernel_pca.partial_fit(row if self.features_ else _NamedRow(row, features))
        self.features_, self._n_rows = features, self._n_rows + 1
        # Until the first block is full, a model answers by axes of its own for each row, unless they are published.
        if self._n_rows >= self._next_refit:
            self.kernel_pca.refit()
            grown = self._n_rows + max(1, self._n_rows // 4)
            self._next_refit = grown if grown < self.kernel_pca.block_size else math.inf

    def _row(self, x: Mapping[Any, Any], features: list[Any]) -> Array:
        # The number of a feature that the row does not have.
        absent = math.nan if self.kernel_pca.missing == "marginal" else 0.0
        # Most values are floats, and calls take time.
        row = [v if type(v := x.get(name, absent)) is float else self._number(v, name) for name in features]
        return np.array([row])

    def _number(self, value: Any, feature: Any) -> float:
        # pandas need not be installed.
        if type(value).__name__ == "NAType" or (value is None and self.kernel_pca.missing != "raise"):
            return math.nan
        if not isinstance(value, Real | Decimal | np.bool_):
            raise TypeError(
                f"expected numbers but feature {feature!r} is {value!r}; encode it (preprocessing.OneHotEncoder), "
                'select numeric features (compose.SelectType(numbers.Number)), or pass missing="marginal" for None'
            )
        try:
            return float(value)
        except OverflowError:
            return math.inf


def _check_row(x: Any) -> None:
    # A Series of pandas will do.
    if not (hasattr(x, "keys") and hasattr(x, "get")):
        raise TypeError(f"expected a row as a dict of numbers by feature, but got {type(x).__name__}; add the names")


def _in_order(names: Iterable[Any]) -> list[Any]:
    """Sort features by name: the order within River's dicts has no meaning."""
    given = list(names)
    try:
        return sorted(given)
    except TypeError:
        return sorted(given, key=repr)


@name_errors
class KernelPCATransformer(_Learner, base.Transformer):
    """Kernel PCA as a transformer: features in, coordinates along the principal axes out.

    Parameters
    ----------
    n_components : int or float
        Number q of axes, or a share of the variance between 0 and 1, which the fewest axes explain.
    seed : int or None
        Seed of the random sample that serves the certificates; nothing else is random.
    **parameters
        The other parameters of `streamkpca.StreamingKernelPCA`, under its names.

    Notes
    -----
    The first row sets the features, `features_`. They are sorted by name, and a kernel's ``.on`` counts them in that
    order. Features that appear later are ignored. An absent feature counts as 0, which is its mean after a
    StandardScaler; with ``missing="marginal"`` it is missing, as one that is NaN or None is.

    Components are named by number, from 0. Axes change, their signs kept, when they are refitted: every `refit_every`
    rows, and while the stream is short, whenever it has grown by a quarter.

    The model inside is `kernel_pca`, for everything else: certificates, drift, atoms, saving, and arrays of rows
    with the columns `features_`. Its ``set_params``, not River's ``mutate``, changes parameters in mid-stream.

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

    def __init__(self, n_components: int | float = 10, *, seed: int | None = 0, **parameters: Any) -> None:
        self.n_components = n_components
        self.seed = seed
        self.parameters = parameters
        self._begin(StreamingKernelPCA(n_components, random_state=seed, **parameters))

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Project a row.

        Parameters
        ----------
        x : dict
            Numbers by feature, as for `learn_one`.

        Returns
        -------
        dict
            Coordinates by component, 0 to q - 1; empty before the first row is learned.
        """
        _check_row(x)
        if not self.features_:
            return {}
        return dict(enumerate(self.kernel_pca.transform(self._row(x, self.features_))[0].tolist()))

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"n_components": 3, "max_atoms": 32, "block_size": 64}


@name_errors
class KernelPCADetector(_Learner, base.AnomalyDetector):
    """Novelty by kernel PCA: how far a row is, in feature space, from what the model has learned.

    Parameters
    ----------
    n_components : int or None
        None measures how far a row is from the span of all atoms, by `streamkpca.StreamingKernelPCA.novelty`. A number
        measures the squared distance to the mean plus this many principal axes, which also notices rows between the
        known ones, but tells rows that are far from all others no longer apart.
    seed : int or None
        Seed of the random sample that serves `kernel_pca.novelty_threshold`; nothing else is random.
    **parameters
        The other parameters of `streamkpca.StreamingKernelPCA`, under its names. `noise_variance` is None by default:
        sparse weights would make projections cheap, but distances use all atoms anyway.

    Notes
    -----
    Scores are in units of k(x, x): squared distances in feature space for rows near the known ones, and growing with
    the distance to these far away. Before the first row is learned, scores are 0.

    For features, and the model inside, see `KernelPCATransformer`.

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

    def __init__(self, n_components: int | None = None, *, seed: int | None = 0, **parameters: Any) -> None:
        self.n_components = n_components
        self.seed = seed
        self.parameters = parameters
        # The distance to the span of all atoms needs no axes.
        n_axes = 1 if n_components is None else n_components
        self._begin(StreamingKernelPCA(n_axes, random_state=seed, **({"noise_variance": None} | parameters)))

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """Score a row: the higher, the more anomalous.

        Parameters
        ----------
        x : dict
            Numbers by feature, as for `learn_one`.

        Returns
        -------
        float
            In units of k(x, x); 0 before the first row is learned.
        """
        _check_row(x)
        if not self.features_:
            return 0.0
        row = self._row(x, self.features_)
        if self.n_components is None:
            return float(self.kernel_pca.novelty(row)[0])
        return float(self.kernel_pca.reconstruction_error(row, self.n_components)[0])

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"max_atoms": 32, "block_size": 64}
