"""Text in columns of categories: every reader gives the same model, to the byte."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamkpca.rows.categories import MOST_NAMES, CategoryReader, kept_names

from streamkpca import CheckpointError, KernelPCA, StreamingKernelPCA
from streamkpca.kernels import RBF, Equal, Linear, category_code
from streamkpca.models.streaming import merge

RANDOM = np.random.default_rng(0)
LOADS = RANDOM.normal(size=200)
STATES = RANDOM.choice(["idle", "busy", "überlast", ""], 200)
SHIFTS = RANDOM.integers(0, 3, 200)
TABLE = pd.DataFrame({"load": LOADS, "state": STATES, "shift": SHIFTS})
CODED = np.column_stack([LOADS, [category_code(state) for state in STATES], SHIFTS])
KERNEL = RBF(0.5).on(0) * (2.0 * Equal().on([2, 1])).exp()
SETTINGS = {"n_components": 2, "kernel": KERNEL, "max_atoms": 12, "block_size": 32, "random_state": 0}


def typed(dtype):
    return TABLE.astype({"state": dtype})


READ = {
    "objects": typed(object),
    "pandas category": typed("category"),
    "pandas string": typed("string"),
    "polars": pl.DataFrame({"load": LOADS, "state": STATES.tolist(), "shift": SHIFTS}),
    "polars category": pl.DataFrame({"load": LOADS, "state": STATES.tolist(), "shift": SHIFTS}).with_columns(
        pl.col("state").cast(pl.Categorical)
    ),
    "polars enum": pl.DataFrame({"load": LOADS, "state": STATES.tolist(), "shift": SHIFTS}).with_columns(
        pl.col("state").cast(pl.Enum(["", "busy", "idle", "überlast"]))
    ),
    "lists": [[load, state, shift] for load, state, shift in zip(LOADS, STATES.tolist(), SHIFTS, strict=True)],
    "array of objects": TABLE.to_numpy(dtype=object),
}


@pytest.mark.parametrize("given", READ)
def test_every_reader_gives_the_codes(given):
    model = StreamingKernelPCA(**SETTINGS).partial_fit(READ[given])
    expected = StreamingKernelPCA(**SETTINGS).partial_fit(CODED)
    np.testing.assert_array_equal(model.atoms_, expected.atoms_)
    np.testing.assert_array_equal(model.novelty(READ[given]), expected.novelty(CODED))
    assert model.categories_ == {state: category_code(state) for state in sorted(set(STATES), key=category_code)}
    exact = KernelPCA(2, kernel=KERNEL).fit(READ[given])
    np.testing.assert_array_equal(exact.atoms_, CODED)


@given(st.lists(st.integers(1, 199), max_size=3, unique=True))
def test_cuts_and_merges_do_not_change_what_is_kept(cuts):
    whole = StreamingKernelPCA(**SETTINGS).partial_fit(TABLE)
    pieces = StreamingKernelPCA(**SETTINGS)
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 200], strict=True):
        pieces.partial_fit(TABLE.iloc[start:stop])
    assert pieces.to_bytes() == whole.to_bytes()


def test_models_that_met_other_categories_first_can_be_merged():
    first, second = (StreamingKernelPCA(**SETTINGS).fit(part) for part in (TABLE[STATES != ""], TABLE[STATES == ""]))
    merged = merge(first, second)
    assert merged.categories_ == StreamingKernelPCA(**SETTINGS).fit(TABLE).categories_
    assert merged.n_samples_seen_ == 200
    assert first.categories_.keys() == {"idle", "busy", "überlast"}


def test_an_unseen_category_is_new_and_no_error():
    model = StreamingKernelPCA(**SETTINGS).fit(TABLE)
    known, unseen, number = model.novelty([[0.0, "idle", 1], [0.0, "on fire", 1], [0.0, -7.0, 1]])
    assert known < unseen
    assert unseen == pytest.approx(number)
    assert model.contributions([[0.0, "on fire", 1]]).argmax() == 1
    assert "on fire" not in model.categories_
    assert "on fire" in model.partial_fit([[0.0, "on fire", 1]]).categories_


def test_checkpoints_keep_the_categories():
    model = StreamingKernelPCA(**SETTINGS).fit(TABLE)
    again = StreamingKernelPCA.from_bytes(model.to_bytes())
    assert again.categories_ == model.categories_
    assert again.to_bytes() == model.to_bytes()
    assert pickle.loads(pickle.dumps(model)).categories_ == model.categories_
    model._stream.categories = dict.fromkeys(["x" * 201], 1.0)
    with pytest.raises(CheckpointError, match="categories are 1 texts but should be at most 4096 of at most 200"):
        StreamingKernelPCA.from_bytes(model.to_bytes())


def test_missing_cells_are_rows_that_cannot_be_used():
    for table in (TABLE.astype({"state": "string"}), TABLE.astype({"state": "category"}), TABLE.astype(object)):
        table = table.copy()
        table.loc[3, "state"] = None
        with pytest.raises(ValueError, match=r"X contains NaN \(first at row 3, column 1"):
            StreamingKernelPCA(**SETTINGS).partial_fit(table)
        assert StreamingKernelPCA(**SETTINGS, on_bad_rows="skip").partial_fit(table).n_rows_rejected_ == 1


def test_text_elsewhere_is_refused_as_before():
    with pytest.raises(TypeError, match=r"compare the columns of text as categories, by kernels\.Equal\(\)\.on"):
        StreamingKernelPCA(kernel="rbf").partial_fit(TABLE)
    with pytest.raises(ValueError, match=r"holds text .* by kernels\.Equal"):
        StreamingKernelPCA(kernel="rbf").partial_fit([["a", "b"]])
    with pytest.raises(TypeError, match=r"column 1 of X holds no categories .*not Timestamp"):
        StreamingKernelPCA(**SETTINGS).partial_fit(TABLE.assign(state=pd.Timestamp(0)))
    model = StreamingKernelPCA(**SETTINGS, dtype="float32")
    with pytest.raises(ValueError, match="categories as text, whose codes dtype='float32' cannot tell apart"):
        model.partial_fit(TABLE)
    assert model._stream is None


def test_a_refused_call_remembers_no_category():
    model = StreamingKernelPCA(**SETTINGS).fit(TABLE)
    with pytest.raises(ValueError, match="NaN"):
        model.partial_fit([[np.nan, "never", 1]])
    assert "never" not in model.categories_


def test_names_are_bounded_and_do_not_depend_on_the_order():
    texts = [f"user {i}" for i in range(3 * MOST_NAMES)]
    reader = CategoryReader(lambda d: range(d))
    reader.coded(texts, len(texts))
    kept = reader.names_with({})
    assert len(kept) == MOST_NAMES
    assert kept == kept_names(texts[::-1])
    assert max(kept.values()) < min(category_code(text) for text in set(texts) - kept.keys())
    assert kept_names(["x" * 201, "y"]).keys() == {"y"}


def test_codes_are_whole_numbers_that_float64_tells_apart_and_never_change():
    codes = [category_code(f"state {i}") for i in range(1000)]
    assert len(set(codes)) == 1000
    assert all(2.0**52 <= code < 2.0**53 and code == int(code) for code in codes)
    assert category_code("open") == 8864860346949399.0
    assert category_code("\ud800") != category_code("")


def test_text_that_spells_a_number_as_python_does_is_that_number():
    spelled = ["7", "-7", "7.0", "0.5", "1e-05", "12345678901"]
    assert [category_code(text) for text in spelled] == [7.0, -7.0, 7.0, 0.5, 1e-05, 12345678901.0]
    for text in ("007", "7.50", "+7", " 7", "1_000", "nan", "inf", "1e999", "7\n"):
        assert category_code(text) >= 2.0**52
    model = StreamingKernelPCA(1, kernel="equal").partial_fit(pd.DataFrame({"state": ["7", "x", "8"]}))
    np.testing.assert_array_equal(model.novelty([[7.0]]), model.novelty([["7"]]))
    assert model.categories_.keys() == {"x"}


def test_where_a_kernel_sees_categories():
    kernel = Linear() + (Equal().on([1, 0]) * RBF(1.0)).on([4, 2, 3]).in_units([1.0] * 8) + 2.0 * Equal().on(7)
    assert CategoryReader(lambda d: {1}).columns(1) == []
    model = StreamingKernelPCA(1, kernel=kernel).partial_fit([[0, 0, "b", 0, "a", 0, 0, "c"]])
    assert model.categories_.keys() == {"a", "b", "c"}
    with pytest.raises(TypeError, match="dtype object"):
        model.partial_fit([[0, 0, 0, "d", "a", 0, 0, "c"]])
