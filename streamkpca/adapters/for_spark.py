"""Kernel PCA over Spark's DataFrames and structured streams. Needs the extra ``spark``, on the executors too.

Works with Spark 4.0 and later, also through Spark Connect.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from streamkpca._core.parameters import check_integer
from streamkpca.adapters.runs import NamedRows, answered_rows, merged, rows_to_begin_with
from streamkpca.aggregate import Aggregate
from streamkpca.kernels import Kernel
from streamkpca.models.streaming import StreamingKernelPCA, check_template

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["answer_batches", "fit", "score_by_key", "transform"]

Array = npt.NDArray[np.float64]

_STATES = "number int, state binary"
# pyspark looks columns up by their bare names, and refuses those with dots. So functions get columns named like this.
_FEATURE, _OTHER = "feature_{}", "other_{}"


def fit(
    model: StreamingKernelPCA, frame: Any, *, weight_column: str | None = None, split_every: int = 8
) -> StreamingKernelPCA:
    """Learn the rows of a DataFrame, each partition where it is.

    Parameters
    ----------
    model : StreamingKernelPCA
        Its parameters are those of the result. It is not changed, and rows that it has learned do not matter.
    frame : pyspark.sql.DataFrame
        All columns are features, of numbers or booleans. A null is NaN, for which see `on_missing`.
    weight_column : str, optional
        The column with the weight of each row; it is no feature.
    split_every : int, default=8
        Number of states merged in one task. As many are merged by the driver in the end.

    Returns
    -------
    StreamingKernelPCA
        A new model of all rows, with the settled kernel. Its features have the names of the columns.

    Raises
    ------
    ImportError
        pyspark is not installed.
    TypeError
        The model is no StreamingKernelPCA, or a column is not numeric; no job has run.
    ValueError
        A parameter is invalid, there is no such column, or no row to learn from; or as
        `StreamingKernelPCA.partial_fit`, for the first rows.
    pyspark.errors.PythonException
        Later rows are refused on an executor; the message ends with that of `StreamingKernelPCA.partial_fit`.

    Notes
    -----
    The driver learns the first few thousand rows: they settle the kernel's scale, and every partition begins with their
    atoms, so that none of them searches from the beginning. Then every partition is learned in one task, and its state
    (some megabytes) is merged with those of its neighbours, `split_every` at a time, on the executors. The states
    depend only on the rows of each partition in their order: the same bytes with any number of executors and cores, and
    whichever tasks are tried again. Partitions are read once, and the first ones once more for the first rows.

    The order of the stream is the order of the partitions. Spark packs files into partitions by their sizes, and
    ``coalesce`` does not keep neighbours together. So a model with a `half_life` needs
    ``frame.repartitionByRange(n, "time").sortWithinPartitions("time")``, with the time dropped afterwards. Spark
    samples the bounds of such ranges anew in each run; write or persist the sorted frame where runs must agree to the
    byte.

    Long partitions are best: a state costs about as much to send and merge as a few thousand rows to learn.

    See Also
    --------
    streamkpca.aggregate.Aggregate : The states, for other engines.

    Examples
    --------
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_spark
    >>> frame = spark.range(6000).selectExpr("sin(id) AS load", "cos(id) AS heat")  # doctest: +SKIP
    >>> model = for_spark.fit(StreamingKernelPCA(2, max_atoms=16), frame)  # doctest: +SKIP
    >>> model.n_samples_seen_, model.feature_names_in_.tolist()  # doctest: +SKIP
    (6000, ['load', 'heat'])
    """
    functions, types = _spark()
    where = "for_spark.fit"
    if not isinstance(model, StreamingKernelPCA):
        raise TypeError(f"{where} expected a StreamingKernelPCA but got {type(model).__name__}; pass one to be fitted")
    split_every = check_integer("split_every", split_every, least=2, where=where)
    template = StreamingKernelPCA(**model.get_params(deep=False))
    settings = template.settings(where)
    given = [] if weight_column is None else [weight_column]
    _require_columns(frame, given, where)
    names = _some([name for name in frame.columns if name not in given], where)
    rows = frame.select(_as_numbers([*names, *given], frame, functions, types, where))

    first, features = rows, rows.columns[: len(names)]
    for name in features:
        finite = functions.abs(name) < float("inf")
        missing = functions.col(name).isNull() | functions.isnan(name)
        if settings.on_missing == "skip":
            first = first.where(~missing)
        if settings.skips_bad_rows:
            first = first.where(finite | missing if settings.has_gaps else finite)
    for name in rows.columns[len(names) :]:
        first = first.where(~functions.col(name).eqNullSafe(0.0))
    # Not toArrow or toPandas, which may shuffle the first rows of several partitions.
    values = np.array(first.take(rows_to_begin_with(template)), dtype=np.float64)
    if not len(values):
        raise ValueError(f"{where}: found 0 rows to learn from; pass at least 1 finite row of positive weight")
    known, weights = values[:, : len(names)], values[:, len(names)] if given else None
    empty = Aggregate(template.partial_fit(NamedRows(names, known), sample_weight=weights))

    kernel = empty.kernel_
    learn = partial(_learn_partition, empty=empty.to_bytes(), kernel=kernel, names=names)
    states = rows.mapInArrow(learn, _STATES).persist()
    try:
        # Without `frame.rdd`, which Spark Connect lacks, the states tell how many partitions there are.
        n_parts = states.agg(functions.max("number")).first()[0] + 1
        level, group = states, functions.floor(functions.col("number") / split_every)
        while n_parts > split_every:
            # pyspark reads the annotations of what it is given, and a function made by `partial` fails there.
            level = level.groupBy(group).applyInArrow(
                lambda table: _merge_neighbours(table, split_every=split_every, kernel=kernel), _STATES
            )
            n_parts = -(-n_parts // split_every)
        found = sorted(level.collect(), key=lambda row: row.number)
    finally:
        states.unpersist()
    return Aggregate.from_bytes(merged([bytes(row.state) for row in found], kernel), kernel=kernel).finish()


def transform(model: Any, frame: Any, *, keep: Sequence[str] | None = None) -> Any:
    """Score and project the rows of a DataFrame or of a structured stream.

    Parameters
    ----------
    model : StreamingKernelPCA, KernelPCA, SparseKernelPCA or ApproximateKernelPCA
        A fitted model; what it learns later does not matter.
    frame : pyspark.sql.DataFrame
        With the model's features, by their names if the model knows them. Otherwise the features are all columns, or
        all but those of `keep`.
    keep : sequence of str, optional
        The columns to keep beside the answers; all by default.

    Returns
    -------
    pyspark.sql.DataFrame
        Lazy: the kept columns, then ``novelty``, and a column for each axis, named by the model's
        `get_feature_names_out`. The answers of rows that the model leaves out when it learns (`on_bad_rows`,
        `on_missing`) are null.

    Raises
    ------
    ImportError
        pyspark is not installed.
    NotFittedError
        The model has learned no rows.
    TypeError, ValueError
        Columns are missing, not numeric, too many, or named like an answer.
    pyspark.errors.PythonException
        When computed, for rows that the model refuses.

    Examples
    --------
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_spark
    >>> frame = spark.range(6000).selectExpr("id", "sin(id) AS load", "cos(id) AS heat")  # doctest: +SKIP
    >>> model = for_spark.fit(StreamingKernelPCA(1, max_atoms=16), frame.drop("id"))  # doctest: +SKIP
    >>> for_spark.transform(model, frame, keep=["id"]).columns  # doctest: +SKIP
    ['id', 'novelty', 'streamingkernelpca0']
    """
    functions, types = _spark()
    where = "for_spark.transform"
    answers = ["novelty", *model.get_feature_names_out().tolist()]
    kept = list(frame.columns if keep is None else keep)
    _require_columns(frame, kept, where)
    names = _features_of(model, frame, [] if keep is None else kept, where)
    if taken := [name for name in kept if name in answers]:
        raise ValueError(f"{where}: the columns {', '.join(taken)} are named like answers; rename them, or choose keep")
    features = _as_numbers(names, frame, functions, types, where)
    rows = frame.select([*_others(kept, functions), *features])
    fields = rows.schema.fields[: len(kept)]
    fields += [types.StructField(name, types.DoubleType()) for name in answers]
    answer = partial(answer_batches, copy.deepcopy(model), n_kept=len(kept))
    return rows.mapInArrow(answer, types.StructType(fields)).toDF(*kept, *answers)


def answer_batches(model: Any, batches: Iterable["pa.RecordBatch"], *, n_kept: int = 0) -> Iterator["pa.RecordBatch"]:
    """Score and project rows given as Arrow batches.

    Parameters
    ----------
    model : StreamingKernelPCA, KernelPCA, SparseKernelPCA or ApproximateKernelPCA
        A fitted model.
    batches : iterable of RecordBatch
        The columns to keep, then a column of numbers for each feature, in the model's order.
    n_kept : int, default=0
        Number of columns to keep.

    Yields
    ------
    RecordBatch
        One for each batch: the kept columns, ``novelty``, and a column for each axis. Where `on_bad_rows` is "skip",
        the answers of rows with null, NaN or infinity are null.

    Raises
    ------
    ImportError
        pyarrow is not installed.
    NotFittedError, TypeError, ValueError
        As `StreamingKernelPCA.novelty`.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters.for_spark import answer_batches
    >>> from streamkpca.kernels import RBF
    >>> model = StreamingKernelPCA(1, kernel=RBF(1.0)).fit([[0.0], [1.0]])
    >>> (answers,) = answer_batches(model, [pa.record_batch({"pump": ["A", "B"], "load": [0.0, 30.0]})], n_kept=1)
    >>> answers.schema.names, answers["novelty"].to_numpy().round(3)
    (['pump', 'novelty', 'streamingkernelpca0'], array([   0.   , 1681.855]))
    """
    pyarrow = _pyarrow()
    names = ["novelty", *model.get_feature_names_out().tolist()]
    for batch in batches:
        rows = _rows(batch.columns[n_kept:])
        answers, usable = np.full((len(rows), len(names)), np.nan), answered_rows(rows, model)
        if usable.any():
            answers[usable, 0] = model.novelty(rows[usable])
            answers[usable, 1:] = model.transform(rows[usable])
        columns = [pyarrow.array(column, mask=~usable) for column in answers.T]
        yield pyarrow.RecordBatch.from_arrays(
            [*batch.columns[:n_kept], *columns], [*batch.schema.names[:n_kept], *names]
        )


def score_by_key(
    template: StreamingKernelPCA,
    frame: Any,
    key: str | Sequence[str],
    *,
    keep: Sequence[str] = (),
    order_by: str | None = None,
) -> Any:
    """Keep one model for each key of a structured stream: rows are scored first, and then learned.

    Parameters
    ----------
    template : StreamingKernelPCA
        Its parameters are those of every model. If it has learned rows, every model begins with its kernel and its
        atoms, and counts none of its rows. Otherwise every model settles a width of its own.
    frame : pyspark.sql.DataFrame
        A structured stream. The features are the template's if it knows their names, and otherwise all columns but
        those named here.
    key : str or sequence of str
        The column whose values have a model each, or several columns.
    keep : sequence of str, default=()
        Columns to keep beside the answers.
    order_by : str, optional
        The column that gives the order of the rows of a key within a micro-batch. Without it, rows come in the order in
        which Spark's shuffle brings them.

    Returns
    -------
    pyspark.sql.DataFrame
        A stream for the output mode "append": key, kept columns, ``novelty``, and ``n_learned``, the number of rows
        that the model had learned. ``novelty`` is null while that is 0, and for rows that the model leaves out when it
        learns (`on_bad_rows`, `on_missing`).

    Raises
    ------
    ImportError
        pyspark is not installed.
    TypeError, ValueError
        The template is no StreamingKernelPCA, or columns are missing, not numeric or named like an answer.

    Notes
    -----
    Built on `applyInPandasWithState`. The state of a key is the checkpoint of its model, which Spark writes after every
    micro-batch in which the key occurs: use few atoms and ``reservoir_size=0``. Rows of a micro-batch are all scored by
    the model that the micro-batches before it left. Spark repeats a micro-batch that failed from the same states; with
    `order_by` the scores are then the same.

    See Also
    --------
    streamkpca.ModelBank : The same in one process.

    Examples
    --------
    >>> from streamkpca import StreamingKernelPCA
    >>> from streamkpca.adapters import for_spark
    >>> template = StreamingKernelPCA(2, max_atoms=16, reservoir_size=0)
    >>> stream = spark.readStream.format("rate").load().selectExpr(  # doctest: +SKIP
    ...     "value % 3 AS pump", "timestamp AS time", "sin(value) AS load"
    ... )
    >>> scores = for_spark.score_by_key(template, stream, "pump", keep=["time"], order_by="time")  # doctest: +SKIP
    >>> scores.columns, scores.isStreaming  # doctest: +SKIP
    (['pump', 'time', 'novelty', 'n_learned'], True)
    """
    functions, types = _spark()
    where = "for_spark.score_by_key"
    check_template(template, where)
    keys, order = [key] if isinstance(key, str) else list(key), [] if order_by is None else [order_by]
    kept = [name for name in keep if name not in keys]
    _require_columns(frame, [*keys, *kept, *order], where)
    if taken := [name for name in (*keys, *kept) if name in ("novelty", "n_learned")]:
        raise ValueError(f"{where}: the columns {', '.join(taken)} are named like answers; rename them")
    names = _features_of(template, frame, [*keys, *kept, *order], where)
    features = _as_numbers(names, frame, functions, types, where)
    given, n_given = [*keys, *kept, *order], len(keys) + len(kept)
    rows = frame.select([*_others(given, functions), *features])
    fields = rows.schema.fields[:n_given]
    fields += [types.StructField("novelty", types.DoubleType()), types.StructField("n_learned", types.LongType())]
    score = partial(
        _score_group,
        # A stream may run for months; the template may learn more rows meanwhile.
        template=template.without_rows(),
        names=names,
        n_given=n_given,
        order=None if order_by is None else n_given,
    )
    grouped = rows.groupBy(rows.columns[: len(keys)])
    scores = grouped.applyInPandasWithState(score, types.StructType(fields), "model binary", "append", "NoTimeout")
    return scores.toDF(*keys, *kept, "novelty", "n_learned")


def _learn_partition(
    batches: Iterable["pa.RecordBatch"], *, empty: bytes, kernel: Kernel, names: list[str], number: int | None = None
) -> Iterator["pa.RecordBatch"]:
    """Learn a partition, with a column of weights if there are more columns than names; yields number and state."""
    if number is None:
        from pyspark import TaskContext

        number = TaskContext.get().partitionId()
    state, n_rows = Aggregate.from_bytes(empty, kernel=kernel), 0
    for batch in batches:
        n_rows += batch.num_rows
        values = _rows(batch.columns)
        state.add(NamedRows(names, values[:, : len(names)]), values[:, -1] if values.shape[1] > len(names) else None)
    # The driver would receive megabytes for each partition without rows.
    if n_rows:
        yield _state_batch(number, state.to_bytes())


def _merge_neighbours(table: "pa.Table", *, split_every: int, kernel: Kernel) -> "pa.Table":
    """Merge the states of a group of neighbours, in their order."""
    found = sorted(table.to_pylist(), key=lambda row: int(row["number"]))
    number = found[0]["number"] // split_every
    return _pyarrow().Table.from_batches([_state_batch(number, merged([row["state"] for row in found], kernel))])


def _state_batch(number: int, state: bytes) -> "pa.RecordBatch":
    pyarrow = _pyarrow()
    columns = [pyarrow.array([number], pyarrow.int32()), pyarrow.array([state], pyarrow.binary())]
    return pyarrow.RecordBatch.from_arrays(columns, ["number", "state"])


def _score_group(
    key: tuple[Any, ...],
    tables: Iterable[Any],
    state: Any,
    *,
    template: StreamingKernelPCA,
    names: list[str],
    n_given: int,
    order: int | None,
) -> Iterator[Any]:
    """Score the rows of a key in a micro-batch, and let its model learn them; yields one table of pandas."""
    del key
    # pandas is Spark's to import: the tables are of its class.
    parts = [table for table in tables if len(table)]
    if not parts:
        return
    n_columns = parts[0].shape[1]
    columns = [np.concatenate([part.iloc[:, place].to_numpy() for part in parts]) for place in range(n_columns)]
    if order is not None:
        # Sorting stably makes rows of one time keep the order in which they came.
        places = np.argsort(columns[order], kind="stable")
        columns = [column[places] for column in columns]
    rows = np.column_stack(columns[-len(names) :]).astype(np.float64)
    if state.exists:
        model = StreamingKernelPCA.from_bytes(bytes(state.get[0]), kernel=template.kernel_to_load_with)
    else:
        model = copy.deepcopy(template)
    n_learned = 0 if getattr(model, "state_", None) is None else model.n_samples_seen_ - model.n_rows_rejected_
    novelty, usable = np.full(len(rows), np.nan), answered_rows(rows, model)
    if n_learned and usable.any():
        novelty[usable] = model.novelty(rows[usable])
    state.update((model.partial_fit(NamedRows(names, rows)).to_bytes(),))
    answers = dict(zip(parts[0].columns[:n_given], columns[:n_given], strict=True))
    yield type(parts[0])(answers | {"novelty": novelty, "n_learned": n_learned})


def _rows(columns: Sequence["pa.Array"]) -> Array:
    """Copy columns into rows; missing values become NaN."""
    return np.column_stack([column.to_numpy(zero_copy_only=False) for column in columns]).astype(np.float64, copy=False)


def _features_of(model: Any, frame: Any, others: Sequence[str], where: str) -> list[str]:
    """Return the columns that are a model's features; `others` are none, unless the model names them."""
    if hasattr(model, "feature_names_in_"):
        names: list[str] = model.feature_names_in_.tolist()
        _require_columns(frame, names, where)
        return names
    names = _some([name for name in frame.columns if name not in others], where)
    expected = getattr(model, "n_features_in_", None)
    if expected is not None and len(names) != expected:
        raise ValueError(
            f"{where} expected {expected} features but got {len(names)} columns: {', '.join(names)}; select the "
            "features, and name the other columns"
        )
    return names


def _some(names: list[str], where: str) -> list[str]:
    if not names:
        raise ValueError(f"{where}: found no columns that are features; select at least 1 column of numbers")
    return names


def _require_columns(frame: Any, names: Sequence[str], where: str) -> None:
    if missing := [name for name in names if name not in frame.columns]:
        raise ValueError(
            f"{where} expected the column {missing[0]} but got {', '.join(frame.columns)}; check the name, or add it"
        )


def _as_numbers(names: Sequence[str], frame: Any, functions: Any, types: Any, where: str) -> list[Any]:
    """Return columns as doubles; TypeError if one is not numeric."""
    for name in names:
        found = frame.schema[name].dataType
        if not isinstance(found, types.NumericType | types.BooleanType):
            raise TypeError(
                f"{where} expected columns of numbers but got {name} ({found.simpleString()}); encode it, or leave it "
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
        raise ImportError(
            f'streamkpca.adapters.for_spark needs {error.name}; pip install "streamkpca[spark]"'
        ) from error
    return functions, types


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise ImportError(f'Arrow batches need {error.name}; pip install "streamkpca[arrow]"') from error
    return pyarrow
