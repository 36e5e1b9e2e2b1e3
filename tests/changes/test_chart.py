"""What a chart learns of healthy rows, against what is known of them."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.signal import lfilter

from streamkpca.changes.autocorrelation import Autocorrelation, estimate_autocorrelation
from streamkpca.changes.chart import Chart, tabulate_run_lengths


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


# Columns of the five groups; the first two groups have means as statistics, the others the largest.
BOUNDS = np.array([0, 3, 5, 8, 9, 11])


def start_by_hand(rows, averages, precision, k, g):
    """Try every start: by how much a shift along the averages, as large as fits best, raises the likelihood."""
    columns = list(range(BOUNDS[g], BOUNDS[g + 1]))
    squares = {j: averages[k][j] ** 2 * precision[k][j] for j in columns}
    if g < 2:
        columns = [j for j in columns if squares[j] >= 1.0]
    else:
        columns = [max(columns, key=squares.get)]
    direction = {j: averages[k][j] for j in columns}
    best, start = -1.0, None
    for first in reversed(range(len(rows))):
        along = sum(direction[j] * rows[i][j] for j in columns for i in range(first, len(rows)))
        n_squares = (len(rows) - first) * sum(value**2 for value in direction.values())
        shift = max(along / n_squares, 0.0)
        # Of noise with variance 1: sum of x^2 - (x - shift v)^2.
        gain = 2.0 * shift * along - shift**2 * n_squares
        if gain > best + 1e-9:
            best, start = gain, first
    return start


@pytest.mark.parametrize("g", range(5))
@pytest.mark.parametrize("seed", range(4))
def test_a_change_began_where_a_shift_along_the_averages_is_likeliest(g, seed):
    rng = np.random.default_rng(seed)
    rates = np.array([1.0, 0.3, 0.1, 0.03, 0.01])
    precision = rng.uniform(0.5, 2.0, size=(5, 11)) * ((2.0 - rates) / rates)[:, None]
    chart = Chart(SimpleNamespace(bounds=BOUNDS), None, None, rates, precision, np.ones((5, 5)), np.ones((5, 5)))
    rows, true = rng.normal(size=(60, 11)), 20 + 5 * seed
    # Columns move against each other, so that their sum tells nothing; one stays.
    shift = rng.uniform(0.2, 1.5, size=11) * np.where(np.arange(11) % 2, -1.0, 1.0) * (np.arange(11) != 1)
    rows[true:] += shift
    averages = np.zeros((5, 11))
    for row in rows:
        averages += rates[:, None] * (row - averages)
    for k in range(1, 5):
        found = chart.locate_start(rows, averages, k * 5 + g)
        assert found == start_by_hand(rows.tolist(), averages.tolist(), precision.tolist(), k, g)
