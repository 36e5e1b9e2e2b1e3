"""Page's test: how often it errs, what it sees, what it lets pass."""

import numpy as np
import pytest

from streamkpca.stream.summary import ResidualTrend


def watched(shares, error=0.0, trend=None):
    """Feed shares; return the trend and the positions of its signals."""
    trend, signals = trend or ResidualTrend(), []
    for i, share in enumerate(shares):
        before, trend = trend.n_blocks, trend.observe(float(share), error)
        if trend.n_blocks == 1 and before and trend.signalled:
            signals.append(i)
    return trend, signals


def noise(seed, n):
    return 0.1 + 0.01 * np.random.default_rng(seed).normal(size=n)


def test_a_steady_stream_is_hardly_ever_accused():
    # One false alarm in some 10^5 blocks; the seeds are set.
    assert sum(len(watched(noise(seed, 5000))[1]) for seed in range(6)) <= 1


@pytest.mark.parametrize(("shift", "most"), [(0.02, 30), (0.05, 6), (1.0, 4)])
def test_a_rise_is_signalled_soon(shift, most):
    for seed in range(10):
        shares = noise(seed, 200)
        shares[100:] += shift
        trend, signals = watched(shares)
        assert len(signals) == 1
        assert 100 < signals[0] <= 100 + most
        assert not trend.is_fresh


def test_one_bad_block_is_no_change():
    shares = 0.1 + 0.01 * np.resize([1.0, -1.0], 100)
    shares[50] = 1.0
    trend, signals = watched(shares)
    assert signals == []
    assert trend.level == pytest.approx(0.1, abs=0.01)


def test_a_fall_is_quiet_and_the_rise_back_is_not():
    shares = noise(0, 300)
    shares[100:200] -= 0.06
    _, signals = watched(shares)
    assert len(signals) == 1
    assert 200 < signals[0] < 206


def test_the_signal_is_fresh_until_the_new_level_is_known():
    shares = np.concatenate([noise(0, 50), noise(1, 50) + 0.2])
    trend, signals = watched(shares[:54])
    assert signals, "a rise by twenty deviations was not signalled within four blocks"
    fresh = [trend.is_fresh]
    for share in shares[54:70]:
        trend = trend.observe(share, 0.0)
        fresh.append(trend.is_fresh)
    assert fresh[0]
    assert not fresh[-1]
    assert sum(fresh) <= 8


def test_strength_grows_towards_a_signal():
    trend, _ = watched(0.1 + 0.01 * np.resize([1.0, -1.0], 50))
    assert 0.0 <= trend.strength < 0.2
    # A step is at most four deviations, of which half a deviation is tolerated; a sum of ten is a signal.
    assert trend.observe(0.5, 0.0).strength == pytest.approx(trend.strength + 0.35)


@pytest.mark.parametrize("share", [0.0, 1e-15, 1.0])
def test_constants_and_rounding_are_no_change(share):
    wobble = 1e-12 * np.random.default_rng(0).normal(size=500)
    assert watched(np.abs(share + wobble))[1] == []


def test_spread_within_blocks_counts_where_it_is_larger():
    shares = noise(0, 200)
    shares[100:] += 0.02
    assert watched(shares, error=0.1)[1] == []
