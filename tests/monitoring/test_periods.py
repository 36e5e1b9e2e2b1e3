"""Monitors that know the length of a cycle compare rows with those of about the same phase."""

import math
from datetime import datetime, timedelta

import numpy as np
import pytest
from streams_to_watch import normal_rows, small_model

from streamkpca import StreamingKernelPCA
from streamkpca.kernels import RBF, Linear
from streamkpca.monitoring import Monitor
from streamkpca.plots import draw_event

PERIOD, START, STEP = 24, datetime(2026, 5, 4), timedelta(hours=1)
DATES = np.datetime64(START) + np.arange(2000) * np.timedelta64(STEP)


def daily_rows(n=2000, seed=1):
    """Return rows of three features, two of which follow a day of 24 rows, and the third only itself."""
    random = np.random.default_rng(seed)
    angle = 2 * np.pi * np.arange(n) / PERIOD
    rows = np.column_stack([5 * np.sin(angle), 3 * np.cos(angle) + 10, random.normal(size=n)])
    return rows + 0.2 * random.normal(size=(n, 3))


def phase(share):
    return math.cos(2 * math.pi * share), math.sin(2 * math.pi * share)


@pytest.fixture(scope="module")
def watched():
    """Watch rows of which those of an hour at night are as at noon, in both features, so that each is usual."""
    rows = daily_rows()
    # At these rows it is midnight: the sine is 0 and the cosine 1.
    rows[1200:1204, :2] = rows[1212:1216, :2]
    monitor = Monitor(period=PERIOD)
    return monitor, monitor.update(rows)


def test_usual_rows_at_the_wrong_time_of_day_are_found(watched):
    monitor, record = watched
    assert record.is_alarm[1200:1204].all()
    assert record.is_alarm[400:1200].mean() < 0.05
    assert not Monitor().update(daily_rows()).is_alarm[1200:1204].any()
    event = next(event for event in monitor.events_ if event.start == 1200)
    # Both followed the phase until then; neither the phase nor the third feature is named.
    assert {cause.feature for cause in event.features} <= {0, 1}
    cause = next(cause for cause in event.features if cause.feature == 1)
    assert cause.direction == "below"
    # Its values around midnight, 13, and not those of noon, 7.
    assert abs(cause.expected - 13.0) < 1.5
    assert cause.value < 8.5


def test_an_event_is_drawn_with_what_is_expected_at_its_phase(watched):
    pytest.importorskip("matplotlib", reason="pictures; needs the extra plots")
    monitor, _ = watched
    rows = daily_rows()
    rows[1200:1204, :2] = rows[1212:1216, :2]
    event = next(event for event in monitor.events_ if event.start == 1200)
    axes = draw_event(monitor, event, rows[1100:1300], first=1100).axes[0]
    expected, position = axes.lines[0].get_ydata(), axes.lines[0].get_xdata()
    feature = event.features[0].feature
    truth = daily_rows()[position, feature]
    assert np.abs(expected - truth).mean() < 1.5


def test_expected_values_depend_on_the_phase(watched):
    monitor, _ = watched
    rows = np.full((24, 3), np.nan)
    rows[:, 2] = 0.0
    seen = monitor.stack(np.nan_to_num(rows))
    seen[:, :2] = np.nan
    expected, low, high = monitor.model.expected(seen, 0).T
    truth = 5 * np.sin(2 * np.pi * np.arange(24) / PERIOD)
    assert np.abs(expected - truth).max() < 2.0
    assert ((low < truth) & (truth < high)).mean() > 0.8


def test_no_phase_is_unknown_before_a_period_has_passed():
    rows = np.repeat(daily_rows(600), 12, axis=0) + np.random.default_rng(1).normal(scale=0.2, size=(7200, 3))
    threshold = Monitor(period=288).update(rows[:640]).threshold
    assert np.isinf(threshold[:288]).all()
    assert np.isfinite(threshold[320:]).all()
    dates = DATES[0] + np.arange(640) * np.timedelta64(5, "m")
    np.testing.assert_array_equal(Monitor(period=timedelta(days=1)).update(rows[:640], time=dates).threshold, threshold)
    # Recordings count together, whatever lies between them.
    monitor = Monitor(period=timedelta(days=1))
    monitor.update(rows[:200], time=dates[:200])
    again = monitor.reset().update(rows[200:640], time=dates[200:] + np.timedelta64(9, "D")).threshold
    assert np.isinf(again[:89]).all()
    assert np.isfinite(again[120:]).all()


@pytest.mark.parametrize(
    ("period", "times"),
    [
        (PERIOD, None),
        (np.int64(PERIOD), DATES),
        (timedelta(days=1), DATES),
        (np.timedelta64(1, "D"), DATES.astype("datetime64[ns]")),
        (86400.0, [START + k * STEP for k in range(2000)]),
        (24.0, np.arange(2000.0)),
        (PERIOD * 1e-3, np.arange(2000) * 1e-3),
    ],
)
def test_rows_dates_and_numbers_tell_the_same_phases(period, times):
    rows = daily_rows()[:400]
    monitor, times = Monitor(period=period), None if times is None else times[:400]
    # 4 May 2026 began at midnight in UTC, which is phase 0.
    seen = monitor.stack(rows, time=times)
    np.testing.assert_array_equal(seen[:, :3], rows)
    np.testing.assert_allclose(seen[:, 3:], [phase(k / PERIOD) for k in range(400)], atol=1e-6)
    expected = Monitor(period=PERIOD).update(rows)
    np.testing.assert_allclose(monitor.update(rows, time=times).novelty, expected.novelty, rtol=1e-4, atol=1e-7)


