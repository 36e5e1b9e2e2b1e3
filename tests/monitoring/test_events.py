"""Events, against slow ones in plain Python."""

import numpy as np
import pytest
from streams_to_watch import eventful_rows, follow_slowly, normal_rows, small_model, updated

from streamkpca.monitoring import Monitor
from streamkpca.monitoring.events import EventLog


def slow_events(rarity, alarms, begins, n_rows):
    """Gather alarms, each with those since the latest beginning."""
    groups = []
    for row in alarms:
        if row in begins:
            groups.append([])
        groups[-1].append(row)
    return [
        {
            "start": rows[0],
            "end": rows[-1] + 1,
            "n_alarms": len(rows),
            "severity": max(rarity[row] for row in rows),
            "peak_row": max(rows, key=lambda row: (rarity[row], -row)),
            "is_open": rows is groups[-1] and n_rows - (rows[-1] + 1) < 10,
        }
        for rows in groups
    ]


def facts(events):
    names = ("start", "end", "n_alarms", "severity", "peak_row", "is_open")
    return [{name: getattr(event, name) for name in names} for event in events]


@pytest.mark.parametrize(
    ("cuts", "parameters"),
    [
        ([], {}),
        ([5, 622, 623, 640, 651, 702], {"quantile": 0.95}),
        (list(range(10, 1100, 10)), {"quantile": 0.9, "most_events": 1 / 100}),
    ],
)
def test_events_of_a_monitor_are_those_of_its_records(cuts, parameters):
    monitor = Monitor(small_model(), **parameters)
    rows = eventful_rows()
    rows[900:980:16, 1] += 20.0 + 20.0 * np.arange(5)
    record = updated(monitor, rows, cuts)
    counted = np.minimum(record.rarity, record.rarity_so_far)
    threshold, rate = record.threshold[-1] * (1.0 - 1e-9), parameters.get("most_events")
    alarms, begins = follow_slowly(counted, np.zeros(1100, dtype=bool), threshold, 10, rate, np.arange(1100))
    assert np.flatnonzero(record.is_alarm).tolist() == alarms
    expected = slow_events(record.rarity.tolist(), alarms, begins, 1100)
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
    rows[660] += 60.0
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
    assert (record.rarity[800:820] >= record.threshold[800:820]).all()
    assert monitor.update(rows[896:]).is_alarm.mean() < 0.1
