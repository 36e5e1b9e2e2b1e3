"""Whatever offers ``__arrow_c_stream__``: read in batches, by the names of its columns, to the same bytes as arrays."""

import builtins
import datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(500, 3))
NAMES = ["load", "heat", "flow"]
TABLE = pa.table(dict(zip(NAMES, ROWS.T, strict=True)))
SETTINGS = {"n_components": 2, "kernel": RBF(0.3), "max_atoms": 12, "block_size": 32, "random_state": 0}
QUESTIONS = ["transform", "novelty", "reconstruction_error", "score_samples", "score"]


class Relation:
    """As DuckDB's relations: columns, a shape, and a stream each time that it is asked for."""

    columns = NAMES
    shape = (500, 3)

    def __init__(self, table=TABLE, n_rows=70):
        self.table, self.n_rows = table, n_rows

    def __arrow_c_stream__(self, requested_schema=None):
        batches = self.table.to_batches(max_chunksize=self.n_rows)
        return pa.RecordBatchReader.from_batches(self.table.schema, batches).__arrow_c_stream__()


def reader():
    return pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=70))


GIVEN = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": reader,
    "relation": Relation,
    "polars": lambda: pl.from_arrow(TABLE),
    "dictionaries": lambda: TABLE.set_column(0, "load", TABLE["load"].dictionary_encode()),
}


@pytest.mark.parametrize("given", GIVEN)
def test_streams_give_the_model_of_their_rows(given):
    make = GIVEN[given]
    model = StreamingKernelPCA(**SETTINGS).partial_fit(make())
    # The columns of an array have no names, which are all that differs.
    frame = StreamingKernelPCA(**SETTINGS).partial_fit(pl.from_arrow(TABLE))
    assert model.to_bytes() == frame.to_bytes()
    assert model.feature_names_in_.tolist() == NAMES
    for question in QUESTIONS:
        np.testing.assert_array_equal(getattr(model, question)(make()), getattr(model, question)(ROWS))
    assert StreamingKernelPCA(**SETTINGS).fit(make()).to_bytes() == frame.fit(pl.from_arrow(TABLE)).to_bytes()


def test_other_columns_or_another_order_are_refused():
    model = StreamingKernelPCA(**SETTINGS).partial_fit(TABLE)
    with pytest.raises(ValueError, match="Pass the columns load, heat, flow in this order"):
        model.partial_fit(TABLE.select(["flow", "load", "heat"]))
    assert model.n_samples_seen_ == 500
    with pytest.raises(ValueError, match=r"feature names should match.*Missing: heat"):
        model.novelty(TABLE.rename_columns(["load", "cold", "flow"]))
    with pytest.raises(ValueError, match=r"feature names should match.*Missing: flow"):
        model.novelty(TABLE.select(["load", "heat"]))
    unnamed = StreamingKernelPCA(**SETTINGS).partial_fit(ROWS)
    np.testing.assert_array_equal(unnamed.novelty(TABLE), unnamed.novelty(ROWS))


def test_missing_cells_are_nan_and_a_refused_stream_changes_nothing():
    holes = [None if i == 450 else float(i % 7) for i in range(500)]
    table = TABLE.set_column(1, "heat", pa.array(holes))
    model = StreamingKernelPCA(**SETTINGS).partial_fit(ROWS[:40])
    before = model.to_bytes()
    with pytest.raises(ValueError, match=r"X contains NaN \(first at row 30, column 'heat'") as caught:
        model.partial_fit(Relation(table))
    assert caught.value.__notes__ == ["Rows are counted from row 420 of the Arrow stream, where a batch begins."]
    assert model.to_bytes() == before
    # Rows that filled no block were appended to a copy.
    short = StreamingKernelPCA(**SETTINGS | {"block_size": 2000}).partial_fit(ROWS[:40])
    with pytest.raises(ValueError, match="NaN"):
        short.partial_fit(Relation(table))
    assert short.n_samples_seen_ == 40
    assert StreamingKernelPCA(**SETTINGS, missing="skip").partial_fit(Relation(table)).n_rows_rejected_ == 1


def test_weights_go_with_their_rows():
    weights = np.arange(500.0)
    model = StreamingKernelPCA(**SETTINGS).partial_fit(Relation(), sample_weight=weights)
    expected = StreamingKernelPCA(**SETTINGS).partial_fit(ROWS, sample_weight=weights)
    np.testing.assert_array_equal(model.refit().eigenvalues_, expected.refit().eigenvalues_)
    assert StreamingKernelPCA(**SETTINGS).partial_fit(Relation(), sample_weight=2).refit().total_weight_ == 1000.0
    before = model.to_bytes()
    for count in (499, 501):
        with pytest.raises(ValueError, match=rf"sample_weight has shape \({count},\) but X has 500 rows"):
            model.partial_fit(Relation(), sample_weight=np.ones(count))
    assert model.to_bytes() == before


def test_other_streams_are_refused():
    model = StreamingKernelPCA(**SETTINGS)
    when = TABLE.set_column(1, "heat", pa.array([datetime.datetime(2024, 5, 1)] * 500))
    with pytest.raises(TypeError, match=r"column 'heat' of X holds timestamp\[us\] but numbers"):
        model.partial_fit(when)
    with pytest.raises(ValueError, match=r"found 0 sample\(s\)"):
        model.partial_fit(Relation(TABLE.slice(0, 0)))
    with pytest.raises(TypeError, match="column 'heat' of X holds string but numbers"):
        model.partial_fit(TABLE.set_column(1, "heat", pa.array(["idle"] * 500)))
    column = type("Series", (), {"__arrow_c_stream__": lambda self, schema=None: TABLE["load"].__arrow_c_stream__()})
    with pytest.raises(TypeError, match=r"expected an Arrow stream of rows but got Series \(Cannot import schema"):
        model.partial_fit(column())
    assert not model.__sklearn_is_fitted__()


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    imported = builtins.__import__

    def without(name, *given):
        if name == "pyarrow":
            raise ImportError(name)
        return imported(name, *given)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"X is an Arrow stream \(Relation\).*pip install 'streamkpca\[arrow\]'"):
        StreamingKernelPCA(**SETTINGS).partial_fit(Relation())
    # DataFrames are read without it.
    assert StreamingKernelPCA(**SETTINGS).partial_fit(pl.DataFrame(ROWS, schema=NAMES)).n_samples_seen_ == 500
