"""Calls that StreamingKernelPCA refuses; a refused call leaves everything as it was, bit for bit."""

import math
from itertools import product
from operator import methodcaller

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF, Custom, Polynomial

WIDTH = 3
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(50, WIDTH))
MORE = RNG.normal(size=(40, WIDTH))
PROBE = RNG.normal(size=(6, WIDTH))


def made(**params):
    settings = {"n_components": 3, "max_atoms": 6, "block_size": 16, "refit_every": 16} | params
    return StreamingKernelPCA(**settings)


def state(model):
    """Return all that the model has learned, and None if that is nothing."""
    return model.to_bytes() if model.__sklearn_is_fitted__() else None


def assert_refused(model, call, error, message):
    """Check that the call raises what it should, and that the model is afterwards as before."""
    before, parameters = state(model), model.get_params()
    with pytest.raises(error, match=message):
        call(model)
    assert state(model) == before
    assert model.get_params() == parameters


# `tests/rows/test_validation.py` has many more.
BAD_ROWS = [
    pytest.param([[1.0, math.nan, 3.0]], ValueError, r"X contains NaN \(first at row 0, column 1", id="nan"),
    pytest.param(scipy.sparse.csr_array([[1.0, 0.0, np.inf]]), ValueError, "row 0, column 2", id="sparse-infinity"),
    pytest.param(pd.DataFrame([["a", 1.0, 2.0]]), TypeError, "holds 'a' at row 0, column 0", id="text-column"),
]
BAD_WEIGHTS = [
    pytest.param(np.ones(49), ValueError, r"sample_weight has shape \(49,\) but X has 50 rows", id="short"),
    pytest.param(-np.ones(50), ValueError, r"sample_weight\[0\] is -1.0", id="negative"),
    pytest.param(np.full(50, 1e160), ValueError, "from 1e-100 to 1e100; repair it, or multiply", id="too-large"),
    pytest.param(np.full(50, 1e-160), ValueError, "from 1e-100 to 1e100; repair it, or multiply", id="too-small"),
]


def fitted_models(**params):
    """Models before their first block is full, in mid-stream, and after two passes."""
    return made(**params).partial_fit(ROWS[:7]), made(**params).partial_fit(ROWS), made(**params).fit(ROWS)


FITTED = fitted_models()


@pytest.mark.parametrize(("rows", "error", "message"), BAD_ROWS)
def test_bad_rows_are_refused(rows, error, message):
    lessons, queries = ("partial_fit", "fit", "fit_transform"), ("transform", "reconstruction_error", "score_samples")
    for method in lessons:
        assert_refused(made(), methodcaller(method, rows), error, rf"StreamingKernelPCA\.\w+: .*{message}")
    for model, method in product(FITTED, lessons + queries):
        assert_refused(model, methodcaller(method, rows), error, rf"StreamingKernelPCA\.\w+: .*{message}")


@pytest.mark.parametrize("kernel", [Polynomial(2, gamma=1.0), RBF("spread")])
def test_rows_out_of_range_are_named_by_their_place_among_all_of_the_call(monkeypatch, kernel):
    monkeypatch.setattr("streamkpca.rows.parts._MOST_ROWS", 4)
    rows, weights = np.ones((12, 2)), np.ones(12)
    weights[[0, 5]], rows[[5, 7]] = 0.0, 1e200
    for X in (rows, scipy.sparse.csr_array(rows)):
        for learn in (StreamingKernelPCA(kernel=kernel).partial_fit, StreamingKernelPCA(kernel=kernel).fit):
            with pytest.raises(ValueError, match="for row 7 of these, but the limit is"):
                learn(X, sample_weight=weights)
            with pytest.raises(ValueError, match="for row 5 of these, but the limit is"):
                learn(X)


def test_a_stream_keeps_its_width():
    methods = ("partial_fit", "transform", "reconstruction_error", "score_samples")
    for model, method, n in product(FITTED, methods, (2, 4)):
        message = rf"StreamingKernelPCA\.\w+: X has {n} features, but it is expecting 3 .*same columns"
        assert_refused(model, methodcaller(method, np.ones((2, n))), ValueError, message)


@pytest.mark.parametrize(("weights", "error", "message"), BAD_WEIGHTS)
def test_bad_weights_are_refused(weights, error, message):
    for model, method in product((made(), *FITTED), ("partial_fit", "fit", "fit_transform")):
        call = methodcaller(method, ROWS, sample_weight=weights)
        assert_refused(model, call, error, rf"StreamingKernelPCA\.\w+: .*{message}")


