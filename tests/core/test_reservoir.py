"""The reservoir draws fairly, whatever the blocks, the half-life and the shards."""

import numpy as np
import pytest

from streamkpca._core.reservoir import Reservoir, arrival_times

ROWS = np.random.default_rng(0).normal(size=(400, 2))


def sampled(size, seed, rows=ROWS, weights=None, block=50, half_life=None):
    a = np.ones(len(rows)) if weights is None else weights
    reservoir = Reservoir.empty(size, rows.shape[1])
    for start in range(0, len(rows), block):
        part = a[start : start + block]
        if half_life is not None:
            reservoir = reservoir.decay(2.0 ** (-len(part) / half_life))
            part = part * 2.0 ** (-np.arange(len(part))[::-1] / half_life)
        times = arrival_times(seed, start, rows[start : start + block], 1)[0]
        reservoir = reservoir.add(rows[start : start + block], part, start, times)
    return reservoir


def assert_frequencies(counts, expected, trials):
    """Check that each count is within five standard deviations of a binomial count."""
    deviation = np.sqrt(trials * expected * (1.0 - expected)) + 1e-9
    assert np.abs(counts - trials * expected).max() < 5.0 * deviation.max()


def test_the_first_draw_is_in_proportion_to_decayed_weight():
    weights = np.random.default_rng(1).uniform(0.0, 2.0, 60)
    weights[:5] = 0.0
    now = weights * 2.0 ** (-np.arange(60)[::-1] / 30.0)
    trials, counts = 4000, np.zeros(60)
    for seed in range(trials):
        reservoir = sampled(8, seed, ROWS[:60], weights, block=7, half_life=30.0)
        counts[reservoir.positions[0]] += 1
        if seed == 0:
            np.testing.assert_allclose(reservoir.weights, now[reservoir.positions])
    assert_frequencies(counts, now / now.sum(), trials)
    assert not counts[:5].any()


def test_sums_over_the_sample_estimate_sums_over_the_stream():
    weights = np.random.default_rng(1).uniform(0.1, 2.0, 400)
    values = ROWS[:, 0] ** 2
    estimates = []
    for seed in range(400):
        reservoir = sampled(60, seed, weights=weights)
        estimates.append(reservoir.inclusion_weights() @ values[reservoir.positions])
    assert np.mean(estimates) == pytest.approx(weights @ values, abs=5 * np.std(estimates) / 20)


def test_shards_with_equal_seeds_draw_independently():
    trials, both = 400, 0
    for seed in range(trials):
        left, right = sampled(10, seed, ROWS[:100]), sampled(10, seed, ROWS[100:200])
        both += len(set(left.positions.tolist()) & set(right.positions.tolist()))
    # One position in a hundred is in both by chance: one in each trial, with a variance below 1.
    assert abs(both - trials) < 5 * np.sqrt(trials)


@pytest.mark.parametrize("size", [0, 1])
def test_the_smallest_reservoirs(size):
    reservoir = sampled(size, 0)
    assert len(reservoir) == size
    assert len(reservoir.inclusion_weights()) == size
    assert len(reservoir.merge(sampled(5, 1), 400)) == size


def test_a_part_of_a_sample_is_the_sample_that_the_same_draws_give():
    rng = np.random.default_rng(0)
    large, small = Reservoir.empty(40, 2), Reservoir.empty(10, 2)
    for start in range(0, 100, 5):
        rows, weights = rng.normal(size=(5, 2)), rng.uniform(0.1, 2.0, 5)
        times = arrival_times(0, start, rows, 1)[0]
        large, small = (sample.add(rows, weights, start, times) for sample in (large, small))
        part = large.first(10)
        assert len(part) == len(small)
        np.testing.assert_array_equal(part.positions, small.positions)
        np.testing.assert_array_equal(part.normalised_weights(), small.normalised_weights())
    later = large.since(50)
    assert later.positions.tolist() == [position for position in large.positions if position >= 50]
    np.testing.assert_array_equal(later.rows, large.rows[large.positions >= 50])
