"""The recipe for Spark, with Arrow batches as Spark passes them; Spark itself is not needed."""

import sys

import numpy as np
import pytest

pytest.importorskip("pyarrow", reason="Spark passes Arrow batches; needs the extra arrow")

import pyarrow

from streamkpca import KernelPCA, StreamingKernelPCA, kernels
from streamkpca.adapters import for_spark, partitions

X = np.random.default_rng(0).normal(size=(900, 3))
EXACT = {"max_atoms": None, "tolerance": 0.0, "block_size": 16}


def batches(rows, size=70):
    """Cut a partition as Spark does."""
    for start in range(0, len(rows), size):
        yield pyarrow.record_batch(list(rows[start : start + size].T), names=["load", "heat", "flow"])


def map_in_arrow(function, parts):
    """Stand in for DataFrame.mapInArrow and collect."""
    return [row for part in parts for batch in function(batches(part)) for row in batch.to_pylist()]


def test_the_recipe_gives_the_model_of_all_rows():
    model = StreamingKernelPCA(3, **EXACT)
    template = partitions.template_of(model, X[:16])
    parts = [X[:100], X[100:100], X[100:180], X[180:200]]
    rows = map_in_arrow(lambda given: for_spark.summarise_batches(template, given), parts)
    summaries = [row["summary"] for row in rows]
    assert [type(summary) for summary in summaries] == [bytes] * 4
    whole = partitions.finish(model, template, partitions.merge_summaries(template, summaries))
    exact = KernelPCA(3, kernel=kernels.RBF().settled(X[:16])).fit(X[:200])
    np.testing.assert_allclose(whole.eigenvalues_, exact.eigenvalues_, rtol=0, atol=1e-8)
    assert whole.feature_names_in_.tolist() == ["load", "heat", "flow"]
    assert whole.n_samples_seen_ == 200

    scores = map_in_arrow(lambda given: for_spark.score_batches(whole, given), [X[:150], X[150:150], X[150:]])
    expected = StreamingKernelPCA.from_bytes(whole.to_bytes()).novelty(X)
    np.testing.assert_allclose([row["novelty"] for row in scores], expected, rtol=1e-9, atol=1e-12)


def test_batch_sizes_do_not_change_a_summary():
    template = partitions.template_of(StreamingKernelPCA(2, kernel=kernels.RBF(0.3), max_atoms=20, block_size=64))
    first, *others = (next(for_spark.summarise_batches(template, batches(X, size))) for size in (900, 70, 1))
    assert all(other.equals(first) for other in others)


def test_missing_values_are_refused_or_skipped_as_nan():
    batch = pyarrow.record_batch({"load": [1.0, None, 3.0], "heat": [1, 2, 3]})
    model = StreamingKernelPCA(2, kernel=kernels.RBF(0.3))
    with pytest.raises(ValueError, match="NaN"):
        list(for_spark.summarise_batches(partitions.template_of(model), [batch]))
    template = partitions.template_of(model.set_params(on_bad_rows="skip"))
    ((summary,),) = (b.to_pylist() for b in for_spark.summarise_batches(template, [batch]))
    assert partitions.finish(model, template, summary["summary"]).n_rows_rejected_ == 1
    text = pyarrow.record_batch({"load": ["high"], "heat": [1.0]})
    with pytest.raises(TypeError, match="encode or drop what is not numeric"):
        list(for_spark.summarise_batches(template, [text]))


def test_without_pyarrow_the_error_names_an_extra(monkeypatch):
    template = partitions.template_of(StreamingKernelPCA(kernel="linear"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'need pyarrow; pip install "streamkpca\[arrow\]"'):
        list(for_spark.summarise_batches(template, []))