def test_weights_of_zero_alone_are_refused_by_fit_and_taken_by_a_stream():
    # The same rows could have come in one call with others: cuts must not matter.
    call = methodcaller("fit", ROWS, sample_weight=np.zeros(50))
    assert_refused(
        made(),
        call,
        ValueError,
        r"StreamingKernelPCA\.fit: none of the 50 rows can be used: .* or has a weight of zero",
    )
    weights = np.where(np.arange(50) % 3 == 0, 1.0, 0.0)
    whole, parts = made().partial_fit(ROWS, sample_weight=weights), made()
    for row, weight in zip(ROWS, weights, strict=True):
        parts.partial_fit(row[None], sample_weight=[weight])
    np.testing.assert_array_equal(parts.transform(MORE), whole.transform(MORE))


# `tests/stream/test_settings.py` has those of the other parameters, and `tests/kernels/test_kernel_json.py` of kernels.
NONSENSE = [
    ("n_components", ["8", None, True, [8], 2j], TypeError, "n_components must be an integer"),
    ("n_components", [0, -3], ValueError, "n_components must be at least 1"),
    ("n_components", [0.0, 1.0, 2.5, math.nan], ValueError, r"n_components, as a share .* in \(0, 1\)"),
    ("max_atoms", [1.0, "8", True, np.True_, [8], 2j, math.nan], TypeError, "max_atoms must be an integer"),
    ("tolerance", ["0", None, True, [0.1], 1j], TypeError, "tolerance must be a number"),
    ("tolerance", [-1e-9, 1.0, math.nan, math.inf], ValueError, r"tolerance must be a finite number in \[0, 1\)"),
    ("block_size", [1, 0, -16], ValueError, "block_size must be at least 2"),
    ("block_size", [4097], ValueError, "block_size must be at most 4096"),
    ("n_active", [0, -2], ValueError, "n_active must be at least 1"),
]


@pytest.mark.parametrize(
    ("name", "values", "error", "message"), NONSENSE, ids=[f"{name}-{error.__name__}" for name, _, error, _ in NONSENSE]
)
def test_invalid_parameters_are_refused_when_they_are_used(name, values, error, message):
    for model, value in product((made(), *FITTED), values):
        before, right = state(model), getattr(model, name)
        calls = [methodcaller(method, MORE) for method in ("partial_fit", "fit", "fit_transform")]
        if before is not None:
            calls.append(methodcaller("refit"))
        model.set_params(**{name: value})
        for call in calls:
            with pytest.raises(error, match=rf"StreamingKernelPCA(\.\w+)?: {message}"):
                call(model)
        model.set_params(**{name: right})
        assert state(model) == before


@pytest.mark.parametrize(
    ("which", "change"), [(0, {"kernel": RBF(0.123)}), (1, {"block_size": 17}), (2, {"reservoir_size": 9})]
)
def test_kernel_and_block_size_cannot_change_within_a_stream(which, change):
    model, untouched = fitted_models()[which], fitted_models()[which]
    original = {name: getattr(model, name) for name in change}
    message = (
        r"partial_fit: kernel, block_size and reservoir_size cannot change .*"
        r"kernel=RBF\(gamma='contrast'\), block_size=16, reservoir_size=512; set them back"
    )
    assert_refused(model.set_params(**change), lambda m: m.partial_fit(MORE), ValueError, message)
    model.set_params(**original).partial_fit(MORE)
    assert state(model) == state(untouched.partial_fit(MORE))
    assert model.set_params(**change).fit(MORE).get_params()[next(iter(change))] == next(iter(change.values()))


@pytest.mark.parametrize(("left", "method"), [(0, "fit"), (1, "partial_fit"), (40, "partial_fit"), (60, "fit")])
def test_a_function_that_returns_nan_in_the_middle_of_a_call_changes_nothing(left, method):
    calls_left = math.inf

    def function(X, Y):
        nonlocal calls_left
        calls_left -= 1
        return np.exp(-0.3 * ((X[:, None] - Y) ** 2).sum(axis=2)) * (1.0 if calls_left >= 0 else math.nan)

    model, rows = made(kernel=Custom(function)).partial_fit(ROWS), np.vstack([MORE] * 4)
    before, calls_left = state(model), left
    with pytest.raises(ValueError, match="Custom: the function returned NaN or infinity"):
        getattr(model, method)(rows)
    calls_left = math.inf
    assert state(model) == before


def test_no_rows_reach_a_kernel_that_names_columns_they_lack():
    model = made(kernel=RBF(1.0).on([0, 5]))
    assert_refused(model, lambda m: m.fit(ROWS), ValueError, "uses column 5 but got rows with 3 features")
    assert_refused(model, lambda m: m.partial_fit(ROWS), ValueError, "uses column 5")
    assert_refused(model, lambda m: m.partial_fit(ROWS[:3]), ValueError, "uses column 5")
