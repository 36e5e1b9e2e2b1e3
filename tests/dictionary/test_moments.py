from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary.moments import Moments

SEEDS = st.integers(0, 10**6)


def drawn(seed, n, m, beyond=2):
    """Rows with coordinates in the basis and some energy beyond it."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, m + beyond))
    return rows[:, :m], np.einsum("ij,ij->i", rows, rows), rng.uniform(0.0, 3.0, n)


def assert_same(left, right, tolerance=1e-10):
    for field in fields(Moments):
        ours, theirs = getattr(left, field.name), getattr(right, field.name)
        if field.name == "losses":
            ours, theirs = (ours.on_arrival, ours.by_removal), (theirs.on_arrival, theirs.by_removal)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def assert_conserved(moments):
    assert np.trace(moments.second) + moments.losses.total == pytest.approx(moments.energy, rel=1e-12, abs=1e-12)


@given(SEEDS, st.integers(0, 20), st.integers(0, 5))
def test_moments_are_the_weighted_sums(seed, n, m):
    c, energy, a = drawn(seed, n, m)
    moments = Moments.zero(m).add(c, energy, a)
    assert moments.total_weight == pytest.approx(sum(a))
    assert moments.total_squared_weight == pytest.approx(sum(a**2))
    assert moments.energy == pytest.approx(sum(a * energy))
    np.testing.assert_allclose(moments.first, sum((a[i] * c[i] for i in range(n)), np.zeros(m)), atol=1e-10)
    second = sum((a[i] * np.outer(c[i], c[i]) for i in range(n)), np.zeros((m, m)))
    np.testing.assert_allclose(moments.second, second, atol=1e-10)
    beyond = sum(a[i] * (energy[i] - c[i] @ c[i]) for i in range(n))
    assert moments.losses.total == moments.losses.on_arrival == pytest.approx(beyond, abs=1e-9)
    np.testing.assert_array_equal(moments.second, moments.second.T)
    assert_conserved(moments)


@given(SEEDS, st.integers(1, 20), st.integers(1, 4), st.data())
def test_adding_in_parts_is_adding_at_once(seed, n, m, data):
    cut = data.draw(st.integers(0, n))
    c, energy, a = drawn(seed, n, m)
    parts = Moments.zero(m).add(c[:cut], energy[:cut], a[:cut]).add(c[cut:], energy[cut:], a[cut:])
    assert_same(parts, Moments.zero(m).add(c, energy, a))


def test_a_whole_number_weight_is_a_repeated_row():
    c, energy, _ = drawn(1, 6, 3)
    times = np.array([0, 1, 2, 3, 1, 4])
    weighted = Moments.zero(3).add(c, energy, times.astype(float))
    repeated = Moments.zero(3).add(c.repeat(times, axis=0), energy.repeat(times), np.ones(times.sum()))
    # The squared weights differ: that is what Bessel's correction for weights is about.
    assert_same(replace(weighted, total_squared_weight=repeated.total_squared_weight), repeated)


@given(SEEDS, st.integers(1, 10), st.integers(0, 4), st.integers(0, 3))
def test_growing_adds_directions_with_nothing_recorded(seed, n, m, count):
    moments = Moments.zero(m).add(*drawn(seed, n, m))
    grown = moments.grown(count)
    np.testing.assert_array_equal(grown.second[:m, :m], moments.second)
    assert not grown.second[m:].any()
    assert not grown.first[m:].any()
    assert_same(replace(grown, first=moments.first, second=moments.second), moments, tolerance=0.0)


@given(SEEDS, st.integers(1, 10), st.integers(1, 5), st.data())
def test_rotating_records_the_rows_in_the_smaller_basis(seed, n, m, data):
    k = data.draw(st.integers(0, m))
    c, energy, a = drawn(seed, n, m)
    rotation = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(m, m)))[0][:k]
    rotated = Moments.zero(m).add(c, energy, a).rotated(rotation)
    fresh = Moments.zero(k).add(c @ rotation.T, energy, a)
    np.testing.assert_allclose(rotated.first, fresh.first, atol=1e-9)
    np.testing.assert_allclose(rotated.second, fresh.second, atol=1e-9)
    np.testing.assert_array_equal(rotated.second, rotated.second.T)
    assert rotated.losses.total == pytest.approx(fresh.losses.total, abs=1e-9)
    assert rotated.losses.by_removal >= -1e-12
    assert_conserved(rotated)


def test_means_divide_by_the_weight():
    moments = Moments.zero(1).add(np.array([[1.0], [4.0]]), np.array([1.0, 16.0]), np.array([2.0, 1.0]))
    np.testing.assert_allclose(moments.mean, [2.0])
    assert moments.mean_energy == pytest.approx(6.0)


def test_moments_never_change():
    moments = Moments.zero(2)
    moments.add(*drawn(0, 5, 2))
    assert not moments.second.any()
    with pytest.raises(FrozenInstanceError):
        moments.energy = 1.0
