"""Kernel PCA over dask Arrays, DataFrames and Bags. Needs the extra ``dask``."""

import copy
from functools import partial
from typing import Any, Self

import numpy as np

from streamkpca.adapters.dask_blocks import (
    Ask,
    ask_array,
    ask_bag,
    ask_frame,
    first_rows,
    kind_of,
    partitions_of,
    weights_of,
)
from streamkpca.adapters.dask_runs import summary_of
from streamkpca.adapters.partitions import finish, template_of
from streamkpca.parameters import check_integer
from streamkpca.streaming import StreamingKernelPCA as _StreamingKernelPCA

try:
    from dask.base import is_dask_collection
    from dask.delayed import delayed
except ModuleNotFoundError as error:
    raise ImportError(f'streamkpca.adapters.for_dask needs {error.name}; pip install "streamkpca[dask]"') from error

__all__ = [
    "StreamingKernelPCA",
]


class StreamingKernelPCA(_StreamingKernelPCA):
    """`streamkpca.StreamingKernelPCA` that takes dask collections too.

    Parameters and attributes are the same. Rows in memory are treated as there; a dask collection is learned partition
    by partition, wherever dask runs them, and asked block by block, lazily.

    Notes
    -----
    The kernel's scale is settled once, on the first rows of the first partitions. Neighbouring partitions make runs,
    `n_streams` of them. In each run one stream goes on from partition to partition, and hands a summary on, a few
    megabytes; the summaries of all runs are merged in a tree. Which runs there are depends on the number of partitions
    and on `n_streams`, not on the workers. So the result is a function of the rows and their partitions: the same bytes
    with any scheduler, any number of workers, and whichever of them die. The stream's order is that of the partitions,
    for a `half_life` too.

    A bag holds dicts (features by name; those of the first record) or arrays, each a row or some rows.

    See Also
    --------
    streamkpca.StreamingKernelPCA : Parameters, attributes, and what they mean.

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
        """Start anew and learn from these rows.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)
        y : object
            Accepted for scikit-learn and ignored.
        sample_weight : dask collection of n numbers, array-like of shape (n,), float or None
            What each row counts; cut as X is. 1 by default.
        n_streams : int, default=8
            Streams that can learn a collection at once: as many as workers have cores, or more. Each searches for atoms
            of its own.
        split_every : int, default=8
            Summaries that are merged in one task.

        Returns
        -------
        StreamingKernelPCA
            This model, fitted.

        Raises
        ------
        TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.fit`; also where weights are not cut as X is. The model is as before.

        Notes
        -----
        Of a collection each partition is read once, and the first ones once more for the kernel's scale. There is no
        second pass over the rows.

        `n_streams` changes the result, within what sampling changes it by, and so does not follow the number of workers
        by itself. The search for atoms is what a stream does first: with 128 atoms and 32 features its first 100,000
        rows took 4.1 s, later ones 0.14 s. More streams than cores pay for more searches, fewer leave cores idle; where
        one process can read all rows, its `partial_fit` may be as fast. A worker that dies costs what was learned of
        the runs whose last summary it held.

        Dask has its workers give memory back at once, on Linux. Learning then took 1.3 times the processor time;
        ``MALLOC_TRIM_THRESHOLD_=134217728 MALLOC_MMAP_THRESHOLD_=33554432`` in the environment that workers are started
        in saves that.

        A partition is loaded in the task that learns it, unless other partitions need the same tasks. So no more of
        them are in memory than are being learned, and what makes them uses no more cores than there are streams.

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
        settings = self._settings(where)
        parts = partitions_of(X, where)
        weights = weights_of(sample_weight, X, len(parts), where)
        names, rows, counts = None, None, None
        if not settings.kernel.is_settled or kind_of(X, where) == "bag":
            names, rows, counts = first_rows(parts, weights, settings.block_size, settings.skips_bad_rows)
            if not len(rows):
                raise ValueError(
                    f"{where}: found 0 rows that count in {len(parts)} partitions; a minimum of 1 is required"
                )
        template = template_of(self, rows, counts)
        summary = summary_of(template, parts, weights, names, n_streams=n_streams, split_every=split_every)
        whole = finish(self, template, summary.compute())
        with self._writing():
            self._stream = whole._stream
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the next rows of the stream, which are in memory.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : object
            Accepted for scikit-learn and ignored.
        sample_weight : array-like of shape (n,), float or None
            What each row counts; 1 by default.

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
            With the axes as they are now, whenever it is computed.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.transform`; some of it when rows are computed.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> Y = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X).transform(X)
        >>> Y.shape, Y[:5].compute().shape  # nothing is projected before it is asked for
        ((4000, 2), (5, 2))
        """
        if not is_dask_collection(X):
            return super().transform(X)
        return self._ask(X, _StreamingKernelPCA.transform, self.get_feature_names_out().tolist())

    def inverse_transform(self, X: Any) -> Any:
        """Find rows whose images are near given projections: pre-images.

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
            As `streamkpca.StreamingKernelPCA.inverse_transform`; some of it when rows are computed.

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
        names = self._names() or [f"x{i}" for i in range(self.n_features_in_)]
        return self._ask(X, _StreamingKernelPCA.inverse_transform, names)

    def reconstruction_error(self, X: Any, n_components: int | None = None, *, active_only: bool = False) -> Any:
        """Measure how far rows are, in feature space, from what the model can represent.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)
        n_components : int, optional
            As `streamkpca.StreamingKernelPCA.reconstruction_error`.
        active_only : bool
            Likewise.

        Returns
        -------
        dask Array of shape (n,), Series with the same index, or Bag; ndarray of shape (n,)
            In units of k(x, x).

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `streamkpca.StreamingKernelPCA.reconstruction_error`; some of it when rows are computed.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> model = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X)
        >>> bool((model.reconstruction_error(X) > model.novelty_threshold(0.99)).mean().compute() < 0.03)
        True
        """
        if not is_dask_collection(X):
            return super().reconstruction_error(X, n_components, active_only=active_only)
        ask = partial(_StreamingKernelPCA.reconstruction_error, n_components=n_components, active_only=active_only)
        if n_components is not None:
            # What is wrong with the question is said now, not when rows are computed.
            ask(self, self.atoms_[:1])
        return self._ask(X, ask)

    def score_samples(self, X: Any) -> Any:
        """Score how familiar rows are: the higher, the better the model represents them.

        Parameters
        ----------
        X : dask Array of shape (n, d), DataFrame or Bag, or array-like of shape (n, d)

        Returns
        -------
        dask Array of shape (n,), Series with the same index, or Bag; ndarray of shape (n,)
            Minus `reconstruction_error(X)`.

        Raises
        ------
        NotFittedError, TypeError, ValueError
            As `reconstruction_error`.

        Examples
        --------
        >>> import dask.array as da
        >>> from streamkpca.adapters.for_dask import StreamingKernelPCA
        >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
        >>> model = StreamingKernelPCA(n_components=2, max_atoms=32).fit(X)
        >>> bool((model.score_samples(X) == -model.reconstruction_error(X)).all().compute())
        True
        """
        if not is_dask_collection(X):
            return super().score_samples(X)
        return self._ask(X, _StreamingKernelPCA.score_samples)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Measure how well rows are found again from their projections.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : object
            Accepted for scikit-learn and ignored.
        sample_weight : array-like of shape (n,), float or None
            What each row counts; 1 by default.

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
        >>> round(model.score((X * [2.0, 1.0])[:1000].compute()), 1)  # 4 of 5
        0.8
        """
        if is_dask_collection(X):
            raise TypeError(
                "StreamingKernelPCA.score expected rows in memory but got a dask collection; a sample of it tells "
                "enough: model.score(X[:10_000].compute())"
            )
        return super().score(X, y, sample_weight)

    def _ask(self, X: Any, ask: Ask, names: list[str] | None = None) -> Any:
        """Ask of each block; several numbers a row if they have names, one otherwise."""
        self._fitted("for_dask")
        kind = kind_of(X, "StreamingKernelPCA")
        # The model may go on learning before anything is computed. Workers keep the copy, and what it has prepared.
        frozen = copy.deepcopy(self).set_output(transform="default")
        shared = delayed(frozen)
        if kind == "array":
            X = X.rechunk({1: -1})
            if names is None:
                return X.map_blocks(ask_array, model=shared, ask=ask, n_answers=None, drop_axis=1, meta=np.empty(0))
            q = len(names)
            chunks = (X.chunks[0], (q,))
            return X.map_blocks(ask_array, model=shared, ask=ask, n_answers=q, chunks=chunks, meta=np.empty((0, q)))
        if kind == "frame":
            return X.map_partitions(ask_frame, shared, ask, names, meta=ask_frame(X._meta, frozen, ask, names))
        return X.map_partitions(ask_bag, shared, ask, self._names())

    def _names(self) -> list[str] | None:
        return self.feature_names_in_.tolist() if hasattr(self, "feature_names_in_") else None
