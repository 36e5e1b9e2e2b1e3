"""Kernel PCA over dask Arrays, DataFrames and Bags. Needs the extra ``dask``."""

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from streamkpca._core.params import check_integer
from streamkpca._core.validation import as_rows, as_sample_weight
from streamkpca.adapters.partitions import (
    NamedRows,
    finish,
    merge_summaries,
    rows_of_records,
    runs_of,
    summarise,
    template_of,
)
from streamkpca.estimators.streaming import StreamingKernelPCA as _StreamingKernelPCA

try:
    from dask.base import is_dask_collection
    from dask.core import get_deps
    from dask.delayed import Delayed, delayed
except ModuleNotFoundError as error:
    raise ImportError(f'streamkpca.adapters.for_dask needs {error.name}; pip install "streamkpca[dask]"') from error

Array = npt.NDArray[np.float64]
Ask = Callable[[_StreamingKernelPCA, Any], Array]

_NOBODY = np.empty((0, 0)), np.empty(0)


def kind_of(X: Any, where: str) -> str:
    """Tell Arrays, DataFrames and Bags from each other, without loading what is not there."""
    # A Delayed has every attribute that it is asked for.
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


def partitions_of(X: Any, where: str) -> list[Any]:
    """Cut a collection into delayed pieces of whole rows."""
    if kind_of(X, where) == "array":
        X = X.rechunk({1: -1})
    return list(np.ravel(X.to_delayed()))


def weights_of(sample_weight: Any, X: Any, n_parts: int, where: str) -> list[Any]:
    """Cut weights as the rows are cut."""
    if sample_weight is None or np.isscalar(sample_weight):
        return [sample_weight] * n_parts
    sizes = X.chunks[0] if kind_of(X, where) == "array" and not np.isnan(X.chunks[0]).any() else None
    # Asked for its shape, a bag would be computed.
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
            f"{where} expected sample_weight as a dask collection cut like X, but got {type(sample_weight).__name__}; "
            "make it a column of X first, or a dask Array with the same chunks"
        )
    weights = list(np.ravel(sample_weight.to_delayed()))
    if len(weights) != n_parts:
        raise ValueError(
            f"{where}: sample_weight has {len(weights)} partitions but X has {n_parts}; repartition one like the other"
        )
    return weights


def first_rows(
    parts: Sequence[Any], weights: Sequence[Any], count: int, skip_bad: bool
) -> tuple[list[str] | None, Array, Array]:
    """Read the first rows that count, from as few partitions as it takes; names of a bag's features, rows, weights."""
    names, missing, found = None, count, []
    for part, weight in zip(parts, weights, strict=True):
        names, rows, counts = delayed(_head)(part, weight, names, missing, skip_bad).compute()
        found += [(rows, counts)] if len(rows) else []
        missing -= len(rows)
        if missing <= 0:
            break
    if not found:
        return names, *_NOBODY
    return names, np.concatenate([rows for rows, _ in found]), np.concatenate([counts for _, counts in found])


def _rows(part: Any, names: list[str] | None) -> Any:
    """Turn what a partition is into what `partial_fit` takes."""
    return part if hasattr(part, "shape") else rows_of_records(part, names)


def _head(
    part: Any, weight: Any, names: list[str] | None, count: int, skip_bad: bool
) -> tuple[list[str] | None, Array, Array]:
    rows = _rows(part, names)
    if isinstance(rows, NamedRows):
        names = rows.columns
    if not len(rows):
        return names, *_NOBODY
    where = "StreamingKernelPCA.fit"
    values = as_rows(rows, where=where, finite=not skip_bad)
    weights = as_sample_weight(_numbers(weight), len(values), where=where, all_zero=True)
    counting = np.flatnonzero((weights > 0.0) & np.isfinite(values).all(axis=1))[:count]
    return names, values[counting], weights[counting]


def _numbers(weight: Any) -> Any:
    """Take weights out of a bag's iterator."""
    return weight if weight is None or np.isscalar(weight) else np.asarray(list(weight))


def summarise_part(
    template: _StreamingKernelPCA, part: Any, weight: Any, names: list[str] | None, before: bytes | None
) -> bytes:
    """Learn a partition, after those that a summary tells of."""
    return summarise(template, [(_rows(part, names), _numbers(weight))], before=before)


def ask_array(block: Array, *, model: _StreamingKernelPCA, ask: Ask, n_answers: int | None) -> Array:
    """Answer a block of an Array."""
    return ask(model, block) if len(block) else np.empty((0,) if n_answers is None else (0, n_answers))


