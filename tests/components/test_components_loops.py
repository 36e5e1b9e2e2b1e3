"""The compiled step against the definitions of A and Q; also run without the compiler and with bounds checks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from streamkpca.components._loops import BLOCK_FULL, ILL_CONDITIONED, NO_GAIN_LEFT, ascend, step_gains
from streamkpca.components.ascent import subtract_block


def draw_problem(seed, p, r):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(40, r)) * rng.uniform(0.3, 3.0, size=r)
    return rng.normal(size=(p, r)), data.T @ data / 40


def defined(features, second_moment, weights):
    covariance = np.eye(features.shape[1]) + features.T @ (weights[:, None] * features)
    inverse = np.linalg.inv(covariance)
    return features @ inverse @ features.T, features @ inverse @ second_moment @ inverse @ features.T


def log_likelihood(features, second_moment, weights):
    covariance = np.eye(features.shape[1]) + features.T @ (weights[:, None] * features)
    return -0.5 * (np.linalg.slogdet(covariance)[1] + np.trace(np.linalg.solve(covariance, second_moment)))


def best_alone(features, second_moment, weights, i):
    """Find the largest likelihood that a change of one weight reaches."""

    def lost(value):
        changed = weights.copy()
        changed[i] = value
        return -log_likelihood(features, second_moment, changed)

    found = minimize_scalar(lost, bounds=(0.0, 100.0), method="bounded", options={"xatol": 1e-10})
    return -min(found.fun, lost(0.0))


def take_steps(features, second_moment, weights, block, *, least_gain=1e-12):
    A, Q = defined(features, second_moment, weights)
    diagonal_A, diagonal_Q = A.diagonal().copy(), Q.diagonal().copy()
    p = len(weights)
    changes, U, V = np.empty(block), np.empty((block, p)), np.empty((block, p))
    steps, status = ascend(A, Q, diagonal_A, diagonal_Q, weights, least_gain, changes, U, V)
    subtract_block(A, Q, changes[:steps], U[:steps], V[:steps])
    return steps, status, A, Q, diagonal_A, diagonal_Q


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10_000), p=st.integers(1, 9), r=st.integers(1, 6), block=st.integers(1, 12), warm=st.booleans()
)
def test_collected_changes_equal_recomputation(seed, p, r, block, warm):
    features, second_moment = draw_problem(seed, p, r)
    weights = np.random.default_rng(seed + 1).uniform(size=p) if warm else np.zeros(p)
    _, _, A, Q, diagonal_A, diagonal_Q = take_steps(features, second_moment, weights, block)
    expected_A, expected_Q = defined(features, second_moment, weights)
    np.testing.assert_allclose(A, expected_A, atol=1e-9)
    np.testing.assert_allclose(Q, expected_Q, atol=1e-9)
    np.testing.assert_allclose(diagonal_A, expected_A.diagonal(), atol=1e-9)
    np.testing.assert_allclose(diagonal_Q, expected_Q.diagonal(), atol=1e-9)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), warm=st.booleans())
def test_each_step_goes_to_the_maximum_of_the_best_coordinate(seed, warm):
    features, second_moment = draw_problem(seed, 4, 3)
    before = np.random.default_rng(seed).uniform(size=4) if warm else np.zeros(4)
    after = before.copy()
    steps, *_ = take_steps(features, second_moment, after, 1)

    best = max(best_alone(features, second_moment, before, i) for i in range(4))
    assert np.count_nonzero(after != before) == steps <= 1
    assert log_likelihood(features, second_moment, after) >= best - 1e-9


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000), warm=st.booleans())
def test_gains_are_those_of_the_best_changes(seed, warm):
    features, second_moment = draw_problem(seed, 4, 3)
    features[3] = 0.0
    weights = np.random.default_rng(seed).uniform(size=4) if warm else np.zeros(4)
    A, Q = defined(features, second_moment, weights)
    gains = np.full(4, np.nan)
    step_gains(A.diagonal().copy(), Q.diagonal().copy(), weights, gains)
    before = log_likelihood(features, second_moment, weights)
    for i in range(3):
        assert gains[i] == pytest.approx(best_alone(features, second_moment, weights, i) - before, abs=1e-8)
    assert gains[3] == 0.0


def test_stops_when_nothing_is_left_to_gain():
    features, second_moment = draw_problem(3, 5, 3)
    weights = np.zeros(5)
    steps, status, *_ = take_steps(features, second_moment, weights, 500)
    assert status == NO_GAIN_LEFT
    assert 0 < steps < 500
    assert take_steps(features, second_moment, weights, 5)[:2] == (0, NO_GAIN_LEFT)


def test_says_that_the_block_is_full():
    features, second_moment = draw_problem(3, 5, 3)
    assert take_steps(features, second_moment, np.zeros(5), 1)[:2] == (1, BLOCK_FULL)
    empty = np.empty((0, 5))
    A, Q = defined(features, second_moment, np.zeros(5))
    answer = ascend(empty, empty, A.diagonal().copy(), Q.diagonal().copy(), np.zeros(5), 0.0, np.empty(0), empty, empty)
    assert answer == (0, BLOCK_FULL)


@pytest.mark.parametrize(("moment", "weight"), [(1e8, 0.0), (0.0, 1e30)])
def test_says_that_a_step_was_too_large_for_updates(moment, weight):
    weights = np.array([weight])
    steps, status, *_ = take_steps(np.ones((1, 1)), np.full((1, 1), moment), weights, 4)
    assert (steps, status) == (1, ILL_CONDITIONED)
    np.testing.assert_allclose(weights, max(moment - 1.0, 0.0))


def test_removes_a_weight_exactly():
    weights = np.array([0.7, 0.1])
    take_steps(np.eye(2), np.diag([0.5, 3.0]), weights, 4)
    assert weights[0] == 0.0
    np.testing.assert_allclose(weights[1], 2.0)


def test_leaves_zero_rows_and_spoilt_numbers_alone():
    features = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    weights = np.zeros(3)
    take_steps(features, np.diag([4.0, 0.5]), weights, 8)
    np.testing.assert_allclose(weights, [0.0, 3.0, 0.0])

    spoilt = np.full((2, 2), np.nan)
    weights = np.zeros(2)
    steps, status = ascend(
        spoilt, spoilt, np.full(2, np.nan), np.ones(2), weights, 0.0, np.empty(3), np.empty((3, 2)), np.empty((3, 2))
    )
    assert (steps, status) == (0, NO_GAIN_LEFT)
    assert not weights.any()
