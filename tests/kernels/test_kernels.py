"""Every kernel against an independent formula, and the promises about exactness, memory and errors."""

import functools
import operator
import pickle
import tracemalloc

import numba
import numpy as np
import pytest
from kinds import quiet
from sklearn.gaussian_process import kernels as gaussian
from sklearn.metrics import pairwise

from streamkpca.kernels import (
    RBF,
    Cosine,
    Custom,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from streamkpca.kernels import _loops as kernel_loops
from streamkpca.kernels import program as kernel_programs

PRIMITIVES = [
    (Linear(), pairwise.linear_kernel),
    (Polynomial(3, gamma=0.3, coef0=0.5), lambda X, Y: pairwise.polynomial_kernel(X, Y, 3, 0.3, 0.5)),
    (Polynomial(1, gamma=2.0, coef0=0.0), lambda X, Y: 2.0 * X @ Y.T),
    (RBF(0.4), lambda X, Y: pairwise.rbf_kernel(X, Y, 0.4)),
    (Laplacian(0.4), lambda X, Y: pairwise.laplacian_kernel(X, Y, 0.4)),
    (Matern(0.5, length_scale=1.7), gaussian.Matern(1.7, nu=0.5)),
    (Matern(1.5, length_scale=1.7), gaussian.Matern(1.7, nu=1.5)),
    (Matern(2.5, length_scale=1.7), gaussian.Matern(1.7, nu=2.5)),
    (RationalQuadratic(1.0, length_scale=1.7), gaussian.RationalQuadratic(1.7, alpha=1.0)),
    (RationalQuadratic(4.0, length_scale=1.7), gaussian.RationalQuadratic(1.7, alpha=4.0)),
    (RationalQuadratic(0.3, length_scale=1.7), gaussian.RationalQuadratic(1.7, alpha=0.3)),
    (Cosine(), pairwise.cosine_similarity),
    (Sigmoid(0.2, coef0=-0.5), lambda X, Y: pairwise.sigmoid_kernel(X, Y, 0.2, -0.5)),
]
STATIONARY = [kernel for kernel, _ in PRIMITIVES if kernel.is_stationary]
UNSETTLED = [
    *(kind() for kind in (RBF, Laplacian, Matern, RationalQuadratic, Polynomial, Sigmoid)),
    *(RBF("spread"), Matern(2.5, length_scale="spread")),
]


def overlap(X, Y):
    return np.minimum(np.abs(X)[:, None], np.abs(Y)[None]).sum(axis=2)


def rows(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize(("kernel", "reference"), PRIMITIVES, ids=[repr(kernel) for kernel, _ in PRIMITIVES])
def test_kernel_is_its_formula_symmetric_and_positive_semidefinite(kernel, reference):
    # The last has rows longer than what is worked on at once.
    for n, m, d in [(1, 1, 1), (1, 6, 3), (7, 1, 2), (9, 8, 20), (6, 5, 9), (5, 7, 1), (5, 1030, 2)]:
        X, Y = rows(n, d), rows(m, d, 1)
        X.setflags(write=False)
        np.testing.assert_allclose(kernel.matrix(X, Y), reference(X, Y), rtol=1e-11, atol=1e-14)
        K = kernel.matrix(X)
        np.testing.assert_allclose(K, reference(X, X), rtol=1e-11, atol=1e-14)
        np.testing.assert_array_equal(K, K.T)
        np.testing.assert_allclose(kernel.diagonal(X), np.diagonal(K), rtol=1e-13, atol=1e-15)
        spectrum = np.linalg.eigvalsh(K)
        assert spectrum[0] >= -1e-12 * spectrum[-1] or isinstance(kernel, Sigmoid)


@pytest.mark.parametrize("kernel", STATIONARY, ids=repr)
def test_huge_rows_give_zero_never_nan(kernel):
    d = 12 if kernel == RBF(0.4) else 2
    X = rows(6, d) * np.array([1e200, 1e200, 1.0, 1e155, 1e307, 1e-200])[:, None]
    X[4, :2] = [1.7e308, -1.7e308]
    with quiet():
        K, cross = kernel.matrix(X), kernel.matrix(X[:5], X)
    assert np.isfinite(K).all()
    assert np.isfinite(cross).all()
    assert (np.diagonal(K) == 1.0).all()
    assert K[0, 1] < 1e-50


@pytest.mark.parametrize("width", [1e-300, 1e-12, 1e12, 1e300])
def test_extreme_widths_stay_within_zero_and_one(width):
    X = rows(5, 3)
    of_lengths = [Matern(nu, length_scale=width) for nu in (0.5, 1.5, 2.5)]
    of_lengths += [RationalQuadratic(alpha, length_scale=width) for alpha in (1.0, 1e-3, 1e300)]
    for kernel in (RBF(width), Laplacian(width), *of_lengths):
        with quiet():
            K = kernel.matrix(X)
        assert ((K >= 0.0) & (K <= 1.0)).all()
        assert (np.diagonal(K) == 1.0).all()


def test_cosine_neither_overflows_nor_underflows():
    X = np.array([[3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0]])
    np.testing.assert_allclose(Cosine().matrix(X), [[1, 1, 0], [1, 1, 0], [0, 0, 0]], rtol=1e-15)
    np.testing.assert_array_equal(Cosine().diagonal(X), [1.0, 1.0, 0.0])


@pytest.mark.parametrize("d", [2, 11])
def test_blocks_join_without_a_seam(monkeypatch, d):
    monkeypatch.setattr(kernel_programs, "_ROWS", 4)
    monkeypatch.setattr(kernel_programs, "_COLUMNS", 8)
    kernel = RBF(0.2) * Cosine() + Linear() * Laplacian(0.1) + Custom(overlap)
    X, Y = rows(21, d), rows(18, d, 1)
    expected = (
        pairwise.rbf_kernel(X, Y, 0.2) * pairwise.cosine_similarity(X, Y)
        + X @ Y.T * pairwise.laplacian_kernel(X, Y, 0.1)
        + overlap(X, Y)
    )
    np.testing.assert_allclose(kernel.matrix(X, Y), expected, rtol=1e-12, atol=1e-14)
    K = kernel.matrix(X)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(K, kernel.matrix(X, X.copy()), rtol=1e-12, atol=1e-14)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="millions of entries in uncompiled loops")
def test_memory_is_the_result_and_little_more():
    X = rows(2500, 16)
    kernel = RBF(0.1) + Laplacian(0.1) * Linear()
    many = functools.reduce(operator.add, (RBF(0.1).on([i, j]) for i in range(9) for j in range(i)))
    kernel.matrix(X[:20])
    tracemalloc.start()
    try:
        K = kernel.matrix(X)
        peak = tracemalloc.get_traced_memory()[1]
        # Many choices of columns take smaller blocks.
        tracemalloc.reset_peak()
        cross = many.matrix(X[:1000], X)
        peak_of_many = tracemalloc.get_traced_memory()[1] - K.nbytes
    finally:
        tracemalloc.stop()
    # Two base matrices beside the result, of 4 MB each.
    assert peak < K.nbytes + 12e6
    assert peak_of_many < cross.nbytes + 60e6


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="counts compiled versions")
def test_new_combinations_compile_nothing():
    X = rows(20, 10)
    (RBF(1.0) + Linear()).matrix(X)
    before = len(kernel_loops.run_program.signatures)
    (Matern(2.5, length_scale=1.0) * Cosine() ** 3 + Sigmoid(1.0).exp()).matrix(X[:3], X)
    assert len(kernel_loops.run_program.signatures) == before


