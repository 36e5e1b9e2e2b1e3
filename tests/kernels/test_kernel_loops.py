"""The compiled loops, called directly: the exponential, distances, and products that overflow."""

import numpy as np
import pytest
from kinds import quiet

from streamkpca.components._loops import multiply_rows
from streamkpca.kernels._loops import (
    exponentiate,
    finish_squared_distances,
)


def exp_of(x):
    stack = np.empty((3, len(x)))
    stack[0] = x
    with quiet():
        exponentiate(stack, stack.view(np.int64), 0, 1, len(x))
    return stack[0]


def test_exponential_is_right_to_one_unit_in_the_last_place():
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [
            np.linspace(-708.39, 709.78, 3001),
            rng.normal(size=2000),
            10.0 ** rng.uniform(-300, 2.8, 1000) * rng.choice([-1, 1], 1000),
            (np.arange(-1021, 1024) + 0.5) * np.log(2),
            [0.0, -0.0, 5e-324, -5e-324],
        ]
    )
    x = x[(x > -708.39) & (x < 709.78)]
    assert exp_of(np.zeros(2)).tolist() == [1.0, 1.0]
    expected = np.exp(x)
    assert (np.abs(exp_of(x) - expected) <= 1.01 * np.spacing(expected)).all()


def test_exponential_beyond_the_range_of_normal_numbers():
    x = np.array([-np.inf, -1e308, -745.2, -708.5, 709.79, 800.0, 1e308, np.inf])
    np.testing.assert_array_equal(exp_of(x), [0, 0, 0, 0, np.inf, np.inf, np.inf, np.inf])


def test_exponential_keeps_nan_whatever_its_payload():
    payloads = np.array([0x7FF8000000000000, 0x7FF8000000000801, -0x0008000000000000 + 3], dtype=np.int64)
    assert np.isnan(exp_of(payloads.view(np.float64))).all()


def exact(X, Y, power):
    differences = np.abs(X[:, None].astype(np.longdouble) - Y[None].astype(np.longdouble))
    return (differences**power).sum(axis=2)


def finished(X, Y, centre):
    x, y = X - centre, Y - centre
    out = x @ y.T
    with quiet():
        finish_squared_distances(X, Y, (x * x).sum(axis=1), (y * y).sum(axis=1), out, 0, 0)
    return out


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
    assert (np.diagonal(finished(X, X, Y.mean(axis=0))) == 0.0).all()


@pytest.mark.parametrize("c", [2, 4])
def test_products_that_overflow_on_both_sides_are_infinite(c):
    X, W = np.full((1, c), 1e300), np.tile([[1e100, -1e100]], (1, c // 2))
    out = np.empty((1, 1))
    with quiet():
        multiply_rows(X, W, out)
    # On either side: a product that is added without being rounded is finite where the other one is not.
    assert np.isinf(out).all()
