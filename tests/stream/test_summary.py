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


def test_a_fall_is_quiet_and_the_rise_back_is_not():
    shares = noise(0, 300)
    shares[100:200] -= 0.06
    _, signals = watched(shares)
    assert len(signals) == 1
    assert 200 < signals[0] < 206


@pytest.mark.parametrize("share", [0.0, 1e-15, 1.0])
def test_constants_and_rounding_are_no_change(share):
    wobble = 1e-12 * np.random.default_rng(0).normal(size=500)
    assert watched(np.abs(share + wobble))[1] == []
