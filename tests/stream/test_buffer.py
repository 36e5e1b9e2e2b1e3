import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.stream.blocks import RowBuffer

ROWS = np.random.default_rng(0).normal(size=(200, 3))
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2.0, 200)


@given(st.lists(st.integers(0, 40), max_size=8))
def test_rows_are_there_in_their_order_and_older_values_do_not_notice(sizes):
    values, start = [RowBuffer.empty(3)], 0
    for size in sizes:
        piece = slice(start, min(start + size, 199))
        values.append(values[-1].joined(ROWS[piece], WEIGHTS[piece], 200))
        start = piece.stop
    stops = np.minimum(np.cumsum([0, *sizes]), 199)
    for value, stop in zip(values, stops, strict=True):
        assert value.n_rows == stop
        np.testing.assert_array_equal(value.rows, ROWS[:stop])
        np.testing.assert_array_equal(value.weights, WEIGHTS[:stop])


def test_single_rows_are_written_in_place_for_the_most_part():
    pending, buffers = RowBuffer.empty(3), set()
    for i in range(127):
        pending = pending.joined(ROWS[i : i + 1], WEIGHTS[i : i + 1], 128)
        buffers.add(id(pending.row_buffer))
    assert len(buffers) <= 4
    np.testing.assert_array_equal(pending.rows, ROWS[:127])


@pytest.mark.parametrize("most", [2, 100, 10**15])
def test_buffers_are_no_larger_than_a_block_and_no_larger_than_needed(most):
    pending = RowBuffer.empty(3).joined(ROWS[:1], WEIGHTS[:1], most)
    assert len(pending.row_buffer) == min(most, 32)


def test_decay_leaves_the_older_value():
    pending = RowBuffer.empty(3).joined(ROWS[:5], WEIGHTS[:5], 8)
    decayed = pending.decayed(0.5)
    np.testing.assert_array_equal(decayed.weights, 0.5 * WEIGHTS[:5])
    np.testing.assert_array_equal(pending.weights, WEIGHTS[:5])
    np.testing.assert_array_equal(decayed.joined(ROWS[5:6], WEIGHTS[5:6], 8).rows, ROWS[:6])
