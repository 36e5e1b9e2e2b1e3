"""River: its own checks, its pipelines, and the laws of streams, for rows given as dicts."""

import importlib
import re
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("river", reason="needs the extra river")

import pandas as pd
from river import checks, datasets

from streamkpca import StreamingKernelPCA, kernels
from streamkpca.adapters.for_river import KernelPCADetector, KernelPCATransformer

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
NAMES = ["b", "a", "c"]
ROWS = RNG.normal(size=(700, 3))
FRAME = pd.DataFrame(ROWS, columns=NAMES)
DICTS = FRAME.to_dict("records")
SMALL = {"kernel": kernels.RBF(0.3), "max_atoms": 20, "block_size": 64}
BOTH = [KernelPCATransformer, KernelPCADetector]


class CreditCard:
    """Stand in for the data set that River would download; frauds have a wider spread."""

    def take(self, n):
        names = ["Time", *(f"V{i}" for i in range(1, 29)), "Amount"]
        # A fifth of the rows that River asks for shows as much.
        rng, n = np.random.default_rng(0), n // 5
        is_fraud = np.arange(n) % 100 == 99
        rows = rng.normal(size=(n, 30)) * np.where(is_fraud, 4.0, 1.0)[:, None]
        rows[:, 0], rows[:, -1] = 3.0 * np.arange(n), rng.gamma(1.0, 80.0, size=n)
        return zip((dict(zip(names, row, strict=True)) for row in rows.tolist()), is_fraud.astype(int), strict=True)


def learned(adapter, rows=DICTS, **changes):
    model = adapter(**(SMALL | changes))
    for x in rows:
        model.learn_one(x)
    return model


def bits(model):
    return model.kernel_pca.to_bytes()


def answer(model, x):
    return model.score_one(x) if isinstance(model, KernelPCADetector) else model.transform_one(x)


@pytest.mark.parametrize("adapter", BOTH)
def test_rivers_own_checks_pass(adapter, monkeypatch):
    monkeypatch.setattr(datasets, "CreditCard", CreditCard)
    (parameters,) = adapter._unit_test_params()
    model = adapter(**parameters)
    assert model._unit_test_skips() == set()
    assert len(list(checks.yield_checks(model))) > 20
    checks.check_estimator(model)


def test_answers_are_those_of_the_wrapped_model():
    X = ROWS[:, [1, 0, 2]]  # in the order of the names
    transformer, detector = learned(KernelPCATransformer, n_components=2), learned(KernelPCADetector)
    assert transformer.features_ == ["a", "b", "c"]
    plain = StreamingKernelPCA(2, **SMALL).partial_fit(X)
    np.testing.assert_array_equal(transformer.kernel_pca.atoms_, plain.atoms_)
    assert transformer.transform_one(DICTS[0]) == dict(enumerate(transformer.kernel_pca.transform(X[:1])[0]))
    assert detector.score_one(DICTS[0]) == detector.kernel_pca.novelty(X[:1])[0]


def test_parameters_are_those_of_the_model():
    for adapter, fixed in (
        (KernelPCATransformer, {}),
        (KernelPCADetector, {"n_components": 1, "noise_variance": None}),
    ):
        assert adapter().kernel_pca.get_params() == StreamingKernelPCA(**fixed).get_params()
        model = adapter(3, seed=8, half_life=77.0, noise_variance=0.5)
        expected = StreamingKernelPCA(3, random_state=8, half_life=77.0, noise_variance=0.5)
        assert model.clone().kernel_pca.get_params() == model.kernel_pca.get_params() == expected.get_params()
        assert model.clone({"half_life": 5.0, "seed": 9}).kernel_pca.get_params()["half_life"] == 5.0
        with pytest.raises(TypeError, match="'max_atom' is not a parameter; did you mean 'max_atoms'"):
            adapter(max_atom=3)
        with pytest.raises(ValueError, match="block_size"):
            adapter(block_size=-1).learn_one(DICTS[0])


def test_answers_before_the_first_row_are_empty_or_zero():
    transformer, detector = KernelPCATransformer(), KernelPCADetector()
    assert transformer.transform_one(DICTS[0]) == {}
    assert detector.score_one(DICTS[0]) == 0.0
    for model in (transformer, detector):
        model.learn_one({})
        assert model.features_ == []


@pytest.mark.parametrize("adapter", BOTH)
def test_new_features_are_ignored_and_missing_ones_count_as_zero(adapter):
    model, same = learned(adapter), learned(adapter)
    model.learn_one({"c": 1.0, "new": "text", "a": 2.0})
    same.learn_one({"a": 2.0, "b": 0.0, "c": 1.0})
    assert bits(model) == bits(same)
    assert answer(model, {}) == answer(model, {"a": 0.0, "b": 0, "c": False, "d": None})


