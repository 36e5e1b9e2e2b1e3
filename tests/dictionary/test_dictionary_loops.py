import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary._loops import (
    add_column,
    best_swap,
    gram_schmidt,
    remove_direction,
    subtract_outer,
    weigh_coefficients,
    weigh_slopes,
)

SEEDS = st.integers(0, 10**6)


class Scene:
    """Atoms as explicit vectors, with their recorded moment."""

    def __init__(self, seed, m, width=12):
        rng = np.random.default_rng(seed)
        self.atoms = rng.normal(size=(m, width))
        self.row = rng.normal(size=width)
        past = rng.normal(size=(20, width))
        self.moment = past.T @ past

    def duals(self, kept):
        """Compute the dual vectors of some atoms, the pseudo-inverse's columns; zeros for the other atoms."""
        vectors = np.zeros_like(self.atoms)
        vectors[kept] = np.linalg.pinv(self.atoms[kept]).T
        return vectors

    def quantities(self, kept):
        """Compute inner products P and recorded moments Q of the dual vectors."""
        vectors = self.duals(kept)
        return vectors @ vectors.T, vectors @ self.moment @ vectors.T


@given(SEEDS, st.integers(0, 6), st.integers(0, 6))
def test_subtract_outer_agrees_with_numpy(seed, n, m):
    rng = np.random.default_rng(seed)
    before, left, right = rng.normal(size=(n, m)), rng.choice([0.0, 1.5, -2.0], n), rng.normal(size=m)
    matrix = before.copy()
    subtract_outer(matrix, left, right)
    np.testing.assert_allclose(matrix, before - np.outer(left, right), atol=1e-14)
    np.testing.assert_array_equal(matrix[left == 0.0], before[left == 0.0])


@given(SEEDS, st.integers(1, 7))
def test_add_column_gives_the_gram_matrix_of_the_changed_columns(seed, k):
    rng = np.random.default_rng(seed)
    columns, vector, multiples = rng.normal(size=(9, k)), rng.normal(size=9), rng.normal(size=k)
    products = columns.T @ columns
    add_column(products, columns.T @ vector, vector @ vector, multiples)
    changed = columns + np.outer(vector, multiples)
    np.testing.assert_allclose(products, changed.T @ changed, atol=1e-10)


@given(SEEDS, st.integers(1, 7), st.data())
def test_remove_direction_gives_the_dual_vectors_of_the_others(seed, m, data):
    atom = data.draw(st.integers(0, m - 1))
    scene = Scene(seed, m)
    precision, recorded = scene.quantities(np.arange(m))
    remove_direction(atom, precision[atom] / precision[atom, atom], precision, recorded)
    expected = scene.quantities(np.delete(np.arange(m), atom))
    np.testing.assert_allclose(precision, expected[0], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(recorded, expected[1], rtol=1e-7, atol=1e-6)
    for matrix in (precision, recorded):
        assert not matrix[atom].any()
        assert not matrix[:, atom].any()


def orthonormalise(gram, threshold=None):
    size = len(gram)
    threshold = np.zeros(size) if threshold is None else np.asarray(threshold, dtype=float)
    factor = np.full((size, size), np.nan)
    accepted = np.full(size, -1, dtype=np.int64)
    count = gram_schmidt(np.ascontiguousarray(gram), threshold, factor, accepted)
    return factor[:count, :count], list(accepted[:count])


def rows_of(seed, size, width):
    return np.random.default_rng(seed).normal(size=(size, width))


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_independent_rows_give_the_cholesky_factor(seed, size):
    rows = rows_of(seed, size, size + 3)
    gram = rows @ rows.T
    factor, accepted = orthonormalise(gram)
    assert accepted == list(range(size))
    np.testing.assert_allclose(factor, np.linalg.cholesky(gram), rtol=1e-8, atol=1e-8)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 12))
