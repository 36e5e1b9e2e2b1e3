"""Missing cells of tables count as NaN: skipped where NaN is, refused where NaN is, by every estimator and adapter."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from streamkpca import KernelPCA, StreamingKernelPCA
from streamkpca.monitoring import Monitor

RANDOM = np.random.default_rng(0)
N = 200
WHOLE = pd.DataFrame(
    {"i": RANDOM.integers(0, 50, N), "x": RANDOM.normal(size=N).round(3), "on": RANDOM.integers(0, 2, N) > 0}
)
GONE = {"i": [3, 50], "x": [4, 50], "on": [5, 199]}
N_BAD = 5


def with_gaps(dtypes):
    table = WHOLE.astype(dtypes)
    for name, rows in GONE.items():
        table.loc[rows, name] = pd.NA
    return table


NULLABLE = with_gaps({"i": "Int64", "x": "Float64", "on": "boolean"})
POLARS = pl.DataFrame({name: [None if pd.isna(v) else v for v in NULLABLE[name]] for name in NULLABLE})
TABLES = {
    "pandas nullable": NULLABLE,
    "pandas of Arrow": with_gaps({"i": "int64[pyarrow]", "x": "double[pyarrow]", "on": "bool[pyarrow]"}),
    "pandas, small types": with_gaps({"i": "UInt8", "x": "Float32", "on": "boolean"}),
    "pandas objects": with_gaps({"i": "object", "x": "object", "on": "object"}),
    "pandas objects of None": NULLABLE.astype(object).where(NULLABLE.notna(), None),
    "polars": POLARS,
}
# As float64, with NaN.
PLAIN = {
    name: WHOLE.astype(float).mask(NULLABLE.isna()).astype("float32" if "small" in name else "float64").astype(float)
    for name in TABLES
}
NAN = r"X contains NaN \(first at row 3, column (0|'i'); 5 of 200 rows are not finite\)"


@pytest.mark.parametrize("name", TABLES)
def test_streams_skip_missing_cells_as_they_skip_nan(name):
    streams = [StreamingKernelPCA(2, max_atoms=8, block_size=32, missing="skip") for _ in range(4)]
    table, plain = TABLES[name], PLAIN[name]
    expected, found = streams[0].partial_fit(plain), streams[1].partial_fit(table)
    assert found.n_rows_rejected_ == N_BAD
    assert found.to_bytes() == expected.to_bytes()
    assert streams[3].fit(table).to_bytes() == streams[2].fit(plain).to_bytes()
    monitor, other = (Monitor(StreamingKernelPCA(2, max_atoms=8, missing="skip")) for _ in range(2))
    np.testing.assert_array_equal(monitor.update(table).novelty, other.update(plain).novelty)
    assert monitor.to_bytes() == other.to_bytes()


@pytest.mark.parametrize("name", TABLES)
def test_missing_cells_are_refused_as_nan_is(name):
    table = TABLES[name]
    for kind in (StreamingKernelPCA, KernelPCA):
        model = kind(2, kernel="linear")
        with pytest.raises(ValueError, match=NAN):
            model.fit(table)
        model.fit(WHOLE)
        queries = (model.transform, model.novelty, model.score, model.reconstruction_error)
        for query in (*queries, model.score_samples):
            with pytest.raises(ValueError, match=NAN):
                query(table)
        with pytest.raises(ValueError, match="X contains NaN"):
            model.inverse_transform(table[["i", "x"]])
    with pytest.raises(ValueError, match=NAN):
        StreamingKernelPCA(2).partial_fit(table)
    with pytest.raises(ValueError, match=NAN):
        Monitor(StreamingKernelPCA(2)).update(table)


def test_arrays_that_pandas_made_of_such_columns_count_too():
    cells = NULLABLE.to_numpy()
    assert cells.dtype == object
    model = StreamingKernelPCA(2, missing="skip").partial_fit(cells)
    assert model.n_rows_rejected_ == N_BAD
    with pytest.raises(TypeError, match="holds None at row 0, column 1"):
        StreamingKernelPCA(2).partial_fit([[1.0, None]])


def test_missing_sample_weights_are_refused_as_nan_is():
    weights = pd.Series(np.ones(N)).astype("Float64")
    weights[7] = pd.NA
    with pytest.raises(ValueError, match=r"sample_weight\[7\] is nan"):
        StreamingKernelPCA(2).partial_fit(WHOLE, sample_weight=weights)


def test_text_beside_missing_cells_is_still_refused():
    table = NULLABLE.assign(name="pump")
    with pytest.raises((TypeError, ValueError), match=r"numbers are required"):
        StreamingKernelPCA(2, missing="skip").partial_fit(table)
    with pytest.raises((TypeError, ValueError), match="holds 'pump' at row 0, column 'name'"):
        StreamingKernelPCA(2, missing="skip").partial_fit(POLARS.with_columns(name=pl.lit("pump")))
