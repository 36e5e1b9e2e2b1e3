"""What River's transformer and detector have in common: from features to rows, and how a young stream is learned."""

import copy
from collections.abc import Iterable, Mapping
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.streaming import StreamingKernelPCA

try:
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

    def _begin(self, model: StreamingKernelPCA) -> None:
        self._features: list[Any] = []
        self._next_refit = 1
        self._model = model

    @property
    def _mutable_attributes(self) -> set[str]:
        """Parameters that may change while the stream goes on."""
        return {"max_atoms", "tolerance", "center", "half_life", "refit_every", "on_bad_rows"}

    def __setattr__(self, name: str, value: Any) -> None:
        # River's `mutate` sets attributes; the model behind has parameters of its own.
        model = self.__dict__.get("_model")
        if model is not None and name in self._mutable_attributes:
            changed = model.get_params(deep=False) | {name: value}
            StreamingKernelPCA(**changed)._settings(f"{type(self).__name__}.mutate")
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
