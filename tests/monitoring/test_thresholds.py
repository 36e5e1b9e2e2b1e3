"""Scores of recent rows, their thresholds, and the share of false alarms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams_to_watch import normal_rows, small_model

from streamkpca.monitoring import Monitor
from streamkpca.monitoring.thresholds import RecentScores, smoothed_run


def slow_level(scores: list[float], quantile: float) -> float:
    """Return the smallest score that a newcomer, which counts as the largest, exceeds rarely enough."""
    weights = [2.0 ** (-(len(scores) - 1 - i) / 2048.0) for i in range(len(scores))]
    newcomer = sum(w * w for w in weights) / sum(weights)
    wanted, below = quantile * (sum(weights) + newcomer), 0.0
    for score, weight in sorted(zip(scores, weights, strict=True)):
        below += weight
        if below >= wanted * (1.0 - 1e-12):
            return score
    return max(scores)


@given(st.integers(1, 400), st.sampled_from([0.5, 0.9, 0.99]), st.integers(0, 5))
def test_thresholds_are_levels_of_the_definition(n: int, quantile: float, seed: int) -> None:
    scores = np.random.default_rng(seed).exponential(size=n)
    found = RecentScores.none(quantile).replaced(scores, 2.0 * scores)
    assert found.raw_threshold == slow_level(scores.tolist(), quantile)
    assert found.threshold == 2.0 * found.raw_threshold


def test_thresholds_follow_when_a_sixteenth_is_new() -> None:
    scores = np.random.default_rng(0).exponential(size=1000)
    kept = RecentScores.none(0.9).replaced(scores[:160], scores[:160])
    assert kept.added(scores[160:168], scores[160:168]).threshold == kept.threshold
    later = kept.added(scores[160:168], scores[160:168]).added(scores[168:200], scores[168:200])
    assert later.n_new == 0
    assert later.threshold == slow_level(scores[:200].tolist(), 0.9)


def test_only_the_latest_scores_count() -> None:
    scores = np.concatenate([np.full(1000, 1e6), np.random.default_rng(0).exponential(size=4096)])
    found = RecentScores.none(0.99).replaced(scores[:1000], scores[:1000]).renewed(scores[1000:], scores[1000:])
    assert found.raw.tolist() == scores[1000:].tolist()
    assert found.threshold == slow_level(scores[1000:].tolist(), 0.99)


def test_without_scores_there_is_no_threshold() -> None:
    none = RecentScores.none(0.99)
    empty = np.empty(0)
    assert none.added(empty, empty) is none
    assert math.isinf(none.renewed(empty, empty).threshold)
    assert math.isinf(none.added(np.ones(1000), np.ones(1000)).threshold)


@given(st.lists(st.floats(0.0, 1e300), max_size=40), st.floats(0.01, 1.0), st.integers(0, 40))
def test_smoothing_goes_on_where_it_stopped(scores: list[float], smoothing: float, cut: int) -> None:
    values = np.array(scores)
    whole = smoothed_run(values, smoothing, None)
    first = smoothed_run(values[:cut], smoothing, None)
    assert ((whole >= 0.0) & (whole <= max(scores, default=0.0) * (1.0 + 1e-9))).all()
    second = smoothed_run(values[cut:], smoothing, float(first[-1]) if len(first) else None)
    # The mean is kept as a square, whose root is rounded where the run goes on.
    np.testing.assert_allclose(np.concatenate([first, second]), whole, rtol=1e-9)
    assert smoothed_run(values, None, None) is values


@pytest.mark.slow
@pytest.mark.parametrize(("d", "sizes"), [(5, [300, 1000]), (20, [400])])
def test_shares_of_false_alarms_are_near_what_was_asked_for(d: int, sizes: list[int]) -> None:
    shares = []
    for seed in range(3):
        alarms = Monitor().update(np.random.default_rng([d, seed]).normal(size=(sizes[-1] + 1000, d))).is_alarm
        shares.append([alarms[n : n + 1000].mean() for n in sizes])
    mean = np.mean(shares, axis=0)
    assert ((mean >= 0.005) & (mean <= 0.02)).all(), mean


@pytest.mark.parametrize("parameters", [{"lags": 3}, {"smoothing": 0.3}, {"lags": 2, "smoothing": 0.1}])
def test_thresholds_account_for_lags_and_smoothing(parameters: dict[str, float]) -> None:
    shares = []
    for seed in range(3):
        record = Monitor(small_model(), quantile=0.95, **parameters).update(normal_rows(1000, seed=seed))  # type: ignore[arg-type]
        shares.append(record.is_alarm[300:].mean())
    assert 0.01 <= np.mean(shares) <= 0.12


def test_a_long_fault_does_not_raise_the_threshold() -> None:
    rows = normal_rows(1600)
    rows[800:1200, 1] += 15.0
    record = Monitor(small_model()).update(rows)
    assert record.is_alarm[800:1200].all()
    assert record.threshold[1216] < 1.5 * record.threshold[799]
