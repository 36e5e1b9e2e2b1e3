"""Rules by which events are not reported."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from streams_to_watch import eventful_rows, normal_rows, small_model

from streamkpca.monitoring import Event, Monitor
from streamkpca.monitoring.events import Cause
from streamkpca.monitoring.parameters import check_rules, is_ignored, is_short

NOON = np.datetime64("2026-05-04T12:00")


def cause(feature, value, expected):
    return Cause(feature, 0.5, value, expected, expected - 1, expected + 1, "above" if value > expected else "below", 0)


@pytest.mark.parametrize(
    ("ignore", "features", "ignored"),
    [
        ({"disk": "below"}, [("disk", 1.0, 5.0)], True),
        ({"disk": "below"}, [("disk", 9.0, 5.0)], False),
        ({"disk": "above"}, [("disk", 9.0, 5.0)], True),
        ({"disk": 0.5}, [("disk", 5.5, 5.0)], True),
        ({"disk": 0.5}, [("disk", 4.4, 5.0)], False),
        ({"disk": ["below", 0.5]}, [("disk", 5.4, 5.0)], True),
        ({"disk": ["below", 0.5]}, [("disk", 5.6, 5.0)], False),
        ({"disk": "below"}, [("disk", 1.0, 5.0), ("cpu", 1.0, 5.0)], False),
        ({"disk": "below", "cpu": 9}, [("disk", 1.0, 5.0), ("cpu", 1.0, 5.0)], True),
        ({1: "below"}, [(1, 1.0, 5.0)], True),
        ({"disk": "below"}, [], False),
        (None, [("disk", 1.0, 5.0)], False),
    ],
)
def test_an_event_is_ignored_if_each_feature_falls_under_a_rule(ignore, features, ignored):
    assert is_ignored([cause(*of_feature) for of_feature in features], check_rules("ignore", ignore)) is ignored


@pytest.mark.parametrize(
    ("least", "short"), [(None, False), (3, False), (4, True), (120.0, False), (120.5, True), (np.int64(4), True)]
)
def test_an_event_is_short_in_rows_or_in_time(least, short):
    monitor = Monitor(min_duration=least)
    dated = Event(7, 10, 2, 1.0, 7, 2.0, "place", 7, NOON, NOON + np.timedelta64(2, "m"), NOON)
    numbered = Event(7, 10, 2, 1.0, 7, 2.0, "place", 7, 50.0, 170.0, 50.0)
    assert is_short(dated, monitor.min_duration) is is_short(numbered, monitor.min_duration) is short
    if isinstance(least, float):
        assert not is_short(Event(7, 10, 2, 1.0, 7, 2.0, "place", 7), least)


def test_rules_for_features_that_rows_do_not_have_are_refused():
    for ignore, message in [
        ({3: "below"}, "rows have no names, so use 0 to 2"),
        ({"disk": "below"}, "'disk', which is"),
    ]:
        monitor = Monitor(small_model(), ignore=ignore)
        with pytest.raises(ValueError, match=message):
            monitor.update(normal_rows(5))
        monitor.ignore = None
        assert monitor.update(normal_rows(5)).novelty.shape == (5,)


@pytest.mark.parametrize(("name", "other"), [("min_duration", "a whole number of rows"), ("max_gap", "None")])
def test_durations_need_times(name, other):
    monitor = Monitor(small_model(), **{name: timedelta(minutes=1)})
    with pytest.raises(ValueError, match=f"{name} is a time, 60, but rows have none; pass time=, or set it to {other}"):
        monitor.update(normal_rows(5))
    monitor.update(normal_rows(5), time=np.arange(5.0))


def test_short_events_are_dropped_and_their_alarms_stay():
    rows, times = eventful_rows(780), NOON + np.arange(780) * np.timedelta64(1, "m")
    plain, long, lasting = (Monitor(small_model(), min_duration=least) for least in (None, 3, timedelta(minutes=2)))
    record = plain.update(rows, time=times)
    for monitor in (long, lasting):
        found = monitor.update(rows, time=times)
        assert found.is_alarm.tobytes() == record.is_alarm.tobytes()
        # Groups begin with the first event that is reported.
        kept = [replace(event, group=0) for event in plain.events_ if event.end - event.start >= 3]
        assert [replace(event, group=0) for event in monitor.events_] == kept
        assert 0 < monitor.n_events_ == len(monitor.events_) < plain.n_events_
        assert Monitor.from_bytes(monitor.to_bytes()).to_bytes() == monitor.to_bytes()


def test_an_open_event_is_reported_once_it_is_long_enough():
    rows = normal_rows(700)
    rows[640:] += 30.0
    monitor = Monitor(small_model(), min_duration=10)
    monitor.update(rows[:649])
    before = monitor.n_events_
    monitor.update(rows[649:650])
    assert monitor.n_events_ == before + 1
    assert monitor.events_[-1].start == 640
    # That it was read does not settle how it is reported.
    monitor.min_duration = 20
    assert monitor.reset().n_events_ == before


def test_calm_rows_end_an_event_after_as_many_as_are_asked_for():
    rows = normal_rows(760)
    # Each is rarer than those before.
    rows[[640, 660, 700]] += np.array([[30.0], [60.0], [120.0]])
    for end_after, starts in [(10, [640, 660, 700]), (20, [640, 700]), (19, [640, 660, 700]), (60, [640])]:
        monitor = Monitor(small_model(), end_after=end_after, quantile=0.996)
        monitor.update(rows)
        assert [event.start for event in monitor.events_ if event.start >= 640] == starts
