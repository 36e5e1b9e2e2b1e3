"""Rows with gaps in the adapters: learned and answered as `StreamingKernelPCA` does, if the model takes them."""

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from streamkpca import StreamingKernelPCA
from streamkpca.adapters import for_dask, for_ray, for_spark
from streamkpca.adapters.for_river import KernelPCADetector, KernelPCATransformer
from streamkpca.adapters.runs import answered_rows, template_of, usable_rows
from streamkpca.aggregate import Aggregate
from streamkpca.kernels import RBF

RANDOM = np.random.default_rng(11)
ANGLES = RANDOM.uniform(0.0, 2.0 * np.pi, 900)
WHOLE = np.column_stack([np.cos(ANGLES), np.sin(ANGLES), RANDOM.normal(size=900)])
GAPPED = np.where(RANDOM.random(WHOLE.shape) < 0.1, np.nan, WHOLE)
GAPPED[0], GAPPED[5] = WHOLE[0], np.nan
N_EMPTY = int(np.isnan(GAPPED).all(axis=1).sum())
NAMES = ["a", "b", "c"]
SMALL = {"max_atoms": 16, "block_size": 32}
GAPS = SMALL | {"on_missing": "marginal"}
FRAME = pd.DataFrame(GAPPED, columns=NAMES)
# The three ways in which a dict of River can lack a number.
LACKING = [
    {name: value for name, value in zip(NAMES, row, strict=True) if not np.isnan(value)} if i % 3 == 0
    else {name: None if np.isnan(value) and i % 3 == 1 else value for name, value in zip(NAMES, row, strict=True)}
    for i, row in enumerate(GAPPED.tolist())
]  # fmt: skip


def river(adapter, **options):
    model = adapter(**(GAPS | {"kernel": RBF(0.5)} | options))
    # The first row sets the features.
    model.learn_one(dict(zip(NAMES, WHOLE[0], strict=True)))
    return model


