"""The compiled loops of monitors against their definitions; also run without the compiler and with bounds checks."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from streams_to_watch import follow_slowly

from streamkpca.monitoring._loops import MOST_NEEDED, N_BINS, RAISED, follow_events, limit_rarities, rank_scores
from streamkpca.monitoring._loops import take_logarithms as take
from streamkpca.monitoring.recent import average, begin_anew, no_averages

# Their logarithms, by which they are compared, tell all of these apart.
SCORES = st.floats(1e-11, 1e14).map(lambda score: float(f"{score:.9g}"))
CUTS = st.lists(st.integers(0, 600), max_size=5).map(sorted)


def pieces(n, cuts):
    edges = [0, *(min(cut, n) for cut in cuts), n]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


# Averages of the last rows


@given(
    st.lists(st.lists(st.just(math.nan) | st.floats(-1e6, 1e6), min_size=2, max_size=2), max_size=40),
    CUTS,
    st.booleans(),
)
def test_averages_are_those_of_a_plain_loop_with_gaps_wherever_the_run_is_cut(rows, cuts, begins_anew):
    values, averages, found = np.array(rows).reshape(-1, 2), no_averages(2), []
    for k, place in enumerate(pieces(len(values), cuts)):
        if begins_anew and k == 1:
            averages = begin_anew(averages)
        part, averages = average(values[place], averages)
        found.append(part)
    last = np.concatenate(found)
    anew = min(cuts[0], len(values)) if begins_anew and cuts else -1
    for j in range(2):
        mean, variance = None, 0.0
        for i, number in enumerate(values[:, j]):
            mean = None if i == anew else mean
            # A column starts at its first number.
            before = number if mean is None else mean
            expected = [math.nan] * 2 if math.isnan(before) else [before, math.sqrt(variance)]
            assert last[i, [j, 2 + j]] == pytest.approx(expected, rel=1e-9, abs=1e-6, nan_ok=True)
            if not math.isnan(number):
                mean = before + (number - before) / 8
                variance = 7 / 8 * variance + 7 / 64 * (number - before) ** 2
    whole, end = average(values, no_averages(2))
    assert anew >= 0 or (whole.tobytes(), end.tobytes()) == (last.tobytes(), averages.tobytes())


# Rarities


@given(scores=st.lists(SCORES, max_size=60), healthy=st.lists(SCORES, min_size=1, max_size=20))
def test_scores_are_ranked_among_healthy_ones(scores, healthy):
    ordered, rarity = np.empty(len(healthy)), np.empty(len(scores))
    take(np.sort(healthy), ordered)
    rank_scores(np.array(scores, dtype=float), ordered, 0.5, rarity)
    for score, found in zip(scores, rarity, strict=True):
        as_high = sum(other >= score for other in healthy)
        if score <= max(healthy):
            assert found == pytest.approx((len(healthy) + 1) / (as_high + 1), rel=1e-12)
        else:
            assert found > len(healthy) + 1


@given(seed=st.integers(0, 2**16), n=st.integers(0, 2500), cuts=CUTS, uncounted=st.sampled_from([3, 10_000]))
@example(seed=0, n=2500, cuts=[1023, 1025], uncounted=10_000)
def test_rarities_are_limited_by_their_rank_among_the_latest(seed, n, cuts, uncounted):
    rarity = np.exp(np.random.default_rng(seed).exponential(3.0, n))
    is_counted = np.arange(n) % uncounted != 1
    counts, limited = np.zeros(N_BINS + 1), np.empty(n)
    for part in pieces(n, cuts):
        limit_rarities(rarity[part], is_counted[part], 10.0, counts, limited[part])
    # Rarities are compared by their bins, of which there are 128 for a factor of e.
    bins = np.minimum(np.log(rarity) * 128.0, 2047).astype(int)
    weights, expected = np.zeros(2048), rarity.copy()
    for i in np.flatnonzero(is_counted):
        total = weights.sum()
        if total >= 64:
            expected[i] = min(rarity[i], 10.0 * (total + 1.0) / (weights[bins[i] :].sum() + 1.0))
        weights *= 0.5 if total >= 1024 else 1.0
        weights[bins[i]] += 1.0
    np.testing.assert_allclose(limited, expected, rtol=1e-9)
    assert counts[0] == pytest.approx(weights.sum(), rel=1e-12)


# Events


def follow(rarity, is_fault, threshold, end_after, allowance, parts):
    """Return alarms and beginnings of rows that are judged in parts; between two parts, ten rows are skipped."""
    n = len(rarity)
    recent, counters = np.zeros(200), np.array([0.0, 2.0**40, 0.0])
    is_alarm, begins = np.zeros((2, n), dtype=bool)
    for k, part in enumerate(parts):
        if k and not isinstance(parts, list):
            counters[1] += 10
        follow_events(
            rarity[part],
            is_fault[part],
            threshold,
            end_after,
            allowance[part],
            recent,
            counters,
            is_alarm[part],
            begins[part],
        )
    return is_alarm, begins


@given(
    seed=st.integers(0, 2**16),
    n=st.integers(1, 600),
    end_after=st.sampled_from([1, 10, 30]),
    rate=st.sampled_from([None, 1 / 16, 1.0]),
    n_faults=st.sampled_from([0, 30]),
    cuts=CUTS,
    skips=st.booleans(),
)
def test_events_begin_at_records_and_last_while_alarms_follow(seed, n, end_after, rate, n_faults, cuts, skips):
    random = np.random.default_rng(seed)
    # Powers of two, so that there are ties.
    rarity = 2.0 ** random.choice(14, n, p=[0.7] + [0.3 / 13] * 13)
    is_fault = np.zeros(n, dtype=bool)
    is_fault[random.integers(0, n, n_faults)] = True
    parts, allowance = pieces(n, cuts), np.full(n, math.inf if rate is None else rate)
    positions = np.arange(n) + (10 * np.searchsorted(cuts, np.arange(n), side="right") if skips else 0)
    is_alarm, begins = follow(rarity, is_fault, 64.0, end_after, allowance, tuple(parts) if skips else parts)
    expected = follow_slowly(rarity, is_fault, 64.0, end_after, rate, positions)
    assert (np.flatnonzero(is_alarm).tolist(), np.flatnonzero(begins).tolist()) == expected


@given(
    rises=st.lists(st.tuples(st.integers(1, 40), st.floats(0.0, 9.0)), min_size=1, max_size=80),
    rate=st.sampled_from([1e-4, 1 / 64, 1 / 8]),
    threshold=st.sampled_from([2.0, 100.0, 1000.0]),
    has_faults=st.booleans(),
)
# As many as there may be: each is just rare enough for the next.
@example(rises=[(1, 0.0)] + [(11, 2.0 + 0.3 * k) for k in range(15)], rate=1e-4, threshold=100.0, has_faults=False)
@example(
    rises=[(1, 2.0), (11, 2.01), *((11, 2.02 + 0.3 * k) for k in range(1, 15))],
    rate=1e-4,
    threshold=100.0,
    has_faults=False,
)
@example(rises=[(201, 9.0)] * 30, rate=1e-4, threshold=100.0, has_faults=False)
def test_no_sequence_breaks_the_budget_of_events(rises, rate, threshold, has_faults):
    # Rows of a rarity after some that are common; above all records that rise.
    rarity = np.concatenate([[*np.ones(wait - 1), 10.0**rise] for wait, rise in rises])
    none = np.zeros(len(rarity), dtype=bool)
    # Confirmed faults are told beside the budget, and take nothing from it.
    is_fault = none | (has_faults & (np.arange(len(rarity)) % 50 == 7) & (rarity < threshold))
    _, begins = follow(rarity, is_fault, threshold, 10.0, np.full(len(rarity), rate), [slice(None)])
    # In each window of T rows: what has begun beyond a T, less the least before.
    beyond = np.concatenate([[0], np.cumsum(begins & ~is_fault)]) - rate * np.arange(len(begins) + 1)
    in_advance = (MOST_NEEDED - math.log10(threshold) + RAISED) / RAISED
    assert (beyond - np.minimum.accumulate(beyond)).max() <= in_advance + 1e-6
