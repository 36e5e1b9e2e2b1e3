"""Kernels of rows that a matrix multiplies: their values, how "whitened" finds the matrix, and what stays the same."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from strategies import FEWER

from streamkpca import ApproximateKernelPCA, KernelPCA, SparseKernelPCA, StreamingKernelPCA
from streamkpca.aggregate import Aggregate
from streamkpca.components import preimages
from streamkpca.kernels import (
    RBF,
    Cosine,
    Custom,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
    kernel_from_json,
)
from streamkpca.kernels.program import PreparedKernel

D = 5
# Features of very different units, which depend on each other.
UNITS = np.array([1.0, 3e-3, 7e5, 12.5, 1e2])
MIXING = np.random.default_rng(5).normal(size=(D, D)) + np.eye(D)
MATRIX = np.random.default_rng(6).normal(size=(D, D)) / UNITS
KERNELS: list[Kernel] = [
    RBF(0.1),
    Laplacian(0.2),
    Matern(1.5, length_scale=2.0),
    RationalQuadratic(0.7, length_scale=2.0),
    Linear(),
    Polynomial(2, gamma=0.2),
    Cosine(),
    Sigmoid(0.1),
    Custom(lambda X, Y: X @ Y.T),
    RBF(0.1).scaled_by(lambda X: 1.0 + X[:, 0] ** 2),
    RBF(0.1).on([0, 2]) * Linear() + 0.3 * Cosine().on([3, 1]) ** 2,
]
RIDGE = 1e-2


def name_of(kernel):
    return repr(kernel).split(" at 0x")[0]


def rows_of(seed, n=300, d=D, offset=0.0):
    return (np.random.default_rng(seed).normal(size=(n, d)) @ MIXING[:d, :d] + offset) * UNITS[:d]


def whitening_of(X, ridge=RIDGE):
    """Compute ((R + r I) / (1 + r))^(-1/2) S^-1 by a singular value decomposition of standardised rows."""
    standardised = (X - X.mean(axis=0)) / X.std(axis=0)
    _, lengths, directions = np.linalg.svd(standardised / math.sqrt(len(X)))
    sizes = np.zeros(X.shape[1])
    sizes[: len(lengths)] = lengths**2
    return directions.T @ np.diag(np.sqrt((1.0 + ridge) / (sizes + ridge))) @ directions @ np.diag(1.0 / X.std(axis=0))


# Values


@pytest.mark.parametrize("kernel", KERNELS, ids=name_of)
@pytest.mark.parametrize("shape", [(3, 5), (40, 60)], ids=str)
def test_values_are_those_of_multiplied_rows(kernel, shape):
    X, Y, in_units = rows_of(0, shape[0]), rows_of(1, shape[1]), kernel.in_units(MATRIX)
    seen, others = X @ MATRIX.T, Y @ MATRIX.T
    # Sums are rounded in another order.
    scale = 1e-12 * max(1.0, np.abs(kernel.diagonal(seen)).max())
    np.testing.assert_allclose(in_units.matrix(X, Y), kernel.matrix(seen, others), rtol=1e-11, atol=scale)
    np.testing.assert_allclose(in_units.matrix(X), kernel.matrix(seen), rtol=1e-11, atol=scale)
    np.testing.assert_allclose(in_units.diagonal(X), kernel.diagonal(seen), rtol=1e-11, atol=scale)


@pytest.mark.parametrize("d", [1, 3, 12, 40])
def test_values_by_the_formula(d):
    rng = np.random.default_rng(0)
    X, Y, W = rng.normal(size=(30, d)), rng.normal(size=(20, d)), rng.normal(size=(d, d)) / d
    distances = (((X[:, None] - Y) @ W.T) ** 2).sum(axis=2)
    np.testing.assert_allclose(RBF(0.3).in_units(W).matrix(X, Y), np.exp(-0.3 * distances), rtol=1e-11)
    absolute = np.abs((X[:, None] - Y) @ W.T).sum(axis=2)
    np.testing.assert_allclose(Laplacian(0.3).in_units(W).matrix(X, Y), np.exp(-0.3 * absolute), rtol=1e-11)


def test_distances_are_those_of_mahalanobis():
    X = rows_of(0)
    C = np.cov(X.T)
    difference = X[:1] - X
    expected = np.einsum("ni,ij,nj->n", difference, np.linalg.inv(C), difference)
    found = -np.log(RBF(0.01).in_units(np.linalg.inv(np.linalg.cholesky(C))).matrix(X[:1], X)[0]) / 0.01
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_a_diagonal_matrix_holds_one_over_units():
    X = rows_of(0)
    for kernel in (RBF(0.1), Laplacian(0.1), Linear(), Cosine()):
        divided = kernel.in_units(UNITS).matrix(X)
        np.testing.assert_allclose(kernel.in_units(np.diag(1.0 / UNITS)).matrix(X), divided, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", [RBF(0.05), Laplacian(0.05), Matern(0.5, length_scale=3.0)], ids=repr)
@pytest.mark.parametrize("d", [3, 12], ids=str)
def test_far_from_the_origin_no_digits_are_lost(kernel, d):
    rng = np.random.default_rng(0)
    # On a grid that the shift does not round.
    X, W = np.round(rng.normal(size=(50, d)) * 2**10) / 2**10, rng.normal(size=(d, d))
    near, far = (kernel.in_units(W).matrix(X, X[:20] + shift) for X, shift in ((X, 0.0), (X + 2.0**30, 0.0)))
    np.testing.assert_allclose(far, near, rtol=1e-9)


@pytest.mark.parametrize("d", [3, 40], ids=str)
def test_equal_rows_are_at_distance_zero_wherever_they_stand(d):
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(70, d)) + 1e6, rng.normal(size=(d, d))
    for n in (1, 3, 70):
        np.testing.assert_array_equal(np.diagonal(RBF(1e3).in_units(W).matrix(X[:n], X)), 1.0)
        np.testing.assert_array_equal(np.diagonal(Laplacian(1e3).in_units(W).matrix(X[:n], X)), 1.0)


def test_columns_are_chosen_before_or_after():
    X = rows_of(0, 20)
    W = MATRIX[:2, :2]
    inside = RBF(0.5).in_units(W).on([3, 1])
    np.testing.assert_allclose(inside.matrix(X), RBF(0.5).matrix(X[:, [3, 1]] @ W.T), rtol=1e-11)
    outside = RBF(0.5).on([3, 1]).in_units(MATRIX)
    np.testing.assert_allclose(outside.matrix(X), RBF(0.5).matrix((X @ MATRIX.T)[:, [3, 1]]), rtol=1e-11)
    both = RBF(0.5).on([1]).in_units(W).on([3, 1])
    np.testing.assert_allclose(both.matrix(X), RBF(0.5).matrix((X[:, [3, 1]] @ W.T)[:, [1]]), rtol=1e-11)


def test_units_of_units_multiply():
    X, inner = rows_of(0, 20), MIXING
    nested = Laplacian(0.1).in_units(inner).in_units(MATRIX)
    np.testing.assert_allclose(nested.matrix(X), Laplacian(0.1).in_units(inner @ MATRIX).matrix(X), rtol=1e-11)
    nested = Laplacian(0.1).in_units(inner).in_units(UNITS)
    np.testing.assert_allclose(nested.matrix(X), Laplacian(0.1).in_units(inner / UNITS).matrix(X), rtol=1e-11)
    divided = np.arange(1.0, 6.0)
    nested = Laplacian(0.1).in_units(divided).in_units(MATRIX)
    expected = Laplacian(0.1).in_units(MATRIX / divided[:, None])
    np.testing.assert_allclose(nested.matrix(X), expected.matrix(X), rtol=1e-11)


def test_units_inside_sums_and_products_are_their_own():
    X, Y = rows_of(0, 20), rows_of(1, 30)
    mixed = Linear().in_units(UNITS) + 2.0 * RBF(0.1).in_units(MATRIX) * Laplacian(0.2).on([1]).in_units(UNITS)
    rbf, laplacian = RBF(0.1).matrix(X @ MATRIX.T, Y @ MATRIX.T), Laplacian(0.2).matrix(X[:, [1]], Y[:, [1]] * 1.0)
    laplacian = Laplacian(0.2).matrix(X[:, [1]] / UNITS[1], Y[:, [1]] / UNITS[1])
    expected = (X / UNITS) @ (Y / UNITS).T + 2.0 * rbf * laplacian
    np.testing.assert_allclose(mixed.matrix(X, Y), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel.is_compiled], ids=repr)
def test_single_rows_get_the_answers_of_many(kernel):
    X, Z = rows_of(0, 30, offset=100.0), rows_of(1, 12, offset=100.0)
    mixed = kernel.in_units(MATRIX) + RBF(0.1).on([1, 4]) + Laplacian(0.1).in_units(UNITS)
    for one in (kernel.in_units(MATRIX), mixed):
        projected = PreparedKernel(one.program, Z).project(X[:1], np.eye(12), np.zeros(12))
        np.testing.assert_allclose(projected, one.matrix(X, Z)[:1], rtol=1e-9)


def test_layouts_do_not_matter():
    X = rows_of(0, 30)
    kernel = RBF(0.1).in_units(MATRIX)
    expected = kernel.matrix(X, X[:9])
    for rows in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2]):
        np.testing.assert_array_equal(kernel.matrix(rows, X[:9]), expected)
    np.testing.assert_array_equal(RBF(0.1).in_units(np.asfortranarray(MATRIX)).matrix(X, X[:9]), expected)


# What "whitened" finds


def test_whitened_rows_by_the_formula():
    X = rows_of(0, offset=30.0)
    W = np.asarray(RBF().in_units("whitened").settled(X).units)
    np.testing.assert_allclose(W * UNITS, whitening_of(X) * UNITS, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(W * X.std(axis=0), (W * X.std(axis=0)).T, rtol=1e-12, atol=1e-12)
    # Of variance 1 but for the ridge: an eigenvalue s of the correlations becomes (1 + r) s / (s + r).
    sizes = np.linalg.eigvalsh(np.corrcoef(X.T))
    found = np.linalg.eigvalsh(np.cov((X @ W.T).T, bias=True))
    np.testing.assert_allclose(found, (1.0 + RIDGE) * sizes / (sizes + RIDGE), rtol=1e-9)


def test_without_correlations_it_is_the_deviation():
    X = np.stack(np.meshgrid([1.0, 2.0, 5.0], [-1e5, 1e5], [0.0, 1e-3, 2e-3]), axis=-1).reshape(-1, 3)
    X = np.repeat(X, 20, axis=0) + 0.0
    W = np.asarray(Linear().in_units("whitened").settled(X).units)
    np.testing.assert_allclose(W * X.std(axis=0), np.eye(3), atol=1e-12)


def test_widths_are_settled_on_whitened_rows():
    X = rows_of(0)
    settled = (RBF("spread") + Laplacian("median").on([0, 1])).in_units("whitened").settled(X)
    expected = (RBF("spread") + Laplacian("median").on([0, 1])).settled(X @ np.asarray(settled.units).T)
    assert settled.kernel.left.gamma == pytest.approx(expected.left.gamma, rel=1e-10)
    assert settled.kernel.right.kernel.gamma == pytest.approx(expected.right.kernel.gamma, rel=1e-10)


@FEWER
@given(exponents=arrays(int, D, elements=st.integers(-40, 40)))
def test_powers_of_two_as_units_change_nothing(exponents):
    X, fresh, factors = rows_of(0, 200), rows_of(1, 30), 2.0**exponents
    kernel, other = (RBF("spread").in_units("whitened").settled(rows) for rows in (X, X * factors))
    np.testing.assert_array_equal(np.asarray(other.units) * factors, np.asarray(kernel.units))
    np.testing.assert_array_equal(other.matrix(fresh * factors, X * factors), kernel.matrix(fresh, X))


def test_temperatures_and_shares_and_offsets_change_nothing_but_rounding():
    X, fresh, factors = rows_of(0) / UNITS, rows_of(1) / UNITS, np.array([1e5, 1e-3, 1.0, 7e-9, 3e11])
    offsets = np.array([3.0, -1e4, 0.0, 1e6, 10.0])
    kernel = RBF("spread").in_units("whitened").settled(X)
    other = RBF("spread").in_units("whitened").settled((X + offsets) * factors)
    found = other.matrix((fresh + offsets) * factors, (X + offsets) * factors)
    # Rows a million deviations away are rounded by 1e-10 of a deviation, of which a ridge makes up to ten times that.
    np.testing.assert_allclose(found, kernel.matrix(fresh, X), atol=1e-8)


@pytest.mark.parametrize("weights", [None, np.arange(1.0, 301.0)], ids=["alike", "weighted"])
def test_constant_features_are_left_out_and_have_the_unit_one(weights):
    X = np.insert(rows_of(0), 2, 1e7, axis=1)
    X = np.insert(X, 4, 0.1 + 0.2, axis=1)
    X[::2, 4] = 0.3  # The same number, as another sum rounds it.
    W = np.asarray(RBF(1.0).in_units("whitened").settled(X, weights).units)
    for constant in (2, 4):
        expected = np.eye(7)[constant]
        np.testing.assert_array_equal(W[constant], expected)
        np.testing.assert_array_equal(W[:, constant], expected)
    varying = [0, 1, 3, 5, 6]
    alone = np.asarray(RBF(1.0).in_units("whitened").settled(X[:, varying], weights).units)
    np.testing.assert_array_equal(W[np.ix_(varying, varying)], alone)


@pytest.mark.parametrize("rows", [[[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]], [[1e300, 0.0]]], ids=str)
def test_rows_that_do_not_vary_stay_as_they_are(rows):
    settled = Linear().in_units("whitened")._settle(np.array(rows), None)
    np.testing.assert_array_equal(np.asarray(settled.units), np.eye(2))


def test_numbers_near_the_limits_are_refused_or_counted_as_constant():
    X = rows_of(0) / UNITS
    for scale in (1e-160, 1e-140, 1e60):
        W = np.asarray(RBF(1.0).in_units("whitened").settled(X * [scale, 1.0, 1.0, 1.0, 1.0]).units)
        assert np.isfinite(W).all()
    with pytest.raises(ValueError, match=r"too large|in the kernel's units"):
        RBF(1.0).in_units("whitened").settled(X * [1e307, 1.0, 1.0, 1.0, 1.0])


def test_two_features_that_are_the_same():
    X = rows_of(0)
    X[:, 1] = -2.0 * X[:, 0]
    kernel = RBF("spread").in_units("whitened").settled(X)
    W = np.asarray(kernel.units)
    np.testing.assert_allclose(W * X.std(axis=0), whitening_of(X) * X.std(axis=0), atol=1e-9)
    # What breaks the relation counts (1 + 1 / r)^(1/2) times at most.
    assert np.linalg.norm(W * X.std(axis=0), 2) <= math.sqrt(1.0 + 1.0 / RIDGE) * (1.0 + 1e-9)


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("n_factors", [4, 60], ids=["factors", "independent"])
def test_fresh_rows_are_not_much_further_than_the_first_ones(share, n_factors):
    """With a ridge of 1e-2 alone, independent features are 2 to 700 times as far from a quarter as many rows on."""
    rng, d = np.random.default_rng(0), 60
    loadings = rng.normal(size=(n_factors, d)) if n_factors < d else np.eye(d)
    X, fresh = (
        rng.normal(size=(n, n_factors)) @ loadings + 0.3 * rng.normal(size=(n, d)) for n in (int(d / share), 500)
    )
    W = np.asarray(RBF().in_units("whitened").settled(X).units)
    spread, of_fresh = (np.var(rows @ W.T, axis=0).sum() for rows in (X, fresh))
    assert 0.8 * spread < of_fresh < 2.5 * spread
    ridge = max(RIDGE, (d / len(X)) ** 2)
    np.testing.assert_allclose(W * X.std(axis=0), whitening_of(X, ridge) * X.std(axis=0), atol=1e-8)


def test_weights_are_copies_of_rows():
    X, weights = rows_of(0, 40), np.random.default_rng(1).integers(0, 4, 40)
    weighted = RBF("scale").in_units("whitened").settled(X, weights)
    copied = RBF("scale").in_units("whitened").settled(np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(np.asarray(weighted.units) * UNITS, np.asarray(copied.units) * UNITS, atol=1e-10)
    assert weighted.kernel.gamma == pytest.approx(copied.kernel.gamma, rel=1e-9)
    halved = RBF("scale").in_units("whitened").settled(X, 0.5 * weights)
    np.testing.assert_allclose(np.asarray(weighted.units) * UNITS, np.asarray(halved.units) * UNITS, atol=1e-12)
    counting = RBF("scale").in_units("whitened").settled(np.vstack([X, 1e3 + X]), np.repeat([1.0, 0.0], 40))
    assert counting == RBF("scale").in_units("whitened").settled(X)


def test_it_is_settled_on_the_columns_and_units_around_it():
    X = rows_of(0)
    chosen = Linear().in_units("whitened").on([2, 0]).settled(X)
    assert chosen.kernel == Linear().in_units("whitened").settled(X[:, [2, 0]])
    nested = Linear().in_units("whitened").in_units(UNITS).settled(X)
    assert nested.kernel == Linear().in_units("whitened").settled(X / UNITS)
    # Whitened rows are white.
    again = Linear().in_units("std").in_units("whitened").settled(X)
    np.testing.assert_allclose(again.kernel.units, 1.0, rtol=0.2)


def test_more_features_than_it_can_whiten_are_refused():
    kernel = RBF().in_units("whitened")
    X = np.zeros((2, 2049))
    with pytest.raises(ValueError, match=r'settled: the rule "whitened" expected at most 2048 .* 2049; .* "std"'):
        kernel.settled(X)
    with pytest.raises(ValueError, match='partial_fit: the rule "whitened" expected at most 2048 features but got'):
        StreamingKernelPCA(kernel=kernel).partial_fit(X)
    with pytest.raises(ValueError, match='the rule "whitened" expected at most 2048 features but got'):
        KernelPCA(kernel=kernel).fit(X)
    assert kernel.on(range(2)).settled(X).is_settled


# Models


def models(kernel, **atoms):
    return [
        StreamingKernelPCA(2, kernel=kernel, block_size=100, tolerance=1e-2, random_state=0, **atoms),
        KernelPCA(2, kernel=kernel),
        SparseKernelPCA(2, kernel=kernel),
        ApproximateKernelPCA(2, kernel=kernel, max_atoms=15, **atoms),
    ]


@pytest.mark.parametrize("kernel", [RBF("spread"), Laplacian("median"), Linear(), Matern(2.5).on([0, 2])], ids=repr)
def test_models_are_those_of_whitened_rows(kernel):
    X, fresh = rows_of(0, offset=20.0), rows_of(1, 25, offset=20.0)
    for position, model in enumerate(models(kernel.in_units("whitened"), atoms="rows")):
        model.fit(X)
        W = np.asarray(model.kernel_.units)
        plain = models(model.kernel_.kernel, atoms="rows")[position].fit(X @ W.T)
        if not isinstance(model, StreamingKernelPCA):
            assert model.kernel_ == kernel.in_units("whitened").settled(X)
        scale = np.abs(plain.kernel_.diagonal(fresh @ W.T)).max()
        for rows in (fresh, fresh[:1]):
            found = model.reconstruction_error(rows)
            np.testing.assert_allclose(found, plain.reconstruction_error(rows @ W.T), atol=1e-7 * scale)
            np.testing.assert_allclose(
                np.abs(model.transform(rows)), np.abs(plain.transform(rows @ W.T)), atol=1e-6 * math.sqrt(scale)
            )


@pytest.mark.parametrize("kernel", [RBF("spread"), Laplacian("spread"), RBF("median").on([0, 2]) + Linear()], ids=repr)
def test_atoms_move_and_leave_less(kernel):
    """They move in other steps than among whitened rows, as curvatures are those of features."""
    X, fresh = rows_of(0), rows_of(1)
    moved, stayed = (
        ApproximateKernelPCA(2, kernel=kernel.in_units("whitened"), max_atoms=8, atoms=atoms).fit(X)
        for atoms in ("moved", "rows")
    )
    assert set(moved.atom_rows_) == {-1}
    plain = ApproximateKernelPCA(2, kernel=moved.kernel_.kernel, max_atoms=8).fit(X @ np.asarray(moved.kernel_.units).T)
    errors = [np.mean(model.reconstruction_error(X)) for model in (moved, stayed)]
    expected = np.mean(plain.reconstruction_error(X @ np.asarray(moved.kernel_.units).T))
    assert errors[0] < errors[1]
    assert errors[0] == pytest.approx(expected, rel=0.02)
    assert np.isfinite(moved.reconstruction_error(fresh)).all()


def test_a_stream_settles_the_same_whatever_the_cuts():
    X = rows_of(0, 300)
    first, second = (
        StreamingKernelPCA(2, kernel=RBF().in_units("whitened"), block_size=64, random_state=0) for _ in range(2)
    )
    first.partial_fit(X)
    for start in range(0, 300, 7):
        second.partial_fit(X[start : start + 7])
    assert first.kernel_ == second.kernel_
    assert RBF().in_units("whitened").settled(X[:256]).is_near(first.kernel_)
    np.testing.assert_array_equal(first.transform(X), second.transform(X))


@pytest.mark.parametrize("d", [3, 12, 30])
def test_a_stream_of_any_width_is_the_same_whatever_the_cuts(d):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, d)) @ rng.normal(size=(d, d)) + 50.0
    whole, cut = (
        StreamingKernelPCA(2, kernel=RBF().in_units("whitened"), block_size=64, random_state=0) for _ in range(2)
    )
    whole.partial_fit(X)
    for start in range(0, 300, 37):
        cut.partial_fit(X[start : start + 37])
    assert whole.to_bytes() == cut.to_bytes()
    np.testing.assert_allclose(whole.transform(X[:1]), whole.transform(X)[:1], atol=1e-9)


def test_pre_images_are_those_of_whitened_rows():
    X, fresh = rows_of(0, 400, offset=5.0), rows_of(1, 50, offset=5.0)
    model = KernelPCA(4, kernel=RBF("spread").in_units("whitened")).fit(X)
    W = np.asarray(model.kernel_.units)
    plain = KernelPCA(4, kernel=model.kernel_.kernel).fit(X @ W.T)
    found = model.inverse_transform(model.transform(fresh)) @ W.T
    expected = plain.inverse_transform(plain.transform(fresh @ W.T))
    # The ridge of the guess is chosen by errors of features and not of whitened ones; most rows are found alike.
    assert np.median(np.abs(found - expected)) < 0.05
    near = np.mean((found - fresh @ W.T) ** 2)
    assert near < 1.1 * np.mean((expected - fresh @ W.T) ** 2)


def test_the_fixed_point_is_that_of_whitened_rows():
    atoms = rows_of(0, 30)
    combinations = np.random.default_rng(1).uniform(0.1, 1.0, (5, 30))
    found, reached = preimages._iterated(RBF(0.1).in_units(MATRIX), atoms, combinations, atoms[:5].copy())
    others = atoms @ MATRIX.T
    expected, most = preimages._iterated(RBF(0.1), others, combinations, others[:5].copy())
    np.testing.assert_allclose(found @ MATRIX.T, expected, atol=1e-4)
    np.testing.assert_allclose(reached, most, rtol=1e-9)


def test_the_fixed_point_of_views_by_different_matrices():
    """The gradient is zero: sum_p gamma_p sum_i c_i k_p(x, z_i) W_p^T W_p (z_i - x)."""
    rng = np.random.default_rng(3)
    atoms, other = rows_of(0, 30) / UNITS, np.eye(D) + 0.3 * rng.normal(size=(D, D))
    matrices = [MATRIX * UNITS, other, np.diag(1.0 / np.array([1.0, 2.0, 0.5, 1.0, 1.0])), other[[1, 3]]]
    parts = [
        RBF(0.05).in_units(matrices[0]),
        RBF(0.1).in_units(other),
        RBF(0.05).in_units([1.0, 2.0, 0.5, 1.0, 1.0]),
        RBF(0.1).on([1, 3]).in_units(other),
    ]
    gammas = [0.05, 0.1, 0.05, 0.1]
    combinations = rng.uniform(0.1, 1.0, (5, 30))
    found, reached = preimages._iterated(
        parts[0] + parts[1] + parts[2] + parts[3], atoms, combinations, atoms[:5].copy()
    )
    gradient, size = np.zeros_like(found), np.zeros_like(found)
    for part, gamma, W in zip(parts, gammas, matrices, strict=True):
        pulls = (combinations * part.matrix(found, atoms))[:, :, None] * ((atoms - found[:, None]) @ (gamma * W.T @ W))
        gradient += pulls.sum(axis=1)
        size += np.abs(pulls).sum(axis=1)
    np.testing.assert_array_less(np.abs(gradient), 1e-3 * size)
    assert (reached > 0.0).all()


# As values


def settled_kernel(d=D):
    return RBF("spread").in_units("whitened").settled(rows_of(0, d=d))


def test_what_is_known_of_a_kernel_stays():
    for units in ("whitened", MATRIX):
        assert RBF().in_units(units).is_stationary
        assert RBF().in_units(units).is_positive_definite
        assert RBF().in_units(units).has_units
        assert not Linear().in_units(units).is_stationary
        assert not Sigmoid().in_units(units).is_positive_definite
        assert not Custom(np.dot).in_units(units).is_compiled
    assert not RBF(1.0).in_units("whitened").is_settled
    assert RBF(1.0).in_units(MATRIX).is_settled
    assert not RBF().in_units(MATRIX).is_settled


@pytest.mark.parametrize("d", [2, 4, 5], ids=str)
def test_kernels_with_matrices_are_values(d):
    kernel = settled_kernel(d)
    same = RBF(kernel.kernel.gamma).in_units(np.array(kernel.units))
    assert kernel == same
    assert hash(kernel) == hash(same)
    for copied in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
        assert copied == kernel
        np.testing.assert_array_equal(copied.matrix(rows_of(1, d=d)), kernel.matrix(rows_of(1, d=d)))
        assert not np.asarray(copied.units.entries).flags.writeable
    changed = np.array(kernel.units)
    changed[0, 1] = np.nextafter(changed[0, 1], np.inf)
    assert kernel != RBF(kernel.kernel.gamma).in_units(changed)
    assert kernel != RBF(kernel.kernel.gamma)
    assert kernel_from_json(kernel.to_json(), where="load") == kernel
    combined = (2.0 * kernel + Linear().in_units("whitened")) ** 2 * kernel.on(range(d))
    assert kernel_from_json(combined.to_json(), where="load") == combined


def test_small_matrices_are_printed_and_zeros_have_one_sign():
    assert repr(RBF(0.5).in_units(np.eye(2))) == "RBF(gamma=0.5).in_units(((1.0, 0.0), (0.0, 1.0)))"
    assert repr(RBF(0.5).in_units(np.eye(52))) == "RBF(gamma=0.5).in_units(<matrix of 52 x 52 numbers>)"
    negative_zeros = np.where(np.eye(52) == 0.0, -0.0, np.eye(52))
    assert hash(RBF(0.5).in_units(negative_zeros)) == hash(RBF(0.5).in_units(np.eye(52)))


def test_matrices_are_parameters():
    model = StreamingKernelPCA(kernel=RBF().in_units("whitened"))
    assert model.get_params()["kernel__units"] == "whitened"
    model.set_params(kernel__units=MATRIX, kernel__kernel__gamma=0.5)
    assert model.kernel == RBF(0.5).in_units(MATRIX)
    assert clone(model).kernel == model.kernel
    np.testing.assert_array_equal(np.asarray(model.get_params()["kernel__units"]), MATRIX)
    again = StreamingKernelPCA(kernel=RBF()).set_params(kernel=RBF(0.5).in_units(model.get_params()["kernel__units"]))
    assert again.kernel == model.kernel


def test_a_matrix_is_not_that_of_the_caller():
    given_matrix = MATRIX.copy()
    kernel = RBF(0.5).in_units(given_matrix)
    given_matrix[0, 0] = 7.0
    assert kernel == RBF(0.5).in_units(MATRIX)
    with pytest.raises(ValueError, match="read-only"):
        kernel.units.entries[0, 0] = 7.0


def test_partitions_share_the_matrix_of_the_first_rows():
    X = rows_of(0)
    kernel = RBF("median").in_units("whitened")
    empty = Aggregate(StreamingKernelPCA(kernel=kernel).partial_fit(X[:64]))
    assert empty.zero().add(X[64:]).kernel_ == kernel.settled(X[:64])


def test_only_models_of_the_same_matrix_merge():
    X, Y = rows_of(0, 60), rows_of(1, 60)
    first, second = (
        StreamingKernelPCA(2, kernel=RBF(0.5).in_units("whitened"), block_size=30).partial_fit(rows) for rows in (X, Y)
    )
    with pytest.raises(ValueError, match=r"a model with the kernel RBF.*<matrix of 5 x 5 numbers>\) but got RBF"):
        first.merge(second)
    shared = StreamingKernelPCA(2, kernel=first.kernel_, block_size=30).partial_fit(Y)
    assert first.merge(shared).n_samples_seen_ == 120


# Checkpoints


@pytest.mark.parametrize("units", ["whitened", MATRIX], ids=["rule", "matrix"])
@pytest.mark.parametrize("atoms", ["rows", "moved"])
@pytest.mark.parametrize("seen", [0, 10, 200])
def test_a_checkpoint_goes_on_bit_for_bit(units, atoms, seen):
    X = rows_of(0)
    kernel = RBF("median").in_units(units) + 0.1 * Linear().in_units("whitened")
    model = StreamingKernelPCA(2, kernel=kernel, atoms=atoms, block_size=50, random_state=0)
    if seen:
        model.partial_fit(X[:seen])
    restored = StreamingKernelPCA.from_bytes(model.to_bytes())
    assert restored.to_bytes() == model.to_bytes()
    assert restored.kernel == model.kernel
    np.testing.assert_array_equal(restored.partial_fit(X[seen:]).transform(X), model.partial_fit(X[seen:]).transform(X))
    assert restored.kernel_ == model.kernel_
    assert restored.to_bytes() == model.to_bytes()


# Refusals


@pytest.mark.parametrize(
    ("units", "error", "message"),
    [
        (
            [[1.0, 2.0]],
            ValueError,
            r"in_units: expected a square matrix, .* shape \(1, 2\); rows x become W x\. .* X @ W",
        ),
        (np.ones((2, 3)), ValueError, r"square matrix, .* shape \(2, 3\)"),
        (np.ones((2, 2, 2)), ValueError, r"square matrix, .* shape \(2, 2, 2\)"),
        ([[1.0, 2.0], [3.0]], TypeError, r"rows of one length, but got \[\[1.0, 2.0\], \[3.0\]\]"),
        ([[1.0, "a"], [3.0, 1.0]], TypeError, "square matrix of numbers"),
        (np.eye(2) * 1j, TypeError, "square matrix of numbers"),
        (np.eye(2) > 0.0, TypeError, "square matrix of numbers"),
        ([[1.0, 0.0], [0.0, math.nan]], ValueError, "matrix of finite numbers, .* but got .*nan.* in row 1, column 1"),
        ([[1.0, math.inf], [0.0, 1.0]], ValueError, "finite numbers, .* inf.* in row 0, column 1; check how"),
        ([[1.0, 0.0], [0.0, 1e200]], ValueError, r"at most 1e\+160 in size, but got .*1e\+200"),
        (
            [[1.0, 2.0], [2.0, 4.0]],
            ValueError,
            r"can be inverted but this one of shape \(2, 2\) is singular, .*; add a",
        ),
        (np.zeros((3, 3)), ValueError, "singular"),
        ([[1e100, 0.0], [0.0, 0.0]], ValueError, "singular"),
        (np.ones((6, 6)) + 1e-17, ValueError, "singular"),
    ],
)
def test_invalid_matrices_are_refused(units, error, message):
    with pytest.raises(error, match=message):
        RBF().in_units(units)


def test_very_different_units_are_no_singular_matrix():
    scale = np.array([1e-100, 1.0, 1e100, 1e5, 1e-3])
    assert RBF().in_units(MIXING * scale).is_settled is False
    assert RBF().in_units((MIXING.T * scale).T).has_units


def test_a_matrix_must_be_for_all_features():
    kernel = RBF(1.0).in_units(MATRIX)
    with pytest.raises(ValueError, match=r"matrix: the kernel has a matrix for 5 features but got rows with 3; .*\.on"):
        kernel.matrix(np.ones((2, 3)))
    with pytest.raises(ValueError, match="on: the kernel has a matrix for 5 features but got rows with 2"):
        kernel.on([0, 1])
    with pytest.raises(ValueError, match="in_units: the kernel has a matrix for 5 features but got rows with 2"):
        kernel.in_units(np.eye(2))
    with pytest.raises(ValueError, match=r"in_units: the kernel .* uses column 7"):
        RBF(1.0).on([7]).in_units(MATRIX)
    model = StreamingKernelPCA(kernel=kernel)
    for learn in (model.partial_fit, model.fit):
        with pytest.raises(ValueError, match=rf"{learn.__name__}: the kernel has a matrix for 5 features but got"):
            learn(np.ones((2, 3)))


def test_units_of_units_stay_in_range():
    with pytest.raises(ValueError, match=r"at most 1e\+160 in size"):
        RBF(1.0).in_units(1e100 * np.eye(2)).in_units(1e100 * np.eye(2))
    with pytest.raises(ValueError, match=r"at most 1e\+160 in size"):
        RBF(1.0).in_units(1e100 * np.eye(2)).in_units([1e-100, 1.0])


def test_rows_beyond_the_range_of_a_matrix_change_nothing():
    X = np.random.default_rng(0).normal(size=(40, 2)) * [1e-120, 1.0]
    kernel = RBF(1.0).in_units([[1e120, 0.5], [0.0, 1.0]])
    model = StreamingKernelPCA(1, kernel=kernel, block_size=20)
    for before in (X[:5], X[5:]):
        model.partial_fit(before)
        state = model.to_bytes()
        with pytest.raises(ValueError, match=r"kernel: feature 0 .* is 1e\+100 .* 1e\+65; give in_units larger"):
            model.partial_fit([[1e-20, 0.0]])
        assert model.to_bytes() == state
    with pytest.raises(ValueError, match=r"InUnits\.matrix: feature 0"):
        kernel.matrix(X, [[1e-20, 0.0]])


def test_rows_infinitely_far_resemble_no_atom():
    X = np.random.default_rng(0).normal(size=(60, 12)) * 1e-100
    W = 1e100 * (np.eye(12) - 0.05)
    model = StreamingKernelPCA(2, kernel=RBF(0.1).in_units(W), block_size=20).partial_fit(X)
    far = np.full((6, 12), 1e250)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(model.reconstruction_error(far), np.ones(6))
        np.testing.assert_array_equal(model.reconstruction_error(far[:1]), [1.0])


@pytest.mark.parametrize("far", [1e6, 1e12, 1e20, 1e38])
@pytest.mark.parametrize("make", [RBF, Laplacian])
def test_a_row_far_away_takes_no_digits_from_the_others(make, far):
    """Distances are measured from the medians of columns; from their means, a row of 1e20 made all others equal."""
    rng = np.random.default_rng(0)
    kernel = make(0.1).in_units(np.eye(3) + 0.1 * rng.normal(size=(3, 3)))
    rows = rng.normal(size=(12, 3))
    for glitches in (1, 5):
        among = np.concatenate([np.full((glitches, 3), far), rows])
        K = kernel.matrix(among)
        np.testing.assert_allclose(K[glitches:, glitches:], kernel.matrix(rows), rtol=1e-9)
        np.testing.assert_array_equal(K[:glitches, glitches:], 0.0)
        np.testing.assert_array_equal(K[:glitches, :glitches], 1.0)


def test_a_stream_with_a_glitch_is_saved_and_loaded():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(400, 2))
    rows[200] = 1e20
    kernel = RBF(0.5).in_units([[1.0, 0.5], [0.0, 1.0]])
    model = StreamingKernelPCA(2, kernel=kernel, max_atoms=None, tolerance=0.01, block_size=64).partial_fit(rows)
    assert (np.abs(model.atoms_) > 1e19).any()
    assert StreamingKernelPCA.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
    assert model.novelty([[30.0, -30.0]])[0] > 1.0
