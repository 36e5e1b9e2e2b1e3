"""The compiled loops of rarities against their definitions; also run without the compiler and with bounds checks."""

import bisect
import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamkpca.monitoring._loops import N_BINS, rank_scores, smooth_roots, take_logarithms

# Their logarithms, by which they are compared, tell all of these apart.
SCORES = st.floats(1e-11, 1e14).map(lambda score: float(f"{score:.9g}"))


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


@given(
    scores=st.lists(SCORES, max_size=300),
    healthy=st.lists(SCORES, min_size=1, max_size=20),
    cuts=st.lists(st.integers(0, 300), max_size=5).map(sorted),
    most=st.sampled_from([1.0, 4.0]),
    uncounted=st.sampled_from([3, 1000]),
)
@example(scores=[1e-3] * 300, healthy=[1e-4] * 200, cuts=[7], most=4.0, uncounted=5)
@example(
    scores=[0.01 * i for i in range(1, 300)],
    healthy=[0.01 * i for i in range(1, 300)],
    cuts=[],
    most=1.0,
    uncounted=1000,
)
def test_scores_are_ranked_among_healthy_ones_and_all_earlier_ones(scores, healthy, cuts, most, uncounted):
    values, ordered = np.array(scores, dtype=np.float64), np.empty(len(healthy))
    take_logarithms(np.sort(healthy), ordered)
    counts, rarity, limited = np.zeros(N_BINS + 1), np.empty(len(values)), np.empty(len(values))
    is_counted = np.arange(len(values)) % uncounted != 0
    for start, stop in itertools.pairwise([0, *[min(cut, len(values)) for cut in cuts], len(values)]):
        part = slice(start, stop)
        rank_scores(values[part], is_counted[part], ordered, 0.5, most, counts, rarity[part], limited[part])
    earlier = []
    for i, score in enumerate(scores):
        as_high = sum(other >= score for other in healthy)
        if score <= max(healthy):
            assert rarity[i] == pytest.approx((len(healthy) + 1) / (as_high + 1), rel=1e-12)
        else:
            assert rarity[i] > len(healthy) + 1
        # Earlier scores are compared by their levels, 32 for a factor of e.
        level = math.floor((math.log(score) - math.log(1e-12)) * 32.0)
        as_high, n = len(earlier) - bisect.bisect_left(earlier, level), len(earlier)
        expected = min(rarity[i], most * (n + 1) / (as_high + 1)) if n >= 64 and is_counted[i] else rarity[i]
        assert limited[i] == pytest.approx(expected, rel=1e-12)
        if is_counted[i]:
            bisect.insort(earlier, level)
    assert counts[0] == len(earlier)


def test_counts_are_halved_when_there_are_many():
    counts, (rarity, limited) = np.zeros(N_BINS + 1), np.empty((2, 2**15))
    low, high, ordered = np.full(2**15, 1e-6), np.ones(2**14), np.full(1, math.log(1e-6))
    all_count = np.ones(2**15, dtype=bool)
    rank_scores(low, all_count, ordered, 0.01, 1.0, counts, rarity, limited)
    assert counts[0] == 2.0**15
    # The first high score halves what is counted, so that there are as many low ones as high ones in the end.
    rank_scores(high, all_count[: 2**14], ordered, 0.01, 1.0, counts, rarity, limited)
    assert counts[0] == 2.0**15
    rank_scores(high[:1], all_count[:1], ordered, 0.01, 1.0, counts, rarity, limited)
    assert limited[0] == (2.0**15 + 1.0) / (2.0**14 + 1.0)
    assert counts[0] == 2.0**14 + 1.0
