"""Alarms within a bound: the promised rate holds, faults are found, and learning goes on as without it."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import poisson
from streams_to_watch import normal_rows, small_model

from streamkpca.monitoring import Monitor
from streamkpca.monitoring.bound import FalseAlarmBound, judge_by_bound, renew_ratio
from streamkpca.monitoring.learning import renew

RATE = 1 / 500


def scores(n, memory, seed):
    """Return sums of squares of autoregressive columns, in units of their .99 quantile."""
    rows = np.random.default_rng(seed).normal(size=(n, 4))
    rows[1:] *= np.sqrt(1.0 - memory**2)
    squares = np.sum(lfilter([1.0], [1.0, -memory], rows, axis=0) ** 2, axis=1)
    return np.asarray(squares / np.quantile(squares, 0.99))


def n_runs(is_alarm):
    return int(np.count_nonzero(is_alarm[1:] & ~is_alarm[:-1]) + is_alarm[0])


def judged_in_pieces(bound, values, cuts):
    """Judge scores in pieces, with a new level after each 64."""
    alarms, levels = [], []
    edges = sorted({0, len(values), *cuts, *range(0, len(values), 64)})
    for start, stop in itertools.pairwise(edges):
        bound, is_alarm, level = judge_by_bound(bound, values[start:stop], 1.0)
        alarms.append(is_alarm)
        levels.append(level)
        if stop % 64 == 0:
            bound = renew_ratio(bound)
    return bound, np.concatenate(alarms), np.concatenate(levels)


@pytest.mark.parametrize("memory", [0.0, 0.9, 0.99])
def test_the_promise_is_kept_on_scores_that_resemble_their_neighbours(memory):
    kept = []
    for seed in range(12):
        _, is_alarm, _ = judged_in_pieces(FalseAlarmBound(RATE), scores(8000, memory, seed), [])
        kept.append(n_runs(is_alarm) <= poisson.ppf(0.95, 8000 * RATE))
    # Promised for 96% of references: among twelve, three that break it have a chance of 1%.
    assert sum(kept) >= 10


def test_gross_and_slow_faults_are_found_and_runs_end_with_them():
    values = scores(6000, 0.5, 0)
    values[5000:5040] *= 30.0
    values[5500:5700] *= np.linspace(1.0, 30.0, 200)
    _, is_alarm, _ = judged_in_pieces(FalseAlarmBound(1 / 2000), values, [])
    assert is_alarm[5000:5040].sum() >= 20
    assert is_alarm[5500:5700].any()
    assert not is_alarm[5060:5500].any()


@given(st.lists(st.integers(0, 1500)), st.integers(0, 9), st.sampled_from([RATE, 1e-4]))
def test_alarms_are_those_of_a_loop_however_the_scores_are_cut(cuts, seed, rate):
    random = np.random.default_rng(seed)
    values = random.pareto(2.0, 1500) * np.where(random.random(1500) < 0.02, 5.0, 0.2)
    bound, is_alarm, levels = judged_in_pieces(FalseAlarmBound(rate), values, cuts)
    other, same, _ = judged_in_pieces(FalseAlarmBound(rate), values, [])
    np.testing.assert_array_equal(is_alarm, same)
    assert bound.ratio == other.ratio
    np.testing.assert_array_equal(bound.maxima, other.maxima)
    np.testing.assert_array_equal(bound.pending, other.pending)
    was, level, expected = False, math.inf, []
    for value, in_force in zip(values, levels, strict=True):
        level = in_force if not was else level
        assert in_force == (1.0 if was else level)
        was = bool(value > in_force)
        expected.append(was)
    assert is_alarm.tolist() == expected


def test_blocks_with_alarms_are_left_out_but_for_the_promised_ones():
    bound = FalseAlarmBound(RATE)
    healthy, faulty = np.full(8, 0.5), np.full(8, 90.0)
    bound, _, _ = judge_by_bound(bound, np.tile(healthy, 60), 1.0)
    bound, is_alarm, _ = judge_by_bound(renew_ratio(bound), np.concatenate([healthy, faulty, faulty, healthy]), 1.0)
    assert is_alarm.sum() == 16
    # 488 healthy rows are less than the 500 after which one alarm run counts, as if it had just reached the ratio.
    assert bound.n_known == 62 * 8
    bound, _, _ = judge_by_bound(bound, np.concatenate([healthy, healthy, faulty, faulty, healthy]), 1.0)
    assert bound.n_known == 66 * 8
    assert sorted(bound.maxima)[-1] == bound.ratio < 90.0


def test_a_contract_changes_alarms_and_events_and_nothing_else():
    rows = normal_rows(3000)
    rows[2500:2520, 1] += 12.0
    plain, bound = Monitor(small_model()), Monitor(small_model(), false_alarms=RATE)
    one, other = plain.update(rows), bound.update(rows)
    assert one.novelty.tobytes() == other.novelty.tobytes()
    assert one.rarity.tobytes() == other.rarity.tobytes()
    assert plain.model.to_bytes() == bound.model.to_bytes()
    assert not (other.is_alarm & ~one.is_alarm).any()
    np.testing.assert_array_equal(other.is_alarm, other.rarity > other.threshold)
    assert (other.threshold >= one.threshold).all()
    assert other.is_alarm[2500:2520].any()
    assert n_runs(one.is_alarm) > 2 * n_runs(other.is_alarm)
    assert any(event.start in range(2500, 2520) for event in bound.events_)
    assert bound.n_events_ < plain.n_events_
    assert plain.bound_ is None


def test_a_contract_says_how_many_healthy_rows_it_needs_and_raises_no_alarm_before():
    monitor = Monitor(small_model(), false_alarms=1e-6)
    rows = normal_rows(800)
    rows[700:] += 50.0
    record = monitor.update(rows)
    assert not record.is_alarm.any()
    assert np.isinf(record.threshold).all()
    bound = monitor.bound_
    assert bound.n_needed == 500_000
    assert repr(bound).startswith(
        "<FalseAlarmBound: one false alarm run in 1,000,000 healthy rows needs 500,000 healthy"
    )
    assert repr(bound).endswith("no alarm before>")


def test_a_break_ends_an_alarm_run_and_new_scales_do_not():
    monitor = Monitor(small_model(), false_alarms=RATE)
    monitor.update(normal_rows(3000))
    state = monitor._state
    state = replace(state, bound=replace(state.bound, is_open=True))
    for after, is_open in ((renew(state, monitor._scorer), True), (state.begin_anew(), False)):
        assert (after.last_scores, after.bound.is_open) == (None, is_open)


def test_a_contract_that_no_block_length_can_keep_asks_for_more_rows():
    # The highest scores follow each other for hundreds of rows, and there are less than 16 blocks that are longer.
    bound = FalseAlarmBound(RATE)
    values = 0.1 + 0.8 * np.sin(np.arange(2000) / 300) ** 2
    bound = renew_ratio(judge_by_bound(bound, values, 1.0)[0])
    assert math.isinf(bound.ratio)
    assert bound.n_known < bound.n_needed


def test_a_known_ratio_is_said():
    bound, _, _ = judged_in_pieces(FalseAlarmBound(RATE), scores(4000, 0.0, 0), [])
    assert f"one false alarm run in 500 healthy rows; runs begin at {bound.ratio:.3g} times the threshold" in repr(
        bound
    )
