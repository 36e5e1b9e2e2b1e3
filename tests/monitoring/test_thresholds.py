"""Scores of recent rows, their thresholds, and the share of false alarms."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams_to_watch import normal_rows, small_model

from streamkpca.kernels import RBF
from streamkpca.monitoring import Monitor
from streamkpca.monitoring.thresholds import RecentScores, healthy_level, is_quiet, smoothed_run

Array = npt.NDArray[np.float64]


KINDS = {
    "exponential": lambda random, n: random.exponential(size=n),
    "few degrees": lambda random, n: random.chisquare(3, size=n),
    "log-normal": lambda random, n: np.exp(1.5 * random.normal(size=n)),
    "uniform": lambda random, n: random.uniform(size=n),
    "heavy": lambda random, n: random.pareto(2.0, size=n),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("quantile", [0.9, 0.99, 0.999])
def test_few_healthy_scores_exceed_the_level(kind: str, quantile: float) -> None:
    random = np.random.default_rng(0)
    levels = [healthy_level(KINDS[kind](random, 2000), quantile) for _ in range(5)]
    share = np.mean(KINDS[kind](random, 100_000)[:, None] > np.array(levels))
    assert 0.3 * (1.0 - quantile) <= share <= 2.0 * (1.0 - quantile)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.02, 0.1])
@pytest.mark.parametrize("factor", [10.0, 1000.0])
def test_anomalies_beyond_the_healthy_scores_do_not_raise_the_level(kind: str, share: float, factor: float) -> None:
    random = np.random.default_rng(1)
    scores = KINDS[kind](random, 2000)
    clean = healthy_level(scores, 0.99)
    n_odd = round(share * 2000)
    scores[:n_odd] = factor * np.quantile(scores, 0.99) * np.exp(0.3 * random.normal(size=n_odd))
    assert clean / 1.5 <= healthy_level(scores, 0.99) <= 1.5 * clean


@given(st.lists(st.booleans(), max_size=500))
def test_rows_are_quiet_with_few_alarms_among_their_neighbours(alarms: list[bool]) -> None:
    expected = [sum(alarms[max(i - 100, 0) : i + 101]) < 50 for i in range(len(alarms))]
    assert is_quiet(np.array(alarms, dtype=bool)).tolist() == expected


def none_alarms(scores: Array) -> npt.NDArray[np.bool_]:
    return np.zeros(len(scores), dtype=bool)


def test_thresholds_follow_when_an_eighth_is_new() -> None:
    scores = np.random.default_rng(0).exponential(size=1000)
    kept = RecentScores.none(0.9).replaced(scores[:160], 2.0 * scores[:160], none_alarms(scores[:160]))
    assert kept.threshold == healthy_level(2.0 * scores[:160], 0.9)
    assert kept.limit == healthy_level(scores[:160], 0.99)
    first, second = scores[160:176], scores[176:200]
    assert kept.added(first, first, none_alarms(first)).threshold == kept.threshold
    later = kept.added(first, 2.0 * first, none_alarms(first)).added(second, 2.0 * second, none_alarms(second))
    assert later.n_new == 0
    assert later.threshold == healthy_level(2.0 * scores[:200], 0.9)


def test_only_the_latest_scores_count_and_none_among_many_alarms() -> None:
    scores = np.random.default_rng(0).exponential(size=4096)
    is_alarm = np.zeros(4096, dtype=bool)
    is_alarm[3000:3100] = True
    found = RecentScores.none(0.99).added(scores, scores, is_alarm).renewed()
    assert found.raw.tolist() == scores[2048:].tolist()
    # A hundred on either side.
    assert found.threshold == healthy_level(np.concatenate([scores[2048:2950], scores[3150:]]), 0.99)


def test_without_scores_there_is_no_threshold() -> None:
    none, empty = RecentScores.none(0.99), np.empty(0)
    assert math.isinf(none.added(empty, empty, none_alarms(empty)).renewed().threshold)
    assert math.isinf(none.added(np.ones(1000), np.ones(1000), none_alarms(np.ones(1000))).threshold)


@pytest.mark.parametrize("kernel", [RBF().in_units("std"), RBF()])
def test_scores_and_thresholds_are_of_one_kernel(kernel: RBF) -> None:
    rows = normal_rows(1500)
    rows[:100] *= 0.05
    monitor, known, n_changes = Monitor(small_model(kernel), smoothing=0.5), None, 0
    for start in range(0, 1500, 30):
        monitor.update(rows[start : start + 30])
        state = monitor._state
        assert state is not None
        if monitor._scorer.kernel != known and np.isfinite(state.scores.threshold):
            known, n_changes = monitor._scorer.kernel, n_changes + 1
            n_late = len(state.late)
            np.testing.assert_array_equal(
                state.scores.raw[-n_late:] if n_late else [], monitor._scorer.novelty(state.late)
            )
            counting = is_quiet(state.scores.is_alarm)
            assert state.scores.threshold == healthy_level(state.scores.smoothed[counting], 0.99)
            assert state.scores.limit == healthy_level(state.scores.raw[counting], state.scores.limit_quantile)
    assert n_changes > 1


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
