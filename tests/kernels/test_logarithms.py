"""Logarithms of kernel values, compared with numbers whose exponents have 15 bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import STATIONARY

from streamkpca.kernels import RBF, Laplacian, Matern, RationalQuadratic
from streamkpca.kernels.logarithms import log_matrix

WIDE = np.longdouble
KERNELS = [
    *STATIONARY,
    0.3 * RBF(0.7) + 2.0 * Laplacian(0.1),
    RBF(0.7).on([0, 2]) * Matern(1.5, length_scale=0.6).on(1),
    (0.3 * RBF(0.7)) ** 3,
    (0.3 * RBF(0.7)).exp(),
    RBF(0.7).in_units([0.5, 1.0, 20.0]),
]


def log_values(kernel, X, Y):
    return log_matrix(kernel.program, kernel.program.base_values(X, Y))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@given(st.integers(0, 10**6), st.floats(0.0, 1.0))
def test_they_are_those_of_the_values(kernel, seed, size):
    rng = np.random.default_rng(seed)
    X, Y = size * rng.normal(size=(6, 3)), rng.normal(size=(4, 3))
    np.testing.assert_allclose(log_values(kernel, X, Y), np.log(kernel.matrix(X, Y)), rtol=1e-12, atol=1e-13)


def distances(X, Y, power=2):
    return (abs(X[:, None].astype(WIDE) - Y) ** power).sum(axis=2)


def log_matern(t):
    return np.log1p(t + t * t / 3) - t


FORMULAS = {
    RBF(0.7): lambda X, Y: -WIDE(0.7) * distances(X, Y),
    Laplacian(0.7): lambda X, Y: -WIDE(0.7) * distances(X, Y, power=1),
    0.3 * RBF(0.7) ** 2: lambda X, Y: np.log(WIDE(0.3)) - WIDE(1.4) * distances(X, Y),
    Matern(2.5, length_scale=2.0): lambda X, Y: log_matern(np.sqrt(5 * distances(X, Y)) / 2),
    RationalQuadratic(2.0, length_scale=1.0): lambda X, Y: -2 * np.log1p(distances(X, Y) / 4),
    0.3 * RBF(0.7) + Laplacian(0.1): lambda X, Y: np.logaddexp(
        np.log(WIDE(0.3)) - WIDE(0.7) * distances(X, Y), -WIDE(0.1) * distances(X, Y, power=1)
    ),
}


@pytest.mark.parametrize("kernel", FORMULAS, ids=repr)
def test_they_go_on_where_values_are_zero(kernel):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(40, 3)), rng.normal(size=(4, 3))
    X *= np.geomspace(1.0, 1e150, len(X))[:, None]
    np.testing.assert_allclose(log_values(kernel, X, Y), FORMULAS[kernel](X, Y).astype(np.float64), rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_distances_that_overflow_give_minus_infinity_or_the_limit(kernel):
    values = log_values(kernel, np.full((1, 3), 1e300), np.zeros((2, 3)))
    assert not np.isnan(values).any()
    assert (values < 1.0).all()
