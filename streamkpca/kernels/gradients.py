"""Derivatives of base matrices by rows; those of kernel values by base matrices are `Program.differentiate`."""

import numpy as np

from streamkpca._core.arrays import Array, Indices
from streamkpca.kernels import _loops as loops
from streamkpca.kernels.program import Base, PairwiseMatrix, Program, unit_rows


def is_of_squared_distances(program: Program) -> bool:
    """Say whether a kernel is a function of squared distances alone."""
    return all(matrix.base is Base.SQUARED for matrix in program.base_matrices)


def gradient_by_rows(matrix: PairwiseMatrix, X: Array, Y: Array, weights: Array) -> Array:
    """Differentiate sum_ni w_ni t(x_n, y_i), with t the entries of a base matrix, by the rows y_i.

    X (n, d), Y (m, d) and `weights` (n, m) give (m, d), at the cusps of L1 distances the mean of both sides; O(n m d).
    """
    x, y = matrix.features.of(X), matrix.features.of(Y)
    if matrix.base is Base.SQUARED:
        # Differences from a common point, as all digits would cancel far from the origin.
        centre = y.mean(axis=0)
        by_columns = 2.0 * ((y - centre) * weights.sum(axis=0)[:, None] - weights.T @ (x - centre))
    elif matrix.base is Base.ABSOLUTE:
        by_columns = np.zeros(y.shape)
        loops.add_signs(np.ascontiguousarray(x), np.ascontiguousarray(y), weights, by_columns)
    elif matrix.base is Base.COSINE:
        unit = unit_rows(y)
        by_columns = weights.T @ unit_rows(x)
        by_columns -= unit * np.einsum("ij,ij->i", unit, by_columns)[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->i", y, y))[:, None]
        by_columns /= np.where(lengths > 0.0, lengths, np.inf)
    else:
        by_columns = weights.T @ x
    return _by_features(matrix, by_columns, Y.shape[1])


def own_gradient(matrix: PairwiseMatrix, Y: Array, others: Indices) -> Array:
    """Differentiate squared distances t(y_i, y_j) by y_i, for rows Y (m, d), j among others (m, s); (m, s, d)."""
    y = matrix.features.of(Y)
    return _by_features(matrix, 2.0 * (y[:, None] - y[others]), Y.shape[1])


def curvature_by_rows(matrix: PairwiseMatrix, Y: Array, steepness: Array) -> Array:
    """Estimate |d phi(y_i) / d y_if|^2 / k(y_i, y_i) for rows Y (m, d), given the size (m,) of |k' / k| near each."""
    y = matrix.features.of(Y)
    if matrix.base is Base.SQUARED:
        steepness = 2.0 * steepness
    elif matrix.base is Base.ABSOLUTE:
        steepness = steepness**2
    elif matrix.base is Base.COSINE:
        steepness = steepness / np.maximum(np.einsum("ij,ij->i", y, y), np.finfo(np.float64).tiny)
    by_columns = np.repeat(steepness[:, None], y.shape[1], axis=1)
    return _by_features(matrix, by_columns, Y.shape[1], power=2)


def _by_features(matrix: PairwiseMatrix, by_columns: Array, d: int, *, power: int = 1) -> Array:
    """Turn derivatives (..., c) by columns in units into those (..., d) by features; `power` of its factors."""
    columns, divisors = matrix.features.columns, matrix.features.divisors
    if divisors is not None:
        by_columns = by_columns / divisors**power
    if columns is None:
        return by_columns
    spread = np.zeros((*by_columns.shape[:-1], d))
    spread[..., columns] = by_columns
    return spread
