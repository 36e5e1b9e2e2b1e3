from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary.basis import Basis
from streamkpca.kernels import Linear
from streamkpca.stream.blocks import Block, SearchSchedule


def block_of(residuals, weights=None):
    """Make a block before no atoms whose rows have these squared lengths."""
    rows = np.sqrt(np.asarray(residuals, dtype=float))[:, None]
    return Block(Basis(Linear(), 1), rows, np.ones(len(rows)) if weights is None else weights)


STEADY = block_of(np.ones(9))


def searches(n_blocks, *, found):
    """Run through the blocks of a steady stream; return which are searched, and the schedule at the end."""
    schedule, searched = SearchSchedule(), []
    for i in range(n_blocks):
        if schedule.is_due(STEADY):
            searched.append(i)
            schedule = schedule.searched(found=found, mean_residual=1.0)
        else:
            schedule = schedule.skipped()
    return np.array(searched), schedule


def test_every_block_of_a_young_stream_is_searched():
    for found in (False, True):
        assert searches(128, found=found)[0].tolist() == list(range(128))


@pytest.mark.parametrize(("found", "share"), [(False, 1.0), (True, 0.25)])
def test_old_streams_are_searched_rarely_and_four_times_as_often_while_something_is_found(found, share):
    searched, schedule = searches(9000, found=found)
    longest = np.minimum(searched[:-1] ** 2 // 8192, 1024)
    old = searched[:-1] > 300
    gaps = np.diff(searched)[old]
    assert np.all(gaps >= longest[old] // 4)
    np.testing.assert_array_equal(gaps[1:], np.maximum(longest[old][1:] * share, 1).astype(int))
    assert schedule.interval == 1024 * share
    worse = block_of(np.full(9, 1.4))
    # Never in the first half of the interval.
    assert not replace(schedule, countdown=schedule.interval // 2 + 1).is_due(worse)
    assert replace(schedule, countdown=schedule.interval // 2).is_due(worse)
    assert not replace(schedule, countdown=schedule.interval // 2).is_due(STEADY)


def test_a_drift_makes_the_stream_younger_but_not_new():
    for n_blocks, expected in ((100, 100), (9000, 512)):
        schedule = replace(SearchSchedule(), n_blocks=n_blocks, countdown=100, interval=200).reset_after_drift()
        assert schedule.is_due(STEADY)
        assert schedule.n_blocks == expected


def test_successful_searches_halve_the_interval_and_others_double_it():
    schedule = replace(SearchSchedule(), n_blocks=9000, interval=1024)
    intervals = []
    for found in (True, True, True, False, False, False):
        schedule = schedule.searched(found=found, mean_residual=1.0)
        intervals.append(schedule.interval)
    assert intervals == [512, 256, 256, 512, 1024, 1024]


@pytest.mark.parametrize(("residual", "due"), [(1.40, False), (1.46, True), (0.5, False)])
def test_rows_explained_worse_beyond_doubt_are_searched_at_once(residual, due):
    # 100 rows with a standard deviation of one mean: three standard errors are 0.3 of it.
    schedule = replace(SearchSchedule(), n_blocks=300, interval=8).searched(found=False, mean_residual=1.0, spread=1.0)
    schedule = replace(schedule, countdown=schedule.interval // 2)
    rows = np.full(100, residual)
    rows[0] += 50.0
    assert schedule.is_due(block_of(rows * residual / rows.mean())) is due


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
