"""Recipe for Spark: summarise partitions with ``mapInArrow``, then merge. Needs pyarrow, as Spark does.

On the driver, with streamkpca installed on the driver and the executors::

    from pyspark import StorageLevel
    from streamkpca import StreamingKernelPCA
    from streamkpca.adapters import for_spark, partitions

    model = StreamingKernelPCA(n_components=10, max_atoms=256)
    frame = spark.read.parquet("readings").select("load", "heat", "flow").persist(StorageLevel.DISK_ONLY)
    first = frame.limit(model.block_size).toPandas()
    template = partitions.template_of(model, first)

    long = frame.coalesce(16)  # one partition a core: each is a stream of its own with its own search for atoms
    summaries = long.mapInArrow(lambda batches: for_spark.summarise_batches(template, batches), "summary binary")
    parts = [row.summary for row in summaries.collect()]  # in the order of the partitions, megabytes each
    model = partitions.finish(model, template, partitions.merge_summaries(template, parts))

    scores = frame.mapInArrow(lambda batches: for_spark.score_batches(model, batches), "novelty double")

Thousands of partitions are better merged on the executors. Spark does not guarantee the order of these merges; the
result depends on it only within its error bounds::

    merged = summaries.rdd.map(lambda row: bytes(row.summary)).treeReduce(
        lambda a, b: partitions.merge_summaries(template, [a, b])
    )
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from streamkpca.adapters.partitions import NamedRows, summarise
from streamkpca.estimators.streaming import StreamingKernelPCA

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "score_batches",
    "summarise_batches",
]


def summarise_batches(template: StreamingKernelPCA, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Learn a partition given as Arrow batches.

    Parameters
    ----------
    template : StreamingKernelPCA
        From `partitions.template_of`.
    batches : iterable of RecordBatch
        Each column is a feature, of numbers.

    Yields
    ------
    RecordBatch
        One batch of one row, with a binary column ``summary``.

    Raises
    ------
    ImportError
        pyarrow is not installed.
    TypeError, ValueError
        As `StreamingKernelPCA.partial_fit`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_spark, partitions
    >>> template = partitions.template_of(StreamingKernelPCA(1, kernel="linear"))
    >>> batches = [pa.record_batch({"load": [0.5, 0.7], "heat": [20.0, 21.0]})]
    >>> (summary,) = for_spark.summarise_batches(template, batches)
    >>> summary.schema.names, StreamingKernelPCA.from_bytes(summary["summary"][0].as_py()).n_samples_seen_
    (['summary'], 2)
    """
    summary = summarise(template, ((_rows(batch), None) for batch in batches))
    pyarrow = _pyarrow()
    yield pyarrow.record_batch({"summary": pyarrow.array([summary], pyarrow.binary())})


def score_batches(model: StreamingKernelPCA, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """Score rows given as Arrow batches.

    Parameters
    ----------
    model : StreamingKernelPCA
        A fitted model.
    batches : iterable of RecordBatch
        Each column is a feature, of numbers.

    Yields
    ------
    RecordBatch
        One for each batch, with a column ``novelty``: `StreamingKernelPCA.novelty` of its rows.

    Raises
    ------
    ImportError
        pyarrow is not installed.
    TypeError, ValueError
        As `StreamingKernelPCA.novelty`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_spark
    >>> from streamkpca.kernels import RBF
    >>> model = StreamingKernelPCA(1, kernel=RBF(1.0)).fit([[0.0], [1.0]])
    >>> (scores,) = for_spark.score_batches(model, [pa.record_batch({"load": [0.0, 30.0]})])
    >>> scores["novelty"].to_numpy().round(3)
    array([   0.   , 1681.855])
    """
    for batch in batches:
        novelty = model.novelty(_rows(batch)) if batch.num_rows else np.empty(0)
        yield _pyarrow().record_batch({"novelty": novelty})


def _rows(batch: "pa.RecordBatch") -> NamedRows:
    """Copy columns into rows; missing values become NaN."""
    columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
    return NamedRows(batch.schema.names, np.column_stack(columns) if columns else np.empty((batch.num_rows, 0)))


def _pyarrow() -> "pa":
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise ImportError(f'Arrow batches need {error.name}; pip install "streamkpca[arrow]"') from error
    return pyarrow
