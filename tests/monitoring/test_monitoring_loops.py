"""The compiled loops of thresholds against their definitions; also run without the compiler and with bounds checks."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamkpca.monitoring._loops import level_of_ordered, smooth_roots


@given(st.lists(st.floats(0.0, 1e300), max_size=20), st.floats(0.01, 1.0), st.floats(0.0, 1e300), st.integers(0, 20))
def test_roots_are_averaged_wherever_the_run_is_cut(scores, smoothing, last, cut):
    values = np.array(scores, dtype=np.float64)
    found, parts = np.empty(len(values)), np.empty(len(values))
    smooth_roots(values, smoothing, last, found)
    mean = np.sqrt(last)
    for score, smoothed in zip(scores, found, strict=True):
        mean = (1.0 - smoothing) * mean + smoothing * np.sqrt(score)
        assert smoothed == pytest.approx(mean**2, rel=1e-9, abs=1e-290)
    cut = min(cut, len(values))
    smooth_roots(values[:cut], smoothing, last, parts[:cut])
    smooth_roots(values[cut:], smoothing, parts[cut - 1] if cut else last, parts[cut:])
    # The root of a square is exact, unless the square underflows.
    np.testing.assert_array_equal(parts[found > 1e-290], found[found > 1e-290])


def slow_level(scores, quantile):
    """Return the level of healthy scores, from the definition."""
    ordered = [math.log(max(score, 1e-12)) for score in sorted(scores.tolist())]
    n, end = len(ordered), max(quantile, 0.99)

    def upper_and_slope(healthy):
        last = healthy - 1
        middle, upper = ordered[round(0.5 * last)], ordered[round(0.85 * last)]
        return upper, (upper - middle) / math.log(0.5 / 0.15)

    def reached(healthy, level):
        upper, slope = upper_and_slope(healthy)
        return upper + slope * math.log(0.15 / (1.0 - level))

    healthy = math.ceil(0.88 * n)
    while any(value <= reached(healthy, end) for value in ordered[healthy:]):
        healthy = sum(value <= reached(healthy, end) for value in ordered)
    slope, shares = upper_and_slope(healthy)[1], {}
    for k in range(math.ceil(0.88 * n), healthy):
        if n - k > max(10, round((1.0 - end) * n)):
            shares[k] = sum(value <= ordered[k - 1] + 0.5 * slope for value in ordered[k:]) / (n - k)
    if shares and min(shares.values()) <= 0.125:
        healthy = min(shares, key=lambda k: shares[k])
    n_healthy = min(n, healthy * (1.0 + 0.5 * (1.0 - end)))
    level = ordered[min(math.ceil(quantile * (n_healthy + 1.0)), healthy) - 1]
    return math.exp(min(level, reached(healthy, quantile)) if quantile > 0.85 else level)


@given(
    n=st.integers(1, 400),
    quantile=st.sampled_from([0.5, 0.9, 0.99, 0.999]),
    spread=st.sampled_from([0.0, 0.5, 1.5, 4.0]),
    n_odd=st.integers(0, 20),
)
@example(n=400, quantile=0.99, spread=1.5, n_odd=0)
def test_levels_are_those_of_the_definition(n, quantile, spread, n_odd):
    scores = np.exp(spread * np.random.default_rng(n).normal(size=n))
    scores[:n_odd] *= 100.0
    scores.sort()
    found = level_of_ordered(scores, quantile)
    assert found == pytest.approx(slow_level(scores, quantile), rel=1e-12)
    assert level_of_ordered(1024.0 * scores, quantile) == pytest.approx(1024.0 * found, rel=1e-9)
