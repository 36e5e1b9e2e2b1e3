import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.stream.summary import clamp_decay, decayed_weights


@given(st.floats(0.5, 50.0), st.integers(1, 9))
def test_fading_halves_weights_every_half_life(half_life, b):
    factor, weights = decayed_weights(np.full(b, 3.0), half_life)
    assert factor == pytest.approx(2.0 ** (-b / half_life))
    np.testing.assert_allclose(weights, 3.0 * 2.0 ** (-np.arange(b)[::-1] / half_life))
    assert decayed_weights(weights, None)[1] is weights


def test_rows_faded_beyond_all_numbers_count_nothing():
    factor, weights = decayed_weights(np.ones(5), 1e-3)
    assert factor == 0.0
    assert weights.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]


@given(st.floats(0.0, 1.0), st.floats(1e-119, 1e100))
def test_forgetting_leaves_something_to_divide_by(factor, total):
    possible = clamp_decay(factor, total, 1e-120)
    assert factor <= possible <= 1.0
    assert possible * total >= 1e-120 * (1.0 - 1e-12)
    assert possible == factor or possible * total == pytest.approx(1e-120)
    assert clamp_decay(factor, 0.0, 1e-120) == 1.0
