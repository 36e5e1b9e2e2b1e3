"""Kernel PCA over Ray's Datasets. Needs the extra ``ray``."""

from typing import Any

import numpy as np
import numpy.typing as npt

from streamkpca.adapters.runs import NamedRows, added, answered_rows, merged, rows_to_begin_with
from streamkpca.aggregate import Aggregate
from streamkpca.models.streaming import StreamingKernelPCA

__all__ = ["fit", "transform"]

Array = npt.NDArray[np.float64]


def fit(model: StreamingKernelPCA, dataset: Any) -> StreamingKernelPCA:
    """Learn the rows of a Dataset, each block where it is.

    Parameters
    ----------
    model : StreamingKernelPCA
        Its parameters are those of the result. It is not changed, and rows that it has learned do not matter.
    dataset : ray.data.Dataset
        All columns are features, of numbers. A missing value is NaN, for which see `on_missing`.

    Returns
    -------
    StreamingKernelPCA
        A new model of all rows, with the settled kernel. Its features have the names of the columns.

    Raises
    ------
    ImportError
        Ray is not installed.
    TypeError, ValueError
        As `StreamingKernelPCA.partial_fit`, for the first rows; the model is no StreamingKernelPCA, or has a
        `half_life`; or the Dataset has no rows.
    ray.exceptions.RayTaskError
        Later rows are refused by a task; it is also an instance of their error.

    Notes
    -----
    This process learns the first few thousand rows: they settle the kernel's scale, and every block begins with their
    atoms. The blocks are then learned and merged by an `AggregateFnV2`. Ray promises no order of blocks or merges. So
    the bytes may differ from run to run where blocks find atoms of their own, by no more than the error bounds that the
    model reports, and `atom_rows_` counts rows in the order of the merges. A `half_life` needs the order, and is
    refused.

    Examples
    --------
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_ray
    >>> dataset = ray.data.from_numpy(np.random.default_rng(0).normal(size=6000))  # doctest: +SKIP
    >>> for_ray.fit(StreamingKernelPCA(1, max_atoms=16), dataset).n_samples_seen_  # doctest: +SKIP
    6000
    """
    try:
        from ray.data.aggregate import AggregateFnV2
        from ray.data.block import BlockAccessor
    except ModuleNotFoundError as error:
        raise ImportError(f'streamkpca.adapters.for_ray needs {error.name}; pip install "streamkpca[ray]"') from error
    where = "for_ray.fit"
    if not isinstance(model, StreamingKernelPCA):
        raise TypeError(f"{where} expected a StreamingKernelPCA but got {type(model).__name__}; pass one to be fitted")
    if model.half_life is not None:
        raise ValueError(
            f"{where} expected half_life=None but got {model.half_life!r}; Ray promises no order of blocks, so fit "
            "without one, or learn the blocks in order with partial_fit"
        )
    template = StreamingKernelPCA(**model.get_params(deep=False))
    template.settings(where)
    first = dataset.limit(rows_to_begin_with(template)).to_pandas()
    if not len(first):
        raise ValueError(f"{where}: found 0 rows to learn from; pass at least 1 finite row of positive weight")
    names = [str(name) for name in first.columns]
    begun = Aggregate(template.partial_fit(_rows(first, names)))
    empty, kernel = begun.to_bytes(), begun.kernel_

    class Fit(AggregateFnV2):  # type: ignore[misc, unused-ignore]
        """A state of the aggregate for each block."""

        def __init__(self) -> None:
            super().__init__("state", lambda: empty, on=None, ignore_nulls=False)

        def aggregate_block(self, block: Any) -> bytes:
            rows = BlockAccessor.for_block(block).to_pandas()
            return added(empty, _rows(rows, names), None, kernel)

        def combine(self, current_accumulator: bytes, new: bytes) -> bytes:
            return merged([current_accumulator, new], kernel)

    return Aggregate.from_bytes(dataset.aggregate(Fit())["state"], kernel=kernel).finish()


def transform(model: Any, batch: dict[str, Array]) -> dict[str, Array]:
    """Score and project a batch of rows, for ``dataset.map_batches``.

    Parameters
    ----------
    model : StreamingKernelPCA, KernelPCA, SparseKernelPCA or ApproximateKernelPCA
        A fitted model.
    batch : dict of ndarrays of shape (n,)
        The columns. The features are those that the model names, or all if it knows no names.

    Returns
    -------
    dict of ndarrays of shape (n,)
        The columns, then ``novelty``, and one for each axis, named by the model's `get_feature_names_out`. The answers
        of rows that the model leaves out when it learns (`on_bad_rows`, `on_missing`) are NaN.

    Raises
    ------
    NotFittedError, TypeError, ValueError
        As `StreamingKernelPCA.novelty`; or a feature is missing.

    Notes
    -----
    ``dataset.map_batches(partial(for_ray.transform, model))`` answers for a Dataset, lazily.

    Examples
    --------
    >>> import numpy as np
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_ray
    >>> from streamkpca.kernels import RBF
    >>> model = StreamingKernelPCA(1, kernel=RBF(1.0)).fit([[0.0], [1.0]])
    >>> answers = for_ray.transform(model, {"load": np.array([0.0, 30.0])})
    >>> list(answers), answers["novelty"].round(3)
    (['load', 'novelty', 'streamingkernelpca0'], array([   0.   , 1681.855]))
    """
    names = model.feature_names_in_.tolist() if hasattr(model, "feature_names_in_") else list(batch)
    if missing := [name for name in names if name not in batch]:
        raise ValueError(
            f"for_ray.transform expected the column {missing[0]} but got {', '.join(batch)}; check the name, or add it"
        )
    rows = np.column_stack([batch[name] for name in names]).astype(np.float64)
    outputs = ["novelty", *model.get_feature_names_out().tolist()]
    answers = np.full((len(rows), len(outputs)), np.nan)
    usable = answered_rows(rows, model)
    if usable.any():
        answers[usable, 0] = model.novelty(rows[usable])
        answers[usable, 1:] = model.transform(rows[usable])
    return {**batch, **dict(zip(outputs, answers.T, strict=True))}


def _rows(table: Any, names: list[str]) -> NamedRows:
    """Return the columns of a table of pandas as rows, in a fixed order."""
    # Where a block has missing values, Ray passes objects or pandas' own types.
    return NamedRows(names, table[names].to_numpy(na_value=np.nan).astype(np.float64))
