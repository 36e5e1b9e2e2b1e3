"""Gradients: derivatives of kernel values by the base matrices that they are functions of, and of these by rows."""

import numpy as np

from streamkpca.kernels import _loops as loops
from streamkpca.kernels.program import Array, Base, PairwiseMatrix, Program, unit_rows

# The time for derivatives grows with the square of the number of base matrices, their memory with the number.
_MOST_MATRICES = 64


def has_gradients(program: Program) -> bool:
    """Say whether a kernel has derivatives: it calls no function of the caller, and has at most 64 base matrices."""
    matrices = program.base_matrices
    return len(matrices) <= _MOST_MATRICES and all(matrix.base is not Base.CUSTOM for matrix in matrices)


def is_of_squared_distances(program: Program) -> bool:
    """Say whether a kernel is a function of squared distances alone."""
    return all(matrix.base is Base.SQUARED for matrix in program.base_matrices)


def values_and_gradients(program: Program, X: Array, Y: Array) -> tuple[Array, list[Array]]:
    """Evaluate a kernel with `has_gradients`, and its derivative by each base matrix, in the units of that.

    X (n, d) and Y (m, d) give arrays (n, m). At the cusp of a kernel, as Matern of smoothness 1/2 has one at distance
    0, the derivative counts as 0.
    """
    values, gradients = program.differentiate(program.base_values(X, Y))
    return values, list(gradients)


def own_gradients(program: Program, X: Array) -> Array:
    """Differentiate k(x, x) of a kernel with `has_gradients` by each base matrix, for rows (n, d); shape (b, n)."""
    return program.differentiate(program.own_base_values(X)[:, None])[1][:, 0]


def gradient_by_rows(matrix: PairwiseMatrix, X: Array, Y: Array, weights: Array) -> Array:
    """Differentiate sum_ni w_ni t(x_n, y_i), with t the entries of a base matrix, by the rows y_i.

    X (n, d), Y (m, d) and `weights` (n, m) give (m, d). At the cusps of L1 distances, which have no derivative, it is
    the mean of both sides. O(n m d).
    """
    if matrix.base is Base.EQUAL:
        # Categories have no direction to move in.
        return np.zeros(Y.shape)
    origin = matrix.origin(Y)
    x, y = matrix.view.of(X, origin), matrix.view.of(Y, origin)
    if matrix.base is Base.SQUARED:
        # Differences from a common point, as all digits would cancel far from the origin.
        centre = y.mean(axis=0)
        by_view = 2.0 * ((y - centre) * weights.sum(axis=0)[:, None] - weights.T @ (x - centre))
    elif matrix.base is Base.ABSOLUTE:
        by_view = np.zeros(y.shape)
        loops.add_signs(np.ascontiguousarray(x), np.ascontiguousarray(y), weights, by_view)
    elif matrix.base is Base.COSINE:
        unit = unit_rows(y)
        by_view = weights.T @ unit_rows(x)
        by_view -= unit * np.einsum("ij,ij->i", unit, by_view)[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->i", y, y))[:, None]
        by_view /= np.where(lengths > 0.0, lengths, np.inf)
    else:
        by_view = weights.T @ x
    if matrix.view.matrix is not None:
        by_view = by_view @ matrix.view.matrix.entries
    elif matrix.view.divisors is not None:
        by_view = by_view / matrix.view.divisors
    return _by_features(matrix, by_view, Y)


def curvature_by_rows(matrix: PairwiseMatrix, Y: Array, steepness: Array) -> Array:
    """Estimate |d phi(y_i) / d y_if|^2 / k(y_i, y_i) for rows Y (m, d), given the size (m,) of |k' / k| near each.

    k' is the derivative by the base matrix. For a squared distance, this is -2 k' / k at distance 0. Where a matrix
    multiplies rows, the numbers that a feature becomes count as independent.
    """
    if matrix.base is Base.EQUAL:
        return np.zeros(Y.shape)
    y = matrix.view.of(Y)
    if matrix.base is Base.SQUARED:
        steepness = 2.0 * steepness
    elif matrix.base is Base.ABSOLUTE:
        steepness = steepness**2
    elif matrix.base is Base.COSINE:
        steepness = steepness / np.maximum(np.einsum("ij,ij->i", y, y), np.finfo(np.float64).tiny)
    by_view = np.repeat(steepness[:, None], y.shape[1], axis=1)
    if matrix.view.matrix is not None:
        by_view = by_view @ matrix.view.matrix.entries**2
    elif matrix.view.divisors is not None:
        by_view /= matrix.view.divisors**2
    return _by_features(matrix, by_view, Y)


def _by_features(matrix: PairwiseMatrix, by_view: Array, Y: Array) -> Array:
    """Spread numbers (m, c) of the columns that a matrix sees over all features of rows (m, d)."""
    if matrix.view.columns is None:
        return by_view
    spread = np.zeros(Y.shape)
    spread[:, matrix.view.columns] = by_view
    return spread
