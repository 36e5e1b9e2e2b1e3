"""Moments, row sums and projection losses against plain sums over the rows."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkpca.dictionary.moments import Moments, ProjectionLoss, RowSums

SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.integers(1, 6), st.integers(1, 6))
def test_what_another_span_does_not_hold_is_lost_and_the_bounds_hold_for_the_rows(seed, m, m2):
    """The spans are random ones of a space of ten dimensions, and rows first lose what the first does not hold."""
    rng = np.random.default_rng(seed)
    old, new = (np.linalg.qr(rng.normal(size=(10, size)))[0].T for size in (m, m2))
    rows, a = rng.normal(size=(15, 10)), rng.uniform(0.0, 3.0, 15)
    moments = Moments.zero(m).add(rows @ old.T, np.einsum("ij,ij->i", rows, rows), a)
    found = moments.reproject(old @ new.T, 0.125)
    # What this move loses is orthogonal to the new span; what was lost before it need not be.
    lost = np.trace(moments.second) - np.trace(found.second)
    assert found.losses.orthogonal_removal == found.losses.by_removal == pytest.approx(lost, abs=1e-10)
    assert found.losses.other_arrival == moments.losses.on_arrival
    assert (found.losses.orthogonal_arrival, found.losses.rounding) == (0.0, 0.125 * moments.energy)
    recorded = rows @ old.T @ old @ new.T
    true, seen = (np.linalg.svd(np.sqrt(a)[:, None] * part, compute_uv=False) for part in (rows, recorded))
    distance, orthogonal = found.losses.other_distance, found.losses.orthogonal
    k = min(len(true), len(seen))
    assert np.all(true[:k] >= seen[:k] - distance - 1e-9)
    assert np.all(true[:k] <= np.sqrt(seen[:k] ** 2 + orthogonal) + distance + 1e-9)


# Row sums


def test_sums_of_squared_weights_survive_factors_whose_square_underflows():
    sums = RowSums.of(np.ones((2, 1)), np.ones(2), np.full(2, 1e100)).decay(1e-220)
    assert sums.total_weight == pytest.approx(2e-120)
    assert sums.total_squared_weight == pytest.approx(2e-240)


# Projection losses


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