def test_shared_parts_are_computed_once():
    program = (RBF(1.0) + RBF(2.0) * Matern(length_scale=1.0) + Linear().exp() + Polynomial(gamma=1.0)).program
    assert len(program.base_matrices) == 2
    assert len((RBF(1.0).on([1]).on([0, 1]) + RBF(1.0).on(1)).program.base_matrices) == 1


def test_custom_kernels_and_their_diagonals():
    X, Y = rows(6, 3), rows(4, 3, 1)
    kernel = Custom(overlap)
    np.testing.assert_array_equal(kernel.matrix(X, Y), overlap(X, Y))
    np.testing.assert_array_equal(kernel.diagonal(X), np.abs(X).sum(axis=1))
    assert kernel == Custom(overlap) != Custom(max)
    assert pickle.loads(pickle.dumps(kernel)) == kernel
    np.testing.assert_array_equal(Custom(lambda X, Y: np.ones((len(X), len(Y)), int)).matrix(X), np.ones((6, 6)))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (Custom(lambda X, Y: np.ones(len(X))).matrix, r"Custom: the function must return .* \(5, 5\) .* shape \(5,\)"),
        (Custom(lambda X, Y: X @ Y.T + 1j).matrix, "must return real numbers .* complex128"),
        (Custom(lambda X, Y: np.full((len(X), len(Y)), np.nan)).matrix, "returned NaN or infinity"),
    ],
)
def test_the_values_of_functions_of_the_caller_are_checked(ask, message):
    with pytest.raises(ValueError, match=message):
        ask(rows(5, 2))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RBF(0.0), ValueError, r"RBF: gamma must be a finite number in \(0"),
        (lambda: RBF(None), TypeError, "RBF: gamma must be a number"),
        (lambda: RBF("auto"), ValueError, "RBF: gamma must be one of 'contrast', 'spread'"),
        (lambda: Polynomial("3"), TypeError, "Polynomial: degree must be an integer"),
        (lambda: Polynomial(0), ValueError, "Polynomial: degree must be at least 1"),
        (lambda: Polynomial(coef0=-1.0), ValueError, "Polynomial: coef0"),
        (lambda: Sigmoid("contrast"), ValueError, "Sigmoid: gamma must be one of 'spread'"),
        (lambda: Matern(1.0), ValueError, "Matern: nu must be 0.5, 1.5 or 2.5, got 1.0"),
        (lambda: Matern(None), TypeError, "Matern: nu must be a number"),
        (lambda: Custom(3), TypeError, "Custom: expected function to be a function of rows"),
    ],
)
def test_nonsense_parameters_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("kernel", UNSETTLED, ids=repr)
def test_unsettled_kernels_name_the_remedy(kernel):
    assert not kernel.is_settled
    for ask in (kernel.matrix, kernel.diagonal):
        with pytest.raises(ValueError, match=r"call kernel.settled\(X\)"):
            ask(rows(3, 2))
    settled = kernel.settled(rows(3, 2))
    assert settled.is_settled
    assert type(settled) is type(kernel)
    assert settled.settled(rows(5, 2)) is settled


def test_bad_rows_are_refused():
    kernel = RBF(1.0)
    with pytest.raises(ValueError, match=r"RBF.matrix: X contains NaN"):
        kernel.matrix([[np.nan]])
    with pytest.raises(ValueError, match=r"RBF.diagonal: expected a 2D array"):
        kernel.diagonal([1.0])
    with pytest.raises(ValueError, match=r"RBF.matrix: X has 2 features but Y has 3; pass rows with the same"):
        kernel.matrix(rows(4, 2), rows(4, 3))
    with pytest.raises(ValueError, match=r"RBF.settled: .* contains infinity"):
        RBF().settled([[np.inf]])
