"""Moments, row sums and projection losses against plain sums over the rows."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary.moments import Moments, ProjectionLoss, RowSums

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


@given(SEEDS, st.integers(1, 10), st.integers(0, 4), st.integers(0, 3))
def test_new_directions_have_nothing_recorded(seed, n, m, count):
    moments = Moments.zero(m).add(*drawn(seed, n, m))
    grown = moments.grow(count)
    np.testing.assert_array_equal(grown.second[:m, :m], moments.second)
    assert not grown.second[m:].any()
    assert not grown.first[m:].any()
    assert_same(replace(grown, first=moments.first, second=moments.second), moments, tolerance=0.0)


@given(SEEDS, st.integers(1, 10), st.integers(1, 5), st.data())
def test_rotating_records_the_rows_in_the_smaller_basis(seed, n, m, data):
    k = data.draw(st.integers(0, m))
    c, energy, a = drawn(seed, n, m)
    rotation = np.linalg.qr(np.random.default_rng(seed + 1).normal(size=(m, m)))[0][:k]
    rotated = Moments.zero(m).add(c, energy, a).rotate(rotation)
    direct = Moments.zero(k).add(c @ rotation.T, energy, a)
    np.testing.assert_allclose(rotated.first, direct.first, atol=1e-9)
    np.testing.assert_allclose(rotated.second, direct.second, atol=1e-9)
    np.testing.assert_array_equal(rotated.second, rotated.second.T)
    assert rotated.losses.total == pytest.approx(direct.losses.total, abs=1e-9)
    assert rotated.losses.by_removal >= -1e-12
    assert_conserved(rotated)


@given(SEEDS, st.integers(1, 6), st.integers(1, 6))
def test_another_span_records_the_projections_of_what_was_recorded(seed, m, m2):
    """The spans are random ones of a space of ten dimensions, and rows first lose what the first does not hold."""
    rng = np.random.default_rng(seed)
    old, new = (np.linalg.qr(rng.normal(size=(10, size)))[0].T for size in (m, m2))
    rows, a = rng.normal(size=(15, 10)), rng.uniform(0.0, 3.0, 15)
    moments = Moments.zero(m).add(rows @ old.T, np.einsum("ij,ij->i", rows, rows), a)
    found = moments.reproject(old @ new.T, 0.125)
    recorded = rows @ old.T @ old @ new.T
    np.testing.assert_allclose(found.first, a @ recorded, atol=1e-10)
    np.testing.assert_allclose(found.second, recorded.T * a @ recorded, atol=1e-10)
    np.testing.assert_array_equal(found.second, found.second.T)
    assert_conserved(found)
    assert (found.energy, found.total_weight, found.largest_energy) == (
        moments.energy, moments.total_weight, moments.largest_energy,
    )  # fmt: skip
    # What this move loses is orthogonal to the new span; what was lost before it need not be.
    lost = np.trace(moments.second) - np.trace(found.second)
    assert found.losses.by_removal == pytest.approx(lost, abs=1e-10)
    assert found.losses.orthogonal_removal == found.losses.by_removal
    assert found.losses.other_arrival == moments.losses.on_arrival
    assert found.losses.orthogonal_arrival == 0.0
    assert found.losses.rounding == 0.125 * moments.energy
    # The bounds on eigenvalues hold for the rows themselves.
    true, seen = (np.linalg.svd(np.sqrt(a)[:, None] * part, compute_uv=False) for part in (rows, recorded))
    distance, orthogonal = found.losses.other_distance, found.losses.orthogonal
    k = min(len(true), len(seen))
    assert np.all(true[:k] >= seen[:k] - distance - 1e-9)
    assert np.all(true[:k] <= np.sqrt(seen[:k] ** 2 + orthogonal) + distance + 1e-9)


@given(SEEDS, st.integers(0, 5))
def test_the_same_span_loses_nothing(seed, m):
    c, energy, a = drawn(seed, 12, m)
    moments = Moments.zero(m).add(c, energy, a)
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(m, m)))[0]
    back = moments.reproject(rotation).reproject(rotation.T)
    assert_same(back, moments, 1e-9)
    assert back.losses.by_removal == pytest.approx(0.0, abs=1e-9 * moments.energy)


@given(SEEDS, st.integers(1, 5), st.integers(1, 5))
def test_rows_recorded_anew_are_recorded_for_the_first_time(seed, m, m2):
    c, energy, a = drawn(seed, 12, m)
    others, _, _ = drawn(seed, 12, m2, beyond=m + 2 - m2 if m2 <= m + 2 else 0)
    before = Moments.zero(m).add(c, energy, a).rotate(np.eye(m)[: max(m - 1, 1)]).grow(1)
    sums = RowSums.of(others, energy, a)
    anew = before.record_anew(sums, 0.25)
    expected = Moments.zero(m2).record_block(sums, 0.25)
    np.testing.assert_array_equal(anew.second, expected.second)
    np.testing.assert_array_equal(anew.first, expected.first)
    assert_conserved(anew)
    # All earlier losses are made good.
    assert anew.losses.by_removal == anew.losses.other_distance == 0.0
    assert anew.losses.rounding == 0.25 * before.energy
    # Totals keep every digit.
    totals = ("total_weight", "total_squared_weight", "energy", "largest_energy")
    assert [getattr(anew, name) for name in totals] == [getattr(before, name) for name in totals]


# Row sums


def drawn_vectors(seed, n, m, *, even=False):
    rng = np.random.default_rng(seed)
    weights = np.ones(n) if even else rng.choice([0.0, 0.5, 1.0, 2.5], n)
    return rng.normal(size=(n, m)), rng.uniform(0.5, 2.0, n), weights


def assert_same_sums(left, right):
    for field in fields(RowSums):
        np.testing.assert_allclose(getattr(left, field.name), getattr(right, field.name), rtol=1e-12, atol=1e-12)


@given(SEEDS, st.integers(1, 20), st.integers(0, 5), st.booleans())
def test_row_sums_are_the_weighted_sums(seed, n, m, even):
    vectors, energy, a = drawn_vectors(seed, n, m, even=even)
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
    rows = drawn_vectors(seed, n, m)
    parts = [RowSums.of(*(part[piece] for part in rows)) for piece in (slice(cut), slice(cut, None))]
    assert_same_sums(RowSums.zero(m).plus(parts[0]).plus(parts[1]), RowSums.of(*rows))


@given(SEEDS, st.floats(0.0, 1.0))
def test_decay_multiplies_the_weights(seed, factor):
    vectors, energy, a = drawn_vectors(seed, 12, 3)
    decayed, weighted = RowSums.of(vectors, energy, a).decay(factor), RowSums.of(vectors, energy, a * factor)
    # The largest energy is kept even when its row has no weight left.
    if factor:
        assert_same_sums(decayed, weighted)
    assert decayed.total_squared_weight == pytest.approx(factor**2 * (a @ a))


@given(SEEDS, st.integers(0, 4), st.integers(0, 4))
def test_mapped_sums_are_the_sums_of_mapped_rows(seed, m, k):
    vectors, energy, a = drawn_vectors(seed, 12, m)
    matrix = np.random.default_rng(seed + 1).normal(size=(k, m))
    mapped = RowSums.of(vectors, energy, a).map(matrix)
    assert_same_sums(mapped, RowSums.of(vectors @ matrix.T, energy, a))
    np.testing.assert_array_equal(mapped.second, mapped.second.T)


def test_sums_of_squared_weights_survive_factors_whose_square_underflows():
    sums = RowSums.of(np.ones((2, 1)), np.ones(2), np.full(2, 1e100)).decay(1e-220)
    assert sums.total_weight == pytest.approx(2e-120)
    assert sums.total_squared_weight == pytest.approx(2e-240)


# Projection losses


def test_losses_add_up_and_growth_counts_them_as_other():
    losses = ProjectionLoss().add_arrivals(4.0).add_removal(9.0)
    assert (losses.on_arrival, losses.by_removal, losses.total, losses.orthogonal) == (4.0, 9.0, 13.0, 13.0)
    assert losses.other_distance == 0.0
    grown = losses.span_grown()
    assert (grown.on_arrival, grown.by_removal, grown.orthogonal) == (4.0, 9.0, 0.0)
    assert grown.other_distance == 5.0
    # Arrivals belong to different rows, so squares add up; removals may belong to the same rows, so lengths do.
    again = grown.add_arrivals(12.0).add_removal(4.0).span_grown()
    assert again.other_distance == pytest.approx(4.0 + 3.0 + 2.0)
    assert again.total == 29.0


def test_the_bound_on_rounding_survives_changes_of_the_span():
    losses = ProjectionLoss().add_arrivals(1.0, 0.25).add_rounding(0.5).add_removal(1.0).span_grown()
    assert losses.rounding == 0.75
    assert losses.decay(0.5).rounding == 0.375
    assert losses.merge(losses).rounding == 1.5
    assert losses.total == 2.0


def test_losses_that_rounding_makes_negative_count_as_zero():
    losses = ProjectionLoss().add_arrivals(-1e-18).add_removal(-1e-18)
    assert losses.orthogonal == 0.0
    assert losses.span_grown().other_distance == 0.0


@given(st.floats(0.0, 1.0), st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_decay_multiplies_energies_and_takes_its_root_for_lengths(factor, arrival, removal):
    losses = ProjectionLoss().add_arrivals(arrival).add_removal(removal).span_grown().add_arrivals(arrival)
    decayed = losses.decay(factor)
    assert decayed.total == pytest.approx(factor * losses.total)
    assert decayed.other_distance == pytest.approx(math.sqrt(factor) * losses.other_distance)


def test_lengths_of_losses_of_different_rows_add_as_squares():
    merged = ProjectionLoss().add_removal(9.0).merge(ProjectionLoss().add_removal(16.0).add_arrivals(1.0))
    assert merged.other_distance == pytest.approx(1.0 + 5.0)
    assert merged.orthogonal == 0.0
    assert merged.total == 26.0


@given(SEEDS, st.lists(st.sampled_from(["rows", "grow", "shrink"]), min_size=1, max_size=12))
def test_the_bounds_hold_for_explicit_rows(seed, events):
    """The span of a few rows grows and shrinks along random directions; recorded rows follow it."""
    rng = np.random.default_rng(seed)
    d, rows, recorded = 6, np.empty((0, 6)), np.empty((0, 6))
    basis, losses = np.empty((0, d)), ProjectionLoss()
    for event in events:
        if event == "rows":
            new = rng.normal(size=(5, d))
            kept = new @ basis.T @ basis
            losses = losses.add_arrivals(float((new**2).sum() - (kept**2).sum()))
            rows, recorded = np.vstack([rows, new]), np.vstack([recorded, kept])
        elif event == "grow" and len(basis) < d:
            basis = np.linalg.qr(np.vstack([basis, rng.normal(size=(1, d))]).T)[0].T
            losses = losses.span_grown()
        elif event == "shrink" and len(basis):
            basis = np.linalg.qr(rng.normal(size=(len(basis), len(basis))))[0][1:] @ basis
            kept = recorded @ basis.T @ basis
            losses = losses.add_removal(float((recorded**2).sum() - (kept**2).sum()))
            recorded = kept
    assert losses.total + (recorded**2).sum() == pytest.approx((rows**2).sum())
    if not len(rows):
        return
    true, seen = (np.linalg.svd(part, compute_uv=False) for part in (rows, recorded))
    assert np.all(true >= seen - losses.other_distance - 1e-9)
    assert np.all(true <= np.sqrt(seen**2 + losses.orthogonal) + losses.other_distance + 1e-9)
