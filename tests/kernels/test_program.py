"""Prepared kernels: rows in one compiled call, against matrices of many rows, for every compiled kernel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import PRIMITIVES

from streamkpca.kernels import RBF, Cosine, Laplacian, Linear, Polynomial, RationalQuadratic
from streamkpca.kernels.program import PreparedKernel, explained_energies

KERNELS = [
    *PRIMITIVES,
    RBF(0.5).on(0) * (0.8 * Cosine().on([1, 2])).exp(),
    RBF(0.3) + 0.5 * Linear(),
    RBF(0.2).on([0, 2]) * Laplacian(0.3).on([1]) + Cosine().on([1, 2, 0]),
    Linear() ** 2,
    RBF(0.3).in_units([1.0, 0.8, 1.2]) + RBF(0.1).on([1, 2]) + Laplacian(0.1).in_units([0.5, 1.0, 20.0]),
]


def scene(seed, m, n):
    rng = np.random.default_rng(seed)
    atoms, rows = rng.normal(size=(m, 3)), rng.normal(size=(n, 3))
    rows[0] = atoms[0]
    return atoms, rows, rng.normal(size=(m, 2)), rng.normal(size=2)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 4))
def test_projections_are_those_of_the_matrix(kernel, seed, m, n):
    atoms, rows, projection, offset = scene(seed, m, n)
    answers = PreparedKernel(kernel.program, atoms).project(rows, projection.T.copy(), offset)
    np.testing.assert_allclose(answers, kernel.matrix(rows, atoms) @ projection - offset, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if kernel.is_positive_definite], ids=repr)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4))
def test_distances_are_those_of_the_definition(kernel, seed, m, n):
    atoms, rows, _, _ = scene(seed, m, n)
    gram = kernel.matrix(atoms)
    factor = np.linalg.cholesky(gram + 1e-9 * np.trace(gram) * np.eye(m))
    explained = (np.linalg.solve(factor, kernel.matrix(atoms, rows)) ** 2).sum(axis=0)
    expected = np.maximum(kernel.diagonal(rows) - explained, 0.0), explained
    measured = PreparedKernel(kernel.program, atoms).measure(rows, factor)
    np.testing.assert_allclose(measured, expected, rtol=1e-7, atol=1e-7 * np.abs(kernel.diagonal(rows)).max())


@pytest.mark.parametrize("kernel", [RBF(0.05), RBF(0.01).in_units("std") + 0.1 * Laplacian(0.05)], ids=repr)
def test_rows_are_measured_alike_wherever_they_stand(kernel):
    rng = np.random.default_rng(0)
    atoms, rows = rng.normal(size=(45, 11)), 1.5 * rng.normal(size=(13, 11))
    kernel = kernel.settled(np.concatenate([atoms, rows]))
    prepared, factor = PreparedKernel(kernel.program, atoms), np.linalg.cholesky(kernel.matrix(atoms))
    values = kernel.matrix(rows, atoms)

    def answers(piece):
        measured = prepared.measure(rows[piece], factor)
        assert measured is not None
        bases = prepared.base_values(rows[piece])
        return np.array([*measured, explained_energies(factor, values[piece].copy())]), bases

    whole, bases = answers(slice(None))
    np.testing.assert_allclose(whole[2], whole[1], rtol=1e-9)
    for start in range(len(rows)):
        for count in (1, 2, 3, 4, 6):
            piece = slice(start, start + count)
            for found, expected in zip(answers(piece), (whole[:, piece], bases[:, piece]), strict=True):
                np.testing.assert_array_equal(found, expected)


@given(st.integers(0, 10**6), st.integers(1, 11))
def test_rows_of_any_width_are_compared_in_all_columns(seed, d):
    rng = np.random.default_rng(seed)
    atoms, rows = rng.normal(size=(5, d)), rng.normal(size=(2, d))
    kernel = RBF(0.3) + RationalQuadratic(length_scale=2.0).on(range(d - 1, d // 2 - 1, -1))
    answers = PreparedKernel(kernel.program, atoms).project(rows, np.eye(5), np.zeros(5))
    np.testing.assert_allclose(answers, kernel.matrix(rows, atoms), rtol=1e-12)


def test_rows_of_zeros_have_no_direction():
    prepared = PreparedKernel(Cosine().program, np.array([[1.0, 0.0], [0.0, 0.0]]))
    zero = np.zeros((1, 2))
    np.testing.assert_array_equal(prepared.project(zero, np.eye(2), np.zeros(2)), [[0.0, 0.0]])
    np.testing.assert_array_equal(prepared.measure(zero, np.eye(2)), [[0.0], [0.0]])
    np.testing.assert_allclose(prepared.project(np.array([[1e200, 1e200]]), np.eye(2), np.zeros(2)), [[0.5**0.5, 0.0]])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled loops warn
def test_answers_that_overflow_are_none():
    prepared = PreparedKernel(Polynomial(3, gamma=1.0, coef0=0.0).program, np.ones((2, 2)))
    far = np.full((1, 2), 1e200)
    assert prepared.project(far, np.eye(2), np.zeros(2)) is None
    assert prepared.measure(far, np.eye(2)) is None
    assert prepared.project(np.ones((1, 2)), np.eye(2), np.zeros(2)) is not None
