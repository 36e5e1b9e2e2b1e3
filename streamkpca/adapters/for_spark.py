"""Kernel PCA over Spark's DataFrames. Needs the extra ``spark``, on the executors too.

Works with Spark 4.0 and later, also through Spark Connect.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from streamkpca.adapters import partition
from streamkpca.aggregate import Aggregate
from streamkpca.errors import name_errors
from streamkpca.kernels import Kernel
from streamkpca.models.streaming import StreamingKernelPCA

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["fit", "transform"]

_STATES = "number int, state binary"
# pyspark looks columns up by their bare names, and refuses those with dots. So functions get features named like this.
_FEATURE = "feature_{}"
# Names of the other columns that functions get.
_OTHER = "other_{}"


@name_errors
def fit(template: StreamingKernelPCA, frame: Any, *, weight_column: str | None = None) -> StreamingKernelPCA:
    """Learn the rows of a DataFrame, each partition where it is.

    Parameters
    ----------
    template, weight_column
        As for `for_dask.fit`.
    frame : pyspark.sql.DataFrame
        All columns but that of the weights are features, of numbers or booleans; for nulls see `missing`.

    Returns
    -------
    StreamingKernelPCA
        A new model of all rows, with the settled kernel. Its features have the names of the columns.

    Raises
    ------
    ImportError
        pyspark is not installed.
    TypeError, ValueError
        As for `for_dask.fit`; or a column is missing or not numeric.
    pyspark.errors.PythonException
        An executor refuses later rows; the message ends with that of `StreamingKernelPCA.partial_fit`.

    Notes
    -----
    Each partition is learned in one task, and states are merged on the executors. The bytes are the same with any
    number of executors, and whichever tasks are tried again. But Spark samples the bounds of ranges anew in each run:
    write or persist a sorted frame where runs must agree to the byte.

    Examples
    --------
    >>> from pyspark.sql import SparkSession  # doctest: +SKIP
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_spark
    >>> spark = SparkSession.builder.getOrCreate()  # doctest: +SKIP
    >>> frame = spark.range(6000).selectExpr("sin(id) AS load", "cos(id) AS heat")  # doctest: +SKIP
    >>> model = for_spark.fit(StreamingKernelPCA(2, max_atoms=16), frame)  # doctest: +SKIP
    >>> model.n_samples_seen_, model.feature_names_in_.tolist()  # doctest: +SKIP
    (6000, ['load', 'heat'])
    """
    functions, types = _spark()
    import pyarrow

    names = list(frame.columns)
    partition.features_of(template, names, [] if weight_column is None else [weight_column], [])
    rows = frame.select(_as_numbers(names, frame, functions, types))

    def first() -> Iterator[Any]:
        # Not toArrow or toPandas, which may shuffle the first rows of several partitions.
        found = np.array(rows.take(partition.FIRST_ROWS), dtype=np.float64).reshape(-1, len(names))
        yield _table(list(map(pyarrow.array, found.T)), names)

    empty = partition.begin(template, first(), weight_column)
    kernel = empty.kernel_
    learn = partial(_learn_partition, empty=empty, names=names, weight_column=weight_column)
    states = rows.mapInArrow(learn, _STATES).persist()
    try:
        # Without `frame.rdd`, which Spark Connect lacks, the states tell how many partitions there are.
        n_parts = (states.agg(functions.max("number")).first()[0] or 0) + 1
        level, group = states, functions.floor(functions.col("number") / partition.MERGED_TOGETHER)
        while n_parts > partition.MERGED_TOGETHER:
            # pyspark reads the annotations of what it is given, and a function made by `partial` fails there.
            level = level.groupBy(group).applyInArrow(lambda table: _merge_neighbours(table, kernel=kernel), _STATES)
            n_parts = -(-n_parts // partition.MERGED_TOGETHER)
        found = sorted(level.collect(), key=lambda row: row.number)
    finally:
        states.unpersist()
    return partition.merge([empty, *(Aggregate.from_bytes(bytes(row.state), kernel=kernel) for row in found)]).finish()


@name_errors
def transform(model: Any, frame: Any, *, keep: Sequence[str] = ()) -> Any:
    """Score and project the rows of a DataFrame or of a structured stream, lazily.

    Parameters
    ----------
    model, keep
        As for `for_dask.transform`.
    frame : pyspark.sql.DataFrame
        With the model's features, by their names if the model knows them.

    Returns
    -------
    pyspark.sql.DataFrame
        The columns that `for_dask.transform` gives, null in place of NaN.

    Raises
    ------
    ImportError
        pyspark is not installed.
    NotFittedError, TypeError, ValueError
        The model has learned no rows, or columns are missing, not numeric, too many, or named like an answer.

    Examples
    --------
    >>> from pyspark.sql import SparkSession  # doctest: +SKIP
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_spark
    >>> spark = SparkSession.builder.getOrCreate()  # doctest: +SKIP
    >>> frame = spark.range(6000).selectExpr("id", "sin(id) AS load", "cos(id) AS heat")  # doctest: +SKIP
    >>> model = for_spark.fit(StreamingKernelPCA(1, max_atoms=16), frame.drop("id"))  # doctest: +SKIP
    >>> for_spark.transform(model, frame, keep=["id"]).columns  # doctest: +SKIP
    ['id', 'novelty', 'streamingkernelpca0']
    """
    functions, types = _spark()
    names = partition.answer_names(model)
    features = partition.features_of(model, frame.columns, keep, names)
    rows = frame.select([*_others(keep, functions), *_as_numbers(features, frame, functions, types)])
    fields = rows.schema.fields[: len(keep)] + [types.StructField(name, types.DoubleType()) for name in names]
    answer = partial(_answer_batches, model=copy.deepcopy(model), features=features)
    return rows.mapInArrow(answer, types.StructType(fields)).toDF(*keep, *names)


def _learn_partition(
    batches: Iterable["pa.RecordBatch"],
    *,
    empty: Aggregate,
    names: list[str],
    weight_column: str | None = None,
    number: int | None = None,
) -> Iterator["pa.RecordBatch"]:
    """Learn a partition; yields its number and its state."""
    if number is None:
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
    state, n_rows = empty.zero(), 0
    for batch in batches:
        n_rows += batch.num_rows
        state.add(*partition.split(_table(batch.columns, names), weight_column))
    # The driver would receive megabytes for each partition without rows.
    if n_rows:
        yield _state_batch(number, state)


def _merge_neighbours(table: "pa.Table", *, kernel: Kernel) -> "pa.Table":
    """Merge the states of a group of neighbours, in their order."""
    import pyarrow

    found = sorted(table.to_pylist(), key=lambda row: int(row["number"]))
    whole = partition.merge([Aggregate.from_bytes(row["state"], kernel=kernel) for row in found])
    return pyarrow.Table.from_batches([_state_batch(found[0]["number"] // partition.MERGED_TOGETHER, whole)])


def _state_batch(number: int, state: Aggregate) -> "pa.RecordBatch":
    import pyarrow

    columns = [pyarrow.array([number], pyarrow.int32()), pyarrow.array([state.to_bytes()], pyarrow.binary())]
    return pyarrow.RecordBatch.from_arrays(columns, ["number", "state"])


def _answer_batches(
    batches: Iterable["pa.RecordBatch"], *, model: Any, features: list[str]
) -> Iterator["pa.RecordBatch"]:
    """Yield the kept columns, which come before the features, and the answers."""
    import pyarrow

    for batch in batches:
        n_kept = batch.num_columns - len(features)
        found = partition.answers(_table(batch.columns[n_kept:], features), model)
        columns = [*batch.columns[:n_kept], *(pyarrow.array(column, from_pandas=True) for column in found.T)]
        yield pyarrow.RecordBatch.from_arrays(columns, [*batch.schema.names[:n_kept], *partition.answer_names(model)])


def _table(columns: Sequence["pa.Array"], names: list[str]) -> Any:
    """Return columns of numbers as a table of pandas; missing values become NaN."""
    import pyarrow

    return pyarrow.table(list(columns), names=names).to_pandas()


def _as_numbers(names: Sequence[str], frame: Any, functions: Any, types: Any) -> list[Any]:
    """Return columns as doubles; TypeError if one is not numeric."""
    for name in names:
        found = frame.schema[name].dataType
        if not isinstance(found, types.NumericType | types.BooleanType):
            raise TypeError(
                f"expected columns of numbers but got {name} ({found.simpleString()}); encode it, or leave it "
                "out with frame.drop or frame.select"
            )
    columns = [_column(name, functions).cast("double") for name in names]
    return [column.alias(_FEATURE.format(number)) for number, column in enumerate(columns)]


def _others(names: Sequence[str], functions: Any) -> list[Any]:
    return [_column(name, functions).alias(_OTHER.format(number)) for number, name in enumerate(names)]


def _column(name: str, functions: Any) -> Any:
    """Return a column by its name, which may contain dots."""
    return functions.col("`" + name.replace("`", "``") + "`")


def _spark() -> tuple[Any, Any]:
    try:
        from pyspark.sql import functions, types
    except ModuleNotFoundError as error:
        raise ImportError(f'{error.name} is not installed; pip install "streamkpca[spark]"') from error
    return functions, types
