"""Statistics of windows against their definition; also run without the compiler and with bounds checks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.rows._loops import window_statistics


@given(st.integers(0, 2**31), st.integers(2, 6), st.integers(0, 9))
def test_windows_have_the_statistics_of_their_rows(seed: int, length: int, more: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(30, 2)) + 1e6 * random.integers(0, 2)
    rows[random.random(rows.shape) < 0.2] = np.nan
    first = 2 * length + more
    origin = first - first % length - length
    out = np.empty((len(rows) - first, 6))
    window_statistics(rows[origin:].copy(), origin, first, length, out)
    for number, found in enumerate(out, start=first):
        for j in range(2):
            window = rows[number - length + 1 : number + 1, j]
            known = window[~np.isnan(window)]
            if 2 * len(known) < length:
                assert np.isnan(found[j::2]).all()
            else:
                np.testing.assert_allclose(
                    found[j::2], [known.mean(), known.std(), np.ptp(known)], rtol=1e-9, atol=1e-9
                )
