import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary._loops import (
    add_column,
    add_rank_one,
    gram_schmidt,
    insert_direction,
    remove_direction,
    subtract_outer,
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


@given(SEEDS, st.integers(0, 7), st.integers(0, 9), st.sampled_from([1e-150, 1.0, 1e150]))
def test_add_rank_one_changes_the_products_and_sums_their_powers(seed, candidates, n, unit):
    rng = np.random.default_rng(seed)
    before, left, right = rng.normal(size=(candidates, n)), rng.normal(size=candidates), rng.normal(size=n)
    weights = rng.uniform(0.0, 2.0, n)
    gram, squares, fourths = unit * before, np.empty(candidates), np.empty(candidates)
    add_rank_one(gram, unit * left, right, 1.0 / unit, weights, squares, fourths)
    expected = before + np.outer(left, right)
    np.testing.assert_allclose(gram / unit, expected, atol=1e-12)
    np.testing.assert_allclose(squares, expected**2 @ weights, atol=1e-10)
    np.testing.assert_allclose(fourths, expected**4 @ weights, atol=1e-8)


@given(SEEDS, st.integers(1, 9), st.sampled_from([-1.0, 1.0]))
def test_add_rank_one_keeps_a_symmetric_matrix_symmetric_to_the_bit(seed, size, sign):
    rng = np.random.default_rng(seed)
    rows, vector = rng.normal(size=(size, 3)), rng.normal(size=size)
    gram = rows @ rows.T
    gram = 0.5 * (gram + gram.T)
    add_rank_one(gram, sign * vector, vector, 1.0, np.ones(size), np.empty(size), np.empty(size))
    np.testing.assert_array_equal(gram, gram.T)


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


@given(SEEDS, st.integers(1, 7), st.data())
def test_insert_direction_gives_the_dual_vectors_of_all(seed, m, data):
    atom = data.draw(st.integers(0, m - 1))
    scene = Scene(seed, m)
    kept = np.delete(np.arange(m), atom)
    duals = scene.duals(kept)
    beside = scene.row - scene.row @ duals.T @ scene.atoms
    pivot = np.linalg.norm(beside)
    precision, _ = scene.quantities(kept)
    insert_direction(atom, duals @ scene.row / pivot, 1.0 / pivot, precision)
    scene.atoms[atom] = scene.row
    np.testing.assert_allclose(precision, scene.quantities(np.arange(m))[0], rtol=1e-6, atol=1e-6)


@given(SEEDS, st.integers(2, 6))
def test_insert_undoes_remove(seed, m):
    scene = Scene(seed, m)
    precision, recorded = scene.quantities(np.arange(m))
    before = precision.copy()
    length = np.sqrt(precision[-1, -1])
    remove_direction(m - 1, precision[-1] / precision[-1, -1], precision, recorded)
    # The dual vector's length is one over the atom's distance to the others.
    interpolation = scene.duals(np.arange(m - 1)) @ scene.atoms[-1]
    insert_direction(m - 1, interpolation * length, length, precision)
    np.testing.assert_allclose(precision, before, rtol=1e-6, atol=1e-6)


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
