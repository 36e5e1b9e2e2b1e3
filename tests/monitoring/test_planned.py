"""Planned windows: rows that are neither judged nor learned."""

import numpy as np
import pytest
from streams_to_watch import assert_same_records, eventful_rows, small_model

from streamkpca.monitoring import Monitor


def test_rows_of_a_planned_window_are_counted_and_nothing_else():
    rows = np.random.default_rng(0).normal(size=(1500, 3))
    rows[1200:1300] += 20.0
    is_planned = np.zeros(1500, dtype=bool)
    is_planned[1190:1310] = True
    monitor = Monitor()
    record = monitor.update(rows, planned=is_planned)
    assert np.array_equal(np.isnan(record.rarity), is_planned)
    assert not [event for event in monitor.events_ if event.end > 1190 and event.start < 1310]


def test_means_of_the_last_rows_start_anew_after_a_planned_window_as_after_bad_rows():
    rows, is_planned = eventful_rows(), np.arange(1100) // 20 == 35
    planned, bad = (Monitor(small_model(missing="skip")) for _ in range(2))
    record = planned.update(rows, planned=is_planned)
    assert_same_records(record, bad.update(np.where(is_planned[:, None], np.nan, rows)))


@pytest.mark.parametrize("planned", [[True], [0, 1, 0], np.zeros((3, 1), dtype=bool)])
def test_what_is_no_boolean_a_row_is_refused(planned):
    monitor = Monitor()
    with pytest.raises(ValueError, match=r"Monitor.update: expected planned as 3 booleans, one a row"):
        monitor.update(np.zeros((3, 2)), planned=planned)
    assert monitor.events_ == []