def test_river_takes_gaps_one_by_one_and_in_batches():
    one, many = river(KernelPCADetector), river(KernelPCADetector)
    for x in LACKING:
        one.learn_one(x)
    many.learn_many(FRAME)
    assert one.kernel_pca.to_bytes() == many.kernel_pca.to_bytes()
    assert one.kernel_pca.n_rows_rejected_ == N_EMPTY
    scores = many.score_many(FRAME)
    np.testing.assert_allclose([one.score_one(x) for x in LACKING[:60]], scores[:60], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(scores, one.kernel_pca.novelty(GAPPED), rtol=1e-9, atol=1e-12)
    parts = one.explain_one({"a": 3.0, "b": None})
    assert parts["b"] == parts["c"] == 0.0 < parts["a"]
    without = FRAME[["a", "c"]]
    np.testing.assert_array_equal(many.score_many(without), many.score_many(without.assign(b=np.nan)))
    assert np.isfinite(many.score_many(pd.DataFrame({"other": [1.0]}))).all()


def test_river_transforms_rows_with_gaps():
    model = river(KernelPCATransformer, n_components=2)
    model.learn_many(FRAME)
    found = pd.DataFrame([model.transform_one(x) for x in LACKING[:60]])
    np.testing.assert_allclose(found, model.transform_many(FRAME[:60]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found, model.kernel_pca.transform(GAPPED[:60]), rtol=1e-9, atol=1e-12)


def test_river_leaves_gaps_out_when_learning_only():
    model = river(KernelPCADetector, on_missing="skip")
    for x in LACKING[1::3]:
        model.learn_one(x)
    assert model.kernel_pca.n_rows_rejected_ == np.isnan(GAPPED[1::3]).any(axis=1).sum()
    with pytest.raises(ValueError, match="X contains NaN"):
        model.score_one({"a": None, "b": 0.0, "c": 0.0})
    assert model.score_one({"b": 0.0, "c": 0.0}) == model.score_one({"a": 0.0, "b": 0.0, "c": 0.0})


def test_river_refuses_to_begin_with_gaps_within_a_stream():
    model = river(KernelPCADetector, on_missing="raise")
    with pytest.raises(TypeError, match="feature 'a' is None"):
        model.learn_one({"a": None, "b": 0.0, "c": 0.0})
    with pytest.raises(ValueError, match=r"KernelPCADetector.mutate: on_missing='marginal' is not how"):
        model.mutate({"on_missing": "marginal"})
    model.mutate({"on_missing": "skip"})
    model.learn_one({"a": None, "b": 0.0, "c": 0.0})
    assert model.kernel_pca.n_rows_rejected_ == 1


def test_the_first_rows_of_a_run_are_those_with_a_number():
    rows = np.array([[np.nan, np.nan], [1.0, np.nan], [np.nan, np.inf], [2.0, 3.0], [4.0, 5.0]])
    model = StreamingKernelPCA(1, on_missing="marginal", on_bad_rows="skip")
    np.testing.assert_array_equal(usable_rows(rows, None, model, 2, "fit")[0], rows[[1, 3]])
    model.set_params(on_missing="skip")
    np.testing.assert_array_equal(usable_rows(rows, None, model, 2, "fit")[0], rows[[3, 4]])
    with pytest.raises(ValueError, match="fit: X contains infinity"):
        usable_rows(rows, None, model.set_params(on_bad_rows="raise"), 2, "fit")


def test_templates_of_runs_carry_what_becomes_of_gaps():
    model = StreamingKernelPCA(2, **GAPS)
    template = template_of(model, [usable_rows(GAPPED, None, model, 900, "fit")], "fit")
    assert template.on_missing == "marginal"
    assert template.kernel.is_settled
    assert Aggregate.from_bytes(Aggregate(template).to_bytes()).add(GAPPED).finish().on_missing == "marginal"


@pytest.mark.parametrize("kernel", ["rbf", RBF(0.5)])
def test_dask_learns_and_answers_rows_with_gaps(kernel):
    collections = [
        da.from_array(GAPPED, chunks=(300, 3)),
        dd.from_pandas(FRAME, npartitions=3),
        db.from_sequence(LACKING, npartitions=3),
    ]
    models = [for_dask.StreamingKernelPCA(2, **GAPS, kernel=kernel).fit(X, n_streams=2) for X in collections]
    for model, X in zip(models, collections, strict=True):
        assert model.n_samples_seen_ == len(GAPPED)
        assert model.n_rows_rejected_ == N_EMPTY
        np.testing.assert_array_equal(model.eigenvalues_, models[0].eigenvalues_)
        scores = np.asarray(model.novelty(X).compute())
        np.testing.assert_allclose(scores, StreamingKernelPCA.novelty(model, FRAME), rtol=1e-6, atol=1e-9)
    completed = models[1].impute(collections[1]).compute()
    assert completed.columns.tolist() == NAMES
    np.testing.assert_allclose(completed, models[1].impute(FRAME), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(completed.to_numpy()[~np.isnan(GAPPED)], GAPPED[~np.isnan(GAPPED)])


def test_dask_leaves_rows_with_gaps_out():
    model = for_dask.StreamingKernelPCA(2, **SMALL, on_missing="skip").fit(da.from_array(GAPPED, chunks=(300, 3)))
    assert model.n_rows_rejected_ == np.isnan(GAPPED).any(axis=1).sum()


@pytest.mark.parametrize(
    ("on_bad_rows", "on_missing", "asked"),
    [
        ("raise", "raise", [True, True, True]),
        ("skip", "raise", [True, False, False]),
        ("raise", "skip", [True, False, True]),
        ("skip", "skip", [True, False, False]),
        ("raise", "marginal", [True, True, True]),
        ("skip", "marginal", [True, True, False]),
    ],
)
def test_rows_that_are_left_out_of_learning_are_not_asked_about(on_bad_rows, on_missing, asked):
    rows = np.array([[0.0, 1.0], [0.0, np.nan], [0.0, np.inf]])
    model = StreamingKernelPCA(on_bad_rows=on_bad_rows, on_missing=on_missing)
    assert answered_rows(rows, model).tolist() == asked


def test_ray_and_spark_answer_rows_with_gaps():
    model = StreamingKernelPCA(2, **GAPS).partial_fit(FRAME)
    found = for_ray.transform(model, dict(FRAME.items()))
    np.testing.assert_allclose(found["novelty"], model.novelty(FRAME), rtol=1e-9, atol=1e-12)
    batch = pa.RecordBatch.from_pandas(FRAME)
    (answers,) = for_spark.answer_batches(model, [batch])
    np.testing.assert_allclose(answers.column("novelty"), model.novelty(FRAME), rtol=1e-9, atol=1e-12)
