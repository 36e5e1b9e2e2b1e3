"""What a chart learns of healthy rows, against what is known of them."""

import itertools

import numpy as np
import pytest
from scipy.signal import lfilter

from streamkpca.changes.autocorrelation import Autocorrelation, estimate_autocorrelation
from streamkpca.changes.chart import tabulate_run_lengths


def autoregressive(memory, n, d=4, seed=0):
    noise = np.random.default_rng(seed).normal(size=(n + 200, d))
    return lfilter([np.sqrt(1.0 - memory**2)], [1.0, -memory], noise, axis=0)[200:]


@pytest.mark.parametrize("memory", [0.5, 0.8, 0.95])
def test_rows_count_for_as_many_as_their_squared_correlations_say(memory):
    found = estimate_autocorrelation(autoregressive(memory, 20_000))
    assert found.integrated_time == pytest.approx((1.0 + memory**2) / (1.0 - memory**2), rel=0.2)
    # The lag at which the correlation falls to 0.05.
    assert found.cutoff_lag == pytest.approx(np.log(0.05) / np.log(memory), rel=0.3)


def test_streams_are_blocks_of_neighbours():
    found = Autocorrelation(n=1000, cutoff_lag=5, integrated_time=3.0)
    streams = found.draw_streams(np.random.default_rng(0), 10_000)
    assert streams.size >= 8_000
    assert 0 <= streams.min() < streams.max() < 1000
    for block in itertools.chain.from_iterable(np.split(stream, len(stream) // 20) for stream in streams):
        np.testing.assert_array_equal(np.diff(block), 1)


def test_run_lengths_of_exponential_statistics_are_exponential():
    statistics = np.random.default_rng(0).exponential(size=(200, 2000))
    table = tabulate_run_lengths(statistics, Autocorrelation(n=100_000, cutoff_lag=1, integrated_time=1.0))
    for run_length in (30.0, 300.0, 3000.0):
        assert table.find_level(run_length) == pytest.approx(np.log(run_length), abs=0.3)
    # Beyond what the rows tell, lengths are smaller rather than larger.
    assert 0.7 * 12.0 < np.log(table.find_run_lengths(np.array([12.0]))[0]) < 12.3
