"""The compiled step against its definition; also run without the compiler and with bounds checks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkpca.components._loops import (
    ascend,
    expect_numbers,
    measure_surprise,
    score_errors,
)


def draw_problem(seed, p, r):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(40, r)) * rng.uniform(0.3, 3.0, size=r)
    return rng.normal(size=(p, r)), data.T @ data / 40


def defined(features, second_moment, weights):
    covariance = np.eye(features.shape[1]) + features.T @ (weights[:, None] * features)
    inverse = np.linalg.inv(covariance)
    return features @ inverse @ features.T, features @ inverse @ second_moment @ inverse @ features.T


def take_steps(features, second_moment, weights, block, *, least_gain=1e-12):
    A, Q = defined(features, second_moment, weights)
    diagonal_A, diagonal_Q = A.diagonal().copy(), Q.diagonal().copy()
    p = len(weights)
    changes, U, V = np.empty(block), np.empty((block, p)), np.empty((block, p))
    steps = ascend(A, Q, diagonal_A, diagonal_Q, weights, least_gain, changes, U, V)
    across = (changes[:steps, None] * U[:steps]).T @ V[:steps]
    A -= (changes[:steps, None] * U[:steps]).T @ U[:steps]
    return steps, A, Q - across - across.T, diagonal_A, diagonal_Q


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000), p=st.integers(1, 9), r=st.integers(1, 6), block=st.integers(1, 12), warm=st.booleans()
)
def test_collected_changes_equal_recomputation(seed, p, r, block, warm):
    features, second_moment = draw_problem(seed, p, r)
    weights = np.random.default_rng(seed + 1).uniform(size=p) if warm else np.zeros(p)
    _, A, Q, diagonal_A, diagonal_Q = take_steps(features, second_moment, weights, block)
    expected_A, expected_Q = defined(features, second_moment, weights)
    np.testing.assert_allclose(A, expected_A, atol=1e-9)
    np.testing.assert_allclose(Q, expected_Q, atol=1e-9)
    np.testing.assert_allclose(diagonal_A, expected_A.diagonal(), atol=1e-9)
    np.testing.assert_allclose(diagonal_Q, expected_Q.diagonal(), atol=1e-9)


def test_errors_become_scores():
    errors, scores = np.array([-0.1, 0.4, 0.9, 1.0]), np.empty(4)
    assert score_errors(errors, 1.0 - errors, 1.0, 1e-6, scores)
    np.testing.assert_allclose(scores, [0.0, -np.log(0.6), -np.log(0.1), -1.0])
    assert not score_errors(errors[:3], 1.0 - errors[:3], 1.0, 1e-6, scores[:3])


def log_densities(x, closeness, healthy):
    """Return Student's log densities (s, d) of the numbers of a row around healthy rows, without constants."""
    squares = np.minimum((closeness * (x - healthy)) ** 2, 1e16)
    return np.where(np.isnan(squares), 0.0, -2.5 * np.log(1.0 + squares / 4.0))


def draw_rows(seed, n, d):
    """Draw rows with gaps and with numbers that are far off, what differences count, and healthy rows."""
    rng = np.random.default_rng(seed)
    rows, closeness = rng.normal(size=(n, d)), rng.uniform(0.5, 30.0, d)
    rows *= 10.0 ** rng.choice([0.0, 3.0, 12.0, 100.0], size=(n, d), p=[0.7, 0.1, 0.1, 0.1])
    rows[rng.uniform(size=(n, d)) < 0.2] = np.nan
    return rows, closeness, rng.normal(size=(int(rng.integers(1, 9)), d))


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), f=st.integers(1, 20), lags=st.integers(1, 3), n_conditions=st.sampled_from([0, 2]))
def test_surprise_is_that_of_the_densities(seed, f, lags, n_conditions):
    rows, closeness, healthy = draw_rows(seed, 3, f * lags + n_conditions)
    found = np.empty((3, f))
    measure_surprise(rows, closeness, np.ascontiguousarray(healthy.T), lags, found)
    for x, surprise in zip(rows, found, strict=True):
        logs = log_densities(x, closeness, healthy)
        given, alone = logs[:, f * lags :].sum(axis=1), logs[:, : f * lags].reshape(-1, lags, f).sum(axis=1)
        for j in range(f):
            others = np.logaddexp.reduce(given + np.delete(alone, j, axis=1).sum(axis=1))
            among_others = others - np.logaddexp.reduce(given + alone.sum(axis=1))
            by_itself = np.logaddexp.reduce(given) - np.logaddexp.reduce(given + alone[:, j])
            assert surprise[j] == pytest.approx(among_others**2 + by_itself**2, rel=1e-7, abs=1e-7)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), d=st.integers(2, 60), k=st.integers(1, 2))
def test_expected_numbers_are_those_of_the_densities_moved_by_deviations_that_are_not_too_large(seed, d, k):
    rows, closeness, healthy = draw_rows(seed, 3, d)
    columns, slopes = np.arange(k), np.random.default_rng(seed).normal(size=(k, d))
    # Far numbers between gaps at even distances.
    closeness[::8], rows[0] = 0.0, 1e100
    means, variances = np.empty((2, 3, k))
    expect_numbers(rows, closeness, np.ascontiguousarray(healthy.T), columns, slopes, means, variances)
    for x, mean, variance in zip(rows, means, variances, strict=True):
        logs = log_densities(x, closeness, healthy).sum(axis=1)
        weights = np.exp(logs - np.logaddexp.reduce(logs))
        apart = np.nan_to_num(closeness * (x - healthy))
        away = np.where(np.abs(apart) <= 5.0, apart, 25.0 / np.where(apart == 0.0, 1.0, apart))
        values = healthy[:, columns] + away @ slopes.T
        np.testing.assert_allclose(mean, weights @ values, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(variance, weights @ (values - mean) ** 2, rtol=1e-7, atol=1e-7)
