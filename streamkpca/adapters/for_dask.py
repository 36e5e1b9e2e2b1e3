"""Kernel PCA over dask Arrays and DataFrames. Needs the extra ``dask``."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamkpca.adapters import partition
from streamkpca.errors import name_errors
from streamkpca.models.streaming import StreamingKernelPCA

try:
    from dask.delayed import Delayed, delayed
except ModuleNotFoundError as error:
    raise ImportError(f'streamkpca.adapters.for_dask needs {error.name}; pip install "streamkpca[dask]"') from error

__all__ = ["fit", "transform"]


@name_errors
def fit(template: StreamingKernelPCA, X: Any, *, weight_column: str | int | None = None) -> StreamingKernelPCA:
    """Learn the rows of a collection, each partition where it is.

    Parameters
    ----------
    template : StreamingKernelPCA
        Its parameters are those of the result, without a `half_life`. If it has learned rows, every partition begins
        with its kernel and its atoms; otherwise with those of the first rows, which are learned first. It stays.
    X : dask Array of shape (n, d) or DataFrame
        All columns but that of the weights are features.
    weight_column : str or int, optional
        Name of the column with the weight of each row, or its position in an Array.

    Returns
    -------
    StreamingKernelPCA
        A new model of all rows in the order of the partitions, with the settled kernel.

    Raises
    ------
    TypeError, ValueError
        This is no such collection, it has no row to learn from, or as `Aggregate` and `StreamingKernelPCA.partial_fit`.

    Notes
    -----
    The bytes are the same with any scheduler and any number of workers, whichever of them die. Long partitions are
    best: a state costs about as much to send and merge as a few thousand rows to learn.

    Examples
    --------
    >>> import dask.array as da
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_dask
    >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
    >>> for_dask.fit(StreamingKernelPCA(2, max_atoms=32), X).n_samples_seen_
    4000
    """
    parts = np.ravel((X.rechunk({1: -1}) if _is_array(X) else X).to_delayed())
    first = (delayed(partition.first_rows)(part, template, weight_column).compute() for part in parts)
    empty = delayed(partition.begin(template, first, weight_column))
    states = [delayed(partition.learn)(empty, part, weight_column) for part in parts]
    while len(states) > 1:
        groups = [states[i : i + partition.MERGED_TOGETHER] for i in range(0, len(states), partition.MERGED_TOGETHER)]
        states = [delayed(partition.merge)(group) for group in groups]
    model: StreamingKernelPCA = states[0].compute().finish()
    return model


@name_errors
def transform(model: Any, X: Any, *, keep: Sequence[str] = ()) -> Any:
    """Score and project the rows of a collection, lazily.

    Parameters
    ----------
    model : StreamingKernelPCA, KernelPCA, SparseKernelPCA or ApproximateKernelPCA
        A fitted model; what it learns later does not matter.
    X : dask Array of shape (n, d) or DataFrame
        A DataFrame has the model's features, by their names if the model knows them. Otherwise the features are all
        columns but those of `keep`.
    keep : sequence of str
        Columns of a DataFrame to keep beside the answers.

    Returns
    -------
    dask Array of shape (n, 1 + q), or DataFrame with the same index
        The kept columns, ``novelty``, and a column for each axis, named by the model's `get_feature_names_out`. The
        answers to rows that the model leaves out when it learns (`missing`) are NaN.

    Raises
    ------
    NotFittedError, TypeError, ValueError
        The model has learned no rows, this is no such collection, or a column is missing or named like an answer.

    Examples
    --------
    >>> import dask.array as da
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_dask
    >>> X = da.random.default_rng(0).normal(size=(4000, 3), chunks=(1000, 3))
    >>> for_dask.transform(for_dask.fit(StreamingKernelPCA(2, max_atoms=32), X), X).shape
    (4000, 3)
    """
    names = partition.answer_names(model)
    frozen = copy.deepcopy(model)
    shared = delayed(frozen)
    if _is_array(X):
        X, width = X.rechunk({1: -1}), len(names)
        return X.map_blocks(partition.answers, model=shared, chunks=(X.chunks[0], (width,)), meta=np.empty((0, width)))
    features = partition.features_of(model, X.columns, keep, names)
    meta = partition.answer(X._meta, frozen, features, keep)
    return X.map_partitions(partition.answer, shared, features, keep, meta=meta)


def _is_array(X: Any) -> bool:
    """Tell Arrays from DataFrames without importing the parts of dask that define them."""
    # A Delayed claims to have any attribute, and a Bag has no dimensions.
    if isinstance(X, Delayed) or not hasattr(X, "to_delayed") or not hasattr(X, "ndim"):
        raise TypeError(
            f"expected a dask Array or DataFrame but got {type(X).__name__}; convert it first, such as a "
            "Bag of dicts by its to_dataframe()"
        )
    if X.ndim != 2:
        raise ValueError(
            f"expected a 2D collection (rows, features) but got {X.ndim}D. Reshape your data: "
            "X.reshape(-1, 1) and X.to_frame() make it one feature"
        )
    return hasattr(X, "map_blocks")
