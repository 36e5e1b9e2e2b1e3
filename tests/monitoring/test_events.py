"""Events, against slow ones in plain Python."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams_to_watch import eventful_rows, normal_rows, small_model, updated

from streamkpca.monitoring import Monitor
from streamkpca.monitoring.events import EventLog


def slow_events(rarity, alarms):
    """Gather runs of alarms with less than ten rows between them, from the definition."""
    groups = []
    for row in [row for row, alarm in enumerate(alarms) if alarm]:
        if groups and row - groups[-1][-1] - 1 < 10:
            groups[-1].append(row)
        else:
            groups.append([row])
    return [
        {
            "start": rows[0],
            "end": rows[-1] + 1,
            "n_alarms": len(rows),
            "severity": max(rarity[row] for row in rows),
            "peak_row": max(rows, key=lambda row: (rarity[row], -row)),
            "is_open": len(alarms) - (rows[-1] + 1) < 10,
        }
        for rows in groups
    ]


def facts(events):
    names = ("start", "end", "n_alarms", "severity", "peak_row", "is_open")
    return [{name: getattr(event, name) for name in names} for event in events]


flags = st.lists(st.sampled_from([True, False, False, False]), max_size=120)


@given(flags)
def test_events_of_a_log_are_those_of_the_definition(alarms):
    random = np.random.default_rng(len(alarms))
    rarity = random.integers(0, 5, len(alarms)).astype(float).tolist()
    log = EventLog.none(1)
    for row, alarm in enumerate(alarms):
        if alarm:
            log = log.add_alarm(row, np.zeros(1), 0.0, rarity[row], "place", None)
        if log.is_over(row + 1, 10):
            log = log.end(log.current, 1000)
    expected = slow_events(rarity, alarms)
    assert facts([*log.closed, *([log.current] if log.current else [])]) == expected
    assert log.n_closed == len(log.closed)


@pytest.mark.parametrize(
    ("cuts", "parameters"),
    [
        ([], {}),
        ([5, 622, 623, 640, 651, 702], {}),
        (list(range(10, 1100, 10)), {"quantile": 0.9}),
    ],
)
def test_events_of_a_monitor_are_those_of_its_records(cuts, parameters):
    monitor = Monitor(small_model(), **parameters)
    record = updated(monitor, eventful_rows(), cuts)
    expected = slow_events(record.rarity.tolist(), record.is_alarm.tolist())
    assert len(expected) > 1
    assert facts(monitor.events_) == expected
    assert monitor.n_events_ == len(expected)
    for event in monitor.events_:
        shares = [cause.share for cause in event.features]
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) == pytest.approx(1.0)
        assert all(event.start <= cause.since < event.end for cause in event.features)
        assert event.peak == record.novelty[event.peak_row]


def test_bad_rows_count_as_rows_without_an_alarm():
    rows = normal_rows(700)
    rows[640] += 30.0
    rows[641:660] = np.nan
    rows[660] += 30.0
    monitor = Monitor(small_model(missing="skip"))
    monitor.update(rows[:650])
    assert monitor.events_[-1].is_open
    monitor.update(rows[650:651])
    assert not monitor.events_[-1].is_open
    monitor.update(rows[651:])
    assert {640, 660} <= {event.start for event in monitor.events_}


def test_the_latest_thousand_events_are_kept():
    log = EventLog.none(1)
    for row in range(0, 20_100, 20):
        log = log.add_alarm(row, np.zeros(1), 1.0, 1.0, "place", None)
        log = log.end(log.current, 1000)
    assert len(log.closed) == 1000
    assert log.n_closed == 1005
    assert log.closed[0].start == 100


def test_a_change_is_detected_at_the_row_of_the_definition_and_accepted():
    rows = eventful_rows()
    monitor = Monitor(small_model().partial_fit(normal_rows(3200, seed=1)), accept_after=64)
    record = monitor.update(rows[:896])
    change = monitor.change_detected_
    # All rows from 800 on are rare among the healthy ones, though their alarms end.
    assert (change.start, change.share) == (800, 1.0)
    # Chance alarms before it pay for a few rows.
    assert 864 <= change.detected <= 896
    assert change.detected % 32 == 0
    assert change.features[0].feature == 2
    assert sum(cause.share for cause in change.features) == pytest.approx(1.0)
    assert {cause.since for cause in change.features} == {change.start}
    assert change.is_accepted
    assert record.is_alarm[800:820].all()
    assert monitor.update(rows[896:]).is_alarm.mean() < 0.1
