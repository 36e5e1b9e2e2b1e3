"""The loops of rows with gaps against numpy's linear algebra."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamkpca._core._loops import (
    fill_expected,
    nearest_atoms,
    tilt_apart,
    tilt_together,
)

SEEDS = st.integers(0, 10**6)


def definite(rng, d):
    root = rng.normal(size=(d, d))
    return root @ root.T + 0.5 * np.eye(d)


def places(missing):
    """Return where the gaps of each row begin, and the columns that they are in."""
    starts = np.concatenate([[0], np.cumsum(missing.sum(axis=1))]).astype(np.int64)
    return starts, np.nonzero(missing)[1].astype(np.int64)


def some_gaps(rng, n, d):
    missing = rng.random((n, d)) < 0.5
    missing[np.arange(n), rng.integers(0, d, n)] = True
    return missing


@given(SEEDS, st.integers(1, 6), st.booleans())
def test_expected_numbers_are_those_of_the_conditional_normal(seed, d, independent):
    rng = np.random.default_rng(seed)
    covariance, mean = definite(rng, d), rng.normal(size=d)
    scale = np.sqrt(np.diagonal(covariance))
    precision = np.linalg.inv(covariance / np.outer(scale, scale))
    rows = rng.normal(size=(5, d))
    rows[some_gaps(rng, 5, d)] = np.nan
    found = np.empty_like(rows)
    fill_expected(rows, mean, scale, np.empty((0, 0)) if independent else precision, found)
    for row, filled in zip(rows, found, strict=True):
        gaps, others = np.isnan(row), ~np.isnan(row)
        np.testing.assert_array_equal(filled[others], row[others])
        expected = mean[gaps]
        if not independent and others.any():
            weights = np.linalg.solve(covariance[np.ix_(others, others)], covariance[np.ix_(others, gaps)])
            expected = expected + (row[others] - mean[others]) @ weights
        np.testing.assert_allclose(filled[gaps], expected, rtol=1e-7, atol=1e-9)


def test_a_row_so_far_away_that_expectations_overflow_takes_the_mean():
    precision = np.array([[2.0, -1.9], [-1.9, 2.0]])
    found = np.empty((1, 2))
    # As plain Python, the loop warns of what compiled code passes over.
    with np.errstate(over="ignore"):
        fill_expected(np.array([[1e300, np.nan]]), np.array([0.0, 7.0]), np.array([1e-200, 1.0]), precision, found)
    assert found.tolist() == [[1e300, 7.0]]


def test_a_precision_that_rounding_spoiled_leaves_the_mean():
    found = np.empty((1, 2))
    fill_expected(
        np.array([[1.0, np.nan]]), np.array([0.0, 7.0]), np.ones(2), np.array([[1.0, 1.0], [1.0, -1.0]]), found
    )
    assert found.tolist() == [[1.0, 7.0]]


@given(SEEDS, st.integers(1, 5))
def test_the_nearest_atom_is_near_in_what_is_there(seed, d):
    rng = np.random.default_rng(seed)
    rows, atoms, scale = rng.normal(size=(6, d)), rng.normal(size=(7, d)), rng.uniform(0.5, 2.0, d)
    scale[0] = 0.0
    rows[some_gaps(rng, 6, d)] = np.nan
    found = np.empty(6, dtype=np.int64)
    nearest_atoms(rows, atoms, scale, found)
    apart = (rows[:, None] - atoms) / np.where(scale > 0.0, scale, 1.0)
    distances = np.nansum(apart**2, axis=2)
    np.testing.assert_allclose(distances[np.arange(6), found], distances.min(axis=1), rtol=1e-12, atol=1e-15)


@given(SEEDS, st.integers(1, 5))
def test_independent_columns_are_a_case_of_correlated_ones(seed, d):
    rng = np.random.default_rng(seed)
    starts, gaps = places(some_gaps(rng, 4, d))
    stiffness, pulls, atom_pulls = rng.uniform(0.0, 2.0, d), rng.normal(size=(4, d)), rng.normal(size=(d, 3))
    apart, together = ((np.empty((4, 3)), np.empty(4)) for _ in range(2))
    tilt_apart(starts, gaps, stiffness, pulls, atom_pulls, *apart)
    tilt_together(starts, gaps, np.eye(d), np.diag(stiffness), pulls, atom_pulls, *together)
    for one, other in zip(apart, together, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
