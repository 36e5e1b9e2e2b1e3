import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca._core.linalg import (
    independent_span,
    inverse_factor,
    restrict_factor,
    solve_factor,
    solve_transposed,
    squared_norms,
)

SEEDS = st.integers(0, 10**6)


def rows_of(seed, n, d=3):
    return np.random.default_rng(seed).normal(size=(n, d))


def factor_of(seed, m):
    return np.tril(rows_of(seed, m, m), -1) + np.diag(np.random.default_rng(seed).uniform(1, 2, m))


@given(SEEDS, st.integers(0, 9))
def test_inverse_factor(seed, m):
    factor = factor_of(seed, m)
    np.testing.assert_allclose(inverse_factor(factor) @ factor, np.eye(m), atol=1e-8)


@given(SEEDS, st.integers(0, 7), st.integers(0, 5))
def test_solve_factor_works_in_place(seed, m, n):
    factor = factor_of(seed, m)
    rows = rows_of(seed + 1, n, m)
    values = rows @ factor.T
    solved = solve_factor(factor, values)
    np.testing.assert_allclose(solved, rows, atol=1e-8)
    assert solved.shape == (n, m)
    assert values.size == 0 or np.shares_memory(solved, values)


@given(SEEDS, st.integers(0, 7), st.data())
def test_restrict_factor_is_the_factor_of_the_submatrix(seed, m, data):
    keep = np.array(sorted(data.draw(st.sets(st.integers(0, m - 1)) if m else st.just(set()))), dtype=np.int64)
    factor = factor_of(seed, m)
    restricted, rotation = restrict_factor(factor, keep)
    gram = factor @ factor.T
    if len(keep):
        np.testing.assert_allclose(restricted, np.linalg.cholesky(gram[np.ix_(keep, keep)]), atol=1e-8)
    np.testing.assert_allclose(restricted @ rotation, factor[keep], atol=1e-10)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(len(keep)), atol=1e-12)


@given(SEEDS, st.integers(1, 9), st.integers(1, 5))
def test_independent_span_finds_a_basis_of_what_rows_span(seed, n, rank):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, 6))
    rows[rng.integers(0, n)] = 0.0
    accepted, factor, rotation = independent_span(rows)
    assert len(accepted) == np.linalg.matrix_rank(rows) <= rank
    assert np.all(np.diff(accepted) > 0)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(len(accepted)), atol=1e-12)
    np.testing.assert_allclose(factor @ rotation, rows[accepted], atol=1e-9)
    assert np.all(np.triu(factor, 1) == 0.0)
    assert np.all(np.diagonal(factor) > 0.0)
    # No row has a part outside the span.
    np.testing.assert_allclose(rows @ rotation.T @ rotation, rows, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-50, 1.0, 1e50])
def test_independence_does_not_depend_on_the_scale(scale):
    accepted, _, _ = independent_span(scale * np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0], [1.0, 0.0]]))
    np.testing.assert_array_equal(accepted, [1, 3])


def test_squared_norms_are_row_by_row():
    np.testing.assert_array_equal(squared_norms(np.array([[3.0, 4.0], [0.0, 0.0]])), [25.0, 0.0])
    assert squared_norms(np.empty((3, 0))).tolist() == [0.0, 0.0, 0.0]


@given(SEEDS, st.integers(0, 7), st.integers(0, 5))
def test_solve_transposed_leaves_its_argument_alone(seed, m, n):
    factor = factor_of(seed, m)
    coordinates = rows_of(seed + 1, n, d=m)
    before = coordinates.copy()
    coefficients = solve_transposed(factor, coordinates)
    np.testing.assert_array_equal(coordinates, before)
    np.testing.assert_allclose(coefficients @ factor, before, atol=1e-9)
