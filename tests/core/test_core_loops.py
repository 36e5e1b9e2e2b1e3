import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca._core._loops import all_finite

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(st.integers(1, 6), st.integers(1, 9), st.data())
def test_all_finite_agrees_with_numpy(n, d, data):
    rows = np.array(data.draw(st.lists(NUMBERS, min_size=n * d, max_size=n * d))).reshape(n, d)
    assert all_finite(rows) == np.isfinite(rows).all()


@pytest.mark.parametrize(("bad", "place"), [(np.nan, (0, 0)), (np.inf, (3, 17)), (-np.inf, (99, 63))])
def test_one_bad_number_is_found_anywhere(bad, place):
    rows = np.random.default_rng(0).normal(size=(100, 64))
    assert all_finite(rows)
    rows[place] = bad
    assert not all_finite(rows)
