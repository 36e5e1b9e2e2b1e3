"""Planned windows: rows that are neither judged nor learned."""

import numpy as np
import pytest

from streamkpca.monitoring import Monitor


def test_rows_of_a_planned_window_are_counted_and_nothing_else():
    rows = np.random.default_rng(0).normal(size=(1500, 3))
    rows[1200:1300] += 20.0
    is_planned = np.zeros(1500, dtype=bool)
    is_planned[1190:1310] = True
    monitor = Monitor()
    record = monitor.update(rows, planned=is_planned)
    assert np.array_equal(np.isnan(record.rarity), is_planned)
    assert not record.is_alarm[is_planned].any()
    assert not [event for event in monitor.events_ if event.end > 1190 and event.start < 1310]
    monitor.update(rows[:1] + 20.0)
    assert monitor.events_[-1].start == 1500
    assert monitor.model.n_samples_seen_ <= 1500 - 120


def test_lags_start_anew_after_a_planned_window():
    rows = np.cumsum(np.random.default_rng(0).normal(size=(1500, 2)), axis=0) * 0.01
    rows[1200:] += 5.0
    is_planned = np.arange(1500) == 1200
    with_window, without = Monitor(lags=2), Monitor(lags=2)
    novelty = with_window.update(rows, planned=is_planned).novelty
    assert np.isnan(novelty[1200])
    assert with_window.model.n_features_in_ == 4
    jump = without.update(rows).rarity[1200:1202]
    assert np.isfinite(jump).all()


@pytest.mark.parametrize("planned", [[True], [0, 1, 0], np.zeros((3, 1), dtype=bool)])
def test_what_is_no_boolean_a_row_is_refused(planned):
    monitor = Monitor()
    with pytest.raises(ValueError, match=r"Monitor.update: expected planned as 3 booleans, one a row"):
        monitor.update(np.zeros((3, 2)), planned=planned)
    assert monitor.events_ == []
