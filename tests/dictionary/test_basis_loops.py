import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary._loops import gram_schmidt


def orthonormalise(gram, floor=None):
    size = len(gram)
    floor = np.zeros(size) if floor is None else np.asarray(floor, dtype=float)
    factor = np.full((size, size), np.nan)
    accepted = np.full(size, -1, dtype=np.int64)
    count = gram_schmidt(np.ascontiguousarray(gram), floor, factor, accepted)
    return factor[:count, :count], list(accepted[:count])


def rows_of(seed, size, width):
    return np.random.default_rng(seed).normal(size=(size, width))


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_of_independent_rows_it_is_the_cholesky_factor(seed, size):
    rows = rows_of(seed, size, size + 3)
    gram = rows @ rows.T
    factor, accepted = orthonormalise(gram)
    assert accepted == list(range(size))
    np.testing.assert_allclose(factor, np.linalg.cholesky(gram), rtol=1e-8, atol=1e-8)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 12))
def test_dependent_rows_are_left_out_and_the_rest_spans_them(seed, rank, size):
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


def test_the_floor_is_each_rows_own():
    gram = np.diag([1.0, 1.0, 1.0])
    assert orthonormalise(gram, [1.0, 0.5, 2.0])[1] == [1]


def test_numbers_that_are_none_and_negative_lengths_are_refused():
    gram = np.eye(4)
    gram[0, 0], gram[2, 2] = math.nan, -1.0
    factor, accepted = orthonormalise(gram)
    assert accepted == [1, 3]
    assert np.isfinite(factor).all()


def test_no_row_at_all():
    factor, accepted = orthonormalise(np.empty((0, 0)))
    assert factor.shape == (0, 0)
    assert accepted == []
