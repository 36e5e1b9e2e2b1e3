"""How often Page's test errs, and weights that decay below all numbers."""

from functools import reduce

import numpy as np

from streamkpca.stream.summary import ResidualTrend, decay_weights


def test_a_steady_stream_is_hardly_ever_accused():
    n_signals = 0
    for seed in range(6):
        trend = ResidualTrend()
        for share in 0.1 + 0.01 * np.random.default_rng(seed).normal(size=5000):
            before, trend = trend.n_blocks, trend.observe(float(share), 0.0)
            n_signals += trend.n_blocks == 1 and before > 0 and trend.signalled
    # One false alarm in some 10^5 blocks; the seeds are set.
    assert n_signals <= 1
    assert reduce(lambda trend, _: trend.observe(0.15, 0.0), range(20), trend).signalled


def test_rows_whose_decay_underflows_weigh_nothing():
    factor, weights = decay_weights(np.ones(5), 1e-3)
    assert factor == 0.0
    assert weights.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