def test_feature_names_may_be_any_dict_keys():
    model = learned(KernelPCADetector, [{1: 0.0, "b": 1.0, ("c", 2): 2.0}, {("c", 2): 1.0, "b": 3.0}])
    assert set(model.features_) == {1, "b", ("c", 2)}
    assert learned(KernelPCADetector, [pd.Series({"b": 1.0, "a": 0.0})]).features_ == ["a", "b"]


@pytest.mark.parametrize("method", ["learn_one", "score_one"])
def test_a_value_that_is_no_number_is_refused_with_its_feature(method):
    model = learned(KernelPCADetector, DICTS[:10])
    before = bits(model)
    for value in ("text", None, "1.5", [1.0, 2.0], np.ones(1), 1j):
        with pytest.raises(
            TypeError,
            match=f"KernelPCADetector.{method}: expected numbers but feature 'b' is {re.escape(repr(value))};.*missing",
        ):
            getattr(model, method)({"a": 1.0, "b": value, "c": 1.0})
    for value, kind in ((float("nan"), "NaN"), (10**400, "infinity")):
        with pytest.raises(ValueError, match=rf"{kind} \(first at row 0, column 'b';"):
            getattr(model, method)({"a": 1.0, "b": value})
    assert bits(model) == before


@pytest.mark.parametrize("row", [[1.0, 2.0], None, 3, np.ones(2), {"a"}])
def test_a_row_without_names_is_refused_before_the_first_and_later(row):
    for kind in (KernelPCADetector, KernelPCATransformer):
        for model in (kind(**SMALL), learned(kind, DICTS[:10])):
            for method in ("learn_one", "score_one" if kind is KernelPCADetector else "transform_one"):
                fault = f"{kind.__name__}.{method}: expected a row as a dict .* but got {type(row).__name__}; add the"
                with pytest.raises(TypeError, match=fault):
                    getattr(model, method)(row)


def test_a_first_row_that_is_no_number_is_refused_with_its_feature():
    with pytest.raises(ValueError, match=r"learn_one: X contains NaN \(first at row 0, column 'b';"):
        KernelPCADetector(**SMALL).learn_one({"a": 1.0, "b": float("nan")})


def test_all_types_of_numbers_are_accepted():
    model, same = learned(KernelPCADetector, DICTS[:10]), learned(KernelPCADetector, DICTS[:10])
    for value in (0.5, np.float32(0.5), Decimal("0.5"), Fraction(1, 2)):
        assert model.score_one({"a": value, "b": 1, "c": True}) == model.score_one({"a": 0.5, "b": 1.0, "c": 1.0})
        model.learn_one({"a": value, "b": 2**70, "c": np.int8(3)})
        same.learn_one({"a": 0.5, "b": 2.0**70, "c": 3.0})
    assert bits(model) == bits(same)


def test_bad_rows_can_be_skipped():
    model = learned(KernelPCADetector, [{"a": float("nan")}, *DICTS[:5]], missing="skip")
    assert model.features_ == ["a"]
    model.learn_one({"a": pd.NA})
    assert model.kernel_pca.n_rows_rejected_ == 2
    with pytest.raises(ValueError, match="NaN"):
        model.score_one({"a": pd.NA})


# The three ways in which a dict of River can lack a number.
GAPPED = np.where(RNG.random(ROWS.shape) < 0.1, np.nan, ROWS)[:300]
GAPPED[0], GAPPED[5] = ROWS[0], np.nan
LACKING = [
    {name: value for name, value in zip(NAMES, row, strict=True) if not np.isnan(value)} if i % 3 == 0
    else {name: None if np.isnan(value) and i % 3 == 1 else value for name, value in zip(NAMES, row, strict=True)}
    for i, row in enumerate(GAPPED.tolist())
]  # fmt: skip


def test_gaps_are_those_of_the_model():
    # The first row sets the features.
    model = learned(KernelPCADetector, LACKING, missing="marginal")
    same = StreamingKernelPCA(1, missing="marginal", noise_variance=None, **SMALL)
    same.partial_fit(GAPPED[:, [1, 0, 2]])
    assert model.kernel_pca.n_rows_rejected_ == np.isnan(GAPPED).all(axis=1).sum()
    np.testing.assert_array_equal(model.kernel_pca.atoms_, same.atoms_)
    np.testing.assert_allclose([model.score_one(x) for x in LACKING], same.novelty(GAPPED[:, [1, 0, 2]]), rtol=1e-9)
    assert np.isfinite(model.score_one({"other": 1.0}))


def test_without_river_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.delitem(sys.modules, "streamkpca.adapters.for_river")
    with pytest.raises(ImportError, match=r'needs river; pip install "streamkpca\[river\]"'):
        importlib.import_module("streamkpca.adapters.for_river")
