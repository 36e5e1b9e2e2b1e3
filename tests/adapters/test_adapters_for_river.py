"""River: its own checks, its pipelines, and the laws of streams, for rows given as dicts."""

import importlib
import pickle
import re
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("river", reason="needs the extra river")

import pandas as pd
import polars as pl
from river import anomaly, checks, compose, datasets, drift, feature_extraction, linear_model, preprocessing, stats

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
        rng = np.random.default_rng(0)
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


@pytest.mark.parametrize("n_components", [None, 2])
def test_a_row_is_explained_by_the_features_that_add_most(n_components):
    model = learned(KernelPCADetector, n_components=n_components)
    x = {"a": 0.1, "b": -0.2, "c": 30.0}
    explained = model.explain_one(x)
    assert set(explained) == set(NAMES)
    assert next(iter(explained)) == "c"
    assert list(explained.values()) == sorted(explained.values(), reverse=True)
    assert sum(explained.values()) == pytest.approx(model.score_one(x), rel=1e-9)
    # A missing feature counts as 0, and one that was not there at first is ignored.
    without = model.explain_one({"c": 30.0, "new": 1e9})
    assert without == model.explain_one({"a": 0.0, "b": 0.0, "c": 30.0})


def test_nothing_is_explained_before_the_first_row():
    assert KernelPCADetector().explain_one({"a": 1.0}) == {}
    with pytest.raises(TypeError, match=r"KernelPCADetector\.explain_one expected numbers but feature 'a' is"):
        learned(KernelPCADetector).explain_one({"a": "high", "b": 0.0, "c": 0.0})


@pytest.mark.parametrize("adapter", BOTH)
def test_rivers_own_checks_pass(adapter, monkeypatch):
    monkeypatch.setattr(datasets, "CreditCard", CreditCard)
    (parameters,) = adapter._unit_test_params()
    model = adapter(**parameters)
    assert model._unit_test_skips() == set()
    assert len(list(checks.yield_checks(model))) > 20
    checks.check_estimator(model)


@pytest.mark.parametrize("adapter", BOTH)
def test_cuts_do_not_matter(adapter):
    one = learned(adapter)
    for cuts in ([], [1], [5, 6, 63, 64, 65, 300], np.sort(RNG.choice(700, size=20))):
        many = adapter(**SMALL)
        for part in np.split(np.arange(700), cuts):
            many.learn_many(FRAME.iloc[part])
        assert bits(many) == bits(one)


@pytest.mark.parametrize("adapter", BOTH)
def test_reading_never_writes(adapter):
    quiet, asked = adapter(**SMALL), adapter(**SMALL)
    for x in DICTS[:200]:
        answer(asked, x)
        quiet.learn_one(x)
        asked.learn_one(x)
    assert bits(quiet) == bits(asked)


def test_answers_are_those_of_the_wrapped_model():
    X = ROWS[:, [1, 0, 2]]  # in the order of the names
    transformer, detector = learned(KernelPCATransformer, n_components=2), learned(KernelPCADetector)
    assert transformer.features_ == ["a", "b", "c"]
    plain = StreamingKernelPCA(2, **SMALL).partial_fit(X)
    np.testing.assert_array_equal(transformer.kernel_pca.atoms_, plain.atoms_)
    np.testing.assert_allclose(
        transformer.transform_many(FRAME.iloc[:9]).to_numpy(), transformer.kernel_pca.transform(X[:9]), rtol=1e-9
    )
    assert transformer.transform_one(DICTS[0]) == dict(enumerate(transformer.kernel_pca.transform(X[:1])[0]))
    assert detector.score_one(DICTS[0]) == detector.kernel_pca.novelty(X[:1])[0]
    np.testing.assert_allclose(detector.score_many(FRAME), detector.kernel_pca.novelty(X), rtol=1e-9, atol=1e-12)


