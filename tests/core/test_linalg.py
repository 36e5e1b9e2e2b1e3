import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca._core.linalg import independent_span

SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.integers(1, 9), st.integers(1, 5))
def test_independent_span_finds_a_basis_of_what_rows_span(seed, n, rank):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, 6))
    rows[rng.integers(0, n)] = 0.0
    accepted, factor, rotation = independent_span(rows)
    assert len(accepted) == np.linalg.matrix_rank(rows) <= rank
    assert np.all(np.diff(accepted) > 0)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(len(accepted)), atol=1e-12)
    np.testing.assert_allclose(factor @ rotation, rows[accepted], atol=1e-9)
    assert np.all(np.triu(factor, 1) == 0.0)
    assert np.all(np.diagonal(factor) > 0.0)
    # No row has a part outside the span.
    np.testing.assert_allclose(rows @ rotation.T @ rotation, rows, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-50, 1.0, 1e50])
def test_independence_does_not_depend_on_the_scale(scale):
    accepted, _, _ = independent_span(scale * np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0], [1.0, 0.0]]))
    np.testing.assert_array_equal(accepted, [1, 3])