def test_dates_with_a_zone_count_in_utc():
    pandas = pytest.importorskip("pandas", reason="dates with a zone")
    table = pandas.DataFrame(daily_rows()[:48], columns=["a", "b", "c"])
    table.index = pandas.date_range("2026-05-04 02:00", periods=48, freq="h", tz="Europe/Berlin")
    seen = Monitor(period=timedelta(days=1)).stack(table)
    np.testing.assert_allclose(seen[:, 3:], [phase(k / PERIOD) for k in range(48)], atol=1e-6)


def test_phases_count_from_the_first_row():
    seen = Monitor(period=4).stack([[1.0], [2.0], [3.0]], first=2)
    np.testing.assert_array_equal(seen[:, 0], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(seen[:, 1:], [phase(0.5), phase(0.75), phase(0.0)], atol=1e-6)


def test_rows_with_gaps_have_whole_phases():
    rows = daily_rows(900)
    rows[np.arange(900), np.random.default_rng(2).integers(6, size=900) % 3] = np.nan
    model = StreamingKernelPCA(max_atoms=32, missing="marginal")
    monitor = Monitor(model, period=PERIOD)
    record = monitor.update(rows)
    assert np.isfinite(record.novelty).all()
    assert record.is_alarm[300:].mean() < 0.05
    # It is noon, where the second feature is about 7.
    assert monitor.update([[0.0, 13.0, np.nan]]).is_alarm.all()


def test_units_and_widths_are_those_of_the_features_alone():
    rows = daily_rows(1000) * [1.0, 1000.0, 1.0]
    monitor = Monitor(period=PERIOD)
    monitor.update(rows)
    alone = RBF().in_units("std").settled(rows[: monitor.model.n_samples_seen_])
    kernel = monitor.model.kernel_
    assert kernel.left.columns == (0, 1, 2)
    assert type(kernel.left.kernel) is type(alone)
    assert kernel.right.columns == (3, 4)
    # An hour of a day away, two phases are as alike as one standard deviation says.
    beside = kernel.right.matrix([[0.0, 0.0, 0.0, *phase(0.0)]], [[0.0, 0.0, 0.0, *phase(1 / 24)]])
    np.testing.assert_allclose(beside, math.exp(-0.5), atol=0.01)


def test_a_given_kernel_is_multiplied_once():
    model = small_model(Linear() + RBF(0.5).on([0]))
    monitor = Monitor(model, period=PERIOD)
    monitor.update(daily_rows(40))
    # The caller's model stays as it is, for another monitor.
    assert model.kernel == Linear() + RBF(0.5).on([0])
    phased = monitor.model.kernel_
    assert phased.left == (Linear() + RBF(0.5).on([0])).on([0, 1, 2])
    for again in (Monitor(monitor.model, period=PERIOD), Monitor(monitor.model.without_rows(), period=PERIOD)):
        again.update(daily_rows(40))
        assert again.model.kernel_ == phased
    # A width of one's own for the phases.
    own = RBF(0.2).on([0, 1, 2]) * RBF(9.0).on([3, 4])
    monitor = Monitor(small_model(own), period=PERIOD)
    monitor.update(daily_rows(40))
    assert monitor.model.kernel_ == own


def test_a_model_that_learned_without_phases_is_refused():
    for n in (100, 1000):
        learned = small_model().partial_fit(normal_rows(n, 5))
        with pytest.raises(ValueError, match=r"it has learned rows of 5 features with the kernel RBF.* compares none"):
            Monitor(learned, period=PERIOD)


def test_refused_calls_change_nothing():
    rows = daily_rows(100)
    for period, times, message in (
        (timedelta(days=1), None, "period is a time, 86400, but rows have none; pass time="),
        (1e10, DATES[:100], "expected a period of 1e-9 to 9e9 seconds for rows with dates but got 1e"),
        (1e-10, DATES[:100], "expected a period of 1e-9 to 9e9 seconds"),
    ):
        monitor = Monitor(period=period)
        before = monitor.to_bytes()
        with pytest.raises(ValueError, match=message):
            monitor.update(rows, time=times)
        with pytest.raises(ValueError, match=message):
            monitor.stack(rows, time=times)
        assert monitor.to_bytes() == before
    # Rows of another width may still come.
    monitor = Monitor(small_model(), period=timedelta(days=1))
    with pytest.raises(ValueError, match="rows have none"):
        monitor.update(np.ones((3, 7)))
    assert len(monitor.update(rows, time=DATES[:100]).novelty) == 100


@pytest.mark.parametrize(("first", "error"), [(1.5, TypeError), ("0", TypeError), (-1, ValueError)])
def test_positions_that_are_none_are_refused(first, error):
    with pytest.raises(error, match="first must be"):
        Monitor(period=7).stack([[1.0]], first=first)


def test_a_duration_as_text_is_refused():
    with pytest.raises(TypeError, match=r"period must be a number or a timedelta, got '1d'; .* timedelta\(days=1\)"):
        Monitor(period="1d")
