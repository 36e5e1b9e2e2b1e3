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


def searches(n_blocks, schedule=None):
    """Run through the blocks of a steady stream; return which are searched, and the schedule at the end."""
    schedule, searched = schedule or SearchSchedule(), []
    for i in range(n_blocks):
        if schedule.is_due(STEADY):
            searched.append(i)
            schedule = schedule.searched(9 * i, 1.0, 0.0)
        else:
            schedule = schedule.skipped()
    return np.array(searched), schedule


def test_pauses_are_a_quarter_of_the_stream_and_no_longer_than_1024_blocks():
    searched, _ = searches(20_000)
    pauses = np.diff(searched) - 1
    np.testing.assert_array_equal(pauses, np.minimum((searched[:-1] + 1) // 4, 1024))
    assert searched[:4].tolist() == [0, 1, 2, 3]
    assert len(searched) < 60


def test_a_search_may_ask_for_another_at_once():
    schedule = replace(SearchSchedule(), n_blocks=100)
    assert schedule.searched(0, 1.0, 0.0).countdown == 25
    assert schedule.searched(0, 1.0, 0.0, again=True).is_due(STEADY)


def test_after_a_drift_the_stream_is_searched_as_often_as_a_new_one():
    schedule = replace(SearchSchedule(), n_blocks=9000, countdown=100, n_rows_searched=77).reset_after_drift()
    assert schedule.n_rows_searched == 77
    np.testing.assert_array_equal(searches(500, schedule)[0], searches(500)[0])


@pytest.mark.parametrize(("residual", "due"), [(1.30, False), (1.33, True), (0.5, False)])
def test_rows_explained_worse_beyond_doubt_are_searched_at_once(residual, due):
    # 100 rows with a standard deviation of one mean: two standard errors are 0.2 of it.
    schedule = replace(SearchSchedule(), n_blocks=300).searched(0, 1.0, 1.0)
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
