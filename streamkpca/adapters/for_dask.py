"""Kernel PCA over dask Arrays, DataFrames and Bags. Needs the extra ``dask``."""

import copy
import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.memory import freed_memory_kept
from streamkpca._core.parameters import check_integer
from streamkpca.adapters.runs import (
    NamedRows,
    added,
    begun,
    merged,
    rows_of_records,
    rows_that_settle,
    rows_to_begin_with,
    runs_of,
    template_of,
    usable_rows,
)
from streamkpca.aggregate import Aggregate
from streamkpca.kernels import Kernel
from streamkpca.models.streaming import StreamingKernelPCA as _StreamingKernelPCA
from streamkpca.rows.validation import feature_names

try:
    from dask.base import is_dask_collection
    from dask.core import get_deps
    from dask.delayed import Delayed, delayed
except ModuleNotFoundError as error:
    raise ImportError(f'streamkpca.adapters.for_dask needs {error.name}; pip install "streamkpca[dask]"') from error

__all__ = ["StreamingKernelPCA"]

Array = npt.NDArray[np.float64]
_Kind = Literal["array", "frame", "bag"]
_Method = Callable[[_StreamingKernelPCA, Any], Array]


class StreamingKernelPCA(_StreamingKernelPCA):
    """`streamkpca.StreamingKernelPCA` that takes dask collections too.

    Parameters and attributes are the same. Rows in memory are handled as in the base class. A dask collection is
    learned partition by partition, wherever dask runs the tasks; queries on it are lazy and run block by block.

    Notes
    -----
    The kernel's scale is settled once, on the first rows of the first partitions. The partitions are grouped into
    `n_streams` runs of neighbours, which begin with the atoms of the first ten thousand rows of the first partition.
    Within a run, one stream learns partition after partition and passes its state (a few megabytes) on to the next
    task; the states of all runs are then merged in a tree. The runs depend only on the number of partitions and on
    `n_streams`, not on the workers. So the result is a function of the rows and their partitions: the same bytes with
    any scheduler, any number of workers, and whichever of them die. The order of the stream is the order of the
    partitions, for a `half_life` too.

    A bag holds dicts (features by name, set by the first record) or arrays, each of them one row or several.

    See Also
    --------
    streamkpca.StreamingKernelPCA : The parameters and attributes, and what they mean.

    Examples
    --------
    >>> import dask.array as da
    >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
    >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
    >>> model = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X)
    >>> model.n_samples_seen_
    4000
    >>> model.transform(X).chunks
    ((1000, 1000, 1000, 1000), (2,))
    """

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, n_streams: int = 8, split_every: int = 8
    ) -> Self:
        """Forget everything learned before and learn these rows.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)
        y : object
            Accepted for scikit-learn and ignored.
        sample_weight : dask collection of n numbers, array-like of shape (n,), float or None
            Weight of each row, partitioned like X; 1 by default.
        n_streams : int, default=8
            Number of streams that learn a collection side by side. Choose at least as many as the workers have cores.
        split_every : int, default=8
            Number of states merged in one task.

        Returns
        -------
        StreamingKernelPCA
            This model, fitted.

        Raises
        ------
        TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.fit`; also if weights are not partitioned like X. The model is unchanged.

        Notes
        -----
        Each partition of a collection is read once; the first ones are read once more to settle the kernel's scale.
        There is no second pass over the rows.

        `n_streams` changes the result, by no more than sampling does. Its default is therefore fixed and does not
        follow the number of workers. Fewer streams than cores leave cores idle. When a worker dies, the runs whose
        latest state it held are learned again.

        On Linux, dask makes its workers return freed memory to the system at once. While a task learns or scores rows,
        its worker keeps up to 128 MiB instead, and returns it when the task ends: mapping every array anew took 1.6
        times the processor time.

        A partition is loaded in the task that learns it, unless other partitions need the same tasks. So at most
        `n_streams` partitions are in memory at once, and loading them uses at most `n_streams` cores.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> half = da.full(4000, 0.5, chunks=1000)
        >>> model = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X, sample_weight=half)
        >>> model.total_weight_
        2000.0
        """
        if not is_dask_collection(X):
            return super().fit(X, y, sample_weight)
        del y
        where = "StreamingKernelPCA.fit"
        n_streams = check_integer("n_streams", n_streams, least=1, where=where)
        split_every = check_integer("split_every", split_every, least=2, where=where)
        settings = self.settings(where)
        kind = _kind_of(X, where)
        parts = _partitions(X, kind)
        weights = _partition_weights(sample_weight, X, kind, len(parts), where)
        names: list[str] | None = None
        found: list[tuple[Array, Array]] = []
        if not settings.kernel.is_settled or kind == "bag":
            names, found = _first_rows(self, parts, weights)
            if kind != "bag":
                names = None
        empty = Aggregate(template_of(self, found, where))
        own = _without_kernel(self)
        state = _state_of(empty, parts, weights, names, own, n_streams=n_streams, split_every=split_every)
        whole = Aggregate.from_bytes(state.compute(), kernel=empty.kernel_)
        if not whole.n_rows_:
            raise ValueError(
                f"{where}: found 0 rows to learn from in all partitions; pass at least 1 finite row of positive weight"
            )
        state = whole.finish().state_
        # The parameter stays as the caller gave it, and the stream continues with the settled scale.
        self.state_ = dataclasses.replace(state, kernel=settings.kernel)
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the next rows of the stream; they must be in memory.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : object
            Accepted for scikit-learn and ignored.
        sample_weight : array-like of shape (n,), float or None
            Weight of each row; 1 by default.

        Returns
        -------
        StreamingKernelPCA
            This model.

        Raises
        ------
        TypeError
            X is a dask collection.
        ValueError
            As `streamkpca.StreamingKernelPCA.partial_fit`.

        Examples
        --------
        >>> import dask.array as da, numpy as np
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> model = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X)
        >>> model.partial_fit(np.zeros((500, 3))).n_samples_seen_
        4500
        """
        if is_dask_collection(X):
            raise TypeError(
                "StreamingKernelPCA.partial_fit expected rows in memory but got a dask collection; fit another model "
                "with kernel=model.kernel_ to it and merge: model.merge(other)"
            )
        return super().partial_fit(X, y, sample_weight)

    def transform(self, X: Any) -> Any:
        """Project rows onto the principal axes.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)

        Returns
        -------
        dask Array of shape (n, q), DataFrame with the same index, or Bag of arrays; ndarray of shape (n, q)
            Projections onto the axes at the time of the call, however late they are computed.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.transform`; errors in the rows are raised on computing.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> Y = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X).transform(X)
        >>> Y.shape, Y[:5].compute().shape  # only the first chunk is projected
        ((4000, 2), (5, 2))
        """
        if not is_dask_collection(X):
            return super().transform(X)
        return self._apply(X, _StreamingKernelPCA.transform, self.get_feature_names_out().tolist())

    def inverse_transform(self, X: Any) -> Any:
        """Find rows whose images in feature space are near given projections: pre-images.

        Parameters
        ----------
        X : dask Array of shape (n, q), DataFrame or Bag, or array-like of shape (n, q)
            Projections, as `transform` returns them.

        Returns
        -------
        dask Array of shape (n, d), DataFrame with the same index, or Bag of arrays; ndarray of shape (n, d)

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.inverse_transform`; errors in the rows are raised on computing.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> model = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X)
        >>> model.inverse_transform(model.transform(X)).chunks
        ((1000, 1000, 1000, 1000), (3,))
        """
        if not is_dask_collection(X):
            return super().inverse_transform(X)
        names = self._feature_names() or [f"x{i}" for i in range(self.n_features_in_)]
        return self._apply(X, _StreamingKernelPCA.inverse_transform, names)

    def reconstruction_error(self, X: Any, n_components: int | None = None, *, active_only: bool = False) -> Any:
        """Measure how far rows are, in feature space, from what the model can represent.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)
        n_components, active_only : int or None, bool
            As for `streamkpca.StreamingKernelPCA.reconstruction_error`.

        Returns
        -------
        dask Array of shape (n,), Series with the same index, or Bag; ndarray of shape (n,)
            Squared distances, in units of k(x, x).

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.reconstruction_error`; errors in the rows are raised on computing.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> model = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X)
        >>> model.reconstruction_error(X, n_components=1).chunks
        ((1000, 1000, 1000, 1000),)
        """
        if not is_dask_collection(X):
            return super().reconstruction_error(X, n_components, active_only=active_only)
        method = partial(_StreamingKernelPCA.reconstruction_error, n_components=n_components, active_only=active_only)
        if n_components is not None:
            # A wrong n_components is refused now, not when rows are computed.
            method(self, self.atoms_[:1])
        return self._apply(X, method)

    def novelty(self, X: Any) -> Any:
        """Score how novel rows are, on a scale that goes on growing where reconstruction errors do not.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)

        Returns
        -------
        dask Array of shape (n,), Series with the same index, or Bag; ndarray of shape (n,)
            In units of k(x, x), as `streamkpca.StreamingKernelPCA.novelty` defines it.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.novelty`; errors in the rows are raised on computing.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> model = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X)
        >>> bool((model.novelty(X) > model.novelty_threshold(0.99)).mean().compute() < 0.03)
        True
        """
        if not is_dask_collection(X):
            return super().novelty(X)
        return self._apply(X, _StreamingKernelPCA.novelty)

    def contributions(self, X: Any, n_components: int | None = None) -> Any:
        """Measure how much each feature adds to the novelty of rows.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)
        n_components : int or None
            As for `streamkpca.StreamingKernelPCA.contributions`.

        Returns
        -------
        dask Array of shape (n, d), DataFrame with the same index, or Bag; ndarray of shape (n, d)
            Contributions, which add up to the novelty of each row; with a number of axes, to the reconstruction error.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.contributions`; errors in the rows are raised on computing.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> model = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X)
        >>> model.contributions(X).chunks
        ((1000, 1000, 1000, 1000), (3,))
        """
        if not is_dask_collection(X):
            return super().contributions(X, n_components)
        method = partial(_StreamingKernelPCA.contributions, n_components=n_components)
        # A wrong n_components is refused now, not when rows are computed.
        self._checked_axes(n_components, "contributions", self._fitted("contributions"))
        return self._apply(X, method, self._feature_names() or [f"x{i}" for i in range(self.n_features_in_)])

    def hotelling_t2(self, X: Any, n_components: int | None = None) -> Any:
        """Measure how far rows are from the centre along the axes, in units of the variance along each.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)
        n_components : int or None
            As for `streamkpca.StreamingKernelPCA.hotelling_t2`.

        Returns
        -------
        dask Array of shape (n,), Series with the same index, or Bag; ndarray of shape (n,)
            T^2 of each row.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.hotelling_t2`; errors in the rows are raised on computing.

        Warns
        -----
        LocalKernelWarning
            As `streamkpca.StreamingKernelPCA.hotelling_t2`, on computing.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> model = StreamingKernelPCA(n_components=2, kernel="linear").fit(X)
        >>> bool((model.hotelling_t2(X) > model.control_limits(0.99).t2).mean().compute() < 0.03)
        True
        """
        if not is_dask_collection(X):
            return super().hotelling_t2(X, n_components)
        method = partial(_StreamingKernelPCA.hotelling_t2, n_components=n_components)
        # A wrong n_components is refused now, not when rows are computed.
        self._checked_axes(n_components, "hotelling_t2", self._fitted("hotelling_t2"))
        return self._apply(X, method)

    def score_samples(self, X: Any) -> Any:
        """Score how familiar rows are: the higher the score, the better the model represents the row.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)

        Returns
        -------
        dask Array of shape (n,), Series with the same index, or Bag; ndarray of shape (n,)
            Minus `novelty(X)`.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `novelty`.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> model = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X)
        >>> bool((model.score_samples(X) == -model.novelty(X)).all().compute())
        True
        """
        if not is_dask_collection(X):
            return super().score_samples(X)
        return self._apply(X, _StreamingKernelPCA.score_samples)

    def impute(self, X: Any) -> Any:
        """Complete rows with gaps.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)
            Rows, in which NaN are gaps.

        Returns
        -------
        dask Array of shape (n, d), DataFrame with the same index, or Bag of arrays; ndarray of shape (n, d)
            The rows, with a number in each gap.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.impute`; errors in the rows are raised on computing.

        Examples
        --------
        >>> import dask.array as da, numpy as np
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> model = StreamingKernelPCA(n_components=2, max_atoms=32, on_missing="marginal").fit(X)
        >>> completed = model.impute(da.where(X > 2.0, np.nan, X))
        >>> completed.chunks, bool(np.isnan(completed).any().compute())
        (((1000, 1000, 1000, 1000), (3,)), False)
        """
        if not is_dask_collection(X):
            return super().impute(X)
        names = self._feature_names() or [f"x{i}" for i in range(self.n_features_in_)]
        return self._apply(X, _StreamingKernelPCA.impute, names)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Measure how well rows are recovered from their projections; the rows must be in memory.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : object
            Accepted for scikit-learn and ignored.
        sample_weight : array-like of shape (n,), float or None
            Weight of each row; 1 by default.

        Returns
        -------
        float
            R^2 of ``inverse_transform(transform(X))``.

        Raises
        ------
        TypeError
            X is a dask collection.
        NotFittedError, ValueError
            As `streamkpca.StreamingKernelPCA.score`.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 2), chunks=(1000, 2))
        >>> model = StreamingKernelPCA(n_components=1, kernel="linear").fit(X * [2.0, 1.0])
        >>> round(model.score((X * [2.0, 1.0])[:1000].compute()), 1)  # the first axis holds 4/5 of the variance
        0.8
        """
        if is_dask_collection(X):
            raise TypeError(
                "StreamingKernelPCA.score expected rows in memory but got a dask collection; a sample of it is enough: "
                "model.score(X[:10_000].compute())"
            )
        return super().score(X, y, sample_weight)

    def _apply(self, X: Any, method: _Method, names: list[str] | None = None) -> Any:
        """Apply a method to each block, lazily; it returns a column for each of `names`, or one number a row."""
        self._fitted("for_dask")
        kind = _kind_of(X, "StreamingKernelPCA")
        # The model may learn more rows before anything is computed. Workers keep the copy and what it has prepared.
        frozen = copy.deepcopy(self).set_output(transform="default")
        shared = delayed(frozen)
        if kind == "array":
            X = X.rechunk({1: -1})
            if names is None:
                return X.map_blocks(_apply_to_block, model=shared, method=method, drop_axis=1, meta=np.empty(0))
            q = len(names)
            chunks, meta = (X.chunks[0], (q,)), np.empty((0, q))
            return X.map_blocks(_apply_to_block, model=shared, method=method, width=q, chunks=chunks, meta=meta)
        if kind == "frame":
            meta = _apply_to_frame(X._meta, frozen, method, names)
            return X.map_partitions(_apply_to_frame, shared, method, names, meta=meta)
        return X.map_partitions(_apply_to_bag, shared, method, self._feature_names())

    def _feature_names(self) -> list[str] | None:
        return self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None


def _kind_of(X: Any, where: str) -> _Kind:
    """Tell Arrays, DataFrames and Bags apart without importing the parts of dask that define them."""
    # A Delayed claims to have any attribute.
    if hasattr(X, "map_blocks") and not isinstance(X, Delayed):
        if X.ndim != 2:
            raise ValueError(
                f"{where}: expected a 2D array (rows, features) but got {X.ndim}D. Reshape your data: X.reshape(-1, 1) "
                "makes it one feature"
            )
        return "array"
    if hasattr(X, "map_partitions") and not hasattr(X, "to_frame"):
        return "frame" if hasattr(X, "columns") else "bag"
    raise TypeError(
        f"{where} expected a dask Array, DataFrame or Bag but got {type(X).__name__}; convert it first, or compute it"
    )


def _partitions(X: Any, kind: _Kind) -> list[Any]:
    """Split a collection into delayed pieces of whole rows."""
    return list(np.ravel((X.rechunk({1: -1}) if kind == "array" else X).to_delayed()))


def _partition_weights(sample_weight: Any, X: Any, kind: _Kind, n_parts: int, where: str) -> list[Any]:
    """Split weights as the rows are split."""
    if sample_weight is None or np.isscalar(sample_weight):
        return [sample_weight] * n_parts
    sizes = X.chunks[0] if kind == "array" and not np.isnan(X.chunks[0]).any() else None
    # np.shape would compute a bag.
    if sizes is not None and (hasattr(sample_weight, "rechunk") or not is_dask_collection(sample_weight)):
        if np.shape(sample_weight) != (sum(sizes),):
            raise ValueError(
                f"{where}: sample_weight has shape {np.shape(sample_weight)} but X has {sum(sizes)} rows; "
                "give one weight a row"
            )
        if not is_dask_collection(sample_weight):
            return np.split(np.asarray(sample_weight), np.cumsum(sizes)[:-1])
        sample_weight = sample_weight.rechunk((sizes,))
    if not hasattr(sample_weight, "to_delayed"):
        raise TypeError(
            f"{where} expected sample_weight as a dask collection partitioned like X, but got "
            f"{type(sample_weight).__name__}; make it a column of X first, or a dask Array with the same chunks"
        )
    weights = list(np.ravel(sample_weight.to_delayed()))
    if len(weights) != n_parts:
        raise ValueError(
            f"{where}: sample_weight has {len(weights)} partitions but X has {n_parts}; repartition one like the other"
        )
    return weights


def _first_rows(
    model: _StreamingKernelPCA, parts: Sequence[Any], weights: Sequence[Any]
) -> tuple[list[str] | None, list[tuple[Array, Array]]]:
    """Load partitions until there are enough rows to settle the scale; return feature names, rows and weights."""
    names, missing, found = None, rows_that_settle(model), []
    settings = _without_kernel(model)
    for part, weight in zip(parts, weights, strict=True):
        names, rows, counts = delayed(_head)(part, weight, names, settings, missing).compute()
        found.append((rows, counts))
        missing -= len(rows)
        if missing <= 0:
            break
    return names, found


def _without_kernel(model: _StreamingKernelPCA) -> _StreamingKernelPCA:
    """Return an empty model of the parameters that choose the first rows; a kernel may be large, or have functions."""
    names = ("max_atoms", "block_size", "on_bad_rows", "on_missing")
    return _StreamingKernelPCA(**{name: getattr(model, name) for name in names})


def _head(
    part: Any, weight: Any, names: list[str] | None, model: _StreamingKernelPCA, count: int
) -> tuple[list[str] | None, Array, Array]:
    rows = _as_rows(part, names)
    if isinstance(rows, NamedRows):
        names = rows.columns
    elif (columns := feature_names(rows)) is not None:
        names = columns.tolist()
    return names, *usable_rows(rows, _as_weights(weight), model, count, "StreamingKernelPCA.fit")


def _as_rows(part: Any, names: list[str] | None) -> Any:
    """Turn a partition of any collection into rows for `partial_fit`."""
    return part if hasattr(part, "shape") else rows_of_records(part, names)


def _as_weights(weight: Any) -> Any:
    """Turn a bag's iterator of weights into an array; leave None and a number as they are."""
    return weight if weight is None or np.isscalar(weight) else np.asarray(list(weight))


def _state_of(
    empty: Aggregate,
    parts: Sequence[Any],
    weights: Sequence[Any],
    names: list[str] | None,
    model: _StreamingKernelPCA,
    *,
    n_streams: int,
    split_every: int,
) -> Any:
    """Build the task graph from p delayed partitions and their weights to one state, a Delayed of bytes.

    Notes
    -----
    Each step of a run is a pure function of the state before it and of its partition, so a lost one can be computed
    again. The steps depend on p, `n_streams` and `split_every` alone. The first rows are learned first: all runs begin
    with their atoms, but for the first run, which finds these itself and so knows which of its rows they are. For r
    runs, the longest path has p / r steps and log r merges.

    A partition is loaded in the task that learns it. Otherwise schedulers, which run first what is ready, would load
    all partitions while the first ones are learned.
    """
    first, kernel = delayed(empty.to_bytes()), delayed(empty.kernel_)
    later = delayed(_begin)(first, parts[0], weights[0], names, model, kernel)
    level: list[Any] = []
    steps = set()
    for run in runs_of(len(parts), n_streams):
        state = later if level else first
        for number in run:
            state = delayed(_add_partition)(state, parts[number], weights[number], names, kernel)
            steps.add(state.key)
        level.append(state)
    while len(level) > 1:
        groups = [level[first : first + split_every] for first in range(0, len(level), split_every)]
        level = [delayed(merged)(group, kernel) if len(group) > 1 else group[0] for group in groups]
    (whole,) = level
    return _with_loads_fused(whole, steps)


def _begin(
    state: bytes, part: Any, weight: Any, names: list[str] | None, model: _StreamingKernelPCA, kernel: Kernel
) -> bytes:
    names, rows, counts = _head(part, weight, names, model, rows_to_begin_with(model))
    with freed_memory_kept():
        return begun(state, rows if names is None else NamedRows(names, rows), counts, kernel)


def _add_partition(state: bytes, part: Any, weight: Any, names: list[str] | None, kernel: Kernel) -> bytes:
    with freed_memory_kept():
        return added(state, _as_rows(part, names), _as_weights(weight), kernel)


def _with_loads_fused(whole: Any, steps: set[Hashable]) -> Any:
    """Fuse each step with the tasks that only it needs; shared tasks and data in memory stay separate."""
    graph = dict(whole.__dask_optimize__(whole.__dask_graph__(), whole.__dask_keys__()))
    needed_by = get_deps(graph)[1]
    fused = {}
    for step in filter(lambda key: _is_callable(graph, key), steps):
        taken = [step]
        for key in taken:
            alone = [need for need in graph[key].dependencies if needed_by[need] == {key}]
            taken += [need for need in alone if need not in steps and _is_callable(graph, need)]
        needs = list(dict.fromkeys(need for key in taken for need in graph[key].dependencies if need not in taken))
        fused[step] = (partial(_run_fused, [graph[key] for key in reversed(taken)], needs), *needs)
    rebuild, arguments = whole.__dask_postpersist__()
    return rebuild(graph | fused, *arguments)


def _run_fused(nodes: Sequence[Any], needs: Sequence[Hashable], *answers: Any) -> Any:
    """Run dask tasks in order within one task and return the last result; `answers` belong to the keys `needs`."""
    known = dict(zip(needs, answers, strict=True))
    for node in nodes:
        known[node.key] = node(known)
    return known[nodes[-1].key]


def _is_callable(graph: dict[Hashable, Any], key: Hashable) -> bool:
    """Whether a task can be called with the results of its dependencies.

    Not callable are plain tuples, tasks that wait for a Future, and tasks that distributed runs in its own way (these
    have `block_fusion` set).
    """
    node = graph[key]
    if getattr(node, "block_fusion", False):
        return False
    return hasattr(node, "dependencies") and node.dependencies <= graph.keys()


def _apply_to_block(block: Array, *, model: _StreamingKernelPCA, method: _Method, width: int | None = None) -> Array:
    if not len(block):
        return np.empty((0,) if width is None else (0, width))
    with freed_memory_kept():
        return method(model, block)


def _apply_to_frame(part: Any, model: _StreamingKernelPCA, method: _Method, names: list[str] | None) -> Any:
    """Apply a method to a partition of a DataFrame; returns a DataFrame if `names` are given, else a Series."""
    width = 1 if names is None else len(names)
    with freed_memory_kept():
        answers = method(model, part).reshape(-1, width) if len(part) else np.empty((0, width))
    frame = type(part)(answers, index=part.index, columns=names or ["answer"])
    return frame if names else frame["answer"].rename(None)


def _apply_to_bag(
    part: Iterable[Any], model: _StreamingKernelPCA, method: _Method, names: list[str] | None
) -> list[Any]:
    """Apply a method to each item of a Bag: an item of several rows gets an array of answers, a single row one."""
    items = list(part)
    if not items:
        return []
    with freed_memory_kept():
        answers = method(model, _as_rows(items, names))
    sizes = [len(item) if np.ndim(item) == 2 else 1 for item in items]
    pieces = np.split(answers, np.cumsum(sizes)[:-1])
    return [piece if np.ndim(item) == 2 else piece[0] for piece, item in zip(pieces, items, strict=True)]
