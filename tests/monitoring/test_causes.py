"""Causes of events: on made sensors that are known to be wrong, and by their laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams_to_watch import normal_rows, small_model

from streamkpca import StreamingKernelPCA
from streamkpca.components.expectation import Expectation
from streamkpca.monitoring import Monitor
from streamkpca.monitoring.causes import EventRows

NOISE = 0.05
RINGS = [(4, 0.4, "stuck"), (6, 1.0, "offset"), (6, 2.0, "drift"), (8, 0.8, "noisy"), (16, 0.2, "stuck")]


def ring(n, d, spacing, seed):
    """Return rows of sensors around a ring, with noise and without."""
    random = np.random.default_rng(seed)
    angle = np.cumsum(random.normal(0.1, 0.15, n))
    truth = np.sin(angle[:, None] + spacing * np.arange(d))
    return truth + NOISE * random.normal(size=truth.shape), truth


def broken(values, fault, seed):
    """Return the readings (n,) of a sensor that fails."""
    n, random = len(values), np.random.default_rng(seed)
    return {
        "stuck": np.full(n, values[0]),
        "offset": values + 1.2,
        "drift": values - np.linspace(0.0, 2.0, n),
        "noisy": values + random.normal(size=n),
    }[fault]


def watched(rows, n_healthy, **parameters):
    """Return a monitor that learned the first rows alone, and has watched the others."""
    model = StreamingKernelPCA(max_atoms=64, noise_variance=None)
    model.partial_fit(rows[:n_healthy]).refit()
    monitor = Monitor(model, learn="none", **parameters)
    monitor.update(rows[n_healthy:])
    return monitor


def longest(monitor):
    """Return the event with the most alarms."""
    return max(monitor.events_, key=lambda event: event.n_alarms)


@pytest.mark.parametrize(("d", "spacing", "fault"), RINGS)
def test_the_sensor_that_failed_is_named_with_what_it_should_have_read(d, spacing, fault):
    rows, truth = ring(1060, d, spacing, d)
    faulty = d // 2
    rows[1000:1040, faulty] = broken(rows[1000:1040, faulty], fault, 1)
    monitor = watched(rows, 1000)
    event = longest(monitor)
    cause = event.features[0]
    assert event.ranking[0] == cause.feature == faulty
    assert sorted(event.ranking) == list(range(d))
    assert len(event.features) <= 2
    (at,) = np.flatnonzero(rows[:, faulty] == cause.value)[:1]
    if fault != "stuck":
        assert abs(cause.expected - truth[at, faulty]) <= 2.0 * NOISE
        assert cause.low < truth[at, faulty] < cause.high
    assert not cause.low <= cause.value <= cause.high
    assert cause.direction == ("above" if cause.value > cause.expected else "below")
    assert fault != "offset" or (cause.direction, cause.since) == ("above", 0)
    assert fault != "drift" or (cause.direction == "below" and 0 < cause.since < 30)
    expected = monitor.model.expected(rows[1000:1040], faulty)[:, 0]
    assert np.median(np.abs(expected - truth[1000:1040, faulty])) <= 2.0 * NOISE


def test_of_two_sensors_that_fail_both_are_named_and_when_each_began():
    rows, _ = ring(1060, 8, 1.0, 0)
    rows[1000:1040, 2] += 1.5
    rows[1020:1040, 5] -= 1.5
    found = {cause.feature: cause for cause in longest(watched(rows, 1000, end_after=40)).features}
    assert set(found) == {2, 5}
    assert (found[2].since, found[2].direction, found[5].since, found[5].direction) == (0, "above", 20, "below")


def test_nothing_is_expected_that_is_far_from_all_that_was_seen():
    random = np.random.default_rng(0)
    load = random.uniform(0.4, 0.8, 2540)
    rows = np.column_stack([50.0 * load, 3.0 + 6.0 * load, 5.0 - 2.0 * load**2, 2900.0 - 80.0 * load])
    rows += np.array([0.3, 0.1, 0.02, 3.0]) * random.normal(size=rows.shape)
    rows[2500:] = 0.01 * random.normal(size=(40, 4))
    causes = watched(rows, 2500).events_[-1].features
    assert len(causes) > 1
    low, high = rows[:2500].min(axis=0), rows[:2500].max(axis=0)
    assert all(abs(one.expected - 0.5 * (low + high)[one.feature]) <= (high - low)[one.feature] for one in causes)


def test_names_and_dates():
    pandas = pytest.importorskip("pandas")
    rows, _ = ring(1060, 6, 1.0, 0)
    rows[1010:1040, 3] += 1.5
    monitor = Monitor(watched(rows[:1001], 1000).model, learn="none")
    dates = np.datetime64("2026-05-04T14:00") + np.arange(60) * np.timedelta64(1, "m")
    monitor.update(pandas.DataFrame(rows[1000:], columns=list("abcdef")), time=dates)
    (cause,) = longest(monitor).features
    # Of more than 32 alarms every second one is looked at.
    assert (cause.feature, cause.since - cause.since % 2, cause.since_time) == ("d", 10, dates[cause.since])


def test_an_open_event_tells_what_a_closed_one_will():
    rows, _ = ring(1060, 6, 1.0, 0)
    rows[1000:1012, 3] += 1.5
    monitor = watched(rows[:1012], 1000)
    opened = monitor.events_[-1]
    before = monitor.to_bytes()
    assert opened.is_open
    assert monitor.events_[-1] == opened
    assert monitor.to_bytes() == before
    monitor.update(rows[1012:])
    closed = next(event for event in monitor.events_ if event.start == opened.start)
    assert closed.features == opened.features


def test_rows_with_gaps():
    rows, _ = ring(1060, 6, 1.0, 0)
    rows[1000:1030, 3] += 1.5
    rows[np.random.default_rng(0).random(rows.shape) < 0.05] = np.nan
    model = StreamingKernelPCA(max_atoms=64, noise_variance=None, missing="marginal")
    model.partial_fit(Monitor(StreamingKernelPCA(missing="marginal")).stack(rows[:1000])).refit()
    monitor = Monitor(model, learn="none")
    monitor.update(rows[1000:])
    assert longest(monitor).features[0].feature == 3
    assert np.isfinite(longest(monitor).features[0][1:6]).all()


@pytest.mark.parametrize(
    "change", [lambda rows: rows[:, :1], lambda rows: np.column_stack([rows, 0 * rows[:, :2] + 7.0])]
)
def test_one_feature_and_features_that_never_vary(change):
    rows = change(normal_rows(1040))
    rows[1000:1020, -1] += 20.0
    (cause,) = longest(watched(rows, 1000)).features
    assert (cause.feature, cause.direction, cause.since) == (rows.shape[1] - 1, "above", 0)
    assert cause.low <= cause.expected <= cause.high < cause.value


def test_wide_rows_in_single_precision():
    rows = normal_rows(240, d=2000).astype(np.float32)
    rows[220:, 1234] += 30.0
    model = StreamingKernelPCA(max_atoms=32, noise_variance=None).partial_fit(rows[:200]).refit()
    monitor = Monitor(model, learn="none", quantile=0.99)
    monitor.update(rows[200:])
    assert longest(monitor).features[0].feature == 1234


@given(st.integers(1, 700))
def test_rows_of_an_event_are_few_and_evenly_spread_from_its_first(n):
    kept = EventRows(np.empty(0, dtype=np.int64), np.empty((0, 1)), ())
    for i in range(n):
        kept = kept.add(i, i, np.array([float(i)]), float(i))
    step = 1
    while (n - 1) // step >= 32:
        step *= 2
    assert kept.positions.tolist() == list(range(0, n, step))
    assert kept.rows[:, 0].tolist() == list(kept.times) == kept.positions.tolist()


@given(st.integers(0, 2**31), st.integers(2, 6), st.sampled_from([1e-6, 1.0, 1e7]))
def test_units_and_origins_and_the_order_of_features_do_not_matter(seed, d, unit):
    random = np.random.default_rng(seed)
    healthy, rows = normal_rows(200, d, seed), random.normal(size=(3, d)) * 3.0
    order, shift = random.permutation(d), random.normal(size=d)
    plain = Expectation(healthy)
    other = Expectation((healthy * unit + unit * shift)[:, order])
    moved = (rows * unit + unit * shift)[:, order]
    surprise, other_surprise = plain.surprise(rows, 1), other.surprise(moved, 1)
    np.testing.assert_allclose(other_surprise, surprise[:, order], rtol=1e-5, atol=1e-7)
    mean, spread = plain.predict(rows, order[:1])
    moved_mean, moved_spread = other.predict(moved, np.array([0]))
    np.testing.assert_allclose(moved_mean, (mean + shift[order[:1]]) * unit, rtol=1e-5, atol=1e-6 * unit)
    np.testing.assert_allclose(moved_spread, spread * unit, rtol=1e-5)


def test_what_is_expected_of_a_feature():
    rows, truth = ring(1200, 6, 1.0, 0)
    model = StreamingKernelPCA(max_atoms=64).partial_fit(rows[:1000])
    found = model.expected(rows[1000:], 2)
    error = np.abs(found[:, 0] - truth[1000:, 2])
    assert np.quantile(error, 0.9) <= 2.0 * NOISE
    inside = (found[:, 1] <= rows[1000:, 2]) & (rows[1000:, 2] <= found[:, 2])
    assert 0.8 <= inside.mean() <= 0.995
    # Neither the value itself matters, nor a number that is missing, nor the rows beside it.
    wrong = rows[1000:].copy()
    wrong[:, 2], wrong[:, 4] = np.nan, np.nan
    assert np.quantile(np.abs(model.expected(wrong, 2)[:, 0] - truth[1000:, 2]), 0.9) <= 3.0 * NOISE
    wrong[:, 4] = rows[1000:, 4]
    assert np.array_equal(model.expected(wrong, 2), found)
    assert np.array_equal(model.expected(rows[1007:1008], 2)[0], found[7])


def test_expected_refuses_features_that_it_does_not_know():
    model = small_model().partial_fit(normal_rows(100))
    with pytest.raises(ValueError, match="there is no feature 'load'; the model knows None"):
        model.expected(normal_rows(1), "load")
    with pytest.raises(ValueError, match="feature must be at most 2, got 3"):
        model.expected(normal_rows(1), 3)
