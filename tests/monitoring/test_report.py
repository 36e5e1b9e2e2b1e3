"""The report: which events it lists, in which order, as text, as JSON and as a table."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from streams_to_watch import normal_rows

from streamkpca.monitoring import Monitor
from streamkpca.monitoring.events import Event
from streamkpca.monitoring.report import EventJudge, write_duration

NAMES = ["<b>flow</b>", "heat & gas", "load"]
FAULT = np.array([0.0, 20.0, 0.0])
START = np.datetime64("2026-05-04T00:00:00")


@pytest.fixture(scope="module")
def watched():
    """Watch a row a minute, with two alike faults and another one."""
    rows = normal_rows(6400)
    rows[5000:5008, 0] += 9.0
    rows[5600:5608, 0] += 9.0
    rows[6000:6010, 1] -= 14.0
    table = pd.DataFrame(rows, columns=NAMES, index=START + np.arange(6400) * np.timedelta64(60, "s"))
    monitor = Monitor().fit(table[:4500])
    monitor.update(table[4500:])
    return monitor


def test_alike_events_share_a_line_which_names_what_was_wrong(watched):
    report = watched.report()
    found = {tuple(event.start for event in line.events.values()): line for line in report.lines}
    alike = next(starts for starts in found if 5000 in starts)
    assert 5600 in alike
    (other,) = (starts for starts in found if 6000 in starts)
    assert 5000 not in other
    for line in report.lines:
        # More than the rows before an event tell is an estimate.
        known = {number: min(event.severity, event.start) for number, event in line.events.items()}
        assert known[line.worst] == max(known.values())
        assert len({event.group for event in line.events.values()}) == 1
    assert sum(len(line.events) for line in report.lines) <= report.n_events == watched.n_events_
    numbers = {event.start: number for number, event in enumerate(watched.events_, start=1)}
    assert all(numbers[event.start] == n for line in report.lines for n, event in line.events.items())


def test_a_report_is_json_with_rarities_in_rows_and_in_time(watched):
    report = watched.report()
    facts = json.loads(json.dumps(report.to_dict()))
    assert (facts["rows"], facts["rows_learned"]) == (6400, watched.model.n_samples_seen_)
    for line, event in zip(report.lines, facts["events"], strict=True):
        assert event["severity"] == line.events[line.worst].severity
        assert event["severity_seconds"] == pytest.approx(60.0 * event["severity"])
    first = next(event for event in facts["events"] if event["first_row"] == 5000)
    assert first["first_time"] == "2026-05-07T11:20:00"
    assert first["features"][0]["feature"] == NAMES[0]
    assert [begin["first_row"] for begin in first["begins"]][:2] == [5000, 5600]


def test_the_text_tells_what_the_table_shows_and_names_are_escaped_there(watched):
    report = watched.report()
    text, table = str(report), report._repr_html_()
    assert text.startswith("6,400 rows: ")
    assert "similar events between 2026-05-07 11:20:00 (row 5,000) and" in text
    assert NAMES[0] in text
    assert "&lt;b&gt;flow&lt;/b&gt;" in table
    assert "<b>" not in table
    assert "heat &amp; gas" in table
    assert table.count("<tr>") == 1 + min(len(report.lines), 10)
    assert watched._repr_html_() == table


def event(start, severity, *, kind="place", n_alarms=1, group=None):
    place = start if group is None else group
    return Event(start, start + n_alarms, n_alarms, severity, start, 1.0, kind, place, is_open=False)


def lines_of(events, n_rows=10_000, n_fitted=0, is_declared=False):
    lines = EventJudge(dict(enumerate(events, start=1)), n_rows, n_fitted, is_declared).list_lines()
    return [[one.start for one in line.events.values()] for line in lines], lines


def test_broken_relations_come_first_then_the_rarest_and_early_events_last():
    events = [
        event(100, 90_000.0, kind="relation"),
        event(5000, 6000.0),
        event(6000, 5000.0, kind="recent"),
        event(7000, 8000.0),
        event(8000, 7000.0, kind="relation", group=6000),
        event(9000, 900.0),
    ]
    starts, lines = lines_of(events, n_rows=8000)
    assert starts == [[6000, 8000], [7000], [5000], [100]]
    assert [line.worst for line in lines] == [5, 4, 2, 1]
    assert [line.is_early for line in lines] == [False, False, False, True]
    # Of a model that knew rows before, or was told what is healthy, none is early.
    assert lines_of(events, n_fitted=4096)[0] == [[6000, 8000], [100], [7000], [5000]]
    assert lines_of(events, n_rows=8000, is_declared=True)[0] == [[6000, 8000], [100], [7000], [5000]]
    # With many rows after them, early ones must be rarer.
    assert lines_of(events, n_rows=10_000)[0] == [[6000, 8000], [7000], [5000], [100]]
    assert lines_of([event(100, 16_383.0), *events[1:]], n_rows=10_000)[0] == [[6000, 8000], [7000], [5000]]


def test_an_event_is_listed_by_its_rarest_row_or_by_its_alarms():
    assert lines_of([event(5000, 4999.0), event(6000, 5000.0)])[0] == [[6000]]
    assert lines_of([event(500, 399.0), event(600, 400.0)], n_rows=800)[0] == [[600]]
    assert lines_of([event(5000, 16_383.0), event(6000, 16_384.0)], n_rows=10**6)[0] == [[6000]]
    # log2 of 400, and half of 40 alarms more than the usual one, are more than log2 of 5,000.
    assert lines_of([event(5000, 400.0, n_alarms=41)])[0] == [[5000]]


def test_what_a_user_said_and_a_change_are_told():
    monitor = Monitor().fit(normal_rows(1500))
    monitor.update(normal_rows(20, seed=1) + FAULT)
    monitor.confirm(monitor.events_[-1])
    rows = np.concatenate([normal_rows(300, seed=2), normal_rows(20, seed=3) + FAULT])
    monitor.update(rows)
    monitor.update(normal_rows(600, seed=4) - 30.0 * np.eye(3)[0])
    report = monitor.report()
    assert "confirmed" in str(report)
    assert report.changes == (monitor.change_detected_,)
    assert "of the rows since then were not learned: a fault, or another state?" in str(report)
    assert json.loads(json.dumps(report.to_dict()))["changes"][0]["is_accepted"] is False
    text = str(replace(report, changes=(replace(report.changes[0], is_accepted=True),)))
    assert "learned as normal" in text


def test_durations_are_written_in_the_largest_unit_that_they_reach_twice():
    found = [write_duration(seconds) for seconds in (1.0, 119.0, 120.0, 7200.0, 172_800.0, 8.64e7)]
    assert found == ["1 seconds", "120 seconds", "2 minutes", "2 hours", "2 days", "1,000 days"]
