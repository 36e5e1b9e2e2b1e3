"""Projections as arrays and tables."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA

ROWS = np.random.default_rng(0).normal(size=(60, 3))
ESTIMATORS = [StreamingKernelPCA, KernelPCA, SparseKernelPCA, ApproximateKernelPCA]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_tables_have_the_names_of_the_components_and_the_index_of_the_rows(estimator):
    table = pd.DataFrame(ROWS, columns=list("abc"), index=pd.date_range("2026-01-01", periods=60))
    model = estimator(2)
    plain = model.fit(table).transform(table)
    found = model.set_output(transform="pandas").transform(table)
    assert type(plain) is np.ndarray
    assert found.columns.tolist() == model.get_feature_names_out().tolist()
    assert found.index.equals(table.index)
    np.testing.assert_array_equal(found.to_numpy(), plain)
    found = clone(model).set_output(transform="polars").fit_transform(table)
    assert isinstance(found, pl.DataFrame)
    assert found.columns == model.get_feature_names_out().tolist()
    np.testing.assert_array_equal(found.to_numpy(), plain)
    assert type(model.set_output(transform="default").transform(table)) is np.ndarray


def test_arrays_make_tables_with_a_plain_index():
    assert KernelPCA(2).set_output(transform="pandas").fit_transform(ROWS).index.tolist() == list(range(60))


def test_the_setting_survives_cloning_and_none_leaves_it():
    model = clone(StreamingKernelPCA(2).set_output(transform="pandas"))
    assert isinstance(model.set_output().fit_transform(ROWS), pd.DataFrame)
    assert isinstance(clone(make_pipeline(StandardScaler(), model)).fit_transform(ROWS), pd.DataFrame)


def test_the_global_setting_counts_where_the_model_has_none():
    model = StreamingKernelPCA(2).fit(ROWS)
    with sklearn.config_context(transform_output="polars"):
        assert isinstance(model.transform(ROWS), pl.DataFrame)
        assert isinstance(clone(model).set_output(transform="default").fit_transform(ROWS), np.ndarray)
    pipeline = make_pipeline(StandardScaler(), StreamingKernelPCA(2)).set_output(transform="pandas")
    assert isinstance(pipeline.fit_transform(ROWS), pd.DataFrame)


def test_unknown_containers_are_refused():
    with pytest.raises(
        ValueError, match=r"set_output: transform must be one of 'default', 'pandas', 'polars', got 'arrow'"
    ):
        KernelPCA().set_output(transform="arrow")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_missing_library_names_its_extra(library, monkeypatch):
    model = KernelPCA(2).fit(ROWS).set_output(transform=library)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"needs {library}; pip install 'streamkpca\[{library}\]'"):
        model.transform(ROWS)