def ask_frame(part: Any, model: _StreamingKernelPCA, ask: Ask, names: list[str] | None) -> Any:
    """Answer a partition of a DataFrame: a DataFrame where answers have names, else a Series."""
    width = 1 if names is None else len(names)
    answers = ask(model, part).reshape(-1, width) if len(part) else np.empty((0, width))
    frame = type(part)(answers, index=part.index, columns=names or ["answer"])
    return frame if names else frame["answer"].rename(None)


def ask_bag(part: Iterable[Any], model: _StreamingKernelPCA, ask: Ask, names: list[str] | None) -> list[Any]:
    """Answer each item of a Bag: one that holds some rows with as many answers, a single row with its own."""
    items = list(part)
    if not items:
        return []
    answers = ask(model, _rows(items, names))
    sizes = [len(item) if np.ndim(item) == 2 else 1 for item in items]
    pieces = np.split(answers, np.cumsum(sizes)[:-1])
    return [piece if np.ndim(item) == 2 else piece[0] for piece, item in zip(pieces, items, strict=True)]


def summary_of(
    template: _StreamingKernelPCA,
    parts: Sequence[Any],
    weights: Sequence[Any],
    names: list[str] | None,
    *,
    n_streams: int,
    split_every: int,
) -> Any:
    """Describe how all partitions become one summary.

    Parameters
    ----------
    template : _StreamingKernelPCA
        From `template_of`.
    parts, weights : sequence of p delayed partitions, and what their rows count
    names : list of str or None
        Of the features of a bag's records.
    n_streams : int
        At most so many runs of neighbouring partitions.
    split_every : int
        Summaries that are merged in one task.

    Returns
    -------
    Delayed
        Of bytes. A step of a run is a pure function of the summary before it and its partition, so that one that is
        lost is made again, and which steps there are depends on p, `n_streams` and `split_every` alone.

    Notes
    -----
    The longest path has p / r steps and log r merges. A partition is loaded in the task that learns it: schedulers do
    first what can be done at once, and would load all partitions while the first ones are learned.
    """
    shared = delayed(template)
    level, steps = [], set()
    for run in runs_of(len(parts), n_streams):
        summary = None
        for number in run:
            summary = delayed(summarise_part)(shared, parts[number], weights[number], names, summary)
            steps.add(summary.key)
        level.append(summary)
    while len(level) > 1:
        groups = [level[start : start + split_every] for start in range(0, len(level), split_every)]
        level = [delayed(merge_summaries)(shared, group) if len(group) > 1 else group[0] for group in groups]
    (whole,) = level
    return _with_loads_in_steps(whole, steps)


class _Fused:
    """Some tasks that are one: calls them one after another, with the answers of `needs`.

    Parameters
    ----------
    nodes : sequence of dask's tasks
        Each after those that it depends on.
    needs : sequence of keys
        Of the answers that other tasks have.
    """

    def __init__(self, nodes: Sequence[Any], needs: Sequence[Hashable]) -> None:
        self._nodes = nodes
        self._needs = needs

    def __call__(self, *answers: Any) -> Any:
        known = dict(zip(self._needs, answers, strict=True))
        for node in self._nodes:
            known[node.key] = node(known)
        return known[self._nodes[-1].key]


def _with_loads_in_steps(whole: Any, steps: set[Hashable]) -> Any:
    """Take into each step the tasks that nobody else depends on; what is shared, or in memory, stays outside."""
    graph = dict(whole.__dask_optimize__(whole.__dask_graph__(), whole.__dask_keys__()))
    needed_by = get_deps(graph)[1]
    fused = {}
    for step in filter(lambda key: _is_callable(graph, key), steps):
        taken = [step]
        for key in taken:
            alone = [need for need in graph[key].dependencies if needed_by[need] == {key}]
            taken += [need for need in alone if need not in steps and _is_callable(graph, need)]
        needs = list(dict.fromkeys(need for key in taken for need in graph[key].dependencies if need not in taken))
        fused[step] = (_Fused([graph[key] for key in reversed(taken)], needs), *needs)
    rebuild, arguments = whole.__dask_postpersist__()
    return rebuild(graph | fused, *arguments)


def _is_callable(graph: dict[Hashable, Any], key: Hashable) -> bool:
    """Whether a task can be called with what it depends on.

    Tuples cannot, nor can what waits for a Future, nor what distributed runs in its own way, which says so.
    """
    node = graph[key]
    if getattr(node, "block_fusion", False):
        return False
    return hasattr(node, "dependencies") and node.dependencies <= graph.keys()


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
        with self._cell.lock:
            self._cell.stream = whole._stream
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
