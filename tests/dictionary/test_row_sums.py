from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary.moments import RowSums

SEEDS = st.integers(0, 10**6)


def drawn(seed, n, m, *, even=False):
    rng = np.random.default_rng(seed)
    weights = np.ones(n) if even else rng.choice([0.0, 0.5, 1.0, 2.5], n)
    return rng.normal(size=(n, m)), rng.uniform(0.5, 2.0, n), weights


def assert_same(left, right):
    for field in fields(RowSums):
        np.testing.assert_allclose(getattr(left, field.name), getattr(right, field.name), rtol=1e-12, atol=1e-12)


@given(SEEDS, st.integers(1, 20), st.integers(0, 5), st.booleans())
def test_sums_are_what_they_say(seed, n, m, even):
    vectors, energy, a = drawn(seed, n, m, even=even)
    sums = RowSums.of(vectors, energy, a)
    assert sums.total_weight == pytest.approx(sum(a))
    assert sums.total_squared_weight == pytest.approx(sum(a**2))
    assert sums.energy == pytest.approx(sum(a * energy))
    assert sums.largest_energy == max(energy[a > 0.0], default=0.0)
    np.testing.assert_allclose(sums.first, sum((w * v for w, v in zip(a, vectors, strict=True)), np.zeros(m)))
    second = sum((w * np.outer(v, v) for w, v in zip(a, vectors, strict=True)), np.zeros((m, m)))
    np.testing.assert_allclose(sums.second, second, atol=1e-12)
    np.testing.assert_array_equal(sums.second, sums.second.T)


@given(SEEDS, st.integers(2, 20), st.integers(0, 4), st.data())
def test_sums_of_parts_add_up(seed, n, m, data):
    cut = data.draw(st.integers(1, n - 1))
    rows = drawn(seed, n, m)
    parts = [RowSums.of(*(part[piece] for part in rows)) for piece in (slice(cut), slice(cut, None))]
    assert_same(RowSums.zero(m).plus(parts[0]).plus(parts[1]), RowSums.of(*rows))


@given(SEEDS, st.floats(0.0, 1.0))
def test_fading_is_weighting(seed, factor):
    vectors, energy, a = drawn(seed, 12, 3)
    decayed, weighted = RowSums.of(vectors, energy, a).decayed(factor), RowSums.of(vectors, energy, a * factor)
    # Of rows that no longer count the largest energy is remembered.
    if factor:
        assert_same(decayed, weighted)
    assert decayed.total_squared_weight == pytest.approx(factor**2 * (a @ a))


@given(SEEDS, st.integers(0, 4), st.integers(0, 4))
def test_a_linear_map_of_the_rows_is_one_of_the_sums(seed, m, k):
    vectors, energy, a = drawn(seed, 12, m)
    matrix = np.random.default_rng(seed + 1).normal(size=(k, m))
    mapped = RowSums.of(vectors, energy, a).mapped(matrix)
    assert_same(mapped, RowSums.of(vectors @ matrix.T, energy, a))
    np.testing.assert_array_equal(mapped.second, mapped.second.T)


def test_squares_of_weights_outlast_factors_whose_square_is_no_number():
    sums = RowSums.of(np.ones((2, 1)), np.ones(2), np.full(2, 1e100)).decayed(1e-220)
    assert sums.total_weight == pytest.approx(2e-120)
    assert sums.total_squared_weight == pytest.approx(2e-240)
