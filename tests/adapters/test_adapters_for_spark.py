"""Spark: the functions on Arrow batches, and real jobs on two cores where pyspark and Java are installed.

The oracle of a fit is the same partitions in this process.
"""

import doctest
import inspect
import os
import shutil
import sys

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="Spark passes Arrow batches; needs the extra arrow")
pytest.importorskip("pandas", reason="partitions are tables of pandas; needs the extra pandas")

import pandas as pd
import pyarrow

from streamkpca import KernelPCA, StreamingKernelPCA
from streamkpca.adapters import for_spark, partition
from streamkpca.adapters.partition import begin, merge
from streamkpca.errors import NotFittedError

X = np.random.default_rng(0).normal(size=(900, 3))
NAMES = ["load", "heat.in", "fl`ow"]
SMALL = {"n_components": 2, "max_atoms": 8, "block_size": 64}
LONG = np.random.default_rng(1).normal(size=(7000, 3))
# A pyspark that is too new for the pandas here says so whenever it imports it.
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


def batches(rows, size=70):
    """Cut a partition as Spark does."""
    for start in range(0, len(rows), size):
        yield pyarrow.record_batch(list(rows[start : start + size].T), names=[f"feature_{i}" for i in range(3)])


def named(rows):
    return pd.DataFrame(rows, columns=NAMES)


def learned(rows, empty, number=0, size=70):
    found = for_spark._learn_partition(batches(rows, size), empty=empty, names=NAMES, number=number)
    return pyarrow.Table.from_batches(found, pyarrow.schema({"number": pyarrow.int32(), "state": pyarrow.binary()}))


