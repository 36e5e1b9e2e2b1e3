"""Kernels of rows in units, numbers or a matrix: their values, how rules find units, and what models make of them."""

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
MATRIX = np.random.default_rng(6).normal(size=(D, D)) / UNITS
FORMS = {"numbers": UNITS, "matrix": MATRIX}
RULES = pytest.mark.parametrize("rule", ["range", "std", "whitened"])


def rows_of(seed, n=200, d=D, offset=0.0):
    return (np.random.default_rng(seed).normal(size=(n, d)) @ MIXING[:d, :d] + offset) * UNITS[:d]


def seen_by(units, X):
    units = np.asarray(units)
    return X / units if units.ndim == 1 else X @ units.T


def whitening_of(X):
    """Compute P D^(-1/2) P^T S^-1 by singular value decompositions of standardised rows without each fifth."""
    Z, variances = (X - X.mean(axis=0)) / X.std(axis=0), np.zeros(X.shape[1])
    for fifth in np.split(np.arange(len(X)), np.ceil(np.arange(1, 5) * len(X) / 5).astype(int)):
        known = np.delete(Z, fifth, axis=0)
        directions = np.linalg.svd(known - known.mean(axis=0))[2]
        variances += (((Z[fifth] - known.mean(axis=0)) @ directions.T) ** 2).sum(axis=0) / len(X)
    directions = np.linalg.svd(Z)[2]
    return directions.T @ np.diag(variances**-0.5) @ directions @ np.diag(1.0 / X.std(axis=0))


# Rules


