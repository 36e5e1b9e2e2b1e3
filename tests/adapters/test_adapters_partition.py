"""What engines do with partitions: pure functions, whose oracle is `Aggregate` and the model itself."""

import numpy as np
import pandas as pd
import pytest

from streamkpca import KernelPCA, StreamingKernelPCA
from streamkpca.adapters.partition import (
    FIRST_ROWS,
    answer,
    answers,
    begin,
    features_of,
    first_rows,
    learn,
    select_answered,
    split,
)
from streamkpca.aggregate import Aggregate
from streamkpca.kernels import RBF

NAMES = ["load", "heat", "flow"]
X = np.random.default_rng(0).normal(size=(900, 3))
FRAME = pd.DataFrame(X, columns=NAMES)
SMALL = {"n_components": 2, "max_atoms": 8, "block_size": 64}


@pytest.mark.parametrize("weight_column", ["heat", 1])
def test_weights_are_a_column(weight_column):
    rows, weights = split(FRAME if weight_column == "heat" else X, weight_column)
    np.testing.assert_array_equal(rows, X[:, [0, 2]])
    np.testing.assert_array_equal(weights, X[:, 1])
    part = np.abs(FRAME if weight_column == "heat" else X)
    expected = Aggregate(StreamingKernelPCA(**SMALL, kernel=RBF(0.3)))
    state = learn(expected, part, weight_column)
    assert state.finish().total_weight_ == pytest.approx(np.abs(X[:, 1]).sum())


def test_a_fit_begins_with_the_first_rows_or_with_those_of_the_template():
    parts = [FRAME[:0], FRAME[:300], FRAME[300:]]
    cold = StreamingKernelPCA(**SMALL)
    known = cold.without_rows().partial_fit(FRAME)
    assert begin(cold, parts, None).to_bytes() == Aggregate(known).to_bytes()
    assert not hasattr(cold, "n_features_in_")
    refuses = (part for part in [1 / 0 for _ in ()])
    assert begin(known, refuses, None).to_bytes() == Aggregate(known).to_bytes()
    enough = iter([np.tile(X, (12, 1)), "not read"])
    assert begin(cold, enough, None).n_rows_ == 0
    assert next(enough) == "not read"
    for nothing in ([], [FRAME[:0]], [FRAME.assign(heat=0.0)]):
        with pytest.raises(ValueError, match=r"found 0 rows to learn from; pass .* among the first 10,240, or a te"):
            begin(cold, nothing, "heat")
    with pytest.raises(TypeError, match="expected a StreamingKernelPCA but got KernelPCA"):
        begin(KernelPCA(), parts, None)


def test_first_rows_are_those_that_settle_the_scale():
    rows = np.array([[np.nan, np.nan], [1.0, np.nan], [np.nan, np.inf], [2.0, 3.0], [4.0, 0.0]])
    model = StreamingKernelPCA(1, missing="marginal")
    np.testing.assert_array_equal(first_rows(rows, model, None), rows[[1, 3, 4]])
    model.set_params(missing="skip")
    np.testing.assert_array_equal(first_rows(rows, model, None), rows[[3, 4]])
    np.testing.assert_array_equal(first_rows(rows, model, 1), rows[[3]])
    assert len(first_rows(np.zeros((FIRST_ROWS + 5, 1)), model, None)) == FIRST_ROWS


@pytest.mark.parametrize(
    ("missing", "asked"),
    [("raise", [True, True, True]), ("skip", [True, False, False]), ("marginal", [True, True, False])],
)
def test_rows_that_are_left_out_of_learning_are_not_asked_about(missing, asked):
    rows = np.array([[0.0, 1.0], [0.0, np.nan], [0.0, np.inf]])
    model = StreamingKernelPCA(missing=missing)
    for given in (rows, pd.DataFrame(rows), pd.DataFrame(rows).astype(object), pd.DataFrame(rows, dtype="Float64")):
        assert select_answered(given, model).tolist() == asked
    assert select_answered(rows, KernelPCA()).all()


def test_answers_stand_beside_kept_columns():
    model = StreamingKernelPCA(**SMALL).partial_fit(FRAME).set_output(transform="pandas")
    table = pd.DataFrame({"id": ["a", "b"], **dict(zip(NAMES[::-1], X[:2, ::-1].T, strict=True))}, index=[3, 5])
    found = answer(table, model, features_of(model, table, ["id"], []), ["id"])
    assert list(found) == ["id", "novelty", "streamingkernelpca0", "streamingkernelpca1"]
    assert found.index.tolist() == [3, 5]
    np.testing.assert_array_equal(found["novelty"], model.novelty(X[:2]))
    np.testing.assert_array_equal(found.iloc[:, 2:], answers(X[:2], model)[:, 1:])
    assert answer(table[:0], model, NAMES).shape == (0, 3)
    table = table.astype(object)
    table.loc[5, "heat"] = None
    with pytest.raises(ValueError, match="NaN"):
        answer(table, model, NAMES)
    skipped = answer(table, model.set_params(missing="skip"), NAMES)
    np.testing.assert_array_equal(np.isfinite(skipped).all(axis=1), [True, False])


def test_features_are_those_of_the_model():
    known, cold = StreamingKernelPCA(1).partial_fit(FRAME), StreamingKernelPCA(1)
    unnamed = StreamingKernelPCA(1).partial_fit(X)
    assert features_of(known, ["id", *NAMES[::-1]], ["id"], ["novelty"]) == NAMES
    assert features_of(unnamed, ["id", *NAMES], ["id"], []) == NAMES
    assert features_of(cold, ["id", "load"], ["id"], []) == ["load"]
    for model, columns, keep, message in (
        (known, ["load", "flow"], [], "expected the column heat but got load, flow; check"),
        (cold, ["load"], ["id"], "expected the column id but got load; check"),
        (known, [*NAMES, "novelty"], ["novelty"], "the columns novelty are named like answers; rename them"),
        (cold, ["id"], ["id"], "found no columns that are features; select at least 1"),
        (unnamed, ["load"], [], "expected 3 features but got 1 columns: load; select"),
    ):
        with pytest.raises(ValueError, match=message):
            features_of(model, columns, keep, ["novelty"])