def test_every_parameter_reaches_the_model():
    changed = {
        "n_components": 3,
        "kernel": kernels.Matern(1.5, length_scale=2.0),
        "max_atoms": 9,
        "atoms": "rows",
        "tolerance": 0.25,
        "noise_variance": 0.5,
        "n_active": 4,
        "axes": "likelihood",
        "center": False,
        "half_life": 77.0,
        "block_size": 33,
        "refit_every": 55,
        "reservoir_size": 11,
        "on_bad_rows": "skip",
        "on_missing": "skip",
        "seed": 8,
        "dtype": "float32",
    }
    for adapter in BOTH:
        model = adapter()
        known = {name: value for name, value in changed.items() if name in model._get_params()}
        reached = model.clone(known).kernel_pca.get_params(deep=False)
        assert {name: reached[{"seed": "random_state"}.get(name, name)] for name in known} == known
    assert {"seed" if name == "random_state" else name for name in reached} == set(changed)
    assert set(KernelPCATransformer()._get_params()) == set(changed)


def test_short_streams_answer_from_all_but_the_last_fifth_of_their_rows():
    detector = KernelPCADetector(**(SMALL | {"block_size": 512}))
    for i, x in enumerate(DICTS[:500]):
        detector.learn_one(x)
        assert detector.kernel_pca.total_weight_ >= (i + 1) / 1.25 - 1.0


@pytest.mark.parametrize("n_components", [None, 2])
def test_rows_unlike_the_stream_score_higher(n_components):
    detector = learned(KernelPCADetector, n_components=n_components)
    usual = max(detector.score_one(x) for x in DICTS)
    assert detector.score_one({"a": 9.0, "b": -9.0, "c": 9.0}) > usual
    assert detector.score_one({"a": 900.0, "b": 0.0, "c": 0.0}) >= 1.0 - 1e-12


def test_answers_before_the_first_row_are_empty_or_zero():
    transformer, detector = KernelPCATransformer(), KernelPCADetector()
    assert transformer.transform_one(DICTS[0]) == {}
    assert transformer.transform_many(FRAME).shape == (700, 0)
    assert detector.score_one(DICTS[0]) == 0.0
    assert detector.score_many(FRAME).tolist() == [0.0] * 700
    for model in (transformer, detector):
        model.learn_one({})
        model.learn_many(FRAME.iloc[:0])
        assert model.features_ == []


@pytest.mark.parametrize("adapter", BOTH)
def test_new_features_are_ignored_and_missing_ones_count_as_zero(adapter):
    model, same = learned(adapter), learned(adapter)
    model.learn_one({"c": 1.0, "new": "text", "a": 2.0})
    same.learn_one({"a": 2.0, "b": 0.0, "c": 1.0})
    assert bits(model) == bits(same)
    assert answer(model, {}) == answer(model, {"a": 0.0, "b": 0, "c": False, "d": None})
    model.learn_many(pd.DataFrame({"new": ["text"], "c": [1.0]}))
    same.learn_many(pd.DataFrame({"c": [1.0], "a": [0], "b": [0.0]}))
    assert bits(model) == bits(same)


def test_feature_names_may_be_any_dict_keys():
    model = learned(KernelPCADetector, [{1: 0.0, "b": 1.0, ("c", 2): 2.0}, {("c", 2): 1.0, "b": 3.0}])
    assert set(model.features_) == {1, "b", ("c", 2)}


@pytest.mark.parametrize("method", ["learn_one", "score_one"])
def test_a_value_that_is_no_number_is_refused_with_its_feature(method):
    model = learned(KernelPCADetector, DICTS[:10])
    before = bits(model)
    for value in ("text", None, "1.5", [1.0, 2.0], np.ones(1), 1j):
        with pytest.raises(
            TypeError, match=f"KernelPCADetector.{method} expected numbers but feature 'b' is {re.escape(repr(value))};"
        ):
            getattr(model, method)({"a": 1.0, "b": value, "c": 1.0})
    with pytest.raises(ValueError, match="NaN"):
        getattr(model, method)({"a": 1.0, "b": float("nan")})
    with pytest.raises(ValueError, match="infinity"):
        getattr(model, method)({"a": 1.0, "b": 10**400})
    assert bits(model) == before


@pytest.mark.parametrize("n_known", [0, 3, 100])
def test_a_refused_batch_changes_nothing(n_known):
    model = learned(KernelPCATransformer, DICTS[:n_known])
    before, features = bits(model), model.features_
    broken = FRAME.iloc[:200].copy()
    broken.loc[150, "c"] = np.inf
    for batch, error in ((broken, ValueError), (broken.assign(a="x"), TypeError)):
        with pytest.raises(
            error, match=r"infinity|KernelPCATransformer\.learn_many expected numbers but feature 'a' is"
        ):
            model.learn_many(batch)
        assert bits(model) == before
        assert model.features_ == features
    model.learn_many(FRAME.iloc[n_known:])
    assert bits(model) == bits(learned(KernelPCATransformer))


