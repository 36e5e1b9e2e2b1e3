"""Spark: the functions on Arrow batches and tables, and real jobs on two cores where pyspark and Java are installed.

The oracle of a fit is the same partitions as states of `Aggregate` in this process.
"""

import doctest
import os
import shutil
import sys
import time

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="Spark passes Arrow batches; needs the extra arrow")
pytest.importorskip("pandas", reason="Spark's structured streams pass pandas tables; needs the extra pandas")

import pandas as pd
import pyarrow

from streamkpca import KernelPCA, NotFittedError, StreamingKernelPCA, kernels
from streamkpca.adapters import for_spark
from streamkpca.adapters.runs import NamedRows, rows_to_begin_with
from streamkpca.aggregate import Aggregate

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


def learned(rows, empty, number=0, size=70):
    found = for_spark._learn_partition(
        batches(rows, size), empty=empty.to_bytes(), kernel=empty.kernel_, names=NAMES, number=number
    )
    return pyarrow.Table.from_batches(found, pyarrow.schema({"number": pyarrow.int32(), "state": pyarrow.binary()}))


def tree(states, split_every):
    """Merge neighbours in process, in the order of the partitions: a dict from their numbers to states."""
    while max(states) >= split_every:
        groups = {}
        for number in sorted(states):
            groups.setdefault(number // split_every, []).append(states[number])
        states = {number: first.merge(*others) for number, (first, *others) in groups.items()}
    first, *others = (states[number] for number in sorted(states))
    return first.merge(*others).finish()


def in_process(parts, split_every=8, weights=None, **parameters):
    """Fit the same partitions without Spark."""
    template, rows = StreamingKernelPCA(**(SMALL | parameters)), np.concatenate(parts)
    count = rows_to_begin_with(template)
    weights = np.ones(len(rows)) if weights is None else weights
    usable = np.flatnonzero((weights > 0.0) & np.isfinite(rows).all(axis=1))[:count]
    empty = Aggregate(template.partial_fit(NamedRows(NAMES, rows[usable]), sample_weight=weights[usable]))
    counts = np.split(weights, np.cumsum([len(part) for part in parts])[:-1])
    states = {
        number: empty.zero().add(NamedRows(NAMES, part), count)
        for number, (part, count) in enumerate(zip(parts, counts, strict=True))
        if len(part)
    }
    return tree(states, split_every)


def test_states_of_partitions_make_the_model_of_all_rows():
    exact = {"max_atoms": None, "tolerance": 0.0, "block_size": 16, "kernel": kernels.RBF(0.4)}
    empty = Aggregate(StreamingKernelPCA(3, **exact).partial_fit(NamedRows(NAMES, X[:16])))
    parts = [X[:100], X[100:100], X[100:180], X[180:200]]
    tables = [learned(part, empty, number) for number, part in enumerate(parts)]
    assert [table.num_rows for table in tables] == [1, 0, 1, 1]
    # Spark's shuffle brings the states of a group in any order.
    whole = for_spark._merge_neighbours(pyarrow.concat_tables(tables[::-1]), split_every=4, kernel=empty.kernel_)
    assert whole["number"].to_pylist() == [0]
    model = Aggregate.from_bytes(whole["state"][0].as_py()).finish()
    batch = KernelPCA(3, kernel=kernels.RBF(0.4)).fit(X[:200])
    np.testing.assert_allclose(model.eigenvalues_, batch.eigenvalues_, rtol=0, atol=1e-8)
    assert model.feature_names_in_.tolist() == NAMES
    assert model.n_samples_seen_ == 200
    assert (
        model.to_bytes() == tree({i: empty.zero().add(NamedRows(NAMES, p)) for i, p in enumerate(parts)}, 4).to_bytes()
    )


def test_batch_sizes_do_not_change_a_state():
    empty = Aggregate(StreamingKernelPCA(**SMALL, kernel=kernels.RBF(0.3)))
    first, *others = (learned(X, empty, size=size) for size in (900, 70, 1))
    assert all(other.equals(first) for other in others)


def test_answers_stand_beside_kept_columns():
    model = StreamingKernelPCA(**SMALL, on_bad_rows="skip").partial_fit(X)
    given = pyarrow.record_batch(
        {"id": ["a", "b", None], "x": [1.0, None, 3.0], "y": [1, 2, 3], "z": [0.5, 0.5, np.inf]}
    )
    (found,) = for_spark.answer_batches(model, [given], n_kept=1)
    assert found.schema.names == ["id", "novelty", "streamingkernelpca0", "streamingkernelpca1"]
    assert found["id"].to_pylist() == ["a", "b", None]
    row = np.array([[1.0, 1.0, 0.5]])
    assert found["novelty"].to_pylist() == [model.novelty(row)[0], None, None]
    assert found["streamingkernelpca1"].to_pylist() == [model.transform(row)[0, 1], None, None]
    with pytest.raises(ValueError, match="NaN"):
        list(for_spark.answer_batches(model.set_params(on_bad_rows="raise"), [given], n_kept=1))
    assert [batch.num_rows for batch in for_spark.answer_batches(model, batches(X[:0]))] == []


class State:
    """The state of a key, as Spark passes it."""

    exists = False

    def update(self, values):
        self.exists, self.get = True, values


@pytest.mark.parametrize("is_warm", [False, True])
def test_keys_are_scored_first_and_then_learned(is_warm):
    rows = X.copy()
    rows[150, 1] = np.nan
    template = StreamingKernelPCA(**SMALL, on_bad_rows="skip")
    template = template.partial_fit(NamedRows(NAMES, LONG[:600])).without_rows() if is_warm else template
    state, model, order = State(), template, np.random.default_rng(0).permutation(100)
    for start in (0, 100, 200):
        part = rows[start : start + 100]
        table = pd.DataFrame({"other_0": "pump", "other_1": range(100), **dict(zip("abc", part.T, strict=True))})
        mixed = table.iloc[order]
        options = {"template": template, "names": NAMES, "n_given": 1, "order": 1}
        (found,) = for_spark._score_group(("pump",), iter([mixed[:30], mixed[30:30], mixed[30:]]), state, **options)
        assert list(found.columns) == ["other_0", "novelty", "n_learned"]
        usable = np.isfinite(part).all(axis=1)
        assert (found.n_learned == [0, 100, 199][start // 100]).all()
        expected = np.full(100, np.nan)
        if start:
            expected[usable] = model.novelty(part[usable])
        np.testing.assert_array_equal(found.novelty, expected)
        model = StreamingKernelPCA.from_bytes(model.to_bytes()) if start else template.without_rows()
        model.partial_fit(NamedRows(NAMES, part))
        assert state.get[0] == model.to_bytes()
    assert list(for_spark._score_group(("pump",), iter([]), state, **options)) == []


def test_missing_libraries_are_named_with_their_extras(monkeypatch):
    model = StreamingKernelPCA(1).partial_fit([[1.0], [2.0]])
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    for call in (for_spark.fit, for_spark.transform, lambda *both: for_spark.score_by_key(*both, "key")):
        with pytest.raises(ImportError, match=r'for_spark needs pyspark.*; pip install "streamkpca\[spark\]"'):
            call(model, None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'need pyarrow; pip install "streamkpca\[arrow\]"'):
        list(for_spark.answer_batches(model, []))


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


def same(model, other):
    assert model.to_bytes() == other.to_bytes()


@pytest.mark.slow
def test_a_fit_is_that_of_the_same_partitions_in_process(spark):
    # Eleven partitions in groups of three are merged on the executors twice.
    parts = np.split(LONG, [0, 10, 2500, 2500, 2600, 3000, 4000, 5000, 6000, 6999])
    model, frame = StreamingKernelPCA(**SMALL, half_life=3000.0), framed(spark, parts)
    found = for_spark.fit(model, frame, split_every=3)
    same(found, in_process(parts, 3, half_life=3000.0))
    assert found.n_samples_seen_ == 7000
    assert found.feature_names_in_.tolist() == NAMES
    assert not hasattr(model, "n_features_in_")


@pytest.mark.slow
def test_tasks_that_are_tried_again_change_nothing(spark, tmp_path, monkeypatch):
    flag, learn = tmp_path / "failed", for_spark._learn_partition

    def fails_once(given, **options):
        found = list(learn(given, **options))
        if found and not flag.exists():
            flag.touch()
            raise OSError("a disk that failed")
        return iter(found)

    monkeypatch.setattr(for_spark, "_learn_partition", fails_once)
    parts = np.split(LONG[:3000], [1500, 2000])
    same(for_spark.fit(StreamingKernelPCA(**SMALL), framed(spark, parts)), in_process(parts))
    assert flag.exists()


@pytest.mark.slow
def test_weights_and_bad_rows_are_as_in_memory(spark):
    rows, weights = LONG[:2000].copy(), np.ones(2000)
    rows[[0, 700, 1500], [0, 1, 2]] = np.nan, np.inf, np.nan
    weights[5:600], weights[900:] = 0.0, 0.5
    parts = np.split(np.column_stack([rows, weights]), [1, 2, 800])
    frame = framed(spark, parts, [*NAMES, "count"])
    found = for_spark.fit(StreamingKernelPCA(**SMALL, on_bad_rows="skip"), frame, weight_column="count")
    same(found, in_process([part[:, :3] for part in parts], weights=weights, on_bad_rows="skip"))
    assert found.n_rows_rejected_ == 3
    with pytest.raises(ValueError, match="NaN"):
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
    model = for_spark.fit(StreamingKernelPCA(1, on_bad_rows="skip"), frame)
    assert (model.n_samples_seen_, model.n_rows_rejected_) == (3, 1)
    np.testing.assert_array_equal(np.sort(model.atoms_, axis=0), [[1.0, 1.0], [3.0, 1.0]])


def test_invalid_frames_are_refused_before_a_job_runs(spark):
    frame = spark.createDataFrame([(1.0, "high")], "load double, level string").selectExpr(
        "CAST(raise_error('a job ran') AS string) AS level", "CAST(raise_error('a job ran') AS double) AS load"
    )
    model, numbers = StreamingKernelPCA(1), frame.drop("level")
    fitted = StreamingKernelPCA(1).partial_fit([[1.0, 2.0], [2.0, 3.0]])
    named = StreamingKernelPCA(1).partial_fit(NamedRows(["heat"], X[:, :1]))
    for error, message, call in (
        (
            TypeError,
            r"expected columns of numbers but got level \(string\); encode it",
            lambda: for_spark.fit(model, frame),
        ),
        (TypeError, "expected a StreamingKernelPCA but got KernelPCA", lambda: for_spark.fit(KernelPCA(), numbers)),
        (
            ValueError,
            "expected the column count but got load",
            lambda: for_spark.fit(model, numbers, weight_column="count"),
        ),
        (ValueError, "found no columns that are", lambda: for_spark.fit(model, numbers, weight_column="load")),
        (ValueError, "split_every", lambda: for_spark.fit(model, numbers, split_every=1)),
        (ValueError, "n_components", lambda: for_spark.fit(StreamingKernelPCA(0), numbers)),
        (ValueError, "expected 2 features but got 1 columns: load", lambda: for_spark.transform(fitted, numbers)),
        (ValueError, "expected the column heat but got load", lambda: for_spark.transform(named, numbers)),
        (NotFittedError, "needs a fitted StreamingKernelPCA", lambda: for_spark.transform(model, numbers)),
        (
            ValueError,
            "the columns novelty are named like answers",
            lambda: for_spark.transform(named, numbers.selectExpr("load AS heat", "load AS novelty")),
        ),
        (ValueError, "expected the column pump but", lambda: for_spark.score_by_key(model, numbers, "pump")),
        (TypeError, "as the template but got KernelPCA", lambda: for_spark.score_by_key(KernelPCA(), numbers, "load")),
    ):
        with pytest.raises(error, match=message):
            call()
    empty = spark.createDataFrame([], "load double")
    with pytest.raises(ValueError, match=r"for_spark\.fit: found 0 rows to learn from"):
        for_spark.fit(model, empty)


@pytest.mark.slow
def test_a_structured_stream_keeps_a_model_for_each_key(spark, tmp_path):
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    rows = np.column_stack([np.arange(900) % 3, np.arange(900), X])
    for number, part in enumerate(np.split(rows, [300, 500])):
        table = pd.DataFrame(part, columns=["pump", "ti.me", "load", "heat", "flow"])
        # Spark reads files in the order of their times.
        path = source / f"{number}.csv"
        table.sample(frac=1.0, random_state=0).to_csv(path, index=False)
        os.utime(path, (time.time() - 100 + number,) * 2)
    schema = "pump double, `ti.me` double, load double, heat double, flow double"
    stream = spark.readStream.schema(schema).option("header", True).option("maxFilesPerTrigger", 1).csv(str(source))
    template = StreamingKernelPCA(**SMALL, reservoir_size=0).partial_fit(
        NamedRows(["load", "heat", "flow"], LONG[:600])
    )
    scores = for_spark.score_by_key(template, stream, "pump", keep=["ti.me"], order_by="ti.me")
    query = (
        scores.writeStream.format("memory").queryName("scores").outputMode("append")
        .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(300)
    rows = spark.table("scores").orderBy("`ti.me`").collect()
    found = pd.DataFrame([row.asDict() for row in rows])
    assert list(found.columns) == ["pump", "ti.me", "novelty", "n_learned"]
    expected, n_learned = np.full(900, np.nan), np.zeros(900)
    for pump in range(3):
        model = template.without_rows()
        for part in np.split(np.arange(900), [300, 500]):
            places = part[part % 3 == pump]
            if part[0]:
                expected[places], n_learned[places] = model.novelty(X[places]), model.n_samples_seen_
            model = StreamingKernelPCA.from_bytes(model.partial_fit(X[places]).to_bytes())
    np.testing.assert_array_equal(found["ti.me"], np.arange(900))
    np.testing.assert_array_equal(found.n_learned, n_learned)
    np.testing.assert_array_equal(found.novelty.astype(float), expected)


@pytest.mark.slow
def test_the_examples_run(spark):
    """Those of the documentation that doctest skips, as they need Spark."""
    count = 0
    for function in (for_spark.fit, for_spark.transform, for_spark.score_by_key):
        names = {"spark": spark}
        test = doctest.DocTestParser().get_doctest(function.__doc__, names, function.__name__, None, None)
        for example in test.examples:
            count += bool(example.options.pop(doctest.SKIP, False))
        assert doctest.DocTestRunner().run(test).failed == 0
    assert count == 9
