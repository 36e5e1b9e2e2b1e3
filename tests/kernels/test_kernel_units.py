"""Kernels of rows in units: their values, how rules find units, and what models make of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from strategies import FEWER

from streamkpca import KernelPCA, StreamingKernelPCA
from streamkpca.kernels import (
    RBF,
    Laplacian,
    Linear,
)

D = 5
# Features of very different units, which depend on each other.
UNITS = np.array([1.0, 3e-3, 7e5, 12.5, 1e2])
MIXING = np.random.default_rng(5).normal(size=(D, D)) + np.eye(D)
RULES = pytest.mark.parametrize("rule", ["range", "std"])


def rows_of(seed, n=200, d=D, offset=0.0):
    return (np.random.default_rng(seed).normal(size=(n, d)) @ MIXING[:d, :d] + offset) * UNITS[:d]


# Rules


@RULES
def test_rules_are_their_formulas(rule):
    X = rows_of(0, offset=30.0)
    settled = Linear().in_units(rule).settled(X)
    expected = np.ptp(X, axis=0) if rule == "range" else X.std(axis=0)
    np.testing.assert_allclose(settled.units, expected, rtol=1e-13)
    nested = (RBF("spread") + Laplacian("spread").on([0, 1])).in_units(rule).settled(X)
    inner = (RBF("spread") + Laplacian("spread").on([0, 1])).settled(X / nested.units)
    assert nested.kernel.is_near(inner, 1.0 + 1e-10)


@RULES
def test_weights_are_copies_of_rows(rule):
    X, weights = rows_of(0, 40), np.random.default_rng(1).integers(0, 4, 40)
    kernel = RBF("spread").in_units(rule)
    weighted, copied = kernel.settled(X, weights), kernel.settled(np.repeat(X, weights, axis=0))
    assert weighted.is_near(copied, 1.0 + 1e-9)
    far = np.vstack([X, 1e6 + X])
    assert kernel.settled(far, np.repeat([1.0, 0.0], 40)) == kernel.settled(X)


@RULES
def test_rules_see_the_columns_and_units_around_them(rule):
    X, kernel = rows_of(0), Linear().in_units(rule)
    assert kernel.on([2, 0]).settled(X).kernel == kernel.settled(X[:, [2, 0]])
    assert kernel.in_units(UNITS).settled(X).kernel == kernel.settled(X / UNITS)


@RULES
def test_constant_features_have_the_unit_one(rule):
    X = np.tile([0.0, -3.0, 1e300, 1e-300], (5, 1))
    assert Linear().in_units(rule)._settle(X, None).units == (1.0, 1.0, 1.0, 1.0)
    # Sums of the same numbers in another order.
    rounded = np.array([[0.1 + 0.2 + 0.3], [0.3 + 0.2 + 0.1]])
    assert rounded[0] != rounded[1]
    assert Linear().in_units(rule).settled(rounded).units == (1.0,)


@RULES
@FEWER
@given(exponents=arrays(int, D, elements=st.integers(-40, 40)))
def test_powers_of_two_as_units_change_nothing(rule, exponents):
    X, fresh, factors = rows_of(0), rows_of(1, 30), 2.0**exponents
    kernel, other = (RBF("spread").in_units(rule).settled(rows) for rows in (X, X * factors))
    np.testing.assert_array_equal(other.units / factors, kernel.units)
    np.testing.assert_array_equal(other.matrix(fresh * factors, X * factors), kernel.matrix(fresh, X))


# As values


def test_units_are_parameters():
    model = StreamingKernelPCA(kernel=RBF().in_units("range"))
    assert model.get_params()["kernel__units"] == "range"
    model.set_params(kernel__units=UNITS, kernel__kernel__gamma=0.5)
    assert clone(model).kernel == model.kernel == RBF(0.5).in_units(UNITS)
    assert RBF(0.5).in_units(model.get_params()["kernel__units"]) == model.kernel
    with pytest.raises(ValueError, match=r"the unit of feature 1 must be .* got nan"):
        model.set_params(kernel__units=[1.0, math.nan])


# Refusals


@pytest.mark.parametrize(
    ("units", "error", "message"),
    [
        ([1.0, 0.0], ValueError, r"in_units: the unit of feature 1 must be a finite number in \[1e-150, 1e\+150\]"),
        ([1e-200], ValueError, r"the unit of feature 0 must be .* got 1e-200"),
        ([1.0, "2"], TypeError, "the unit of feature 1 must be a number, got '2'"),
        ([], ValueError, "at least one unit but got none"),
        (np.array(2.0), TypeError, r"expected one positive number for each feature.*but got array\(2.\)"),
        ("iqr", ValueError, "in_units: units must be one of 'range', 'std', got 'iqr'"),
        ([[1.0, 0.0], [0.0, 2.0]], TypeError, r"in_units: .* got a matrix; give the model the rows X @ W\.T"),
    ],
)
def test_invalid_units_are_refused(units, error, message):
    with pytest.raises(error, match=message):
        RBF().in_units(units)


def test_there_must_be_units_for_all_features():
    kernel = RBF(1.0).in_units(UNITS)
    with pytest.raises(ValueError, match=r"matrix: the kernel has units for 5 features but got rows with 3; .*\.on"):
        kernel.matrix(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"on: the kernel has units for 5 features but got rows with 2"):
        kernel.on([0, 1])
    with pytest.raises(ValueError, match=r"in_units: the kernel has units for 5 features but got rows with 2"):
        kernel.in_units([1.0, 2.0])
    with pytest.raises(ValueError, match=r"in_units: the kernel .* uses column 7"):
        RBF(1.0).on([7]).in_units(UNITS)
    model = StreamingKernelPCA(kernel=kernel)
    for learn in (model.partial_fit, model.fit):
        with pytest.raises(ValueError, match=rf"{learn.__name__}: the kernel has units for 5 features but got"):
            learn(np.ones((2, 3)))


def test_units_of_units_stay_in_range():
    with pytest.raises(ValueError, match=r"the unit of feature 0 must be .* got 1e\+200"):
        RBF(1.0).in_units([1e100]).in_units([1e100])


def test_rows_beyond_the_range_of_units_change_nothing():
    X, kernel = np.random.default_rng(0).normal(size=(40, 2)) * [1e-120, 1.0], RBF("spread").in_units([1e-120, 1.0])
    model = StreamingKernelPCA(1, kernel=kernel, block_size=20)
    for before in (X[:5], X[5:]):
        model.partial_fit(before)
        state = model.to_bytes()
        with pytest.raises(ValueError, match=r"feature 0 .* is 1e\+100 .* 1e\+65; divide the feature by a constant"):
            model.partial_fit([[1e-20, 0.0]])
        assert model.to_bytes() == state
    with pytest.raises(ValueError, match=r"InUnits\.matrix: feature 0"):
        kernel.settled(X).matrix(X, [[1e-20, 0.0]])
    with pytest.raises(ValueError, match="in the kernel's units"):
        KernelPCA(1, kernel=kernel).fit(np.vstack([X, [[1e-20, 0.0]]]))


def test_numbers_that_no_unit_makes_small_are_refused_with_a_remedy_that_works():
    rows = np.random.default_rng(0).normal(size=(100, 2)) * [1.0, 1e66]
    rows[:, 1] += 1e70
    model = StreamingKernelPCA(2, kernel=RBF().in_units([1.0, 1.0]))
    with pytest.raises(ValueError, match=r"feature 1 .* the limit is 1e\+65; divide the feature by a constant"):
        model.partial_fit(rows)
    model.partial_fit(rows / [1.0, 1e66])
    assert model.n_samples_seen_ == 100
