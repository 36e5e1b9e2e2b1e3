"""Kernel PCA over Ray's Datasets. Needs the extra ``ray``."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

from streamkpca.adapters import partition
from streamkpca.aggregate import Aggregate
from streamkpca.errors import name_errors
from streamkpca.models.streaming import StreamingKernelPCA, check_template

__all__ = ["fit", "transform"]


@name_errors
def fit(template: StreamingKernelPCA, dataset: Any, *, weight_column: str | None = None) -> StreamingKernelPCA:
    """Learn the rows of a Dataset, each block where it is.

    Parameters
    ----------
    template, weight_column
        As for `for_dask.fit`.
    dataset : ray.data.Dataset
        All columns but that of the weights are features, of numbers; for missing values see `missing`.

    Returns
    -------
    StreamingKernelPCA
        A new model of all rows, with the settled kernel. Its features have the names of the columns.

    Raises
    ------
    ImportError
        Ray is not installed.
    TypeError, ValueError
        As for `for_dask.fit`.
    ray.exceptions.RayTaskError
        A task refuses later rows; it is also an instance of their error.

    Notes
    -----
    Ray promises no order of blocks or merges. So the bytes may differ from run to run where blocks find atoms of their
    own, by no more than the error bounds that the model reports.

    Examples
    --------
    >>> import ray  # doctest: +SKIP
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_ray
    >>> dataset = ray.data.from_items([{"load": i % 7, "heat": i % 5} for i in range(6000)])  # doctest: +SKIP
    >>> for_ray.fit(StreamingKernelPCA(1, max_atoms=16), dataset).n_samples_seen_  # doctest: +SKIP
    6000
    """
    try:
        from ray.data.aggregate import AggregateFnV2
        from ray.data.block import BlockAccessor
    except ModuleNotFoundError as error:
        raise ImportError(f'{error.name} is not installed; pip install "streamkpca[ray]"') from error
    check_template(template)
    first = dataset.limit(partition.FIRST_ROWS).to_pandas()
    empty = partition.begin(template, [first], weight_column)
    # Blocks may have their columns in another order.
    names, kernel, zero = list(first.columns), empty.kernel_, empty.to_bytes()

    class Fit(AggregateFnV2):  # type: ignore[misc, unused-ignore]
        """A state of the aggregate for each block."""

        def __init__(self) -> None:
            super().__init__("state", lambda: zero, on=None, ignore_nulls=False)

        def aggregate_block(self, block: Any) -> bytes:
            return partition.learn(empty, BlockAccessor.for_block(block).to_pandas()[names], weight_column).to_bytes()

        def combine(self, current_accumulator: bytes, new: bytes) -> bytes:
            states = [Aggregate.from_bytes(state, kernel=kernel) for state in (current_accumulator, new)]
            return partition.merge(states).to_bytes()

    return Aggregate.from_bytes(dataset.aggregate(Fit())["state"], kernel=kernel).finish()


@name_errors
def transform(model: Any, dataset: Any, *, keep: Sequence[str] = ()) -> Any:
    """Score and project the rows of a Dataset, lazily.

    Parameters
    ----------
    model, keep
        As for `for_dask.transform`.
    dataset : ray.data.Dataset
        With the model's features, by their names if the model knows them.

    Returns
    -------
    ray.data.Dataset
        The columns that `for_dask.transform` gives.

    Raises
    ------
    NotFittedError, ValueError
        The model has learned no rows, or columns are missing or named like an answer.

    Examples
    --------
    >>> import ray  # doctest: +SKIP
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_ray
    >>> dataset = ray.data.from_items([{"id": i, "load": i % 7} for i in range(6000)])  # doctest: +SKIP
    >>> model = for_ray.fit(StreamingKernelPCA(1, max_atoms=16), dataset.drop_columns(["id"]))  # doctest: +SKIP
    >>> for_ray.transform(model, dataset, keep=["id"]).columns()  # doctest: +SKIP
    ['id', 'novelty', 'streamingkernelpca0']
    """
    features = partition.features_of(model, dataset.columns(), keep, partition.answer_names(model))
    answer = partial(partition.answer, model=copy.deepcopy(model), features=features, keep=list(keep))
    return dataset.map_batches(answer, batch_format="pandas")
