from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary.basis import Basis
from streamkpca.kernels import Linear
from streamkpca.stream.blocks import Block
from streamkpca.stream.summary import MOVING_INTERVAL, ROWS_INTERVAL, SETTLED_INTERVAL, SearchInterval, SearchSchedule


def block_of(residuals, weights=None):
    """Make a block before no atoms whose rows have these squared lengths."""
    rows = np.sqrt(np.asarray(residuals, dtype=float))[:, None]
    return Block(Basis.empty(Linear(), 1), rows, np.ones(len(rows)) if weights is None else weights)


STEADY = block_of(np.ones(9))
INTERVALS = pytest.mark.parametrize("interval", [ROWS_INTERVAL, MOVING_INTERVAL], ids=["rows", "moved"])


def searches(n_blocks, interval, schedule=None):
    """Run through the blocks of a steady stream; return which are searched, and the schedule at the end."""
    schedule, searched = schedule or SearchSchedule(), []
    n_rows = schedule.n_rows_searched + 9
    for i in range(n_blocks):
        if schedule.is_due(STEADY, n_rows, interval):
            searched.append(i)
            schedule = schedule.record_search(n_rows + 9, 1.0, 0.0, interval)
        else:
            schedule = schedule.record_skip(STEADY, n_rows)
        n_rows += 9
    return np.array(searched), schedule


@INTERVALS
def test_pauses_are_a_share_of_the_stream_and_no_longer_than_1024_blocks(interval):
    searched, _ = searches(20_000, interval)
    pauses = np.diff(searched) - 1
    np.testing.assert_array_equal(pauses, np.minimum((interval.usual * (searched[:-1] + 1)).astype(int), 1024))
    assert len(searched) < 60


def test_rows_are_searched_for_in_each_of_the_first_blocks_and_moves_ever_more_rarely():
    assert searches(4, ROWS_INTERVAL)[0].tolist() == [0, 1, 2, 3]
    assert searches(70, MOVING_INTERVAL)[0].tolist() == [0, 2, 7, 20, 52]


def test_moves_without_a_cause_are_rare_once_they_cost_recorded_moments():
    assert searches(2000, SETTLED_INTERVAL)[0].tolist() == [0, 1025]
    worse = block_of(np.full(9, 2.0))
    _, schedule = searches(1, SETTLED_INTERVAL)
    assert schedule.is_due(worse, 18 + 9, SETTLED_INTERVAL)


def test_a_search_may_ask_for_another_at_once():
    schedule = replace(SearchSchedule(), n_blocks=100)
    assert schedule.record_search(0, 1.0, 0.0, ROWS_INTERVAL).countdown == 25
    assert schedule.record_search(0, 1.0, 0.0, MOVING_INTERVAL).countdown == 151
    assert schedule.record_search(0, 1.0, 0.0, MOVING_INTERVAL, again=True).is_due(STEADY, 9, MOVING_INTERVAL)


@INTERVALS
def test_after_a_drift_the_stream_is_searched_as_often_as_a_new_one(interval):
    late = replace(SearchSchedule(), n_blocks=9000, countdown=100, n_rows_searched=77, usual_residual=0.5)
    schedule = late.reset_after_drift(STEADY, 0)
    assert schedule.n_rows_searched == 77
    np.testing.assert_array_equal(searches(500, interval, schedule)[0], searches(500, interval)[0])


def test_after_a_drift_a_stream_that_forgets_nothing_is_searched_at_once_and_then_as_it_was():
    late = replace(SearchSchedule(), n_blocks=9000, countdown=100, usual_residual=0.5)
    schedule = late.reset_after_drift(STEADY, 400)
    assert schedule.is_due(STEADY, 0, MOVING_INTERVAL)
    assert schedule.record_search(0, 1.0, 0.0, ROWS_INTERVAL).countdown == 100
    # A young stream does not become older.
    assert replace(late, n_blocks=7).reset_after_drift(STEADY, 400).n_blocks == 7


@INTERVALS
@pytest.mark.parametrize("usual", [1.0, np.inf])
def test_a_drift_to_what_is_usual_causes_no_search(interval, usual):
    schedule = SearchSchedule(n_blocks=9000, countdown=100, usual_residual=usual).reset_after_drift(STEADY, 400)
    assert schedule.countdown == 100
    assert not schedule.is_due(STEADY, 0, interval)


@pytest.mark.parametrize(("residual", "due"), [(1.23, False), (1.33, True), (0.5, False)])
def test_rows_explained_worse_beyond_doubt_are_searched_at_once(residual, due):
    # 100 rows with a standard deviation of one mean: two standard errors are 0.2 of it.
    schedule = replace(SearchSchedule(), n_blocks=300).record_search(0, 1.0, 1.0, ROWS_INTERVAL)
    rows = np.full(100, residual)
    rows[0] += 50.0
    assert schedule.is_due(block_of(rows * residual / rows.mean()), 0, ROWS_INTERVAL) is due


@pytest.mark.parametrize("unusual", [0.0, 0.25, 0.5])
def test_rows_explained_worse_wait_the_less_the_worse_they_are(unusual):
    interval = SearchInterval(1.0, unusual)
    schedule, n_rows = replace(SearchSchedule(), n_blocks=39).record_search(360, 1.0, 0.0, interval), 360
    worse = block_of(np.full(9, 3.0))
    # Twice the usual residual waits for this share of the 40 blocks so far, three times for half of it.
    for _ in range(int(40 * unusual / 2) - 1):
        assert not schedule.is_due(worse, n_rows, interval)
        # The first block after the search only lowers what is usual.
        schedule, n_rows = schedule.record_skip(worse, n_rows), n_rows + 9
    assert schedule.usual_residual == 1.0
    schedule, n_rows = schedule.record_skip(worse, n_rows), n_rows + 9
    assert schedule.is_due(worse, n_rows, interval)
    assert not schedule.is_due(STEADY, n_rows, interval)


def test_the_first_block_after_a_search_may_show_that_less_is_usual():
    schedule = SearchSchedule().record_search(9, 1.0, 0.0, ROWS_INTERVAL)
    better = block_of(np.full(9, 0.4))
    assert schedule.record_skip(better, 9).usual_residual == pytest.approx(0.4)
    assert schedule.record_skip(better, 18).usual_residual == 1.0


@given(st.lists(st.floats(0.0, 5.0), min_size=2, max_size=20), st.integers(0, 9))
def test_no_spread_is_predicted_that_the_rows_cannot_have(residuals, seed):
    weights = np.random.default_rng(seed).uniform(0.1, 2.0, len(residuals))
    error = SearchSchedule(spread=np.inf if any(residuals) else 0.0).standard_error(block_of(residuals, weights))
    mean = np.average(residuals, weights=weights)
    deviation = np.sqrt(np.average((residuals - mean) ** 2, weights=weights))
    assert error >= deviation * np.sqrt(weights @ weights) / weights.sum() - 1e-9
    if mean:
        known = SearchSchedule(spread=deviation / mean).standard_error(block_of(residuals, weights))
        assert known == pytest.approx(deviation * np.sqrt(weights @ weights) / weights.sum(), abs=1e-7)