def test_dependent_rows_are_left_out_and_the_others_span_them(seed, rank, size):
    rows = rows_of(seed, size, rank)
    gram = rows @ rows.T
    factor, accepted = orthonormalise(gram, 1e-9 * np.diagonal(gram))
    assert accepted == list(range(min(rank, size)))
    np.testing.assert_allclose(factor @ factor.T, gram[np.ix_(accepted, accepted)], rtol=1e-8, atol=1e-8)
    assert np.all(np.triu(factor, 1) == 0.0)


def test_a_repeated_row_and_a_zero_row_are_dependent():
    rows = np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0], [0.0, 2.0]])
    factor, accepted = orthonormalise(rows @ rows.T)
    assert accepted == [1, 3]
    np.testing.assert_allclose(factor, [[5.0, 0.0], [1.6, 1.2]])


def test_each_row_has_its_own_threshold():
    gram = np.diag([1.0, 1.0, 1.0])
    assert orthonormalise(gram, [1.0, 0.5, 2.0])[1] == [1]


def test_nan_and_negative_squared_lengths_are_refused():
    gram = np.eye(4)
    gram[0, 0], gram[2, 2] = math.nan, -1.0
    factor, accepted = orthonormalise(gram)
    assert accepted == [1, 3]
    assert np.isfinite(factor).all()


def test_no_rows_give_an_empty_factor():
    factor, accepted = orthonormalise(np.empty((0, 0)))
    assert factor.shape == (0, 0)
    assert accepted == []


def test_slopes_and_coefficients_are_weighed_in_place():
    rng = np.random.default_rng(3)
    slopes, coefficients, values = rng.normal(size=(3, 5, 4))
    weights = rng.uniform(0.0, 2.0, 5)
    weighed, rooted = slopes.copy(), coefficients.copy()
    of_slopes, of_values = np.ones(4), np.zeros(4)
    weigh_slopes(weighed, coefficients, weights, of_slopes)
    np.testing.assert_allclose(weighed, weights[:, None] * coefficients * slopes, rtol=1e-14)
    np.testing.assert_allclose(of_slopes, 1.0 + np.abs(weighed).sum(axis=0), rtol=1e-14)
    products = weights[:, None] * coefficients * values
    assert weigh_coefficients(rooted, values, weights, of_values) == pytest.approx(products.sum(), rel=1e-12)
    np.testing.assert_allclose(rooted, np.sqrt(weights)[:, None] * coefficients, rtol=1e-14)
    np.testing.assert_allclose(of_values, np.abs(products).sum(axis=0), rtol=1e-14)


def test_the_best_swap_is_that_of_all_pairs():
    rng = np.random.default_rng(4)
    m, n = 3, 4
    columns = rng.normal(size=(20, m + n))
    sums, pivots, v = columns.T @ columns / 20, np.array([0.5, 0.0, 2.0, 1.0]), rng.normal(size=(n, m))
    precision, own, shares, recorded = rng.uniform(0.5, 2.0, (4, m))
    own *= 0.1
    own_gains, found = rng.uniform(0.0, 0.1, n), np.empty(2, dtype=np.int64)
    profits = np.full((n, m), -np.inf)
    for c in np.flatnonzero(pivots):
        for j in range(m):
            t, after = sums[m + c, m + c] / pivots[c], precision[j] + v[c, j] ** 2 / pivots[c]
            alone = sums[j, j] - own[j]
            squares = alone - 2.0 * v[c, j] * sums[m + c, j] / pivots[c] + v[c, j] ** 2 * t / pivots[c]
            loss = max(squares, 0.0) / after
            cost = max(loss + shares[j] / after, recorded[j] * min(loss / (alone / precision[j]), 1.0))
            profits[c, j] = t + own_gains[c] * pivots[c] - cost - 1e-9
    profit = best_swap(sums, pivots, v, precision, own, shares, recorded, own_gains, 1e-9, found)
    assert profit == pytest.approx(profits.max(), rel=1e-12)
    assert tuple(found) == np.unravel_index(np.argmax(profits), profits.shape)