def test_all_types_of_numbers_are_accepted():
    model, same = learned(KernelPCADetector, DICTS[:10]), learned(KernelPCADetector, DICTS[:10])
    for value in (0.5, np.float32(0.5), np.array(0.5), Decimal("0.5"), Fraction(1, 2)):
        assert model.score_one({"a": value, "b": 1, "c": True}) == model.score_one({"a": 0.5, "b": 1.0, "c": 1.0})
        model.learn_one({"a": value, "b": 2**70, "c": np.int8(3)})
        same.learn_one({"a": 0.5, "b": 2.0**70, "c": 3.0})
    assert bits(model) == bits(same)


def test_sparse_columns_of_one_hot_encoded_features_are_learned():
    table = FRAME.assign(site=["east", "west", "north", "south"] * 175)
    model = preprocessing.OneHotEncoder() | KernelPCADetector(**SMALL)
    model.learn_many(table[["site"]])
    one = preprocessing.OneHotEncoder() | KernelPCADetector(**SMALL)
    for site in table["site"]:
        one.learn_one({"site": site})
    known = model["KernelPCADetector"]
    assert known.features_ == ["site_east", "site_north", "site_south", "site_west"]
    assert known.kernel_pca.n_samples_seen_ == one["KernelPCADetector"].kernel_pca.n_samples_seen_ == 700
    assert model.score_one({"site": "west"}) < 1e-9 < model.score_one({"site": "moon"})


def test_bad_rows_can_be_skipped():
    model = learned(KernelPCADetector, [{"a": float("nan")}, *DICTS[:5]], on_bad_rows="skip")
    assert model.features_ == ["a"]
    assert model.kernel_pca.n_rows_rejected_ == 1


def test_answers_keep_the_data_frame_library_and_index():
    transformer, detector = learned(KernelPCATransformer, n_components=2), learned(KernelPCADetector)
    shifted = FRAME.set_index(FRAME.index + 10)
    pandas = transformer.transform_many(shifted)
    assert list(pandas.columns) == [0, 1]
    assert pandas.index.equals(shifted.index)
    assert detector.score_many(shifted).index.equals(shifted.index)
    polars = transformer.transform_many(pl.from_pandas(FRAME))
    assert polars.columns == ["0", "1"]
    np.testing.assert_array_equal(polars.to_numpy(), pandas.to_numpy())
    assert detector.score_many(pl.from_pandas(FRAME)).to_list() == detector.score_many(FRAME).to_list()
    assert transformer.transform_many(FRAME.iloc[:0]).shape == (0, 2)


def test_a_pipeline_with_a_scaler_and_a_filter_finds_anomalies():
    detector = anomaly.QuantileFilter(KernelPCADetector(max_atoms=32, block_size=64), q=0.95)
    model = preprocessing.StandardScaler() | detector
    angles = np.random.default_rng(0).uniform(0, 2 * np.pi, 600)
    for angle in angles:
        model.learn_one({"x": 100.0 + 5.0 * np.cos(angle), "y": 0.001 * np.sin(angle)})
    # The centre of the ring is known: a scaler maps its first row there.
    assert detector.classify(model.score_one({"x": 120.0, "y": 0.004}))
    alarms = [
        detector.classify(model.score_one({"x": 100.0 + 5.0 * np.cos(a), "y": 0.001 * np.sin(a)})) for a in angles[:100]
    ]
    assert sum(alarms) < 10


def test_components_are_features_of_a_union():
    model = preprocessing.StandardScaler() | (KernelPCATransformer(2, **SMALL) + compose.Select("a"))
    for x in DICTS[:100]:
        model.learn_one(x)
    assert set(model.transform_one(DICTS[0])) == {0, 1, "a"}
    assert set(model.transform_many(FRAME.iloc[:3]).columns) == {0, 1, "a"}


