"""Derivatives of kernel values by rows, against central differences of the values."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import PRIMITIVES

from streamkpca.kernels import RBF, Cosine, Custom, Laplacian, Linear, Matern
from streamkpca.kernels.gradients import (
    curvature_by_rows,
    gradient_by_rows,
    is_of_squared_distances,
)

UNITS = np.array([2.0, 0.25, 10.0])


def rows_of(seed, n, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def gradient(kernel, X, Y, weights):
    """Differentiate sum_ni w_ni k(x_n, y_i) by the rows y_i."""
    program = kernel.program
    slopes = program.differentiate(X, Y)[1]
    pairs = zip(program.base_matrices, slopes, strict=True)
    return reduce(add, (gradient_by_rows(matrix, X, Y, weights * slope) for matrix, slope in pairs))


def differences(kernel, X, Y, weights, step=1e-6):
    """Compute the same number by number, from values on both sides."""
    found = np.empty(Y.shape)
    for i, j in np.ndindex(*Y.shape):
        sides = []
        for sign in (1.0, -1.0):
            there = Y.copy()
            there[i, j] += sign * step
            sides.append(np.sum(weights * kernel.matrix(X, there)))
        found[i, j] = (sides[0] - sides[1]) / (2.0 * step)
    return found


def assert_derivatives(kernel, X, Y, seed=2):
    weights = np.random.default_rng(seed).normal(size=(len(X), len(Y)))
    expected = differences(kernel, X, Y, weights)
    values = kernel.matrix(X, Y)
    # What differences of rounded values can show.
    rounding = 1e-8 * (np.abs(values).max() * len(X) + np.abs(expected).max(initial=1.0))
    np.testing.assert_allclose(gradient(kernel, X, Y, weights), expected, rtol=1e-6, atol=rounding)
    np.testing.assert_allclose(kernel.program.differentiate(X, Y)[0], values, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kernel", PRIMITIVES, ids=repr)
def test_gradients_are_derivatives_and_finite_where_rows_meet(kernel):
    assert is_of_squared_distances(kernel.program) == (kernel.is_stationary and "Laplacian" not in repr(kernel))
    X = rows_of(0, 7)
    assert_derivatives(kernel, X, rows_of(1, 5))
    X[3], X[4] = X[0], 0.0
    with np.errstate(all="raise", under="ignore"):
        found = gradient(kernel, X, X.copy(), np.ones((7, 7)))
    assert np.isfinite(found).all()
    if kernel.is_stationary:
        # At a maximum it is zero; at a cusp both sides are opposite.
        np.testing.assert_allclose(gradient(kernel, X, X.copy(), np.eye(7)), 0.0, atol=1e-12)


def compiled_kernels():
    """Draw expressions of kernels of three features."""
    simple = st.sampled_from(PRIMITIVES)
    columns = st.sampled_from([[0], [1, 2], [2, 0, 1], [0, 2]])
    seen = simple | st.builds(lambda kernel, chosen: kernel.on(chosen), simple, columns)
    seen |= st.builds(lambda kernel, units: kernel.in_units(units), simple, st.just(UNITS))
    return st.recursive(
        seen,
        lambda inner: (
            st.builds(lambda one, other: one + other, inner, inner)
            | st.builds(lambda one, other: one * other, inner, inner)
            | st.builds(lambda one, factor: factor * one, inner, st.sampled_from([0.25, 3.0]))
            | st.builds(lambda one, power: one**power, inner, st.integers(1, 3))
            | st.builds(lambda one: (0.05 * one).exp(), inner)
        ),
        max_leaves=4,
    )


@given(compiled_kernels(), st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4))
def test_gradients_of_any_expression_are_derivatives(kernel, seed, n, m):
    # Smaller rows keep powers of powers within what differences can show.
    assert_derivatives(kernel, 0.7 * rows_of(seed, n), 0.7 * rows_of(seed + 1, m), seed)


@pytest.mark.parametrize("kernel", [RBF(0.3), Matern(2.5, length_scale=2.0), Laplacian(0.4)], ids=repr)
def test_no_digits_cancel_far_from_the_origin(kernel):
    # On a grid that the shift does not round.
    X, Y = (np.round(rows_of(seed, 6) * 2**10) / 2**10 for seed in (0, 1))
    weights = rows_of(2, 6, 6)
    far = gradient(kernel, X + 2.0**20, Y + 2.0**20, weights)
    np.testing.assert_allclose(far, gradient(kernel, X, Y, weights), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kernel", [RBF(0.3), Laplacian(0.4), Linear(), Cosine()], ids=repr)
def test_units_divide_curvatures_twice_and_features_that_are_not_seen_have_none(kernel):
    Y, steepness = rows_of(1, 4), np.arange(1.0, 5.0)

    def curvature(one, rows):
        return curvature_by_rows(one.program.base_matrices[0], rows, steepness)

    divided = curvature(kernel.in_units(UNITS), Y * UNITS)
    np.testing.assert_allclose(divided, curvature(kernel, Y) / UNITS**2, rtol=1e-12)
    on_columns = curvature(kernel.on([2, 0]), Y)
    np.testing.assert_array_equal(on_columns[:, 1], 0.0)
    assert (on_columns[:, [0, 2]] > 0.0).all()


@pytest.mark.parametrize("kernel", [RBF(0.3), 2.0 * RBF(0.3), RBF(0.3) * RBF(0.2)], ids=repr)
def test_the_curvature_of_gaussians_is_the_squared_length_of_the_derivative(kernel):
    """|d phi(y) / d y_f|^2 = d^2 k(x, y) / dx_f dy_f at x = y, by differences of gradients."""
    y, step = rows_of(0, 1), 1e-4
    values, slopes = kernel.program.differentiate(y, y)
    curvature = sum(
        curvature_by_rows(matrix, y, np.abs(slope / values)[0])
        for matrix, slope in zip(kernel.program.base_matrices, slopes, strict=True)
    )
    for f in range(3):
        shift = step * np.eye(3)[[f]]
        ends = [gradient(kernel, y + sign * shift, y, np.ones((1, 1)))[0, f] for sign in (1.0, -1.0)]
        assert curvature[0, f] * values[0, 0] == pytest.approx((ends[0] - ends[1]) / (2.0 * step), rel=1e-6)


def test_functions_of_the_caller_are_no_squared_distances():
    custom = Custom(lambda X, Y: X @ Y.T)
    for kernel in (custom, RBF(0.3) + custom, custom.on([0]), 2.0 * custom):
        assert not is_of_squared_distances(kernel.program)
