"""Rarity: ranks of scores among healthy ones, and what they say of healthy streams, faults and changes."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams_to_watch import normal_rows, small_model

from streamkpca.monitoring import Monitor
from streamkpca.monitoring.rarity import RarityScale, Views


def scale_of(logs):
    return RarityScale(np.sort(np.array(logs)))


def rarity_of(scale, scores):
    return scale.rank(scores)


# Quarters, so that there are ties.
logarithms = st.lists(st.integers(-20, 20).map(lambda k: k / 4.0), min_size=1, max_size=60)


@given(logarithms, st.integers(-30, 20).map(lambda k: k / 4.0))
def test_rarity_is_the_conformal_rank_and_ties_count_as_as_high(logs, log):
    (found,) = rarity_of(scale_of(logs), np.exp([min(log, max(logs))]) * (1.0 - 1e-12))
    as_high = sum(other >= min(log, max(logs)) for other in logs)
    assert found == pytest.approx((len(logs) + 1) / (as_high + 1), rel=1e-12)


@given(logarithms, st.floats(1.0, 1e3))
def test_the_level_of_a_rarity_is_the_highest_score_that_is_not_rarer(logs, rarity):
    scale = scale_of(logs)
    level = scale.level(rarity)
    below, above = rarity_of(scale, level * np.array([1.0 - 1e-9, 1.0 + 1e-9]))
    assert below <= rarity * (1.0 + 1e-9)
    assert above >= rarity * (1.0 - 1e-9)


def test_beyond_the_highest_score_rarity_grows_with_the_tail_and_then_slowly():
    logs = np.sort(np.random.default_rng(0).exponential(size=500))
    scale = RarityScale(logs)
    slope = logs[450:].mean() - logs[450]
    t = np.array([0.1, 1.0, 2.0, 5.0, 50.0])
    found = rarity_of(scale, np.exp(logs[-1] + t * slope))
    expected = [501 * math.exp(0.1), 501 * math.e, 501 * math.e**2, *(5010 * (1 + t[3:] - math.log(10.0)))]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert np.isfinite([*rarity_of(scale, np.array([1e300])), scale.level(1e300)]).all()


@pytest.mark.parametrize("score", [0.0, 3.0])
def test_a_constant_reference_knows_its_value_alone(score):
    scale = RarityScale.fit(np.full(300, score))
    same, higher = rarity_of(scale, np.array([score, score + 0.1]))
    assert same == 1.0
    assert higher > 301.0
    assert scale.level(100.0) == pytest.approx(score, abs=2e-12)


@pytest.mark.parametrize("n", [40, 400, 2000])
def test_isolated_anomalies_among_healthy_scores_are_left_out_and_a_value_that_returns_is_not(n):
    random = np.random.default_rng(n)
    scores, n_odd = np.exp(0.3 * random.normal(size=n)), n // 8 - 1
    healthy = np.sort(np.log(scores[n_odd:]))
    scores[:n_odd] = 50.0 * np.exp(0.3 * random.normal(size=n_odd))
    np.testing.assert_allclose(RarityScale.fit(scores).logs, healthy, rtol=1e-12, atol=1e-12)
    scores[:n_odd] = 50.0
    assert len(RarityScale.fit(scores).logs) == n
    # Without a gap nothing is left out, however long the tail.
    assert len(RarityScale.fit(random.standard_t(3, size=n) ** 2).logs) >= 0.97 * n


@pytest.mark.parametrize("n_views", [1, 2, 3])
def test_views_are_joined_by_the_root_of_squares_and_ranked_once_more(n_views):
    random = np.random.default_rng(n_views)
    # No gaps, so that all are kept.
    scores = random.uniform(1.0, 2.0, size=(n_views, 499))
    views = Views.fit(None, None, scores)

    def rank(value, healthy):
        return (len(healthy) + 1) / (np.count_nonzero(healthy >= value * (1.0 - 1e-12)) + 1)

    def join(row):
        each = [rank(value, healthy) for value, healthy in zip(row, scores, strict=True)]
        return math.exp(math.sqrt(sum(math.log(r) ** 2 for r in each)))

    joined = np.array([join(row) for row in scores.T])
    fresh = random.uniform(0.9, 1.9, size=(n_views, 50))
    rarities = views.rank_each(fresh)
    expected = [[rank(value, healthy) for value in view] for view, healthy in zip(fresh, scores, strict=True)]
    np.testing.assert_allclose(rarities, expected, rtol=1e-12)
    is_inside = (found := np.array([join(row) for row in fresh.T])) <= joined.max()
    expected = [rank(value, joined) for value in found[is_inside]]
    np.testing.assert_allclose(views.rank(rarities)[is_inside], expected, rtol=1e-9)
    # For the healthy rows themselves, the share from a rarity on is as promised.
    of_healthy = views.rank(views.rank_each(scores))
    assert all(np.mean(of_healthy >= r) <= 1.0 / r for r in (2.0, 10.0, 100.0))
    assert (Views().rank_each(fresh) == 1.0).all()
    assert (Views().rank(rarities) == 1.0).all()


# Healthy rows

KINDS = {
    "normal": lambda random, shape: random.normal(size=shape),
    "exponential": lambda random, shape: random.exponential(size=shape),
    "Poisson 1": lambda random, shape: random.poisson(1.0, size=shape).astype(float),
    "Poisson 100": lambda random, shape: random.poisson(100.0, size=shape).astype(float),
    "mostly zeros": lambda random, shape: random.normal(size=shape) * (random.random(shape) < 0.3),
    "Student's t": lambda random, shape: random.standard_t(3, size=shape),
    "rounded": lambda random, shape: np.round(random.normal(size=shape), 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [1, 5])
def test_independent_healthy_rows_raise_the_promised_alarms(kind, d):
    shares = []
    for seed in range(3):
        rows = KINDS[kind](np.random.default_rng([seed, d, len(kind)]), (4700, d))
        shares.append((Monitor(quantile=0.99).update(rows).rarity[2700:] >= 100.0 * (1.0 - 1e-9)).mean())
    # Of Poisson numbers with mean 1, one in 52 is 4 or more, and one in 273 is 5 or more: no level is nearer to 100.
    least = 0.2 if (kind, d) == ("Poisson 1", 1) else 0.4
    assert least <= np.mean(shares) / 0.01 <= 1.6, shares


# Faults and changes


def pairs_of_sensors(n, seed=0):
    """Return rows of two hidden numbers, each read by two sensors with some noise."""
    random = np.random.default_rng(seed)
    return np.repeat(random.normal(size=(n, 2)), 2, axis=1) + 0.2 * random.normal(size=(n, 4))


def event_at(monitor, start, stop):
    """Return the event with the most alarms of those that touch the rows from `start` to `stop`."""
    touching = [event for event in monitor.events_ if event.start < stop and event.end > start]
    return max(touching, key=lambda event: event.n_alarms)


def test_many_isolated_anomalies_do_not_hide_one_that_is_ten_times_as_far():
    random = np.random.default_rng(0)
    rows, is_odd = random.normal(size=(3000, 4)), random.random(3000) < 0.1
    rows[is_odd] += 8.0 * random.normal(size=(np.count_nonzero(is_odd), 4))
    monitor = Monitor()
    monitor.update(rows)
    record = monitor.update(80.0 * np.eye(4))
    assert record.is_alarm.all()
    assert (record.rarity > 500.0).all()


@pytest.mark.parametrize("constant", [0.0, 7.0])
def test_a_constant_column_that_begins_to_move_is_an_alarm(constant):
    rows = np.column_stack([normal_rows(1520), np.full(1520, constant)])
    rows[1500:, 3] += np.random.default_rng(1).normal(size=20)
    monitor = Monitor()
    assert monitor.update(rows).is_alarm[1500:].mean() >= 0.8
    assert event_at(monitor, 1500, 1520).features[0].feature == 3


def test_where_the_stream_has_moved_alarms_fade_and_go_on_in_a_twin_that_does_not_learn():
    rows = normal_rows(4000)
    rows[2000:, 1] += 10.0
    monitor = Monitor(small_model())
    monitor.update(rows[:2000])
    twin = copy.copy(monitor)
    twin.learn = "none"
    is_alarm = monitor.update(rows[2000:]).is_alarm
    assert is_alarm[:32].all()
    # A young monitor learns its rows at once.
    assert is_alarm[700:].mean() <= 0.02
    record = twin.update(rows[2000:])
    assert (record.rarity >= record.threshold * (1.0 - 1e-9)).all()


def test_events_are_of_the_view_that_found_them_and_alike_ones_share_a_group():
    rows = np.repeat(np.random.default_rng(0).normal(size=(5700, 2)), 3, axis=1)
    rows += 0.1 * np.random.default_rng(1).normal(size=rows.shape)
    # One of three that agree is off by a little; a younger monitor would learn it.
    for start, feature in ((4500, 4), (4800, 0), (5100, 4)):
        rows[start : start + 8, feature] = rows[start : start + 8, feature ^ 1] + 1.6
    # All agree, far from where rows were.
    rows[5400:5410] += 8.0
    monitor = Monitor()
    monitor.update(rows)
    first, other, again, far = (event_at(monitor, start, start + 10) for start in (4500, 4800, 5100, 5400))
    assert [event.kind for event in (first, other, again, far)] == ["relation"] * 3 + ["place"]
    assert first.group == again.group
    assert len({first.group, other.group, far.group}) == 3
    assert {first.group, other.group, far.group} <= {event.start for event in monitor.events_}


@pytest.mark.parametrize("n_dropped", [1, 31, 60])
def test_a_few_first_rows_more_or_less_change_few_alarms(n_dropped):
    rows, faults = pairs_of_sensors(3000), (1200, 2000, 2600)
    for start in faults:
        rows[start : start + 10, start // 100 % 4] += 4.0
    whole, later = Monitor().update(rows).is_alarm[300:], Monitor().update(rows[n_dropped:]).is_alarm[300 - n_dropped :]
    # A percent of the rows at most: with other chunks, other rows are held out.
    assert np.mean(whole != later) <= 0.01
    for start in faults:
        assert later[start - 300 : start - 290].all()