def test_targets_and_selected_features_pass_through_a_pipeline():
    """With a supervised step before and a regression after, projections keep the information of the features."""
    rng = np.random.default_rng(1)
    means = feature_extraction.TargetAgg(by="site", how=stats.Mean())
    model = (
        (means + compose.Select("load", "heat"))
        | preprocessing.StandardScaler()
        | KernelPCATransformer(8, **SMALL)
        | linear_model.LinearRegression()
    )
    errors, spread = [], []
    for i in range(1500):
        load, heat = rng.normal(size=2)
        x = {"site": "east" if i % 2 else "west", "load": load, "heat": heat, "name": "a pump"}
        y = np.sin(load) + 2.0 * (i % 2)
        if i > 1000:
            errors.append(y - model.predict_one(x))
            spread.append(y)
        model.learn_one(x, y)
    learned_from = model["KernelPCATransformer"].features_
    assert learned_from == ["heat", "load", "y_mean_by_site"]
    assert np.var(errors) < 0.3 * np.var(spread)


def test_a_drift_detector_notices_a_change_in_scores():
    """Another regime scores higher, and ADWIN reports that within some hundreds of rows, not before."""
    rng = np.random.default_rng(2)
    model = preprocessing.StandardScaler() | KernelPCADetector(max_atoms=20, block_size=64)
    watch, noticed = drift.ADWIN(), []
    for i in range(1800):
        angle = rng.uniform(0, 2 * np.pi)
        radius = (1.0 if i < 1200 else 1.5) + rng.normal(scale=0.05)
        x = {"a": radius * np.cos(angle), "b": radius * np.sin(angle)}
        if i >= 200:
            watch.update(model.score_one(x))
            if watch.drift_detected:
                noticed.append(i)
        if i < 1200:
            model.learn_one(x)
    assert noticed
    assert 1200 <= noticed[0] < 1700


@pytest.mark.parametrize("adapter", BOTH)
def test_parameters_can_change_in_the_middle_of_a_stream(adapter):
    model, plain = learned(adapter, DICTS[:300]), learned(adapter, DICTS[:300]).kernel_pca
    assert model.kernel_pca.n_atoms_ == 20
    changes = {"max_atoms": 7, "half_life": 100.0, "tolerance": 0.01}
    model.mutate(changes)
    plain.set_params(**changes)
    for i in range(300, 700):
        model.learn_one(DICTS[i])
    plain.partial_fit(ROWS[300:, [1, 0, 2]])
    assert bits(model) == plain.to_bytes()
    assert model.kernel_pca.n_atoms_ == 7
    assert model._get_params()["max_atoms"] == model.clone().kernel_pca.max_atoms == 7
    before = bits(model)
    with pytest.raises(ValueError, match=rf"{adapter.__name__}\.mutate.*half_life"):
        model.mutate({"half_life": -1.0})
    for fixed in ("kernel", "block_size", "reservoir_size", "seed", "dtype"):
        with pytest.raises(ValueError, match=f"'{fixed}' is not a mutable attribute"):
            model.mutate({fixed: getattr(model, fixed)})
    assert bits(model) == before
    assert model.half_life == 100.0


def test_parameters_of_the_axes_take_effect_at_the_next_refit():
    model = learned(KernelPCATransformer, DICTS[:300], n_components=3, refit_every=64)
    model.mutate({"n_components": 1, "axes": "likelihood", "noise_variance": 0.01})
    assert len(model.transform_one(DICTS[0])) == 3
    for x in DICTS[300:400]:
        model.learn_one(x)
    assert len(model.transform_one(DICTS[0])) == 1
    with pytest.raises(ValueError, match="'n_components' is not a mutable attribute"):
        learned(KernelPCADetector, DICTS[:9]).mutate({"n_components": 1})


@pytest.mark.parametrize("adapter", BOTH)
def test_a_copy_continues_as_the_model_does(adapter):
    model = learned(adapter, DICTS[:50])
    copy = pickle.loads(pickle.dumps(model))
    for x in DICTS[50:150]:
        model.learn_one(x)
        copy.learn_one(x)
    assert bits(copy) == bits(model)
    assert copy.clone().features_ == []


def test_without_river_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.delitem(sys.modules, "streamkpca.adapters.for_river")
    with pytest.raises(ImportError, match=r'needs river; pip install "streamkpca\[river\]"'):
        importlib.import_module("streamkpca.adapters.for_river")
