"""What dask collections are cut into, and what runs on the workers."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.adapters.partitions import NamedRows, rows_of_records, summarise
from streamkpca.streaming import StreamingKernelPCA
from streamkpca.validation import as_rows, as_sample_weight

try:
    from dask.base import is_dask_collection
    from dask.delayed import Delayed, delayed
except ModuleNotFoundError as error:
    raise ImportError(f'streamkpca.adapters.for_dask needs {error.name}; pip install "streamkpca[dask]"') from error

Array = npt.NDArray[np.float64]
Ask = Callable[[StreamingKernelPCA, Any], Array]

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
    template: StreamingKernelPCA, part: Any, weight: Any, names: list[str] | None, before: bytes | None
) -> bytes:
    """Learn a partition, after those that a summary tells of."""
    return summarise(template, [(_rows(part, names), _numbers(weight))], before=before)


def ask_array(block: Array, *, model: StreamingKernelPCA, ask: Ask, n_answers: int | None) -> Array:
    """Answer a block of an Array."""
    return ask(model, block) if len(block) else np.empty((0,) if n_answers is None else (0, n_answers))


def ask_frame(part: Any, model: StreamingKernelPCA, ask: Ask, names: list[str] | None) -> Any:
    """Answer a partition of a DataFrame: a DataFrame where answers have names, else a Series."""
    width = 1 if names is None else len(names)
    answers = ask(model, part).reshape(-1, width) if len(part) else np.empty((0, width))
    frame = type(part)(answers, index=part.index, columns=names or ["answer"])
    return frame if names else frame["answer"].rename(None)


def ask_bag(part: Iterable[Any], model: StreamingKernelPCA, ask: Ask, names: list[str] | None) -> list[Any]:
    """Answer each item of a Bag: one that holds some rows with as many answers, a single row with its own."""
    items = list(part)
    if not items:
        return []
    answers = ask(model, _rows(items, names))
    sizes = [len(item) if np.ndim(item) == 2 else 1 for item in items]
    pieces = np.split(answers, np.cumsum(sizes)[:-1])
    return [piece if np.ndim(item) == 2 else piece[0] for piece, item in zip(pieces, items, strict=True)]
