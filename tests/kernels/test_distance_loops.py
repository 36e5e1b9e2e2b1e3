"""The distance loops, called directly."""

import contextlib

import numba
import numpy as np
import pytest

from streamkpca.kernels._loops import direct_distances, finish_squared_distances, mirror_lower


def quiet():
    """Uncompiled, the loops are numpy scalars, which warn where machine code is silent."""
    return np.errstate(all="ignore") if numba.config.DISABLE_JIT else contextlib.nullcontext()


def exact(X, Y, power):
    differences = np.abs(X[:, None].astype(np.longdouble) - Y[None].astype(np.longdouble))
    return (differences**power).sum(axis=2)


def direct(X, Y, *, squared):
    out = np.empty((len(X), len(Y)))
    with quiet():
        direct_distances(X, np.ascontiguousarray(Y.T), squared, out, 0, 0)
    return out


def finished(X, Y, centre):
    x, y = X - centre, Y - centre
    out = x @ y.T
    with quiet():
        finish_squared_distances(X, Y, (x * x).sum(axis=1), (y * y).sum(axis=1), out, 0, 0)
    return out


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 300, 2), (4, 5, 40)])
def test_direct_distances_are_the_sums(shape):
    n, m, d = shape
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, d)) + 1e6, rng.normal(size=(m, d)) + 1e6
    np.testing.assert_allclose(direct(X, Y, squared=True), exact(X, Y, 2).astype(float), rtol=1e-14)
    np.testing.assert_allclose(direct(X, Y, squared=False), exact(X, Y, 1).astype(float), rtol=1e-14)


@pytest.mark.parametrize("d", [2, 9, 64])
@pytest.mark.parametrize("kind", ["plain", "offset", "clusters", "scales", "neighbours"])
def test_finished_distances_are_right_to_twelve_digits(kind, d):
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(28, d))
    if kind == "offset":
        Z += 1e6
    elif kind == "clusters":
        Z += 1e6 * np.where(np.arange(28) % 2, 1.0, -1.0)[:, None]
    elif kind == "scales":
        Z *= 10.0 ** rng.uniform(-6, 6, size=(28, 1))
    elif kind == "neighbours":
        Z[14:] = Z[:14] + 10.0 ** rng.uniform(-9, 0, size=(14, 1)) * rng.normal(size=(14, d))
    X, Y = Z[::2].copy(), np.concatenate([Z[1::2], Z[:4]])
    expected = exact(X, Y, 2)
    error = np.abs(finished(X, Y, Y.mean(axis=0)) - expected)
    assert (error <= 1e-12 * expected).all()


def test_finished_distances_of_equal_rows_are_exactly_zero():
    X = np.random.default_rng(2).normal(size=(300, 3)) * 1e3
    assert (np.diagonal(finished(X[:20], X, X.mean(axis=0))) == 0.0).all()


def test_finished_distances_overflow_to_infinity_never_to_nan():
    X = np.array([[1e200, 1.0], [-1e200, 1.0], [1.7e308, -1.7e308], [3.0, 4.0]])
    with np.errstate(all="ignore"):
        distances = finished(X, X, X.mean(axis=0))
        expected = np.where(np.eye(4) > 0, 0.0, np.inf)
    np.testing.assert_array_equal(distances, expected)


def test_distances_fill_only_their_block():
    X, Y = np.ones((2, 3)), np.zeros((4, 3))
    out = np.full((5, 8), -1.0)
    direct_distances(X, np.ascontiguousarray(Y.T), True, out, 1, 2)
    assert (out[1:3, 2:6] == 3.0).all()
    assert (out == -1.0).sum() == 5 * 8 - 8
    out[1:3, 2:6] = 0.0
    finish_squared_distances(X, Y, np.full(2, 3.0), np.zeros(4), out, 1, 2)
    assert (out[1:3, 2:6] == 3.0).all()
    assert (out == -1.0).sum() == 5 * 8 - 8


@pytest.mark.parametrize("n", [1, 7, 8, 20])
def test_mirror_makes_a_symmetric_matrix(n):
    square = np.random.default_rng(3).normal(size=(n, n))
    lower = np.tril(square)
    mirror_lower(square, 0, 0, n, n)
    np.testing.assert_array_equal(square, lower + np.tril(lower, -1).T)


def test_mirror_copies_just_the_block():
    square = np.arange(144.0).reshape(12, 12)
    expected = square.copy()
    expected[2:6, 4:9] = square[4:9, 2:6].T
    expected[4:6, 4:6] = square[4:6, 4:6]
    expected[4, 5] = square[5, 4]
    mirror_lower(square, 4, 2, 5, 4)
    np.testing.assert_array_equal(square, expected)
