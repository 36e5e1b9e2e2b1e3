"""Events, changes and records know their times."""

from datetime import timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from streams_to_watch import assert_same_records, eventful_rows, normal_rows, small_model, updated

from streamkpca.monitoring import Monitor

START = np.datetime64("2026-05-04T00:00:00")
MINUTES = START + np.arange(1100) * np.timedelta64(60, "s")
CUTS = [5, 622, 623, 640, 651, 702, 803, 900]


@pytest.mark.parametrize("times", [MINUTES, 7.5 * np.arange(1100)], ids=["dates", "numbers"])
@pytest.mark.parametrize("cuts", [[], CUTS])
def test_events_and_changes_have_the_times_of_their_rows(times, cuts):
    monitor = Monitor(small_model(), accept_after=60)
    record = updated(monitor, eventful_rows(), cuts, times)
    np.testing.assert_array_equal(record.time, times)
    for event in monitor.events_:
        rows = [event.start, event.end - 1, event.peak_row]
        assert [event.start_time, event.end_time, event.peak_time] == times[rows].tolist() or [
            event.start_time,
            event.end_time,
            event.peak_time,
        ] == list(times[rows])
    assert len(monitor.events_) > 1
    change = monitor.change_detected_
    assert change.start_time == times[change.start]
    assert change.detected_time == times[change.detected - 1]
    assert Monitor.from_bytes(monitor.to_bytes()).events_ == monitor.events_
    assert Monitor.from_bytes(monitor.to_bytes()).to_bytes() == monitor.to_bytes()


def test_tables_with_times_are_as_rows_with_times():
    rows, names = eventful_rows(), ["a", "b", "c"]
    expected = Monitor(small_model())
    record = expected.update(pd.DataFrame(rows, columns=names), time=MINUTES)
    indexed = pd.DataFrame(rows, columns=names, index=pd.DatetimeIndex(MINUTES).tz_localize("UTC"))
    timed = pd.DataFrame(rows, columns=names).assign(when=MINUTES)
    for table, time in [(indexed, None), (timed, "when"), (pl.from_pandas(timed), "when")]:
        monitor = Monitor(small_model())
        found = monitor.update(table, time=time)
        assert_same_records(found._replace(time=None), record._replace(time=None))
        np.testing.assert_array_equal(found.time, MINUTES)
        assert monitor.events_ == expected.events_
        assert monitor.events_[-1].features[0].feature == "c"


@pytest.mark.parametrize("max_gap", [60, timedelta(minutes=1), np.timedelta64(60_000, "ms")])
def test_dates_have_gaps_as_seconds_do(max_gap):
    rows = normal_rows(100)
    seconds = 10 * np.arange(100) + 120 * (np.arange(100) >= 70)
    numbers, dated = Monitor(small_model(), max_gap=60.0), Monitor(small_model(), max_gap=max_gap)
    expected, found = numbers.update(rows, time=seconds), dated.update(rows, time=START + seconds)
    assert_same_records(found._replace(time=None), expected._replace(time=None))
    assert dated.model.to_bytes() == numbers.model.to_bytes()
    with pytest.raises(TypeError, match="times of one kind"):
        dated.update(rows, time=seconds + 10.0**9)
    with pytest.raises(ValueError, match="of row 0 is 1110 before"):
        dated.update(rows, time=START + seconds)
    dated.reset().update(rows, time=seconds)


def test_rows_with_times_may_follow_rows_without_but_not_the_other_way_round():
    monitor, plain = Monitor(small_model()), Monitor(small_model())
    rows = eventful_rows()
    monitor.update(rows[:630])
    monitor.update(rows[630:], time=MINUTES[630:])
    plain.update(rows)
    assert [event.start for event in monitor.events_] == [event.start for event in plain.events_]
    for event in monitor.events_:
        known = [event.start >= 630, event.end > 630, event.peak_row >= 630]
        assert [time is not None for time in (event.start_time, event.end_time, event.peak_time)] == known
    before = monitor.to_bytes()
    with pytest.raises(ValueError, match=r"expected times, as rows had them up to 2026-05-04T18:19.*reset"):
        monitor.update(rows[:5])
    assert monitor.to_bytes() == before
    monitor.reset().update(rows[:5])


# Tables and texts


def test_events_make_a_table():
    monitor = Monitor(small_model())
    monitor.update(pd.DataFrame(eventful_rows(), columns=["a", "b", "c"], index=MINUTES))
    table = pd.DataFrame(monitor.events_)
    assert table["severity"].tolist() == [event.severity for event in monitor.events_]
    np.testing.assert_array_equal(table["end_time"].to_numpy(), [event.end_time for event in monitor.events_])


def test_a_monitor_shows_what_it_has_seen():
    monitor = Monitor(small_model())
    assert repr(monitor) == "<Monitor: no rows yet, learn='normal'>"
    monitor.update(eventful_rows(780)[:20])
    assert "20 rows, 0 events, alarms not yet" in repr(monitor)
    monitor.update(eventful_rows(780)[20:])
    assert repr(monitor).startswith(f"<Monitor: 780 rows, {monitor.n_events_} events, alarms once in 333 healthy rows")
