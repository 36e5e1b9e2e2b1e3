"""Odd uses that once broke: gaps in an event, durations of numpy, constants, and events that end in other ways."""

import threading

import numpy as np
import pandas as pd
import pytest

from streamkpca import StreamingKernelPCA
from streamkpca.monitoring import Monitor

RANDOM = np.random.default_rng(0)
ROWS = np.repeat(RANDOM.normal(size=(1500, 2)), 2, axis=1) + 0.1 * RANDOM.normal(size=(1500, 4))
SHIFT = np.array([0.0, 0.0, 0.0, 9.0])
CLOCK = np.datetime64("2026-01-01", "s") + np.arange(1500)


def test_a_feature_without_numbers_is_no_cause():
    rows = ROWS.copy()
    for start in range(1000, 1480, 40):
        rows[start, 3] += 3.0
        rows[start + 1 : start + 8, 3] = np.nan
    model = StreamingKernelPCA(max_atoms=32, missing="marginal", noise_variance=None)
    monitor = Monitor(model)
    monitor.update(rows)
    causes = [cause for event in monitor.events_ for cause in event.features]
    assert causes
    assert all(np.isfinite([cause.value, cause.expected, cause.low, cause.high]).all() for cause in causes)
    assert Monitor.from_bytes(monitor.to_bytes()).events_ == monitor.events_


def test_a_model_that_skips_gaps_skips_them_in_a_monitor():
    rows = ROWS.copy()
    rows[[700, 1040], 1] = np.nan
    monitor = Monitor(StreamingKernelPCA(max_atoms=64, missing="skip", noise_variance=None))
    record = monitor.update(rows)
    assert np.isnan(record.novelty[[700, 1040]]).all()
    assert not record.is_alarm[[700, 1040]].any()


def test_a_change_that_is_accepted_keeps_the_causes_of_its_event():
    rows = np.concatenate([ROWS, ROWS[:1200] + SHIFT])
    monitor, ignoring = Monitor(accept_after=32), Monitor(accept_after=32, ignore={3: "above"})
    monitor.update(rows)
    ignoring.update(rows)
    assert (monitor.change_detected_.start >= 1500, monitor.change_detected_.is_accepted) == (True, True)
    found = [event for event in monitor.events_ if event.n_alarms > 5 and event.start >= 1500]
    assert found[0].start == 1500
    assert {event.features[0].feature for event in found} == {3}
    assert not [event for event in ignoring.events_ if event.n_alarms > 5 and event.start >= 1500]


@pytest.mark.parametrize("constant", [0.5, 0.1, 0.007, 0.0])
def test_the_rounding_of_a_constant_is_no_unit(constant):
    rows = np.column_stack([ROWS, np.full(1500, constant)])
    rows[1200:1230, 3:] += [4.0, 1e-12]
    monitor = Monitor()
    monitor.update(rows)
    worst = max(monitor.events_, key=lambda event: event.severity)
    assert worst.features[0].feature == 3
    expected, low, high = monitor.model.expected(rows[:1], 4)[0]
    assert low < constant < high
    assert expected == pytest.approx(constant, rel=1e-15, abs=1e-15)


def test_an_event_ends_with_its_recording():
    bad = ROWS[:30] + SHIFT
    monitor = Monitor(min_duration=5.0)
    monitor.update(ROWS, time=CLOCK)
    before = monitor.n_events_
    monitor.update(bad, time=CLOCK[-1] + np.arange(30))
    monitor.reset().update(bad, time=np.arange(30.0))
    monitor.update(ROWS[:40], time=30.0 + np.arange(40.0))
    assert {event.start for event in monitor.events_[before:]} >= {1500, 1530}
    assert all(type(event.start_time) is type(event.end_time) for event in monitor.events_)


def test_alarms_are_forgotten_though_another_thread_updates():
    monitor = Monitor()
    monitor.update(ROWS + np.where(np.arange(1500)[:, None] // 20 == 50, 6.0, 0.0))
    old = {event.start for event in monitor.events_}
    assert old
    writer = threading.Thread(target=monitor.update, args=(np.tile(ROWS, (10, 1)),))
    writer.start()
    monitor.reset(events=True)
    writer.join()
    assert not old & {event.start for event in monitor.events_}


def test_a_table_with_columns_of_one_name_is_refused():
    pandas = pytest.importorskip("pandas", reason="a table with names; needs the extra pandas")
    table = pandas.DataFrame(np.column_stack([ROWS[:, :2], np.arange(1500.0)]), columns=["a", "a", "t"])
    with pytest.raises(ValueError, match="several columns of one name"):
        Monitor().update(table, time="t")


def test_a_column_that_begins_late_is_known_once_it_is_learned():
    rng = np.random.default_rng(0)
    load = rng.normal(size=4000)
    rows = np.stack([load, -load, 50.0 + load], axis=1) + 0.1 * rng.normal(size=(4000, 3))
    rows[:1500, 2] = np.nan
    rows[3800:3830, 2] += 4.0
    monitor = Monitor(StreamingKernelPCA(missing="marginal"), accept_after=300)
    monitor.update(rows)
    fault = max((e for e in monitor.events_ if e.start < 3830 and e.end > 3800), key=lambda event: event.severity)
    cause = fault.features[0]
    assert (cause.feature, cause.direction) == (2, "above")
    assert 3.0 < cause.value - cause.expected < 5.0


def test_wild_numbers_among_the_first_rows_hide_no_later_fault_of_their_column():
    rows = ROWS.copy()
    rows[[5, 70], 3] = -9999.0
    rows[1400:1410, 3] += 3.0
    assert Monitor().update(rows).is_alarm[1400:1410].all()


def test_names_that_a_terminal_obeys_are_shown_in_letters():
    columns = ["\x1b[31ma", "b\nc", "d", "\u202ee"]
    monitor = Monitor()
    monitor.update(pd.DataFrame(ROWS, columns=columns))
    for j in (0, 1, 3):
        monitor.update(pd.DataFrame(ROWS[:1] + 9.0 * (np.arange(4) == j), columns=columns))
        monitor.reset()
        assert monitor.events_[-1].features[0].feature == columns[j]
        assert str(monitor.events_[-1]).isprintable()
    with pytest.raises(ValueError, match="The feature names") as refused:
        monitor.update(pd.DataFrame(ROWS, columns=["\x1b[2Ja", *columns[1:]]))
    assert all(letter.isprintable() or letter == "\n" for letter in str(refused.value))
    assert r"Unexpected: \x1b[2Ja. Missing: \x1b[31ma." in str(refused.value)