def in_process(parts, weights=None, **parameters):
    """Fit the same partitions without Spark, eight neighbours at a time."""
    weights = np.ones(sum(map(len, parts))) if weights is None else weights
    counts = np.split(weights, np.cumsum([len(part) for part in parts])[:-1])
    tables = [named(part).assign(count=count) for part, count in zip(parts, counts, strict=True)]
    empty = begin(StreamingKernelPCA(**(SMALL | parameters)), tables, "count")
    states = {number: partition.learn(empty, table, "count") for number, table in enumerate(tables) if len(table)}
    while max(states) >= 8:
        groups = {}
        for number in sorted(states):
            groups.setdefault(number // 8, []).append(states[number])
        states = {number: merge(group) for number, group in groups.items()}
    return merge([states[number] for number in sorted(states)]).finish()


def test_states_of_partitions_do_not_depend_on_batches_or_on_the_order_of_the_shuffle():
    empty = begin(StreamingKernelPCA(**SMALL), [named(X)], None)
    first, *others = (learned(X, empty, size=size) for size in (900, 70, 1))
    assert all(other.equals(first) for other in others)
    parts = [X[:100], X[100:100], X[100:180], X[180:200]]
    tables = [learned(part, empty, number) for number, part in enumerate(parts, 16)]
    assert [table.num_rows for table in tables] == [1, 0, 1, 1]
    whole = for_spark._merge_neighbours(pyarrow.concat_tables(tables[::-1]), kernel=empty.kernel_)
    assert whole["number"].to_pylist() == [2]
    expected = merge([partition.learn(empty, named(part)) for part in parts])
    assert whole["state"][0].as_py() == expected.to_bytes()


def test_answers_stand_beside_kept_columns():
    model = StreamingKernelPCA(**SMALL, missing="skip").partial_fit(X)
    given = pyarrow.record_batch(
        {"id": ["a", "b", None], "x": [1.0, None, 3.0], "y": [1, 2, 3], "z": [0.5, 0.5, np.inf]}
    )
    (found,) = for_spark._answer_batches([given], model=model, features=["x", "y", "z"])
    assert found.schema.names == ["id", "novelty", "streamingkernelpca0", "streamingkernelpca1"]
    assert found["id"].to_pylist() == ["a", "b", None]
    row = np.array([[1.0, 1.0, 0.5]])
    assert found["novelty"].to_pylist() == [model.novelty(row)[0], None, None]
    assert found["streamingkernelpca1"].to_pylist() == [model.transform(row)[0, 1], None, None]


def test_without_spark_the_error_names_the_extra(monkeypatch):
    model = StreamingKernelPCA(1).partial_fit([[1.0], [2.0]])
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    for call in (for_spark.fit, for_spark.transform):
        with pytest.raises(
            ImportError, match=rf"^for_spark.{call.__name__}: pyspark.sql is not installed; pip install"
        ):
            call(model, None)


# Real jobs


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    pyspark = pytest.importorskip("pyspark", reason="real jobs of Spark; needs the extra spark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("real jobs of Spark need Java 17 or later")
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder),
            "spark.local.dir": str(folder),
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "300",
        }
        # Two cores; a task may fail twice.
        builder = SparkSession.builder.master("local[2,3]").appName("tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
        assert pyspark.SparkContext._active_spark_context is None


def framed(spark, parts, names=NAMES):
    """Make a DataFrame of given partitions."""
    lists = [[tuple(map(float, row)) for row in part] for part in parts]
    shares = spark.sparkContext.parallelize(range(len(parts)), len(parts)).flatMap(lambda number: lists[number])
    return spark.createDataFrame(shares, ", ".join(f"`{name.replace('`', '``')}` double" for name in names))


@pytest.mark.slow
def test_a_fit_is_that_of_the_same_partitions_in_process(spark):
    # Eleven partitions are merged on the executors once, and then by the driver.
    parts = np.split(LONG, [0, 10, 2500, 2500, 2600, 3000, 4000, 5000, 6000, 6999])
    model, frame = StreamingKernelPCA(**SMALL), framed(spark, parts)
    found = for_spark.fit(model, frame)
    assert found.to_bytes() == in_process(parts).to_bytes()
    assert found.n_samples_seen_ == 7000
    assert found.feature_names_in_.tolist() == NAMES
    assert not hasattr(model, "n_features_in_")


@pytest.mark.slow
def test_weights_and_bad_rows_are_as_in_memory(spark):
    rows, weights = LONG[:2000].copy(), np.ones(2000)
    rows[[0, 700, 1500], [0, 1, 2]] = np.nan, np.inf, np.nan
    weights[:300], weights[1000:] = 0.0, 0.25
    parts = np.split(np.column_stack([rows, weights]), [900, 1200])
    frame, skips = framed(spark, parts, [*NAMES, "count"]), StreamingKernelPCA(**SMALL, missing="skip")
    found = for_spark.fit(skips, frame, weight_column="count")
    expected = in_process([part[:, :3] for part in parts], weights=weights, missing="skip")
    assert found.to_bytes() == expected.to_bytes()
    assert found.n_rows_rejected_ == 3
    with pytest.raises(ValueError, match="infinity"):
        for_spark.fit(StreamingKernelPCA(**SMALL), frame, weight_column="count")

    answers = for_spark.transform(found, frame, keep=["count", "heat.in"]).collect()
    assert answers[0].asDict().keys() == {"count", "heat.in", "novelty", "streamingkernelpca0", "streamingkernelpca1"}
    usable = np.isfinite(rows).all(axis=1)
    np.testing.assert_array_equal([row["novelty"] is not None for row in answers], usable)
    # Matrix products over batches of other sizes round differently.
    given = [row["novelty"] for row in answers if row["novelty"] is not None]
    np.testing.assert_allclose(given, found.novelty(rows[usable]), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_nulls_decimals_and_few_rows_are_numbers(spark):
    given = spark.createDataFrame([(1, True), (None, False), (3, True)], "load int, on boolean")
    frame = given.selectExpr("CAST(load AS decimal(9, 2)) AS load", "on").repartition(5)
    model = for_spark.fit(StreamingKernelPCA(1, missing="skip"), frame)
    assert (model.n_samples_seen_, model.n_rows_rejected_) == (3, 1)
    np.testing.assert_array_equal(np.sort(model.atoms_, axis=0), [[1.0, 1.0], [3.0, 1.0]])


def test_invalid_frames_are_refused_before_a_job_runs(spark):
    frame = spark.createDataFrame([(1.0, "high")], "load double, level string").selectExpr(
        "CAST(raise_error('a job ran') AS string) AS level", "CAST(raise_error('a job ran') AS double) AS load"
    )
    model, numbers = StreamingKernelPCA(1), frame.drop("level")
    for error, message, call in (
        (TypeError, r"of numbers but got level \(string\); encode it", lambda: for_spark.fit(model, frame)),
        (TypeError, "expected a StreamingKernelPCA but got KernelPCA", lambda: for_spark.fit(KernelPCA(), numbers)),
        (ValueError, "the column count but", lambda: for_spark.fit(model, numbers, weight_column="count")),
        (ValueError, "n_components", lambda: for_spark.fit(StreamingKernelPCA(0), numbers)),
        (NotFittedError, "needs a fitted StreamingKernelPCA", lambda: for_spark.transform(model, numbers)),
    ):
        with pytest.raises(error, match=message):
            call()
    for template in (model, StreamingKernelPCA(1).partial_fit([[1.0], [2.0]])):
        with pytest.raises(ValueError, match=r"found (0|no) rows to learn from"):
            for_spark.fit(template, spark.createDataFrame([], "load double"))


@pytest.mark.slow
def test_the_examples_run(spark):
    """Those of the documentation that doctest skips, as they need Spark."""
    examples = "\n\n".join(map(inspect.getdoc, (for_spark.fit, for_spark.transform)))
    test = doctest.DocTestParser().get_doctest(examples, {}, "for_spark", None, None)
    assert sum(bool(example.options.pop(doctest.SKIP, False)) for example in test.examples) == 10
    assert doctest.DocTestRunner().run(test).failed == 0