@RULES
def test_rules_are_their_formulas(rule):
    X = rows_of(0, offset=30.0)
    settled = Linear().in_units(rule).settled(X)
    if rule == "whitened":
        W = np.asarray(settled.units)
        np.testing.assert_allclose(W * UNITS, whitening_of(X) * UNITS, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(W * X.std(axis=0), (W * X.std(axis=0)).T, rtol=1e-12, atol=1e-12)
    else:
        expected = np.ptp(X, axis=0) if rule == "range" else X.std(axis=0)
        np.testing.assert_allclose(settled.units, expected, rtol=1e-13)
    nested = (RBF("scale") + Laplacian("median").on([0, 1])).in_units(rule).settled(X)
    inner = (RBF("scale") + Laplacian("median").on([0, 1])).settled(seen_by(nested.units, X))
    assert nested.kernel.is_near(inner, 1.0 + 1e-10)


@RULES
def test_weights_are_copies_of_rows(rule):
    X, weights = rows_of(0, 40), np.random.default_rng(1).integers(0, 4, 40)
    kernel = RBF("scale").in_units(rule)
    weighted, copied = kernel.settled(X, weights), kernel.settled(np.repeat(X, weights, axis=0))
    assert weighted.is_near(copied, 1.0 + 1e-9)
    far = np.vstack([X, 1e6 + X])
    assert kernel.settled(far, np.repeat([1.0, 0.0], 40)) == kernel.settled(X)


@RULES
def test_rules_see_the_columns_and_units_around_them(rule):
    X, kernel = rows_of(0), Linear().in_units(rule)
    assert kernel.on([2, 0]).settled(X).kernel == kernel.settled(X[:, [2, 0]])
    assert kernel.in_units(UNITS).settled(X).kernel == kernel.settled(X / UNITS)


@pytest.mark.parametrize("rule", ["range", "std"])
def test_constant_features_have_the_unit_one(rule):
    X = np.tile([0.0, -3.0, 1e300, 1e-300], (5, 1))
    assert Linear().in_units(rule)._settle(X, None).units == (1.0, 1.0, 1.0, 1.0)
    # Sums of the same numbers in another order.
    rounded = np.array([[0.1 + 0.2 + 0.3], [0.3 + 0.2 + 0.1]])
    assert rounded[0] != rounded[1]
    assert Linear().in_units(rule).settled(rounded).units == (1.0,)


@pytest.mark.parametrize("weights", [None, np.arange(1.0, 201.0)], ids=["alike", "weighted"])
def test_constant_features_stay_out_of_the_whitening(weights):
    X = np.insert(rows_of(0), 2, 1e7, axis=1)
    X = np.insert(X, 4, 0.1 + 0.2, axis=1)
    X[::2, 4] = 0.3  # The same number, as another sum rounds it.
    W = np.asarray(RBF(1.0).in_units("whitened").settled(X, weights).units)
    varying, constant = [0, 1, 3, 5, 6], [2, 4]
    np.testing.assert_array_equal(W[constant], np.eye(7)[constant])
    np.testing.assert_array_equal(W[:, constant], np.eye(7)[:, constant])
    alone = np.asarray(RBF(1.0).in_units("whitened").settled(X[:, varying], weights).units)
    np.testing.assert_array_equal(W[np.ix_(varying, varying)], alone)
    one_row = Linear().in_units("whitened")._settle(np.array([[1e300, 0.0]]), None)
    np.testing.assert_array_equal(np.asarray(one_row.units), np.eye(2))


@RULES
@FEWER
@given(exponents=arrays(int, D, elements=st.integers(-40, 40)))
def test_powers_of_two_as_units_change_nothing(rule, exponents):
    X, fresh, factors = rows_of(0), rows_of(1, 30), 2.0**exponents
    kernel, other = (RBF("spread").in_units(rule).settled(rows) for rows in (X, X * factors))
    own = np.asarray(other.units) * factors if rule == "whitened" else np.asarray(other.units) / factors
    np.testing.assert_array_equal(own, np.asarray(kernel.units))
    np.testing.assert_array_equal(other.matrix(fresh * factors, X * factors), kernel.matrix(fresh, X))


@pytest.mark.parametrize(("share", "n_factors"), [(0.25, 4), (0.5, 60), (1.0, 60), (2.0, 4), (8.0, 60)])
def test_fresh_rows_are_not_much_further_than_the_first_ones(share, n_factors):
    """With the rows' own covariance, independent features are 2 to 700 times as far from a quarter as many rows on."""
    rng, d = np.random.default_rng(0), 60
    loadings = rng.normal(size=(n_factors, d)) if n_factors < d else np.eye(d)
    X, fresh = (
        rng.normal(size=(n, n_factors)) @ loadings + 0.3 * rng.normal(size=(n, d)) for n in (int(d / share), 500)
    )
    W = np.asarray(RBF().in_units("whitened").settled(X).units)
    spread, of_fresh = (np.var(rows @ W.T, axis=0).sum() for rows in (X, fresh))
    assert 0.8 * spread < of_fresh < 2.5 * spread
    repeated = np.asarray(RBF().in_units("whitened").settled(np.tile(X, (3, 1))).units)
    np.testing.assert_allclose(repeated * X.std(axis=0), W * X.std(axis=0), atol=1e-8)


def test_more_features_than_rows_are_whitened_by_the_rows_products():
    """Some rows of 400 features, of which 80 are constant, have the matrix that the covariance would give."""
    rng, d, n = np.random.default_rng(0), 400, 40
    X = rng.normal(size=(n, 10)) @ rng.normal(size=(10, d)) + 0.3 * rng.normal(size=(n, d))
    X[:, ::5] = 7.0
    varies = np.arange(d) % 5 > 0
    W = np.asarray(RBF().in_units("whitened").settled(X).units)
    np.testing.assert_array_equal(W[~varies], np.eye(d)[~varies])
    rows = X[:, varies] / X[:, varies].std(axis=0)
    root = W[np.ix_(varies, varies)] * X[:, varies].std(axis=0)
    sizes, axes = np.linalg.eigh(np.cov(rows.T, bias=True))
    held_out = np.zeros(len(sizes))
    for part in np.array_split(np.arange(n), 5):
        known = np.delete(rows, part, axis=0)
        found, along = np.linalg.eigh(np.cov(known.T, bias=True))
        squares = (((rows[part] - known.mean(axis=0)) @ along) ** 2).sum(axis=0) / n
        unseen = found < 1e-9 * found[-1]
        held_out += np.where(unseen, squares[unseen].mean(), squares)
    scales = 1.0 / np.sqrt(held_out)
    # Axes that no row has are any basis of one space.
    scales[: -(n - 1)] = scales[: -(n - 1)].mean()
    np.testing.assert_allclose(root, (axes * scales) @ axes.T, atol=1e-8)


def test_many_rows_of_many_features_are_whitened_from_some():
    X = np.random.default_rng(0).normal(size=(1500, 1100))
    W = np.asarray(RBF().in_units("whitened").settled(X).units)
    # The rows are independent normal numbers, so no feature says anything of another.
    np.testing.assert_allclose(W, np.eye(1100), atol=0.15)


def test_more_features_than_can_be_whitened_are_refused():
    kernel, X = RBF().in_units("whitened"), np.zeros((2, 2049))
    with pytest.raises(ValueError, match=r'settled: the rule "whitened" expected at most 2048 .* 2049; .* "std"'):
        kernel.settled(X)
    for model in (StreamingKernelPCA(kernel=kernel), KernelPCA(kernel=kernel)):
        with pytest.raises(ValueError, match=r"expected at most 2048 features but got .* PCA\(whiten=True\)"):
            model.fit(X)
    assert kernel.on(range(2)).settled(X).is_settled


# As values


def test_small_matrices_are_printed_and_zeros_have_one_sign():
    assert repr(RBF(0.5).in_units(np.eye(2))) == "RBF(gamma=0.5).in_units(((1.0, 0.0), (0.0, 1.0)))"
    assert repr(RBF(0.5).in_units(np.eye(52))) == "RBF(gamma=0.5).in_units(<matrix of 52 x 52 numbers>)"
    negative_zeros = np.where(np.eye(52) == 0.0, -0.0, np.eye(52))
    assert hash(RBF(0.5).in_units(negative_zeros)) == hash(RBF(0.5).in_units(np.eye(52)))


def test_units_are_parameters():
    model = StreamingKernelPCA(kernel=RBF().in_units("range"))
    assert model.get_params()["kernel__units"] == "range"
    for units in FORMS.values():
        model.set_params(kernel__units=units, kernel__kernel__gamma=0.5)
        assert clone(model).kernel == model.kernel == RBF(0.5).in_units(units)
        again = RBF(0.5).in_units(model.get_params()["kernel__units"])
        assert again == model.kernel
    with pytest.raises(ValueError, match=r"the unit of feature 1 must be .* got nan"):
        model.set_params(kernel__units=[1.0, math.nan])


def test_a_matrix_is_not_that_of_the_caller():
    given_matrix = MATRIX.copy()
    kernel = RBF(0.5).in_units(given_matrix)
    given_matrix[0, 0] = 7.0
    assert kernel == RBF(0.5).in_units(MATRIX)
    with pytest.raises(ValueError, match="read-only"):
        kernel.units.entries[0, 0] = 7.0


# Refusals


@pytest.mark.parametrize(
    ("units", "error", "message"),
    [
        ([1.0, 0.0], ValueError, r"in_units: the unit of feature 1 must be a finite number in \[1e-150, 1e\+150\]"),
        ([1e-200], ValueError, r"the unit of feature 0 must be .* got 1e-200"),
        ([1.0, "2"], TypeError, "the unit of feature 1 must be a number, got '2'"),
        ([], ValueError, "at least one unit but got none"),
        (np.array(2.0), TypeError, r"expected one positive number for each feature.*but got array\(2.\)"),
        ("iqr", ValueError, "in_units: units must be one of 'range', 'std', 'whitened', got 'iqr'"),
        (
            [[1.0, 2.0]],
            ValueError,
            r"in_units: expected a square matrix, .* \(1, 2\); rows x become W x\. .* X @ W",
        ),
        ([[1.0, 2.0], [3.0]], TypeError, r"rows of one length, but got \[\[1.0, 2.0\], \[3.0\]\]"),
        ([[1.0, "a"], [3.0, 1.0]], TypeError, "square matrix of numbers"),
        ([[1.0, 0.0], [0.0, math.nan]], ValueError, r"matrix of finite numbers, .* but got .*nan.* in row 1, column 1"),
        ([[1.0, 0.0], [0.0, 1e200]], ValueError, r"at most 1e\+160 in size, but got .*1e\+200"),
        ([[1.0, 2.0], [2.0, 4.0]], ValueError, r"can be inverted but .* \(2, 2\) is singular, .*; add a"),
        (np.ones((6, 6)) + 1e-17, ValueError, "singular"),
    ],
)
def test_invalid_units_are_refused(units, error, message):
    with pytest.raises(error, match=message):
        RBF().in_units(units)
    # Very different units make no singular matrix.
    scale = np.array([1e-100, 1.0, 1e100, 1e5, 1e-3])
    assert RBF().in_units(MIXING * scale).has_units
    assert RBF().in_units((MIXING.T * scale).T).has_units


@pytest.mark.parametrize("form", ["numbers", "matrix"])
def test_there_must_be_units_for_all_features(form):
    kernel = RBF(1.0).in_units(FORMS[form])
    with pytest.raises(ValueError, match=r"matrix: the kernel has units for 5 features but got rows with 3; .*\.on"):
        kernel.matrix(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"on: the kernel has units for 5 features but got rows with 2"):
        kernel.on([0, 1])
    with pytest.raises(ValueError, match=r"in_units: the kernel has units for 5 features but got rows with 2"):
        kernel.in_units([1.0, 2.0])
    with pytest.raises(ValueError, match=r"in_units: the kernel .* uses column 7"):
        RBF(1.0).on([7]).in_units(FORMS[form])
    model = StreamingKernelPCA(kernel=kernel)
    for learn in (model.partial_fit, model.fit):
        with pytest.raises(ValueError, match=rf"{learn.__name__}: the kernel has units for 5 features but got"):
            learn(np.ones((2, 3)))


def test_units_of_units_stay_in_range():
    with pytest.raises(ValueError, match=r"the unit of feature 0 must be .* got 1e\+200"):
        RBF(1.0).in_units([1e100]).in_units([1e100])
    for units in (1e100 * np.eye(2), [1e-100, 1.0]):
        with pytest.raises(ValueError, match=r"at most 1e\+160 in size"):
            RBF(1.0).in_units(1e100 * np.eye(2)).in_units(units)
    with pytest.raises(ValueError, match=r"too large|in the kernel's units"):
        RBF(1.0).in_units("whitened").settled(rows_of(0) / UNITS * [1e307, 1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("units", [[1e-120, 1.0], [[1e120, 0.5], [0.0, 1.0]]], ids=["numbers", "matrix"])
def test_rows_beyond_the_range_of_units_change_nothing(units):
    X, kernel = np.random.default_rng(0).normal(size=(40, 2)) * [1e-120, 1.0], RBF("scale").in_units(units)
    model = StreamingKernelPCA(1, kernel=kernel, block_size=20)
    for before in (X[:5], X[5:]):
        model.partial_fit(before)
        state = model.to_bytes()
        with pytest.raises(ValueError, match=r"feature 0 .* is 1e\+100 .* 1e\+65; give in_units larger"):
            model.partial_fit([[1e-20, 0.0]])
        assert model.to_bytes() == state
    with pytest.raises(ValueError, match=r"InUnits\.matrix: feature 0"):
        kernel.settled(X).matrix(X, [[1e-20, 0.0]])
    with pytest.raises(ValueError, match="in the kernel's units"):
        KernelPCA(1, kernel=kernel).fit(np.vstack([X, [[1e-20, 0.0]]]))


@pytest.mark.parametrize(("kernel", "far"), [(RBF(0.1), 1e6), (Laplacian(0.1), 1e12), (RBF(0.1), 1e38)])
def test_neither_an_offset_nor_a_row_far_away_takes_digits(kernel, far):
    """Distances are measured from the medians of columns; from their means, a row of 1e20 made all others equal."""
    rng = np.random.default_rng(0)
    kernel = kernel.in_units(np.eye(3) + 0.1 * rng.normal(size=(3, 3)))
    # On a grid that the offset does not round.
    rows = np.round(rng.normal(size=(12, 3)) * 2**10) / 2**10
    np.testing.assert_allclose(kernel.matrix(rows + 2.0**30), kernel.matrix(rows), rtol=1e-9)
    for glitches in (1, 5):
        among = np.concatenate([np.full((glitches, 3), far), rows])
        K = kernel.matrix(among)
        np.testing.assert_allclose(K[glitches:, glitches:], kernel.matrix(rows), rtol=1e-9)
        np.testing.assert_array_equal(K[:glitches, glitches:], 0.0)
        np.testing.assert_array_equal(K[:glitches, :glitches], 1.0)
