"""Lasting changes: the sum that finds them, against the definition, and the row that dates them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.monitoring.lasting_changes import LASTING, Cusum


def slow_cusum(is_rare):
    """Return the first row after the last one where the sum was zero, the sum, and the rare rows since then."""
    total, start = 0.0, 0
    for row, rare in enumerate(is_rare):
        total = max(total + (1.0 if rare else 0.0) - 0.05, 0.0)
        start = row + 1 if total == 0.0 else start
    return (start, total, sum(is_rare[start:])) if total else (0, 0.0, 0)


@given(st.lists(st.sampled_from([True, False, False, False]), max_size=120), st.lists(st.integers(1, 9), max_size=40))
def test_sums_are_those_of_the_definition_whatever_the_cuts(is_rare, sizes):
    whole = Cusum().advance(np.array(is_rare, dtype=bool), 0)
    piecewise, first = Cusum(), 0
    for size in [*sizes, len(is_rare)]:
        piece = np.array(is_rare[first : first + size], dtype=bool)
        piecewise, first = piecewise.advance(piece, first), first + len(piece)
    start, excess, n_rare = slow_cusum(is_rare)
    for found in (whole, piecewise):
        assert (found.start, found.counts.sum()) == (start, n_rare)
        assert found.excess == pytest.approx(excess, abs=1e-12)
    assert piecewise.excess == whole.excess


@given(seed=st.integers(0, 2**16), cuts=st.lists(st.integers(0, 1300), max_size=5).map(sorted))
def test_a_change_is_dated_within_a_few_rows_though_sparse_rare_rows_came_long_before(seed, cuts):
    random = np.random.default_rng(seed)
    is_rare = random.random(1300) < np.where(np.arange(1300) < 1000, 0.06, 0.8)
    # The sum is positive from here on.
    is_rare[100:140] = True
    whole, piecewise, first = Cusum().advance(is_rare, 0), Cusum(), 0
    for stop in [*cuts, 1300]:
        piecewise, first = piecewise.advance(is_rare[first:stop], first), stop
    start, time = whole.find_start(1300)
    assert whole.start <= 100
    # Rare rows that come just before, by chance, may belong to it: a bin of 32 rows more.
    assert 960 <= start <= 1032
    assert time is None
    assert piecewise.find_start(1300) == (start, None)
    assert whole.counts[whole.firsts >= start].sum() == np.count_nonzero(is_rare[start:])


def test_a_change_is_dated_where_rare_rows_became_frequent_however_the_sum_began():
    errors = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        is_rare = random.random(4000) < np.where(np.arange(4000) < 3000, 0.02, 0.6)
        total, n_rows = Cusum(), 0
        while total.excess < LASTING:
            total, n_rows = total.advance(is_rare[n_rows : n_rows + 128], n_rows), n_rows + 128
        errors.append(total.find_start(n_rows)[0] - 3000)
    assert abs(np.median(errors)) <= 1
    assert np.abs(errors).max() <= 200
